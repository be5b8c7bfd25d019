/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When copies begin, and when they are waited for. The offload stage inserts them next to the operations that need
 * them. Here each FETCH moves to an earlier operation of its phase, so that its copy is done by the time at which its
 * buffer is used, and the WAIT after each STORE moves to where that copy is done: by the rates of copies and operations
 * on this GPU, and as far as the arena's peak does not rise.
 *
 * The clock is that of a phase whose fetches begin as early as their values exist: operations wait only where the link
 * is slower than they are. Against it the fetches are scheduled from the last one back to the first: a copy ends when
 * it is used or when the next one begins, so that no buffer is occupied for longer than its copy takes. The stores are
 * scheduled from the first one on.
 */
#include <math.h>
#include <stdlib.h>

#include "plan/rates.h"

/* A fetch takes this much longer in the schedule than by the rates, because operations may be faster than planned. Not
 * in UPDATE, whose operations take no time beside their copies, so that the copies follow each other anyway. */
static const double MARGIN = 1.25;

/* A copy, and the WAIT for it in the same phase. */
struct paced {
    int32_t begin, wait; /* the operations that start it and wait for it */
    int32_t limit;       /* FETCH: the first operation before which it may begin; STORE: the last to be waited before */
    int32_t to;          /* the operation before which FETCH, or the WAIT of STORE, moves */
    double seconds, when; /* when: FETCH: its latest beginning */
};

struct pace {
    struct snug_program *program;
    const struct snug_rates *rates;
    struct snug_load load;
    int32_t begin[SNUG_PHASE_COUNT + 1];
    int64_t *live, most;  /* bytes by operation, and their peak */
    double *start;        /* by operation: seconds from the beginning of its phase */
    struct paced *copies; /* in the order of their WAITs */
    size_t count;
};

static double seconds_of(const struct pace *p, const struct snug_op *op) {
    return snug_estimate_op(p->rates, p->program, op, &p->load, p->load.rows).seconds;
}

static enum snug_phase phase_of(const struct pace *p, const struct paced *c) { return p->program->ops[c->begin].phase; }

static bool is_store(const struct pace *p, const struct paced *c) {
    return p->program->ops[c->begin].kind == SNUG_OP_STORE;
}

static int32_t backing_of(const struct pace *p, const struct paced *c) {
    const struct snug_op *op = &p->program->ops[c->begin];
    return op->kind == SNUG_OP_STORE ? op->store.backing : op->fetch.backing;
}

static int64_t bytes_of(const struct pace *p, const struct paced *c) {
    return snug_tensor_bytes(p->program, &p->program->tensors[p->program->ops[c->wait].wait.x]);
}

/* Values are fetched after the WAIT for their last STORE; parts of a tensor count as the tensor. last: by tensor, the
 * copy of a staging buffer that was not waited for, and the last WAIT for a STORE to a backing tensor. */
static void find_copies(struct pace *p, struct paced *started, int32_t *last, int32_t *stored) {
    const struct snug_program *program = p->program;
    for (int32_t i = 0; i < (int32_t)program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const bool store = op->kind == SNUG_OP_STORE;
        if (store || op->kind == SNUG_OP_FETCH) {
            const int32_t after = store ? 0 : stored[op->fetch.backing] + 1;
            const int32_t first = p->begin[op->phase];
            started[i] = (struct paced){
                .begin = i, .limit = after > first ? after : first, .to = i, .seconds = seconds_of(p, op)};
            last[store ? op->store.x : op->fetch.x] = i;
        }
        if (op->kind != SNUG_OP_WAIT || last[op->wait.x] < 0) continue;
        struct paced copy = started[last[op->wait.x]];
        last[op->wait.x] = -1;
        copy.wait = i;
        if (is_store(p, &copy)) {
            stored[backing_of(p, &copy)] = copy.to = i;
            copy.limit = p->begin[op->phase + 1];
        }
        if (phase_of(p, &copy) == op->phase) p->copies[p->count++] = copy;
    }
}

static void find_starts(struct pace *p) {
    size_t next = 0;
    for (int phase = 0; phase < SNUG_PHASE_COUNT; phase++) {
        double now = 0, link = 0;
        for (int32_t i = p->begin[phase]; i < p->begin[phase + 1]; i++) {
            const struct snug_op *op = &p->program->ops[i];
            const struct paced *c = &p->copies[next];
            const bool waits = next < p->count && c->wait == i;
            if (waits && !is_store(p, c)) {
                link = fmax(link, p->start[c->limit]) + c->seconds;
                now = fmax(now, link);
            }
            next += waits;
            p->start[i] = now;
            if (!snug_op_is(op, SNUG_OP_COPIES)) now += seconds_of(p, op);
        }
    }
}

static bool has_room(const struct pace *p, int32_t op, int64_t bytes) { return p->live[op] + bytes <= p->most; }

static void pace_fetches(struct pace *p) {
    double slot = INFINITY;
    int phase = SNUG_PHASE_COUNT;
    for (size_t i = p->count; i-- > 0;) {
        struct paced *c = &p->copies[i];
        if (is_store(p, c)) continue;
        if ((int)phase_of(p, c) != phase) slot = INFINITY;
        phase = (int)phase_of(p, c);
        slot = fmin(slot, p->start[c->wait]) - (phase == SNUG_PHASE_UPDATE ? 1 : MARGIN) * c->seconds;
        c->when = slot;
    }
    for (size_t i = 0; i < p->count; i++) {
        struct paced *c = &p->copies[i];
        if (is_store(p, c)) continue;
        const int64_t bytes = bytes_of(p, c);
        while (c->to > c->limit && p->start[c->to] > c->when && has_room(p, c->to - 1, bytes))
            p->live[--c->to] += bytes;
    }
}

