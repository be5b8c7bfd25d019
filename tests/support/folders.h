/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that take an opened folder, for tests that know its path. */
#ifndef SNUG_TESTS_FOLDERS_H
#define SNUG_TESTS_FOLDERS_H

#include <fts.h>

#include "io/folder_write.h"
#include "model/weights.h"

static inline snug_status folder_verify(snug_context *ctx, const char *path) {
    struct snug_folder folder;
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &folder));
    const snug_status status = snug_manifest_verify(ctx, &folder, (const char *const[]){NULL});
    snug_folder_close(&folder);
    return status;
}

static inline snug_status weights_look(snug_context *ctx, const char *path) {
    struct snug_folder folder;
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &folder));
    const snug_status status = snug_weights_look(ctx, &folder);
    snug_folder_close(&folder);
    return status;
}

static inline snug_status weights_load(snug_context *ctx, const char *path, const struct snug_program *program,
                                       const struct snug_config *config, const struct snug_memory *memory,
                                       uint64_t seed, bool ignore_mismatched_sizes) {
    struct snug_folder folder;
    struct snug_weight_source source = {0};
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &folder));
    const snug_status status =
        snug_weights_load(ctx, &folder, program, config, memory, seed, ignore_mismatched_sizes, &source);
    snug_weight_source_close(&source);
    snug_folder_close(&folder);
    return status;
}

static inline snug_status tokenizer_save(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *path) {
    struct snug_folder folder;
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &folder));
    const snug_status status = snug_tokenizer_save(ctx, tokenizer, &folder);
    snug_folder_close(&folder);
    return status;
}

/* Bytes of the files in a folder and below it. */
static inline int64_t tree_bytes(const char *path) {
    char *const roots[] = {(char *)(uintptr_t)path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int64_t bytes = 0;
    for (FTSENT *entry; walk && (entry = fts_read(walk));)
        if (entry->fts_info == FTS_F) bytes += entry->fts_statp->st_size;
    if (walk) fts_close(walk);
    return bytes;
}

#endif
