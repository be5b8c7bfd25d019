/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedule of moves: where each FETCH and each gathering begins, and until when each STORE and each sum may take.
 *
 * Within a phase, a FETCH begins `ahead` operations before its use, and a STORE is waited for `ahead` operations after
 * its tensor was written.
 *
 * Moves of the update. The gradient norm is known only when BACKWARD is over, and the update itself takes far less time
 * than its moves. But what it reads can be fetched while BACKWARD frees the activations' memory, and what it wrote can
 * be stored while the next FORWARD runs and needs little memory yet. So each FETCH begins as early, and each STORE is
 * waited for as late as there is room: where the arena's peak is not exceeded. The lifetime of such a buffer wraps
 * around: from BACKWARD to the end, and from the beginning to its WAIT in FORWARD. A deferred update is in FORWARD: its
 * FETCH begins earlier there, or, if there is room from there on, in BACKWARD.
 *
 * Moves between ranks, on an asynchronous backend, whose collectives have a stream of their own; the partition stage
 * puts each where its result is needed. Gathered weights that are first used in one layer, or in the embeddings or the
 * head, begin when the layer before it begins. Layers are alike, so a larger distance would gain nothing: the link is
 * always busy where it is slower than the operations, and never waited for where it is faster. The arena holds two
 * layers' weights. Updated matrices and tables: UPDATE leaves each rank its shard, and the next FORWARD gathers them in
 * the same way; those that it needs at once are updated first, and gathered beside the other updates. Sums of divided
 * gradients: a group is exchanged while the operations before it in the model compute the next one, before which it is
 * waited for. Where an operand may be in the backing store, a collective stays where it was.
 */
#include <stdlib.h>

#include "core/min_max.h"
#include "plan/moves.h"

/* ---- between ranks ---------------------------------------------------------------------------------------------- */

/* Vectors stay in UPDATE: they are small, and a GPU converts biases before FORWARD. */
static bool is_vector(const struct snug_program *program, int32_t tensor) {
    for (size_t i = 0; i < program->parameter_count; i++)
        if (program->parameters[i].tensor == tensor) return !program->parameters[i].shape[1];
    return false; /* a copy of a matrix */
}

/* The first operation from `from` to `end` that uses a tensor; `end` if there is none. */
static int32_t first_use(const struct snug_program *program, int32_t tensor, int32_t from, int32_t end) {
    for (int32_t i = from; i < end; i++)
        for (int k = 0; k < snug_op_operands(&program->ops[i]); k++)
            if (program->ops[i].operands[k] == tensor) return i;
    return end;
}

/* The CAST of UPDATE that reads the tensor; or -1. */
static int32_t cast_of(const struct snug_moves *moves, int32_t tensor) {
    for (int32_t i = moves->begin[SNUG_PHASE_UPDATE]; i < moves->begin[SNUG_PHASE_UPDATE + 1]; i++)
        if (moves->program->ops[i].kind == SNUG_OP_CAST && moves->program->ops[i].cast.p == tensor) return i;
    return -1;
}

/* Operation i of the list gathers. Weights that only HEAD uses are waited for at the end of FORWARD, because HEAD runs
   in chunks. */
static snug_status add_gathering(struct snug_moves *moves, int32_t i) {
    const struct snug_program *program = moves->program;
    struct snug_op op = program->ops[i], then = {0};
    const int32_t x = op.gather_ranks.x;
    op.crosses = op.phase == SNUG_PHASE_UPDATE;
    if (op.crosses) op.phase = SNUG_PHASE_FORWARD;
    op.beside = true;
    const int32_t begin = op.crosses ? moves->begin[op.phase] : i + 1, end = moves->begin[op.phase + 1];
    const int32_t cast = op.crosses ? cast_of(moves, x) : -1;
    int32_t use = first_use(program, x, begin, end);
    if (cast >= 0) {
        then = program->ops[cast];
        then.phase = op.phase;
        then.crosses = true;
        use = snug_min(use, first_use(program, then.cast.q, begin, end));
        snug_edits_drop(&moves->edits, (size_t)cast);
    }
    snug_edits_drop(&moves->edits, (size_t)i);
    RETURN_IF_ERROR(snug_moves_add(moves, op, x, 0, i, use));
    moves->items[moves->count - 1].then = then;
    return SNUG_OK;
}

static int in_order_of_use(const void *a, const void *b) {
    const struct snug_move *x = a, *y = b;
    if (x->op.phase != y->op.phase) return (int)x->op.phase - (int)y->op.phase;
    return x->end != y->end ? x->end - y->end : x->begin - y->begin;
}

static bool is_of_group(const struct snug_program *program, const struct snug_move *first, const struct snug_move *m) {
    const struct snug_tensor *x = &program->tensors[first->tensor], *y = &program->tensors[m->tensor];
    return first->op.phase == m->op.phase && x->part == y->part && x->layer == y->layer;
}

