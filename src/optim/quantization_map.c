/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/quantization_map.h"

#include <math.h>

/* Bounds of the intervals, from 0.1 to 1, counted from the nearer end as torch.linspace does. */
static float bound(int i, int intervals) {
    const float step = (1.0f - 0.1f) / (float)intervals;
    return i < (intervals + 1) / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(intervals - i), 1.0f);
}

void snug_quantization_map(bool has_sign, float map[SNUG_CODES]) {
    static const float scale[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    const int zero = has_sign ? SNUG_SIGNED_ZERO : 0;
    int code = zero;
    map[code++] = 0;
    for (int decade = 0; decade < 7; decade++) {
        const int intervals = has_sign ? 1 << decade : 2 << decade;
        for (int i = 0; i < intervals; i++)
            map[code++] = scale[decade] * ((bound(i, intervals) + bound(i + 1, intervals)) / 2.0f);
    }
    map[code] = 1;
    for (int i = 1; i <= zero; i++) map[zero - i] = -map[zero + i];
}

int snug_nearest_code(const float map[SNUG_CODES], double x) {
    int code = 0;
    for (int step = SNUG_CODES / 2; step; step /= 2) {
        const int below = code + step - 1; /* is x greater than the midpoint between this code and the next? */
        const double middle = snug_code_middle(map, below);
        if (x > middle || (x == middle && below % 2 == 1)) code += step;
    }
    return code;
}
