/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation: the reference's gradients against finite differences; the cpu backend, in each instruction set that
 * this machine has, against the reference, with the same bits for any number of threads; inputs and the memory around
 * outputs untouched; what is added to and what is overwritten; empty batches.
 */
#include "ops_programs.h"
#include "ops_updates.h"
#include "sanitized.h"

#define SMALL                                                                                                          \
    { {1, 2, 17, 64, 65, 130}, 24, 3, 50, 2, 37, 5, 40 }
static const struct ops_shape small = SMALL;
static const struct ops_shape differentiated = {{1, 2, 17, 65}, 24, 3, 50, 2, 37, 5, 20};

static const struct ops_shape shapes[] = {
    SMALL,
    {{3, 1, 129}, 130, 2, 61, 3, 50, 2, 3},                /* d = 65 */
    {{63, 64, 33}, 128, 2, 40, 2, 64, 33, 70},             /* d = 64 */
    {{100, 5}, 80, 2, 40, 2, 16, 1, 11},                   /* d = 40 */
    {{31, 66}, 256, 2, 40, 1, 5, 3, 2},                    /* d = 128 */
    {{48, 19}, 60, 3, 40, 2, 1, 7, 9},                     /* d = 20 */
    {{5}, 8, 1, 10, 2, 3, 2, 0},                           /* no head rows */
    {{0}, 24, 3, 10, 2, 3, 2, 0},                          /* no tokens */
    {{260, 1, 128, 59}, 384, 12, 3000, 2, 576, 3000, 170}, /* tiles and tails */
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/*
 * Tolerances in units of the last place. fp32: 2^-23 of |value| + the tensor's root mean square; sums of n terms in
 * fp32 are off by about sqrt(n) halves of it, exp and erf by a few. bf16: on top of that, 2^-7 of |value|, since two
 * values that are almost the same may round to neighbours; 0 where every bit is prescribed.
 */
struct op_test {
    const char *name;
    void (*build)(struct ops *f, int variant);
    int variants;
    double fp32, bf16;
};

/* No default: an operation without a test does not compile (-Wswitch). */
static struct op_test test_of(enum snug_op_kind kind) {
    switch (kind) {
    case SNUG_OP_EMBED: return (struct op_test){"EMBED", build_embed, 3, 16, 1};
    case SNUG_OP_LINEAR: return (struct op_test){"LINEAR", build_linear, 6, 64, 1};
    case SNUG_OP_ATTENTION: return (struct op_test){"ATTENTION", build_attention, 2, 32, 1};
    case SNUG_OP_RESIDUAL_NORM: return (struct op_test){"RESIDUAL_NORM", build_residual_norm, 5, 16, 1};
    case SNUG_OP_NORM: return (struct op_test){"NORM", build_norm, 3, 16, 1};
    case SNUG_OP_ACTIVATION: return (struct op_test){"ACTIVATION", build_activation, 20, 8, 1};
    case SNUG_OP_DROPOUT: return (struct op_test){"DROPOUT", build_dropout, 3, 1, 1};
    case SNUG_OP_GATHER: return (struct op_test){"GATHER", build_gather, 3, 0, 0};
    case SNUG_OP_LOSS: return (struct op_test){"LOSS", build_loss, 6, 32, 1};
    case SNUG_OP_FILL: return (struct op_test){"FILL", build_gather, 1, 0, 0};
    case SNUG_OP_EMBED_BACKWARD: return (struct op_test){"EMBED_BACKWARD", build_embed, 4, 64, 1};
    case SNUG_OP_LINEAR_DX: return (struct op_test){"LINEAR_DX", build_linear, 6, 64, 1};
    case SNUG_OP_LINEAR_DW: return (struct op_test){"LINEAR_DW", build_linear, 3, 64, 1};
    case SNUG_OP_ATTENTION_BACKWARD: return (struct op_test){"ATTENTION_BACKWARD", build_attention, 2, 64, 1};
    case SNUG_OP_NORM_BACKWARD: return (struct op_test){"NORM_BACKWARD", build_residual_norm, 4, 32, 2};
    case SNUG_OP_ACTIVATION_BACKWARD: return (struct op_test){"ACTIVATION_BACKWARD", build_activation, 20, 8, 1};
    case SNUG_OP_GATHER_BACKWARD: return (struct op_test){"GATHER_BACKWARD", build_gather, 3, 1, 1};
    case SNUG_OP_SQUARED_NORM: return (struct op_test){"SQUARED_NORM", build_optimizer, 3, 2, 0};
    case SNUG_OP_CLIP: return (struct op_test){"CLIP", build_optimizer, 3, 2, 0};
    case SNUG_OP_ADAM: return (struct op_test){"ADAM", build_adam, ADAM_VARIANTS, 8, 1};
    case SNUG_OP_ADAM_ROWS: return (struct op_test){"ADAM_ROWS", build_rows, 2, 8, 1};
    case SNUG_OP_CATCH_UP: return (struct op_test){"CATCH_UP", build_rows, 2, 64, 1};
    case SNUG_OP_SETTLE: return (struct op_test){"SETTLE", build_rows, 2, 64, 1};
    case SNUG_OP_ROWS_BEGIN: return (struct op_test){"ROWS_BEGIN", build_rows, 2, 0, 0};
    case SNUG_OP_ADAM_8BIT: return (struct op_test){"ADAM_8BIT", build_adam_8bit, 3, 8, 1};
    case SNUG_OP_SGD: return (struct op_test){"SGD", build_sgd, SGD_VARIANTS, 8, 1};
    case SNUG_OP_ADAFACTOR: return (struct op_test){"ADAFACTOR", build_adafactor, ADAFACTOR_VARIANTS, 16, 1};
    case SNUG_OP_ADAGRAD: return (struct op_test){"ADAGRAD", build_adagrad, ADAGRAD_VARIANTS, 8, 1};
    case SNUG_OP_RMSPROP: return (struct op_test){"RMSPROP", build_rmsprop, RMSPROP_VARIANTS, 16, 1};
    case SNUG_OP_LION: return (struct op_test){"LION", build_lion, LION_VARIANTS, 8, 1};
    case SNUG_OP_CAST: return (struct op_test){"CAST", build_cast, 1, 0, 0};
    case SNUG_OP_FETCH: /* one for every backend, through a spool: tests/test_offload.c */
    case SNUG_OP_STORE:
    case SNUG_OP_WAIT: return (struct op_test){"copies", NULL, 0, 0, 0};
    case SNUG_OP_RESCALE: return (struct op_test){"not on the CPU, which has no fp16", NULL, 0, 0, 0};
    case SNUG_OP_COUNT: break;
    }
    fail_msg("operation %d is not in the enum", (int)kind);
    return (struct op_test){0};
}

/* ---- the cpu backend against the reference --------------------------------------------------------------------- */

/* Whether an output's old value counts. */
static bool keeps(const struct ops *f, const struct snug_op *op, int output) {
    bool adds = !snug_run_overwrites(&f->run, op);
    switch (op->kind) {
    case SNUG_OP_EMBED_BACKWARD: /* with an index, rows of g that are not used stay */
        return adds || (op->out[5] >= 0 && (output == 0 || output == 5));
    case SNUG_OP_LINEAR_DW: return adds;
    case SNUG_OP_NORM_BACKWARD: return adds && output >= 2;
    case SNUG_OP_LINEAR_DX: return op->accumulate;
    case SNUG_OP_LOSS: return output == 0 && f->run.chunk > 0;
    case SNUG_OP_GATHER_BACKWARD:
    case SNUG_OP_SQUARED_NORM:
    case SNUG_OP_ADAM_ROWS:
    case SNUG_OP_CATCH_UP:
    case SNUG_OP_SETTLE: return true; /* other rows and slots stay */
    default: return snug_is_update(op->kind) && output != 1;
    }
}

static bool among(int32_t tensor, const int32_t *list, int count) {
    for (int i = 0; i < count; i++)
        if (list[i] == tensor) return true;
    return false;
}

/* Fills what is to be overwritten with NaNs. */
static void spoil_outputs(struct ops *f, const struct snug_op *op) {
    for (int i = 0; i < SNUG_OP_OUTPUTS; i++) {
        int32_t out = op->out[i];
        if (out < 0 || keeps(f, op, i) || among(out, op->in, SNUG_OP_INPUTS)) continue;
        memset(f->arena + f->tensors[out].offset, 0xFF, ops_live(f, out));
    }
}

static void check_untouched(const struct ops *f, const struct snug_op *op, const uint8_t *before) {
    for (int32_t t = 0; t < (int32_t)f->program.tensor_count; t++) {
        const struct snug_tensor *tensor = &f->tensors[t];
        int64_t end = tensor->offset + tensor->bytes;
        for (int64_t i = end; i < end + OPS_GAP; i++)
            if (f->arena[i] != OPS_GAP_BYTE) fail_msg("byte %d behind tensor %d was written", (int)(i - end), (int)t);
        bool destroyed = op->kind == SNUG_OP_EMBED_BACKWARD && t == op->in[0];
        if (destroyed || among(t, op->out, SNUG_OP_OUTPUTS)) continue;
        if (memcmp(f->arena + tensor->offset, before + tensor->offset, ops_live(f, t)) != 0)
            fail_msg("tensor %d is no output, but was changed", (int)t);
    }
}

static void compare(const struct ops *f, const struct snug_op *op, const uint8_t *expected, const struct op_test *test,
                    const char *what) {
    for (int output = 0; output < SNUG_OP_OUTPUTS; output++) {
        int32_t t = op->out[output];
        if (t < 0) continue;
        /* In bf16 two good values of an s, or of the ds in dy's place, may round apart before they are read again. Only
           NORM's own test, and that of recomputation, are sharp there. */
        bool sum = (op->kind == SNUG_OP_EMBED || op->kind == SNUG_OP_RESIDUAL_NORM) && output == 1;
        bool rounded = f->program.compute == SNUG_BF16 && (sum || (op->kind == SNUG_OP_EMBED_BACKWARD && output < 3));
        bool bf16 = f->tensors[t].dtype == SNUG_BF16;
        double rms = 0;
        for (int64_t i = 0; i < ops_count(f, t); i++) {
            double value = ops_get(f, expected, t, i);
            rms += isfinite(value) ? value * value / (double)ops_count(f, t) : 0;
        }
        rms = sqrt(rms);
        if (f->tensors[t].dtype == SNUG_U8) {
            ops_compare_codes(f, expected, f->arena, t, test->name);
            continue;
        }
        for (int64_t i = 0; i < ops_count(f, t); i++) {
            double want = ops_get(f, expected, t, i), got = ops_get(f, f->arena, t, i), size = fabs(want) + rms;
            double bound = test->fp32 * 0x1p-23 * size + (bf16 ? test->bf16 * 0x1p-7 * fabs(want) : 0);
            if (rounded) bound = 0x1p-6 * size;
            if (want == got || fabs(want - got) <= bound) continue;
            fail_msg("%s %s: output %d, element %ld of %ld columns: %.9g, expected %.9g, within %.3g", test->name, what,
                     output, (long)i, (long)snug_run_cols(&f->run, t), got, want, bound);
        }
    }
}

static uint8_t *copy_of(const struct ops *f) {
    uint8_t *copy = ops_array(f->bytes, 1);
    return memcpy(copy, f->arena, f->bytes);
}

/* Runs op on every instruction set and number of threads, from the same arena. */
static void check_cpu(struct ops *f, const struct snug_op *op, const struct op_test *test, const uint8_t *before,
                      const uint8_t *expected) {
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    for (size_t isa = 0; isa < sizeof names / sizeof *names; isa++) {
        const struct snug_backend *backend = snug_backend_cpu_isa(names[isa]);
        if (!backend) continue;
        uint8_t *single = NULL;
        for (int threads = 1; threads <= 3; threads += 1 + SANITIZED) {
            memcpy(f->arena, before, f->bytes);
            ops_run(f, backend, op, threads);
            check_untouched(f, op, before);
            if (threads == 1) {
                compare(f, op, expected, test, names[isa]);
                single = copy_of(f);
            }
            for (int i = 0; i < SNUG_OP_OUTPUTS; i++) {
                if (op->out[i] < 0) continue;
                int64_t offset = f->tensors[op->out[i]].offset;
                if (memcmp(f->arena + offset, single + offset, ops_live(f, op->out[i])) != 0)
                    fail_msg("%s %s: output %d differs between 1 and %d threads", test->name, names[isa], i, threads);
            }
        }
        free(single);
    }
}

static bool adds_to(const struct ops *f, const struct snug_op *op, int output) {
    const bool placed = op->kind == SNUG_OP_EMBED_BACKWARD && op->out[5] >= 0 && (output == 0 || output == 5);
    return keeps(f, op, output) && !placed;
}

/* Added to means: the old value plus what would have been written over it, unless rows have places of their own. */
static void check_added(const struct ops *f, const struct snug_op *op, const uint8_t *before,
                        const uint8_t *overwritten) {
    for (int i = 0; i < SNUG_OP_OUTPUTS; i++)
        for (int64_t e = 0; op->out[i] >= 0 && adds_to(f, op, i) && e < ops_count(f, op->out[i]); e++) {
            double old = ops_get(f, before, op->out[i], e), part = ops_get(f, overwritten, op->out[i], e);
            double sum = ops_get(f, f->arena, op->out[i], e);
            if (!(fabs(sum - (old + part)) <= 0x1p-22 * (fabs(old) + fabs(part))))
                fail_msg("output %d, element %ld: %.9g, expected %.9g + %.9g", i, (long)e, sum, old, part);
        }
}

static void check_op(struct ops *f, struct snug_op op, const struct op_test *test) {
    static const struct {
        bool first;
        int64_t micro_batch, chunk;
    } states[] = {{true, 0, 0}, {true, 1, 0}, {true, 0, 1}, {false, 0, 0}};
    uint8_t *start = copy_of(f), *overwritten = NULL;
    unsigned kept_first = 0;
    for (size_t s = 0; s < sizeof states / sizeof *states; s++) {
        unsigned kept = 0;
        op.first = states[s].first;
        f->run.micro_batch = states[s].micro_batch;
        f->run.chunk = states[s].chunk;
        for (int i = 0; i < SNUG_OP_OUTPUTS; i++) kept |= (unsigned)keeps(f, &op, i) << i;
        if (s == 0) kept_first = kept;
        if (s > 0 && (kept == kept_first || f->shape == &shapes[SHAPES - 1])) continue; /* the same again, or slow */

        memcpy(f->arena, start, f->bytes);
        spoil_outputs(f, &op);
        uint8_t *before = copy_of(f);
        ops_run(f, snug_backend_reference(), &op, 1);
        check_untouched(f, &op, before);
        uint8_t *expected = copy_of(f);
        if (s == 0) {
            overwritten = copy_of(f);
        } else {
            check_added(f, &op, before, overwritten);
        }
        check_cpu(f, &op, test, before, expected);
        free(before);
        free(expected);
    }
    memcpy(f->arena, overwritten, f->bytes); /* for the operations that follow */
    f->run.micro_batch = f->run.chunk = 0;
    free(start);
    free(overwritten);
}

/* Whether an operation of this kind reads what operation i writes. */
static bool feeds(const struct ops *f, size_t i, enum snug_op_kind kind) {
    for (size_t later = i + 1; later < f->program.op_count; later++)
        for (int in = 0; f->ops[later].kind == kind && in < SNUG_OP_INPUTS; in++)
            if (f->ops[later].in[in] >= 0 && among(f->ops[later].in[in], f->ops[i].out, SNUG_OP_OUTPUTS)) return true;
    return false;
}

static void test_agreement(void **state) {
    enum snug_op_kind kind = *(const enum snug_op_kind *)*state;
    struct op_test test = test_of(kind);
    for (size_t shape = 0; shape < SHAPES; shape++)
        for (enum snug_dtype dtype = SNUG_F32; dtype <= SNUG_BF16; dtype++)
            for (int variant = 0; variant < test.variants; variant++) {
                struct ops f;
                bool seen = false;
                ops_open(&f, &shapes[shape], dtype);
                test.build(&f, variant);
                for (size_t i = 0; i < f.program.op_count; i++) {
                    if (f.ops[i].kind == kind) {
                        check_op(&f, f.ops[i], &test);
                        seen = true;
                    } else if (feeds(&f, i, kind)) {
                        ops_run(&f, snug_backend_reference(), &f.ops[i], 1);
                    }
                }
                /* Some in-place variants, and NORM with dropout, have no backward. */
                assert_true(seen || variant > 0);
                ops_close(&f);
            }
}

/* ---- the reference against finite differences -------------------------------------------------------------------- */

/*
 * The derivative of sum(weights * y) along a direction of -1, 0 and 1, by the central difference of fourth order with
 * steps that are exact in fp32. Two errors, both independent from one element of y to the next: rounding, 2^-24 of each
 * y that changes at all, and as much for the s within a norm, is divided by the step; truncation, step^4 / 30 of a
 * fifth derivative, is below 2^-14 of the element's own derivative.
 */
static void check_direction(struct ops *f, int32_t x, const float *at, const double *direction, double analytic,
                            const double *weights, const char *what) {
    static const double multiples[4] = {1, -1, 2, -2}, step = 0x1p-5;
    int64_t count = ops_count(f, f->y);
    double *y[4], numeric = 0, rounding = 0, truncation = 0;
    for (int m = 0; m < 4; m++) {
        for (int64_t i = 0; i < ops_count(f, x); i++) ops_set(f, x, i, at[i] + multiples[m] * step * direction[i]);
        ops_run(f, snug_backend_reference(), &f->ops[0], 1);
        y[m] = ops_array((size_t)count, sizeof(double));
        for (int64_t i = 0; i < count; i++) y[m][i] = weights[i] * ops_get(f, f->arena, f->y, i);
    }
    for (int64_t i = 0; i < count; i++) {
        double derivative = (8 * (y[0][i] - y[1][i]) - (y[2][i] - y[3][i])) / (12 * step);
        numeric += derivative;
        truncation += derivative * derivative;
        rounding += y[0][i] == y[1][i] ? 0 : y[0][i] * y[0][i];
    }
    double bound = 4 * 0x1p-24 / step * sqrt(rounding) + 0x1p-14 * sqrt(truncation);
    if (!(fabs(numeric - analytic) <= bound))
        fail_msg("%s: gradient %.9g, by differences %.9g, within %.3g", what, analytic, numeric, bound);
    for (int m = 0; m < 4; m++) free(y[m]);
}

static void check_gradient(struct ops *f, int32_t x, int32_t dx, const double *weights, const char *what) {
    int64_t count = ops_count(f, x);
    float *at = ops_array((size_t)count, sizeof *at);
    double *direction = ops_array((size_t)count, sizeof *direction);
    uint8_t *gradients = copy_of(f); /* LOSS writes its gradient in every run */
    memcpy(at, f->arena + f->tensors[x].offset, (size_t)count * sizeof *at);
    for (uint32_t trial = 0; trial < 24; trial++) { /* 8 directions through all of x, then 16 single elements */
        double analytic = 0;
        for (int64_t i = 0; i < count; i++) {
            direction[i] = trial < 8 ? (int)(ops_word(50 + trial, (uint64_t)i) % 3) - 1 : 0;
            if (trial >= 8) direction[i] = i == ops_word(8, trial) % count;
            analytic += direction[i] * ops_get(f, gradients, dx, i);
        }
        check_direction(f, x, at, direction, analytic, weights, what);
    }
    memcpy(f->arena + f->tensors[x].offset, at, (size_t)count * sizeof *at);
    free(at);
    free(gradients);
    free(direction);
}

static void test_gradients(void **state) {
    (void)state;
    for (enum snug_op_kind kind = 0; kind < SNUG_OP_COUNT; kind++) {
        struct op_test test = test_of(kind);
        for (int variant = 0; variant < test.variants; variant++) {
            struct ops f;
            ops_open(&f, &differentiated, SNUG_F32);
            test.build(&f, variant);
            if (f.ops[0].kind == kind && f.pair_count) {
                double *weights = ops_array((size_t)ops_count(&f, f.y), sizeof *weights);
                for (int64_t i = 0; i < ops_count(&f, f.y); i++)
                    weights[i] = f.dy < 0 ? f.run.loss_scale : ops_get(&f, f.arena, f.dy, i);
                for (size_t i = 0; i < f.program.op_count; i++) {
                    f.ops[i].first = true;
                    spoil_outputs(&f, &f.ops[i]);
                    ops_run(&f, snug_backend_reference(), &f.ops[i], 1);
                }
                for (size_t i = 0; i < f.pair_count; i++) {
                    char what[64];
                    snprintf(what, sizeof what, "%s, variant %d, input %d", test.name, variant, (int)i);
                    check_gradient(&f, f.pairs[i].x, f.pairs[i].dx, weights, what);
                }
                free(weights);
            }
            ops_close(&f);
        }
    }
}

/* ---- what the operations say of each other ----------------------------------------------------------------------- */

static const struct snug_backend *backend_of(int number) {
    return number ? snug_backend_cpu() : snug_backend_reference();
}

/* NORM of a stored s gives y again, bit for bit: recomputation changes nothing. */
static void test_recomputation(void **state) {
    (void)state;
    for (int b = 0; b < 2; b++)
        for (enum snug_dtype dtype = SNUG_F32; dtype <= SNUG_BF16; dtype++)
            for (int family = 0; family < 2; family++) {
                struct ops f;
                ops_open(&f, &small, dtype);
                (family ? build_embed : build_residual_norm)(&f, 1);
                struct snug_op op = f.ops[0];
                int32_t s = op.out[0], y = op.out[1], again = ops_tensor(&f, dtype, T, 0, small.h);
                int32_t gamma = op.in[family ? 3 : 2], beta = op.in[family ? 4 : 3];
                struct snug_op norm = (struct snug_op){.kind = SNUG_OP_NORM,
                                                       .in = SNUG_INPUTS(s, gamma, beta),
                                                       .out = SNUG_OUTPUTS(again),
                                                       .p = family ? op.p : 0,
                                                       .site = op.site,
                                                       .eps = op.eps};
                ops_run(&f, backend_of(b), &op, 1);
                ops_run(&f, backend_of(b), &norm, 2);
                assert_memory_equal(f.arena + f.tensors[y].offset, f.arena + f.tensors[again].offset, ops_live(&f, y));
                ops_close(&f);
            }
}

/* Where dx is added to, the result is the old value plus what overwriting gives. */
static void test_accumulation(void **state) {
    (void)state;
    struct ops f;
    ops_open(&f, &small, SNUG_F32);
    build_linear(&f, 0);
    struct snug_op *dx = &f.ops[1];
    uint8_t *before = copy_of(&f);
    ops_run(&f, snug_backend_reference(), dx, 1);
    uint8_t *overwritten = copy_of(&f);
    memcpy(f.arena, before, f.bytes);
    dx->accumulate = true;
    ops_run(&f, snug_backend_reference(), dx, 1);
    check_added(&f, dx, before, overwritten);
    free(before);
    free(overwritten);
    ops_close(&f);

    ops_open(&f, &small, SNUG_F32); /* GATHER_BACKWARD always adds: twice is double */
    build_gather(&f, 0);
    int32_t out = f.ops[2].out[0];
    ops_run(&f, snug_backend_reference(), &f.ops[1], 1);
    ops_run(&f, snug_backend_reference(), &f.ops[2], 1);
    before = copy_of(&f);
    ops_run(&f, snug_backend_reference(), &f.ops[2], 1);
    for (int64_t i = 0; i < ops_count(&f, out); i++)
        assert_true(ops_get(&f, f.arena, out, i) == 2 * ops_get(&f, before, out, i));
    free(before);
    ops_close(&f);
}

/* ---- weights in bf16 ----------------------------------------------------------------------------------------------
 */

/* Products with BF16 weights have the bits of those with the widened weights, whatever is cut and wherever it lies. */
static void test_products_of_bf16_weights(void **state) {
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    static const struct ops_shape cases[] = {
        SMALL,
        {{257, 3}, 384, 12, 2100, 2, 1536, 3, 9}, /* rows in two tiles; an inner dimension in two parts backward */
        {{300, 1}, 2307, 1, 300, 2, 193, 3, 40},  /* the same forward */
        {{300}, 2304, 1, 300, 2, 193, 3, 40},     /* and where oneDNN minds the rows' distance */
        {{257}, 1024, 16, 193, 2, 2048, 3, 200},
    };
    (void)state;
    for (size_t shape = 0; shape < sizeof cases / sizeof *cases; shape++)
        for (int variant = 0; variant < 3; variant++)
            for (size_t isa = 0; isa < sizeof names / sizeof *names; isa++) {
                const struct snug_backend *backend = snug_backend_cpu_isa(names[isa]);
                struct ops halves, wide;
                if (!backend) continue;
                ops_open(&halves, &cases[shape], SNUG_F32);
                ops_open(&wide, &cases[shape], SNUG_F32);
                build_linear(&halves, 3 + variant);
                build_linear(&wide, variant);
                const int32_t w = wide.ops[0].in[1];
                assert_int_equal(halves.tensors[w].dtype, SNUG_BF16);
                for (int64_t i = 0; i < ops_count(&wide, w); i++)
                    ops_set(&wide, w, i, ops_get(&halves, halves.arena, w, i));
                for (int threads = 1; threads <= 3; threads += 1 + SANITIZED)
                    for (int op = 0; op < 2; op++) {
                        const int32_t out = wide.ops[op].out[0];
                        ops_randomize(&halves, out);
                        ops_randomize(&wide, out);
                        ops_run(&halves, backend, &halves.ops[op], threads);
                        ops_run(&wide, backend, &wide.ops[op], 1);
                        if (memcmp(halves.arena + halves.tensors[out].offset, wide.arena + wide.tensors[out].offset,
                                   ops_live(&wide, out)) != 0)
                            fail_msg("shape %d, variant %d, %s, %d threads: %s has other bits", (int)shape, variant,
                                     names[isa], threads, op ? "dx" : "y");
                    }
                ops_close(&halves);
                ops_close(&wide);
            }
}

/* An update that is exact in fp32, so that all that is left is its rounding: p - p / 512, by weight decay alone. Every
   backend rounds as philox.h says, bit for bit, and on average not at all. */
static void test_stochastic_rounding(void **state) {
    static const char *const names[] = {"reference", "v2", "v3", "v4", "generic"};
    static const struct ops_shape cases[] = {SMALL, {{1}, 997, 1, 3, 1, 601, 2, 1}, {{1}, 3, 1, 3, 1, 1, 2, 1}};
    (void)state;
    for (size_t shape = 0; shape < sizeof cases / sizeof *cases; shape++)
        for (size_t isa = 0; isa < sizeof names / sizeof *names; isa++) {
            const struct snug_backend *backend = isa ? snug_backend_cpu_isa(names[isa]) : snug_backend_reference();
            struct ops f;
            double up = 0, expected_up = 0;
            if (!backend) continue;
            ops_open(&f, &cases[shape], SNUG_F32);
            build_optimizer(&f, 3);
            const struct snug_op *adamw = &f.ops[2];
            const int32_t p = adamw->out[0];
            f.run.step = INT64_C(0x100000005);
            f.run.learning_rate = 0x1p-5f;
            f.optimizer.weight_decay = 0x1p-4;
            for (int i = 0; i < 2; i++) ops_fill(&f, adamw->out[2 + i], 0);
            ops_fill(&f, adamw->in[0], 0);
            ops_fill(&f, adamw->in[1], 1);
            const int64_t count = ops_count(&f, p);
            for (int64_t i = 0; i < count; i++) /* both signs, all significands */
                ops_set(&f, p, i, snug_bf16_to_f32((uint16_t)(0x3f00 | (ops_word(9, (uint64_t)i) & 0x80ff))));
            uint8_t *before = copy_of(&f);
            ops_run(&f, backend, adamw, 2);
            for (int64_t i = 0; i < count; i++) {
                const float exact = (float)(ops_get(&f, before, p, i) * (1 - 0x1p-9));
                const uint32_t random = snug_rounding_bits(f.run.seed, f.run.step, adamw->parameter, i);
                const float want = snug_bf16_to_f32(snug_f32_to_bf16_stochastic(exact, random));
                const double got = ops_get(&f, f.arena, p, i);
                if (got != want)
                    fail_msg("%s: element %ld of %ld: %g, expected %g", names[isa], (long)i, (long)count, got, want);
                uint32_t word;
                memcpy(&word, &exact, sizeof word);
                up += fabs(got) > fabsf(exact);
                expected_up += (word & 0xffff) * 0x1p-16;
            }
            /* A sum of independent 0s and 1s: five standard deviations. */
            if (!(fabs(up - expected_up) <= 5 * sqrt(0.25 * (double)count)))
                fail_msg("%g rounded up, expected %g", up, expected_up);
            free(before);
            ops_close(&f);
        }
}

typedef void update_end_fn(const struct snug_run *run, const struct snug_op *op, const float *p, int64_t first,
                           int64_t count);
#ifdef __x86_64__
update_end_fn snug_update_end_v2, snug_update_end_v3, snug_update_end_v4;
#else
update_end_fn snug_update_end_generic;
#endif

/* Updates that walk by themselves may store any piece of a parameter, of one larger than 2^35 elements too. */
static void test_rounding_of_pieces(void **state) {
    static const struct {
        const char *isa;
        update_end_fn *end;
    } backends[] = {
#ifdef __x86_64__
        {"v2", snug_update_end_v2},
        {"v3", snug_update_end_v3},
        {"v4", snug_update_end_v4},
#else
        {"generic", snug_update_end_generic},
#endif
    };
    enum { COUNT = 2500 };
    const int64_t starts[] = {0, 1, 7, 1021, ((int64_t)1 << 35) - 1003};
    (void)state;
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++)
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
            struct ops f;
            float values[COUNT];
            if (!snug_backend_cpu_isa(backends[b].isa)) continue;
            ops_open(&f, &small, SNUG_F32);
            const int32_t p = ops_source(&f, SNUG_BF16, FIXED, 1, COUNT + 1);
            const struct snug_op op = {.kind = SNUG_OP_ADAM, .out = SNUG_OUTPUTS(p), .parameter = 3};
            uint16_t *stored = snug_run_data(&f.run, p);
            for (int i = 0; i < COUNT; i++) { /* any bits: NaNs, infinities, what rounds to one, denormals */
                const uint32_t special = i % 3 == 0 ? 0x7f800000u : 0;
                const uint32_t bits = (ops_word(10, (uint64_t)i) | special) & (i % 6 ? UINT32_MAX : 0xff800000u);
                memcpy(&values[i], &bits, sizeof bits);
            }
            f.tensors[p].offset -= 2 * starts[s];
            stored[COUNT] = 0x1234;
            backends[b].end(&f.run, &op, values, starts[s], COUNT);
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(stored[i],
                                 snug_f32_to_bf16_stochastic(
                                     values[i], snug_rounding_bits(f.run.seed, f.run.step, 3, starts[s] + i)));
            assert_int_equal(stored[COUNT], 0x1234);
            ops_close(&f);
        }
}

