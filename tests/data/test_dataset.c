/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <xxhash.h>

#include "data/classes.h"
#include "data/dataset_impl.h"
#include "data/row_texts.h"
#include "text_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* Row number row must have these ids, of which first_count have type 0, and come from that line. */
static void assert_row(struct fixture *f, const struct snug_dataset *dataset, int64_t row, const int32_t *ids,
                       int64_t count, int64_t first_count, int64_t line) {
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row got;
    assert_int_equal(snug_dataset_read(f->ctx, dataset, row, &buffer, &got), SNUG_OK);
    assert_int_equal(got.count, count);
    assert_int_equal(length_of(f, dataset, row), count);
    assert_memory_equal(got.ids, ids, (size_t)count * sizeof *ids);
    assert_int_equal(got.first_count, first_count);
    assert_int_equal(got.line, line);
    free(buffer.data);
}
#define ASSERT_ROW(f, dataset, row, first_count, line, ...)                                                            \
    assert_row(f, dataset, row, (const int32_t[]){__VA_ARGS__},                                                        \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), first_count, line)

/* The raw labels of a row, joined by spaces. */
static const char *labels_of_row(struct fixture *f, const struct snug_dataset *dataset, int64_t row) {
    static char text[256];
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row got;
    text[0] = '\0';
    assert_int_equal(snug_dataset_read(f->ctx, dataset, row, &buffer, &got), SNUG_OK);
    for (int64_t i = 0; i < got.label_count; i++) {
        if (i) strcat(text, " ");
        strcat(text, snug_dataset_raw_label(dataset, got.labels[i]));
    }
    free(buffer.data);
    return text;
}

