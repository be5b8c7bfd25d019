/* SPDX-License-Identifier: Apache-2.0 */
#include "data/labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/hash_map.h"

/* ---- the table of raw labels ---------------------------------------------------------------------------------- */

void snug_raw_labels_free(struct snug_raw_labels *raw) {
    free(raw->text);
    free(raw->items);
    free(raw->slots);
    *raw = (struct snug_raw_labels){0};
}

const char *snug_raw_labels_text(const struct snug_raw_labels *raw, size_t number) {
    return raw->text + raw->items[number].offset;
}

/* The slot of text, or the free slot for it. */
static size_t find_slot(const struct snug_raw_labels *raw, const char *text, size_t length) {
    size_t slot = (size_t)XXH3_64bits(text, length) & (raw->slot_count - 1);
    while (raw->slots[slot]) {
        const char *known = snug_raw_labels_text(raw, raw->slots[slot] - 1);
        if (strlen(known) == length && memcmp(known, text, length) == 0) break;
        slot = (slot + 1) & (raw->slot_count - 1);
    }
    return slot;
}

static snug_status grow_slots(snug_context *ctx, struct snug_raw_labels *raw) {
    void *slots;
    size_t wanted = raw->slot_count ? raw->slot_count * 2 : 64;
    RETURN_IF_ERROR(snug_alloc(ctx, wanted, sizeof *raw->slots, &slots));
    free(raw->slots);
    raw->slots = slots;
    raw->slot_count = wanted;
    for (size_t i = 0; i < raw->count; i++) {
        const char *text = snug_raw_labels_text(raw, i);
        raw->slots[find_slot(raw, text, strlen(text))] = (uint32_t)i + 1;
    }
    return SNUG_OK;
}

static snug_status intern(snug_context *ctx, struct snug_raw_labels *raw, const char *text, size_t length, int64_t line,
                          uint32_t *number) {
    if (2 * (raw->count + 1) > raw->slot_count) RETURN_IF_ERROR(grow_slots(ctx, raw));
    size_t slot = find_slot(raw, text, length);
    if (!raw->slots[slot]) {
        if (raw->count >= UINT32_MAX - 1)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED, "line %" PRId64 ": more than 4 billion different labels", line);
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&raw->text, &raw->text_capacity, raw->text_size + length + 1, 1));
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&raw->items, &raw->capacity, raw->count + 1, sizeof *raw->items));
        memcpy(raw->text + raw->text_size, text, length);
        raw->text[raw->text_size + length] = '\0';
        raw->items[raw->count] = (struct snug_raw_label){.line = line, .offset = raw->text_size};
        raw->text_size += length + 1;
        raw->slots[slot] = (uint32_t)++raw->count;
    }
    *number = raw->slots[slot] - 1;
    return SNUG_OK;
}

/* ---- one column ------------------------------------------------------------------------------------------------ */

/* Texts that other programs write for a missing number: in a column of words a word, among numbers an error. */
static bool is_nonfinite(const char *text) {
    text += *text == '-' || *text == '+';
    return strcasecmp(text, "nan") == 0 || strcasecmp(text, "inf") == 0 || strcasecmp(text, "infinity") == 0;
}

void snug_label_column_free(struct snug_label_column *column) {
    snug_raw_labels_free(&column->raw);
    free(column->numbers);
    free(column->seen);
    if (column->plain) freelocale(column->plain);
    *column = (struct snug_label_column){0};
}

static snug_status add_number(snug_context *ctx, struct snug_label_column *column, const char *text, size_t length,
                              int64_t line, bool *twice) {
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&column->numbers, &column->capacity, column->count + 1, sizeof *column->numbers));
    uint32_t number = 0;
    const size_t before = column->raw.count;
    RETURN_IF_ERROR(intern(ctx, &column->raw, text, length, line, &number));
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&column->seen, &column->seen_capacity, column->raw.count, sizeof *column->seen));
    *twice = number < before && column->seen[number] == column->rows;
    if (*twice) return SNUG_OK; /* it counts once */
    column->raw.items[number].rows++;
    column->seen[number] = column->rows;
    column->numbers[column->count++] = number;
    return SNUG_OK;
}

