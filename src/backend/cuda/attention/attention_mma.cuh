/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles and matmuls of attention on tensor cores, with fp32 sums: bf16 and fp16, and fp32 in one or three matmuls of
 * tf32 (m16n8k8).
 *
 * A result becomes the left operand of the next matmul without a shuffle (mma.cuh has the registers). In tf32 an
 * operand's lane holds depths t and t + 4, with t = lane % 4, so the next matmul uses permuted depths: its depth t is
 * column 2 t, and its depth t + 4 is column 2 t + 1.
 */
#ifndef SNUG_BACKEND_CUDA_ATTENTION_ATTENTION_MMA_CUH
#define SNUG_BACKEND_CUDA_ATTENTION_ATTENTION_MMA_CUH

#include "backend/cuda/attention/attention_operands.cuh"
#include "backend/cuda/mma.cuh"

#define LN_2 0.6931471805599453f

/*
 * Types of operands, E: bf16 and fp16 as in memory, or fp32 rounded to tf32's 11 bits, or SPLIT into two such numbers,
 * whose smallest partial product is omitted: a relative error of about 2^-22.
 */
template <bool SPLIT> struct tf32 {};
template <typename E> struct memory { typedef E type; };
template <bool SPLIT> struct memory<tf32<SPLIT>> { typedef float type; };
template <typename E> using stored = typename memory<E>::type;

/* Bytes of a tile's row of D channels. */
template <typename E, int D> constexpr int ROW = D *(int)sizeof(stored<E>);
/* Depth of one instruction. */
template <typename E> constexpr int DEPTH = 32 / (int)sizeof(stored<E>);

/* ---- a tile of rows in shared memory ---- */

/* Keys are ordered in the tile so that a lane's columns of a result (a lane's rows, where keys are rows) are 4
   consecutive keys, and queries so that a lane's rows are two consecutive queries: these share a block of random
   words. */
enum order { AS_THEY_ARE, KEYS_IN_COLUMNS, KEYS_IN_ROWS, QUERIES_IN_ROWS };
template <order ORDER> static __device__ __forceinline__ int slot_of(int row) {
    if constexpr (ORDER == KEYS_IN_COLUMNS) /* 4 t + i is column 2 t + i % 2 of result i / 2 of two */
        return (row & ~15) | (row & 2) << 2 | (row & 12) >> 1 | (row & 1);
    if constexpr (ORDER == KEYS_IN_ROWS) /* 4 g + i is row g + 8 (i % 2) of result i / 2 of two */
        return (row & ~31) | (row & 2) << 3 | (row & 1) << 3 | (row & 28) >> 2;
    if constexpr (ORDER == QUERIES_IN_ROWS) /* 2 g + i is row g + 8 i */
        return (row & ~15) | (row & 1) << 3 | (row & 14) >> 1;
    return row;
}

/* Starts copying rows row0 … of the sequence, whose first row is at from; rows after its end, and the tile's channels
   after a head's, become zero. */
template <int D, int ROWS, int THREADS, order ORDER, typename T>
static __device__ __forceinline__ void copy_tile(uint4 *to, const T *from, int64_t stride, int length, int row0,
                                                 int channels = D) {
    constexpr int BYTES = D * sizeof(T), PIECES = BYTES / 16;
    constexpr int PASS = THREADS / PIECES; /* rows that the threads copy at once */
    static_assert(ROWS % PASS == 0, "every thread copies the same number of pieces");
    const int piece = threadIdx.x % PIECES, row = threadIdx.x / PIECES;
    const T *source = from + (int64_t)(row0 + row) * stride + D / PIECES * piece;
    const int end = D / PIECES * piece < channels ? length : 0;
#pragma unroll
    for (int r = 0; r < ROWS; r += PASS) {
        const bool there = row0 + row + r < end;
        copy16(to + piece_of<BYTES>(slot_of<ORDER>(row + r), piece), there ? source + r * stride : from, there);
    }
}

/* ---- operands ---- */

/* Words of operands; of SPLIT ones also the remainder of each after rounding. */
template <typename E, int W> struct words { uint32_t word[W]; };
template <int W> struct words<tf32<true>, W> { uint32_t word[W], rest[W]; };
template <typename E> constexpr bool SPLITS = sizeof(words<E, 1>) > sizeof(uint32_t);

