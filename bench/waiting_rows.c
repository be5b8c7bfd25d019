/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step of AdamW costs over MiniLM's word embedding (30522 x 384): all rows in every step, or those that are
 * read, with what the others have missed. Ids are drawn as words of a language are, by Zipf's law. usage:
 * bench_waiting_rows [steps [tokens of a step [weight decay]]]. Milliseconds a step, the mean over all.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "core/philox.h"

enum { VOCABULARY = 30522, HIDDEN = 384, HISTORY = 256 };
enum { P, M, V, WHOLE, ROWS, INDEX, UPDATED, PAST, SUMS, CLIP, COUNT };

struct bench {
    const struct snug_backend *backend;
    struct snug_tensor tensors[COUNT];
    struct snug_program program;
    struct snug_optimizer optimizer;
    struct snug_batch batch;
    struct snug_run run;
    double *cumulative; /* of the ids' frequencies */
};

static void *array(int64_t count, int64_t size) {
    void *memory = aligned_alloc(64, (size_t)(count * size + 63) / 64 * 64);
    if (!memory) exit(1);
    return memset(memory, 0, (size_t)(count * size));
}

static double run(struct bench *b, enum snug_op_kind kind, struct snug_op op) {
    op.kind = kind;
    const double begin = snug_seconds();
    if (b->backend->ops[kind](&b->run, &op) != SNUG_OK) exit(1);
    return snug_seconds() - begin;
}

static void open_bench(struct bench *b, int64_t tokens, double weight_decay) {
    const int64_t shapes[COUNT][2] = {{VOCABULARY, HIDDEN},
                                      {VOCABULARY, HIDDEN},
                                      {VOCABULARY, HIDDEN},
                                      {VOCABULARY, HIDDEN},
                                      {tokens, HIDDEN},
                                      {1, 1 + tokens + VOCABULARY},
                                      {1, VOCABULARY},
                                      {HISTORY, 2},
                                      {1, 2},
                                      {1, 2}};
    int64_t end = 0;
    *b = (struct bench){.backend = snug_backend_cpu(),
                        .optimizer = {.kind = SNUG_ADAM,
                                      .decoupled = true,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .epsilon = 1e-8,
                                      .weight_decay = weight_decay}};
    for (int i = 0; i < COUNT; i++) {
        const enum snug_dtype dtype = i == INDEX || i == UPDATED ? SNUG_I32 : i == SUMS ? SNUG_F64 : SNUG_F32;
        b->tensors[i] = (struct snug_tensor){.dtype = dtype, .rows = shapes[i][0], .cols = shapes[i][1], .offset = end};
        end += (shapes[i][0] * shapes[i][1] * snug_dtype_size(dtype) + 63) / 64 * 64;
    }
    if (snug_context_create(&b->program.ctx) != SNUG_OK) exit(1);
    b->program.tensors = b->tensors;
    b->program.tensor_count = COUNT;
    b->batch.ids = array(tokens, sizeof(int32_t));
    b->batch.by_id = array(tokens, sizeof(int32_t));
    b->batch.tokens = tokens;
    b->run = (struct snug_run){.ctx = b->program.ctx,
                               .program = &b->program,
                               .arena = array(end, 1),
                               .workspace = array(1 << 20, 1),
                               .batch = &b->batch,
                               .threads = 2,
                               .learning_rate = 5e-5f,
                               .max_grad_norm = 1,
                               .optimizer = &b->optimizer};
    for (int i = P; i <= ROWS; i++) /* a table as trained, its gradients; no moments */
        for (int64_t k = 0; i != M && i != V && k < shapes[i][0] * shapes[i][1]; k++)
            ((float *)snug_run_data(&b->run, i))[k] =
                (i == P ? 0.1f : 1e-3f) * (snug_philox_uniform((uint32_t)k * 2654435761u) - 0.5f);
    b->cumulative = array(VOCABULARY, sizeof(double));
    for (int i = 0; i < VOCABULARY; i++)
        b->cumulative[i] = (i ? b->cumulative[i - 1] : 0) + 1 / (i + 2.7); /* Mandelbrot's form */
}

