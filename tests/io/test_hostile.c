/* SPDX-License-Identifier: Apache-2.0 */
/* Model folders and checkpoints from an attacker: absurd sizes, names that lead elsewhere, pickles. Findings of
   tests/fuzz are here or among its seeds. */
#include <sys/stat.h>
#include <unistd.h>

#include "data/classes.h"
#include "data/dataset_impl.h"
#include "folders.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/family.h"
#include "model/weights.h"
#include "plan/stages.h"
#include "scratch.h"
#include "tokenizer/tokenizer.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

static const struct snug_hub_place anywhere; /* the default cache and revision */

/* ---- config.json ---------------------------------------------------------------------------------------------- */

FIXTURE_TEST(absurd_sizes) {
    static const struct {
        const char *json, *sentence;
    } cases[] = {
        {"{\"hidden_size\": 1000000000}", "hidden_size is 1000000000, expected 1 to"},
        {"{\"num_hidden_layers\": 1000000000}", "num_hidden_layers is 1000000000, expected 1 to"},
        {"{\"num_hidden_layers\": -12}", "num_hidden_layers is -12"},
        {"{\"num_attention_heads\": 0}", "num_attention_heads is 0"},
        {"{\"num_attention_heads\": 7}", "hidden_size 768 is not a multiple of num_attention_heads 7"},
        {"{\"hidden_size\": 1e308}", "\"hidden_size\" must be an integer"},
        {"{\"hidden_size\": 768.5}", "\"hidden_size\" must be an integer"},
        {"{\"hidden_size\": \"768\"}", "\"hidden_size\" must be an integer"},
        {"{\"hidden_size\": [768]}", "\"hidden_size\" must be an integer"},
        {"{\"hidden_size\": 99999999999999999999999999}", "\"hidden_size\" must be an integer"},
        {"{\"hidden_size\": NaN}", "not valid JSON"},
        {"{\"layer_norm_eps\": 1e400}", "not valid JSON"},
        {"{\"layer_norm_eps\": 1e308}", "layer_norm_eps is 1e+308"},
        {"{\"initializer_range\": -1}", "initializer_range is -1"},
        {"{\"vocab_size\": 9223372036854775807}", "vocab_size is 9223372036854775807"},
        {"{\"pad_token_id\": 30522}", "pad_token_id is 30522, expected one of the vocabulary's 30522 ids"},
        {"{\"pad_token_id\": 4611686018427387904}", "pad_token_id is 4611686018427387904"},
        {"{\"pad_token_id\": -30523}", "pad_token_id is -30523"},
        {"{\"num_labels\": 2000000}", "num_labels is 2000000"},
        /* each is possible by itself */
        {"{\"hidden_size\": 1048576, \"num_attention_heads\": 1, \"num_hidden_layers\": 512}", "no machine holds that"},
        {"{\"hidden_size\": 1048576, \"num_attention_heads\": 1, \"vocab_size\": 16777216}", "no machine holds that"},
    };
    const double begin = snug_seconds();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_config config;
        const char *path = write_text(s, "config.json", cases[i].json);
        assert_fails(s, snug_config_read(s->ctx, path, &config), SNUG_E_INPUT, cases[i].sentence);
    }
    assert_true(snug_seconds() - begin < 10);
}

/* Valid models, of a kind that snug does not support. */
FIXTURE_TEST(other_models) {
    static const struct {
        const char *json;
        snug_status status;
        const char *sentence;
    } cases[] = {
        {"{\"position_embedding_type\": \"relative_key\"}", SNUG_E_UNSUPPORTED, "position_embedding_type relative_key"},
        {"{\"is_decoder\": true}", SNUG_E_UNSUPPORTED, "is_decoder is not supported"},
        {"{\"hidden_act\": \"mish\"}", SNUG_E_UNSUPPORTED, "hidden_act mish is not supported"},
        {"{\"problem_type\": \"ranking\"}", SNUG_E_INPUT, "problem_type ranking is unknown"},
        {"{\"problem_type\": \"regression\"}", SNUG_E_UNSUPPORTED, "regression to 2 values"},
    };
    struct snug_config config;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(s, snug_config_read(s->ctx, write_text(s, "config.json", cases[i].json), &config), cases[i].status,
                     cases[i].sentence);
    const char *path = write_text(s, "config.json", "{\"num_labels\": 1}");
    assert_ok(s, snug_config_find(s->ctx, &anywhere, path, &config)); /* refused by the name of the file */
    assert_int_equal(config.labels.problem, SNUG_PROBLEM_REGRESSION);
    snug_config_free(&config);
}

