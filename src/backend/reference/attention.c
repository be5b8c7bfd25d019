/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = cap(q k^T * scale) + b, where cap may be the identity and
 * b may be 0, and probabilities P = softmax(S) over the keys that a query attends to, o = (F * P) v,   F the dropout
 * factors, element by element, lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be recomputed without
 * the whole row. Backward, with dP_ij = F_ij (do_i . v_j), dS_ij = P_ij (dP_ij - sum_j P_ij dP_ij) and dX_ij = dS_ij
 * cap'(X_ij), the gradient of X = q k^T * scale: dv = (F * P)^T do,   dq = dX k * scale,   dk = dX^T q * scale, dbias
 * of a bucket is the sum of its dS_ij. dk and dv of a key/value head are the sums over the query heads that read it.
 * The inner sum is do_i . o_i as well, which a backend may use instead: o is stored in any case. With position keys and
 * queries, whose row for the pair is r, S_ij has also (q_i . pk_r + k_j . pq_r) * scale, so that dq_i has the sum of
 * dX_ij pk_r, dk_j that of dX_ij pq_r, and dpk_r, dpq_r are the sums of dX_ij q_i and of dX_ij k_j, all times scale.
 */
#include "backend/reference/reference.h"

/* One head of one sequence: its tokens first … first + length - 1, and the first columns of its operands. */
struct head {
    const struct snug_run *run;
    const struct snug_op *op;
    const struct snug_attention_form *form;
    struct snug_matrix operand[3], o, lse, bias, pk, pq;
    int64_t first, length, d, column;
    int64_t columns[3]; /* of operand[n] */
    int32_t index;
    double *q, *k, *v;  /* [length,d] */
    double *row, *dout; /* [d] */
    double *dpk, *dpq;  /* [2*span,heads*d], as the tensors */
    double *rest;       /* workspace for the caller */
};

static int64_t elements(const struct snug_program *program, int32_t tensor) {
    return tensor ? program->tensors[tensor].rows * program->tensors[tensor].cols : 0;
}

/* Buffers in the workspace: see struct head; dbias [buckets,heads]; dk and dv; 4 rows of one value per token. */
int64_t snug_reference_attention_doubles(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_attention_backward *b = &op->attention_backward;
    const bool backward = op->kind == SNUG_OP_ATTENTION_BACKWARD;
    const int64_t d = snug_op_attention_form(op)->head_dim;
    return program->longest * (5 * d + 4) + 2 * d +
           (backward ? elements(program, b->bias) + elements(program, b->pk) + elements(program, b->pq) : 0);
}

/* Whether query i attends to key j. */
static bool sees(const struct head *head, int64_t i, int64_t j) {
    const int32_t before = head->form->before, after = head->form->after;
    return (before < 0 || i - j <= before) && (after < 0 || j - i <= after);
}

/* x [length,d] = the head's part of operand n. */
static void read_head(const struct head *head, double *x, int n) {
    for (int64_t i = 0; i < head->length; i++)
        for (int64_t c = 0; c < head->d; c++)
            x[i * head->d + c] = load(head->operand[n], head->first + i, head->columns[n] + c);
}

static int64_t bias_row(const struct head *head, int64_t i, int64_t j) {
    return snug_relative_bucket(j - i, (int32_t)head->bias.rows);
}

/* The row of position keys and queries, which have `rows` of them. */
static int64_t position_row(const struct head *head, int64_t rows, int64_t i, int64_t j) {
    return snug_position_row(i - j, (int32_t)rows / 2, head->form->farthest);
}

/* x . the row of the pair in a table of position keys or queries; 0 without it. */
static double position_score(const struct head *head, struct snug_matrix table, const double *x, int64_t i, int64_t j) {
    double sum = 0;
    if (!table.data) return 0;
    const int64_t row = position_row(head, table.rows, i, j);
    for (int64_t c = 0; c < head->d; c++) sum += x[c] * load(table, row, head->column + c);
    return sum;
}

/* dx += dx_ij * the row of the pair;  the row of sums += dx_ij * x. */
static void position_gradients(const struct head *head, struct snug_matrix table, double *sums, const double *x,
                               double *dx, double dx_ij, int64_t i, int64_t j) {
    if (!table.data) return;
    const int64_t row = position_row(head, table.rows, i, j);
    for (int64_t c = 0; c < head->d; c++) {
        dx[c] += dx_ij * load(table, row, head->column + c);
        sums[row * table.cols + head->column + c] += dx_ij * x[c];
    }
}

