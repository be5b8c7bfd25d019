/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse-mode differentiation of a program: the forward operations are walked from the last to the first, and each
 * emits its own backward. What a backward needs of the forward pass it names as an input; whether that was stored or is
 * run again is the recompute stage's business.
 */
#include <stdlib.h>

#include "plan/stages.h"

struct tape {
    struct snug_program *program;
    snug_status status;
    enum snug_phase phase; /* of the operations being emitted */
    int32_t layer;
    int32_t *gradient; /* by forward tensor: the tensor that holds its gradient, or -1 */
    int32_t *bias;     /* by forward tensor: a product's bias that the operation behind it adds, or -1 */
    bool *touched;     /* by forward tensor: an earlier operation of the step has written its gradient */
};

static int32_t gradient_of(const struct tape *t, int32_t tensor) { return t->gradient[tensor]; }

static void emit(struct tape *t, struct snug_op op) {
    op.phase = t->phase;
    op.layer = t->layer;
    if (t->status == SNUG_OK) t->status = snug_program_op(t->program, op);
}

/* The gradient tensor of an activation or a weight, made at its first use. */
static int32_t new_gradient(struct tape *t, int32_t of) {
    if (t->status != SNUG_OK || t->gradient[of] >= 0) return t->gradient[of];
    struct snug_tensor like = t->program->tensors[of];
    like.memory_class = like.persistent ? SNUG_MEMORY_GRADIENTS : SNUG_MEMORY_TEMPORARY;
    like.low_precision = !like.persistent;
    char name[sizeof like.name];
    memcpy(name, like.name, sizeof name);
    int32_t made = -1;
    t->status = snug_program_tensor(t->program, like, &made, "grad.%s", name);
    t->gradient[of] = made;
    return made;
}

static void fill(struct tape *t, int32_t tensor, enum snug_phase phase, bool first) {
    const enum snug_phase here = t->phase;
    t->phase = phase;
    emit(t, (struct snug_op){.kind = SNUG_OP_FILL, .in = SNUG_INPUTS(-1), .out = SNUG_OUTPUTS(tensor), .first = first});
    t->phase = here;
}

/* Replaces the weights among op's outputs by their gradients and emits it. Its first flag speaks for all of them: where
   some gradients were written before and others not, the latter are cleared first. */
static void emit_weight_gradients(struct tape *t, struct snug_op op, const int32_t weights[SNUG_OP_OUTPUTS]) {
    bool touched = false;
    for (int i = 0; i < SNUG_OP_OUTPUTS; i++) touched |= weights[i] >= 0 && t->touched[weights[i]];
    op.first = !touched;
    for (int i = 0; i < SNUG_OP_OUTPUTS; i++) {
        const int32_t w = weights[i];
        if (w < 0) continue;
        op.out[i] = new_gradient(t, w);
        if (touched && !t->touched[w]) fill(t, op.out[i], SNUG_PHASE_FORWARD, true);
        t->touched[w] = true;
    }
    emit(t, op);
}

static void linear(struct tape *t, const struct snug_op *op) {
    const int32_t x = op->in[0], w = op->in[1], y = op->out[0], dy = gradient_of(t, y);
    const int32_t b = op->in[2] >= 0 ? op->in[2] : t->bias[y];
    emit_weight_gradients(
        t, (struct snug_op){.kind = SNUG_OP_LINEAR_DW, .in = SNUG_INPUTS(dy, x), .out = SNUG_OUTPUTS(-1)},
        (const int32_t[])SNUG_OUTPUTS(w, b));
    const bool accumulate = t->gradient[x] >= 0;
    emit(t, (struct snug_op){.kind = SNUG_OP_LINEAR_DX,
                             .in = SNUG_INPUTS(dy, w),
                             .out = SNUG_OUTPUTS(new_gradient(t, x)),
                             .accumulate = accumulate});
}

/* ds takes dy's place, and is the gradient of the residual input; products add to it later. */
static void norm(struct tape *t, const struct snug_op *op) {
    const bool residual = op->kind == SNUG_OP_RESIDUAL_NORM;
    if (!residual && op->p > 0)
        t->status = snug_fail(t->program->ctx, SNUG_E_INTERNAL, "a norm with dropout behind it has no backward");
    const int32_t s = residual ? op->out[0] : op->in[0], y = residual ? op->out[1] : op->out[0];
    const int32_t gamma = op->in[residual ? 2 : 1], beta = op->in[residual ? 3 : 2], dy = gradient_of(t, y);
    int32_t dz = -1;
    if (residual) {
        const int32_t z = op->in[0], x = op->in[1];
        if (t->gradient[x] >= 0) /* it would have to be added to, which NORM_BACKWARD does not do */
            t->status = snug_fail(t->program->ctx, SNUG_E_INTERNAL, "%s: the residual is not its input's last use",
                                  t->program->tensors[y].name);
        t->gradient[x] = dy;
        if (op->p > 0)
            dz = new_gradient(t, z);
        else
            t->gradient[z] = dy;
    } else {
        t->gradient[s] = dy;
    }
    emit_weight_gradients(t,
                          (struct snug_op){.kind = SNUG_OP_NORM_BACKWARD,
                                           .in = SNUG_INPUTS(dy, s, gamma),
                                           .out = SNUG_OUTPUTS(dy, dz),
                                           .eps = op->eps,
                                           .p = op->p,
                                           .site = op->site},
                          (const int32_t[])SNUG_OUTPUTS(-1, -1, gamma, beta));
}

