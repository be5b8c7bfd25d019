/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = q k^T / sqrt(d) and probabilities P = softmax(S),
 *   o = (F * P) v,   F the dropout factors, element by element,
 *   lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be had again without the whole row.
 * Backward, with dP_ij = F_ij (do_i . v_j):
 *   dv = (F * P)^T do,   dS_ij = P_ij (dP_ij - sum_j P_ij dP_ij),   dq = dS k / sqrt(d),   dk = dS^T q / sqrt(d).
 * The inner sum is do_i . o_i as well, which a backend may use instead: o is stored in any case.
 */
#include "backend/reference/reference.h"

/* One head of one sequence: its tokens first … first + length - 1, and the first column of its part of h. */
struct head {
    const struct snug_run *run;
    const struct snug_op *op;
    struct snug_matrix qkv, o, lse;
    int64_t first, length, h, d, column;
    int32_t index;
};

/* The dot product of d columns of a's row and b's row. */
static double dot(struct snug_matrix a, int64_t a_row, int64_t a_col, struct snug_matrix b, int64_t b_row,
                  int64_t b_col, int64_t d) {
    double sum = 0;
    for (int64_t c = 0; c < d; c++) sum += load(a, a_row, a_col + c) * load(b, b_row, b_col + c);
    return sum;
}

static double score(const struct head *head, int64_t i, int64_t j) {
    return dot(head->qkv, head->first + i, head->column, head->qkv, head->first + j, head->h + head->column, head->d) /
           sqrt((double)head->d);
}

static double factor(const struct head *head, int64_t i, int64_t j) {
    return dropout_factor_of(head->run, head->op, j / 4, i / 2, head->run->batch->sample[head->first], head->index,
                             j % 4, i % 2);
}

static void forward(const struct head *head, double *probability) {
    for (int64_t i = 0; i < head->length; i++) {
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < head->length; j++) {
            probability[j] = score(head, i, j);
            max = fmax(max, probability[j]);
        }
        for (int64_t j = 0; j < head->length; j++) sum += probability[j] = exp(probability[j] - max);
        for (int64_t j = 0; j < head->length; j++) probability[j] *= factor(head, i, j) / sum;

        for (int64_t c = head->column; c < head->column + head->d; c++) {
            double out = 0;
            for (int64_t j = 0; j < head->length; j++)
                out += probability[j] * load(head->qkv, head->first + j, 2 * head->h + c);
            store(head->o, head->first + i, c, out);
        }
        store(head->lse, head->first + i, head->index, max + log(sum));
    }
}

/* F_ij P_ij, and dS_ij in *ds; delta is the sum over j of P_ij dP_ij. */
static double kept_probability(const struct head *head, struct snug_matrix dout, double delta, int64_t i, int64_t j,
                               double *ds) {
    int64_t row = head->first + i;
    double p = exp(score(head, i, j) - load(head->lse, row, head->index)), f = factor(head, i, j);
    double dp = f * dot(dout, row, head->column, head->qkv, head->first + j, 2 * head->h + head->column, head->d);
    *ds = p * (dp - delta);
    return f * p;
}

/* workspace: a row or column of dS, one of F * P, and delta. */
static void backward(const struct head *head, struct snug_matrix dqkv, struct snug_matrix dout, double *workspace) {
    double scale = 1 / sqrt((double)head->d);
    double *ds = workspace, *kept = ds + head->length, *delta = kept + head->length;

    for (int64_t i = 0; i < head->length; i++) {
        delta[i] = 0;
        for (int64_t j = 0; j < head->length; j++) {
            kept_probability(head, dout, 0, i, j, ds);
            delta[i] += *ds;
        }
    }
    for (int64_t i = 0; i < head->length; i++) {
        for (int64_t j = 0; j < head->length; j++) kept_probability(head, dout, delta[i], i, j, &ds[j]);
        for (int64_t c = head->column; c < head->column + head->d; c++) {
            double dq = 0;
            for (int64_t j = 0; j < head->length; j++) dq += ds[j] * load(head->qkv, head->first + j, head->h + c);
            store(dqkv, head->first + i, c, dq * scale);
        }
    }
    for (int64_t j = 0; j < head->length; j++) {
        for (int64_t i = 0; i < head->length; i++) kept[i] = kept_probability(head, dout, delta[i], i, j, &ds[i]);
        for (int64_t c = head->column; c < head->column + head->d; c++) {
            double dk = 0, dv = 0;
            for (int64_t i = 0; i < head->length; i++) {
                dk += ds[i] * load(head->qkv, head->first + i, c);
                dv += kept[i] * load(dout, head->first + i, c);
            }
            store(dqkv, head->first + j, head->h + c, dk * scale);
            store(dqkv, head->first + j, 2 * head->h + c, dv);
        }
    }
}

/* Sets the part of *head that changes from one sequence and head to the next. */
static void choose(struct head *head, int64_t sequence, int32_t index) {
    const int32_t *offsets = head->run->batch->offsets;
    head->first = offsets[sequence];
    head->length = offsets[sequence + 1] - offsets[sequence];
    head->index = index;
    head->column = index * head->d;
}

snug_status snug_reference_attention(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix qkv = snug_matrix_of(run, op->in[0]), o = snug_matrix_of(run, op->out[0]),
                       lse = snug_matrix_of(run, op->out[1]);
    struct head head = {.run = run, .op = op, .qkv = qkv, .o = o, .lse = lse, .h = o.cols, .d = o.cols / op->heads};

    for (int64_t sequence = 0; sequence < run->batch->sequences; sequence++)
        for (int32_t index = 0; index < op->heads; index++) {
            choose(&head, sequence, index);
            forward(&head, run->workspace);
        }
    return SNUG_OK;
}

snug_status snug_reference_attention_backward(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dout = snug_matrix_of(run, op->in[0]), qkv = snug_matrix_of(run, op->in[1]);
    struct snug_matrix lse = snug_matrix_of(run, op->in[3]), dqkv = snug_matrix_of(run, op->out[0]);
    const int64_t h = qkv.cols / 3;
    struct head head = {.run = run, .op = op, .qkv = qkv, .lse = lse, .h = h, .d = h / op->heads};

    for (int64_t sequence = 0; sequence < run->batch->sequences; sequence++)
        for (int32_t index = 0; index < op->heads; index++) {
            choose(&head, sequence, index);
            backward(&head, dqkv, dout, run->workspace);
        }
    return SNUG_OK;
}
