/* SPDX-License-Identifier: Apache-2.0 */
#include "generate/pages.h"

#include <stdlib.h>

snug_status snug_pages_open(snug_context *ctx, int64_t count, struct snug_pages *out) {
    *out = (struct snug_pages){.count = count, .left = count};
    RETURN_IF_ERROR(snug_alloc(ctx, 2 * (size_t)count, sizeof *out->users, (void **)&out->users));
    out->free = out->users + count;
    for (int64_t i = 0; i < count; i++) out->free[i] = (int32_t)(count - 1 - i); /* page 0 is taken first */
    return SNUG_OK;
}

void snug_pages_close(struct snug_pages *pages) {
    free(pages->users);
    *pages = (struct snug_pages){0};
}

int32_t snug_pages_take(struct snug_pages *pages) {
    if (!pages->left) return -1;
    const int32_t page = pages->free[--pages->left];
    pages->users[page] = 1;
    if (pages->count - pages->left > pages->most) pages->most = pages->count - pages->left;
    return page;
}

void snug_pages_share(struct snug_pages *pages, int32_t page) { pages->users[page]++; }

void snug_pages_leave(struct snug_pages *pages, int32_t page) {
    if (--pages->users[page] == 0) pages->free[pages->left++] = page;
}
