/* SPDX-License-Identifier: Apache-2.0 */
#include "data/row_texts.h"

#include <math.h>
#include <string.h>

bool snug_row_texts_of(const uint32_t *numbers, int64_t count, int64_t tokens, struct snug_row_texts *out) {
    if (count < 2 || numbers[0] < 1 || count < 1 + (int64_t)numbers[0]) return false;
    *out = (struct snug_row_texts){.count = numbers[0], .tokens = numbers + 1, .scored = count > 1 + numbers[0]};
    int64_t sum = 0;
    for (int64_t i = 0; i < out->count; i++) sum += numbers[1 + i];
    if (out->scored) memcpy(&out->score, &numbers[1 + out->count], sizeof out->score);
    return sum == tokens && count == (int64_t)snug_row_texts_numbers(numbers[0], out->scored) && isfinite(out->score);
}
