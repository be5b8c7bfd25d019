/* SPDX-License-Identifier: Apache-2.0 */
/* What predict and eval give beside labels: columns of the input, all probabilities, the most probable tokens, metrics,
   files, one text of the command line; precision, recall and confusion of each class. */
#include <math.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up_here, tear_down
static int set_up_here(void **state);

#define MODEL "--threads 1 --log_level info --model_name_or_path "

static void train_into(const struct fixture *f, const char *folder, const char *words) {
    char command[512];
    snprintf(command, sizeof command,
             "train --config_name model --tokenizer_name model --output_dir %s --max_steps 4 --save_strategy no "
             "--threads 1 --learning_rate 1e-3 %s",
             folder, words);
    free(run_well(f, command));
}

static void refused(const struct fixture *f, const char *words, int code, const char *says) {
    const int found = run(f, words);
    char *error = output_of(f, "stderr");
    if (found != code || !strstr(error, says)) fail_msg("snug %s: exit code %d: %s", words, found, error);
    free(error);
}

/* The line of that number, from 0, of a text. */
static char *line_of(char *text, int number) {
    char *line = strsep(&text, "\n");
    while (number-- > 0 && line) line = strsep(&text, "\n");
    assert_non_null(line);
    return line;
}

FIXTURE_TEST(test_kept_columns) {
    train_into(f, "out", "--train_file train.csv");
    write_text(f, "rows.csv", "id,sentence,note\n7,w1 good,\"a, \"\"b\"\"\"\n8,w2 bad,\n");
    char *text =
        run_well(f, "predict " MODEL "out --test_file rows.csv --text_column_names sentence --keep_columns note,id");
    assert_contains(text, "index,label,score,note,id\n");
    assert_contains(text, ",\"a, \"\"b\"\"\",7\n");
    assert_contains(text, ",,8\n");
    free(text);
    text = run_well(f, "predict " MODEL "out --test_file rows.csv --text_column_names sentence --keep_columns all");
    assert_contains(text, "index,label,score,id,sentence,note\n");
    free(text);
    /* Names of predicted columns are not given twice. */
    write_text(f, "named.csv", "index,sentence,label,score_positive,score,label_2\n7,w1 good,positive,a,b,c\n");
    text = run_well(f, "predict " MODEL "out --test_file named.csv --text_column_names sentence --keep_columns all");
    assert_contains(text, "index,label,score,input_index,sentence,input_label,score_positive,input_score,label_2\n");
    free(text);
    text = run_well(f, "predict " MODEL "out --test_file named.csv --text_column_names sentence --keep_columns all "
                       "--return_all_scores");
    assert_contains(text, ",input_label,input_score_positive,input_score,label_2\n");
    free(text);
    text = run_well(f, "predict --json " MODEL "out --test_file named.csv --text_column_names sentence "
                       "--keep_columns label");
    assert_contains(text, "\"columns\":{\"label\":\"positive\"}");
    free(text);
    write_text(
        f, "rows.jsonl",
        "{\"sentence\": \"w1\", \"n\": 1.5, \"l\": [\"a\", 2], \"b\": true}\n{\"sentence\": \"w2\", \"l\": []}\n");
    text = run_well(f, "predict --json " MODEL
                       "out --test_file rows.jsonl --text_column_names sentence --keep_columns all");
    assert_contains(text, "\"columns\":{\"sentence\":\"w1\",\"n\":\"1.5\",\"l\":\"a|2\",\"b\":\"True\"}");
    assert_contains(text, "\"columns\":{\"sentence\":\"w2\",\"n\":null,\"l\":\"\",\"b\":null}");
    free(text);
    text = run_well(f, "predict " MODEL "out --test_file rows.jsonl --text_column_names sentence --keep_columns all");
    assert_contains(text, ",w2,,,\n");
    free(text);
    refused(f, "predict " MODEL "out --test_file rows.csv --keep_columns none", 1, "there is no column \"none\"");
    refused(f, "predict " MODEL "out --test_file - --data_format csv --keep_columns id", 2, "can be read only once");
    refused(f, "predict " MODEL "out --text w1 --keep_columns id", 2, "can be read only once");
    write_text(f, "odd.jsonl", "{\"sentence\": \"w1\", \"x\": {}}\n");
    refused(f,
            "predict " MODEL "out --test_file odd.jsonl --text_column_names sentence --keep_columns x --output_dir odd",
            1, "line 1: --keep_columns: the value of \"x\" is an object, which cannot be");

    train_into(f, "tags", "--task ner --train_file words.conll");
    refused(f, "predict " MODEL "tags --test_file words.conll --keep_columns tokens", 2, "give --json");
    text = run_well(f, "predict --json " MODEL
                       "tags --test_file words.conll --keep_columns tokens --max_predict_samples 2");
    assert_contains(text, "\"columns\":{\"tokens\":\"");
    free(text);
    write_text(f, "ids.jsonl", "{\"tokens\": [\"w1\", \"w2\"], \"ids\": [3, 4]}\n");
    text = run_well(f, "predict --json " MODEL "tags --test_file ids.jsonl --keep_columns ids");
    assert_contains(text, "\"columns\":{\"ids\":\"3 4\"}");
    free(text);

    /* Of a row without a mask nothing is predicted; one with two has two predictions. */
    train_into(f, "masks", "--task mlm --train_file lines.txt --line_by_line");
    write_text(f, "masked.csv", "id,text\n7,w1 good\n8,w1 [MASK] [MASK]\n");
    text = run_well(f, "predict " MODEL "masks --test_file masked.csv --text_column_name text --keep_columns id "
                       "--output_dir=");
    assert_string_equal(line_of(text, 0), "index,label,score,id");
    int predictions = 0;
    for (const char *line = text + strlen(text) + 1; *line; line = strchr(line, '\n') + 1, predictions++)
        assert_memory_equal(strchr(line, '\n') - 2, ",8", 2);
    assert_int_equal(predictions, 2);
    free(text);
    write_text(f, "ranked.csv", "text,label_2,score_2,label_3\nw1 [MASK],a,b,c\n");
    text = run_well(f, "predict --top_k 2 " MODEL "masks --test_file ranked.csv --text_column_name text "
                       "--keep_columns label_2,score_2,label_3");
    assert_contains(text, "index,label,score,label_2,score_2,input_label_2,input_score_2,label_3\n");
    free(text);
}

