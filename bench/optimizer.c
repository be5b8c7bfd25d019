/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Milliseconds and GB/s of SQUARED_NORM and ADAMW over MiniLM's 22.7 million parameters, as one tensor.
 * usage: bench_optimizer [rounds]. Best of the rounds.
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

static void bench(const struct snug_backend *backend, struct snug_run *run, const struct snug_op *op, const char *name,
                  double bytes_each, int rounds) {
    double best = 1e9, n = (double)(run->program->tensors[0].rows * run->program->tensors[0].cols);
    for (int round = 0; round < rounds; round++) {
        double start = now();
        CHECK(backend->ops[op->kind](run, op));
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    printf("%-24s %d threads: %6.2f ms, %5.1f GB/s\n", name, run->threads, 1e3 * best, 1e-9 * bytes_each * n / best);
}

int main(int argc, char **argv) {
    enum { G, M, V, P, P16, SUMS, CLIP, COUNT };
    const struct snug_backend *backend = snug_backend_cpu();
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    int64_t rows = 59112, cols = 384, end = 0;
    struct snug_tensor tensors[COUNT];
    for (int i = 0; i < COUNT; i++) {
        tensors[i] = (struct snug_tensor){.dtype = i == P16    ? SNUG_BF16
                                                   : i == SUMS ? SNUG_F64
                                                               : SNUG_F32,
                                          .offset = end};
        tensors[i].rows = i < SUMS ? rows : 1;
        tensors[i].cols = i < SUMS ? cols : 2;
        end += (tensors[i].rows * tensors[i].cols * snug_dtype_size(tensors[i].dtype) + 63) / 64 * 64;
    }
    snug_context *ctx;
    CHECK(snug_context_create(&ctx));
    struct snug_op norm = {.kind = SNUG_OP_SQUARED_NORM, .in = SNUG_INPUTS(G), .out = SNUG_OUTPUTS(SUMS)};
    struct snug_op clip = {.kind = SNUG_OP_CLIP, .in = SNUG_INPUTS(SUMS), .out = SNUG_OUTPUTS(CLIP)};
    struct snug_op adam = {.kind = SNUG_OP_ADAM,
                           .decay = true,
                           .segments = 1,
                           .in = SNUG_INPUTS(G, CLIP),
                           .out = SNUG_OUTPUTS(P, -1, M, V)};
    const struct snug_optimizer optimizer = {
        .kind = SNUG_ADAM, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
    struct snug_program program = {.ctx = ctx, .tensors = tensors, .tensor_count = COUNT};
    struct snug_run run = {
        .ctx = ctx, .program = &program, .learning_rate = 5e-5f, .optimizer = &optimizer, .max_grad_norm = 1.0f};
    run.arena = aligned_alloc(64, (size_t)end);
    run.workspace = aligned_alloc(64, (size_t)(backend->workspace(&program, &norm, 2) + 63) / 64 * 64);
    if (!run.arena || !run.workspace) return 1;
    for (int64_t i = 0; i < end / 4; i++) ((float *)run.arena)[i] = 1e-3f * (float)(i % 1000);
    for (run.threads = 1; run.threads <= 2; run.threads++) {
        bench(backend, &run, &norm, "SQUARED_NORM", 4, rounds);
        CHECK(backend->ops[SNUG_OP_CLIP](&run, &clip));
        adam.out[1] = -1;
        bench(backend, &run, &adam, "ADAM", 28, rounds);
        adam.out[1] = P16;
        bench(backend, &run, &adam, "ADAM with a BF16 copy", 30, rounds);
        adam.out[1] = -1;
        tensors[P].dtype = SNUG_BF16;
        bench(backend, &run, &adam, "ADAM of BF16 weights", 24, rounds);
        tensors[P].dtype = SNUG_F32;
    }
    free(run.workspace);
    free(run.arena);
    snug_context_destroy(ctx);
    return 0;
}
