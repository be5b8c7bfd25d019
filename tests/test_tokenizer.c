/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens against transformers' (tools/golden_tokenizer.py), every code point included, and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <xxhash.h>

#include "folders.h"
#include "io/json.h"
#include "text/normalize.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/tokenizer"

static const char *const variants[] = {
    "uncased",          "cased",           "cased_stripped", "lowered_accents",  "added",
    "added_cased_left", "split_special",   "older",          "vocab_alone",      "json_alone",
    "json_wrapped",     "json_and_config", "disagree",       "two_vocabularies",
};

struct fixture {
    snug_context *ctx;
    int warnings;
    char folder[64];
};

static void count_warnings(void *user, snug_log_level level, const char *message) {
    (void)message;
    ((struct fixture *)user)->warnings += level == SNUG_LOG_WARNING;
}

static int set_up(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    assert_int_equal(snug_context_create(&fixture->ctx), SNUG_OK);
    snug_context_set_log(fixture->ctx, count_warnings, fixture, SNUG_LOG_DEBUG);
    strcpy(fixture->folder, "/tmp/snug_tokenizer_XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    *state = fixture;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    assert_int_equal(snug_folder_remove(fixture->ctx, NULL, fixture->folder), SNUG_OK);
    snug_context_destroy(fixture->ctx);
    free(fixture);
    return 0;
}

static struct snug_tokenizer *load(struct fixture *fixture, const char *folder) {
    struct snug_tokenizer *tokenizer;
    snug_status status = snug_tokenizer_load(fixture->ctx, folder, &tokenizer);
    if (status != SNUG_OK) fail_msg("%s: %s", folder, snug_error_message(fixture->ctx));
    return tokenizer;
}

static struct snug_tokenizer *load_golden(struct fixture *fixture, const char *name) {
    char folder[512];
    snprintf(folder, sizeof folder, GOLDEN "/%s", name);
    return load(fixture, folder);
}

static json_t *read_golden(struct fixture *fixture, const char *name) {
    char path[512];
    json_t *value;
    snprintf(path, sizeof path, GOLDEN "/%s.json", name);
    if (snug_json_read(fixture->ctx, NULL, path, &value) != SNUG_OK) fail_msg("%s", snug_error_message(fixture->ctx));
    return value;
}

static int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* A text of texts.json; one with NULs stands there in hexadecimal. Freed with free(). */
static char *golden_text(const json_t *value, size_t *length) {
    const char *hex = json_string_value(json_object_get(value, "hex"));
    char *text;
    if (!hex) {
        *length = json_string_length(value);
        text = strdup(json_string_value(value));
        assert_non_null(text);
        return text;
    }
    *length = strlen(hex) / 2;
    text = malloc(*length + 1);
    assert_non_null(text);
    for (size_t i = 0; i < *length; i++) text[i] = (char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return text;
}

static void expect_ids(const char *what, size_t number, const json_t *expected, const struct snug_ids *ids) {
    if (json_array_size(expected) != ids->count)
        fail_msg("%s %zu: %zu tokens, expected %zu", what, number, ids->count, json_array_size(expected));
    for (size_t i = 0; i < ids->count; i++)
        if (json_integer_value(json_array_get(expected, i)) != ids->ids[i])
            fail_msg("%s %zu: token %zu is %d, expected %lld", what, number, i, ids->ids[i],
                     json_integer_value(json_array_get(expected, i)));
}

static void encode(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *text, size_t length,
                   struct snug_ids *ids) {
    ids->count = 0;
    snug_status status = snug_tokenizer_encode(fixture->ctx, tokenizer, text, length, ids);
    if (status != SNUG_OK) fail_msg("%s", snug_error_message(fixture->ctx));
    /* What is taken of a text that will be cut is how all of it begins. */
    for (size_t most = 0; most < 12; most = most * 2 + 1) {
        struct snug_ids begin = {0};
        assert_int_equal(snug_tokenizer_encode_begin(fixture->ctx, tokenizer, text, length, most, &begin), SNUG_OK);
        assert_true(begin.count <= ids->count && begin.count >= (most < ids->count ? most : ids->count));
        if (begin.count) assert_memory_equal(begin.ids, ids->ids, begin.count * sizeof *begin.ids);
        free(begin.ids);
    }
}

static void check_pairs(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *name,
                        const json_t *pairs) {
    struct snug_ids a = {0}, b = {0}, out = {0};
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *row = json_array_get(pairs, i), *types = json_array_get(row, 4);
        const char *first = json_string_value(json_array_get(row, 0)),
                   *second = json_string_value(json_array_get(row, 1));
        size_t first_count;
        bool truncated;
        out.count = 0;
        encode(fixture, tokenizer, first, strlen(first), &a);
        encode(fixture, tokenizer, second ? second : "", second ? strlen(second) : 0, &b);
        assert_int_equal(snug_tokenizer_assemble(fixture->ctx, tokenizer, &a, second ? &b : NULL,
                                                 (size_t)json_integer_value(json_array_get(row, 2)), &out, &first_count,
                                                 &truncated),
                         SNUG_OK);
        expect_ids(name, i, json_array_get(row, 3), &out);
        for (size_t j = 0; j < out.count; j++)
            assert_int_equal(json_integer_value(json_array_get(types, j)), j >= first_count);
        assert_int_equal(truncated, out.count < a.count + (second ? b.count + 3 : 2));
    }
    free(a.ids);
    free(b.ids);
    free(out.ids);
}

static void test_golden_strings(void **state) {
    struct fixture *fixture = *state;
    json_t *file = read_golden(fixture, "texts"), *texts = json_object_get(file, "texts");
    assert_true(json_array_size(texts) > 150);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, variants[v]);
        json_t *golden = read_golden(fixture, variants[v]), *ids = json_object_get(golden, "ids");
        struct snug_ids out = {0};
        assert_int_equal(json_array_size(ids), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(texts); i++) {
            size_t length;
            char *text = golden_text(json_array_get(texts, i), &length);
            encode(fixture, tokenizer, text, length, &out);
            free(text);
            expect_ids(variants[v], i, json_array_get(ids, i), &out);
        }
        free(out.ids);
        check_pairs(fixture, tokenizer, variants[v], json_object_get(golden, "pairs"));
        assert_int_equal(snug_tokenizer_vocab_size(tokenizer), json_integer_value(json_object_get(golden, "size")));
        json_decref(golden);
        snug_tokenizer_free(tokenizer);
    }
    json_decref(file);
}

