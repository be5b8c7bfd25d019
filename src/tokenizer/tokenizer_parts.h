/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a tokenizer, for the files that load and use it. */
#ifndef SNUG_TOKENIZER_TOKENIZER_PARTS_H
#define SNUG_TOKENIZER_TOKENIZER_PARTS_H

#include <jansson.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/ids.h"
#include "tokenizer/normalize.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

/* A folder's tokenizer files, in the order of snug_tokenizer_file_names. */
enum snug_tokenizer_file {
    SNUG_TOKENIZER_VOCAB,
    SNUG_TOKENIZER_JSON,
    SNUG_TOKENIZER_CONFIG,
    SNUG_TOKENIZER_SPECIAL_MAP,
    SNUG_TOKENIZER_ADDED,
    SNUG_TOKENIZER_VOCAB_JSON,
    SNUG_TOKENIZER_MERGES,
    SNUG_TOKENIZER_SENTENCEPIECE, /* Unigram */
    SNUG_TOKENIZER_SPM,           /* the same under DeBERTa's name */
    SNUG_TOKENIZER_MODEL,         /* BPE, in the same format */
    SNUG_TOKENIZER_CHAT_TEMPLATE,
    SNUG_TOKENIZER_CHAT_TEMPLATE_JSON, /* as processors have it */
    SNUG_TOKENIZER_FILES
};
extern const char *const snug_tokenizer_file_names[SNUG_TOKENIZER_FILES];

enum snug_model_kind { SNUG_MODEL_WORDPIECE, SNUG_MODEL_BPE, SNUG_MODEL_UNIGRAM };

struct snug_tokenizer {
    struct snug_normalizer normalizer;
    struct snug_pretokenizer pretokenizer;
    struct snug_vocabulary vocabulary;
    enum snug_model_kind kind; /* which of the models is used */
    struct snug_wordpiece wordpiece;
    struct snug_bpe bpe;
    struct snug_unigram unigram;
    struct snug_post_processor post_processor;
    struct snug_decoder decoder;
    bool cleans; /* clean_up_tokenization_spaces */
    struct snug_added_tokens added;
    struct snug_special_ids special;
    bool truncate_left;
    bool types;         /* rows have token types; else all are 0 */
    int64_t max_length; /* model_max_length: longer rows are too long for the model */
    bool prefix_words;  /* pre-split words get ByteLevel's prefix space, as in run_ner.py */
    int64_t vocab_size;
    const char **tokens; /* [vocab_size] text by id; NULL if an id has none */
    json_t *named;       /* texts of the special tokens by name: {"bos_token": "<s>"} */
    uint64_t fingerprint;
    char *paths[SNUG_TOKENIZER_FILES]; /* NULL if the folder has no such file */
    char *data[SNUG_TOKENIZER_FILES];  /* contents, NUL-terminated after sizes[] bytes */
    size_t sizes[SNUG_TOKENIZER_FILES];
};

/* What a file had when it was loaded, with a NUL after it; NULL if the folder has none, or it is not used. */
const char *snug_tokenizer_content(const struct snug_tokenizer *tokenizer, enum snug_tokenizer_file file,
                                   const char **path, size_t *size);

#endif
