/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses of pairs of sequences, from the cross entropies of their loss positions. A warp adds those of a sequence in
 * this chunk; then one block computes the pairs, which are few.
 */
#include "backend/cuda/device.cuh"

#define inline inline __host__ __device__
#include "program/preference.h"
#undef inline

enum { THREADS = 256, WARPS = THREADS / 32 };

struct preference {
    const float *rows;
    double *sums;
    float *scales, *loss, *results;
    struct snug_cuda_batch batch;
    struct snug_preference_form form;
    bool overwrite;
};

/* The first of the chunk's rows whose token is not before this one. */
static __device__ int32_t first_row_from(const struct preference &a, int32_t token) {
    const int32_t *positions = a.batch.loss_positions + a.batch.step->first_row;
    int32_t low = 0, high = a.batch.step->rows;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (positions[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static __global__ void add_sequences(const struct preference a) {
    const int32_t sequence = (int32_t)(blockIdx.x * WARPS + threadIdx.x / 32), lane = (int32_t)threadIdx.x % 32;
    if (sequence >= a.batch.step->sequences) return;
    const int32_t begin = first_row_from(a, a.batch.offsets[sequence]),
                  end = first_row_from(a, a.batch.offsets[sequence + 1]);
    double sum = 0;
    for (int32_t row = begin + lane; row < end; row += 32) sum += (double)a.rows[row];
    sum = warp_sum(sum);
    if (lane == 0) a.sums[sequence] = (a.overwrite ? 0 : a.sums[sequence]) + sum;
}

static __global__ void compute_pairs(const struct preference a) {
    double loss = 0, result[SNUG_PREFERENCE_RESULTS] = {0};
    for (int32_t pair = (int32_t)threadIdx.x; 2 * pair + 1 < a.batch.step->sequences; pair += THREADS) {
        double by_sum[2];
        loss += snug_add_pair(&a.form, a.sums + 2 * pair, a.batch.references + 4 * pair, by_sum, result);
        for (int k = 0; k < 2; k++) a.scales[2 * pair + k] = (float)by_sum[k];
    }
    loss = block_sum<WARPS>(loss);
    if (threadIdx.x == 0) *a.loss = (float)loss;
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++) {
        const double sum = block_sum<WARPS>(result[i]);
        if (threadIdx.x == 0) a.results[i] = (float)sum;
    }
}

extern "C" snug_status snug_cuda_preference(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct preference a = {.rows = (const float *)snug_run_data(run, op->preference.rows),
                                 .sums = (double *)snug_run_data(run, op->preference.sums),
                                 .scales = (float *)snug_run_data(run, op->preference.scales),
                                 .loss = (float *)snug_run_data(run, op->preference.loss),
                                 .results = (float *)snug_run_data(run, op->preference.results),
                                 .batch = cuda->batch,
                                 .form = op->preference.form,
                                 .overwrite = run->chunk == 0};
    const int64_t sequences = run->batch->sequences;
    if (sequences > 0) add_sequences<<<(unsigned)((sequences + WARPS - 1) / WARPS), THREADS, 0, cuda->stream>>>(a);
    compute_pairs<<<1, THREADS, 0, cuda->stream>>>(a);
    return snug_cuda_done(run, op);
}
