/* SPDX-License-Identifier: Apache-2.0 */
/* A value of a row of data. */
#ifndef SNUG_DATA_FIELD_H
#define SNUG_DATA_FIELD_H

#include <stdbool.h>
#include <stddef.h>

enum snug_field_kind {
    SNUG_FIELD_MISSING, /* the row has no such key ("") or no value: text says what is there, as "null", "NaN" */
    SNUG_FIELD_TEXT,
    SNUG_FIELD_INTEGER, /* JSON number without fraction, of 64 bits; text as written */
    SNUG_FIELD_REAL,    /* any other; text as Python prints it */
    SNUG_FIELD_LIST,    /* JSON list of strings or numbers: its items as text, joined by '|' */
    SNUG_FIELD_WORDS,   /* if rows are words: a list of strings, NUL-terminated */
    SNUG_FIELD_NUMBERS, /* the same: a list of integers, as text */
    SNUG_FIELD_BOOLEAN, /* JSON boolean, written as Python writes it: a label, but no text */
    SNUG_FIELD_OTHER,   /* cannot be used; text says what it is: "an object" */
    SNUG_FIELD_JSON,    /* a list or an object, as JSON text: of the columns that the reader is to keep so */
};

struct snug_field {
    enum snug_field_kind kind;
    const char *text; /* NUL-terminated, also after the NUL of a last word; valid until the next row */
    size_t length;
};

/* Whether a field can be a text: a string, or a number as it is written. */
static inline bool snug_field_is_text(const struct snug_field *field) {
    return field->kind == SNUG_FIELD_TEXT || field->kind == SNUG_FIELD_INTEGER || field->kind == SNUG_FIELD_REAL;
}

#endif
