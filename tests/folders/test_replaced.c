/* SPDX-License-Identifier: Apache-2.0 */
/* A second training into a folder: no result of the first one is left, and what was changed or made by others is. */
#include "inspect/runs.h"
#include "io/manifest.h"
#include "model/weight_files.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static snug_status ignore_row(void *user, const snug_prediction *row) {
    (void)user, (void)row;
    return SNUG_OK;
}

#define FIRST "validation_file=@dev.csv eval_strategy=steps eval_steps=2 save_strategy=steps save_steps=2 max_steps=4"

/* A finished training with results of every command. */
static void train_first(struct fixture *f) {
    train(f, "out", FIRST);
    snug_args *args = plain_args(f, "model_name_or_path=@out test_file=@dev.csv output_dir=@out threads=1");
    ok(f, snug_predict(args, NULL, ignore_row, NULL));
    snug_args_destroy(args);
    static const char *const files[] = {
        "eval_results.json",   "all_results.json",     "train_results.json", "trainer_state.json",
        "predict_results.txt", "predict_results.json", "run_report.json",    "README.md"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) assert_true(exists(path_of(f, "out/%s", files[i])));
    *f->log = '\0';
}

/* Whether any value of a JSON file has a member that begins so. */
static bool has_member(const struct fixture *f, const char *path, const char *begins) {
    json_t *object = read_json(f, path_of(f, "%s", path)), *value;
    const char *key;
    bool found = false;
    json_object_foreach(object, key, value) found |= strncmp(key, begins, strlen(begins)) == 0;
    json_decref(object);
    return found;
}

static bool file_contains(const struct fixture *f, const char *path, const char *part) {
    char *text = read_text(f, path_of(f, "%s", path), NULL);
    const bool contains = strstr(text, part) != NULL;
    free(text);
    return contains;
}

/* A training that was never evaluated has no metric of another one. */
static void expect_own_results(struct fixture *f, const char *out) {
    char path[64];
    static const char *const gone[] = {"eval_results.json", "predict_results.txt", "predict_results.json"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) assert_false(exists(path_of(f, "%s/%s", out, gone[i])));
    snprintf(path, sizeof path, "%s/all_results.json", out);
    assert_true(has_member(f, path, "train_"));
    assert_false(has_member(f, path, "eval_") || has_member(f, path, "predict_"));
    snprintf(path, sizeof path, "%s/trainer_state.json", out);
    assert_false(file_contains(f, path, "eval_loss"));
    snprintf(path, sizeof path, "%s/README.md", out);
    assert_false(file_contains(f, path, "Accuracy"));
    /* The manifest lists what is there, and all of it is whole. */
    struct snug_folder folder;
    ok(f, snug_folder_open(f->ctx, NULL, path_of(f, "%s", out), &folder));
    ok(f, snug_manifest_verify(f->ctx, &folder, (const char *const[]){"config.json", "all_results.json", NULL}));
    snug_folder_close(&folder);
}

FIXTURE_TEST(test_second_training) {
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"max_steps=2", "warning: "},
        {"max_steps=2 overwrite_output_dir=True", ""},
        {"max_steps=2 save_strategy=steps save_steps=1 resume_from_checkpoint=False", "warning: "},
        {"task=mlm train_file=@train.txt max_steps=2", "warning: "}, /* another head */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char says[512];
        train_first(f);
        train(f, "out", cases[i].words);
        expect_own_results(f, "out");
        snprintf(says, sizeof says,
                 "%s%s has the model of an earlier training, which is replaced when this one ends; removed: ",
                 cases[i].says, path_of(f, "out"));
        const char *line = strstr(f->log, says);
        if (!line) fail_msg("\"%s\" is not in: %s", says, f->log);
        assert_contains(line, "eval_results.json");
        assert_contains(line, "predict_results.txt");
        assert_int_equal(strncmp(line, "warning: ", 9) == 0, *cases[i].says != '\0');
        assert_null(strstr(f->log, "removed what belongs to the model before")); /* it is done already */
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
}

