/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens of a row of causal LM have a loss, as snug_dataset_row.labels holds it: a bit for each token, in as few
   numbers as they need, the first token in the lowest bit; no number: all tokens have one. */
#ifndef SNUG_DATA_LOSS_MASK_H
#define SNUG_DATA_LOSS_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t snug_loss_mask_numbers(size_t tokens) { return (tokens + 31) / 32; }

static inline bool snug_loss_mask_has(const uint32_t *mask, int64_t numbers, int64_t token) {
    return !numbers || (mask[token / 32] >> (token % 32) & 1);
}

/* Writes the numbers of tokens that have a loss where has_loss is not 0. */
static inline void snug_loss_mask_put(uint32_t *mask, const int32_t *has_loss, size_t tokens) {
    for (size_t i = 0; i < snug_loss_mask_numbers(tokens); i++) mask[i] = 0;
    for (size_t i = 0; i < tokens; i++) mask[i / 32] |= (uint32_t)(has_loss[i] != 0) << (i % 32);
}

/* Whether numbers are the mask of so many tokens: bits after the last one are 0. */
static inline bool snug_loss_mask_check(const uint32_t *mask, size_t numbers, size_t tokens) {
    if (!numbers) return true;
    return numbers == snug_loss_mask_numbers(tokens) && !((uint64_t)mask[numbers - 1] >> (tokens - 32 * (numbers - 1)));
}

#endif
