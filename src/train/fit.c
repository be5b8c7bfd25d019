/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search. It visits the combinations of micro-batches, approximations and other methods in the order of their
 * estimated seconds, and in each combination the recomputation levels of the layers, in the same order. A mix is built
 * only if it may be faster than the best so far, and if every mix that saves more and was tried did fit; it is placed
 * only if its tensors would fit without a gap between them.
 */
#include "train/fit.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the methods ---------------------------------------------------------------------------------------------- */

/* A method's settings are ordered by savings; the last one saves most. */
enum { METHODS_MAX = 12, SETTINGS_MAX = 24, RESIDENT_PARTS = 32, HOST_PARTS = 8 };

struct method {
    const char *name;
    const char *pins[3];  /* arguments that exclude the method if the user has set them */
    bool approximate;     /* it is approximate: its results are not exactly those of the requested plan */
    bool independent;     /* its settings have no fixed order of savings when combined with other methods */
    const char *settings; /* arguments, separated by '|' */
};

/* The share of a mix's seconds below which it is changed to updates on the host: they and the copies need the bandwidth
   of the same host memory, and the estimate has each as if it were alone. */
#define HOST_GAIN 0.9
#define MUCH_FASTER 1.25 /* the factor from which on a mix that rounds is mentioned beside an exact one */

enum { SPLIT, STAGE, RECOMPUTE, IN_BACKWARD, OFFLOAD, STATES, WEIGHTS };
static const struct method methods[] = {
    /* Divisors of the batch: split_settings(). Users set the accumulation to fix the micro-batch. */
    [SPLIT] = {.name = "micro-batches", .pins = {"gradient_accumulation_steps", "mini_batch_size"}},
    [STAGE] = {.name = "ZeRO stage",
               .pins = {"zero_stage", "deepspeed"},
               .settings = "--zero_stage 1|--zero_stage 2|--zero_stage 3"},
    [RECOMPUTE] = {.name = "recomputation",
                   .pins = {"recompute", "gradient_checkpointing"},
                   .settings = "--recompute ffn|--recompute attention|--recompute layer"},
    [IN_BACKWARD] = {.name = "update in backward",
                     .pins = {"update_in_backward"},
                     .independent = true,
                     .settings = "--update_in_backward"},
    [OFFLOAD] = {.name = "offload",
                 .pins = {"offload"},
                 .independent = true,
                 .settings = "--offload embeddings|--offload embeddings,activations|--offload activations|--offload "
                             "optimizer|--offload weights|"
                             "--offload weights,activations|"
                             "--offload optimizer,master_weights|"
                             "--offload optimizer,gradients|--offload optimizer,gradients,master_weights|"
                             "--offload optimizer,gradients,weights|"
                             "--offload optimizer,gradients,weights,activations"},
    [STATES] = {.name = "8-bit states", .pins = {"optim"}, .approximate = true, .settings = "--optim adamw_8bit"},
    [WEIGHTS] = {.name = "bf16 weights", .pins = {"dtype"}, .approximate = true, .settings = "--dtype bfloat16"},
};
enum { METHODS = sizeof methods / sizeof *methods };

struct setting {
    char flags[160];
    double seconds; /* seconds that it adds to a step, alone; RECOMPUTE: in one layer */
};

/* The number of layers by recomputation level. The first layers have the strongest level: backward reaches them last,
 * when the activations of the others are freed. The other layers have the requested level. */
struct layers {
    int count[SNUG_RECOMPUTE_COUNT];
};
static const enum snug_recompute strongest_first[] = {SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_ATTENTION,
                                                      SNUG_RECOMPUTE_FFN, SNUG_RECOMPUTE_ELEMENTWISE};
static const char *const level_names[SNUG_RECOMPUTE_COUNT] = {"none", "elementwise", "ffn", "attention", "layer"};

struct mix {
    uint8_t choice[METHODS]; /* settings; RECOMPUTE's stays 0 */
    uint8_t resident;        /* of what OFFLOAD moves, so many parts of RESIDENT_PARTS stay */
    uint8_t on_host;         /* of its weights the host updates so many parts of HOST_PARTS */
    struct layers layers;
    double seconds; /* estimated from those of its methods alone */
};

struct search {
    const struct snug_setup *setup;
    const struct snug_limits *limits;
    const struct snug_rates *rates;
    snug_context *ctx; /* of trials: silent */
    int64_t limit;
    bool places_all; /* also what cannot fit: if not, of that the least bytes are known */
    int layer_count;
    struct setting settings[METHODS][SETTINGS_MAX]; /* [0]: as requested */
    int counts[METHODS];
    struct snug_data_pipeline pipelines[SETTINGS_MAX]; /* of training, by SPLIT's setting */
    struct snug_data_pipeline others[SNUG_ROLE_COUNT]; /* of the other programs */
    struct snug_priced asked;
    bool host_updates[2]; /* the host may update weights, as requested and with 8-bit states; its rates are known */
    struct mix *dead;     /* combinations that do not fit with any recomputation level */
    size_t dead_count, dead_capacity;
    bool *split_tried; /* by the choices of the other methods: whether it fits with the smallest micro-batches */
    int64_t planned, mixes;
    int64_t least; /* bytes of the last trial without gaps between its tensors */
    struct snug_priced smallest;
    struct mix smallest_mix;
    int64_t smallest_bytes; /* its least bytes, or, if places_all, its total */
};

