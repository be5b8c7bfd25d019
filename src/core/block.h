/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory. A block may be on a device; the host then accesses it by copies. */
#ifndef SNUG_CORE_BLOCK_H
#define SNUG_CORE_BLOCK_H

#include <stdint.h>

#include "core/context.h"

struct snug_block {
    uint8_t *base; /* the address that operations use */
    int64_t bytes;
    /* Copies between this memory and host memory, after all previously started work on it; NULL if base is in host
     * memory. */
    snug_status (*copy)(snug_context *ctx, void *to, const void *from, int64_t bytes);
    /* As copy, asynchronously, into a SNUG_BLOCK_HOST block: complete when the next copy has returned. */
    snug_status (*copy_later)(snug_context *ctx, void *to, const void *from, int64_t bytes);
    /* Waits for all previously started work of the device; NULL if base is in host memory that no device uses. */
    snug_status (*wait)(snug_context *ctx);
    void (*release)(struct snug_block *memory);
};

/* A zeroed mapping in host memory. All its pages are resident when this returns, so that no step has a page fault and
 * the resident size is the planned size. */
snug_status snug_block_host(snug_context *ctx, int64_t bytes, struct snug_block *out);
/* Frees the block; does nothing for a zeroed struct. */
void snug_block_release(struct snug_block *memory);

/* Copies bytes from host memory into the block, or back. */
snug_status snug_block_copy(snug_context *ctx, const struct snug_block *memory, void *to, const void *from,
                            int64_t bytes);

/* Copies from memory into a SNUG_BLOCK_HOST block; complete when the next snug_block_copy() has returned. */
snug_status snug_block_copy_later(snug_context *ctx, const struct snug_block *memory, void *to, const void *from,
                                  int64_t bytes);

#endif
