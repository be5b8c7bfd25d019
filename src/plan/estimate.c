/* SPDX-License-Identifier: Apache-2.0 */
/* What operations take on this machine, and a step of a program with them. */
#include <limits.h>
#include <math.h>

#include "plan/rates.h"

int32_t snug_operand_types(const struct snug_program *program, const struct snug_op *op) {
    const int32_t operands[] = {op->in[0], op->in[1], op->out[0]};
    int32_t types = 0;
    for (int i = 0; i < 3; i++)
        if (operands[i] >= 0 && program->tensors[operands[i]].dtype == SNUG_BF16) types |= 1 << i;
    return types;
}

/* Of the same kind if it was measured, the nearest variant first; else of a copy, which only moves bytes. */
static const struct snug_rate *find_rate(const struct snug_rates *rates, enum snug_op_kind kind, int32_t types,
                                         bool dropout) {
    const struct snug_rate *best = NULL;
    int least = INT_MAX;
    for (size_t i = 0; i < rates->count; i++) {
        const struct snug_rate *rate = &rates->items[i];
        if (rate->kind != kind) continue;
        const int distance = 2 * __builtin_popcount((unsigned)(rate->types ^ types)) + (rate->dropout != dropout);
        if (distance < least) {
            best = rate;
            least = distance;
        }
    }
    return best || kind == SNUG_OP_GATHER ? best : find_rate(rates, SNUG_OP_GATHER, types, false);
}

struct snug_estimate snug_estimate_op(const struct snug_rates *rates, const struct snug_program *program,
                                      const struct snug_op *op, const struct snug_load *load, double rows) {
    const double tokens = load->tokens, sequences = load->sequences;
    const struct snug_cost cost = snug_op_cost(program, op, tokens, sequences, rows);
    struct snug_estimate estimate = {.flops = cost.flops, .bytes = cost.bytes};
    /* snug_op_cost() takes all sequences as equally long. */
    if (op->kind == SNUG_OP_ATTENTION || op->kind == SNUG_OP_ATTENTION_BACKWARD)
        estimate.flops *= load->pairs * sequences / (tokens * tokens);
    const struct snug_rate *rate =
        rates ? find_rate(rates, op->kind, snug_operand_types(program, op), op->p > 0) : NULL;
    if (rate) estimate.seconds = rate->call + rate->flop * estimate.flops + rate->byte * estimate.bytes;
    return estimate;
}

struct snug_estimate snug_estimate_step(const struct snug_rates *rates, const struct snug_program *program,
                                        const struct snug_load *load) {
    const double size = (double)program->capacity[SNUG_EXTENT_ROWS];
    const double chunks = load->rows > size ? ceil(load->rows / size) : 1;
    struct snug_estimate sum = {0};
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->phase == SNUG_PHASE_PREPARE || op->phase == SNUG_PHASE_SETTLE) continue; /* no part of a step */
        const bool head = op->phase == SNUG_PHASE_HEAD;
        /* Gradients are cleared once; the update follows the last micro-batch. */
        const bool once =
            op->phase == SNUG_PHASE_CLIP || op->phase == SNUG_PHASE_UPDATE || (op->kind == SNUG_OP_FILL && op->first);
        const double times = once ? 1 : load->micro_batches * (head ? chunks : 1);
        const struct snug_estimate one =
            snug_estimate_op(rates, program, op, load, head ? load->rows / chunks : load->rows);
        sum.flops += times * one.flops;
        sum.bytes += times * one.bytes;
        sum.seconds += times * one.seconds;
    }
    return sum;
}
