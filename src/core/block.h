/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory that may lie on a device, where the host reaches them through copies. */
#ifndef SNUG_CORE_BLOCK_H
#define SNUG_CORE_BLOCK_H

#include <stdint.h>

#include "core/context.h"

struct snug_block {
    uint8_t *base; /* where operations find it */
    int64_t bytes;
    /* Copies between this memory and the host's, after all work on it that was asked for before; NULL where base is the
       host's own. */
    snug_status (*copy)(snug_context *ctx, void *to, const void *from, int64_t bytes);
    /* The same without waiting for it, into a block that the host fills: done when the next copy has returned. */
    snug_status (*copy_later)(snug_context *ctx, void *to, const void *from, int64_t bytes);
    void (*release)(struct snug_block *memory);
};

/* A zeroed mapping of the host, all of it resident when this returns, so that no step ever waits for a page and the
   resident size is the planned one. */
snug_status snug_block_host(snug_context *ctx, int64_t bytes, struct snug_block *out);
/* Gives it back; a zeroed struct is none. */
void snug_block_release(struct snug_block *memory);

/* bytes from the host into memory, or back. */
snug_status snug_block_copy(snug_context *ctx, const struct snug_block *memory, void *to, const void *from,
                            int64_t bytes);

/* From memory into a block that the host fills, where it is found once the next snug_block_copy() has returned. */
snug_status snug_block_copy_later(snug_context *ctx, const struct snug_block *memory, void *to, const void *from,
                                  int64_t bytes);

/* A part of memory as the host sees it: the place itself, or a copy that lives until it is closed. One that was opened
   to be written shows nothing useful before, and stands in memory after it was closed. */
enum snug_view_mode { SNUG_VIEW_READ, SNUG_VIEW_WRITE };
snug_status snug_view_open(snug_context *ctx, const struct snug_block *memory, void *address, int64_t bytes,
                           enum snug_view_mode mode, void **view);
snug_status snug_view_close(snug_context *ctx, const struct snug_block *memory, void *address, int64_t bytes,
                            enum snug_view_mode mode, void *view);

#endif
