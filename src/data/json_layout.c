/* SPDX-License-Identifier: Apache-2.0 */
#include "data/json_layout.h"

#include <stdlib.h>
#include <string.h>

/* ---- looking -------------------------------------------------------------------------------------------------- */

static void note_length(struct snug_json_look *look, int64_t length) {
    if (look->lists + look->objects == 0) look->length = length;
    if (look->length != length) look->length = -1;
}

static snug_status note_rows_key(snug_context *ctx, struct snug_json_look *look, const char *key) {
    if (look->lists_of_objects++ && strcmp(key, "data") != 0) return SNUG_OK;
    free(look->rows_key);
    return snug_strdup(ctx, key, &look->rows_key);
}

static snug_status look_at_list(struct snug_json_cursor *cursor, struct snug_json_look *look, const char *key) {
    int64_t length = 0;
    cursor->at++;
    const int first = snug_json_peek(cursor);
    if (first == '{') RETURN_IF_ERROR(note_rows_key(cursor->reader->ctx, look, key));
    look->lists_of_lists += first == '[';
    if (first != ']') do {
            RETURN_IF_ERROR(snug_json_pass(cursor));
            length++;
        } while (snug_json_take(cursor, ','));
    if (!snug_json_take(cursor, ']')) return snug_json_fail(cursor, "a list needs a comma or ] here");
    note_length(look, length);
    look->lists++;
    return SNUG_OK;
}

/* Columns as pandas' to_json() writes them are objects with row numbers. */
static snug_status look_at_object(struct snug_json_cursor *cursor, struct snug_json_look *look) {
    struct snug_reader *reader = cursor->reader;
    int64_t length = 0;
    bool numbers = true;
    cursor->at++;
    if (snug_json_peek(cursor) != '}') do {
            const size_t before = reader->record_size;
            RETURN_IF_ERROR(snug_json_key(cursor));
            const char *key = reader->record + before;
            numbers &= *key && !key[strspn(key, "0123456789")];
            reader->record_size = before;
            RETURN_IF_ERROR(snug_json_pass(cursor));
            length++;
        } while (snug_json_take(cursor, ','));
    if (!snug_json_take(cursor, '}')) return snug_json_fail(cursor, "an object needs a comma or } here");
    if (numbers) note_length(look, length);
    *(numbers ? &look->objects : &look->scalars) += 1;
    return SNUG_OK;
}

snug_status snug_json_look(struct snug_json_cursor *cursor, struct snug_json_look *look) {
    struct snug_reader *reader = cursor->reader;
    cursor->at++;
    if (snug_json_peek(cursor) != '}') do {
            reader->record_size = 0;
            RETURN_IF_ERROR(snug_json_key(cursor));
            look->keys++;
            const int byte = snug_json_peek(cursor);
            if (byte == '[') {
                char *key;
                RETURN_IF_ERROR(snug_strdup(reader->ctx, reader->record, &key));
                const snug_status status = look_at_list(cursor, look, key);
                free(key);
                RETURN_IF_ERROR(status);
            } else if (byte == '{') {
                RETURN_IF_ERROR(look_at_object(cursor, look));
            } else {
                RETURN_IF_ERROR(snug_json_pass(cursor));
                look->scalars++;
            }
        } while (snug_json_take(cursor, ','));
    if (!snug_json_take(cursor, '}')) return snug_json_fail(cursor, "an object needs a comma or } here");
    look->only = snug_json_peek(cursor) < 0 && !look->cut;
    return SNUG_OK;
}

/* ---- deciding ------------------------------------------------------------------------------------------------- */

/* A column may hold objects, but not every one does. */
bool snug_json_may_be_columns(const struct snug_json_look *look) {
    return !look->scalars && look->lists_of_objects <= look->lists;
}

#define AS_LINES "write a row a line (JSON Lines; pandas: to_json(FILE, orient=\"records\", lines=True))"

static snug_status layout_of_columns(const struct snug_reader *reader, const struct snug_json_look *look,
                                     enum snug_json_layout *out) {
    const bool rows_of_words = reader->words && !look->objects && !look->lists_of_lists; /* {"tokens": ["a", "b"]} */
    if (rows_of_words) return SNUG_OK;
    if (look->cut)
        return snug_fail(reader->ctx, SNUG_E_INPUT,
                         "%s: an object of columns, of over 256 MiB, which would be held in memory: " AS_LINES,
                         reader->path);
    if (look->length < 0)
        return snug_fail(
            reader->ctx, SNUG_E_INPUT,
            "%s: an object of lists of different lengths: as columns they must have the same; or " AS_LINES,
            reader->path);
    if (look->length == 0) return snug_fail(reader->ctx, SNUG_E_INPUT, "%s is empty: it holds no row", reader->path);
    *out = SNUG_JSON_COLUMNS;
    return SNUG_OK;
}

snug_status snug_json_layout_of(const struct snug_reader *reader, const struct snug_json_look *look,
                                enum snug_json_layout *out) {
    const char *key = look->rows_key;
    *out = SNUG_JSON_OBJECTS;
    if (!look->only && !look->cut) return SNUG_OK;
    if (key && snug_reader_keeps(reader, key)) return SNUG_OK; /* a list of messages, in a row */
    if (key && (strcmp(key, "data") == 0 || look->keys == 1)) {
        *out = SNUG_JSON_LIST_IN_OBJECT;
        return SNUG_OK;
    }
    const bool columns = look->keys && !look->scalars && (look->objects || look->lists_of_objects < look->lists);
    if (columns) return layout_of_columns(reader, look, out);
    if (key && (!look->scalars || look->cut))
        return snug_fail(reader->ctx, SNUG_E_INPUT,
                         "%s: an object with lists of objects, and it is not clear which has the rows: call it "
                         "\"data\", or give the rows of one alone, as in jq -c '.\"%s\"[]' %s | snug … --train_file - "
                         "--data_format json",
                         reader->path, key, reader->path);
    if (!key) return SNUG_OK;
    snug_log(reader->ctx, SNUG_LOG_INFO,
             "%s: its only object is read as a row: its list \"%s\" would have the rows if it were called \"data\"",
             reader->path, key);
    return SNUG_OK;
}
