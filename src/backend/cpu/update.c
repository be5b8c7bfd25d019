/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/update.h"

#include "backend/cpu/vec.h"
#include "core/min_max.h"

/* Values of a thread's unit of work. */
enum { BLOCK = 16 * SNUG_UPDATE_PART };

static void widen(float *restrict to, const uint16_t *restrict from, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = snug_bf16_to_f32(from[i]);
}

/* half: to F16, in updates for a GPU; else to BF16. */
static void round_nearest(uint16_t *restrict to, const float *restrict from, int64_t n, bool half) {
    if (half) {
        for (int64_t i = 0; i < n; i++) to[i] = snug_f32_to_f16(from[i]);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = snug_f32_to_bf16(from[i]);
}

/* Random bits are generated in blocks of 8 elements: the first block may begin before first. */
static void round_stochastic(uint16_t *restrict to, const float *restrict from, const struct snug_run *run,
                             const struct snug_op *op, int64_t first, int64_t n) {
    uint16_t bits[SNUG_UPDATE_PART + 8 * VEC_BLOCKS];
    const int64_t begin = op->element + first, skip = begin % 8;
    for (int64_t at = 0; at < n; at += SNUG_UPDATE_PART) {
        const int64_t count = snug_min(SNUG_UPDATE_PART, n - at);
        vec_rounding_bits(bits, run, op->update.parameter, begin - skip + at, skip + count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) to[at + i] = snug_f32_to_bf16_stochastic(from[at + i], bits[skip + i]);
    }
}

float *SNUG_KERNEL(update_begin)(const struct snug_run *run, const struct snug_op *op, float *buffer, int64_t first,
                                 int64_t count) {
    if (snug_run_dtype(run, op->update.weight) == SNUG_F32)
        return (float *)snug_run_data(run, op->update.weight) + first;
    widen(buffer, (uint16_t *)snug_run_data(run, op->update.weight) + first, count);
    return buffer;
}

void SNUG_KERNEL(update_end)(const struct snug_run *run, const struct snug_op *op, const float *p, int64_t first,
                             int64_t count) {
    uint16_t *copy = snug_run_data(run, op->update.copy);
    if (snug_run_dtype(run, op->update.weight) == SNUG_BF16)
        round_stochastic((uint16_t *)snug_run_data(run, op->update.weight) + first, p, run, op, first, count);
    if (copy) round_nearest(copy + first, p, count, snug_run_dtype(run, op->update.copy) == SNUG_F16);
}

void SNUG_KERNEL(update_elements)(struct snug_run *run, const struct snug_op *op, snug_update_fn *update,
                                  const void *constants) {
    const float *g = snug_run_data(run, op->update.g);
    int64_t n = snug_run_rows(run, op->update.g) * snug_run_cols(run, op->update.g);
#pragma omp parallel for num_threads(run->threads) schedule(guided) if (n > BLOCK)
    for (int64_t block = 0; block < n; block += BLOCK)
        for (int64_t first = block; first < snug_min(block + BLOCK, n); first += SNUG_UPDATE_PART) {
            float buffer[SNUG_UPDATE_PART], *states[SNUG_STATES_MAX];
            const int64_t count = snug_min(SNUG_UPDATE_PART, n - first);
            for (int i = 0; i < SNUG_STATES_MAX; i++)
                states[i] = op->update.states[i] ? (float *)snug_run_data(run, op->update.states[i]) + first : NULL;
            float *p = SNUG_KERNEL(update_begin)(run, op, buffer, first, count);
            update(constants, p, states, g + first, count);
            SNUG_KERNEL(update_end)(run, op, p, first, count);
        }
}
