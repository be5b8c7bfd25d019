/* SPDX-License-Identifier: Apache-2.0 */
/* The random order of an epoch's rows, of which any position can be computed: a Feistel network over the row numbers.
 */
#ifndef SNUG_DATA_PERMUTATION_H
#define SNUG_DATA_PERMUTATION_H

#include <stdint.h>

/* The row of the data set at position `place` of an epoch. A bijection of [0, rows). */
int64_t snug_permutation(uint64_t seed, int64_t epoch, int64_t rows, int64_t place);

/* For scans of a whole epoch: tabulates all random words of its permutation, about 7 sqrt(rows), so that a position
   takes look-ups instead of Philox. The order is the same. */
int64_t snug_permutation_words(int64_t rows);
void snug_permutation_tabulate(uint64_t seed, int64_t epoch, int64_t rows, uint32_t *words);

/* Bits of the network for so many rows. */
int snug_permutation_bits(int64_t rows);
struct snug_permutation {
    uint64_t seed;
    int64_t rows;
    int bits;
    const uint32_t *words; /* of the epoch; NULL: none */
};
/* The rows at place … place + count - 1. */
void snug_permutation_rows(const struct snug_permutation *p, int64_t epoch, int64_t place, int64_t count,
                           int64_t *rows);

#endif
