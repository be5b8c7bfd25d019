/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data_file.h"
#include "io/json.h"

struct snug_chat_file {
    snug_context *ctx;
    char *path, *where;
    int fd;
    struct snug_data_file *file;
    char *text; /* bytes [at, end) are read and not yet used */
    size_t at, end, capacity;
    bool complete; /* all is read */
    int64_t line;
    json_t *list; /* a list's rows; NULL: lines */
    size_t row;
};

enum { PIECE = 1 << 16 };

/* Reads some more bytes after those that are left. */
static snug_status read_more(struct snug_chat_file *file) {
    size_t got;
    if (file->at) memmove(file->text, file->text + file->at, file->end - file->at);
    file->end -= file->at;
    file->at = 0;
    RETURN_IF_ERROR(snug_grow(file->ctx, (void **)&file->text, &file->capacity, file->end + PIECE, 1));
    RETURN_IF_ERROR(snug_data_file_read(file->file, file->text + file->end, PIECE, &got));
    file->end += got;
    file->complete = !got;
    return SNUG_OK;
}

static snug_status name_place(struct snug_chat_file *file, const char *format, int64_t number) {
    free(file->where);
    file->where = NULL;
    return snug_format(file->ctx, &file->where, format, file->path, (long long)number);
}

/* A list is read as a whole. */
static snug_status read_list(struct snug_chat_file *file) {
    json_error_t error;
    while (!file->complete) RETURN_IF_ERROR(read_more(file));
    file->list = snug_json_parse(file->text + file->at, file->end - file->at, 0, &error);
    if (file->list) return SNUG_OK;
    return snug_fail(file->ctx, snug_json_status(&error), "%s:%d: not valid JSON (column %d): %s", file->path,
                     error.line, error.column, error.text);
}

static snug_status begin(struct snug_chat_file *file) {
    size_t first = 0;
    RETURN_IF_ERROR(read_more(file));
    if (file->end >= 3 && memcmp(file->text, "\xef\xbb\xbf", 3) == 0) file->at = 3;
    first = file->at;
    while (first < file->end && memchr(" \t\r\n", file->text[first], 4)) first++;
    return first < file->end && file->text[first] == '[' ? read_list(file) : SNUG_OK;
}

static snug_status open_file(struct snug_chat_file *file, const char *path) {
    RETURN_IF_ERROR(snug_strdup(file->ctx, path, &file->path));
    RETURN_IF_ERROR(snug_data_open(file->ctx, path, &file->fd));
    RETURN_IF_ERROR(snug_data_file_create(file->ctx, path, file->fd, &file->file));
    return begin(file);
}

snug_status snug_chat_file_open(snug_context *ctx, const char *path, struct snug_chat_file **out) {
    struct snug_chat_file *file;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *file, (void **)&file));
    file->ctx = ctx;
    file->fd = -1;
    const snug_status status = open_file(file, path);
    if (status == SNUG_OK)
        *out = file;
    else
        snug_chat_file_close(file);
    return status;
}

void snug_chat_file_close(struct snug_chat_file *file) {
    if (!file) return;
    snug_data_file_free(file->file);
    if (file->fd >= 0) close(file->fd);
    json_decref(file->list);
    free(file->path);
    free(file->where);
    free(file->text);
    free(file);
}

/* The next line without its end; SNUG_END after the last. */
static snug_status next_line(struct snug_chat_file *file, const char **line, size_t *length) {
    size_t searched = file->at;
    for (;;) {
        const char *end = memchr(file->text + searched, '\n', file->end - searched);
        if (!end && !file->complete) {
            searched = file->end - file->at;
            RETURN_IF_ERROR(read_more(file));
            continue;
        }
        if (!end && file->at == file->end) return SNUG_END;
        *line = file->text + file->at;
        *length = end ? (size_t)(end - *line) : file->end - file->at;
        file->at += *length + (end != NULL);
        file->line++;
        return SNUG_OK;
    }
}

static bool is_blank(const char *line, size_t length) {
    while (length && memchr(" \t\r", *line, 3)) line++, length--;
    return !length;
}

static snug_status check_row(struct snug_chat_file *file, json_t **row) {
    if (json_is_object(*row)) return SNUG_OK;
    json_decref(*row);
    *row = NULL;
    return snug_fail(file->ctx, SNUG_E_INPUT, "%s: a row must be an object, {…}", file->where);
}

snug_status snug_chat_file_next(struct snug_chat_file *file, json_t **row, const char **where) {
    const char *line;
    size_t length;
    json_error_t error;
    *row = NULL;
    if (file->list) {
        if (file->row == json_array_size(file->list)) return SNUG_END;
        *row = json_incref(json_array_get(file->list, file->row++));
        RETURN_IF_ERROR(name_place(file, "%s, row %lld", (int64_t)file->row));
        *where = file->where;
        return check_row(file, row);
    }
    do RETURN_IF_ERROR(next_line(file, &line, &length));
    while (is_blank(line, length));
    RETURN_IF_ERROR(name_place(file, "%s:%lld", file->line));
    *where = file->where;
    *row = snug_json_parse(line, length, JSON_DECODE_ANY, &error);
    if (!*row)
        return snug_fail(file->ctx, snug_json_status(&error), "%s: not valid JSON (column %d): %s", file->where,
                         error.column, error.text);
    return check_row(file, row);
}
