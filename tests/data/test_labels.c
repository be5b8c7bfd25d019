/* SPDX-License-Identifier: Apache-2.0 */
/* What labels mean: numbers however they are written, labels that mean that there is none, names that look alike, and
   which rows of a file are used. */
#include <inttypes.h>

#include "data/dataset_impl.h"
#include "data/label_checks.h"
#include "data/label_names.h"
#include "data/numbers.h"
#include "data/used_rows.h"
#include "text_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* ---- numbers and names ------------------------------------------------------------------------------------------- */

TEST(test_numbers) {
    static const struct {
        const char *text;
        enum snug_number_kind kind;
        const char *whole; /* NULL: it is not whole */
    } cases[] = {
        {"1", SNUG_NUMBER_INTEGER, "1"},
        {"1.0", SNUG_NUMBER_INTEGER, "1"},
        {"1.", SNUG_NUMBER_INTEGER, "1"},
        {"1e0", SNUG_NUMBER_INTEGER, "1"},
        {"10E-1", SNUG_NUMBER_INTEGER, "1"},
        {"+0.1e+1", SNUG_NUMBER_INTEGER, "1"},
        {"01", SNUG_NUMBER_INTEGER, "1"},
        {"-2.00", SNUG_NUMBER_INTEGER, "-2"},
        {"-0.0", SNUG_NUMBER_INTEGER, "0"},
        {".0", SNUG_NUMBER_INTEGER, "0"},
        {"0e999999999999999999999", SNUG_NUMBER_INTEGER, "0"},
        {"123456789012345", SNUG_NUMBER_INTEGER, "123456789012345"},
        {"1234567890123456", SNUG_NUMBER_INTEGER, NULL}, /* an identifier of digits is whole, but kept as it is */
        {"1.5", SNUG_NUMBER_REAL, NULL},
        {"1e-1", SNUG_NUMBER_REAL, NULL},
        {"1e15", SNUG_NUMBER_REAL, NULL},
        {"1e99999999999999999999", SNUG_NUMBER_REAL, NULL},
        {"1e-99999999999999999999", SNUG_NUMBER_REAL, NULL},
        {"1.50e1", SNUG_NUMBER_INTEGER, "15"},
        {"", SNUG_NUMBER_NONE, NULL},
        {".", SNUG_NUMBER_NONE, NULL},
        {"-", SNUG_NUMBER_NONE, NULL},
        {"1e", SNUG_NUMBER_NONE, NULL},
        {"0x10", SNUG_NUMBER_NONE, NULL},
        {"nan", SNUG_NUMBER_NONE, NULL},
        {"1,5", SNUG_NUMBER_NONE, NULL},
        {"1 ", SNUG_NUMBER_NONE, NULL},
    };
    static const char *const commas[] = {"3,5",     "-0,5",    "+1,0",         ",5",           "1.234,5",
                                         "1 234,5", "1,234.5", "1\u00a0234,5", "1\u202f234,5", "1,2,3"};
    static const char *const others[] = {"", ",", "-", "3.5", "35", "a,5", "3,5 km", "3;5", "Smith, J", "-,-"};
    char whole[SNUG_WHOLE_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (snug_number_kind(cases[i].text) != cases[i].kind) fail_msg("%s", cases[i].text);
        const bool is_whole = snug_whole_number(cases[i].text, whole);
        if (is_whole != (cases[i].whole != NULL)) fail_msg("%s", cases[i].text);
        if (is_whole) assert_string_equal(whole, cases[i].whole);
    }
    for (size_t i = 0; i < sizeof commas / sizeof *commas; i++)
        if (!snug_has_number_comma(commas[i])) fail_msg("%s", commas[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (snug_has_number_comma(others[i])) fail_msg("%s", others[i]);
}

TEST(test_shown_names) {
    static const char *const cases[][3] = {
        /* the name, as it is shown, and quoted in ASCII */
        {"pos", "pos", "\"pos\""},
        {"B-PER", "B-PER", "\"B-PER\""},
        {"n\u00e9gatif", "n\u00e9gatif", "\"n\\u00e9gatif\""},
        {"", "\"\"", "\"\""},
        {" pos", "\" pos\"", "\" pos\""},
        {"3,5", "\"3,5\"", "\"3,5\""},
        {"a=b", "\"a=b\"", "\"a=b\""},
        {"say \"yes\"\\", "\"say \\\"yes\\\"\\\\\"", "\"say \\\"yes\\\"\\\\\""},
        {"a\u00a0b", "\"a\\u00a0b\"", "\"a\\u00a0b\""},
        {"a\u200bb\nc", "\"a\\u200bb\\u000ac\"", "\"a\\u200bb\\u000ac\""},
        {"e\u0301", "\"e\u0301\"", "\"e\\u0301\""},
        {"\U0001f600", "\"\U0001f600\"", "\"\\U0001f600\""},
    };
    char out[SNUG_NAME_SHOWN], longer[2 * SNUG_NAME_SHOWN];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(snug_name_show(out, cases[i][0]), cases[i][1]);
        assert_string_equal(snug_name_quote(out, cases[i][0], true), cases[i][2]);
    }
    static const char *const columns[][2] = {{"a", "a"},       {"Unnamed: 0", "Unnamed: 0"}, {" a", "\" a\""},
                                             {"a ", "\"a \""}, {"a  b", "\"a  b\""},         {"a,b", "\"a,b\""},
                                             {"", "\"\""}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        assert_string_equal(snug_column_show(out, columns[i][0]), columns[i][1]);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(strlen(snug_name_show(out, longer)), SNUG_NAME_SHOWN - 1);
    assert_contains(out, "x…\"");
}

FIXTURE_TEST(test_alike_names) {
    static const char *const cases[][3] = {
        {"pos", "pos ", "in blanks"},
        {"a b", "a\u00a0b", "in blanks"},
        {"ab", "a\tb", "in blanks"},
        {"Positive", "positive", "in upper and lower case"},
        {"\u00c9t\u00e9", "\u00e9T\u00c9", "in upper and lower case"},
        {"\u00e9", "e\u0301", "in the form of their characters"},
        {"a\u200bb", "ab", "in the form of their characters"},
        {"\uff21", "A", "in the form of their characters"},
        {"\u00c9 ", "e\u0301", "in blanks, case and the form of their characters"},
        {"01", "1", "in how a number is written"},
        {"1.0", "1", "in how a number is written"},
        {"1.5", "1.50", NULL},
        {"pos", "neg", NULL},
        {"pos", "pos", NULL},
        {"B-PER", "I-PER", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *how;
        char *a, *b;
        assert_int_equal(snug_names_differ(f->ctx, cases[i][0], cases[i][1], &how), SNUG_OK);
        if (cases[i][2] ? !how || strcmp(how, cases[i][2]) != 0 : how != NULL)
            fail_msg("%s, %s: %s", cases[i][0], cases[i][1], how ? how : "");
        assert_int_equal(snug_name_fold(f->ctx, cases[i][0], &a), SNUG_OK);
        assert_int_equal(snug_name_fold(f->ctx, cases[i][1], &b), SNUG_OK);
        assert_int_equal(strcmp(a, b) == 0, how || strcmp(cases[i][0], cases[i][1]) == 0);
        free(a);
        free(b);
    }
}

/* ---- the classes of a file --------------------------------------------------------------------------------------- */

enum { ROWS_SHOWN = 16 };

/* "class class … (row row …)": a row that is left out is not there, and a file that cannot be used is "error". */
static const char *classes_of(struct fixture *f, struct snug_dataset_options options, enum snug_regression regression) {
    static char text[1024];
    struct snug_row_buffer buffer = {0};
    struct snug_dataset *dataset = open_with(f, options);
    struct snug_labels labels;
    strcpy(text, "error");
    if (snug_labels_of(f->ctx, dataset, regression, &labels) == SNUG_OK) {
        text[0] = '\0';
        for (int64_t i = 0; i < labels.count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", labels.names[i]);
        assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
        assert_int_equal(snug_dataset_leave_out(f->ctx, dataset), SNUG_OK);
        for (int64_t row = 0; row < snug_dataset_rows(dataset); row++) {
            struct snug_dataset_row read;
            assert_int_equal(snug_dataset_read(f->ctx, dataset, row, &buffer, &read), SNUG_OK);
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", row ? " " : "(",
                     labels.problem == SNUG_PROBLEM_REGRESSION ? -1 : dataset->classes[read.labels[0]]);
            assert_int_equal(length_of(f, dataset, row), read.count);
        }
        strcat(text, ")");
        snug_labels_free(&labels);
    }
    free(buffer.data);
    snug_dataset_close(dataset);
    return text;
}

/* A file with a text and a label in each row: "w1,LABEL". */
static const char *write_labels(struct fixture *f, const char *name, const char *const labels[ROWS_SHOWN]) {
    char text[2048] = "";
    const char *end = strrchr(name, '.');
    const bool json = strcmp(end, ".jsonl") == 0, tabs = strcmp(end, ".tsv") == 0;
    if (!json) strcpy(text, tabs ? "text\tlabel\n" : "text;label\n");
    for (int i = 0; i < ROWS_SHOWN && labels[i]; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 json   ? "{\"text\": \"w%d%.*s\", \"label\": %s}\n"
                 : tabs ? "w%d%.*s\t%s\n"
                        : "w%d%.*s;%s\n",
                 i, 4 * (i % 3), " w8 w9 w10", labels[i]);
    return write_file(f, name, text);
}

static const struct {
    const char *name, *given; /* --missing_label_values */
    const char *labels[ROWS_SHOWN];
    const char *classes, *says; /* a part of the log, or of the error */
} missing_labels[] = {
    /* -1, as in run_classification.py */
    {"a.csv",
     NULL,
     {"0", "2", "1", "-1"},
     "0 1 2 (0 2 1)",
     "1 of 4 rows is left out: the label \"-1\", first in line 5,"},
    {"a.tsv", NULL, {"-1", "2", "-1", "0", "1"}, "0 1 2 (2 0 1)", "2 of 5 rows are left out"},
    {"a.jsonl", NULL, {"-1", "2", "1", "0"}, "0 1 2 (2 1 0)", "left out: the label \"-1\""},
    {"b.csv", NULL, {"0.0", "2.0", "1.0", "-1.0"}, "0 1 2 (0 2 1)", "left out: the label \"-1.0\""},
    {"b.jsonl", NULL, {"\"yes\"", "\"no\"", "-1"}, "no yes (1 0)", "left out: the label \"-1\""},
    {"s.jsonl", NULL, {"\"0\"", "\"1\"", "\"-1\"", "\"2\""}, "0 1 2 (0 1 2)", "left out"},
    {"c.csv", NULL, {"1", "-1", "1"}, "-1 1 (1 0 1)", "the label \"-1\" of 1 row is taken for the name of a class"},
    {"d.csv", NULL, {"1", "-1", "0", "-1"}, "-1 0 1 (2 0 1 0)", "the label \"-1\" of 2 rows is taken for"},
    {"e.csv", NULL, {"-2", "-1", "0", "1", "2"}, "-2 -1 0 1 2 (0 1 2 3 4)", NULL},
    {"f.csv", NULL, {"1", "2", "3", "-1"}, "-1 1 2 3 (1 2 3 0)", "is taken for the name of a class"},
    {"g.csv", NULL, {"yes", "-1", "yes"}, "error", "\"yes\" is among numbers"},
    {"h.csv", NULL, {"yes", "no", "-1"}, "no yes (1 0)", "left out"},
    {"i.csv", NULL, {"0.5", "-1", "2"}, "LABEL_0 (-1 -1 -1)", NULL},
    {"j.csv", NULL, {"-1", "0", "yes"}, "error", "\"yes\" is among numbers"},
    /* "-", as in data of sentence pairs */
    {"a.csv", NULL, {"yes", "-", "no"}, "no yes (1 0)", "1 of 3 rows is left out: the label \"-\""},
    {"a.tsv", NULL, {"0", "1", "-"}, "0 1 (0 1)", "left out: the label \"-\""},
    {"a.jsonl", NULL, {"\"-\"", "\"b\"", "\"a\""}, "a b (1 0)", "left out: the label \"-\""},
    {"b.csv", NULL, {"+", "-", "0"}, "error", "\"+\" is among numbers"},
    {"c.csv", NULL, {"+", "-", "="}, "+ - = (0 1 2)", NULL},
    {"d.csv", NULL, {"yes", "-"}, "- yes (1 0)", "the label \"-\" of 1 row is taken for the name of a class"},
    {"e.csv", NULL, {"1", "-"}, "error", "the label \"-\" is among numbers"},
    {"f.csv", NULL, {"0.5", "1.5", "-"}, "error", "give --missing_label_values - to leave out its rows"},
    {"g.csv",
     NULL,
     {"yes", "-", "no", "-1"},
     "no yes (1 0)",
     "2 of 4 rows are left out: the label \"-\", first in line 3, as others,"},
    /* words for a missing value */
    {"a.csv", NULL, {"yes", "nan", "no"}, "error", "a.csv:3: the label \"nan\" (of 1 row) is what programs write"},
    {"a.tsv", NULL, {"yes", "no", "N/A", "N/A"}, "error", "a.tsv:4: the label \"N/A\" (of 2 rows)"},
    {"b.tsv", NULL, {"NULL", "no", "yes"}, "error", "give --missing_label_values NULL to leave these rows out"},
    {"a.jsonl", NULL, {"\"None\"", "\"b\"", "\"a\""}, "error", "the label \"None\""},
    {"b.csv", NULL, {"0", "1", "?"}, "error", "the label \"?\""},
    {"c.csv", NULL, {"0.5", "1", "NaN"}, "error", "the label \"NaN\""},
    {"d.csv", NULL, {"none", "na", "some"}, "na none some (1 0 2)", NULL},
    /* what the argument says */
    {"a.csv", "none", {"0", "2", "1", "-1"}, "-1 0 1 2 (1 3 2 0)", NULL},
    {"b.csv", "none", {"yes", "-", "None"}, "- None yes (2 0 1)", NULL},
    {"c.csv", "NULL", {"yes", "NULL", "no"}, "no yes (1 0)", "1 of 3 rows is left out: the label \"NULL\""},
    {"d.csv", "?,9", {"1", "?", "0", "9", "1"}, "0 1 (1 0 1)", "2 of 5 rows are left out"},
    {"e.csv", "nan", {"0.5", "nan", "1.5"}, "LABEL_0 (-1 -1)", "1 of 3 rows is left out"},
    {"f.csv", "", {"yes", "", "no"}, "no yes (1 0)", "1 of 3 rows have no label and are left out"},
    {"f.jsonl", "", {"\"yes\"", "null", "\"\"", "\"no\""}, "no yes (1 0)", "2 of 4 rows have no label"},
    {"g.csv", "yes", {"yes", "yes"}, "error", "no row has a label"},
    {"h.csv", "-", {"1", "-", "-1", "0"}, "-1 0 1 (2 0 1)", "1 of 4 rows"},
    {"i.csv", "x", {"1", "x", "y"}, "error", "the label \"y\" is among numbers"},
    {"j.csv", "x", {"0.5", "x", "y"}, "error", "the label \"y\" is among numbers"},
};

FIXTURE_TEST(test_missing_labels) {
    for (size_t i = 0; i < sizeof missing_labels / sizeof *missing_labels; i++) {
        struct snug_dataset_options options =
            options_for(write_labels(f, missing_labels[i].name, missing_labels[i].labels));
        options.missing_labels = missing_labels[i].given;
        f->log[0] = '\0';
        snug_clear_error(f->ctx);
        const char *found = classes_of(f, options, SNUG_REGRESSION_AUTO);
        if (strcmp(found, missing_labels[i].classes) != 0)
            fail_msg("%s, %zu: %s; %s", missing_labels[i].name, i, found, snug_error_message(f->ctx));
        const char *said = strcmp(found, "error") == 0 ? snug_error_message(f->ctx) : f->log;
        if (missing_labels[i].says && !strstr(said, missing_labels[i].says))
            fail_msg("%s, %zu: %s", missing_labels[i].name, i, said);
        if (!missing_labels[i].says && (strstr(said, "left out") || strstr(said, "is taken for")))
            fail_msg("%zu: %s", i, said);
    }
    snug_clear_error(f->ctx);
    /* A list without labels is a label, but a missing one is not. */
    struct snug_dataset_options options =
        options_for(write_file(f, "l.jsonl",
                               "{\"text\": \"w1\", \"label\": [\"a\"]}\n{\"text\": \"w1\", \"label\": []}\n"
                               "{\"text\": \"w1\", \"label\": null}\n"));
    options.missing_labels = "";
    assert_open_fails(f, options, SNUG_E_INPUT, "l.jsonl:3: the row has no label");
}

/* A label that means none may be in a row that is not used; and beside more numbers than are kept by their text. */
FIXTURE_TEST(test_rows_that_are_left_out) {
    const char *const labels[ROWS_SHOWN] = {"a", "b", "a", "-"};
    struct snug_dataset_options options = options_for(write_labels(f, "late.csv", labels));
    options.max_samples = 3;
    assert_string_equal(classes_of(f, options, SNUG_REGRESSION_AUTO), "a b (0 1 0)");
    const char *path = path_of(f, "values.csv");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("text,label\nw1,nan\n", file);
    for (int row = 0; row < SNUG_LABELS_NUMBERED + 10; row++) fprintf(file, "w2,%d.5\n", row);
    fputs("w1,nan\n", file);
    assert_int_equal(fclose(file), 0);
    options = options_for(path);
    options.missing_labels = "nan";
    struct snug_dataset *dataset = open_with(f, options);
    struct snug_labels labelled;
    assert_int_equal(snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_AUTO, &labelled), SNUG_OK);
    assert_int_equal(labelled.problem, SNUG_PROBLEM_REGRESSION);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labelled), SNUG_OK);
    assert_int_equal(snug_dataset_leave_out(f->ctx, dataset), SNUG_OK);
    assert_int_equal(snug_dataset_rows(dataset), SNUG_LABELS_NUMBERED + 10);
    snug_labels_free(&labelled);
    snug_dataset_close(dataset);
}

/* Without an argument, rows without a label are errors. */
FIXTURE_TEST(test_no_label) {
    static const char *const rows[][2] = {
        {"a.csv", "text,label\nw1,a\nw1,\n"},
        {"a.jsonl", "{\"text\":\"w1\",\"label\":1}\n{\"text\":\"w1\"}\n"},
        {"b.jsonl", "{\"text\":\"w1\",\"label\":1}\n{\"text\":\"w1\",\"label\":null}\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_open_fails(f, options_for(write_file(f, rows[i][0], rows[i][1])), SNUG_E_INPUT,
                          ": the row has no label: give it one, remove it, or give --missing_label_values");
}

FIXTURE_TEST(test_numbers_as_classes) {
    static const struct {
        const char *name;
        enum snug_regression regression;
        const char *labels[ROWS_SHOWN];
        const char *classes;
    } cases[] = {
        {"a.csv", SNUG_REGRESSION_AUTO, {"1.0", "0.0", "1.0"}, "0 1 (1 0 1)"},
        {"b.csv", SNUG_REGRESSION_AUTO, {"1.0", "0.0", "2.0", "10.0"}, "0 1 2 10 (1 0 2 3)"},
        {"c.csv", SNUG_REGRESSION_AUTO, {"1.", "0", "1e0", "1"}, "0 1 (1 0 1 1)"},
        {"a.jsonl", SNUG_REGRESSION_AUTO, {"1.0", "0", "1e0"}, "0 1 (1 0 1)"},
        {"a.tsv", SNUG_REGRESSION_AUTO, {"\"1.0\"", "\"0.0\""}, "error"}, /* a quote is a character in TSV */
        {"d.csv", SNUG_REGRESSION_AUTO, {"\"1.0\"", "\"0.0\""}, "0 1 (1 0)"},
        {"e.csv", SNUG_REGRESSION_AUTO, {"1.0", "0.5"}, "LABEL_0 (-1 -1)"},
        {"f.csv", SNUG_REGRESSION_YES, {"1.0", "0.0"}, "LABEL_0 (-1 -1)"},
        {"g.csv", SNUG_REGRESSION_NO, {"1.0", "0.5", "1"}, "0.5 1 (1 0 1)"},
        {"b.jsonl", SNUG_REGRESSION_AUTO, {"\"1.0\"", "\"2.0\""}, "1.0 2.0 (0 1)"}, /* names */
        {"h.csv", SNUG_REGRESSION_AUTO, {"01", "1", "2"}, "01 1 2 (0 1 2)"},
        {"i.csv", SNUG_REGRESSION_AUTO, {"12345678901234567890", "7"}, "7 12345678901234567890 (1 0)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found =
            classes_of(f, options_for(write_labels(f, cases[i].name, cases[i].labels)), cases[i].regression);
        if (strcmp(found, cases[i].classes) != 0 && strcmp(cases[i].classes, "error") != 0)
            fail_msg("%s: %s; %s", cases[i].name, found, snug_error_message(f->ctx));
    }
}

/* Another file may write the numbers in another way, and a model's classes may be called by them. */
FIXTURE_TEST(test_numbers_in_another_file) {
    static const struct {
        const char *names[2], *labels[ROWS_SHOWN];
        const char *name;
    } cases[] = {
        {{"0", "1"}, {"1.0", "0.0"}, "a.csv"},         {{"0", "1"}, {"1", "0."}, "b.csv"},
        {{"0", "1"}, {"1e0", "0"}, "a.jsonl"},         {{"0.0", "1.0"}, {"1", "0"}, "c.csv"},
        {{"0.0", "1.0"}, {"1.0", "0e0"}, "d.csv"},     {{"LABEL_0", "LABEL_1"}, {"1.0", "0.0"}, "e.csv"},
        {{"LABEL_0", "LABEL_1"}, {"1", "0"}, "f.tsv"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *names[] = {strdup(cases[i].names[0]), strdup(cases[i].names[1])};
        const struct snug_labels model = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2, .names = names};
        struct snug_dataset *dataset = open_with(f, options_for(write_labels(f, cases[i].name, cases[i].labels)));
        struct snug_labels own;
        bool same;
        if (snug_dataset_bind_labels(f->ctx, dataset, &model) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        assert_int_equal(dataset->classes[0], 1);
        assert_int_equal(dataset->classes[1], 0);
        assert_int_equal(snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_AUTO, &own), SNUG_OK);
        assert_int_equal(snug_labels_match(f->ctx, &model, &own, &same), SNUG_OK);
        assert_int_equal(same, *cases[i].names[0] == '0');
        snug_labels_free(&own);
        snug_dataset_close(dataset);
        free(names[0]);
        free(names[1]);
    }
}

FIXTURE_TEST(test_commas) {
    static const struct {
        const char *name, *labels[ROWS_SHOWN], *says;
    } cases[] = {
        {"a.csv", {"3,5", "1,2", "2,0"}, "a.csv:2: the label \"3,5\" is a number with a comma"},
        {"b.csv", {"1", "3,5", "2"}, "b.csv:3: the label \"3,5\""},
        {"a.tsv", {"-0,5", "1"}, "a.tsv:2: the label \"-0,5\""},
        {"c.csv", {"\"3,5\"", "\"1,2\""}, "give --label_separator , if it is several labels"},
        {"d.csv", {"1.234,5", "2"}, "the label \"1.234,5\""},
        {"a.jsonl", {"\"3,5\"", "\"1,2\""}, "or --do_regression False if it is the name of a class"},
        {"e.csv", {"1,234", "1,235"}, "with a decimal point"},
    };
    struct snug_labels one = {.problem = SNUG_PROBLEM_REGRESSION, .count = 1}, labels;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_dataset_options options = options_for(write_labels(f, cases[i].name, cases[i].labels));
        struct snug_dataset *dataset = open_with(f, options);
        assert_failed(f, snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_AUTO, &labels), SNUG_E_INPUT, cases[i].says);
        assert_failed(f, snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_YES, &labels), SNUG_E_INPUT,
                      "is not a number, as regression needs: numbers are written with a decimal point");
        assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &one), SNUG_E_INPUT, "with a decimal point");
        assert_int_equal(snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_NO, &labels), SNUG_OK);
        snug_labels_free(&labels);
        snug_dataset_close(dataset);
    }
    const char *const words[ROWS_SHOWN] = {"a,5", "3,5", "b"};
    assert_string_equal(classes_of(f, options_for(write_labels(f, "w.csv", words)), SNUG_REGRESSION_AUTO),
                        "3,5 a,5 b (1 0 2)");
}

