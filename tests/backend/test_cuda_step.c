/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole training steps on the GPU, dropout on, against the reference: losses, every gradient, every weight after some
 * steps, with ragged batches that change, accumulation, and phases that are recorded; optimizers; fp16's skipped steps.
 * The same bits twice; two programs in turn.
 * test_cuda_step [TEST]
 */
#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "bert_step.h"
#include "scratch.h"

#define FIXTURE struct scratch *scratch, scratch_setup, scratch_teardown

enum { STEPS = 5, TOKENS = 400, SEQUENCES = 6 };

static const struct snug_backend *cuda;
static char why[512];

static void need_bf16(void) {
    if (cuda && cuda->lacks_bf16) skip();
}

/* The 16-bit type that every GPU has. */
static enum snug_dtype low(void) { return cuda->lacks_bf16 ? SNUG_F16 : SNUG_BF16; }

static struct snug_config small(void) {
    struct snug_config config = bert_large();
    config.vocab_size = 97;
    config.hidden_size = 64;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.intermediate_size = 128;
    config.max_position_embeddings = 160;
    return config;
}

/* Two micro-batches a step; the third step has another number of tokens than the others. */
static void step(struct bert_step *s, int number, float losses[2]) {
    static const int32_t batches[2][2][SEQUENCES] = {{{130, 1, 64, 17, 65, 31}, {5, 128, 33, 70, 2, 90}},
                                                     {{33, 40, 64, 17, 65, 31}, {5, 28, 33, 70, 2, 9}}};
    for (int micro = 0; micro < 2; micro++) {
        bert_batch(s, batches[number == 2][micro], SEQUENCES);
        bert_gradients(s);
        bert_read(s, s->program.loss, &losses[micro], sizeof losses[micro]);
    }
}

