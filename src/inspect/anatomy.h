/* SPDX-License-Identifier: Apache-2.0 */
/* Results of the experiment of "Model training anatomy": measured in anatomy.c, printed by report. */
#ifndef SNUG_INSPECT_ANATOMY_H
#define SNUG_INSPECT_ANATOMY_H

#include "measure/peak_rates.h"
#include "plan/estimate.h"
#include "train/device.h"

/* Work and time of some operations, of one step. */
struct snug_anatomy_part {
    double seconds, flops, bytes;
    double calls;
};

/* The copies of one direction between the arena and the backing store. */
struct snug_anatomy_copies {
    double seconds, bytes, calls;
    double waited; /* seconds for which operations waited for them; the others were overlapped with operations */
};

struct snug_anatomy {
    snug_context *ctx;
    char place[160]; /* the GPU, or the processor and its threads */
    bool device;
    bool asked;                 /* for so many steps */
    struct snug_device_use use; /* of the GPU */
    char data[256];
    const char *family; /* of the model, in words */
    double parameters;
    int64_t layers, hidden, batch, accumulation, longest;
    enum snug_dtype compute, weights;
    bool tf32;
    int64_t epoch_steps; /* of the data; steps may be fewer */
    int64_t steps, samples, tokens;
    double seconds, steady_seconds; /* of all steps; per step, after the first few */
    int64_t steady_steps;
    double last_loss;

    /* Bytes: planned by class, and measured at several times. -1: unknown. */
    int64_t planned[SNUG_MEMORY_CLASS_COUNT], planned_total;
    int64_t before;   /* GPU: of other processes; CPU: of this process before anything was read */
    int64_t opened;   /* GPU: with the context and the libraries */
    int64_t measured; /* at the end: compared with the total */

    /* With several ranks; all figures but samples, tokens and loss are rank 0's. */
    int ranks, zero_stage;
    double exposed; /* seconds of a step's communication in which nothing else runs */

    int64_t timed_steps;
    struct snug_anatomy_part parts[SNUG_SIDE_COUNT][SNUG_GROUP_COUNT];
    struct snug_anatomy_part kinds[SNUG_OP_COUNT]; /* FETCH and STORE: the time of starting copies */
    struct snug_anatomy_copies copies[2];          /* from the backing store, and to it */
    struct snug_peak_rates peaks;
};

#endif
