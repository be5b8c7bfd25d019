/* SPDX-License-Identifier: Apache-2.0 */
#include "data/permutation.h"

#include <stddef.h>

#include "core/philox.h"

#define ROUNDS 6 /* of the Feistel network; four already make a strong permutation of a strong round function */
#define LEAST_BITS                                                                                                     \
    8 /* the network needs a minimum size to mix even a few rows; with few rows cycle walking is cheap                 \
       */

/* The random word of a round, for a right half. */
static uint32_t round_word(uint32_t right, uint32_t round, int bits, uint32_t key, uint32_t epoch) {
    return snug_philox(right, round, (uint32_t)bits, (uint32_t)SNUG_PHILOX_ORDER << 29, key, epoch).word[0];
}

/* One pass through an (unbalanced where bits is odd) Feistel network: a bijection of [0, 2^bits). words is NULL or what
   snug_permutation_tabulate() filled. */
static inline uint64_t mix(uint64_t value, int bits, uint32_t key, uint32_t epoch, const uint32_t *words) {
    int right_bits = bits / 2, left_bits = bits - right_bits, wide = left_bits;
    uint64_t right = value & ((UINT64_C(1) << right_bits) - 1), left = value >> right_bits;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t word =
            words ? words[(uint64_t)round << wide | right] : round_word((uint32_t)right, round, bits, key, epoch);
        uint64_t mixed = left ^ (word & ((UINT64_C(1) << left_bits) - 1));
        left = right;
        right = mixed;
        int swap = left_bits;
        left_bits = right_bits;
        right_bits = swap;
    }
    return left << right_bits | right;
}

int snug_permutation_bits(int64_t rows) {
    int bits = LEAST_BITS;
    while (bits < 63 && rows > INT64_C(1) << bits) bits++;
    return bits;
}

/* Cycle walking: a permutation of 2^bits values, followed until the result is a row, permutes the rows. */
int64_t snug_permutation(uint64_t seed, int64_t epoch, int64_t rows, int64_t place) {
    int bits = snug_permutation_bits(rows);
    uint64_t value = (uint64_t)place;
    do value = mix(value, bits, snug_philox_key(seed), (uint32_t)epoch, NULL);
    while (value >= (uint64_t)rows);
    return (int64_t)value;
}

int64_t snug_permutation_words(int64_t rows) { return ROUNDS * (INT64_C(1) << (snug_permutation_bits(rows) + 1) / 2); }

void snug_permutation_tabulate(uint64_t seed, int64_t epoch, int64_t rows, uint32_t *words) {
    int bits = snug_permutation_bits(rows);
    uint64_t halves = UINT64_C(1) << (bits + 1) / 2;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint64_t right = 0; right < halves; right++)
            *words++ = round_word((uint32_t)right, round, bits, snug_philox_key(seed), (uint32_t)epoch);
}

enum { TOGETHER = 64 };

/* The rows at count positions, by table look-up. All walk together, and finished walks are removed: no branch depends
   on a value, so many walks overlap. */
static void walk_together(const struct snug_permutation *p, int64_t place, int64_t count, int64_t *rows) {
    int32_t walking[TOGETHER];
    for (int64_t i = 0; i < count; i++) {
        rows[i] = place + i;
        walking[i] = (int32_t)i;
    }
    for (int64_t left = 0; count; count = left, left = 0)
        for (int64_t i = 0; i < count; i++) {
            int32_t one = walking[i];
            rows[one] = (int64_t)mix((uint64_t)rows[one], p->bits, 0, 0, p->words);
            walking[left] = one;
            left += rows[one] >= p->rows;
        }
}

void snug_permutation_rows(const struct snug_permutation *p, int64_t epoch, int64_t place, int64_t count,
                           int64_t *rows) {
    if (!p->words)
        for (; count > 0; count--) *rows++ = snug_permutation(p->seed, epoch, p->rows, place++);
    for (int64_t part; count > 0; count -= part, place += part, rows += part) {
        part = count < TOGETHER ? count : TOGETHER;
        walk_together(p, place, part, rows);
    }
}
