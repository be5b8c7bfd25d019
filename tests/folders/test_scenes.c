/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folder trees that build/snug may not damage: foreign files, links, pipes, sockets, devices and folders in place of
 * the files of an output folder, a model folder, a checkpoint or the token cache. tests/folders/test_scenes_runs.c has
 * the scenes in which something happens to a folder while a run writes to it, or between two runs.
 *
 * build/test_scenes [PATTERN]: all scenes, or those whose names match, as "out/config.json*".
 */
#include "scenes.h"

static const char *const names[] = {"config.json",        "model.safetensors",     "vocab.txt",
                                    "tokenizer.json",     "tokenizer_config.json", "special_tokens_map.json",
                                    "added_tokens.json",  "trainer_state.json",    "train_results.json",
                                    "eval_results.json",  "all_results.json",      "manifest.json",
                                    "training_args.json", "run_report.json"};
enum { NAMES = sizeof names / sizeof *names };

/* ---- entries in the output folder ----------------------------------------------------------------------------- */

static void occupied(struct scene *s) {
    put_kind(in_folder("out", s->c->entry), s->c->kind);
    watch_and_run(s, s->c->number ? TRAIN OVERWRITE : TRAIN);
    expect_refused(s, s->c->entry);
}

/* Beside the files of an earlier run. */
static void occupied_later(struct scene *s) {
    const char *path = in_folder("out", s->c->entry);
    train_first(s, "--save_strategy no");
    unlink(path);
    put_kind(path, s->c->kind);
    watch_and_run(s, TRAIN);
    expect_refused(s, s->c->entry);
}

/* --overwrite_output_dir replaces foreign regular files; what has another link keeps its content there. */
static void overwritten(struct scene *s) {
    char expected[256];
    const char *path = in_folder("out", s->c->entry);
    put_kind(path, s->c->kind);
    put("out/notes.txt", "notes of the user");
    s->may_make = OUTPUT;
    snprintf(expected, sizeof expected, "%s outside/file", path);
    s->may_change = expected;
    watch_and_run(s, TRAIN OVERWRITE);
    expect_done(s);
    char *text = get_bytes("outside/file", NULL);
    assert_string_equal(text, "{\"content\": \"of a file outside\"}\n");
    free(text);
    expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
    expect_same(s, "out/vocab.txt", "in/model/vocab.txt");
    if (strcmp(s->c->entry, "eval_results.json") == 0) return; /* that run wrote none: it is still the user's */
    run(s, TRAIN);                                             /* all of it is snug's now */
    expect_success(s);
}

static void results_are_no_object(struct scene *s) {
    train_first(s, "--save_strategy no");
    put("out/all_results.json", s->c->kind);
    watch_and_run(s, TRAIN);
    expect_refused(s, "all_results.json");
}

/* A second run replaces the files of the first one, without a flag. */
static void own_files_are_replaced(struct scene *s) {
    train_first(s, s->c->kind);
    put("out/notes.txt", "notes of the user");
    s->may_make = OUTPUT;
    s->may_change = OUTPUT;
    watch_and_run(s, TRAIN "--seed 7");
    expect_done(s);
    expect_same(s, "out/model.safetensors", control(s, TRAIN "--seed 7", "model.safetensors"));
    expect_nothing_hidden(s, "out");
}