static __device__ __forceinline__ uint32_t round_to_tf32(float x) {
    uint32_t r = 0;
    if (SNUG_CUDA_ARCH >= 800) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

/* SPLIT: rounded by integer arithmetic, which is cheaper. It may lose a NaN, but the remainder is NaN then; the
   instruction ignores the last 13 bits of the remainder. */
template <typename E, int W> static __device__ __forceinline__ words<E, W> prepare(const uint32_t (&raw)[W]) {
    words<E, W> out;
#pragma unroll
    for (int i = 0; i < W; i++) {
        if constexpr (sizeof(stored<E>) == 2) {
            out.word[i] = raw[i];
        } else if constexpr (!SPLITS<E>) {
            out.word[i] = round_to_tf32(__uint_as_float(raw[i]));
        } else {
            out.word[i] = (raw[i] + 0x1000) & 0xffffe000;
            out.rest[i] = __float_as_uint(__uint_as_float(raw[i]) - __uint_as_float(out.word[i]));
        }
    }
    return out;
}

static __device__ __forceinline__ void load_words(uint32_t (&r)[2], uint32_t at) {
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];\n" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
static __device__ __forceinline__ void load_words(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\n" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

/*
 * The row and piece of a tile that a lane passes to these instructions, as an offset in bytes. They address 16 rows and
 * the first 32 bytes of each; bytes 32 k … are at the offset ^ 32 k, because the swizzle is an exclusive or, and rows 8
 * i … are 8 i rows further. Tile offsets are added last, as constants, so tiles share the rest. by_rows: a left
 * operand; transposed, a right one whose depth is the tile's rows by_columns: right operands of two results, whose
 * columns are the tile's rows; transposed, a left operand whose depth is the tile's rows
 */
template <int BYTES> static __device__ __forceinline__ uint32_t by_rows() {
    const int lane = threadIdx.x % 32;
    return 16 * piece_of<BYTES>(lane % 16, lane / 16);
}
template <int BYTES> static __device__ __forceinline__ uint32_t by_columns() {
    const int lane = threadIdx.x % 32;
    return 16 * piece_of<BYTES>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/*
 * Right operands whose depth is the tile's rows, for the results of N that one load serves. 32-bit words cannot be
 * transposed: a lane loads consecutive words of its rows 2 t and 2 t + 1, so the results' columns are permuted
 * channels: column c of result i is channel LOADED c + i. See store_row().
 */
template <typename E, int N> constexpr int LOADED = sizeof(stored<E>) == 2 || N % 4 ? 2 : 4;

template <typename E, int D, int N> static __device__ __forceinline__ uint32_t by_depth() {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if constexpr (sizeof(stored<E>) == 2) return by_rows<ROW<E, D>>();
    const int word = LOADED<E, N> * g;
    return 16 * piece_of<ROW<E, D>>(2 * t, word / 4) + word % 4 * 4;
}

/* at: the lane's by_depth(); tile: an offset added to it. Words 2 i and 2 i + 1 belong to result i. */
template <typename E, int D, int W>
static __device__ __forceinline__ words<E, 2 * W> load_depth(uint32_t at, int tile) {
    uint32_t raw[2 * W];
    if constexpr (sizeof(stored<E>) == 2) {
        load_turned(raw, at + tile);
    } else {
        uint32_t low[W], high[W];
        load_words(low, at + tile);
        load_words(high, (at ^ 16) + tile + ROW<E, D>);
#pragma unroll
        for (int i = 0; i < W; i++) raw[2 * i] = low[i], raw[2 * i + 1] = high[i];
    }
    return prepare<E>(raw);
}

template <>
__device__ __forceinline__ void mma<tf32<false>>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (SNUG_CUDA_ARCH >= 800)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c += a times words 2 i and 2 i + 1 of b. */
template <typename E, int W>
static __device__ __forceinline__ void multiply(float (&c)[4], const words<E, 4> &a, const words<E, W> &b, int i) {
    mma<E>(c, a.word, b.word[2 * i], b.word[2 * i + 1]);
}

/* Tensor cores truncate their sums. So they accumulate only 8 matmuls, the small terms first; longer sums are
   rounded. */
template <int W>
static __device__ __forceinline__ void multiply(float (&c)[4], const words<tf32<true>, 4> &a,
                                                const words<tf32<true>, W> &b, int i) {
    float part[4] = {};
    mma<tf32<false>>(part, a.rest, b.word[2 * i], b.word[2 * i + 1]);
    mma<tf32<false>>(part, a.word, b.rest[2 * i], b.rest[2 * i + 1]);
    mma<tf32<false>>(part, a.word, b.word[2 * i], b.word[2 * i + 1]);
#pragma unroll
    for (int k = 0; k < 4; k++) c[k] += part[k];
}

/* ---- matmuls ---- */

/* Steps that are unrolled; with more, SPLIT operands would need too many registers. */
template <typename E, int STEPS> constexpr int UNROLLED = SPLITS<E> ? 2 : STEPS < 16 ? STEPS : 16;

/* out [M x 16 rows, N x 8 columns] = rows of left times rows of right, over D channels. left and right are addresses
   by_rows and by_columns, to which the tiles' offsets are added. */
template <typename E, int D, int M, int N>
static __device__ __forceinline__ void rows_by_rows(float (&out)[M][N][4], uint32_t left, int left_tile, uint32_t right,
                                                    int right_tile) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) out[m][n][0] = out[m][n][1] = out[m][n][2] = out[m][n][3] = 0;
#pragma unroll UNROLLED < E, D / DEPTH < E>>
    for (int k = 0; k < D / DEPTH<E>; k++) {
        words<E, 4> a[M];
        uint32_t raw[4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            load_matrices(raw, (left ^ 32 * k) + left_tile + 16 * m * ROW<E, D>);
            a[m] = prepare<E>(raw);
        }
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_matrices(raw, (right ^ 32 * k) + right_tile + 8 * n * ROW<E, D>);
            const words<E, 4> b = prepare<E>(raw);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(out[m][n], a[m], b, 0);
                multiply(out[m][n + 1], a[m], b, 1);
            }
        }
    }
}

