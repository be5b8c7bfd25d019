/* SPDX-License-Identifier: Apache-2.0 */
/* The WordPiece model of the `tokenizers` library: words are split greedily into the longest pieces of a vocabulary. */
#ifndef SNUG_TOKENIZER_WORDPIECE_H
#define SNUG_TOKENIZER_WORDPIECE_H

#include "tokenizer/ids.h"
#include "tokenizer/matcher.h"
#include "tokenizer/vocabulary.h"

/* Zero-initialise; snug_wordpiece_free also after a failure. */
struct snug_wordpiece {
    const struct snug_vocabulary *vocabulary; /* borrowed */
    char *prefix;                             /* of pieces that continue a word */
    struct snug_matcher pieces;               /* those pieces without the prefix; values are ids */
    int32_t unk;
    int64_t max_word; /* characters; longer words are unknown */
};

/* The unknown token must be in the vocabulary. path is for messages. */
snug_status snug_wordpiece_init(snug_context *ctx, struct snug_wordpiece *model,
                                const struct snug_vocabulary *vocabulary, const char *path, const char *unk,
                                const char *prefix, int64_t max_word);
void snug_wordpiece_free(struct snug_wordpiece *model);

/* Appends the pieces of one word (well-formed UTF-8, not empty), in time linear in its length. search: a buffer, reused
   for every word. */
snug_status snug_wordpiece_encode(snug_context *ctx, const struct snug_wordpiece *model, const char *word,
                                  size_t length, struct snug_search *search, struct snug_ids *out);

#endif
