/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a training, and its checkpoints. */
#ifndef SNUG_TRAIN_TRAINER_H
#define SNUG_TRAIN_TRAINER_H

#include <jansson.h>

#include "io/events.h"
#include "train/output.h"
#include "train/session.h"

enum { SNUG_CHECKPOINT_NAME = 32 };  /* "checkpoint-" and a step */
enum { SNUG_CHECKPOINT_PATH = 512 }; /* room for the path of one; snug_checkpoint_look() knows that it is enough */

/* More steps than any run has (--max_steps takes 10^12), and checkpoints; sums of a few stay below 64 bits. */
#define SNUG_NEVER (INT64_C(1) << 53)

struct snug_trainer {
    struct snug_session *session;
    snug_context *ctx;
    const struct snug_args *args;
    const snug_callbacks *callbacks;
    snug_train_result *result;
    const char *room; /* what helps where the disk is full, or NULL: the flags for saving do */
    int64_t logging_steps, eval_steps, save_steps; /* in optimizer steps; 0: not by step */
    int64_t save_total_limit;
    struct snug_events *events;  /* TensorBoard, or NULL */
    double started, idle;        /* clock at the first step; seconds spent outside training since */
    struct snug_output output;   /* output_dir */
    struct snug_provenance from; /* this training: resumed runs keep it */
    int64_t infinite_in_a_row;   /* steps up to now whose gradients were not finite, and were not applied */
    int64_t streak; /* steps up to now whose loss or gradients were not finite: nothing is saved meanwhile */

    /* What a checkpoint holds beside weights and optimizer. */
    json_t *log_history;
    double loss_sum, loss_total; /* of steps since the last log; of all */
    int64_t logged_step, evaluated_step;
    int64_t samples, tokens;
    int64_t infinite_losses, infinite_gradients; /* steps in which they were NaN or infinite */
    bool has_best;
    double best_metric;
    int64_t best_step, impatience; /* evaluations without improvement */
    bool logged_evaluation;        /* the one to come stands in log_history already */
    bool unjudged;                 /* the last step's evaluation was interrupted: who resumes begins with it */
    int64_t best_saved_step;       /* of the best checkpoint; -1: none */
    int64_t left_step;             /* up to here, what is called a checkpoint and is not this run's was logged */
};

/* A folder named checkpoint-<step> in output_dir. */
struct snug_checkpoint {
    int64_t step;
    bool own;    /* snug made it, and everything in it */
    bool source; /* the model, tokenizer or data was read from it */
    struct snug_provenance from;
};

/* snug_train() with a room of the caller's. */
snug_status snug_train_in(snug_args *args, const snug_callbacks *callbacks, snug_train_result *result,
                          const char *room);
double snug_trainer_epoch(const struct snug_trainer *trainer);
/* FLOPs of all steps so far, those before a resumption included. */
double snug_trainer_flops(const struct snug_trainer *trainer);

/* Writes output_dir/checkpoint-<step>, whole or not at all, and removes what save_total_limit no longer keeps. */
snug_status snug_checkpoint_save(struct snug_trainer *trainer, char path[SNUG_CHECKPOINT_PATH]);
/* Before any work: whether there is something to continue from, as far as that can be told without reading it. */
snug_status snug_checkpoint_look(const struct snug_trainer *trainer);
/* Continues from resume_from_checkpoint: a folder, or "True" for the last whole one in output_dir. */
snug_status snug_checkpoint_resume(struct snug_trainer *trainer);
/* Before the first step: SNUG_E_INPUT where the best checkpoint of a resumed run, which the end will load, is not in
   output_dir. */
snug_status snug_checkpoint_check_best(struct snug_trainer *trainer);
/* Loads the weights of the best checkpoint, verified. */
snug_status snug_checkpoint_load_best(struct snug_trainer *trainer);
/* Refuses what is in the way of checkpoints to come: what snug did not make, and what the run reads its model from.
   With
   --overwrite_output_dir checkpoints of any step are in the way. */
snug_status snug_checkpoint_check_way(struct snug_trainer *trainer);
/* Removes all checkpoints of snug's, for --overwrite_output_dir. */
snug_status snug_checkpoint_remove_all(struct snug_trainer *trainer);
/* The checkpoints in output_dir by step, ascending; *items is freed by the caller. */
snug_status snug_checkpoint_list(const struct snug_trainer *trainer, struct snug_checkpoint **items, size_t *count);
/* The step of this run's newest checkpoint, or -1. */
snug_status snug_checkpoint_last(const struct snug_trainer *trainer, int64_t *step);
/* output_dir/checkpoint-<step>, for messages; its length. */
int snug_checkpoint_path(const struct snug_trainer *trainer, int64_t step, char path[SNUG_CHECKPOINT_PATH]);
/* trainer_state.json into folder, and from there; one that cannot be of this run is SNUG_E_INPUT. */
snug_status snug_trainer_state_write(struct snug_trainer *trainer, const struct snug_folder *folder);
snug_status snug_trainer_state_read(struct snug_trainer *trainer, const struct snug_folder *folder);

/* When something is due that has a strategy and a number of steps. */
static inline bool snug_trainer_is_due(enum snug_interval strategy, int64_t every, int64_t step, bool epoch_ends) {
    return (strategy == SNUG_INTERVAL_STEPS && step % every == 0) || (strategy == SNUG_INTERVAL_EPOCH && epoch_ends);
}

static inline bool snug_trainer_resumes(const struct snug_trainer *trainer) {
    const char *from = trainer->args->resume_from_checkpoint;
    return from && strcasecmp(from, "false") != 0;
}

/* Whether the folder's old checkpoints are to be removed. */
static inline bool snug_trainer_starts_anew(const struct snug_trainer *trainer) {
    return trainer->args->overwrite_output_dir && !snug_trainer_resumes(trainer);
}

static inline bool snug_trainer_reports(const struct snug_args *args) {
    return strcmp(args->report_to, "tensorboard") == 0 || strcmp(args->report_to, "all") == 0;
}

/* What happens from the next step to step last: for what the disks must hold. */
struct snug_prospect {
    int64_t logs, evaluations;
    int64_t made, replaced; /* checkpoints: where none is, where there is one of that step */
};
/* there: steps of the checkpoints that output_dir has, ascending. The time does not grow with the steps. */
struct snug_prospect snug_trainer_look_ahead(const struct snug_trainer *trainer, int64_t last, const int64_t *there,
                                             size_t count);
/* The earliest step in which early stopping can end the run; without it max_steps. */
int64_t snug_trainer_first_stop(const struct snug_trainer *trainer);
/* SNUG_E_IO where what the run will write does not fit on the disks that it goes to. */
snug_status snug_trainer_check_disk(const struct snug_trainer *trainer);

/* Steps in a row without a finite gradient after which a training ends: what follows would be no better. */
enum { SNUG_HOPELESS = 10 };
/* To be called after clipping, before the step, where the loss or the gradient norm is not finite: names what it is,
   counts it. SNUG_E_NUMERIC where there is no sense in going on. */
snug_status snug_trainer_not_finite(struct snug_trainer *trainer, double loss, double grad_norm);
/* Adds to an evaluation's error of that kind after which step it is, and which one was the last with finite outputs. */
snug_status snug_trainer_outputs_not_finite(struct snug_trainer *trainer);
/* What a micro-batch's loss counts as in the log, after in_step of its step's others: see --logging_nan_inf_filter. */
double snug_trainer_filter_loss(const struct snug_trainer *trainer, double in_step, double part);

#endif
