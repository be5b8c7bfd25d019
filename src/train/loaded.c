/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded model: the session of snug_predict(), kept open for texts in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/process.h"
#include "data/given.h"
#include "data/rows.h"
#include "model/family.h"
#include "train/device.h"
#include "train/predictions.h"

/* Its context has one call at a time, which guards the members, but for users. */
struct snug_model {
    snug_context *ctx;
    struct snug_session *session; /* NULL: it is closed */
    struct snug_predicting *predicting;
    snug_model_info info;
    bool running;           /* a prediction, in a callback of which others may be set: */
    bool closed, destroyed; /* at its end */
    int users;              /* threads of the process in a prediction, or waiting for their turn; guarded by the gate */
    pid_t process;
};

static void close_session(struct snug_model *model) {
    snug_predicting_close(model->predicting);
    snug_session_close(model->session);
    model->predicting = NULL;
    model->session = NULL;
}

static void free_model(struct snug_model *model) {
    free((void *)model->info.classes);
    free(model);
}

static snug_status describe(struct snug_model *model) {
    const struct snug_setup *setup = &model->session->job.setup;
    const struct snug_labels *labels = &setup->config.labels;
    const struct snug_task_info *task = snug_setup_task(setup);
    const bool named = task->labelled && labels->problem != SNUG_PROBLEM_REGRESSION;
    const char **classes;
    model->info = (snug_model_info){.task = snug_task_name(setup->config.task),
                                    .problem = task->problems ? snug_problem_name(labels->problem) : NULL,
                                    .class_count = named ? (size_t)labels->count : 0};
    RETURN_IF_ERROR(snug_alloc(model->ctx, model->info.class_count, sizeof *classes, (void **)&classes));
    model->info.classes = classes;
    for (size_t i = 0; i < model->info.class_count; i++) /* the session's may be closed before the model is destroyed */
        RETURN_IF_ERROR(snug_keep_text(model->ctx, labels->names[i], &classes[i]));
    return SNUG_OK;
}

static snug_status open_model(snug_args *args, snug_model **out) {
    void *memory;
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    struct snug_model *model = memory;
    model->ctx = args->ctx;
    snug_status status = snug_session_open(args, SNUG_COMMAND_MODEL, NULL, &model->session);
    if (status == SNUG_OK) status = snug_predicting_open(model->session, &model->predicting);
    if (status == SNUG_OK) status = describe(model);
    if (status == SNUG_OK) {
        *out = model;
    } else {
        close_session(model);
        free_model(model);
    }
    return status;
}

snug_status snug_model_open(snug_args *args, snug_model **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, open_model(args, out));
}

const snug_model_info *snug_model_describe(const snug_model *model) {
    SNUG_REQUIRE_OR(NULL, model);
    return &model->info;
}

/* In a child of fork() a GPU's memory and its libraries' threads are missing. */
static bool is_out_of_reach(const struct snug_model *model) {
    return model->session && !snug_session_is_here(model->session) &&
           snug_device_is_gpu(&model->session->job.limits.device);
}

/* A callback of a prediction: that closes the model when it ends. */
static bool is_within_prediction(const struct snug_model *model) {
    return snug_is_within_call(model->ctx) && model->running;
}

snug_status snug_model_close(snug_model *model) {
    SNUG_REQUIRE(model);
    if (is_within_prediction(model)) {
        model->closed = true;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_enter(model->ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_QUIET));
    model->closed = true;
    if (!is_out_of_reach(model)) close_session(model);
    return snug_leave(model->ctx, SNUG_OK);
}

/* The users in this process: a child of fork() has none of its parent's threads. */
static int *users_of(struct snug_model *model) {
    if (model->process != getpid()) model->users = 0;
    model->process = getpid();
    return &model->users;
}

static void count_user(struct snug_model *model, int change) {
    snug_gate_lock();
    *users_of(model) += change;
    snug_gate_wake();
    snug_gate_unlock();
}

static void free_unused(struct snug_model *model) {
    snug_gate_lock();
    while (*users_of(model)) snug_gate_wait();
    snug_gate_unlock();
    free_model(model);
}

void snug_model_destroy(snug_model *model) {
    if (!model) return;
    if (is_within_prediction(model)) {
        model->closed = model->destroyed = true;
        return;
    }
    if (snug_model_close(model) == SNUG_OK) free_unused(model);
}

/* Texts that one batch holds. */
static snug_status predict_batch(struct snug_model *model, const struct snug_given_text *texts,
                                 const struct snug_given_text *pairs, int64_t count, int64_t first,
                                 snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    struct snug_session *s = model->session;
    struct snug_data_source *source = &s->job.setup.eval;
    const struct snug_data_pipeline *pipeline = &s->evaluation->pipeline;
    uint8_t *batch = (uint8_t *)s->job.runner.host.base + s->job.plan.layout.batch_offset;
    if (pairs && snug_setup_lacks_type(&s->job.setup))
        return snug_fail(s->ctx, SNUG_E_USAGE,
                         "the tokenizer gives a second text token type 1, which the model does not have "
                         "(type_vocab_size 1): join the texts of a pair");
    RETURN_IF_ERROR(snug_dataset_give(s->ctx, source->dataset, texts, pairs, count, first));
    source->rows = count;
    RETURN_IF_ERROR(
        snug_loader_create(s->ctx, source->dataset, &pipeline->options, &pipeline->limits, batch, &s->eval_loader));
    const snug_status status = snug_predicting_run(model->predicting, first, on_row, user);
    snug_loader_destroy(s->eval_loader);
    s->eval_loader = NULL;
    return status;
}

