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

/* Where this rank stores its elements from `first` on: in the arena, or in the backing store. */
static int64_t offset_of(const struct snug_program *program, const struct snug_tensor *t, int64_t first) {
    return t->offset + (first - snug_shard_begin(&t->shards, program->rank)) * snug_dtype_size(t->dtype);
}

/* Copies `bytes` of this rank's elements, from offset on; the arena may be on a device. */
static snug_status copy(const struct snug_program *program, const struct snug_memory *memory,
                        const struct snug_tensor *t, void *to, int64_t offset, int64_t bytes) {
    if (t->offloaded) return snug_backing_read(program->ctx, &memory->backing, offset, bytes, to);
    /* may be untested: needs a GPU */
    if (memory->copy) return memory->copy(program->ctx, to, memory->arena + offset, bytes);
    memcpy(to, memory->arena + offset, (size_t)bytes);
    return SNUG_OK;
}

/* Sends this rank's elements to rank 0. */
static snug_status send_part(const struct snug_program *program, const struct snug_memory *memory,
                             const struct snug_tensor *t, int64_t offset, int64_t bytes) {
    const struct snug_collectives *c = memory->collectives;
    void *host;
    /* may be untested: needs a GPU */
    if (!memory->copy && !t->offloaded)
        return c->transfer(program->ctx, memory->arena + offset, bytes, program->rank, 0);
    RETURN_IF_ERROR(snug_alloc(program->ctx, (size_t)bytes, 1, &host));
    snug_status status = copy(program, memory, t, host, offset, bytes);
    if (status == SNUG_OK) status = c->transfer(program->ctx, host, bytes, program->rank, 0);
    free(host);
    return status;
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
            RETURN_IF_ERROR(copy(program, memory, t, to, offset_of(program, t, from), n * size));
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
            RETURN_IF_ERROR(send_part(program, memory, t, offset_of(program, t, from), n * snug_dtype_size(t->dtype)));
    }
}

snug_status snug_divided_end(const struct snug_program *program, const struct snug_memory *memory) {
    struct request none = {0};
    return broadcast(program, memory, &none);
}
