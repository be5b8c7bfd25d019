/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's bias by relative positions, and its gradient: dbias of a bucket and head is the sum of dS over all pairs
 * of query and key whose distance is in that bucket. A separate pass recomputes S and dS: a block has a tile of queries
 * of a head, loops over the keys, sums the diagonals of each tile of dS, and then the diagonals of each bucket. There
 * are two loops over the keys. Rows of dS add up to zero up to the rounding of o, from which delta is computed; the
 * first loop corrects delta by a row's actual sum, because the errors of many rows would accumulate in a bucket. The
 * block writes a row of partial sums, which are added in a fixed order.
 */
#include "backend/cuda/attention/attention_tiles.cuh"

struct buckets {
    uint8_t of[DISTANCES]; /* by distance + FARTHEST */
};

static struct buckets buckets_of(const struct snug_run *run, int32_t bias) {
    struct buckets buckets;
    for (int i = 0; i < DISTANCES; i++)
        buckets.of[i] = (uint8_t)snug_relative_bucket(i - FARTHEST, (int32_t)run->program->tensors[bias].rows);
    return buckets;
}

template <typename T>
static __global__ void expand_kernel(float *to, const T *bias, const struct buckets buckets, int heads, float scale) {
    for (int i = threadIdx.x; i < DISTANCES; i += blockDim.x)
        to[blockIdx.x * DISTANCES + i] = to_float(bias[buckets.of[i] * heads + blockIdx.x]) / scale;
}

void snug_cuda_expand_biases(const struct snug_run *run, float *to, int32_t bias, float scale) {
    const int heads = (int)snug_run_cols(run, bias);
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    with_type(snug_run_dtype(run, bias), [&](auto value) {
        typedef decltype(value) T;
        expand_kernel<T><<<(unsigned)heads, 256, 0, stream>>>(to, (const T *)snug_run_data(run, bias),
                                                              buckets_of(run, bias), heads, scale);
    });
}

/* ---- the gradient ---- */

/* partial [parts, count, heads]: tile numbers assume that each earlier sequence has one more tile than it fills. */
template <typename T, int D, int N, bool TURNS>
static __global__ void __launch_bounds__(256)
    dbias_kernel(const struct attention a, const struct buckets buckets, float *partial, int count) {
    enum { SIDE = tiles<D, N>::SIDE, DIAGONALS = 2 * SIDE - 1 };
    extern __shared__ __align__(16) uint8_t shared[];
    auto &q = *reinterpret_cast<typename tiles<D, N>::matrix *>(shared);
    auto &dout = (&q)[1], &k = (&q)[2], &v = (&k)[TURNS ? 0 : 1];
    auto &ds = *reinterpret_cast<typename tiles<D, N>::scores *>(&(&v)[1]);
    uint8_t(*mask)[SIDE / 4] = reinterpret_cast<uint8_t(*)[SIDE / 4]>(&(&ds)[1]);
    __shared__ float diagonals[DIAGONALS];
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *keys = (const T *)a.k + head.keys, *values = (const T *)a.v + head.keys;
    if (q0 >= head.length) return;
    float sum = 0; /* sum of the thread's bucket */
    load_tile<T, D, N>(q, (const T *)a.q + head.column, a.q_row, head, q0, a.d);
    load_tile<T, D, N>(dout, (const T *)a.dout + head.column, a.h, head, q0, a.d);
    const struct range seen = keys_of(a, q0, SIDE, head.length, SIDE);
    for (int walk = 0; walk < 2; walk++) {
        float off[N] = {}; /* sums of the rows of dS */
        for (int k0 = seen.first; k0 < seen.end; k0 += SIDE) {
            __syncthreads();
            load_tile<T, D, N>(k, keys, a.k_row, head, k0, a.d);
            if (!TURNS) load_tile<T, D, N>(v, values, a.v_row, head, k0, a.d);
            load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
            __syncthreads();
            float s[N][N], dp[N][N];
            dots<D, N>(s, q, k, a.d);
            if (TURNS) replace_tile<T, D, N>(v, values, a.v_row, head, k0, a.d);
            dots<D, N>(dp, dout, v, a.d);
            probabilities<N, false>(a, head, s, dp, mask, q0, k0);
            if (walk == 0) {
#pragma unroll
                for (int i = 0; i < N; i++)
#pragma unroll
                    for (int j = 0; j < N; j++) off[i] += dp[i][j];
                continue;
            }
#pragma unroll
            for (int i = 0; i < N; i++)
#pragma unroll
                for (int j = 0; j < N; j++) ds[y + 16 * i][x + 16 * j] = dp[i][j];
            __syncthreads();
            for (int i = threadIdx.x; i < DIAGONALS; i += 256) { /* of c - r = i - (SIDE - 1) */
                const int apart = i - (SIDE - 1), first = apart < 0 ? -apart : 0, end = apart < 0 ? SIDE : SIDE - apart;
                float total = 0;
                for (int r = first; r < end; r++) total += ds[r][r + apart];
                diagonals[i] = total;
            }
            __syncthreads();
            for (int i = 0; (int)threadIdx.x < count && i < DIAGONALS; i++)
                if (buckets.of[distance_of(q0 + SIDE - 1, k0 + i)] == threadIdx.x) sum += diagonals[i];
        }
        for (int i = 0; walk == 0 && i < N; i++) {
            const float sum_of_row = row_sum(off[i]);
            const int r = q0 + y + 16 * i;
            if (x == 0 && r < head.length) a.delta[(int64_t)(head.first + r) * a.heads + head.index] += sum_of_row;
        }
    }
    const int64_t part = head.first / SIDE + blockIdx.z + blockIdx.x;
    if ((int)threadIdx.x < count) partial[(part * count + threadIdx.x) * a.heads + head.index] = sum;
}

