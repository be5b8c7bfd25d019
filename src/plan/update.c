/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's part of a program: the gradient norm and clipping, then an update for each weight. */
#include <stdlib.h>

#include "plan/update.h"

static const enum snug_op_kind op_of[SNUG_OPTIMIZER_COUNT] = {
    [SNUG_ADAM] = SNUG_OP_ADAM,           [SNUG_ADAM_8BIT] = SNUG_OP_ADAM_8BIT, [SNUG_SGD] = SNUG_OP_SGD,
    [SNUG_ADAFACTOR] = SNUG_OP_ADAFACTOR, [SNUG_ADAGRAD] = SNUG_OP_ADAGRAD,     [SNUG_RMSPROP] = SNUG_OP_RMSPROP,
    [SNUG_LION] = SNUG_OP_LION,
};

/* The tensor called prefix + name, or -1. */
static int32_t find(const struct snug_program *program, const char *prefix, const char *name) {
    const size_t skip = strlen(prefix);
    for (size_t i = 0; i < program->tensor_count; i++)
        if (strncmp(program->tensors[i].name, prefix, skip) == 0 && strcmp(program->tensors[i].name + skip, name) == 0)
            return (int32_t)i;
    return -1;
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
    struct snug_tensor small = {
        .memory_class = SNUG_MEMORY_OPTIMIZER, .rows = 1, .cols = 2, .layer = -1, .persistent = true};
    RETURN_IF_ERROR(snug_program_tensor(program, small, &program->clip, "clip"));
    small.dtype = SNUG_F64;
    RETURN_IF_ERROR(snug_program_tensor(program, small, &u->sums, "squared_norms"));
    RETURN_IF_ERROR(snug_alloc(program->ctx, weights, sizeof *u->items, (void **)&u->items));
    for (size_t i = 0; i < weights; i++) {
        if (program->tensors[i].memory_class != SNUG_MEMORY_WEIGHTS) continue;
        const int32_t weight = (int32_t)i, gradient = find(program, "grad.", program->tensors[i].name);
        if (gradient < 0) continue;
        struct snug_op update = {.phase = SNUG_PHASE_UPDATE,
                                 .layer = program->tensors[i].layer,
                                 .in = SNUG_INPUTS(gradient, program->clip),
                                 .out = SNUG_OUTPUTS(weight)};
        RETURN_IF_ERROR(add_states(program, optimizer, weight, &update));
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
    return SNUG_OK;
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
    /* Accumulated gradients stand until the last micro-batch, and their norm is known only behind it. */
    const bool inside = methods->update_in_backward && !(methods->accumulates && methods->clips);
    if (status == SNUG_OK)
        status = inside ? snug_update_in_backward(program, methods, &u) : after_backward(program, &u);
    if (status == SNUG_OK)
        status = snug_program_op(program, (struct snug_op){.kind = SNUG_OP_CLIP,
                                                           .phase = SNUG_PHASE_CLIP,
                                                           .layer = -1,
                                                           .in = SNUG_INPUTS(u.sums),
                                                           .out = SNUG_OUTPUTS(program->clip)});
    free(u.items);
    return status;
}
