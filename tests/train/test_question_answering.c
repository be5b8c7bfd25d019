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

FIXTURE_TEST(test_reference_loop) {
    static const char *const families[][2] = {{"bert", "wordpiece"},    {"distilbert", "wordpiece"},
                                              {"electra", "wordpiece"}, {"roberta", "bytes"},
                                              {"modernbert", "bytes"},  {"deberta-v2", "wordpiece"}};
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
        check_losses(f, json_object_get(golden, "losses"), 1e-5);
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
        {"{\"a\": \"x\", \"context\": \"y\"}\n", "no rows of question answering"},
        {"{\"question\": \"x\", \"c\": \"y\"}\n", "no rows of question answering"},
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
        {"{\"question\":[\"who\"],\"context\":\"red\"}\n", "\"question\" of a question must be a text, and is a list"},
        {"{\"question\":\"a\\u0000\",\"context\":\"red\"}\n", "\\u0000 in a question"},
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
        {"{\"question\":\"who\",\"context\":\"\\u0001\",\"answers\":[{\"text\":\"\\u0001\",\"answer_start\":0}]}\n",
         "0 3+0 0-0 \n", -1}, /* a character that the normalizer removes */
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

/* ---- answers ---------------------------------------------------------------------------------------------------- */

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

/* ---- rules ------------------------------------------------------------------------------------------------------ */

/* zero/: BERT with a head of zeros, so that all scores are equal. */
static void write_zero_model(const struct fixture *f) {
    static const char *const names[] = {"qa_outputs.weight", "qa_outputs.bias"};
    size_t size;
    uint64_t header;
    json_error_t error;
    ok(f, snug_folder_create(f->ctx, path_of(f, "zero")));
    char *file = read_text(f, GOLDEN "/bert/config.json", &size);
    write_bytes(path_of(f, "zero/config.json"), file, size);
    free(file);
    file = read_text(f, GOLDEN "/bert/model.safetensors", &size);
    memcpy(&header, file, sizeof header);
    json_t *tensors = json_loadb(file + 8, header, 0, &error);
    for (size_t i = 0; i < 2; i++) {
        const json_t *offsets = json_object_get(json_object_get(tensors, names[i]), "data_offsets");
        const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
                     end = (size_t)json_integer_value(json_array_get(offsets, 1));
        assert_true(end > begin);
        memset(file + 8 + header + begin, 0, end - begin);
    }
    write_bytes(path_of(f, "zero/model.safetensors"), file, size);
    json_decref(tensors);
    free(file);
}

static snug_status list_answer(void *user, const snug_prediction *row) {
    char *found = user;
    snprintf(found + strlen(found), 256 - strlen(found), "%s/%zu ", row->label, row->candidate_count);
    return SNUG_OK;
}

#define MODEL "model_name_or_path=@zero tokenizer_name=" GOLDEN "/wordpiece task=qa "
#define BLANK "{\"question\":\"who\",\"context\":\" \"}\n"
#define NEGATIVE "version_2_with_negative=True "
#define NO_LEAD "null_score_diff_threshold=-1000 "

/* Of equal scores the first ones are taken: as starts and ends, and as answers. */
FIXTURE_TEST(test_rules) {
    static const struct {
        const char *rows, *words, *answers;
    } cases[] = {
        {ROW(""), "", "the/15 "},
        {ROW(""), "n_best_size=6", "the/6 "},
        {ROW(""), "n_best_size=1", "empty/1 "}, /* the first token is none of the context */
        {ROW(""), "n_best_size=1 " NEGATIVE, "empty/2 "},
        {ROW(""), "n_best_size=4 max_answer_length=1 " NEGATIVE, "the/2 "},
        {ROW(""), NEGATIVE, "the/16 "},
        {ROW(""), NEGATIVE "n_best_size=6", "the/7 "},
        {ROW(""), NEGATIVE NO_LEAD, "/16 "},
        {BLANK ROW(""), "", "empty/1 the/15 "},
        {BLANK, NEGATIVE, "empty/2 "},
        {BLANK, NEGATIVE NO_LEAD, "/2 "},
    };
    write_zero_model(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[256] = "";
        snug_args *args = plain_args(f, MODEL "threads=1");
        set_args(f, args, cases[i].words);
        set_args(f, args, "output_dir=@answers");
        assert_int_equal(snug_args_set(args, "test_file", write_text(f, "q.jsonl", cases[i].rows)), SNUG_OK);
        ok(f, snug_predict(args, NULL, list_answer, found));
        if (strcmp(found, cases[i].answers) != 0) fail_msg("case %zu: %s", i, found);
        snug_args_destroy(args);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "answers")));
    }
}

#define KING(more) "{\"question\":\"who\",\"context\":\"king of it\"" more "}\n"
#define RIGHT ",\"answers\":{\"text\":[\"king\"],\"answer_start\":[0]}"
#define NONE ",\"answers\":{\"text\":[],\"answer_start\":[]}"
/* Losses of 7 and of 4 tokens with equal scores. */
#define LOG_7 1.9459101490553132
#define LOG_4 1.3862943611198906
#define BLANK_NONE "{\"question\":\"who\",\"context\":\"\"" NONE "}\n"

/* Rows whose answer is not known have no loss and do not count. */
FIXTURE_TEST(test_unknown_answers) {
    static const struct {
        const char *rows, *words;
        double exact, loss; /* NAN: none */
    } cases[] = {
        {KING(RIGHT), "", 100, LOG_7},
        {KING(RIGHT) KING(""), "", 100, LOG_7},
        {KING("") KING(""), "", NAN, NAN},
        {KING(NONE) KING(""), NEGATIVE, 0, LOG_7},
        {KING(NONE) KING(""), NEGATIVE NO_LEAD, 100, LOG_7},
        {BLANK_NONE KING(RIGHT), NEGATIVE NO_LEAD, 50, (LOG_7 + LOG_4) / 2},
    };
    write_zero_model(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_metrics *metrics;
        snug_args *args = plain_args(f, MODEL "threads=1");
        set_args(f, args, cases[i].words);
        assert_int_equal(snug_args_set(args, "validation_file", write_text(f, "q.jsonl", cases[i].rows)), SNUG_OK);
        ok(f, snug_evaluate(args, NULL, &metrics));
        const double exact = metric_of(metrics, "eval_exact_match"), loss = metric_of(metrics, "eval_loss");
        const bool known = !isnan(cases[i].exact);
        if (known ? exact != cases[i].exact || fabs(loss / cases[i].loss - 1) > 1e-6 : !isnan(exact))
            fail_msg("case %zu: %g, %.9g", i, exact, loss);
        snug_metrics_destroy(metrics);
        snug_args_destroy(args);
    }
    snug_train_result result;
    const char *rows[] = {KING(RIGHT), KING(RIGHT) KING("")};
    double losses[2];
    for (size_t i = 0; i < 2; i++) {
        snug_args *args = plain_args(f, MODEL "max_steps=1 per_device_train_batch_size=2 save_strategy=no "
                                              "eval_strategy=no threads=1 seed=3");
        set_args(f, args, "output_dir=@out overwrite_output_dir=True");
        assert_int_equal(snug_args_set(args, "train_file", write_text(f, "q.jsonl", rows[i])), SNUG_OK);
        ok(f, train_args(f, args, NULL, &result));
        losses[i] = result.train_loss;
        snug_args_destroy(args);
    }
    assert_true(fabs(losses[0] / LOG_7 - 1) < 1e-6 && losses[0] == losses[1]);
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

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
