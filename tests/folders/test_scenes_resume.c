/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run must not use: damaged and stale checkpoints, stale or foreign token caches, weights after losses that are
 * not finite. build/test_scenes_resume [PATTERN] runs all scenes, or those whose names match.
 */
#include "scenes_runs.h"

/* ---- damaged and stale checkpoints
 * ------------------------------------------------------------------------------------------------ */

static void do_damage(const char *path, const char *kind) {
    size_t size;
    char *data = get_bytes(path, &size);
    if (strcmp(kind, "one bit changed") == 0)
        flip_byte(path);
    else if (strcmp(kind, "cut short") == 0)
        put_bytes(path, data, size / 2);
    else if (strcmp(kind, "one byte longer") == 0)
        put_bytes(path, data, size + 1);
    else if (strcmp(kind, "empty") == 0)
        put_bytes(path, data, 0);
    else {
        MUST(unlink(path));
        if (strcmp(kind, "missing") != 0) put_kind(path, kind);
    }
    free(data);
}

/* entry: a file of checkpoint-4. The run resumes from checkpoint-3. Where the manifest or the type of an entry leaves
   open whether checkpoint-4 is snug's, the run may also be refused. */
static void resume_passes_over(struct scene *s) {
    bool irregular = strcmp(s->c->kind, "link to a device") == 0 || strcmp(s->c->entry, "manifest.json") == 0;
    EACH(k, kinds) irregular |= strcmp(kinds[k], s->c->kind) == 0;
    train_first(s, "");
    do_damage(in_folder("out/checkpoint-4", s->c->entry), s->c->kind);
    s->may_make = OUTPUT;
    watch_and_run(s, TRAIN RESUME);
    expect_said(s, "checkpoint-4");
    if (irregular && !succeeded(s)) {
        expect_refused(s, "checkpoint-4");
        return;
    }
    s->may_change = OUTPUT;
    expect_done(s);
    expect_said(s, "out/checkpoint-3");
    expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
    expect_same(s, "out/checkpoint-4/model.safetensors", control(s, TRAIN, "checkpoint-4/model.safetensors"));
}

static void explicit_is_refused(struct scene *s) {
    train_first(s, "");
    do_damage(in_folder("out/checkpoint-4", s->c->entry), s->c->kind);
    watch_and_run(s, TRAIN "--max_steps 6 --resume_from_checkpoint out/checkpoint-4");
    expect_refused(s, "checkpoint-4");
}

static void manifest_leaves_out(struct scene *s) {
    train_first(s, "");
    json_t *manifest = json_load_file("out/checkpoint-4/manifest.json", 0, NULL);
    assert_non_null(manifest);
    assert_int_equal(json_object_del(json_object_get(manifest, "files"), s->c->entry), 0);
    if (s->c->number & 1) MUST(unlink(in_folder("out/checkpoint-4", s->c->entry)));
    assert_int_equal(json_dump_file(manifest, "out/checkpoint-4/manifest.json", 0), 0);
    json_decref(manifest);
    watch(s);
    if (s->c->number & 2) {
        run(s, TRAIN "--max_steps 6 --resume_from_checkpoint out/checkpoint-4");
        expect_refused(s, "checkpoint-4");
        return;
    }
    s->may_make = OUTPUT;
    run(s, TRAIN RESUME);
    expect_said(s, "checkpoint-4");
    if (!succeeded(s)) {
        expect_refused(s, "checkpoint-4");
        return;
    }
    s->may_change = OUTPUT;
    expect_done(s);
    expect_said(s, "out/checkpoint-3");
    expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
}

static void nothing_whole(struct scene *s) {
    train_first(s, "--max_steps 2");
    flip_byte("out/checkpoint-1/model.safetensors");
    flip_byte("out/checkpoint-2/optimizer.safetensors");
    watch_and_run(s, TRAIN RESUME);
    expect_refused(s, "out");
}

/* An earlier run of the folder had more steps. */
static void stale_does_not_win(struct scene *s) {
    train_first(s, "--max_steps 8 --seed 5");
    if (s->c->number) { /* killed */
        run(s, TRAIN "--max_steps 3");
        expect_success(s);
        run(s, TRAIN RESUME);
    } else {
        run(s, TRAIN);
        expect_success(s);
        remove_tree("out/checkpoint-4");
        run(s, TRAIN RESUME);
    }
    expect_success(s);
    expect_said(s, "out/checkpoint-3");
    expect_checkpoints(s, "out", "1 2 3 4 5 6 7 8");
    if (!s->c->number) expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
}

