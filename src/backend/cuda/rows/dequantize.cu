/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DEQUANTIZE: one pass. A thread reads 8 codes as a word and writes their values as 16 bytes of a 16-bit type, of WORDS
 * words whose loads are in flight together; the 8 threads of a block of codes read the same scale, from the cache. This
 * file is compiled without contraction of a * b + c: the bits are the host's.
 */
#include "backend/cuda/device.cuh"

extern "C" {
#include "optim/quantization_map.h"
}

enum { THREADS = SNUG_CODES /* each copies one of the map to shared memory */, EACH = 8, WORDS = 4 };

/* By value: kernels take up to 4 KiB. */
struct code_maps {
    float values[SNUG_CODE_VALUES], nested[SNUG_CODES];
};

static __device__ __forceinline__ float absmax_of(const struct snug_quantized_layout &l, const uint8_t *bytes,
                                                  const float *map, int64_t block) {
    const float *groups = (const float *)(bytes + l.group_absmax);
    if (l.groups == 0) return ((const float *)(bytes + l.absmax))[block];
    return map[bytes[l.absmax + block]] * groups[block / SNUG_CODE_GROUP] + groups[l.groups];
}

static __device__ __forceinline__ float rounded_to(enum snug_dtype dtype, float value) {
    if (dtype == SNUG_BF16) return to_float(from_float<bf16>(value));
    if (dtype == SNUG_F16) return to_float(from_float<f16>(value));
    return value;
}

/* blockIdx.y: the parameter. */
template <typename T>
static __global__ void dequantize_kernel(T *q, const uint8_t *p, struct snug_quantized_layout l,
                                         enum snug_dtype rounded, struct code_maps maps) {
    __shared__ float values[SNUG_CODE_VALUES], nested[SNUG_CODES];
    nested[threadIdx.x] = maps.nested[threadIdx.x];
    if (threadIdx.x < SNUG_CODE_VALUES) values[threadIdx.x] = maps.values[threadIdx.x];
    __syncthreads();
    p += blockIdx.y * l.bytes;
    q += blockIdx.y * l.count;
    const int64_t begin = ((int64_t)blockIdx.x * WORDS * THREADS + threadIdx.x) * EACH, step = THREADS * EACH;
    const bool aligned = blockIdx.y == 0 || l.count % EACH == 0;
    uint32_t codes[WORDS];
    float absmax[WORDS];
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        const int64_t first = begin + k * step;
        if (first >= l.count) continue;
        codes[k] = *(const uint32_t *)(p + first / 2);
        absmax[k] = absmax_of(l, p, nested, first / SNUG_CODE_BLOCK);
    }
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        const int64_t first = begin + k * step;
        if (first >= l.count) return;
        float v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) /* a byte's first code is in its high half */
            v[i] = rounded_to(rounded, values[codes[k] >> (i / 2 * 8 + (i % 2 ? 0 : 4)) & 15] * absmax[k]);
        if (first + EACH <= l.count && aligned) {
            store<EACH>(q + first, v);
        } else {
            for (int i = 0; i < EACH && first + i < l.count; i++) q[first + i] = from_float<T>(v[i]);
        }
    }
}

extern "C" snug_status snug_cuda_dequantize(struct snug_run *run, const struct snug_op *op) {
    const struct snug_quantized *form = &op->dequantize.form;
    const struct snug_quantized_layout l = snug_quantized_lay_out(form);
    const uint8_t *p = (const uint8_t *)snug_run_data(run, op->dequantize.p);
    const dim3 grid(blocks_for(l.count, WORDS * THREADS * EACH), (unsigned)snug_run_rows(run, op->dequantize.p));
    void *q = snug_run_data(run, op->dequantize.q);
    struct code_maps maps;
    memcpy(maps.values, snug_code_values(form->type), sizeof maps.values);
    snug_quantization_map(true, maps.nested);
    const enum snug_dtype dtype = snug_run_dtype(run, op->dequantize.q);
    const enum snug_dtype rounded = form->rounded == dtype ? SNUG_F32 : form->rounded; /* the store rounds, too */
    with_type(dtype, [&](auto type) {
        dequantize_kernel<<<grid, THREADS, 0, snug_cuda_of(run)->stream>>>((decltype(type) *)q, p, l, rounded, maps);
    });
    return snug_cuda_done(run, op);
}
