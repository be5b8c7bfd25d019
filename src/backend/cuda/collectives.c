/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations over the GPUs of several ranks, through NCCL. A rank owns a shard of each gradient: it gets that shard of
 * all ranks by ncclSend and ncclRecv, adds in the order of the ranks, and sends the sum to all, or keeps it. These are
 * the bytes of a reduce-scatter and an all-gather, with an order of the additions that does not depend on NCCL.
 *
 * They run in a stream of their own. Sums are queued until their shards fill the buffer for what is received; then one
 * NCCL call exchanges all, and one kernel adds all: a model has hundreds of gradients, most of them small. Without a
 * separate sum a gradient persists and is not read before the phase ends, so operations wait for sums only then.
 * Gatherings that follow each other are one NCCL call, too. All ranks queue the same, so the calls match.
 *
 * Where all ranks are on one host, the GPUs' copy engines do what NCCL would do (peers.c).
 *
 * Where the program says so (op->beside), later operations run beside a gathering, or beside sums of gradients that do
 * not persist, until WAIT: as for a copy (copies.c). Otherwise they wait.
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "backend/cuda/ops.h"
#include "backend/cuda/sizes/ranks.h"
#include "backend/cuda/state.h"

/* ---- connecting ---------------------------------------------------------------------------------------------------
 */

enum { UUID = 16 };

/* What the ranks compare before NCCL starts, which would not say which GPU it is. */
struct place {
    char gpu[64], libraries[96], uuid[UUID];
};

static snug_status find_place(snug_context *ctx, const struct snug_nccl *nccl, struct place *out) {
    int device, driver;
    struct cudaDeviceProp properties;
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaGetDevice(&device), "cudaGetDevice"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
    *out = (struct place){.gpu = ""};
    snprintf(out->libraries, sizeof out->libraries, "a driver for CUDA %d, cuBLASLt %zu, NCCL %d", driver,
             cublasLtGetVersion(), nccl->version);
    snprintf(out->gpu, sizeof out->gpu, "%.*s", (int)sizeof out->gpu - 1, properties.name);
    memcpy(out->uuid, &properties.uuid, sizeof out->uuid);
    return SNUG_OK;
}

/* A GPU has one UUID everywhere, so hosts need not be compared. */
static snug_status check_places(snug_context *ctx, const struct place *places, int size) {
    for (int r = 1; r < size; r++)
        for (int before = 0; before < r; before++)
            if (memcmp(places[r].uuid, places[before].uuid, UUID) == 0)
                return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                                 "ranks %d and %d have the same GPU, %s: start one rank for each GPU, with its local "
                                 "rank as the number of its GPU",
                                 before, r, places[r].gpu);
    for (int r = 1; r < size; r++)
        if (strcmp(places[r].gpu, places[0].gpu) != 0)
            return snug_fail(
                ctx, SNUG_E_UNSUPPORTED,
                "rank 0 has %s, and rank %d has %s: all ranks need the same model of GPU, since kernels for "
                "another one round differently",
                places[0].gpu, r, places[r].gpu);
    for (int r = 1; r < size; r++)
        if (strcmp(places[r].libraries, places[0].libraries) != 0)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "rank 0 has %s, and rank %d has %s: all ranks need the same versions, since others may "
                             "choose other algorithms",
                             places[0].libraries, r, places[r].libraries);
    return SNUG_OK;
}

static snug_status compare_places(snug_context *ctx, const struct snug_collectives *hosts,
                                  const struct snug_nccl *nccl) {
    struct place *places;
    const int64_t each = sizeof *places;
    const struct snug_shards parts = snug_equal_parts(hosts->size * each, each, hosts->size);
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)hosts->size, sizeof *places, (void **)&places));
    snug_status status = find_place(ctx, nccl, &places[hosts->rank]);
    if (status == SNUG_OK) status = hosts->all_gather(ctx, places, &parts);
    if (status == SNUG_OK) status = check_places(ctx, places, hosts->size);
    free(places);
    return status;
}

/* NCCL connects two GPUs and allocates their buffers when they first communicate: now, so that the plan includes them.
 */
