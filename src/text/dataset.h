/* SPDX-License-Identifier: Apache-2.0 */
/* A data file as tokens: read once, tokenized in parallel into a cache file that is checked, read row by row, and
 * reused. */
#ifndef SNUG_TEXT_DATASET_H
#define SNUG_TEXT_DATASET_H

#include "text/tokenizer.h"

/*
 * More rows than can be read from a file within a day; the limit of synthetic data where the length of every row is
 * read.
 */
enum { SNUG_ROWS_MOST = 1000000000 };

/* Maximum number of columns whose texts are joined. */
enum { SNUG_TEXTS_MOST = 32 };

/* Maximum number of classes of a model that snug can read back. */
enum { SNUG_CLASSES_MOST = 1 << 20 };

enum snug_task { SNUG_TASK_CLASSIFICATION, SNUG_TASK_MLM, SNUG_TASK_TOKEN_CLASSIFICATION };
enum { SNUG_TASK_COUNT = SNUG_TASK_TOKEN_CLASSIFICATION + 1, SNUG_TASK_DEFAULT = SNUG_TASK_CLASSIFICATION };

/* How Hugging Face names and distinguishes them (config.problem_type). */
enum snug_problem { SNUG_PROBLEM_SINGLE_LABEL, SNUG_PROBLEM_MULTI_LABEL, SNUG_PROBLEM_REGRESSION };

/* The form of a file's raw labels. */
enum snug_label_form {
    SNUG_LABELS_NONE,
    SNUG_LABELS_INTEGER,     /* every row one integer */
    SNUG_LABELS_REAL,        /* every row one number, at least one not an integer */
    SNUG_LABELS_STRING,      /* every row one string */
    SNUG_LABELS_LIST,        /* JSON lists, or strings of which at least one holds '|' */
    SNUG_LABELS_NONFINITE,   /* every row one number, or the word nan or inf: not a valid column of numbers */
    SNUG_LABELS_TAGS,        /* rows are words, each with a string */
    SNUG_LABELS_TAG_NUMBERS, /* rows are words, each with an integer from 0: the number of a class */
    SNUG_LABELS_MIXED,       /* every row one number or one word */
    SNUG_LABELS_MULTI_HOT,   /* every row a list of as many zeros and ones as there are classes */
};
enum { SNUG_LABEL_FORM_COUNT = SNUG_LABELS_MULTI_HOT + 1 };

/* The names of the columns of a file that are used. */
struct snug_used_columns {
    char *text[SNUG_TEXTS_MOST];
    size_t texts;
    bool pair;       /* the two texts are a pair; else several are joined, with delimiter between them */
    char *delimiter; /* NULL where there is one text, or a pair */
    char *label;     /* NULL: none */
    char *unused;    /* all others: "a, b" */
};
void snug_used_columns_free(struct snug_used_columns *used);

struct snug_dataset_options {
    const char *path;       /* .csv .tsv .json .jsonl .txt .conll, or "dummy:ROWSxTOKENS" */
    struct snug_rows *rows; /* the data, or NULL: it is in the file; then path is for messages and format "jsonl" */
    const char *format;     /* of the file (text/data_file.h), or NULL: by its name */
    enum snug_task task;
    const char *text_columns; /* comma-separated names of columns that are joined to one text, or NULL */
    const char *text_column,
        *text_pair_column;       /* of one text, or of a pair, or NULL. Without any: see text/columns.h */
    const char *text_delimiter;  /* between joined texts; NULL: the training's, or a space */
    const char *label_column;    /* or NULL: the task's default */
    const char *label_separator; /* of several labels in a text; "": none; NULL: not known, and a label with '|' is an
                                    error that asks */
    const struct snug_used_columns *trained; /* those that the model is trained on; NULL: not known */
    bool need_labels;                        /* a missing label column is an error, with a hint at --task mlm */
    bool line_by_line;                       /* masked LM: each line a row; otherwise joined and cut into blocks */
    bool keep_words;                         /* token classification: the cache holds the words' texts, too */
    int64_t max_length;                      /* max_seq_length */
    int64_t max_samples;                     /* rows at most, or -1 */
    bool strict;                             /* malformed UTF-8 is an error */
    bool overwrite_cache;
    int threads;
    uint64_t seed;      /* of dummy data */
    int64_t vocab_size; /* of dummy data: ids in 100 … min(30000, vocab_size) - 1 */
};

struct snug_dataset;

struct snug_dataset_row {
    const int32_t *ids;
    int64_t count, first_count; /* tokens; tokens of type 0 */
    const uint32_t *labels;     /* numbers of raw labels, see snug_dataset_raw_label; or a value, see text/labels.h; or
                                   words with tags, see text/words.h */
    int64_t label_count;        /* 0 where the row has none */
    int64_t line;               /* in the file, from 1 */
    bool truncated;             /* the text was truncated to max_length */
};

