/* SPDX-License-Identifier: Apache-2.0 */
/* Question answering from files to answers: against a loop with transformers and PyTorch
   (tools/golden/question_answering.py), in both forms of SQuAD; windows, metrics, files, and what is refused. */
#include <math.h>

#include "data/answers.h"
#include "data/dataset_impl.h"
#include "metrics/answers.h"
#include "model/family.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/question_answering"
#define AS_THERE "max_seq_length=26 doc_stride=5 n_best_size=6 max_answer_length=7 threads=1 "

static void ok(const struct fixture *f, snug_status status) {
    if (status != SNUG_OK) fail_msg("status %d: %s", status, snug_error_message(f->ctx));
}

/* ---- the reference loop --------------------------------------------------------------------------------------- */

struct answers {
    const json_t *expected, *best; /* by the question's id */
    const char **ids;              /* in the order of the file */
    int64_t count;
};

static snug_status check_answer(void *user, const snug_prediction *row) {
    struct answers *a = user;
    const char *id = a->ids[row->index];
    const json_t *best = json_object_get(a->best, id);
    assert_int_equal(row->index, a->count++);
    assert_string_equal(row->label, json_string_value(json_object_get(a->expected, id)));
    assert_int_equal(row->candidate_count, json_array_size(best));
    for (size_t i = 0; i < row->candidate_count; i++) {
        const json_t *one = json_array_get(best, i);
        assert_string_equal(row->candidates[i], json_string_value(json_array_get(one, 0)));
        assert_true(fabs(row->candidate_scores[i] - json_number_value(json_array_get(one, 1))) < 1e-3);
    }
    return SNUG_OK;
}

static void check_metrics(const json_t *expected, const snug_metrics *metrics) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)expected, key, value) {
        const double got = metric_of(metrics, key), want = json_number_value(value);
        if (!(fabs(got - want) <= 1e-4 * want)) fail_msg("%s is %.9g, not %.9g", key, got, want);
    }
}

/* Answers and metrics of one of the files. */
static void check_file(struct fixture *f, const json_t *golden, const char *name, const char *words) {
    const json_t *expected = json_object_get(golden, name);
    struct answers a = {.expected = json_object_get(expected, "answers"), .best = json_object_get(expected, "best")};
    const char *ids[64], *key;
    json_t *value;
    snug_metrics *metrics;
    char text[512];
    size_t count = 0;
    json_object_foreach((json_t *)(uintptr_t)a.expected, key, value) ids[count++] = key;
    a.ids = ids;
    snprintf(text, sizeof text, "model_name_or_path=@out %s test_file=" GOLDEN "/%s.json output_dir=@answers", words,
             name);
    snug_args *args = plain_args(f, text);
    ok(f, snug_predict(args, NULL, check_answer, &a));
    snug_args_destroy(args);
    assert_int_equal(a.count, count);
    json_t *file = read_json(f, path_of(f, "answers/predict_predictions.json"));
    assert_true(json_equal(file, a.expected));
    json_decref(file);
    file = read_json(f, path_of(f, "answers/predict_nbest_predictions.json"));
    assert_int_equal(json_object_size(file), count);
    json_decref(file);
    assert_int_equal(exists(path_of(f, "answers/predict_null_odds.json")), strstr(words, "version_2") != NULL);
    ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "answers")));
    snprintf(text, sizeof text, "model_name_or_path=@out %s validation_file=" GOLDEN "/%s.jsonl", words, name);
    args = plain_args(f, text);
    ok(f, snug_evaluate(args, NULL, &metrics));
    check_metrics(json_object_get(expected, "metrics"), metrics);
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);
}

static void check_losses(const struct fixture *f, const json_t *losses) {
    json_t *history = history_of(f, "out"), *entry;
    size_t i, seen = 0;
    json_array_foreach(history, i, entry) {
        const json_t *loss = json_object_get(entry, "loss");
        if (!loss) continue;
        const double want = json_number_value(json_array_get(losses, seen++)), got = json_number_value(loss);
        if (fabs(got / want - 1) > 1e-5) fail_msg("step %zu: the loss is %.9g, not %.9g", seen, got, want);
    }
    assert_int_equal(seen, json_array_size(losses));
    json_decref(history);
}

