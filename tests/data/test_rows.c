/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in memory give what a file of them gives, bit for bit, and are checked as its rows are. */
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void fails(const struct fixture *f, snug_status found, snug_status status, const char *says) {
    if (found != status) fail_msg("status %d: %s", found, snug_error_message(f->ctx));
    assert_contains(snug_error_message(f->ctx), says);
}

static snug_rows *new_rows(const struct fixture *f) {
    snug_rows *rows;
    ok(f, snug_rows_create(f->ctx, &rows));
    return rows;
}

enum { ITEMS = 64 };

static snug_value text_value(const char *text) {
    return (snug_value){.kind = SNUG_VALUE_TEXT, .text = text, .length = strlen(text)};
}

/* A value of JSON; items: memory for a list's. */
static snug_value value_of(const json_t *value, snug_value items[ITEMS]) {
    const size_t count = json_array_size(value);
    assert_true(count <= ITEMS);
    for (size_t i = 0; items && i < count; i++) items[i] = value_of(json_array_get(value, i), NULL);
    switch (json_typeof(value)) {
    case JSON_STRING: return text_value(json_string_value(value));
    case JSON_INTEGER: return (snug_value){.kind = SNUG_VALUE_INTEGER, .integer = json_integer_value(value)};
    case JSON_REAL: return (snug_value){.kind = SNUG_VALUE_REAL, .real = json_real_value(value)};
    case JSON_TRUE:
    case JSON_FALSE: return (snug_value){.kind = SNUG_VALUE_BOOLEAN, .integer = json_is_true(value)};
    case JSON_ARRAY: return (snug_value){.kind = SNUG_VALUE_LIST, .items = items, .length = count};
    case JSON_OBJECT: return (snug_value){.kind = SNUG_VALUE_OTHER, .text = "a dict"};
    default: return (snug_value){.kind = SNUG_VALUE_MISSING, .text = "None"};
    }
}

/* A row by the calls for single columns, or as a whole. */
static void add_row(const struct fixture *f, snug_rows *rows, const char *object, bool whole) {
    json_error_t error;
    json_t *row = json_loads(object, 0, &error), *value;
    if (!row) fail_msg("%s: %s", object, error.text);
    const char *key, *columns[ITEMS];
    static snug_value values[ITEMS], items[ITEMS][ITEMS];
    size_t count = 0;
    json_object_foreach(row, key, value) {
        values[count] = value_of(value, items[count]);
        columns[count] = key;
        if (whole)
            count++;
        else if (json_is_string(value))
            ok(f, snug_rows_text(rows, key, json_string_value(value)));
        else if (json_is_integer(value))
            ok(f, snug_rows_integer(rows, key, json_integer_value(value)));
        else if (json_is_real(value))
            ok(f, snug_rows_real(rows, key, json_real_value(value)));
        else
            ok(f, snug_rows_set(rows, key, &values[count]));
    }
    ok(f, whole ? snug_rows_add(rows, columns, values, count) : snug_rows_end(rows));
    json_decref(row);
}

/* The rows of a JSON Lines file. */
static snug_rows *rows_of(const struct fixture *f, const char *path, bool whole) {
    snug_rows *rows = new_rows(f);
    char *text = read_text(f, path, NULL), *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line) add_row(f, rows, line, whole);
    free(text);
    return rows;
}

/* So many rows: the format of the text, of an even row's label and of an odd one's. */
static void write_rows(const struct fixture *f, const char *name, const char *text, const char *even, const char *odd) {
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    for (int i = 0; i < 24; i++) {
        fputc('{', file);
        fprintf(file, text, i % 2 ? "good" : "bad", i);
        fprintf(file, ", %s}\n", i % 2 ? odd : even);
    }
    assert_int_equal(fclose(file), 0);
}

static void train_rows(struct fixture *f, const char *out, const char *words, snug_rows *rows, snug_rows *validation) {
    snug_args *args = training_args(f, words);
    ok(f, snug_args_set_rows(args, "train_file", rows));
    ok(f, snug_args_set_rows(args, "validation_file", validation));
    set_args(f, args, "eval_strategy=epoch");
    ok(f, snug_args_set(args, "output_dir", path_of(f, "%s", out)));
    ok(f, snug_train(args, NULL, NULL));
    snug_args_destroy(args);
}

