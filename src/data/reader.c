/* SPDX-License-Identifier: Apache-2.0 */
#include "data/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "data/reader_impl.h"
#include "data/rows.h"
#include "tokenizer/hash_map.h"

/* ---- bytes and lines ---- */

snug_status snug_reader_fail_at(struct snug_reader *reader, int64_t line, const char *what) {
    return snug_fail(reader->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": %s", reader->path, line, what);
}

static int64_t count_lines(const char *text, size_t length) {
    int64_t lines = 0;
    for (const char *at = text, *end = text + length; (at = memchr(at, '\n', (size_t)(end - at))); at++) lines++;
    return lines;
}

bool snug_reader_refill(struct snug_reader *reader) {
    if (reader->input_status != SNUG_OK) return false;
    reader->at = 0;
    reader->input_status = snug_data_file_read(reader->file, reader->buffer, sizeof reader->buffer, &reader->filled);
    if (reader->input_status != SNUG_OK) reader->filled = 0;
    const char *nul = memchr(reader->buffer, 0, reader->filled);
    if (nul) {
        int64_t line = reader->line + count_lines(reader->buffer, (size_t)(nul - reader->buffer));
        reader->filled = 0;
        reader->input_status =
            snug_reader_fail_at(reader, line, "a NUL byte: not a text file, or UTF-16; save it as UTF-8");
    }
    return reader->filled > 0;
}

snug_status snug_reader_append(struct snug_reader *reader, const char *data, size_t size) {
    if (size > RECORD_MAX - reader->record_size)
        return snug_reader_fail_at(reader, reader->record_line,
                                   "a row of over 256 MiB begins here: is a quote never closed?");
    void *grown = reader->record;
    RETURN_IF_ERROR(snug_grow(reader->ctx, &grown, &reader->record_capacity, reader->record_size + size + 1, 1));
    reader->record = grown;
    memcpy(reader->record + reader->record_size, data, size);
    reader->record_size += size;
    reader->record[reader->record_size] = '\0';
    return SNUG_OK;
}

/* Repairs the UTF-8 of the record's bytes from start on, which begin on the given line. */
static snug_status check_utf8(struct snug_reader *reader, size_t start, int64_t line) {
    size_t length = reader->record_size - start, invalid = snug_utf8_invalid(reader->record + start, length);
    return invalid == length ? SNUG_OK
                             : snug_reader_repair(reader, start, line + count_lines(reader->record + start, invalid));
}

snug_status snug_reader_repair(struct snug_reader *reader, size_t start, int64_t line) {
    if (reader->record_size == start) return SNUG_OK; /* there may be no record yet */
    size_t length = reader->record_size - start, invalid = snug_utf8_invalid(reader->record + start, length);
    if (invalid == length) return SNUG_OK;
    if (reader->strict)
        return snug_fail(reader->ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": malformed UTF-8 (byte 0x%02X); save the file as UTF-8, or leave out --strict "
                         "to have such bytes replaced",
                         reader->path, line, (unsigned char)reader->record[start + invalid]);
    if (reader->malformed.count++ == 0) reader->malformed.line = line;
    char *repaired;
    RETURN_IF_ERROR(snug_utf8_repair(reader->ctx, reader->record + start, length, &repaired, &length));
    reader->record_size = start;
    snug_status status = snug_reader_append(reader, repaired, length);
    free(repaired);
    return status;
}

snug_status snug_reader_line(struct snug_reader *reader) {
    size_t start = reader->record_size;
    int64_t line = reader->line;
    for (const char *newline = NULL; !newline;) {
        if (reader->at == reader->filled && !snug_reader_refill(reader)) {
            RETURN_IF_ERROR(reader->input_status);
            if (reader->record_size == start) return SNUG_END;
            break; /* the last line has no end */
        }
        const char *from = reader->buffer + reader->at;
        newline = memchr(from, '\n', reader->filled - reader->at);
        size_t size = newline ? (size_t)(newline - from) + 1 : reader->filled - reader->at;
        RETURN_IF_ERROR(snug_reader_append(reader, from, size));
        reader->at += size;
        reader->line += newline != NULL;
    }
    return check_utf8(reader, start, line);
}

