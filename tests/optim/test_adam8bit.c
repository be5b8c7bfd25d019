/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit AdamW compared with bitsandbytes' GPU kernel (tools/golden/adam8bit.py): the quantization maps bit for bit;
 * after 1, 10 and 100 steps at least 99.9 % of the codes, the others one apart, and the parameters. On every
 * instruction set, what each code is read as, and the code of each value around the middle of two.
 */
#include "io/safetensors.h"
#include "ops.h"
#include "optim/quantization_map.h"

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
    assert_int_equal(snug_safetensors_open(golden->ops.ctx, NULL, "tests/golden/adam8bit.safetensors", &golden->file),
                     SNUG_OK);
}

static void close_golden(struct golden *golden) {
    snug_safetensors_close(&golden->file);
    ops_close(&golden->ops);
}

static float *stored(struct golden *golden, const char *name, int64_t count) {
    const struct snug_stored_tensor *tensor = snug_safetensors_find(&golden->file, name);
    if (!tensor || tensor->count != count) fail_msg("%s is missing in the file, or has another shape", name);
    float *values = ops_array((size_t)count, sizeof *values);
    assert_int_equal(snug_safetensors_read(golden->ops.ctx, &golden->file, tensor, 0, count, values), SNUG_OK);
    return values;
}

TEST(test_maps) {
    struct golden golden;
    open_golden(&golden);
    for (int has_sign = 0; has_sign < 2; has_sign++) {
        /* the golden file's names of the two maps */
        float map[SNUG_CODES], *expected = stored(&golden, has_sign ? "signed_book" : "unsigned_book", SNUG_CODES);
        snug_quantization_map(has_sign, map);
        assert_memory_equal(map, expected, sizeof map);
        free(expected);
    }
    close_golden(&golden);
}

static float uniform(uint32_t word) { return (float)(((int64_t)word - (1LL << 31)) >> 8) * 0x1p-23f; }

/* As gradient() in the tool. */
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

/* Mean error of the parameters of all tensors after 1, 10 and 100 steps: absolute, relative above 1, since an element
   moves by m / eps where the code of v is 0, here by up to 2,000. */
struct errors {
    double sum[3];
    int64_t count[3];
};

static void compare(struct golden *golden, int tensor, int step, const char *who, double *sum) {
    static const char *const names[] = {"p", "state1", "state2", "absmax1", "absmax2"};
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "%d.%d.%s", tensor, step, names[i]);
        const int64_t count = ops_count(&golden->ops, golden->out[i]);
        float *expected = stored(golden, name, count);
        int64_t other = 0;
        double off = 0;
        for (int64_t e = 0; e < count; e++) {
            const double want = expected[e], got = ops_get(&golden->ops, golden->ops.arena, golden->out[i], e);
            if ((i == 1 || i == 2) && fabs(want - got) > 1)
                fail_msg("%s: %s: code %ld is %g, expected %g", who, name, (long)e, got, want);
            other += want != got;
            off += fabs(want - got) / fmax(fabs(want), i < 3 ? 1 : 1e-30);
        }
        if (i == 0) *sum += off;
        if ((i == 1 || i == 2) && 1000 * other > count)
            fail_msg("%s: %s: %ld of %ld codes differ", who, name, (long)other, (long)count);
        if (i > 2 && !(off / (double)count <= 1e-4)) fail_msg("%s: %s is %g off", who, name, off / (double)count);
        free(expected);
    }
}

