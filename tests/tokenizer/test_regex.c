/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions: pieces are those of `tokenizers` (tools/golden/split_patterns.py), what is not supported is
   refused by pattern and byte, and no pattern hangs. */
#include "tokenizer/pretokenize.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer_fixture.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

struct pieces {
    XXH3_state_t *hash;
    const json_t *expected; /* NULL: only the hash */
    size_t count;
};

static snug_status take_piece(void *user, const char *word, size_t length) {
    struct pieces *pieces = user;
    if (pieces->hash) {
        XXH3_64bits_update(pieces->hash, word, length);
        XXH3_64bits_update(pieces->hash, "", 1);
    }
    const json_t *piece = json_array_get(pieces->expected, pieces->count++);
    if (pieces->expected)
        if (json_string_length(piece) != length || memcmp(json_string_value(piece), word, length) != 0)
            fail_msg("piece %zu is \"%.*s\", expected \"%s\"", pieces->count, (int)length, word,
                     piece ? json_string_value(piece) : "none");
    return SNUG_OK;
}

static void read_split(struct fixture *fixture, const char *pattern, const char *behavior, bool invert,
                       struct snug_pretokenizer *out) {
    json_t *part = json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern", "Regex", pattern, "behavior",
                             behavior, "invert", (int)invert);
    if (snug_json_pretokenizer(fixture->ctx, "tokenizer.json", part, out) != SNUG_OK)
        fail_msg("%s", snug_error_message(fixture->ctx));
    json_decref(part);
}

static void split(struct fixture *fixture, const struct snug_pretokenizer *splitter, const char *text, size_t length,
                  struct pieces *pieces) {
    struct snug_words words = {.ctx = fixture->ctx, .pretokenizer = splitter, .sink = take_piece, .user = pieces};
    pieces->count = 0;
    if (length && snug_words_split(&words, text, length, true) != SNUG_OK)
        fail_msg("%s", snug_error_message(fixture->ctx));
    snug_words_free(&words);
}

FIXTURE_TEST(test_pieces) {
    json_t *golden = read_golden(fixture, ".", "regex"), *cases = json_object_get(golden, "cases"), *one, *pair;
    size_t i, k;
    assert_true(json_array_size(cases) > 90);
    json_array_foreach(cases, i, one) {
        struct snug_pretokenizer splitter = {0};
        read_split(fixture, json_string_value(json_array_get(one, 0)), json_string_value(json_array_get(one, 1)),
                   json_is_true(json_array_get(one, 2)), &splitter);
        json_array_foreach(json_array_get(one, 3), k, pair) {
            const json_t *text = json_array_get(pair, 0);
            struct pieces pieces = {.expected = json_array_get(pair, 1)};
            split(fixture, &splitter, json_string_value(text), json_string_length(text), &pieces);
            if (pieces.count != json_array_size(pieces.expected))
                fail_msg("case %zu, text %zu: %zu pieces, expected %zu", i, k, pieces.count,
                         json_array_size(pieces.expected));
        }
        snug_pretokenizer_free(&splitter);
    }
    json_decref(golden);
}

static void hash_one(struct fixture *fixture, const struct snug_pretokenizer *splitter, const char *text, size_t length,
                     XXH3_state_t *hash) {
    struct pieces pieces = {.hash = hash};
    split(fixture, splitter, text, length, &pieces);
    XXH3_64bits_update(hash, "", 1);
}

static void hash_plane(struct fixture *fixture, const struct snug_pretokenizer *splitter, uint32_t block,
                       XXH3_state_t *hash) {
    for (uint32_t code = block << 12; code < (block + 1) << 12; code++) {
        char text[32] = "a";
        size_t length = 1;
        if (code >= 0xd800 && code < 0xe000) continue;
        length += snug_utf8_put(text + length, code);
        length += snug_utf8_put(text + length, code);
        text[length++] = '1';
        text[length++] = ' ';
        length += snug_utf8_put(text + length, code);
        hash_one(fixture, splitter, text, length, hash);
    }
}

