/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainings that are killed at a random time or at a random file call, so that kills hit accumulations, evaluations
 * and saves; and trainings by the program that are interrupted at a random time. Resumed with
 * --resume_from_checkpoint True, or restarted where no checkpoint was complete yet, they end with the bits of an
 * uninterrupted run.
 *
 * build/test_kills KILLED SEED INTERRUPTED [MODEL TRAIN_FILE VALIDATION_FILE]: KILLED and INTERRUPTED are the numbers
 * of trainings; those that are interrupted train the model, by default a tiny one (tools/long/kill-test).
 * build/test_kills cuda [KILLED [SEED]]: trainings on a GPU with offloaded tensors are killed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "backend/backend.h"
#include "faults.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { BROAD = 256 }; /* hidden size */
static int killed_trainings = 8, interrupted_trainings = 3;
static uint32_t seed = 1;
static char **given; /* a model and its two data files, or NULL */
static bool on_gpu;

#define KILLED_ANYWHERE                                                                                                \
    "per_device_train_batch_size=4 gradient_accumulation_steps=4 max_steps=8 validation_file=@dev.csv "                \
    "per_device_eval_batch_size=1 eval_strategy=steps eval_steps=2 save_strategy=steps save_steps=2 "
#define KILLED KILLED_ANYWHERE "device=cpu "
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/dpo"
#define PREFERENCES                                                                                                    \
    "task=dpo config_name= tokenizer_name= model_name_or_path=" GOLDEN " train_file=" GOLDEN                           \
    "/texts.jsonl validation_file=" GOLDEN                                                                             \
    "/implicit.jsonl max_seq_length=40 per_device_train_batch_size=1 gradient_accumulation_steps=2 "
#define DECODER "task=clm train_file=@train.txt validation_file=@dev.txt line_by_line=True "

static const char *const ways[] = {
    KILLED "dataloader_num_workers=2",
    KILLED "config_name=@wide tokenizer_name=@wide dtype=bfloat16 save_total_limit=2",
    KILLED "offload=optimizer,gradients,weights,activations update_in_backward=True gradient_accumulation_steps=1",
    KILLED "task=mlm train_file=@train.txt validation_file=@dev.txt line_by_line=True optim=adamw_8bit threads=1",
    KILLED "load_best_model_at_end=True save_total_limit=1 report_to=tensorboard recompute=layer",
    KILLED DECODER "config_name=@gemma bf16=True recompute=layer per_device_train_batch_size=2",
    KILLED DECODER "config_name= model_name_or_path=@llama_base use_peft=True lora_target_modules=all-linear "
                   "load_in_4bit=True lora_dropout=0.1 load_best_model_at_end=True",
    KILLED PREFERENCES "ref_model_name_or_path=" GOLDEN "/reference",
};
enum { WAYS = sizeof ways / sizeof *ways };

/* The updates of a step run in the next one's forward, on the GPU and on the host; the model is large enough that its
   matrices are offloaded. */
#define KILLED_OFFLOADED KILLED_ANYWHERE "device=cuda config_name=@broad "
static const char *const gpu_ways[WAYS] = {
    KILLED_OFFLOADED "offload=optimizer,gradients,weights",
    KILLED_OFFLOADED "offload=optimizer,gradients,master_weights bf16=True offload_update=0.5",
    KILLED_OFFLOADED "offload=optimizer,gradients,weights,activations update_in_backward=True "
                     "gradient_accumulation_steps=1",
    KILLED_OFFLOADED "offload=optimizer offload_dir=@disk optim=adamw_8bit recompute=layer",
    KILLED_OFFLOADED "offload=optimizer,weights dtype=bfloat16 optim=adafactor save_total_limit=1",
    KILLED_OFFLOADED DECODER "config_name=@gemma bf16=True recompute=layer offload=optimizer,gradients",
    KILLED_OFFLOADED DECODER "config_name= model_name_or_path=@llama_base use_peft=True "
                             "lora_target_modules=all-linear load_in_4bit=True lora_dropout=0.1 bf16=True",
    KILLED_OFFLOADED PREFERENCES "offload=optimizer",
};

