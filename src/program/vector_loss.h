/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas of VECTOR_LOSS that all backends but the reference share (program/losses.h). */
#ifndef SNUG_PROGRAM_VECTOR_LOSS_H
#define SNUG_PROGRAM_VECTOR_LOSS_H

#include "program/losses.h"

/* Numbers of a pass over the losses: of the first dim components of each vector. */
struct snug_vector_pass {
    int32_t dim;
    bool unit; /* similarities are of vectors of length 1 */
    float weight;
};
static inline int snug_vector_passes(const struct snug_vector_loss_form *form) {
    return form->dim_count ? form->dim_count : 1;
}
static inline struct snug_vector_pass snug_vector_pass(const struct snug_vector_loss_form *form, int i, int64_t cols) {
    const bool unit = form->dim_count || form->function != SNUG_LOSS_TRIPLET;
    const struct snug_vector_pass whole = {(int32_t)cols, unit, 1};
    const struct snug_vector_pass part = {form->dims[i], unit, form->weights[i]};
    return form->dim_count ? part : whole;
}

/* Component c of Jb, of which b_c is component snug_turned(): with the sign that it gives. -1: it is 0. */
static inline int64_t snug_turned(int64_t c, int64_t dim, float *sign) {
    const int64_t half = (dim + 1) / 2, other = c < half ? c + half : c - half;
    *sign = c < half ? -1.0f : 1.0f;
    return other < dim ? other : -1;
}

/* COSINE and CONTRASTIVE: the loss of a pair of similarity s and score y, and its derivative by s. */
static inline float snug_vector_pair(const struct snug_vector_loss_form *form, float s, float y, float *slope) {
    if (form->function == SNUG_LOSS_COSINE) {
        *slope = 2 * (s - y);
        return (s - y) * (s - y);
    }
    const float distance = 1 - s, room = form->margin > distance ? form->margin - distance : 0;
    *slope = (1 - y) * room - y * distance;
    return (y * distance * distance + (1 - y) * room * room) / 2;
}

#endif
