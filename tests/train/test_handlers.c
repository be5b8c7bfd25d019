/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's signal handlers, without a stack of their own, run at any moment in any thread of the program without
 * harm: never on another stack than the thread's, with the same results. oneDNN's kernels, which point the stack
 * pointer into heap buffers, run in threads that block signals.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static struct {
    atomic_long handled, astray; /* handlers that ran; those of them on another stack than the main thread's */
    atomic_bool end;
    char *low, *high; /* the main thread's stack */
    pthread_t thread;
} storm;

enum { DEEP = 1 << 15 };

/* Writes deep into its stack, as a handler that formats a message does. */
static void on_signal(int number) {
    char deep[DEEP];
    memset(deep, number, sizeof deep);
    __asm__ volatile("" : : "r"(deep) : "memory");
    atomic_fetch_add(&storm.handled, 1);
    if (syscall(SYS_gettid) == getpid() && (deep < storm.low || deep >= storm.high)) atomic_fetch_add(&storm.astray, 1);
}

/* Sends signals to every thread of the process, again and again. */
static void *send_signals(void *unused) {
    const long own = syscall(SYS_gettid);
    while (!atomic_load(&storm.end)) {
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
            const long task = strtol(entry->d_name, NULL, 10);
            if (task > 0 && task != own) syscall(SYS_tgkill, getpid(), task, SIGUSR2);
        }
        if (tasks) closedir(tasks);
        usleep(300);
    }
    return unused;
}

static void begin_storm(void) {
    const struct sigaction action = {.sa_handler = on_signal}; /* neither SA_ONSTACK nor SA_RESTART */
    const struct itimerval often = {.it_interval = {.tv_usec = 500}, .it_value = {.tv_usec = 500}};
    pthread_attr_t attributes;
    void *low;
    size_t size;
    sigset_t all, before;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
    assert_int_equal(pthread_attr_getstack(&attributes, &low, &size), 0);
    pthread_attr_destroy(&attributes);
    storm.low = low;
    storm.high = storm.low + size;
    atomic_store(&storm.end, false);
    assert_int_equal(sigaction(SIGUSR2, &action, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    assert_int_equal(pthread_create(&storm.thread, NULL, send_signals, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
}

static void end_storm(void) {
    const struct itimerval never = {0};
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    atomic_store(&storm.end, true);
    assert_int_equal(pthread_join(storm.thread, NULL), 0);
    if (atomic_load(&storm.astray)) fail_msg("%ld handlers ran on another stack", atomic_load(&storm.astray));
    assert_true(atomic_exchange(&storm.handled, 0) > 10);
}

struct answer {
    double score;
};

static snug_status take(void *user, const snug_prediction *row) {
    ((struct answer *)user)[row->index].score = row->score;
    return SNUG_OK;
}

/* A loaded model's answers, by a model that is opened for them. */
static void predict(struct fixture *f, const char *threads, struct answer answers[3]) {
    static const char *const texts[] = {"good w1 w2", "bad w3", "w4 w5 w6 w7 good bad"};
    snug_args *args = plain_args(f, "model_name_or_path=@calm");
    snug_model *model;
    ok(f, snug_args_set(args, "threads", threads));
    ok(f, snug_model_open(args, &model));
    for (int i = 0; i < 50; i++) ok(f, snug_model_predict(model, f->ctx, texts, NULL, 3, take, answers));
    snug_model_destroy(model);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_storm) {
    static const char *const settings[] = {"threads=1", "threads=2",
                                           "threads=2 dataloader_num_workers=2 offload=optimizer offload_dir=@disk"};
    struct answer calm[3], stormy[3];
    write_model(f, "large", 0.1, 128, 2, VOCABULARY);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char words[256];
        const char *threads = i ? "2" : "1";
        snprintf(words, sizeof words, "config_name=@large validation_file=@dev.csv eval_strategy=epoch %s",
                 settings[i]);
        train(f, "calm", words);
        predict(f, threads, calm);
        begin_storm();
        train(f, "stormy", words);
        predict(f, threads, stormy);
        end_storm();
        assert_same_file(f, path_of(f, "calm/model.safetensors"), path_of(f, "stormy/model.safetensors"));
        assert_memory_equal(calm, stormy, sizeof calm);
    }
}

/* Peak rates are measured by single operations. */
FIXTURE_TEST(test_storm_while_measuring) {
    snug_anatomy *anatomy;
    snug_args *args = plain_args(f, "config_name=@model train_file=dummy:8x16 max_steps=2 threads=2 device=cpu");
    begin_storm();
    ok(f, snug_anatomy_create(args, NULL, &anatomy));
    end_storm();
    snug_anatomy_destroy(anatomy);
    snug_args_destroy(args);
}

static atomic_bool asked;

static void on_request(int number) {
    (void)number;
    atomic_store(&asked, true);
}

static bool should_stop(void *user) {
    (void)user;
    return atomic_load(&asked);
}

static void raise_at_step(void *user, const snug_event *event) {
    (void)user;
    if (event->kind == SNUG_EVENT_STEP && event->step == 3) raise(SIGTERM);
}

/* The usual handler sets a flag, which should_stop returns. */
FIXTURE_TEST(test_flag) {
    const snug_callbacks callbacks = {.on_event = raise_at_step, .should_stop = should_stop};
    snug_args *args = training_args(f, "output_dir=@out");
    atomic_store(&asked, false);
    signal(SIGTERM, on_request);
    assert_int_equal(snug_train(args, &callbacks, NULL), SNUG_E_INTERRUPTED);
    signal(SIGTERM, SIG_DFL);
    assert_contains(snug_error_message(f->ctx), "interrupted at step 3");
    snug_args_destroy(args);
}

/* A pipe without a writer yet: opening it is interrupted, and waits on, unless the run is to stop. */
FIXTURE_TEST(test_waiting_for_a_pipe) {
    const char *path = path_of(f, "rows");
    const struct itimerval later = {.it_value = {.tv_usec = 200000}};
    const struct sigaction action = {.sa_handler = on_request};
    const snug_callbacks callbacks = {.should_stop = should_stop};
    snug_args *args = training_args(f, "train_file=@rows data_format=csv output_dir=@out");
    int status;
    assert_int_equal(mkfifo(path, 0600), 0);
    begin_storm();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static const char text[] = "text,label\ngood,1\nbad,0\n";
        usleep(100000);
        const int fd = open(path, O_WRONLY);
        _exit(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1 ? 0 : 1);
    }
    ok(f, snug_train(args, NULL, NULL));
    end_storm();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&asked, false);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &later, NULL), 0);
    assert_int_equal(snug_train(args, &callbacks, NULL), SNUG_E_INTERRUPTED);
    assert_contains(snug_error_message(f->ctx), "interrupted while");
    signal(SIGALRM, SIG_DFL);
    snug_args_destroy(args);
}

