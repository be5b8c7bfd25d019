/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's backward pass on tensor cores, for heads of 32 to 256 channels, in five matmuls, with each mask
 * generated once. A block processes some blocks of keys of a head, one after the other, and loops over the queries of
 * the heads that read it in tiles: S^T = k q^T, dP^T = v do^T, from them, in registers, (F * P)^T and dS^T; dv += (F *
 * P)^T do, dk += dS^T q, left operands in registers, sums in registers; dq += dS k, through shared memory, because that
 * sum is over keys, which are divided among the warps. A query tile's dq is summed over the blocks of keys in fp32: in
 * the workspace, where each lane reads only its own writes. If there are few heads, several blocks share the keys of a
 * head, and a last kernel sums their dq, in order.
 *
 * Tiles of 128 or 256 channels have a block for each 64 of the gradients' channels; all compute S and dP, because
 * registers hold no more sums.
 */
#include "backend/cuda/attention/attention_mma.cuh"

/* The work of a block for tiles of D channels: the gradients of CHANNELS channels, for KEYS keys at a time, 32 per
   warp, in a loop over tiles of queries. */
template <typename E, int D> struct shape {
    typedef E operands;
    static constexpr bool WIDE = sizeof(stored<E>) == 4;
    static constexpr int HEAD = D, CHANNELS = D > 64 ? 64 : D, WARPS = SNUG_CUDA_MMA_WARPS(WIDE, D);
    static constexpr int THREADS = 32 * WARPS, KEYS = SNUG_CUDA_MMA_KEYS(WIDE, D);
    static constexpr int QUERIES = SNUG_CUDA_MMA_QUERIES(WIDE), N = QUERIES / 8;
    /* Layout of dS^T in shared memory. Rows of fp32 are padded, so a lane reads two queries of its keys without bank
       conflicts. */
    static constexpr int DS_ROW = WIDE ? 4 * (QUERIES + 4) : 2 * QUERIES;
    static constexpr int KEYS_BYTES = KEYS * ROW<E, D>, QUERIES_BYTES = QUERIES * ROW<E, D>, DS_BYTES = KEYS * DS_ROW;
    static constexpr int BYTES = 2 * KEYS_BYTES + 4 * QUERIES_BYTES + DS_BYTES + 2 * QUERIES * 16;
};

struct backward {
    uint4 *rows;      /* [a.heads, stride]: a value per query, see row_kernel */
    float4 *sums;     /* [shares, heads, tiles, …]: dq of each tile of queries */
    int64_t stride;   /* of rows */
    int64_t tiles;    /* of all sequences, of a head */
    int first, heads; /* those of this launch: all, or with positions those of a pass */
    int shares;       /* blocks that share a head's keys */
    int share;        /* blocks of keys of each */
};

/* Tile numbers assume that each earlier sequence has one more tile than it fills. */
template <typename S> static __device__ __forceinline__ int64_t first_tile(const struct head &head, int sequence) {
    return head.first / S::QUERIES + sequence;
}

/* Tiles of queries whose windows include a block of keys, and blocks of keys within a tile's windows. */
template <typename S>
static __device__ __forceinline__ struct range tiles_of_keys(const struct attention &a, const struct head &head,
                                                             int block) {
    const struct range seen = queries_of(a, block * S::KEYS, S::KEYS, head.length, S::QUERIES);
    return {seen.first / S::QUERIES, (seen.end + S::QUERIES - 1) / S::QUERIES};
}
template <typename S>
static __device__ __forceinline__ struct range blocks_of_queries(const struct attention &a, const struct head &head,
                                                                 int tile) {
    const struct range seen = keys_of(a, tile * S::QUERIES, S::QUERIES, head.length, S::KEYS);
    return {seen.first / S::KEYS, (seen.end + S::KEYS - 1) / S::KEYS};
}

/* And computes its part of the random numbers. */
template <typename T, int D>
static __global__ void __launch_bounds__(ROW_THREADS) row_kernel(const struct attention a, const struct backward b) {
    if (blockIdx.z == gridDim.z - 1) return clear_gradients<T>(a);
    const struct head head = head_of(a, blockIdx.z, 0);
    for_rows<T, D>(a, head, [&](int row, int64_t token, int index, float lse, float delta) {
        const struct pair_part part = pair_part_of(head, (uint32_t)row / 2);
        b.rows[index * b.stride + token] =
            make_uint4(__float_as_uint(lse), __float_as_uint(delta), part.high, part.low);
    });
}