static void check_pattern(struct fixture *fixture, const json_t *golden, const char *pattern, const json_t *digests) {
    struct snug_pretokenizer splitter = {0};
    const json_t *planes = json_object_get(golden, "planes");
    const uint64_t size = (uint64_t)json_integer_value(json_object_get(golden, "block"));
    const size_t random = (size_t)json_integer_value(json_object_get(golden, "random")),
                 count = json_array_size(digests);
    XXH3_state_t *hash = XXH3_createState();
    assert_int_equal(count, random + json_array_size(planes));
    read_split(fixture, pattern, "Isolated", false, &splitter);
    for (size_t block = 0; block < count; block += SANITIZED ? 8 : 1) {
        XXH3_64bits_reset(hash);
        for (uint64_t number = block * size; block < random && number < (block + 1) * size; number++) {
            char text[2200];
            hash_one(fixture, &splitter, text, random_text(golden, number, text), hash);
        }
        if (block >= random)
            hash_plane(fixture, &splitter, (uint32_t)json_integer_value(json_array_get(planes, block - random)), hash);
        expect_hash(pattern, block, hash, json_array_get(digests, block));
    }
    XXH3_freeState(hash);
    snug_pretokenizer_free(&splitter);
}

/* Of each model's pattern; GPT-2's also by the engine, which has a matcher of its own. */
FIXTURE_TEST(test_models) {
    json_t *golden = read_golden(fixture, ".", "regex"), *digests;
    const char *pattern;
    json_object_foreach(json_object_get(golden, "digests"), pattern, digests) {
        char group[1024];
        check_pattern(fixture, golden, pattern, digests);
        snprintf(group, sizeof group, "(?:%s)", pattern);
        if (strstr(pattern, "|ll|ve|re)| ?") || strstr(pattern, "|'d| ?"))
            check_pattern(fixture, golden, group, digests);
    }
    json_decref(golden);
}

FIXTURE_TEST(test_refused) {
    static const struct {
        const char *pattern;
        int byte;
        const char *message;
    } cases[] = {
        {"", 1, "can match nothing"},
        {"a*", 1, "can match nothing"},
        {"a|", 1, "can match nothing"},
        {"(?=a)", 1, "can match nothing"},
        {"(?:a?b?)", 1, "can match nothing"},
        {"(?>a?)|\\b", 1, "can match nothing"},
        {"a(?:b*)*", 8, "a repeated group that can match nothing"},
        {"a(?:b|c?){2}", 10, "a repeated group that can match nothing"},
        {"a{1}{1}{1}{1}{1}{1}{1}{1}{1}", 26, "so many quantifiers"},
        {"*a", 1, "a quantifier of nothing"},
        {"?a", 1, "a quantifier of nothing"},
        {"a|+", 3, "a quantifier of nothing"},
        {"a{1001}", 2, "these numbers of a quantifier"},
        {"a{3,2}", 2, "these numbers of a quantifier"},
        {"a{1,99999999999999999999}", 2, "these numbers of a quantifier"},
        {"(?:a{2}b){1000}{1000}", 1, "too large a pattern"},
        {"(a)\\1", 4, "this escape"},
        {"a\\", 2, "a backslash at the end"},
        {"\\R", 1, "this escape"},
        {"[\\ha]", 2, "this escape in a class"},
        {"[a\\H]", 3, "this escape in a class"},
        {"[\\b]", 2, "this escape in a class"},
        {"\\p", 3, "\\p without {"},
        {"\\p{Latin}", 3, "this property"},
        {"\\p{L", 3, "this property"},
        {"\\P{Xx}", 3, "this property"},
        {"\\x", 3, "not the number of a character"},
        {"\\xg", 3, "not the number of a character"},
        {"\\x{-}", 4, "not the number of a character"},
        {"\\x{4@}", 4, "not the number of a character"},
        {"\\x{110000}", 4, "not the number of a character"},
        {"\\x{d800}", 4, "not the number of a character"},
        {"\\x{41", 4, "not the number of a character"},
        {"\\ud800", 3, "not the number of a character"},
        {"[[:alpha:]]", 2, "this class in brackets"},
        {"[]a]", 2, "] as the first character"},
        {"[a", 1, "a class without ]"},
        {"[a-", 1, "a class without ]"},
        {"[b-a]", 3, "a range that does not end"},
        {"[a-\\d]", 3, "a range that does not end"},
        {"(a", 1, "a group without )"},
        {"a)", 2, ") without ("},
        {"(?s:.)", 1, "this kind of group"},
        {"(?<n>a)", 1, "this kind of group"},
        {"(?<=ab)c", 1, "a look behind of anything but one character"},
        {"(?<!a|b)c", 1, "a look behind of anything but one character"},
        {"(?i:é)", 5, "characters beyond ASCII after (?i)"},
        {"(?i)[à-é]", 6, "characters beyond ASCII after (?i)"},
        {"(?i:as+ss)", 9, "these two letters after (?i)"},
        {"(?i)FI", 6, "these two letters after (?i)"},
        {"a\xff", 2, "not UTF-8"},
    };
    struct snug_regex *regex;
    char deep[200] = "", place[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *pattern = cases[i].pattern;
        snug_clear_error(fixture->ctx);
        const snug_status status = snug_regex_compile(fixture->ctx, "file", pattern, strlen(pattern), &regex);
        snprintf(place, sizeof place, "is not supported: byte %d: ", cases[i].byte);
        if (status != SNUG_E_UNSUPPORTED || !strstr(snug_error_message(fixture->ctx), place) ||
            !strstr(snug_error_message(fixture->ctx), cases[i].message))
            fail_msg("%s: status %d, %s; expected %s%s", pattern, status, snug_error_message(fixture->ctx), place,
                     cases[i].message);
        assert_null(regex);
    }
    for (const char *open = "(["; *open; open++) {
        snug_clear_error(fixture->ctx);
        for (size_t i = 0; i < 100; i++) deep[i] = *open;
        assert_int_equal(snug_regex_compile(fixture->ctx, "file", deep, 100, &regex), SNUG_E_UNSUPPORTED);
        assert_non_null(strstr(snug_error_message(fixture->ctx), "within each other"));
    }
}