static const char *words_of(int way) { return on_gpu ? gpu_ways[way] : ways[way]; }
static const char *weights_of(const char *words) {
    return strstr(words, "use_peft") ? "adapter_model.safetensors" : "model.safetensors";
}

enum place { PLACE_START, PLACE_STEP, PLACE_EVALUATION, PLACE_SAVE, PLACE_END, PLACES };
static const char *const place_names[PLACES] = {"before the first step", "in a step", "in an evaluation", "in a save",
                                                "at the end"};

/* Shared by the training process and the one that kills it. */
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

/* A separate process, which shares no OpenMP state with the test; its output is kept. */
static pid_t fork_saying(const struct fixture *f) {
    write_text(f, "stderr", "");
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0 && !freopen(path_of(f, "stderr"), "a", stderr)) _exit(126);
    return child;
}

static const char *said(const struct fixture *f) {
    static char text[512]; /* the last part, which has the reason */
    size_t size;
    char *all = read_text(f, path_of(f, "stderr"), &size);
    snprintf(text, sizeof text, "%s", size < sizeof text ? all : all + size + 1 - sizeof text);
    free(all);
    return text;
}

/* The state after the kill: a hidden name is an unfinished save. */
static enum place look_at(struct fixture *f, const char *output, enum place place, int *checkpoints) {
    DIR *folder = opendir(path_of(f, "%s", output));
    *checkpoints = 0;
    if (!folder) return place;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strstr(entry->d_name, ".snug-")) place = PLACE_SAVE;
        if (strncmp(entry->d_name, "checkpoint-", 11) != 0) continue;
        ++*checkpoints;
        if (folder_verify(f->ctx, path_of(f, "%s/%s", output, entry->d_name)) != SNUG_OK)
            fail_msg("after a kill: %s", snug_error_message(f->ctx));
    }
    closedir(folder);
    return place;
}

/* Unfinished files of killed runs are removed when a later run has ended. */
static void assert_nothing_hidden(struct fixture *f, const char *output) {
    DIR *folder = opendir(path_of(f, "%s", output));
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strstr(entry->d_name, ".snug")) fail_msg("%s/%s was not removed", output, entry->d_name);
    closedir(folder);
}

/* A training, and how its runs begin and are ended early. */
struct trial {
    struct fixture *f;
    struct shared *shared;
    int way, checkpoints; /* checkpoints that can be resumed from */
    const char *weights;  /* the file's name */
    char whole[16];       /* the folder of the uninterrupted run, */
    double seconds;       /* the time that it took, */
    int64_t calls;        /* and its calls for files */
    pid_t (*start)(const struct trial *trial, const char *output);
    bool (*end)(const struct trial *trial, const uint32_t random[4]); /* false where the run finished */
};

static void ready(struct shared *shared) {
    shared->faults = (struct faults){.calls = FAULT_FILES, .effect = FAULT_KILL};
    shared->place = PLACE_START;
}

static void run_whole(struct trial *trial, const char *kind) {
    const double begin = now();
    snprintf(trial->whole, sizeof trial->whole, "%s%d", kind, trial->way);
    ready(trial->shared);
    if (wait_for(trial->start(trial, trial->whole)) != 0)
        fail_msg("%s fails by itself: %s", trial->whole, said(trial->f));
    trial->seconds = now() - begin;
    trial->calls = trial->shared->faults.count;
}

/* One training, ended early one to three times and resumed each time; counts the ends by their places. */
static void end_often(struct trial *trial, int number, int64_t ends[PLACES]) {
    struct fixture *f = trial->f;
    const uint32_t wanted = 1 + snug_philox((uint32_t)number, 0, 1, 0, seed, 0).word[0] % 3;
    uint32_t had = 0;
    bool early = false;
    trial->checkpoints = 0;
    for (uint32_t draw = 0; had < wanted && (early || had == 0); draw++) {
        if (had == 0) assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        ready(trial->shared);
        early = trial->end(trial, snug_philox((uint32_t)number, draw, 0, 0, seed, 0).word);
        if (!early) continue;
        ends[look_at(f, "out", trial->shared->place, &trial->checkpoints)]++;
        had++;
    }
    ready(trial->shared);
    if (early && wait_for(trial->start(trial, "out")) != 0)
        fail_msg("training %d (seed %u) cannot be resumed: %s", number, seed, said(f));
    assert_nothing_hidden(f, "out");
    assert_same_in_both(f, trial->whole, "out", trial->weights);
    assert_same_history(f, trial->whole, "out");
}

