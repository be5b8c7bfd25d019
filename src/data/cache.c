/* SPDX-License-Identifier: Apache-2.0 */
#include "data/cache.h"

#include "data/answers.h"
#include "data/groups.h"
#include "data/loss_mask.h"
#include "data/row_texts.h"
#include "data/words.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20) /* bytes of rows that are checked at a time */
#define ENTRIES 4096            /* of the index, at a time */

_Static_assert(sizeof(struct snug_cache_header) == 152, "the header has no padding");
_Static_assert(sizeof(struct snug_cache_row) == 16, "rows have no padding");
_Static_assert(sizeof(struct snug_cache_entry) == 16, "entries have no padding");
_Static_assert(sizeof(struct snug_raw_label) == 24, "labels have no padding");

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

/* Reads size bytes at offset. False if the file ends before (errno is then 0) or cannot be read. */
static bool read_at(int fd, void *data, size_t size, uint64_t offset) {
    return snug_read_at(fd, data, size, offset) == (ssize_t)size;
}

int snug_cache_length_size(int64_t longest) { return longest <= UINT8_MAX ? 1 : longest <= UINT16_MAX ? 2 : 4; }

static uint64_t lengths_size(const struct snug_cache_header *header) {
    return (uint64_t)header->rows * (uint64_t)snug_cache_length_size(header->longest);
}

/* A part's size is bounded by the file's, so that sums of them cannot overflow. */
static const char *check_header(const struct snug_cache_header *header, uint64_t file_size, XXH128_hash_t key) {
    if (header->magic != SNUG_CACHE_MAGIC) return "it is not a token cache of this version";
    if (header->sum != header_sum(header)) return "the header's checksum differs";
    if (header->key_low != key.low64 || header->key_high != key.high64) return "it was made for other data";
    if (header->rows_size > file_size || header->index_size > file_size || header->labels_size > file_size)
        return "its size differs from its header's";
    if (header->rows_size % 8 != 0) return "its rows do not end where rows end";
    if (header->rows < 1 || header->index_size % sizeof(struct snug_cache_entry) != 0 ||
        (uint64_t)header->rows != header->index_size / sizeof(struct snug_cache_entry))
        return "the number of rows is wrong";
    if (header->longest < 0 || header->longest > INT32_MAX) return "the longest row is out of bounds";
    if (sizeof *header + header->rows_size + header->index_size + lengths_size(header) + header->labels_size !=
        file_size)
        return "its size differs from its header's";
    if (header->label_form >= SNUG_LABEL_FORM_COUNT) return "the form of the labels is unknown";
    return NULL;
}

/* State of the check of a file: one pass, in portions of its index. */
struct check {
    snug_context *ctx;
    struct snug_cache *cache;
    const struct snug_cache_header *header;
    int64_t id_limit;
    int32_t end; /* ends a row */
    XXH3_state_t *rows_sum, *index_sum, *lengths_sum;
    struct snug_row_buffer buffer;
    uint64_t offset; /* of the next row */
    int64_t tokens, longest, truncated;
    struct snug_cache_entry entries[ENTRIES];
    uint32_t lengths[ENTRIES];
};

bool snug_cache_has_words(const struct snug_cache *cache) {
    return cache->form == SNUG_LABELS_TAGS || cache->form == SNUG_LABELS_TAG_NUMBERS;
}

static bool has_labels(const struct snug_cache *cache) {
    const enum snug_label_form form = cache->form;
    return !snug_cache_has_words(cache) && form != SNUG_LABELS_MASK && form != SNUG_LABELS_TEXTS &&
           form != SNUG_LABELS_ANSWERS && form != SNUG_LABELS_GROUP;
}

int32_t snug_cache_length_at(const void *lengths, int size, int64_t number) {
    switch (size) {
    case 1: return ((const uint8_t *)lengths)[number];
    case 2: return ((const uint16_t *)lengths)[number];
    default: return ((const int32_t *)lengths)[number];
    }
}

