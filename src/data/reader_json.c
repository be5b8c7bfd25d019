/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a JSON file. Of an object that may hold all rows up to LOOK_MOST bytes are read ahead to see whether it
   does; only an object of columns is held as a whole. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/field_list.h"
#include "data/json_layout.h"
#include "tokenizer/hash_map.h"

#define LOOK_MOST ((size_t)16 << 20)
#define KEYS_MOST ((size_t)1 << 24)

struct snug_json_rows {
    struct snug_json_cursor cursor;
    enum snug_json_layout layout;
    struct snug_json_look look;
    bool looking; /* the cursor's parts are held */
    char *held;   /* read ahead; the cursor is in it, or before it */
    size_t held_size, held_capacity;
    bool first, named, peeked; /* no row was read; columns have their names; the first row is not yet returned */
    int64_t last_line;         /* of the row before */

    struct snug_hash_map numbers;    /* of columns, by name */
    struct snug_value_place *values; /* of the row, by column */
    bool *given, *kept;              /* the row has it; lists and objects of it are kept */
    size_t *set, set_count;          /* these columns: missing ones take no time, for any number of columns */
    size_t value_capacity, given_capacity, kept_capacity, set_capacity;
    struct snug_json_cursor *columns; /* of a file of columns */
    char *added_key;                  /* the first key that the first row does not have */
};

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

/* The next part of the file. What was read ahead is not needed any more then. */
static bool read_on(struct snug_json_cursor *cursor) {
    struct snug_reader *reader = cursor->reader;
    struct snug_json_rows *rows = reader->json;
    if (!rows->looking) {
        free(rows->held);
        rows->held = NULL;
    }
    cursor->at = cursor->end = reader->buffer;
    reader->line = cursor->line;
    if (!snug_reader_refill(reader)) return false;
    cursor->end = reader->buffer + reader->filled;
    return true;
}

static snug_status hold(struct snug_json_rows *rows, const char *data, size_t size) {
    RETURN_IF_ERROR(
        snug_grow(rows->cursor.reader->ctx, (void **)&rows->held, &rows->held_capacity, rows->held_size + size, 1));
    memcpy(rows->held + rows->held_size, data, size);
    rows->held_size += size;
    return SNUG_OK;
}

/* The next part, which is also held. */
static bool read_ahead(struct snug_json_cursor *cursor) {
    struct snug_reader *reader = cursor->reader;
    struct snug_json_rows *rows = reader->json;
    rows->look.cut = rows->held_size >= (snug_json_may_be_columns(&rows->look) ? RECORD_MAX : LOOK_MOST);
    if (rows->look.cut || !read_on(cursor)) return false;
    reader->input_status = hold(rows, cursor->at, reader->filled);
    return reader->input_status == SNUG_OK;
}

static bool nothing_more(struct snug_json_cursor *cursor) {
    (void)cursor;
    return false;
}

/* ---- columns and rows ----------------------------------------------------------------------------------------- */

static snug_status add_column(struct snug_reader *reader, const char *name, size_t length) {
    struct snug_json_rows *rows = reader->json;
    const size_t count = reader->columns + 1;
    int32_t before;
    if (count > KEYS_MOST)
        return snug_reader_fail_at(reader, reader->record_line, "the first object has over 16 million keys");
    RETURN_IF_ERROR(snug_grow(reader->ctx, (void **)&rows->values, &rows->value_capacity, count, sizeof *rows->values));
    RETURN_IF_ERROR(snug_grow(reader->ctx, (void **)&rows->given, &rows->given_capacity, count, sizeof *rows->given));
    RETURN_IF_ERROR(snug_grow(reader->ctx, (void **)&rows->kept, &rows->kept_capacity, count, sizeof *rows->kept));
    RETURN_IF_ERROR(snug_grow(reader->ctx, (void **)&rows->set, &rows->set_capacity, count, sizeof *rows->set));
    RETURN_IF_ERROR(snug_reader_add_name(reader, name));
    rows->given[count - 1] = false;
    rows->kept[count - 1] = snug_reader_keeps(reader, name);
    return snug_hash_map_add(reader->ctx, &rows->numbers, reader->names[count - 1], length, (int32_t)count - 1,
                             &before);
}

/* The number of the column whose key is next, or -1 for a key that the first row does not have. */
static snug_status read_key(struct snug_json_cursor *cursor, int32_t *column) {
    struct snug_reader *reader = cursor->reader;
    struct snug_json_rows *rows = reader->json;
    const size_t start = reader->record_size;
    RETURN_IF_ERROR(snug_json_key(cursor));
    const char *key = reader->record + start;
    const size_t length = strlen(key);
    *column = snug_hash_map_find(&rows->numbers, "", 0, key, length);
    if (*column < 0 && !rows->named) {
        *column = (int32_t)reader->columns;
        RETURN_IF_ERROR(add_column(reader, key, length));
    } else if (*column < 0 && !rows->added_key) {
        reader->added.line = reader->record_line;
        RETURN_IF_ERROR(snug_strdup(reader->ctx, key, &rows->added_key));
    }
    reader->record_size = start;
    return SNUG_OK;
}

