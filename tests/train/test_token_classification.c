/* SPDX-License-Identifier: Apache-2.0 */
/* Token classification from files to tags: against a loop with transformers, PyTorch and seqeval
   (tools/golden/token_classification.py), in every form of the data, and the format of predictions. */
#include <math.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/token_classification"
#define MODEL "model_name_or_path=" GOLDEN " "
#define AS_THERE                                                                                                       \
    MODEL "train_file=" GOLDEN "/train.jsonl validation_file=" GOLDEN "/dev.jsonl max_seq_length=12 "                  \
          "per_device_train_batch_size=4 num_train_epochs=2 learning_rate=5e-3 lr_scheduler_type=constant "            \
          "train_sampling_strategy=sequential logging_steps=1 save_strategy=no threads=2 eval_strategy=epoch "

/* ---- predictions ---------------------------------------------------------------------------------------------- */

enum { ROWS_MOST = 64 };

/* Labels of all rows, and words with tags as "word/tag word/-". */
struct rows {
    int64_t count;
    char *labels[ROWS_MOST], *words[ROWS_MOST];
};

static snug_status keep_row(void *user, const snug_prediction *row) {
    struct rows *rows = user;
    char text[1024] = "";
    size_t used = 0;
    double least = 1;
    assert_int_equal(row->index, rows->count);
    assert_true(rows->count < ROWS_MOST);
    assert_non_null(row->tags);
    for (size_t i = 0; i < row->word_count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s/%s", i ? " " : "",
                                 row->words ? row->words[i] : "", row->tags[i] ? row->tags[i] : "-");
        if (!row->tags[i]) continue;
        assert_true(row->scores[i] > 0 && row->scores[i] < 1);
        least = fmin(least, row->scores[i]);
    }
    assert_true(row->score == least);
    rows->labels[rows->count] = strdup(row->label);
    rows->words[rows->count++] = strdup(text);
    return SNUG_OK;
}

static struct rows predict(struct fixture *f, const char *words) {
    struct rows rows = {0};
    snug_args *args = plain_args(f, words);
    ok(f, snug_predict(args, NULL, keep_row, &rows));
    snug_args_destroy(args);
    return rows;
}

static void forget(struct rows *rows) {
    for (int64_t i = 0; i < rows->count; i++) {
        free(rows->labels[i]);
        free(rows->words[i]);
    }
}

static void assert_predicts(struct fixture *f, const char *words, const char *const expected[]) {
    struct rows rows = predict(f, words);
    for (int64_t i = 0; i < rows.count; i++) {
        assert_non_null(expected[i]);
        assert_string_equal(rows.words[i], expected[i]);
    }
    assert_null(expected[rows.count]);
    forget(&rows);
}

/* ---- the reference loop --------------------------------------------------------------------------------------- */

static void check_metrics(const json_t *expected, const snug_metrics *metrics) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)expected, key, value) {
        const double got = metric_of(metrics, key), want = json_number_value(value);
        if (fabs(got - want) > 1e-4 * want) fail_msg("%s is %.9g, not %.9g", key, got, want);
    }
}