static snug_status connect_all(snug_context *ctx, struct snug_cuda_devices *d) {
    enum { EACH = 256 };
    const struct snug_nccl *n = &d->nccl;
    uint8_t *memory;
    int result;
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaMalloc((void **)&memory, (size_t)2 * EACH * (size_t)d->size), "cudaMalloc"));
    uint8_t *received = memory + (ptrdiff_t)EACH * d->size;
    result = n->group_start();
    for (int r = 0; r < d->size && result == SNUG_NCCL_OK; r++) {
        if (r == d->rank) continue;
        result = n->send(memory + (ptrdiff_t)EACH * r, EACH, SNUG_NCCL_BYTES, r, d->comm, NULL);
        if (result == SNUG_NCCL_OK)
            result = n->recv(received + (ptrdiff_t)EACH * r, EACH, SNUG_NCCL_BYTES, r, d->comm, NULL);
    }
    const int ended = n->group_end();
    if (result == SNUG_NCCL_OK) result = ended;
    if (result == SNUG_NCCL_OK)
        result = n->all_gather(memory + (ptrdiff_t)EACH * d->rank, memory, EACH, SNUG_NCCL_BYTES, d->comm, NULL);
    snug_status status = snug_nccl_check(ctx, n, result, "connecting the GPUs");
    if (status == SNUG_OK) status = snug_cuda_check(ctx, cudaDeviceSynchronize(), "connecting the GPUs through NCCL");
    cudaFree(memory);
    return status;
}

static snug_status init_comm(snug_context *ctx, const struct snug_collectives *hosts, struct snug_cuda_devices *d) {
    struct snug_nccl_id id = {{0}};
    int result = SNUG_NCCL_OK;
    RETURN_IF_ERROR(snug_nccl_open(ctx, &d->nccl));
    RETURN_IF_ERROR(compare_places(ctx, hosts, &d->nccl));
    if (hosts->rank == 0) result = d->nccl.get_unique_id(&id);
    RETURN_IF_ERROR(snug_nccl_check(ctx, &d->nccl, result, "ncclGetUniqueId"));
    RETURN_IF_ERROR(hosts->broadcast(ctx, &id, sizeof id, 0));
    result = d->nccl.comm_init_rank(&d->comm, hosts->size, id, hosts->rank);
    RETURN_IF_ERROR(snug_nccl_check(ctx, &d->nccl, result, "ncclCommInitRank"));
    RETURN_IF_ERROR(connect_all(ctx, d));
    return snug_cuda_open_peers(ctx, hosts, &d->peers);
}

snug_status snug_cuda_connect(snug_context *ctx, const struct snug_collectives *hosts, void **devices) {
    struct snug_cuda_devices *d;
    *devices = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *d, (void **)&d));
    d->rank = hosts->rank;
    d->size = hosts->size;
    const snug_status status = init_comm(ctx, hosts, d);
    if (status == SNUG_OK) {
        *devices = d;
        return SNUG_OK;
    }
    snug_cuda_close_peers(&d->peers);
    free(d);
    return status;
}

void snug_cuda_disconnect(void *devices) {
    struct snug_cuda_devices *d = devices;
    snug_cuda_close_peers(&d->peers);
    d->nccl.comm_destroy(d->comm);
    free(d);
}

snug_status snug_cuda_open_ranks(snug_context *ctx, const struct snug_program *program, struct snug_cuda_ranks *ranks) {
    if (program->ranks < 2) return SNUG_OK;
    int least, most; /* other ranks wait for this stream's kernels, so they do not queue after those of matmuls */
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDeviceGetStreamPriorityRange(&least, &most), "priorities of streams"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaStreamCreateWithPriority(&ranks->stream, cudaStreamNonBlocking, most),
                                    "cudaStreamCreate"));
    ranks->buffer = snug_cuda_received_bytes(program);
    RETURN_IF_ERROR(snug_cuda_create_event(ctx, &ranks->ready));
    return snug_cuda_create_event(ctx, &ranks->done);
}

void snug_cuda_close_ranks(struct snug_cuda_ranks *ranks) {
    if (ranks->stream) cudaStreamDestroy(ranks->stream);
    if (ranks->ready) cudaEventDestroy(ranks->ready);
    if (ranks->done) cudaEventDestroy(ranks->done);
    snug_cuda_unmap_arenas(ranks->peers, ranks->arenas);
    free(ranks->slices);
    free(ranks->gathered);
}

void snug_cuda_drop_queued(struct snug_cuda_ranks *ranks) {
    ranks->slice_count = ranks->gathered_count = 0;
    ranks->received = 0;
    ranks->busy = ranks->in_phase = false;
}