/* The first group of a phase begins with it, and the others when the one before is used. Updated weights that FORWARD
   needs at once are gathered in UPDATE, beside the updates of the others. */
static void group(struct snug_moves *moves, size_t begin) {
    size_t first = begin, before = begin; /* the first ones of this group, and of the one before it */
    for (size_t i = begin; i < moves->count; i++) {
        struct snug_move *m = &moves->items[i];
        if (!is_of_group(moves->program, &moves->items[first], m)) {
            before = first;
            first = i;
        }
        m->group = (int32_t)first;
        m->follows = first != before && moves->items[before].op.phase == m->op.phase;
        m->begin = m->follows ? moves->items[before].end : moves->begin[m->op.phase];
    }
}

/* Whether op updates this rank's shard of x. */
static bool updates(const struct snug_program *program, const struct snug_op *op, int32_t x) {
    return snug_op_is(op, SNUG_OP_UPDATES) &&
           (snug_moves_base(program, op->update.weight) == x || snug_moves_base(program, op->update.copy) == x);
}

/* An updated weight is gathered in UPDATE, at whose beginning it is updated. */
static snug_status gather_at_once(struct snug_moves *moves, struct snug_move *m) {
    const int32_t begin = moves->begin[SNUG_PHASE_UPDATE], end = moves->begin[SNUG_PHASE_UPDATE + 1];
    m->op.phase = m->then.phase = SNUG_PHASE_UPDATE;
    m->op.crosses = m->then.crosses = false;
    m->begin = begin;
    m->end = end;
    for (int32_t u = begin; u < end; u++) {
        if (!updates(moves->program, &moves->program->ops[u], m->tensor)) continue;
        snug_edits_drop(&moves->edits, (size_t)u);
        RETURN_IF_ERROR(snug_edits_insert(&moves->edits, (size_t)begin, moves->program->ops[u]));
    }
    return SNUG_OK;
}

static snug_status add_gatherings(struct snug_moves *moves) {
    const unsigned weights = 1 << SNUG_MEMORY_WEIGHTS | SNUG_OFFLOAD_MASTERS;
    const size_t begin = moves->count;
    for (int32_t i = 0; i < moves->begin[SNUG_PHASE_COUNT]; i++) {
        const struct snug_op *op = &moves->program->ops[i];
        if (op->kind != SNUG_OP_GATHER_RANKS) continue;
        const bool staged = op->phase == SNUG_PHASE_FORWARD || op->phase == SNUG_PHASE_BACKWARD;
        const bool updated = op->phase == SNUG_PHASE_UPDATE && !is_vector(moves->program, op->gather_ranks.x);
        if ((staged && !(moves->how->classes & weights)) || (updated && !moves->how->classes))
            RETURN_IF_ERROR(add_gathering(moves, i));
    }
    if (moves->count == begin) return SNUG_OK;
    qsort(moves->items + begin, moves->count - begin, sizeof *moves->items, in_order_of_use);
    group(moves, begin);
    for (size_t i = begin; i < moves->count; i++)
        if (moves->items[i].op.crosses && !moves->items[i].follows)
            RETURN_IF_ERROR(gather_at_once(moves, &moves->items[i]));
    return SNUG_OK;
}

/* Gradients that persist are not used again in the phase. */
static snug_status add_sums(struct snug_moves *moves) {
    struct snug_op *ops = moves->program->ops;
    size_t pending = moves->count;
    for (int32_t i = moves->begin[SNUG_PHASE_BACKWARD]; i < moves->begin[SNUG_PHASE_BACKWARD + 1]; i++) {
        if (ops[i].kind != SNUG_OP_SUM_RANKS || !ops[i].sum_ranks.sum) continue;
        const int32_t g = ops[i].sum_ranks.g;
        for (; ops[i - 1].kind != SNUG_OP_SUM_RANKS && pending < moves->count; pending++) moves->items[pending].end = i;
        ops[i].beside = true;
        if (moves->program->tensors[g].persistent) continue;
        RETURN_IF_ERROR(snug_moves_add(moves, ops[i], g, 0, i, moves->begin[SNUG_PHASE_BACKWARD + 1]));
    }
    return SNUG_OK;
}

/* ---- within a phase --------------------------------------------------------------------------------------------- */

/* A tensor is not fetched before an earlier interval of its phase has been stored, which is then waited for before the
   first use. */
