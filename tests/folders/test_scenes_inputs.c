/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and descriptors: pipes, sockets, devices and folders among the files of a model and as data, outputs and
 * models in one folder, modes of files made of private inputs, eval's results, programs started without stdin, stdout
 * or stderr.
 *
 * build/test_scenes_inputs [PATTERN]
 */
#include "scenes.h"

/* ---- model folders and data
 * ------------------------------------------------------------------------------------------- */

static const char *const model_files[] = {
    "config.json",      "model.safetensors", "model.safetensors.index.json", "model-00001-of-00001.safetensors",
    "vocab.txt",        "tokenizer.json",    "tokenizer_config.json",        "special_tokens_map.json",
    "added_tokens.json"};
static const char *const readers[] = {TRAIN, EVAL, PREDICT,
                                      "tokenize --model_name_or_path in/model --test_file in/dev.csv"};
static const char *const reader_names[] = {"train", "eval", "predict", "tokenize"};

/* An entry of a model folder that is no regular file is an error. The program does not wait for it. */
static void model_file_is(struct scene *s) {
    const char *path = in_folder("in/model", s->c->entry);
    if (strstr(s->c->entry, "-00001-") || strstr(s->c->entry, "index")) unlink("in/model/model.safetensors");
    if (strstr(s->c->entry, "-00001-"))
        put("in/model/model.safetensors.index.json",
            "{\"metadata\": {}, \"weight_map\": {\"bert.embeddings.word_embeddings.weight\": "
            "\"model-00001-of-00001.safetensors\"}}");
    unlink(path);
    put_kind(path, s->c->kind);
    watch_and_run(s, readers[s->c->number]);
    expect_refused(s, s->c->entry);
}

static void data_file_is(struct scene *s) {
    unlink("in/train.csv");
    unlink("in/dev.csv");
    put_kind("in/train.csv", s->c->kind);
    put_kind("in/dev.csv", s->c->kind);
    watch_and_run(s, readers[s->c->number]);
    expect_refused(s, s->c->number ? "dev.csv" : "train.csv");
}

/* The data file is a pipe, and another process writes to it. */
static void data_is_a_pipe(struct scene *s) {
    const char *words = readers[s->c->number], *path = s->c->number ? "in/dev.csv" : "in/train.csv";
    size_t size;
    char *data = get_bytes(path, &size);
    run(s, words);
    expect_success(s);
    char *expected = strdup(stdout_of(s));
    remove_tree("out");
    unlink(path);
    MUST(mkfifo(path, 0666));
    s->may_make = OUTPUT;
    watch(s);
    start(s, words);
    const pid_t writer = fork();
    if (writer == 0) {
        alarm(TIME_LIMIT);
        const int fd = open(path, O_WRONLY);
        if (fd < 0) _exit(1);
        for (size_t done = 0; done < size; done += 5)
            if (write(fd, data + done, size - done < 5 ? size - done : 5) < 0) _exit(1);
        _exit(0);
    }
    finish(s);
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    expect_done(s);
    if (s->c->number > 1 && strcmp(stdout_of(s), expected) != 0) scene_fails(s, "a pipe and a file give other output");
    if (s->c->number == 0) expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
    free(expected);
    free(data);
}

/* As in the Hugging Face cache, where each file of a model is a link to a blob. */
static void model_of_links(struct scene *s) {
    EACH(i, model_files) {
        const char *path = in_folder("in/model", model_files[i]), *blob = in_folder("outside/blobs", model_files[i]);
        if (!there(path)) continue;
        make_parents(blob);
        MUST(rename(path, blob));
        put_link(path, way_back(path, blob));
    }
    s->may_make = OUTPUT;
    watch_and_run(s, TRAIN);
    expect_done(s);
    expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
    struct stat info;
    MUST(lstat("out/vocab.txt", &info));
    assert_true(S_ISREG(info.st_mode));
}

static void out_is_the_model_folder(struct scene *s) {
    s->out = "in/model";
    watch_and_run(s, TRAIN);
    expect_refused(s, "in/model");
    if (!s->c->number) return;
    s->may_make = "cache cache/* in/model/*";
    s->may_change = "in/model/*";
    run(s, TRAIN OVERWRITE);
    expect_done(s);
    expect_same(s, "in/model/model.safetensors", control(s, TRAIN, "model.safetensors"));
}

static void out_is_in_the_model_folder(struct scene *s) {
    s->out = "in/model/out";
    s->may_make = "cache cache/* in/model/out in/model/out/*";
    watch_and_run(s, s->c->number ? TRAIN OVERWRITE : TRAIN);
    expect_done(s);
    expect_same(s, "in/model/out/model.safetensors", control(s, TRAIN, "model.safetensors"));
}

