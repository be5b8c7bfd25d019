/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of adapters: q = x^T u of a wide matrix x [rows, columns] and a narrow one u [rows, r]; p = x m with a
 * narrow m [columns, r]; or both, for which x is read once. The time is that of reading x. A block has 256 columns of x
 * and a part of its rows, in tiles of 32: it sums q of its columns in registers, and stores p of each tile. These are
 * sums over a part of the rows, or of the columns; a second kernel adds them in their order. Each has the same bits
 * alone as with the other: whether a LINEAR_DX follows its LINEAR_DW depends on where the plan has put moves.
 */
#include "backend/cuda/mma.cuh"

extern "C" {
#include "backend/cuda/matmul/matmul.h"
}

enum {
    ROWS = 32,
    COLUMNS = 256,
    WARPS = 8,
    THREADS = 32 * WARPS,
    STAGES = 3,
    LEAST = 4 * ROWS,            /* rows of a part */
    NARROW = 64,                 /* the most columns of u */
    BLOCKS = 264,                /* aimed at: two of each of an H100's multiprocessors */
    X_BYTES = 2 * COLUMNS,       /* of a row in a tile */
    X_TILE = ROWS * X_BYTES / 16 /* in pieces of 16 bytes */
};

struct thin {
    const void *x, *u, *m; /* u or m: or NULL */
    float *q, *p;          /* sums over a part: [parts of rows, columns, r], or turned; [blocks of columns, rows, r] */
    int64_t rows, columns, ldx, ldu;
    int64_t each; /* rows of a part */
    int r;
    bool turned; /* q's are [r, columns] */
};

/* Pieces of 16 bytes in a row of a tile of u or m: with an odd number, eight rows are in different banks. */
template <int TILES> constexpr int LINE = 2 * TILES + 1;

/* Starts copying rows of a narrow matrix; those from `count` on, and columns from r on, become zero. */
template <int TILES, typename T>
static __device__ __forceinline__ void copy_narrow(uint4 *to, const T *from, int64_t ld, int rows, int64_t count,
                                                   int r) {
    for (int i = threadIdx.x; i < rows * 2 * TILES; i += THREADS) {
        const int row = i / (2 * TILES), piece = i % (2 * TILES);
        const bool there = row < count && 8 * piece < r;
        copy16(to + row * LINE<TILES> + piece, there ? from + row * ld + 8 * piece : from, there);
    }
}

template <typename T, int TILES>
static __device__ __forceinline__ void copy_rows(uint4 *x, uint4 *u, const struct thin &a, int64_t row0, int64_t end) {
    const int64_t column0 = (int64_t)blockIdx.x * COLUMNS, count = end - row0;
    const T *from = (const T *)a.x + row0 * a.ldx + column0;
    for (int i = threadIdx.x; i < X_TILE; i += THREADS) {
        const int row = i / (COLUMNS / 8), piece = i % (COLUMNS / 8);
        const bool there = row < count && column0 + 8 * piece < a.columns;
        copy16(x + piece_of<X_BYTES>(row, piece), there ? from + row * a.ldx + 8 * piece : (const T *)a.x, there);
    }
    if (a.u && count > 0) copy_narrow<TILES>(u, (const T *)a.u + row0 * a.ldu, a.ldu, ROWS, count, a.r);
}

/* sums += x^T u of a tile, of the warp's 32 columns. */
template <typename T, int TILES>
static __device__ __forceinline__ void add_columns(float (&sums)[2][2 * TILES][4], uint32_t x, uint32_t u) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        uint32_t right[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; i++)
            load_turned(right[i], u + 16 * ((k + lane % 16) * LINE<TILES> + 2 * i + lane / 16));
#pragma unroll
        for (int of = 0; of < 2; of++) {
            uint32_t left[4];
            load_turned(left,
                        x + 16 * piece_of<X_BYTES>(k + lane % 8 + lane / 16 * 8, 4 * warp + 2 * of + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 2 * TILES; i++)
                mma<T>(sums[of][i], left, right[i / 2][2 * (i % 2)], right[i / 2][2 * (i % 2) + 1]);
        }
    }
}

