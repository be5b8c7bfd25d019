/* SPDX-License-Identifier: Apache-2.0 */
/* Token classification, as run_ner.py: each word has a tag, and the loss is at its first token, or, with
 * --label_all_tokens, at all of them. */
#include "data/collate.h"
#include "data/dataset_impl.h"
#include "data/task.h"
#include "data/words.h"

/* Whether the token is a loss position. */
static bool is_position(const struct snug_loader_options *options, const struct snug_words *words, int64_t token) {
    return options->label_all_tokens ? words->word_of[token] != SNUG_NO_WORD : snug_words_begins(words, token);
}

/* The class of the token's tag: the further tokens of a word with B-X have I-X. */
static int32_t class_of(const struct snug_dataset *dataset, const struct snug_words *words, int64_t token) {
    const uint32_t tag = words->tags[words->word_of[token]];
    if (tag == SNUG_NO_TAG || !dataset->bound) return SNUG_IGNORE_LABEL;
    return snug_words_begins(words, token) ? dataset->classes[tag] : dataset->continued[tag];
}

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    struct snug_words words;
    (void)epoch;
    (void)row;
    snug_dataset_row_words(collator->dataset, text, &words);
    for (int64_t i = 0; i < text->count; i++) {
        if (!is_position(collator->options, &words, i)) continue;
        const int32_t class = class_of(collator->dataset, &words, i);
        batch->labels[batch->rows] = class;
        batch->loss_positions[batch->rows++] = (int32_t)(first + i);
        batch->items += class != SNUG_IGNORE_LABEL;
        batch->weight += class == SNUG_IGNORE_LABEL ? 0 : snug_item_weight(collator->options, class);
    }
}

static snug_status count(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items) {
    struct snug_dataset_row text;
    struct snug_words words;
    (void)epoch;
    RETURN_IF_ERROR(snug_dataset_read(ctx, collator->dataset, row, &collator->buffer, &text));
    snug_dataset_row_words(collator->dataset, &text, &words);
    for (int64_t i = 0; i < text.count; i++) {
        if (!is_position(collator->options, &words, i)) continue;
        const int32_t class = class_of(collator->dataset, &words, i);
        if (class == SNUG_IGNORE_LABEL) continue;
        items->count++;
        items->weight += snug_item_weight(collator->options, class);
    }
    return SNUG_OK;
}

static int64_t classes(const struct snug_dataset *dataset, const struct snug_loader_options *options,
                       const struct snug_dataset_row *text, int64_t counts[]) {
    struct snug_words words;
    int64_t items = 0;
    snug_dataset_row_words(dataset, text, &words);
    for (int64_t i = 0; i < text->count; i++) {
        if (!is_position(options, &words, i)) continue;
        const int32_t class = class_of(dataset, &words, i);
        if (class == SNUG_IGNORE_LABEL) continue;
        counts[class]++;
        items++;
    }
    return items;
}

static double positions(const struct snug_loader_options *options, const struct snug_dataset *dataset, double sequences,
                        double tokens) {
    (void)sequences;
    if (!dataset || options->label_all_tokens) return tokens;
    const double words = (double)(snug_dataset_words(dataset) - snug_dataset_words_without_tokens(dataset));
    return tokens * words / (double)snug_dataset_tokens(dataset);
}

const struct snug_task_info snug_task_token_classification = {
    .title = "token classification",
    .short_title = "token classification",
    .labelled = true,
    .words = true,
    .head = SNUG_HEAD_TOKEN,
    .model_class = "ForTokenClassification",
    .only = {"label_all_tokens", "return_entity_level_metrics"},
    .text_column = {"tokens", "words"},
    .label_column = {"ner_tags", "tags", "labels", "label", "ner", "pos_tags"},
    .positions = positions,
    .count = count,
    .collate = collate,
    .classes = classes,
};