static void add_output_files(void) {
    EACH(i, names) EACH(k, kinds) add(occupied, names[i], kinds[k], 0, "out/%s is a %s", names[i], kinds[k]);
    EACH(i, names)
    for (int k = 0; k < IRREGULAR_KINDS; k++)
        add(occupied, names[i], kinds[k], 1, "out/%s is a %s, --overwrite_output_dir", names[i], kinds[k]);
    EACH(i, names)
    if (strcmp(names[i], "manifest.json") != 0) {
        add(overwritten, names[i], "foreign file", 0, "out/%s is a foreign file, --overwrite_output_dir", names[i]);
        add(overwritten, names[i], "hard link", 0, "out/%s is a hard link, --overwrite_output_dir", names[i]);
    }
    /* These the first run did not write. */
    for (int i = 0; i < NAMES; i++)
        if (i == 3 || i == 5 || i == 6 || i == 9)
            add(occupied_later, names[i], "foreign file", 0, "out/%s is a foreign file beside an earlier run's",
                names[i]);
    for (int k = 0; k < IRREGULAR_KINDS; k++)
        add(occupied_later, "config.json", kinds[k], 0, "out/config.json of an earlier run is now a %s", kinds[k]);
    add(results_are_no_object, NULL, "[1, 2]", 0, "out/all_results.json is a list");
    add(results_are_no_object, NULL, "\"text\"", 0, "out/all_results.json is a string");
    add(results_are_no_object, NULL, "{\"epoch\": ", 0, "out/all_results.json ends early");
    add(results_are_no_object, NULL, "", 0, "out/all_results.json is empty");
    add(own_files_are_replaced, NULL, "", 0, "a second run replaces the first one's files");
    add(own_files_are_replaced, NULL, "--save_strategy no", 0, "a second run after one without checkpoints");
}

/* ---- the lock -------------------------------------------------------------------------------------------------- */

static void lock_is(struct scene *s) {
    put_kind("out/.snug.lock", s->c->kind);
    watch_and_run(s, TRAIN);
    expect_refused(s, ".snug.lock");
}

static void lock_holds_text(struct scene *s) {
    put("out/.snug.lock", s->c->kind);
    watch_and_run(s, TRAIN);
    expect_refused(s, ".snug.lock");
}

#define RUN_NUMBER "0123456789abcdef"
#define KILLED "process 4711 on elsewhere, run " RUN_NUMBER "\n"

/* A lock file that is snug's but also has a name outside. */
static void lock_has_two_links(struct scene *s) {
    put("outside/lock", KILLED);
    put_folder("out");
    MUST(link("outside/lock", "out/.snug.lock"));
    watch_and_run(s, TRAIN);
    expect_refused(s, ".snug.lock");
}

/* What a killed run leaves: an empty file, before it wrote its line, or the line. */
static void lock_is_left(struct scene *s) {
    put("out/.snug.lock", s->c->kind);
    s->may_make = OUTPUT;
    s->may_change = "out/.snug.lock";
    watch_and_run(s, TRAIN);
    expect_done(s);
    expect_there(s, "out/.snug.lock", false);
}

static void lock_is_held(struct scene *s) {
    put("out/.snug.lock", KILLED);
    const int fd = open("out/.snug.lock", O_RDWR | O_CLOEXEC);
    MUST(fd);
    MUST(flock(fd, LOCK_EX));
    if (strcmp(s->c->kind, "link") == 0) put_link("linked", "out");
    s->out = strcmp(s->c->kind, "link") == 0 ? "linked" : s->c->kind;
    watch_and_run(s, TRAIN OVERWRITE);
    expect_refused(s, "4711");
    close(fd);
}

static void lock_of_another_owner(struct scene *s) {
    if (geteuid() != 0) skip();
    put("out/.snug.lock", KILLED);
    MUST(chmod("out", 01777));
    MUST(chmod("out/.snug.lock", 0600));
    s->as_nobody = true;
    watch_and_run(s, TRAIN);
    expect_refused(s, ".snug.lock");
}

