/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: with mean and variance (biased) of a row of s, and x = (s - mean) / sqrt(variance + eps),
 *   y = gamma x + beta.
 * Backward, with g = gamma dy and means over the row:
 *   ds = (g - mean(g) - x mean(g x)) / sqrt(variance + eps),   dgamma = sum of dy x over rows,   dbeta = sum of dy.
 */
#include "backend/reference/reference.h"

struct statistics snug_reference_statistics(struct snug_matrix s, int64_t row, double eps) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < s.cols; c++) sum += load(s, row, c);
    double mean = sum / (double)s.cols;
    for (int64_t c = 0; c < s.cols; c++) squares += (load(s, row, c) - mean) * (load(s, row, c) - mean);
    return (struct statistics){mean, 1 / sqrt(squares / (double)s.cols + eps)};
}

/* y = norm(s); NORM's dropout comes after it, RESIDUAL_NORM's came before s. */
static void norm_row(const struct snug_run *run, const struct snug_op *op, struct snug_matrix y, struct snug_matrix s,
                     struct snug_matrix gamma, struct snug_matrix beta, int64_t row, double eps) {
    struct statistics stat = snug_reference_statistics(s, row, eps);
    bool dropout = op->kind == SNUG_OP_NORM;
    for (int64_t c = 0; c < s.cols; c++) {
        double norm = (load(s, row, c) - stat.mean) * stat.rstd * load(gamma, 0, c) + load_or_0(beta, c);
        store(y, row, c, dropout ? norm * dropout_factor(run, op, snug_run_token(run, op->norm.y, row), c) : norm);
    }
}

snug_status snug_reference_residual_norm(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix z = snug_matrix_of(run, op->residual_norm.z), x = snug_matrix_of(run, op->residual_norm.x);
    struct snug_matrix gamma = snug_matrix_of(run, op->residual_norm.gamma),
                       beta = snug_matrix_of(run, op->residual_norm.beta);
    struct snug_matrix y = snug_matrix_of(run, op->residual_norm.y),
                       s = !op->residual_norm.s ? y : snug_matrix_of(run, op->residual_norm.s);

    for (int64_t row = 0; row < s.rows; row++) {
        int64_t token = snug_run_token(run, op->residual_norm.y, row);
        for (int64_t c = 0; c < s.cols; c++)
            store(s, row, c, dropout_factor(run, op, token, c) * load(z, row, c) + load(x, row, c));
        norm_row(run, op, y, s, gamma, beta, row, op->residual_norm.eps);
    }
    return SNUG_OK;
}

snug_status snug_reference_norm(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix s = snug_matrix_of(run, op->norm.s), gamma = snug_matrix_of(run, op->norm.gamma),
                       beta = snug_matrix_of(run, op->norm.beta);
    struct snug_matrix y = snug_matrix_of(run, op->norm.y);

    for (int64_t row = 0; row < s.rows; row++) norm_row(run, op, y, s, gamma, beta, row, op->norm.eps);
    return SNUG_OK;
}

void snug_reference_norm_row_backward(struct snug_matrix ds, double *dgamma, double *dbeta, const double *dy,
                                      struct snug_matrix s, struct snug_matrix gamma, struct snug_matrix addend,
                                      int64_t row, double eps) {
    struct statistics stat = snug_reference_statistics(s, row, eps);
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < s.cols; c++) {
        double x = (load(s, row, c) - stat.mean) * stat.rstd, g = load(gamma, 0, c) * dy[c];
        mean_g += g / (double)s.cols;
        mean_gx += g * x / (double)s.cols;
    }
    for (int64_t c = 0; c < s.cols; c++) {
        double x = (load(s, row, c) - stat.mean) * stat.rstd;
        dgamma[c] += dy[c] * x;
        dbeta[c] += dy[c];
        const double more = addend.data ? load(addend, row, c) : 0;
        store(ds, row, c, stat.rstd * (load(gamma, 0, c) * dy[c] - mean_g - x * mean_gx) + more);
    }
}

void snug_reference_add_gradient(const struct snug_run *run, const struct snug_op *op, struct snug_matrix gradient,
                                 const double *sums) {
    for (int64_t c = 0; gradient.data && c < gradient.cols; c++)
        add_sum(gradient, 0, c, sums[c], snug_run_overwrites(run, op));
}

snug_status snug_reference_norm_backward(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dy = snug_matrix_of(run, op->norm_backward.dy), s = snug_matrix_of(run, op->norm_backward.s),
                       gamma = snug_matrix_of(run, op->norm_backward.gamma);
    struct snug_matrix addend = snug_matrix_of(run, op->norm_backward.addend);
    struct snug_matrix ds = snug_matrix_of(run, op->norm_backward.ds), dz = snug_matrix_of(run, op->norm_backward.dz);
    double *dgamma = run->workspace, *dbeta = dgamma + dy.cols, *dy_row = dbeta + dy.cols;

    for (int64_t c = 0; c < dy.cols; c++) dgamma[c] = dbeta[c] = 0;
    for (int64_t row = 0; row < dy.rows; row++) {
        for (int64_t c = 0; c < dy.cols; c++) dy_row[c] = load(dy, row, c);
        snug_reference_norm_row_backward(ds, dgamma, dbeta, dy_row, s, gamma, addend, row, op->norm_backward.eps);
        int64_t token = snug_run_token(run, op->norm_backward.ds, row);
        for (int64_t c = 0; dz.data && c < dz.cols; c++)
            store(dz, row, c, dropout_factor(run, op, token, c) * load(ds, row, c));
    }
    snug_reference_add_gradient(run, op, snug_matrix_of(run, op->norm_backward.dgamma), dgamma);
    snug_reference_add_gradient(run, op, snug_matrix_of(run, op->norm_backward.dbeta), dbeta);
    return SNUG_OK;
}
