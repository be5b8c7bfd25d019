/* SPDX-License-Identifier: Apache-2.0 */
/* A snug_session's contents: a job with its allocated arena and loaded weights. */
#ifndef SNUG_TRAIN_SESSION_H
#define SNUG_TRAIN_SESSION_H

#include <jansson.h>
#include <math.h>

#include "metrics/metrics.h"
#include "model/weights.h"
#include "optim/schedule.h"
#include "train/duration.h"
#include "train/output.h"

#define SNUG_SESSION_STATE "session_state.json" /* in a checkpoint of a loop of the caller's */

/* The current micro-batch's last call in a loop of the program's. */
enum snug_loop_stage { SNUG_LOOP_NO_BATCH, SNUG_LOOP_BATCH, SNUG_LOOP_FORWARD, SNUG_LOOP_LOSS, SNUG_LOOP_BACKWARD };

struct snug_session {
    struct snug_job job;
    snug_context *ctx;
    pid_t process; /* which opened it: its threads and its GPU are missing in a child of fork() */
    const struct snug_planned_program *training, *evaluation; /* of the job's plan, or NULL */
    struct snug_memory memory;                                /* of the job's runner */
    struct snug_weight_source source;                         /* of the current weights */
    uint64_t written;                                         /* to divided tensors: see struct snug_memory */
    struct snug_run train_run, eval_run, generation_run;
    int64_t max_steps, steps_per_epoch; /* of a training; max_steps may be fewer than planned */
    struct snug_duration duration;      /* of a training */
    struct snug_loader *train_loader, *eval_loader;
    struct snug_schedule schedule;
    struct snug_metric_accumulator *accumulator;
    const struct snug_batch *batch; /* the current micro-batch */
    int64_t step;                   /* optimizer steps done */
    int64_t schedule_step;
    double own_rate;           /* the learning rate that was set instead of the schedule's; NaN: none */
    int64_t epoch, epoch_step; /* the current epoch; its steps whose batches were returned */
    bool resumed;              /* epoch has not begun since a checkpoint was loaded: it continues at epoch_step */
    bool within_step;          /* a batch was returned and the step's update has not run */
    snug_batch_info info;      /* of the current micro-batch */
    bool idle;                 /* on several ranks: this one has no micro-batch in this step */
    bool clipped;              /* the clip tensor holds this step's scale */
    /* In fp16 (scaler is not -1) the device decides which steps are skipped, and the host reads it from time to time.
     */
    int32_t scaler;
    int64_t skipped, unseen; /* known at the last read, this step included; optimizer steps since then */
    float loss_scale;
    struct snug_profile profile;
    struct { /* of a loop of the program's: train/loop.c */
        enum snug_loop_stage stage;
        bool begun;         /* an epoch */
        const char *failed; /* the call that may have changed a part of the weights or states; NULL: none */
    } loop;
};

/* Until the session is open, it asks callbacks, which may be NULL, whether to stop. */
snug_status snug_session_open(struct snug_args *args, enum snug_command command, const snug_callbacks *callbacks,
                              struct snug_session **out);
void snug_session_close(struct snug_session *session); /* NULL is allowed */
/* Whether this process opened it. */
bool snug_session_is_here(const struct snug_session *session);
/* Enters a call of the program's, function: SNUG_E_USAGE where the session cannot be used. snug_leave() ends it. */
snug_status snug_session_enter(struct snug_session *session, const char *function);
/* Enters a call that needs weights and states of which no part was changed alone. */
snug_status snug_session_enter_whole(struct snug_session *session, const char *function);
/* After such a change by call, whose status it returns. */
snug_status snug_session_changed(struct snug_session *session, const char *call, snug_status status);
/* Recomputes what depends on weights and states. Call it after either was loaded. */
snug_status snug_session_prepare(struct snug_session *session);
/* Stores what the last update wrote to staging buffers, and performs all pending lazy updates. Call it before weights
 * or states are read. */
snug_status snug_session_flush(struct snug_session *session);
/* Reads which steps were skipped, up to the one whose gradients were clipped last. Does nothing without a loss scale.
 */
snug_status snug_session_look(struct snug_session *session);
/* Continues at optimizer step `step`: the schedule, dropout and the data. */
void snug_session_seek(struct snug_session *session, int64_t step);
/* What snug_session_begin_epoch() and the functions of snug.h after it do, without checks of their order. */
snug_status snug_session_start_epoch(struct snug_session *session, int64_t epoch);
snug_status snug_session_next_batch(struct snug_session *session, const snug_batch_info **info);
snug_status snug_session_forward(struct snug_session *session);
snug_status snug_session_head(struct snug_session *session, double *loss);
snug_status snug_session_backward(struct snug_session *session);
snug_status snug_session_clip(struct snug_session *session, double max_norm, double *norm);
snug_status snug_session_update(struct snug_session *session);
void snug_session_advance_schedule(struct snug_session *session);
void snug_session_zero_grad(struct snug_session *session);
double snug_session_rate(const struct snug_session *session);
snug_status snug_session_gradient(struct snug_session *session, const char *name, float *values, size_t count);
/* Instead of snug_session_update(): a step that changes neither weights nor states. */
snug_status snug_session_skip_step(struct snug_session *session);
/* Loads the weights in folder, in place of the current ones. */
snug_status snug_session_load_weights(struct snug_session *session, const struct snug_folder *folder);
/* Starts the epoch of optimizer step session->step, at that step. */
snug_status snug_session_resume_epoch(struct snug_session *session);

