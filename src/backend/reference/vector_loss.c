/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over the vectors of a step: all similarities in a table, and the gradients of the vectors that they are of. */
#include "backend/reference/reference.h"

/* What a loss is computed from, in run->workspace: u [S,dim], its gradient g, and the similarities of each row's a with
   each b: s [n, n k], column t n + j is text 1 + t of row j, and their gradient ds. */
struct losing {
    const struct snug_vector_loss_form *form;
    int64_t n, k, dim;
    double *u, *g, *s, *ds;
    struct snug_matrix scores;
};

static double *u_of(const struct losing *l, int64_t row, int64_t text) {
    return l->u + (row * (1 + l->k) + text) * l->dim;
}
static double *g_of(const struct losing *l, int64_t row, int64_t text) {
    return l->g + (row * (1 + l->k) + text) * l->dim;
}
static double *s_at(const struct losing *l, int64_t row, int64_t column) { return l->s + row * l->n * l->k + column; }
static double *ds_at(const struct losing *l, int64_t row, int64_t column) { return l->ds + row * l->n * l->k + column; }

/* J of b, or with back its transpose. */
static double turned(const double *b, int64_t dim, int64_t c, bool back) {
    const int64_t half = (dim + 1) / 2, other = c < half ? c + half : c - half;
    const double value = other < dim ? b[other] : 0;
    return (c < half) == back ? value : -value;
}

static double inner(const struct losing *l, const double *a, const double *b) {
    double sum = 0;
    for (int64_t c = 0; c < l->dim; c++) {
        const bool turns = l->form->function == SNUG_LOSS_ANGLE;
        sum += a[c] * (b[c] + (turns ? turned(b, l->dim, c, false) : 0));
    }
    return sum;
}

static double distance(const struct losing *l, const double *a, const double *b) {
    double sum = 0;
    for (int64_t c = 0; c < l->dim; c++) sum += (a[c] - b[c]) * (a[c] - b[c]);
    return sqrt(sum);
}

/* The similarity of the same row's texts, or of any two, and the gradients that follow from its own. */
static double similarity(const struct losing *l, const double *a, const double *b) {
    if (l->form->function == SNUG_LOSS_TRIPLET) return distance(l, a, b);
    return l->form->function == SNUG_LOSS_ANGLE ? fabs(inner(l, a, b)) : inner(l, a, b);
}

static void add_gradient(const struct losing *l, const double *a, const double *b, double ds, double *ga, double *gb) {
    const enum snug_vector_loss function = l->form->function;
    const double length = function == SNUG_LOSS_TRIPLET ? distance(l, a, b) : 1;
    const double sign = function == SNUG_LOSS_ANGLE && inner(l, a, b) < 0 ? -1 : 1;
    for (int64_t c = 0; c < l->dim && length > 0; c++) {
        if (function == SNUG_LOSS_TRIPLET) {
            ga[c] += ds * (a[c] - b[c]) / length;
            gb[c] -= ds * (a[c] - b[c]) / length;
            continue;
        }
        const bool turns = function == SNUG_LOSS_ANGLE;
        ga[c] += ds * sign * (b[c] + (turns ? turned(b, l->dim, c, false) : 0));
        gb[c] += ds * sign * (a[c] + (turns ? turned(a, l->dim, c, true) : 0));
    }
}

/* -log softmax of scale s over `count` similarities, `stride` apart, at one of them, times factor. */
static double cross_entropy(const struct losing *l, double *s, double *ds, int64_t count, int64_t stride, int64_t at,
                            double factor) {
    const double scale = l->form->scale;
    double most = scale * s[0];
    for (int64_t j = 1; j < count; j++) most = fmax(most, scale * s[j * stride]);
    double sum = exp(scale * s[0] - most);
    for (int64_t j = 1; j < count; j++) sum += exp(scale * s[j * stride] - most);
    for (int64_t j = 0; j < count; j++)
        ds[j * stride] += factor * scale * (exp(scale * s[j * stride] - most) / sum - (j == at));
    return factor * (most + log(sum) - scale * s[at * stride]);
}

static double ranking(const struct losing *l) {
    const double factor = l->form->symmetric ? 0.5 : 1;
    double loss = 0;
    for (int64_t i = 0; i < l->n; i++)
        loss += cross_entropy(l, s_at(l, i, 0), ds_at(l, i, 0), l->n * l->k, 1, i, factor);
    for (int64_t j = 0; j < l->n && l->form->symmetric; j++)
        loss += cross_entropy(l, s_at(l, 0, j), ds_at(l, 0, j), l->n, l->n * l->k, j, factor);
    return loss;
}

/* s of row i's pair is s_at(i, i). */
static double cosent(const struct losing *l) {
    const double scale = l->form->scale;
    double most = 0, sum = 0;
    for (int64_t i = 0; i < l->n; i++)
        for (int64_t j = 0; j < l->n; j++)
            if (load(l->scores, 2 * i, 0) < load(l->scores, 2 * j, 0))
                most = fmax(most, scale * (*s_at(l, i, i) - *s_at(l, j, j)));
    for (int pass = 0; pass < 2; pass++) {
        const double whole = sum + exp(-most);
        for (int64_t i = 0; i < l->n; i++)
            for (int64_t j = 0; j < l->n; j++) {
                if (load(l->scores, 2 * i, 0) >= load(l->scores, 2 * j, 0)) continue;
                const double e = exp(scale * (*s_at(l, i, i) - *s_at(l, j, j)) - most);
                if (pass == 0) sum += e;
                if (pass == 1) *ds_at(l, i, i) += (double)l->n * scale * e / whole;
                if (pass == 1) *ds_at(l, j, j) -= (double)l->n * scale * e / whole;
            }
    }
    return (double)l->n * (most + log(sum + exp(-most)));
}

