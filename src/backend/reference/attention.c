/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = q k^T / sqrt(d) + b, where q and k may be rotated by their
 * positions and b may be 0, and probabilities P = softmax(S) over the keys within the window,
 *   o = (F * P) v,   F the dropout factors, element by element,
 *   lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be recomputed without the whole row.
 * Backward, with dP_ij = F_ij (do_i . v_j):
 *   dv = (F * P)^T do,   dS_ij = P_ij (dP_ij - sum_j P_ij dP_ij),   dq = dS k / sqrt(d),   dk = dS^T q / sqrt(d),
 * dq and dk rotated back;  dbias of a bucket is the sum of its dS_ij.
 * The inner sum is do_i . o_i as well, which a backend may use instead: o is stored in any case.
 */
#include "backend/reference/reference.h"

/* One head of one sequence: its tokens first … first + length - 1, and the first column of its part of h. */
struct head {
    const struct snug_run *run;
    const struct snug_op *op;
    struct snug_matrix qkv, o, lse, bias;
    double theta; /* base of the rotation, or 0 */
    int64_t window, first, length, h, d, column;
    int32_t index;
    double *q, *k, *row; /* [length,d] rotated; [d] */
    double *rest;        /* workspace for the caller */
};

/* Buffers in the workspace: see struct head; dbias [buckets,heads]; 3 rows of one value per token. */
int64_t snug_reference_attention_doubles(const struct snug_program *program, int64_t d, int32_t bias) {
    const struct snug_tensor *table = &program->tensors[bias];
    return program->longest * (2 * d + 3) + d + (bias ? table->rows * table->cols : 0);
}

static int64_t least_key(const struct head *head, int64_t i) {
    return head->window && i > head->window ? i - head->window : 0;
}
static int64_t end_key(const struct head *head, int64_t i) {
    return head->window && i + head->window < head->length ? i + head->window + 1 : head->length;
}

/* Rotates the d values of a position by `by` times their angles. */
static void rotate(const struct head *head, double *x, int64_t place, double by) {
    const int64_t half = head->d / 2;
    for (int64_t c = 0; head->theta > 0 && c < half; c++) {
        const double angle = by * (double)place * pow(head->theta, -2.0 * (double)c / (double)head->d);
        const double a = x[c], b = x[half + c];
        x[c] = a * cos(angle) - b * sin(angle);
        x[half + c] = b * cos(angle) + a * sin(angle);
    }
}

/* x [length,d] = the head's part of qkv from column on, rotated. */
static void read_rotated(const struct head *head, double *x, int64_t column) {
    for (int64_t i = 0; i < head->length; i++) {
        for (int64_t c = 0; c < head->d; c++) x[i * head->d + c] = load(head->qkv, head->first + i, column + c);
        rotate(head, x + i * head->d, i, 1);
    }
}

static int64_t bias_row(const struct head *head, int64_t i, int64_t j) {
    return snug_relative_bucket(j - i, (int32_t)head->bias.rows);
}

static double score(const struct head *head, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t c = 0; c < head->d; c++) sum += head->q[i * head->d + c] * head->k[j * head->d + c];
    return sum / sqrt((double)head->d) + (head->bias.data ? load(head->bias, bias_row(head, i, j), head->index) : 0);
}

static double factor(const struct head *head, int64_t i, int64_t j) {
    return dropout_factor_of(head->run, head->op, j / 4, i / 2, head->run->batch->sample[head->first], head->index,
                             j % 4, i % 2);
}

static void forward(const struct head *head) {
    double *probability = head->rest;
    for (int64_t i = 0; i < head->length; i++) {
        const int64_t begin = least_key(head, i), end = end_key(head, i);
        double max = -INFINITY, sum = 0;
        for (int64_t j = begin; j < end; j++) {
            probability[j] = score(head, i, j);
            max = fmax(max, probability[j]);
        }
        for (int64_t j = begin; j < end; j++) sum += probability[j] = exp(probability[j] - max);
        for (int64_t j = begin; j < end; j++) probability[j] *= factor(head, i, j) / sum;

        for (int64_t c = head->column; c < head->column + head->d; c++) {
            double out = 0;
            for (int64_t j = begin; j < end; j++)
                out += probability[j] * load(head->qkv, head->first + j, 2 * head->h + c);
            store(head->o, head->first + i, c, out);
        }
        store(head->lse, head->first + i, head->index, max + log(sum));
    }
}

/* F_ij P_ij, and dS_ij in *ds; delta is the sum over j of P_ij dP_ij. */
static double kept_probability(const struct head *head, struct snug_matrix dout, double delta, int64_t i, int64_t j,
                               double *ds) {
    const int64_t row = head->first + i;
    const double p = exp(score(head, i, j) - load(head->lse, row, head->index)), f = factor(head, i, j);
    double dp = 0;
    for (int64_t c = head->column; c < head->column + head->d; c++)
        dp += load(dout, row, c) * load(head->qkv, head->first + j, 2 * head->h + c);
    *ds = p * (f * dp - delta);
    return f * p;
}

/* The head's part of token's row from column on = row, rotated back. */
static void store_rotated(const struct head *head, struct snug_matrix dqkv, int64_t i, int64_t column, double *row) {
    rotate(head, row, i, -1);
    for (int64_t c = 0; c < head->d; c++) store(dqkv, head->first + i, column + c, row[c]);
}