static bool is_pinned(const struct snug_args *args, const struct method *method) {
    for (size_t i = 0; i < sizeof method->pins / sizeof *method->pins; i++)
        if (method->pins[i] && snug_args_is_set(args, method->pins[i])) return true;
    return false;
}

static void add_setting(struct search *s, int method, const char *flags) {
    struct setting *setting = &s->settings[method][s->counts[method]++];
    snprintf(setting->flags, sizeof setting->flags, "%s", flags);
}

/* The micro-batches that divide the requested one; the step does not change. */
static void split_settings(struct search *s) {
    const struct snug_loader_options *options = &s->pipelines[0].options;
    const int64_t batch = options->batch_size, accumulation = options->accumulation;
    /* Otherwise other rows would be dropped at an epoch's end. */
    if (s->setup->args->per_device_train_tokens) return; /* other rows would be packed together */
    if (options->drop_last && s->setup->train.dataset && s->setup->train.rows % (batch * accumulation)) return;
    for (int64_t parts = 2; parts <= batch; parts++) {
        char flags[128];
        if (batch % parts) continue;
        if (s->counts[SPLIT] == SETTINGS_MAX) s->counts[SPLIT]--; /* the last one has one row per micro-batch */
        snprintf(flags, sizeof flags, "--per_device_train_batch_size %lld --gradient_accumulation_steps %lld",
                 (long long)(batch / parts), (long long)(accumulation * parts));
        add_setting(s, SPLIT, flags);
    }
}

static void list_settings(struct search *s) {
    for (int m = 0; m < METHODS; m++) {
        add_setting(s, m, "");
        if (is_pinned(s->setup->args, &methods[m])) continue;
        if (m == STAGE && snug_args_ranks(s->setup->args) == 1) continue; /* one rank divides nothing */
        if (m == SPLIT) split_settings(s);
        for (const char *at = methods[m].settings; at && *at;) {
            char flags[160];
            const size_t length = strcspn(at, "|");
            snprintf(flags, sizeof flags, "%.*s", (int)length, at);
            add_setting(s, m, flags);
            at += length + (at[length] == '|');
        }
    }
}

/* ---- one mix -------------------------------------------------------------------------------------------------- */

static snug_status give(struct snug_args *args, const char *flags) {
    char copy[sizeof((struct snug_priced *)NULL)->flags];
    char *words[24] = {copy}, *rest = copy; /* a mix has 19 words at most */
    int count = 1;
    snprintf(copy, sizeof copy, "%s", flags);
    while ((words[count] = strsep(&rest, " "))) count += *words[count] != '\0';
    return snug_args_read_words(args, count, words);
}

snug_status snug_fit_give(struct snug_args *args, const struct snug_priced *mix) { return give(args, mix->flags); }

static void add_flags(struct snug_priced *priced, const char *flags) {
    const size_t used = strlen(priced->flags);
    if (*flags) snprintf(priced->flags + used, sizeof priced->flags - used, "%s%s", used ? " " : "", flags);
}

/* --recompute layer*2,ffn*4; one level for all layers by its name alone. */
static void print_layers(char *flags, size_t size, const struct search *s, const struct layers *layers) {
    size_t used = 0;
    int rest = s->layer_count;
    *flags = '\0';
    for (size_t i = 0; i < sizeof strongest_first / sizeof *strongest_first; i++) {
        const enum snug_recompute level = strongest_first[i];
        const int count = level == SNUG_RECOMPUTE_ELEMENTWISE ? rest : layers->count[level];
        rest -= count;
        if (count == s->layer_count && level == SNUG_RECOMPUTE_ELEMENTWISE) return;
        if (!count) continue;
        used += (size_t)snprintf(flags + used, size - used, "%s%s", used ? "," : "--recompute ", level_names[level]);
        if (count < s->layer_count) used += (size_t)snprintf(flags + used, size - used, "*%d", count);
    }
}

