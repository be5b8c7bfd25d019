/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backing store of offloaded tensors: the offload file, or a block of host memory that the backend allocated.
 *
 * A device copies from and to the file through bounce buffers, a small block of page-locked host memory. Its copies are
 * asynchronous and ordered by its streams, so the functions below first wait for the device where they must.
 */
#ifndef SNUG_IO_BACKING_H
#define SNUG_IO_BACKING_H

#include "core/block.h"
#include "io/offload_file.h"

struct snug_backing {
    struct snug_offload_file *file;              /* NULL if it is memory, or if nothing is offloaded */
    const struct snug_offload_file_calls *calls; /* of the file */
    struct snug_block memory;                    /* the backing store; with a file a device's bounce buffers, or none */
};

/* Opens the offload file: `bytes` in folder. */
snug_status snug_backing_open_file(snug_context *ctx, const char *folder, int64_t bytes, struct snug_backing *backing);
/* Copies bytes at offset to out, or from values, after all copies that were started before. */
snug_status snug_backing_read(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                              void *out);
snug_status snug_backing_write(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                               const void *values);
/* Waits for the copies from and to the file, a device's included, and returns the status of the first one that failed.
 */
snug_status snug_backing_drain(snug_context *ctx, const struct snug_backing *backing);
/* As snug_backing_drain(), but does not wait for a device: returns the status of its copies that are done. */
snug_status snug_backing_check(snug_context *ctx, const struct snug_backing *backing);
void snug_backing_close(struct snug_backing *backing);

#endif