/* The first bytes of a tensor of run's program. */
snug_status snug_session_read(struct snug_session *session, const struct snug_run *run, int32_t tensor, void *values,
                              int64_t bytes);

/* Loads the new batch of run, one of the session's runs. */
snug_status snug_session_load(struct snug_session *session, struct snug_run *run);

/* Before the micro-batches of a step on several ranks: sets which ranks have any, and session->idle. */
void snug_session_begin_step(struct snug_session *session);
/* After this rank's micro-batches of a step: takes part in the others', if their gradients are summed in backward. */
snug_status snug_session_attend(struct snug_session *session);
/* The next micro-batch forward and backward, but without waiting for its loss, which is
 * available after the step's norm was read. SNUG_END as in snug_session_next_batch(). */
snug_status snug_session_micro_batch(struct snug_session *session, const snug_batch_info **info);
/* The loss of the step's micro-batch number micro_batch, as in snug_session_head(). */
double snug_session_loss(const struct snug_session *session, int64_t micro_batch);
/* Its sums over the pairs, [SNUG_PREFERENCE_RESULTS]; NULL: the task is another one. */
const float *snug_session_results(const struct snug_session *session, int64_t micro_batch);
/* Files of the output folder: train/reference.h. */
#define SNUG_REFERENCE_TRAIN "reference_train.bin"
#define SNUG_REFERENCE_EVAL "reference_eval.bin"
/* Loads the weights that training begins with from this folder, with the session's adapters, if they are new. */
snug_status snug_session_load_base(struct snug_session *session, const struct snug_folder *folder);

/* Of a session with a program that generates. */
uint8_t *snug_session_decoding_memory(const struct snug_session *session);
/* Answers the prompts of the validation file with the current weights, and appends the scores of the answers. */
snug_status snug_session_answer(struct snug_session *session, const snug_callbacks *callbacks,
                                struct snug_metric_list *metrics);
/* Evaluates with the current weights; callbacks get SNUG_EVENT_PROGRESS. */
snug_status snug_session_evaluate_with(struct snug_session *session, const snug_callbacks *callbacks,
                                       struct snug_metric_list *metrics);
/* What snug_session_evaluate() does. */
snug_status snug_session_measure(struct snug_session *session, snug_metrics **metrics);
/* Runs the evaluation program over the data set, in rounds: in each every rank that has a batch left runs one, in the
   order of the ranks. */
struct snug_inference {
    void *user;
    /* Gets chunk after chunk of a batch; at least one, which is empty if there are no loss positions. */
    snug_status (*on_chunk)(void *user, const struct snug_chunk *chunk, const struct snug_batch *batch);
    /* After a round, on all ranks: shares what this rank's batch gave. *stop: this rank was asked to stop; set to
       whether any rank that this call heard of was. */
    snug_status (*on_round)(void *user, bool last, bool *stop);
};
snug_status snug_session_infer(struct snug_session *session, const snug_callbacks *callbacks,
                               const struct snug_inference *inference);

/* Metrics and losses of an inference, collected in the session's accumulator. */
struct snug_measurement {
    struct snug_session *session;
    struct snug_losses *ranks; /* [size]: of the batches since the ranks shared the last ones */
    int64_t rounds;            /* since then */
};
/* Resets the accumulator. Closed in any case. */
snug_status snug_measurement_open(struct snug_session *session, struct snug_measurement *out);
/* on_chunk and on_round of an inference; user is the measurement. Ranks share their losses in some rounds only, and
   receive the stop request then. */
snug_status snug_measurement_add(void *user, const struct snug_chunk *chunk, const struct snug_batch *batch);
snug_status snug_measurement_share(void *user, bool last, bool *stop);
/* After the last round, on all ranks: the accumulator has what all of them added. */
snug_status snug_measurement_merge(const struct snug_measurement *measurement);
void snug_measurement_close(struct snug_measurement *measurement);
/* {"confusion_matrix": {"labels": […], "counts": [[…]]}} of the last evaluation, by class and predicted class; an empty
   object where there is none, NULL when out of memory. */
json_t *snug_session_confusion(const struct snug_session *session);

/* The file of the weights, or of the adapters where there are any, for snug_manifest_verify(). */
const char *snug_session_weights(const struct snug_session *s);
/* Writes config.json, the weights (or adapter_config.json and the adapters) and the tokenizer's files. Rank 0 has the
 * folder; all ranks write the weights. */
snug_status snug_session_write_files(struct snug_session *session, const struct snug_folder *folder);
/* Of a trained sentence embedding (sentence_folder.c): names of the files, at most three, that make its folder one of
 * sentence-transformers; whether their folders can be written; writes both. */
size_t snug_session_list_sentence(const struct snug_session *session, const char **names);
snug_status snug_session_check_sentence(const struct snug_session *session, const struct snug_output *output);
snug_status snug_session_write_sentence(struct snug_session *session, const struct snug_output *output);
/* Whether an output folder has files of others where snug_session_write_model() would write: SNUG_E_IO names one. */
snug_status snug_session_check_model(const struct snug_session *session, const struct snug_output *output);
/* Writes these files into an output folder, where they replace those of an earlier run. */
snug_status snug_session_write_model(struct snug_session *session, struct snug_output *output);

/* A NaN that a processor generates has a sign, which printf would print. */
static inline double snug_without_sign(double value) { return isnan(value) ? NAN : value; }

static inline int64_t snug_metrics_find(const struct snug_metric_list *metrics, const char *name) {
    for (size_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->items[i].name, name) == 0) return (int64_t)i;
    return -1;
}

#endif