/* A result as left operand. In bf16 or fp16: rows g and g + 8, two columns per word. */
template <typename E, int M, int N> struct operand {
    uint32_t word[M][N][2];
    __device__ __forceinline__ void put(int m, int n, int half, float low, float high) {
        word[m][n][half] = pack<E>(low, high);
    }
    __device__ __forceinline__ void clear(int m, int n, int half) { word[m][n][half] = 0; }
    /* Columns 16 k …. */
    __device__ __forceinline__ words<E, 4> left(int m, int k) const {
        return {{word[m][2 * k][0], word[m][2 * k][1], word[m][2 * k + 1][0], word[m][2 * k + 1][1]}};
    }
};
template <bool SPLIT, int M, int N> struct operand<tf32<SPLIT>, M, N> {
    float value[M][N][4];
    __device__ __forceinline__ void put(int m, int n, int half, float low, float high) {
        value[m][n][2 * half] = low;
        value[m][n][2 * half + 1] = high;
    }
    __device__ __forceinline__ void clear(int m, int n, int half) { put(m, n, half, 0, 0); }
    /* Columns 8 k …. */
    __device__ __forceinline__ words<tf32<SPLIT>, 4> left(int m, int k) const {
        const float(&v)[4] = value[m][k];
        const uint32_t raw[4] = {__float_as_uint(v[0]), __float_as_uint(v[2]), __float_as_uint(v[1]),
                                 __float_as_uint(v[3])};
        return prepare<tf32<SPLIT>>(raw);
    }
};

/* sum [M x 16 rows, C columns] += left (N x 8 columns) times the N x 8 rows of right, an address by_depth of C / 8. */
template <typename E, int D, int C, int M, int N>
static __device__ __forceinline__ void add_matmul(float (&sum)[M][C / 8][4], const operand<E, M, N> &left,
                                                  uint32_t right, int right_tile) {
    constexpr int W = LOADED<E, C / 8>;
#pragma unroll
    for (int k = 0; k < 8 * N / DEPTH<E>; k++) {
        words<E, 4> a[M];
#pragma unroll
        for (int m = 0; m < M; m++) a[m] = left.left(m, k);
#pragma unroll
        for (int c = 0; c < C / 8; c += W) {
            const words<E, 2 *W> b = load_depth<E, D, W>(right ^ ROW<E, 8> * c, right_tile + DEPTH<E> * k * ROW<E, D>);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < W; i++) multiply(sum[m][c + i], a[m], b, i);
        }
    }
}

