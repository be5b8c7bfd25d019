/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: one object per line, or one list of objects. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "io/json.h"
#include "text/reader_impl.h"

static snug_status parse_record(struct snug_reader *reader) {
    json_error_t error;
    reader->object =
        snug_json_parse(reader->record, reader->record_size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (json_is_object(reader->object)) return SNUG_OK;
    if (!reader->object && snug_json_status(&error) == SNUG_E_MEMORY) /* may be untested: an allocation that fails */
        return snug_fail(reader->ctx, SNUG_E_MEMORY, "%s:%" PRId64 ": out of memory while reading the row",
                         reader->path, reader->record_line);
    int64_t line = reader->record_line + (reader->object ? 0 : error.line - 1);
    return snug_fail(reader->ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": %s; a JSON file must have one object per line, or one list of objects",
                     reader->path, line, reader->object ? "found a list instead of an object" : error.text);
}

/* Appends one object to the record, from its brace to the matching one. */
static snug_status read_object(struct snug_reader *reader) {
    bool in_string = false, escaped = false;
    int64_t depth = 0;
    reader->record_size = 0;
    reader->record_line = reader->line;
    do {
        if (reader->at == reader->filled && !snug_reader_refill(reader)) {
            RETURN_IF_ERROR(reader->input_status);
            return snug_reader_fail_at(reader, reader->record_line, "the file ends within the object that begins here");
        }
        size_t start = reader->at;
        do {
            char byte = reader->buffer[reader->at++];
            reader->line += byte == '\n';
            if (escaped) {
                escaped = false;
            } else if (in_string) {
                escaped = byte == '\\';
                in_string = byte != '"';
            } else {
                in_string = byte == '"';
                depth += (byte == '{' || byte == '[') - (byte == '}' || byte == ']');
            }
        } while (reader->at < reader->filled && depth > 0);
        RETURN_IF_ERROR(snug_reader_append(reader, reader->buffer + start, reader->at - start));
    } while (depth > 0);
    return snug_reader_check_utf8(reader, 0, reader->record_line);
}

/* The next element of an array whose bracket was read; SNUG_END after its last. */
static snug_status read_element(struct snug_reader *reader, bool first) {
    int byte = snug_reader_peek(reader);
    bool comma = byte == ',' && !first;
    if (comma) {
        reader->at++;
        byte = snug_reader_peek(reader);
    }
    if (byte == '{' && (comma || first)) {
        RETURN_IF_ERROR(read_object(reader));
        return parse_record(reader);
    }
    RETURN_IF_ERROR(reader->input_status);
    if (byte < 0)
        return snug_reader_fail_at(reader, reader->line, "the file ends before its list does: it is truncated");
    if (byte != ']' || comma)
        return snug_reader_fail_at(reader, reader->line, "a list must hold objects, separated by commas");
    reader->at++;
    if (snug_reader_peek(reader) >= 0) return snug_reader_fail_at(reader, reader->line, "there is text after the list");
    return reader->input_status == SNUG_OK ? SNUG_END : reader->input_status;
}

/* Text of a number, or of a list's item; NULL if the value is neither number nor string. */
static snug_status scalar_text(struct snug_reader *reader, const json_t *value, char **out) {
    *out = NULL;
    if (json_is_string(value) && json_string_length(value) != strlen(json_string_value(value)))
        return snug_reader_fail_at(reader, reader->record_line, "\\u0000 in a list: only a text may contain it");
    if (json_is_string(value)) return snug_strdup(reader->ctx, json_string_value(value), out);
    if (json_is_number(value)) return snug_json_text(reader->ctx, value, JSON_ENCODE_ANY, out);
    return SNUG_OK;
}

static struct snug_field other(const char *text) { return (struct snug_field){SNUG_FIELD_OTHER, text, strlen(text)}; }

/* Joins a list's items by '|'. *out is NULL if they could not be split again, or are not scalars: field says so. */
static snug_status list_text(struct snug_reader *reader, const json_t *list, char **out, struct snug_field *field) {
    size_t index, length = 0, capacity = 0;
    json_t *item;
    void *joined = NULL;
    RETURN_IF_ERROR(snug_grow(reader->ctx, &joined, &capacity, 1, 1));
    json_array_foreach(list, index, item) {
        char *text;
        snug_status status = scalar_text(reader, item, &text);
        bool usable = text && *text && !strchr(text, '|');
        size_t size = usable ? strlen(text) : 0;
        if (usable) status = snug_grow(reader->ctx, &joined, &capacity, length + size + 2, 1);
        if (usable && status == SNUG_OK) {
            if (index) ((char *)joined)[length++] = '|';
            memcpy((char *)joined + length, text, size);
            length += size;
        }
        if (!usable && text)
            *field = other(*text ? "a list with an item that holds '|', by which snug separates labels: rename it"
                                 : "a list with an empty item");
        free(text);
        if (!usable || status != SNUG_OK) {
            free(joined);
            return status;
        }
    }
    ((char *)joined)[length] = '\0';
    *out = joined;
    field->kind = SNUG_FIELD_LIST;
    return SNUG_OK;
}

/* A list of words or tags: its items, NUL-terminated. *out is NULL if they are neither all strings nor all integers. */
static snug_status words_text(struct snug_reader *reader, const json_t *list, char **out, struct snug_field *field) {
    size_t index, length = 0, capacity = 0, strings = 0, integers = 0;
    json_t *item;
    void *joined = NULL;
    RETURN_IF_ERROR(snug_grow(reader->ctx, &joined, &capacity, 1, 1));
    json_array_foreach(list, index, item) {
        char *text = NULL;
        strings += json_is_string(item);
        integers += json_is_integer(item);
        if (strings != index + 1 && integers != index + 1) break;
        snug_status status = scalar_text(reader, item, &text);
        const size_t size = text ? strlen(text) + 1 : 0; /* untested: a list item of null */
        if (status == SNUG_OK) status = snug_grow(reader->ctx, &joined, &capacity, length + size + 1, 1);
        if (status == SNUG_OK && text) memcpy((char *)joined + length, text, size); /* untested: a list item of null */
        free(text);
        if (status != SNUG_OK) {
            free(joined);
            return status;
        }
        length += size;
    }
    if (index < json_array_size(list)) {
        free(joined);
        return SNUG_OK;
    }
    ((char *)joined)[length] = '\0';
    *out = joined;
    *field = (struct snug_field){integers ? SNUG_FIELD_NUMBERS : SNUG_FIELD_WORDS, joined, length};
    return SNUG_OK;
}

static snug_status field_of(struct snug_reader *reader, const json_t *value, char **made, struct snug_field *field) {
    *field = other("an object");
    switch (json_typeof(value)) {
    case JSON_NULL: field->kind = SNUG_FIELD_MISSING; return SNUG_OK;
    case JSON_STRING:
        *field = (struct snug_field){SNUG_FIELD_TEXT, json_string_value(value), json_string_length(value)};
        return SNUG_OK;
    case JSON_INTEGER:
    case JSON_REAL:
        RETURN_IF_ERROR(scalar_text(reader, value, made));
        field->kind = json_is_integer(value) ? SNUG_FIELD_INTEGER : SNUG_FIELD_REAL;
        break;
    case JSON_ARRAY:
        *field = other("a list of other values");
        if (reader->words) return words_text(reader, value, made, field);
        RETURN_IF_ERROR(list_text(reader, value, made, field));
        break;
    case JSON_TRUE: *field = (struct snug_field){SNUG_FIELD_BOOLEAN, "True", 4}; return SNUG_OK;
    case JSON_FALSE: *field = (struct snug_field){SNUG_FIELD_BOOLEAN, "False", 5}; return SNUG_OK;
    default: break;
    }
    if (*made) {
        field->text = *made;
        field->length = strlen(*made);
    }
    return SNUG_OK;
}

/* Remembers a key that the first row does not have. */
static snug_status note_added_key(struct snug_reader *reader, const char *key) {
    if (reader->added_key) return SNUG_OK;
    reader->added.line = reader->record_line;
    return snug_strdup(reader->ctx, key, &reader->added_key);
}

void snug_reader_forget_row(struct snug_reader *reader) {
    json_decref(reader->object);
    reader->object = NULL;
    for (size_t i = 0; i < reader->set_count; i++) {
        const size_t column = reader->set[i];
        free(reader->made[column]);
        reader->made[column] = NULL;
        reader->fields[column] = (struct snug_field){SNUG_FIELD_MISSING, "", 0};
    }
    reader->set_count = 0;
}

snug_status snug_reader_json(struct snug_reader *reader, bool first) {
    if (reader->form == SNUG_DATA_JSON_ARRAY) return read_element(reader, first);
    RETURN_IF_ERROR(snug_reader_filled_line(reader));
    snug_reader_trim(reader);
    return parse_record(reader);
}

snug_status snug_reader_json_row(struct snug_reader *reader) {
    if (!reader->peeked) {
        snug_reader_forget_row(reader);
        RETURN_IF_ERROR(snug_reader_json(reader, false));
    }
    reader->peeked = false;
    bool added = false;
    const char *key;
    json_t *value;
    json_object_foreach(reader->object, key, value) {
        const json_t *place = json_object_get(reader->column_of, key);
        if (place) {
            const size_t column = reader->set[reader->set_count++] = (size_t)json_integer_value(place);
            RETURN_IF_ERROR(field_of(reader, value, &reader->made[column], &reader->fields[column]));
        } else {
            added = true;
            RETURN_IF_ERROR(note_added_key(reader, key));
        }
    }
    reader->added.count += added;
    return SNUG_OK;
}
