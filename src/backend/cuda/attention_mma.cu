/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in bf16 on tensor cores (mma.sync m16n8k16, fp32 sums), for heads of 32, 64 or 128 channels. What attention.cu
 * says holds here too: one owner for each output, one order of sums.
 *
 * Names of the instruction's registers: of a 16 x 8 result a lane holds rows g = lane / 4 and g + 8, columns 2 t and
 * 2 t + 1 with t = lane % 4. A result turned into the left operand of the next product needs no exchange, so the kernel
 * for keys computes S^T (keys by queries), and the others S.
 */
#include "backend/cuda/attention.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS };

/* ---- a tile of rows of D values in shared memory, in pieces of 16 bytes, swizzled against bank conflicts ---- */

template <int D> static __device__ __forceinline__ int piece_of(int row, int piece) {
    constexpr int PIECES = D / 8;
    if constexpr (PIECES >= 8) return row * PIECES + (piece ^ (row & 7));
    return row * PIECES + (piece ^ ((row >> 1) & 3));
}

static __device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Starts copying rows row0 … of the sequence; rows behind its end become zero. */
template <int D, int ROWS>
static __device__ __forceinline__ void copy_tile(uint4 *to, const bf16 *from, int64_t stride, const struct head &head,
                                                 int row0) {
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
        const int r = i / (D / 8), piece = i % (D / 8);
        const bool there = row0 + r < head.length;
        const bf16 *source = from + (int64_t)(head.first + (there ? row0 + r : 0)) * stride + head.column + 8 * piece;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to + piece_of<D>(r, piece))),
                     "l"(source), "r"(there ? 16 : 0));
    }
}

static __device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n"); }
template <int LEFT> static __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT));
}

static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const uint4 *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(at)));
}
static __device__ __forceinline__ void load_turned(uint32_t (&r)[4], const uint4 *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(at)));
}

