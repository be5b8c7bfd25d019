/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded model gives what snug_predict() gives, bit for bit, in any thread. */
#include <pthread.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void fails(const struct fixture *f, snug_status found, snug_status status, const char *says) {
    if (found != status) fail_msg("status %d: %s", found, snug_error_message(f->ctx));
    assert_contains(snug_error_message(f->ctx), says);
}

enum { MOST = 64 };

/* What is compared of each prediction. */
struct answers {
    int count;
    struct answer {
        int64_t index;
        char label[64];
        double score, candidates[4], words[8];
        float logits[4];
        char tags[64];
        bool truncated;
    } of[MOST];
};

static snug_status take(void *user, const snug_prediction *row) {
    struct answers *answers = user;
    struct answer *to = &answers->of[answers->count++];
    assert_true(answers->count <= MOST);
    *to = (struct answer){.index = row->index, .score = row->score, .truncated = row->truncated};
    snprintf(to->label, sizeof to->label, "%s", row->label);
    for (size_t i = 0; i < row->logits_count && i < 4; i++) to->logits[i] = row->logits[i];
    for (size_t i = 0; i < row->candidate_count && i < 4; i++) to->candidates[i] = row->candidate_scores[i];
    for (size_t i = 0; i < row->word_count && i < 8; i++) {
        const size_t used = strlen(to->tags);
        snprintf(to->tags + used, sizeof to->tags - used, "%s=%s ", row->words[i], row->tags[i] ? row->tags[i] : "-");
        to->words[i] = row->scores[i];
    }
    return SNUG_OK;
}

static snug_model *open_model(struct fixture *f, const char *words, snug_args **args) {
    snug_model *model;
    *args = plain_args(f, words);
    ok(f, snug_model_open(*args, &model));
    return model;
}

/* classes: the names, each with a space after it. */
static void expect_info(const snug_model *model, const char *task, const char *problem, const char *classes) {
    const snug_model_info *info = snug_model_describe(model);
    char names[64] = "";
    assert_string_equal(info->task, task);
    if (problem)
        assert_string_equal(info->problem, problem);
    else
        assert_null(info->problem);
    for (size_t i = 0; i < info->class_count; i++) strcat(strcat(names, info->classes[i]), " ");
    assert_string_equal(names, classes);
}

static const char *const texts[] = {"w1 good w2 good", "bad w3 w4 bad w5", "w6", "", "good good bad w7 w8 w9 w10 w11"};
static const char *const pairs[] = {"bad", "w1 w2", "good w3 good w4", "w5", ""};
enum { TEXTS = sizeof texts / sizeof *texts };