FIXTURE_TEST(largest_config) {
    struct snug_config config;
    const char *path = write_text(s, "config.json", "{\"pad_token_id\": 30521, \"num_hidden_layers\": 512}");
    assert_ok(s, snug_config_read(s->ctx, path, &config));
    assert_int_equal(config.pad_token_id, 30521);
    snug_config_free(&config);
}

/* Sizes that fit 64 bits one by one, but not together. */
FIXTURE_TEST(sums_are_checked) {
    struct snug_program program, *programs[] = {&program};
    struct snug_layout layout;
    snug_program_init(&program, s->ctx);
    for (int i = 0; i < 64; i++) {
        int32_t tensor;
        assert_ok(s, snug_program_tensor(&program, (struct snug_tensor){.rows = INT64_C(1) << 31, .cols = 1 << 26},
                                         &tensor, "t%d", i));
    }
    assert_fails(s, snug_stage_place(s->ctx, programs, 1, snug_backend_cpu(), 1, 0, 0, &layout), SNUG_E_DOES_NOT_FIT,
                 "no machine holds that");
    snug_program_free(&program);
}

FIXTURE_TEST(names_are_bounded) {
    struct snug_program program;
    int32_t tensor;
    snug_program_init(&program, s->ctx);
    assert_fails(s, snug_program_tensor(&program, (struct snug_tensor){.rows = 1, .cols = 1}, &tensor, "%0300d", 1),
                 SNUG_E_INTERNAL, "is too long");
    snug_program_free(&program);
}

FIXTURE_TEST(code_is_not_run) {
    struct snug_config config;
    const char *path = write_text(s, "config.json", "{\"auto_map\": {\"AutoModel\": \"modeling.Evil\"}}");
    assert_ok(s, snug_config_read(s->ctx, path, &config));
    assert_contains(s->log, "auto_map names Python code; snug runs no code");
    assert_null(json_object_get(config.json, "auto_map")); /* so that saved files do not name it either */
    snug_config_free(&config);
    path = write_text(s, "config.json", "{\"model_type\": \"evil\", \"auto_map\": {\"AutoModel\": \"modeling.Evil\"}}");
    assert_fails(s, snug_config_read(s->ctx, path, &config), SNUG_E_UNSUPPORTED, "model_type evil is not supported");
}

/* Class names decide which class a label is: duplicates are refused, found among many in linear time. */
FIXTURE_TEST(names_of_classes) {
    struct snug_config config;
    const char *path = write_text(s, "config.json", "{\"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"a\"}}");
    assert_fails(s, snug_config_read(s->ctx, path, &config), SNUG_E_INPUT,
                 "config.json: id2label gives classes 0 and 2 the same name, \"a\"");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 400000; i++)
        fprintf(file, "%s\"%d\": \"name %d\"", i ? ", " : "{\"id2label\": {", i, i % 399999);
    fputs("}}", file);
    assert_int_equal(fclose(file), 0);
    const double begin = snug_seconds();
    assert_fails(s, snug_config_read(s->ctx, path, &config), SNUG_E_INPUT, "classes 0 and 399999 the same name");
    assert_true(snug_seconds() - begin < 20);
}

