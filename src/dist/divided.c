/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/divided.h"

#include <stdlib.h>
#include <string.h>

#include "dist/collectives.h"

/* A range of elements of a tensor; tensor 0: there are no more requests. */
struct request {
    int64_t tensor, first, count;
};

static snug_status broadcast(const struct snug_program *program, const struct snug_memory *memory,
                             struct request *request) {
    return memory->collectives->broadcast(program->ctx, request, sizeof *request, 0);
}

/* The requested elements that are in a rank's shard: from *first on. */
static int64_t part_of(const struct snug_tensor *t, const struct request *request, int rank, int64_t *first) {
    const int64_t begin = snug_shard_begin(&t->shards, rank), end = snug_shard_begin(&t->shards, rank + 1);
    const int64_t last = request->first + request->count;
    *first = begin > request->first ? begin : request->first;
    return (end < last ? end : last) - *first;
}

/* Copies from the arena, which may be on a device. */
static snug_status copy(const struct snug_program *program, const struct snug_memory *memory, void *to,
                        const void *from, int64_t bytes) {
    /* may be untested: needs a GPU */
    if (memory->copy) return memory->copy(program->ctx, to, from, bytes);
    memcpy(to, from, (size_t)bytes);
    return SNUG_OK;
}

/* Sends this rank's elements to rank 0. */
/* may be untested: needs a GPU */
static snug_status send_part(const struct snug_program *program, const struct snug_memory *memory, uint8_t *from,
                             int64_t bytes) {
    const struct snug_collectives *c = memory->collectives;
    void *host;
    /* may be untested: needs a GPU */
    if (!memory->copy) return c->transfer(program->ctx, from, bytes, program->rank, 0);
    RETURN_IF_ERROR(snug_alloc(program->ctx, (size_t)bytes, 1, &host));
    snug_status status = copy(program, memory, host, from, bytes);
    if (status == SNUG_OK) status = c->transfer(program->ctx, host, bytes, program->rank, 0);
    free(host);
    return status;
}

/* This rank's elements from `first` on. */
static uint8_t *stored(const struct snug_program *program, const struct snug_memory *memory,
                       const struct snug_tensor *t, int64_t first) {
    return memory->arena + t->offset +
           (first - snug_shard_begin(&t->shards, program->rank)) * snug_dtype_size(t->dtype);
}

snug_status snug_divided_read(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                              int64_t first, int64_t count, void *out) {
    const struct snug_tensor *t = &program->tensors[tensor];
    const int64_t size = snug_dtype_size(t->dtype);
    struct request request = {tensor, first, count};
    RETURN_IF_ERROR(broadcast(program, memory, &request));
    for (int rank = 0; rank < t->shards.ranks; rank++) {
        int64_t from;
        const int64_t n = part_of(t, &request, rank, &from);
        uint8_t *to = (uint8_t *)out + (from - first) * size;
        if (n <= 0) continue;
        if (rank == 0)
            RETURN_IF_ERROR(copy(program, memory, to, stored(program, memory, t, from), n * size));
        else
            RETURN_IF_ERROR(memory->collectives->transfer(program->ctx, to, n * size, rank, 0));
    }
    return SNUG_OK;
}

snug_status snug_divided_serve(const struct snug_program *program, const struct snug_memory *memory) {
    for (;;) {
        struct request request;
        int64_t from;
        RETURN_IF_ERROR(broadcast(program, memory, &request));
        if (!request.tensor) return SNUG_OK;
        const struct snug_tensor *t = &program->tensors[request.tensor];
        const int64_t n = part_of(t, &request, program->rank, &from);
        if (n > 0)
            RETURN_IF_ERROR(
                send_part(program, memory, stored(program, memory, t, from), n * snug_dtype_size(t->dtype)));
    }
}

snug_status snug_divided_end(const struct snug_program *program, const struct snug_memory *memory) {
    struct request none = {0};
    return broadcast(program, memory, &none);
}