static double run_activation(enum snug_activation activation, double u) {
    static const struct ops_shape one = {{1}, 1, 1, 1, 1, 1, 1, 0};
    struct ops f;
    ops_open(&f, &one, SNUG_F32);
    build_activation(&f, 2 * (int)activation);
    ops_fill(&f, f.ops[0].in[0], u);
    ops_run(&f, snug_backend_reference(), &f.ops[0], 1);
    double a = ops_get(&f, f.arena, f.ops[0].out[0], 0);
    ops_close(&f);
    return a;
}

/* The loss of logits 1, 2, 3 with the label or targets 0, 1, 0. */
static double run_loss(enum snug_loss_kind kind, int variant, int64_t classes, int32_t label) {
    const struct ops_shape one = {{1}, 1, 1, 1, 1, 1, classes, 1};
    struct ops f;
    ops_open(&f, &one, SNUG_F32);
    build_loss(&f, variant);
    assert_int_equal(f.ops[0].loss, kind);
    for (int c = 0; c < classes; c++) {
        ops_set(&f, f.ops[0].in[0], c, c + 1);
        f.batch.targets[c] = c == 1;
    }
    f.batch.labels[0] = label;
    ops_run(&f, snug_backend_reference(), &f.ops[0], 1);
    double loss = ops_get(&f, f.arena, f.ops[0].out[0], 0);
    ops_close(&f);
    return loss;
}

