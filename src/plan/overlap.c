/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlap of the update's copies with the phases around it. The gradient norm is known only when BACKWARD is over, and
 * the update itself takes far less time than its copies. But what it reads can be fetched while BACKWARD frees the
 * activations' memory, and what it wrote can be stored while the next FORWARD runs and needs little memory yet.
 *
 * For each staging buffer of UPDATE, in the order of use: FETCH moves to the earliest operation of BACKWARD from which
 * on there is room for the buffer, STORE to the beginning of the next FORWARD, and its WAIT to the last operation up to
 * which there is room. There is room where the arena's peak is not exceeded. The lifetime of such a buffer wraps
 * around: it goes from BACKWARD to the end and from the beginning to its WAIT in FORWARD. The stores begin in the order
 * of their WAITs: first what FORWARD itself fetches, then the buffers that were fetched last. So most lifetimes are
 * nested, as those of the layers' activations, between which they are placed.
 *
 * The buffers of deferred updates (plan/defer.c) follow in the order of use. Their FETCH moves to an earlier operation
 * of FORWARD, or, if there is room from there on, of BACKWARD; STORE stays after the update, and its WAIT moves to the
 * last operation of FORWARD up to which there is room.
 *
 * Where the buffer is used, a FETCH is kept for a step in which BACKWARD did not fetch, or whose arena another program
 * used in between. See struct snug_crossing for what runs when.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/stages.h"

/* A staging buffer of the update, and where its operations are; -1: it has none. */
struct buffer {
    int32_t tensor, backing, fetch, store, stored; /* stored: the WAIT after STORE */
    int64_t element, count;                        /* of backing */
    bool deferred;                                 /* FORWARD uses it, else UPDATE */
    int32_t early; /* the operation of BACKWARD, or of FORWARD, before which FETCH is inserted, or -1 */
    int32_t late;  /* the operation of FORWARD before which the WAIT is inserted, or -1 */
};

struct overlap {
    struct snug_program *program;
    int32_t begin[SNUG_PHASE_COUNT + 1];
    int64_t *live, most; /* bytes by operation, and their peak */
    struct buffer *buffers;
    size_t count;
    const struct buffer **late; /* those that FORWARD stores, in the order in which it waits for them */
    size_t late_count;
    const struct buffer **early; /* those that are fetched earlier, in the order in which that begins */
    size_t early_count;
    /* Lists of operations by backing tensor: those that fetch elements of it, and those that wait for the end of a
     * store. The last one of each, and by operation the one before it; -1: none. */
    struct uses {
        int32_t *last, *previous;
    } fetches, stored;
};

/* Appends the staging buffers that the update fetches in a phase, each once. of: by tensor, number in buffers + 1. */
static void find_buffers_in(struct overlap *o, enum snug_phase phase, int32_t *of) {
    const struct snug_program *program = o->program;
    const bool deferred = phase == SNUG_PHASE_FORWARD;
    for (int32_t i = o->begin[phase]; i < o->begin[phase + 1]; i++) {
        const struct snug_op *op = &program->ops[i];
        if (deferred && !op->crosses) continue;
        if (op->kind == SNUG_OP_FETCH && program->tensors[op->fetch.backing].persistent) {
            const struct snug_tensor *t = &program->tensors[op->fetch.x];
            o->buffers[o->count++] = (struct buffer){.tensor = op->fetch.x,
                                                     .backing = op->fetch.backing,
                                                     .fetch = i,
                                                     .store = -1,
                                                     .stored = -1,
                                                     .element = op->element,
                                                     .count = t->rows * t->cols,
                                                     .deferred = deferred,
                                                     .early = -1,
                                                     .late = -1};
            of[op->fetch.x] = (int32_t)o->count;
        } else if (op->kind == SNUG_OP_STORE && of[op->store.x]) {
            o->buffers[of[op->store.x] - 1].store = i;
        } else if (op->kind == SNUG_OP_WAIT && of[op->wait.x] && o->buffers[of[op->wait.x] - 1].store >= 0) {
            o->buffers[of[op->wait.x] - 1].stored = i;
        }
    }
}