static void add_locks(void) {
    EACH(k, kinds) add(lock_is, NULL, kinds[k], 0, "out/.snug.lock is a %s", kinds[k]);
    static const char *const texts[] = {"my notes\n", "process\n", "process 4711 on elsewhere, run xyz\n",
                                        (KILLED "my notes\n")};
    EACH(i, texts)
    add(lock_holds_text, NULL, texts[i], 0, "out/.snug.lock contains text that snug did not write, %zu", i + 1);
    add(lock_has_two_links, NULL, NULL, 0, "out/.snug.lock of a killed run has a second link");
    add(lock_is_left, NULL, "", 0, "out/.snug.lock is empty");
    add(lock_is_left, NULL, KILLED, 0, "out/.snug.lock is left by a killed run");
    add(lock_is_held, NULL, "out", 0, "out/.snug.lock is held by another run");
    add(lock_is_held, NULL, "./in/../out/", 0, "out/.snug.lock is held by another run, another spelling");
    add(lock_is_held, NULL, "link", 0, "out/.snug.lock is held by another run, through a link");
    add(lock_of_another_owner, NULL, NULL, 0, "out/.snug.lock belongs to another user");
}

/* ---- leftovers of killed runs, and similar names ---------------------------------------------------------------- */

static const char *const left_files[] = {".config.json.snug-" RUN_NUMBER "-0",
                                         ".model.safetensors.snug-" RUN_NUMBER "-17",
                                         ".all_results.json.snug-" RUN_NUMBER "-3"};
static const char *const left_folders[] = {".checkpoint-2.snug-" RUN_NUMBER, ".checkpoint-3.snug-" RUN_NUMBER "-4",
                                           ".checkpoint-1.snug-" RUN_NUMBER ".old"};
static const char *const similar[] = {".mine.snug-1-2",
                                      ".checkpoint-3.snug-aside",
                                      ".config.json.snug-4711-0",
                                      ".x.snug-fedcba9876543210-0",
                                      ".config.json.snug-fedcba9876543210-0",
                                      ".checkpoint-3.snug-fedcba9876543210",
                                      ".checkpoint-3.snug-fedcba9876543210.old",
                                      ".config.json.snug-0123456789abcdef-",
                                      ".config.json.snug-0123456789abcdef-0x",
                                      ".config.json.snug-0123456789abcdef0-0",
                                      ".config.json.snug-0123456789ABCDEF-0",
                                      ".config.json.snug-123456789abcdef-0",
                                      "config.json.snug-0123456789abcdef-0",
                                      ".config.json.snag-0123456789abcdef-0",
                                      ".snug.lock.old",
                                      ".snug.lock~",
                                      "snug.lock",
                                      "checkpoint-",
                                      "checkpoint-007",
                                      "checkpoint-2x",
                                      "checkpoint--1",
                                      "checkpoint-+2",
                                      "checkpoint-99999999999999999999",
                                      "Checkpoint-2",
                                      "checkpoint-2.bak",
                                      "config.json~",
                                      ".config.json.swp",
                                      "Config.json",
                                      "model.safetensors.index.json",
                                      "model-00001-of-00002.safetensors",
                                      "pytorch_model.bin",
                                      "README.md",
                                      "spiece.model",
                                      "optimizer.safetensors",
                                      "run",
                                      "runs2",
                                      "a name\nof two lines",
                                      "not UTF-8 \xff\xfe"};

static void put_left(void) {
    put("out/.snug.lock", KILLED);
    EACH(i, left_files) put(in_folder("out", left_files[i]), "{\"half\": ");
    EACH(i, left_folders) put(in_folder(in_folder("out", left_folders[i]), "model.safetensors"), "half of a file");
}

static void expect_no_left(struct scene *s) {
    EACH(i, left_files) expect_there(s, in_folder("out", left_files[i]), false);
    EACH(i, left_folders) expect_there(s, in_folder("out", left_folders[i]), false);
    expect_there(s, "out/.snug.lock", false);
}

#define LEFT "out/.snug.lock out/.*.snug-" RUN_NUMBER "*"

/* The next run removes all of it. */
static void left_is_removed(struct scene *s) {
    put_left();
    s->may_make = OUTPUT;
    s->may_change = LEFT;
    watch_and_run(s, TRAIN);
    expect_done(s);
    expect_no_left(s);
}

