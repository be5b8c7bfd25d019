/* SPDX-License-Identifier: Apache-2.0 */
/* --offload and --offload_dir. */
#include <string.h>

#include "train/args.h"

snug_status snug_args_offload(const struct snug_args *args, unsigned *classes) {
    *classes = 0;
    for (const char *text = args->offload; text;) {
        const size_t length = strcspn(text, ",");
        bool known = false;
        for (int i = SNUG_MEMORY_WEIGHTS; i <= SNUG_MEMORY_ACTIVATIONS; i++) {
            const char *name = snug_memory_class_name((snug_memory_class)i);
            if (strlen(name) != length || strncmp(name, text, length) != 0) continue;
            *classes |= 1u << i;
            known = true;
        }
        if (!known)
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "--offload %s: \"%.*s\" is not one of optimizer, gradients, weights, activations",
                             args->offload, (int)length, text);
        text = text[length] ? text + length + 1 : NULL;
    }
    if (args->offload_dir && !*classes)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--offload_dir %s needs --offload, as in --offload optimizer",
                         args->offload_dir);
    return SNUG_OK;
}

const char *snug_args_offload_dir(const struct snug_args *args, bool on_device) {
    if (args->offload_dir || on_device) return args->offload_dir;
    return args->output_dir ? args->output_dir : ".";
}
