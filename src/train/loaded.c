/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded model: the session of snug_predict(), kept open for texts in memory. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "model/family.h"
#include "text/given.h"
#include "train/predictions.h"

struct snug_model {
    pthread_mutex_t lock; /* held during a call; it knows its thread */
    struct snug_session *session;
    struct snug_predicting *predicting;
};

snug_status snug_model_open(snug_args *args, snug_model **out) {
    void *memory;
    pthread_mutexattr_t checking;
    *out = NULL;
    snug_clear_error(args->ctx);
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    struct snug_model *model = memory;
    pthread_mutexattr_init(&checking);
    pthread_mutexattr_settype(&checking, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&model->lock, &checking);
    pthread_mutexattr_destroy(&checking);
    snug_status status = snug_session_open(args, SNUG_COMMAND_MODEL, NULL, &model->session);
    if (status == SNUG_OK) status = snug_predicting_open(model->session, &model->predicting);
    if (status == SNUG_OK)
        *out = model;
    else
        snug_model_destroy(model);
    return status;
}

void snug_model_destroy(snug_model *model) {
    if (!model) return;
    snug_predicting_close(model->predicting);
    snug_session_destroy(model->session);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

/* Texts that one batch holds. */
static snug_status predict_batch(struct snug_model *model, const char *const *texts, const char *const *pairs,
                                 int64_t count, int64_t first,
                                 snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    struct snug_session *s = model->session;
    struct snug_data_source *source = &s->job.setup.eval;
    const struct snug_data_pipeline *pipeline = &s->evaluation->pipeline;
    uint8_t *batch = (uint8_t *)s->job.runner.host.base + s->job.plan.layout.batch_offset;
    RETURN_IF_ERROR(snug_dataset_give(s->ctx, source->dataset, texts, pairs, count, first));
    source->rows = count;
    RETURN_IF_ERROR(
        snug_loader_create(s->ctx, source->dataset, &pipeline->options, &pipeline->limits, batch, &s->eval_loader));
    const snug_status status = snug_predicting_run(model->predicting, first, on_row, user);
    snug_loader_destroy(s->eval_loader);
    s->eval_loader = NULL;
    return status;
}

static snug_status predict(struct snug_model *model, const char *const *texts, const char *const *pairs, int64_t count,
                           snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    const struct snug_session *s = model->session;
    const int64_t most = s->evaluation->pipeline.options.batch_size;
    if (pairs && snug_setup_lacks_type(&s->job.setup))
        return snug_fail(s->ctx, SNUG_E_USAGE,
                         "the tokenizer gives a second text token type 1, which the model does not have "
                         "(type_vocab_size 1): join the texts of a pair");
    for (int64_t done = 0; done < count; done += most)
        RETURN_IF_ERROR(predict_batch(model, texts + done, pairs ? pairs + done : NULL,
                                      count - done < most ? count - done : most, done, on_row, user));
    return SNUG_OK;
}

snug_status snug_model_predict(snug_model *model, snug_context *ctx, const char *const *texts, const char *const *pairs,
                               size_t count, snug_status (*on_row)(void *user, const snug_prediction *row),
                               void *user) {
    snug_context *own = model->session->ctx;
    if (pthread_mutex_lock(&model->lock) == EDEADLK)
        return snug_fail(ctx, SNUG_E_USAGE, "snug_model_predict: on_row of a call cannot call it on the same model");
    snug_clear_error(own);
    snug_clear_error(ctx);
    snug_status status = predict(model, texts, pairs, (int64_t)count, on_row, user);
    if (status != SNUG_OK && ctx != own && !*snug_error_message(ctx))
        snug_fail(ctx, status, "%s", snug_error_message(own));
    pthread_mutex_unlock(&model->lock);
    return status;
}
