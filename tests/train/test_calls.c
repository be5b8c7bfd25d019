/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that meet: of several threads with one context, in callbacks, of a model that is closed, in a child of fork()
 * and at the process's exit. They are refused, or wait, and nothing crashes or hangs.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void fails(const struct fixture *f, snug_status found, const char *says) {
    if (found != SNUG_E_USAGE) fail_msg("status %d: %s", found, snug_error_message(f->ctx));
    assert_contains(snug_error_message(f->ctx), says);
}

static const char *const texts[] = {"good w1 w2", "bad w3", "w4 w5 w6 w7 good bad"};
enum { TEXTS = sizeof texts / sizeof *texts };

static snug_status count_row(void *user, const snug_prediction *row) {
    (void)row;
    ++*(int *)user;
    return SNUG_OK;
}

/* Ends a child, which writes what it has run in a build that counts it. */
extern int __llvm_profile_write_file(void)
    __attribute__((weak)); /* NOLINT(bugprone-reserved-identifier): the compiler's */
static _Noreturn void leave(int code) {
    if (__llvm_profile_write_file) __llvm_profile_write_file();
    _exit(code);
}

/* ---- several threads with one context ---------------------------------------------------------------------------- */

struct training {
    snug_args *args;
    pthread_t thread;
    sem_t reached, go; /* at step 2 */
    snug_status status;
};

static void wait_at_step(void *user, const snug_event *event) {
    struct training *t = user;
    if (event->kind != SNUG_EVENT_STEP || event->step != 2) return;
    sem_post(&t->reached);
    sem_wait(&t->go);
}

static void *train_there(void *user) {
    struct training *t = user;
    const snug_callbacks callbacks = {.user = t, .on_event = wait_at_step};
    t->status = snug_train(t->args, &callbacks, NULL);
    return NULL;
}

struct destroying {
    snug_args *args;
    atomic_bool done;
};

static void *destroy_there(void *user) {
    struct destroying *d = user;
    snug_args_destroy(d->args);
    atomic_store(&d->done, true);
    return NULL;
}

