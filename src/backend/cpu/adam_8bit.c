/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAM_8BIT: bitsandbytes' block-wise 8-bit Adam and AdamW. All new states of a block must be known before the first
 * one is quantized; until then they are in the L1 cache. The loop dequantizes and updates the states of one block while
 * it updates the parameters of the previous block and quantizes its states: the first part is bound by table lookups,
 * the second by divisions.
 */
#include <float.h>
#include <math.h>

#include "backend/cpu/update.h"
#include "backend/cpu/updates.h"
#include "backend/cpu/vec.h"

#define SNUG_REAL vec
#define SNUG_REAL_ROOT vec_sqrt
#include "optim/formulas/adam_8bit.h"

enum { BLOCK = SNUG_QUANTISED_BLOCK, VECTORS = BLOCK / VEC_LANES };
/* Values of a unit of work: enough that the first and the last block, which do not overlap with others, cost little.
 */
enum { PART = 2 * SNUG_UPDATE_PART, PART_BLOCKS = PART / BLOCK };
/* The prefetch distance: in a loop with so much arithmetic the hardware prefetcher is too late. */
enum { AHEAD = 2 * BLOCK };

struct constants {
    const struct snug_quantization_tables *tables;
    struct snug_adam_8bit_numbers numbers;
    float clip;
};

/* The states of one or more blocks. */
struct states {
    uint8_t *m, *v;
    float *absmax_m, *absmax_v;
};

static inline struct states block_of(const struct states *states, int64_t i) {
    return (struct states){states->m + i * BLOCK, states->v + i * BLOCK, states->absmax_m + i, states->absmax_v + i};
}

static inline vec_uint look_up(const void *table, vec_uint index) {
#if defined(__AVX512F__)
    return (vec_uint)_mm512_i32gather_epi32((__m512i)index, table, 4);
#elif defined(__AVX2__)
    return (vec_uint)_mm256_i32gather_epi32(table, (__m256i)index, 4);
#else
    vec_uint found;
    for (int i = 0; i < VEC_LANES; i++) found[i] = ((const uint32_t *)table)[index[i]];
    return found;
#endif
}

static inline vec_uint read_codes(const uint8_t *codes) {
#if defined(__AVX512F__)
    return (vec_uint)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)codes));
#elif defined(__AVX2__)
    return (vec_uint)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)codes));
#else
    vec_uint wide;
    for (int i = 0; i < VEC_LANES; i++) wide[i] = codes[i];
    return wide;
#endif
}

/* The low bytes of the lanes. */
static inline void write_codes(uint8_t *codes, vec_uint wide) {
#if defined(__AVX512F__)
    _mm_storeu_si128((void *)codes, _mm512_cvtepi32_epi8((__m512i)wide));
#elif defined(__AVX2__)
    const __m256i first = _mm256_set1_epi32(0x0c080400), halves = _mm256_shuffle_epi8((__m256i)wide, first);
    _mm_storel_epi64((void *)codes,
                     _mm_unpacklo_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
#elif defined(__SSSE3__)
    _mm_storeu_si32(codes, _mm_shuffle_epi8((__m128i)wide, _mm_set1_epi32(0x0c080400)));
#else
    for (int i = 0; i < VEC_LANES; i++) codes[i] = (uint8_t)wide[i];
#endif
}

#if defined(__AVX512F__)
static inline vec on_line(const struct snug_quantization_lines *lines, vec_uint distance, vec_uint index) {
    const __m512i line = _mm512_lzcnt_epi32((__m512i)distance);
    const __m512 slope = _mm512_permutexvar_ps(line, _mm512_loadu_ps(lines->slope));
    const __m512 offset = _mm512_permutexvar_ps(line, _mm512_loadu_ps(lines->offset));
    const __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps((__m512i)distance), slope, offset);
    const __m512i eight = _mm512_permutex2var_epi32(_mm512_loadu_si512(lines->corrections), (__m512i)index,
                                                    _mm512_loadu_si512(lines->corrections + 16));
    return (vec)((vec_int)value + ((vec_int)_mm512_rolv_epi32(eight, (__m512i)(index >> 3)) >> 28));
}
#endif

static inline vec decode_signed(const struct snug_quantization_tables *tables, vec_uint code) {
#if defined(__AVX512F__)
    const vec_uint side = code - SNUG_SIGNED_ZERO, distance = (vec_uint)_mm512_abs_epi32((__m512i)side);
    return (vec)((vec_uint)on_line(&tables->signed_lines, distance, distance) | (side & 0x80000000u));
#else
    return (vec)look_up(tables->signed_map, code);
#endif
}

