/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on the GPU alone: 24 calls in one recorded phase; forward and backward, with and without dropout. The
 * results of bf16 and tf32 are held against those of the same backend in fp32.
 *   bench_cuda_attention [bf16|fp32|tf32 [rounds [heads [channels of a head [case]]]]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/stages.h"

enum { LAYERS = 24 };
enum { QKV, O, LSE, DOUT, DQKV, TENSORS };

struct attention {
    snug_context *ctx;
    const struct snug_backend *backend;
    struct snug_program program;
    struct snug_tensor tensors[TENSORS];
    struct snug_op ops[2 * LAYERS];
    struct snug_batch batch;
    struct snug_block arena;
    struct snug_run run;
};

static void check(const struct attention *a, snug_status status, const char *what) {
    if (status == SNUG_OK) return;
    fprintf(stderr, "%s: %s\n", what, snug_error_message(a->ctx));
    exit(1);
}

static void *array(int64_t count, size_t size) {
    void *memory = calloc((size_t)(count > 0 ? count : 1), size);
    if (!memory) exit(1);
    return memory;
}

/* Multiples of 2^-7 in [-1, 1), which bf16 holds: xorshift, since there may be 200 million. */
static void put_random(const struct attention *a, int32_t tensor, int64_t count) {
    const struct snug_tensor *t = &a->tensors[tensor];
    const int64_t size = snug_dtype_size(t->dtype);
    uint8_t *values = array(count, (size_t)size);
    uint64_t state = 0x9E3779B97F4A7C15u + (uint64_t)tensor;
    for (int64_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const float value = (float)((int32_t)(state >> 32) >> 24) * 0x1p-7f;
        if (t->dtype == SNUG_BF16)
            ((uint16_t *)values)[i] = snug_f32_to_bf16(value);
        else
            ((float *)values)[i] = value;
    }
    check(a, snug_block_copy(a->ctx, &a->arena, a->arena.base + t->offset, values, count * size), "upload");
    free(values);
}

static void open_attention(struct attention *a, const struct snug_backend *backend, const char *name, float p,
                           const int32_t *lengths, int32_t sequences, int32_t heads, int64_t h) {
    const enum snug_dtype type = strcmp(name, "bf16") == 0 ? SNUG_BF16 : SNUG_F32;
    *a = (struct attention){.backend = backend};
    if (snug_context_create(&a->ctx) != SNUG_OK) exit(1);
    struct snug_batch *b = &a->batch;
    b->sequences = sequences;
    b->last_in_step = true;
    b->offsets = array(sequences + 1, 4);
    for (int32_t i = 0; i < sequences; i++) {
        b->offsets[i + 1] = (int32_t)(b->tokens += lengths[i]);
        if (lengths[i] > b->longest) b->longest = lengths[i];
    }
    b->sample = array(b->tokens, 4);
    for (int32_t i = 0; i < sequences; i++)
        for (int32_t t = b->offsets[i]; t < b->offsets[i + 1]; t++) b->sample[t] = i;
    a->program = (struct snug_program){.ctx = a->ctx, .tensors = a->tensors, .tensor_count = TENSORS, .ops = a->ops};
    a->program.longest = b->longest;
    a->program.compute = type;
    a->program.tf32 = strcmp(name, "tf32") == 0;
    a->program.capacity[SNUG_EXTENT_TOKENS] = b->tokens;
    a->program.capacity[SNUG_EXTENT_SEQUENCES] = sequences;
    const int64_t columns[TENSORS] = {3 * h, h, heads, h, 3 * h};
    int64_t end = 0;
    for (int i = 0; i < TENSORS; i++) {
        struct snug_tensor *t = &a->tensors[i];
        *t = (struct snug_tensor){
            .dtype = i == LSE ? SNUG_F32 : type, .extent = SNUG_EXTENT_TOKENS, .cols = columns[i], .offset = end};
        t->bytes = (b->tokens + SNUG_ROW_TILE) * t->cols * snug_dtype_size(t->dtype);
        end += (t->bytes + 255) / 256 * 256;
    }
    for (int i = 0; i < LAYERS; i++) {
        a->ops[i] = (struct snug_op){.kind = SNUG_OP_ATTENTION,
                                     .phase = SNUG_PHASE_FORWARD,
                                     .in = SNUG_INPUTS(QKV),
                                     .out = SNUG_OUTPUTS(O, LSE),
                                     .p = p,
                                     .site = 8,
                                     .heads = heads};
        a->ops[LAYERS + i] = (struct snug_op){.kind = SNUG_OP_ATTENTION_BACKWARD,
                                              .phase = SNUG_PHASE_BACKWARD,
                                              .in = SNUG_INPUTS(DOUT, QKV, O, LSE),
                                              .out = SNUG_OUTPUTS(DQKV),
                                              .p = p,
                                              .site = 8,
                                              .heads = heads};
    }
    a->program.op_count = 2 * LAYERS;
    int64_t workspace = backend->workspace(&a->program, &a->ops[LAYERS], 1);
    workspace = (workspace + 255) / 256 * 256;
    check(a, backend->allocate(a->ctx, end + workspace + backend->batch(&a->program), SNUG_BLOCK_ARENA, &a->arena),
          "arena");
    a->run = (struct snug_run){.ctx = a->ctx,
                               .program = &a->program,
                               .arena = a->arena.base,
                               .batch = b,
                               .workspace = a->arena.base + end,
                               .batch_copy = a->arena.base + end + workspace,
                               .threads = 1,
                               .seed = 42};
    check(a, backend->open(a->ctx, &a->program, 1, &a->run.backend_state), "open");
    put_random(a, QKV, b->tokens * 3 * h);
    put_random(a, DOUT, b->tokens * h);
    check(a, backend->load(&a->run), "load");
}

static void close_attention(struct attention *a) {
    a->backend->close(a->run.backend_state);
    snug_block_release(&a->arena);
    free(a->batch.offsets);
    free(a->batch.sample);
    snug_context_destroy(a->ctx);
}

static void run(struct attention *a, enum snug_phase phase) {
    check(a, snug_run_phase(&a->run, a->backend, phase, NULL), "phase");
}

/* The tensor's live values in fp32; waits for all work. */
static float *take(const struct attention *a, int32_t tensor, int64_t *count) {
    const struct snug_tensor *t = &a->tensors[tensor];
    *count = a->batch.tokens * t->cols;
    void *raw = array(*count, (size_t)snug_dtype_size(t->dtype));
    float *values = array(*count, 4);
    check(a, snug_block_copy(a->ctx, &a->arena, raw, a->arena.base + t->offset, *count * snug_dtype_size(t->dtype)),
          "read");
    for (int64_t i = 0; i < *count; i++)
        values[i] = t->dtype == SNUG_BF16 ? snug_bf16_to_f32(((uint16_t *)raw)[i]) : ((float *)raw)[i];
    free(raw);
    return values;
}

static double milliseconds(struct attention *a, enum snug_phase phase, int rounds) {
    char byte;
    for (int i = 0; i < 4; i++) run(a, phase);
    check(a, snug_block_copy(a->ctx, &a->arena, &byte, a->arena.base, 1), "wait");
    const double begin = snug_seconds();
    for (int i = 0; i < rounds; i++) run(a, phase);
    check(a, snug_block_copy(a->ctx, &a->arena, &byte, a->arena.base, 1), "wait");
    return 1e3 * (snug_seconds() - begin) / rounds;
}

static double distance(const float *a, const float *b, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(difference / size);
}

/* Relative errors of o and dqkv (0 for fp32 itself), and whether a second run gives the same bits. */
static void print_errors(struct attention *a, float p, const int32_t *lengths, int32_t heads, int64_t h) {
    struct attention exact;
    open_attention(&exact, a->backend, "fp32", p, lengths, (int32_t)a->batch.sequences, heads, h);
    run(&exact, SNUG_PHASE_FORWARD);
    run(&exact, SNUG_PHASE_BACKWARD);
    const int32_t of[] = {O, DQKV};
    for (int i = 0; i < 2; i++) {
        int64_t count;
        float *found = take(a, of[i], &count), *want = take(&exact, of[i], &count);
        run(a, SNUG_PHASE_FORWARD);
        run(a, SNUG_PHASE_BACKWARD);
        float *again = take(a, of[i], &count);
        printf("  %.1e%s", distance(found, want, count),
               memcmp(found, again, (size_t)count * 4) ? " NOT THE SAME TWICE" : "");
        free(found);
        free(want);
        free(again);
    }
    close_attention(&exact);
}

static void measure(const struct snug_backend *backend, const char *type, const char *name, const int32_t *lengths,
                    int32_t sequences, float p, int rounds, int32_t heads, int64_t h) {
    struct attention a;
    double pairs = 0;
    for (int32_t i = 0; i < sequences; i++) pairs += (double)lengths[i] * lengths[i];
    open_attention(&a, backend, type, p, lengths, sequences, heads, h);
    const double forward = milliseconds(&a, SNUG_PHASE_FORWARD, rounds);
    const double backward = milliseconds(&a, SNUG_PHASE_BACKWARD, rounds);
    const double flops = 4 * pairs * (double)h * LAYERS * 1e-9;
    printf("%-12s p %.1f  forward %7.3f ms %5.0f TFLOP/s  backward %7.3f ms %5.0f TFLOP/s", name, (double)p, forward,
           flops / forward, backward, 2.5 * flops / backward);
    if (a.batch.tokens <= 20000) print_errors(&a, p, lengths, heads, h); /* the host's part is long */
    printf("\n");
    fflush(stdout);
    close_attention(&a);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int32_t sequences, length, step; /* sequence i has length - step i tokens, where that is more than 20 */
    } cases[] = {{"32 x 512", 32, 512, 0},   {"4 x 512", 4, 512, 0},     {"1 x 512", 1, 512, 0},
                 {"128 x 512", 128, 512, 0}, {"ragged 32", 32, 512, 25}, {"256 x 64", 256, 64, 0},
                 {"512 x 30", 512, 30, 0},   {"2 x 4096", 2, 4096, 0}};
    const char *type = argc > 1 ? argv[1] : "bf16";
    const int rounds = argc > 2 ? atoi(argv[2]) : 10, heads = argc > 3 ? atoi(argv[3]) : 16;
    const int64_t h = heads * (int64_t)(argc > 4 ? atoi(argv[4]) : 64);
    snug_context *ctx;
    const struct snug_backend *cuda;
    if (strcmp(type, "bf16") != 0 && strcmp(type, "fp32") != 0 && strcmp(type, "tf32") != 0) return 2;
    if (rounds < 1 || heads < 1 || h < heads || snug_context_create(&ctx) != SNUG_OK) return 2;
    if (snug_backend_cuda(ctx, &cuda) != SNUG_OK) {
        fprintf(stderr, "%s\n", snug_error_message(ctx));
        return 1;
    }
    printf("%d layers, %d heads of %d, %s; backward's FLOPs counted as 2.5 x forward's; relative errors of o, dqkv\n",
           LAYERS, heads, (int)(h / heads), type);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 5 && strcmp(argv[5], cases[i].name) != 0) continue;
        int32_t lengths[512];
        for (int32_t s = 0; s < cases[i].sequences; s++) {
            const int32_t length = cases[i].length - cases[i].step * s;
            lengths[s * 7 % cases[i].sequences] = length > 20 ? length : 20 + s;
        }
        for (int drop = 1; drop >= 0; drop--)
            measure(cuda, type, cases[i].name, lengths, cases[i].sequences, drop ? 0.1f : 0, rounds, heads, h);
    }
    snug_context_destroy(ctx);
    return 0;
}
