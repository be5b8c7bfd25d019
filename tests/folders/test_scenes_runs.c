/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a folder while a run writes to it, and between two runs: rotation and removal of checkpoints, other
 * spellings of the output folder, moved and copied folders, sources that change, damaged and stale checkpoints, the
 * token cache, losses that are not finite.
 *
 * build/test_scenes_runs [PATTERN]
 */
#include "scenes_runs.h"

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text++) count++;
    return count;
}

/* ---- rotation and --overwrite_output_dir --------------------------------------------------------------------------
 */

static void rotation_leaves_earlier_runs(struct scene *s) {
    train_first(s, "--max_steps 8");
    s->may_make = OUTPUT;
    s->may_change = OUTPUT; /* checkpoint-1 to 4 */
    if (s->c->number) {     /* also those with lower numbers than the run's own */
        s->may_change =
            "out/*.json out/*.txt out/README.md out/model.safetensors out/checkpoint-[24] out/checkpoint-[24]/*";
        watch_and_run(s, TRAIN "--seed 7 --save_total_limit 1 --save_steps 2");
        expect_done(s);
        expect_checkpoints(s, "out", "1 3 4 5 6 7 8");
        return;
    }
    watch_and_run(s, TRAIN "--seed 7 --save_total_limit 1");
    expect_done(s);
    expect_checkpoints(s, "out", "4 5 6 7 8");
}

static void rotation_after_resuming(struct scene *s) {
    start_and_wait(s, LONG "--save_total_limit 2", "saved out/checkpoint-120");
    kill_it(s, s->c->number);
    if (s->c->entry) MUST(rename("out", s->c->entry));
    if (s->c->entry) s->out = s->c->entry;
    run(s, LONG RESUME "--save_total_limit 1");
    expect_success(s);
    expect_checkpoints(s, s->out, "240");
    expect_nothing_hidden(s, s->out);
    expect_same(s, in_folder(s->out, "model.safetensors"), control(s, LONG, "model.safetensors"));
}

/* The resumed run reads its model, tokenizer or configuration from a checkpoint that rotation would remove. */
static void rotation_spares_sources(struct scene *s) {
    char words[2048];
    start_and_wait(s, LONG, "saved out/checkpoint-120");
    kill_it(s, SIGKILL);
    put_link("linked", "out/checkpoint-60");
    snprintf(words, sizeof words, LONG RESUME "--save_total_limit 1 %s %s", s->c->kind, s->c->entry);
    watch(s);
    run(s, words);
    expect_success(s);
    s->may_make = "*";
    s->may_change = "out/[!c]* out/config.json out/.* out/checkpoint-[12]* out/checkpoint-[12]*/*";
    expect_untouched(s);
    expect_checkpoints(s, "out", "60 240");
}

static void overwrite_refuses_sources(struct scene *s) {
    char words[2048];
    train_first(s, "");
    put_link("linked", "out/checkpoint-2");
    put_folder("of-links");
    put_link("of-links/config.json", "../out/checkpoint-2/config.json");
    put_link("of-links/vocab.txt", "../in/model/vocab.txt");
    put_link("of-links/model.safetensors", "../out/checkpoint-2/model.safetensors");
    if (strstr(s->c->kind, "_file")) put_data("out/checkpoint-2/data.csv", 8, 0);
    snprintf(words, sizeof words, TRAIN OVERWRITE "--eval_strategy no %s %s", s->c->kind, s->c->entry);
    watch_and_run(s, words);
    expect_refused(s, "checkpoint-2");
}

static void overwrite_removes_its_own(struct scene *s) {
    train_first(s, "--max_steps 8");
    put("out/notes.txt", "notes of the user");
    s->may_make = s->may_change = OUTPUT " out/checkpoint-[5-8] out/checkpoint-[5-8]/*";
    watch_and_run(s, TRAIN OVERWRITE "--max_steps 3");
    expect_done(s);
    expect_checkpoints(s, "out", "1 2 3");
}

