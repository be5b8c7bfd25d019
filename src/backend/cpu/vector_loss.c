/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses over the vectors of a step. With the vectors x and their lengths, the gradient by x_a of similarities s(a, b)
 * = x_a x_b / (|x_a| |x_b|), whose gradients are g_ab, is
 *   sum over b of g_ab / (|x_a| |x_b|) x_b  -  (sum over b of g_ab s(a, b)) / |x_a|^2 x_a
 * so that vectors of length 1 are never stored. RANKING has all pairs of a row's first text
 * and any other text: blocks of vectors, each by one thread, compute their similarities with all vectors of the other
 * side by matmuls, and once more for the gradients of the other side. So the scratch grows with the vectors, not with
 * their square.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"
#include "core/min_max.h"
#include "program/vector_loss.h"

/* One term of the sum over dims, and the scratch: its layout follows vector_loss_workspace() of workspace.c. */
struct pass {
    const struct snug_run *run;
    const struct snug_vector_loss_form *form;
    const float *x, *scores;
    float *d;
    int64_t n, stride, cols, texts, dim; /* stride: floats from a text's number to the next, padded n */
    bool unit;
    float factor;          /* of gradients */
    float *inverse;        /* [texts, stride] 1 / |x|; 1 of vectors as they are */
    bool *fixed;           /* [texts, stride] the vector is too short to have a direction */
    float *of_rows;        /* [stride] of each row's first text: log of the sum of exponentials */
    float *of_texts;       /* the same of each second text, if symmetric */
    float *s, *slope;      /* [texts - 1, stride] of the row's pairs: similarities, the loss's derivatives */
    double *losses, *sums; /* [stride] */
    float *blocks;         /* of the threads, snug_cpu_vector_loss_block() each */
};

