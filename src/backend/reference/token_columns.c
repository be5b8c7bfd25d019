/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

snug_status snug_reference_token_columns(struct snug_run *run, const struct snug_op *op) {
    const struct snug_token_columns *c = &op->token_columns;
    const struct snug_matrix x = snug_matrix_of(run, c->x), z = snug_matrix_of(run, c->z),
                             y = snug_matrix_of(run, c->y), b = snug_matrix_of(run, c->b);
    const struct snug_tokens tokens = snug_tokens_of(run, c->tokens, z.cols);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t id = 0; id < y.cols; id++) {
            const int32_t k = tokens.places[id];
            store(y, row, id, k < 0 ? load(x, row, id) : load(z, row, k) + load_or_0(b, id));
        }
    return SNUG_OK;
}

snug_status snug_reference_token_columns_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_token_columns_backward *c = &op->token_columns_backward;
    const struct snug_matrix dy = snug_matrix_of(run, c->dy), dx = snug_matrix_of(run, c->dx),
                             dz = snug_matrix_of(run, c->dz);
    const struct snug_tokens tokens = snug_tokens_of(run, c->tokens, dz.cols);
    for (int64_t row = 0; row < dy.rows; row++) {
        for (int64_t k = 0; k < dz.cols; k++) store(dz, row, k, load(dy, row, tokens.ids[k]));
        for (int64_t id = 0; dx.data && id < dx.cols; id++)
            store(dx, row, id, tokens.places[id] < 0 ? load(dy, row, id) : 0);
    }
    return SNUG_OK;
}
