/* SPDX-License-Identifier: Apache-2.0 */
/* What loading a model and loading adapters share. */
#ifndef SNUG_MODEL_WEIGHTS_IMPL_H
#define SNUG_MODEL_WEIGHTS_IMPL_H

#include "model/draw.h"
#include "model/weights.h"
#include "tokenizer/hash_map.h"

struct snug_loading {
    snug_context *ctx;
    const char *path;
    const struct snug_program *program;
    const struct snug_config *config;
    const struct snug_memory *memory;
    const struct snug_safetensors *files;
    uint64_t seed;
    bool ignore_mismatched_sizes;
    const struct snug_stored_tensor **loaded; /* by parameter: where its values are from, or NULL */
    struct snug_hash_map names;               /* the parameters' */
};

/* Fills elements first … first + count - 1 of a parameter with what make writes, in fp32. */
snug_status snug_parameter_fill(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count,
                                snug_make_fn *make, const void *user);
/* Opens the file `name` of folder as *from, which is zero: sets l's path, files, loaded and names; its ctx and program
   are given. The caller frees names and closes *from, also after a failure. */
snug_status snug_loading_open(struct snug_loading *l, const struct snug_folder *folder, const char *name,
                              struct snug_weight_source *from);
/* Loads a stored tensor into a parameter, and notes it in l->loaded. */
snug_status snug_load_one(const struct snug_loading *l, const struct snug_stored_tensor *stored, size_t index);
/* Whether the decoder is a copy of the word table, and the files have no tensor of its own: gives their numbers. */
bool snug_loading_copies(const struct snug_loading *l, size_t *word, size_t *decoder);

#endif