static void describe(const struct search *s, const struct mix *mix, struct snug_priced *out) {
    char flags[160];
    *out = (struct snug_priced){0};
    for (int m = 0; m < METHODS; m++) {
        if (m != RECOMPUTE) {
            add_flags(out, s->settings[m][mix->choice[m]].flags);
            out->approximate |= mix->choice[m] && methods[m].approximate;
        } else {
            print_layers(flags, sizeof flags, s, &mix->layers);
            add_flags(out, flags);
        }
    }
    if (mix->resident) {
        snprintf(flags, sizeof flags, "--offload_ratio %g", 1 - (double)mix->resident / RESIDENT_PARTS);
        add_flags(out, flags);
    }
    if (mix->on_host) {
        snprintf(flags, sizeof flags, "--offload_update %g", (double)mix->on_host / HOST_PARTS);
        add_flags(out, flags);
    }
}

snug_status snug_fit_measure(const struct snug_limits *limits, const struct snug_rates *rates,
                             const struct snug_run_plan *plan, struct snug_priced *out) {
    memcpy(out->bytes, plan->bytes, sizeof out->bytes);
    out->total = plan->total;
    out->backing = snug_limits_backing(limits, plan);
    return snug_run_plan_step(plan, rates, &out->work);
}

/* A run's ranks are those of its group, which is not copied; a trial plans for the one that needs most. */
snug_status snug_fit_args(snug_context *ctx, const struct snug_setup *setup, struct snug_args **out) {
    const int ranks = snug_args_ranks(setup->args);
    RETURN_IF_ERROR(snug_args_copy(ctx, setup->args, out));
    free((*out)->gpus);
    (*out)->gpus = NULL;
    (*out)->num_processes = ranks > 1 ? ranks : 0;
    (*out)->fit = false;
    return SNUG_OK;
}

/* Most mixes do not fit, which their least bytes tell without a placement. */
static snug_status place_if_needed(struct search *s, const struct snug_args *args, struct snug_run_plan *plan) {
    snug_limits_account(s->limits, plan);
    s->least = plan->total;
    if (!s->places_all && plan->total + SNUG_FIT_MARGIN > s->limit) return SNUG_OK;
    RETURN_IF_ERROR(snug_run_plan_place(s->setup, args, plan));
    snug_limits_account(s->limits, plan);
    return SNUG_OK;
}

/* Plans the run with out's flags and fills in the result; SNUG_END if they conflict with other arguments. */
static snug_status plan_flags(struct search *s, const struct snug_data_pipeline *training, struct snug_priced *out) {
    struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT];
    struct snug_args *args;
    memcpy(pipelines, s->others, sizeof pipelines);
    pipelines[SNUG_ROLE_TRAINING] = *training;
    struct snug_run_plan trial;
    snug_clear_error(s->ctx);
    RETURN_IF_ERROR(snug_fit_args(s->ctx, s->setup, &args));
    snug_status status = give(args, out->flags);
    if (status == SNUG_OK) status = snug_args_check(args, "plan");
    if (status == SNUG_OK && args->zero_stage == 3 && snug_setup_answers(s->setup))
        status = SNUG_E_UNSUPPORTED; /* setup.c refuses it */
    if (status == SNUG_OK) {
        status = snug_run_plan_build_least(s->setup, args, pipelines, &trial);
        if (status == SNUG_OK) status = place_if_needed(s, args, &trial);
        if (status == SNUG_OK) status = snug_fit_measure(s->limits, s->rates, &trial, out);
        snug_run_plan_free(&trial);
        s->planned++;
    }
    snug_args_free(args);
    return status == SNUG_E_USAGE || status == SNUG_E_UNSUPPORTED ? SNUG_END : status;
}

static snug_status plan_mix(struct search *s, const struct mix *mix, struct snug_priced *out) {
    describe(s, mix, out);
    RETURN_IF_ERROR(plan_flags(s, &s->pipelines[mix->choice[SPLIT]], out));
    const int64_t bytes = s->places_all ? out->total : s->least;
    if (s->smallest_bytes == 0 || bytes < s->smallest_bytes) {
        s->smallest_bytes = bytes;
        s->smallest = *out;
        s->smallest_mix = *mix;
    }
    return SNUG_OK;
}

/* ---- preparing ------------------------------------------------------------------------------------------------ */

/* The data pipeline of a smaller micro-batch; SNUG_END if its steps would differ. */
static snug_status plan_split(struct search *s, int setting) {
    struct snug_data_pipeline *pipeline = &s->pipelines[setting];
    struct snug_args *args;
    RETURN_IF_ERROR(snug_fit_args(s->ctx, s->setup, &args));
    snug_status status = give(args, s->settings[SPLIT][setting].flags);
    if (status == SNUG_OK) status = snug_data_pipeline_plan(s->setup, args, SNUG_ROLE_TRAINING, pipeline);
    snug_args_free(args);
    if (status != SNUG_OK) return status;
    return pipeline->steps_per_epoch == s->pipelines[0].steps_per_epoch ? SNUG_OK : SNUG_END;
}

