/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of JSON, read one after the other from the bytes of a data file, which may come in parts. They become texts in
 * the reader's record. Nothing that can be passed over is an error: the columns that are used are not known here.
 *
 * NaN, Infinity and -Infinity, which Python writes, are missing values. Half of a surrogate pair, as \ud83d, is
 * replaced as malformed UTF-8 is.
 */
#ifndef SNUG_DATA_JSON_CURSOR_H
#define SNUG_DATA_JSON_CURSOR_H

#include "data/reader_impl.h"

struct snug_json_cursor {
    struct snug_reader *reader; /* has the record, and what was replaced */
    const char *at, *end;       /* of the part that is in memory */
    int64_t line;
    const char *column; /* the one that is being read, for messages; NULL: none */
    /* Provides the next part; false at the end, or with an error in the reader's input_status. */
    bool (*more)(struct snug_json_cursor *cursor);
};

/* Fails with the file, the line and the column. */
snug_status snug_json_fail(struct snug_json_cursor *cursor, const char *what);
/* The next byte that is not a blank, which is not taken; -1 at the end or on failure. */
int snug_json_peek(struct snug_json_cursor *cursor);
/* Takes the next byte that is not a blank if it is this one. */
bool snug_json_take(struct snug_json_cursor *cursor, char byte);
/* A key of an object, appended to the record with a NUL after it, and its colon. A NUL within it becomes a question
   mark: names are C strings. */
snug_status snug_json_key(struct snug_json_cursor *cursor);
/* Any value. Lists are joined by '|', or if the reader's rows are words, their items are NUL-terminated. */
snug_status snug_json_value(struct snug_json_cursor *cursor, struct snug_value_place *out);
/* As snug_json_value(), but a list or an object is its JSON text. */
snug_status snug_json_keep(struct snug_json_cursor *cursor, struct snug_value_place *out);
/* Passes over any value; the record stays as it is. */
snug_status snug_json_pass(struct snug_json_cursor *cursor);

#endif
