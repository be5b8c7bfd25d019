/* SPDX-License-Identifier: Apache-2.0 */
/* Sentence embeddings, as sentence-transformers': each text of a row is a sequence, and has a vector. */
#include "core/min_max.h"
#include "data/collate.h"
#include "data/task.h"

/* Losses are of the step's vectors together, and their mean is over rows of data. Where pooling leaves the prompt out,
   the loss position is the first token after it, at least the last one (enum snug_pooling). */
static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    (void)epoch, (void)row;
    const int64_t prompt = text->prompts ? snug_min(*text->prompts, text->count - 1) : 0;
    batch->labels[batch->rows] = SNUG_IGNORE_LABEL;
    batch->loss_positions[batch->rows++] = (int32_t)(first + prompt);
    const int64_t texts = collator->options->texts ? collator->options->texts : 1;
    batch->weight += batch->items++ % texts == 0;
}

static snug_status count(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items) {
    (void)ctx, (void)epoch, (void)row;
    items->count += collator->options->texts;
    items->weight++;
    return SNUG_OK;
}

const struct snug_task_info snug_task_embedding = {
    .title = "sentence embedding",
    .short_title = "sentence embedding",
    .apart = true,
    .scored = true,      /* the rows */
    .other_class = true, /* any base model's */
    .head = SNUG_HEAD_VECTOR,
    .model_class = "Model",
    .only = {"prompt_name", "truncate_dim", "normalize_embeddings", "similarity", "loss", "mini_batch_size",
             "similarity_scale", "margin", "symmetric", "matryoshka_dims", "matryoshka_weights", "batch_sampler",
             "prompts", "queries_file", "corpus_file", "relevance_file", "query_prompt", "corpus_prompt"},
    .text_column = {"sentence", "text"},
    .label_column = {"label", "labels", "score", "scores"},
    .count = count,
    .collate = collate,
};