/* Also after a run that was refused for another reason. */
static void left_is_removed_after_a_refusal(struct scene *s) {
    put_left();
    put_kind("out/config.json", "link to a file");
    s->may_change = LEFT;
    watch_and_run(s, TRAIN);
    expect_refused(s, "config.json");
    unlink("out/config.json");
    run(s, TRAIN);
    expect_success(s);
    expect_no_left(s);
}

/* Links that a user put there are not followed. */
static void left_has_links(struct scene *s) {
    put_left();
    put_kind("out/.checkpoint-2.snug-" RUN_NUMBER "/link", "link to a folder");
    put_kind("out/.checkpoint-2.snug-" RUN_NUMBER "/file", "link to a file");
    put_kind("out/.checkpoint-4.snug-" RUN_NUMBER, "link to a folder");
    put_kind("out/.vocab.txt.snug-" RUN_NUMBER "-9", "link to a file");
    s->may_make = OUTPUT;
    s->may_change = LEFT;
    watch_and_run(s, TRAIN);
    expect_untouched(s);
}

/* Entries that are not snug's stay, also where the run removes what a killed run left. */
static void similar_stays(struct scene *s) {
    char words[1024];
    s->may_make = OUTPUT;
    s->may_change = LEFT;
    if (s->c->number && !s->c->entry) {
        train_first(s, "");
        MUST(unlink("out/README.md")); /* which is among the names */
        s->may_change = LEFT " " OUTPUT;
    }
    put_left();
    if (s->c->entry)
        put_kind(in_folder("out", s->c->entry), s->c->kind);
    else
        EACH(i, similar) put_kind(in_folder("out", similar[i]), s->c->kind);
    snprintf(words, sizeof words, TRAIN "--save_total_limit 1 %s", s->c->number ? OVERWRITE : "");
    watch_and_run(s, words);
    expect_done(s);
    expect_no_left(s);
}

static void similar_in_cache_stays(struct scene *s) {
    EACH(i, similar) put_kind(in_folder("cache", similar[i]), s->c->kind);
    put_kind("cache/mine.tokens", s->c->kind);
    put_kind("cache/0123456789abcdef0123456789abcdef.tokens", s->c->kind);
    s->may_make = OUTPUT;
    watch_and_run(s, TRAIN);
    expect_done(s);
}

static void add_left(void) {
    add(left_is_removed, NULL, NULL, 0, "a killed run's hidden files and folders are removed");
    add(left_is_removed_after_a_refusal, NULL, NULL, 0, "a killed run's hidden files are removed after a refusal");
    add(left_has_links, NULL, NULL, 0, "a killed run's hidden folder has links in it");
    EACH(i, similar) {
        add(similar_stays, similar[i], "foreign file", 0, "out/%s stays", similar[i]);
        add(similar_stays, similar[i], "folder", 1, "out/%s is a folder, which stays, --overwrite_output_dir",
            similar[i]);
    }
    static const char *const others[] = {"link to a file", "link to a folder", "link to nothing", "pipe", "hard link"};
    EACH(k, others) {
        add(similar_stays, NULL, others[k], 0, "names like snug's stay, each a %s", others[k]);
        add(similar_stays, NULL, others[k], 1, "names like snug's stay, each a %s, --overwrite_output_dir", others[k]);
    }
    add(similar_in_cache_stays, NULL, "foreign file", 0, "names like snug's stay in the cache");
    add(similar_in_cache_stays, NULL, "link to a file", 0, "names like snug's stay in the cache, each a link");
    add(similar_in_cache_stays, NULL, "folder", 0, "names like snug's stay in the cache, each a folder");
}

/* ---- entries called checkpoint-N --------------------------------------------------------------------------------- */