static void model_is_in_out(struct scene *s) {
    put_folder("out");
    MUST(rename("in/model", "out/base"));
    MUST(rename("in/train.csv", "out/train.csv"));
    s->may_make = OUTPUT;
    char words[1024];
    snprintf(words, sizeof words, TRAIN "--model_name_or_path out/base --train_file out/train.csv %s",
             s->c->number ? OVERWRITE "--save_total_limit 1" : "");
    watch_and_run(s, words);
    expect_done(s);
    expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
}

/* The next run reads its model from out and writes to out: the same bits as in another output folder. */
static void out_is_its_own_model(struct scene *s) {
    run(s, TRAIN "--save_strategy no");
    expect_success(s);
    copy_tree("out", "outside/first");
    s->out = "other";
    run(s, TRAIN "--model_name_or_path outside/first --seed 3");
    expect_success(s);
    s->out = "out";
    s->may_make = s->may_change = OUTPUT;
    watch_and_run(s, TRAIN "--model_name_or_path out --seed 3");
    expect_done(s);
    expect_same(s, "out/model.safetensors", "other/model.safetensors");
    expect_same(s, "out/vocab.txt", "other/vocab.txt");
}

static void model_is_unreadable(struct scene *s) {
    if (geteuid() == 0) s->as_nobody = true;
    MUST(chmod(in_folder("in/model", s->c->entry), 0));
    watch(s);
    run(s, PREDICT);
    expect_refused(s, s->c->entry);
}