static const float *vector_of(const struct pass *p, int64_t row, int64_t text) {
    return p->x + (row * p->texts + text) * p->cols;
}
static float *gradient_of(const struct pass *p, int64_t row, int64_t text) {
    return p->d + (row * p->texts + text) * p->cols;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static double dot(const float *a, const float *b, int64_t n) {
    vec sum = vec_all(0);
    for (int64_t c = 0; c < n; c += VEC_LANES)
        sum = vec_fma(vec_load(a, SNUG_F32, c, n), vec_load(b, SNUG_F32, c, n), sum);
    return (double)vec_sum(sum);
}

/* y += scale x */
static void add_scaled(float *y, float scale, const float *x, int64_t n) {
    for (int64_t c = 0; c < n; c += VEC_LANES)
        vec_store(y, SNUG_F32, c, n, vec_fma(vec_all(scale), vec_load(x, SNUG_F32, c, n), vec_load(y, SNUG_F32, c, n)));
}

static void find_lengths(const struct pass *p) {
    const float least = SNUG_NORMALIZE_LEAST;
#pragma omp parallel for num_threads(p->run->threads) schedule(static)
    for (int64_t row = 0; row < p->n; row++)
        for (int64_t text = 0; text < p->texts; text++) {
            const float *x = vector_of(p, row, text);
            const float length = p->unit ? (float)sqrt(dot(x, x, p->dim)) : 1;
            p->inverse[text * p->stride + row] = 1 / fmaxf(length, least);
            p->fixed[text * p->stride + row] = !p->unit || length <= least;
        }
}

/* Takes off the part of a gradient along its vector. */
static void project(const struct pass *p, int64_t row, int64_t text, float along) {
    const float inverse = p->inverse[text * p->stride + row];
    if (p->fixed[text * p->stride + row]) return;
    add_scaled(gradient_of(p, row, text), -along * inverse * inverse, vector_of(p, row, text), p->dim);
}

/* ---- ranking ----------------------------------------------------------------------------------------------------- */

/* Vectors first … first + count - 1 of one text, and the texts whose vectors they are compared with. */
struct block {
    int64_t first, count, text, from, to;
    float *s; /* [count, (to - from) stride] */
};

static int64_t block_stride(const struct pass *p, const struct block *b) { return (b->to - b->from) * p->stride; }

/* s = the cosines. */
static bool compare(const struct pass *p, const struct block *b) {
    const int64_t ld = p->texts * p->cols, width = block_stride(p, b);
    for (int64_t t = b->from; t < b->to; t++)
        if (!snug_gemm_f32(b->s + (t - b->from) * p->stride, width, vector_of(p, b->first, b->text), ld, false,
                           vector_of(p, 0, t), ld, true, b->count, p->n, p->dim, 0))
            return false;
    for (int64_t i = 0; i < b->count; i++)
        for (int64_t t = b->from; t < b->to; t++) {
            float *s = b->s + i * width + (t - b->from) * p->stride;
            const vec own = vec_all(p->inverse[b->text * p->stride + b->first + i]);
            for (int64_t c = 0; c < p->n; c += VEC_LANES)
                vec_write(s + c,
                          vec_select(vec_below(p->n - c),
                                     vec_read(s + c) * own * vec_read(p->inverse + t * p->stride + c), vec_all(0)));
        }
    return true;
}

/* The log of the sum of exponentials of scale times row i's cosines. */
static float log_sum(const struct pass *p, const struct block *b, int64_t i) {
    const float *row = b->s + i * block_stride(p, b);
    const vec scale = vec_all(p->form->scale);
    vec most = vec_all(-INFINITY), sum = vec_all(0);
    for (int64_t t = b->from; t < b->to; t++)
        for (int64_t c = 0; c < p->n; c += VEC_LANES) {
            const vec s = scale * vec_read(row + (t - b->from) * p->stride + c);
            most = vec_max(most, vec_select(vec_below(p->n - c), s, most));
        }
    const float largest = vec_largest(most);
    for (int64_t t = b->from; t < b->to; t++)
        for (int64_t c = 0; c < p->n; c += VEC_LANES) {
            const vec s = scale * vec_read(row + (t - b->from) * p->stride + c);
            sum += vec_select(vec_below(p->n - c), vec_exp(s - largest), vec_all(0));
        }
    return largest + logf(vec_sum(sum));
}

/* Replaces the cosines of row i by the factors of the other vectors in its gradient; returns the sum of the cosines
   times their gradients. */
static float weigh(const struct pass *p, const struct block *b, int64_t i) {
    const bool symmetric = p->form->symmetric;
    const float share = symmetric ? 0.5f : 1.0f, each = p->factor * p->form->scale;
    const vec scale = vec_all(p->form->scale), own = vec_all(p->inverse[b->text * p->stride + b->first + i]);
    vec along = vec_all(0);
    for (int64_t t = b->from; t < b->to; t++) {
        float *s = b->s + i * block_stride(p, b) + (t - b->from) * p->stride;
        const int64_t at = b->first + i, second = b->text ? b->text : t; /* the pair's text that is not the first */
        const bool both = symmetric && second == 1;
        for (int64_t c = 0; c < p->n; c += VEC_LANES) {
            const vec cosine = vec_read(s + c), score = scale * cosine;
            const vec of_row = b->text ? vec_read(p->of_rows + c) : vec_all(p->of_rows[at]);
            vec g = share * vec_exp(score - of_row);
            if (both) g += share * vec_exp(score - (b->text ? vec_all(p->of_texts[at]) : vec_read(p->of_texts + c)));
            if (second == 1 && at >= c && at < c + VEC_LANES) g[at - c] -= both ? 2 * share : share;
            g = vec_select(vec_below(p->n - c), each * g, vec_all(0));
            along = vec_fma(g, cosine, along);
            vec_write(s + c, g * own * vec_read(p->inverse + t * p->stride + c));
        }
    }
    return vec_sum(along);
}

static bool add_gradients(const struct pass *p, const struct block *b) {
    const int64_t ld = p->texts * p->cols;
    float along[SNUG_CPU_LOSS_ROWS];
    for (int64_t i = 0; i < b->count; i++) along[i] = weigh(p, b, i);
    for (int64_t t = b->from; t < b->to; t++)
        if (!snug_gemm_f32(gradient_of(p, b->first, b->text), ld, b->s + (t - b->from) * p->stride, block_stride(p, b),
                           false, vector_of(p, 0, t), ld, false, b->count, p->dim, p->n, 1))
            return false;
    for (int64_t i = 0; i < b->count; i++) project(p, b->first + i, b->text, along[i]);
    return true;
}

/* The losses of a block's vectors, and the gradients of these, or both. */
static bool rank_block(const struct pass *p, const struct block *b, bool losses, bool differentiates) {
    if (!compare(p, b)) return false;
    float *log_sums = b->text ? p->of_texts : p->of_rows;
    double *sums = b->text ? p->sums : p->losses;
    for (int64_t i = 0; i < b->count && losses; i++) {
        const int64_t row = b->first + i;
        log_sums[row] = log_sum(p, b, i);
        sums[row] = (double)log_sums[row] - (double)p->form->scale * b->s[i * block_stride(p, b) + row];
    }
    return !differentiates || add_gradients(p, b);
}

/* All blocks of the texts first_text … end_text - 1. */
static bool run_blocks(const struct pass *p, int64_t first_text, int64_t end_text, bool losses, bool differentiates) {
    const int64_t down = (p->n + SNUG_CPU_LOSS_ROWS - 1) / SNUG_CPU_LOSS_ROWS;
    bool done = true;
#pragma omp parallel num_threads(p->run->threads) reduction(&& : done)
    {
        float *scratch = p->blocks + omp_get_thread_num() * snug_cpu_vector_loss_block(p->texts, p->n);
        snug_gemm_one_thread();
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < down * (end_text - first_text); i++) {
            const int64_t first = i % down * SNUG_CPU_LOSS_ROWS, text = first_text + i / down;
            const struct block block = {.first = first,
                                        .count = snug_min(SNUG_CPU_LOSS_ROWS, p->n - first),
                                        .text = text,
                                        .from = text ? 0 : 1,
                                        .to = text ? 1 : p->texts,
                                        .s = scratch};
            done = rank_block(p, &block, losses, differentiates) && done;
        }
    }
    return done;
}