/* What snug embed prints: of any model. */
FIXTURE_TEST(test_vectors_and_similarities) {
    train_into(f, "out", "--train_file train.csv");
    write_text(f, "texts.txt", "w1 good\nw2\n");
    char *text = run_well(f, "embed out --threads 1 --log_level info --test_file texts.txt");
    char *first = strdup(line_of(text, 0));
    json_t *row = json_loads(first, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(row, "index")), 0);
    assert_true(json_array_size(json_object_get(row, "embedding")) > 3);
    json_decref(row);
    free(text);
    text = run_well(f, "embed out --threads 1 --json --test_file texts.txt --log_level info");
    row = json_loads(line_of(text, 0), 0, NULL);
    assert_non_null(json_object_get(row, "run"));
    assert_non_null(json_object_get(row, "embedding"));
    json_decref(row);
    free(text);
    text = run_well(f, "embed out --threads 1 --test_file texts.txt --output_file v.npy --log_level info");
    assert_string_equal(text, "");
    free(text);
    write_text(f, "pairs.csv", "a,b\nw1 good,w1 good\nw1,bad\n");
    text = run_well(f, "embed out --threads 1 --similarity --test_file pairs.csv --log_level info");
    char *copy = strdup(text);
    assert_string_equal(line_of(copy, 0), "index,similarity");
    assert_contains(text, "\n0,1\n1,");
    free(copy);
    free(text);
    text = run_well(f, "embed out --threads 1 --similarity --json --test_file pairs.csv --log_level info");
    assert_contains(text, "{\"index\":0,\"similarity\":");
    free(text);
    refused(f, "embed out --test_file none.txt", 1, "none.txt");
    refused(f, "embed out", 2, "snug embed needs --test_file FILE");
    refused(f, "embed --help --nonsense", 0, "");
    free(first);
}