/* ---- calls of NCCL ------------------------------------------------------------------------------------------------
 */

static const struct snug_cuda_devices *devices_of(const struct snug_run *run) { return run->devices; }

static struct snug_cuda_ranks *ranks_of(const struct snug_run *run) { return &snug_cuda_of(run)->ranks; }

/* The stream of the ranks waits for all operations so far, also for those in the side stream, which go on. */
static snug_status begin(struct snug_run *run) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_cuda_ranks *ranks = &cuda->ranks;
    cudaError_t error = cudaEventRecord(ranks->ready, cuda->stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(ranks->stream, ranks->ready, 0);
    if (error == cudaSuccess && cuda->forked) error = cudaStreamWaitEvent(ranks->stream, cuda->fork[1], 0);
    return snug_cuda_check(run->ctx, error, "starting an operation of all ranks");
}

static snug_status end(struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    int error = SNUG_NCCL_OK;
    const struct snug_cuda_devices *d = devices_of(run);
    ranks->busy = true;
    RETURN_IF_ERROR(snug_nccl_check(run->ctx, &d->nccl, d->nccl.comm_get_async_error(d->comm, &error), "its state"));
    RETURN_IF_ERROR(snug_nccl_check(run->ctx, &d->nccl, error, "communication"));
    return snug_cuda_check(run->ctx, cudaEventRecord(ranks->done, ranks->stream), "an operation of all ranks");
}

static int send_part(const struct snug_run *run, const void *from, int64_t bytes, int peer) {
    const struct snug_cuda_devices *d = devices_of(run);
    if (bytes == 0) return SNUG_NCCL_OK;
    return d->nccl.send(from, (size_t)bytes, SNUG_NCCL_BYTES, peer, d->comm, ranks_of(run)->stream);
}

static int receive_part(const struct snug_run *run, void *to, int64_t bytes, int peer) {
    const struct snug_cuda_devices *d = devices_of(run);
    if (bytes == 0) return SNUG_NCCL_OK;
    return d->nccl.recv(to, (size_t)bytes, SNUG_NCCL_BYTES, peer, d->comm, ranks_of(run)->stream);
}

/* Every rank's part goes to all others. */
static int gather_parts(const struct snug_run *run, uint8_t *values, const struct snug_shards *parts) {
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t begins = snug_shard_begin(parts, d->rank), own = snug_shard_size(parts, d->rank);
    int result = SNUG_NCCL_OK;
    if (own * d->size == parts->elements && snug_shard_largest(parts) == own)
        return d->nccl.all_gather(values + begins, values, (size_t)own, SNUG_NCCL_BYTES, d->comm,
                                  ranks_of(run)->stream);
    for (int r = 0; r < d->size && result == SNUG_NCCL_OK; r++) {
        if (r == d->rank) continue;
        result = send_part(run, values + begins, own, r);
        if (result == SNUG_NCCL_OK)
            result = receive_part(run, values + snug_shard_begin(parts, r), snug_shard_size(parts, r), r);
    }
    return result;
}

/* ---- copies to other ranks ----------------------------------------------------------------------------------------
 */

/* The same place in another rank's arena. */
static uint8_t *at_peer(const struct snug_run *run, const void *memory, int peer) {
    return ranks_of(run)->arenas[peer] + ((const uint8_t *)memory - run->arena);
}

static cudaError_t copy_to_peer(const struct snug_run *run, void *to, const void *from, int64_t bytes) {
    if (bytes == 0) return cudaSuccess;
    return cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, ranks_of(run)->stream);
}

/* This rank's part of x to all others. */
static cudaError_t copy_to_all(const struct snug_run *run, const void *part, int64_t bytes) {
    const struct snug_cuda_devices *d = devices_of(run);
    cudaError_t error = cudaSuccess;
    for (int r = 1; r < d->size && error == cudaSuccess; r++)
        error = copy_to_peer(run, at_peer(run, part, (d->rank + r) % d->size), part, bytes);
    return error;
}

static snug_status barrier(const struct snug_run *run, int number) {
    return snug_cuda_barrier(run->ctx, ranks_of(run)->peers, number, ranks_of(run)->stream);
}

/* ---- sums ---------------------------------------------------------------------------------------------------------
 */

/* The elements of a rank's part. */
static int64_t count_of(const struct snug_cuda_slice *s, int rank) {
    return snug_collective_part(&s->parts, rank, s->first, s->most);
}

