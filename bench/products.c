/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GFLOP/s of LINEAR, LINEAR_DX and LINEAR_DW on MiniLM's and BERT's shapes, beside oneDNN called plainly on the whole
 * shape (weights as they lie in memory). usage: bench_products [rounds [fp32|mixed|bf16 [threads]]]. Best of
 * the rounds, ours and oneDNN by turns; nothing is warmed up but by the rounds before. mixed: fp32 products with
 * weights stored in bf16, beside oneDNN with the same weights in fp32.
 */
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != 0) {                                                                                             \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #call);                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const int64_t shapes[][3] = {/* T, N, K */
                                    {750, 1152, 384},   {750, 384, 384},  {750, 1536, 384}, {750, 384, 1536},
                                    {4096, 1536, 384},  {512, 2304, 768}, {512, 3072, 768}, {2048, 3072, 1024},
                                    {2048, 4096, 1024}, {128, 30522, 384}};
static const char *const names[] = {"LINEAR", "LINEAR_DX", "LINEAR_DW"};
static const enum snug_op_kind kinds[] = {SNUG_OP_LINEAR, SNUG_OP_LINEAR_DX, SNUG_OP_LINEAR_DW};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- oneDNN -------------------------------------------------------------------------------------------------------
 */

static dnnl_engine_t engine;
static dnnl_stream_t stream;

struct matmul {
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
};

/* A matrix of rows x columns; turned: it lies as columns x rows. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t describe_t;
typedef const_dnnl_memory_desc_t described_t;
static describe_t describe(int64_t rows, int64_t columns, dnnl_data_type_t type, bool turned) {
    dnnl_memory_desc_t d;
    CHECK(dnnl_memory_desc_create_with_strides(&d, 2, (dnnl_dims_t){rows, columns}, type,
                                               (dnnl_dims_t){turned ? 1 : columns, turned ? rows : 1}));
    return d;
}
static dnnl_primitive_desc_t matmul_desc(const describe_t d[3]) {
    dnnl_primitive_desc_t pd;
    CHECK(dnnl_matmul_primitive_desc_create(&pd, engine, d[0], d[1], NULL, d[2], NULL));
    return pd;
}
static described_t described(const describe_t *d) { return *d; }
#else
typedef dnnl_memory_desc_t describe_t;
typedef const dnnl_memory_desc_t *described_t;
static describe_t describe(int64_t rows, int64_t columns, dnnl_data_type_t type, bool turned) {
    dnnl_memory_desc_t d;
    dnnl_dims_t strides = {turned ? 1 : columns, turned ? rows : 1};
    CHECK(dnnl_memory_desc_init_by_strides(&d, 2, (dnnl_dims_t){rows, columns}, type, strides));
    return d;
}
static dnnl_primitive_desc_t matmul_desc(const describe_t d[3]) {
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t pd;
    CHECK(dnnl_matmul_desc_init(&op, &d[0], &d[1], NULL, &d[2]));
    CHECK(dnnl_primitive_desc_create(&pd, &op, NULL, engine, NULL));
    return pd;
}
static described_t described(const describe_t *d) { return d; }
#endif

static struct matmul make_matmul(int which, int64_t t, int64_t n, int64_t k, void *const data[3]) {
    dnnl_data_type_t h = dnnl_bf16;
    describe_t d[3];
    struct matmul m;
    if (which == 0)
        d[0] = describe(t, k, h, false), d[1] = describe(k, n, h, true), d[2] = describe(t, n, h, false);
    else if (which == 1)
        d[0] = describe(t, n, h, false), d[1] = describe(n, k, h, false), d[2] = describe(t, k, h, false);
    else
        d[0] = describe(n, t, h, true), d[1] = describe(t, k, h, false), d[2] = describe(n, k, dnnl_f32, false);
    dnnl_primitive_desc_t pd = matmul_desc(d);
    CHECK(dnnl_primitive_create(&m.primitive, pd));
    CHECK(dnnl_primitive_desc_destroy(pd));
    for (int i = 0; i < 3; i++) CHECK(dnnl_memory_create(&m.memory[i], described(&d[i]), engine, data[i]));
    return m;
}

static void run_matmul(const struct matmul *m) {
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, m->memory[0]}, {DNNL_ARG_WEIGHTS, m->memory[1]}, {DNNL_ARG_DST, m->memory[2]}};
    CHECK(dnnl_primitive_execute(m->primitive, stream, 3, args));
    CHECK(dnnl_stream_wait(stream));
}

static void run_sgemm(int which, int64_t t, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    if (which == 0) CHECK(dnnl_sgemm('N', 'T', t, n, k, 1, a, k, b, k, 0, c, n));
    if (which == 1) CHECK(dnnl_sgemm('N', 'N', t, k, n, 1, a, n, b, k, 0, c, k));
    if (which == 2) CHECK(dnnl_sgemm('T', 'N', n, k, t, 1, a, n, b, k, 0, c, k));
}

/* ---- snug ---------------------------------------------------------------------------------------------------------
 */

