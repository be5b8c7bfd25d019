/* SPDX-License-Identifier: Apache-2.0 */
#include "text/build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text/columns.h"

/* Texts are read by the thousand and tokenized together: TASK_ROWS by one thread at a time, so that a few long ones do
   not leave the other threads waiting. */
#define TASK_ROWS 64
#define TASKS 64
#define CHUNK_ROWS ((size_t)TASK_ROWS * TASKS)
#define CHUNK_BYTES ((size_t)4 << 20)

/* How far it is is looked at when so much of the file is read, then whenever that has doubled or grown by LOOK_MOST. */
#define LOOK_FIRST ((int64_t)16 << 20)
#define LOOK_MOST ((int64_t)256 << 20)
#define TELL_SECONDS 10.0 /* and is told when so much time has passed */

struct text_row {
    size_t start[2], length[2]; /* of its texts in chunk.text */
    size_t first_label, labels; /* in chunk.labels */
    int64_t line;
    size_t ids, count, first_count; /* result: place and number of its tokens in its task's out */
    bool truncated;
};

struct task {
    struct snug_ids a, b, out;
    snug_status status;
};

/* What is read, tokenized and written together. */
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
    struct snug_columns columns;
    struct snug_label_column label;
    struct snug_cache_writer writer;
    bool join; /* masked LM: rows are blocks of all texts joined */
    int threads;
    bool full;          /* max_samples rows are written: only labels are still read */
    int64_t look;       /* bytes of the file at which the next look is due */
    double begun, told; /* when */

    struct chunk chunks[3]; /* while one is tokenized the one before is written and the next one read */

    struct snug_ids block; /* joining: the tokens that wait for a full block, and the line of the first */
    int64_t block_line;
};

static void builder_free(struct builder *builder) {
    snug_label_column_free(&builder->label);
    snug_cache_writer_free(&builder->writer);
    for (size_t k = 0; k < sizeof builder->chunks / sizeof *builder->chunks; k++) {
        struct chunk *chunk = &builder->chunks[k];
        free(chunk->text);
        free(chunk->labels);
        free(chunk->rows);
        for (size_t i = 0; i < TASKS; i++) {
            free(chunk->tasks[i].a.ids);
            free(chunk->tasks[i].b.ids);
            free(chunk->tasks[i].out.ids);
        }
    }
    free(builder->block.ids);
    free(builder);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static snug_status take_text(struct builder *builder, struct chunk *chunk, const struct snug_field *field, int64_t line,
                             size_t *start) {
    const char *path = builder->options->path;
    if (field->kind == SNUG_FIELD_MISSING)
        return snug_fail(builder->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the row has no text; remove it, or make it empty",
                         path, line);
    if (field->kind == SNUG_FIELD_LIST || field->kind == SNUG_FIELD_OTHER)
        return snug_fail(builder->ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the text must be a string, not a list, an object or a boolean", path, line);
    RETURN_IF_ERROR(
        snug_grow(builder->ctx, (void **)&chunk->text, &chunk->text_capacity, chunk->text_size + field->length + 1, 1));
    *start = chunk->text_size;
    memcpy(chunk->text + *start, field->text, field->length);
    chunk->text_size += field->length;
    return SNUG_OK;
}

static snug_status take_label(struct builder *builder, struct chunk *chunk, const struct snug_row *row) {
    const struct snug_dataset_options *options = builder->options;
    RETURN_IF_ERROR(snug_label_column_add(builder->ctx, &builder->label, options->path, row->line,
                                          &row->fields[builder->columns.label], options->need_labels));
    if (builder->full || !builder->label.count) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&chunk->labels, &chunk->label_capacity,
                              chunk->label_count + builder->label.count, sizeof *chunk->labels));
    memcpy(chunk->labels + chunk->label_count, builder->label.numbers, builder->label.count * sizeof *chunk->labels);
    chunk->label_count += builder->label.count;
    return SNUG_OK;
}