static double distance(const float *a, const float *b, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        size += (double)b[i] * (double)b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

static void read_values(struct bert_step *s, int32_t tensor, float *values) {
    const struct snug_tensor *t = &s->program.tensors[tensor];
    const int64_t count = t->rows * t->cols;
    if (t->dtype == SNUG_F32) {
        bert_read(s, tensor, values, count * 4);
        return;
    }
    uint16_t *halves = calloc((size_t)count, 2);
    bert_read(s, tensor, halves, count * 2);
    for (int64_t i = 0; i < count; i++)
        values[i] = t->dtype == SNUG_F16 ? snug_f16_to_f32(halves[i]) : snug_bf16_to_f32(halves[i]);
    free(halves);
}

/* The tensor that is called the same in another program, which may have more of them. */
static int32_t same_tensor(const struct bert_step *s, const char *name) {
    for (size_t i = 1; i < s->program.tensor_count; i++)
        if (strcmp(s->program.tensors[i].name, name) == 0) return (int32_t)i;
    fail_msg("there is no tensor %s", name);
    return -1;
}

/* The largest relative distance of tensors of a class; key biases aside, whose true gradient is zero. */
static double worst_of(struct bert_step *a, struct bert_step *b, snug_memory_class memory_class, const char **name) {
    double worst = 0;
    for (size_t i = 1; i < a->program.tensor_count; i++) {
        const struct snug_tensor *t = &a->program.tensors[i];
        if (!t->persistent || t->memory_class != memory_class || t->dtype > SNUG_F16) continue;
        const int64_t count = t->rows * t->cols;
        float *x = calloc((size_t)count, 4), *y = calloc((size_t)count, 4);
        read_values(a, (int32_t)i, x);
        read_values(b, same_tensor(b, t->name), y);
        const double d = distance(x, y, count);
        if (!(d <= worst)) {
            worst = d;
            *name = t->name;
        }
        free(x);
        free(y);
    }
    return worst;
}

struct bounds {
    double loss, gradient, weight;
};

/* overflows: a bit for each step whose loss is so large that fp16 cannot hold its gradients. */
static void compare_with(enum snug_dtype compute, const struct snug_methods *how, unsigned overflows,
                         struct bounds bounds) {
    if (!cuda) {
        print_message("%s\n", why);
        skip();
    }
    struct bert_step a, b;
    const struct snug_config config = small();
    bert_open_with(&a, cuda, &config, compute, TOKENS, SEQUENCES, how);
    bert_open_with(&b, snug_backend_reference(), &config, compute, TOKENS, SEQUENCES, how);
    for (int i = 0; i < STEPS; i++) {
        float x[2], y[2];
        const char *name = "";
        a.overflow = b.overflow = overflows >> i & 1;
        step(&a, i, x);
        step(&b, i, y);
        for (int k = 0; k < 2; k++)
            if (!(fabsf(x[k] - y[k]) <= (float)bounds.loss * fabsf(y[k])))
                fail_msg("step %d: loss %.8g, expected %.8g", i, (double)x[k], (double)y[k]);
        const double worst = a.overflow ? 0 : worst_of(&a, &b, SNUG_MEMORY_GRADIENTS, &name);
        print_message("%s step %d: losses off by %.1e %.1e, gradients by %.1e (%s)\n", snug_dtype_name(compute), i,
                      fabs((double)(x[0] - y[0])), fabs((double)(x[1] - y[1])), worst, name);
        if (!(worst <= bounds.gradient)) fail_msg("step %d: gradient of %s is off by %g", i, name, worst);
        bert_update(&a);
        bert_update(&b);
    }
    const char *name = "";
    const double worst = worst_of(&a, &b, SNUG_MEMORY_WEIGHTS, &name);
    print_message("%s weights off by %.1e (%s)\n", snug_dtype_name(compute), worst, name);
    if (!(worst <= bounds.weight)) fail_msg("weights of %s are off by %g", name, worst);
    bert_close(&a);
    bert_close(&b);
}

TEST(fp32_steps_agree) {
    compare_with(SNUG_F32, &(struct snug_methods){.optimizer = &bert_adamw}, 0, (struct bounds){1e-4, 1e-3, 1e-3});
}

TEST(bf16_steps_agree) {
    need_bf16();
    compare_with(SNUG_BF16, &(struct snug_methods){.optimizer = &bert_adamw}, 0, (struct bounds){3e-2, 1e-1, 1e-2});
}

/* One layer's bf16 copies are recomputed in forward and backward, the optimizer updates the other's. */
TEST(bf16_steps_that_are_made_again_agree) {
    static const enum snug_recompute levels[] = {SNUG_RECOMPUTE_LAYER, SNUG_RECOMPUTE_ELEMENTWISE};
    need_bf16();
    compare_with(SNUG_BF16, &(struct snug_methods){.optimizer = &bert_adamw, .recompute = levels}, 0,
                 (struct bounds){3e-2, 1e-1, 1e-2});
}

TEST(fp16_steps_agree) {
    compare_with(SNUG_F16, &(struct snug_methods){.optimizer = &bert_adamw}, 0, (struct bounds){4e-3, 5e-2, 1e-2});
}

/* ---- optimizers ------------------------------------------------------------------------------------------------ */

static const struct snug_optimizer adamw_8bit = {.info = &snug_optimizer_adam_8bit,
                                                 .decoupled = true,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.999,
                                                 .epsilon = 1e-8,
                                                 .weight_decay = 0.01};
static const struct snug_optimizer adafactor = {.info = &snug_optimizer_adafactor,
                                                .epsilon = 1e-30,
                                                .epsilon2 = 1e-3,
                                                .clip_threshold = 1,
                                                .decay_rate = -0.8,
                                                .scale_parameter = true,
                                                .weight_decay = 0.01};

static const struct snug_optimizer sgd = {
    .info = &snug_optimizer_sgd, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
static const struct snug_optimizer plain_sgd = {.info = &snug_optimizer_sgd};
static const struct snug_optimizer adagrad = {.info = &snug_optimizer_adagrad, .epsilon = 1e-10, .weight_decay = 0.01};
static const struct snug_optimizer rmsprop = {
    .info = &snug_optimizer_rmsprop, .alpha = 0.99, .epsilon = 1e-8, .centered = true};
static const struct snug_optimizer lion = {
    .info = &snug_optimizer_lion, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.01};
static const struct snug_optimizer *const others[] = {&adamw_8bit, &adafactor, &sgd, &plain_sgd,
                                                      &adagrad,    &rmsprop,   &lion};
enum { OTHERS = sizeof others / sizeof *others };

TEST(optimizers_agree) {
    for (int i = 0; i < OTHERS; i++) /* Lion takes the signs of the key biases' gradients too, which are zero */
        compare_with(SNUG_F32, &(struct snug_methods){.optimizer = others[i]}, 0,
                     (struct bounds){1e-4, 1e-3, others[i] == &lion ? 1e-2 : 1e-3});
}

static void train(struct bert_step *s, enum snug_dtype compute, const struct snug_methods *how, bool accumulated) {
    const struct snug_config config = small();
    bert_open_with(s, cuda, &config, compute, TOKENS, SEQUENCES, how);
    for (int i = 0; i < 3; i++) { /* as they are, recorded, replayed */
        static const int32_t lengths[SEQUENCES] = {130, 1, 64, 17, 65, 31};
        float losses[2];
        if (accumulated) {
            step(s, i, losses);
        } else {
            bert_batch(s, lengths, SEQUENCES);
            bert_gradients(s);
        }
        bert_update(s);
    }
}

struct type {
    enum snug_dtype compute, weights;
    double bound;
};

/* One launch for all weights or one for each, products of tensors that lie elsewhere: the same up to rounding, which
   stochastic rounding makes one in the last place of bf16. */
static void update_in_backward_is_the_same(const struct type *type) {
    if (!cuda) skip();
    const struct snug_optimizer *const all[] = {&bert_adamw, &adamw_8bit, &adafactor, &rmsprop};
    for (int i = 0; i < 4; i++) {
        struct snug_methods how = {.optimizer = all[i], .weights = type->weights, .clips = true};
        struct bert_step s[2];
        const char *name = "";
        train(&s[0], type->compute, &how, false);
        how.update_in_backward = true;
        train(&s[1], type->compute, &how, false);
        const double worst = worst_of(&s[0], &s[1], SNUG_MEMORY_WEIGHTS, &name);
        print_message("optimizer %d, %s with %s weights: off by %.1e (%s)\n", i, snug_dtype_name(type->compute),
                      snug_dtype_name(type->weights), worst, name);
        if (!(worst <= type->bound)) fail_msg("%s is off by %g", name, worst);
        for (int n = 0; n < 2; n++) bert_close(&s[n]);
    }
}
TEST(fp32_update_in_backward) { update_in_backward_is_the_same(&(struct type){SNUG_F32, SNUG_F32, 1e-4}); }
TEST(bf16_update_in_backward) {
    need_bf16();
    update_in_backward_is_the_same(&(struct type){SNUG_BF16, SNUG_BF16, 4e-3});
}
TEST(fp16_update_in_backward) { update_in_backward_is_the_same(&(struct type){SNUG_F16, SNUG_F32, 2e-3}); }

/* ---- steps that fp16 skips -------------------------------------------------------------------------------------- */

/* The reference gets the skipped steps immediately; the GPU decides by itself, and chooses the learning rate. */
TEST(skipped_steps_agree) {
    const struct snug_optimizer *const all[] = {&bert_adamw, &adamw_8bit, &sgd, &adafactor};
    for (int i = 0; i < 4; i++) /* Gradients of the classifier's two biases all but cancel, which leaves few digits. */
        compare_with(SNUG_F16, &(struct snug_methods){.optimizer = all[i]}, i % 2 ? 6 : 9,
                     (struct bounds){4e-3, 1e-1, 1e-2});
}

/* Nothing of weights and states is another after a skipped step; the scale is halved, the step counted. */
TEST(skipped_steps_change_nothing) {
    if (!cuda) skip();
    const struct snug_optimizer *const all[] = {&bert_adamw, &adamw_8bit, &adafactor};
    for (int i = 0; i < 6; i++) {
        const struct snug_methods how = {.optimizer = all[i / 2], .clips = true, .update_in_backward = i % 2};
        const struct snug_config config = small();
        static const int32_t lengths[SEQUENCES] = {33, 1, 64, 17, 65, 31};
        struct bert_step s;
        bert_open_with(&s, cuda, &config, SNUG_F16, TOKENS, SEQUENCES, &how);
        uint8_t *before[2] = {calloc((size_t)s.runner.layout.arena, 1), calloc((size_t)s.runner.layout.arena, 1)};
        for (int k = 0; k < 2; k++) {
            s.overflow = k == 1;
            bert_batch(&s, lengths, SEQUENCES);
            bert_gradients(&s);
            bert_update(&s);
            bert_check(s.ctx,
                       snug_block_copy(s.ctx, &s.runner.arena, before[k], s.runner.arena.base, s.runner.layout.arena),
                       "read");
        }
        const int32_t scaler = s.program.scaler;
        for (size_t t = 1; t < s.program.tensor_count; t++) {
            const struct snug_tensor *tensor = &s.program.tensors[t];
            const bool kept = tensor->memory_class == SNUG_MEMORY_WEIGHTS || tensor->saved;
            if (!tensor->persistent || !kept || (int32_t)t == scaler) continue;
            if (memcmp(before[0] + tensor->offset, before[1] + tensor->offset, (size_t)tensor->bytes) != 0)
                fail_msg("%s was changed by a step that was skipped", tensor->name);
        }
        float values[SNUG_SCALE_VALUES];
        bert_read(&s, scaler, values, sizeof values);
        assert_true(values[SNUG_SCALE] == SNUG_SCALE_FIRST / 2 && values[SNUG_SCALE_SKIPPED] == 1);
        for (int k = 0; k < 2; k++) free(before[k]);
        bert_close(&s);
    }
}

static void same_bits_twice(enum snug_dtype compute) {
    if (!cuda) skip();
    const struct snug_optimizer *const all[] = {&bert_adamw, &adamw_8bit, &adafactor};
    for (int i = 0; i < 3; i++) {
        struct bert_step s[2];
        const struct snug_methods how = {.optimizer = all[i], .accumulates = true, .clips = true};
        for (int k = 0; k < 2; k++) train(&s[k], compute, &how, true);
        const char *name = "";
        if (worst_of(&s[0], &s[1], SNUG_MEMORY_WEIGHTS, &name) != 0)
            fail_msg("optimizer %d, %s: %s is another the second time", i, snug_dtype_name(compute), name);
        for (int k = 0; k < 2; k++) bert_close(&s[k]);
    }
}
TEST(fp32_same_bits_twice) { same_bits_twice(SNUG_F32); }
TEST(bf16_same_bits_twice) {
    need_bf16();
    same_bits_twice(SNUG_BF16);
}
TEST(fp16_same_bits_twice) { same_bits_twice(SNUG_F16); }

/* Training and evaluation have their batches in one part of the arena, each laid out in its own way: what one is sent
   must not arrive where operations of the other, which were not waited for, still read. */
TEST(programs_take_turns) {
    static const int32_t lengths[SEQUENCES] = {130, 1, 64, 17, 65, 31}, few[2] = {60, 40};
    enum { ALONE, TOGETHER };
    if (!cuda) skip();
    const struct snug_config config = small();
    const struct bert_options infers = {
        .compute = low(), .tokens = TOKENS / 4, .sequences = 2, .longest = TOKENS / 4, .infers = true};
    struct bert_step trained[2], evaluated[2];
    for (int k = 0; k < 2; k++) {
        bert_open(&trained[k], cuda, &config, low(), TOKENS, SEQUENCES);
        assert_int_equal(bert_open_case(&evaluated[k], cuda, &config, &infers), SNUG_OK);
    }
    assert_true(cuda->batch(&evaluated[TOGETHER].program) <= cuda->batch(&trained[TOGETHER].program));
    evaluated[TOGETHER].run.batch_copy = trained[TOGETHER].run.batch_copy;
    for (int i = 0; i < 8; i++) { /* from the third on, phases are replayed */
        float loss, logits[2][4];
        for (int k = 0; k < 2; k++) {
            trained[k].run.micro_batch = 0;
            trained[k].run.in_turn = evaluated[k].run.in_turn = false;
            bert_batch(&trained[k], lengths, SEQUENCES);
            bert_gradients(&trained[k]);
            if (k == ALONE) bert_read(&trained[k], trained[k].program.loss, &loss, sizeof loss); /* waits */
            bert_batch(&evaluated[k], few, 2);
            bert_phase(&evaluated[k], SNUG_PHASE_FORWARD);
            bert_phase(&evaluated[k], SNUG_PHASE_HEAD);
            bert_read(&evaluated[k], evaluated[k].program.logits, logits[k], sizeof *logits);
        }
        const char *name = "";
        assert_memory_equal(logits[ALONE], logits[TOGETHER], sizeof *logits);
        if (worst_of(&trained[ALONE], &trained[TOGETHER], SNUG_MEMORY_GRADIENTS, &name) != 0)
            fail_msg("%s is another where evaluation has its turn", name);
    }
    for (int k = 0; k < 2; k++) {
        bert_close(&trained[k]);
        bert_close(&evaluated[k]);
    }
}

/* What the backend keeps of its trials in folder; freed by the caller. */
static char *kept_in(const char *folder, char *path, size_t size) {
    char *text = NULL;
    size_t bytes;
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));)
        if (strncmp(entry->d_name, "matmuls-", 8) == 0) snprintf(path, size, "%s/%s", folder, entry->d_name);
    closedir(listing);
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    assert_int_equal(snug_file_read(ctx, NULL, path, &text, &bytes), SNUG_OK);
    snug_context_destroy(ctx);
    return text;
}

