/* SPDX-License-Identifier: Apache-2.0 */
/* The backing store of offloaded tensors: the offload file, or a block of host memory that the backend allocated. */
#ifndef SNUG_IO_BACKING_H
#define SNUG_IO_BACKING_H

#include "core/block.h"
#include "io/offload_file.h"

struct snug_backing {
    struct snug_offload_file *file; /* NULL if it is memory, or if nothing is offloaded */
    struct snug_block memory;
};

/* Copies bytes at offset to out, or from values, after all copies that were started before. */
snug_status snug_backing_read(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                              void *out);
snug_status snug_backing_write(snug_context *ctx, const struct snug_backing *backing, int64_t offset, int64_t bytes,
                               const void *values);
/* Waits for the copies from and to the file. */
snug_status snug_backing_drain(snug_context *ctx, const struct snug_backing *backing);
void snug_backing_close(struct snug_backing *backing);

#endif