static float *part_of(const struct snug_cuda_slice *s, int rank) {
    return s->values + snug_shard_begin(&s->parts, rank) + s->first;
}

/* Rank r's values of this rank's part come to received + r * count; this rank's own stay where they are. */
static int exchange(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t size = sizeof(float);
    int result = d->nccl.group_start();
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        const int64_t own = count_of(s, d->rank);
        for (int r = 0; r < d->size && result == SNUG_NCCL_OK; r++) {
            const int64_t theirs = count_of(s, r);
            if (r == d->rank) continue;
            if (theirs) result = send_part(run, part_of(s, r), theirs * size, r);
            if (result == SNUG_NCCL_OK) result = receive_part(run, s->received + r * own, own * size, r);
        }
    }
    const int ended = d->nccl.group_end();
    return result == SNUG_NCCL_OK ? ended : result;
}

static void add_all(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    struct snug_cuda_shard_sums sums;
    int count = 0;
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        const int64_t own = count_of(s, d->rank);
        if (own)
            sums.items[count++] =
                (struct snug_cuda_shard_sum){s->to, part_of(s, d->rank), s->received, own, s->accumulate};
        if (count < SNUG_CUDA_SUMS && i + 1 < ranks->slice_count) continue;
        snug_cuda_add_shards(&sums, count, d->rank, run->contributors, ranks->stream);
        count = 0;
    }
}

static int send_sums(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    int result = d->nccl.group_start();
    for (size_t i = 0; i < ranks->slice_count && result == SNUG_NCCL_OK; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        const struct snug_shards parts = snug_shards_in_bytes(&s->parts, sizeof(float));
        if (s->for_all) result = gather_parts(run, (uint8_t *)(s->to - snug_shard_begin(&s->parts, d->rank)), &parts);
    }
    const int ended = d->nccl.group_end();
    return result == SNUG_NCCL_OK ? ended : result;
}

static snug_status sum_by_nccl(const struct snug_run *run) {
    const struct snug_nccl *nccl = &devices_of(run)->nccl;
    RETURN_IF_ERROR(snug_nccl_check(run->ctx, nccl, exchange(run), "exchanging shards of gradients"));
    add_all(run);
    return snug_nccl_check(run->ctx, nccl, send_sums(run), "gathering sums of gradients");
}

/* Between the barriers a rank reads what the others have copied to it, and they its sums. */
static snug_status sum_by_copies(const struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t size = sizeof(float);
    cudaError_t error = cudaSuccess;
    if (!ranks->in_phase) { /* another rank may be in an earlier phase, which uses these bytes differently */
        RETURN_IF_ERROR(barrier(run, 0));
        RETURN_IF_ERROR(barrier(run, 1));
        ranks->in_phase = true;
    }
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        for (int k = 1; k < d->size && error == cudaSuccess; k++) {
            const int r = (d->rank + k) % d->size;
            const int64_t theirs = count_of(s, r);
            error = copy_to_peer(run, at_peer(run, s->received + d->rank * theirs, r), part_of(s, r), theirs * size);
        }
    }
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, error, "copying shards of gradients to other ranks"));
    RETURN_IF_ERROR(barrier(run, 0));
    add_all(run);
    for (size_t i = 0; i < ranks->slice_count && error == cudaSuccess; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        if (s->for_all) error = copy_to_all(run, s->to, count_of(s, d->rank) * size);
    }
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, error, "copying sums of gradients to other ranks"));
    return barrier(run, 1);
}

static snug_status sum_queued(struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    uint8_t *received = snug_cuda_of(run)->batch.received;
    if (!ranks->slice_count) return SNUG_OK;
    for (size_t i = 0; i < ranks->slice_count; i++) {
        ranks->slices[i].received = (float *)received;
        received += ranks->slices[i].bytes;
    }
    RETURN_IF_ERROR(begin(run));
    RETURN_IF_ERROR(ranks->peers ? sum_by_copies(run) : sum_by_nccl(run));
    ranks->slice_count = 0;
    ranks->received = 0;
    return end(run);
}

/* All ranks count the largest part, so that they fill their buffers alike. */
static int64_t received_bytes(const struct snug_cuda_slice *slice) {
    int64_t largest = 0;
    for (int r = 0; r < slice->parts.ranks; r++)
        if (count_of(slice, r) > largest) largest = count_of(slice, r);
    return slice->parts.ranks * largest * (int64_t)sizeof(float);
}