FIXTURE_TEST(test_one_text) {
    write_file(f, "a.csv", "label,text\nyes,w1 w2\nno,\"w3\nw4\"\nyes,\nno,w5 zzz\n");
    struct snug_dataset *dataset = open_with(f, options_for(path_of(f, "a.csv")));
    assert_int_equal(snug_dataset_rows(dataset), 4);
    assert_int_equal(snug_dataset_tokens(dataset), 14);
    assert_int_equal(snug_dataset_longest(dataset), 4);
    assert_int_equal(snug_dataset_truncated(dataset), 0);
    ASSERT_ROW(f, dataset, 0, 4, 2, CLS, W0 + 1, W0 + 2, SEP);
    ASSERT_ROW(f, dataset, 1, 4, 3, CLS, W0 + 3, W0 + 4, SEP);
    ASSERT_ROW(f, dataset, 2, 2, 5, CLS, SEP);
    ASSERT_ROW(f, dataset, 3, 4, 6, CLS, W0 + 5, UNK, SEP);
    assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_STRING);
    assert_int_equal(snug_dataset_raw_labels(dataset), 2);
    assert_string_equal(snug_dataset_raw_label(dataset, 0), "yes");
    assert_string_equal(labels_of_row(f, dataset, 3), "no");
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_bad_rows) {
    static const struct {
        const char *name, *text, *part;
    } cases[] = {
        {"1.jsonl", "{\"text\":\"w1\",\"label\":1}\n{\"text\":null,\"label\":1}\n", "1.jsonl:2: the row has no text"},
        {"2.jsonl", "{\"text\":\"w1\",\"label\":1}\n{\"text\":[\"w\"],\"label\":1}\n", "2.jsonl:2: the text must be"},
        {"0.jsonl", "{\"text\":\"w1\",\"label\":1}\n{\"text\":true,\"label\":1}\n", "0.jsonl:2: the text must be"},
        {"3.jsonl", "{\"text\":\"w1\",\"label\":1}\n{\"text\":\"w1\"}\n", "3.jsonl:2: the row has no label"},
        {"4.jsonl", "{\"text\":\"w1\",\"label\":1}\n{\"text\":\"w1\",\"label\":{}}\n", "4.jsonl:2: a label must be"},
        {"5.csv", "text,label\nw1,1\nw2,\n", "5.csv:3: the row has no label"},
        {"6.csv", "text,label\n", "6.csv"},
        {"7.csv", "", "7.csv"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_open_fails(f, options_for(write_file(f, cases[i].name, cases[i].text)), SNUG_E_INPUT, cases[i].part);
    assert_open_fails(f, options_for(path_of(f, "none.csv")), SNUG_E_IO, "none.csv");
    struct snug_dataset_options options = options_for(path_of(f, "5.csv"));
    options.max_samples = 0;
    assert_open_fails(f, options, SNUG_E_USAGE, "5.csv");
    options.max_samples = -1;
    options.max_length = 1;
    assert_open_fails(f, options, SNUG_E_USAGE, "--max_seq_length 1");
    options.max_length = INT64_C(1) << 31;
    assert_open_fails(f, options, SNUG_E_USAGE, "--max_seq_length 2147483648");
    DIR *cache = opendir(path_of(f, "cache")); /* no incomplete file remains */
    assert_non_null(cache);
    for (struct dirent *entry; (entry = readdir(cache));) assert_int_equal(entry->d_name[0], '.');
    closedir(cache);
}

FIXTURE_TEST(test_truncation) {
    struct snug_dataset_options options = options_for(write_file(f, "t.csv", "text,label\nw1 w2 w3,1\nw4,1\n"));
    options.max_length = 4;
    struct snug_dataset *dataset = open_with(f, options);
    assert_int_equal(snug_dataset_truncated(dataset), 1);
    ASSERT_ROW(f, dataset, 0, 4, 2, CLS, W0 + 1, W0 + 2, SEP);
    ASSERT_ROW(f, dataset, 1, 3, 3, CLS, W0 + 4, SEP);
    snug_dataset_close(dataset);
}

static struct snug_dataset *open_labels(struct fixture *f, const char *name, const char *text) {
    return open_with(f, options_for(write_file(f, name, text)));
}

/* Of texts that hold several labels. */
static struct snug_dataset *open_split(struct fixture *f, const char *name, const char *text) {
    struct snug_dataset_options options = options_for(write_file(f, name, text));
    options.label_separator = "|";
    return open_with(f, options);
}

/* The classes as text, "a b c", and the problem. */
static void assert_classes(struct fixture *f, struct snug_dataset *dataset, bool regression, enum snug_label_form form,
                           enum snug_problem problem, const char *names) {
    struct snug_labels labels;
    char text[256] = "";
    assert_int_equal(snug_dataset_label_form(dataset), form);
    assert_int_equal(snug_labels_of(f->ctx, dataset, regression, &labels), SNUG_OK);
    for (int64_t i = 0; i < labels.count; i++) {
        if (i) strcat(text, " ");
        strcat(text, labels.names[i]);
    }
    assert_string_equal(text, names);
    assert_int_equal(labels.problem, problem);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_label_forms) {
    assert_classes(f, open_labels(f, "i.csv", "text,label\nw,10\nw,2\nw,-1\nw,2\n"), false, SNUG_LABELS_INTEGER,
                   SNUG_PROBLEM_SINGLE_LABEL, "-1 2 10");
    assert_classes(f, open_labels(f, "e.csv", "text,label\nw,1\nw,01\nw,+1\n"), false, SNUG_LABELS_INTEGER,
                   SNUG_PROBLEM_SINGLE_LABEL, "+1 01 1"); /* of a single number, as written */
    assert_classes(f, open_labels(f, "r0.csv", "text,label\nw,.5\nw,1E5\nw,1e-5\nw,1e+5\nw,1234567890123456789\n"),
                   false, SNUG_LABELS_REAL, SNUG_PROBLEM_REGRESSION, "LABEL_0");
    assert_classes(f, open_split(f, "m0.csv", "text,label\nw,|a||b|\n"), false, SNUG_LABELS_LIST,
                   SNUG_PROBLEM_MULTI_LABEL, "a b");
    assert_classes(f, open_labels(f, "s.json", "[{\"text\":\"w\",\"label\":\"10\"},{\"text\":\"w\",\"label\":\"2\"}]"),
                   false, SNUG_LABELS_STRING, SNUG_PROBLEM_SINGLE_LABEL, "10 2");
    assert_classes(f, open_labels(f, "s.csv", "text,label\nw,z\nw,ten\nw,2nd\n"), false, SNUG_LABELS_STRING,
                   SNUG_PROBLEM_SINGLE_LABEL, "2nd ten z");
    assert_classes(f, open_labels(f, "n.csv", "text,label\nw,inf\nw,0x10\nw,1e\n"), false, SNUG_LABELS_STRING,
                   SNUG_PROBLEM_SINGLE_LABEL, "0x10 1e inf");
    assert_classes(f,
                   open_labels(f, "s.jsonl", "{\"text\":\"w\",\"label\":\"10\"}\n{\"text\":\"w\",\"label\":\"2\"}\n"),
                   false, SNUG_LABELS_STRING, SNUG_PROBLEM_SINGLE_LABEL, "10 2");
    assert_classes(f, open_labels(f, "i.jsonl", "{\"text\":\"w\",\"label\":10}\n{\"text\":\"w\",\"label\":2}\n"), false,
                   SNUG_LABELS_INTEGER, SNUG_PROBLEM_SINGLE_LABEL, "2 10");
    assert_classes(f, open_labels(f, "r.csv", "text,label\nw,1\nw,-2.55e1\n"), false, SNUG_LABELS_REAL,
                   SNUG_PROBLEM_REGRESSION, "LABEL_0");
    assert_classes(f, open_labels(f, "r2.csv", "text,label\nw,1\nw,3\n"), true, SNUG_LABELS_INTEGER,
                   SNUG_PROBLEM_REGRESSION, "LABEL_0");
    assert_classes(f, open_split(f, "m.csv", "text,label\nw,b|a\nw,\nw,c\n"), false, SNUG_LABELS_LIST,
                   SNUG_PROBLEM_MULTI_LABEL, "a b c");
    assert_classes(
        f, open_labels(f, "m.jsonl", "{\"text\":\"w\",\"label\":[]}\n{\"text\":\"w\",\"label\":[\"x\",\"a\"]}\n"),
        false, SNUG_LABELS_LIST, SNUG_PROBLEM_MULTI_LABEL, "a x");

    struct snug_dataset *dataset = open_split(f, "d.csv", "text,label\nw,b|a|b\nw,\nw,c\n");
    assert_string_equal(labels_of_row(f, dataset, 0), "b a");
    assert_string_equal(labels_of_row(f, dataset, 1), "");
    assert_string_equal(labels_of_row(f, dataset, 2), "c");
    int64_t labels;
    for (int64_t row = 0; row < 3; row++) {
        assert_int_equal(snug_dataset_count_labels(f->ctx, dataset, row, &labels), SNUG_OK);
        assert_int_equal(labels, row == 0 ? 2 : row == 1 ? 0 : 1);
    }
    snug_dataset_close(dataset);
}

/* nan and inf among numbers are refused, in every spelling; among words inf is a word. */
FIXTURE_TEST(test_nonfinite_labels) {
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"a.csv", "text,label\nw,0.5\nw,NaN\nw,nan\n", "a.csv:3: the label \"NaN\""},
        {"b.tsv", "text\tlabel\nw\t1.5\nw\t2\nw\t-Inf\n", "b.tsv:4: the label \"-Inf\""},
        {"c.csv", "text,label\nw,+infinity\nw,2.5\n", "c.csv:2: the label \"+infinity\""},
        {"d.csv", "text,label\nw,0\nw,1\nw,nan\n", "d.csv:4: the label \"nan\""},
        {"e.jsonl", "{\"text\":\"w\",\"label\":0.5}\n{\"text\":\"w\",\"label\":\"INF\"}\n",
         "e.jsonl:2: the label \"INF\""},
    };
    struct snug_labels labels, one = {.problem = SNUG_PROBLEM_REGRESSION, .count = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int regression = 0; regression < 2; regression++) {
            struct snug_dataset *dataset = open_labels(f, cases[i].name, cases[i].text);
            assert_failed(f, snug_labels_of(f->ctx, dataset, regression, &labels), SNUG_E_INPUT, cases[i].says);
            assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &one), SNUG_E_INPUT, cases[i].says);
            snug_dataset_close(dataset);
        }
    /* JSON has no literal for them, but some programs write one. */
    assert_open_fails(
        f, options_for(write_file(f, "f.jsonl", "{\"text\":\"w\",\"label\":1}\n{\"text\":\"w\",\"label\":NaN}\n")),
        SNUG_E_INPUT, "f.jsonl:2");
    assert_open_fails(f, options_for(path_of(f, "f.jsonl")), SNUG_E_INPUT, "f.jsonl:2: the row has no label");
    assert_classes(f, open_labels(f, "g.csv", "text,label\nw,inf\nw,yes\nw,no\n"), false, SNUG_LABELS_STRING,
                   SNUG_PROBLEM_SINGLE_LABEL, "inf no yes");
    assert_classes(f, open_labels(f, "h.csv", "text,label\nw,Infinity\nw,inf\n"), false, SNUG_LABELS_STRING,
                   SNUG_PROBLEM_SINGLE_LABEL, "Infinity inf");
    assert_classes(f,
                   open_labels(f, "i.jsonl", "{\"text\":\"w\",\"label\":\"1\"}\n{\"text\":\"w\",\"label\":\"inf\"}\n"),
                   false, SNUG_LABELS_STRING, SNUG_PROBLEM_SINGLE_LABEL, "1 inf");
}