/* The answers of snug_predict() for the same texts. */
static struct answers predicted(struct fixture *f, const char *words, const char *task, bool paired) {
    struct answers answers = {0};
    FILE *file = fopen(path_of(f, "texts.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < TEXTS; i++) {
        json_t *row = json_object(), *list = json_array();
        char copy[128], *rest = NULL;
        snprintf(copy, sizeof copy, "%s", texts[i]);
        for (const char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            json_array_append_new(list, json_string(word));
        if (strcmp(task, "token_classification") == 0)
            json_object_set(row, "tokens", list);
        else
            json_object_set_new(row, paired ? "sentence1" : "text", json_string(texts[i]));
        if (paired) json_object_set_new(row, "sentence2", json_string(pairs[i]));
        char *line = json_dumps(row, JSON_COMPACT);
        fprintf(file, "%s\n", line);
        free(line);
        json_decref(list);
        json_decref(row);
    }
    fclose(file);
    snug_args *args = plain_args(f, words);
    set_args(f, args, "test_file=@texts.jsonl");
    ok(f, snug_predict(args, NULL, take, &answers));
    snug_args_destroy(args);
    return answers;
}

static void assert_same_answers(const struct answers *a, const struct answers *b) {
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) assert_memory_equal(&a->of[i], &b->of[i], sizeof a->of[i]);
}

#define SINGLE "single_label_classification"

FIXTURE_TEST(test_bits) {
    static const struct {
        const char *task, *train, *predict, *problem, *classes;
        bool pairs;
    } cases[] = {
        {"classification", "", "return_all_scores=True", SINGLE, "negative positive ", false},
        {"classification", "train_file=@several.jsonl", "threads=2", "multi_label_classification", "a b c ", false},
        {"classification", "train_file=@pairs.csv", "per_device_eval_batch_size=2 max_seq_length=8", SINGLE, "0 1 ",
         true},
        {"classification", "train_file=@values.csv", "per_device_eval_batch_size=1", "regression", "", false},
        {"token_classification", "task=ner train_file=@words.jsonl", "per_device_eval_batch_size=2 max_seq_length=6",
         NULL, "B-a B-b O ", false},
    };
    write_text(f, "pairs.csv", "sentence1,sentence2,label\nw1 good,w2,0\nw3,w4 bad,1\n");
    write_text(f, "values.csv", "sentence,label\nw1 good,0.25\nw2 bad,-0.5\n");
    write_text(f, "several.jsonl", "{\"text\":\"w1\",\"label\":[\"a\",\"c\"]}\n{\"text\":\"w2\",\"label\":[\"b\"]}\n");
    write_text(f, "words.jsonl",
               "{\"tokens\":[\"w1\",\"good\"],\"ner_tags\":[\"O\",\"B-a\"]}\n"
               "{\"tokens\":[\"bad\"],\"ner_tags\":[\"B-b\"]}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        snug_args *args;
        struct answers once = {0}, again = {0}, single = {0};
        snprintf(words, sizeof words, "max_steps=2 %s", cases[i].train);
        train(f, "out", words);
        snprintf(words, sizeof words, "model_name_or_path=@out threads=2 %s", cases[i].predict);
        const struct answers expected = predicted(f, words, cases[i].task, cases[i].pairs);
        assert_int_equal(expected.count, TEXTS);
        snug_model *model = open_model(f, words, &args);
        const char *const *second = cases[i].pairs ? pairs : NULL;
        expect_info(model, cases[i].task, cases[i].problem, cases[i].classes);
        ok(f, snug_model_predict(model, f->ctx, texts, second, TEXTS, take, &once));
        ok(f, snug_model_predict(model, f->ctx, texts, second, TEXTS, take, &again));
        for (int k = 0; k < TEXTS; k++) {
            ok(f, snug_model_predict(model, f->ctx, texts + k, second ? second + k : NULL, 1, take, &single));
            assert_int_equal(single.of[k].index, 0);
            single.of[k].index = k;
        }
        ok(f, snug_model_predict(model, f->ctx, texts, second, 0, take, &once));
        assert_same_answers(&expected, &once);
        assert_same_answers(&expected, &again);
        for (int k = 0; k < TEXTS; k++) { /* another batch has other roundings */
            assert_string_equal(single.of[k].tags, expected.of[k].tags);
            assert_true(fabs(single.of[k].score - expected.of[k].score) < 1e-5);
        }
        if (strstr(cases[i].predict, "max_seq_length")) assert_true(once.of[4].truncated && !once.of[2].truncated);
        ok(f, snug_model_close(model));
        expect_info(model, cases[i].task, cases[i].problem, cases[i].classes);
        snug_model_destroy(model);
        snug_args_destroy(args);
    }
}

FIXTURE_TEST(test_masked) {
    static const char *const masked[] = {"w1 [MASK] w2 [MASK]", "", "w3 w4", "[MASK]"};
    struct answers answers = {0};
    snug_args *args;
    train(f, "mlm", "task=mlm train_file=@train.txt line_by_line=True max_steps=1");
    snug_model *model = open_model(f, "model_name_or_path=@mlm top_k=2 per_device_eval_batch_size=3", &args);
    expect_info(model, "mlm", NULL, "");
    ok(f, snug_model_predict(model, f->ctx, masked, NULL, 4, take, &answers));
    assert_int_equal(answers.count, 3);
    assert_true(answers.of[0].index == 0 && answers.of[1].index == 0 && answers.of[2].index == 3);
    assert_true(answers.of[0].candidates[0] == answers.of[0].score && answers.of[0].candidates[1] > 0);
    snug_model_destroy(model);
    snug_args_destroy(args);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

struct nested {
    snug_model *model;
    snug_context *ctx;
    snug_status status;
};

static snug_status call_again(void *user, const snug_prediction *row) {
    struct nested *nested = user;
    (void)row;
    return nested->status = snug_model_predict(nested->model, nested->ctx, texts, NULL, 1, call_again, nested);
}

static snug_status refuse(void *user, const snug_prediction *row) {
    (void)row;
    ++*(int *)user;
    return SNUG_E_INTERRUPTED;
}

FIXTURE_TEST(test_errors) {
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"", "a loaded model needs model_name_or_path"},
        {"model_name_or_path=@out text=w1", "--text: a loaded model gets its texts from snug_model_predict()"},
        {"model_name_or_path=@out keep_columns=all", "--keep_columns: a loaded model gets its texts"},
        {"model_name_or_path=@real return_all_scores=True", "this model predicts a value"},
    };
    static const char *const wrong[] = {"w1", "w2 \xff", NULL};
    snug_context *other;
    snug_model *model;
    snug_args *args;
    struct answers answers = {0};
    int calls = 0;
    write_text(f, "values.csv", "sentence,label\nw1 good,0.25\nw2 bad,-0.5\n");
    train(f, "real", "max_steps=1 train_file=@values.csv");
    train(f, "out", "max_steps=1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        args = plain_args(f, cases[i].words);
        fails(f, snug_model_open(args, &model), SNUG_E_USAGE, cases[i].says);
        assert_null(model);
        snug_args_destroy(args);
    }
    model = open_model(f, "model_name_or_path=@out per_device_eval_batch_size=1", &args);
    fails(f, snug_model_predict(model, f->ctx, wrong + 1, NULL, 1, take, &answers), SNUG_E_USAGE,
          "text 0 is not UTF-8, from byte 3 on");
    fails(f, snug_model_predict(model, f->ctx, texts, wrong + 2, 1, take, &answers), SNUG_E_USAGE,
          "the second text 0 is missing");
    assert_int_equal(answers.count, 0);
    assert_int_equal(snug_context_create(&other), SNUG_OK);
    assert_int_equal(snug_model_predict(model, other, wrong, NULL, 3, take, &answers), SNUG_E_USAGE);
    assert_contains(snug_error_message(other), "text 1 is not UTF-8");
    assert_int_equal(answers.count, 1); /* that of the batch before */
    assert_int_equal(snug_model_predict(model, other, texts, NULL, TEXTS, refuse, &calls), SNUG_E_INTERRUPTED);
    assert_int_equal(calls, 1);
    struct nested nested = {model, other, SNUG_OK};
    assert_int_equal(snug_model_predict(model, other, texts, NULL, 1, call_again, &nested), SNUG_E_USAGE);
    assert_int_equal(nested.status, SNUG_E_USAGE);
    assert_contains(snug_error_message(other), "called in a callback of snug_model_predict() with the same context");
    answers.count = 0;
    ok(f, snug_model_predict(model, other, texts, NULL, TEXTS, take, &answers)); /* it still works */
    assert_int_equal(answers.count, TEXTS);
    snug_context_destroy(other);
    snug_model_destroy(model);
    snug_args_destroy(args);
    snug_model_destroy(NULL);
    assert_string_equal(snug_version(), SNUG_VERSION);
    train(f, "words", "task=ner train_file=dummy:8x6 max_steps=1 tokenizer_name=");
    args = plain_args(f, "model_name_or_path=@words tokenizer_name=@model");
    ok(f, snug_model_open(args, &model));
    fails(f, snug_model_predict(model, f->ctx, texts, pairs, 1, take, &answers), SNUG_E_USAGE,
          "pairs of texts are not for");
    snug_model_destroy(model);
    snug_args_destroy(args);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct caller {
    snug_model *model;
    const struct answers *expected;
    pthread_t thread;
    int wrong;
};

static bool same_answers(const struct answers *a, const struct answers *b) {
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++) {
        const struct answer *x = &a->of[i], *y = &b->of[i];
        same = x->index == y->index && strcmp(x->label, y->label) == 0 && x->score == y->score;
        for (int k = 0; same && k < 4; k++) same = x->logits[k] == y->logits[k];
    }
    return same;
}