/* Reduces a row of a result, which four lanes hold. */
static __device__ __forceinline__ float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 1));
    return fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 2));
}
static __device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(FULL_WARP, v, 1);
    return v + __shfl_xor_sync(FULL_WARP, v, 2);
}

/* Stores half of a row's N x 8 sums, times a factor; `to` is the row's first of these channels, of which as many exist
   as `channels`. */
template <typename E, int N>
static __device__ __forceinline__ void store_row(stored<E> *to, const float (&sum)[N][4], int half, float factor,
                                                 int channels = 8 * N) {
    const int t = threadIdx.x % 4;
    if constexpr (sizeof(stored<E>) == 2) {
        uint32_t *pairs = (uint32_t *)(to + 2 * t);
#pragma unroll
        for (int n = 0; n < N; n++)
            if (8 * n < channels) pairs[4 * n] = pack<E>(sum[n][2 * half] * factor, sum[n][2 * half + 1] * factor);
    } else {
        constexpr int W = LOADED<E, N>;
#pragma unroll
        for (int n = 0; n < N; n += W) {
            float values[2 * W];
#pragma unroll
            for (int i = 0; i < 2 * W; i++) values[i] = sum[n + i % W][2 * half + i / W] * factor;
            if (8 * n + 2 * W * t < channels) store<2 * W>(to + 8 * n + 2 * W * t, values);
        }
    }
}

/* ---- dropout ---- */

/*
 * Philox mixes the keys' counter word (4 quad …) and the queries' (2 pair …) gradually: the first two rounds, and half
 * of the third, depend on only one of them. They are computed once for all elements that share them; random_of()
 * computes the rest, and returns the same as snug_philox_rounds(quad, pair, sample, site, key, step,
 * SNUG_DROPOUT_ROUNDS).
 */
enum : uint32_t { PHILOX_M0 = 0xD2511F53u, PHILOX_M1 = 0xCD9E8D57u, PHILOX_W0 = 0x9E3779B9u, PHILOX_W1 = 0xBB67AE85u };

struct quad_part {
    uint32_t word[4];
};
struct pair_part {
    uint32_t high, low;
};

static __device__ __forceinline__ uint64_t wide(uint32_t a, uint32_t b) { return (uint64_t)a * b; }
static __device__ __forceinline__ uint32_t high_of(uint64_t x) { return (uint32_t)(x >> 32); }

