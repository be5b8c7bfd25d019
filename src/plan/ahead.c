/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives beside operations. The partition stage puts each collective where its result is needed. On an
 * asynchronous backend, whose collectives have a stream of their own, this stage moves them, and inserts WAITs where
 * the result is needed. So the place stage knows exactly how long a collective uses its tensors' bytes, as with copies
 * (offload.c).
 *
 * Gathered weights (stage 3): those that are first used in one layer, or in the embeddings or the head, begin when the
 * layer before it begins. Layers are alike, so a larger distance would gain nothing: the link is always busy where it
 * is slower than the operations, and never waited for where it is faster. The arena holds two layers' weights.
 *
 * Updated matrices and tables (stages 1 and 2): UPDATE leaves each rank its shard, and the next FORWARD gathers them in
 * the same way: these operations cross phases (struct snug_crossing). What else reads weights flushes first. Those that
 * FORWARD needs at once are updated first, and gathered beside the other updates.
 *
 * Sums of divided gradients (stages 2 and 3): a group is exchanged while the operations before it in the model compute
 * the next one, before which it is waited for. The arena holds two groups.
 *
 * Where an operand of a collective may be in the backing store, it stays where it was.
 */
#include <stdlib.h>

#include "plan/stages.h"

/* An all-gather that is prefetched. Positions are operations of the old list, before which something
 * is inserted. */
struct gathering {
    int32_t op;         /* its own number */
    int32_t cast;       /* the CAST that makes a copy of an updated weight, or -1 */
    int32_t begin, use; /* where it begins, and where operations wait for it */
    size_t group;       /* the number of the first one of its group */
    bool leads;         /* its group is the first one of the phase */
    enum snug_phase phase;
    bool crosses;
    bool early; /* an updated weight that FORWARD needs at once: gathered in UPDATE, beside the updates of the others */
};

struct ahead {
    struct snug_program *program;
    int32_t begin[SNUG_PHASE_COUNT + 1];
    struct gathering *gatherings; /* in the order of use */
    size_t count, begun, used;
    bool *moved;        /* by operation of the old list: it was moved */
    int32_t *exchanged; /* gradients in exchange that no operation has waited for */
    size_t exchanged_count;
    bool gathers, crosses, sums; /* what may be moved */
};

/* ---- where ----------------------------------------------------------------------------------------------------- */

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

/* The CAST of UPDATE that reads the tensor, or -1. */
static int32_t cast_of(const struct ahead *a, int32_t tensor) {
    for (int32_t i = a->begin[SNUG_PHASE_UPDATE]; i < a->begin[SNUG_PHASE_UPDATE + 1]; i++)
        if (a->program->ops[i].kind == SNUG_OP_CAST && a->program->ops[i].cast.p == tensor) return i;
    return -1;
}

/* Weights that only HEAD uses are waited for at the end of FORWARD, because HEAD runs in chunks. */
static void add_gathering(struct ahead *a, int32_t i) {
    const struct snug_op *op = &a->program->ops[i];
    const int32_t x = op->gather_ranks.x;
    const bool updated = op->phase == SNUG_PHASE_UPDATE;
    const enum snug_phase phase = updated ? SNUG_PHASE_FORWARD : op->phase;
    const int32_t end = a->begin[phase + 1];
    struct gathering g = {.op = i, .cast = -1, .phase = phase, .crosses = updated};
    g.use = first_use(a->program, x, updated ? a->begin[phase] : i + 1, end);
    if (updated) g.cast = cast_of(a, x);
    if (g.cast >= 0) {
        const int32_t copied = first_use(a->program, a->program->ops[g.cast].cast.q, a->begin[phase], end);
        if (copied < g.use) g.use = copied; /* untested: no model reads a copy before the weight */
        a->moved[g.cast] = true;
    }
    a->moved[i] = true;
    a->gatherings[a->count++] = g;
}

static int in_order_of_use(const void *a, const void *b) {
    const struct gathering *x = a, *y = b;
    if (x->phase != y->phase) return (int)x->phase - (int)y->phase;
    return x->use != y->use ? x->use - y->use : x->op - y->op;
}

static const struct snug_tensor *gathered(const struct ahead *a, const struct gathering *g) {
    return &a->program->tensors[a->program->ops[g->op].gather_ranks.x];
}

static bool is_of_group(const struct ahead *a, const struct gathering *first, const struct gathering *g) {
    const struct snug_tensor *x = gathered(a, first), *y = gathered(a, g);
    return first->phase == g->phase && x->part == y->part && x->layer == y->layer;
}

