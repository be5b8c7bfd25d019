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
 * UPDATE keeps a FETCH for a step in which BACKWARD did not fetch, or whose arena another program used in between. See
 * struct snug_crossing for what runs when.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/stages.h"

/* A staging buffer of UPDATE, and where its operations are; -1: it has none. */
struct buffer {
    int32_t tensor, backing, fetch, store, stored; /* stored: the WAIT after STORE */
    int64_t element, count;                        /* of backing */
    int32_t early;                                 /* the operation of BACKWARD before which FETCH is inserted, or -1 */
    int32_t late; /* the operation of FORWARD before which the WAIT is inserted, or -1 */
};

struct overlap {
    struct snug_program *program;
    int32_t begin[SNUG_PHASE_COUNT + 1];
    int64_t *live, most; /* bytes by operation, and their peak */
    struct buffer *buffers;
    size_t count;
    const struct buffer **late; /* those that FORWARD stores, in the order in which it waits for them */
    size_t late_count;
    int32_t *stores; /* by staging buffer: the operation that stores it, or -1 */
};

static snug_status find_live_bytes(struct overlap *o) {
    struct snug_program *program = o->program;
    snug_find_lifetimes(program);
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *o->live, (void **)&o->live));
    for (size_t i = 1; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        /* untested: no stage leaves a tensor unused */
        if (t->persistent || t->offloaded || t->view || t->first < 0) continue;
        for (int32_t k = t->first; k <= t->last; k++) o->live[k] += snug_tensor_bytes(program, t);
    }
    for (size_t i = 0; i < program->op_count; i++)
        if (o->live[i] > o->most) o->most = o->live[i];
    return SNUG_OK;
}

/* The staging buffers that UPDATE fetches, each once. */
static snug_status find_buffers(struct overlap *o) {
    const struct snug_program *program = o->program;
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *o->buffers, (void **)&o->buffers));
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof *o->stores, (void **)&o->stores));
    for (size_t i = 0; i < program->tensor_count; i++) o->stores[i] = -1;
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_STORE) o->stores[program->ops[i].store.x] = (int32_t)i;
    int32_t *of;
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof *of, (void **)&of)); /* number + 1 */
    for (int32_t i = o->begin[SNUG_PHASE_UPDATE]; i < (int32_t)program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_FETCH && program->tensors[op->fetch.backing].persistent) {
            const struct snug_tensor *t = &program->tensors[op->fetch.x];
            o->buffers[o->count++] = (struct buffer){.tensor = op->fetch.x,
                                                     .backing = op->fetch.backing,
                                                     .fetch = i,
                                                     .store = -1,
                                                     .stored = -1,
                                                     .element = op->element,
                                                     .count = t->rows * t->cols,
                                                     .early = -1,
                                                     .late = -1};
            of[op->fetch.x] = (int32_t)o->count;
        } else if (op->kind == SNUG_OP_STORE && of[op->store.x]) {
            o->buffers[of[op->store.x] - 1].store = i;
        } else if (op->kind == SNUG_OP_WAIT && of[op->wait.x] && o->buffers[of[op->wait.x] - 1].store >= 0) {
            o->buffers[of[op->wait.x] - 1].stored = i;
        }
    }
    free(of);
    return SNUG_OK;
}

/* Whether op copies elements of the buffer's backing store. */
static bool copies(const struct overlap *o, const struct snug_op *op, enum snug_op_kind kind, const struct buffer *b) {
    if (op->kind != kind) return false;
    const int32_t backing = kind == SNUG_OP_FETCH ? op->fetch.backing : op->store.backing;
    const struct snug_tensor *x = &o->program->tensors[kind == SNUG_OP_FETCH ? op->fetch.x : op->store.x];
    return backing == b->backing && op->element < b->element + b->count && b->element < op->element + x->rows * x->cols;
}

/* Whether op makes sure that earlier values of the buffer are in its backing store. */
static bool ends_store(const struct overlap *o, const struct snug_op *op, const struct buffer *b) {
    const int32_t store = op->kind == SNUG_OP_WAIT ? o->stores[op->wait.x] : -1;
    return store >= 0 && op > &o->program->ops[store] && copies(o, &o->program->ops[store], SNUG_OP_STORE, b);
}

static bool has_room(const struct overlap *o, int32_t op, int64_t bytes) { return o->live[op] + bytes <= o->most; }

static void fetch_earlier(struct overlap *o, struct buffer *b) {
    const int64_t bytes = snug_tensor_bytes(o->program, &o->program->tensors[b->tensor]);
    int32_t at = b->fetch;
    while (at > o->begin[SNUG_PHASE_BACKWARD] && has_room(o, at - 1, bytes) &&
           !ends_store(o, &o->program->ops[at - 1], b))
        at--;
    if (at >= o->begin[SNUG_PHASE_BACKWARD + 1]) return;
    b->early = at;
    for (int32_t i = at; i < b->fetch; i++) o->live[i] += bytes;
}

