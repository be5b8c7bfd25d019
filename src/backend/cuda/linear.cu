/* SPDX-License-Identifier: Apache-2.0 */
/* y [n,N] = x [n,K] w [N,K]^T + b [N], and its gradients. The products are cuBLASLt's. */
#include "backend/cuda/device.cuh"

/* ---- forward ---- */

/* The epilogue adds a bias of y's own type: a small copy, which stands behind the product's workspace. */
template <typename T> static __global__ void narrow_bias(T *to, const float *from, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) to[i] = from_float<T>(from[i]);
}

static __global__ void add_bias(float *y, const float *bias, int64_t n, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < count) y[i] += bias[i % n];
}

static uint8_t *scratch(const struct snug_run *run) { return (uint8_t *)run->workspace + SNUG_CUDA_PRODUCT_WORKSPACE; }

extern "C" snug_status snug_cuda_linear(struct snug_run *run, const struct snug_op *op) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const enum snug_dtype type = snug_run_dtype(run, op->in[0]), y_type = snug_run_dtype(run, op->out[0]);
    struct snug_cuda_matrices p = {.c = snug_run_data(run, op->out[0]),
                                   .a = snug_run_data(run, op->in[0]),
                                   .b = snug_run_data(run, op->in[1]),
                                   .turn_b = true,
                                   .m = snug_cuda_rows(run, op->out[0]),
                                   .n = snug_run_cols(run, op->out[0]),
                                   .k = snug_run_cols(run, op->in[0]),
                                   .type = type,
                                   .b_type = snug_run_dtype(run, op->in[1]),
                                   .c_type = y_type};
    const float *bias = (const float *)snug_run_data(run, op->in[2]);
    const bool mixed = bias && y_type != type; /* fp32 logits of 16-bit operands: no epilogue takes that bias */
    if (bias && !mixed && y_type == SNUG_F32) p.bias = bias;
    if (bias && !mixed && y_type != SNUG_F32) {
        with_type(y_type, [&](auto type) {
            narrow_bias<<<blocks_for(p.n, 256), 256, 0, stream>>>((decltype(type) *)scratch(run), bias, p.n);
        });
        p.bias = scratch(run);
    }
    RETURN_IF_ERROR(snug_cuda_multiply(run, &p, run->workspace));
    if (mixed && p.m > 0)
        add_bias<<<blocks_for(p.m * p.n, 256), 256, 0, stream>>>((float *)p.c, bias, p.n, p.m * p.n);
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_linear_dx(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda_matrices p = {.c = snug_run_data(run, op->out[0]),
                                         .a = snug_run_data(run, op->in[0]),
                                         .b = snug_run_data(run, op->in[1]),
                                         .add = op->accumulate,
                                         .m = snug_cuda_rows(run, op->out[0]),
                                         .n = snug_run_cols(run, op->out[0]),
                                         .k = snug_run_cols(run, op->in[0]),
                                         .type = snug_run_dtype(run, op->in[0]),
                                         .b_type = snug_run_dtype(run, op->in[1]),
                                         .c_type = snug_run_dtype(run, op->out[0])};
    RETURN_IF_ERROR(snug_cuda_multiply(run, &p, run->workspace));
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
    snug_cuda_add_partials(run, db, partial, PARTS, n, n, snug_run_overwrites(run, op));
}

extern "C" int64_t snug_cuda_linear_workspace(const struct snug_program *program, const struct snug_op *op) {
    const int64_t n = program->tensors[op->kind == SNUG_OP_LINEAR ? op->out[0] : op->in[0]].cols;
    return SNUG_CUDA_PRODUCT_WORKSPACE + PARTS * n * (int64_t)sizeof(float);
}

extern "C" snug_status snug_cuda_linear_dw(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda_matrices p = {.c = snug_run_data(run, op->out[0]),
                                         .a = snug_run_data(run, op->in[0]),
                                         .b = snug_run_data(run, op->in[1]),
                                         .turn_a = true,
                                         .add = !snug_run_overwrites(run, op),
                                         .m = snug_run_cols(run, op->in[0]),
                                         .n = snug_run_cols(run, op->in[1]),
                                         .k = snug_cuda_rows(run, op->in[0]),
                                         .type = snug_run_dtype(run, op->in[0]),
                                         .b_type = snug_run_dtype(run, op->in[1]),
                                         .c_type = snug_run_dtype(run, op->out[0])};
    RETURN_IF_ERROR(snug_cuda_multiply(run, &p, run->workspace));
    if (op->out[1] >= 0)
        with_type(p.type, [&](auto type) { bias_gradient(run, op, (const decltype(type) *)p.a, p.k, p.m); });
    return snug_cuda_done(run, op);
}