/* From its first step on, an interrupted training has no results but its own, and the old model stays whole. */
FIXTURE_TEST(test_interrupted_training) {
    train_first(f);
    size_t bytes[2];
    char *before = read_text(f, path_of(f, "out/model.safetensors"), &bytes[0]);
    assert_int_equal(
        try_train(f, "out", "max_steps=9 save_strategy=steps save_steps=3 overwrite_output_dir=True", 5, NULL),
        SNUG_E_INTERRUPTED);
    static const char *const gone[] = {"eval_results.json", "all_results.json",   "trainer_state.json",
                                       "run_report.json",   "train_results.json", "predict_results.json",
                                       "README.md"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) assert_false(exists(path_of(f, "out/%s", gone[i])));
    char *after = read_text(f, path_of(f, "out/model.safetensors"), &bytes[1]);
    assert_true(bytes[0] == bytes[1]);
    assert_memory_equal(before, after, bytes[0]);
    free(before);
    free(after);
    snug_metrics metrics;
    snug_args *args = plain_args(f, "model_name_or_path=@out validation_file=@dev.csv output_dir= threads=1");
    ok(f, evaluate_args(f, args, NULL, &metrics));
    snug_args_destroy(args);
    snug_runs *runs; /* snug report: of this training, by its newest checkpoint */
    const char *const folders[] = {path_of(f, "out")};
    ok(f, snug_runs_create(f->ctx, folders, 1, &runs));
    assert_true(runs->items[0].step == 5 && runs->items[0].max_steps == 9);
    snug_runs_destroy(runs);
    train(f, "out", "max_steps=9 save_strategy=steps save_steps=3 resume_from_checkpoint=True");
    expect_own_results(f, "out");
}

/* A refused training changes nothing. A resumed one keeps the results of its first part until its model replaces that
   one's. */
FIXTURE_TEST(test_refused_and_resumed) {
    train_first(f);
    write_text(f, "out/checkpoint-3", "a file of the user");
    assert_int_equal(try_train(f, "out", "max_steps=4", 0, NULL), SNUG_E_IO);
    assert_true(has_member(f, "out/all_results.json", "eval_") && exists(path_of(f, "out/predict_results.txt")));
    assert_int_equal(unlink(path_of(f, "out/checkpoint-3")), 0);
    assert_int_equal(try_train(f, "out", "max_steps=9 resume_from_checkpoint=True", 6, NULL), SNUG_E_INTERRUPTED);
    assert_true(has_member(f, "out/all_results.json", "eval_") && exists(path_of(f, "out/predict_results.txt")));
    assert_null(strstr(f->log, "an earlier training"));
    train(f, "out", "max_steps=9 resume_from_checkpoint=True");
    assert_contains(f->log, "out: removed what belongs to the model before: ");
    assert_false(has_member(f, "out/all_results.json", "eval_"));
    assert_false(exists(path_of(f, "out/eval_results.json")) || exists(path_of(f, "out/predict_results.txt")));
    /* Of another training than the folder's last one, by its checkpoint: the results are not its own. */
    assert_int_equal(rename(path_of(f, "out/checkpoint-4"), path_of(f, "kept")), 0);
    train(f, "out", FIRST);
    *f->log = '\0';
    assert_int_equal(try_train(f, "out", "max_steps=9 resume_from_checkpoint=@kept", 6, NULL), SNUG_E_INTERRUPTED);
    assert_contains(f->log, "has the model of an earlier training");
    assert_false(exists(path_of(f, "out/all_results.json")));
}

