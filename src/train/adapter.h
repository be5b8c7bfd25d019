/* SPDX-License-Identifier: Apache-2.0 */
/* The LoRA adapters of a run: those that the arguments describe, or those of a folder. */
#ifndef SNUG_TRAIN_ADAPTER_H
#define SNUG_TRAIN_ADAPTER_H

#include "args/args.h"
#include "io/folder.h"
#include "model/adapters.h"
#include "model/config.h"

/* Whether adapter_name_or_path is given, or model_name_or_path has adapters and no whole model. */
bool snug_adapter_is_named(const struct snug_args *args);
/* Opens the model's folder and its adapters', which stays closed if there is none. An adapter's folder in place of the
   model's names its model. */
snug_status snug_adapter_find_folders(const struct snug_args *args, struct snug_folder *model,
                                      struct snug_folder *adapter);
/* The configuration: the adapter's own, where snug wrote one; else the model's, with the task that PEFT recorded and as
   many classes as the adapter's classifier has. */
snug_status snug_adapter_config(snug_context *ctx, const struct snug_folder *model, const struct snug_folder *adapter,
                                struct snug_config *out);

/* What a run's adapters follow from. */
struct snug_adapter_source {
    const struct snug_args *args;
    struct snug_config *config;               /* with the task; it may get a decoder of its own */
    const struct snug_folder *model, *folder; /* without paths: none */
    bool trains, plans;
};
/* *out: NULL if there are none. Freed with snug_adapter_free(). */
snug_status snug_adapter_open(const struct snug_adapter_source *from, struct snug_adapter **out);

#endif
