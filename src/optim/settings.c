/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by their names, with the settings that transformers' Trainer gives them and those of --optim_args. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "optim/optimizer.h"

/* One row for each name of --optim. Defaults are those of torch.optim, and for Adafactor those of Trainer. */
static const struct {
    const char *optim, *keys; /* of --optim_args */
    struct snug_optimizer defaults;
} optimizers[] = {
    {"adamw_torch", "", {.name = "adamw_torch", .kind = SNUG_ADAM, .decoupled = true}},
    {"adamw_torch_fused", "", {.name = "adamw_torch", .kind = SNUG_ADAM, .decoupled = true}},
    {"adam", "", {.name = "adam", .kind = SNUG_ADAM}},
    {"adamw_8bit", "tables_8bit", {.name = "adamw_8bit", .kind = SNUG_ADAM_8BIT, .decoupled = true}},
    {"adamw_bnb_8bit", "tables_8bit", {.name = "adamw_8bit", .kind = SNUG_ADAM_8BIT, .decoupled = true}},
    {"adam_8bit", "tables_8bit", {.name = "adam_8bit", .kind = SNUG_ADAM_8BIT}},
    {"sgd", "momentum dampening nesterov", {.name = "sgd", .kind = SNUG_SGD}},
    {"adafactor",
     "eps1 eps2 clip_threshold decay_rate beta1 scale_parameter relative_step warmup_init",
     {.name = "adafactor",
      .kind = SNUG_ADAFACTOR,
      .epsilon = 1e-30,
      .epsilon2 = 1e-3,
      .clip_threshold = 1,
      .decay_rate = -0.8}},
    {"adagrad", "lr_decay initial_accumulator_value eps", {.name = "adagrad", .kind = SNUG_ADAGRAD, .epsilon = 1e-10}},
    {"rmsprop",
     "momentum alpha eps centered",
     {.name = "rmsprop", .kind = SNUG_RMSPROP, .alpha = 0.99, .epsilon = 1e-8}},
    {"lion_32bit", "", {.name = "lion_32bit", .kind = SNUG_LION}},
};

/* Whether the space-separated list holds word. */
static bool lists(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

static snug_status set_truth(snug_context *ctx, const char *key, const char *value, bool *out) {
    static const char *const yes[] = {"true", "1", "yes"}, *const no[] = {"false", "0", "no"};
    for (int i = 0; i < 3; i++) {
        *out = strcasecmp(value, yes[i]) == 0;
        if (*out || strcasecmp(value, no[i]) == 0) return SNUG_OK;
    }
    return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: %s=%s must be True or False", key, value);
}

static snug_status set_number(snug_context *ctx, const char *key, const char *value, struct snug_optimizer *o) {
    const struct {
        const char *key, *range;
        double *out, least, most;
    } numbers[] = {
        {"momentum", " of at least 0", &o->momentum, 0, DBL_MAX},
        {"dampening", "", &o->dampening, -DBL_MAX, DBL_MAX},
        {"alpha", " of at least 0 and at most 1", &o->alpha, 0, 1},
        {"eps", " of at least 0", &o->epsilon, 0, DBL_MAX},
        {"eps1", " of at least 0", &o->epsilon, 0, DBL_MAX},
        {"eps2", " of at least 0", &o->epsilon2, 0, DBL_MAX},
        {"lr_decay", " of at least 0", &o->lr_decay, 0, DBL_MAX},
        {"initial_accumulator_value", " of at least 0", &o->initial_accumulator_value, 0, DBL_MAX},
        {"clip_threshold", " above 0", &o->clip_threshold, DBL_MIN, DBL_MAX},
        {"decay_rate", " of at most 0", &o->decay_rate, -DBL_MAX, 0},
        {"beta1", " of at least 0 and below 1", &o->beta1, 0, 1 - DBL_EPSILON},
    };
    char *end;
    /* Decimal digits only: strtod also takes hexadecimal, "nan" and "infinity". */
    const bool digits = !value[strspn(value, "+-.0123456789eE")];
    const double number = strtod(value, &end);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(key, numbers[i].key) != 0) continue;
        if (!digits || *end || !(number >= numbers[i].least) || !(number <= numbers[i].most))
            return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: %s=%s must be a number%s", key, value, numbers[i].range);
        *numbers[i].out = number;
        return SNUG_OK;
    }
    return snug_fail(ctx, SNUG_E_INTERNAL, "optimizer setting %s has no field", key);
}