static snug_status take_value(struct snug_json_cursor *cursor, size_t column) {
    struct snug_json_rows *rows = cursor->reader->json;
    cursor->column = cursor->reader->names[column];
    RETURN_IF_ERROR((rows->kept[column] ? snug_json_keep : snug_json_value)(cursor, &rows->values[column]));
    cursor->column = NULL;
    if (rows->given[column])
        rows->values[column] = snug_other_value("two values");
    else
        rows->set[rows->set_count++] = column;
    rows->given[column] = true;
    return SNUG_OK;
}

static void begin_row(struct snug_reader *reader, int64_t line) {
    struct snug_json_rows *rows = reader->json;
    for (size_t i = 0; i < rows->set_count; i++) {
        const size_t column = rows->set[i];
        rows->given[column] = false;
        reader->fields[column] = (struct snug_field){SNUG_FIELD_MISSING, "", 0};
    }
    rows->set_count = 0;
    reader->record_size = 0;
    reader->record_line = line;
}

/* The object at the cursor. */
static snug_status read_object(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    struct snug_json_cursor *cursor = &rows->cursor;
    bool added = false;
    int32_t column;
    begin_row(reader, cursor->line);
    cursor->at++;
    if (snug_json_take(cursor, '}')) return SNUG_OK;
    do {
        RETURN_IF_ERROR(read_key(cursor, &column));
        added |= column < 0;
        RETURN_IF_ERROR(column < 0 ? snug_json_pass(cursor) : take_value(cursor, (size_t)column));
    } while (snug_json_take(cursor, ','));
    reader->added.count += added;
    return snug_json_take(cursor, '}') ? SNUG_OK : snug_json_fail(cursor, "an object needs a comma or } here");
}

/* Rows of one line are counted on from its number: no two rows have the same. */
static void end_row(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    if (reader->record_line <= rows->last_line) reader->record_line = rows->last_line + 1;
    rows->last_line = reader->record_line;
    for (size_t i = 0; i < rows->set_count; i++)
        snug_reader_set_field(reader, rows->set[i], &rows->values[rows->set[i]]);
}

/* ---- layouts -------------------------------------------------------------------------------------------------- */

static snug_status read_next_object(struct snug_reader *reader) {
    struct snug_json_cursor *cursor = &reader->json->cursor;
    const int byte = snug_json_peek(cursor);
    if (byte == '{') return read_object(reader);
    RETURN_IF_ERROR(reader->input_status);
    if (byte < 0) return SNUG_END;
    return snug_json_fail(cursor, byte == ','
                                      ? "a comma between objects: remove it, or write them as a list, [{…}, {…}]"
                                      : "a row must be an object, {…}: give one per line, one after the other, "
                                        "or one list of them");
}

/* What follows the list of rows in its object. */
static snug_status pass_rest(struct snug_json_cursor *cursor) {
    while (snug_json_take(cursor, ',')) {
        RETURN_IF_ERROR(snug_json_key(cursor));
        cursor->reader->record_size = 0;
        RETURN_IF_ERROR(snug_json_pass(cursor));
    }
    return snug_json_take(cursor, '}') ? SNUG_OK : snug_json_fail(cursor, "an object needs a comma or } here");
}

/* The next element of a list whose bracket was read; SNUG_END after its last. */
static snug_status read_element(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    struct snug_json_cursor *cursor = &rows->cursor;
    const bool comma = !rows->first && snug_json_take(cursor, ',');
    const int byte = snug_json_peek(cursor);
    if (byte == '{' && (comma || rows->first)) return read_object(reader);
    RETURN_IF_ERROR(reader->input_status);
    if (byte < 0)
        return snug_reader_fail_at(reader, cursor->line, "the file ends before its list does: it is truncated");
    if (byte != ']' || comma) return snug_json_fail(cursor, "a list must hold objects, separated by commas");
    cursor->at++;
    if (rows->layout == SNUG_JSON_LIST_IN_OBJECT) RETURN_IF_ERROR(pass_rest(cursor));
    if (snug_json_peek(cursor) >= 0) return snug_json_fail(cursor, "there is text after the list");
    return reader->input_status == SNUG_OK ? SNUG_END : reader->input_status;
}

/* The next row of an object of columns, whose form was seen before. */
static snug_status read_columns(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    if (rows->last_line == rows->look.length) return SNUG_END;
    begin_row(reader, rows->last_line + 1);
    for (size_t i = 0; i < reader->columns; i++) {
        struct snug_json_cursor *cursor = &rows->columns[i];
        const size_t start = reader->record_size;
        if (rows->look.objects) RETURN_IF_ERROR(snug_json_key(cursor));
        reader->record_size = start;
        RETURN_IF_ERROR(take_value(cursor, i));
        snug_json_take(cursor, ',');
    }
    return SNUG_OK;
}

