/* SPDX-License-Identifier: Apache-2.0 */
/* The best class of each row of logits: a block takes a row. */
#include "backend/cuda/device.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, INFINITE = 1, NOT_A_NUMBER = 2 };

struct best {
    float value;
    int32_t column, flags;
};

/* The first column of equal ones. */
static __device__ void take(struct best *to, const struct best &from) {
    const bool first = from.value > to->value || (from.value == to->value && from.column < to->column);
    to->flags |= from.flags;
    if (!first) return;
    to->value = from.value;
    to->column = from.column;
}

static __global__ void best_kernel(int32_t *best, const float *logits, const struct snug_cuda_batch batch,
                                   int64_t classes) {
    __shared__ struct best of_warps[WARPS];
    const int64_t row = blockIdx.x;
    const float *x = logits + row * classes;
    struct best own = {-INFINITY, INT32_MAX, 0};
    if (row >= batch.step->rows) return;
    for (int64_t c = threadIdx.x; c < classes; c += THREADS)
        take(&own, {x[c], (int32_t)c, isnan(x[c]) ? NOT_A_NUMBER : isinf(x[c]) ? INFINITE : 0});
    for (int step = 16; step > 0; step /= 2)
        take(&own, {__shfl_xor_sync(FULL_WARP, own.value, step), __shfl_xor_sync(FULL_WARP, own.column, step),
                    __shfl_xor_sync(FULL_WARP, own.flags, step)});
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < WARPS; i++) take(&own, of_warps[i]);
    best[row] = own.flags & NOT_A_NUMBER ? SNUG_BEST_NAN : own.flags ? SNUG_BEST_INFINITE : own.column;
}

extern "C" snug_status snug_cuda_best(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t rows = snug_cuda_rows(run, op->best.logits);
    if (rows > 0)
        best_kernel<<<(unsigned)rows, THREADS, 0, cuda->stream>>>((int32_t *)snug_run_data(run, op->best.best),
                                                                  (const float *)snug_run_data(run, op->best.logits),
                                                                  cuda->batch, snug_run_cols(run, op->best.logits));
    return snug_cuda_done(run, op);
}