/* A parameter of n elements and its states, all 0, and its update. */
static struct snug_op open_update(struct golden *golden, const struct snug_backend *backend, int64_t n) {
    open_golden(golden);
    struct ops *f = &golden->ops;
    const int64_t blocks = (n + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
    golden->g = ops_tensor(f, SNUG_F32, SNUG_EXTENT_FIXED, 1, n);
    golden->out[0] = ops_tensor(f, SNUG_F32, SNUG_EXTENT_FIXED, 1, n);
    ops_fill(f, golden->out[0], 0);
    for (int i = 1; i < 5; i++) {
        golden->out[i] = ops_tensor(f, i < 3 ? SNUG_U8 : SNUG_F32, SNUG_EXTENT_FIXED, 1, i < 3 ? n : blocks);
        ops_fill(f, golden->out[i], 0);
    }
    f->optimizer = (struct snug_optimizer){.info = &snug_optimizer_adam_8bit,
                                           .decoupled = true,
                                           .beta1 = 0.9,
                                           .beta2 = 0.999,
                                           .epsilon = 1e-8,
                                           .weight_decay = 0.01};
    f->run.learning_rate = 1e-3f;
    const int32_t *out = golden->out;
    const struct snug_op op = {.kind = SNUG_OP_ADAM_8BIT,
                               .update = {.g = golden->g,
                                          .weight = out[0],
                                          .states[0] = out[1],
                                          .states[1] = out[2],
                                          .states[2] = out[3],
                                          .states[3] = out[4],
                                          .segments = 1}};
    ops_add(f, op);
    assert_int_equal(backend->open(f->ctx, &f->program, 1, &f->run.backend_state), SNUG_OK);
    return op;
}

static void update(struct golden *golden, const struct snug_backend *backend, const struct snug_op *op) {
    assert_int_equal(backend->ops[op->kind](&golden->ops.run, op), SNUG_OK);
}

static void close_update(struct golden *golden, const struct snug_backend *backend) {
    backend->close(golden->ops.run.backend_state);
    close_golden(golden);
}

static void run_steps(const struct snug_backend *backend, int tensor, const char *who, struct errors *errors) {
    struct golden golden;
    struct snug_op op = open_update(&golden, backend, sizes[tensor]);
    struct ops *f = &golden.ops;
    op.update.decay = tensor < 2;
    for (int64_t i = 0; i < sizes[tensor]; i++)
        ops_set(f, golden.out[0], i, uniform(ops_word((uint32_t)tensor, (uint64_t)i)));
    for (int step = 1, kept = 0; step <= STEPS; step++) {
        f->run.step = step - 1;
        set_gradient(&golden, tensor, step);
        update(&golden, backend, &op);
        if (step != 1 && step != 10 && step != 100) continue;
        compare(&golden, tensor, step, who, &errors->sum[kept]);
        errors->count[kept++] += sizes[tensor];
    }
    close_update(&golden, backend);
}

static void check_steps(const struct snug_backend *backend, const char *who) {
    struct errors errors = {0};
    for (int tensor = 0; tensor < TENSORS; tensor++) run_steps(backend, tensor, who, &errors);
    for (int i = 0; i < 3; i++)
        if (!(errors.sum[i] <= 1e-6 * (double)errors.count[i]))
            fail_msg("%s: parameters are %g off", who, errors.sum[i] / (double)errors.count[i]);
}

static const struct snug_backend *fast_backend(int i, const char **name) {
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    *name = names[i];
    return snug_backend_cpu_isa(names[i]);
}
enum { FAST = 4 };

TEST(test_steps) {
    check_steps(snug_backend_reference(), "reference");
    for (int i = 0; i < FAST; i++) {
        const char *name;
        const struct snug_backend *backend = fast_backend(i, &name);
        if (backend) check_steps(backend, name);
    }
}

/* With betas of 0.5, states of 1 next to those under test, and no gradient, a parameter changes by the value of its
   code, or by the reciprocal of its root, times a step that code 255 shows. */
static void read_codes(const struct snug_backend *backend, const char *name, bool has_sign) {
    struct golden golden;
    const struct snug_op op = open_update(&golden, backend, SNUG_CODES);
    struct ops *f = &golden.ops;
    const float *p = snug_run_data(&f->run, golden.out[0]);
    float map[SNUG_CODES];
    snug_quantization_map(has_sign, map);
    f->optimizer.beta1 = f->optimizer.beta2 = 0.5;
    f->optimizer.epsilon = 0;
    ops_fill(f, golden.g, 0);
    for (int i = 1; i < 3; i++)
        for (int code = 0; code < SNUG_CODES; code++)
            ops_set(f, golden.out[i], code, (i == 1) == has_sign ? code : SNUG_CODES - 1);
    ops_set(f, golden.out[3], 0, 2);
    ops_set(f, golden.out[4], 0, 2);
    update(&golden, backend, &op);
    for (int code = 0; code < SNUG_CODES; code++) {
        const float expected = p[SNUG_CODES - 1] * (has_sign ? map[code] : 1 / sqrtf(map[code]));
        if (p[code] != expected)
            fail_msg("%s: code %d of %s is decoded as another value", name, code, has_sign ? "m" : "v");
    }
    close_update(&golden, backend);
}

TEST(test_reading) {
    for (int i = 0; i < FAST; i++) {
        const char *name;
        const struct snug_backend *backend = fast_backend(i, &name);
        for (int has_sign = 0; backend && has_sign < 2; has_sign++) read_codes(backend, name, has_sign);
    }
}

/* With betas of 0, m is the gradient and v its square; a gradient of 1 in each block keeps the absmax at 1. */
static void write_codes(const struct snug_backend *backend, const char *name, bool has_sign) {
    enum { AROUND = 4, EACH = 2 * AROUND + 1, VALUES = (SNUG_CODES - 1) * EACH };
    struct golden golden;
    const struct snug_op op = open_update(&golden, backend, VALUES / (SNUG_QUANTISED_BLOCK - 1) * SNUG_QUANTISED_BLOCK);
    struct ops *f = &golden.ops;
    float map[SNUG_CODES], *g = snug_run_data(&f->run, golden.g);
    snug_quantization_map(has_sign, map);
    f->optimizer.beta1 = f->optimizer.beta2 = 0;
    for (int i = 0, at = 0; i < VALUES; i++) {
        const float middle = snug_code_middle(map, i / EACH);
        float x = has_sign ? middle : sqrtf(middle);
        for (int k = i % EACH - AROUND; k; k -= k > 0 ? 1 : -1) x = nextafterf(x, k > 0 ? 2.0f : -2.0f);
        if (at % SNUG_QUANTISED_BLOCK == 0) g[at++] = 1;
        g[at++] = x;
    }
    update(&golden, backend, &op);
    for (int64_t i = 0; i < ops_count(f, golden.g); i++) {
        int expected = snug_nearest_code(map, has_sign ? g[i] : g[i] * g[i]);
        if (has_sign && g[i] < 0 && expected == SNUG_SIGNED_ZERO) expected--; /* a code of m keeps its sign */
        const int found = (int)ops_get(f, f->arena, golden.out[has_sign ? 1 : 2], i);
        if (found != expected) fail_msg("%s: %a gets code %d, not %d", name, (double)g[i], found, expected);
    }
    close_update(&golden, backend);
}

TEST(test_writing) {
    for (int i = 0; i < FAST; i++) {
        const char *name;
        const struct snug_backend *backend = fast_backend(i, &name);
        for (int has_sign = 0; backend && has_sign < 2; has_sign++) write_codes(backend, name, has_sign);
    }
}

TEST_MAIN(NULL, NULL)
