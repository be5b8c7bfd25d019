/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of BERT-large, or of the model of a config.json, on the GPU, with random weights: samples a second and memory
 * of one case, as the loop of a training sees them: the loss and the gradient's norm are read in every step.
 */
#include <getopt.h>
#include <math.h>

#include "../tests/support/bert_step.h"
#include "args/args.h"
#include "measure/rates.h"

enum { BATCHES = 8, MOST = 512 };

struct bench {
    const char *type, *optimizer, *offload, *offload_dir, *folder, *model, *rates;
    int batch, length, shortest, accumulate, steps;
    int ragged, mlm, infer, checkpoint, low_weights, in_backward, operations, untried;
    struct bert_step s;
    struct snug_batch batches[BATCHES];
    uint8_t *memory[BATCHES];
    struct snug_sizes sizes;
    int64_t tokens; /* of the largest batch */
    double ratio;   /* of offloaded tensors */
    double mean;    /* tokens of a batch */
    double pairs;   /* sum of the squares of its sequences' lengths, the mean batch's */
};

static void read_results(struct bert_step *s) {
    float loss, clip[2];
    bert_read(s, s->program.loss, &loss, sizeof loss);
    if (s->program.clip) bert_read(s, s->program.clip, clip, sizeof clip);
}

static void one_step(struct bench *b, int number) {
    struct bert_step *s = &b->s;
    for (int micro = 0; micro < b->accumulate; micro++) {
        struct snug_batch *batch = &b->batches[(number * b->accumulate + micro) % BATCHES];
        batch->last_in_step = micro == b->accumulate - 1;
        batch->items_in_step = batch->items * b->accumulate;
        bert_load(s, batch);
        bert_phase(s, SNUG_PHASE_FORWARD);
        bert_phase(s, SNUG_PHASE_HEAD);
        if (b->infer) continue;
        bert_phase(s, SNUG_PHASE_BACKWARD);
        s->run.micro_batch++;
    }
    if (!b->infer) bert_update(s);
    read_results(s);
}

/* One operation after the other, each waited for: the sum is more than a step's time, the shares are right. */
static void print_operations(struct bench *b) {
    struct bert_step *s = &b->s;
    double seconds[SNUG_OP_COUNT] = {0}, total = 0;
    int calls[SNUG_OP_COUNT] = {0};
    struct snug_cost cost[SNUG_OP_COUNT] = {{0, 0}};
    enum { ROUNDS = 5 };
    bert_load(s, &b->batches[0]);
    for (size_t i = 0; i < s->program.op_count; i++) {
        const struct snug_op *op = &s->program.ops[i];
        if (op->phase == SNUG_PHASE_PREPARE) continue;
        s->run.rows = s->program.capacity[SNUG_EXTENT_ROWS];
        for (int warm = 0; warm < 2; warm++) bert_check(s->ctx, s->backend->ops[op->kind](&s->run, op), "operation");
        read_results(s);
        const double begin = snug_seconds();
        for (int k = 0; k < ROUNDS; k++) bert_check(s->ctx, s->backend->ops[op->kind](&s->run, op), "operation");
        read_results(s);
        const struct snug_cost one = snug_op_cost(&s->program, op, b->batches[0].tokens, b->batch, s->run.rows);
        seconds[op->kind] += (snug_seconds() - begin) / ROUNDS;
        cost[op->kind].flops += one.flops;
        cost[op->kind].bytes += one.bytes;
        calls[op->kind]++;
    }
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) total += seconds[kind];
    printf("%-20s %6s %9s %6s %9s %8s\n", "operation", "calls", "ms", "share", "TFLOP/s", "TB/s");
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        if (calls[kind])
            printf("%-20s %6d %9.3f %5.1f%% %9.1f %8.2f\n", snug_op_name((enum snug_op_kind)kind), calls[kind],
                   1e3 * seconds[kind], 100 * seconds[kind] / total, cost[kind].flops / seconds[kind] * 1e-12,
                   cost[kind].bytes / seconds[kind] * 1e-12);
    printf("%-20s %6s %9.3f\n", "sum", "", 1e3 * total);
}