/* The next count entries, and their lengths. */
static const char *check_entries(struct check *check, int64_t count) {
    struct snug_cache *cache = check->cache;
    const int length_size = snug_cache_length_size(check->header->longest);
    const uint64_t end = sizeof *check->header + check->header->rows_size;
    for (int64_t i = 0; i < count; i++) {
        const struct snug_cache_entry *entry = &check->entries[i];
        const uint64_t size = row_size(entry->length, entry->labels);
        if (entry->offset != check->offset || size > end - check->offset) return "an index entry is out of bounds";
        if ((uint32_t)snug_cache_length_at(check->lengths, length_size, i) != entry->length)
            return "a row has two lengths";
        check->offset += size;
        check->tokens += entry->length;
        if (check->longest < entry->length) check->longest = entry->length;
        cache->labelled += entry->labels && has_labels(cache);
        if (cache->row_bytes < (int64_t)size) cache->row_bytes = (int64_t)size;
        if (cache->form != SNUG_LABELS_TEXTS && cache->form != SNUG_LABELS_GROUP)
            cache->squared_lengths += (double)entry->length * (double)entry->length;
    }
    return NULL;
}

void snug_cache_tell_unused(snug_context *ctx, const char *path, const struct snug_cache *cache) {
    const uint32_t rows = cache->unused;
    const char *s = rows == 1 ? "" : "s";
    if (rows && cache->form == SNUG_LABELS_TEXTS)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%s: %" PRIu32 " row%s whose prompt alone has --max_seq_length tokens %s left out", path, rows, s,
                 rows == 1 ? "is" : "are");
    else if (rows && cache->form == SNUG_LABELS_MASK)
        snug_log(ctx, SNUG_LOG_WARNING, "%s: %" PRIu32 " row%s without a token that has a loss %s left out", path, rows,
                 s, rows == 1 ? "is" : "are");
    else if (rows)
        snug_log(ctx, SNUG_LOG_WARNING, "%s: the tags of %" PRIu32 " row%s are not one for each word, and are not used",
                 path, rows, s);
}

/* Checks and counts a row's words. A row without words lacks no tag, unless all rows lack them. */
static bool check_words(struct snug_cache *cache, const uint32_t *numbers, uint32_t labels, uint32_t length) {
    struct snug_words words;
    if (!snug_words_of(numbers, labels, length, cache->raw.count, &words)) return false;
    cache->labelled += cache->raw.count && (!words.count || words.tags[0] != SNUG_NO_TAG);
    cache->words += words.count;
    cache->words_without_tokens += words.count;
    for (uint32_t i = 0; i < length; i++) cache->words_without_tokens -= snug_words_begins(&words, i);
    return true;
}

/* Checks a row's mask, and counts its tokens that have a loss. No token predicts the first one. */
static bool check_mask(const struct check *check, const uint32_t *mask, uint32_t numbers, uint32_t length) {
    const uint32_t *ids = mask + numbers;
    if (!snug_loss_mask_check(mask, numbers, length)) return false;
    for (int64_t i = 1; i < length; i++) {
        if (!snug_loss_mask_has(mask, numbers, i)) continue;
        check->cache->losses++;
        check->cache->ends += check->end >= 0 && ids[i] == (uint32_t)check->end;
    }
    return true;
}

/* A sequence of a row that has several. */
static void add_sequence(struct snug_cache *cache, int64_t tokens) {
    if (cache->longest_text < tokens) cache->longest_text = tokens;
    cache->squared_lengths += (double)tokens * (double)tokens;
}

/* Checks a row's texts, and counts rows with a score. All rows have as many texts. */
static bool check_texts(struct snug_cache *cache, const uint32_t *numbers, uint32_t count, uint32_t length) {
    struct snug_row_texts texts;
    if (!snug_row_texts_of(numbers, count, length, &texts)) return false;
    if (!cache->texts) cache->texts = texts.count;
    for (int64_t i = 0; i < texts.count; i++) add_sequence(cache, texts.tokens[i]);
    cache->labelled += texts.scored;
    cache->scores += (double)texts.score;
    return texts.count == cache->texts;
}

/* Checks a group, and counts its members. */
static bool check_group(struct snug_cache *cache, const uint32_t *numbers, uint32_t count, uint32_t length) {
    struct snug_group group;
    if (!snug_group_of(numbers, count, length, &group)) return false;
    if (cache->texts < group.count) cache->texts = group.count;
    cache->sequences += group.count;
    for (int64_t i = 0; i < (int64_t)group.count; i++) add_sequence(cache, snug_group_tokens(&group, i));
    cache->labelled += group.labelled;
    return true;
}

