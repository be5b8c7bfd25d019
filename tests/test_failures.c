/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines that fail: call number 1, 2, 3 … of snug's own calls for memory and files fails, once or from then on, or
 * the process is killed there, until the command comes to its end. Each time there is a sentence and an exit code,
 * nothing half written, the last checkpoint is whole, and the run that goes on from it ends with the same bits.
 *
 * build/test_failures ALLOCATIONS CALLS tries so many of each loop, spread over all; 0 is every one.
 */
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>

#include "cli.h"
#include "faults.h"
#include "training_fixture.h"

enum {
    POINTS_IN_CI = 12,
    EVERY = 8, /* failed allocations after which the run is gone on with */
};
static int64_t points[] = {POINTS_IN_CI, POINTS_IN_CI}; /* of allocations, of calls for files; 0: all */

/* ---- commands ------------------------------------------------------------------------------------------------- */

#define TINY                                                                                                           \
    "train --config_name tiny --tokenizer_name tiny --train_file few.csv --validation_file dev.csv --output_dir out "  \
    "--per_device_train_batch_size 4 --max_steps 2 --threads 1 --learning_rate 1e-3 --logging_steps 2 "                \
    "--eval_strategy steps --eval_steps 1 --save_steps 1 --device cpu "

struct scene {
    const char *name, *words;
    const char *given; /* out is a copy of it beforehand; NULL: there is none */
    bool cold;         /* without a token cache */
    const char *results[4];
};

