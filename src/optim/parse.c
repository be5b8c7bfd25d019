/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by their names, with the settings that transformers' Trainer gives them and those of --optim_args. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "optim/optimizer.h"

static snug_status set_truth(snug_context *ctx, const char *key, const char *value, bool *out) {
    static const char *const yes[] = {"true", "1", "yes"}, *const no[] = {"false", "0", "no"};
    for (int i = 0; i < 3; i++) {
        *out = strcasecmp(value, yes[i]) == 0;
        if (*out || strcasecmp(value, no[i]) == 0) return SNUG_OK;
    }
    return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: %s=%s must be True or False", key, value);
}

static snug_status set_number(snug_context *ctx, const struct snug_optimizer_key *key, const char *value, double *out) {
    char *end;
    /* Decimal digits only: strtod also takes hexadecimal, "nan" and "infinity". */
    const bool digits = !value[strspn(value, "+-.0123456789eE")];
    *out = strtod(value, &end);
    if (digits && !*end && *out >= key->least && *out <= key->most) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: %s=%s must be a number%s", key->key, value, key->range);
}

static snug_status fail_key(snug_context *ctx, const char *optim, const struct snug_optimizer_info *info,
                            const char *key) {
    char all[256] = " none";
    size_t length = 0;
    for (const struct snug_optimizer_key *k = info->keys; k->key; k++)
        length += (size_t)snprintf(all + length, sizeof all - length, " %s", k->key);
    return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: %s does not take \"%s\"; it takes%s", optim, key, all);
}

static snug_status set_key(snug_context *ctx, const char *optim, const char *key, const char *value,
                           struct snug_optimizer *o) {
    const struct snug_optimizer_key *k = o->info->keys;
    char *const fields = (char *)o;
    if (strcmp(key, "weight_decay") == 0)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "--optim_args: weight_decay has no effect there, in Trainer neither; give --weight_decay %s",
                         value);
    while (k->key && strcmp(key, k->key) != 0) k++;
    if (!k->key) return fail_key(ctx, optim, o->info, key);
    if (k->given) *(bool *)(fields + k->given) = true;
    if (!k->range) return set_truth(ctx, key, value, (bool *)(fields + k->field));
    return set_number(ctx, k, value, (double *)(void *)(fields + k->field));
}

/* Modifies text: removes spaces, and splits it into keys and values. */
static snug_status set_keys(snug_context *ctx, const char *optim, char *text, struct snug_optimizer *o) {
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
        RETURN_IF_ERROR(set_key(ctx, optim, pair, equals + 1, o));
    }
    return SNUG_OK;
}

static bool find(const char *optim, struct snug_optimizer *out) {
    for (size_t i = 0; snug_optimizers[i]; i++)
        for (const struct snug_optimizer_name *name = snug_optimizers[i]->names; name->optim; name++) {
            if (strcmp(name->optim, optim) != 0) continue;
            *out = name->defaults;
            out->info = snug_optimizers[i];
            return true;
        }
    return false;
}

snug_status snug_optimizer_parse(snug_context *ctx, const char *optim, const char *optim_args, double beta1,
                                 double beta2, double epsilon, double weight_decay, struct snug_optimizer *out) {
    if (!find(optim, out)) return snug_fail(ctx, SNUG_E_USAGE, "--optim %s: no such optimizer", optim);
    out->weight_decay = weight_decay;
    if (out->info->takes_betas) {
        out->beta1 = beta1;
        out->beta2 = beta2;
    }
    if (out->info->takes_epsilon) out->epsilon = epsilon;
    if (optim_args) {
        char *text;
        RETURN_IF_ERROR(snug_strdup(ctx, optim_args, &text));
        snug_status status = set_keys(ctx, optim, text, out);
        free(text);
        RETURN_IF_ERROR(status);
    }
    return out->info->check ? out->info->check(ctx, out) : SNUG_OK;
}
