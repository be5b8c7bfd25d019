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

/* FOURS times four elements, STRIDE apart, from first on: all are loaded before any is stored, so that enough of them
   are under way. */
enum { THREADS = 256, FOURS = 1, STRIDE = 4 * THREADS, CHUNK = FOURS * STRIDE };

static __device__ __forceinline__ void update_fours(const struct adam &a, const struct snug_cuda_step &step,
                                                    float scale, int64_t first) {
    float p[FOURS][4], g[FOURS][4], m[FOURS][4], v[FOURS][4];
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        const int64_t i = first + k * STRIDE;
        if (i + 4 > a.count) continue;
        load_parameters(p[k], a, i);
        load<4>(g[k], a.g + i);
        load<4>(m[k], a.m + i);
        load<4>(v[k], a.v + i);
    }
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        const int64_t i = first + k * STRIDE;
        if (i + 4 > a.count) { /* what is left behind the last four */
            for (int64_t one = i; one < a.count; one++) {
                const float old = a.p ? a.p[one] : to_float(a.p16[one]);
                store_parameter(a, step, one, update(a, step, old, a.g[one] * scale, &a.m[one], &a.v[one]));
            }
            continue;
        }
#pragma unroll
        for (int n = 0; n < 4; n++) p[k][n] = update(a, step, p[k][n], g[k][n] * scale, &m[k][n], &v[k][n]);
        store<4>(a.m + i, m[k]);
        store<4>(a.v + i, v[k]);
        store_parameters(a, step, i, p[k]);
    }
}

static __global__ void __launch_bounds__(THREADS) adam_kernel(const struct adam a) {
    const struct snug_cuda_step step = *a.step;
    update_fours(a, step, a.clip ? a.clip[1] : 1, (int64_t)blockIdx.x * CHUNK + threadIdx.x * 4);
}

/* All weights at once; a has what they share. Chunks are dealt out in order, so that what is read and written at a time
   lies close together; a block goes on in the table from where it was. */
static __global__ void __launch_bounds__(THREADS)
    adam_all(struct adam a, uint8_t *arena, const struct snug_cuda_piece *pieces, int32_t count, int64_t blocks) {
    const struct snug_cuda_step step = *a.step;
    const float scale = a.clip ? a.clip[1] : 1, decay = a.decay;
    int64_t begin = 0, end = 0; /* blocks of the piece at hand */
    int32_t next = 0;
    for (int64_t chunk = blockIdx.x; chunk < blocks * (SNUG_CUDA_BLOCK / CHUNK); chunk += gridDim.x) {
        const int64_t block = chunk / (SNUG_CUDA_BLOCK / CHUNK);
        if (block >= end) {
            while (next < count && pieces[next].block <= block) next++;
            const struct snug_cuda_piece piece = pieces[next - 1];
            begin = piece.block;
            end = next < count ? pieces[next].block : blocks;
            a.p = piece.low ? NULL : (float *)(arena + piece.p);
            a.p16 = piece.low ? (bf16 *)(arena + piece.p) : NULL;
            a.copy = {piece.copy < 0 ? NULL : arena + piece.copy, piece.half};
            a.m = (float *)(arena + piece.m);
            a.v = (float *)(arena + piece.v);
            a.g = (const float *)(arena + piece.g);
            a.count = piece.count;
            a.parameter = piece.parameter;
            a.decay = piece.decay ? decay : 0;
        }
        update_fours(a, step, scale, chunk * CHUNK - begin * SNUG_CUDA_BLOCK + threadIdx.x * 4);
    }
}

extern "C" snug_status snug_cuda_adam(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_optimizer *o = run->optimizer;
    const enum snug_cuda_turn turn = snug_cuda_turn_of(run, op, &cuda->updates);
    const bool low = snug_run_dtype(run, op->out[0]) == SNUG_BF16;
    void *p = snug_run_data(run, op->out[0]);
    struct adam a = {.p = low ? NULL : (float *)p,
                     .m = (float *)snug_run_data(run, op->out[2]),
                     .v = (float *)snug_run_data(run, op->out[3]),
                     .p16 = low ? (bf16 *)p : NULL,
                     .copy = copy_of(run, op->out[1]),
                     .g = (const float *)snug_run_data(run, op->in[0]),
                     .clip = (const float *)snug_run_data(run, op->in[1]),
                     .step = cuda->batch.step,
                     .count = snug_run_rows(run, op->out[0]) * snug_run_cols(run, op->out[0]),
                     .b1 = (float)o->beta1,
                     .b2 = (float)o->beta2,
                     .rest1 = (float)(1 - o->beta1),
                     .rest2 = (float)(1 - o->beta2),
                     .eps = (float)o->epsilon,
                     .decay = (float)o->weight_decay,
                     .decoupled = o->decoupled,
                     .parameter = op->parameter};
    if (turn == SNUG_CUDA_DONE) return SNUG_OK;
    if (turn == SNUG_CUDA_FOR_ALL) {
        adam_all<<<(unsigned)cuda->multiprocessors * 4, THREADS, 0, cuda->stream>>>(
            a, run->arena, cuda->batch.updates, cuda->updates.count, cuda->updates.blocks);
        return snug_cuda_done(run, op);
    }
    if (!op->decay) a.decay = 0;
    if (a.count > 0) adam_kernel<<<blocks_for(a.count, CHUNK), THREADS, 0, cuda->stream>>>(a);
    return snug_cuda_done(run, op);
}
