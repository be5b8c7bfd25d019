/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trie is that of Darts-clone: units of 32 bits. A unit has a label in bits 0-7 and 31, whether a key ends there in
 * bit 8, and an offset in bits 10-30, times 256 where bit 9 is set. From a position p, byte c leads to p ^ c, if the
 * unit there has the label c; its offset leads to the position after it, p ^ c ^ offset, where the value is if a key
 * ends.
 *
 * For a cluster of less than 6 bytes the library uses the shortest key that is a prefix of the cluster: the rest of the
 * cluster is dropped. Other clusters are replaced character by character.
 */
#include "tokenizer/precompiled.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "tokenizer/grapheme.h"
#include "tokenizer/unicode.h"

#define VALUE (1u << 31)
#define KEY_ENDS (1u << 8)
#define SHORT_CLUSTER 6 /* bytes; see above */

static inline uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & (1u << 9)) >> 6); }
static inline uint32_t label_of(uint32_t unit) { return unit & (VALUE | 255u); }

/* Offset in map->texts of the replacement of the shortest key that is a prefix of text; -1 if there is none. */
static int32_t look_up(const struct snug_precompiled *map, const char *text, size_t length) {
    uint32_t at = offset_of(map->units[0]);
    for (size_t i = 0; i < length && text[i]; i++) {
        const unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        const uint32_t unit = map->units[at];
        if (label_of(unit) != byte) return -1;
        at ^= offset_of(unit);
        if (unit & KEY_ENDS) return (int32_t)(map->units[at] & ~VALUE);
    }
    return -1;
}

/* ---- reading ---- */

/* Checks that no byte string leads out of the trie or to an invalid value. */
static snug_status check_units(snug_context *ctx, const struct snug_precompiled *map, const char *name) {
    for (size_t i = 0; i < map->count; i++) {
        const uint32_t unit = map->units[i];
        const bool entered = label_of(unit) > 0 && label_of(unit) < 256; /* by a byte */
        if (i && !entered) continue;                                     /* unit 0 is the root */
        const size_t to = i ^ offset_of(unit);
        if ((to | 255) >= map->count)
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: precompiled_charsmap is malformed: unit %zu of its trie leads to unit %zu of %zu; "
                             "download the file again",
                             name, i, to | 255, map->count);
        if (!entered || !(unit & KEY_ENDS)) continue;
        const uint32_t value = map->units[to] & ~VALUE;
        if (value > map->size || ((unsigned char)map->texts[value] & 0xc0) == 0x80)
            return snug_fail(
                ctx, SNUG_E_INPUT,
                "%s: precompiled_charsmap is malformed: unit %zu of its trie names the replacement at byte "
                "%" PRIu32 " of %zu, where no character begins; download the file again",
                name, to, value, map->size);
    }
    return SNUG_OK;
}

static snug_status check_texts(snug_context *ctx, const struct snug_precompiled *map, const char *name) {
    const size_t invalid = snug_utf8_invalid(map->texts, map->size);
    if (invalid < map->size)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: precompiled_charsmap is malformed: byte %zu of its replacements is not valid "
                         "UTF-8; download the file again",
                         name, invalid);
    for (size_t at = 0, length; at < map->size; at += length + 1) {
        length = strlen(map->texts + at);
        if (length > SNUG_REPLACEMENT_MOST)
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: precompiled_charsmap has a replacement of %zu bytes; at most %d are supported", name,
                             length, SNUG_REPLACEMENT_MOST);
    }
    return SNUG_OK;
}

static uint32_t read_u32(const unsigned char *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

snug_status snug_precompiled_read(snug_context *ctx, struct snug_precompiled *map, const char *name, const void *data,
                                  size_t size) {
    const unsigned char *bytes = data;
    if (size > SNUG_CHARSMAP_MOST)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: precompiled_charsmap has %zu bytes; at most %d are taken", name, size,
                         SNUG_CHARSMAP_MOST);
    const size_t trie = size < 4 ? 0 : read_u32(bytes) / 4;
    if (!trie || trie > (size - 4) / 4)
        return snug_fail(
            ctx, SNUG_E_INPUT,
            "%s: precompiled_charsmap is malformed: its first 4 bytes are not a valid size of a trie within its %zu "
            "bytes; download the file again",
            name, size);
    map->count = trie;
    map->size = size - 4 - trie * 4;
    RETURN_IF_ERROR(snug_alloc(ctx, map->count, sizeof *map->units, (void **)&map->units));
    RETURN_IF_ERROR(snug_alloc(ctx, map->size + 1, 1, (void **)&map->texts));
    for (size_t i = 0; i < trie; i++) map->units[i] = read_u32(bytes + 4 + i * 4);
    memcpy(map->texts, bytes + 4 + trie * 4, map->size);
    RETURN_IF_ERROR(check_texts(ctx, map, name));
    RETURN_IF_ERROR(check_units(ctx, map, name));
    for (int byte = 0; byte < 128; byte++) map->ascii[byte] = look_up(map, &(char){(char)byte}, 1);
    return SNUG_OK;
}

