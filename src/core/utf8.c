/* SPDX-License-Identifier: Apache-2.0 */
/* Well-formed UTF-8 (Unicode 15, table 3-7) and the repair of what is not. */
#include "core/utf8.h"

#include <string.h>

/* Bytes of the sequence at text (length > 0 bytes left): a well-formed character, or the longest prefix of one, at
   least a byte, which is what one U+FFFD replaces (Unicode 15, section 3.9, "maximal subparts"). */
static size_t sequence_length(const unsigned char *text, size_t length, bool *well_formed) {
    unsigned char lead = text[0], low = 0x80, high = 0xBF;
    size_t need;
    *well_formed = lead < 0x80;
    if (lead < 0xC2 || lead > 0xF4) return 1;
    need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    /* the second byte rules out overlong forms, surrogates and what lies beyond U+10FFFF */
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
        size_t step = sequence_length((const unsigned char *)text + at, length - at, &well_formed);
        if (!well_formed) return at;
        at += step;
    }
    return length;
}

snug_status snug_utf8_repair(snug_context *ctx, const char *text, size_t length, char **out, size_t *out_length) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t malformed = 0, to = 0;
    bool well_formed;
    *out = NULL;
    for (size_t at = 0; at < length; malformed += !well_formed)
        at += sequence_length(bytes + at, length - at, &well_formed);
    void *repaired; /* each U+FFFD takes three bytes for one or more; no text is so long that this overflows */
    RETURN_IF_ERROR(snug_alloc(ctx, length + 2 * malformed + 1, 1, &repaired));
    for (size_t at = 0, step; at < length; at += step) {
        step = sequence_length(bytes + at, length - at, &well_formed);
        size_t size = well_formed ? step : 3;
        memcpy((char *)repaired + to, well_formed ? text + at : "\xEF\xBF\xBD", size);
        to += size;
    }
    *out = repaired;
    *out_length = to;
    return SNUG_OK;
}
