/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all updates: stochastic rounding, and the launch of a formula over the elements of a weight. */
#ifndef SNUG_BACKEND_CUDA_UPDATE_UPDATE_CUH
#define SNUG_BACKEND_CUDA_UPDATE_UPDATE_CUH

#include "backend/cuda/device.cuh"

/* As snug_rounding_bits(), with the step's numbers. */
static __device__ __forceinline__ struct snug_philox_block rounding_block(const struct snug_cuda_step &step,
                                                                          int32_t parameter, int64_t element) {
    return snug_philox((uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), (uint32_t)parameter,
                       (uint32_t)SNUG_PHILOX_ROUNDING << 29, step.key, step.step);
}

static __device__ __forceinline__ uint32_t rounding_bits(const struct snug_cuda_step &step, int32_t parameter,
                                                         int64_t element) {
    return rounding_block(step, parameter, element).word[element % 8 / 2] >> (element % 2 ? 16 : 0) & 0xffffu;
}

/* A weight's copy for matmuls, or NULL; half is its type. */
struct weight_copy {
    void *data;
    bool half; /* fp16; else bf16 */
};

static inline struct weight_copy copy_of(const struct snug_run *run, int32_t tensor) {
    return {snug_run_data(run, tensor), tensor != 0 && snug_run_dtype(run, tensor) == SNUG_F16};
}

/* The fields that the structs of all updates share, for the weight that op updates; the other fields are 0. */
template <typename W> static inline W weight_of(struct snug_run *run, const struct snug_op *op) {
    const bool low = snug_run_dtype(run, op->update.weight) == SNUG_BF16;
    void *p = snug_run_data(run, op->update.weight);
    W w = {};
    w.p = low ? NULL : (float *)p;
    w.p16 = low ? (bf16 *)p : NULL;
    w.copy = copy_of(run, op->update.copy);
    w.g = (const float *)snug_run_data(run, op->update.g);
    w.clip = (const float *)snug_run_data(run, op->update.clip);
    w.step = op->crosses ? snug_cuda_of(run)->batch.update_step : snug_cuda_of(run)->batch.step;
    w.parameter = op->update.parameter;
    w.element = op->element;
    return w;
}

/* The weights of an entry of multi_tensor.c's table. */
template <typename W>
static __device__ __forceinline__ void take_entry(W &w, const struct snug_cuda_entry &entry, uint8_t *arena) {
    w.p = entry.low ? NULL : (float *)(arena + entry.p);
    w.p16 = entry.low ? (bf16 *)(arena + entry.p) : NULL;
    w.copy = {entry.copy < 0 ? NULL : arena + entry.copy, entry.half};
    w.g = (const float *)(arena + entry.g);
    w.parameter = entry.parameter;
    w.element = entry.element;
}

/* Element i of a weight with p, p16, copy and parameter, as in struct weight below. */
template <typename W>
static __device__ __forceinline__ void store_parameter(const W &w, const struct snug_cuda_step &step, int64_t i,
                                                       float value) {
    if (w.p) {
        w.p[i] = value;
    } else {
        const uint16_t bits = snug_f32_to_bf16_stochastic(value, rounding_bits(step, w.parameter, w.element + i));
        memcpy(&w.p16[i], &bits, sizeof bits);
        value = to_float(w.p16[i]);
    }
    if (!w.copy.data) return;
    if (w.copy.half)
        ((f16 *)w.copy.data)[i] = from_float<f16>(value);
    else
        ((bf16 *)w.copy.data)[i] = from_float<bf16>(value);
}

/* ---- W elements from first, a multiple of W, on: 4 or 8, in one block of random numbers ---- */

template <int W, typename Weight>
static __device__ __forceinline__ void load_parameters(float (&value)[W], const Weight &w, int64_t first) {
    if (w.p)
        load<W>(value, w.p + first);
    else
        load<W>(value, w.p16 + first);
}

/* As store_parameter(). */
template <int W, typename Weight>
static __device__ __forceinline__ void store_parameters(const Weight &w, const struct snug_cuda_step &step,
                                                        int64_t first, float (&value)[W]) {
    if (w.p) {
        store<W>(w.p + first, value);
    } else {
        const struct snug_philox_block block = rounding_block(step, w.parameter, w.element + first);
        const bool second = W == 4 && first % 8; /* half of the block */
#pragma unroll
        for (int i = 0; i < W; i++) {
            const uint32_t word = second ? block.word[(2 + i / 2) % 4] : block.word[i / 2];
            value[i] = snug_bf16_to_f32(snug_f32_to_bf16_stochastic(value[i], word >> (i % 2 ? 16 : 0) & 0xffffu));
        }
        store<W>(w.p16 + first, value);
    }
    if (!w.copy.data) return;
    if (w.copy.half)
        store<W>((f16 *)w.copy.data + first, value);
    else
        store<W>((bf16 *)w.copy.data + first, value);
}

