/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offloading: a tensor's home is a region of the spool, and the arena holds windows of it while operations use it.
 *
 * Operations that use a tensor shortly one after the other share a window, which is a tensor like any other: FETCH
 * starts to copy it from its home some operations ahead, WAIT stands before its first use; STORE starts to copy it back
 * behind its last change, and another WAIT, some operations later, ends its life. So the place stage sees exactly when
 * a window's bytes are taken, those of copies under way included.
 *
 * Optimizers and norms look at elements one by one, so they take large tensors in parts: a window for each part of what
 * is offloaded, and views of what is not. Parts begin at multiples of 16,384 elements, so that the sums of the norms
 * have the same bits, and 8-bit states at multiples of their blocks.
 */
#include <stdlib.h>

#include "plan/stages.h"

enum {
    LEAST_BYTES = 16 << 10, /* smaller tensors stay: asking for a copy costs more than they do */
    CUT = 1 << 14,          /* see SQUARED_NORM in backend/cpu */
    MOST_PARTS = 8192,
};

/* A window: the operations from first to last see it in home's place. */
struct stay {
    int32_t home, window;
    int64_t element; /* where in home it begins */
    enum snug_phase phase;
    int32_t first, last, last_write; /* last_write: -1 if none */
    bool fetched, unless_first;      /* unless_first: the step's first micro-batch overwrites it */
    bool used_last, written_last;    /* only by operations of a step's last micro-batch */
    bool again;                      /* another stay follows */
};

/* An operation to be put before operation at of the list. */
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
    size_t tensors; /* before the stage; parts and views stand behind */
    int32_t begin[SNUG_PHASE_COUNT + 1];
    int32_t *open; /* by tensor: its stay that is not over, or -1 */
    struct stay *stays;
    size_t stay_count, stay_capacity;
    struct insertion *insertions;
    size_t insertion_count, insertion_capacity;
};

static int64_t elements_of(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].rows * program->tensors[tensor].cols;
}

static int32_t *operand(struct snug_op *op, int k) {
    return k < SNUG_OP_INPUTS ? &op->in[k] : &op->out[k - SNUG_OP_INPUTS];
}
enum { OPERANDS = SNUG_OP_INPUTS + SNUG_OP_OUTPUTS };

/* Where each phase begins in the sorted list. */
static void find_phases(struct offload *o) {
    size_t i = 0;
    for (int phase = 0; phase <= SNUG_PHASE_COUNT; phase++) {
        while (i < o->program->op_count && (int)o->program->ops[i].phase < phase) i++;
        o->begin[phase] = (int32_t)i;
    }
}

/* ---- which tensors -------------------------------------------------------------------------------------------- */

/* Operations that share a window may stand so far apart. More than the copies' own distance, so that a window is never
   fetched before the one in front of it has been stored. */
static int32_t near(const struct offload *o) { return o->how->ahead + 3; }

static bool is_chosen(const struct offload *o, const struct snug_tensor *tensor, snug_memory_class memory_class) {
    return (o->how->classes >> memory_class & 1) && snug_tensor_bytes(o->program, tensor) >= LEAST_BYTES;
}

/* What does not persist but is used in several phases, unless the head uses it: what forward writes and backward reads,
   and with two backward passes the gradients that are kept between them. Not if each use follows the other soon. */
static void choose_transient(struct offload *o, int32_t number) {
    const struct snug_op *ops = o->program->ops;
    const int32_t in_head = o->begin[SNUG_PHASE_HEAD + 1] - o->begin[SNUG_PHASE_HEAD];
    int32_t last = -1;
    bool far = false;
    for (int32_t i = o->begin[SNUG_PHASE_FORWARD]; i < o->begin[SNUG_PHASE_COUNT]; i++)
        for (int k = 0; k < OPERANDS; k++) {
            if (*operand((struct snug_op *)&ops[i], k) != number) continue;
            if (ops[i].phase == SNUG_PHASE_HEAD || (last < 0 && ops[i].kind == SNUG_OP_FILL)) return;
            const bool over_head = last >= 0 && ops[last].phase == SNUG_PHASE_FORWARD && ops[i].phase > SNUG_PHASE_HEAD;
            far |= last >= 0 && ops[last].phase != ops[i].phase && i - last - (over_head ? in_head : 0) > near(o);
            last = i;
        }
    o->program->tensors[number].offloaded = far;
}