/* A group has the weights of one layer, or of the embeddings or the head. The first one of a phase begins with it. */
static void find_groups(struct ahead *a) {
    size_t first = 0, before = 0; /* the first ones of this group, and of the one before it */
    for (size_t i = 0; i < a->count; i++) {
        struct gathering *g = &a->gatherings[i];
        if (i > 0 && !is_of_group(a, &a->gatherings[first], g)) {
            before = first;
            first = i;
        }
        g->group = first;
        g->leads = first == before || a->gatherings[before].phase != g->phase;
        g->begin = g->leads ? a->begin[g->phase] : a->gatherings[before].use;
    }
}

static void find_early(struct ahead *a) {
    for (size_t i = 0; i < a->count; i++) {
        struct gathering *g = &a->gatherings[i];
        if (!g->crosses || !g->leads) continue;
        g->early = true;
        g->phase = SNUG_PHASE_UPDATE;
        g->crosses = false;
    }
}

/* The same tensor, if it is not a part of another one. */
static int32_t whole_of(const struct snug_program *program, int32_t tensor) {
    const struct snug_tensor *t = &program->tensors[tensor];
    return t->view ? t->base : tensor;
}

/* Whether op updates this rank's shard of x. */
static bool updates(const struct snug_program *program, const struct snug_op *op, int32_t x) {
    return snug_op_is(op, SNUG_OP_UPDATES) &&
           (whole_of(program, op->update.weight) == x || whole_of(program, op->update.copy) == x);
}

static snug_status find_gatherings(struct ahead *a) {
    const struct snug_program *program = a->program;
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *a->gatherings, (void **)&a->gatherings));
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *a->moved, (void **)&a->moved));
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *a->exchanged, (void **)&a->exchanged));
    for (int32_t i = 0; i < (int32_t)program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind != SNUG_OP_GATHER_RANKS) continue;
        const bool staged = op->phase == SNUG_PHASE_FORWARD || op->phase == SNUG_PHASE_BACKWARD;
        const bool updated = op->phase == SNUG_PHASE_UPDATE && !is_vector(program, op->gather_ranks.x);
        if ((staged && a->gathers) || (updated && a->crosses)) add_gathering(a, i);
    }
    if (a->count) qsort(a->gatherings, a->count, sizeof *a->gatherings, in_order_of_use);
    find_groups(a);
    find_early(a);
    return SNUG_OK;
}

/* ---- the new list of operations -------------------------------------------------------------------------------- */

static snug_status add_wait(struct ahead *a, int32_t tensor, enum snug_phase phase, bool crosses) {
    const struct snug_tensor *t = &a->program->tensors[tensor];
    return snug_program_op(a->program, (struct snug_op){.kind = SNUG_OP_WAIT,
                                                        .phase = phase,
                                                        .part = t->part,
                                                        .layer = t->layer,
                                                        .crosses = crosses,
                                                        .wait = {.x = tensor}});
}

static snug_status add_moved(struct ahead *a, const struct gathering *g, struct snug_op op) {
    op.phase = g->phase;
    op.crosses = g->crosses;
    op.beside = op.kind == SNUG_OP_GATHER_RANKS;
    a->program->crosses |= g->crosses;
    return snug_program_op(a->program, op);
}

/* Begins all of a group: first those that cross phases, so that the others are one call in every micro-batch. */
static snug_status add_group(struct ahead *a, const struct snug_op *ops, size_t group) {
    for (int crosses = 1; crosses >= 0; crosses--)
        for (size_t i = group; i < a->count && a->gatherings[i].group == group; i++) {
            const struct gathering *g = &a->gatherings[i];
            if (g->crosses == crosses && !g->early) RETURN_IF_ERROR(add_moved(a, g, ops[g->op]));
        }
    return SNUG_OK;
}

/* The groups that begin before operation `at` of the old list. */
static snug_status add_begun(struct ahead *a, const struct snug_op *ops, int32_t at, bool leading) {
    for (; a->begun < a->count; a->begun++) {
        const struct gathering *g = &a->gatherings[a->begun];
        if (g->begin != at || g->leads != leading) break;
        if (g->group == a->begun) RETURN_IF_ERROR(add_group(a, ops, a->begun));
    }
    return SNUG_OK;
}

/* Waits for what g gathers; an updated weight's copy is made of it. */
static snug_status end_gathering(struct ahead *a, const struct snug_op *ops, const struct gathering *g) {
    RETURN_IF_ERROR(add_wait(a, ops[g->op].gather_ranks.x, g->phase, g->crosses));
    return g->cast >= 0 ? add_moved(a, g, ops[g->cast]) : SNUG_OK;
}

/* What is used from operation `at` on. */
static snug_status add_used(struct ahead *a, const struct snug_op *ops, int32_t at) {
    for (; a->used < a->count && a->gatherings[a->used].use == at; a->used++)
        if (!a->gatherings[a->used].early) RETURN_IF_ERROR(end_gathering(a, ops, &a->gatherings[a->used]));
    return SNUG_OK;
}

