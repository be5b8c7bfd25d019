/* SPDX-License-Identifier: Apache-2.0 */
/* The WordPiece model of the `tokenizers` library: a vocabulary, and words cut greedily into its longest pieces. */
#ifndef SNUG_TEXT_WORDPIECE_H
#define SNUG_TEXT_WORDPIECE_H

#include "text/lexicon.h"
#include "text/matcher.h"
#include "text/tokenizer.h"

/* Zero-initialise; snug_wordpiece_free also after a failure. */
struct snug_wordpiece {
    char *texts;         /* all tokens, NUL-terminated, one after another */
    const char **tokens; /* [size] text by id; NULL where an id has none */
    int64_t size;        /* largest id + 1 */
    int64_t count;       /* tokens */
    struct snug_lexicon lexicon;
    char *prefix;               /* of pieces that continue a word */
    struct snug_matcher pieces; /* those pieces without the prefix; values are ids */
    int32_t unk;
    int64_t max_word; /* characters; longer words are unknown */
};

/* Takes the vocabulary from the text of a vocab.txt: a token a line, its id the line's number from 0. path is for
   messages. Trailing white space is no part of a token, as in the library. */
snug_status snug_wordpiece_read(snug_context *ctx, struct snug_wordpiece *model, const char *path, const char *text,
                                size_t length);
/* Adds room for count tokens of bytes in all (NULs included) with ids below size, then one after another. */
snug_status snug_wordpiece_reserve(snug_context *ctx, struct snug_wordpiece *model, const char *path, int64_t count,
                                   int64_t size, size_t bytes);
snug_status snug_wordpiece_add(snug_context *ctx, struct snug_wordpiece *model, const char *path, const char *text,
                               size_t length, int64_t id);
/* Ends the vocabulary: the unknown token must be in it. */
snug_status snug_wordpiece_finish(snug_context *ctx, struct snug_wordpiece *model, const char *path, const char *unk,
                                  const char *prefix, int64_t max_word);
/* The id of a token, or -1. */
int32_t snug_wordpiece_find(const struct snug_wordpiece *model, const char *token);
void snug_wordpiece_free(struct snug_wordpiece *model);

/* Appends the pieces of one word (well-formed UTF-8, not empty), in time linear in its length. search: a buffer, kept
   from word to word. */
snug_status snug_wordpiece_encode(snug_context *ctx, const struct snug_wordpiece *model, const char *word,
                                  size_t length, struct snug_search *search, struct snug_ids *out);

snug_status snug_ids_append(snug_context *ctx, struct snug_ids *ids, int32_t id);

#endif
