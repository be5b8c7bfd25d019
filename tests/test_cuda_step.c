/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole training steps on the GPU, dropout on, against the reference: losses, every gradient, every weight after some
 * steps, with ragged batches that change, accumulation, and phases that are recorded. The same bits twice.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bert_step.h"

enum { STEPS = 5, TOKENS = 400, SEQUENCES = 6 };

static const struct snug_backend *cuda;
static char why[512];

static struct snug_config small(void) {
    return (struct snug_config){.vocab_size = 97,
                                .hidden_size = 64,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 2,
                                .intermediate_size = 128,
                                .max_position_embeddings = 160,
                                .type_vocab_size = 2,
                                .pad_token_id = 0,
                                .hidden_act = SNUG_GELU,
                                .layer_norm_eps = 1e-12,
                                .hidden_dropout_prob = 0.1,
                                .attention_probs_dropout_prob = 0.1,
                                .classifier_dropout = 0.1,
                                .task = SNUG_TASK_CLASSIFICATION,
                                .labels = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2}};
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

/* The largest relative distance of tensors of a class; key biases aside, whose true gradient is zero. */
static double worst_of(struct bert_step *a, struct bert_step *b, snug_memory_class memory_class, const char **name) {
    double worst = 0;
    for (size_t i = 0; i < a->program.tensor_count; i++) {
        const struct snug_tensor *t = &a->program.tensors[i];
        if (!t->persistent || t->memory_class != memory_class || t->dtype != SNUG_F32) continue;
        const int64_t count = t->rows * t->cols, bytes = count * 4;
        float *x = calloc((size_t)count, 4), *y = calloc((size_t)count, 4);
        bert_read(a, (int32_t)i, x, bytes);
        bert_read(b, (int32_t)i, y, bytes);
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

static void compare_steps(enum snug_dtype compute, double loss_bound, double gradient_bound, double weight_bound) {
    if (!cuda) {
        print_message("%s\n", why);
        skip();
    }
    struct bert_step a, b;
    const struct snug_config config = small();
    bert_open(&a, cuda, &config, compute, TOKENS, SEQUENCES);
    bert_open(&b, snug_backend_reference(), &config, compute, TOKENS, SEQUENCES);
    for (int i = 0; i < STEPS; i++) {
        float x[2], y[2];
        const char *name = "";
        step(&a, i, x);
        step(&b, i, y);
        for (int k = 0; k < 2; k++)
            if (!(fabsf(x[k] - y[k]) <= (float)loss_bound * fabsf(y[k])))
                fail_msg("step %d: loss %.8g, expected %.8g", i, (double)x[k], (double)y[k]);
        const double worst = worst_of(&a, &b, SNUG_MEMORY_GRADIENTS, &name);
        print_message("%s step %d: losses off by %.1e %.1e, gradients by %.1e (%s)\n", snug_dtype_name(compute), i,
                      fabs((double)(x[0] - y[0])), fabs((double)(x[1] - y[1])), worst, name);
        if (!(worst <= gradient_bound)) fail_msg("step %d: gradient of %s is off by %g", i, name, worst);
        bert_update(&a);
        bert_update(&b);
    }
    const char *name = "";
    const double worst = worst_of(&a, &b, SNUG_MEMORY_WEIGHTS, &name);
    print_message("%s weights off by %.1e (%s)\n", snug_dtype_name(compute), worst, name);
    if (!(worst <= weight_bound)) fail_msg("weights of %s are off by %g", name, worst);
    bert_close(&a);
    bert_close(&b);
}

static void fp32_steps_agree(void **state) {
    (void)state;
    compare_steps(SNUG_F32, 1e-4, 1e-3, 1e-3);
}

static void bf16_steps_agree(void **state) {
    (void)state;
    compare_steps(SNUG_BF16, 3e-2, 1e-1, 1e-2);
}

static void same_bits_twice(void **state) {
    (void)state;
    if (!cuda) skip();
    const struct snug_config config = small();
    for (enum snug_dtype compute = SNUG_F32; compute <= SNUG_BF16; compute++) {
        struct bert_step s[2];
        for (int k = 0; k < 2; k++) {
            bert_open(&s[k], cuda, &config, compute, TOKENS, SEQUENCES);
            for (int i = 0; i < STEPS; i++) {
                float losses[2];
                step(&s[k], i, losses);
                bert_update(&s[k]);
            }
        }
        const char *name = "";
        assert_true(worst_of(&s[0], &s[1], SNUG_MEMORY_WEIGHTS, &name) == 0);
        for (int k = 0; k < 2; k++) bert_close(&s[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_steps_agree),
        cmocka_unit_test(bf16_steps_agree),
        cmocka_unit_test(same_bits_twice),
    };
    snug_context *ctx;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    if (snug_backend_cuda(ctx, &cuda) != SNUG_OK) snprintf(why, sizeof why, "skipped: %s", snug_error_message(ctx));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snug_context_destroy(ctx);
    return failed;
}