/* S_ij, and in *slope the derivative of the cap there. */
static double score(const struct head *head, int64_t i, int64_t j, double *slope) {
    const double *q = head->q + i * head->d, *k = head->k + j * head->d;
    double sum = position_score(head, head->pk, q, i, j) + position_score(head, head->pq, k, i, j);
    for (int64_t c = 0; c < head->d; c++) sum += q[c] * k[c];
    sum *= head->form->scale;
    *slope = 1;
    if (head->form->softcap > 0) {
        const double t = tanh(sum / head->form->softcap);
        sum = head->form->softcap * t;
        *slope = 1 - t * t;
    }
    return sum + (head->bias.data ? load(head->bias, bias_row(head, i, j), head->index) : 0);
}

static double factor(const struct head *head, int64_t i, int64_t j) {
    return dropout_factor_of(head->run, head->op, j / 4, i / 2, head->run->batch->sample[head->first], head->index,
                             j % 4, i % 2);
}

static void forward(const struct head *head) {
    double *probability = head->rest, slope;
    for (int64_t i = 0; i < head->length; i++) {
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < head->length; j++) {
            probability[j] = sees(head, i, j) ? score(head, i, j, &slope) : -INFINITY;
            max = fmax(max, probability[j]);
        }
        for (int64_t j = 0; j < head->length; j++) sum += probability[j] = exp(probability[j] - max);
        for (int64_t j = 0; j < head->length; j++) probability[j] *= factor(head, i, j) / sum;

        for (int64_t c = 0; c < head->d; c++) head->row[c] = 0;
        for (int64_t j = 0; j < head->length; j++) {
            if (!sees(head, i, j)) continue;
            for (int64_t c = 0; c < head->d; c++) head->row[c] += probability[j] * head->v[j * head->d + c];
        }
        for (int64_t c = 0; c < head->d; c++) store(head->o, head->first + i, head->column + c, head->row[c]);
        store(head->lse, head->first + i, head->index, max + log(sum));
    }
}

/* The head's part of token's row of operand n's gradient = row. */
static void store_row(const struct head *head, struct snug_matrix gradient, int n, int64_t i, const double *row) {
    for (int64_t c = 0; c < head->d; c++) store(gradient, head->first + i, head->columns[n] + c, row[c]);
}

/* The rows of dq, contributions to dk and dv [length,d] and to dbias. */
static void backward(const struct head *head, struct snug_matrix dq, struct snug_matrix dout, double *dk, double *dv,
                     double *dbias) {
    const double scale = head->form->scale;
    const int64_t d = head->d, length = head->length;
    double *p = head->rest + 2 * length * d, *kept = p + length, *dp = kept + length, *slope = dp + length;
    for (int64_t i = 0; i < length; i++) {
        const int64_t row = head->first + i;
        double delta = 0;
        for (int64_t c = 0; c < d; c++) {
            head->dout[c] = load(dout, row, head->column + c);
            head->row[c] = 0;
        }
        for (int64_t j = 0; j < length; j++) {
            if (!sees(head, i, j)) continue;
            const double f = factor(head, i, j);
            double sum = 0;
            p[j] = exp(score(head, i, j, &slope[j]) - load(head->lse, row, head->index));
            for (int64_t c = 0; c < d; c++) sum += head->dout[c] * head->v[j * d + c];
            kept[j] = f * p[j];
            dp[j] = f * sum;
            delta += p[j] * dp[j];
        }
        for (int64_t j = 0; j < length; j++) {
            if (!sees(head, i, j)) continue;
            const double ds = p[j] * (dp[j] - delta), dx = ds * slope[j];
            if (head->bias.data) dbias[bias_row(head, i, j) * head->bias.cols + head->index] += ds;
            for (int64_t c = 0; c < d; c++) {
                head->row[c] += dx * head->k[j * d + c] * scale;
                dk[j * d + c] += dx * head->q[i * d + c] * scale;
                dv[j * d + c] += kept[j] * head->dout[c];
            }
            position_gradients(head, head->pk, head->dpk, head->q + i * d, head->row, dx * scale, i, j);
            position_gradients(head, head->pq, head->dpq, head->k + j * d, dk + j * d, dx * scale, i, j);
        }
        store_row(head, dq, 0, i, head->row);
    }
}

/* The head's part of dk and dv, from all its query heads. */
static void store_keys(const struct head *head, struct snug_matrix dk, struct snug_matrix dv, const double *keys,
                       const double *values) {
    for (int64_t j = 0; j < head->length; j++) {
        store_row(head, dk, 1, j, keys + j * head->d);
        store_row(head, dv, 2, j, values + j * head->d);
    }
}

