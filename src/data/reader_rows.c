/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a program gives (data/rows.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "data/field_list.h"
#include "data/rows.h"
#include "io/file.h"

/* The next size bytes of the file in memory; *ended: there are none. */
static snug_status take(struct snug_reader *reader, void *data, size_t size, bool *ended) {
    for (size_t done = 0; done < size;) {
        if (reader->at == reader->filled) {
            const ssize_t got =
                snug_read_at(reader->fd, reader->buffer, sizeof reader->buffer, (uint64_t)reader->rows_taken);
            *ended = got == 0;
            if (*ended) return SNUG_OK;
            if (got < 0) return snug_fail(reader->ctx, SNUG_E_IO, "cannot read %s: %s", reader->path, strerror(errno));
            reader->rows_taken += got;
            reader->at = 0;
            reader->filled = (size_t)got;
        }
        const size_t have = reader->filled - reader->at, part = have < size - done ? have : size - done;
        memcpy((char *)data + done, reader->buffer + reader->at, part);
        reader->at += part;
        done += part;
    }
    return SNUG_OK;
}

/* Halves of surrogate pairs, which UTF-8 does not have, as Python writes them with "surrogatepass". Each is replaced by
   one U+FFFD, as in JSON, which takes as many bytes. */
static snug_status replace_halves(struct snug_reader *reader, size_t start) {
    unsigned char *text = (unsigned char *)reader->record;
    for (size_t at = start; at + 3 <= reader->record_size; at++) {
        if (text[at] != 0xed || text[at + 1] < 0xa0 || text[at + 1] > 0xbf || (text[at + 2] & 0xc0) != 0x80) continue;
        if (reader->strict)
            return snug_fail(
                reader->ctx, SNUG_E_INPUT,
                "%s:%" PRId64 ": \\u%04x is half of a surrogate pair; leave out --strict to have it replaced",
                reader->path, reader->record_line, 0xd000U | (text[at + 1] & 0x3fU) << 6 | (text[at + 2] & 0x3fU));
        if (reader->malformed.count++ == 0) reader->malformed.line = reader->record_line;
        memcpy(text + at, "\xef\xbf\xbd", 3);
    }
    return SNUG_OK;
}

/* A value's text, into the record. */
static snug_status read_text(struct snug_reader *reader, const struct snug_rows_value *head, const char **at,
                             struct snug_value_place *out) {
    *out = (struct snug_value_place){(enum snug_field_kind)head->kind, NULL, reader->record_size, head->length};
    RETURN_IF_ERROR(snug_reader_append(reader, *at, head->length));
    *at += head->length + 1;
    RETURN_IF_ERROR(replace_halves(reader, out->start));
    RETURN_IF_ERROR(snug_reader_repair(reader, out->start, reader->record_line));
    out->length = reader->record_size - out->start;
    return snug_reader_append(reader, "", 1);
}

/* A class's name in place of its number. Below 0 is no label, as in datasets: data/missing_labels.h. */
static snug_status name_class(struct snug_reader *reader, size_t column, struct snug_value_place *value) {
    size_t count;
    const char *const *names = snug_rows_class_names(reader->rows, column, &count);
    if (!names || value->kind != SNUG_FIELD_INTEGER) return SNUG_OK;
    const int64_t number = strtoll(reader->record + value->start, NULL, 10);
    value->kind = SNUG_FIELD_TEXT;
    if (number < 0) return SNUG_OK;
    if ((uint64_t)number >= count) {
        *value = snug_other_value("a number beyond its classes");
        return SNUG_OK;
    }
    reader->record_size = value->start;
    *value = (struct snug_value_place){SNUG_FIELD_TEXT, NULL, reader->record_size, strlen(names[number])};
    return snug_reader_append(reader, names[number], value->length + 1);
}

static snug_status read_value(struct snug_reader *reader, const char **at, size_t *column,
                              struct snug_value_place *out) {
    struct snug_rows_value head, item;
    memcpy(&head, *at, sizeof head);
    *at += sizeof head;
    *column = head.column;
    if (head.kind != SNUG_FIELD_LIST) {
        RETURN_IF_ERROR(read_text(reader, &head, at, out));
        return name_class(reader, *column, out);
    }
    struct snug_field_list list = snug_field_list_begin(reader);
    for (uint32_t i = 0; i < head.length; i++) {
        memcpy(&item, *at, sizeof item);
        *at += sizeof item;
        RETURN_IF_ERROR(read_text(reader, &item, at, out));
        RETURN_IF_ERROR(name_class(reader, *column, out));
        snug_field_list_add(&list, out);
    }
    return snug_field_list_end(&list, out);
}

snug_status snug_reader_rows_open(struct snug_reader *reader) {
    const char *const *names;
    const size_t count = snug_rows_columns(reader->rows, &names);
    for (size_t i = 0; i < count; i++) RETURN_IF_ERROR(snug_reader_add_name(reader, names[i]));
    RETURN_IF_ERROR(snug_alloc(reader->ctx, count, sizeof *reader->places, (void **)&reader->places));
    struct stat info = {0};
    fstat(reader->fd, &info);
    return info.st_size ? SNUG_OK : SNUG_END;
}

snug_status snug_reader_rows_row(struct snug_reader *reader) {
    static const char absent[] = "";
    struct snug_rows_head head;
    bool ended = false;
    RETURN_IF_ERROR(take(reader, &head, sizeof head, &ended));
    if (ended) return SNUG_END;
    RETURN_IF_ERROR(snug_grow(reader->ctx, (void **)&reader->row, &reader->row_capacity, head.bytes, 1));
    RETURN_IF_ERROR(take(reader, reader->row, head.bytes, &ended));
    const int64_t malformed = reader->malformed.count;
    const char *at = reader->row;
    reader->record_size = 0;
    reader->record_line = reader->index + 1;
    for (size_t i = 0; i < reader->columns; i++)
        reader->places[i] = (struct snug_value_place){SNUG_FIELD_MISSING, absent, 0, 0};
    for (uint32_t i = 0; i < head.values; i++) {
        struct snug_value_place value;
        size_t column;
        RETURN_IF_ERROR(read_value(reader, &at, &column, &value));
        reader->places[column] = reader->places[column].fixed == absent ? value : snug_other_value("two values");
    }
    for (size_t i = 0; i < reader->columns; i++) snug_reader_set_field(reader, i, &reader->places[i]);
    if (reader->malformed.count > malformed) reader->malformed.count = malformed + 1; /* rows, not texts */
    return SNUG_OK;
}
