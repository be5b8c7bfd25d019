/* SPDX-License-Identifier: Apache-2.0 */
/* Retrieval: sentence-transformers' metrics (tools/golden/retrieval.py), trainings that choose by them, equal scores,
   files of other forms, what is refused. */
#include "data/dataset.h"
#include "data/lengths.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down
#define GOLDEN "tests/golden/embedding/"
#define FILES                                                                                                          \
    "queries_file=" GOLDEN "retrieval/queries.jsonl corpus_file=" GOLDEN "retrieval/corpus.jsonl "                     \
    "relevance_file=" GOLDEN "retrieval/test.tsv "
#define EVALUATION "task=embedding model_name_or_path=@golden threads=1 device=cpu "
#define OWN_FILES "queries_file=@queries.jsonl corpus_file=@corpus.jsonl relevance_file=@test.tsv "

static void copy_file(const struct fixture *f, const char *from, const char *to) {
    size_t size;
    char *data = read_text(f, from, &size);
    write_bytes(path_of(f, "%s", to), data, size);
    free(data);
}

/* The golden model as a folder of sentence-transformers, with these settings. */
static void write_golden(const struct fixture *f, const char *settings) {
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    char from[128], to[64];
    if (!exists(path_of(f, "golden"))) assert_int_equal(snug_folder_create(f->ctx, path_of(f, "golden")), SNUG_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(from, sizeof from, GOLDEN "model/%s", names[i]);
        snprintf(to, sizeof to, "golden/%s", names[i]);
        copy_file(f, from, to);
    }
    write_text(
        f, "golden/modules.json",
        "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
        " {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}]");
    if (!exists(path_of(f, "golden/1_Pooling")))
        assert_int_equal(snug_folder_create(f->ctx, path_of(f, "golden/1_Pooling")), SNUG_OK);
    write_text(f, "golden/1_Pooling/config.json", "{\"pooling_mode_mean_tokens\": true}");
    write_text(f, "golden/config_sentence_transformers.json", settings);
}

static snug_status evaluate(struct fixture *f, const char *words, snug_metrics *out) {
    snug_args *args = plain_args(f, EVALUATION);
    set_args(f, args, words);
    const snug_status status = evaluate_args(f, args, NULL, out);
    snug_args_destroy(args);
    return status;
}

static snug_metrics evaluated(struct fixture *f, const char *words) {
    snug_metrics metrics;
    ok(f, evaluate(f, words, &metrics));
    return metrics;
}

static void refused(struct fixture *f, const char *words, snug_status expected, const char *says) {
    snug_metrics metrics;
    assert_failed(f, words, evaluate(f, words, &metrics), expected, says);
}

FIXTURE_TEST(test_metrics_of_sentence_transformers) {
    json_t *golden = read_json(f, GOLDEN "retrieval/metrics.json"), *one, *value;
    const char *key;
    size_t i;
    json_array_foreach(golden, i, one) {
        const json_t *prompts = json_object_get(one, "prompts");
        json_t *settings = json_pack("{s:O}", "similarity_fn_name", json_object_get(one, "similarity"));
        if (json_is_object(prompts)) json_object_set(settings, "prompts", json_object_get(one, "prompts"));
        char *text = json_dumps(settings, 0);
        write_golden(f, text);
        const snug_metrics metrics = evaluated(f, i % 3 ? FILES : FILES "per_device_eval_batch_size=50 threads=2");
        json_object_foreach(json_object_get(one, "metrics"), key, value) {
            char name[64];
            snprintf(name, sizeof name, "eval_%s", key);
            const double wrong = fabs(metric_of(&metrics, name) - json_number_value(value));
            if (!(wrong < 1e-9)) fail_msg("%s with %s is off by %g", name, text, wrong);
        }
        assert_true(metric_of(&metrics, "eval_samples") == 12 + 156);
        free(text);
        json_decref(settings);
    }
    /* Prompts of the arguments, in place of the model's. */
    const snug_metrics wanted = evaluated(f, FILES);
    write_golden(f, "{\"similarity_fn_name\": \"manhattan\", \"prompts\": {\"query\": \"two dogs\"}}");
    snug_args *args = plain_args(f, EVALUATION FILES);
    snug_metrics metrics;
    ok(f, snug_args_set(args, "query_prompt", "query : "));
    ok(f, snug_args_set(args, "corpus_prompt", "the music : "));
    ok(f, evaluate_args(f, args, NULL, &metrics));
    snug_args_destroy(args);
    for (size_t k = 0; k < 15; k++) assert_true(metrics.items[k].value == wanted.items[k].value);
    args = plain_args(f, EVALUATION FILES "query_prompt= corpus_prompt=food log_level=info");
    ok(f, evaluate_args(f, args, NULL, &metrics));
    assert_contains(f->log, "after the prompts \"\" and \"food\"");
    snug_args_destroy(args);
    ok(f, evaluate(f, FILES "corpus_prompt=", &metrics));
    assert_contains(f->log, "after the prompts \"two dogs\" and \"\"");
    json_decref(golden);
}

