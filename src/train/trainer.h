/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a training, and its checkpoints. */
#ifndef SNUG_TRAIN_TRAINER_H
#define SNUG_TRAIN_TRAINER_H

#include <jansson.h>

#include "io/events.h"
#include "train/calendar.h"
#include "train/output.h"
#include "train/pace.h"
#include "train/parallel.h"
#include "train/session.h"

enum { SNUG_CHECKPOINT_NAME = 32 }; /* "checkpoint-" and a step */
enum {
    SNUG_CHECKPOINT_PATH = 512
}; /* room for the path of a checkpoint; snug_checkpoint_look() checks that it is enough */

/* A rank's report at the end. */
struct snug_rank_record {
    char host[SNUG_HOST_NAME], device[sizeof((struct snug_device_use *)0)->name]; /* device: "" is the CPU */
    snug_memory_line total;
};

/* The result of a training, one block of memory: the pointers of shown, which the caller gets, are into the rest. */
struct snug_outcome {
    snug_train_result shown;
    snug_memory_line memory[SNUG_MEMORY_CLASS_COUNT];
    struct snug_device_use device;
    struct snug_metric_list list;
    snug_metrics metrics;
    char best_checkpoint[SNUG_CHECKPOINT_PATH];
    /* Not in the block, and freed with it. records, ranks: of several ranks, else NULL. */
    char *log_history, *output_dir;
    struct snug_rank_record *records;
    snug_rank_use *ranks;
};

struct snug_trainer {
    struct snug_session *session;
    snug_context *ctx;
    const struct snug_args *args;
    const snug_callbacks *callbacks;
    struct snug_outcome *outcome;
    snug_train_result *result; /* the outcome's */
    const char *room;          /* advice for a full disk, or NULL for the flags for saving */
    struct snug_calendar calendar;
    int64_t save_total_limit;
    struct snug_events *events;  /* TensorBoard, or NULL */
    double started, idle;        /* clock at the first step; seconds spent outside training since */
    struct snug_output output;   /* output_dir */
    struct snug_provenance from; /* this training; the same for resumed runs */
    int64_t infinite_in_a_row;   /* steps up to now whose gradients were not finite, and were not applied */
    struct snug_pace pace;
    double logged_seconds;  /* of training in this process, at the last log */
    int64_t logged_samples; /* trained in this process, at the last log */
    double *reports;        /* on several ranks: what they report in a step (train/parallel.h) */
    bool stop;              /* on several ranks: one of them was asked to stop before this step's end */
    int64_t streak;         /* steps up to now whose loss or gradients were not finite: nothing is saved meanwhile */

    /* The state in a checkpoint in addition to weights and optimizer. */
    json_t *log_history;
    double loss_sum, loss_total;                    /* of steps since the last log; of all */
    double results[SNUG_PREFERENCE_RESULTS], pairs; /* preferences: sums over the pairs since the last log */
    int64_t logged_step, evaluated_step;
    int64_t finished; /* steps before the current one, whose update may have begun */
    int64_t samples, tokens;
    int64_t infinite_losses, infinite_gradients; /* steps in which they were NaN or infinite */
    bool has_best;                               /* of all evaluations in steps; train/best.c */
    double best_metric;
    int64_t best_step, impatience; /* evaluations without improvement */
    int64_t judged_step;           /* of the last of them; -1: none in this process */
    double judged_metric;
    int64_t best_saved_step; /* of the best of those whose step was saved; -1: none */
    double best_saved_metric;
    bool logged_evaluation; /* the next evaluation is already in log_history */
    bool unjudged;          /* the last step's evaluation was interrupted: a resumed run begins with it */
    int64_t left_step;      /* up to this step, checkpoint names that are not this run's were logged */
};

/* A folder named checkpoint-<step> in output_dir. */
struct snug_checkpoint {
    int64_t step;
    bool own;    /* snug made it, and everything in it */
    bool source; /* the model, tokenizer or data was read from it */
    struct snug_provenance from;
};

/* Whether this rank logs and writes files: all ranks decide alike, rank 0 acts. */
static inline bool snug_trainer_leads(const struct snug_trainer *trainer) {
    return snug_group_rank(trainer->args->group) == 0;
}

/* snug_train() with other advice for a full disk: room, or NULL. result may be NULL. */
snug_status snug_train_in(snug_args *args, const snug_callbacks *callbacks, snug_train_result **result,
                          const char *room);
double snug_trainer_epoch(const struct snug_trainer *trainer);
/* FLOPs of all steps so far, those before a resumption included. */
double snug_trainer_flops(const struct snug_trainer *trainer);

/* Writes output_dir/checkpoint-<step> atomically, all ranks together, and removes the checkpoints beyond
   save_total_limit. */
snug_status snug_checkpoint_save(struct snug_trainer *trainer, char path[SNUG_CHECKPOINT_PATH]);
/* Before any work: checks that there is a checkpoint to resume from, without reading it. */
snug_status snug_checkpoint_look(const struct snug_trainer *trainer);
/* Continues from resume_from_checkpoint: a folder, or "True" for the last whole one in output_dir, or "auto" for the
   same if there is one. */
