/* SPDX-License-Identifier: Apache-2.0 */
/* The Unigram model, the precompiled normalizer and SentencePiece's files compared with the `tokenizers` library
   (tools/golden/unigram.py), every code point included, and refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "io/file.h"
#include "io/json.h"
#include "sanitized.h"
#include "test.h"
#include "tokenizer/grapheme.h"
#include "tokenizer/precompiled.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/unigram/"
#define SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's mark for a space */

/* A SentencePiece model that is ready to encode. */
struct pipeline {
    snug_context *ctx;
    char *data;
    struct snug_sentencepiece file;
    struct snug_precompiled map;
    struct snug_unigram model;
    struct snug_unigram_scratch scratch;
    struct snug_text normalized, word;
    struct snug_ids ids;
};

static void must(snug_context *ctx, snug_status status) {
    if (status == SNUG_OK) return;
    fprintf(stderr, "%s\n", snug_error_message(ctx));
    exit(1);
}

static void pipeline_open(struct pipeline *pipeline, const char *path) {
    size_t size;
    *pipeline = (struct pipeline){0};
    assert_int_equal(snug_context_create(&pipeline->ctx), SNUG_OK);
    snug_context *ctx = pipeline->ctx;
    const struct snug_sentencepiece *file = &pipeline->file;
    must(ctx, snug_file_read(ctx, NULL, path, &pipeline->data, &size));
    must(ctx, snug_sentencepiece_read(ctx, &pipeline->file, SNUG_SENTENCEPIECE_UNIGRAM, path, pipeline->data, size));
    if (file->charsmap)
        must(ctx, snug_precompiled_read(ctx, &pipeline->map, path, file->charsmap, file->charsmap_size));
    for (size_t id = 0; id < file->count; id++) {
        const struct snug_sentencepiece_piece *piece = &file->pieces[id];
        must(ctx, snug_unigram_add(ctx, &pipeline->model, path, piece->text, piece->length, piece->score));
    }
    must(ctx, snug_unigram_finish(ctx, &pipeline->model, path, file->unk_id, file->byte_fallback));
}

static void pipeline_close(struct pipeline *pipeline) {
    snug_sentencepiece_free(&pipeline->file);
    snug_precompiled_free(&pipeline->map);
    snug_unigram_free(&pipeline->model);
    snug_unigram_scratch_free(&pipeline->scratch);
    free(pipeline->normalized.text);
    free(pipeline->word.text);
    free(pipeline->ids.ids);
    free(pipeline->data);
    snug_context_destroy(pipeline->ctx);
}

static void append(struct pipeline *pipeline, struct snug_text *to, const char *text, size_t length) {
    must(pipeline->ctx, snug_grow(pipeline->ctx, (void **)&to->text, &to->capacity, to->length + length + 1, 1));
    memcpy(to->text + to->length, text, length);
    to->length += length;
}

/* Fills normalized and ids: those of the whole normalized text as one word, with a space before it. */
static void pipeline_encode(struct pipeline *pipeline, const char *text, size_t length) {
    struct snug_text *normalized = &pipeline->normalized, *word = &pipeline->word;
    if (pipeline->map.count) {
        must(pipeline->ctx, snug_precompiled_normalize(pipeline->ctx, &pipeline->map, text, length, normalized));
    } else {
        normalized->length = 0;
        append(pipeline, normalized, text, length);
    }
    word->length = 0;
    append(pipeline, word, SPACE, strlen(SPACE));
    for (size_t at = 0, end; at < normalized->length; at = end) {
        for (end = at; end < normalized->length && normalized->text[end] != ' ';) end++;
        append(pipeline, word, normalized->text + at, end - at);
        if (end == normalized->length) break;
        append(pipeline, word, SPACE, strlen(SPACE));
        end++;
    }
    pipeline->ids.count = 0;
    must(pipeline->ctx, snug_unigram_encode(pipeline->ctx, &pipeline->model, word->text, word->length,
                                            &pipeline->scratch, &pipeline->ids));
}

/* ---- golden files ---- */

static json_t *read_golden(void) {
    snug_context *ctx;
    json_t *golden;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    must(ctx, snug_json_read(ctx, NULL, GOLDEN "golden.json", &golden));
    snug_context_destroy(ctx);
    return golden;
}

static void open_golden(struct pipeline *pipeline, const char *name) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s.model", name);
    pipeline_open(pipeline, path);
}

