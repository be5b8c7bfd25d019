/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of weights and of optimizer states. All ranks write each file, which has the bytes of a file that one rank
 * writes: each rank writes its shards of what is divided, and an even share of the rest, at their places. Ranks that do
 * not see rank 0's file send it their shards. A file is complete or absent.
 *
 * group NULL: one rank. in: see io/file.h; only rank 0's counts. A rank that fails ends the writing of all: their
 * status is that of the first one that failed, with its number and cause.
 */
#ifndef SNUG_DIST_SAVE_H
#define SNUG_DIST_SAVE_H

#include "dist/process_group.h"
#include "model/weight_files.h"
#include "model/weights.h"

/* All parameters, in their stored types, those that are narrowed as F32, with the values of source where it has them,
 * in these files and their index. At any moment the folder has an older model or the new one, except on file systems
 * without hard links, where it has no index for a moment if both have as many files. Files that the new model does not
 * have stay. A value that is not finite is SNUG_E_NUMERIC. */
snug_status snug_weights_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                              const struct snug_weight_files *files, const struct snug_program *program,
                              const struct snug_memory *memory, const struct snug_weight_source *source);
/* The adapters and the modules saved with them, alone, under PEFT's names. */
snug_status snug_adapter_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                              const char *name, const struct snug_program *program, const struct snug_memory *memory);
/* The parameters whose names begin with prefix, alone, and without it. */
snug_status snug_module_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                             const char *name, const struct snug_program *program, const struct snug_memory *memory,
                             const char *prefix);
/* The optimizer's states, by the program's own names. */
snug_status snug_states_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                             const char *name, const struct snug_program *program, const struct snug_memory *memory);

#endif
