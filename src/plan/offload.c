/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors are in the backing store. */
#include <stdlib.h>

#include "plan/moves.h"

struct choice {
    struct snug_program *program;
    const struct snug_offload *how;
    int32_t begin[SNUG_PHASE_COUNT + 1];
    int32_t table; /* a word table that is chosen as such; else 0 */
};

static bool is_chosen(const struct choice *c, const struct snug_tensor *tensor, snug_memory_class memory_class) {
    const int64_t bytes = snug_tensor_bytes(c->program, tensor);
    return (c->how->classes >> memory_class & 1) && bytes >= c->how->least;
}

/* Weights that only PREPARE and the updates use, because all else reads their 16-bit copies: the same ones in the
   programs of a run, whether they train or not. */
static void choose_masters(struct choice *c) {
    for (size_t i = 0; i < c->program->tensor_count; i++) {
        struct snug_tensor *tensor = &c->program->tensors[i];
        tensor->offloaded |= tensor->master && snug_tensor_bytes(c->program, tensor) >= c->how->least;
    }
    for (size_t i = 0; i < c->program->op_count; i++) {
        const struct snug_op *op = &c->program->ops[i];
        if (op->phase == SNUG_PHASE_PREPARE || snug_op_is(op, SNUG_OP_UPDATES)) continue;
        for (int k = 0; k < snug_op_operands(op); k++)
            if (c->program->tensors[op->operands[k]].master) c->program->tensors[op->operands[k]].offloaded = false;
    }
}

enum { UNUSED = -1, NOT_CHOSEN = -2 };

/* Operation i uses a tensor; last: the operation that used it before, UNUSED or NOT_CHOSEN. */
static void use_transient(const struct choice *c, struct snug_tensor *tensor, int32_t *last, int32_t i) {
    const struct snug_op *op = &c->program->ops[i], *before = *last >= 0 ? &c->program->ops[*last] : NULL;
    const int32_t in_head = c->begin[SNUG_PHASE_HEAD + 1] - c->begin[SNUG_PHASE_HEAD];
    if (*last == NOT_CHOSEN) return;
    if (op->phase == SNUG_PHASE_HEAD || (!before && snug_op_is(op, SNUG_OP_CLEARS))) {
        tensor->offloaded = false;
        *last = NOT_CHOSEN;
        return;
    }
    const bool over_head = before && before->phase == SNUG_PHASE_FORWARD && op->phase > SNUG_PHASE_HEAD;
    tensor->offloaded |=
        before && before->phase != op->phase && i - *last - (over_head ? in_head : 0) > snug_moves_near(c->how);
    *last = i;
}

/* Transient tensors that several phases use, except those of the head: what forward writes and backward reads, and with
   two backward passes the gradients that are kept between them. Not if all uses are close together. */
static snug_status choose_transient(struct choice *c) {
    struct snug_tensor *tensors = c->program->tensors;
    int32_t *last; /* by tensor */
    RETURN_IF_ERROR(snug_alloc(c->program->ctx, c->program->tensor_count, sizeof *last, (void **)&last));
    for (size_t i = 0; i < c->program->tensor_count; i++) {
        const bool gradient = tensors[i].memory_class == SNUG_MEMORY_GRADIENTS;
        const bool chosen = is_chosen(c, &tensors[i], gradient ? SNUG_MEMORY_GRADIENTS : SNUG_MEMORY_ACTIVATIONS);
        last[i] = chosen && !tensors[i].persistent ? UNUSED : NOT_CHOSEN;
    }
    for (int32_t i = c->begin[SNUG_PHASE_FORWARD]; i < c->begin[SNUG_PHASE_COUNT]; i++) {
        const struct snug_op *op = &c->program->ops[i];
        for (int k = 0; k < snug_op_operands(op); k++)
            use_transient(c, &tensors[op->operands[k]], &last[op->operands[k]], i);
    }
    free(last);
    return SNUG_OK;
}

/* Whether the word table is frozen, and operations read rows of tokens of it alone. */
static bool is_fixed_table(const struct snug_program *program, int32_t word) {
    if (program->tensors[word].trainable) return false;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        for (int k = 0; k < snug_op_operands(op); k++) {
            const unsigned flags = snug_op_info(op->kind)->operands[k].flags;
            if (op->operands[k] == word && !(flags & SNUG_TABLE)) return false;
        }
    }
    return true;
}

static snug_status choose_table(struct choice *c) {
    const bool asked = c->how->classes & SNUG_OFFLOAD_TABLES;
    for (size_t i = 0; i < c->program->op_count && !c->table; i++) {
        if (c->program->ops[i].kind != SNUG_OP_EMBED) continue;
        const int32_t word = c->program->ops[i].embed.word;
        struct snug_tensor *table = &c->program->tensors[word];
        if (!(table->offloaded || asked) || snug_tensor_bytes(c->program, table) < c->how->least) continue;
        if (!is_fixed_table(c->program, word)) continue;
        table->offloaded = true;
        table->in_place = c->how->reads_rows;
        if (asked || table->in_place) c->table = word;
    }
    if (c->table || !asked) return SNUG_OK;
    return snug_fail(c->program->ctx, SNUG_E_USAGE,
                     "--offload embeddings: there is no frozen word table that the embeddings alone read: it is "
                     "trained, the output's weight, too, or too small; leave it out, or offload weights");
}

static bool is_of(const struct choice *c, const struct snug_tensor *tensor, snug_memory_class memory_class) {
    const bool table = tensor == &c->program->tensors[c->table];
    return tensor->offloaded && !table && tensor->persistent && tensor->memory_class == memory_class;
}

/* The first tensors of the class stay in the arena, up to their share of its bytes: the same weights in the programs of
   a run. The update needs them first, while the others are fetched. A table of which rows are read costs next to
   nothing where it is. */
static void keep_resident(struct choice *c, snug_memory_class memory_class) {
    int64_t all = 0;
    for (size_t i = 0; i < c->program->tensor_count; i++)
        if (is_of(c, &c->program->tensors[i], memory_class))
            all += snug_tensor_bytes(c->program, &c->program->tensors[i]);
    int64_t left = (int64_t)(c->how->resident * (double)all);
    for (size_t i = 0; i < c->program->tensor_count; i++) {
        struct snug_tensor *tensor = &c->program->tensors[i];
        const int64_t bytes = snug_tensor_bytes(c->program, tensor);
        if (!is_of(c, tensor, memory_class) || bytes > left) continue;
        tensor->offloaded = false;
        left -= bytes;
    }
}

snug_status snug_choose_offloaded(struct snug_program *program, const struct snug_offload *how) {
    struct choice c = {.program = program, .how = how};
    snug_program_phases(program, c.begin);
    for (size_t i = 0; i < program->tensor_count; i++) {
        struct snug_tensor *tensor = &program->tensors[i];
        const bool table = tensor->memory_class == SNUG_MEMORY_OPTIMIZER && !tensor->saved; /* of norms */
        if (tensor->persistent && !table) tensor->offloaded = is_chosen(&c, tensor, tensor->memory_class);
    }
    RETURN_IF_ERROR(choose_table(&c));
    RETURN_IF_ERROR(choose_transient(&c));
    if (how->classes & SNUG_OFFLOAD_MASTERS && !(how->classes >> SNUG_MEMORY_WEIGHTS & 1)) choose_masters(&c);
    for (int i = SNUG_MEMORY_WEIGHTS; i < SNUG_MEMORY_ACTIVATIONS; i++) keep_resident(&c, (snug_memory_class)i);
    return SNUG_OK;
}
