/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the demo's decoder, trained for a few steps. */
#ifndef SNUG_TESTS_GENERATED_H
#define SNUG_TESTS_GENERATED_H

#include "snug_generate.h"
#include "training_fixture.h"

#define CHAT SNUG_SOURCE_DIR "/examples/demo/chat"

enum { MOST = 16 };

/* What a call gave. */
struct answers {
    int count, pieces;
    char pieces_of[MOST][512]; /* by prompt, joined */
    struct {
        int64_t index, sequence;
        char prompt[512], text[512], stop[16];
        size_t tokens;
        int32_t first;
        double score;
    } of[MOST];
    snug_status returns; /* by on_answer */
    int stop_after;      /* pieces; 0: never */
    snug_generator *destroys;
};

static inline snug_status take_piece(void *user, const snug_piece *piece) {
    struct answers *a = user;
    char *to = a->pieces_of[piece->index];
    const size_t used = strlen(to);
    snprintf(to + used, sizeof a->pieces_of[0] - used, "%.*s", (int)piece->length, piece->text);
    a->pieces++;
    return SNUG_OK;
}

static inline snug_status take_answer(void *user, const snug_answer *answer) {
    struct answers *a = user;
    assert_true(a->count < MOST);
    a->of[a->count].index = answer->index;
    a->of[a->count].sequence = answer->sequence;
    a->of[a->count].tokens = answer->count;
    a->of[a->count].first = answer->ids[0];
    a->of[a->count].score = answer->score;
    for (size_t i = 0; i < answer->count; i++) assert_true(answer->log_probabilities[i] <= 0);
    assert_int_equal(strlen(answer->text), answer->text_length);
    snprintf(a->of[a->count].prompt, sizeof a->of[0].prompt, "%s", answer->prompt);
    snprintf(a->of[a->count].text, sizeof a->of[0].text, "%s", answer->text);
    snprintf(a->of[a->count++].stop, sizeof a->of[0].stop, "%s", answer->stop);
    snug_generator_destroy(a->destroys);
    return a->returns;
}

static inline bool should_stop(void *user) {
    const struct answers *a = user;
    return a->stop_after && a->pieces >= a->stop_after;
}

static inline void train_model(struct fixture *f, const char *chats, int steps) {
    char words[1024];
    snprintf(words, sizeof words,
             "config_name=" CHAT " tokenizer_name=" CHAT " train_file=%s validation_file= assistant_only_loss=True "
             "output_dir=@out max_steps=%d per_device_train_batch_size=16 learning_rate=4e-3 save_strategy=no "
             "max_seq_length=64 threads=1",
             chats, steps);
    snug_args *args = plain_args(f, words);
    snug_train_result *result;
    if (snug_train(args, NULL, &result) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    snug_train_result_destroy(result);
    snug_args_destroy(args);
}

/* A model that has learnt a little. */
static inline void make_model(struct fixture *f) { train_model(f, CHAT "/plain.jsonl", 40); }

static inline snug_status generate(struct fixture *f, const char *words, struct answers *a) {
    char all[1024];
    snprintf(all, sizeof all, "model_name_or_path=@out threads=1 %s", words);
    snug_args *args = plain_args(f, all);
    const snug_callbacks callbacks = {.user = a, .should_stop = should_stop};
    const snug_status status = snug_generate(args, &callbacks, take_piece, take_answer, a);
    snug_args_destroy(args);
    return status;
}

static inline struct answers *answer(struct fixture *f, const char *words) {
    struct answers *a = calloc(1, sizeof *a);
    if (generate(f, words, a) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
    return a;
}

#endif