static snug_status rank(const struct pass *p, double *loss) {
    const bool symmetric = p->form->symmetric;
    bool done = run_blocks(p, 0, 1, true, p->d && !symmetric);
    if (symmetric) done = run_blocks(p, 1, 2, true, false) && done;
    if (symmetric && p->d) done = run_blocks(p, 0, 1, false, true) && done;
    if (p->d) done = run_blocks(p, 1, p->texts, false, true) && done;
    for (int64_t i = 0; i < p->n; i++) *loss += symmetric ? (p->losses[i] + p->sums[i]) / 2 : p->losses[i];
    return snug_gemm_result(p->run->ctx, !done);
}

/* ---- losses of a row's own pairs --------------------------------------------------------------------------------- */

/* x_a (x_b + J x_b) */
static double turned_dot(const float *a, const float *b, int64_t n) {
    double sum = dot(a, b, n);
    for (int64_t c = 0; c < n; c++) {
        float sign;
        const int64_t other = snug_turned(c, n, &sign);
        if (other >= 0) sum += (double)(a[c] * sign * b[other]);
    }
    return sum;
}

static float distance(const struct pass *p, int64_t row, int64_t text) {
    const float *a = vector_of(p, row, 0), *b = vector_of(p, row, text);
    const float of_a = p->inverse[row], of_b = p->inverse[text * p->stride + row];
    double sum = 0;
    for (int64_t c = 0; c < p->dim; c++) {
        const double difference = (double)(a[c] * of_a - b[c] * of_b);
        sum += difference * difference;
    }
    return (float)sqrt(sum);
}

