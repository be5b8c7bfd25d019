/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training loop of the program's: its calls on a session, in an order that has a meaning. What a micro-batch needs is
 * one call after the other, so the last one is its stage. Calls that fail while they change weights or states leave a
 * session that only a checkpoint repairs.
 */
#include <inttypes.h>
#include <math.h>

#include "train/reference.h"

/* ---- opening and entering ---------------------------------------------------------------------------------------- */

/* A loop's calls are one after the other for each micro-batch. */
static snug_status create(struct snug_args *args, struct snug_session **out) {
    RETURN_IF_ERROR(snug_session_open(args, SNUG_COMMAND_TRAIN, NULL, out));
    if (!(*out)->training->pipeline.options.two_passes) return SNUG_OK;
    snug_session_close(*out);
    *out = NULL;
    return snug_fail(args->ctx, SNUG_E_UNSUPPORTED,
                     "snug_session_create: a loop over steps of several micro-batches is not supported for --task "
                     "embedding, whose loss is over all of them: leave mini_batch_size and gradient_accumulation_steps "
                     "out, or call snug_train");
}

snug_status snug_session_create(snug_args *args, snug_session **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    snug_status status = create(args, out);
    if (status == SNUG_OK) status = snug_reference_find(*out, NULL, &(struct snug_folder){0});
    if (status != SNUG_OK) {
        snug_session_close(*out);
        *out = NULL;
    }
    return snug_leave(args->ctx, status);
}

/* In a child of fork() it is left as it is: what its parent's threads do cannot be ended there. */
void snug_session_destroy(snug_session *s) {
    if (!s || !snug_session_is_here(s)) return;
    snug_context *ctx = s->ctx;
    if (snug_enter(ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_QUIET) != SNUG_OK) return;
    snug_session_close(s);
    snug_leave(ctx, SNUG_OK);
}

snug_status snug_session_enter(snug_session *s, const char *function) {
    if (!snug_session_is_here(s))
        return snug_refuse("%s: the parent of this process created the session, and its threads, files and GPU are not "
                           "here: " SNUG_WITHOUT_FORK,
                           function);
    return snug_enter(s->ctx, function, SNUG_TURN_ALONE);
}

static snug_status check_whole(const struct snug_session *s, const char *call) {
    if (!s->loop.failed) return SNUG_OK;
    return snug_fail(s->ctx, SNUG_E_USAGE,
                     "%s: %s has failed and may have changed a part of the weights or the optimizer's states: load a "
                     "checkpoint by snug_load_checkpoint, or create another session",
                     call, s->loop.failed);
}

snug_status snug_session_enter_whole(snug_session *s, const char *function) {
    RETURN_IF_ERROR(snug_session_enter(s, function));
    const snug_status status = check_whole(s, function);
    return status == SNUG_OK ? SNUG_OK : snug_leave(s->ctx, status);
}

snug_status snug_session_changed(snug_session *s, const char *call, snug_status status) {
    s->loop.failed = status == SNUG_OK ? NULL : call;
    return status;
}

/* ---- epochs and micro-batches ------------------------------------------------------------------------------------ */

int64_t snug_session_epochs(const snug_session *session) {
    SNUG_REQUIRE_OR(-1, session);
    return session->training->pipeline.epochs;
}

int64_t snug_session_epoch(const snug_session *session) {
    SNUG_REQUIRE_OR(-1, session);
    return session->epoch;
}

int64_t snug_session_steps(const snug_session *session) {
    SNUG_REQUIRE_OR(-1, session);
    return session->step;
}

static snug_status begin_epoch(struct snug_session *s, int64_t epoch) {
    const int64_t epochs = s->training->pipeline.epochs;
    if (epoch < 0 || epoch >= epochs)
        return snug_fail(s->ctx, SNUG_E_USAGE,
                         "snug_session_begin_epoch: the session has the epochs 0 to %" PRId64 ", not %" PRId64
                         ": set num_train_epochs or max_steps before it is created",
                         epochs - 1, epoch);
    s->loop.stage = SNUG_LOOP_NO_BATCH;
    const snug_status status = snug_session_start_epoch(s, epoch);
    s->loop.begun = status == SNUG_OK;
    return status;
}

