/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations over the GPUs of several ranks, through NCCL. A rank owns a shard of each gradient: it gets that shard of
 * all ranks by ncclSend and ncclRecv, adds in the order of the ranks, and sends the sum to all, or keeps it. These are
 * the bytes of a reduce-scatter and an all-gather, with an order of the additions that does not depend on NCCL.
 *
 * They run in streams of their own. Sums are queued until their shards fill the buffer for what is received; then one
 * NCCL call exchanges all, and one kernel adds all: a model has hundreds of gradients, most of them small. Without a
 * separate sum a gradient persists and is not read before the phase ends, so operations wait for sums only then.
 * Gatherings that follow each other are one NCCL call, too. All ranks queue the same, so the calls match.
 *
 * Where all ranks are on one host, the GPUs' copy engines do what NCCL would do (peers.c). The shards of a group are
 * exchanged while the group before it is added and its sums are copied to all, so the buffer has two halves, and ranks
 * wait for each other once for each group: when its shards have arrived, the sums of the group before have, too.
 * Kernels write what is short, since one copy engine does the copies to all GPUs, one after the other.
 *
 * Where the program says so (op->beside), later operations run beside a gathering, or beside sums of gradients that do
 * not persist, until WAIT: as for a copy (copies.c). Otherwise they wait.
 */
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "backend/cuda/ops.h"
#include "backend/cuda/sizes/ranks.h"
#include "backend/cuda/state.h"

snug_status snug_cuda_open_ranks(snug_context *ctx, const struct snug_program *program, struct snug_cuda_ranks *ranks) {
    if (program->ranks < 2) return SNUG_OK;
    int least, most; /* other ranks wait for this stream's kernels, so they do not queue after those of matmuls */
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDeviceGetStreamPriorityRange(&least, &most), "priorities of streams"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaStreamCreateWithPriority(&ranks->stream, cudaStreamNonBlocking, most),
                                    "cudaStreamCreate"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaStreamCreateWithPriority(&ranks->exchange, cudaStreamNonBlocking, most),
                                    "cudaStreamCreate"));
    ranks->buffer = snug_cuda_received_bytes(program) / 2;
    cudaEvent_t *events[] = {&ranks->ready, &ranks->done, &ranks->passed, &ranks->exchanged};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) RETURN_IF_ERROR(snug_cuda_create_event(ctx, events[i]));
    return SNUG_OK;
}

void snug_cuda_close_ranks(struct snug_cuda_ranks *ranks) {
    const cudaEvent_t events[] = {ranks->ready, ranks->done, ranks->passed, ranks->exchanged};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) cudaEventDestroy(events[i]);
    if (ranks->stream) cudaStreamDestroy(ranks->stream);
    if (ranks->exchange) cudaStreamDestroy(ranks->exchange);
    snug_cuda_unmap_arenas(ranks->peers, ranks->arenas);
    free(ranks->slices);
    free(ranks->gathered);
}

void snug_cuda_drop_queued(struct snug_cuda_ranks *ranks) {
    ranks->slice_count = ranks->gathered_count = 0;
    ranks->received = 0;
    ranks->half = 0;
    ranks->busy = ranks->in_phase = ranks->expected = false;
}

/* ---- calls of NCCL ------------------------------------------------------------------------------------------------
 */

static const struct snug_cuda_devices *devices_of(const struct snug_run *run) { return run->devices; }

static struct snug_cuda_ranks *ranks_of(const struct snug_run *run) { return &snug_cuda_of(run)->ranks; }

/* The stream waits for all operations so far, also for those in the side stream, which go on. */
static snug_status begin_in(const struct snug_run *run, cudaStream_t stream) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_cuda_ranks *ranks = &cuda->ranks;
    cudaError_t error = cudaEventRecord(ranks->ready, cuda->stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream, ranks->ready, 0);
    if (error == cudaSuccess && cuda->forked) error = cudaStreamWaitEvent(stream, cuda->fork[1], 0);
    return snug_cuda_check(run->ctx, error, "starting an operation of all ranks");
}

static snug_status begin(const struct snug_run *run) { return begin_in(run, ranks_of(run)->stream); }

static snug_status end(struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    int error = SNUG_NCCL_OK;
    const struct snug_cuda_devices *d = devices_of(run);
    ranks->busy = true;
    RETURN_IF_ERROR(snug_nccl_check(run->ctx, &d->nccl, d->nccl.comm_get_async_error(d->comm, &error), "its state"));
    RETURN_IF_ERROR(snug_nccl_check(run->ctx, &d->nccl, error, "communication"));
    return snug_cuda_check(run->ctx, cudaEventRecord(ranks->done, ranks->stream), "an operation of all ranks");
}

