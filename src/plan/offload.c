/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offloading: an offloaded tensor is in the backing store. While operations use it, the arena holds a copy in a staging
 * buffer.
 *
 * Operations that use the same tensor with few operations in between share a staging buffer, which is an ordinary
 * tensor. FETCH starts the copy from the backing store some operations ahead; WAIT is inserted before the first use.
 * STORE starts the copy back after the last write; a second WAIT, some operations later, ends the buffer's lifetime. So
 * the place stage knows exactly how long a buffer occupies its bytes, copies in flight included.
 *
 * Optimizers and norms are elementwise, so large tensors are processed in parts: a staging buffer for each part of an
 * offloaded tensor, and views of the others. Parts begin at multiples of 16,384 elements, so that the norm's sums have
 * the same bits, and parts of 8-bit states at multiples of their blocks.
 */
#include <stdlib.h>

#include "plan/update.h"

enum {
    CUT = 1 << 14, /* see SQUARED_NORM in backend/cpu */
    MOST_PARTS = 8192,
};

/* A residency interval: the operations from first to last use the staging buffer instead of the backing tensor. */
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
    int32_t previous;                /* the last residency interval before it with the same backing, or -1 */
    int32_t stored;                  /* the insertion of the WAIT that ends its STORE, or -1 */
};

/* An operation to insert before operation `at` of the list. */
struct insertion {
    int32_t at;
    enum snug_phase phase;
    int order;
    struct snug_op op;
};
enum { ORDER_STORE, ORDER_STORED, ORDER_FETCH, ORDER_FETCHED };

struct offload {
    struct snug_program *program;
    const struct snug_offload *how;
    int64_t part;   /* elements of a part */
    size_t tensors; /* before the stage; parts and views come after these */
    int32_t begin[SNUG_PHASE_COUNT + 1];
    const struct snug_op *uncut; /* the operations before large ones are cut */
    size_t uncut_count;
    int32_t *open;   /* by tensor: its current residency interval, or -1 */
    int32_t *latest; /* by backing tensor: its latest one, or -1 */
    struct residency *residencies;
    size_t residency_count, residency_capacity;
    struct insertion *insertions;
    size_t insertion_count, insertion_capacity;
};

static int64_t elements_of(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].rows * program->tensors[tensor].cols;
}

/* The tensor of which another is a view; without a view itself. */
static int32_t base_of(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].view ? program->tensors[tensor].base : tensor;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* Where each phase begins in the sorted list. */
static void find_phases(struct offload *o) {
    size_t i = 0;
    for (int phase = 0; phase <= SNUG_PHASE_COUNT; phase++) {
        while (i < o->program->op_count && (int)o->program->ops[i].phase < phase) i++;
        o->begin[phase] = (int32_t)i;
    }
}

/* ---- which tensors -------------------------------------------------------------------------------------------- */

/* The largest distance between operations that share a staging buffer: more than that of a copy, so that a tensor is
   not fetched again at once. */
static int32_t near(const struct offload *o) { return o->how->ahead + 3; }

static bool is_chosen(const struct offload *o, const struct snug_tensor *tensor, snug_memory_class memory_class) {
    const int64_t bytes = snug_tensor_bytes(o->program, tensor);
    return (o->how->classes >> memory_class & 1) && bytes >= o->how->least;
}

/* Weights that only PREPARE and the updates use, because all else reads their 16-bit copies: the same ones in the
   programs of a run, whether they train or not. */
static void choose_masters(struct offload *o) {
    for (size_t i = 0; i < o->tensors; i++) {
        struct snug_tensor *tensor = &o->program->tensors[i];
        tensor->offloaded |= tensor->master && snug_tensor_bytes(o->program, tensor) >= o->how->least;
    }
    for (size_t i = 0; i < o->program->op_count; i++) {
        const struct snug_op *op = &o->program->ops[i];
        if (op->phase == SNUG_PHASE_PREPARE || snug_op_is(op, SNUG_OP_UPDATES)) continue;
        for (int k = 0; k < snug_op_operands(op); k++)
            if (o->program->tensors[op->operands[k]].master) o->program->tensors[op->operands[k]].offloaded = false;
    }
}

