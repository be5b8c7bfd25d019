/* SPDX-License-Identifier: Apache-2.0 */
/* y [n,N] = x [n,K] w [N,K]^T + b [N], and its gradients. The products are cuBLASLt's. */
#include "backend/cuda/device.cuh"

/* ---- forward ---- */

/* The epilogue adds a bias of y's own type: a small copy, which biases.c made or which stands behind the product's
   workspace. */
template <typename T> static __global__ void narrow_bias(T *to, const float *from, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) to[i] = from_float<T>(from[i]);
}

template <typename T>
static __global__ void narrow_biases(uint8_t *to, const uint8_t *arena, const struct snug_cuda_bias *list) {
    const struct snug_cuda_bias bias = list[blockIdx.y];
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < bias.count) ((T *)(to + bias.to))[i] = from_float<T>(((const float *)(arena + bias.from))[i]);
}

extern "C" snug_status snug_cuda_convert_biases(const struct snug_run *run) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    int64_t longest = 0;
    for (int32_t i = 0; i < cuda->bias_count; i++)
        if (cuda->biases[i].count > longest) longest = cuda->biases[i].count;
    if (longest == 0) return SNUG_OK;
    const dim3 blocks(blocks_for(longest, 256), (unsigned)cuda->bias_count);
    const struct snug_cuda_batch *b = &cuda->batch;
    with_type(run->program->compute, [&](auto type) {
        narrow_biases<decltype(type)><<<blocks, 256, 0, cuda->stream>>>(b->biases, run->arena, b->bias_list);
    });
    return snug_cuda_check(run->ctx, cudaGetLastError(), "converting biases");
}

static __global__ void add_bias(float *y, const float *bias, int64_t n, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < count) y[i] += bias[i % n];
}

static uint8_t *scratch(const struct snug_run *run) { return (uint8_t *)run->workspace + SNUG_CUDA_PRODUCT_WORKSPACE; }

extern "C" struct snug_cuda_matrices snug_cuda_product_of(const struct snug_run *run, const struct snug_op *op) {
    const bool forward = op->kind == SNUG_OP_LINEAR, weight = op->kind == SNUG_OP_LINEAR_DW;
    struct snug_cuda_matrices p = {.c = snug_run_data(run, op->out[0]),
                                   .a = snug_run_data(run, op->in[0]),
                                   .b = snug_run_data(run, op->in[1]),
                                   .turn_a = weight,
                                   .turn_b = forward,
                                   .add = weight ? !snug_run_overwrites(run, op) : op->accumulate,
                                   .m = weight ? snug_run_cols(run, op->in[0]) : snug_cuda_rows(run, op->out[0]),
                                   .n = snug_run_cols(run, op->out[0]),
                                   .k = weight ? snug_cuda_rows(run, op->in[0]) : snug_run_cols(run, op->in[0]),
                                   .type = snug_run_dtype(run, op->in[0]),
                                   .b_type = snug_run_dtype(run, op->in[1]),
                                   .c_type = snug_run_dtype(run, op->out[0])};
    const void *bias = forward ? snug_run_data(run, op->in[2]) : NULL;
    if (bias && p.c_type == p.type) p.bias = p.c_type == SNUG_F32 ? bias : scratch(run);
    if (p.bias && p.c_type != SNUG_F32 && snug_cuda_of(run)->padded) p.bias = snug_cuda_bias(run, op->in[2]);
    return p;
}

extern "C" snug_status snug_cuda_linear(struct snug_run *run, const struct snug_op *op) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const struct snug_cuda_matrices p = snug_cuda_product_of(run, op);
    const float *bias = (const float *)snug_run_data(run, op->in[2]);
    if (p.bias == scratch(run))
        with_type(p.c_type, [&](auto type) {
            narrow_bias<<<blocks_for(p.n, 256), 256, 0, stream>>>((decltype(type) *)scratch(run), bias, p.n);
        });
    RETURN_IF_ERROR(snug_cuda_multiply(run, &p, run->workspace));
    if (bias && !p.bias && p.m > 0) /* fp32 logits of 16-bit operands: no epilogue takes that bias */
        add_bias<<<blocks_for(p.m * p.n, 256), 256, 0, stream>>>((float *)p.c, bias, p.n, p.m * p.n);
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_linear_dx(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda_matrices p = snug_cuda_product_of(run, op);
    RETURN_IF_ERROR(snug_cuda_multiply(run, &p, run->workspace));
    RETURN_IF_ERROR(snug_cuda_join(run));
    return snug_cuda_done(run, op);
}