static snug_status add_slice(struct snug_run *run, struct snug_cuda_slice slice) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    slice.bytes = received_bytes(&slice);
    if (ranks->received + slice.bytes > ranks->buffer) RETURN_IF_ERROR(sum_queued(run));
    ranks->received += slice.bytes;
    RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&ranks->slices, &ranks->slice_capacity, ranks->slice_count + 1,
                              sizeof *ranks->slices));
    ranks->slices[ranks->slice_count++] = slice;
    return SNUG_OK;
}

/* Every rank gets all sums, of a piece that is divided equally. */
static struct snug_cuda_slice slice_for_all(const struct snug_run *run, float *values, float *sums, int64_t count,
                                            bool accumulate) {
    const int size = devices_of(run)->size;
    const int64_t part = (count + size - 1) / size;
    const struct snug_shards parts = snug_equal_parts(count, part, size);
    struct snug_cuda_slice slice = {.values = values,
                                    .to = sums + snug_shard_begin(&parts, devices_of(run)->rank),
                                    .parts = parts,
                                    .most = part,
                                    .accumulate = accumulate,
                                    .for_all = true};
    slice.bytes = received_bytes(&slice);
    return slice;
}

/* One slice of two that are next to each other in the arena, or almost: what is between them is summed, too. False if
   they are not, or if the buffer has no room. */
static bool unite(const struct snug_run *run, struct snug_cuda_slice *x, const struct snug_cuda_slice *y) {
    enum { GAP = 64 }; /* elements: tensors are aligned to 256 bytes */
    struct snug_cuda_ranks *ranks = ranks_of(run);
    const int rank = devices_of(run)->rank;
    float *const x_end = x->values + x->parts.elements, *const y_end = y->values + y->parts.elements;
    const ptrdiff_t offset = x->to - part_of(x, rank); /* of the sums, from the values */
    const bool after = y->values >= x_end && y->values - x_end < GAP,
               before = y_end <= x->values && x->values - y_end < GAP;
    if (!x->for_all || x->accumulate != y->accumulate || y->to - part_of(y, rank) != offset) return false;
    if (!after && !before) return false;
    float *const begin = after ? x->values : y->values;
    const struct snug_cuda_slice whole =
        slice_for_all(run, begin, begin + offset, (after ? y_end : x_end) - begin, x->accumulate);
    const int64_t received = ranks->received - x->bytes + whole.bytes;
    if (received > ranks->buffer) return false;
    ranks->received = received;
    *x = whole;
    return true;
}

/* Continues a slice with this one, if one is next to it: a model has hundreds of gradients, and each slice costs
   latency. */
static bool continue_slice(const struct snug_run *run, const struct snug_cuda_slice *slice) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    for (size_t i = ranks->slice_count; ranks->same_layout && i-- > 0;)
        if (unite(run, &ranks->slices[i], slice)) return true;
    return false;
}

/* The elements of a rank's part of a gradient that the buffer has room for. */
static int64_t largest_part(const struct snug_run *run) {
    return ranks_of(run)->buffer / devices_of(run)->size / (int64_t)sizeof(float);
}

/* The gradient is cut where the buffer is full. */
static snug_status queue_for_all(struct snug_run *run, float *values, float *sums, int64_t count, bool accumulate) {
    const int64_t most = largest_part(run) * devices_of(run)->size;
    for (int64_t at = 0; at < count; at += most) {
        const struct snug_cuda_slice slice =
            slice_for_all(run, values + at, sums + at, count - at < most ? count - at : most, accumulate);
        if (!continue_slice(run, &slice)) RETURN_IF_ERROR(add_slice(run, slice));
    }
    return SNUG_OK;
}

/* Each rank gets the sums of its shard: to[0 … its elements - 1]. */
static snug_status queue_for_owners(struct snug_run *run, const struct snug_shards *shards, float *values, float *to,
                                    bool accumulate) {
    const int64_t part = largest_part(run), largest = snug_shard_largest(shards);
    for (int64_t first = 0; first < largest; first += part)
        RETURN_IF_ERROR(add_slice(run, (struct snug_cuda_slice){.values = values,
                                                                .to = to + first,
                                                                .parts = *shards,
                                                                .first = first,
                                                                .most = part,
                                                                .accumulate = accumulate}));
    return SNUG_OK;
}

