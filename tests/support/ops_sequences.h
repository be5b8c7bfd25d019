/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that read a token's sequence: pooled rows, and neighbours. */
#ifndef SNUG_TESTS_OPS_SEQUENCES_H
#define SNUG_TESTS_OPS_SEQUENCES_H

#include "ops_programs.h"

/* A loss position in each sequence: its first token, or a later one, as after a prompt that pooling leaves out. */
static inline void ops_one_row_each(struct ops *f) {
    struct snug_batch *b = &f->batch;
    const size_t sequences = (size_t)b->sequences, targets = sequences * (size_t)f->shape->classes;
    free(b->loss_positions);
    free(b->labels);
    free(b->targets);
    b->loss_positions = ops_array(sequences, sizeof *b->loss_positions);
    b->labels = ops_array(sequences, sizeof *b->labels);
    b->targets = ops_array(targets, sizeof *b->targets);
    b->rows = f->run.rows = f->program.capacity[SNUG_EXTENT_ROWS] = b->sequences;
    f->run.first_row = 0;
    for (int64_t s = 0; s < b->sequences; s++) {
        const int32_t length = b->offsets[s + 1] - b->offsets[s];
        b->loss_positions[s] = b->offsets[s] + (int32_t)(s % 3) * (length - 1) / 2;
    }
}

/* 0: loss positions of tokens. 1: first tokens. 2: loss positions of sequences, one each. 3: means. 4: last tokens.
   5: sums over the root of the length. 6: weighted means. */
enum { GATHER_VARIANTS = 7 };
static inline void build_gather(struct ops *f, int variant) {
    enum snug_dtype type = f->program.compute;
    static const enum snug_pooling poolings[GATHER_VARIANTS] = {
        [3] = SNUG_POOL_MEAN, [4] = SNUG_POOL_LAST, [5] = SNUG_POOL_ROOT_MEAN, [6] = SNUG_POOL_WEIGHTED_MEAN};
    const enum snug_extent all = variant == 2 ? B : T, some = variant % 2 || variant > 2 ? B : R;
    f->pooling = poolings[variant];
    if (all == T && some == B) ops_one_row_each(f);
    if (variant == 2) {
        if (f->batch.rows > f->batch.sequences) f->batch.rows = f->batch.sequences;
        f->run.first_row = f->batch.rows / 4;
        f->run.rows = f->batch.rows - f->run.first_row;
    }
    int32_t x = ops_source(f, type, all, 0, f->shape->h), r = ops_tensor(f, type, some, 0, f->shape->h);
    int32_t dr = ops_source(f, type, some, 0, f->shape->h), dx = ops_source(f, type, all, 0, f->shape->h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_GATHER, .gather = {.x = x, .r = r}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_FILL, .fill = {.x = dx}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_GATHER_BACKWARD, .gather_backward = {.dr = dr, .dx = dx}});
    f->y = r;
    f->dy = dr;
    ops_pair(f, x, dx);
}

/* Of 3 neighbours; of more than some sequences have. */
enum { UNFOLD_VARIANTS = 2 };
static inline void build_unfold(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute;
    const int64_t cols = f->shape->h, width = variant ? 9 : 3;
    const int32_t x = ops_source(f, type, T, 0, cols), y = ops_tensor(f, type, T, 0, cols * width),
                  dy = ops_source(f, type, T, 0, cols * width), dx = ops_tensor(f, type, T, 0, cols);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_UNFOLD, .unfold = {.x = x, .y = y}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_UNFOLD_BACKWARD, .unfold_backward = {.dy = dy, .dx = dx}});
    f->y = y;
    f->dy = dy;
    ops_pair(f, x, dx);
}

#endif
