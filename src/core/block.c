/* SPDX-License-Identifier: Apache-2.0 */
#include "core/block.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void unmap(struct snug_block *memory) { munmap(memory->base, (size_t)memory->bytes); }

/* qemu-user 7.2 reports success and does nothing, so the last page is looked at. */
static bool has_populated(uint8_t *base, size_t size) {
#ifdef MADV_POPULATE_WRITE
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char resident = 0;
    if (madvise(base, size, MADV_POPULATE_WRITE) != 0) return false;
    return mincore(base + (size - 1) / page * page, 1, &resident) == 0 && (resident & 1);
#else
    (void)base, (void)size;
    return false;
#endif
}

snug_status snug_block_host(snug_context *ctx, int64_t bytes, struct snug_block *out) {
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    *out = (struct snug_block){0};
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return snug_fail(ctx, SNUG_E_MEMORY, "the allocation of %zu bytes failed: the system has no memory left for it",
                         size);
    *out = (struct snug_block){.base = mapped, .bytes = (int64_t)size, .release = unmap};
    madvise(mapped, size, MADV_HUGEPAGE); /* only a hint: fewer page-table walks */
    if (has_populated(out->base, size)) return SNUG_OK;
    for (size_t i = 0; i < size; i += 4096) out->base[i] = 0;
    return SNUG_OK;
}

void snug_block_release(struct snug_block *memory) {
    if (memory->base) memory->release(memory);
    *memory = (struct snug_block){0};
}

snug_status snug_block_copy(snug_context *ctx, const struct snug_block *memory, void *to, const void *from,
                            int64_t bytes) {
    if (memory->copy) return memory->copy(ctx, to, from, bytes);
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
    return SNUG_OK;
}

snug_status snug_block_copy_later(snug_context *ctx, const struct snug_block *memory, void *to, const void *from,
                                  int64_t bytes) {
    if (memory->copy_later) return memory->copy_later(ctx, to, from, bytes);
    return snug_block_copy(ctx, memory, to, from, bytes);
}
