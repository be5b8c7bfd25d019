/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: with mean and variance (biased) of a row of s, and x = (s - mean) / sqrt(variance + eps),
 *   y = gamma x + beta.
 * Backward, with g = gamma dy and means over the row:
 *   ds = (g - mean(g) - x mean(g x)) / sqrt(variance + eps),   dgamma = sum of dy x over rows,   dbeta = sum of dy.
 * RMSNorm: the mean of s is taken as 0, and there is no mean(g). With a unit offset, gamma is 1 + the weight.
 */
#include "backend/reference/reference.h"

struct statistics {
    double mean, rstd; /* rstd = 1 / sqrt(biased variance + eps) */
};

static struct statistics statistics(struct snug_matrix s, int64_t row, const struct snug_norm_form *form) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < s.cols && !form->rms; c++) sum += load(s, row, c);
    double mean = sum / (double)s.cols;
    for (int64_t c = 0; c < s.cols; c++) squares += (load(s, row, c) - mean) * (load(s, row, c) - mean);
    return (struct statistics){mean, 1 / sqrt(squares / (double)s.cols + (double)form->eps)};
}

static double gamma_of(struct snug_matrix gamma, int64_t c, const struct snug_norm_form *form) {
    return load(gamma, 0, c) + (form->unit_offset ? 1 : 0);
}

/* m with each part of a row as a row. */
static struct snug_matrix parts_of(struct snug_matrix m, const struct snug_norm_form *form) {
    const int64_t parts = form->parts > 0 ? form->parts : 1;
    m.rows *= parts;
    m.cols /= parts;
    return m;
}

/* y = norm(s); NORM's dropout comes after it, RESIDUAL_NORM's came before s. */
static void norm_row(const struct snug_run *run, const struct snug_op *op, struct snug_matrix y, struct snug_matrix s,
                     struct snug_matrix gamma, struct snug_matrix beta, int64_t row,
                     const struct snug_norm_form *form) {
    struct statistics stat = statistics(s, row, form);
    bool dropout = op->kind == SNUG_OP_NORM && op->p > 0;
    for (int64_t c = 0; c < s.cols; c++) {
        double norm = (load(s, row, c) - stat.mean) * stat.rstd * gamma_of(gamma, c, form) + load_or_0(beta, c);
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
        norm_row(run, op, y, s, gamma, beta, row, &op->residual_norm.form);
    }
    return SNUG_OK;
}

snug_status snug_reference_norm(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix s = parts_of(snug_matrix_of(run, op->norm.s), &op->norm.form),
                       gamma = snug_matrix_of(run, op->norm.gamma), beta = snug_matrix_of(run, op->norm.beta);
    struct snug_matrix y = parts_of(snug_matrix_of(run, op->norm.y), &op->norm.form);

    for (int64_t row = 0; row < s.rows; row++) norm_row(run, op, y, s, gamma, beta, row, &op->norm.form);
    return SNUG_OK;
}

/* ds of a row from its dy [h]; adds the row's part to dgamma and dbeta [h]. */
static void backward_row(const struct snug_run *run, const struct snug_norm_backward *n, const double *dy, int64_t row,
                         double *dgamma, double *dbeta) {
    const struct snug_matrix s = parts_of(snug_matrix_of(run, n->s), &n->form), gamma = snug_matrix_of(run, n->gamma),
                             addend = parts_of(snug_matrix_of(run, n->addend), &n->form),
                             ds = parts_of(snug_matrix_of(run, n->ds), &n->form);
    struct statistics stat = statistics(s, row, &n->form);
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < s.cols; c++) {
        double x = (load(s, row, c) - stat.mean) * stat.rstd, g = gamma_of(gamma, c, &n->form) * dy[c];
        mean_g += n->form.rms ? 0 : g / (double)s.cols;
        mean_gx += g * x / (double)s.cols;
    }
    for (int64_t c = 0; c < s.cols; c++) {
        double x = (load(s, row, c) - stat.mean) * stat.rstd;
        dgamma[c] += dy[c] * x;
        dbeta[c] += dy[c];
        const double more = addend.data ? load(addend, row, c) : 0;
        store(ds, row, c, stat.rstd * (gamma_of(gamma, c, &n->form) * dy[c] - mean_g - x * mean_gx) + more);
    }
}

/* gradient [1,n], which is optional, = sums, or += sums if this is not the step's first part. */
static void add_gradient(const struct snug_run *run, const struct snug_op *op, struct snug_matrix gradient,
                         const double *sums) {
    for (int64_t c = 0; gradient.data && c < gradient.cols; c++)
        add_sum(gradient, 0, c, sums[c], snug_run_overwrites(run, op));
}

snug_status snug_reference_norm_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_norm_backward *n = &op->norm_backward;
    struct snug_matrix dy = parts_of(snug_matrix_of(run, n->dy), &n->form),
                       ds = parts_of(snug_matrix_of(run, n->ds), &n->form), dz = snug_matrix_of(run, n->dz);
    double *dgamma = run->workspace, *dbeta = dgamma + dy.cols, *dy_row = dbeta + dy.cols;

    for (int64_t c = 0; c < dy.cols; c++) dgamma[c] = dbeta[c] = 0;
    for (int64_t row = 0; row < dy.rows; row++) {
        const int64_t token = op->p > 0 ? snug_run_token(run, n->ds, row) : 0;
        for (int64_t c = 0; c < dy.cols; c++)
            dy_row[c] = load(dy, row, c) * (n->drops_y ? dropout_factor(run, op, token, c) : 1);
        backward_row(run, n, dy_row, row, dgamma, dbeta);
        for (int64_t c = 0; dz.data && c < dz.cols; c++)
            store(dz, row, c, dropout_factor(run, op, token, c) * load(ds, row, c));
    }
    add_gradient(run, op, snug_matrix_of(run, n->dgamma), dgamma);
    add_gradient(run, op, snug_matrix_of(run, n->dbeta), dbeta);
    return SNUG_OK;
}
