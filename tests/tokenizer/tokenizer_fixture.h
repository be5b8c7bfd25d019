/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers in folders, beside the expected values in tests/golden. */
#ifndef SNUG_TESTS_TOKENIZER_FIXTURE_H
#define SNUG_TESTS_TOKENIZER_FIXTURE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "folders.h"
#include "io/json.h"
#include "model/family.h"
#include "sanitized.h"
#include "temporary.h"
#include "test.h"
#include "tokenizer/text_buffer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"

/* Folders of tests/golden. */
#define GOLDEN_BERT "tokenizer"
#define GOLDEN_PARTS "tokenizer_parts"

struct fixture {
    snug_context *ctx;
    int warnings;
    char folder[64];
};

static inline void count_warnings(void *user, snug_log_level level, const char *message) {
    (void)message;
    ((struct fixture *)user)->warnings += level == SNUG_LOG_WARNING;
}

static inline int set_up(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    assert_int_equal(snug_context_create(&fixture->ctx), SNUG_OK);
    snug_context_set_log(fixture->ctx, count_warnings, fixture, SNUG_LOG_DEBUG);
    assert_non_null(temporary_folder(fixture->folder, sizeof fixture->folder));
    *state = fixture;
    return 0;
}

static inline int tear_down(void **state) {
    struct fixture *fixture = *state;
    assert_int_equal(snug_folder_remove(fixture->ctx, NULL, fixture->folder), SNUG_OK);
    snug_context_destroy(fixture->ctx);
    free(fixture);
    return 0;
}

static inline struct snug_tokenizer *load(struct fixture *fixture, const char *folder) {
    struct snug_tokenizer *tokenizer;
    snug_status status = snug_tokenizer_load(fixture->ctx, folder, snug_family_tokenizer_class, &tokenizer);
    if (status != SNUG_OK) fail_msg("%s: %s", folder, snug_error_message(fixture->ctx));
    return tokenizer;
}

static inline struct snug_tokenizer *load_golden(struct fixture *fixture, const char *golden, const char *name) {
    char folder[512];
    snprintf(folder, sizeof folder, SNUG_SOURCE_DIR "/tests/golden/%s/%s", golden, name);
    return load(fixture, folder);
}

static inline json_t *read_golden(struct fixture *fixture, const char *golden, const char *name) {
    char path[512];
    json_t *value;
    snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/%s/%s.json", golden, name);
    if (snug_json_read(fixture->ctx, NULL, path, &value) != SNUG_OK) fail_msg("%s", snug_error_message(fixture->ctx));
    return value;
}

