/* SPDX-License-Identifier: Apache-2.0 */
#include "data/given.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "data/dataset_impl.h"
#include "data/encode.h"
#include "data/row_texts.h"
#include "data/task.h"

struct row {
    struct snug_encoded tokens;
    size_t numbers, number_count; /* their place among the numbers */
};

struct snug_given {
    struct snug_encoding encoding;
    const struct snug_task_info *task;
    struct snug_encoder encoder;
    struct row *rows;
    uint32_t *numbers; /* of all rows: words (data/words.h), or texts (data/row_texts.h) */
    char *words;       /* a row's words, each ending with a NUL */
    size_t row_capacity, number_capacity, word_capacity, number_count;
};

snug_status snug_dataset_open_given(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                    const struct snug_dataset_options *options, struct snug_dataset **out) {
    const struct snug_encoding encoding = {
        .tokenizer = tokenizer, .max_length = (size_t)options->max_length, .prompt = options->prompt};
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    struct snug_dataset *dataset = memory;
    dataset->cache.fd = -1;
    snug_status status = snug_strdup(ctx, "the given texts", &dataset->path);
    if (status == SNUG_OK) status = snug_alloc(ctx, 1, sizeof *dataset->given, (void **)&dataset->given);
    if (status == SNUG_OK) status = snug_dataset_count_prompts(ctx, tokenizer, options, dataset);
    if (status != SNUG_OK) {
        snug_dataset_close(dataset);
        return status;
    }
    dataset->given->encoding = encoding;
    dataset->given->task = snug_task_info(options->task);
    *out = dataset;
    return SNUG_OK;
}

void snug_given_free(struct snug_given *given) {
    if (!given) return;
    snug_encoder_free(&given->encoder);
    free(given->rows);
    free(given->numbers);
    free(given->words);
    free(given);
}

/* The words of a text, between its blanks, each with a NUL after it. */
static snug_status split(snug_context *ctx, struct snug_given *given, const char *text, size_t *size) {
    const char *word;
    size_t length;
    *size = 0;
    while ((word = snug_next_word(&text, &length))) {
        RETURN_IF_ERROR(
            snug_grow(ctx, (void **)&given->words, &given->word_capacity, *size + length + 1, sizeof *given->words));
        memcpy(given->words + *size, word, length);
        given->words[*size + length] = '\0';
        *size += length + 1;
    }
    return SNUG_OK;
}

static snug_status add_words(snug_context *ctx, struct snug_given *given, const struct snug_given_text *text,
                             struct row *row) {
    size_t count = 0, size = text->length;
    if (!text->words) RETURN_IF_ERROR(split(ctx, given, text->text, &size));
    const char *words = text->words ? text->text : given->words;
    for (size_t i = 0; i < size; i++) count += !words[i];
    RETURN_IF_ERROR(snug_encode_words(ctx, &given->encoding, words, count, &given->encoder, &row->tokens));
    row->numbers = given->number_count;
    row->number_count = snug_words_numbers(row->tokens.count, count, size);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&given->numbers, &given->number_capacity, row->numbers + row->number_count,
                              sizeof *given->numbers));
    snug_words_put(given->numbers + row->numbers, given->encoder.word_of.ids + row->tokens.ids, row->tokens.count, NULL,
                   count, words, size);
    given->number_count += row->number_count;
    return SNUG_OK;
}

/* A text as the only sequence of a row. */
static snug_status add_apart(snug_context *ctx, struct snug_given *given, const struct snug_given_text *text,
                             int64_t number, struct row *row) {
    const uint32_t length = (uint32_t)text->length;
    given->encoder.counts.count = 0;
    RETURN_IF_ERROR(snug_encode_apart(ctx, &given->encoding, text->text, &length, 1, &given->encoder, &row->tokens));
    row->numbers = given->number_count;
    row->number_count = snug_row_texts_numbers(1, false);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&given->numbers, &given->number_capacity, row->numbers + row->number_count,
                              sizeof *given->numbers));
    if (!row->tokens.count)
        return snug_fail(ctx, SNUG_E_USAGE, "text %" PRId64 " has no tokens, and the tokenizer adds none to it",
                         number);
    given->numbers[row->numbers] = 1;
    given->numbers[row->numbers + 1] = (uint32_t)row->tokens.count;
    given->number_count += row->number_count;
    return SNUG_OK;
}

static snug_status check_text(snug_context *ctx, const struct snug_given_text *text, const char *which,
                              int64_t number) {
    if (!text->text) return snug_fail(ctx, SNUG_E_USAGE, "%s %" PRId64 " is missing", which, number);
    const size_t valid = snug_utf8_invalid(text->text, text->length);
    if (valid == text->length) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_USAGE, "%s %" PRId64 " is not UTF-8, from byte %zu on", which, number, valid);
}

