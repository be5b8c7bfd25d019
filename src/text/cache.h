/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token cache: one file, written in one pass in constant memory, checked as a whole when opened.
 *
 *   header    struct snug_cache_header, 128 bytes, with an XXH3-64 of each part and of itself
 *   rows      each a struct snug_cache_row, its raw labels, its ids; padded to 8 bytes
 *   index     one struct snug_cache_entry a row
 *   labels    one struct snug_raw_label a raw label, then their texts, each with its NUL
 *
 * Numbers are the machine's own: the file never leaves it. Only the index is mapped; rows are read where they lie, so
 * that a data set of any size adds nothing to the resident memory but its index.
 */
#ifndef SNUG_TEXT_CACHE_H
#define SNUG_TEXT_CACHE_H

#include <xxhash.h>

#include "io/file.h"
#include "text/labels.h"

#define SNUG_CACHE_MAGIC UINT64_C(0x324b4f5447554e53) /* "SNUGTOK2" as little-endian machines write it */

struct snug_cache_header {
    uint64_t magic;
    uint64_t key_low, key_high;
    int64_t rows, tokens, longest, truncated;
    uint64_t rows_size, index_size, labels_size;
    uint32_t label_count, label_form;
    uint64_t rows_sum, index_sum, labels_sum;
    uint32_t malformed, added; /* lines of malformed UTF-8, rows with keys that were left out; or UINT32_MAX */
    uint64_t sum;              /* of all before it */
};
struct snug_cache_entry {
    uint64_t offset;         /* of the row in the file */
    uint32_t length, labels; /* tokens; raw labels */
};

struct snug_cache_row {
    int64_t line;
    int32_t first_count;
    uint32_t truncated;
};

struct snug_cache {
    int fd;
    void *mapping; /* holds the index; of mapped bytes */
    size_t mapped;
    const struct snug_cache_entry *index;
    int64_t rows, tokens, longest, truncated;
    uint32_t malformed, added;
    bool pairs; /* some row has tokens of type 1 */
    enum snug_label_form form;
    struct snug_raw_labels raw;
};

/* Opens and checks the whole file. *problem, not a failure of ctx, says why it cannot be used: it is to be built anew.
   Takes fd over, and closes it unless the cache could be opened. Ids must be below id_limit. */
snug_status snug_cache_open(snug_context *ctx, int fd, XXH128_hash_t key, int64_t id_limit, struct snug_cache *out,
                            const char **problem);
void snug_cache_close(struct snug_cache *cache);
/* Reads row's bytes into buffer; *row, *labels and *ids point into it. */
snug_status snug_cache_read(snug_context *ctx, const struct snug_cache *cache, int64_t number,
                            struct snug_row_buffer *buffer, const struct snug_cache_row **row, const uint32_t **labels,
                            const int32_t **ids);

struct snug_cache_writer {
    struct snug_writer out; /* path NULL: a file without a name */
    FILE *index;            /* without a name */
    XXH3_state_t *rows_sum;
    uint64_t offset;
    int64_t rows, tokens, longest, truncated;
    uint32_t malformed, added; /* the caller's to set */
};

/* path NULL: an anonymous file. */
snug_status snug_cache_create(snug_context *ctx, const char *path, struct snug_cache_writer *out);
snug_status snug_cache_put(snug_context *ctx, struct snug_cache_writer *writer, const struct snug_cache_row *row,
                           const uint32_t *labels, size_t label_count, const int32_t *ids, size_t count);
/* Writes what remains, and gives the finished file open for reading in *fd. */
snug_status snug_cache_finish(snug_context *ctx, struct snug_cache_writer *writer, XXH128_hash_t key,
                              const struct snug_raw_labels *raw, enum snug_label_form form, int *fd);
/* Releases everything; a file that was not finished is gone. */
void snug_cache_writer_free(struct snug_cache_writer *writer);

#endif
