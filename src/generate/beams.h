/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search of one prompt, as transformers' generate(): which beams continue, and which answers are the best. */
#ifndef SNUG_GENERATE_BEAMS_H
#define SNUG_GENERATE_BEAMS_H

#include "generate/sampling.h"

enum { SNUG_BEAMS_MOST = 16, SNUG_CANDIDATES_MOST = SNUG_BEAMS_MOST * (1 + SNUG_ENDS_MOST) };

enum snug_early_stopping { SNUG_EARLY_FALSE, SNUG_EARLY_TRUE, SNUG_EARLY_NEVER };

struct snug_beam_search {
    int64_t beams;
    double length_penalty;
    enum snug_early_stopping early_stopping;
};

/* An answer, running or finished. */
struct snug_beam {
    int32_t *ids;             /* [prompt + room] with the prompt */
    float *log_probabilities; /* [room] of the answer's tokens: the model's own */
    int64_t count;            /* of ids */
    float score;              /* a sum, or finished, divided by a power of the length */
    int64_t parent;           /* of a running one: the beam of the step before that it continues */
    bool finished;            /* of a place for a finished one: it has an answer */
};

struct snug_beams {
    const struct snug_beam_search *search;
    const struct snug_token_choice *how;
    int64_t prompt, room, kept; /* tokens; candidates of a step */
    struct snug_beam *running, *next, *done, *candidates, *merged;
    void *memory;
    int64_t number; /* of the prompt: of the key of random numbers */
    float *sums;    /* [beams * classes] scratch, if candidates are drawn; the caller's */
    float
        best[SNUG_CANDIDATES_MOST]; /* sums of the candidates, the largest first, and what they continue: beam * classes
                                       + token */
    int64_t places[SNUG_CANDIDATES_MOST], found;
};

/* How many candidates a step considers, of all beams, and so at most of each. */
static inline int64_t snug_beam_candidates(const struct snug_beam_search *search, const struct snug_token_choice *how) {
    return search->beams * (how->end_count > 1 ? 1 + how->end_count : 2);
}

/* For prompts of at most `longest` tokens with their answers. */
snug_status snug_beams_open(snug_context *ctx, const struct snug_beam_search *search,
                            const struct snug_token_choice *how, int64_t longest, struct snug_beams *out);
void snug_beams_close(struct snug_beams *beams);
/* Begins a prompt's search for answers of at most `room` tokens. */
void snug_beams_begin(struct snug_beams *beams, const int32_t *prompt, int64_t count, int64_t room);
/* A step: next[i] is what follows running beam i (at first all that of the prompt). stops: whether an answer ends
   there, beside its end tokens and its length; or NULL. Returns whether the search goes on: then running[i] continues
   beam running[i].parent by its last token. */
bool snug_beams_step(struct snug_beams *beams, struct snug_sampler *sampler, const struct snug_next_tokens next[],
                     bool (*stops)(void *user, const int32_t *answer, int64_t count, int64_t before), void *user);

#endif