static snug_status find_buffers(struct overlap *o) {
    const struct snug_program *program = o->program;
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *o->buffers, (void **)&o->buffers));
    int32_t *of;
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof *of, (void **)&of));
    find_buffers_in(o, SNUG_PHASE_UPDATE, of);
    find_buffers_in(o, SNUG_PHASE_FORWARD, of);
    free(of);
    return SNUG_OK;
}

static snug_status open_uses(const struct overlap *o, struct uses *uses) {
    const size_t tensors = o->program->tensor_count, ops = o->program->op_count;
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, tensors, sizeof *uses->last, (void **)&uses->last));
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, ops, sizeof *uses->previous, (void **)&uses->previous));
    for (size_t i = 0; i < tensors; i++) uses->last[i] = -1;
    return SNUG_OK;
}

static void add_use(struct uses *uses, int32_t backing, int32_t op) {
    uses->previous[op] = uses->last[backing];
    uses->last[backing] = op;
}

static snug_status find_uses(struct overlap *o) {
    const struct snug_program *program = o->program;
    int32_t *stores; /* by staging buffer: its STORE, until that is waited for */
    RETURN_IF_ERROR(open_uses(o, &o->fetches));
    RETURN_IF_ERROR(open_uses(o, &o->stored));
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof *stores, (void **)&stores));
    for (size_t i = 0; i < program->tensor_count; i++) stores[i] = -1;
    for (int32_t i = 0; i < (int32_t)program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_FETCH) add_use(&o->fetches, op->fetch.backing, i);
        if (op->kind == SNUG_OP_STORE) stores[op->store.x] = i;
        if (op->kind != SNUG_OP_WAIT || stores[op->wait.x] < 0) continue;
        add_use(&o->stored, program->ops[stores[op->wait.x]].store.backing, i);
        stores[op->wait.x] = -1;
    }
    free(stores);
    return SNUG_OK;
}

/* Whether the copy that op begins or waits for has elements of the buffer's backing tensor. */
static bool shares(const struct overlap *o, int32_t number, const struct buffer *b) {
    const struct snug_op *op = &o->program->ops[number];
    const struct snug_tensor *x = &o->program->tensors[op->kind == SNUG_OP_FETCH ? op->fetch.x : op->wait.x];
    return op->element < b->element + b->count && b->element < op->element + x->rows * x->cols;
}

/* The last operation of the list before `end` that shares elements with the buffer; -1 if there is none. */
static int32_t last_before(const struct overlap *o, const struct uses *uses, const struct buffer *b, int32_t end) {
    int32_t i = uses->last[b->backing];
    while (i >= 0 && (i >= end || !shares(o, i, b))) i = uses->previous[i];
    return i;
}

/* The first one that is not before `begin`; -1 if there is none. */
static int32_t first_from(const struct overlap *o, const struct uses *uses, const struct buffer *b, int32_t begin) {
    int32_t found = -1;
    for (int32_t i = uses->last[b->backing]; i >= begin; i = uses->previous[i])
        if (shares(o, i, b)) found = i;
    return found;
}

static bool has_room(const struct overlap *o, int32_t op, int64_t bytes) { return o->live[op] + bytes <= o->most; }

static int64_t bytes_of(const struct overlap *o, const struct buffer *b) {
    return snug_tensor_bytes(o->program, &o->program->tensors[b->tensor]);
}

static void occupy(struct overlap *o, const struct buffer *b, int32_t begin, int32_t end) {
    const int64_t bytes = bytes_of(o, b);
    for (int32_t i = begin; i < end; i++) o->live[i] += bytes;
}

/* The first operation of a phase from which on there is room for the buffer up to operation end, and its values are in
   the backing store. */
static int32_t earliest(const struct overlap *o, const struct buffer *b, enum snug_phase phase, int32_t end) {
    const int32_t stored = last_before(o, &o->stored, b, end);
    const int32_t begin = stored < o->begin[phase] ? o->begin[phase] : stored + 1;
    const int64_t bytes = bytes_of(o, b);
    int32_t at = end;
    while (at > begin && has_room(o, at - 1, bytes)) at--;
    return at;
}