/* 16 rows from row on, channels 16 k …: a left operand. */
template <int D> static __device__ __forceinline__ void load_left(uint32_t (&r)[4], const uint4 *tile, int row, int k) {
    const int lane = threadIdx.x % 32;
    load_matrices(r, tile + piece_of<D>(row + lane % 16, 2 * k + lane / 16));
}
/* Right operands of two 8-column results: columns are rows row … row + 15 of the tile, depth its channels 16 k …. */
template <int D> static __device__ __forceinline__ void load_right(uint32_t (&r)[4], const uint4 *tile, int row, int k) {
    const int lane = threadIdx.x % 32;
    load_matrices(r, tile + piece_of<D>(row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}
/* The same with depth over the tile's rows row … row + 15 and columns its channels 16 c …. */
template <int D>
static __device__ __forceinline__ void load_right_turned(uint32_t (&r)[4], const uint4 *tile, int row, int c) {
    const int lane = threadIdx.x % 32;
    load_turned(r, tile + piece_of<D>(row + lane % 16, 2 * c + lane / 16));
}

static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* out [M x 16 rows, N x 8 columns] = rows of left times rows of right, over D channels. */
template <int D, int M, int N>
static __device__ __forceinline__ void rows_by_rows(float (&out)[M][N][4], const uint4 *left, int left_row,
                                                    const uint4 *right) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) out[m][n][0] = out[m][n][1] = out[m][n][2] = out[m][n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++) load_left<D>(a[m], left, left_row + 16 * m, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_right<D>(b, right, 8 * n, k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(out[m][n], a[m], b[0], b[1]);
                multiply(out[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sum [M x 16 rows, D columns] += left (results of N x 8 columns) times the N x 8 rows of right. */
template <int D, int M, int N>
static __device__ __forceinline__ void add_product(float (&sum)[M][D / 8][4], const float (&left)[M][N][4],
                                                   const uint4 *right) {
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            a[m][0] = pack(left[m][2 * k][0], left[m][2 * k][1]);
            a[m][1] = pack(left[m][2 * k][2], left[m][2 * k][3]);
            a[m][2] = pack(left[m][2 * k + 1][0], left[m][2 * k + 1][1]);
            a[m][3] = pack(left[m][2 * k + 1][2], left[m][2 * k + 1][3]);
        }
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            load_right_turned<D>(b, right, 16 * k, c);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(sum[m][2 * c], a[m], b[0], b[1]);
                multiply(sum[m][2 * c + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* ---- dropout ---- */

/*
 * Kept bits of a lane's four elements of a 16 x 8 result, bit i for register i. A random block is four keys of a query.
 * Queries by keys: a row has two blocks, which two lanes share; a lane makes one and gives half of it away.
 */
static __device__ __forceinline__ uint32_t kept_by_rows(const struct head &head, uint32_t threshold, int query, int key) {
    const int lane = threadIdx.x % 32, odd = lane & 1;
    const uint32_t own =
        kept_quad(head, threshold, (uint32_t)(key / 4 + (lane >> 1 & 1)), (uint32_t)(query + lane / 4 + 8 * odd));
    const uint32_t other = __shfl_xor_sync(FULL_WARP, own, 1);
    const uint32_t low = odd ? other : own, high = odd ? own : other; /* of rows g and g + 8 */
    return (low >> 2 * odd & 3) | (high >> 2 * odd & 3) << 2;
}

/* Keys by queries: four lanes above each other share four blocks. */
static __device__ __forceinline__ uint32_t kept_by_columns(const struct head &head, uint32_t threshold, int key,
                                                           int query) {
    const int lane = threadIdx.x % 32, number = lane >> 2 & 3;
    const uint32_t own = kept_quad(head, threshold, (uint32_t)(key / 4 + (lane >> 4) + (number & 2)),
                                   (uint32_t)(query + 2 * (lane & 3) + (number & 1)));
    uint32_t all = own << 4 * number;
    all |= __shfl_xor_sync(FULL_WARP, all, 4);
    all |= __shfl_xor_sync(FULL_WARP, all, 8);
    all >>= number; /* this lane's key is number number of its block */
    return (all & 1) | (all >> 3 & 2) | (all >> 6 & 4) | (all >> 9 & 8);
}

static __device__ __forceinline__ float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 1));
    return fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 2));
}
static __device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(FULL_WARP, v, 1);
    return v + __shfl_xor_sync(FULL_WARP, v, 2);
}

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

/* ---- forward: a block takes WARPS * M * 16 queries, and keys KEYS at a time ---- */

enum { KEYS = 64 };

template <int D, int M, bool DROP>
static __global__ void __launch_bounds__(THREADS) forward_kernel(const struct attention a) {
    constexpr int ROWS = WARPS * M * 16, N = KEYS / 8, TILE = KEYS * D / 8;
    extern __shared__ __align__(128) uint4 shared[];
    uint4 *q = shared, *k = q + ROWS * D / 8, *v = k + 2 * TILE;
    if (blockIdx.z == gridDim.z - 1) return clear_tail(a, (bf16 *)a.o, a.h);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * ROWS, lane = threadIdx.x % 32, row = threadIdx.x / 32 * M * 16;
    const bf16 *qkv = (const bf16 *)a.qkv;
    if (q0 >= head.length) return;
    copy_tile<D, ROWS>(q, qkv, 3 * a.h, head, q0);
    copy_tile<D, KEYS>(k, qkv + a.h, 3 * a.h, head, 0);
    copy_tile<D, KEYS>(v, qkv + 2 * a.h, 3 * a.h, head, 0);
    commit_copies();

    float o[M][D / 8][4] = {}, max[M][2], sum[M][2] = {};
#pragma unroll
    for (int m = 0; m < M; m++) max[m][0] = max[m][1] = -INFINITY;
    const float scale = a.scale * LOG2_E; /* powers of two from here on */
    for (int k0 = 0, stage = 0; k0 < head.length; k0 += KEYS, stage ^= 1) {
        wait_copies<0>();
        __syncthreads(); /* this tile is there, and the other stage is free */
        if (k0 + KEYS < head.length) {
            copy_tile<D, KEYS>(k + (stage ^ 1) * TILE, qkv + a.h, 3 * a.h, head, k0 + KEYS);
            copy_tile<D, KEYS>(v + (stage ^ 1) * TILE, qkv + 2 * a.h, 3 * a.h, head, k0 + KEYS);
        }
        commit_copies();
        float s[M][N][4];
        rows_by_rows<D, M, N>(s, q, row, k + stage * TILE);
        if (k0 + KEYS > head.length) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (k0 + 8 * n + 2 * (lane % 4) + i % 2 >= head.length)
#pragma unroll
                        for (int m = 0; m < M; m++) s[m][n][i] = -INFINITY;
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float top = max[m][half], part = 0;
#pragma unroll
                for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
                top = quad_max(top);
                const float shrink = exp2f((max[m][half] - top) * scale), shift = top * scale;
                max[m][half] = top;
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++) {
                        s[m][n][i] = exp2f(fmaf(s[m][n][i], scale, -shift));
                        part += s[m][n][i];
                    }
                sum[m][half] = sum[m][half] * shrink + part;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    o[m][n][2 * half] *= shrink;
                    o[m][n][2 * half + 1] *= shrink;
                }
            }
        if constexpr (DROP) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++) {
                    const uint32_t kept = kept_by_rows(head, a.dropout.threshold, q0 + row + 16 * m, k0 + 8 * n);
#pragma unroll
                    for (int i = 0; i < 4; i++) s[m][n][i] = kept >> i & 1 ? s[m][n][i] : 0;
                }
        }
        add_product<D, M, N>(o, s, v + stage * TILE);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = q0 + row + 16 * m + lane / 4 + 8 * half;
            const float total = quad_sum(sum[m][half]), factor = a.dropout.scale / total;
            if (r >= head.length) continue;
            const int64_t token = head.first + r;
            uint32_t *to = reinterpret_cast<uint32_t *>((bf16 *)a.o + token * a.h + head.column + 2 * (lane % 4));
