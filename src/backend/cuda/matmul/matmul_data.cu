/* SPDX-License-Identifier: Apache-2.0 */
/* Data for matmuls: weights in another type; random numbers to time them with. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "backend/cuda/matmul/matmul.h"
}

/* ---- weights in BF16, in matmuls of other types ---- */

template <typename T, int W> static __global__ void convert(T *to, const bf16 *from, int64_t count) {
    const int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * W;
    if (i >= count) return;
    float value[W];
    load<W>(value, from + i);
    store<W>(to + i, value);
}

extern "C" void snug_cuda_convert(const struct snug_cuda *cuda, void *to, enum snug_dtype type, const void *from,
                                  int64_t count) {
    const bool wide = count % 8 == 0 && (uintptr_t)from % 16 == 0;
    with_type(type, [&](auto value) {
        typedef decltype(value) T;
        if (wide)
            convert<T, 8><<<blocks_for(count / 8, 256), 256, 0, cuda->stream>>>((T *)to, (const bf16 *)from, count);
        else
            convert<T, 1><<<blocks_for(count, 256), 256, 0, cuda->stream>>>((T *)to, (const bf16 *)from, count);
    });
}

/* ---- autotuning ---- */

static __global__ void randomize(uint32_t *to, int64_t count) {
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < count; i += (int64_t)gridDim.x * 256) {
        uint64_t x = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u; /* splitmix64 */
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        to[i] = pack((float)(int32_t)x * 0x1p-31f, (float)(int32_t)(x >> 32) * 0x1p-31f);
    }
}

/* The end of all tensors in the arena. */
static int64_t end_of(const struct snug_program *program) {
    int64_t end = 0;
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!t->offloaded && !t->view && t->offset + t->bytes > end) end = t->offset + t->bytes;
    }
    return end;
}

extern "C" void snug_cuda_randomize(const struct snug_run *run) {
    const int64_t words = end_of(run->program) / 4;
    if (words > 0) randomize<<<2048, 256>>>((uint32_t *)run->arena, words);
}

extern "C" snug_status snug_cuda_clear(const struct snug_run *run) {
    return snug_cuda_check(run->ctx, cudaMemset(run->arena, 0, (size_t)end_of(run->program)), "clearing the arena");
}
