/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a snug_session: a job with its arena carved and its weights in place. */
#ifndef SNUG_TRAIN_SESSION_H
#define SNUG_TRAIN_SESSION_H

#include "optim/schedule.h"
#include "train/job.h"
#include "train/metrics.h"
#include "train/output.h"

struct snug_session {
    struct snug_job job;
    snug_context *ctx;
    struct snug_block arena, host; /* what operations work in; batches and metrics */
    struct snug_memory memory;     /* the arena, and the spool */
    uint64_t *copies[2];           /* by program, see snug_run */
    struct snug_run train_run, eval_run;
    struct snug_loader *train_loader, *eval_loader;
    struct snug_schedule schedule;
    struct snug_meter *meter;
    const struct snug_batch *batch; /* the current micro-batch */
    int64_t step;                   /* optimizer steps done */
    int64_t schedule_step;
    bool clipped; /* the clip tensor holds this step's scale */
    /* In fp16 (scaler is not -1) the device decides which steps are skipped, and the host looks now and then. */
    int32_t scaler;
    int64_t skipped, unseen; /* as of the last look, this step included; optimizer steps since then */
    float loss_scale;
    struct snug_profile profile;
};

/* callbacks, which may be NULL, are asked whether to stop until it is open. */
snug_status snug_session_open(struct snug_args *args, enum snug_command command, const snug_callbacks *callbacks,
                              struct snug_session **out);
/* Makes what follows from weights and states: to be called after either was loaded. */
snug_status snug_session_prepare(struct snug_session *session);
/* Does what was put off: to be called before weights or states are looked at. */
snug_status snug_session_settle(struct snug_session *session);
/* Looks which steps were skipped, up to the one whose gradients were clipped last. Nothing where there is no scale. */
snug_status snug_session_look(struct snug_session *session);
/* Goes on at optimizer step step: of the schedule, of dropout, of the data. */
void snug_session_seek(struct snug_session *session, int64_t step);
/* In the place of snug_optimizer_step(): a step that changes neither weights nor states. */
snug_status snug_session_skip_step(struct snug_session *session);
/* Starts the epoch that optimizer step session->step lies in, at that step. */
snug_status snug_session_resume_epoch(struct snug_session *session);

/* The first bytes of a tensor of run's program. */
snug_status snug_session_read(struct snug_session *session, const struct snug_run *run, int32_t tensor, void *values,
                              int64_t bytes);

/* Says that run, one of the session's, has another batch. */
snug_status snug_session_load(struct snug_session *session, struct snug_run *run);

/* The next micro-batch forward and backward, as with the calls of snug.h, but without waiting for its loss: that is
   there once the step's norm has been read. SNUG_END as snug_next_batch() has it. */
snug_status snug_session_micro_batch(struct snug_session *session, snug_batch_info *info);
/* That of the step's micro-batch number micro_batch, as snug_loss() gives it. */
double snug_session_loss(const struct snug_session *session, int64_t micro_batch);

/* Evaluates with the current weights; callbacks hear SNUG_EVENT_PROGRESS. */
snug_status snug_session_evaluate_with(struct snug_session *session, const snug_callbacks *callbacks,
                                       snug_metrics *metrics);
/* Runs the evaluation program over the data set; on_chunk sees each chunk's logits [rows, classes], the number of the
   batch's first head row in them, and the batch. */
typedef snug_status snug_logits_fn(void *user, const float *logits, int64_t first_row, int64_t rows,
                                   const struct snug_batch *batch);
snug_status snug_session_infer(struct snug_session *session, const snug_callbacks *callbacks, snug_logits_fn *on_chunk,
                               void *user);

/* Writes config.json, model.safetensors and the tokenizer's files. */
snug_status snug_session_write_files(struct snug_session *session, const struct snug_folder *folder);
/* The same into an output folder, in the place of those that an earlier run wrote there. */
snug_status snug_session_write_model(struct snug_session *session, struct snug_output *output);

static inline int64_t snug_metrics_find(const snug_metrics *metrics, const char *name) {
    for (size_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->items[i].name, name) == 0) return (int64_t)i;
    return -1;
}

#endif
