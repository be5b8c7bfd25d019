/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens found in a text before the model sees it: the AddedVocabulary of the `tokenizers` library. */
#ifndef SNUG_TOKENIZER_ADDED_TOKENS_H
#define SNUG_TOKENIZER_ADDED_TOKENS_H

#include "tokenizer/hash_map.h"
#include "tokenizer/matcher.h"
#include "tokenizer/normalize.h"
#include "tokenizer/vocabulary.h"

struct snug_added_token {
    char *content;
    char *sought; /* the normalised content, if the search uses it */
    int32_t id;
    bool single_word;    /* matches only without a word character next to it */
    bool lstrip, rstrip; /* strips white space before it, after it */
    bool normalized;     /* its normalised content is searched in the normalised text */
    bool special;
};

/* Zero-initialise; snug_added_tokens_free also after a failure. */
struct snug_added_tokens {
    struct snug_added_token *items;
    size_t count, capacity;
    int64_t end;                         /* largest id + 1 */
    int64_t next_id;                     /* of the next token that the vocabulary does not have */
    bool ignore_special;                 /* split_special_tokens: special tokens in a text are ordinary text */
    struct snug_hash_map content;        /* index of the item */
    struct snug_matcher raw, normalized; /* the same for the searched contents; filled by finish */
};

/* Begins a list of tokens: their new ids are consecutive, from the vocabulary's number of tokens, or after the largest
   id of the added tokens if that is larger. */
void snug_added_tokens_begin(struct snug_added_tokens *tokens, const struct snug_vocabulary *vocabulary);
/* Adds a token, or replaces the one of the same content. A token of the vocabulary has its id there, another token gets
   the next new one. content is copied. */
snug_status snug_added_tokens_add(snug_context *ctx, struct snug_added_tokens *tokens,
                                  const struct snug_vocabulary *vocabulary, const struct snug_added_token *token);
/* Ends the list. Of tokens with the same normalised content only the first is found, and a token whose normalised
   content is empty never is: both are logged. */
snug_status snug_added_tokens_finish(snug_context *ctx, struct snug_added_tokens *tokens,
                                     const struct snug_normalizer *normalizer);
void snug_added_tokens_free(struct snug_added_tokens *tokens);
/* The largest id of vocabulary and added tokens + 1. */
int64_t snug_added_tokens_end(const struct snug_added_tokens *tokens, const struct snug_vocabulary *vocabulary);
/* NULL if there is none of this content. */
const struct snug_added_token *snug_added_tokens_find(const struct snug_added_tokens *tokens, const char *content);

/* Splits a text into added tokens and the text between them, in linear time. Zero-initialise all but tokens and search.
 */
struct snug_splitter {
    const struct snug_added_tokens *tokens;
    struct snug_search *search; /* begun with the text, and &tokens->raw or &tokens->normalized */
    size_t searched, done;
    size_t spaces_end; /* end of the white space that rstrip stripped last */
    const struct snug_added_token *pending;
    size_t pending_start, pending_stop;
};
/* The next piece, text[*start … *stop): a token, or *token NULL. SNUG_END after the last. */
snug_status snug_splitter_next(snug_context *ctx, struct snug_splitter *splitter, const struct snug_added_token **token,
                               size_t *start, size_t *stop);

#endif
