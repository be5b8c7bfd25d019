/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAM_8BIT: bitsandbytes' block-wise 8-bit Adam and AdamW. A block is updated in fp32, then its new states are coded;
 * between the two they stay in the first cache.
 */
#include <float.h>
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/update.h"
#include "backend/cpu/vec.h"

enum { BLOCK = SNUG_QUANTISED_BLOCK, VECTORS = BLOCK / VEC_LANES, PART_BLOCKS = SNUG_UPDATE_PART / BLOCK };
/* How far ahead values are asked for: beside this much arithmetic, the processor by itself asks too late. */
enum { AHEAD = 2 * BLOCK };

struct constants {
    const struct snug_codes *codes;
    float clip, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, epsilon, keep;
};

/* The states of a block, or of several. */
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
#else
    for (int i = 0; i < VEC_LANES; i++) codes[i] = (uint8_t)wide[i];
#endif
}

static inline vec_uint signed_codes(vec x, const struct snug_codes *codes) {
    const vec_uint bits = (vec_uint)x, cell = bits >> SNUG_SIGNED_SHIFT;
    const vec_uint low = (bits ^ (vec_uint)((vec_int)bits >> 31)) & ((1u << SNUG_SIGNED_SHIFT) - 1);
    return (look_up(codes->signed_cells, cell) + low) >> SNUG_SIGNED_SHIFT;
}

/* Of x >= 0, from 1 on the code of 1. */
static inline vec_uint unsigned_codes(vec x, const struct snug_codes *codes) {
    const vec_uint bits = (vec_uint)vec_min(x, vec_all(1)), cell = bits >> SNUG_UNSIGNED_SHIFT;
    const vec_uint low = bits & ((1u << SNUG_UNSIGNED_SHIFT) - 1);
    return (look_up(codes->unsigned_cells, cell) + low) >> SNUG_UNSIGNED_SHIFT;
}

/* Updates p; leaves the new states in m and v and returns their largest magnitudes. */
static inline void update_values(const struct constants *s, float *p, const float *g, const struct states *states,
                                 vec m[VECTORS], vec v[VECTORS], float largest[2]) {
    vec largest_m = {0}, largest_v = {0};
    for (int i = 0; i < VECTORS; i++) {
        __builtin_prefetch(p + i * VEC_LANES + AHEAD, 1);
        __builtin_prefetch(g + i * VEC_LANES + AHEAD);
        if (i % 4 == 0) {
            __builtin_prefetch(states->m + i * VEC_LANES + AHEAD, 1);
            __builtin_prefetch(states->v + i * VEC_LANES + AHEAD, 1);
        }
        vec raw = vec_read(g + i * VEC_LANES), value = vec_read(p + i * VEC_LANES);
        vec_int usable = (vec_int)(vec_abs(raw) < INFINITY);
        vec gradient = raw * s->clip;
        if (s->decay != 0) gradient += s->decay * value; /* not 0 value: that would take the sign from -0 */
        vec mean = (vec)look_up(s->codes->signed_book, read_codes(states->m + i * VEC_LANES)) * *states->absmax_m;
        vec square = (vec)look_up(s->codes->unsigned_book, read_codes(states->v + i * VEC_LANES)) * *states->absmax_v;
        mean = mean * s->beta1 + gradient * s->one_minus_beta1;
        square = square * s->beta2 + gradient * s->one_minus_beta2 * gradient;
        m[i] = mean = (vec)((vec_int)mean & usable);
        v[i] = square = (vec)((vec_int)square & usable);
        largest_m = vec_max(vec_abs(mean), largest_m);
        largest_v = vec_max(square, largest_v);
        vec updated = (value + s->step_size * (mean / (vec_sqrt(square) + s->epsilon))) * s->keep;
        vec_write(p + i * VEC_LANES, vec_select(usable, updated, value));
    }
    largest[0] = vec_largest(largest_m);
    largest[1] = vec_largest(largest_v);
}

/* A block without a largest value, or with one so small that it counts as 0, gets the codes that bitsandbytes' search
   ends at for 0/0. */
static void code_m(const struct snug_codes *codes, const vec m[VECTORS], float largest, const struct states *states) {
    const bool zero = largest < FLT_MIN;
    *states->absmax_m = zero ? 0 : largest;
    const float scale = 1.0f / largest;
    for (int i = 0; i < VECTORS; i++)
        write_codes(states->m + i * VEC_LANES,
                    zero ? ~(vec_uint)((vec_int)m[i] >> 31) : signed_codes(m[i] * scale, codes));
}

static void code_v(const struct snug_codes *codes, const vec v[VECTORS], float largest, const struct states *states) {
    if (largest < FLT_MIN) {
        *states->absmax_v = 0;
        memset(states->v, 0, BLOCK);
        return;
    }
    *states->absmax_v = largest;
    const float scale = 1.0f / largest;
    for (int i = 0; i < VECTORS; i++) write_codes(states->v + i * VEC_LANES, unsigned_codes(v[i] * scale, codes));
}

