/* SPDX-License-Identifier: Apache-2.0 */
#include "data/lengths.h"

#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"

enum {
    BLOCK_BYTES = 1 << 16, /* of lengths, read at a time */
    BLOCKS = 1 << 13,      /* maximum: with more, from half a billion short texts on, each length is read separately */
    AFTER = 1 << 10,       /* lengths of the data set after the first that are read at a time */
    SPARSE = 16            /* for fewer rows of a block, single reads are faster than reading the block */
};

snug_status snug_lengths_init(snug_context *ctx, const struct snug_dataset *dataset, int64_t capacity,
                              struct snug_lengths *out) {
    const int64_t rows = dataset->cache.rows, size = snug_cache_length_size(dataset->cache.longest);
    *out = (struct snug_lengths){.dataset = dataset, .capacity = capacity};
    if (dataset->after) {
        RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *out->after, (void **)&out->after));
        RETURN_IF_ERROR(snug_lengths_init(ctx, dataset->after, AFTER, out->after));
    }
    while (BLOCK_BYTES >> (out->bits + 1) >= size) out->bits++;
    while (rows >> out->bits >= BLOCKS) out->bits++;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)capacity, sizeof *out->order, (void **)&out->order));
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(rows >> out->bits) + 2, sizeof *out->starts, (void **)&out->starts));
    return snug_alloc(ctx, BLOCK_BYTES, 1, &out->block);
}

void snug_lengths_free(struct snug_lengths *lengths) {
    if (lengths->after) snug_lengths_free(lengths->after);
    free(lengths->after);
    free(lengths->order);
    free(lengths->starts);
    free(lengths->block);
    *lengths = (struct snug_lengths){0};
}

/* Sorts the rows by the block of the cache that they are in: afterwards starts[b] is the end of block b's rows in
   order, and places[i] is the place of rows[i] in its block. */
static int64_t sort_by_block(struct snug_lengths *lengths, const int64_t *rows, int64_t count, int32_t *places) {
    const struct snug_dataset *dataset = lengths->dataset;
    const int64_t blocks = ((dataset->cache.rows - 1) >> lengths->bits) + 1;
    memset(lengths->starts, 0, (size_t)(blocks + 1) * sizeof *lengths->starts);
    for (int64_t i = 0; i < count; i++) lengths->starts[(snug_dataset_place(dataset, rows[i]) >> lengths->bits) + 1]++;
    for (int64_t b = 0; b < blocks; b++) lengths->starts[b + 1] += lengths->starts[b];
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = snug_dataset_place(dataset, rows[i]), block = place >> lengths->bits;
        lengths->order[lengths->starts[block]++] = (int32_t)i;
        places[i] = (int32_t)(place - (block << lengths->bits));
    }
    return blocks;
}

/* The lengths of the rows order[first … end - 1], all of which are in one block, in place of their places. */
static snug_status read_block(snug_context *ctx, struct snug_lengths *lengths, int64_t block, uint32_t first,
                              uint32_t end, int32_t *out) {
    const struct snug_cache *cache = &lengths->dataset->cache;
    const int size = snug_cache_length_size(cache->longest);
    const int64_t start = block << lengths->bits;
    int64_t stop = start + (INT64_C(1) << lengths->bits);
    if (stop > cache->rows) stop = cache->rows;
    if (end - first >= SPARSE && (stop - start) * size <= BLOCK_BYTES) {
        RETURN_IF_ERROR(snug_cache_read_lengths(ctx, cache, start, stop - start, lengths->block));
        for (; first < end; first++) {
            int32_t *length = &out[lengths->order[first]];
            *length = snug_cache_length_at(lengths->block, size, *length);
        }
    }
    for (; first < end; first++) {
        int32_t *length = &out[lengths->order[first]];
        RETURN_IF_ERROR(snug_cache_read_lengths(ctx, cache, start + *length, 1, lengths->block));
        *length = snug_cache_length_at(lengths->block, size, 0);
    }
    return SNUG_OK;
}

static snug_status read_own(snug_context *ctx, struct snug_lengths *lengths, const int64_t *rows, int64_t count,
                            int32_t *out) {
    const struct snug_dataset *dataset = lengths->dataset;
    const int64_t longest = dataset->cache.longest;
    if (dataset->dummy_most || dataset->cache.tokens == dataset->cache.rows * longest) {
        for (int64_t i = 0; i < count; i++)
            out[i] = dataset->dummy_most ? snug_dataset_dummy_length(dataset, snug_dataset_place(dataset, rows[i]))
                                         : (int32_t)longest;
        return SNUG_OK;
    }
    const int64_t blocks = sort_by_block(lengths, rows, count, out);
    for (int64_t b = 0; b < blocks; b++) {
        const uint32_t first = b ? lengths->starts[b - 1] : 0, end = lengths->starts[b];
        if (first < end) RETURN_IF_ERROR(read_block(ctx, lengths, b, first, end, out));
    }
    return SNUG_OK;
}

/* The lengths of rows of which some are those of the data set after the first: in parts that are of one of them. */
static snug_status read_parts(snug_context *ctx, struct snug_lengths *lengths, const int64_t *rows, int64_t count,
                              int32_t *out) {
    const int64_t own = snug_dataset_own_rows(lengths->dataset);
    int64_t part[AFTER], taken;
    for (int64_t first = 0; first < count; first += taken) {
        const bool after = rows[first] >= own;
        for (taken = 0; taken < AFTER && first + taken < count && (rows[first + taken] >= own) == after; taken++)
            part[taken] = rows[first + taken] - (after ? own : 0);
        RETURN_IF_ERROR(after ? snug_lengths_read(ctx, lengths->after, part, taken, out + first)
                              : read_own(ctx, lengths, part, taken, out + first));
    }
    return SNUG_OK;
}

snug_status snug_lengths_read(snug_context *ctx, struct snug_lengths *lengths, const int64_t *rows, int64_t count,
                              int32_t *out) {
    return (lengths->after ? read_parts : read_own)(ctx, lengths, rows, count, out);
}