static void fetch_earlier(struct overlap *o, struct buffer *b) {
    int32_t end = b->fetch;
    if (b->deferred) {
        const int32_t begin = earliest(o, b, SNUG_PHASE_FORWARD, b->fetch);
        if (begin < b->fetch) b->early = begin;
        occupy(o, b, begin, b->fetch);
        if (begin > o->begin[SNUG_PHASE_FORWARD]) return;
        end = (int32_t)o->program->op_count;
    }
    const int32_t at = earliest(o, b, SNUG_PHASE_BACKWARD, end);
    if (at >= o->begin[SNUG_PHASE_BACKWARD + 1]) return;
    b->early = at;
    occupy(o, b, at, end);
}

/* The last operation of FORWARD, from `begin` on, up to which there is room for the buffer. */
static int32_t latest(const struct overlap *o, const struct buffer *b, int32_t begin) {
    const int32_t fetched = first_from(o, &o->fetches, b, begin), last = o->begin[SNUG_PHASE_FORWARD + 1];
    const int64_t bytes = bytes_of(o, b);
    int32_t at = begin;
    while (at < last && at != fetched && has_room(o, at, bytes)) at++;
    return at;
}

static void wait_later(struct overlap *o, struct buffer *b) {
    const int32_t at = latest(o, b, b->stored);
    if (at == b->stored) return;
    b->late = at;
    occupy(o, b, b->stored, at);
}

static void store_later(struct overlap *o, struct buffer *b) {
    const int64_t bytes = bytes_of(o, b);
    const int32_t end = (int32_t)o->program->op_count;
    if (b->store < 0) return;
    if (b->deferred) {
        wait_later(o, b);
        return;
    }
    /* untested: UPDATE reads nothing again that it has written */
    if (first_from(o, &o->fetches, b, b->stored + 1) >= 0) return;
    for (int32_t i = b->stored + 1; i < end; i++)
        if (!has_room(o, i, bytes)) return;
    const int32_t at = latest(o, b, o->begin[SNUG_PHASE_FORWARD]);
    if (at == o->begin[SNUG_PHASE_FORWARD]) return;
    b->late = at;
    occupy(o, b, b->stored + 1, end);
    occupy(o, b, o->begin[SNUG_PHASE_FORWARD], at);
}

/* ---- the new list of operations ------------------------------------------------------------------------------- */

static snug_status add(struct overlap *o, struct snug_op op, enum snug_phase phase) {
    op.phase = phase;
    op.crosses = true;
    op.unless = SNUG_UNLESS_NEVER;
    op.last = phase == SNUG_PHASE_BACKWARD; /* of a step's micro-batches */
    o->program->crosses = true;
    return snug_program_op(o->program, op);
}

/* In the order of use. */
static int by_use(const struct buffer *x, const struct buffer *y) {
    return x->deferred != y->deferred ? (x->deferred ? 1 : -1) : x->fetch - y->fetch;
}

/* The buffer whose store is waited for first, then the one that was fetched last. */
static int by_late(const void *a, const void *b) {
    const struct buffer *x = *(const struct buffer *const *)a, *y = *(const struct buffer *const *)b;
    return x->late != y->late ? (x->late < y->late ? -1 : 1) : by_use(y, x);
}

static int by_early(const void *a, const void *b) {
    const struct buffer *x = *(const struct buffer *const *)a, *y = *(const struct buffer *const *)b;
    return x->early != y->early ? (x->early < y->early ? -1 : 1) : by_use(x, y);
}

static snug_status sort_moved(struct overlap *o) {
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, o->count, sizeof *o->late, (void **)&o->late));
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, o->count, sizeof *o->early, (void **)&o->early));
    for (size_t i = 0; i < o->count; i++) {
        if (o->buffers[i].late >= 0) o->late[o->late_count++] = &o->buffers[i];
        if (o->buffers[i].early >= 0) o->early[o->early_count++] = &o->buffers[i];
    }
    if (o->late_count) qsort(o->late, o->late_count, sizeof *o->late, by_late);
    if (o->early_count) qsort(o->early, o->early_count, sizeof *o->early, by_early);
    return SNUG_OK;
}