enum { UNUSED = -1, NOT_CHOSEN = -2 };

/* Operation i uses a tensor; last: the operation that used it before, UNUSED or NOT_CHOSEN. */
static void use_transient(const struct offload *o, struct snug_tensor *tensor, int32_t *last, int32_t i) {
    const struct snug_op *op = &o->program->ops[i], *before = *last >= 0 ? &o->program->ops[*last] : NULL;
    const int32_t in_head = o->begin[SNUG_PHASE_HEAD + 1] - o->begin[SNUG_PHASE_HEAD];
    if (*last == NOT_CHOSEN) return;
    if (op->phase == SNUG_PHASE_HEAD || (!before && snug_op_is(op, SNUG_OP_CLEARS))) {
        tensor->offloaded = false;
        *last = NOT_CHOSEN;
        return;
    }
    const bool over_head = before && before->phase == SNUG_PHASE_FORWARD && op->phase > SNUG_PHASE_HEAD;
    tensor->offloaded |= before && before->phase != op->phase && i - *last - (over_head ? in_head : 0) > near(o);
    *last = i;
}

/* Transient tensors that several phases use, except those of the head: what forward writes and backward reads, and with
   two backward passes the gradients that are kept between them. Not if all uses are close together. */
static snug_status choose_transient(struct offload *o) {
    struct snug_tensor *tensors = o->program->tensors;
    int32_t *last; /* by tensor */
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, o->tensors, sizeof *last, (void **)&last));
    for (size_t i = 0; i < o->tensors; i++) {
        const bool gradient = tensors[i].memory_class == SNUG_MEMORY_GRADIENTS;
        const bool chosen = is_chosen(o, &tensors[i], gradient ? SNUG_MEMORY_GRADIENTS : SNUG_MEMORY_ACTIVATIONS);
        last[i] = chosen && !tensors[i].persistent ? UNUSED : NOT_CHOSEN;
    }
    for (int32_t i = o->begin[SNUG_PHASE_FORWARD]; i < o->begin[SNUG_PHASE_COUNT]; i++) {
        const struct snug_op *op = &o->program->ops[i];
        for (int k = 0; k < snug_op_operands(op); k++)
            use_transient(o, &tensors[op->operands[k]], &last[op->operands[k]], i);
    }
    free(last);
    return SNUG_OK;
}

static bool is_of(const struct snug_tensor *tensor, snug_memory_class memory_class) {
    return tensor->offloaded && tensor->persistent && tensor->memory_class == memory_class;
}

/* The first tensors of the class stay in the arena, up to their share of its bytes: the same weights in the programs of
   a run. The update needs them first, while the others are fetched. */
static void keep_resident(struct offload *o, snug_memory_class memory_class) {
    int64_t all = 0;
    for (size_t i = 0; i < o->tensors; i++)
        if (is_of(&o->program->tensors[i], memory_class)) all += snug_tensor_bytes(o->program, &o->program->tensors[i]);
    int64_t left = (int64_t)(o->how->resident * (double)all);
    for (size_t i = 0; i < o->tensors; i++) {
        struct snug_tensor *tensor = &o->program->tensors[i];
        const int64_t bytes = snug_tensor_bytes(o->program, tensor);
        if (!is_of(tensor, memory_class) || bytes > left) continue;
        tensor->offloaded = false;
        left -= bytes;
    }
}

static snug_status choose(struct offload *o) {
    for (size_t i = 0; i < o->tensors; i++) {
        struct snug_tensor *tensor = &o->program->tensors[i];
        const bool table = tensor->memory_class == SNUG_MEMORY_OPTIMIZER && !tensor->saved; /* of norms */
        if (tensor->persistent && !table) tensor->offloaded = is_chosen(o, tensor, tensor->memory_class);
    }
    RETURN_IF_ERROR(choose_transient(o));
    if (o->how->classes & SNUG_OFFLOAD_MASTERS && !(o->how->classes >> SNUG_MEMORY_WEIGHTS & 1)) choose_masters(o);
    for (int i = SNUG_MEMORY_WEIGHTS; i < SNUG_MEMORY_ACTIVATIONS; i++) keep_resident(o, (snug_memory_class)i);
    return SNUG_OK;
}