/* Files that people changed, or that snug did not write, stay, with a word. */
FIXTURE_TEST(test_files_of_the_user) {
    train_first(f);
    write_text(f, "out/README.md", "# My model\n");
    write_text(f, "out/predict_results.txt", "index\tprediction\n0\twith a note\n");
    write_text(f, "out/notes.txt", "mine");
    train(f, "out", "max_steps=2");
    assert_true(file_contains(f, "out/README.md", "# My model"));
    assert_true(file_contains(f, "out/predict_results.txt", "with a note"));
    assert_true(file_contains(f, "out/notes.txt", "mine"));
    assert_false(exists(path_of(f, "out/predict_results.json")) || exists(path_of(f, "out/eval_results.json")));
    assert_contains(f->log, "warning: ");
    assert_contains(f->log, "out/README.md is of an earlier training, and was changed since: it stays");
    assert_contains(f->log, "out/predict_results.txt is of an earlier training, and was changed since: it stays");
    /* Instead of a listed file there is a link, whose target is not touched. */
    assert_int_equal(unlink(path_of(f, "out/predict_results.txt")), 0);
    assert_int_equal(symlink(path_of(f, "train.csv"), path_of(f, "out/predict_results.txt")), 0);
    train(f, "out", "max_steps=1");
    assert_true(file_contains(f, "train.csv", "sentence"));
    assert_true(exists(path_of(f, "out/predict_results.txt")));
    /* Another program's results: all_results.json is replaced, not merged with; what this run does not write stays. */
    assert_int_equal(mkdir(path_of(f, "foreign"), 0777), 0);
    write_text(f, "foreign/all_results.json", "{\"eval_accuracy\": 0.99, \"eval_samples\": 872}");
    write_text(f, "foreign/eval_results.json", "{\"eval_accuracy\": 0.99}");
    write_text(f, "foreign/predictions.txt", "O O\n");
    write_text(f, "foreign/config.json", "{}");
    *f->log = '\0';
    train(f, "foreign", "max_steps=1 overwrite_output_dir=True");
    assert_contains(f->log, "foreign has the model of an earlier training, which is replaced when this one ends\n");
    assert_false(has_member(f, "foreign/all_results.json", "eval_"));
    assert_true(file_contains(f, "foreign/eval_results.json", "0.99"));
    assert_true(exists(path_of(f, "foreign/predictions.txt")));
    /* Results of an evaluation alone, in a folder without a model. */
    snug_metrics metrics;
    snug_args *args = plain_args(f, "model_name_or_path=@out validation_file=@dev.csv output_dir=@results threads=1");
    ok(f, evaluate_args(f, args, NULL, &metrics));
    snug_args_destroy(args);
    *f->log = '\0';
    train(f, "results", "max_steps=1");
    assert_contains(f->log, "results has results of an earlier training; removed: eval_results.json, all_results.json");
    assert_false(has_member(f, "results/all_results.json", "eval_"));
}

/* The files of weights in a folder, sorted: "model-00001-of-00002.safetensors …". */
static const char *weights_in(const struct fixture *f, const char *folder) {
    static char list[16 * 260];
    char names[16][256];
    size_t count = 0;
    DIR *entries = opendir(path_of(f, "%s", folder));
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (snug_weight_files_has(entry->d_name) && count < 16)
            snprintf(names[count++], sizeof *names, "%s", entry->d_name);
    closedir(entries);
    qsort(names, count, sizeof *names, (int (*)(const void *, const void *))strcmp);
    *list = '\0';
    for (size_t i = 0; i < count; i++) snprintf(list + strlen(list), sizeof list - strlen(list), " %s", names[i]);
    return list;
}

static void expect_weights(const struct fixture *f, const char *folder, const char *expected) {
    const char *found = weights_in(f, folder);
    if (strcmp(found, expected) != 0) fail_msg("%s has%s, not%s", folder, found, expected);
}

static double loss_in(struct fixture *f, const char *folder) {
    snug_metrics metrics;
    snug_args *args = plain_args(f, "validation_file=@dev.csv output_dir= threads=1");
    ok(f, snug_args_set(args, "model_name_or_path", path_of(f, "%s", folder)));
    ok(f, evaluate_args(f, args, NULL, &metrics));
    snug_args_destroy(args);
    return metric_of(&metrics, "eval_loss");
}

#define ONE " model.safetensors"
#define TWO " model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json"
#define THREE                                                                                                          \
    " model-00001-of-00003.safetensors model-00002-of-00003.safetensors model-00003-of-00003.safetensors "             \
    "model.safetensors.index.json"
#define SIZE(files) "max_steps=2 save_strategy=steps save_steps=2 max_shard_size=" files

