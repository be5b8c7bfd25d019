/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons, as they are reported to libFuzzer. */
#include "fuzz_main.h"

/* libFuzzer uses comparisons of one and two bytes only with -use_value_profile=1. Of the others it keeps the last 32 of
   thousands: one in 16 is enough. Otherwise they take a third of the time. */
#define SKIP(name, type)                                                                                               \
    WRAP(void, __sanitizer_cov_trace_##name, (type a, type b)) { (void)a, (void)b; }
#define SAMPLE(name, type)                                                                                             \
    WRAP(void, __sanitizer_cov_trace_##name, (type a, type b)) {                                                       \
        static unsigned count;                                                                                         \
        if (count++ % 16 == 0) __real___sanitizer_cov_trace_##name(a, b);                                              \
    }
SKIP(cmp1, uint8_t)
SKIP(cmp2, uint16_t)
SKIP(const_cmp1, uint8_t)
SKIP(const_cmp2, uint16_t)
SAMPLE(cmp4, uint32_t)
SAMPLE(cmp8, uint64_t)
SAMPLE(const_cmp4, uint32_t)
SAMPLE(const_cmp8, uint64_t)
