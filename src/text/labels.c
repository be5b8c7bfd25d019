/* SPDX-License-Identifier: Apache-2.0 */
#include "text/labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "text/dataset_impl.h"
#include "text/hash_map.h"

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
        if (raw->count >= UINT32_MAX - 1) /* untested: over 4 billion labels */
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

static size_t digits(const char *text) { return strspn(text, "0123456789"); }

enum snug_number_kind snug_number_kind(const char *text) {
    text += *text == '-' || *text == '+';
    size_t whole = digits(text), fraction = 0;
    if (whole && !text[whole]) return whole <= 18 ? SNUG_NUMBER_INTEGER : SNUG_NUMBER_REAL;
    text += whole;
    if (*text == '.') {
        fraction = digits(++text);
        text += fraction;
    }
    if (!whole && !fraction) return SNUG_NUMBER_NONE;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        size_t exponent = digits(text);
        if (!exponent) return SNUG_NUMBER_NONE;
        text += exponent;
    }
    return *text ? SNUG_NUMBER_NONE : SNUG_NUMBER_REAL;
}

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
    column->seen[number] = column->rows;
    column->numbers[column->count++] = number;
    return SNUG_OK;
}

/* Of the C locale: a program around the library may have set one with decimal commas. */
static snug_status plain_locale(snug_context *ctx, locale_t *out) {
    *out = newlocale(LC_ALL_MASK, "C", NULL);
    return *out ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while reading numbers");
}

/* The value of a number; a number that no float can hold is kept as text, and is an error when it is used. */
static snug_status add_value(snug_context *ctx, struct snug_label_column *column, const char *text) {
    if (!column->plain) RETURN_IF_ERROR(plain_locale(ctx, &column->plain));
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
        if (*text == '1') column->numbers[column->count++] = (uint32_t)i;
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

snug_status snug_label_column_add(snug_context *ctx, struct snug_label_column *column, const char *path, int64_t line,
                                  const struct snug_field *field, bool needed) {
    enum snug_field_kind kind = field->kind;
    column->count = 0;
    column->rows++;
    if (kind == SNUG_FIELD_MISSING) {
        if (!needed) return SNUG_OK;
        return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the row has no label", path, line);
    }
    if (kind == SNUG_FIELD_OTHER)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64
                         ": a label must be a string, a number, a boolean, or a list of strings or numbers, not %s",
                         path, line, field->text);
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
    if (kind == SNUG_FIELD_TEXT && !column->typed) {
        enum snug_number_kind look = snug_number_kind(field->text);
        kind = look == SNUG_NUMBER_INTEGER ? SNUG_FIELD_INTEGER
               : look == SNUG_NUMBER_REAL  ? SNUG_FIELD_REAL
                                           : SNUG_FIELD_TEXT;
    }
    column->integer |= kind == SNUG_FIELD_INTEGER;
    column->real |= kind == SNUG_FIELD_REAL;
    if (kind == SNUG_FIELD_TEXT) *(is_nonfinite(field->text) ? &column->nonfinite : &column->string) = true;
    column->word |= kind == SNUG_FIELD_TEXT && snug_number_kind(field->text) == SNUG_NUMBER_NONE;
    if (kind != SNUG_FIELD_TEXT && column->real && column->raw.count >= SNUG_LABELS_NUMBERED) {
        RETURN_IF_ERROR(add_value(ctx, column, field->text));
        if (column->count) return SNUG_OK;
    }
    return add_number(ctx, column, field->text, field->length, line, &twice);
}

static snug_status check_tag(snug_context *ctx, const struct snug_label_column *column, const char *path, int64_t line,
                             const char *tag) {
    if (!*tag) return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": a tag is empty", path, line);
    if (column->string && column->integer)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the tag %s: some tags are strings and some are integers; use one of them",
                         path, line, tag);
    /* untested: more classes than a test has */
    if (column->integer && (*tag == '-' || strlen(tag) > 7 || strtol(tag, NULL, 10) >= SNUG_CLASSES_MOST))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the tag %s: an integer is the number of a class, from 0 to %d", path, line,
                         tag, (int)SNUG_CLASSES_MOST - 1);
    if (column->raw.count > SNUG_CLASSES_MOST) /* untested: more classes than a test has */
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s:%" PRId64 ": over %d different tags: give the column of tags with --label_column_name",
                         path, line, (int)SNUG_CLASSES_MOST);
    return SNUG_OK;
}

