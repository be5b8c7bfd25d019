/* SPDX-License-Identifier: Apache-2.0 */
#include "core/normal.h"

#include <math.h>

union number {
    uint64_t bits;
    double value;
};

/* Conversion of an integer below 2^52, by instructions that every vector unit has. */
static inline double whole(uint64_t n) { return (union number){0x4330000000000000u | n}.value - 0x1p52; }

/* The logarithm of a positive normal number: 2^e m with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh((m - 1) / (m +
 * 1)). */
static inline double logarithm(double x) {
    static const double log_2 = 0.693147180559945309417;
    const uint64_t bits = (union number){.value = x}.bits, one = 0x3ff0000000000000u, root = 0x3fe6a09e667f3bcdu;
    const uint64_t biased = (bits + (one - root)) >> 52;
    const double m = (union number){bits - (biased << 52) + one}.value, s = (m - 1) / (m + 1), z = s * s;
    const double series = 1 + z * (1. / 3 + z * (1. / 5 + z * (1. / 7 + z * (1. / 9 + z * (1. / 11 + z * (1. / 13))))));
    return (whole(biased) - 1023) * log_2 + 2 * s * series;
}

/* Taylor series for x in (0, pi / 2). */
static inline double cosine(double x) {
    const double z = x * x;
    return 1 - z * (1. / 2 -
                    z * (1. / 24 -
                         z * (1. / 720 -
                              z * (1. / 40320 - z * (1. / 3628800 - z * (1. / 479001600 - z * (1. / 87178291200.)))))));
}

static inline double sine(double x) {
    const double z = x * x;
    return x * (1 - z * (1. / 6 -
                         z * (1. / 120 - z * (1. / 5040 - z * (1. / 362880 - z * (1. / 39916800 -
                                                                                  z * (1. / 6227020800. -
                                                                                       z * (1. / 1307674368000.))))))));
}

/* The first word gives the radius, the second one the angle: two bits for the signs of the quadrant, the others for the
 * angle within it. */
static inline void pair_of(float *values, const uint32_t *words, double deviation) {
    const double uniform = whole(2 * (uint64_t)words[0] + 1) * 0x1p-33;
    const double angle = whole(2 * (uint64_t)(words[1] & 0x3fffffffu) + 1) * (3.14159265358979323846 / 2 * 0x1p-31);
    const double radius = deviation * sqrt(-2 * logarithm(uniform));
    union number x = {.value = cosine(angle)}, y = {.value = sine(angle)};
    x.bits ^= (uint64_t)(words[1] & 0x80000000u) << 32;
    y.bits ^= (uint64_t)(words[1] & 0x40000000u) << 33;
    values[0] = (float)(radius * x.value);
    values[1] = (float)(radius * y.value);
}

void snug_normal(float *restrict values, const uint32_t *restrict words, int64_t count, double deviation) {
    for (int64_t i = 0; i < count / 2; i++) pair_of(values + 2 * i, words + 2 * i, deviation);
    if (count % 2) {
        float last[2];
        pair_of(last, words + count - 1, deviation);
        values[count - 1] = last[0];
    }
}
