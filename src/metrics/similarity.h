/* SPDX-License-Identifier: Apache-2.0 */
/* The similarity of two vectors, as sentence-transformers' functions: the larger, the more alike. */
#ifndef SNUG_METRICS_SIMILARITY_H
#define SNUG_METRICS_SIMILARITY_H

#include <stdint.h>

enum snug_similarity {
    SNUG_SIMILARITY_COSINE,
    SNUG_SIMILARITY_DOT,
    SNUG_SIMILARITY_EUCLIDEAN,
    SNUG_SIMILARITY_MANHATTAN,
    SNUG_SIMILARITY_COUNT
};
/* By the name of similarity_fn_name; NULL and others are the cosine. */
enum snug_similarity snug_similarity_of(const char *name);

/* In fp64. */
double snug_dot(const float *a, const float *b, int64_t size);
double snug_cosine(const float *a, const float *b, int64_t size);
double snug_similarity(enum snug_similarity function, const float *a, const float *b, int64_t size);
/* Scales a vector to length 1, as torch's normalize(). */
void snug_scale_to_unit(float *vector, int64_t size);
/* Of many pairs, in fp32; the cosine is of normalized vectors. The same bits on every machine. */
float snug_similarity_fast(enum snug_similarity function, const float *a, const float *b, int64_t size);

#endif
