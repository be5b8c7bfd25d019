/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts. Optimizers and norms are elementwise, so large tensors are processed in parts: a staging buffer for each part
 * of an offloaded tensor, and views of the others. Parts begin at multiples of 16,384 elements, so that the norm's sums
 * have the same bits, and parts of 8-bit states at multiples of their blocks.
 */
#include "plan/moves.h"

enum {
    CUT = SNUG_NORM_CHUNK, /* the squares of so many elements are one term of the norm */
    MOST_PARTS = 8192,
};

struct parts {
    struct snug_program *program;
    struct snug_edits edits;
    const struct snug_offload *how;
    int64_t part; /* elements of a part */
};

static int64_t elements_of(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].rows * program->tensors[tensor].cols;
}

/* Whether op is elementwise, and its number of elements. */
static bool can_be_cut(const struct snug_program *program, const struct snug_op *op, int64_t *elements) {
    if (!snug_op_is(op, SNUG_OP_ELEMENTS)) return false;
    const int32_t whole = op->operands[snug_op_operand(op, SNUG_PARTED)];
    const bool lives = !snug_op_is(op, SNUG_OP_CLEARS) || program->tensors[whole].persistent;
    *elements = lives ? elements_of(program, whole) : 0;
    return *elements > 0;
}

/* Whether an operation that is not cut uses the whole tensor. */
static bool uses_whole(const struct parts *p, const struct snug_op *op, int32_t tensor) {
    int64_t elements;
    return !can_be_cut(p->program, op, &elements) && (snug_op_uses(op, tensor) || snug_op_writes(op, tensor));
}

/* Whether an operation shortly before operation index uses the whole tensor, which is then in the arena anyway; or, if
   an update crosses phases, shortly after it: the one that the update was moved to. */
static bool is_resident(const struct parts *p, size_t index, int32_t tensor) {
    const struct snug_op *ops = p->program->ops;
    const size_t most = (size_t)snug_moves_near(p->how);
    for (size_t i = index; i-- > 0 && index - i <= most && ops[i].phase == ops[index].phase;)
        if (uses_whole(p, &ops[i], tensor)) return true;
    for (size_t i = index + 1; ops[index].crosses && i - index <= most && i < p->program->op_count; i++)
        if (uses_whole(p, &ops[i], tensor)) return true;
    return false;
}

/* Elements first … first + count - 1 of tensor, which may be a rank's shard of another, as a tensor: a view, or a part
   with a staging buffer. */
static snug_status add_part(struct parts *p, int32_t tensor, bool view, int64_t first, int64_t count, int32_t *out) {
    const struct snug_tensor *whole = &p->program->tensors[tensor];
    return snug_program_tensor(p->program,
                               (struct snug_tensor){.dtype = whole->dtype,
                                                    .memory_class = SNUG_MEMORY_TEMPORARY,
                                                    .rows = 1,
                                                    .cols = count,
                                                    .layer = whole->layer,
                                                    .view = view,
                                                    .base = snug_moves_base(p->program, tensor),
                                                    .element = whole->view ? whole->element + first : first},
                               out, "part.%zu", p->program->tensor_count);
}

/* Inserts the part of operation index for elements first … first + count - 1 of a segment that begins at segment,
 * before operation `at`. */
