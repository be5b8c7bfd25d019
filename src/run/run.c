/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a phase of a placed program on a backend. */
#include "run/run.h"

#include <stdlib.h>
#include <string.h>

static struct snug_moment moment_of(const struct snug_run *run) {
    const bool crosses = run->program->crosses;
    return (struct snug_moment){.first = run->micro_batch == 0 && run->chunk == 0,
                                .last = run->idle || (run->batch && run->batch->last_in_step),
                                .fetched = crosses && run->crossing->fetched,
                                .idle = run->idle,
                                .pending = crosses && run->crossing->pending};
}

/* ---- times of single operations -------------------------------------------------------------------------------- */

/* Adds the seconds of the offload file's copies since the last call. Of an asynchronous backend the copies' timestamps
 * count instead. */
static snug_status collect_file(const struct snug_run *run, struct snug_op_times *times) {
    double now[2];
    if (!run->backing.file) return SNUG_OK;
    RETURN_IF_ERROR(snug_backing_drain(run->ctx, &run->backing));
    snug_offload_file_seconds(run->backing.file, now);
    for (int k = 0; k < 2; k++) times->copied[k] += now[k] - times->file[k];
    memcpy(times->file, now, sizeof now);
    return SNUG_OK;
}

snug_status snug_op_times_init(struct snug_run *run, const struct snug_backend *backend, struct snug_op_times *times) {
    const size_t count = run->program->op_count;
    *times = (struct snug_op_times){0};
    RETURN_IF_ERROR(snug_alloc(run->ctx, count, sizeof(double), (void **)&times->seconds));
    RETURN_IF_ERROR(snug_alloc(run->ctx, count, sizeof(int64_t), (void **)&times->calls));
    if (!backend->asynchronous) RETURN_IF_ERROR(collect_file(run, times));
    memset(times->copied, 0, sizeof times->copied);
    return SNUG_OK;
}

void snug_op_times_free(const struct snug_backend *backend, struct snug_op_times *times) {
    if (times->timestamps) backend->free_timestamps(times->timestamps);
    if (times->copies.timestamps) backend->free_timestamps(times->copies.timestamps);
    free(times->stored);
    free(times->seconds);
    free(times->calls);
    free(times->noted);
    *times = (struct snug_op_times){0};
}

/* Records when op is done, or another of snug_op_times' noted; took is its time, if the backend runs synchronously. */
static snug_status note(struct snug_run *run, const struct snug_backend *backend, struct snug_op_times *times,
                        int32_t op, double took) {
    if (op >= 0) times->calls[op]++;
    if (op >= 0 && !backend->asynchronous) times->seconds[op] += took;
    if (!backend->asynchronous) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&times->noted, &times->noted_capacity, times->noted_count + 1,
                              sizeof *times->noted));
    times->noted[times->noted_count] = op;
    return backend->record_timestamp(run, &times->timestamps, times->noted_count++);
}

/* An asynchronous copy records its timestamps itself, in its stream. Notes its direction. */
static snug_status time_copy(struct snug_run *run, const struct snug_op *op, struct snug_op_times *times) {
    const size_t number = times->copies.count;
    RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&times->stored, &times->stored_capacity, number + 1, sizeof(bool)));
    times->stored[number] = snug_op_is(op, SNUG_OP_STORES);
    run->copy_times = &times->copies;
    return SNUG_OK;
}

static snug_status collect_operations(struct snug_run *run, const struct snug_backend *backend,
                                      struct snug_op_times *times, double *seconds) {
    RETURN_IF_ERROR(backend->read_timestamps(run, times->timestamps, seconds, times->noted_count));
    for (size_t i = 0; i < times->noted_count; i++) {
        const int32_t noted = times->noted[i];
        if (noted >= 0) times->seconds[noted] += seconds[i];
        if (noted < SNUG_TIMES_BEGIN) times->ended[noted - SNUG_TIMES_END] += seconds[i];
    }
    return SNUG_OK;
}

