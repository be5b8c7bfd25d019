/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers against those of torch, transformers and bitsandbytes (tools/golden/optimizers.py), by the names and
 * settings of the command line; what is refused; stochastic rounding.
 */
#include "args/table.h"
#include "io/safetensors.h"
#include "ops_updates.h"

static int set_up(void **state);
static int tear_down(void **state);

#define STEPS 12
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/optimizers.safetensors"

static const struct ops_shape shape = {{1}, 1, 1, 1, 1, 1, 1, 0};

/* The cases of tools/golden/optimizers.py. */
static const struct golden_case {
    const char *name;
    double rate;
    const char *optim, *optim_args;
} cases[] = {
    {"adamw", 1e-2, "adamw_torch_fused", NULL},
    {"adam", 1e-2, "adam", NULL},
    {"sgd", 1e-2, "sgd", ""},
    {"sgd_momentum", 1e-2, "sgd", "momentum=0.9,dampening=0.2"},
    {"sgd_nesterov", 1e-2, "sgd", "momentum = 0.9, nesterov = True"},
    {"adagrad", 1e-2, "adagrad", NULL},
    {"adagrad_all", 1e-2, "adagrad", "lr_decay=0.05,initial_accumulator_value=0.1,eps=1e-6"},
    {"rmsprop", 1e-3, "rmsprop", NULL},
    {"rmsprop_momentum", 1e-3, "rmsprop", "momentum=0.8,alpha=0.9,eps=1e-4"},
    {"rmsprop_centered", 1e-3, "rmsprop", "centered=yes"},
    {"rmsprop_all", 1e-3, "rmsprop", "centered=1,momentum=0.8,alpha=0.9"},
    {"adafactor", 1e-2, "adafactor", "scale_parameter=False"},
    {"adafactor_scaled", 1e-2, "adafactor", "scale_parameter=True,eps2=1"},
    {"adafactor_momentum", 1e-2, "adafactor", "beta1=0.9,decay_rate=-0.5,clip_threshold=0.6"},
    {"adafactor_relative", 0, "adafactor", "scale_parameter=True,relative_step=True"},
    {"adafactor_warmup", 0, "adafactor", "scale_parameter=True,relative_step=True,warmup_init=True"},
    {"lion", 1e-3, "lion_32bit", NULL},
};

/* How snug holds the parameters of the file: as one tensor each, but for the three of the stack. */
static const struct {
    const char *names[3];
    int64_t rows, cols; /* of one */
    int segments;
    bool vector;
} weights[] = {
    {{"matrix"}, 7, 19, 1, false}, {{"vector"}, 1, 23, 1, true}, {{"stack0", "stack1", "stack2"}, 5, 6, 3, false}};

/* Values first … first + count - 1 of a stored tensor, into tensor from element at on. */
static void read_into(struct ops *f, const struct snug_safetensors *file, const char *prefix, const char *name,
                      int64_t first, int64_t count, int32_t tensor, int64_t at) {
    char full[64];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    const struct snug_stored_tensor *stored = snug_safetensors_find(file, full);
    if (!stored) fail_msg("%s is not in %s", full, GOLDEN);
    float *to = (float *)(f->arena + f->tensors[tensor].offset) + at;
    assert_int_equal(snug_safetensors_read(f->ctx, file, stored, first, count, to), SNUG_OK);
}

/*
 * Each step rounds the parameter to fp32 two or three times, half a unit each; what rounding makes of the update itself
 * is far below that of the parameter, since an update is at most some hundredths of it. Errors add up over the steps.
 */
static void check_step(const struct ops *f, const struct golden_case *c, int32_t p, int32_t expected, int step,
                       const char *backend) {
    for (int64_t i = 0; i < ops_count(f, p); i++) {
        const double got = ops_get(f, f->arena, p, i), want = ops_get(f, f->arena, expected, i);
        const double bound = 1.5 * 0x1p-23 * (step + 1) * (fabs(want) + 0x1p-4);
        if (!(fabs(got - want) <= bound))
            fail_msg("%s, %s, step %d, element %d: %.9g, expected %.9g, within %.3g", c->name, backend, step, (int)i,
                     got, want, bound);
    }
}