snug_status snug_session_begin_epoch(snug_session *session, int64_t epoch) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, begin_epoch(session, epoch));
}

/* Without the encoder's gradients, which only a first micro-batch overwrites. */
static snug_status check_complete(const struct snug_session *s, const char *call) {
    if (s->loop.stage != SNUG_LOOP_LOSS || s->train_run.micro_batch == 0) return SNUG_OK;
    return snug_fail(s->ctx, SNUG_E_USAGE,
                     "%s: snug_loss has added the head's gradients of the current micro-batch to those of the ones "
                     "before: call snug_backward, or snug_zero_grad to discard them",
                     call);
}

static snug_status next_batch(struct snug_session *s, const snug_batch_info **info) {
    RETURN_IF_ERROR(check_complete(s, "snug_next_batch"));
    if (!s->loop.begun)
        return snug_fail(s->ctx, SNUG_E_USAGE,
                         "snug_next_batch: no epoch has begun; call snug_session_begin_epoch first");
    const snug_status status = snug_session_next_batch(s, info);
    s->loop.stage = status == SNUG_OK ? SNUG_LOOP_BATCH : SNUG_LOOP_NO_BATCH;
    s->loop.begun = status == SNUG_OK || status == SNUG_END;
    return status;
}

snug_status snug_next_batch(snug_session *session, const snug_batch_info **info) {
    if (info) *info = NULL;
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, next_batch(session, info));
}

/* stage: that of the micro-batch after the call. The forward pass changes nothing, so it can be repeated. */
static snug_status check_stage(const struct snug_session *s, enum snug_loop_stage stage) {
    static const char *const calls[] = {NULL, "snug_next_batch", "snug_forward", "snug_loss", "snug_backward"};
    const enum snug_loop_stage now = s->loop.stage;
    if (now == SNUG_LOOP_NO_BATCH)
        return snug_fail(s->ctx, SNUG_E_USAGE, "%s: there is no current batch; call snug_next_batch first",
                         calls[stage]);
    if (now + 1 < stage) return snug_fail(s->ctx, SNUG_E_USAGE, "%s: call %s first", calls[stage], calls[now + 1]);
    if (now + 1 == stage || (now == stage && now == SNUG_LOOP_FORWARD)) return SNUG_OK;
    return snug_fail(s->ctx, SNUG_E_USAGE, "%s: it has been called on the current micro-batch; call snug_next_batch",
                     calls[stage]);
}

/* A micro-batch of which a call failed has no gradients. */
static snug_status reach(struct snug_session *s, enum snug_loop_stage stage, snug_status status) {
    s->loop.stage = status == SNUG_OK ? stage : SNUG_LOOP_NO_BATCH;
    return status;
}

static snug_status forward(struct snug_session *s) {
    RETURN_IF_ERROR(check_stage(s, SNUG_LOOP_FORWARD));
    return reach(s, SNUG_LOOP_FORWARD, snug_session_forward(s));
}

snug_status snug_forward(snug_session *session) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, forward(session));
}

static snug_status head(struct snug_session *s, double *loss) {
    RETURN_IF_ERROR(check_stage(s, SNUG_LOOP_LOSS));
    return reach(s, SNUG_LOOP_LOSS, snug_session_head(s, loss));
}

snug_status snug_loss(snug_session *session, double *loss) {
    SNUG_REQUIRE(session);
    SNUG_REQUIRE(loss);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, head(session, loss));
}

