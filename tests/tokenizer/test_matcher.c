/* SPDX-License-Identifier: Apache-2.0 */
/* Linear-time searches for added tokens against quadratic ones; texts with the same hash in the hash map. */
#include "tokenizer_fixture.h"

#include "tokenizer/hash_map.h"
#include "tokenizer/tokenizer_parts.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

static uint64_t draw(uint64_t *state) { /* xorshift64 (Marsaglia) */
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state >> 8;
}

/* A word of few different letters, so that its substrings occur in other words. */
static void draw_text(uint64_t *state, const char *letters, size_t length, char *out) {
    const size_t kinds = strlen(letters);
    for (size_t i = 0; i < length; i++) out[i] = letters[draw(state) % kinds];
    out[length] = '\0';
}

/* The longest pattern at text[at], found by comparing all: its index, or -1. */
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

FIXTURE_TEST(test_matcher) {
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

/* The algorithm of the `tokenizers` library (AddedVocabulary::find_matches), in quadratic time: the tokens' indices and
   positions, -1 for the text between them. The library drops a token of which nothing is left (start = stop), and fails
   if start > stop. */
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
        if (start >= stop) continue;
        if (done < start) memcpy(out[pieces++], (int64_t[3]){-1, (int64_t)done, (int64_t)start}, sizeof *out);
        memcpy(out[pieces++], (int64_t[3]){found, (int64_t)start, (int64_t)stop}, sizeof *out);
        done = stop;
    }
    if (done < length) memcpy(out[pieces++], (int64_t[3]){-1, (int64_t)done, (int64_t)length}, sizeof *out);
    return pieces;
}

FIXTURE_TEST(test_splitter) {
    static char sought[30][600], text[1001];
    static int64_t expected[2002][3];
    uint64_t seed = 362436069362436069u;
    struct snug_search search = {0};
    for (int round = 0; round < 2000; round++) {
        struct snug_added_tokens tokens = {.ignore_special = round % 5 == 0};
        struct snug_vocabulary model = {0};
        snug_added_tokens_begin(&tokens, &model);
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
            if (token) continue; /* a token's position is not reported where text precedes it */
            assert_int_equal(start, expected[i][1]);
            assert_int_equal(stop, expected[i][2]);
        }
        assert_int_equal(snug_splitter_next(fixture->ctx, &splitter, &token, &start, &stop), SNUG_END);
        snug_added_tokens_free(&tokens);
    }
    snug_search_free(&search);
}

/* Pairs of words with the same 32-bit FNV-1a hash: only the word that was added is found. */
TEST_IN(test_equal_hashes, struct fixture *f, set_up, tear_down) {
    struct snug_hash_map map = {0};
    int32_t before;
    assert_int_equal(snug_hash_map_add(f->ctx, &map, "costarring", 10, 5, &before), SNUG_OK);
    assert_int_equal(snug_hash_map_add(f->ctx, &map, "declinate", 9, 6, &before), SNUG_OK);
    assert_int_equal(snug_hash_map_find(&map, "", 0, "liquid", 6), -1); /* another length */
    assert_int_equal(snug_hash_map_find(&map, "", 0, "macallums", 9), -1);
    assert_int_equal(snug_hash_map_find(&map, "mac", 3, "allums", 6), -1); /* another prefix */
    assert_int_equal(snug_hash_map_find(&map, "dec", 3, "linate", 6), 6);
    assert_int_equal(snug_hash_map_add(f->ctx, &map, "liquid", 6, 7, &before), SNUG_OK);
    assert_int_equal(before, -1);
    assert_int_equal(snug_hash_map_find(&map, "", 0, "liquid", 6), 7);
    assert_int_equal(snug_hash_map_find(&map, "", 0, "costarring", 10), 5);
    snug_hash_map_free(&map);
}

TEST_MAIN(NULL, NULL)
