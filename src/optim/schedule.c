/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas are those of transformers 5's get_scheduler; each function returns the factor of the base learning rate.
 */
#include "optim/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"

typedef double factor_fn(const struct snug_schedule *s, double step);

static const double pi = 3.14159265358979323846;

static double at_least(double low, double value) { return value < low ? low : value; }

static bool warming(const struct snug_schedule *s, double step) { return step < s->warmup_steps; }

static double warmup(const struct snug_schedule *s, double step) { return step / at_least(1, s->warmup_steps); }

/* The fraction of the steps after the warm-up that is done. */
static double progress(const struct snug_schedule *s, double step) {
    return (step - s->warmup_steps) / at_least(1, s->total_steps - s->warmup_steps);
}

/* num_cycles whole cosine waves over progress 0 … 1. */
static double wave(double num_cycles, double at) { return 0.5 * (1 + cos(pi * num_cycles * 2 * at)); }

static double constant(const struct snug_schedule *s, double step) {
    (void)s;
    (void)step;
    return 1;
}

static double constant_with_warmup(const struct snug_schedule *s, double step) {
    return warming(s, step) ? warmup(s, step) : 1;
}

static double linear(const struct snug_schedule *s, double step) {
    if (warming(s, step)) return warmup(s, step);
    return at_least(0, (s->total_steps - step) / at_least(1, s->total_steps - s->warmup_steps));
}

/* min_lr_ratio is 0 for plain cosine. */
static double cosine(const struct snug_schedule *s, double step) {
    if (warming(s, step)) return warmup(s, step);
    return at_least(0, wave(s->num_cycles, progress(s, step)) * (1 - s->min_lr_ratio) + s->min_lr_ratio);
}

static double cosine_with_restarts(const struct snug_schedule *s, double step) {
    if (warming(s, step)) return warmup(s, step);
    double at = progress(s, step);
    return at >= 1 ? 0 : at_least(0, 0.5 * (1 + cos(pi * fmod(s->num_cycles * at, 1))));
}

/* Unlike the other schedules it counts the current step, so that the rate of the first step is not 0. */
static double cosine_warmup_with_min_lr(const struct snug_schedule *s, double step) {
    if (warming(s, step)) {
        if (isnan(s->warmup_lr_rate)) return (step + 1) / at_least(1, s->warmup_steps);
        return s->warmup_lr_rate + (1 - s->warmup_lr_rate) * step / at_least(1, s->warmup_steps - 1);
    }
    return at_least(0, wave(s->num_cycles, progress(s, step + 1)) * (1 - s->min_lr_ratio) + s->min_lr_ratio);
}

static double polynomial(const struct snug_schedule *s, double step) {
    if (warming(s, step)) return warmup(s, step);
    double decay_steps = s->total_steps - s->warmup_steps;
    if (step > s->total_steps || decay_steps <= 0) return s->lr_end / s->base;
    double remaining = 1 - (step - s->warmup_steps) / decay_steps;
    return ((s->base - s->lr_end) * pow(remaining, s->power) + s->lr_end) / s->base;
}

static double inverse_sqrt(const struct snug_schedule *s, double step) {
    if (warming(s, step)) return warmup(s, step);
    return 1 / sqrt((step + s->timescale - s->warmup_steps) / s->timescale);
}

static double warmup_stable_decay(const struct snug_schedule *s, double step) {
    double factor, decay_begin = s->warmup_steps + s->num_stable_steps;
    if (warming(s, step)) {
        double at = warmup(s, step);
        factor = s->warmup_type == SNUG_RAMP_LINEAR   ? at
                 : s->warmup_type == SNUG_RAMP_COSINE ? 0.5 * (1 - cos(pi * at))
                                                      : 1 - sqrt(1 - at);
    } else if (step < decay_begin) {
        return 1;
    } else if (step < decay_begin + s->num_decay_steps) {
        double at = (step - decay_begin) / at_least(1, s->num_decay_steps);
        factor = s->decay_type == SNUG_RAMP_LINEAR   ? 1 - at
                 : s->decay_type == SNUG_RAMP_COSINE ? wave(s->num_cycles, at)
                                                     : 1 - sqrt(at);
    } else {
        return s->min_lr_ratio;
    }
    return at_least(0, factor * (1 - s->min_lr_ratio) + s->min_lr_ratio);
}