static snug_status emit_part(struct parts *p, size_t at, size_t index, int64_t elements, int64_t segment, int64_t first,
                             int64_t count) {
    const struct snug_op *whole = &p->program->ops[index];
    struct snug_op op = *whole;
    const int64_t begin = segment + first;
    op.element = whole->element + begin;
    const bool updates = snug_op_is(whole, SNUG_OP_UPDATES);
    op.accumulate = begin > 0;
    if (updates) op.update.segments = 1;
    const int64_t length = updates ? elements / whole->update.segments : elements;
    const int64_t blocks = (length + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
    for (int k = 0; k < snug_op_operands(whole); k++) {
        const int32_t tensor = whole->operands[k];
        if (!tensor) continue;
        const int32_t base = snug_moves_base(p->program, tensor);
        const bool view = !p->program->tensors[base].offloaded || is_resident(p, index, base);
        int64_t from = begin, n = count;
        if (elements_of(p->program, tensor) != elements) {
            if (!(snug_op_info(whole->kind)->operands[k].flags & SNUG_BLOCK_STATE)) continue; /* clip, or the sums */
            from = segment / length * blocks + first / SNUG_QUANTISED_BLOCK;
            n = (count + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
        }
        RETURN_IF_ERROR(add_part(p, tensor, view, from, n, &op.operands[k]));
    }
    return snug_edits_insert(&p->edits, at, op);
}

/* Whether it needs staging buffers. */
static bool uses_offloaded(const struct parts *p, const struct snug_op *op) {
    if (op->on_host) return false;
    for (int k = 0; k < snug_op_operands(op); k++)
        if (p->program->tensors[snug_moves_base(p->program, op->operands[k])].offloaded) return true;
    return false;
}

static snug_status cut_one(struct parts *p, size_t at, size_t index) {
    const struct snug_op *op = &p->program->ops[index];
    const int64_t part = p->part;
    int64_t elements = 0;
    bool in_blocks = false;
    for (int k = 0; k < snug_op_operands(op); k++)
        in_blocks |= op->operands[k] && (snug_op_info(op->kind)->operands[k].flags & SNUG_BLOCK_STATE);
    if (!uses_offloaded(p, op) || !can_be_cut(p->program, op, &elements) || elements <= part)
        return snug_edits_insert(&p->edits, at, *op);
    const int64_t length = in_blocks ? elements / op->update.segments : elements;
    for (int64_t segment = 0; segment < elements; segment += length)
        for (int64_t first = 0; first < length; first += part)
            RETURN_IF_ERROR(
                emit_part(p, at, index, elements, segment, first, length - first < part ? length - first : part));
    return SNUG_OK;
}

/* Elements of a part: more than requested if a very large model would have more than MOST_PARTS parts, because placing
   takes time quadratic in their number. */
static int64_t part_length(const struct parts *p) {
    int64_t all = 0, elements;
    for (size_t i = 0; i < p->program->op_count; i++)
        if (can_be_cut(p->program, &p->program->ops[i], &elements)) all += elements;
    const int64_t part = all / MOST_PARTS > p->how->part ? all / MOST_PARTS : p->how->part;
    return part / CUT * CUT > 0 ? part / CUT * CUT : CUT;
}

/* The end of the series of operations that begins at first: those of one elementwise kind that follow each other, which
   are independent. Within it, those without offloaded tensors come first, so that a backend may do them at once. */
static size_t end_of_series(const struct snug_op *ops, size_t count, size_t first) {
    size_t end = first + 1;
    if (!snug_op_is(&ops[first], SNUG_OP_ELEMENTS)) return end;
    while (end < count && ops[end].kind == ops[first].kind && ops[end].phase == ops[first].phase) end++;
    return end;
}

static snug_status cut(struct parts *p) {
    const struct snug_op *ops = p->program->ops;
    const size_t count = p->program->op_count;
    p->part = part_length(p);
    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_series(ops, count, i);
        for (int offloaded = 0; offloaded < 2; offloaded++)
            for (size_t k = i; k < end; k++)
                if (uses_offloaded(p, &ops[k]) == offloaded) RETURN_IF_ERROR(cut_one(p, i, k));
        for (size_t k = i; k < end; k++) snug_edits_drop(&p->edits, k);
    }
    return SNUG_OK;
}

snug_status snug_cut_parts(struct snug_program *program, const struct snug_offload *how) {
    struct parts p = {.program = program, .how = how};
    snug_status status = snug_edits_open(program, &p.edits);
    if (status == SNUG_OK) status = cut(&p);
    return snug_edits_close(&p.edits, status);
}
