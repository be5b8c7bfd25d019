/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s = word[id] + type[type] + position[position];  y = dropout(norm(s)).  type and position may be absent.
 * Backward, ds overwrites dy; then each row of a table has one owner that adds the rows of ds in a fixed order: the
 * tokens of an id are adjacent in by_id, those of a position are at most one per sequence, those of a type are summed
 * in blocks of tokens first, because there are few types.
 */
#include "backend/cuda/rows/rows.cuh"

enum { TYPE_BLOCKS = SNUG_CUDA_TYPE_PARTS };

struct embed {
    const void *word, *position, *type; /* position, type and beta may be NULL */
    enum snug_dtype word_type, position_type, type_type;
    const float *gamma, *beta;
    void *s, *y;
    struct snug_cuda_batch batch;
    struct dropout dropout;
    int h;
    int64_t rows;
    float eps;
};

template <int W, int V>
static __device__ __forceinline__ void load_table_row(row<W, V> &r, const void *table, enum snug_dtype type,
                                                      int64_t number, int h) {
    if (type == SNUG_BF16)
        load_row(r, (const bf16 *)table + number * h, h);
    else if (type == SNUG_F16)
        load_row(r, (const f16 *)table + number * h, h);
    else
        load_row(r, (const float *)table + number * h, h);
}

template <typename T, int W, int V>
static __global__ void __launch_bounds__(ROW_THREADS) embed_kernel(const struct embed a) {
    __shared__ struct warp_sums sums[2];
    const int h = a.h;
    row<W, V> gamma, beta;
    load_row(gamma, a.gamma, h);
    load_row_or_zeros(beta, a.beta, h);
    clear_sums(sums, 2);
    for (int64_t t = blockIdx.x; t < a.rows; t += gridDim.x) {
        const bool live = t < a.batch.step->tokens;
        row<W, V> sum[1], type, position;
        struct dropout_row mask = {};
        clear_row(sum[0]);
        if (live) {
            mask = dropout_row_of(a.batch, t);
            load_table_row(sum[0], a.word, a.word_type, a.batch.ids[t], h);
            clear_row(type);
            clear_row(position);
            if (a.type) load_table_row(type, a.type, a.type_type, a.batch.types[t], h);
            if (a.position) load_table_row(position, a.position, a.position_type, a.batch.position_ids[t], h);
#pragma unroll
            for (int i = 0; i < V; i++)
#pragma unroll
                for (int k = 0; k < W; k++) sum[0].v[i][k] = sum[0].v[i][k] + type.v[i][k] + position.v[i][k];
        }
        round_row<W, V, T>((T *)a.s + t * h, sum[0], h);
        normalise_rows<W, V, 1>(sum, gamma, beta, h, a.eps, sums);
        drop_row(sum[0], a.dropout, mask, h);
        if (!live) clear_row(sum[0]);
        store_row((T *)a.y + t * h, sum[0], h);
    }
}

template <typename T> static bool launch_embed(const struct snug_cuda *cuda, const struct embed &a) {
    return with_row_shape<T>(a.h, [&](auto shape) {
        constexpr int W = decltype(shape)::w, V = decltype(shape)::v;
        const unsigned threads = row_threads(a.h, W, V);
        embed_kernel<T, W, V><<<row_blocks(cuda, a.rows, 1, threads, 3), threads, 0, cuda->stream>>>(a);
    });
}

extern "C" snug_status snug_cuda_embed(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct embed a = {.word = snug_run_data(run, op->embed.word),
                            .position = snug_run_data(run, op->embed.position),
                            .type = snug_run_data(run, op->embed.type),
                            .word_type = snug_run_dtype(run, op->embed.word),
                            .position_type = snug_run_dtype(run, op->embed.position),
                            .type_type = snug_run_dtype(run, op->embed.type),
                            .gamma = (const float *)snug_run_data(run, op->embed.gamma),
                            .beta = (const float *)snug_run_data(run, op->embed.beta),
                            .s = snug_run_data(run, op->embed.s),
                            .y = snug_run_data(run, op->embed.y),
                            .batch = cuda->batch,
                            .dropout = dropout_of(op),
                            .h = (int)snug_run_cols(run, op->embed.s),
                            .rows = snug_cuda_rows(run, op->embed.s),
                            .eps = op->embed.eps};
    if (a.rows == 0) return SNUG_OK;
    bool done = false;
    with_type(snug_run_dtype(run, op->embed.s), [&](auto type) { done = launch_embed<decltype(type)>(cuda, a); });
    return done ? snug_cuda_done(run, op) : snug_cuda_check_sizes(run->program, op);
}

