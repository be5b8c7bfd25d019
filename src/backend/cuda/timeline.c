/* SPDX-License-Identifier: Apache-2.0 */
/* When operations were done on the device: events in the stream, which hardly disturb it. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"

struct snug_stamps {
    cudaEvent_t *events;
    size_t count, capacity;
};

static snug_status add_event(snug_context *ctx, struct snug_stamps *stamps) {
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&stamps->events, &stamps->capacity, stamps->count + 1, sizeof *stamps->events));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaEventCreateWithFlags(&stamps->events[stamps->count], cudaEventDefault),
                                    "an event cannot be had"));
    stamps->count++;
    return SNUG_OK;
}

snug_status snug_cuda_stamp(struct snug_run *run, struct snug_stamps **stamps, size_t number) {
    if (!*stamps) RETURN_IF_ERROR(snug_alloc(run->ctx, 1, sizeof **stamps, (void **)stamps));
    while ((*stamps)->count <= number) RETURN_IF_ERROR(add_event(run->ctx, *stamps));
    return snug_cuda_check(run->ctx, cudaEventRecord((*stamps)->events[number], NULL), "noting the time");
}

snug_status snug_cuda_stamps(struct snug_run *run, const struct snug_stamps *stamps, double seconds[], size_t count) {
    if (count) seconds[0] = 0;
    for (size_t i = 1; i < count; i++) {
        float milliseconds;
        RETURN_IF_ERROR(snug_cuda_check(run->ctx, cudaEventSynchronize(stamps->events[i]), "waiting for operations"));
        RETURN_IF_ERROR(snug_cuda_check(run->ctx,
                                        cudaEventElapsedTime(&milliseconds, stamps->events[i - 1], stamps->events[i]),
                                        "reading the time"));
        seconds[i] = milliseconds * 1e-3;
    }
    return SNUG_OK;
}

void snug_cuda_free_stamps(struct snug_stamps *stamps) {
    if (!stamps) return;
    for (size_t i = 0; i < stamps->count; i++) cudaEventDestroy(stamps->events[i]);
    free(stamps->events);
    free(stamps);
}