/* One part to another rank, and one from it; nothing if it is this rank. */
static int send_and_receive(const struct snug_run *run, int peer, const void *from, int64_t sent, void *to,
                            int64_t received) {
    const struct snug_cuda_devices *d = devices_of(run);
    cudaStream_t stream = ranks_of(run)->stream;
    int result = SNUG_NCCL_OK;
    if (peer == d->rank) return result;
    if (sent) result = d->nccl.send(from, (size_t)sent, SNUG_NCCL_BYTES, peer, d->comm, stream);
    if (received && result == SNUG_NCCL_OK)
        result = d->nccl.recv(to, (size_t)received, SNUG_NCCL_BYTES, peer, d->comm, stream);
    return result;
}

/* Every rank's part goes to all others. */
static int gather_parts(const struct snug_run *run, uint8_t *values, const struct snug_shards *parts) {
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t begins = snug_shard_begin(parts, d->rank), own = snug_shard_size(parts, d->rank);
    int result = SNUG_NCCL_OK;
    if (own * d->size == parts->elements && snug_shard_largest(parts) == own)
        return d->nccl.all_gather(values + begins, values, (size_t)own, SNUG_NCCL_BYTES, d->comm,
                                  ranks_of(run)->stream);
    for (int r = 0; r < d->size && result == SNUG_NCCL_OK; r++)
        result = send_and_receive(run, r, values + begins, own, values + snug_shard_begin(parts, r),
                                  snug_shard_size(parts, r));
    return result;
}

/* ---- copies to other ranks ----------------------------------------------------------------------------------------
 */

/* The same place in another rank's arena. */
static uint8_t *at_peer(const struct snug_run *run, const void *memory, int peer) {
    return ranks_of(run)->arenas[peer] + ((const uint8_t *)memory - run->arena);
}

/* The same place in another rank's buffer for what is received; the buffers' places in the arenas differ. */
static uint8_t *at_buffer(const struct snug_run *run, const void *memory, int peer) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    return ranks->arenas[peer] + ranks->buffers[peer] + ((const uint8_t *)memory - snug_cuda_of(run)->batch.received);
}

static cudaError_t copy(void *to, const void *from, int64_t bytes, cudaStream_t stream) {
    return bytes ? cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, stream) : cudaSuccess;
}

/* This rank's part of x to all others. */
static cudaError_t copy_to_all(const struct snug_run *run, const void *part, int64_t bytes) {
    const struct snug_cuda_devices *d = devices_of(run);
    cudaError_t error = cudaSuccess;
    for (int r = 1; r < d->size && error == cudaSuccess; r++)
        error = copy(at_peer(run, part, (d->rank + r) % d->size), part, bytes, ranks_of(run)->stream);
    return error;
}

/* What the other ranks have copied to this one before their barrier is complete afterwards. */
static snug_status barrier(const struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    RETURN_IF_ERROR(snug_cuda_barrier(run->ctx, ranks->peers, ranks->flags, ranks->stream));
    ranks->flags ^= 1;
    ranks->expected = false;
    return snug_cuda_check(run->ctx, cudaEventRecord(ranks->passed, ranks->stream), "waiting for other ranks");
}

/* Another rank may be in an earlier phase, which uses the bytes that this rank writes there differently. */
static snug_status enter_phase(const struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    if (ranks->in_phase) return SNUG_OK;
    ranks->in_phase = true;
    return barrier(run);
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

/* Where a rank's values of another one's part come: received + slot * count of the part. */
static int slot_of(int rank, int owner) { return rank - (rank > owner); }

/* The other ranks' values of this rank's part are received; its own stay where they are. */
static int exchange(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t size = sizeof(float);
    int result = d->nccl.group_start();
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        const int64_t own = count_of(s, d->rank);
        for (int r = 0; r < d->size && result == SNUG_NCCL_OK; r++)
            result = send_and_receive(run, r, part_of(s, r), count_of(s, r) * size,
                                      s->received + slot_of(r, d->rank) * own, own * size);
    }
    const int ended = d->nccl.group_end();
    return result == SNUG_NCCL_OK ? ended : result;
}

/* Most vectors are a few KiB, and each copy has a fixed cost. */
static bool is_short(const struct snug_cuda_slice *s) { return s->bytes < 1 << 16; }

