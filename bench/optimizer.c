/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Milliseconds and GB/s of SQUARED_NORM, ADAM and ADAM_8BIT over MiniLM's 22.7 million parameters, as one tensor.
 * usage: bench_optimizer [rounds]. Best of the rounds; the updates take turns, so that what else the machine does
 * meets them alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/backend.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != SNUG_OK) {                                                                                       \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #call);                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(const struct snug_backend *backend, struct snug_run *run, const struct snug_op *op) {
    double start = now();
    CHECK(backend->ops[op->kind](run, op));
    return now() - start;
}

struct row {
    const char *name;
    struct snug_op op;
    double bytes_each, best;
};

/* Runs the rows' operations in turn, and prints each one's best. */
static void bench(const struct snug_backend *backend, struct snug_run *run, struct row *rows, int count, int rounds) {
    double n = (double)(run->program->tensors[0].rows * run->program->tensors[0].cols);
    for (int i = 0; i < count; i++) rows[i].best = 1e9;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) {
            double s = seconds(backend, run, &rows[i].op);
            rows[i].best = s < rows[i].best ? s : rows[i].best;
        }
    for (int i = 0; i < count; i++)
        printf("%-24s %d threads: %6.2f ms, %5.1f GB/s\n", rows[i].name, run->threads, 1e3 * rows[i].best,
               1e-9 * rows[i].bytes_each * n / rows[i].best);
}

int main(int argc, char **argv) {
    enum { G, M, V, P, P16, M8, V8, ABSMAX_M, ABSMAX_V, SUMS, CLIP, COUNT };
    const struct snug_backend *backend = snug_backend_cpu();
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    int64_t rows = 59112, cols = 384, end = 0;
    struct snug_tensor tensors[COUNT];
    for (int i = 0; i < COUNT; i++) {
        bool whole = i < ABSMAX_M, blocks = !whole && i < SUMS;
        tensors[i] = (struct snug_tensor){.dtype = i == P16             ? SNUG_BF16
                                                   : i == M8 || i == V8 ? SNUG_U8
                                                   : i == SUMS          ? SNUG_F64
                                                                        : SNUG_F32,
                                          .rows = whole ? rows : 1,
                                          .cols = whole    ? cols
                                                  : blocks ? rows * cols / SNUG_QUANTISED_BLOCK + 1
                                                           : 2,
                                          .offset = end};
        end += (tensors[i].rows * tensors[i].cols * snug_dtype_size(tensors[i].dtype) + 63) / 64 * 64;
    }
    snug_context *ctx;
    CHECK(snug_context_create(&ctx));
    struct row norm = {
        "SQUARED_NORM", {.kind = SNUG_OP_SQUARED_NORM, .in = SNUG_INPUTS(G), .out = SNUG_OUTPUTS(SUMS)}, 4, 0};
    struct snug_op clip = {.kind = SNUG_OP_CLIP, .in = SNUG_INPUTS(SUMS), .out = SNUG_OUTPUTS(CLIP)};
    struct row updates[] = {
        {"ADAM", {.kind = SNUG_OP_ADAM, .out = SNUG_OUTPUTS(P, -1, M, V)}, 28, 0},
        {"ADAM_8BIT", {.kind = SNUG_OP_ADAM_8BIT, .out = SNUG_OUTPUTS(P, -1, M8, V8, ABSMAX_M, ABSMAX_V)}, 16, 0},
        {"ADAM with a BF16 copy", {.kind = SNUG_OP_ADAM, .out = SNUG_OUTPUTS(P, P16, M, V)}, 30, 0},
    };
    const int count = sizeof updates / sizeof *updates;
    for (int i = 0; i < count; i++) {
        updates[i].op.decay = true;
        updates[i].op.segments = 1;
        memcpy(updates[i].op.in, (int32_t[SNUG_OP_INPUTS])SNUG_INPUTS(G, CLIP), sizeof updates[i].op.in);
    }
    const struct snug_optimizer optimizer = {
        .kind = SNUG_ADAM, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
    struct snug_program program = {.ctx = ctx, .tensors = tensors, .tensor_count = COUNT};
    struct snug_run run = {
        .ctx = ctx, .program = &program, .learning_rate = 5e-5f, .optimizer = &optimizer, .max_grad_norm = 1.0f};
    run.arena = aligned_alloc(64, (size_t)end);
    run.workspace = aligned_alloc(64, (size_t)(backend->workspace(&program, &norm.op, 2) + 63) / 64 * 64);
    if (!run.arena || !run.workspace) return 1;
    memset(run.arena, 0, (size_t)end);
    for (int t = G; t <= P; t++)
        for (int64_t i = 0; i < rows * cols; i++)
            ((float *)(run.arena + tensors[t].offset))[i] = 1e-3f * (float)((i * 7919) % 1000);
    CHECK(backend->open(ctx, &program, 2, &run.backend_state));
    for (run.threads = 1; run.threads <= 2; run.threads++) {
        bench(backend, &run, &norm, 1, rounds);
        CHECK(backend->ops[SNUG_OP_CLIP](&run, &clip));
        bench(backend, &run, updates, count, rounds);
        printf("%-24s %d threads: %6.2f\n", "ADAM_8BIT / ADAM", run.threads, updates[1].best / updates[0].best);
    }
    backend->close(run.backend_state);
    free(run.workspace);
    free(run.arena);
    snug_context_destroy(ctx);
    return 0;
}
