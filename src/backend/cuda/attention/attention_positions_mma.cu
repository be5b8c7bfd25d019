/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Position keys and queries (attention_positions.cu has the formula) on tensor cores. The products q_i . pk_r and
 * k_j . pq_r of all tokens and used rows are matmuls. attention_mma.cu and attention_mma_backward.cu add them to the
 * scores: a pair reads two of them, by the row of its distance. The latter also stores dS, of which a token and row
 * have the sum over the pairs of the row's distances. These sums replace the products: dq and dk have their matmuls
 * with the rows, dpk and dpq their transposed matmuls with all tokens, in parts that are added in order.
 */
#include "backend/cuda/attention/attention_mma.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, SIDE = 16 * WARPS };

struct table {          /* position keys, which queries read, or position queries, which keys read */
    const void *rows;   /* the first used row: pk or pq */
    const void *tokens; /* q or k */
    int64_t token_row;  /* elements from a token to the next one */
    void *products;     /* [heads, tokens, stride]: then the sums of dS */
    const void *pairs;  /* [heads, tokens, others]: dS */
    void *dtokens;      /* dq or dk */
    float *partial;     /* [parts, stride, heads, d], in place of dS */
    void *drows;        /* dpk or dpq, all rows; or NULL */
    bool of_keys;
};

struct positions {
    struct table table[2];
    int tables, count, stride, parts; /* count: used rows */
    int64_t others, all;              /* all: rows of a table */
    int32_t *rows, *distances; /* the row of each distance, which may be below 0; the first distance of each row */
    int32_t farthest, span, first, logarithmic;
};

/* ---- distances ---- */

static __device__ __forceinline__ int row_of(const struct positions &p, int distance) {
    const int row = snug_position_row(distance, p.span, p.logarithmic) - p.first;
    return row < 0 ? 0 : row < p.count ? row : p.count - 1;
}

/* Rows grow with distances. */
static __global__ void distances_kernel(const struct positions p) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) - p.farthest;
    if (i > p.farthest + 1) return;
    const int before = i > -p.farthest ? row_of(p, i - 1) : -1, row = i <= p.farthest ? row_of(p, i) : p.count;
    if (i <= p.farthest) p.rows[i] = row;
    for (int r = before + 1; r <= row; r++) p.distances[r] = i;
}

/* ---- products ---- */

/* One head of a table. */
struct task {
    struct table table;
    int local, index; /* the head's number among those of this pass, and among all */
    int64_t column;
};
static __device__ __forceinline__ struct task task_of(const struct attention &a, const struct positions &p) {
    const int local = blockIdx.y / p.tables, index = a.positions.first + local;
    return {p.table[blockIdx.y % p.tables], local, index, (int64_t)index * a.d};
}

template <typename E, int D>
static __global__ void __launch_bounds__(THREADS) products_kernel(const struct attention a, const struct positions p) {
    typedef stored<E> T;
    if (!is_compiled<E>()) return;
    extern __shared__ __align__(1024) uint4 shared[];
    const struct task task = task_of(a, p);
    const int tokens = a.batch.step->tokens, t0 = blockIdx.x * SIDE, r0 = blockIdx.z * SIDE;
    const int row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
    if (t0 >= tokens) return;
    copy_tile<D, SIDE, THREADS, AS_THEY_ARE>(shared, (const T *)task.table.tokens + task.column, task.table.token_row,
                                             tokens, t0, a.d);
    copy_tile<D, SIDE, THREADS, AS_THEY_ARE>(shared + SIDE * ROW<E, D> / 16, (const T *)task.table.rows + task.column,
                                             a.h, p.count, r0, a.d);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    const uint32_t base = shared_address(shared);
    float products[1][SIDE / 8][4];
    rows_by_rows<E, D, 1, SIDE / 8>(products, base + by_rows<ROW<E, D>>(), row * ROW<E, D>,
                                    base + by_columns<ROW<E, D>>(), SIDE * ROW<E, D>);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int token = t0 + row + 8 * half + lane / 4;
        if (token >= tokens) continue;
        product<T> *to = (product<T> *)task.table.products + (task.local * a.positions.tokens + token) * p.stride + r0;
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
            store_pair(to + 8 * n + lane % 4 * 2, fit_product<T>(products[0][n][2 * half]),
                       fit_product<T>(products[0][n][2 * half + 1]));
    }
}