FIXTURE_TEST(test_reference_loop) {
    json_t *golden = read_json(f, GOLDEN "/expected.json");
    for (int all = 0; all < 2; all++) {
        const json_t *expected = json_object_get(golden, all ? "all" : "first"),
                     *tags = json_object_get(expected, "predictions");
        snug_train_result result;
        snug_args *args = plain_args(f, AS_THERE);
        if (all) set_args(f, args, "label_all_tokens=True");
        set_args(f, args, "output_dir=@out");
        ok(f, train_args(f, args, NULL, &result)); /* the model's task is used */
        snug_args_destroy(args);
        check_losses(f, json_object_get(expected, "losses"), 2e-5);
        check_metrics(json_object_get(expected, "metrics"), result.metrics);
        struct rows rows = predict(f, "model_name_or_path=@out max_seq_length=12 test_file=" GOLDEN "/dev.jsonl");
        assert_int_equal(rows.count, json_array_size(tags));
        for (int64_t i = 0; i < rows.count; i++)
            assert_string_equal(rows.labels[i], json_string_value(json_array_get(tags, (size_t)i)));
        forget(&rows);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
    json_decref(golden);
}

/* ---- forms of the data ---------------------------------------------------------------------------------------- */

/* The same words and tags in another form. */
static void convert(const struct fixture *f, const char *from, const char *name, bool conll,
                    const char *const names[]) {
    char *text = read_text(f, from, NULL), *rest = text, *line;
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    while ((line = strsep(&rest, "\n")) && *line) {
        json_t *row = json_loads(line, 0, NULL), *tags = json_array();
        const json_t *words = json_object_get(row, "tokens"), *own = json_object_get(row, "ner_tags");
        for (size_t i = 0; i < json_array_size(words); i++) {
            const char *tag = json_string_value(json_array_get(own, i));
            int number = 0;
            while (names && strcmp(names[number], tag) != 0) number++;
            json_array_append_new(tags, names ? json_integer(number) : json_string(tag));
            if (conll) fprintf(file, "%s\t_\t%s\n", json_string_value(json_array_get(words, i)), tag);
        }
        char *dumped = json_dumps(json_object_get(row, "tokens"), 0), *dumped_tags = json_dumps(tags, 0);
        if (conll)
            fputc('\n', file);
        else
            fprintf(file, "{\"id\": 1, \"pos_tags\": %s, \"words\": %s}\n", dumped_tags, dumped);
        free(dumped);
        free(dumped_tags);
        json_decref(tags);
        json_decref(row);
    }
    assert_int_equal(fclose(file), 0);
    free(text);
}

FIXTURE_TEST(test_forms) {
    static const char *const names[] = {"B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O"};
    static const char *const forms[] = {
        "train_file=@train.conll validation_file=@dev.conll",
        "train_file=@train.txt validation_file=@dev.conll task=token_classification",
        "train_file=@numbers.jsonl validation_file=@dev.conll text_column_names=words label_column_name=pos_tags",
    };
    convert(f, GOLDEN "/train.jsonl", "train.conll", true, NULL);
    convert(f, GOLDEN "/train.jsonl", "train.txt", true, NULL);
    convert(f, GOLDEN "/train.jsonl", "numbers.jsonl", false, names);
    convert(f, GOLDEN "/dev.jsonl", "dev.conll", true, NULL);
    snug_args *args = plain_args(f, AS_THERE "output_dir=@first");
    ok(f, snug_train(args, NULL, NULL));
    snug_args_destroy(args);
    for (size_t i = 0; i < 2; i++) {
        args = plain_args(f, AS_THERE "output_dir=@again overwrite_output_dir=True");
        set_args(f, args, forms[i]);
        ok(f, snug_train(args, NULL, NULL));
        snug_args_destroy(args);
        assert_same_run(f, "first", "again");
        assert_same_in_both(f, "first", "again", "config.json");
    }
    /* Numbers are the model's class ids. */
    args = plain_args(f, AS_THERE "output_dir=@again overwrite_output_dir=True eval_strategy=no");
    set_args(f, args, "train_file=@numbers.jsonl validation_file= text_column_names=words label_column_name=pos_tags");
    ok(f, snug_train(args, NULL, NULL));
    snug_args_destroy(args);
    assert_same_in_both(f, "first", "again", "model.safetensors");
    assert_same_in_both(f, "first", "again", "config.json");
}

static json_t *labels_of(const struct fixture *f, const char *folder) {
    json_t *config = read_json(f, path_of(f, "%s/config.json", folder)),
           *labels = json_incref(json_object_get(config, "id2label"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(config, "architectures"), 0)),
                        "BertForTokenClassification");
    json_decref(config);
    return labels;
}

