/* SPDX-License-Identifier: Apache-2.0 */
/* Both are measured with the backend's operations, so that they are the rates that its matmuls and loops can reach. */
#include "measure/peak_rates.h"

#include <stdlib.h>
#include <string.h>

#include "run/runner.h"

enum {
    LEAST_SIDE = 256,
    MOST_SIDE = 8192,
    REPETITIONS = 7,
    COPY_COLS = 1024,
    HOST_ROWS = 1 << 15,   /* 128 MiB in fp32: source and destination exceed all caches */
    DEVICE_ROWS = 1 << 18, /* 1 GiB, which takes long enough for a GPU to reach its peak rate */
};

struct trial {
    snug_context *ctx;
    const struct snug_backend *backend;
    struct snug_program program;
    struct snug_runner runner;
    struct snug_batch batch;
    struct snug_run run;
    struct snug_timestamps *timestamps;
    int32_t x, w, y;
};

static void close_trial(struct trial *t) {
    if (t->timestamps) t->backend->free_timestamps(t->timestamps);
    snug_runner_close(&t->runner);
    free(t->batch.loss_positions);
    snug_program_free(&t->program);
}

static snug_status add_tensor(struct trial *t, const char *name, enum snug_extent extent, int64_t rows, int64_t cols,
                              int32_t *out) {
    return snug_program_tensor(&t->program,
                               (struct snug_tensor){.memory_class = SNUG_MEMORY_TEMPORARY,
                                                    .dtype = t->program.compute,
                                                    .extent = extent,
                                                    .rows = rows,
                                                    .cols = cols,
                                                    .layer = -1,
                                                    .persistent = true},
                               out, "%s", name);
}

/* Not zeros, because matmuls of zeros need less power and are faster. The values must not grow. */
static snug_status fill(struct trial *t, int32_t tensor) {
    enum { PART = 1 << 20 };
    const struct snug_tensor *to = &t->program.tensors[tensor];
    uint8_t *place = snug_run_data(&t->run, tensor);
    void *memory;
    RETURN_IF_ERROR(snug_alloc(t->ctx, PART, 1, &memory));
    for (int64_t i = 0; i < PART / snug_dtype_size(to->dtype); i++) {
        const float value = (float)((uint32_t)i * 2654435761u >> 20) / 2048 - 1;
        if (to->dtype == SNUG_F32)
            ((float *)memory)[i] = value;
        else
            ((uint16_t *)memory)[i] = snug_f32_to_bf16(value);
    }
    snug_status status = SNUG_OK;
    for (int64_t at = 0; at < to->bytes && status == SNUG_OK; at += PART)
        status = snug_block_copy(t->ctx, &t->runner.arena, place + at, memory,
                                 to->bytes - at < PART ? to->bytes - at : PART);
    free(memory);
    return status;
}

static snug_status open_trial(struct trial *t, int threads) {
    RETURN_IF_ERROR(snug_runner_start(t->ctx, t->backend, threads, &t->program, 0, NULL, &t->runner));
    t->run = snug_runner_run(&t->runner, 0);
    t->run.batch = &t->batch;
    t->run.rows = t->batch.rows;
    t->run.one_by_one = true;
    RETURN_IF_ERROR(t->backend->load(&t->run));
    return fill(t, t->x);
}

static snug_status run_once(struct trial *t) {
    const struct snug_op *op = &t->program.ops[0];
    /* The driver's copy is the fastest between two addresses on a device. */
    if (op->kind == SNUG_OP_GATHER && t->runner.arena.copy)
        return snug_block_copy(t->ctx, &t->runner.arena, snug_run_data(&t->run, t->y), snug_run_data(&t->run, t->x),
                               t->program.tensors[t->x].bytes);
    return snug_run_one(&t->run, t->backend, op);
}