template <typename T, typename S>
static void launch_dbias(const struct attention &a, const struct snug_run *run, int32_t bias, int32_t dbias,
                         bool overwrite) {
    constexpr int SIDE = tiles<S::D, S::N>::SIDE;
    static_assert(SIDE >= SNUG_CUDA_DBIAS_LEAST_SIDE(S::D), "the workspace has room for this number of parts");
    const int64_t longest = run->program->longest > 0 ? run->program->longest : 1;
    const int count = (int)run->program->tensors[bias].rows;
    const size_t shared = shared_bytes<S::D, S::N>(S::TURNS ? 3 : 4, 1);
    const int64_t sequences = run->batch->sequences, parts = snug_cuda_dbias_parts(a.bucket, sequences, SIDE);
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    float *partial = (float *)((uint8_t *)a.workspace + snug_cuda_dbias_delta_bytes(run->program, a.heads));
    const dim3 grid(blocks_for(longest, SIDE), (unsigned)a.heads, (unsigned)sequences);
    const auto kernel = dbias_kernel<T, S::D, S::N, S::TURNS>;
    launch_delta<T>(a, stream);
    if (parts > 0) cudaMemsetAsync(partial, 0, (size_t)(parts * count * a.heads) * sizeof(float), stream);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (sequences > 0) kernel<<<grid, 256, shared, stream>>>(a, buckets_of(run, bias), partial, count);
    snug_cuda_add_partials(run, (float *)snug_run_data(run, dbias), partial, parts, (int64_t)count * a.heads,
                           overwrite);
}

bool snug_cuda_attention_dbias(const struct attention &a, const struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention_backward &o = op->attention_backward;
    const bool overwrite = snug_run_overwrites(run, op);
    bool done = false;
    with_type(snug_run_dtype(run, o.q), [&](auto value) {
        done = with_tile_size(a.d, snug_cuda_of(run)->block_memory, true, [&](auto size) {
            launch_dbias<decltype(value), decltype(size)>(a, run, o.bias, o.dbias, overwrite);
        });
    });
    return done;
}