static void test_disagreement_is_said(void **state) {
    struct fixture *fixture = *state;
    snug_tokenizer_free(load_golden(fixture, "uncased"));
    assert_int_equal(fixture->warnings, 0);
    snug_tokenizer_free(load_golden(fixture, "disagree"));
    assert_int_equal(fixture->warnings, 2); /* do_lower_case, and strip_accents, which follows it */
    snug_tokenizer_free(load_golden(fixture, "two_vocabularies"));
    assert_int_equal(fixture->warnings, 3);
}

static size_t put_utf8(char *to, uint32_t code) {
    if (code < 0x80) return (size_t)sprintf(to, "%c", (int)code);
    if (code < 0x800) return (size_t)sprintf(to, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 63));
    if (code < 0x10000)
        return (size_t)sprintf(to, "%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 63), 0x80 | (code & 63));
    return (size_t)sprintf(to, "%c%c%c%c", 0xf0 | code >> 18, 0x80 | (code >> 12 & 63), 0x80 | (code >> 6 & 63),
                           0x80 | (code & 63));
}

static size_t around(char *to, const char *before, uint32_t code, const char *after) {
    size_t length = strlen(before);
    memcpy(to, before, length);
    length += put_utf8(to + length, code);
    memcpy(to + length, after, strlen(after));
    return length + strlen(after);
}

static void hash_code(struct fixture *fixture, const struct snug_tokenizer *tokenizer, uint32_t code,
                      struct snug_text *normalized, struct snug_ids *ids, XXH3_state_t *hash) {
    char text[32];
    for (int i = 0; i < 2; i++) {
        size_t length = i ? around(text, "x\u302e\u0301", code, "\u0323\u302aq") : around(text, "a", code, "b");
        assert_int_equal(snug_normalize(fixture->ctx, &tokenizer->normalizer, text, length, normalized), SNUG_OK);
        XXH3_64bits_update(hash, normalized->text, normalized->length);
        XXH3_64bits_update(hash, "", 1);
    }
    for (int i = 0; i < 2; i++) {
        const int32_t end = -1;
        size_t length = i ? around(text, "q", code, "q") : around(text, "a", code, "b");
        encode(fixture, tokenizer, text, length, ids);
        XXH3_64bits_update(hash, ids->ids, ids->count * sizeof *ids->ids);
        XXH3_64bits_update(hash, &end, sizeof end);
    }
}

static void test_every_code_point(void **state) {
    struct fixture *fixture = *state;
    json_t *golden = read_golden(fixture, "codepoints"), *blocks;
    const char *name;
    assert_int_equal(json_object_size(golden), 2);
    json_object_foreach(golden, name, blocks) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, name);
        struct snug_text normalized = {0};
        struct snug_ids ids = {0};
        XXH3_state_t *hash = XXH3_createState();
        assert_int_equal(json_array_size(blocks), 0x110);
        for (uint32_t block = 0; block < 0x110; block++) {
            XXH3_64bits_reset(hash);
            for (uint32_t code = block << 12; code < (block + 1) << 12; code++)
                if (code < 0xd800 || code >= 0xe000) hash_code(fixture, tokenizer, code, &normalized, &ids, hash);
            char hex[17];
            snprintf(hex, sizeof hex, "%016llx", (unsigned long long)XXH3_64bits_digest(hash));
            if (strcmp(hex, json_string_value(json_array_get(blocks, block))) != 0)
                fail_msg("%s: a code point of U+%04X … U+%04X differs", name, block << 12, (block << 12) + 0xfff);
        }
        XXH3_freeState(hash);
        free(normalized.text);
        free(ids.ids);
        snug_tokenizer_free(tokenizer);
    }
    json_decref(golden);
}

