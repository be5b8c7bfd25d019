/* SPDX-License-Identifier: Apache-2.0 */
/* A model's weights, between safetensors files and the arena, by their Hugging Face names. */
#ifndef SNUG_MODEL_WEIGHTS_H
#define SNUG_MODEL_WEIGHTS_H

#include "io/folder.h"
#include "model/config.h"

int64_t snug_parameter_count(const struct snug_parameter *parameter);
/* Reads or writes values first … first + count - 1 of parameter as fp32, wherever they stand and whatever they are
   stored in; written ones are rounded to nearest even. program must have been placed. */
snug_status snug_parameter_read(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count, float *values);
snug_status snug_parameter_write(const struct snug_program *program, const struct snug_memory *memory,
                                 const struct snug_parameter *parameter, int64_t first, int64_t count,
                                 const float *values);

/* Initialises parameter as transformers' _init_weights does: normal(0, initializer_range) for matrices and tables (with
   a zero row for the padding token), 0 for biases, 1 for norms. The values follow from seed and the parameter's name.
 */
snug_status snug_weights_init(const struct snug_program *program, const struct snug_config *config,
                              const struct snug_memory *memory, const struct snug_parameter *parameter, uint64_t seed);

/* Whether folder has weights that snug_weights_load() can open; if not, what can be done about it. */
snug_status snug_weights_look(snug_context *ctx, const struct snug_folder *folder);
/* Fills all parameters from folder's model.safetensors or its index. Takes weights saved from BertModel,
   BertForSequenceClassification, BertForMaskedLM or BertForPreTraining, with or without the "bert." prefix, with old
   gamma and beta names. What the file lacks is initialised, and named in the log; so are tensors that the model does
   not use. A wrong shape is SNUG_E_INPUT naming tensor, found and expected, unless it is the head's and
   ignore_mismatched_sizes. A NaN or infinity, also one that only rounding to BF16 or F16 makes, is SNUG_E_INPUT. */
snug_status snug_weights_load(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory, uint64_t seed,
                              bool ignore_mismatched_sizes);
/* Writes all parameters in the types that they are stored in. One that is not finite is SNUG_E_NUMERIC. in: see
   io/file.h. */
snug_status snug_weights_save(snug_context *ctx, const struct snug_folder *in, const char *name,
                              const struct snug_program *program, const struct snug_memory *memory);

/* The optimizer's states, by the program's own names. */
snug_status snug_states_save(snug_context *ctx, const struct snug_folder *in, const char *name,
                             const struct snug_program *program, const struct snug_memory *memory);
snug_status snug_states_load(snug_context *ctx, const struct snug_folder *in, const char *name,
                             const struct snug_program *program, const struct snug_memory *memory);

#endif
