/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens of a row masked LM chooses as loss positions: single tokens, or whole words. */
#ifndef SNUG_DATA_MASKING_H
#define SNUG_DATA_MASKING_H

#include "core/context.h"
#include "core/philox.h"
#include "data/loader_options.h"

/* How the tokens of a tokenizer show where words begin. */
struct snug_word_mark {
    const char *mark; /* NULL: every token is a word */
    bool continues;   /* a token that begins with the mark continues a word; else it begins one */
    bool bytes;       /* byte-level: all white space begins a word */
};

/* SNUG_E_UNSUPPORTED if they do not show it. tokenizer NULL: of dummy data, whose tokens are words. */
snug_status snug_word_mark_find(snug_context *ctx, const struct snug_tokenizer *tokenizer, struct snug_word_mark *out);

/* Whether a token begins a word, even if there is no special token before it. */
bool snug_word_begins(const struct snug_word_mark *mark, const struct snug_tokenizer *tokenizer, int32_t id);

/* The state of a thread. Zero-initialise. */
struct snug_masking {
    struct snug_word_mark mark;
    uint64_t *words; /* [longest] a heap of the words: a random number, and the first token */
    bool *chosen;    /* [longest] the result for the last row */
};

/* Reserves memory for rows of so many tokens, so that choosing allocates nothing. */
snug_status snug_masking_init(snug_context *ctx, const struct snug_loader_options *options, int64_t longest,
                              struct snug_masking *out);
void snug_masking_free(struct snug_masking *masking);

/* The random numbers of a token, with the key (seed, epoch) and the counter (position, row): word 0 decides whether it
   is chosen, or when its word is, words 1 and 2 its replacement. */
struct snug_philox_block snug_masking_draw(const struct snug_loader_options *options, int64_t epoch, int64_t row,
                                           int64_t position);
int32_t snug_masking_mask(const struct snug_loader_options *options); /* the id of [MASK] */
/* Sets masking->chosen[0 … count - 1]; returns how many are chosen. */
int64_t snug_masking_choose(struct snug_masking *masking, const struct snug_loader_options *options, int64_t epoch,
                            int64_t row, const int32_t *ids, int64_t count);

#endif