/* Checkpoints in which something is wrong are those of a run of two steps, kept aside under other names. */
static void put_checkpoint(struct scene *s, const char *path, const char *kind) {
    const char *made = control(s, TRAIN "--max_steps 2", "checkpoint-2");
    EACH(k, kinds) if (strcmp(kind, kinds[k]) == 0) {
        put_kind(path, kind);
        return;
    }
    if (strcmp(kind, "empty folder") == 0) {
        put_folder(path);
        return;
    }
    if (strcmp(kind, "link to a checkpoint") == 0) {
        copy_tree(made, "outside/checkpoint");
        put_link(path, way_back(path, "outside/checkpoint"));
        return;
    }
    copy_tree(made, path);
    if (strcmp(kind, "checkpoint with a foreign file") == 0)
        put(in_folder(path, "notes.txt"), "notes of the user");
    else if (strcmp(kind, "checkpoint with a foreign folder") == 0)
        put_folder(in_folder(path, "notes"));
    else if (strcmp(kind, "checkpoint with a link in it") == 0)
        put_link(in_folder(path, "notes"), "../../outside/folder");
    else if (strcmp(kind, "checkpoint without a manifest") == 0)
        MUST(unlink(in_folder(path, "manifest.json")));
    else if (strcmp(kind, "checkpoint with a foreign manifest") == 0)
        put(in_folder(path, "manifest.json"), "{\"name\": \"an app\", \"version\": 1}");
    else if (strcmp(kind, "checkpoint with a list as its manifest") == 0)
        put(in_folder(path, "manifest.json"), "[]");
    else if (strcmp(kind, "checkpoint whose manifest is a link") == 0) {
        char *text = get_bytes(in_folder(path, "manifest.json"), NULL);
        put("outside/manifest.json", text);
        free(text);
        MUST(unlink(in_folder(path, "manifest.json")));
        put_link(in_folder(path, "manifest.json"), "../../outside/manifest.json");
    } else
        fail_msg("no such kind: %s", kind);
}

static const char *const foreign_checkpoints[] = {"link to a file",
                                                  "link to a folder",
                                                  "link to nothing",
                                                  "link to itself",
                                                  "link to a checkpoint",
                                                  "pipe",
                                                  "socket",
                                                  "device",
                                                  "folder",
                                                  "empty folder",
                                                  "foreign file",
                                                  "hard link",
                                                  "checkpoint with a foreign file",
                                                  "checkpoint with a foreign folder",
                                                  "checkpoint with a link in it",
                                                  "checkpoint without a manifest",
                                                  "checkpoint with a foreign manifest",
                                                  "checkpoint with a list as its manifest",
                                                  "checkpoint whose manifest is a link"};

/* The run could write it: it is refused; number: the arguments. */
static const char *const checkpoint_words[] = {TRAIN, TRAIN OVERWRITE, TRAIN "--save_steps 3",
                                               TRAIN "--save_strategy no"};

static void checkpoint_refused(struct scene *s) {
    put_checkpoint(s, in_folder("out", s->c->entry), s->c->kind);
    watch_and_run(s, checkpoint_words[s->c->number]);
    expect_refused(s, s->c->entry);
}

/* The run cannot write it, and rotation leaves it. */
static void checkpoint_stays(struct scene *s) {
    put_checkpoint(s, in_folder("out", s->c->entry), s->c->kind);
    s->may_make = OUTPUT;
    watch_and_run(s, TRAIN "--save_total_limit 1");
    expect_done(s);
    expect_there(s, "out/checkpoint-4", true);
    expect_there(s, "out/checkpoint-3", false);
}

/* A resumed run writes what comes after its checkpoint only; what was before it stays. */
static void checkpoint_before_resume(struct scene *s) {
    train_first(s, "--max_steps 4 --save_steps 2");
    put_checkpoint(s, "out/checkpoint-1", s->c->kind);
    s->may_make = s->may_change = OUTPUT;
    watch(s);
    remove_tree("out/checkpoint-4");
    run(s, TRAIN "--resume_from_checkpoint out/checkpoint-2");
    s->may_change =
        "out/*.json out/*.txt out/README.md out/model.safetensors out/checkpoint-[34] out/checkpoint-[34]/*";
    expect_done(s);
}

