/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the seconds of operations on this machine, and of a step of a program. */
#include <limits.h>
#include <math.h>

#include "plan/rates.h"

int32_t snug_operand_types(const struct snug_program *program, const struct snug_op *op) {
    const int operands = snug_op_operands(op);
    int32_t types = 0;
    int inputs = 0, outputs = 0;
    for (int k = 0; k < operands; k++) {
        const bool input = snug_op_reads(op, k);
        const int bit = input ? inputs++ : 2 + outputs++;
        const bool counts = input ? bit < 2 : bit < 3; /* the first two inputs and the first output */
        if (counts && program->tensors[op->operands[k]].dtype == SNUG_BF16) types |= 1 << bit;
    }
    return types;
}

/* The rate of the same kind if it was measured, the most similar variant first; else that of a copy, which only moves
 * bytes. */
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
    /* snug_op_cost() assumes sequences of equal length: where pairs of tokens matter, their number is chosen to match
       the load's pairs. */
    const double tokens = load->tokens;
    const bool counts = load->pairs > 0 && snug_op_is(op, SNUG_OP_PAIRS);
    const double sequences = counts ? tokens * tokens / load->pairs : load->sequences;
    const struct snug_cost cost = snug_op_cost(program, op, tokens, sequences, rows);
    struct snug_estimate estimate = {.flops = cost.flops, .bytes = cost.bytes};
    const struct snug_rate *rate =
        rates ? find_rate(rates, op->kind, snug_operand_types(program, op), op->p > 0) : NULL;
    if (rate) estimate.seconds = rate->call + rate->flop * estimate.flops + rate->byte * estimate.bytes;
    return estimate;
}

enum snug_side snug_side_of(const struct snug_op *op, bool after_loss) {
    if (op->phase == SNUG_PHASE_CLIP || op->phase == SNUG_PHASE_UPDATE) return SNUG_SIDE_UPDATE;
    return op->phase == SNUG_PHASE_BACKWARD || (op->phase == SNUG_PHASE_HEAD && after_loss) ? SNUG_SIDE_BACKWARD
                                                                                            : SNUG_SIDE_FORWARD;
}

static void add(struct snug_estimate *sum, double times, const struct snug_estimate *one) {
    sum->flops += times * one->flops;
    sum->bytes += times * one->bytes;
    sum->seconds += times * one->seconds;
}

struct snug_step_estimate snug_estimate_parts(const struct snug_rates *rates, const struct snug_program *program,
                                              const struct snug_load *load) {
    const double size = (double)program->capacity[SNUG_EXTENT_ROWS];
    const double chunks = load->rows > size ? ceil(load->rows / size) : 1;
    struct snug_step_estimate sum = {0};
    bool after_loss = false;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->phase == SNUG_PHASE_PREPARE) continue;               /* not part of a step */
        if (op->crosses && op->phase == SNUG_PHASE_UPDATE) continue; /* BACKWARD has fetched it */
        const bool head = op->phase == SNUG_PHASE_HEAD;
        /* Gradients are cleared once; the update follows the last micro-batch, and its copies run once. */
        const bool once = op->crosses || op->phase == SNUG_PHASE_CLIP || op->phase == SNUG_PHASE_UPDATE ||
                          (snug_op_is(op, SNUG_OP_CLEARS) && op->first);
        const double times = once ? 1 : load->micro_batches * (head ? chunks : 1);
        const struct snug_estimate one =
            snug_estimate_op(rates, program, op, load, head ? load->rows / chunks : load->rows);
        add(&sum.total, times, &one);
        add(&sum.parts[snug_side_of(op, after_loss)][snug_op_info(op->kind)->group], times, &one);
        after_loss |= op->kind == SNUG_OP_LOSS;
    }
    return sum;
}
