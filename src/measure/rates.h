/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of this machine for each kind of operation, measured once and cached. */
#ifndef SNUG_MEASURE_RATES_H
#define SNUG_MEASURE_RATES_H

#include <stdio.h>

#include "plan/estimate.h"

/* Times the backend's operations in small programs, built by the usual stages. Takes some seconds, and about 100 MiB,
 * or 4 GiB of a GPU's memory. gpu is the GPU's name, NULL for a CPU. */
snug_status snug_rates_measure(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                               struct snug_rates *out);
/* A short measurement on a CPU, of about half a second: of one run's types, dropout and optimizer alone, in few shapes.
 */
struct snug_rates_probe {
    enum snug_dtype weights;
    bool causal, masked_lm; /* the model is a decoder; an encoder has a loss over the vocabulary */
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
/* Adds those of a GPU's copies from and to host memory. Errors are ctx's. */
snug_status snug_rates_measure_copies(snug_context *ctx, const struct snug_backend *backend, int threads,
                                      struct snug_rates *rates);
/* Adds those of updates on the host with this number of threads, of weights of rows x 4096 elements. */
snug_status snug_rates_measure_host(struct snug_rates *rates, int64_t rows, int threads);
/* Reads the rates from the file named by SNUG_RATES; else from the cache folder; else measures them and stores them
 * there. */
snug_status snug_rates_open(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                            struct snug_rates *out);
/* As snug_rates_open(), without measuring: *out is empty if the rates are in no file. */
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

#endif
