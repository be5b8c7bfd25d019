/* SPDX-License-Identifier: Apache-2.0 */
/* --deepspeed: a configuration file of DeepSpeed, as in transformers. What it says becomes arguments; "auto" leaves
 * them to the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "args/args.h"
#include "io/json.h"

enum { KEY_SIZE = 160, TEXT_SIZE = 64 };

enum meaning {
    ARGUMENT,  /* the value of an argument */
    BETAS,     /* a list of two: adam_beta1 and adam_beta2 */
    TOTAL,     /* the sequences of a step, of all ranks */
    STEPS,     /* of the run */
    DEVICE,    /* to which tensors are offloaded: none, and those that the argument names to the host's memory */
    OPTIMIZER, /* AdamW */
    SCHEDULER, /* its shape is compared with the run's, which lr_scheduler_type names */
    OF_FP16,   /* a setting of a loss scale that snug does not have: only without fp16 */
    ONLY,      /* has no effect, and only these values, separated by '|' */
    NO_EFFECT, /* speed, buffers or messages of DeepSpeed */
};

static const struct known {
    const char *key; /* with a point at its end: all that begins with it */
    enum meaning meaning;
    const char *argument; /* or values */
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
    {"optimizer.type", OPTIMIZER, NULL},
    {"optimizer.params.lr", ARGUMENT, "learning_rate"},
    {"optimizer.params.betas", BETAS, NULL},
    {"optimizer.params.eps", ARGUMENT, "adam_epsilon"},
    {"optimizer.params.weight_decay", ARGUMENT, "weight_decay"},
    {"optimizer.params.torch_adam", NO_EFFECT, NULL},
    {"optimizer.params.adam_w_mode", ONLY, "True"},
    {"optimizer.params.bias_correction", ONLY, "True"},
    {"optimizer.params.amsgrad", ONLY, "False"},
    {"scheduler.type", SCHEDULER, NULL},
    {"scheduler.params.warmup_min_lr", ONLY, "0"},
    {"scheduler.params.warmup_max_lr", ARGUMENT, "learning_rate"},
    {"scheduler.params.warmup_num_steps", ARGUMENT, "warmup_steps"},
    {"scheduler.params.warmup_type", ONLY, "linear|log"}, /* see compare_schedule() */
    {"scheduler.params.total_num_steps", STEPS, NULL},
    {"scheduler.params.last_batch_iteration", ONLY, "-1"},
    {"zero_optimization.offload_optimizer.device", DEVICE, "optimizer"},
    {"zero_optimization.offload_optimizer.ratio", ONLY, "1"},
    {"zero_optimization.offload_optimizer.", NO_EFFECT, NULL},
    {"zero_optimization.offload_param.device", DEVICE, NULL},
    {"zero_optimization.offload_param.", NO_EFFECT, NULL},
    {"zero_optimization.overlap_comm", NO_EFFECT, NULL},
    {"zero_optimization.contiguous_gradients", NO_EFFECT, NULL},
    {"zero_optimization.reduce_scatter", NO_EFFECT, NULL},
    {"zero_optimization.reduce_bucket_size", NO_EFFECT, NULL},
    {"zero_optimization.allgather_partitions", NO_EFFECT, NULL},
    {"zero_optimization.allgather_bucket_size", NO_EFFECT, NULL},
    {"zero_optimization.round_robin_gradients", NO_EFFECT, NULL},
    {"zero_optimization.ignore_unused_parameters", NO_EFFECT, NULL},
    {"zero_optimization.elastic_checkpoint", NO_EFFECT, NULL},
    {"zero_optimization.load_from_fp32_weights", NO_EFFECT, NULL},
    {"zero_optimization.sub_group_size", NO_EFFECT, NULL},
    {"zero_optimization.stage3_prefetch_bucket_size", NO_EFFECT, NULL},
    {"zero_optimization.stage3_param_persistence_threshold", NO_EFFECT, NULL},
    {"zero_optimization.stage3_max_live_parameters", NO_EFFECT, NULL},
    {"zero_optimization.stage3_max_reuse_distance", NO_EFFECT, NULL},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", NO_EFFECT, NULL},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", NO_EFFECT, NULL},
    {"prescale_gradients", ONLY, "False"},
    {"gradient_predivide_factor", ONLY, "1"},
    {"sparse_gradients", ONLY, "False"},
    {"activation_checkpointing.", NO_EFFECT, NULL}, /* for models that call DeepSpeed's function for it */
    {"aio.", NO_EFFECT, NULL},
    {"steps_per_print", NO_EFFECT, NULL},
    {"wall_clock_breakdown", NO_EFFECT, NULL},
    {"memory_breakdown", NO_EFFECT, NULL},
    {"dump_state", NO_EFFECT, NULL},
    {"zero_allow_untested_optimizer", NO_EFFECT, NULL},
    {"zero_force_ds_cpu_optimizer", NO_EFFECT, NULL},
};

