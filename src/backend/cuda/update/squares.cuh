/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of the squares of a chunk: the same bits for SQUARED_NORM, and for SUM_RANKS with chunks. Each of SQUARE_THREADS
   threads adds the squares of four elements at a time, SQUARE_THREADS * 4 apart, in double. */
#ifndef SNUG_BACKEND_CUDA_UPDATE_SQUARES_CUH
#define SNUG_BACKEND_CUDA_UPDATE_SQUARES_CUH

#include "backend/cuda/device.cuh"

enum { SQUARE_THREADS = 256, SQUARE_WARPS = SQUARE_THREADS / 32, BLOCK = SNUG_CUDA_BLOCK };
static_assert(BLOCK == SNUG_NORM_CHUNK, "the chunks of the contract");

/* sum plus the squares of v, of which `left` elements exist. A square of a float is exact. */
static __device__ double add_squares(double sum, float4 v, int64_t left) {
    if (left >= 4) return sum + ((double)v.x * v.x + (double)v.y * v.y + ((double)v.z * v.z + (double)v.w * v.w));
    if (left > 0) sum += (double)v.x * v.x;
    if (left > 1) sum += (double)v.y * v.y;
    if (left > 2) sum += (double)v.z * v.z;
    return sum;
}

/* Four elements from p on, of which `left` exist; zeros in place of others. */
static __device__ float4 load_four(const float *p, int64_t left, bool aligned) {
    if (left >= 4 && aligned) return *reinterpret_cast<const float4 *>(p);
    return make_float4(left > 0 ? p[0] : 0, left > 1 ? p[1] : 0, left > 2 ? p[2] : 0, left > 3 ? p[3] : 0);
}

#endif
