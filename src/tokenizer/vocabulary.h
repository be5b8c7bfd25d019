/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a model by id and by text. */
#ifndef SNUG_TOKENIZER_VOCABULARY_H
#define SNUG_TOKENIZER_VOCABULARY_H

#include "tokenizer/hash_map.h"

/* Zero-initialise; snug_vocabulary_free also after a failure. */
struct snug_vocabulary {
    char *texts;         /* all tokens, NUL-terminated, one after another */
    const char **tokens; /* [size] text by id; NULL if an id has none */
    int64_t size;        /* largest id + 1 */
    int64_t count;       /* tokens */
    struct snug_hash_map ids;
};

/* Parses a vocab.txt: one token per line, whose id is the line's number from 0. path is for messages. Trailing white
   space is not part of a token, as in the library. */
snug_status snug_vocabulary_read(snug_context *ctx, struct snug_vocabulary *vocabulary, const char *path,
                                 const char *text, size_t length);
/* Reserves memory for count tokens of `bytes` bytes in total (NULs included; none if there are texts) with ids below
   size; then adds one token at a time. text must outlive the vocabulary. */
snug_status snug_vocabulary_reserve(snug_context *ctx, struct snug_vocabulary *vocabulary, const char *path,
                                    int64_t count, int64_t size, size_t bytes);
snug_status snug_vocabulary_add(snug_context *ctx, struct snug_vocabulary *vocabulary, const char *path,
                                const char *text, size_t length, int64_t id);
/* The id of a token, or -1. */
int32_t snug_vocabulary_find(const struct snug_vocabulary *vocabulary, const char *token);
void snug_vocabulary_free(struct snug_vocabulary *vocabulary);

#endif