static void add_rotation(void) {
    add(rotation_leaves_earlier_runs, NULL, NULL, 0, "rotation leaves an earlier run's checkpoints");
    add(rotation_leaves_earlier_runs, NULL, NULL, 1, "rotation leaves an earlier run's checkpoints with lower numbers");
    add(rotation_after_resuming, NULL, NULL, SIGKILL, "rotation after a kill");
    add(rotation_after_resuming, NULL, NULL, SIGTERM, "rotation after an interrupt");
    add(rotation_after_resuming, "moved", NULL, SIGKILL, "rotation after a kill in a moved folder");
    static const char *const flags[] = {"--model_name_or_path", "--tokenizer_name", "--config_name"};
    static const char *const spellings[] = {"out/checkpoint-60", "@root/out/checkpoint-60", "linked",
                                            "in/..//out/checkpoint-60/"};
    EACH(i, spellings)
    EACH(k, flags)
    if (i == 0 || k == 0)
        add(rotation_spares_sources, spellings[i], flags[k], 0, "rotation leaves the source %s %s", flags[k],
            spellings[i]);
    static const char *const sources[] = {"out/checkpoint-2", "@root/out/checkpoint-2", "linked",
                                          "in/..//out/checkpoint-2/"};
    EACH(i, sources)
    EACH(k, flags)
    add(overwrite_refuses_sources, sources[i], flags[k], 0, "--overwrite_output_dir and %s %s", flags[k], sources[i]);
    add(overwrite_refuses_sources, "of-links", "--model_name_or_path", 0,
        "--overwrite_output_dir and a model of links");
    add(overwrite_refuses_sources, "out/checkpoint-2/data.csv", "--train_file", 0,
        "--overwrite_output_dir and --train_file");
    add(overwrite_refuses_sources, "linked/data.csv", "--validation_file", 0,
        "--overwrite_output_dir and --validation_file");
    add(overwrite_removes_its_own, NULL, NULL, 0, "--overwrite_output_dir removes an earlier run's checkpoints");
}

/* ---- users change the folder during a run
 * ------------------------------------------------------------ */

/* The user changes a checkpoint of the run before rotation would remove it. */
static void checkpoint_changes(struct scene *s) {
    start_and_wait(s, LONG "--save_total_limit 1", "saved out/checkpoint-60");
    if (strcmp(s->c->kind, "has a foreign file") == 0)
        put("out/checkpoint-60/notes.txt", "notes of the user");
    else if (strcmp(s->c->kind, "has a foreign folder") == 0)
        put("out/checkpoint-60/notes/file", "notes of the user");
    else if (strcmp(s->c->kind, "has a link") == 0)
        put_link("out/checkpoint-60/notes", "../../outside/folder");
    else {
        MUST(rename("out/checkpoint-60", "outside/checkpoint"));
        if (strcmp(s->c->kind, "is a link to a checkpoint") == 0)
            put_link("out/checkpoint-60", "../outside/checkpoint");
        else
            put_kind("out/checkpoint-60", s->c->kind);
    }
    watch(s);
    s->may_make = "*";
    s->may_change = "out/[!c]* out/.* out/checkpoint-[12]* out/checkpoint-[12]*/*";
    finish(s);
    expect_done(s);
    expect_checkpoints(s, "out", "60 240");
    if (count_of(s->err, "checkpoint-60") < 2) scene_fails(s, "no message says that checkpoint-60 is left");
    expect_same(s, "out/model.safetensors", control(s, LONG, "model.safetensors"));
}

/* The user creates an entry that the run is to write later. The target of a link is not changed. */
static void entry_appears(struct scene *s) {
    const char *path = in_folder("out", s->c->entry);
    start_and_wait(s, LONG "--report_to tensorboard", "saved out/checkpoint-60");
    put_kind(path, s->c->kind);
    watch(s);
    s->may_make = "*";
    char patterns[512];
    snprintf(patterns, sizeof patterns, "out/.* out/manifest.json out/runs/* %s",
             strncmp(s->c->entry, "checkpoint-", 11) == 0 ? "" : path);
    s->may_change = patterns;
    finish(s);
    if (WIFSIGNALED(s->status)) scene_fails(s, "ended by signal %d", WTERMSIG(s->status));
    expect_untouched(s);
    if (!succeeded(s)) expect_error(s, s->c->entry);
}

/* The user replaces the lock by a file. The run does not remove that file at its end. */
static void lock_is_replaced(struct scene *s) {
    start_and_wait(s, LONG, "saved out/checkpoint-60");
    MUST(rename("out/.snug.lock", "outside/lock"));
    put_kind("out/.snug.lock", s->c->kind);
    watch(s);
    s->may_make = "*";
    finish(s);
    s->may_change = "outside/lock out/manifest.json";
    expect_untouched(s);
}

/* The run continues to write into the folder that it opened. */
static void out_is_renamed(struct scene *s) {
    start_and_wait(s, LONG "--report_to tensorboard --save_total_limit 1", "saved out/checkpoint-60");
    MUST(rename("out", "moved"));
    if (strcmp(s->c->kind, "folder") == 0) {
        put("out/config.json", "a file of the user");
        put("out/checkpoint-60/file", "a file of the user");
        put("out/checkpoint-120/file", "a file of the user");
        put("out/.snug.lock", "a file of the user");
    } else if (*s->c->kind)
        put_kind("out", s->c->kind);
    watch(s);
    s->may_make = s->may_change = "cache/* moved/*";
    finish(s);
    expect_done(s);
    expect_checkpoints(s, "moved", "240");
    expect_nothing_hidden(s, "moved");
    expect_same(s, "moved/model.safetensors", control(s, LONG, "model.safetensors"));
    expect_there(s, "moved/all_results.json", true);
}