static void add_checkpoints(void) {
    EACH(k, foreign_checkpoints) {
        const char *kind = foreign_checkpoints[k];
        add(checkpoint_refused, "checkpoint-2", kind, 0, "out/checkpoint-2 is a %s", kind);
        add(checkpoint_stays, "checkpoint-9", kind, 0, "out/checkpoint-9 is a %s, beyond the last step", kind);
        add(checkpoint_refused, "checkpoint-9", kind, 1, "out/checkpoint-9 is a %s, --overwrite_output_dir", kind);
        if (k < 13)
            add(checkpoint_before_resume, NULL, kind, 0, "out/checkpoint-1 is a %s, before the resumed step", kind);
    }
    static const char *const some[] = {"link to a folder", "folder", "checkpoint with a foreign file"};
    EACH(k, some) {
        add(checkpoint_refused, "checkpoint-1", some[k], 0, "out/checkpoint-1 is a %s", some[k]);
        add(checkpoint_refused, "checkpoint-4", some[k], 0, "out/checkpoint-4 is a %s", some[k]);
        add(checkpoint_refused, "checkpoint-2", some[k], 1, "out/checkpoint-2 is a %s, --overwrite_output_dir",
            some[k]);
        add(checkpoint_refused, "checkpoint-2", some[k], 2, "out/checkpoint-2 is a %s, --save_steps 3", some[k]);
        add(checkpoint_refused, "checkpoint-2", some[k], 3, "out/checkpoint-2 is a %s, --save_strategy no", some[k]);
    }
}

/* ---- TensorBoard's folder -----------------------------------------------------------------------------------------
 */

static void runs_is(struct scene *s) {
    put_kind("out/runs", s->c->kind);
    watch_and_run(s, s->c->number ? TRAIN OVERWRITE "--report_to tensorboard" : TRAIN "--report_to tensorboard");
    expect_refused(s, "runs");
}

static void runs_stays(struct scene *s) {
    put_kind("out/runs", s->c->kind);
    s->may_make = s->c->number ? OUTPUT " out/runs/*" : OUTPUT;
    watch_and_run(s, s->c->number ? TRAIN OVERWRITE "--report_to tensorboard" : TRAIN);
    expect_done(s);
}

static void add_runs(void) {
    EACH(k, kinds) {
        if (strcmp(kinds[k], "folder") != 0) {
            add(runs_is, NULL, kinds[k], 0, "out/runs is a %s, TensorBoard", kinds[k]);
            add(runs_is, NULL, kinds[k], 1, "out/runs is a %s, TensorBoard, --overwrite_output_dir", kinds[k]);
        } else
            add(runs_stays, NULL, kinds[k], 1, "out/runs is a folder with the user's file, TensorBoard");
        add(runs_stays, NULL, kinds[k], 0, "out/runs is a %s, without TensorBoard", kinds[k]);
    }
}

/* ---- the output folder itself ---------------------------------------------------------------------------------------
 */

/* @out is a link to a folder, which the user named: the run writes into that folder, and the link stays. */
static void out_is_a_link(struct scene *s) {
    put("real/target/notes.txt", "notes of the user");
    put_link("linked", "real/target");
    put_link("second", "linked");
    s->out = s->c->entry;
    char words[512];
    snprintf(words, sizeof words, TRAIN "--save_total_limit 1 --report_to tensorboard %s", s->c->kind);
    s->may_make = "cache cache/* real/target/*";
    watch_and_run(s, words);
    expect_done(s);
    expect_nothing_hidden(s, "real");
    expect_same(s, "real/target/model.safetensors", control(s, TRAIN, "model.safetensors"));
}

static void out_is(struct scene *s) {
    put_kind("out", s->c->kind);
    watch_and_run(s, TRAIN OVERWRITE);
    expect_refused(s, "out");
}