FIXTURE_TEST(test_label_errors) {
    char *names[] = {"no", "yes"}, *plain[] = {"LABEL_0", "LABEL_1"};
    struct snug_labels model = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2, .names = names}, labels;
    struct snug_dataset *dataset = open_labels(f, "u.csv", "text,label\nw,yes\nw,no\nw,perhaps\n");
    assert_failed(
        f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT,
        "u.csv:4: the label \"perhaps\" is not one of the model's 2 classes, those seen in training: no, yes");
    char *many[100], name[64]; /* more than an error message holds */
    struct snug_labels large = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 100, .names = many};
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "class%d", i);
        many[i] = strdup(name);
    }
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &large), SNUG_E_INPUT, "class0, class1, ");
    for (int i = 0; i < 100; i++) free(many[i]);
    assert_failed(f, snug_labels_of(f->ctx, dataset, true, &labels), SNUG_E_INPUT,
                  "u.csv:2: the label \"yes\" is not a number");
    snug_dataset_close(dataset);

    dataset = open_labels(f, "v.csv", "text,label\nw,1\nw,0\n");
    model.names = plain; /* a model without names accepts integers */
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_OK);
    snug_dataset_close(dataset);
    dataset = open_labels(f, "w.csv", "text,label\nw,1\nw,2\n");
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT, "w.csv:3: the label \"2\"");
    snug_dataset_close(dataset);

    dataset = open_split(f, "x.csv", "text,label\nw,yes|no\n");
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT, "x.csv: its labels are lists");
    assert_failed(f, snug_labels_of(f->ctx, dataset, true, &labels), SNUG_E_INPUT, "x.csv: its labels are lists");
    snug_dataset_close(dataset);
    dataset = open_labels(f, "y.csv", "text,label\nw,1\nw,1e99\nw,2\n");
    model.problem = SNUG_PROBLEM_REGRESSION;
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT, "y.csv:3: the label 1e99");
    snug_dataset_close(dataset);

    struct snug_dataset_options options = options_for(write_file(f, "z.csv", "text,label\nw,\nw,\n"));
    options.need_labels = false; /* a file for prediction may leave its labels empty */
    dataset = open_with(f, options);
    assert_failed(f, snug_labels_of(f->ctx, dataset, false, &labels), SNUG_E_INPUT, "z.csv: no row has a label");
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_max_samples) {
    struct snug_dataset_options options = options_for(write_file(f, "x.csv", "text,label\nw1,a\nw2,a\nw3,c\nw4,b\n"));
    options.max_samples = 2;
    struct snug_dataset *dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 2);
    assert_classes(f, dataset, false, SNUG_LABELS_STRING, SNUG_PROBLEM_SINGLE_LABEL, "a b c");
    options = options_for(write_file(f, "x.txt", "w1 w2\nw3\nw4\n"));
    options.task = SNUG_TASK_MLM;
    options.max_length = 3;
    options.max_samples = 2;
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 2);
    snug_dataset_close(dataset);
    options = options_for(write_file(f, "y.txt", "w1 w2 w3 w4 w5 w6\nw7\n"));
    options.task = SNUG_TASK_MLM;
    options.max_length = 3;
    options.max_samples = 1; /* several blocks of one line */
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 1);
    snug_dataset_close(dataset);
    options = options_for(write_file(f, "z.csv", "text\nw1\nw2\n"));
    options.need_labels = false;
    options.max_samples = 1; /* without labels the rest is not read */
    options.threads = 0;
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 1);
    snug_dataset_close(dataset);
}

