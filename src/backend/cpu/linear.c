/* SPDX-License-Identifier: Apache-2.0 */
/* LINEAR, LINEAR_DX, LINEAR_DW. */
#include <string.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/vec.h"

/* y = x w + bias, or += if add; transpose_w: w is stored as [columns of y, columns of x]. */
static snug_status run_matmul(struct snug_run *run, int32_t y, int32_t x, int32_t w, const float *bias,
                              bool transpose_w, bool add) {
    const struct snug_matmul p = {.y = snug_run_data(run, y),
                                  .y_dtype = snug_run_dtype(run, y),
                                  .a = snug_run_data(run, x),
                                  .b = snug_run_data(run, w),
                                  .b_dtype = snug_run_dtype(run, w),
                                  .bias = bias,
                                  .m = snug_run_rows(run, x),
                                  .n = snug_run_cols(run, y),
                                  .k = snug_run_cols(run, x),
                                  .transpose_b = transpose_w,
                                  .add = add};
    const enum snug_dtype a = snug_run_dtype(run, x);
    if (a == SNUG_F32 && p.y_dtype == SNUG_F32) return SNUG_KERNEL(matmul_f32)(run, &p);
    if (a == SNUG_BF16 && p.b_dtype == SNUG_BF16) return SNUG_KERNEL(matmul_bf16)(run, &p);
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "no matmul of tensors \"%s\" (%s) and \"%s\" (%s) to %s",
                     run->program->tensors[x].name, snug_dtype_name(a), run->program->tensors[w].name,
                     snug_dtype_name(p.b_dtype), snug_dtype_name(p.y_dtype));
}

snug_status SNUG_KERNEL(linear)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_linear *l = &op->linear;
    const struct snug_matrix y = snug_matrix_of(run, l->y);
    if (l->addend && l->addend != l->y)
        memcpy(y.data, snug_run_data(run, l->addend), (size_t)(y.rows * y.cols * snug_dtype_size(y.dtype)));
    return run_matmul(run, l->y, l->x, l->w, snug_run_data(run, l->b), !l->transposed, l->addend);
}

snug_status SNUG_KERNEL(linear_dx)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_linear_dx *l = &op->linear_dx;
    return run_matmul(run, l->dx, l->dy, l->w, NULL, l->transposed, op->accumulate);
}

/* db alone, of dy [t,n]: the sums of 64 rows each, then their sum, which keeps rounding errors small. */
static void sum_columns(const struct snug_run *run, const struct snug_weight_gradient *p, enum snug_dtype dtype) {
    enum { ROWS = 64, COLUMNS = 64 };
    const int64_t size = snug_dtype_size(dtype);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t first = 0; first < p->n; first += COLUMNS) {
        const int64_t end = first + COLUMNS < p->n ? first + COLUMNS : p->n;
        for (int64_t c = first; c < end; c += VEC_LANES) {
            vec total = vec_all(0);
            for (int64_t t = 0; t < p->t; t += ROWS) {
                vec sum = vec_all(0);
                for (int64_t i = t; i < p->t && i < t + ROWS; i++)
                    sum += vec_load((const uint8_t *)p->dy + i * p->n * size, dtype, c, end);
                total += sum;
            }
            if (p->add) total += vec_load(p->db, SNUG_F32, c, end);
            vec_store(p->db, SNUG_F32, c, end, total);
        }
    }
}

snug_status SNUG_KERNEL(linear_dw)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_linear_dw *l = &op->linear_dw;
    enum snug_dtype dy = snug_run_dtype(run, l->dy), x = snug_run_dtype(run, l->x);
    struct snug_weight_gradient p = {.dw = snug_run_data(run, l->dw),
                                     .db = snug_run_data(run, l->db),
                                     .dy = snug_run_data(run, l->dy),
                                     .x = snug_run_data(run, l->x),
                                     .t = snug_run_rows(run, l->dy),
                                     .n = snug_run_cols(run, l->dy),
                                     .k = snug_run_cols(run, l->x),
                                     .add = !snug_run_overwrites(run, op),
                                     .apart = run->program->accumulates && run->chunk == 0};
    if (p.db && (!p.dw || l->transposed)) sum_columns(run, &p, dy);
    if (!p.dw) return SNUG_OK;
    if (l->transposed) { /* dw^T = x^T dy */
        p.dy = snug_run_data(run, l->x), p.x = snug_run_data(run, l->dy);
        p.n = snug_run_cols(run, l->x), p.k = snug_run_cols(run, l->dy);
        p.db = NULL;
    }
    if (dy == SNUG_F32 && x == SNUG_F32) return SNUG_KERNEL(weight_gradient_f32)(run, &p);
    if (dy == SNUG_BF16 && x == SNUG_BF16) return SNUG_KERNEL(weight_gradient_bf16)(run, &p);
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "no gradient of \"%s\" from \"%s\" (%s) and \"%s\" (%s)",
                     run->program->tensors[op->linear_dw.dw].name, run->program->tensors[op->linear_dw.dy].name,
                     snug_dtype_name(dy), run->program->tensors[op->linear_dw.x].name, snug_dtype_name(x));
}

static int64_t matmul_workspace(const struct snug_program *program, int32_t x, int32_t w, int32_t y, bool transpose_w,
                                int threads) {
    const struct snug_tensor *a = &program->tensors[x], *b = &program->tensors[w];
    const int64_t n = program->tensors[y].cols;
    if (a->dtype != SNUG_F32) return SNUG_KERNEL(matmul_bf16_workspace)(n, a->cols);
    return SNUG_KERNEL(matmul_f32_workspace)(n, a->cols, transpose_w, b->dtype, threads);
}

int64_t SNUG_KERNEL(linear_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_linear *l = &op->linear;
    return matmul_workspace(program, l->x, l->w, l->y, !l->transposed, threads);
}

int64_t SNUG_KERNEL(linear_dx_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_linear_dx *l = &op->linear_dx;
    return matmul_workspace(program, l->dy, l->w, l->dx, l->transposed, threads);
}

int64_t SNUG_KERNEL(linear_dw_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_linear_dw *l = &op->linear_dw;
    const struct snug_tensor *dy = &program->tensors[l->transposed ? l->x : l->dy];
    const struct snug_tensor *x = &program->tensors[l->transposed ? l->dy : l->x];
    if (!op->linear_dw.dw) return 0;
    if (dy->dtype == SNUG_F32)
        return program->accumulates ? SNUG_KERNEL(weight_gradient_f32_workspace)(dy->cols, x->cols, threads) : 0;
    int64_t tokens = dy->extent == SNUG_EXTENT_FIXED ? dy->rows : program->capacity[dy->extent];
    return SNUG_KERNEL(weight_gradient_bf16_workspace)(tokens, dy->cols, x->cols);
}