static const struct {
    const char *name;
    factor_fn *factor;
    const char *keys; /* of kwargs */
    double num_cycles;
} schedules[] = {
    {"linear", linear, "", 0},
    {"cosine", cosine, "num_cycles", 0.5},
    {"cosine_with_restarts", cosine_with_restarts, "num_cycles", 1},
    {"polynomial", polynomial, "lr_end power", 0},
    {"constant", constant, "", 0},
    {"constant_with_warmup", constant_with_warmup, "", 0},
    {"inverse_sqrt", inverse_sqrt, "timescale", 0},
    {"cosine_with_min_lr", cosine, "num_cycles min_lr min_lr_rate", 0.5},
    {"cosine_warmup_with_min_lr", cosine_warmup_with_min_lr, "num_cycles min_lr min_lr_rate warmup_lr_rate", 0.5},
    {"warmup_stable_decay", warmup_stable_decay,
     "num_decay_steps num_stable_steps warmup_type decay_type min_lr_ratio num_cycles", 0.5},
};

/* Whether the space-separated list holds word. */
static bool lists(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; length && (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

static snug_status set_ramp(snug_context *ctx, const char *key, const json_t *value, enum snug_ramp *out) {
    static const char *const names[] = {"linear", "cosine", "1-sqrt"};
    const char *text = json_string_value(value);
    for (int i = 0; text && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum snug_ramp)i;
            return SNUG_OK;
        }
    }
    return snug_fail(ctx, SNUG_E_USAGE, "--lr_scheduler_kwargs: %s must be \"linear\", \"cosine\" or \"1-sqrt\"", key);
}

static snug_status set_number(snug_context *ctx, const char *key, const json_t *value, struct snug_schedule *s) {
    const struct {
        const char *key;
        double *out, least;
    } numbers[] = {
        {"num_cycles", &s->num_cycles, 0},
        {"power", &s->power, 0},
        {"lr_end", &s->lr_end, 0},
        {"min_lr", &s->min_lr, 0},
        {"min_lr_rate", &s->min_lr_ratio, 0},
        {"min_lr_ratio", &s->min_lr_ratio, 0},
        {"timescale", &s->timescale, 1},
        {"warmup_lr_rate", &s->warmup_lr_rate, 0},
        {"num_stable_steps", &s->num_stable_steps, 0},
        {"num_decay_steps", &s->num_decay_steps, 0},
    };
    /* A number in quotes counts as a number, as in TrainingArguments. */
    const char *text = json_string_value(value);
    char *end = NULL;
    double number = text ? strtod(text, &end) : json_number_value(value);
    bool good = text ? end != text && *end == '\0' : json_is_number(value);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(key, numbers[i].key) != 0) continue;
        if (!good || !isfinite(number) || number < numbers[i].least)
            return snug_fail(ctx, SNUG_E_USAGE, "--lr_scheduler_kwargs: %s must be a number of at least %g", key,
                             numbers[i].least);
        *numbers[i].out = number;
        return SNUG_OK;
    }
    return snug_fail(ctx, SNUG_E_INTERNAL, "schedule key %s has no field", key);
}

static snug_status set_kwargs(snug_context *ctx, const json_t *kwargs, struct snug_schedule *s) {
    const char *keys = schedules[s->kind].keys, *key;
    json_t *value;
    json_object_foreach((json_t *)kwargs, key, value) {
        if (!lists(keys, key))
            return snug_fail(ctx, SNUG_E_USAGE, "--lr_scheduler_kwargs: %s does not take \"%s\"; it takes %s",
                             schedules[s->kind].name, key, *keys ? keys : "none");
        if (strcmp(key, "warmup_type") == 0)
            RETURN_IF_ERROR(set_ramp(ctx, key, value, &s->warmup_type));
        else if (strcmp(key, "decay_type") == 0)
            RETURN_IF_ERROR(set_ramp(ctx, key, value, &s->decay_type));
        else
            RETURN_IF_ERROR(set_number(ctx, key, value, s));
    }
    return SNUG_OK;
}