snug_status snug_checkpoint_resume(struct snug_trainer *trainer);
/* Before the first step: SNUG_E_INPUT if the best checkpoint of a resumed run, which is loaded at the end, is not in
   output_dir. */
snug_status snug_checkpoint_check_best(struct snug_trainer *trainer);
/* Loads the weights of the best checkpoint, verified. */
snug_status snug_checkpoint_load_best(struct snug_trainer *trainer);
/* Refuses the run if entries with the names of future checkpoints were not made by snug, or if the run reads its model
   from them. With --overwrite_output_dir this applies to checkpoints of any step. */
snug_status snug_checkpoint_check_way(struct snug_trainer *trainer);
/* Removes all checkpoints of snug's, for --overwrite_output_dir. */
snug_status snug_checkpoint_remove_all(struct snug_trainer *trainer);
/* The checkpoints in output_dir by step, ascending; *items is freed by the caller. */
snug_status snug_checkpoint_list(const struct snug_trainer *trainer, struct snug_checkpoint **items, size_t *count);
/* The step of this run's newest checkpoint, or -1. */
snug_status snug_checkpoint_last(const struct snug_trainer *trainer, int64_t *step);
/* output_dir/checkpoint-<step>, for messages; its length. */
int snug_checkpoint_path(const struct snug_trainer *trainer, int64_t step, char path[SNUG_CHECKPOINT_PATH]);
/* Write and read trainer_state.json in folder; a state that cannot belong to this run is SNUG_E_INPUT. */
snug_status snug_trainer_state_write(struct snug_trainer *trainer, const struct snug_folder *folder);
snug_status snug_trainer_state_read(struct snug_trainer *trainer, const struct snug_folder *folder);

/* Writes run_report.json into output_dir after training: the memory of a step by operation, and where the time went. */
snug_status snug_run_report_write(struct snug_trainer *trainer);

/* Compares an evaluation in a step with the earlier ones; *improved: it is the best. */
void snug_best_judge(struct snug_trainer *trainer, const struct snug_metric_list *metrics, bool *improved);
/* Call it before the step's checkpoint, which knows whether it is the best one. */
void snug_best_save(struct snug_trainer *trainer);
/* At the end, with --load_best_model_at_end: loads the best checkpoint, and names a better evaluation that was not
   saved. Without a checkpoint the last weights stay. */
snug_status snug_best_load(struct snug_trainer *trainer);
/* After the last evaluation: the best of all for the result. Each run has a metric for that: --metric_for_best_model,
   or the task's main one. */
void snug_best_summarise(const struct snug_trainer *trainer);

static inline bool snug_trainer_resumes(const struct snug_trainer *trainer) {
    const char *from = trainer->args->resume_from_checkpoint;
    return from && strcasecmp(from, "false") != 0;
}

/* Whether the folder's old checkpoints must be removed. */
static inline bool snug_trainer_starts_over(const struct snug_trainer *trainer) {
    return trainer->args->overwrite_output_dir && !snug_trainer_resumes(trainer);
}

static inline bool snug_trainer_reports(const struct snug_args *args) {
    return strcmp(args->report_to, "tensorboard") == 0 || strcmp(args->report_to, "all") == 0;
}

/* Counts of events from the next step to step last, for the disk check. */
struct snug_prospect {
    int64_t logs, evaluations;
    int64_t made, replaced; /* checkpoints at steps without an existing one, and at steps with one */
};
/* there: steps of the checkpoints that output_dir has, ascending. The time does not grow with the steps. */
struct snug_prospect snug_trainer_look_ahead(const struct snug_trainer *trainer, int64_t last, const int64_t *there,
                                             size_t count);
/* The earliest step in which early stopping can end the run; without it max_steps. */
int64_t snug_trainer_first_stop(const struct snug_trainer *trainer);
/* SNUG_E_IO if the files that the run will write do not fit on their disks. */
snug_status snug_trainer_check_disk(const struct snug_trainer *trainer);

/* The number of consecutive steps without finite gradients after which a training ends. */
enum { SNUG_HOPELESS = 10 };
/* Call it after clipping and before the step if the loss or the gradient norm is not finite: logs the tensor and counts
   the step. SNUG_E_NUMERIC if the training cannot continue. */
snug_status snug_trainer_not_finite(struct snug_trainer *trainer, double loss, double grad_norm);
/* Appends to such an error of an evaluation the step after which it occurred, and the last evaluation with finite
   outputs. */
snug_status snug_trainer_outputs_not_finite(struct snug_trainer *trainer);
/* The value of a micro-batch's loss in the log, after in_step other micro-batches of its step: see
   --logging_nan_inf_filter. */
double snug_trainer_filter_loss(const struct snug_trainer *trainer, double in_step, double part);

#endif
