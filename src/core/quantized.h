/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights stored as 4-bit codes, as bitsandbytes stores them (Dettmers et al., arXiv:2305.14314). The values of a
 * parameter, row by row, are cut into blocks. A value is that of its code in the type's map, multiplied by the absmax
 * of its block, in fp32, and rounded to `rounded`. nested (double quantization): the absmax of a block is itself an
 * 8-bit code of the signed dynamic map (optim/quantization_map.h), multiplied by the absmax of its group of blocks,
 * plus the mean of all blocks.
 *
 * The bytes of a parameter:
 *
 *   codes         two values a byte, the first one in the high half
 *   group_absmax  nested: F32 for each group, then the mean, F32
 *   absmax        for each block F32, or nested its code, U8
 *
 * Each part, and the whole, has a multiple of 16 bytes, so that codes can be read in vectors.
 */
#ifndef SNUG_CORE_QUANTIZED_H
#define SNUG_CORE_QUANTIZED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/dtype.h"

enum { SNUG_CODE_BLOCK = 64 /* values */, SNUG_CODE_GROUP = 256 /* blocks */, SNUG_CODE_VALUES = 16 };

enum snug_code_type { SNUG_CODES_NONE, SNUG_CODES_NF4, SNUG_CODES_FP4, SNUG_CODES_COUNT };

/* How a tensor stores the parameters that are stacked in it; type NONE: as values of its dtype. */
struct snug_quantized {
    enum snug_code_type type;
    bool nested;
    enum snug_dtype rounded;
    int64_t rows, cols; /* of each parameter */
};

/* Where the parts of a parameter begin, in bytes. */
struct snug_quantized_layout {
    int64_t count, blocks, groups; /* groups: 0 unless nested */
    int64_t group_absmax, absmax, bytes;
};

static inline struct snug_quantized_layout snug_quantized_lay_out(const struct snug_quantized *form) {
    struct snug_quantized_layout l = {.count = form->rows * form->cols};
    l.blocks = (l.count + SNUG_CODE_BLOCK - 1) / SNUG_CODE_BLOCK;
    l.groups = form->nested ? (l.blocks + SNUG_CODE_GROUP - 1) / SNUG_CODE_GROUP : 0;
    const int64_t nested = form->nested ? (l.groups + 1) * (int64_t)sizeof(float) : 0;
    l.group_absmax = ((l.count + 1) / 2 + 15) / 16 * 16;
    l.absmax = l.group_absmax + (nested + 15) / 16 * 16;
    l.bytes = l.absmax + (l.blocks * (form->nested ? 1 : (int64_t)sizeof(float)) + 15) / 16 * 16;
    return l;
}

/* "nf4" or "fp4", bitsandbytes' names. */
static inline const char *snug_code_type_name(enum snug_code_type type) {
    static const char *const names[SNUG_CODES_COUNT] = {"none", "nf4", "fp4"};
    return names[type];
}

/* The value of each code. The second zero of FP4 is that of -0. */
static inline const float *snug_code_values(enum snug_code_type type) {
    static const float values[SNUG_CODES_COUNT][SNUG_CODE_VALUES] = {
        {0},
        {-1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
         -0.18477343022823334f, -0.09105003625154495f, 0, 0.07958029955625534f, 0.16093020141124725f,
         0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1},
        {0, 0.0052083334885537624f, 0.6666666865348816f, 1, 0.3333333432674408f, 0.5f, 0.1666666716337204f, 0.25f, 0,
         -0.0052083334885537624f, -0.6666666865348816f, -1, -0.3333333432674408f, -0.5f, -0.1666666716337204f, -0.25f},
    };
    return values[type];
}

static inline float snug_float_at(const uint8_t *bytes) {
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* The absmax of a block of a parameter whose parts from group_absmax on are at scales. map: the signed dynamic map, of
   nested ones. Not to be contracted: bitsandbytes rounds the product. */
static inline float snug_absmax_of(const struct snug_quantized_layout *l, const uint8_t *scales, const float *map,
                                   int64_t block) {
    const int64_t size = sizeof(float), at = l->absmax - l->group_absmax;
    if (!l->groups) return snug_float_at(scales + at + block * size);
    return map[scales[at + block]] * snug_float_at(scales + block / SNUG_CODE_GROUP * size) +
           snug_float_at(scales + l->groups * size);
}

static inline uint8_t snug_code_at(const uint8_t *codes, int64_t i) {
    return i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
}

/* A value as an operation that reads the type has it. */
static inline float snug_rounded_to(enum snug_dtype dtype, float value) {
    if (dtype == SNUG_BF16) return snug_bf16_to_f32(snug_f32_to_bf16(value));
    if (dtype == SNUG_F16) return snug_f16_to_f32(snug_f32_to_f16(value));
    return value;
}

#endif
