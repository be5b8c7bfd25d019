/* SPDX-License-Identifier: Apache-2.0 */
/* What a run reports before its first step, and what a model remembers of its training. */
#include "program.h"

#define TRAIN                                                                                                          \
    "train --config_name model --tokenizer_name model --max_steps 2 --threads 2 --device cpu --save_strategy no "

/* Writes a header, and rows of a number, the cells, and a label. */
static void write_rows(const struct fixture *f, const char *name, const char *head, const char *cells) {
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    fprintf(file, "%s\n", head);
    for (int row = 0; row < 12; row++) fprintf(file, "%d,%s,%s\n", row, cells, row % 3 ? "good" : "bad");
    assert_int_equal(fclose(file), 0);
}

static void assert_order(const char *text, const char *const *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(text, parts[i]);
        if (!at) fail_msg("\"%s\" is not in its place in:\n%s", parts[i], text);
        text = at;
    }
}

static void assert_narrow(const char *text) {
    for (const char *line = strstr(text, "Model "); line && strncmp(line, "Time ", 5) != 0;) {
        const size_t length = strcspn(line, "\n");
        if (length > 80) fail_msg("%zu columns: %.*s", length, (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void test_train(void **state) {
    struct fixture *f = *state;
    static const char *const parts[] = {
        "\nModel      BERT, ",
        " all trained from random weights\n",
        "\nText       question + sentence, as a pair; not used: id\n",
        "\nLabel      label\n",
        "\nTask       sequence classification, one label per text\n",
        "\nClasses    2: bad, good\n",
        "\nTrain      pairs.csv: 12 rows, 12 of them cut at 6 tokens\n",
        "\nEvaluate   pairs.csv: 3 rows, 3 of them cut at 6 tokens\n",
        "\nBatch      2 rows x 2 accumulated = 4 a step\n",
        "\nSteps      2 in 0.6667 epochs\n",
        "\nOptimizer  adamw_torch, learning rate 0.001, cosine schedule, 1 warm-up steps\n",
        "\nDevice     CPU, 2 threads, fp32\n",
        "\nMemory     ",
        " MiB: weights ",
        ", optimizer ",
        "\nTime       about ",
        " s a step, ",
    };
    write_rows(f, "pairs.csv", "id,question,sentence,label", "w1 w2 w3,w4 w5 w6");
#define PAIRS                                                                                                          \
    TRAIN "--train_file pairs.csv --validation_file pairs.csv --max_eval_samples 3 --max_seq_length 6 "                \
          "--per_device_train_batch_size 2 --gradient_accumulation_steps 2 --learning_rate 1e-3 "                      \
          "--lr_scheduler_type cosine --warmup_steps 0.5 --output_dir pairs "
    json_t *result = run_json(f, PAIRS "--json");
    char *text = output_of(f, "stderr");
    assert_order(text, parts, sizeof parts / sizeof *parts);
    assert_narrow(text);
    free(text);

    const json_t *about = json_object_get(result, "run");
    json_t *expected = json_pack("{s:[s, s], s:b, s:s, s:s}", "text", "question", "sentence", "pair", 1, "label",
                                 "label", "unused", "id");
    assert_true(json_equal(json_object_get(about, "columns"), expected));
    json_decref(expected);
    expected = json_pack("{s:i, s:i, s:i, s:i}", "rows", 2, "accumulation", 2, "ranks", 1, "rows_per_step", 4);
    assert_true(json_equal(json_object_get(about, "batch"), expected));
    json_decref(expected);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(about, "train"), "truncated")), 12);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(about, "train"), "max_seq_length")), 6);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(about, "evaluate"), "rows")), 3);
    assert_int_equal(json_integer_value(json_object_get(about, "steps")), 2);
    assert_true(json_number_value(json_object_get(about, "seconds")) > 0);
    /* The plan's bytes, before the run, are those of the result. */
    json_t *classes = json_object_get(about, "memory"), *bytes;
    const char *name;
    json_object_foreach(classes, name, bytes) {
        const json_t *line = json_object_get(json_object_get(result, "memory"), name);
        assert_int_equal(json_integer_value(bytes), json_integer_value(json_object_get(line, "planned")));
    }
    json_decref(result);

    free(run_well(f, PAIRS "--log_level warning --disable_tqdm"));
    text = output_of(f, "stderr");
    if (strstr(text, "Model ") || strstr(text, "Optimizer")) fail_msg("%s", text);
    free(text);
}

