/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainings that are killed: at a random time, or in the place of a random call for a file, so that kills come in the
 * middle of accumulations, evaluations and saves. And trainings by the program that are interrupted at a random time.
 * Who goes on with --resume_from_checkpoint True, or anew where no checkpoint was whole yet, ends with the bits of a
 * run that nothing happened to.
 *
 * build/test_kills KILLED SEED INTERRUPTED [MODEL TRAIN_FILE VALIDATION_FILE]: so many trainings of each; the model,
 * which stands in for a tiny one, is for those that are interrupted (tools/kill-test).
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "faults.h"
#include "training_fixture.h"

static int killed_trainings = 6, interrupted_trainings = 3;
static uint32_t seed = 1;
static char **given; /* a model and its two data files, or NULL */

#define KILLED                                                                                                         \
    "per_device_train_batch_size=4 gradient_accumulation_steps=4 max_steps=8 validation_file=@dev.csv "                \
    "per_device_eval_batch_size=1 eval_strategy=steps eval_steps=2 save_strategy=steps save_steps=2 device=cpu "

static const char *const ways[] = {
    KILLED "dataloader_num_workers=2",
    KILLED "config_name=@wide tokenizer_name=@wide dtype=bfloat16 save_total_limit=2",
    KILLED "offload=optimizer,gradients,weights,activations update_in_backward=True gradient_accumulation_steps=1",
    KILLED "task=mlm train_file=@train.txt validation_file=@dev.txt line_by_line=True optim=adamw_8bit threads=1",
    KILLED "load_best_model_at_end=True save_total_limit=1 report_to=tensorboard recompute=layer",
};
enum { WAYS = sizeof ways / sizeof *ways };

enum place { PLACE_START, PLACE_STEP, PLACE_EVALUATION, PLACE_SAVE, PLACE_END, PLACES };
static const char *const place_names[PLACES] = {"before the first step", "in a step", "in an evaluation", "in a save",
                                                "at the end"};

/* What the process that trains says to the one that kills it. */
struct shared {
    struct faults faults;
    enum place place;
};

static void tell_place(void *user, const snug_event *event) {
    struct shared *shared = user;
    const bool ends = event->kind == SNUG_EVENT_PROGRESS && shared->place == PLACE_END;
    if (event->kind == SNUG_EVENT_PROGRESS && !ends)
        shared->place = PLACE_EVALUATION;
    else if (event->kind == SNUG_EVENT_SAVE && event->step == event->max_steps)
        shared->place = PLACE_END;
    else if (!ends && shared->place != PLACE_END)
        shared->place = PLACE_STEP;
}

/* Trains in a process of its own, which the test has nothing of OpenMP in common with. */
static pid_t start(struct fixture *f, const char *output, const char *words, bool resume, struct shared *shared) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    snug_args *args = training_args(f, words);
    const snug_callbacks callbacks = {.user = shared, .on_event = tell_place};
    if (snug_args_set(args, "output_dir", path_of(f, "%s", output)) != SNUG_OK) _exit(2);
    if (resume && snug_args_set(args, "resume_from_checkpoint", "True") != SNUG_OK) _exit(2);
    faults_arm(&shared->faults);
    const snug_status status = snug_train(args, &callbacks, NULL);
    if (status != SNUG_OK) fprintf(stderr, "%s\n", snug_error_message(f->ctx));
    _exit(status != SNUG_OK);
}

static int wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return status;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}

/* What the kill left: a hidden folder is a save that was under way. */
static enum place look_at(struct fixture *f, const char *output, enum place place, int *checkpoints) {
    DIR *folder = opendir(path_of(f, "%s", output));
    *checkpoints = 0;
    if (!folder) return place;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strstr(entry->d_name, ".snug-aside")) place = PLACE_SAVE;
        if (strncmp(entry->d_name, "checkpoint-", 11) != 0) continue;
        ++*checkpoints;
        if (snug_folder_verify(f->ctx, path_of(f, "%s/%s", output, entry->d_name)) != SNUG_OK)
            fail_msg("after a kill: %s", snug_error_message(f->ctx));
    }
    closedir(folder);
    return place;
}

struct course {
    double seconds; /* of the run that nothing happens to, and its calls for files */
    int64_t calls;
};

static void ready(struct shared *shared) {
    shared->faults = (struct faults){.calls = FAULT_FILES, .effect = FAULT_KILL};
    shared->place = PLACE_START;
}

static struct course run_whole(struct fixture *f, int way, struct shared *shared) {
    char output[16];
    const double begin = now();
    snprintf(output, sizeof output, "whole%d", way);
    ready(shared);
    if (wait_for(start(f, output, ways[way], false, shared)) != 0) fail_msg("%s fails by itself", ways[way]);
    return (struct course){now() - begin, shared->faults.count};
}

