/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary and the merges of a BPE or WordPiece model, read from the text of tokenizer.json or vocab.json. They
 * are nearly all of the file, and a tree of JSON values takes ten times the memory and time. Only plain ones are read
 * so: objects of numbers, and lists of texts or pairs, without surrogates. Of all others, io/json.h has the messages.
 * Texts end with a NUL.
 */
#ifndef SNUG_TOKENIZER_MODEL_TEXT_H
#define SNUG_TOKENIZER_MODEL_TEXT_H

#include "tokenizer/bpe.h"

/* A value: its first character, and the one after its last. Both are NULL if it is absent. */
struct snug_text_span {
    const char *start, *end;
};

struct snug_model_text {
    struct snug_text_span vocab, merges; /* an object; a plain list */
    size_t merge_count;
};

/* Finds them in the text of tokenizer.json, which need not be well-formed elsewhere. False if there is no vocab. */
bool snug_model_text_find(const char *text, struct snug_model_text *out);
/* The text without the two values: an empty object and an empty list. Free it. */
snug_status snug_model_text_rest(snug_context *ctx, const char *text, size_t size, const struct snug_model_text *model,
                                 char **rest, size_t *rest_size);
/* The object that is all of a text; an empty span if it is not one. */
struct snug_text_span snug_model_text_object(const char *text, size_t size);
/* Reads an object of tokens with their ids. Not plain, or not a vocabulary:
   nothing is read, and *done is false. */
snug_status snug_model_text_vocabulary(snug_context *ctx, const char *path, struct snug_text_span vocab,
                                       struct snug_vocabulary *out, bool *done);
/* Adds the merges that snug_model_text_find() found. */
snug_status snug_model_text_merges(snug_context *ctx, const char *path, const struct snug_model_text *model,
                                   struct snug_bpe *out);

#endif