FIXTURE_TEST(label2id_is_compared) {
    static const struct {
        const char *label2id, *says;
    } cases[] = {
        {"{\"a\": 0, \"b\": 1}", NULL},
        {"{\"b\": 1}", NULL},
        {"null", NULL},
        {"{\"a\": 1, \"b\": 0}", "config.json: label2id contradicts id2label, where class 1 is not \"a\""},
        {"{\"a\": 0, \"c\": 7}", "where class 7 is not \"c\""},
        {"{\"a\": \"0\"}", "where class -1 is not \"a\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_config config;
        char json[256];
        snprintf(json, sizeof json, "{\"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"label2id\": %s}",
                 cases[i].label2id);
        *s->log = '\0';
        assert_ok(s, snug_config_read(s->ctx, write_text(s, "config.json", json), &config));
        if (cases[i].says)
            assert_contains(s->log, cases[i].says);
        else
            assert_null(strstr(s->log, "label2id"));
        snug_config_free(&config);
    }
}

/* What no run could read back is refused before a training writes it. */
FIXTURE_TEST(too_many_classes) {
    struct snug_labels labels;
    struct snug_config config;
    struct snug_dataset many = {.path = "many.csv"};
    char name[] = "a";
    many.cache.form = SNUG_LABELS_STRING;
    many.cache.raw = (struct snug_raw_labels){.text = name,
                                              .items = calloc(SNUG_CLASSES_MOST + 1, sizeof(struct snug_raw_label)),
                                              .count = SNUG_CLASSES_MOST + 1};
    many.left_out = calloc(SNUG_CLASSES_MOST + 1, sizeof *many.left_out);
    assert_true(many.cache.raw.items && many.left_out);
    assert_fails(s, snug_labels_of(s->ctx, &many, false, &labels), SNUG_E_UNSUPPORTED,
                 "many.csv: its labels are 1048577 different classes, but a model has at most 1048576");
    free(many.cache.raw.items);
    free(many.left_out);
    char json[64];
    snprintf(json, sizeof json, "{\"num_labels\": %d}", SNUG_CLASSES_MOST);
    assert_ok(s, snug_config_read(s->ctx, write_text(s, "config.json", json), &config)); /* the same limit */
    snug_config_free(&config);
    snprintf(json, sizeof json, "{\"num_labels\": %d}", SNUG_CLASSES_MOST + 1);
    assert_fails(s, snug_config_read(s->ctx, write_text(s, "config.json", json), &config), SNUG_E_INPUT,
                 "num_labels is 1048577, expected 1 to 1048576");
    FILE *file = fopen(scratch_path(s, "config.json"), "w");
    assert_non_null(file);
    for (int i = 0; i <= SNUG_CLASSES_MOST; i++) fprintf(file, "%s\"%d\":\"%d\"", i ? "," : "{\"id2label\":{", i, i);
    fputs("},\"num_labels\":2}", file);
    assert_int_equal(fclose(file), 0);
    assert_fails(s, snug_config_read(s->ctx, scratch_path(s, "config.json"), &config), SNUG_E_UNSUPPORTED,
                 "id2label names 1048577 classes, and a model has at most 1048576");
}

/* A control character takes six bytes of JSON: 25 names of 1 MiB take 300 MiB in id2label and label2id. */
FIXTURE_TEST(too_long_names) {
    enum { CLASSES = 25, LENGTH = 1 << 20 };
    struct snug_config config;
    struct snug_labels labels = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = CLASSES};
    assert_ok(s, snug_config_builtin(s->ctx, "bert-base-uncased", &config));
    assert_ok(s, snug_config_check_size(s->ctx, &config, "train.csv"));
    labels.names = calloc(CLASSES, sizeof *labels.names);
    assert_non_null(labels.names);
    for (int i = 0; i < CLASSES; i++) {
        labels.names[i] = malloc(LENGTH + 1);
        assert_non_null(labels.names[i]);
        memset(labels.names[i], 1, LENGTH);
        labels.names[i][0] = (char)('a' + i);
        labels.names[i][LENGTH] = '\0';
    }
    assert_ok(s, snug_config_set_task(s->ctx, &config, SNUG_TASK_CLASSIFICATION, &labels));
    assert_fails(s, snug_config_check_size(s->ctx, &config, "train.csv"), SNUG_E_UNSUPPORTED,
                 "train.csv: the names of its 25 classes make a config.json of 300.0 MiB, and at most 256.0");
    snug_config_free(&config);
    /* The limit is the reader's. */
    char *data;
    size_t size;
    assert_int_equal(truncate(write_text(s, "large", ""), SNUG_FILE_BYTES_MOST), 0);
    assert_ok(s, snug_file_read(s->ctx, NULL, scratch_path(s, "large"), &data, &size));
    free(data);
    assert_int_equal(truncate(scratch_path(s, "large"), SNUG_FILE_BYTES_MOST + 2), 0);
    assert_fails(s, snug_file_read(s->ctx, NULL, scratch_path(s, "large"), &data, &size), SNUG_E_INPUT,
                 "is larger than 256 MiB");
}