/* Checks a window, and counts it if it is known whether it has an answer. */
static bool check_answers(struct snug_cache *cache, const uint32_t *numbers, uint32_t count, uint32_t length) {
    struct snug_answers answers;
    if (!snug_answers_of(numbers, count, length, &answers)) return false;
    cache->labelled += answers.start != SNUG_NO_ANSWER;
    return true;
}

/* The bytes of count rows in order, checked one by one. */
static const char *check_rows_of(struct check *check, const char *data, const struct snug_cache_entry *entries,
                                 int64_t count) {
    struct snug_cache *cache = check->cache;
    for (int64_t i = 0; i < count; i++) {
        uint32_t length = entries[i].length, labels = entries[i].labels;
        const struct snug_cache_row *row = (const struct snug_cache_row *)data;
        const uint32_t *numbers = (const uint32_t *)(row + 1);
        if (row->first_count < 0 || (uint32_t)row->first_count > length) return "a row's token types are wrong";
        const bool value = has_labels(cache) && snug_label_is_value(numbers, labels);
        cache->values |= value;
        if (value && !isfinite(snug_label_value(numbers))) return "a row's label is not a number";
        if (snug_cache_has_words(cache) && !check_words(cache, numbers, labels, length))
            return "a row's words are wrong";
        if (cache->form == SNUG_LABELS_MASK && !check_mask(check, numbers, labels, length))
            return "a row's mask of losses is wrong";
        if (cache->form == SNUG_LABELS_TEXTS && !check_texts(cache, numbers, labels, length))
            return "a row's texts are wrong";
        if (cache->form == SNUG_LABELS_ANSWERS && !check_answers(cache, numbers, labels, length))
            return "a row's answers are wrong";
        if (cache->form == SNUG_LABELS_GROUP && !check_group(cache, numbers, labels, length))
            return "a row's group is wrong";
        for (uint32_t k = 0; k < labels && !value && has_labels(cache); k++)
            if (numbers[k] >= cache->raw.count) return "a row's label is unknown";
        uint32_t highest = 0;
        for (uint32_t k = labels; k < labels + length; k++) highest = numbers[k] > highest ? numbers[k] : highest;
        if (highest >= (uint64_t)check->id_limit) return "a row's token is not in the vocabulary";
        check->truncated += row->truncated != 0;
        cache->pairs |= (uint32_t)row->first_count < length;
        data += row_size(length, labels);
    }
    return NULL;
}

/* Reads the rows of count entries, several whole rows at a time. */
static const char *check_rows(struct check *check, int64_t count, snug_status *status) {
    for (int64_t first = 0, end; first < count; first = end) {
        uint64_t size = 0;
        for (end = first; end < count; end++) {
            uint64_t next = row_size(check->entries[end].length, check->entries[end].labels);
            if (size && size + next > PIECE) break;
            size += next;
        }
        *status = snug_grow(check->ctx, &check->buffer.data, &check->buffer.capacity, (size_t)size, 1);
        if (*status != SNUG_OK) return NULL;
        if (!read_at(check->cache->fd, check->buffer.data, (size_t)size, check->entries[first].offset))
            return "it cannot be read";
        XXH3_64bits_update(check->rows_sum, check->buffer.data, (size_t)size);
        const char *problem = check_rows_of(check, check->buffer.data, &check->entries[first], end - first);
        if (problem) return problem;
    }
    return NULL;
}

static const char *check_portion(struct check *check, int64_t first, int64_t count, snug_status *status) {
    const struct snug_cache *cache = check->cache;
    const size_t length_size = (size_t)snug_cache_length_size(check->header->longest);
    const size_t entries = (size_t)count * sizeof *check->entries, lengths = (size_t)count * length_size;
    if (!read_at(cache->fd, check->entries, entries, cache->index + (uint64_t)first * sizeof *check->entries) ||
        !read_at(cache->fd, check->lengths, lengths, cache->lengths + (uint64_t)first * length_size))
        return "it cannot be read";
    XXH3_64bits_update(check->index_sum, check->entries, entries);
    XXH3_64bits_update(check->lengths_sum, check->lengths, lengths);
    const char *problem = check_entries(check, count);
    return problem ? problem : check_rows(check, count, status);
}

