/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/similarity.h"

#include <math.h>
#include <string.h>

#include "program/op.h"

enum snug_similarity snug_similarity_of(const char *name) {
    static const char *const names[] = {"cosine", "dot", "euclidean", "manhattan"};
    int i = SNUG_SIMILARITY_COUNT - 1;
    while (name && i > 0 && strcmp(name, names[i]) != 0) i--;
    return name ? (enum snug_similarity)i : SNUG_SIMILARITY_COSINE;
}

double snug_dot(const float *a, const float *b, int64_t size) {
    double sum = 0;
    for (int64_t i = 0; i < size; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

double snug_cosine(const float *a, const float *b, int64_t size) {
    const double least = (double)SNUG_NORMALIZE_LEAST;
    return snug_dot(a, b, size) / fmax(sqrt(snug_dot(a, a, size)), least) / fmax(sqrt(snug_dot(b, b, size)), least);
}

double snug_similarity(enum snug_similarity function, const float *a, const float *b, int64_t size) {
    double squares = 0, sum = 0;
    if (function == SNUG_SIMILARITY_COSINE) return snug_cosine(a, b, size);
    if (function == SNUG_SIMILARITY_DOT) return snug_dot(a, b, size);
    for (int64_t i = 0; i < size; i++) {
        const double difference = (double)a[i] - (double)b[i];
        squares += difference * difference;
        sum += fabs(difference);
    }
    return function == SNUG_SIMILARITY_EUCLIDEAN ? -sqrt(squares) : -sum;
}

void snug_scale_to_unit(float *vector, int64_t size) {
    const double length = fmax(sqrt(snug_dot(vector, vector, size)), (double)SNUG_NORMALIZE_LEAST);
    for (int64_t i = 0; i < size; i++) vector[i] = (float)((double)vector[i] / length);
}

/* ---- many pairs -------------------------------------------------------------------------------------------------- */

/* Partial sums, which compilers keep in vector registers without changing the order of additions. */
enum { LANES = 16 };

static double total(const float lanes[LANES]) {
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += (double)lanes[i];
    return sum;
}

static double fast_dot(const float *a, const float *b, int64_t size) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += a[i + k] * b[i + k];
    for (int k = 0; i < size; i++, k++) lanes[k] += a[i] * b[i];
    return total(lanes);
}

static double fast_squares(const float *a, const float *b, int64_t size) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += (a[i + k] - b[i + k]) * (a[i + k] - b[i + k]);
    for (int k = 0; i < size; i++, k++) lanes[k] += (a[i] - b[i]) * (a[i] - b[i]);
    return total(lanes);
}

static double fast_distances(const float *a, const float *b, int64_t size) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += fabsf(a[i + k] - b[i + k]);
    for (int k = 0; i < size; i++, k++) lanes[k] += fabsf(a[i] - b[i]);
    return total(lanes);
}

float snug_similarity_fast(enum snug_similarity function, const float *a, const float *b, int64_t size) {
    if (function == SNUG_SIMILARITY_EUCLIDEAN) return (float)-sqrt(fast_squares(a, b, size));
    if (function == SNUG_SIMILARITY_MANHATTAN) return (float)-fast_distances(a, b, size);
    return (float)fast_dot(a, b, size);
}
