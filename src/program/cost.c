/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"

double snug_cost_elements(const struct snug_cost_view *view, int32_t tensor) {
    const struct snug_tensor *t = &view->program->tensors[tensor];
    const double extent[SNUG_EXTENT_COUNT] = {(double)t->rows, view->tokens, view->sequences, view->rows,
                                              (double)view->program->capacity[SNUG_EXTENT_STEP]};
    return extent[t->extent] * (double)t->cols;
}

double snug_cost_width(const struct snug_cost_view *view, int32_t tensor) {
    return (double)snug_dtype_size(view->program->tensors[tensor].dtype);
}

double snug_cost_columns(const struct snug_cost_view *view, int32_t tensor) {
    return (double)view->program->tensors[tensor].cols;
}

/* Pairs of a query and the keys before it, or after it, of a sequence. */
static double pairs_of_side(double length, int32_t reach) {
    const double most = reach < 0 || reach > length - 1 ? length - 1 : reach;
    return length * most - most * (most + 1) / 2;
}

double snug_cost_pairs(const struct snug_cost_view *view, int32_t before, int32_t after) {
    const double length = view->tokens / view->sequences;
    return view->sequences * (length + pairs_of_side(length, before) + pairs_of_side(length, after));
}

/* Whether an operand before k has the same tensor and access: columns of one tensor. */
static bool is_repeated(const struct snug_op *op, int k) {
    for (int j = 0; j < k; j++)
        if (op->operands[j] == op->operands[k] && snug_op_reads(op, j) == snug_op_reads(op, k)) return true;
    return false;
}

struct snug_cost snug_op_cost(const struct snug_program *program, const struct snug_op *op, double tokens,
                              double sequences, double rows) {
    const struct snug_op_info *info = snug_op_info(op->kind);
    struct snug_cost_view view = {program, tokens, sequences, rows, {0, 0}};
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands; k++) {
        const bool twice = (info->flags & SNUG_OP_UPDATES) && info->operands[k].access == SNUG_MODIFY;
        if (op->operands[k] && !is_repeated(op, k))
            view.cost.bytes +=
                (twice ? 2 : 1) * snug_cost_elements(&view, op->operands[k]) * snug_cost_width(&view, op->operands[k]);
    }
    if (info->cost) info->cost(&view, op);
    return view.cost;
}