/* Starts a training and kills it; false where it ended before. */
static bool start_and_kill(struct fixture *f, int way, bool resume, const struct course *course, uint32_t random,
                           struct shared *shared) {
    const bool at_call = random & 1;
    const double share = snug_philox_uniform(random);
    ready(shared);
    if (at_call) shared->faults.at = 1 + (int64_t)(share * (double)course->calls);
    const pid_t child = start(f, "out", ways[way], resume, shared);
    if (!at_call) {
        sleep_for(share * course->seconds);
        kill(child, SIGKILL);
    }
    const int status = wait_for(child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
    if (status != 0) fail_msg("%s: wait status %d", ways[way], status);
    return false;
}

/* What kills left unfinished is gone when a run that began later has ended. */
static void assert_nothing_hidden(struct fixture *f, const char *output) {
    DIR *folder = opendir(path_of(f, "%s", output));
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strstr(entry->d_name, ".snug")) fail_msg("%s/%s is left behind", output, entry->d_name);
    closedir(folder);
}

/* One training, killed one to three times; how many of these came where is added to kills. */
static void kill_one(struct fixture *f, int number, const struct course courses[], int64_t kills[PLACES],
                     struct shared *shared) {
    const int way = number % WAYS;
    char whole[16];
    int checkpoints = 0;
    bool killed = false;
    snprintf(whole, sizeof whole, "whole%d", way);
    const uint32_t wanted = 1 + snug_philox((uint32_t)number, 0, 1, 0, seed, 0).word[0] % 3;
    uint32_t had = 0;
    assert_int_equal(snug_folder_remove(f->ctx, path_of(f, "out")), SNUG_OK);
    for (uint32_t draw = 0; had < wanted; draw++) {
        const uint32_t random = snug_philox((uint32_t)number, draw, 0, 0, seed, 0).word[0];
        killed = start_and_kill(f, way, checkpoints > 0, &courses[way], random, shared);
        if (killed) {
            kills[look_at(f, "out", shared->place, &checkpoints)]++;
            had++;
        } else if (had > 0) {
            break; /* it has come to its end */
        } else {
            assert_int_equal(snug_folder_remove(f->ctx, path_of(f, "out")), SNUG_OK);
        }
    }
    ready(shared);
    if (killed && wait_for(start(f, "out", ways[way], checkpoints > 0, shared)) != 0)
        fail_msg("training %d (seed %u) cannot go on", number, seed);
    assert_nothing_hidden(f, "out");
    assert_same_run(f, whole, "out");
    assert_same_in_both(f, whole, "out", "checkpoint-8/model.safetensors");
    assert_same_in_both(f, whole, "out", "checkpoint-8/optimizer.safetensors");
}

static void test_killed_is_uninterrupted(void **state) {
    struct fixture *f = *state;
    struct course courses[WAYS];
    int64_t kills[PLACES] = {0};
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (int way = 0; way < WAYS; way++) courses[way] = run_whole(f, way, shared);
    for (int i = 0; i < killed_trainings; i++) kill_one(f, i, courses, kills, shared);
    print_message("%d killed trainings ended with the same bits; killed", killed_trainings);
    for (int i = 0; i < PLACES; i++)
        print_message(" %lld × %s%s", (long long)kills[i], place_names[i], i < PLACES - 1 ? "," : "\n");
    munmap(shared, sizeof *shared);
}

/* ---- interrupted ---------------------------------------------------------------------------------------------------
 */

#define INTERRUPTED                                                                                                    \
    "train --config_name wide --tokenizer_name wide --train_file train.csv --validation_file dev.csv "                 \
    "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_steps 8 --learning_rate 1e-3 --threads 2 "  \
    "--eval_strategy steps --eval_steps 3 --save_strategy steps --save_steps 3 --device cpu "

/* fp32 products are oneDNN's, bf16 ones snug's own for AMX or AVX-512 where the processor has them. */
static const char *const interrupted_ways[] = {INTERRUPTED, INTERRUPTED "--bf16",
                                               INTERRUPTED "--dtype bfloat16 --optim adamw_8bit --recompute layer"};
enum { INTERRUPTED_WAYS = sizeof interrupted_ways / sizeof *interrupted_ways };

