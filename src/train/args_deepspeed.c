/* SPDX-License-Identifier: Apache-2.0 */
/* --deepspeed: a configuration file of DeepSpeed, as in transformers. What it says becomes arguments; "auto" leaves
 * them to the command line. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/json.h"
#include "train/args.h"

enum { KEY_SIZE = 160 };

enum meaning {
    ARGUMENT,  /* the value of an argument */
    TOTAL,     /* the sequences of a step, of all ranks */
    DEVICE,    /* to which tensors are offloaded: none, and those that the argument names to the host's memory */
    OF_FP16,   /* a setting of a loss scale that snug does not have: only without fp16 */
    NO_EFFECT, /* speed, buffers or messages of DeepSpeed */
};

static const struct known {
    const char *key;
    enum meaning meaning;
    const char *argument;
} known_keys[] = {
    {"zero_optimization.stage", ARGUMENT, "zero_stage"},
    {"gradient_clipping", ARGUMENT, "max_grad_norm"},
    {"gradient_accumulation_steps", ARGUMENT, "gradient_accumulation_steps"},
    {"train_micro_batch_size_per_gpu", ARGUMENT, "per_device_train_batch_size"},
    {"train_batch_size", TOTAL, NULL},
    {"bf16.enabled", ARGUMENT, "bf16"},
    {"bfloat16.enabled", ARGUMENT, "bf16"},
    {"fp16.enabled", ARGUMENT, "fp16"},
    {"fp16.auto_cast", OF_FP16, NULL},
    {"fp16.loss_scale", OF_FP16, NULL},
    {"fp16.loss_scale_window", OF_FP16, NULL},
    {"fp16.initial_scale_power", OF_FP16, NULL},
    {"fp16.hysteresis", OF_FP16, NULL},
    {"fp16.min_loss_scale", OF_FP16, NULL},
    {"zero_optimization.offload_optimizer.device", DEVICE, "optimizer"},
    {"zero_optimization.offload_optimizer.pin_memory", NO_EFFECT, NULL},
    {"zero_optimization.offload_param.device", DEVICE, NULL},
    {"zero_optimization.offload_param.pin_memory", NO_EFFECT, NULL},
    {"zero_optimization.overlap_comm", NO_EFFECT, NULL},
    {"zero_optimization.contiguous_gradients", NO_EFFECT, NULL},
    {"zero_optimization.reduce_scatter", NO_EFFECT, NULL},
    {"zero_optimization.reduce_bucket_size", NO_EFFECT, NULL},
    {"zero_optimization.allgather_partitions", NO_EFFECT, NULL},
    {"zero_optimization.allgather_bucket_size", NO_EFFECT, NULL},
    {"zero_optimization.round_robin_gradients", NO_EFFECT, NULL},
    {"zero_optimization.sub_group_size", NO_EFFECT, NULL},
    {"zero_optimization.stage3_prefetch_bucket_size", NO_EFFECT, NULL},
    {"zero_optimization.stage3_param_persistence_threshold", NO_EFFECT, NULL},
    {"zero_optimization.stage3_max_live_parameters", NO_EFFECT, NULL},
    {"zero_optimization.stage3_max_reuse_distance", NO_EFFECT, NULL},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", NO_EFFECT, NULL},
    {"steps_per_print", NO_EFFECT, NULL},
    {"wall_clock_breakdown", NO_EFFECT, NULL},
    {"zero_allow_untested_optimizer", NO_EFFECT, NULL},
    {"zero_force_ds_cpu_optimizer", NO_EFFECT, NULL},
};

static const struct known *find(const char *key) {
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
        if (strcmp(known_keys[i].key, key) == 0) return &known_keys[i];
    return NULL;
}

/* A number, a boolean or a string as on the command line; false for anything else. */
static bool print_leaf(const json_t *value, char *text, size_t size) {
    if (json_is_string(value)) return snprintf(text, size, "%s", json_string_value(value)) < (int)size;
    if (json_is_boolean(value)) return snprintf(text, size, "%s", json_is_true(value) ? "True" : "False") > 0;
    if (json_is_integer(value)) return snprintf(text, size, "%lld", (long long)json_integer_value(value)) > 0;
    if (!json_is_real(value)) return false;
    return snprintf(text, size, "%.17g", json_real_value(value)) > 0;
}

static snug_status fail(const struct snug_args *args, snug_status status, const char *key, const char *text,
                        const char *why) {
    return snug_fail(args->ctx, status, "--deepspeed %s: %s%s%s: %s", args->deepspeed, key, *text ? " is " : "", text,
                     why);
}

