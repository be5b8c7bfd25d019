/* SPDX-License-Identifier: Apache-2.0 */
/* SQUARED_NORM, CLIP, ADAMW: bound by memory, so each reads and writes every value once. */
#include <math.h>

#include "backend/cpu/kernels.h"

/* Values that one thread takes at a time: fixed, so that sums do not depend on the number of threads. */
enum { BLOCK = 1 << 14 };

static int64_t blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* In fp32 over a few values a lane, which keeps their digits, then in double. */
static double sum_of_squares(const float *g, int64_t n) {
    enum { LANES = 32, PART = 8 * LANES };
    double sum = 0;
    for (int64_t first = 0; first < n; first += PART) {
        const int64_t end = smaller(first + PART, n), whole = first + (end - first) / LANES * LANES;
        float lane[LANES] = {0};
        for (int64_t i = first; i < whole; i += LANES)
#pragma omp simd
            for (int j = 0; j < LANES; j++) lane[j] += g[i + j] * g[i + j];
        for (int64_t i = whole; i < end; i++) lane[i - whole] += g[i] * g[i];
        for (int j = 0; j < LANES; j++) sum += lane[j];
    }
    return sum;
}

snug_status SNUG_KERNEL(squared_norm)(struct snug_run *run, const struct snug_op *op) {
    const float *g = snug_run_data(run, op->in[0]);
    float *sums = snug_run_data(run, op->out[0]);
    int64_t n = snug_run_rows(run, op->in[0]) * snug_run_cols(run, op->in[0]), count = blocks(n);
    double *part = run->workspace, sum = 0;
#pragma omp parallel for num_threads(run->threads) if (count > 1)
    for (int64_t b = 0; b < count; b++) part[b] = sum_of_squares(g + b * BLOCK, smaller(BLOCK, n - b * BLOCK));
    for (int64_t b = 0; b < count; b++) sum += part[b];
    sums[op->slot] = (float)sum;
    return SNUG_OK;
}

int64_t SNUG_KERNEL(optimizer_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    if (op->kind != SNUG_OP_SQUARED_NORM) return 0;
    const struct snug_tensor *g = &program->tensors[op->in[0]];
    return blocks(g->rows * g->cols) * (int64_t)sizeof(double);
}

snug_status SNUG_KERNEL(clip)(struct snug_run *run, const struct snug_op *op) {
    const float *sums = snug_run_data(run, op->in[0]);
    float *clip = snug_run_data(run, op->out[0]);
    int64_t n = snug_run_rows(run, op->in[0]) * snug_run_cols(run, op->in[0]);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += sums[i];
    double norm = sqrt(sum), scale = run->max_grad_norm / (norm + 1e-6);
    clip[0] = (float)norm;
    clip[1] = run->max_grad_norm <= 0 || scale > 1 ? 1.0f : (float)scale; /* NaN stays NaN */
    return SNUG_OK;
}

struct adamw {
    float clip, keep, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_correction, epsilon;
};

/* p16 is NULL or gets the new values. Separate loops over a block that stays in the first cache: the compiler
   vectorises each, and no value is moved twice. */
static void update_block(const struct adamw *s, float *restrict p, float *restrict m, float *restrict v,
                         const float *restrict g, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * s->clip;
        m[i] += (gradient - m[i]) * s->one_minus_beta1;
        v[i] = v[i] * s->beta2 + gradient * gradient * s->one_minus_beta2;
        p[i] = p[i] * s->keep - s->step_size * m[i] / (sqrtf(v[i]) * s->inverse_correction + s->epsilon);
    }
}

static void round_block(uint16_t *restrict q, const float *restrict p, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) q[i] = snug_f32_to_bf16(p[i]);
}

snug_status SNUG_KERNEL(adamw)(struct snug_run *run, const struct snug_op *op) {
    const float *g = snug_run_data(run, op->in[0]), *clip = snug_run_data(run, op->in[1]);
    float *p = snug_run_data(run, op->out[0]), *m = snug_run_data(run, op->out[1]);
    float *v = snug_run_data(run, op->out[2]);
    uint16_t *p16 = snug_run_data(run, op->out[3]);
    int64_t n = snug_run_rows(run, op->in[0]) * snug_run_cols(run, op->in[0]), t = run->step + 1;
    const struct adamw s = {
        .clip = clip ? clip[1] : 1.0f,
        .keep = (float)(op->decay ? 1.0 - (double)run->learning_rate * run->weight_decay : 1.0),
        .one_minus_beta1 = (float)(1.0 - run->beta1),
        .beta2 = run->beta2,
        .one_minus_beta2 = (float)(1.0 - run->beta2),
        .step_size = (float)(run->learning_rate / (1.0 - pow(run->beta1, (double)t))),
        .inverse_correction = (float)(1.0 / sqrt(1.0 - pow(run->beta2, (double)t))),
        .epsilon = run->epsilon,
    };
#pragma omp parallel for num_threads(run->threads) if (n > BLOCK)
    for (int64_t first = 0; first < n; first += BLOCK) {
        enum { PART = 1024 }; /* five arrays of it fit the first cache */
        for (int64_t i = first; i < smaller(first + BLOCK, n); i += PART) {
            int64_t count = smaller(PART, n - i);
            update_block(&s, p + i, m + i, v + i, g + i, count);
            if (p16) round_block(p16 + i, p + i, count);
        }
    }
    return SNUG_OK;
}
