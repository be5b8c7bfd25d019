/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of moves: calls its steps, and inserts the moves that they found and scheduled. */
#include "plan/moves.h"

#include <stdlib.h>

snug_status snug_moves_add(struct snug_moves *moves, struct snug_op op, int32_t tensor, int32_t backing, int32_t begin,
                           int32_t end) {
    RETURN_IF_ERROR(snug_grow(moves->program->ctx, (void **)&moves->items, &moves->capacity, moves->count + 1,
                              sizeof *moves->items));
    moves->items[moves->count] = (struct snug_move){
        .op = op, .tensor = tensor, .begin = begin, .end = end, .across = -1, .previous = moves->latest[backing]};
    moves->latest[backing] = (int32_t)moves->count++;
    return SNUG_OK;
}

/* ---- the new list of operations -------------------------------------------------------------------------------- */

/* An operation to insert before operation `at`. At one position, buffers are freed before others are fetched that need
   their bytes, and gathering that follows other gathering begins after the WAITs for that. */
struct insertion {
    int32_t at;
    enum { STORES, FIRST, STORED, FETCHES, FETCHED, FOLLOWS } order;
    int32_t key[2], number; /* number: in the order of insertion */
    struct snug_op op;
};

struct emission {
    struct snug_moves *moves;
    struct insertion *items;
    size_t count;
};

static void add(struct emission *e, int32_t at, int order, int32_t first, int32_t second, struct snug_op op) {
    e->items[e->count] = (struct insertion){at, order, {first, second}, (int32_t)e->count, op};
    e->count++;
}

static int in_order(const void *a, const void *b) {
    const struct insertion *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->order != y->order) return (int)x->order - (int)y->order;
    for (int i = 0; i < 2; i++)
        if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
    return x->number - y->number;
}

/* The operation in another phase than that in which the tensor is used. */
static struct snug_op crossing(const struct emission *e, struct snug_op op, enum snug_phase phase) {
    e->moves->program->crosses = op.crosses = true;
    op.phase = phase;
    op.unless = SNUG_UNLESS_NEVER;
    op.last = phase == SNUG_PHASE_BACKWARD; /* of a step's micro-batches */
    return op;
}

static struct snug_op wait_of(const struct snug_program *program, const struct snug_move *m) {
    const struct snug_tensor *t = &program->tensors[m->tensor];
    return (struct snug_op){.kind = SNUG_OP_WAIT,
                            .phase = m->op.phase,
                            .part = t->part,
                            .layer = t->layer,
                            .crosses = m->op.crosses,
                            .flushed = m->op.flushed,
                            .wait = {.x = m->tensor}};
}

/* What is used first is fetched first; an update in the next FORWARD is later than those in UPDATE. */
static void add_fetch(struct emission *e, const struct snug_move *m, int32_t number) {
    const int32_t ops = e->moves->begin[SNUG_PHASE_COUNT], due = m->op.crosses ? ops + m->end : m->end;
    const int order = m->before_waits ? FIRST : FETCHES;
    struct snug_op op = m->op;
    if (m->across < 0) {
        add(e, m->begin, order, due, number, op);
        return;
    }
    add(e, m->across, order, due, number, crossing(e, op, SNUG_PHASE_BACKWARD));
    op.unless = SNUG_UNLESS_FETCHED; /* for a step in which BACKWARD did not, or whose arena was used in between */
    add(e, m->begin, FETCHES, due, number, op);
}

/* Stores begin in the order in which they are waited for: first what FORWARD itself fetches, then the buffers that were
   fetched last. So most lifetimes are nested, as those of the layers' activations, between which they are placed. */
static void add_store(struct emission *e, const struct snug_move *m, int32_t number) {
    struct snug_move late = *m;
    if (m->across < 0) {
        add(e, m->begin, STORES, number, 0, m->op);
        add(e, m->end, STORED, number, 0, wait_of(e->moves->program, m));
        return;
    }
    late.op = crossing(e, m->op, SNUG_PHASE_FORWARD);
    add(e, e->moves->begin[SNUG_PHASE_FORWARD], STORES, m->across, -number, late.op);
    add(e, m->across, STORED, m->across, -number, wait_of(e->moves->program, &late));
}

static void add_move(struct emission *e, int32_t number) {
    const struct snug_move *m = &e->moves->items[number];
    const struct snug_op wait = wait_of(e->moves->program, m);
    switch (m->op.kind) {
    case SNUG_OP_STORE: add_store(e, m, number); return;
    case SNUG_OP_SUM_RANKS: add(e, m->end, STORED, number, 0, wait); return; /* the sum itself is in the list */
    case SNUG_OP_FETCH: add_fetch(e, m, number); break;
    default: /* those that cross phases come first, so that the others are one call in every micro-batch */
        add(e, m->begin, m->follows ? FOLLOWS : FETCHES, m->group, !m->op.crosses, m->op);
        e->moves->program->crosses |= m->op.crosses;
    }
    add(e, m->end, FETCHED, number, 0, wait);
    if (m->then.cast.q) add(e, m->end, FETCHED, number, 0, m->then);
}

static snug_status emit(struct snug_moves *moves) {
    enum { MOST = 3 }; /* operations of a move */
    struct emission e = {.moves = moves};
    RETURN_IF_ERROR(snug_edits_alloc(&moves->edits, MOST * moves->count, sizeof *e.items, (void **)&e.items));
    for (size_t i = 0; i < moves->count; i++) add_move(&e, (int32_t)i);
    if (e.count) qsort(e.items, e.count, sizeof *e.items, in_order);
    for (size_t i = 0; i < e.count; i++)
        RETURN_IF_ERROR(snug_edits_insert(&moves->edits, (size_t)e.items[i].at, e.items[i].op));
    return SNUG_OK;
}

/* ---- the stage -------------------------------------------------------------------------------------------------- */

static snug_status move(struct snug_moves *moves, size_t tensors) {
    int32_t *copies;
    RETURN_IF_ERROR(snug_edits_alloc(&moves->edits, tensors, sizeof *moves->latest, (void **)&moves->latest));
    for (size_t i = 0; i < tensors; i++) moves->latest[i] = -1;
    if (moves->how->classes) RETURN_IF_ERROR(snug_find_residencies(moves, tensors));
    RETURN_IF_ERROR(snug_begin_host_updates(moves, &copies));
    RETURN_IF_ERROR(snug_schedule_moves(moves));
    RETURN_IF_ERROR(emit(moves));
    return snug_end_host_updates(moves, copies);
}

snug_status snug_stage_moves(struct snug_program *program, const struct snug_offload *how) {
    struct snug_moves moves = {.program = program, .how = how};
    const size_t tensors = program->tensor_count;
    if (!how->classes && (program->ranks < 2 || !how->overlaps)) return SNUG_OK;
    if (how->classes) {
        RETURN_IF_ERROR(snug_choose_offloaded(program, how));
        RETURN_IF_ERROR(snug_place_updates(program, how));
        RETURN_IF_ERROR(snug_cut_parts(program, how));
    }
    snug_program_phases(program, moves.begin);
    snug_status status = snug_edits_open(program, &moves.edits);
    if (status == SNUG_OK) status = move(&moves, tensors);
    free(moves.items);
    return snug_edits_close(&moves.edits, status);
}