static void place_fetch(struct snug_moves *moves, struct snug_move *m) {
    m->begin = snug_max(moves->begin[m->op.phase], m->end - moves->how->ahead);
    for (int32_t i = m->previous; i >= 0; i = moves->items[i].previous) {
        struct snug_move *p = &moves->items[i];
        if (p->op.kind != SNUG_OP_STORE || p->op.phase != m->op.phase) continue;
        if (!snug_moves_share(moves->program, p, m)) continue;
        p->end = snug_min(p->end, m->end);
        m->begin = snug_max(m->begin, p->end);
    }
}

static void place_copies(struct snug_moves *moves) {
    for (size_t i = 0; i < moves->count; i++) {
        struct snug_move *m = &moves->items[i];
        if (m->op.kind == SNUG_OP_FETCH)
            place_fetch(moves, m);
        else
            m->end = snug_max(m->end, snug_min(moves->begin[m->op.phase + 1], m->begin + moves->how->ahead));
    }
}

/* ---- the update's ----------------------------------------------------------------------------------------------- */

/* Time in slots: 2 i is the gap before operation i, up to its WAITs, and 2 i + 1 is from there to the end of i. */
struct room {
    struct snug_moves *moves;
    int64_t *live, most; /* bytes by slot, and their peak */
    bool *used;          /* by tensor: the update fetches it */
};

static bool is_copy(const struct snug_move *m) { return snug_op_is(&m->op, SNUG_OP_COPIES); }

/* Lifetimes in slots, which include the moves. Those of staging buffers are within their intervals, also where updates
   of the step before use them. */
static void find_lifetimes(struct snug_moves *moves) {
    struct snug_program *program = moves->program;
    snug_find_lifetimes(program);
    for (size_t i = 0; i < program->tensor_count; i++) {
        struct snug_tensor *t = &program->tensors[i];
        t->first = 2 * t->first + 1;
        t->last = 2 * t->last + 1;
    }
    for (size_t i = 0; i < moves->count; i++) {
        struct snug_tensor *t = &program->tensors[moves->items[i].tensor];
        if (!is_copy(&moves->items[i])) continue;
        t->first = INT32_MAX;
        t->last = -1;
    }
    for (int32_t i = 0; i < moves->begin[SNUG_PHASE_COUNT]; i++)
        for (int k = 0; k < snug_op_operands(&program->ops[i]); k++) {
            struct snug_tensor *t = &program->tensors[snug_moves_base(program, program->ops[i].operands[k])];
            t->first = snug_min(t->first, 2 * i + 1);
            t->last = snug_max(t->last, 2 * i + 1);
        }
    for (size_t i = 0; i < moves->count; i++) {
        const struct snug_move *m = &moves->items[i];
        struct snug_tensor *t = &program->tensors[m->tensor];
        t->first = snug_min(t->first, 2 * m->begin + 1);
        t->last = snug_max(t->last, 2 * m->end);
    }
}

static bool has_room(const struct room *r, int32_t begin, int32_t end, int64_t bytes) {
    for (int32_t i = begin; i < end; i++)
        if (r->live[i] + bytes > r->most) return false;
    return true;
}

static int64_t bytes_of(const struct room *r, const struct snug_move *m) {
    return snug_tensor_bytes(r->moves->program, &r->moves->program->tensors[m->tensor]);
}

static void occupy(struct room *r, const struct snug_move *m, int32_t begin, int32_t end) {
    const int64_t bytes = bytes_of(r, m);
    for (int32_t i = begin; i < end; i++) r->live[i] += bytes;
}

/* The first slot of a phase from which on there is room for the buffer up to slot end, and its values are in the
   backing store. */
static int32_t earliest(const struct room *r, const struct snug_move *m, enum snug_phase phase, int32_t end) {
    int32_t at = end, begin = 2 * r->moves->begin[phase];
    for (int32_t i = r->moves->latest[m->op.fetch.backing]; i >= 0; i = r->moves->items[i].previous) {
        const struct snug_move *p = &r->moves->items[i];
        if (p->op.kind == SNUG_OP_STORE && 2 * p->end < end && snug_moves_share(r->moves->program, p, m))
            begin = snug_max(begin, 2 * p->end + 1);
    }
    const int64_t bytes = bytes_of(r, m);
    while (at > begin && has_room(r, at - 1, at, bytes)) at--;
    return at;
}

/* The slot of BACKWARD from which on there is room up to slot end; takes it. False: there is none. */
static bool fetch_across(struct room *r, struct snug_move *m, int32_t end, int32_t *slot) {
    *slot = earliest(r, m, SNUG_PHASE_BACKWARD, end);
    if (*slot >= 2 * r->moves->begin[SNUG_PHASE_BACKWARD + 1]) return false;
    m->across = *slot / 2;
    occupy(r, m, *slot, end);
    return true;
}