#pragma unroll
            for (int n = 0; n < D / 8; n++) to[4 * n] = pack(o[m][n][2 * half] * factor, o[m][n][2 * half + 1] * factor);
            if (lane % 4 == 0) a.lse[token * a.heads + head.index] = max[m][half] * a.scale + LN_2 * log2f(total);
        }
}

/* ---- backward: dq, a block each WARPS * M * 16 queries; delta on the way ---- */

enum { STEP = 32 }; /* rows of the other side at a time */

/* delta = do . o of the block's queries into rows, and for the other kernel into memory; lse beside it. */
template <int D, int ROWS>
static __device__ void make_delta(const struct attention &a, const struct head &head, int q0, float *lse, float *delta) {
    constexpr int PIECES = D / 8;
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        const int r = q0 + i / PIECES;
        const int64_t token = head.first + r, at = token * a.h + head.column + i % PIECES * 8;
        float x[8], y[8], sum = 0;
        if (r < head.length) {
            load<8>(x, (const bf16 *)a.o + at);
            load<8>(y, (const bf16 *)a.dout + at);
#pragma unroll
            for (int c = 0; c < 8; c++) sum += x[c] * y[c];
        }
#pragma unroll
        for (int step = PIECES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, step);
        if (i % PIECES) continue;
        delta[r - q0] = sum;
        lse[r - q0] = r < head.length ? a.lse[token * a.heads + head.index] * LOG2_E : INFINITY;
        if (r < head.length) a.delta[token * a.heads + head.index] = sum;
    }
}

