/* SPDX-License-Identifier: Apache-2.0 */
/* Writes safetensors files for tests. */
#ifndef SNUG_TESTS_WRITE_TENSORS_H
#define SNUG_TESTS_WRITE_TENSORS_H

#include <stdlib.h>

#include "io/safetensors.h"

/* A tensor with its values. */
struct values_to_write {
    const char *name;
    enum snug_dtype dtype;
    int dims;
    int64_t shape[SNUG_SAFETENSORS_DIMS];
    const void *data;
};

static inline snug_status write_values(snug_context *ctx, const char *path, const struct values_to_write *values,
                                       const struct snug_tensor_entry *entries, size_t count,
                                       const struct snug_safetensors_head *head) {
    struct snug_writer writer;
    RETURN_IF_ERROR(snug_writer_open(ctx, NULL, path, &writer));
    const int fd = fileno(writer.file);
    snug_status status = snug_write_at(ctx, fd, path, head->text, head->bytes, 0);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        int64_t bytes = snug_dtype_size(values[i].dtype);
        for (int k = 0; k < values[i].dims; k++) bytes *= values[i].shape[k];
        status = snug_write_at(ctx, fd, path, values[i].data, bytes, entries[i].offset);
    }
    if (status == SNUG_OK) return snug_writer_commit(ctx, &writer);
    snug_writer_abandon(&writer);
    return status;
}

static inline snug_status write_tensors(snug_context *ctx, const char *path, const struct values_to_write *values,
                                        size_t count) {
    struct snug_tensor_entry *entries = calloc(count + 1, sizeof *entries);
    struct snug_safetensors_head head;
    if (!entries) return SNUG_E_MEMORY;
    for (size_t i = 0; i < count; i++) {
        entries[i] =
            (struct snug_tensor_entry){.name = values[i].name, .dtype = values[i].dtype, .dims = values[i].dims};
        for (int k = 0; k < values[i].dims; k++) entries[i].shape[k] = values[i].shape[k];
    }
    snug_status status = snug_safetensors_lay_out(ctx, entries, count, &head);
    if (status == SNUG_OK) status = write_values(ctx, path, values, entries, count, &head);
    free(head.text);
    free(entries);
    return status;
}

#endif
