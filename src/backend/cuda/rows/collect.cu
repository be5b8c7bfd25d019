/* SPDX-License-Identifier: Apache-2.0 */
/* A micro-batch's vectors go to the rows of the step's vectors, and their gradients come from there. A block has a row;
   rows after the last one of a gradient become zero. */
#include "backend/cuda/device.cuh"

enum { THREADS = 128 };

/* The row in the step of loss position `row` of the chunk. */
static __device__ __forceinline__ int64_t row_in_step(struct snug_cuda_batch batch, int64_t row) {
    return batch.sample[batch.loss_positions[batch.step->first_row + row]];
}

static __global__ void collect_kernel(float *vectors, float *scores, const float *x, struct snug_cuda_batch batch,
                                      int64_t cols, int texts) {
    const int64_t row = blockIdx.x;
    if (row >= batch.step->rows) return;
    const int64_t to = row_in_step(batch, row);
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) vectors[to * cols + c] = x[row * cols + c];
    if (scores && threadIdx.x == 0) scores[to] = batch.targets[(batch.step->first_row + row) / texts];
}

extern "C" snug_status snug_cuda_collect(struct snug_run *run, const struct snug_op *op) {
    const struct snug_collect &c = op->collect;
    const int64_t rows = snug_cuda_rows(run, c.x), cols = snug_run_cols(run, c.x);
    if (rows == 0) return SNUG_OK;
    collect_kernel<<<(unsigned)rows, THREADS, 0, snug_cuda_of(run)->stream>>>(
        (float *)snug_run_data(run, c.vectors), (float *)snug_run_data(run, c.scores),
        (const float *)snug_run_data(run, c.x), snug_cuda_of(run)->batch, cols, c.texts);
    return snug_cuda_done(run, op);
}

static __global__ void collect_backward_kernel(float *dx, const float *d, struct snug_cuda_batch batch, int64_t cols) {
    const int64_t row = blockIdx.x;
    const bool live = row < batch.step->rows;
    const int64_t from = live ? row_in_step(batch, row) : 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) dx[row * cols + c] = live ? d[from * cols + c] : 0;
}

extern "C" snug_status snug_cuda_collect_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_collect_backward &c = op->collect_backward;
    const int64_t rows = snug_cuda_rows(run, c.dx), cols = snug_run_cols(run, c.dx);
    if (rows == 0) return SNUG_OK;
    collect_backward_kernel<<<(unsigned)rows, THREADS, 0, snug_cuda_of(run)->stream>>>(
        (float *)snug_run_data(run, c.dx), (const float *)snug_run_data(run, c.d), snug_cuda_of(run)->batch, cols);
    return snug_cuda_done(run, op);
}