static const struct scene scenes[] = {
    {"training from scratch",
     TINY "--report_to tensorboard --dataloader_num_workers 1 --json",
     NULL,
     true,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors", "out/checkpoint-1/model.safetensors"}},
    {"going on from a checkpoint",
     TINY "--resume_from_checkpoint True --save_total_limit 1 --load_best_model_at_end",
     "begun",
     false,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors"}},
    {"a saved model, offloaded, in bf16",
     TINY "--model_name_or_path begun/checkpoint-1 --offload optimizer,gradients,weights,activations --dtype bfloat16 "
          "--gradient_accumulation_steps 2 --save_strategy epoch",
     NULL,
     false,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors"}},
    {"masked LM",
     TINY "--task mlm --train_file few.txt --validation_file dev.txt --optim adamw_8bit --max_seq_length 32",
     NULL,
     true,
     {"out/model.safetensors", "out/checkpoint-2/optimizer.safetensors"}},
    {"evaluation",
     "eval --model_name_or_path begun --validation_file dev.csv --threads 1 --output_dir out --device cpu",
     NULL,
     true,
     {NULL}},
    {"prediction",
     "predict --model_name_or_path begun --test_file dev.csv --threads 1 --json --device cpu",
     NULL,
     false,
     {"stdout"}},
    {"a plan",
     "plan --model_name_or_path begun --train_file few.csv --validation_file dev.csv --threads 1 --json --device cpu",
     NULL,
     false,
     {NULL}},
};

static bool trains(const struct scene *scene) { return strncmp(scene->words, "train ", 6) == 0; }

/* Runs the command in a forked process whose calls fail as faults says; its wait status. */
static int run(const struct fixture *f, const char *words, struct faults *faults) {
    const pid_t child = fork();
    int status;
    assert_true(child >= 0);
    if (child == 0) {
        char copy[2048], *rest = copy, *arguments[96];
        int count = 0;
        if (chdir(f->folder) != 0 || !freopen("stdout", "w", stdout) || !freopen("stderr", "w", stderr)) _exit(125);
        alarm(SANITIZED ? 120 : 60); /* whatever fails, it ends */
        signal(SIGPIPE, SIG_IGN);
        snprintf(copy, sizeof copy, "%s", words);
        while (count < 95 && (arguments[count] = strsep(&rest, " ")))
            if (*arguments[count]) count++;
        arguments[count] = NULL;
        int (*const command)(int, char **) = arguments[0][0] == 't'   ? command_train
                                             : arguments[0][0] == 'e' ? command_eval
                                             : arguments[0][1] == 'r' ? command_predict
                                                                      : command_plan;
        faults_arm(faults);
        const int code = command(count, arguments);
        faults_arm(NULL);
        exit(code);
    }
    while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return status;
}

static void in_folder(const struct fixture *f, const char *command) {
    char line[1024];
    snprintf(line, sizeof line, "cd %s && %s", f->folder, command);
    assert_int_equal(system(line), 0);
}

static void prepare(const struct fixture *f, const struct scene *scene) {
    char line[256];
    in_folder(f, scene->cold ? "rm -rf out cache" : "rm -rf out");
    snprintf(line, sizeof line, "cp -r %s out", scene->given);
    if (scene->given) in_folder(f, line);
}

/* ---- what must be true after a failure ------------------------------------------------------------------------ */

struct trial {
    const struct scene *scene;
    struct faults *faults;
    int64_t tried, failures;
};

/* Says which call it was and all that the command printed; the loop goes on, so that one run shows every such call. */
static void wrong(const struct fixture *f, struct trial *t, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void wrong(const struct fixture *f, struct trial *t, const char *format, ...) {
    if (t->failures++ >= 20) return;
    char *errors = read_text(f, path_of(f, "stderr"), NULL);
    va_list values;
    fprintf(stderr, "%s, %s number %lld (%s): ", t->scene->name, t->faults->calls ? "call" : "allocation",
            (long long)t->faults->at, t->faults->name);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n--- its stderr:\n%s---\n", errors);
    free(errors);
}

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Looks at what lies in a folder: nothing that was not finished, and every checkpoint whole. */
static int64_t look_at(struct fixture *f, const char *name, bool killed, struct trial *t) {
    int64_t checkpoints = 0;
    DIR *folder = opendir(path_of(f, "%s", name));
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *path = path_of(f, "%s/%s", name, entry->d_name);
        if (*entry->d_name == '.') {
            if (!killed && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                wrong(f, t, "%s is left behind", path);
        } else if (starts_with(entry->d_name, "checkpoint-")) {
            if (snug_folder_verify(f->ctx, path) != SNUG_OK) wrong(f, t, "%s", snug_error_message(f->ctx));
            checkpoints++;
        } else if (strstr(entry->d_name, ".json")) {
            json_decref(read_json(f, path));
        }
    }
    closedir(folder);
    return checkpoints;
}

/* One sentence, which names what failed. */
static void check_message(const struct fixture *f, struct trial *t) {
    char *errors = read_text(f, path_of(f, "stderr"), NULL), *line = strstr(errors, "snug: ");
    if (!line || strlen(line) < 20)
        wrong(f, t, "no sentence");
    else if (!strstr(line, "memory") && !strstr(line, "/") && !strstr(line, ".csv") && !strstr(line, ".txt") &&
             !strstr(line, "out") && !strstr(line, "thread"))
        wrong(f, t, "it does not say what failed");
    free(errors);
}

static void check_results(const struct fixture *f, struct trial *t) {
    for (size_t i = 0; i < 4 && t->scene->results[i]; i++)
        if (!same_file(f, path_of(f, "%s", t->scene->results[i]), path_of(f, "whole/%s", t->scene->results[i])))
            wrong(f, t, "%s is not what it is without a failure", t->scene->results[i]);
}

static void resume(struct fixture *f, struct trial *t, bool any) {
    char words[2048];
    snprintf(words, sizeof words, "%s%s", t->scene->words, any ? " --resume_from_checkpoint True" : "");
    const int status = run(f, words, NULL);
    if (status != 0)
        wrong(f, t, "it cannot be resumed");
    else
        check_results(f, t);
}

/* Returns true where the command was not hit any more. */
static bool check(struct fixture *f, struct trial *t, int status) {
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && t->faults->effect == FAULT_KILL;
    if (!killed && !WIFEXITED(status)) wrong(f, t, "ended by signal %d", WTERMSIG(status));
    const int code = killed ? 1 : WEXITSTATUS(status);
    if (code != 0 && code != 1) wrong(f, t, "exit code %d", code);
    if (code == 1 && !killed && !*t->faults->name) wrong(f, t, "it fails by itself");
    if (code == 1 && !killed) check_message(f, t);
    const int64_t checkpoints = look_at(f, "out", killed, t);
    look_at(f, "cache", killed, t);
    if (code == 0)
        check_results(f, t);
    else if (trains(t->scene) && (t->faults->calls == FAULT_FILES || t->tried % EVERY == 0))
        resume(f, t, checkpoints > 0);
    return code == 0 && !*t->faults->name;
}

/* ---- the loops ------------------------------------------------------------------------------------------------ */

static void loop(struct fixture *f, const struct scene *scene, enum fault_calls calls, enum fault_effect effect) {
    static const char *const effects[] = {"one fails", "all fail from one on", "the disk is full from one on",
                                          "killed at one"};
    struct trial t = {.scene = scene};
    t.faults = mmap(NULL, sizeof *t.faults, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t.faults != MAP_FAILED);
    *t.faults = (struct faults){.calls = calls};
    prepare(f, scene);
    if (run(f, scene->words, t.faults) != 0) wrong(f, &t, "it fails without a failure");
    in_folder(f, "rm -rf whole; mkdir whole; cp -r stdout whole; test ! -e out || cp -r out whole/out");
    const int64_t total = t.faults->count, wanted = points[calls];
    const int64_t stride = wanted && total > wanted ? total / wanted : 1;
    bool over = false;
    for (int64_t at = 1; !over && !(t.failures && at > total); at += stride, t.tried++) {
        *t.faults = (struct faults){.at = at, .calls = calls, .effect = effect};
        prepare(f, scene);
        over = check(f, &t, run(f, scene->words, t.faults)) && at > total;
    }
    print_message("%s, %s, %s: %lld calls, %lld tried, %lld wrong\n", scene->name,
                  calls == FAULT_MEMORY ? "memory" : "files", effects[effect], (long long)total, (long long)t.tried,
                  (long long)t.failures);
    munmap(t.faults, sizeof *t.faults);
    assert_int_equal(t.failures, 0);
}

static void test_scene(struct fixture *f, const struct scene *scene) {
    loop(f, scene, FAULT_MEMORY, FAULT_ONCE);
    loop(f, scene, FAULT_MEMORY, FAULT_ALL);
    loop(f, scene, FAULT_FILES, FAULT_ONCE);
    loop(f, scene, FAULT_FILES, FAULT_ALL);
    if (!trains(scene)) return;
    loop(f, scene, FAULT_FILES, FAULT_WRITES);
    loop(f, scene, FAULT_FILES, FAULT_KILL);
}

static void test_scratch(void **state) { test_scene(*state, &scenes[0]); }
static void test_resumed(void **state) { test_scene(*state, &scenes[1]); }
static void test_offloaded(void **state) { test_scene(*state, &scenes[2]); }
static void test_masked(void **state) { test_scene(*state, &scenes[3]); }
static void test_evaluation(void **state) { test_scene(*state, &scenes[4]); }
static void test_prediction(void **state) { test_scene(*state, &scenes[5]); }

static void test_plan(void **state) { test_scene(*state, &scenes[6]); }

/* ---- a disk that is too small --------------------------------------------------------------------------------- */

/* The figure before unit in the sentence of a run that finds too little room. */
static double told(const struct fixture *f, const char *before) {
    char *errors = read_text(f, path_of(f, "stderr"), NULL), *at = strstr(errors, before);
    if (!at) fail_msg("no \"%s\" in: %s", before, errors);
    const double figure = strtod(at + strlen(before), NULL);
    free(errors);
    return figure;
}

/* What is asked for before step 1 is enough for all that is then written, and not much more. */
static void test_disk_is_looked_at_beforehand(void **state) {
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
    struct fixture *f = *state;
    struct faults *faults = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(faults != MAP_FAILED);
    write_model(f, "tiny", 0.1, 256, 1, VOCABULARY); /* some MiB, beside which what is rounded up is small */
    in_folder(f, "rm -rf begun");
    assert_int_equal(run(f, TINY, NULL), 0);
    in_folder(f, "mv out begun && rm -rf begun/checkpoint-2");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const struct scene scene = {.words = runs[i].words, .given = runs[i].given};
        prepare(f, &scene);
        const int64_t before = snug_folder_bytes(path_of(f, "out"));
        *faults = (struct faults){.free_bytes = 1};
        assert_int_equal(WEXITSTATUS(run(f, scene.words, faults)), 1);
        const double need = told(f, "the run will write ");
        assert_true(told(f, "the model), and ") < 1 + (double)before / 0x1p20);
        assert_int_equal(snug_folder_bytes(path_of(f, "out")), before); /* nothing was removed or begun */
        *faults = (struct faults){.free_bytes = (int64_t)((need + 0.1) * 0x1p20)};
        const int status = run(f, scene.words, faults);
        if (status != 0) fail_msg("%s: %s", scene.words, read_text(f, path_of(f, "stderr"), NULL));
        const double written = (double)(snug_folder_bytes(path_of(f, "out")) - before) / 0x1p20;
        print_message("asked for %.1f MiB, wrote %.1f:%s\n", need, written, scene.words + strlen(TINY) - 1);
        if (written > need) fail_msg("%s: %.1f MiB are more than the %.1f asked for", scene.words, written, need);
    }
    munmap(faults, sizeof *faults);
}

static int set_up_here(void **state) {
    if (set_up(state)) return -1;
    struct fixture *f = *state;
    write_model(f, "tiny", 0.1, 16, 1, VOCABULARY);
    write_data(f, "few.csv", FORM_SINGLE, 12, 1);
    write_data(f, "few.txt", FORM_TEXT, 40, 1);
    write_data(f, "dev.csv", FORM_SINGLE, 8, 2);
    write_data(f, "dev.txt", FORM_TEXT, 20, 2);
    assert_int_equal(run(f, TINY, NULL), 0);
    in_folder(f, "mv out begun && rm -rf begun/checkpoint-2");
    return 0;
}

int main(int argc, char **argv) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_here, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_scratch),    TEST(test_resumed),    TEST(test_offloaded), TEST(test_masked),
        TEST(test_evaluation), TEST(test_prediction), TEST(test_plan),      TEST(test_disk_is_looked_at_beforehand),
    };
    for (int i = 1; i < argc && i < 3; i++) points[i - 1] = atoll(argv[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