static void test_truncation(void **state) {
    struct fixture *fixture = *state;
    struct snug_tokenizer *tokenizer = load_golden(fixture, "uncased");
    json_t *golden = read_golden(fixture, "truncation"), *rows = json_object_get(golden, "rows");
    int32_t tokens[16] = {0};
    struct snug_ids out = {0};
    assert_true(json_array_size(rows) > 1000);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        size_t number[5], first_count;
        bool truncated;
        for (size_t j = 0; j < 5; j++)
            number[j] = (size_t)json_integer_value(json_array_get(json_array_get(rows, i), j));
        struct snug_ids a = {tokens, number[0], 16}, b = {tokens, number[1], 16};
        out.count = 0;
        assert_int_equal(
            snug_tokenizer_assemble(fixture->ctx, tokenizer, &a, &b, number[2], &out, &first_count, &truncated),
            SNUG_OK);
        assert_int_equal(first_count, number[3] + 2);
        assert_int_equal(out.count - first_count, number[4] + 1);
    }
    struct snug_ids none = {0};
    size_t first_count;
    bool truncated;
    assert_int_equal(snug_tokenizer_assemble(fixture->ctx, tokenizer, &none, &none, 2, &out, &first_count, &truncated),
                     SNUG_E_USAGE);
    free(out.ids);
    json_decref(golden);
    snug_tokenizer_free(tokenizer);
}

/* Marks of alternating classes, so many that sorting them by insertion would take minutes. */
static void test_endless_marks(void **state) {
    struct fixture *fixture = *state;
    const struct snug_normalizer strip = {.strip_accents = true};
    enum { PAIRS_OF_MARKS = 500000 };
    const char pair[] = "\u302e\U0001d165"; /* classes 224 and 216, neither a non-spacing mark */
    size_t size = strlen(pair);
    char *text = malloc(PAIRS_OF_MARKS * size);
    assert_non_null(text);
    for (size_t i = 0; i < PAIRS_OF_MARKS; i++) memcpy(text + i * size, pair, size);
    struct snug_text out = {0};
    assert_int_equal(snug_normalize(fixture->ctx, &strip, text, PAIRS_OF_MARKS * size, &out), SNUG_OK);
    assert_int_equal(out.length, PAIRS_OF_MARKS * size);
    assert_memory_equal(out.text, "\U0001d165\U0001d165", 8);
    assert_memory_equal(out.text + out.length - 6, "\u302e\u302e", 6);
    free(out.text);
    free(text);
}

static void test_save_and_fingerprint(void **state) {
    struct fixture *fixture = *state;
    struct snug_tokenizer *first = load_golden(fixture, "disagree"), *other = load_golden(fixture, "added_cased_left");
    assert_int_equal(tokenizer_save(fixture->ctx, first, fixture->folder), SNUG_OK);
    struct snug_tokenizer *second = load(fixture, fixture->folder);
    assert_true(snug_tokenizer_fingerprint(first) == snug_tokenizer_fingerprint(second));
    assert_true(snug_tokenizer_fingerprint(first) != snug_tokenizer_fingerprint(other));
    assert_string_equal(snug_tokenizer_token(first, 1), "[UNK]");
    assert_string_equal(snug_tokenizer_token(first, -1), "");
    assert_string_equal(snug_tokenizer_token(first, 1 << 30), "");
    struct snug_special_ids special = snug_tokenizer_special(first);
    assert_int_equal(special.pad, 0);
    assert_int_equal(special.unk, 1);
    assert_int_equal(special.cls, 2);
    assert_int_equal(special.sep, 3);
    assert_int_equal(special.mask, 4);
    snug_tokenizer_free(first);
    snug_tokenizer_free(second);
    snug_tokenizer_free(other);
}

/* What is saved is what was loaded, though the files change, grow or disappear in between. */
static void test_save_after_changes(void **state) {
    static const char *const folders[] = {"older", "json_and_config", "disagree", "vocab_alone", "two_vocabularies"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char from[600], to[600], *before[SNUG_TOKENIZER_FILES] = {NULL}, *after;
        size_t sizes[SNUG_TOKENIZER_FILES], size;
        snprintf(to, sizeof to, "%s/from", fixture->folder);
        assert_int_equal(snug_folder_create(fixture->ctx, to), SNUG_OK);
        for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
            snprintf(from, sizeof from, GOLDEN "/%s/%s", folders[i], snug_tokenizer_file_names[file]);
            snprintf(to, sizeof to, "%s/from/%s", fixture->folder, snug_tokenizer_file_names[file]);
            if (snug_file_exists(NULL, from))
                assert_int_equal(snug_file_read(fixture->ctx, NULL, from, &before[file], &sizes[file]), SNUG_OK);
            if (before[file])
                assert_int_equal(snug_file_replace(fixture->ctx, NULL, to, before[file], sizes[file]), SNUG_OK);
        }
        snprintf(from, sizeof from, "%s/from", fixture->folder);
        struct snug_tokenizer *tokenizer = load(fixture, from);
        const struct snug_tokenizer used = *tokenizer;
        for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
            snprintf(to, sizeof to, "%s/from/%s", fixture->folder, snug_tokenizer_file_names[file]);
            if (!before[file] || file % 2)
                unlink(to);
            else
                assert_int_equal(snug_file_replace(fixture->ctx, NULL, to, "changed", 7), SNUG_OK);
        }
        snprintf(to, sizeof to, "%s/to", fixture->folder);
        assert_int_equal(snug_folder_create(fixture->ctx, to), SNUG_OK);
        if (tokenizer_save(fixture->ctx, tokenizer, to) != SNUG_OK) fail_msg("%s", snug_error_message(fixture->ctx));
        for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
            snprintf(to, sizeof to, "%s/to/%s", fixture->folder, snug_tokenizer_file_names[file]);
            assert_int_equal(snug_file_exists(NULL, to), used.paths[file] != NULL);
            if (used.paths[file]) {
                assert_int_equal(snug_file_read(fixture->ctx, NULL, to, &after, &size), SNUG_OK);
                assert_int_equal(size, sizes[file]);
                assert_memory_equal(after, before[file], size);
                free(after);
            }
            free(before[file]);
        }
        snug_tokenizer_free(tokenizer);
        snprintf(to, sizeof to, "%s/from", fixture->folder);
        assert_int_equal(snug_folder_remove(fixture->ctx, NULL, to), SNUG_OK);
        snprintf(to, sizeof to, "%s/to", fixture->folder);
        assert_int_equal(snug_folder_remove(fixture->ctx, NULL, to), SNUG_OK);
    }
}

