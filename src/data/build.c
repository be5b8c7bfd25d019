/* SPDX-License-Identifier: Apache-2.0 */
#include "data/build.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat_json.h"
#include "data/column_prompts.h"
#include "data/data_file.h"
#include "data/encode.h"
#include "data/loss_mask.h"
#include "data/numbers.h"
#include "data/object_rows.h"
#include "data/preferences.h"
#include "data/row_texts.h"
#include "data/task.h"
#include "data/words.h"

/* Thousands of texts are read and tokenized together, in tasks of TASK_ROWS, so that other threads do not wait for a
   few long texts. */
#define TASK_ROWS 64
#define TASKS 64
#define CHUNK_ROWS ((size_t)TASK_ROWS * TASKS)
#define CHUNK_BYTES ((size_t)4 << 20)

/* Progress is checked after this many bytes of the file, then whenever they have doubled or grown by LOOK_MOST. */
#define LOOK_FIRST ((int64_t)16 << 20)
#define LOOK_MOST ((int64_t)256 << 20)
#define TELL_SECONDS 10.0 /* and is logged after this many seconds */

struct text_row {
    size_t start[2], length[2]; /* of its texts in chunk.text; each word ends with a NUL */
    size_t words;
    size_t first_label, labels; /* in chunk.labels */
    int64_t line;
    struct snug_encoded tokens; /* result: in its task's encoder */
};

struct task {
    struct snug_encoder encoder;
    snug_status status;
};

/* Rows that are read, tokenized and written together. */
struct chunk {
    char *text;
    size_t text_size, text_capacity;
    uint32_t *labels;
    size_t label_count, label_capacity;
    struct text_row *rows;
    size_t count, row_capacity;
    int64_t position; /* bytes of the file up to the end of its rows */
    struct task tasks[TASKS];
};

struct builder {
    snug_context *ctx;
    const struct snug_tokenizer *tokenizer;
    const struct snug_dataset_options *options;
    const struct snug_task_info *task;
    struct snug_text_source source;
    struct snug_row_buffer joined; /* a row's text, of several columns */
    struct snug_label_column label;
    struct snug_cache_writer writer;
    bool join; /* masked LM: rows are blocks of all texts joined */
    struct snug_encoding encoding;
    const char *prompts[SNUG_TEXTS_MOST]; /* of the texts of a row */
    int threads;
    int64_t unused; /* rows whose tags are not used, because they are not one for each word; causal LM:
                       rows without a loss, and the line of the first */
    int64_t unused_line;
    int64_t examples;            /* questions or groups so far */
    int64_t roles_line;          /* the first row with ShareGPT's roles; 0: none */
    int64_t across, across_line; /* rows with a token that is of both texts, and the first */
    int64_t same, same_line;     /* preferences: rows of which both sequences are the same, and the first */
    bool full;                   /* max_samples rows are written: only labels are still read */
    int64_t look;                /* bytes of the file at which the next look is due */
    double begun, last_log_time; /* when */

    struct chunk chunks[3]; /* while one chunk is tokenized, the previous one is written and the next one read */

    struct snug_ids block; /* joining: the tokens of the incomplete block, and the line of the first */
    int64_t block_line;

    uint32_t *numbers; /* a row's words, as they are written */
    size_t number_capacity;
};

