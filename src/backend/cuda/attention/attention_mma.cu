/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's forward pass on tensor cores, for heads of 32 to 256 channels, in tiles of 32, 64, 128 or 256: a block
 * has WARPS * M * 16 queries of a head and loops over the keys in tiles, with a running maximum and sum for each row.
 */
#include "backend/cuda/attention/attention_mma.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS };

/* A lane's key of result n, register i, within the tile: see KEYS_IN_COLUMNS. */
static __device__ __forceinline__ int key_of(int n, int i) {
    return 8 * (n & ~1) + 4 * (threadIdx.x % 4) + 2 * (n & 1) + i % 2;
}

/* Masks keys of queries row …; a lane has two of each. */
template <int M, int N>
static __device__ __forceinline__ void hide_keys(float (&s)[M][N][4], const struct attention &a, int row, int k0) {
    if (sees_all(a, row, 16 * M, k0, 8 * N)) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (is_hidden(a, row + 16 * m + (int)threadIdx.x % 32 / 4 * 2 + i / 2, k0 + key_of(n, i)))
                    s[m][n][i] = HIDDEN;
}

template <int M, int N>
static __device__ __forceinline__ void add_biases(float (&s)[M][N][4], const float *biases, int row, int k0) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] +=
                    biases[distance_of(row + 16 * m + (int)threadIdx.x % 32 / 4 * 2 + i / 2, k0 + key_of(n, i))];
}

template <int M, int N>
static __device__ __forceinline__ void cap_scores(float (&s)[M][N][4], const struct attention &a) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) cap_score(a, s[m][n][i]);
}

/* Nothing is added to pairs after the end of the sequence. */
template <typename T, int M, int N>
static __device__ __forceinline__ void add_positions(float (&s)[M][N][4], const struct attention &a,
                                                     const struct head &head, int row, int k0) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int query = row + 16 * m + (int)threadIdx.x % 32 / 4 * 2 + i / 2, key = k0 + key_of(n, i);
                if (query < head.length && key < head.length)
                    s[m][n][i] += position_score<T>(a.positions, head, query, key);
            }
}

/* Loads the next tile of keys, and computes their part of dropout's random numbers. */
template <int D, int KEYS, bool DROP, typename T>
static __device__ __forceinline__ void copy_keys(uint4 *k, uint4 *v, struct quad_part *quads, const struct attention &a,
                                                 const struct head &head, const T *keys, const T *values, int k0) {
    copy_tile<D, KEYS, THREADS, KEYS_IN_COLUMNS>(k, keys, a.k_row, head.length, k0, a.d);
    copy_tile<D, KEYS, THREADS, KEYS_IN_COLUMNS>(v, values, a.v_row, head.length, k0, a.d);
    if (DROP && threadIdx.x < KEYS / 4) quads[threadIdx.x] = quad_part_of(head, (uint32_t)k0 / 4 + threadIdx.x);
}

/*
 * Updates the rows' maxima, which keep powers in range. Any number near the maximum does so, too: they change only when
 * a score exceeds them by a factor of 2^8 (probabilities in bf16 or fp16 have the same precision then, and sums are
 * fp32), so earlier sums are rarely rescaled.
 */
template <int M, int N, int COLUMNS>
static __device__ __forceinline__ void raise_maxima(float (&max)[M][2], float (&sum)[M][2], float (&o)[M][COLUMNS][4],
                                                    const float (&s)[M][N][4], float scale) {
    float top[M][2];
    bool above = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float highest = -INFINITY;
#pragma unroll
            for (int n = 0; n < N; n++) highest = fmaxf(highest, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            top[m][half] = quad_max(highest);
            above |= (top[m][half] - max[m][half]) * scale > 8;
        }
    if (!__any_sync(FULL_WARP, above)) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float raised = fmaxf(max[m][half], top[m][half]);
            const float shrink = quick_exp2((max[m][half] - raised) * scale);
            max[m][half] = raised;
            sum[m][half] *= shrink;
#pragma unroll
            for (int n = 0; n < COLUMNS; n++) {
                o[m][n][2 * half] *= shrink;
                o[m][n][2 * half + 1] *= shrink;
            }
        }
}

