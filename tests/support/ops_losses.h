/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of losses of several rows together: of segments, and of preferences. */
#ifndef SNUG_TESTS_OPS_LOSSES_H
#define SNUG_TESTS_OPS_LOSSES_H

#include "ops_programs.h"

/* Segments of several lengths in the batch's labels; of every fourth one no row is a target. */
static inline void set_segments(struct ops *f, int64_t columns) {
    int32_t *labels = f->batch.labels;
    for (int64_t first = f->run.first_row, end, number = 0; first < f->batch.rows; first = end, number++) {
        end = first + 1 + ops_word(8, (uint64_t)first) % 9;
        if (end > f->batch.rows) end = f->batch.rows;
        for (int64_t i = first; i < end; i++) labels[i] = i == first ? SNUG_SEGMENT_BEGINS : 0;
        for (int64_t c = 0; c < columns && number % 4 != 3; c++)
            labels[first + ops_word(9, (uint64_t)(first + c)) % (uint32_t)(end - first)] |= 1 << c;
    }
}

/* 0: with a gradient. 1: the gradient in place of the logits. 2: evaluation, no gradient. */
enum { SEGMENT_VARIANTS = 3 };
static inline void build_segment_loss(struct ops *f, int variant) {
    const int64_t columns = f->shape->classes < 3 ? f->shape->classes : 3;
    const int32_t logits = ops_tensor(f, SNUG_F32, R, 0, columns), loss = ops_source(f, SNUG_F32, FIXED, 1, 1);
    for (int64_t i = 0; i < ops_count(f, logits); i++) ops_set(f, logits, i, 4 * ops_value(6, (uint64_t)i));
    const int32_t d = variant == 1 ? logits : variant == 2 ? 0 : ops_tensor(f, f->program.compute, R, 0, columns);
    set_segments(f, columns);
    ops_add(f,
            (struct snug_op){.kind = SNUG_OP_LOSS,
                             .loss = {.logits = logits, .loss = loss, .d = d, .function = SNUG_SEGMENT_CROSS_ENTROPY}});
    f->program.logits = logits;
    if (variant) return;
    f->y = loss;
    ops_pair(f, logits, d);
}

/* Of whole pairs. */
static inline int64_t ops_paired(const struct ops *f) { return f->batch.sequences / 2 * 2; }

/* 0: without scales. 1: with. 2: with, the gradient in place of the logits. 3: the pass of the scores, no gradient. 4:
   as 1, with logits in the compute type. */
enum { PREFERENCE_LOSS_LOW = 4, PREFERENCE_LOSS_VARIANTS = 5 };
static inline void build_preference_loss(struct ops *f, int variant) {
    const bool low = variant == PREFERENCE_LOSS_LOW;
    const int32_t logits = ops_tensor(f, low ? f->program.compute : SNUG_F32, R, 0, f->shape->classes),
                  rows = ops_tensor(f, SNUG_F32, R, 0, 1),
                  scales = variant ? ops_source(f, SNUG_F32, FIXED, 1, f->batch.sequences) : 0;
    for (int64_t i = 0; i < ops_count(f, logits); i++) ops_set(f, logits, i, 4 * ops_value(6, (uint64_t)i));
    const int32_t d = variant == 2   ? logits
                      : variant == 3 ? 0
                                     : ops_tensor(f, f->program.compute, R, 0, f->shape->classes);
    if (variant == 3) f->run.pass = SNUG_PASS_SCORES;
    ops_add(
        f,
        (struct snug_op){
            .kind = SNUG_OP_LOSS,
            .loss = {
                .logits = logits, .scales = scales, .rows = rows, .d = d, .function = SNUG_PREFERENCE_CROSS_ENTROPY}});
    f->program.logits = logits;
    if (variant) return;
    f->y = rows;
    ops_pair(f, logits, d);
}

/* The losses; then sigmoid and robust with label smoothing, and sigmoid in a later chunk. */
enum { PREFERENCE_VARIANTS = SNUG_PREFERENCE_LOSSES + 3 };
static inline void build_preference(struct ops *f, int variant) {
    static const enum snug_preference_loss more[] = {SNUG_PREFERENCE_SIGMOID, SNUG_PREFERENCE_ROBUST,
                                                     SNUG_PREFERENCE_SIGMOID};
    const bool plain = variant < SNUG_PREFERENCE_LOSSES;
    const int32_t rows = ops_source(f, SNUG_F32, R, 0, 1), sums = ops_source(f, SNUG_F64, FIXED, 1, f->batch.sequences),
                  scales = ops_tensor(f, SNUG_F32, FIXED, 1, ops_paired(f)),
                  loss = ops_tensor(f, SNUG_F32, FIXED, 1, 1),
                  results = ops_tensor(f, SNUG_F32, FIXED, 1, SNUG_PREFERENCE_RESULTS);
    if (variant == PREFERENCE_VARIANTS - 1) f->run.chunk = 1;
    f->run.pass = SNUG_PASS_SCORES;
    f->program.sums = sums;
    ops_add(f, (struct snug_op){.kind = SNUG_OP_PREFERENCE,
                                .preference = {.rows = rows,
                                               .sums = sums,
                                               .scales = scales,
                                               .loss = loss,
                                               .results = results,
                                               .form = {.loss = plain ? (enum snug_preference_loss)variant
                                                                      : more[variant - SNUG_PREFERENCE_LOSSES],
                                                        .beta = 0.3f,
                                                        .label_smoothing = plain ? 0 : 0.125f}}});
}

/* As build_segment_loss(), of SNUG_SEGMENT_DISTRIBUTION; from RANKING_MARGIN on of SNUG_SEGMENT_MARGIN. */
enum { RANKING_MARGIN = 3, RANKING_VARIANTS = 6 };
static inline void build_ranking_loss(struct ops *f, int variant) {
    const bool margin = variant >= RANKING_MARGIN;
    const int32_t logits = ops_tensor(f, SNUG_F32, R, 0, 1), loss = ops_source(f, SNUG_F32, FIXED, 1, 1);
    const int32_t *labels = f->batch.labels;
    float *targets = f->batch.targets;
    for (int64_t i = 0; i < ops_count(f, logits); i++) ops_set(f, logits, i, 2 * ops_value(6, (uint64_t)i));
    variant %= RANKING_MARGIN;
    const int32_t d = variant == 1 ? logits : variant == 2 ? 0 : ops_tensor(f, f->program.compute, R, 0, 1);
    set_segments(f, 1);
    for (int64_t first = f->run.first_row, end; first < f->batch.rows; first = end) {
        bool known = labels[first] & 1;
        for (end = first + 1; end < f->batch.rows && !(labels[end] & SNUG_SEGMENT_BEGINS);) known |= labels[end++] & 1;
        for (int64_t i = first; i < end; i++)
            targets[i] = margin ? (float)ops_value(7, (uint64_t)i) : known ? 1 / (float)(end - first) : 0;
        if (margin) targets[first] = known;
    }
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LOSS,
                                .loss = {.logits = logits,
                                         .loss = loss,
                                         .d = d,
                                         .function = margin ? SNUG_SEGMENT_MARGIN : SNUG_SEGMENT_DISTRIBUTION}});
    f->program.logits = logits;
    if (variant) return;
    f->y = loss;
    ops_pair(f, logits, d);
}

#endif