static void builder_free(struct builder *builder) {
    snug_label_column_free(&builder->label);
    snug_cache_writer_free(&builder->writer);
    for (size_t k = 0; k < sizeof builder->chunks / sizeof *builder->chunks; k++) {
        struct chunk *chunk = &builder->chunks[k];
        free(chunk->text);
        free(chunk->labels);
        free(chunk->rows);
        for (size_t i = 0; i < TASKS; i++) snug_encoder_free(&chunk->tasks[i].encoder);
    }
    free(builder->block.ids);
    free(builder->numbers);
    free(builder->joined.data);
    free(builder);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static snug_status append_text(struct builder *builder, struct chunk *chunk, const struct snug_field *field) {
    RETURN_IF_ERROR(
        snug_grow(builder->ctx, (void **)&chunk->text, &chunk->text_capacity, chunk->text_size + field->length + 1, 1));
    memcpy(chunk->text + chunk->text_size, field->text, field->length);
    chunk->text_size += field->length;
    return SNUG_OK;
}

static snug_status take_text(struct builder *builder, struct chunk *chunk, const struct snug_row *row, size_t i,
                             struct text_row *taken) {
    struct snug_field field;
    RETURN_IF_ERROR(builder->source.object
                        ? snug_chat_json(builder->ctx, &builder->source, row, &builder->joined, &field)
                        : snug_columns_text(builder->ctx, &builder->source, row, i, &builder->joined, &field));
    taken->start[i] = chunk->text_size;
    taken->length[i] = field.length;
    return append_text(builder, chunk, &field);
}

/* The row's raw labels. */
static snug_status parse_label(struct builder *builder, const struct snug_row *row) {
    const struct snug_dataset_options *options = builder->options;
    const struct snug_columns *columns = &builder->source.columns;
    const struct snug_field *field = &row->fields[columns->label];
    if (columns->flags)
        return snug_label_column_add_flags(builder->ctx, &builder->label, options->path, row->line, row->fields,
                                           columns->flag, options->need_labels);
    if (field->kind == SNUG_FIELD_TEXT && strlen(field->text) != field->length)
        return snug_fail(builder->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": a label contains \\u0000 (column \"%s\")",
                         options->path, row->line, builder->label.name);
    return (builder->task->words ? snug_label_column_add_tags : snug_label_column_add)(
        builder->ctx, &builder->label, options->path, row->line, field, options->need_labels);
}

static snug_status take_label(struct builder *builder, struct chunk *chunk, const struct snug_row *row) {
    RETURN_IF_ERROR(parse_label(builder, row));
    if (builder->full || !builder->label.count) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&chunk->labels, &chunk->label_capacity,
                              chunk->label_count + builder->label.count, sizeof *chunk->labels));
    memcpy(chunk->labels + chunk->label_count, builder->label.numbers, builder->label.count * sizeof *chunk->labels);
    chunk->label_count += builder->label.count;
    return SNUG_OK;
}

/* Counts a row's words, of which each must have its tag. */
static snug_status count_words(const struct builder *builder, const struct chunk *chunk, struct text_row *row) {
    const char *text = chunk->text + row->start[0];
    row->words = 0;
    for (size_t i = 0; i < row->length[0]; i++) row->words += !text[i];
    if (row->words > INT32_MAX)
        return snug_fail(builder->ctx, SNUG_E_UNSUPPORTED, "%s:%" PRId64 ": %zu words in a row are too many",
                         builder->options->path, row->line, row->words);
    if (!builder->source.columns.has_label || row->words == row->labels) return SNUG_OK;
    if (!builder->options->need_labels) { /* then they are for metrics, and their words are predicted without */
        row->labels = 0;
        return SNUG_OK;
    }
    return snug_fail(builder->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": %zu words and %zu tags: each word must have one tag",
                     builder->options->path, row->line, row->words, row->labels);
}

static snug_status take_number(struct builder *builder, struct chunk *chunk, uint32_t number) {
    RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&chunk->labels, &chunk->label_capacity, chunk->label_count + 1,
                              sizeof *chunk->labels));
    chunk->labels[chunk->label_count++] = number;
    return SNUG_OK;
}

/* The score of a row of texts. */
static snug_status take_score(struct builder *builder, struct chunk *chunk, const struct snug_row *row) {
    const struct snug_field *field = &row->fields[builder->source.columns.label];
    const bool boolean = field->kind == SNUG_FIELD_BOOLEAN;
    float score = 0;
    uint32_t bits;
    if (boolean)
        score = strcmp(field->text, "True") == 0;
    else if (snug_field_is_text(field) && snug_number_kind(field->text) != SNUG_NUMBER_NONE)
        score = strtof(field->text, NULL);
    else
        return snug_fail(
            builder->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the score must be a number: the column \"%s\" holds %s%s%s%s",
            builder->options->path, row->line, builder->label.name, field->kind == SNUG_FIELD_TEXT ? "\"" : "",
            field->kind == SNUG_FIELD_TEXT ? field->text : snug_columns_value(field),
            field->kind == SNUG_FIELD_TEXT ? "\"" : "", "; name another one with --label_column_name");
    memcpy(&bits, &score, sizeof bits);
    return take_number(builder, chunk, bits);
}

/* Sequences of a row of texts: one of each column, or one of all. */
static size_t sequences_of(const struct snug_columns *columns) { return columns->apart ? columns->texts : 1; }

/* Without the blanks at its ends. */
static struct snug_field trim(struct snug_field field) {
    while (field.length && isspace((unsigned char)field.text[field.length - 1])) field.length--;
    for (; field.length && isspace((unsigned char)*field.text); field.text++) field.length--;
    return field;
}