FIXTURE_TEST(test_all_scores) {
    train_into(f, "out", "--train_file train.csv");
    char *text = run_well(f, "predict --json --return_all_scores " MODEL "out --test_file dev.csv");
    json_t *row = json_loads(line_of(text, 0), 0, NULL), *scores = json_object_get(row, "scores");
    const double sum =
        json_number_value(json_object_get(scores, "positive")) + json_number_value(json_object_get(scores, "negative"));
    assert_true(fabs(sum - 1) < 1e-6);
    assert_true(fabs(json_number_value(json_object_get(scores, json_string_value(json_object_get(row, "label")))) -
                     json_number_value(json_object_get(row, "score"))) < 1e-7);
    json_decref(row);
    free(text);
    text = run_well(f, "predict --return_all_scores " MODEL "out --test_file dev.csv");
    assert_contains(text, "index,label,score,score_negative,score_positive\n");
    free(text);

    train_into(f, "several", "--train_file multi.csv --label_separator |");
    text = run_well(f, "predict --json --return_all_scores " MODEL "several --test_file multi.csv");
    row = json_loads(line_of(text, 0), 0, NULL);
    const double logit = json_number_value(json_array_get(json_object_get(row, "logits"), 1));
    assert_true(fabs(json_number_value(json_object_get(json_object_get(row, "scores"), "keen")) -
                     1 / (1 + exp(-logit))) < 1e-6);
    json_decref(row);
    free(text);
    /* The lowest threshold gives every class, the highest none. */
    text = run_well(f, "predict --threshold 0.000001 " MODEL "several --test_file multi.csv");
    assert_contains(text, "\n0,calm|keen,");
    free(text);
    text = run_well(f, "predict --threshold 0.999999 " MODEL "several --test_file multi.csv");
    assert_contains(text, "\n0,,");
    free(text);

    train_into(f, "value", "--train_file regression.csv");
    refused(f, "predict --return_all_scores " MODEL "value --test_file dev.csv", 2, "this model predicts a value");
    refused(f, "predict --top_k 3 " MODEL "out --test_file dev.csv", 2, "--top_k is for masked LM");
    refused(f, "predict --top_k 0 " MODEL "out --test_file dev.csv", 2, "a prediction lists 1 to 1000 tokens");
    refused(f, "predict --top_k 1001 " MODEL "out --test_file dev.csv", 2, "a prediction lists 1 to 1000 tokens");
}

FIXTURE_TEST(test_top_tokens) {
    train_into(f, "masks", "--task mlm --train_file lines.txt --line_by_line");
    char *text;
    write_text(f, "masked.txt", "w1 [MASK] good\n");
    text = run_well(f, "predict --json --top_k 5 " MODEL "masks --test_file masked.txt");
    json_t *row = json_loads(text, 0, NULL), *top = json_object_get(row, "top");
    assert_null(json_object_get(row, "logits"));
    assert_int_equal(json_array_size(top), 5);
    for (size_t i = 1; i < 5; i++)
        assert_true(json_number_value(json_object_get(json_array_get(top, i), "score")) <=
                    json_number_value(json_object_get(json_array_get(top, i - 1), "score")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(top, 0), "token")),
                        json_string_value(json_object_get(row, "label")));
    json_decref(row);
    free(text);
    text = run_well(f, "predict --top_k 2 " MODEL "masks --test_file masked.txt");
    assert_contains(text, "index,label,score,label_2,score_2\n");
    free(text);
    text = run_well(f, "predict --json --top_k 1000 " MODEL "masks --test_file masked.txt"); /* the whole vocabulary */
    row = json_loads(text, 0, NULL);
    double sum = 0;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(row, "top"), i, one) sum += json_number_value(json_object_get(one, "score"));
    assert_true(fabs(sum - 1) < 1e-5);
    json_decref(row);
    free(text);
}

