/* SPDX-License-Identifier: Apache-2.0 */
/* Training steps of BERT-large on the GPU, made-up weights: samples a second, and time by kind of operation.
   bench_cuda_step [bf16|fp32|fp16 [batch [length [steps [adamw|adamw_8bit|adafactor]]]]] */
#include "../tests/bert_step.h"

static void finish(struct bert_step *s) {
    float loss;
    bert_read(s, s->program.loss, &loss, sizeof loss);
}

static void one_step(struct bert_step *s) {
    s->backend->load(&s->run);
    bert_gradients(s);
    bert_update(s);
}

/* One operation after the other, each waited for: the sum is more than a step's time, the shares are right. */
static void print_operations(struct bert_step *s, double sequences, double tokens) {
    double seconds[SNUG_OP_COUNT] = {0};
    int calls[SNUG_OP_COUNT] = {0};
    struct snug_cost cost[SNUG_OP_COUNT] = {{0, 0}};
    enum { ROUNDS = 5 };
    bert_check(s->ctx, s->backend->load(&s->run), "load");
    for (size_t i = 0; i < s->program.op_count; i++) {
        const struct snug_op *op = &s->program.ops[i];
        if (op->phase == SNUG_PHASE_PREPARE) continue;
        s->run.rows = s->batch.rows;
        for (int warm = 0; warm < 2; warm++) bert_check(s->ctx, s->backend->ops[op->kind](&s->run, op), "operation");
        finish(s);
        const double begin = snug_seconds();
        for (int k = 0; k < ROUNDS; k++) bert_check(s->ctx, s->backend->ops[op->kind](&s->run, op), "operation");
        finish(s);
        const struct snug_cost one = snug_op_cost(&s->program, op, (int64_t)tokens, (int64_t)sequences, s->batch.rows);
        seconds[op->kind] += (snug_seconds() - begin) / ROUNDS;
        cost[op->kind].flops += one.flops;
        cost[op->kind].bytes += one.bytes;
        calls[op->kind]++;
    }
    double total = 0;
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) total += seconds[kind];
    printf("%-20s %6s %9s %6s %9s %8s\n", "operation", "calls", "ms", "share", "TFLOP/s", "TB/s");
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        if (calls[kind])
            printf("%-20s %6d %9.3f %5.1f%% %9.1f %8.2f\n", snug_op_name((enum snug_op_kind)kind), calls[kind],
                   1e3 * seconds[kind], 100 * seconds[kind] / total, cost[kind].flops / seconds[kind] * 1e-12,
                   cost[kind].bytes / seconds[kind] * 1e-12);
    printf("%-20s %6s %9.3f\n", "sum", "", 1e3 * total);
}

int main(int argc, char **argv) {
    const char *type = argc > 1 ? argv[1] : "bf16", *optim = argc > 5 ? argv[5] : "adamw";
    const enum snug_dtype compute = strcmp(type, "fp32") == 0   ? SNUG_F32
                                    : strcmp(type, "fp16") == 0 ? SNUG_F16
                                                                : SNUG_BF16;
    const int32_t batch = argc > 2 ? atoi(argv[2]) : 32, length = argc > 3 ? atoi(argv[3]) : 512;
    const int steps = argc > 4 ? atoi(argv[4]) : 20;
    const struct snug_config config = {.vocab_size = 30522,
                                       .hidden_size = 1024,
                                       .num_hidden_layers = 24,
                                       .num_attention_heads = 16,
                                       .intermediate_size = 4096,
                                       .max_position_embeddings = 512,
                                       .type_vocab_size = 2,
                                       .pad_token_id = 0,
                                       .hidden_act = SNUG_GELU,
                                       .layer_norm_eps = 1e-12,
                                       .initializer_range = 0.02,
                                       .hidden_dropout_prob = 0.1,
                                       .attention_probs_dropout_prob = 0.1,
                                       .classifier_dropout = 0.1,
                                       .task = SNUG_TASK_CLASSIFICATION,
                                       .labels = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2}};
    if (batch < 1 || length < 1 || length > 512 || steps < 1) return 2;
    snug_context *ctx;
    const struct snug_backend *cuda;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    bert_check(ctx, snug_backend_cuda(ctx, &cuda), "no GPU");
    struct bert_step s;
    int32_t *lengths = calloc((size_t)batch, sizeof *lengths);
    if (!lengths) return 1;
    for (int32_t i = 0; i < batch; i++) lengths[i] = length;
    struct snug_optimizer optimizer = bert_adamw;
    if (strcmp(optim, "adamw_8bit") == 0) optimizer.kind = SNUG_ADAM_8BIT;
    if (strcmp(optim, "adafactor") == 0)
        optimizer = (struct snug_optimizer){
            .kind = SNUG_ADAFACTOR, .epsilon = 1e-30, .epsilon2 = 1e-3, .clip_threshold = 1, .decay_rate = -0.8};
    bert_open_with(&s, cuda, &config, compute, (int64_t)batch * length, batch,
                   &(struct snug_methods){.optimizer = &optimizer});
    bert_batch(&s, lengths, batch);
    for (int i = 0; i < 4; i++) one_step(&s);
    finish(&s);
    const double begin = snug_seconds();
    for (int i = 0; i < steps; i++) one_step(&s);
    finish(&s);
    const double seconds = (snug_seconds() - begin) / steps;
    printf("%s batch %d x %d: %.2f ms a step, %.1f samples/s, arena %.0f MiB, taken on the device %.0f MiB\n",
           snug_dtype_name(compute), batch, length, 1e3 * seconds, batch / seconds, (double)s.layout.arena / 0x1p20,
           (double)cuda->library(&s.program, 1) / 0x1p20);
    print_operations(&s, batch, (double)batch * length);
    bert_close(&s);
    free(lengths);
    snug_context_destroy(ctx);
    return 0;
}
