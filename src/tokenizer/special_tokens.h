/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a folder's JSON files add to the vocabulary or name as special, resolved as in transformers 5. */
#ifndef SNUG_TOKENIZER_SPECIAL_TOKENS_H
#define SNUG_TOKENIZER_SPECIAL_TOKENS_H

#include <jansson.h>

#include "tokenizer/tokenizer_parts.h"

/* A token that a file describes: text, which is special, or an object (an AddedToken). Its content belongs to the
   JSON. */
struct snug_token_spec {
    const char *content; /* NULL: none */
    bool special, single_word, lstrip, rstrip;
    bool text;                         /* is given as text, not as an object */
    bool normalized, normalized_given; /* if it is not given, tokens that are not special are normalized */
};

/* The loader fills in the files (NULL if missing) and how to read them; collect fills in the rest. */
struct snug_special_sources {
    json_t *config, *map, *added; /* owned */
    const json_t *json;           /* tokenizer.json */
    char *const *paths;
    bool own;            /* all of tokenizer.json is used: its added tokens come first */
    const json_t *class; /* the class's default tokens by name; further ones in "extra_special_tokens" */
    json_t *model_extra; /* owned: further tokens of a sentencepiece.bpe.model; or NULL */

    json_t *named;   /* owned: transformers' SPECIAL_TOKENS_ATTRIBUTES, in its order; null: none */
    json_t *further; /* owned: tokens of other names, such as image_token, by name */
    json_t *listed;  /* owned: added tokens by id, a number as text */
    json_t *extra;   /* owned: a list of further special tokens without a name */
};

snug_status snug_special_tokens_collect(snug_context *ctx, struct snug_special_sources *sources);
/* Adds them all to the tokenizer, whose model and normalizer are loaded, and fills its special ids. */
snug_status snug_special_tokens_add(snug_context *ctx, const struct snug_special_sources *sources,
                                    struct snug_tokenizer *tokenizer);
/* The texts of the named tokens and those of other names, by name, as chat templates get them. */
snug_status snug_special_tokens_texts(snug_context *ctx, const struct snug_special_sources *sources, json_t **out);
void snug_special_sources_free(struct snug_special_sources *sources);

/* Reads a value of a file; null: no token. */
snug_status snug_token_parse(snug_context *ctx, const char *path, const char *key, const json_t *value,
                             struct snug_token_spec *out);
/* The text of such a value; NULL if it is no token. */
const char *snug_token_content(const json_t *token);
/* The id of a named token, such as "cls_token", which all are added; -1 if there is none. */
int32_t snug_special_tokens_id(const struct snug_special_sources *sources, const struct snug_tokenizer *tokenizer,
                               const char *name);

#endif
