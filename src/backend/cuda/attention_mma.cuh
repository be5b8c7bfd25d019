/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles and products of attention in bf16 and fp16 on tensor cores (mma.sync m16n8k16, fp32 sums).
 *
 * Names of the instruction's registers: of a 16 x 8 result a lane holds rows g = lane / 4 and g + 8, columns 2 t and
 * 2 t + 1 with t = lane % 4. A result turned into the left operand of the next product needs no exchange.
 */
#ifndef SNUG_BACKEND_CUDA_ATTENTION_MMA_CUH
#define SNUG_BACKEND_CUDA_ATTENTION_MMA_CUH

#include "backend/cuda/attention.cuh"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

/* ---- a tile of rows of D values in shared memory, in pieces of 16 bytes, swizzled against bank conflicts ---- */

template <int D> static __device__ __forceinline__ int piece_of(int row, int piece) {
    constexpr int PIECES = D / 8;
    if constexpr (PIECES >= 8) return row * PIECES + (piece ^ (row & 7));
    return row * PIECES + (piece ^ ((row >> 1) & 3));
}

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Starts copying 16 bytes into shared memory, or clears them. */
static __device__ __forceinline__ void copy16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0));
}
static __device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n"); }
template <int LEFT> static __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT));
}

/* Keys lie in the tile where a lane's columns of a result (a lane's rows, where keys are rows) are 4 keys that follow
   one another: those that one block of random words serves. */
enum order { AS_THEY_ARE, KEYS_IN_COLUMNS, KEYS_IN_ROWS };
template <order ORDER> static __device__ __forceinline__ int slot_of(int row) {
    if constexpr (ORDER == KEYS_IN_COLUMNS) /* 4 t + i is column 2 t + i % 2 of result i / 2 of two */
        return (row & ~15) | (row & 2) << 2 | (row & 12) >> 1 | (row & 1);
    if constexpr (ORDER == KEYS_IN_ROWS) /* 4 g + i is row g + 8 (i % 2) of result i / 2 of two */
        return (row & ~31) | (row & 2) << 3 | (row & 1) << 3 | (row & 28) >> 2;
    return row;
}

/* Starts copying rows row0 … of the sequence, whose first row is at from; rows behind its end become zero. */
template <int D, int ROWS, int THREADS, order ORDER, typename T>
static __device__ __forceinline__ void copy_tile(uint4 *to, const T *from, int64_t stride, int length, int row0) {
    constexpr int PIECES = D / 8, PASS = THREADS / PIECES; /* rows that the threads take at once */
    static_assert(ROWS % PASS == 0, "every thread has as many pieces");
    const int piece = threadIdx.x % PIECES, row = threadIdx.x / PIECES;
    const T *source = from + (int64_t)(row0 + row) * stride + 8 * piece;
#pragma unroll
    for (int r = 0; r < ROWS; r += PASS) {
        const bool there = row0 + row + r < length;
        copy16(to + piece_of<D>(slot_of<ORDER>(row + r), piece), there ? source + r * stride : from, there);
    }
}

/* ---- operands ---- */

