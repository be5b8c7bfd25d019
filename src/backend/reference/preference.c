/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of pairs of sequences, from the cross entropies of their loss positions. */
#include "backend/reference/reference.h"

/* -log sigmoid(x), which cannot overflow; its derivative is -sigmoid(-x). */
static double log_loss(double x) { return fmax(-x, 0) + log1p(exp(-fabs(x))); }
static double slope(double x) { return -1 / (1 + exp(x)); }

/* The loss of a pair with these scores, and its derivatives by them. */
static double pair_loss(const struct snug_preference_form *form, const double x[2], const double tokens[2],
                        double d[2]) {
    const double beta = form->beta, e = form->label_smoothing;
    const bool by_token = form->loss == SNUG_PREFERENCE_IPO || form->loss == SNUG_PREFERENCE_SIGMOID_NORM;
    const double n[2] = {by_token ? fmax(tokens[0], 1) : 1, by_token ? fmax(tokens[1], 1) : 1};
    const double difference = x[0] / n[0] - x[1] / n[1], z = beta * difference;
    double loss = 0, by_difference = 0;
    switch (form->loss) {
    case SNUG_PREFERENCE_SIGMOID:
        loss = (1 - e) * log_loss(z) + e * log_loss(-z);
        by_difference = beta * ((1 - e) * slope(z) - e * slope(-z));
        break;
    case SNUG_PREFERENCE_ROBUST:
        loss = ((1 - e) * log_loss(z) - e * log_loss(-z)) / (1 - 2 * e);
        by_difference = beta * ((1 - e) * slope(z) + e * slope(-z)) / (1 - 2 * e);
        break;
    case SNUG_PREFERENCE_HINGE:
        loss = fmax(1 - z, 0);
        by_difference = z < 1 ? -beta : 0;
        break;
    case SNUG_PREFERENCE_IPO:
        loss = (difference - 1 / (2 * beta)) * (difference - 1 / (2 * beta));
        by_difference = 2 * (difference - 1 / (2 * beta));
        break;
    default: /* SNUG_PREFERENCE_SIGMOID_NORM */
        loss = log_loss(z);
        by_difference = beta * slope(z);
        break;
    }
    d[0] = by_difference / n[0];
    d[1] = -by_difference / n[1];
    return loss;
}

static void add_chunk(const struct snug_run *run, struct snug_matrix rows, double *sums) {
    for (int64_t s = 0; s < run->batch->sequences && run->chunk == 0; s++) sums[s] = 0;
    for (int64_t row = 0; row < rows.rows; row++)
        sums[snug_batch_sequence(run->batch, run->batch->loss_positions[run->first_row + row])] += load(rows, row, 0);
}

snug_status snug_reference_preference(struct snug_run *run, const struct snug_op *op) {
    const struct snug_preference *p = &op->preference;
    const struct snug_matrix scales = snug_matrix_of(run, p->scales), loss = snug_matrix_of(run, p->loss),
                             results = snug_matrix_of(run, p->results);
    double *sums = snug_run_data(run, p->sums), total = 0, result[SNUG_PREFERENCE_RESULTS] = {0};
    add_chunk(run, snug_matrix_of(run, p->rows), sums);
    for (int64_t s = 0; s + 1 < run->batch->sequences; s += 2) {
        const float *reference = run->batch->references + 2 * s;
        const double x[2] = {(double)(float)-sums[s] - (double)reference[0],
                             (double)(float)-sums[s + 1] - (double)reference[2]};
        const double tokens[2] = {reference[1], reference[3]}, beta = p->form.beta;
        double d[2];
        total += pair_loss(&p->form, x, tokens, d);
        for (int k = 0; k < 2; k++) store(scales, 0, s + k, -d[k]);
        result[SNUG_REWARDS_CHOSEN] += beta * x[0];
        result[SNUG_REWARDS_REJECTED] += beta * x[1];
        result[SNUG_REWARDS_ACCURACIES] += x[0] > x[1];
        result[SNUG_REWARDS_MARGINS] += beta * (x[0] - x[1]);
        result[SNUG_LOGPS_CHOSEN] -= sums[s];
        result[SNUG_LOGPS_REJECTED] -= sums[s + 1];
    }
    store(loss, 0, 0, total);
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++) store(results, 0, i, result[i]);
    return SNUG_OK;
}