FIXTURE_TEST(test_same_as_a_file) {
    static const struct {
        const char *text, *even, *odd, *words;
    } cases[] = {
        {"\"text\": \"w1 %s w%d \\\"\\\\\\n\\u00e9\"", "\"label\": \"no\"", "\"label\": \"yes\"", ""},
        {"\"sentence1\": \"%s\", \"sentence2\": \"w%d\"", "\"label\": 0", "\"label\": 1", ""},
        {"\"text\": \"%s w%d\"", "\"label\": 1.0", "\"label\": 0.1", ""},
        {"\"text\": \"%s w%d\"", "\"label\": [\"a\"]", "\"label\": [\"a\", \"b\"]", ""},
        {"\"text\": \"%s w%d\"", "\"label\": [1, 0, 1]", "\"label\": [0, 1, 1]", ""},
        {"\"tokens\": [\"%s\", \"w%d\"]", "\"ner_tags\": [\"B-x\", \"O\"]", "\"ner_tags\": [\"O\", \"O\"]", "task=ner"},
        {"\"text\": \"%s w%d\"", "\"label\": 0", "\"label\": 1", "validation_split_percentage=25"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];
        const bool splits = strstr(cases[i].words, "split");
        write_rows(f, "rows.jsonl", cases[i].text, cases[i].even, cases[i].odd);
        snprintf(words, sizeof words, "eval_strategy=epoch train_file=@rows.jsonl %s %s",
                 splits ? "" : "validation_file=@rows.jsonl", cases[i].words);
        train(f, "file", words);
        json_t *file = read_json(f, path_of(f, "file/eval_results.json"));
        for (int whole = 0; whole < 2; whole++) {
            snug_rows *rows = rows_of(f, path_of(f, "rows.jsonl"), whole);
            if (splits) {
                snug_args *args = training_args(f, words);
                ok(f, snug_args_set_rows(args, "train_file", rows));
                set_args(f, args, "output_dir=@rows");
                ok(f, snug_train(args, NULL, NULL));
                snug_args_destroy(args);
            } else {
                train_rows(f, "rows", cases[i].words, rows, rows);
            }
            assert_same_file(f, path_of(f, "file/model.safetensors"), path_of(f, "rows/model.safetensors"));
            json_t *found = read_json(f, path_of(f, "rows/eval_results.json"));
            assert_true(json_equal(json_object_get(file, "eval_loss"), json_object_get(found, "eval_loss")));
            json_decref(found);
            snug_rows_destroy(rows);
            ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "rows")));
        }
        json_decref(file);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "file")));
    }
}

struct kept {
    char text[256];
};

static snug_status keep_row(void *user, const snug_prediction *row) {
    struct kept *kept = user;
    const size_t used = strlen(kept->text);
    snprintf(kept->text + used, sizeof kept->text - used, "%s=%s ", row->column_names[0],
             row->columns[0] ? row->columns[0] : "-");
    return SNUG_OK;
}

static snug_status count_tokens(void *user, const snug_tokenized *row) {
    *(size_t *)user += row->count;
    return SNUG_OK;
}

/* The other jobs, with one snug_rows for all, to which rows are added meanwhile. */
FIXTURE_TEST(test_other_jobs) {
    snug_rows *rows = new_rows(f);
    struct kept kept = {""};
    size_t tokens = 0;
    snug_metrics metrics;
    for (int i = 0; i < 2; i++) {
        ok(f, snug_rows_text(rows, "text", i ? "good" : "bad w1"));
        ok(f, snug_rows_text(rows, "label", i ? "positive" : "negative"));
        if (!i) ok(f, snug_rows_integer(rows, "note", 7));
        ok(f, snug_rows_end(rows));
    }
    train(f, "out", "max_steps=2");
    snug_args *args = plain_args(f, "model_name_or_path=@out threads=2");
    ok(f, snug_args_set_rows(args, "validation_file", rows));
    ok(f, evaluate_args(f, args, NULL, &metrics));
    assert_true(metric_of(&metrics, "eval_samples") == 2);
    add_row(f, rows, "{\"text\": \"w2\", \"note\": \"three\"}", true);
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@out threads=2 keep_columns=note");
    ok(f, snug_args_set_rows(args, "test_file", rows));
    ok(f, snug_predict(args, NULL, keep_row, &kept));
    assert_string_equal(kept.text, "note=7 note=- note=three ");
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@out");
    ok(f, snug_args_set_rows(args, "test_file", rows));
    ok(f, snug_tokenize(args, count_tokens, &tokens));
    assert_int_equal(tokens, 4 + 3 + 3);
    /* A file that is set later replaces the rows. */
    ok(f, snug_args_set(args, "test_file", path_of(f, "dev.txt")));
    tokens = 0;
    ok(f, snug_tokenize(args, count_tokens, &tokens));
    assert_true(tokens > 100);
    snug_args_destroy(args);
    snug_rows_destroy(rows);
}

