/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: everything that the arguments decide, up to the plan, without the weights. `plan` stops here; training,
 * evaluation and prediction carve the arena that it describes (session.h).
 */
#ifndef SNUG_TRAIN_JOB_H
#define SNUG_TRAIN_JOB_H

#include "backend/gpu.h"
#include "io/folder.h"
#include "model/config.h"
#include "plan/rates.h"
#include "text/loader.h"
#include "train/args.h"

enum snug_command { SNUG_COMMAND_TRAIN, SNUG_COMMAND_EVAL, SNUG_COMMAND_PREDICT, SNUG_COMMAND_PLAN };

/* One data set and how it becomes batches. */
struct snug_feed {
    struct snug_dataset *dataset; /* NULL where a plan is made without data */
    struct snug_loader_options options;
    struct snug_loader_limits limits;
    int64_t rows;
    struct snug_load load; /* training: of a step */
};

/* A folder that the job read from; it may be renamed meanwhile. */
struct snug_source {
    dev_t device;
    ino_t inode;
};
enum { SNUG_SOURCES = 32 };

struct snug_job {
    snug_context *ctx;
    struct snug_args *args;
    enum snug_command command;
    int threads;
    struct snug_optimizer optimizer;
    enum snug_dtype weights;        /* what matrices and tables are stored in */
    enum snug_recompute *recompute; /* by layer */
    struct snug_offload offload;
    struct snug_config config;
    struct snug_folder model; /* none: weights are initialised */
    char *tokenizer_folder;   /* NULL: dummy data */
    struct snug_source sources[SNUG_SOURCES];
    int source_count;
    mode_t mode; /* of files made from these: no more readable than they are */
    struct snug_tokenizer *tokenizer;
    struct snug_feed train, eval; /* eval: what is evaluated or predicted */
    bool trains, evaluates;
    double squared_lengths; /* of all training rows: what attention works on */
    int64_t steps_per_epoch, max_steps, epochs, max_length;
    int64_t best_metric; /* training: place of --metric_for_best_model among the metrics of an evaluation */
    const struct snug_backend *backend;
    void *backend_state[2];          /* of programs */
    struct snug_program programs[2]; /* training (if any), evaluation (if any) */
    int program_count;
    struct snug_program *training, *evaluation; /* into programs, or NULL */
    struct snug_layout layout;
    int64_t loader_bytes[2]; /* training, evaluation */
    int64_t losses_offset;   /* in the host's block: a float for each micro-batch of a step */
    int64_t meter_bytes;
    int64_t own_bytes;                 /* measured: resident before the job, and of the backend */
    int64_t context_bytes, host_bytes; /* the program itself and its libraries; tokenizer, data index and the like */
    struct snug_gpu_meter meter;       /* on a GPU: watches what the process holds of it */
    int64_t opened_bytes;              /* of context_bytes: what it held when the backend was open */
    struct snug_fit *fit;              /* what the search for the budget came to, if there was one */
};

/* As long as made-up rows may be: limit, or the model's positions where these are fewer. */
snug_status snug_job_longest(const struct snug_args *args, int64_t limit, int64_t *longest);
/* Resolves args, opens config, tokenizer and data, builds and places the programs. When the plan is over the budget or
   the machine the status is SNUG_E_DOES_NOT_FIT and the job is whole, so that it can be shown. The job is freed in any
   case with snug_job_close(). */
snug_status snug_job_open(struct snug_args *args, enum snug_command command, struct snug_job *job);
void snug_job_close(struct snug_job *job);

/* The plan of the same model, data and machine by other arguments, without a backend: what the search for a budget
   looks at. train was planned for args; all that methods do not change is job's own, which must outlive it. Freed with
   snug_job_drop_plan(), after a failure too. */
snug_status snug_job_replan(const struct snug_job *job, struct snug_args *args, const struct snug_feed *train,
                            struct snug_job *out);
void snug_job_drop_plan(struct snug_job *job);
/* Plans feed, whose data set is open, by args: its batches, steps and limits. */
snug_status snug_job_plan_training(struct snug_job *job, const struct snug_args *args, struct snug_feed *feed);
int64_t snug_job_classes(const struct snug_job *job); /* width of the logits */
/* Bytes of a class where the arena lies: on a device, what the host holds for it is of the class host. */
int64_t snug_job_bytes(const struct snug_job *job, snug_memory_class memory_class);
/* Arena + context + host; on a device without the host's. */
int64_t snug_job_total(const struct snug_job *job);
/* Memory of the machine or device that the arena lies in, and what is available of it; -1 where that cannot be told. */
int64_t snug_job_place_bytes(const struct snug_job *job);
int64_t snug_job_place_available(const struct snug_job *job);

/* Threads that the job computes with: as asked, or as many cores as the process may use. */
int snug_args_threads(const struct snug_args *args);

/* Resident bytes of this process now and at its peak, from /proc/self/status; -1 where that cannot be told. */
int64_t snug_resident_bytes(void);
int64_t snug_peak_resident_bytes(void);
/* Memory of the machine, and what is available of it; -1 where that cannot be told. */
int64_t snug_machine_bytes(void);
int64_t snug_available_bytes(void);

#endif
