/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the losses over the vectors of a step. */
#ifndef SNUG_TESTS_OPS_VECTORS_H
#define SNUG_TESTS_OPS_VECTORS_H

#include "ops_programs.h"

static inline void ops_step(struct ops *f, int64_t vectors) {
    f->program.capacity[SNUG_EXTENT_STEP] = vectors;
    f->run.step_rows = vectors;
}

/* The vectors of sequences that are not the step's first. 1: with scores, of pairs. */
enum { COLLECT_VARIANTS = 2 };
static inline void build_collect(struct ops *f, int variant) {
    if (f->batch.rows > f->batch.sequences) f->batch.rows = f->batch.sequences;
    for (int64_t i = 0; i < f->batch.rows; i++) f->batch.loss_positions[i] = f->batch.offsets[i];
    f->run.first_row = 0;
    f->run.rows = f->batch.rows;
    f->program.capacity[SNUG_EXTENT_ROWS] = f->batch.rows;
    ops_step(f, f->batch.tokens ? f->batch.sample[f->batch.tokens - 1] + 3 : 3);
    const int64_t cols = f->shape->h;
    const int32_t x = ops_source(f, SNUG_F32, R, 0, cols), all = ops_source(f, SNUG_F32, SNUG_EXTENT_STEP, 0, cols);
    const int32_t scores = variant ? ops_source(f, SNUG_F32, SNUG_EXTENT_STEP, 0, 1) : 0;
    const int32_t d = ops_source(f, SNUG_F32, SNUG_EXTENT_STEP, 0, cols), dx = ops_tensor(f, SNUG_F32, R, 0, cols);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_COLLECT,
                                .collect = {.x = x, .vectors = all, .scores = scores, .texts = 1 + variant}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_COLLECT_BACKWARD, .collect_backward = {.d = d, .dx = dx}});
}

/*
 * 0: pairs. 1: triplets. 2, 3: the same, symmetric. 4: of a single row. 5: of the first
 * values, twice. 6 … 10: the other losses. 11: the angle of an odd number of values. 12: the distance of the first
 * values. 13: without a gradient. 14: some are zeros, of
 * more rows than a block, symmetric. 15: equal scores. 16, 17: margins that some reach. 18: in a program with a
 * loss scale.
 */
enum { VECTOR_LOSS_VARIANTS = 18, VECTOR_LOSS_SCALED = 18 };
static inline struct snug_vector_loss_form ops_vector_form(int variant, int64_t h) {
    static const enum snug_vector_loss others[] = {SNUG_LOSS_COSENT, SNUG_LOSS_ANGLE, SNUG_LOSS_COSINE,
                                                   SNUG_LOSS_CONTRASTIVE, SNUG_LOSS_TRIPLET};
    struct snug_vector_loss_form form = {.texts = 2, .scale = variant < 13 ? 1 : 20, .margin = variant < 13 ? 3 : 0.5f};
    if (variant == 1 || variant == 3 || variant == 14) form.texts = 3;
    if (variant >= 6 && variant <= 10) form.function = others[variant - 6];
    if (variant == 11) form.function = SNUG_LOSS_ANGLE;
    if (variant == 12) form.function = SNUG_LOSS_TRIPLET;
    if (variant == 15) form.function = SNUG_LOSS_COSENT;
    if (variant == 16) form.function = SNUG_LOSS_CONTRASTIVE;
    if (variant == 17) form.function = SNUG_LOSS_TRIPLET;
    if (form.function == SNUG_LOSS_TRIPLET) form.texts = 3;
    form.symmetric = variant == 2 || variant == 3 || variant == 14;
    if (variant == 5 || variant == 11 || variant == 12) {
        form.dim_count = variant == 5 ? 2 : 1;
        form.dims[0] = (int32_t)(h - 1 + h % 2); /* odd */
        form.dims[1] = (int32_t)(h / 2 + 1);
        form.weights[0] = 0.5f;
        form.weights[1] = 2;
    }
    return form;
}
static inline void build_vector_loss(struct ops *f, int variant) {
    const int64_t h = f->shape->h;
    const struct snug_vector_loss_form form = ops_vector_form(variant, h);
    const int64_t rows = variant == 4 ? 1 : variant == 14 ? 70 : variant > 14 ? 12 : 5;
    ops_step(f, rows * form.texts);
    const int32_t x = ops_source(f, SNUG_F32, SNUG_EXTENT_STEP, 0, h);
    const int32_t scores = form.function == SNUG_LOSS_RANKING || form.function == SNUG_LOSS_TRIPLET
                               ? 0
                               : ops_source(f, SNUG_F32, SNUG_EXTENT_STEP, 0, 1);
    const int32_t loss = ops_tensor(f, SNUG_F32, FIXED, 1, 1);
    const int32_t d = variant == 13 ? 0 : ops_tensor(f, SNUG_F32, SNUG_EXTENT_STEP, 0, h);
    /* An angle's absolute value is far from 0, where it has no derivative. */
    for (int64_t i = 0; form.function == SNUG_LOSS_ANGLE && i < rows * h; i++) {
        const int64_t a = i / h * 2 * h + i % h;
        const double sign = i / h % 2 ? -1 : 1;
        ops_set(f, x, a + h, sign * ops_get(f, f->arena, x, a) + ops_get(f, f->arena, x, a + h) / 4);
    }
    for (int64_t i = 0; variant == 14 && i < h * form.texts; i++) ops_set(f, x, i, 0);
    for (int64_t i = 0; variant == 15 && i < ops_count(f, scores); i++) {
        const int64_t level = i / 6; /* equal scores */
        ops_set(f, scores, i, 0.5 * (double)level);
    }
    ops_add(f, (struct snug_op){.kind = SNUG_OP_VECTOR_LOSS,
                                .vector_loss = {.vectors = x, .scores = scores, .loss = loss, .d = d, .form = form}});
    if (variant == VECTOR_LOSS_SCALED) {
        const int32_t scaler = f->program.scaler = ops_tensor(f, SNUG_F32, FIXED, 1, SNUG_SCALE_VALUES);
        ops_fill(f, scaler, 0);
        ops_set(f, scaler, SNUG_SCALE, 256);
        ops_add(f, (struct snug_op){.kind = SNUG_OP_RESCALE, .rescale = {.scaler = scaler}});
    }
    if (variant >= 13) return; /* 14: where the derivative is not one */
    f->y = loss;
    ops_pair(f, x, d);
}

#endif
