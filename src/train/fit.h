/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each method would save here and at what price, and the search for the cheapest mix of them that fits a limit.
 *
 * A method is a row of the table in fit.c: the arguments that ask for it, as a user writes them. Each mix is planned by
 * giving these arguments and running all stages, so that what the search knows of a method is what the run does.
 */
#ifndef SNUG_TRAIN_FIT_H
#define SNUG_TRAIN_FIT_H

#include "train/job.h"

/* The kernel's figures of the process and its data vary by as much from run to run, each by up to a MiB: a mix is
   chosen only if it fits beside that, so that the same arguments given again fit too. */
#define SNUG_FIT_MARGIN (2 << 20)

/* A mix of methods, and what it comes to. */
struct snug_priced {
    char name[48];   /* of a single method, for people */
    char flags[256]; /* the arguments to add, as on the command line; "" for the plan as asked */
    bool approximate;
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT], total;
    struct snug_estimate work; /* of an optimizer step */
};

struct snug_fit {
    int64_t limit;
    bool fits;                        /* otherwise chosen is the smallest there is */
    bool applied;                     /* the job is planned with chosen */
    struct snug_priced asked, chosen; /* equal where what was asked fits */
    int64_t planned;                  /* mixes that were built and placed to find it */
    int64_t mixes;                    /* that there are */
};

/* Looks for the cheapest mix of at most limit bytes. Mixes whose results are those of the plan as asked come first;
   those that round (fewest such methods first) only where none of them fits. What the user set stays. */
snug_status snug_fit_search(const struct snug_job *job, const struct snug_rates *rates, int64_t limit,
                            struct snug_fit *out);
/* The plan as asked, then each method alone; *rows is freed by the caller. */
snug_status snug_fit_table(const struct snug_job *job, const struct snug_rates *rates, struct snug_priced **table,
                           size_t *count);
/* Gives the mix's arguments to args, as if the user had. */
snug_status snug_fit_give(struct snug_args *args, const struct snug_priced *mix);
/* What was found, in one sentence; freed with free(). */
snug_status snug_fit_sentence(snug_context *ctx, const struct snug_fit *fit, char **text);

#endif