/* ---- a block's work ---- */

/* Loads a tile of queries, do, lse and delta. */
template <typename S>
static __device__ __forceinline__ void copy_queries(uint4 *q, uint4 *dout, uint4 *rows, const struct attention &a,
                                                    const struct backward &b, const struct head &head, int index,
                                                    int q0) {
    typedef stored<typename S::operands> T;
    const int64_t column = (int64_t)index * a.d;
    copy_tile<S::HEAD, S::QUERIES, S::THREADS, AS_THEY_ARE>(q, (const T *)a.q + head.first * a.q_row + column, a.q_row,
                                                            head.length, q0, a.d);
    copy_tile<S::HEAD, S::QUERIES, S::THREADS, AS_THEY_ARE>(dout, (const T *)a.dout + head.first * a.h + column, a.h,
                                                            head.length, q0, a.d);
    if (threadIdx.x < S::QUERIES) {
        const int r = q0 + threadIdx.x;
        const bool there = r < head.length; /* else P is 1, and dP and delta are 0 */
        copy16(rows + threadIdx.x, b.rows + index * b.stride + head.first + (there ? r : 0), there);
    }
}

/* From S^T and dP^T of 32 keys and a tile of queries, (F * P)^T and dS^T; dS without dropout's factor, times the cap's
   derivative. */
template <typename E, bool DROP, unsigned FORM, int N>
static __device__ __forceinline__ void
probabilities(operand<E, 2, N> &p, operand<E, 2, N> &ds, float (&s)[2][N][4], float (&dp)[2][N][4],
              const struct attention &a, const struct head &head, const struct quad_part &quad, const uint4 *rows) {
    const float scale = a.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < N; n++) {
        struct snug_philox_block random;
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const uint4 row = rows[8 * n + 2 * (threadIdx.x % 4) + odd];
            const float lse = __uint_as_float(row.x), delta = __uint_as_float(row.y);
            if (DROP && !odd) random = random_of(head, quad, {row.z, row.w});
#pragma unroll
            for (int r = 0; r < 4; r++) { /* the lane's keys, see KEYS_IN_ROWS */
                float &x = s[r / 2][n][2 * (r % 2) + odd], &y = dp[r / 2][n][2 * (r % 2) + odd];
                float slope = 1;
                if (FORM & CAPPED && x != HIDDEN) {
                    const float t = x * (a.scale / a.softcap);
                    slope = 1 - t * t;
                }
                const bool keep = !DROP || snug_dropout_half(random.word[r], odd) >= a.dropout.threshold;
                const float e = quick_exp2(fmaf(x, scale, -lse));
                x = keep ? e : 0;
                y = e * ((keep ? y : 0) - delta) * slope;
            }
        }
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                p.put(m, n, half, s[m][n][2 * half], s[m][n][2 * half + 1]);
                ds.put(m, n, half, dp[m][n][2 * half], dp[m][n][2 * half + 1]);
            }
    }
}

/* Masks elements of S^T of 32 keys from key on, of which a lane has 4, and a tile of queries. */
template <int N>
static __device__ __forceinline__ void hide_keys(float (&s)[2][N][4], const struct attention &a, int q0, int key) {
    if (sees_all(a, q0, 8 * N, key, 32)) return;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (is_hidden(a, q0 + 8 * n + lane % 4 * 2 + i % 2, key + lane / 4 * 4 + 2 * m + i / 2))
                    s[m][n][i] = HIDDEN;
}

template <int N> static __device__ __forceinline__ void cap_scores(float (&s)[2][N][4], const struct attention &a) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) cap_score(a, s[m][n][i]);
}

template <int N>
static __device__ __forceinline__ void add_biases(float (&s)[2][N][4], const float *biases, int q0, int key) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] +=
                    biases[distance_of(q0 + 8 * n + lane % 4 * 2 + i % 2, key + lane / 4 * 4 + 2 * m + i / 2)];
}

