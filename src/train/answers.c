/* SPDX-License-Identifier: Apache-2.0 */
/* --predict_with_generate: answers to the prompts of an evaluation's file, compared with those that it has. Several
   ranks answer the prompts in turn. */
#include <stdlib.h>

#include "metrics/text_scores.h"
#include "train/session.h"

struct answering {
    struct snug_session *session;
    const snug_callbacks *callbacks;
    struct snug_token_steps decoding;
    struct snug_generating generating;
    const struct snug_process_group *group; /* whose ranks answer the prompts in turn; NULL: one */
    struct snug_text text, tails[2];        /* scratch: of an answer, and for stop strings */
    struct snug_text_scores scores;
    size_t next;
};

static const struct snug_generation_setup *generation_of(const struct answering *a) {
    return &a->session->job.setup.generation;
}

static snug_status next(void *user, struct snug_generation_prompt *out) {
    struct answering *a = user;
    const struct snug_prompts *prompts = &generation_of(a)->prompts;
    const snug_callbacks *callbacks = a->callbacks;
    if (a->next >= prompts->count) return SNUG_END;
    RETURN_IF_ERROR(snug_group_check(a->session->ctx, a->group));
    if (callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user))
        return snug_fail(a->session->ctx, SNUG_E_INTERRUPTED, "interrupted after %zu of %zu prompts", a->next,
                         prompts->count);
    const size_t begin = snug_prompt_begin(prompts, a->next);
    *out = (struct snug_generation_prompt){.ids = prompts->ids.ids + begin,
                                           .count = (int64_t)(prompts->ends[a->next] - begin),
                                           .number = (int64_t)a->next,
                                           .sequence = -1};
    a->next += (size_t)snug_group_size(a->group);
    return SNUG_OK;
}

static bool stops(void *user, const int32_t *ids, int64_t count, int64_t before) {
    struct answering *a = user;
    return snug_generation_stops(a->session->ctx, generation_of(a), a->session->job.setup.tokenizer, ids, count, before,
                                 a->tails);
}

static snug_status stop_at(void *user, const struct snug_generated *so_far, bool *stop) {
    *stop = stops(user, so_far->ids, so_far->count, so_far->before);
    return SNUG_OK;
}

/* Of several answers to a prompt the first, which is the best one, counts. */
static snug_status take(void *user, const struct snug_generated *answer) {
    struct answering *a = user;
    snug_context *ctx = a->session->ctx;
    if (answer->sequence > 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_tokenizer_decode(ctx, a->session->job.setup.tokenizer, answer->ids, (size_t)answer->count,
                                          true, &a->text));
    return snug_text_scores_add(ctx, a->text.text, generation_of(a)->prompts.references[answer->prompt], &a->scores);
}

static snug_status answer_all(struct answering *a) {
    struct snug_session *s = a->session;
    const struct snug_generation_calls calls = {
        .user = a, .next = next, .token = stop_at, .stops = stops, .answer = take};
    RETURN_IF_ERROR(snug_decoding_open(s->ctx, s->job.setup.backend, &s->generation_run, &s->job.runner.arena,
                                       snug_session_decoding_memory(s), (int32_t)s->job.setup.config.first_position,
                                       &a->decoding));
    RETURN_IF_ERROR(snug_generating_open(&a->decoding, &generation_of(a)->how, &a->generating));
    return snug_generating_run(&a->generating, &calls);
}

snug_status snug_session_answer(struct snug_session *s, const snug_callbacks *callbacks,
                                struct snug_metric_list *metrics) {
    const struct snug_process_group *group = s->job.setup.args->group;
    struct answering a = {.session = s, .callbacks = callbacks, .group = group, .next = (size_t)snug_group_rank(group)};
    snug_group_at(group, -1, "answering prompts");
    snug_status status = answer_all(&a);
    if (group) status = snug_group_agree(s->ctx, group, status);
    if (status == SNUG_OK) status = snug_text_scores_merge(s->ctx, group, &a.scores);
    for (int i = 0; i < SNUG_TEXT_SCORE_COUNT && status == SNUG_OK; i++)
        metrics->items[metrics->count++] = (snug_metric){snug_text_score_name((enum snug_text_score)i),
                                                         snug_text_score(&a.scores, (enum snug_text_score)i)};
    snug_generating_close(&a.generating);
    snug_decoding_close(&a.decoding);
    free(a.text.text);
    for (int i = 0; i < 2; i++) free(a.tails[i].text);
    s->train_run.in_turn = s->eval_run.in_turn = false;
    return status;
}
