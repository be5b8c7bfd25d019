/* SPDX-License-Identifier: Apache-2.0 */
/* New rows of a cache of keys and values, and copies of its pages, in units U of a row: 16 bytes, or a value. */
#include "backend/cuda/device.cuh"

enum { THREADS = 128, PAGE_BLOCKS = 8 };

template <typename U> struct rows {
    const U *from[2]; /* of keys, of values */
    U *to[2];
    int64_t from_row, units; /* from a row to the next one; in a row of the cache */
    int pages_each;
    struct snug_cuda_batch batch;
};

/* Part blockIdx.x of copy blockIdx.y. */
template <typename U> static __global__ void __launch_bounds__(THREADS) copy_pages(const struct rows<U> r) {
    if ((int)blockIdx.y >= r.batch.step->page_copies) return;
    const int64_t page = SNUG_CACHE_PAGE * r.units;
    const int64_t from = r.batch.copied_pages[2 * blockIdx.y] * page,
                  to = r.batch.copied_pages[2 * blockIdx.y + 1] * page;
    for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < page; i += PAGE_BLOCKS * THREADS) {
        const U key = r.to[0][from + i], value = r.to[1][from + i];
        r.to[0][to + i] = key;
        r.to[1][to + i] = value;
    }
}

/* A block has a token. */
template <typename U> static __global__ void __launch_bounds__(THREADS) write_rows(const struct rows<U> r) {
    const int64_t token = blockIdx.x;
    if (token >= r.batch.step->tokens) return;
    int low = 0, high = r.batch.step->sequences - 1; /* its sequence */
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (r.batch.offsets[middle] <= token)
            low = middle;
        else
            high = middle - 1;
    }
    const int position = r.batch.positions[token];
    const int64_t page = r.batch.pages[(int64_t)low * r.pages_each + position / SNUG_CACHE_PAGE];
    const int64_t to = (page * SNUG_CACHE_PAGE + position % SNUG_CACHE_PAGE) * r.units, from = token * r.from_row;
    for (int i = threadIdx.x; i < r.units; i += THREADS) {
        r.to[0][to + i] = r.from[0][from + i];
        r.to[1][to + i] = r.from[1][from + i];
    }
}

template <typename U> static void launch(const struct snug_run *run, const struct snug_cache_rows &c) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t tokens = snug_cuda_rows(run, c.k), each = sizeof(U) / snug_dtype_size(snug_run_dtype(run, c.k));
    struct rows<U> r = {
        .from_row = snug_run_cols(run, c.k) / each, .units = snug_run_cols(run, c.keys) / each,
        .pages_each = (int)snug_cuda_pages_each(run->program), .batch = cuda->batch
    };
    r.from[0] = (const U *)snug_run_data(run, c.k) + c.column[0] / each;
    r.from[1] = (const U *)snug_run_data(run, c.v) + c.column[1] / each;
    r.to[0] = (U *)snug_run_data(run, c.keys);
    r.to[1] = (U *)snug_run_data(run, c.values);
    if (cuda->decoding.copies) {
        const dim3 grid(PAGE_BLOCKS, (unsigned)run->program->capacity[SNUG_EXTENT_SEQUENCES]);
        copy_pages<U><<<grid, THREADS, 0, cuda->stream>>>(r);
    }
    if (tokens > 0) write_rows<U><<<(unsigned)tokens, THREADS, 0, cuda->stream>>>(r);
}

/* Rows of k and of v have the same width: they are columns of one tensor, or both of their own. */
extern "C" snug_status snug_cuda_cache_rows(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cache_rows &c = op->cache_rows;
    const int64_t size = snug_dtype_size(snug_run_dtype(run, c.k)), vector = 16 / size;
    const int64_t widths = snug_run_cols(run, c.k) | snug_run_cols(run, c.keys) | c.column[0] | c.column[1];
    if (widths % vector == 0)
        launch<uint4>(run, c);
    else if (size == 4)
        launch<uint32_t>(run, c);
    else
        launch<uint16_t>(run, c);
    return snug_cuda_done(run, op);
}
