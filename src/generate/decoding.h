/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding: sequences that grow, token by token, and whose keys and values are in the pages of a cache. A step takes
 * new tokens of some sequences, runs the program on them, and gives the logits of each sequence's next token, or the
 * most probable tokens of the program's top_count. Sequences are numbers; there may be twice as many as a step has
 * rows, so that beams can be copied before old ones end. A step allocates nothing.
 *
 * On a device, where each step gives one token of a row, the next one may be started with these tokens before the host
 * has read them: snug_decoding_follow().
 */
#ifndef SNUG_GENERATE_DECODING_H
#define SNUG_GENERATE_DECODING_H

#include "data/batch.h"
#include "generate/pages.h"
#include "generate/sampling.h"
#include "run/run.h"

struct snug_decoded {      /* a sequence */
    int32_t *pages;        /* [pages_each] */
    int64_t length, count; /* tokens in the cache; pages */
    int64_t logits[2];     /* row of a step's logits, of the last steps of even and odd number; -1: none */
    bool used;
};

struct snug_token_steps {
    snug_context *ctx;
    const struct snug_backend *backend;
    struct snug_run *run;
    struct snug_batch batch;                   /* the next step's */
    int64_t rows, tokens, pages_each, longest; /* at most: sequences, tokens of a step, pages and tokens of one */
    int32_t first_position;
    struct snug_decoded *sequences; /* [2 * rows] */
    struct snug_pages pages;
    const struct snug_block *arena;
    int64_t started, done;        /* steps: at most two are started and not done */
    int64_t rows_of[2];           /* of logits, of the last steps of even and odd number */
    struct snug_next_tokens next; /* of the last step that is done: of row 0, the others follow */
    uint8_t *results[2];          /* where they are copied to from a device */
    struct snug_timestamps *copied[2];
    int64_t classes;
};

/* Bytes of the host's block for its batches and results. The program has its capacities, and cache_pages pages. */
int64_t snug_decoding_bytes(const struct snug_program *program, const struct snug_backend *backend);
/* run is that of the program in arena, and memory has snug_decoding_bytes(). Closed in any case. */
snug_status snug_decoding_open(snug_context *ctx, const struct snug_backend *backend, struct snug_run *run,
                               const struct snug_block *arena, void *memory, int32_t first_position,
                               struct snug_token_steps *out);
void snug_decoding_close(struct snug_token_steps *d);

/* A new, empty sequence; -1: all are used. */
int64_t snug_decoding_begin(struct snug_token_steps *d);
/* The sequence ends; its pages are free if no other one has them. */
void snug_decoding_end(struct snug_token_steps *d, int64_t sequence);
/* Makes `to`, a used sequence whose contents are lost, a copy of `from`, with which it shares its pages. */
void snug_decoding_copy(struct snug_token_steps *d, int64_t to, int64_t from);
/* Shortens a sequence to its first tokens. */
void snug_decoding_cut(struct snug_token_steps *d, int64_t sequence, int64_t length);

/* The most tokens of a step in which a row's results do not depend on the others; 0: backend.h. */
int64_t snug_decoding_independent(const struct snug_token_steps *d);
/* How many more tokens the next step takes of a new prompt that has `left` tokens left: at most so many, and fewer
   where other rows of the step could change its results. */
int64_t snug_decoding_room(const struct snug_token_steps *d, int64_t left);
/* Adds tokens of a sequence to the next step, at most once each step; wants: its logits are needed. SNUG_E_MEMORY if
   the cache has no page left. */
snug_status snug_decoding_add(struct snug_token_steps *d, int64_t sequence, const int32_t *ids, int64_t count,
                              bool wants);
/* Runs the step, if it has tokens: starts it, and waits for it. */
snug_status snug_decoding_step(struct snug_token_steps *d);
/* Whether the next step may be started before the last one is done. */
bool snug_decoding_runs_ahead(const struct snug_token_steps *d);
snug_status snug_decoding_start(struct snug_token_steps *d);
/* Adds the token that follows a sequence, which wanted it in the last step that was started and is not done. */
snug_status snug_decoding_follow(struct snug_token_steps *d, int64_t sequence);
/* Waits for the first step that is not done. */
snug_status snug_decoding_finish(struct snug_token_steps *d);
/* After a failure: waits for steps that were started, and drops what was added to the next one. */
void snug_decoding_drop(struct snug_token_steps *d);
/* What follows a sequence that wanted its logits in the last step that is done, until the next one is done. */
struct snug_next_tokens snug_decoding_next(const struct snug_token_steps *d, int64_t sequence);

#endif
