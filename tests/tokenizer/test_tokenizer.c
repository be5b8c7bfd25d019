/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens against transformers' (tools/golden/tokenizer.py), every code point and random strings included; words,
   truncation, saving. */
#include "tokenizer_fixture.h"

#include "tokenizer/bert_normalizer.h"
#include "tokenizer/normalize.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

static const char *const variants[] = {
    "uncased",          "cased",           "cased_stripped", "lowered_accents",  "added",
    "added_cased_left", "split_special",   "older",          "vocab_alone",      "json_alone",
    "json_wrapped",     "json_and_config", "disagree",       "two_vocabularies",
};

FIXTURE_TEST(test_golden_strings) {
    json_t *file = read_golden(fixture, GOLDEN_BERT, "texts"), *texts = json_object_get(file, "texts");
    assert_true(json_array_size(texts) > 150);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_BERT, variants[v]);
        json_t *golden = read_golden(fixture, GOLDEN_BERT, variants[v]), *ids = json_object_get(golden, "ids");
        check_texts(fixture, tokenizer, variants[v], texts, ids);
        check_pairs(fixture, tokenizer, variants[v], json_object_get(golden, "pairs"));
        assert_int_equal(snug_tokenizer_vocab_size(tokenizer), json_integer_value(json_object_get(golden, "size")));
        json_decref(golden);
        snug_tokenizer_free(tokenizer);
    }
    json_decref(file);
}

FIXTURE_TEST(test_disagreement_is_logged) {
    snug_tokenizer_free(load_golden(fixture, GOLDEN_BERT, "uncased"));
    assert_int_equal(fixture->warnings, 0);
    snug_tokenizer_free(load_golden(fixture, GOLDEN_BERT, "disagree"));
    assert_int_equal(fixture->warnings, 2); /* do_lower_case, and strip_accents, which follows it */
    snug_tokenizer_free(load_golden(fixture, GOLDEN_BERT, "two_vocabularies"));
    assert_int_equal(fixture->warnings, 3);
}

static size_t around(char *to, const char *before, uint32_t code, const char *after) {
    size_t length = strlen(before);
    memcpy(to, before, length);
    length += snug_utf8_put(to + length, code);
    memcpy(to + length, after, strlen(after));
    return length + strlen(after);
}

static void hash_code(struct hashing *h, uint32_t code) {
    char text[32];
    for (int i = 0; i < 2; i++) {
        size_t length = i ? around(text, "x\u302e\u0301", code, "\u0323\u302aq") : around(text, "a", code, "b");
        assert_int_equal(snug_normalize(h->fixture->ctx, &h->tokenizer->normalizer, text, length, &h->text), SNUG_OK);
        XXH3_64bits_update(h->hash, h->text.text, h->text.length);
        XXH3_64bits_update(h->hash, "", 1);
    }
    static const char *const sides[][2] = {{"a", "b"}, {"q", "q"}, {"", ""}};
    for (int i = 0; i < 3; i++) {
        size_t length = around(text, sides[i][0], code, sides[i][1]);
        hash_text(h, text, length);
        if (i < 2) check_beginnings(h->fixture, h->tokenizer, text, length, &h->ids);
    }
}

static void hash_codes(struct hashing *h, uint32_t block) {
    for (uint32_t code = block << 12; code < (block + 1) << 12; code++)
        if (code < 0xd800 || code >= 0xe000) hash_code(h, code);
}

TEST_IN(test_every_code_point, void *fixture, set_up, tear_down) {
    check_code_points(fixture, GOLDEN_BERT, 2, hash_codes);
}
TEST_IN(test_random_texts, void *fixture, set_up, tear_down) { check_random_texts(fixture, GOLDEN_BERT, 2); }

FIXTURE_TEST(test_truncation) {
    struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_BERT, "uncased");
    json_t *golden = read_golden(fixture, GOLDEN_BERT, "truncation"), *rows = json_object_get(golden, "rows");
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

