/* SPDX-License-Identifier: Apache-2.0 */
/* Sentence embeddings: the vectors of sentence-transformers (tools/golden/embedding.py) with every pooling and module,
   their file, similarities, prompts, loaded models; folders that are refused. */
#include <math.h>
#include <unistd.h>

#include "data/encode.h"
#include "model/family.h"
#include "tokenizer/tokenizer.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down
#define GOLDEN "tests/golden/embedding/"

enum { SIZE = 64, ROWS = 8 };
struct vectors {
    int count;
    size_t size;
    double score[ROWS];
    float of[ROWS][2 * SIZE];
};

static snug_status take(void *user, const snug_prediction *row) {
    struct vectors *v = user;
    assert_true(v->count < ROWS && row->logits_count <= 2 * SIZE);
    v->size = row->logits_count;
    v->score[v->count] = row->score;
    memcpy(v->of[v->count++], row->logits, row->logits_count * sizeof *row->logits);
    return SNUG_OK;
}

static snug_status refuse(void *user, const snug_prediction *row) {
    (void)user, (void)row;
    return SNUG_E_INTERRUPTED;
}

static void copy_file(const struct fixture *f, const char *from, const char *to) {
    size_t size;
    char *data = read_text(f, from, &size);
    write_bytes(path_of(f, "%s", to), data, size);
    free(data);
}

/* The golden model's folder, with the files of a case. */
static void make_folder(const struct fixture *f, const json_t *one) {
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    const char *name;
    json_t *value, *kind;
    size_t i;
    char path[128];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(path, sizeof path, GOLDEN "model/%s", names[k]);
        copy_file(f, path, names[k]);
    }
    json_object_foreach(json_object_get(one, "files"), name, value) {
        const char *slash = strchr(name, '/');
        if (slash) mkdir(path_of(f, "%.*s", (int)(slash - name), name), 0700);
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        write_text(f, name, text);
        free(text);
    }
    json_array_foreach(json_object_get(one, "dense"), i, kind) {
        char to[64];
        if (strcmp(json_string_value(kind), "normalize") == 0) continue;
        snprintf(path, sizeof path, GOLDEN "model/%s.safetensors", json_string_value(kind));
        snprintf(to, sizeof to, "%zu_Dense/model.safetensors", i + 2);
        copy_file(f, path, to);
    }
}

static snug_rows *rows_of(const struct fixture *f, const json_t *texts) {
    snug_rows *rows;
    size_t i;
    json_t *text;
    assert_int_equal(snug_rows_create(f->ctx, &rows), SNUG_OK);
    json_array_foreach(texts, i, text) {
        assert_int_equal(snug_rows_text(rows, "text", json_string_value(text)), SNUG_OK);
        assert_int_equal(snug_rows_end(rows), SNUG_OK);
    }
    return rows;
}