/* ---- a tile of SIDE tokens by SIDE rows as left operand, with the depths of load_depth ---- */

template <typename E> constexpr int TILE = SIDE *ROW<E, SIDE>;

/* 16 tokens from row on; their depth is the tile's rows. */
template <typename E> static __device__ __forceinline__ uint32_t tokens_at(uint32_t base, int row) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if constexpr (sizeof(stored<E>) == 2) return base + by_rows<ROW<E, SIDE>>() + row * ROW<E, SIDE>;
    return base + 16 * piece_of<ROW<E, SIDE>>(row + g, t / 2) + t % 2 * 8;
}
template <typename E> static __device__ __forceinline__ words<E, 4> load_tokens(uint32_t at, int depth) {
    uint32_t raw[4];
    at ^= depth * (int)sizeof(stored<E>);
    if constexpr (sizeof(stored<E>) == 2) {
        load_matrices(raw, at);
    } else {
        uint32_t low[2], high[2];
        load_words(low, at);
        load_words(high, at + 8 * ROW<E, SIDE>);
        raw[0] = low[0], raw[1] = high[0], raw[2] = low[1], raw[3] = high[1];
    }
    return prepare<E>(raw);
}

/* 16 rows from column on; their depth is the tile's tokens. With fp32, result rows g and g + 8 are 2 g and 2 g + 1. */
template <typename E> static __device__ __forceinline__ uint32_t rows_at(uint32_t base, int column) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if constexpr (sizeof(stored<E>) == 2) return (base + by_columns<ROW<E, SIDE>>()) ^ 2 * column;
    return base + 16 * piece_of<ROW<E, SIDE>>(2 * t, (column + 2 * g) / 4) + g % 2 * 8;
}
template <typename E> static __device__ __forceinline__ words<E, 4> load_rows(uint32_t at, int depth) {
    uint32_t raw[4];
    at += depth * ROW<E, SIDE>;
    if constexpr (sizeof(stored<E>) == 2) {
        load_turned(raw, at);
    } else {
        uint32_t low[2], high[2];
        load_words(low, at);
        load_words(high, (at ^ 16) + ROW<E, SIDE>);
        raw[0] = low[0], raw[1] = low[1], raw[2] = high[0], raw[3] = high[1];
    }
    return prepare<E>(raw);
}

/* sum [16, D] += left times SIDE rows of right, an address by_depth of D / 8. */
template <typename E, int D, typename F>
static __device__ __forceinline__ void add_tile(float (&sum)[D / 8][4], F left, uint32_t right) {
    constexpr int W = LOADED<E, D / 8>;
#pragma unroll
    for (int k = 0; k < SIDE; k += DEPTH<E>) {
        const words<E, 4> a = left(k);
#pragma unroll
        for (int c = 0; c < D / 8; c += W) {
            const words<E, 2 *W> b = load_depth<E, D, W>(right ^ ROW<E, 8> * c, k * ROW<E, D>);
#pragma unroll
            for (int i = 0; i < W; i++) multiply(sum[c + i], a, b, i);
        }
    }
}

/* The channel of the first or second column that a lane has of result n of N; see store_row(). */
template <typename E, int N> static __device__ __forceinline__ int channel_of(int n, int column) {
    constexpr int W = LOADED<E, N>;
    const int t = threadIdx.x % 4;
    return sizeof(stored<E>) == 2 ? 8 * n + 2 * t + column : 8 * (n - n % W) + 2 * W * t + n % W + W * column;
}

/* ---- gradients ---- */