FIXTURE_TEST(test_reference_loop) {
    static const char *const families[][2] = {{"bert", "wordpiece"},
                                              {"distilbert", "wordpiece"},
                                              {"electra", "wordpiece"},
                                              {"roberta", "bytes"},
                                              {"modernbert", "bytes"}};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char words[512];
        snug_train_result result;
        json_t *golden;
        snprintf(words, sizeof words, GOLDEN "/%s/expected.json", families[i][0]);
        golden = read_json(f, words);
        snprintf(words, sizeof words,
                 "model_name_or_path=" GOLDEN "/%s tokenizer_name=" GOLDEN "/%s " AS_THERE "train_file=" GOLDEN
                 "/train.json task=qa per_device_train_batch_size=4 num_train_epochs=3 learning_rate=2e-3 "
                 "max_grad_norm=0 lr_scheduler_type=constant train_sampling_strategy=sequential logging_steps=1",
                 families[i][0], families[i][1]);
        snug_args *args = plain_args(f, words);
        set_args(f, args, "save_strategy=no eval_strategy=no");
        set_args(f, args, "output_dir=@out");
        ok(f, train_args(f, args, NULL, &result));
        snug_args_destroy(args);
        check_losses(f, json_object_get(golden, "losses"));
        check_file(f, golden, "train", AS_THERE);
        check_file(f, golden, "dev2", AS_THERE "version_2_with_negative=True");
        json_decref(golden);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static struct snug_dataset_options options_of(const struct fixture *f, const char *text) {
    return (struct snug_dataset_options){.path = write_text(f, "q.jsonl", text),
                                         .task = SNUG_TASK_QUESTION_ANSWERING,
                                         .max_length = 12,
                                         .doc_stride = 2,
                                         .max_samples = -1,
                                         .threads = 1,
                                         .overwrite_cache = true};
}

static struct snug_tokenizer *tokenizer_of(const struct fixture *f) {
    struct snug_tokenizer *tokenizer;
    ok(f, snug_tokenizer_load(f->ctx, GOLDEN "/wordpiece", snug_family_tokenizer_class, &tokenizer));
    return tokenizer;
}

#define ROW(more) "{\"question\":\"who\",\"context\":\"the red king of it\"" more "}\n"

FIXTURE_TEST(test_refused_rows) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"a\": \"x\", \"context\": \"y\"}\n", "no questions"},
        {"{\"question\": \"x\", \"c\": \"y\"}\n", "no questions"},
        {ROW(",\"answers\":[{\"text\":\"red\"}]"), "q.jsonl:1: \"answers\" must be"},
        {ROW(",\"answers\":{\"text\":[\"red\"],\"answer_start\":[]}"), "\"answers\" must be"},
        {ROW(",\"answers\":{\"text\":[\"red\"],\"answer_start\":[-1]}"), "\"answers\" must be"},
        {ROW(",\"answers\":{\"text\":[3],\"answer_start\":[1]}"), "\"answers\" must be"},
        {ROW(",\"answers\":{\"text\":\"red\",\"answer_start\":4}"), "\"answers\" must be"},
        {ROW(",\"answers\":{\"text\":[\"red\"],\"answer_start\":[5]}"), "the answer \"red\" is not at character 5"},
        {ROW(",\"answers\":{\"text\":[\"red\"],\"answer_start\":[500]}"), "is not at character 500"},
        {"{\"question\":\"who who who who who who who who\",\"context\":\"the red king of it\"}\n",
         "--doc_stride smaller"},
        {"{\"question\":\"who who who who who who who who who who who who who who who who\",\"context\":\"the red king "
         "of it\"}\n",
         "leave 0 of --max_seq_length"},
        {"{\"question\":null,\"context\":\"red\"}\n", "a question needs \"question\""},
        {"{\"question\":\"who\",\"context\":null}\n", "a question needs \"context\""},
        {"{\"title\":\"t\",\"paragraphs\":[{\"context\":\"red\"}]}\n", "paragraph 1 needs \"qas\""},
        {"{\"title\":\"t\",\"paragraphs\":[{\"qas\":[]}]}\n", "a question needs \"context\""},
        {"{\"title\":\"t\",\"paragraphs\":[{\"context\":\"red\",\"qas\":[{}]}]}\n", "a question needs \"question\""},
        {"{\"title\":\"t\",\"paragraphs\":[]}\n", "there is no row with text"},
        {"{\"title\":\"t\",\"paragraphs\":[{\"context\":\"red\",\"qas\":[{\"question\":\"x\",\"id\":3}]}]}\n",
         "\"id\""},
    };
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_dataset_options options = options_of(f, cases[i].text);
        struct snug_dataset *dataset;
        assert_failed(f, cases[i].text, snug_dataset_open(f->ctx, tokenizer, &options, &dataset), SNUG_E_INPUT,
                      cases[i].says);
        snug_clear_error(f->ctx);
    }
    struct snug_dataset_options named = options_of(f, ROW(""));
    struct snug_dataset *dataset;
    const char **const columns[] = {&named.text_columns, &named.text_column, &named.text_pair_column,
                                    &named.label_column};
    for (size_t i = 0; i < 4; i++) {
        *columns[i] = "question";
        assert_failed(f, "columns", snug_dataset_open(f->ctx, tokenizer, &named, &dataset), SNUG_E_USAGE,
                      "not for question answering");
        snug_clear_error(f->ctx);
        *columns[i] = NULL;
    }
    snug_tokenizer_free(tokenizer);
}

