/* SPDX-License-Identifier: Apache-2.0 */
/* LINEAR, LINEAR_DX, LINEAR_DW. */
#include <string.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/vec.h"

/* Columns of a tensor: *data is that of their first element. */
struct part {
    int32_t tensor;
    struct snug_column_range of;
};

static int64_t find_part(const struct snug_run *run, struct part part, const void **data) {
    *data = (const uint8_t *)snug_run_data(run, part.tensor) +
            part.of.first * snug_dtype_size(snug_run_dtype(run, part.tensor));
    return snug_range_columns(part.of, snug_run_cols(run, part.tensor));
}

/* y = x w + bias, or += if add; transpose_w: w is stored as [columns of y, columns of x]. */
static snug_status run_matmul(struct snug_run *run, struct part of_y, struct part of_x, int32_t w, const float *bias,
                              bool transpose_w, bool add) {
    const int32_t x = of_x.tensor, y = of_y.tensor;
    const void *to;
    struct snug_matmul p = {.y_dtype = snug_run_dtype(run, y),
                            .b = snug_run_data(run, w),
                            .b_dtype = snug_run_dtype(run, w),
                            .bias = bias,
                            .m = snug_run_rows(run, x),
                            .lda = snug_run_cols(run, x),
                            .ldy = snug_run_cols(run, y),
                            .transpose_b = transpose_w,
                            .add = add};
    p.k = find_part(run, of_x, &p.a);
    p.n = find_part(run, of_y, &to);
    p.y = (void *)to;
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
    return run_matmul(run, (struct part){.tensor = l->y}, (struct part){l->x, l->of_x}, l->w, snug_run_data(run, l->b),
                      !l->transposed, l->addend);
}

snug_status SNUG_KERNEL(linear_dx)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_linear_dx *l = &op->linear_dx;
    return run_matmul(run, (struct part){l->dx, l->of_dx}, (struct part){.tensor = l->dy}, l->w, NULL, l->transposed,
                      op->accumulate);
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
                                     .t = snug_run_rows(run, l->dy),
                                     .n = snug_run_cols(run, l->dy),
                                     .lddy = snug_run_cols(run, l->dy),
                                     .ldx = snug_run_cols(run, l->x),
                                     .add = !snug_run_overwrites(run, op),
                                     .apart = run->program->accumulates && run->chunk == 0};
    p.k = find_part(run, (struct part){l->x, l->of_x}, &p.x);
    if (p.db && (!p.dw || l->transposed)) sum_columns(run, &p, dy);
    if (!p.dw) return SNUG_OK;
    if (l->transposed) { /* dw^T = x^T dy */
        const struct snug_weight_gradient q = p;
        p.dy = q.x, p.x = q.dy;
        p.n = q.k, p.k = q.n;
        p.lddy = q.ldx, p.ldx = q.lddy;
        p.db = NULL;
    }
    if (dy == SNUG_F32 && x == SNUG_F32) return SNUG_KERNEL(weight_gradient_f32)(run, &p);
    if (dy == SNUG_BF16 && x == SNUG_BF16) return SNUG_KERNEL(weight_gradient_bf16)(run, &p);
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "no gradient of \"%s\" from \"%s\" (%s) and \"%s\" (%s)",
                     run->program->tensors[op->linear_dw.dw].name, run->program->tensors[op->linear_dw.dy].name,
                     snug_dtype_name(dy), run->program->tensors[op->linear_dw.x].name, snug_dtype_name(x));
}

static int64_t columns_of(const struct snug_program *program, struct part part) {
    return snug_range_columns(part.of, program->tensors[part.tensor].cols);
}

static int64_t matmul_workspace(const struct snug_program *program, struct part x, int32_t w, struct part y,
                                bool transpose_w, int threads) {
    const int64_t n = columns_of(program, y), k = columns_of(program, x);
    if (program->tensors[x.tensor].dtype != SNUG_F32) return SNUG_KERNEL(matmul_bf16_workspace)(n, k);
    return SNUG_KERNEL(matmul_f32_workspace)(n, k, transpose_w, program->tensors[w].dtype, threads);
}

int64_t SNUG_KERNEL(linear_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_linear *l = &op->linear;
    return matmul_workspace(program, (struct part){l->x, l->of_x}, l->w, (struct part){.tensor = l->y}, !l->transposed,
                            threads);
}

int64_t SNUG_KERNEL(linear_dx_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_linear_dx *l = &op->linear_dx;
    return matmul_workspace(program, (struct part){.tensor = l->dy}, l->w, (struct part){l->dx, l->of_dx},
                            l->transposed, threads);
}

int64_t SNUG_KERNEL(linear_dw_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_linear_dw *l = &op->linear_dw;
    const struct snug_tensor *dy = &program->tensors[l->dy];
    const int64_t inputs = columns_of(program, (struct part){l->x, l->of_x});
    const int64_t n = l->transposed ? inputs : dy->cols, k = l->transposed ? dy->cols : inputs;
    if (!op->linear_dw.dw) return 0;
    if (dy->dtype == SNUG_F32)
        return program->accumulates ? SNUG_KERNEL(weight_gradient_f32_workspace)(n, k, threads) : 0;
    int64_t tokens = dy->extent == SNUG_EXTENT_FIXED ? dy->rows : program->capacity[dy->extent];
    return SNUG_KERNEL(weight_gradient_bf16_workspace)(tokens, n, k);
}
