/* SPDX-License-Identifier: Apache-2.0 */
/* CSV and TSV. */
#include <inttypes.h>
#include <string.h>

#include "data/reader_impl.h"

static snug_status add_span(struct snug_reader *reader, size_t start, size_t end) {
    void *grown = reader->spans;
    RETURN_IF_ERROR(
        snug_grow(reader->ctx, &grown, &reader->span_capacity, reader->span_count + 1, sizeof *reader->spans));
    reader->spans = grown;
    reader->spans[reader->span_count++] = (struct span){start, end - start};
    return SNUG_OK;
}

/* The last line of the record, which CSV may take from several. */
static int64_t last_line(const struct snug_reader *reader) {
    return reader->line - (reader->record[reader->record_size - 1] == '\n');
}

/* Moves a quoted field from *from, where its quote opens, to *to, without quotes; reads further lines as needed. */
static snug_status unquote(struct snug_reader *reader, size_t *from, size_t *to) {
    int64_t line = last_line(reader);
    for (size_t at = *from + 1;;) {
        size_t plain = strcspn(reader->record + at, "\"");
        memmove(reader->record + *to, reader->record + at, plain);
        *to += plain;
        at += plain;
        if (reader->record[at] == '\0') {
            snug_status status = snug_reader_line(reader);
            if (status == SNUG_END) return snug_reader_fail_at(reader, line, "a quote that opens here is never closed");
            RETURN_IF_ERROR(status);
        } else if (reader->record[at + 1] == '"') {
            reader->record[(*to)++] = '"';
            at += 2;
        } else {
            *from = at + 1;
            return SNUG_OK;
        }
    }
}

/* The record's fields into spans. They are unquoted in place: the output is never longer than the input, so lines can
   be appended. */
static snug_status split_quoted(struct snug_reader *reader) {
    size_t from = 0, to = 0;
    const char stops[] = {reader->separator, '\r', '\n', '\0'};
    char separator = reader->separator;
    for (reader->span_count = 0; separator == reader->separator;) {
        size_t start = to;
        bool quoted = reader->record[from] == '"';
        if (quoted) {
            RETURN_IF_ERROR(unquote(reader, &from, &to));
        } else {
            size_t plain = strcspn(reader->record + from, stops);
            memmove(reader->record + to, reader->record + from, plain);
            to += plain;
            from += plain;
        }
        separator = reader->record[from++];
        bool line_end = separator == '\r' && strchr("\n", reader->record[from]);
        if (separator && separator != reader->separator && separator != '\n' && !line_end)
            return snug_reader_fail_at(
                reader, last_line(reader),
                quoted ? "text follows a closing quote; write a quote within quotes as \"\""
                       : "a carriage return within a field; quote the field, or end lines with \\n or \\r\\n");
        RETURN_IF_ERROR(add_span(reader, start, to));
        reader->record[to++] = '\0';
    }
    return SNUG_OK;
}

/* Semicolons separate where the header has some outside of quotes, and no comma there. */
static void choose_separator(struct snug_reader *reader) {
    bool quoted = false, comma = false, semicolon = false;
    for (const char *at = reader->record; *at; at++) {
        quoted ^= *at == '"';
        comma |= !quoted && *at == ',';
        semicolon |= !quoted && *at == ';';
    }
    if (comma || !semicolon) return;
    reader->separator = ';';
    snug_log(reader->ctx, SNUG_LOG_INFO, "%s: its header has semicolons and no comma: its fields are separated by ;",
             reader->path);
}

static snug_status read_csv(struct snug_reader *reader) {
    RETURN_IF_ERROR(snug_reader_filled_line(reader));
    if (!reader->columns) choose_separator(reader);
    return split_quoted(reader);
}

/* Whether a whole field is quoted, with each quote within it doubled; *doubled: there are such quotes. */
static bool is_quoted(const char *text, size_t length, bool *doubled) {
    *doubled = false;
    if (length < 2 || *text != '"' || text[length - 1] != '"') return false;
    for (size_t i = 1; i < length - 1; i++) {
        if (text[i] != '"') continue;
        if (++i == length - 1 || text[i] != '"') return false;
        *doubled = true;
    }
    return true;
}

