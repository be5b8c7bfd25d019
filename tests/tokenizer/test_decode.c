/* SPDX-License-Identifier: Apache-2.0 */
/* Ids to text and back, against transformers' (tools/golden/decoding.py): every decoder, special tokens, cleaning up,
   and the text of ids that come one by one. */
#include "core/utf8.h"
#include "tokenizer_fixture.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

/* A SentencePiece model is written in hexadecimal. */
static void put_model(struct fixture *fixture, const char *name, const char *hex) {
    char path[128];
    const size_t size = strlen(hex) / 2;
    char *data = malloc(size + 1);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++) data[i] = (char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
    assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, data, size), SNUG_OK);
    free(data);
}

static void put_files(struct fixture *fixture, json_t *files) {
    const char *name;
    json_t *value;
    put_file(fixture, "tokenizer.json", NULL);
    put_file(fixture, "tokenizer.model", NULL);
    put_file(fixture, "sentencepiece.bpe.model", NULL);
    json_object_foreach(files, name, value) {
        if (json_is_string(value)) put_model(fixture, name, json_string_value(value));
        if (json_is_string(value)) continue;
        char *text = json_dumps(value, JSON_COMPACT);
        assert_non_null(text);
        put_file(fixture, name, text);
        free(text);
    }
}

static size_t take_ids(const json_t *list, int32_t ids[256]) {
    const size_t count = json_array_size(list);
    assert_true(count <= 256);
    for (size_t i = 0; i < count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return count;
}

static void expect_text(const char *what, size_t row, const char *found, size_t length, const json_t *expected) {
    if (length != json_string_length(expected) || memcmp(found, json_string_value(expected), length) != 0)
        fail_msg("%s, row %zu: \"%.*s\", expected \"%s\"", what, row, (int)length, found, json_string_value(expected));
}

/* One by one: each part is whole characters, and together they are the text without cleaning up, unless bytes that were
   characters become none by those that follow, which only random ids do. */
static void check_stream(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *name, size_t row,
                         const int32_t *ids, size_t count, bool skip, const char *whole) {
    struct snug_decode_stream stream = {.tokenizer = tokenizer, .skip_special = skip};
    char text[4096] = "";
    size_t used = 0, length;
    const char *part;
    for (size_t i = 0; i <= count; i++) {
        if (i < count)
            assert_int_equal(snug_decode_stream_push(fixture->ctx, &stream, ids[i], &part, &length), SNUG_OK);
        else
            assert_int_equal(snug_decode_stream_end(fixture->ctx, &stream, &part, &length), SNUG_OK);
        assert_int_equal(snug_utf8_invalid(part, length), length);
        memcpy(text + used, part, length + 1);
        used += length;
    }
    snug_decode_stream_free(&stream);
    if (strcmp(text, whole) != 0 && !strstr(whole, "\xef\xbf\xbd"))
        fail_msg("%s, row %zu: one by one \"%s\", together \"%s\"", name, row, text, whole);
}

/* With the special tokens that the post-processor or the class's settings put around it. */
static void check_row(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *name,
                      const char *text, const json_t *expected) {
    struct snug_ids ids = {0}, row = {0};
    size_t first;
    bool truncated;
    encode(fixture, tokenizer, text, strlen(text), &ids);
    assert_int_equal(snug_tokenizer_assemble(fixture->ctx, tokenizer, &ids, NULL, 512, &row, &first, &truncated),
                     SNUG_OK);
    expect_ids(name, 1, expected, &row);
    free(ids.ids);
    free(row.ids);
}

static void check_case(struct fixture *fixture, const json_t *texts, json_t *one) {
    const char *name = json_string_value(json_object_get(one, "name"));
    const json_t *rows = json_object_get(one, "ids");
    put_files(fixture, json_object_get(one, "files"));
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    struct snug_text text = {0};
    struct snug_ids ids = {0};
    assert_true(json_array_size(rows) > json_array_size(texts));
    check_row(fixture, tokenizer, name, json_string_value(json_array_get(texts, 1)), json_object_get(one, "row"));
    for (size_t row = 0; row < json_array_size(rows); row++) {
        int32_t list[256];
        const json_t *source = json_array_get(texts, row), *right = json_array_get(rows, row);
        const size_t count = take_ids(right, list);
        if (source) {
            encode(fixture, tokenizer, json_string_value(source), json_string_length(source), &ids);
            expect_ids(name, row, right, &ids);
        }
        for (int skip = 0; skip < 2; skip++) {
            const json_t *all = json_object_get(one, skip ? "skipped" : "texts");
            assert_int_equal(snug_tokenizer_decode(fixture->ctx, tokenizer, list, count, skip, &text), SNUG_OK);
            expect_text(name, row, text.text, text.length, json_array_get(all, row));
            const bool cleans = tokenizer->cleans;
            tokenizer->cleans = false;
            assert_int_equal(snug_tokenizer_decode(fixture->ctx, tokenizer, list, count, skip, &text), SNUG_OK);
            check_stream(fixture, tokenizer, name, row, list, count, skip, text.text);
            tokenizer->cleans = cleans;
        }
    }
    free(ids.ids);
    free(text.text);
    snug_tokenizer_free(tokenizer);
}

FIXTURE_TEST(test_texts) {
    json_t *golden = read_golden(fixture, ".", "decoding"), *cases = json_object_get(golden, "cases"), *one;
    size_t i;
    assert_true(json_array_size(cases) >= 25);
    json_array_foreach(cases, i, one) check_case(fixture, json_object_get(golden, "texts"), one);
    json_decref(golden);
}

/* The classes that build their parts have decoders, too: a text comes back, with the spaces that the class puts. */
FIXTURE_TEST(test_classes) {
    static const char *const cases[][3] = {{"tokenizer_parts", "roberta", "The film's day"},
                                           {"tokenizer_parts", "gpt2", "The film's day"},
                                           {"tokenizer_parts", "xlm_roberta", "The film day"},
                                           {"tokenizer_parts", "camembert", "the film day"},
                                           {"tokenizer", "uncased", "the film, good"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, cases[i][0], cases[i][1]);
        struct snug_ids ids = {0};
        struct snug_text text = {0};
        encode(fixture, tokenizer, cases[i][2], strlen(cases[i][2]), &ids);
        assert_int_equal(snug_tokenizer_decode(fixture->ctx, tokenizer, ids.ids, ids.count, true, &text), SNUG_OK);
        assert_string_equal(text.text, cases[i][2]);
        free(ids.ids);
        free(text.text);
        snug_tokenizer_free(tokenizer);
    }
}

/* What only unusual tokens show: the text of all ids of a small vocabulary with a gap, its last token an added one that
   is not special. */
FIXTURE_TEST(test_unusual_tokens) {
    static const struct {
        const char *class, *decoder, *tokens[3], *text;
    } cases[] = {
        {"PreTrainedTokenizerFast", "{\"type\":\"ByteLevel\"}", {"a", "\u6f22", "\u0149"}, "a\u6f22\u0149+"},
        {"PreTrainedTokenizerFast",
         "{\"type\":\"ByteFallback\"}",
         {"<0xZ1>", "<0x4Z>", "<0x41x"},
         "<0xZ1><0x4Z><0x41x+"},
        {"PreTrainedTokenizerFast", "{\"type\":\"ByteFallback\"}", {"abcdef", "<0x41>", "<0x4>"}, "abcdefA<0x4>+"},
        {"PreTrainedTokenizerFast",
         "{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":2}",
         {"aabaaa", "aa", "b"},
         "abab+"},
        {"PreTrainedTokenizerFast",
         "{\"type\":\"ByteLevel\"}",
         {"\u0120\u6f22b", "a\u0200c", "\u6f22"},
         "\u0120\u6f22ba\u0200c\u6f22+"},
        {"LlamaTokenizer", "{\"type\":\"ByteLevel\"}", {"\u0120a", "b", "c"}, " abc+"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const int32_t ids[] = {0, 1, 2, 3, 4};
        struct snug_text text = {0};
        struct snug_ids found = {0};
        char file[1024];
        const char *const *tokens = cases[i].tokens;
        snprintf(file, sizeof file,
                 "{\"decoder\":%s,\"added_tokens\":[{\"id\":4,\"content\":\"+\",\"special\":false}],\"model\":{"
                 "\"type\":\"BPE\","
                 "\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"%s\":0,\"%s\":1,\"%s\":3,\"+\":4}}}",
                 cases[i].decoder, tokens[0], tokens[1], tokens[2]);
        put_file(fixture, "tokenizer.json", file);
        snprintf(file, sizeof file, "{\"tokenizer_class\":\"%s\"}", cases[i].class);
        put_file(fixture, "tokenizer_config.json", file);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        assert_int_equal(snug_tokenizer_decode(fixture->ctx, tokenizer, ids, 5, true, &text), SNUG_OK);
        assert_string_equal(text.text, cases[i].text);
        encode(fixture, tokenizer, "?", 1, &found); /* a byte without a token */
        assert_int_equal(found.count, 0);
        free(found.ids);
        free(text.text);
        snug_tokenizer_free(tokenizer);
    }
}

/* Ids without a token are left out; a character comes when its last byte does, and an incomplete one at the end. */
FIXTURE_TEST(test_stream_of_bytes) {
    struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_PARTS, "gpt2");
    struct snug_decode_stream stream = {.tokenizer = tokenizer};
    struct snug_ids ids = {0};
    const char *part;
    size_t length, parts = 0;
    const int32_t unknown[] = {-1, 1 << 30};
    struct snug_text text = {0};
    assert_int_equal(snug_tokenizer_decode(fixture->ctx, tokenizer, unknown, 2, false, &text), SNUG_OK);
    assert_string_equal(text.text, "");
    encode(fixture, tokenizer, "\xf0\x9f\x91\xa9", 4, &ids);
    assert_true(ids.count > 1);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(snug_decode_stream_push(fixture->ctx, &stream, ids.ids[i], &part, &length), SNUG_OK);
        parts += length > 0;
        assert_int_equal(length, i + 1 < ids.count ? 0 : 4);
    }
    assert_int_equal(parts, 1);
    assert_int_equal(snug_decode_stream_push(fixture->ctx, &stream, ids.ids[0], &part, &length), SNUG_OK);
    assert_int_equal(length, 0);
    assert_int_equal(snug_decode_stream_end(fixture->ctx, &stream, &part, &length), SNUG_OK);
    assert_string_equal(part, "\xef\xbf\xbd");
    snug_decode_stream_free(&stream);
    free(text.text);
    free(ids.ids);
    snug_tokenizer_free(tokenizer);
}

/* A byte that comes later makes a character that was shown invalid, and the text that replaces it has the same first
   byte: each part is whole characters all the same. */
FIXTURE_TEST(test_stream_of_changed_bytes) {
    struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_PARTS, "bpe_bytes");
    struct snug_decode_stream stream = {.tokenizer = tokenizer};
    static const char *const tokens[] = {"<0xEF>", "<0xBC>", "<0x81>", "<0xFF>", "a"};
    static const char *const shown[] = {"", "", "\uff01", "", "\ufffd\ufffd\ufffd\ufffda"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const int32_t id = snug_vocabulary_find(&tokenizer->vocabulary, tokens[i]);
        const char *part;
        size_t length;
        assert_true(id >= 0);
        assert_int_equal(snug_decode_stream_push(fixture->ctx, &stream, id, &part, &length), SNUG_OK);
        assert_string_equal(part, shown[i]);
        assert_int_equal(length, strlen(shown[i]));
    }
    snug_decode_stream_free(&stream);
    snug_tokenizer_free(tokenizer);
}

TEST_MAIN(NULL, NULL)
