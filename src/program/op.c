/* SPDX-License-Identifier: Apache-2.0 */
#include "program/op.h"

const struct snug_op_info *snug_op_info(enum snug_op_kind kind) {
    static const struct snug_op_info *const infos[SNUG_OP_COUNT] = {
#define SNUG_INFO(KIND, name, member) [SNUG_OP_##KIND] = &snug_op_##name##_info,
        SNUG_OPS(SNUG_INFO)
#undef SNUG_INFO
    };
    return infos[kind];
}

/* Counted once: a search for a plan asks for millions of them. */
static uint8_t operand_counts[SNUG_OP_COUNT];
__attribute__((constructor)) static void count_operands(void) {
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        const struct snug_operand *operands = snug_op_info((enum snug_op_kind)kind)->operands;
        while (operand_counts[kind] < SNUG_OPERANDS_MOST && operands[operand_counts[kind]].name) operand_counts[kind]++;
    }
}

int snug_op_operands(const struct snug_op *op) { return operand_counts[op->kind]; }

int snug_op_operand(const struct snug_op *op, unsigned flags) {
    const struct snug_operand *operands = snug_op_info(op->kind)->operands;
    for (int k = snug_op_operands(op); k-- > 0;)
        if (operands[k].flags & flags) return k;
    return -1;
}

static bool has(const struct snug_op *op, int32_t tensor, bool read_only) {
    for (int k = 0; k < snug_op_operands(op); k++)
        if (op->operands[k] == tensor && snug_op_reads(op, k) == read_only) return true;
    return false;
}

bool snug_op_uses(const struct snug_op *op, int32_t tensor) { return tensor > 0 && has(op, tensor, true); }
bool snug_op_writes(const struct snug_op *op, int32_t tensor) { return tensor > 0 && has(op, tensor, false); }

bool snug_op_is_idle(const struct snug_op *op, const struct snug_moment *moment) {
    if (op->last && !moment->last) return true;
    /* The rest of an update, which all ranks do, and what it needs. */
    const bool flushed = op->crosses || (op->flushed && moment->pending);
    const bool rest = flushed && op->phase == SNUG_PHASE_FORWARD;
    if (moment->idle && !rest && !snug_op_is(op, SNUG_OP_COLLECTIVE)) return true;
    if (rest && !moment->pending) return true;
    if (op->unless == SNUG_UNLESS_FETCHED && moment->fetched) return true;
    if (op->unless == SNUG_UNLESS_UPDATED && moment->pending) return true;
    /* A gradient is cleared only in the step's first micro-batch; it is fetched only in the others. A second backward,
       in UPDATE, has one micro-batch. */
    const bool first = moment->first || op->phase == SNUG_PHASE_UPDATE;
    if (snug_op_is(op, SNUG_OP_CLEARS)) return op->first && !op->each && !first;
    return snug_op_is(op, SNUG_OP_FETCHES) && op->first && first;
}
