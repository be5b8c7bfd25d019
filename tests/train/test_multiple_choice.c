/* SPDX-License-Identifier: Apache-2.0 */
/* Multiple choice against a loop with transformers and PyTorch (tools/golden/multiple_choice.py), in SWAG's columns and
   as questions with lists of choices; rows, labels, and what is refused. */
#include <math.h>

#include "data/dataset_impl.h"
#include "model/family.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/multiple_choice"

/* ---- the reference loop --------------------------------------------------------------------------------------- */

struct scores {
    const json_t *expected;
    int64_t count;
};

static snug_status check_scores(void *user, const snug_prediction *row) {
    struct scores *s = user;
    const json_t *scores = json_array_get(s->expected, (size_t)row->index);
    size_t best = 0;
    char number[24];
    assert_int_equal(row->index, s->count++);
    assert_int_equal(row->logits_count, json_array_size(scores));
    for (size_t i = 0; i < row->logits_count; i++) {
        const double want = json_number_value(json_array_get(scores, i)), got = (double)row->logits[i];
        if (want > json_number_value(json_array_get(scores, best))) best = i;
        if (!(fabs(got - want) < 1e-4)) fail_msg("row %d, choice %zu: %.9g, not %.9g", (int)row->index, i, got, want);
        if (i) assert_true(row->candidate_scores[i] <= row->candidate_scores[i - 1]);
    }
    snprintf(number, sizeof number, "%zu", best);
    assert_string_equal(row->label, number);
    assert_string_equal(row->candidates[0], number);
    return SNUG_OK;
}