static void run_case(const struct golden_case *c, const struct snug_backend *backend, size_t w) {
    struct snug_safetensors file;
    struct update_case update = {.segments = weights[w].segments, .vector = weights[w].vector};
    const int64_t one = weights[w].rows * weights[w].cols, rows = weights[w].rows * update.segments;
    struct ops f;
    ops_open(&f, &shape, SNUG_F32);
    assert_int_equal(snug_safetensors_open(f.ctx, NULL, GOLDEN, &file), SNUG_OK);
    if (snug_optimizer_parse(f.ctx, c->optim, c->optim_args, 0.9, 0.999, 1e-8, 0.1, &f.optimizer) != SNUG_OK)
        fail_msg("%s", snug_error_message(f.ctx));
    update.optimizer = f.optimizer;
    update.decay = !update.vector;
    int32_t p = ops_tensor(&f, SNUG_F32, FIXED, rows, weights[w].cols),
            g = ops_source(&f, SNUG_F32, FIXED, rows, weights[w].cols);
    int32_t expected = ops_tensor(&f, SNUG_F32, FIXED, rows, weights[w].cols);
    const struct snug_op op = ops_update(&f, &update, p, g, -1);
    for (int s = 0; s < update.segments; s++) read_into(&f, &file, "p", weights[w].names[s], 0, one, p, s * one);
    for (int step = 0; step < STEPS; step++) {
        for (int s = 0; s < update.segments; s++) {
            read_into(&f, &file, "g", weights[w].names[s], step * one, one, g, s * one);
            read_into(&f, &file, c->name, weights[w].names[s], step * one, one, expected, s * one);
        }
        f.run.step = step;
        f.run.learning_rate = (float)snug_optimizer_rate(&f.optimizer, c->rate * (1 - step / 20.0), step);
        ops_run(&f, backend, &op, 1 + step % 2);
        check_step(&f, c, p, expected, step, backend->name);
    }
    snug_safetensors_close(&file);
    ops_close(&f);
}

TEST(test_golden) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t w = 0; w < sizeof weights / sizeof *weights; w++) {
            run_case(&cases[c], snug_backend_reference(), w);
            run_case(&cases[c], snug_backend_cpu(), w);
        }
}

TEST_IN(test_names, void *fixture, set_up, tear_down) {
    static const struct {
        const char *optim, *name;
        const struct snug_optimizer_info *info;
        bool decoupled;
    } names[] = {
        {"adamw_torch", "adamw_torch", &snug_optimizer_adam, true},
        {"adamw_torch_fused", "adamw_torch", &snug_optimizer_adam, true},
        {"adam", "adam", &snug_optimizer_adam, false},
        {"adamw_8bit", "adamw_8bit", &snug_optimizer_adam_8bit, true},
        {"adamw_bnb_8bit", "adamw_8bit", &snug_optimizer_adam_8bit, true},
        {"adam_8bit", "adam_8bit", &snug_optimizer_adam_8bit, false},
    };
    struct snug_optimizer o;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(snug_optimizer_parse(fixture, names[i].optim, NULL, 0.8, 0.9, 1e-6, 0.1, &o), SNUG_OK);
        assert_string_equal(o.name, names[i].name);
        assert_ptr_equal(o.info, names[i].info);
        assert_true(o.decoupled == names[i].decoupled && !o.tables_8bit);
        assert_true(o.beta1 == 0.8 && o.beta2 == 0.9 && o.epsilon == 1e-6 && o.weight_decay == 0.1);
    }
    assert_int_equal(snug_optimizer_parse(fixture, "adamw_8bit", "tables_8bit=True", 0.8, 0.9, 1e-6, 0, &o), SNUG_OK);
    assert_true(o.tables_8bit);
    /* Adam's flags are no other optimizer's but Lion's betas. */
    assert_int_equal(snug_optimizer_parse(fixture, "lion_32bit", NULL, 0.8, 0.9, 1e-6, 0, &o), SNUG_OK);
    assert_true(o.beta1 == 0.8 && o.beta2 == 0.9 && o.epsilon == 0);
    assert_int_equal(snug_optimizer_parse(fixture, "adafactor", NULL, 0.8, 0.9, 1e-6, 0, &o), SNUG_OK);
    assert_true(o.epsilon == 1e-30 && o.epsilon2 == 1e-3 && !o.factored_momentum);
    assert_true(!o.scale_parameter && !o.relative_step && o.clip_threshold == 1 && o.decay_rate == -0.8);
    assert_int_equal(snug_optimizer_parse(fixture, "rmsprop", NULL, 0.8, 0.9, 1e-6, 0, &o), SNUG_OK);
    assert_true(o.epsilon == 1e-8 && o.alpha == 0.99 && o.momentum == 0 && !o.centered);
}

