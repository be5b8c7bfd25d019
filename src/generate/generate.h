/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to prompts: as many at a time as the program has rows for; the place of one that is complete is taken by the
   next prompt. On a CPU an answer does not depend on the others (decoding.h). */
#ifndef SNUG_GENERATE_GENERATE_H
#define SNUG_GENERATE_GENERATE_H

#include "generate/beams.h"
#include "generate/decoding.h"

/* What is asked for. */
struct snug_generation {
    struct snug_token_choice sampling;
    struct snug_beam_search search; /* beams 1: none */
    int64_t returned;               /* answers to each prompt */
    int64_t max_new_tokens;
};

struct snug_generation_prompt {
    const int32_t *ids; /* until the answer */
    int64_t count;      /* at least 1, fewer than the program's longest */
    int64_t number;
    int64_t sequence; /* that has the first tokens in its cache, and is kept afterwards; -1: none */
};

enum snug_stop { SNUG_STOP_LENGTH, SNUG_STOP_END, SNUG_STOP_CALLER };

struct snug_generated {
    int64_t prompt, sequence;       /* number of the prompt; of the answer to it */
    const int32_t *ids;             /* with the token that ended it */
    const float *log_probabilities; /* of the tokens, by the model itself */
    int64_t count, before;          /* before: tokens of the prompt, which are before ids */
    double score; /* of beam search: the sum of log-probabilities, over a power of the length; else 0 */
    enum snug_stop stop;
};

struct snug_generation_calls {
    void *user;
    /* SNUG_END: there are no more. */
    snug_status (*next)(void *user, struct snug_generation_prompt *out);
    /* A new token of an answer, without beams; *stop: it is the last one. May be NULL. */
    snug_status (*token)(void *user, const struct snug_generated *so_far, bool *stop);
    /* Of beams: whether an answer ends there; before ids are `before` tokens of the prompt. May be NULL. */
    bool (*stops)(void *user, const int32_t *ids, int64_t count, int64_t before);
    snug_status (*answer)(void *user, const struct snug_generated *answer);
};

struct snug_generator_row; /* a prompt and its answer */

/* How many of the most probable tokens a step must give (the program's top_count), of `classes`; 0: all logits, because
   a processor may change any of them, or any token may be drawn. device: logits are on a device, from which more than
   that would be copied. Greedily the most probable token is found by the program in any case. */
int32_t snug_generating_top(const struct snug_generation *how, bool device, int64_t classes);

/* Memory of the loop, which then allocates nothing. */
struct snug_generating {
    struct snug_token_steps *decoding;
    const struct snug_generation *how;
    const struct snug_generation_calls *calls;
    struct snug_sampler sampler;
    float *sums; /* [beams * classes] scratch, if beams draw */
    struct snug_generator_row *rows;
    int64_t row_count;
    bool runs_ahead;                      /* a step is started before the host has read the tokens of the one before */
    struct snug_generation_prompt prompt; /* to which more answers are wanted */
    int64_t more;                         /* how many */
    bool ended;                           /* there are no more prompts */
};
/* Pages of the cache that `groups` prompts need at a time, of at most `prompt` tokens, with answers of at most `answer`
   tokens, of `beams` beams; both together have at most `longest` tokens. */
int64_t snug_generating_pages(int64_t groups, int64_t beams, int64_t prompt, int64_t longest, int64_t answer);
/* Closed in any case. */
snug_status snug_generating_open(struct snug_token_steps *decoding, const struct snug_generation *how,
                                 struct snug_generating *out);
void snug_generating_close(struct snug_generating *generating);
/* Answers all prompts. After a failure, or if a call returned another status than SNUG_OK, all sequences but kept ones
   have ended. */
snug_status snug_generating_run(struct snug_generating *generating, const struct snug_generation_calls *calls);

#endif
