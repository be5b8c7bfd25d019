/* SPDX-License-Identifier: Apache-2.0 */
/* y [n,N] = x [n,K] w [N,K]^T + b [N] + addend [n,N], and its gradients. The matmuls are cuBLASLt's. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "backend/cuda/matmul/matmul.h"
#include "backend/cuda/sizes/graph.h"
}

/* ---- forward ---- */

/* The epilogue adds a bias of y's own type: a small copy, made when FORWARD begins or after cuBLASLt's workspace. */
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

static uint8_t *scratch(const struct snug_run *run) { return (uint8_t *)run->workspace + SNUG_CUDA_MATMUL_WORKSPACE; }

/* The first of these columns of a matrix of *size columns: *stride becomes that number, and *size that of the part. */
static const void *narrow(const void *data, enum snug_dtype type, struct snug_column_range of, int64_t *stride,
                          int64_t *size) {
    if (!of.count) return data;
    *stride = *size;
    *size = of.count;
    return (const uint8_t *)data + of.first * snug_dtype_size(type);
}

/* Makes p, which has all columns of op's operands, read or write those that op means. */
static void take_columns(struct snug_cuda_matmul *p, const struct snug_op *op) {
    if (op->kind == SNUG_OP_LINEAR)
        p->a = narrow(p->a, p->type, op->linear.of_x, &p->a_stride, &p->k);
    else if (op->kind == SNUG_OP_LINEAR_DX)
        p->c = (void *)narrow(p->c, p->c_type, op->linear_dx.of_dx, &p->c_stride, &p->n);
    else if (op->linear_dw.transposed)
        p->a = narrow(p->a, p->type, op->linear_dw.of_x, &p->a_stride, &p->m);
    else
        p->b = narrow(p->b, p->b_type, op->linear_dw.of_x, &p->b_stride, &p->n);
}

extern "C" struct snug_cuda_matmul snug_cuda_matmul_of(const struct snug_run *run, const struct snug_op *op) {
    const bool forward = op->kind == SNUG_OP_LINEAR, weight = op->kind == SNUG_OP_LINEAR_DW;
    const struct snug_cuda_roles of = snug_cuda_roles_of(op);
    struct snug_cuda_matmul p = {.c = snug_run_data(run, of.c),
                                 .a = snug_run_data(run, of.a),
                                 .b = snug_run_data(run, of.b),
                                 .transpose_a = weight,
                                 .transpose_b = forward  ? !op->linear.transposed
                                                : weight ? false
                                                         : op->linear_dx.transposed,
                                 .add = forward  ? op->linear.addend != 0
                                        : weight ? !snug_run_overwrites(run, op)
                                                 : op->accumulate,
                                 .m = weight ? snug_run_cols(run, of.a) : snug_cuda_rows(run, of.c),
                                 .n = weight ? snug_run_cols(run, of.b) : snug_run_cols(run, of.c),
                                 .k = weight ? snug_cuda_rows(run, of.a) : snug_run_cols(run, of.a),
                                 .type = snug_run_dtype(run, of.a),
                                 .b_type = snug_run_dtype(run, of.b),
                                 .c_type = snug_run_dtype(run, of.c)};
    take_columns(&p, op);
    const void *bias = forward ? snug_run_data(run, op->linear.b) : NULL;
    if (bias && p.c_type == p.type) p.bias = p.c_type == SNUG_F32 ? bias : scratch(run);
    const void *converted =
        p.bias == scratch(run) && snug_cuda_of(run)->padded ? snug_cuda_bias(run, op->linear.b) : NULL;
    if (converted) p.bias = converted;
    return p;
}

