/* SPDX-License-Identifier: Apache-2.0 */
/* A precompiled charsmap and a text: the first byte is the length of the text, which follows; the rest is the map. Read
   as bytes and as base64. */
#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "fuzz.h"
#include "tokenizer/grapheme.h"
#include "tokenizer/precompiled.h"

/* Clusters are whole characters and cover the text. */
static void check_clusters(const char *text, size_t length) {
    for (size_t at = 0, end; at < length; at = end) {
        end = snug_grapheme_end(text, length, at);
        FUZZ_CHECK(end > at && end <= length && snug_utf8_invalid(text + at, end - at) == end - at);
    }
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    if (!size || data[0] >= size) return;
    const char *rest = (const char *)data + 1 + data[0];
    const size_t rest_size = size - 1 - data[0];
    struct snug_precompiled map = {0};
    struct snug_text out = {0};
    size_t length;
    char *text;
    FUZZ_CHECK(snug_utf8_repair(ctx, (const char *)data + 1, data[0], &text, &length) == SNUG_OK);
    check_clusters(text, length);
    if (fuzz_accepts(ctx, snug_precompiled_read(ctx, &map, "map", rest, rest_size))) {
        FUZZ_CHECK(snug_precompiled_normalize(ctx, &map, text, length, &out) == SNUG_OK);
        FUZZ_CHECK(snug_utf8_invalid(out.text, out.length) == out.length);
        FUZZ_CHECK(out.length <= (length + 1) * SNUG_REPLACEMENT_MOST);
    }
    snug_precompiled_free(&map);
    snug_clear_error(ctx);
    fuzz_accepts(ctx, snug_precompiled_read_base64(ctx, &map, "map", rest, rest_size));
    snug_precompiled_free(&map);
    free(out.text);
    free(text);
}