/* The peers' distribution: the long tail of real texts, 0.37 of the longest on average. */
static int32_t ragged_length(int length, uint64_t i) {
    const double u = 0.5 + 0.5 * (double)bert_value(1, i), v = 0.5 + 0.5 * (double)bert_value(2, i);
    const double normal = sqrt(-2 * log(u + 1e-9)) * cos(6.283185307179586 * v);
    const double tokens = length * 0.33 * exp(0.6 * normal);
    return tokens < 8 ? 8 : tokens > length ? length : (int32_t)tokens;
}

static int32_t length_of(const struct bench *b, uint64_t i) {
    if (b->shortest)
        return b->shortest + (int32_t)((0.5 + 0.5 * (double)bert_value(3, i)) * (b->length + 1 - b->shortest));
    return b->ragged ? ragged_length(b->length, i) : b->length;
}

static void make_batches(struct bench *b) {
    int32_t *lengths = calloc((size_t)b->batch, sizeof *lengths);
    for (int i = 0; i < BATCHES; i++) {
        int64_t tokens = 0;
        for (int k = 0; k < b->batch; k++) {
            lengths[k] = length_of(b, (uint64_t)(i * b->batch + k));
            tokens += lengths[k];
            b->pairs += (double)lengths[k] * lengths[k] / BATCHES;
        }
        b->memory[i] = calloc(1, (size_t)bert_batch_bytes(tokens + 16, b->batch));
        bert_fill(&b->s, &b->batches[i], b->memory[i], lengths, b->batch);
        snug_sizes_add(&b->sizes, tokens);
        b->mean += (double)tokens / BATCHES;
        if (b->tokens < tokens) b->tokens = tokens;
    }
    free(lengths);
}

static int parse(struct bench *b, int argc, char **argv) {
    const struct option options[] = {{"type", required_argument, NULL, 't'},
                                     {"batch", required_argument, NULL, 'b'},
                                     {"length", required_argument, NULL, 'l'},
                                     {"accumulate", required_argument, NULL, 'a'},
                                     {"steps", required_argument, NULL, 's'},
                                     {"optim", required_argument, NULL, 'o'},
                                     {"offload", required_argument, NULL, 'x'},
                                     {"offload-dir", required_argument, NULL, 'd'},
                                     {"offload-ratio", required_argument, NULL, 'y'},
                                     {"cache", required_argument, NULL, 'c'},
                                     {"config", required_argument, NULL, 'm'},
                                     {"rates", required_argument, NULL, 'r'},
                                     {"shortest", required_argument, NULL, 'u'},
                                     {"ragged", no_argument, &b->ragged, 1},
                                     {"mlm", no_argument, &b->mlm, 1},
                                     {"infer", no_argument, &b->infer, 1},
                                     {"checkpoint", no_argument, &b->checkpoint, 1},
                                     {"bf16-weights", no_argument, &b->low_weights, 1},
                                     {"update-in-backward", no_argument, &b->in_backward, 1},
                                     {"operations", no_argument, &b->operations, 1},
                                     {"untried", no_argument, &b->untried, 1},
                                     {NULL, 0, NULL, 0}};
    *b = (struct bench){
        .type = "bf16", .batch = 32, .length = MOST, .accumulate = 1, .steps = 20, .folder = ".", .ratio = 1};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (c) {
        case 't': b->type = optarg; break;
        case 'b': b->batch = atoi(optarg); break;
        case 'l': b->length = atoi(optarg); break;
        case 'a': b->accumulate = atoi(optarg); break;
        case 's': b->steps = atoi(optarg); break;
        case 'o': b->optimizer = optarg; break;
        case 'c': b->folder = optarg; break;
        case 'm': b->model = optarg; break;
        case 'r': b->rates = optarg; break;
        case 'x': b->offload = optarg; break;
        case 'd': b->offload_dir = optarg; break;
        case 'y': b->ratio = atof(optarg); break;
        case 'u': b->shortest = atoi(optarg); break;
        case 0: break;
        default: return 2;
        }
    if (optind == argc && b->batch > 0 && b->length > 0 && b->shortest >= 0 && b->shortest <= b->length &&
        b->accumulate > 0 && b->steps > 0)
        return 0;
    fprintf(
        stderr,
        "bench_cuda_step [--type bf16|fp16|fp32|tf32] [--batch N] [--length N] [--ragged] [--accumulate N]\n"
        "  [--mlm] [--infer] [--checkpoint] [--bf16-weights] [--update-in-backward] [--optim NAME] [--steps N]\n"
        "  [--offload optimizer,gradients,weights,master_weights,activations] [--offload-ratio R] [--offload-dir DIR]\n"
        "  [--config MODEL|config.json] (else BERT-large) [--shortest N] (lengths from N to --length, all as likely)\n"
        "  [--rates FILE] (of snug bench rates --device cuda --json: prints the planned time of a step, too)\n"
        "  [--operations] (time by kind) [--cache DIR] (of algorithms) [--untried] (as cuBLASLt guesses)\n");
    return 2;
}