static void store_later(struct overlap *o, struct buffer *b) {
    const int64_t bytes = snug_tensor_bytes(o->program, &o->program->tensors[b->tensor]);
    const int32_t end = (int32_t)o->program->op_count;
    if (b->store < 0) return;
    for (int32_t i = b->stored + 1; i < end; i++) {
        /* untested: UPDATE reads nothing again that it has written */
        if (!has_room(o, i, bytes) || copies(o, &o->program->ops[i], SNUG_OP_FETCH, b)) return;
    }
    int32_t at = o->begin[SNUG_PHASE_FORWARD];
    while (at < o->begin[SNUG_PHASE_FORWARD + 1] && has_room(o, at, bytes) &&
           !copies(o, &o->program->ops[at], SNUG_OP_FETCH, b))
        at++;
    if (at == o->begin[SNUG_PHASE_FORWARD]) return;
    b->late = at;
    for (int32_t i = b->stored + 1; i < end; i++) o->live[i] += bytes;
    for (int32_t i = o->begin[SNUG_PHASE_FORWARD]; i < at; i++) o->live[i] += bytes;
}

/* ---- the new list of operations ------------------------------------------------------------------------------- */

static snug_status add(struct overlap *o, struct snug_op op, enum snug_phase phase) {
    op.phase = phase;
    op.crosses = true;
    op.last = phase == SNUG_PHASE_BACKWARD; /* of a step's micro-batches */
    o->program->crosses = true;
    return snug_program_op(o->program, op);
}

/* The buffer whose store is waited for first, then the one that was fetched last. */
static int by_late(const void *a, const void *b) {
    const struct buffer *x = *(const struct buffer *const *)a, *y = *(const struct buffer *const *)b;
    return x->late != y->late ? (x->late < y->late ? -1 : 1) : y->fetch - x->fetch;
}

static snug_status sort_stores(struct overlap *o) {
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, o->count, sizeof *o->late, (void **)&o->late));
    for (size_t i = 0; i < o->count; i++)
        if (o->buffers[i].late >= 0) o->late[o->late_count++] = &o->buffers[i];
    if (o->late_count) qsort(o->late, o->late_count, sizeof *o->late, by_late);
    return SNUG_OK;
}

/* The moved operations that come before operation `at` of the old list. */
static snug_status add_moved(struct overlap *o, const struct snug_op *ops, int32_t at) {
    if (at > o->begin[SNUG_PHASE_BACKWARD + 1]) return SNUG_OK;
    for (size_t i = 0; at == o->begin[SNUG_PHASE_FORWARD] && i < o->late_count; i++)
        RETURN_IF_ERROR(add(o, ops[o->late[i]->store], SNUG_PHASE_FORWARD));
    for (size_t i = 0; i < o->late_count; i++)
        if (o->late[i]->late == at) RETURN_IF_ERROR(add(o, ops[o->late[i]->stored], SNUG_PHASE_FORWARD));
    for (size_t i = 0; i < o->count; i++)
        if (o->buffers[i].early == at) RETURN_IF_ERROR(add(o, ops[o->buffers[i].fetch], SNUG_PHASE_BACKWARD));
    return SNUG_OK;
}

static snug_status merge(struct overlap *o, const struct snug_op *ops, int32_t count) {
    bool *left_out, *crossing;
    RETURN_IF_ERROR(snug_alloc(o->program->ctx, (size_t)count, 2 * sizeof *left_out, (void **)&left_out));
    crossing = left_out + count;
    for (size_t i = 0; i < o->count; i++) {
        const struct buffer *b = &o->buffers[i];
        if (b->late >= 0) left_out[b->store] = left_out[b->stored] = true;
        if (b->early >= 0) crossing[b->fetch] = true;
    }
    snug_status status = SNUG_OK;
    for (int32_t i = 0; i < count && status == SNUG_OK; i++) {
        struct snug_op op = ops[i];
        op.crosses = crossing[i];
        status = add_moved(o, ops, i);
        if (status == SNUG_OK && !left_out[i]) status = snug_program_op(o->program, op);
    }
    free(left_out);
    return status;
}

static snug_status overlap(struct overlap *o) {
    struct snug_program *program = o->program;
    RETURN_IF_ERROR(find_live_bytes(o));
    RETURN_IF_ERROR(find_buffers(o));
    for (size_t i = 0; i < o->count; i++) fetch_earlier(o, &o->buffers[i]);
    for (size_t i = 0; i < o->count; i++) store_later(o, &o->buffers[i]);
    RETURN_IF_ERROR(sort_stores(o));
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
    free(o.stores);
    return status;
}
