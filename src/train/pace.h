/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a training takes far longer than planned, which is reported once, with the likely cause. */
#ifndef SNUG_TRAIN_PACE_H
#define SNUG_TRAIN_PACE_H

#include "core/context.h"
#include "train/duration.h"
#include "train/machine_use.h"

struct snug_pace_plan {
    double step, tokens; /* planned seconds, and tokens on average, of a step */
    enum snug_seconds_source source;
    int threads;
    const char *disk; /* the folder of the offload file; NULL: none */
    bool gpu;
};

/* Steps are judged in windows of half a minute or more. */
struct snug_pace {
    struct snug_pace_plan plan;
    bool told;
    double began, last; /* of the window; after the last step */
    double expected;    /* planned seconds of the window's steps */
    int64_t steps, slow;
    double copied;   /* seconds of copies when `before` was read */
    bool has_before; /* the window is older than a second: short runs read nothing */
    struct snug_machine before;
};

/* now: seconds of training, without evaluating and saving. */
void snug_pace_begin(struct snug_pace *pace, const struct snug_pace_plan *plan, double now);
/* After each step: its tokens, the seconds that operations have waited for offloaded tensors so far, and the steps that
   are left. */
void snug_pace_step(struct snug_pace *pace, snug_context *ctx, double now, double tokens, double copied, int64_t left);

#endif
