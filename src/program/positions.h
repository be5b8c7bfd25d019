/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SNUG_PROGRAM_POSITIONS_H
#define SNUG_PROGRAM_POSITIONS_H

#include <math.h>
#include <stdint.h>

/* The row of position keys and queries, of 2 * span, for a key `distance` positions before its query (after it if
   negative), as DeBERTa-v2 has it: span + distance, within the rows. With farthest > 0, half of the span has one
   distance each, and the ranges of the others grow exponentially up to distance farthest - 1; in float, as torch
   computes them, of the nearest logarithms. */
static inline int32_t snug_position_row(int64_t distance, int32_t span, int32_t farthest) {
    const int32_t middle = span / 2;
    const int64_t n = distance < 0 ? -distance : distance;
    int64_t bucket = n;
    if (farthest > 0 && n > middle) {
        const float ratio = (float)log((double)((float)n / (float)middle)),
                    most = (float)log((double)((float)(farthest - 1) / (float)middle));
        bucket = (int64_t)ceilf(ratio / most * (float)(middle - 1)) + middle;
    }
    const int64_t row = span + (distance < 0 ? -bucket : bucket);
    return (int32_t)(row < 0 ? 0 : row < 2 * (int64_t)span ? row : 2 * (int64_t)span - 1);
}

#endif