static double of_rows(const struct losing *l) {
    const double margin = l->form->margin;
    double loss = 0;
    for (int64_t i = 0; i < l->n; i++) {
        const double s = *s_at(l, i, i), y = l->scores.data ? load(l->scores, i * (1 + l->k), 0) : 0;
        double *ds = ds_at(l, i, i);
        if (l->form->function == SNUG_LOSS_COSINE) {
            loss += (s - y) * (s - y);
            *ds = 2 * (s - y);
        } else if (l->form->function == SNUG_LOSS_CONTRASTIVE) {
            const double far = 1 - s, room = fmax(0, margin - far);
            loss += (y * far * far + (1 - y) * room * room) / 2;
            *ds = (1 - y) * room - y * far;
        } else {
            const double room = s - *s_at(l, i, l->n + i) + margin;
            loss += fmax(0, room);
            *ds = room > 0;
            *ds_at(l, i, l->n + i) = -(double)(room > 0);
        }
    }
    return loss;
}

static double loss_of(const struct losing *l) {
    const enum snug_vector_loss function = l->form->function;
    const bool all = function == SNUG_LOSS_RANKING; /* else only those of the same row matter */
    for (int64_t i = 0; i < l->n; i++)
        for (int64_t t = 0; t < l->k; t++)
            for (int64_t j = all ? 0 : i; j < (all ? l->n : i + 1); j++) {
                *s_at(l, i, t * l->n + j) = similarity(l, u_of(l, i, 0), u_of(l, j, 1 + t));
                *ds_at(l, i, t * l->n + j) = 0;
            }
    const double loss = all ? ranking(l) : function <= SNUG_LOSS_ANGLE ? cosent(l) : of_rows(l);
    for (int64_t i = 0; i < l->n; i++)
        for (int64_t t = 0; t < l->k; t++)
            for (int64_t j = all ? 0 : i; j < (all ? l->n : i + 1); j++)
                add_gradient(l, u_of(l, i, 0), u_of(l, j, 1 + t), *ds_at(l, i, t * l->n + j), g_of(l, i, 0),
                             g_of(l, j, 1 + t));
    return loss;
}

static double length_of(struct snug_matrix x, int64_t row, int64_t dim) {
    double squares = 0;
    for (int64_t c = 0; c < dim; c++) squares += load(x, row, c) * load(x, row, c);
    return sqrt(squares);
}

/* One term of the sum over dims; unit: of vectors of length 1. */
static double add_part(struct losing *l, struct snug_matrix x, struct snug_matrix d, bool unit, double factor) {
    const double least = (double)SNUG_NORMALIZE_LEAST;
    for (int64_t row = 0; row < x.rows; row++) {
        const double length = unit ? fmax(length_of(x, row, l->dim), least) : 1;
        for (int64_t c = 0; c < l->dim; c++) {
            l->u[row * l->dim + c] = load(x, row, c) / length;
            l->g[row * l->dim + c] = 0;
        }
    }
    const double loss = loss_of(l);
    for (int64_t row = 0; row < x.rows && d.data; row++) {
        const double length = unit ? length_of(x, row, l->dim) : 1, *u = l->u + row * l->dim, *g = l->g + row * l->dim;
        double along = 0;
        for (int64_t c = 0; c < l->dim && unit && length > least; c++) along += u[c] * g[c];
        for (int64_t c = 0; c < l->dim; c++)
            store(d, row, c, load(d, row, c) + factor * (g[c] - u[c] * along) / fmax(length, least));
    }
    return loss;
}

snug_status snug_reference_vector_loss(struct snug_run *run, const struct snug_op *op) {
    const struct snug_vector_loss_op *v = &op->vector_loss;
    const struct snug_matrix x = snug_matrix_of(run, v->vectors), d = snug_matrix_of(run, v->d);
    const float *scaler = scaler_of(run);
    const double scale = (double)run->loss_scale * (scaler ? (double)scaler[SNUG_SCALE] : 1);
    const int64_t n = x.rows / v->form.texts, k = v->form.texts - 1;
    double sum = 0, *values = run->workspace;
    for (int64_t i = 0; i < x.rows * x.cols && d.data; i++) store(d, 0, i, 0);
    for (int i = 0; i < (v->form.dim_count ? v->form.dim_count : 1); i++) {
        const int64_t dim = v->form.dim_count ? v->form.dims[i] : x.cols;
        const double weight = v->form.dim_count ? (double)v->form.weights[i] : 1;
        struct losing l = {.form = &v->form, .n = n, .k = k, .dim = dim, .scores = snug_matrix_of(run, v->scores)};
        l.u = values;
        l.g = l.u + x.rows * dim;
        l.s = l.g + x.rows * dim;
        l.ds = l.s + n * n * k;
        sum += weight * add_part(&l, x, d, v->form.dim_count || v->form.function != SNUG_LOSS_TRIPLET, weight * scale);
    }
    store(snug_matrix_of(run, v->loss), 0, 0, sum);
    return SNUG_OK;
}