/* ---- norms ---------------------------------------------------------------------------------------------------- */

/* The norm of an offloaded gradient, which CLIP would fetch for it; 0 if op is none. */
static int32_t normed_gradient(const struct offload *o, const struct snug_op *op) {
    const bool norm = op->kind == SNUG_OP_SQUARED_NORM && op->phase == SNUG_PHASE_CLIP;
    return norm && o->program->tensors[op->squared_norm.g].offloaded ? op->squared_norm.g : 0;
}

/* By tensor: the operation of BACKWARD that completes a gradient of CLIP's norms, or -1. */
static void find_completions(const struct offload *o, int32_t *completed) {
    for (size_t i = 0; i < o->tensors; i++) completed[i] = -1;
    for (int32_t i = o->begin[SNUG_PHASE_BACKWARD]; i < o->begin[SNUG_PHASE_BACKWARD + 1]; i++) {
        const struct snug_op *op = &o->program->ops[i];
        for (int k = 0; k < snug_op_operands(op); k++)
            if (op->operands[k] && !snug_op_reads(op, k)) completed[op->operands[k]] = i;
    }
}

static snug_status move_norms(struct offload *o, const int32_t *completed) {
    struct snug_op *ops = o->program->ops;
    const int32_t count = (int32_t)o->program->op_count, clip = o->begin[SNUG_PHASE_CLIP];
    int32_t *norms; /* by gradient */
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, o->tensors, sizeof *norms, (void **)&norms));
    for (int32_t i = clip; i < o->begin[SNUG_PHASE_CLIP + 1]; i++) norms[normed_gradient(o, &ops[i])] = i;
    o->program->ops = NULL;
    o->program->op_count = o->program->op_capacity = 0;
    snug_status status = SNUG_OK;
    for (int32_t i = 0; i < count && status == SNUG_OK; i++) {
        const int32_t gradient = normed_gradient(o, &ops[i]);
        if (gradient && completed[gradient] >= 0) continue;
        status = snug_program_op(o->program, ops[i]);
        for (int k = 0; k < snug_op_operands(&ops[i]) && status == SNUG_OK; k++) {
            const int32_t tensor = ops[i].operands[k];
            if (!tensor || completed[tensor] != i || !norms[tensor]) continue;
            struct snug_op norm = ops[norms[tensor]];
            norm.phase = SNUG_PHASE_BACKWARD;
            status = snug_program_op(o->program, norm);
        }
    }
    free(norms);
    free(ops);
    return status;
}

/* Norms of offloaded gradients move to where BACKWARD completes them, so that CLIP need not fetch them; in every
   micro-batch, because a loop of the user may make a step after any of them. */
static snug_status place_norms(struct offload *o) {
    int32_t *completed;
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, o->tensors, sizeof *completed, (void **)&completed));
    find_completions(o, completed);
    const snug_status status = move_norms(o, completed);
    free(completed);
    return status;
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

/* Whether op is elementwise, and its number of elements. */
static bool can_be_cut(const struct snug_program *program, const struct snug_op *op, int64_t *elements) {
    if (!snug_op_is(op, SNUG_OP_ELEMENTS)) return false;
    const int32_t whole = op->operands[snug_op_operand(op, SNUG_PARTED)];
    const bool lives = !snug_op_is(op, SNUG_OP_CLEARS) || program->tensors[whole].persistent;
    *elements = lives ? elements_of(program, whole) : 0;
    return *elements > 0;
}

/* Whether an operation that is not cut uses the whole tensor. */
static bool uses_whole(const struct offload *o, const struct snug_op *op, int32_t tensor) {
    int64_t elements;
    return !can_be_cut(o->program, op, &elements) && (snug_op_uses(op, tensor) || snug_op_writes(op, tensor));
}

/* Whether an operation shortly before operation index uses the whole tensor, which is then in the arena anyway; or, if
   an update crosses phases, shortly after it: the one that the update was moved to. */
