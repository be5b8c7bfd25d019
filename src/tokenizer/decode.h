/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to text: the decoders of tokenizer.json, one after another, as the `tokenizers` library applies them. */
#ifndef SNUG_TOKENIZER_DECODE_H
#define SNUG_TOKENIZER_DECODE_H

#include "tokenizer/ids.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_buffer.h"

enum snug_decoding {
    SNUG_DECODING_BYTE_LEVEL,    /* the bytes that all the tokens stand for */
    SNUG_DECODING_BYTE_FALLBACK, /* <0xNN> are bytes */
    SNUG_DECODING_FUSE,          /* the tokens become one */
    SNUG_DECODING_STRIP,         /* removes up to `start` and `stop` characters text from the ends of each token */
    SNUG_DECODING_METASPACE,     /* text becomes a space; drops_first: in the first token it is dropped */
    SNUG_DECODING_WORDPIECE,     /* a space before each token but the first and those that begin with text */
    SNUG_DECODING_REPLACE,       /* text, or what the regular expression matches, becomes content */
    SNUG_DECODING_BPE            /* text becomes a space, in the last token nothing */
};

struct snug_decoder_step {
    enum snug_decoding kind;
    char *text, *content; /* owned */
    size_t text_length, content_length;
    struct snug_regex *regex; /* owned */
    bool drops_first, cleans; /* METASPACE; WORDPIECE: removes spaces before punctuation */
    int64_t start, stop;
};

/* Zero-initialise; without steps tokens are joined by spaces. */
struct snug_decoder {
    struct snug_decoder_step *steps;
    size_t count, capacity;
};

/* Appends a step and takes ownership of its pointers, also after a failure. */
snug_status snug_decoder_add(snug_context *ctx, struct snug_decoder *decoder, const struct snug_decoder_step *step);
void snug_decoder_step_free(struct snug_decoder_step *step);
void snug_decoder_free(struct snug_decoder *decoder);

/* Replaces out's contents by the text of these tokens, well-formed UTF-8 (NUL-terminated, too). */
snug_status snug_decode(snug_context *ctx, const struct snug_decoder *decoder, const char *const *tokens, size_t count,
                        struct snug_text *out);
/* The byte of "<0xNN>"; -1: of another token. */
int snug_byte_token(const char *token, size_t length);
/* Removes spaces before punctuation and contractions, as transformers' clean_up_tokenization. */
snug_status snug_decode_clean(snug_context *ctx, struct snug_text *text);

#endif
