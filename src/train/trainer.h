/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a training, and its checkpoints. */
#ifndef SNUG_TRAIN_TRAINER_H
#define SNUG_TRAIN_TRAINER_H

#include <jansson.h>

#include "io/events.h"
#include "train/session.h"

struct snug_trainer {
    struct snug_session *session;
    snug_context *ctx;
    const struct snug_args *args;
    const snug_callbacks *callbacks;
    snug_train_result *result;
    int64_t logging_steps, eval_steps, save_steps; /* in optimizer steps; 0: not by step */
    int64_t save_total_limit;
    struct snug_events *events; /* TensorBoard, or NULL */
    double started, idle;       /* clock at the first step; seconds spent outside training since */

    /* What a checkpoint holds beside weights and optimizer. */
    json_t *log_history;
    double loss_sum, loss_total; /* of steps since the last log; of all */
    int64_t logged_step, evaluated_step;
    int64_t samples, tokens;
    bool has_best;
    double best_metric;
    int64_t best_step, impatience; /* evaluations without improvement */
    bool unjudged;                 /* the last step's evaluation was interrupted: who resumes begins with it */
    char best_checkpoint[512];
};

double snug_trainer_epoch(const struct snug_trainer *trainer);
/* FLOPs of all steps so far, those before a resumption included. */
double snug_trainer_flops(const struct snug_trainer *trainer);

/* Writes output_dir/checkpoint-<step>, whole or not at all, and removes what save_total_limit no longer keeps. */
snug_status snug_checkpoint_save(struct snug_trainer *trainer, char *path, size_t size);
/* Continues from resume_from_checkpoint: a folder, or "True" for the last whole one in output_dir. */
snug_status snug_checkpoint_resume(struct snug_trainer *trainer);
/* Weights alone, of a checkpoint. */
snug_status snug_checkpoint_load_weights(struct snug_trainer *trainer, const char *folder);
/* Removes all of output_dir's checkpoints. */
snug_status snug_checkpoint_remove_all(struct snug_trainer *trainer);
/* Bytes that one checkpoint takes on disk, about. */
int64_t snug_checkpoint_bytes(const struct snug_trainer *trainer);
/* trainer_state.json into folder, and from there; one that cannot be of this run is SNUG_E_INPUT. */
snug_status snug_trainer_state_write(struct snug_trainer *trainer, const char *folder);
snug_status snug_trainer_state_read(struct snug_trainer *trainer, const char *folder);

#endif
