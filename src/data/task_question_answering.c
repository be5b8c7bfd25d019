/* SPDX-License-Identifier: Apache-2.0 */
/* Extractive question answering, as run_qa.py: a row is a question with a part of its context, and the loss is that of
 * the answer's first and last token among all tokens of the row; both are the first token where the answer is not in
 * that part. */
#include "data/collate.h"
#include "data/dataset_impl.h"
#include "data/questions.h"
#include "data/task.h"

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    struct snug_answers answers;
    (void)collator, (void)epoch, (void)row;
    snug_dataset_row_answers(text, &answers);
    const bool known = answers.start != SNUG_NO_ANSWER;
    for (int64_t i = 0; i < text->count; i++) {
        const int32_t targets = known ? (i == answers.start) | (i == answers.end) << 1 : 0;
        batch->labels[batch->rows] = targets | (i == 0 ? SNUG_SEGMENT_BEGINS : 0);
        batch->loss_positions[batch->rows++] = (int32_t)(first + i);
    }
    batch->items += known;
    batch->weight += known;
}

static int64_t items(const struct snug_loader_options *options, const struct snug_dataset_row *text) {
    struct snug_answers answers;
    (void)options;
    snug_dataset_row_answers(text, &answers);
    return answers.start != SNUG_NO_ANSWER;
}

const struct snug_task_info snug_task_question_answering = {
    .title = "question answering",
    .short_title = "question answering",
    .objects = &snug_question_rows,
    .max_length = 384, /* run_qa.py's */
    .head = SNUG_HEAD_SPAN,
    .model_class = "ForQuestionAnswering",
    .loss = {SNUG_SEGMENT_CROSS_ENTROPY, SNUG_SEGMENT_CROSS_ENTROPY, SNUG_SEGMENT_CROSS_ENTROPY},
    .only = {"doc_stride", "version_2_with_negative", "null_score_diff_threshold", "n_best_size", "max_answer_length"},
    .text_column = {"question"},
    .label_column = {"answers"},
    .items = items,
    .collate = collate,
};
