/* SPDX-License-Identifier: Apache-2.0 */
#include "text/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/json.h"

#define BLOCK ((size_t)1 << 20) /* of text that is written together */

struct snug_rows {
    snug_context *ctx;
    int fd;                /* the file in memory: its pages are not the process's own */
    int64_t bytes, count;  /* written to it; rows, the current one excluded */
    char *text;            /* rows that are not written yet, then the current one */
    size_t size, capacity; /* of text */
    size_t row;            /* where the current row begins */
};

snug_status snug_rows_make(snug_context *ctx, struct snug_rows **out) {
    void *memory;
    *out = NULL;
    const int fd = memfd_create("snug", MFD_CLOEXEC);
    if (fd < 0) /* may be untested: a call that fails: tools/failure-test */
        return snug_fail(ctx, SNUG_E_IO, "a file in memory cannot be made: %s", strerror(errno));
    if (snug_alloc(ctx, 1, sizeof **out, &memory) != SNUG_OK) { /* may be untested: an allocation that fails */
        close(fd);
        return SNUG_E_MEMORY;
    }
    *out = memory;
    (*out)->ctx = ctx;
    (*out)->fd = fd;
    return SNUG_OK;
}

void snug_rows_free(struct snug_rows *rows) {
    if (!rows) return;
    close(rows->fd);
    free(rows->text);
    free(rows);
}

snug_status snug_rows_create(snug_context *ctx, snug_rows **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(ctx);
    RETURN_IF_ERROR(snug_enter(ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(ctx, snug_rows_make(ctx, out));
}

void snug_rows_destroy(snug_rows *rows) {
    if (!rows) return;
    snug_context *ctx = rows->ctx;
    if (snug_enter(ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_QUIET) != SNUG_OK) return;
    snug_rows_free(rows);
    snug_leave(ctx, SNUG_OK);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static snug_status put(snug_rows *rows, const char *text, size_t length) {
    RETURN_IF_ERROR(snug_grow(rows->ctx, (void **)&rows->text, &rows->capacity, rows->size + length, 1));
    memcpy(rows->text + rows->size, text, length);
    rows->size += length;
    return SNUG_OK;
}

/* As JSON; malformed UTF-8 is left to the reader, which treats it as that of a file. */
static snug_status put_string(snug_rows *rows, const char *text) {
    RETURN_IF_ERROR(put(rows, "\"", 1));
    for (;;) {
        size_t plain = 0;
        while ((unsigned char)text[plain] >= ' ' && text[plain] != '"' && text[plain] != '\\') plain++;
        RETURN_IF_ERROR(put(rows, text, plain));
        text += plain;
        if (!*text) break;
        char escaped[8];
        const int length = snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*text++);
        RETURN_IF_ERROR(put(rows, escaped, (size_t)length));
    }
    return put(rows, "\"", 1);
}

static snug_status put_integer(snug_rows *rows, int64_t value) {
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%" PRId64, value);
    return put(rows, digits, (size_t)length);
}

/* Begins a row if there is none, and a column of it. */
static snug_status put_column(snug_rows *rows, const char *column) {
    RETURN_IF_ERROR(put(rows, rows->size == rows->row ? "{" : ",", 1));
    RETURN_IF_ERROR(put_string(rows, column));
    return put(rows, ":", 1);
}

/* After a failure the current row is discarded: its beginning would become a part of the next one. */
static snug_status checked(snug_rows *rows, snug_status status) {
    if (status != SNUG_OK) rows->size = rows->row;
    return status;
}

/* The end of a call that changes rows. */
static snug_status leave(snug_rows *rows, snug_status status) { return snug_leave(rows->ctx, checked(rows, status)); }

snug_status snug_rows_text(snug_rows *rows, const char *column, const char *text) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    if (!text)
        return leave(rows, snug_fail(rows->ctx, SNUG_E_USAGE,
                                     "snug_rows_text: text must not be NULL (row %" PRId64
                                     "): leave the column out where it is missing",
                                     rows->count + 1));
    const snug_status status = put_column(rows, column);
    return leave(rows, status == SNUG_OK ? put_string(rows, text) : status);
}

snug_status snug_rows_integer(snug_rows *rows, const char *column, int64_t value) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    const snug_status status = put_column(rows, column);
    return leave(rows, status == SNUG_OK ? put_integer(rows, value) : status);
}

/* With a point or an exponent: 1.0 is a real number, 1 would be a class. */
static snug_status put_real(snug_rows *rows, double value) {
    char *text;
    json_t *number = json_real(value);
    if (!number) /* may be untested: an allocation that fails */
        return snug_fail(rows->ctx, SNUG_E_MEMORY, "out of memory while adding a row");
    snug_status status = snug_json_text(rows->ctx, number, JSON_ENCODE_ANY, &text);
    json_decref(number);
    RETURN_IF_ERROR(status);
    status = put(rows, text, strlen(text));
    free(text);
    return status;
}