/* --optim takes the names of the registry; each has what measure/rates.c measures it with, and states of its own
 * update.
 */
TEST_IN(test_registry, void *fixture, set_up, tear_down) {
    const struct snug_weight weight = {.rows = 5000, .cols = 8, .segments = 1};
    const snug_arg_info *info;
    size_t at = 0, length = 0;
    while ((info = snug_args_info(at)) && strcmp(info->name, "optim") != 0) at++;
    assert_non_null(info);
    for (size_t i = 0; snug_optimizers[i]; i++)
        for (const struct snug_optimizer_name *name = snug_optimizers[i]->names; name->optim; name++) {
            struct snug_optimizer o;
            assert_int_equal(
                snug_optimizer_parse(fixture, name->optim, snug_optimizers[i]->measured, 0.9, 0.999, 1e-8, 0, &o),
                SNUG_OK);
            assert_non_null(o.name);
            assert_true(snug_op_info(o.info->states(&o, &weight).update)->flags & SNUG_OP_UPDATES);
            assert_true(snug_list_has(info->value_name, '|', name->optim, strlen(name->optim)));
            length += strlen(name->optim) + 1;
        }
    assert_int_equal(strlen(info->value_name) + 1, length); /* so the list has no other name */
}

/* Names, and values a state keeps for a stack of three parameters of 5 x 6, or of three vectors of 30. */
TEST_IN(test_states, void *fixture, set_up, tear_down) {
    static const struct {
        const char *optim, *optim_args, *name;
        int64_t matrix, vector; /* 0: no such state */
    } rows[] = {
        {"adamw_torch", NULL, "exp_avg", 90, 90},      {"adamw_torch", NULL, "exp_avg_sq", 90, 90},
        {"adamw_8bit", NULL, "exp_avg", 90, 90}, /* small ones stay in 32 bit */
        {"sgd", NULL, "momentum_buffer", 0, 0},        {"sgd", "momentum=0.9", "momentum_buffer", 90, 90},
        {"adafactor", NULL, "exp_avg_sq_row", 15, 0},  {"adafactor", NULL, "exp_avg_sq_col", 18, 0},
        {"adafactor", NULL, "exp_avg_sq", 0, 90},      {"adafactor", NULL, "exp_avg", 0, 0},
        {"adafactor", "beta1=0.9", "exp_avg", 90, 90}, {"adagrad", NULL, "sum", 90, 90},
        {"rmsprop", NULL, "grad_avg", 0, 0},           {"rmsprop", "centered=True", "grad_avg", 90, 90},
        {"lion_32bit", NULL, "exp_avg", 90, 90},
    };
    const struct snug_weight kinds[2] = {{.rows = 15, .cols = 6, .segments = 3},
                                         {.rows = 3, .cols = 30, .segments = 3, .vector = true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int vector = 0; vector < 2; vector++) {
            struct snug_optimizer o;
            int64_t values = 0;
            assert_int_equal(snug_optimizer_parse(fixture, rows[i].optim, rows[i].optim_args, 0.9, 0.999, 1e-8, 0, &o),
                             SNUG_OK);
            const struct snug_states states = o.info->states(&o, &kinds[vector]);
            for (int k = 0; k < states.count; k++) {
                int64_t height, width;
                snug_state_size(&states.items[k], &kinds[vector], &height, &width);
                if (strcmp(states.items[k].name, rows[i].name) == 0) values += height * width;
            }
            if (values != (vector ? rows[i].vector : rows[i].matrix))
                fail_msg("%s %s: %d values of %s", rows[i].optim, vector ? "vectors" : "matrices", (int)values,
                         rows[i].name);
        }
}

/* The word embedding keeps states of 32 bits unless it is told otherwise. */
TEST_IN(test_states_of_tables, void *fixture, set_up, tear_down) {
    const struct snug_weight table = {.rows = 5000, .cols = 8, .segments = 1, .table = true};
    for (int coded = 0; coded < 2; coded++) {
        struct snug_optimizer o;
        assert_int_equal(
            snug_optimizer_parse(fixture, "adamw_8bit", coded ? "tables_8bit=True" : NULL, 0.9, 0.999, 1e-8, 0, &o),
            SNUG_OK);
        const struct snug_states states = o.info->states(&o, &table);
        assert_int_equal(states.update, coded ? SNUG_OP_ADAM_8BIT : SNUG_OP_ADAM);
        assert_int_equal(states.count, coded ? 4 : 2);
    }
}

TEST_IN(test_refused, void *fixture, set_up, tear_down) {
    static const struct {
        const char *optim, *optim_args, *says;
    } wrong[] = {
        {"madam", NULL, "--optim madam: no such optimizer"},
        {"sgd", "momentun=0.9", "sgd does not take \"momentun\"; it takes momentum dampening nesterov"},
        {"sgd", "alpha=0.9", "sgd does not take \"alpha\""},
        {"sgd", "moment=0.9", "sgd does not take \"moment\""},
        {"sgd", "omentum=0.9", "sgd does not take \"omentum\""},
        {"adamw_torch", "momentum=0.9", "adamw_torch does not take \"momentum\"; it takes none"},
        {"sgd", "weight_decay=0.1", "give --weight_decay 0.1"},
        {"sgd", "momentum", "\"momentum\" is no key=value"},
        {"sgd", "momentum=", "\"momentum=\" is no key=value"},
        {"sgd", "=0.9", "\"=0.9\" is no key=value"},
        {"sgd", "momentum=0.9=1", "is no key=value"},
        {"sgd", "momentum=0.9,", "\"\" is no key=value"},
        {"sgd", "momentum=much", "momentum=much must be a number of at least 0"},
        {"sgd", "momentum=0x1", "momentum=0x1 must be a number"},
        {"sgd", "momentum=1-2", "momentum=1-2 must be a number"},
        {"sgd", "momentum=nan", "momentum=nan must be a number"},
        {"sgd", "momentum=1e999", "momentum=1e999 must be a number"},
        {"sgd", "momentum=-1", "momentum=-1 must be a number of at least 0"},
        {"sgd", "nesterov=True", "nesterov=True needs a momentum above 0"},
        {"sgd", "nesterov=True,momentum=0.9,dampening=0.1", "nesterov=True needs"},
        {"sgd", "nesterov=maybe,momentum=0.9", "nesterov=maybe must be True or False"},
        {"rmsprop", "alpha=1.5", "alpha=1.5 must be a number of at least 0 and at most 1"},
        {"adafactor", "beta1=1", "beta1=1 must be a number of at least 0 and below 1"},
        {"adafactor", "clip_threshold=0", "clip_threshold=0 must be a number above 0"},
        {"adafactor", "warmup_init=True", "warmup_init=True needs relative_step=True"},
    };
    struct snug_optimizer o;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snug_clear_error(fixture);
        assert_int_equal(snug_optimizer_parse(fixture, wrong[i].optim, wrong[i].optim_args, 0.9, 0.999, 1e-8, 0, &o),
                         SNUG_E_USAGE);
        if (!strstr(snug_error_message(fixture), wrong[i].says))
            fail_msg("\"%s\" does not say \"%s\"", snug_error_message(fixture), wrong[i].says);
    }
}