static inline int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* A text of texts.json; one with NULs is written there in hexadecimal. Freed with free(). */
static inline char *golden_text(const json_t *value, size_t *length) {
    const char *hex = json_string_value(json_object_get(value, "hex"));
    *length = hex ? strlen(hex) / 2 : json_string_length(value);
    char *text = malloc(*length + 1);
    assert_non_null(text);
    if (!hex) memcpy(text, json_string_value(value), *length);
    for (size_t i = 0; hex && i < *length; i++)
        text[i] = (char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return text;
}

static inline void expect_ids(const char *what, size_t number, const json_t *expected, const struct snug_ids *ids) {
    if (json_array_size(expected) != ids->count)
        fail_msg("%s %zu: %zu tokens, expected %zu", what, number, ids->count, json_array_size(expected));
    for (size_t i = 0; i < ids->count; i++)
        if (json_integer_value(json_array_get(expected, i)) != ids->ids[i])
            fail_msg("%s %zu: token %zu is %d, expected %lld", what, number, i, ids->ids[i],
                     json_integer_value(json_array_get(expected, i)));
}

static inline void encode(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *text,
                          size_t length, struct snug_ids *ids) {
    ids->count = 0;
    snug_status status = snug_tokenizer_encode(fixture->ctx, tokenizer, text, length, ids);
    if (status != SNUG_OK) fail_msg("%s", snug_error_message(fixture->ctx));
}

/* Encoding only the beginning of a text gives the first ids of the whole text. */
static inline void check_beginnings(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *text,
                                    size_t length, const struct snug_ids *ids) {
    for (size_t most = 0; most < 12; most = most * 2 + 1) {
        struct snug_ids begin = {0};
        assert_int_equal(snug_tokenizer_encode_begin(fixture->ctx, tokenizer, text, length, most, &begin), SNUG_OK);
        assert_true(begin.count <= ids->count && begin.count >= (most < ids->count ? most : ids->count));
        if (begin.count) assert_memory_equal(begin.ids, ids->ids, begin.count * sizeof *begin.ids);
        free(begin.ids);
    }
}

/* Types are those of the post-processor, also of a class that does not return them. */
static inline void check_pairs(struct fixture *fixture, struct snug_tokenizer *tokenizer, const char *name,
                               const json_t *pairs) {
    struct snug_ids a = {0}, b = {0}, row = {0};
    tokenizer->types = true;
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i), *types = json_array_get(pair, 4);
        const char *first = json_string_value(json_array_get(pair, 0)),
                   *second = json_string_value(json_array_get(pair, 1));
        const size_t length = (size_t)json_integer_value(json_array_get(pair, 2));
        size_t first_count;
        bool truncated;
        row.count = 0;
        encode(fixture, tokenizer, first, strlen(first), &a);
        check_beginnings(fixture, tokenizer, first, strlen(first), &a);
        if (second) encode(fixture, tokenizer, second, strlen(second), &b);
        assert_int_equal(snug_tokenizer_assemble(fixture->ctx, tokenizer, &a, second ? &b : NULL, length, &row,
                                                 &first_count, &truncated),
                         SNUG_OK);
        expect_ids(name, i, json_array_get(pair, 3), &row);
        for (size_t j = 0; j < row.count; j++)
            assert_int_equal(json_integer_value(json_array_get(types, j)), j >= first_count);
        const size_t whole = a.count + (second ? b.count : 0) + snug_tokenizer_specials(tokenizer, second != NULL);
        assert_int_equal(truncated, row.count < whole);
    }
    free(a.ids);
    free(b.ids);
    free(row.ids);
}

static inline void hash_ids(XXH3_state_t *hash, const struct snug_ids *ids) {
    const int32_t end = -1;
    if (ids->count) XXH3_64bits_update(hash, ids->ids, ids->count * sizeof *ids->ids);
    XXH3_64bits_update(hash, &end, sizeof end);
}

static inline void expect_hash(const char *what, size_t number, XXH3_state_t *hash, const json_t *expected) {
    char hex[17];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)XXH3_64bits_digest(hash));
    if (strcmp(hex, json_string_value(expected)) != 0) fail_msg("%s: block %zu differs", what, number);
}

static inline void put_file(struct fixture *fixture, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
    unlink(path);
    if (text) assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, text, strlen(text)), SNUG_OK);
}

static inline void expect_refusal(struct fixture *fixture, size_t number, snug_status expected, const char *message) {
    struct snug_tokenizer *tokenizer;
    snug_clear_error(fixture->ctx);
    const snug_status status =
        snug_tokenizer_load(fixture->ctx, fixture->folder, snug_family_tokenizer_class, &tokenizer);
    if (status != expected || !strstr(snug_error_message(fixture->ctx), message))
        fail_msg("folder %zu: status %d, \"%s\"; expected %d, \"…%s…\"", number, status,
                 snug_error_message(fixture->ctx), expected, message);
    assert_null(tokenizer);
}

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), modulo bound. */
static inline uint64_t random_below(uint64_t *state, uint64_t bound) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % bound;
}

/* String number of random_text() in tools/golden/random_texts.py, from the golden file's ranges and parts. Returns its
   length, at most 11 times the longest part's 200. */
static inline size_t random_text(const json_t *golden, uint64_t number, char text[2200]) {
    const json_t *ranges = json_object_get(golden, "ranges"), *parts = json_object_get(golden, "parts");
    size_t length = 0;
    for (uint64_t pieces = random_below(&number, 12); pieces > 0; pieces--) {
        if (random_below(&number, 4) == 0) {
            const json_t *part = json_array_get(parts, random_below(&number, json_array_size(parts)));
            memcpy(text + length, json_string_value(part), json_string_length(part));
            length += json_string_length(part);
            continue;
        }
        const json_t *range = json_array_get(ranges, random_below(&number, json_array_size(ranges)));
        const uint64_t low = (uint64_t)json_integer_value(json_array_get(range, 0)),
                       high = (uint64_t)json_integer_value(json_array_get(range, 1));
        for (uint64_t codes = 1 + random_below(&number, 3); codes > 0; codes--) {
            const uint32_t code = (uint32_t)(low + random_below(&number, high - low + 1));
            if (code < 0xd800 || code >= 0xe000) length += snug_utf8_put(text + length, code);
        }
    }
    return length;
}