/* The value of a base64 digit (RFC 4648, section 4), or -1. */
static int digit_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 text to out, which has at least length / 4 * 3 bytes. Padding is required and unused bits must be 0,
   as in the library. False if the text is malformed. */
static bool decode(const char *text, size_t length, unsigned char *out, size_t *size) {
    *size = 0;
    if (length % 4) return false;
    const size_t padding = !length || text[length - 1] != '=' ? 0 : text[length - 2] != '=' ? 1 : 2;
    uint32_t bits = 0;
    for (size_t i = 0; i < length; i++) {
        const int value = i < length - padding ? digit_value(text[i]) : 0;
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 3) continue;
        const size_t unused = i == length - 1 ? padding : 0;
        if (bits & ((1u << unused * 8) - 1)) return false;
        for (size_t byte = 0; byte < 3 - unused; byte++) out[(*size)++] = (unsigned char)(bits >> (16 - 8 * byte));
        bits = 0;
    }
    return true;
}

snug_status snug_precompiled_read_base64(snug_context *ctx, struct snug_precompiled *map, const char *name,
                                         const char *text, size_t length) {
    void *bytes;
    size_t size;
    RETURN_IF_ERROR(snug_alloc(ctx, length / 4 * 3, 1, &bytes));
    const snug_status status =
        decode(text, length, bytes, &size)
            ? snug_precompiled_read(ctx, map, name, bytes, size)
            : snug_fail(ctx, SNUG_E_INPUT, "%s: precompiled_charsmap is not valid base64; download the file again",
                        name);
    free(bytes);
    return status;
}

void snug_precompiled_free(struct snug_precompiled *map) {
    free(map->units);
    free(map->texts);
    *map = (struct snug_precompiled){0};
}

/* ---- normalizing ---- */

static snug_status append(snug_context *ctx, struct snug_text *out, const char *text, size_t length) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->text, &out->capacity, out->length + length, 1));
    memcpy(out->text + out->length, text, length);
    out->length += length;
    return SNUG_OK;
}

/* Appends the replacement of text, or text itself if replacement is -1. */
static snug_status put(snug_context *ctx, const struct snug_precompiled *map, int32_t replacement, const char *text,
                       size_t length, struct snug_text *out) {
    if (replacement < 0) return append(ctx, out, text, length);
    return append(ctx, out, map->texts + replacement, strlen(map->texts + replacement));
}

static snug_status put_cluster(snug_context *ctx, const struct snug_precompiled *map, const char *text, size_t length,
                               struct snug_text *out) {
    const int32_t whole = length < SHORT_CLUSTER ? look_up(map, text, length) : -1;
    if (whole >= 0) return put(ctx, map, whole, text, length, out);
    for (size_t at = 0, next = 0; at < length; at = next) {
        snug_utf8_next(text, &next);
        RETURN_IF_ERROR(put(ctx, map, look_up(map, text + at, next - at), text + at, next - at, out));
    }
    return SNUG_OK;
}

/* Whether text[at] is an ASCII character that is a cluster: it is one before another ASCII character, but for "\r\n".
 */
static inline bool is_ascii_cluster(const char *text, size_t length, size_t at) {
    return (unsigned char)text[at] < 0x80 && text[at] != '\r' &&
           (at + 1 == length || (unsigned char)text[at + 1] < 0x80);
}

snug_status snug_precompiled_normalize(snug_context *ctx, const struct snug_precompiled *map, const char *text,
                                       size_t length, struct snug_text *out) {
    out->length = 0;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->text, &out->capacity, length, 1));
    for (size_t at = 0, end; at < length; at = end) {
        for (end = at; end < length && is_ascii_cluster(text, length, end); end++)
            if (map->ascii[(unsigned char)text[end]] >= 0) break;
        RETURN_IF_ERROR(append(ctx, out, text + at, end - at));
        if (end == length) break;
        at = end;
        end = snug_grapheme_end(text, length, at);
        RETURN_IF_ERROR(put_cluster(ctx, map, text + at, end - at, out));
    }
    return SNUG_OK;
}
