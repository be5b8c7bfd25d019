/* SPDX-License-Identifier: Apache-2.0 */
/* A row's texts as tokens: for data files (build.c) and for texts in memory (given.c). */
#ifndef SNUG_DATA_ENCODE_H
#define SNUG_DATA_ENCODE_H

#include "tokenizer/tokenizer.h"

struct snug_encoding {
    const struct snug_tokenizer *tokenizer;
    bool pair;        /* rows are pairs of texts */
    bool skips_empty; /* a text without tokens is no row */
    size_t max_length;
};

/* The state of a thread. Rows are appended to out. */
struct snug_encoder {
    struct snug_ids a, b, out;
    struct snug_ids a_word_of, word_of; /* words: the word of each token of a, of out; -1 for special tokens */
    struct snug_word *words;            /* of a row */
    size_t word_capacity;
};
void snug_encoder_free(struct snug_encoder *encoder);

struct snug_encoded {
    size_t ids, count, first_count; /* place and number of the row's tokens in out, and in word_of; those of type 0 */
    bool truncated;
};

/* Whether max_length leaves room for a token. joins: special tokens are as any other, since rows are joined. */
snug_status snug_encoding_check(snug_context *ctx, const struct snug_encoding *encoding, int64_t max_length,
                                bool joins);
/* texts[1] is the second text of a pair. */
snug_status snug_encode_texts(snug_context *ctx, const struct snug_encoding *encoding, const char *const texts[2],
                              const size_t lengths[2], struct snug_encoder *encoder, struct snug_encoded *out);
/* texts: so many words, each ending with a NUL. */
snug_status snug_encode_words(snug_context *ctx, const struct snug_encoding *encoding, const char *texts, size_t words,
                              struct snug_encoder *encoder, struct snug_encoded *out);

#endif