/* What one digest of a golden file is of. */
struct hashing {
    struct fixture *fixture;
    const struct snug_tokenizer *tokenizer;
    const json_t *golden;
    XXH3_state_t *hash;
    struct snug_ids ids;
    struct snug_text text;
};

/* Adds the ids of a text. */
static inline void hash_text(struct hashing *h, const char *text, size_t length) {
    encode(h->fixture, h->tokenizer, text, length, &h->ids);
    hash_ids(h->hash, &h->ids);
}

/* Digests of blocks of texts with each tokenizer: digests[tokenizer's name][block], count blocks, whose texts
   hash_block adds: all blocks before `sparse`, and of the others all or every 16th. */
static inline void check_digests(struct fixture *fixture, const char *folder, const json_t *golden, json_t *digests,
                                 size_t count, size_t sparse, bool all,
                                 void (*hash_block)(struct hashing *h, uint32_t block)) {
    struct hashing h = {.fixture = fixture, .golden = golden, .hash = XXH3_createState()};
    const char *name;
    json_t *blocks;
    json_object_foreach(digests, name, blocks) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, folder, name);
        h.tokenizer = tokenizer;
        assert_int_equal(json_array_size(blocks), count);
        for (size_t block = 0; block < count; block += !all && block >= sparse ? 16 : 1) {
            XXH3_64bits_reset(h.hash);
            hash_block(&h, (uint32_t)block);
            expect_hash(name, block, h.hash, json_array_get(blocks, block));
        }
        snug_tokenizer_free(tokenizer);
    }
    free(h.text.text);
    free(h.ids.ids);
    XXH3_freeState(h.hash);
}

/* All code points, in blocks of 4096; of the planes above the second, which have few characters or Chinese ones alone,
   one block each. */
static inline void check_code_points(struct fixture *fixture, const char *folder, size_t tokenizers,
                                     void (*hash_block)(struct hashing *h, uint32_t block)) {
    json_t *golden = read_golden(fixture, folder, "codepoints");
    assert_int_equal(json_object_size(golden), tokenizers);
    check_digests(fixture, folder, golden, golden, 0x110, 0x20, is_long(), hash_block);
    json_decref(golden);
}

static inline uint64_t random_block_size(const json_t *golden) {
    return (uint64_t)json_integer_value(json_object_get(golden, "block"));
}

static inline void hash_random_block(struct hashing *h, uint32_t block) {
    const uint64_t size = random_block_size(h->golden);
    for (uint64_t number = block * size; number < (block + 1) * size; number++) {
        char text[2200];
        hash_text(h, text, random_text(h->golden, number, text));
    }
}

/* 100,000 random strings, with each of the tokenizers of random.json. */
static inline void check_random_texts(struct fixture *fixture, const char *folder, size_t tokenizers) {
    json_t *golden = read_golden(fixture, folder, "random"), *digests = json_object_get(golden, "digests");
    assert_int_equal(json_object_size(digests), tokenizers);
    check_digests(fixture, folder, golden, digests, 100000 / random_block_size(golden), 0, !SANITIZED,
                  hash_random_block);
    json_decref(golden);
}

/* Encodes each of the golden file's texts, and beginnings of it. */
static inline void check_texts(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *name,
                               const json_t *texts, const json_t *expected) {
    struct snug_ids ids = {0};
    assert_int_equal(json_array_size(expected), json_array_size(texts));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        size_t length;
        char *text = golden_text(json_array_get(texts, i), &length);
        encode(fixture, tokenizer, text, length, &ids);
        check_beginnings(fixture, tokenizer, text, length, &ids);
        free(text);
        expect_ids(name, i, json_array_get(expected, i), &ids);
    }
    free(ids.ids);
}

#endif
