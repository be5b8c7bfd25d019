/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From FLOPs and bytes to seconds: how fast this machine runs each kind of operation, measured once and cached, and
 * what a step takes at these rates.
 */
#ifndef SNUG_PLAN_RATES_H
#define SNUG_PLAN_RATES_H

#include "plan/stages.h"

/* A call takes call + flop * FLOPs + byte * bytes seconds; none of the three is negative, so that more work never takes
   less. */
struct snug_rate {
    enum snug_op_kind kind;
    int32_t types; /* which operands are stored in bf16: snug_operand_types() */
    bool dropout;  /* it drops */
    double call, flop, byte;
    int32_t samples; /* shapes that it was measured at */
    double error;    /* root mean square of the relative differences there */
};

struct snug_rates {
    snug_context *ctx;
    char cpu[96], isa[16]; /* as the kernel names the processor; "v4" and the like */
    int threads;
    struct snug_rate *items;
    size_t count, capacity;
};

/* Times the backend's own operations while they run in small programs, built by the same stages as any. Some seconds,
   and some 100 MiB meanwhile. */
snug_status snug_rates_measure(snug_context *ctx, const struct snug_backend *backend, int threads,
                               struct snug_rates *out);
/* Of the file that SNUG_RATES names; else of the cache folder; else measured, and kept there. */
snug_status snug_rates_open(snug_context *ctx, const struct snug_backend *backend, int threads, struct snug_rates *out);
snug_status snug_rates_read(snug_context *ctx, const char *path, struct snug_rates *out);
/* Keeps them in the cache folder for later runs; *path tells where, NULL where none can be written. */
snug_status snug_rates_keep(const struct snug_rates *rates, char **path);
void snug_rates_free(struct snug_rates *rates);
/* Empty rates of this machine. */
void snug_rates_init(snug_context *ctx, struct snug_rates *rates, const struct snug_backend *backend, int threads);
/* Adds what was seen of one kind: count shapes with their costs and seconds. */
snug_status snug_rates_fit(struct snug_rates *rates, struct snug_rate rate, const struct snug_cost costs[],
                           const double seconds[], size_t count);

/* 1 if op's first input is stored in bf16, + 2 if its second one is, + 4 if its first output is: what decides which
   loop of a backend runs. */
int32_t snug_operand_types(const struct snug_program *program, const struct snug_op *op);

/* What a step works on: its mean micro-batch. */
struct snug_load {
    double tokens, sequences, rows; /* rows: head rows */
    double pairs;                   /* sum of the squares of the sequences' lengths */
    double micro_batches;           /* of a step */
};
struct snug_estimate {
    double flops, bytes, seconds;
};
/* Of one run of op; HEAD operations: of one chunk of rows head rows. */
struct snug_estimate snug_estimate_op(const struct snug_rates *rates, const struct snug_program *program,
                                      const struct snug_op *op, const struct snug_load *load, double rows);
/* Of an optimizer step. rates may be NULL: seconds is then 0. */
struct snug_estimate snug_estimate_step(const struct snug_rates *rates, const struct snug_program *program,
                                        const struct snug_load *load);

#endif