static void update(XXH3_state_t *hash, struct pipeline *pipeline, const char *text, size_t length) {
    const int32_t end = -1;
    pipeline_encode(pipeline, text, length);
    append(pipeline, &pipeline->normalized, "", 1);
    XXH3_64bits_update(hash, pipeline->normalized.text, pipeline->normalized.length);
    XXH3_64bits_update(hash, pipeline->ids.ids, pipeline->ids.count * sizeof *pipeline->ids.ids);
    XXH3_64bits_update(hash, &end, sizeof end);
}

static bool is_digest(XXH3_state_t *hash, const json_t *expected) {
    char hex[17];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)XXH3_64bits_digest(hash));
    XXH3_64bits_reset(hash);
    return strcmp(hex, json_string_value(expected)) == 0;
}

static XXH3_state_t *new_hash(void) {
    XXH3_state_t *hash = XXH3_createState();
    assert_non_null(hash);
    XXH3_64bits_reset(hash);
    return hash;
}

static void check_sentence(struct pipeline *pipeline, const char *text, const json_t *expected) {
    const json_t *normalized = json_array_get(expected, 0), *ids = json_array_get(expected, 1);
    pipeline_encode(pipeline, text, strlen(text));
    assert_int_equal(pipeline->normalized.length, json_string_length(normalized));
    assert_memory_equal(pipeline->normalized.text, json_string_value(normalized), pipeline->normalized.length);
    assert_int_equal(pipeline->ids.count, json_array_size(ids));
    for (size_t i = 0; i < pipeline->ids.count; i++)
        assert_int_equal(pipeline->ids.ids[i], json_integer_value(json_array_get(ids, i)));
}

TEST(test_texts) {
    json_t *golden = read_golden(), *models = json_object_get(golden, "models"), *model;
    const json_t *sentences = json_object_get(golden, "sentences"), *texts = json_object_get(golden, "texts");
    const char *name;
    assert_int_equal(json_object_size(models), 3);
    assert_true(json_array_size(texts) > 100 && json_array_size(sentences) > 10);
    json_object_foreach(models, name, model) {
        struct pipeline pipeline;
        XXH3_state_t *hash = new_hash();
        open_golden(&pipeline, name);
        for (size_t i = 0; i < json_array_size(sentences); i++)
            check_sentence(&pipeline, json_string_value(json_array_get(sentences, i)),
                           json_array_get(json_object_get(model, "sentences"), i));
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *text = json_array_get(texts, i);
            update(hash, &pipeline, json_string_value(text), json_string_length(text));
        }
        if (!is_digest(hash, json_object_get(model, "texts")))
            fail_msg("%s: a text differs: see tools/golden/unigram.py --compare", name);
        XXH3_freeState(hash);
        pipeline_close(&pipeline);
    }
    json_decref(golden);
}

static void update_code(XXH3_state_t *hash, struct pipeline *pipeline, uint32_t code) {
    static const char *const surroundings[][2] = {{"", ""},
                                                  {"a", "b"},
                                                  {"\xef\xbc\xa1", "\xcc\x81"}, /* a fullwidth A, a combining acute */
                                                  {"\xe0\xa4\x95\xe0\xa5\x8d",  /* Devanagari ka, virama */
                                                   "\xe0\xa5\x8d\xe0\xa4\x95\xcc\x81"}};
    for (size_t i = 0; i < sizeof surroundings / sizeof *surroundings; i++) {
        char text[64];
        size_t length = strlen(strcpy(text, surroundings[i][0]));
        length += snug_utf8_put(text + length, code);
        length += strlen(strcpy(text + length, surroundings[i][1]));
        update(hash, pipeline, text, length);
    }
}

TEST(test_code_points) {
    enum { BLOCK = 16384 };
    json_t *golden = read_golden(), *model;
    const char *name;
    json_object_foreach(json_object_get(golden, "models"), name, model) {
        const json_t *blocks = json_object_get(model, "codepoints");
        struct pipeline pipeline;
        XXH3_state_t *hash = new_hash();
        open_golden(&pipeline, name);
        assert_int_equal(json_array_size(blocks), 0x110000 / BLOCK);
        /* Sanitized, of the planes above the first, which have few characters or Chinese ones alone, every 16th block.
         */
        for (uint32_t block = 0; block < 0x110000 / BLOCK; block += SANITIZED && block >= 0x20000 / BLOCK ? 16 : 1) {
            for (uint32_t code = block * BLOCK; code < (block + 1) * BLOCK; code++)
                if (code < 0xd800 || code >= 0xe000) update_code(hash, &pipeline, code);
            if (!is_digest(hash, json_array_get(blocks, block)))
                fail_msg("%s: a code point of U+%04X … differs", name, block * BLOCK);
        }
        XXH3_freeState(hash);
        pipeline_close(&pipeline);
    }
    json_decref(golden);
}

