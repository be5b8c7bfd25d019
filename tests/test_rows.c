/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in memory give what a file of them gives, bit for bit, and are checked as its rows are. */
#include "training_fixture.h"

static void ok(const struct fixture *f, snug_status status) {
    if (status != SNUG_OK) fail_msg("status %d: %s", status, snug_error_message(f->ctx));
}

static void fails(const struct fixture *f, snug_status found, snug_status status, const char *says) {
    if (found != status) fail_msg("status %d: %s", found, snug_error_message(f->ctx));
    assert_contains(snug_error_message(f->ctx), says);
}

static snug_rows *new_rows(const struct fixture *f) {
    snug_rows *rows;
    ok(f, snug_rows_create(f->ctx, &rows));
    return rows;
}

/* A row of JSON by the calls for single columns. */
static void add_columns(const struct fixture *f, snug_rows *rows, const json_t *row) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)row, key, value) {
        const char *texts[64];
        int64_t integers[64];
        const size_t count = json_array_size(value);
        for (size_t i = 0; i < count; i++) {
            texts[i] = json_string_value(json_array_get(value, i));
            integers[i] = json_integer_value(json_array_get(value, i));
        }
        if (json_is_string(value)) ok(f, snug_rows_text(rows, key, json_string_value(value)));
        if (json_is_integer(value)) ok(f, snug_rows_integer(rows, key, json_integer_value(value)));
        if (json_is_real(value)) ok(f, snug_rows_real(rows, key, json_real_value(value)));
        if (json_is_array(value) && count && json_is_integer(json_array_get(value, 0)))
            ok(f, snug_rows_integers(rows, key, integers, count));
        else if (json_is_array(value))
            ok(f, snug_rows_texts(rows, key, texts, count));
    }
    ok(f, snug_rows_end(rows));
}

/* The rows of a JSON Lines file: whole, or column by column. */
static snug_rows *rows_of(const struct fixture *f, const char *path, bool whole) {
    snug_rows *rows = new_rows(f);
    char *text = read_text(f, path, NULL), *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line) continue;
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        if (whole)
            ok(f, snug_rows_json(rows, line));
        else
            add_columns(f, rows, row);
        json_decref(row);
    }
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

static void test_same_as_a_file(void **state) {
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
    struct fixture *f = *state;
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
static void test_other_jobs(void **state) {
    struct fixture *f = *state;
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
    ok(f, snug_rows_json(rows, "{\"text\": \"w2\", \"note\": \"three\"}"));
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

static void test_many_rows(void **state) {
    struct fixture *f = *state;
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
    for (int i = 0; objects[i]; i++) ok(f, snug_rows_json(rows, objects[i]));
    ok(f, snug_args_set_rows(args, "train_file", rows));
    set_args(f, args, "output_dir=@none");
    const snug_status status = snug_train(args, NULL, NULL);
    snug_args_destroy(args);
    snug_rows_destroy(rows);
    return status;
}

#define ROWS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_errors_name_the_row(void **state) {
    struct fixture *f = *state;
    const char *const none[] = {NULL};
    fails(f, try_rows(f, none, ""), SNUG_E_INPUT, "train rows in memory is empty");
    fails(f, try_rows(f, ROWS("{\"text\": \"a\", \"label\": 0}", "{\"label\": 1}"), ""), SNUG_E_INPUT,
          "train rows in memory:2: the row has no text");
    fails(f, try_rows(f, ROWS("{\"text\": \"a\", \"label\": 0}", "{\"text\": \"a\", \"label\": }"), ""), SNUG_E_INPUT,
          "train rows in memory:2:");
    fails(f, try_rows(f, ROWS("{\"text\": \"a\", \"label\": 1}", "{\"text\": \"a\", \"label\": \"N/A\"}"), ""),
          SNUG_E_INPUT, "train rows in memory:2");
    fails(f, try_rows(f, ROWS("{\"tokens\": [\"a\", \"b\"], \"ner_tags\": [\"O\"]}"), "task=ner"), SNUG_E_INPUT,
          "train rows in memory:1: 2 words and 1 tags");
    fails(f, try_rows(f, ROWS("{\"text\": \"a\xff\", \"label\": 1}", "{\"text\": \"b\", \"label\": 0}"), "strict=True"),
          SNUG_E_INPUT, "train rows in memory:1: malformed UTF-8");
}

static void test_misused_rows(void **state) {
    struct fixture *f = *state;
    snug_rows *rows = new_rows(f);
    snug_args *args = training_args(f, "output_dir=@none");
    fails(f, snug_rows_end(rows), SNUG_E_USAGE, "row 1 has no column");
    fails(f, snug_rows_json(rows, "{\n}"), SNUG_E_USAGE, "row 1 must be a JSON object on one line");
    fails(f, snug_rows_json(rows, "[]"), SNUG_E_USAGE, "row 1 must be a JSON object on one line");
    ok(f, snug_rows_text(rows, "text", "a"));
    fails(f, snug_rows_real(rows, "label", NAN), SNUG_E_USAGE, "row 1, label: nan is no value");
    fails(f, snug_rows_end(rows), SNUG_E_USAGE, "row 1 has no column"); /* it was discarded */
    fails(f, snug_rows_text(rows, "text", NULL), SNUG_E_USAGE, "snug_rows_text: text must not be NULL (row 1)");
    fails(f, snug_rows_texts(rows, "label", (const char *const[]){"a", NULL}, 2), SNUG_E_USAGE,
          "snug_rows_texts: items[1] must not be NULL (row 1)");
    ok(f, snug_rows_text(rows, "text", "a"));
    fails(f, snug_rows_json(rows, "{}"), SNUG_E_USAGE, "row 1 is not complete");
    fails(f, snug_args_set_rows(args, "output_dir", rows), SNUG_E_USAGE,
          "output_dir: rows in memory take the place of");
    ok(f, snug_args_set_rows(args, "train_file", rows));
    fails(f, snug_train(args, NULL, NULL), SNUG_E_USAGE, "train rows in memory: row 1 is not complete");
    snug_args_destroy(args);
    snug_rows_destroy(rows);
    snug_rows_destroy(NULL);
}

/* A run on rows is recorded, and cannot be repeated without them. */
static void test_repetition(void **state) {
    struct fixture *f = *state;
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

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_same_as_a_file),      TEST(test_other_jobs),   TEST(test_many_rows),
        TEST(test_errors_name_the_row), TEST(test_misused_rows), TEST(test_repetition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