static snug_status read_row(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    const int64_t malformed = reader->malformed.count;
    const snug_status status = rows->layout == SNUG_JSON_OBJECTS   ? read_next_object(reader)
                               : rows->layout == SNUG_JSON_COLUMNS ? read_columns(reader)
                                                                   : read_element(reader);
    rows->first = false;
    if (reader->malformed.count > malformed) reader->malformed.count = malformed + 1; /* rows, not strings */
    return status;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

/* Finds the layout of a file that begins with an object; the cursor is where it was. What is malformed is reported when
   it is read as a row. */
static snug_status look_ahead(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    struct snug_json_cursor *cursor = &rows->cursor;
    const int64_t line = cursor->line;
    const bool strict = reader->strict;
    RETURN_IF_ERROR(hold(rows, cursor->at, (size_t)(cursor->end - cursor->at)));
    rows->looking = true;
    cursor->more = read_ahead;
    reader->strict = false;
    snug_status status = snug_json_look(cursor, &rows->look);
    reader->strict = strict;
    reader->malformed = (struct oddity){0};
    rows->looking = false;
    if (status == SNUG_E_INPUT && reader->input_status == SNUG_OK) { /* malformed, or longer than what was read */
        snug_clear_error(reader->ctx);
        status = SNUG_OK;
    }
    RETURN_IF_ERROR(status);
    *cursor = (struct snug_json_cursor){reader, rows->held, rows->held + rows->held_size, line, NULL, read_on};
    return snug_json_layout_of(reader, &rows->look, &rows->layout);
}

/* Passes over the object's beginning up to the list of rows. */
static snug_status enter_object(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    struct snug_json_cursor *cursor = &rows->cursor;
    cursor->at++;
    for (;;) {
        reader->record_size = 0;
        RETURN_IF_ERROR(snug_json_key(cursor));
        if (strcmp(reader->record, rows->look.rows_key) == 0 && snug_json_take(cursor, '[')) break;
        RETURN_IF_ERROR(snug_json_pass(cursor));
        snug_json_take(cursor, ',');
    }
    snug_log(reader->ctx, SNUG_LOG_INFO, "%s: its rows are the list \"%s\" of its object", reader->path,
             rows->look.rows_key);
    return SNUG_OK;
}

/* Puts a cursor at the first value of each column. */
static snug_status enter_columns(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    struct snug_json_cursor *cursor = &rows->cursor;
    RETURN_IF_ERROR(snug_alloc(reader->ctx, rows->look.keys, sizeof *rows->columns, (void **)&rows->columns));
    cursor->at++;
    do {
        int32_t column;
        const size_t before = reader->columns;
        reader->record_size = 0;
        RETURN_IF_ERROR(read_key(cursor, &column));
        snug_json_peek(cursor);
        if ((size_t)column == before) {
            rows->columns[column] = *cursor;
            rows->columns[column].at++;
            rows->columns[column].more = nothing_more;
        }
        RETURN_IF_ERROR(snug_json_pass(cursor));
    } while (snug_json_take(cursor, ','));
    snug_log(reader->ctx, SNUG_LOG_INFO, "%s: an object of columns: its lines are its rows, counted from 1",
             reader->path);
    return SNUG_OK;
}

snug_status snug_reader_json_open(struct snug_reader *reader) {
    RETURN_IF_ERROR(snug_alloc(reader->ctx, 1, sizeof *reader->json, (void **)&reader->json));
    struct snug_json_rows *rows = reader->json;
    struct snug_json_cursor *cursor = &rows->cursor;
    *cursor = (struct snug_json_cursor){
        reader, reader->buffer + reader->at, reader->buffer + reader->filled, reader->line, NULL, read_on};
    rows->first = true;
    if (snug_json_peek(cursor) == '[') {
        cursor->at++;
        rows->layout = SNUG_JSON_LIST;
    } else if (snug_json_peek(cursor) == '{') {
        RETURN_IF_ERROR(look_ahead(reader));
    }
    if (rows->layout == SNUG_JSON_LIST_IN_OBJECT) RETURN_IF_ERROR(enter_object(reader));
    if (rows->layout == SNUG_JSON_COLUMNS) {
        RETURN_IF_ERROR(enter_columns(reader));
    } else {
        RETURN_IF_ERROR(read_row(reader));
        if (!reader->columns) return snug_reader_fail_at(reader, reader->record_line, "the first object has no keys");
        rows->peeked = true;
    }
    rows->named = true;
    return SNUG_OK;
}

snug_status snug_reader_json_row(struct snug_reader *reader) {
    struct snug_json_rows *rows = reader->json;
    if (!rows->peeked) RETURN_IF_ERROR(read_row(reader));
    rows->peeked = false;
    end_row(reader);
    return SNUG_OK;
}

void snug_reader_json_free(struct snug_json_rows *rows) {
    if (!rows) return;
    free(rows->held);
    free(rows->look.rows_key);
    snug_hash_map_free(&rows->numbers);
    free(rows->values);
    free(rows->given);
    free(rows->kept);
    free(rows->set);
    free(rows->columns);
    free(rows->added_key);
    free(rows);
}

const char *snug_reader_json_added(const struct snug_reader *reader) { return reader->json->added_key; }