static void assert_labels(struct fixture *f, const char *words, const char *expected) {
    json_t *labels, *value;
    const char *key;
    char text[256] = "";
    train(f, "labels", words);
    labels = labels_of(f, "labels");
    json_object_foreach(labels, key, value) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", json_string_value(value));
    }
    assert_string_equal(text, expected);
    json_decref(labels);
    ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "labels")));
}

FIXTURE_TEST(test_classes) {
    write_text(f, "s.jsonl", "{\"tokens\":[\"w1\",\"w2\",\"w3\"],\"tags\":[\"O\",\"I-b\",\"B-a\"]}\n");
    write_text(f, "n.jsonl", "{\"tokens\":[\"w1\",\"w2\"],\"tags\":[3,0]}\n{\"tokens\":[],\"tags\":[]}\n");
    assert_labels(f, "task=ner max_steps=1 label_column_name=tags train_file=@s.jsonl", "B-a I-b O");
    assert_labels(f, "task=ner max_steps=1 train_file=@s.jsonl", "B-a I-b O"); /* the second column */
    assert_labels(f, "task=ner max_steps=1 train_file=@n.jsonl", "LABEL_0 LABEL_1 LABEL_2 LABEL_3");
    assert_labels(f, "task=ner max_steps=1 train_file=dummy:8x10", "LABEL_0 LABEL_1");
    /* A model with other classes gets a new head, which is reported. */
    f->log[0] = '\0';
    assert_labels(f,
                  MODEL "ignore_mismatched_sizes=True max_steps=1 train_file=@s.jsonl config_name=" GOLDEN
                        " tokenizer_name=" GOLDEN,
                  "B-a I-b O");
    snug_metrics metrics;
    snug_args *args = plain_args(f, MODEL "validation_file=@s.jsonl");
    assert_int_equal(evaluate_args(f, args, NULL, &metrics), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "s.jsonl:1: the label \"I-b\" is not one of the model's 7 classes");
    set_args(f, args, "validation_file=@bad.jsonl");
    write_text(f, "bad.jsonl", "{\"tokens\":[\"x\"],\"ner_tags\":[7]}\n");
    assert_int_equal(evaluate_args(f, args, NULL, &metrics), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "bad.jsonl:1: the label \"7\" is not one of the model's 7 classes");
    snug_args_destroy(args);
}

/* ---- predicted tags ------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_predictions) {
    /* Six tokens remain: the first of the three of "x-y"; a blank word has none. */
    write_text(f, "p.jsonl",
               "{\"tokens\":[\"the\",\"of\",\"went\",\"x-y\",\"to\",\"john\"],\"ner_tags\":[\"nothing\"]}\n"
               "{\"tokens\":[]}\n{\"tokens\":[]}\n{\"tokens\":[\"john\",\" \",\"|\"]}\n{\"tokens\":[]}\n");
    snug_args *args = plain_args(f, MODEL "test_file=@p.jsonl max_seq_length=6 per_device_eval_batch_size=1");
    struct rows rows = {0};
    f->log[0] = '\0';
    ok(f, snug_predict(args, NULL, keep_row, &rows));
    assert_int_equal(rows.count, 5);
    assert_int_equal(strspn(rows.words[0], "the/"), 4);
    assert_non_null(strstr(rows.words[0], " to/- john/-"));
    assert_non_null(strstr(rows.words[0], " x-y/"));
    assert_null(strstr(rows.words[0], " x-y/-"));
    assert_string_equal(rows.words[1], "");
    assert_string_equal(rows.labels[1], "");
    assert_non_null(strstr(rows.words[3], "  /- |/"));
    assert_string_equal(rows.words[4], "");
    assert_contains(f->log, "1 of 5 texts are longer than 6 tokens and were truncated");
    assert_contains(f->log, "p.jsonl: 3 of 9 words were truncated, or have no token: they have no loss and get no tag");
    snug_args_destroy(args);
    const char *const expected[] = {rows.words[0], rows.words[1], rows.words[2], rows.words[3], rows.words[4], NULL};
    assert_predicts(f, MODEL "test_file=@p.jsonl max_seq_length=6 per_device_eval_batch_size=3", expected);
    assert_predicts(f, MODEL "test_file=@p.jsonl max_seq_length=6 label_all_tokens=True", expected);
    forget(&rows);
    rows = predict(f, MODEL "test_file=dummy:3x5");
    assert_int_equal(rows.count, 3);
    forget(&rows);
}

