/* SPDX-License-Identifier: Apache-2.0 */
/* LINEAR, LINEAR_DX, LINEAR_DW. */
#include "backend/cpu/linear.h"

static snug_status run_rows(struct snug_run *run, const struct snug_op *op, const struct snug_rows_product *p) {
    enum snug_dtype a = snug_run_dtype(run, op->in[0]), b = snug_run_dtype(run, op->in[1]);
    if (a == SNUG_F32 && p->y_dtype == SNUG_F32) return SNUG_KERNEL(rows_product_f32)(run, p);
    if (a == SNUG_BF16 && b == SNUG_BF16) return SNUG_KERNEL(rows_product_bf16)(run, p);
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "no product of tensors \"%s\" (%s) and \"%s\" (%s) to %s",
                     run->program->tensors[op->in[0]].name, snug_dtype_name(a), run->program->tensors[op->in[1]].name,
                     snug_dtype_name(b), snug_dtype_name(p->y_dtype));
}

snug_status SNUG_KERNEL(linear)(struct snug_run *run, const struct snug_op *op) {
    return run_rows(run, op,
                    &(struct snug_rows_product){.y = snug_run_data(run, op->out[0]),
                                                .y_dtype = snug_run_dtype(run, op->out[0]),
                                                .a = snug_run_data(run, op->in[0]),
                                                .b = snug_run_data(run, op->in[1]),
                                                .b_dtype = snug_run_dtype(run, op->in[1]),
                                                .bias = snug_run_data(run, op->in[2]),
                                                .m = snug_run_rows(run, op->in[0]),
                                                .n = snug_run_cols(run, op->out[0]),
                                                .k = snug_run_cols(run, op->in[0]),
                                                .turn_b = true});
}

snug_status SNUG_KERNEL(linear_dx)(struct snug_run *run, const struct snug_op *op) {
    return run_rows(run, op,
                    &(struct snug_rows_product){.y = snug_run_data(run, op->out[0]),
                                                .y_dtype = snug_run_dtype(run, op->out[0]),
                                                .a = snug_run_data(run, op->in[0]),
                                                .b = snug_run_data(run, op->in[1]),
                                                .b_dtype = snug_run_dtype(run, op->in[1]),
                                                .m = snug_run_rows(run, op->in[0]),
                                                .n = snug_run_cols(run, op->out[0]),
                                                .k = snug_run_cols(run, op->in[0]),
                                                .add = op->accumulate});
}

snug_status SNUG_KERNEL(linear_dw)(struct snug_run *run, const struct snug_op *op) {
    enum snug_dtype dy = snug_run_dtype(run, op->in[0]), x = snug_run_dtype(run, op->in[1]);
    struct snug_weight_product p = {.dw = snug_run_data(run, op->out[0]),
                                    .db = snug_run_data(run, op->out[1]),
                                    .dy = snug_run_data(run, op->in[0]),
                                    .x = snug_run_data(run, op->in[1]),
                                    .t = snug_run_rows(run, op->in[0]),
                                    .n = snug_run_cols(run, op->in[0]),
                                    .k = snug_run_cols(run, op->in[1]),
                                    .add = !snug_run_overwrites(run, op)};
    if (dy == SNUG_F32 && x == SNUG_F32) return SNUG_KERNEL(weight_product_f32)(run, &p);
    if (dy == SNUG_BF16 && x == SNUG_BF16) return SNUG_KERNEL(weight_product_bf16)(run, &p);
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "no gradient of \"%s\" from \"%s\" (%s) and \"%s\" (%s)",
                     run->program->tensors[op->out[0]].name, run->program->tensors[op->in[0]].name, snug_dtype_name(dy),
                     run->program->tensors[op->in[1]].name, snug_dtype_name(x));
}

int64_t SNUG_KERNEL(linear_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_tensor *a = &program->tensors[op->in[0]], *b = &program->tensors[op->in[1]];
    const int64_t n = program->tensors[op->out[0]].cols; /* of a product of rows */
    const bool rows = op->kind != SNUG_OP_LINEAR_DW, wide = a->dtype == SNUG_F32;
    if (rows && wide)
        return SNUG_KERNEL(rows_product_f32_workspace)(n, a->cols, op->kind == SNUG_OP_LINEAR, b->dtype, threads);
    if (rows) return SNUG_KERNEL(rows_product_bf16_workspace)(n, a->cols);
    if (wide) return 0;
    int64_t tokens = a->extent == SNUG_EXTENT_FIXED ? a->rows : program->capacity[a->extent];
    return SNUG_KERNEL(weight_product_bf16_workspace)(tokens, a->cols, b->cols);
}
