/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/gemm.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static __attribute__((unused)) void nothing(void) {}

#ifdef __x86_64__

/* ---- AMX --------------------------------------------------------------------------------------------------------- */

#define AMX __attribute__((target("amx-tile,amx-bf16")))

/* All eight tiles as 16 rows of 64 bytes: 0-3 are c, 4 and 5 a, 6 and 7 b. */
AMX static void amx_begin(void) {
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

AMX static void amx_end(void) { _tile_release(); }

AMX static void amx_block(float *c, int64_t ldc, const uint16_t *a, int64_t lda, int64_t a_step, const uint16_t *b,
                          int64_t steps, bool add) {
    size_t c_row = (size_t)ldc * sizeof *c, a_row = (size_t)lda * sizeof *a;
    if (add) {
        _tile_loadd(0, c, c_row);
        _tile_loadd(1, c + 16, c_row);
        _tile_loadd(2, c + 16 * ldc, c_row);
        _tile_loadd(3, c + 16 * ldc + 16, c_row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s++, a += a_step, b += SNUG_BLOCK_SIZE) {
        _tile_loadd(4, a, a_row);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + SNUG_BLOCK_SIZE / 2, 64);
        _tile_loadd(5, a + 16 * lda, a_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_row);
    _tile_stored(1, c + 16, c_row);
    _tile_stored(2, c + 16 * ldc, c_row);
    _tile_stored(3, c + 16 * ldc + 16, c_row);
}

/* A process must ask the Linux kernel for the tile registers (Documentation/arch/x86/xstate.rst). */
static bool amx_usable(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, LEAF = 7, TILE = 1 << 24, BF16 = 1 << 22 };
    unsigned a = LEAF, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (d & TILE) && (d & BF16) && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* ---- AVX512-BF16 ------------------------------------------------------------------------------------------------- */

#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* Eight rows at a time: sixteen sums of 16 columns stay in registers. */
AVX512_BF16 static void avx512_block(float *c, int64_t ldc, const uint16_t *a, int64_t lda, int64_t a_step,
                                     const uint16_t *b, int64_t steps, bool add) {
    enum { ROWS = 8 };
    for (int64_t row = 0; row < SNUG_BLOCK; row += ROWS, a += ROWS * lda, c += ROWS * ldc) {
        __m512 left[ROWS], right[ROWS];
        for (int r = 0; r < ROWS; r++) {
            left[r] = add ? _mm512_loadu_ps(c + r * ldc) : _mm512_setzero_ps();
            right[r] = add ? _mm512_loadu_ps(c + r * ldc + 16) : _mm512_setzero_ps();
        }
        for (int64_t s = 0; s < steps; s++) {
            const uint16_t *a_s = a + s * a_step, *b_s = b + s * SNUG_BLOCK_SIZE;
            for (int pair = 0; pair < 16; pair++) {
                __m512bh b_left = (__m512bh)_mm512_loadu_si512(b_s + pair * 32);
                __m512bh b_right = (__m512bh)_mm512_loadu_si512(b_s + SNUG_BLOCK_SIZE / 2 + pair * 32);
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; r++) {
                    int32_t two;
                    __builtin_memcpy(&two, a_s + r * lda + pair * 2, sizeof two);
                    __m512bh a_r = (__m512bh)_mm512_set1_epi32(two);
                    left[r] = _mm512_dpbf16_ps(left[r], a_r, b_left);
                    right[r] = _mm512_dpbf16_ps(right[r], a_r, b_right);
                }
            }
        }
        for (int r = 0; r < ROWS; r++) {
            _mm512_storeu_ps(c + r * ldc, left[r]);
            _mm512_storeu_ps(c + r * ldc + 16, right[r]);
        }
    }
}

const struct snug_microkernel *snug_microkernel(size_t index) {
    static const struct snug_microkernel amx = {"amx", amx_block, amx_begin, amx_end};
    static const struct snug_microkernel avx512 = {"avx512bf16", avx512_block, nothing, nothing};
    const struct snug_microkernel *usable[2];
    size_t count = 0;
    if (__builtin_cpu_supports("avx512bw") && amx_usable()) usable[count++] = &amx;
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw")) usable[count++] = &avx512;
    return index < count ? usable[index] : NULL;
}

#elif defined(__aarch64__)

const struct snug_microkernel *snug_microkernel(size_t index) {
    static const struct snug_microkernel bfdot = {"bfdot", snug_bfdot_block, nothing, nothing};
    return index == 0 && getauxval(AT_HWCAP2) & HWCAP2_BF16 ? &bfdot : NULL;
}

#else

const struct snug_microkernel *snug_microkernel(size_t index) {
    (void)index;
    return NULL;
}

#endif