template <int D, int M, bool DROP>
static __global__ void __launch_bounds__(THREADS) dq_kernel(const struct attention a) {
    constexpr int ROWS = WARPS * M * 16, N = STEP / 8, TILE = STEP * D / 8;
    extern __shared__ __align__(128) uint4 shared[];
    uint4 *q = shared, *dout = q + ROWS * D / 8, *k = dout + ROWS * D / 8, *v = k + 2 * TILE;
    float *lse = (float *)(v + 2 * TILE), *delta = lse + ROWS;
    if (blockIdx.z == gridDim.z - 1) return clear_tail(a, (bf16 *)a.dqkv, 3 * a.h);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * ROWS, lane = threadIdx.x % 32, row = threadIdx.x / 32 * M * 16;
    const bf16 *qkv = (const bf16 *)a.qkv;
    if (q0 >= head.length) return;
    copy_tile<D, ROWS>(q, qkv, 3 * a.h, head, q0);
    copy_tile<D, ROWS>(dout, (const bf16 *)a.dout, a.h, head, q0);
    copy_tile<D, STEP>(k, qkv + a.h, 3 * a.h, head, 0);
    copy_tile<D, STEP>(v, qkv + 2 * a.h, 3 * a.h, head, 0);
    commit_copies();
    make_delta<D, ROWS>(a, head, q0, lse, delta);

    float dq[M][D / 8][4] = {};
    const float scale = a.scale * LOG2_E;
    for (int k0 = 0, stage = 0; k0 < head.length; k0 += STEP, stage ^= 1) {
        wait_copies<0>();
        __syncthreads();
        if (k0 + STEP < head.length) {
            copy_tile<D, STEP>(k + (stage ^ 1) * TILE, qkv + a.h, 3 * a.h, head, k0 + STEP);
            copy_tile<D, STEP>(v + (stage ^ 1) * TILE, qkv + 2 * a.h, 3 * a.h, head, k0 + STEP);
        }
        commit_copies();
        float s[M][N][4], dp[M][N][4];
        rows_by_rows<D, M, N>(s, q, row, k + stage * TILE);
        rows_by_rows<D, M, N>(dp, dout, row, v + stage * TILE);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int r = row + 16 * m + lane / 4;
            const float lses[2] = {lse[r], lse[r + 8]}, deltas[2] = {delta[r], delta[r + 8]};
#pragma unroll
            for (int n = 0; n < N; n++) {
                const uint32_t kept =
                    DROP ? kept_by_rows(head, a.dropout.threshold, q0 + row + 16 * m, k0 + 8 * n) : 15;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const bool there = k0 + 8 * n + 2 * (lane % 4) + i % 2 < head.length;
                    const float p = there ? exp2f(fmaf(s[m][n][i], scale, -lses[i / 2])) : 0;
                    const float back = kept >> i & 1 ? dp[m][n][i] * a.dropout.scale : 0;
                    s[m][n][i] = p * (back - deltas[i / 2]);
                }
            }
        }
        add_product<D, M, N>(dq, s, k + stage * TILE);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = q0 + row + 16 * m + lane / 4 + 8 * half;
            if (r >= head.length) continue;
            bf16 *to = (bf16 *)a.dqkv + (head.first + r) * 3 * a.h + head.column + 2 * (lane % 4);
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                reinterpret_cast<uint32_t *>(to)[4 * n] =
                    pack(dq[m][n][2 * half] * a.scale, dq[m][n][2 * half + 1] * a.scale);
        }
}

/* ---- backward: dk and dv, a block each WARPS * M * 16 keys ---- */

template <int D>
static __device__ __forceinline__ void copy_queries(uint4 *q, uint4 *dout, float *lse, float *delta,
                                                    const struct attention &a, const struct head &head, int q0) {
    copy_tile<D, STEP>(q, (const bf16 *)a.qkv, 3 * a.h, head, q0);
    copy_tile<D, STEP>(dout, (const bf16 *)a.dout, a.h, head, q0);
    if (threadIdx.x < STEP) {
        const int r = q0 + threadIdx.x;
        const int64_t at = (int64_t)(head.first + r) * a.heads + head.index;
        lse[threadIdx.x] = r < head.length ? a.lse[at] * LOG2_E : INFINITY;
        delta[threadIdx.x] = r < head.length ? a.delta[at] : 0;
    }
}

