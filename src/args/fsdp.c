/* SPDX-License-Identifier: Apache-2.0 */
/* --fsdp_config: the configuration of FSDP in transformers 4 and 5, whose keys may begin with "fsdp_". What it says
 * becomes arguments. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "args/args.h"
#include "io/json.h"

enum meaning {
    ONLY,      /* has no effect, and only these values; NULL: all */
    RESHARD,   /* true: stage 3; false: weights are not gathered again for backward, which is stage 2 */
    STRATEGY,  /* FSDP1's name of the stage */
    RECOMPUTE, /* gradient_checkpointing */
};

static const struct known {
    const char *key;
    enum meaning meaning;
    const char *values, *advice;
} known_keys[] = {
    {"version", ONLY, "1|2", "FSDP has version 1 and 2"},
    {"reshard_after_forward", RESHARD, NULL, NULL},
    {"sharding_strategy", STRATEGY, NULL, NULL},
    {"activation_checkpointing", RECOMPUTE, NULL, NULL},
    {"cpu_offload", ONLY, "False", "several ranks do not offload weights yet; --offload optimizer offloads the states"},
    {"offload_params", ONLY, "False",
     "several ranks do not offload weights yet; --offload optimizer offloads the states"},
    {"state_dict_type", ONLY, "FULL_STATE_DICT", "a checkpoint of snug is one model: use FULL_STATE_DICT"},
    {"xla", ONLY, "False", "snug does not use XLA: leave it out"},
    {"xla_fsdp_v2", ONLY, "False", "snug does not use XLA: leave it out"},
    {"xla_fsdp_grad_ckpt", ONLY, "False", "snug does not use XLA: leave it out"},
    /* How modules are wrapped, when weights are gathered, and how they are loaded */
    {"auto_wrap_policy", ONLY, NULL, NULL},
    {"transformer_layer_cls_to_wrap", ONLY, NULL, NULL},
    {"min_num_params", ONLY, NULL, NULL},
    {"backward_prefetch", ONLY, NULL, NULL},
    {"backward_prefetch_policy", ONLY, NULL, NULL},
    {"forward_prefetch", ONLY, NULL, NULL},
    {"limit_all_gathers", ONLY, NULL, NULL},
    {"use_orig_params", ONLY, NULL, NULL},
    {"sync_module_states", ONLY, NULL, NULL},
    {"cpu_ram_efficient_loading", ONLY, NULL, NULL},
};

/* A number, a boolean or a string as on the command line; "" for anything else. */
static void print_leaf(const json_t *value, char *text, size_t size) {
    *text = '\0';
    if (json_is_string(value)) snprintf(text, size, "%s", json_string_value(value));
    if (json_is_boolean(value)) snprintf(text, size, "%s", json_is_true(value) ? "True" : "False");
    if (json_is_integer(value)) snprintf(text, size, "%lld", (long long)json_integer_value(value));
}

static snug_status fail(const struct snug_args *args, snug_status status, const char *key, const char *text,
                        const char *why) {
    return snug_fail(args->ctx, status, "--fsdp_config: %s%s%s: %s", key, *text ? " is " : "", text, why);
}

/* Lists of words separated by '|'. */
static bool lists(const char *values, const char *text) {
    for (const char *at = values; *at;) {
        const size_t length = strcspn(at, "|");
        if (strlen(text) == length && strncasecmp(at, text, length) == 0) return true;
        at += length + (at[length] == '|');
    }
    return false;
}

/* --fsdp full_shard divides weights unless the file says that they stay gathered; the other options are the stage. */
static snug_status take_reshard(struct snug_args *args, const char *key, const char *text) {
    const bool yes = strcmp(text, "True") == 0;
    if (!yes && strcmp(text, "False") != 0) return fail(args, SNUG_E_USAGE, key, text, "must be true or false");
    if (yes && args->zero_stage == 2)
        return fail(args, SNUG_E_USAGE, key, text,
                    "but --fsdp shard_grad_op (--zero_stage 2) keeps weights gathered: give --fsdp full_shard");
    if (!yes && args->zero_stage == 3) args->zero_stage = 2;
    return SNUG_OK;
}

static snug_status take_strategy(struct snug_args *args, const char *key, const char *text) {
    static const struct {
        const char *names;
        int stage;
    } strategies[] = {{"FULL_SHARD|1", 3}, {"SHARD_GRAD_OP|2", 2}, {"NO_SHARD|3", 0}};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (!lists(strategies[i].names, text)) continue;
        if (args->zero_stage == strategies[i].stage) return SNUG_OK;
        if (args->zero_stage == 3) { /* --fsdp True says that it is on, and the file what it divides */
            args->zero_stage = strategies[i].stage;
            return SNUG_OK;
        }
        return fail(args, SNUG_E_USAGE, key, text, "but --fsdp names another strategy: give one of them");
    }
    return fail(args, SNUG_E_UNSUPPORTED, key, text, "snug has FULL_SHARD, SHARD_GRAD_OP and NO_SHARD");
}

static snug_status take_recompute(struct snug_args *args, const char *key, const char *text) {
    char before[16];
    if (strcmp(text, "True") != 0 && strcmp(text, "False") != 0)
        return fail(args, SNUG_E_USAGE, key, text, "must be true or false");
    RETURN_IF_ERROR(snug_args_value(args, "gradient_checkpointing", before, sizeof before));
    if (snug_args_is_set(args, "gradient_checkpointing") && strcmp(before, text) != 0)
        return fail(args, SNUG_E_USAGE, key, text, "but --gradient_checkpointing says otherwise: give one of them");
    return snug_args_assign(args, "gradient_checkpointing", text);
}

static snug_status take(struct snug_args *args, const char *name, const json_t *value) {
    const char *key = strncasecmp(name, "fsdp_", 5) == 0 ? name + 5 : name;
    const struct known *known = NULL;
    char text[64];
    print_leaf(value, text, sizeof text);
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
        if (strcmp(known_keys[i].key, key) == 0) known = &known_keys[i];
    if (!known) return fail(args, SNUG_E_UNSUPPORTED, name, text, "not supported by snug: leave it out");
    switch (known->meaning) {
    case RESHARD: /* version 1 has names of strategies there */
        return lists("True|False", text) || !*text ? take_reshard(args, name, text) : take_strategy(args, name, text);
    case STRATEGY: return take_strategy(args, name, text);
    case RECOMPUTE: return take_recompute(args, name, text);
    case ONLY: break;
    }
    if (!known->values || lists(known->values, text)) return SNUG_OK;
    return fail(args, SNUG_E_UNSUPPORTED, name, text, known->advice);
}

snug_status snug_args_fsdp(struct snug_args *args) {
    const char *name, *given = args->fsdp_config;
    json_t *file, *value;
    snug_status status = SNUG_OK;
    if (!given || strcasecmp(given, "none") == 0) return SNUG_OK;
    if (!snug_args_is_set(args, "zero_stage"))
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--fsdp_config has no effect without --fsdp: give --fsdp True, or leave it out");
    RETURN_IF_ERROR(*given == '{' ? snug_json_read_text(args->ctx, "--fsdp_config", given, strlen(given), &file)
                                  : snug_json_read(args->ctx, NULL, given, &file));
    json_object_foreach(file, name, value) {
        status = take(args, name, value);
        if (status != SNUG_OK) break;
    }
    json_decref(file);
    return status;
}
