/* SPDX-License-Identifier: Apache-2.0 */
/* Reranking against sentence-transformers' CrossEncoder (tools/golden/reranking.py): losses, scores, metrics of
   queries; the forms of rows, and what is refused. */
#include <math.h>

#include "data/dataset_impl.h"
#include "model/family.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/reranking"

/* ---- the reference loop --------------------------------------------------------------------------------------- */

struct scores {
    const json_t *expected;
    int64_t count;
    double last;
    bool sorted;
};

static snug_status check_score(void *user, const snug_prediction *row) {
    struct scores *s = user;
    const double want = json_number_value(json_array_get(s->expected, (size_t)row->index));
    if (!s->sorted) assert_int_equal(row->index, s->count);
    if (!(fabs(row->score - want) < 1e-4)) fail_msg("row %d: %.9g, not %.9g", (int)row->index, row->score, want);
    if (s->sorted && s->count) assert_true(row->score <= s->last);
    if (s->sorted) assert_true(strlen(row->label) > 2);
    s->last = row->score;
    s->count++;
    return SNUG_OK;
}

/* Scores and metrics of the model that was trained. */
static void check_model(struct fixture *f, const json_t *expected) {
    struct scores pairs = {.expected = json_object_get(expected, "pairs")},
                  sorted = {.expected = json_object_get(expected, "scores"), .sorted = true};
    snug_metrics *metrics;
    const char *key;
    json_t *value;
    snug_args *args = plain_args(f, "model_name_or_path=@out threads=1 test_file=" GOLDEN "/binary.csv");
    ok(f, snug_predict(args, NULL, check_score, &pairs));
    snug_args_destroy(args);
    assert_int_equal(pairs.count, json_array_size(pairs.expected));
    args =
        plain_args(f, "model_name_or_path=@out threads=1 per_device_eval_batch_size=4 test_file=" GOLDEN "/docs.txt");
    assert_int_equal(snug_args_set(args, "query", json_string_value(json_object_get(expected, "query"))), SNUG_OK);
    ok(f, snug_predict(args, NULL, check_score, &sorted));
    snug_args_destroy(args);
    assert_int_equal(sorted.count, json_array_size(sorted.expected));
    args = plain_args(f, "model_name_or_path=@out threads=1 per_device_eval_batch_size=2 validation_file=" GOLDEN
                         "/dev.jsonl");
    ok(f, snug_evaluate(args, NULL, &metrics));
    json_object_foreach(json_object_get(expected, "metrics"), key, value) {
        const double got = metric_of(metrics, key), want = json_number_value(value);
        if (!(fabs(got - want) <= 1e-6)) fail_msg("%s is %.9g, not %.9g", key, got, want);
    }
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_reference_loop) {
    static const char *const families[][2] = {{"bert", "wordpiece"}, {"roberta", "bytes"}};
    static const char *const runs[][2] = {
        {"binary", "binary"}, {"listnet", "listnet"}, {"margin", "margin"}, {"margins", "margin"}};
    for (size_t i = 0; i < 8; i++) {
        const char *family = families[i / 4][0], *run = runs[i % 4][0];
        char words[640];
        snug_train_result result;
        snprintf(words, sizeof words, GOLDEN "/%s/expected.json", family);
        json_t *golden = read_json(f, words);
        snprintf(words, sizeof words,
                 "model_name_or_path=" GOLDEN "/%s tokenizer_name=" GOLDEN "/%s max_seq_length=24 threads=1 "
                 "train_file=" GOLDEN "/%s.jsonl ranking_loss=%s task=reranking per_device_train_batch_size=4 "
                 "num_train_epochs=3 learning_rate=2e-3 adam_epsilon=1e-2 max_grad_norm=0 lr_scheduler_type=constant "
                 "train_sampling_strategy=sequential logging_steps=1 save_strategy=no eval_strategy=no",
                 family, families[i / 4][1], run, runs[i % 4][1]);
        snug_args *args = plain_args(f, words);
        set_args(f, args, "output_dir=@out");
        ok(f, train_args(f, args, NULL, &result));
        snug_args_destroy(args);
        const json_t *expected = json_object_get(golden, run);
        check_losses(f, json_object_get(expected, "losses"), 1e-5);
        check_model(f, expected);
        json_decref(golden);
        json_t *config = read_json(f, path_of(f, "out/config.json"));
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(config, "sentence_transformers"), "activation_fn")),
            "torch.nn.modules.activation.Sigmoid");
        assert_int_equal(json_object_size(json_object_get(config, "id2label")), 1);
        json_decref(config);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static struct snug_dataset_options options_of(const struct fixture *f, const char *text, enum snug_ranking_loss loss) {
    return (struct snug_dataset_options){.path = write_text(f, "r.jsonl", text),
                                         .task = SNUG_TASK_RERANKING,
                                         .max_length = 12,
                                         .max_samples = -1,
                                         .threads = 1,
                                         .need_labels = true,
                                         .ranking_loss = loss,
                                         .overwrite_cache = true};
}