/* Nothing is added to pairs after the end of the sequence. */
template <typename T, int N>
static __device__ __forceinline__ void add_positions(float (&s)[2][N][4], const struct attention &a,
                                                     const struct head &head, int q0, int key0) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int query = q0 + 8 * n + lane % 4 * 2 + i % 2, key = key0 + lane / 4 * 4 + 2 * m + i / 2;
                if (query < head.length && key < head.length)
                    s[m][n][i] += position_score<T>(a.positions, head, query, key);
            }
}

/* Stores dS for the gradients of position keys, by query (a lane has 4 consecutive keys), and of position queries, by
   key. */
template <typename T, int N>
static __device__ __forceinline__ void store_pairs(const struct attention &a, const struct head &head,
                                                   const float (&ds)[2][N][4], int q0, int key0) {
    const struct position_scores &p = a.positions;
    const int query0 = q0 + threadIdx.x % 4 * 2, key = key0 + threadIdx.x % 32 / 4 * 4;
    const int64_t first = first_of(p, head);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int query = query0 + 8 * n;
#pragma unroll
        for (int odd = 0; odd < 2; odd++)
            if (p.of_query && query + odd < head.length && key < head.length)
                store<4>((T *)p.of_query + (first + query + odd) * p.others + key,
                         {ds[0][n][odd], ds[0][n][2 + odd], ds[1][n][odd], ds[1][n][2 + odd]});
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (p.of_key && query < head.length && key + r < head.length)
                store_pair((T *)p.of_key + (first + key + r) * p.others + query, ds[r / 2][n][r % 2 * 2],
                           ds[r / 2][n][r % 2 * 2 + 1]);
    }
}

/* Rows after the last key are zero, but P may be infinite there: it must not reach dq. */
template <typename E, int N> static __device__ __forceinline__ void clear_keys(operand<E, 2, N> &ds, int valid) {
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int n = 0; n < N; n++)
            if (r >= valid) ds.clear(r / 2, n, r % 2);
}

/* ---- dS^T as a tile of keys by queries ---- */

template <typename S, typename E, int N>
static __device__ __forceinline__ void store_ds(uint4 *tile, const operand<E, 2, N> &ds, int row) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int key = row + 16 * m + 8 * half + g;
                if constexpr (S::WIDE)
                    *(float2 *)((float *)tile + key * S::DS_ROW / 4 + 8 * n + 2 * t) =
                        make_float2(ds.value[m][n][2 * half], ds.value[m][n][2 * half + 1]);
                else
                    ((uint32_t *)tile)[4 * piece_of<S::DS_ROW>(key, n) + t] = ds.word[m][n][half];
            }
}

/* A lane's address for load_ds, from base on: 16 queries, and the keys of one instruction's depth. */
template <typename S> static __device__ __forceinline__ uint32_t ds_of(uint32_t base, int query) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if constexpr (S::WIDE) return base + 2 * t * S::DS_ROW + 4 * (query + 2 * g);
    return (base + by_columns<S::DS_ROW>()) ^ 2 * query;
}

/* dS as a left operand; with fp32, its rows g and g + 8 are queries 2 g and 2 g + 1: see query_of. */
template <typename S> static __device__ __forceinline__ words<typename S::operands, 4> load_ds(uint32_t at, int tile) {
    uint32_t raw[4];
    if constexpr (S::WIDE) {
        uint32_t low[2], high[2];
        load_words(low, at + tile);
        load_words(high, at + tile + S::DS_ROW);
        raw[0] = low[0], raw[1] = low[1], raw[2] = high[0], raw[3] = high[1];
    } else {
        load_turned(raw, at + tile);
    }
    return prepare<typename S::operands>(raw);
}

template <typename S> static __device__ __forceinline__ int query_of(int half) {
    const int g = threadIdx.x % 32 / 4;
    return S::WIDE ? 2 * g + half : 8 * half + g;
}

/* ---- what is written ---- */

/* Stores 16 rows of dq from q0 on, 8 N channels. */
template <typename S, int N>
static __device__ __forceinline__ void store_dq(const struct attention &a, const struct head &head,
                                                const float (&dq)[N][4], int q0, int channel) {
    typedef typename S::operands E;
    const float scale = a.scale * a.dropout.scale;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = q0 + query_of<S>(half);
        if (r >= head.length) continue;
        store_row<E>((stored<E> *)a.dq + (head.first + r) * a.q_row + head.column + channel, dq, half, scale,
                     a.d - channel);
    }
}