snug_status snug_label_column_add_tags(snug_context *ctx, struct snug_label_column *column, const char *path,
                                       int64_t line, const struct snug_field *field) {
    column->count = 0;
    column->words = true;
    if (field->kind == SNUG_FIELD_MISSING)
        return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the row has no tags", path, line);
    if (field->kind != SNUG_FIELD_WORDS && field->kind != SNUG_FIELD_NUMBERS)
        return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": tags must be a list of strings, or a list of integers",
                         path, line);
    column->integer |= field->kind == SNUG_FIELD_NUMBERS;
    column->string |= field->kind == SNUG_FIELD_WORDS && field->length;
    for (const char *tag = field->text, *end = tag + field->length; tag < end; tag += strlen(tag) + 1) {
        RETURN_IF_ERROR(check_tag(ctx, column, path, line, tag));
        RETURN_IF_ERROR(
            snug_grow(ctx, (void **)&column->numbers, &column->capacity, column->count + 1, sizeof *column->numbers));
        RETURN_IF_ERROR(intern(ctx, &column->raw, tag, strlen(tag), line, &column->numbers[column->count]));
        column->count++;
    }
    return SNUG_OK;
}

snug_status snug_label_column_form(snug_context *ctx, const struct snug_label_column *column, const char *path,
                                   bool needed, enum snug_label_form *out) {
    const bool number = column->real || column->integer;
    *out = column->integer ? SNUG_LABELS_TAG_NUMBERS : SNUG_LABELS_TAGS;
    if (column->words) return SNUG_OK;
    *out = column->hot         ? SNUG_LABELS_MULTI_HOT
           : column->list      ? SNUG_LABELS_LIST
           : column->string    ? (number && column->word ? SNUG_LABELS_MIXED : SNUG_LABELS_STRING)
           : column->nonfinite ? (number ? SNUG_LABELS_NONFINITE : SNUG_LABELS_STRING)
           : column->real      ? SNUG_LABELS_REAL
           : column->integer   ? SNUG_LABELS_INTEGER
                               : SNUG_LABELS_NONE;
    if (needed && column->empty_line && !snug_labels_are_lists(*out))
        return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the row has no label", path, column->empty_line);
    return SNUG_OK;
}

/* ---- classes --------------------------------------------------------------------------------------------------- */

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int compare_integers(const void *a, const void *b) {
    long long x = strtoll(*(char *const *)a, NULL, 10), y = strtoll(*(char *const *)b, NULL, 10);
    return x != y ? (x > y) - (x < y) : compare_texts(a, b);
}

void snug_labels_free(struct snug_labels *labels) {
    for (int64_t i = 0; labels->names && i < labels->count; i++) free(labels->names[i]);
    free(labels->names);
    *labels = (struct snug_labels){0};
}

static snug_status copy_names(snug_context *ctx, const struct snug_dataset *train, struct snug_labels *out) {
    void *names;
    int64_t count = out->problem == SNUG_PROBLEM_REGRESSION ? 1 : snug_dataset_raw_labels(train);
    if (count > SNUG_CLASSES_MOST)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s: its labels are %" PRId64 " different classes, but a model has at most %d: give another "
                         "column with --label_column_name, or give --do_regression if they are numbers to predict",
                         train->path, count, (int)SNUG_CLASSES_MOST);
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)count, sizeof *out->names, &names));
    out->names = names;
    out->count = count;
    for (int64_t i = 0; i < count; i++) {
        const char *name =
            out->problem == SNUG_PROBLEM_REGRESSION ? "LABEL_0" : snug_dataset_raw_label(train, (uint32_t)i);
        RETURN_IF_ERROR(snug_strdup(ctx, name, &out->names[i]));
    }
    return SNUG_OK;
}

/* With one class there is nothing to learn; run_classification.py refuses it, too. */
static snug_status check_count(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *labels) {
    if (labels->problem == SNUG_PROBLEM_REGRESSION || labels->count > 1) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: all its labels are \"%s\", and classification needs at least two classes: name another "
                     "column with --label_column_name, or give --do_regression if they are numbers to predict",
                     train->path, snug_dataset_raw_label(train, 0));
}

/* Regression: every label must be one number. */
static snug_status check_numbers(snug_context *ctx, const struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    if (snug_labels_are_lists(dataset->cache.form) || dataset->cache.form == SNUG_LABELS_TAG_NUMBERS)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: its labels are lists, but regression needs one number a row",
                         dataset->path);
    for (size_t i = 0; i < raw->count; i++)
        if (snug_number_kind(snug_raw_labels_text(raw, i)) == SNUG_NUMBER_NONE)
            return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the label \"%s\" is not a number, as regression needs",
                             dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
    return SNUG_OK;
}

/* Words among numbers are more often damage than classes. */
static snug_status fail_mixed(snug_context *ctx, const struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    size_t i = 0;
    while (snug_number_kind(snug_raw_labels_text(raw, i)) != SNUG_NUMBER_NONE)
        i++; /* the form says that there is one */
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": the label \"%s\" is among numbers, but is not a valid number: correct it or "
                     "remove the row, or give --do_regression False if all labels are names of classes",
                     dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
}