/* A row of texts that are sequences of their own: as numbers the length of each, then its score. */
static snug_status take_texts(struct builder *builder, struct chunk *chunk, const struct snug_row *row) {
    const struct snug_columns *columns = &builder->source.columns;
    struct text_row taken = {.line = row->line, .first_label = chunk->label_count, .start = {chunk->text_size}};
    for (size_t i = 0; i < sequences_of(columns); i++) {
        struct snug_field field;
        RETURN_IF_ERROR(snug_columns_text(builder->ctx, &builder->source, row, i, &builder->joined, &field));
        if (!columns->apart) field = trim(field);
        RETURN_IF_ERROR(append_text(builder, chunk, &field));
        RETURN_IF_ERROR(take_number(builder, chunk, (uint32_t)field.length));
    }
    if (columns->has_label) RETURN_IF_ERROR(take_score(builder, chunk, row));
    taken.labels = chunk->label_count - taken.first_label;
    RETURN_IF_ERROR(
        snug_grow(builder->ctx, (void **)&chunk->rows, &chunk->row_capacity, chunk->count + 1, sizeof *chunk->rows));
    chunk->rows[chunk->count++] = taken;
    return SNUG_OK;
}

static snug_status take_row(struct builder *builder, struct chunk *chunk, const struct snug_row *row) {
    struct text_row taken = {.line = row->line, .first_label = chunk->label_count};
    if (builder->task->apart && !builder->task->preferences) return take_texts(builder, chunk, row);
    if (builder->source.columns.has_label) RETURN_IF_ERROR(take_label(builder, chunk, row));
    if (builder->full) return SNUG_OK;
    taken.labels = chunk->label_count - taken.first_label;
    const struct snug_columns *columns = &builder->source.columns;
    for (size_t i = 0; i < (columns->pair ? 2 : 1); i++) RETURN_IF_ERROR(take_text(builder, chunk, row, i, &taken));
    if (builder->task->words) RETURN_IF_ERROR(count_words(builder, chunk, &taken));
    if (builder->task->words && builder->source.columns.has_label && !taken.labels && taken.words &&
        row->fields[columns->label].kind != SNUG_FIELD_MISSING)
        builder->unused++;
    RETURN_IF_ERROR(
        snug_grow(builder->ctx, (void **)&chunk->rows, &chunk->row_capacity, chunk->count + 1, sizeof *chunk->rows));
    chunk->rows[chunk->count++] = taken;
    return SNUG_OK;
}

static bool is_full(const struct builder *builder) {
    return builder->options->max_samples >= 0 && builder->writer.rows >= builder->options->max_samples;
}

/* Classes come from the whole file, as in run_glue.py, which selects max_samples rows afterwards: so all labels are
   read. Chunks then have no rows. */
static snug_status read_chunk(struct builder *builder, struct snug_peek *peek, struct chunk *chunk) {
    const int64_t most = builder->options->max_samples;
    struct snug_row row;
    int64_t size;
    /* Classes are those of the whole file; scores of further rows are not needed. */
    const bool classes = builder->source.columns.has_label && !builder->task->apart;
    snug_status status = builder->full && !classes ? SNUG_END : SNUG_OK;
    chunk->count = chunk->text_size = chunk->label_count = 0;
    for (size_t i = 0; status == SNUG_OK && i < CHUNK_ROWS && chunk->text_size < CHUNK_BYTES; i++) {
        if (!builder->join && !builder->full && most >= 0 && builder->writer.rows + (int64_t)chunk->count >= most)
            break; /* the rest need not be tokenized */
        status = snug_peek_next(peek, &row);
        if (status == SNUG_OK) status = take_row(builder, chunk, &row);
    }
    chunk->position = snug_reader_position(peek->reader, &size);
    return status;
}

/* ---- tokenizing ------------------------------------------------------------------------------------------------ */

/* A row that is a JSON object. */
static snug_status tokenize_object(const struct builder *builder, const char *text, struct task *task,
                                   struct text_row *row) {
    char *where;
    RETURN_IF_ERROR(snug_format(builder->ctx, &where, "%s:%" PRId64, builder->options->path, row->line));
    const snug_status status = (builder->task->preferences ? snug_encode_preference
                                : builder->encoding.chat   ? snug_encode_chat
                                                           : builder->task->objects->encode)(
        builder->ctx, &builder->encoding, where, text, row->length[0], &task->encoder, &row->tokens);
    free(where);
    return status;
}

