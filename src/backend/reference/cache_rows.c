/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/reference/reference.h"

snug_status snug_reference_cache_rows(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cache_rows *c = &op->cache_rows;
    const struct snug_batch *batch = run->batch;
    const struct snug_matrix q = snug_matrix_of(run, c->q);
    const struct snug_rotation *r = c->q ? &run->program->rotations[c->rotation] : NULL;
    const struct snug_matrix from[] = {snug_matrix_of(run, c->k), snug_matrix_of(run, c->v)};
    const struct snug_matrix to[] = {snug_matrix_of(run, c->keys), snug_matrix_of(run, c->values)};
    for (int64_t t = 0; r && t < batch->tokens; t++) {
        const int64_t place = batch->positions[t];
        snug_reference_rotate_row(q, q, t, 0, c->heads, c->head_dim, r, (double)place, snug_rotation_factor(r, place));
        snug_reference_rotate_row(from[0], from[0], t, c->column[0], c->kv_heads, c->head_dim, r, (double)place,
                                  r->factor);
    }
    for (int n = 0; n < 2; n++) {
        const int64_t row = to[n].cols * snug_dtype_size(to[n].dtype), page = SNUG_CACHE_PAGE * row;
        for (int64_t i = 0; i < batch->page_copies; i++) {
            const int32_t *copied = batch->copied_pages + 3 * i;
            memcpy(to[n].data + copied[1] * page, to[n].data + copied[0] * page, (size_t)(copied[2] * row));
        }
        for (int64_t s = 0; s < batch->sequences; s++)
            for (int64_t t = batch->offsets[s]; t < batch->offsets[s + 1]; t++)
                for (int64_t col = 0; col < to[n].cols; col++)
                    store(to[n], snug_run_cache_row(run, s, batch->positions[t]), col,
                          load(from[n], t, c->column[n] + col));
    }
    return SNUG_OK;
}