/* Four documents, fewer than the evaluator reads; two of them are the same text. */
static void write_small(const struct fixture *f) {
    write_text(f, "queries.jsonl", "{\"_id\": \"a\", \"text\": \"two dogs\"}\n{\"_id\": \"b\", \"text\": \"food\"}\n");
    write_text(f, "corpus.jsonl",
               "{\"_id\": 1, \"text\": \"two dogs\"}\n{\"_id\": 2, \"text\": \"two dogs\"}\n"
               "{\"_id\": 3, \"text\": \"the girl\"}\n{\"_id\": 4, \"text\": \"food\"}\n");
    write_text(f, "test.tsv", "query-id\tcorpus-id\tscore\na\t2\t1\nb\t4\t2\nb\t4\t1\n");
}

/* Of equal scores the first document of the corpus comes first. */
FIXTURE_TEST(test_equal_scores_and_few_documents) {
    write_golden(f, "{}");
    write_small(f);
    snug_metrics metrics = evaluated(f, OWN_FILES);
    assert_true(metric_of(&metrics, "eval_cosine_accuracy@1") == 0.5);
    assert_true(metric_of(&metrics, "eval_cosine_accuracy@3") == 1);
    assert_true(metric_of(&metrics, "eval_cosine_precision@10") == 0.1);
    assert_true(metric_of(&metrics, "eval_cosine_mrr@10") == 0.75);
    assert_true(metric_of(&metrics, "eval_cosine_map@100") == 0.75);
    metrics = evaluated(f, OWN_FILES "max_eval_samples=1");
    assert_true(metric_of(&metrics, "eval_cosine_mrr@10") == 0.5);
    assert_true(metric_of(&metrics, "eval_samples") == 5);
    /* All texts have the same length, and so have those of other files. */
    write_text(f, "queries.csv", "id,text\nb,food\na,girl\n");
    write_text(f, "corpus.csv", "id,title,text\n1,the,girl\n4,,  food is \n5,, \n");
    write_text(f, "relevance.csv", "query-id,corpus-id\nb,4\na,1\n");
    metrics = evaluated(f, "queries_file=@queries.csv corpus_file=@corpus.csv relevance_file=@relevance.csv");
    assert_true(metric_of(&metrics, "eval_cosine_recall@3") == 1);
}

/* What a training says of its evaluations; the best checkpoint, and a run that is repeated and resumed. */
FIXTURE_TEST(test_trainings_choose_by_it) {
    const char *words = "task=embedding config_name= tokenizer_name= model_name_or_path=@golden train_file=@pairs.csv "
                        "device=cpu eval_strategy=epoch save_strategy=epoch logging_steps=1 per_device_train_batch_"
                        "size=4 num_train_epochs=3 load_best_model_at_end=True metric_for_best_model=cosine_ndcg@10 "
                        "learning_rate=1e-2 " FILES;
    char more[1024];
    write_golden(f, "{}");
    write_text(f, "pairs.csv",
               "anchor,positive\na man is eating,eating food\nthe girl play,music on\ntwo dogs,run fast\n"
               "food,eating\ndogs run,two dogs\nplay music,the girl is playing\nman,girl\non,fast\n");
    const snug_train_result result = train(f, "whole", words);
    assert_string_equal(result.best_metric, "eval_cosine_ndcg@10");
    json_t *history = history_of(f, "whole"), *entry;
    double best = 0;
    size_t i;
    json_array_foreach(history, i, entry) {
        const double value = json_number_value(json_object_get(entry, "eval_cosine_ndcg@10"));
        best = value > best ? value : best;
    }
    assert_true(best > 0 && fabs(result.best_value - best) < 1e-12);
    json_decref(history);
    assert_int_equal(try_train(f, "cut", words, 3, NULL), SNUG_E_INTERRUPTED);
    snprintf(more, sizeof more, "%sresume_from_checkpoint=True", words);
    train(f, "cut", more);
    assert_same_run(f, "whole", "cut");
    /* Other judgements choose another best model. */
    write_small(f);
    snprintf(more, sizeof more, "%sresume_from_checkpoint=True overwrite_output_dir=False relevance_file=@other.tsv",
             words);
    write_text(f, "other.tsv", "query-id\tcorpus-id\tscore\nq0\td000\t1\n");
    *f->log = '\0';
    assert_int_equal(try_train(f, "cut", more, 0, NULL), SNUG_OK);
    assert_contains(f->log, "different relevance_file");
    json_t *saved = read_json(f, path_of(f, "whole/training_args.json"));
    const json_t *file = json_object_get(json_object_get(json_object_get(saved, "files"), "corpus_file"), "path");
    assert_contains(json_string_value(file), "retrieval/corpus.jsonl");
    json_decref(saved);
    snug_args *args = plain_args(f, "task=embedding model_name_or_path=@golden train_file=@pairs.csv "
                                    "eval_strategy=epoch metric_for_best_model=accuracy " FILES);
    assert_failed(f, "accuracy", snug_train(args, NULL, NULL), SNUG_E_USAGE, "eval_cosine_map@100");
    snug_args_destroy(args);
    args = plain_args(
        f, "task=embedding model_name_or_path=@golden train_file=@pairs.csv validation_split_percentage=20 " FILES);
    assert_failed(f, "split", snug_train(args, NULL, NULL), SNUG_E_USAGE,
                  "--validation_split_percentage and --queries_file are both given");
    snug_args_destroy(args);
    snprintf(more, sizeof more, "%smax_steps=1 eval_strategy=no load_best_model_at_end=False prompts=food ", words);
    train(f, "prompted", more);
}