FIXTURE_TEST(test_many_rows) {
    char text[4096], words[64];
    snug_rows *rows = new_rows(f);
    snug_plan *plan;
    memset(text, 'w', sizeof text - 1); /* a word of one token, [UNK]; some MiB in all */
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 1500; i++) {
        ok(f, snug_rows_text(rows, "text", i == 1499 ? "w1 w2 w3 w4 w5" : text));
        ok(f, snug_rows_integer(rows, "label", i % 2));
        ok(f, snug_rows_end(rows));
    }
    snprintf(words, sizeof words, "output_dir=@none");
    snug_args *args = training_args(f, words);
    ok(f, snug_args_set_rows(args, "train_file", rows));
    ok(f, snug_plan_create(args, &plan));
    assert_contains(f->log, "train rows in memory: 1500 rows, 4504 tokens; tokenized into a temporary file");
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    snug_rows_destroy(rows);
}

/* Trains on rows of these objects, each with the label 0 or 1 where it ends with a comma. */
static snug_status try_rows(struct fixture *f, const char *const *objects, const char *words) {
    snug_rows *rows = new_rows(f);
    snug_args *args = training_args(f, words);
    for (int i = 0; objects[i]; i++) add_row(f, rows, objects[i], i % 2);
    ok(f, snug_args_set_rows(args, "train_file", rows));
    set_args(f, args, "output_dir=@none");
    const snug_status status = snug_train(args, NULL, NULL);
    snug_args_destroy(args);
    snug_rows_destroy(rows);
    return status;
}

#define ROWS(...) ((const char *const[]){__VA_ARGS__, NULL})

FIXTURE_TEST(test_errors_name_row_and_column) {
    const char *const none[] = {NULL};
    static const struct {
        const char *row, *says;
    } cases[] = {
        {"{\"label\": 1}", "the row has no text: its column \"text\" is missing"},
        {"{\"text\": null, \"label\": 1}", "the row has no text: its column \"text\" is None"},
        {"{\"text\": true, \"label\": 1}", "the text must be a string: the column \"text\" holds a boolean"},
        {"{\"text\": [\"a\"], \"label\": 1}", "the column \"text\" holds a list; name the columns of texts with"},
        {"{\"text\": {}, \"label\": 1}", "the text must be a string: the column \"text\" holds a dict"},
        {"{\"text\": \"a\"}", "(its column \"label\" is missing"},
        {"{\"text\": \"a\", \"label\": null}", "(its column \"label\" is None"},
        {"{\"text\": \"a\", \"label\": {}}", "numbers, not a dict (column \"label\")"},
        {"{\"text\": \"a\", \"label\": [[1]]}", "numbers, not a list of other values (column \"label\")"},
        {"{\"text\": \"a\", \"label\": \"N/A\"}", "\"N/A\""},
    };
    fails(f, try_rows(f, none, ""), SNUG_E_INPUT, "train rows in memory is empty");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const rows[] = {"{\"text\": \"a\", \"label\": 0}", cases[i].row, NULL};
        fails(f, try_rows(f, rows, ""), SNUG_E_INPUT, "train rows in memory:2: ");
        fails(f, try_rows(f, rows, ""), SNUG_E_INPUT, cases[i].says);
    }
    fails(f, try_rows(f, ROWS("{\"tokens\": [\"a\", \"b\"], \"ner_tags\": [\"O\"]}"), "task=ner"), SNUG_E_INPUT,
          "train rows in memory:1: 2 words and 1 tags");
    fails(f, try_rows(f, ROWS("{\"tokens\": [\"a\"], \"ner_tags\": null}"), "task=ner"), SNUG_E_INPUT,
          "train rows in memory:1: the row has no tags: its column \"ner_tags\" is None");
    fails(f, try_rows(f, ROWS("{\"tokens\": [1], \"ner_tags\": [\"O\"]}"), "task=ner"), SNUG_E_INPUT,
          "train rows in memory:1: the words must be a list of strings: the column \"tokens\" holds numbers");
    static const char *const not_words[][2] = {
        {"1", "the words must be a list of strings: the column \"tokens\" holds a number"},
        {"1.5", "the column \"tokens\" holds a number"},
        {"null", "the row has no words: its column \"tokens\" is None"}};
    for (size_t i = 0; i < 3; i++) {
        char row[64];
        snprintf(row, sizeof row, "{\"tokens\": %s, \"ner_tags\": [\"O\"]}", not_words[i][0]);
        fails(f, try_rows(f, ROWS(row), "task=ner"), SNUG_E_INPUT, not_words[i][1]);
    }
    fails(f,
          try_rows(f, ROWS("{\"a\": \"x\", \"b\": \"y\", \"label\": 1}", "{\"a\": \"x\", \"label\": 0}"),
                   "text_column_names=a,b"),
          SNUG_E_INPUT, "train rows in memory:2: the row has no text: its column \"b\" is missing");
}

