/* SPDX-License-Identifier: Apache-2.0 */
#include "data/radix.h"

#include <string.h>

/* Two passes of 11 bits sort any vocabulary below 4 million; their counters fit the L1 cache. */
#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)

static void sort_by_digit(int32_t *to, const int32_t *from, const int32_t *keys, int64_t count, int shift) {
    int32_t start[DIGITS] = {0};
    for (int64_t i = 0; i < count; i++) start[(uint64_t)keys[i] >> shift & (DIGITS - 1)]++;
    for (int32_t digit = 0, sum = 0; digit < DIGITS; digit++) {
        int32_t here = start[digit];
        start[digit] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < count; i++) {
        int32_t number = from ? from[i] : (int32_t)i;
        to[start[(uint64_t)keys[number] >> shift & (DIGITS - 1)]++] = number;
    }
}

void snug_radix_order(int32_t *order, int32_t *scratch, const int32_t *keys, int64_t count) {
    int32_t all = 0;
    for (int64_t i = 0; i < count; i++) all |= keys[i];
    if (!(all >> DIGIT_BITS)) { /* lengths of rows */
        sort_by_digit(order, NULL, keys, count, 0);
        return;
    }
    sort_by_digit(scratch, NULL, keys, count, 0);
    sort_by_digit(order, scratch, keys, count, DIGIT_BITS);
    if (all >> 2 * DIGIT_BITS) {
        sort_by_digit(scratch, order, keys, count, 2 * DIGIT_BITS);
        memcpy(order, scratch, (size_t)count * sizeof *order);
    }
}