/* Metrics of a file with labels are those of eval. */
FIXTURE_TEST(test_metrics_and_files) {
    static const char *const names[] = {"loss", "accuracy", "f1", "matthews_correlation"};
    train_into(f, "out", "--train_file train.csv");
    json_t *evaluated = run_json(f, "eval --json " MODEL "out --validation_file dev.csv");
    char *text = run_well(f, "predict " MODEL "out --test_file dev.csv --output_dir results");
    json_t *predicted = read_json(f, path_of(f, "results/predict_results.json"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char eval[64], predict[64];
        snprintf(eval, sizeof eval, "eval_%s", names[i]);
        snprintf(predict, sizeof predict, "predict_%s", names[i]);
        assert_true(fabs(json_number_value(json_object_get(evaluated, eval)) -
                         json_number_value(json_object_get(predicted, predict))) < 1e-12); /* printed digits */
        assert_non_null(json_object_get(predicted, predict));
    }
    json_decref(evaluated);
    json_decref(predicted);
    /* predict_results.txt has the rows of stdout. */
    char *file = read_text(f, path_of(f, "results/predict_results.txt"), NULL), *rest = file, *lines = text;
    assert_string_equal(strsep(&rest, "\n"), "index\tprediction");
    strsep(&lines, "\n");
    for (char *line; (line = strsep(&lines, "\n")) && *line;) {
        char expected[64];
        const char *label = strchr(line, ',') + 1;
        snprintf(expected, sizeof expected, "%.*s\t%.*s", (int)strcspn(line, ","), line, (int)strcspn(label, ","),
                 label);
        assert_string_equal(strsep(&rest, "\n"), expected);
    }
    assert_string_equal(rest, "");
    free(file);
    free(text);
    free(run_well(f, "predict " MODEL "out --test_file dev.csv --output_dir results")); /* its own files */

    /* Labels that are none, as in GLUE's test files; some rows without one. */
    write_text(f, "glue.csv", "sentence,label\nw1,-1\nw2,-1\n");
    free(run_well(f, "predict " MODEL "out --test_file glue.csv --output_dir glue"));
    char *log = output_of(f, "stderr");
    assert_contains(log, "no metrics: glue.csv:2");
    free(log);
    assert_false(exists(path_of(f, "glue/predict_results.json")));
    write_text(f, "some.jsonl", "{\"sentence\": \"w1\", \"label\": \"positive\"}\n{\"sentence\": \"w2\"}\n");
    free(run_well(f, "predict " MODEL "out --test_file some.jsonl --output_dir some"));
    assert_false(exists(path_of(f, "some/predict_results.json")));

    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "taken")), SNUG_OK);
    write_text(f, "taken/predict_results.txt", "mine");
    refused(f, "predict " MODEL "out --test_file dev.csv --output_dir taken", 1, "was not written by snug");

    train_into(f, "value", "--train_file regression.csv");
    free(run_well(f, "predict " MODEL "value --test_file regression.csv --output_dir values"));
    file = read_text(f, path_of(f, "values/predict_results.txt"), NULL);
    const char *value = strchr(line_of(file, 1), '\t');
    assert_int_equal(strcspn(strchr(value, '.'), ""), 4); /* three digits, as the scripts write them */
    free(file);
    train_into(f, "tags", "--task ner --train_file words.conll");
    text = run_well(f, "predict " MODEL "tags --test_file words.conll --output_dir tagged");
    file = read_text(f, path_of(f, "tagged/predictions.txt"), NULL);
    assert_string_equal(file, text);
    free(file);
    free(text);
}

FIXTURE_TEST(test_given_texts) {
    train_into(f, "out", "--train_file train.csv");
    write_text(f, "one.csv", "sentence\ngood\n");
    write_text(f, "pair.csv", "sentence1,sentence2\ngood,bad\n");
    char *from_file = run_well(f, "predict " MODEL "out --test_file one.csv"),
         *given = run_well(f, "predict " MODEL "out --text good");
    assert_string_equal(from_file, given);
    free(from_file);
    free(given);
    from_file = run_well(f, "predict " MODEL "out --test_file pair.csv --text_column_name sentence1 "
                            "--text_pair_column_name sentence2");
    given = run_well(f, "predict " MODEL "out --text good --text_pair bad");
    assert_string_equal(from_file, given);
    free(from_file);
    free(given);
    train_into(f, "tags", "--task ner --train_file words.conll");
    given = run_well(f, "predict --json " MODEL "tags --text=good");
    assert_contains(given, "\"words\":[\"good\"]");
    free(given);
    /* An empty text is given, too. */
    write_text(f, "one.csv", "sentence\n\"\"\n");
    from_file = run_well(f, "predict " MODEL "out --test_file one.csv");
    given = run_well(f, "predict " MODEL "out --text=");
    assert_string_equal(from_file, given);
    free(from_file);
    free(given);
    free(run_well(f, "predict " MODEL "out --text good --text_pair="));
    char *log = output_of(f, "stderr");
    assert_contains(log, "sentence1 + sentence2, as a pair");
    free(log);
    /* Labels of some rows alone. */
    write_text(f, "some.csv", "sentence,label\nw1,positive\nw2,\n");
    free(run_well(f, "predict " MODEL "out --test_file some.csv"));
    log = output_of(f, "stderr");
    assert_contains(log, "warning: some.csv: no metrics: only 1 of 2 rows have a label");
    free(log);
    refused(f, "predict " MODEL "out --text= --test_file one.csv", 2, "--text and --test_file are both given");
    refused(f, "predict " MODEL "out --text good --test_file one.csv", 2, "--text and --test_file are both given");
    refused(f, "predict " MODEL "out --test_file one.csv --text_pair x", 2, "give --text too");
    refused(f, "predict " MODEL "out --text \xff", 2, "--text is not UTF-8");
    refused(f, "predict " MODEL "out --text x --text_pair \xff", 2, "--text_pair is not UTF-8");
}

