/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s = scale word[id] + type[type] + position[position].  type and position may be absent.
 * Backward, each row of a table has one owner that adds the rows of ds in a fixed order: the tokens of an id are
 * adjacent in by_id, those of a position are at most one per sequence, those of a type are summed in blocks of tokens
 * first, because there are few types.
 */
#include "backend/cuda/rows/rows.cuh"

enum { TYPE_BLOCKS = SNUG_CUDA_TYPE_PARTS };

struct embed {
    const void *word, *position, *type; /* position and type may be NULL */
    enum snug_dtype word_type, position_type, type_type;
    const float *rows; /* of some tokens, or NULL */
    struct snug_tokens tokens;
    void *s;
    struct snug_cuda_batch batch;
    int h;
    float scale;
};

/* sum = scale sum + W values of a row of a table */
template <int W>
static __device__ __forceinline__ void add_table(float (&sum)[W], float scale, const void *table, enum snug_dtype type,
                                                 int64_t element) {
    float row[W];
    if (type == SNUG_BF16)
        load<W>(row, (const bf16 *)table + element);
    else if (type == SNUG_F16)
        load<W>(row, (const f16 *)table + element);
    else
        load<W>(row, (const float *)table + element);
#pragma unroll
    for (int i = 0; i < W; i++) sum[i] += row[i] * scale;
}

template <typename T, int W> static __global__ void __launch_bounds__(ROW_THREADS) embed_kernel(const struct embed a) {
    const int64_t t = blockIdx.x, h = a.h;
    const bool live = t < a.batch.step->tokens;
    for (int64_t column = threadIdx.x * W; column < h; column += blockDim.x * W) {
        float sum[W] = {};
        if (live) {
            const int64_t id = a.batch.ids[t], place = a.rows ? a.tokens.places[id] : -1;
            if (place < 0)
                add_table<W>(sum, a.scale, a.word, a.word_type, id * h + column);
            else
                add_table<W>(sum, a.scale, a.rows, SNUG_F32, place * h + column);
            if (a.type) add_table<W>(sum, 1, a.type, a.type_type, a.batch.types[t] * h + column);
            if (a.position) add_table<W>(sum, 1, a.position, a.position_type, a.batch.position_ids[t] * h + column);
        }
        store<W>((T *)a.s + t * h + column, sum);
    }
}

/* Threads of a block that has a row's pieces of W values. */
static unsigned threads_of(int64_t h, int w) {
    return h < ROW_THREADS * w ? row_threads(h, w, 1) : (unsigned)ROW_THREADS;
}

extern "C" snug_status snug_cuda_embed(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct embed a = {.word = snug_run_data(run, op->embed.word),
                            .position = snug_run_data(run, op->embed.position),
                            .type = snug_run_data(run, op->embed.type),
                            .word_type = snug_run_dtype(run, op->embed.word),
                            .position_type = snug_run_dtype(run, op->embed.position),
                            .type_type = snug_run_dtype(run, op->embed.type),
                            .rows = (const float *)snug_run_data(run, op->embed.rows),
                            .tokens = snug_tokens_of(run, op->embed.tokens, snug_run_rows(run, op->embed.rows)),
                            .s = snug_run_data(run, op->embed.s),
                            .batch = cuda->batch,
                            .h = (int)snug_run_cols(run, op->embed.s),
                            .scale = op->embed.scale};
    const unsigned rows = (unsigned)snug_cuda_rows(run, op->embed.s);
    if (rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, op->embed.s), [&](auto type) {
        typedef decltype(type) T;
        constexpr int W = 16 / (int)sizeof(T);
        if (a.h % W == 0)
            embed_kernel<T, W><<<rows, threads_of(a.h, W), 0, cuda->stream>>>(a);
        else
            embed_kernel<T, 1><<<rows, threads_of(a.h, 1), 0, cuda->stream>>>(a);
    });
    return snug_cuda_done(run, op);
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
    scatter_words(float *table, const T *ds, struct snug_cuda_batch batch, const int32_t *places, int h, float scale,
                  int32_t padding, bool overwrite) {
    const int64_t place = blockIdx.x;
    const int32_t tokens = batch.step->tokens;
    if (place >= tokens) return;
    const int32_t id = batch.ids[batch.by_id[place]];
    if (id == padding || (place > 0 && batch.ids[batch.by_id[place - 1]] == id)) return;
    const int64_t to = places ? places[id] : id;
    if (to < 0) return;
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
#pragma unroll
        for (int i = 0; i < W; i++) sum[i] *= scale;
        put_sums<W>(table + to * h + column, sum, overwrite);
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
    const int h = (int)snug_run_cols(run, e.ds);
    const unsigned threads = threads_of(h, W);
    const struct snug_tensor *tensors = run->program->tensors;
    const int64_t tokens = snug_cuda_rows(run, e.ds);
    if (e.dword) {
        float *word = (float *)snug_run_data(run, e.dword);
        if (overwrite) cudaMemsetAsync(word, 0, (size_t)(tensors[e.dword].rows * h) * sizeof *word, cuda->stream);
        if (tokens > 0)
            scatter_words<T, W><<<(unsigned)tokens, threads, 0, cuda->stream>>>(
                word, ds, cuda->batch, snug_tokens_of(run, e.tokens, tensors[e.dword].rows).places, h, e.scale,
                e.padding, overwrite);
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

extern "C" snug_status snug_cuda_embed_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_embed_backward &e = op->embed_backward;
    if (e.index) return snug_fail(run->ctx, SNUG_E_INTERNAL, "the CUDA backend has no gradients of single rows");
    with_type(snug_run_dtype(run, e.ds), [&](auto type) {
        typedef decltype(type) T;
        constexpr int W = 16 / (int)sizeof(T);
        const T *ds = (const T *)snug_run_data(run, e.ds);
        if (snug_run_cols(run, e.ds) % W == 0)
            scatter_as<T, W>(run, op, ds);
        else
            scatter_as<T, 1>(run, op, ds);
    });
    return snug_cuda_done(run, op);
}
