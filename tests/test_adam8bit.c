/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit AdamW against tools/golden_adam8bit.py: the code books bit for bit; after 1, 10 and 100 steps at least 99.9 %
 * of the codes, the others one apart, and the parameters.
 */
#include "io/safetensors.h"
#include "ops.h"
#include "optim/code_book.h"

enum { STEPS = 100, TENSORS = 4 };
static const int64_t sizes[TENSORS] = {4096, 5003, 700, 1};

struct golden {
    struct ops ops;
    struct snug_safetensors file;
    int32_t g, out[5]; /* p, codes of m and of v, absmax of m and of v */
};

static void open_golden(struct golden *golden) {
    static const struct ops_shape shape = {{1}, 1, 1, 1, 1, 1, 1, 1};
    ops_open(&golden->ops, &shape, SNUG_F32);
    assert_int_equal(snug_safetensors_open(golden->ops.ctx, "tests/golden/adam8bit.safetensors", &golden->file),
                     SNUG_OK);
}

static void close_golden(struct golden *golden) {
    snug_safetensors_close(&golden->file);
    ops_close(&golden->ops);
}

static float *stored(struct golden *golden, const char *name, int64_t count) {
    const struct snug_stored_tensor *tensor = snug_safetensors_find(&golden->file, name);
    if (!tensor || tensor->count != count) fail_msg("%s is not in the file as expected", name);
    float *values = ops_array((size_t)count, sizeof *values);
    assert_int_equal(snug_safetensors_read(golden->ops.ctx, &golden->file, tensor, 0, count, values), SNUG_OK);
    return values;
}

static void test_books(void **state) {
    (void)state;
    struct golden golden;
    open_golden(&golden);
    for (int has_sign = 0; has_sign < 2; has_sign++) {
        float book[SNUG_CODES], *expected = stored(&golden, has_sign ? "signed_book" : "unsigned_book", SNUG_CODES);
        snug_code_book(has_sign, book);
        assert_memory_equal(book, expected, sizeof book);
        free(expected);
    }
    close_golden(&golden);
}

static float uniform(uint32_t word) { return (float)(((int64_t)word - (1LL << 31)) >> 8) * 0x1p-23f; }

/* As gradient() of the tool. */
static void set_gradient(struct golden *golden, int tensor, int step) {
    static const float scales[] = {1e-8f, 1e-7f, 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1, 10};
    float *g = snug_run_data(&golden->ops.run, golden->g);
    for (int64_t i = 0; i < sizes[tensor]; i++) {
        const int64_t unit = tensor % 2 ? i : i / SNUG_QUANTISED_BLOCK;
        const uint32_t word = ops_word((uint32_t)(2000 + 10 * step + tensor), (uint64_t)i);
        const float scale = scales[ops_word((uint32_t)(1000 + tensor), (uint64_t)unit) % 10];
        g[i] = word % 3 == 0 ? 0 : scale * uniform(word);
    }
}

static void compare(struct golden *golden, int tensor, int step, const char *who) {
    static const char *const names[] = {"p", "state1", "state2", "absmax1", "absmax2"};
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "%d.%d.%s", tensor, step, names[i]);
        const int64_t count = ops_count(&golden->ops, golden->out[i]);
        float *expected = stored(golden, name, count);
        int64_t other = 0;
        double sum = 0;
        for (int64_t e = 0; e < count; e++) {
            const double want = expected[e], got = ops_get(&golden->ops, golden->ops.arena, golden->out[i], e);
            if ((i == 1 || i == 2) && fabs(want - got) > 1)
                fail_msg("%s: %s: code %ld is %g, expected %g", who, name, (long)e, got, want);
            other += want != got;
            sum += fabs(want - got) / fmax(fabs(want), i < 3 ? 1 : 1e-30); /* p moves by m / eps where v's code is 0 */
        }
        if (i == 0 && !(sum / (double)count <= 1e-6)) fail_msg("%s: %s is %g off", who, name, sum / (double)count);
        if ((i == 1 || i == 2) && 1000 * other > count)
            fail_msg("%s: %s: %ld of %ld codes differ", who, name, (long)other, (long)count);
        if (i > 2 && !(sum / (double)count <= 1e-4)) fail_msg("%s: %s is %g off", who, name, sum / (double)count);
        free(expected);
    }
}

static void run_steps(const struct snug_backend *backend, int tensor, const char *who) {
    struct golden golden;
    open_golden(&golden);
    struct ops *f = &golden.ops;
    const int64_t n = sizes[tensor], blocks = (n + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
    golden.g = ops_tensor(f, SNUG_F32, SNUG_EXTENT_FIXED, 1, n);
    golden.out[0] = ops_tensor(f, SNUG_F32, SNUG_EXTENT_FIXED, 1, n);
    for (int i = 1; i < 5; i++) {
        golden.out[i] = ops_tensor(f, i < 3 ? SNUG_U8 : SNUG_F32, SNUG_EXTENT_FIXED, 1, i < 3 ? n : blocks);
        ops_fill(f, golden.out[i], 0);
    }
    for (int64_t i = 0; i < n; i++) ops_set(f, golden.out[0], i, uniform(ops_word((uint32_t)tensor, (uint64_t)i)));
    f->optimizer = (struct snug_optimizer){
        .kind = SNUG_ADAM_8BIT, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
    f->run.learning_rate = 1e-3f;
    const struct snug_op op = {
        .kind = SNUG_OP_ADAM_8BIT,
        .in = SNUG_INPUTS(golden.g, -1),
        .out = SNUG_OUTPUTS(golden.out[0], -1, golden.out[1], golden.out[2], golden.out[3], golden.out[4]),
        .segments = 1,
        .decay = tensor < 2};
    assert_int_equal(backend->open(f->ctx, &f->program, 1, &f->run.backend_state), SNUG_OK);
    for (int step = 1; step <= STEPS; step++) {
        f->run.step = step - 1;
        set_gradient(&golden, tensor, step);
        assert_int_equal(backend->ops[op.kind](&f->run, &op), SNUG_OK);
        if (step == 1 || step == 10 || step == 100) compare(&golden, tensor, step, who);
    }
    backend->close(f->run.backend_state);
    close_golden(&golden);
}

static void test_steps(void **state) {
    (void)state;
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        run_steps(snug_backend_reference(), tensor, "reference");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const struct snug_backend *backend = snug_backend_cpu_isa(names[i]);
            if (backend) run_steps(backend, tensor, names[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_books), cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests_name("8-bit Adam", tests, NULL, NULL);
}
