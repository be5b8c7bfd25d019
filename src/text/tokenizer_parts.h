/* SPDX-License-Identifier: Apache-2.0 */
/* What a tokenizer is made of, for the two files that load and use it. */
#ifndef SNUG_TEXT_TOKENIZER_PARTS_H
#define SNUG_TEXT_TOKENIZER_PARTS_H

#include "text/added_tokens.h"
#include "text/normalize.h"
#include "text/tokenizer.h"
#include "text/wordpiece.h"

/* A folder's tokenizer files, in the order of snug_tokenizer_file_names. */
enum snug_tokenizer_file {
    SNUG_TOKENIZER_VOCAB,
    SNUG_TOKENIZER_JSON,
    SNUG_TOKENIZER_CONFIG,
    SNUG_TOKENIZER_SPECIAL_MAP,
    SNUG_TOKENIZER_ADDED,
    SNUG_TOKENIZER_FILES
};
extern const char *const snug_tokenizer_file_names[SNUG_TOKENIZER_FILES];

struct snug_tokenizer {
    struct snug_normalizer normalizer;
    struct snug_wordpiece model;
    struct snug_added_tokens added;
    struct snug_special_ids special;
    bool truncate_left;
    int64_t vocab_size;
    const char **tokens; /* [vocab_size] text by id; NULL where an id has none */
    uint64_t fingerprint;
    char *paths[SNUG_TOKENIZER_FILES]; /* NULL where the folder has no such file */
    char *data[SNUG_TOKENIZER_FILES];  /* what was read of it, NUL-terminated after sizes[] bytes */
    size_t sizes[SNUG_TOKENIZER_FILES];
};

#endif
