/* SPDX-License-Identifier: Apache-2.0 */
/* Both are measured with the backend's own operations, so that they are what its products and loops are part of. */
#include "plan/ceilings.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_SIDE = 256,
    MOST_SIDE = 8192,
    REPETITIONS = 7,
    COPY_COLS = 1024,
    HOST_ROWS = 1 << 15,   /* 128 MiB in fp32: no cache of today holds both ends */
    DEVICE_ROWS = 1 << 18, /* 1 GiB, which takes long enough for a GPU to show what it can */
};

struct trial {
    snug_context *ctx;
    const struct snug_backend *backend;
    struct snug_program program;
    struct snug_layout layout;
    struct snug_block arena;
    struct snug_batch batch;
    struct snug_run run;
    void *state;
    struct snug_stamps *stamps;
    int32_t x, w, y;
};

static void close_trial(struct trial *t) {
    if (t->stamps) t->backend->free_stamps(t->stamps);
    snug_block_release(&t->arena);
    if (t->state) t->backend->close(t->state);
    free(t->batch.head_rows);
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

/* Not zeros, which take less power and are multiplied quicker; neither do they grow. */
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
        status = snug_block_copy(t->ctx, &t->arena, place + at, memory, to->bytes - at < PART ? to->bytes - at : PART);
    free(memory);
    return status;
}

/* Places the program and takes its arena. */
static snug_status open_trial(struct trial *t, int threads) {
    struct snug_program *program = &t->program;
    RETURN_IF_ERROR(snug_stage_place(t->ctx, &program, 1, t->backend, threads, 0, 0, &t->layout));
    RETURN_IF_ERROR(t->backend->open(t->ctx, program, threads, &t->state));
    RETURN_IF_ERROR(t->backend->allocate(t->ctx, t->layout.arena, SNUG_BLOCK_ARENA, &t->arena));
    t->run = (struct snug_run){.ctx = t->ctx,
                               .program = program,
                               .arena = t->arena.base,
                               .workspace = t->arena.base + t->layout.workspace_offset,
                               .batch_copy = t->arena.base + t->layout.copy_offset,
                               .backend_state = t->state,
                               .batch = &t->batch,
                               .one_by_one = true,
                               .rows = t->batch.rows,
                               .threads = threads};
    RETURN_IF_ERROR(t->backend->load(&t->run));
    return fill(t, t->x);
}

static snug_status run_once(struct trial *t) {
    const struct snug_op *op = &t->program.ops[0];
    /* Between two places on a device the driver's own copy is the quickest there is. */
    if (op->kind == SNUG_OP_GATHER && t->arena.copy)
        return snug_block_copy(t->ctx, &t->arena, snug_run_data(&t->run, t->y), snug_run_data(&t->run, t->x),
                               t->program.tensors[t->x].bytes);
    return t->backend->ops[op->kind](&t->run, op);
}

/* Of the quickest of some runs; the first one, in which kernels are loaded, does not count. */
static snug_status time_trial(struct trial *t, double *seconds) {
    RETURN_IF_ERROR(run_once(t));
    for (int i = 0; i < REPETITIONS; i++) {
        double took[2], begin = snug_seconds();
        if (t->backend->stamp) RETURN_IF_ERROR(t->backend->stamp(&t->run, &t->stamps, 0));
        RETURN_IF_ERROR(run_once(t));
        if (t->backend->stamp) RETURN_IF_ERROR(t->backend->stamp(&t->run, &t->stamps, 1));
        took[1] = snug_seconds() - begin;
        if (t->backend->stamp) RETURN_IF_ERROR(t->backend->stamps(&t->run, t->stamps, took, 2));
        if (i == 0 || took[1] < *seconds) *seconds = took[1];
    }
    return SNUG_OK;
}

static snug_status build_product(struct trial *t, int64_t side) {
    RETURN_IF_ERROR(add_tensor(t, "x", SNUG_EXTENT_FIXED, side, side, &t->x));
    RETURN_IF_ERROR(add_tensor(t, "w", SNUG_EXTENT_FIXED, side, side, &t->w));
    RETURN_IF_ERROR(add_tensor(t, "y", SNUG_EXTENT_FIXED, side, side, &t->y));
    return snug_program_op(&t->program, (struct snug_op){.kind = SNUG_OP_LINEAR,
                                                         .phase = SNUG_PHASE_FORWARD,
                                                         .in = SNUG_INPUTS(t->x, t->w, -1),
                                                         .out = SNUG_OUTPUTS(t->y)});
}

/* Every row to where it came from. */
static snug_status build_copy(struct trial *t, int64_t rows) {
    t->program.capacity[SNUG_EXTENT_TOKENS] = t->program.capacity[SNUG_EXTENT_ROWS] = rows;
    RETURN_IF_ERROR(snug_alloc(t->ctx, (size_t)rows, sizeof(int32_t), (void **)&t->batch.head_rows));
    for (int32_t i = 0; i < rows; i++) t->batch.head_rows[i] = i;
    t->batch.rows = rows;
    RETURN_IF_ERROR(add_tensor(t, "x", SNUG_EXTENT_TOKENS, 0, COPY_COLS, &t->x));
    RETURN_IF_ERROR(add_tensor(t, "y", SNUG_EXTENT_ROWS, 0, COPY_COLS, &t->y));
    return snug_program_op(&t->program, (struct snug_op){.kind = SNUG_OP_GATHER,
                                                         .phase = SNUG_PHASE_FORWARD,
                                                         .in = SNUG_INPUTS(t->x),
                                                         .out = SNUG_OUTPUTS(t->y)});
}

/* A product of this side, or a copy of so many rows. */
static snug_status try_one(snug_context *ctx, const struct snug_backend *backend, enum snug_dtype compute, int threads,
                           int64_t side, int64_t rows, double *seconds) {
    struct trial t = {.ctx = ctx, .backend = backend, .w = -1};
    snug_program_init(&t.program, ctx);
    t.program.compute = side ? compute : SNUG_F32;
    snug_status status = side ? build_product(&t, side) : build_copy(&t, rows);
    if (status == SNUG_OK) status = open_trial(&t, threads);
    if (status == SNUG_OK && side) status = fill(&t, t.w);
    if (status == SNUG_OK) status = time_trial(&t, seconds);
    close_trial(&t);
    return status;
}

snug_status snug_ceilings_measure(snug_context *ctx, const struct snug_backend *backend, enum snug_dtype compute,
                                  int threads, struct snug_ceilings *out) {
    const double long_enough = backend->stamp ? 1e-3 : 0.03;
    double seconds = 0;
    const int64_t rows = backend->available ? DEVICE_ROWS : HOST_ROWS;
    *out = (struct snug_ceilings){.count = rows * COPY_COLS * 4};
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