static void drop_setting(struct search *s, int method, int setting) {
    s->counts[method]--;
    for (int i = setting; i < s->counts[method]; i++) {
        s->settings[method][i] = s->settings[method][i + 1];
        if (method == SPLIT) s->pipelines[i] = s->pipelines[i + 1];
    }
}

/* Plans each setting alone: drops those that are unavailable here, and measures the seconds of the others. on_row may
 * be NULL. */
static snug_status price_settings(struct search *s, snug_status (*on_row)(void *user, const struct snug_priced *row),
                                  void *user) {
    for (int m = 0; m < METHODS; m++)
        for (int i = 1; i < s->counts[m]; i++) {
            struct snug_priced row = {.approximate = methods[m].approximate};
            snprintf(row.name, sizeof row.name, "%s", methods[m].name);
            add_flags(&row, s->settings[m][i].flags);
            snug_status status = m == SPLIT ? plan_split(s, i) : SNUG_OK;
            if (status == SNUG_OK) status = plan_flags(s, &s->pipelines[m == SPLIT ? i : 0], &row);
            if (status != SNUG_OK && status != SNUG_END) return status;
            if (status == SNUG_END) {
                drop_setting(s, m, i--);
                continue;
            }
            s->settings[m][i].seconds = row.work.seconds - s->asked.work.seconds;
            if (m == RECOMPUTE) s->settings[m][i].seconds /= s->layer_count;
            /* Only the largest and the smallest micro-batch are planned. */
            const bool shown = m != SPLIT || i == 1 || i == s->counts[m] - 1;
            if (on_row && shown) RETURN_IF_ERROR(on_row(user, &row));
        }
    return SNUG_OK;
}

/* Whether the host has rates of all updates of the requested plan that it could compute. */
static bool host_has_rates(const struct snug_run_plan *asked, const struct snug_rates *rates) {
    const struct snug_program *program = &snug_run_plan_find(asked, SNUG_ROLE_TRAINING)->program;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const bool update = snug_op_is(op, SNUG_OP_UPDATES) && snug_op_is(op, SNUG_OP_ELEMENTS);
        if (update && !snug_rates_have_host(rates, op->kind)) return false;
    }
    return true;
}

static void find_host_updates(struct search *s, const struct snug_run_plan *asked) {
    if (!s->setup->backend->updates_on_host || snug_args_is_set(s->setup->args, "offload_update")) return;
    s->host_updates[0] = host_has_rates(asked, s->rates);
    s->host_updates[1] = s->host_updates[0] && snug_rates_have_host(s->rates, SNUG_OP_ADAM_8BIT);
}

static snug_status begin(struct search *s, const struct snug_setup *setup, const struct snug_limits *limits,
                         const struct snug_run_plan *asked, const struct snug_rates *rates) {
    *s = (struct search){
        .setup = setup, .limits = limits, .rates = rates, .layer_count = (int)setup->config.num_hidden_layers};
    if (snug_context_create(&s->ctx) != SNUG_OK)
        return snug_fail(setup->ctx, SNUG_E_MEMORY, "out of memory for the search");
    s->pipelines[0] = snug_run_plan_find(asked, SNUG_ROLE_TRAINING)->pipeline;
    for (int i = 0; i < asked->count; i++) s->others[asked->programs[i].role] = asked->programs[i].pipeline;
    find_host_updates(s, asked);
    list_settings(s);
    const snug_status status = snug_fit_measure(s->limits, s->rates, asked, &s->asked);
    if (status != SNUG_OK) snug_context_destroy(s->ctx);
    return status;
}

/* Trials must not leave resident memory. */
static snug_status end(struct search *s, snug_status status) {
    if (status != SNUG_OK)
        snug_fail(s->setup->ctx, status, "searching for a mix that fits: %s", snug_context_message(s->ctx));
    free(s->dead);
    free(s->split_tried);
    snug_context_destroy(s->ctx);
    malloc_trim(0);
    return status;
}

/* ---- searching ------------------------------------------------------------------------------------------------ */

static enum snug_recompute level_at(const struct layers *layers, int layer) {
    for (size_t i = 0; i + 1 < sizeof strongest_first / sizeof *strongest_first; i++) {
        if (layer < layers->count[strongest_first[i]]) return strongest_first[i];
        layer -= layers->count[strongest_first[i]];
    }
    return SNUG_RECOMPUTE_ELEMENTWISE;
}

/* Whether every layer of a stores at least what it stores in b. */
static bool keeps_more(const struct search *s, const struct layers *a, const struct layers *b) {
    for (int i = 0; i < s->layer_count; i++) {
        const enum snug_recompute x = level_at(a, i), y = level_at(b, i);
        if (x != y && y != SNUG_RECOMPUTE_LAYER && x != SNUG_RECOMPUTE_ELEMENTWISE) return false;
        if (x == SNUG_RECOMPUTE_LAYER && y != x) return false;
    }
    return true;
}

