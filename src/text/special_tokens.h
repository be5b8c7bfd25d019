/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a folder's JSON files add to the vocabulary or name as special, resolved as in transformers 5. */
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
    bool text;                         /* is given as text, not as an object */
    bool unseen;                       /* an object of tokenizer_config.json, which is read after added_tokens.json */
    bool normalized, normalized_given; /* if it is not given, tokens that are not special are normalized */
    int64_t order;                     /* the id in the file; used for the order only */
};

struct snug_token_list {
    struct snug_token_spec *items;
    size_t count, capacity;
};

/* A tokenizer class's default tokens. */
struct snug_token_defaults {
    const char *named[SNUG_NAMED_COUNT]; /* NULL: none */
    bool as_objects;                     /* named tokens given as text become objects that need not be special */
    bool mask_strips;                    /* a mask token given as text strips the white space before it */
    const char *extra[3];                /* further special tokens; NULL after the last */
};

/* The loader fills in the files (NULL if missing) and how to read them; collect fills in the rest. */
struct snug_special_sources {
    json_t *config, *map, *added; /* owned */
    const json_t *json;           /* tokenizer.json */
    char *const *paths;
    bool own;                                   /* all of tokenizer.json is used: its added tokens come first */
    const struct snug_token_defaults *defaults; /* the class's; NULL: none */
    const struct snug_token_list *model_extra;  /* further tokens of a sentencepiece.bpe.model; or NULL */

    struct snug_token_spec named[SNUG_NAMED_COUNT];
    struct snug_token_list further;     /* tokens of other names, such as image_token */
    struct snug_token_list json_tokens; /* added tokens of tokenizer.json, in its order */
    struct snug_token_list listed;      /* added tokens by id */
    struct snug_token_list extra;       /* further special tokens without a name */
};

snug_status snug_special_tokens_collect(snug_context *ctx, struct snug_special_sources *sources);
/* Adds them all to the tokenizer, whose model and normalizer are loaded, and fills its special ids. */
snug_status snug_special_tokens_add(snug_context *ctx, const struct snug_special_sources *sources,
                                    struct snug_tokenizer *tokenizer);
void snug_special_sources_free(struct snug_special_sources *sources);

/* The id of a named token, which all are added; -1 if its content is NULL or empty. */
int32_t snug_special_tokens_id(const struct snug_tokenizer *tokenizer, const char *content);

#endif