/* ---- hand-written vocabularies ---- */

static void read_handmade(snug_context *ctx, const json_t *golden, struct snug_unigram *model) {
    const json_t *vocab = json_object_get(golden, "vocab"), *unk = json_object_get(golden, "unk_id");
    for (size_t id = 0; id < json_array_size(vocab); id++) {
        const json_t *text = json_array_get(json_array_get(vocab, id), 0);
        const double score = json_number_value(json_array_get(json_array_get(vocab, id), 1));
        must(ctx, snug_unigram_add(ctx, model, "vocab", json_string_value(text), json_string_length(text), score));
    }
    must(ctx, snug_unigram_finish(ctx, model, "vocab", json_is_null(unk) ? -1 : json_integer_value(unk),
                                  json_is_true(json_object_get(golden, "byte_fallback"))));
}

/* Adds the ids of every text of count parts, in the order of itertools.product. */
static void update_products(snug_context *ctx, XXH3_state_t *hash, const struct snug_unigram *model,
                            const json_t *parts, size_t count) {
    struct snug_unigram_scratch scratch = {0};
    struct snug_ids ids = {0};
    const size_t choices = json_array_size(parts);
    size_t texts = 1;
    for (size_t i = 0; i < count; i++) texts *= choices;
    for (size_t number = 0; number < texts; number++) {
        char text[128] = "";
        for (size_t i = count, rest = texts; i > 0; i--) {
            rest /= choices;
            strcat(text, json_string_value(json_array_get(parts, number / rest % choices)));
        }
        ids.count = 0;
        int32_t end = -1;
        if (snug_unigram_encode(ctx, model, text, strlen(text), &scratch, &ids) != SNUG_OK) {
            assert_non_null(strstr(snug_error_message(ctx), "unk_id"));
            snug_clear_error(ctx);
            ids.count = 0;
            end = -2;
        }
        XXH3_64bits_update(hash, ids.ids, ids.count * sizeof *ids.ids);
        XXH3_64bits_update(hash, &end, sizeof end);
    }
    snug_unigram_scratch_free(&scratch);
    free(ids.ids);
}

TEST(test_handmade) {
    json_t *golden = read_golden();
    const json_t *models = json_object_get(golden, "handmade");
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    assert_true(json_array_size(models) >= 6);
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *expected = json_array_get(models, i);
        struct snug_unigram model = {0};
        XXH3_state_t *hash = new_hash();
        read_handmade(ctx, expected, &model);
        for (json_int_t count = 1; count <= json_integer_value(json_object_get(expected, "most")); count++)
            update_products(ctx, hash, &model, json_object_get(expected, "parts"), (size_t)count);
        if (!is_digest(hash, json_object_get(expected, "digest")))
            fail_msg("%s: a text differs", json_string_value(json_object_get(expected, "name")));
        XXH3_freeState(hash);
        snug_unigram_free(&model);
    }
    snug_context_destroy(ctx);
    json_decref(golden);
}

/* A model of these pieces, the first of which is the unknown token. */
static void make_model(snug_context *ctx, struct snug_unigram *model, const char *const *pieces, size_t count) {
    *model = (struct snug_unigram){0};
    for (size_t id = 0; id < count; id++)
        must(ctx, snug_unigram_add(ctx, model, "vocab", pieces[id], strlen(pieces[id]), -1.0 - (double)id));
    must(ctx, snug_unigram_finish(ctx, model, "vocab", 0, false));
}

/* Time does not depend on the longest piece, nor the memory for nodes on the overlap of pieces. Nothing is allocated
   twice. */
