/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the phases of a placed program on a backend, and times its operations. */
#ifndef SNUG_RUN_RUN_H
#define SNUG_RUN_RUN_H

#include "plan/stages.h"

const char *snug_phase_name(enum snug_phase phase);

/* Time by kind of operation; optional. On an asynchronous backend it is the time of launching the operations. */
struct snug_profile {
    double seconds[SNUG_OP_COUNT];
    int64_t calls[SNUG_OP_COUNT];
    struct snug_op_times *times; /* for the actual times of single operations; or NULL */
};
/* Times by operation of one program, whose run is one_by_one. Recorded timestamps, and copies, count after they are
 * collected. */
struct snug_op_times {
    double *seconds; /* both have op_count elements */
    int64_t *calls;
    double ended[SNUG_PHASE_COUNT]; /* for which the ends of phases waited for copies that cross phases */
    double copied[2];               /* of the copies themselves, which run beside operations: of fetches, of stores */
    int32_t *noted; /* what each timestamp ends: an operation; SNUG_TIMES_BEGIN: nothing, a phase begins;
                       SNUG_TIMES_END + phase: the phase */
    size_t noted_count, noted_capacity;
    struct snug_timestamps *timestamps;
    struct snug_copy_times copies;
    bool *stored; /* by copy */
    size_t stored_capacity;
    double file[2]; /* as copied, of all earlier copies of the offload file */
};
enum { SNUG_TIMES_BEGIN = -1, SNUG_TIMES_END = -1 - SNUG_PHASE_COUNT };
/* Before the first of the run's steps that are timed; waits for copies from and to the offload file. */
snug_status snug_op_times_init(struct snug_run *run, const struct snug_backend *backend, struct snug_op_times *times);
/* Waits for the recorded timestamps and adds their times. Call it between steps. */
snug_status snug_op_times_collect(struct snug_run *run, const struct snug_backend *backend,
                                  struct snug_op_times *times);
void snug_op_times_free(const struct snug_backend *backend, struct snug_op_times *times);
/* Runs the operations of a phase in order; HEAD once per chunk of loss positions, at least once. */
snug_status snug_run_phase(struct snug_run *run, const struct snug_backend *backend, enum snug_phase phase,
                           struct snug_profile *profile);
/* Runs one operation, whatever its phase. Operations are called by this and the functions beside it alone: those of
 * the host belong to the compute thread. */
snug_status snug_run_one(struct snug_run *run, const struct snug_backend *backend, const struct snug_op *op);
/* Runs one chunk of HEAD, for callers that read its logits before the next chunk. */
snug_status snug_run_head_chunk(struct snug_run *run, const struct snug_backend *backend, int64_t chunk,
                                struct snug_profile *profile);
/* Runs HEAD of preference tuning over all chunks, forward: for the sums and results of PREFERENCE. */
snug_status snug_run_scores(struct snug_run *run, const struct snug_backend *backend, struct snug_profile *profile);
int64_t snug_head_chunks(const struct snug_run *run);
/* Does the rest of the last update, which the next FORWARD would do (see struct snug_crossing). Afterwards another
 * program may use the arena. */
snug_status snug_run_pending(struct snug_run *run, const struct snug_backend *backend, struct snug_profile *profile);
/* As snug_run_pending(); also does all pending lazy updates before run->step, and waits for copies to the backing
 * store: to be called between steps, before weights or states are read outside of training. No phase: a single
 * operation of FORWARD with all rows instead of the batch's. Nothing has to run around it, because tensors of lazy rows
 * are never offloaded (train/run_plan.c). */
snug_status snug_run_flush(const struct snug_run *run, const struct snug_backend *backend,
                           struct snug_profile *profile);

#endif