/* Whether a kernel writes the slice's values and sums to other ranks, not copy engines. */
static bool is_written(const struct snug_cuda_ranks *ranks, const struct snug_cuda_slice *s) {
    return ranks->peers && is_short(s) && !s->chunks;
}

/* Those with chunks, or those without. */
static void add_some(const struct snug_run *run, bool chunks) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    struct snug_cuda_shard_sums sums = {.other_count = 0};
    int items = 0;
    for (int r = 0; r < d->size && ranks->peers; r++)
        if (r != d->rank) sums.others[sums.other_count++] = ranks->arenas[r] - run->arena;
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        const int64_t own = count_of(s, d->rank);
        if (own && (s->chunks != NULL) == chunks)
            sums.items[items++] = (struct snug_cuda_shard_sum){.to = s->to,
                                                               .own = part_of(s, d->rank),
                                                               .received = s->received,
                                                               .chunks = s->chunks,
                                                               .count = own,
                                                               .accumulate = s->accumulate,
                                                               .to_all = s->for_all && is_written(ranks, s)};
        if (items < SNUG_CUDA_SUMS && i + 1 < ranks->slice_count) continue;
        (chunks ? snug_cuda_add_chunks : snug_cuda_add_shards)(&sums, items, d->rank, run->contributors, ranks->stream);
        items = 0;
    }
}

static void add_all(const struct snug_run *run) {
    add_some(run, false);
    add_some(run, true);
}

static int send_sums(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t size = sizeof(float);
    int result = d->nccl.group_start();
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        const ptrdiff_t offset = s->to - part_of(s, d->rank); /* of the sums, from the values */
        for (int r = 0; r < d->size && s->for_all && result == SNUG_NCCL_OK; r++)
            result = send_and_receive(run, r, s->to, count_of(s, d->rank) * size, part_of(s, r) + offset,
                                      count_of(s, r) * size);
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

/* The stream for what ranks exchange waits for all operations so far, and until the others have added what this half of
   their buffers had before. */
static snug_status begin_exchange(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    RETURN_IF_ERROR(begin_in(run, ranks->exchange));
    return snug_cuda_check(run->ctx, cudaStreamWaitEvent(ranks->exchange, ranks->passed, 0), "waiting for other ranks");
}

/* All ranks have exchanged what they have to; error: of this one's copies. */
static snug_status end_exchange(const struct snug_run *run, cudaError_t error) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    if (error == cudaSuccess) error = cudaEventRecord(ranks->exchanged, ranks->exchange);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(ranks->stream, ranks->exchanged, 0);
    ranks->half ^= 1;
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, error, "copying gradients to other ranks"));
    return barrier(run);
}

/* This rank's values of another one's part, to that rank. */
static struct snug_cuda_fill sent_to(const struct snug_run *run, const struct snug_cuda_slice *s, int peer) {
    const int64_t theirs = count_of(s, peer);
    float *received = s->received + slot_of(devices_of(run)->rank, peer) * theirs;
    return (struct snug_cuda_fill){at_buffer(run, received, peer), part_of(s, peer), theirs, SNUG_F32, SNUG_F32};
}

static snug_status send_shards(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    struct snug_cuda_fills written = {.count = 0};
    cudaError_t error = cudaSuccess;
    RETURN_IF_ERROR(begin_exchange(run));
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        for (int k = 1; k < d->size && error == cudaSuccess; k++) {
            const struct snug_cuda_fill sent = sent_to(run, s, (d->rank + k) % d->size);
            if (is_written(ranks, s))
                snug_cuda_add_fill(&written, sent, ranks->exchange);
            else
                error = copy(sent.to, sent.from, sent.count * (int64_t)sizeof(float), ranks->exchange);
        }
    }
    snug_cuda_launch_fills(&written, ranks->exchange);
    return end_exchange(run, error);
}

static snug_status sum_by_copies(const struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    cudaError_t error = cudaSuccess;
    RETURN_IF_ERROR(enter_phase(run));
    RETURN_IF_ERROR(send_shards(run));
    add_all(run);
    for (size_t i = 0; i < ranks->slice_count && error == cudaSuccess; i++) {
        const struct snug_cuda_slice *s = &ranks->slices[i];
        ranks->expected |= s->for_all;
        if (s->for_all && !is_written(ranks, s))
            error = copy_to_all(run, s->to, count_of(s, devices_of(run)->rank) * (int64_t)sizeof(float));
    }
    return snug_cuda_check(run->ctx, error, "copying sums of gradients to other ranks");
}