static double seconds_of(const struct search *s, const struct layers *layers) {
    return layers->count[SNUG_RECOMPUTE_FFN] * s->settings[RECOMPUTE][1].seconds +
           layers->count[SNUG_RECOMPUTE_ATTENTION] * s->settings[RECOMPUTE][2].seconds +
           layers->count[SNUG_RECOMPUTE_LAYER] * s->settings[RECOMPUTE][3].seconds;
}

static int by_seconds(const void *a, const void *b) {
    const double x = ((const struct mix *)a)->seconds, y = ((const struct mix *)b)->seconds;
    return x < y ? -1 : x > y;
}

static snug_status push(struct search *s, struct mix **list, size_t *count, size_t *capacity, const struct mix *mix) {
    RETURN_IF_ERROR(snug_grow(s->ctx, (void **)list, capacity, *count + 1, sizeof **list));
    (*list)[(*count)++] = *mix;
    return SNUG_OK;
}

/* Combinations of two levels and the requested one, in steps of several layers if there are many, by seconds. */
static snug_status list_layers(struct search *s, struct mix **list, size_t *count) {
    static const enum snug_recompute pairs[][2] = {{SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_ATTENTION},
                                                   {SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_FFN},
                                                   {SNUG_RECOMPUTE_ATTENTION, SNUG_RECOMPUTE_FFN}};
    const int most = s->counts[RECOMPUTE] > 1 ? s->layer_count : 0, step = (s->layer_count + 7) / 8;
    size_t capacity = 0;
    *list = NULL;
    *count = 0;
    for (size_t pair = 0; pair < 3; pair++)
        for (int a = 0; a <= most; a += step)
            for (int b = 0; a + b <= most; b += step) {
                struct mix mix = {0};
                /* A single level belongs to one pair only, and the requested level to the first pair. */
                if ((a == 0 && b == 0 && pair > 0) || (b == 0 && a > 0 && pair == 1) || (a == 0 && b > 0 && pair == 2))
                    continue;
                mix.layers.count[pairs[pair][0]] = a;
                mix.layers.count[pairs[pair][1]] = b;
                mix.seconds = seconds_of(s, &mix.layers);
                RETURN_IF_ERROR(push(s, list, count, &capacity, &mix));
            }
    if (*count) qsort(*list, *count, sizeof **list, by_seconds);
    return SNUG_OK;
}

/* All combinations of the other methods with this number of approximate ones, by seconds. */
static snug_status list_combinations(struct search *s, int approximate, struct mix **list, size_t *count) {
    struct mix mix = {0};
    size_t capacity = 0;
    *list = NULL;
    *count = 0;
    for (int m = 0; m < METHODS;) {
        int rounds = 0;
        mix.seconds = s->asked.work.seconds;
        for (int k = 0; k < METHODS; k++) {
            rounds += mix.choice[k] && methods[k].approximate;
            mix.seconds += s->settings[k][mix.choice[k]].seconds;
        }
        if (rounds == approximate) RETURN_IF_ERROR(push(s, list, count, &capacity, &mix));
        for (m = 0; m < METHODS; m++) { /* the next combination */
            if (m == RECOMPUTE) continue;
            if (++mix.choice[m] < s->counts[m]) break;
            mix.choice[m] = 0;
        }
    }
    qsort(*list, *count, sizeof **list, by_seconds);
    return SNUG_OK;
}

/* Whether a mix that saves at least as much was too large. With an update in backward or offload, micro-batches may
 * save less than the whole batch, because gradients then live until the last one. */
static bool is_dead(const struct search *s, const struct mix *mix) {
    for (size_t i = 0; i < s->dead_count; i++) {
        int m = 0;
        if ((mix->choice[IN_BACKWARD] || mix->choice[OFFLOAD]) && !mix->choice[SPLIT] && s->dead[i].choice[SPLIT])
            continue;
        for (; m < METHODS; m++) {
            const uint8_t here = mix->choice[m], there = s->dead[i].choice[m];
            if (here != there && (methods[m].independent || here > there)) break;
        }
        if (m == METHODS) return true;
    }
    return false;
}

static bool fits(const struct search *s, const struct snug_priced *priced) {
    return priced->total + SNUG_FIT_MARGIN <= s->limit;
}

struct found {
    struct mix mix;
    struct snug_priced priced;
    bool any;
    double below; /* only mixes faster than this are considered; 0: no limit */
};

/* Whether host memory has room for what the mix offloads. */
static bool is_hosted(const struct search *s, const struct snug_priced *priced) {
    return priced->backing <= s->limits->backing_limit;
}

static bool is_found(const struct search *s, const struct found *best) {
    return best->any && is_hosted(s, &best->priced);
}