FIXTURE_TEST(test_class_metrics) {
    train_into(f, "out", "--train_file train.csv --validation_file dev.csv --class_metrics");
    json_t *result = read_json(f, path_of(f, "out/eval_results.json")), *value;
    const json_t *counts = json_object_get(json_object_get(result, "confusion_matrix"), "counts");
    int64_t sum = 0;
    for (size_t i = 0; i < 4; i++) sum += json_integer_value(json_array_get(json_array_get(counts, i / 2), i % 2));
    assert_int_equal(sum, EVAL_ROWS);
    assert_non_null(json_object_get(result, "eval_auc"));
    assert_non_null(json_object_get(result, "eval_positive_precision"));
    json_decref(result);
    result = run_json(f, "eval --json --class_metrics " MODEL "out --validation_file dev.csv");
    counts = json_object_get(json_object_get(result, "confusion_matrix"), "counts");
    const int first = (int)json_integer_value(json_array_get(json_array_get(counts, 0), 0)),
              second = (int)json_integer_value(json_array_get(json_array_get(counts, 0), 1));
    char *text = run_well(f, "eval --class_metrics " MODEL "out --validation_file dev.csv --log_level error");
    char line[128];
    snprintf(line, sizeof line,
             "\nconfusion matrix: a line for each class, a column for each predicted class\n%7d %7d  negative\n", first,
             second);
    assert_contains(text, line);
    free(text);
    assert_non_null(value = json_object_get(result, "eval_negative_number"));
    assert_int_equal(json_number_value(value) + json_number_value(json_object_get(result, "eval_positive_number")),
                     EVAL_ROWS);
    json_decref(result);
    train_into(f, "several", "--train_file multi.csv --label_separator |");
    refused(f, "eval --threshold 0.5 " MODEL "out --validation_file train.csv", 2,
            "--threshold is for texts with several labels, which this model does not have: leave it out");
    result = run_json(f, "eval --json --class_metrics --threshold 0.5 " MODEL "several --validation_file multi.csv");
    assert_non_null(json_object_get(result, "eval_keen_threshold"));
    assert_true(json_number_value(json_object_get(result, "eval_keen_best_f1")) >=
                json_number_value(json_object_get(result, "eval_keen_f1")));
    json_decref(result);
    char classes[512] = "sentence,label\n";
    for (int i = 0; i < 21; i++)
        snprintf(classes + strlen(classes), sizeof classes - strlen(classes), "w%d,c%d\n", i, i);
    write_text(f, "classes.csv", classes);
    train_into(f, "classes", "--train_file classes.csv");
    text = run_well(f, "eval --class_metrics " MODEL "classes --validation_file classes.csv");
    assert_contains(text, "too many to print");
    free(text);
    train_into(f, "values", "--train_file regression.csv");
    refused(f, "eval --class_metrics " MODEL "values --validation_file regression.csv", 2,
            "--class_metrics is for classes, and a regression has none");
    refused(f, "eval --class_metrics --task mlm " MODEL "out --validation_file lines.txt", 2,
            "--class_metrics is for classification");
}

static int set_up_here(void **state) {
    if (set_up(state)) return -1;
    write_data(*state, "multi.csv", FORM_MULTI, EVAL_ROWS, 3);
    write_data(*state, "regression.csv", FORM_REGRESSION, EVAL_ROWS, 4);
    write_data(*state, "lines.txt", FORM_TEXT, EVAL_ROWS, 5);
    write_words(*state, "words.conll", EVAL_ROWS, 6);
    return 0;
}

TEST_MAIN(NULL, NULL)