/* The buffer of a row: zero-initialise, one per thread, free(data). */
struct snug_row_buffer {
    void *data;
    size_t capacity;
};

/* tokenizer may be NULL for dummy data only. An empty file, or one without a usable row, is SNUG_E_INPUT. */
snug_status snug_dataset_open(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                              const struct snug_dataset_options *options, struct snug_dataset **out);
void snug_dataset_close(struct snug_dataset *dataset);

/* Uses only these rows from here on; they are then rows 0 … rows - 1. Labels are still those of the whole file, as are
   the largest sizes; tokens and what was truncated are estimated from the whole file's. */
void snug_dataset_use_part(struct snug_dataset *dataset, int64_t first, int64_t rows);
int64_t snug_dataset_rows(const struct snug_dataset *dataset);
int64_t snug_dataset_tokens(const struct snug_dataset *dataset); /* of all rows; of single ones: text/lengths.h */
int64_t snug_dataset_longest(const struct snug_dataset *dataset);
double snug_dataset_squared_lengths(const struct snug_dataset *dataset); /* sum of all rows' tokens squared */
uint64_t snug_dataset_digest(const struct snug_dataset *dataset);        /* of all tokens and raw labels */
bool snug_dataset_pairs(const struct snug_dataset *dataset);             /* some row has tokens of type 1 */
int64_t snug_dataset_truncated(const struct snug_dataset *dataset);      /* rows that were truncated */
/* Of token classification: words of all rows, and words without tokens: they were truncated, or never had one. */
int64_t snug_dataset_words(const struct snug_dataset *dataset);
int64_t snug_dataset_words_without_tokens(const struct snug_dataset *dataset);
int64_t snug_dataset_row_bytes(const struct snug_dataset *dataset); /* of the largest row, as it is read */
/* Reads a row into buffer; out points into it until its next use. Read, not mapped: pages of a mapped file would count
   as the process's own. */
snug_status snug_dataset_read(snug_context *ctx, const struct snug_dataset *dataset, int64_t row,
                              struct snug_row_buffer *buffer, struct snug_dataset_row *out);
/* Whether every row has a label. */
bool snug_dataset_all_labelled(const struct snug_dataset *dataset);
/* Rows of the file that have one, if the labels are those of a model. */
int64_t snug_dataset_labelled(const struct snug_dataset *dataset);
const char *snug_dataset_path(const struct snug_dataset *dataset);
/* The columns of its file; none of synthetic data. */
const struct snug_used_columns *snug_dataset_columns(const struct snug_dataset *dataset);
/* Between texts that are joined. */
const char *snug_dataset_delimiter(const struct snug_dataset_options *options);

enum snug_label_form snug_dataset_label_form(const struct snug_dataset *dataset);
/* Distinct raw labels in order of first appearance (list items one by one). */
int64_t snug_dataset_raw_labels(const struct snug_dataset *dataset);
const char *snug_dataset_raw_label(const struct snug_dataset *dataset, uint32_t number);

/* The classes of a model: names by class number. For regression count is 1 and the name LABEL_0. */
struct snug_labels {
    enum snug_problem problem;
    int64_t count;
    char **names;
};
enum snug_regression { SNUG_REGRESSION_AUTO, SNUG_REGRESSION_YES, SNUG_REGRESSION_NO };
/* As run_glue.py and run_classification.py decide: real → regression; lists → multi-label; else single label with the
   classes sorted (integers by value, strings by code point); words, nan or inf among numbers → SNUG_E_INPUT. With
   SNUG_REGRESSION_NO (--do_regression False) numbers and words are classes. Fewer than two classes are SNUG_E_INPUT.
   Tags are single labels; numbers of classes give LABEL_0 … up to the highest one. */
snug_status snug_labels_of(snug_context *ctx, const struct snug_dataset *train, enum snug_regression regression,
                           struct snug_labels *out);
void snug_labels_free(struct snug_labels *labels);
/* Whether both name the same classes, in whatever order. */
snug_status snug_labels_match(snug_context *ctx, const struct snug_labels *a, const struct snug_labels *b, bool *out);
/* Whether the model's classes can be used for train, whose own are data: they are the same, or train's labels are class
   numbers and the model has all of them. */
snug_status snug_labels_serve(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *model,
                              const struct snug_labels *data, bool *out);
/* Class of every raw label of dataset, by its number; for regression nothing. A raw label that is not in labels is
   SNUG_E_INPUT naming file, line and label. Stored in the dataset for the loader. */
snug_status snug_dataset_bind_labels(snug_context *ctx, struct snug_dataset *dataset, const struct snug_labels *labels);

#endif
