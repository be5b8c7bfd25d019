/* SPDX-License-Identifier: Apache-2.0 */
/* What all updates share: stochastic rounding, and one launch of a formula over the elements of a weight. */
#ifndef SNUG_BACKEND_CUDA_UPDATE_CUH
#define SNUG_BACKEND_CUDA_UPDATE_CUH

#include "backend/cuda/device.cuh"

/* As snug_rounding_bits(), with the step's numbers. */
static __device__ __forceinline__ uint32_t rounding_bits(const struct snug_cuda_step &step, int32_t parameter,
                                                         int64_t element) {
    const struct snug_philox_block block =
        snug_philox((uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), (uint32_t)parameter,
                    (uint32_t)SNUG_PHILOX_ROUNDING << 29, step.key, step.step);
    return block.word[element % 8 / 2] >> (element % 2 ? 16 : 0) & 0xffffu;
}

/* A weight's copy for products: NULL, or of the type that half says. */
struct weight_copy {
    void *data;
    bool half; /* fp16; else bf16 */
};

static inline struct weight_copy copy_of(const struct snug_run *run, int32_t tensor) {
    return {snug_run_data(run, tensor), tensor >= 0 && snug_run_dtype(run, tensor) == SNUG_F16};
}

/* Element i of a weight that has p, p16, copy and parameter, as struct weight below. */
template <typename W>
static __device__ __forceinline__ void store_parameter(const W &w, const struct snug_cuda_step &step, int64_t i,
                                                       float value) {
    if (w.p) {
        w.p[i] = value;
    } else {
        const uint16_t bits = snug_f32_to_bf16_stochastic(value, rounding_bits(step, w.parameter, i));
        memcpy(&w.p16[i], &bits, sizeof bits);
        value = to_float(w.p16[i]);
    }
    if (!w.copy.data) return;
    if (w.copy.half)
        ((f16 *)w.copy.data)[i] = from_float<f16>(value);
    else
        ((bf16 *)w.copy.data)[i] = from_float<bf16>(value);
}

struct weight {
    float *p; /* NULL where p16 is the parameter */
    bf16 *p16;
    struct weight_copy copy;
    float *state[3]; /* NULL where the optimizer keeps none */
    const float *g, *clip;
    const struct snug_cuda_step *step;
    int64_t count;
    int32_t parameter; /* key of stochastic rounding */
};

/* formula(p, g, state, step) gives the new p; state holds an element's own. */
template <typename F> static __global__ void __launch_bounds__(256) update_kernel(const struct weight w, const F formula) {
    const struct snug_cuda_step step = *w.step;
    const float scale = w.clip ? w.clip[1] : 1;
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= w.count) return;
    float state[3];
#pragma unroll
    for (int k = 0; k < 3; k++) state[k] = w.state[k] ? w.state[k][i] : 0;
    const float p = formula(w.p ? w.p[i] : to_float(w.p16[i]), w.g[i] * scale, state, step);
#pragma unroll
    for (int k = 0; k < 3; k++)
        if (w.state[k]) w.state[k][i] = state[k];
    store_parameter(w, step, i, p);
}

template <typename F> static snug_status run_update(struct snug_run *run, const struct snug_op *op, const F &formula) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const bool low = snug_run_dtype(run, op->out[0]) == SNUG_BF16;
    void *p = snug_run_data(run, op->out[0]);
    struct weight w = {.p = low ? NULL : (float *)p,
                       .p16 = low ? (bf16 *)p : NULL,
                       .copy = copy_of(run, op->out[1]),
                       .g = (const float *)snug_run_data(run, op->in[0]),
                       .clip = (const float *)snug_run_data(run, op->in[1]),
                       .step = cuda->batch.step,
                       .count = snug_run_rows(run, op->out[0]) * snug_run_cols(run, op->out[0]),
                       .parameter = op->parameter};
    for (int k = 0; k < 3; k++) w.state[k] = (float *)snug_run_data(run, op->out[2 + k]);
    if (w.count > 0) update_kernel<<<blocks_for(w.count, 256), 256, 0, cuda->stream>>>(w, formula);
    return snug_cuda_done(run, op);
}

static inline float decay_of(const struct snug_run *run, const struct snug_op *op) {
    return op->decay ? (float)run->optimizer->weight_decay : 0;
}

#endif