static void test_other_runs(void **state) {
    struct fixture *f = *state;
    static const char *const multi[] = {"Text       a, b, joined by \" \"; not used: id", "several labels per text",
                                        "Classes    2: bad, good\n"},
                             *const value[] = {"Task       sequence classification, regression: a number per text\n",
                                               "Optimizer  adafactor, with its own learning rate\n"},
                             *const dummy[] = {", 0.0 M of them trained\n", "Text       synthetic tokens\n",
                                               "Time       "};
    write_rows(f, "both.csv", "id,a,b,label", "w1,w2");
    free(run_well(f, TRAIN "--train_file both.csv --text_column_names a,b --label_separator | --output_dir single"));
    FILE *file = fopen(path_of(f, "several.csv"), "w");
    assert_non_null(file);
    fputs("id,a,b,label\n1,w1,w2,good|bad\n2,w1,w2,\n", file);
    assert_int_equal(fclose(file), 0);
    free(run_well(f, TRAIN "--train_file several.csv --text_column_names a,b --label_separator | --output_dir many"));
    char *text = output_of(f, "stderr");
    assert_order(text, multi, 3);
    free(text);
    free(run_well(f, TRAIN "--train_file both.csv --text_column_name a --label_column_name id --do_regression "
                           "--optim adafactor --optim_args relative_step=True --output_dir value"));
    text = output_of(f, "stderr");
    assert_order(text, value, 2);
    free(text);
    free(run_well(f, "train --config_name model --train_file dummy:8x4 --freeze base_model --max_steps 1 --threads 2 "
                     "--output_dir frozen"));
    text = output_of(f, "stderr");
    assert_order(text, dummy, 3);
    free(text);
}

/* eval and predict name columns, task and classes. */
static void test_eval_and_predict(void **state) {
    struct fixture *f = *state;
    static const char *const evaluated[] = {"Model      out: BERT", "Text       sentence\n",
                                            "Label      label\n",   "Classes    2: negative, positive\n",
                                            "Evaluate   dev.csv: ", "Device     CPU",
                                            "Memory     "},
                             *const predicted[] = {"Text       sentence\n",
                                                   "Classes    2: negative, positive\n", "Predict    dev.csv: "};
    free(run_well(f, TRAIN "--train_file train.csv --output_dir out"));
    json_t *result = run_json(f, "eval --model_name_or_path out --validation_file dev.csv --threads 2 --json");
    char *text = output_of(f, "stderr");
    assert_order(text, evaluated, sizeof evaluated / sizeof *evaluated);
    free(text);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json_object_get(result, "run"), "classes"), 1)), "positive");
    json_decref(result);
    free(run_well(f, "predict --model_name_or_path out --test_file dev.csv --threads 2"));
    text = output_of(f, "stderr");
    assert_order(text, predicted, sizeof predicted / sizeof *predicted);
    free(text);
}

/* Without rates the time is unknown; nothing is measured in a run. */
static void test_unknown_time(void **state) {
    struct fixture *f = *state;
    char *rates = strdup(getenv("SNUG_RATES"));
    assert_non_null(rates);
    unsetenv("SNUG_RATES");
    json_t *result = run_json(f, TRAIN "--train_file train.csv --output_dir out --json");
    assert_true(json_is_null(json_object_get(json_object_get(result, "run"), "seconds")));
    json_decref(result);
    char *text = output_of(f, "stderr");
    assert_contains(text, "\nTime       unknown: snug bench rates");
    free(text);
    setenv("SNUG_RATES", "none.json", 1); /* a run that does not need them is not refused */
    free(run_well(f, TRAIN "--train_file train.csv --output_dir out"));
    text = output_of(f, "stderr");
    assert_contains(text, "warning: ");
    assert_contains(text, "none.json");
    free(text);
    setenv("SNUG_RATES", rates, 1);
    free(rates);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_train),
        TEST(test_other_runs),
        TEST(test_eval_and_predict),
        TEST(test_unknown_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