static bool is_slow(const struct search *s, const struct found *best, double seconds) {
    return (is_found(s, best) && seconds >= best->priced.work.seconds) || (best->below > 0 && seconds >= best->below);
}

/* Whether the mix is better, which is then the best: while host memory has room for none, if it needs less of it. */
static bool keep(const struct search *s, struct found *best, const struct mix *mix, const struct snug_priced *priced) {
    if (is_slow(s, best, priced->work.seconds)) return false;
    if (best->any && !is_hosted(s, priced) && priced->backing >= best->priced.backing) return false;
    best->any = true;
    best->mix = *mix;
    best->priced = *priced;
    return true;
}

/* Whether combination fits with any recomputation levels; tries those that may be the smallest. Where activations are
   large, all layers but the last are recomputed as a whole. Backward recomputes the last layer first, while the inputs
   of all other layers are live, so for the last layer the strongest level is not always the smallest. Where activations
   are small, recomputing a whole layer takes more than it saves, in all layers. */
static snug_status can_fit(struct search *s, const struct mix *combination, struct found *best, bool *can) {
    static const enum snug_recompute levels[][2] = {
        /* of all layers but the last, and of the last */
        {SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_ELEMENTWISE},   {SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_LAYER},
        {SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_ATTENTION},     {SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_FFN},
        {SNUG_RECOMPUTE_ATTENTION, SNUG_RECOMPUTE_ATTENTION}, {SNUG_RECOMPUTE_FFN, SNUG_RECOMPUTE_FFN},
    };
    const size_t tries = s->counts[RECOMPUTE] > 1 ? sizeof levels / sizeof *levels : 1;
    *can = false;
    for (size_t i = 0; i < tries; i++) {
        struct mix mix = *combination;
        struct snug_priced priced;
        if (tries > 1) {
            mix.layers.count[levels[i][0]] = s->layer_count - 1;
            if (levels[i][1] != SNUG_RECOMPUTE_ELEMENTWISE) mix.layers.count[levels[i][1]]++;
        }
        mix.seconds += seconds_of(s, &mix.layers);
        const snug_status status = plan_mix(s, &mix, &priced);
        if (status == SNUG_END) break;
        RETURN_IF_ERROR(status);
        if (!fits(s, &priced)) continue;
        keep(s, best, &mix, &priced);
        *can = true;
    }
    return *can ? SNUG_OK : push(s, &s->dead, &s->dead_count, &s->dead_capacity, combination);
}

/* The fastest of layers (by seconds) with combination, if it is faster than best. */
static snug_status search_layers(struct search *s, const struct mix *combination, const struct mix layers[],
                                 size_t count, struct found *best) {
    struct mix *too_large = NULL;
    size_t too_large_count = 0, capacity = 0;
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        struct mix mix = *combination;
        struct snug_priced priced;
        bool hopeless = false;
        mix.layers = layers[i].layers;
        mix.seconds += layers[i].seconds;
        if (is_slow(s, best, mix.seconds)) break;
        for (size_t k = 0; k < too_large_count && !hopeless; k++)
            hopeless = keeps_more(s, &mix.layers, &too_large[k].layers);
        if (hopeless) continue;
        status = plan_mix(s, &mix, &priced);
        if (status != SNUG_OK) break;
        if (fits(s, &priced)) {
            keep(s, best, &mix, &priced);
            break;
        }
        status = push(s, &too_large, &too_large_count, &capacity, &mix);
    }
    free(too_large);
    return status == SNUG_END ? SNUG_OK : status;
}

/* Refines steps of several layers: one layer less, or one layer at a cheaper level. */
static snug_status refine(struct search *s, struct found *best) {
    for (bool better = true; better;) {
        better = false;
        for (int from = SNUG_RECOMPUTE_FFN; from <= SNUG_RECOMPUTE_LAYER && !better; from++)
            for (int to = SNUG_RECOMPUTE_ELEMENTWISE; to <= SNUG_RECOMPUTE_LAYER && !better; to++) {
                struct mix mix = best->mix;
                struct snug_priced priced;
                if (to == from || mix.layers.count[from] == 0) continue;
                mix.layers.count[from]--;
                if (to != SNUG_RECOMPUTE_ELEMENTWISE) mix.layers.count[to]++;
                mix.seconds += seconds_of(s, &mix.layers) - seconds_of(s, &best->mix.layers);
                if (mix.seconds >= best->mix.seconds) continue;
                RETURN_IF_ERROR(plan_mix(s, &mix, &priced));
                better = fits(s, &priced) && keep(s, best, &mix, &priced);
            }
    }
    return SNUG_OK;
}