/* BLOCKS: per multiprocessor, which determines how many registers are available for prefetching. */
template <typename E, int D, int M, int KEYS, int BLOCKS, bool DROP, unsigned FORM>
static __global__ void __launch_bounds__(THREADS, BLOCKS) forward_kernel(const struct attention a) {
    typedef stored<E> T;
    constexpr int ROWS = WARPS * M * 16, N = KEYS / 8, BYTES = KEYS * ROW<E, D>, TILE = BYTES / 16;
    extern __shared__ __align__(1024) uint4 shared[];
    uint4 *q = shared, *k = q + ROWS * ROW<E, D> / 16, *v = k + 2 * TILE;
    struct quad_part *quads = (struct quad_part *)(v + 2 * TILE);
    float *biases = (float *)(quads + (DROP ? 2 * KEYS / 4 : 0));
    if (!is_compiled<E>()) return;
    if (blockIdx.z == gridDim.z - 1) return clear_tail<T>(a, a.o, a.h, a.h);
    const struct head head = head_of(a, blockIdx.z, (FORM & POSITIONED ? a.positions.first : 0) + blockIdx.y);
    const int q0 = blockIdx.x * ROWS, lane = threadIdx.x % 32, row = threadIdx.x / 32 * M * 16;
    const T *keys = (const T *)a.k + head.first * a.k_row + head.keys;
    const T *values = (const T *)a.v + head.first * a.v_row + head.keys;
    if (q0 >= head.length) return;
    copy_tile<D, ROWS, THREADS, QUERIES_IN_ROWS>(q, (const T *)a.q + head.first * a.q_row + head.column, a.q_row,
                                                 head.length, q0, a.d);
    const int first = FORM & WINDOWED ? keys_of(a, q0, ROWS, head.length, KEYS).first : 0;
    const int end = FORM & WINDOWED ? keys_of(a, q0, ROWS, head.length, KEYS).end : head.length;
    copy_keys<D, KEYS, DROP>(k, v, quads, a, head, keys, values, first);
    commit_copies();
    if (FORM & BIASED) load_biases<THREADS>(biases, a, head);
    struct pair_part pairs[M];
#pragma unroll
    for (int m = 0; m < M; m++)
        if (DROP) pairs[m] = pair_part_of(head, (uint32_t)(q0 + row + 16 * m) / 2 + lane / 4);

    const uint32_t base = shared_address(shared), q_at = base + by_rows<ROW<E, D>>() + row * ROW<E, D>;
    const uint32_t k_at = base + by_columns<ROW<E, D>>() + ROWS * ROW<E, D>;
    const uint32_t v_at = base + by_depth<E, D, D / 8>() + ROWS * ROW<E, D>;
    float o[M][D / 8][4] = {}, max[M][2], sum[M][2] = {};
#pragma unroll
    for (int m = 0; m < M; m++) max[m][0] = max[m][1] = -INFINITY;
    const float scale = a.scale * LOG2_E; /* powers of two from here on */
    for (int k0 = first, stage = 0; k0 < end; k0 += KEYS, stage ^= 1) {
        wait_copies<0>();
        __syncthreads(); /* this tile has arrived, and the other stage is free */
        if (k0 + KEYS < end)
            copy_keys<D, KEYS, DROP>(k + (stage ^ 1) * TILE, v + (stage ^ 1) * TILE, quads + (stage ^ 1) * KEYS / 4, a,
                                     head, keys, values, k0 + KEYS);
        commit_copies();
        float s[M][N][4];
        rows_by_rows<E, D, M, N>(s, q_at, 0, k_at + stage * BYTES, 0);
        if (FORM & CAPPED) cap_scores(s, a);
        if (FORM & WINDOWED) hide_keys(s, a, q0 + row, k0);
        if (FORM & BIASED) add_biases(s, biases, q0 + row, k0);
        if (FORM & POSITIONED) add_positions<T>(s, a, head, q0 + row, k0);
        if (k0 + KEYS > head.length) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (k0 + key_of(n, i) >= head.length)
#pragma unroll
                        for (int m = 0; m < M; m++) s[m][n][i] = -INFINITY;
        }
        raise_maxima(max, sum, o, s, scale);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float shift = max[m][half] * scale;
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++) {
                        s[m][n][i] = quick_exp2(fmaf(s[m][n][i], scale, -shift));
                        sum[m][half] += s[m][n][i];
                    }
            }
        operand<E, M, N> p;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            struct quad_part quad;
            if (DROP) quad = quads[(stage * KEYS + 8 * n) / 4 + lane % 4];