/* The beginning of UPDATE: the updates of what is gathered in it. */
static snug_status begin_early(struct ahead *a, const struct snug_op *ops) {
    for (int32_t u = a->begin[SNUG_PHASE_UPDATE]; u < a->begin[SNUG_PHASE_UPDATE + 1]; u++)
        for (size_t i = 0; i < a->count && !a->moved[u]; i++) {
            const struct gathering *g = &a->gatherings[i];
            if (!g->early || !updates(a->program, &ops[u], ops[g->op].gather_ranks.x)) continue;
            RETURN_IF_ERROR(snug_program_op(a->program, ops[u]));
            a->moved[u] = true;
        }
    for (size_t i = 0; i < a->count; i++)
        if (a->gatherings[i].early) RETURN_IF_ERROR(add_moved(a, &a->gatherings[i], ops[a->gatherings[i].op]));
    return SNUG_OK;
}

static snug_status end_early(struct ahead *a, const struct snug_op *ops) {
    for (size_t i = 0; i < a->count; i++)
        if (a->gatherings[i].early) RETURN_IF_ERROR(end_gathering(a, ops, &a->gatherings[i]));
    return SNUG_OK;
}

/* Operations wait for the gradients that are in exchange. */
static snug_status end_exchange(struct ahead *a) {
    for (size_t i = 0; i < a->exchanged_count; i++)
        RETURN_IF_ERROR(add_wait(a, a->exchanged[i], SNUG_PHASE_BACKWARD, false));
    a->exchanged_count = 0;
    return SNUG_OK;
}

/* Operation i of the old list, a sum. Gradients that persist are not used again in the phase. */
static snug_status add_sum(struct ahead *a, const struct snug_op *ops, int32_t i) {
    struct snug_op op = ops[i];
    const int32_t g = op.sum_ranks.g;
    /* untested: a step begins with other operations */
    if (i == 0 || ops[i - 1].kind != op.kind) RETURN_IF_ERROR(end_exchange(a));
    op.beside = true;
    if (!a->program->tensors[g].persistent) a->exchanged[a->exchanged_count++] = g;
    return snug_program_op(a->program, op);
}

static snug_status add_operation(struct ahead *a, const struct snug_op *ops, int32_t i) {
    if (a->moved[i]) return SNUG_OK;
    if (a->sums && ops[i].kind == SNUG_OP_SUM_RANKS && ops[i].sum_ranks.sum) return add_sum(a, ops, i);
    return snug_program_op(a->program, ops[i]);
}

static snug_status merge(struct ahead *a) {
    struct snug_op *ops = a->program->ops;
    const int32_t count = (int32_t)a->program->op_count;
    snug_status status = SNUG_OK;
    a->program->ops = NULL;
    a->program->op_count = a->program->op_capacity = 0;
    for (int32_t i = 0; i <= count && status == SNUG_OK; i++) {
        if (i == a->begin[SNUG_PHASE_BACKWARD + 1]) status = end_exchange(a);
        if (status == SNUG_OK && i == a->begin[SNUG_PHASE_UPDATE]) status = begin_early(a, ops);
        if (status == SNUG_OK && i == a->begin[SNUG_PHASE_UPDATE + 1]) status = end_early(a, ops);
        if (status == SNUG_OK) status = add_begun(a, ops, i, true);
        if (status == SNUG_OK) status = add_used(a, ops, i);
        if (status == SNUG_OK) status = add_begun(a, ops, i, false);
        if (status == SNUG_OK && i < count) status = add_operation(a, ops, i);
    }
    free(ops);
    return status;
}

snug_status snug_stage_ahead(struct snug_program *program, const struct snug_offload *how) {
    const unsigned weights = 1 << SNUG_MEMORY_WEIGHTS | SNUG_OFFLOAD_MASTERS;
    struct ahead a = {.program = program,
                      .gathers = !(how->classes & weights),
                      .crosses = !how->classes,
                      .sums = !(how->classes >> SNUG_MEMORY_GRADIENTS & 1)};
    if (program->ranks < 2 || !how->overlaps) return SNUG_OK;
    for (size_t i = 0; i < program->op_count; i++)
        for (int phase = (int)program->ops[i].phase + 1; phase <= SNUG_PHASE_COUNT; phase++)
            a.begin[phase] = (int32_t)i + 1;
    snug_status status = find_gatherings(&a);
    if (status == SNUG_OK) status = merge(&a);
    free(a.gatherings);
    free(a.moved);
    free(a.exchanged);
    return status;
}