static bool is_resident(const struct offload *o, size_t index, int32_t tensor) {
    const struct snug_op *ops = o->uncut;
    const size_t most = (size_t)near(o);
    for (size_t i = index; i-- > 0 && index - i <= most && ops[i].phase == ops[index].phase;)
        if (uses_whole(o, &ops[i], tensor)) return true;
    /* untested: the operation that an update was moved to follows it */
    for (size_t i = index + 1; ops[index].crosses && i - index <= most && i < o->uncut_count; i++)
        if (uses_whole(o, &ops[i], tensor)) return true;
    return false;
}

/* Elements first … first + count - 1 of tensor, which may be a rank's shard of another, as a tensor: a view, or a part
   with a staging buffer. */
static snug_status add_part(struct offload *o, int32_t tensor, bool view, int64_t first, int64_t count, int32_t *out) {
    const struct snug_tensor *whole = &o->program->tensors[tensor];
    return snug_program_tensor(o->program,
                               (struct snug_tensor){.dtype = whole->dtype,
                                                    .memory_class = SNUG_MEMORY_TEMPORARY,
                                                    .rows = 1,
                                                    .cols = count,
                                                    .layer = whole->layer,
                                                    .view = view,
                                                    .base = base_of(o->program, tensor),
                                                    .element = whole->view ? whole->element + first : first},
                               out, "part.%zu", o->program->tensor_count);
}

/* The part of operation index for elements first … first + count - 1 of a segment that begins at segment. */
static snug_status emit_part(struct offload *o, size_t index, int64_t elements, int64_t segment, int64_t first,
                             int64_t count) {
    const struct snug_op *whole = &o->uncut[index];
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
        const int32_t base = base_of(o->program, tensor);
        const bool view = !o->program->tensors[base].offloaded || is_resident(o, index, base);
        int64_t from = begin, n = count;
        if (elements_of(o->program, tensor) != elements) {
            if (!(snug_op_info(whole->kind)->operands[k].flags & SNUG_BLOCK_STATE)) continue; /* clip, or the sums */
            from = segment / length * blocks + first / SNUG_QUANTISED_BLOCK;
            n = (count + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
        }
        RETURN_IF_ERROR(add_part(o, tensor, view, from, n, &op.operands[k]));
    }
    return snug_program_op(o->program, op);
}

/* Whether it needs staging buffers. */
static bool uses_offloaded(const struct offload *o, const struct snug_op *op) {
    if (op->on_host) return false;
    for (int k = 0; k < snug_op_operands(op); k++)
        if (o->program->tensors[base_of(o->program, op->operands[k])].offloaded) return true;
    return false;
}

static snug_status cut_one(struct offload *o, size_t index) {
    const struct snug_op *op = &o->uncut[index];
    const int64_t part = o->part;
    int64_t elements = 0;
    bool in_blocks = false;
    for (int k = 0; k < snug_op_operands(op); k++)
        in_blocks |= op->operands[k] && (snug_op_info(op->kind)->operands[k].flags & SNUG_BLOCK_STATE);
    if (!uses_offloaded(o, op) || !can_be_cut(o->program, op, &elements) || elements <= part)
        return snug_program_op(o->program, *op);
    const int64_t length = in_blocks ? elements / op->update.segments : elements;
    for (int64_t segment = 0; segment < elements; segment += length)
        for (int64_t first = 0; first < length; first += part)
            RETURN_IF_ERROR(
                emit_part(o, index, elements, segment, first, length - first < part ? length - first : part));
    return SNUG_OK;
}

/* Elements of a part: more than requested if a very large model would have more than MOST_PARTS parts, because placing
   takes time quadratic in their number. */