/* The sum of a token's dS over the pairs of the distances begin … end - 1. */
template <typename T>
static __device__ __forceinline__ float sum_of(const T *pairs, bool of_keys, int position, int begin, int end,
                                               int length) {
    int from = of_keys ? position + begin : position - end + 1, to = of_keys ? position + end : position - begin + 1;
    if (from < 0) from = 0;
    if (to > length) to = length;
    float sum = from < to ? to_float(pairs[from]) : 0;
    for (int i = from + 1; i < to; i++) sum += to_float(pairs[i]);
    return sum;
}

/* The sums of SIDE tokens, in place of their products; and their part of dq or dk. */
template <typename E, int D>
static __global__ void __launch_bounds__(THREADS) tokens_kernel(const struct attention a, const struct positions p) {
    typedef stored<E> T;
    if (!is_compiled<E>()) return;
    extern __shared__ __align__(1024) uint4 shared[];
    const struct task task = task_of(a, p);
    const struct head head = head_of(a, blockIdx.z, task.index);
    const int t0 = blockIdx.x * SIDE, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t0 >= head.length) return;
    const int64_t first = first_of(a.positions, head);
    const uint32_t base = shared_address(shared), left_at = tokens_at<E>(base, 16 * warp);
    const uint32_t right_at = base + TILE<E> + by_depth<E, D, D / 8>();
    float sum[D / 8][4] = {};
    for (int r0 = 0; r0 < p.stride; r0 += SIDE) {
        __syncthreads(); /* the previous tiles are no longer needed */
        copy_tile<D, SIDE, THREADS, AS_THEY_ARE>(shared + TILE<E> / 16, (const T *)task.table.rows + task.column, a.h,
                                                 p.count, r0, a.d);
        commit_copies();
        const int r = r0 + 2 * lane; /* and the next row; none after the last one */
        int edge[3];
#pragma unroll
        for (int i = 0; i < 3; i++) edge[i] = p.distances[r + i < p.count ? r + i : p.count];
#pragma unroll 4
        for (int row = warp; row < SIDE; row += WARPS) {
            const int position = t0 + row;
            float two[2] = {};
            if (position < head.length) {
                const T *pairs = (const T *)task.table.pairs + (first + position) * p.others;
#pragma unroll
                for (int i = 0; i < 2; i++)
                    two[i] = sum_of(pairs, task.table.of_keys, position, edge[i], edge[i + 1], head.length);
                store_pair((T *)task.table.products + (first + position) * p.stride + r, two[0], two[1]);
            }
            T *tile = (T *)(shared + piece_of<ROW<E, SIDE>>(row, lane * sizeof(T) / 8));
            store_pair(tile + 2 * lane % (16 / sizeof(T)), two[0], two[1]);
        }
        wait_copies<0>();
        __syncthreads();
        add_tile<E, D>(
            sum, [&](int k) { return load_tokens<E>(left_at, k); }, right_at);
    }
    const float scale = a.scale * a.dropout.scale;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int position = t0 + 16 * warp + 8 * half + lane / 4;
        if (position >= head.length) continue;
        T *to = (T *)task.table.dtokens + (head.first + position) * task.table.token_row + task.column;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int c = channel_of<E, D / 8>(n, i);
                if (c < a.d) to[c] = from_float<T>(to_float(to[c]) + sum[n][2 * half + i] * scale);
            }
    }
}