/* Up to PART_BLOCKS whole blocks; their states follow each other. All are updated before the first is coded: a block's
   largest value takes as long to find as several vectors. */
static void update_blocks(const struct constants *s, float *p, const float *g, const struct states *states, int count) {
    vec m[PART_BLOCKS][VECTORS], v[PART_BLOCKS][VECTORS];
    float largest[PART_BLOCKS][2];
    for (int i = 0; i < count; i++) {
        const struct states block = block_of(states, i);
        update_values(s, p + i * BLOCK, g + i * BLOCK, &block, m[i], v[i], largest[i]);
    }
    for (int i = 0; i < count; i++) {
        const struct states block = block_of(states, i);
        code_m(s->codes, m[i], largest[i][0], &block);
        code_v(s->codes, v[i], largest[i][1], &block);
    }
}

/* The last block of a parameter: filled up with zeros. */
static __attribute__((noinline)) void update_short_block(const struct constants *s, float *p, const float *g,
                                                         const struct states *states, int64_t n) {
    float p_all[BLOCK] = {0}, g_all[BLOCK] = {0};
    uint8_t m_all[BLOCK], v_all[BLOCK] = {0};
    memset(m_all, SNUG_SIGNED_ZERO, sizeof m_all);
    memcpy(p_all, p, (size_t)n * sizeof *p);
    memcpy(g_all, g, (size_t)n * sizeof *g);
    memcpy(m_all, states->m, (size_t)n);
    memcpy(v_all, states->v, (size_t)n);
    update_blocks(s, p_all, g_all, &(struct states){m_all, v_all, states->absmax_m, states->absmax_v}, 1);
    memcpy(p, p_all, (size_t)n * sizeof *p);
    memcpy(states->m, m_all, (size_t)n);
    memcpy(states->v, v_all, (size_t)n);
}

static void update_all(struct snug_run *run, const struct snug_op *op, const struct constants *s) {
    const float *g = snug_run_data(run, op->in[0]);
    uint8_t *m = snug_run_data(run, op->out[2]), *v = snug_run_data(run, op->out[3]);
    float *absmax_m = snug_run_data(run, op->out[4]), *absmax_v = snug_run_data(run, op->out[5]);
    const int64_t n = snug_run_rows(run, op->in[0]) * snug_run_cols(run, op->in[0]), each = n / op->segments;
    const int64_t blocks = (each + BLOCK - 1) / BLOCK, parts = (blocks + PART_BLOCKS - 1) / PART_BLOCKS;
#pragma omp parallel for num_threads(run->threads) if (n > 16 * SNUG_UPDATE_PART)
    for (int64_t part = 0; part < op->segments * parts; part++) {
        float buffer[SNUG_UPDATE_PART];
        const int64_t segment = part / parts, start = part % parts * SNUG_UPDATE_PART, first = segment * each + start;
        const int64_t count = each - start < SNUG_UPDATE_PART ? each - start : SNUG_UPDATE_PART;
        float *p = SNUG_KERNEL(update_begin)(run, op, buffer, first, count);
        const int64_t block = segment * blocks + start / BLOCK, whole = count / BLOCK;
        const struct states states = {m + first, v + first, absmax_m + block, absmax_v + block};
        update_blocks(s, p, g + first, &states, (int)whole);
        if (count > whole * BLOCK) {
            const struct states last = block_of(&states, whole);
            update_short_block(s, p + whole * BLOCK, g + first + whole * BLOCK, &last, count - whole * BLOCK);
        }
        SNUG_KERNEL(update_end)(run, op, p, first, count);
    }
}

snug_status SNUG_KERNEL(adam_8bit)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct snug_cpu *cpu = run->backend_state;
    const float beta1 = (float)o->beta1, beta2 = (float)o->beta2;
    const double t = (double)run->step + 1, decay = op->decay ? o->weight_decay : 0;
    const double correction2 = sqrt(1 - pow((double)beta2, t));
    const struct constants constants = {
        .codes = &cpu->codes,
        .clip = update_clip(run, op),
        .decay = (float)(o->decoupled ? 0 : decay),
        .beta1 = beta1,
        .one_minus_beta1 = 1 - beta1,
        .beta2 = beta2,
        .one_minus_beta2 = 1 - beta2,
        .step_size = (float)(-run->learning_rate * correction2 / (1 - pow((double)beta1, t))),
        .epsilon = (float)(correction2 * o->epsilon),
        .keep = (float)(o->decoupled ? 1 - run->learning_rate * decay : 1),
    };
    update_all(run, op, &constants);
    return SNUG_OK;
}
