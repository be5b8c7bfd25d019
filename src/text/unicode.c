/* SPDX-License-Identifier: Apache-2.0 */
#include "text/unicode.h"

#include "text/unicode_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

unsigned snug_codepoint_flags(uint32_t code) {
    if (code < 128) return ascii_flags[code];
    /* The last change at or before code: its low byte is below any flags' 255 + 1. */
    uint32_t key = code << 8 | 255u;
    size_t low = 0, high = COUNT(flag_changes);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (flag_changes[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    return flag_changes[low] & 255u;
}

int snug_codepoint_lower(uint32_t code, uint32_t lower[2]) {
    lower[0] = code;
    if (code == 0x130) { /* capital I with dot above: the only one that becomes two, i and a combining dot */
        lower[0] = 'i';
        lower[1] = 0x307;
        return 2;
    }
    size_t low = 0, high = COUNT(lower_ranges);
    while (high - low > 1) { /* to the last range that does not begin behind code */
        const size_t middle = (low + high) / 2;
        *(code < lower_ranges[middle].first ? &high : &low) = middle;
    }
    const struct lower_range *range = &lower_ranges[low];
    if ((code - range->first) % (uint32_t)range->step == 0) lower[0] = (uint32_t)((int32_t)code + range->delta);
    return 1;
}