#define MODEL(vocab) "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":" vocab "}"
#define SMALL "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
#define SMALL_JSON MODEL("{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}")
#define FULL_JSON MODEL("{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}")
#define SPLIT "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"

/* Folders that must be refused: files, the status, and a part of the message. */
static const struct {
    const char *vocab, *json, *config;
    snug_status status;
    const char *message;
} refused[] = {
    {NULL, NULL, NULL, SNUG_E_INPUT, "neither vocab.txt nor tokenizer.json"},
    {"", NULL, NULL, SNUG_E_INPUT, "empty"},
    {"[PAD]\n[CLS]\n[SEP]\n", NULL, NULL, SNUG_E_INPUT, "[UNK]"},
    {"[UNK]\na\nb\na\n", NULL, NULL, SNUG_E_INPUT, "\"a\" stands there twice, as number 1 and 3"},
    {"[UNK]\n\xff\n", NULL, NULL, SNUG_E_INPUT, "line 2"},
    {SMALL, NULL, "{\"tokenizer_class\":\"RobertaTokenizerFast\"}", SNUG_E_UNSUPPORTED, "RobertaTokenizer"},
    {SMALL, NULL, "{\"do_lower_case\":\"yes\"}", SNUG_E_INPUT, "do_lower_case"},
    {SMALL, NULL, "{\"cls_token\":null}", SNUG_E_INPUT, "cls_token"},
    {SMALL, NULL, "{\"cls_token\":7}", SNUG_E_INPUT, "cls_token"},
    {SMALL, NULL, "{", SNUG_E_INPUT, "tokenizer_config.json"},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", SNUG_E_INPUT, "\"x\""},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"6\":{\"content\":\"Y\"},\"7\":{\"content\":\"y\"}}}", SNUG_E_INPUT,
     "\"Y\" and \"y\""},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"6\":{\"content\":\"\\u0301\"}}}", SNUG_E_INPUT,
     "empty once normalised"},
    {NULL, "[]", NULL, SNUG_E_INPUT, "tokenizer.json"},
    {NULL, "{\"model\":", NULL, SNUG_E_INPUT, "tokenizer.json"},
    {NULL, "{\"model\":null}", NULL, SNUG_E_UNSUPPORTED, "null"},
    {NULL, "{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", NULL, SNUG_E_UNSUPPORTED, "BPE"},
    {NULL, "{" MODEL("{}") "}", NULL, SNUG_E_INPUT, "empty"},
    {NULL, "{" MODEL("[]") "}", NULL, SNUG_E_INPUT, "vocab"},
    {NULL, "{" MODEL("{\"a\":-1}") "}", NULL, SNUG_E_INPUT, "\"a\""},
    {NULL, "{" MODEL("{\"a\":2000000000}") "}", NULL, SNUG_E_INPUT, "2000000000"},
    {NULL, "{" MODEL("{\"a\":1,\"b\":1}") "}", NULL, SNUG_E_INPUT, "the same id 1"},
    {NULL, "{" SMALL_JSON "}", NULL, SNUG_E_UNSUPPORTED, "pre_tokenizer null"},
    {NULL, "{\"normalizer\":{\"type\":\"Sequence\"}," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_UNSUPPORTED, "Sequence"},
    {NULL, "{\"post_processor\":{\"type\":\"ByteLevel\"}," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_UNSUPPORTED,
     "ByteLevel"},
    {NULL, "{\"added_tokens\":[{\"id\":1}]," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT, "added_tokens"},
    {NULL, "{\"added_tokens\":[{\"content\":\"x\"}]," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT,
     "number 1 of \"added_tokens\" has no content or no id"},
    {NULL, "{\"added_tokens\":{}," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT, "must be a list"},
    {SMALL, NULL, "{\"added_tokens_decoder\":[]}", SNUG_E_INPUT, "must be an object of tokens by id"},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"6\":null}}", SNUG_E_INPUT, "\"6\""},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"6x\":{\"content\":\"y\"}}}", SNUG_E_INPUT, "\"6x\""},
    {SMALL, NULL, "{\"tokenizer_class\":\"Bert\"}", SNUG_E_UNSUPPORTED, "the tokenizer class \"Bert\""},
    {NULL, "{" MODEL("{\"a\":3000000000}") "}", NULL, SNUG_E_INPUT, "the id of token \"a\""},
    {NULL, "{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," SMALL_JSON "}", NULL, SNUG_E_UNSUPPORTED,
     "pre_tokenizer Whitespace"},
    {NULL, "{\"added_tokens\":[null]," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT, "number 1 of \"added_tokens\""},
    {NULL, "{" SPLIT "," SMALL_JSON "}", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", SNUG_E_UNSUPPORTED,
     "the post_processor null"},
};

static void put_file(struct fixture *fixture, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
    unlink(path);
    if (text) assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, text, strlen(text)), SNUG_OK);
}