#pragma unroll
            for (int m = 0; m < M; m++) {
                struct snug_philox_block random;
                if (DROP) random = random_of(head, quad, pairs[m]);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *low = s[m][n] + 2 * half, *high = s[m][n + 1] + 2 * half;
#pragma unroll
                    for (int i = 0; DROP && i < 2; i++) {
                        low[i] = snug_dropout_half(random.word[i], half) >= a.dropout.threshold ? low[i] : 0;
                        high[i] = snug_dropout_half(random.word[2 + i], half) >= a.dropout.threshold ? high[i] : 0;
                    }
                    p.put(m, n, half, low[0], low[1]);
                    p.put(m, n + 1, half, high[0], high[1]);
                }
            }
        }
        add_matmul<E, D, D>(o, p, v_at + stage * BYTES, 2 * BYTES);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = q0 + row + 16 * m + lane / 4 * 2 + half;
            const float total = quad_sum(sum[m][half]), factor = a.dropout.scale / total;
            if (r >= head.length) continue;
            const int64_t token = head.first + r;
            store_row<E>((T *)a.o + token * a.h + head.column, o[m], half, factor, a.d);
            if (lane % 4 == 0) a.lse[token * a.heads + head.index] = max[m][half] * a.scale + LN_2 * log2f(total);
        }
}

/*
 * delta = sum of F P dP, into its place in rows: see struct backward. It is do . o, but for the rounding of o in 16
 * bits, which would add up in the gradients of position keys and queries.
 */
