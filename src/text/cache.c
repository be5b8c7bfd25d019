/* SPDX-License-Identifier: Apache-2.0 */
#include "text/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20) /* bytes checked or copied at a time */

_Static_assert(sizeof(struct snug_cache_header) == 128, "the header has no padding");
_Static_assert(sizeof(struct snug_cache_row) == 16, "rows have no padding");
_Static_assert(sizeof(struct snug_cache_entry) == 16, "entries have no padding");
_Static_assert(sizeof(struct snug_raw_label) == 16, "labels have no padding");

static snug_status create_sum(snug_context *ctx, XXH3_state_t **out) {
    *out = XXH3_createState();
    if (!*out) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory for a checksum");
    XXH3_64bits_reset(*out);
    return SNUG_OK;
}

static uint64_t header_sum(const struct snug_cache_header *header) {
    return XXH3_64bits(header, offsetof(struct snug_cache_header, sum));
}

/* Bytes of a row in the file. */
static uint64_t row_size(uint64_t length, uint64_t labels) {
    return sizeof(struct snug_cache_row) + (4 * (length + labels) + 7) / 8 * 8;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* size bytes at offset; less only where the file ends or cannot be read. */
static bool read_at(int fd, void *data, size_t size, uint64_t offset) {
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (char *)data + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = 0; /* the file ends here */
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* A part's size is bounded by the file's, so that sums of them cannot overflow. */
static const char *check_header(const struct snug_cache_header *header, uint64_t file_size, XXH128_hash_t key) {
    if (header->magic != SNUG_CACHE_MAGIC) return "it is no token cache of this version";
    if (header->sum != header_sum(header)) return "the header's checksum differs";
    if (header->key_low != key.low64 || header->key_high != key.high64) return "it was made for other data";
    if (header->rows_size > file_size || header->index_size > file_size || header->labels_size > file_size ||
        sizeof *header + header->rows_size + header->index_size + header->labels_size != file_size)
        return "its size differs from what the header says";
    if (header->rows_size % 8 != 0) return "its rows do not end where rows end"; /* and the index would be misaligned */
    if (header->rows < 1 || header->index_size % sizeof(struct snug_cache_entry) != 0 ||
        (uint64_t)header->rows != header->index_size / sizeof(struct snug_cache_entry))
        return "the number of rows is wrong";
    if (header->label_form > SNUG_LABELS_NONFINITE) return "the form of the labels is unknown";
    return NULL;
}

static snug_status map_index(snug_context *ctx, struct snug_cache *cache, const struct snug_cache_header *header) {
    uint64_t start = sizeof *header + header->rows_size, page = (uint64_t)sysconf(_SC_PAGESIZE), skip = start % page;
    cache->mapped = (size_t)(skip + header->index_size);
    cache->mapping = mmap(NULL, cache->mapped, PROT_READ, MAP_SHARED, cache->fd, (off_t)(start - skip));
    if (cache->mapping == MAP_FAILED) {
        cache->mapping = NULL;
        return snug_fail(ctx, SNUG_E_IO, "the token cache's index of %zu bytes cannot be mapped: %s", cache->mapped,
                         strerror(errno));
    }
    cache->index = (const struct snug_cache_entry *)((const char *)cache->mapping + skip);
    return SNUG_OK;
}

static const char *check_index(const struct snug_cache *cache, const struct snug_cache_header *header) {
    if (XXH3_64bits(cache->index, header->index_size) != header->index_sum) return "the index's checksum differs";
    uint64_t offset = sizeof *header, end = sizeof *header + header->rows_size;
    int64_t tokens = 0, longest = 0;
    for (int64_t i = 0; i < cache->rows; i++) {
        const struct snug_cache_entry *entry = &cache->index[i];
        uint64_t size = row_size(entry->length, entry->labels);
        if (entry->offset != offset || size > end - offset || entry->length > INT32_MAX)
            return "an index entry is out of bounds";
        offset += size;
        tokens += entry->length;
        if (longest < entry->length) longest = entry->length;
    }
    if (offset != end || tokens != header->tokens || longest != header->longest) return "the index is incomplete";
    return NULL;
}

/* The rows' bytes in order, checked one by one. */
static const char *check_rows_of(struct snug_cache *cache, const char *data, int64_t first, int64_t end,
                                 int64_t id_limit, int64_t *truncated) {
    for (int64_t i = first; i < end; i++) {
        uint32_t length = cache->index[i].length, labels = cache->index[i].labels;
        const struct snug_cache_row *row = (const struct snug_cache_row *)data;
        const uint32_t *numbers = (const uint32_t *)(row + 1);
        if (row->first_count < 0 || (uint32_t)row->first_count > length) return "a row's token types are wrong";
        for (uint32_t k = 0; k < labels; k++)
            if (numbers[k] >= cache->raw.count) return "a row's label is unknown";
        uint32_t highest = 0;
        for (uint32_t k = labels; k < labels + length; k++) highest = numbers[k] > highest ? numbers[k] : highest;
        if (length && highest >= (uint64_t)id_limit) return "a row's token is not in the vocabulary";
        *truncated += row->truncated != 0;
        cache->pairs |= (uint32_t)row->first_count < length;
        data += row_size(length, labels);
    }
    return NULL;
}

/* Reads all rows, a piece of whole rows at a time. */
static const char *check_rows(struct snug_cache *cache, const struct snug_cache_header *header, int64_t id_limit,
                              struct snug_row_buffer *buffer, snug_context *ctx, snug_status *status) {
    XXH3_state_t *state;
    const char *problem = NULL;
    int64_t truncated = 0;
    if ((*status = create_sum(ctx, &state)) != SNUG_OK) return NULL;
    for (int64_t first = 0, end; !problem && first < cache->rows; first = end) {
        uint64_t size = 0;
        for (end = first; end < cache->rows; end++) {
            uint64_t next = row_size(cache->index[end].length, cache->index[end].labels);
            if (size && size + next > PIECE) break;
            size += next;
        }
        *status = snug_grow(ctx, &buffer->data, &buffer->capacity, (size_t)size, 1);
        if (*status != SNUG_OK) break;
        if (!read_at(cache->fd, buffer->data, (size_t)size, cache->index[first].offset)) {
            problem = "it cannot be read";
        } else {
            XXH3_64bits_update(state, buffer->data, (size_t)size);
            problem = check_rows_of(cache, buffer->data, first, end, id_limit, &truncated);
        }
    }
    if (!problem && *status == SNUG_OK && XXH3_64bits_digest(state) != header->rows_sum)
        problem = "the rows' checksum differs";
    if (!problem && *status == SNUG_OK && truncated != header->truncated) problem = "the number of cut rows is wrong";
    XXH3_freeState(state);
    return problem;
}

static const char *read_labels(snug_context *ctx, struct snug_cache *cache, const struct snug_cache_header *header,
                               snug_status *status) {
    uint64_t table = (uint64_t)header->label_count * sizeof(struct snug_raw_label);
    uint64_t start = sizeof *header + header->rows_size + header->index_size;
    if (table > header->labels_size) return "the table of labels is too short";
    size_t text_size = (size_t)(header->labels_size - table);
    void *items, *text;
    *status = snug_alloc(ctx, header->label_count, sizeof(struct snug_raw_label), &items);
    if (*status != SNUG_OK) return NULL;
    cache->raw.items = items;
    *status = snug_alloc(ctx, text_size, 1, &text);
    if (*status != SNUG_OK) return NULL;
    cache->raw.text = text;
    cache->raw.text_size = text_size;
    cache->raw.count = header->label_count;
    if (!read_at(cache->fd, items, (size_t)table, start) || !read_at(cache->fd, text, text_size, start + table))
        return "it cannot be read";
    XXH3_state_t *state;
    if ((*status = create_sum(ctx, &state)) != SNUG_OK) return NULL;
    XXH3_64bits_update(state, items, (size_t)table);
    XXH3_64bits_update(state, text, text_size);
    bool same = XXH3_64bits_digest(state) == header->labels_sum;
    XXH3_freeState(state);
    if (!same) return "the labels' checksum differs";
    if (text_size && cache->raw.text[text_size - 1] != '\0') return "the last label has no end";
    for (size_t i = 0; i < cache->raw.count; i++)
        if (cache->raw.items[i].offset >= text_size) return "a label is out of bounds";
    return NULL;
}

static snug_status check_file(snug_context *ctx, struct snug_cache *cache, XXH128_hash_t key, int64_t id_limit,
                              const char **problem) {
    struct snug_cache_header header;
    struct stat info;
    snug_status status = SNUG_OK;
    if (fstat(cache->fd, &info) != 0 || !read_at(cache->fd, &header, sizeof header, 0)) {
        *problem = "it is shorter than its header";
        return SNUG_OK;
    }
    if ((*problem = check_header(&header, (uint64_t)info.st_size, key))) return SNUG_OK;
    cache->rows = header.rows;
    cache->tokens = header.tokens;
    cache->longest = header.longest;
    cache->truncated = header.truncated;
    cache->malformed = header.malformed;
    cache->added = header.added;
    cache->form = (enum snug_label_form)header.label_form;
    RETURN_IF_ERROR(map_index(ctx, cache, &header));
    if ((*problem = check_index(cache, &header))) return SNUG_OK;
    *problem = read_labels(ctx, cache, &header, &status);
    if (*problem || status != SNUG_OK) return status;
    struct snug_row_buffer buffer = {0};
    *problem = check_rows(cache, &header, id_limit, &buffer, ctx, &status);
    free(buffer.data);
    return status;
}

snug_status snug_cache_open(snug_context *ctx, int fd, XXH128_hash_t key, int64_t id_limit, struct snug_cache *out,
                            const char **problem) {
    *out = (struct snug_cache){.fd = fd};
    *problem = NULL;
    snug_status status = check_file(ctx, out, key, id_limit, problem);
    if (status != SNUG_OK || *problem) snug_cache_close(out);
    return status;
}

void snug_cache_close(struct snug_cache *cache) {
    if (cache->mapping) munmap(cache->mapping, cache->mapped);
    if (cache->fd >= 0) close(cache->fd);
    snug_raw_labels_free(&cache->raw);
    *cache = (struct snug_cache){.fd = -1};
}

snug_status snug_cache_read(snug_context *ctx, const struct snug_cache *cache, int64_t number,
                            struct snug_row_buffer *buffer, const struct snug_cache_row **row, const uint32_t **labels,
                            const int32_t **ids) {
    const struct snug_cache_entry *entry = &cache->index[number];
    size_t size = (size_t)row_size(entry->length, entry->labels);
    RETURN_IF_ERROR(snug_grow(ctx, &buffer->data, &buffer->capacity, size, 1));
    if (!read_at(cache->fd, buffer->data, size, entry->offset))
        return snug_fail(ctx, SNUG_E_IO, "row %lld of the token cache cannot be read: %s", (long long)number,
                         errno ? strerror(errno) : "the file has become shorter");
    *row = buffer->data;
    *labels = (const uint32_t *)(*row + 1);
    *ids = (const int32_t *)(*labels + entry->labels);
    return SNUG_OK;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* A file that nobody else sees: in the temporary folder, else in memory. */
static FILE *anonymous_file(void) {
    FILE *file = tmpfile();
    if (file) return file;
    int fd = memfd_create("snug-tokens", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    file = fdopen(fd, "w+b");
    if (!file) close(fd);
    return file;
}

static snug_status open_files(snug_context *ctx, const char *path, struct snug_cache_writer *writer) {
    if (path) RETURN_IF_ERROR(snug_writer_open(ctx, path, &writer->out));
    if (!path) writer->out.file = anonymous_file();
    writer->index = anonymous_file();
    if (!writer->out.file || !writer->index)
        return snug_fail(ctx, SNUG_E_IO, "no temporary file for tokens can be made: %s", strerror(errno));
    RETURN_IF_ERROR(create_sum(ctx, &writer->rows_sum));
    struct snug_cache_header header = {0}; /* stays so, and so invalid, until the file is finished */
    snug_writer_put(&writer->out, &header, sizeof header);
    writer->offset = sizeof header;
    return SNUG_OK;
}

snug_status snug_cache_create(snug_context *ctx, const char *path, struct snug_cache_writer *out) {
    *out = (struct snug_cache_writer){0};
    snug_status status = open_files(ctx, path, out);
    if (status != SNUG_OK) snug_cache_writer_free(out);
    return status;
}

/* Remembers errno for snug_writer_commit(). */
static void note_failure(struct snug_cache_writer *writer) {
    if (!writer->out.failed) writer->out.error = errno;
    writer->out.failed = true;
}

static void put_rows(struct snug_cache_writer *writer, const void *data, size_t size) {
    if (!size) return;
    snug_writer_put(&writer->out, data, size);
    XXH3_64bits_update(writer->rows_sum, data, size);
    writer->offset += size;
}

snug_status snug_cache_put(snug_context *ctx, struct snug_cache_writer *writer, const struct snug_cache_row *row,
                           const uint32_t *labels, size_t label_count, const int32_t *ids, size_t count) {
    static const char zeros[8];
    struct snug_cache_entry entry = {
        .offset = writer->offset, .length = (uint32_t)count, .labels = (uint32_t)label_count};
    if (count > INT32_MAX || label_count > INT32_MAX)
        return snug_fail(ctx, SNUG_E_INPUT, "line %lld: a row of %zu tokens and %zu labels is too long",
                         (long long)row->line, count, label_count);
    put_rows(writer, row, sizeof *row);
    put_rows(writer, labels, 4 * label_count);
    put_rows(writer, ids, 4 * count);
    put_rows(writer, zeros, (size_t)(entry.offset + row_size(count, label_count) - writer->offset));
    if (fwrite(&entry, sizeof entry, 1, writer->index) != 1) note_failure(writer);
    if (writer->out.failed)
        return snug_fail(ctx, SNUG_E_IO, "the token cache%s%s cannot be written: %s", writer->out.path ? " " : "",
                         writer->out.path ? writer->out.path : "", strerror(writer->out.error));
    writer->rows++;
    writer->tokens += (int64_t)count;
    writer->truncated += row->truncated != 0;
    if (writer->longest < (int64_t)count) writer->longest = (int64_t)count;
    return SNUG_OK;
}

/* Appends the index, gathered in its own file. */
static void append_index(struct snug_cache_writer *writer, XXH3_state_t *state, uint64_t *sum) {
    char piece[1 << 14];
    XXH3_64bits_reset(state);
    rewind(writer->index);
    for (size_t got; (got = fread(piece, 1, sizeof piece, writer->index)) > 0;) {
        snug_writer_put(&writer->out, piece, got);
        XXH3_64bits_update(state, piece, got);
    }
    if (ferror(writer->index)) note_failure(writer);
    *sum = XXH3_64bits_digest(state);
}

static void append_labels(struct snug_cache_writer *writer, XXH3_state_t *state, const struct snug_raw_labels *raw,
                          uint64_t *sum) {
    size_t table = raw->count * sizeof *raw->items;
    XXH3_64bits_reset(state);
    if (raw->count) {
        snug_writer_put(&writer->out, raw->items, table);
        snug_writer_put(&writer->out, raw->text, raw->text_size);
        XXH3_64bits_update(state, raw->items, table);
        XXH3_64bits_update(state, raw->text, raw->text_size);
    }
    *sum = XXH3_64bits_digest(state);
}

static snug_status commit(snug_context *ctx, struct snug_cache_writer *writer, int *fd) {
    char *path;
    RETURN_IF_ERROR(snug_strdup(ctx, writer->out.path, &path));
    snug_status status = snug_writer_commit(ctx, &writer->out);
    if (status == SNUG_OK && (*fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        status = snug_fail(ctx, SNUG_E_IO, "%s: the token cache cannot be reopened: %s", path, strerror(errno));
    free(path);
    return status;
}

snug_status snug_cache_finish(snug_context *ctx, struct snug_cache_writer *writer, XXH128_hash_t key,
                              const struct snug_raw_labels *raw, enum snug_label_form form, int *fd) {
    struct snug_cache_header header = {.magic = SNUG_CACHE_MAGIC,
                                       .key_low = key.low64,
                                       .key_high = key.high64,
                                       .rows = writer->rows,
                                       .tokens = writer->tokens,
                                       .longest = writer->longest,
                                       .truncated = writer->truncated,
                                       .rows_size = writer->offset - sizeof header,
                                       .index_size = (uint64_t)writer->rows * sizeof(struct snug_cache_entry),
                                       .labels_size = raw->count * sizeof *raw->items + raw->text_size,
                                       .label_count = (uint32_t)raw->count,
                                       .label_form = form,
                                       .rows_sum = XXH3_64bits_digest(writer->rows_sum),
                                       .malformed = writer->malformed,
                                       .added = writer->added};
    *fd = -1;
    append_index(writer, writer->rows_sum, &header.index_sum);
    append_labels(writer, writer->rows_sum, raw, &header.labels_sum);
    header.sum = header_sum(&header);
    if (fseeko(writer->out.file, 0, SEEK_SET) != 0) note_failure(writer);
    snug_writer_put(&writer->out, &header, sizeof header);
    if (writer->out.path) return commit(ctx, writer, fd);
    if (fflush(writer->out.file) != 0) note_failure(writer);
    if (!writer->out.failed && (*fd = fcntl(fileno(writer->out.file), F_DUPFD_CLOEXEC, 0)) < 0) note_failure(writer);
    if (writer->out.failed)
        return snug_fail(ctx, SNUG_E_IO, "tokens cannot be written to a temporary file: %s",
                         strerror(writer->out.error));
    return SNUG_OK;
}

void snug_cache_writer_free(struct snug_cache_writer *writer) {
    if (writer->out.path)
        snug_writer_abandon(&writer->out);
    else if (writer->out.file)
        fclose(writer->out.file);
    if (writer->index) fclose(writer->index);
    XXH3_freeState(writer->rows_sum);
    *writer = (struct snug_cache_writer){0};
}
