/* SPDX-License-Identifier: Apache-2.0 */
#include "io/backing.h"

snug_status snug_backing_open_file(snug_context *ctx, const char *folder, int64_t bytes, struct snug_backing *backing) {
    backing->calls = &snug_offload_file_calls;
    return snug_offload_file_open(ctx, folder, bytes, &backing->file);
}

/* Until then a device may still have to start copies from and to the file. */
static snug_status wait_for_device(snug_context *ctx, const struct snug_backing *backing) {
    return backing->memory.wait ? backing->memory.wait(ctx) : SNUG_OK;
}

snug_status snug_backing_read(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                              void *out) {
    struct snug_offload_file *file = backing->file;
    if (!file) return snug_block_copy(ctx, &backing->memory, out, backing->memory.base + offset, bytes);
    RETURN_IF_ERROR(wait_for_device(ctx, backing));
    return snug_offload_file_wait(ctx, file, snug_offload_file_fetch(file, out, offset, bytes));
}

snug_status snug_backing_write(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                               const void *values) {
    struct snug_offload_file *file = backing->file;
    if (!file) return snug_block_copy(ctx, &backing->memory, backing->memory.base + offset, values, bytes);
    RETURN_IF_ERROR(wait_for_device(ctx, backing));
    return snug_offload_file_wait(ctx, file, snug_offload_file_store(file, values, offset, bytes));
}

snug_status snug_backing_drain(snug_context *ctx, const struct snug_backing *backing) {
    if (!backing->file) return SNUG_OK;
    RETURN_IF_ERROR(wait_for_device(ctx, backing));
    return snug_offload_file_drain(ctx, backing->file);
}

snug_status snug_backing_check(snug_context *ctx, const struct snug_backing *backing) {
    if (!backing->file) return SNUG_OK;
    return backing->memory.base ? snug_offload_file_check(ctx, backing->file)
                                : snug_offload_file_drain(ctx, backing->file);
}

void snug_backing_close(struct snug_backing *backing) {
    snug_offload_file_close(backing->file);
    snug_block_release(&backing->memory);
    *backing = (struct snug_backing){0};
}
