/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s = word[id] + type[type] + position[position];  y = dropout(norm(s)).
 * Backward, ds takes dy's place; then each row of a table has one owner that adds the rows of ds in a fixed order: the
 * tokens of an id stand together in by_id, those of a position are one a sequence, those of a type are summed in
 * blocks of tokens first, since there are few types.
 */
#include "backend/cuda/rows.cuh"

enum { TYPE_BLOCKS = 128 };

struct embed {
    const void *word, *position, *type;
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

template <typename T, int W, int V> static __global__ void __launch_bounds__(32 * ROW_WARPS)
embed_kernel(const struct embed a) {
    const int64_t t = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32;
    const int h = a.h;
    if (t >= a.rows) return;
    T *s = (T *)a.s + t * h, *y = (T *)a.y + t * h;
    if (t >= a.batch.step->tokens) {
        zero_row<W, V>(s, h);
        zero_row<W, V>(y, h);
        return;
    }
    row<W, V> sum, type, position, gamma, beta;
    load_table_row(sum, a.word, a.word_type, a.batch.ids[t], h);
    load_table_row(type, a.type, a.type_type, a.batch.types[t], h);
    load_table_row(position, a.position, a.position_type, a.batch.positions[t], h);
    load_row(gamma, a.gamma, h);
    load_row(beta, a.beta, h);
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int k = 0; k < W; k++) sum.v[i][k] = sum.v[i][k] + type.v[i][k] + position.v[i][k];
    round_row<W, V, T>(sum);
    store_row(s, sum, h);
    const struct statistics stat = statistics_of(sum, h, a.eps);
    const struct dropout_row mask = dropout_row_of(a.batch, t);
    each_piece<W, V>(h, [&](int i, int column) {
#pragma unroll
        for (int k = 0; k < W; k++)
            sum.v[i][k] = (sum.v[i][k] - stat.mean) * stat.rstd * gamma.v[i][k] + beta.v[i][k];
        drop<W>(sum.v[i], a.dropout, mask, column);
    });
    store_row(y, sum, h);
}

extern "C" snug_status snug_cuda_embed(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct embed a = {.word = snug_run_data(run, op->in[0]),
                            .position = snug_run_data(run, op->in[1]),
                            .type = snug_run_data(run, op->in[2]),
                            .word_type = snug_run_dtype(run, op->in[0]),
                            .position_type = snug_run_dtype(run, op->in[1]),
                            .type_type = snug_run_dtype(run, op->in[2]),
                            .gamma = (const float *)snug_run_data(run, op->in[3]),
                            .beta = (const float *)snug_run_data(run, op->in[4]),
                            .s = snug_run_data(run, op->out[0]),
                            .y = snug_run_data(run, op->out[1]),
                            .batch = cuda->batch,
                            .dropout = dropout_of(op),
                            .h = (int)snug_run_cols(run, op->out[0]),
                            .rows = snug_cuda_rows(run, op->out[0]),
                            .eps = op->eps};
    if (a.rows == 0) return SNUG_OK;
    const bool done = with_row_shape(a.h, [&](auto shape) {
        constexpr int W = decltype(shape)::w, V = decltype(shape)::v;
        const unsigned blocks = blocks_for(a.rows, ROW_WARPS);
        with_type(snug_run_dtype(run, op->out[0]), [&](auto type) {
            embed_kernel<decltype(type), W, V><<<blocks, 32 * ROW_WARPS, 0, cuda->stream>>>(a);
        });
    });
    return done ? snug_cuda_done(run, op) : snug_cuda_refuse_row(run, op, a.h);
}

/* ---- backward ---- */

/* Place place of by_id: the first of its id adds them all. */
template <typename T>
static __global__ void scatter_words(float *table, const T *ds, struct snug_cuda_batch batch, int h, int32_t padding,
                                     bool overwrite) {
    const int64_t place = blockIdx.x;
    const int32_t tokens = batch.step->tokens;
    if (place >= tokens) return;
    const int32_t id = batch.ids[batch.by_id[place]];
    if (id == padding || (place > 0 && batch.ids[batch.by_id[place - 1]] == id)) return;
    for (int column = threadIdx.x; column < h; column += blockDim.x) {
        float sum = 0;
        for (int64_t p = place; p < tokens; p++) {
            const int32_t token = batch.by_id[p];
            if (batch.ids[token] != id) break;
            sum += to_float(ds[(int64_t)token * h + column]);
        }
        float *to = table + (int64_t)id * h + column;
        *to = overwrite ? sum : *to + sum;
    }
}