/* The value of a number; a number that no float can hold is kept as text, and is an error when it is used. */
static snug_status add_value(snug_context *ctx, struct snug_label_column *column, const char *text) {
    if (!column->plain) RETURN_IF_ERROR(snug_plain_locale(ctx, &column->plain));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&column->numbers, &column->capacity, 2, sizeof *column->numbers));
    const float value = (float)strtod_l(text, NULL, column->plain);
    if (!isfinite(value)) return SNUG_OK;
    column->numbers[0] = SNUG_LABEL_VALUE;
    memcpy(&column->numbers[1], &value, sizeof value);
    column->count = 2;
    return SNUG_OK;
}

static snug_status add_list(snug_context *ctx, struct snug_label_column *column, const char *text, size_t length,
                            const char *separator, int64_t line) {
    const size_t width = strlen(separator);
    bool twice;
    column->list = true;
    for (const char *end = text + length; text < end;) {
        const char *at = memmem(text, (size_t)(end - text), separator, width), *stop = at ? at : end;
        if (stop > text) RETURN_IF_ERROR(add_number(ctx, column, text, (size_t)(stop - text), line, &twice));
        text = stop + width;
    }
    return SNUG_OK;
}

/* A JSON list of names or numbers of classes. Other numbers, or a number twice, are most often zeros and ones for all
   classes that were damaged. */
static snug_status add_items(snug_context *ctx, struct snug_label_column *column, const char *path, int64_t line,
                             const struct snug_field *field) {
    char item[64];
    column->list = true;
    for (const char *text = field->text, *end = text + field->length; text < end;) {
        const size_t length = strcspn(text, "|");
        bool twice;
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        const enum snug_number_kind kind = length < sizeof item ? snug_number_kind(item) : SNUG_NUMBER_NONE;
        RETURN_IF_ERROR(add_number(ctx, column, text, length, line, &twice));
        if (kind == SNUG_NUMBER_REAL || (kind == SNUG_NUMBER_INTEGER && twice))
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s:%" PRId64
                             ": the label is a list that holds %s%s: give zeros and ones, as many in every "
                             "row as there are classes, or the names or numbers of the row's classes, each once",
                             path, line, item, twice ? " twice" : "");
        text += length + 1;
    }
    return SNUG_OK;
}

/* ---- lists of zeros and ones ----------------------------------------------------------------------------------- */

/* Skips a zero or one, also written as 0.0 or 1.0, and the '|' after it; NULL if text begins with another item. */
static const char *skip_hot(const char *text) {
    if (*text != '0' && *text != '1') return NULL;
    text++;
    if (text[0] == '.' && text[1] == '0') text += 2;
    return *text == '|' ? text + 1 : *text ? NULL : text;
}

/* The length of a list of zeros and ones, as the reader joins it; 0 if it is another list. */
static int64_t count_hot(const struct snug_field *field) {
    int64_t count = 0;
    if (field->kind != SNUG_FIELD_LIST) return 0;
    for (const char *text = field->text; *text; count++)
        if (!(text = skip_hot(text))) return 0;
    return count;
}

snug_status snug_label_hot(snug_context *ctx, const char *path, const struct snug_peek *peek, size_t column,
                           int64_t *out) {
    int64_t hot = 0, other = 0, line = 0, odd_line = 0;
    bool real = false;
    *out = 0;
    for (size_t i = 0; i < peek->count; i++) {
        const struct snug_field *field = &peek->rows[i].fields[column];
        if (field->kind == SNUG_FIELD_MISSING) continue;
        const int64_t here = count_hot(field);
        if (!here && !odd_line) odd_line = peek->rows[i].line;
        if (!here) continue;
        real |= strchr(field->text, '.') != NULL;
        if (!hot) hot = here;
        if (here == hot || other) continue;
        other = here;
        line = peek->rows[i].line;
    }
    if (odd_line && real) /* these are no names of classes */
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64
                         ": the label is not a list of zeros and ones, as those of other rows: give as many "
                         "in every row as there are classes",
                         path, odd_line);
    if (odd_line) return SNUG_OK;
    if (other)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the label is a list of %" PRId64
                         " zeros and ones, and those before have %" PRId64
                         ": give as many in every row as there are classes; or, if they are the classes 0 and 1, write "
                         "them as text, as in \"0|1\", and give --label_separator \"|\"",
                         path, line, other, hot);
    if (hot > 1) *out = hot;
    return SNUG_OK;
}