snug_status snug_rows_real(snug_rows *rows, const char *column, double value) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    if (!isfinite(value))
        return leave(rows, snug_fail(rows->ctx, SNUG_E_USAGE,
                                     "row %" PRId64 ", %s: %g is no value: leave the column out where it is missing",
                                     rows->count + 1, column, value));
    const snug_status status = put_column(rows, column);
    return leave(rows, status == SNUG_OK ? put_real(rows, value) : status);
}

static snug_status put_list(snug_rows *rows, const char *const *texts, const int64_t *integers, size_t count) {
    RETURN_IF_ERROR(put(rows, "[", 1));
    for (size_t i = 0; i < count; i++) {
        if (i) RETURN_IF_ERROR(put(rows, ",", 1));
        if (texts && !texts[i])
            return snug_fail(rows->ctx, SNUG_E_USAGE, "snug_rows_texts: items[%zu] must not be NULL (row %" PRId64 ")",
                             i, rows->count + 1);
        RETURN_IF_ERROR(texts ? put_string(rows, texts[i]) : put_integer(rows, integers[i]));
    }
    return put(rows, "]", 1);
}

snug_status snug_rows_texts(snug_rows *rows, const char *column, const char *const *items, size_t count) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    if (count) SNUG_REQUIRE(items);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    const snug_status status = put_column(rows, column);
    return leave(rows, status == SNUG_OK ? put_list(rows, items, NULL, count) : status);
}

snug_status snug_rows_integers(snug_rows *rows, const char *column, const int64_t *items, size_t count) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    if (count) SNUG_REQUIRE(items);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    const snug_status status = put_column(rows, column);
    return leave(rows, status == SNUG_OK ? put_list(rows, NULL, items, count) : status);
}

/* Writes the rows that are complete. */
static snug_status write_rows(snug_rows *rows, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t count = pwrite(rows->fd, rows->text + done, size - done, (off_t)(rows->bytes + (int64_t)done));
        if (count < 0 && errno == EINTR) continue; /* may be untested: depends on when signals arrive */
        if (count < 0)                             /* may be untested: a call that fails: tools/failure-test */
            return snug_fail(rows->ctx, SNUG_E_MEMORY, "rows cannot be kept in memory: %s", strerror(errno));
        done += (size_t)count;
    }
    if (!size) return SNUG_OK;
    rows->bytes += (int64_t)size;
    memmove(rows->text, rows->text + size, rows->size - size);
    rows->size -= size;
    rows->row = rows->size;
    return SNUG_OK;
}

/* What follows the current row's columns. */
static snug_status end_row(snug_rows *rows, const char *end) {
    RETURN_IF_ERROR(checked(rows, put(rows, end, strlen(end))));
    rows->row = rows->size;
    rows->count++;
    return rows->size < BLOCK ? SNUG_OK : write_rows(rows, rows->size);
}

static snug_status end_columns(snug_rows *rows) {
    if (rows->size != rows->row) return end_row(rows, "}\n");
    return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 " has no column: set one before snug_rows_end",
                     rows->count + 1);
}

snug_status snug_rows_end(snug_rows *rows) {
    SNUG_REQUIRE(rows);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, end_columns(rows));
}

snug_status snug_rows_add(struct snug_rows *rows, const char *object) {
    if (rows->size != rows->row)
        return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 " is not complete: call snug_rows_end first",
                         rows->count + 1);
    if (strpbrk(object, "\r\n") || object[strspn(object, " \t")] != '{')
        return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 " must be a JSON object on one line", rows->count + 1);
    RETURN_IF_ERROR(checked(rows, put(rows, object, strlen(object))));
    return end_row(rows, "\n");
}

snug_status snug_rows_json(snug_rows *rows, const char *object) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(object);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, snug_rows_add(rows, object));
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

snug_status snug_rows_open(snug_context *ctx, snug_rows *rows, const char *path, int *fd) {
    *fd = -1;
    if (rows->size != rows->row)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: row %" PRId64 " is not complete: call snug_rows_end", path,
                         rows->count + 1);
    const snug_status status = write_rows(rows, rows->size);
    if (status != SNUG_OK) /* may be untested: a call that fails: tools/failure-test */
        return snug_fail(ctx, status, "%s: %s", path, snug_context_message(rows->ctx));
    *fd = fcntl(rows->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (*fd >= 0 && lseek(*fd, 0, SEEK_SET) == 0) return SNUG_OK; /* untested: a file in memory has a position */
    return snug_fail(ctx, SNUG_E_IO, "%s: %s", path, strerror(errno));
}