extern "C" snug_status snug_cuda_linear(struct snug_run *run, const struct snug_op *op) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const struct snug_cuda_matmul p = snug_cuda_matmul_of(run, op);
    const float *bias = (const float *)snug_run_data(run, op->linear.b);
    if (snug_cuda_takes_few_rows(run, op, &p)) {
        snug_cuda_run_few_rows(run, op, &p);
        return snug_cuda_done(run, op);
    }
    if (snug_cuda_takes_streamed(run, op, &p)) {
        snug_cuda_run_streamed(run, op, &p);
        return snug_cuda_done(run, op);
    }
    if (op->linear.addend && op->linear.addend != op->linear.y)
        cudaMemcpyAsync(p.c, snug_run_data(run, op->linear.addend), (size_t)(p.m * p.n * snug_dtype_size(p.c_type)),
                        cudaMemcpyDeviceToDevice, stream);
    if (p.bias == scratch(run))
        with_type(p.c_type, [&](auto type) {
            narrow_bias<<<blocks_for(p.n, 256), 256, 0, stream>>>((decltype(type) *)scratch(run), bias, p.n);
        });
    RETURN_IF_ERROR(snug_cuda_run_matmul(run, &p, run->workspace));
    if (bias && !p.bias && p.m > 0) /* F32 logits of 16-bit operands: no epilogue supports that bias */
        add_bias<<<blocks_for(p.m * p.n, 256), 256, 0, stream>>>((float *)p.c, bias, p.n, p.m * p.n);
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_linear_dx(struct snug_run *run, const struct snug_op *op) {
    if (snug_cuda_is_thin_pair(run, op - 1)) return snug_cuda_done(run, op);
    const struct snug_cuda_matmul p = snug_cuda_matmul_of(run, op);
    if (!snug_cuda_run_thin(run, op, &p)) RETURN_IF_ERROR(snug_cuda_run_matmul(run, &p, run->workspace));
    RETURN_IF_ERROR(snug_cuda_join(run));
    return snug_cuda_done(run, op);
}

/* ---- the bias's gradient: column sums of dy, over parts of the rows, then over the parts ---- */

enum { PARTS = SNUG_CUDA_BIAS_PARTS };

/* A thread sums 8 columns; a block has 256 columns (32 lanes), and each of its 8 warps takes every 8th row of its
   part. */
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

template <typename T> static void bias_gradient(const struct snug_run *run, const struct snug_op *op, const T *dy) {
    const int64_t rows = snug_cuda_rows(run, op->linear_dw.dy), n = snug_run_cols(run, op->linear_dw.dy);
    float *db = (float *)snug_run_data(run, op->linear_dw.db), *partial = (float *)scratch(run);
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    if (n % 8 == 0)
        column_sums<T, 8><<<dim3(blocks_for(n, 256), PARTS), 256, 0, stream>>>(partial, dy, rows, n);
    else
        column_sums<T, 1><<<dim3(blocks_for(n, 32), PARTS), 256, 0, stream>>>(partial, dy, rows, n);
    snug_cuda_add_partials(run, db, partial, PARTS, n, snug_run_overwrites(run, op));
}

extern "C" snug_status snug_cuda_linear_dw(struct snug_run *run, const struct snug_op *op) {
    const bool sums = op->linear_dw.db && !snug_cuda_bias_gradient_is_done(run, op);
    if (!op->linear_dw.dw && !sums) return SNUG_OK;
    const bool concurrent =
        snug_cuda_of(run)->capturing && snug_cuda_is_concurrent(run->program, op) && !snug_cuda_is_thin_pair(run, op);
    if (concurrent) RETURN_IF_ERROR(snug_cuda_fork(run));
    if (op->linear_dw.dw) {
        const struct snug_cuda_matmul p = snug_cuda_matmul_of(run, op);
        if (!snug_cuda_run_thin(run, op, &p)) RETURN_IF_ERROR(snug_cuda_run_matmul(run, &p, run->workspace));
    }
    if (sums)
        with_type(snug_run_dtype(run, op->linear_dw.dy), [&](auto type) {
            bias_gradient(run, op, (const decltype(type) *)snug_run_data(run, op->linear_dw.dy));
        });
    if (concurrent) RETURN_IF_ERROR(snug_cuda_return(run));
    return snug_cuda_done(run, op);
}
