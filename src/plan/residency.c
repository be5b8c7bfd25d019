/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residency: while operations use an offloaded tensor, the arena has a copy in a staging buffer, which is an ordinary
 * tensor. Operations that use the same tensor with few operations in between share a buffer. Such a residency interval
 * is within one phase, so that phases can run separately. It begins with a FETCH, if an operation needs what the tensor
 * had before, and ends with a STORE, if an operation writes it.
 */
#include <stdlib.h>

#include "plan/moves.h"

/* The operations from first to last use the staging buffer instead of the backing tensor. */
struct residency {
    int32_t backing, staging;
    int64_t element; /* of backing, at which staging begins */
    enum snug_phase phase;
    int32_t first, last, last_write; /* last_write: -1 if none */
    bool fetched, unless_first;      /* unless_first: the step's first micro-batch overwrites it */
    bool used_last, written_last;    /* only by operations of a step's last micro-batch */
    bool used_late, written_late;    /* only by updates that cross phases */
    bool unless_updated;             /* fetched, unless such an update overwrites it */
    bool for_late;                   /* fetched for such an update */
    bool followed;                   /* another interval follows */
};

struct residencies {
    struct snug_moves *moves;
    struct snug_program *program;
    size_t tensors; /* before large operations are cut; parts and their views come after these */
    int32_t *open;  /* by tensor: its current residency interval, or -1 */
    struct residency *items;
    size_t count, capacity;
};

/* ---- intervals ------------------------------------------------------------------------------------------------ */

/* The tensor whose staging buffer replaces tensor: an offloaded tensor or a part of one; -1 if there is none. */
static int32_t item_of(const struct residencies *r, int32_t tensor) {
    if (!tensor) return -1;
    const int32_t item = snug_moves_base(r->program, tensor);
    const bool part = (size_t)item >= r->tensors && !r->program->tensors[tensor].view;
    const struct snug_tensor *t = &r->program->tensors[item];
    return part || (t->offloaded && !t->in_place) ? item : -1;
}

/* always: op needs the previous contents of item. unless_first: only if it does not overwrite gradients. */
static void needs(const struct residencies *r, const struct snug_op *op, int32_t item, bool *always,
                  bool *unless_first) {
    *always = *unless_first = false;
    for (int k = 0; k < snug_op_operands(op); k++) {
        if (item_of(r, op->operands[k]) != item) continue;
        const enum snug_access access = snug_op_info(op->kind)->operands[k].access;
        /* An update that fp16 skips writes nothing. */
        const bool keeps = r->program->scaler && snug_op_is(op, SNUG_OP_UPDATES);
        if (access == SNUG_READ || access == SNUG_MODIFY || keeps)
            *always = true;
        else if (access == SNUG_GRADIENT)
            *(op->first ? unless_first : always) = true;
        else if (snug_op_is(op, SNUG_OP_CLEARS)) /* later micro-batches do not clear it */
            *unless_first |= op->first;
    }
}

static bool is_over(const struct residencies *r, const struct residency *residency, const struct snug_op *op,
                    int32_t index) {
    if (residency->phase != op->phase) return true;
    const bool held = !r->program->tensors[residency->backing].persistent || op->phase == SNUG_PHASE_HEAD;
    return !held && index - residency->last > snug_moves_near(r->moves->how);
}

/* A part is its own staging buffer. */
static snug_status add_staging(struct residencies *r, int32_t item, int32_t *out) {
    const struct snug_tensor *tensor = &r->program->tensors[item];
    struct snug_tensor like = *tensor;
    *out = item;
    if ((size_t)item >= r->tensors) return SNUG_OK;
    like.memory_class = SNUG_MEMORY_TEMPORARY;
    like.persistent = like.offloaded = like.saved = false;
    if (tensor->shards.chunk) { /* this rank's elements, which its moves then have */
        int64_t first;
        like.rows = 1;
        like.cols = snug_tensor_stored(r->program, tensor, &first);
        like.shards.chunk = 0;
    }
    return snug_program_tensor(r->program, like, out, "staging.%zu", r->program->tensor_count);
}

/* Begins a residency interval of item at operation index. */
static snug_status begin_residency(struct residencies *r, int32_t item, int32_t index) {
    const struct snug_op *op = &r->program->ops[index];
    const bool part = (size_t)item >= r->tensors;
    const struct snug_tensor *tensor = &r->program->tensors[item];
    struct residency residency = {.backing = part ? tensor->base : item,
                                  .element = part ? tensor->element : 0,
                                  .phase = op->phase,
                                  .first = index,
                                  .last_write = -1,
                                  .used_last = true,
                                  .written_last = true,
                                  .used_late = true,
                                  .written_late = true};
    bool always;
    needs(r, op, item, &always, &residency.unless_first);
    if (always) residency.unless_first = false;
    residency.fetched = always || residency.unless_first;
    residency.for_late = residency.fetched && op->crosses;
    if (!r->program->tensors[residency.backing].persistent) { /* its first use creates it */
        residency.fetched = r->open[residency.backing] >= 0;
        residency.unless_first = false;
        if (residency.fetched) r->items[r->open[residency.backing]].followed = true;
    }
    RETURN_IF_ERROR(add_staging(r, item, &residency.staging));
    RETURN_IF_ERROR(snug_grow(r->program->ctx, (void **)&r->items, &r->capacity, r->count + 1, sizeof *r->items));
    r->open[item] = (int32_t)r->count;
    r->items[r->count++] = residency;
    return SNUG_OK;
}