static void check_file(struct fixture *f, const json_t *golden, const char *name) {
    const json_t *expected = json_object_get(golden, name);
    struct scores scores = {.expected = json_object_get(expected, "scores")};
    snug_metrics *metrics;
    const char *key;
    json_t *value;
    char text[512];
    snprintf(text, sizeof text,
             "model_name_or_path=@out threads=1 per_device_eval_batch_size=2 test_file=" GOLDEN "/%s", name);
    snug_args *args = plain_args(f, text);
    ok(f, snug_predict(args, NULL, check_scores, &scores));
    snug_args_destroy(args);
    assert_int_equal(scores.count, json_array_size(scores.expected));
    snprintf(text, sizeof text,
             "model_name_or_path=@out threads=1 per_device_eval_batch_size=4 validation_file=" GOLDEN "/%s", name);
    args = plain_args(f, text);
    ok(f, snug_evaluate(args, NULL, &metrics));
    json_object_foreach(json_object_get(expected, "metrics"), key, value) {
        const double got = metric_of(metrics, key), want = json_number_value(value);
        if (!(fabs(got - want) <= 1e-4 * want)) fail_msg("%s of %s is %.9g, not %.9g", key, name, got, want);
    }
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_reference_loop) {
    static const char *const families[][2] = {{"bert", "wordpiece"},    {"distilbert", "wordpiece"},
                                              {"electra", "wordpiece"}, {"mpnet", "wordpiece"},
                                              {"roberta", "bytes"},     {"roberta-prelayernorm", "bytes"},
                                              {"modernbert", "bytes"},  {"deberta-v2", "wordpiece"}};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char words[640];
        snug_train_result result;
        snprintf(words, sizeof words, GOLDEN "/%s/expected.json", families[i][0]);
        json_t *golden = read_json(f, words);
        snprintf(words, sizeof words,
                 "model_name_or_path=" GOLDEN "/%s tokenizer_name=" GOLDEN "/%s max_seq_length=20 threads=1 "
                 "train_file=" GOLDEN
                 "/train.csv task=multiple-choice per_device_train_batch_size=4 num_train_epochs=3 "
                 "learning_rate=2e-3 adam_epsilon=1e-2 max_grad_norm=0 lr_scheduler_type=constant "
                 "train_sampling_strategy=sequential "
                 "logging_steps=1 save_strategy=no eval_strategy=no",
                 families[i][0], families[i][1]);
        snug_args *args = plain_args(f, words);
        set_args(f, args, "output_dir=@out");
        ok(f, train_args(f, args, NULL, &result));
        snug_args_destroy(args);
        check_losses(f, json_object_get(golden, "losses"), 1e-5);
        check_file(f, golden, "train.csv");
        check_file(f, golden, "dev.jsonl");
        json_decref(golden);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static struct snug_dataset_options options_of(const struct fixture *f, const char *name, const char *text) {
    return (struct snug_dataset_options){.path = write_text(f, name, text),
                                         .task = SNUG_TASK_MULTIPLE_CHOICE,
                                         .max_length = 12,
                                         .max_samples = -1,
                                         .threads = 1,
                                         .need_labels = true,
                                         .overwrite_cache = true};
}

static struct snug_tokenizer *tokenizer_of(const struct fixture *f) {
    struct snug_tokenizer *tokenizer;
    ok(f, snug_tokenizer_load(f->ctx, GOLDEN "/wordpiece", snug_family_tokenizer_class, &tokenizer));
    return tokenizer;
}

#define ROW(more) "{\"question\":\"she\"," more "}\n"
#define TWO "\"choices\":[\"a\",\"b\"]"

FIXTURE_TEST(test_refused_rows) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"question\":\"x\",\"label\":0}\n", "no rows of multiple choice"},
        {"{" TWO ",\"label\":0}\n", "no rows of multiple choice"},
        {"{\"sent1\":\"x\",\"ending0\":\"a\",\"label\":0}\n", "no rows of multiple choice"},
        {ROW("\"choices\":[\"a\"],\"label\":0"), "c.jsonl:1: the row has 1 choices"},
        {ROW("\"choices\":[\"a\",3],\"label\":0"), "choice 1 must be a text"},
        {ROW("\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"A\"]},\"label\":0"), "must be a list of texts"},
        {ROW("\"choices\":{\"text\":\"a\"},\"label\":0"), "must be a list of texts"},
        {ROW("\"choices\":\"a\",\"label\":0"), "must be a list of texts"},
        {ROW("\"choices\":null,\"label\":0"), "the row has 0 choices"},
        {ROW(TWO ",\"label\":2"), "the label 2 is none of the 2 choices"},
        {ROW(TWO ",\"label\":-2"), "the label -2 is none"},
        {ROW(TWO ",\"label\":\"C\""), "the label C is none"},
        {ROW(TWO ",\"label\":\"AB\""), "the label AB is none"},
        {ROW(TWO ",\"label\":\"Z\""), "the label Z is none"},
        {ROW(TWO ",\"label\":-1"), "the label -1 is none"},
        {ROW(TWO ",\"label\":\"\""), "is none of the 2 choices"},
        {ROW(TWO), "the label is none of the 2 choices"},
        {ROW("\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[1,\"q\"]},\"label\":\"B\""), "the label B is none"},
        {ROW("\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"p\",\"q\"]},\"label\":0"), "the label 0 is none"},
        {"{\"question\":null," TWO ",\"label\":0}\n", "no text before its choices"},
        {"{\"question\":[\"x\"]," TWO ",\"label\":0}\n", "must be a text, and is a list"},
    };
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    char *many = malloc(1 << 19), *columns = malloc(4096);
    strcpy(many, "{\"question\":\"she\",\"label\":0,\"choices\":[\"a\"");
    for (size_t at = strlen(many), i = 0; i < 1 << 16; i++, at += 4) strcpy(many + at, ",\"a\"");
    strcat(many, "]}\n");
    strcpy(columns, "{\"question\":\"she\"");
    for (int i = 0; i < 40; i++) sprintf(columns + strlen(columns), ",\"ending%d\":\"a\"", i);
    strcat(columns, ",\"label\":0}\n");
    const char *const large[][2] = {{many, "the row has 65537 choices"}, {columns, "no rows of multiple choice"}};
    for (size_t i = 0; i < 2; i++) {
        const struct snug_dataset_options options = options_of(f, "c.jsonl", large[i][0]);
        struct snug_dataset *dataset;
        assert_failed(f, "large", snug_dataset_open(f->ctx, tokenizer, &options, &dataset), SNUG_E_INPUT, large[i][1]);
        snug_clear_error(f->ctx);
    }
    free(many);
    free(columns);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_dataset_options options = options_of(f, "c.jsonl", cases[i].text);
        struct snug_dataset *dataset;
        assert_failed(f, cases[i].text, snug_dataset_open(f->ctx, tokenizer, &options, &dataset), SNUG_E_INPUT,
                      cases[i].says);
        snug_clear_error(f->ctx);
    }
    snug_tokenizer_free(tokenizer);
}

