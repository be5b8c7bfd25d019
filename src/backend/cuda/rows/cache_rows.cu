/* SPDX-License-Identifier: Apache-2.0 */
/* New rows of a cache of keys and values, and copies of its pages, in units U of a row: 16 bytes, or a value. Queries
   and keys are rotated before, by the same kernel: see rotate.cu. The blocks after those of tokens copy pages, of which
   they write other rows. */
#include "backend/cuda/rows/rotation.cuh"

enum { THREADS = 128, PAGE_BLOCKS = 8 };

template <typename U> struct rows {
    const U *from[2]; /* of keys, of values */
    U *to[2];
    int64_t from_row, units; /* from a row to the next one; in a row of the cache */
    int pages_each;
    bool single; /* every sequence has one new token */
    int tokens;  /* blocks of tokens; PAGE_BLOCKS for each copy follow */
    struct snug_cuda_batch batch;
};

/* Queries and keys, with values of the type T. */
struct rotated {
    void *q, *k; /* k: its first column */
    int64_t q_row, k_row;
    int heads, kv_heads, head_dim;
    struct snug_rotation rotation;
};

/* Whether the block copies a part of a page, which it does then. */
template <typename U> static __device__ __forceinline__ bool copies_page(const struct rows<U> &r) {
    const int block = (int)blockIdx.x - r.tokens, copy = block / PAGE_BLOCKS;
    if (block < 0) return false;
    wait_before();
    if (copy >= r.batch.step->page_copies) return true;
    const int32_t *copied = r.batch.copied_pages + 3 * copy;
    const int64_t page = SNUG_CACHE_PAGE * r.units, from = copied[0] * page, to = copied[1] * page;
    for (int64_t i = block % PAGE_BLOCKS * THREADS + threadIdx.x; i < copied[2] * r.units; i += PAGE_BLOCKS * THREADS) {
        const U key = r.to[0][from + i], value = r.to[1][from + i];
        r.to[0][to + i] = key;
        r.to[1][to + i] = value;
    }
    return true;
}

/* The unit of the cache at which the row of a token begins. */
template <typename U> static __device__ __forceinline__ int64_t cache_row(const struct rows<U> &r, int64_t token) {
    int low = r.single ? (int)token : 0, high = r.single ? low : r.batch.step->sequences - 1; /* its sequence */
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (r.batch.offsets[middle] <= token)
            low = middle;
        else
            high = middle - 1;
    }
    const int position = r.batch.positions[token];
    const int64_t page = r.batch.pages[(int64_t)low * r.pages_each + position / SNUG_CACHE_PAGE];
    return (page * SNUG_CACHE_PAGE + position % SNUG_CACHE_PAGE) * r.units;
}

/* A block has a token. */
template <typename U> static __global__ void __launch_bounds__(THREADS) write_rows(const struct rows<U> r) {
    const int64_t token = blockIdx.x, from = token * r.from_row;
    start_next();
    if (copies_page(r)) return;
    if (token >= r.batch.step->tokens) return wait_before();
    const int64_t to = cache_row(r, token);
    wait_before();
    for (int i = threadIdx.x; i < r.units; i += THREADS) {
        r.to[0][to + i] = r.from[0][from + i];
        r.to[1][to + i] = r.from[1][from + i];
    }
}

template <int W, typename T> static __device__ __forceinline__ void copy_piece(T *to, const T *from) {
    packed<T, W>::store(to, packed<T, W>::load(from));
}

