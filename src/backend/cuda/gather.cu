/* SPDX-License-Identifier: Apache-2.0 */
/* Some tokens are seen further on: the first of each sequence, or the masked ones. */
#include "backend/cuda/device.cuh"

/* back: what was r[i] += dr[i]; these are different rows, so that no two blocks meet. */
template <typename T>
static __global__ void gather_kernel(T *r, T *x, struct snug_cuda_batch batch, int extent, bool of_tokens, int64_t cols,
                                     bool back) {
    const int64_t row = blockIdx.x;
    const bool live = row < live_rows(batch.step, extent, 0);
    if (!live && back) return;
    const int64_t from = !live       ? 0
                         : of_tokens ? token_of_row(batch, extent, row)
                                     : batch.step->first_row + row; /* of a head row's sequence */
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
    const int extent = run->program->tensors[r].extent;
    const bool of_tokens = run->program->tensors[x].extent == SNUG_EXTENT_TOKENS;
    with_type(snug_run_dtype(run, r), [&](auto type) {
        typedef decltype(type) T;
        gather_kernel<<<(unsigned)rows, 128, 0, cuda->stream>>>((T *)R, (T *)X, cuda->batch, extent, of_tokens, cols,
                                                                back);
    });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_gather(struct snug_run *run, const struct snug_op *op) {
    return launch(run, op, op->out[0], op->in[0], false);
}

extern "C" snug_status snug_cuda_gather_backward(struct snug_run *run, const struct snug_op *op) {
    return launch(run, op, op->in[0], op->out[0], true);
}
