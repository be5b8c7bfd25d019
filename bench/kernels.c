/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Milliseconds and GB/s of each fused kernel, at the shapes of MiniLM-L6 on short texts and of BERT-large on full ones:
 *   bench_kernels [repetitions [operation]]
 * The time is the best of the repetitions; the bytes are those of the tensors that the operation names, once each.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/backend.h"
#include "core/philox.h"

#define TENSORS 32
#define OPS 20

struct shape {
    const char *name;
    int64_t sequences, length, spread; /* lengths are length - spread … length + spread */
    int64_t h, ffn, vocabulary, classes, head_rows;
    int32_t heads;
};

struct bench {
    const struct shape *shape;
    struct snug_program program;
    struct snug_tensor tensors[TENSORS];
    struct snug_op ops[OPS];
    const char *names[OPS];
    struct snug_batch batch;
    struct snug_run run;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *array(int64_t count, int64_t size) {
    void *p = NULL;
    if (posix_memalign(&p, 64, (size_t)((count * size + 64) / 64 * 64))) {
        fprintf(stderr, "bench_kernels: out of memory for %" PRId64 " bytes; take a smaller shape\n", count * size);
        exit(1);
    }
    memset(p, 0, (size_t)(count * size));
    return p;
}

static uint32_t word(uint32_t stream, int64_t i) { return snug_philox((uint32_t)i, 0, 0, 0, stream, 0).word[0]; }

static const int32_t *by_key; /* qsort has no room for it */

static int compare(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    return by_key[i] != by_key[j] ? (by_key[i] < by_key[j] ? -1 : 1) : (i > j) - (i < j);
}

static void make_batch(struct bench *bench) {
    const struct shape *shape = bench->shape;
    struct snug_batch *b = &bench->batch;
    b->sequences = shape->sequences;
    b->offsets = array(b->sequences + 1, sizeof(int32_t));
    for (int64_t s = 0; s < b->sequences; s++) {
        int64_t length = shape->length - shape->spread + word(1, s) % (2 * shape->spread + 1);
        b->offsets[s + 1] = b->offsets[s] + (int32_t)length;
        if (length > b->longest) b->longest = length;
    }
    b->tokens = b->offsets[b->sequences];
    b->rows = shape->head_rows;
    int32_t **columns[] = {&b->ids, &b->types, &b->positions, &b->sample, &b->by_id};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) *columns[i] = array(b->tokens, sizeof(int32_t));
    b->head_rows = array(b->rows, sizeof(int32_t));
    b->labels = array(b->rows, sizeof(int32_t));
    for (int32_t s = 0; s < b->sequences; s++)
        for (int32_t t = b->offsets[s]; t < b->offsets[s + 1]; t++) {
            uint32_t rank = 1 + word(2, t) % 4096; /* a few frequent words, many rare ones */
            b->ids[t] = (int32_t)(shape->vocabulary / rank % shape->vocabulary);
            b->positions[t] = t - b->offsets[s];
            b->sample[t] = s;
            b->by_id[t] = t;
        }
    by_key = b->ids;
    qsort(b->by_id, (size_t)b->tokens, sizeof(int32_t), compare);
    for (int64_t r = 0; r < b->rows; r++) {
        b->head_rows[r] = (int32_t)(r * b->tokens / b->rows);
        b->labels[r] = (int32_t)(word(3, r) % shape->classes);
    }
}

static int32_t tensor(struct bench *bench, enum snug_dtype dtype, enum snug_extent extent, int64_t rows, int64_t cols) {
    int64_t capacity = extent == SNUG_EXTENT_FIXED ? rows : bench->program.capacity[extent] + SNUG_ROW_TILE;
    struct snug_tensor *t = &bench->tensors[bench->program.tensor_count];
    *t = (struct snug_tensor){.dtype = dtype, .extent = extent, .rows = rows, .cols = cols};
    t->bytes = (capacity * cols * snug_dtype_size(dtype) + 63) / 64 * 64;
    return (int32_t)bench->program.tensor_count++;
}

static void add(struct bench *bench, const char *name, struct snug_op op) {
    bench->names[bench->program.op_count] = name;
    op.p = op.kind == SNUG_OP_NORM ? 0 : 0.1f;
    op.eps = 1e-12f;
    op.heads = bench->shape->heads;
    op.first = true;
    bench->ops[bench->program.op_count++] = op;
}

#define T SNUG_EXTENT_TOKENS
#define R SNUG_EXTENT_ROWS
#define FIXED SNUG_EXTENT_FIXED
#define OP(kind_, ...) ((struct snug_op){.kind = SNUG_OP_##kind_, __VA_ARGS__})