template <int D, int M, bool DROP>
static __global__ void __launch_bounds__(THREADS) dkv_kernel(const struct attention a) {
    constexpr int ROWS = WARPS * M * 16, N = STEP / 8, TILE = STEP * D / 8;
    extern __shared__ __align__(128) uint4 shared[];
    uint4 *k = shared, *v = k + ROWS * D / 8, *q = v + ROWS * D / 8, *dout = q + 2 * TILE;
    float *lse = (float *)(dout + 2 * TILE), *delta = lse + 2 * STEP;
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int k0 = blockIdx.x * ROWS, lane = threadIdx.x % 32, row = threadIdx.x / 32 * M * 16;
    const bf16 *qkv = (const bf16 *)a.qkv;
    if (k0 >= head.length) return;
    copy_tile<D, ROWS>(k, qkv + a.h, 3 * a.h, head, k0);
    copy_tile<D, ROWS>(v, qkv + 2 * a.h, 3 * a.h, head, k0);
    copy_queries<D>(q, dout, lse, delta, a, head, 0);
    commit_copies();

    float dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {};
    const float scale = a.scale * LOG2_E;
    for (int q0 = 0, stage = 0; q0 < head.length; q0 += STEP, stage ^= 1) {
        wait_copies<0>();
        __syncthreads();
        if (q0 + STEP < head.length)
            copy_queries<D>(q + (stage ^ 1) * TILE, dout + (stage ^ 1) * TILE, lse + (stage ^ 1) * STEP,
                            delta + (stage ^ 1) * STEP, a, head, q0 + STEP);
        commit_copies();
        float s[M][N][4], dp[M][N][4];
        rows_by_rows<D, M, N>(s, k, row, q + stage * TILE);
        rows_by_rows<D, M, N>(dp, v, row, dout + stage * TILE);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int c = stage * STEP + 8 * n + 2 * (lane % 4);
            const float lses[2] = {lse[c], lse[c + 1]}, deltas[2] = {delta[c], delta[c + 1]};
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint32_t kept =
                    DROP ? kept_by_columns(head, a.dropout.threshold, k0 + row + 16 * m, q0 + 8 * n) : 15;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float p = exp2f(fmaf(s[m][n][i], scale, -lses[i % 2]));
                    const bool keep = kept >> i & 1;
                    s[m][n][i] = keep ? p : 0;
                    dp[m][n][i] = p * ((keep ? dp[m][n][i] * a.dropout.scale : 0) - deltas[i % 2]);
                }
            }
        }
        add_product<D, M, N>(dv, s, dout + stage * TILE);
        add_product<D, M, N>(dk, dp, q + stage * TILE);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = k0 + row + 16 * m + lane / 4 + 8 * half;
            if (r >= head.length) continue;
            bf16 *to = (bf16 *)a.dqkv + (head.first + r) * 3 * a.h + a.h + head.column + 2 * (lane % 4);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                reinterpret_cast<uint32_t *>(to)[4 * n] =
                    pack(dk[m][n][2 * half] * a.scale, dk[m][n][2 * half + 1] * a.scale);
                reinterpret_cast<uint32_t *>(to + a.h)[4 * n] =
                    pack(dv[m][n][2 * half] * a.dropout.scale, dv[m][n][2 * half + 1] * a.dropout.scale);
            }
        }
}

/* ---- launching ---- */

template <typename F>
static void launch(F kernel, int bytes, dim3 grid, const struct attention &a, cudaStream_t stream) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, THREADS, bytes, stream>>>(a);
}

template <int D, int M, bool DROP>
static void launch_all(const struct attention &a, int64_t longest, int sequences, bool backward, cudaStream_t stream) {
    constexpr int ROWS = WARPS * M * 16;
    const dim3 grid(blocks_for(longest > 0 ? longest : 1, ROWS), (unsigned)a.heads, (unsigned)sequences + 1);
    const dim3 keys(grid.x, grid.y, (unsigned)sequences);
    if (!backward) {
        launch(forward_kernel<D, M, DROP>, (ROWS + 4 * KEYS) * D * 2, grid, a, stream);
        return;
    }
    launch(dq_kernel<D, M, DROP>, (2 * ROWS + 4 * STEP) * D * 2 + 2 * ROWS * 4, grid, a, stream);
    if (sequences > 0) launch(dkv_kernel<D, M, DROP>, (2 * ROWS + 4 * STEP) * D * 2 + 4 * STEP * 4, keys, a, stream);
}

static bool run(const struct attention &a, int64_t longest, int sequences, bool backward, cudaStream_t stream) {
    const bool drop = a.dropout.threshold != 0;
    switch (a.d) {
    case 32:
        drop ? launch_all<32, 2, true>(a, longest, sequences, backward, stream)
             : launch_all<32, 2, false>(a, longest, sequences, backward, stream);
        return true;
    case 64:
        drop ? launch_all<64, 2, true>(a, longest, sequences, backward, stream)
             : launch_all<64, 2, false>(a, longest, sequences, backward, stream);
        return true;
    case 128:
        drop ? launch_all<128, 1, true>(a, longest, sequences, backward, stream)
             : launch_all<128, 1, false>(a, longest, sequences, backward, stream);
        return true;
    default: return false;
    }
}

bool snug_cuda_attention_mma(const struct attention &a, int64_t longest, int sequences, cudaStream_t stream) {
    return run(a, longest, sequences, false, stream);
}

bool snug_cuda_attention_mma_backward(const struct attention &a, int64_t longest, int sequences, cudaStream_t stream) {
    return run(a, longest, sequences, true, stream);
}
