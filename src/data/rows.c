/* SPDX-License-Identifier: Apache-2.0 */
#include "data/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/field.h"
#include "data/numbers.h"
#include "io/json.h"
#include "tokenizer/hash_map.h"

#define BLOCK ((size_t)1 << 20)    /* of bytes that are written together */
#define ROW_MOST ((size_t)1 << 28) /* as of a row of a file */

struct classes {
    char **names;
    size_t count;
};

struct snug_rows {
    snug_context *ctx;
    int fd;               /* the file in memory */
    int64_t bytes, count; /* written to it; rows, the current one excluded */
    char *data;           /* rows that are not written yet, then the current one */
    size_t size, capacity;
    size_t row;      /* where the current row begins */
    uint32_t values; /* that it has */

    char **names; /* of columns */
    struct classes *classes;
    size_t columns, name_capacity, class_capacity;
    struct snug_hash_map numbers; /* of columns, by name */
};

snug_status snug_rows_make(snug_context *ctx, struct snug_rows **out) {
    void *memory;
    *out = NULL;
    const int fd = memfd_create("snug", MFD_CLOEXEC);
    if (fd < 0) return snug_fail(ctx, SNUG_E_IO, "a file in memory cannot be made: %s", strerror(errno));
    if (snug_alloc(ctx, 1, sizeof **out, &memory) != SNUG_OK) {
        close(fd);
        return SNUG_E_MEMORY;
    }
    *out = memory;
    (*out)->ctx = ctx;
    (*out)->fd = fd;
    return SNUG_OK;
}

static void free_classes(struct classes *classes) {
    for (size_t i = 0; i < classes->count; i++) free(classes->names[i]);
    free(classes->names);
    *classes = (struct classes){0};
}

void snug_rows_free(struct snug_rows *rows) {
    if (!rows) return;
    close(rows->fd);
    for (size_t i = 0; i < rows->columns; i++) {
        free(rows->names[i]);
        free_classes(&rows->classes[i]);
    }
    free(rows->names);
    free(rows->classes);
    snug_hash_map_free(&rows->numbers);
    free(rows->data);
    free(rows);
}

/* ---- columns -------------------------------------------------------------------------------------------------- */

/* The number of a column, which is added if there is none of that name. */
static snug_status find_column(snug_rows *rows, const char *name, uint32_t *out) {
    const size_t length = strlen(name), count = rows->columns;
    int32_t number = snug_hash_map_find(&rows->numbers, "", 0, name, length);
    *out = (uint32_t)number;
    if (number >= 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(rows->ctx, (void **)&rows->names, &rows->name_capacity, count + 1, sizeof *rows->names));
    RETURN_IF_ERROR(
        snug_grow(rows->ctx, (void **)&rows->classes, &rows->class_capacity, count + 1, sizeof *rows->classes));
    RETURN_IF_ERROR(snug_strdup(rows->ctx, name, &rows->names[count]));
    rows->classes[count] = (struct classes){0};
    rows->columns++;
    *out = (uint32_t)count;
    return snug_hash_map_add(rows->ctx, &rows->numbers, rows->names[count], length, (int32_t)count, &number);
}

static snug_status set_classes(snug_rows *rows, const char *column, const char *const *names, size_t count) {
    uint32_t number;
    for (size_t i = 0; i < count; i++)
        if (!*names[i]) return snug_fail(rows->ctx, SNUG_E_USAGE, "column \"%s\": class %zu has no name", column, i);
    RETURN_IF_ERROR(find_column(rows, column, &number));
    struct classes *classes = &rows->classes[number];
    free_classes(classes);
    RETURN_IF_ERROR(snug_alloc(rows->ctx, count, sizeof *classes->names, (void **)&classes->names));
    for (; classes->count < count; classes->count++)
        RETURN_IF_ERROR(snug_strdup(rows->ctx, names[classes->count], &classes->names[classes->count]));
    return SNUG_OK;
}

int64_t snug_rows_count(const struct snug_rows *rows) { return rows->count; }

size_t snug_rows_columns(const struct snug_rows *rows, const char *const **names) {
    *names = (const char *const *)rows->names;
    return rows->columns;
}

const char *const *snug_rows_class_names(const struct snug_rows *rows, size_t column, size_t *count) {
    *count = rows->classes[column].count;
    return (const char *const *)rows->classes[column].names;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static snug_status fail_long(snug_rows *rows) {
    return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 " is longer than 256 MiB", rows->count + 1);
}

