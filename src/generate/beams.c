/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of transformers' _beam_search(), in fp32 as there. The candidates of a step are the best continuations of
 * all beams, or drawn ones in the order in which they were drawn; among the first `beams` of them those that stop may
 * finish, and the best that do not stop go on.
 */
#include "generate/beams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log_sum.h"

static const float none = -1e9F; /* the score of a place without an answer */

snug_status snug_beams_open(snug_context *ctx, const struct snug_beam_search *search,
                            const struct snug_token_choice *how, int64_t longest, struct snug_beams *out) {
    const int64_t n = search->beams, kept = snug_beam_candidates(search, how);
    const int64_t all = 3 * n + kept + n + kept;
    *out = (struct snug_beams){.search = search, .how = how, .kept = kept};
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)all, sizeof *out->running, (void **)&out->running));
    out->next = out->running + n;
    out->done = out->next + n;
    out->candidates = out->done + n;
    out->merged = out->candidates + kept;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)((3 * n + kept) * longest), 8, &out->memory));
    for (int64_t i = 0; i < 3 * n + kept; i++) { /* those of merged are of others */
        out->running[i].ids = (int32_t *)out->memory + 2 * i * longest;
        out->running[i].log_probabilities = (float *)out->memory + (2 * i + 1) * longest;
    }
    return SNUG_OK;
}

void snug_beams_close(struct snug_beams *beams) {
    free(beams->running);
    free(beams->memory);
    *beams = (struct snug_beams){0};
}

static void copy(const struct snug_beams *b, struct snug_beam *to, const struct snug_beam *from) {
    const struct snug_beam memory = *to;
    *to = *from;
    to->ids = memory.ids;
    to->log_probabilities = memory.log_probabilities;
    memcpy(to->ids, from->ids, (size_t)from->count * sizeof *to->ids);
    memcpy(to->log_probabilities, from->log_probabilities,
           (size_t)(from->count - b->prompt) * sizeof *to->log_probabilities);
}

void snug_beams_begin(struct snug_beams *b, const int32_t *prompt, int64_t count, int64_t room) {
    b->prompt = count;
    b->room = room;
    for (int64_t i = 0; i < b->search->beams; i++) {
        struct snug_beam *beam = &b->running[i];
        memcpy(beam->ids, prompt, (size_t)count * sizeof *prompt);
        beam->count = count;
        beam->score = i ? none : 0;
        beam->parent = 0;
        b->done[i].finished = false;
        b->done[i].count = count;
        b->done[i].score = none;
    }
}

/* Keeps a continuation if it is among the best so far; of equal ones the first. */
static void enter(struct snug_beams *b, float total, int64_t place) {
    int64_t at = b->found;
    if (at == b->kept && !(total > b->best[at - 1])) return;
    if (at < b->kept) b->found++;
    if (at == b->kept) at--;
    for (; at > 0 && total > b->best[at - 1]; at--) {
        b->best[at] = b->best[at - 1];
        b->places[at] = b->places[at - 1];
    }
    b->best[at] = total;
    b->places[at] = place;
}

/* Leaves of sampler->scores those that drawing allows; the others are minus infinity. */
static void filter(const struct snug_beams *b, struct snug_sampler *sampler) {
    const int64_t kept = snug_sampler_filter(sampler, sampler->classes, b->kept / b->search->beams);
    for (int64_t k = 0; k < kept; k++) sampler->seen[sampler->order[k]] = 1;
    for (int64_t k = 0; k < sampler->classes; k++) {
        if (!sampler->seen[k]) sampler->scores[k] = -INFINITY;
        sampler->seen[k] = 0;
    }
}

/* One of `count` continuations, by its share of what is not drawn yet; if all of that is nothing, the best of it. */
static int64_t draw_one(const struct snug_beams *b, int64_t count, float most, double u) {
    double total = 0, sum = 0;
    int64_t best = 0, place = 0;
    for (int64_t i = 0; i < count; i++) {
        if (b->sums[i] > b->sums[best]) best = i;
        total += exp((double)b->sums[i] - (double)most);
    }
    for (; total > 0; place++) { /* the same sum, and u is below 1: it ends */
        sum += exp((double)b->sums[place] - (double)most);
        if (sum > u * total) return place;
    }
    return best;
}

/* Draws the candidates without replacement; those that were drawn first may finish. */
static void draw_candidates(struct snug_beams *b, const struct snug_sampler *sampler) {
    const int64_t count = b->search->beams * sampler->classes, token = b->running[0].count - b->prompt;
    float most = b->sums[0];
    for (int64_t i = 1; i < count; i++)
        if (b->sums[i] > most) most = b->sums[i];
    for (int64_t k = 0; k < b->kept; k++) {
        const int64_t place = draw_one(b, count, most, snug_sampling_uniform(b->how->seed, b->number, token, k));
        b->best[b->found] = b->sums[place];
        b->places[b->found++] = place;
        b->sums[place] = -INFINITY;
    }
}