/* Whether all of a header's names are quoted: then every field may be, and is read as in CSV. */
static bool is_quoted_header(const struct snug_reader *reader) {
    bool doubled;
    for (size_t i = 0; i < reader->span_count; i++)
        if (!is_quoted(reader->record + reader->spans[i].start, reader->spans[i].length, &doubled)) return false;
    return true;
}

/* Notes a record of a TSV file with quoted fields. */
static void note_quotes(struct snug_reader *reader) {
    if (reader->unquoted.count++ == 0) reader->unquoted.line = reader->record_line;
}

/* Ends the fields of a line with NULs. pandas quotes a field that contains a quote, and doubles it; a quoted field
   without a quote in it is not pandas', but text, as in GLUE's files. */
static void end_fields(struct snug_reader *reader) {
    bool doubled, noted = false;
    for (size_t i = 0; i < reader->span_count; i++) {
        struct span *span = &reader->spans[i];
        char *text = reader->record + span->start;
        text[span->length] = '\0';
        if (!reader->columns || !is_quoted(text, span->length, &doubled) || !doubled) continue;
        size_t to = 0;
        for (size_t from = 1; from < span->length - 1; from++) {
            text[to++] = text[from];
            from += text[from] == '"';
        }
        text[span->length = to] = '\0';
        if (!noted) note_quotes(reader);
        noted = true;
    }
}

/* A line with too few or too many tabs, in which a field begins with a quote: pandas' quotes may hold tabs and line
   breaks. *count: fields without regard to quotes. */
static snug_status read_quoted_tsv(struct snug_reader *reader, size_t count) {
    const snug_status status = split_quoted(reader);
    if (status == SNUG_OK && reader->span_count == reader->columns) {
        note_quotes(reader);
        return SNUG_OK;
    }
    if (status != SNUG_OK && status != SNUG_E_INPUT) return status;
    if (status != SNUG_OK) snug_clear_error(reader->ctx);
    reader->span_count = count; /* the caller reports it */
    return SNUG_OK;
}

static snug_status read_tsv(struct snug_reader *reader) {
    bool opens = false;
    RETURN_IF_ERROR(snug_reader_filled_line(reader));
    if (reader->quoted) return split_quoted(reader);
    const size_t whole = reader->record_size;
    snug_reader_trim(reader);
    reader->span_count = 0;
    for (size_t start = 0, end; start <= reader->record_size; start = end + 1) {
        end = start + strcspn(reader->record + start, "\t");
        opens |= reader->record[start] == '"';
        RETURN_IF_ERROR(add_span(reader, start, end));
    }
    if (!reader->columns && is_quoted_header(reader)) {
        reader->quoted = true;
        return split_quoted(reader);
    }
    if (opens && reader->columns && reader->span_count != reader->columns) {
        /* The line's end, which trimming replaced, is a part of a quoted field. */
        const bool carriage = whole - reader->record_size == 2;
        const size_t ended = whole - reader->record_size;
        if (ended) memcpy(reader->record + reader->record_size, carriage ? "\r\n" : "\n", ended + 1);
        reader->record_size = whole;
        return read_quoted_tsv(reader, reader->span_count);
    }
    end_fields(reader);
    return SNUG_OK;
}

/* One row of the table; the header when columns is still 0. */
snug_status snug_reader_table_row(struct snug_reader *reader) {
    RETURN_IF_ERROR(reader->form == SNUG_DATA_CSV ? read_csv(reader) : read_tsv(reader));
    if (reader->columns && reader->span_count != reader->columns)
        return snug_fail(reader->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": row has %zu field%s, the header has %zu; %s",
                         reader->path, reader->record_line, reader->span_count, reader->span_count == 1 ? "" : "s",
                         reader->columns,
                         reader->form == SNUG_DATA_CSV ? "quote a field that holds the separator: \"a, b\""
                                                       : "a field holds a tab or a line break only if it is quoted");
    for (size_t i = 0; i < reader->columns; i++)
        reader->fields[i] =
            (struct snug_field){SNUG_FIELD_TEXT, reader->record + reader->spans[i].start, reader->spans[i].length};
    return SNUG_OK;
}