/* Whatever a program has there: an unused column never ends a run, a label of any kind means what it does in a file. */
FIXTURE_TEST(test_values) {
    const double infinite = strtod("inf", NULL);
    const snug_value strange[] = {
        {.kind = SNUG_VALUE_OTHER, .text = "a Timestamp"},
        {.kind = SNUG_VALUE_OTHER, .text = NULL},
        {.kind = SNUG_VALUE_MISSING},
        {.kind = SNUG_VALUE_REAL, .real = infinite},
        {.kind = SNUG_VALUE_REAL, .real = -infinite},
        {.kind = SNUG_VALUE_REAL, .real = strtod("nan", NULL)},
        {.kind = SNUG_VALUE_NUMBER, .text = "123456789012345678901234567890"},
        {.kind = SNUG_VALUE_TEXT, .text = "\xff\xed\x80\x80\xed\xc0\xed\xa0x\xed\xa0\xbd\xed\xbf\xbf", .length = 15},
        {.kind = SNUG_VALUE_TEXT},
        {.kind = SNUG_VALUE_LIST},
        {.kind = SNUG_VALUE_LIST, .length = 1, .items = (const snug_value[]){{.kind = SNUG_VALUE_LIST}}},
        {.kind = SNUG_VALUE_BOOLEAN},
    };
    snug_rows *rows = new_rows(f);
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        ok(f, snug_rows_text(rows, "text", i % 2 ? "good" : "bad"));
        ok(f, snug_rows_set(rows, "strange", &strange[i]));
        ok(f, snug_rows_integer(rows, "label", (int64_t)i % 2));
        if (i == 3) ok(f, snug_rows_text(rows, "later", "x")); /* a column that the first row lacks */
        ok(f, snug_rows_end(rows));
    }
    train_rows(f, "out", "", rows, rows);
    assert_contains(f->log, "train rows in memory: 12 rows");
    assert_contains(f->log, "train rows in memory: malformed UTF-8 in 1 line(s), first in line 8");
    snug_args *args = training_args(f, "output_dir=@none strict=True");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    fails(f, snug_train(args, NULL, NULL), SNUG_E_INPUT, "train rows in memory:8: \\ud83d is half of a surrogate pair");
    snug_args_destroy(args);
    args = training_args(f, "output_dir=@none text_column_name=strange");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    fails(f, snug_train(args, NULL, NULL), SNUG_E_INPUT, "the column \"strange\" holds a Timestamp");
    snug_args_destroy(args);
    snug_rows_destroy(rows);
    /* a column that is set twice in a row, as two of a table may have one name */
    rows = new_rows(f);
    for (int i = 0; i < 2; i++) ok(f, snug_rows_text(rows, "text", "a"));
    ok(f, snug_rows_integer(rows, "label", 1));
    ok(f, snug_rows_end(rows));
    args = training_args(f, "output_dir=@none");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    fails(f, snug_train(args, NULL, NULL), SNUG_E_INPUT, "the column \"text\" holds two values");
    snug_args_destroy(args);
    snug_rows_destroy(rows);
    /* a text with U+0000 is a text, and a label with it is refused */
    rows = new_rows(f);
    const snug_value nul = {.kind = SNUG_VALUE_TEXT, .text = "a\0b", .length = 3};
    ok(f, snug_rows_set(rows, "text", &nul));
    ok(f, snug_rows_set(rows, "label", &nul));
    ok(f, snug_rows_end(rows));
    args = training_args(f, "output_dir=@none");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    fails(f, snug_train(args, NULL, NULL), SNUG_E_INPUT, "train rows in memory:1: a label contains \\u0000");
    snug_args_destroy(args);
    snug_rows_destroy(rows);
}

