/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing calls: call number 1, 2, 3 … of snug's own calls for memory and files fails, once or from then on, or the
 * process is killed there, until the command finishes. Each time there must be an error message and an exit code, no
 * incomplete file, and a complete last checkpoint; the run that is resumed from it must end with the same bits.
 *
 * build/test_failures ALLOCATIONS CALLS [SCENE [LOOP [FROM [TO]]]]: how many calls of each loop are tried, spread over
 * all; 0 is every one. SCENE is the name of a test below, such as masked; LOOP is one of loops[], from call FROM on.
 */
#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "nursery.h"

#define FIXTURE struct fixture *f, set_up_here, tear_down_here
static int set_up_here(void **state);
static int tear_down_here(void **state);

enum { POINTS_IN_CI = 5 };

static struct {
    int64_t points[2]; /* number of allocations and of calls for files to try; 0: all */
    const char *loop;  /* the only scene or loop to run, or NULL */
    int64_t from, to;
} wanted = {{POINTS_IN_CI, POINTS_IN_CI}, NULL, 1, INT64_MAX};

struct known { /* a set of numbers */
    uint64_t *numbers;
    size_t count, capacity;
};

static struct nursery nursery;
static struct fault_places *places; /* of the calls of a loop, shared with the processes */
static struct known tried_places;
static int failed; /* loops of a scene */

/* ---- commands ------------------------------------------------------------------------------------------------- */

#define TINY                                                                                                           \
    "train --config_name tiny --tokenizer_name tiny --train_file few.csv --validation_file dev.csv --output_dir out "  \
    "--per_device_train_batch_size 4 --max_steps 2 --threads 1 --learning_rate 1e-3 --logging_steps 2 "                \
    "--eval_strategy steps --eval_steps 1 --save_steps 1 --device cpu "

struct scene {
    const char *name, *words;
    const char *given;      /* out is initially a copy of it; NULL: out does not exist */
    bool cold;              /* without a token cache */
    const char *results[4]; /* files whose bits must not depend on failures */
    const char *json;       /* JSON that must have the same members and texts */
};

static const struct scene scenes[] = {
    {"scratch",
     TINY "--report_to tensorboard --dataloader_num_workers 1 --json",
     NULL,
     true,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors", "out/checkpoint-1/model.safetensors"},
     "stdout"},
    {"resumed",
     TINY "--resume_from_checkpoint True --save_total_limit 1 --load_best_model_at_end",
     "begun",
     false,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors"},
     "out/all_results.json"},
    {"offloaded",
     TINY "--model_name_or_path begun/checkpoint-1 --offload optimizer,gradients,weights,activations --dtype bfloat16 "
          "--gradient_accumulation_steps 2 --save_strategy epoch",
     NULL,
     false,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors"},
     "out/all_results.json"},
    {"masked",
     TINY "--task mlm --train_file few.txt --validation_file dev.txt --optim adamw_8bit --max_seq_length 32 "
          "--train_sampling_strategy group_by_length",
     NULL,
     true,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors"},
     "out/all_results.json"},
    {"replaced",
     TINY "--validation_file= --eval_strategy no --seed 7",
     "done",
     false,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors"},
     "out/all_results.json"},
    {"evaluation",
     "eval --model_name_or_path begun --validation_file dev.csv --threads 1 --output_dir out --device cpu",
     NULL,
     true,
     {NULL},
     "out/eval_results.json"},
    {"prediction",
     "predict --model_name_or_path begun --test_file dev.csv --threads 1 --json --device cpu",
     NULL,
     false,
     {"stdout"},
     NULL},
    {"plan",
     "plan --model_name_or_path begun --train_file few.csv --validation_file dev.csv --threads 1 --json --device cpu",
     NULL,
     false,
     {NULL},
     "stdout"},
    {"sharded", /* over a model in as many shards */
     TINY "--validation_file= --eval_strategy no --seed 7 --save_strategy no --max_shard_size 10KB",
     "shards",
     false,
     {"out/model.safetensors.index.json", "out/model-00001-of-00003.safetensors",
      "out/model-00003-of-00003.safetensors"},
     "out/all_results.json"},
};