TEST(test_long_text) {
    enum { LENGTH = 1 << 20, PIECE = 1 << 16 };
    snug_context *ctx;
    struct snug_unigram model;
    struct snug_unigram_scratch scratch = {0};
    struct snug_ids ids = {0};
    char *text = malloc(LENGTH), *piece = malloc(PIECE + 1);
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    assert_true(text && piece);
    memset(text, 'x', LENGTH);
    memset(piece, 'x', PIECE);
    strcpy(piece + PIECE - 1, "y");
    make_model(ctx, &model, (const char *const[]){"<unk>", "a", "ab", piece}, 4);
    must(ctx, snug_unigram_encode(ctx, &model, text, LENGTH, &scratch, &ids));
    assert_int_equal(ids.count, 1); /* unknown characters are one token */
    assert_int_equal(ids.ids[0], 0);
    snug_unigram_scratch_free(&scratch);
    for (size_t i = 0; i < LENGTH; i++) text[i] = i % 3 == 2 ? 'x' : i % 3 == 1 ? 'b' : 'a';
    ids.count = 0;
    must(ctx, snug_unigram_encode(ctx, &model, text, LENGTH, &scratch, &ids));
    assert_int_equal(ids.count, 2 * (LENGTH / 3) + 1);
    assert_true(scratch.capacity < 100);
    const struct snug_unigram_node *nodes = scratch.nodes;
    ids.count = 0;
    must(ctx, snug_unigram_encode(ctx, &model, text, LENGTH, &scratch, &ids));
    assert_ptr_equal(nodes, scratch.nodes);
    snug_unigram_free(&model);

    /* Overlapping pieces without end: the best path is known only at the end of the text. */
    memset(text, 'a', LENGTH);
    make_model(ctx, &model, (const char *const[]){"<unk>", "aa", "a", "aaaa"}, 4);
    ids.count = 0;
    must(ctx, snug_unigram_encode(ctx, &model, text, LENGTH, &scratch, &ids));
    assert_int_equal(ids.count, LENGTH / 4);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.ids[i], 3);
    snug_unigram_free(&model);
    snug_unigram_scratch_free(&scratch);
    snug_context_destroy(ctx);
    free(ids.ids);
    free(text);
    free(piece);
}

static void expect_failure(snug_context *ctx, snug_status expected, snug_status status, const char *part) {
    if (status != expected || !strstr(snug_error_message(ctx), part))
        fail_msg("status %d and \"%s\" instead of %d and \"…%s…\"", status, snug_error_message(ctx), expected, part);
    snug_clear_error(ctx);
}

TEST(test_vocabulary_is_refused) {
    snug_context *ctx;
    struct snug_unigram model = {0};
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    expect_failure(ctx, SNUG_E_INPUT, snug_unigram_finish(ctx, &model, "t.json", 0, false), "vocabulary is empty");
    must(ctx, snug_unigram_add(ctx, &model, "t.json", "a", 1, -1));
    expect_failure(ctx, SNUG_E_INPUT, snug_unigram_add(ctx, &model, "t.json", "\xff", 1, -1),
                   "t.json: piece 1 of the vocabulary is not valid UTF-8");
    expect_failure(ctx, SNUG_E_INPUT, snug_unigram_add(ctx, &model, "t.json", "b", 1, (double)INFINITY),
                   "piece 1 of the vocabulary, \"b\", has no finite score");
    expect_failure(ctx, SNUG_E_INPUT, snug_unigram_finish(ctx, &model, "t.json", 1, false), "unk_id is 1");
    expect_failure(ctx, SNUG_E_INPUT, snug_unigram_finish(ctx, &model, "t.json", -2, false), "unk_id is -2");
    must(ctx, snug_unigram_add(ctx, &model, "t.json", "", 0, -3));
    must(ctx, snug_unigram_finish(ctx, &model, "t.json", -1, false));
    assert_int_equal(snug_unigram_find(&model, "a", 1), 0);
    assert_int_equal(snug_unigram_find(&model, "", 0), -1);
    assert_int_equal(snug_unigram_find(&model, "b", 1), -1);
    assert_int_equal(snug_unigram_find(&model, "aa", 2), -1);
    snug_unigram_free(&model);
    snug_context_destroy(ctx);
}

/* ---- the charsmap ---- */

/* A map with the single key "a". The trie's root leads to unit 256; from there 'a' leads to 353, and that to 97, its
   value. */
struct map {
    uint32_t bytes, units[512];
    char texts[8];
};
static struct map small_map(void) {
    struct map map = {.bytes = sizeof map.units, .texts = "\xc3\xa4\0bc"};
    map.units[0] = 256u << 10;
    map.units[256 + 'a'] = 256u << 10 | 1u << 8 | 'a';
    map.units['a'] = 1u << 31;
    return map;
}
static size_t small_size(void) { return offsetof(struct map, texts) + 5; }

static void expect_map_refused(const struct map *bytes, size_t size, const char *part) {
    snug_context *ctx;
    struct snug_precompiled map = {0};
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    expect_failure(ctx, SNUG_E_INPUT, snug_precompiled_read(ctx, &map, "m", bytes, size), part);
    snug_precompiled_free(&map);
    snug_context_destroy(ctx);
}