static void test_refused(void **state) {
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct snug_tokenizer *tokenizer;
        put_file(fixture, "vocab.txt", refused[i].vocab);
        put_file(fixture, "tokenizer.json", refused[i].json);
        put_file(fixture, "tokenizer_config.json", refused[i].config);
        snug_clear_error(fixture->ctx);
        snug_status status = snug_tokenizer_load(fixture->ctx, fixture->folder, &tokenizer);
        if (status != refused[i].status || !strstr(snug_error_message(fixture->ctx), refused[i].message))
            fail_msg("folder %zu: status %d, \"%s\"; expected %d, \"…%s…\"", i, status,
                     snug_error_message(fixture->ctx), refused[i].status, refused[i].message);
        assert_null(tokenizer);
    }
    put_file(fixture, "vocab.txt", SMALL);
    put_file(fixture, "tokenizer.json", NULL);
    put_file(fixture, "tokenizer_config.json", NULL);
    put_file(fixture, "added_tokens.json", "{\"x\":\"7\"}");
    struct snug_tokenizer *refused_too;
    snug_clear_error(fixture->ctx);
    assert_int_equal(snug_tokenizer_load(fixture->ctx, fixture->folder, &refused_too), SNUG_E_INPUT);
    assert_non_null(strstr(snug_error_message(fixture->ctx), "the id of token \"x\" is not a number"));
    put_file(fixture, "added_tokens.json", NULL);
    /* Null parts stand for the defaults, and a vocab.txt that cannot be used does not matter beside a tokenizer.json.
     */
    put_file(fixture, "vocab.txt", "a\na\n");
    put_file(fixture, "tokenizer.json",
             "{\"added_tokens\":null,\"normalizer\":null,\"post_processor\":null," SPLIT "," SMALL_JSON "}");
    put_file(fixture, "tokenizer_config.json", NULL);
    snug_clear_error(fixture->ctx);
    fixture->warnings = 0;
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    assert_int_equal(fixture->warnings, 1);
    assert_int_equal(snug_tokenizer_special(tokenizer).pad, -1);
    struct snug_ids ids = {0};
    assert_int_equal(snug_tokenizer_encode(fixture->ctx, tokenizer, "a\xff", 2, &ids), SNUG_E_INPUT);
    free(ids.ids);
    snug_tokenizer_free(tokenizer);
}

#define CLASS(rest) "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"" rest "}"
#define AROUND "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",2],\"sep\":[\"[SEP]\",3]}"

/* Folders that are not as usual, and what a text is in them. */
static const struct {
    const char *vocab, *json, *config, *added, *text;
    int32_t ids[4], warnings; /* as many as are not 0 */
} accepted[] = {
    /* Blanks at the end of a line are not the token's, and a line of blanks is one without a name. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n \nb \t\nc", NULL, NULL, NULL, "b c", {5, 6}, 0},
    {SMALL, NULL, "{\"unk_token\":null}", NULL, "a ?", {5, 1}, 0},
    {SMALL, NULL, CLASS(""), NULL, "a", {5}, 0}, /* nothing to wrap */
    {SMALL, NULL, "{\"auto_map\":{\"AutoTokenizer\":[\"evil.Tokenizer\",null]}}", NULL, "a", {5}, 1},
    {SMALL, NULL, "{\"x\":1,\"extra_special_tokens\":[\"<x>\",null]}", NULL, "a<x>", {5, 6}, 0},
    {SMALL, NULL, "{\"extra_special_tokens\":{\"k\":\"<x>\",\"n\":null}}", NULL, "a<x>", {5, 6}, 0},
    {SMALL, NULL, "{\"extra_special_tokens\":[],\"additional_special_tokens\":[\"<y>\"]}", NULL, "a<y>", {5, 6}, 0},
    {SMALL, NULL, "{\"my_token\":\"<z>\"}", "{\"<z>\":6,\"[MASK]\":4,\"<v>\":7}", "<z>[MASK]<v>", {6, 4, 7}, 0},
    /* Two tokens of one id: the latter. */
    {SMALL,
     "{\"added_tokens\":[{\"id\":6,\"content\":\"<p>\"},{\"id\":6,\"content\":\"<q>\"}]," SPLIT "," FULL_JSON "}",
     "{}",
     NULL,
     "<q>",
     {4},
     5},
    {NULL, "{\"added_tokens\":[{\"id\":5,\"content\":\"\"}]," SPLIT "," FULL_JSON "}", NULL, NULL, "?", {1}, 0},
    {NULL, "{" AROUND "," SPLIT "," FULL_JSON "}", CLASS(",\"extra_special_tokens\":[\"<n>\"]"), NULL, "<n>", {4}, 4},
    {NULL, "{" SPLIT ",\"model\":{\"vocab\":{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}}}", NULL, NULL, "?", {1}, 0},
    /* No token is longer than what stands before the pieces of a word. */
    {NULL,
     "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"c\",2],\"sep\":[\"s\",3]}," SPLIT
     ",\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":1,\"c\":2,\"s\":3}}}",
     NULL,
     NULL,
     "c cs",
     {2, 1},
     0},
    /* Of one FNV-1a hash: "declinate" and "macallums", "costarring" and "liquid". "##" is the prefix of no piece. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n##\ndecl\nmacallums\n##inatex\n##tarringx\nliquid\ncos\n",
     NULL,
     NULL,
     NULL,
     "declinatex costarringx",
     {5, 7, 10, 8},
     0},
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n##\nmacallums\n", NULL, NULL, NULL, "declinatex", {1}, 0},
    /* The vocabulary of vocab.txt in another order is the same, one of fewer tokens is not. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
     "{" SPLIT "," MODEL("{\"[UNK]\":1,\"[PAD]\":0,\"a\":4,\"[CLS]\":2,\"[SEP]\":3}") "}",
     NULL,
     NULL,
     "a",
     {4},
     0},
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
     "{" SPLIT "," MODEL("{\"[UNK]\":1,\"a\":4,\"[CLS]\":2,\"[SEP]\":3}") "}",
     NULL,
     NULL,
     "a",
     {4},
     1},
    /* A vocabulary that is not the model's stands before it. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n",
     "{\"x\":{\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}}," SPLIT
     "," MODEL("{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a\":4}") "}",
     NULL,
     NULL,
     "a",
     {4},
     1},
    /* What tokenizer.json says of the text does not count beside a configuration, and is told. */
    {SMALL, "{\"normalizer\":{\"type\":\"Sequence\"}," SPLIT "," FULL_JSON "}", "{}", NULL, "?", {1}, 2},
    {SMALL,
     "{\"normalizer\":{\"type\":\"BertNormalizer\",\"strip_accents\":false}," SPLIT "," FULL_JSON "}",
     "{\"do_lower_case\":false}",
     NULL,
     "?",
     {1},
     2},
    {NULL,
     "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":false}," SPLIT "," FULL_JSON "}",
     NULL,
     NULL,
     "?",
     {1},
     0},
};