/* words: a command line, in which + is a blank within a word. */
static snug_args *args_of(struct fixture *f, const char *words) {
    char all[512], *argv[32] = {all}, *rest = all;
    int argc = 0;
    snug_args *args;
    snprintf(all, sizeof all, "embed --device cpu --threads 1 --model_name_or_path %s %s", f->folder, words);
    while ((argv[argc] = strsep(&rest, " "))) {
        for (char *c = argv[argc]; *c; c++) *c = *c == '+' ? ' ' : *c;
        argc += *argv[argc] != '\0';
    }
    assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
    if (snug_args_parse(args, argc, argv) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    return args;
}

static snug_status embed(struct fixture *f, const char *words, snug_rows *rows, struct vectors *out) {
    snug_args *args = args_of(f, words);
    *out = (struct vectors){.count = 0};
    if (rows) assert_int_equal(snug_args_set_rows(args, "test_file", rows), SNUG_OK);
    const snug_status status = snug_embed(args, NULL, take, out);
    snug_args_destroy(args);
    return status;
}

static void embed_well(struct fixture *f, const char *words, snug_rows *rows, struct vectors *out) {
    if (embed(f, words, rows, out) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
}

static void embed_refused(struct fixture *f, const char *words, snug_rows *rows, const char *says) {
    struct vectors v;
    assert_int_not_equal(embed(f, words, rows, &v), SNUG_OK);
    assert_contains(snug_error_message(f->ctx), says);
}

static void expect(const struct vectors *v, const json_t *golden, const char *name) {
    size_t i, k;
    json_t *row, *value;
    assert_int_equal(v->count, json_array_size(golden));
    json_array_foreach(golden, i, row) {
        assert_int_equal(v->size, json_array_size(row));
        json_array_foreach(row, k, value) {
            const double wrong = fabs((double)v->of[i][k] - json_number_value(value));
            if (!(wrong < 1e-5)) fail_msg("%s: text %zu, value %zu is off by %g", name, i, k, wrong);
        }
    }
}

static void clean(const struct fixture *f) {
    unlink(path_of(f, "modules.json"));
    unlink(path_of(f, "config_sentence_transformers.json"));
}

FIXTURE_TEST(test_vectors_of_sentence_transformers) {
    json_t *golden = read_json(f, GOLDEN "cases.json"), *one;
    snug_rows *rows = rows_of(f, json_object_get(golden, "texts"));
    struct vectors v;
    size_t i;
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        const json_t *queries = json_object_get(one, "query_vectors");
        clean(f);
        make_folder(f, one);
        embed_well(f, "--per_device_eval_batch_size 3", rows, &v);
        expect(&v, json_object_get(one, "vectors"), name);
        if (!queries) continue;
        embed_well(f, "--prompt_name query", rows, &v);
        expect(&v, queries, name);
        embed_well(f, "--prompt query:+", rows, &v);
        expect(&v, queries, name);
        const json_t *without = json_object_get(one, "without_prompt_vectors");
        if (!without) continue;
        json_t *pooling = read_json(f, path_of(f, "1_Pooling/config.json"));
        json_object_set_new(pooling, "include_prompt", json_false());
        assert_int_equal(json_dump_file(pooling, path_of(f, "1_Pooling/config.json"), 0), 0);
        json_decref(pooling);
        embed_well(f, "--prompt_name query", rows, &v);
        expect(&v, without, name);
        embed_well(f, "", rows, &v);
        expect(&v, json_object_get(one, "vectors"), name);
    }
    snug_rows_destroy(rows);
    json_decref(golden);
}

/* The case number i, in the folder. */
static json_t *case_of(const struct fixture *f, json_t **golden, size_t i) {
    *golden = read_json(f, GOLDEN "cases.json");
    json_t *one = json_array_get(json_object_get(*golden, "cases"), i);
    make_folder(f, one);
    return one;
}

static int32_t prompt_tokens(struct fixture *f, const char *folder, const char *prompt) {
    struct snug_tokenizer *tokenizer;
    int32_t count;
    ok(f, snug_tokenizer_load(f->ctx, folder, snug_family_tokenizer_class, &tokenizer));
    ok(f, snug_count_prompt(f->ctx, tokenizer, prompt, &count));
    snug_tokenizer_free(tokenizer);
    return count;
}

/* With the special token before it, without the one after it. */
FIXTURE_TEST(test_tokens_of_a_prompt) {
    assert_int_equal(prompt_tokens(f, GOLDEN "model", "query: "), 3);
    assert_int_equal(prompt_tokens(f, GOLDEN "model", " "), 1);
    assert_int_equal(prompt_tokens(f, GOLDEN "model", ""), 0);
    assert_int_equal(prompt_tokens(f, "tests/golden/dpo", "a"), 1);
    /* Nothing is left of the text but its last token. */
    static const char *const words = "--text a+man --prompt food+food+food+food+food+ --max_seq_length 5";
    struct vectors last, rest;
    json_t *golden;
    case_of(f, &golden, 2);
    write_text(f, "1_Pooling/config.json", "{\"pooling_mode\": \"lasttoken\"}");
    embed_well(f, words, NULL, &last);
    write_text(f, "1_Pooling/config.json", "{\"pooling_mode\": \"cls\", \"include_prompt\": false}");
    embed_well(f, words, NULL, &rest);
    assert_memory_equal(last.of[0], rest.of[0], last.size * sizeof **last.of);
    json_decref(golden);
}

/* A tokenizer that adds no token to a text. */
/* Also where each text has a label: a prediction's rows have the numbers of the file's. */
FIXTURE_TEST(test_texts_without_tokens) {
    static const char *const model = "--model_name_or_path tests/golden/dpo --task embedding ";
    static const char *const files[] = {"{\"text\": \"a\"}\n{\"text\": \"\"}\n",
                                        "{\"one\": \"a\", \"two\": \"b\"}\n{\"one\": \"\", \"two\": \"b\"}\n"};
    struct vectors v;
    char words[256];
    snug_model *loaded;
    for (int i = 0; i < 2; i++) {
        write_text(f, "empty.jsonl", files[i]);
        snprintf(words, sizeof words, "%s%s--test_file %s", model, i ? "--similarity " : "", path_of(f, "empty.jsonl"));
        embed_refused(f, words, NULL, "empty.jsonl:2: a text has no tokens");
    }
    write_text(f, "empty.csv", "text,label\na,0\n\"\",1\n");
    snug_args *args = plain_args(f, "model_name_or_path=tests/golden/dpo task=classification train_file=@empty.csv");
    snug_plan *plan = NULL;
    assert_failed(f, "classification", snug_plan_create(args, &plan), SNUG_E_INPUT,
                  "empty.csv:3: a text has no tokens");
    snug_args_destroy(args);
    embed_well(f, "--model_name_or_path tests/golden/dpo --text a", NULL, &v);
    args = args_of(f, model);
    ok(f, snug_model_open(args, &loaded));
    static const char *const texts[] = {"a", ""};
    assert_int_equal(snug_model_predict(loaded, f->ctx, texts, NULL, 2, take, &v), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "text 1 has no tokens");
    snug_model_destroy(loaded);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_file_and_similarity) {
    json_t *golden;
    json_t *one = case_of(f, &golden, 2);
    struct vectors v, pairs;
    char words[256];
    size_t size;
    snug_rows *rows = rows_of(f, json_object_get(golden, "texts"));
    snprintf(words, sizeof words, "--output_file %s", path_of(f, "v.npy"));
    embed_well(f, words, rows, &v);
    expect(&v, json_object_get(one, "vectors"), "npy");
    char *file = read_text(f, path_of(f, "v.npy"), &size);
    assert_int_equal(size, 128 + (size_t)v.count * v.size * 4);
    assert_memory_equal(file, "\x93NUMPY\x01\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (4, 24), }", 68);
    assert_memory_equal(file + 128, v.of[0], v.size * 4);
    free(file);
    embed_well(f, "--truncate_dim 3 --normalize_embeddings", rows, &pairs);
    assert_int_equal(pairs.size, 3);
    const float *p = pairs.of[0];
    assert_true(fabs((double)(p[0] * p[0] + p[1] * p[1] + p[2] * p[2]) - 1) < 1e-6);
    assert_true(fabs((double)(p[0] / p[1] - v.of[0][0] / v.of[0][1])) < 1e-4);
    embed_refused(f, "--truncate_dim 25", rows, "the model's vectors have 24 values");
    /* A file of which the rest is not written is no file. */
    snprintf(words, sizeof words, "--text a --output_file %s", path_of(f, "half.npy"));
    snug_args *args = args_of(f, words);
    assert_int_equal(snug_embed(args, NULL, refuse, NULL), SNUG_E_INTERRUPTED);
    assert_int_not_equal(access(path_of(f, "half.npy"), F_OK), 0);
    snug_args_destroy(args);
    embed_refused(f, "--text a --output_file /nowhere/v.npy", NULL, "/nowhere/v.npy");
    snug_rows_destroy(rows);

    /* Both texts of a row, and their similarity by each function. */
    write_text(f, "pairs.csv", "one,two,score\na man is eating food,the girl,1\n,two dogs run,0\n");
    static const char *const names[] = {"cosine", "dot", "euclidean", "manhattan"};
    for (size_t k = 0; k < 4; k++) {
        char settings[64];
        double sums[5] = {0};
        snprintf(settings, sizeof settings, "{\"similarity_fn_name\": \"%s\"}", names[k]);
        write_text(f, "config_sentence_transformers.json", settings);
        snprintf(words, sizeof words, "--similarity --test_file %s", path_of(f, "pairs.csv"));
        embed_well(f, words, NULL, &pairs);
        assert_int_equal(pairs.count, 2);
        for (int i = 0; i < 24; i++) {
            const double a = (double)pairs.of[0][i], b = (double)pairs.of[0][24 + i];
            assert_true(fabs(a - (double)v.of[0][i]) < 1e-6 && fabs(b - (double)v.of[1][i]) < 1e-6);
            sums[0] += a * a, sums[1] += a * b, sums[2] += b * b, sums[3] += (a - b) * (a - b), sums[4] += fabs(a - b);
        }
        const double want[] = {sums[1] / sqrt(sums[0] * sums[2]), sums[1], -sqrt(sums[3]), -sums[4]};
        assert_true(fabs(pairs.score[0] - want[k]) < 1e-5);
    }
    embed_well(f, "--similarity --text the+girl --text_pair the+girl", NULL, &pairs);
    write_text(f, "one.csv", "text\nthe girl\n");
    snprintf(words, sizeof words, "--similarity --test_file %s", path_of(f, "one.csv"));
    embed_refused(f, words, NULL, "compares two texts, and a row has 1: name two columns");
    embed_refused(f, "--similarity --text a", NULL, "give --text_pair");
    embed_refused(f, "--similarity --text a --text_pair b --output_file x", NULL, "leave one out");
    embed_refused(f, "--text a --test_file b", NULL, "which one is embedded");
    embed_refused(f, "--text a --text_pair b", NULL, "give --similarity, too");
    embed_refused(f, "--text a --task clm", NULL, "--task clm: snug embed computes sentence embeddings");
    embed_well(f, "--text a --task embedding", NULL, &v);
    embed_refused(f, "", NULL, "snug embed needs --test_file FILE");
    json_decref(golden);
}

FIXTURE_TEST(test_loaded_embedding) {
    json_t *golden;
    json_t *one = case_of(f, &golden, 4), *texts = json_object_get(golden, "texts");
    snug_args *args = args_of(f, "--per_device_eval_batch_size 3 --max_seq_length 24 --prompt_name query");
    snug_model *model;
    struct vectors v = {.count = 0};
    const char *list[ROWS];
    for (size_t i = 0; i < json_array_size(texts); i++) list[i] = json_string_value(json_array_get(texts, i));
    if (snug_model_open(args, &model) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_string_equal(snug_model_describe(model)->task, "embedding");
    assert_int_equal(snug_model_describe(model)->class_count, 0);
    assert_int_equal(snug_model_predict(model, f->ctx, list, NULL, json_array_size(texts), take, &v), SNUG_OK);
    expect(&v, json_object_get(one, "query_vectors"), "loaded");
    assert_int_equal(snug_model_predict(model, f->ctx, list, list, 1, take, &v), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "pairs of texts are not for sentence embedding");
    snug_model_destroy(model);
    snug_args_destroy(args);
    json_decref(golden);
}

/* Writes a file of the folder, and expects a refusal. */
static void refused_with(struct fixture *f, const char *name, const char *text, const char *words, const char *says) {
    write_text(f, name, text);
    embed_refused(f, words, NULL, says);
}

#define TRANSFORMER "{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}"
#define POOLING "{\"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}"
#define NORMALIZE ", {\"path\": \"2_Normalize\", \"type\": \"sentence_transformers.models.Normalize\"}"
#define LONG "a_path_that_is_longer_than_any_that_sentence_transformers_writes"
#define MODULES(rest) "[" TRANSFORMER ", " POOLING rest "]"

FIXTURE_TEST(test_refused_folders) {
    static const char text[] = "--text a";
    json_t *golden;
    struct vectors v;
    case_of(f, &golden, 4);
    const char *dense = "2_Dense/config.json", *pooling = "1_Pooling/config.json", *list = "modules.json";
    refused_with(f, dense, "{\"in_features\": 9, \"out_features\": 4}", text, "do not follow a vector of 24");
    refused_with(f, dense, "{\"in_features\": 24, \"out_features\": 0}", text, "do not follow a vector of 24");
    refused_with(f, dense, "{\"in_features\": 24, \"out_features\": 12, \"use_residual\": true}", text, "use_residual");
    refused_with(f, dense, "{\"in_features\": 24, \"out_features\": 12, \"activation_function\": \"torch.nn.Mish\"}",
                 text, "torch.nn.Mish is not supported");
    refused_with(f, dense, "{\"in_features\": 24, \"out_features\": 13}", text,
                 "linear.weight is missing, or has another");
    refused_with(f, dense, "{\"in_features\": 24, \"out_features\": 2000000}", text, "do not follow a vector of 24");
    write_text(f, dense, "{\"in_features\": 24, \"out_features\": 12}");
    copy_file(f, GOLDEN "model/model.safetensors", "2_Dense/model.safetensors");
    embed_refused(f, text, NULL, "linear.weight is missing");
    unlink(path_of(f, "2_Dense/model.safetensors"));
    embed_refused(f, text, NULL, "2_Dense");
    unlink(path_of(f, "%s", dense));
    embed_refused(f, text, NULL, "2_Dense/config.json is missing, which modules.json lists");
    refused_with(f, list, "{", text, "modules.json:1:");
    refused_with(f, list, "[]", text, "is not a list of modules");
    refused_with(f, list, "[{\"path\": \"0_T\", \"type\": \"x.Transformer\"}, " POOLING "]", text,
                 "module 0, Transformer");
    refused_with(f, list, MODULES(", {\"path\": \"2_X\", \"type\": \"x.LayerNorm\"}"), text, "module 2, LayerNorm");
    refused_with(f, list, "[" POOLING ", " POOLING "]", text, "module 0, Pooling");
    refused_with(f, list, "[" TRANSFORMER ", " TRANSFORMER "]", text, "module 1, Transformer");
    refused_with(f, list, "[" TRANSFORMER ", {\"path\": \"\", \"type\": \"x.Pooling\"}]", text, "module 1, Pooling");
    refused_with(f, list, "[{\"type\": \"x.Transformer\"}, " POOLING "]", text, "module 0, Transformer");
    refused_with(f, list, "[" TRANSFORMER ", {\"type\": \"x.Pooling\"}]", text, "module 1, Pooling");
    refused_with(f, list, "[" TRANSFORMER ", {\"path\": \"" LONG "\", \"type\": \"x.Pooling\"}]", text,
                 "module 1, Pooling");
    refused_with(f, list, MODULES(", {\"path\": \"\", \"type\": \"x.Dense\"}"), text, "module 2, Dense");
    refused_with(f, list,
                 MODULES(NORMALIZE NORMALIZE NORMALIZE NORMALIZE NORMALIZE NORMALIZE NORMALIZE NORMALIZE NORMALIZE),
                 text, "module 10, Normalize");
    refused_with(f, list, MODULES(", {\"path\": \"2_X\"}"), text, "module 2, without a type");
    refused_with(f, list, MODULES(", {\"type\": \"x.Dense\"}"), text, "module 2, Dense in \"\"");
    write_text(f, list, MODULES(""));
    refused_with(f, pooling, "{", text, "1_Pooling/config.json:1:");
    write_text(f, pooling, "{\"pooling_mode\": \"mean\", \"pooling_mode_max_tokens\": true}");
    embed_well(f, text, NULL, &v);
    refused_with(f, pooling, "{\"pooling_mode\": \"max\"}", text, "this pooling is not supported");
    refused_with(f, pooling, "{\"pooling_mode\": [\"mean\", \"cls\"]}", text, "this pooling is not supported");
    refused_with(f, pooling, "{\"pooling_mode_max_tokens\": true, \"pooling_mode_mean_tokens\": false}", text,
                 "this pooling is not supported");
    refused_with(f, pooling, "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}", text,
                 "this pooling is not supported");
    refused_with(f, pooling, "{\"include_prompt\": 3}", text, "include_prompt");
    write_text(f, pooling, "{\"include_prompt\": false}");
    embed_well(f, text, NULL, &v);
    embed_refused(f, "--text a --prompt b --prompt_name query", NULL, "give one of them");
    embed_well(f, "--text a --prompt_name document", NULL, &v);
    embed_refused(f, "--text a --prompt_name nobody", NULL, "give one of its names, which are document, query");
    write_text(f, "config_sentence_transformers.json", "{}");
    embed_refused(f, "--text a --prompt_name nobody", NULL, "the model has no named prompts: leave it out");
    refused_with(f, "sentence_bert_config.json", "{\"max_seq_length\": -1}", text, "max_seq_length must be at least 1");
    write_text(f, "sentence_bert_config.json", "{\"max_seq_length\": 4, \"do_lower_case\": true}");
    write_text(f, pooling, "{\"pooling_mode\": [\"cls\"]}");
    embed_well(f, "--text a+man+is+eating+food", NULL, &v);
    assert_contains(f->log, "do_lower_case is not applied");
    assert_contains(f->log, "truncated");

    unlink(path_of(f, "%s", list));
    write_text(f, "config.json",
               "{\"model_type\": \"bert\", \"vocab_size\": 22, \"hidden_size\": 24, \"num_hidden_layers\": 2, "
               "\"num_attention_heads\": 2, \"intermediate_size\": 40, \"max_position_embeddings\": 40}");
    embed_well(f, text, NULL, &v);
    assert_int_equal(v.size, 24);
    write_text(f, list, MODULES(""));

    /* Its vectors are no labels. */
    snug_args *args = args_of(f, text);
    assert_int_equal(snug_predict(args, NULL, take, &v), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "snug embed writes the vectors");
    snug_args_destroy(args);
    json_decref(golden);
}

static snug_status evaluate(struct fixture *f, const char *words, double values[2]) {
    snug_args *args = args_of(f, words);
    snug_metrics *metrics;
    const snug_status status = snug_evaluate(args, NULL, &metrics);
    if (status == SNUG_OK) {
        assert_string_equal(metrics->items[0].name, "eval_pearson_cosine");
        assert_string_equal(metrics->items[1].name, "eval_spearman_cosine");
        values[0] = metrics->items[0].value, values[1] = metrics->items[1].value;
    }
    snug_metrics_destroy(metrics);
    snug_args_destroy(args);
    return status;
}

/* The correlations of the cosines that snug embed gives. */
FIXTURE_TEST(test_evaluation_of_pairs) {
    static const double scores[] = {5, 1, 3, 2.5};
    json_t *golden;
    struct vectors v;
    double values[2], x = 0, y = 0, xx = 0, yy = 0, xy = 0, ranks = 0;
    char words[256];
    case_of(f, &golden, 2);
    write_text(f, "sts.tsv",
               "sentence1\tsentence2\tscore\na man is eating food\tthe girl\t5\na\tfood\t1\n"
               "dogs run\tdogs run fast\t3\nplay music\tman\t2.5\n");
    snprintf(words, sizeof words, "--similarity --test_file %s", path_of(f, "sts.tsv"));
    embed_well(f, words, NULL, &v);
    for (int i = 0; i < 4; i++) {
        int above = 0, wanted = 0;
        x += v.score[i] / 4, y += scores[i] / 4;
        for (int k = 0; k < 4; k++) above += v.score[k] > v.score[i], wanted += scores[k] > scores[i];
        ranks += (above - wanted) * (above - wanted);
    }
    for (int i = 0; i < 4; i++) {
        const double a = v.score[i] - x, b = scores[i] - y;
        xx += a * a, yy += b * b, xy += a * b;
    }
    snprintf(words, sizeof words, "--per_device_eval_batch_size 3 --validation_file %s", path_of(f, "sts.tsv"));
    if (evaluate(f, words, values) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_true(fabs(values[0] - xy / sqrt(xx * yy)) < 1e-5);
    assert_true(fabs(values[1] - (1 - 6 * ranks / (4 * 15))) < 1e-9);
    assert_int_equal(evaluate(f, "--validation_file dummy:5x8", values), SNUG_OK);

    write_text(f, "odd.csv", "a,b,label\nman,girl,0.5\nfood,man,much\n");
    snprintf(words, sizeof words, "--validation_file %s", path_of(f, "odd.csv"));
    assert_int_equal(evaluate(f, words, values), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx),
                    "odd.csv:3: the score must be a number: the column \"label\" holds \"much\"");
    snprintf(words, sizeof words, "--max_eval_samples 1 --validation_file %s", path_of(f, "odd.csv"));
    assert_int_equal(evaluate(f, words, values), SNUG_OK); /* the second row is not read */
    write_text(f, "odd.jsonl",
               "{\"a\": \"man\", \"b\": \"a\", \"label\": true}\n"
               "{\"a\": \"girl\", \"b\": \"a\", \"label\": false}\n"
               "{\"a\": \"girl\", \"b\": \"a\", \"label\": [1]}\n");
    snprintf(words, sizeof words, "--validation_file %s", path_of(f, "odd.jsonl"));
    assert_int_equal(evaluate(f, words, values), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx),
                    "odd.jsonl:3: the score must be a number: the column \"label\" holds a list");
    write_text(f, "odd.csv", "a,b\nman,girl\n");
    snprintf(words, sizeof words, "--validation_file %s", path_of(f, "odd.csv"));
    assert_int_equal(evaluate(f, words, values), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "there are 2 texts and no score");
    snprintf(words, sizeof words, "--label_column_name none --validation_file %s", path_of(f, "odd.csv"));
    assert_int_equal(evaluate(f, words, values), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "none");
    write_text(f, "odd.csv", "a,label\nman,1\n");
    snprintf(words, sizeof words, "--validation_file %s", path_of(f, "odd.csv"));
    assert_int_equal(evaluate(f, words, values), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "there is 1 text and a score");
    json_decref(golden);
}

FIXTURE_TEST(test_columns_of_texts) {
    json_t *golden;
    struct vectors v;
    char words[256];
    case_of(f, &golden, 0);
    write_text(f, "c.csv", "id,first,second,label\n1,a,the girl,0.5\n2,food,man,true\n");
    snprintf(words, sizeof words, "--test_file %s", path_of(f, "c.csv"));
    embed_well(f, words, NULL, &v);
    assert_int_equal(v.size, 24);
    snprintf(words, sizeof words, "--test_file %s --text_column_name second", path_of(f, "c.csv"));
    embed_well(f, words, NULL, &v);
    snprintf(words, sizeof words, "--test_file %s --text_column_names first,second", path_of(f, "c.csv"));
    embed_refused(f, words, NULL, "a vector is of one text, and 2 columns are named");
    snprintf(words, sizeof words, "--test_file %s --text_column_name first --text_pair_column_name second",
             path_of(f, "c.csv"));
    embed_refused(f, words, NULL, "or compare two with --similarity");
    snprintf(words, sizeof words, "--similarity --test_file %s --text_column_names first,second,first",
             path_of(f, "c.csv"));
    embed_refused(f, words, NULL, "compares two texts, and a row has ");
    /* Two texts, each of as many tokens as a text may have. */
    snprintf(words, sizeof words,
             "--similarity --max_seq_length 4 --test_file %s --text_column_name second --text_pair_column_name second",
             path_of(f, "c.csv"));
    embed_well(f, words, NULL, &v);
    assert_true(fabs(v.score[0] - 1) < 1e-6);
    write_text(f, "n.csv", "id,label\n1,1\n2,0\n");
    snprintf(words, sizeof words, "--test_file %s", path_of(f, "n.csv"));
    embed_refused(f, words, NULL, "there is no text column");
    embed_well(f, "--test_file dummy:4x6-9", NULL, &v);
    assert_int_equal(v.size, 48);
    embed_refused(f, "--test_file dummy:4x1", NULL, "rows of 2 texts have at least 2 tokens");
    json_decref(golden);
}

TEST_MAIN(NULL, NULL)