static struct snug_tokenizer *tokenizer_of(const struct fixture *f) {
    struct snug_tokenizer *tokenizer;
    ok(f, snug_tokenizer_load(f->ctx, GOLDEN "/wordpiece", snug_family_tokenizer_class, &tokenizer));
    return tokenizer;
}

#define ROW(more) "{\"query\":\"red\"," more "}\n"

FIXTURE_TEST(test_refused_rows) {
    static const struct {
        const char *text, *says;
        enum snug_ranking_loss loss;
    } cases[] = {
        {"{\"query\":\"x\",\"label\":0}\n", "no rows of reranking", SNUG_RANKING_BINARY},
        {"{\"document\":\"x\",\"label\":0}\n", "no rows of reranking", SNUG_RANKING_BINARY},
        {ROW("\"positive\":\"a\""), "no rows of reranking", SNUG_RANKING_BINARY},
        {"{\"query\":null,\"document\":\"x\",\"label\":0}\n", "the row has no query", SNUG_RANKING_BINARY},
        {ROW("\"document\":null,\"label\":0"), "document 0 must be a text", SNUG_RANKING_BINARY},
        {ROW("\"docs\":[],\"labels\":[]"), "has 0 documents", SNUG_RANKING_BINARY},
        {ROW("\"docs\":[\"a\",1],\"labels\":[0,1]"), "document 1 must be a text", SNUG_RANKING_BINARY},
        {ROW("\"docs\":[\"a\",\"b\"],\"labels\":[0]"), "1 labels of 2 documents", SNUG_RANKING_BINARY},
        {ROW("\"document\":\"a\",\"label\":\"good\""), "label 0 is no number", SNUG_RANKING_BINARY},
        {ROW("\"document\":\"a\",\"label\":2"), "the label 2 is not from 0 to 1", SNUG_RANKING_BINARY},
        {ROW("\"document\":\"a\",\"label\":-1"), "the label -1 is not from 0 to 1", SNUG_RANKING_BINARY},
        {ROW("\"document\":\"a\",\"label\":\"\""), "the row has no label", SNUG_RANKING_LISTNET},
        {ROW("\"document\":\"a\""), "the row has no label", SNUG_RANKING_BINARY},
        {ROW("\"positive\":\"a\",\"negative\":\"b\""), "needs a label, the margin", SNUG_RANKING_MARGIN},
        {ROW("\"positive\":\"a\",\"negative\":\"b\",\"label\":[1,2,3]"), "3 labels of 2 documents",
         SNUG_RANKING_MARGIN},
        {ROW("\"docs\":[\"a\"],\"labels\":[null]"), "label 0 is no number", SNUG_RANKING_LISTNET},
        {ROW("\"docs\":[\"a\"],\"labels\":[\"\"]"), "label 0 is no number", SNUG_RANKING_LISTNET},
        {ROW("\"positive\":\"a\",\"documents\":[1]"), "document 1 must be a text", SNUG_RANKING_BINARY},
        {ROW("\"positive\":\"a\",\"label\":1"), "1 labels of 1 documents", SNUG_RANKING_MARGIN},
    };
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    char *many = malloc(1 << 19), *columns = malloc(4096);
    strcpy(many, "{\"query\":\"red\",\"docs\":[\"a\"");
    for (size_t at = strlen(many), i = 0; i < 1 << 16; i++, at += 4) strcpy(many + at, ",\"a\"");
    strcat(many, "]}\n");
    strcpy(columns, "{\"query\":\"red\",\"positive\":\"a\"");
    for (int i = 1; i < 40; i++) sprintf(columns + strlen(columns), ",\"negative_%d\":\"a\"", i);
    strcat(columns, "}\n");
    const char *const large[][2] = {{many, "the row has 65537 documents"}, {columns, "no rows of reranking"}};
    for (size_t i = 0; i < 2; i++) {
        const struct snug_dataset_options options = options_of(f, large[i][0], SNUG_RANKING_LISTNET);
        struct snug_dataset *dataset;
        assert_failed(f, "large", snug_dataset_open(f->ctx, tokenizer, &options, &dataset), SNUG_E_INPUT, large[i][1]);
        snug_clear_error(f->ctx);
    }
    free(many);
    free(columns);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_dataset_options options = options_of(f, cases[i].text, cases[i].loss);
        struct snug_dataset *dataset;
        assert_failed(f, cases[i].text, snug_dataset_open(f->ctx, tokenizer, &options, &dataset), SNUG_E_INPUT,
                      cases[i].says);
        snug_clear_error(f->ctx);
    }
    snug_tokenizer_free(tokenizer);
}