static void test_accepted(void **state) {
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        put_file(fixture, "vocab.txt", accepted[i].vocab);
        put_file(fixture, "tokenizer.json", accepted[i].json);
        put_file(fixture, "tokenizer_config.json", accepted[i].config);
        put_file(fixture, "added_tokens.json", accepted[i].added);
        fixture->warnings = 0;
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        struct snug_ids ids = {0};
        size_t count = 0;
        encode(fixture, tokenizer, accepted[i].text, strlen(accepted[i].text), &ids);
        while (count < 4 && accepted[i].ids[count]) count++;
        if (ids.count != count || memcmp(ids.ids, accepted[i].ids, count * sizeof *ids.ids) != 0)
            fail_msg("folder %zu: %zu tokens, the first is %d", i, ids.count, ids.count ? ids.ids[0] : -1);
        if (fixture->warnings != accepted[i].warnings) fail_msg("folder %zu: %d warnings", i, fixture->warnings);
        free(ids.ids);
        snug_tokenizer_free(tokenizer);
    }
}

static void test_nul(void **state) {
    struct fixture *fixture = *state;
    static const char vocabulary[] = "[UNK]\n[CLS]\n[SEP]\na\0b\n";
    char path[128];
    struct snug_tokenizer *tokenizer;
    struct snug_ids ids = {0};
    snprintf(path, sizeof path, "%s/vocab.txt", fixture->folder);
    assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, vocabulary, sizeof vocabulary - 1), SNUG_OK);
    assert_int_equal(snug_tokenizer_load(fixture->ctx, fixture->folder, &tokenizer), SNUG_E_INPUT);
    assert_non_null(strstr(snug_error_message(fixture->ctx), "vocab.txt, line 4: not valid UTF-8 text"));
    snug_clear_error(fixture->ctx);
    put_file(fixture, "vocab.txt", NULL);
    /* In a text it goes, unless texts are not cleaned. */
    for (int clean = 0; clean < 2; clean++) {
        put_file(fixture, "tokenizer.json",
                 clean ? "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true}," SPLIT
                         "," MODEL("{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"ab\":4}") "}"
                       : "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":false}," SPLIT
                         "," MODEL("{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"ab\":4}") "}");
        tokenizer = load(fixture, fixture->folder);
        ids.count = 0;
        encode(fixture, tokenizer, "a\0b", 3, &ids);
        assert_int_equal(ids.count, 1);
        assert_int_equal(ids.ids[0], clean ? 4 : 1);
        assert_string_equal(snug_tokenizer_token(tokenizer, 0), ""); /* an id that no token has */
        snug_tokenizer_free(tokenizer);
    }
    free(ids.ids);
}

/* Whether vocab.txt stands beside it or not, and however the text of tokenizer.json is spoilt, that file says all: what
   is taken without being parsed (cut_vocabulary) is what the parser would have made of it. */
static void test_vocabulary_is_cut_out(void **state) {
    static const char whole[] = "{" SPLIT ",\"model\":{\"type\":\"WordPiece\",\"vocab\": {\"[UNK]\": 0, \"[CLS]\": 1,"
                                " \"[SEP]\": 2, \"\\\"\": 3, \"\\\\\": 4, \"a\": 5}}}";
    struct fixture *fixture = *state;
    char text[sizeof whole], path[128];
    const size_t from = (size_t)(strstr(whole, "\"vocab\"") - whole);
    for (size_t at = from; at < sizeof whole - 1; at++)
        for (const char *by = "\"x9{"; *by; by++) {
            snug_status status[2];
            uint64_t prints[2] = {0};
            memcpy(text, whole, sizeof whole);
            text[at] = *by;
            snprintf(path, sizeof path, "%s/tokenizer.json", fixture->folder);
            FILE *file = fopen(path, "w");
            assert_non_null(file);
            assert_int_equal(fwrite(text, 1, sizeof text - 1, file), sizeof text - 1);
            assert_int_equal(fclose(file), 0);
            for (int beside = 0; beside < 2; beside++) {
                struct snug_tokenizer *tokenizer;
                snprintf(path, sizeof path, "%s/vocab.txt", fixture->folder);
                if (beside) {
                    file = fopen(path, "w");
                    assert_non_null(file);
                    fputs("[UNK]\n[CLS]\n[SEP]\n\"\n\\\na\n", file);
                    assert_int_equal(fclose(file), 0);
                } else {
                    unlink(path);
                }
                status[beside] = snug_tokenizer_load(fixture->ctx, fixture->folder, &tokenizer);
                snug_clear_error(fixture->ctx);
                if (status[beside] == SNUG_OK) prints[beside] = snug_tokenizer_fingerprint(tokenizer);
                snug_tokenizer_free(tokenizer);
            }
            if (status[0] != status[1] || prints[0] != prints[1])
                fail_msg("byte %zu, %c: status %d and %d", at, *by, status[0], status[1]);
        }
}

