/* SPDX-License-Identifier: Apache-2.0 */
/* y = dropout(x). The gradient goes through the same mask, so the operation is its own backward. */
#include "backend/cuda/device.cuh"

template <typename T>
static __global__ void dropout_kernel(T *y, const T *x, struct snug_cuda_batch batch, struct dropout d, int64_t cols,
                                      struct row_tokens rows, int64_t fixed) {
    const int64_t row = blockIdx.x;
    if (row >= live_rows(batch.step, rows.extent, fixed)) {
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) y[row * cols + c] = from_float<T>(0);
        return;
    }
    const struct dropout_row mask = rows.extent == SNUG_EXTENT_FIXED
                                        ? dropout_row{(uint32_t)row, 0, batch.step->key, batch.step->step}
                                        : dropout_row_of(batch, token_of_row(batch, rows, row));
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
        float value[1] = {to_float(x[row * cols + c])};
        drop<1>(value, d, mask, (uint32_t)c);
        y[row * cols + c] = from_float<T>(value[0]);
    }
}

extern "C" snug_status snug_cuda_dropout(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t rows = snug_cuda_rows(run, op->dropout.y), cols = snug_run_cols(run, op->dropout.y);
    void *y = snug_run_data(run, op->dropout.y);
    const void *x = snug_run_data(run, op->dropout.x);
    if (rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, op->dropout.y), [&](auto type) {
        typedef decltype(type) T;
        dropout_kernel<<<(unsigned)rows, 128, 0, cuda->stream>>>((T *)y, (const T *)x, cuda->batch, dropout_of(op),
                                                                 cols, row_tokens_of(run, op->dropout.y), rows);
    });
    return snug_cuda_done(run, op);
}
