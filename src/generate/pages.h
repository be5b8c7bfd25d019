/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of a cache of keys and values: which are free, and how many sequences share each one. */
#ifndef SNUG_GENERATE_PAGES_H
#define SNUG_GENERATE_PAGES_H

#include "core/context.h"

struct snug_pages {
    int32_t *users;            /* [count] sequences that a page belongs to */
    int32_t *free;             /* [count] the first `left` are the free pages */
    int64_t count, left, most; /* most: pages in use at one time, so far */
};

snug_status snug_pages_open(snug_context *ctx, int64_t count, struct snug_pages *out);
void snug_pages_close(struct snug_pages *pages);
/* A free page, with one user; -1: there is none. */
int32_t snug_pages_take(struct snug_pages *pages);
/* A further user of a page; one user less: without any it is free. */
void snug_pages_share(struct snug_pages *pages, int32_t page);
void snug_pages_leave(struct snug_pages *pages, int32_t page);

#endif
