/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights of a model are stored as 4-bit codes (core/quantized.h): quantization_config of config.json, as
   transformers writes it for bitsandbytes. */
#ifndef SNUG_MODEL_QUANTIZATION_H
#define SNUG_MODEL_QUANTIZATION_H

#include "model/family.h"

/* config->quantized, from r's quantization_config, if it has one. */
void snug_quantization_read(struct snug_reading *r);
/* Quantizes the model while it is loaded. skip: names of modules that are not, separated by commas, or NULL: none but
   those of snug_program_quantize(). */
snug_status snug_config_quantize(snug_context *ctx, struct snug_config *config, const struct snug_quantized *form,
                                 const char *skip);

/* Marks the weights that config->quantized is for: those of all linears, as in transformers, but the task head's and
   adapters', those that are embedding tables too, and those of skipped modules. trains: in a training each of them must
   be frozen, SNUG_E_USAGE otherwise. Call it after freezing and before snug_stages(). */
snug_status snug_program_quantize(struct snug_program *program, const struct snug_config *config, bool trains);
/* Writes to the json of a quantized config which matrices of program are not quantized, and the type of the values. */
snug_status snug_config_record_quantized(snug_context *ctx, struct snug_config *config,
                                         const struct snug_program *program);

#endif