/* The same with rotation: W values of T are a unit. */
template <typename T, int W, typename U>
static __global__ void __launch_bounds__(THREADS) rotate_and_write(const struct rows<U> r, const struct rotated a) {
    __shared__ float cosines[SNUG_ROTATION_PAIRS_MOST], sines[SNUG_ROTATION_PAIRS_MOST];
    const int pairs = a.rotation.pairs;
    const int64_t token = blockIdx.x, from = token * r.from_row;
    start_next();
    if (copies_page(r)) return;
    if (token >= r.batch.step->tokens) return wait_before();
    const int position = r.batch.positions[token];
    const int64_t to = cache_row(r, token);
    const float growth = rotation_growth(a.rotation, position);
    for (int i = threadIdx.x; i < pairs; i += THREADS) rotation_turn(a.rotation, position, i, cosines + i, sines + i);
    __syncthreads();
    wait_before();
    const int pieces = a.heads * pairs / W, all = pieces + a.kv_heads * pairs / W;
    T *q = (T *)a.q + token * a.q_row, *k = (T *)a.k + token * a.k_row, *keys = (T *)r.to[0] + to * W;
    for (int i = threadIdx.x; i < all; i += THREADS) {
        const bool key = i >= pieces;
        const struct rotation_piece piece = rotation_piece_of<W>(a.rotation, a.head_dim, key ? i - pieces : i);
        T *const row = key ? k : q;
        rotate_piece<W>(row, row, piece, cosines, sines, key ? 1 : growth);
        if (!key) continue;
        copy_piece<W>(keys + piece.first, row + piece.first);
        copy_piece<W>(keys + piece.second, row + piece.second);
    }
    const int units = a.head_dim / W, turned = 2 * pairs / W; /* of a head */
    for (int i = threadIdx.x; i < r.units; i += THREADS) {
        if (i % units >= turned) r.to[0][to + i] = r.from[0][from + i];
        r.to[1][to + i] = r.from[1][from + i];
    }
}

template <typename U>
static void fill(struct rows<U> *r, const struct snug_run *run, const struct snug_cache_rows &c, int64_t each) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    r->from_row = snug_run_cols(run, c.k) / each;
    r->units = snug_run_cols(run, c.keys) / each;
    r->pages_each = (int)snug_cuda_pages_each(run->program);
    r->single = cuda->decoding.single;
    r->batch = cuda->batch;
    r->from[0] = (const U *)snug_run_data(run, c.k) + c.column[0] / each;
    r->from[1] = (const U *)snug_run_data(run, c.v) + c.column[1] / each;
    r->to[0] = (U *)snug_run_data(run, c.keys);
    r->to[1] = (U *)snug_run_data(run, c.values);
    r->tokens = (int)snug_cuda_rows(run, c.k);
}

template <typename T, int W, typename U>
static void launch(const struct snug_run *run, const struct snug_cache_rows &c) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t copies = cuda->decoding.copies ? run->program->capacity[SNUG_EXTENT_SEQUENCES] : 0;
    struct rows<U> r;
    fill(&r, run, c, W);
    if (r.tokens == 0) return;
    const unsigned blocks = (unsigned)(r.tokens + PAGE_BLOCKS * copies);
    if (!c.q) return launch_chained(cuda, blocks, THREADS, write_rows<U>, r);
    const struct rotated a = {.q = snug_run_data(run, c.q),
                              .k = (T *)snug_run_data(run, c.k) + c.column[0],
                              .q_row = snug_run_cols(run, c.q),
                              .k_row = snug_run_cols(run, c.k),
                              .heads = c.heads,
                              .kv_heads = c.kv_heads,
                              .head_dim = c.head_dim,
                              .rotation = run->program->rotations[c.rotation]};
    launch_chained(cuda, blocks, THREADS, rotate_and_write<T, W, U>, r, a);
}

/* Rows of k and of v have the same width: they are columns of one tensor, or both of their own. */
extern "C" snug_status snug_cuda_cache_rows(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cache_rows &c = op->cache_rows;
    const struct snug_rotation *rotation = c.q ? &run->program->rotations[c.rotation] : NULL;
    int64_t widths = snug_run_cols(run, c.k) | snug_run_cols(run, c.keys) | c.column[0] | c.column[1];
    if (rotation) widths |= snug_run_cols(run, c.q) | c.head_dim | rotation->pairs | (rotation->neighbours ? 1 : 0);
    with_type(snug_run_dtype(run, c.k), [&](auto type) {
        typedef decltype(type) T;
        constexpr int W = 16 / (int)sizeof(T);
        if (widths % W == 0)
            launch<T, W, uint4>(run, c);
        else
            launch<T, 1, T>(run, c);
    });
    return snug_cuda_done(run, op);
}
