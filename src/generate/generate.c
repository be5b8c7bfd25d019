/* SPDX-License-Identifier: Apache-2.0 */
#include "generate/generate.h"

#include <stdlib.h>
#include <string.h>

enum { TOP_MOST = 64 };

struct snug_generator_row {
    bool used;
    bool kept;                        /* its sequence is the caller's */
    int64_t number, answer;           /* of the prompt, of the answer to it */
    int64_t prompt, count, fed, room; /* tokens: of the prompt, all, those in the cache, of the answer at most */
    int64_t sequences[SNUG_BEAMS_MOST];
    int64_t sequence_count; /* beams, after the prompt */
    int32_t *ids;           /* [longest] */
    float *log_probabilities;
    bool waits;   /* for the logits of this step */
    bool follows; /* its token after that is in the next step, which was started, too */
    struct snug_beams beams;
};

static int64_t beams_of(const struct snug_generating *g) { return g->how->search.beams; }

static int64_t pages_of(int64_t tokens) { return (tokens + SNUG_CACHE_PAGE - 1) / SNUG_CACHE_PAGE; }

/* Beams share the whole pages of the prompt. A shorter prompt may need more, since its answer begins elsewhere in a
   page, or may be longer. */
int64_t snug_generating_pages(int64_t groups, int64_t beams, int64_t prompt, int64_t longest, int64_t answer) {
    int64_t most = 0;
    for (int64_t count = 1; count <= prompt; count++) {
        const int64_t shared = beams > 1 ? count / SNUG_CACHE_PAGE : 0, left = longest - count;
        const int64_t all = pages_of(count + (answer < left ? answer : left));
        const int64_t pages = shared + beams * (all - shared);
        if (pages > most) most = pages;
    }
    return groups * most;
}

int32_t snug_generating_top(const struct snug_generation *how, bool device, int64_t classes) {
    const struct snug_token_choice *c = &how->sampling;
    const bool beams = how->search.beams > 1;
    if (c->repetition_penalty != 1 || c->no_repeat_ngram_size > 0) return 0;
    if (c->min_new_tokens > 0 || c->min_length > 0) return 0;
    const int64_t count = beams ? snug_beam_candidates(&how->search, c) : c->draws ? c->top_k : 1;
    if ((c->draws && beams) || (count > 1 && !device)) return 0;
    return count <= TOP_MOST && count <= classes ? (int32_t)count : 0;
}

snug_status snug_generating_open(struct snug_token_steps *decoding, const struct snug_generation *how,
                                 struct snug_generating *out) {
    snug_context *ctx = decoding->ctx;
    const size_t longest = (size_t)decoding->longest;
    *out = (struct snug_generating){.decoding = decoding,
                                    .how = how,
                                    .row_count = decoding->rows / how->search.beams,
                                    .runs_ahead = how->search.beams == 1 && snug_decoding_runs_ahead(decoding)};
    RETURN_IF_ERROR(snug_sampler_open(ctx, &how->sampling, decoding->classes, &out->sampler));
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)out->row_count, sizeof *out->rows, (void **)&out->rows));
    const bool draws_beams = how->search.beams > 1 && how->sampling.draws;
    const size_t sums = draws_beams ? (size_t)(how->search.beams * decoding->classes) : 0;
    RETURN_IF_ERROR(snug_alloc(ctx, sums, sizeof *out->sums, (void **)&out->sums));
    for (int64_t i = 0; i < out->row_count; i++) {
        struct snug_generator_row *row = &out->rows[i];
        RETURN_IF_ERROR(snug_alloc(ctx, longest, sizeof *row->ids, (void **)&row->ids));
        RETURN_IF_ERROR(snug_alloc(ctx, longest, sizeof *row->log_probabilities, (void **)&row->log_probabilities));
        if (how->search.beams > 1)
            RETURN_IF_ERROR(snug_beams_open(ctx, &how->search, &how->sampling, decoding->longest + 1, &row->beams));
        row->beams.sums = out->sums;
    }
    return SNUG_OK;
}