/* The time of the fastest of several runs; the first run, in which kernels are loaded, does not count. */
static snug_status time_trial(struct trial *t, double *seconds) {
    RETURN_IF_ERROR(run_once(t));
    for (int i = 0; i < REPETITIONS; i++) {
        double took[2], begin = snug_seconds();
        if (t->backend->asynchronous) RETURN_IF_ERROR(t->backend->record_timestamp(&t->run, &t->timestamps, 0));
        RETURN_IF_ERROR(run_once(t));
        if (t->backend->asynchronous) RETURN_IF_ERROR(t->backend->record_timestamp(&t->run, &t->timestamps, 1));
        took[1] = snug_seconds() - begin;
        if (t->backend->asynchronous) RETURN_IF_ERROR(t->backend->read_timestamps(&t->run, t->timestamps, took, 2));
        if (i == 0 || took[1] < *seconds) *seconds = took[1];
    }
    return SNUG_OK;
}

static snug_status build_matmul(struct trial *t, int64_t side) {
    RETURN_IF_ERROR(add_tensor(t, "x", SNUG_EXTENT_FIXED, side, side, &t->x));
    RETURN_IF_ERROR(add_tensor(t, "w", SNUG_EXTENT_FIXED, side, side, &t->w));
    RETURN_IF_ERROR(add_tensor(t, "y", SNUG_EXTENT_FIXED, side, side, &t->y));
    return snug_program_op(&t->program, (struct snug_op){.kind = SNUG_OP_LINEAR,
                                                         .phase = SNUG_PHASE_FORWARD,
                                                         .linear = {.x = t->x, .w = t->w, .y = t->y}});
}

/* The identity: every row is copied to its own index. */
static snug_status build_copy(struct trial *t, int64_t rows) {
    t->program.capacity[SNUG_EXTENT_TOKENS] = t->program.capacity[SNUG_EXTENT_ROWS] = rows;
    RETURN_IF_ERROR(snug_alloc(t->ctx, (size_t)rows, sizeof(int32_t), (void **)&t->batch.loss_positions));
    for (int32_t i = 0; i < rows; i++) t->batch.loss_positions[i] = i;
    t->batch.rows = rows;
    RETURN_IF_ERROR(add_tensor(t, "x", SNUG_EXTENT_TOKENS, 0, COPY_COLS, &t->x));
    RETURN_IF_ERROR(add_tensor(t, "y", SNUG_EXTENT_ROWS, 0, COPY_COLS, &t->y));
    return snug_program_op(
        &t->program,
        (struct snug_op){.kind = SNUG_OP_GATHER, .phase = SNUG_PHASE_FORWARD, .gather = {.x = t->x, .r = t->y}});
}

/* A matmul of this size, or a copy of this many rows. */
static snug_status try_one(snug_context *ctx, const struct snug_backend *backend, enum snug_dtype compute, int threads,
                           int64_t side, int64_t rows, double *seconds) {
    struct trial t = {.ctx = ctx, .backend = backend};
    snug_program_init(&t.program, ctx);
    t.program.compute = side ? compute : SNUG_F32;
    snug_status status = side ? build_matmul(&t, side) : build_copy(&t, rows);
    if (status == SNUG_OK) status = open_trial(&t, threads);
    if (status == SNUG_OK && side) status = fill(&t, t.w);
    if (status == SNUG_OK) status = time_trial(&t, seconds);
    close_trial(&t);
    return status;
}

snug_status snug_peak_rates_measure(snug_context *ctx, const struct snug_backend *backend, enum snug_dtype compute,
                                    int threads, struct snug_peak_rates *out) {
    const double long_enough = backend->asynchronous ? 1e-3 : 0.03;
    double seconds = 0;
    const int64_t rows = snug_backend_is_device(backend) ? DEVICE_ROWS : HOST_ROWS;
    *out = (struct snug_peak_rates){.count = rows * COPY_COLS * 4};
    for (int64_t side = LEAST_SIDE; side <= MOST_SIDE && seconds < long_enough; side *= 2) {
        RETURN_IF_ERROR(try_one(ctx, backend, compute, threads, side, 0, &seconds));
        const double flops = 2.0 * (double)side * (double)side * (double)side / seconds;
        if (flops < out->flops) continue;
        out->flops = flops;
        out->side = side;
    }
    RETURN_IF_ERROR(try_one(ctx, backend, compute, threads, 0, rows, &seconds));
    out->bytes = 2.0 * (double)out->count / seconds;
    return SNUG_OK;
}