snug_status snug_label_column_begin_hot(snug_context *ctx, struct snug_label_column *column, int64_t classes) {
    char text[24];
    uint32_t number;
    for (int64_t i = 0; i < classes; i++) {
        const int length = snprintf(text, sizeof text, "%" PRId64, i);
        RETURN_IF_ERROR(intern(ctx, &column->raw, text, (size_t)length, 1, &number));
    }
    column->hot = classes;
    return SNUG_OK;
}

static snug_status add_hot(snug_context *ctx, struct snug_label_column *column, const char *path, int64_t line,
                           const struct snug_field *field) {
    if (count_hot(field) != column->hot)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the label is not a list of %" PRId64
                         " zeros and ones, as the first rows' are",
                         path, line, column->hot);
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&column->numbers, &column->capacity, (size_t)column->hot, sizeof *column->numbers));
    const char *text = field->text;
    for (int64_t i = 0; i < column->hot; i++, text = skip_hot(text))
        if (*text == '1') {
            column->raw.items[i].rows++;
            column->numbers[column->count++] = (uint32_t)i;
        }
    return SNUG_OK;
}

/* ---- columns of zeros and ones --------------------------------------------------------------------------------- */

int snug_label_flag(const struct snug_field *field) {
    char whole[SNUG_WHOLE_SIZE];
    if (field->kind == SNUG_FIELD_MISSING || (field->kind == SNUG_FIELD_TEXT && !field->length)) return -2;
    if (!snug_field_is_text(field) && field->kind != SNUG_FIELD_BOOLEAN) return -1;
    if (strcasecmp(field->text, "true") == 0) return 1;
    if (strcasecmp(field->text, "false") == 0) return 0;
    if (!snug_whole_number(field->text, whole)) return -1;
    return strcmp(whole, "0") == 0 ? 0 : strcmp(whole, "1") == 0 ? 1 : -1;
}

snug_status snug_label_column_begin_flags(snug_context *ctx, struct snug_label_column *column, const char *const *names,
                                          const size_t columns[], size_t count) {
    uint32_t number;
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(intern(ctx, &column->raw, names[columns[i]], strlen(names[columns[i]]), 1, &number));
    column->flags = count > 0;
    return SNUG_OK;
}

snug_status snug_label_column_add_flags(snug_context *ctx, struct snug_label_column *column, const char *path,
                                        int64_t line, const struct snug_field *fields, const size_t columns[],
                                        bool needed) {
    const size_t classes = column->raw.count;
    column->count = 0;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&column->numbers, &column->capacity, classes, sizeof *column->numbers));
    for (size_t i = 0; i < classes; i++) {
        const struct snug_field *field = &fields[columns[i]];
        const int flag = snug_label_flag(field);
        if (flag < 0 && needed)
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s:%" PRId64 ": the column \"%s\" holds %s%.*s%s, not 0 or 1, as the columns of "
                             "--label_column_name must",
                             path, line, snug_raw_labels_text(&column->raw, i), flag == -2 ? "nothing" : "\"",
                             flag == -2 ? 0 : 80, field->text, flag == -2 ? "" : "\"");
        if (flag < 0) {
            column->count = 0;
            column->missing_line = line;
            return SNUG_OK;
        }
        if (flag) column->numbers[column->count++] = (uint32_t)i;
    }
    for (size_t i = 0; i < column->count; i++) column->raw.items[column->numbers[i]].rows++;
    return SNUG_OK;
}

/* ---- all forms -----------------------------------------------------------------------------------------------------
 */