/* ---- gathering ----------------------------------------------------------------------------------------------------
 */

/* Copies this rank's shard to its place in x, rounded to nearest even if x has a smaller type. */
static void fill_own(const struct snug_run *run, const struct snug_cuda_gathered *g) {
    const struct snug_gather_ranks *gather = &g->op->gather_ranks;
    const int rank = devices_of(run)->rank;
    const int64_t own = snug_shard_size(&gather->shards, rank), begins = snug_shard_begin(&g->parts, rank);
    if (!gather->shard || !own) return;
    snug_cuda_fill_shard(g->values + begins, snug_run_dtype(run, gather->x),
                         (const float *)snug_run_data(run, gather->shard), own, ranks_of(run)->stream);
}

static snug_status gather_by_nccl(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_nccl *nccl = &devices_of(run)->nccl;
    int result = nccl->group_start();
    for (size_t i = 0; i < ranks->gathered_count && result == SNUG_NCCL_OK; i++)
        result = gather_parts(run, ranks->gathered[i].values, &ranks->gathered[i].parts);
    const int ended = nccl->group_end();
    return snug_nccl_check(run->ctx, nccl, result == SNUG_NCCL_OK ? ended : result, "gathering shards");
}

/* The other ranks do not use x any more, and have not begun to. */
static snug_status gather_by_copies(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const int rank = devices_of(run)->rank;
    cudaError_t error = cudaSuccess;
    RETURN_IF_ERROR(barrier(run, 0));
    for (size_t i = 0; i < ranks->gathered_count && error == cudaSuccess; i++) {
        const struct snug_cuda_gathered *g = &ranks->gathered[i];
        error = copy_to_all(run, g->values + snug_shard_begin(&g->parts, rank), snug_shard_size(&g->parts, rank));
    }
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, error, "copying shards to other ranks"));
    return barrier(run, 1);
}

/* One kernel of NCCL gathers many vectors faster than as many copies. */
static bool is_long(const struct snug_cuda_ranks *ranks) {
    enum { MEAN = 1 << 16 }; /* bytes */
    int64_t bytes = 0;
    for (size_t i = 0; i < ranks->gathered_count; i++) bytes += ranks->gathered[i].parts.elements;
    return bytes >= (int64_t)ranks->gathered_count * MEAN;
}

static snug_status gather_queued(struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    if (!ranks->gathered_count) return SNUG_OK;
    RETURN_IF_ERROR(begin(run));
    for (size_t i = 0; i < ranks->gathered_count; i++) fill_own(run, &ranks->gathered[i]);
    RETURN_IF_ERROR(ranks->peers && is_long(ranks) ? gather_by_copies(run) : gather_by_nccl(run));
    ranks->gathered_count = 0;
    return end(run);
}

/* ---- operations ---------------------------------------------------------------------------------------------------
 */

static snug_status start_queued(struct snug_run *run) {
    RETURN_IF_ERROR(sum_queued(run));
    return gather_queued(run);
}

snug_status snug_cuda_await_ranks(struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    if (!ranks->stream) return SNUG_OK;
    RETURN_IF_ERROR(start_queued(run));
    RETURN_IF_ERROR(snug_cuda_join(run));
    if (!ranks->busy) return SNUG_OK;
    ranks->busy = false;
    return snug_cuda_check(run->ctx, cudaStreamWaitEvent(snug_cuda_of(run)->stream, ranks->done, 0),
                           "waiting for other ranks");
}

/* One call of NCCL serves both operations, which all ranks run at the same moments. */
static bool are_together(const struct snug_op *op, const struct snug_op *next) {
    return next->kind == op->kind && next->phase == op->phase && next->crosses == op->crosses &&
           next->beside == op->beside;
}

static bool is_followed(const struct snug_run *run, const struct snug_op *op) {
    return op + 1 < run->program->ops + run->program->op_count && are_together(op, op + 1);
}

/* Starts what is queued. Each tensor of op and of those before it that are together with it is done at the event for
   which WAIT waits. */
static snug_status start_beside(struct snug_run *run, const struct snug_op *op) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_op *first = op;
    while (first > run->program->ops && are_together(op, first - 1)) first--;
    RETURN_IF_ERROR(start_queued(run));
    for (const struct snug_op *o = first; o <= op; o++) {
        struct snug_cuda_copied *copied = &cuda->offload.copied[snug_cuda_copied_by(o)];
        copied->awaited = true;
        RETURN_IF_ERROR(snug_cuda_check(run->ctx, cudaEventRecord(copied->done, cuda->ranks.stream),
                                        "recording the end of an operation of all ranks"));
    }
    return SNUG_OK;
}