template <typename T>
static __global__ void scatter_positions(float *table, const T *ds, struct snug_cuda_batch batch, int h,
                                         bool overwrite) {
    const int32_t position = blockIdx.x;
    for (int column = threadIdx.x; column < h; column += blockDim.x) {
        float sum = 0;
        for (int32_t s = 0; s < batch.step->sequences; s++) {
            const int32_t first = batch.offsets[s];
            if (batch.offsets[s + 1] - first > position) sum += to_float(ds[(int64_t)(first + position) * h + column]);
        }
        float *to = table + (int64_t)position * h + column;
        *to = overwrite ? sum : *to + sum;
    }
}

/* partial [TYPE_BLOCKS, types, h] */
template <typename T>
static __global__ void scatter_types(float *partial, const T *ds, struct snug_cuda_batch batch, int h, int types) {
    const int64_t tokens = batch.step->tokens, each = (tokens + TYPE_BLOCKS - 1) / TYPE_BLOCKS;
    const int64_t begin = blockIdx.x * each, end = begin + each < tokens ? begin + each : tokens;
    for (int type = 0; type < types; type++)
        for (int column = threadIdx.x; column < h; column += blockDim.x) {
            float sum = 0;
            for (int64_t t = begin; t < end; t++)
                if (batch.types[t] == type) sum += to_float(ds[t * h + column]);
            partial[((int64_t)blockIdx.x * types + type) * h + column] = sum;
        }
}

extern "C" int64_t snug_cuda_embed_workspace(const struct snug_program *program, const struct snug_op *op) {
    const int64_t types = program->tensors[op->out[2]].rows, h = program->tensors[op->out[2]].cols;
    const int64_t sums = TYPE_BLOCKS * types * h * (int64_t)sizeof(float), norm = snug_cuda_norm_workspace(program, op);
    return sums > norm ? sums : norm;
}

template <typename T> static void scatter(struct snug_run *run, const struct snug_op *op, const T *ds) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const bool overwrite = snug_run_overwrites(run, op);
    const int h = (int)snug_run_cols(run, op->in[0]), threads = h < 256 ? (h + 31) / 32 * 32 : 256;
    float *word = (float *)snug_run_data(run, op->out[0]), *position = (float *)snug_run_data(run, op->out[1]);
    float *type = (float *)snug_run_data(run, op->out[2]), *partial = (float *)run->workspace;
    const int64_t tokens = snug_cuda_rows(run, op->in[0]);
    const int types = (int)run->program->tensors[op->out[2]].rows;
    if (overwrite) cudaMemsetAsync(word, 0, (size_t)run->program->tensors[op->out[0]].rows * h * sizeof *word, cuda->stream);
    if (tokens > 0)
        scatter_words<T><<<(unsigned)tokens, threads, 0, cuda->stream>>>(word, ds, cuda->batch, h, op->padding, overwrite);
    scatter_positions<T><<<(unsigned)run->program->tensors[op->out[1]].rows, threads, 0, cuda->stream>>>(
        position, ds, cuda->batch, h, overwrite);
    scatter_types<T><<<TYPE_BLOCKS, threads, 0, cuda->stream>>>(partial, ds, cuda->batch, h, types);
    snug_cuda_add_partials(run, type, partial, TYPE_BLOCKS, (int64_t)types * h, (int64_t)types * h, overwrite);
}

extern "C" snug_status snug_cuda_embed_backward(struct snug_run *run, const struct snug_op *op) {
    void *dy = snug_run_data(run, op->in[0]);
    if (op->out[5] >= 0)
        return snug_fail(run->ctx, SNUG_E_INTERNAL, "the CUDA backend has no gradients of single rows");
    struct norm_backward a = {.ds = dy, .on_dy = true};
    RETURN_IF_ERROR(snug_cuda_norm_backward_rows(run, op, &a, (float *)snug_run_data(run, op->out[3]),
                                                 (float *)snug_run_data(run, op->out[4])));
    with_type(snug_run_dtype(run, op->in[0]), [&](auto type) { scatter(run, op, (const decltype(type) *)dy); });
    return snug_cuda_done(run, op);
}
