/* SPDX-License-Identifier: Apache-2.0 */
#include "data/selection.h"

#include <stdlib.h>
#include <xxhash.h>

enum { WORDS = 8, BLOCK = 64 * WORDS }; /* words of a block, and its rows */

static int64_t blocks_of(int64_t all) { return (all + BLOCK - 1) / BLOCK; }

snug_status snug_selection_create(snug_context *ctx, int64_t all, struct snug_selection *out) {
    const size_t blocks = (size_t)blocks_of(all);
    *out = (struct snug_selection){.all = all};
    RETURN_IF_ERROR(snug_alloc(ctx, blocks * WORDS, sizeof *out->bits, (void **)&out->bits));
    return snug_alloc(ctx, blocks, sizeof *out->before, (void **)&out->before);
}

void snug_selection_free(struct snug_selection *selection) {
    free(selection->bits);
    free(selection->before);
    *selection = (struct snug_selection){0};
}

void snug_selection_add(struct snug_selection *selection, int64_t row) {
    selection->bits[row / 64] |= UINT64_C(1) << row % 64;
}

static int count_bits(uint64_t word) { return __builtin_popcountll(word); }

void snug_selection_finish(struct snug_selection *selection) {
    selection->count = 0;
    for (int64_t block = 0; block < blocks_of(selection->all); block++) {
        selection->before[block] = selection->count;
        for (int i = 0; i < WORDS; i++) selection->count += count_bits(selection->bits[block * WORDS + i]);
    }
}

int64_t snug_selection_row(const struct snug_selection *selection, int64_t number) {
    int64_t first = 0, end = blocks_of(selection->all);
    while (end - first > 1) { /* the last block with at most `number` rows before it */
        const int64_t middle = first + (end - first) / 2;
        if (selection->before[middle] <= number)
            first = middle;
        else
            end = middle;
    }
    int64_t left = number - selection->before[first], word = first * WORDS;
    while (left >= count_bits(selection->bits[word])) left -= count_bits(selection->bits[word++]);
    uint64_t bits = selection->bits[word];
    for (; left > 0; left--) bits &= bits - 1;
    return word * 64 + __builtin_ctzll(bits);
}

uint64_t snug_selection_digest(const struct snug_selection *selection) {
    return XXH3_64bits(selection->bits, (size_t)(blocks_of(selection->all) * WORDS) * sizeof *selection->bits);
}