/* Stores dk or dv of a warp's 32 keys from key on, 8 N channels. */
template <typename E, int N>
static __device__ __forceinline__ void store_keys(stored<E> *to, int64_t stride, const float (&sum)[2][N][4],
                                                  float scale, int key, int length, int channels) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int row = key + lane / 4 * 4 + r;
        if (row >= length) continue;
        store_row<E>(to + row * stride, sum[r / 2], r % 2, scale, channels);
    }
}

/* A warp's part of a tile's dq: 16 queries, and channels that depend on how many warps there are. */
template <typename S> struct dq_part {
    static constexpr int ROWS = S::QUERIES / 16, CHANNELS = ROWS * S::CHANNELS / S::WARPS, N = CHANNELS / 8;
    static __device__ __forceinline__ int row() { return threadIdx.x / 32 % ROWS * 16; }
    static __device__ __forceinline__ int channel() { return threadIdx.x / (32 * ROWS) * CHANNELS; }
    /* The lane's sums, 32 elements apart. */
    static __device__ __forceinline__ float4 *sums(const struct backward &b, const struct head &head, int part,
                                                   int share, int64_t tile) {
        const int64_t of_head = ((int64_t)share * b.heads + head.index - b.first) * (S::HEAD / S::CHANNELS) + part;
        return b.sums + (of_head * b.tiles + tile) * (S::QUERIES * S::CHANNELS / 4) + threadIdx.x / 32 * (N * 32) +
               threadIdx.x % 32;
    }
};

/* dq += dS k of 16 queries and 8 N channels; ds: address of the queries in the tile of keys by queries. */
template <typename S, int N>
static __device__ __forceinline__ void add_ds(float (&dq)[N][4], uint32_t ds, int ds_tile, uint32_t keys) {
    typedef typename S::operands E;
    constexpr int W = LOADED<E, N>;
#pragma unroll
    for (int i = 0; i < S::KEYS; i += DEPTH<E>) {
        const words<E, 4> left = load_ds<S>(ds, ds_tile + i * S::DS_ROW);
#pragma unroll
        for (int n = 0; n < N; n += W) {
            const words<E, 2 *W> right = load_depth<E, S::HEAD, W>(keys ^ ROW<E, 8> * n, i * ROW<E, S::HEAD>);
#pragma unroll
            for (int k = 0; k < W; k++) multiply(dq[n + k], left, right, k);
        }
    }
}

template <int N> static __device__ __forceinline__ void add_sums(float (&dq)[N][4], const float4 (&sums)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        dq[n][0] += sums[n].x;
        dq[n][1] += sums[n].y;
        dq[n][2] += sums[n].z;
        dq[n][3] += sums[n].w;
    }
}
template <int N> static __device__ __forceinline__ void store_sums(float4 *to, const float (&dq)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) to[32 * n] = make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
}

