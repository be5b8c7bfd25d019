/* SPDX-License-Identifier: Apache-2.0 */
/* A data file: the first byte chooses its kind, whether malformed UTF-8 is refused, whether labels are numbers (of
   words: whether their columns are chosen) and whether rows are words. Also its columns, labels, tags and classes. */
#include "core/utf8.h"
#include "data/chat_columns.h"
#include "data/classes.h"
#include "data/columns.h"
#include "data/dataset_impl.h"
#include "data/label_checks.h"
#include "data/labels.h"
#include "data/reader.h"
#include "fuzz.h"

static const char *const files[] = {FUZZ_FOLDER "/data.csv", FUZZ_FOLDER "/data.tsv", FUZZ_FOLDER "/data.json",
                                    FUZZ_FOLDER "/data.jsonl", FUZZ_FOLDER "/data.txt"};

static size_t count_values(const struct snug_field *field) {
    size_t count = 0;
    for (size_t i = 0; i < field->length; i++) count += !field->text[i];
    return count;
}

/* Every column of a sentence has a value for each word. */
static void check_sentence(const struct snug_row *row, const struct snug_conll *conll) {
    const size_t words = count_values(&row->fields[conll->words]);
    FUZZ_CHECK(words > 0);
    for (size_t i = 0; i < row->count; i++)
        FUZZ_CHECK(row->fields[i].kind == SNUG_FIELD_MISSING ? i == conll->tags
                                                             : count_values(&row->fields[i]) == words);
}

static snug_status read_rows(snug_context *ctx, struct snug_peek *peek, const struct snug_columns *columns, bool words,
                             struct snug_label_column *label) {
    struct snug_row row;
    const size_t count = peek->columns;
    snug_status status;
    for (int64_t index = 0, line = 0; (status = snug_peek_next(peek, &row)) == SNUG_OK; index++) {
        FUZZ_CHECK(row.index == index && row.line > 0 && row.line >= line && row.count == count);
        line = row.line;
        if (snug_reader_conll(peek->reader)) check_sentence(&row, snug_reader_conll(peek->reader));
        for (size_t i = 0; i < count; i++) {
            const struct snug_field *field = &row.fields[i];
            if (field->kind == SNUG_FIELD_MISSING) continue;
            FUZZ_CHECK(field->text[field->length] == '\0');
            FUZZ_CHECK(snug_utf8_invalid(field->text, field->length) == field->length);
        }
        if (columns->has_label)
            status = (words ? snug_label_column_add_tags : snug_label_column_add)(ctx, label, "data", row.line,
                                                                                  &row.fields[columns->label], true);
        if (status != SNUG_OK) return status;
        for (size_t i = 0; i < label->count; i++) FUZZ_CHECK(label->numbers[i] < label->raw.count);
    }
    return status == SNUG_END ? SNUG_OK : status;
}

/* Whether a label is written as its class is called, or is the same number. */
static bool is_name(const char *name, const char *label) {
    char whole[2][SNUG_WHOLE_SIZE];
    if (strcmp(name, label) == 0) return true;
    return snug_whole_number(name, whole[0]) && snug_whole_number(label, whole[1]) && strcmp(whole[0], whole[1]) == 0;
}

/* The classes of the column, and those of its labels, which must all be among them, unless they mean that there is
   none. */
static void use_classes(snug_context *ctx, struct snug_dataset *dataset, enum snug_regression regression) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    struct snug_labels labels;
    bool same;
    if (!fuzz_accepts(ctx, snug_labels_of(ctx, dataset, regression, &labels))) return;
    FUZZ_CHECK(snug_labels_match(ctx, &labels, &labels, &same) == SNUG_OK && same);
    const bool bound = fuzz_accepts(ctx, snug_dataset_bind_labels(ctx, dataset, &labels));
    FUZZ_CHECK(bound || labels.problem == SNUG_PROBLEM_REGRESSION); /* a number may be too large */
    const bool numbered = dataset->form == SNUG_LABELS_TAG_NUMBERS || dataset->form == SNUG_LABELS_MULTI_HOT;
    for (size_t i = 0; i < raw->count && dataset->classes && !numbered; i++)
        FUZZ_CHECK(dataset->left_out[i] ? dataset->classes[i] == SNUG_IGNORE_LABEL
                                        : is_name(labels.names[dataset->classes[i]], snug_raw_labels_text(raw, i)));
    if (bound) FUZZ_CHECK(snug_labels_check(ctx, dataset, &labels) == SNUG_OK);
    snug_labels_free(&labels);
}

static void use_labels(snug_context *ctx, const struct snug_label_column *label, enum snug_label_form form,
                       enum snug_regression regression) {
    struct snug_dataset dataset = {.path = (char *)"data", .cache = {.form = form, .raw = label->raw}, .form = form};
    dataset.left_out = calloc(label->raw.count + 1, sizeof *dataset.left_out);
    FUZZ_CHECK(dataset.left_out);
    use_classes(ctx, &dataset, regression);
    free(dataset.left_out);
    free(dataset.classes);
    free(dataset.continued);
    free(dataset.values);
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    if (!size) return;
    const char *path = fuzz_file(files[data[0] % 5], data + 1, size - 1), *const * names;
    const bool words = data[0] & 0x20;
    const bool chosen = words && data[0] & 0x40;
    const struct snug_dataset_options options = {.path = path,
                                                 .task =
                                                     words ? SNUG_TASK_TOKEN_CLASSIFICATION : SNUG_TASK_CLASSIFICATION,
                                                 .text_column = chosen ? "2" : NULL,
                                                 .label_column = chosen ? "3" : NULL,
                                                 .need_labels = !chosen};
    const struct snug_conll_choice choice = snug_columns_choice(&options);
    struct snug_reader *reader;
    struct snug_peek peek;
    struct snug_columns columns;
    struct snug_label_column label = {.name = "label", .typed = data[0] % 5 == 2 || data[0] % 5 == 3, .separator = "|"};
    enum snug_label_form form;
    const struct snug_reader_options how = {.strict = data[0] & 0x80,
                                            .words = words,
                                            .nested = !words && data[0] & 0x40 ? snug_chat_nested : NULL,
                                            .conll = &choice};
    snug_status status = snug_reader_open(ctx, path, &how, &reader);
    if (!fuzz_accepts(ctx, status)) return;
    const size_t count = snug_reader_columns(reader, &names);
    status = snug_peek_open(ctx, reader, -1, &peek);
    if (fuzz_accepts(ctx, status)) {
        if (snug_columns_find(ctx, &options, names, count, &peek, &columns) != SNUG_OK)
            columns = (struct snug_columns){0};
        snug_clear_error(ctx);
        int64_t hot = 0;
        if (columns.has_label && !words) status = snug_label_hot(ctx, path, &peek, columns.label, &hot);
        if (status == SNUG_OK) status = snug_label_column_begin_hot(ctx, &label, hot);
        if (status == SNUG_OK) status = read_rows(ctx, &peek, &columns, words, &label);
        if (status == SNUG_OK) status = snug_label_column_form(ctx, &label, path, true, &form);
        if (fuzz_accepts(ctx, status))
            use_labels(ctx, &label, form, data[0] & 0x40 ? SNUG_REGRESSION_YES : SNUG_REGRESSION_AUTO);
    }
    snug_peek_free(&peek);
    snug_label_column_free(&label);
    snug_reader_close(reader);
}