/* Whether a raw label is the number of a class, from 0. */
static bool are_numbered(enum snug_label_form form) {
    return form == SNUG_LABELS_TAG_NUMBERS || form == SNUG_LABELS_MULTI_HOT;
}

/* Numbers of classes without names: the highest one gives their count. */
static snug_status number_classes(snug_context *ctx, const struct snug_dataset *train, struct snug_labels *out) {
    const struct snug_raw_labels *raw = &train->cache.raw;
    long highest = 0;
    void *names;
    for (size_t i = 0; i < raw->count; i++) {
        const long number = strtol(snug_raw_labels_text(raw, i), NULL, 10);
        if (number > highest) highest = number;
    }
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)highest + 1, sizeof *out->names, &names));
    out->names = names;
    out->count = highest + 1;
    for (int64_t i = 0; i < out->count; i++) RETURN_IF_ERROR(snug_format(ctx, &out->names[i], "LABEL_%" PRId64, i));
    return SNUG_OK;
}

snug_status snug_labels_of(snug_context *ctx, const struct snug_dataset *train, enum snug_regression regression,
                           struct snug_labels *out) {
    enum snug_label_form form = train->cache.form;
    *out = (struct snug_labels){.problem = SNUG_PROBLEM_SINGLE_LABEL};
    if (train->cache.raw.count == 0)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: no row has a label; to train without labels give --task mlm",
                         train->path);
    if ((form == SNUG_LABELS_NONFINITE || form == SNUG_LABELS_MIXED) && regression == SNUG_REGRESSION_AUTO)
        return fail_mixed(ctx, train);
    if (snug_labels_are_lists(form)) out->problem = SNUG_PROBLEM_MULTI_LABEL;
    if (regression == SNUG_REGRESSION_YES || (form == SNUG_LABELS_REAL && regression == SNUG_REGRESSION_AUTO)) {
        out->problem = SNUG_PROBLEM_REGRESSION;
        RETURN_IF_ERROR(check_numbers(ctx, train));
    }
    const bool numbered = are_numbered(form);
    snug_status status = numbered ? number_classes(ctx, train, out) : copy_names(ctx, train, out);
    if (status == SNUG_OK && form != SNUG_LABELS_TAGS && form != SNUG_LABELS_TAG_NUMBERS)
        status = check_count(ctx, train, out);
    if (status == SNUG_OK && numbered) return SNUG_OK;
    if (status != SNUG_OK) {
        snug_labels_free(out);
        return status;
    }
    qsort(out->names, (size_t)out->count, sizeof *out->names,
          form == SNUG_LABELS_INTEGER && out->problem == SNUG_PROBLEM_SINGLE_LABEL ? compare_integers : compare_texts);
    return SNUG_OK;
}

/* ---- binding a file's labels to a model's classes ---------------------------------------------------------------- */

/* The classes' numbers by name; the first of two classes with the same name. */
static snug_status index_names(snug_context *ctx, const struct snug_labels *labels, struct snug_hash_map *out) {
    int32_t before;
    RETURN_IF_ERROR(snug_hash_map_reserve(ctx, out, (size_t)labels->count));
    for (int64_t i = 0; i < labels->count; i++)
        RETURN_IF_ERROR(snug_hash_map_add(ctx, out, labels->names[i], strlen(labels->names[i]), (int32_t)i, &before));
    return SNUG_OK;
}

/* Strings as the file has them; an integer k also finds LABEL_k, the name of a model that was given none. */
static int32_t find_class(const struct snug_hash_map *names, const char *text) {
    const int32_t found = snug_hash_map_find(names, "", 0, text, strlen(text));
    return found >= 0 || snug_number_kind(text) != SNUG_NUMBER_INTEGER
               ? found
               : snug_hash_map_find(names, "LABEL_", 6, text, strlen(text));
}

snug_status snug_labels_match(snug_context *ctx, const struct snug_labels *a, const struct snug_labels *b, bool *out) {
    struct snug_hash_map names = {0};
    *out = a->count == b->count && a->problem == b->problem;
    snug_status status = *out ? index_names(ctx, b, &names) : SNUG_OK;
    for (int64_t i = 0; status == SNUG_OK && *out && i < a->count; i++)
        *out = snug_hash_map_find(&names, "", 0, a->names[i], strlen(a->names[i])) >= 0;
    snug_hash_map_free(&names);
    return status;
}

snug_status snug_labels_serve(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *model,
                              const struct snug_labels *data, bool *out) {
    if (!are_numbered(train->cache.form)) return snug_labels_match(ctx, model, data, out);
    *out = train->cache.form == SNUG_LABELS_TAG_NUMBERS
               ? model->count >= data->count
               : model->problem == data->problem && model->count == data->count;
    return SNUG_OK;
}

