/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token cache: one file, written in one pass in constant memory, checked as a whole when opened.
 *
 *   header    struct snug_cache_header, 152 bytes, with an XXH3-64 of each part and of itself
 *   rows      each a struct snug_cache_row, its raw labels, its ids; padded to 8 bytes
 *   index     one struct snug_cache_entry per row
 *   lengths   tokens of each row again, in as few bytes as the longest needs (1, 2 or 4): reading the lengths of all
 * rows in any order then reads a sixteenth of the index labels one struct snug_raw_label per raw label, then their
 * NUL-terminated texts
 *
 * Numbers have the machine's byte order: the file is not portable. Nothing is mapped, and only the labels are in
 * memory: rows and their offsets are read on request, so that a data set of any size takes the same memory.
 */
#ifndef SNUG_DATA_CACHE_H
#define SNUG_DATA_CACHE_H

#include <xxhash.h>

#include "data/dataset_row.h"
#include "data/labels.h"
#include "io/folder.h"

#define SNUG_CACHE_MAGIC UINT64_C(0x374b4f5447554e53) /* "SNUGTOK7" as little-endian machines write it */

struct snug_cache_header {
    uint64_t magic;
    uint64_t key_low, key_high;
    int64_t rows, tokens, longest, truncated;
    uint64_t rows_size, index_size, labels_size;
    uint32_t label_count, label_form;
    uint64_t rows_sum, index_sum, lengths_sum, labels_sum;
    uint32_t malformed, added;            /* lines of malformed UTF-8, rows with ignored keys; or UINT32_MAX */
    uint32_t skipped[SNUG_CONLL_SKIPPED]; /* lines that are no words */
    uint32_t unused;                      /* rows whose tags are not used; causal LM: rows left out, without a loss */
    uint64_t sum;                         /* of all before it */
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
    uint64_t index, lengths; /* where they begin */
    int64_t rows, tokens, longest, truncated;
    uint64_t digest;                     /* of all rows and labels */
    int64_t labelled;                    /* rows with a label */
    double squared_lengths;              /* sum of all */
    int64_t words, words_without_tokens; /* of rows of words */
    int64_t row_bytes;                   /* of the largest row */
    int64_t texts;        /* of a row whose texts are sequences of their own, of groups the largest; else 0 */
    double scores;        /* the sum of these rows' scores */
    int64_t sequences;    /* of all rows of groups */
    int64_t longest_text; /* of those sequences */
    int64_t losses, ends; /* causal LM: tokens with a loss; of these, those that end a row */
    uint32_t malformed, added, skipped[SNUG_CONLL_SKIPPED], unused;
    bool pairs;  /* a row has tokens of type 1 */
    bool values; /* a label is SNUG_LABEL_VALUE */
    enum snug_label_form form;
    struct snug_raw_labels raw;
};

/* Whether rows are words with tags. */
bool snug_cache_has_words(const struct snug_cache *cache);
/* Logs the rows of a file to predict whose tags are not used, or those that were left out, if there are any. */
void snug_cache_tell_unused(snug_context *ctx, const char *path, const struct snug_cache *cache);
/* Bytes of one of the lengths. */
int snug_cache_length_size(int64_t longest);
int32_t snug_cache_length_at(const void *lengths, int size, int64_t number);
/* Opens and checks the whole file. If it cannot be used, *problem says why; that is not a failure of ctx: the file must
   be rebuilt. Takes fd over, and closes it unless the cache could be opened. Ids must be below id_limit; end ends a row
   (-1: none). */
snug_status snug_cache_open(snug_context *ctx, int fd, XXH128_hash_t key, int64_t id_limit, int32_t end,
                            struct snug_cache *out, const char **problem);
void snug_cache_close(struct snug_cache *cache);
snug_status snug_cache_find(snug_context *ctx, const struct snug_cache *cache, int64_t number,
                            struct snug_cache_entry *out);
/* Reads row's bytes into buffer; *row, *labels and *ids point into it. */
snug_status snug_cache_read(snug_context *ctx, const struct snug_cache *cache, int64_t number,
                            struct snug_row_buffer *buffer, struct snug_cache_entry *entry,
                            const struct snug_cache_row **row, const uint32_t **labels, const int32_t **ids);
/* The stored lengths of rows first … first + count - 1, snug_cache_length_size() bytes each. */
snug_status snug_cache_read_lengths(snug_context *ctx, const struct snug_cache *cache, int64_t first, int64_t count,
                                    void *out);

struct snug_cache_writer {
    const struct snug_folder *in; /* NULL: a file without a name */
    char *name;
    struct snug_writer out;
    FILE *index; /* without a name, in the same folder */
    XXH3_state_t *rows_sum;
    uint64_t offset;
    int64_t rows, tokens, longest, truncated;
    uint32_t malformed, added, skipped[SNUG_CONLL_SKIPPED], unused; /* set by the caller */
};

/* in NULL: an anonymous file. in must outlive the writer. */
snug_status snug_cache_create(snug_context *ctx, const struct snug_folder *in, const char *name,
                              struct snug_cache_writer *out);
snug_status snug_cache_put(snug_context *ctx, struct snug_cache_writer *writer, const struct snug_cache_row *row,
                           const uint32_t *labels, size_t label_count, const int32_t *ids, size_t count);
/* Bytes that are still to be written if so many times the rows so far are to come: a guess, from those. */
int64_t snug_cache_writer_needs(const struct snug_cache_writer *writer, double times);
/* Writes the remaining parts, and returns the finished file, open for reading, in *fd. */
snug_status snug_cache_finish(snug_context *ctx, struct snug_cache_writer *writer, XXH128_hash_t key,
                              const struct snug_raw_labels *raw, enum snug_label_form form, int *fd);
/* Frees everything; an unfinished file is removed. */
void snug_cache_writer_free(struct snug_cache_writer *writer);

#endif