/* p of a tile's rows: each warp computes 16 rows of 8 columns, or several. */
template <typename T, int TILES>
static __device__ __forceinline__ void store_rows(const struct thin &a, uint32_t x, uint32_t m, int64_t row0,
                                                  int64_t end) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int task = warp; task < 4 * TILES; task += WARPS) {
        const int first = task % 2 * 16, tile = task / 2, column = 8 * tile + lane % 4 * 2;
        float sums[2][4] = {};
#pragma unroll
        for (int k = 0; k < COLUMNS; k += 32) {
            uint32_t right[4];
            load_turned(right, m + 16 * ((k + lane) * LINE<TILES> + tile));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t left[4];
                load_matrices(left, x + 16 * piece_of<X_BYTES>(first + lane % 16, k / 8 + 2 * half + lane / 16));
                mma<T>(sums[half], left, right[2 * half], right[2 * half + 1]);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64_t row = row0 + first + lane / 4 + 8 * i;
            if (row < end && column < a.r)
                *(float2 *)(a.p + (blockIdx.x * a.rows + row) * a.r + column) =
                    make_float2(sums[0][2 * i] + sums[1][2 * i], sums[0][2 * i + 1] + sums[1][2 * i + 1]);
        }
    }
}

template <typename T, int TILES> static __global__ void __launch_bounds__(THREADS, 2) thin_kernel(const struct thin a) {
    constexpr int U_TILE = ROWS * LINE<TILES>;
    extern __shared__ __align__(1024) uint4 shared[];
    uint4 *x = shared, *u = x + STAGES * X_TILE, *m = u + STAGES * U_TILE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t column0 = (int64_t)blockIdx.x * COLUMNS, begin = blockIdx.y * a.each;
    const int64_t end = begin + a.each < a.rows ? begin + a.each : a.rows;
    const int tiles = (int)((end - begin + ROWS - 1) / ROWS);
    float sums[2][2 * TILES][4] = {};
    if (SNUG_CUDA_ARCH < 800) return;
    if (a.m) copy_narrow<TILES>(m, (const T *)a.m + column0 * a.r, a.r, COLUMNS, a.columns - column0, a.r);
    for (int t = 0; t < STAGES - 1; t++) {
        if (t < tiles) copy_rows<T, TILES>(x + t * X_TILE, u + t * U_TILE, a, begin + t * ROWS, end);
        commit_copies();
    }
    for (int t = 0; t < tiles; t++) {
        const int stage = t % STAGES, next = t + STAGES - 1, to = next % STAGES;
        wait_copies<STAGES - 2>();
        __syncthreads();
        if (next < tiles) copy_rows<T, TILES>(x + to * X_TILE, u + to * U_TILE, a, begin + next * ROWS, end);
        commit_copies();
        if (a.u) add_columns<T, TILES>(sums, shared_address(x + stage * X_TILE), shared_address(u + stage * U_TILE));
        if (a.m) store_rows<T, TILES>(a, shared_address(x + stage * X_TILE), shared_address(m), begin + t * ROWS, end);
    }
    if (!a.u) return;
#pragma unroll
    for (int i = 0; i < 2 * 2 * TILES * 4; i++) {
        const int of = i / (8 * TILES), tile = i / 4 % (2 * TILES), k = i % 4;
        const int64_t c = column0 + 32 * warp + 16 * of + lane / 4 + k / 2 * 8;
        const int j = 8 * tile + lane % 4 * 2 + k % 2;
        if (c < a.columns && j < a.r)
            a.q[blockIdx.y * a.columns * a.r + (a.turned ? j * a.columns + c : c * a.r + j)] = sums[of][tile][k];
    }
}

