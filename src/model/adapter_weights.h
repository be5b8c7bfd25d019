/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the weights of adapters. */
#ifndef SNUG_MODEL_ADAPTER_WEIGHTS_H
#define SNUG_MODEL_ADAPTER_WEIGHTS_H

#include "model/weights.h"

/* Fills the adapters and the modules that are saved with them, from folder's adapter_model.safetensors: all of them,
   and nothing else may be in it. Before that, snug_weights_load() fills the base model. */
snug_status snug_adapter_load(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory);
/* Fills what new adapters take from the weights in folder: DoRA's magnitudes with their lengths, as the arena stores
   them; rows of tokens with theirs. Before that, snug_weights_load() has filled the base model from it. */
snug_status snug_adapter_init(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory, uint64_t seed);

/* A digest of a model's weights, to which adapters belong: of the names, types and shapes of all tensors, and of values
   at the beginning, in the middle and at the end of each. */
snug_status snug_weights_digest(snug_context *ctx, const struct snug_folder *folder, uint64_t *out);

/* The same of the adapters in their folder. */
snug_status snug_adapter_digest(snug_context *ctx, const struct snug_folder *folder, uint64_t *out);

#endif