static void expect_normalized(const struct map *bytes, const char *text, const char *expected) {
    snug_context *ctx;
    struct snug_precompiled map = {0};
    struct snug_text out = {0};
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    must(ctx, snug_precompiled_read(ctx, &map, "m", bytes, small_size()));
    must(ctx, snug_precompiled_normalize(ctx, &map, text, strlen(text), &out));
    assert_int_equal(out.length, strlen(expected));
    assert_memory_equal(out.text, expected, out.length);
    snug_precompiled_free(&map);
    free(out.text);
    snug_context_destroy(ctx);
}

TEST(test_charsmap) {
    struct map map = small_map();
    expect_normalized(&map, "", "");
    expect_normalized(&map, "xay\r\na", "x\xc3\xa4y\r\n\xc3\xa4");
    /* In a cluster of less than 6 bytes, the text after the key is dropped. */
    expect_normalized(&map, "a\xcc\x81", "\xc3\xa4");
    expect_normalized(&map, "a\xcc\x81\xcc\x81", "\xc3\xa4");
    expect_normalized(&map, "a\xcc\x81\xcc\x81\xcc\x81", "\xc3\xa4\xcc\x81\xcc\x81\xcc\x81");
    map.units['a'] = 1u << 31 | 3; /* a replacement may begin within another one, be empty, or end with the map */
    expect_normalized(&map, "a", "bc");
    map.units['a'] = 4;
    expect_normalized(&map, "a", "c");
    map.units['a'] = 5;
    expect_normalized(&map, "xa", "x");
}

TEST(test_charsmap_is_refused) {
    const size_t size = small_size();
    struct map map = small_map();
    for (size_t cut = 0; cut < offsetof(struct map, texts); cut++) expect_map_refused(&map, cut, "is malformed");
    map.bytes = 3;
    expect_map_refused(&map, size, "are not a valid size of a trie");
    map.bytes = UINT32_MAX;
    expect_map_refused(&map, size, "are not a valid size of a trie");
    map = small_map();
    map.units[0] = 512u << 10;
    expect_map_refused(&map, size, "unit 0 of its trie leads to unit 767 of 512");
    map = small_map();
    map.bytes = 4 * 511;
    map.units[256 + 'a'] = 'a';
    expect_map_refused(&map, size, "leads to unit 511 of 511");
    map = small_map();
    map.units[256 + 'a'] = 0x1fffffu << 10 | 1u << 9 | 'a';
    expect_map_refused(&map, size, "unit 353 of its trie leads to unit");
    map = small_map();
    map.units['a'] = 1;
    expect_map_refused(&map, size, "the replacement at byte 1 of 5, where no character begins");
    map.units['a'] = 6;
    expect_map_refused(&map, size, "the replacement at byte 6 of 5");
    map = small_map();
    map.units[0] |= 'b' | 1u << 8; /* a byte leads back to the root, which has no value */
    map.units[256] = 7;
    expect_map_refused(&map, size, "the replacement at byte 7 of 5");
    map = small_map();
    map.texts[1] = 'x';
    expect_map_refused(&map, size, "byte 0 of its replacements is not valid UTF-8");
    expect_map_refused(&map, SNUG_CHARSMAP_MOST + 1, "at most 16777216 are taken");
    struct {
        struct map map;
        char more[SNUG_REPLACEMENT_MOST];
    } longer = {.map = small_map()};
    memset(longer.map.texts, 'x', sizeof longer - offsetof(struct map, texts));
    expect_map_refused(&longer.map, size + SNUG_REPLACEMENT_MOST, "has a replacement of 1029 bytes");
}

TEST(test_base64) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char *const refused[] = {"A",    "AA",   "AAA",  "AAAAA",    "A===", "====", "AA=A",
                                          "AB==", "AAB=", "AA A", "AA==AAAA", "A-_A", "A{AA", "~AAA"};
    struct map map = small_map();
    memcpy(map.texts, "\xef\xbf\xbf", 3); /* whose encoding has the digits + and / */
    const unsigned char *bytes = (const unsigned char *)&map;
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    for (size_t size = small_size() - 2; size <= small_size(); size++) { /* each number of bytes modulo 3 */
        struct snug_precompiled read = {0};
        char text[4096];
        size_t length = 0;
        for (size_t at = 0; at < size; at += 3) {
            const uint32_t bits = (uint32_t)bytes[at] << 16 | (at + 1 < size ? bytes[at + 1] : 0u) << 8 |
                                  (at + 2 < size ? bytes[at + 2] : 0u);
            for (size_t i = 0; i < 4; i++) text[length++] = at + i <= size ? digits[bits >> (18 - 6 * i) & 63] : '=';
        }
        must(ctx, snug_precompiled_read_base64(ctx, &read, "t.json", text, length));
        assert_int_equal(read.count, 512);
        assert_int_equal(read.size, size - offsetof(struct map, texts));
        assert_memory_equal(read.units, map.units, sizeof map.units);
        assert_memory_equal(read.texts, map.texts, read.size);
        snug_precompiled_free(&read);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct snug_precompiled read = {0};
        expect_failure(ctx, SNUG_E_INPUT,
                       snug_precompiled_read_base64(ctx, &read, "t.json", refused[i], strlen(refused[i])),
                       "t.json: precompiled_charsmap is not valid base64");
    }
    struct snug_precompiled read = {0};
    expect_failure(ctx, SNUG_E_INPUT, snug_precompiled_read_base64(ctx, &read, "t.json", "", 0), "is malformed");
    snug_context_destroy(ctx);
}

