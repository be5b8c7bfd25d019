/* SPDX-License-Identifier: Apache-2.0 */
/* Well-formed UTF-8 (Unicode 15, table 3-7), repair of malformed text, and escaping for terminals. */
#include "core/utf8.h"

#include <stdio.h>
#include <string.h>

#include "core/call.h"

size_t snug_utf8_sequence(const unsigned char *text, size_t length, bool *well_formed) {
    unsigned char lead = text[0], low = 0x80, high = 0xBF;
    size_t need;
    *well_formed = lead < 0x80;
    if (lead < 0xC2 || lead > 0xF4) return 1;
    need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    /* the second byte excludes overlong forms, surrogates and code points above U+10FFFF */
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    size_t at = 1;
    for (; at < need && at < length && text[at] >= low && text[at] <= high; at++) {
        low = 0x80;
        high = 0xBF;
    }
    *well_formed = at == need;
    return at;
}

size_t snug_utf8_invalid(const char *text, size_t length) {
    for (size_t at = 0; at < length;) {
        uint64_t eight;
        if (length - at >= sizeof eight) { /* most texts are ASCII: eight bytes at a time */
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                at += sizeof eight;
                continue;
            }
        }
        bool well_formed;
        size_t step = snug_utf8_sequence((const unsigned char *)text + at, length - at, &well_formed);
        if (!well_formed) return at;
        at += step;
    }
    return length;
}

size_t snug_utf8_cut(const char *text, size_t length) {
    size_t back = 1; /* bytes from the last character's lead to the end */
    while (back < 4 && back < length && ((unsigned char)text[length - back] & 0xC0) == 0x80) back++;
    const unsigned char lead = length ? (unsigned char)text[length - back] : 0;
    const size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return need > back ? length - back : length;
}

/* The code point of a well-formed sequence. */
static unsigned decode(const unsigned char *text, size_t length) {
    unsigned code = length == 1 ? text[0] : text[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) code = code << 6 | (text[i] & 0x3Fu);
    return code;
}

/* Characters that change more of a terminal's line than their own cell: C0, DEL and C1; U+061C, U+200E and U+200F
   (marks of direction), U+2028 and U+2029 (separators), U+202A to U+202E and U+2066 to U+2069 (embeddings, overrides,
   isolates).
 */
static bool is_control(unsigned code) {
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

size_t snug_escape(char *out, size_t size, const char *text, size_t length) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t at = 0, to = 0;
    SNUG_REQUIRE_OR(0, out);
    SNUG_REQUIRE_OR(0, text);
    if (size == 0) return 0;
    for (size_t step, shown; at < length; at += step, to += shown) {
        bool well_formed;
        char piece[16] = "";
        step = snug_utf8_sequence(bytes + at, length - at, &well_formed);
        const unsigned code = well_formed ? decode(bytes + at, step) : 0;
        if (!well_formed)
            for (size_t i = shown = 0; i < step; i++) shown += (size_t)sprintf(piece + shown, "\\x%02x", bytes[at + i]);
        else if (is_control(code)) /* JSON strings may contain DEL and above unescaped: written as JSON escapes */
            shown = (size_t)sprintf(piece, code < 0x7F ? "\\x%02x" : "\\u%04x", code);
        else
            memcpy(piece, text + at, shown = step);
        if (to + shown >= size) break;
        memcpy(out + to, piece, shown);
    }
    out[to] = '\0';
    return at;
}
