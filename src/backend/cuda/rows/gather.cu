/* SPDX-License-Identifier: Apache-2.0 */
/* Selects tokens: the first or the last of each sequence, or the masked ones; or sums over those of each sequence. */
#include "backend/cuda/device.cuh"

/* back: x's rows += r[i]; they are different rows, so no two blocks write the same one. */
template <typename T>
static __global__ void gather_kernel(T *r, T *x, struct snug_cuda_batch batch, struct row_tokens rows, bool of_tokens,
                                     bool pools_first, int64_t cols, bool back) {
    const int64_t row = blockIdx.x;
    const bool live = row < live_rows(batch.step, rows.extent, 0);
    if (!live && back) return;
    const int64_t from = !live         ? 0
                         : pools_first ? batch.loss_positions[row]
                         : of_tokens   ? token_of_row(batch, rows, row)
                                       : batch.step->first_row + row; /* the sequence of a loss position */
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
        T *one = r + row * cols + c, *all = x + from * cols + c;
        if (back)
            *all = from_float<T>(to_float(*all) + to_float(*one));
        else
            *one = live ? *all : from_float<T>(0);
    }
}

static snug_status launch(struct snug_run *run, const struct snug_op *op, int32_t r, int32_t x, bool back) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t rows = snug_cuda_rows(run, r), cols = snug_run_cols(run, r);
    if (rows == 0) return SNUG_OK;
    void *R = snug_run_data(run, r), *X = snug_run_data(run, x);
    const bool of_tokens = run->program->tensors[x].extent == SNUG_EXTENT_TOKENS;
    const bool pools_first = of_tokens && run->program->tensors[r].extent == SNUG_EXTENT_SEQUENCES &&
                             snug_run_pooling(run, r) == SNUG_POOL_FIRST;
    with_type(snug_run_dtype(run, r), [&](auto type) {
        typedef decltype(type) T;
        gather_kernel<<<(unsigned)rows, 128, 0, cuda->stream>>>((T *)R, (T *)X, cuda->batch, row_tokens_of(run, r),
                                                                of_tokens, pools_first, cols, back);
    });
    return snug_cuda_done(run, op);
}

/* ---- sums ---- */

/* LANES columns; GROUPS of threads divide a sequence's rows. */
enum { LANES = 32, GROUPS = 8 };

/* r[i] = weighted sum of the rows of x of sequence i; rows after the last sequence become zero. The groups' sums are
   added in order. */
template <typename T>
static __global__ void __launch_bounds__(LANES *GROUPS)
    sum_kernel(T *r, const T *x, struct snug_cuda_batch batch, enum snug_pooling pooling, int64_t cols) {
    __shared__ float sums[GROUPS][LANES];
    const int64_t sequence = blockIdx.x, c = (int64_t)blockIdx.y * LANES + threadIdx.x;
    const bool live = sequence < batch.step->sequences;
    const int64_t first = live ? batch.offsets[sequence] : 0, end = live ? batch.offsets[sequence + 1] : 0;
    const int64_t begin = live ? batch.loss_positions[sequence] : 0;
    float sum = 0;
    if (c < cols) {
#pragma unroll 4
        for (int64_t row = begin + threadIdx.y; row < end; row += GROUPS)
            sum += to_float(x[row * cols + c]) * snug_pool_weight(pooling, row - first);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= cols) return;
    for (int i = 1; i < GROUPS; i++) sum += sums[i][threadIdx.x];
    r[sequence * cols + c] =
        from_float<T>(end > begin ? sum / snug_pool_divisor(pooling, begin - first, end - first) : 0);
}

/* Tokens of a block. */
enum { SPREAD = 32 };

/* dx[token] += its weight * dr[i] of its sequence i */
template <typename T>
static __global__ void spread_kernel(T *dx, const T *dr, struct snug_cuda_batch batch, enum snug_pooling pooling,
                                     int64_t cols) {
    const int64_t sequence = blockIdx.y, start = batch.offsets[sequence], end = batch.offsets[sequence + 1];
    const int64_t begin = batch.loss_positions[sequence], first = begin + (int64_t)blockIdx.x * SPREAD,
                  last = first + SPREAD < end ? first + SPREAD : end;
    const float divisor = snug_pool_divisor(pooling, begin - start, end - start);
    for (int64_t c = threadIdx.x; c < cols && first < last; c += blockDim.x) {
        const float all = to_float(dr[sequence * cols + c]);
        for (int64_t row = first; row < last; row++) {
            T *to = dx + row * cols + c;
            *to = from_float<T>(to_float(*to) + all * (snug_pool_weight(pooling, row - start) / divisor));
        }
    }
}

static snug_status gather_sums(struct snug_run *run, const struct snug_op *op) {
    const int64_t rows = snug_cuda_rows(run, op->gather.r), cols = snug_run_cols(run, op->gather.r);
    void *r = snug_run_data(run, op->gather.r), *x = snug_run_data(run, op->gather.x);
    if (rows == 0) return SNUG_OK;
    const dim3 blocks((unsigned)rows, blocks_for(cols, LANES));
    with_type(snug_run_dtype(run, op->gather.r), [&](auto type) {
        typedef decltype(type) T;
        sum_kernel<<<blocks, dim3(LANES, GROUPS), 0, snug_cuda_of(run)->stream>>>(
            (T *)r, (const T *)x, snug_cuda_of(run)->batch, snug_run_pooling(run, op->gather.r), cols);
    });
    return snug_cuda_done(run, op);
}

static snug_status spread_sums(struct snug_run *run, const struct snug_op *op) {
    const int64_t cols = snug_run_cols(run, op->gather_backward.dr);
    void *dr = snug_run_data(run, op->gather_backward.dr), *dx = snug_run_data(run, op->gather_backward.dx);
    if (run->batch->sequences == 0) return SNUG_OK;
    const dim3 blocks(blocks_for(run->program->longest, SPREAD), (unsigned)run->batch->sequences);
    with_type(snug_run_dtype(run, op->gather_backward.dr), [&](auto type) {
        typedef decltype(type) T;
        spread_kernel<<<blocks, 256, 0, snug_cuda_of(run)->stream>>>(
            (T *)dx, (const T *)dr, snug_cuda_of(run)->batch, snug_run_pooling(run, op->gather_backward.dr), cols);
    });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_gather(struct snug_run *run, const struct snug_op *op) {
    if (snug_pool_sums(snug_run_pooling(run, op->gather.r))) return gather_sums(run, op);
    return launch(run, op, op->gather.r, op->gather.x, false);
}

extern "C" snug_status snug_cuda_gather_backward(struct snug_run *run, const struct snug_op *op) {
    if (snug_pool_sums(snug_run_pooling(run, op->gather_backward.dr))) return spread_sums(run, op);
    return launch(run, op, op->gather_backward.dr, op->gather_backward.dx, true);
}
