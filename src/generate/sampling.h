/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing the next token from logits, as transformers' generate() does with its logits processors, in their order:
 * repetition_penalty, no_repeat_ngram_size, min_new_tokens; then, if tokens are drawn, temperature, top_k, top_p,
 * min_p.
 */
#ifndef SNUG_GENERATE_SAMPLING_H
#define SNUG_GENERATE_SAMPLING_H

#include <stdbool.h>

#include "core/context.h"

enum { SNUG_ENDS_MOST = 16 };

struct snug_token_choice {
    bool draws;                          /* --do_sample; else the most probable token, the first of equal ones */
    double temperature, top_p, min_p;    /* 1, 1, 0: without effect */
    double repetition_penalty;           /* 1: without effect */
    int64_t top_k, no_repeat_ngram_size; /* 0: without effect */
    int64_t min_new_tokens, min_length;  /* none of the ends before so many tokens; with the prompt's */
    int32_t ends[SNUG_ENDS_MOST];        /* tokens that end an answer */
    int64_t end_count;
    uint64_t seed;
};

/* Scratch for one row of logits. */
struct snug_sampler {
    const struct snug_token_choice *how;
    int64_t classes;
    float *scores;  /* [classes] */
    int32_t *order; /* [classes] */
    uint8_t *seen;  /* [classes] */
};
/* how outlives the sampler. Closed in any case. */
snug_status snug_sampler_open(snug_context *ctx, const struct snug_token_choice *how, int64_t classes,
                              struct snug_sampler *out);
void snug_sampler_close(struct snug_sampler *sampler);

/* The tokens before the next one: of the prompt, and of the answer so far. */
struct snug_tokens_so_far {
    const int32_t *ids; /* the answer's are the last ones */
    int64_t count, answer;
};

/* What a step says of the next token: all logits, or the most probable tokens. */
struct snug_next_tokens {
    const float *logits;            /* [classes]; NULL: */
    const int32_t *ids;             /* [count] in ascending order */
    const float *log_probabilities; /* [count] the model's */
    int64_t count;
};

bool snug_sampling_ends(const struct snug_token_choice *how, int32_t id);
/* Applies the processors that do not depend on drawing to sampler->scores. */
void snug_sampler_process(struct snug_sampler *sampler, const struct snug_tokens_so_far *history);
/* The next token; of the most probable ones without those processors. row and token: the answer's number and the place
 *in it, which are the key of its random number. log_probability: of the model itself, whatever the processors make of
 *it. */
int32_t snug_sampler_choose(struct snug_sampler *sampler, const struct snug_next_tokens *next,
                            const struct snug_tokens_so_far *history, int64_t row, double *log_probability);
/* Applies temperature, top_k, top_p and min_p to the first `count` of sampler->scores; at least `least` tokens stay.
   The tokens that stay are sampler->order[0 …]; returns how many. */
int64_t snug_sampler_filter(struct snug_sampler *sampler, int64_t count, int64_t least);
/* The uniform random number of token number `token` of answer `row`, in [0, 1); of beams, which draw several for a
   token, number `number`. */
double snug_sampling_uniform(uint64_t seed, int64_t row, int64_t token, int64_t number);

#endif