static struct shared *share(void) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    return shared;
}

/* ---- killed ----------------------------------------------------------------------------------------------------- */

static pid_t start_library(const struct trial *trial, const char *output) {
    struct fixture *f = trial->f;
    const pid_t child = fork_saying(f);
    if (child) return child;
    const struct snug_backend *cuda;
    char words[2048];
    snprintf(words, sizeof words, "%s", words_of(trial->way));
    /* In the child, since a context does not survive fork(). */
    if (on_gpu && snug_backend_cuda(f->ctx, &cuda) == SNUG_OK && cuda->lacks_bf16) without_bf16(words);
    snug_args *args = training_args(f, words);
    const snug_callbacks callbacks = {.user = trial->shared, .on_event = tell_place};
    if (snug_args_set(args, "output_dir", path_of(f, "%s", output)) != SNUG_OK) _exit(2);
    if (trial->checkpoints && snug_args_set(args, "resume_from_checkpoint", "True") != SNUG_OK) _exit(2);
    faults_arm(&trial->shared->faults);
    const snug_status status = snug_train(args, &callbacks, NULL);
    if (status != SNUG_OK) fprintf(stderr, "%s\n", snug_error_message(f->ctx));
    _exit(status != SNUG_OK);
}

static bool kill_it(const struct trial *trial, const uint32_t random[4]) {
    const bool at_call = random[0] & 1;
    const double share = snug_philox_uniform(random[0]);
    if (at_call) trial->shared->faults.at = 1 + (int64_t)(share * (double)trial->calls);
    const pid_t child = trial->start(trial, "out");
    if (!at_call) {
        sleep_for(share * trial->seconds);
        kill(child, SIGKILL);
    }
    const int status = wait_for(child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
    if (status != 0) fail_msg("%s: wait status %d: %s", words_of(trial->way), status, said(trial->f));
    return false;
}

FIXTURE_TEST(test_killed_is_uninterrupted) {
    struct trial trials[WAYS];
    struct shared *shared = share();
    int64_t kills[PLACES] = {0};
    char checkpoint[64];
    if (on_gpu) {
        write_model(f, "broad", 0.1, BROAD, 2, VOCABULARY);
        assert_int_equal(mkdir(path_of(f, "disk"), 0755), 0);
    }
    write_other_families(f, on_gpu ? BROAD : 32);
    train(f, "llama_base", DECODER "config_name=@llama max_steps=1 device=cpu");
    for (int way = 0; way < WAYS; way++) {
        trials[way] = (struct trial){.f = f,
                                     .shared = shared,
                                     .way = way,
                                     .weights = weights_of(words_of(way)),
                                     .start = start_library,
                                     .end = kill_it};
        run_whole(&trials[way], "whole");
    }
    for (int i = 0; i < killed_trainings; i++) {
        struct trial *trial = &trials[i % WAYS];
        end_often(trial, i, kills);
        snprintf(checkpoint, sizeof checkpoint, "checkpoint-8/%s", trial->weights);
        assert_same_in_both(f, trial->whole, "out", checkpoint);
        assert_same_in_both(f, trial->whole, "out", "checkpoint-8/optimizer.safetensors");
    }
    print_message("%d killed trainings ended with the same bits; killed", killed_trainings);
    for (int i = 0; i < PLACES; i++)
        print_message(" %lld × %s%s", (long long)kills[i], place_names[i], i < PLACES - 1 ? "," : "\n");
    munmap(shared, sizeof *shared);
}

/* ---- interrupted ------------------------------------------------------------------------------------------------ */

#define INTERRUPTED                                                                                                    \
    "train --config_name wide --tokenizer_name wide --train_file train.csv --validation_file dev.csv "                 \
    "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_steps 8 --learning_rate 1e-3 --threads 2 "  \
    "--eval_strategy steps --eval_steps 3 --save_strategy steps --save_steps 3 --device cpu "

/* fp32 matmuls are oneDNN's, bf16 ones snug's own where the processor has AMX or AVX-512. */
static const char *const interrupted_ways[] = {INTERRUPTED, INTERRUPTED "--bf16",
                                               INTERRUPTED "--dtype bfloat16 --optim adamw_8bit --recompute layer"};
enum { INTERRUPTED_WAYS = sizeof interrupted_ways / sizeof *interrupted_ways };

/* Starts the program itself, which has a thread for signals. */
static pid_t start_program(const struct trial *trial, const char *output) {
    struct fixture *f = trial->f;
    char words[2048], more[1024] = "", *rest = words, *arguments[96] = {"snug"};
    int count = 1;
    const pid_t child = fork_saying(f);
    if (child) return child;
    if (given)
        snprintf(more, sizeof more,
                 " --model_name_or_path %s --config_name %s --tokenizer_name %s --train_file %s --validation_file %s "
                 "--max_eval_samples 8 --max_steps 6 --max_seq_length 64 --save_strategy no --learning_rate 5e-5",
                 given[0], given[0], given[0], given[1], given[2]);
    snprintf(words, sizeof words, "%s%s --output_dir %s%s", interrupted_ways[trial->way], more, output,
             trial->checkpoints ? " --resume_from_checkpoint True" : "");
    while (count < 95 && (arguments[count] = strsep(&rest, " ")))
        if (*arguments[count]) count++;
    arguments[count] = NULL;
    if (chdir(f->folder) != 0 || !freopen("stdout", "w", stdout)) _exit(126);
    execv(SNUG_BINARY_DIR "/snug", arguments);
    _exit(127);
}

/* Interrupts it, sometimes twice, so that it ends at once. */
static bool interrupt_it(const struct trial *trial, const uint32_t random[4]) {
    const int number = random[1] & 1 ? SIGINT : SIGTERM;
    const pid_t child = trial->start(trial, "out");
    sleep_for(snug_philox_uniform(random[0]) * trial->seconds);
    kill(child, number);
    if (random[2] % 4 == 0) {
        sleep_for(0.3 + 0.2 * snug_philox_uniform(random[3]));
        kill(child, number);
    }
    const int status = wait_for(child);
    if (status == 0) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 130) return true;
    /* Otherwise it had not installed its signal handling yet, nor printed anything. */
    if (!WIFSIGNALED(status) || WTERMSIG(status) != number || *said(trial->f))
        fail_msg("%s: wait status %d after signal %d: %s", trial->whole, status, number, said(trial->f));
    return true;
}