template <typename E, int D, bool DROP>
static __global__ void __launch_bounds__(THREADS) delta_kernel(const struct attention a, float4 *rows, int64_t stride) {
    typedef stored<E> T;
    constexpr int KEYS = 64, N = KEYS / 8, ROWS = WARPS * 16, OWN = ROWS * ROW<E, D>, TILE = KEYS * ROW<E, D>;
    extern __shared__ __align__(1024) uint4 shared[];
    uint4 *k = shared + 2 * OWN / 16, *v = k + TILE / 16;
    struct quad_part *quads = (struct quad_part *)(v + TILE / 16);
    if (!is_compiled<E>()) return;
    const struct head head = head_of(a, blockIdx.z, a.positions.first + blockIdx.y);
    const int q0 = blockIdx.x * ROWS, lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    const T *keys = (const T *)a.k + head.first * a.k_row + head.keys;
    const T *values = (const T *)a.v + head.first * a.v_row + head.keys;
    if (q0 >= head.length) return;
    copy_tile<D, ROWS, THREADS, QUERIES_IN_ROWS>(shared, (const T *)a.q + head.first * a.q_row + head.column, a.q_row,
                                                 head.length, q0, a.d);
    copy_tile<D, ROWS, THREADS, QUERIES_IN_ROWS>(shared + OWN / 16, (const T *)a.dout + head.first * a.h + head.column,
                                                 a.h, head.length, q0, a.d);
    const int query = q0 + row + lane / 4 * 2;
    const bool there[2] = {query < head.length, query + 1 < head.length};
    float4 *const own = rows + head.index * stride + head.first + query;
    const float lse[2] = {there[0] ? own[0].x : 0, there[1] ? own[1].x : 0}, scale = a.scale * LOG2_E;
    const struct pair_part pair = pair_part_of(head, (uint32_t)query / 2);
    const uint32_t base = shared_address(shared), own_at = base + by_rows<ROW<E, D>>() + row * ROW<E, D>;
    const uint32_t k_at = base + by_columns<ROW<E, D>>() + 2 * OWN;
    float sum[2] = {};
    for (int k0 = 0; k0 < head.length; k0 += KEYS) {
        __syncthreads(); /* the previous tile is no longer needed */
        copy_keys<D, KEYS, DROP>(k, v, quads, a, head, keys, values, k0);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
        float s[1][N][4], dp[1][N][4];
        rows_by_rows<E, D, 1, N>(s, own_at, 0, k_at, 0);
        add_positions<T>(s, a, head, q0 + row, k0);
        rows_by_rows<E, D, 1, N>(dp, own_at, OWN, k_at, TILE);
#pragma unroll
        for (int n = 0; n < N; n++) {
            struct snug_philox_block random;
            if (DROP) random = random_of(head, quads[2 * (n & ~1) + lane % 4], pair);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool kept =
                    !DROP || snug_dropout_half(random.word[n % 2 * 2 + i % 2], i / 2) >= a.dropout.threshold;
                if (kept && k0 + key_of(n, i) < head.length)
                    sum[i / 2] += quick_exp2(fmaf(s[0][n][i], scale, -lse[i / 2])) * dp[0][n][i];
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float delta = quad_sum(sum[half]);
        if (lane % 4 == 0 && there[half]) own[half].y = delta;
    }
}

/* ---- launching ---- */

template <typename E, int D, int M, int KEYS, bool DROP, unsigned FORM>
constexpr int SHARED_BYTES = (WARPS * M * 16 + 4 * KEYS) * ROW<E, D> + (DROP ? 2 * KEYS * 4 : 0) +
                             (FORM & BIASED ? DISTANCES * 4 : 0);

/* False if a block has too little shared memory. */
template <typename E, int D, int M, int KEYS, int BLOCKS, bool DROP, unsigned FORM>
static bool launch(const struct attention &a, const struct snug_run *run) {
    constexpr int ROWS = WARPS * M * 16, SHARED = SHARED_BYTES<E, D, M, KEYS, DROP, FORM>;
    if (SHARED > snug_cuda_of(run)->block_memory) return false;
    const int64_t longest = run->program->longest > 0 ? run->program->longest : 1;
    const int heads = FORM & POSITIONED ? a.positions.heads : a.heads;
    const dim3 grid(blocks_for(longest, ROWS), (unsigned)heads, (unsigned)run->batch->sequences + 1);
    const auto kernel = forward_kernel<E, D, M, KEYS, BLOCKS, DROP, FORM>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    kernel<<<grid, THREADS, SHARED, snug_cuda_of(run)->stream>>>(a);
    return true;
}

template <typename E, int D, int M, int KEYS, int BLOCKS, int DROP_KEYS = KEYS, int DROP_BLOCKS = BLOCKS,
          unsigned FORM = PLAIN>
static bool choose(const struct attention &a, const struct snug_run *run) {
    return a.dropout.threshold ? launch<E, D, M, DROP_KEYS, DROP_BLOCKS, true, FORM>(a, run)
                               : launch<E, D, M, KEYS, BLOCKS, false, FORM>(a, run);
}

/* Keys of a tile, and blocks per multiprocessor. For 16 bits as measured on an H200: larger tiles and fewer blocks with
   dropout, where random numbers dominate the time. With more keys, SPLIT operands would need too many registers. */
template <typename E, int D> static bool choose_rows(const struct attention &a, const struct snug_run *run) {
    constexpr bool WIDE = sizeof(stored<E>) == 4;
    constexpr int ROWS = WARPS * 32, KEYS = SPLITS<E> ? 16 : WIDE ? 32 : 64, MORE = SPLITS<E> ? 32 : 64;
    constexpr int FEWER = SPLITS<E> ? 16 : 32, BLOCKS = WIDE ? 2 : 3;
    const int64_t queries = a.bucket * a.heads, units = snug_cuda_of(run)->multiprocessors;
    if (queries <= ROWS / 2 * units) return choose<E, D, 1, MORE, 1>(a, run);
    /* With few queries in total, or sequences that would fill only a small part of a block: more blocks, with fewer
       rows. */
    if (queries < 2 * ROWS * units || a.bucket < 2 * ROWS * run->batch->sequences)
        return choose<E, D, 1, KEYS, 4>(a, run);
    return choose<E, D, 2, FEWER, BLOCKS, KEYS, 2>(a, run);
}

/* Few keys are shared by the queries of a larger block within a window; wide tiles have no registers for it. */
template <typename E, int D, unsigned FORM>
static bool choose_form(const struct attention &a, const struct snug_run *run) {
    constexpr bool WIDE = sizeof(stored<E>) == 4;
    constexpr int KEYS = D == 256 ? (WIDE ? 16 : 32) : SPLITS<E> ? 16 : WIDE ? 32 : 64;
    constexpr int BLOCKS = D == 256 ? (WIDE ? 1 : 2) : D == 128 ? (WIDE ? 2 : 3) : FORM & BIASED ? 3 : 4;
    if constexpr (FORM & CAPPED) return launch<E, D, 1, KEYS, BLOCKS, false, FORM>(a, run);
    if constexpr (D == 128 && std::is_same_v<E, f16>) { /* with the 64 KiB of compute capability 7.5 */
        constexpr int SHARED = SHARED_BYTES<E, D, 1, KEYS, true, FORM>;
        if (SHARED > snug_cuda_of(run)->block_memory) return choose<E, D, 1, KEYS / 2, 3, KEYS / 2, 3, FORM>(a, run);
    }
    return choose<E, D, 1, KEYS, BLOCKS, KEYS, BLOCKS, FORM>(a, run);
}

/* Those forms of a tile's width that models have; all keys are a window, too. */
template <typename E, int D> static bool choose_width(const struct attention &a, const struct snug_run *run) {
    const unsigned form = form_of(a);
    if (form == PLAIN) {
        if constexpr (D <= 64) return choose_rows<E, D>(a, run);
        if constexpr (D == 128) return choose_form<E, D, PLAIN>(a, run);
    }
    if constexpr (D <= 128)
        if (form == POSITIONED) return choose_form<E, D, POSITIONED>(a, run);
    if (form == PLAIN || form == WINDOWED) return choose_form<E, D, WINDOWED>(a, run);
    if constexpr (D == 64)
        if (form == BIASED) return choose_form<E, D, BIASED>(a, run);
    if constexpr (D >= 128 && sizeof(stored<E>) == 2)
        if (!(form & BIASED) && !a.dropout.threshold) return choose_form<E, D, WINDOWED | CAPPED>(a, run);
    return false;
}

template <typename E, int D>
static bool launch_delta(const struct attention &a, const struct snug_run *run, float4 *rows, int64_t stride) {
    constexpr int SHARED = 4 * 64 * ROW<E, D> + 64 * 4;
    const dim3 grid(blocks_for(run->program->longest, WARPS * 16), (unsigned)a.positions.heads,
                    (unsigned)run->batch->sequences);
    const auto kernel = a.dropout.threshold ? delta_kernel<E, D, true> : delta_kernel<E, D, false>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    kernel<<<grid, THREADS, SHARED, snug_cuda_of(run)->stream>>>(a, rows, stride);
    return true;
}

void snug_cuda_attention_mma_delta(const struct attention &a, const struct snug_run *run, enum snug_dtype type,
                                   void *rows, int64_t stride) {
    with_operands(snug_cuda_of(run), type, [&](auto operands) {
        typedef decltype(operands) E;
        if constexpr (sizeof(stored<E>) == 2) {
            switch (SNUG_CUDA_MMA_WIDTH(a.d)) {
            case 32: return launch_delta<E, 32>(a, run, (float4 *)rows, stride);
            case 64: return launch_delta<E, 64>(a, run, (float4 *)rows, stride);
            default: return launch_delta<E, 128>(a, run, (float4 *)rows, stride);
            }
        }
        return false;
    });
}

bool snug_cuda_attention_mma(const struct attention &a, const struct snug_run *run, enum snug_dtype type) {
    return with_operands(snug_cuda_of(run), type, [&](auto operands) {
        typedef decltype(operands) E;
        switch (SNUG_CUDA_MMA_WIDTH(a.d)) {
        case 32: return choose_width<E, 32>(a, run);
        case 64: return choose_width<E, 64>(a, run);
        case 128: return choose_width<E, 128>(a, run);
        case 256: return choose_width<E, 256>(a, run);
        default: return false;
        }
    });
}