static const char *check_totals(const struct check *check) {
    const struct snug_cache_header *header = check->header;
    if (XXH3_64bits_digest(check->index_sum) != header->index_sum) return "the index's checksum differs";
    if (XXH3_64bits_digest(check->lengths_sum) != header->lengths_sum) return "the lengths' checksum differs";
    if (XXH3_64bits_digest(check->rows_sum) != header->rows_sum) return "the rows' checksum differs";
    if (check->offset != sizeof *header + header->rows_size || check->tokens != header->tokens ||
        check->longest != header->longest)
        return "the index is incomplete";
    return check->truncated != header->truncated ? "the number of truncated rows is wrong" : NULL;
}

static snug_status create_sums(struct check *check) {
    RETURN_IF_ERROR(create_sum(check->ctx, &check->rows_sum));
    RETURN_IF_ERROR(create_sum(check->ctx, &check->index_sum));
    return create_sum(check->ctx, &check->lengths_sum);
}

static const char *check_all(struct check *check, snug_status *status) {
    *status = create_sums(check);
    const char *problem = NULL;
    for (int64_t first = 0, left; *status == SNUG_OK && !problem; first += ENTRIES) {
        if ((left = check->cache->rows - first) <= 0) return check_totals(check);
        problem = check_portion(check, first, left < ENTRIES ? left : ENTRIES, status);
        if (snug_stop_asked(check->ctx))
            *status = snug_fail(check->ctx, SNUG_E_INTERRUPTED, "interrupted while the token cache was checked");
    }
    return problem;
}

static const char *check_contents(snug_context *ctx, struct snug_cache *cache, const struct snug_cache_header *header,
                                  int64_t id_limit, int32_t end, snug_status *status) {
    void *memory;
    if ((*status = snug_alloc(ctx, 1, sizeof(struct check), &memory)) != SNUG_OK) return NULL;
    struct check *check = memory;
    check->ctx = ctx;
    check->cache = cache;
    check->header = header;
    check->id_limit = id_limit;
    check->end = end;
    check->offset = sizeof *header;
    const char *problem = check_all(check, status);
    XXH3_freeState(check->rows_sum);
    XXH3_freeState(check->index_sum);
    XXH3_freeState(check->lengths_sum);
    free(check->buffer.data);
    free(check);
    return problem;
}