/* The separator of the labels in a field; NULL if it is one label. */
static snug_status find_separator(snug_context *ctx, const struct snug_label_column *column, const char *path,
                                  int64_t line, const struct snug_field *field, const char **out) {
    *out = NULL;
    if (!column->separator && memchr(field->text, '|', field->length))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the label \"%s\" holds '|': give --label_separator '|' if it is several "
                         "labels, or --label_separator none if it is the name of one class",
                         path, line, field->text);
    const size_t length = field->length;
    if (!column->separator && length > 1 && field->text[0] == '[' && field->text[length - 1] == ']')
        return snug_fail(
            ctx, SNUG_E_INPUT,
            "%s:%" PRId64 ": the label \"%s\" looks like a list: write several labels as lists of JSON Lines, "
            "or joined, as in \"a|b\", with --label_separator '|'; give --label_separator none if it is the "
            "name of one class",
            path, line, field->text);
    if (column->separator && *column->separator && strstr(field->text, column->separator)) *out = column->separator;
    return SNUG_OK;
}

/* value: what is in the column. */
static snug_status fail_missing(snug_context *ctx, const struct snug_label_column *column, const char *path,
                                int64_t line, const char *value) {
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64
                     ": the row has no label: give it one, remove it, or give --missing_label_values with "
                     "an empty value to leave out all rows without one (its column \"%s\" is %s)",
                     path, line, column->name, *value ? value : "missing");
}

snug_status snug_label_column_add(snug_context *ctx, struct snug_label_column *column, const char *path, int64_t line,
                                  const struct snug_field *field, bool needed) {
    enum snug_field_kind kind = field->kind;
    column->count = 0;
    column->rows++;
    if (kind == SNUG_FIELD_MISSING) {
        if (needed && !column->may_miss) return fail_missing(ctx, column, path, line, field->text);
        if (!column->missing_line) column->missing_line = line;
        return SNUG_OK;
    }
    if (kind == SNUG_FIELD_OTHER)
        return snug_fail(
            ctx, SNUG_E_INPUT,
            "%s:%" PRId64
            ": a label must be a string, a number, a boolean, or a list of strings or numbers, not %s (column \"%s\")",
            path, line, field->text, column->name);
    if (column->hot) return add_hot(ctx, column, path, line, field);
    if (kind == SNUG_FIELD_LIST) return add_items(ctx, column, path, line, field);
    if (kind == SNUG_FIELD_BOOLEAN) kind = SNUG_FIELD_TEXT;
    const char *separator;
    bool twice;
    RETURN_IF_ERROR(find_separator(ctx, column, path, line, field, &separator));
    if (separator) return add_list(ctx, column, field->text, field->length, separator, line);
    if (!field->length) {
        if (!column->empty_line) column->empty_line = line;
        return SNUG_OK;
    }
    const enum snug_number_kind look = snug_number_kind(field->text);
    if (kind == SNUG_FIELD_REAL || (kind == SNUG_FIELD_TEXT && !column->typed))
        kind = look == SNUG_NUMBER_INTEGER ? SNUG_FIELD_INTEGER
               : look == SNUG_NUMBER_REAL  ? SNUG_FIELD_REAL
                                           : SNUG_FIELD_TEXT;
    column->integer |= kind == SNUG_FIELD_INTEGER;
    column->real |= kind == SNUG_FIELD_REAL;
    if (kind == SNUG_FIELD_TEXT) *(is_nonfinite(field->text) ? &column->nonfinite : &column->string) = true;
    column->word |= kind == SNUG_FIELD_TEXT && look == SNUG_NUMBER_NONE;
    if (kind != SNUG_FIELD_TEXT && column->real && column->raw.count >= SNUG_LABELS_NUMBERED) {
        RETURN_IF_ERROR(add_value(ctx, column, field->text));
        if (column->count) return SNUG_OK;
    }
    return add_number(ctx, column, field->text, field->length, line, &twice);
}

/* An integer is the number of a class. */
static bool is_class_number(const char *tag) {
    return *tag != '-' && strlen(tag) <= 7 && strtol(tag, NULL, 10) < SNUG_CLASSES_MOST;
}