static int64_t lines_of(const char *text) {
    int64_t lines = 0;
    for (const char *c = text; *c; c++) lines += c[0] == '\n' && c > text && c[-1] != '\n';
    return lines;
}

/* Algorithms are tried once and then taken from the file, which is repaired where it is damaged; steps are those of the
   reference, and with the same file they have the same bits. */
FIXTURE_TEST(choices_are_kept) {
    if (!cuda) skip();
    const struct snug_config config = small();
    struct snug_sizes sizes = {{0}};
    for (int64_t tokens = 64; tokens <= 448; tokens += 64) snug_sizes_add(&sizes, tokens);
    const struct bert_options options = {.compute = low(),
                                         .tokens = TOKENS,
                                         .sequences = SEQUENCES,
                                         .longest = config.max_position_embeddings,
                                         .sizes = &sizes,
                                         .folder = scratch->folder};
    struct bert_step s[3], reference;
    char path[512], *kept[3];
    bert_open(&reference, snug_backend_reference(), &config, low(), TOKENS, SEQUENCES);
    for (int k = 0; k < 3; k++) {
        bert_open_case(&s[k], cuda, &config, &options);
        kept[k] = kept_in(scratch->folder, path, sizeof path);
        if (k == 1) assert_int_equal(truncate(path, (off_t)strlen(kept[k]) - 100), 0);
    }
    assert_true(lines_of(kept[0]) > 20);
    assert_string_equal(kept[0], kept[1]);
    assert_int_equal(lines_of(kept[2]), lines_of(kept[0]) + 1); /* with what is left of the damaged one */
    for (int i = 0; i < STEPS; i++) {
        float losses[2], expected[2];
        for (int k = 0; k < 2; k++) step(&s[k], i, losses);
        step(&reference, i, expected);
        for (int k = 0; k < 2; k++) assert_true(fabsf(losses[k] - expected[k]) <= 3e-2f * fabsf(expected[k]));
        for (int k = 0; k < 2; k++) bert_update(&s[k]);
        bert_update(&reference);
    }
    const char *name = "";
    assert_true(worst_of(&s[0], &s[1], SNUG_MEMORY_WEIGHTS, &name) == 0);
    for (int k = 0; k < 3; k++) {
        bert_close(&s[k]);
        free(kept[k]);
    }
    bert_close(&reference);
}

