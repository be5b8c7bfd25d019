/* SPDX-License-Identifier: Apache-2.0 */
/* Peak rates of this machine (its roofline), with which the rates of operations are compared. */
#ifndef SNUG_MEASURE_PEAK_RATES_H
#define SNUG_MEASURE_PEAK_RATES_H

#include "plan/stages.h"

struct snug_peak_rates {
    double flops;  /* per second, of a large square matmul in the program's compute type */
    double bytes;  /* per second, read and written, of a copy that is larger than all caches */
    int64_t side;  /* rows and columns of that matmul */
    int64_t count; /* bytes of that copy */
};
/* Takes about a second, and about 400 MiB of host memory, or 2 GiB of device memory. */
snug_status snug_peak_rates_measure(snug_context *ctx, const struct snug_backend *backend, enum snug_dtype compute,
                                    int threads, struct snug_peak_rates *out);

#endif
