/* SPDX-License-Identifier: Apache-2.0 */
/* Running a phase of a placed program on a backend. */

#include "plan/stages.h"

/* Clearing a gradient is for the step's first micro-batch only; fetching it is for the others. */
static bool is_idle(const struct snug_run *run, const struct snug_op *op) {
    if (op->last && !run->batch->last_in_step) return true;
    if (op->kind == SNUG_OP_FILL) return op->first && !snug_run_overwrites(run, op);
    return op->kind == SNUG_OP_FETCH && snug_run_overwrites(run, op);
}

static snug_status run_ops(struct snug_run *run, const struct snug_backend *backend, enum snug_phase phase,
                           struct snug_profile *profile) {
    bool done;
    RETURN_IF_ERROR(backend->begin(run, phase, &done));
    if (done) return SNUG_OK;
    for (size_t i = 0; i < run->program->op_count; i++) {
        const struct snug_op *op = &run->program->ops[i];
        if (op->phase != phase || is_idle(run, op)) continue;
        const double begin = profile ? snug_seconds() : 0;
        RETURN_IF_ERROR(backend->ops[op->kind](run, op));
        if (profile) {
            profile->seconds[op->kind] += snug_seconds() - begin;
            profile->calls[op->kind]++;
        }
    }
    return backend->end(run, phase);
}

/* At least one, so that a batch without head rows still clears the head's gradients. */
int64_t snug_head_chunks(const struct snug_run *run) {
    const int64_t size = run->program->capacity[SNUG_EXTENT_ROWS], rows = run->batch->rows;
    return rows > size ? (rows + size - 1) / size : 1;
}

snug_status snug_run_head_chunk(struct snug_run *run, const struct snug_backend *backend, int64_t chunk,
                                struct snug_profile *profile) {
    const int64_t size = run->program->capacity[SNUG_EXTENT_ROWS], left = run->batch->rows - chunk * size;
    run->chunk = chunk;
    run->first_row = chunk * size;
    run->rows = left < size ? left : size;
    return run_ops(run, backend, SNUG_PHASE_HEAD, profile);
}

snug_status snug_run_phase(struct snug_run *run, const struct snug_backend *backend, enum snug_phase phase,
                           struct snug_profile *profile) {
    run->chunk = 0;
    /* Those who began a step and did not end it may have left copies under way, into bytes that are others' now. */
    if (run->spool && phase != SNUG_PHASE_HEAD && phase != SNUG_PHASE_BACKWARD)
        RETURN_IF_ERROR(snug_spool_drain(run->ctx, run->spool));
    if (phase != SNUG_PHASE_HEAD) return run_ops(run, backend, phase, profile);
    for (int64_t chunk = 0; chunk < snug_head_chunks(run); chunk++)
        RETURN_IF_ERROR(snug_run_head_chunk(run, backend, chunk, profile));
    return SNUG_OK;
}