/* Short slices stay queued until they have grown, or until the last group. Moves the short slices to the end of the
   queue, and returns how many slices come before them; if all are short, returns the number of all. */
static size_t move_short(struct snug_cuda_ranks *ranks) {
    size_t count = 0;
    for (size_t i = 0; i < ranks->slice_count; i++) {
        const struct snug_cuda_slice slice = ranks->slices[i];
        if (is_short(&slice)) continue;
        ranks->slices[i] = ranks->slices[count];
        ranks->slices[count++] = slice;
    }
    return count ? count : ranks->slice_count;
}

/* Sums those of the first `count` slices that are queued. */
static snug_status sum_first(struct snug_run *run, size_t count) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    const size_t left = ranks->slice_count - count;
    uint8_t *received = snug_cuda_of(run)->batch.received + ranks->half * ranks->buffer;
    for (size_t i = 0; i < count; i++) {
        ranks->slices[i].received = (float *)received;
        received += ranks->slices[i].bytes;
        ranks->received -= ranks->slices[i].bytes;
    }
    if (!count) return SNUG_OK;
    ranks->slice_count = count;
    RETURN_IF_ERROR(begin(run));
    RETURN_IF_ERROR(ranks->peers ? sum_by_copies(run) : sum_by_nccl(run));
    ranks->slice_count = left;
    memmove(ranks->slices, ranks->slices + count, left * sizeof *ranks->slices);
    return end(run);
}

static snug_status sum_queued(struct snug_run *run) { return sum_first(run, ranks_of(run)->slice_count); }

/* Bytes that a group may receive. NCCL does one group after the other. */
static int64_t room_of(const struct snug_cuda_ranks *ranks) { return ranks->peers ? ranks->buffer : 2 * ranks->buffer; }

/* All ranks count the largest part, so that they fill their buffers alike. */
static int64_t received_bytes(const struct snug_cuda_slice *slice) {
    int64_t largest = 0;
    for (int r = 0; r < slice->parts.ranks; r++)
        if (count_of(slice, r) > largest) largest = count_of(slice, r);
    return snug_cuda_round_up((slice->parts.ranks - 1) * largest * (int64_t)sizeof(float), 16);
}

static snug_status add_slice(struct snug_run *run, struct snug_cuda_slice slice) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    slice.bytes = received_bytes(&slice);
    if (ranks->received + slice.bytes > room_of(ranks)) RETURN_IF_ERROR(sum_first(run, move_short(ranks)));
    if (ranks->received + slice.bytes > room_of(ranks)) RETURN_IF_ERROR(sum_queued(run));
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
    if (!x->for_all || x->chunks || x->accumulate != y->accumulate || y->to - part_of(y, rank) != offset) return false;
    if (!after && !before) return false;
    float *const begin = after ? x->values : y->values;
    const struct snug_cuda_slice whole =
        slice_for_all(run, begin, begin + offset, (after ? y_end : x_end) - begin, x->accumulate);
    const int64_t received = ranks->received - x->bytes + whole.bytes;
    if (received > room_of(ranks)) return false;
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

/* The elements of a rank's part of a gradient that there is room for. */
static int64_t largest_part(const struct snug_run *run) {
    enum { STEP = 64 };
    return room_of(ranks_of(run)) / (devices_of(run)->size - 1) / (int64_t)sizeof(float) / STEP * STEP;
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

/* Each rank gets the sums of its shard: to[0 … its elements - 1]. Shards are cut at whole chunks. */
static snug_status queue_shards(struct snug_run *run, const struct snug_op *op, float *values, float *to,
                                bool accumulate) {
    const struct snug_sum_ranks *sum = &op->sum_ranks;
    const int64_t room = largest_part(run), largest = snug_shard_largest(&sum->shards);
    const int64_t part = sum->chunks ? room / SNUG_NORM_CHUNK * SNUG_NORM_CHUNK : room;
    double *chunks = sum->chunks ? (double *)snug_run_data(run, sum->chunks) + sum->slot : NULL;
    for (int64_t first = 0; first < largest; first += part) {
        RETURN_IF_ERROR(add_slice(run, (struct snug_cuda_slice){.values = values,
                                                                .to = to + first,
                                                                .parts = sum->shards,
                                                                .first = first,
                                                                .most = part,
                                                                .chunks = chunks,
                                                                .accumulate = accumulate,
                                                                .for_all = sum->for_all}));
        if (chunks) chunks += part / SNUG_NORM_CHUNK;
    }
    return SNUG_OK;
}

/* ---- sums of sparse gradients -------------------------------------------------------------------------------------
 */

/* The gradient of an embedding is complete when backward ends, so nothing runs beside its sum, and most of it is zeros.
   Each rank marks its blocks that are not, and sends the marks to all; then the owner of a part reads those blocks in
   the other ranks' memory. */

/* Bytes of a rank's marks. */
static int64_t marks_of(int64_t elements) {
    return snug_cuda_round_up((elements + SNUG_CUDA_SPARSE - 1) / SNUG_CUDA_SPARSE, 16);
}

/* Where the marks of all ranks have room in the buffer for what is received. */
static bool is_summed_sparse(const struct snug_run *run, const struct snug_op *op, int64_t elements) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    return op->sum_ranks.sparse && ranks->peers && marks_of(elements) * devices_of(run)->size <= ranks->buffer;
}