/* The pair's similarity, signed where its absolute value counts. */
static float similarity(const struct pass *p, int64_t row, int64_t text) {
    const float *a = vector_of(p, row, 0), *b = vector_of(p, row, text);
    const double both = (double)p->inverse[row] * (double)p->inverse[text * p->stride + row];
    if (p->form->function == SNUG_LOSS_TRIPLET) return distance(p, row, text);
    return (float)(both * (p->form->function == SNUG_LOSS_ANGLE ? turned_dot(a, b, p->dim) : dot(a, b, p->dim)));
}

/* Adds slope times the derivative of the similarity s of a and its other text. */
static void add_pair(const struct pass *p, int64_t row, int64_t text, float s, float slope) {
    const float *a = vector_of(p, row, 0), *b = vector_of(p, row, text);
    float *of_a = gradient_of(p, row, 0), *of_b = gradient_of(p, row, text);
    const float ia = p->inverse[row], ib = p->inverse[text * p->stride + row];
    const float both = slope * ia * ib;
    add_scaled(of_a, both, b, p->dim);
    add_scaled(of_b, both, a, p->dim);
    for (int64_t c = 0; c < p->dim && p->form->function == SNUG_LOSS_ANGLE; c++) {
        float sign;
        const int64_t other = snug_turned(c, p->dim, &sign);
        if (other < 0) continue;
        of_a[c] += both * sign * b[other];
        of_b[other] += both * sign * a[c];
    }
    project(p, row, 0, slope * s);
    project(p, row, text, slope * s);
}

/* The same of a distance: of u - v by u it is (u - v) / |u - v|. */
static void add_distance(const struct pass *p, int64_t row, int64_t text, float length, float slope) {
    const float *a = vector_of(p, row, 0), *b = vector_of(p, row, text);
    float *of_a = gradient_of(p, row, 0), *of_b = gradient_of(p, row, text);
    const float ia = p->inverse[row], ib = p->inverse[text * p->stride + row];
    const float each = length > 0 ? slope / length : 0, cosine = p->unit ? (float)dot(a, b, p->dim) * ia * ib : 0;
    if (each == 0) return;
    add_scaled(of_a, each * ia * ia, a, p->dim);
    add_scaled(of_a, -each * ia * ib, b, p->dim);
    add_scaled(of_b, each * ib * ib, b, p->dim);
    add_scaled(of_b, -each * ia * ib, a, p->dim);
    project(p, row, 0, each * ((float)dot(a, a, p->dim) * ia * ia - cosine));
    project(p, row, text, each * ((float)dot(b, b, p->dim) * ib * ib - cosine));
}

static float score_of(const struct pass *p, int64_t row) { return p->scores[row * p->texts]; }

/* log(1 + sum of exp(scale (s_i - s_j)) over y_i < y_j) and its derivatives by s, times n. */
static double cosent(const struct pass *p) {
    const double scale = (double)p->form->scale;
    double most = 0, sum, above = 0;
#pragma omp parallel for num_threads(p->run->threads) schedule(static) reduction(max : most)
    for (int64_t i = 0; i < p->n; i++)
        for (int64_t j = 0; j < p->n; j++)
            if (score_of(p, i) < score_of(p, j)) most = fmax(most, scale * ((double)p->s[i] - (double)p->s[j]));
#pragma omp parallel for num_threads(p->run->threads) schedule(static)
    for (int64_t i = 0; i < p->n; i++) { /* what s_i adds, and what it takes off */
        double plus = 0, minus = 0;
        for (int64_t j = 0; j < p->n; j++) {
            const double difference = scale * ((double)p->s[i] - (double)p->s[j]);
            if (score_of(p, i) < score_of(p, j)) plus += exp(difference - most);
            if (score_of(p, i) > score_of(p, j)) minus += exp(-difference - most);
        }
        p->losses[i] = plus;
        p->sums[i] = plus - minus;
    }
    for (int64_t i = 0; i < p->n; i++) above += p->losses[i];
    sum = exp(-most) + above;
    for (int64_t i = 0; i < p->n; i++) p->slope[i] = (float)((double)p->n * scale * p->sums[i] / sum);
    return (double)p->n * (most + log(sum));
}