static snug_status tokenize_row(const struct builder *builder, const struct chunk *chunk, struct task *task,
                                struct text_row *row) {
    const char *const texts[] = {chunk->text + row->start[0], chunk->text + row->start[1]};
    if (builder->source.object) return tokenize_object(builder, texts[0], task, row);
    if (builder->task->apart)
        return snug_encode_apart(builder->ctx, &builder->encoding, texts[0], chunk->labels + row->first_label,
                                 sequences_of(&builder->source.columns), &task->encoder, &row->tokens);
    if (builder->task->causal)
        return snug_encode_causal(builder->ctx, &builder->encoding, texts, row->length, &task->encoder, &row->tokens);
    if (builder->task->words)
        return snug_encode_words(builder->ctx, &builder->encoding, texts[0], row->words, &task->encoder, &row->tokens);
    return snug_encode_texts(builder->ctx, &builder->encoding, texts, row->length, &task->encoder, &row->tokens);
}

static void tokenize_task(const struct builder *builder, struct chunk *chunk, int64_t number) {
    struct task *task = &chunk->tasks[number];
    size_t end = (size_t)(number + 1) * TASK_ROWS;
    if (end > chunk->count) end = chunk->count;
    task->encoder.out.count = task->encoder.word_of.count = task->encoder.has_loss.count = 0;
    task->encoder.counts.count = task->encoder.window_count = task->encoder.number_count = 0;
    task->status = SNUG_OK;
    for (size_t i = (size_t)number * TASK_ROWS; i < end && task->status == SNUG_OK; i++)
        task->status = tokenize_row(builder, chunk, task, &chunk->rows[i]);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* run_mlm concatenates and splits 1000 lines at a time and drops the rest of each thousand; here all lines are
   concatenated, so only the file's last incomplete block is dropped. */
static snug_status join_row(struct builder *builder, const struct text_row *row, const int32_t *ids) {
    size_t length = (size_t)builder->options->max_length;
    for (size_t done = 0; done < row->tokens.count;) {
        size_t part = length - builder->block.count;
        if (part > row->tokens.count - done) part = row->tokens.count - done;
        if (!builder->block.count) builder->block_line = row->line;
        memcpy(builder->block.ids + builder->block.count, ids + done, part * sizeof *ids);
        builder->block.count += part;
        done += part;
        if (builder->block.count < length) break;
        struct snug_cache_row head = {.line = builder->block_line, .first_count = (int32_t)length};
        if (!is_full(builder))
            RETURN_IF_ERROR(snug_cache_put(builder->ctx, &builder->writer, &head, NULL, 0, builder->block.ids, length));
        builder->block.count = 0;
    }
    return SNUG_OK;
}

/* The row's words in the format of data/words.h. */
static snug_status gather_words(struct builder *builder, const struct chunk *chunk, const struct text_row *row,
                                const struct task *task, size_t *count) {
    const size_t text_size = builder->options->keep_words ? row->length[0] : 0;
    *count = snug_words_numbers(row->tokens.count, row->words, text_size);
    RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&builder->numbers, &builder->number_capacity, *count,
                              sizeof *builder->numbers));
    const uint32_t *tags = row->labels ? chunk->labels + row->first_label : NULL;
    snug_words_put(builder->numbers, task->encoder.word_of.ids + row->tokens.ids, row->tokens.count, tags, row->words,
                   chunk->text + row->start[0], text_size);
    return SNUG_OK;
}

/* Its mask, if a token of the row has no loss. */
static snug_status gather_mask(struct builder *builder, const struct text_row *row, const int32_t *has_loss,
                               size_t *count) {
    *count = 0;
    for (size_t i = 0; i < row->tokens.count && !*count; i++)
        if (!has_loss[i]) *count = snug_loss_mask_numbers(row->tokens.count);
    if (!*count) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&builder->numbers, &builder->number_capacity, *count,
                              sizeof *builder->numbers));
    snug_loss_mask_put(builder->numbers, has_loss, row->tokens.count);
    return SNUG_OK;
}

/* A sequence without tokens has no vector. */
static snug_status fail_without_tokens(const struct builder *builder, const struct text_row *row) {
    return snug_fail(
        builder->ctx, SNUG_E_INPUT,
        "%s:%lld: a text has no tokens, and the tokenizer adds none to it: leave out the row, or give it a text",
        builder->options->path, (long long)row->line);
}