template <typename S, bool DROP, unsigned FORM>
static __global__ void __launch_bounds__(S::THREADS, 8 / S::WARPS)
    backward_kernel(const struct attention a, const struct backward b) {
    typedef typename S::operands E;
    typedef stored<E> T;
    constexpr int D = S::HEAD, C = S::CHANNELS, THREADS = S::THREADS, KEYS = S::KEYS, QUERIES = S::QUERIES, N = S::N;
    constexpr int TILE = S::QUERIES_BYTES; /* bytes, as the next ones; after k */
    constexpr int V = S::KEYS_BYTES, Q = 2 * V, DOUT = Q + 2 * TILE, DS = DOUT + 2 * TILE;
    typedef dq_part<S> mine;
    if (!is_compiled<E>()) return;
    extern __shared__ __align__(1024) uint4 shared[];
    uint4 *rows = shared + (DS + S::DS_BYTES) / 16;
    float *biases = (float *)(rows + 2 * QUERIES);
    struct head head = head_of(a, blockIdx.z, b.first + blockIdx.y * a.group);
    const int part = blockIdx.x % (D / C), share = blockIdx.x / (D / C);
    if (part * C >= a.d) return;
    const int blocks = (head.length + KEYS - 1) / KEYS, tiles = (head.length + QUERIES - 1) / QUERIES;
    const int end_head = (blockIdx.y + 1) * a.group; /* of those that read these keys */
    const int begin = share * b.share, end = begin + b.share < blocks ? begin + b.share : blocks;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 32;
    const uint32_t base = shared_address(shared), own_at = base + by_rows<ROW<E, D>>() + row * ROW<E, D>;
    const uint32_t keys_at = (base + by_depth<E, D, mine::N>()) ^ ROW<E, 1> * (part * C + mine::channel());
    const uint32_t ds_at = ds_of<S>(base, mine::row());

    const T *keys = (const T *)a.k + head.first * a.k_row + head.keys,
            *values = (const T *)a.v + head.first * a.v_row + head.keys;
    float4 *sums = mine::sums(b, head, part, share, first_tile<S>(head, blockIdx.z));

    if (FORM & BIASED) load_biases<THREADS>(biases, a, head);
    for (int block = begin; block < end; block++) {
        struct range seen = {0, tiles}; /* tiles of queries */
        if (FORM & WINDOWED) seen = tiles_of_keys<S>(a, head, block);
        const int k0 = block * KEYS, valid = head.length - (k0 + row + lane / 4 * 4);
        bool first = block == begin, last = block == end - 1 && begin == 0 && end == blocks;
        __syncthreads(); /* the previous block no longer needs shared memory */
        copy_tile<D, KEYS, THREADS, KEYS_IN_ROWS>(shared, keys, a.k_row, head.length, k0, a.d);
        copy_tile<D, KEYS, THREADS, KEYS_IN_ROWS>(shared + V / 16, values, a.v_row, head.length, k0, a.d);
        if (FORM & GROUPED) choose_head(head, a, blockIdx.y * a.group);
        copy_queries<S>(shared + Q / 16, shared + DOUT / 16, rows, a, b, head, head.index, seen.first * QUERIES);
        commit_copies();
        struct quad_part quad;
        if (DROP) quad = quad_part_of(head, (uint32_t)(k0 + row + lane / 4 * 4) / 4);
        if (FORM & GROUPED) sums = mine::sums(b, head, part, share, first_tile<S>(head, blockIdx.z));
        float dk[2][C / 8][4] = {}, dv[2][C / 8][4] = {};
        for (int tile = seen.first, stage = 0; tile < seen.end; tile++, stage ^= 1) {
            wait_copies<0>();
            __syncthreads(); /* this tile has arrived; the other stage, and dS, are free */
            const bool turns = (FORM & GROUPED) && tile + 1 == seen.end && head.index + 1 < end_head;
            if (tile + 1 < seen.end || turns) {
                const int other = (stage ^ 1) * TILE / 16;
                copy_queries<S>(shared + Q / 16 + other, shared + DOUT / 16 + other, rows + (stage ^ 1) * QUERIES, a, b,
                                head, head.index + turns, (turns ? seen.first : tile + 1) * QUERIES);
            }
            commit_copies();
            const uint32_t columns_at = base + by_columns<ROW<E, D>>() + stage * TILE;
            const uint32_t rows_at = (base + by_depth<E, D, C / 8>() + stage * TILE) ^ ROW<E, 1> * part * C;
            operand<E, 2, N> p, ds;
            {
                float s[2][N][4], dp[2][N][4];
                rows_by_rows<E, D, 2, N>(s, own_at, 0, columns_at, Q);
                if (FORM & CAPPED) cap_scores(s, a);
                if (FORM & WINDOWED) hide_keys(s, a, tile * QUERIES, k0 + row);
                if (FORM & BIASED) add_biases(s, biases, tile * QUERIES, k0 + row);
                if (FORM & POSITIONED) add_positions<T>(s, a, head, tile * QUERIES, k0 + row);
                rows_by_rows<E, D, 2, N>(dp, own_at, V, columns_at, DOUT);
                probabilities<E, DROP, FORM>(p, ds, s, dp, a, head, quad, rows + stage * QUERIES);
                if ((FORM & POSITIONED) && part == 0) store_pairs<T>(a, head, dp, tile * QUERIES, k0 + row);
            }
            if (k0 + row + 32 > head.length) clear_keys(ds, valid);
            store_ds<S>(shared + DS / 16, ds, row);
            add_matmul<E, D, C>(dv, p, rows_at, DOUT);
            add_matmul<E, D, C>(dk, ds, rows_at, Q);
            __syncthreads(); /* dS of all keys is stored */

            if (FORM & WINDOWED) {
                const struct range of = blocks_of_queries<S>(a, head, tile);
                first = block == begin || block == of.first;
                last = block == of.end - 1 && begin <= of.first && of.end <= end;
            }
            float dq[mine::N][4] = {};
            float4 before[mine::N], *const sum = sums + tile * (QUERIES * C / 4); /* partial dq, of other keys */
            if (!first)
#pragma unroll
                for (int n = 0; n < mine::N; n++) before[n] = sum[32 * n];
            add_ds<S>(dq, ds_at, DS, keys_at);
            if (!first) add_sums(dq, before);
            if (last)
                store_dq<S>(a, head, dq, tile * QUERIES + mine::row(), part * C + mine::channel());
            else
                store_sums(sum, dq);
            if (turns) { /* to the next head */
                tile = seen.first - 1;
                choose_head(head, a, head.index + 1);
                sums = mine::sums(b, head, part, share, first_tile<S>(head, blockIdx.z));
                if (DROP) quad = quad_part_of(head, (uint32_t)(k0 + row + lane / 4 * 4) / 4);
            }
        }
        const int64_t column = head.keys + part * C;
        store_keys<E>((T *)a.dk + head.first * a.k_row + column, a.k_row, dk, a.scale * a.dropout.scale, k0 + row,
                      head.length, a.d - part * C);
        store_keys<E>((T *)a.dv + head.first * a.v_row + column, a.v_row, dv, a.dropout.scale, k0 + row, head.length,
                      a.d - part * C);
    }
}