/* Schedules of DeepSpeed, and the lr_scheduler_type with their shape after the warm-up. */
static const struct schedule {
    const char *type, *ours, *does;
} schedules[] = {
    {"WarmupLR", "constant_with_warmup", "stays constant after the warm-up"},
    {"WarmupDecayLR", "linear", "decreases linearly to 0 after the warm-up"},
};

/* A file, or the object itself. */
struct reading {
    struct snug_args *args;
    const json_t *file;
    char without_effect[1024]; /* names, truncated at the end */
};

static const struct known *find(const char *key) {
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++) {
        const char *known = known_keys[i].key;
        const size_t length = strlen(known);
        if (strcmp(known, key) == 0 || (known[length - 1] == '.' && strncmp(known, key, length) == 0))
            return &known_keys[i];
    }
    return NULL;
}

/* A number, a boolean or a string as on the command line; false for anything else. */
static bool print_leaf(const json_t *value, char *text, size_t size) {
    if (json_is_string(value)) return snprintf(text, size, "%s", json_string_value(value)) < (int)size;
    if (json_is_boolean(value)) return snprintf(text, size, "%s", json_is_true(value) ? "True" : "False") > 0;
    if (json_is_integer(value)) return snprintf(text, size, "%lld", (long long)json_integer_value(value)) > 0;
    if (!json_is_real(value)) return false;
    snprintf(text, size, "%.15g", json_real_value(value));
    if (strtod(text, NULL) != json_real_value(value)) snprintf(text, size, "%.17g", json_real_value(value));
    return true;
}

static bool is_object_text(const char *text) { return text[strspn(text, " \t\r\n")] == '{'; }

/* The file for messages, after a space. */
static const char *place(const struct snug_args *args, const char **space) {
    const bool inside = is_object_text(args->deepspeed);
    *space = inside ? "" : " ";
    return inside ? "" : args->deepspeed;
}

static snug_status fail(const struct snug_args *args, snug_status status, const char *key, const char *text,
                        const char *why) {
    const char *space, *file = place(args, &space);
    return snug_fail(args->ctx, status, "--deepspeed%s%s: %s%s%s: %s", space, file, key, *text ? " is " : "", text,
                     why);
}

/* An argument that is also on the command line must have the same value there. text: what the file has. */
static snug_status give(struct snug_args *args, const char *key, const char *text, const char *name,
                        const char *value) {
    char before[TEXT_SIZE], after[TEXT_SIZE], why[160];
    const char *space, *file = place(args, &space);
    const bool given = snug_args_is_set(args, name);
    RETURN_IF_ERROR(snug_args_value(args, name, before, sizeof before));
    const snug_status status = snug_args_assign(args, name, value);
    if (status != SNUG_OK) return snug_add_to_error(args->ctx, status, " (%s in --deepspeed%s%s)", key, space, file);
    RETURN_IF_ERROR(snug_args_value(args, name, after, sizeof after));
    if (!given || strcmp(before, after) == 0) return SNUG_OK;
    snprintf(why, sizeof why, "but --%s is %s: give one of them, or \"auto\" in the file", name, before);
    return fail(args, SNUG_E_USAGE, key, text, why);
}