static void assert_near(double got, double want) {
    if (!(fabs(got - want) <= 4e-7 * fabs(want))) fail_msg("%.9g, expected %.9g", got, want);
}

/* What finite differences cannot see: the values themselves, here as torch 2 prints them. */
static void test_values(void **state) {
    (void)state;
    assert_near(run_activation(SNUG_GELU, 1), 0.8413447460685429);
    assert_near(run_activation(SNUG_GELU, -3), -0.004049694);
    assert_near(run_activation(SNUG_GELU_TANH, 1), 0.8411919906082768);
    assert_near(run_activation(SNUG_RELU, -1), 0);
    assert_near(run_activation(SNUG_SILU, 1), 0.7310585786300049);
    assert_near(run_activation(SNUG_TANH, 1), 0.7615941559557649);

    assert_near(run_loss(SNUG_CROSS_ENTROPY, 0, 3, 0), 2.4076059644443806);
    assert_near(run_loss(SNUG_CROSS_ENTROPY, 3, 3, 0), 2.3076059644443806); /* smoothing 0.1 */
    assert_near(run_loss(SNUG_CROSS_ENTROPY, 3, 3, SNUG_IGNORE_LABEL), 0);
    assert_near(run_loss(SNUG_BINARY_CROSS_ENTROPY, 1, 3, 0), 4.4887770416);
    assert_near(run_loss(SNUG_MEAN_SQUARED_ERROR, 2, 1, 0), 1);

    /* The first AdamW step moves by the learning rate against the gradient's sign, and decays. */
    struct ops f;
    ops_open(&f, &small, SNUG_F32);
    build_optimizer(&f, 2);
    const struct snug_op *adamw = &f.ops[2];
    ops_fill(&f, adamw->in[0], -0.5);
    ops_fill(&f, adamw->in[1], 1);
    ops_fill(&f, adamw->out[0], 2);
    ops_fill(&f, adamw->out[2], 0);
    ops_fill(&f, adamw->out[3], 0);
    f.ops[2].decay = true;
    ops_run(&f, snug_backend_reference(), adamw, 1);
    assert_near(ops_get(&f, f.arena, adamw->out[0], 0), 2 * (1 - 0.01 * 0.1) + 0.01);
    assert_near(ops_get(&f, f.arena, adamw->out[2], 0), -0.5 * (1 - 0.9));
    assert_near(ops_get(&f, f.arena, adamw->out[3], 0), 0.25 * (1 - 0.999));
    ops_close(&f);
}

int main(void) {
    static enum snug_op_kind kinds[SNUG_OP_COUNT];
    struct CMUnitTest tests[SNUG_OP_COUNT + 7] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_recomputation),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_products_of_bf16_weights),
        cmocka_unit_test(test_stochastic_rounding),
        cmocka_unit_test(test_rounding_of_pieces),
        cmocka_unit_test(test_values),
    };
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        kinds[kind] = (enum snug_op_kind)kind;
        tests[7 + kind] = (struct CMUnitTest){
            .name = test_of(kinds[kind]).name, .test_func = test_agreement, .initial_state = &kinds[kind]};
    }
    return cmocka_run_group_tests_name("operations", tests, NULL, NULL);
}
