/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data parallelism: the ranks of a run have the same weights and states, and each has its own micro-batches of a step.
 * After the last one every gradient is summed over the ranks, before its norm is taken, so that all ranks clip and
 * update alike. The sums are in CLIP, because a rank without a micro-batch in an epoch's last step runs no other phase
 * before it.
 */
#include "plan/stages.h"

snug_status snug_stage_partition(struct snug_program *program, const struct snug_methods *methods) {
    program->ranks = methods->ranks;
    for (size_t i = 1; i < program->tensor_count && methods->ranks > 1; i++) {
        const struct snug_tensor *weight = &program->tensors[i];
        if (!weight->gradient) continue;
        const struct snug_op sum = {.kind = SNUG_OP_SUM_RANKS,
                                    .phase = SNUG_PHASE_CLIP,
                                    .part = weight->part,
                                    .layer = weight->layer,
                                    .sum_ranks = {.g = weight->gradient}};
        RETURN_IF_ERROR(snug_program_op(program, sum));
    }
    return SNUG_OK;
}