static snug_status share_marks(const struct snug_run *run, uint8_t *marks, const float *values, int64_t count) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t each = marks_of(count);
    uint8_t *own = marks + d->rank * each;
    cudaError_t error = cudaSuccess;
    RETURN_IF_ERROR(begin_exchange(run));
    snug_cuda_mark_blocks(own, values, count, ranks->exchange);
    for (int r = 0; r < d->size && error == cudaSuccess; r++)
        if (r != d->rank) error = copy(at_buffer(run, own, r), own, each, ranks->exchange);
    return end_exchange(run, error);
}

/* parts: of whole blocks; sums: of this rank's part. */
static snug_status sum_sparse(struct snug_run *run, const float *values, float *sums, const struct snug_shards *parts,
                              bool for_all, bool accumulate) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t begins = snug_shard_begin(parts, d->rank);
    const bool in_place = sums == values + begins;
    uint8_t *marks = snug_cuda_of(run)->batch.received + ranks->half * ranks->buffer;
    struct snug_cuda_sparse_sum sum = {.marks = marks + begins / SNUG_CUDA_SPARSE,
                                       .each = marks_of(parts->elements),
                                       .count = snug_shard_size(parts, d->rank),
                                       .rank = d->rank,
                                       .ranks = d->size,
                                       .contributors = run->contributors,
                                       .accumulate = accumulate};
    for (int r = 0; r < d->size; r++) {
        sum.from[r] = (const float *)at_peer(run, values + begins, r);
        if (for_all || r == d->rank) sum.to[r] = (float *)at_peer(run, sums, r);
        /* a contributor without a mark has zeros already */
        if (!accumulate && !(in_place && r < run->contributors)) sum.stale |= 1u << r;
    }
    RETURN_IF_ERROR(begin(run));
    RETURN_IF_ERROR(enter_phase(run));
    RETURN_IF_ERROR(share_marks(run, marks, values, parts->elements));
    snug_cuda_add_sparse(&sum, ranks->stream);
    ranks->expected = true; /* other ranks read this one's gradient until then, too */
    return end(run);
}

static snug_status sum_sparse_for_all(struct snug_run *run, const float *values, float *sums, int64_t count,
                                      bool accumulate) {
    const struct snug_cuda_devices *d = devices_of(run);
    const int64_t part = snug_cuda_round_up((count + d->size - 1) / d->size, SNUG_CUDA_SPARSE);
    const struct snug_shards parts = snug_equal_parts(count, part, d->size);
    return sum_sparse(run, values, sums + snug_shard_begin(&parts, d->rank), &parts, true, accumulate);
}

/* ---- gathering ----------------------------------------------------------------------------------------------------
 */

/* Copies this rank's shards to their places, rounded to nearest even where the tensor has a smaller type. */
static void fill_own(const struct snug_run *run) {
    const struct snug_cuda_ranks *ranks = ranks_of(run);
    const int rank = devices_of(run)->rank;
    struct snug_cuda_fills fills = {.count = 0};
    for (size_t i = 0; i < ranks->gathered_count; i++) {
        const struct snug_cuda_gathered *g = &ranks->gathered[i];
        const struct snug_gather_ranks *gather = &g->op->gather_ranks;
        if (gather->shard)
            snug_cuda_add_fill(
                &fills,
                (struct snug_cuda_fill){g->values + snug_shard_begin(&g->parts, rank),
                                        snug_run_data(run, gather->shard), snug_shard_size(&gather->shards, rank),
                                        snug_run_dtype(run, gather->x), snug_run_dtype(run, gather->shard)},
                ranks->stream);
    }
    snug_cuda_launch_fills(&fills, ranks->stream);
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
    RETURN_IF_ERROR(barrier(run));
    for (size_t i = 0; i < ranks->gathered_count && error == cudaSuccess; i++) {
        const struct snug_cuda_gathered *g = &ranks->gathered[i];
        error = copy_to_all(run, g->values + snug_shard_begin(&g->parts, rank), snug_shard_size(&g->parts, rank));
    }
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, error, "copying shards to other ranks"));
    return barrier(run);
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
    fill_own(run);
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