static int64_t part_length(const struct offload *o) {
    int64_t all = 0, elements;
    for (size_t i = 0; i < o->program->op_count; i++)
        if (can_be_cut(o->program, &o->program->ops[i], &elements)) all += elements;
    const int64_t part = all / MOST_PARTS > o->how->part ? all / MOST_PARTS : o->how->part;
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

static snug_status cut(struct offload *o) {
    struct snug_op *ops = o->program->ops;
    const size_t count = o->program->op_count;
    o->part = part_length(o);
    o->uncut = ops;
    o->uncut_count = count;
    o->program->ops = NULL;
    o->program->op_count = o->program->op_capacity = 0;
    snug_status status = SNUG_OK;
    for (size_t i = 0, end; i < count && status == SNUG_OK; i = end) {
        end = end_of_series(ops, count, i);
        for (int offloaded = 0; offloaded < 2; offloaded++)
            for (size_t k = i; k < end && status == SNUG_OK; k++)
                if (uses_offloaded(o, &ops[k]) == offloaded) status = cut_one(o, k);
    }
    free(ops);
    return status;
}

/* ---- residency intervals -------------------------------------------------------------------------------------- */

/* The tensor whose staging buffer replaces tensor: an offloaded tensor or a part of one; -1 if there is none. */
static int32_t item_of(const struct offload *o, int32_t tensor) {
    if (!tensor) return -1;
    const struct snug_tensor *t = &o->program->tensors[tensor];
    const int32_t item = t->view ? t->base : tensor;
    const bool part = (size_t)item >= o->tensors && !t->view;
    return part || o->program->tensors[item].offloaded ? item : -1;
}

/* always: op needs the previous contents of item. unless_first: only if it does not overwrite gradients. */
static void needs(const struct offload *o, const struct snug_op *op, int32_t item, bool *always, bool *unless_first) {
    *always = *unless_first = false;
    for (int k = 0; k < snug_op_operands(op); k++) {
        if (item_of(o, op->operands[k]) != item) continue;
        const enum snug_access access = snug_op_info(op->kind)->operands[k].access;
        /* An update that fp16 skips writes nothing. */
        const bool keeps = o->program->scaler && snug_op_is(op, SNUG_OP_UPDATES);
        if (access == SNUG_READ || access == SNUG_MODIFY || keeps)
            *always = true;
        else if (access == SNUG_GRADIENT)
            *(op->first ? unless_first : always) = true;
        else if (snug_op_is(op, SNUG_OP_CLEARS)) /* later micro-batches do not clear it */
            *unless_first |= op->first;
    }
}

static bool is_over(const struct offload *o, const struct residency *residency, const struct snug_op *op,
                    int32_t index) {
    if (residency->phase != op->phase) return true;
    const bool held = !o->program->tensors[residency->backing].persistent || op->phase == SNUG_PHASE_HEAD;
    return !held && index - residency->last > near(o);
}

/* Begins a residency interval of item at operation index. A part is its own staging buffer. */
static snug_status begin_residency(struct offload *o, int32_t item, int32_t index) {
    const struct snug_op *op = &o->program->ops[index];
    const bool part = (size_t)item >= o->tensors;
    const struct snug_tensor *tensor = &o->program->tensors[item];
    struct residency residency = {.backing = part ? tensor->base : item,
                                  .staging = item,
                                  .element = part ? tensor->element : 0,
                                  .phase = op->phase,
                                  .first = index,
                                  .last_write = -1,
                                  .used_last = true,
                                  .written_last = true,
                                  .used_late = true,
                                  .written_late = true,
                                  .previous = o->latest[part ? tensor->base : item],
                                  .stored = -1};
    bool always;
    needs(o, op, item, &always, &residency.unless_first);
    if (always) residency.unless_first = false;
    residency.fetched = always || residency.unless_first;
    residency.for_late = residency.fetched && op->crosses;
    if (!o->program->tensors[residency.backing].persistent) { /* its first use creates it */
        residency.fetched = o->open[residency.backing] >= 0;
        residency.unless_first = false;
        if (residency.fetched) o->residencies[o->open[residency.backing]].followed = true;
    }
    if (!part) {
        struct snug_tensor like = *tensor;
        like.memory_class = SNUG_MEMORY_TEMPORARY;
        like.persistent = like.offloaded = like.saved = false;
        if (tensor->shards.chunk) { /* this rank's elements, which its copies then have */
            int64_t first;
            like.rows = 1;
            like.cols = snug_tensor_stored(o->program, tensor, &first);
            like.shards.chunk = 0;
        }
        RETURN_IF_ERROR(
            snug_program_tensor(o->program, like, &residency.staging, "staging.%zu", o->program->tensor_count));
    }
    RETURN_IF_ERROR(snug_grow(o->program->ctx, (void **)&o->residencies, &o->residency_capacity, o->residency_count + 1,
                              sizeof *o->residencies));
    o->open[item] = o->latest[residency.backing] = (int32_t)o->residency_count;
    o->residencies[o->residency_count++] = residency;
    return SNUG_OK;
}

/* Replaces the offloaded operands of operation index by their staging buffers. */
static snug_status find_residencies(struct offload *o, int32_t index) {
    const struct snug_op before = o->program->ops[index]; /* needs() reads the unchanged operation */
    struct snug_op op = before;
    for (int k = 0; k < snug_op_operands(&op) && !op.on_host; k++) {
        int32_t *number = &op.operands[k];
        const int32_t item = item_of(o, *number);
        if (item < 0) continue;
        if (o->open[item] < 0 || is_over(o, &o->residencies[o->open[item]], &before, index))
            RETURN_IF_ERROR(begin_residency(o, item, index));
        struct residency *residency = &o->residencies[o->open[item]];
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
        if (o->program->tensors[*number].view)
            o->program->tensors[*number].base = residency->staging;
        else
            *number = residency->staging;
    }
    o->program->ops[index] = op;
    return SNUG_OK;
}

/* ---- copies --------------------------------------------------------------------------------------------------- */

static snug_status insert(struct offload *o, const struct residency *residency, int order, int32_t at,
                          enum snug_phase phase) {
    struct snug_op op = {.phase = phase,
                         .part = o->program->tensors[residency->staging].part,
                         .layer = o->program->tensors[residency->staging].layer,
                         .element = residency->element};
    switch (order) {
    case ORDER_STORE:
        op.kind = SNUG_OP_STORE;
        op.store = (struct snug_store){.x = residency->staging, .backing = residency->backing};
        op.last = residency->written_last;
        op.crosses = residency->written_late;
        break;
    case ORDER_FETCH:
        op.kind = SNUG_OP_FETCH;
        op.fetch = (struct snug_fetch){.backing = residency->backing, .x = residency->staging};
        op.last = residency->used_last;
        op.first = residency->unless_first;
        op.crosses = residency->used_late;
        op.flushed = residency->for_late && !residency->used_late;
        op.unless = residency->unless_updated ? SNUG_UNLESS_UPDATED : SNUG_UNLESS_NEVER;
        break;
    default:
        op.kind = SNUG_OP_WAIT;
        op.wait = (struct snug_wait){.x = residency->staging};
        op.crosses = order == ORDER_STORED ? residency->written_late : residency->used_late;
        op.flushed = order == ORDER_FETCHED && residency->for_late && !residency->used_late;
        break;
    }
    RETURN_IF_ERROR(snug_grow(o->program->ctx, (void **)&o->insertions, &o->insertion_capacity, o->insertion_count + 1,
                              sizeof *o->insertions));
    o->insertions[o->insertion_count++] = (struct insertion){at, phase, order, op};
    return SNUG_OK;
}

static bool have_common_elements(const struct offload *o, const struct residency *a, const struct residency *b) {
    const struct residency *first = a->element < b->element ? a : b, *second = first == a ? b : a;
    return second->element < first->element + elements_of(o->program, first->staging);
}

/* Where s is fetched: `ahead` operations before its first use, but not before an earlier interval of a phase has been
   stored, which is then waited for before the first use. */
static int32_t fetch_position(struct offload *o, const struct residency *s, enum snug_phase in, int32_t first) {
    int32_t at = larger(o->begin[in], first - o->how->ahead);
    for (int32_t i = s->previous; i >= 0; i = o->residencies[i].previous) {
        const struct residency *p = &o->residencies[i];
        if (p->stored < 0 || o->insertions[p->stored].phase != in) continue;
        if (!have_common_elements(o, p, s)) continue;
        struct insertion *stored = &o->insertions[p->stored];
        stored->at = smaller(stored->at, first);
        at = larger(at, stored->at);
    }
    return at;
}

/* A residency interval lies within one phase, so that phases can run separately. HEAD runs several times, so its
   tensors are fetched at the end of FORWARD and stored at the beginning of BACKWARD. */
static snug_status insert_copies(struct offload *o, struct residency *s) {
    const bool head = s->phase == SNUG_PHASE_HEAD, persistent = o->program->tensors[s->backing].persistent;
    const enum snug_phase in = head ? SNUG_PHASE_FORWARD : s->phase, out = head ? SNUG_PHASE_BACKWARD : s->phase;
    const int32_t ahead = o->how->ahead, first = head ? o->begin[SNUG_PHASE_HEAD] : s->first;
    if (s->fetched) {
        RETURN_IF_ERROR(insert(o, s, ORDER_FETCH, fetch_position(o, s, in, first), in));
        RETURN_IF_ERROR(insert(o, s, ORDER_FETCHED, first, in));
    }
    if (s->last_write < 0 || (!persistent && !s->followed)) return SNUG_OK;
    const int32_t written = head ? o->begin[SNUG_PHASE_BACKWARD] : s->last_write + 1;
    const int32_t used = head ? written : s->last + 1;
    RETURN_IF_ERROR(insert(o, s, ORDER_STORE, written, out));
    s->stored = (int32_t)o->insertion_count;
    return insert(o, s, ORDER_STORED, larger(used, smaller(o->begin[out + 1], written + ahead)), out);
}

static int in_order(const void *a, const void *b) {
    const struct insertion *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->phase != y->phase) return (int)x->phase - (int)y->phase;
    if (x->order != y->order) return x->order - y->order;
    const int32_t *i = x->op.operands, *j = y->op.operands; /* a deterministic order */
    return i[0] != j[0] ? (i[0] < j[0] ? -1 : 1) : i[1] - j[1];
}