/* An argument that is also on the command line must have the same value there. text: what the file has. */
static snug_status give(struct snug_args *args, const char *key, const char *text, const char *name,
                        const char *value) {
    char before[64], after[64], why[160];
    const bool given = snug_args_is_set(args, name);
    RETURN_IF_ERROR(snug_args_get(args, name, before, sizeof before));
    const snug_status status = snug_args_set(args, name, value);
    if (status != SNUG_OK) return snug_add_to_error(args->ctx, status, " (%s in --deepspeed %s)", key, args->deepspeed);
    RETURN_IF_ERROR(snug_args_get(args, name, after, sizeof after));
    if (!given || strcmp(before, after) == 0) return SNUG_OK;
    snprintf(why, sizeof why, "but --%s is %s: give one of them, or \"auto\" in the file", name, before);
    return fail(args, SNUG_E_USAGE, key, text, why);
}

/* The memory of the host is where a run on the CPU has its states anyway; there --offload is to a disk. Whether
   --device auto finds a GPU is not known yet. */
static snug_status offload(struct snug_args *args, const struct known *known, const char *text) {
    if (strcmp(text, "none") == 0) return SNUG_OK;
    if (!known->argument)
        return fail(args, SNUG_E_UNSUPPORTED, known->key, text,
                    "several ranks do not offload weights yet: use \"none\"; one rank does with --offload");
    if (strcmp(text, "cpu") != 0)
        return fail(args, SNUG_E_UNSUPPORTED, known->key, text,
                    "use \"cpu\", or \"none\" and --offload optimizer --offload_dir DIR");
    if (args->use_cpu || strcmp(args->device, "cpu") == 0) return SNUG_OK;
    args->to_host |= !snug_args_is_set(args, "offload"); /* a run checks its arguments more than once */
    return give(args, known->key, text, "offload", known->argument);
}

static snug_status take_leaf(struct snug_args *args, const json_t *file, const char *key, const json_t *value) {
    const struct known *known = find(key);
    char text[64];
    if (!print_leaf(value, text, sizeof text)) text[0] = '\0';
    if (strcmp(text, "auto") == 0) return SNUG_OK;
    if (!known) return fail(args, SNUG_E_UNSUPPORTED, key, "", "not supported by snug: leave it out");
    switch (known->meaning) {
    case ARGUMENT: return give(args, key, text, known->argument, text);
    case DEVICE: return offload(args, known, text);
    case OF_FP16:
        if (!json_is_true(json_object_get(json_object_get(file, "fp16"), "enabled"))) return SNUG_OK;
        return fail(args, SNUG_E_UNSUPPORTED, key, text, "snug has torch's loss scale: leave it out");
    case TOTAL: /* checked when all arguments are known */
    case NO_EFFECT: return SNUG_OK;
    }
    return SNUG_OK;
}

/* Files nest no deeper than the keys that are known. */
static snug_status take(struct snug_args *args, const json_t *file, const char *prefix, const json_t *object) {
    const char *name;
    json_t *value;
    snug_status status = SNUG_OK;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        char key[KEY_SIZE];
        const int length = snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", name);
        if (length >= KEY_SIZE) return fail(args, SNUG_E_UNSUPPORTED, prefix, "", "one of its keys is too long");
        status = json_is_object(value) ? take(args, file, key, value) : take_leaf(args, file, key, value);
        if (status != SNUG_OK) break;
    }
    return status;
}

static snug_status check_total(const struct snug_args *args, const json_t *file) {
    const json_t *total = json_object_get(file, "train_batch_size");
    const int64_t all = args->per_device_train_batch_size * args->gradient_accumulation_steps * snug_args_ranks(args);
    char text[64], why[160];
    if (!total || (json_is_string(total) && strcmp(json_string_value(total), "auto") == 0)) return SNUG_OK;
    if (json_is_integer(total) && json_integer_value(total) == all) return SNUG_OK;
    if (!print_leaf(total, text, sizeof text)) text[0] = '\0';
    snprintf(why, sizeof why, "a step has %lld x %lld sequences on %d ranks: use \"auto\"",
             (long long)args->per_device_train_batch_size, (long long)args->gradient_accumulation_steps,
             snug_args_ranks(args));
    return fail(args, SNUG_E_USAGE, "train_batch_size", text, why);
}

snug_status snug_args_deepspeed(struct snug_args *args) {
    json_t *file;
    if (!args->deepspeed || strcasecmp(args->deepspeed, "none") == 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_read(args->ctx, NULL, args->deepspeed, &file));
    snug_status status = take(args, file, "", file);
    if (status == SNUG_OK) status = check_total(args, file);
    json_decref(file);
    return status;
}
