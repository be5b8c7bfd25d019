/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a data set, for the files of src/text only. */
#ifndef SNUG_DATA_DATASET_IMPL_H
#define SNUG_DATA_DATASET_IMPL_H

#include "data/answers.h"
#include "data/cache.h"
#include "data/dataset.h"
#include "data/groups.h"
#include "data/row_texts.h"
#include "data/selection.h"
#include "data/words.h"

struct snug_given;

struct snug_dataset {
    char *path;
    struct snug_used_columns columns;
    struct snug_selection selection; /* of the cache's rows, those that are used; without bits: all */
    int64_t part;                    /* of them only so many are used; 0: all */
    struct snug_cache cache;         /* dummy data: its sizes and labels only */
    enum snug_label_form form;       /* the cache's, without the labels that are left out */
    char *missing_labels;            /* --missing_label_values, or NULL */
    char *chat_date;                 /* that the template of its chats shows, or NULL */
    const char *const *class_names;  /* [class_count] of rows in memory whose classes the program names, in its order */
    size_t class_count;
    bool *left_out;                  /* [raw labels] it means that a row has none (data/missing_labels.h) */
    int64_t dummy_least, dummy_most; /* tokens of a dummy row; 0 for data from a file */
    int32_t dummy_first, dummy_ids;  /* lowest id and number of ids */
    bool dummy_words;                /* each token is a word with a tag */
    uint64_t seed;
    int32_t *prompts;           /* snug_dataset_row.prompts of its rows, or NULL */
    struct snug_given *given;   /* texts in memory (data/given.h); NULL: none */
    struct snug_dataset *after; /* whose rows follow its own; NULL: none */
    bool bound;                 /* snug_dataset_bind_labels() has been called and there are labels */
    int32_t *classes;           /* [raw labels] */
    int32_t *continued;         /* [raw labels] tags: the class of a word's further tokens, I-X where it is B-X */
    float *values;              /* [raw labels] regression */
};

/* Rows that are used, without those of the data set after it. */
int64_t snug_dataset_own_rows(const struct snug_dataset *dataset);
/* The place of a row that is used among all rows. */
int64_t snug_dataset_place(const struct snug_dataset *dataset, int64_t row);
/* Tokens of a dummy row. */
int32_t snug_dataset_dummy_length(const struct snug_dataset *dataset, int64_t row);
/* Whether row, of which that many labels are known, has something for the loss. */
bool snug_dataset_is_labelled(const struct snug_dataset *dataset, int64_t labels);
/* The number of its known labels. */
snug_status snug_dataset_count_labels(snug_context *ctx, const struct snug_dataset *dataset, int64_t row, int64_t *out);
/* Sets dataset->prompts, if options leave them out. */
snug_status snug_dataset_count_prompts(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                       const struct snug_dataset_options *options, struct snug_dataset *dataset);
void snug_given_free(struct snug_given *given);
void snug_given_read(const struct snug_given *given, int64_t number, struct snug_dataset_row *out);
/* The words of a row that was read, and whose parts were checked when the data set was opened. */
void snug_dataset_row_words(const struct snug_dataset *dataset, const struct snug_dataset_row *row,
                            struct snug_words *out);
/* The texts of a row that has several. */
void snug_dataset_row_texts(const struct snug_dataset_row *row, struct snug_row_texts *out);
/* The members of a group. */
void snug_dataset_row_group(const struct snug_dataset_row *row, struct snug_group *out);
/* The same of question answering. */
void snug_dataset_row_answers(const struct snug_dataset_row *row, struct snug_answers *out);

#endif
