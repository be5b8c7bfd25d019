/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine can do at best: beside which the rates of operations are read. */
#ifndef SNUG_PLAN_CEILINGS_H
#define SNUG_PLAN_CEILINGS_H

#include "plan/stages.h"

struct snug_ceilings {
    double flops;  /* a second, of a large square product in the type that a program computes in */
    double bytes;  /* a second, read and written, of a copy that no cache holds */
    int64_t side;  /* of that product's matrices */
    int64_t count; /* bytes that were copied at a time */
};
/* Takes a second or so, and meanwhile some 400 MiB of the host's memory, or 2 GiB of a device's. */
snug_status snug_ceilings_measure(snug_context *ctx, const struct snug_backend *backend, enum snug_dtype compute,
                                  int threads, struct snug_ceilings *out);

#endif
