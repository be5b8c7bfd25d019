/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of readers: the rows of a file as text. */
#ifndef SNUG_TESTS_READER_FIXTURE_H
#define SNUG_TESTS_READER_FIXTURE_H

#include "data/reader.h"
#include "scratch.h"

static const struct snug_reader_options strictly = {.strict = true};

/* All rows as text, for comparison: fields joined by '~', rows by newlines, each with its index and line; a kind other
   than TEXT is a letter and a colon before the field, and of lists of words each has a '/' after it. The header is
   first. */
static inline snug_status dump_rows(struct snug_reader *reader, char *out, size_t size) {
    const char *const *names;
    size_t columns = snug_reader_columns(reader, &names), used = 0;
    for (size_t i = 0; i < columns; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "~" : "", names[i]);
    struct snug_row row;
    snug_status status;
    while ((status = snug_reader_next(reader, &row)) == SNUG_OK) {
        assert_int_equal(row.count, columns);
        used += (size_t)snprintf(out + used, size - used, "\n%d@%d ", (int)row.index, (int)row.line);
        for (size_t i = 0; i < row.count; i++) {
            static const char *const kinds[] = {"M:", "", "I:", "R:", "L:", "W:", "N:", "B:", "O:", "J:"};
            const struct snug_field *field = &row.fields[i];
            if (field->kind == SNUG_FIELD_WORDS || field->kind == SNUG_FIELD_NUMBERS) {
                used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "~" : "", kinds[field->kind]);
                for (const char *word = field->text; word < field->text + field->length; word += strlen(word) + 1)
                    used += (size_t)snprintf(out + used, size - used, "%s/", word);
                continue;
            }
            if (field->kind != SNUG_FIELD_MISSING) assert_int_equal(strlen(field->text), field->length);
            used += (size_t)snprintf(out + used, size - used, "%s%s%s", i ? "~" : "", kinds[field->kind],
                                     field->kind == SNUG_FIELD_MISSING ? "" : field->text);
        }
        assert_true(used < size);
    }
    if (status == SNUG_END) assert_int_equal(snug_reader_next(reader, &row), SNUG_END);
    return status == SNUG_END ? SNUG_OK : status;
}

static inline snug_status dump_with(struct scratch *scratch, const char *path,
                                    const struct snug_reader_options *options, char *out, size_t size) {
    struct snug_reader *reader;
    RETURN_IF_ERROR(snug_reader_open(scratch->ctx, path, options, &reader));
    const snug_status status = dump_rows(reader, out, size);
    snug_reader_close(reader);
    return status;
}

static inline snug_status dump_as(struct scratch *scratch, const char *path, bool strict, bool words, char *out,
                                  size_t size) {
    const struct snug_reader_options options = {.strict = strict, .words = words};
    return dump_with(scratch, path, &options, out, size);
}

static inline snug_status dump(struct scratch *scratch, const char *path, bool strict, char *out, size_t size) {
    return dump_as(scratch, path, strict, false, out, size);
}

static inline void reads(struct scratch *scratch, const char *name, const char *content, const char *expected) {
    char found[4096] = "";
    assert_ok(scratch,
              dump(scratch, scratch_write(scratch, name, content, strlen(content)), true, found, sizeof found));
    assert_string_equal(found, expected);
}

static inline void refuses(struct scratch *scratch, const char *name, const char *content, const char *sentence) {
    char found[4096];
    const char *path = scratch_write(scratch, name, content, strlen(content));
    snug_status status = dump(scratch, path, true, found, sizeof found);
    assert_contains(snug_error_message(scratch->ctx), name);
    assert_fails(scratch, status, SNUG_E_INPUT, sentence);
}

#endif