static const struct loop {
    const char *name;
    enum fault_calls calls;
    enum fault_effect effect;
    bool of_trainings;
} loops[] = {
    {"memory-once", FAULT_MEMORY, FAULT_ONCE, false}, {"memory-all", FAULT_MEMORY, FAULT_ALL, false},
    {"files-once", FAULT_FILES, FAULT_ONCE, false},   {"files-all", FAULT_FILES, FAULT_ALL, false},
    {"files-full", FAULT_FILES, FAULT_WRITES, true},  {"files-kill", FAULT_FILES, FAULT_KILL, true},
};

static bool trains(const struct scene *scene) { return strncmp(scene->words, "train ", 6) == 0; }

/* Runs the command in a process of its own, without failures; returns its wait status. */
static int run(const char *words) {
    nursery.run->faults = (struct faults){0};
    return nursery_run(&nursery, words);
}

static void in_folder(const struct fixture *f, const char *command) {
    char line[1024];
    snprintf(line, sizeof line, "cd %s && %s", f->folder, command);
    assert_int_equal(system(line), 0);
}

static void copy_file(const char *from, const char *to) {
    char buffer[1 << 14];
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    assert_true(in && out);
    for (size_t size; (size = fread(buffer, 1, sizeof buffer, in)) > 0;)
        assert_int_equal(fwrite(buffer, 1, size, out), size);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void copy_folder(const char *from, const char *to) {
    char in[512], out[512];
    DIR *folder = opendir(from);
    assert_non_null(folder);
    assert_int_equal(mkdir(to, 0777), 0);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(in, sizeof in, "%s/%s", from, entry->d_name);
        snprintf(out, sizeof out, "%s/%s", to, entry->d_name);
        if (entry->d_type == DT_DIR)
            copy_folder(in, out);
        else
            copy_file(in, out);
    }
    closedir(folder);
}

static void prepare(const struct fixture *f, const struct scene *scene) {
    assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
    if (scene->cold) assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "cache")), SNUG_OK);
    if (scene->given) copy_folder(path_of(f, "%s", scene->given), path_of(f, "out"));
}

/* ---- digests of files ----------------------------------------------------------------------------------------- */

/* A digest of a file: of its bytes, or of those that do not depend on a clock. */
static uint64_t content_of(const struct fixture *f, const char *path, const char *name) {
    /* Results are not read by other runs; a manifest is compared separately, because it has checksums of files with
       times. */
    if (strstr(name, "_results.json") || strcmp(name, "run_report.json") == 0 || strcmp(name, "manifest.json") == 0 ||
        strcmp(name, ".snug.lock") == 0)
        return 0;
    size_t size;
    char *text = read_text(f, path, &size);
    json_t *json = strcmp(name, "trainer_state.json") == 0 ? json_loads(text, 0, NULL) : NULL, *entry, *value;
    if (json) {
        size_t i;
        const char *key;
        void *next;
        json_array_foreach(json_object_get(json, "log_history"), i, entry)
            json_object_foreach_safe(entry, next, key, value) if (is_clock(key)) json_object_del(entry, key);
        free(text);
        text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
        assert_non_null(text);
        size = strlen(text);
        json_decref(json);
    }
    const uint64_t sum = XXH3_64bits(text, size);
    free(text);
    return sum;
}

/* A digest of a folder's files, independent of their order; names without the parts that depend on a clock or a process
   id. */