#define PIECE(kind, id, type) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define FIRST                                                                                                          \
    PIECE("SpecialToken", "[CLS]", "0") "," PIECE("Sequence", "A", "0") "," PIECE("SpecialToken", "[SEP]", "0")
#define SECOND PIECE("Sequence", "B", "1") "," PIECE("SpecialToken", "[SEP]", "1")
#define TEMPLATE                                                                                                       \
    "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" FIRST "],\"pair\":[" FIRST "," SECOND          \
    "],\"special_tokens\":{\"[CLS]\":{\"ids\":[2]},\"[SEP]\":{\"ids\":[3]}}}," SPLIT "," SMALL_JSON "}"

/* BERT's template is read, and one that is any other is refused: what would stand around the texts is not what it says.
 */
static void test_templates(void **state) {
    static const char *const changes[][2] = {
        {"\"single\":[{\"SpecialToken\"", "\"single\":[{\"Sequence\""},
        {"\"single\":[", "\"single\":[" PIECE("Sequence", "A", "0") ","},
        {"\"pair\":[", "\"pair\":[" PIECE("Sequence", "A", "0") ","},
        {"\"pair\":[" PIECE("SpecialToken", "[CLS]", "0"), "\"pair\":[" PIECE("SpecialToken", "[UNK]", "0")},
        {PIECE("Sequence", "A", "0"), PIECE("Sequence", "B", "0")},
        {PIECE("Sequence", "A", "0"), PIECE("SpecialToken", "A", "0")},
        {PIECE("SpecialToken", "[SEP]", "0"), PIECE("SpecialToken", "[SEP]", "1")},
        {PIECE("Sequence", "B", "1"), PIECE("Sequence", "B", "0")},
        {PIECE("SpecialToken", "[SEP]", "1"), PIECE("SpecialToken", "[SEP]", "0")},
        {PIECE("SpecialToken", "[SEP]", "0"), PIECE("Sequence", "[SEP]", "0")},
        {"\"ids\":[2]", "\"ids\":[2,3]"},
        {"\"ids\":[3]", "\"ids\":[]"},
    };
    static const char whole[] = TEMPLATE;
    struct fixture *fixture = *state;
    put_file(fixture, "tokenizer.json", whole);
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    assert_int_equal(snug_tokenizer_special(tokenizer).cls, 2);
    assert_int_equal(snug_tokenizer_special(tokenizer).sep, 3);
    snug_tokenizer_free(tokenizer);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char text[2048];
        const char *at = strstr(whole, changes[i][0]);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, changes[i][1], at + strlen(changes[i][0]));
        put_file(fixture, "tokenizer.json", text);
        snug_clear_error(fixture->ctx);
        if (snug_tokenizer_load(fixture->ctx, fixture->folder, &tokenizer) != SNUG_E_UNSUPPORTED ||
            !strstr(snug_error_message(fixture->ctx), "TemplateProcessing"))
            fail_msg("template %zu: \"%s\"", i, snug_error_message(fixture->ctx));
    }
}

/* ---- linear searches beside slow ones ---- */

static uint64_t draw(uint64_t *state) { /* xorshift64 (Marsaglia) */
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state >> 8;
}

/* A word of few different letters, so that its parts occur in others. */
static void draw_text(uint64_t *state, const char *letters, size_t length, char *out) {
    const size_t kinds = strlen(letters);
    for (size_t i = 0; i < length; i++) out[i] = letters[draw(state) % kinds];
    out[length] = '\0';
}

/* The pattern that a search of every length finds at text[at]: the number, or -1. */
static int32_t slow_longest(char patterns[][600], int count, const char *text, size_t length, size_t at) {
    int32_t longest = -1;
    for (int i = 0; i < count; i++) {
        const size_t size = strlen(patterns[i]);
        if (size <= length - at && !memcmp(patterns[i], text + at, size) &&
            (longest < 0 || size > strlen(patterns[longest])))
            longest = i;
    }
    return longest;
}

static int draw_patterns(uint64_t *state, const char *letters, int most, size_t longest, char patterns[][600]) {
    int count = 0;
    for (int i = 0; i < most; i++) {
        bool twice = false;
        draw_text(state, letters, 1 + draw(state) % (draw(state) % 8 ? 6 : longest), patterns[count]);
        for (int k = 0; k < count; k++) twice |= !strcmp(patterns[k], patterns[count]);
        count += !twice;
    }
    return count;
}

