/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of code points as the `tokenizers` library defines them; see tools/gen_unicode_tables.py. */
#ifndef SNUG_TOKENIZER_UNICODE_H
#define SNUG_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Bits of snug_codepoint_flags, in the order in which the generator writes them. */
enum {
    SNUG_CODEPOINT_REMOVED = 1,      /* clean_text drops it: controls, format, private use, NUL, U+FFFD */
    SNUG_CODEPOINT_SPACE = 2,        /* White_Space */
    SNUG_CODEPOINT_PUNCTUATION = 4,  /* a separate word */
    SNUG_CODEPOINT_IDEOGRAPH = 8,    /* handle_chinese_chars puts spaces around it */
    SNUG_CODEPOINT_MARK = 16,        /* strip_accents drops it */
    SNUG_CODEPOINT_NFD = 32,         /* decomposes, or has a combining class */
    SNUG_CODEPOINT_LOWER = 64,       /* may have a lower-case form: see snug_codepoint_lower */
    SNUG_CODEPOINT_WORD = 128,       /* \w of a regular expression */
    SNUG_CODEPOINT_LETTER = 256,     /* \p{L} of Split and ByteLevel */
    SNUG_CODEPOINT_NUMBER = 512,     /* \p{N} of Split and ByteLevel */
    SNUG_CODEPOINT_NFKD = 1024,      /* has a compatibility decomposition */
    SNUG_CODEPOINT_COMBINING = 2048, /* StripAccents drops it */
    SNUG_CODEPOINT_NUMERIC = 4096,   /* a digit of Digits */
};

extern const uint16_t snug_codepoint_ascii[128];
unsigned snug_codepoint_look_up(uint32_t code);
static inline unsigned snug_codepoint_flags(uint32_t code) {
    return code < 128 ? snug_codepoint_ascii[code] : snug_codepoint_look_up(code);
}
/* What a regular expression of tokenizer.json sees of a code point: its general category, whether it is of \w, its
   script. */
enum { SNUG_CLASS_CATEGORY = 31, SNUG_CLASS_WORD = 32, SNUG_CLASS_SCRIPT_SHIFT = 6 };
#define SNUG_CATEGORIES                                                                                                \
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",  \
        "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"
#define SNUG_SCRIPTS "Han", "Hiragana", "Katakana", "Hangul" /* numbers from 1; 0: another one */
unsigned snug_codepoint_class(uint32_t code);

/* NFC's composition of two code points; 0 if there is none. */
uint32_t snug_codepoint_compose(uint32_t first, uint32_t second);
/* Lower case of code into lower, without context; returns the number of code points, 1 or 2. */
int snug_codepoint_lower(uint32_t code, uint32_t lower[2]);

/* The code point at text[*position]; moves *position after it. The text must be well-formed UTF-8. */
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

/* The beginning of the code point that ends at position; position > 0. */
static inline size_t snug_utf8_previous(const char *text, size_t position) {
    do position--;
    while (((unsigned char)text[position] & 0xc0) == 0x80);
    return position;
}

/* Writes a code point as UTF-8; returns its bytes, at most 4. */
static inline size_t snug_utf8_put(char *text, uint32_t code) {
    unsigned char *to = (unsigned char *)text;
    if (code < 0x80) {
        to[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (unsigned char)(0xc0 | code >> 6);
        to[1] = (unsigned char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (unsigned char)(0xe0 | code >> 12);
        to[1] = (unsigned char)(0x80 | (code >> 6 & 63));
        to[2] = (unsigned char)(0x80 | (code & 63));
        return 3;
    }
    to[0] = (unsigned char)(0xf0 | code >> 18);
    to[1] = (unsigned char)(0x80 | (code >> 12 & 63));
    to[2] = (unsigned char)(0x80 | (code >> 6 & 63));
    to[3] = (unsigned char)(0x80 | (code & 63));
    return 4;
}

#endif
