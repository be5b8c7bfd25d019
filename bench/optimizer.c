/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Milliseconds and GB/s of SQUARED_NORM and of every optimizer's update over MiniLM's 22.7 million parameters, as one
 * tensor. usage: bench_optimizer [rounds [optimizer]]. Best of the rounds. Bytes are those that the algorithm has to
 * move: Adafactor reads the gradient three times, since what it learns of all rows and columns decides the size of the
 * update.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != SNUG_OK) {                                                                                       \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #call);                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { ROWS = 59112, COLUMNS = 384 };
enum { G, P, P16, CLIP, SUMS, STATES, COUNT = STATES + SNUG_STATES_MAX };

static const struct row {
    const char *optim, *optim_args;
    enum snug_op_kind kind;
    enum snug_dtype type; /* of p */
    bool copy;
} rows[] = {
    {"adamw_torch", NULL, SNUG_OP_ADAM, SNUG_F32, false},
    {"adamw_torch", NULL, SNUG_OP_ADAM, SNUG_F32, true},
    {"adamw_torch", NULL, SNUG_OP_ADAM, SNUG_BF16, false},
    {"adamw_8bit", NULL, SNUG_OP_ADAM_8BIT, SNUG_F32, false},
    {"adamw_8bit", NULL, SNUG_OP_ADAM_8BIT, SNUG_BF16, false},
    {"adam", NULL, SNUG_OP_ADAM, SNUG_F32, false},
    {"sgd", NULL, SNUG_OP_SGD, SNUG_F32, false},
    {"sgd", NULL, SNUG_OP_SGD, SNUG_BF16, false},
    {"sgd", "momentum=0.9", SNUG_OP_SGD, SNUG_F32, false},
    {"adafactor", NULL, SNUG_OP_ADAFACTOR, SNUG_F32, false},
    {"adafactor", NULL, SNUG_OP_ADAFACTOR, SNUG_BF16, false},
    {"adafactor", "scale_parameter=True", SNUG_OP_ADAFACTOR, SNUG_F32, false},
    {"adafactor", "beta1=0.9", SNUG_OP_ADAFACTOR, SNUG_F32, false},
    {"adagrad", NULL, SNUG_OP_ADAGRAD, SNUG_F32, false},
    {"rmsprop", NULL, SNUG_OP_RMSPROP, SNUG_F32, false},
    {"rmsprop", "momentum=0.9,centered=True", SNUG_OP_RMSPROP, SNUG_F32, false},
    {"lion_32bit", NULL, SNUG_OP_LION, SNUG_F32, false},
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void time_op(const struct snug_backend *backend, struct snug_run *run, const struct snug_op *op,
                    const char *name, double bytes, int rounds) {
    double best = 1e9;
    for (int round = 0; round < rounds; round++) {
        double start = now();
        CHECK(backend->ops[op->kind](run, op));
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    if (!name) return;
    printf("%-44s %d threads: %6.2f ms, %5.1f GB/s\n", name, run->threads, 1e3 * best, 1e-9 * bytes / best);
}

/* Puts the states behind what is there, and an arena and a workspace under all of it. */
static void bench(const struct snug_backend *backend, const struct row *row, int rounds) {
    struct snug_optimizer optimizer;
    const struct snug_weight weight = {.rows = ROWS, .cols = COLUMNS, .segments = 1};
    struct snug_state states[SNUG_STATES_MAX];
    struct snug_tensor tensors[COUNT] = {{.dtype = SNUG_F32, .rows = ROWS, .cols = COLUMNS},
                                         {.dtype = row->type, .rows = ROWS, .cols = COLUMNS},
                                         {.dtype = SNUG_BF16, .rows = row->copy ? ROWS : 0, .cols = COLUMNS},
                                         {.dtype = SNUG_F32, .rows = 1, .cols = 2},
                                         {.dtype = SNUG_F64, .rows = 1, .cols = 1}};
    struct snug_op update = {.kind = row->kind,
                             .decay = true,
                             .segments = 1,
                             .in = SNUG_INPUTS(G, CLIP),
                             .out = SNUG_OUTPUTS(P, row->copy ? P16 : -1)};
    const struct snug_op norm = {.kind = SNUG_OP_SQUARED_NORM, .in = SNUG_INPUTS(G), .out = SNUG_OUTPUTS(SUMS)};
    const struct snug_op clip = {.kind = SNUG_OP_CLIP, .in = SNUG_INPUTS(SUMS), .out = SNUG_OUTPUTS(CLIP)};
    const bool factored = row->kind == SNUG_OP_ADAFACTOR;
    snug_context *ctx;
    int count;
    CHECK(snug_context_create(&ctx));
    CHECK(snug_optimizer_parse(ctx, row->optim, row->optim_args, 0.9, 0.999, 1e-8, 0.01, &optimizer));
    snug_optimizer_states(&optimizer, &weight, states, &count);
    double bytes = (double)ROWS * COLUMNS *
                   (double)(4 * (factored ? 3 : 1) + snug_dtype_size(row->type) * (optimizer.scale_parameter ? 3 : 2) +
                            (row->copy ? 2 : 0));
    for (int i = 0; i < count; i++) {
        struct snug_tensor *state = &tensors[STATES + i];
        state->dtype = states[i].dtype;
        snug_state_size(&states[i], &weight, &state->rows, &state->cols);
        bytes += 2.0 * (double)(state->rows * state->cols * snug_dtype_size(state->dtype));
        update.out[2 + i] = STATES + i;
    }
    int64_t end = 0;
    for (int i = 0; i < COUNT; i++) {
        tensors[i].offset = end;
        end += (tensors[i].rows * tensors[i].cols * snug_dtype_size(tensors[i].dtype) + 63) / 64 * 64;
    }
    const struct snug_program program = {
        .ctx = ctx, .tensors = tensors, .tensor_count = COUNT, .ops = &update, .op_count = 1};
    struct snug_run run = {
        .ctx = ctx, .program = &program, .learning_rate = 5e-5f, .optimizer = &optimizer, .max_grad_norm = 1};
    CHECK(backend->open(ctx, &program, 2, &run.backend_state));
    int64_t scratch = backend->workspace(&program, &norm, 2), other = backend->workspace(&program, &update, 2);
    run.arena = aligned_alloc(64, (size_t)end);
    run.workspace = aligned_alloc(64, (size_t)((other > scratch ? other : scratch) + 63) / 64 * 64);
    if (!run.arena || !run.workspace) exit(1);
    memset(run.arena, 0, (size_t)end);
    for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++)
        ((float *)(run.arena + tensors[G].offset))[i] = 1e-3f * (float)(i % 1000);
    char name[64];
    snprintf(name, sizeof name, "%s %s%s%s", row->optim, row->optim_args ? row->optim_args : "",
             row->type == SNUG_BF16 ? " BF16 p" : "", row->copy ? " BF16 copy" : "");
    for (run.threads = 1; run.threads <= 2; run.threads++) {
        time_op(backend, &run, &norm, row == rows ? "squared_norm" : NULL, 4.0 * ROWS * COLUMNS,
                row == rows ? rounds : 1);
        CHECK(backend->ops[SNUG_OP_CLIP](&run, &clip));
        time_op(backend, &run, &update, name, bytes, rounds);
    }
    backend->close(run.backend_state);
    free(run.workspace);
    free(run.arena);
    snug_context_destroy(ctx);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (argc < 3 || strcmp(argv[2], rows[i].optim) == 0) bench(snug_backend_cpu(), &rows[i], rounds);
    return 0;
}
