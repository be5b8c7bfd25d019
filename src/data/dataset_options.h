/* SPDX-License-Identifier: Apache-2.0 */
/* How a data file is read and tokenized. */
#ifndef SNUG_DATA_DATASET_OPTIONS_H
#define SNUG_DATA_DATASET_OPTIONS_H

#include <jansson.h>
#include <string.h>

#include "core/context.h"
#include "data/tasks.h"

/* Maximum number of columns whose texts are joined. */
enum { SNUG_TEXTS_MOST = 32 };

/* The names of the columns of a file that are used. */
struct snug_used_columns {
    char *text[SNUG_TEXTS_MOST];
    size_t texts;
    bool pair;        /* the two texts are a pair; else several are joined, with delimiter between them */
    bool apart;       /* each text is a sequence of its own */
    bool chat;        /* the columns of a chat */
    bool objects;     /* the columns of the task's objects */
    bool preferences; /* the columns of preferences */
    char *delimiter;  /* NULL where there is one text, a pair, a chat or an object, or texts are apart */
    char *label;      /* NULL: none */
    size_t flags;     /* label is so many names, "a,b,c", of columns of zeros and ones; 0: one column */
    char *unused;     /* all others: "a, b" */
};
void snug_used_columns_free(struct snug_used_columns *used);

struct snug_dataset_options {
    const char *path;       /* .csv .tsv .json .jsonl .txt .conll, or "dummy:ROWSxTOKENS" */
    struct snug_rows *rows; /* the data, or NULL: it is in the file; then path is for messages */
    const char *format;     /* of the file (data/data_file.h), or NULL: by its name */
    enum snug_task task;
    const char *text_columns; /* comma-separated names of columns that are joined to one text, or NULL */
    const char *text_column,
        *text_pair_column;       /* of one text, or of a pair, or NULL. Without any: see data/columns.h */
    const char *text_delimiter;  /* between joined texts; NULL: the training's, or a space */
    const char *label_column;    /* or NULL: the task's default */
    const char *label_separator; /* of several labels in a text; "": none; NULL: not known, and a label with '|' is an
                                    error that names the choices */
    const char *missing_labels;  /* comma-separated labels that mean that a row has none; "none": every one is a class;
                                    NULL: see data/missing_labels.h */
    const struct snug_used_columns *trained; /* those that the model is trained on; NULL: not known */
    bool need_labels;                        /* a missing label column is an error, with a hint at --task mlm */
    bool line_by_line;                       /* masked LM: each line a row; otherwise joined and cut into blocks */
    bool blocks;                             /* causal LM: also rows of other files than texts are joined so */
    bool completion_only;                    /* causal LM: of a prompt and its completion only the latter has a loss */
    bool chats;                              /* causal LM: rows of messages are texts, by a chat template */
    bool assistant_only;                     /* of which only what the assistant says has a loss */
    bool assistant_only_trained;             /* the same, as in the model's training: other rows are no error */
    const char *chat_date;                   /* the date that the template shows, or NULL: today */
    const char *end;                         /* causal LM: text of the token that ends a row, unless joined; or NULL */
    bool joins_texts;   /* of a task whose texts are sequences of their own: columns are one text, without blanks at its
                           ends */
    size_t texts_most;  /* of a row whose texts are sequences of their own; 0: any number */
    const char *prompt; /* put before each of them, or NULL */
    const json_t *prompts;   /* instead: texts by the name of a column; or NULL */
    bool prompts_are_all;    /* each of those names is that of a text column */
    bool leaves_out_prompts; /* pooling leaves the prompts' tokens out */
    bool keep_words;         /* the cache holds the texts of tagged words, and of reranked documents */
    const char *query;       /* reranking: of all rows, or NULL */
    enum snug_ranking_loss ranking_loss;
    int64_t max_length;  /* max_seq_length */
    int64_t doc_stride;  /* question answering: snug_encoding.stride */
    int64_t max_samples; /* rows at most, or -1 */
    bool strict;         /* malformed UTF-8 is an error */
    bool overwrite_cache;
    int threads;
    uint64_t seed;      /* of dummy data */
    int64_t vocab_size; /* of dummy data: ids in 100 … min(30000, vocab_size) - 1 */
};

/* Whether --missing_label_values names labels: then a row may have none. */
static inline bool snug_missing_labels_given(const char *values) { return values && strcmp(values, "none") != 0; }

/* Between texts that are joined. */
const char *snug_dataset_delimiter(const struct snug_dataset_options *options);

#endif
