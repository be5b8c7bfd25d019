/* SPDX-License-Identifier: Apache-2.0 */
/* What a generation is asked for: its settings, its prompts, and the sizes that follow. */
#ifndef SNUG_TRAIN_GENERATION_H
#define SNUG_TRAIN_GENERATION_H

#include "backend/backend.h"
#include "generate/generate.h"
#include "model/config.h"
#include "train/prompts.h"

struct snug_generation_setup {
    struct snug_generation how;
    json_t *stops; /* texts that end an answer; NULL: none */
    struct snug_prompts prompts;
    int64_t groups;          /* prompts that are answered at a time */
    int64_t asked_groups;    /* before --fit chose fewer, … */
    int64_t asked_beams;     /* … and fewer beams */
    int64_t rows;            /* with their beams */
    int64_t tokens;          /* of a step */
    int64_t prompt, longest; /* tokens of the longest prompt; and with its answer */
    int64_t limit;           /* tokens of a prompt and its answer; INT64_MAX: none is given, else */
    const char *limited_by;  /* what gives it */
    int64_t pages;           /* of the cache */
    int32_t top;             /* tokens that TOP gives (program/op.h); 0: the host reads all logits */
};

/* Settings are those of the arguments, else of generation_config.json in folder, else transformers' defaults; end
   tokens also those of config.json and the tokenizer, if that file names none. reads: the prompts of the arguments;
   else they come later, one at a time, or for a plan alone as many as are allowed, and have max_seq_length tokens with
   their answers. Freed in any case with snug_generation_free(). */
snug_status snug_generation_open(snug_args *args, const struct snug_config *config,
                                 const struct snug_tokenizer *tokenizer, const char *folder,
                                 const struct snug_backend *backend, bool reads, struct snug_generation_setup *out);
/* Answers so many prompts at a time, with so many beams; the plan is to be built again. */
void snug_generation_resize(struct snug_generation_setup *setup, const struct snug_config *config,
                            const struct snug_backend *backend, int64_t groups, int64_t beams);
/* Pages of the cache for so many prompts at a time, of so many beams. */
int64_t snug_generation_pages(const struct snug_generation_setup *setup, int64_t groups, int64_t beams);
/* Whether one of the stop strings ends with the last token of an answer, special tokens counted as text; as in
   transformers, it may begin in the prompt, whose last `before` tokens are before ids. Also if they cannot be decoded.
   scratch: two texts. */
bool snug_generation_stops(snug_context *ctx, const struct snug_generation_setup *setup,
                           const struct snug_tokenizer *tokenizer, const int32_t *ids, int64_t count, int64_t before,
                           struct snug_text *scratch);
void snug_generation_free(struct snug_generation_setup *setup);

#endif