TEST(test_graphemes) {
    /* Clusters, each followed by a bar. */
    static const char *const cases[] = {"a|b|\r\n|\r|\r|a|\n|\n|a\u0301\u0302|",
                                        "\u1100\u1161\u11a8|\u1100|a|\uac00\u1161|",
                                        "\uac00\u11a8\u11a8|\uac01|\u1161\u1161\u11a8|\uac01\u11a8|",
                                        "\U0001F1E6\U0001F1E7|\U0001F1E8|a|",
                                        "\U0001F468\u200d\U0001F469\u200d\U0001F467|\U0001F468\U0001F3FB|",
                                        "\u0600a\u0301|\u0600|\n|",
                                        "\u0915\u094d\u0915\u0903|\u0915|",
                                        "\u0915\u094d\u200d\u0937|",
                                        "\u00ad|\u0301|",
                                        "\u00a9\u200d\u200d|\u00a9|"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        size_t length = 0, at = 0;
        for (const char *c = cases[i]; *c; c++)
            if (*c != '|') text[length++] = *c;
        for (const char *c = cases[i]; *c; c++) {
            const size_t size = strcspn(c, "|"), end = snug_grapheme_end(text, length, at);
            if (end != at + size) fail_msg("%s: a cluster ends at byte %zu instead of %zu", cases[i], end, at + size);
            at = end;
            c += size;
        }
    }
}

/* ---- SentencePiece's files ---- */

struct bytes {
    unsigned char data[1024];
    size_t size;
};

static void put_varint(struct bytes *to, uint64_t value) {
    for (; value > 127; value >>= 7) to->data[to->size++] = (unsigned char)(value | 128);
    to->data[to->size++] = (unsigned char)value;
}

static void put_number(struct bytes *to, unsigned field, int64_t value) {
    put_varint(to, field << 3);
    put_varint(to, (uint64_t)value);
}