FIXTURE_TEST(test_refused) {
    write_golden(f, "{}");
    write_small(f);
    static const struct {
        const char *name, *text, *says;
    } files[] = {
        {"test.tsv", "query\tdocument\na\t1\n", "test.tsv: there is no column query-id"},
        {"test.tsv", "query-id\tdocument\na\t1\n", "test.tsv: there is no column corpus-id"},
        {"test.tsv", "query-id\tcorpus-id\tscore\na\t1\t0\nb\t2\t-1\n",
         "no judgement says that a document is relevant"},
        {"test.tsv", "query-id\tcorpus-id\tscore\na\t1\tmuch\n", "test.tsv:2: the score must be a number"},
        {"test.tsv", "query-id\tcorpus-id\tscore\na\t1\n", "test.tsv:2"},
        {"test.tsv", "query-id\tcorpus-id\tscore\na\t1\t1\nc\t1\t1\n", "test.tsv:3: query-id \"c\" is not in "},
        {"test.tsv", "query-id\tcorpus-id\tscore\na\t1\t1\nb\t7\t1\n", "test.tsv:3: corpus-id \"7\" is not in "},
        {"queries.jsonl", "{\"_id\": \"a\", \"text\": \"two\"}\n{\"_id\": \n", "queries.jsonl:2"},
        {"queries.jsonl", "{\"name\": \"a\", \"text\": \"two\"}\n", "queries.jsonl: there is no column _id"},
        {"queries.jsonl", "{\"_id\": \"a\", \"text\": \"two\"}\n{\"_id\": null, \"text\": \"two\"}\n",
         "queries.jsonl:2: the row has no identifier"},
        {"queries.jsonl", "{\"_id\": \"a\", \"text\": \"two\"}\n{\"_id\": \"a\", \"text\": \"two\"}\n",
         "queries.jsonl:2: the identifier \"a\" is also that of line 1"},
        {"queries.jsonl", "{\"_id\": \"a\", \"text\": \"two\"}\n{\"_id\": \"b\", \"query\": \"two\"}\n",
         "queries.jsonl:2: the row has no text"},
        {"corpus.jsonl", "{\"_id\": 2, \"body\": \"two\"}\n{\"_id\": 4, \"body\": \"two\"}\n",
         "there is no column \"text\""},
        {"corpus.jsonl", "{\"_id\": 2, \"text\": \"two\"\n", "corpus.jsonl:1"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_text(f, files[i].name, files[i].text);
        refused(f, OWN_FILES, SNUG_E_INPUT, files[i].says);
        write_small(f);
    }
    write_text(f, "objects.jsonl", "{\"query-id\": null, \"corpus-id\": 1}\n");
    refused(f, "queries_file=@queries.jsonl corpus_file=@corpus.jsonl relevance_file=@objects.jsonl", SNUG_E_INPUT,
            "objects.jsonl:1: the row has no query-id");
    write_text(f, "objects.jsonl", "{\"query-id\": \"a\", \"corpus-id\": null}\n");
    refused(f, "queries_file=@queries.jsonl corpus_file=@corpus.jsonl relevance_file=@objects.jsonl", SNUG_E_INPUT,
            "objects.jsonl:1: the row has no corpus-id");
    write_text(f, "objects.jsonl", "{\"query-id\": \"a\", \"corpus-id\": 1, \"score\": null}\n");
    refused(f, "queries_file=@queries.jsonl corpus_file=@corpus.jsonl relevance_file=@objects.jsonl", SNUG_E_INPUT,
            "objects.jsonl:1: the score must be a number");
    refused(f, "queries_file=@none.jsonl corpus_file=@corpus.jsonl relevance_file=@test.tsv", SNUG_E_IO, "none.jsonl");
    refused(f, "queries_file=@queries.jsonl", SNUG_E_USAGE, "give all three");
    refused(f, "corpus_file=@corpus.jsonl", SNUG_E_USAGE, "snug eval needs --validation_file");
    refused(f, "validation_file=@test.tsv corpus_file=@corpus.jsonl", SNUG_E_USAGE, "give all three");
    refused(f, "validation_file=@test.tsv relevance_file=@test.tsv", SNUG_E_USAGE, "give all three");
    refused(f, "validation_file=@test.tsv query_prompt=q", SNUG_E_USAGE, "--query_prompt is of a retrieval");
    refused(f, "validation_file=@test.tsv corpus_prompt=q", SNUG_E_USAGE, "--corpus_prompt is of a retrieval");
    refused(f, OWN_FILES "validation_file=@test.tsv", SNUG_E_USAGE, "--validation_file and --queries_file");
    refused(f, OWN_FILES "corpus_file=-", SNUG_E_USAGE, "read twice");
    refused(f, OWN_FILES "task=classification", SNUG_E_USAGE, "is for sentence embedding");
    refused(f, "", SNUG_E_USAGE, "snug eval needs --validation_file");
    snug_args *args = plain_args(f, "model_name_or_path=@golden test_file=@test.tsv queries_file=@queries.jsonl");
    assert_failed(f, "embed", snug_embed(args, NULL, NULL, NULL), SNUG_E_USAGE, "");
    snug_args_destroy(args);
}

static bool always(void *user) {
    (void)user;
    return true;
}

FIXTURE_TEST(test_interrupted_while_identifiers_are_read) {
    const snug_callbacks callbacks = {.should_stop = always};
    snug_metrics metrics;
    write_golden(f, "{}");
    write_small(f);
    snug_args *args = plain_args(f, EVALUATION OWN_FILES);
    assert_failed(f, "stop", evaluate_args(f, args, &callbacks, &metrics), SNUG_E_INTERRUPTED,
                  "queries.jsonl was read");
    snug_args_destroy(args);
}

static struct snug_dataset *open_rows(const struct fixture *f, const char *path) {
    const struct snug_dataset_options options = {
        .path = path, .task = SNUG_TASK_CLASSIFICATION, .max_samples = -1, .vocab_size = 1000};
    struct snug_dataset *dataset;
    ok(f, snug_dataset_open(f->ctx, NULL, &options, &dataset));
    return dataset;
}

/* Rows of two data sets, one after the other. */
FIXTURE_TEST(test_a_data_set_after_another) {
    struct snug_dataset *all = open_rows(f, "dummy:5x8-12"), *after = open_rows(f, "dummy:1500x4-20");
    const int64_t longest = snug_dataset_longest(after), tokens = snug_dataset_tokens(all);
    const int64_t sum = tokens + snug_dataset_tokens(after);
    const double squares = snug_dataset_squared_lengths(all) + snug_dataset_squared_lengths(after);
    const uint64_t digest = snug_dataset_digest(all);
    struct snug_row_buffer buffer = {0};
    struct snug_lengths lengths;
    struct snug_dataset_row row;
    int64_t rows[1505], seen = 0;
    int32_t found[1505];
    ok(f, snug_dataset_append(f->ctx, all, after));
    assert_int_equal(snug_dataset_rows(all), 1505);
    assert_int_equal(snug_dataset_longest(all), longest);
    assert_int_equal(snug_dataset_longest_sequence(all), longest);
    assert_int_equal(snug_dataset_tokens(all), sum);
    assert_int_equal(snug_dataset_truncated(all), 0);
    assert_true(snug_dataset_squared_lengths(all) == squares);
    assert_int_equal(snug_dataset_row_bytes(all), snug_dataset_row_bytes(after));
    assert_true(snug_dataset_digest(all) != digest);
    assert_string_equal(snug_dataset_path(all), "dummy:5x8-12, then dummy:1500x4-20");
    ok(f, snug_lengths_init(f->ctx, all, 1505, &lengths));
    for (int64_t i = 0; i < 1505; i++) rows[i] = (i * 11 + 2) % 1505;
    ok(f, snug_lengths_read(f->ctx, &lengths, rows, 1505, found));
    for (int64_t i = 0; i < 1505; i++) {
        ok(f, snug_dataset_read(f->ctx, all, rows[i], &buffer, &row));
        assert_int_equal(row.count, found[i]);
        seen += row.count;
    }
    assert_int_equal(seen, sum);
    for (int64_t i = 0; i < 1505; i++) rows[i] = i;
    ok(f, snug_lengths_read(f->ctx, &lengths, rows, 1505, found));
    for (int64_t i = 0; i < 1505; i++) seen -= found[i];
    assert_int_equal(seen, 0);
    snug_lengths_free(&lengths);
    free(buffer.data);
    snug_dataset_close(all);
}

TEST_MAIN(NULL, NULL)