static uint64_t state_of(const struct fixture *f, const char *path, uint64_t outer) {
    char inner[512], name[256];
    uint64_t sum = 1;
    DIR *folder = opendir(path);
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        snprintf(name, sizeof name, "%s", entry->d_name);
        char *number = strstr(name, ".snug-");
        if (number && number[strcspn(number, "0123456789")]) *number = '\0';
        if (strcmp(name, "runs") == 0) continue; /* TensorBoard's files, which no run reads */
        const uint64_t place = XXH3_64bits_withSeed(name, strlen(name), outer);
        const uint64_t content =
            entry->d_type == DT_DIR ? state_of(f, inner, place) : content_of(f, inner, entry->d_name);
        sum += XXH3_64bits_withSeed(&content, sizeof content, place);
    }
    closedir(folder);
    return sum;
}

/* ---- checks after a failure ----------------------------------------------------------------------------------- */

struct trial {
    const struct scene *scene;
    const struct loop *loop;
    struct faults faults; /* as the process left them */
    struct known *judged;
    int64_t tried, resumed, failures;
};

/* Reports which call it was and all that the command printed. The loop continues, so that one run shows every such
   call. */
static void wrong(const struct fixture *f, struct trial *t, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void wrong(const struct fixture *f, struct trial *t, const char *format, ...) {
    if (t->failures++ >= 20) return;
    char *errors = read_text(f, path_of(f, "stderr"), NULL);
    va_list values;
    fprintf(stderr, "%s, %s %lld (%s): ", t->scene->name, t->loop->name, (long long)t->faults.at, t->faults.name);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n--- its stderr:\n%s---\n", errors);
    free(errors);
}

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Checks a folder: every checkpoint is complete, and there are no unfinished files, unless they may be left. */
static int64_t look_at(struct fixture *f, const char *name, bool may_be_left, struct trial *t) {
    int64_t checkpoints = 0;
    DIR *folder = opendir(path_of(f, "%s", name));
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *path = path_of(f, "%s/%s", name, entry->d_name);
        if (*entry->d_name == '.') {
            if (!may_be_left && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                wrong(f, t, "%s was not removed", path);
        } else if (starts_with(entry->d_name, "checkpoint-")) {
            if (folder_verify(f->ctx, path) != SNUG_OK) wrong(f, t, "%s", snug_error_message(f->ctx));
            checkpoints++;
        } else if (strstr(entry->d_name, ".json")) {
            json_decref(read_json(f, path));
        }
    }
    closedir(folder);
    return checkpoints;
}

/* The shards that an index names are all of one model: of the one before, or of the new one. */
static void check_shards(const struct fixture *f, struct trial *t) {
    json_t *index, *map, *shard;
    const char *key;
    bool old = true, new = true;
    if (!t->scene->given || strcmp(t->scene->given, "shards") != 0) return;
    if (access(path_of(f, "out/model.safetensors.index.json"), F_OK)) {
        if (t->loop->effect == FAULT_KILL) wrong(f, t, "there is no index");
        return;
    }
    index = read_json(f, path_of(f, "out/model.safetensors.index.json"));
    map = json_object_get(index, "weight_map");
    json_object_foreach(map, key, shard) {
        const char *name = json_string_value(shard);
        old = old && !strstr(name, ".new.") &&
              same_file(f, path_of(f, "out/%s", name), path_of(f, "%s/%s", t->scene->given, name));
        new &= same_file(f, path_of(f, "out/%s", name),
                         path_of(f, "whole/out/%.*s.safetensors", (int)strcspn(name, "."), name));
    }
    json_decref(index);
    if (!old && !new) wrong(f, t, "the index names shards of two models");
}

/* One sentence, which names what failed. */
static void check_message(const struct fixture *f, struct trial *t) {
    char *errors = read_text(f, path_of(f, "stderr"), NULL), *line = strstr(errors, "snug: ");
    if (!line || strlen(line) < 20)
        wrong(f, t, "no error message");
    else if (!strstr(line, "memory") && !strstr(line, "/") && !strstr(line, ".csv") && !strstr(line, ".txt") &&
             !strstr(line, "out") && !strstr(line, "thread") && !strstr(line, "folder "))
        wrong(f, t, "the message does not name the call");
    free(errors);
}

/* Members and texts must be the same. Numbers are free memory and clocks, or null where these cannot be read. A run
   that cannot read its rates assumes others. */
static bool is_like(const json_t *a, const json_t *b) {
    const bool free_a = json_is_number(a) || json_is_null(a), free_b = json_is_number(b) || json_is_null(b);
    const char *key;
    json_t *inner;
    size_t i;
    if (free_a || free_b) return free_a && free_b;
    if (json_typeof(a) != json_typeof(b) || json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)(uintptr_t)a, key, inner) {
        const json_t *other = json_object_get(b, key);
        if (!other) return false;
        if (strcmp(key, "seconds_from") != 0 && !is_like(inner, other)) return false;
    }
    json_array_foreach(a, i, inner) if (i >= json_array_size(b) || !is_like(inner, json_array_get(b, i))) return false;
    if (json_array_size(a) != json_array_size(b)) return false;
    return !json_is_string(a) || strcmp(json_string_value(a), json_string_value(b)) == 0;
}