/* Sums over a part of the tokens, for the gradients of SIDE rows. */
template <typename E, int D>
static __global__ void __launch_bounds__(THREADS) rows_kernel(const struct attention a, const struct positions p) {
    typedef stored<E> T;
    if (!is_compiled<E>()) return;
    extern __shared__ __align__(1024) uint4 shared[];
    const struct task task = task_of(a, p);
    if (!task.table.drows) return;
    const int r0 = blockIdx.x * SIDE, part = blockIdx.z, warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int tokens = a.batch.step->tokens, each = (tokens + SIDE * p.parts - 1) / (SIDE * p.parts) * SIDE;
    const int end = (part + 1) * each < tokens ? (part + 1) * each : tokens;
    const T *sums = (const T *)task.table.products + task.local * a.positions.tokens * p.stride + r0;
    const uint32_t base = shared_address(shared), left_at = rows_at<E>(base, 16 * warp);
    const uint32_t right_at = base + TILE<E> + by_depth<E, D, D / 8>();
    float sum[D / 8][4] = {};
    for (int t0 = part * each; t0 < end; t0 += SIDE) {
        __syncthreads(); /* the previous tiles are no longer needed */
        copy_tile<SIDE, SIDE, THREADS, AS_THEY_ARE>(shared, sums, p.stride, end, t0);
        copy_tile<D, SIDE, THREADS, AS_THEY_ARE>(shared + TILE<E> / 16, (const T *)task.table.tokens + task.column,
                                                 task.table.token_row, end, t0, a.d);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
        add_tile<E, D>(
            sum, [&](int k) { return load_rows<E>(left_at, k); }, right_at);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = r0 + 16 * warp + (sizeof(T) == 4 ? 2 * g + half : 8 * half + g);
        float *to = task.table.partial + ((int64_t)(part * p.stride + row) * a.positions.heads + task.local) * a.d;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int c = channel_of<E, D / 8>(n, i);
                if (c < a.d) to[c] = sum[n][2 * half + i];
            }
    }
}

/* Adds the parts, in order; rows that are not used have no gradient. */
template <typename T> static __global__ void add_parts_kernel(const struct attention a, const struct positions p) {
    const struct table table = p.table[blockIdx.y];
    const int width = a.positions.heads * a.d;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / width;
    if (!table.drows || row >= p.all) return;
    const int used = (int)row - p.first, c = (int)(i % width);
    float sum = 0;
    for (int part = 0; part < p.parts && used >= 0 && used < p.count; part++)
        sum += table.partial[(int64_t)(part * p.stride + used) * width + c];
    ((T *)table.drows)[row * a.h + a.positions.first * a.d + c] = from_float<T>(sum * (a.scale * a.dropout.scale));
}

/* ---- launching ---- */

template <typename K>
static void launch(K kernel, const dim3 grid, int bytes, const struct attention &a, const struct positions &p,
                   const struct snug_run *run) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, THREADS, bytes, snug_cuda_of(run)->stream>>>(a, p);
}

/* The heads of a pass. */
template <typename E, int D>
static bool launch_pass(const struct attention &a, const struct positions &p, const struct snug_run *run,
                        enum snug_dtype type, bool backward) {
    typedef stored<E> T;
    const unsigned tasks = (unsigned)(a.positions.heads * p.tables), tiles = (unsigned)p.stride / SIDE;
    const unsigned sequences = (unsigned)run->batch->sequences;
    const int both = 2 * SIDE * ROW<E, D>, bytes = TILE<E> + SIDE * ROW<E, D>;
    if (sequences > 0) launch(products_kernel<E, D>, dim3(blocks_for(a.bucket, SIDE), tasks, tiles), both, a, p, run);
    if (!backward) return snug_cuda_attention_mma(a, run, type);
    if (!snug_cuda_attention_mma_backward(a, run, type)) return false;
    if (sequences > 0)
        launch(tokens_kernel<E, D>, dim3(blocks_for(p.farthest + 1, SIDE), tasks, sequences), bytes, a, p, run);
    if (!p.table[0].drows && !p.table[1].drows) return true;
    launch(rows_kernel<E, D>, dim3(tiles, tasks, (unsigned)p.parts), bytes, a, p, run);
    const dim3 grid(blocks_for(p.all * a.positions.heads * a.d, 256), (unsigned)p.tables);
    add_parts_kernel<T><<<grid, 256, 0, snug_cuda_of(run)->stream>>>(a, p);
    return true;
}

