/* SPDX-License-Identifier: Apache-2.0 */
#include "train/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/quantization.h"
#include "train/group.h"
#include "train/memory.h"
#include "train/threads.h"
#include "train/trainings.h"

/* ---- plan ----------------------------------------------------------------------------------------------------- */

static snug_status plan_pipelines(const struct snug_setup *setup,
                                  struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT]) {
    if (setup->trains)
        RETURN_IF_ERROR(
            snug_data_pipeline_plan(setup, setup->args, SNUG_ROLE_TRAINING, &pipelines[SNUG_ROLE_TRAINING]));
    if (snug_setup_generates(setup) || snug_setup_answers(setup))
        RETURN_IF_ERROR(
            snug_data_pipeline_plan(setup, setup->args, SNUG_ROLE_GENERATION, &pipelines[SNUG_ROLE_GENERATION]));
    if (!setup->evaluates) return SNUG_OK;
    return snug_data_pipeline_plan(setup, setup->args, SNUG_ROLE_EVALUATION, &pipelines[SNUG_ROLE_EVALUATION]);
}

/* What the plan of a training assumes if it is not the run's actual order. */
static void log_any_order(const struct snug_setup *setup, const struct snug_data_pipeline *pipeline) {
    const struct snug_loader_limits *limits = &pipeline->limits;
    char first[80] = "";
    if (!limits->any_order) return;
    if (limits->first_epoch_tokens)
        snprintf(first, sizeof first, "; the largest batch of the first epoch has %lld tokens",
                 (long long)limits->first_epoch_tokens);
    snug_log(
        setup->ctx, SNUG_LOG_INFO,
        "%s: the order of %lld epochs is too long to scan, so the plan assumes the largest batch of any order: the "
        "%lld longest rows, %lld tokens%s",
        setup->args->train_file, (long long)pipeline->epochs, (long long)limits->sequences, (long long)limits->tokens,
        first);
}

static snug_status open_backend(struct snug_job *job) {
    struct snug_program *programs[SNUG_ROLE_COUNT];
    for (int i = 0; i < job->plan.count; i++) programs[i] = &job->plan.programs[i].program;
    return snug_runner_open(job->ctx, job->setup.backend, job->setup.threads, programs, job->plan.count,
                            &job->plan.layout, &job->runner);
}

/* Replaces the plan by that of the current arguments; the backend is closed. */
static snug_status build_again(struct snug_job *job) {
    struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT] = {0};
    snug_runner_close(&job->runner);
    snug_run_plan_free(&job->plan);
    RETURN_IF_ERROR(plan_pipelines(&job->setup, pipelines));
    RETURN_IF_ERROR(snug_run_plan_build(&job->setup, job->setup.args, pipelines, &job->plan));
    snug_limits_account(&job->limits, &job->plan);
    return SNUG_OK;
}

static snug_status plan_again(struct snug_job *job) {
    RETURN_IF_ERROR(build_again(job));
    return open_backend(job);
}

/* ---- the search for the budget -------------------------------------------------------------------------------- */

/* Adapters need the weights of a model; a plan is made without them. */
static snug_status price_trainings(struct snug_job *job, const struct snug_rates *rates, int64_t limit) {
    struct snug_fit *fit = job->fit;
    const bool possible = job->setup.args->model_name_or_path || job->setup.command == SNUG_COMMAND_PLAN;
    fit->training = possible ? snug_training_of(&job->setup) : SNUG_TRAINING_COUNT;
    if (fit->training == SNUG_TRAINING_COUNT) return SNUG_OK;
    return snug_trainings_price(&job->setup, &job->limits, &job->plan, rates, limit, fit->trainings);
}

static snug_status search_fit(struct snug_job *job, int64_t limit) {
    const struct snug_setup *setup = &job->setup;
    struct snug_rates rates = {0};
    free(job->fit);
    RETURN_IF_ERROR(snug_alloc(job->ctx, 1, sizeof *job->fit, (void **)&job->fit));
    if (job->plan.total > limit) {
        RETURN_IF_ERROR(snug_device_rates(&job->limits.device, &rates));
        snug_device_set_link(&job->limits.device, snug_args_ranks(setup->args), &rates);
        if (!rates.count) { /* no search, no advice by one */
            free(job->fit);
            job->fit = NULL;
            return setup->args->fit ? snug_fail(job->ctx, SNUG_E_MEMORY,
                                                "--fit needs the seconds of a step, and %s has no "
                                                "memory left to measure them: free some, or name "
                                                "a file of its rates by SNUG_RATES",
                                                snug_device_gpu(&job->limits.device))
                                    : SNUG_OK;
        }
    }
    snug_status status = snug_fit_search(setup, &job->limits, &job->plan, &rates, limit, job->fit);
    job->fit->training = SNUG_TRAINING_COUNT;
    if (status == SNUG_OK && job->plan.total > limit) status = price_trainings(job, &rates, limit);
    snug_rates_free(&rates);
    return status;
}

