/* SPDX-License-Identifier: Apache-2.0 */
#include "data/numbers.h"

#include <stdlib.h>
#include <string.h>

/* The parts of a number: sign, digits, point and digits, exponent. */
struct parts {
    bool negative, is_number, has_point, has_exponent;
    const char *whole, *fraction;
    long whole_length, fraction_length, exponent;
};

/* The largest exponent: it is added to numbers of digits, of which a row has fewer. */
#define EXPONENT_MOST (1L << 40)

static long digits(const char *text) { return (long)strspn(text, "0123456789"); }

static long clamp(long exponent) {
    return exponent > EXPONENT_MOST ? EXPONENT_MOST : exponent < -EXPONENT_MOST ? -EXPONENT_MOST : exponent;
}

static struct parts split(const char *text) {
    struct parts parts = {.negative = *text == '-'};
    text += *text == '-' || *text == '+';
    parts.whole = text;
    parts.whole_length = digits(text);
    text += parts.whole_length;
    parts.has_point = *text == '.';
    parts.fraction = text += parts.has_point;
    if (parts.has_point) text += parts.fraction_length = digits(text);
    parts.has_exponent = *text == 'e' || *text == 'E';
    if (parts.has_exponent) {
        const char *exponent = ++text;
        text += *text == '-' || *text == '+';
        const long length = digits(text);
        if (!length) return parts;
        parts.exponent = clamp(strtol(exponent, NULL, 10)); /* which saturates */
        text += length;
    }
    parts.is_number = !*text && (parts.whole_length || parts.fraction_length);
    return parts;
}

/* The digit at a place of the digits before and after the point, taken together; zeros follow. */
static char digit_at(const struct parts *parts, long place) {
    if (place < parts->whole_length) return parts->whole[place];
    place -= parts->whole_length;
    return place < parts->fraction_length ? parts->fraction[place] : '0';
}

bool snug_whole_number(const char *text, char out[SNUG_WHOLE_SIZE]) {
    const struct parts parts = split(text);
    const long count = parts.whole_length + parts.fraction_length;
    long first = 0, point = parts.whole_length + parts.exponent;
    if (!parts.is_number) return false;
    while (first < count && digit_at(&parts, first) == '0') first++;
    if (first == count) {
        memcpy(out, "0", sizeof "0");
        return true;
    }
    if (point <= first || point - first > SNUG_WHOLE_DIGITS) return false;
    const int length = (int)(point - first);
    for (long i = point; i < count; i++)
        if (digit_at(&parts, i) != '0') return false;
    if (parts.negative) *out++ = '-';
    for (int i = 0; i < length; i++) out[i] = digit_at(&parts, first + i);
    out[length] = '\0';
    return true;
}

enum snug_number_kind snug_number_kind(const char *text) {
    char whole[SNUG_WHOLE_SIZE];
    const struct parts parts = split(text);
    if (!parts.is_number) return SNUG_NUMBER_NONE;
    const bool plain = !parts.has_point && !parts.has_exponent;
    return plain || snug_whole_number(text, whole) ? SNUG_NUMBER_INTEGER : SNUG_NUMBER_REAL;
}

bool snug_has_number_comma(const char *text) {
    static const char *const between[] = {",", ".", " ", "\u00a0", "\u202f"};
    bool comma = false, digit = false;
    text += *text == '-' || *text == '+';
    if (!digits(text) && *text != ',') return false;
    while (*text) {
        const long length = digits(text);
        size_t k = 0;
        digit |= length > 0;
        comma |= *(text += length) == ',';
        if (!*text) break;
        while (k < sizeof between / sizeof *between && strncmp(text, between[k], strlen(between[k])) != 0) k++;
        if (k == sizeof between / sizeof *between) return false;
        text += strlen(between[k]);
    }
    return comma && digit;
}

snug_status snug_plain_locale(snug_context *ctx, locale_t *out) {
    *out = newlocale(LC_ALL_MASK, "C", NULL);
    return *out ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while reading numbers");
}