FIXTURE_TEST(too_many_values) {
    struct snug_config config;
    assert_ok(s, snug_config_builtin(s->ctx, "bert-base-uncased", &config));
    json_t *list = json_array(), *null = json_null(); /* a value that is not allocated */
    for (int64_t i = 0; i < SNUG_JSON_VALUES_MOST; i++) assert_int_equal(json_array_append_new(list, null), 0);
    assert_int_equal(json_object_set_new(config.json, "own", list), 0);
    assert_fails(s, snug_config_check_size(s->ctx, &config, "train.csv"), SNUG_E_UNSUPPORTED,
                 "values, and at most 8388608 can be read back");
    snug_config_free(&config);

    /* In a text: what a string holds does not count. */
    enum { NUMBERS = SNUG_JSON_VALUES_MOST, LENGTH = 2 * NUMBERS + 16 };
    json_error_t error;
    char *text = malloc(LENGTH);
    assert_non_null(text);
    for (int more = 0; more < 2; more++) {
        size_t length = (size_t)snprintf(text, LENGTH, "[[\"\\\",\"]");
        for (int64_t i = 0; i < NUMBERS - 3 + more; i++) length += (size_t)(memcpy(text + length, ",0", 2), 2);
        text[length++] = ']';
        json_t *parsed = snug_json_parse(text, length, 0, &error);
        if (more) {
            assert_null(parsed);
            assert_string_equal(error.text, "over 8388608 values");
        } else {
            assert_int_equal(json_array_size(parsed), NUMBERS - 2);
        }
        json_decref(parsed);
    }
    free(text);
}

/* ---- files of the folder -------------------------------------------------------------------------------------- */

FIXTURE_TEST(pickles) {
    struct snug_program program;
    struct snug_config config = {0};
    char *folder;
    snug_program_init(&program, s->ctx);
    const struct snug_memory memory = {0};
    assert_fails(s, weights_load(s->ctx, s->folder, &program, &config, &memory, 1, false), SNUG_E_INPUT,
                 "neither model.safetensors nor");
    write_text(s, "pytorch_model.bin.index.json", "{}");
    assert_fails(s, weights_look(s->ctx, s->folder), SNUG_E_INPUT, "index.json names pickled PyTorch files");
    assert_fails(s, weights_look(s->ctx, s->folder), SNUG_E_INPUT, "/pytorch_model-*.bin\")");
    write_text(s, "pytorch_model.bin", "PK\3\4");
    assert_fails(s, weights_look(s->ctx, s->folder), SNUG_E_INPUT, "/model.safetensors\", {");
    assert_fails(s, weights_load(s->ctx, s->folder, &program, &config, &memory, 1, false), SNUG_E_INPUT,
                 "pytorch_model.bin is a pickled PyTorch file");
    assert_fails(s, weights_load(s->ctx, s->folder, &program, &config, &memory, 1, false), SNUG_E_INPUT,
                 "weights_only=True");
    assert_fails(s, snug_model_locate(s->ctx, &anywhere, scratch_path(s, "pytorch_model.bin"), &folder), SNUG_E_INPUT,
                 "pytorch_model.bin is a file: give the folder");
}