/* Rows with so many tokens that their length takes more than a byte. */
FIXTURE_TEST(test_long_rows) {
    FILE *file = fopen(path_of(f, "long.csv"), "w");
    assert_non_null(file);
    fputs("text,label\nw1,a\n", file);
    for (int i = 0; i < 300; i++) fprintf(file, "w%d ", i % WORDS);
    fputs(",b\n", file);
    fclose(file);
    struct snug_dataset_options options = options_for(path_of(f, "long.csv"));
    options.max_length = 1000;
    struct snug_dataset *dataset = open_with(f, options);
    assert_int_equal(length_of(f, dataset, 0), 3);
    assert_int_equal(length_of(f, dataset, 1), 302);
    snug_dataset_close(dataset);
}

/* The size of the cache is estimated after 16 MiB of the file: with all rows, with few rows, and without a cache. */
FIXTURE_TEST(test_cache_size_is_estimated_early) {
    enum { EACH = 2 << 20 };
    static const struct {
        int rows;
        int64_t most;
        bool cached;
    } cases[] = {{8, -1, true}, {10, -1, true}, {10, 9, true}, {10, 100, true}, {10, -1, false}};
    char *text = malloc(EACH);
    assert_non_null(text);
    memset(text, 'w', EACH);
    for (int i = 0; i < 40; i++) memcpy(text + 5 * i, "[SEP]", 5); /* only this much of a text is tokenized */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *file = fopen(path_of(f, "wide.csv"), "w");
        assert_non_null(file);
        fputs("text,label\n", file);
        for (int row = 0; row < cases[i].rows; row++) {
            assert_int_equal(fwrite(text, 1, EACH, file), EACH);
            fputs(",a\n", file);
        }
        fclose(file);
        struct snug_dataset_options options = options_for(path_of(f, "wide.csv"));
        options.max_samples = cases[i].most;
        if (!cases[i].cached) setenv("SNUG_CACHE", path_of(f, "wide.csv"), 1);
        struct snug_dataset *dataset = open_with(f, options);
        assert_int_equal(snug_dataset_rows(dataset), cases[i].most == 9 ? 9 : cases[i].rows);
        assert_int_equal(snug_dataset_tokens(dataset), 32 * snug_dataset_rows(dataset));
        snug_dataset_close(dataset);
    }
    free(text);
}