/* The row's texts and score in the format of data/row_texts.h. place: of the row among its task's. */
static snug_status gather_texts(struct builder *builder, const struct chunk *chunk, const struct text_row *row,
                                const struct task *task, size_t place, size_t *count) {
    const size_t texts = sequences_of(&builder->source.columns);
    const bool scored = row->labels > texts;
    for (size_t i = 0; i < texts; i++)
        if (!task->encoder.counts.ids[place * texts + i]) return fail_without_tokens(builder, row);
    *count = snug_row_texts_numbers(texts, scored);
    RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&builder->numbers, &builder->number_capacity, *count,
                              sizeof *builder->numbers));
    builder->numbers[0] = (uint32_t)texts;
    memcpy(builder->numbers + 1, task->encoder.counts.ids + place * texts, texts * sizeof *builder->numbers);
    if (scored) builder->numbers[1 + texts] = chunk->labels[row->first_label + texts];
    return SNUG_OK;
}

/* Both sequences, as data/row_texts.h; the score is the number of their common prompt's tokens. */
static snug_status gather_preference(struct builder *builder, const struct task *task, size_t place, size_t *count) {
    const int32_t *counts = task->encoder.counts.ids + place * SNUG_PREFERENCE_NUMBERS;
    const float prompt = (float)counts[2];
    *count = snug_row_texts_numbers(2, true);
    RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&builder->numbers, &builder->number_capacity, *count,
                              sizeof *builder->numbers));
    builder->numbers[0] = 2;
    memcpy(builder->numbers + 1, counts, 2 * sizeof *counts);
    memcpy(builder->numbers + 3, &prompt, sizeof prompt);
    return SNUG_OK;
}

static void note_causal(struct builder *builder, const struct text_row *row) {
    if (row->tokens.without_loss && !builder->unused++) builder->unused_line = row->line;
    if (row->tokens.other_roles && !builder->roles_line) builder->roles_line = row->line;
    if (row->tokens.across && !builder->across++) builder->across_line = row->line;
    if (row->tokens.same && !builder->same++) builder->same_line = row->line;
}

static snug_status write_row(struct builder *builder, const struct chunk *chunk, const struct text_row *row,
                             const struct task *task) {
    const struct snug_cache_row head = {row->line, (int32_t)row->tokens.first_count, row->tokens.truncated};
    const int32_t *ids = task->encoder.out.ids + row->tokens.ids;
    const uint32_t *labels = row->labels ? chunk->labels + row->first_label : NULL;
    const size_t place = (size_t)(row - chunk->rows) % TASK_ROWS;
    size_t count = row->labels;
    if (builder->task->words) RETURN_IF_ERROR(gather_words(builder, chunk, row, task, &count));
    if (builder->task->preferences)
        RETURN_IF_ERROR(gather_preference(builder, task, place, &count));
    else if (builder->task->causal)
        RETURN_IF_ERROR(gather_mask(builder, row, task->encoder.has_loss.ids + row->tokens.ids, &count));
    else if (builder->task->apart)
        RETURN_IF_ERROR(gather_texts(builder, chunk, row, task, place, &count));
    if (builder->task->words || builder->task->causal || builder->task->apart) labels = builder->numbers;
    return snug_cache_put(builder->ctx, &builder->writer, &head, labels, count, ids, row->tokens.count);
}

/* The rows of tokens of a row that is an object: windows, or a group. Their first number is the object's. */
static snug_status write_windows(struct builder *builder, const struct text_row *row, const struct task *task) {
    const struct snug_encoder *encoder = &task->encoder;
    for (size_t i = 0; i < row->tokens.windows && !is_full(builder); i++) {
        const struct snug_window *window = &encoder->windows[row->tokens.window + i];
        const struct snug_cache_row head = {row->line, (int32_t)window->first_count, window->truncated};
        uint32_t *numbers = encoder->numbers + window->numbers;
        builder->examples += window->begins;
        numbers[0] = (uint32_t)(builder->examples - 1);
        RETURN_IF_ERROR(snug_cache_put(builder->ctx, &builder->writer, &head, numbers, window->number_count,
                                       encoder->out.ids + window->ids, window->count));
    }
    return SNUG_OK;
}

static snug_status write_row_of(struct builder *builder, const struct chunk *chunk, const struct text_row *row,
                                const struct task *task) {
    if (builder->join) return join_row(builder, row, task->encoder.out.ids + row->tokens.ids);
    return builder->task->objects ? write_windows(builder, row, task) : write_row(builder, chunk, row, task);
}