FIXTURE_TEST(test_another_threads_call) {
    static const char says[] = "another thread is in snug_train() with the same context";
    struct training t = {.args = training_args(f, "output_dir=@out")};
    struct destroying d = {.args = training_args(f, NULL)};
    snug_args *args = training_args(f, NULL), *made;
    snug_rows *rows, *before;
    snug_session *session;
    snug_plan *plan;
    pthread_t thread;
    char value[64];
    ok(f, snug_rows_create(f->ctx, &before));
    sem_init(&t.reached, 0, 0);
    sem_init(&t.go, 0, 0);
    assert_int_equal(pthread_create(&t.thread, NULL, train_there, &t), 0);
    sem_wait(&t.reached);
    fails(f, snug_train(t.args, NULL, NULL), says);
    fails(f, snug_args_set(t.args, "seed", "1"), says);
    fails(f, snug_args_get(args, "seed", value, sizeof value), says);
    fails(f, snug_args_create(f->ctx, &made), says);
    assert_null(made);
    fails(f, snug_session_create(args, &session), says);
    fails(f, snug_plan_create(args, &plan), says);
    fails(f, snug_rows_create(f->ctx, &rows), says);
    fails(f, snug_rows_text(before, "text", "good"), says);
    assert_int_equal(pthread_create(&thread, NULL, destroy_there, &d), 0); /* waits */
    usleep(50000);
    assert_false(atomic_load(&d.done));
    sem_post(&t.go);
    pthread_join(t.thread, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(t.status, SNUG_OK); /* what was refused has changed nothing */
    ok(f, snug_args_get(args, "seed", value, sizeof value));
    sem_destroy(&t.reached);
    sem_destroy(&t.go);
    snug_rows_destroy(before);
    snug_args_destroy(t.args);
    snug_args_destroy(args);
}

struct stepping {
    snug_session *session;
    atomic_int *wrong;
};

static void *step_there(void *user) {
    const struct stepping *s = user;
    double loss;
    for (int i = 0; i < 300; i++) {
        const snug_status found[] = {snug_next_batch(s->session, NULL), snug_forward(s->session),
                                     snug_loss(s->session, &loss),      snug_backward(s->session),
                                     snug_optimizer_step(s->session),   snug_zero_grad(s->session)};
        for (size_t k = 0; k < sizeof found / sizeof *found; k++)
            if (found[k] != SNUG_OK && found[k] != SNUG_END && found[k] != SNUG_E_USAGE) atomic_fetch_add(s->wrong, 1);
    }
    return NULL;
}

/* Calls of two threads alternate as they come: each is done whole, or refused. */
FIXTURE_TEST(test_one_session_in_two_threads) {
    struct stepping s;
    pthread_t threads[2];
    atomic_int wrong = 0;
    snug_args *args = training_args(f, "num_train_epochs=100");
    ok(f, snug_session_create(args, &s.session));
    ok(f, snug_session_begin_epoch(s.session, 0));
    s.wrong = &wrong;
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, step_there, &s), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
    snug_session_destroy(s.session);
    snug_args_destroy(args);
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

struct inner {
    struct fixture *f;
    snug_args *args;
    snug_session *session;
    snug_model *model;
    bool called;
    int logged;
};

static void log_and_ask(void *user, snug_log_level level, const char *message) {
    struct inner *inner = user;
    char value[64];
    (void)level;
    (void)message;
    inner->logged++;
    assert_int_equal(snug_args_get(inner->args, "none", value, sizeof value), SNUG_E_USAGE); /* without waiting */
    assert_contains(snug_error_message(inner->f->ctx), "--none: unknown argument");
}

static void call_within(void *user, const snug_event *event) {
    static const char says[] = "called in a callback of snug_train() with the same context";
    struct inner *inner = user;
    struct fixture *f = inner->f;
    snug_context *other;
    snug_session *session;
    snug_args *made;
    char value[64];
    if (event->kind != SNUG_EVENT_STEP || event->step != 2) return;
    fails(f, snug_train(inner->args, NULL, NULL), says);
    fails(f, snug_evaluate(inner->args, NULL, NULL), says);
    fails(f, snug_args_set(inner->args, "seed", "1"), says);
    fails(f, snug_session_create(inner->args, &session), says);
    fails(f, snug_session_begin_epoch(inner->session, 0), says);
    fails(f, snug_model_close(inner->model), says);
    snug_session_destroy(inner->session);
    snug_args_destroy(inner->args);
    snug_context_destroy(f->ctx);
    assert_contains(snug_error_message(f->ctx), "snug_context_destroy: called in a callback");
    ok(f, snug_args_get(inner->args, "seed", value, sizeof value)); /* reading is allowed */
    assert_string_equal(value, "42");
    assert_true(snug_args_given(inner->args, "learning_rate"));
    snug_context_set_log(f->ctx, log_and_ask, inner, SNUG_LOG_DEBUG);
    assert_int_equal(snug_context_create(&other), SNUG_OK); /* another context is independent */
    assert_int_equal(snug_args_create(other, &made), SNUG_OK);
    snug_args_destroy(made);
    snug_context_destroy(other);
    inner->called = true;
}

FIXTURE_TEST(test_calls_in_a_callback) {
    struct inner inner = {.f = f, .args = training_args(f, "output_dir=@out validation_file=@dev.csv")};
    const snug_callbacks callbacks = {.user = &inner, .on_event = call_within};
    train(f, "ready", "max_steps=1");
    snug_args *args = training_args(f, NULL), *ready = plain_args(f, "model_name_or_path=@ready threads=1");
    ok(f, snug_session_create(args, &inner.session));
    ok(f, snug_model_open(ready, &inner.model));
    ok(f, snug_train(inner.args, &callbacks, NULL));
    assert_true(inner.called && inner.logged > 0);
    assert_string_equal(snug_error_message(f->ctx), "");
    ok(f, snug_session_begin_epoch(inner.session, 0));
    snug_session_destroy(inner.session);
    snug_model_destroy(inner.model);
    snug_args_destroy(ready);
    snug_args_destroy(inner.args);
    snug_args_destroy(args);
}

/* ---- closing a model --------------------------------------------------------------------------------------------- */

struct user {
    snug_model *model;
    pthread_t thread;
    sem_t *begun;
    int predictions, wrong;
    bool refused;
};

static void *predict_until_closed(void *argument) {
    struct user *user = argument;
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    for (snug_status status = SNUG_OK; status == SNUG_OK && user->predictions < 1000000; user->predictions++) {
        int rows = 0;
        status = snug_model_predict(user->model, ctx, texts, NULL, TEXTS, count_row, &rows);
        if (user->predictions == 0) sem_post(user->begun);
        user->wrong += rows != (status == SNUG_OK ? TEXTS : 0);
        user->refused = status == SNUG_E_USAGE && strstr(snug_error_message(ctx), "the model is closed");
    }
    snug_context_destroy(ctx);
    return NULL;
}

static void *close_there(void *model) { return snug_model_close(model) == SNUG_OK ? NULL : model; }

FIXTURE_TEST(test_close_during_predictions) {
    enum { USERS = 4, ROUNDS = 5 };
    sem_t begun;
    train(f, "out", "max_steps=1");
    sem_init(&begun, 0, 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct user users[USERS];
        pthread_t closer;
        void *failed;
        snug_model *model;
        snug_args *args = plain_args(f, "model_name_or_path=@out threads=1");
        ok(f, snug_model_open(args, &model));
        for (int i = 0; i < USERS; i++) {
            users[i] = (struct user){.model = model, .begun = &begun};
            assert_int_equal(pthread_create(&users[i].thread, NULL, predict_until_closed, &users[i]), 0);
        }
        for (int i = 0; i < USERS; i++) sem_wait(&begun);
        assert_int_equal(pthread_create(&closer, NULL, close_there, model), 0);
        ok(f, snug_model_close(model)); /* twice, at the same time */
        pthread_join(closer, &failed);
        assert_null(failed);
        ok(f, snug_model_close(model));
        for (int i = 0; i < USERS; i++) {
            pthread_join(users[i].thread, NULL);
            assert_true(users[i].refused && users[i].wrong == 0 && users[i].predictions > 0);
        }
        snug_model_destroy(model);
        snug_args_destroy(args);
    }
    sem_destroy(&begun);
}

struct within {
    snug_model *model;
    int rows;
    bool destroy;
};

static snug_status close_within(void *user, const snug_prediction *row) {
    struct within *within = user;
    (void)row;
    within->rows++;
    if (within->destroy)
        snug_model_destroy(within->model);
    else
        assert_int_equal(snug_model_close(within->model), SNUG_OK);
    return SNUG_OK;
}

/* Closed or destroyed by on_row, the call goes on and the model is freed at its end. */
FIXTURE_TEST(test_close_in_on_row) {
    snug_args *args;
    snug_context *other;
    train(f, "out", "max_steps=1");
    ok(f, snug_context_create(&other));
    for (int destroy = 0; destroy < 2; destroy++) {
        struct within within = {.destroy = destroy};
        int rows = 0;
        args = plain_args(f, "model_name_or_path=@out threads=1 per_device_eval_batch_size=1");
        ok(f, snug_model_open(args, &within.model));
        ok(f, snug_model_predict(within.model, destroy ? other : f->ctx, texts, NULL, TEXTS, close_within, &within));
        assert_int_equal(within.rows, TEXTS);
        if (!destroy) {
            fails(f, snug_model_predict(within.model, other, texts, NULL, TEXTS, count_row, &rows),
                  "snug_model_predict: the model is closed");
            assert_int_equal(rows, 0);
            snug_model_destroy(within.model);
        }
        snug_args_destroy(args);
    }
    snug_context_destroy(other);
}

struct crossed {
    snug_model *model; /* of the other thread's context */
    snug_context *ctx;
    pthread_t thread;
    int failures;
};

static void *predict_crossed(void *user) {
    struct crossed *c = user;
    for (int i = 0; i < 200; i++) {
        int rows = 0;
        const char *const wrong[] = {"\xff"};
        c->failures += snug_model_predict(c->model, c->ctx, texts, NULL, TEXTS, count_row, &rows) != SNUG_OK;
        c->failures += snug_model_predict(c->model, c->ctx, wrong, NULL, 1, count_row, &rows) != SNUG_E_USAGE ||
                       !strstr(snug_error_message(c->ctx), "text 0 is not UTF-8");
    }
    return NULL;
}

/* Two threads, each with its context, of which the other's model is: neither waits for ever or is refused. */
FIXTURE_TEST(test_crossed_models) {
    struct crossed c[2];
    snug_args *args[2];
    train(f, "out", "max_steps=1");
    for (int i = 0; i < 2; i++) {
        ok(f, snug_context_create(&c[i].ctx));
        ok(f, snug_args_create(c[i].ctx, &args[i]));
        set_args(f, args[i], "model_name_or_path=@out threads=1");
        ok(f, snug_model_open(args[i], &c[1 - i].model));
        c[i].failures = 0;
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&c[i].thread, NULL, predict_crossed, &c[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(c[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c[i].failures, 0);
        snug_model_destroy(c[1 - i].model);
        snug_args_destroy(args[i]);
    }
    for (int i = 0; i < 2; i++) snug_context_destroy(c[i].ctx);
}

/* ---- fork() ------------------------------------------------------------------------------------------------------ */

enum { WORKS = 10, REFUSED, HANGS = 60 }; /* seconds */

/* In a child: its parent's model, then its own. The exit code. */
static int use_models(struct fixture *f, snug_model *model) {
    snug_context *ctx;
    snug_args *args;
    snug_model *own;
    char path[512];
    int rows = 0;
    alarm(HANGS);
    snprintf(path, sizeof path, "%s/out", f->folder);
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    const snug_status status = snug_model_predict(model, ctx, texts, NULL, TEXTS, count_row, &rows);
    if (status == SNUG_E_USAGE && !strstr(snug_error_message(ctx), "\"spawn\"")) return 2;
    if (status != SNUG_E_USAGE && (status != SNUG_OK || rows != TEXTS)) return 3;
    if (snug_args_create(ctx, &args) != SNUG_OK || snug_args_set(args, "model_name_or_path", path) != SNUG_OK) return 4;
    if (snug_args_set(args, "threads", "2") != SNUG_OK) return 5;
    if (snug_model_open(args, &own) != SNUG_OK) /* forked within an operation: it says how to start processes */
        return strstr(snug_error_message(ctx), "\"spawn\"") ? REFUSED : 5;
    if (snug_model_predict(own, ctx, texts, NULL, TEXTS, count_row, &rows) != SNUG_OK) return 6;
    snug_model_destroy(own);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
    snug_model_destroy(model); /* does not wait for what never ends */
    return status == SNUG_OK ? WORKS : REFUSED;
}

static int child_of(struct fixture *f, snug_model *model) {
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) leave(use_models(f, model));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

FIXTURE_TEST(test_fork_during_predictions) {
    sem_t begun;
    snug_model *model;
    train(f, "out", "max_steps=1");
    snug_args *args = plain_args(f, "model_name_or_path=@out threads=2");
    ok(f, snug_model_open(args, &model));
    assert_int_equal(child_of(f, model), WORKS);
    struct user user = {.model = model, .begun = &begun};
    sem_init(&begun, 0, 0);
    assert_int_equal(pthread_create(&user.thread, NULL, predict_until_closed, &user), 0);
    sem_wait(&begun);
    for (int i = 0; i < 20; i++) {
        usleep((useconds_t)(i * 100));
        const int found = child_of(f, model); /* it depends on the time which of both */
        if (found != WORKS) assert_int_equal(found, REFUSED);
    }
    ok(f, snug_model_close(model));
    pthread_join(user.thread, NULL);
    assert_true(user.refused && user.wrong == 0);
    sem_destroy(&begun);
    snug_model_destroy(model);
    snug_args_destroy(args);
}

/* A session has threads and open files: it is refused in a child, and destroying it there ends nothing of its parent.
 */
FIXTURE_TEST(test_fork_with_a_session) {
    snug_session *session;
    int status;
    snug_args *args = training_args(f, "dataloader_num_workers=2");
    ok(f, snug_session_create(args, &session));
    ok(f, snug_session_begin_epoch(session, 0));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(HANGS);
        const bool refused =
            snug_next_batch(session, NULL) == SNUG_E_USAGE &&
            strstr(snug_error_message(f->ctx), "snug_next_batch: the parent of this process created") &&
            snug_save_model(session, "/none") == SNUG_E_USAGE;
        snug_session_destroy(session);
        leave(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ok(f, snug_next_batch(session, NULL));
    snug_session_destroy(session);
    snug_args_destroy(args);
}

struct forking {
    snug_event_kind kind; /* of the event that forks; else should_stop does, once, while texts are tokenized */
    bool ask, forked;
    pid_t child;
};

static void fork_once(struct forking *forking) {
    if (forking->forked) return;
    forking->forked = true;
    forking->child = fork();
    if (forking->child == 0) alarm(HANGS);
}

static void fork_at_event(void *user, const snug_event *event) {
    struct forking *forking = user;
    if (!forking->ask && event->kind == forking->kind) fork_once(forking);
}

static bool fork_when_asked(void *user) {
    struct forking *forking = user;
    if (forking->ask) fork_once(forking);
    return false;
}

/* A child that returns from the callback does not continue the run beside its parent. */
FIXTURE_TEST(test_fork_in_callbacks) {
    static const struct forking cases[] = {
        {.kind = SNUG_EVENT_STEP}, {.kind = SNUG_EVENT_BEGIN}, {.kind = SNUG_EVENT_LOG}, {.ask = true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct forking forking = cases[i];
        const snug_callbacks callbacks = {.user = &forking, .on_event = fork_at_event, .should_stop = fork_when_asked};
        char words[64];
        int status;
        snprintf(words, sizeof words, "output_dir=@out%zu overwrite_cache=True", i);
        snug_args *args = training_args(f, words);
        const snug_status trained = snug_train(args, &callbacks, NULL);
        if (forking.forked && forking.child == 0)
            leave(trained == SNUG_E_USAGE && strstr(snug_error_message(f->ctx), "forked by a callback of snug_train()")
                      ? 0
                      : 1);
        ok(f, trained);
        assert_true(forking.forked);
        assert_int_equal(waitpid(forking.child, &status, 0), forking.child);
        assert_int_equal(status, 0);
        snug_args_destroy(args);
    }
}

/* ---- exit() ------------------------------------------------------------------------------------------------------ */

static void tell_step(void *user, const snug_event *event) {
    if (event->kind == SNUG_EVENT_STEP && event->step == 3) sem_post(user);
}

struct endless {
    snug_args *args;
    sem_t begun;
};

static void *train_without_end(void *user) {
    struct endless *endless = user;
    const snug_callbacks callbacks = {.user = &endless->begun, .on_event = tell_step};
    snug_train(endless->args, &callbacks, NULL);
    return NULL;
}

/* exit() while another thread trains: no library's destructor frees what it computes with. */
FIXTURE_TEST(test_exit) {
    if (SANITIZED) skip(); /* what the training holds counts as leaked */
    for (int round = 0; round < 5; round++) {
        int status;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct endless endless;
            pthread_t thread;
            alarm(HANGS);
            sem_init(&endless.begun, 0, 0);
            endless.args = training_args(f, "num_train_epochs=1000000 threads=2 output_dir=@out");
            pthread_create(&thread, NULL, train_without_end, &endless);
            sem_wait(&endless.begun);
            exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

TEST_MAIN(NULL, NULL)