static void stale_after_a_kill(struct scene *s) {
    run(s, LONG "--max_steps 240 --seed 5");
    expect_success(s);
    start_and_wait(s, LONG, "saved out/checkpoint-60");
    kill_it(s, SIGKILL);
    if (s->c->entry) {
        MUST(rename("out", s->c->entry));
        s->out = s->c->entry;
    }
    run(s, LONG RESUME);
    expect_success(s);
    expect_same(s, in_folder(s->out, "model.safetensors"), control(s, LONG, "model.safetensors"));
}

/* The best checkpoint is damaged before the run ends: an error, and the last weights are saved as a checkpoint. */
static void best_is_damaged(struct scene *s) {
    char words[2048];
    snprintf(words, sizeof words, BEST "%s", s->c->number ? "--save_strategy best" : "");
    start_and_wait(s, words, "saved out/checkpoint-60");
    if (strcmp(s->c->kind, "folder removed") == 0)
        remove_tree("out/checkpoint-60");
    else if (strcmp(s->c->kind, "link to a checkpoint") == 0) {
        MUST(rename("out/checkpoint-60", "outside/checkpoint"));
        copy_tree(control(s, LONG "--seed 9", "checkpoint-120"), "outside/other");
        put_link("out/checkpoint-60", "../outside/other");
    } else
        do_damage(in_folder("out/checkpoint-60", s->c->entry), s->c->kind);
    finish(s);
    expect_error(s, "checkpoint-60");
    expect_same(s, "out/checkpoint-240/model.safetensors", control(s, BEST, "checkpoint-240/model.safetensors"));
    expect_there(s, "out/model.safetensors", false);
}

static void add_damage(void) {
    static const char *const files[] = {
        "model.safetensors", "optimizer.safetensors", "trainer_state.json", "config.json",
        "vocab.txt",         "tokenizer_config.json", "manifest.json"};
    static const char *const damage[] = {"one bit changed", "cut short",      "one byte longer", "empty",
                                         "missing",         "pipe",           "socket",          "link to a device",
                                         "folder",          "link to nothing"};
    EACH(i, files) EACH(k, damage) {
        add(resume_passes_over, files[i], damage[k], 0, "checkpoint-4/%s: %s, resumed", files[i], damage[k]);
        add(explicit_is_refused, files[i], damage[k], 0, "checkpoint-4/%s: %s, resumed by name", files[i], damage[k]);
    }
    for (int i = 0; i < 3; i++) { /* those that a resumed run cannot do without */
        add(manifest_leaves_out, files[i], NULL, 0, "the manifest leaves out %s, resumed", files[i]);
        add(manifest_leaves_out, files[i], NULL, 2, "the manifest leaves out %s, resumed by name", files[i]);
        if (i > 0) continue;
        add(manifest_leaves_out, files[i], NULL, 1, "the manifest leaves out %s, which is missing, resumed", files[i]);
        add(manifest_leaves_out, files[i], NULL, 3, "the manifest leaves out %s, which is missing, resumed by name",
            files[i]);
    }
    add(nothing_whole, NULL, NULL, 0, "no checkpoint is whole");
    add(stale_does_not_win, NULL, NULL, 0, "an earlier run's checkpoint has a higher number");
    add(stale_does_not_win, NULL, NULL, 1, "an earlier run's checkpoint has a higher number, more steps");
    add(stale_after_a_kill, NULL, NULL, 0, "an earlier run's checkpoint has a higher number, after a kill");
    add(stale_after_a_kill, "moved", NULL, 0, "an earlier run's checkpoint has a higher number, after a kill, moved");
    static const char *const best[] = {"one bit changed", "cut short", "missing", "pipe"};
    EACH(k, best) add(best_is_damaged, "model.safetensors", best[k], 0, "the best checkpoint's weights: %s", best[k]);
    EACH(k, best) add(best_is_damaged, "manifest.json", best[k], 0, "the best checkpoint's manifest: %s", best[k]);
    EACH(k, best)
    add(best_is_damaged, "model.safetensors", best[k], 1, "the best checkpoint's weights: %s, --save_strategy best",
        best[k]);
    add(best_is_damaged, NULL, "folder removed", 1, "the best checkpoint is removed, --save_strategy best");
    add(best_is_damaged, NULL, "folder removed", 0, "the best checkpoint is removed");
    add(best_is_damaged, NULL, "link to a checkpoint", 0, "the best checkpoint is a link to another one");
}

/* ---- the token cache
 * ---------------------------------------------------------------------------------------------------------------- */

