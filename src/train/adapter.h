/* SPDX-License-Identifier: Apache-2.0 */
/* The LoRA adapters of a run: those that the arguments describe, or those of a folder. */
#ifndef SNUG_TRAIN_ADAPTER_H
#define SNUG_TRAIN_ADAPTER_H

#include "args/args.h"
#include "io/folder.h"
#include "model/adapters.h"
#include "model/config.h"

/* Whether the folder has adapters and no whole model. */
bool snug_adapter_is_folder(const struct snug_folder *folder);
/* The model that such a folder names. Freed by the caller. */
snug_status snug_adapter_base(snug_context *ctx, const struct snug_folder *folder, char **base);
/* What a run's adapters follow from. */
struct snug_adapter_source {
    const struct snug_args *args;
    const struct snug_config *config;         /* with the task */
    const struct snug_folder *model, *folder; /* without paths: none */
    bool trains, plans;
};
/* *out: NULL if there are none. Freed with snug_adapter_free(). */
snug_status snug_adapter_open(const struct snug_adapter_source *source, struct snug_adapter **out);

#endif