FIXTURE_TEST(snapshots_stay_in_the_cache) {
    static const char *const refs[] = {"../../../elsewhere", "/elsewhere", "..", ".\n", "a/b"};
    char *folder;
    setenv("HF_HUB_CACHE", s->folder, 1);
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "models--a--b/refs")));
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        write_text(s, "models--a--b/refs/main", refs[i]);
        assert_fails(s, snug_model_locate(s->ctx, &anywhere, "a/b", &folder), SNUG_E_INPUT,
                     "is not the name of a snapshot");
    }
    write_text(s, "models--a--b/refs/main", "");
    assert_int_equal(truncate(s->path, (1 << 28) + 1), 0);
    assert_fails(s, snug_model_locate(s->ctx, &anywhere, "a/b", &folder), SNUG_E_INPUT,
                 "refs/main is larger than 256 MiB");
    write_text(s, "models--a--b/refs/main", "0123abc\n");
    assert_fails(s, snug_model_locate(s->ctx, &anywhere, "a/b", &folder), SNUG_E_INPUT, "there is no such folder");
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "models--a--b/snapshots/0123abc")));
    assert_ok(s, snug_model_locate(s->ctx, &anywhere, "a/b", &folder));
    assert_contains(folder, "models--a--b/snapshots/0123abc");
    free(folder);
    struct snug_config config;
    write_text(s, "models--a--b/snapshots/0123abc/config.json", "{\"num_hidden_layers\": 3}");
    assert_ok(s, snug_config_find(s->ctx, &anywhere, "a/b", &config));
    assert_int_equal(config.num_hidden_layers, 3);
    snug_config_free(&config);
    unsetenv("HF_HUB_CACHE");
    /* The same below the other folders that the arguments can name. */
    static const char *const variables[] = {"HF_HOME", "HOME"}, *const below[] = {"hub", ".cache/huggingface/hub"};
    for (int i = 0; i < 2; i++) {
        char name[64], *before = getenv(variables[i]) ? strdup(getenv(variables[i])) : NULL;
        snprintf(name, sizeof name, "%s/models--c--%d/refs", below[i], i);
        assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, name)));
        strcat(name, "/main");
        write_text(s, name, "1");
        snprintf(name, sizeof name, "%s/models--c--%d/snapshots/1", below[i], i);
        assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, name)));
        setenv(variables[i], s->folder, 1);
        assert_ok(s, snug_model_locate(s->ctx, &anywhere, i ? "c/1" : "c/0", &folder));
        free(folder);
        unsetenv(variables[i]);
        assert_fails(s, snug_model_locate(s->ctx, &anywhere, i ? "c/1" : "c/0", &folder), SNUG_E_INPUT,
                     "there is no such folder");
        if (before) setenv(variables[i], before, 1);
        free(before);
    }
}

/* Links are followed: the Hugging Face cache consists of them. */
FIXTURE_TEST(shards_behind_links) {
    struct snug_safetensors files;
    static const char shard[] =
        "\x3a\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}    \0\0\0";
    char target[512];
    scratch_write(s, "blob", shard, 8 + 0x3a + 4);
    snprintf(target, sizeof target, "%s", s->path);
    assert_int_equal(symlink(target, scratch_path(s, "m.safetensors")), 0);
    const char *path = write_text(s, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"m.safetensors\"}}");
    assert_ok(s, snug_safetensors_open(s->ctx, NULL, path, &files));
    snug_safetensors_close(&files);
    assert_int_equal(mkfifo(scratch_path(s, "pipe.safetensors"), 0600),
                     0); /* opening it would wait for a writer forever */
    path = write_text(s, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"pipe.safetensors\"}}");
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, path, &files), SNUG_E_INPUT, "is not a regular file");
}

