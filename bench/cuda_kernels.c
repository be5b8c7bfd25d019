/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each kind of operation of BERT-large's training step on the GPU, by itself: all operations of a kind, recorded as one
 * graph and replayed as a step replays it, at 32, 4 and 1 sequences of 512 tokens. The bytes are those of the tensors
 * that an operation names, once each; small batches find much of them in the cache.
 *   bench_cuda_kernels [bf16|fp32 [operation …]]      all but products and attention by default
 */
#include "../tests/bert_step.h"

enum { LENGTH = 512, LAYERS = 4, SEQUENCES = 32, REPLAYS = 20 };

static void finish(struct bert_step *s) {
    float loss;
    bert_read(s, s->program.loss, &loss, sizeof loss);
}

/* A program of s's operations of one kind, all in one phase, often enough that starting the graph does not count. */
static struct snug_program program_of(const struct bert_step *s, enum snug_op_kind kind) {
    struct snug_program only = s->program;
    size_t count = 0;
    for (size_t i = 0; i < s->program.op_count; i++) count += s->program.ops[i].kind == kind;
    const size_t times = count == 0 || count >= 32 ? 1 : (64 + count - 1) / count;
    only.op_count = 0;
    only.ops = calloc(count * times + 1, sizeof *only.ops);
    if (!only.ops) exit(1);
    for (size_t k = 0; k < times; k++)
        for (size_t i = 0; i < s->program.op_count; i++)
            if (s->program.ops[i].kind == kind) {
                only.ops[only.op_count] = s->program.ops[i];
                only.ops[only.op_count++].phase = SNUG_PHASE_FORWARD;
            }
    return only;
}

static void measure(struct bert_step *s, enum snug_op_kind kind) {
    const struct snug_run run = s->run;
    struct snug_program only = program_of(s, kind);
    struct snug_cost cost = {0};
    if (only.op_count > 0) {
        s->run.program = &only;
        s->run.in_turn = false;
        s->run.rows = s->batch.rows;
        bert_check(s->ctx, s->backend->open(s->ctx, &only, 1, &s->run.backend_state), "open");
        bert_check(s->ctx, s->backend->load(&s->run), "load");
        for (int warm = 0; warm < 3; warm++) bert_phase(s, SNUG_PHASE_FORWARD);
        finish(s);
        const double begin = snug_seconds();
        for (int k = 0; k < REPLAYS; k++) bert_phase(s, SNUG_PHASE_FORWARD);
        finish(s);
        const double seconds = (snug_seconds() - begin) / REPLAYS;
        for (size_t i = 0; i < only.op_count; i++) {
            const struct snug_cost one = snug_op_cost(&only, &only.ops[i], (double)s->batch.tokens,
                                                      (double)s->batch.sequences, (double)s->batch.rows);
            cost.flops += one.flops;
            cost.bytes += one.bytes;
        }
        printf("%6d %-20s %10.1f %10.1f %8.2f %9.1f\n", (int)s->batch.tokens, snug_op_name(kind),
               1e6 * seconds / (double)only.op_count, 1e-6 * cost.bytes / (double)only.op_count,
               cost.bytes / seconds * 1e-12, cost.flops / seconds * 1e-12);
        s->backend->close(s->run.backend_state);
    }
    free(only.ops);
    s->run = run;
    s->run.in_turn = false;
}

static bool is_wanted(enum snug_op_kind kind, int count, char **names) {
    if (count == 0) return snug_op_group(kind) != SNUG_GROUP_CONTRACTION;
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], snug_op_name(kind)) == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    static const int32_t batches[] = {SEQUENCES, 4, 1};
    const enum snug_dtype compute = argc > 1 && strcmp(argv[1], "fp32") == 0 ? SNUG_F32 : SNUG_BF16;
    snug_context *ctx;
    const struct snug_backend *cuda;
    struct bert_step s;
    int32_t lengths[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) lengths[i] = LENGTH;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    bert_check(ctx, snug_backend_cuda(ctx, &cuda), "no GPU");
    struct snug_config config = bert_large();
    config.num_hidden_layers = LAYERS;
    bert_open(&s, cuda, &config, compute, SEQUENCES * LENGTH, SEQUENCES);
    printf("%s\n%6s %-20s %10s %10s %8s %9s\n", snug_dtype_name(compute), "tokens", "operation", "us a call",
           "MB a call", "TB/s", "TFLOP/s");
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        bert_batch(&s, lengths, batches[i]);
        for (int step = 0; step < 2; step++) { /* so that the arena holds numbers */
            bert_gradients(&s);
            bert_update(&s);
        }
        for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
            if (is_wanted((enum snug_op_kind)kind, argc > 2 ? argc - 2 : 0, argv + 2))
                measure(&s, (enum snug_op_kind)kind);
    }
    bert_close(&s);
    snug_context_destroy(ctx);
    return 0;
}
