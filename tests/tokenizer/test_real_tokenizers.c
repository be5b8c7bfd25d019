/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizers of released decoders, in $SNUG_MODELS/tokenizers, on the reference strings of llama.cpp's
   vocabularies: their ids are llama.cpp's, and ids become the text again. tools/compare/compare_real_tokenizers.py
   compares them with transformers on more. Skipped without these files. */
#include "tokenizer_fixture.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

/* vocabulary: whose reference ids it has; NULL: only the strings of gpt-2 there and back. */
static const struct {
    const char *folder, *vocabulary;
    bool back; /* the text comes back as it was: no normalizer */
} cases[] = {
    {"gpt2", "gpt-2", true},  {"qwen2.5", "qwen2", false},    {"gemma", "gemma-4", true}, {"llama2", "llama-spm", true},
    {"llama3.2", NULL, true}, {"mistral-tekken", NULL, true}, {"o200k", NULL, true},      {"deepseek", NULL, true},
};

/* Returns false where the file is missing. */
static bool read_reference(struct fixture *fixture, const char *models, const char *vocabulary, const char *ending,
                           char **out) {
    char path[1024];
    size_t size;
    snprintf(path, sizeof path, "%s/tokenizers/ggml/ggml-vocab-%s.gguf.%s", models, vocabulary, ending);
    if (access(path, R_OK) != 0) return false;
    assert_int_equal(snug_file_read(fixture->ctx, NULL, path, out, &size), SNUG_OK);
    return true;
}

static void check_ids(const char *folder, size_t number, const char *line, const struct snug_ids *ids) {
    char *end;
    for (size_t i = 0; i <= ids->count; i++, line = end) {
        const long expected = strtol(line, &end, 10);
        if (i == ids->count && end == line) break;
        if (i == ids->count || end == line || expected != ids->ids[i])
            fail_msg("%s, string %zu: token %zu of %zu differs from the reference", folder, number, i, ids->count);
    }
}

static size_t check_strings(struct fixture *fixture, const struct snug_tokenizer *tokenizer, size_t which,
                            char *strings, const char *lines) {
    struct snug_ids ids = {0};
    struct snug_text text = {0};
    size_t count = 0;
    for (char *string = strings; string; count++) {
        char *end = strstr(string, SEPARATOR);
        if (end) *end = '\0';
        encode(fixture, tokenizer, string, strlen(string), &ids);
        if (lines) {
            char line[8192] = "";
            const char *newline = strchr(lines, '\n');
            snprintf(line, sizeof line, "%.*s", newline ? (int)(newline - lines) : (int)strlen(lines), lines);
            lines = newline ? newline + 1 : "";
            check_ids(cases[which].folder, count, line, &ids);
        }
        assert_int_equal(snug_tokenizer_decode(fixture->ctx, tokenizer, ids.ids, ids.count, false, &text), SNUG_OK);
        if (cases[which].back) assert_string_equal(text.text, string);
        string = end ? end + strlen(SEPARATOR) : NULL;
    }
    free(ids.ids);
    free(text.text);
    return count;
}

TEST_IN(test_references, struct fixture *fixture, set_up, tear_down) {
    const char *models = getenv("SNUG_MODELS");
    if (!models) {
        print_message("skipped: SNUG_MODELS names no folder with real tokenizers\n");
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[1024], *strings = NULL, *lines = NULL;
        const char *vocabulary = cases[i].vocabulary ? cases[i].vocabulary : "gpt-2";
        snprintf(folder, sizeof folder, "%s/tokenizers/%s", models, cases[i].folder);
        if (access(folder, R_OK) != 0 || !read_reference(fixture, models, vocabulary, "inp", &strings) ||
            (cases[i].vocabulary && !read_reference(fixture, models, vocabulary, "out", &lines))) {
            print_message("skipped: %s or its reference strings are missing\n", folder);
            free(strings);
            continue;
        }
        struct snug_tokenizer *tokenizer = load(fixture, folder);
        assert_true(check_strings(fixture, tokenizer, i, strings, lines) > 40);
        snug_tokenizer_free(tokenizer);
        free(strings);
        free(lines);
    }
}

TEST_MAIN(NULL, NULL)