/* Several ranks may have different limits and may store different shards: the least that any of them has left is the
   limit of each, and *over if any of them has too little. */
static snug_status share_limit(struct snug_job *job, int64_t *limit, bool *over) {
    const struct snug_process_group *group = job->setup.args->group;
    const int ranks = snug_group_size(group);
    int64_t *left, least;
    if (!group) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(job->ctx, (size_t)ranks, sizeof *left, (void **)&left));
    left[group->ranks.rank] = *limit - job->plan.total;
    snug_group_at(group, -1, "searching for methods that fit");
    const snug_status status = snug_group_all_gather(job->ctx, group, left, sizeof *left);
    least = left[0];
    for (int rank = 1; rank < ranks; rank++) least = left[rank] < least ? left[rank] : least;
    free(left);
    *limit = job->plan.total + least;
    *over |= least < 0;
    return status;
}

/* Rank 0 searches for a mix that fits all. */
static snug_status search_for_all(struct snug_job *job, int64_t limit, bool *over) {
    const struct snug_process_group *group = job->setup.args->group;
    RETURN_IF_ERROR(share_limit(job, &limit, over));
    if (group->ranks.rank == 0) {
        RETURN_IF_ERROR(search_fit(job, limit));
    } else {
        free(job->fit);
        RETURN_IF_ERROR(snug_alloc(job->ctx, 1, sizeof *job->fit, (void **)&job->fit));
    }
    return snug_group_broadcast(job->ctx, group, job->fit, sizeof *job->fit);
}

/* Where no mix fits: a larger budget, if the machine has it. */
static snug_status advise_more(const struct snug_job *job, const struct snug_limit *limit, struct snug_advice *advice) {
    const int64_t least = job->fit->chosen.total + SNUG_FIT_MARGIN, mib = (least + (1 << 20) - 1) >> 20;
    const int64_t memory = snug_limits_memory(&job->limits);
    char *sentence, needs[96] = "--fit runs it where that much is free, or within --memory_budget";
    RETURN_IF_ERROR(snug_fit_sentence(job->ctx, job->fit, &sentence));
    const bool enough = limit->budgeted && (memory < 0 || least <= memory);
    if (enough) snprintf(advice->add, sizeof advice->add, "--fit --memory_budget %" PRId64 "MiB", mib);
    if (enough) snprintf(needs, sizeof needs, "--fit needs --memory_budget %" PRId64 "MiB", mib);
    const snug_status status = snug_format(job->ctx, &advice->text, "%s; %s", sentence, needs);
    free(sentence);
    return status;
}

/* ---- the sizes of a generation --------------------------------------------------------------------------------- */

struct sizes {
    int64_t groups, beams;
};

static snug_status plan_sizes(struct snug_job *job, struct sizes sizes) {
    snug_generation_resize(&job->setup.generation, &job->setup.config, job->setup.backend, sizes.groups, sizes.beams);
    return build_again(job);
}

/* Whether the run fits with these sizes; methods: of a training also with methods that save memory. */
static snug_status fits_with(struct snug_job *job, int64_t limit, struct sizes sizes, bool methods, bool *fits) {
    RETURN_IF_ERROR(plan_sizes(job, sizes));
    *fits = job->plan.total <= limit;
    if (*fits || !methods || !job->setup.trains) return SNUG_OK;
    RETURN_IF_ERROR(search_fit(job, limit));
    *fits = job->fit->fits;
    return SNUG_OK;
}

/* Makes *size, one of the sizes, the most with which the run fits, of those from `least` on that are smaller; *fits: it
   does with the least. */
