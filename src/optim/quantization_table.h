/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantizes a value to the nearest code of a quantization map with one table lookup. The index into the table is the
 * float's sign, exponent and first mantissa bits, so many that at most one midpoint between two codes has the same
 * index: the closest codes of the signed map are 0.014 apart, those of the unsigned map 0.007, and with 6 and 7
 * mantissa bits an entry covers 0.008 and 0.004. An entry holds a code, shifted left by the number of remaining bits,
 * and an offset. Adding the value's remaining bits to the entry carries into the code exactly if the value is greater
 * than the midpoint. For a negative value, whose code decreases as its bits increase, the complement of the bits is
 * added. The code adds the whole value, without masking it: the entry has the index subtracted in advance.
 *
 * Only entries for values in the range of the map are read, so only these occupy the L1 cache.
 */
#ifndef SNUG_OPTIM_QUANTIZATION_TABLE_H
#define SNUG_OPTIM_QUANTIZATION_TABLE_H

#include <stdint.h>

#include "optim/quantization_map.h"

/* The number of remaining bits; the last entry of the unsigned table is that of 1. */
enum {
    SNUG_SIGNED_SHIFT = 17,
    SNUG_UNSIGNED_SHIFT = 16,
    SNUG_SIGNED_TABLE = 1 << (32 - SNUG_SIGNED_SHIFT),
    SNUG_UNSIGNED_TABLE = (0x3f800000 >> SNUG_UNSIGNED_SHIFT) + 1,
};

/* Dequantizes without a table of 256 values, for processors that can look up 16 and 32 words in registers: a gather
   costs one load per value. Within a power of two of the code's distance from the code of 0, the map's values are a
   linear function of the distance, up to errors in the last bits. corrections has these errors, 4 bits for each
   distance, the first distances in the highest bits. The index of a line is the number of leading zero bits of the
   distance, modulo 16; the unsigned map counts distances from 1. */
struct snug_quantization_lines {
    float slope[16], offset[16];
    uint32_t corrections[32];
};

struct snug_quantization_tables {
    struct snug_quantization_lines signed_lines, unsigned_lines;
    float signed_map[SNUG_CODES], unsigned_map[SNUG_CODES];
    /* The code has the sign of the value, also if 0 is the nearest value. */
    uint32_t signed_table[SNUG_SIGNED_TABLE];
    uint32_t unsigned_table[SNUG_UNSIGNED_TABLE];
};
void snug_quantization_tables_init(struct snug_quantization_tables *tables);

#endif