static inline vec decode_unsigned(const struct snug_quantization_tables *tables, vec_uint code) {
#if defined(__AVX512F__)
    return on_line(&tables->unsigned_lines, code + 1, code);
#else
    return (vec)look_up(tables->unsigned_map, code);
#endif
}

static inline vec_uint code_signed(const struct snug_quantization_tables *tables, vec x) {
    const vec_uint bits = (vec_uint)x, rising = bits ^ (vec_uint)((vec_int)bits >> 31);
    return (look_up(tables->signed_table, bits >> SNUG_SIGNED_SHIFT) + rising) >> SNUG_SIGNED_SHIFT;
}

/* The code of x >= 0; from 1 on the code of 1. */
static inline vec_uint code_unsigned(const struct snug_quantization_tables *tables, vec x) {
    const vec_uint bits = (vec_uint)vec_min(x, vec_all(1));
    return (look_up(tables->unsigned_table, bits >> SNUG_UNSIGNED_SHIFT) + bits) >> SNUG_UNSIGNED_SHIFT;
}

/* A block between its old and its new states. */
struct block {
    struct states states;
    float *p;
    const float *g;
    vec m[VECTORS], v[VECTORS];
    float scale_m, scale_v; /* the scales with which the new states are quantized */
};

struct pair {
    vec m, v;
};

static inline void update_states(const struct constants *s, struct block *b, int i, struct snug_adam_8bit_scales scale,
                                 struct pair *largest) {
    const int at = i * VEC_LANES;
    __builtin_prefetch(b->p + at + AHEAD, 1);
    __builtin_prefetch(b->g + at + AHEAD);
    if (i % 4 == 0) {
        __builtin_prefetch(b->states.m + at + AHEAD, 1);
        __builtin_prefetch(b->states.v + at + AHEAD, 1);
    }
    const vec gradient = snug_adam_8bit_gradient(&s->numbers, vec_read(b->p + at), vec_read(b->g + at) * s->clip);
    const vec old_m = decode_signed(s->tables, read_codes(b->states.m + at));
    const vec old_v = decode_unsigned(s->tables, read_codes(b->states.v + at));
    const vec mean = snug_adam_8bit_mean(&s->numbers, old_m, scale.m, gradient);
    const vec square = snug_adam_8bit_square(&s->numbers, old_v, scale.v, gradient);
    b->m[i] = mean;
    b->v[i] = square;
    largest->m = vec_max(vec_abs(mean), largest->m);
    largest->v = (vec)vec_max_uint((vec_uint)square, (vec_uint)largest->v); /* compares bits, so NaN is the maximum */
}

static inline void update_parameters(const struct constants *s, const struct block *b, int i, struct pair scale) {
    const int at = i * VEC_LANES;
    const vec p = vec_read(b->p + at), m = b->m[i], v = b->v[i];
    vec_write(b->p + at, snug_adam_8bit_step(&s->numbers, p, m, v));
    write_codes(b->states.m + at, code_signed(s->tables, m * scale.m));
    write_codes(b->states.v + at, code_unsigned(s->tables, v * scale.v));
}

static inline struct snug_adam_8bit_scales old_scale(const struct constants *s, const struct block *b) {
    return snug_adam_8bit_scales(&s->numbers, *b->states.absmax_m, *b->states.absmax_v);
}

static inline struct pair new_scale(const struct block *b) {
    return (struct pair){vec_all(b->scale_m), vec_all(b->scale_v)};
}

/* If the absmax is so small that it is treated as 0, the whole block is 0. */
static inline void end_states(struct block *b, const struct pair *largest) {
    const float m = vec_largest(largest->m), v = vec_largest(largest->v);
    *b->states.absmax_m = m < FLT_MIN ? 0 : m;
    *b->states.absmax_v = v < FLT_MIN ? 0 : v;
    b->scale_m = m < FLT_MIN ? 0 : 1 / m;
    b->scale_v = v < FLT_MIN ? 0 : 1 / v;
}

/* A block of zeros gets the code of m that bitsandbytes' search returns for 0/0. */
static inline void end_block(const struct block *b) {
    if (*b->states.absmax_m != 0) return;
    for (int i = 0; i < VECTORS; i++) write_codes(b->states.m + i * VEC_LANES, ~(vec_uint)((vec_int)b->m[i] >> 31));
}

/* The last block of a parameter, or a block with gradients that are not finite: it is padded with zeros, and elements
   whose gradient is not finite get states of 0. */
