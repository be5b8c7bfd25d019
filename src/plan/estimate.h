/* SPDX-License-Identifier: Apache-2.0 */
/* Converts FLOPs and bytes to seconds: the time of a step at the rates of a machine (measure/rates.h). */
#ifndef SNUG_PLAN_ESTIMATE_H
#define SNUG_PLAN_ESTIMATE_H

#include "plan/stages.h"

/* A call takes call + flop * FLOPs + byte * bytes seconds; none of the three constants is negative, so that more work
 * never takes less time. */
struct snug_rate {
    enum snug_op_kind kind;
    int32_t types; /* which operands are stored in 16 bits, and where it runs: snug_operand_types() */
    bool dropout;  /* it drops */
    bool file;     /* FETCH and STORE on a GPU, from and to the offload file instead of host memory */
    double call, flop, byte;
    int32_t samples; /* number of measured shapes */
    double error;    /* root mean square of the relative differences there */
};

/* The way from a rank to the others. A call of a collective takes call + rank * other ranks + byte * bytes that a rank
 * sends; byte 0: unknown, collectives then take no time. */
struct snug_link {
    double call, rank, byte;
};

struct snug_rates {
    snug_context *ctx;
    char device[96], isa[16]; /* the processor's name as the kernel reports it, or the GPU's; for example "v4" */
    int threads;              /* 0 on a GPU */
    bool overlaps;            /* copies from and to the backing store run beside operations */
    const char *scaled_from;  /* the GPU on which they were measured, if it is another one; NULL: device */
    struct snug_link link;    /* of several ranks; in no file */
    struct snug_rate *items;
    size_t count, capacity;
};

/* 1 if op's first input is stored in 16 bits, + 2 if its second one is, + 4 if its first output is, + 8 for TF32
 * contractions: a backend chooses its loop by these types. + SNUG_ON_HOST for an update on the host
 * (plan/place_updates.c), whose rate is of no other operation. + SNUG_ALONE for a norm or an update in a launch of its
 * own (plan/in_backward.c), which takes longer than its share of one for all. + SNUG_CAUSAL for attention to earlier
 * tokens alone, and + SNUG_POSITIONS for attention with position keys or queries, which have loops of their own. */
enum { SNUG_OPERAND_TYPES = 256, SNUG_ON_HOST = 16, SNUG_ALONE = 32, SNUG_CAUSAL = 64, SNUG_POSITIONS = 128 };
int32_t snug_operand_types(const struct snug_program *program, const struct snug_op *op);

/* The work of a step: its mean micro-batch. */
struct snug_load {
    double tokens, sequences, rows; /* rows: loss positions */
    double pairs;                   /* sum of the squares of the sequences' lengths; 0: all are equally long */
    double micro_batches;           /* of a step */
};
struct snug_estimate {
    double flops, bytes, seconds;
};
/* The estimate for one run of op; for HEAD operations one chunk of `rows` loss positions. */
struct snug_estimate snug_estimate_op(const struct snug_rates *rates, const struct snug_program *program,
                                      const struct snug_op *op, const struct snug_load *load, double rows);
/* Whether the rates have that of updates of this kind on the host. */
bool snug_rates_have_host(const struct snug_rates *rates, enum snug_op_kind kind);
/* The parts of a step in tables. The head's backward operations come after its loss. */
enum snug_side { SNUG_SIDE_FORWARD, SNUG_SIDE_BACKWARD, SNUG_SIDE_UPDATE, SNUG_SIDE_COUNT };
enum snug_side snug_side_of(const struct snug_op *op, bool after_loss);

/* One call of operation i with a batch of load. *after_loss is false before a program's first operation. */
struct snug_call_estimate {
    enum snug_side side;
    enum snug_op_group group;
    struct snug_estimate work;
};
struct snug_call_estimate snug_estimate_call(const struct snug_rates *rates, const struct snug_program *program,
                                             size_t i, const struct snug_load *load, bool *after_loss);

/* The estimate for an optimizer step, in total and by part. rates may be NULL: seconds are then 0. The FLOPs and bytes
 * of a step are summed only here. Where copies and collectives run beside operations, they take the seconds for which
 * operations wait for them, found by walking through the program's copies and waits; only that can fail: out of
 * memory, or SNUG_E_INPUT if the rates lack those of the offload file that the program's copies use, or of its updates
 * on the host. */
struct snug_step_estimate {
    struct snug_estimate total, parts[SNUG_SIDE_COUNT][SNUG_GROUP_COUNT];
    double collectives; /* seconds of all collectives, also of those beside operations */
};
snug_status snug_estimate_parts(const struct snug_rates *rates, const struct snug_program *program,
                                const struct snug_load *load, struct snug_step_estimate *out);

#endif