static snug_status collect_copies(struct snug_run *run, const struct snug_backend *backend, struct snug_op_times *times,
                                  double *seconds) {
    const size_t count = times->copies.count;
    RETURN_IF_ERROR(backend->read_timestamps(run, times->copies.timestamps, seconds, 2 * count));
    for (size_t i = 0; i < count; i++) times->copied[times->stored[i]] += seconds[2 * i + 1];
    return SNUG_OK;
}

snug_status snug_op_times_collect(struct snug_run *run, const struct snug_backend *backend,
                                  struct snug_op_times *times) {
    double *seconds;
    if (!backend->asynchronous) return collect_file(run, times);
    const size_t notes = times->noted_count, copies = times->copies.count;
    RETURN_IF_ERROR(snug_alloc(run->ctx, notes + 2 * copies, sizeof *seconds, (void **)&seconds));
    snug_status status = collect_operations(run, backend, times, seconds);
    if (copies && status == SNUG_OK) status = collect_copies(run, backend, times, seconds);
    times->noted_count = times->copies.count = 0;
    free(seconds);
    return status;
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

/* A call that runs operations. */
struct call {
    struct snug_run *run;
    const struct snug_backend *backend;
    enum snug_phase phase;
    int64_t chunk;
    const struct snug_op *op;
    struct snug_profile *profile;
};

/* Operations of the host run in the compute thread; a device's belong to the caller's. */
static snug_status compute(struct call *call, snug_status (*function)(void *call)) {
    return snug_backend_is_device(call->backend) ? function(call) : snug_compute(call->run->ctx, function, call);
}

static snug_status run_one(void *user) {
    const struct call *call = user;
    return call->backend->ops[call->op->kind](call->run, call->op);
}

snug_status snug_run_one(struct snug_run *run, const struct snug_backend *backend, const struct snug_op *op) {
    return compute(&(struct call){.run = run, .backend = backend, .op = op}, run_one);
}

/* ---- running -------------------------------------------------------------------------------------------------- */

const char *snug_phase_name(enum snug_phase phase) {
    static const char *const names[SNUG_PHASE_COUNT] = {"prepare",  "forward", "head",  "step",
                                                        "backward", "clip",    "update"};
    return names[phase];
}

/* A backend's message does not name the operation and its tensor: appends both. */
static snug_status blame(const struct snug_run *run, const struct snug_op *op, snug_status status) {
    int32_t tensor = 0;
    for (int k = snug_op_operands(op); k-- > 0;)
        if (op->operands[k] && !snug_op_reads(op, k)) tensor = op->operands[k];
    return snug_add_to_error(run->ctx, status, " (in %s: %s of %s)", snug_phase_name(op->phase), snug_op_name(op->kind),
                             run->program->tensors[tensor].name);
}

static snug_status run_op(struct snug_run *run, const struct snug_backend *backend, size_t number,
                          struct snug_profile *profile) {
    const struct snug_op *op = &run->program->ops[number];
    const double begin = profile ? snug_seconds() : 0;
    const bool copies = snug_op_is(op, SNUG_OP_FETCHES | SNUG_OP_STORES);
    struct snug_run late;
    run->copy_times = NULL;
    if (copies && profile && profile->times && backend->asynchronous)
        RETURN_IF_ERROR(time_copy(run, op, profile->times));
    if (op->crosses && snug_op_is(op, SNUG_OP_UPDATES)) { /* it has the numbers of its own step */
        late = *run;
        late.step = run->crossing->step;
        late.learning_rate = run->crossing->learning_rate;
        run = &late;
    }
    const snug_status status = op->on_host ? backend->update_on_host(run, op) : backend->ops[op->kind](run, op);
    if (status != SNUG_OK) return blame(run, op, status);
    if (!profile) return SNUG_OK;
    const double took = snug_seconds() - begin;
    profile->seconds[op->kind] += took;
    profile->calls[op->kind]++;
    return profile->times ? note(run, backend, profile->times, (int32_t)number, took) : SNUG_OK;
}

static snug_status run_ops(struct snug_run *run, const struct snug_backend *backend, enum snug_phase phase,
                           struct snug_profile *profile) {
    bool done;
    snug_status status = backend->begin(run, phase, &done);
    if (status == SNUG_OK && !done && profile && profile->times)
        status = note(run, backend, profile->times, SNUG_TIMES_BEGIN, 0);
    if (status == SNUG_OK && !done) {
        const struct snug_moment moment = moment_of(run);
        bool skips = phase == SNUG_PHASE_HEAD && run->pass == SNUG_PASS_GRADIENTS;
        for (size_t i = 0; i < run->program->op_count; i++) {
            const struct snug_op *op = &run->program->ops[i];
            if (op->phase != phase || snug_op_is_idle(op, &moment)) continue;
            const bool scores = snug_op_is(op, SNUG_OP_SCORES);
            skips = skips && !snug_op_is(op, SNUG_OP_ENDS_FORWARD);
            if (skips || (scores && run->program->scores_first && run->pass != SNUG_PASS_SCORES)) continue;
            RETURN_IF_ERROR(run_op(run, backend, i, profile));
            if (scores && run->pass == SNUG_PASS_SCORES) break;
        }
        status = backend->end(run, phase);
        if (status == SNUG_OK && profile && profile->times && run->program->crosses)
            status = note(run, backend, profile->times, SNUG_TIMES_END + (int32_t)phase, 0);
    }
    return status == SNUG_OK ? SNUG_OK : snug_add_to_error(run->ctx, status, " (in %s)", snug_phase_name(phase));
}

/* At least one chunk, so that a batch without loss positions still clears the head's gradients. */
int64_t snug_head_chunks(const struct snug_run *run) {
    const int64_t size = run->program->capacity[SNUG_EXTENT_ROWS], rows = run->batch->rows;
    return rows > size ? (rows + size - 1) / size : 1;
}

static snug_status run_head_chunk(void *user) {
    const struct call *call = user;
    struct snug_run *run = call->run;
    const int64_t size = run->program->capacity[SNUG_EXTENT_ROWS], left = run->batch->rows - call->chunk * size;
    run->chunk = call->chunk;
    run->first_row = call->chunk * size;
    run->rows = left < size ? left : size;
    return run_ops(run, call->backend, SNUG_PHASE_HEAD, call->profile);
}

snug_status snug_run_head_chunk(struct snug_run *run, const struct snug_backend *backend, int64_t chunk,
                                struct snug_profile *profile) {
    return compute(&(struct call){.run = run, .backend = backend, .chunk = chunk, .profile = profile}, run_head_chunk);
}

static snug_status run_pending(void *user) {
    const struct call *call = user;
    struct snug_run *run = call->run;
    const struct snug_moment moment = moment_of(run);
    for (size_t i = 0; i < run->program->op_count && moment.pending; i++) {
        const struct snug_op *op = &run->program->ops[i];
        const bool rest = op->phase == SNUG_PHASE_FORWARD && (op->crosses || op->flushed);
        if (rest && !snug_op_is_idle(op, &moment)) RETURN_IF_ERROR(run_op(run, call->backend, i, call->profile));
    }
    *run->crossing = (struct snug_crossing){0};
    return SNUG_OK;
}

snug_status snug_run_pending(struct snug_run *run, const struct snug_backend *backend, struct snug_profile *profile) {
    if (!run->program->crosses) return SNUG_OK;
    return compute(&(struct call){.run = run, .backend = backend, .profile = profile}, run_pending);
}

/* After a phase. */
static void note_crossing(const struct snug_run *run, enum snug_phase phase) {
    struct snug_crossing *crossing = run->crossing;
    if (!run->program->crosses) return;
    if (phase == SNUG_PHASE_FORWARD) *crossing = (struct snug_crossing){0};
    if (phase == SNUG_PHASE_BACKWARD) crossing->fetched = !run->idle && run->batch->last_in_step;
    if (phase != SNUG_PHASE_UPDATE) return;
    crossing->pending = true;
    crossing->step = run->step;
    crossing->learning_rate = run->learning_rate;
}

static snug_status run_flush(void *user) {
    const struct call *call = user;
    struct snug_run *run = call->run;
    RETURN_IF_ERROR(snug_run_pending(run, call->backend, call->profile));
    RETURN_IF_ERROR(snug_backing_drain(run->ctx, &run->backing));
    for (size_t i = 0; i < run->program->op_count; i++)
        if (snug_op_is(&run->program->ops[i], SNUG_OP_FLUSHES))
            RETURN_IF_ERROR(run_op(run, call->backend, i, call->profile));
    return SNUG_OK;
}

snug_status snug_run_flush(const struct snug_run *run, const struct snug_backend *backend,
                           struct snug_profile *profile) {
    struct snug_run all = *run;
    all.batch = NULL; /* LAZY_UPDATE then updates all rows */
    return compute(&(struct call){.run = &all, .backend = backend, .profile = profile}, run_flush);
}

static snug_status run_scores(void *user) {
    const struct call *call = user;
    const int64_t chunks = snug_head_chunks(call->run);
    call->run->pass = call->run->program->scores_first ? SNUG_PASS_SCORES : SNUG_PASS_ALL;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        RETURN_IF_ERROR(snug_run_head_chunk(call->run, call->backend, chunk, call->profile));
    call->run->pass = SNUG_PASS_ALL;
    return SNUG_OK;
}

snug_status snug_run_scores(struct snug_run *run, const struct snug_backend *backend, struct snug_profile *profile) {
    return compute(&(struct call){.run = run, .backend = backend, .profile = profile}, run_scores);
}

static snug_status run_phase(void *user) {
    const struct call *call = user;
    struct snug_run *run = call->run;
    const struct snug_backend *backend = call->backend;
    const enum snug_phase phase = call->phase;
    struct snug_profile *profile = call->profile;
    run->chunk = 0;
    /* If a step was begun and not ended, copies may still be in flight, into bytes that other tensors use now; those of
       a device are in order. No update follows a copy that failed; after a deferred one the run ends before the next.
     */
    if (phase == SNUG_PHASE_UPDATE) RETURN_IF_ERROR(snug_backing_drain(run->ctx, &run->backing));
    if (phase != SNUG_PHASE_HEAD && phase != SNUG_PHASE_BACKWARD)
        RETURN_IF_ERROR(snug_backing_check(run->ctx, &run->backing));
    if (run->program->crosses && run->crossing->pending && phase != SNUG_PHASE_FORWARD)
        RETURN_IF_ERROR(snug_run_pending(run, backend, profile));
    if (phase != SNUG_PHASE_HEAD) {
        RETURN_IF_ERROR(run_ops(run, backend, phase, profile));
        note_crossing(run, phase);
        return SNUG_OK;
    }
    const int64_t chunks = snug_head_chunks(run);
    if (run->program->scores_first) RETURN_IF_ERROR(run_scores(user));
    run->pass = run->program->scores_first && chunks == 1 ? SNUG_PASS_GRADIENTS : SNUG_PASS_ALL;
    for (int64_t chunk = 0; chunk < chunks; chunk++) RETURN_IF_ERROR(snug_run_head_chunk(run, backend, chunk, profile));
    run->pass = SNUG_PASS_ALL;
    return SNUG_OK;
}

snug_status snug_run_phase(struct snug_run *run, const struct snug_backend *backend, enum snug_phase phase,
                           struct snug_profile *profile) {
    return compute(&(struct call){.run = run, .backend = backend, .phase = phase, .profile = profile}, run_phase);
}