/* The path of the one cache file. */
static const char *cache_file(void) {
    static char path[SCENE_PATH];
    path[0] = '\0';
    FTS *walk = fts_open((char *[]){(char[]){"cache"}, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *at; (at = fts_read(walk));)
        if (at->fts_info == FTS_F && strstr(at->fts_name, ".tokens")) {
            assert_int_equal(path[0], 0);
            snprintf(path, sizeof path, "%s", at->fts_path);
        }
    fts_close(walk);
    assert_int_not_equal(path[0], 0);
    return path;
}

static void keep_time(const char *path, const struct stat *info) {
    MUST(utimensat(AT_FDCWD, path, (struct timespec[]){info->st_atim, info->st_mtim}, 0));
}

/* Other content of the same size: every "good" is a "bad ". */
static void put_other(const char *from, const char *to) {
    char *text = get_bytes(from, NULL);
    for (char *at = text; (at = strstr(at, " good ")); at++) memcpy(at, "  bad ", 6);
    put(to, text);
    free(text);
}

/* Runs the command with an empty cache. */
static void run_fresh(struct scene *s, const char *words) {
    char cache[128];
    snprintf(cache, sizeof cache, "%s/fresh", s->root);
    setenv("SNUG_CACHE", cache, 1);
    run(s, words);
    snprintf(cache, sizeof cache, "%s/cache", s->root);
    setenv("SNUG_CACHE", cache, 1);
    expect_success(s);
}

/* The file keeps its path, size and modification time. */
static void data_changes_unseen(struct scene *s) {
    const bool trains = s->c->number;
    const char *path = trains ? "in/train.csv" : "in/dev.csv";
    struct stat info;
    MUST(stat(path, &info));
    if (strcmp(s->c->kind, "another target of its link") == 0) {
        MUST(rename(path, "in/first.csv"));
        put_other("in/first.csv", "in/second.csv");
        keep_time("in/second.csv", &info);
        put_link(path, "first.csv");
    }
    s->out = "first";
    run(s, trains ? TRAIN : PREDICT);
    expect_success(s);
    if (strcmp(s->c->kind, "another target of its link") == 0) {
        unlink(path);
        put_link(path, "second.csv");
    } else if (strcmp(s->c->kind, "rewritten") == 0) {
        put_other(path, path);
    } else if (strcmp(s->c->kind, "rewritten through a hard link") == 0) {
        MUST(link(path, "outside/data.csv"));
        put_other("outside/data.csv", "outside/data.csv");
    } else {
        put_other(path, "in/new.csv");
        keep_time("in/new.csv", &info);
        MUST(rename("in/new.csv", path));
    }
    keep_time(path, &info);
    s->out = "second";
    run(s, trains ? TRAIN : PREDICT);
    expect_success(s);
    char *printed = strdup(stdout_of(s));
    s->out = "third";
    run_fresh(s, trains ? TRAIN : PREDICT);
    if (strcmp(printed, stdout_of(s)) != 0)
        scene_fails(s, "stale tokens: the output is that of the file's old content");
    free(printed);
    if (trains) expect_same(s, "second/model.safetensors", "third/model.safetensors");
}

static void vocabulary_changes_unseen(struct scene *s) {
    struct stat info;
    MUST(stat("in/model/vocab.txt", &info));
    run(s, PREDICT);
    expect_success(s);
    char *text = get_bytes("in/model/vocab.txt", NULL), *at = strstr(text, "\nw3\n");
    assert_non_null(at);
    at[2] = '4';
    at = strstr(at + 1, "\nw4\n");
    at[2] = '3';
    put("in/model/vocab.txt", text);
    keep_time("in/model/vocab.txt", &info);
    free(text);
    run(s, PREDICT);
    expect_success(s);
    char *printed = strdup(stdout_of(s));
    run_fresh(s, PREDICT);
    if (strcmp(printed, stdout_of(s)) != 0) scene_fails(s, "stale tokens: the output is that of the old vocabulary");
    free(printed);
}

/* Another entry is in place of the cache file. It is neither used, nor followed, nor changed. */
static void cache_file_is(struct scene *s) {
    run(s, PREDICT);
    expect_success(s);
    char *printed = strdup(stdout_of(s));
    const char *path = cache_file();
    if (strcmp(s->c->kind, "link to a cache file") == 0) {
        MUST(rename(path, "outside/tokens"));
        put_link(path, "../outside/tokens");
    } else if (strcmp(s->c->kind, "file of another owner") == 0) {
        if (geteuid() != 0) skip();
        MUST(chown(path, 1234, 1234));
        MUST(chmod(path, 0644));
    } else {
        MUST(unlink(path));
        put_kind(path, s->c->kind);
    }
    watch_and_run(s, PREDICT);
    expect_said(s, strrchr(path, '/') + 1);
    expect_untouched(s);
    if (strstr(s->err, "read from")) scene_fails(s, "tokens are read from what is not snug's");
    if (!succeeded(s))
        expect_error(s, strrchr(path, '/') + 1);
    else if (strcmp(printed, stdout_of(s)) != 0)
        scene_fails(s, "the output differs");
    free(printed);
}

static void cache_is(struct scene *s) {
    run_fresh(s, PREDICT);
    char *printed = strdup(stdout_of(s));
    if (strcmp(s->c->kind, "folder of another owner") == 0) {
        if (geteuid() != 0) skip();
        run(s, PREDICT);
        expect_success(s);
        MUST(chown("cache", 1234, 1234));
        MUST(chmod("cache", 0777));
    } else if (strcmp(s->c->kind, "read-only folder") == 0) {
        put_folder("cache");
        MUST(chmod("cache", 0555));
        s->as_nobody = geteuid() == 0;
    } else
        put_kind("cache", s->c->kind);
    s->may_make = "";
    watch_and_run(s, PREDICT);
    expect_untouched(s);
    expect_said(s, "cache");
    if (strstr(s->err, "read from")) scene_fails(s, "tokens are read from what is not snug's");
    if (succeeded(s) && strcmp(printed, stdout_of(s)) != 0) scene_fails(s, "the output differs");
    free(printed);
}

static void cache_is_damaged(struct scene *s) {
    run(s, PREDICT);
    expect_success(s);
    char *printed = strdup(stdout_of(s));
    do_damage(cache_file(), s->c->kind);
    run(s, PREDICT);
    expect_success(s);
    if (strcmp(printed, stdout_of(s)) != 0) scene_fails(s, "the output differs");
    free(printed);
}

/* Stops the program once it has read a part of the file; false if it ended before. */
static bool stop_while_reading(const struct scene *s, const char *name) {
    char path[64], target[SCENE_PATH];
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)s->child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid &&
           seconds_left(s) > 0)
        for (int fd = 3; fd < 16; fd++) {
            snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)s->child, fd);
            const ssize_t length = readlink(path, target, sizeof target - 1);
            if (length < 0) continue;
            target[length] = '\0';
            if (!strstr(target, name)) continue;
            kill(s->child, SIGSTOP);
            waitid(P_PID, (id_t)s->child, &info, WSTOPPED | WEXITED | WNOWAIT);
            return info.si_code == CLD_STOPPED;
        }
    return false;
}