static void *call(void *user) {
    struct caller *caller = user;
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    for (int i = 0; i < 20; i++) {
        struct answers answers = {0};
        caller->wrong += snug_model_predict(caller->model, ctx, texts, NULL, TEXTS, take, &answers) != SNUG_OK ||
                         !same_answers(&answers, caller->expected);
    }
    snug_context_destroy(ctx);
    return NULL;
}

FIXTURE_TEST(test_threads) {
    enum { CALLERS = 4 };
    struct caller callers[CALLERS];
    struct answers expected = {0};
    snug_args *args;
    train(f, "out", "max_steps=1");
    snug_model *model = open_model(f, "model_name_or_path=@out threads=2", &args);
    ok(f, snug_model_predict(model, f->ctx, texts, NULL, TEXTS, take, &expected));
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.model = model, .expected = &expected};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].wrong, 0);
    }
    snug_model_destroy(model);
    snug_args_destroy(args);
}

/* ---- token types --------------------------------------------------------------------------------------------------
 */

/* The folder "tokenizer" with one of the golden tokenizers; vocab.txt is of the class that needs it. */
static void put_tokenizer(const struct fixture *f, const json_t *golden, const json_t *files) {
    const char *name;
    json_t *value;
    size_t index;
    snug_folder_remove(f->ctx, NULL, path_of(f, "tokenizer"));
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "tokenizer")), SNUG_OK);
    FILE *file = fopen(path_of(f, "tokenizer/vocab.txt"), "w");
    assert_non_null(file);
    json_array_foreach(json_object_get(golden, "vocab"), index, value) fprintf(file, "%s\n", json_string_value(value));
    fclose(file);
    json_object_foreach((json_t *)files, name, value) {
        char *text = json_dumps(value, JSON_COMPACT);
        assert_non_null(text);
        write_bytes(path_of(f, "tokenizer/%s", name), text, strlen(text));
        free(text);
    }
}