static struct snug_given_text given_text(const char *text) {
    return (struct snug_given_text){.text = text, .length = text ? strlen(text) : 0};
}

static snug_status predict_texts(struct snug_model *model, const char *const *texts, const char *const *pairs,
                                 int64_t count, snug_status (*on_row)(void *user, const snug_prediction *row),
                                 void *user) {
    const struct snug_session *s = model->session;
    const int64_t most = s->evaluation->pipeline.options.batch_size;
    struct snug_given_text *given;
    snug_status status = snug_alloc(s->ctx, 2 * (size_t)most, sizeof *given, (void **)&given);
    for (int64_t done = 0; done < count && status == SNUG_OK; done += most) {
        const int64_t part = count - done < most ? count - done : most;
        for (int64_t i = 0; i < part; i++) {
            given[i] = given_text(texts[done + i]);
            if (pairs) given[most + i] = given_text(pairs[done + i]);
        }
        status = predict_batch(model, given, pairs ? given + most : NULL, part, done, on_row, user);
    }
    free(given);
    return status;
}

static snug_status predict_rows(struct snug_model *model, struct snug_rows *rows,
                                snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    struct snug_session *s = model->session;
    struct snug_dataset_options options = snug_setup_texts(&s->job.setup);
    const struct snug_given_text *texts, *pairs;
    struct snug_given_rows given;
    if (!snug_rows_count(rows)) return SNUG_OK;
    options.rows = rows;
    options.path = "rows in memory";
    snug_status status = snug_given_rows_open(s->ctx, &options, s->evaluation->pipeline.options.batch_size, &given);
    for (int64_t done = 0, count = 1; status == SNUG_OK && count; done += count) {
        status = snug_given_rows_next(s->ctx, &given, &texts, &pairs, &count);
        if (status == SNUG_OK && count) status = predict_batch(model, texts, pairs, count, done, on_row, user);
    }
    snug_given_rows_close(&given);
    return status;
}

/* What a call predicts. */
struct request {
    const char *const *texts, *const *pairs;
    int64_t count;
    struct snug_rows *rows; /* in place of texts, or NULL */
    snug_status (*on_row)(void *user, const snug_prediction *row);
    void *user;
};

/* In a call of the model's context. */
static snug_status predict_here(struct snug_model *model, const char *call, const struct request *r, bool *destroyed) {
    if (model->closed) return snug_fail(model->ctx, SNUG_E_USAGE, "%s: the model is closed", call);
    if (is_out_of_reach(model))
        return snug_fail(
            model->ctx, SNUG_E_USAGE,
            "%s: the model is in the memory of a GPU, which a child of fork() cannot use: " SNUG_WITHOUT_FORK, call);
    model->running = true;
    const snug_status status = r->rows ? predict_rows(model, r->rows, r->on_row, r->user)
                                       : predict_texts(model, r->texts, r->pairs, r->count, r->on_row, r->user);
    model->running = false;
    if (model->closed) close_session(model);
    *destroyed = model->destroyed;
    return status;
}

/* Other threads may use the model's context, and ctx, as soon as this call has left them: the message is kept for this
 * thread. */
static snug_status leave(snug_context *own, snug_context *ctx, const char *call, snug_status status) {
    char message[SNUG_MESSAGE_SIZE];
    if (status == SNUG_OK) return snug_leave(own, status);
    snprintf(message, sizeof message, "%s", snug_context_message(own));
    snug_leave(own, status);
    if (!*message) return status; /* the program's */
    if (ctx != own && snug_enter(ctx, call, SNUG_TURN_WITHIN) == SNUG_OK)
        snug_leave(ctx, snug_fail(ctx, status, "%s", message));
    snug_keep_message(message);
    return status;
}

static snug_status predict(struct snug_model *model, snug_context *ctx, const char *call, const struct request *r) {
    bool destroyed = false;
    count_user(model, 1);
    snug_status status = snug_enter(model->ctx, call, SNUG_TURN_WAITS);
    if (status == SNUG_OK) status = leave(model->ctx, ctx, call, predict_here(model, call, r, &destroyed));
    count_user(model, -1);
    if (destroyed) free_unused(model);
    return status;
}

snug_status snug_model_predict(snug_model *model, snug_context *ctx, const char *const *texts, const char *const *pairs,
                               size_t count, snug_status (*on_row)(void *user, const snug_prediction *row),
                               void *user) {
    SNUG_REQUIRE(model);
    SNUG_REQUIRE(ctx);
    if (count) SNUG_REQUIRE(texts);
    SNUG_REQUIRE(on_row);
    const struct request request = {
        .texts = texts, .pairs = pairs, .count = (int64_t)count, .on_row = on_row, .user = user};
    return predict(model, ctx, __func__, &request);
}

snug_status snug_model_predict_rows(snug_model *model, snug_context *ctx, snug_rows *rows,
                                    snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    SNUG_REQUIRE(model);
    SNUG_REQUIRE(ctx);
    SNUG_REQUIRE(rows);
    SNUG_REQUIRE(on_row);
    const struct request request = {.rows = rows, .on_row = on_row, .user = user};
    return predict(model, ctx, __func__, &request);
}
