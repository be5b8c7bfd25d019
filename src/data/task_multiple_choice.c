/* SPDX-License-Identifier: Apache-2.0 */
/* Multiple choice, as run_swag.py: a row is a group of texts, one for each choice, and the loss is the cross entropy of
 * the right one's score among those of the group. */
#include "data/choices.h"
#include "data/collate.h"
#include "data/dataset_impl.h"
#include "data/task.h"

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    struct snug_group group;
    (void)collator, (void)epoch, (void)row;
    snug_dataset_row_group(text, &group);
    for (int64_t i = 0; i < (int64_t)group.count; first += snug_group_tokens(&group, i++)) {
        const bool right = group.labelled && snug_group_target(&group, i) > 0;
        batch->labels[batch->rows] = right | (i == 0 ? SNUG_SEGMENT_BEGINS : 0);
        batch->loss_positions[batch->rows++] = (int32_t)first;
    }
    batch->items += group.labelled;
    batch->weight += group.labelled;
}

static int64_t items(const struct snug_loader_options *options, const struct snug_dataset_row *text) {
    struct snug_group group;
    (void)options;
    snug_dataset_row_group(text, &group);
    return group.labelled;
}

const struct snug_task_info snug_task_multiple_choice = {
    .title = "multiple choice",
    .short_title = "multiple choice",
    .objects = &snug_choice_rows,
    .groups = true,
    .max_length = 1024,
    .head = SNUG_HEAD_CHOICE,
    .model_class = "ForMultipleChoice",
    .loss = {SNUG_SEGMENT_CROSS_ENTROPY, SNUG_SEGMENT_CROSS_ENTROPY, SNUG_SEGMENT_CROSS_ENTROPY},
    .text_column = {"sent1"},
    .label_column = {"label"},
    .items = items,
    .collate = collate,
};
