/* SPDX-License-Identifier: Apache-2.0 */
/* A data file as tokens: read once, tokenized in parallel into a cache file that is checked, read row by row, and
 * reused. */
#ifndef SNUG_DATA_DATASET_H
#define SNUG_DATA_DATASET_H

#include "data/dataset_options.h"
#include "data/dataset_row.h"
#include "data/label_form.h"
#include "tokenizer/tokenizer.h"

/*
 * More rows than can be read from a file within a day; the limit of synthetic data where the length of every row is
 * read.
 */
enum { SNUG_ROWS_MOST = 1000000000 };

struct snug_dataset;

/* tokenizer may be NULL for dummy data only. An empty file, or one without a usable row, is SNUG_E_INPUT. */
snug_status snug_dataset_open(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                              const struct snug_dataset_options *options, struct snug_dataset **out);
void snug_dataset_close(struct snug_dataset *dataset);

/* Appends the rows of another data set of sequences, which then belongs to the first. Labels are not those of both. */
snug_status snug_dataset_append(snug_context *ctx, struct snug_dataset *dataset, struct snug_dataset *after);

/* Counts of the rows that are used (data/used_rows.h); at first all of them. Labels are those of the whole file, as are
   the largest sizes; of a part of the rows, tokens and what was truncated are estimated from the whole file's. */
int64_t snug_dataset_rows(const struct snug_dataset *dataset);
int64_t snug_dataset_tokens(const struct snug_dataset *dataset); /* of all rows; of single ones: data/lengths.h */
int64_t snug_dataset_longest(const struct snug_dataset *dataset);
int64_t snug_dataset_longest_sequence(const struct snug_dataset *dataset);
double snug_dataset_squared_lengths(const struct snug_dataset *dataset); /* sum of all sequences' tokens squared */
uint64_t snug_dataset_digest(const struct snug_dataset *dataset);        /* of all tokens, raw labels, used rows */
bool snug_dataset_pairs(const struct snug_dataset *dataset);             /* some row has tokens of type 1 */
int64_t snug_dataset_truncated(const struct snug_dataset *dataset);      /* rows that were truncated */
/* Token classification: words of all rows, and words without tokens: they were truncated, or never had one. */
/* Causal LM: tokens with a loss; whether of these one ends a row, or that is not known. */
int64_t snug_dataset_losses(const struct snug_dataset *dataset);
bool snug_dataset_learns_end(const struct snug_dataset *dataset);
/* Texts of a row, each a sequence of its own, of groups at most; 0: a row is a sequence. The mean number of a row's
   sequences. */
int64_t snug_dataset_texts(const struct snug_dataset *dataset);
double snug_dataset_sequences(const struct snug_dataset *dataset);
int64_t snug_dataset_all_sequences(const struct snug_dataset *dataset); /* of the whole file's groups */
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
/* The date that the chat template of its rows shows; NULL: none, or they are no chats. */
const char *snug_dataset_chat_date(const struct snug_dataset *dataset);
const char *snug_dataset_path(const struct snug_dataset *dataset);
/* The columns of its file; none of synthetic data. */
const struct snug_used_columns *snug_dataset_columns(const struct snug_dataset *dataset);
enum snug_label_form snug_dataset_label_form(const struct snug_dataset *dataset);
/* Distinct raw labels in order of first appearance (list items one by one). */
int64_t snug_dataset_raw_labels(const struct snug_dataset *dataset);
const char *snug_dataset_raw_label(const struct snug_dataset *dataset, uint32_t number);

#endif
