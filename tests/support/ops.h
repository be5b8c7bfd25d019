/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny hand-written programs that run operations one at a time: a few tensors, a ragged batch, one arena. */
#ifndef SNUG_TESTS_OPS_H
#define SNUG_TESTS_OPS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/backend.h"
#include "core/philox.h"
#include "test.h"

#define OPS_ARENA ((size_t)32 << 20)
#define OPS_GAP 64 /* bytes between tensors that nothing may touch */
#define OPS_GAP_BYTE 0xA5
#define OPS_TENSORS 24
#define OPS_OPS 5
#define OPS_SEQUENCES 8

/* Sizes of a case. lengths ends at the first 0. */
struct ops_shape {
    int32_t lengths[OPS_SEQUENCES + 1];
    int64_t h;
    int32_t heads;
    int64_t vocabulary, types, outputs, classes; /* outputs: of a LINEAR over tokens */
    int64_t rows;                                /* loss positions: of the whole batch, distributed over its tokens */
};

struct ops {
    snug_context *ctx;
    const struct ops_shape *shape;
    struct snug_program program;
    struct snug_tensor tensors[OPS_TENSORS];
    struct snug_op ops[OPS_OPS];
    struct snug_batch batch;
    struct snug_run run;
    struct snug_optimizer optimizer;
    uint8_t *arena;
    size_t bytes, room;        /* of the arena: so far, and at most */
    bool quick;                /* random values repeat */
    enum snug_pooling pooling; /* of tensors that are added */
    /* For finite differences: the output that the functional reads, its gradient (none: run->loss_scale), and inputs
       with their gradients. */
    int32_t y, dy;
    struct {
        int32_t x, dx;
    } pairs[6];
    size_t pair_count;
};

/* Word number i of a stream. */
static inline uint32_t ops_word(uint32_t stream, uint64_t i) {
    return snug_philox((uint32_t)i, (uint32_t)(i >> 32), 0, 0, stream, 0x6f7073).word[0];
}

/* Multiples of 2^-10 in [-1, 1): sums with small multiples of 2^-9 are exact in fp32. */
static inline double ops_value(uint32_t stream, uint64_t i) { return ((int32_t)ops_word(stream, i) >> 21) * 0x1p-10; }

static inline void *ops_array(size_t count, size_t size) {
    void *array = calloc(count ? count : 1, size);
    assert_non_null(array);
    return array;
}

/* ids and types are random; loss positions are `rows` different tokens in ascending order. */
static inline void ops_batch(struct ops *f, const int32_t *lengths, int32_t first_sample) {
    const struct ops_shape *shape = f->shape;
    struct snug_batch *b = &f->batch;
    while (lengths[b->sequences]) {
        int32_t length = lengths[b->sequences++];
        b->tokens += length;
        if (length > b->longest) b->longest = length;
    }
    b->rows = shape->rows;
    b->first_sample = first_sample;
    size_t tokens = (size_t)b->tokens, rows = (size_t)b->rows;
    b->offsets = ops_array((size_t)b->sequences + 1, sizeof(int32_t));
    b->ids = ops_array(tokens, sizeof(int32_t));
    b->types = ops_array(tokens, sizeof(int32_t));
    b->positions = ops_array(tokens, sizeof(int32_t));
    b->position_ids = ops_array(tokens, sizeof(int32_t));
    b->sample = ops_array(tokens, sizeof(int32_t));
    b->by_id = ops_array(tokens, sizeof(int32_t));
    b->loss_positions = ops_array(rows, sizeof(int32_t));
    b->labels = ops_array(rows, sizeof(int32_t));
    b->targets = ops_array(rows * (size_t)shape->classes, sizeof(float));
    b->references = ops_array(2 * (size_t)b->sequences, sizeof(float));
    for (int64_t s = 0; s < b->sequences; s++) {
        b->references[2 * s] = -(float)(ops_word(10, (uint64_t)s) % 64) / 16;
        const int64_t completion = s % 3 * lengths[s] / 2; /* tokens; 0, too */
        b->references[2 * s + 1] = (float)completion;
    }
    float *weights = ops_array((size_t)shape->classes, sizeof *weights);
    b->class_weights = weights;
    for (int32_t s = 0, t = 0; s < b->sequences; s++) {
        for (int32_t position = 0; position < lengths[s]; position++, t++) {
            b->ids[t] = (int32_t)(ops_word(1, (uint64_t)t) % shape->vocabulary);
            b->types[t] = (int32_t)(ops_word(2, (uint64_t)t) % shape->types);
            b->positions[t] = position;
            b->sample[t] = first_sample + s;
        }
        b->offsets[s + 1] = t;
        snug_batch_number_positions(b, b->offsets[s], t, 0);
    }
    int32_t *place = ops_array((size_t)shape->vocabulary + 1, sizeof *place); /* of the next token of an id */
    for (int64_t t = 0; t < b->tokens; t++) place[b->ids[t] + 1]++;
    for (int64_t id = 0; id < shape->vocabulary; id++) place[id + 1] += place[id];
    for (int32_t t = 0; t < b->tokens; t++) b->by_id[place[b->ids[t]]++] = t;
    free(place);
    for (int64_t r = 0; r < b->rows; r++) {
        b->loss_positions[r] = (int32_t)(r * b->tokens / b->rows);
        b->labels[r] = r % 5 == 3 ? SNUG_IGNORE_LABEL : (int32_t)(ops_word(3, (uint64_t)r) % (uint32_t)shape->classes);
    }
    for (int64_t i = 0; i < b->rows * shape->classes; i++)
        b->targets[i] = (float)(ops_word(4, (uint64_t)i / 32) >> i % 32 & 1);
    for (int64_t i = 0; i < shape->classes; i++) weights[i] = (float)(ops_word(7, (uint64_t)i) % 9) / 4;
}