static snug_status put(snug_rows *rows, const void *data, size_t size) {
    if (size > ROW_MOST - (rows->size - rows->row)) return fail_long(rows);
    RETURN_IF_ERROR(snug_grow(rows->ctx, (void **)&rows->data, &rows->capacity, rows->size + size, 1));
    memcpy(rows->data + rows->size, data, size);
    rows->size += size;
    return SNUG_OK;
}

/* A value with a text. Malformed UTF-8 is left to the reader, which treats it as that of a file. */
static snug_status put_text(snug_rows *rows, uint32_t column, enum snug_field_kind kind, const char *text,
                            size_t length) {
    const struct snug_rows_value value = {column, kind, (uint32_t)length};
    if (length > ROW_MOST) return fail_long(rows);
    RETURN_IF_ERROR(put(rows, &value, sizeof value));
    RETURN_IF_ERROR(put(rows, text, length));
    return put(rows, "", 1);
}

static snug_status put_real(snug_rows *rows, uint32_t column, double real) {
    char *text;
    if (!isfinite(real)) {
        const char *missing = isnan(real) ? "NaN" : real > 0 ? "Infinity" : "-Infinity";
        return put_text(rows, column, SNUG_FIELD_MISSING, missing, strlen(missing));
    }
    json_t *number = json_real(real);
    if (!number) return snug_fail(rows->ctx, SNUG_E_MEMORY, "out of memory while adding a row");
    snug_status status = snug_json_text(rows->ctx, number, JSON_ENCODE_ANY, &text);
    json_decref(number);
    RETURN_IF_ERROR(status);
    status = put_text(rows, column, SNUG_FIELD_REAL, text, strlen(text));
    free(text);
    return status;
}

static snug_status fail_null(struct snug_rows *rows, const char *what) {
    return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 ": %s must not be NULL", rows->count + 1, what);
}

static snug_status put_value(snug_rows *rows, uint32_t column, const snug_value *value, bool item) {
    char digits[32];
    const char *text = value->text ? value->text : "";
    switch (value->kind) {
    case SNUG_VALUE_MISSING: return put_text(rows, column, SNUG_FIELD_MISSING, text, strlen(text));
    case SNUG_VALUE_TEXT:
        if (!value->text && value->length) return fail_null(rows, "the text of a value");
        return put_text(rows, column, SNUG_FIELD_TEXT, text, value->length);
    case SNUG_VALUE_NUMBER:
        if (snug_number_kind(text) == SNUG_NUMBER_NONE)
            return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 ": \"%s\" is not a number", rows->count + 1, text);
        return put_text(rows, column, SNUG_FIELD_REAL, text, strlen(text));
    case SNUG_VALUE_INTEGER:
        snprintf(digits, sizeof digits, "%" PRId64, value->integer);
        return put_text(rows, column, SNUG_FIELD_INTEGER, digits, strlen(digits));
    case SNUG_VALUE_REAL: return put_real(rows, column, value->real);
    case SNUG_VALUE_BOOLEAN:
        text = value->integer ? "True" : "False";
        return put_text(rows, column, SNUG_FIELD_BOOLEAN, text, strlen(text));
    case SNUG_VALUE_LIST: break;
    case SNUG_VALUE_OTHER: return put_text(rows, column, SNUG_FIELD_OTHER, text, strlen(text));
    default: return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 ": a value of no kind", rows->count + 1);
    }
    if (item) return put_text(rows, column, SNUG_FIELD_OTHER, "a list", strlen("a list"));
    if (value->length && !value->items) return fail_null(rows, "the items of a list");
    if (value->length > ROW_MOST) return fail_long(rows);
    const struct snug_rows_value head = {column, SNUG_FIELD_LIST, (uint32_t)value->length};
    RETURN_IF_ERROR(put(rows, &head, sizeof head));
    for (size_t i = 0; i < value->length; i++) RETURN_IF_ERROR(put_value(rows, 0, &value->items[i], true));
    return SNUG_OK;
}

/* Begins a row if there is none, and adds a column to it. After a failure the row is discarded: its beginning would
   become a part of the next one. */
