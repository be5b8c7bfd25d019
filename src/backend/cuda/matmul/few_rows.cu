/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINEAR of up to 8 rows in 16 bits, in generation: the time is that of reading w once. A block has 16 rows of w, of
 * which each of its warps multiplies other channels; all loads of up to 2,048 channels begin before the first is used.
 * The rows of w are a tensor core's 16 rows and those of x its 8 columns: a lane loads 8 channels in a row of both,
 * since their order in a sum does not matter. The warps' sums are added in their order.
 */
#include "backend/cuda/mma.cuh"

extern "C" {
#include "backend/cuda/matmul/matmul.h"
}

enum { WARPS = 8, THREADS = 32 * WARPS, AHEAD = 8, ROWS = 16, COLUMNS = 8, CHANNELS = 32 };

struct few_rows {
    const void *x, *w, *addend;
    const float *bias;
    void *y;
    int64_t n, k, ldx; /* elements from a row of x to the next one */
    int m;
    bool early; /* w may be read before earlier operations are done */
};

template <typename T, typename Y>
static __global__ void __launch_bounds__(THREADS, 2) few_rows_kernel(const struct few_rows a) {
    __shared__ float sums[WARPS][COLUMNS][ROWS + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, channel = lane % 4 * 8;
    const int64_t first = (int64_t)blockIdx.x * ROWS;
    const T *low = (const T *)a.w + (first + row) * a.k + channel, *high = low + 8 * a.k;
    const T *x = (const T *)a.x + row * a.ldx + channel;
    const bool has_low = first + row < a.n, has_high = first + row + 8 < a.n, has_x = row < a.m;
    float c[4] = {};
    start_next();
    if (!a.early) wait_before();
    for (int64_t k0 = warp * CHANNELS; k0 < a.k; k0 += AHEAD * WARPS * CHANNELS) {
        uint4 w0[AHEAD], w1[AHEAD], v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t k = k0 + u * WARPS * CHANNELS;
            const bool there = k + channel < a.k;
            const uint4 zero = {0, 0, 0, 0};
            w0[u] = there && has_low ? *(const uint4 *)(low + k) : zero;
            w1[u] = there && has_high ? *(const uint4 *)(high + k) : zero;
        }
        wait_before();
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t k = k0 + u * WARPS * CHANNELS;
            v[u] = k + channel < a.k && has_x ? *(const uint4 *)(x + k) : uint4{0, 0, 0, 0};
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const uint32_t before[4] = {w0[u].x, w1[u].x, w0[u].y, w1[u].y};
            const uint32_t after[4] = {w0[u].z, w1[u].z, w0[u].w, w1[u].w};
            mma<T>(c, before, v[u].x, v[u].y);
            mma<T>(c, after, v[u].z, v[u].w);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sums[warp][lane % 4 * 2 + i % 2][row + i / 2 * 8] = c[i];
    wait_before(); /* of warps without channels */
    __syncthreads();
    const int out = threadIdx.x % ROWS, of = threadIdx.x / ROWS;
    if (of >= a.m || first + out >= a.n) return;
    float sum = a.bias ? a.bias[first + out] : 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) sum += sums[i][of][out];
    const int64_t at = of * a.n + first + out;
    if (a.addend) sum += to_float(((const Y *)a.addend)[at]);
    ((Y *)a.y)[at] = from_float<Y>(sum);
}

/* Programs that generate alone: other results depend on the batch's size by cuBLASLt's choice of algorithms only. */
extern "C" bool snug_cuda_takes_few_rows(const struct snug_run *run, const struct snug_op *op,
                                         const struct snug_cuda_matmul *p) {
    const bool low = p->type != SNUG_F32 && has_matmuls(snug_cuda_of(run), p->type);
    const bool aligned = p->k % 8 == 0 && p->a_stride % 8 == 0 && (uintptr_t)p->a % 16 == 0;
    return op->kind == SNUG_OP_LINEAR && run->program->cache_pages && p->m <= COLUMNS && low && p->b_type == p->type &&
           p->transpose_b && aligned;
}

extern "C" void snug_cuda_run_few_rows(const struct snug_run *run, const struct snug_op *op,
                                       const struct snug_cuda_matmul *p) {
    const struct few_rows a = {.x = p->a,
                               .w = p->b,
                               .addend = snug_run_data(run, op->linear.addend),
                               .bias = (const float *)snug_run_data(run, op->linear.b),
                               .y = p->c,
                               .n = p->n,
                               .k = p->k,
                               .ldx = p->a_stride ? p->a_stride : p->k,
                               .m = (int)p->m,
                               .early = run->program->tensors[op->linear.w].persistent};
    const unsigned blocks = blocks_for(p->n, ROWS);
    const struct snug_cuda *cuda = snug_cuda_of(run);
    if (p->m == 0 || p->n == 0) return;
    if (p->type == SNUG_F16)
        launch_chained(cuda, blocks, THREADS,
                       p->c_type == SNUG_F32 ? few_rows_kernel<f16, float> : few_rows_kernel<f16, f16>, a);
    else
        launch_chained(cuda, blocks, THREADS,
                       p->c_type == SNUG_F32 ? few_rows_kernel<bf16, float> : few_rows_kernel<bf16, bf16>, a);
}
