/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The most probable columns of each row of logits: a block chooses those of a part of a row, and sums its exponentials;
 * then a block merges the parts of a row. A value and its column are one number: the larger one is that of the larger
 * value, or of the first of equal ones.
 */
#include "backend/cuda/device.cuh"

extern "C" {
#include "backend/cuda/sizes/workspace.h"
}

enum { THREADS = 256, WARPS = THREADS / 32, EACH = SNUG_CUDA_TOP_PART / THREADS };

/* What a block knows of its part: its largest value, the sum of exponentials relative to it; then its choices. */
struct part {
    float most, sum;
};

static __device__ __forceinline__ uint64_t key_of(float value, int64_t column) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t ordered = isnan(value) ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (0xffffffffu - (uint32_t)column);
}
static __device__ __forceinline__ float value_of(uint64_t key) {
    const uint32_t ordered = (uint32_t)(key >> 32);
    return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}
static __device__ __forceinline__ int32_t column_of(uint64_t key) { return (int32_t)(0xffffffffu - (uint32_t)key); }

static __device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The largest of all threads' numbers. */
static __device__ uint64_t block_largest(uint64_t own) {
    __shared__ uint64_t of_warps[WARPS];
    for (int step = 16; step > 0; step /= 2) own = larger(own, __shfl_xor_sync(FULL_WARP, own, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    uint64_t all = 0;
    for (int i = 0; i < WARPS; i++) all = larger(all, of_warps[i]);
    return all;
}

static __global__ void __launch_bounds__(THREADS)
    choose_kernel(struct part *parts, uint64_t *chosen, const float *logits, const struct snug_cuda_batch batch,
                  int64_t classes, int count) {
    const int64_t row = blockIdx.y, first = (int64_t)blockIdx.x * SNUG_CUDA_TOP_PART;
    start_next();
    wait_before();
    if (row >= batch.step->rows) return;
    uint64_t keys[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int64_t column = first + i * THREADS + threadIdx.x;
        keys[i] = column < classes ? key_of(logits[row * classes + column], column) : 0;
    }
    chosen += (row * gridDim.x + blockIdx.x) * count;
    float most = 0, sum = 0;
    for (int n = 0; n < count; n++) {
        uint64_t best = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) best = larger(best, keys[i]);
        best = block_largest(best);
        if (threadIdx.x == 0) chosen[n] = best;
        if (n == 0) {
            most = value_of(best);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (keys[i]) sum += exp2f((value_of(keys[i]) - most) * LOG2_E);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (keys[i] == best) keys[i] = 0;
    }
    sum = block_sum<WARPS>(sum);
    if (threadIdx.x == 0) parts[row * gridDim.x + blockIdx.x] = {most, sum};
}

static __global__ void __launch_bounds__(THREADS)
    merge_kernel(int32_t *ids, float *log_probabilities, const struct part *parts, const uint64_t *chosen,
                 const struct snug_cuda_batch batch, int64_t part_count, int count) {
    const int64_t row = blockIdx.x;
    start_next();
    wait_before();
    if (row >= batch.step->rows) return;
    parts += row * part_count;
    chosen += row * part_count * count;
    double log_sum = 0;
    uint64_t last = ~(uint64_t)0;
    for (int n = 0; n < count; n++) {
        uint64_t best = 0;
        for (int64_t part = threadIdx.x; part < part_count; part += THREADS)
            for (int i = 0; i < count; i++)
                if (chosen[part * count + i] < last) {
                    best = larger(best, chosen[part * count + i]);
                    break;
                }
        last = block_largest(best);
        const float value = value_of(last);
        if (n == 0) {
            double sum = 0;
            for (int64_t part = threadIdx.x; part < part_count; part += THREADS)
                sum += (double)parts[part].sum * exp2f((parts[part].most - value) * LOG2_E);
            log_sum = (double)value + log(block_sum<WARPS>(sum));
        }
        if (threadIdx.x > 0) continue;
        ids[row * count + n] = column_of(last);
        log_probabilities[row * count + n] = (float)((double)value - log_sum);
    }
}

static __global__ void follow_kernel(int32_t *ids, const int32_t *chosen, int64_t count) {
    const int64_t token = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (token < count && ids[token] < 0) ids[token] = chosen[-1 - ids[token]];
}

extern "C" void snug_cuda_follow(const struct snug_run *run) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t tokens = run->batch->tokens;
    follow_kernel<<<blocks_for(tokens, THREADS), THREADS, 0, cuda->stream>>>(
        cuda->batch.ids, (const int32_t *)snug_run_data(run, run->program->top_ids), tokens);
}

extern "C" snug_status snug_cuda_top(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_top &o = op->top;
    const int64_t rows = snug_cuda_rows(run, o.logits), classes = snug_run_cols(run, o.logits);
    const int64_t parts = (classes + SNUG_CUDA_TOP_PART - 1) / SNUG_CUDA_TOP_PART;
    const int count = (int)snug_run_cols(run, o.ids);
    uint64_t *chosen = (uint64_t *)run->workspace;
    struct part *sums = (struct part *)(chosen + rows * parts * count);
    if (rows == 0) return SNUG_OK;
    launch_chained(cuda, dim3((unsigned)parts, (unsigned)rows), THREADS, choose_kernel, sums, chosen,
                   (const float *)snug_run_data(run, o.logits), cuda->batch, classes, count);
    launch_chained(cuda, (unsigned)rows, THREADS, merge_kernel, (int32_t *)snug_run_data(run, o.ids),
                   (float *)snug_run_data(run, o.log_probabilities), (const struct part *)sums,
                   (const uint64_t *)chosen, cuda->batch, parts, count);
    return snug_cuda_done(run, op);
}