/* A gradient, if there is one, = values. */
static void store_all(struct snug_matrix gradient, const double *values) {
    for (int64_t row = 0; gradient.data && row < gradient.rows; row++)
        for (int64_t c = 0; c < gradient.cols; c++) store(gradient, row, c, values[row * gradient.cols + c]);
}

/* Sets the part of *head that changes from one sequence and head to the next. */
static void choose(struct head *head, int64_t sequence, int32_t index, double *workspace) {
    const int32_t *offsets = head->run->batch->offsets;
    const struct snug_attention_form *form = head->form;
    head->first = offsets[sequence];
    head->length = offsets[sequence + 1] - offsets[sequence];
    head->index = index;
    head->column = index * head->d;
    for (int n = 0; n < 3; n++) {
        const int32_t own = n ? index / (form->heads / form->kv_heads) : index;
        head->columns[n] = form->column[n] + own * head->d;
    }
    head->q = workspace;
    head->k = head->q + head->length * head->d;
    head->v = head->k + head->length * head->d;
    head->row = head->v + head->length * head->d;
    head->dout = head->row + head->d;
    head->rest = head->dout + head->d;
    read_head(head, head->q, 0);
    read_head(head, head->k, 1);
    read_head(head, head->v, 2);
}

snug_status snug_reference_attention(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention *a = &op->attention;
    struct head head = {.run = run,
                        .op = op,
                        .form = &a->form,
                        .operand = {snug_matrix_of(run, a->q), snug_matrix_of(run, a->k), snug_matrix_of(run, a->v)},
                        .o = snug_matrix_of(run, a->o),
                        .lse = snug_matrix_of(run, a->lse),
                        .bias = snug_matrix_of(run, a->bias),
                        .pk = snug_matrix_of(run, a->pk),
                        .pq = snug_matrix_of(run, a->pq),
                        .d = a->form.head_dim};

    for (int64_t sequence = 0; sequence < run->batch->sequences; sequence++)
        for (int32_t index = 0; index < a->form.heads; index++) {
            choose(&head, sequence, index, run->workspace);
            forward(&head);
        }
    return SNUG_OK;
}

snug_status snug_reference_attention_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention_backward *a = &op->attention_backward;
    const struct snug_matrix dout = snug_matrix_of(run, a->dout), dbias = snug_matrix_of(run, a->dbias);
    const struct snug_matrix dq = snug_matrix_of(run, a->dq), dk = snug_matrix_of(run, a->dk),
                             dv = snug_matrix_of(run, a->dv);
    struct head head = {.run = run,
                        .op = op,
                        .form = &a->form,
                        .operand = {snug_matrix_of(run, a->q), snug_matrix_of(run, a->k), snug_matrix_of(run, a->v)},
                        .lse = snug_matrix_of(run, a->lse),
                        .bias = snug_matrix_of(run, a->bias),
                        .pk = snug_matrix_of(run, a->pk),
                        .pq = snug_matrix_of(run, a->pq),
                        .d = a->form.head_dim};
    const int32_t group = a->form.heads / a->form.kv_heads;
    double *sums = run->workspace;
    const int64_t biases = head.bias.rows * head.bias.cols;
    head.dpk = sums + biases;
    head.dpq = head.dpk + head.pk.rows * head.pk.cols;
    double *buffers = head.dpq + head.pq.rows * head.pq.cols;
    for (double *sum = sums; sum < buffers; sum++) *sum = 0;

    for (int64_t sequence = 0; sequence < run->batch->sequences; sequence++)
        for (int32_t index = 0; index < a->form.heads; index++) {
            choose(&head, sequence, index, buffers);
            const int64_t count = head.length * head.d;
            double *keys = head.rest, *values = keys + count;
            for (int64_t i = 0; index % group == 0 && i < 2 * count; i++) keys[i] = 0;
            backward(&head, dq, dout, keys, values, sums);
            if (index % group == group - 1) store_keys(&head, dk, dv, keys, values);
        }
    for (int64_t row = 0; dbias.data && row < dbias.rows; row++)
        for (int64_t c = 0; c < dbias.cols; c++)
            store(dbias, row, c, sums[row * dbias.cols + c] + (snug_run_overwrites(run, op) ? 0 : load(dbias, row, c)));
    store_all(snug_matrix_of(run, a->dpk), head.dpk);
    store_all(snug_matrix_of(run, a->dpq), head.dpq);
    return SNUG_OK;
}
