/* SPDX-License-Identifier: Apache-2.0 */
/* Completion times of operations on the device: events in the stream, which cost almost nothing. */
#include "backend/cuda/events.h"

#include <stdlib.h>

#include "backend/cuda/state.h"

struct snug_timestamps {
    cudaEvent_t *events;
    size_t count, capacity;
};

static snug_status add_event(snug_context *ctx, struct snug_timestamps *timestamps) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&timestamps->events, &timestamps->capacity, timestamps->count + 1,
                              sizeof *timestamps->events));
    RETURN_IF_ERROR(snug_cuda_check(
        ctx, cudaEventCreateWithFlags(&timestamps->events[timestamps->count], cudaEventDefault), "cudaEventCreate"));
    timestamps->count++;
    return SNUG_OK;
}

static snug_status record(struct snug_run *run, struct snug_timestamps **timestamps, size_t number,
                          cudaStream_t stream) {
    if (!*timestamps) RETURN_IF_ERROR(snug_alloc(run->ctx, 1, sizeof **timestamps, (void **)timestamps));
    while ((*timestamps)->count <= number) RETURN_IF_ERROR(add_event(run->ctx, *timestamps));
    return snug_cuda_check(run->ctx, cudaEventRecord((*timestamps)->events[number], stream), "recording a timestamp");
}

snug_status snug_cuda_record_timestamp(struct snug_run *run, struct snug_timestamps **timestamps, size_t number) {
    return record(run, timestamps, number, NULL);
}

snug_status snug_cuda_time_copy(struct snug_run *run, cudaStream_t stream, bool done) {
    struct snug_copy_times *times = run->copy_times;
    if (!times) return SNUG_OK;
    RETURN_IF_ERROR(record(run, &times->timestamps, 2 * times->count + done, stream));
    times->count += done;
    return SNUG_OK;
}

snug_status snug_cuda_read_timestamps(struct snug_run *run, const struct snug_timestamps *timestamps, double seconds[],
                                      size_t count) {
    for (size_t i = 0; i < count; i++) {
        float milliseconds;
        seconds[i] = 0;
        RETURN_IF_ERROR(
            snug_cuda_check(run->ctx, cudaEventSynchronize(timestamps->events[i]), "waiting for operations"));
        if (i == 0) continue;
        RETURN_IF_ERROR(snug_cuda_check(
            run->ctx, cudaEventElapsedTime(&milliseconds, timestamps->events[i - 1], timestamps->events[i]),
            "reading timestamps"));
        seconds[i] = milliseconds * 1e-3;
    }
    return SNUG_OK;
}

void snug_cuda_free_timestamps(struct snug_timestamps *timestamps) {
    if (!timestamps) return;
    for (size_t i = 0; i < timestamps->count; i++) cudaEventDestroy(timestamps->events[i]);
    free(timestamps->events);
    free(timestamps);
}