snug_status snug_reader_first_line(struct snug_reader *reader) {
    reader->record_size = 0;
    reader->record_line = reader->line;
    return snug_reader_line(reader);
}

snug_status snug_reader_filled_line(struct snug_reader *reader) {
    do RETURN_IF_ERROR(snug_reader_first_line(reader));
    while (reader->record[strspn(reader->record, "\r\n")] == '\0');
    return SNUG_OK;
}

void snug_reader_trim(struct snug_reader *reader) {
    size_t size = reader->record_size;
    if (reader->record[size - 1] == '\n') size--; /* a line is not empty */
    if (size && reader->record[size - 1] == '\r') size--;
    reader->record[reader->record_size = size] = '\0';
}

/* ---- columns ---- */

snug_status snug_reader_add_name(struct snug_reader *reader, const char *name) {
    void *grown = reader->names;
    char *copy;
    RETURN_IF_ERROR(snug_grow(reader->ctx, &grown, &reader->name_capacity, reader->columns + 1, sizeof *reader->names));
    reader->names = grown;
    RETURN_IF_ERROR(snug_strdup(reader->ctx, name, &copy));
    reader->names[reader->columns++] = copy;
    return SNUG_OK;
}

/* Whether the first count columns have this name. */
static bool is_taken(const struct snug_hash_map *names, const char *name) {
    return snug_hash_map_find(names, "", 0, name, strlen(name)) >= 0;
}

/* The name of a column in a header that has none or that of another one, as pandas calls it. */
static snug_status rename_column(struct snug_reader *reader, const struct snug_hash_map *names, size_t column) {
    char *name = NULL, *before = reader->names[column];
    for (int n = *before ? 1 : 0; !name || is_taken(names, name); n++) {
        char number[16] = "";
        if (n) snprintf(number, sizeof number, ".%d", n);
        free(name);
        RETURN_IF_ERROR(*before ? snug_format(reader->ctx, &name, "%s%s", before, number)
                                : snug_format(reader->ctx, &name, "Unnamed: %zu%s", column, number));
    }
    if (*before)
        snug_log(reader->ctx, SNUG_LOG_WARNING,
                 "%s:%" PRId64 ": two columns are called \"%s\": the second is \"%s\" here", reader->path,
                 reader->record_line, before, name);
    free(before);
    reader->names[column] = name;
    return SNUG_OK;
}

static snug_status make_names_unique(struct snug_reader *reader) {
    struct snug_hash_map names = {0};
    snug_status status = SNUG_OK;
    int32_t before;
    for (size_t i = 0; i < reader->columns && status == SNUG_OK; i++) {
        if (!*reader->names[i] || is_taken(&names, reader->names[i])) status = rename_column(reader, &names, i);
        if (status == SNUG_OK)
            status = snug_hash_map_add(reader->ctx, &names, reader->names[i], strlen(reader->names[i]), 0, &before);
    }
    snug_hash_map_free(&names);
    return status;
}

static snug_status read_header(struct snug_reader *reader) {
    RETURN_IF_ERROR(snug_reader_table_row(reader));
    for (size_t i = 0; i < reader->span_count; i++)
        RETURN_IF_ERROR(snug_reader_add_name(reader, reader->record + reader->spans[i].start));
    return make_names_unique(reader);
}

/* Names from the header, or from the first object, which is returned as the first row later. */
static snug_status read_names(struct snug_reader *reader, const struct snug_conll_choice *conll) {
    snug_status status;
    switch (reader->form) {
    case SNUG_DATA_TEXT: return snug_reader_add_name(reader, "text");
    case SNUG_DATA_CONLL:
        status = snug_reader_begin_sentences(reader, conll);
        for (size_t i = 0; status == SNUG_OK && i < snug_reader_conll(reader)->columns; i++)
            status = snug_reader_add_name(reader, snug_reader_conll(reader)->names[i]);
        return status;
    case SNUG_DATA_JSON: status = snug_reader_json_open(reader); break;
    case SNUG_DATA_ROWS: status = snug_reader_rows_open(reader); break;
    default: status = read_header(reader);
    }
    if (status == SNUG_END) return snug_fail(reader->ctx, SNUG_E_INPUT, "%s is empty: it holds no row", reader->path);
    return status;
}

/* ---- the public calls ---- */

