/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainings.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/adapter.h"

static const char *const names[SNUG_TRAINING_COUNT] = {
    [SNUG_TRAINING_FULL] = "full", [SNUG_TRAINING_LORA] = "LoRA", [SNUG_TRAINING_QLORA] = "QLoRA"};
#define ADAPTERS "--use_peft --lora_target_modules all-linear"

const char *snug_training_name(enum snug_training kind) { return names[kind]; }

enum snug_training snug_training_of(const struct snug_setup *setup) {
    const bool quantized = setup->config.quantized.type != SNUG_CODES_NONE;
    if (setup->lora) return quantized ? SNUG_TRAINING_QLORA : SNUG_TRAINING_LORA;
    return quantized || setup->args->freeze ? SNUG_TRAINING_COUNT : SNUG_TRAINING_FULL;
}

/* The arguments that make a training of the kind `to` out of the run's. */
static const char *flags_of(const struct snug_setup *setup, enum snug_training to) {
    const enum snug_training from = snug_training_of(setup);
    if (from == to || to == SNUG_TRAINING_FULL) return "";
    if (from != SNUG_TRAINING_FULL) return to == SNUG_TRAINING_QLORA ? "--load_in_4bit" : "";
    return to == SNUG_TRAINING_QLORA ? ADAPTERS " --load_in_4bit" : ADAPTERS;
}

/* The arguments of a training: those that make it, and those of methods. */
static void set_flags(const struct snug_setup *setup, enum snug_training kind, const char *methods,
                      struct snug_priced *out) {
    const char *own = flags_of(setup, kind);
    snprintf(out->flags, sizeof out->flags, "%s%s%s", own, *own && *methods ? " " : "", methods);
}

/* Of a run without adapters: those of all linears. Freed with snug_adapter_free(). */
static snug_status describe_adapters(struct snug_setup *setup, struct snug_adapter **out) {
    const struct snug_folder none = {0};
    const struct snug_adapter_source source = {
        .args = setup->args, .config = &setup->config, .model = &none, .folder = &none, .trains = true, .plans = true};
    RETURN_IF_ERROR(snug_adapter_open(&source, out));
    setup->config.adapter = *out;
    return SNUG_OK;
}

static snug_status build(const struct snug_setup *run, struct snug_args *args, const struct snug_run_plan *asked,
                         enum snug_training kind, struct snug_run_plan *out) {
    struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT] = {0};
    struct snug_setup setup = *run;
    struct snug_adapter *adapter = NULL;
    setup.args = args;
    setup.config.quantized.type = SNUG_CODES_NONE; /* codes cannot be trained */
    for (int i = 0; i < asked->count; i++) pipelines[asked->programs[i].role] = asked->programs[i].pipeline;
    if (kind == SNUG_TRAINING_FULL) {
        setup.config.adapter = NULL;
        setup.config.own_decoder &= !setup.config.copied_decoder;
        setup.config.copied_decoder = false;
    }
    if (kind == SNUG_TRAINING_QLORA)
        setup.config.quantized = run->config.quantized.type ? run->config.quantized : snug_args_quantized(args);
    snug_status status = SNUG_OK;
    if (kind != SNUG_TRAINING_FULL && !run->lora) status = describe_adapters(&setup, &adapter);
    if (status == SNUG_OK) status = snug_run_plan_build(&setup, args, pipelines, out);
    snug_adapter_free(adapter);
    return status;
}

/* The table is not frozen where all is trained. */
static void keep_embeddings(struct snug_args *args) {
    static const char word[] = "embeddings";
    char *at = args->offload ? strstr(args->offload, word) : NULL, *rest = at;
    if (!at) return;
    rest += strlen(word);
    if (*rest)
        memmove(at, rest + 1, strlen(rest));
    else
        at[at == args->offload ? 0 : -1] = '\0';
    if (*args->offload) return;
    free(args->offload);
    args->offload = NULL;
}

snug_status snug_training_plan(snug_context *ctx, const struct snug_setup *setup, const struct snug_run_plan *asked,
                               enum snug_training kind, const char *flags, struct snug_run_plan *out) {
    struct snug_priced given = {0};
    struct snug_args *args;
    RETURN_IF_ERROR(snug_fit_args(ctx, setup, &args));
    set_flags(setup, kind, flags, &given);
    free(args->freeze);
    args->freeze = NULL;
    if (kind == SNUG_TRAINING_FULL) keep_embeddings(args);
    snug_status status = snug_fit_give(args, &given);
    if (status == SNUG_OK && *given.flags) status = snug_args_check(args, "plan");
    if (status == SNUG_OK) status = build(setup, args, asked, kind, out);
    out->offload_dir = asked->offload_dir; /* that of the copied arguments ends here */
    snug_args_free(args);
    return status;
}

struct pricing {
    const struct snug_setup *setup;
    const struct snug_limits *limits;
    const struct snug_run_plan *asked;
    const struct snug_rates *rates;
    snug_context *ctx; /* silent */
};

static snug_status price(const struct pricing *p, enum snug_training kind, const char *flags, struct snug_priced *out) {
    struct snug_run_plan plan = {0};
    *out = (struct snug_priced){0};
    snug_clear_error(p->ctx);
    snug_status status = snug_training_plan(p->ctx, p->setup, p->asked, kind, flags, &plan);
    if (status == SNUG_OK) {
        snug_limits_account(p->limits, &plan);
        snprintf(out->name, sizeof out->name, "%s", names[kind]);
        set_flags(p->setup, kind, flags, out);
        status = snug_fit_measure(p->limits, p->rates, &plan, out);
    }
    snug_run_plan_free(&plan);
    return status == SNUG_E_USAGE || status == SNUG_E_UNSUPPORTED ? SNUG_OK : status;
}

static snug_status price_all(const struct pricing *p, int64_t limit, struct snug_priced *out) {
    const struct snug_args *args = p->setup->args;
    const bool pinned = snug_args_is_set(args, "recompute") || snug_args_is_set(args, "gradient_checkpointing");
    for (int kind = 0; kind < SNUG_TRAINING_COUNT; kind++) {
        struct snug_priced recomputing;
        RETURN_IF_ERROR(price(p, (enum snug_training)kind, "", &out[kind]));
        if (pinned || !out[kind].total || out[kind].total + SNUG_FIT_MARGIN <= limit) continue;
        RETURN_IF_ERROR(price(p, (enum snug_training)kind, "--recompute layer", &recomputing));
        if (recomputing.total + SNUG_FIT_MARGIN <= limit) out[kind] = recomputing;
    }
    return SNUG_OK;
}

snug_status snug_trainings_price(const struct snug_setup *setup, const struct snug_limits *limits,
                                 const struct snug_run_plan *asked, const struct snug_rates *rates, int64_t limit,
                                 struct snug_priced *out) {
    struct pricing p = {.setup = setup, .limits = limits, .asked = asked, .rates = rates};
    if (snug_context_create(&p.ctx) != SNUG_OK)
        return snug_fail(setup->ctx, SNUG_E_MEMORY, "out of memory for plans of other trainings");
    snug_status status = price_all(&p, limit, out);
    if (status != SNUG_OK) status = snug_fail(setup->ctx, status, "other trainings: %s", snug_context_message(p.ctx));
    snug_context_destroy(p.ctx);
    malloc_trim(0);
    return status;
}