/* Memory for an arena, or a copy of one. */
static inline uint8_t *ops_map(size_t room) {
    void *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* The arena of a closed case, for the next case: new memory costs a page fault for every 4 KiB. */
static uint8_t *ops_spare;

/* Of sequences of these lengths, which end at the first 0, in room bytes. */
static inline void ops_open_with(struct ops *f, const struct ops_shape *shape, enum snug_dtype compute,
                                 const int32_t *lengths, size_t room) {
    *f = (struct ops){.shape = shape, .room = room};
    assert_int_equal(snug_context_create(&f->ctx), SNUG_OK);
    ops_batch(f, lengths, 11);
    int64_t first_row = f->batch.rows / 4; /* a later chunk's */
    f->program = (struct snug_program){.ctx = f->ctx, .tensors = f->tensors, .ops = f->ops, .compute = compute};
    f->program.tensor_count = 1; /* number 0 means none */
    f->program.longest = f->batch.longest;
    f->program.capacity[SNUG_EXTENT_TOKENS] = f->batch.tokens;
    f->program.capacity[SNUG_EXTENT_SEQUENCES] = f->batch.sequences;
    f->program.capacity[SNUG_EXTENT_ROWS] = f->batch.rows - first_row;
    if (room == OPS_ARENA && ops_spare) {
        f->arena = ops_spare;
        ops_spare = NULL;
    } else {
        f->arena = ops_map(room);
    }
    f->run = (struct snug_run){
        .ctx = f->ctx,
        .program = &f->program,
        .arena = f->arena,
        .batch = &f->batch,
        .threads = 1,
        .seed = 0x123456789abcdef0u,
        .step = 3,
        .first_row = first_row,
        .rows = f->batch.rows - first_row,
        .loss_scale = 0.0625f,
        .learning_rate = 0.01f,
        .max_grad_norm = 1,
        .optimizer = &f->optimizer,
    };
    f->optimizer = (struct snug_optimizer){.info = &snug_optimizer_adam,
                                           .decoupled = true,
                                           .beta1 = 0.9,
                                           .beta2 = 0.999,
                                           .epsilon = 1e-8,
                                           .weight_decay = 0.1};
}

static inline void ops_open(struct ops *f, const struct ops_shape *shape, enum snug_dtype compute) {
    ops_open_with(f, shape, compute, shape->lengths, OPS_ARENA);
}

static inline void ops_close(struct ops *f) {
    struct snug_batch *b = &f->batch;
    void *arrays[] = {b->offsets,      b->ids,
                      b->types,        b->positions,
                      b->position_ids, b->sample,
                      b->by_id,        b->loss_positions,
                      b->labels,       b->targets,
                      b->references,   b->pages,
                      b->copied_pages, (void *)b->class_weights};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    if (f->room == OPS_ARENA && !ops_spare)
        ops_spare = f->arena;
    else
        munmap(f->arena, f->room);
    snug_context_destroy(f->ctx);
}

/* A new tensor, filled with NaN, at the end of the arena. rows is used for SNUG_EXTENT_FIXED only. */
static inline int32_t ops_tensor(struct ops *f, enum snug_dtype dtype, enum snug_extent extent, int64_t rows,
                                 int64_t cols) {
    int32_t number = (int32_t)f->program.tensor_count++;
    assert_true(number < OPS_TENSORS);
    struct snug_tensor *t = &f->tensors[number];
    if (extent != SNUG_EXTENT_FIXED) {
        rows = (f->program.capacity[extent] + SNUG_ROW_TILE - 1) / SNUG_ROW_TILE * SNUG_ROW_TILE;
    }
    *t = (struct snug_tensor){
        .dtype = dtype, .extent = extent, .pooling = f->pooling, .rows = rows, .cols = cols, .layer = -1};
    t->bytes = rows * cols * snug_dtype_size(dtype);
    t->offset = (int64_t)f->bytes;
    size_t end = f->bytes + (size_t)t->bytes, next = (end + OPS_GAP + 63) / 64 * 64;
    assert_true(next <= f->room);
    memset(f->arena + f->bytes, 0xFF, (size_t)t->bytes);
    memset(f->arena + end, OPS_GAP_BYTE, next - end);
    f->bytes = next;
    return number;
}

static inline int64_t ops_count(const struct ops *f, int32_t tensor) {
    return snug_run_rows(&f->run, tensor) * snug_run_cols(&f->run, tensor);
}

/* The type of the copies of weights. */
static inline enum snug_dtype ops_copy_type(const struct ops *f) {
    return f->program.compute == SNUG_F16 ? SNUG_F16 : SNUG_BF16;
}

/* Bytes of the valid rows. */
static inline size_t ops_live(const struct ops *f, int32_t tensor) {
    return (size_t)(ops_count(f, tensor) * snug_dtype_size(f->tensors[tensor].dtype));
}

/* Element i of a tensor, in an arena that may be a copy. */
static inline double ops_get(const struct ops *f, const uint8_t *arena, int32_t tensor, int64_t i) {
    const void *data = arena + f->tensors[tensor].offset;
    switch (f->tensors[tensor].dtype) {
    case SNUG_BF16: return snug_bf16_to_f32(((const uint16_t *)data)[i]);
    case SNUG_F16: return snug_f16_to_f32(((const uint16_t *)data)[i]);
    case SNUG_F64: return ((const double *)data)[i];
    case SNUG_U8: return ((const uint8_t *)data)[i];
    case SNUG_I32: return ((const int32_t *)data)[i];
    default: return ((const float *)data)[i];
    }
}

static inline void ops_set(struct ops *f, int32_t tensor, int64_t i, double value) {
    void *data = f->arena + f->tensors[tensor].offset;
    switch (f->tensors[tensor].dtype) {
    case SNUG_BF16: ((uint16_t *)data)[i] = snug_f32_to_bf16((float)value); break;
    case SNUG_F16: ((uint16_t *)data)[i] = snug_f32_to_f16((float)value); break;
    case SNUG_F64: ((double *)data)[i] = value; break;
    case SNUG_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    case SNUG_I32: ((int32_t *)data)[i] = (int32_t)value; break;
    default: ((float *)data)[i] = (float)value; break;
    }
}

/* Compares codes in two arenas. Where a value is halfway between two codes up to rounding, either is right. */
static inline void ops_compare_codes(const struct ops *f, const uint8_t *expected, const uint8_t *found, int32_t t,
                                     const char *what) {
    int64_t apart = 0;
    for (int64_t i = 0, count = ops_count(f, t); i < count; i++) {
        const double want = ops_get(f, expected, t, i), got = ops_get(f, found, t, i);
        if (fabs(want - got) > 1) fail_msg("%s: code %ld is %g, expected %g", what, (long)i, got, want);
        apart += want != got;
    }
    if (apart > 1 + ops_count(f, t) / 10000)
        fail_msg("%s: %ld of %ld codes are one off", what, (long)apart, (long)ops_count(f, t));
}

static inline void ops_fill(struct ops *f, int32_t tensor, double value) {
    for (int64_t i = 0, count = ops_count(f, tensor); i < count; i++) ops_set(f, tensor, i, value);
}

static inline void ops_randomize(struct ops *f, int32_t tensor) {
    const int64_t period = f->quick ? 8191 : INT64_MAX;
    const int64_t size = snug_dtype_size(f->tensors[tensor].dtype), count = ops_count(f, tensor);
    for (int64_t i = 0; i < count && i < period; i++)
        ops_set(f, tensor, i, ops_value(99 + (uint32_t)tensor, (uint64_t)i));
    for (int64_t i = period; i < count; i += period)
        memcpy(f->arena + f->tensors[tensor].offset + i * size, f->arena + f->tensors[tensor].offset,
               (size_t)((count - i < period ? count - i : period) * size));
}

/* Short forms of a new tensor with random values, and of one with NaNs. */
static inline int32_t ops_source(struct ops *f, enum snug_dtype dtype, enum snug_extent extent, int64_t rows,
                                 int64_t cols) {
    int32_t tensor = ops_tensor(f, dtype, extent, rows, cols);
    ops_randomize(f, tensor);
    return tensor;
}

static inline void ops_add(struct ops *f, struct snug_op op) {
    assert_true(f->program.op_count < OPS_OPS);
    f->ops[f->program.op_count++] = op;
}

/* Either may be missing: then there is nothing to compare. */
static inline void ops_pair(struct ops *f, int32_t x, int32_t dx) {
    if (!x || !dx) return;
    f->pairs[f->pair_count].x = x;
    f->pairs[f->pair_count++].dx = dx;
}

/* Runs one operation with a workspace of exactly the bytes asked for. */
static inline void ops_run(struct ops *f, const struct snug_backend *backend, const struct snug_op *op, int threads) {
    int64_t bytes = (backend->workspace(&f->program, op, threads) + 63) / 64 * 64;
    f->run.workspace = bytes ? aligned_alloc(64, (size_t)bytes) : NULL;
    if (bytes) memset(f->run.workspace, 0xFF, (size_t)bytes);
    f->run.threads = threads;
    assert_int_equal(backend->open(f->ctx, &f->program, threads, &f->run.backend_state), SNUG_OK);
    snug_status status = backend->ops[op->kind](&f->run, op);
    if (status != SNUG_OK) fail_msg("%s: %s: %s", backend->name, snug_op_name(op->kind), snug_error_message(f->ctx));
    backend->close(f->run.backend_state);
    free(f->run.workspace);
}

static inline void ops_must(const struct ops *f, snug_status status, const char *what) {
    if (status != SNUG_OK) fail_msg("%s: %s", what, snug_error_message(f->ctx));
}

/* A backend's memory, laid out as f's arena, with what operations need besides. */
struct ops_device {
    struct snug_block arena;
    struct snug_run run;
};

static inline void ops_device_open(struct ops *f, const struct snug_backend *backend, int threads,
                                   struct ops_device *d) {
    const int64_t size = (int64_t)(f->bytes + 255) / 256 * 256;
    const int64_t copy = (backend->batch(&f->program) + 255) / 256 * 256;
    int64_t workspace = 0;
    for (size_t i = 0; i < f->program.op_count; i++) {
        const int64_t bytes = backend->workspace(&f->program, &f->program.ops[i], threads);
        workspace = bytes > workspace ? bytes : workspace;
    }
    *d = (struct ops_device){.run = f->run};
    ops_must(f, backend->allocate(f->ctx, size + copy + workspace, SNUG_BLOCK_ARENA, &d->arena), "allocate");
    d->run.arena = d->arena.base;
    d->run.batch_copy = d->arena.base + size;
    d->run.workspace = d->arena.base + size + copy;
    d->run.threads = threads;
    ops_must(f, backend->open(f->ctx, &f->program, threads, &d->run.backend_state), "open");
    ops_must(f, backend->load(&d->run), "load");
}

static inline void ops_device_close(const struct snug_backend *backend, struct ops_device *d) {
    backend->close(d->run.backend_state);
    snug_block_release(&d->arena);
}

/* Runs op on the device, starting from start, and copies the arena back into out. */
static inline void ops_run_device(struct ops *f, const struct snug_backend *backend, const struct snug_op *op,
                                  const uint8_t *start, uint8_t *out) {
    struct ops_device d;
    ops_device_open(f, backend, 1, &d);
    ops_must(f, snug_block_copy(f->ctx, &d.arena, d.arena.base, start, (int64_t)f->bytes), "upload");
    ops_must(f, backend->load(&d.run), "load"); /* again: the step's numbers depend on the loss scale in the arena */
    ops_must(f, backend->ops[op->kind](&d.run, op), "operation");
    ops_must(f, snug_block_copy(f->ctx, &d.arena, out, d.arena.base, (int64_t)f->bytes), "download");
    ops_device_close(backend, &d);
}

#endif
