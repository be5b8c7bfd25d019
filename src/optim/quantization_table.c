/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/quantization_table.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int code_of(const float *map, uint32_t bits, int zero) {
    const int code = snug_nearest_code(map, float_of(bits));
    return code == zero && bits >> 31 ? zero - 1 : code;
}

/* zero is the code of 0. Only the entries from 2^-23, which is below all midpoints, to 1 are searched. */
static void fill_table(uint32_t *table, uint32_t count, int shift, const float *map, int zero) {
    const uint32_t low = (1u << shift) - 1, least = (127u - 23) << 23, one = 127u << 23;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t sign = (i << shift) & 0x80000000u, magnitude = (i << shift) & 0x7fffffffu;
        const uint32_t start = sign | (magnitude < least ? 0 : magnitude > one ? one : magnitude);
        const int first = code_of(map, start, zero);
        const int last = magnitude < least ? first : code_of(map, start + low, zero);
        table[i] = (uint32_t)(sign ? last : first) << shift;
        table[i] -= (sign ? ~(i << shift) : i << shift) & ~low;
        if (first == last) continue;
        uint32_t before = 0; /* how many values of the entry have the first code */
        for (uint32_t bit = (low + 1) / 2; bit; bit /= 2)
            if (code_of(map, start + before + bit - 1, zero) == first) before += bit;
        table[i] += sign ? before : low + 1 - before;
    }
}

/* values[k - first] is the value at distance k, from first to last. A line begins at each power of two. */
static void fill_lines(struct snug_quantization_lines *lines, const float *values, int first, int last) {
    memset(lines, 0, sizeof *lines);
    for (int k = first; k <= last;) {
        const int zeros = k ? __builtin_clz((unsigned)k) : 32, begin = k, end = k ? 2 * k - 1 : 0;
        const int stop = end < last ? end : last;
        const float slope = stop > begin ? (values[stop - first] - values[begin - first]) / (float)(stop - begin) : 0;
        const float offset = (float)((double)values[begin - first] - (double)slope * begin);
        lines->slope[zeros % 16] = slope;
        lines->offset[zeros % 16] = offset;
        for (; k <= stop; k++) {
            const uint32_t index = (uint32_t)(k - first), turn = index >> 3;
            const uint32_t correction = (bits_of(values[index]) - bits_of(fmaf(slope, (float)k, offset))) << 28;
            lines->corrections[index % 32] |= correction >> turn | (turn ? correction << (32 - turn) : 0);
        }
    }
}

void snug_quantization_tables_init(struct snug_quantization_tables *tables) {
    snug_quantization_map(true, tables->signed_map);
    snug_quantization_map(false, tables->unsigned_map);
    fill_lines(&tables->signed_lines, tables->signed_map + SNUG_SIGNED_ZERO, 0, SNUG_CODES - 1 - SNUG_SIGNED_ZERO);
    fill_lines(&tables->unsigned_lines, tables->unsigned_map, 1, SNUG_CODES);
    fill_table(tables->signed_table, SNUG_SIGNED_TABLE, SNUG_SIGNED_SHIFT, tables->signed_map, SNUG_SIGNED_ZERO);
    fill_table(tables->unsigned_table, SNUG_UNSIGNED_TABLE, SNUG_UNSIGNED_SHIFT, tables->unsigned_map, 0);
}