/* Starts the program itself, whose own thread takes signals. */
static pid_t execute(struct fixture *f, int way, const char *output, bool resume) {
    char words[2048], more[1024] = "", *rest = words, *arguments[96] = {"snug"};
    int count = 1;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    if (given)
        snprintf(more, sizeof more,
                 " --model_name_or_path %s --config_name %s --tokenizer_name %s --train_file %s --validation_file %s "
                 "--max_eval_samples 8 --max_steps 6 --max_seq_length 64 --save_strategy no --learning_rate 5e-5",
                 given[0], given[0], given[0], given[1], given[2]);
    snprintf(words, sizeof words, "%s%s --output_dir %s%s", interrupted_ways[way], more, output,
             resume ? " --resume_from_checkpoint True" : "");
    while (count < 95 && (arguments[count] = strsep(&rest, " ")))
        if (*arguments[count]) count++;
    arguments[count] = NULL;
    if (chdir(f->folder) != 0 || !freopen("stdout", "w", stdout) || !freopen("stderr", "w", stderr)) _exit(126);
    execv(SNUG_BINARY_DIR "/snug", arguments);
    _exit(127);
}

/* Interrupts a training, sometimes twice, so that it ends at once; false where it ended before. */
static bool execute_and_interrupt(struct fixture *f, int way, bool resume, double seconds, const uint32_t random[4]) {
    const int number = random[1] & 1 ? SIGINT : SIGTERM;
    const pid_t child = execute(f, way, "out", resume);
    sleep_for(snug_philox_uniform(random[0]) * seconds);
    kill(child, number);
    if (random[2] % 4 == 0) {
        sleep_for(0.3 + 0.2 * snug_philox_uniform(random[3]));
        kill(child, number);
    }
    const int status = wait_for(child);
    if (status == 0) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 130) return true;
    char *errors = read_text(f, path_of(f, "stderr"), NULL);
    /* It had not come to take signals yet. */
    if (!WIFSIGNALED(status) || WTERMSIG(status) != number || *errors)
        fail_msg("%s: wait status %d after signal %d: %s", interrupted_ways[way], status, number, errors);
    free(errors);
    return true;
}

/* One training, interrupted one to three times; how often is added to *count. */
static void interrupt_one(struct fixture *f, int trial, const double seconds[], int *count) {
    const int way = trial % INTERRUPTED_WAYS;
    char whole[16];
    int checkpoints = 0;
    bool interrupted = false;
    snprintf(whole, sizeof whole, "through%d", way);
    const uint32_t wanted = 1 + snug_philox((uint32_t)trial, 0, 3, 0, seed, 0).word[0] % 3;
    uint32_t had = 0;
    assert_int_equal(snug_folder_remove(f->ctx, path_of(f, "out")), SNUG_OK);
    for (uint32_t draw = 0; had < wanted; draw++) {
        const struct snug_philox_block random = snug_philox((uint32_t)trial, draw, 2, 0, seed, 0);
        interrupted = execute_and_interrupt(f, way, checkpoints > 0, seconds[way], random.word);
        if (interrupted) {
            look_at(f, "out", PLACE_STEP, &checkpoints);
            had++;
        } else if (had > 0) {
            break; /* it has come to its end */
        } else {
            assert_int_equal(snug_folder_remove(f->ctx, path_of(f, "out")), SNUG_OK);
        }
    }
    *count += (int)had;
    if (interrupted && wait_for(execute(f, way, "out", checkpoints > 0)) != 0)
        fail_msg("training %d (seed %u) cannot go on: %s", trial, seed, read_text(f, path_of(f, "stderr"), NULL));
    assert_nothing_hidden(f, "out");
    assert_same_run(f, whole, "out");
}

static void test_interrupted_is_uninterrupted(void **state) {
    struct fixture *f = *state;
    double seconds[INTERRUPTED_WAYS];
    char whole[16];
    int count = 0;
    for (int way = 0; way < INTERRUPTED_WAYS; way++) {
        const double begin = now();
        snprintf(whole, sizeof whole, "through%d", way);
        if (wait_for(execute(f, way, whole, false)) != 0)
            fail_msg("%s fails by itself: %s", interrupted_ways[way], read_text(f, path_of(f, "stderr"), NULL));
        seconds[way] = now() - begin;
    }
    for (int i = 0; i < interrupted_trainings; i++) interrupt_one(f, i, seconds, &count);
    print_message("%d trainings, interrupted %d times, ended with the same bits\n", interrupted_trainings, count);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed_is_uninterrupted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_interrupted_is_uninterrupted, set_up, tear_down),
    };
    if (argc > 1) killed_trainings = atoi(argv[1]);
    if (argc > 2) seed = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc > 3) interrupted_trainings = atoi(argv[3]);
    if (argc > 6) given = argv + 4;
    if (!killed_trainings) cmocka_set_skip_filter("test_killed*");
    if (!interrupted_trainings) cmocka_set_skip_filter("test_interrupted*");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
