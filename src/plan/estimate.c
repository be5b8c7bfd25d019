/* SPDX-License-Identifier: Apache-2.0 */
/* What operations take on this machine, and a step of a program with them. */
#include <math.h>

#include "plan/rates.h"

static bool touches_bf16(const struct snug_program *program, const struct snug_op *op) {
    for (int k = 0; k < SNUG_OP_INPUTS + SNUG_OP_OUTPUTS; k++) {
        const int32_t number = k < SNUG_OP_INPUTS ? op->in[k] : op->out[k - SNUG_OP_INPUTS];
        if (number >= 0 && program->tensors[number].dtype == SNUG_BF16) return true;
    }
    return false;
}

/* Of the same kind if it was measured, the nearest variant first; else of a copy, which only moves bytes. */
static const struct snug_rate *find_rate(const struct snug_rates *rates, enum snug_op_kind kind, bool bf16,
                                         bool dropout) {
    const struct snug_rate *best = NULL;
    int least = 4;
    for (size_t i = 0; i < rates->count; i++) {
        const struct snug_rate *rate = &rates->items[i];
        if (rate->kind != kind) continue;
        const int distance = 2 * (rate->bf16 != bf16) + (rate->dropout != dropout);
        if (distance < least) {
            best = rate;
            least = distance;
        }
    }
    return best || kind == SNUG_OP_GATHER ? best : find_rate(rates, SNUG_OP_GATHER, bf16, false);
}

struct snug_estimate snug_estimate_op(const struct snug_rates *rates, const struct snug_program *program,
                                      const struct snug_op *op, const struct snug_load *load, double rows) {
    const double tokens = load->tokens, sequences = load->sequences;
    const struct snug_cost cost = snug_op_cost(program, op, tokens, sequences, rows);
    struct snug_estimate estimate = {.flops = cost.flops, .bytes = cost.bytes};
    /* snug_op_cost() takes all sequences as equally long. */
    if ((op->kind == SNUG_OP_ATTENTION || op->kind == SNUG_OP_ATTENTION_BACKWARD) && tokens > 0)
        estimate.flops *= load->pairs * sequences / (tokens * tokens);
    const struct snug_rate *rate = rates ? find_rate(rates, op->kind, touches_bf16(program, op), op->p > 0) : NULL;
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
        if (op->phase == SNUG_PHASE_PREPARE) continue;
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