/* Below an opened folder none is followed, wherever in the path it is, and nothing is made where it leads. */
FIXTURE_TEST(folders_behind_links) {
    struct snug_folder in = scratch_open(s), folder;
    static const char *const paths[] = {"link", "link/b", "a/link", "a/link/b/c", "a/dangling", "a/dangling/b"};
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "a")));
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "elsewhere")));
    assert_int_equal(symlink("elsewhere", scratch_path(s, "link")), 0);
    assert_int_equal(symlink("../elsewhere", scratch_path(s, "a/link")), 0);
    assert_int_equal(symlink("nothing", scratch_path(s, "a/dangling")), 0);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_fails(s, snug_folder_open(s->ctx, &in, paths[i], &folder), SNUG_E_IO,
                     "is a symbolic link, which is not");
        assert_fails(s, snug_folder_make(s->ctx, &in, paths[i], 0666, &folder), SNUG_E_IO, "link, which is not");
    }
    assert_int_equal(entries(scratch_path(s, "elsewhere")), 0);
    assert_int_equal(entries(scratch_path(s, "a")), 2);
    assert_ok(s, snug_folder_make(s->ctx, &in, "a//b/c/", 0666, &folder));
    assert_int_equal(entries(scratch_path(s, "a/b/c")), 0);
    snug_folder_close(&folder);
    assert_ok(s, snug_folder_open(s->ctx, &in, "a/b", &folder));
    assert_contains(folder.path, "/a/b");
    snug_folder_close(&folder);
    assert_fails(s, snug_folder_open(s->ctx, &in, "a/none/c", &folder), SNUG_E_IO, "cannot open folder ");
    assert_fails(s, snug_folder_open(s->ctx, NULL, scratch_path(s, "none"), &folder), SNUG_E_IO, "none: No such file");
    write_text(s, "a/file", "");
    assert_fails(s, snug_folder_make(s->ctx, &in, "a/file/c", 0666, &folder), SNUG_E_IO, "a/file: Not a directory");
    assert_int_equal(chmod(s->folder, 0755), 0);
    be_another_user(true);
    const snug_status status = snug_folder_make(s->ctx, &in, "a/of-another/c", 0666, &folder);
    be_another_user(false);
    if (geteuid() == 0) assert_fails(s, status, SNUG_E_IO, "a/of-another: Permission denied");
    snug_folder_close(&in);
}

FIXTURE_TEST(manifests) {
    static const struct {
        const char *json, *sentence;
    } cases[] = {
        {"[]", "must be an object"},
        {"\"../a\": {\"size\": 1}", "names of files in the same folder"},
        {"\"/dev/zero\": {\"size\": 1}", "names of files in the same folder"},
        {"\"b/../../a\": {\"size\": 1}", "names of files in the same folder"},
        {"\"..\": {\"size\": 1}", "names of files in the same folder"},
        {"\"\": {\"size\": 1}", "names of files in the same folder"},
        {"\"b//a\": {\"size\": 1}", "names of files in the same folder"},
        {"\"manifest.json\": {\"size\": 1}", "names of files in the same folder"},
        {"\"a\": 1", "must give a size and a checksum"},
        {"\"a\": {\"size\": 1}", "its checksum differs"},
    };
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "in/b")));
    write_text(s, "a", "a");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        const bool list = *cases[i].json == '[';
        snprintf(
            text, sizeof text,
            "{\"program\": \"snug\", \"version\": 2, \"run\": \"0123456789abcdef\", \"started\": 1, \"files\": %s%s%s}",
            list ? "" : "{", cases[i].json, list ? "" : "}");
        write_text(s, "in/manifest.json", text);
        assert_fails(s, folder_verify(s->ctx, scratch_path(s, "in")), SNUG_E_INPUT, cases[i].sentence);
    }
}

FIXTURE_TEST(files_read_whole_have_a_size_limit) {
    char *data;
    size_t size;
    write_text(s, "config.json", "{");
    assert_int_equal(truncate(s->path, (1 << 28) + 1), 0); /* a hole, which takes no space */
    assert_fails(s, snug_file_read(s->ctx, NULL, s->path, &data, &size), SNUG_E_INPUT,
                 "config.json is larger than 256 MiB");
    assert_null(data);
    assert_fails(s, snug_file_read(s->ctx, NULL, "/dev/zero", &data, &size), SNUG_E_INPUT,
                 "/dev/zero is not a regular file");
}

FIXTURE_TEST(messages_are_printable) {
    snug_fail(s->ctx, SNUG_E_INPUT, "tensor %s",
              "a\033[2J\r\n\x7f\xc2\x9b"
              "1mé中\u00a0");
    assert_string_equal(snug_error_message(s->ctx), "tensor a\\x1b[2J\\x0d\\x0a\\u007f\\u009b1mé中\u00a0");
    snug_clear_error(s->ctx);
    snug_log(s->ctx, SNUG_LOG_WARNING, "%s", "\a\b");
    assert_string_equal(s->log, "\\x07\\x08");
}