/* ---- stochastic rounding ---------------------------------------------------------------------------------------- */

/* Each draw is up with the probability of the remainder: within five standard deviations of the mean. */
TEST(test_rounding_is_unbiased) {
    static const float values[] = {1.0f + 0x1p-9f, -1.0f - 0x1.8p-8f, 0.3f,     -3.14159274f,
                                   1e-20f,         0x1.fffp10f,       0x1p-130f};
    enum { DRAWS = 1 << 16 };
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        uint32_t bits;
        memcpy(&bits, &values[v], sizeof bits);
        const double share = (bits & 0xffff) * 0x1p-16;
        const uint16_t low = (uint16_t)(bits >> 16); /* nearer to zero */
        int64_t away = 0;
        for (int64_t i = 0; i < DRAWS; i++) {
            const uint16_t rounded = snug_f32_to_bf16_stochastic(values[v], snug_rounding_bits(42, 7, 3, i));
            assert_true(rounded == low || rounded == low + 1);
            away += rounded != low;
        }
        const double deviation = fabs((double)away - share * DRAWS);
        if (deviation > 5 * sqrt(DRAWS * share * (1 - share)))
            fail_msg("%g goes away from zero %d times of %d, expected %g", (double)values[v], (int)away, (int)DRAWS,
                     share * DRAWS);
    }
}