static void out_below(struct scene *s) {
    put_kind("parent", s->c->kind);
    s->out = "parent/sub/out";
    watch_and_run(s, TRAIN OVERWRITE);
    expect_refused(s, "parent");
}

static void out_is_read_only(struct scene *s) {
    train_first(s, "");
    if (geteuid() == 0) s->as_nobody = true;
    MUST(chmod("out", 0555));
    watch_and_run(s, TRAIN OVERWRITE);
    MUST(chmod("out", 0755));
    MUST(chmod("out", 0555));
    expect_refused(s, "out");
    MUST(chmod("out", 0755));
}

/* Names that need quoting in a shell or in a message. */
static void out_is_called(struct scene *s) {
    char words[1024];
    s->out = s->c->entry;
    s->may_make = "*";
    watch_and_run(s, TRAIN "--save_total_limit 2");
    if (!s->c->number || succeeded(s)) {
        expect_done(s);
        expect_same(s, in_folder(s->out, "model.safetensors"), control(s, TRAIN, "model.safetensors"));
        remove_tree(in_folder(s->out, "checkpoint-4"));
        snprintf(words, sizeof words, TRAIN "--resume_from_checkpoint True");
        run(s, words);
        expect_done(s);
        expect_same(s, in_folder(s->out, "model.safetensors"), control(s, TRAIN, "model.safetensors"));
        expect_there(s, in_folder(s->out, "checkpoint-4"), true);
        expect_nothing_hidden(s, s->out);
    } else
        expect_error(s, "");
    run(s, "train " RUN OVERWRITE "--output_dir=@out --load_best_model_at_end --validation_file in/dev.csv "
           "--eval_strategy steps --eval_steps 1 --save_total_limit 1");
    if (!succeeded(s)) expect_error(s, "UTF-8"); /* which trainer_state.json may not be able to name */
    expect_untouched(s);
}

/* The same names, with a link in place of one of snug's files. */
static void called_and_occupied(struct scene *s) {
    s->out = s->c->entry;
    put_kind(in_folder(s->out, "config.json"), "link to a file");
    watch_and_run(s, TRAIN OVERWRITE);
    expect_refused(s, "config.json");
}

static void add_output_folders(void) {
    static const char *const ways[] = {"linked", "linked/", "./linked", "second", "@root/linked", "in/../second//"};
    EACH(i, ways) {
        add(out_is_a_link, ways[i], "", 0, "out is a link to a folder, as %s", ways[i]);
        add(out_is_a_link, ways[i], OVERWRITE, 0, "out is a link to a folder, as %s, --overwrite_output_dir", ways[i]);
    }
    static const char *const no_folder[] = {"link to a file", "link to nothing", "link to itself", "pipe",
                                            "socket",         "device",          "foreign file",   "hard link"};
    EACH(k, no_folder) {
        add(out_is, NULL, no_folder[k], 0, "out is a %s", no_folder[k]);
        add(out_below, NULL, no_folder[k], 0, "out is below a %s", no_folder[k]);
    }
    add(out_is_read_only, NULL, NULL, 0, "out is read-only");
    static const char *const odd[] = {
        "my out", "out\nput", "out\tput",    "it's \"out\"",     "out%s%n",      "\xc3\xb6ut",
        "*",      "out/.",    "deep/er/out", "./-out",           "checkpoint-2", "out.snug-aside",
        ".out",   "..out",    "out\\",       "out/checkpoint-7", "o\xffut",      "\xff\xfe/\xc3"};
    EACH(i, odd) {
        add(out_is_called, odd[i], NULL, i >= 16, "the output folder is called \"%s\"", odd[i]);
        add(called_and_occupied, odd[i], NULL, 0, "config.json is a link in \"%s\"", odd[i]);
    }
}

int main(int argc, char **argv) {
    add_output_files();
    add_locks();
    add_left();
    add_checkpoints();
    add_runs();
    add_output_folders();
    return play_all("test_scenes", argc > 1 ? argv[1] : NULL);
}