/* The groups of a file, with their targets and texts. */
FIXTURE_TEST(test_groups) {
    static const struct {
        const char *text, *groups;
        enum snug_ranking_loss loss;
    } cases[] = {
        {ROW("\"docs\":[\"a\"],\"labels\":[true]") ROW("\"docs\":\"b\",\"labels\":\"0.5\""), "a=1 \nb=0.5 \n",
         SNUG_RANKING_BINARY},
        {ROW("\"docs\":[\"a\",\"b\"],\"labels\":[3,-1]"), "a=3 b=-1 \n", SNUG_RANKING_LISTNET},
        {ROW("\"positive\":\"a\",\"negative\":[\"b\",\"c\"]"), "a=1 b=0 c=0 \n", SNUG_RANKING_BINARY},
        {ROW("\"positive\":[\"a\"],\"documents\":[\"b\",\"a\"]"), "a=1 b=0 \n", SNUG_RANKING_BINARY},
        {ROW("\"positive\":\"a\",\"negative_1\":\"b\",\"negative_2\":\"c\""), "a=1 b=0 c=0 \n", SNUG_RANKING_LISTNET},
        {ROW("\"positive\":\"a\",\"negative\":\"b\",\"label\":1.5"), "a=0 b=1.5 \n", SNUG_RANKING_MARGIN},
        {ROW("\"positive\":\"a\",\"negative\":\"b\",\"label\":[2,0.5]"), "a=0 b=1.5 \n", SNUG_RANKING_MARGIN},
    };
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_dataset_options options = options_of(f, cases[i].text, cases[i].loss);
        struct snug_row_buffer buffer = {0};
        struct snug_dataset *dataset;
        char found[256] = "";
        options.keep_words = true;
        ok(f, snug_dataset_open(f->ctx, tokenizer, &options, &dataset));
        for (int64_t row = 0; row < snug_dataset_rows(dataset); row++) {
            struct snug_dataset_row read;
            struct snug_group group;
            ok(f, snug_dataset_read(f->ctx, dataset, row, &buffer, &read));
            snug_dataset_row_group(&read, &group);
            const char *at = group.texts;
            assert_true(group.labelled && group.query);
            for (int64_t k = 0; k < (int64_t)group.count; k++, at += strlen(at) + 1)
                snprintf(found + strlen(found), sizeof found - strlen(found), "%s=%g ", at,
                         (double)snug_group_target(&group, k));
            snprintf(found + strlen(found), sizeof found - strlen(found), "\n");
        }
        assert_string_equal(found, cases[i].groups);
        free(buffer.data);
        snug_dataset_close(dataset);
    }
    snug_tokenizer_free(tokenizer);
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static snug_status note(void *user, const snug_prediction *row) {
    char *found = user;
    snprintf(found + strlen(found), 256 - strlen(found), "%s/%zu ", row->label, row->candidate_count);
    return SNUG_OK;
}

#define MODEL "model_name_or_path=" GOLDEN "/bert tokenizer_name=" GOLDEN "/wordpiece task=reranking threads=1 "

/* Documents of a row, of which none has a label; other activations; margins; synthetic data; what does not go together.
 */