snug_status snug_reader_form(snug_context *ctx, const char *path, const char *format, const struct snug_rows *rows,
                             enum snug_data_form *out) {
    *out = SNUG_DATA_ROWS;
    return rows ? SNUG_OK : snug_data_form_of(ctx, path, format, out);
}

/* Whether rows are words or texts determines how some files are read. */
static snug_status choose_form(struct snug_reader *reader, const char *format) {
    RETURN_IF_ERROR(snug_reader_form(reader->ctx, reader->path, format, reader->rows, &reader->form));
    if (reader->words && (reader->form == SNUG_DATA_TEXT || reader->form == SNUG_DATA_TSV))
        reader->form = SNUG_DATA_CONLL;
    if (reader->words && reader->form == SNUG_DATA_CSV)
        return snug_fail(
            reader->ctx, SNUG_E_USAGE,
            "%s: words and tags are read from JSON Lines (.json, .jsonl) and from files with a word a line "
            "(.conll, .tsv, .txt)",
            reader->path);
    if (!reader->words && reader->form == SNUG_DATA_CONLL)
        return snug_fail(reader->ctx, SNUG_E_USAGE, "%s holds words with tags: give --task token_classification",
                         reader->path);
    return SNUG_OK;
}

static snug_status open_input(struct snug_reader *reader, const struct snug_conll_choice *conll) {
    if (!reader->rows && !snug_reader_refill(reader)) {
        RETURN_IF_ERROR(reader->input_status);
        return snug_fail(reader->ctx, SNUG_E_INPUT, "%s is empty%s", reader->path,
                         strcmp(reader->path, "-") == 0 ? ": no rows came on standard input" : "");
    }
    if (reader->filled >= 3 && !memcmp(reader->buffer, "\xEF\xBB\xBF", 3)) reader->at = 3; /* byte order mark */
    void *memory;
    RETURN_IF_ERROR(read_names(reader, conll));
    RETURN_IF_ERROR(snug_alloc(reader->ctx, reader->columns, sizeof *reader->fields, &memory));
    reader->fields = memory;
    for (size_t i = 0; i < reader->columns; i++) reader->fields[i] = (struct snug_field){SNUG_FIELD_MISSING, "", 0};
    return SNUG_OK;
}

snug_status snug_reader_open(snug_context *ctx, const char *path, const struct snug_reader_options *options,
                             struct snug_reader **out) {
    int fd;
    enum snug_data_form form;
    *out = NULL;
    RETURN_IF_ERROR(
        snug_reader_form(ctx, path, options->format, options->rows, &form)); /* before it is opened, which may wait */
    RETURN_IF_ERROR(options->rows ? snug_rows_open(ctx, options->rows, path, &fd) : snug_data_open(ctx, path, &fd));
    const snug_status status = snug_reader_open_file(ctx, path, fd, options, out);
    if (status == SNUG_OK)
        (*out)->owns_fd = true;
    else
        close(fd);
    return status;
}

snug_status snug_reader_open_file(snug_context *ctx, const char *path, int fd,
                                  const struct snug_reader_options *options, struct snug_reader **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_reader), &memory));
    struct snug_reader *reader = memory;
    reader->ctx = ctx;
    reader->strict = options->strict;
    reader->words = options->words;
    reader->keep_ends = options->keep_ends;
    reader->quiet = options->quiet;
    reader->nested = options->nested;
    reader->rows = options->rows;
    reader->fd = fd;
    reader->line = 1;
    reader->separator = ',';
    snug_status status = snug_strdup(ctx, path, &reader->path);
    if (status == SNUG_OK) status = choose_form(reader, options->format);
    if (reader->form == SNUG_DATA_TSV) reader->separator = '\t';
    if (status == SNUG_OK && !reader->rows) status = snug_data_file_create(ctx, path, fd, &reader->file);
    if (status == SNUG_OK) status = open_input(reader, options->conll);
    if (status == SNUG_OK)
        *out = reader;
    else
        snug_reader_close(reader);
    return status;
}

