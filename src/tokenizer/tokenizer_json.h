/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that tokenizer.json names. Unsupported ones are SNUG_E_UNSUPPORTED, by file, key and name. */
#ifndef SNUG_TOKENIZER_TOKENIZER_JSON_H
#define SNUG_TOKENIZER_TOKENIZER_JSON_H

#include <jansson.h>

#include "tokenizer/tokenizer_parts.h"

/* Each reads a member of the file's object; NULL or null: the part is absent. path is for messages. */
snug_status snug_json_normalizer(snug_context *ctx, const char *path, const json_t *part, struct snug_normalizer *out);
snug_status snug_json_pretokenizer(snug_context *ctx, const char *path, const json_t *part,
                                   struct snug_pretokenizer *out);
/* *specials: [CLS] and [SEP], or their equivalents, if the part has them; otherwise unchanged. */
snug_status snug_json_post_processor(snug_context *ctx, const char *path, const json_t *part,
                                     struct snug_post_processor *out, struct snug_special_ids *specials);
snug_status snug_json_decoder(snug_context *ctx, const char *path, const json_t *part, struct snug_decoder *out);
/* The first Precompiled of a normalizer, as transformers finds it; *found: there is one. */
snug_status snug_json_precompiled(snug_context *ctx, const char *path, const json_t *part, struct snug_normalizer *out);

#endif
