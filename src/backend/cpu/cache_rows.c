/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/rows.h"

/* The rows of keys or of values. */
static void write_rows(struct snug_run *run, struct snug_matrix to, struct snug_matrix from, int64_t column) {
    const struct snug_batch *batch = run->batch;
    const size_t row = (size_t)(to.cols * snug_dtype_size(to.dtype));
    for (const int32_t *copied = batch->copied_pages; copied < batch->copied_pages + 3 * batch->page_copies;
         copied += 3)
        memcpy(matrix_at(to, (int64_t)copied[1] * SNUG_CACHE_PAGE, 0),
               matrix_at(to, (int64_t)copied[0] * SNUG_CACHE_PAGE, 0), (size_t)copied[2] * row);
    for (int64_t s = 0; s < batch->sequences; s++)
        for (int64_t t = batch->offsets[s]; t < batch->offsets[s + 1]; t++)
            memcpy(matrix_at(to, snug_run_cache_row(run, s, batch->positions[t]), 0), matrix_at(from, t, column), row);
}

snug_status SNUG_KERNEL(cache_rows)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cache_rows *c = &op->cache_rows;
    if (c->q) SNUG_KERNEL(rotate_new_rows)(run, c);
    write_rows(run, snug_matrix_of(run, c->keys), snug_matrix_of(run, c->k), c->column[0]);
    write_rows(run, snug_matrix_of(run, c->values), snug_matrix_of(run, c->v), c->column[1]);
    return SNUG_OK;
}