FIXTURE_TEST(test_other_data) {
    static const struct {
        const char *words, *text;
    } margins[] = {{MODEL "ranking_loss=margin", ROW("\"positive\":\"a\",\"negative\":\"a\",\"label\":0.5")},
                   {MODEL "ranking_loss=margin", ROW("\"positive\":\"a\",\"negative\":\"a\"")},
                   {MODEL "ranking_loss=listnet", ROW("\"docs\":[\"a\",\"a\"]")}};
    char found[256] = "";
    snug_metrics *metrics;
    snug_train_result result;
    snug_args *args = plain_args(f, MODEL);
    assert_int_equal(snug_args_set(args, "test_file", write_text(f, "r.jsonl", ROW("\"docs\":[\"a\",\"a\"]"))),
                     SNUG_OK);
    ok(f, snug_predict(args, NULL, note, found));
    assert_string_equal(found, "a/2 ");
    snug_args_destroy(args);
    *found = '\0';
    args = plain_args(f, MODEL "query=red"); /* equal documents keep their order */
    assert_int_equal(snug_args_set(args, "test_file", write_text(f, "two.txt", "a\na\n")), SNUG_OK);
    ok(f, snug_predict(args, NULL, note, found));
    snug_args_destroy(args);
    for (size_t i = 0; i < sizeof margins / sizeof *margins; i++) { /* margins that are, and are not, known */
        args = plain_args(f, margins[i].words);
        assert_int_equal(snug_args_set(args, "test_file", write_text(f, "r.jsonl", margins[i].text)), SNUG_OK);
        ok(f, snug_predict(args, NULL, note, found));
        snug_args_destroy(args);
    }
    assert_string_equal(found, "a/0 a/0 a/2 a/2 a/2 ");
    args = plain_args(f, MODEL); /* no document is relevant */
    assert_int_equal(snug_args_set(args, "validation_file",
                                   write_text(f, "r.jsonl", ROW("\"docs\":[\"a\",\"b\"],\"labels\":[0,0]"))),
                     SNUG_OK);
    ok(f, snug_evaluate(args, NULL, &metrics));
    assert_true(metric_of(metrics, "eval_map") == 0 && metric_of(metrics, "eval_mrr@10") == 0);
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);
    args = plain_args(f, MODEL "query=red keep_columns=all test_file=" GOLDEN "/docs.txt");
    assert_failed(f, "kept", snug_predict(args, NULL, note, found), SNUG_E_USAGE, "--query sorts its rows");
    snug_args_destroy(args);
    args = plain_args(f, MODEL "ranking_loss=margin validation_file=" GOLDEN "/margin.jsonl");
    ok(f, snug_evaluate(args, NULL, &metrics));
    assert_true(metric_of(metrics, "eval_loss") > 0 && metric_of(metrics, "eval_mrr@10") >= 0.5);
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=" SNUG_SOURCE_DIR
                         "/tests/golden/multiple_choice/bert tokenizer_name=" SNUG_SOURCE_DIR
                         "/tests/golden/multiple_choice/wordpiece task=reranking threads=1 "
                         "train_file=dummy:6x8 max_steps=1 per_device_train_batch_size=2 save_strategy=no "
                         "eval_strategy=no ranking_loss=listnet");
    set_args(f, args, "output_dir=@out");
    ok(f, train_args(f, args, NULL, &result));
    snug_args_destroy(args);
    *found = '\0';
    args = plain_args(f, "model_name_or_path=@out threads=1 test_file=dummy:2x8");
    ok(f, snug_predict(args, NULL, note, found));
    assert_string_equal(found, "/4 /4 ");
    snug_args_destroy(args);
}

static snug_status note_score(void *user, const snug_prediction *row) {
    *(double *)user = row->score - (double)row->logits[0];
    return SNUG_OK;
}

/* CrossEncoders of sentence-transformers name their activation, in earlier versions by another key. */
FIXTURE_TEST(test_activation) {
    static const struct {
        const char *more;
        bool reranks, sigmoid;
    } cases[] = {
        {"", false, true},
        {", \"sbert_ce_default_activation_function\": \"torch.nn.modules.linear.Identity\"", true, false},
        {", \"sentence_transformers\": {\"activation_fn\": \"torch.nn.modules.activation.Sigmoid\"}", true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct snug_config config;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], \"id2label\": "
                 "{\"0\": \"LABEL_0\"}%s}",
                 cases[i].more);
        ok(f, snug_config_read(f->ctx, write_text(f, "config.json", text), &config));
        assert_int_equal(config.task == SNUG_TASK_RERANKING, cases[i].reranks);
        assert_int_equal(snug_config_has_sigmoid(&config), cases[i].sigmoid);
        snug_config_free(&config);
    }
    size_t size;
    double difference = 1;
    char *config = read_text(f, GOLDEN "/bert/config.json", &size), text[4096];
    *strrchr(config, '}') = '\0';
    assert_true(size + 128 < sizeof text);
    snprintf(text, sizeof text, "%s, \"sbert_ce_default_activation_function\": \"torch.nn.modules.linear.Identity\"}",
             config);
    write_text(f, "identity.json", text);
    free(config);
    snug_args *args = plain_args(f, MODEL "test_file=" GOLDEN "/binary.csv");
    set_args(f, args, "config_name=@identity.json");
    ok(f, snug_predict(args, NULL, note_score, &difference));
    assert_true(difference == 0);
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
