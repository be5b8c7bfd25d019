/* SPDX-License-Identifier: Apache-2.0 */
/* A model's weights, from safetensors files to the arena, by their Hugging Face names; dist/save.h writes them. */
#ifndef SNUG_MODEL_WEIGHTS_H
#define SNUG_MODEL_WEIGHTS_H

#include "io/folder.h"
#include "io/safetensors.h"
#include "model/config.h"

/* The opened files that narrowed parameters were loaded from, if these have values that the arena's type rounds. Saving
   reads them there. Zeroed: none. */
struct snug_weight_source {
    struct snug_safetensors files;
    char *path;                           /* for messages */
    const struct snug_stored_tensor **of; /* by parameter: has its first elements, or all; NULL: the arena has them */
    /* NULL, or gives elements of a parameter in its saved type: then nothing is read in the arena. */
    snug_status (*make)(void *user, size_t parameter, int64_t first, int64_t count, void *values);
    void *user;
};
void snug_weight_source_close(struct snug_weight_source *source);

/* Whether a stored tensor has the parameter's shape, with so many rows. */
bool snug_weight_has_shape(const struct snug_stored_tensor *stored, const struct snug_parameter *parameter,
                           int64_t rows);

/* Reads or writes values first … first + count - 1 of parameter as fp32, in any memory and any stored type; written
   values are rounded to nearest even. program must have been placed. */
snug_status snug_parameter_read(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count, float *values);
snug_status snug_parameter_write(const struct snug_program *program, const struct snug_memory *memory,
                                 const struct snug_parameter *parameter, int64_t first, int64_t count,
                                 const float *values);

/* Initialises parameter as transformers' _init_weights does: normal(0, initializer_range) for matrices and tables
 * (except the family's zero row), 0 for biases, 1 for norms. The values follow from seed and the parameter's name.
 */
snug_status snug_weights_init(const struct snug_program *program, const struct snug_config *config,
                              const struct snug_memory *memory, const struct snug_parameter *parameter, uint64_t seed);

/* The name of the weights' file in folder, or of its index; if there is neither, the message says what to do. */
snug_status snug_weights_find(snug_context *ctx, const struct snug_folder *folder, const char **name);
/* Whether folder has weights that snug_weights_load() can open; if not, the message says what to do. */
snug_status snug_weights_look(snug_context *ctx, const struct snug_folder *folder);
/* Whether most values of the folder's weights are BF16, and whether all matrices and tables are. */
snug_status snug_weights_are_bf16(snug_context *ctx, const struct snug_folder *folder, bool *most, bool *matrices);
/* If the folder has a decoder of masked LM that differs from the word table, although config ties them: gives config
   one (snug_config_untie()), with a warning. Before the model is built for that task. */
snug_status snug_weights_untie(snug_context *ctx, const struct snug_folder *folder, struct snug_config *config);
/* Fills all parameters from folder's model.safetensors or its index. Takes weights saved from any
   class of the config's family, with or without its prefix and under old names, see model/family.h. Missing parameters
   are initialised and named in the log, as are tensors that the model does not use. Two tensors of a parameter with
   different values are SNUG_E_INPUT, naming both; of the decoder's bias, a warning. A wrong shape is SNUG_E_INPUT
   naming tensor, found and expected, unless it is the head's and ignore_mismatched_sizes. A NaN or infinity, also one
   that results from rounding to BF16 or F16, is SNUG_E_INPUT. source: replaced if the weights were loaded. */
snug_status snug_weights_load(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory, uint64_t seed,
                              bool ignore_mismatched_sizes, struct snug_weight_source *source);
/* The optimizer's states, by the program's own names. */
snug_status snug_states_load(snug_context *ctx, const struct snug_folder *in, const char *name,
                             const struct snug_program *program, const struct snug_memory *memory);

#endif