/* After the last one of those that are together. Single operations are timed, and a rank without a micro-batch has
   nothing to run beside them. */
static snug_status start_or_await(struct snug_run *run, const struct snug_op *op) {
    return op->beside && !run->one_by_one && !run->idle ? start_beside(run, op) : snug_cuda_await_ranks(run);
}

static uint64_t hash_offset(const struct snug_program *program, int32_t tensor, uint64_t hash) {
    const int64_t *offset = &program->tensors[tensor].offset;
    return tensor ? XXH3_64bits_withSeed(offset, sizeof *offset, hash) : hash;
}

/* Of the offsets of all that other ranks write: the tensors of collectives, and the buffer for what is received. */
static uint64_t hash_layout(const struct snug_run *run) {
    const struct snug_program *program = run->program;
    const ptrdiff_t received = (uint8_t *)snug_cuda_of(run)->batch.received - run->arena;
    uint64_t hash = XXH3_64bits(&received, sizeof received);
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_GATHER_RANKS) hash = hash_offset(program, op->gather_ranks.x, hash);
        if (op->kind != SNUG_OP_SUM_RANKS) continue;
        hash = hash_offset(program, op->sum_ranks.g, hash);
        hash = hash_offset(program, op->sum_ranks.sum, hash);
    }
    return hash;
}

/* Before the program's first operation over ranks, which all ranks run at the same time and before it is captured. */
static snug_status prepare(const struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    if (!d) return snug_fail(run->ctx, SNUG_E_INTERNAL, "the GPUs of the ranks are not connected");
    if (ranks->compared) return SNUG_OK;
    ranks->compared = true;
    snug_cuda_place_batch(run);
    RETURN_IF_ERROR(snug_cuda_compare_ranks(run->ctx, d->peers.hosts, hash_layout(run), &ranks->same_layout));
    if (!ranks->same_layout) return SNUG_OK; /* untested: no program differs in its layout */
    RETURN_IF_ERROR(snug_cuda_map_arenas(run->ctx, &d->peers, run->arena, ranks->arenas));
    if (ranks->arenas[0]) ranks->peers = &d->peers;
    return SNUG_OK;
}

snug_status snug_cuda_sum_ranks(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix g = snug_matrix_of(run, op->sum_ranks.g);
    const struct snug_shards *shards = &op->sum_ranks.shards;
    const bool elsewhere = op->sum_ranks.sum != 0, accumulate = elsewhere && run->micro_batch > 0;
    float *const values = (float *)g.data;
    float *sums = elsewhere ? (float *)snug_run_data(run, op->sum_ranks.sum) : values;
    RETURN_IF_ERROR(prepare(run));
    snug_cuda_place_batch(run);
    RETURN_IF_ERROR(gather_queued(run));
    if (shards->chunk && !elsewhere) sums += snug_shard_begin(shards, devices_of(run)->rank);
    if (shards->chunk)
        RETURN_IF_ERROR(queue_for_owners(run, shards, values, sums, accumulate));
    else
        RETURN_IF_ERROR(queue_for_all(run, values, sums, g.rows * g.cols, accumulate));
    if (is_followed(run, op)) return SNUG_OK;
    /* a summed gradient's bytes may be used again */
    return run->one_by_one || elsewhere ? start_or_await(run, op) : SNUG_OK;
}

snug_status snug_cuda_gather_ranks(struct snug_run *run, const struct snug_op *op) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    const int64_t size = snug_dtype_size(snug_run_dtype(run, op->gather_ranks.x));
    RETURN_IF_ERROR(prepare(run));
    RETURN_IF_ERROR(sum_queued(run));
    RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&ranks->gathered, &ranks->gathered_capacity, ranks->gathered_count + 1,
                              sizeof *ranks->gathered));
    ranks->gathered[ranks->gathered_count++] =
        (struct snug_cuda_gathered){.op = op,
                                    .values = (uint8_t *)snug_run_data(run, op->gather_ranks.x),
                                    .parts = snug_shards_in_bytes(&op->gather_ranks.shards, size)};
    return is_followed(run, op) ? SNUG_OK : start_or_await(run, op);
}
