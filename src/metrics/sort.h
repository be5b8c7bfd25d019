/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting predictions, as words, without an allocation. */
#ifndef SNUG_METRICS_SORT_H
#define SNUG_METRICS_SORT_H

#include <stdint.h>
#include <string.h>

/* The float's bits, mapped so that the words have the order of the numbers. */
static inline uint32_t snug_ordered_word(float value) {
    uint32_t bits;
    value += 0.0f; /* -0 equals +0 */
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/* The number that such a word came from. */
static inline float snug_ordered_value(uint32_t word) {
    const uint32_t bits = word & 0x80000000u ? word & 0x7fffffffu : ~word;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
/* Ascending. qsort may allocate; this does not. */
void snug_sort_words(uint64_t *values, int64_t count);

#endif