static snug_status give_betas(struct snug_args *args, const char *key, const json_t *value) {
    static const char *const names[] = {"adam_beta1", "adam_beta2"};
    char text[TEXT_SIZE];
    for (size_t i = 0; i < 2; i++) {
        if (json_array_size(value) != 2 || !print_leaf(json_array_get(value, i), text, sizeof text))
            return fail(args, SNUG_E_USAGE, key, "", "must be a list of two numbers, or \"auto\"");
        RETURN_IF_ERROR(give(args, key, text, names[i], text));
    }
    return SNUG_OK;
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

/* DeepSpeed's Adam is AdamW unless adam_w_mode is false. */
static snug_status check_optimizer(const struct snug_args *args, const char *key, const char *text) {
    char why[160];
    if (strcmp(text, "AdamW") != 0 && strcmp(text, "Adam") != 0)
        return fail(args, SNUG_E_UNSUPPORTED, key, text,
                    "snug takes AdamW and Adam from such a file: leave optimizer out, and give --optim");
    if (strcmp(args->optim, "adamw_torch") == 0 || strcmp(args->optim, "adamw_torch_fused") == 0) return SNUG_OK;
    snprintf(why, sizeof why, "but --optim is %s: leave one of them out", args->optim);
    return fail(args, SNUG_E_USAGE, key, text, why);
}

static const struct schedule *find_schedule(const char *type) {
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        if (strcmp(schedules[i].type, type) == 0) return &schedules[i];
    return NULL;
}

static snug_status check_steps(const struct snug_args *args, const char *key, const char *text) {
    char steps[TEXT_SIZE], why[160];
    if (args->max_steps <= 0)
        return fail(args, SNUG_E_USAGE, key, text,
                    "the run's own steps are those of the schedule: use \"auto\", or give --max_steps");
    snprintf(steps, sizeof steps, "%lld", (long long)args->max_steps);
    if (strcmp(steps, text) == 0) return SNUG_OK;
    snprintf(why, sizeof why, "but --max_steps is %s: use \"auto\"", steps);
    return fail(args, SNUG_E_USAGE, key, text, why);
}

static snug_status check_only(const struct snug_args *args, const struct known *known, const char *text) {
    char why[160];
    const char *values = known->argument;
    for (const char *at = values; *at;) {
        const size_t length = strcspn(at, "|");
        if (strlen(text) == length && strncmp(at, text, length) == 0) return SNUG_OK;
        at += length + (at[length] == '|');
    }
    snprintf(why, sizeof why, "snug has %s: leave it out", values);
    return fail(args, SNUG_E_UNSUPPORTED, known->key, text, why);
}

static void note(struct reading *r, const char *name) {
    const size_t used = strlen(r->without_effect);
    snprintf(r->without_effect + used, sizeof r->without_effect - used, "%s%s", used ? ", " : "", name);
}

static snug_status take_leaf(struct reading *r, const char *key, const json_t *value) {
    struct snug_args *args = r->args;
    const struct known *known = find(key);
    char text[TEXT_SIZE];
    if (json_is_null(value)) return SNUG_OK;
    if (!print_leaf(value, text, sizeof text)) text[0] = '\0';
    if (strcmp(text, "auto") == 0) return SNUG_OK;
    if (!known) return fail(args, SNUG_E_UNSUPPORTED, key, "", "not supported by snug: leave it out");
    switch (known->meaning) {
    case ARGUMENT: return give(args, key, text, known->argument, text);
    case BETAS: return give_betas(args, key, value);
    case DEVICE: return offload(args, known, text);
    case OPTIMIZER: return check_optimizer(args, key, text);
    case SCHEDULER:
        if (find_schedule(text)) return SNUG_OK; /* compared when all arguments are known */
        return fail(args, SNUG_E_UNSUPPORTED, key, text,
                    "snug takes WarmupLR and WarmupDecayLR from such a file: leave scheduler out, and give "
                    "--lr_scheduler_type");
    case STEPS: return check_steps(args, key, text);
    case OF_FP16:
        if (!json_is_true(json_object_get(json_object_get(r->file, "fp16"), "enabled")) && !args->fp16) return SNUG_OK;
        if (strcmp(key, "fp16.loss_scale") != 0) note(r, key);
        if (strcmp(key, "fp16.loss_scale") != 0 || strcmp(text, "0") == 0) return SNUG_OK; /* 0: it changes */
        return fail(args, SNUG_E_UNSUPPORTED, key, text, "snug has torch's loss scale: leave it out, or use 0");
    case ONLY: return check_only(args, known, text);
    case NO_EFFECT: note(r, key); return SNUG_OK;
    case TOTAL: return SNUG_OK; /* checked when all arguments are known */
    }
    return SNUG_OK;
}

/* A section that is switched off asks for nothing. Those that are arguments may contradict the command line. */
static bool is_off(const char *key, const json_t *section) {
    char enabled[KEY_SIZE + sizeof ".enabled"];
    snprintf(enabled, sizeof enabled, "%s.enabled", key);
    return json_is_false(json_object_get(section, "enabled")) && !find(enabled);
}

/* Files nest no deeper than the keys that are known. */
static snug_status take(struct reading *r, const char *prefix, const json_t *object) {
    const char *name;
    json_t *value;
    snug_status status = SNUG_OK;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        char key[KEY_SIZE];
        const int length = snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", name);
        if (length >= KEY_SIZE) return fail(r->args, SNUG_E_UNSUPPORTED, prefix, "", "one of its keys is too long");
        if (is_off(key, value)) continue;
        status = json_is_object(value) ? take(r, key, value) : take_leaf(r, key, value);
        if (status != SNUG_OK) break;
    }
    return status;
}

