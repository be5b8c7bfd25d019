/* SPDX-License-Identifier: Apache-2.0 */
/* WordPiece as transformers' AutoTokenizer gives it for the same folder (BertTokenizer of transformers 5). */
#ifndef SNUG_TEXT_TOKENIZER_H
#define SNUG_TEXT_TOKENIZER_H

#include "io/file.h"

struct snug_tokenizer;

/* Token ids being gathered; grows as needed. Zero-initialise; free(ids). */
struct snug_ids {
    int32_t *ids;
    size_t count, capacity;
};

/* Reads vocab.txt + tokenizer_config.json (+ special_tokens_map.json, added_tokens.json), or tokenizer.json, from
   folder. Where tokenizer_config.json and tokenizer.json disagree on how text is read, the former wins;
   where the vocabularies do, tokenizer.json's holds, as in transformers 5. Both are logged. */
snug_status snug_tokenizer_load(snug_context *ctx, const char *folder, struct snug_tokenizer **out);
void snug_tokenizer_free(struct snug_tokenizer *tokenizer);
/* Writes the tokenizer's own files, those that its folder had, into another one: as they were when they were loaded,
   whatever has happened to them since. */
snug_status snug_tokenizer_save(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                const struct snug_folder *in);

/* The name of number index of these files, from 0; NULL after the last. */
const char *snug_tokenizer_file(const struct snug_tokenizer *tokenizer, size_t index);

int64_t snug_tokenizer_vocab_size(const struct snug_tokenizer *tokenizer); /* largest id + 1 */
/* The token's text; "" for an id that has none. */
const char *snug_tokenizer_token(const struct snug_tokenizer *tokenizer, int32_t id);
/* -1 where the vocabulary has none. */
struct snug_special_ids {
    int32_t cls, sep, pad, unk, mask;
};
struct snug_special_ids snug_tokenizer_special(const struct snug_tokenizer *tokenizer);
/* Changes whenever the tokens of some text could: key of the token cache. */
uint64_t snug_tokenizer_fingerprint(const struct snug_tokenizer *tokenizer);

/* Appends the tokens of text (length bytes, valid UTF-8), without [CLS] and [SEP]. Safe from several threads. */
snug_status snug_tokenizer_encode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                  size_t length, struct snug_ids *out);
/* The same, or only begins with so many of them and perhaps some more: of a long text that is cut anyway, the rest need
   not be looked at. (All of them where the tokenizer cuts at the left.) */
snug_status snug_tokenizer_encode_begin(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                        size_t length, size_t most, struct snug_ids *out);
/* [CLS] a [SEP], or [CLS] a [SEP] b [SEP]: cuts a and b to max_length in all, longest first as `tokenizers` does
   (truncation="longest_first"), and writes the row to out (appended). *first_count: tokens of type 0; the rest are of
   type 1. *truncated: whether anything was cut. b may be NULL. */
snug_status snug_tokenizer_assemble(snug_context *ctx, const struct snug_tokenizer *tokenizer, const struct snug_ids *a,
                                    const struct snug_ids *b, size_t max_length, struct snug_ids *out,
                                    size_t *first_count, bool *truncated);

#endif