static const char *read_labels(snug_context *ctx, struct snug_cache *cache, const struct snug_cache_header *header,
                               snug_status *status) {
    uint64_t table = (uint64_t)header->label_count * sizeof(struct snug_raw_label);
    uint64_t start = sizeof *header + header->rows_size + header->index_size + lengths_size(header);
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
                              int32_t end, const char **problem) {
    struct snug_cache_header header;
    struct stat info = {0};
    snug_status status = SNUG_OK;
    fstat(cache->fd, &info);
    if (!read_at(cache->fd, &header, sizeof header, 0)) {
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
    memcpy(cache->skipped, header.skipped, sizeof cache->skipped);
    cache->unused = header.unused;
    cache->form = (enum snug_label_form)header.label_form;
    const uint64_t content[] = {header.rows_sum, header.index_sum, header.labels_sum, header.label_form};
    cache->digest = XXH3_64bits(content, sizeof content);
    cache->index = sizeof header + header.rows_size;
    cache->lengths = cache->index + header.index_size;
    *problem = read_labels(ctx, cache, &header, &status);
    if (!*problem && status == SNUG_OK) *problem = check_contents(ctx, cache, &header, id_limit, end, &status);
    return status;
}

snug_status snug_cache_open(snug_context *ctx, int fd, XXH128_hash_t key, int64_t id_limit, int32_t end,
                            struct snug_cache *out, const char **problem) {
    *out = (struct snug_cache){.fd = fd};
    *problem = NULL;
    snug_status status = check_file(ctx, out, key, id_limit, end, problem);
    if (status != SNUG_OK || *problem) snug_cache_close(out);
    return status;
}

void snug_cache_close(struct snug_cache *cache) {
    if (cache->fd >= 0) close(cache->fd);
    snug_raw_labels_free(&cache->raw);
    *cache = (struct snug_cache){.fd = -1};
}

static snug_status fail_row(snug_context *ctx, int64_t number) {
    return snug_fail(ctx, SNUG_E_IO, "row %lld of the token cache cannot be read: %s", (long long)number,
                     errno ? strerror(errno) : "the file has become shorter");
}

snug_status snug_cache_find(snug_context *ctx, const struct snug_cache *cache, int64_t number,
                            struct snug_cache_entry *out) {
    const uint64_t offset = cache->index + (uint64_t)number * sizeof *out;
    return read_at(cache->fd, out, sizeof *out, offset) ? SNUG_OK : fail_row(ctx, number);
}

/* The file may have changed since the check: its values are compared with the plan's. */
static bool is_plausible(const struct snug_cache *cache, const struct snug_cache_entry *entry) {
    const uint64_t size = row_size(entry->length, entry->labels);
    return entry->length <= (uint64_t)cache->longest && entry->offset <= cache->index &&
           size <= cache->index - entry->offset;
}

snug_status snug_cache_read(snug_context *ctx, const struct snug_cache *cache, int64_t number,
                            struct snug_row_buffer *buffer, struct snug_cache_entry *entry,
                            const struct snug_cache_row **row, const uint32_t **labels, const int32_t **ids) {
    RETURN_IF_ERROR(snug_cache_find(ctx, cache, number, entry));
    if (!is_plausible(cache, entry))
        return snug_fail(ctx, SNUG_E_IO, "row %lld of the token cache has changed since it was checked",
                         (long long)number);
    size_t size = (size_t)row_size(entry->length, entry->labels);
    RETURN_IF_ERROR(snug_grow(ctx, &buffer->data, &buffer->capacity, size, 1));
    if (!read_at(cache->fd, buffer->data, size, entry->offset)) return fail_row(ctx, number);
    *row = buffer->data;
    *labels = (const uint32_t *)(*row + 1);
    *ids = (const int32_t *)(*labels + entry->labels);
    return SNUG_OK;
}

snug_status snug_cache_read_lengths(snug_context *ctx, const struct snug_cache *cache, int64_t first, int64_t count,
                                    void *out) {
    const uint64_t size = (uint64_t)snug_cache_length_size(cache->longest);
    return read_at(cache->fd, out, (size_t)count * size, cache->lengths + (uint64_t)first * size)
               ? SNUG_OK
               : fail_row(ctx, first);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* An unnamed file: in the temporary folder, else in memory. */
static FILE *anonymous_file(void) {
    FILE *file = tmpfile();
    if (file) return file;
    int fd = memfd_create("snug-tokens", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    file = fdopen(fd, "w+b");
    if (!file) close(fd);
    return file;
}

/* For the index while it grows: in the folder of the cache, because the temporary folder may be in memory. */
static FILE *index_file(snug_context *ctx, const struct snug_folder *in) {
    int fd;
    if (!in) return anonymous_file();
    const int error = snug_unnamed_open(ctx, in->path, &fd);
    errno = error;
    FILE *file = error ? NULL : fdopen(fd, "w+b");
    if (!file && !error) close(fd);
    return file;
}

static snug_status open_files(snug_context *ctx, const struct snug_folder *in, const char *name,
                              struct snug_cache_writer *writer) {
    writer->in = in;
    if (in) RETURN_IF_ERROR(snug_strdup(ctx, name, &writer->name));
    if (in) RETURN_IF_ERROR(snug_writer_open(ctx, in, name, &writer->out));
    if (!in) writer->out.file = anonymous_file();
    writer->index = index_file(ctx, in);
    if (!writer->out.file || !writer->index)
        return snug_fail(ctx, SNUG_E_IO, "no temporary file for tokens can be made in %s: %s",
                         in ? in->path : "/tmp or in memory", strerror(errno));
    RETURN_IF_ERROR(create_sum(ctx, &writer->rows_sum));
    struct snug_cache_header header = {0}; /* invalid until the file is finished */
    snug_writer_put(&writer->out, &header, sizeof header);
    writer->offset = sizeof header;
    return SNUG_OK;
}

snug_status snug_cache_create(snug_context *ctx, const struct snug_folder *in, const char *name,
                              struct snug_cache_writer *out) {
    *out = (struct snug_cache_writer){0};
    snug_status status = open_files(ctx, in, name, out);
    if (status != SNUG_OK) snug_cache_writer_free(out);
    return status;
}

/* Remembers errno for snug_writer_commit(). */
static void note_failure(struct snug_cache_writer *writer) {
    if (!writer->out.failed) writer->out.error = errno;
    writer->out.failed = true;
}

static snug_status fail_writer(snug_context *ctx, const struct snug_cache_writer *writer) {
    if (!writer->in)
        return snug_fail(ctx, SNUG_E_IO, "tokens cannot be written to a temporary file: %s",
                         strerror(writer->out.error));
    return snug_fail(ctx, SNUG_E_IO, "the token cache %s cannot be written: %s; SNUG_CACHE names another folder for it",
                     writer->out.path, strerror(writer->out.error));
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
    put_rows(writer, row, sizeof *row);
    put_rows(writer, labels, 4 * label_count);
    put_rows(writer, ids, 4 * count);
    put_rows(writer, zeros, (size_t)(entry.offset + row_size(count, label_count) - writer->offset));
    if (fwrite(&entry, sizeof entry, 1, writer->index) != 1) note_failure(writer);
    if (writer->out.failed) return fail_writer(ctx, writer);
    writer->rows++;
    writer->tokens += (int64_t)count;
    writer->truncated += row->truncated != 0;
    if (writer->longest < (int64_t)count) writer->longest = (int64_t)count;
    return SNUG_OK;
}

static void put_length(unsigned char *lengths, int size, size_t number, uint32_t length) {
    const uint16_t narrow = (uint16_t)length;
    switch (size) {
    case 1: lengths[number] = (uint8_t)length; break;
    case 2: memcpy(lengths + 2 * number, &narrow, 2); break;
    default: memcpy(lengths + 4 * number, &length, 4);
    }
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

/* The index is collected in a file and appended later, so it is on the disk twice. */
int64_t snug_cache_writer_needs(const struct snug_cache_writer *writer, double times) {
    const double entry = sizeof(struct snug_cache_entry), length = snug_cache_length_size(writer->longest);
    const double rows = (double)writer->rows, end = rows * (1 + times) * (entry + length);
    return (int64_t)(times * ((double)writer->offset + rows * entry) + end);
}

/* Appends the lengths, from the same file. */
static void append_lengths(struct snug_cache_writer *writer, XXH3_state_t *state, uint64_t *sum) {
    struct snug_cache_entry entries[1 << 10];
    const size_t size = (size_t)snug_cache_length_size(writer->longest);
    XXH3_64bits_reset(state);
    rewind(writer->index);
    for (size_t got; (got = fread(entries, sizeof *entries, sizeof entries / sizeof *entries, writer->index)) > 0;) {
        unsigned char lengths[sizeof entries / sizeof *entries * 4];
        for (size_t i = 0; i < got; i++) put_length(lengths, (int)size, i, entries[i].length);
        snug_writer_put(&writer->out, lengths, got * size);
        XXH3_64bits_update(state, lengths, got * size);
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
    RETURN_IF_ERROR(snug_writer_commit(ctx, &writer->out));
    return snug_file_open(ctx, writer->in, writer->name, fd);
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
                                       .added = writer->added,
                                       .unused = writer->unused};
    *fd = -1;
    memcpy(header.skipped, writer->skipped, sizeof header.skipped);
    append_index(writer, writer->rows_sum, &header.index_sum);
    append_lengths(writer, writer->rows_sum, &header.lengths_sum);
    append_labels(writer, writer->rows_sum, raw, &header.labels_sum);
    header.sum = header_sum(&header);
    if (fseeko(writer->out.file, 0, SEEK_SET) != 0) note_failure(writer);
    snug_writer_put(&writer->out, &header, sizeof header);
    if (writer->out.failed) return fail_writer(ctx, writer);
    if (writer->in) return commit(ctx, writer, fd);
    if (fflush(writer->out.file) != 0) note_failure(writer);
    if (!writer->out.failed && (*fd = fcntl(fileno(writer->out.file), F_DUPFD_CLOEXEC, 0)) < 0) note_failure(writer);
    return writer->out.failed ? fail_writer(ctx, writer) : SNUG_OK;
}

void snug_cache_writer_free(struct snug_cache_writer *writer) {
    if (writer->in)
        snug_writer_abandon(&writer->out);
    else if (writer->out.file)
        fclose(writer->out.file);
    free(writer->name);
    if (writer->index) fclose(writer->index);
    XXH3_freeState(writer->rows_sum);
    *writer = (struct snug_cache_writer){0};
}