static __device__ __forceinline__ struct pair_part pair_part_of(const struct head &head, uint32_t pair) {
    const uint64_t a = wide(PHILOX_M0, high_of(wide(PHILOX_M1, head.sample)) ^ pair ^ head.key);
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
random_of(const struct head &head, const struct quad_part &quad, const struct pair_part &pair) {
    const uint64_t third = wide(PHILOX_M1, pair.high ^ quad.word[0]);
    uint32_t c0 = high_of(third) ^ quad.word[1], c1 = (uint32_t)third, c2 = quad.word[2] ^ pair.low, c3 = quad.word[3];
#pragma unroll
    for (uint32_t round = 3; round < SNUG_DROPOUT_ROUNDS; round++) {
        const uint64_t a = wide(PHILOX_M0, c0), b = wide(PHILOX_M1, c2);
        c0 = high_of(b) ^ c1 ^ (head.key + round * PHILOX_W0);
        c2 = high_of(a) ^ c3 ^ (head.step + round * PHILOX_W1);
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
    }
    return {{c0, c1, c2, c3}};
}

/* ---- windows, biases and caps ---- */

/* Options that a kernel is compiled for: each has its own code, so the plain form pays nothing for them. */
enum form : unsigned {
    PLAIN = 0,
    WINDOWED = 1,
    BIASED = 2,
    CAPPED = 4,
    GROUPED = 8, /* heads share keys: backward */
    POSITIONED = 16
};
static inline unsigned form_of(const struct attention &a) {
    return (is_windowed(a) ? WINDOWED : PLAIN) | (a.bias ? BIASED : PLAIN) | (a.softcap > 0 ? CAPPED : PLAIN) |
           (a.positions.rows ? POSITIONED : PLAIN);
}

/* Caps a score that is divided by scale. */
static __device__ __forceinline__ void cap_score(const struct attention &a, float &s) {
    s = (1 - 2 * quick_inverse(1 + quick_exp2(s * (2 * LOG2_E * a.scale / a.softcap)))) * (a.softcap / a.scale);
}

/* A head's biases, in shared memory. */
template <int THREADS>
static __device__ __forceinline__ void load_biases(float *to, const struct attention &a, const struct head &head) {
    for (int i = threadIdx.x; i < DISTANCES; i += THREADS) to[i] = a.bias[head.index * DISTANCES + i];
}

/* ---- position keys and queries ---- */

/* The first token of a sequence and head in what is by token. */
static __device__ __forceinline__ int64_t first_of(const struct position_scores &p, const struct head &head) {
    return (head.index - p.first) * p.tokens + head.first;
}

/* The type of the products q . pk and k . pq, of which a score is the sum: fp16 has three bits more than bf16, and the
   largest number instead of an infinity. */
template <typename T> using product = std::conditional_t<sizeof(T) == 4, float, f16>;
template <typename T> static __device__ __forceinline__ float fit_product(float x) {
    constexpr float MOST = 65504;
    return sizeof(T) == 4 ? x : x > MOST ? MOST : x < -MOST ? -MOST : x;
}

/* What positions add to the score of a pair. */
template <typename T>
static __device__ __forceinline__ float position_score(const struct position_scores &p, const struct head &head,
                                                       int query, int key) {
    const int distance = query - key, row = abs(distance) <= p.near ? p.middle + distance : p.rows[distance];
    const int64_t first = first_of(p, head);
    float sum = 0;
    if (p.c2p) sum += to_float(((const product<T> *)p.c2p)[(first + query) * p.stride + row]);
    if (p.p2c) sum += to_float(((const product<T> *)p.p2c)[(first + key) * p.stride + row]);
    return sum;
}

/* Stores two numbers at an even element. */
template <typename T> static __device__ __forceinline__ void store_pair(T *to, float low, float high) {
    if constexpr (sizeof(T) == 2)
        *(uint32_t *)to = pack<T>(low, high);
    else
        *(float2 *)to = make_float2(low, high);
}

/* ---- preparing backward ---- */

enum { ROW_BLOCK = 16, ROW_THREADS = 256 };

/*
 * For a block of queries of all heads, calls put() with each query's position in its sequence, token, head, its lse in
 * base 2, and delta = do . o. Dropout's factor 1 / (1 - p) is left out of dS until the end, so delta is divided by it.
 */
template <typename T, int D, typename F>
static __device__ __forceinline__ void for_rows(const struct attention &a, const struct head &head, F put) {
    constexpr int PIECES = D / 8;
    const int row0 = blockIdx.x * ROW_BLOCK, count = (head.length - row0 < ROW_BLOCK ? head.length - row0 : ROW_BLOCK);
    const int width = a.heads * PIECES;
    for (int base = 0; base < count * width; base += ROW_THREADS) {
        const int i = base + threadIdx.x, r = row0 + i / width, index = i % width / PIECES, channel = i % PIECES * 8;
        const int64_t token = head.first + r, at = token * a.h + index * a.d + channel;
        float x[8], y[8], sum = 0;
        if (i < count * width && channel < a.d) {
            load<8>(x, (const T *)a.o + at);
            load<8>(y, (const T *)a.dout + at);
#pragma unroll
            for (int c = 0; c < 8; c++) sum += x[c] * y[c];
        }
#pragma unroll
        for (int step = PIECES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, step);
        if (i >= count * width || channel) continue;
        put(r, token, index, a.lse[token * a.heads + index] * LOG2_E, sum / a.dropout.scale);
    }
}

/* Calls launch with a value of the operand type for tensors of a type; with --tf32 fp32 is rounded to a single tf32
   matmul. Returns the result of launch; false where tensor cores do not take the type. */
template <typename F> static bool with_operands(const struct snug_cuda *cuda, enum snug_dtype type, F launch) {
    bool result = false;
    if (!has_matmuls(cuda, type)) return false;
    with_type(type, [&](auto value) {
        if constexpr (sizeof value == 2)
            result = launch(value);
        else
            result = cuda->tf32 ? launch(tf32<false>()) : launch(tf32<true>());
    });
    return result;
}

#endif