/* The file "pairs.csv" of the golden pairs and labels. */
static void put_pairs(const struct fixture *f, const json_t *golden) {
    FILE *file = fopen(path_of(f, "pairs.csv"), "w");
    const json_t *texts_ = json_object_get(golden, "pairs"), *labels = json_object_get(golden, "labels");
    assert_non_null(file);
    fprintf(file, "sentence1,sentence2,label\n");
    for (size_t i = 0; i < json_array_size(texts_); i++)
        fprintf(file, "%s,%s,%lld\n", json_string_value(json_array_get(json_array_get(texts_, i), 0)),
                json_string_value(json_array_get(json_array_get(texts_, i), 1)),
                json_integer_value(json_array_get(labels, i)));
    fclose(file);
}

/* Predictions of a model with a tokenizer. */
static void check_types(struct fixture *f, const json_t *golden, const json_t *one) {
    char words[512];
    struct answers answers = {0};
    snug_args *args;
    const json_t *right = json_object_get(one, "logits"), *given = json_object_get(golden, "pairs");
    const char *first[8], *second[8];
    const size_t count = json_array_size(given);
    for (size_t i = 0; i < count; i++) {
        first[i] = json_string_value(json_array_get(json_array_get(given, i), 0));
        second[i] = json_string_value(json_array_get(json_array_get(given, i), 1));
    }
    snprintf(words, sizeof words, "model_name_or_path=" SNUG_SOURCE_DIR "/tests/golden/%s tokenizer_name=@tokenizer",
             json_string_value(json_object_get(one, "model")));
    snug_model *model = open_model(f, words, &args);
    const snug_status status = snug_model_predict(model, f->ctx, first, second, count, take, &answers);
    if (json_is_null(right))
        fails(f, status, SNUG_E_USAGE, "token type 1, which the model does not have");
    else
        ok(f, status);
    for (size_t i = 0; json_is_array(right) && i < count; i++)
        for (size_t k = 0; k < 3; k++)
            assert_float_equal(answers.of[i].logits[k], json_real_value(json_array_get(json_array_get(right, i), k)),
                               1e-5);
    snug_model_destroy(model);
    snug_args_destroy(args);
}

/* The loss of the first step of a training. */
static void check_training(struct fixture *f, const json_t *one) {
    char words[512];
    snprintf(words, sizeof words,
             "train_file=@pairs.csv max_steps=1 overwrite_output_dir=true config_name= tokenizer_name=@tokenizer "
             "model_name_or_path=" SNUG_SOURCE_DIR "/tests/golden/%s",
             json_string_value(json_object_get(one, "model")));
    snug_train_result result;
    const snug_status status = try_train(f, "trained", words, 0, &result);
    if (json_is_null(json_object_get(one, "loss")))
        fails(f, status, SNUG_E_INPUT, "pairs.csv contains pairs of texts, and the tokenizer gives");
    else
        ok(f, status);
    if (status == SNUG_OK) assert_float_equal(result.train_loss, json_real_value(json_object_get(one, "loss")), 1e-5);
}

/* Token types follow model_input_names and the tokenizer's class, before a BERT, an ELECTRA, a DistilBERT, which has
   none, and a RoBERTa, which has one. */
FIXTURE_TEST(test_token_types) {
    json_t *golden = read_json(f, SNUG_SOURCE_DIR "/tests/golden/token_types.json"),
           *tokenizers = json_object_get(golden, "tokenizers"), *one;
    size_t index;
    put_pairs(f, golden);
    json_array_foreach(json_object_get(golden, "cases"), index, one) {
        put_tokenizer(f, golden,
                      json_array_get(tokenizers, (size_t)json_integer_value(json_object_get(one, "tokenizer"))));
        check_types(f, golden, one);
        if (index % 3 == 0) check_training(f, one);
    }
    json_decref(golden);
}