/* Keeps as much of what mix offloads in the arena as there is room for. */
static snug_status fill_arena(struct search *s, struct mix mix, struct found *best) {
    for (int parts = RESIDENT_PARTS / 2; parts > 0; parts /= 2) {
        struct snug_priced priced;
        mix.resident = (uint8_t)(mix.resident + parts);
        const snug_status status = plan_mix(s, &mix, &priced);
        if (status != SNUG_OK) return status == SNUG_END ? SNUG_OK : status;
        if (fits(s, &priced))
            keep(s, best, &mix, &priced);
        else
            mix.resident = (uint8_t)(mix.resident - parts);
    }
    return SNUG_OK;
}

/* Partial offload: with other kinds of tensors, larger micro-batches, the other place of the updates, or layers that
   are recomputed as a whole, which leaves more room for what stays, it may be faster than the best mix. */
static snug_status refine_offload(struct search *s, struct found *best) {
    const struct mix start = best->mix;
    const struct layers whole = {.count = {[SNUG_RECOMPUTE_LAYER] = s->layer_count}};
    const int in_backward = s->counts[IN_BACKWARD], offload = s->counts[OFFLOAD];
    if (!start.choice[OFFLOAD]) return SNUG_OK;
    for (int i = 0; i < (start.choice[SPLIT] + 1) * in_backward * offload; i++) {
        struct mix mix = start;
        mix.choice[OFFLOAD] = (uint8_t)(i % offload);
        mix.choice[IN_BACKWARD] = (uint8_t)(i / offload % in_backward);
        mix.choice[SPLIT] = (uint8_t)(i / offload / in_backward);
        if (!mix.choice[OFFLOAD]) continue;
        RETURN_IF_ERROR(fill_arena(s, mix, best));
        if (s->counts[RECOMPUTE] == 1) continue;
        mix.layers = whole;
        RETURN_IF_ERROR(fill_arena(s, mix, best));
    }
    return refine(s, best);
}

/* Lets the host update the share of the best mix's weights that is fastest, if that is much faster. Such updates follow
 * backward. */
static snug_status refine_host_updates(struct search *s, struct found *best) {
    struct found found = {.below = HOST_GAIN * best->priced.work.seconds};
    if (!s->host_updates[best->mix.choice[STATES] > 0]) return SNUG_OK;
    for (int parts = 1; parts <= HOST_PARTS; parts++) {
        struct mix mix = best->mix;
        struct snug_priced priced;
        mix.choice[IN_BACKWARD] = 0;
        mix.on_host = (uint8_t)parts;
        const snug_status status = plan_mix(s, &mix, &priced);
        if (status == SNUG_END) continue; /* there is no weight that it could update */
        RETURN_IF_ERROR(status);
        if (fits(s, &priced)) keep(s, &found, &mix, &priced);
    }
    found.below = best->below;
    if (found.any) *best = found;
    return SNUG_OK;
}

/* Rules out a method mix with all numbers of micro-batches at once, by the one that saves most. */
static snug_status try_smallest_split(struct search *s, const struct mix *combination, struct found *best) {
    struct mix mix = *combination;
    size_t number = 0;
    bool can;
    if (mix.choice[SPLIT] == s->counts[SPLIT] - 1) return SNUG_OK; /* it is tried anyway */
    for (int m = 0; m < METHODS; m++)
        if (m != SPLIT && m != RECOMPUTE) number = number * (size_t)s->counts[m] + mix.choice[m];
    if (s->split_tried[number]) return SNUG_OK;
    s->split_tried[number] = true;
    mix.choice[SPLIT] = (uint8_t)(s->counts[SPLIT] - 1);
    mix.seconds +=
        s->settings[SPLIT][mix.choice[SPLIT]].seconds - s->settings[SPLIT][combination->choice[SPLIT]].seconds;
    return can_fit(s, &mix, best, &can);
}

static snug_status search_tier(struct search *s, int approximate, const struct mix layers[], size_t layer_mixes,
                               struct found *best) {
    struct mix *combinations;
    size_t count;
    snug_status status = list_combinations(s, approximate, &combinations, &count);
    s->mixes += (int64_t)(count * layer_mixes);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        bool can;
        if (is_slow(s, best, combinations[i].seconds)) break;
        status = try_smallest_split(s, &combinations[i], best);
        if (status != SNUG_OK || is_dead(s, &combinations[i])) continue;
        status = can_fit(s, &combinations[i], best, &can);
        if (status == SNUG_OK && can) status = search_layers(s, &combinations[i], layers, layer_mixes, best);
    }
    free(combinations);
    if (status == SNUG_OK && best->any) status = refine(s, best);
    if (status == SNUG_OK && best->any) status = refine_offload(s, best);
    return status == SNUG_OK && best->any ? refine_host_updates(s, best) : status;
}