snug_status snug_dataset_give(snug_context *ctx, struct snug_dataset *dataset, const struct snug_given_text *texts,
                              const struct snug_given_text *pairs, int64_t count, int64_t first) {
    struct snug_given *given = dataset->given;
    dataset->cache.rows = 0;
    given->encoder.out.count = given->encoder.word_of.count = given->number_count = 0;
    given->encoding.pair = pairs;
    if (pairs && !given->task->pairs)
        return snug_fail(ctx, SNUG_E_USAGE, "pairs of texts are not for %s", given->task->short_title);
    RETURN_IF_ERROR(snug_encoding_check(ctx, &given->encoding, (int64_t)given->encoding.max_length, false));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&given->rows, &given->row_capacity, (size_t)count, sizeof *given->rows));
    for (int64_t i = 0; i < count; i++) {
        struct row *row = &given->rows[i];
        RETURN_IF_ERROR(check_text(ctx, &texts[i], "text", first + i));
        if (pairs) RETURN_IF_ERROR(check_text(ctx, &pairs[i], "the second text", first + i));
        const char *const both[] = {texts[i].text, pairs ? pairs[i].text : ""};
        const size_t lengths[] = {texts[i].length, pairs ? pairs[i].length : 0};
        *row = (struct row){.numbers = 0};
        RETURN_IF_ERROR(given->task->words ? add_words(ctx, given, &texts[i], row)
                        : given->task->apart
                            ? add_apart(ctx, given, &texts[i], first + i, row)
                            : snug_encode_texts(ctx, &given->encoding, both, lengths, &given->encoder, &row->tokens));
    }
    dataset->cache.rows = count;
    return SNUG_OK;
}

void snug_given_read(const struct snug_given *given, int64_t number, struct snug_dataset_row *out) {
    const struct row *row = &given->rows[number];
    *out = (struct snug_dataset_row){.ids = given->encoder.out.ids + row->tokens.ids,
                                     .count = (int64_t)row->tokens.count,
                                     .first_count = (int64_t)row->tokens.first_count,
                                     .labels = row->number_count ? given->numbers + row->numbers : NULL,
                                     .label_count = (int64_t)row->number_count,
                                     .line = number + 1,
                                     .truncated = row->tokens.truncated};
}

/* ---- rows in memory -------------------------------------------------------------------------------------------- */

snug_status snug_given_rows_open(snug_context *ctx, const struct snug_dataset_options *options, int64_t most,
                                 struct snug_given_rows *out) {
    *out = (struct snug_given_rows){.most = most};
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)most * 2, sizeof *out->items, (void **)&out->items));
    return snug_texts_open(ctx, options, &out->texts);
}

/* Copies a row's text, which the next row replaces. Its place is an offset until all are there, because the block may
   move. */
static snug_status hold(snug_context *ctx, struct snug_given_rows *rows, const struct snug_row *row, size_t i,
                        struct snug_given_text *out) {
    struct snug_field field;
    RETURN_IF_ERROR(snug_columns_text(ctx, &rows->texts.source, row, i, &rows->joined, &field));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&rows->text, &rows->capacity, rows->size + field.length + 2, 1));
    memcpy(rows->text + rows->size, field.text, field.length);
    memset(rows->text + rows->size + field.length, 0, 2);
    *out = (struct snug_given_text){NULL, field.length, rows->texts.source.words};
    rows->size += field.length + 2;
    return SNUG_OK;
}

snug_status snug_given_rows_next(snug_context *ctx, struct snug_given_rows *rows, const struct snug_given_text **texts,
                                 const struct snug_given_text **pairs, int64_t *count) {
    struct snug_given_text *first = rows->items, *second = rows->items + rows->most;
    const bool pair = rows->texts.source.columns.pair;
    struct snug_row row;
    *count = 0;
    rows->size = 0;
    while (*count < rows->most) {
        const snug_status status = snug_peek_next(&rows->texts.peek, &row);
        if (status == SNUG_END) break;
        RETURN_IF_ERROR(status);
        RETURN_IF_ERROR(hold(ctx, rows, &row, 0, &first[*count]));
        if (pair) RETURN_IF_ERROR(hold(ctx, rows, &row, 1, &second[*count]));
        ++*count;
    }
    const char *at = rows->text;
    for (int64_t i = 0; i < *count; i++) {
        first[i].text = at;
        at += first[i].length + 2;
        if (pair) second[i].text = at;
        if (pair) at += second[i].length + 2;
    }
    *texts = first;
    *pairs = pair ? second : NULL;
    return SNUG_OK;
}

void snug_given_rows_close(struct snug_given_rows *rows) {
    snug_texts_close(&rows->texts);
    free(rows->joined.data);
    free(rows->text);
    free(rows->items);
}
