/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients' norm and clipping. Blocks of a fixed size are summed in double, then the blocks in order. Where a
   gradient is divided over ranks, each rank's blocks are kept apart until all ranks have gathered them. */
#include "backend/cuda/update/squares.cuh"

enum { THREADS = SQUARE_THREADS };

static __device__ double square_block(const float *g, int64_t count, int64_t block) {
    const int64_t begin = block * BLOCK, end = begin + BLOCK < count ? begin + BLOCK : count;
    double sum = 0;
    for (int64_t i = begin + threadIdx.x * 4; i < end; i += THREADS * 4)
        sum = add_squares(sum, load_four(g + i, end - i, true), end - i);
    return block_sum<SQUARE_WARPS>(sum);
}

static __global__ void square_blocks(double *partial, const float *g, int64_t count) {
    const double sum = square_block(g, count, blockIdx.x);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* sum plus all partial sums, one after the other: the parts of a gradient, if it is divided at whole blocks, give the
   bits of the whole. */
static __device__ double add_in_order(double sum, const double *partial, int64_t count) {
    __shared__ double loaded[THREADS];
    for (int64_t first = 0; first < count; first += THREADS) {
        __syncthreads();
        if (first + threadIdx.x < count) loaded[threadIdx.x] = partial[first + threadIdx.x];
        __syncthreads();
        if (threadIdx.x) continue;
        for (int64_t i = 0; i < THREADS && first + i < count; i++) sum += loaded[i];
    }
    return sum;
}

static __global__ void add_blocks(double *to, const double *partial, int64_t count, bool add) {
    const double sum = add_in_order(add ? *to : 0, partial, count);
    if (threadIdx.x == 0) *to = sum;
}

/* ---- all gradients at once: the same blocks, and the same sums of them ---- */

/* chunks: the sums of the blocks are the result. */
static __global__ void square_all(double *partial, double *sums, const uint8_t *arena,
                                  const struct snug_cuda_entry *entries, int32_t count, bool chunks) {
    const struct snug_cuda_entry entry = entry_of_block(entries, count);
    const int64_t block = blockIdx.x - entry.block;
    const double sum = square_block((const float *)(arena + entry.g), entry.count, block);
    if (threadIdx.x == 0) (chunks ? sums + entry.slot + block : partial + blockIdx.x)[0] = sum;
}

static __global__ void add_all(double *sums, const double *partial, const struct snug_cuda_entry *entries) {
    const struct snug_cuda_entry entry = entries[blockIdx.x];
    const double sum = add_in_order(0, partial + entry.block, (entry.count + BLOCK - 1) / BLOCK);
    if (threadIdx.x == 0) sums[entry.slot] = sum;
}

extern "C" snug_status snug_cuda_squared_norm(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const enum snug_cuda_share share = snug_cuda_share_of(run, op, &cuda->norms);
    const int64_t count = snug_run_rows(run, op->squared_norm.g) * snug_run_cols(run, op->squared_norm.g);
    const unsigned blocks = blocks_for(count, BLOCK);
    double *partial = (double *)run->workspace, *sums = (double *)snug_run_data(run, op->squared_norm.sums);
    if (share == SNUG_CUDA_NO_TENSOR) return SNUG_OK;
    if (share == SNUG_CUDA_ALL_TENSORS) {
        square_all<<<(unsigned)cuda->norms.blocks, THREADS, 0, cuda->stream>>>(
            partial, sums, run->arena, cuda->batch.norms, cuda->norms.count, op->squared_norm.chunks);
        if (!op->squared_norm.chunks)
            add_all<<<(unsigned)cuda->norms.count, THREADS, 0, cuda->stream>>>(sums, partial, cuda->batch.norms);
        return snug_cuda_done(run, op);
    }
    if (op->squared_norm.chunks) partial = sums + op->squared_norm.slot;
    if (blocks > 0)
        square_blocks<<<blocks, THREADS, 0, cuda->stream>>>(
            partial, (const float *)snug_run_data(run, op->squared_norm.g), count);
    if (op->squared_norm.chunks) return snug_cuda_done(run, op);
    add_blocks<<<1, THREADS, 0, cuda->stream>>>(sums + op->squared_norm.slot, partial, blocks, op->accumulate);
    return snug_cuda_done(run, op);
}

/* ---- gradients that are divided ---- */

/* The sums of a gradient, in each rank's row of the table from column `first` on: of each of the `even` chunks of its
   shard, and of one more chunk in the `left` ranks from `start` on. A chunk has `each` sums. */
struct chunks_of_gradient {
    int64_t first, even, each;
    int32_t left, start, slot;
};
enum { GRADIENTS = 64 }; /* of a launch: its table is an argument, of at most 4 KiB */
struct chunks_of_gradients {
    struct chunks_of_gradient items[GRADIENTS];
};

static struct chunks_of_gradient chunks_of(const struct snug_sum_chunks *op) {
    const struct snug_shards *s = &op->shards;
    const int64_t chunks = (s->elements + s->chunk - 1) / s->chunk;
    return {op->first, chunks / s->ranks, (s->chunk + BLOCK - 1) / BLOCK, (int32_t)(chunks % s->ranks),
            s->start,  op->slot};
}

static __global__ void add_chunks(double *sums, const double *parts, int64_t columns, int ranks,
                                  const struct chunks_of_gradients table) {
    const struct chunks_of_gradient g = table.items[blockIdx.x];
    double sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const int64_t chunks = g.even + ((rank - g.start + ranks) % ranks < g.left);
        sum = add_in_order(sum, parts + rank * columns + g.first, chunks * g.each);
    }
    if (threadIdx.x == 0) sums[g.slot] = sum;
}

