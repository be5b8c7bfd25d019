/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts FLOPs and bytes to seconds: the speed of this machine for each kind of operation, measured once and cached,
 * and the time of a step at these rates.
 */
#ifndef SNUG_PLAN_RATES_H
#define SNUG_PLAN_RATES_H

#include <stdio.h>

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

/* Times the backend's operations in small programs, built by the usual stages. Takes some seconds, and about 100 MiB,
 * or 4 GiB of a GPU's memory. gpu is the GPU's name, NULL for a CPU. */
snug_status snug_rates_measure(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                               struct snug_rates *out);
/* A short measurement on a CPU, of about half a second: of one run's types, dropout and optimizer alone, in few shapes.
 */
struct snug_rates_probe {
    enum snug_dtype weights;
    bool masked_lm;
    const struct snug_optimizer_info *optimizer;
    const char *offload_dir; /* where copies of offloaded tensors are measured */
    int64_t bytes;           /* the largest arena; *out is empty where no shape has a smaller one */
};
snug_status snug_rates_probe(snug_context *ctx, const struct snug_backend *backend, int threads,
                             const struct snug_program *program, const struct snug_rates_probe *probe,
                             struct snug_rates *out);
/* Rates of a CPU that were not measured, for runs that take less time than a measurement. */
snug_status snug_rates_assume(snug_context *ctx, const struct snug_backend *backend, int threads,
                              struct snug_rates *out);
/* Adds those of copies from and to a file in offload_dir; NULL: in the cache folder, else that of temporary files.
 * Errors are ctx's. */
snug_status snug_rates_measure_disk(snug_context *ctx, const char *offload_dir, struct snug_rates *rates);
/* Adds those of updates on the host with this number of threads, of weights of rows x 4096 elements. */
snug_status snug_rates_measure_host(struct snug_rates *rates, int64_t rows, int threads);
/* Reads the rates from the file named by SNUG_RATES; else from the cache folder; else measures them and stores them
 * there. */
snug_status snug_rates_open(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                            struct snug_rates *out);
/* The same without measuring: *out is empty if the rates are in no file. */
snug_status snug_rates_known(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                             struct snug_rates *out);
snug_status snug_rates_read(snug_context *ctx, const char *path, struct snug_rates *out);
/* Stores them in the cache folder for later runs; *path is the file, NULL if it cannot be written. */
snug_status snug_rates_keep(const struct snug_rates *rates, char **path);
void snug_rates_free(struct snug_rates *rates);
/* The processor's name in a file like Linux's /proc/cpuinfo, which on ARM has numbers instead; "unknown" if it has
 * neither. */
void snug_cpu_name(FILE *cpuinfo, char *name, size_t size);
/* Empty rates of this machine or GPU. */
void snug_rates_init(snug_context *ctx, struct snug_rates *rates, const struct snug_backend *backend, const char *gpu,
                     int threads);
/* A measurement: this number of calls, their cost and their seconds. */
struct snug_rate_sample {
    double calls, seconds;
    struct snug_cost cost;
};
snug_status snug_rates_add(struct snug_rates *rates, struct snug_rate rate);
/* Adds the rate of one kind, which count measurements determine. */
snug_status snug_rates_fit(struct snug_rates *rates, struct snug_rate rate, const struct snug_rate_sample samples[],
                           size_t count);

/* 1 if op's first input is stored in 16 bits, + 2 if its second one is, + 4 if its first output is, + 8 for TF32
 * contractions: a backend chooses its loop by these types. + SNUG_ON_HOST for an update on the host
 * (plan/host_update.c), whose rate is of no other operation. + SNUG_ALONE for a norm or an update in a launch of its
 * own (plan/in_backward.c), which takes longer than its share of one for all. */
enum { SNUG_OPERAND_TYPES = 64, SNUG_ON_HOST = 16, SNUG_ALONE = 32 };
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