/* The groups of a file: "example/count right" each. */
static void describe(const struct fixture *f, const char *name, const char *text, char *out, size_t size) {
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    struct snug_dataset_options options = options_of(f, name, text);
    struct snug_row_buffer buffer = {0};
    struct snug_dataset *dataset;
    options.need_labels = false;
    ok(f, snug_dataset_open(f->ctx, tokenizer, &options, &dataset));
    *out = '\0';
    for (int64_t row = 0; row < snug_dataset_rows(dataset); row++) {
        struct snug_dataset_row read;
        struct snug_group group;
        int right = -1;
        ok(f, snug_dataset_read(f->ctx, dataset, row, &buffer, &read));
        snug_dataset_row_group(&read, &group);
        for (int i = 0; i < (int)group.count; i++)
            if (snug_group_target(&group, i) > 0) right = i;
        assert_int_equal(group.labelled, right >= 0);
        snprintf(out + strlen(out), size - strlen(out), "%u/%u %d%s\n", group.example, group.count, right,
                 read.truncated ? " truncated" : "");
    }
    free(buffer.data);
    snug_dataset_close(dataset);
    snug_tokenizer_free(tokenizer);
}

FIXTURE_TEST(test_groups) {
    static const struct {
        const char *name, *text, *groups;
    } cases[] = {
        {"c.jsonl", ROW(TWO ",\"label\":1") ROW(TWO ",\"label\":\"A\"") ROW(TWO), "0/2 1\n1/2 0\n2/2 -1\n"},
        {"c.jsonl", ROW(TWO ",\"answer\":\"b\"") ROW(TWO ",\"answer\":null") ROW(TWO ",\"answer\":-1"),
         "0/2 1\n1/2 -1\n2/2 -1\n"},
        {"c.jsonl", ROW("\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"1\",\"2\"]},\"answerKey\":\"1\""), "0/2 0\n"},
        {"c.jsonl",
         ROW("\"options\":[\"a\",\"b\",\"a man sees a red house and a red house and a red house\"],\"label\":2"),
         "0/3 2 truncated\n"},
        {"c.jsonl", ROW("\"choices\":[\"1 a\",\"b\"],\"label\":\"1 a\""), "0/2 0\n"},
        {"c.csv", "question,choices,label\nshe,\"[\"\"a\"\",\"\"b\"\",\"\"she\"\"]\",2\n", "0/3 2\n"},
        {"c.csv", "sent1,ending0,ending1,ending2\nshe,a,b,she\n", "0/3 -1\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[256];
        describe(f, cases[i].name, cases[i].text, found, sizeof found);
        assert_string_equal(found, cases[i].groups);
    }
}

/* Numbers that are not a valid row. The texts of both members may follow the numbers, each with its NUL. */
FIXTURE_TEST(test_damaged_rows) {
    static const struct {
        int place;
        uint32_t value;
        int64_t count;
        bool valid;
    } cases[] = {{0, 0, 0, true},
                 {0, 0, 4, false},
                 {0, 0, 10, false},
                 {1, 0, 0, false},
                 {1, 1 << 17, 0, false},
                 {1, 3, 0, false},
                 {5, 0, 0, false},
                 {5, 4, 0, false},
                 {6, 6, 0, false},
                 {10, 0x7f800000, 0, false},
                 {11, 0x00620061, 12, true},
                 {11, 0x62630061, 12, false},
                 {11, 0x62630061, 13, true},
                 {11, 0x00620061, 13, false}};
    struct snug_group group;
    (void)f;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t numbers[] = {0, 2, 1, 7, 8, 5, 3, 0, 4, 4, 0, 0, 0};
        numbers[cases[i].place] = cases[i].value;
        if (snug_group_of(numbers, cases[i].count ? cases[i].count : 11, 9, &group) != cases[i].valid)
            fail_msg("case %zu", i);
    }
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

#define MODEL "model_name_or_path=" GOLDEN "/bert tokenizer_name=" GOLDEN "/wordpiece task=multiple_choice threads=1 "

static snug_status count_row(void *user, const snug_prediction *row) {
    (void)row;
    ++*(int *)user;
    return SNUG_OK;
}

/* Synthetic groups; adapters; rows whose answer is not known do not count; texts of arguments are no choices. */
FIXTURE_TEST(test_other_data) {
    int rows = 0;
    snug_train_result result;
    snug_metrics *metrics;
    snug_args *args = plain_args(f, MODEL "train_file=dummy:6x8-16 max_steps=2 per_device_train_batch_size=2 "
                                          "use_peft=True save_strategy=no eval_strategy=no");
    set_args(f, args, "output_dir=@adapter");
    ok(f, train_args(f, args, NULL, &result));
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@adapter tokenizer_name=" GOLDEN
                         "/wordpiece threads=1 validation_file=" GOLDEN "/dev.jsonl");
    ok(f, snug_evaluate(args, NULL, &metrics));
    assert_true(metric_of(metrics, "eval_loss") > 0);
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);

    args = plain_args(f, MODEL "train_file=dummy:6x3 max_steps=2");
    set_args(f, args, "output_dir=@out");
    assert_failed(f, "short", snug_train(args, NULL, NULL), SNUG_E_USAGE, "rows of 4 texts have at least 4 tokens");
    snug_args_destroy(args);
    args = plain_args(f, MODEL "text=who");
    assert_failed(f, "text", snug_predict(args, NULL, count_row, &rows), SNUG_E_UNSUPPORTED, "is from a file");
    snug_args_destroy(args);
    args = plain_args(f, MODEL); /* one label is not known */
    assert_int_equal(snug_args_set(args, "test_file", write_text(f, "c.jsonl", ROW(TWO ",\"label\":1") ROW(TWO))),
                     SNUG_OK);
    ok(f, snug_predict(args, NULL, count_row, &rows));
    assert_int_equal(rows, 2);
    snug_args_destroy(args);
    args = plain_args(f, MODEL "text_column_name=sent1");
    assert_int_equal(snug_args_set(args, "validation_file", write_text(f, "c.jsonl", ROW(TWO))), SNUG_OK);
    assert_failed(f, "names", snug_evaluate(args, NULL, &metrics), SNUG_E_USAGE, "not for multiple choice");
    snug_args_destroy(args);
}

/* ELECTRA's summary has settings. */
FIXTURE_TEST(test_summary) {
    static const char *const settings[] = {"\"summary_type\": \"mean\"", "\"summary_activation\": \"tanh\"",
                                           "\"summary_use_proj\": false"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"electra\", \"hidden_size\": 16, \"num_attention_heads\": 2, "
                 "\"num_hidden_layers\": 1, \"vocab_size\": 200, %s}",
                 settings[i]);
        write_text(f, "config.json", text);
        snug_args *args = plain_args(f, "task=multiple_choice train_file=dummy:6x8 max_steps=1 threads=1");
        set_args(f, args, "config_name=@config.json output_dir=@out");
        assert_failed(f, text, snug_train(args, NULL, NULL), SNUG_E_UNSUPPORTED, "summary_type");
        snug_args_destroy(args);
    }
}

TEST_MAIN(NULL, NULL)