/* A pattern with exponentially many ways is given up; those of models take a long text of any kind. */
FIXTURE_TEST(test_no_pattern_hangs) {
    static const char *const slow[] = {"(?:a|a|aa)+b", "(?:a*a*a*a*a*)b|c", "(?>(?:a|aa)+)b|(?:a+a+)+b"};
    static const char quick[] =
        "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
        "|\\s+(?!\\S)|\\s+";
    enum { LENGTH = SANITIZED ? 1 << 16 : 1 << 22 };
    struct snug_regex_scratch scratch = {0};
    struct snug_regex *regex;
    size_t start, end;
    char *text = malloc(LENGTH);
    assert_non_null(text);
    memset(text, 'a', 3000);
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        snug_clear_error(fixture->ctx);
        assert_int_equal(snug_regex_compile(fixture->ctx, "file", slow[i], strlen(slow[i]), &regex), SNUG_OK);
        assert_int_equal(snug_regex_find(fixture->ctx, regex, text, 3000, 0, &scratch, &start, &end), SNUG_E_INPUT);
        assert_non_null(strstr(snug_error_message(fixture->ctx), "in a text of 3000 bytes"));
        snug_regex_free(regex);
    }
    assert_int_equal(snug_regex_compile(fixture->ctx, "file", quick, strlen(quick), &regex), SNUG_OK);
    for (const char *fill = "a 1-\n"; *fill; fill++) {
        size_t pieces = 0;
        memset(text, *fill, LENGTH);
        for (size_t at = 0; at < LENGTH; at = end, pieces++)
            assert_int_equal(snug_regex_find(fixture->ctx, regex, text, LENGTH, at, &scratch, &start, &end), SNUG_OK);
        assert_int_equal(pieces, *fill == '1' ? (LENGTH + 2) / 3 : 1);
    }
    snug_regex_free(regex);
    snug_regex_scratch_free(&scratch);
    free(text);
}

TEST_MAIN(NULL, NULL)