/* A model replaces one in fewer files, more files, and as many: no file of the old one is left, none is of both. */
FIXTURE_TEST(test_sharded_models) {
    static const struct {
        const char *words, *files;
    } cases[] = {{SIZE("50GB"), ONE},          {SIZE("60KB"), THREE},      {SIZE("0.00006GB seed=7"), THREE},
                 {SIZE("100KiB seed=7"), TWO}, {SIZE("50GB seed=7"), ONE}, {SIZE("100KB"), TWO},
                 {SIZE("50GB"), ONE}};
    double losses[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        train(f, "out", cases[i].words);
        expect_weights(f, "out", cases[i].files);
        expect_weights(f, "out/checkpoint-2", cases[i].files);
        expect_own_results(f, "out");
        losses[i] = loss_in(f, "out");
        assert_true(loss_in(f, "out/checkpoint-2") == losses[i]);
    }
    assert_true(losses[0] == losses[1] && losses[1] == losses[5] && losses[5] == losses[6]);
    assert_true(losses[2] == losses[3] && losses[3] == losses[4] && losses[2] != losses[0]);
    /* A checkpoint in shards is resumed with the bits of a run that was not interrupted. */
    train(f, "whole", "max_steps=4 save_strategy=steps save_steps=2 max_shard_size=60KB");
    assert_int_equal(try_train(f, "part", "max_steps=4 save_strategy=steps save_steps=2 max_shard_size=60KB", 3, NULL),
                     SNUG_E_INTERRUPTED);
    train(f, "part", "max_steps=4 max_shard_size=100KB resume_from_checkpoint=True");
    assert_true(loss_in(f, "part") == loss_in(f, "whole"));
    expect_weights(f, "part", TWO);
}

/* The index has all names of a weight that is saved under two. */
FIXTURE_TEST(test_names_in_shards) {
    static const char *const names[] = {"lm_head.bias", "lm_head.decoder.bias"};
    train(f, "out",
          "config_name= tokenizer_name= task=mlm train_file=dummy:8x8 max_steps=1 max_shard_size=10KB "
          "model_name_or_path=" SNUG_SOURCE_DIR "/tests/golden/families/roberta/mlm_untied");
    json_t *index = read_json(f, path_of(f, "out/model.safetensors.index.json"));
    const json_t *map = json_object_get(index, "weight_map");
    for (int i = 0; i < 2; i++) assert_non_null(json_object_get(map, names[i]));
    assert_true(json_equal(json_object_get(map, names[0]), json_object_get(map, names[1])));
    json_decref(index);
}

/* Shards of others: those beside another model's name are left, those that would be replaced are named before step 1.
 */
FIXTURE_TEST(test_shards_of_others) {
    static const char *const names[] = {"model-00002-of-00003.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mkdir(path_of(f, "out"), 0777), 0);
        write_text(f, path_of(f, "out/%s", names[i]) + strlen(f->folder) + 1, "another's");
        assert_int_equal(try_train(f, "out", SIZE("60KB"), 0, NULL), SNUG_E_IO);
        assert_contains(snug_error_message(f->ctx), names[i]);
        assert_contains(snug_error_message(f->ctx), "was not written by snug");
        assert_false(exists(path_of(f, "out/checkpoint-2")));
        train(f, "out", SIZE("50GB"));
        assert_true(file_contains(f, path_of(f, "out/%s", names[i]) + strlen(f->folder) + 1, "another's"));
        train(f, "out", SIZE("60KB overwrite_output_dir=True"));
        expect_weights(f, "out", THREE);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
    /* model.safetensors would be read instead of the shards. */
    assert_int_equal(mkdir(path_of(f, "out"), 0777), 0);
    write_text(f, "out/model.safetensors", "another's");
    assert_int_equal(try_train(f, "out", SIZE("60KB"), 0, NULL), SNUG_E_IO);
    train(f, "out", SIZE("60KB overwrite_output_dir=True"));
    expect_weights(f, "out", THREE);
}

/* A model that a program of your own saves into such a folder: its results are those of the model before. */
FIXTURE_TEST(test_saved_model) {
    snug_session *session;
    train_first(f);
    snug_args *args = training_args(f, NULL);
    ok(f, snug_session_create(args, &session));
    ok(f, snug_save_model(session, path_of(f, "out")));
    snug_session_destroy(session);
    snug_args_destroy(args);
    assert_contains(f->log, "out: removed what belongs to the model before: ");
    assert_false(exists(path_of(f, "out/all_results.json")) || exists(path_of(f, "out/README.md")));
    assert_true(exists(path_of(f, "out/checkpoint-4")));
}

TEST_MAIN(NULL, NULL)
