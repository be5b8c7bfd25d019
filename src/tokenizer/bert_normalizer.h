/* SPDX-License-Identifier: Apache-2.0 */
/* BertNormalizer of the `tokenizers` library. */
#ifndef SNUG_TOKENIZER_BERT_NORMALIZER_H
#define SNUG_TOKENIZER_BERT_NORMALIZER_H

#include "tokenizer/text_buffer.h"

struct snug_bert_normalizer {
    bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};

/* Replaces out's contents by the normalized text (length bytes, well-formed UTF-8). */
snug_status snug_bert_normalize(snug_context *ctx, const struct snug_bert_normalizer *normalizer, const char *text,
                                size_t length, struct snug_text *out);

#endif
