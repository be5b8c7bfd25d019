/* SPDX-License-Identifier: Apache-2.0 */
/* The log of the sum of exponentials. */
#ifndef SNUG_CORE_LOG_SUM_H
#define SNUG_CORE_LOG_SUM_H

#include <math.h>
#include <stdint.h>

/* Of count values, at least one. */
static inline double snug_log_sum(const float *values, int64_t count) {
    float most = values[0];
    for (int64_t i = 1; i < count; i++)
        if (values[i] > most) most = values[i];
    double sum = exp((double)values[0] - (double)most);
    for (int64_t i = 1; i < count; i++) sum += exp((double)values[i] - (double)most);
    return (double)most + log(sum);
}

#endif