static void test_matcher(void **state) {
    struct fixture *fixture = *state;
    static char patterns[400][600], text[2001];
    uint64_t seed = 88172645463325252u;
    struct snug_search search = {0};
    for (int round = 0; round < 300; round++) {
        struct snug_matcher matcher = {0};
        const char *letters = round % 3 == 0 ? "a" : round % 3 == 1 ? "ab" : "abcd";
        const int count = draw_patterns(&seed, letters, round % 10 ? 20 : 400, round % 7 ? 40 : 500, patterns);
        const size_t length = draw(&seed) % sizeof text;
        draw_text(&seed, round % 3 == 2 ? "abcde" : letters, length, text);
        for (int i = 0; i < count; i++)
            assert_int_equal(snug_matcher_add(fixture->ctx, &matcher, patterns[i], strlen(patterns[i]), i), SNUG_OK);
        assert_int_equal(snug_matcher_finish(fixture->ctx, &matcher), SNUG_OK);
        snug_search_begin(&search, &matcher, text, length);
        for (size_t at = 0; at < length; at += 1 + (draw(&seed) % 16 == 0 ? draw(&seed) % 300 : 0)) {
            const struct snug_pattern *found;
            assert_int_equal(snug_search_at(fixture->ctx, &search, at, &found), SNUG_OK);
            assert_int_equal(found ? found->value : -1, slow_longest(patterns, count, text, length, at));
        }
        snug_matcher_free(&matcher);
    }
    snug_search_free(&search);
}

static bool is_blank(char c) { return c == ' '; }

/* What the `tokenizers` library does (AddedVocabulary::find_matches), in quadratic time: the tokens' numbers and
   places, -1 for the text between them. */
static size_t slow_split(const struct snug_added_token *tokens, int count, bool ignore_special, char sought[][600],
                         const char *text, size_t length, int64_t out[][3]) {
    size_t pieces = 0, done = 0;
    for (size_t at = 0; at < length;) {
        const int32_t found = slow_longest(sought, count, text, length, at);
        size_t start = at, stop = at + (found < 0 ? 1 : strlen(sought[found]));
        at = stop;
        if (found < 0 || (tokens[found].special && ignore_special)) continue;
        if (tokens[found].single_word &&
            ((start > 0 && !is_blank(text[start - 1])) || (stop < length && !is_blank(text[stop]))))
            continue;
        if (tokens[found].lstrip) {
            while (start > 0 && is_blank(text[start - 1])) start--;
            if (start < done) start = done;
        }
        while (tokens[found].rstrip && stop < length && is_blank(text[stop])) stop++;
        if (done < start) memcpy(out[pieces++], (int64_t[3]){-1, (int64_t)done, (int64_t)start}, sizeof *out);
        memcpy(out[pieces++], (int64_t[3]){found, (int64_t)start, (int64_t)stop}, sizeof *out);
        done = stop;
    }
    if (done < length) memcpy(out[pieces++], (int64_t[3]){-1, (int64_t)done, (int64_t)length}, sizeof *out);
    return pieces;
}

static void test_splitter(void **state) {
    struct fixture *fixture = *state;
    static char sought[30][600], text[1001];
    static int64_t expected[2002][3];
    uint64_t seed = 362436069362436069u;
    struct snug_search search = {0};
    for (int round = 0; round < 2000; round++) {
        struct snug_added_tokens tokens = {.ignore_special = round % 5 == 0};
        struct snug_wordpiece model = {0};
        const int count = draw_patterns(&seed, round % 2 ? "a " : "ab  ", 1 + round % 12, 20, sought);
        for (int i = 0; i < count; i++) {
            const uint64_t flags = draw(&seed);
            const struct snug_added_token token = {.content = sought[i],
                                                   .single_word = flags % 4 == 0,
                                                   .lstrip = flags & 16,
                                                   .rstrip = flags & 32,
                                                   .special = flags & 64};
            assert_int_equal(snug_added_tokens_add(fixture->ctx, &tokens, &model, &token), SNUG_OK);
        }
        assert_int_equal(snug_added_tokens_finish(fixture->ctx, &tokens, &(struct snug_normalizer){0}), SNUG_OK);
        const size_t length = draw(&seed) % sizeof text;
        draw_text(&seed, round % 3 ? "ab    " : " ", length, text);
        const size_t pieces = slow_split(tokens.items, count, tokens.ignore_special, sought, text, length, expected);
        struct snug_splitter splitter = {.tokens = &tokens, .search = &search};
        const struct snug_added_token *token;
        size_t start, stop;
        snug_search_begin(&search, &tokens.raw, text, length);
        for (size_t i = 0; i < pieces; i++) {
            assert_int_equal(snug_splitter_next(fixture->ctx, &splitter, &token, &start, &stop), SNUG_OK);
            assert_int_equal(token ? token - tokens.items : -1, expected[i][0]);
            if (token) continue; /* of a token the place is not reported after text before it */
            assert_int_equal(start, expected[i][1]);
            assert_int_equal(stop, expected[i][2]);
        }
        assert_int_equal(snug_splitter_next(fixture->ctx, &splitter, &token, &start, &stop), SNUG_END);
        snug_added_tokens_free(&tokens);
    }
    snug_search_free(&search);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden_strings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_disagreement_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_code_point, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_truncation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_endless_marks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_save_and_fingerprint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_save_after_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_accepted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nul, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_vocabulary_is_cut_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_templates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_matcher, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_splitter, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
