/* SPDX-License-Identifier: Apache-2.0 */
/* Text from a decoder: snug_generate.h. */
#include "snug_generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/call.h"
#include "train/session.h"

/* An answer while it grows, and until it is given: answers are given in the order of the prompts. */
struct growing {
    struct snug_decode_stream stream;
    int32_t *ids;
    float *log_probabilities;
    int64_t count;
    double score;
    const char *stop; /* NULL: it is not complete */
};

struct snug_generator {
    snug_context *ctx;
    struct snug_session *session;
    struct snug_token_steps decoding;
    struct snug_generating generating;
    struct snug_prompts prompts; /* of this call, if they came later */
    int64_t kept;                /* the sequence that is kept from one call to the next; -1: none */
    struct snug_ids read;        /* its tokens */
    /* of a call: */
    const struct snug_prompts *asked;
    struct growing *growing;    /* [prompts * answers] */
    int64_t next, given, empty; /* empty: of the answers given, those without text */
    const snug_callbacks *callbacks;
    snug_on_piece *on_piece;
    snug_on_answer *on_answer;
    void *user;
    struct snug_text text, tails[2]; /* scratch: of an answer, and for stop strings */
};

static const struct snug_generation_setup *setup_of(const struct snug_generator *g) {
    return &g->session->job.setup.generation;
}

