/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of code points as the `tokenizers` library sees them; see tools/gen_unicode_tables.py. */
#ifndef SNUG_TEXT_UNICODE_H
#define SNUG_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Bits of snug_codepoint_flags, in the order in which the generator writes them. */
enum {
    SNUG_CODEPOINT_REMOVED = 1,     /* clean_text drops it: controls, format, private use, NUL, U+FFFD */
    SNUG_CODEPOINT_SPACE = 2,       /* White_Space */
    SNUG_CODEPOINT_PUNCTUATION = 4, /* a word of its own */
    SNUG_CODEPOINT_IDEOGRAPH = 8,   /* handle_chinese_chars puts spaces around it */
    SNUG_CODEPOINT_MARK = 16,       /* strip_accents drops it */
    SNUG_CODEPOINT_NFD = 32,        /* decomposes, or has a combining class */
    SNUG_CODEPOINT_LOWER = 64,      /* may have a lower-case form: ask snug_codepoint_lower */
    SNUG_CODEPOINT_WORD = 128,      /* \w of a regular expression */
};

unsigned snug_codepoint_flags(uint32_t code);
/* Lower case of code into lower, without context; returns the number of code points, 1 or 2. */
int snug_codepoint_lower(uint32_t code, uint32_t lower[2]);

/* The code point at text[*position]; moves *position behind it. The text must be well-formed UTF-8. */
static inline uint32_t snug_utf8_next(const char *text, size_t *position) {
    const unsigned char *byte = (const unsigned char *)text + *position;
    if (byte[0] < 0x80) {
        *position += 1;
        return byte[0];
    }
    if (byte[0] < 0xe0) {
        *position += 2;
        return (byte[0] & 31u) << 6 | (byte[1] & 63u);
    }
    if (byte[0] < 0xf0) {
        *position += 3;
        return (byte[0] & 15u) << 12 | (byte[1] & 63u) << 6 | (byte[2] & 63u);
    }
    *position += 4;
    return (byte[0] & 7u) << 18 | (byte[1] & 63u) << 12 | (byte[2] & 63u) << 6 | (byte[3] & 63u);
}

/* Where the code point that ends just before position begins; position > 0. */
static inline size_t snug_utf8_previous(const char *text, size_t position) {
    do position--;
    while (((unsigned char)text[position] & 0xc0) == 0x80);
    return position;
}

#endif