static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
static __device__ __forceinline__ void load_turned(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/*
 * Which row and piece of a tile of D channels a lane names to these, as an offset in bytes. The rows are 16 and the
 * channels the tile's first 16; the channels 16 k … are at the offset ^ 32 k, since the swizzle is an exclusive or, and
 * the rows 8 i … 16 i D bytes on. Offsets of tiles are added last, as constants, so that tiles share the rest.
 *   by_rows:    a left operand; turned, a right one whose depth is the tile's rows
 *   by_columns: right operands of two results, whose columns are the tile's rows; turned, a left operand whose depth is
 *               the tile's rows
 */
template <int D> static __device__ __forceinline__ uint32_t by_rows() {
    const int lane = threadIdx.x % 32;
    return 16 * piece_of<D>(lane % 16, lane / 16);
}
template <int D> static __device__ __forceinline__ uint32_t by_columns() {
    const int lane = threadIdx.x % 32;
    return 16 * piece_of<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

template <typename T>
static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply<bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<f16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- products ---- */

/* out [M x 16 rows, N x 8 columns] = rows of left times rows of right, over D channels. left and right are addresses
   by_rows and by_columns, to which the tiles' offsets are added. */
template <typename T, int D, int M, int N>
static __device__ __forceinline__ void rows_by_rows(float (&out)[M][N][4], uint32_t left, int left_tile, uint32_t right,
                                                    int right_tile) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) out[m][n][0] = out[m][n][1] = out[m][n][2] = out[m][n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++) load_matrices(a[m], (left ^ 32 * k) + left_tile + 16 * m * 2 * D);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_matrices(b, (right ^ 32 * k) + right_tile + 8 * n * 2 * D);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply<T>(out[m][n], a[m], b[0], b[1]);
                multiply<T>(out[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* A result in bf16 or fp16: what rows g and g + 8 hold, two columns a word. */
template <int M, int N> struct operand { uint32_t word[M][N][2]; };

/* sum [M x 16 rows, C columns] += left (N x 8 columns) times the N x 8 rows of right, an address by_rows. */
template <typename T, int D, int C, int M, int N>
static __device__ __forceinline__ void add_product(float (&sum)[M][C / 8][4], const operand<M, N> &left, uint32_t right,
                                                   int right_tile) {
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) a[m][i] = left.word[m][2 * k + i / 2][i % 2];
#pragma unroll
        for (int c = 0; c < C / 16; c++) {
            load_turned(b, (right ^ 32 * c) + right_tile + 16 * k * 2 * D);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply<T>(sum[m][2 * c], a[m], b[0], b[1]);
                multiply<T>(sum[m][2 * c + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* ---- dropout ---- */

/*
 * Philox's first rounds mix the key position (4 quad …) and the query little by little: the first two, and half of the
 * third, are products of either alone. These are made once for all that share them; random_of() does what is left, and
 * gives what snug_philox(quad, query, sample, site, key, step) gives.
 */
enum : uint32_t { PHILOX_M0 = 0xD2511F53u, PHILOX_M1 = 0xCD9E8D57u, PHILOX_W0 = 0x9E3779B9u, PHILOX_W1 = 0xBB67AE85u };

struct quad_part {
    uint32_t word[4];
};
struct query_part {
    uint32_t high, low;
};

static __device__ __forceinline__ uint64_t wide(uint32_t a, uint32_t b) { return (uint64_t)a * b; }
static __device__ __forceinline__ uint32_t high_of(uint64_t x) { return (uint32_t)(x >> 32); }

static __device__ __forceinline__ struct query_part query_part_of(const struct head &head, uint32_t query) {
    const uint64_t a = wide(PHILOX_M0, high_of(wide(PHILOX_M1, head.sample)) ^ query ^ head.key);
    return {high_of(a), (uint32_t)a};
}

static __device__ __forceinline__ struct quad_part quad_part_of(const struct head &head, uint32_t quad) {
    const uint64_t first = wide(PHILOX_M0, quad);
    const uint64_t second = wide(PHILOX_M1, high_of(first) ^ head.site ^ head.step);
    const uint64_t third = wide(PHILOX_M0, high_of(second) ^ (PHILOX_M1 * head.sample) ^ (head.key + PHILOX_W0));
    return {{(uint32_t)first ^ (head.step + PHILOX_W1), (uint32_t)second ^ (head.key + 2 * PHILOX_W0),
             high_of(third) ^ (head.step + 2 * PHILOX_W1), (uint32_t)third}};
}

static __device__ __forceinline__ struct snug_philox_block
random_of(const struct head &head, const struct quad_part &quad, const struct query_part &query) {
    const uint64_t third = wide(PHILOX_M1, query.high ^ quad.word[0]);
    uint32_t c0 = high_of(third) ^ quad.word[1], c1 = (uint32_t)third, c2 = quad.word[2] ^ query.low, c3 = quad.word[3];
#pragma unroll
    for (uint32_t round = 3; round < 10; round++) {
        const uint64_t a = wide(PHILOX_M0, c0), b = wide(PHILOX_M1, c2);
        c0 = high_of(b) ^ c1 ^ (head.key + round * PHILOX_W0);
        c2 = high_of(a) ^ c3 ^ (head.step + round * PHILOX_W1);
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
    }
    return {{c0, c1, c2, c3}};
}

#endif