struct heard {
    pthread_t caller;
    int messages, questions, elsewhere;
};

static void hear(void *user, snug_log_level level, const char *message) {
    struct heard *heard = user;
    (void)level;
    (void)message;
    heard->messages++;
    heard->elsewhere += !pthread_equal(pthread_self(), heard->caller);
}

static bool question(void *user) {
    struct heard *heard = user;
    heard->questions++;
    heard->elsewhere += !pthread_equal(pthread_self(), heard->caller);
    return false;
}

/* Log messages and questions come in the thread of the call, also from work in parallel regions. */
FIXTURE_TEST(test_callbacks_in_the_callers_thread) {
    struct heard heard = {.caller = pthread_self()};
    const snug_callbacks callbacks = {.user = &heard, .should_stop = question};
    snug_args *args = training_args(f, "train_file=@long.jsonl output_dir=@out max_steps=2 eval_strategy=no");
    FILE *file = fopen(path_of(f, "long.jsonl"), "w"); /* tokenized in several rounds */
    assert_non_null(file);
    for (int i = 0; i < 20000; i++)
        fprintf(file, "{\"text\": \"w%d good\", \"label\": %d%s}\n", i, i % 2, i > 19990 ? ", \"more\": 1" : "");
    assert_int_equal(fclose(file), 0);
    snug_context_set_log(f->ctx, hear, &heard, SNUG_LOG_DEBUG);
    ok(f, snug_train(args, &callbacks, NULL));
    snug_context_set_log(f->ctx, NULL, NULL, SNUG_LOG_ERROR);
    assert_true(heard.messages > 3 && heard.questions > 4);
    assert_int_equal(heard.elsewhere, 0);
    snug_args_destroy(args);
}

/* A child of fork() has no thread but its own: a model that its parent opened answers there, too. */
FIXTURE_TEST(test_fork) {
    static const char *const texts[] = {"good w1 w2"};
    struct answer here, there = {0};
    snug_model *model;
    int status, ends[2];
    train(f, "calm", "max_steps=2");
    snug_args *args = plain_args(f, "model_name_or_path=@calm threads=1");
    ok(f, snug_model_open(args, &model));
    ok(f, snug_model_predict(model, f->ctx, texts, NULL, 1, take, &here));
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const bool done = snug_model_predict(model, f->ctx, texts, NULL, 1, take, &there) == SNUG_OK &&
                          write(ends[1], &there, sizeof there) == sizeof there;
        _exit(done ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &there, sizeof there), sizeof there);
    assert_true(here.score == there.score);
    close(ends[0]);
    close(ends[1]);
    snug_model_destroy(model);
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