FIXTURE_TEST(test_masked_lm) {
    struct snug_dataset_options options = options_for(write_file(f, "m.txt", "w1 w2 w3\n\nw4\n   \nw5 w6\n"));
    options.task = SNUG_TASK_MLM;
    options.max_length = 4;
    struct snug_dataset *dataset = open_with(f, options); /* 5 + 2 + 3 + 2 + 4 tokens joined: 4 blocks of 4 */
    assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_NONE);
    assert_int_equal(snug_dataset_rows(dataset), 4);
    assert_int_equal(snug_dataset_truncated(dataset), 0);
    ASSERT_ROW(f, dataset, 0, 4, 1, CLS, W0 + 1, W0 + 2, W0 + 3);
    ASSERT_ROW(f, dataset, 1, 4, 1, SEP, CLS, SEP, CLS);
    ASSERT_ROW(f, dataset, 2, 4, 3, W0 + 4, SEP, CLS, SEP);
    ASSERT_ROW(f, dataset, 3, 4, 5, CLS, W0 + 5, W0 + 6, SEP);
    snug_dataset_close(dataset);
    options.max_length = 5; /* the last, incomplete block is dropped */
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 3);
    snug_dataset_close(dataset);

    options.line_by_line = true;
    options.max_length = 4;
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 3);
    assert_int_equal(snug_dataset_truncated(dataset), 1);
    ASSERT_ROW(f, dataset, 0, 4, 1, CLS, W0 + 1, W0 + 2, SEP);
    ASSERT_ROW(f, dataset, 1, 3, 3, CLS, W0 + 4, SEP);
    ASSERT_ROW(f, dataset, 2, 4, 5, CLS, W0 + 5, W0 + 6, SEP);
    snug_dataset_close(dataset);

    options.line_by_line = false;
    options.max_length = 32;
    assert_open_fails(f, options, SNUG_E_INPUT, "its 16 tokens do not fill one block of 32: train with --line_by_line");
    options = options_for(write_file(f, "m.csv", "label,a,text\n1,w1,w2\n"));
    options.task = SNUG_TASK_MLM;
    options.line_by_line = true;
    dataset = open_with(f, options);
    ASSERT_ROW(f, dataset, 0, 3, 2, CLS, W0 + 2, SEP);
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_dummy) {
    struct snug_dataset_options options = options_for("dummy:300x33");
    struct snug_dataset *dataset, *large;
    struct snug_row_buffer buffer = {0}, other = {0};
    struct snug_dataset_row row, same;
    int64_t ones = 0, seen[VOCAB] = {0};
    options.max_length = 8; /* dummy rows are never truncated */
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &options, &dataset), SNUG_OK);
    assert_int_equal(snug_dataset_tokens(dataset), 300 * 33);
    options.path = "dummy:1000000000000x512";
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &options, &large), SNUG_OK);
    for (int64_t i = 0; i < 300; i++) {
        assert_int_equal(snug_dataset_read(f->ctx, dataset, i, &buffer, &row), SNUG_OK);
        assert_int_equal(row.count, 33);
        assert_int_equal(row.label_count, 1);
        ones += row.labels[0];
        for (int64_t k = 0; k < 33; k++) {
            assert_in_range(row.ids[k], 100, VOCAB - 1);
            seen[row.ids[k]]++;
        }
        assert_int_equal(snug_dataset_read(f->ctx, large, i, &other, &same), SNUG_OK);
        assert_memory_equal(row.ids, same.ids, 33 * sizeof *row.ids);
    }
    assert_in_range(ones, 150 - 45, 150 + 45); /* 5 sigma */
    for (int id = 100; id < VOCAB; id++) assert_in_range(seen[id], 94 - 50, 94 + 50);
    assert_int_equal(snug_dataset_read(f->ctx, large, 999999999999, &other, &same), SNUG_OK);
    snug_dataset_close(large);
    int64_t tokens = 0, shortest = INT64_MAX, longest = 0;
    options.path = "dummy:300x5-24";
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &options, &large), SNUG_OK);
    for (int64_t i = 0; i < 300; i++) {
        assert_int_equal(snug_dataset_read(f->ctx, large, i, &other, &same), SNUG_OK);
        assert_int_equal(same.count, length_of(f, large, i));
        tokens += same.count;
        if (same.count < shortest) shortest = same.count;
        if (same.count > longest) longest = same.count;
    }
    assert_true(shortest == 5 && longest == 24);
    assert_int_equal(tokens, snug_dataset_tokens(large));
    snug_dataset_close(large);
    assert_classes(f, dataset, false, SNUG_LABELS_INTEGER, SNUG_PROBLEM_SINGLE_LABEL, "0 1");
    free(buffer.data);
    free(other.data);
    static const char *const wrong[] = {"dummy:",
                                        "dummy:5",
                                        "dummy:0x5",
                                        "dummy:5x0",
                                        "dummy:5x5x",
                                        "dummy:-1x5",
                                        "dummy:99999999999999999999x5",
                                        "dummy:9223372036854775807x2",
                                        "dummy:5x5-",
                                        "dummy:5x5-4",
                                        "dummy:5x3000000000",
                                        "dummy:5x5-8x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_open_fails(f, options_for(wrong[i]), SNUG_E_USAGE, "dummy:ROWSxTOKENS");
    options = options_for("dummy:5x5");
    options.vocab_size = 0;
    assert_open_fails(f, options, SNUG_E_USAGE, "a vocabulary of 0 tokens");
    options.vocab_size = INT64_C(1) << 31;
    assert_open_fails(f, options, SNUG_E_USAGE, "a vocabulary of 2147483648 tokens");
    options.vocab_size = 50; /* without words for the ids */
    options.max_samples = 9;
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 5);
    buffer = (struct snug_row_buffer){0};
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 4, &buffer, &row), SNUG_OK);
    for (int64_t k = 0; k < 5; k++) assert_in_range(row.ids[k], 0, 49);
    free(buffer.data);
    snug_dataset_close(dataset);
}

/* ---- the cache ------------------------------------------------------------------------------------------------- */

/* The only file in the cache's folder. */
static const char *cache_file(struct fixture *f) {
    static char path[512];
    DIR *folder = opendir(path_of(f, "cache"));
    int count = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/cache/%.200s", f->folder, entry->d_name);
            count++;
        }
    closedir(folder);
    assert_int_equal(count, 1);
    return path;
}

