/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens a folder's JSON files add to the vocabulary or name as special, resolved as transformers 5 does. */
#ifndef SNUG_TEXT_SPECIAL_TOKENS_H
#define SNUG_TEXT_SPECIAL_TOKENS_H

#include <jansson.h>

#include "text/tokenizer_parts.h"

/* transformers' SPECIAL_TOKENS_ATTRIBUTES, in its order. */
enum snug_named_token {
    SNUG_NAMED_BOS,
    SNUG_NAMED_EOS,
    SNUG_NAMED_UNK,
    SNUG_NAMED_SEP,
    SNUG_NAMED_PAD,
    SNUG_NAMED_CLS,
    SNUG_NAMED_MASK,
    SNUG_NAMED_COUNT
};

/* A token as a file describes it. Its content belongs to the file's JSON. */
struct snug_token_spec {
    const char *content; /* NULL: none */
    bool special, single_word, lstrip, rstrip;
    bool normalized, normalized_given; /* where it is not given, what is not special is normalized */
    int64_t order;                     /* the id that the file gives; decides the order only */
};

struct snug_token_list {
    struct snug_token_spec *items;
    size_t count, capacity;
};

/* Filled by the loader: the files (NULL where there is none) and how to read them. The rest by collect. */
struct snug_special_sources {
    json_t *config, *map, *added; /* owned */
    const json_t *json;           /* tokenizer.json */
    char *const *paths;
    bool own;            /* tokenizer.json holds whole: its added tokens come first */
    bool named_defaults; /* BertTokenizer's [UNK], [SEP], [PAD], [CLS], [MASK] */

    struct snug_token_spec named[SNUG_NAMED_COUNT];
    struct snug_token_list listed; /* added tokens by id */
    struct snug_token_list extra;  /* further special tokens */
    json_t *extra_names;           /* the set of their contents */
};

snug_status snug_special_tokens_collect(snug_context *ctx, struct snug_special_sources *sources);
/* Adds them all to the tokenizer, whose model and normalizer stand, and fills its special ids. */
snug_status snug_special_tokens_add(snug_context *ctx, const struct snug_special_sources *sources,
                                    struct snug_tokenizer *tokenizer);
void snug_special_sources_free(struct snug_special_sources *sources);

#endif