static void out_is_removed(struct scene *s) {
    start_and_wait(s, LONG, "saved out/checkpoint-60");
    remove_tree("out");
    watch(s);
    finish(s);
    expect_refused(s, "out");
}

/* A second run into the same folder is refused. The first run ends with the same bits. */
static void second_run(struct scene *s) {
    struct scene second = {.c = s->c, .pipe = -1, .stdout_fd = -1, .out = s->c->entry};
    strcpy(second.root, s->root);
    put_link("linked", "out");
    start_and_wait(s, LONG, "saved out/checkpoint-60");
    if (strcmp(s->c->entry, "moved") == 0) MUST(rename("out", "moved"));
    run(&second, s->c->kind);
    char holder[32];
    snprintf(holder, sizeof holder, "%ld", (long)s->child);
    expect_error(&second, holder);
    close(second.stdout_fd);
    finish(s);
    expect_success(s);
    const char *out = strcmp(s->c->entry, "moved") == 0 ? "moved" : "out";
    expect_checkpoints(s, out, "60 120 180 240");
    expect_same(s, in_folder(out, "model.safetensors"), control(s, LONG, "model.safetensors"));
}

static void add_changes_in_a_run(void) {
    static const char *const changes[] = {"has a foreign file", "has a foreign folder",
                                          "has a link",         "is a link to a checkpoint",
                                          "foreign file",       "folder",
                                          "link to nothing"};
    EACH(i, changes) add(checkpoint_changes, NULL, changes[i], 0, "in a run: checkpoint-60: %s", changes[i]);
    static const char *const entries[] = {
        "config.json",    "model.safetensors",         "vocab.txt", "trainer_state.json", "all_results.json",
        "checkpoint-180", ".checkpoint-180.snug-aside"};
    static const char *const entry_kinds[] = {"link to a file", "link to a folder", "link to nothing", "folder",
                                              "pipe"};
    EACH(i, entries)
    EACH(k, entry_kinds)
    add(entry_appears, entries[i], entry_kinds[k], 0, "in a run: out/%s is now a %s", entries[i], entry_kinds[k]);
    static const char *const lock_kinds[] = {"foreign file", "link to a file", "folder", "link to nothing"};
    EACH(k, lock_kinds)
    add(lock_is_replaced, NULL, lock_kinds[k], 0, "in a run: out/.snug.lock is now a %s", lock_kinds[k]);
    add(out_is_renamed, NULL, "", 0, "in a run: out is renamed");
    add(out_is_renamed, NULL, "folder", 0, "in a run: out is renamed, and another folder has its name");
    add(out_is_renamed, NULL, "link to a folder", 0, "in a run: out is renamed, and a link has its name");
    add(out_is_renamed, NULL, "foreign file", 0, "in a run: out is renamed, and a file has its name");
    add(out_is_removed, NULL, NULL, 0, "in a run: out is removed");
    static const char *const outs[] = {"out", "out/", "linked", "@root/out", "moved"};
    EACH(i, outs) {
        add(second_run, outs[i], TRAIN, 0, "in a run: a second run into %s", outs[i]);
        add(second_run, outs[i], TRAIN OVERWRITE, 0, "in a run: a second run into %s, --overwrite_output_dir", outs[i]);
    }
}

/* ---- kills
 * --------------------------------------------------------------------------------------------------------------- */

static void killed(struct scene *s) {
    start_and_wait(s, LONG "--save_total_limit 1", s->c->entry);
    kill_it(s, SIGKILL);
    expect_there(s, "out/.snug.lock", true);
    char *line = get_bytes("out/.snug.lock", NULL), *number = strstr(line, ", run ");
    if (strncmp(line, "process ", 8) != 0 || !number || strspn(number + 6, "0123456789abcdef") != 16)
        scene_fails(s, "the lock file holds \"%s\"", line);
    free(line);
    if (strcmp(s->c->kind, "moved") == 0) MUST(rename("out", "moved"));
    if (strcmp(s->c->kind, "copied") == 0) copy_tree("out", "copied");
    s->out = s->c->kind;
    put(in_folder(s->out, ".mine.snug-1-2"), "a file of the user");
    s->may_make = s->may_change = "*/[!.]* */.snug.lock";
    watch(s);
    run(s, s->c->number ? LONG RESUME "--save_total_limit 1" : LONG "--save_total_limit 1");
    expect_done(s);
    MUST(unlink(in_folder(s->out, ".mine.snug-1-2")));
    expect_nothing_hidden(s, s->out);
    expect_same(s, in_folder(s->out, "model.safetensors"), control(s, LONG, "model.safetensors"));
}