static const struct snug_tokenizer *tokenizer_of(const struct snug_generator *g) {
    return g->session->job.setup.tokenizer;
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

static bool stops_answer(void *user, const int32_t *ids, int64_t count, int64_t before) {
    struct snug_generator *g = user;
    return snug_generation_stops(g->ctx, setup_of(g), tokenizer_of(g), ids, count, before, g->tails);
}

static snug_status give_piece(struct snug_generator *g, const struct snug_generated *answer, const char *text,
                              size_t length) {
    const snug_piece piece = {answer->prompt, answer->sequence, text, length};
    return length && g->on_piece ? g->on_piece(g->user, &piece) : SNUG_OK;
}

static struct growing *growing_of(const struct snug_generator *g, const struct snug_generated *answer) {
    return &g->growing[answer->prompt * setup_of(g)->how.returned + answer->sequence];
}

static snug_status take_token(void *user, const struct snug_generated *answer, bool *stop) {
    struct snug_generator *g = user;
    struct growing *growing = growing_of(g, answer);
    const char *text;
    size_t length;
    if (g->callbacks && g->callbacks->should_stop && g->callbacks->should_stop(g->callbacks->user))
        return snug_fail(g->ctx, SNUG_E_INTERRUPTED, "stopped while an answer was generated");
    growing->stream.tokenizer = tokenizer_of(g);
    growing->stream.skip_special = true;
    RETURN_IF_ERROR(snug_decode_stream_push(g->ctx, &growing->stream, answer->ids[answer->count - 1], &text, &length));
    RETURN_IF_ERROR(give_piece(g, answer, text, length));
    *stop = stops_answer(g, answer->ids, answer->count, answer->before);
    return SNUG_OK;
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

static snug_status give(struct snug_generator *g, int64_t number) {
    const int64_t returned = setup_of(g)->how.returned, prompt = number / returned;
    const struct growing *growing = &g->growing[number];
    RETURN_IF_ERROR(
        snug_tokenizer_decode(g->ctx, tokenizer_of(g), growing->ids, (size_t)growing->count, true, &g->text));
    const snug_answer answer = {.index = prompt,
                                .sequence = number % returned,
                                .prompt = g->asked->texts[prompt],
                                .text = g->text.text,
                                .text_length = g->text.length,
                                .count = (size_t)growing->count,
                                .ids = growing->ids,
                                .log_probabilities = growing->log_probabilities,
                                .score = growing->score,
                                .stop = growing->stop,
                                .beams = setup_of(g)->how.search.beams};
    g->empty += !answer.text_length;
    return g->on_answer(g->user, &answer);
}

static snug_status take_answer(void *user, const struct snug_generated *answer) {
    static const char *const stops[] = {
        [SNUG_STOP_LENGTH] = "length", [SNUG_STOP_END] = "eos", [SNUG_STOP_CALLER] = "stop_string"};
    struct snug_generator *g = user;
    struct growing *growing = growing_of(g, answer);
    const size_t count = (size_t)answer->count;
    const char *text;
    size_t length;
    if (growing->stream.tokenizer) {
        RETURN_IF_ERROR(snug_decode_stream_end(g->ctx, &growing->stream, &text, &length));
        RETURN_IF_ERROR(give_piece(g, answer, text, length));
        snug_decode_stream_free(&growing->stream);
        growing->stream = (struct snug_decode_stream){0};
    }
    RETURN_IF_ERROR(snug_alloc(g->ctx, count, sizeof *growing->ids, (void **)&growing->ids));
    RETURN_IF_ERROR(
        snug_alloc(g->ctx, count, sizeof *growing->log_probabilities, (void **)&growing->log_probabilities));
    memcpy(growing->ids, answer->ids, count * sizeof *growing->ids);
    memcpy(growing->log_probabilities, answer->log_probabilities, count * sizeof *growing->log_probabilities);
    growing->count = answer->count;
    growing->score = setup_of(g)->how.search.beams > 1 ? answer->score : NAN;
    growing->stop = stops[answer->stop];
    const int64_t all = (int64_t)g->asked->count * setup_of(g)->how.returned;
    while (g->given < all && g->growing[g->given].stop) RETURN_IF_ERROR(give(g, g->given++));
    return SNUG_OK;
}

static snug_status next_prompt(void *user, struct snug_generation_prompt *out) {
    struct snug_generator *g = user;
    if (g->next == (int64_t)g->asked->count) return SNUG_END;
    const size_t begin = snug_prompt_begin(g->asked, (size_t)g->next), end = g->asked->ends[g->next];
    *out = (struct snug_generation_prompt){
        .ids = g->asked->ids.ids + begin, .count = (int64_t)(end - begin), .number = g->next++, .sequence = g->kept};
    return SNUG_OK;
}

static snug_status ignore_template(void *user, const char *path, const char *text, size_t length, bool of_tools) {
    (void)user, (void)path, (void)text, (void)length, (void)of_tools;
    return SNUG_OK;
}

/* Why answers have no text: a model of chats often ends at once what is no chat. */
static snug_status tell_empty(struct snug_generator *g) {
    bool chats = false;
    if (!g->empty) return SNUG_OK;
    if (!g->asked->chat) RETURN_IF_ERROR(snug_chat_find(g->ctx, tokenizer_of(g), ignore_template, NULL, &chats));
    snug_log(g->ctx, SNUG_LOG_WARNING, "%lld of %lld answers have no text: only special tokens were generated%s",
             (long long)g->empty, (long long)g->given,
             chats ? "; the model has a chat template: --chat makes a prompt the message of a user" : "");
    return SNUG_OK;
}

static void free_growing(struct snug_generator *g) {
    const int64_t all = (int64_t)g->asked->count * setup_of(g)->how.returned;
    for (int64_t i = 0; i < all; i++) {
        snug_decode_stream_free(&g->growing[i].stream);
        free(g->growing[i].ids);
        free(g->growing[i].log_probabilities);
    }
    free(g->growing);
    g->growing = NULL;
}

static snug_status run(struct snug_generator *g, const struct snug_prompts *asked) {
    const struct snug_generation_calls calls = {
        .user = g, .next = next_prompt, .token = take_token, .stops = stops_answer, .answer = take_answer};
    g->asked = asked;
    g->next = g->given = g->empty = 0;
    RETURN_IF_ERROR(
        snug_alloc(g->ctx, asked->count * (size_t)setup_of(g)->how.returned, sizeof *g->growing, (void **)&g->growing));
    const snug_status status = snug_generating_run(&g->generating, &calls);
    free_growing(g);
    return status == SNUG_OK ? tell_empty(g) : status;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static void close_generator(struct snug_generator *g) {
    snug_generating_close(&g->generating);
    snug_decoding_close(&g->decoding);
    snug_prompts_free(&g->prompts);
    snug_session_close(g->session);
    free(g->read.ids);
    free(g->text.text);
    for (int i = 0; i < 2; i++) free(g->tails[i].text);
    free(g);
}

static snug_status open_here(struct snug_generator *g, snug_args *args, enum snug_command command,
                             const snug_callbacks *callbacks) {
    RETURN_IF_ERROR(snug_session_open(args, command, callbacks, &g->session));
    struct snug_session *s = g->session;
    RETURN_IF_ERROR(snug_decoding_open(g->ctx, s->job.setup.backend, &s->generation_run, &s->job.runner.arena,
                                       snug_session_decoding_memory(s), (int32_t)s->job.setup.config.first_position,
                                       &g->decoding));
    return snug_generating_open(&g->decoding, &setup_of(g)->how, &g->generating);
}

static snug_status open_generator(snug_args *args, enum snug_command command, const snug_callbacks *callbacks,
                                  struct snug_generator **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    struct snug_generator *g = memory;
    g->ctx = args->ctx;
    g->kept = -1;
    const snug_status status = open_here(g, args, command, callbacks);
    if (status == SNUG_OK)
        *out = g;
    else
        close_generator(g);
    return status;
}

static void set_calls(struct snug_generator *g, const snug_callbacks *callbacks, snug_on_piece *on_piece,
                      snug_on_answer *on_answer, void *user) {
    g->callbacks = callbacks;
    g->on_piece = on_piece;
    g->on_answer = on_answer;
    g->user = user;
}

static snug_status generate(snug_args *args, const snug_callbacks *callbacks, snug_on_piece *on_piece,
                            snug_on_answer *on_answer, void *user) {
    struct snug_generator *g;
    RETURN_IF_ERROR(open_generator(args, SNUG_COMMAND_GENERATE, callbacks, &g));
    set_calls(g, callbacks, on_piece, on_answer, user);
    const snug_status status = run(g, &setup_of(g)->prompts);
    close_generator(g);
    return status;
}

snug_status snug_generate(snug_args *args, const snug_callbacks *callbacks, snug_on_piece *on_piece,
                          snug_on_answer *on_answer, void *user) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(on_answer);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, generate(args, callbacks, on_piece, on_answer, user));
}

/* ---- one prompt after another ---------------------------------------------------------------------------------- */

snug_status snug_generator_open(snug_args *args, snug_generator **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, open_generator(args, SNUG_COMMAND_CHAT, NULL, out));
}