static snug_status check_total(const struct snug_args *args, const json_t *file) {
    const json_t *total = json_object_get(file, "train_batch_size");
    const int64_t all = args->per_device_train_batch_size * args->gradient_accumulation_steps * snug_args_ranks(args);
    char text[TEXT_SIZE], why[160];
    if (!total || (json_is_string(total) && strcmp(json_string_value(total), "auto") == 0)) return SNUG_OK;
    if (json_is_integer(total) && json_integer_value(total) == all) return SNUG_OK;
    if (!print_leaf(total, text, sizeof text)) text[0] = '\0';
    snprintf(why, sizeof why, "a step has %lld x %lld sequences on %d ranks: use \"auto\"",
             (long long)args->per_device_train_batch_size, (long long)args->gradient_accumulation_steps,
             snug_args_ranks(args));
    return fail(args, SNUG_E_USAGE, "train_batch_size", text, why);
}

/* The run's schedule is that of its arguments. DeepSpeed's warm-up is logarithmic unless its file says linear. */
static void compare_schedule(const struct snug_args *args, const json_t *file) {
    const json_t *section = json_object_get(file, "scheduler"), *params = json_object_get(section, "params");
    const char *type = json_string_value(json_object_get(section, "type")), *ours = args->lr_scheduler_type;
    const char *warmup = json_string_value(json_object_get(params, "warmup_type"));
    const struct schedule *schedule = type ? find_schedule(type) : NULL;
    const char *space, *path = place(args, &space);
    if (!schedule) return;
    const bool same = strcmp(schedule->ours, ours) == 0 ||
                      (strcmp(ours, "constant") == 0 && strcmp(type, "WarmupLR") == 0 && args->warmup_steps == 0);
    if (!same)
        snug_log(args->ctx, SNUG_LOG_WARNING,
                 "--deepspeed%s%s: the learning rate of %s %s; this run's schedule is --lr_scheduler_type %s: for "
                 "DeepSpeed's give --lr_scheduler_type %s",
                 space, path, type, schedule->does, ours, schedule->ours);
    if (args->warmup_steps > 0 && (!warmup || strcmp(warmup, "linear") != 0))
        snug_log(args->ctx, SNUG_LOG_WARNING,
                 "--deepspeed%s%s: the warm-up of %s is logarithmic, unless warmup_type is \"linear\"; this run's is "
                 "linear",
                 space, path, type);
}

static void tell(struct reading *r) {
    struct snug_args *args = r->args;
    const char *space, *path = place(args, &space);
    if (args->deepspeed_told) return; /* arguments are checked more than once */
    if (snug_group_rank(args->group) != 0) return;
    args->deepspeed_told = true;
    if (args->zero_stage && snug_args_ranks(args) == 1) note(r, "zero_optimization.stage (this run has one rank)");
    if (*r->without_effect)
        snug_log(args->ctx, SNUG_LOG_INFO, "--deepspeed%s%s: without effect in snug: %s", space, path,
                 r->without_effect);
    compare_schedule(args, r->file);
}

snug_status snug_args_deepspeed(struct snug_args *args) {
    json_t *file;
    const char *given = args->deepspeed;
    if (!given || strcasecmp(given, "none") == 0) return SNUG_OK;
    RETURN_IF_ERROR(is_object_text(given) ? snug_json_read_text(args->ctx, "--deepspeed", given, strlen(given), &file)
                                          : snug_json_read(args->ctx, NULL, given, &file));
    struct reading reading = {.args = args, .file = file};
    snug_status status = take(&reading, "", file);
    if (status == SNUG_OK) status = check_total(args, file);
    if (status == SNUG_OK) tell(&reading);
    json_decref(file);
    return status;
}
