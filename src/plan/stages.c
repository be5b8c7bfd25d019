/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the stages. */
#include "plan/stages.h"
#include "program/edits.h"

snug_status snug_stages(struct snug_program *program, const struct snug_methods *methods) {
    program->accumulates = methods->accumulates;
    if (methods->optimizer) RETURN_IF_ERROR(snug_stage_differentiate(program));
    RETURN_IF_ERROR(snug_stage_addends(program));
    if (methods->optimizer) {
        RETURN_IF_ERROR(snug_stage_recompute(program, methods->recompute));
        RETURN_IF_ERROR(snug_stage_update(program, methods));
        RETURN_IF_ERROR(snug_stage_lazy_rows(program, methods));
    }
    RETURN_IF_ERROR(snug_stage_precision(program, methods));
    RETURN_IF_ERROR(snug_stage_partition(program, methods));
    RETURN_IF_ERROR(snug_program_sort(program));
    return snug_stage_moves(program, &methods->offload);
}