void snug_generator_destroy(snug_generator *g) {
    if (!g) return;
    snug_context *ctx = g->ctx;
    if (snug_enter(ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_QUIET) != SNUG_OK) return;
    close_generator(g);
    snug_leave(ctx, SNUG_OK);
}

/* Without beams and several answers, the sequence of the last prompt is kept, as far as this one begins like it. */
static void keep_sequence(struct snug_generator *g, const int32_t *ids, int64_t count) {
    if (setup_of(g)->how.search.beams > 1 || setup_of(g)->how.returned > 1) return;
    if (g->kept < 0) g->kept = snug_decoding_begin(&g->decoding);
    int64_t same = 0;
    const int64_t most = g->decoding.sequences[g->kept].length;
    while (same < most && same < count - 1 && g->read.ids[same] == ids[same]) same++;
    snug_decoding_cut(&g->decoding, g->kept, same);
}

/* What the kept sequence has read: the prompt, and the answer as it comes. */
static snug_status note_read(struct snug_generator *g, const int32_t *ids, int64_t count) {
    g->read.count = 0;
    for (int64_t i = 0; i < count; i++) RETURN_IF_ERROR(snug_ids_append(g->ctx, &g->read, ids[i]));
    return SNUG_OK;
}

static snug_status note_token(void *user, const struct snug_generated *answer, bool *stop) {
    struct snug_generator *g = user;
    RETURN_IF_ERROR(snug_ids_append(g->ctx, &g->read, answer->ids[answer->count - 1]));
    return take_token(user, answer, stop);
}

static snug_status run_kept(struct snug_generator *g) {
    const struct snug_generation_calls calls = {
        .user = g, .next = next_prompt, .token = note_token, .stops = stops_answer, .answer = take_answer};
    g->asked = &g->prompts;
    g->next = g->given = 0;
    RETURN_IF_ERROR(snug_alloc(g->ctx, (size_t)setup_of(g)->how.returned, sizeof *g->growing, (void **)&g->growing));
    const snug_status status = snug_generating_run(&g->generating, &calls);
    free_growing(g);
    return status;
}

static snug_status answer(struct snug_generator *g, const char *prompt, bool chat) {
    snug_args *args = g->session->job.setup.args;
    struct snug_prompts *p = &g->prompts;
    snug_prompts_clear(p);
    RETURN_IF_ERROR((chat ? snug_prompts_add_chat : snug_prompts_add)(args, tokenizer_of(g), prompt, p));
    if (p->longest >= g->decoding.longest)
        return snug_fail(g->ctx, SNUG_E_USAGE,
                         "the prompt has %lld tokens, and with its answer there is memory for %lld: raise "
                         "--max_seq_length, or begin a new chat",
                         (long long)p->longest, (long long)g->decoding.longest);
    keep_sequence(g, p->ids.ids, (int64_t)p->ids.count);
    RETURN_IF_ERROR(note_read(g, p->ids.ids, (int64_t)p->ids.count));
    return run_kept(g);
}

snug_status snug_generator_answer(snug_generator *g, const char *prompt, bool chat, const snug_callbacks *callbacks,
                                  snug_on_piece *on_piece, snug_on_answer *on_answer, void *user) {
    SNUG_REQUIRE(g);
    SNUG_REQUIRE(prompt);
    SNUG_REQUIRE(on_answer);
    RETURN_IF_ERROR(snug_enter(g->ctx, __func__, SNUG_TURN_ALONE));
    set_calls(g, callbacks, on_piece, on_answer, user);
    return snug_leave(g->ctx, answer(g, prompt, chat));
}