/* Logs what was replaced or ignored. */
static void tell_oddities(const struct snug_reader *reader) {
    int64_t skipped[SNUG_CONLL_SKIPPED];
    if (reader->quiet) return;
    snug_reader_skipped(reader, skipped);
    snug_conll_tell_skipped(reader->ctx, reader->path, skipped);
    if (reader->malformed.count)
        snug_log(reader->ctx, SNUG_LOG_WARNING,
                 "%s: malformed UTF-8 in %" PRId64 " line(s), first in line %" PRId64 ", replaced by U+FFFD%s",
                 reader->path, reader->malformed.count, reader->malformed.line,
                 reader->json ? ", as are halves of surrogate pairs (\\ud83d)" : "");
    if (reader->unquoted.count)
        snug_log(reader->ctx, SNUG_LOG_INFO,
                 "%s: %" PRId64 " row(s), first in line %" PRId64 ", have quoted fields, read as pandas writes them",
                 reader->path, reader->unquoted.count, reader->unquoted.line);
    if (reader->added.count)
        snug_log(reader->ctx, SNUG_LOG_WARNING,
                 "%s: keys that the first object lacks in %" PRId64 " row(s), first \"%s\" in line %" PRId64
                 ", are ignored",
                 reader->path, reader->added.count, snug_reader_json_added(reader), reader->added.line);
}

void snug_reader_oddities(const struct snug_reader *reader, int64_t *malformed, int64_t *added) {
    *malformed = reader->malformed.count;
    *added = reader->added.count;
}

void snug_reader_close(struct snug_reader *reader) {
    if (!reader) return;
    if (!reader->ended) tell_oddities(reader);
    snug_data_file_free(reader->file);
    if (reader->owns_fd) close(reader->fd);
    for (size_t i = 0; i < reader->columns; i++) free(reader->names[i]);
    free(reader->names);
    free(reader->spans);
    free(reader->fields);
    snug_reader_json_free(reader->json);
    snug_reader_free_sentences(reader);
    free(reader->row);
    free(reader->places);
    free(reader->record);
    free(reader->path);
    free(reader);
}

void snug_reader_discard(struct snug_reader *reader) {
    reader->ended = true;
    snug_reader_close(reader);
}

size_t snug_reader_columns(const struct snug_reader *reader, const char *const **names) {
    *names = (const char *const *)reader->names;
    return reader->columns;
}

size_t snug_reader_find(const struct snug_reader *reader, const char *name, size_t length) {
    if (snug_reader_conll(reader)) return snug_conll_find(snug_reader_conll(reader), name, length);
    for (size_t i = 0; i < reader->columns; i++)
        if (strlen(reader->names[i]) == length && memcmp(reader->names[i], name, length) == 0) return i;
    return SIZE_MAX;
}

int64_t snug_reader_position(const struct snug_reader *reader, int64_t *size) {
    struct stat info = {0};
    fstat(reader->fd, &info);
    *size = S_ISREG(info.st_mode) ? (int64_t)info.st_size : 0;
    return reader->rows ? reader->rows_taken : snug_data_file_taken(reader->file);
}

static snug_status text_line(struct snug_reader *reader) {
    RETURN_IF_ERROR(snug_reader_first_line(reader));
    const bool ends = reader->record[reader->record_size - 1] == '\n';
    snug_reader_trim(reader);
    return ends && reader->keep_ends ? snug_reader_append(reader, "\n", 1) : SNUG_OK;
}

snug_status snug_reader_next(struct snug_reader *reader, struct snug_row *row) {
    snug_status status;
    if (reader->ended) return SNUG_END;
    switch (reader->form) {
    case SNUG_DATA_CSV:
    case SNUG_DATA_TSV: status = snug_reader_table_row(reader); break;
    case SNUG_DATA_TEXT:
        status = text_line(reader);
        reader->fields[0] = (struct snug_field){SNUG_FIELD_TEXT, reader->record, reader->record_size};
        break;
    case SNUG_DATA_CONLL: status = snug_reader_sentence(reader); break;
    case SNUG_DATA_ROWS: status = snug_reader_rows_row(reader); break;
    default: status = snug_reader_json_row(reader);
    }
    if (status == SNUG_END) {
        reader->ended = true;
        tell_oddities(reader);
    }
    RETURN_IF_ERROR(status);
    *row = (struct snug_row){reader->index++, reader->record_line, reader->columns, reader->fields};
    return SNUG_OK;
}