/* Predicts into a folder; false: it has no metrics. */
static bool has_results(struct fixture *f, const char *words) {
    char all[1024];
    if (exists(path_of(f, "p"))) ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "p")));
    f->log[0] = '\0';
    snprintf(all, sizeof all, MODEL "max_seq_length=12 output_dir=@p %s", words);
    struct rows rows = predict(f, all);
    assert_true(rows.count > 0);
    forget(&rows);
    return exists(path_of(f, "p/predict_results.json"));
}

/* A file with tags is predicted with the metrics of its evaluation, in every form. */
FIXTURE_TEST(test_predicted_metrics) {
    static const char *const forms[] = {
        ("%s_file=" GOLDEN "/dev.jsonl"),
        "%s_file=@dev.conll",
        "%s_file=@dev.conll label_all_tokens=True",
        "%s_file=@dev.conll return_entity_level_metrics=True per_device_eval_batch_size=3",
        "%s_file=@numbers.jsonl label_column_name=pos_tags text_column_name=words return_entity_level_metrics=True",
    };
    static const char *const names[] = {"B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O"};
    convert(f, GOLDEN "/dev.jsonl", "dev.conll", true, NULL);
    convert(f, GOLDEN "/dev.jsonl", "numbers.jsonl", false, names);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snug_metrics metrics;
        char words[256], name[64];
        snprintf(words, sizeof words, forms[i], "validation");
        snug_args *args = plain_args(f, MODEL "max_seq_length=12");
        set_args(f, args, words);
        ok(f, evaluate_args(f, args, NULL, &metrics));
        snug_args_destroy(args);
        snprintf(words, sizeof words, forms[i], "test");
        assert_true(has_results(f, words));
        json_t *results = read_json(f, path_of(f, "p/predict_results.json"));
        assert_int_equal(json_object_size(results), metrics.count);
        for (size_t k = 0; k < metrics.count; k++) {
            snprintf(name, sizeof name, "predict_%s", metrics.items[k].name + strlen("eval_"));
            const json_t *value = json_object_get(results, name);
            if (!value) fail_msg("there is no %s", name);
            if (!is_clock(name)) assert_true(json_number_value(value) == metrics.items[k].value);
        }
        json_decref(results);
    }
    assert_contains(f->log,
                    "numbers.jsonl: its tags are numbers, taken for places in the model's list of 7 classes: 0 = "
                    "B-LOC, 1 = B-ORG, 2 = B-PER");
}