/* Replaces the offloaded operands of operation index by their staging buffers. */
static snug_status use(struct residencies *r, int32_t index) {
    const struct snug_op before = r->program->ops[index]; /* needs() reads the unchanged operation */
    struct snug_op op = before;
    for (int k = 0; k < snug_op_operands(&op) && !op.on_host; k++) {
        int32_t *number = &op.operands[k];
        const int32_t item = item_of(r, *number);
        if (item < 0) continue;
        if (r->open[item] < 0 || is_over(r, &r->items[r->open[item]], &before, index))
            RETURN_IF_ERROR(begin_residency(r, item, index));
        struct residency *residency = &r->items[r->open[item]];
        residency->last = index;
        residency->used_last &= before.last;
        residency->used_late &= before.crosses;
        if (!snug_op_reads(&op, k)) {
            residency->last_write = index;
            residency->written_last &= before.last;
            residency->written_late &= before.crosses;
        } else if (!before.crosses && residency->written_late && !residency->fetched) {
            residency->fetched = residency->unless_updated = true; /* the update does not run in every micro-batch */
        }
        if (r->program->tensors[*number].view)
            r->program->tensors[*number].base = residency->staging;
        else
            *number = residency->staging;
    }
    r->program->ops[index] = op;
    return SNUG_OK;
}

/* ---- their moves ---------------------------------------------------------------------------------------------- */

static struct snug_op move_of(const struct residencies *r, const struct residency *s, enum snug_op_kind kind,
                              enum snug_phase phase) {
    const struct snug_tensor *staging = &r->program->tensors[s->staging];
    return (struct snug_op){
        .kind = kind, .phase = phase, .part = staging->part, .layer = staging->layer, .element = s->element};
}

/* HEAD runs several times, so its tensors are fetched at the end of FORWARD and stored at the beginning of BACKWARD. */
static snug_status add_moves(struct residencies *r, const struct residency *s) {
    const bool head = s->phase == SNUG_PHASE_HEAD, persistent = r->program->tensors[s->backing].persistent;
    const int32_t *begin = r->moves->begin;
    if (s->fetched) {
        struct snug_op op = move_of(r, s, SNUG_OP_FETCH, head ? SNUG_PHASE_FORWARD : s->phase);
        const int32_t first = head ? begin[SNUG_PHASE_HEAD] : s->first;
        op.fetch = (struct snug_fetch){.backing = s->backing, .x = s->staging};
        op.last = s->used_last;
        op.first = s->unless_first;
        op.crosses = s->used_late;
        op.flushed = s->for_late && !s->used_late;
        op.unless = s->unless_updated ? SNUG_UNLESS_UPDATED : SNUG_UNLESS_NEVER;
        RETURN_IF_ERROR(snug_moves_add(r->moves, op, s->staging, s->backing, first, first));
    }
    if (s->last_write < 0 || (!persistent && !s->followed)) return SNUG_OK;
    struct snug_op op = move_of(r, s, SNUG_OP_STORE, head ? SNUG_PHASE_BACKWARD : s->phase);
    const int32_t written = head ? begin[SNUG_PHASE_BACKWARD] : s->last_write + 1;
    op.store = (struct snug_store){.x = s->staging, .backing = s->backing};
    op.last = s->written_last;
    op.crosses = s->written_late;
    return snug_moves_add(r->moves, op, s->staging, s->backing, written, head ? written : s->last + 1);
}

static snug_status find(struct residencies *r) {
    const size_t tensors = r->program->tensor_count;
    RETURN_IF_ERROR(snug_edits_alloc(&r->moves->edits, tensors, sizeof *r->open, (void **)&r->open));
    for (size_t i = 0; i < tensors; i++) r->open[i] = -1;
    for (size_t i = 0; i < r->program->op_count; i++) RETURN_IF_ERROR(use(r, (int32_t)i));
    for (size_t i = 0; i < r->count; i++) RETURN_IF_ERROR(add_moves(r, &r->items[i]));
    return SNUG_OK;
}

snug_status snug_find_residencies(struct snug_moves *moves, size_t tensors) {
    struct residencies r = {.moves = moves, .program = moves->program, .tensors = tensors};
    const snug_status status = find(&r);
    free(r.items);
    return status;
}