static __attribute__((noinline)) void update_aside(const struct constants *s, float *p, const float *g,
                                                   const struct states *states, int n) {
    float p_all[BLOCK] = {0}, g_all[BLOCK] = {0};
    uint8_t m_all[BLOCK], v_all[BLOCK] = {0};
    struct block b = {.states = {m_all, v_all, states->absmax_m, states->absmax_v}, .p = p_all, .g = g_all};
    struct pair largest = {{0}, {0}};
    memset(m_all, SNUG_SIGNED_ZERO, sizeof m_all);
    for (int i = 0; i < n; i++) {
        if (!isfinite(g[i])) continue;
        p_all[i] = p[i];
        g_all[i] = g[i];
        m_all[i] = states->m[i];
        v_all[i] = states->v[i];
    }
    const struct snug_adam_8bit_scales old = old_scale(s, &b);
    for (int i = 0; i < VECTORS; i++) update_states(s, &b, i, old, &largest);
    end_states(&b, &largest);
    for (int i = 0; i < VECTORS; i++) update_parameters(s, &b, i, new_scale(&b));
    end_block(&b);
    for (int i = 0; i < n; i++)
        if (isfinite(g[i])) p[i] = p_all[i];
    memcpy(states->m, m_all, (size_t)n);
    memcpy(states->v, v_all, (size_t)n);
}

/* Whole blocks; their states follow each other. */
static void update_blocks(const struct constants *shared, float *p, const float *g, const struct states *states,
                          int count) {
    const struct constants s = *shared; /* a local copy: stores of codes may alias anything else */
    struct block blocks[2], *before = NULL;
    for (int i = 0; i < count; i++, p += BLOCK, g += BLOCK) {
        struct block *now = &blocks[i % 2];
        struct pair largest = {{0}, {0}};
        now->states = block_of(states, i);
        now->p = p;
        now->g = g;
        const struct snug_adam_8bit_scales old = old_scale(&s, now);
        if (before) {
            const struct pair new = new_scale(before);
            for (int k = 0; k < VECTORS; k++) {
                update_states(&s, now, k, old, &largest);
                update_parameters(&s, before, k, new);
            }
            end_block(before);
        } else {
            for (int k = 0; k < VECTORS; k++) update_states(&s, now, k, old, &largest);
        }
        const bool finite = !vec_any(~((vec_int)(largest.v < INFINITY)));
        if (finite)
            end_states(now, &largest);
        else
            update_aside(shared, p, g, &now->states, BLOCK);
        before = finite ? now : NULL;
    }
    if (!before) return;
    for (int k = 0; k < VECTORS; k++) update_parameters(&s, before, k, new_scale(before));
    end_block(before);
}

static void update_all(struct snug_run *run, const struct snug_op *op, const struct constants *s) {
    const float *g = snug_run_data(run, op->update.g);
    uint8_t *m = snug_run_data(run, op->update.states[0]), *v = snug_run_data(run, op->update.states[1]);
    float *absmax_m = snug_run_data(run, op->update.states[2]), *absmax_v = snug_run_data(run, op->update.states[3]);
    const int64_t n = snug_run_rows(run, op->update.g) * snug_run_cols(run, op->update.g),
                  each = n / op->update.segments;
    const int64_t blocks = (each + BLOCK - 1) / BLOCK, parts = (blocks + PART_BLOCKS - 1) / PART_BLOCKS;
#pragma omp parallel for num_threads(run->threads) schedule(guided) if (n > 16 * SNUG_UPDATE_PART)
    for (int64_t part = 0; part < op->update.segments * parts; part++) {
        float buffer[PART];
        const int64_t segment = part / parts, start = part % parts * PART, first = segment * each + start;
        const int64_t count = each - start < PART ? each - start : PART;
        float *p = SNUG_KERNEL(update_begin)(run, op, buffer, first, count);
        const int64_t block = segment * blocks + start / BLOCK, whole = count / BLOCK;
        const struct states states = {m + first, v + first, absmax_m + block, absmax_v + block};
        update_blocks(s, p, g + first, &states, (int)whole);
        if (count > whole * BLOCK) {
            const struct states last = block_of(&states, whole);
            update_aside(s, p + whole * BLOCK, g + first + whole * BLOCK, &last, (int)(count - whole * BLOCK));
        }
        SNUG_KERNEL(update_end)(run, op, p, first, count);
    }
}

snug_status SNUG_KERNEL(adam_8bit)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cpu_updates *cpu = run->backend_state;
    const struct constants constants = {&cpu->quantization,
                                        update_numbers(run, op, run->step - run->skipped, run->learning_rate).adam_8bit,
                                        update_clip(run, op)};
    update_all(run, op, &constants);
    return SNUG_OK;
}