/* All fused operations of a training step, each once. */
static void make_program(struct bench *bench, enum snug_dtype x) {
    const struct shape *s = bench->shape;
    struct snug_program *p = &bench->program;
    *p = (struct snug_program){.tensors = bench->tensors, .ops = bench->ops, .longest = bench->batch.longest};
    p->compute = x;
    p->capacity[SNUG_EXTENT_TOKENS] = bench->batch.tokens;
    p->capacity[SNUG_EXTENT_SEQUENCES] = bench->batch.sequences;
    p->capacity[SNUG_EXTENT_ROWS] = bench->batch.rows;

    int32_t word_table = tensor(bench, SNUG_F32, FIXED, s->vocabulary, s->h),
            dword = tensor(bench, SNUG_F32, FIXED, s->vocabulary, s->h);
    int32_t position = tensor(bench, SNUG_F32, FIXED, 512, s->h), dposition = tensor(bench, SNUG_F32, FIXED, 512, s->h);
    int32_t type = tensor(bench, SNUG_F32, FIXED, 2, s->h), dtype = tensor(bench, SNUG_F32, FIXED, 2, s->h);
    int32_t gamma = tensor(bench, SNUG_F32, FIXED, 1, s->h), beta = tensor(bench, SNUG_F32, FIXED, 1, s->h);
    int32_t dgamma = tensor(bench, SNUG_F32, FIXED, 1, s->h), dbeta = tensor(bench, SNUG_F32, FIXED, 1, s->h);
    int32_t a = tensor(bench, x, T, 0, s->h), b = tensor(bench, x, T, 0, s->h), c = tensor(bench, x, T, 0, s->h);
    int32_t d = tensor(bench, x, T, 0, s->h), qkv = tensor(bench, x, T, 0, 3 * s->h);
    int32_t dqkv = tensor(bench, x, T, 0, 3 * s->h), lse = tensor(bench, SNUG_F32, T, 0, s->heads);
    int32_t u = tensor(bench, x, T, 0, s->ffn), du = tensor(bench, x, T, 0, s->ffn);
    int32_t bias = tensor(bench, SNUG_F32, FIXED, 1, s->ffn);
    int32_t r = tensor(bench, x, R, 0, s->h), logits = tensor(bench, SNUG_F32, R, 0, s->classes);
    int32_t dlogits = tensor(bench, x, R, 0, s->classes), loss = tensor(bench, SNUG_F32, FIXED, 1, 1);

    add(bench, "EMBED",
        OP(EMBED, .in = SNUG_INPUTS(word_table, position, type, gamma, beta), .out = SNUG_OUTPUTS(a, b)));
    add(bench, "ATTENTION", OP(ATTENTION, .in = SNUG_INPUTS(qkv), .out = SNUG_OUTPUTS(a, lse)));
    add(bench, "RESIDUAL_NORM", OP(RESIDUAL_NORM, .in = SNUG_INPUTS(a, b, gamma, beta), .out = SNUG_OUTPUTS(c, d)));
    add(bench, "NORM", OP(NORM, .in = SNUG_INPUTS(c, gamma, beta), .out = SNUG_OUTPUTS(d)));
    add(bench, "ACTIVATION", OP(ACTIVATION, .in = SNUG_INPUTS(u, bias), .out = SNUG_OUTPUTS(du)));
    add(bench, "GATHER", OP(GATHER, .in = SNUG_INPUTS(a), .out = SNUG_OUTPUTS(r)));
    add(bench, "LOSS", OP(LOSS, .in = SNUG_INPUTS(logits), .out = SNUG_OUTPUTS(loss, dlogits)));
    add(bench, "GATHER_BACKWARD", OP(GATHER_BACKWARD, .in = SNUG_INPUTS(r), .out = SNUG_OUTPUTS(d)));
    add(bench, "ACTIVATION_BACKWARD", OP(ACTIVATION_BACKWARD, .in = SNUG_INPUTS(u, u, bias), .out = SNUG_OUTPUTS(du)));
    add(bench, "NORM_BACKWARD",
        OP(NORM_BACKWARD, .in = SNUG_INPUTS(a, c, gamma), .out = SNUG_OUTPUTS(d, b, dgamma, dbeta)));
    add(bench, "ATTENTION_BACKWARD",
        OP(ATTENTION_BACKWARD, .in = SNUG_INPUTS(a, qkv, b, lse), .out = SNUG_OUTPUTS(dqkv)));
    add(bench, "EMBED_BACKWARD",
        OP(EMBED_BACKWARD, .in = SNUG_INPUTS(a, c, gamma),
           .out = SNUG_OUTPUTS(dword, dposition, dtype, dgamma, dbeta)));
    add(bench, "DROPOUT", OP(DROPOUT, .in = SNUG_INPUTS(r), .out = SNUG_OUTPUTS(r)));
    add(bench, "FILL", OP(FILL, .in = SNUG_INPUTS(-1), .out = SNUG_OUTPUTS(d)));
}

