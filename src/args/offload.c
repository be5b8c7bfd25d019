/* SPDX-License-Identifier: Apache-2.0 */
/* --offload, --offload_ratio, --offload_update and --offload_dir. */
#include <string.h>

#include "args/args.h"
#include "backend/backend.h"

static bool is_word(const char *name, const char *text, size_t length) {
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

/* The bits of the class that length characters of text name; 0 if there is none. */
static unsigned class_of(const char *text, size_t length) {
    for (int i = SNUG_MEMORY_WEIGHTS; i <= SNUG_MEMORY_ACTIVATIONS; i++)
        if (is_word(snug_memory_class_name((snug_memory_class)i), text, length)) return 1u << i;
    if (is_word("embeddings", text, length)) return SNUG_OFFLOAD_TABLES;
    return is_word("master_weights", text, length) ? SNUG_OFFLOAD_MASTERS : 0;
}

/* Whether the backing store has all that an update reads and writes. */
static bool is_for_host(unsigned classes) {
    const unsigned all = 1u << SNUG_MEMORY_OPTIMIZER | 1u << SNUG_MEMORY_GRADIENTS;
    return (classes & all) == all && classes & (1u << SNUG_MEMORY_WEIGHTS | SNUG_OFFLOAD_MASTERS);
}

snug_status snug_args_offload(const struct snug_args *args, unsigned *classes) {
    *classes = 0;
    for (const char *text = args->offload; text;) {
        const size_t length = strcspn(text, ",");
        const unsigned known = class_of(text, length);
        if (!known)
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "--offload %s: \"%.*s\" is not one of optimizer, gradients, weights, master_weights, "
                             "embeddings, activations",
                             args->offload, (int)length, text);
        *classes |= known;
        text = text[length] ? text + length + 1 : NULL;
    }
    if (*classes & SNUG_OFFLOAD_MASTERS && ((!args->bf16 && !args->fp16) || strcmp(args->dtype, "bfloat16") == 0))
        return snug_fail(
            args->ctx, SNUG_E_USAGE,
            "--offload %s: master_weights are fp32 weights beside 16-bit copies, and this run has none: use "
            "--bf16 or --fp16, or offload weights",
            args->offload);
    if (args->offload_ratio < 1 && !*classes)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--offload_ratio %g needs --offload, as in --offload optimizer",
                         args->offload_ratio);
    if (args->offload_update > 0 && !is_for_host(*classes))
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--offload_update %g: the host updates weights that are offloaded with their gradients and "
                         "states: use --offload optimizer,gradients,weights, or master_weights instead of weights",
                         args->offload_update);
    if (args->offload_update > 0 && args->offload_dir)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--offload_update %g: the host updates what is in host memory: leave --offload_dir out",
                         args->offload_update);
    if (args->offload_update > 0 && args->update_in_backward)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--offload_update %g and --update_in_backward: the host cannot update in backward: leave one "
                         "of them out",
                         args->offload_update);
    if (args->offload_dir && !*classes)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--offload_dir %s needs --offload, as in --offload optimizer",
                         args->offload_dir);
    return SNUG_OK;
}

/* Weights and gradients are read by the sums over ranks, too, which have no staging buffers yet. */
const char *snug_args_alone(const struct snug_args *args) {
    const unsigned divided = 1u << SNUG_MEMORY_OPTIMIZER | 1u << SNUG_MEMORY_ACTIVATIONS;
    unsigned classes;
    if (args->update_in_backward) return "--update_in_backward";
    if (snug_args_offload(args, &classes) != SNUG_OK) return NULL;
    if (classes & ~divided) return "--offload of other tensors than optimizer and activations";
    return NULL;
}

const char *snug_args_offload_dir(const struct snug_args *args, bool on_device) {
    if (args->offload_dir || on_device) return args->offload_dir;
    return args->output_dir ? args->output_dir : ".";
}