static const char two_rows[] = "text,label\nw1 w2,yes\nw3,no\n";

static void open_and_check(struct fixture *f, const struct snug_dataset_options *options, const char *said) {
    f->log[0] = '\0';
    struct snug_dataset *dataset = open_with(f, *options);
    assert_contains(f->log, said);
    assert_int_equal(snug_dataset_rows(dataset), 2);
    ASSERT_ROW(f, dataset, 0, 4, 2, CLS, W0 + 1, W0 + 2, SEP);
    ASSERT_ROW(f, dataset, 1, 3, 3, CLS, W0 + 3, SEP);
    assert_string_equal(labels_of_row(f, dataset, 1), "no");
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_cache_is_reused) {
    char path[256], first[512];
    snprintf(path, sizeof path, "%s", write_file(f, "c.csv", two_rows));
    struct snug_dataset_options options = options_for(path);
    open_and_check(f, &options, "tokenized into");
    snprintf(first, sizeof first, "%s", cache_file(f));
    open_and_check(f, &options, "read from");
    options.threads = 1; /* nothing that the tokens depend on */
    open_and_check(f, &options, "read from");
    options.overwrite_cache = true;
    open_and_check(f, &options, "tokenized into");
    options.overwrite_cache = false;
    options.max_length = 16;
    open_and_check(f, &options, "tokenized into");
    options.max_length = 32;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000, .tv_nsec = 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    open_and_check(f, &options, "read from"); /* the content is the same */
    size_t size;
    char *text;
    assert_int_equal(snug_file_read(f->ctx, NULL, path, &text, &size), SNUG_OK);
    char *label = strstr(text, "yes");
    assert_non_null(label);
    memcpy(label, "yep", 3); /* the same size and modification time */
    write_file(f, "c.csv", text);
    free(text);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    open_and_check(f, &options, "tokenized into");
    open_and_check(f, &options, "read from");
    load_tokenizer(f, "{\"do_lower_case\": false}");
    open_and_check(f, &options, "tokenized into");
}