static void fetch_earlier(struct room *r, struct snug_move *m) {
    const int32_t *begin = r->moves->begin, fetch = 2 * m->begin + 1;
    int32_t slot = fetch;
    if (m->op.crosses) {
        const int32_t first = earliest(r, m, SNUG_PHASE_FORWARD, fetch);
        occupy(r, m, first, fetch);
        if (first > 2 * begin[SNUG_PHASE_FORWARD] || !fetch_across(r, m, 2 * begin[SNUG_PHASE_COUNT], &slot)) {
            m->begin = first / 2;
            slot = first;
        }
    } else if (!fetch_across(r, m, fetch, &slot)) {
        return;
    }
    m->before_waits = slot % 2 == 0;
}

/* The first operation from `begin` on before which elements of the buffer are fetched again; INT32_MAX: none. */
static int32_t fetched_again(const struct room *r, const struct snug_move *m, int32_t begin) {
    int32_t first = INT32_MAX;
    for (int32_t i = r->moves->latest[m->op.store.backing]; i >= 0; i = r->moves->items[i].previous) {
        const struct snug_move *p = &r->moves->items[i];
        if (p->op.kind == SNUG_OP_FETCH && p->begin >= begin && snug_moves_share(r->moves->program, p, m))
            first = snug_min(first, p->begin);
    }
    return first;
}

/* The last operation of FORWARD, from `begin` on, before which the buffer may be waited for: there is room up to it. */
static int32_t latest(const struct room *r, const struct snug_move *m, int32_t begin) {
    const int32_t end = snug_min(fetched_again(r, m, begin), r->moves->begin[SNUG_PHASE_FORWARD + 1]);
    const int64_t bytes = bytes_of(r, m);
    int32_t at = begin;
    while (at < end && has_room(r, 2 * at + 1, 2 * at + 3, bytes)) at++;
    return at;
}

static void store_later(struct room *r, struct snug_move *m) {
    const int32_t *begin = r->moves->begin, end = 2 * begin[SNUG_PHASE_COUNT], stored = 2 * m->end + 1;
    if (m->op.crosses) {
        m->end = latest(r, m, m->end);
        occupy(r, m, stored, 2 * m->end + 1);
        return;
    }
    if (fetched_again(r, m, m->end) < INT32_MAX) return;
    if (!has_room(r, stored, end, bytes_of(r, m))) return;
    const int32_t first = begin[SNUG_PHASE_FORWARD], at = latest(r, m, first);
    if (at == first) return;
    m->across = at;
    occupy(r, m, stored, end);
    occupy(r, m, 2 * first, 2 * at + 1);
}

/* Whether a FETCH or STORE is of an update, in UPDATE or deferred, and of a tensor that lives across steps. */
static bool is_of_update(const struct snug_program *program, const struct snug_move *m, bool deferred) {
    const int32_t backing = m->op.kind == SNUG_OP_FETCH ? m->op.fetch.backing : m->op.store.backing;
    if (!program->tensors[backing].persistent) return false;
    return deferred ? m->op.phase == SNUG_PHASE_FORWARD && m->op.crosses : m->op.phase == SNUG_PHASE_UPDATE;
}

static snug_status move_update(struct snug_moves *moves) {
    struct room r = {.moves = moves};
    const struct snug_program *program = moves->program;
    const size_t slots = 2 * program->op_count + 1;
    RETURN_IF_ERROR(snug_edits_alloc(&moves->edits, slots, sizeof *r.live, (void **)&r.live));
    RETURN_IF_ERROR(snug_edits_alloc(&moves->edits, program->tensor_count, sizeof *r.used, (void **)&r.used));
    find_lifetimes(moves);
    r.most = snug_find_live_bytes(program, r.live, slots);
    for (int deferred = 0; deferred < 2; deferred++)
        for (size_t i = 0; i < moves->count; i++) {
            struct snug_move *m = &moves->items[i];
            if (m->op.kind != SNUG_OP_FETCH || !is_of_update(program, m, deferred)) continue;
            r.used[m->tensor] = true;
            fetch_earlier(&r, m);
        }
    for (int deferred = 0; deferred < 2; deferred++)
        for (size_t i = 0; i < moves->count; i++) {
            struct snug_move *m = &moves->items[i];
            if (m->op.kind == SNUG_OP_STORE && r.used[m->tensor] && is_of_update(program, m, deferred))
                store_later(&r, m);
        }
    return SNUG_OK;
}

snug_status snug_schedule_moves(struct snug_moves *moves) {
    const struct snug_offload *how = moves->how;
    place_copies(moves);
    if (!how->overlaps) return SNUG_OK;
    if (moves->program->ranks > 1) {
        RETURN_IF_ERROR(add_gatherings(moves));
        if (!(how->classes >> SNUG_MEMORY_GRADIENTS & 1)) RETURN_IF_ERROR(add_sums(moves));
    }
    return how->classes && !moves->program->updates_in_backward ? move_update(moves) : SNUG_OK;
}