static int by_value(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

static void draw(struct bench *b) {
    const int64_t n = b->batch.tokens;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = snug_philox((uint32_t)i, (uint32_t)b->run.step, 0, 0, 1, 2).word[0];
        const double at = snug_philox_uniform(word) * b->cumulative[VOCABULARY - 1];
        int32_t low = 0, high = VOCABULARY - 1;
        while (low < high) {
            const int32_t middle = (low + high) / 2;
            if (b->cumulative[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        b->batch.ids[i] = low;
        b->batch.by_id[i] = (int32_t)i;
    }
    qsort(b->batch.ids, (size_t)n, sizeof *b->batch.ids, by_value);
    struct snug_rows rows = snug_rows_of(&b->run, INDEX, ROWS);
    for (int64_t i = 0; i < *rows.count; i++) rows.slots[rows.rows[i]] = -1;
    *rows.count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (rows.slots[b->batch.ids[i]] >= 0) continue;
        rows.slots[b->batch.ids[i]] = *rows.count;
        rows.rows[(*rows.count)++] = b->batch.ids[i];
    }
}

/* Milliseconds a step. */
static void print(const char *name, double seconds, int64_t steps) {
    printf("  %-14s %7.3f\n", name, 1e3 * seconds / (double)steps);
}

static void bench_waiting(struct bench *b, int64_t steps) {
    const struct snug_op begin = {.in = SNUG_INPUTS(M, V), .out = SNUG_OUTPUTS(INDEX, UPDATED), .decay = true};
    const struct snug_op norm = {.in = SNUG_INPUTS(ROWS, INDEX), .out = SNUG_OUTPUTS(SUMS)};
    const struct snug_op clip = {.in = SNUG_INPUTS(SUMS), .out = SNUG_OUTPUTS(CLIP)};
    const struct snug_op update = {
        .in = SNUG_INPUTS(ROWS, CLIP, INDEX), .out = SNUG_OUTPUTS(P, -1, M, V, -1, -1, UPDATED, PAST), .decay = true};
    double caught_up = 0, summed = 0, updated = 0, longest = 0, touched = 0;
    run(b, SNUG_OP_ROWS_BEGIN, begin);
    for (b->run.step = 0; b->run.step < steps; b->run.step++) {
        draw(b);
        touched += *snug_rows_of(&b->run, INDEX, ROWS).count;
        caught_up += run(b, SNUG_OP_CATCH_UP, update);
        summed += run(b, SNUG_OP_SQUARED_NORM, norm);
        run(b, SNUG_OP_CLIP, clip);
        const double seconds = run(b, SNUG_OP_ADAM_ROWS, update);
        updated += seconds;
        longest = seconds > longest ? seconds : longest;
    }
    printf("rows that wait (%.0f of %d are read in a step)\n", touched / (double)steps, VOCABULARY);
    print("catch_up", caught_up, steps);
    print("squared_norm", summed, steps);
    print("adam_rows", updated, steps);
    print("all", caught_up + summed + updated, steps);
    printf("  longest step   %7.3f: when the history is full\n", 1e3 * longest);
}

/* The moments are those of the rows that waited: as full of small numbers as a whole table's are. */
static void bench_whole(struct bench *b, int64_t steps) {
    const struct snug_op clear = {.in = SNUG_INPUTS(-1), .out = SNUG_OUTPUTS(WHOLE)};
    const struct snug_op norm = {.in = SNUG_INPUTS(WHOLE), .out = SNUG_OUTPUTS(SUMS)};
    const struct snug_op update = {.in = SNUG_INPUTS(WHOLE, CLIP), .out = SNUG_OUTPUTS(P, -1, M, V), .decay = true};
    double cleared = 0, summed = 0, updated = 0;
    for (b->run.step = 0; b->run.step < steps; b->run.step++) {
        cleared += run(b, SNUG_OP_FILL, clear);
        summed += run(b, SNUG_OP_SQUARED_NORM, norm);
        updated += run(b, SNUG_OP_ADAM, update);
    }
    printf("all rows\n");
    print("clearing", cleared, steps);
    print("squared_norm", summed, steps);
    print("adam", updated, steps);
    print("all", cleared + summed + updated, steps);
}

int main(int argc, char **argv) {
    const int64_t steps = argc > 1 ? atoll(argv[1]) : 1000, tokens = argc > 2 ? atoll(argv[2]) : 800;
    struct bench b;
    if (steps < 1 || tokens < 1) return 2;
    open_bench(&b, tokens, argc > 3 ? atof(argv[3]) : 0);
    bench_waiting(&b, steps);
    bench_whole(&b, steps < 50 ? steps : 50);
    free(b.run.arena);
    free(b.run.workspace);
    free(b.batch.ids);
    free(b.batch.by_id);
    free(b.cumulative);
    snug_context_destroy(b.program.ctx);
    return 0;
}