static snug_status take_row(struct builder *builder, struct chunk *chunk, const struct snug_row *row) {
    struct text_row taken = {.line = row->line, .first_label = chunk->label_count};
    if (builder->columns.has_label) RETURN_IF_ERROR(take_label(builder, chunk, row));
    if (builder->full) return SNUG_OK;
    taken.labels = chunk->label_count - taken.first_label;
    for (size_t i = 0; i < builder->columns.texts; i++) {
        const struct snug_field *field = &row->fields[builder->columns.text[i]];
        RETURN_IF_ERROR(take_text(builder, chunk, field, row->line, &taken.start[i]));
        taken.length[i] = field->length;
    }
    RETURN_IF_ERROR(
        snug_grow(builder->ctx, (void **)&chunk->rows, &chunk->row_capacity, chunk->count + 1, sizeof *chunk->rows));
    chunk->rows[chunk->count++] = taken;
    return SNUG_OK;
}

static bool is_full(const struct builder *builder) {
    return builder->options->max_samples >= 0 && builder->writer.rows >= builder->options->max_samples;
}

/* Classes come from the whole file, as in run_glue.py, which selects max_samples rows afterwards: labels are read on. A
   chunk is left without rows then. */
static snug_status read_chunk(struct builder *builder, struct snug_reader *reader, struct chunk *chunk) {
    const int64_t most = builder->options->max_samples;
    struct snug_row row;
    int64_t size;
    snug_status status = builder->full && !builder->columns.has_label ? SNUG_END : SNUG_OK;
    chunk->count = chunk->text_size = chunk->label_count = 0;
    for (size_t i = 0; status == SNUG_OK && i < CHUNK_ROWS && chunk->text_size < CHUNK_BYTES; i++) {
        if (!builder->join && !builder->full && most >= 0 && builder->writer.rows + (int64_t)chunk->count >= most)
            break; /* what lies beyond need not be tokenized */
        status = snug_reader_next(reader, &row);
        if (status == SNUG_OK) status = take_row(builder, chunk, &row);
    }
    chunk->position = snug_reader_position(reader, &size);
    return status;
}

/* ---- tokenizing ------------------------------------------------------------------------------------------------ */

static snug_status tokenize_row(const struct builder *builder, const struct chunk *chunk, struct task *task,
                                struct text_row *row) {
    const struct snug_tokenizer *tokenizer = builder->tokenizer;
    const bool pair = builder->columns.texts == 2;
    const size_t max_length = builder->join ? INT32_MAX : (size_t)builder->options->max_length;
    /* One token more than stays tells that the text is cut. How a pair is cut depends on the lengths of both. */
    const size_t most = pair || builder->join ? SIZE_MAX : max_length;
    task->a.count = task->b.count = 0;
    row->ids = task->out.count;
    RETURN_IF_ERROR(snug_tokenizer_encode_begin(builder->ctx, tokenizer, chunk->text + row->start[0], row->length[0],
                                                most, &task->a));
    if (pair)
        RETURN_IF_ERROR(
            snug_tokenizer_encode(builder->ctx, tokenizer, chunk->text + row->start[1], row->length[1], &task->b));
    /* run_mlm leaves out lines without text when it trains line by line: there is nothing to mask. */
    if (builder->options->task == SNUG_TASK_MLM && !builder->join && !task->a.count) return SNUG_OK;
    RETURN_IF_ERROR(snug_tokenizer_assemble(builder->ctx, tokenizer, &task->a, pair ? &task->b : NULL, max_length,
                                            &task->out, &row->first_count, &row->truncated));
    row->count = task->out.count - row->ids;
    return SNUG_OK;
}