void snug_generating_close(struct snug_generating *g) {
    for (int64_t i = 0; g->rows && i < g->row_count; i++) {
        free(g->rows[i].ids);
        free(g->rows[i].log_probabilities);
        snug_beams_close(&g->rows[i].beams);
    }
    free(g->rows);
    free(g->sums);
    snug_sampler_close(&g->sampler);
    *g = (struct snug_generating){0};
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* A free row takes the prompt, of which it is answer number `answer`. */
static void begin(struct snug_generating *g, struct snug_generator_row *row,
                  const struct snug_generation_prompt *prompt, int64_t answer) {
    const int64_t left = g->decoding->longest - prompt->count, most = g->how->max_new_tokens;
    row->used = true;
    row->kept = prompt->sequence >= 0;
    row->number = prompt->number;
    row->answer = answer;
    row->prompt = row->count = prompt->count;
    row->room = most < left ? most : left;
    row->sequences[0] = row->kept ? prompt->sequence : snug_decoding_begin(g->decoding);
    row->sequence_count = 1;
    row->fed = g->decoding->sequences[row->sequences[0]].length;
    row->waits = row->follows = false;
    memcpy(row->ids, prompt->ids, (size_t)prompt->count * sizeof *row->ids);
    row->beams.number = prompt->number;
    if (beams_of(g) > 1) snug_beams_begin(&row->beams, row->ids, row->prompt, row->room);
}

/* What the next step computes of the row, which it may have been started with, is dropped. */
static void end(struct snug_generating *g, struct snug_generator_row *row) {
    const int64_t kept = row->sequences[0];
    if (row->kept && row->follows) snug_decoding_cut(g->decoding, kept, g->decoding->sequences[kept].length - 1);
    row->waits = row->follows = false;
    for (int64_t i = 0; i < row->sequence_count && !row->kept; i++) snug_decoding_end(g->decoding, row->sequences[i]);
    row->used = false;
}

/* Gives free rows the next prompts. *any: a row is used. */
static snug_status take_prompts(struct snug_generating *g, bool *any) {
    const int64_t each = beams_of(g) > 1 ? 1 : g->how->returned;
    *any = false;
    for (int64_t i = 0; i < g->row_count; i++) {
        struct snug_generator_row *row = &g->rows[i];
        if (!row->used && !g->more && !g->ended) {
            const snug_status status = g->calls->next(g->calls->user, &g->prompt);
            if (status != SNUG_OK && status != SNUG_END) return status;
            g->ended = status == SNUG_END;
            g->more = g->ended ? 0 : each;
        }
        if (!row->used && g->more) begin(g, row, &g->prompt, each - g->more--);
        *any |= row->used;
    }
    return SNUG_OK;
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

/* Adds to the step as much of the prompt as it takes. */
static snug_status add_prompt(struct snug_generating *g, struct snug_generator_row *row, int64_t room) {
    const bool whole = row->fed + room == row->prompt;
    RETURN_IF_ERROR(snug_decoding_add(g->decoding, row->sequences[0], row->ids + row->fed, room, whole));
    row->fed += room;
    row->waits = whole;
    return SNUG_OK;
}

/* The tokens that the last step chose. */
static snug_status add_tokens(struct snug_generating *g, struct snug_generator_row *row) {
    for (int64_t i = 0; i < row->sequence_count; i++) {
        const struct snug_beam *beam = &row->beams.running[i];
        const int32_t id = beams_of(g) > 1 ? beam->ids[beam->count - 1] : row->ids[row->count - 1];
        RETURN_IF_ERROR(snug_decoding_add(g->decoding, row->sequences[i], &id, 1, true));
    }
    row->waits = true;
    return SNUG_OK;
}

/* As much of prompts as the step still takes. */
static snug_status add_prompts(struct snug_generating *g) {
    for (int64_t i = 0; i < g->row_count; i++) {
        struct snug_generator_row *row = &g->rows[i];
        const int64_t left = row->prompt - row->fed;
        const int64_t room = row->used && left > 0 ? snug_decoding_room(g->decoding, left) : 0;
        if (room) RETURN_IF_ERROR(add_prompt(g, row, room));
    }
    return SNUG_OK;
}

/* On a CPU long prompts first, a part at a time; then a token of each answer, and short prompts beside them. On a GPU,
   whose kernels for several tokens of a sequence and for one differ, prompts alone, or a token of each answer. */
static snug_status fill_step(struct snug_generating *g) {
    const bool apart = snug_backend_is_device(g->decoding->backend);
    for (int64_t i = 0; i < g->row_count; i++) {
        struct snug_generator_row *row = &g->rows[i];
        const int64_t left = row->prompt - row->fed, few = snug_decoding_independent(g->decoding);
        if (row->used && few && left > few) return add_prompt(g, row, snug_decoding_room(g->decoding, left));
    }
    if (apart) RETURN_IF_ERROR(add_prompts(g));
    const bool prompts = apart && g->decoding->batch.tokens;
    for (int64_t i = 0; i < g->row_count && !prompts; i++)
        if (g->rows[i].used && g->rows[i].fed >= g->rows[i].prompt) RETURN_IF_ERROR(add_tokens(g, &g->rows[i]));
    return apart ? SNUG_OK : add_prompts(g);
}

static struct snug_generated answer_of(const struct snug_generator_row *row, enum snug_stop stop) {
    return (struct snug_generated){.prompt = row->number,
                                   .sequence = row->answer,
                                   .ids = row->ids + row->prompt,
                                   .log_probabilities = row->log_probabilities,
                                   .count = row->count - row->prompt,
                                   .before = row->prompt,
                                   .stop = stop};
}

/* Chooses the next token of an answer. */
static snug_status advance(struct snug_generating *g, struct snug_generator_row *row) {
    const struct snug_tokens_so_far history = {row->ids, row->count, row->count - row->prompt};
    const struct snug_next_tokens next = snug_decoding_next(g->decoding, row->sequences[0]);
    double log_probability;
    bool stop = false;
    const int32_t id = snug_sampler_choose(&g->sampler, &next, &history, row->number * g->how->returned + row->answer,
                                           &log_probability);
    row->log_probabilities[row->count - row->prompt] = (float)log_probability;
    row->ids[row->count++] = id;
    const bool ends = snug_sampling_ends(&g->how->sampling, id), full = row->count - row->prompt >= row->room;
    struct snug_generated answer = answer_of(row, ends ? SNUG_STOP_END : SNUG_STOP_LENGTH);
    if (g->calls->token) RETURN_IF_ERROR(g->calls->token(g->calls->user, &answer, &stop));
    if (stop && !ends) answer.stop = SNUG_STOP_CALLER;
    if (!ends && !full && !stop) return SNUG_OK;
    const snug_status status = g->calls->answer(g->calls->user, &answer);
    end(g, row);
    return status;
}

/* Every running beam becomes a copy of the sequence that it continues. */
static void follow_beams(struct snug_generating *g, struct snug_generator_row *row) {
    int64_t next[SNUG_BEAMS_MOST] = {0};
    const int64_t n = beams_of(g);
    for (int64_t i = 0; i < n; i++) {
        next[i] = snug_decoding_begin(g->decoding);
        snug_decoding_copy(g->decoding, next[i], row->sequences[row->beams.running[i].parent]);
    }
    for (int64_t i = 0; i < row->sequence_count; i++) snug_decoding_end(g->decoding, row->sequences[i]);
    memcpy(row->sequences, next, (size_t)n * sizeof *next);
    row->sequence_count = n;
}

static snug_status give_beams(struct snug_generating *g, const struct snug_generator_row *row) {
    for (int64_t i = 0; i < g->how->returned; i++) {
        const struct snug_beam *beam = &row->beams.done[i];
        const int64_t count = beam->count - row->prompt;
        const bool ends = count > 0 && snug_sampling_ends(&g->how->sampling, beam->ids[beam->count - 1]);
        const struct snug_generated answer = {.prompt = row->number,
                                              .sequence = i,
                                              .ids = beam->ids + row->prompt,
                                              .log_probabilities = beam->log_probabilities,
                                              .count = count,
                                              .before = row->prompt,
                                              .score = (double)beam->score,
                                              .stop = ends                 ? SNUG_STOP_END
                                                      : count >= row->room ? SNUG_STOP_LENGTH
                                                                           : SNUG_STOP_CALLER};
        RETURN_IF_ERROR(g->calls->answer(g->calls->user, &answer));
    }
    return SNUG_OK;
}

static snug_status advance_beams(struct snug_generating *g, struct snug_generator_row *row) {
    struct snug_next_tokens next[SNUG_BEAMS_MOST];
    for (int64_t i = 0; i < beams_of(g); i++)
        next[i] = snug_decoding_next(g->decoding, row->sequences[i < row->sequence_count ? i : 0]);
    if (snug_beams_step(&row->beams, &g->sampler, next, g->calls->stops, g->calls->user)) {
        follow_beams(g, row);
        return SNUG_OK;
    }
    const snug_status status = give_beams(g, row);
    end(g, row);
    return status;
}

/* Whether every row waits for a token, and none for a prompt. */
static bool may_run_ahead(const struct snug_generating *g) {
    bool may = g->runs_ahead;
    for (int64_t i = 0; i < g->row_count; i++) may &= g->rows[i].used ? g->rows[i].waits : g->ended;
    return may;
}

/* Starts the next step with the tokens that this one gives. An answer that ends with its token is noticed later.
 *ahead: it was started. */
static snug_status run_ahead(struct snug_generating *g, bool *ahead) {
    const bool may = may_run_ahead(g);
    *ahead = false;
    for (int64_t i = 0; i < g->row_count && may; i++) {
        struct snug_generator_row *row = &g->rows[i];
        if (!row->used || row->count + 1 - row->prompt >= row->room) continue;
        RETURN_IF_ERROR(snug_decoding_follow(g->decoding, row->sequences[0]));
        *ahead = row->follows = true;
    }
    return *ahead ? snug_decoding_start(g->decoding) : SNUG_OK;
}

/* Reads the results of the step that was started first. */
static snug_status advance_rows(struct snug_generating *g) {
    RETURN_IF_ERROR(snug_decoding_finish(g->decoding));
    for (int64_t i = 0; i < g->row_count; i++) {
        struct snug_generator_row *row = &g->rows[i];
        if (!row->used || !row->waits) continue;
        row->waits = false;
        RETURN_IF_ERROR(beams_of(g) > 1 ? advance_beams(g, row) : advance(g, row));
        row->waits = row->follows;
        row->follows = false;
    }
    return SNUG_OK;
}

static snug_status run(struct snug_generating *g) {
    for (bool any; true;) {
        RETURN_IF_ERROR(take_prompts(g, &any));
        if (!any) return SNUG_OK;
        RETURN_IF_ERROR(fill_step(g));
        RETURN_IF_ERROR(snug_decoding_start(g->decoding));
        for (bool ahead = true; ahead;) {
            RETURN_IF_ERROR(run_ahead(g, &ahead));
            RETURN_IF_ERROR(advance_rows(g));
        }
    }
}

snug_status snug_generating_run(struct snug_generating *g, const struct snug_generation_calls *calls) {
    g->calls = calls;
    g->more = 0;
    g->ended = false;
    const snug_status status = run(g);
    snug_decoding_drop(g->decoding);
    for (int64_t i = 0; i < g->row_count; i++)
        if (g->rows[i].used) end(g, &g->rows[i]);
    return status;
}