/* ---- backward ---- */

template <int W> static __device__ __forceinline__ void put_sums(float *to, const float (&sum)[W], bool overwrite) {
    float total[W] = {};
    if (!overwrite) load<W>(total, to);
#pragma unroll
    for (int i = 0; i < W; i++) total[i] += sum[i];
    store<W>(to, total);
}

/* Index `place` of by_id: the first token of an id adds the rows of all of them, in order, WORDS at a time. Frequent
   words have long lists, so the loads of several rows and of their numbers must overlap. */
enum { WORDS = 8 };

template <typename T, int W>
static __global__ void __launch_bounds__(ROW_THREADS)
    scatter_words(float *table, const T *ds, struct snug_cuda_batch batch, int h, int32_t padding, bool overwrite) {
    const int64_t place = blockIdx.x;
    const int32_t tokens = batch.step->tokens;
    if (place >= tokens) return;
    const int32_t id = batch.ids[batch.by_id[place]];
    if (id == padding || (place > 0 && batch.ids[batch.by_id[place - 1]] == id)) return;
    for (int column = (int)threadIdx.x * W; column < h; column += (int)blockDim.x * W) {
        float sum[W] = {};
        bool more = true;
        for (int64_t p = place; more; p += WORDS) {
            int32_t token[WORDS];
#pragma unroll
            for (int k = 0; k < WORDS; k++) token[k] = p + k < tokens ? batch.by_id[p + k] : -1;
#pragma unroll
            for (int k = 0; k < WORDS; k++)
                if (token[k] >= 0 && batch.ids[token[k]] != id) token[k] = -1;
            float row[WORDS][W];
#pragma unroll
            for (int k = 0; k < WORDS; k++)
                if (token[k] >= 0) load<W>(row[k], ds + (int64_t)token[k] * h + column);
#pragma unroll
            for (int k = 0; k < WORDS; k++)
#pragma unroll
                for (int i = 0; i < W; i++)
                    if (token[k] >= 0) sum[i] += row[k][i];
            more = token[WORDS - 1] >= 0;
        }
        put_sums<W>(table + (int64_t)id * h + column, sum, overwrite);
    }
}

template <typename T, int W>
static __global__ void __launch_bounds__(ROW_THREADS)
    scatter_positions(float *table, const T *ds, struct snug_cuda_batch batch, int h, int32_t first_position,
                      bool overwrite) {
    const int32_t sequences = batch.step->sequences, number = blockIdx.x;
    const int32_t place = number - first_position; /* in a sequence without padding tokens before it */
    for (int column = (int)threadIdx.x * W; column < h; column += (int)blockDim.x * W) {
        float sum[W] = {};
#pragma unroll 8
        for (int32_t s = 0; s < sequences; s++) {
            const int32_t end = batch.offsets[s + 1];
            int32_t token = batch.offsets[s] + place;
            if (first_position) /* only then are there tokens that are not counted */
                while (token < end && place >= 0 && batch.position_ids[token] != number) token++;
            if (place < 0 || token >= end) continue;
            float row[W];
            load<W>(row, ds + (int64_t)token * h + column);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] += row[i];
        }
        put_sums<W>(table + (int64_t)number * h + column, sum, overwrite);
    }
}

