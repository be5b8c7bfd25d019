/* SPDX-License-Identifier: Apache-2.0 */
/* The normalizers of tokenizer.json, one after another, applied to a text before it is split into words. */
#ifndef SNUG_TOKENIZER_NORMALIZE_H
#define SNUG_TOKENIZER_NORMALIZE_H

#include "tokenizer/bert_normalizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_buffer.h"

enum snug_normalizer_kind {
    SNUG_NORMALIZER_BERT,
    SNUG_NORMALIZER_FORM, /* NFC, NFD, NFKC, NFKD */
    SNUG_NORMALIZER_LOWERCASE,
    SNUG_NORMALIZER_STRIP_ACCENTS,
    SNUG_NORMALIZER_REPLACE,
    SNUG_NORMALIZER_REPLACE_REGEX,
    SNUG_NORMALIZER_PREPEND,
    SNUG_NORMALIZER_STRIP,
    SNUG_NORMALIZER_NMT,
    SNUG_NORMALIZER_PRECOMPILED
};

struct snug_normalizer_step {
    enum snug_normalizer_kind kind;
    struct snug_bert_normalizer bert;
    bool compatible, composed;             /* FORM */
    bool left, right;                      /* STRIP */
    char *pattern, *content;               /* REPLACE, REPLACE_REGEX and PREPEND (content); owned */
    size_t pattern_length, content_length; /* bytes */
    struct snug_regex *regex;              /* REPLACE_REGEX; owned */
    struct snug_precompiled *precompiled;  /* owned */
};

/* Zero-initialise; without steps a text is not changed. */
struct snug_normalizer {
    struct snug_normalizer_step *steps;
    size_t count, capacity;
};

/* Appends a step and takes ownership of its pointers, also after a failure. */
snug_status snug_normalizer_add(snug_context *ctx, struct snug_normalizer *normalizer,
                                const struct snug_normalizer_step *step);
/* Appends SentencePiece's map of characters (tokenizer/precompiled.h). path is for messages. */
snug_status snug_normalizer_add_charsmap(snug_context *ctx, struct snug_normalizer *normalizer, const char *path,
                                         const void *data, size_t size, bool base64);
void snug_normalizer_step_free(struct snug_normalizer_step *step);
void snug_normalizer_free(struct snug_normalizer *normalizer);

/* Replaces out's contents by the normalized text (length bytes, well-formed UTF-8). */
snug_status snug_normalize(snug_context *ctx, const struct snug_normalizer *normalizer, const char *text, size_t length,
                           struct snug_text *out);

#endif