/* Tags that some rows lack, or that cannot be used: predicted without metrics, which is said, also from the cache. */
FIXTURE_TEST(test_some_tags) {
    static const struct {
        const char *file, *text, *said;
    } cases[] = {
        {"some.jsonl", "{\"tokens\":[\"john\"],\"ner_tags\":[\"O\"]}\n{\"tokens\":[\"went\"]}\n{\"tokens\":[]}\n",
         "some.jsonl: no metrics: only 2 of 3 rows have tags"},
        {"some.conll", "john\tO\n\nwent\t\nto\t\n", "some.conll: no metrics: only 1 of 2 rows have tags"},
        {"odd.jsonl",
         "{\"tokens\":[\"john\"],\"ner_tags\":[\"O\",\"O\"]}\n{\"tokens\":[\"a\"],\"ner_tags\":\"O\"}\n"
         "{\"tokens\":[\"a\"],\"ner_tags\":[\"\"]}\n{\"tokens\":[\"to\"],\"ner_tags\":[2]}\n"
         "{\"tokens\":[\"to\"],\"ner_tags\":[-100]}\n",
         "odd.jsonl: the tags of 5 rows are not one for each word, and are not used"},
        {"odd2.jsonl", "{\"tokens\":[\"to\"],\"ner_tags\":[2]}\n{\"tokens\":[\"to\"],\"ner_tags\":[-100]}\n",
         "odd2.jsonl: the tags of 1 row are not one"},
        {"none.conll", "john\nwent\n", "none.conll: words: column 1 of 1, no tags"},
        {"other.conll", "john B-X\nwent O\n", "no metrics: "},
        {"unsure.conll", "john X 1\nwent Y 2\n", "no tags (--label_column_name says which column has them: 2 or 3)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int again = 0; again < 2; again++) {
            char words[64];
            write_text(f, cases[i].file, cases[i].text);
            snprintf(words, sizeof words, "test_file=@%s", cases[i].file);
            assert_false(has_results(f, words));
            assert_contains(f->log, cases[i].said);
        }
    assert_null(strstr(f->log, "tags of"));
}

/* ---- columns --------------------------------------------------------------------------------------------------- */

static const char four[] = "# a\n1\tjohn\tO\tB-X\n2\twent\tB-Y\tO\n\n# b\n1\tto\tO\tO\n";

/* A column that a training was told is the one of its evaluations, and of those of its model. */
FIXTURE_TEST(test_chosen_columns) {
    snug_metrics metrics;
    write_text(f, "four.tsv", four);
    write_text(f, "two.conll", "john B-X\nwent O\n");
    const char *const words = "task=ner config_name=" GOLDEN " tokenizer_name=" GOLDEN
                              " max_steps=1 train_file=@four.tsv validation_file=@four.tsv eval_strategy=epoch ";
    f->log[0] = '\0';
    train(f, "outer", words);
    assert_contains(f->log,
                    "four.tsv: GermEval 2014, outer entities: words: column 2 of 4, tags: column 3; column 1 has "
                    "running numbers");
    assert_contains(f->log, "four.tsv: skipped 2 comment lines");
    assert_contains(f->log, "Text       column 2 of 4; not used: column 1 of 4, column 4 of 4");
    assert_contains(f->log, "Label      column 3 of 4");
    assert_contains(f->log, "Classes    2: B-Y, O");
    f->log[0] = '\0';
    char all[512];
    snprintf(all, sizeof all, "%s label_column_name=4", words);
    train(f, "inner", all); /* not the tokens of the other column, which are in the cache */
    assert_contains(f->log, "Classes    2: B-X, O");
    train(f, "inner", all);
    assert_contains(strstr(f->log, "read from"), "four.tsv: skipped 2 comment lines"); /* again */
    static const struct {
        const char *words, *said;
    } cases[] = {{"validation_file=@four.tsv", "words: column 2 of 4, tags: column 4;"},
                 {"validation_file=@two.conll", "words: column 1 of 2, tags: column 2"},
                 {"validation_file=@named.conll", "words: FORM (column 1 of 2), tags: tag (column 2)"},
                 {"validation_file=@tags.jsonl", "Text       tokens"}};
    write_text(f, "named.conll", "FORM tag\njohn B-X\n");
    write_text(f, "tags.jsonl", "{\"tokens\":[\"john\"],\"ner_tags\":[\"B-X\"]}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_args *args = plain_args(f, "model_name_or_path=@inner");
        set_args(f, args, cases[i].words);
        f->log[0] = '\0';
        ok(f, evaluate_args(f, args, NULL, &metrics));
        snug_args_destroy(args);
        assert_contains(f->log, cases[i].said);
        if (strstr(f->log, "is trained on")) fail_msg("%s", f->log);
    }
    /* Names that a model was trained with, and the file has others. */
    snprintf(all, sizeof all, "%s train_file=@named.conll validation_file=@named.conll", words);
    train(f, "named", all);
    write_text(f, "token.conll", "token tag\njohn B-X\n");
    snug_args *args = plain_args(f, "model_name_or_path=@named validation_file=@token.conll");
    ok(f, evaluate_args(f, args, NULL, &metrics));
    assert_contains(f->log, "token.conll: the model is trained on the text column FORM, which it lacks: using token");
    set_args(f, args, "text_column_name=1");
    f->log[0] = '\0';
    ok(f, evaluate_args(f, args, NULL, &metrics));
    assert_null(strstr(f->log, "is trained on"));
    set_args(f, args, "text_column_name= text_column_names=1");
    ok(f, evaluate_args(f, args, NULL, &metrics));
    assert_null(strstr(f->log, "is trained on"));
    set_args(f, args, "text_column_names=a,b");
    assert_int_equal(evaluate_args(f, args, NULL, &metrics), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "there is no column \"a,b\"");
    set_args(f, args, "text_column_name=1 text_column_names=1");
    assert_int_equal(evaluate_args(f, args, NULL, &metrics), SNUG_E_USAGE);
    set_args(f, args, "text_column_name=1 text_column_names= text_pair_column_name=2");
    assert_int_equal(evaluate_args(f, args, NULL, &metrics), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--text_pair_column_name is for classification");
    snug_args_destroy(args);
}

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

static snug_status keep_tokens(void *user, const snug_tokenized *row) {
    char *text = user;
    for (size_t i = 0; i < row->count; i++) {
        assert_int_equal(row->token_type_ids[i], 0);
        strcat(strcat(text, row->tokens[i]), i + 1 < row->count ? " " : "\n");
    }
    return SNUG_OK;
}

static void tokenizes(struct fixture *f, const char *words, snug_status status, const char *expected) {
    char found[1024] = "";
    snug_args *args = plain_args(f, words);
    f->log[0] = '\0';
    const snug_status got = snug_tokenize(args, keep_tokens, found);
    if (got != status) fail_msg("%s: status %d: %s", words, got, snug_error_message(f->ctx));
    if (status == SNUG_OK)
        assert_string_equal(found, expected);
    else
        assert_contains(snug_error_message(f->ctx), expected);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_tokenize) {
    static const char *const whole = "[CLS] john went [SEP]\n[CLS] to [SEP]\n";
    write_text(f, "four.tsv", four);
    write_text(f, "two.conll", "john B-X\nwent O\n\nto O\n");
    write_text(f, "tags.jsonl", "{\"tokens\":[\"john\",\"went\"],\"ner_tags\":[1,2]}\n{\"tokens\":[\"to\"]}\n");
    write_text(f, "text.jsonl", "{\"text\":\"john went\"}\n{\"text\":[\"to\"]}\n");
    tokenizes(f, "tokenizer_name=" GOLDEN " task=token_classification test_file=@two.conll", SNUG_OK, whole);
    assert_contains(f->log, "two.conll: words: column 1 of 2, tags: column 2");
    tokenizes(f, "tokenizer_name=" GOLDEN " test_file=@two.conll", SNUG_OK, whole); /* by the file */
    tokenizes(f, MODEL "test_file=@four.tsv", SNUG_OK, whole);                      /* by the model */
    tokenizes(f, MODEL "test_file=@tags.jsonl", SNUG_OK, whole);
    tokenizes(f, "tokenizer_name=" GOLDEN " task=ner validation_file=@four.tsv text_column_name=2 max_eval_samples=1",
              SNUG_OK, "[CLS] john went [SEP]\n");
    tokenizes(f, MODEL "train_file=@two.conll max_seq_length=3", SNUG_OK, "[CLS] john [SEP]\n[CLS] to [SEP]\n");
    tokenizes(f, MODEL "task=classification test_file=@text.jsonl max_predict_samples=1", SNUG_OK,
              "[CLS] john went [SEP]\n");
    tokenizes(f, MODEL "task=classification test_file=@text.jsonl", SNUG_E_INPUT,
              "text.jsonl:2: the text must be a string: the column \"text\" holds a list; name the columns of "
              "texts with --text_column_names, or, if it is one of words, give "
              "--task");
    tokenizes(f, MODEL "test_file=@text.jsonl text_column_name=text", SNUG_E_INPUT,
              "text.jsonl:1: the words must be a list of strings");
    write_text(f, "null.jsonl", "{\"text\":null}\n");
    tokenizes(f, MODEL "task=classification test_file=@null.jsonl", SNUG_E_INPUT,
              "null.jsonl:1: the row has no text: its column");
    /* A folder with a tokenizer alone, or with the head of another task. */
    write_text(f, "text.txt", "john went\n");
    tokenizes(f, "tokenizer_name=" GOLDEN " test_file=@text.txt", SNUG_OK, "[CLS] john went [SEP]\n");
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "alone")), SNUG_OK);
    static const char *const files[] = {"vocab.txt", "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        snprintf(path, sizeof path, GOLDEN "/%s", files[i]);
        char *text = read_text(f, path, NULL);
        snprintf(path, sizeof path, "alone/%s", files[i]);
        write_text(f, path, text);
        free(text);
    }
    tokenizes(f, "model_name_or_path=@alone test_file=@text.txt", SNUG_OK, "[CLS] john went [SEP]\n");
    write_text(f, "alone/config.json", "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"]}");
    tokenizes(f, "model_name_or_path=@alone test_file=@text.txt", SNUG_OK, "[CLS] john went [SEP]\n");
    write_text(f, "alone/config.json", "{\"model_type\": \"bert\", \"architectures\": [\"BertModel\"]}");
    tokenizes(f, "model_name_or_path=@alone test_file=@text.txt", SNUG_OK, "[CLS] john went [SEP]\n");
    tokenizes(f, MODEL "test_file=@two.conll text_column_name=3", SNUG_E_INPUT, "there is no column \"3\"");
}