TEST(test_rounding_keeps_what_bf16_has) {
    for (uint32_t half = 0; half < 0x10000; half++) {
        const float value = snug_bf16_to_f32((uint16_t)half);
        const uint16_t rounded = snug_f32_to_bf16_stochastic(value, 0xffff);
        if (isnan(value))
            assert_true(isnan(snug_bf16_to_f32(rounded)));
        else
            assert_int_equal(rounded, half);
    }
}

/* Bits of different places do not go together: each pair of bits agrees about half the time. */
TEST(test_rounding_bits_differ) {
    enum { DRAWS = 4096 };
    int64_t agree[4] = {0};
    for (int64_t i = 0; i < DRAWS; i++) {
        const uint32_t bits = snug_rounding_bits(42, 7, 3, i);
        const uint32_t others[4] = {snug_rounding_bits(42, 7, 3, i + 1), snug_rounding_bits(42, 8, 3, i),
                                    snug_rounding_bits(42, 7, 4, i), snug_rounding_bits(43, 7, 3, i)};
        assert_true(bits < 0x10000);
        for (int k = 0; k < 4; k++) agree[k] += 16 - __builtin_popcount(bits ^ others[k]);
    }
    for (int k = 0; k < 4; k++) assert_true(fabs((double)agree[k] - 8.0 * DRAWS) < 5 * sqrt(16.0 * DRAWS) / 2);
}

/* Steps of 1/64 of a unit in the last place of a bf16 weight: to nearest they would be lost, on average none is. */
static void run_small_steps(const struct snug_backend *backend) {
    enum { N = 2000, SMALL_STEPS = 32 };
    struct ops f;
    ops_open(&f, &shape, SNUG_F32);
    struct update_case update = {.segments = 1};
    assert_int_equal(snug_optimizer_parse(f.ctx, "sgd", NULL, 0, 0, 0, 0, &f.optimizer), SNUG_OK);
    update.optimizer = f.optimizer;
    int32_t p = ops_tensor(&f, SNUG_BF16, FIXED, N / 100, 100), g = ops_tensor(&f, SNUG_F32, FIXED, N / 100, 100);
    const struct snug_op op = ops_update(&f, &update, p, g, -1);
    ops_fill(&f, p, 1.5);
    ops_fill(&f, g, -1);
    f.run.learning_rate = 0;
    ops_run(&f, backend, &op, 1);
    for (int64_t i = 0; i < N; i++) assert_true(ops_get(&f, f.arena, p, i) == 1.5);
    f.run.learning_rate = 0x1p-13f;
    for (f.run.step = 0; f.run.step < SMALL_STEPS; f.run.step++) ops_run(&f, backend, &op, 2);
    double mean = 0;
    for (int64_t i = 0; i < N; i++) mean += ops_get(&f, f.arena, p, i) / N;
    /* A step's rounding is up by 2^-7 with probability 1/64. */
    const double expected = 1.5 + SMALL_STEPS * 0x1p-13, deviation = 0x1p-7 * sqrt(SMALL_STEPS / 64.0 / N);
    if (fabs(mean - expected) > 5 * deviation)
        fail_msg("%s: mean %.9g, expected %.9g within %.3g", backend->name, mean, expected, 5 * deviation);
    assert_true(mean > 1.5);
    ops_close(&f);
}

TEST(test_small_steps_count) {
    run_small_steps(snug_backend_reference());
    run_small_steps(snug_backend_cpu());
}

static int set_up(void **state) { return snug_context_create((snug_context **)state) != SNUG_OK; }

static int tear_down(void **state) {
    snug_context_destroy(*state);
    return 0;
}

TEST_MAIN(NULL, NULL)
