/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/device.cuh"

extern "C" snug_status snug_cuda_fill(struct snug_run *run, const struct snug_op *op) {
    const int64_t bytes = snug_cuda_rows(run, op->fill.x) * snug_run_cols(run, op->fill.x) *
                          snug_dtype_size(snug_run_dtype(run, op->fill.x));
    if (bytes > 0) cudaMemsetAsync(snug_run_data(run, op->fill.x), 0, (size_t)bytes, snug_cuda_of(run)->stream);
    return snug_cuda_done(run, op);
}