/* ---- element-wise optimizers ----
 * Their formula F has the numbers of a step, F::of(step), and step(numbers, p, g, state), which gives the new p and
 * updates the element's LEAST to MOST states; how many there are depends on the settings. */

struct weight {
    float *p; /* NULL if p16 is the parameter */
    bf16 *p16;
    struct weight_copy copy;
    float *state[3]; /* NULL if the optimizer has none */
    const float *g, *clip;
    const struct snug_cuda_step *step;
    int64_t count;
    int32_t parameter; /* key of stochastic rounding */
    int64_t element;   /* of the parameter, at which p begins: a multiple of 8 */
    bool decay;
};

/* Elements first … first + 3. */
template <typename F> static __device__ __forceinline__ void update_four(const struct weight &w, int64_t first) {
    const struct snug_cuda_step &step = *w.step;
    const float scale = w.clip ? w.clip[1] : 1;
    auto numbers = F::of(step);
    if (!w.decay) numbers.keep = 1, numbers.l2 = 0;
    if (first + 4 > w.count) { /* after the last four */
        for (int64_t i = first; i < w.count; i++) {
            float own[3] = {};
            for (int k = 0; k < F::MOST; k++)
                if (k < F::LEAST || w.state[k]) own[k] = w.state[k][i];
            const float p = F::step(numbers, w.p ? w.p[i] : to_float(w.p16[i]), w.g[i] * scale, own);
            for (int k = 0; k < F::MOST; k++)
                if (k < F::LEAST || w.state[k]) w.state[k][i] = own[k];
            store_parameter(w, step, i, p);
        }
        return;
    }
    float p[4], g[4], state[3][4] = {};
    load_parameters(p, w, first);
    load<4>(g, w.g + first);
#pragma unroll
    for (int k = 0; k < F::MOST; k++)
        if (k < F::LEAST || w.state[k]) load<4>(state[k], w.state[k] + first);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float own[3] = {state[0][i], state[1][i], state[2][i]};
        p[i] = F::step(numbers, p[i], g[i] * scale, own);
#pragma unroll
        for (int k = 0; k < F::MOST; k++) state[k][i] = own[k];
    }
#pragma unroll
    for (int k = 0; k < F::MOST; k++)
        if (k < F::LEAST || w.state[k]) store<4>(w.state[k] + first, state[k]);
    store_parameters(w, step, first, p);
}

enum { UPDATE_THREADS = 256, UPDATE_PARTS = SNUG_CUDA_BLOCK / (4 * UPDATE_THREADS) };

template <typename F> static __global__ void __launch_bounds__(UPDATE_THREADS) update_kernel(const struct weight w) {
    if (w.step->skip) return;
    update_four<F>(w, ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) * 4);
}

/* All weights at once; w has the shared fields. A block of the table is UPDATE_PARTS blocks here, so that blocks that
   run at once access adjacent memory. */
template <typename F>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    update_all(struct weight w, uint8_t *arena, const struct snug_cuda_entry *entries, int32_t count) {
    if (w.step->skip) return;
    const struct snug_cuda_entry entry = entry_of_block(entries, count, blockIdx.x / UPDATE_PARTS);
    take_entry(w, entry, arena);
    for (int k = 0; k < F::MOST; k++)
        w.state[k] = k < F::LEAST || entry.state[k] >= 0 ? (float *)(arena + entry.state[k]) : NULL;
    w.count = entry.count;
    w.decay = entry.decay;
    update_four<F>(w, ((blockIdx.x - entry.block * UPDATE_PARTS) * UPDATE_THREADS + threadIdx.x) * 4);
}

template <typename F> static snug_status run_update(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const enum snug_cuda_share share = snug_cuda_share_of(run, op, &cuda->updates);
    if (share == SNUG_CUDA_NO_TENSOR) return SNUG_OK;
    struct weight w = weight_of<struct weight>(run, op);
    if (share == SNUG_CUDA_ALL_TENSORS) {
        update_all<F><<<(unsigned)cuda->updates.blocks * UPDATE_PARTS, UPDATE_THREADS, 0, cuda->stream>>>(
            w, run->arena, cuda->batch.updates, cuda->updates.count);
        return snug_cuda_done(run, op);
    }
    w.count = snug_run_rows(run, op->update.weight) * snug_run_cols(run, op->update.weight);
    for (int k = 0; k < 3; k++) w.state[k] = (float *)snug_run_data(run, op->update.states[k]);
    w.decay = op->update.decay;
    if (w.count > 0) update_kernel<F><<<blocks_for(w.count, 4 * UPDATE_THREADS), UPDATE_THREADS, 0, cuda->stream>>>(w);
    return snug_cuda_done(run, op);
}

#endif
