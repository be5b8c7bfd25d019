/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder for a test, with a small vocabulary, a token cache and the log's messages. */
#ifndef SNUG_TESTS_TEXT_FIXTURE_H
#define SNUG_TESTS_TEXT_FIXTURE_H

#include "data/lengths.h"
#include "model/family.h"
#include "scratch.h"

/* Ids: [PAD] [UNK] [CLS] [SEP] [MASK], then w0 … w199. */
enum { PAD, UNK, CLS, SEP, MASK, W0, WORDS = 200, VOCAB = W0 + WORDS };

struct fixture {
    snug_context *ctx;
    struct snug_tokenizer *tokenizer;
    char folder[64], log[1 << 14];
};

static void keep_log(void *user, snug_log_level level, const char *message) {
    struct fixture *f = user;
    size_t used = strlen(f->log);
    (void)level;
    snprintf(f->log + used, sizeof f->log - used, "%s\n", message);
}

/* The path of name in the test's folder; valid for the next three calls. */
static inline const char *path_of(const struct fixture *f, const char *name) {
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", f->folder, name);
    return path[next];
}

static inline const char *write_file(const struct fixture *f, const char *name, const char *text) {
    const char *path = path_of(f, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline void load_tokenizer(struct fixture *f, const char *config) {
    char vocab[4096];
    size_t used = (size_t)snprintf(vocab, sizeof vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (int i = 0; i < WORDS; i++) used += (size_t)snprintf(vocab + used, sizeof vocab - used, "w%d\n", i);
    write_file(f, "vocab.txt", vocab);
    write_file(f, "tokenizer_config.json", config);
    snug_tokenizer_free(f->tokenizer);
    assert_int_equal(snug_tokenizer_load(f->ctx, f->folder, snug_family_tokenizer_class, &f->tokenizer), SNUG_OK);
    assert_int_equal(snug_tokenizer_vocab_size(f->tokenizer), VOCAB);
}

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_non_null(temporary_folder(f->folder, sizeof f->folder));
    setenv("SNUG_CACHE", path_of(f, "cache"), 1);
    assert_int_equal(snug_context_create(&f->ctx), SNUG_OK);
    load_tokenizer(f, "{\"do_lower_case\": true}");
    snug_context_set_log(f->ctx, keep_log, f, SNUG_LOG_DEBUG);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    snug_tokenizer_free(f->tokenizer);
    assert_int_equal(snug_folder_remove(f->ctx, NULL, f->folder), SNUG_OK);
    snug_context_destroy(f->ctx);
    free(f);
    return 0;
}

/* Classification of short texts, with the command line's options. */
static inline struct snug_dataset_options options_for(const char *path) {
    return (struct snug_dataset_options){.path = path,
                                         .need_labels = true,
                                         .max_length = 32,
                                         .max_samples = -1,
                                         .threads = 2,
                                         .seed = 42,
                                         .vocab_size = VOCAB};
}

static inline struct snug_dataset *open_with(struct fixture *f, struct snug_dataset_options options) {
    struct snug_dataset *dataset;
    snug_status status = snug_dataset_open(f->ctx, f->tokenizer, &options, &dataset);
    if (status != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    return dataset;
}

/* A row's number of tokens, from the table of lengths. */
static inline int64_t length_of(struct fixture *f, const struct snug_dataset *dataset, int64_t row) {
    struct snug_lengths lengths;
    int32_t length;
    assert_int_equal(snug_lengths_init(f->ctx, dataset, 1, &lengths), SNUG_OK);
    assert_int_equal(snug_lengths_read(f->ctx, &lengths, &row, 1, &length), SNUG_OK);
    snug_lengths_free(&lengths);
    return length;
}

/* Checks the status and message of the last failure, and clears it. */
static inline void assert_failed(struct fixture *f, snug_status status, snug_status expected, const char *part) {
    assert_int_equal(status, expected);
    assert_contains(snug_error_message(f->ctx), part);
    snug_clear_error(f->ctx);
}

static inline void assert_open_fails(struct fixture *f, struct snug_dataset_options options, snug_status expected,
                                     const char *part) {
    struct snug_dataset *dataset;
    assert_failed(f, snug_dataset_open(f->ctx, f->tokenizer, &options, &dataset), expected, part);
    assert_null(dataset);
}

#endif
