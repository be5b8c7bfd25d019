/* SPDX-License-Identifier: Apache-2.0 */
/* A token cache. Where the first byte is even, its checksums are corrected, so that the parser reads what they protect.
 */
#define XXH_INLINE_ALL
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/cache.h"
#include "fuzz.h"

enum { LIMIT = 1000 }; /* of ids */

static uint64_t sum_of(const uint8_t *file, size_t size, uint64_t offset, uint64_t length) {
    return offset > size || length > size - offset ? 0 : XXH3_64bits(file + offset, length);
}

static void seal(uint8_t *file, size_t size) {
    struct snug_cache_header header;
    memcpy(&header, file, sizeof header);
    header.magic = SNUG_CACHE_MAGIC;
    header.key_low = header.key_high = 0;
    header.rows_sum = sum_of(file, size, sizeof header, header.rows_size);
    header.index_sum = sum_of(file, size, sizeof header + header.rows_size, header.index_size);
    const uint64_t lengths = sizeof header + header.rows_size + header.index_size,
                   lengths_size = (uint64_t)header.rows * (uint64_t)snug_cache_length_size(header.longest);
    header.lengths_sum = sum_of(file, size, lengths, lengths_size);
    header.labels_sum = sum_of(file, size, lengths + lengths_size, header.labels_size);
    header.sum = XXH3_64bits(&header, offsetof(struct snug_cache_header, sum));
    memcpy(file, &header, sizeof header);
}

static void read_rows(snug_context *ctx, const struct snug_cache *cache) {
    struct snug_row_buffer buffer = {0};
    const struct snug_cache_row *row;
    const uint32_t *labels;
    const int32_t *ids;
    for (int64_t i = 0; i < cache->rows; i++) {
        struct snug_cache_entry found, *entry = &found;
        FUZZ_CHECK(snug_cache_read(ctx, cache, i, &buffer, entry, &row, &labels, &ids) == SNUG_OK);
        FUZZ_CHECK(row->first_count >= 0 && (uint32_t)row->first_count <= entry->length);
        FUZZ_CHECK(entry->length <= cache->longest);
        for (uint32_t k = 0; k < entry->length; k++) FUZZ_CHECK(ids[k] >= 0 && ids[k] < LIMIT);
        for (uint32_t k = 0; k < entry->labels && !snug_label_is_value(labels, entry->labels); k++)
            FUZZ_CHECK(strlen(snug_raw_labels_text(&cache->raw, labels[k])) < cache->raw.text_size);
    }
    free(buffer.data);
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    static uint8_t file[1 << 16];
    static int fd;
    struct snug_cache cache;
    const char *problem;
    if (!size || size > sizeof file) return;
    if (!fd) fd = memfd_create("cache", MFD_CLOEXEC);
    memcpy(file, data + 1, --size);
    if (data[0] % 2 == 0 && size >= sizeof(struct snug_cache_header)) seal(file, size);
    FUZZ_CHECK(ftruncate(fd, (off_t)size) == 0 && pwrite(fd, file, size, 0) == (ssize_t)size);
    const snug_status status =
        snug_cache_open(ctx, fcntl(fd, F_DUPFD_CLOEXEC, 0), (XXH128_hash_t){0, 0}, LIMIT, 1, &cache, &problem);
    if (!fuzz_accepts(ctx, status) || problem) return;
    read_rows(ctx, &cache);
    snug_cache_close(&cache);
}