/* Chunks of loss positions, batches and synthetic rows: more positions than a backend takes at a time. */
FIXTURE_TEST(test_many_positions) {
    snug_metrics metrics[3];
    for (int i = 0; i < 3; i++) {
        static const int batches[] = {1, 7, 64};
        char words[256];
        snprintf(words, sizeof words, MODEL "validation_file=dummy:64x2-16 per_device_eval_batch_size=%d", batches[i]);
        snug_args *args = plain_args(f, words);
        ok(f, evaluate_args(f, args, NULL, &metrics[i]));
        snug_args_destroy(args);
        for (int k = 1; k < 5; k++) assert_true(metrics[i].items[k].value == metrics[0].items[k].value);
        assert_true(fabs(metrics[i].items[0].value / metrics[0].items[0].value - 1) < 1e-6);
    }
    train(f, "out",
          "task=ner train_file=dummy:40x16 validation_file=dummy:9x4-16 eval_strategy=epoch max_steps=3 "
          "per_device_train_batch_size=16 metric_for_best_model=f1");
}

FIXTURE_TEST(test_refused) {
    static const struct {
        const char *words, *part;
    } cases[] = {
        {"task=ner line_by_line=True", "--line_by_line is for masked LM, and this task is token classification"},
        {"task=mlm label_all_tokens=True",
         "--label_all_tokens is for token classification, and this task is masked LM: leave "
         "it out, or give --task token_classification"},
        {"return_entity_level_metrics=True", "--return_entity_level_metrics is for token classification"},
        {"task=ner train_file=@train.csv", "train.csv: words and tags are read from JSON Lines"},
        {"train_file=@words.conll", "words.conll holds words with tags: give --task token_classification"},
        {"task=ner train_file=@words.conll validation_file=@words.conll eval_strategy=epoch "
         "metric_for_best_model=perplexity",
         "eval_precision"},
    };
    write_text(f, "words.conll", "w1 O\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(try_train(f, "x", cases[i].words, 0, NULL), SNUG_E_USAGE);
        assert_contains(snug_error_message(f->ctx), cases[i].part);
    }
    assert_false(exists(path_of(f, "x")));
}

TEST_MAIN(NULL, NULL)