static bool is_in_forward(const struct overlap *o, int32_t op) { return op < o->begin[SNUG_PHASE_FORWARD + 1]; }

/* The moved operations that come before operation `at` of the old list; next: the next of late and of early. */
static snug_status add_moved(struct overlap *o, const struct snug_op *ops, int32_t at, size_t next[2]) {
    const bool begins = at == o->begin[SNUG_PHASE_FORWARD];
    for (size_t i = 0; begins && i < o->late_count; i++)
        if (!o->late[i]->deferred) RETURN_IF_ERROR(add(o, ops[o->late[i]->store], SNUG_PHASE_FORWARD));
    for (; next[0] < o->late_count && o->late[next[0]]->late == at; next[0]++)
        RETURN_IF_ERROR(add(o, ops[o->late[next[0]]->stored], SNUG_PHASE_FORWARD));
    const enum snug_phase phase = is_in_forward(o, at) ? SNUG_PHASE_FORWARD : SNUG_PHASE_BACKWARD;
    for (; next[1] < o->early_count && o->early[next[1]]->early == at; next[1]++)
        RETURN_IF_ERROR(add(o, ops[o->early[next[1]]->fetch], phase));
    return SNUG_OK;
}

static snug_status merge(struct overlap *o, const struct snug_op *ops, int32_t count) {
    bool *left_out, *fetched;
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, (size_t)count, 2 * sizeof *left_out, (void **)&left_out));
    fetched = left_out + count;
    for (size_t i = 0; i < o->count; i++) {
        const struct buffer *b = &o->buffers[i];
        if (b->late >= 0) left_out[b->stored] = true;
        if (b->late >= 0 && !b->deferred) left_out[b->store] = true;
        if (b->early >= 0) *(is_in_forward(o, b->early) ? &left_out[b->fetch] : &fetched[b->fetch]) = true;
    }
    snug_status status = SNUG_OK;
    size_t next[2] = {0};
    for (int32_t i = 0; i < count && status == SNUG_OK; i++) {
        struct snug_op op = ops[i];
        if (fetched[i]) op.unless = SNUG_UNLESS_FETCHED;
        status = add_moved(o, ops, i, next);
        if (status == SNUG_OK && !left_out[i]) status = snug_program_op(o->program, op);
    }
    free(left_out);
    return status;
}

static snug_status overlap(struct overlap *o) {
    struct snug_program *program = o->program;
    RETURN_IF_ERROR(snug_find_live_bytes(program, &o->live, &o->most));
    RETURN_IF_ERROR(find_buffers(o));
    RETURN_IF_ERROR(find_uses(o));
    for (size_t i = 0; i < o->count; i++) fetch_earlier(o, &o->buffers[i]);
    for (size_t i = 0; i < o->count; i++) store_later(o, &o->buffers[i]);
    RETURN_IF_ERROR(sort_moved(o));
    struct snug_op *ops = program->ops;
    const size_t count = program->op_count;
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    const snug_status status = merge(o, ops, (int32_t)count);
    free(ops);
    return status;
}

snug_status snug_stage_overlap(struct snug_program *program, const struct snug_offload *how) {
    if (!how->classes || !how->overlaps || program->updates_in_backward) return SNUG_OK;
    struct overlap o = {.program = program};
    for (size_t i = 0; i < program->op_count; i++)
        for (int phase = (int)program->ops[i].phase + 1; phase <= SNUG_PHASE_COUNT; phase++)
            o.begin[phase] = (int32_t)i + 1;
    const snug_status status = overlap(&o);
    free(o.live);
    free(o.buffers);
    free(o.late);
    free(o.early);
    free(o.fetches.last);
    free(o.fetches.previous);
    free(o.stored.last);
    free(o.stored.previous);
    return status;
}