/* ---- the tokenizer -------------------------------------------------------------------------------------------- */

#define MODEL(vocab)                                                                                                   \
    "\"model\":{\"type\":\"WordPiece\",\"vocab\":{" vocab "}},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define WORDS "\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"[PAD]\":3,\"[MASK]\":4"
#define PROCESSOR(cls, sep)                                                                                            \
    ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\"," cls "],\"sep\":[\"[SEP]\"," sep "]}"

FIXTURE_TEST(ids_out_of_range) {
    static const struct {
        const char *json, *sentence;
    } cases[] = {
        {"{" MODEL(WORDS) PROCESSOR("1", "5") "}", "adds the id 5, which no token has"},
        {"{" MODEL(WORDS) PROCESSOR("2147483647", "2") "}", "adds the id 2147483647"},
        {"{" MODEL(WORDS) PROCESSOR("4294967297", "2") "}", "there is no cls_token"},
        {"{" MODEL(WORDS) PROCESSOR("1", "-1") "}", "there is no sep_token"},
        {"{" MODEL(WORDS ",\"far\":16777215") "}", "has 6 tokens, and ids up to 16777215"},
        {"{" MODEL(WORDS ",\"far\":2147483647") "}", "ids up to 2147483647; at most"},
        {"{" MODEL(WORDS ",\"far\":-1") "}", "the id of token \"far\" is not a number from 0"},
    };
    struct snug_tokenizer *tokenizer;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(s, "tokenizer.json", cases[i].json);
        assert_fails(s, snug_tokenizer_load(s->ctx, s->folder, snug_family_tokenizer_class, &tokenizer), SNUG_E_INPUT,
                     cases[i].sentence);
    }
    write_text(s, "tokenizer.json", "{" MODEL(WORDS) PROCESSOR("1", "2") "}");
    assert_ok(s, snug_tokenizer_load(s->ctx, s->folder, snug_family_tokenizer_class, &tokenizer));
    snug_tokenizer_free(tokenizer);
}

/* A vocab.txt that is not used may be anything, such as a link to a private key: it must not be copied into the output.
 */
FIXTURE_TEST(only_what_is_used_is_copied) {
    struct snug_tokenizer *tokenizer;
    static const char *const vocabularies[] = {"a secret\nof two lines\n", "twice\ntwice\n"};
    write_text(s, "tokenizer.json", "{" MODEL(WORDS) PROCESSOR("1", "2") "}");
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "out")));
    for (int i = 0; i < 2; i++) {
        write_text(s, "vocab.txt", vocabularies[i]);
        assert_ok(s, snug_tokenizer_load(s->ctx, s->folder, snug_family_tokenizer_class, &tokenizer));
        assert_ok(s, tokenizer_save(s->ctx, tokenizer, scratch_path(s, "out")));
        assert_true(snug_file_exists(NULL, scratch_path(s, "out/tokenizer.json")));
        assert_false(snug_file_exists(NULL, scratch_path(s, "out/vocab.txt")));
        snug_tokenizer_free(tokenizer);
    }
}

/* Time is linear in their number: a search through all tokens for each would take minutes. */
FIXTURE_TEST(many_added_tokens) {
    struct snug_tokenizer *tokenizer;
    enum { TOKENS = 200000 };
    FILE *file = fopen(scratch_path(s, "tokenizer.json"), "w");
    assert_non_null(file);
    fprintf(file, "{%s,\"added_tokens\":[", MODEL(WORDS) PROCESSOR("1", "2"));
    for (int i = 0; i < TOKENS; i++) fprintf(file, "%s{\"id\":%d,\"content\":\"<%d>\"}", i ? "," : "", 5 + i, i);
    fputs("]}", file);
    assert_int_equal(fclose(file), 0);
    const double begin = snug_seconds();
    assert_ok(s, snug_tokenizer_load(s->ctx, s->folder, snug_family_tokenizer_class, &tokenizer));
    assert_true(snug_seconds() - begin < 60);
    assert_int_equal(snug_tokenizer_vocab_size(tokenizer), 5 + TOKENS);
    snug_tokenizer_free(tokenizer);
}

TEST_MAIN(NULL, NULL)
