/* SPDX-License-Identifier: Apache-2.0 */
/* BertNormalizer of the `tokenizers` library: what happens to a text before it is split into words. */
#ifndef SNUG_TEXT_NORMALIZE_H
#define SNUG_TEXT_NORMALIZE_H

#include "core/context.h"

struct snug_normalizer {
    bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};

/* A buffer of UTF-8 that grows and is reused. Zero-initialise; free(text). */
struct snug_text {
    char *text;
    size_t length, capacity;
};

/* Replaces what out holds by the normalised text (length bytes, well-formed UTF-8). */
snug_status snug_normalize(snug_context *ctx, const struct snug_normalizer *normalizer, const char *text, size_t length,
                           struct snug_text *out);

#endif