/* Starts from the smallest mix so far and changes one method at a time. */
static snug_status find_smallest(struct search *s, const struct mix layers[], size_t layer_mixes) {
    struct snug_priced placed;
    const struct mix least = s->smallest_mix;
    s->places_all = true;
    s->smallest_bytes = 0;
    RETURN_IF_ERROR(plan_mix(s, &least, &placed));
    for (bool smaller = true; smaller;) {
        const int64_t before = s->smallest_bytes;
        const struct mix start = s->smallest_mix;
        for (int m = 0; m < METHODS; m++)
            for (int i = 0; m != RECOMPUTE && i < s->counts[m]; i++) {
                struct mix mix = start;
                struct snug_priced priced;
                mix.choice[m] = (uint8_t)i;
                const snug_status status = plan_mix(s, &mix, &priced);
                if (status != SNUG_OK && status != SNUG_END) return status;
            }
        const struct mix best = s->smallest_mix;
        for (size_t i = 0; i < layer_mixes; i++) {
            struct mix mix = best;
            struct snug_priced priced;
            mix.layers = layers[i].layers;
            const snug_status status = plan_mix(s, &mix, &priced);
            if (status != SNUG_OK && status != SNUG_END) return status;
        }
        smaller = s->smallest_bytes < before;
    }
    return SNUG_OK;
}

/* The fastest approximate mix, if it is much faster than exact. */
static snug_status find_rounding(struct search *s, int approximate, const struct mix layers[], size_t count,
                                 const struct snug_priced *exact, struct snug_priced *out) {
    struct found best = {.below = exact->work.seconds / MUCH_FASTER};
    for (int tier = 1; tier <= approximate; tier++) RETURN_IF_ERROR(search_tier(s, tier, layers, count, &best));
    if (best.any) *out = best.priced;
    return SNUG_OK;
}

static snug_status run_search(struct search *s, struct snug_fit *out) {
    struct mix *layers;
    size_t count;
    struct found best = {0};
    int approximate = 0;
    RETURN_IF_ERROR(price_settings(s, NULL, NULL));
    size_t others = 1;
    for (int m = 0; m < METHODS; m++) {
        approximate += methods[m].approximate && s->counts[m] > 1;
        if (m != SPLIT && m != RECOMPUTE) others *= (size_t)s->counts[m];
    }
    RETURN_IF_ERROR(snug_alloc(s->ctx, others, sizeof *s->split_tried, (void **)&s->split_tried));
    snug_status status = list_layers(s, &layers, &count);
    for (int tier = 0; tier <= approximate && status == SNUG_OK && !is_found(s, &best); tier++)
        status = search_tier(s, tier, layers, count, &best);
    if (status == SNUG_OK && !best.any) status = find_smallest(s, layers, count);
    if (status == SNUG_OK && !best.any && fits(s, &s->smallest)) keep(s, &best, &s->smallest_mix, &s->smallest);
    if (status == SNUG_OK && best.any && !best.priced.approximate)
        status = find_rounding(s, approximate, layers, count, &best.priced, &out->rounding);
    free(layers);
    out->fits = best.any;
    out->chosen = best.any ? best.priced : s->smallest;
    out->planned = s->planned;
    out->mixes = s->mixes;
    return status;
}

snug_status snug_fit_search(const struct snug_setup *setup, const struct snug_limits *limits,
                            const struct snug_run_plan *asked, const struct snug_rates *rates, int64_t limit,
                            struct snug_fit *out) {
    struct search s;
    *out = (struct snug_fit){.limit = limit};
    snug_status status = begin(&s, setup, limits, asked, rates);
    if (status != SNUG_OK) return status;
    s.limit = limit;
    out->asked = out->chosen = s.asked;
    out->fits = s.asked.total <= limit;
    if (!out->fits) status = run_search(&s, out);
    return end(&s, status);
}

/* ---- each method alone ---- */

struct rows {
    snug_context *ctx;
    struct snug_priced *items;
    size_t count, capacity;
};

static snug_status add_row(void *user, const struct snug_priced *row) {
    struct rows *rows = user;
    RETURN_IF_ERROR(snug_grow(rows->ctx, (void **)&rows->items, &rows->capacity, rows->count + 1, sizeof *row));
    rows->items[rows->count++] = *row;
    return SNUG_OK;
}

snug_status snug_fit_table(const struct snug_setup *setup, const struct snug_limits *limits,
                           const struct snug_run_plan *asked, const struct snug_rates *rates,
                           struct snug_priced **table, size_t *count) {
    struct search s;
    *table = NULL;
    *count = 0;
    RETURN_IF_ERROR(begin(&s, setup, limits, asked, rates));
    struct rows rows = {.ctx = s.ctx};
    s.places_all = true;
    snug_status status = add_row(&rows, &s.asked);
    if (status == SNUG_OK) status = price_settings(&s, add_row, &rows);
    status = end(&s, status);
    if (status != SNUG_OK) {
        free(rows.items);
        return status;
    }
    *table = rows.items;
    *count = rows.count;
    return SNUG_OK;
}