/* The names of classes that a program has, as those of a ClassLabel of datasets. */
FIXTURE_TEST(test_classes) {
    static const char *const names[] = {"zebra", "ant", "unseen", "3 | 4", "n/a"}, *const none[] = {NULL};
    static const struct {
        const char *rows[3], *words, *classes;
    } cases[] = {
        {{"{\"text\": \"a\", \"label\": 1}", "{\"text\": \"b\", \"label\": 0}"}, "", "zebra,ant,unseen,3 | 4,n/a"},
        {{"{\"text\": \"a\", \"label\": 1}", "{\"text\": \"b\", \"label\": \"zebra\"}"},
         "",
         "zebra,ant,unseen,3 | 4,n/a"},
        {{"{\"text\": \"a\", \"label\": 4}", "{\"text\": \"b\", \"label\": 3}"},
         "label_separator=none",
         "zebra,ant,unseen,3 | 4,n/a"},
        {{"{\"text\": \"a\", \"label\": [1, 2]}", "{\"text\": \"b\", \"label\": []}"},
         "",
         "zebra,ant,unseen,3 | 4,n/a"},
        {{"{\"tokens\": [\"a\", \"b\"], \"label\": [1, 0]}", "{\"tokens\": [], \"label\": []}"},
         "task=ner label_column_name=label",
         "zebra,ant,unseen,3 | 4,n/a"},
        /* columns of zeros and ones have names of their own */
        {{"{\"text\": \"a\", \"x\": 1, \"y\": 0}", "{\"text\": \"b\", \"x\": 1, \"y\": 1}"},
         "label_column_name=x,y",
         "x,y"},
        /* below 0: no label */
        {{"{\"text\": \"a\", \"label\": 1}", "{\"text\": \"b\", \"label\": -1}"}, "", "zebra,ant,unseen,3 | 4,n/a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[256] = "";
        snug_rows *rows = new_rows(f);
        ok(f, snug_rows_classes(rows, "label", names, 2));
        ok(f, snug_rows_classes(rows, "label", names, 5)); /* the last call counts */
        for (int row = 0; row < 2; row++) add_row(f, rows, cases[i].rows[row], row);
        snug_args *args = training_args(f, cases[i].words);
        set_args(f, args, "output_dir=@out overwrite_output_dir=True max_steps=1");
        ok(f, snug_args_set_rows(args, "train_file", rows));
        ok(f, snug_train(args, NULL, NULL));
        snug_args_destroy(args);
        snug_rows_destroy(rows);
        json_t *config = read_json(f, path_of(f, "out/config.json"));
        const json_t *classes = json_object_get(config, "id2label");
        for (size_t k = 0; k < json_object_size(classes); k++) {
            char key[24];
            snprintf(key, sizeof key, "%zu", k);
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", k ? "," : "",
                     json_string_value(json_object_get(classes, key)));
        }
        json_decref(config);
        assert_string_equal(found, cases[i].classes);
    }
    snug_rows *rows = new_rows(f);
    ok(f, snug_rows_classes(rows, "label", names, 5));
    add_row(f, rows, "{\"text\": \"a\", \"label\": 5}", true);
    snug_args *args = training_args(f, "output_dir=@none");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    fails(f, snug_train(args, NULL, NULL), SNUG_E_INPUT, "not a number beyond its classes (column \"label\")");
    snug_args_destroy(args);
    fails(f, snug_rows_classes(rows, "label", (const char *const[]){"a", ""}, 2), SNUG_E_USAGE, "class 1 has no name");
    ok(f, snug_rows_classes(rows, "label", none, 0)); /* they are numbers again */
    add_row(f, rows, "{\"text\": \"b\", \"label\": 7}", true);
    args = training_args(f, "output_dir=@numbers max_steps=1");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    ok(f, snug_train(args, NULL, NULL));
    snug_args_destroy(args);
    snug_rows_destroy(rows);
}

