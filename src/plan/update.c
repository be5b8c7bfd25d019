/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's part of a program: the gradient norm and clipping, then an update for each weight. */
#include <stdlib.h>

#include "optim/loss_scale.h"
#include "plan/update.h"
#include "text/lexicon.h"

static const enum snug_op_kind op_of[SNUG_OPTIMIZER_COUNT] = {
    [SNUG_ADAM] = SNUG_OP_ADAM,           [SNUG_ADAM_8BIT] = SNUG_OP_ADAM_8BIT, [SNUG_SGD] = SNUG_OP_SGD,
    [SNUG_ADAFACTOR] = SNUG_OP_ADAFACTOR, [SNUG_ADAGRAD] = SNUG_OP_ADAGRAD,     [SNUG_RMSPROP] = SNUG_OP_RMSPROP,
    [SNUG_LION] = SNUG_OP_LION,
};

/* The gradient of each tensor, which is called "grad." and the tensor's name; -1: none. Freed by the caller. */
static snug_status find_gradients(const struct snug_program *program, int32_t **out) {
    struct snug_lexicon names = {0};
    snug_status status = snug_alloc(program->ctx, program->tensor_count, sizeof **out, (void **)out);
    for (size_t i = 0; i < program->tensor_count && status == SNUG_OK; i++) {
        const char *name = program->tensors[i].name;
        status = snug_lexicon_add(program->ctx, &names, name, strlen(name), (int32_t)i, &(int32_t){0});
    }
    for (size_t i = 0; i < program->tensor_count && status == SNUG_OK; i++) {
        const char *name = program->tensors[i].name;
        (*out)[i] = snug_lexicon_find(&names, "grad.", 5, name, strlen(name));
    }
    snug_lexicon_free(&names);
    return status;
}

static bool is_table(const struct snug_program *program, int32_t weight) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_EMBED)
            for (int in = 0; in < 3; in++)
                if (program->ops[i].in[in] == weight) return true;
    return false;
}

/* The weight as optimizers see it, and the fields of its update that follow from its parameters. */
static struct snug_weight describe(const struct snug_program *program, int32_t weight, struct snug_op *update) {
    struct snug_weight w = {.rows = program->tensors[weight].rows,
                            .cols = program->tensors[weight].cols,
                            .table = is_table(program, weight)};
    for (size_t i = program->parameter_count; i-- > 0;) {
        const struct snug_parameter *parameter = &program->parameters[i];
        if (parameter->tensor != weight) continue;
        w.segments++;
        w.vector = parameter->shape[1] == 0;
        update->decay = parameter->decay;
        update->parameter = (int32_t)i;
    }
    update->segments = w.segments;
    update->vector = w.vector;
    return w;
}

/* States stand behind the weight and its copy. */
static snug_status add_states(struct snug_program *program, const struct snug_optimizer *optimizer, int32_t weight,
                              struct snug_op *update) {
    struct snug_state states[SNUG_STATES_MAX];
    int count;
    const struct snug_weight w = describe(program, weight, update);
    update->kind = op_of[snug_optimizer_states(optimizer, &w, states, &count)];
    for (int i = 0; i < count; i++) {
        struct snug_tensor like = program->tensors[weight];
        like.memory_class = SNUG_MEMORY_OPTIMIZER;
        like.saved = true;
        like.dtype = states[i].dtype;
        snug_state_size(&states[i], &w, &like.rows, &like.cols);
        RETURN_IF_ERROR(snug_program_tensor(program, like, &update->out[2 + i], "%s.%s", states[i].name,
                                            program->tensors[weight].name));
    }
    return SNUG_OK;
}

/* What the optimizer does with each weight, to be put into the program where the method says. */
static snug_status list_updates(struct snug_program *program, const struct snug_optimizer *optimizer,
                                struct snug_updates *u) {
    const size_t weights = program->tensor_count;
    int32_t *gradients;
    struct snug_tensor small = {
        .memory_class = SNUG_MEMORY_OPTIMIZER, .rows = 1, .cols = 2, .layer = -1, .persistent = true};
    RETURN_IF_ERROR(snug_program_tensor(program, small, &program->clip, "clip"));
    u->scaler = -1;
    if (program->compute == SNUG_F16) {
        struct snug_tensor scaler = small;
        scaler.cols = SNUG_SCALE_VALUES;
        scaler.saved = true;
        RETURN_IF_ERROR(snug_program_tensor(program, scaler, &u->scaler, "loss_scale"));
    }
    small.dtype = SNUG_F64;
    RETURN_IF_ERROR(snug_program_tensor(program, small, &u->sums, "squared_norms"));
    RETURN_IF_ERROR(snug_alloc(program->ctx, weights, sizeof *u->items, (void **)&u->items));
    snug_status status = find_gradients(program, &gradients);
    for (size_t i = 0; i < weights && status == SNUG_OK; i++) {
        const int32_t weight = (int32_t)i, gradient = gradients[i];
        if (program->tensors[i].memory_class != SNUG_MEMORY_WEIGHTS || gradient < 0) continue;
        struct snug_op update = {.phase = SNUG_PHASE_UPDATE,
                                 .layer = program->tensors[i].layer,
                                 .in = SNUG_INPUTS(gradient, program->clip),
                                 .out = SNUG_OUTPUTS(weight)};
        status = add_states(program, optimizer, weight, &update);
        const struct snug_op norm = {.kind = SNUG_OP_SQUARED_NORM,
                                     .phase = SNUG_PHASE_CLIP,
                                     .layer = update.layer,
                                     .in = SNUG_INPUTS(gradient),
                                     .out = SNUG_OUTPUTS(u->sums),
                                     .slot = (int32_t)u->count,
                                     .parameter = update.parameter};
        u->items[u->count++] = (struct snug_weight_update){.norm = norm, .update = update};
    }
    program->tensors[u->sums].cols = (int64_t)u->count;
    free(gradients);
    return status;
}

static snug_status after_backward(struct snug_program *program, const struct snug_updates *u) {
    for (size_t i = 0; i < u->count; i++) {
        RETURN_IF_ERROR(snug_program_op(program, u->items[i].norm));
        RETURN_IF_ERROR(snug_program_op(program, u->items[i].update));
    }
    return SNUG_OK;
}

snug_status snug_stage_update(struct snug_program *program, const struct snug_methods *methods) {
    struct snug_updates u = {0};
    snug_status status = list_updates(program, methods->optimizer, &u);
    /* With loss scaling no weight may change before all gradients are known to be finite: as if they were clipped. */
    struct snug_methods own = *methods;
    own.clips |= u.scaler >= 0;
    /* Accumulated gradients stand until the last micro-batch, and their norm is known only behind it. */
    const bool inside = own.update_in_backward && !(own.accumulates && own.clips);
    if (status == SNUG_OK) status = inside ? snug_update_in_backward(program, &own, &u) : after_backward(program, &u);
    if (status == SNUG_OK)
        status = snug_program_op(program, (struct snug_op){.kind = SNUG_OP_CLIP,
                                                           .phase = SNUG_PHASE_CLIP,
                                                           .layer = -1,
                                                           .in = SNUG_INPUTS(u.sums),
                                                           .out = SNUG_OUTPUTS(program->clip, u.scaler)});
    if (status == SNUG_OK && u.scaler >= 0)
        status = snug_program_op(program, (struct snug_op){.kind = SNUG_OP_RESCALE,
                                                           .phase = SNUG_PHASE_UPDATE,
                                                           .layer = -1,
                                                           .in = SNUG_INPUTS(u.scaler),
                                                           .out = SNUG_OUTPUTS(u.scaler)});
    free(u.items);
    return status;
}