static snug_value text_value(const char *text) {
    return (snug_value){.kind = SNUG_VALUE_TEXT, .text = text, .length = strlen(text)};
}

/* Rows with columns: those that the model was trained on, of one text, a pair, joined ones, or words. */
FIXTURE_TEST(test_rows) {
    static const struct {
        const char *train, *arguments, *first, *second;
        bool pair;
    } cases[] = {
        {"{\"review\": \"good\", \"other\": \"x\", \"label\": %d}", "text_column_name=review", "review", NULL, false},
        {"{\"question1\": \"good\", \"question2\": \"x\", \"label\": %d}", "", "question1", "question2", true},
        {"{\"a\": \"good\", \"b\": \"x\", \"label\": %d}", "text_column_names=a,b", "a", "b", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *file = fopen(path_of(f, "rows.jsonl"), "w");
        assert_non_null(file);
        for (int row = 0; row < 8; row++) {
            fprintf(file, cases[i].train, row % 2); // NOLINT: the formats are literals above
            fputc('\n', file);
        }
        assert_int_equal(fclose(file), 0);
        char words[128];
        snprintf(words, sizeof words, "train_file=@rows.jsonl max_steps=1 %s", cases[i].arguments);
        train(f, "out", words);

        snug_args *args;
        snug_model *model = open_model(f, "model_name_or_path=@out per_device_eval_batch_size=2", &args);
        struct answers expected = {0}, found = {0};
        char joined[TEXTS][128];
        const char *plain[TEXTS];
        snug_rows *rows;
        ok(f, snug_rows_create(f->ctx, &rows));
        ok(f, snug_model_predict_rows(model, f->ctx, rows, take, &found)); /* none yet */
        assert_int_equal(found.count, 0);
        for (int row = 0; row < TEXTS; row++) {
            const bool joins = cases[i].second && !cases[i].pair;
            snprintf(joined[row], sizeof joined[row], "%s%s%s", texts[row], joins ? " " : "", joins ? pairs[row] : "");
            plain[row] = joined[row];
            ok(f, snug_rows_integer(rows, "id", row));
            ok(f, snug_rows_text(rows, cases[i].first, texts[row]));
            if (cases[i].second) ok(f, snug_rows_text(rows, cases[i].second, pairs[row]));
            ok(f, snug_rows_end(rows));
        }
        ok(f, snug_model_predict(model, f->ctx, plain, cases[i].pair ? pairs : NULL, TEXTS, take, &expected));
        ok(f, snug_model_predict_rows(model, f->ctx, rows, take, &found));
        assert_int_equal(found.count, TEXTS);
        assert_memory_equal(&found, &expected, sizeof found);

        ok(f, snug_rows_integer(rows, "id", 1));
        ok(f, snug_rows_end(rows));
        found.count = 0;
        fails(f, snug_model_predict_rows(model, f->ctx, rows, take, &found), SNUG_E_INPUT,
              "rows in memory:6: the row has no text: its column");
        snug_rows_destroy(rows);
        snug_model_destroy(model);
        snug_args_destroy(args);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
}

FIXTURE_TEST(test_rows_of_words) {
    write_text(f, "tags.jsonl", "{\"tokens\": [\"w1\", \"good\"], \"ner_tags\": [\"X\", \"O\"]}\n");
    train(f, "out", "train_file=@tags.jsonl task=ner max_steps=1");
    snug_args *args;
    snug_model *model = open_model(f, "model_name_or_path=@out", &args);
    struct answers expected = {0}, found = {0};
    const snug_value words[] = {text_value("w1"), text_value("good"), text_value("w2 w3")},
                     list = {.kind = SNUG_VALUE_LIST, .items = words, .length = 2},
                     odd = {.kind = SNUG_VALUE_LIST, .items = words, .length = 3};
    const char *const text = "w1 good";
    snug_rows *rows;
    ok(f, snug_rows_create(f->ctx, &rows));
    ok(f, snug_rows_set(rows, "tokens", &list));
    ok(f, snug_rows_end(rows));
    ok(f, snug_model_predict(model, f->ctx, &text, NULL, 1, take, &expected));
    ok(f, snug_model_predict_rows(model, f->ctx, rows, take, &found));
    assert_memory_equal(&found, &expected, sizeof found);
    ok(f, snug_rows_set(rows, "tokens", &odd)); /* a word with a blank is one */
    ok(f, snug_rows_end(rows));
    ok(f, snug_model_predict_rows(model, f->ctx, rows, take, &found));
    assert_contains(found.of[2].tags, "w2 w3=");
    snug_rows_destroy(rows);
    snug_model_destroy(model);
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