/* The data changes while it is read: an error, or the output of the old or of the new content. The next run reads the
   new content. */
static void data_changes_in_reading(struct scene *s) {
    enum { ROWS = 20000 };
    struct stat info;
    FILE *file = fopen("in/dev.csv", "w");
    assert_non_null(file);
    fprintf(file, "sentence,label\n");
    for (int i = 0; i < ROWS; i++) fprintf(file, "w%d good w%d,positive\n", i % 10, i / 10 % 10);
    fclose(file);
    MUST(stat("in/dev.csv", &info));
    run_fresh(s, PREDICT);
    char *old = strdup(stdout_of(s));
    start(s, PREDICT);
    if (!stop_while_reading(s, "/dev.csv")) skip();
    if (strcmp(s->c->kind, "cut") == 0)
        MUST(truncate("in/dev.csv", info.st_size / 2));
    else if (strcmp(s->c->kind, "rewritten") == 0) {
        char *text = get_bytes("in/dev.csv", NULL);
        for (char *at = text; (at = strstr(at, " good ")); at++) memcpy(at, "  bad ", 6);
        const int fd = open("in/dev.csv", O_WRONLY | O_CLOEXEC);
        MUST(fd);
        assert_int_equal(pwrite(fd, text, (size_t)info.st_size, 0), info.st_size);
        close(fd);
        free(text);
        keep_time("in/dev.csv", &info);
    } else {
        put_other("in/dev.csv", "in/new.csv");
        keep_time("in/new.csv", &info);
        MUST(rename("in/new.csv", "in/dev.csv"));
    }
    kill(s->child, SIGCONT);
    finish(s);
    const bool ended = succeeded(s);
    if (!ended) expect_error(s, "dev.csv");
    char *first = strdup(stdout_of(s));
    run(s, PREDICT);
    expect_success(s);
    char *second = strdup(stdout_of(s));
    run_fresh(s, PREDICT);
    if (strcmp(second, stdout_of(s)) != 0)
        scene_fails(s, "the next run reads tokens of the old content from the cache");
    if (ended && strcmp(first, old) != 0 && strcmp(first, second) != 0)
        scene_fails(s, "the output is neither that of the old content nor that of the new one");
    free(old);
    free(first);
    free(second);
}