static void add_models(void) {
    static const char *const file_kinds[] = {"pipe", "socket", "link to a device", "folder", "link to itself"};
    EACH(i, model_files) EACH(k, file_kinds) EACH(r, readers) {
        const bool weights = strstr(model_files[i], "safetensors") != NULL;
        if (r == 1 || (r == 3 && weights)) continue; /* eval reads as predict does; tokenize reads no weights */
        if (k > 1 && r == 2) continue;
        /* A folder or a broken link: where the run cannot do without the file. */
        if (k > 2 && (r != 0 || (i > 1 && strcmp(model_files[i], "vocab.txt") != 0))) continue;
        add(model_file_is, model_files[i], file_kinds[k], (int)r, "in/model/%s is a %s, %s", model_files[i],
            file_kinds[k], reader_names[r]);
    }
    static const char *const data_kinds[] = {"socket", "folder", "link to nothing", "link to itself"};
    EACH(r, readers) {
        EACH(k, data_kinds)
        add(data_file_is, NULL, data_kinds[k], (int)r, "the data file is a %s, %s", data_kinds[k], reader_names[r]);
        add(data_is_a_pipe, NULL, NULL, (int)r, "the data comes through a pipe, %s", reader_names[r]);
    }
    add(model_of_links, NULL, NULL, 0, "the model's files are links");
    add(out_is_the_model_folder, NULL, NULL, 0, "out is the model folder");
    add(out_is_the_model_folder, NULL, NULL, 1, "out is the model folder, --overwrite_output_dir");
    add(out_is_in_the_model_folder, NULL, NULL, 0, "out is in the model folder");
    add(out_is_in_the_model_folder, NULL, NULL, 1, "out is in the model folder, --overwrite_output_dir");
    add(model_is_in_out, NULL, NULL, 0, "model and data are in out");
    add(model_is_in_out, NULL, NULL, 1, "model and data are in out, --overwrite_output_dir");
    add(out_is_its_own_model, NULL, NULL, 0, "out is the model folder of the next run");
    static const char *const unreadable[] = {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"};
    EACH(i, unreadable) add(model_is_unreadable, unreadable[i], NULL, 0, "in/model/%s cannot be read", unreadable[i]);
}

/* ---- eval
 * ---------------------------------------------------------------------------------------------------------------- */

static void eval_occupied(struct scene *s) {
    put_kind(in_folder("out", s->c->entry), s->c->kind);
    watch_and_run(s, EVAL "--output_dir out");
    expect_refused(s, s->c->entry);
}

static void eval_twice(struct scene *s) {
    put("out/notes.txt", "notes of the user");
    s->may_make = OUTPUT;
    s->may_change = "out/eval_results.json out/all_results.json out/manifest.json";
    watch_and_run(s, EVAL "--output_dir out");
    expect_done(s);
    watch_and_run(s, EVAL "--output_dir out");
    expect_done(s);
    expect_there(s, "out/.snug.lock", false);
}

static void eval_after_train(struct scene *s) {
    train_first(s, "");
    s->may_make = OUTPUT;
    s->may_change = "out/eval_results.json out/all_results.json out/manifest.json";
    watch_and_run(s, EVAL "--model_name_or_path out --output_dir out");
    expect_done(s);
    s->may_change = OUTPUT;
    run(s, TRAIN); /* what eval wrote is snug's */
    expect_done(s);
}

static void add_evaluations(void) {
    static const char *const results[] = {"eval_results.json", "all_results.json"};
    EACH(i, results)
    for (int k = 0; k < IRREGULAR_KINDS; k++)
        add(eval_occupied, results[i], kinds[k], 0, "out/%s is a %s, eval", results[i], kinds[k]);
    add(eval_twice, NULL, NULL, 0, "eval twice into one folder");
    add(eval_after_train, NULL, NULL, 0, "eval into the folder of a training");
}

/* ---- permissions
 * --------------------------------------------------------------------------------------- */

/* No file in folder whose name is one of names can be read by those who cannot read the input, which has this mode. */
static void expect_private(struct scene *s, const char *folder, const char *names, mode_t input) {
    const mode_t mask = ~input & 0066;
    char found[SCENE_PATH] = "";
    FTS *walk = fts_open((char *[]){(char *)(uintptr_t)folder, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *at; (at = fts_read(walk));) {
        const mode_t mode = at->fts_statp->st_mode;
        const bool enters = (mask & 0070 && mode & 0010) || (mask & 0007 && mode & 0001);
        if (at->fts_info == FTS_D && !enters)
            fts_set(walk, at, FTS_SKIP);
        else if (at->fts_info == FTS_F && mode & mask && is_allowed(names, at->fts_name))
            snprintf(found, sizeof found, "%s has mode %o", at->fts_path, mode & 07777);
    }
    fts_close(walk);
    if (found[0]) scene_fails(s, "%s, which is more than its input has", found);
}

#define MADE_OF_DATA "model.safetensors optimizer.safetensors"

/* entry: the input; kind: the files that are made of it. */
static void input_is_private(struct scene *s) {
    const mode_t mode = (mode_t)s->c->number;
    MUST(chmod(s->c->entry, mode));
    umask(mode & 0070 ? 0 : 022);
    run(s, TRAIN "--validation_file in/dev.csv --eval_strategy steps --eval_steps 2");
    expect_success(s);
    expect_private(s, "out", s->c->kind, mode);
    expect_private(s, "cache", "*", 0600);
    run(s, "eval --model_name_or_path out --validation_file in/dev.csv --output_dir evaluated --threads 1");
    expect_success(s);
    expect_private(s, "evaluated", s->c->kind, mode);
}

static void private_again(struct scene *s) {
    MUST(chmod("in/model/model.safetensors", 0600));
    run(s, TRAIN);
    expect_success(s);
    s->out = "next";
    run(s, TRAIN "--model_name_or_path out");
    expect_success(s);
    expect_private(s, "next", MADE_OF_DATA, 0600);
}

static void cache_is_private(struct scene *s) {
    umask((mode_t)s->c->number);
    if (s->c->kind) {
        put_folder("cache");
        MUST(chmod("cache", 0755));
    }
    run(s, PREDICT);
    expect_success(s);
    struct stat info;
    MUST(stat("cache", &info));
    if ((info.st_mode & 07777) != (s->c->kind ? 0755 : 0700)) scene_fails(s, "cache has mode %o", info.st_mode & 07777);
    int files = 0;
    FTS *walk = fts_open((char *[]){(char[]){"cache"}, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *at; (at = fts_read(walk));)
        if (at->fts_info == FTS_F && strstr(at->fts_name, ".tokens")) {
            files++;
            if ((at->fts_statp->st_mode & 07777) != 0600)
                scene_fails(s, "%s has mode %o", at->fts_path, at->fts_statp->st_mode & 07777);
        }
    fts_close(walk);
    if (files != 1) scene_fails(s, "there are %d cache files", files);
}

static void add_private(void) {
    static const char *const inputs[][2] = {{"in/model/model.safetensors", MADE_OF_DATA},
                                            {"in/model/config.json", "config.json"},
                                            {"in/model/vocab.txt", "vocab.txt"},
                                            {"in/train.csv", MADE_OF_DATA},
                                            {"in/dev.csv", "eval_results.json"},
                                            {"in/model", MADE_OF_DATA " config.json vocab.txt tokenizer_config.json"},
                                            {"in", MADE_OF_DATA " config.json vocab.txt tokenizer_config.json"}};
    EACH(i, inputs) {
        const bool folder = i > 4;
        add(input_is_private, inputs[i][0], inputs[i][1], folder ? 0700 : 0600, "%s is its owner's alone",
            inputs[i][0]);
        add(input_is_private, inputs[i][0], inputs[i][1], folder ? 0750 : 0640, "%s is its group's, umask 0",
            inputs[i][0]);
    }
    add(private_again, NULL, NULL, 0, "a model of a private model is the next run's");
    add(cache_is_private, NULL, NULL, 022, "the cache of tokens is private");
    add(cache_is_private, NULL, NULL, 0, "the cache of tokens is private, umask 0");
    add(cache_is_private, NULL, "there", 0, "files are private in a cache folder that others can read");
}

/* ---- closed descriptors
 * ------------------------------------------------------------------------------------------------------ */

/* Every file of two folders but those that clocks change. */
static void expect_same_output(struct scene *s, const char *words) {
    char from[SCENE_PATH];
    snprintf(from, sizeof from, "%s", control(s, words, ""));
    FTS *walk = fts_open((char *[]){(char[]){"out"}, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *at; (at = fts_read(walk));) {
        if (at->fts_info != FTS_F) continue;
        if (strstr(at->fts_name, ".json") && strcmp(at->fts_name, "config.json") != 0) {
            json_t *json = json_load_file(at->fts_path, 0, NULL);
            if (!json) scene_fails(s, "%s is not JSON", at->fts_path);
            json_decref(json);
        } else
            expect_same(s, at->fts_path, in_folder(from, at->fts_path + strlen("out/")));
    }
    fts_close(walk);
}

/* No file of the tree holds a part of a message. */
static void expect_no_messages(struct scene *s) {
    static const char *const parts[] = {"{'loss'",   "saved out/", "tokenized into",    "read from /", "snug: ",
                                        "warning: ", " samples/s", "index,label,score", "eval_loss = "};
    char found[SCENE_PATH] = "";
    FTS *walk = fts_open((char *[]){(char[]){"."}, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *at; (at = fts_read(walk));) {
        if (at->fts_info != FTS_F) continue;
        size_t size;
        char *data = get_bytes(at->fts_path, &size);
        EACH(i, parts)
        if (memmem(data, size, parts[i], strlen(parts[i])))
            snprintf(found, sizeof found, "%s holds \"%s\"", at->fts_path, parts[i]);
        free(data);
    }
    fts_close(walk);
    if (found[0]) scene_fails(s, "%s", found);
}

#define LOGGED TRAIN "--report_to tensorboard "
#define OFFLOADED TRAIN "--offload weights,gradients,optimizer,activations "

static void closed_descriptors(struct scene *s) {
    const char *words = s->c->kind;
    const bool trains = strncmp(words, "train", 5) == 0, refused = strstr(words, "nothing") != NULL;
    s->may_make = refused ? "" : OUTPUT " out/runs out/runs/*";
    s->closed = s->c->number & 7;
    if (s->c->number & 8) put_folder("out"); /* its lock is then the first file that the run opens */
    watch(s);
    run(s, words);
    if (refused && succeeded(s)) scene_fails(s, "it was not refused");
    if (!refused && (trains || !(s->closed & 2))) expect_success(s); /* others need stdout */
    expect_untouched(s);
    expect_no_messages(s);
    if (!trains || refused) return;
    if (!strstr(words, "tensorboard")) expect_same_output(s, TRAIN);
    expect_same(s, "out/model.safetensors", control(s, TRAIN, "model.safetensors"));
    s->closed = 0; /* the token cache is whole */
    run(s, TRAIN);
    expect_success(s);
    if (strstr(s->err, "damaged")) scene_fails(s, "the token cache is damaged");
}

static void add_closed(void) {
    static const char *const words[][2] = {{TRAIN, "train"},
                                           {LOGGED, "train with TensorBoard"},
                                           {OFFLOADED, "train with --offload"},
                                           {TRAIN "--model_name_or_path in/nothing", "a refused train"},
                                           {EVAL "--output_dir out", "eval"},
                                           {PREDICT, "predict"}};
    for (int closed = 1; closed < 16; closed++) EACH(i, words) {
            if (closed % 8 == 0 || (closed > 8 && i > 2)) continue;
            add(closed_descriptors, NULL, words[i][0], closed, "%s without descriptors%s%s%s%s", words[i][1],
                closed & 1 ? " 0" : "", closed & 2 ? " 1" : "", closed & 4 ? " 2" : "",
                closed & 8 ? ", out exists" : "");
        }
}

int main(int argc, char **argv) {
    add_models();
    add_evaluations();
    add_private();
    add_closed();
    return play_all("test_scenes_inputs", argc > 1 ? argv[1] : NULL);
}