/* Replaced and skipped text is logged in every run, not only in the one that tokenizes. */
FIXTURE_TEST(test_cache_keeps_oddities) {
    static const struct {
        const char *name, *text, *says;
    } cases[] = {{"m.csv", "sentence,label\nw1 \xe9,yes\nw3,no\n", "malformed UTF-8 in 1 line(s)"},
                 {"k.jsonl", "{\"sentence\": \"w1\", \"label\": 1}\n{\"sentence\": \"w2\", \"label\": 0, \"x\": 1}\n",
                  "keys that the first object lacks in 1 row(s)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_dataset_options options = options_for(write_file(f, cases[i].name, cases[i].text));
        for (int round = 0; round < 2; round++) {
            f->log[0] = '\0';
            snug_dataset_close(open_with(f, options));
            assert_contains(f->log, round ? "read from" : "tokenized into");
            assert_contains(f->log, cases[i].says);
        }
        struct snug_dataset_options first_rows = options; /* of which the reader does not find the end */
        first_rows.max_samples = 2;
        for (int round = 0; round < 2; round++) {
            f->log[0] = '\0';
            snug_dataset_close(open_with(f, first_rows));
            assert_contains(f->log, round ? "read from" : "tokenized into");
        }
        assert_contains(f->log, cases[i].says);
    }
}

/* A flipped bit anywhere in the file, and a truncation at any offset, must be detected. */
FIXTURE_TEST(test_damaged_cache) {
    struct snug_dataset_options options = options_for(write_file(f, "c.csv", two_rows));
    open_and_check(f, &options, "tokenized into");
    char *data;
    size_t size;
    const char *path = cache_file(f);
    assert_int_equal(snug_file_read(f->ctx, NULL, path, &data, &size), SNUG_OK);
    for (size_t i = 0; i < size; i++) {
        data[i] ^= (char)(1 << i % 8);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        const size_t kept = i % 5 ? size : i; /* every fifth copy is also truncated */
        assert_int_equal(fwrite(data, 1, kept, file), kept);
        fclose(file);
        data[i] ^= (char)(1 << i % 8);
        open_and_check(f, &options, "damaged and is rebuilt");
    }
    open_and_check(f, &options, "read from");
    free(data);
}

/* Manipulated caches with valid checksums. */
enum part { OF_HEADER, OF_ROWS, OF_INDEX, OF_LENGTHS, OF_LABELS };
#define FIELD(name) OF_HEADER, offsetof(struct snug_cache_header, name)
static const struct {
    enum part part;
    size_t at;
    uint64_t value;
    size_t size;
    const char *says;
} forged[] = {
    {FIELD(key_low), 1, 8, "it was made for other data"},
    {FIELD(key_high), 1, 8, "it was made for other data"},
    {FIELD(rows_size), UINT64_MAX, 8, "its size differs"},
    {FIELD(index_size), UINT64_MAX, 8, "its size differs"},
    {FIELD(labels_size), UINT64_MAX, 8, "its size differs"},
    {FIELD(labels_size), 0, 8, "its size differs"},
    {FIELD(rows_size), 4, 8, "its rows do not end where rows end"},
    {FIELD(rows), 0, 8, "the number of rows is wrong"},
    {FIELD(rows), 7, 8, "the number of rows is wrong"},
    {FIELD(index_size), 17, 8, "the number of rows is wrong"},
    {FIELD(longest), UINT64_MAX, 8, "the longest row is out of bounds"},
    {FIELD(longest), UINT64_C(1) << 31, 8, "the longest row is out of bounds"},
    {FIELD(label_form), 200, 4, "the form of the labels is unknown"},
    {FIELD(label_form), SNUG_LABELS_TAGS, 4, "a row's words are wrong"},
    {FIELD(label_form), SNUG_LABELS_MASK, 4, "a row's mask of losses is wrong"},
    {FIELD(label_form), SNUG_LABELS_TEXTS, 4, "a row's texts are wrong"},
    {FIELD(label_form), SNUG_LABELS_ANSWERS, 4, "a row's answers are wrong"},
    {FIELD(label_count), 1000, 4, "the table of labels is too short"},
    {FIELD(index_sum), 1, 8, "the index's checksum differs"},
    {FIELD(lengths_sum), 1, 8, "the lengths' checksum differs"},
    {FIELD(rows_sum), 1, 8, "the rows' checksum differs"},
    {FIELD(labels_sum), 1, 8, "the labels' checksum differs"},
    {FIELD(tokens), 9, 8, "the index is incomplete"},
    {FIELD(longest), 5, 8, "the index is incomplete"},
    {FIELD(truncated), 1, 8, "the number of truncated rows is wrong"},
    {OF_INDEX, offsetof(struct snug_cache_entry, offset), 0, 8, "an index entry is out of bounds"},
    {OF_INDEX, offsetof(struct snug_cache_entry, length), UINT32_MAX, 4, "an index entry is out of bounds"},
    {OF_INDEX, sizeof(struct snug_cache_entry) + offsetof(struct snug_cache_entry, length), 0, 4,
     "a row has two lengths"},
    {OF_INDEX, sizeof(struct snug_cache_entry) + offsetof(struct snug_cache_entry, labels), 0, 4,
     "the index is incomplete"},
    {OF_ROWS, offsetof(struct snug_cache_row, first_count), UINT32_MAX, 4, "a row's token types are wrong"},
    {OF_ROWS, offsetof(struct snug_cache_row, first_count), 5, 4, "a row's token types are wrong"},
    {OF_ROWS, sizeof(struct snug_cache_row), 3, 4, "a row's label is unknown"},
    {OF_ROWS, sizeof(struct snug_cache_row), 0x7fc00000ffffffff, 8, "a row's label is not a number"},
    {OF_ROWS, sizeof(struct snug_cache_row) + 8, VOCAB, 4, "a row's token is not in the vocabulary"},
    {OF_LABELS, offsetof(struct snug_raw_label, offset), 100, 8, "a label is out of bounds"},
    {OF_LABELS, 3 * sizeof(struct snug_raw_label) + 5, 'x', 1, "the last label has no end"},
};

/* The numbers of a row's texts: how many, the tokens of each, perhaps a score. */
TEST(test_forged_texts) {
    const uint32_t half = 0x3f000000, infinite = 0x7f800000;
    const struct {
        uint32_t numbers[6];
        int64_t count;
        bool valid;
    } cases[] = {
        {{2, 3, 4}, 3, true},
        {{2, 3, 4, half}, 4, true},
        {{1, 7, half}, 3, true},
        {{0}, 1, false},
        {{0, 7}, 2, false},
        {{3, 3, 4}, 3, false},
        {{UINT32_MAX, 7}, 2, false},
        {{2, 3, 5}, 3, false},
        {{2, 3, 4, half, half}, 5, false},
        {{2, 3, 3, half}, 4, false},
        {{2, 3, 4, infinite}, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_row_texts texts = {0};
        const bool valid = snug_row_texts_of(cases[i].numbers, cases[i].count, 7, &texts);
        if (valid != cases[i].valid) fail_msg("case %zu is %staken", i, valid ? "" : "not ");
        if (valid) assert_true(texts.scored ? texts.score == 0.5F : texts.score == 0);
    }
}

FIXTURE_TEST(test_forged_cache) {
    struct snug_dataset_options options = options_for(write_file(f, "c.csv", "text,label\nw1 w2,a|b\nw3 w4,c\n"));
    options.label_separator = "|";
    snug_dataset_close(open_with(f, options));
    char *whole, *data;
    size_t size;
    const char *path = cache_file(f);
    assert_int_equal(snug_file_read(f->ctx, NULL, path, &whole, &size), SNUG_OK);
    data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        struct snug_cache_header *header = (struct snug_cache_header *)data;
        memcpy(data, whole, size);
        char *const rows = data + sizeof *header, *const index = rows + header->rows_size,
                    *const lengths = index + header->index_size, *const labels = lengths + header->rows;
        char *const parts[] = {data, rows, index, lengths, labels};
        memcpy(parts[forged[i].part] + forged[i].at, &forged[i].value, forged[i].size);
        if (forged[i].part != OF_HEADER) {
            /* Without its label the last row is shorter. */
            const size_t unread =
                forged[i].at == sizeof(struct snug_cache_entry) + offsetof(struct snug_cache_entry, labels) ? 8 : 0;
            header->rows_sum = XXH3_64bits(rows, (size_t)(index - rows) - unread);
            header->index_sum = XXH3_64bits(index, (size_t)(lengths - index));
            header->labels_sum = XXH3_64bits(labels, (size_t)(data + size - labels));
        }
        header->sum = XXH3_64bits(header, offsetof(struct snug_cache_header, sum));
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(data, 1, size, file), size);
        fclose(file);
        f->log[0] = '\0';
        struct snug_dataset *dataset = open_with(f, options);
        if (!strstr(f->log, forged[i].says)) fail_msg("case %zu: %s", i, f->log);
        assert_string_equal(labels_of_row(f, dataset, 0), "a b");
        snug_dataset_close(dataset);
    }
    /* A file that changes after it was checked. */
    struct snug_dataset *dataset = open_with(f, options);
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    const struct snug_cache_header *header = (const struct snug_cache_header *)whole;
    assert_int_equal(
        fseek(file, (long)(sizeof *header + header->rows_size + offsetof(struct snug_cache_entry, length)), SEEK_SET),
        0);
    assert_int_equal(fwrite("\377\377\377", 1, 3, file), 3);
    fclose(file);
    assert_failed(f, snug_dataset_read(f->ctx, dataset, 0, &buffer, &row), SNUG_E_IO,
                  "has changed since it was checked");
    snug_dataset_close(dataset);
    free(buffer.data);
    free(whole);
    free(data);
}