static snug_status merge(struct offload *o) {
    struct snug_op *ops = o->program->ops;
    const size_t count = o->program->op_count;
    size_t next = 0;
    snug_status status = SNUG_OK;
    if (o->insertion_count) qsort(o->insertions, o->insertion_count, sizeof *o->insertions, in_order);
    o->program->ops = NULL;
    o->program->op_count = o->program->op_capacity = 0;
    for (size_t i = 0; i <= count && status == SNUG_OK; i++) {
        for (; next < o->insertion_count && o->insertions[next].at == (int32_t)i && status == SNUG_OK; next++)
            status = snug_program_op(o->program, o->insertions[next].op);
        if (i < count && status == SNUG_OK) status = snug_program_op(o->program, ops[i]);
    }
    free(ops);
    return status;
}

static snug_status offload(struct offload *o) {
    find_phases(o);
    RETURN_IF_ERROR(choose(o));
    RETURN_IF_ERROR(place_norms(o));
    snug_choose_host_updates(o->program, o->how);
    if (o->how->overlaps && !o->program->updates_in_backward)
        RETURN_IF_ERROR(snug_defer_updates(o->program, o->begin[SNUG_PHASE_FORWARD + 1], o->how->ahead));
    RETURN_IF_ERROR(cut(o));
    find_phases(o);
    const size_t tensors = o->program->tensor_count;
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, tensors, sizeof *o->open, (void **)&o->open));
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, tensors, sizeof *o->latest, (void **)&o->latest));
    for (size_t i = 0; i < tensors; i++) o->open[i] = o->latest[i] = -1;
    for (size_t i = 0; i < o->program->op_count; i++) RETURN_IF_ERROR(find_residencies(o, (int32_t)i));
    for (size_t i = 0; i < o->residency_count; i++) RETURN_IF_ERROR(insert_copies(o, &o->residencies[i]));
    return merge(o);
}

snug_status snug_stage_offload(struct snug_program *program, const struct snug_offload *how) {
    if (!how->classes) return SNUG_OK;
    struct offload o = {.program = program, .how = how, .tensors = program->tensor_count};
    const snug_status status = offload(&o);
    free(o.open);
    free(o.latest);
    free(o.residencies);
    free(o.insertions);
    return status;
}