/* partial [TYPE_BLOCKS, types, h], two types in each pass over the tokens. */
template <typename T, int W>
static __global__ void __launch_bounds__(ROW_THREADS)
    scatter_types(float *partial, const T *ds, struct snug_cuda_batch batch, int h, int types) {
    const int64_t tokens = batch.step->tokens, each = (tokens + TYPE_BLOCKS - 1) / TYPE_BLOCKS;
    const int64_t begin = blockIdx.x * each, end = begin + each < tokens ? begin + each : tokens;
    for (int type = 0; type < types; type += 2)
        for (int column = (int)threadIdx.x * W; column < h; column += (int)blockDim.x * W) {
            float sum[2][W] = {};
#pragma unroll 8
            for (int64_t t = begin; t < end; t++) {
                float row[W];
                load<W>(row, ds + t * h + column);
                const int32_t own = batch.types[t];
#pragma unroll
                for (int i = 0; i < W; i++) {
                    sum[0][i] += own == type ? row[i] : 0;
                    sum[1][i] += own == type + 1 ? row[i] : 0;
                }
            }
            float *to = partial + ((int64_t)blockIdx.x * types + type) * h + column;
            store<W>(to, sum[0]);
            if (type + 1 < types) store<W>(to + h, sum[1]);
        }
}

template <typename T, int W> static void scatter_as(struct snug_run *run, const struct snug_op *op, const T *ds) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_embed_backward &e = op->embed_backward;
    const bool overwrite = snug_run_overwrites(run, op);
    const int h = (int)snug_run_cols(run, e.dy);
    const unsigned threads = row_threads(h < ROW_THREADS * W ? h : ROW_THREADS * W, W, 1);
    const struct snug_tensor *tensors = run->program->tensors;
    const int64_t tokens = snug_cuda_rows(run, e.dy);
    if (e.dword) {
        float *word = (float *)snug_run_data(run, e.dword);
        if (overwrite) cudaMemsetAsync(word, 0, (size_t)(tensors[e.dword].rows * h) * sizeof *word, cuda->stream);
        if (tokens > 0)
            scatter_words<T, W>
                <<<(unsigned)tokens, threads, 0, cuda->stream>>>(word, ds, cuda->batch, h, e.padding, overwrite);
    }
    if (e.dposition)
        scatter_positions<T, W><<<(unsigned)tensors[e.dposition].rows, threads, 0, cuda->stream>>>(
            (float *)snug_run_data(run, e.dposition), ds, cuda->batch, h, e.first_position, overwrite);
    if (e.dtype) {
        const int64_t types = tensors[e.dtype].rows;
        float *partial = (float *)run->workspace;
        scatter_types<T, W><<<TYPE_BLOCKS, threads, 0, cuda->stream>>>(partial, ds, cuda->batch, h, (int)types);
        snug_cuda_add_partials(run, (float *)snug_run_data(run, e.dtype), partial, TYPE_BLOCKS, types * h, overwrite);
    }
}

template <typename T> static void scatter(struct snug_run *run, const struct snug_op *op, const T *ds) {
    constexpr int W = 16 / (int)sizeof(T);
    if (snug_run_cols(run, op->embed_backward.dy) % W == 0)
        scatter_as<T, W>(run, op, ds);
    else
        scatter_as<T, 1>(run, op, ds);
}

extern "C" snug_status snug_cuda_embed_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_embed_backward &e = op->embed_backward;
    void *dy = snug_run_data(run, e.dy);
    if (e.index) return snug_fail(run->ctx, SNUG_E_INTERNAL, "the CUDA backend has no gradients of single rows");
    struct norm_backward a = {.dy = dy,
                              .s = snug_run_data(run, e.s),
                              .ds = dy,
                              .gamma = (const float *)snug_run_data(run, e.gamma),
                              .eps = e.eps};
    RETURN_IF_ERROR(snug_cuda_norm_backward_rows(run, op, &a, e.dy, true, (float *)snug_run_data(run, e.dgamma),
                                                 (float *)snug_run_data(run, e.dbeta)));
    with_type(snug_run_dtype(run, e.dy), [&](auto type) { scatter(run, op, (const decltype(type) *)dy); });
    return snug_cuda_done(run, op);
}