static struct bert_options options_of(snug_context *ctx, const struct bench *b, const struct snug_backend *cuda,
                                      const struct snug_optimizer *optimizer) {
    static enum snug_recompute levels[256];
    const bool bf16 = strcmp(b->type, "bf16") == 0, fp16 = strcmp(b->type, "fp16") == 0;
    struct snug_offload offload = cuda->copying;
    const struct snug_args args = {.ctx = ctx,
                                   .offload = (char *)(uintptr_t)b->offload,
                                   .bf16 = bf16,
                                   .fp16 = fp16,
                                   .dtype = (char *)(b->low_weights ? "bfloat16" : "float32"),
                                   .offload_ratio = b->ratio};
    bert_check(ctx, snug_args_offload(&args, &offload.classes), "--offload");
    offload.resident = 1 - b->ratio;
    for (int i = 0; i < 256; i++) levels[i] = b->checkpoint ? SNUG_RECOMPUTE_LAYER : SNUG_RECOMPUTE_ELEMENTWISE;
    return (struct bert_options){.compute = bf16   ? SNUG_BF16
                                            : fp16 ? SNUG_F16
                                                   : SNUG_F32,
                                 .tf32 = strcmp(b->type, "tf32") == 0,
                                 .infers = b->infer,
                                 .tokens = b->tokens,
                                 .sequences = b->batch,
                                 .longest = b->length,
                                 .chunk = b->mlm ? cuda->loss_positions : 0,
                                 .sizes = b->untried ? NULL : &b->sizes,
                                 .folder = b->folder,
                                 .offload_dir = b->offload_dir,
                                 .methods = {.optimizer = optimizer,
                                             .weights = b->low_weights ? SNUG_BF16 : SNUG_F32,
                                             .recompute = levels,
                                             .update_in_backward = b->in_backward,
                                             .clips = true,
                                             .accumulates = b->accumulate > 1,
                                             .micro_batches = b->accumulate,
                                             .offload = offload}};
}

static void print_name(const struct bench *b) {
    char name[192];
    snprintf(
        name, sizeof name, "%s%s%s%s%s %d%s%s%s%s%s%s%s", b->model ? b->s.config.family->name : "", b->model ? " " : "",
        b->infer ? "inference "
        : b->mlm ? "masked LM "
                 : "",
        b->type, b->length == MOST ? ", batch" : ", other length, batch", b->batch,
        b->shortest ? " lengths"
        : b->ragged ? " ragged"
                    : "",
        b->checkpoint ? ", checkpointing" : "", b->low_weights ? ", bf16 weights" : "", b->optimizer ? ", " : "",
        b->optimizer ? b->optimizer : "", b->in_backward ? ", update in backward" : "", b->untried ? ", untried" : "");
    if (b->offload) snprintf(name + strlen(name), 80, ", offload %s%s", b->offload, b->offload_dir ? " to disk" : "");
    if (b->ratio < 1) snprintf(name + strlen(name), 16, " x %g", b->ratio);
    if (b->accumulate > 1) snprintf(name + strlen(name), 16, ", x%d", b->accumulate);
    printf("%-62s ", name);
}

