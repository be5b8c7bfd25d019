/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a run: the programs for a setup and the arguments, placed in one arena, and their bytes. One function
 * builds it, without a backend, so that the search for a memory budget can build many plans. Printing, the search and
 * the session use the same struct.
 */
#ifndef SNUG_TRAIN_RUN_PLAN_H
#define SNUG_TRAIN_RUN_PLAN_H

#include "measure/rates.h"
#include "train/setup.h"

/* The role of a program in a plan. */
enum snug_role { SNUG_ROLE_TRAINING, SNUG_ROLE_EVALUATION, SNUG_ROLE_GENERATION, SNUG_ROLE_COUNT };

/* The data pipeline: from a data source to batches. */
struct snug_data_pipeline {
    struct snug_loader_options options;
    struct snug_loader_limits limits;
    struct snug_load load; /* of a step, or of a batch of an evaluation */
    /* Training: */
    int64_t steps_per_epoch, max_steps, epochs; /* 0 without data; max_steps: unless the arguments give it */
};

struct snug_planned_program {
    enum snug_role role;
    struct snug_data_pipeline pipeline;
    int64_t loader_bytes;
    struct snug_program program;
};

struct snug_run_plan {
    /* methods */
    struct snug_optimizer optimizer;
    enum snug_dtype weights;        /* type of stored matrices and tables */
    enum snug_recompute *recompute; /* by layer */
    struct snug_offload offload;
    const char *offload_dir; /* the arguments'; see snug_args_offload_dir() */
    /* programs, in the order of their roles */
    struct snug_planned_program *programs;
    int count;
    struct snug_layout layout;
    int64_t losses_offset; /* in the host's block: snug_step_results() floats for each micro-batch of a step */
    int64_t metric_bytes;  /* of the evaluation's metric accumulator */
    /* What an evaluation copies from a device, in the host's function memory: after the accumulator the best classes of
       a chunk, then, logits_offset bytes later, logits of output_rows rows. 0 rows: it copies no logits. */
    int64_t logits_offset, output_rows;
    /* What predictions collect there, from collected_offset on: the row numbers of a chunk's loss positions, or on
       several ranks those of a batch, with their logits; rank 0 has them of all ranks, too. */
    int64_t collected_offset, collected_rows;
    /* The reported bytes, see limits.h: by class, in the memory that has the arena, and in total. On a device, host
     * memory is in the class host, which the total excludes. */
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT], total;
};

/* The pipeline of a role: its batches, steps and limits. */
snug_status snug_data_pipeline_plan(const struct snug_setup *setup, const struct snug_args *args, enum snug_role role,
                                    struct snug_data_pipeline *out);
/* Builds and places the programs of the roles that setup has, for batches of pipelines (one for each role). Errors and
   messages go to args' context. The plan is freed with snug_run_plan_free(), after a failure too. */
snug_status snug_run_plan_build(const struct snug_setup *setup, const struct snug_args *args,
                                const struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT], struct snug_run_plan *out);
/* As snug_run_plan_build(), with the least layout, of at most as many bytes, which takes a fraction of the time to
   find; then snug_run_plan_place() may place the programs. */
snug_status snug_run_plan_build_least(const struct snug_setup *setup, const struct snug_args *args,
                                      const struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT],
                                      struct snug_run_plan *out);
snug_status snug_run_plan_place(const struct snug_setup *setup, const struct snug_args *args,
                                struct snug_run_plan *plan);
void snug_run_plan_free(struct snug_run_plan *plan);

/* What the host reads of a micro-batch: its loss, and the results of preferences. */
static inline int64_t snug_step_results(const struct snug_program *training) {
    return 1 + (training->results ? SNUG_PREFERENCE_RESULTS : 0);
}
/* The program of a role, or NULL. */
static inline struct snug_planned_program *snug_run_plan_find(const struct snug_run_plan *plan, enum snug_role role) {
    for (int i = 0; i < plan->count; i++)
        if (plan->programs[i].role == role) return &plan->programs[i];
    return NULL;
}
/* FLOPs, bytes and, with rates, seconds of an optimizer step of the training program. */
snug_status snug_run_plan_step(const struct snug_run_plan *plan, const struct snug_rates *rates,
                               struct snug_estimate *out);

/* The compute type and the weights' type of a run, human-readable. */
/* The weights of a placed program that are stored as codes. */
struct snug_quantized_sum {
    struct snug_quantized form; /* type NONE: there are none */
    int64_t parameters;         /* of the whole model */
    int64_t bytes;              /* of this rank */
    double bits;                /* of a parameter */
    int64_t values;             /* bytes of the largest weight's values, which live while a matmul reads them */
};
struct snug_quantized_sum snug_quantized_sum_of(const struct snug_program *program);
/* "6979.3 M parameters as NF4 codes, 4.13 bits each: 3434.1 MiB; …" */
void snug_quantized_text(const struct snug_quantized_sum *sum, char text[192]);
const char *snug_precision_text(enum snug_dtype compute, bool tf32, enum snug_dtype weights);

#endif
