/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's part of a program: the gradient norm and clipping, then an update for each weight. */
#include "plan/stages.h"

static bool decays(const struct snug_program *program, int32_t weight) {
    for (size_t i = 0; i < program->parameter_count; i++)
        if (program->parameters[i].tensor == weight) return program->parameters[i].decay;
    return false;
}

/* The tensor called prefix + name, or -1. */
static int32_t find(const struct snug_program *program, const char *prefix, const char *name) {
    const size_t skip = strlen(prefix);
    for (size_t i = 0; i < program->tensor_count; i++)
        if (strncmp(program->tensors[i].name, prefix, skip) == 0 && strcmp(program->tensors[i].name + skip, name) == 0)
            return (int32_t)i;
    return -1;
}

static snug_status add_state(struct snug_program *program, int32_t weight, const char *prefix, int32_t *out) {
    struct snug_tensor like = program->tensors[weight];
    like.memory_class = SNUG_MEMORY_OPTIMIZER;
    return snug_program_tensor(program, like, out, "%s.%s", prefix, program->tensors[weight].name);
}

snug_status snug_stage_update(struct snug_program *program) {
    const size_t weights = program->tensor_count;
    const struct snug_tensor small = {
        .memory_class = SNUG_MEMORY_OPTIMIZER, .rows = 1, .cols = 2, .layer = -1, .persistent = true};
    int32_t sums, slots = 0;
    RETURN_IF_ERROR(snug_program_tensor(program, small, &program->clip, "clip"));
    RETURN_IF_ERROR(snug_program_tensor(program, small, &sums, "squared_norms"));
    for (size_t i = 0; i < weights; i++) {
        if (program->tensors[i].memory_class != SNUG_MEMORY_WEIGHTS) continue;
        const int32_t weight = (int32_t)i, gradient = find(program, "grad.", program->tensors[i].name);
        if (gradient < 0) continue;
        int32_t m, v;
        RETURN_IF_ERROR(add_state(program, weight, "exp_avg", &m));
        RETURN_IF_ERROR(add_state(program, weight, "exp_avg_sq", &v));
        const int32_t layer = program->tensors[i].layer;
        RETURN_IF_ERROR(snug_program_op(program, (struct snug_op){.kind = SNUG_OP_SQUARED_NORM,
                                                                  .phase = SNUG_PHASE_CLIP,
                                                                  .layer = layer,
                                                                  .in = SNUG_INPUTS(gradient),
                                                                  .out = SNUG_OUTPUTS(sums),
                                                                  .slot = slots++}));
        RETURN_IF_ERROR(snug_program_op(program, (struct snug_op){.kind = SNUG_OP_ADAMW,
                                                                  .phase = SNUG_PHASE_UPDATE,
                                                                  .layer = layer,
                                                                  .in = SNUG_INPUTS(gradient, program->clip),
                                                                  .out = SNUG_OUTPUTS(weight, m, v),
                                                                  .decay = decays(program, weight)}));
    }
    program->tensors[sums].cols = slots;
    return snug_program_op(program, (struct snug_op){.kind = SNUG_OP_CLIP,
                                                     .phase = SNUG_PHASE_CLIP,
                                                     .layer = -1,
                                                     .in = SNUG_INPUTS(sums),
                                                     .out = SNUG_OUTPUTS(program->clip)});
}
