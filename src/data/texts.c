/* SPDX-License-Identifier: Apache-2.0 */
#include "data/texts.h"

#include "data/task.h"

snug_status snug_texts_open(snug_context *ctx, const struct snug_dataset_options *options, struct snug_texts *out) {
    const char *const *names;
    const bool words = snug_task_info(options->task)->words;
    const struct snug_conll_choice choice = snug_columns_choice(options);
    const struct snug_reader_options how = {
        .format = options->format, .strict = options->strict, .words = words, .conll = &choice, .rows = options->rows};
    *out = (struct snug_texts){.reader = NULL};
    RETURN_IF_ERROR(snug_reader_open(ctx, options->path, &how, &out->reader));
    const size_t count = snug_reader_columns(out->reader, &names);
    out->source = (struct snug_text_source){
        .path = options->path, .names = names, .delimiter = snug_dataset_delimiter(options), .words = words};
    RETURN_IF_ERROR(snug_peek_open(ctx, out->reader, options->max_samples, &out->peek));
    RETURN_IF_ERROR(snug_columns_find(ctx, options, names, count, &out->peek, &out->source.columns));
    if (snug_reader_conll(out->reader)) snug_conll_tell(ctx, options->path, snug_reader_conll(out->reader));
    return SNUG_OK;
}

void snug_texts_close(struct snug_texts *texts) {
    snug_peek_free(&texts->peek);
    snug_reader_close(texts->reader);
    *texts = (struct snug_texts){.reader = NULL};
}