static void put_bytes(struct bytes *to, unsigned field, const void *data, size_t size) {
    put_varint(to, field << 3 | 2);
    put_varint(to, size);
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void put_piece(struct bytes *to, const char *text, float score, int type) {
    struct bytes piece = {.size = 0};
    if (text) put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    memcpy(piece.data + piece.size, &score, 4);
    piece.size += 4;
    if (type) put_number(&piece, 3, type);
    put_bytes(to, 1, piece.data, piece.size);
}

static void put_trainer(struct bytes *to, unsigned field, int64_t value) {
    struct bytes trainer = {.size = 0};
    put_number(&trainer, field, value);
    put_bytes(to, 2, trainer.data, trainer.size);
}

static struct bytes two_pieces(void) {
    struct bytes file = {.size = 0};
    put_piece(&file, "<unk>", 0, SNUG_SENTENCEPIECE_UNKNOWN);
    put_piece(&file, "ab", -1.5f, 0);
    return file;
}

TEST(test_sentencepiece) {
    snug_context *ctx;
    struct snug_sentencepiece model;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    struct bytes file = two_pieces(), normalizer = {.size = 0};
    must(ctx, snug_sentencepiece_read(ctx, &model, SNUG_SENTENCEPIECE_UNIGRAM, "m", file.data, file.size));
    assert_int_equal(model.count, 2);
    assert_int_equal(model.pieces[0].type, SNUG_SENTENCEPIECE_UNKNOWN);
    assert_int_equal(model.pieces[1].type, SNUG_SENTENCEPIECE_NORMAL);
    assert_int_equal(model.pieces[1].length, 2);
    assert_memory_equal(model.pieces[1].text, "ab", 2);
    assert_true(model.pieces[1].score == -1.5);
    assert_true(model.unk_id == 0 && model.bos_id == 1 && model.eos_id == 2 && model.pad_id == -1);
    assert_true(!model.byte_fallback && !model.treat_whitespace_as_suffix && !model.charsmap);
    assert_true(model.add_dummy_prefix && model.remove_extra_whitespaces && model.escape_whitespaces);
    snug_sentencepiece_free(&model);

    /* Parts of a message are merged; unknown fields, or fields with another encoding, are skipped. */
    put_trainer(&file, 40, 1);
    put_trainer(&file, 41, -1);
    put_trainer(&file, 42, 7);
    put_trainer(&file, 43, 0);
    put_trainer(&file, 35, 1);
    put_trainer(&file, 24, 1);
    put_bytes(&file, 19, "unknown", 7);
    put_number(&file, 2, 3);
    put_number(&normalizer, 9, 1);
    put_bytes(&file, 1, "\x0a\1c\x20\1", 5);
    put_varint(&file, 99 << 3 | 1);
    file.size += 8;
    put_bytes(&normalizer, 2, "charsmap", 8);
    for (unsigned field = 3; field <= 5; field++) put_number(&normalizer, field, 0);
    put_bytes(&file, 3, normalizer.data, normalizer.size);
    must(ctx, snug_sentencepiece_read(ctx, &model, SNUG_SENTENCEPIECE_UNIGRAM, "m", file.data, file.size));
    assert_int_equal(model.count, 3);
    assert_true(model.unk_id == 1 && model.bos_id == -1 && model.eos_id == 7 && model.pad_id == 0);
    assert_true(model.byte_fallback && model.treat_whitespace_as_suffix);
    assert_true(!model.add_dummy_prefix && !model.remove_extra_whitespaces && !model.escape_whitespaces);
    assert_int_equal(model.charsmap_size, 8);
    assert_memory_equal(model.charsmap, "charsmap", 8);
    snug_sentencepiece_free(&model);
    snug_context_destroy(ctx);
}

static void expect_refused(const struct bytes *file, snug_status expected, const char *part) {
    snug_context *ctx;
    struct snug_sentencepiece model;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    expect_failure(ctx, expected,
                   snug_sentencepiece_read(ctx, &model, SNUG_SENTENCEPIECE_UNIGRAM, "m", file->data, file->size), part);
    assert_null(model.pieces);
    snug_context_destroy(ctx);
}

TEST(test_sentencepiece_is_refused) {
    static const char *const types[] = {"unknown", NULL, "BPE", "WORD", "CHAR", "unknown"};
    for (int type = 0; type < 6; type++) {
        char part[64];
        if (!types[type]) continue;
        struct bytes file = two_pieces();
        put_trainer(&file, 3, type);
        snprintf(part, sizeof part, "is of type %s (trainer_spec.model_type %d)", types[type], type);
        expect_refused(&file, SNUG_E_UNSUPPORTED, part);
    }
    struct bytes file = {.size = 0};
    expect_refused(&file, SNUG_E_INPUT, "has no pieces");
    file = two_pieces();
    put_trainer(&file, 40, 2);
    expect_refused(&file, SNUG_E_INPUT, "unk_id is 2");
    put_trainer(&file, 40, -1);
    expect_refused(&file, SNUG_E_INPUT, "unk_id is -1");
    file = two_pieces();
    put_piece(&file, "c", 0, 7);
    expect_refused(&file, SNUG_E_INPUT, "unknown type");
    file = two_pieces();
    put_bytes(&file, 1, "\x18", 2); /* type 0 */
    expect_refused(&file, SNUG_E_INPUT, "unknown type");
    file = two_pieces();
    put_piece(&file, NULL, 0, 1);
    expect_refused(&file, SNUG_E_INPUT, "a piece has no text");
    file = two_pieces();
    put_piece(&file, "\xff", 0, 1);
    expect_refused(&file, SNUG_E_INPUT, "a piece is not valid UTF-8");
    file = two_pieces();
    put_piece(&file, "c", -INFINITY, 1);
    expect_refused(&file, SNUG_E_INPUT, "a piece has no finite score");

    static const struct {
        unsigned char data[12];
        size_t size;
        const char *part;
    } cases[] = {{{0x08}, 1, "m: byte 1: an integer has no end"},
                 {{0x80}, 1, "an integer has no end"},
                 {{8, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1}, 12, "an integer has no end"},
                 {{0x00, 0}, 2, "a field has no valid number"},
                 {{0xf8, 0xff, 0xff, 0xff, 0x7f, 0}, 6, "a field has no valid number"},
                 {{0x0b, 0}, 2, "a field is of an unknown kind"},
                 {{0x0a, 5, 0x0a}, 3, "a field is longer than what contains it"},
                 {{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 11, "longer than what contains it"},
                 {{0x15, 0, 0, 0}, 4, "a number is truncated"},
                 {{0x11, 0, 0, 0, 0, 0, 0, 0}, 8, "a number is truncated"},
                 {{0x0a, 2, 0x0a, 1}, 4, "longer than what contains it"},
                 {{0x12, 1, 0x18}, 3, "an integer has no end"},
                 {{0x1a, 1, 0x18}, 3, "an integer has no end"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file.size = cases[i].size;
        memcpy(file.data, cases[i].data, file.size);
        expect_refused(&file, SNUG_E_INPUT, cases[i].part);
    }
}

/* ---- failing allocations ------ */

static int64_t allocations_left = INT64_MAX; /* until one fails */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) { return allocations_left-- > 0 ? __real_calloc(count, size) : NULL; }
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size) { return allocations_left-- > 0 ? __real_realloc(memory, size) : NULL; }

/* Reads a model with a charsmap, and normalizes and encodes a text. */
static snug_status read_and_encode(struct pipeline *p, const struct bytes *file, const struct map *map) {
    static const char text[] = "axb a\xcc\x81xxxx aaaabbbb a\r\nxy";
    const size_t length = sizeof text - 1;
    RETURN_IF_ERROR(snug_sentencepiece_read(p->ctx, &p->file, SNUG_SENTENCEPIECE_UNIGRAM, "m", file->data, file->size));
    RETURN_IF_ERROR(snug_precompiled_read(p->ctx, &p->map, "m", map, small_size()));
    for (size_t id = 0; id < p->file.count; id++)
        RETURN_IF_ERROR(snug_unigram_add(p->ctx, &p->model, "m", p->file.pieces[id].text, p->file.pieces[id].length,
                                         p->file.pieces[id].score));
    RETURN_IF_ERROR(snug_unigram_finish(p->ctx, &p->model, "m", 0, true));
    RETURN_IF_ERROR(snug_precompiled_normalize(p->ctx, &p->map, text, length, &p->normalized));
    return snug_unigram_encode(p->ctx, &p->model, p->normalized.text, p->normalized.length, &p->scratch, &p->ids);
}

TEST(test_failing_allocations) {
    struct map map = small_map();
    struct bytes file = two_pieces();
    snug_status status = SNUG_E_MEMORY;
    int64_t number = 0;
    memcpy(map.texts, "ab ab", 5); /* longer than the text, and at the end of the map */
    put_piece(&file, "xxxxabaaaabbbbaaaabbbb", -1, 0);
    put_piece(&file, "<0x78>", -1, 0);
    put_piece(&file, "x", -30, 0);
    for (const char *c = "cdefghijklmnopq"; *c; c++) put_piece(&file, (const char[]){*c, 0}, -1, 0);
    for (; status != SNUG_OK && number < 1000; number++) {
        struct pipeline pipeline = {0};
        assert_int_equal(snug_context_create(&pipeline.ctx), SNUG_OK);
        allocations_left = number;
        status = read_and_encode(&pipeline, &file, &map);
        allocations_left = INT64_MAX;
        assert_true(status == SNUG_OK || status == SNUG_E_MEMORY);
        pipeline_close(&pipeline);
    }
    assert_true(status == SNUG_OK && number > 15);
}

/* ---- texts of tools/golden/unigram.py --compare ---- */

/* Reads texts (a 32-bit length and bytes each) until the input ends, and writes for each the normalized text and the
   ids, both with their count first. */
static int encode_input(const char *path) {
    struct pipeline pipeline;
    struct snug_text text = {0};
    uint32_t length;
    pipeline_open(&pipeline, path);
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        must(pipeline.ctx, snug_grow(pipeline.ctx, (void **)&text.text, &text.capacity, (size_t)length + 1, 1));
        if (fread(text.text, 1, length, stdin) != length) return 1;
        pipeline_encode(&pipeline, text.text, length);
        const uint32_t bytes = (uint32_t)pipeline.normalized.length, count = (uint32_t)pipeline.ids.count;
        if (fwrite(&bytes, sizeof bytes, 1, stdout) != 1 ||
            fwrite(pipeline.normalized.text, 1, bytes, stdout) != bytes ||
            fwrite(&count, sizeof count, 1, stdout) != 1 ||
            fwrite(pipeline.ids.ids, sizeof *pipeline.ids.ids, count, stdout) != count)
            return 1;
    }
    free(text.text);
    pipeline_close(&pipeline);
    return fflush(stdout) != 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return encode_input(argv[1]);
    return run_registered(NULL, NULL);
}