/* Checks and settings that depend on several arguments. NaN: the key was not given. */
static snug_status complete(snug_context *ctx, struct snug_schedule *s) {
    const char *keys = schedules[s->kind].keys;
    if (lists(keys, "lr_end") && !(s->base > s->lr_end))
        return snug_fail(ctx, SNUG_E_USAGE, "--lr_scheduler_kwargs: lr_end (%g) must be below --learning_rate (%g)",
                         s->lr_end, s->base);
    if (lists(keys, "min_lr")) {
        if (isnan(s->min_lr) == isnan(s->min_lr_ratio))
            return snug_fail(
                ctx, SNUG_E_USAGE,
                "--lr_scheduler_type %s needs either min_lr or min_lr_rate in --lr_scheduler_kwargs, as in "
                "'{\"min_lr_rate\": 0.1}'",
                schedules[s->kind].name);
        if (isnan(s->min_lr_ratio)) s->min_lr_ratio = s->base > 0 ? s->min_lr / s->base : 0;
    }
    if (isnan(s->min_lr_ratio)) s->min_lr_ratio = 0;
    if (lists(keys, "num_decay_steps")) {
        if (isnan(s->num_decay_steps))
            return snug_fail(ctx, SNUG_E_USAGE,
                             "--lr_scheduler_type warmup_stable_decay needs num_decay_steps in --lr_scheduler_kwargs, "
                             "as in '{\"num_decay_steps\": 100}'");
        if (isnan(s->num_stable_steps)) s->num_stable_steps = s->total_steps - s->warmup_steps - s->num_decay_steps;
    }
    if (isnan(s->timescale)) s->timescale = s->warmup_steps > 0 ? s->warmup_steps : 10000;
    return SNUG_OK;
}

snug_status snug_schedule_init(snug_context *ctx, const char *type, const char *kwargs, double base,
                               double warmup_steps, double total_steps, struct snug_schedule *out) {
    int kind = 0, count = (int)(sizeof schedules / sizeof *schedules);
    while (kind < count && strcmp(type, schedules[kind].name) != 0) kind++;
    if (kind == count) return snug_fail(ctx, SNUG_E_USAGE, "--lr_scheduler_type %s: no such schedule", type);
    if (!(warmup_steps >= 0) || !(total_steps >= 0) || !isfinite(warmup_steps + total_steps + base))
        return snug_fail(ctx, SNUG_E_USAGE, "--warmup_steps %g of %g steps at --learning_rate %g: not a schedule",
                         warmup_steps, total_steps, base);
    *out = (struct snug_schedule){
        .kind = kind,
        .base = base,
        .warmup_steps = warmup_steps < 1 ? ceil(total_steps * warmup_steps) : floor(warmup_steps),
        .total_steps = total_steps,
        .num_cycles = schedules[kind].num_cycles,
        .power = 1,
        .lr_end = 1e-7,
        .min_lr = NAN,
        .min_lr_ratio = NAN,
        .timescale = NAN,
        .num_stable_steps = NAN,
        .num_decay_steps = NAN,
        .warmup_lr_rate = NAN,
        .warmup_type = SNUG_RAMP_LINEAR,
        .decay_type = SNUG_RAMP_COSINE,
    };
    if (kwargs) {
        json_error_t error;
        json_t *object = snug_json_parse(kwargs, strlen(kwargs), JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(object)) {
            json_decref(object);
            return snug_fail(ctx, SNUG_E_USAGE,
                             "--lr_scheduler_kwargs %s: must be a JSON object like '{\"power\": 2}'%s%s", kwargs,
                             object ? "" : ": ", object ? "" : error.text);
        }
        snug_status status = set_kwargs(ctx, object, out);
        json_decref(object);
        RETURN_IF_ERROR(status);
    }
    return complete(ctx, out);
}

double snug_schedule_rate(const struct snug_schedule *schedule, int64_t step) {
    return schedule->base * schedules[schedule->kind].factor(schedule, (double)step);
}