static bool is_tag(const struct snug_label_column *column, const char *tag) {
    if (column->integer && (column->string || !is_class_number(tag))) return false;
    return *tag && column->raw.count <= SNUG_CLASSES_MOST;
}

static snug_status check_tag(snug_context *ctx, const struct snug_label_column *column, const char *path, int64_t line,
                             const char *tag) {
    if (!*tag) return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": a tag is empty", path, line);
    if (column->string && column->integer)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the tag %s: some tags are strings and some are integers; use one of them",
                         path, line, tag);
    if (column->integer && !is_class_number(tag))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the tag %s: an integer is the number of a class, from 0 to %d", path, line,
                         tag, (int)SNUG_CLASSES_MOST - 1);
    if (column->raw.count > SNUG_CLASSES_MOST)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s:%" PRId64 ": over %d different tags: give the column of tags with --label_column_name",
                         path, line, (int)SNUG_CLASSES_MOST);
    return SNUG_OK;
}

snug_status snug_label_column_add_tags(snug_context *ctx, struct snug_label_column *column, const char *path,
                                       int64_t line, const struct snug_field *field, bool needed) {
    const bool list = field->kind == SNUG_FIELD_WORDS || field->kind == SNUG_FIELD_NUMBERS;
    column->count = 0;
    column->words = true;
    if (!needed && !list) return SNUG_OK;
    if (field->kind == SNUG_FIELD_MISSING)
        return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the row has no tags: its column \"%s\" is %s", path, line,
                         column->name, *field->text ? field->text : "missing");
    if (!list)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": tags must be a list of strings, or a list of integers, as the column \"%s\" "
                         "does not hold here",
                         path, line, column->name);
    column->integer |= field->kind == SNUG_FIELD_NUMBERS;
    column->string |= field->kind == SNUG_FIELD_WORDS && field->length;
    for (const char *tag = field->text, *end = tag + field->length; tag < end; tag += strlen(tag) + 1) {
        if (!needed && !is_tag(column, tag)) {
            column->count = 0;
            return SNUG_OK;
        }
        RETURN_IF_ERROR(check_tag(ctx, column, path, line, tag));
        RETURN_IF_ERROR(
            snug_grow(ctx, (void **)&column->numbers, &column->capacity, column->count + 1, sizeof *column->numbers));
        uint32_t *number = &column->numbers[column->count++];
        RETURN_IF_ERROR(intern(ctx, &column->raw, tag, strlen(tag), line, number));
        column->raw.items[*number].rows++;
    }
    return SNUG_OK;
}

snug_status snug_label_column_form(snug_context *ctx, const struct snug_label_column *column, const char *path,
                                   bool needed, enum snug_label_form *out) {
    const bool number = column->real || column->integer;
    *out = column->integer ? SNUG_LABELS_TAG_NUMBERS : SNUG_LABELS_TAGS;
    if (column->words) return SNUG_OK;
    *out = column->flags       ? SNUG_LABELS_COLUMNS
           : column->hot       ? SNUG_LABELS_MULTI_HOT
           : column->list      ? SNUG_LABELS_LIST
           : column->string    ? (number && column->word ? SNUG_LABELS_MIXED : SNUG_LABELS_STRING)
           : column->nonfinite ? (number ? SNUG_LABELS_NONFINITE : SNUG_LABELS_STRING)
           : column->real      ? SNUG_LABELS_REAL
           : column->integer   ? SNUG_LABELS_INTEGER
                               : SNUG_LABELS_NONE;
    const bool lists = snug_labels_are_lists(*out); /* of which an empty one is a label, but none is not */
    if (needed && lists && column->missing_line) return fail_missing(ctx, column, path, column->missing_line, "");
    if (lists && column->missing_line) *out = SNUG_LABELS_NONE; /* rows of both kinds look alike */
    if (needed && !lists && column->empty_line && !column->may_miss)
        return fail_missing(ctx, column, path, column->empty_line, "empty");
    return SNUG_OK;
}