/* The planned milliseconds of a step, beside the measured ones. */
static void print_planned(const struct bench *b, double seconds) {
    struct snug_rates rates;
    struct snug_step_estimate step;
    const struct snug_load load = {.tokens = b->mean,
                                   .sequences = b->batch,
                                   .rows = b->mlm ? b->mean / 7 : b->batch, /* bert_rows() */
                                   .pairs = b->pairs,
                                   .micro_batches = b->accumulate};
    bert_check(b->s.ctx, snug_rates_read(b->s.ctx, b->rates, &rates), "--rates");
    bert_check(b->s.ctx, snug_estimate_parts(&rates, &b->s.program, &load, &step), "estimate");
    printf(", planned %.2f ms (%+.0f %%)", 1e3 * step.total.seconds, 100 * (step.total.seconds / seconds - 1));
    snug_rates_free(&rates);
}

int main(int argc, char **argv) {
    static struct bench b;
    snug_context *ctx;
    const struct snug_backend *cuda;
    if (parse(&b, argc, argv)) return 2;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    bert_check(ctx, snug_backend_cuda(ctx, &cuda), "no GPU");
    const struct snug_hub_place anywhere = {0};
    struct snug_config config = bert_large();
    if (b.model) bert_check(ctx, snug_config_find(ctx, &anywhere, b.model, &config), "--config");
    if (b.model) config.task = SNUG_TASK_CLASSIFICATION;
    if (b.length > (b.model ? config.positions : MOST) || config.num_hidden_layers > 256) {
        fprintf(stderr, "--length %d is more than the model's positions, or it has more than 256 layers\n", b.length);
        return 2;
    }
    if (b.mlm) config.task = SNUG_TASK_MLM;
    b.s.config = config;
    make_batches(&b);
    struct snug_optimizer optimizer;
    bert_check(
        ctx,
        snug_optimizer_parse(ctx, b.optimizer ? b.optimizer : "adamw_torch", NULL, 0.9, 0.999, 1e-8, 0.01, &optimizer),
        "--optim");
    const struct bert_options options = options_of(ctx, &b, cuda, &optimizer);
    print_name(&b);
    if (bert_open_case(&b.s, cuda, &config, &options) != SNUG_OK) {
        printf("%s\n", snug_error_message(b.s.ctx));
        return 0;
    }
    double *times = calloc((size_t)b.steps, sizeof *times);
    for (int i = 0; i < 2 * BATCHES + 1; i++) one_step(&b, i);
    for (int i = 0; i < b.steps; i++) {
        const double begin = snug_seconds();
        one_step(&b, i);
        times[i] = snug_seconds() - begin;
    }
    double seconds = 0;
    for (int i = 0; i < b.steps; i++) seconds += times[i] / b.steps;
    const struct snug_layout *layout = &b.s.runner.layout;
    printf("%8.1f /s %8.2f ms, arena %6.0f, device %6.0f MiB", b.batch * b.accumulate / seconds, 1e3 * seconds,
           (double)layout->arena / 0x1p20, (double)cuda->library(&b.s.program, 1) / 0x1p20);
    if (b.offload) printf(", offloaded %.0f MiB", (double)layout->offload_bytes / 0x1p20);
    if (b.rates) print_planned(&b, seconds);
    printf("\n");
    if (b.operations) print_operations(&b);
    bert_close(&b.s);
    for (int i = 0; i < BATCHES; i++) free(b.memory[i]);
    free(times);
    snug_context_destroy(ctx);
    return 0;
}