/* ---- the bias's gradient: column sums of dy, over parts of the rows, then over the parts ---- */

enum { PARTS = 64 };

/* A thread takes 8 columns; a block 256 columns (32 lanes), its 8 warps every 8th row of its part. */
template <typename T, int W>
static __global__ void __launch_bounds__(256) column_sums(float *partial, const T *dy, int64_t rows, int64_t n) {
    __shared__ float sums[8][32 * W + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t column = ((int64_t)blockIdx.x * 32 + lane) * W, each = (rows + PARTS - 1) / PARTS;
    const int64_t begin = blockIdx.y * each, end = begin + each < rows ? begin + each : rows;
    float sum[W] = {};
    if (column < n)
        for (int64_t r = begin + warp; r < end; r += 8) {
            float v[W];
            load<W>(v, dy + r * n + column);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] += v[i];
        }
#pragma unroll
    for (int i = 0; i < W; i++) sums[warp][lane * W + i] = sum[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * W; i += 256) {
        const int64_t c = (int64_t)blockIdx.x * 32 * W + i;
        float total = 0;
        for (int w = 0; w < 8; w++) total += sums[w][i];
        if (c < n) partial[blockIdx.y * n + c] = total;
    }
}

template <typename T>
static void bias_gradient(const struct snug_run *run, const struct snug_op *op, const T *dy, int64_t rows, int64_t n) {
    float *db = (float *)snug_run_data(run, op->out[1]), *partial = (float *)scratch(run);
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    if (n % 8 == 0)
        column_sums<T, 8><<<dim3(blocks_for(n, 256), PARTS), 256, 0, stream>>>(partial, dy, rows, n);
    else
        column_sums<T, 1><<<dim3(blocks_for(n, 32), PARTS), 256, 0, stream>>>(partial, dy, rows, n);
    snug_cuda_add_partials(run, db, partial, PARTS, n, snug_run_overwrites(run, op));
}

/* Behind what cuBLASLt takes: a bias, parts of a bias's gradient, or a part of a weight in another type. */
extern "C" int64_t snug_cuda_linear_workspace(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *t = program->tensors, *b = &t[op->in[1]];
    const int64_t inputs = t[op->in[0]].cols, outputs = t[op->out[0]].cols;
    const int64_t size = b->rows * b->cols < SNUG_CUDA_CONVERTED ? b->rows * b->cols : SNUG_CUDA_CONVERTED;
    int64_t bytes = PARTS * inputs * (int64_t)sizeof(float);
    if (op->kind != SNUG_OP_LINEAR_DW) bytes = snug_cuda_bias_bytes(outputs);
    if (t[op->in[0]].dtype != b->dtype) bytes += size * (int64_t)sizeof(float);
    return SNUG_CUDA_PRODUCT_WORKSPACE + bytes;
}

/* Whether the next operation is LINEAR_DX of the same gradient, which may run at the same time, so that the end of one
   fills what the other leaves of the GPU: it must not write where this one reads, nor use the same scratch. */
static bool has_twin(const struct snug_run *run, const struct snug_op *op) {
    const struct snug_program *program = run->program;
    const struct snug_op *next = op + 1;
    if (!snug_cuda_of(run)->recording || next == program->ops + program->op_count) return false;
    if (next->kind != SNUG_OP_LINEAR_DX || next->phase != op->phase || next->in[0] != op->in[0]) return false;
    const struct snug_tensor *x = &program->tensors[op->in[1]], *dx = &program->tensors[next->out[0]];
    if (program->tensors[next->in[0]].dtype != program->tensors[next->in[1]].dtype) return false;
    return dx->offset + dx->bytes <= x->offset || x->offset + x->bytes <= dx->offset;
}

extern "C" snug_status snug_cuda_linear_dw(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda_matrices p = snug_cuda_product_of(run, op);
    const bool beside = has_twin(run, op);
    if (beside) RETURN_IF_ERROR(snug_cuda_fork(run));
    RETURN_IF_ERROR(snug_cuda_multiply(run, &p, run->workspace));
    if (op->out[1] >= 0 && !snug_cuda_bias_is_given(run, op))
        with_type(p.type, [&](auto type) { bias_gradient(run, op, (const decltype(type) *)p.a, p.k, p.m); });
    if (beside) RETURN_IF_ERROR(snug_cuda_return(run));
    return snug_cuda_done(run, op);
}