/* next: by tensor, the first operation from which on it is fetched. */
static void limit_stores(struct pace *p, int32_t *next) {
    for (size_t i = p->count; i-- > 0;) {
        struct paced *c = &p->copies[i];
        int32_t *fetched = &next[backing_of(p, c)];
        if (!is_store(p, c))
            *fetched = *fetched < 0 || c->to < *fetched ? c->to : *fetched;
        else if (*fetched >= 0 && *fetched < c->limit)
            c->limit = *fetched;
    }
}

static void pace_stores(struct pace *p) {
    double slot = 0;
    int phase = -1;
    for (size_t i = 0; i < p->count; i++) {
        struct paced *c = &p->copies[i];
        if (!is_store(p, c)) continue;
        if ((int)phase_of(p, c) != phase) slot = 0;
        phase = (int)phase_of(p, c);
        slot = fmax(slot, p->start[c->begin]) + c->seconds;
        const int64_t bytes = bytes_of(p, c);
        while (c->to < c->limit && p->start[c->to] < slot && has_room(p, c->to, bytes)) p->live[c->to++] += bytes;
    }
}

/* ---- the new list of operations --------------------------------------------------------------------------------- */

struct moved {
    int32_t to, from;
};

static int by_position(const void *a, const void *b) {
    const struct moved *x = a, *y = b;
    return x->to != y->to ? x->to - y->to : x->from - y->from;
}

static size_t list_moved(const struct pace *p, struct moved *moved, bool *left_out) {
    size_t count = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct paced *c = &p->copies[i];
        const int32_t from = is_store(p, c) ? c->wait : c->begin;
        if (c->to == from) continue;
        moved[count++] = (struct moved){c->to, from};
        left_out[from] = true;
    }
    if (count) qsort(moved, count, sizeof *moved, by_position);
    return count;
}

static snug_status merge(struct snug_program *program, const struct moved *moved, size_t moved_count,
                         const bool *left_out) {
    struct snug_op *ops = program->ops;
    const size_t count = program->op_count;
    snug_status status = SNUG_OK;
    size_t next = 0;
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    for (size_t i = 0; i <= count && status == SNUG_OK; i++) {
        for (; next < moved_count && moved[next].to == (int32_t)i && status == SNUG_OK; next++)
            status = snug_program_op(program, ops[moved[next].from]);
        if (i < count && !left_out[i] && status == SNUG_OK) status = snug_program_op(program, ops[i]);
    }
    free(ops);
    return status;
}

/* The arrays of the stage, in one block for each type. */
struct scratch {
    struct paced *copies;
    struct moved *moved;
    double *start;
    int32_t *tensors;
    bool *left_out;
};

static snug_status allocate(const struct snug_program *program, struct scratch *s) {
    const size_t ops = program->op_count, tensors = program->tensor_count;
    RETURN_IF_ERROR(snug_alloc(program->ctx, 2 * ops + 1, sizeof *s->copies, (void **)&s->copies));
    RETURN_IF_ERROR(snug_alloc(program->ctx, ops, sizeof *s->moved, (void **)&s->moved));
    RETURN_IF_ERROR(snug_alloc(program->ctx, ops + 1, sizeof *s->start, (void **)&s->start));
    RETURN_IF_ERROR(snug_alloc(program->ctx, ops, sizeof *s->left_out, (void **)&s->left_out));
    RETURN_IF_ERROR(snug_alloc(program->ctx, 3 * tensors, sizeof *s->tensors, (void **)&s->tensors));
    for (size_t i = 0; i < 3 * tensors; i++) s->tensors[i] = -1;
    return SNUG_OK;
}

static snug_status pace(struct pace *p, struct scratch *s) {
    struct snug_program *program = p->program;
    RETURN_IF_ERROR(allocate(program, s));
    RETURN_IF_ERROR(snug_find_live_bytes(program, &p->live, &p->most));
    p->start = s->start;
    p->copies = s->copies;
    find_copies(p, s->copies + program->op_count + 1, s->tensors, s->tensors + program->tensor_count);
    find_starts(p);
    pace_fetches(p);
    limit_stores(p, s->tensors + 2 * program->tensor_count);
    pace_stores(p);
    return merge(program, s->moved, list_moved(p, s->moved, s->left_out), s->left_out);
}

snug_status snug_stage_pace(struct snug_program *program, const struct snug_offload *how) {
    if (!how->classes || !how->rates) return SNUG_OK;
    const int64_t *capacity = program->capacity;
    struct pace p = {.program = program,
                     .rates = how->rates,
                     .load = {.tokens = (double)capacity[SNUG_EXTENT_TOKENS],
                              .sequences = (double)capacity[SNUG_EXTENT_SEQUENCES],
                              .rows = (double)capacity[SNUG_EXTENT_ROWS],
                              .micro_batches = 1}};
    struct scratch scratch = {0};
    for (size_t i = 0; i < program->op_count; i++)
        for (int phase = (int)program->ops[i].phase + 1; phase <= SNUG_PHASE_COUNT; phase++)
            p.begin[phase] = (int32_t)i + 1;
    const snug_status status = pace(&p, &scratch);
    free(p.live);
    free(scratch.copies);
    free(scratch.moved);
    free(scratch.start);
    free(scratch.left_out);
    free(scratch.tensors);
    return status;
}