/* The sums of every continuation of beam i: processors act on log-probabilities. */
static void score_beam(struct snug_beams *b, struct snug_sampler *sampler, int64_t i,
                       const struct snug_next_tokens *next) {
    const struct snug_beam *beam = &b->running[i];
    const struct snug_tokens_so_far history = {beam->ids, beam->count, beam->count - b->prompt};
    const float *logits = next->logits;
    if (!logits) {
        for (int64_t k = 0; k < next->count; k++)
            enter(b, next->log_probabilities[k] + beam->score, i * sampler->classes + next->ids[k]);
        return;
    }
    const double sum = snug_log_sum(logits, sampler->classes);
    for (int64_t k = 0; k < sampler->classes; k++) sampler->scores[k] = (float)((double)logits[k] - sum);
    snug_sampler_process(sampler, &history);
    if (b->how->draws) filter(b, sampler);
    for (int64_t k = 0; k < sampler->classes; k++) {
        const float sum_of = sampler->scores[k] + beam->score;
        if (b->how->draws)
            b->sums[i * sampler->classes + k] = sum_of;
        else
            enter(b, sum_of, i * sampler->classes + k);
    }
}

/* The model's own, of a token that is among next. */
static float log_probability_of(const struct snug_next_tokens *next, int64_t id, int64_t classes) {
    int64_t k = 0;
    if (next->logits) return (float)((double)next->logits[id] - snug_log_sum(next->logits, classes));
    while (next->ids[k] != id) k++;
    return next->log_probabilities[k];
}

static void list_candidates(struct snug_beams *b, int64_t classes, const struct snug_next_tokens next[]) {
    for (int64_t c = 0; c < b->found; c++) {
        const int64_t parent = b->places[c] / classes, id = b->places[c] % classes;
        struct snug_beam *candidate = &b->candidates[c];
        copy(b, candidate, &b->running[parent]);
        candidate->score = b->best[c];
        candidate->parent = parent;
        candidate->ids[candidate->count++] = (int32_t)id;
        candidate->log_probabilities[candidate->count - b->prompt - 1] = log_probability_of(&next[parent], id, classes);
    }
}

/* The n best of list, in order; those that are equal in their order. */
static void keep_best(const struct snug_beams *b, struct snug_beam *to, int64_t n, const struct snug_beam *list,
                      int64_t count) {
    bool taken[SNUG_BEAMS_MOST + SNUG_CANDIDATES_MOST] = {false};
    for (int64_t k = 0; k < n; k++) {
        int64_t best = 0;
        while (taken[best]) best++;
        for (int64_t i = best + 1; i < count; i++)
            if (!taken[i] && list[i].score > list[best].score) best = i;
        taken[best] = true;
        copy(b, &to[k], &list[best]);
    }
}

/* Finished answers: the best of the old ones and of the candidates that stop. */
static void finish(struct snug_beams *b, const bool stopped[]) {
    const int64_t n = b->search->beams;
    const float length = powf((float)(b->candidates[0].count - b->prompt), (float)b->search->length_penalty);
    for (int64_t i = 0; i < n; i++) b->merged[i] = b->done[i];
    for (int64_t c = 0; c < b->found; c++) {
        struct snug_beam *m = &b->merged[n + c];
        *m = b->candidates[c];
        m->finished = c < n && stopped[c];
        m->score /= length;
        if (!m->finished) m->score += none;
    }
    keep_best(b, b->next, n, b->merged, n + b->found);
    struct snug_beam *const old = b->done;
    b->done = b->next;
    b->next = old;
}

/* Whether a running answer may still become better than the worst finished one. */
static bool may_improve(const struct snug_beams *b) {
    const struct snug_beam_search *s = b->search;
    const bool longest = s->early_stopping == SNUG_EARLY_NEVER && s->length_penalty > 0;
    const int64_t length = longest ? b->room : b->running[0].count - b->prompt;
    const float best = b->running[0].score / powf((float)length, (float)s->length_penalty);
    float least = b->done[0].score;
    bool any = false;
    for (int64_t i = 1; i < s->beams; i++)
        if (b->done[i].score < least) least = b->done[i].score;
    for (int64_t i = 0; i < s->beams; i++) any |= best > (b->done[i].finished ? least : none);
    return any;
}

bool snug_beams_step(struct snug_beams *b, struct snug_sampler *sampler, const struct snug_next_tokens next[],
                     bool (*stops)(void *user, const int32_t *answer, int64_t count, int64_t before), void *user) {
    const int64_t n = b->search->beams;
    bool stopped[SNUG_CANDIDATES_MOST] = {false}, all = true, full = b->search->early_stopping == SNUG_EARLY_TRUE;
    b->found = 0;
    for (int64_t i = 0; i < n; i++) score_beam(b, sampler, i, &next[i]);
    if (b->how->draws) draw_candidates(b, sampler);
    list_candidates(b, sampler->classes, next);
    for (int64_t c = 0; c < b->found; c++) {
        const struct snug_beam *candidate = &b->candidates[c];
        const int64_t answer = candidate->count - b->prompt;
        stopped[c] = snug_sampling_ends(b->how, candidate->ids[candidate->count - 1]) || answer >= b->room ||
                     (stops && stops(user, candidate->ids + b->prompt, answer, b->prompt));
        all &= stopped[c];
    }
    finish(b, stopped);
    for (int64_t c = 0; c < b->found; c++)
        if (stopped[c]) b->candidates[c].score += none;
    keep_best(b, b->running, n, b->candidates, b->found);
    for (int64_t i = 0; i < n; i++) full &= b->done[i].finished;
    return may_improve(b) && !full && !all;
}