static double of_pairs(const struct pass *p) {
    const enum snug_vector_loss function = p->form->function;
    double loss = 0;
    if (function == SNUG_LOSS_COSENT || function == SNUG_LOSS_ANGLE) return cosent(p);
    for (int64_t i = 0; i < p->n; i++) {
        if (function != SNUG_LOSS_TRIPLET) {
            loss += (double)snug_vector_pair(p->form, p->s[i], score_of(p, i), &p->slope[i]);
            continue;
        }
        const float room = p->s[i] - p->s[p->stride + i] + p->form->margin;
        p->slope[i] = room > 0;
        p->slope[p->stride + i] = -p->slope[i];
        loss += room > 0 ? (double)room : 0;
    }
    return loss;
}

static void pair(const struct pass *p, double *loss) {
    const bool absolute = p->form->function == SNUG_LOSS_ANGLE, far = p->form->function == SNUG_LOSS_TRIPLET;
#pragma omp parallel for num_threads(p->run->threads) schedule(static)
    for (int64_t row = 0; row < p->n; row++)
        for (int64_t text = 1; text < p->texts; text++) {
            const float s = similarity(p, row, text);
            p->s[(text - 1) * p->stride + row] = absolute ? fabsf(s) : s;
            if (absolute) p->of_rows[row] = s < 0 ? -1.0f : 1.0f;
        }
    *loss += of_pairs(p);
#pragma omp parallel for num_threads(p->run->threads) schedule(static)
    for (int64_t row = 0; row < p->n; row++)
        for (int64_t text = 1; text < p->texts && p->d; text++) {
            const int64_t at = (text - 1) * p->stride + row;
            const float sign = absolute ? p->of_rows[row] : 1, slope = p->factor * p->slope[at];
            if (far)
                add_distance(p, row, text, p->s[at], slope);
            else
                add_pair(p, row, text, sign * p->s[at], sign * slope);
        }
}

/* ---- all terms --------------------------------------------------------------------------------------------------- */

static void lay_out(struct pass *p, float *scratch) {
    p->losses = (double *)scratch;
    p->sums = p->losses + p->stride;
    p->inverse = scratch + 4 * p->stride;
    p->of_rows = p->inverse + p->texts * p->stride;
    p->of_texts = p->of_rows + p->stride;
    p->s = p->of_texts + p->stride;
    p->slope = p->s + (p->texts - 1) * p->stride;
    p->fixed = (bool *)(p->slope + (p->texts - 1) * p->stride);
    p->blocks = p->slope + (p->texts - 1) * p->stride + p->texts * p->stride;
}

snug_status SNUG_KERNEL(vector_loss)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_vector_loss_op *v = &op->vector_loss;
    const struct snug_matrix x = snug_matrix_of(run, v->vectors);
    double sum = 0;
    struct pass p = {.run = run,
                     .form = &v->form,
                     .x = (const float *)x.data,
                     .scores = snug_run_data(run, v->scores),
                     .d = snug_run_data(run, v->d),
                     .n = x.rows / v->form.texts,
                     .cols = x.cols,
                     .texts = v->form.texts};
    p.stride = snug_cpu_padded(p.n);
    lay_out(&p, run->workspace);
    memset(p.inverse, 0, (size_t)(p.texts * p.stride) * sizeof *p.inverse);
    if (p.d) memset(p.d, 0, (size_t)(x.rows * x.cols) * sizeof *p.d);
    snug_status status = SNUG_OK;
    for (int i = 0; i < snug_vector_passes(&v->form) && status == SNUG_OK && p.n; i++) {
        const struct snug_vector_pass part = snug_vector_pass(&v->form, i, x.cols);
        double loss = 0;
        p.dim = part.dim;
        p.unit = part.unit;
        p.factor = part.weight * run->loss_scale;
        find_lengths(&p);
        if (v->form.function == SNUG_LOSS_RANKING)
            status = rank(&p, &loss);
        else
            pair(&p, &loss);
        sum += (double)part.weight * loss;
    }
    *(float *)snug_run_data(run, v->loss) = (float)sum;
    return status;
}
