/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101) and Adam (Kingma and Ba, arXiv:1412.6980). */
#include "backend/cuda/update.cuh"

struct adam {
    float *p, *m, *v;
    bf16 *p16; /* the parameter itself where it is kept in bf16 */
    struct weight_copy copy;
    const float *g, *clip;
    const struct snug_cuda_step *step;
    int64_t count;
    float b1, b2, rest1, rest2, eps, decay; /* rest: 1 - b, which fp32 would take from b with an error of 5e-5 */
    bool decoupled;
    int32_t parameter; /* key of stochastic rounding */
};

static __device__ __forceinline__ float update(const struct adam &a, const struct snug_cuda_step &step, float p,
                                               float g, float *m, float *v) {
    if (a.decoupled)
        p *= 1 - step.learning_rate * a.decay;
    else
        g += a.decay * p;
    *m = a.b1 * *m + a.rest1 * g;
    *v = a.b2 * *v + a.rest2 * g * g;
    return p - step.rate * *m * quick_inverse(quick_root(*v) * step.root + a.eps);
}

/* Elements first … first + 3. */
static __device__ __forceinline__ void update_four(const struct adam &a, const struct snug_cuda_step &step, float scale,
                                                   int64_t first) {
    if (first + 4 > a.count) { /* what is left behind the last four */
        for (int64_t i = first; i < a.count; i++) {
            const float p = a.p ? a.p[i] : to_float(a.p16[i]);
            store_parameter(a, step, i, update(a, step, p, a.g[i] * scale, &a.m[i], &a.v[i]));
        }
        return;
    }
    float p[4], g[4], m[4], v[4];
    load_parameters(p, a, first);
    load<4>(g, a.g + first);
    load<4>(m, a.m + first);
    load<4>(v, a.v + first);
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = update(a, step, p[i], g[i] * scale, &m[i], &v[i]);
    store<4>(a.m + first, m);
    store<4>(a.v + first, v);
    store_parameters(a, step, first, p);
}

enum { THREADS = 256, PARTS = SNUG_CUDA_BLOCK / (4 * THREADS) };

static __global__ void __launch_bounds__(THREADS) adam_kernel(const struct adam a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    update_four(a, step, a.clip ? a.clip[1] : 1, ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4);
}

/* All weights at once; a has what they share. A block of the table is that of PARTS blocks here, so that what runs at
   the same time lies together in memory. */
static __global__ void __launch_bounds__(THREADS)
    adam_all(struct adam a, uint8_t *arena, const struct snug_cuda_piece *pieces, int32_t count) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    const struct snug_cuda_piece piece = piece_of_block(pieces, count, blockIdx.x / PARTS);
    const float scale = a.clip ? a.clip[1] : 1;
    a.p = piece.low ? NULL : (float *)(arena + piece.p);
    a.p16 = piece.low ? (bf16 *)(arena + piece.p) : NULL;
    a.copy = {piece.copy < 0 ? NULL : arena + piece.copy, piece.half};
    a.m = (float *)(arena + piece.m);
    a.v = (float *)(arena + piece.v);
    a.g = (const float *)(arena + piece.g);
    a.count = piece.count;
    a.parameter = piece.parameter;
    if (!piece.decay) a.decay = 0;
    update_four(a, step, scale, ((blockIdx.x - piece.block * PARTS) * THREADS + threadIdx.x) * 4);
}

extern "C" snug_status snug_cuda_adam(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_optimizer *o = run->optimizer;
    const enum snug_cuda_turn turn = snug_cuda_turn_of(run, op, &cuda->updates);
    struct adam a = weight_of<struct adam>(run, op);
    a.m = (float *)snug_run_data(run, op->out[2]);
    a.v = (float *)snug_run_data(run, op->out[3]);
    a.count = snug_run_rows(run, op->out[0]) * snug_run_cols(run, op->out[0]);
    a.b1 = (float)o->beta1;
    a.b2 = (float)o->beta2;
    a.rest1 = (float)(1 - o->beta1);
    a.rest2 = (float)(1 - o->beta2);
    a.eps = (float)o->epsilon;
    a.decay = (float)o->weight_decay;
    a.decoupled = o->decoupled;
    if (turn == SNUG_CUDA_DONE) return SNUG_OK;
    if (turn == SNUG_CUDA_FOR_ALL) {
        adam_all<<<(unsigned)cuda->updates.blocks * PARTS, THREADS, 0, cuda->stream>>>(
            a, run->arena, cuda->batch.updates, cuda->updates.count);
        return snug_cuda_done(run, op);
    }
    if (!op->decay) a.decay = 0;
    if (a.count > 0) adam_kernel<<<blocks_for(a.count, 4 * THREADS), THREADS, 0, cuda->stream>>>(a);
    return snug_cuda_done(run, op);
}