static snug_status find_most(struct snug_job *job, int64_t limit, struct sizes *sizes, int64_t *size, int64_t least,
                             bool methods, bool *fits) {
    int64_t most = *size - 1;
    *size = least;
    RETURN_IF_ERROR(fits_with(job, limit, *sizes, methods, fits));
    while (*fits && least < most) {
        bool more;
        *size = most - (most - least) / 2;
        RETURN_IF_ERROR(fits_with(job, limit, *sizes, methods, &more));
        if (more)
            least = *size;
        else
            most = *size - 1;
    }
    *size = least;
    return SNUG_OK;
}

/* As many prompts at a time as fit, on which an answer does not depend. Where none fits, of a training methods that
   save memory, with the asked number of prompts or with one; then as many beams as fit, with which answers may be
   others. *found are the asked sizes if nothing fits, and if the number of prompts is given and fewer would fit. */
static snug_status find_sizes(struct snug_job *job, int64_t limit, struct sizes *found) {
    const struct snug_generation_setup *g = &job->setup.generation;
    const struct sizes asked = {g->asked_groups, g->asked_beams};
    const bool given = snug_args_is_set(job->setup.args, "per_device_eval_batch_size");
    struct sizes sizes = asked;
    bool fits;
    *found = asked;
    RETURN_IF_ERROR(find_most(job, limit, &sizes, &sizes.groups, 1, false, &fits));
    if (fits && !given) *found = sizes;
    if (fits) return SNUG_OK;
    if (given) sizes.groups = asked.groups;
    if (job->setup.trains) {
        RETURN_IF_ERROR(fits_with(job, limit, asked, true, &fits));
        if (fits) return SNUG_OK;
        RETURN_IF_ERROR(fits_with(job, limit, sizes, true, &fits));
    }
    if (!fits && asked.beams > 1)
        RETURN_IF_ERROR(find_most(job, limit, &sizes, &sizes.beams, g->how.returned, true, &fits));
    if (fits) *found = sizes;
    return SNUG_OK;
}

/* Rank 0 finds sizes for all. */
static snug_status fit_generation(struct snug_job *job, int64_t limit, bool *over) {
    const struct snug_process_group *group = job->setup.args->group;
    const struct snug_generation_setup *g = &job->setup.generation;
    struct sizes found;
    RETURN_IF_ERROR(share_limit(job, &limit, over));
    if (!*over) return SNUG_OK;
    if (snug_group_rank(group) == 0) RETURN_IF_ERROR(find_sizes(job, limit, &found));
    if (group) RETURN_IF_ERROR(snug_group_broadcast(job->ctx, group, &found, sizeof found));
    if (found.groups < g->asked_groups)
        snug_log(job->ctx, SNUG_LOG_INFO, "--fit: %lld prompts at a time instead of %lld", (long long)found.groups,
                 (long long)g->asked_groups);
    if (found.beams < g->asked_beams) {
        struct snug_priced given;
        snug_log(job->ctx, SNUG_LOG_WARNING,
                 "--fit: %lld beams instead of %lld: there is no memory for more, even for one prompt at a time; "
                 "answers may differ from those of %lld beams",
                 (long long)found.beams, (long long)g->asked_beams, (long long)g->asked_beams);
        snprintf(given.flags, sizeof given.flags, "--num_beams %lld", (long long)found.beams);
        RETURN_IF_ERROR(snug_fit_give(job->setup.args, &given));
    }
    snug_generation_resize(&job->setup.generation, &job->setup.config, job->setup.backend, found.groups, found.beams);
    return plan_again(job);
}

/* Pages of a generation's cache for which there is memory; at most 0: for none. */
static int64_t pages_left(const struct snug_job *job, const struct snug_limit *limit, int64_t *page) {
    const struct snug_generation_setup *g = &job->setup.generation;
    *page = job->plan.bytes[SNUG_MEMORY_FUNCTION] / g->pages;
    return g->pages - (job->plan.total - limit->bytes + *page - 1) / *page;
}