/* The first of a series of these operations does the work of all. */
extern "C" snug_status snug_cuda_sum_chunks(struct snug_run *run, const struct snug_op *op) {
    const struct snug_op *ops = run->program->ops, *end = ops + run->program->op_count;
    const int64_t columns = snug_run_cols(run, op->sum_chunks.parts);
    struct chunks_of_gradients table;
    int count = 0;
    if (op > ops && op[-1].kind == op->kind) return SNUG_OK;
    for (const struct snug_op *each = op; each < end && each->kind == op->kind; each++) {
        const struct snug_sum_chunks *s = &each->sum_chunks;
        table.items[count++] = chunks_of(s);
        if (count < GRADIENTS && each + 1 < end && each[1].kind == op->kind) continue;
        add_chunks<<<(unsigned)count, THREADS, 0, snug_cuda_of(run)->stream>>>(
            (double *)snug_run_data(run, s->sums), (const double *)snug_run_data(run, s->parts), columns,
            s->shards.ranks, table);
        count = 0;
    }
    return snug_cuda_done(run, op);
}

static __global__ void clip_kernel(float *clip, float *scaler, const double *sums, int64_t slots,
                                   const struct snug_cuda_step *step) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < slots; i += THREADS) sum += sums[i];
    sum = block_sum<SQUARE_WARPS>(sum);
    if (threadIdx.x) return;
    const double factor = scaler ? scaler[SNUG_SCALE] : 1, norm = sqrt(sum) / factor;
    const double scale = step->max_grad_norm / (norm + 1e-6);
    clip[0] = (float)norm;
    clip[1] = (float)((step->max_grad_norm > 0 && !(scale >= 1) ? scale : 1) / factor); /* a NaN norm is passed on */
    if (scaler) scaler[SNUG_SCALE_SKIPS] = isfinite(sum) ? 0 : 1;
}

extern "C" snug_status snug_cuda_clip(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t slots = snug_run_rows(run, op->clip.sums) * snug_run_cols(run, op->clip.sums);
    clip_kernel<<<1, THREADS, 0, cuda->stream>>>(
        (float *)snug_run_data(run, op->clip.clip), (float *)snug_run_data(run, op->clip.scaler),
        (const double *)snug_run_data(run, op->clip.sums), slots, cuda->batch.step);
    return snug_cuda_done(run, op);
}