static void add_kills(void) {
    static const char *const lines[] = {"{'loss'", "saved out/checkpoint-60", "saved out/checkpoint-180"};
    static const char *const outs[] = {"out", "moved", "copied"};
    EACH(i, lines) EACH(k, outs) {
        add(killed, lines[i], outs[k], 0, "killed at \"%s\", next run in %s", lines[i], outs[k]);
        if (i > 0) add(killed, lines[i], outs[k], 1, "killed at \"%s\", resumed in %s", lines[i], outs[k]);
    }
}

/* ---- spellings
 * ------------------------------------------------------------------------------------------------------------- */

/* entry: how the resumed run names the folder; kind: how the first one did. */
static void spelled(struct scene *s) {
    char copied[SCENE_PATH] = "";
    put_link("linked", "out");
    s->out = s->c->kind;
    start(s, BEST);
    wait_line(s, "checkpoint-120");
    kill_it(s, s->c->number);
    if (strcmp(s->c->entry, "moved") == 0) MUST(rename("out", "moved"));
    if (strcmp(s->c->entry, "deep/er/moved") == 0) {
        make_parents(s->c->entry);
        MUST(rename("out", s->c->entry));
    }
    if (strcmp(s->c->entry, "copied") == 0) {
        copy_tree("out", "copied");
        snprintf(copied, sizeof copied, "cache/* copied copied/*");
    }
    s->out = s->c->entry;
    s->may_make = s->may_change = *copied ? copied : "*";
    watch(s);
    run(s, BEST RESUME);
    expect_done(s);
    const char *out = strchr("md", *s->out) || strcmp(s->out, "copied") == 0 ? s->out : "out";
    expect_checkpoints(s, out, "60 240");
    expect_same(s, in_folder(out, "model.safetensors"), control(s, BEST, "model.safetensors"));
    expect_same(s, in_folder(out, "checkpoint-240/model.safetensors"),
                control(s, BEST, "checkpoint-240/model.safetensors"));
    expect_same(s, in_folder(out, "model.safetensors"), in_folder(out, "checkpoint-60/model.safetensors"));
}

static void add_spellings(void) {
    static const char *const again[] = {"out",       "out/",  "./out", "@root/out", "linked",        "linked/",
                                        "in/../out", "out/.", "out//", "moved",     "deep/er/moved", "copied"};
    EACH(i, again) {
        add(spelled, again[i], "out", SIGKILL, "a run into out is killed and resumed as %s", again[i]);
        if (i % 2)
            add(spelled, again[i], "@root/out", SIGTERM, "a run into an absolute path is interrupted and resumed as %s",
                again[i]);
        if (i % 3 == 0)
            add(spelled, again[i], "in/../out/", SIGKILL, "a run into in/../out/ is killed and resumed as %s",
                again[i]);
    }
}

/* ---- sources that change after the start
 * --------------------------------------------------------------------------------------- */

static void source_changes(struct scene *s) {
    const char *path = s->c->entry, *const compared[] = {"config.json", "vocab.txt", "tokenizer_config.json",
                                                         "model.safetensors", "optimizer.safetensors"};
    start_and_wait(s, LONG, "{'loss'");
    if (strcmp(s->c->kind, "rewritten") == 0)
        put(path, "{\"other\": \"content\"}\n");
    else {
        MUST(rename(path, "outside/source"));
        if (strcmp(s->c->kind, "removed") != 0) put_kind(path, s->c->kind);
    }
    finish(s);
    expect_success(s);
    EACH(i, compared) {
        const char *in_checkpoint = in_folder("checkpoint-240", compared[i]);
        expect_same(s, in_folder("out", in_checkpoint), control(s, LONG, in_checkpoint));
        if (i < 4) expect_same(s, in_folder("out", compared[i]), control(s, LONG, compared[i]));
    }
    expect_there(s, "out/eval_results.json", true);
}

static void add_sources(void) {
    static const char *const sources[] = {"in/model/config.json", "in/model/model.safetensors",
                                          "in/model/vocab.txt",   "in/model/tokenizer_config.json",
                                          "in/train.csv",         "in/dev.csv"};
    static const char *const changes[] = {"removed", "rewritten", "pipe", "folder", "link to nothing"};
    EACH(i, sources)
    EACH(k, changes) add(source_changes, sources[i], changes[k], 0, "in a run: %s is now: %s", sources[i], changes[k]);
    add(source_changes, "in/model", "removed", 0, "in a run: in/model is removed");
    add(source_changes, "in", "removed", 0, "in a run: in is removed");
    add(source_changes, "cache", "removed", 0, "in a run: cache is removed");
}

int main(int argc, char **argv) {
    add_rotation();
    add_changes_in_a_run();
    add_kills();
    add_spellings();
    add_sources();
    return play_all("test_scenes_runs", argc > 1 ? argv[1] : NULL);
}