snug_status snug_rows_put(struct snug_rows *rows, const char *column, const snug_value *value) {
    static const struct snug_rows_head head;
    uint32_t number;
    snug_status status = rows->size == rows->row ? put(rows, &head, sizeof head) : SNUG_OK;
    if (status == SNUG_OK) status = find_column(rows, column, &number);
    if (status == SNUG_OK) status = put_value(rows, number, value, false);
    rows->values++;
    if (status == SNUG_OK) return SNUG_OK;
    rows->size = rows->row;
    rows->values = 0;
    return status;
}

/* Writes the rows that are complete. */
static snug_status write_rows(snug_rows *rows, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t count = pwrite(rows->fd, rows->data + done, size - done, (off_t)(rows->bytes + (int64_t)done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return snug_fail(rows->ctx, SNUG_E_MEMORY, "rows cannot be kept in memory: %s", strerror(errno));
        done += (size_t)count;
    }
    if (!size) return SNUG_OK;
    rows->bytes += (int64_t)size;
    memmove(rows->data, rows->data + size, rows->size - size);
    rows->size -= size;
    rows->row = rows->size;
    return SNUG_OK;
}

snug_status snug_rows_complete(struct snug_rows *rows) {
    if (rows->size == rows->row)
        return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 " has no column: set one before snug_rows_end",
                         rows->count + 1);
    const struct snug_rows_head head = {(uint32_t)(rows->size - rows->row - sizeof head), rows->values};
    memcpy(rows->data + rows->row, &head, sizeof head);
    rows->row = rows->size;
    rows->values = 0;
    rows->count++;
    return rows->size < BLOCK ? SNUG_OK : write_rows(rows, rows->size);
}

/* ---- the program's calls ---------------------------------------------------------------------------------------- */

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

snug_status snug_rows_set(snug_rows *rows, const char *column, const snug_value *value) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    SNUG_REQUIRE(value);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, snug_rows_put(rows, column, value));
}

snug_status snug_rows_text(snug_rows *rows, const char *column, const char *text) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    SNUG_REQUIRE(text);
    const snug_value value = {.kind = SNUG_VALUE_TEXT, .text = text, .length = strlen(text)};
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, snug_rows_put(rows, column, &value));
}

snug_status snug_rows_integer(snug_rows *rows, const char *column, int64_t integer) {
    const snug_value value = {.kind = SNUG_VALUE_INTEGER, .integer = integer};
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, snug_rows_put(rows, column, &value));
}

snug_status snug_rows_real(snug_rows *rows, const char *column, double real) {
    const snug_value value = {.kind = SNUG_VALUE_REAL, .real = real};
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, snug_rows_put(rows, column, &value));
}

snug_status snug_rows_end(snug_rows *rows) {
    SNUG_REQUIRE(rows);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, snug_rows_complete(rows));
}

static snug_status add_row(snug_rows *rows, const char *const *columns, const snug_value *values, size_t count) {
    if (rows->size != rows->row)
        return snug_fail(rows->ctx, SNUG_E_USAGE, "row %" PRId64 " is not complete: call snug_rows_end first",
                         rows->count + 1);
    for (size_t i = 0; i < count; i++) RETURN_IF_ERROR(snug_rows_put(rows, columns[i], &values[i]));
    return snug_rows_complete(rows);
}

snug_status snug_rows_add(snug_rows *rows, const char *const *columns, const snug_value *values, size_t count) {
    SNUG_REQUIRE(rows);
    if (count) SNUG_REQUIRE(values);
    if (count) SNUG_REQUIRE_ITEMS(columns, count);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, add_row(rows, columns, values, count));
}

snug_status snug_rows_classes(snug_rows *rows, const char *column, const char *const *names, size_t count) {
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(column);
    if (count) SNUG_REQUIRE_ITEMS(names, count);
    RETURN_IF_ERROR(snug_enter(rows->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(rows->ctx, set_classes(rows, column, names, count));
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

snug_status snug_rows_open(snug_context *ctx, snug_rows *rows, const char *path, int *fd) {
    *fd = -1;
    if (rows->size != rows->row)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: row %" PRId64 " is not complete: call snug_rows_end", path,
                         rows->count + 1);
    const snug_status status = write_rows(rows, rows->size);
    if (status != SNUG_OK) return snug_fail(ctx, status, "%s: %s", path, snug_error_message(rows->ctx));
    *fd = fcntl(rows->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (*fd >= 0) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_IO, "%s: %s", path, strerror(errno));
}