static void tokenize_task(const struct builder *builder, struct chunk *chunk, int64_t number) {
    struct task *task = &chunk->tasks[number];
    size_t end = (size_t)(number + 1) * TASK_ROWS;
    if (end > chunk->count) end = chunk->count;
    task->out.count = 0;
    task->status = SNUG_OK;
    for (size_t i = (size_t)number * TASK_ROWS; i < end && task->status == SNUG_OK; i++)
        task->status = tokenize_row(builder, chunk, task, &chunk->rows[i]);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* run_mlm joins and cuts 1000 lines at a time and drops the rest of each thousand; all lines are joined here, so that
   only the last, incomplete block of the file is dropped. */
static snug_status join_row(struct builder *builder, const struct text_row *row, const int32_t *ids) {
    size_t length = (size_t)builder->options->max_length;
    for (size_t done = 0; done < row->count;) {
        size_t part = length - builder->block.count;
        if (part > row->count - done) part = row->count - done;
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

static snug_status write_chunk(struct builder *builder, struct chunk *chunk) {
    for (size_t i = 0; i < chunk->count && !is_full(builder); i++) {
        const struct text_row *row = &chunk->rows[i];
        if (!row->count) continue;
        const int32_t *ids = chunk->tasks[i / TASK_ROWS].out.ids + row->ids;
        if (builder->join) {
            RETURN_IF_ERROR(join_row(builder, row, ids));
        } else {
            struct snug_cache_row head = {row->line, (int32_t)row->first_count, row->truncated};
            const uint32_t *labels = row->labels ? chunk->labels + row->first_label : NULL;
            RETURN_IF_ERROR(
                snug_cache_put(builder->ctx, &builder->writer, &head, labels, row->labels, ids, row->count));
        }
    }
    builder->full = is_full(builder);
    return SNUG_OK;
}

/* ---- looking ahead --------------------------------------------------------------------------------------------- */

/* Of what has been written so far, how many times as much is to come, if the rest of the file is like its begin. */
static double times_to_come(const struct builder *builder, int64_t done, int64_t size) {
    const int64_t most = builder->options->max_samples;
    const double by_size = (double)(size - done) / (double)done;
    if (most < 0) return by_size;
    const double by_rows = (double)(most - builder->writer.rows) / (double)builder->writer.rows;
    return by_rows < by_size ? by_rows : by_size;
}

/* A cache that the disk cannot hold is told as soon as that can be seen, before the disk is full for everybody. */
static snug_status check_disk(const struct builder *builder, double times) {
    const char *folder = builder->writer.in->path;
    int64_t free_bytes;
    RETURN_IF_ERROR(snug_disk_free(builder->ctx, folder, &free_bytes));
    const int64_t need = snug_cache_writer_needs(&builder->writer, times);
    if (need <= free_bytes) return SNUG_OK;
    return snug_fail(builder->ctx, SNUG_E_IO,
                     "%s: its tokens will take about %.1f MiB more in %s, and %.1f MiB are free: make room, name "
                     "another folder in SNUG_CACHE, or take fewer rows (--max_train_samples)",
                     builder->options->path, (double)need / 0x1p20, folder, (double)free_bytes / 0x1p20);
}

static void tell(struct builder *builder, int64_t done, int64_t size) {
    const double now = snug_seconds();
    if (now - builder->told < TELL_SECONDS) return;
    builder->told = now;
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

/* Tokenizes a chunk. Meanwhile the caller's thread writes the one before and reads the next one, either of which may be
   NULL; *reading is what became of that. */
static snug_status do_together(struct builder *builder, struct snug_reader *reader, struct chunk *before,
                               struct chunk *now, struct chunk *next, snug_status *reading) {
    const int64_t tasks = (int64_t)((now->count + TASK_ROWS - 1) / TASK_ROWS);
    snug_status status = SNUG_OK;
#pragma omp parallel num_threads(builder->threads)
    {
#pragma omp master
        {
            if (before) status = write_chunk(builder, before);
            if (next) *reading = read_chunk(builder, reader, next);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < tasks; t++) tokenize_task(builder, now, t);
    }
    for (int64_t t = 0; t < tasks && status == SNUG_OK; t++) status = now->tasks[t].status;
    return status;
}

/* With a limit on rows nothing is done ahead: how many of a chunk are taken must be known before the next is read. */
static snug_status build_rows(struct builder *builder, struct snug_reader *reader) {
    const bool ahead = builder->options->max_samples < 0;
    struct chunk *before = NULL, *now = &builder->chunks[0];
    snug_status reading = read_chunk(builder, reader, now);
    for (int turn = 1; reading == SNUG_OK || (reading == SNUG_END && now); turn = (turn + 1) % 3) {
        struct chunk *next = reading == SNUG_OK ? &builder->chunks[turn] : NULL;
        RETURN_IF_ERROR(do_together(builder, reader, before, now, ahead ? next : NULL, &reading));
        if (before) RETURN_IF_ERROR(look_ahead(builder, reader, before->position));
        before = now;
        if (!ahead) {
            RETURN_IF_ERROR(write_chunk(builder, now));
            RETURN_IF_ERROR(look_ahead(builder, reader, now->position));
            before = NULL;
            if (next) reading = read_chunk(builder, reader, next);
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
                         ": train with --line_by_line or a smaller --max_seq_length",
                         options->path, builder->block.count, options->max_length);
    return snug_fail(builder->ctx, SNUG_E_INPUT, "%s: there is no row with text", options->path);
}

static snug_status prepare(struct builder *builder, struct snug_reader *reader) {
    const struct snug_dataset_options *options = builder->options;
    const char *const *names, *dot = strrchr(options->path, '.'); /* the reader has looked for it */
    size_t count = snug_reader_columns(reader, &names);
    RETURN_IF_ERROR(snug_columns_find(builder->ctx, options, names, count, &builder->columns));
    builder->label.typed = strcasecmp(dot, ".json") == 0 || strcasecmp(dot, ".jsonl") == 0;
    builder->join = options->task == SNUG_TASK_MLM && !options->line_by_line;
    builder->look = LOOK_FIRST;
    builder->begun = builder->told = snug_seconds();
    builder->threads = options->threads > 0 ? options->threads : 1;
    int64_t least = builder->join ? 1 : builder->columns.texts == 2 ? 3 : 2;
    if (options->max_length < least || options->max_length > INT32_MAX)
        return snug_fail(builder->ctx, SNUG_E_USAGE,
                         "--max_seq_length %" PRId64 " leaves no room for a text: it must be more than %" PRId64,
                         options->max_length, least);
    if (builder->join)
        RETURN_IF_ERROR(snug_grow(builder->ctx, (void **)&builder->block.ids, &builder->block.capacity,
                                  (size_t)options->max_length, sizeof *builder->block.ids));
    return SNUG_OK;
}

/* Who takes the tokens from the cache is told as well. */
static void note_oddities(struct builder *builder, const struct snug_reader *reader) {
    int64_t malformed, added;
    snug_reader_oddities(reader, &malformed, &added);
    builder->writer.malformed = malformed < UINT32_MAX ? (uint32_t)malformed : UINT32_MAX;
    builder->writer.added = added < UINT32_MAX ? (uint32_t)added : UINT32_MAX;
}

static snug_status build(struct builder *builder, struct snug_reader *reader, const struct snug_folder *in,
                         const char *name, XXH128_hash_t key, int *fd) {
    enum snug_label_form form;
    RETURN_IF_ERROR(prepare(builder, reader));
    RETURN_IF_ERROR(snug_cache_create(builder->ctx, in, name, &builder->writer));
    RETURN_IF_ERROR(build_rows(builder, reader));
    note_oddities(builder, reader);
    RETURN_IF_ERROR(check_rows(builder));
    RETURN_IF_ERROR(snug_label_column_form(builder->ctx, &builder->label, builder->options->path,
                                           builder->options->need_labels, &form));
    return snug_cache_finish(builder->ctx, &builder->writer, key, &builder->label.raw, form, fd);
}

snug_status snug_cache_build(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_dataset_options *options, int data, const struct snug_folder *in,
                             const char *name, XXH128_hash_t key, int *fd) {
    struct snug_reader *reader;
    void *memory;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct builder), &memory));
    struct builder *builder = memory;
    builder->ctx = ctx;
    builder->tokenizer = tokenizer;
    builder->options = options;
    snug_status status = snug_reader_open_file(ctx, options->path, data, options->strict, &reader);
    if (status == SNUG_OK) {
        status = build(builder, reader, in, name, key, fd);
        snug_reader_close(reader);
    }
    builder_free(builder);
    return status;
}