/* The windows of a question: "example first+count start-end id" each. */
static void describe(const struct fixture *f, const char *text, int64_t most, char *out, size_t size) {
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    struct snug_dataset_options options = options_of(f, text);
    struct snug_row_buffer buffer = {0};
    struct snug_dataset *dataset;
    options.max_samples = most;
    ok(f, snug_dataset_open(f->ctx, tokenizer, &options, &dataset));
    *out = '\0';
    for (int64_t row = 0; row < snug_dataset_rows(dataset); row++) {
        struct snug_dataset_row read;
        struct snug_answers answers;
        ok(f, snug_dataset_read(f->ctx, dataset, row, &buffer, &read));
        snug_dataset_row_answers(&read, &answers);
        snprintf(out + strlen(out), size - strlen(out), "%u %u+%u %d-%u %s\n", answers.example, answers.first,
                 answers.count, (int)answers.start, answers.end, answers.id);
    }
    free(buffer.data);
    snug_dataset_close(dataset);
    snug_tokenizer_free(tokenizer);
}

FIXTURE_TEST(test_windows) {
    static const struct {
        const char *text, *windows;
        int64_t most;
    } cases[] = {
        {ROW(",\"id\":7,\"answers\":{\"text\":[\"king\"],\"answer_start\":[8]}"), "0 3+5 5-5 7\n", -1},
        {ROW(",\"answers\":{\"text\":[\"red king\",\"x\"],\"answer_start\":[4,0]}"), "0 3+5 4-5 \n", -1},
        {ROW(",\"answers\":{\"text\":[],\"answer_start\":[]}"), "0 3+5 0-0 \n", -1},
        {ROW(",\"answers\":null"), "0 3+5 -1-0 \n", -1},
        {ROW("") ROW(""), "0 3+5 -1-0 \n1 3+5 -1-0 \n", -1},
        {"{\"question\":\" who\",\"context\":\"\"}\n", "0 3+0 -1-0 \n", -1},
        {"{\"question\":\"who\",\"context\":\"a b c d e f g h i j k "
         "l\",\"answers\":{\"text\":[\"j\"],\"answer_start\":[18]}}\n",
         "0 3+8 0-0 \n0 3+6 6-6 \n", -1},
        {"{\"question\":\"who\",\"context\":\"a b c d e f g h i j k l\"}\n", "0 3+8 -1-0 \n", 1},
        {"{\"title\":\"t\",\"paragraphs\":[{\"context\":\"the "
         "king\",\"qas\":[{\"id\":\"a\",\"question\":\"x\",\"answers\":[{\"text\":"
         "\"king\",\"answer_start\":4}]},{\"id\":\"b\",\"question\":\"y\"}]}]}\n",
         "0 3+2 4-4 a\n1 3+2 -1-0 b\n", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[512];
        describe(f, cases[i].text, cases[i].most, found, sizeof found);
        assert_string_equal(found, cases[i].windows);
    }
}

/* Numbers that are no valid row. */
FIXTURE_TEST(test_damaged_rows) {
    static const struct {
        int place;
        uint32_t value;
        int64_t count;
    } cases[] = {{0, 0, 6}, {2, 9, 0}, {1, 9, 0}, {3, 6, 0}, {4, 6, 0}, {3, 5, 0}, {5, 9, 0},
                 {6, 9, 0}, {7, 0, 0}, {9, 9, 0}, {8, 0, 0}, {2, 4, 0}, {3, 4, 0}};
    const uint32_t offsets[] = {1, 2, 2, 4};
    const struct snug_answers answers = {
        .first = 2, .count = 2, .start = 2, .end = 3, .answers = 1, .offsets = offsets};
    const size_t count = snug_answers_numbers(2, 9);
    uint32_t numbers[16];
    struct snug_answers found;
    (void)f;
    snug_answers_put(numbers, &answers, "i\0xyzt\0z", 9);
    assert_true(snug_answers_of(numbers, (int64_t)count, 5, &found));
    assert_string_equal(found.context, "xyzt");
    assert_string_equal(found.texts, "z");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_answers_put(numbers, &answers, "i\0xyzt\0z", 9);
        numbers[cases[i].place] = cases[i].value;
        const int64_t given = cases[i].count ? cases[i].count : (int64_t)count;
        if (snug_answers_of(numbers, given, 5, &found)) fail_msg("case %zu is accepted", i);
    }
}