static snug_status write_chunk(struct builder *builder, struct chunk *chunk) {
    const bool by_sequence = !snug_task_is_per_token(builder->task);
    for (size_t i = 0; i < chunk->count && !is_full(builder); i++) {
        const struct text_row *row = &chunk->rows[i];
        const struct task *task = &chunk->tasks[i / TASK_ROWS];
        note_causal(builder, row);
        if (!row->tokens.count && by_sequence) return fail_without_tokens(builder, row);
        if (!row->tokens.count) continue;
        RETURN_IF_ERROR(write_row_of(builder, chunk, row, task));
    }
    builder->full = is_full(builder);
    return SNUG_OK;
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* The ratio of the data still to be written to the data written, if the rest of the file is like its beginning. */
static double times_to_come(const struct builder *builder, int64_t done, int64_t size) {
    const int64_t most = builder->options->max_samples;
    const double by_size = (double)(size - done) / (double)done;
    if (most < 0) return by_size;
    const double by_rows = (double)(most - builder->writer.rows) / (double)builder->writer.rows;
    return by_rows < by_size ? by_rows : by_size;
}

/* Fails as soon as the estimate shows that the cache does not fit on the disk, before the disk is full. */
static snug_status check_disk(const struct builder *builder, double times) {
    const char *folder = builder->writer.in->path;
    int64_t free_bytes;
    RETURN_IF_ERROR(snug_disk_free(builder->ctx, folder, &free_bytes));
    const int64_t need = snug_cache_writer_needs(&builder->writer, times);
    if (need <= free_bytes) return SNUG_OK;
    return snug_fail(builder->ctx, SNUG_E_IO,
                     "%s: its tokens will take about %.1f MiB more in %s, but %.1f MiB are free: free some, give "
                     "another folder in SNUG_CACHE, or take fewer rows (--max_train_samples)",
                     builder->options->path, (double)need / 0x1p20, folder, (double)free_bytes / 0x1p20);
}

static void tell(struct builder *builder, int64_t done, int64_t size) {
    const double now = snug_seconds();
    if (now - builder->last_log_time < TELL_SECONDS) return;
    builder->last_log_time = now;
    snug_log(builder->ctx, SNUG_LOG_INFO, "%s: %.1f of %.1f GB read, %.0f s left", builder->options->path,
             (double)done * 1e-9, (double)size * 1e-9, (now - builder->begun) * (double)(size - done) / (double)done);
}

/* done: bytes of the file whose tokens are written. */
static snug_status look_ahead(struct builder *builder, const struct snug_reader *reader, int64_t done) {
    int64_t size;
    snug_reader_position(reader, &size);
    if (snug_stop_asked(builder->ctx))
        return snug_fail(builder->ctx, SNUG_E_INTERRUPTED, "interrupted while %s was tokenized",
                         builder->options->path);
    if (done < builder->look || size <= done) return SNUG_OK;
    builder->look = done + (done < LOOK_MOST ? done : LOOK_MOST);
    tell(builder, done, size);
    return builder->writer.in ? check_disk(builder, times_to_come(builder, done, size)) : SNUG_OK;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

/* Tokenizes a chunk. Meanwhile one thread writes the previous one and reads the next one; either may be NULL. reading
 * is the status of the read. */
struct round {
    struct builder *builder;
    struct snug_peek *peek;
    struct chunk *before, *now, *next;
    snug_status reading;
};

static snug_status do_together(void *user) {
    struct round *round = user;
    struct builder *builder = round->builder;
    struct chunk *now = round->now;
    const int64_t tasks = (int64_t)((now->count + TASK_ROWS - 1) / TASK_ROWS);
    snug_status status = SNUG_OK;
#pragma omp parallel num_threads(builder->threads)
    {
#pragma omp master
        {
            if (round->before) status = write_chunk(builder, round->before);
            if (round->next) round->reading = read_chunk(builder, round->peek, round->next);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < tasks; t++) tokenize_task(builder, now, t);
    }
    for (int64_t t = 0; t < tasks && status == SNUG_OK; t++) status = now->tasks[t].status;
    return status;
}

/* With a limit on rows no chunk is read ahead: the number of rows used of a chunk must be known before the next is
   read. */
static snug_status build_rows(struct builder *builder, struct snug_peek *peek) {
    const struct snug_reader *reader = peek->reader;
    const bool ahead = builder->options->max_samples < 0;
    struct chunk *before = NULL, *now = &builder->chunks[0];
    snug_status reading = read_chunk(builder, peek, now);
    for (int turn = 1; reading == SNUG_OK || (reading == SNUG_END && now); turn = (turn + 1) % 3) {
        struct chunk *next = reading == SNUG_OK ? &builder->chunks[turn] : NULL;
        struct round round = {builder, peek, before, now, ahead ? next : NULL, reading};
        RETURN_IF_ERROR(snug_compute(builder->ctx, do_together, &round));
        if (round.next) reading = round.reading;
        if (before) RETURN_IF_ERROR(look_ahead(builder, reader, before->position));
        before = now;
        if (!ahead) {
            RETURN_IF_ERROR(write_chunk(builder, now));
            RETURN_IF_ERROR(look_ahead(builder, reader, now->position));
            before = NULL;
            if (next) reading = read_chunk(builder, peek, next);
        }
        now = next;
    }
    if (reading != SNUG_END) return reading;
    return before ? write_chunk(builder, before) : SNUG_OK;
}

static snug_status check_rows(struct builder *builder) {
    const struct snug_dataset_options *options = builder->options;
    if (builder->writer.rows) return SNUG_OK;
    if (builder->block.count)
        return snug_fail(builder->ctx, SNUG_E_INPUT,
                         "%s: its %zu tokens do not fill one block of %" PRId64
                         ": train with --line_by_line or a smaller --%s",
                         options->path, builder->block.count, options->max_length,
                         builder->task->causal ? "block_size" : "max_seq_length");
    if (builder->unused)
        return snug_fail(builder->ctx, SNUG_E_INPUT,
                         "%s: no row has a token with a loss, of %" PRId64 ", the first in line %" PRId64
                         ": %s --max_seq_length %" PRId64 "?",
                         options->path, builder->unused, builder->unused_line,
                         builder->encoding.chat ? "does the assistant say something within"
                                                : "are the completions empty, or the prompts longer than",
                         options->max_length);
    return snug_fail(builder->ctx, SNUG_E_INPUT, "%s: there is no row with text", options->path);
}

static snug_status prepare(struct builder *builder, int64_t hot) {
    const struct snug_dataset_options *options = builder->options;
    enum snug_data_form form;
    RETURN_IF_ERROR(snug_reader_form(builder->ctx, options->path, options->format, options->rows, &form));
    builder->label.typed = form == SNUG_DATA_JSON || form == SNUG_DATA_ROWS;
    builder->label.words = builder->task->words;
    builder->label.separator = options->label_separator;
    builder->label.may_miss = snug_missing_labels_given(options->missing_labels);
    RETURN_IF_ERROR(snug_label_column_begin_hot(builder->ctx, &builder->label, hot));
    RETURN_IF_ERROR(snug_label_column_begin_flags(builder->ctx, &builder->label, builder->source.names,
                                                  builder->source.columns.flag, builder->source.columns.flags));
    builder->join = (builder->task->joins || options->blocks || (builder->task->causal && form == SNUG_DATA_TEXT)) &&
                    !options->line_by_line;
    builder->look = LOOK_FIRST;
    builder->begun = builder->last_log_time = snug_seconds();
    builder->threads = options->threads > 0 ? options->threads : 1;
    for (size_t i = 0; i < builder->source.columns.texts; i++)
        builder->prompts[i] = snug_column_prompt(options, &builder->source.columns, builder->source.names, i);
    /* run_mlm omits lines without text when it trains line by line: they have nothing to mask. */
    builder->encoding = (struct snug_encoding){.tokenizer = builder->tokenizer,
                                               .pair = builder->source.columns.pair && !builder->task->causal,
                                               .completes = builder->source.columns.pair && builder->task->causal,
                                               .completion_only = options->completion_only,
                                               .chat = builder->encoding.chat,
                                               .assistant_only = builder->encoding.assistant_only,
                                               .joins = builder->join,
                                               .end = builder->join ? NULL : options->end,
                                               .prompts = builder->prompts,
                                               .stride = options->doc_stride,
                                               .need_labels = options->need_labels,
                                               .keep_texts = options->keep_words,
                                               .query = options->query,
                                               .ranking_loss = options->ranking_loss,
                                               .skips_empty = builder->task->skips_empty && !builder->join,
                                               .max_length = builder->join ? INT32_MAX : (size_t)options->max_length};
    RETURN_IF_ERROR(snug_encoding_check(builder->ctx, &builder->encoding, options->max_length, builder->join));
    if (builder->join)
        RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&builder->block.ids, &builder->block.capacity,
                                  (size_t)options->max_length, sizeof *builder->block.ids));
    return SNUG_OK;
}