/* fp32 products of weights in bf16, and of fp32 weights with operands rounded to TF32. */
TEST(mixed_steps_agree) {
    if (!cuda) skip();
    const struct snug_config config = small();
    for (int tf32 = 0; tf32 < (cuda->lacks_bf16 ? 1 : 2); tf32++) {
        const struct bert_options options = {.compute = SNUG_F32,
                                             .tf32 = tf32,
                                             .tokens = TOKENS,
                                             .sequences = SEQUENCES,
                                             .longest = config.max_position_embeddings,
                                             .methods = {.weights = tf32 ? SNUG_F32 : SNUG_BF16}};
        struct bert_step a, b;
        const char *name = "";
        float x[2], y[2];
        bert_open_case(&a, cuda, &config, &options);
        bert_open_case(&b, snug_backend_reference(), &config, &options);
        step(&a, 0, x);
        step(&b, 0, y);
        const double worst = worst_of(&a, &b, SNUG_MEMORY_GRADIENTS, &name), bound = tf32 ? 1e-2 : 1e-3;
        for (int k = 0; k < 2; k++) assert_true(fabsf(x[k] - y[k]) <= (float)bound * fabsf(y[k]));
        print_message("%s: gradients off by %.1e (%s)\n", tf32 ? "TF32" : "bf16 weights", worst, name);
        if (!(worst <= bound)) fail_msg("gradient of %s is off by %g", name, worst);
        bert_close(&a);
        bert_close(&b);
    }
}

int main(int argc, char **argv) {
    snug_context *ctx;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    if (snug_backend_cuda(ctx, &cuda) != SNUG_OK) snprintf(why, sizeof why, "skipped: %s", snug_error_message(ctx));
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int failed = run_registered(NULL, NULL);
    snug_context_destroy(ctx);
    return failed;
}