/* to = the sum of the parts, each of count values, or += if add; rows of `width` values, ld apart. */
template <typename T>
static __global__ void __launch_bounds__(256)
    add_parts(T *to, const float *parts, int64_t number, int64_t count, int64_t width, int64_t ld, bool add) {
    const int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 4;
    if (i >= count) return;
    float sum[4] = {};
#pragma unroll 8
    for (int64_t part = 0; part < number; part++) {
        const float4 v = *(const float4 *)(parts + part * count + i);
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
    T *out = to + i / width * ld + i % width;
    for (int k = 0; k < 4; k++) out[k] = from_float<T>(add ? to_float(out[k]) + sum[k] : sum[k]);
}

/* ---- which matmuls ---- */

static int64_t column_blocks(const struct thin &a) { return blocks_for(a.columns, COLUMNS); }
static int64_t row_parts(const struct thin &a) { return blocks_for(a.rows, a.each); }

static bool is_aligned(const void *data, int64_t ld) { return (uintptr_t)data % 16 == 0 && ld % 8 == 0; }

/* Completes a, whose matrices are set. False: they are not of the kernel's form. */
static bool divide(const struct snug_run *run, struct thin *a, enum snug_dtype type) {
    if ((type != SNUG_BF16 && type != SNUG_F16) || snug_cuda_of(run)->capability < 80) return false;
    if (a->r > NARROW || a->r % 8 || a->columns < COLUMNS || a->columns % 8 || a->rows == 0) return false;
    const int64_t parts = BLOCKS / column_blocks(*a) + 1, each = (a->rows + parts - 1) / parts;
    a->each = each < LEAST ? LEAST : (each + ROWS - 1) / ROWS * ROWS;
    return is_aligned(a->x, a->ldx);
}

static int64_t bytes_of_q(const struct thin &a) { return row_parts(a) * a.columns * a.r * (int64_t)sizeof(float); }
static int64_t bytes_of_p(const struct thin &a) { return column_blocks(a) * a.rows * a.r * (int64_t)sizeof(float); }

/* q is w, a LINEAR_DW. */
static bool find_q(const struct snug_run *run, const struct snug_cuda_matmul &w, struct thin *a) {
    const int64_t lda = w.a_stride ? w.a_stride : w.m, ldb = w.b_stride ? w.b_stride : w.n;
    *a = w.m > w.n ? (struct thin){.x = w.a, .u = w.b, .columns = w.m, .ldx = lda, .ldu = ldb, .r = (int)w.n}
                   : (struct thin){.x = w.b, .u = w.a, .columns = w.n, .ldx = ldb, .ldu = lda, .r = (int)w.m};
    a->turned = w.m <= w.n;
    a->rows = w.k;
    a->q = (float *)run->workspace;
    return w.b_type == w.type && w.c_type == SNUG_F32 && divide(run, a, w.type) && is_aligned(a->u, a->ldu) &&
           (uintptr_t)w.c % 16 == 0 && bytes_of_q(*a) <= SNUG_CUDA_MATMUL_WORKSPACE;
}

/* p is x, a LINEAR_DX. */
static bool find_p(const struct snug_run *run, const struct snug_cuda_matmul &x, struct thin *a) {
    *a = (struct thin){.x = x.a, .m = x.b, .columns = x.k, .ldx = x.a_stride ? x.a_stride : x.k, .r = (int)x.n};
    a->rows = x.m;
    a->p = (float *)run->workspace;
    return !x.transpose_b && !x.add && x.b_type == x.type && x.c_type == x.type && divide(run, a, x.type) &&
           is_aligned(x.b, x.n) && bytes_of_p(*a) <= SNUG_CUDA_MATMUL_WORKSPACE;
}

/* Adds p to a, which has q, if it is of the same x and both fit. */
static bool join(struct thin *a, const struct thin &p) {
    if (a->turned || p.x != a->x || p.rows != a->rows || p.columns != a->columns || p.r != a->r) return false;
    if (bytes_of_q(*a) + bytes_of_p(p) > SNUG_CUDA_MATMUL_WORKSPACE) return false;
    a->m = p.m;
    a->p = a->q + bytes_of_q(*a) / (int64_t)sizeof(float);
    return true;
}

/* The LINEAR_DX after op, a LINEAR_DW, if op is in the program's list and the kernel computes both: *a and *x are its.
 */
static bool find_pair(const struct snug_run *run, const struct snug_op *op, struct thin *a,
                      struct snug_cuda_matmul *x) {
    const struct snug_op *ops = run->program->ops, *end = ops + run->program->op_count;
    struct thin p;
    if (op < ops || op + 1 >= end || op->kind != SNUG_OP_LINEAR_DW || !op->linear_dw.dw) return false;
    if (op[1].kind != SNUG_OP_LINEAR_DX || op[1].phase != op->phase || op[1].linear_dx.dy != op->linear_dw.dy)
        return false;
    *x = snug_cuda_matmul_of(run, op + 1);
    return find_q(run, snug_cuda_matmul_of(run, op), a) && find_p(run, *x, &p) && join(a, p);
}

/* One of the two. */
static bool find_alone(const struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul &p,
                       struct thin *a) {
    return op->kind == SNUG_OP_LINEAR_DW ? find_q(run, p, a) : op->kind == SNUG_OP_LINEAR_DX && find_p(run, p, a);
}

extern "C" bool snug_cuda_takes_thin(const struct snug_run *run, const struct snug_op *op,
                                     const struct snug_cuda_matmul *p) {
    struct thin a;
    return find_alone(run, op, *p, &a);
}

extern "C" bool snug_cuda_is_thin_pair(const struct snug_run *run, const struct snug_op *op) {
    struct snug_cuda_matmul x;
    struct thin a;
    return find_pair(run, op, &a, &x);
}

template <typename T, int TILES> static void launch(const struct snug_cuda *cuda, const struct thin &a) {
    constexpr int SHARED = 16 * (STAGES * (X_TILE + ROWS * LINE<TILES>)+COLUMNS * LINE<TILES>);
    const dim3 grid((unsigned)column_blocks(a), (unsigned)row_parts(a));
    cudaFuncSetAttribute(thin_kernel<T, TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    thin_kernel<T, TILES><<<grid, THREADS, SHARED, cuda->stream>>>(a);
}

/* w: of q; x: of p. */
template <typename T>
static void run_thin(const struct snug_cuda *cuda, const struct thin &a, const struct snug_cuda_matmul *w,
                     const struct snug_cuda_matmul *x) {
    const int64_t count = a.columns * a.r, values = a.rows * a.r;
    if (a.r <= 16)
        launch<T, 1>(cuda, a);
    else if (a.r <= 32)
        launch<T, 2>(cuda, a);
    else if (a.r <= 48)
        launch<T, 3>(cuda, a);
    else
        launch<T, 4>(cuda, a);
    if (a.u)
        add_parts<<<blocks_for(count / 4, 256), 256, 0, cuda->stream>>>((float *)w->c, a.q, row_parts(a), count, count,
                                                                        count, w->add);
    if (a.m)
        add_parts<<<blocks_for(values / 4, 256), 256, 0, cuda->stream>>>(
            (T *)x->c, a.p, column_blocks(a), values, (int64_t)a.r, x->c_stride ? x->c_stride : x->n, false);
}

extern "C" bool snug_cuda_run_thin(struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul *p) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_matmul x = *p;
    struct thin a;
    if (!find_pair(run, op, &a, &x) && !find_alone(run, op, *p, &a)) return false;
    if (cuda->stream == cuda->side) cuda->side_workspace = true;
    if (p->type == SNUG_BF16)
        run_thin<bf16>(cuda, a, p, &x);
    else
        run_thin<f16>(cuda, a, p, &x);
    return true;
}