static snug_status fail_unseen(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                               size_t number) {
    char known[512] = "";
    size_t used = 0;
    for (int64_t i = 0; i < labels->count && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", labels->names[i]);
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": the label \"%s\" is not one of the model's %" PRId64
                     " classes, those seen in training: %s",
                     dataset->path, raw->items[number].line, snug_raw_labels_text(raw, number), labels->count, known);
}

/* The class of a further token of a word of this class: of B-X it is I-X, if there is one. */
static int32_t continued_class(const struct snug_hash_map *names, const struct snug_labels *labels, int32_t class) {
    if (class < 0 || strncmp(labels->names[class], "B-", 2) != 0) return class;
    const char *type = labels->names[class] + 2;
    const int32_t inside = snug_hash_map_find(names, "I-", 2, type, strlen(type));
    return inside < 0 ? class : inside;
}

/* Lists of zeros and ones of one length are multi-hot, unless the classes are called by numbers: then each of them may
   also be the classes 0 and 1, and equal counts would hide it. */
static snug_status check_hot(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels) {
    bool numbers = false;
    if (dataset->cache.form != SNUG_LABELS_MULTI_HOT) return SNUG_OK;
    for (int64_t i = 0; i < labels->count; i++)
        numbers |= strcmp(labels->names[i], "0") == 0 || strcmp(labels->names[i], "1") == 0;
    if (numbers)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are lists of %zu zeros and ones: either a zero or one for each class, or the "
                         "numbers 0 and 1, which are names of the model's classes: write names as text, as in \"0|1\", "
                         "and give --label_separator \"|\"",
                         dataset->path, dataset->cache.raw.count);
    if ((int64_t)dataset->cache.raw.count == labels->count) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: its labels are lists of %zu zeros and ones, but the model has %" PRId64 " classes",
                     dataset->path, dataset->cache.raw.count, labels->count);
}

static snug_status bind_classes(snug_context *ctx, struct snug_dataset *dataset, const struct snug_labels *labels) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    if (snug_labels_are_lists(dataset->cache.form) && labels->problem == SNUG_PROBLEM_SINGLE_LABEL)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are lists (or hold '|'), but the model gives each text one label",
                         dataset->path);
    RETURN_IF_ERROR(check_hot(ctx, dataset, labels));
    if (dataset->cache.values)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are not classes: they have over %d different numbers, some of which are "
                         "fractions",
                         dataset->path, SNUG_LABELS_NUMBERED);
    struct snug_hash_map names = {0};
    snug_status status = index_names(ctx, labels, &names);
    for (size_t i = 0; i < raw->count && status == SNUG_OK; i++) {
        const char *text = snug_raw_labels_text(raw, i);
        const long number = are_numbered(dataset->cache.form) ? strtol(text, NULL, 10) : -1;
        dataset->classes[i] = number < 0 ? find_class(&names, text) : number < labels->count ? (int32_t)number : -1;
        dataset->continued[i] = continued_class(&names, labels, dataset->classes[i]);
        if (dataset->classes[i] < 0) status = fail_unseen(ctx, dataset, labels, i);
    }
    snug_hash_map_free(&names);
    return status;
}

static snug_status bind_values(snug_context *ctx, struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    RETURN_IF_ERROR(check_numbers(ctx, dataset));
    locale_t plain;
    RETURN_IF_ERROR(plain_locale(ctx, &plain));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < raw->count && status == SNUG_OK; i++) {
        dataset->values[i] = (float)strtod_l(snug_raw_labels_text(raw, i), NULL, plain);
        if (!isfinite(dataset->values[i]))
            status = snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the label %s is too large for a 32-bit number",
                               dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
    }
    freelocale(plain);
    return status;
}

snug_status snug_dataset_bind_labels(snug_context *ctx, struct snug_dataset *dataset,
                                     const struct snug_labels *labels) {
    bool regression = labels->problem == SNUG_PROBLEM_REGRESSION;
    void *values, *classes;
    RETURN_IF_ERROR(snug_alloc(ctx, regression ? dataset->cache.raw.count : 0, sizeof *dataset->values, &values));
    free(dataset->values);
    dataset->values = values;
    RETURN_IF_ERROR(snug_alloc(ctx, regression ? 0 : dataset->cache.raw.count, sizeof *dataset->classes, &classes));
    free(dataset->classes);
    dataset->classes = classes;
    RETURN_IF_ERROR(snug_alloc(ctx, regression ? 0 : dataset->cache.raw.count, sizeof *dataset->continued, &classes));
    free(dataset->continued);
    dataset->continued = classes;
    dataset->bound = false;
    RETURN_IF_ERROR(regression ? bind_values(ctx, dataset) : bind_classes(ctx, dataset, labels));
    dataset->bound = dataset->cache.form != SNUG_LABELS_NONE;
    return SNUG_OK;
}
