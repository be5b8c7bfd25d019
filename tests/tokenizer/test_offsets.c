/* SPDX-License-Identifier: Apache-2.0 */
/* Where tokens are in their texts, against transformers (tools/golden/offsets.py). */
#include "tokenizer_fixture.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

static void find_offsets(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *text,
                         size_t length, struct snug_ids *ids, struct snug_ids *bytes) {
    encode(fixture, tokenizer, text, length, ids);
    bytes->count = 0;
    assert_int_equal(snug_tokenizer_offsets(fixture->ctx, tokenizer, text, length, ids->ids, ids->count, bytes),
                     SNUG_OK);
    assert_int_equal(bytes->count, 2 * ids->count);
    for (size_t i = 0; i < ids->count; i++) {
        assert_true(bytes->ids[2 * i] <= bytes->ids[2 * i + 1] && (size_t)bytes->ids[2 * i + 1] <= length);
        assert_true(!i || bytes->ids[2 * i - 2] <= bytes->ids[2 * i]);
    }
}

FIXTURE_TEST(test_reference) {
    json_t *golden = read_golden(fixture, ".", "offsets"), *texts = json_object_get(golden, "texts"), *rows, *row,
           *span;
    struct snug_ids ids = {0}, bytes = {0};
    const char *name;
    size_t i, k;
    json_object_foreach(json_object_get(golden, "folders"), name, rows) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, ".", name);
        json_array_foreach(rows, i, row) {
            const char *text = json_string_value(json_array_get(texts, i));
            find_offsets(fixture, tokenizer, text, strlen(text), &ids, &bytes);
            assert_int_equal(ids.count, json_array_size(row));
            json_array_foreach(row, k, span) {
                if (json_is_null(span)) continue;
                const long long begin = json_integer_value(json_array_get(span, 0)),
                                end = json_integer_value(json_array_get(span, 1));
                if (bytes.ids[2 * k] != begin || bytes.ids[2 * k + 1] != end)
                    fail_msg("%s: token %zu of \"%s\" is at %d-%d, not %lld-%lld", name, k, text, bytes.ids[2 * k],
                             bytes.ids[2 * k + 1], begin, end);
            }
        }
        snug_tokenizer_free(tokenizer);
    }
    json_decref(golden);
    free(ids.ids);
    free(bytes.ids);
}

/* Offsets of any text are in it, and in order. */
FIXTURE_TEST(test_random_texts) {
    static const char *const names[] = {"xlm_roberta", "unigram", "bpe_characters", "bpe_bytes", "gpt2", "mpnet"};
    json_t *golden = read_golden(fixture, GOLDEN_PARTS, "random");
    struct snug_ids ids = {0}, bytes = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_PARTS, names[i]);
        for (uint64_t number = 0; number < 300; number++) {
            char text[2200];
            find_offsets(fixture, tokenizer, text, random_text(golden, number, text), &ids, &bytes);
        }
        snug_tokenizer_free(tokenizer);
    }
    json_decref(golden);
    free(ids.ids);
    free(bytes.ids);
}

/* A long token, and the one after it; an added token of byte-level BPE that is beyond its alphabet. */
FIXTURE_TEST(test_long_and_added) {
    char word[1501], text[2048];
    struct snug_ids ids = {0}, bytes = {0};
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    snprintf(text, sizeof text,
             "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"b\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":"
             "\"%s\"},"
             "{\"id\":2,\"content\":\"\xe6\x9d\xb1 "
             "\xe4\xba\xac\"}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}}",
             word);
    put_file(fixture, "tokenizer.json", text);
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    const size_t length = (size_t)snprintf(text, sizeof text,
                                           "b%sb\xe6\x9d\xb1 \xe4\xba\xac"
                                           "b",
                                           word);
    find_offsets(fixture, tokenizer, text, length, &ids, &bytes);
    const int32_t expected[] = {0, 1, 1, 1501, 1501, 1502, 1502, 1509, 1509, 1510};
    assert_int_equal(bytes.count, 10);
    assert_memory_equal(bytes.ids, expected, sizeof expected);
    snug_tokenizer_free(tokenizer);
    free(ids.ids);
    free(bytes.ids);
}

TEST_MAIN(NULL, NULL)