/* The ids of words are those of each word encoded alone, and a row has the word index of each token. */
FIXTURE_TEST(test_words) {
    static const struct snug_word words[] = {{"unbelievable", 12}, {"", 0}, {"film,", 5}, {"[MASK]", 6}};
    const char *const sides[] = {"uncased", "added_cased_left"};
    for (int left = 0; left < 2; left++) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_BERT, sides[left]);
        struct snug_ids ids = {0}, of = {0}, row = {0}, row_of = {0};
        size_t first_count;
        bool truncated;
        assert_int_equal(snug_tokenizer_encode_words(fixture->ctx, tokenizer, words, 4, &ids, &of), SNUG_OK);
        static const int32_t expected[] = {0, 0, 0, 2, 2, 3}; /* un ##believ ##able film , [MASK] */
        assert_int_equal(ids.count, 6);
        assert_int_equal(of.count, 6);
        assert_memory_equal(of.ids, expected, sizeof expected);
        for (size_t length = 2; length < 10; length++) {
            row.count = row_of.count = 0;
            assert_int_equal(snug_tokenizer_assemble_words(fixture->ctx, tokenizer, &ids, &of, length, &row, &row_of,
                                                           &first_count, &truncated),
                             SNUG_OK);
            const size_t kept = length < 8 ? length - 2 : 6, from = left ? 6 - kept : 0;
            assert_int_equal(row.count, kept + 2);
            assert_int_equal(row_of.count, row.count);
            assert_int_equal(row_of.ids[0], -1);
            assert_int_equal(row_of.ids[kept + 1], -1);
            for (size_t i = 0; i < kept; i++) {
                assert_int_equal(row.ids[1 + i], ids.ids[from + i]);
                assert_int_equal(row_of.ids[1 + i], expected[from + i]);
            }
        }
        free(ids.ids);
        free(of.ids);
        free(row.ids);
        free(row_of.ids);
        snug_tokenizer_free(tokenizer);
    }
}

/* Combining marks of alternating classes, so many that an insertion sort would take minutes. */
FIXTURE_TEST(test_many_combining_marks) {
    const struct snug_bert_normalizer strip = {.strip_accents = true};
    enum { PAIRS_OF_MARKS = 500000 };
    const char pair[] = "\u302e\U0001d165"; /* classes 224 and 216, neither of category Mn */
    size_t size = strlen(pair);
    char *text = malloc(PAIRS_OF_MARKS * size);
    assert_non_null(text);
    for (size_t i = 0; i < PAIRS_OF_MARKS; i++) memcpy(text + i * size, pair, size);
    struct snug_text out = {0};
    assert_int_equal(snug_bert_normalize(fixture->ctx, &strip, text, PAIRS_OF_MARKS * size, &out), SNUG_OK);
    assert_int_equal(out.length, PAIRS_OF_MARKS * size);
    assert_memory_equal(out.text, "\U0001d165\U0001d165", 8);
    assert_memory_equal(out.text + out.length - 6, "\u302e\u302e", 6);
    free(out.text);
    free(text);
}

FIXTURE_TEST(test_save_and_fingerprint) {
    struct snug_tokenizer *first = load_golden(fixture, GOLDEN_BERT, "disagree"),
                          *other = load_golden(fixture, GOLDEN_BERT, "added_cased_left");
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

/* Saving writes what was loaded, even if the files changed, grew or disappeared in between. */
FIXTURE_TEST(test_save_after_changes) {
    static const char *const folders[] = {"older", "json_and_config", "disagree", "vocab_alone", "two_vocabularies"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char from[600], to[600], *before[SNUG_TOKENIZER_FILES] = {NULL}, *after;
        size_t sizes[SNUG_TOKENIZER_FILES], size;
        snprintf(to, sizeof to, "%s/from", fixture->folder);
        assert_int_equal(snug_folder_create(fixture->ctx, to), SNUG_OK);
        for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
            snprintf(from, sizeof from, SNUG_SOURCE_DIR "/tests/golden/tokenizer/%s/%s", folders[i],
                     snug_tokenizer_file_names[file]);
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
                /* A tokenizer_config.json without a class gets it. */
                if (file == SNUG_TOKENIZER_CONFIG && (!before[file] || !strstr(before[file], "tokenizer_class"))) {
                    assert_non_null(strstr(after, "\"tokenizer_class\": \""));
                } else {
                    assert_int_equal(size, sizes[file]);
                    assert_memory_equal(after, before[file], size);
                }
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

TEST_MAIN(NULL, NULL)