/* ---- a model's classes ------------------------------------------------------------------------------------------- */

/* Labels of an evaluation's file that are none of the model's classes. */
FIXTURE_TEST(test_unknown_labels) {
    static const struct {
        const char *labels[ROWS_SHOWN], *says;
        int64_t rows; /* that are used */
    } cases[] = {
        {{"yes", "no", "-1"}, "1 of 3 rows is left out: the label \"-1\"", 2},
        {{"-", "no", "-1", "-"}, "3 of 4 rows are left out", 1},
        {{"yes", "-1.0"}, "1 of 2 rows is left out", 1},
        {{"yes", "yes "},
         "\"yes \" is not one of the model's 2 classes, those seen in training: no, yes. It differs "
         "from the class \"yes\" only in blanks: correct it",
         0},
        {{"yes", "NO"}, "It differs from the class \"no\" only in upper and lower case", 0},
        {{"yes", "NULL"}, "the label \"NULL\" is not one of the model's 2 classes", 0},
        {{"yes", "perhaps"}, "those seen in training: no, yes", 0},
        {{"-1", "-1"}, "no row has a label", 0},
    };
    char *names[] = {"no", "yes"};
    const struct snug_labels model = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2, .names = names};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_dataset *dataset = open_with(f, options_for(write_labels(f, "unknown.csv", cases[i].labels)));
        f->log[0] = '\0';
        snug_status status = snug_dataset_bind_labels(f->ctx, dataset, &model);
        if (status == SNUG_OK) status = snug_dataset_leave_out(f->ctx, dataset);
        assert_int_equal(status, cases[i].rows ? SNUG_OK : SNUG_E_INPUT);
        assert_contains(cases[i].rows ? f->log : snug_error_message(f->ctx), cases[i].says);
        if (cases[i].rows) assert_int_equal(snug_dataset_rows(dataset), cases[i].rows);
        snug_clear_error(f->ctx);
        if (cases[i].rows)
            assert_failed(f, snug_dataset_check_labels(f->ctx, dataset), SNUG_E_INPUT, "means that the row has none");
        snug_dataset_close(dataset);
    }
    /* A class of the model is a class, also if it is called so. */
    char *signs[] = {"-", "-1"};
    const struct snug_labels named = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2, .names = signs};
    const char *const labels[ROWS_SHOWN] = {"-1", "-"};
    struct snug_dataset *dataset = open_with(f, options_for(write_labels(f, "signs.csv", labels)));
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &named), SNUG_OK);
    assert_int_equal(snug_dataset_check_labels(f->ctx, dataset), SNUG_OK);
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_added_classes) {
    static const struct {
        const char *name, *train[ROWS_SHOWN], *eval[ROWS_SHOWN], *classes, *says;
    } cases[] = {
        {"a.csv", {"a", "c"}, {"b", "a"}, "a b c", "the label \"b\" is in no row of"},
        {"b.csv", {"0", "10"}, {"2.0", "2", "0"}, "0 2 10", "the label \"2.0\" is in no row of"},
        {"c.csv", {"a", "c"}, {"A", "-", "c"}, "a c", NULL},
        {"d.csv", {"a", "c"}, {"nan", "c"}, "a c", NULL},
        {"h.csv", {"-1", "1"}, {"-1", "1", "-"}, "-1 1", NULL},
        {"e.csv", {"0", "1"}, {"yes", "no"}, "0 1", NULL},
        {"f.csv", {"0", "1"}, {"-1", "-", "2"}, "0 1 2", "the label \"2\" is in no row of"},
        {"g.csv", {"0.5", "1"}, {"2", "3"}, "LABEL_0", NULL},
        {"a.jsonl", {"[\"a\"]", "[\"b\"]"}, {"[\"c\", \"a\"]"}, "a b c", "the label \"c\" is in no row of"},
        {"b.jsonl", {"[0, 1]", "[1, 0]"}, {"[1, 1]"}, "LABEL_0 LABEL_1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char other[32], names[256] = "";
        struct snug_labels labels;
        snprintf(other, sizeof other, "eval-%s", cases[i].name);
        struct snug_dataset *train = open_with(f, options_for(write_labels(f, cases[i].name, cases[i].train))),
                            *eval = open_with(f, options_for(write_labels(f, other, cases[i].eval)));
        f->log[0] = '\0';
        assert_int_equal(snug_labels_of(f->ctx, train, SNUG_REGRESSION_AUTO, &labels), SNUG_OK);
        assert_int_equal(snug_labels_add(f->ctx, &labels, train, eval), SNUG_OK);
        for (int64_t k = 0; k < labels.count; k++)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", k ? " " : "", labels.names[k]);
        assert_string_equal(names, cases[i].classes);
        assert_int_equal(strstr(f->log, "is in no row of") != NULL, cases[i].says != NULL);
        if (cases[i].says) assert_contains(f->log, cases[i].says);
        snug_labels_free(&labels);
        snug_dataset_close(train);
        snug_dataset_close(eval);
    }
    /* A word for a missing value may be said to be a class. */
    struct snug_dataset_options options = options_for(path_of(f, "d.csv"));
    struct snug_labels labels;
    options.missing_labels = "none";
    struct snug_dataset *train = open_with(f, options);
    options.path = path_of(f, "eval-d.csv");
    struct snug_dataset *eval = open_with(f, options);
    assert_int_equal(snug_labels_of(f->ctx, train, SNUG_REGRESSION_AUTO, &labels), SNUG_OK);
    assert_int_equal(snug_labels_add(f->ctx, &labels, train, eval), SNUG_OK);
    assert_int_equal(labels.count, 3);
    assert_string_equal(labels.names[2], "nan");
    snug_labels_free(&labels);
    snug_dataset_close(train);
    snug_dataset_close(eval);
}

/* ---- warnings ---------------------------------------------------------------------------------------------------- */

/* The log of the checks of a file's labels, which are all classes. */
static const char *checks_of(struct fixture *f, struct snug_dataset_options options) {
    struct snug_dataset *dataset = open_with(f, options);
    struct snug_labels labels;
    if (snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_AUTO, &labels) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    f->log[0] = '\0';
    assert_int_equal(snug_labels_check(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    snug_dataset_close(dataset);
    return f->log;
}

FIXTURE_TEST(test_alike_classes) {
    static const struct {
        const char *name, *labels[ROWS_SHOWN], *says;
    } cases[] = {
        {"a.csv",
         {"pos", "neg", "pos ", "pos"},
         "the classes \"pos\" (rows: 2) and \"pos \" (1) differ only in blanks"},
        {"b.csv",
         {"pos", "neg", "Pos"},
         "the classes \"Pos\" (rows: 1) and \"pos\" (1) differ only in upper and lower"},
        {"c.csv",
         {"\u00e9", "e\u0301"},
         "the classes \"e\\u0301\" (rows: 1) and \"\\u00e9\" (1) differ only in the form"},
        {"d.tsv",
         {"01", "1", "2"},
         "the classes \"01\" (rows: 1) and \"1\" (1) differ only in how a number is written"},
        {"a.jsonl",
         {"\"a b\"", "\"a\u00a0b\""},
         "the classes \"a b\" (rows: 1) and \"a\\u00a0b\" (1) differ only in blanks"},
        {"b.jsonl", {"[\"x\", \"X\"]", "[]"}, "the classes \"X\" (rows: 1) and \"x\" (1)"},
        {"e.csv", {"1.0", "1", "0"}, "all labels are whole numbers: they are taken for classes, 1.0 for the class 1"},
        {"f.csv", {"a", "b", "a"}, NULL},
        {"g.csv", {"1", "2"}, NULL},
        {"h.csv", {"0.5", ".5"}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *log = checks_of(f, options_for(write_labels(f, cases[i].name, cases[i].labels)));
        if (cases[i].says ? !strstr(log, cases[i].says) : *log != '\0') fail_msg("%s: %s", cases[i].name, log);
    }
    const char *many[ROWS_SHOWN] = {"a", "A", "b", "B", "c", "C", "d", "D", "e", "E", "f", "F", "g", "G"};
    assert_contains(checks_of(f, options_for(write_labels(f, "many.csv", many))), ": 2 more classes differ as little");
}

FIXTURE_TEST(test_alike_tags) {
    struct snug_dataset_options options = options_for(write_file(
        f, "tags.jsonl",
        "{\"tokens\": [\"w1\", \"w2\", \"w3\", \"w4\"], \"ner_tags\": [\"B-PER\", \"B-Per\", \"NULL\", \"-\"]}\n"));
    options.task = SNUG_TASK_TOKEN_CLASSIFICATION;
    const char *log = checks_of(f, options);
    assert_contains(log, "the classes \"B-PER\" (words: 1) and \"B-Per\" (1) differ only in upper and lower case");
    assert_contains(log, "the tag \"NULL\" of 1 words is taken for the name of a class");
    assert_contains(log, "the tag \"-\" of 1 words is taken for the name of a class");
    /* Words with a tag that is left out have no loss. */
    options.missing_labels = "NULL,-";
    assert_string_equal(strstr(checks_of(f, options), "the tag") ? "told" : "", "");
    struct snug_dataset *dataset = open_with(f, options);
    struct snug_labels labels;
    assert_int_equal(snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_AUTO, &labels), SNUG_OK);
    assert_int_equal(labels.count, 2);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    assert_int_equal(snug_dataset_leave_out(f->ctx, dataset), SNUG_OK);
    assert_contains(f->log, "1 words with the tag \"NULL\" have no loss");
    const struct snug_loader_options loader = {.task = SNUG_TASK_TOKEN_CLASSIFICATION, .labels = 2};
    int64_t counts[2] = {0}, items;
    assert_int_equal(snug_classes_count(f->ctx, dataset, &loader, counts, &items), SNUG_OK);
    assert_int_equal(items, 2);
    f->log[0] = '\0';
    assert_int_equal(snug_classes_check(f->ctx, dataset, &labels, &loader, true, true), SNUG_OK);
    assert_string_equal(f->log, "");
    snug_labels_free(&labels);
    snug_dataset_close(dataset);
}

/* More classes without rows than a message names. */
FIXTURE_TEST(test_absent_classes) {
    const char *path = path_of(f, "absent.csv");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("text,label\n", file);
    for (int row = 0; row < 200; row++) fprintf(file, "w%d,the class of number %d\n", row % WORDS, row / 2);
    assert_int_equal(fclose(file), 0);
    struct snug_dataset_options options = options_for(path);
    const struct snug_loader_options loader = {.labels = 100};
    struct snug_labels labels;
    options.max_samples = 2;
    struct snug_dataset *dataset = open_with(f, options);
    assert_int_equal(snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_AUTO, &labels), SNUG_OK);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    f->log[0] = '\0';
    assert_int_equal(snug_classes_check(f->ctx, dataset, &labels, &loader, false, true), SNUG_OK);
    assert_contains(f->log,
                    "99 of 100 classes have no row to train on and cannot be learnt: \"the class of number 1\", ");
    assert_contains(f->log, ", …\n");
    assert_true(strlen(f->log) < 1200);
    snug_labels_free(&labels);
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_identifiers) {
    for (int twice = 0; twice < 2; twice++) {
        const char *path = path_of(f, "ids.csv");
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs("text,label\n", file);
        for (int row = 0; row < 40; row++) fprintf(file, "w%d,user%d\n", row, twice ? row / 2 : row);
        assert_int_equal(fclose(file), 0);
        const char *log = checks_of(f, options_for(path));
        if (twice)
            assert_string_equal(log, "");
        else
            assert_contains(log, "ids.csv: its labels are 40 classes in 40 rows: if they are identifiers, name the");
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_selection) {
    for (int64_t all = 1; all < 5000; all = 3 * all + 1) {
        struct snug_selection selection;
        int64_t count = 0;
        assert_int_equal(snug_selection_create(f->ctx, all, &selection), SNUG_OK);
        for (int64_t row = 0; row < all; row++)
            if (row % 7 == 0 || (row > 600 && row < 1800)) snug_selection_add(&selection, row);
        snug_selection_finish(&selection);
        for (int64_t row = 0; row < all; row++)
            if (row % 7 == 0 || (row > 600 && row < 1800))
                assert_int_equal(snug_selection_row(&selection, count++), row);
        assert_int_equal(selection.count, count);
        snug_selection_free(&selection);
    }
}

enum { SPLIT_ROWS = 60 };

/* Rows of class 0, then of class 1, …: counts[] of them; their texts have 1, 2 or 3 words. */
static const char *write_sorted(struct fixture *f, const char *name, const int *counts, int classes) {
    const char *path = path_of(f, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("text,label\n", file);
    for (int class = 0, row = 0; class < classes; class ++)
        for (int i = 0; i < counts[class]; i++, row++)
            fprintf(file, "w%d%.*s,c%d\n", row, 3 * (row % 3), " w7 w8", class);
    assert_int_equal(fclose(file), 0);
    return path;
}

FIXTURE_TEST(test_split) {
    static const struct {
        int counts[4];   /* rows of each class, sorted */
        int64_t rows;    /* to evaluate */
        int expected[4]; /* of each class */
    } cases[] = {
        {{20, 20, 20, 0}, 12, {4, 4, 4, 0}}, {{20, 20, 20, 0}, 24, {8, 8, 8, 0}},    {{50, 9, 1, 0}, 6, {5, 1, 0, 0}},
        {{56, 2, 2, 0}, 6, {4, 1, 1, 0}},   /* a class of two rows is in both parts */
        {{57, 1, 1, 1}, 30, {30, 0, 0, 0}}, /* a row that is alone is trained on */
        {{20, 20, 20, 0}, 2, {1, 1, 0, 0}},  {{20, 20, 20, 0}, 59, {20, 20, 19, 0}}, {{57, 1, 1, 1}, 59, {56, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = write_sorted(f, "sorted.csv", cases[i].counts, 4);
        uint64_t digests[3];
        for (int turn = 0; turn < 3; turn++) { /* the same seed twice, and another one */
            struct snug_dataset *parts[2] = {open_with(f, options_for(path)), open_with(f, options_for(path))};
            struct snug_row_buffer buffer = {0};
            struct snug_labels labels;
            bool seen[SPLIT_ROWS] = {false};
            int found[4] = {0}, changes = 0;
            assert_int_equal(snug_labels_of(f->ctx, parts[0], SNUG_REGRESSION_AUTO, &labels), SNUG_OK);
            assert_int_equal(snug_dataset_bind_labels(f->ctx, parts[0], &labels), SNUG_OK);
            assert_int_equal(snug_dataset_bind_labels(f->ctx, parts[1], &labels), SNUG_OK);
            assert_int_equal(snug_dataset_split(f->ctx, parts[0], parts[1], &labels, cases[i].rows, turn < 2 ? 42 : 43),
                             SNUG_OK);
            assert_int_equal(snug_dataset_rows(parts[1]), cases[i].rows);
            assert_int_equal(snug_dataset_rows(parts[0]), SPLIT_ROWS - cases[i].rows);
            for (int part = 0; part < 2; part++)
                for (int64_t row = 0, last = -1; row < snug_dataset_rows(parts[part]); row++) {
                    struct snug_dataset_row read;
                    assert_int_equal(snug_dataset_read(f->ctx, parts[part], row, &buffer, &read), SNUG_OK);
                    assert_true(read.line - 2 > last); /* in the file's order */
                    changes += part && read.line - 2 != last + 1;
                    last = read.line - 2;
                    assert_false(seen[last]);
                    seen[last] = true;
                    assert_int_equal(read.count, 3 + last % 3);
                    assert_int_equal(length_of(f, parts[part], row), read.count);
                    if (part) found[parts[1]->classes[read.labels[0]]]++;
                }
            assert_memory_equal(found, cases[i].expected, sizeof found);
            if (cases[i].rows < 50) assert_true(changes > 0); /* not the first rows */
            digests[turn] = snug_dataset_digest(parts[1]);
            snug_dataset_use_first(parts[1], 1);
            assert_int_equal(snug_dataset_rows(parts[1]), 1);
            snug_dataset_use_first(parts[1], 5);
            assert_int_equal(snug_dataset_rows(parts[1]), 1);
            free(buffer.data);
            snug_labels_free(&labels);
            snug_dataset_close(parts[0]);
            snug_dataset_close(parts[1]);
        }
        assert_true(digests[0] == digests[1]);
        assert_true(digests[0] != digests[2]);
    }
}

/* Rows that are left out are in neither part. Several labels and values are drawn without classes; texts without labels
   are not drawn. */
FIXTURE_TEST(test_other_splits) {
    static const struct {
        const char *name, *labels[ROWS_SHOWN];
        bool labelled;
        int64_t rows;
    } cases[] = {
        {"a.csv", {"a", "a", "-", "b", "b", "-", "a", "b"}, true, 6},
        {"a.jsonl", {"[\"a\"]", "[\"b\"]", "[]", "[\"a\", \"b\"]"}, true, 4},
        {"b.csv", {"0.5", "1", "2", "3"}, true, 4},
        {"c.csv", {"a", "a", "b", "b"}, false, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_dataset_options options = options_for(write_labels(f, cases[i].name, cases[i].labels));
        struct snug_dataset *parts[2] = {open_with(f, options), open_with(f, options)};
        struct snug_labels labels;
        assert_int_equal(snug_labels_of(f->ctx, parts[0], SNUG_REGRESSION_AUTO, &labels), SNUG_OK);
        for (int part = 0; part < 2; part++)
            assert_int_equal(snug_dataset_bind_labels(f->ctx, parts[part], &labels), SNUG_OK);
        assert_int_equal(snug_dataset_leave_out(f->ctx, parts[0]), SNUG_OK);
        assert_int_equal(snug_dataset_rows(parts[0]), cases[i].rows);
        assert_int_equal(snug_dataset_split(f->ctx, parts[0], parts[1], cases[i].labelled ? &labels : NULL, 2, 42),
                         SNUG_OK);
        assert_int_equal(snug_dataset_rows(parts[0]) + snug_dataset_rows(parts[1]), cases[i].rows);
        for (int64_t row = 0; row < 2 && !cases[i].labelled; row++)
            assert_int_equal(snug_dataset_place(parts[1], row), row);
        for (int part = 0; part < 2; part++)
            for (int64_t row = 0; row < snug_dataset_rows(parts[part]); row++)
                assert_true(i > 0 ||
                            (snug_dataset_place(parts[part], row) != 2 && snug_dataset_place(parts[part], row) != 5));
        snug_labels_free(&labels);
        snug_dataset_close(parts[0]);
        snug_dataset_close(parts[1]);
    }
}

/* A class of the model that the file does not have. */
FIXTURE_TEST(test_split_without_a_class) {
    const char *const rows[ROWS_SHOWN] = {"a", "a", "c", "c", "a", "c"};
    char *names[] = {"a", "b", "c"};
    const struct snug_labels model = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 3, .names = names};
    const struct snug_dataset_options options = options_for(write_labels(f, "two.csv", rows));
    for (int64_t wanted = 1; wanted < 6; wanted++) {
        struct snug_dataset *parts[2] = {open_with(f, options), open_with(f, options)};
        for (int part = 0; part < 2; part++)
            assert_int_equal(snug_dataset_bind_labels(f->ctx, parts[part], &model), SNUG_OK);
        assert_int_equal(snug_dataset_split(f->ctx, parts[0], parts[1], &model, wanted, 42), SNUG_OK);
        assert_int_equal(snug_dataset_rows(parts[1]), wanted);
        snug_dataset_close(parts[0]);
        snug_dataset_close(parts[1]);
    }
}

TEST_MAIN(NULL, NULL)
