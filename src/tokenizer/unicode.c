/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/unicode.h"

#include <stdbool.h>

#include "tokenizer/unicode_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

unsigned snug_codepoint_look_up(uint32_t code) {
    size_t low = 0, high = COUNT(flag_changes);
    const size_t page = code >> 8;
    if (page + 1 < COUNT(flag_pages)) low = flag_pages[page], high = (size_t)flag_pages[page + 1] + 1;
    while (high - low > 1) { /* the last change at or before code */
        const size_t middle = (low + high) / 2;
        *(code < flag_changes[middle] ? &high : &low) = middle;
    }
    return changed_flags[low];
}

unsigned snug_codepoint_class(uint32_t code) {
    size_t low = 0, high = COUNT(class_changes);
    const size_t page = code >> 8;
    if (page + 1 < COUNT(class_pages)) low = class_pages[page], high = (size_t)class_pages[page + 1] + 1;
    while (high - low > 1) { /* the last change at or before code */
        const size_t middle = (low + high) / 2;
        *(code < class_changes[middle] >> 9 ? &high : &low) = middle;
    }
    return class_changes[low] & 511;
}

/* Hangul syllables are composed by a formula (The Unicode Standard, 3.12): leading consonant, vowel, trailing one. */
enum { LEAD = 0x1100, LEADS = 19, VOWEL = 0x1161, VOWELS = 21, TRAIL = 0x11a7, TRAILS = 28, SYLLABLE = 0xac00 };

static uint32_t compose_hangul(uint32_t first, uint32_t second) {
    if (first - LEAD < LEADS && second - VOWEL < VOWELS)
        return SYLLABLE + ((first - LEAD) * VOWELS + second - VOWEL) * TRAILS;
    const bool open = first - SYLLABLE < LEADS * VOWELS * TRAILS && (first - SYLLABLE) % TRAILS == 0;
    return open && second - TRAIL - 1 < TRAILS - 1 ? first + second - TRAIL : 0;
}

uint32_t snug_codepoint_compose(uint32_t first, uint32_t second) {
    size_t low = 0, high = COUNT(compositions);
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        const struct composition *at = &compositions[middle];
        *(first < at->first || (first == at->first && second < at->second) ? &high : &low) = middle;
    }
    const struct composition *found = &compositions[low];
    if (found->first == first && found->second == second) return found->composite;
    return compose_hangul(first, second);
}

int snug_codepoint_lower(uint32_t code, uint32_t lower[2]) {
    lower[0] = code;
    if (code == 0x130) { /* capital I with dot above: the only one with two code points, i and a combining dot */
        lower[0] = 'i';
        lower[1] = 0x307;
        return 2;
    }
    size_t low = 0, high = COUNT(lower_ranges);
    while (high - low > 1) { /* finds the last range that begins at or before code */
        const size_t middle = (low + high) / 2;
        *(code < lower_ranges[middle].first ? &high : &low) = middle;
    }
    const struct lower_range *range = &lower_ranges[low];
    if ((code - range->first) % (uint32_t)range->step == 0) lower[0] = (uint32_t)((int32_t)code + range->delta);
    return 1;
}
