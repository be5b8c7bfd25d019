/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DEQUANTIZE. A block has at most 16 different values: they are computed once for each block, in their final type, and
 * then looked up. With SSSE3 the look-up is a shuffle of bytes, one for each byte of the type; so the time is that of
 * writing the values to memory.
 */
#include "backend/cpu/kernels.h"
#include "backend/cpu/vec.h"
#include "optim/quantization_map.h"

enum { BLOCK = SNUG_CODE_BLOCK, VALUES = SNUG_CODE_VALUES, PART = 256 /* blocks of a unit of work */ };

/* What the values of a block's codes are in memory. */
union block_values {
    float singles[VALUES];
    uint16_t halves[VALUES];
};

static inline void find_values(union block_values *restrict out, enum snug_dtype dtype, enum snug_dtype rounded,
                               const float *restrict values, float absmax) {
    float products[VALUES];
    for (int i = 0; i < VALUES; i++) products[i] = values[i] * absmax;
    if (rounded == SNUG_BF16)
        for (int i = 0; i < VALUES; i++) products[i] = snug_bf16_to_f32(snug_f32_to_bf16(products[i]));
    if (rounded == SNUG_F16)
        for (int i = 0; i < VALUES; i++) products[i] = snug_rounded_to(SNUG_F16, products[i]);
    if (dtype == SNUG_BF16)
        for (int i = 0; i < VALUES; i++) out->halves[i] = snug_f32_to_bf16(products[i]);
    else
        for (int i = 0; i < VALUES; i++) out->singles[i] = products[i];
}

static void look_up_each(void *q, enum snug_dtype dtype, const union block_values *values, const uint8_t *codes,
                         int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t code = snug_code_at(codes, i);
        if (dtype == SNUG_BF16)
            ((uint16_t *)q)[i] = values->halves[code];
        else
            ((float *)q)[i] = values->singles[code];
    }
}

#ifdef __SSSE3__
static inline __m128i load(const void *from) { return _mm_loadu_si128(from); }
static inline void store(void *to, __m128i values) { _mm_storeu_si128(to, values); }

/* 16 codes, a byte each. */
static inline __m128i spread_codes(const uint8_t *codes) {
    const __m128i pairs = _mm_loadl_epi64((const void *)codes), low = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(pairs, 4), low), _mm_and_si128(pairs, low));
}

static inline void look_up_halves(uint16_t *q, const union block_values *values, const uint8_t *codes) {
    const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i a = _mm_shuffle_epi8(load(values->halves), apart);
    const __m128i b = _mm_shuffle_epi8(load(values->halves + 8), apart);
    const __m128i low = _mm_unpacklo_epi64(a, b), high = _mm_unpackhi_epi64(a, b);
    for (int i = 0; i < BLOCK; i += 16) {
        const __m128i index = spread_codes(codes + i / 2);
        const __m128i lows = _mm_shuffle_epi8(low, index), highs = _mm_shuffle_epi8(high, index);
        store(q + i, _mm_unpacklo_epi8(lows, highs));
        store(q + i + 8, _mm_unpackhi_epi8(lows, highs));
    }
}

static inline void look_up_singles(float *q, const union block_values *values, const uint8_t *codes) {
    const __m128i apart = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m128i part[4], byte[4];
    for (int k = 0; k < 4; k++) part[k] = _mm_shuffle_epi8(load(values->singles + 4 * k), apart);
    const __m128i a = _mm_unpacklo_epi32(part[0], part[1]), b = _mm_unpacklo_epi32(part[2], part[3]);
    const __m128i c = _mm_unpackhi_epi32(part[0], part[1]), d = _mm_unpackhi_epi32(part[2], part[3]);
    byte[0] = _mm_unpacklo_epi64(a, b), byte[1] = _mm_unpackhi_epi64(a, b);
    byte[2] = _mm_unpacklo_epi64(c, d), byte[3] = _mm_unpackhi_epi64(c, d);
    for (int i = 0; i < BLOCK; i += 16) {
        const __m128i index = spread_codes(codes + i / 2);
        __m128i found[4];
        for (int k = 0; k < 4; k++) found[k] = _mm_shuffle_epi8(byte[k], index);
        const __m128i low[] = {_mm_unpacklo_epi8(found[0], found[1]), _mm_unpackhi_epi8(found[0], found[1])};
        const __m128i high[] = {_mm_unpacklo_epi8(found[2], found[3]), _mm_unpackhi_epi8(found[2], found[3])};
        for (int k = 0; k < 2; k++) {
            store(q + i + 8 * k, _mm_unpacklo_epi16(low[k], high[k]));
            store(q + i + 8 * k + 4, _mm_unpackhi_epi16(low[k], high[k]));
        }
    }
}
#endif

static inline void look_up(void *q, enum snug_dtype dtype, const union block_values *values, const uint8_t *codes,
                           int64_t count) {
#ifdef __SSSE3__
    if (count == BLOCK && dtype == SNUG_BF16) {
        look_up_halves(q, values, codes);
        return;
    }
    if (count == BLOCK) {
        look_up_singles(q, values, codes);
        return;
    }
#endif
    look_up_each(q, dtype, values, codes, count);
}

/* A parameter. */
struct work {
    const float *values, *map;
    struct snug_quantized_layout layout;
    const uint8_t *bytes;
    uint8_t *q;
};

/* Blocks first … end - 1. Inlined for each pair of types. */
static inline void do_blocks(const struct work *w, int64_t first, int64_t end, enum snug_dtype dtype,
                             enum snug_dtype rounded) {
    const struct snug_quantized_layout *l = &w->layout;
    const int64_t size = dtype == SNUG_BF16 ? 2 : 4;
    for (int64_t i = first; i < end; i++) {
        const int64_t left = l->count - i * BLOCK;
        union block_values own;
        find_values(&own, dtype, rounded, w->values, snug_absmax_of(l, w->bytes + l->group_absmax, w->map, i));
        look_up(w->q + i * BLOCK * size, dtype, &own, w->bytes + i * (BLOCK / 2), left < BLOCK ? left : BLOCK);
    }
}

static void do_part(const struct work *w, int64_t first, int64_t end, enum snug_dtype dtype, enum snug_dtype rounded) {
    if (rounded == SNUG_F16)
        do_blocks(w, first, end, dtype, SNUG_F16);
    else if (dtype == SNUG_BF16)
        do_blocks(w, first, end, SNUG_BF16, SNUG_F32); /* rounded once */
    else if (rounded == SNUG_BF16)
        do_blocks(w, first, end, SNUG_F32, SNUG_BF16);
    else
        do_blocks(w, first, end, SNUG_F32, SNUG_F32);
}

snug_status SNUG_KERNEL(dequantize)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix p = snug_matrix_of(run, op->dequantize.p), q = snug_matrix_of(run, op->dequantize.q);
    const struct snug_quantized *form = &op->dequantize.form;
    const int64_t size = snug_dtype_size(q.dtype);
    float map[SNUG_CODES];
    snug_quantization_map(true, map);
    for (int64_t i = 0; i < p.rows; i++) {
        struct work w = {snug_code_values(form->type), map, snug_quantized_lay_out(form), p.data + i * p.cols, q.data};
        w.q += i * w.layout.count * size;
        const int64_t blocks = w.layout.blocks;
#pragma omp parallel for num_threads(run->threads) schedule(static) if (blocks > PART)
        for (int64_t at = 0; at < blocks; at += PART)
            do_part(&w, at, at + PART < blocks ? at + PART : blocks, q.dtype, form->rounded);
    }
    return SNUG_OK;
}
