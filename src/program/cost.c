/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"

double snug_cost_elements(const struct snug_cost_view *view, int32_t tensor) {
    const struct snug_tensor *t = &view->program->tensors[tensor];
    const double extent[SNUG_EXTENT_COUNT] = {(double)t->rows, view->tokens, view->sequences, view->rows};
    return extent[t->extent] * (double)t->cols;
}

double snug_cost_width(const struct snug_cost_view *view, int32_t tensor) {
    return (double)snug_dtype_size(view->program->tensors[tensor].dtype);
}

double snug_cost_columns(const struct snug_cost_view *view, int32_t tensor) {
    return (double)view->program->tensors[tensor].cols;
}

double snug_cost_pairs(const struct snug_cost_view *view, int32_t window) {
    const double length = view->tokens / view->sequences;
    if (window == 0 || length <= window + 1) return view->tokens * length;
    return view->sequences * (length * (2 * window + 1) - (double)window * (window + 1));
}

struct snug_cost snug_op_cost(const struct snug_program *program, const struct snug_op *op, double tokens,
                              double sequences, double rows) {
    const struct snug_op_info *info = snug_op_info(op->kind);
    struct snug_cost_view view = {program, tokens, sequences, rows, {0, 0}};
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands; k++) {
        const bool twice = (info->flags & SNUG_OP_UPDATES) && info->operands[k].access == SNUG_MODIFY;
        if (op->operands[k])
            view.cost.bytes +=
                (twice ? 2 : 1) * snug_cost_elements(&view, op->operands[k]) * snug_cost_width(&view, op->operands[k]);
    }
    info->cost(&view, op);
    return view.cost;
}
