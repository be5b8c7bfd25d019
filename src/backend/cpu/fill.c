/* SPDX-License-Identifier: Apache-2.0 */
/* x = 0 */
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(fill)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->fill.x);
    const int64_t bytes = x.rows * x.cols * snug_dtype_size(x.dtype), block = 1 << 18;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t first = 0; first < bytes; first += block)
        memset(x.data + first, 0, (size_t)(bytes - first < block ? bytes - first : block));
    return SNUG_OK;
}
