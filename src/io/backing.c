/* SPDX-License-Identifier: Apache-2.0 */
#include "io/backing.h"

snug_status snug_backing_read(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                              void *out) {
    struct snug_offload_file *file = backing->file;
    if (file) return snug_offload_file_wait(ctx, file, snug_offload_file_fetch(file, out, offset, bytes));
    return snug_block_copy(ctx, &backing->memory, out, backing->memory.base + offset, bytes);
}

snug_status snug_backing_write(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                               const void *values) {
    struct snug_offload_file *file = backing->file;
    if (file) return snug_offload_file_wait(ctx, file, snug_offload_file_store(file, values, offset, bytes));
    return snug_block_copy(ctx, &backing->memory, backing->memory.base + offset, values, bytes);
}

snug_status snug_backing_drain(snug_context *ctx, const struct snug_backing *backing) {
    return backing->file ? snug_offload_file_drain(ctx, backing->file) : SNUG_OK;
}

void snug_backing_close(struct snug_backing *backing) {
    snug_offload_file_close(backing->file);
    snug_block_release(&backing->memory);
    *backing = (struct snug_backing){0};
}
