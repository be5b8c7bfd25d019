/* SPDX-License-Identifier: Apache-2.0 */
/* Question answering: rows of questions, as run_qa.py takes them, become windows of their contexts (data/answers.h). A
   file has "question" and "context", with "id" and "answers" if they are there, or the "paragraphs" of SQuAD's own
   files, each with its questions. */
#ifndef SNUG_DATA_QUESTIONS_H
#define SNUG_DATA_QUESTIONS_H

#include "data/object_rows.h"

extern const struct snug_object_rows snug_question_rows;

#endif