static void choose(struct offload *o) {
    for (size_t i = 0; i < o->tensors; i++) {
        struct snug_tensor *tensor = &o->program->tensors[i];
        const bool gradient = tensor->memory_class == SNUG_MEMORY_GRADIENTS;
        if (tensor->persistent)
            tensor->offloaded = is_chosen(o, tensor, tensor->memory_class);
        else if (is_chosen(o, tensor, gradient ? SNUG_MEMORY_GRADIENTS : SNUG_MEMORY_ACTIVATIONS))
            choose_transient(o, (int32_t)i);
    }
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

/* Whether op looks at its elements one by one, and at how many. */
static bool can_be_cut(const struct snug_program *program, const struct snug_op *op, int64_t *elements) {
    if (op->kind == SNUG_OP_ADAFACTOR) return false; /* it looks at rows and columns */
    if (snug_is_update(op->kind) &&
        (op->in[0] < 0 || elements_of(program, op->in[0]) != elements_of(program, op->out[0])))
        return false; /* it updates some rows of a table */
    if (op->kind == SNUG_OP_FILL)
        *elements = program->tensors[op->out[0]].persistent ? elements_of(program, op->out[0]) : 0;
    else if (op->kind == SNUG_OP_CAST || op->kind == SNUG_OP_SQUARED_NORM || snug_is_update(op->kind))
        *elements = elements_of(program, op->in[0]);
    else
        return false;
    return *elements > 0;
}

/* Whether an operation shortly before operation index uses tensor whole, so that it stands in the arena anyway. */
static bool is_at_hand(const struct offload *o, const struct snug_op *ops, size_t index, int32_t tensor) {
    for (size_t i = index; i-- > 0 && index - i <= (size_t)near(o) && ops[i].phase == ops[index].phase;) {
        int64_t elements;
        if (can_be_cut(o->program, &ops[i], &elements)) continue;
        for (int k = 0; k < OPERANDS; k++)
            if (*operand((struct snug_op *)&ops[i], k) == tensor) return true;
    }
    return false;
}

/* Elements first … first + count - 1 of tensor as a tensor of its own: a view, or a part that gets a window. */
static snug_status add_part(struct offload *o, int32_t tensor, bool view, int64_t first, int64_t count, int32_t *out) {
    const struct snug_tensor *whole = &o->program->tensors[tensor];
    return snug_program_tensor(o->program,
                               (struct snug_tensor){.dtype = whole->dtype,
                                                    .memory_class = SNUG_MEMORY_TEMPORARY,
                                                    .rows = 1,
                                                    .cols = count,
                                                    .layer = whole->layer,
                                                    .view = view,
                                                    .base = tensor,
                                                    .element = first},
                               out, "part.%zu", o->program->tensor_count);
}

/* The part of operation index (of ops) for elements first … first + count - 1 of a segment that begins at segment. */
static snug_status emit_part(struct offload *o, const struct snug_op *ops, size_t index, int64_t elements,
                             int64_t segment, int64_t first, int64_t count) {
    const struct snug_op *whole = &ops[index];
    struct snug_op op = *whole;
    op.element = segment + first;
    if (whole->kind == SNUG_OP_SQUARED_NORM) op.accumulate = op.element > 0;
    if (snug_is_update(whole->kind)) op.segments = 1;
    const int64_t length = snug_is_update(whole->kind) ? elements / whole->segments : elements;
    const int64_t blocks = (length + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
    for (int k = 0; k < OPERANDS; k++) {
        const int32_t tensor = *operand((struct snug_op *)whole, k);
        if (tensor < 0) continue;
        const bool view = !o->program->tensors[tensor].offloaded || is_at_hand(o, ops, index, tensor);
        int64_t from = op.element, n = count;
        if (elements_of(o->program, tensor) != elements) {
            if (whole->kind != SNUG_OP_ADAM_8BIT || k < SNUG_OP_INPUTS) continue; /* clip, or the sums */
            from = segment / length * blocks + first / SNUG_QUANTISED_BLOCK;
            n = (count + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
        }
        RETURN_IF_ERROR(add_part(o, tensor, view, from, n, operand(&op, k)));
    }
    return snug_program_op(o->program, op);
}

static snug_status cut_one(struct offload *o, const struct snug_op *ops, size_t index) {
    const struct snug_op *op = &ops[index];
    const int64_t part = o->part;
    int64_t elements = 0;
    bool offloaded = false;
    for (int k = 0; k < OPERANDS; k++) {
        const int32_t tensor = *operand((struct snug_op *)op, k);
        offloaded |= tensor >= 0 && o->program->tensors[tensor].offloaded;
    }
    if (!offloaded || !can_be_cut(o->program, op, &elements) || elements <= part)
        return snug_program_op(o->program, *op);
    const int64_t length = op->kind == SNUG_OP_ADAM_8BIT ? elements / op->segments : elements;
    for (int64_t segment = 0; segment < elements; segment += length)
        for (int64_t first = 0; first < length; first += part)
            RETURN_IF_ERROR(
                emit_part(o, ops, index, elements, segment, first, length - first < part ? length - first : part));
    return SNUG_OK;
}

/* Elements of a part: more than asked for where that makes MOST_PARTS of an enormous model, since placing them takes
   the square of their number. */
static int64_t part_length(const struct offload *o) {
    int64_t all = 0, elements;
    for (size_t i = 0; i < o->program->op_count; i++)
        if (can_be_cut(o->program, &o->program->ops[i], &elements)) all += elements;
    const int64_t part = all / MOST_PARTS > o->how->part ? all / MOST_PARTS : o->how->part;
    return part / CUT * CUT > 0 ? part / CUT * CUT : CUT;
}

static snug_status cut(struct offload *o) {
    struct snug_op *ops = o->program->ops;
    const size_t count = o->program->op_count;
    o->part = part_length(o);
    o->program->ops = NULL;
    o->program->op_count = o->program->op_capacity = 0;
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < count && status == SNUG_OK; i++) status = cut_one(o, ops, i);
    free(ops);
    return status;
}

/* ---- windows -------------------------------------------------------------------------------------------------- */

/* The tensor whose window stands for tensor, or -1: a home, or a part of one. */
static int32_t item_of(const struct offload *o, int32_t tensor) {
    if (tensor < 0) return -1;
    const struct snug_tensor *t = &o->program->tensors[tensor];
    const int32_t item = t->view ? t->base : tensor;
    const bool part = (size_t)item >= o->tensors && !t->view;
    return part || o->program->tensors[item].offloaded ? item : -1;
}

/* Whether op needs what stood in item before, and whether it does not if it overwrites gradients. */
static void needs(const struct offload *o, const struct snug_op *op, int32_t item, bool *always, bool *unless_first) {
    *always = *unless_first = false;
    for (int k = 0; k < OPERANDS; k++) {
        if (item_of(o, *operand((struct snug_op *)op, k)) != item) continue;
        const int out = k - SNUG_OP_INPUTS;
        if (out < 0 || (snug_is_update(op->kind) && out != 1))
            *always = true;
        else if (op->kind == SNUG_OP_FILL)
            *unless_first |= op->first;
        else if (op->kind != SNUG_OP_CAST && !snug_is_update(op->kind))
            *(op->first ? unless_first : always) = true;
    }
}

static bool is_over(const struct offload *o, const struct stay *stay, const struct snug_op *op, int32_t index) {
    if (stay->phase != op->phase) return true;
    const bool held = !o->program->tensors[stay->home].persistent || op->phase == SNUG_PHASE_HEAD;
    return !held && index - stay->last > near(o);
}

/* A new stay of item from operation index on; a part is its own window. */
static snug_status begin_stay(struct offload *o, int32_t item, int32_t index) {
    const struct snug_op *op = &o->program->ops[index];
    const bool part = (size_t)item >= o->tensors;
    const struct snug_tensor *tensor = &o->program->tensors[item];
    struct stay stay = {.home = part ? tensor->base : item,
                        .window = item,
                        .element = part ? tensor->element : 0,
                        .phase = op->phase,
                        .first = index,
                        .last_write = -1,
                        .used_last = true,
                        .written_last = true};
    bool always;
    needs(o, op, item, &always, &stay.unless_first);
    if (always) stay.unless_first = false;
    stay.fetched = always || stay.unless_first;
    if (!o->program->tensors[stay.home].persistent) { /* it is made where it is first used */
        stay.fetched = o->open[stay.home] >= 0;
        stay.unless_first = false;
        if (stay.fetched) o->stays[o->open[stay.home]].again = true;
    }
    if (!part) {
        struct snug_tensor like = *tensor;
        like.memory_class = SNUG_MEMORY_TEMPORARY;
        like.persistent = like.offloaded = like.saved = false;
        RETURN_IF_ERROR(snug_program_tensor(o->program, like, &stay.window, "window.%zu", o->program->tensor_count));
    }
    RETURN_IF_ERROR(
        snug_grow(o->program->ctx, (void **)&o->stays, &o->stay_capacity, o->stay_count + 1, sizeof *o->stays));
    o->open[item] = (int32_t)o->stay_count;
    o->stays[o->stay_count++] = stay;
    return SNUG_OK;
}

/* Gives the operands of operation index their windows. */
static snug_status find_stays(struct offload *o, int32_t index) {
    const struct snug_op before = o->program->ops[index]; /* as needs() has to see it */
    struct snug_op op = before;
    for (int k = 0; k < OPERANDS; k++) {
        int32_t *number = operand(&op, k);
        const int32_t item = item_of(o, *number);
        if (item < 0) continue;
        if (o->open[item] < 0 || is_over(o, &o->stays[o->open[item]], &before, index))
            RETURN_IF_ERROR(begin_stay(o, item, index));
        struct stay *stay = &o->stays[o->open[item]];
        stay->last = index;
        stay->used_last &= before.last;
        if (k >= SNUG_OP_INPUTS) {
            stay->last_write = index;
            stay->written_last &= before.last;
        }
        if (o->program->tensors[*number].view)
            o->program->tensors[*number].base = stay->window;
        else
            *number = stay->window;
    }
    o->program->ops[index] = op;
    return SNUG_OK;
}

/* ---- copies --------------------------------------------------------------------------------------------------- */

static snug_status insert(struct offload *o, const struct stay *stay, int order, int32_t at, enum snug_phase phase) {
    struct snug_op op = {.phase = phase,
                         .layer = o->program->tensors[stay->window].layer,
                         .in = SNUG_INPUTS(-1),
                         .out = SNUG_OUTPUTS(-1),
                         .element = stay->element};
    switch (order) {
    case ORDER_STORE:
        op.kind = SNUG_OP_STORE, op.in[0] = stay->window, op.out[0] = stay->home, op.last = stay->written_last;
        break;
    case ORDER_FETCH:
        op.kind = SNUG_OP_FETCH, op.in[0] = stay->home, op.out[0] = stay->window, op.last = stay->used_last;
        op.first = stay->unless_first;
        break;
    default: op.kind = SNUG_OP_WAIT, op.in[0] = stay->window; break;
    }
    RETURN_IF_ERROR(snug_grow(o->program->ctx, (void **)&o->insertions, &o->insertion_capacity, o->insertion_count + 1,
                              sizeof *o->insertions));
    o->insertions[o->insertion_count++] = (struct insertion){at, phase, order, op};
    return SNUG_OK;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* All of a stay is within its phase, so that phases may be run one by one; but HEAD runs several times, so what it uses
   comes at the end of FORWARD and goes at the beginning of BACKWARD. */
static snug_status insert_copies(struct offload *o, const struct stay *s) {
    const bool head = s->phase == SNUG_PHASE_HEAD, persistent = o->program->tensors[s->home].persistent;
    const enum snug_phase in = head ? SNUG_PHASE_FORWARD : s->phase, out = head ? SNUG_PHASE_BACKWARD : s->phase;
    const int32_t ahead = o->how->ahead, first = head ? o->begin[SNUG_PHASE_HEAD] : s->first;
    if (s->fetched) {
        RETURN_IF_ERROR(insert(o, s, ORDER_FETCH, larger(o->begin[in], first - ahead), in));
        RETURN_IF_ERROR(insert(o, s, ORDER_FETCHED, first, in));
    }
    if (s->last_write < 0 || (!persistent && !s->again)) return SNUG_OK;
    const int32_t written = head ? o->begin[SNUG_PHASE_BACKWARD] : s->last_write + 1;
    const int32_t used = head ? written : s->last + 1;
    RETURN_IF_ERROR(insert(o, s, ORDER_STORE, written, out));
    return insert(o, s, ORDER_STORED, larger(used, smaller(o->begin[out + 1], written + ahead)), out);
}

static int in_order(const void *a, const void *b) {
    const struct insertion *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->phase != y->phase) return (int)x->phase - (int)y->phase;
    if (x->order != y->order) return x->order - y->order;
    const int32_t i = x->op.in[0], j = y->op.in[0]; /* the same list every time */
    return i != j ? (i < j ? -1 : 1) : x->op.out[0] - y->op.out[0];
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
    choose(o);
    RETURN_IF_ERROR(cut(o));
    find_phases(o);
    const size_t tensors = o->program->tensor_count;
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, tensors, sizeof *o->open, (void **)&o->open));
    for (size_t i = 0; i < tensors; i++) o->open[i] = -1;
    for (size_t i = 0; i < o->program->op_count; i++) RETURN_IF_ERROR(find_stays(o, (int32_t)i));
    for (size_t i = 0; i < o->stay_count; i++) RETURN_IF_ERROR(insert_copies(o, &o->stays[i]));
    return merge(o);
}

snug_status snug_stage_offload(struct snug_program *program, const struct snug_offload *how) {
    if (!how->classes) return SNUG_OK;
    struct offload o = {.program = program, .how = how, .tensors = program->tensor_count};
    const snug_status status = offload(&o);
    free(o.open);
    free(o.stays);
    free(o.insertions);
    return status;
}