static struct snug_tensor tensor(enum snug_dtype dtype, enum snug_extent extent, int64_t rows, int64_t cols,
                                 int64_t *end) {
    int64_t room = extent == SNUG_EXTENT_FIXED ? rows : (rows + SNUG_ROW_TILE - 1) / SNUG_ROW_TILE * SNUG_ROW_TILE;
    struct snug_tensor t = {.dtype = dtype, .extent = extent, .rows = rows, .cols = cols, .offset = *end};
    t.bytes = room * cols * snug_dtype_size(dtype);
    *end += (t.bytes + 4095) / 4096 * 4096;
    return t;
}

static void *filled(int64_t bytes, uint16_t high) {
    uint16_t *p = aligned_alloc(4096, (size_t)((bytes + 4095) / 4096 * 4096));
    if (!p) exit(1);
    for (int64_t i = 0; i < bytes / 2; i++) p[i] = (uint16_t)(high + i * 2654435761u % 128); /* 0.008 … 0.016 */
    return p;
}

enum precision { FP32, MIXED, BF16, PRECISIONS };
static const char *const precision_names[] = {"fp32", "mixed", "bf16"};

static void bench(snug_context *ctx, const int64_t shape[3], enum precision precision, int threads, int rounds) {
    const struct snug_backend *backend = snug_backend_cpu();
    int64_t t = shape[0], n = shape[1], k = shape[2], end = 0, scratch = 64;
    const bool half = precision == BF16, mixed = precision == MIXED;
    enum snug_dtype dtype = half ? SNUG_BF16 : SNUG_F32;
    enum { X, W, Y, DW, DB };
    struct snug_tensor tensors[] = {tensor(dtype, SNUG_EXTENT_TOKENS, t, k, &end),
                                    tensor(precision == FP32 ? SNUG_F32 : SNUG_BF16, SNUG_EXTENT_FIXED, n, k, &end),
                                    tensor(dtype, SNUG_EXTENT_TOKENS, t, n, &end),
                                    tensor(SNUG_F32, SNUG_EXTENT_FIXED, n, k, &end),
                                    tensor(SNUG_F32, SNUG_EXTENT_FIXED, 1, n, &end)};
    struct snug_op ops[] = {{.in = SNUG_INPUTS(X, W, DB), .out = SNUG_OUTPUTS(Y)},
                            {.in = SNUG_INPUTS(Y, W), .out = SNUG_OUTPUTS(X)},
                            {.in = SNUG_INPUTS(Y, X), .out = SNUG_OUTPUTS(DW, DB), .first = true}};
    struct snug_program program = {.ctx = ctx, .tensors = tensors, .tensor_count = 5};
    program.capacity[SNUG_EXTENT_TOKENS] = t;
    struct snug_batch batch = {.tokens = t};
    struct snug_run run = {
        .ctx = ctx, .program = &program, .batch = &batch, .threads = threads, .arena = filled(end, 0x3c00)};
    CHECK(backend->open(ctx, &program, threads, &run.backend_state));
    for (int i = 0; i < 3; i++) {
        ops[i].kind = kinds[i];
        int64_t bytes = backend->workspace(&program, &ops[i], threads);
        scratch = bytes > scratch ? bytes : scratch;
    }
    run.workspace = filled(scratch, 0);
    omp_set_num_threads(threads);
    for (int i = 0; i < (mixed ? 2 : 3); i++) {
        uint8_t *a = run.arena + tensors[i ? Y : X].offset, *b = run.arena + tensors[i == 2 ? X : W].offset;
        uint8_t *c = run.arena + tensors[i == 0 ? Y : i == 1 ? X : DW].offset;
        if (mixed) b = run.arena + tensors[DW].offset; /* any fp32 values of the same shape */
        double ours = 1e9, plain = 1e9, work = 2e-9 * (double)(t * n * k);
        struct matmul matmul = {0};
        if (half) matmul = make_matmul(i, t, n, k, (void *[3]){a, b, c});
        for (int round = 0; round < rounds; round++) {
            double start = now();
            CHECK(backend->ops[kinds[i]](&run, &ops[i]));
            double middle = now();
            if (half)
                run_matmul(&matmul);
            else
                run_sgemm(i, t, n, k, (float *)a, (float *)b, (float *)c);
            double finish = now();
            ours = middle - start < ours ? middle - start : ours;
            plain = finish - middle < plain ? finish - middle : plain;
        }
        printf("%-9s %5s %d threads  T %4d N %5d K %4d: %5.0f GFLOP/s, oneDNN %5.0f, ratio %.2f\n", names[i],
               precision_names[precision], threads, (int)t, (int)n, (int)k, work / ours, work / plain, plain / ours);
        fflush(stdout);
        if (!half) continue;
        CHECK(dnnl_primitive_destroy(matmul.primitive));
        for (int j = 0; j < 3; j++) CHECK(dnnl_memory_destroy(matmul.memory[j]));
    }
    backend->close(run.backend_state);
    free(run.workspace);
    free(run.arena);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    snug_context *ctx;
    CHECK(snug_context_create(&ctx));
    CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    for (int p = 0; p < (snug_backend_cpu_fast_bf16() ? PRECISIONS : BF16); p++) {
        if (argc > 2 && strcmp(argv[2], precision_names[p]) != 0) continue;
        for (int threads = 1; threads <= 2; threads++) {
            if (argc > 3 && atoi(argv[3]) != threads) continue;
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                bench(ctx, shapes[i], (enum precision)p, threads, rounds);
        }
    }
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    snug_context_destroy(ctx);
    return 0;
}