static void embed(struct tape *t, const struct snug_op *op) {
    emit_weight_gradients(t,
                          (struct snug_op){.kind = SNUG_OP_EMBED_BACKWARD,
                                           .in = SNUG_INPUTS(gradient_of(t, op->out[1]), op->out[0], op->in[3]),
                                           .out = SNUG_OUTPUTS(-1),
                                           .eps = op->eps,
                                           .p = op->p,
                                           .site = op->site,
                                           .padding = op->padding},
                          (const int32_t[])SNUG_OUTPUTS(op->in[0], op->in[1], op->in[2], op->in[3], op->in[4]));
}

static void attention(struct tape *t, const struct snug_op *op) {
    struct snug_op backward = *op;
    backward.kind = SNUG_OP_ATTENTION_BACKWARD;
    const int32_t o = op->out[0], qkv = op->in[0];
    memcpy(backward.in, (const int32_t[])SNUG_INPUTS(gradient_of(t, o), qkv, o, op->out[1]), sizeof backward.in);
    memcpy(backward.out, (const int32_t[])SNUG_OUTPUTS(new_gradient(t, qkv)), sizeof backward.out);
    emit(t, backward);
}

/* du takes da's place. It is the bias's gradient row by row as well, and summed where it is read for the weight's. */
static void activation(struct tape *t, const struct snug_op *op) {
    const int32_t u = op->in[0], bias = op->in[1], da = gradient_of(t, op->out[0]);
    t->gradient[u] = da;
    t->bias[u] = bias;
    emit(t, (struct snug_op){.kind = SNUG_OP_ACTIVATION_BACKWARD,
                             .in = SNUG_INPUTS(da, u, bias),
                             .out = SNUG_OUTPUTS(da),
                             .activation = op->activation});
}

static void dropout(struct tape *t, const struct snug_op *op) {
    const int32_t dy = gradient_of(t, op->out[0]);
    t->gradient[op->in[0]] = dy;
    emit(t, (struct snug_op){
                .kind = SNUG_OP_DROPOUT, .in = SNUG_INPUTS(dy), .out = SNUG_OUTPUTS(dy), .p = op->p, .site = op->site});
}

/* Rows are added to dx, in HEAD chunk by chunk, so it is cleared before the first if nothing else has written it. */
static void gather(struct tape *t, const struct snug_op *op) {
    const bool fresh = t->gradient[op->in[0]] < 0;
    const int32_t dr = gradient_of(t, op->out[0]), dx = new_gradient(t, op->in[0]);
    if (fresh) fill(t, dx, t->phase == SNUG_PHASE_HEAD ? SNUG_PHASE_FORWARD : t->phase, false);
    emit(t, (struct snug_op){.kind = SNUG_OP_GATHER_BACKWARD, .in = SNUG_INPUTS(dr), .out = SNUG_OUTPUTS(dx)});
}

/* The loss gives its own gradient; in fp32 it takes the logits' place. */
static void loss(struct tape *t, size_t index) {
    const int32_t logits = t->program->ops[index].in[0];
    if (t->program->compute == SNUG_F32) t->gradient[logits] = logits;
    const int32_t d = new_gradient(t, logits);
    t->program->ops[index].out[1] = d;
}

static void differentiate(struct tape *t, size_t index) {
    const struct snug_op op = t->program->ops[index]; /* a copy: emitting moves the list */
    t->phase = op.phase == SNUG_PHASE_FORWARD ? SNUG_PHASE_BACKWARD : SNUG_PHASE_HEAD;
    t->layer = op.layer;
    switch (op.kind) {
    case SNUG_OP_EMBED: embed(t, &op); break;
    case SNUG_OP_LINEAR: linear(t, &op); break;
    case SNUG_OP_ATTENTION: attention(t, &op); break;
    case SNUG_OP_RESIDUAL_NORM:
    case SNUG_OP_NORM: norm(t, &op); break;
    case SNUG_OP_ACTIVATION: activation(t, &op); break;
    case SNUG_OP_DROPOUT: dropout(t, &op); break;
    case SNUG_OP_GATHER: gather(t, &op); break;
    case SNUG_OP_LOSS: loss(t, index); break;
    default:
        t->status = snug_fail(t->program->ctx, SNUG_E_INTERNAL, "operation %s has no backward", snug_op_name(op.kind));
    }
}

snug_status snug_stage_differentiate(struct snug_program *program) {
    struct tape tape = {.program = program};
    /* Gradients are never differentiated, so that the forward tensors' number is enough. */
    const size_t tensors = program->tensor_count, ops = program->op_count;
    RETURN_IF_ERROR(snug_alloc(program->ctx, tensors, sizeof *tape.gradient, (void **)&tape.gradient));
    tape.status = snug_alloc(program->ctx, tensors, sizeof *tape.bias, (void **)&tape.bias);
    if (tape.status == SNUG_OK)
        tape.status = snug_alloc(program->ctx, tensors, sizeof *tape.touched, (void **)&tape.touched);
    for (size_t i = 0; i < tensors && tape.status == SNUG_OK; i++) tape.gradient[i] = tape.bias[i] = -1;
    for (size_t i = ops; i-- > 0 && tape.status == SNUG_OK;) differentiate(&tape, i);
    free(tape.gradient);
    free(tape.bias);
    free(tape.touched);
    return tape.status;
}
