/* SPDX-License-Identifier: Apache-2.0 */
/* Question answering: rows of questions, as run_qa.py takes them, become windows of their contexts. */
#ifndef SNUG_DATA_QUESTIONS_H
#define SNUG_DATA_QUESTIONS_H

#include "data/encode.h"
#include "data/label_columns.h"

/* The names of columns that hold lists and objects, up to NULL: snug_reader_options.nested. */
extern const char *const snug_questions_nested[];

/* The columns of a file of questions: "question" and "context", with "id" and "answers" if they are there, or the
   "paragraphs" of SQuAD's own files, each with its questions. False if it is none. */
bool snug_questions_columns_find(const struct snug_column_names *list, struct snug_columns *out);

/* The windows of the questions of a row, the text of a JSON object (snug_chat_json()), which are appended to
   encoder->windows and encoder->out. where is for messages: "train.json:7". */
snug_status snug_encode_questions(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                  const char *text, size_t length, struct snug_encoder *encoder,
                                  struct snug_encoded *out);

#endif
