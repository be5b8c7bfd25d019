/* SPDX-License-Identifier: Apache-2.0 */
/* A row's texts as tokens: for data files (build.c) and for texts in memory (given.c). */
#ifndef SNUG_DATA_ENCODE_H
#define SNUG_DATA_ENCODE_H

#include "data/chat.h"
#include "data/tasks.h"

struct snug_encoding {
    const struct snug_tokenizer *tokenizer;
    bool pair;        /* rows are pairs of texts */
    bool skips_empty; /* a text without tokens is no row */
    size_t max_length;
    const char *const *prompts; /* [texts] what is put before each text that is a sequence of its own, or NULL; NULL:
                                   all have prompt */
    const char *prompt;         /* NULL: nothing */
    /* Causal LM: */
    bool completes;               /* rows are two texts, of which the second completes the first */
    bool completion_only;         /* only its tokens have a loss */
    bool joins;                   /* rows are joined afterwards: nothing is left out */
    const struct snug_chat *chat; /* rows are chats (data/chat_json.h); NULL: they are not */
    bool assistant_only;          /* only what the assistant says has a loss */
    const char *end;              /* text of the token with which a row ends; NULL: rows end as they are */
    int64_t stride;               /* question answering: tokens that neighbouring windows of a context share */
    bool need_labels;             /* groups: a row without a label is an error */
    bool keep_texts;              /* groups: the texts of reranking's documents are kept */
    const char *query;            /* reranking: of all rows; NULL: each has its own */
    enum snug_ranking_loss ranking_loss;
};

/* A window of a question (data/answers.h), or a group (data/groups.h). */
struct snug_window {
    size_t ids, count, first_count; /* its tokens in the encoder's out */
    size_t numbers, number_count;   /* its labels in the encoder's numbers */
    bool begins;                    /* the first one of a question */
    bool truncated;
};

/* The state of a thread. Rows are appended to out. */
struct snug_encoder {
    struct snug_ids a, b, out;
    struct snug_ids a_word_of, word_of; /* words: the word of each token of a, of out; -1 for special tokens */
    struct snug_word *words;            /* of a row */
    size_t word_capacity;
    struct snug_ids counts;           /* tokens of each text that is a sequence of its own; data/preferences.h */
    struct snug_ids has_loss, prompt; /* causal LM: whether each token of out has a loss; the row of a first text */
    char *text;                       /* the texts of a row, one after the other */
    size_t text_size, text_capacity;
    struct snug_window *windows; /* of rows that are objects */
    struct snug_ids offsets;     /* of the tokens of b */
    uint32_t *numbers;
    size_t window_count, window_capacity, number_count, number_capacity;
};
void snug_encoder_free(struct snug_encoder *encoder);

struct snug_encoded {
    size_t ids, count, first_count; /* place and number of the row's tokens in out, and in word_of; those of type 0 */
    bool truncated;
    bool without_loss;      /* causal LM: no token of the row has a loss, so it has no tokens here */
    bool other_roles;       /* chats: snug_chat_row.other_roles */
    bool across;            /* causal LM: a token is of both texts, and counts as of the second */
    bool same;              /* preferences: both sequences are the same */
    size_t window, windows; /* of a row that is an object */
};

/* Whether max_length leaves room for a token. joins: special tokens are as any other, since rows are joined. */
snug_status snug_encoding_check(snug_context *ctx, const struct snug_encoding *encoding, int64_t max_length,
                                bool joins);
/* texts[1] is the second text of a pair. */
snug_status snug_encode_texts(snug_context *ctx, const struct snug_encoding *encoding, const char *const texts[2],
                              const size_t lengths[2], struct snug_encoder *encoder, struct snug_encoded *out);
/* Texts that are sequences of their own, one after the other in text; lengths: of each. */
snug_status snug_encode_apart(snug_context *ctx, const struct snug_encoding *encoding, const char *text,
                              const uint32_t *lengths, size_t count, struct snug_encoder *encoder,
                              struct snug_encoded *out);
/* The tokens of a prompt alone, as sentence-transformers counts those that pooling leaves out: with the special tokens
   before it, without the one after it. */
snug_status snug_count_prompt(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *prompt,
                              int32_t *out);
/* A row of causal LM, as TRL's SFTTrainer makes it. Only its beginning is kept if it is too long. */
snug_status snug_encode_causal(snug_context *ctx, const struct snug_encoding *encoding, const char *const texts[2],
                               const size_t lengths[2], struct snug_encoder *encoder, struct snug_encoded *out);
/* A chat, the text of a JSON object, in the same way. where is for messages: "train.jsonl:7". */
snug_status snug_encode_chat(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                             const char *text, size_t length, struct snug_encoder *encoder, struct snug_encoded *out);
/* texts: so many words, each ending with a NUL. */
snug_status snug_encode_words(snug_context *ctx, const struct snug_encoding *encoding, const char *texts, size_t words,
                              struct snug_encoder *encoder, struct snug_encoded *out);

#endif
