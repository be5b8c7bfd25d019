/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves. Bytes that come from or go to elsewhere, beside operations: FETCH and STORE copy between the arena and the
 * backing store, GATHER_RANKS and SUM_RANKS exchange with other ranks. All are one thing: a move has a tensor of the
 * arena, begins before an operation of the list and is waited for before a later one, and it occupies the tensor's
 * bytes all that time. So the place stage knows exactly how long each byte is in use.
 *
 *   operations of one phase     | a     b     c     d     e     f     g |
 *   FETCH or GATHER_RANKS of x  |       [begin============end)          |  e uses x first: end is given, begin chosen
 *   STORE or SUM_RANKS of x     |    [begin============end)             |  a writes x last: begin is given, end chosen
 *
 * A step is a circle. The gradient norm is a wall: the update begins when BACKWARD is over. But what it reads may be
 * fetched before the wall, and the rest of it may run in the next step:
 *
 *     FORWARD ........... HEAD ... BACKWARD ............ CLIP  UPDATE ........... FORWARD of the next step
 *                                          [across==============end)                  FETCH of the update
 *                                                              [begin==================across)  its STORE
 *                                                              update --> [.. update ..]  a deferred update, with its
 *                                                                                  moves (plan/place_updates.c)
 *                                                              gathers -> [========)  of updated shards
 *
 * offload.c chooses what is offloaded; place_updates.c moves updates; parts.c cuts large operations; residency.c finds
 * when the arena has what, and the moves of the backing store; schedule.c finds the moves between ranks, and chooses
 * where each begins or ends; moves.c inserts them. Positions are operations of the list without moves of the backing
 * store.
 *
 * When an operation of a move runs follows from the move: docs/architecture.md has the table.
 */
#ifndef SNUG_PLAN_MOVES_H
#define SNUG_PLAN_MOVES_H

#include "plan/stages.h"
#include "program/edits.h"

struct snug_move {
    struct snug_op op;   /* FETCH, STORE, GATHER_RANKS or SUM_RANKS, of the phase in which it is used */
    struct snug_op then; /* what follows its WAIT: the CAST of a gathered weight; or its q is 0 */
    int32_t tensor;      /* of the arena: what WAIT waits for */
    int32_t begin, end;  /* it begins before operation `begin`, and is waited for before operation `end` */
    /* FETCH: the operation of BACKWARD before which it begins in the last micro-batch. STORE: it begins with the next
       FORWARD, and is waited for before this operation. -1: it is within its phase. */
    int32_t across;
    bool before_waits; /* FETCH: it begins before the WAITs at its position, whose buffers it does not need */
    int32_t previous;  /* the move before it of the same tensor of the backing store, or -1 */
    int32_t group;     /* GATHER_RANKS: those of a group are one call of all ranks */
    bool follows;      /* GATHER_RANKS: begins when the group before it has been waited for */
};

struct snug_moves {
    struct snug_program *program;
    const struct snug_offload *how;
    struct snug_edits edits;
    int32_t begin[SNUG_PHASE_COUNT + 1];
    struct snug_move *items;
    size_t count, capacity;
    int32_t *latest; /* by tensor of the backing store: its latest move, or -1 */
};

/* A new move within its phase, of tensor `backing` of the backing store, or of none. */
snug_status snug_moves_add(struct snug_moves *moves, struct snug_op op, int32_t tensor, int32_t backing, int32_t begin,
                           int32_t end);
/* Whether two moves are of common elements of one tensor of the backing store. */
static inline bool snug_moves_share(const struct snug_program *program, const struct snug_move *a,
                                    const struct snug_move *b) {
    const struct snug_tensor *x = &program->tensors[a->tensor], *y = &program->tensors[b->tensor];
    return a->op.element < b->op.element + y->rows * y->cols && b->op.element < a->op.element + x->rows * x->cols;
}

/* The largest distance between operations that share a staging buffer: more than that of a copy, so that a tensor is
   not fetched again at once. */
static inline int32_t snug_moves_near(const struct snug_offload *how) { return how->ahead + 3; }
/* The tensor of which another is a view; without a view itself. */
static inline int32_t snug_moves_base(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].view ? program->tensors[tensor].base : tensor;
}

/* The steps of the stage. */
/* Chooses the tensors of the backing store. */
snug_status snug_choose_offloaded(struct snug_program *program, const struct snug_offload *how);
/* Moves norms to BACKWARD and updates to the host or the next FORWARD. */
snug_status snug_place_updates(struct snug_program *program, const struct snug_offload *how);
/* Cuts elementwise operations of offloaded tensors into parts. */
snug_status snug_cut_parts(struct snug_program *program, const struct snug_offload *how);
/* Gives offloaded operands staging buffers, and adds the moves of these. tensors: number of those that are no parts. */
snug_status snug_find_residencies(struct snug_moves *moves, size_t tensors);
/* Adds the moves between ranks, and schedules all moves. */
snug_status snug_schedule_moves(struct snug_moves *moves);
/* Inserts the updates that the host computes, with what they read and write besides offloaded tensors. */
snug_status snug_begin_host_updates(struct snug_moves *moves, int32_t **copies);
snug_status snug_end_host_updates(struct snug_moves *moves, const int32_t *copies);

#endif
