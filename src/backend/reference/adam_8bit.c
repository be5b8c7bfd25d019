/* SPDX-License-Identifier: Apache-2.0 */
/* Adam and AdamW with block-wise 8-bit states (Dettmers et al., arXiv:2110.02861), as in bitsandbytes' GPU kernel. */
#include <float.h>

#include "backend/reference/update.h"
#include "optim/quantization_map.h"

/* The states of one block, and its first element in the tensor. */
struct block {
    uint8_t *m, *v;
    float *absmax_m, *absmax_v;
    int64_t first, count;
};

/* The absmax; 0 if it is so small that the GPU treats it as 0. */
static float largest(const double *values, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(values[i]));
    return most < (double)FLT_MIN ? 0 : (float)most;
}

/* A code has the sign of its value: if the nearest one has not, the next code has it. In a block of zeros the search
   for 0/0 returns code 0, whose next code is the last one. */
static uint8_t code_m(const float *map, double m, float absmax) {
    int code = snug_nearest_code(map, m / (double)absmax);
    const bool negative = signbit(m) != 0, coded_negative = signbit(map[code]) != 0;
    if (coded_negative != negative) code += m > 0 ? 1 : -1;
    return (uint8_t)code;
}

static void update_block(struct snug_run *run, const struct snug_op *op, const struct block *block,
                         const float *signed_map, const float *unsigned_map) {
    const struct snug_optimizer *o = run->optimizer;
    const struct snug_matrix p = snug_matrix_of(run, op->update.weight), g = snug_matrix_of(run, op->update.g);
    /* The betas and the factor of weight decay are fp32 numbers: 1 - 0.999f differs from 0.001 by 1e-5 of it. */
    const double lr = run->learning_rate, b1 = (float)o->beta1, b2 = (float)o->beta2, t = updates_done(run) + 1;
    const double correction1 = 1 - pow(b1, t), correction2 = sqrt(1 - pow(b2, t));
    const double decay = op->update.decay ? o->weight_decay : 0, keep = (float)(1 - lr * decay);
    double m[SNUG_QUANTISED_BLOCK], v[SNUG_QUANTISED_BLOCK];

    for (int64_t i = 0; i < block->count; i++) {
        const int64_t row = (block->first + i) / p.cols, c = (block->first + i) % p.cols;
        double value = load(p, row, c), gradient = clipped_gradient(run, op, row, c);
        m[i] = v[i] = 0;
        if (isfinite(load(g, row, c))) {
            if (!o->decoupled) gradient += decay * value;
            m[i] = b1 * (double)(signed_map[block->m[i]] * *block->absmax_m) + (1 - b1) * gradient;
            v[i] = b2 * (double)(unsigned_map[block->v[i]] * *block->absmax_v) + (1 - b2) * gradient * gradient;
            value -= lr * correction2 / correction1 * m[i] / (sqrt(v[i]) + correction2 * o->epsilon);
            if (o->decoupled) value *= keep;
        }
        store_parameter(run, op, row, c, value);
    }
    *block->absmax_m = largest(m, block->count);
    *block->absmax_v = largest(v, block->count);
    for (int64_t i = 0; i < block->count; i++) {
        block->m[i] = code_m(signed_map, m[i], *block->absmax_m);
        block->v[i] = (uint8_t)snug_nearest_code(unsigned_map, v[i] / (double)*block->absmax_v);
    }
}

snug_status snug_reference_adam_8bit(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    float signed_map[SNUG_CODES], unsigned_map[SNUG_CODES];
    const struct snug_matrix p = snug_matrix_of(run, op->update.weight);
    const int64_t each = p.rows * p.cols / op->update.segments;
    uint8_t *m = snug_run_data(run, op->update.states[0]), *v = snug_run_data(run, op->update.states[1]);
    float *absmax_m = snug_run_data(run, op->update.states[2]), *absmax_v = snug_run_data(run, op->update.states[3]);

    snug_quantization_map(true, signed_map);
    snug_quantization_map(false, unsigned_map);
    for (int32_t segment = 0; segment < op->update.segments; segment++)
        for (int64_t start = 0; start < each; start += SNUG_QUANTISED_BLOCK) {
            const int64_t first = segment * each + start, left = each - start;
            const struct block block = {m + first,  v + first,
                                        absmax_m++, absmax_v++,
                                        first,      left < SNUG_QUANTISED_BLOCK ? left : SNUG_QUANTISED_BLOCK};
            update_block(run, op, &block, signed_map, unsigned_map);
        }
    return SNUG_OK;
}