/* The rows of dq, and their contributions to dbias. delta [length]: the inner sums. */
static void backward_queries(const struct head *head, struct snug_matrix dqkv, struct snug_matrix dout, double *delta,
                             double *dbias) {
    const double scale = 1 / sqrt((double)head->d);
    double *ds = delta + head->length;
    for (int64_t i = 0; i < head->length; i++) {
        const int64_t begin = least_key(head, i), end = end_key(head, i);
        delta[i] = 0;
        for (int64_t j = begin; j < end; j++) {
            kept_probability(head, dout, 0, i, j, ds);
            delta[i] += *ds;
        }
        for (int64_t j = begin; j < end; j++) {
            kept_probability(head, dout, delta[i], i, j, &ds[j]);
            if (head->bias.data) dbias[bias_row(head, i, j) * head->bias.cols + head->index] += ds[j];
        }
        for (int64_t c = 0; c < head->d; c++) {
            head->row[c] = 0;
            for (int64_t j = begin; j < end; j++) head->row[c] += ds[j] * head->k[j * head->d + c] * scale;
        }
        store_rotated(head, dqkv, i, head->column, head->row);
    }
}

/* The rows of dk and dv; windows are symmetric, so the queries that attend to a key are the keys within its own
   window. */
static void backward_keys(const struct head *head, struct snug_matrix dqkv, struct snug_matrix dout,
                          const double *delta, double *workspace) {
    const double scale = 1 / sqrt((double)head->d);
    double *ds = workspace, *kept = workspace + head->length;
    for (int64_t j = 0; j < head->length; j++) {
        const int64_t begin = least_key(head, j), end = end_key(head, j);
        for (int64_t i = begin; i < end; i++) kept[i] = kept_probability(head, dout, delta[i], i, j, &ds[i]);
        for (int64_t c = 0; c < head->d; c++) {
            double dv = 0;
            head->row[c] = 0;
            for (int64_t i = begin; i < end; i++) {
                head->row[c] += ds[i] * head->q[i * head->d + c] * scale;
                dv += kept[i] * load(dout, head->first + i, head->column + c);
            }
            store(dqkv, head->first + j, 2 * head->h + head->column + c, dv);
        }
        store_rotated(head, dqkv, j, head->h + head->column, head->row);
    }
}

/* Sets the part of *head that changes from one sequence and head to the next. */
static void choose(struct head *head, int64_t sequence, int32_t index, double *workspace) {
    const int32_t *offsets = head->run->batch->offsets;
    head->first = offsets[sequence];
    head->length = offsets[sequence + 1] - offsets[sequence];
    head->index = index;
    head->column = index * head->d;
    head->q = workspace;
    head->k = head->q + head->length * head->d;
    head->row = head->k + head->length * head->d;
    head->rest = head->row + head->d;
    read_rotated(head, head->q, head->column);
    read_rotated(head, head->k, head->h + head->column);
}

snug_status snug_reference_attention(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention *a = &op->attention;
    struct snug_matrix o = snug_matrix_of(run, a->o);
    struct head head = {.run = run,
                        .op = op,
                        .qkv = snug_matrix_of(run, a->qkv),
                        .o = o,
                        .lse = snug_matrix_of(run, a->lse),
                        .bias = snug_matrix_of(run, a->bias),
                        .theta = a->rope_theta,
                        .window = a->window,
                        .h = o.cols,
                        .d = o.cols / a->heads};

    for (int64_t sequence = 0; sequence < run->batch->sequences; sequence++)
        for (int32_t index = 0; index < a->heads; index++) {
            choose(&head, sequence, index, run->workspace);
            forward(&head);
        }
    return SNUG_OK;
}

snug_status snug_reference_attention_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention_backward *a = &op->attention_backward;
    struct snug_matrix dout = snug_matrix_of(run, a->dout), dqkv = snug_matrix_of(run, a->dqkv);
    struct snug_matrix dbias = snug_matrix_of(run, a->dbias);
    struct head head = {.run = run,
                        .op = op,
                        .qkv = snug_matrix_of(run, a->qkv),
                        .lse = snug_matrix_of(run, a->lse),
                        .bias = snug_matrix_of(run, a->bias),
                        .theta = a->rope_theta,
                        .window = a->window,
                        .h = dout.cols,
                        .d = dout.cols / a->heads};
    double *sums = run->workspace;
    const int64_t biases = head.bias.rows * head.bias.cols;
    for (int64_t i = 0; i < biases; i++) sums[i] = 0;

    for (int64_t sequence = 0; sequence < run->batch->sequences; sequence++)
        for (int32_t index = 0; index < a->heads; index++) {
            choose(&head, sequence, index, sums + biases);
            backward_queries(&head, dqkv, dout, head.rest, sums);
            backward_keys(&head, dqkv, dout, head.rest, head.rest + head.length);
        }
    for (int64_t row = 0; dbias.data && row < dbias.rows; row++)
        for (int64_t c = 0; c < dbias.cols; c++)
            store(dbias, row, c, sums[row * dbias.cols + c] + (snug_run_overwrites(run, op) ? 0 : load(dbias, row, c)));
    return SNUG_OK;
}