/* A table of position keys (of_keys false) or position queries, and its room in the workspace. */
static struct table table_of(const struct attention &a, const struct snug_cuda_positions &sizes, int number,
                             bool of_keys, uint8_t *workspace) {
    uint8_t *products = workspace + sizes.distance_bytes + number * sizes.product_bytes;
    uint8_t *pairs = workspace + sizes.distance_bytes + sizes.tables * sizes.product_bytes + number * sizes.pair_bytes;
    return {.tokens = of_keys ? a.k : a.q,
            .token_row = of_keys ? a.k_row : a.q_row,
            .products = products,
            .pairs = pairs,
            .dtokens = of_keys ? a.dk : a.dq,
            .partial = (float *)pairs,
            .of_keys = of_keys};
}

static struct positions positions_of(struct attention *a, const struct snug_run *run, const struct snug_op *op,
                                     const struct snug_cuda_positions &sizes, bool backward, uint8_t *workspace) {
    const struct snug_attention_backward &b = op->attention_backward;
    const int32_t tensors[] = {backward ? b.pk : op->attention.pk, backward ? b.pq : op->attention.pq};
    const int32_t gradients[] = {backward ? b.dpk : 0, backward ? b.dpq : 0};
    struct positions p = {};
    p.count = sizes.rows;
    p.stride = (int)sizes.stride;
    p.parts = sizes.parts;
    p.others = sizes.others;
    p.all = snug_run_rows(run, tensors[0] ? tensors[0] : tensors[1]);
    p.span = (int32_t)p.all / 2;
    p.first = sizes.first;
    p.logarithmic = snug_op_attention_form(op)->farthest;
    p.farthest = run->program->longest > 0 ? (int32_t)run->program->longest - 1 : 0;
    p.rows = (int32_t *)workspace + p.farthest;
    p.distances = p.rows + p.farthest + 1;
    struct position_scores &of = a->positions;
    of = {.rows = p.rows, .tokens = sizes.tokens, .stride = sizes.stride, .others = sizes.others};
    of.near = p.logarithmic > 0 ? p.span / 2 : p.span - 1;
    of.middle = p.span - p.first;
    for (int keys = 0; keys < 2; keys++) {
        if (!tensors[keys]) continue;
        struct table table = table_of(*a, sizes, p.tables, keys, workspace);
        table.rows = (uint8_t *)snug_run_data(run, tensors[keys]) +
                     p.first * a->h * snug_dtype_size(snug_run_dtype(run, tensors[keys]));
        table.drows = snug_run_data(run, gradients[keys]);
        (keys ? of.p2c : of.c2p) = table.products;
        (keys ? of.of_key : of.of_query) = (void *)table.pairs;
        p.table[p.tables++] = table;
    }
    return p;
}

bool snug_cuda_attention_positions_mma(const struct attention &all, const struct snug_run *run,
                                       const struct snug_op *op, bool backward, void *workspace) {
    const struct snug_cuda_positions sizes = snug_cuda_positions_of(run->program, op);
    const int32_t pk = backward ? op->attention_backward.pk : op->attention.pk;
    const int32_t pq = backward ? op->attention_backward.pq : op->attention.pq;
    const enum snug_dtype type = snug_run_dtype(run, pk ? pk : pq);
    if (!sizes.heads || !has_matmuls(snug_cuda_of(run), type)) return false;
    struct attention a = all;
    const struct positions p = positions_of(&a, run, op, sizes, backward, (uint8_t *)workspace);
    distances_kernel<<<blocks_for(2 * p.farthest + 2, 256), 256, 0, snug_cuda_of(run)->stream>>>(p);
    return with_operands(snug_cuda_of(run), type, [&](auto operands) {
        typedef decltype(operands) E;
        bool done = true;
        for (int first = 0; done && first < a.heads; first += sizes.heads) {
            a.positions.first = first;
            a.positions.heads = a.heads - first < sizes.heads ? a.heads - first : sizes.heads;
            switch (SNUG_CUDA_MMA_WIDTH(a.d)) {
            case 32: done = launch_pass<E, 32>(a, p, run, type, backward); break;
            case 64: done = launch_pass<E, 64>(a, p, run, type, backward); break;
            default: done = launch_pass<E, 128>(a, p, run, type, backward);
            }
        }
        return done;
    });
}