/* What of a generation would fit: fewer prompts at a time, or fewer tokens. */
static snug_status advise_generation(const struct snug_job *job, const struct snug_limit *limit,
                                     struct snug_advice *advice) {
    const struct snug_generation_setup *g = &job->setup.generation;
    int64_t page;
    const int64_t left = pages_left(job, limit, &page);
    const int64_t groups = left > 0 ? left * g->groups / g->pages : 0;
    const int64_t tokens = left > 0 ? left / g->how.search.beams * SNUG_CACHE_PAGE : 0;
    if (groups > 0) snprintf(advice->add, sizeof advice->add, "--per_device_eval_batch_size %lld", (long long)groups);
    if (groups > 0)
        return snug_format(
            job->ctx, &advice->text,
            "the cache of keys and values takes %lld bytes for each of %lld prompts at a time, and there "
            "is memory for %lld",
            (long long)(page * g->pages / g->groups), (long long)g->groups, (long long)groups);
    int64_t beams = left > 0 ? g->how.search.beams - 1 : 0; /* that one prompt may have */
    while (beams > 0 && snug_generation_pages(g, 1, beams) > left) beams--;
    if (beams > 0) snprintf(advice->add, sizeof advice->add, "--num_beams %lld", (long long)beams);
    if (beams > 0)
        return snug_format(
            job->ctx, &advice->text,
            "one prompt at a time, with its answer, fits with %lld beams instead of %lld, which may give "
            "another answer",
            (long long)beams, (long long)g->how.search.beams);
    if (!tokens)
        return snug_format(job->ctx, &advice->text, "one prompt at a time, with its answer, does not fit either");
    return snug_format(job->ctx, &advice->text,
                       "one prompt at a time, with its answer and --num_beams %lld, fits up to about %lld tokens",
                       (long long)g->how.search.beams, (long long)tokens);
}

static snug_status advise(const struct snug_job *job, const struct snug_limit *limit, struct snug_advice *advice) {
    if (snug_setup_generates(&job->setup)) return advise_generation(job, limit, advice);
    const bool trains = job->setup.trains;
    if (job->fit && !job->fit->fits) return advise_more(job, limit, advice);
    if (trains && !job->setup.args->fit) snprintf(advice->add, sizeof advice->add, "--fit");
    if (job->fit)
        return snug_format(job->ctx, &advice->text,
                           "--fit would add %s, which takes %.1f MiB (--memory_budget sets another limit)",
                           job->fit->chosen.flags, (double)job->fit->chosen.total / 0x1p20);
    if (!trains && job->setup.args->per_device_eval_batch_size > 1)
        snprintf(advice->add, sizeof advice->add, "--per_device_eval_batch_size 1");
    return snug_format(job->ctx, &advice->text, "a smaller --per_device_%s needs less%s",
                       !trains                                        ? "eval_batch_size"
                       : job->setup.args->per_device_train_tokens > 0 ? "train_tokens"
                                                                      : "train_batch_size",
                       trains ? ", and --fit searches for methods that do (--memory_budget sets another limit)" : "");
}

/* Applies the mix to the run's arguments. */
static snug_status apply_fit(struct snug_job *job) {
    char *sentence;
    RETURN_IF_ERROR(snug_fit_sentence(job->ctx, job->fit, &sentence));
    snug_log(job->ctx, SNUG_LOG_INFO, "--fit: %s", sentence);
    free(sentence);
    if (!*job->fit->chosen.flags) return SNUG_OK;
    RETURN_IF_ERROR(snug_fit_give(job->setup.args, &job->fit->chosen));
    job->fit->applied = true;
    return plan_again(job);
}