FIXTURE_TEST(test_misused_rows) {
    snug_rows *rows = new_rows(f);
    snug_args *args = training_args(f, "output_dir=@none");
    const snug_value text = text_value("a"), null = {.kind = SNUG_VALUE_TEXT, .length = 1},
                     list = {.kind = SNUG_VALUE_LIST, .length = 2}, number = {.kind = SNUG_VALUE_NUMBER, .text = "1,5"},
                     unknown = {.kind = (snug_value_kind)99},
                     longer = {.kind = SNUG_VALUE_TEXT, .text = "a", .length = (size_t)1 << 29},
                     more = {.kind = SNUG_VALUE_LIST, .length = (size_t)1 << 40, .items = &text};
    fails(f, snug_rows_end(rows), SNUG_E_USAGE, "row 1 has no column");
    fails(f, snug_rows_add(rows, NULL, NULL, 0), SNUG_E_USAGE, "row 1 has no column");
    fails(f, snug_rows_set(rows, "text", &null), SNUG_E_USAGE, "row 1: the text of a value must not be NULL");
    ok(f, snug_rows_text(rows, "text", "a"));
    fails(f, snug_rows_set(rows, "label", &number), SNUG_E_USAGE, "row 1: \"1,5\" is not a number");
    fails(f, snug_rows_end(rows), SNUG_E_USAGE, "row 1 has no column"); /* it was discarded */
    fails(f, snug_rows_text(rows, "text", NULL), SNUG_E_USAGE, "snug_rows_text: text must not be NULL");
    fails(f, snug_rows_set(rows, "label", &list), SNUG_E_USAGE, "row 1: the items of a list must not be NULL");
    fails(f, snug_rows_set(rows, "label", &more), SNUG_E_USAGE, "row 1 is longer than 256 MiB");
    fails(f, snug_rows_set(rows, "label", &unknown), SNUG_E_USAGE, "row 1: a value of no kind");
    fails(f, snug_rows_set(rows, "label", &longer), SNUG_E_USAGE, "row 1 is longer than 256 MiB");
    ok(f, snug_rows_text(rows, "text", "a"));
    fails(f, snug_rows_add(rows, (const char *const[]){"text"}, &text, 1), SNUG_E_USAGE, "row 1 is not complete");
    fails(f, snug_args_set_rows(args, "output_dir", rows), SNUG_E_USAGE,
          "output_dir: rows in memory take the place of");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    fails(f, snug_train(args, NULL, NULL), SNUG_E_USAGE, "train rows in memory: row 1 is not complete");
    snug_args_destroy(args);
    snug_rows_destroy(rows);
    snug_rows_destroy(NULL);
}

/* A run on rows is recorded, and cannot be repeated without them. */
FIXTURE_TEST(test_repetition) {
    snug_rows *rows = rows_of(f,
                              write_text(f, "two.jsonl",
                                         "{\"text\": \"good\", \"label\": 1}\n"
                                         "{\"text\": \"bad\", \"label\": 0}\n"),
                              true);
    train_rows(f, "out", "", rows, rows);
    json_t *made = read_json(f, path_of(f, "out/training_args.json"));
    const json_t *file = json_object_get(json_object_get(made, "files"), "train_file");
    assert_string_equal(json_string_value(json_object_get(file, "path")), "train rows in memory");
    assert_true(json_is_null(json_object_get(file, "bytes")));
    json_decref(made);
    snug_args *args = plain_args(f, "args_from=@out/training_args.json output_dir=@again");
    fails(f, snug_train(args, NULL, NULL), SNUG_E_USAGE,
          "train rows in memory: a program gave them to that run: give a file by --train_file");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    ok(f, snug_args_set_rows(args, "validation_file", rows));
    ok(f, snug_train(args, NULL, NULL));
    assert_same_file(f, path_of(f, "out/model.safetensors"), path_of(f, "again/model.safetensors"));
    snug_args_destroy(args);
    snug_rows_destroy(rows);
}

TEST_MAIN(NULL, NULL)
