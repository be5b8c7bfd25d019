/* SPDX-License-Identifier: Apache-2.0 */
/* The micro-kernel of aarch64 with FEAT_BF16 (Neoverse V1, N2 and later, Apple M2 and later); compiled for it alone. */
#include <arm_neon.h>

#include "backend/cpu/gemm.h"

/* Eight rows and columns at a time: sixteen sums of 4 columns stay in registers, with eight rows' next four pairs. */
void snug_bfdot_block(float *c, int64_t ldc, const uint16_t *a, int64_t lda, int64_t a_step, const uint16_t *b,
                      int64_t steps, bool add) {
    enum { SIDE = 8, PAIRS = 4, PAIR = 32 };
    for (int64_t tile = 0; tile < SNUG_BLOCK / SIDE * (SNUG_BLOCK / SIDE); tile++) {
        const int64_t row = tile / (SNUG_BLOCK / SIDE) * SIDE, column = tile % (SNUG_BLOCK / SIDE) * SIDE;
        const uint16_t *b_tile = b + column / 16 * (SNUG_BLOCK_SIZE / 2) + column % 16 * 2;
        float *to = c + row * ldc + column;
        float32x4_t left[SIDE], right[SIDE];
        for (int r = 0; r < SIDE; r++) {
            left[r] = add ? vld1q_f32(to + r * ldc) : vdupq_n_f32(0);
            right[r] = add ? vld1q_f32(to + r * ldc + 4) : vdupq_n_f32(0);
        }
        for (int64_t s = 0; s < steps; s++)
            for (int four = 0; four < SNUG_BLOCK / 2; four += PAIRS) {
                const uint16_t *a_at = a + s * a_step + row * lda + four * 2;
                const uint16_t *b_at = b_tile + s * SNUG_BLOCK_SIZE + four * PAIR;
                bfloat16x8_t rows[SIDE];
#pragma GCC unroll 8
                for (int r = 0; r < SIDE; r++) rows[r] = vreinterpretq_bf16_u16(vld1q_u16(a_at + r * lda));
#define MULTIPLY(pair)                                                                                                 \
    do {                                                                                                               \
        const bfloat16x8_t b_left = vreinterpretq_bf16_u16(vld1q_u16(b_at + (pair)*PAIR));                             \
        const bfloat16x8_t b_right = vreinterpretq_bf16_u16(vld1q_u16(b_at + (pair)*PAIR + 8));                        \
        _Pragma("GCC unroll 8") for (int r = 0; r < SIDE; r++) {                                                       \
            left[r] = vbfdotq_laneq_f32(left[r], b_left, rows[r], pair);                                               \
            right[r] = vbfdotq_laneq_f32(right[r], b_right, rows[r], pair);                                            \
        }                                                                                                              \
    } while (0)
                MULTIPLY(0);
                MULTIPLY(1);
                MULTIPLY(2);
                MULTIPLY(3);
#undef MULTIPLY
            }
        for (int r = 0; r < SIDE; r++) {
            vst1q_f32(to + r * ldc, left[r]);
            vst1q_f32(to + r * ldc + 4, right[r]);
        }
    }
}
