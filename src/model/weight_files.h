/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model's weights, as transformers' save_pretrained() names and fills them: model.safetensors, or shards
 * of at most --max_shard_size, model-00001-of-00003.safetensors, with model.safetensors.index.json.
 */
#ifndef SNUG_MODEL_WEIGHT_FILES_H
#define SNUG_MODEL_WEIGHT_FILES_H

#include "io/file.h"
#include "program/program.h"

#define SNUG_WEIGHTS "model.safetensors"
#define SNUG_WEIGHTS_INDEX "model.safetensors.index.json"
/* One of which a folder of a model has (io/manifest.h). */
#define SNUG_WEIGHTS_ANY SNUG_WEIGHTS "|" SNUG_WEIGHTS_INDEX

enum { SNUG_WEIGHT_FILE_NAME = 80 };

struct snug_weight_files {
    size_t count;    /* 1: model.safetensors, without an index */
    size_t *file_of; /* by parameter; its second name (`also`) is in the same file */
    int64_t bytes;   /* of all tensors */
};

/* Whether a file of this name holds weights of a model, or their index. */
bool snug_weight_files_has(const char *name);
/* Divides the parameters, in their order, into files of at most `most` bytes of tensors; a larger tensor has a file of
   its own. Freed with snug_weight_files_free(). */
snug_status snug_weight_files_plan(const struct snug_program *program, int64_t most, struct snug_weight_files *out);
void snug_weight_files_free(struct snug_weight_files *files);
void snug_weight_files_name(const struct snug_weight_files *files, size_t number, char name[SNUG_WEIGHT_FILE_NAME]);
/* The name that one of several files has while a model of as many files is replaced (dist/save.h). */
void snug_weight_files_other_name(const struct snug_weight_files *files, size_t number,
                                  char name[SNUG_WEIGHT_FILE_NAME]);
/* Lists the names of all files that a save writes, with their other names: at most snug_weight_files_names(). They are
   stored in names. */
static inline size_t snug_weight_files_names(const struct snug_weight_files *files) { return 2 * files->count + 1; }
size_t snug_weight_files_list(const struct snug_weight_files *files, char (*names)[SNUG_WEIGHT_FILE_NAME],
                              const char **list);
/* The type that a parameter is saved in: its stored one; a narrowed parameter has the file's values. */
static inline enum snug_dtype snug_weight_dtype(const struct snug_program *program,
                                                const struct snug_parameter *parameter) {
    const struct snug_tensor *tensor = &program->tensors[parameter->tensor];
    return tensor->narrowed ? SNUG_F32 : tensor->dtype;
}
/* Writes model.safetensors.index.json; call it with several files, when all of them are there. others: by their other
   names. */
snug_status snug_weight_files_index(const struct snug_program *program, const struct snug_weight_files *files,
                                    bool others, const struct snug_folder *in);

#endif