TEST_IN(test_interrupted_is_uninterrupted, void *fixture, set_up, tear_down) {
    struct trial trials[INTERRUPTED_WAYS];
    struct shared *shared = share();
    int64_t ends[PLACES] = {0};
    for (int way = 0; way < INTERRUPTED_WAYS; way++) {
        trials[way] = (struct trial){.f = fixture,
                                     .shared = shared,
                                     .way = way,
                                     .weights = weights_of(interrupted_ways[way]),
                                     .start = start_program,
                                     .end = interrupt_it};
        run_whole(&trials[way], "through");
    }
    for (int i = 0; i < interrupted_trainings; i++) end_often(&trials[i % INTERRUPTED_WAYS], i, ends);
    print_message("%d trainings, interrupted %lld times, %lld of them in a save, ended with the same bits\n",
                  interrupted_trainings, (long long)(ends[PLACE_START] + ends[PLACE_SAVE]),
                  (long long)ends[PLACE_SAVE]);
    munmap(shared, sizeof *shared);
}

int main(int argc, char **argv) {
    on_gpu = argc > 1 && strcmp(argv[1], "cuda") == 0;
    if (on_gpu) {
        argv++;
        argc--;
        interrupted_trainings = 0;
    }
    if (argc > 1) killed_trainings = atoi(argv[1]);
    if (argc > 2) seed = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc > 3) interrupted_trainings = atoi(argv[3]);
    if (argc > 6) given = argv + 4;
    if (!killed_trainings) cmocka_set_skip_filter("test_killed*");
    if (!interrupted_trainings) cmocka_set_skip_filter("test_interrupted*");
    return run_registered(NULL, NULL);
}
