/* SPDX-License-Identifier: Apache-2.0 */
/* A training on several ranks: what they must have in common, and what they report to each other in a step. */
#ifndef SNUG_TRAIN_PARALLEL_H
#define SNUG_TRAIN_PARALLEL_H

#include "train/job.h"

/* Before the first step: SNUG_E_USAGE names the first rank whose version, arguments, data, step or model differ from
 * those of rank 0. */
snug_status snug_parallel_compare(const struct snug_job *job, const struct snug_memory *memory, int64_t step);

/* Bytes that a rank sends in a step's collective operations, and as many that it receives, on average over the ranks;
 * micro_batches: of each; without ranks 0. */
int64_t snug_parallel_bytes(const struct snug_program *program, int64_t micro_batches);

/* What every rank reports in a step, in memory of snug_parallel_report_doubles(): a report for each rank. */
struct snug_report {
    double stop;                                    /* not 0: the rank was asked to stop */
    double micro_batches, samples, tokens;          /* the rank's own */
    double pairs, results[SNUG_PREFERENCE_RESULTS]; /* of preferences: sums over its pairs */
    double losses[];                                /* of its micro-batches */
};
/* Doubles of one rank's report. */
int64_t snug_parallel_report_doubles(const struct snug_loader_options *options);
static inline struct snug_report *snug_report_of(double *reports, int64_t doubles, int rank) {
    return (struct snug_report *)(reports + rank * doubles);
}

#endif
