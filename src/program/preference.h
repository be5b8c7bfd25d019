/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas of PREFERENCE that all backends but the reference share (program/losses.h). */
#ifndef SNUG_PROGRAM_PREFERENCE_H
#define SNUG_PROGRAM_PREFERENCE_H

#include <math.h>

#include "program/losses.h"

/* -log sigmoid(x), which cannot overflow. */
static inline double snug_log_loss(double x) { return fmax(-x, 0.0) + log1p(exp(-fabs(x))); }

/* The loss of the chosen and the rejected sequence's scores. by_sum: its derivatives by the sums of cross entropies,
   minus those by the scores. tokens: of the completions. */
static inline double snug_preference_pair(const struct snug_preference_form *form, const double score[2],
                                          const double tokens[2], double by_sum[2]) {
    const bool by_token = form->loss == SNUG_PREFERENCE_IPO || form->loss == SNUG_PREFERENCE_SIGMOID_NORM;
    const double chosen = by_token ? fmax(tokens[0], 1.0) : 1, rejected = by_token ? fmax(tokens[1], 1.0) : 1;
    const double beta = (double)form->beta, smooth = (double)form->label_smoothing;
    const double difference = score[0] / chosen - score[1] / rejected, x = beta * difference;
    const double away = 1 / (1 + exp(x)); /* sigmoid(-x) */
    double loss, slope;                   /* by the difference */
    if (form->loss == SNUG_PREFERENCE_HINGE) {
        loss = fmax(1 - x, 0.0);
        slope = x < 1 ? -beta : 0;
    } else if (form->loss == SNUG_PREFERENCE_IPO) {
        const double off = difference - 1 / (2 * beta);
        loss = off * off;
        slope = 2 * off;
    } else if (form->loss == SNUG_PREFERENCE_ROBUST) {
        loss = ((1 - smooth) * snug_log_loss(x) - smooth * snug_log_loss(-x)) / (1 - 2 * smooth);
        slope = -beta * ((1 - smooth) * away + smooth * (1 - away)) / (1 - 2 * smooth);
    } else { /* label smoothing is 0 with SIGMOID_NORM */
        loss = (1 - smooth) * snug_log_loss(x) + smooth * snug_log_loss(-x);
        slope = -beta * ((1 - smooth) * away - smooth * (1 - away));
    }
    by_sum[0] = -slope / chosen;
    by_sum[1] = slope / rejected;
    return loss;
}

/* Adds a pair to result[SNUG_PREFERENCE_RESULTS]. sums: of the cross entropies of its sequences; reference: the batch's
   values of both. Returns its loss. */
static inline double snug_add_pair(const struct snug_preference_form *form, const double sums[2],
                                   const float reference[4], double by_sum[2], double *result) {
    /* Rounded as the reference's: the scores of the same model are 0. */
    const double score[2] = {(double)(float)-sums[0] - (double)reference[0],
                             (double)(float)-sums[1] - (double)reference[2]};
    const double tokens[2] = {(double)reference[1], (double)reference[3]}, beta = (double)form->beta;
    result[SNUG_REWARDS_CHOSEN] += beta * score[0];
    result[SNUG_REWARDS_REJECTED] += beta * score[1];
    result[SNUG_REWARDS_ACCURACIES] += score[0] > score[1];
    result[SNUG_REWARDS_MARGINS] += beta * (score[0] - score[1]);
    result[SNUG_LOGPS_CHOSEN] -= sums[0];
    result[SNUG_LOGPS_REJECTED] -= sums[1];
    return snug_preference_pair(form, score, tokens, by_sum);
}

#endif