static uint32_t capped(int64_t count) { return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX; }

/* Logged also if the tokens come from the cache. */
static void note_oddities(struct builder *builder, const struct snug_reader *reader) {
    int64_t malformed, added, skipped[SNUG_CONLL_SKIPPED];
    snug_reader_oddities(reader, &malformed, &added);
    snug_reader_skipped(reader, skipped);
    builder->writer.unused = capped(builder->unused);
    builder->writer.malformed = capped(malformed);
    builder->writer.added = capped(added);
    for (int i = 0; i < SNUG_CONLL_SKIPPED; i++) builder->writer.skipped[i] = capped(skipped[i]);
}

/* What only the texts show, once: their number is logged again where the tokens come from the cache. */
static void tell_causal(const struct builder *builder) {
    const char *path = builder->options->path;
    if (builder->unused_line && builder->writer.rows)
        snug_log(builder->ctx, SNUG_LOG_WARNING,
                 "%s:%" PRId64 ": this row is the first without a token that has a loss", path, builder->unused_line);
    if (builder->roles_line)
        snug_log(builder->ctx, SNUG_LOG_WARNING, "%s:%" PRId64 ": " SNUG_CHAT_OTHER_ROLES, path, builder->roles_line);
    if (builder->same)
        snug_log(builder->ctx, SNUG_LOG_WARNING,
                 "%s: in %" PRId64 " row%s, first in line %" PRId64
                 ", the chosen and the rejected text are the same tokens, at least up to --max_seq_length: such a row "
                 "has no gradient",
                 path, builder->same, builder->same == 1 ? "" : "s", builder->same_line);
    const char *several = builder->across == 1 ? "" : "s";
    if (builder->across && builder->encoding.chat)
        snug_log(builder->ctx, SNUG_LOG_WARNING,
                 "%s: in %" PRId64 " row%s, first in line %" PRId64
                 ", the tokens of the prompt, by the chat template with the beginning of an answer, are not those with "
                 "which the chat begins: the loss begins where they differ",
                 path, builder->across, several, builder->across_line);
    else if (builder->across)
        snug_log(builder->ctx, SNUG_LOG_WARNING,
                 "%s: in %" PRId64 " row%s, first in line %" PRId64
                 ", a token is of the prompt and of the completion: it has a loss, and a prompt without completion has "
                 "other tokens; end prompts with a space or a newline rather than beginning completions with it, or "
                 "the reverse",
                 path, builder->across, several, builder->across_line);
}