/* Until what others copy to this rank, or read from it, is complete. */
static snug_status expect_others(struct snug_run *run) {
    if (!ranks_of(run)->expected) return SNUG_OK;
    RETURN_IF_ERROR(barrier(run));
    return end(run);
}

static snug_status await(struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    RETURN_IF_ERROR(start_queued(run));
    RETURN_IF_ERROR(expect_others(run));
    RETURN_IF_ERROR(snug_cuda_join(run));
    if (!ranks->busy) return SNUG_OK;
    ranks->busy = false;
    return snug_cuda_check(run->ctx, cudaStreamWaitEvent(snug_cuda_of(run)->stream, ranks->done, 0),
                           "waiting for other ranks");
}

/* A phase begins with the first flags, whether it is captured or not. */
snug_status snug_cuda_end_ranks(struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    if (!ranks->stream) return SNUG_OK;
    RETURN_IF_ERROR(start_queued(run));
    RETURN_IF_ERROR(expect_others(run));
    if (ranks->flags) {
        RETURN_IF_ERROR(barrier(run));
        RETURN_IF_ERROR(end(run));
    }
    return await(run);
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
    RETURN_IF_ERROR(expect_others(run));
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
    return op->beside && !run->one_by_one && !run->idle ? start_beside(run, op) : await(run);
}

static uint64_t hash_offset(const struct snug_program *program, int32_t tensor, uint64_t hash) {
    const int64_t *offset = &program->tensors[tensor].offset;
    return tensor ? XXH3_64bits_withSeed(offset, sizeof *offset, hash) : hash;
}

/* A hash of the offsets of the tensors of collectives, which other ranks write. */
static uint64_t hash_layout(const struct snug_run *run) {
    const struct snug_program *program = run->program;
    uint64_t hash = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_GATHER_RANKS) hash = hash_offset(program, op->gather_ranks.x, hash);
        if (op->kind != SNUG_OP_SUM_RANKS) continue;
        hash = hash_offset(program, op->sum_ranks.g, hash);
        hash = hash_offset(program, op->sum_ranks.sum, hash);
    }
    return hash;
}

/* The tables before it have an entry for each of this rank's shards. */
static snug_status find_buffers(const struct snug_run *run) {
    struct snug_cuda_ranks *ranks = ranks_of(run);
    const struct snug_collectives *hosts = devices_of(run)->peers.hosts;
    if (!ranks->arenas[0]) return SNUG_OK;
    ranks->buffers[hosts->rank] = snug_cuda_of(run)->batch.received - run->arena;
    return snug_all_gather_equal(run->ctx, hosts, ranks->buffers, sizeof *ranks->buffers);
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
    if (!ranks->same_layout) {
        snug_log(run->ctx, SNUG_LOG_WARNING,
                 "the ranks' memory is not laid out alike, so NCCL exchanges their gradients, which is slower: please "
                 "report this, with the command");
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_cuda_map_arenas(run->ctx, &d->peers, run->arena, ranks->arenas));
    RETURN_IF_ERROR(find_buffers(run));
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
    if (is_summed_sparse(run, op, g.rows * g.cols)) {
        RETURN_IF_ERROR(sum_first(run, move_short(ranks_of(run))));
        RETURN_IF_ERROR(shards->chunk ? sum_sparse(run, values, sums, shards, false, accumulate)
                                      : sum_sparse_for_all(run, values, sums, g.rows * g.cols, accumulate));
    } else if (shards->chunk) {
        RETURN_IF_ERROR(queue_shards(run, op, values, sums, accumulate));
    } else {
        RETURN_IF_ERROR(queue_for_all(run, values, sums, g.rows * g.cols, accumulate));
    }
    if (is_followed(run, op)) return SNUG_OK;
    /* a summed gradient's bytes may be used again; what is no gradient is read next */
    const bool awaited = run->one_by_one || elsewhere || op->phase != SNUG_PHASE_BACKWARD;
    return awaited ? start_or_await(run, op) : SNUG_OK;
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