/* Values in [-1, 1), so that no kernel meets a case that it is slow in. */
static void fill_arena(struct bench *bench) {
    int64_t bytes = 0;
    for (size_t t = 0; t < bench->program.tensor_count; t++) {
        bench->tensors[t].offset = bytes;
        bytes += bench->tensors[t].bytes;
    }
    bench->run.arena = array(bytes, 1);
    for (size_t t = 0; t < bench->program.tensor_count; t++) {
        struct snug_tensor *tensor_t = &bench->tensors[t];
        void *data = bench->run.arena + tensor_t->offset;
        for (int64_t i = 0; i < tensor_t->bytes / snug_dtype_size(tensor_t->dtype); i++) {
            float value = (float)((uint32_t)i * 2654435761u >> 8) * 0x1p-23f - 1;
            if (tensor_t->dtype == SNUG_F32) ((float *)data)[i] = value;
            if (tensor_t->dtype == SNUG_BF16) ((uint16_t *)data)[i] = snug_f32_to_bf16(value);
        }
    }
}

static int64_t bytes_of(const struct bench *bench, const struct snug_op *op) {
    int64_t bytes = 0;
    for (int i = 0; i < SNUG_OP_INPUTS + SNUG_OP_OUTPUTS; i++) {
        int32_t t = i < SNUG_OP_INPUTS ? op->in[i] : op->out[i - SNUG_OP_INPUTS];
        bool table = op->kind == SNUG_OP_EMBED && i < 3; /* only the rows that tokens name */
        if (t < 0) continue;
        bytes += (table ? bench->batch.tokens : snug_run_rows(&bench->run, t)) * snug_run_cols(&bench->run, t) *
                 snug_dtype_size(bench->tensors[t].dtype);
    }
    return bytes;
}

static double best_time(struct bench *bench, const struct snug_op *op, int threads, int repetitions) {
    const struct snug_backend *backend = snug_backend_cpu();
    int64_t scratch = backend->workspace(&bench->program, op, threads);
    bench->run.workspace = array(scratch, 1);
    bench->run.threads = threads;
    double best = INFINITY;
    for (int r = 0; r < repetitions; r++) {
        double start = now();
        if (backend->ops[op->kind](&bench->run, op) != SNUG_OK) exit(1);
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    free(bench->run.workspace);
    return best;
}

static void measure(const struct shape *shape, enum snug_dtype dtype, int repetitions, const char *only) {
    struct bench bench = {.shape = shape};
    make_batch(&bench);
    make_program(&bench, dtype);
    bench.run = (struct snug_run){
        .program = &bench.program, .batch = &bench.batch, .seed = 1, .rows = bench.batch.rows, .loss_scale = 1};
    fill_arena(&bench);
    printf("%s, %s, %" PRId64 " tokens in %" PRId64 " sequences\n", shape->name, snug_dtype_name(dtype),
           bench.batch.tokens, bench.batch.sequences);
    printf("  %-20s %10s %8s %10s %8s\n", "operation", "1 thread", "GB/s", "2 threads", "GB/s");
    for (size_t i = 0; i < bench.program.op_count; i++) {
        if (only && strcmp(only, bench.names[i]) != 0) continue;
        double bytes = 1e-9 * (double)bytes_of(&bench, &bench.ops[i]);
        double one = best_time(&bench, &bench.ops[i], 1, repetitions);
        double two = best_time(&bench, &bench.ops[i], 2, repetitions);
        printf("  %-20s %7.3f ms %8.2f %7.3f ms %8.2f\n", bench.names[i], 1e3 * one, bytes / one, 1e3 * two,
               bytes / two);
    }
    void *arrays[] = {bench.batch.offsets,   bench.batch.ids,    bench.batch.types,
                      bench.batch.positions, bench.batch.sample, bench.batch.by_id,
                      bench.batch.head_rows, bench.batch.labels, bench.run.arena};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

int main(int argc, char **argv) {
    static const struct shape shapes[] = {
        {"MiniLM-L6", 32, 23, 18, 384, 1536, 30522, 2, 32, 12},
        {"BERT-large", 4, 496, 16, 1024, 4096, 30522, 30522, 128, 16},
    };
    int repetitions = argc > 1 ? atoi(argv[1]) : 20;
    if (repetitions < 1) {
        fprintf(stderr, "usage: bench_kernels [repetitions [operation]]\n");
        return 2;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (enum snug_dtype dtype = SNUG_F32; dtype <= SNUG_BF16; dtype++)
            measure(&shapes[s], dtype, repetitions, argc > 2 ? argv[2] : NULL);
    return 0;
}
