/* SPDX-License-Identifier: Apache-2.0 */
/* From how many ranks on a run fits, by ZeRO stage: each answer is the plan of such a run. */
#include <malloc.h>
#include <stdlib.h>

#include "train/fit.h"

struct trial {
    const struct snug_setup *setup;
    const struct snug_limits *limits;
    snug_context *ctx; /* silent */
};

static snug_status plan_pipelines(const struct trial *t, const struct snug_args *args,
                                  struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT]) {
    RETURN_IF_ERROR(snug_data_pipeline_plan(t->setup, args, SNUG_ROLE_TRAINING, &pipelines[SNUG_ROLE_TRAINING]));
    if (snug_setup_answers(t->setup))
        RETURN_IF_ERROR(
            snug_data_pipeline_plan(t->setup, args, SNUG_ROLE_GENERATION, &pipelines[SNUG_ROLE_GENERATION]));
    if (!t->setup->evaluates) return SNUG_OK;
    return snug_data_pipeline_plan(t->setup, args, SNUG_ROLE_EVALUATION, &pipelines[SNUG_ROLE_EVALUATION]);
}

static snug_status plan_ranks(const struct trial *t, struct snug_args *args, int64_t *bytes) {
    struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT] = {0};
    struct snug_run_plan plan;
    RETURN_IF_ERROR(snug_args_check(args, "plan"));
    if (args->zero_stage == 3 && snug_setup_answers(t->setup)) return SNUG_E_UNSUPPORTED; /* setup.c refuses it */
    RETURN_IF_ERROR(plan_pipelines(t, args, pipelines));
    const snug_status status = snug_run_plan_build(t->setup, args, pipelines, &plan);
    if (status == SNUG_OK) {
        snug_limits_account(t->limits, &plan);
        *bytes = plan.total;
    }
    snug_run_plan_free(&plan);
    return status;
}

/* The bytes of a rank; more than any limit if the stage does not support the run. */
static snug_status find_bytes(const struct trial *t, int stage, int ranks, int64_t *bytes) {
    struct snug_args *args;
    snug_clear_error(t->ctx);
    RETURN_IF_ERROR(snug_args_copy(t->ctx, t->setup->args, &args));
    free(args->gpus); /* the number of ranks is that of the trial */
    free(args->deepspeed);
    free(args->fsdp_config);
    args->gpus = args->deepspeed = args->fsdp_config = NULL;
    args->fit = false;
    args->num_processes = ranks;
    args->zero_stage = stage;
    const snug_status status = plan_ranks(t, args, bytes);
    snug_args_free(args);
    if (status != SNUG_E_USAGE && status != SNUG_E_UNSUPPORTED) return status;
    *bytes = INT64_MAX;
    return SNUG_OK;
}

/* Doubles the number until it fits, and then halves the interval: a rank never needs more if there are more of them,
   apart from what a few KiB of sums take. */
static snug_status find_least(const struct trial *t, int stage, int64_t limit, int *least) {
    int below = 1, fits = 2;
    int64_t bytes;
    *least = 0;
    for (;; fits *= 2) {
        RETURN_IF_ERROR(find_bytes(t, stage, fits, &bytes));
        if (bytes <= limit) break;
        if (stage == 0 || fits == SNUG_FIT_RANKS_MOST) return SNUG_OK; /* stage 0 divides nothing */
        below = fits;
    }
    while (fits - below > 1) {
        const int middle = below + (fits - below) / 2;
        RETURN_IF_ERROR(find_bytes(t, stage, middle, &bytes));
        if (bytes <= limit)
            fits = middle;
        else
            below = middle;
    }
    *least = fits;
    return SNUG_OK;
}

snug_status snug_fit_ranks(const struct snug_setup *setup, const struct snug_limits *limits, int64_t limit,
                           int least[SNUG_ZERO_STAGES]) {
    struct trial t = {.setup = setup, .limits = limits};
    int64_t alone;
    if (snug_context_create(&t.ctx) != SNUG_OK)
        return snug_fail(setup->ctx, SNUG_E_MEMORY, "out of memory for plans of other numbers of ranks");
    snug_status status = find_bytes(&t, 0, 1, &alone);
    for (int stage = 0; stage < SNUG_ZERO_STAGES && status == SNUG_OK; stage++) {
        least[stage] = 1;
        if (alone > limit) status = find_least(&t, stage, limit, &least[stage]);
    }
    if (status != SNUG_OK)
        snug_fail(setup->ctx, status, "planning for other numbers of ranks: %s", snug_context_message(t.ctx));
    snug_context_destroy(t.ctx);
    malloc_trim(0); /* trials must not leave resident memory */
    return status;
}