/* Sums dq of sequences whose keys several blocks shared. */
template <typename S>
static __global__ void __launch_bounds__(S::THREADS)
    add_shares_kernel(const struct attention a, const struct backward b) {
    typedef dq_part<S> mine;
    const struct head head = head_of(a, blockIdx.z, b.first + blockIdx.y);
    const int part = blockIdx.x % (S::HEAD / S::CHANNELS), tile = blockIdx.x / (S::HEAD / S::CHANNELS);
    if (tile * S::QUERIES >= head.length || part * S::CHANNELS >= a.d) return;
    /* All shares, or those within the window; a single share has already stored dq. */
    const struct range blocks = blocks_of_queries<S>(a, head, tile);
    const int begin = blocks.first / b.share, end = (blocks.end - 1) / b.share + 1;
    if (end - begin < 2) return;
    float dq[mine::N][4] = {};
    for (int share = begin; share < end; share++) {
        const float4 *from = mine::sums(b, head, part, share, first_tile<S>(head, blockIdx.z) + tile);
        float4 sums[mine::N];
#pragma unroll
        for (int n = 0; n < mine::N; n++) sums[n] = from[32 * n];
        add_sums(dq, sums);
    }
    store_dq<S>(a, head, dq, tile * S::QUERIES + mine::row(), part * S::CHANNELS + mine::channel());
}

/* ---- launching ---- */

template <typename S, bool DROP, unsigned FORM>
static void launch(const struct attention &a, const struct backward &b, const struct snug_run *run) {
    const unsigned heads = (unsigned)b.heads, sequences = (unsigned)run->batch->sequences;
    const unsigned parts = S::HEAD / S::CHANNELS;
    cudaStream_t stream = snug_cuda_of(run)->stream;
    const dim3 grid((unsigned)b.shares * parts, heads / (unsigned)a.group, sequences);
    const dim3 tiles(blocks_for(run->program->longest, S::QUERIES) * parts, heads, sequences);
    const int bytes = S::BYTES + (FORM & BIASED ? DISTANCES * 4 : 0);
    const auto kernel = backward_kernel<S, DROP, FORM>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, S::THREADS, bytes, stream>>>(a, b);
    if (b.shares > 1) add_shares_kernel<S><<<tiles, S::THREADS, 0, stream>>>(a, b);
}