static bool at_once(void *user) {
    (void)user;
    return true;
}

FIXTURE_TEST(test_interrupted_check) {
    const struct snug_dataset_options options = options_for(write_file(f, "c.csv", two_rows));
    snug_dataset_close(open_with(f, options));
    snug_set_stop(f->ctx, at_once, NULL);
    assert_open_fails(f, options, SNUG_E_INTERRUPTED, "interrupted while the token cache was checked");
    snug_set_stop(f->ctx, NULL, NULL);
}

FIXTURE_TEST(test_cache_cannot_be_written) {
    struct snug_dataset_options options = options_for(write_file(f, "c.csv", two_rows));
    char inside[256];
    snprintf(inside, sizeof inside, "%s/x", options.path); /* a folder within a file */
    setenv("SNUG_CACHE", inside, 1);
    open_and_check(f, &options, "texts are tokenized again in every run: cannot make folder");
    assert_contains(f->log, "a temporary file");
    assert_string_equal(snug_error_message(f->ctx), "");
    unsetenv("SNUG_CACHE");
    setenv("XDG_CACHE_HOME", path_of(f, "xdg"), 1);
    open_and_check(f, &options, "/xdg/snug/");
    unsetenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char before[1024];
    snprintf(before, sizeof before, "%s", home ? home : "");
    unsetenv("HOME");
    open_and_check(f, &options, "no folder for a cache is known");
    if (home) setenv("HOME", before, 1);
    assert_int_equal(mkdir(path_of(f, "closed"), 0555), 0);
    assert_int_equal(chmod(f->folder, 0755), 0);
    setenv("SNUG_CACHE", path_of(f, "closed"), 1);
    be_another_user(true);
    open_and_check(f, &options, "another user");
    be_another_user(false);
}

/* Many chunks and tasks, lists of labels, long rows; the number of threads makes no difference. */
FIXTURE_TEST(test_many_rows) {
    enum { ROWS = 10000 };
    FILE *file = fopen(path_of(f, "many.csv"), "w");
    assert_non_null(file);
    fprintf(file, "text,label\n");
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k <= i % 7 + (i == 5000 ? 300000 : 0); k++) fprintf(file, "w%d ", (i + k) % WORDS);
        fprintf(file, i % 3 ? ",l%d|m%d\n" : ",l%d\n", i % 1000, i % 11);
    }
    fclose(file);
    struct snug_dataset_options options = options_for(path_of(f, "many.csv"));
    options.label_separator = "|";
    options.max_length = 400000;
    for (options.threads = 1; options.threads <= 4; options.threads += 3) {
        options.overwrite_cache = true;
        struct snug_dataset *dataset = open_with(f, options);
        struct snug_row_buffer buffer = {0};
        struct snug_dataset_row row;
        assert_int_equal(snug_dataset_rows(dataset), ROWS);
        for (int64_t i = 0; i < ROWS; i++) {
            assert_int_equal(snug_dataset_read(f->ctx, dataset, i, &buffer, &row), SNUG_OK);
            assert_int_equal(row.line, i + 2);
            assert_int_equal(row.count, i % 7 + 3 + (i == 5000 ? 300000 : 0));
            for (int64_t k = 1; k < row.count - 1; k++) assert_int_equal(row.ids[k], W0 + (i + k - 1) % WORDS);
            assert_int_equal(row.label_count, i % 3 ? 2 : 1);
            char label[16];
            snprintf(label, sizeof label, "l%d", (int)i % 1000);
            assert_string_equal(snug_dataset_raw_label(dataset, row.labels[0]), label);
        }
        free(buffer.data);
        snug_dataset_close(dataset);
    }
}

TEST_MAIN(NULL, NULL)