static snug_status check_limits(struct snug_job *job) {
    struct snug_limit limit;
    bool over;
    struct snug_advice advice = {0};
    const bool fit = job->setup.args->fit;
    RETURN_IF_ERROR(snug_limits_find(&job->limits, &job->setup, &job->plan, &limit, &over));
    const bool together = job->setup.args->group != NULL;
    const bool answers = snug_setup_generates(&job->setup) || snug_setup_answers(&job->setup);
    if (fit && answers) {
        RETURN_IF_ERROR(fit_generation(job, limit.bytes, &over));
        over = job->plan.total > limit.bytes;
    } else if (fit && job->setup.command == SNUG_COMMAND_EVAL) {
        snug_log(job->ctx, SNUG_LOG_INFO, "--fit has no effect without --predict_with_generate");
    }
    if (job->setup.trains && !together && (over || fit)) RETURN_IF_ERROR(search_fit(job, limit.bytes));
    if (job->setup.trains && together && fit) RETURN_IF_ERROR(search_for_all(job, limit.bytes, &over));
    if (job->fit && job->fit->fits && fit) {
        RETURN_IF_ERROR(apply_fit(job));
        over = job->plan.total > limit.bytes;
    }
    if (!over && job->setup.command == SNUG_COMMAND_PLAN) return SNUG_OK;
    if (!over) return snug_limits_check_backing(&job->limits, &job->setup, &job->plan);
    RETURN_IF_ERROR(advise(job, &limit, &advice));
    snug_status status = SNUG_E_DOES_NOT_FIT;
    if (job->plan.total <= limit.bytes)
        snug_fail(job->ctx, status, "another rank lacks memory: %s%s%s", advice.text, *advice.add ? "; add " : "",
                  advice.add);
    else
        status = snug_limits_refuse(&job->limits, &job->plan, &limit, &advice);
    free(advice.text);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

/* The ranks of a host share the cache of tokens: the first one tokenizes, and the others read what it wrote. */
static snug_status open_setup(struct snug_job *job, struct snug_args *args, enum snug_command command) {
    const struct snug_device *device = &job->limits.device;
    const bool waits = args->group && args->group->ranks.local_rank > 0;
    snug_group_at(args->group, -1, "reading the data");
    if (waits) RETURN_IF_ERROR(snug_group_barrier(job->ctx, args->group));
    RETURN_IF_ERROR(snug_setup_open(args, command, device->backend, device->threads, &job->setup));
    return waits ? SNUG_OK : snug_group_barrier(job->ctx, args->group);
}

/* Opens everything up to the backend, and measures its resident memory. */
static snug_status open_and_plan(struct snug_job *job, struct snug_args *args, enum snug_command command) {
    struct snug_limits *limits = &job->limits;
    struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT] = {0};
    const int64_t before = snug_resident_bytes();
    RETURN_IF_ERROR(open_setup(job, args, command));
    RETURN_IF_ERROR(plan_pipelines(&job->setup, pipelines));
    log_any_order(&job->setup, &pipelines[SNUG_ROLE_TRAINING]);
    RETURN_IF_ERROR(snug_run_plan_build(&job->setup, args, pipelines, &job->plan));
    const int64_t after = snug_resident_bytes();
    RETURN_IF_ERROR(open_backend(job));
    limits->host_bytes = snug_round_up_mib(after - before);
    limits->own_bytes = before + snug_resident_bytes() - after;
    const int64_t available = limits->device.backend->plans_only ? -1 : snug_available_bytes();
    limits->backing_limit = available < 0 ? INT64_MAX : available;
    if (snug_device_is_gpu(&limits->device)) RETURN_IF_ERROR(snug_device_measure(&limits->device, &job->plan));
    snug_limits_account(limits, &job->plan);
    return SNUG_OK;
}

snug_status snug_job_open(struct snug_args *args, enum snug_command command, struct snug_job *job) {
    static const char *const names[] = {"train", "eval", "predict", "embed", "plan", "model", "generate", "generate"};
    *job = (struct snug_job){.ctx = args->ctx};
    snug_clear_error(job->ctx);
    RETURN_IF_ERROR(snug_args_check(args, names[command]));
    RETURN_IF_ERROR(
        snug_group_alone(args, command == SNUG_COMMAND_PLAN ? "snug plan" : "a session, a bench or a check"));
    const int threads = snug_args_threads(args);
    RETURN_IF_ERROR(snug_threads_check(job->ctx, threads));
    const bool elsewhere = args->gpu && (command == SNUG_COMMAND_PLAN || args->plan_only);
    RETURN_IF_ERROR((elsewhere ? snug_device_plan : snug_device_choose)(args, threads, &job->limits.device));
    RETURN_IF_ERROR(snug_device_check(args, job->limits.device.backend));
    RETURN_IF_ERROR(snug_device_connect(args, &job->limits.device));
    RETURN_IF_ERROR(open_and_plan(job, args, command));
    RETURN_IF_ERROR(check_limits(job));
    struct snug_config *config = &job->setup.config;
    if (config->quantized.type) return snug_config_record_quantized(job->ctx, config, &job->plan.programs[0].program);
    return snug_config_set_dtype(job->ctx, config, job->plan.weights);
}

void snug_job_close(struct snug_job *job) {
    snug_runner_close(&job->runner);
    snug_run_plan_free(&job->plan);
    snug_device_close(&job->limits.device);
    snug_setup_close(&job->setup);
    free(job->fit);
    *job = (struct snug_job){0};
}