static void add_cache(void) {
    static const char *const changes[] = {"rewritten", "rewritten through a hard link", "another file renamed over it",
                                          "another target of its link"};
    EACH(i, changes) {
        add(data_changes_unseen, NULL, changes[i], 0, "data with the same size and time: %s, predict", changes[i]);
        add(data_changes_unseen, NULL, changes[i], 1, "data with the same size and time: %s, train", changes[i]);
    }
    add(vocabulary_changes_unseen, NULL, NULL, 0, "a vocabulary with the same size and time");
    static const char *const file_kinds[] = {"pipe",
                                             "socket",
                                             "device",
                                             "folder",
                                             "link to a file",
                                             "link to a folder",
                                             "link to nothing",
                                             "link to itself",
                                             "link to a cache file",
                                             "link to a device",
                                             "file of another owner"};
    EACH(k, file_kinds) add(cache_file_is, NULL, file_kinds[k], 0, "the cache file is a %s", file_kinds[k]);
    static const char *const folder_kinds[] = {"foreign file",    "pipe",
                                               "socket",          "device",
                                               "link to a file",  "link to nothing",
                                               "link to itself",  "folder of another owner",
                                               "read-only folder"};
    EACH(k, folder_kinds) add(cache_is, NULL, folder_kinds[k], 0, "the cache is a %s", folder_kinds[k]);
    static const char *const damage[] = {"one bit changed", "cut short", "one byte longer", "empty", "missing"};
    EACH(k, damage) add(cache_is_damaged, NULL, damage[k], 0, "the cache file: %s", damage[k]);
    static const char *const in_reading[] = {"rewritten", "cut", "replaced"};
    EACH(k, in_reading)
    add(data_changes_in_reading, NULL, in_reading[k], 0, "data is %s while it is read", in_reading[k]);
}

/* ---- losses that are not finite
 * -------------------------------------------------------------------------------------------------------- */

#define REGRESSION                                                                                                     \
    "train --config_name in/plain --tokenizer_name in/model --train_file in/labels.csv --output_dir @out "             \
    "--save_steps 1 --per_device_train_batch_size 4 --max_seq_length 16 --threads 1 --device cpu --logging_steps 1 "   \
    "--train_sampling_strategy sequential --do_regression "

/* Batches of four rows: 'g' has labels that can be learnt, 'b' labels with which loss and gradient overflow. */
static void put_batches(const char *batches) {
    put("in/plain/config.json", tiny_config);
    FILE *file = fopen("in/labels.csv", "w");
    assert_non_null(file);
    fprintf(file, "sentence,label\n");
    for (int i = 0; batches[i / 4]; i++)
        fprintf(file, "w%d good w%d,%s\n", i % 40, i % 7, batches[i / 4] == 'g' ? "0.25" : "3e38");
    fclose(file);
}

static void streak_ends_the_run(struct scene *s) {
    char words[1024];
    put_batches("gggbbbbbbbbbbbbbbbbb");
    snprintf(words, sizeof words, REGRESSION "--max_steps 20 %s", s->c->kind);
    run(s, words);
    expect_error(s, "checkpoint-3");
    expect_checkpoints(s, "out", s->c->entry);
    expect_nothing_hidden(s, "out");
}

static void streak_ends(struct scene *s) {
    char words[1024];
    put_batches("gbbbgg");
    snprintf(words, sizeof words, REGRESSION "--max_steps 6 %s", s->c->kind);
    run(s, words);
    expect_success(s);
    expect_checkpoints(s, "out", s->c->entry);
}

static void add_streaks(void) {
    add(streak_ends_the_run, "1 2 3", "", 0, "losses overflow to the end");
    add(streak_ends_the_run, "3", "--save_total_limit 1", 0, "losses overflow to the end, --save_total_limit 1");
    add(streak_ends_the_run, "2 3", "--save_total_limit 2", 0, "losses overflow to the end, --save_total_limit 2");
    add(streak_ends_the_run, "3", "--save_steps 3", 0, "losses overflow to the end, --save_steps 3");
    add(streak_ends, "1 5 6", "", 0, "losses overflow for three steps");
    add(streak_ends, "5 6", "--save_total_limit 2", 0, "losses overflow for three steps, --save_total_limit 2");
}

int main(int argc, char **argv) {
    add_damage();
    add_cache();
    add_streaks();
    return play_all("test_scenes_resume", argc > 1 ? argv[1] : NULL);
}