static snug_status build(struct builder *builder, struct snug_peek *peek, int64_t hot, const struct snug_folder *in,
                         const char *name, XXH128_hash_t key, int *fd) {
    enum snug_label_form form;
    RETURN_IF_ERROR(prepare(builder, hot));
    RETURN_IF_ERROR(snug_cache_create(builder->ctx, in, name, &builder->writer));
    RETURN_IF_ERROR(build_rows(builder, peek));
    note_oddities(builder, peek->reader);
    tell_causal(builder);
    RETURN_IF_ERROR(check_rows(builder));
    RETURN_IF_ERROR(snug_label_column_form(builder->ctx, &builder->label, builder->options->path,
                                           builder->options->need_labels, &form));
    if (builder->task->causal) form = SNUG_LABELS_MASK;
    if (builder->task->apart) form = SNUG_LABELS_TEXTS;
    if (builder->task->objects) form = builder->task->objects->form;
    return snug_cache_finish(builder->ctx, &builder->writer, key, &builder->label.raw, form, fd);
}

snug_status snug_cache_build(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_dataset_options *options, struct snug_peek *peek,
                             const struct snug_columns *columns, const struct snug_chat *chat, bool assistant_only,
                             int64_t hot, const struct snug_folder *in, const char *name, XXH128_hash_t key, int *fd) {
    const char *const *names;
    void *memory;
    snug_reader_columns(peek->reader, &names);
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct builder), &memory));
    struct builder *builder = memory;
    builder->ctx = ctx;
    builder->tokenizer = tokenizer;
    builder->options = options;
    builder->task = snug_task_info(options->task);
    builder->source = (struct snug_text_source){.columns = *columns,
                                                .path = options->path,
                                                .names = names,
                                                .delimiter = snug_dataset_delimiter(options),
                                                .words = builder->task->words,
                                                .object = builder->task->preferences ? "preference"
                                                          : chat                     ? "chat"
                                                          : builder->task->objects   ? builder->task->objects->kind
                                                                                     : NULL};
    builder->encoding.chat = chat;
    builder->encoding.assistant_only = assistant_only;
    if (columns->has_label) builder->label.name = names[columns->label];
    const snug_status status = build(builder, peek, hot, in, name, key, fd);
    builder_free(builder);
    return status;
}