static snug_status set_key(snug_context *ctx, const char *optim, const char *keys, const char *key, const char *value,
                           struct snug_optimizer *o) {
    const struct {
        const char *key;
        bool *out;
    } truths[] = {{"nesterov", &o->nesterov},
                  {"centered", &o->centered},
                  {"scale_parameter", &o->scale_parameter},
                  {"relative_step", &o->relative_step},
                  {"warmup_init", &o->warmup_init},
                  {"tables_8bit", &o->tables_8bit}};
    if (strcmp(key, "weight_decay") == 0)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "--optim_args: weight_decay has no effect there, in Trainer neither; give --weight_decay %s",
                         value);
    if (!lists(keys, key))
        return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: %s does not take \"%s\"; it takes %s", optim, key,
                         *keys ? keys : "none");
    if (strcmp(key, "beta1") == 0) o->factored_momentum = true;
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        if (strcmp(key, truths[i].key) == 0) return set_truth(ctx, key, value, truths[i].out);
    return set_number(ctx, key, value, o);
}

/* text is changed: spaces are dropped, and it is cut into keys and values. */
static snug_status set_keys(snug_context *ctx, const char *optim, const char *keys, char *text,
                            struct snug_optimizer *o) {
    char *end = text;
    for (const char *from = text; *from; from++)
        if (*from != ' ') *end++ = *from;
    *end = '\0';
    for (char *next = *text ? text : NULL; next;) {
        char *const pair = next, *const comma = strchr(pair, ','), *equals;
        if (comma) *comma = '\0';
        next = comma ? comma + 1 : NULL;
        equals = strchr(pair, '=');
        if (!equals || equals == pair || !equals[1] || strchr(equals + 1, '='))
            return snug_fail(ctx, SNUG_E_USAGE,
                             "--optim_args: \"%s\" is no key=value; write it like momentum=0.9,nesterov=True", pair);
        *equals = '\0';
        RETURN_IF_ERROR(set_key(ctx, optim, keys, pair, equals + 1, o));
    }
    return SNUG_OK;
}

/* What one setting says of another, as the constructors check it. */
static snug_status check(snug_context *ctx, const struct snug_optimizer *o) {
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: nesterov=True needs a momentum above 0 and no dampening");
    if (o->warmup_init && !o->relative_step)
        return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: warmup_init=True needs relative_step=True");
    return SNUG_OK;
}

snug_status snug_optimizer_parse(snug_context *ctx, const char *optim, const char *optim_args, double beta1,
                                 double beta2, double epsilon, double weight_decay, struct snug_optimizer *out) {
    size_t i = 0, count = sizeof optimizers / sizeof *optimizers;
    while (i < count && strcmp(optim, optimizers[i].optim) != 0) i++;
    if (i == count) return snug_fail(ctx, SNUG_E_USAGE, "--optim %s: no such optimizer", optim);
    *out = optimizers[i].defaults;
    out->weight_decay = weight_decay;
    const bool adam = out->kind == SNUG_ADAM || out->kind == SNUG_ADAM_8BIT;
    if (adam) out->epsilon = epsilon;
    if (adam || out->kind == SNUG_LION) {
        out->beta1 = beta1;
        out->beta2 = beta2;
    }
    if (optim_args) {
        char *text;
        RETURN_IF_ERROR(snug_strdup(ctx, optim_args, &text));
        snug_status status = set_keys(ctx, optim, optimizers[i].keys, text, out);
        free(text);
        RETURN_IF_ERROR(status);
    }
    return check(ctx, out);
}

double snug_optimizer_rate(const struct snug_optimizer *optimizer, double scheduled, int64_t step) {
    if (optimizer->kind != SNUG_ADAFACTOR || !optimizer->relative_step) return scheduled;
    const double t = (double)step + 1;
    return fmin(optimizer->warmup_init ? 1e-6 * t : 1e-2, 1 / sqrt(t));
}