static bool has_same_members(const struct fixture *f, const char *file) {
    json_t *a = read_json(f, path_of(f, "%s", file)), *b = read_json(f, path_of(f, "whole/%s", file));
    const bool same = is_like(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

/* Of predict --json, the rows: the run has measured bytes and seconds. */
static bool same_result(const struct fixture *f, const char *file) {
    char *a = without_run(read_text(f, path_of(f, "%s", file), NULL));
    char *b = without_run(read_text(f, path_of(f, "whole/%s", file), NULL));
    const bool same = strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

static void check_results(const struct fixture *f, struct trial *t, bool told) {
    for (size_t i = 0; i < 4 && t->scene->results[i]; i++)
        if (strcmp(t->scene->results[i], "stdout") == 0
                ? !same_result(f, "stdout")
                : !same_file(f, path_of(f, "%s", t->scene->results[i]), path_of(f, "whole/%s", t->scene->results[i])))
            wrong(f, t, "%s differs from that of a run without failures", t->scene->results[i]);
    static const char *const of_first[] = {"eval_results.json", "predict_results.txt", "predict_results.json"};
    const bool replaces = t->scene->given && strcmp(t->scene->given, "done") == 0;
    for (size_t i = 0; i < sizeof of_first / sizeof *of_first && replaces; i++)
        if (access(path_of(f, "out/%s", of_first[i]), F_OK) == 0)
            wrong(f, t, "%s of the training before is left", of_first[i]);
    if (told && t->scene->json && !has_same_members(f, t->scene->json)) wrong(f, t, "%s is incomplete", t->scene->json);
}

/* Whether the set contains the number; adds it. */
static bool is_known(struct known *known, uint64_t number) {
    for (size_t i = 0; i < known->count; i++)
        if (known->numbers[i] == number) return true;
    if (known->count == known->capacity) {
        known->capacity = 2 * known->capacity + 64;
        known->numbers = realloc(known->numbers, known->capacity * sizeof number);
        assert_non_null(known->numbers);
    }
    known->numbers[known->count++] = number;
    return false;
}

/* Whether another trial has left the same files: the resumed run sees nothing else, so it need not be repeated. */
static bool is_judged(const struct fixture *f, struct known *judged) {
    return is_known(judged, state_of(f, path_of(f, "out"), 1) + 3 * state_of(f, path_of(f, "cache"), 2));
}

static void resume(struct fixture *f, struct trial *t, bool any) {
    char words[2048];
    snprintf(words, sizeof words, "%s%s", t->scene->words, any ? " --resume_from_checkpoint True" : "");
    t->resumed++;
    if (run(words) != 0)
        wrong(f, t, "it cannot be resumed");
    else
        check_results(f, t, false);
    look_at(f, "out", false, t); /* the leftovers of a killed run are removed */
    look_at(f, "cache", false, t);
}

/* Returns true where the command ended before the failing call. */
static bool check(struct fixture *f, struct trial *t, int status) {
    const bool kills = t->loop->effect == FAULT_KILL;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && kills;
    if (!killed && !WIFEXITED(status)) wrong(f, t, "ended by signal %d", WTERMSIG(status));
    const int code = killed ? 1 : WEXITSTATUS(status);
    if (code != 0 && code != 1) wrong(f, t, "exit code %d", code);
    if (code == 1 && !killed && !*t->faults.name) wrong(f, t, "the command fails without a failing call");
    if (code == 1 && !killed) check_message(f, t);
    if (t->faults.held && !killed) wrong(f, t, "%lld resources are not freed", (long long)t->faults.held);
    /* A run that cannot remove or list its own unfinished files leaves its lock file to the next run, as a killed one.
     */
    const bool locked = *t->faults.name && access(path_of(f, "out/.snug.lock"), F_OK) == 0;
    const int64_t checkpoints = look_at(f, "out", killed || locked, t);
    look_at(f, "cache", killed, t);
    check_shards(f, t);
    if (code == 0) check_results(f, t, true);
    if (locked || (code != 0 && trains(t->scene) && !is_judged(f, t->judged))) resume(f, t, checkpoints > 0);
    return code == 0 && !*t->faults.name;
}

/* ---- the loops ------------------------------------------------------------------------------------------------ */

static bool try_one(struct fixture *f, struct trial *t, int64_t at) {
    prepare(f, t->scene);
    nursery.run->faults = (struct faults){
        .at = at, .calls = t->loop->calls, .effect = t->loop->effect, .places = at == 0 ? places : NULL};
    const int status = nursery_run(&nursery, t->scene->words);
    t->faults = nursery.run->faults;
    t->tried++;
    return check(f, t, status);
}

static void try_all(struct fixture *f, const struct scene *scene, const struct loop *loop, struct known *judged) {
    struct trial t = {.scene = scene, .loop = loop, .judged = judged};
    const time_t begun = time(NULL);
    time_t told = begun;
    places->count = 0;
    try_one(f, &t, 0);
    const int64_t total = t.faults.count, points = wanted.points[loop->calls];
    const int64_t stride = points && total > points ? total / points : 1;
    bool over = false;
    /* In the sanitized build, which sees leaks and memory errors, a call of each place fails once, unless an earlier
       loop has tried it. */
    for (int64_t i = 0; SANITIZED && stride > 1 && loop->effect == FAULT_ONCE && i < places->count; i++)
        if (!is_known(&tried_places, places->items[i].place)) try_one(f, &t, places->items[i].number);
    for (int64_t at = wanted.from; !over && at <= wanted.to && !(t.failures && at > total); at += stride) {
        over = try_one(f, &t, at) && at > total;
        if (time(NULL) < told + 20) continue;
        told = time(NULL);
        print_message("%s, %s: %lld of %lld\n", scene->name, loop->name, (long long)at, (long long)total);
        fflush(stdout);
    }
    print_message("%s, %s: %lld calls, %lld tried, %lld resumed, %lld wrong, %lld s\n", scene->name, loop->name,
                  (long long)total, (long long)t.tried, (long long)t.resumed, (long long)t.failures,
                  (long long)(time(NULL) - begun));
    fflush(stdout);
    if (t.failures) failed++;
}

static void test_scene(struct fixture *f, const struct scene *scene) {
    struct known judged = {0};
    failed = 0;
    prepare(f, scene);
    assert_int_equal(nursery_warm(&nursery, scene->words), 0);
    prepare(f, scene);
    assert_int_equal(run(scene->words), 0);
    in_folder(f, "rm -rf whole; mkdir whole; cp -r stdout whole; test ! -e out || cp -r out whole/out");
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        if ((trains(scene) || !loops[i].of_trainings) && (!wanted.loop || strcmp(loops[i].name, wanted.loop) == 0))
            try_all(f, scene, &loops[i], &judged);
    free(judged.numbers);
    assert_int_equal(failed, 0);
}

TEST_IN(test_scratch, void *fixture, set_up_here, tear_down_here) { test_scene(fixture, &scenes[0]); }
TEST_IN(test_resumed, void *fixture, set_up_here, tear_down_here) { test_scene(fixture, &scenes[1]); }
TEST_IN(test_offloaded, void *fixture, set_up_here, tear_down_here) { test_scene(fixture, &scenes[2]); }
TEST_IN(test_masked, void *fixture, set_up_here, tear_down_here) { test_scene(fixture, &scenes[3]); }
TEST_IN(test_evaluation, void *fixture, set_up_here, tear_down_here) { test_scene(fixture, &scenes[5]); }
TEST_IN(test_prediction, void *fixture, set_up_here, tear_down_here) { test_scene(fixture, &scenes[6]); }

TEST_IN(test_plan, void *fixture, set_up_here, tear_down_here) { test_scene(fixture, &scenes[7]); }

TEST_IN(test_replaced, void *fixture, set_up_here, tear_down_here) {
    in_folder(fixture, "cp -r begun done && rm -rf done/checkpoint-1");
    assert_int_equal(run("predict --model_name_or_path done --test_file dev.csv --output_dir done --threads 1 "
                         "--device cpu"),
                     0);
    test_scene(fixture, &scenes[4]);
}

TEST_IN(test_sharded, void *fixture, set_up_here, tear_down_here) {
    assert_int_equal(run(TINY "--save_strategy no --max_shard_size 10KB"), 0);
    in_folder(fixture, "mv out shards");
    test_scene(fixture, &scenes[8]);
}

/* Kills a run over a model in as many shards; whether it had not begun to name the new ones. */
static bool kill_at(struct fixture *f, struct trial *t, int64_t at) {
    prepare(f, t->scene);
    nursery.run->faults = (struct faults){.at = at, .calls = FAULT_FILES, .effect = FAULT_KILL};
    nursery_run(&nursery, t->scene->words);
    t->faults = nursery.run->faults;
    check_shards(f, t);
    return !exists(path_of(f, "out/model-00001-of-00003.new.safetensors")) &&
           same_file(f, path_of(f, "out/model-00001-of-00003.safetensors"),
                     path_of(f, "shards/model-00001-of-00003.safetensors"));
}

/* At each call from the first shard's further name to the removal of the last one's. */
TEST_IN(test_killed_between_shards, void *fixture, set_up_here, tear_down_here) {
    struct fixture *f = fixture;
    struct trial t = {.scene = &scenes[8], .loop = &loops[5]};
    assert_int_equal(run(TINY "--save_strategy no --max_shard_size 10KB"), 0);
    in_folder(f, "mv out shards");
    prepare(f, t.scene);
    assert_int_equal(run(t.scene->words), 0);
    in_folder(f, "rm -rf whole; mkdir whole; cp -r out whole/out");
    kill_at(f, &t, INT64_MAX);
    int64_t low = 0, high = t.faults.count, named = 0; /* after `high` calls it has begun */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        *(kill_at(f, &t, middle) ? &low : &high) = middle;
    }
    for (int64_t at = high; kill_at(f, &t, at), exists(path_of(f, "out/model-00001-of-00003.new.safetensors")); at++)
        named++;
    assert_true(named >= 10);
    assert_int_equal(t.failures, 0);
    /* What is left is of the run that was killed: the next one removes it, also with other files. */
    assert_false(kill_at(f, &t, high));
    assert_true(exists(path_of(f, "out/model-00001-of-00003.new.safetensors")));
    assert_int_equal(run(TINY "--validation_file= --eval_strategy no --save_strategy no"), 0);
    assert_false(exists(path_of(f, "out/model-00001-of-00003.new.safetensors")));
}

/* ---- disk space ----------------------------------------------------------------------------------------------- */

/* The figure before unit in the message of a run that finds too little space. */
static double figure_before(const struct fixture *f, const char *before) {
    char *errors = read_text(f, path_of(f, "stderr"), NULL), *at = strstr(errors, before);
    if (!at) fail_msg("no \"%s\" in: %s", before, errors);
    const double figure = strtod(at + strlen(before), NULL);
    free(errors);
    return figure;
}

/* The disk space required before step 1 is enough for all files, and not much more. */
FIXTURE_TEST(test_disk_space_is_checked_first) {
    static const struct {
        const char *words, *given;
    } runs[] = {
        {TINY "--report_to tensorboard", NULL},
        {TINY "--max_steps 6 --save_total_limit 1 --load_best_model_at_end", NULL},
        {TINY "--max_steps 6 --save_strategy best --metric_for_best_model loss", NULL},
        {TINY "--save_strategy no", NULL},
        {TINY "--save_only_model", NULL},
        {TINY "--overwrite_output_dir", "begun"},
        {TINY "--max_steps 4 --resume_from_checkpoint True --save_total_limit 1", "begun"},
    };
    write_model(f, "tiny", 0.1, 256, 1, VOCABULARY); /* some MiB, so that rounding is negligible */
    in_folder(f, "rm -rf begun");
    assert_int_equal(run(TINY), 0);
    in_folder(f, "mv out begun && rm -rf begun/checkpoint-2");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const struct scene scene = {.words = runs[i].words, .given = runs[i].given};
        prepare(f, &scene);
        const int64_t before = tree_bytes(path_of(f, "out"));
        nursery.run->faults = (struct faults){.free_bytes = 1};
        assert_int_equal(WEXITSTATUS(nursery_run(&nursery, scene.words)), 1);
        const double need = figure_before(f, "the run will write ");
        assert_true(figure_before(f, "the model), and ") < 1 + (double)before / 0x1p20);
        assert_int_equal(tree_bytes(path_of(f, "out")), before); /* nothing was removed or begun */
        nursery.run->faults = (struct faults){.free_bytes = (int64_t)((need + 0.1) * 0x1p20)};
        const int status = nursery_run(&nursery, scene.words);
        if (status != 0) fail_msg("%s: %s", scene.words, read_text(f, path_of(f, "stderr"), NULL));
        const double written = (double)(tree_bytes(path_of(f, "out")) - before) / 0x1p20;
        print_message("asked for %.1f MiB, wrote %.1f:%s\n", need, written, scene.words + strlen(TINY) - 1);
        if (written > need) fail_msg("%s: %.1f MiB are more than the %.1f asked for", scene.words, written, need);
    }
}

static int set_up_here(void **state) {
    if (set_up(state)) return -1;
    struct fixture *f = *state;
    write_model(f, "tiny", 0.1, 16, 1, VOCABULARY);
    write_data(f, "few.csv", FORM_SINGLE, 12, 1);
    write_data(f, "few.txt", FORM_TEXT, 40, 1);
    write_data(f, "dev.csv", FORM_SINGLE, 8, 2);
    write_data(f, "dev.txt", FORM_TEXT, 20, 2);
    nursery_open(&nursery, f->folder);
    assert_int_equal(nursery_warm(&nursery, TINY), 0);
    in_folder(f, "mv out begun && rm -rf begun/checkpoint-2");
    return 0;
}

static int tear_down_here(void **state) {
    nursery_close(&nursery);
    return tear_down(state);
}

int main(int argc, char **argv) {
    char scene[64];
    for (int i = 1; i < argc && i < 3; i++) wanted.points[i - 1] = atoll(argv[i]);
    if (argc > 3) {
        snprintf(scene, sizeof scene, "test_%s", argv[3]);
        cmocka_set_test_filter(scene);
    }
    if (argc > 4) wanted.loop = argv[4];
    if (argc > 5) wanted.from = atoll(argv[5]);
    if (argc > 6) wanted.to = atoll(argv[6]);
    places = mmap(NULL, sizeof *places, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(places != MAP_FAILED);
    return run_registered(NULL, NULL);
}