/* The kernels' scratch; computes their rows. */
template <typename S, unsigned FORM>
static struct backward prepare(const struct attention &a, const struct snug_run *run) {
    const struct snug_program *program = run->program;
    const int64_t sequences = run->batch->sequences, longest = program->longest > 0 ? program->longest : 1;
    const bool some = FORM & POSITIONED;
    struct backward b = {.rows = (uint4 *)a.workspace};
    b.first = some ? a.positions.first : 0;
    b.heads = some ? a.positions.heads : a.heads;
    b.stride = program->capacity[SNUG_EXTENT_TOKENS] + SNUG_ROW_TILE;
    b.sums = (float4 *)((uint8_t *)a.workspace + snug_cuda_mma_row_bytes(program, a.heads));
    b.tiles = snug_cuda_mma_tiles(S::WIDE, a.bucket, sequences);
    static_assert(sizeof *b.rows == SNUG_CUDA_MMA_ROW, "the size of the workspace depends on it");
    const int64_t blocks = blocks_for(longest, S::KEYS), once = b.tiles * S::QUERIES * b.heads * S::HEAD * 4;
    const int64_t heads = a.bucket * (b.heads / a.group) / longest + 1; /* if all sequences had full length */
    int64_t shares = 4 * snug_cuda_of(run)->multiprocessors / heads;
    const int64_t room = snug_cuda_mma_sum_bytes(program, S::WIDE, S::HEAD, a.heads, a.kv_heads) / once;
    if (shares > room) shares = room;
    if (shares > blocks) shares = blocks;
    b.share = (int)(shares > 1 ? (blocks + shares - 1) / shares : blocks);
    b.shares = (int)((blocks + b.share - 1) / b.share);
    const dim3 rows(blocks_for(longest, ROW_BLOCK), 1, (unsigned)sequences + 1);
    row_kernel<stored<typename S::operands>, S::HEAD><<<rows, ROW_THREADS, 0, snug_cuda_of(run)->stream>>>(a, b);
    return b;
}

/* False if a block has too little shared memory. */
template <typename S, unsigned FORM> static bool launch_form(const struct attention &a, const struct snug_run *run) {
    if (S::BYTES + (FORM & BIASED ? DISTANCES * 4 : 0) > snug_cuda_of(run)->block_memory) return false;
    const struct backward b = prepare<S, FORM>(a, run);
    if (run->batch->sequences == 0) return true;
    if constexpr ((FORM & POSITIONED) && !S::WIDE) {
        const bool is_f16 = std::is_same_v<typename S::operands, f16>;
        snug_cuda_attention_mma_delta(a, run, is_f16 ? SNUG_F16 : SNUG_BF16, b.rows, b.stride);
    }
    if constexpr (!(FORM & CAPPED))
        if (a.dropout.threshold) return launch<S, true, FORM>(a, b, run), true;
    launch<S, false, FORM>(a, b, run);
    return true;
}

/* As choose_width() of attention_mma.cu; a single head is a group, too. */
template <typename S> static bool choose_width(const struct attention &a, const struct snug_run *run) {
    const unsigned form = form_of(a);
    if constexpr (S::HEAD < 256)
        if (form == PLAIN && a.group == 1) return launch_form<S, PLAIN>(a, run);
    if constexpr (S::HEAD == 64) {
        if (form == WINDOWED && a.group == 1) return launch_form<S, WINDOWED>(a, run);
        if (form == BIASED && a.group == 1) return launch_form<S, BIASED>(a, run);
    }
    if constexpr (S::HEAD <= 128)
        if (form == POSITIONED) return launch_form<S, POSITIONED>(a, run);
    if (form == PLAIN || form == WINDOWED) return launch_form<S, WINDOWED | GROUPED>(a, run);
    if constexpr (S::HEAD >= 128 && !S::WIDE)
        if (!(form & BIASED) && !a.dropout.threshold) return launch_form<S, WINDOWED | CAPPED | GROUPED>(a, run);
    return false;
}

bool snug_cuda_attention_mma_backward(const struct attention &a, const struct snug_run *run, enum snug_dtype type) {
    return with_operands(snug_cuda_of(run), type, [&](auto operands) {
        typedef decltype(operands) E;
        switch (SNUG_CUDA_MMA_WIDTH(a.d)) {
        case 32: return choose_width<shape<E, 32>>(a, run);
        case 64: return choose_width<shape<E, 64>>(a, run);
        case 128: return choose_width<shape<E, 128>>(a, run);
        case 256: return choose_width<shape<E, 256>>(a, run);
        default: return false;
        }
    });
}
