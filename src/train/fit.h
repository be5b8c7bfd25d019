/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The savings and the cost of each method, and the search for the cheapest mix of methods that fits a limit.
 *
 * A method is a row of the table in fit.c: the arguments that enable it, as a user writes them. Each mix is planned
 * with these arguments and all stages, so the search sees exactly what the run does.
 */
#ifndef SNUG_TRAIN_FIT_H
#define SNUG_TRAIN_FIT_H

#include "train/limits.h"

/* The kernel's figures for the process and its data each vary by up to a MiB from run to run: a mix is chosen only if
   it fits with this margin, so that the same arguments fit again. */
#define SNUG_FIT_MARGIN (2 << 20)

/* A mix of methods, and its plan's figures. */
struct snug_priced {
    char name[48];   /* of a single method, human-readable */
    char flags[384]; /* the arguments to add, as on the command line; "" for the requested plan */
    bool approximate;
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT], total;
    int64_t backing;           /* host memory of the backing store */
    struct snug_estimate work; /* of an optimizer step */
};

/* Trainings of a model that are compared, from the one that trains most (trainings.h). */
enum snug_training { SNUG_TRAINING_FULL, SNUG_TRAINING_LORA, SNUG_TRAINING_QLORA, SNUG_TRAINING_COUNT };

struct snug_fit {
    int64_t limit;
    bool fits;                        /* otherwise chosen is the smallest mix */
    bool applied;                     /* the run is planned with chosen */
    struct snug_priced asked, chosen; /* equal if the requested plan fits */
    struct snug_priced rounding;      /* a mix that fits, rounds, and is much faster than the exact choice; or 0 s */
    int64_t planned;                  /* mixes that were built and placed to find it */
    int64_t mixes;                    /* all possible mixes */
    /* Other trainings, which are never chosen, and which of them the run is: snug_trainings_price(). */
    struct snug_priced trainings[SNUG_TRAINING_COUNT];
    enum snug_training training;
};

/* Searches the cheapest mix of at most limit bytes, beginning with the requested plan. Mixes with exactly the same
   results come first; approximate mixes (fewest such methods first) only if none of them fits. Arguments that the user
 * set do not change.
 */
snug_status snug_fit_search(const struct snug_setup *setup, const struct snug_limits *limits,
                            const struct snug_run_plan *asked, const struct snug_rates *rates, int64_t limit,
                            struct snug_fit *out);
/* The requested plan, then each method alone; *rows is freed by the caller. */
snug_status snug_fit_table(const struct snug_setup *setup, const struct snug_limits *limits,
                           const struct snug_run_plan *asked, const struct snug_rates *rates,
                           struct snug_priced **table, size_t *count);
/* From how many ranks on the run fits `limit` bytes of each, by ZeRO stage; 0: not with up to SNUG_FIT_RANKS_MOST. */
enum { SNUG_FIT_RANKS_MOST = 1024, SNUG_ZERO_STAGES = 4 };
snug_status snug_fit_ranks(const struct snug_setup *setup, const struct snug_limits *limits, int64_t limit,
                           int least[SNUG_ZERO_STAGES]);
/* A copy of setup's arguments with which another plan of the same run can be built; snug_args_free(). */
snug_status snug_fit_args(snug_context *ctx, const struct snug_setup *setup, struct snug_args **out);
/* Sets the mix's arguments in args, as if the user had set them. */
snug_status snug_fit_give(struct snug_args *args, const struct snug_priced *mix);
/* Sets the bytes and the work of a mix, whose plan is placed, or has its least bytes. */
snug_status snug_fit_measure(const struct snug_limits *limits, const struct snug_rates *rates,
                             const struct snug_run_plan *plan, struct snug_priced *out);
/* The result in one sentence; freed with free(). */
snug_status snug_fit_sentence(snug_context *ctx, const struct snug_fit *fit, char **text);

#endif