/* ---- answers ------------------------------------------------------------------------------------------------------
 */

/* As SQuAD's evaluation scripts; checked with them. */
FIXTURE_TEST(test_comparing) {
    static const struct {
        const char *text, *right; /* answers, each ending with | */
        bool negative;
        double exact, f1;
    } cases[] = {
        {"The King!", "king|", false, 1, 1},
        {"a red-hot king", "the redhot KING|", false, 1, 1},
        {"the red king", "blue king|red fox|", false, 0, 0.5},
        {"king king", "king|", false, 0, 2.0 / 3},
        {"an", "the|", false, 1, 0},
        {"", "the|", true, 1, 1},
        {"x", "|", true, 0, 0},
        {"", "", true, 1, 1},
        {"x", "", true, 0, 0},
        {"x", "the|", false, 0, 0},
        {"\xc3\x89lys\xc3\xa9"
         "e\xc2\xa0the then",
         "\xc3\xa9lys\xc3\xa9"
         "e then|",
         false, 1, 1},
        {"x \xc2\xab"
         "a\xc2\xbb y",
         "x \xc2\xab \xc2\xbb y|", false, 1, 1},
        {"theory of a", "theory of|", false, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char texts[64];
        double exact, f1;
        struct snug_answers window = {.texts = texts};
        snprintf(texts, sizeof texts, "%s", cases[i].right);
        for (char *at = texts; *at; at++)
            if (*at == '|') {
                window.answers++;
                *at = '\0';
                if (!at[1]) break;
            }
        ok(f,
           snug_answer_compare(f->ctx, &window, cases[i].text, strlen(cases[i].text), cases[i].negative, &exact, &f1));
        if (fabs(exact - cases[i].exact) > 1e-12 || fabs(f1 - cases[i].f1) > 1e-12)
            fail_msg("case %zu: %g and %g", i, exact, f1);
    }
}

/* ---- offsets --------------------------------------------------------------------------------------------------------
 */

FIXTURE_TEST(test_offsets) {
    static const struct {
        const char *folder, *text, *offsets;
    } cases[] = {
        {"wordpiece", "  the king,", "2-5 6-10 10-11 "},
        {"wordpiece", "Z\xc3\xbcrich", "0-7 "},
        {"wordpiece", "qqqqqq\xc3\x9f!x", "0-8 8-9 9-10 "}, /* an unknown word */
        {"wordpiece", "qqqq\xc3\x9f", "0-6 "},
        {"wordpiece", "\xe6\x9d\xb1\xe4\xba\xac", "0-3 3-6 "},
        {"wordpiece", "[SEP] x", "0-5 6-7 "},
        {"bytes", "\xf0\x9f\x98\x80", "0-4 0-4 "},
        {"bytes", "<mask> a", "0-6 7-8 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_tokenizer *tokenizer;
        struct snug_ids ids = {0}, bytes = {0};
        char path[512], found[256] = "";
        snprintf(path, sizeof path, GOLDEN "/%s", cases[i].folder);
        ok(f, snug_tokenizer_load(f->ctx, path, snug_family_tokenizer_class, &tokenizer));
        const size_t length = strlen(cases[i].text);
        ok(f, snug_tokenizer_encode(f->ctx, tokenizer, cases[i].text, length, &ids));
        ok(f, snug_tokenizer_offsets(f->ctx, tokenizer, cases[i].text, length, ids.ids, ids.count, &bytes));
        for (size_t k = 0; k < bytes.count; k++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%d%s", bytes.ids[k], k % 2 ? " " : "-");
        assert_string_equal(found, cases[i].offsets);
        free(ids.ids);
        free(bytes.ids);
        snug_tokenizer_free(tokenizer);
    }
}

/* ---- commands -------------------------------------------------------------------------------------------------------
 */

/* The scores are trained and saved with adapters; without a length contexts have that of run_qa.py. */
FIXTURE_TEST(test_adapters) {
    snug_train_result result;
    snug_args *args = plain_args(f, "model_name_or_path=" GOLDEN "/bert tokenizer_name=" GOLDEN "/wordpiece task=qa "
                                    "train_file=" GOLDEN "/train.json use_peft=True max_steps=2 doc_stride=4 "
                                    "lora_target_modules=all-linear save_strategy=no eval_strategy=no threads=1");
    set_args(f, args, "output_dir=@out");
    ok(f, train_args(f, args, NULL, &result));
    snug_args_destroy(args);
    json_t *config = read_json(f, path_of(f, "out/adapter_config.json"));
    assert_string_equal(json_string_value(json_object_get(config, "task_type")), "QUESTION_ANS");
    json_decref(config);
    snug_metrics *metrics;
    args = plain_args(f, "model_name_or_path=@out validation_file=" GOLDEN "/train.json doc_stride=4");
    ok(f, snug_evaluate(args, NULL, &metrics));
    assert_true(metric_of(metrics, "eval_f1") >= 0);
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);
}

/* Synthetic data have no answers; texts of a loaded model, or of arguments, are no questions. */
FIXTURE_TEST(test_other_data) {
    snug_train_result result;
    snug_model *model;
    snug_args *args = plain_args(f, "model_name_or_path=" GOLDEN "/bert tokenizer_name=" GOLDEN "/wordpiece task=qa "
                                    "train_file=dummy:6x8 max_steps=2 save_strategy=no eval_strategy=no threads=1");
    set_args(f, args, "output_dir=@out");
    ok(f, train_args(f, args, NULL, &result));
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@out text=who");
    assert_failed(f, "text", snug_predict(args, NULL, check_answer, NULL), SNUG_E_UNSUPPORTED, "from a file");
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@out");
    assert_failed(f, "model", snug_model_open(args, &model), SNUG_E_UNSUPPORTED, "from a file");
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