static snug_status backward(struct snug_session *s) {
    RETURN_IF_ERROR(check_stage(s, SNUG_LOOP_BACKWARD));
    return snug_session_changed(s, "snug_backward", reach(s, SNUG_LOOP_BACKWARD, snug_session_backward(s)));
}

snug_status snug_backward(snug_session *session) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, backward(session));
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static snug_status check_gradients(const struct snug_session *s, const char *call) {
    if (s->train_run.micro_batch > 0) return check_complete(s, call);
    return snug_fail(s->ctx, SNUG_E_USAGE, "%s: there are no gradients; call snug_backward first", call);
}

static snug_status clip(struct snug_session *s, double max_norm, double *norm) {
    RETURN_IF_ERROR(check_gradients(s, "snug_clip_grad_norm"));
    if (max_norm > 0 && s->training->program.updates_in_backward)
        return snug_fail(
            s->ctx, SNUG_E_USAGE,
            "snug_clip_grad_norm: the weights were updated in backward, because --max_grad_norm 0 disabled "
            "clipping: set max_grad_norm before the session is opened");
    return snug_session_clip(s, max_norm, norm);
}

snug_status snug_clip_grad_norm(snug_session *session, double max_norm, double *norm) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, clip(session, max_norm, norm));
}

static snug_status update(struct snug_session *s) {
    RETURN_IF_ERROR(check_gradients(s, "snug_optimizer_step"));
    return snug_session_changed(s, "snug_optimizer_step", snug_session_update(s));
}

snug_status snug_optimizer_step(snug_session *session) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, update(session));
}

snug_status snug_scheduler_step(snug_session *session) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter(session, __func__));
    snug_session_advance_schedule(session);
    return snug_leave(session->ctx, SNUG_OK);
}

double snug_learning_rate(const snug_session *session) {
    SNUG_REQUIRE_OR(NAN, session);
    return snug_session_rate(session);
}

static snug_status set_rate(struct snug_session *s, double learning_rate) {
    if (!isfinite(learning_rate) || learning_rate < 0)
        return snug_fail(s->ctx, SNUG_E_USAGE, "snug_set_learning_rate: %g is no learning rate", learning_rate);
    if (snug_optimizer_rate(&s->job.plan.optimizer, learning_rate, s->schedule_step) != learning_rate)
        return snug_fail(s->ctx, SNUG_E_USAGE,
                         "snug_set_learning_rate: --optim %s computes its own learning rate (relative_step)",
                         s->job.plan.optimizer.name);
    s->own_rate = learning_rate;
    return SNUG_OK;
}

snug_status snug_set_learning_rate(snug_session *session, double learning_rate) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter(session, __func__));
    return snug_leave(session->ctx, set_rate(session, learning_rate));
}

/* The head's gradients of the current micro-batch are discarded too: it can have another loss. */
snug_status snug_zero_grad(snug_session *session) {
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter(session, __func__));
    snug_session_zero_grad(session);
    if (session->loop.stage == SNUG_LOOP_LOSS) session->loop.stage = SNUG_LOOP_FORWARD;
    return snug_leave(session->ctx, SNUG_OK);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

snug_status snug_session_evaluate(snug_session *session, snug_metrics **metrics) {
    SNUG_REQUIRE_OUT(metrics);
    SNUG_REQUIRE(session);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    session->loop.stage = SNUG_LOOP_NO_BATCH;
    return snug_leave(session->ctx, snug_session_measure(session, metrics));
}

static snug_status save_model(struct snug_session *s, const char *folder) {
    struct snug_output output = {0};
    RETURN_IF_ERROR(
        snug_output_make(s->ctx, folder, true, s->job.setup.args->overwrite_output_dir, s->job.setup.mode, &output));
    const snug_status status = snug_session_write_model(s, &output);
    snug_output_close(&output);
    return status;
}

snug_status snug_save_model(snug_session *session, const char *folder) {
    SNUG_REQUIRE(session);
    SNUG_REQUIRE(folder);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, save_model(session, folder));
}
