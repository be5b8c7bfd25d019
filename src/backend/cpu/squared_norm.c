/* SPDX-License-Identifier: Apache-2.0 */
/* SQUARED_NORM and CLIP. */
#include <math.h>

#include "backend/cpu/update.h"

/* Values that one thread takes at a time: fixed, so that sums do not depend on the number of threads, nor on how a
   tensor is cut, as long as it is cut at multiples. */
enum { BLOCK = 1 << 14 };

static int64_t blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* In fp32 over a few values a lane, which keeps their digits, then in double. */
static inline __attribute__((always_inline)) double add_squares(const float *g, const float *factors, int64_t n) {
    enum { LANES = 32, PART = 8 * LANES };
    double sum = 0;
    for (int64_t first = 0; first < n; first += PART) {
        const int64_t end = smaller(first + PART, n), whole = first + (end - first) / LANES * LANES;
        float lane[LANES] = {0};
        for (int64_t i = first; i < whole; i += LANES)
#pragma omp simd
            for (int j = 0; j < LANES; j++) {
                const float value = factors ? g[i + j] * factors[i + j] : g[i + j];
                lane[j] += value * value;
            }
        for (int64_t i = whole; i < end; i++) {
            const float value = factors ? g[i] * factors[i] : g[i];
            lane[i - whole] += value * value;
        }
        for (int j = 0; j < LANES; j++) sum += lane[j];
    }
    return sum;
}

double SNUG_KERNEL(sum_of_squares)(const float *x, const float *factors, int64_t n) {
    return factors ? add_squares(x, factors, n) : add_squares(x, NULL, n);
}

snug_status SNUG_KERNEL(squared_norm)(struct snug_run *run, const struct snug_op *op) {
    const float *g = snug_run_data(run, op->in[0]);
    double *sums = snug_run_data(run, op->out[0]), *part = run->workspace;
    int64_t n = snug_run_rows(run, op->in[0]) * snug_run_cols(run, op->in[0]), count = blocks(n);
    double sum = op->accumulate ? sums[op->slot] : 0;
#pragma omp parallel for num_threads(run->threads) if (count > 1)
    for (int64_t b = 0; b < count; b++)
        part[b] = SNUG_KERNEL(sum_of_squares)(g + b * BLOCK, NULL, smaller(BLOCK, n - b * BLOCK));
    for (int64_t b = 0; b < count; b++) sum += part[b];
    sums[op->slot] = sum;
    return SNUG_OK;
}

int64_t SNUG_KERNEL(squared_norm_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    const struct snug_tensor *g = &program->tensors[op->in[0]];
    return blocks(g->rows * g->cols) * (int64_t)sizeof(double);
}

snug_status SNUG_KERNEL(clip)(struct snug_run *run, const struct snug_op *op) {
    const double *sums = snug_run_data(run, op->in[0]);
    float *clip = snug_run_data(run, op->out[0]);
    int64_t n = snug_run_rows(run, op->in[0]) * snug_run_cols(run, op->in[0]);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += sums[i];
    double norm = sqrt(sum), scale = run->max_grad_norm / (norm + 1e-6);
    clip[0] = (float)norm;
    clip[1] = run->max_grad_norm <= 0 || scale > 1 ? 1.0f : (float)scale; /* NaN stays NaN */
    return SNUG_OK;
}
