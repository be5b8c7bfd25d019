/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation of the CUDA backend against the reference: fp32, bf16 and fp16, ragged shapes, added to and
 * overwritten, inputs and the memory around outputs untouched, the same bits twice. Without a GPU it is skipped.
 * test_cuda_ops [OPERATION]
 */
#include "ops_programs.h"
#include "ops_updates.h"

static const struct ops_shape shapes[] = {
    {{1, 2, 17, 64, 65, 130}, 24, 3, 50, 2, 37, 5, 40},
    {{3, 1, 129}, 130, 2, 61, 3, 50, 2, 3},                /* d = 65 */
    {{63, 64, 33}, 128, 2, 40, 2, 64, 33, 70},             /* d = 64 */
    {{300, 5, 129}, 512, 8, 40, 2, 128, 3, 20},            /* d = 64, several tiles */
    {{100, 5}, 80, 2, 40, 2, 16, 1, 11},                   /* d = 40 */
    {{31, 66}, 256, 2, 40, 1, 5, 3, 2},                    /* d = 128 */
    {{48, 19}, 60, 3, 40, 2, 1, 7, 9},                     /* d = 20 */
    {{511, 65, 256}, 64, 1, 40, 2, 16, 2, 5},              /* d = 64, ends of tiles of keys and of queries */
    {{1, 2, 32, 31}, 64, 1, 40, 2, 16, 2, 5},              /* d = 64, short: apart, since errors are held against all */
    {{260}, 256, 4, 40, 2, 16, 2, 5},                      /* d = 64, blocks of most queries, in the emulator */
    {{129, 64, 200}, 128, 1, 40, 2, 16, 2, 5},             /* d = 128, keys in several blocks */
    {{127, 1, 65, 128, 192}, 128, 2, 40, 2, 16, 2, 5},     /* d = 64, ends of tiles of 64 and of 128 */
    {{5}, 8, 1, 10, 2, 3, 2, 0},                           /* no head rows */
    {{0}, 24, 3, 10, 2, 3, 2, 0},                          /* no tokens */
    {{512, 1, 128, 59}, 384, 12, 3000, 2, 576, 3000, 170}, /* MiniLM's, d = 32 */
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/*
 * Tolerances: fp32 in units of 2^-23 of |value| + the tensor's root mean square, as in test_ops.c, wider where sums of
 * many terms are taken in another order; bf16 in units of 2^-8 of the same, the rounding of one operand: tensor cores
 * take attention's probabilities in bf16, and its backward takes do . o, where o was rounded, which shows most in short
 * sequences. The whole tensor's relative error must be below 2^-8 in any case where that is allowed. fp16 as bf16, in
 * units of 2^-11; and so is attention's fp32 with --tf32, which rounds operands to as many bits.
 */
struct op_test {
    const char *name;
    void (*build)(struct ops *f, int variant);
    int variants;
    double fp32, low;
};

/* The steps without loss scaling, then those with it. */
static void build_scaled(struct ops *f, int variant) {
    if (variant < 3)
        build_optimizer(f, variant);
    else
        build_scaler(f, variant - 3);
}

/* 6: as 0, in a program that scales its loss. */
static void build_scaled_loss(struct ops *f, int variant) {
    build_loss(f, variant % 6);
    if (variant < 6) return;
    const int32_t scaler = ops_tensor(f, SNUG_F32, FIXED, 1, SNUG_SCALE_VALUES);
    ops_fill(f, scaler, 0);
    ops_set(f, scaler, SNUG_SCALE, 256);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_RESCALE, .in = SNUG_INPUTS(scaler), .out = SNUG_OUTPUTS(scaler)});
}

/* No default: an operation without a test does not compile (-Wswitch). */
static struct op_test test_of(enum snug_op_kind kind) {
    switch (kind) {
    case SNUG_OP_EMBED: return (struct op_test){"EMBED", build_embed, 2, 32, 2};
    case SNUG_OP_LINEAR: return (struct op_test){"LINEAR", build_linear, 6, 64, 2};
    case SNUG_OP_ATTENTION: return (struct op_test){"ATTENTION", build_attention, 3, 64, 6};
    case SNUG_OP_RESIDUAL_NORM: return (struct op_test){"RESIDUAL_NORM", build_residual_norm, 5, 32, 2};
    case SNUG_OP_NORM: return (struct op_test){"NORM", build_norm, 3, 32, 2};
    case SNUG_OP_ACTIVATION: return (struct op_test){"ACTIVATION", build_activation, 20, 16, 2};
    case SNUG_OP_DROPOUT: return (struct op_test){"DROPOUT", build_dropout, 3, 1, 2};
    case SNUG_OP_GATHER: return (struct op_test){"GATHER", build_gather, 3, 0, 0};
    case SNUG_OP_LOSS: return (struct op_test){"LOSS", build_scaled_loss, 7, 64, 2};
    case SNUG_OP_FILL: return (struct op_test){"FILL", build_gather, 1, 0, 0};
    case SNUG_OP_EMBED_BACKWARD: return (struct op_test){"EMBED_BACKWARD", build_embed, 2, 64, 4};
    case SNUG_OP_LINEAR_DX: return (struct op_test){"LINEAR_DX", build_linear, 6, 64, 2};
    case SNUG_OP_LINEAR_DW: return (struct op_test){"LINEAR_DW", build_linear, 3, 64, 2};
    case SNUG_OP_ATTENTION_BACKWARD: return (struct op_test){"ATTENTION_BACKWARD", build_attention, 2, 128, 12};
    case SNUG_OP_NORM_BACKWARD: return (struct op_test){"NORM_BACKWARD", build_residual_norm, 4, 64, 4};
    case SNUG_OP_ACTIVATION_BACKWARD: return (struct op_test){"ACTIVATION_BACKWARD", build_activation, 20, 16, 2};
    case SNUG_OP_GATHER_BACKWARD: return (struct op_test){"GATHER_BACKWARD", build_gather, 3, 1, 2};
    case SNUG_OP_SQUARED_NORM: return (struct op_test){"SQUARED_NORM", build_optimizer, 3, 2, 0};
    case SNUG_OP_CLIP: return (struct op_test){"CLIP", build_scaled, 6, 2, 0};
    case SNUG_OP_RESCALE: return (struct op_test){"RESCALE", build_scaler, 3, 0, 0};
    case SNUG_OP_ADAM: return (struct op_test){"ADAM", build_scaled, 6, 16, 2};
    case SNUG_OP_ADAM_8BIT: return (struct op_test){"ADAM_8BIT", build_adam_8bit, 3, 16, 2};
    case SNUG_OP_ADAFACTOR: return (struct op_test){"ADAFACTOR", build_adafactor, ADAFACTOR_VARIANTS, 64, 2};
    case SNUG_OP_CAST: return (struct op_test){"CAST", build_cast, 1, 0, 0};
    case SNUG_OP_SGD: return (struct op_test){"SGD", build_sgd, SGD_VARIANTS, 16, 2};
    case SNUG_OP_ADAGRAD: return (struct op_test){"ADAGRAD", build_adagrad, ADAGRAD_VARIANTS, 32, 2};
    case SNUG_OP_RMSPROP: return (struct op_test){"RMSPROP", build_rmsprop, RMSPROP_VARIANTS, 32, 2};
    case SNUG_OP_LION: return (struct op_test){"LION", build_lion, LION_VARIANTS, 16, 2};
    case SNUG_OP_ADAM_ROWS:
    case SNUG_OP_CATCH_UP:
    case SNUG_OP_SETTLE:
    case SNUG_OP_FETCH:
    case SNUG_OP_STORE:
    case SNUG_OP_WAIT:
    case SNUG_OP_ROWS_BEGIN: return (struct op_test){"not on the GPU yet", NULL, 0, 0, 0};
    case SNUG_OP_COUNT: break;
    }
    fail_msg("operation %d is not in the enum", (int)kind);
    return (struct op_test){0};
}

static const struct snug_backend *cuda; /* NULL: there is none */
static char why[512];

/* ---- the device's side of a program ---------------------------------------------------------------------------- */

struct device {
    struct snug_block arena;
    struct snug_run run;
};

static void assert_ok(const struct ops *f, snug_status status, const char *what) {
    if (status != SNUG_OK) fail_msg("%s: %s", what, snug_error_message(f->ctx));
}

/* Runs op on the device from start, and brings the arena back into out. */
static void run_on_device(struct ops *f, const struct snug_op *op, const uint8_t *start, uint8_t *out) {
    struct device d = {.run = f->run};
    const int64_t size = (int64_t)(f->bytes + 255) / 256 * 256, copy = (cuda->batch(&f->program) + 255) / 256 * 256;
    const int64_t workspace = (cuda->workspace(&f->program, op, 1) + 255) / 256 * 256;
    assert_ok(f, cuda->allocate(f->ctx, size + copy + workspace, SNUG_BLOCK_ARENA, &d.arena), "allocate");
    assert_ok(f, snug_block_copy(f->ctx, &d.arena, d.arena.base, start, (int64_t)f->bytes), "upload");
    d.run.arena = d.arena.base;
    d.run.batch_copy = d.arena.base + size;
    d.run.workspace = d.arena.base + size + copy;
    assert_ok(f, cuda->open(f->ctx, &f->program, 1, &d.run.backend_state), "open");
    assert_ok(f, cuda->load(&d.run), "load");
    assert_ok(f, cuda->ops[op->kind](&d.run, op), "operation");
    assert_ok(f, snug_block_copy(f->ctx, &d.arena, out, d.arena.base, (int64_t)f->bytes), "download");
    cuda->close(d.run.backend_state);
    snug_block_release(&d.arena);
}

/* ---- checks ---------------------------------------------------------------------------------------------------- */

/* Whether an output's old value counts. */
static bool keeps(const struct ops *f, const struct snug_op *op, int output) {
    const bool adds = !snug_run_overwrites(&f->run, op);
    switch (op->kind) {
    case SNUG_OP_EMBED_BACKWARD:
    case SNUG_OP_LINEAR_DW: return adds;
    case SNUG_OP_NORM_BACKWARD: return adds && output >= 2;
    case SNUG_OP_LINEAR_DX: return op->accumulate;
    case SNUG_OP_LOSS: return output == 0 && f->run.chunk > 0;
    case SNUG_OP_CLIP: return output == 1;
    case SNUG_OP_GATHER_BACKWARD:
    case SNUG_OP_RESCALE:
    case SNUG_OP_SQUARED_NORM: return true;
    default: return snug_is_update(op->kind) && output != 1;
    }
}

static bool among(int32_t tensor, const int32_t *list, int count) {
    for (int i = 0; i < count; i++)
        if (list[i] == tensor) return true;
    return false;
}

static void spoil_outputs(struct ops *f, const struct snug_op *op) {
    for (int i = 0; i < SNUG_OP_OUTPUTS; i++) {
        const int32_t out = op->out[i];
        if (out < 0 || keeps(f, op, i) || among(out, op->in, SNUG_OP_INPUTS)) continue;
        memset(f->arena + f->tensors[out].offset, 0xFF, ops_live(f, out));
    }
}

static void check_untouched(const struct ops *f, const struct snug_op *op, const uint8_t *before, const uint8_t *after,
                            const char *what) {
    for (int32_t t = 0; t < (int32_t)f->program.tensor_count; t++) {
        const struct snug_tensor *tensor = &f->tensors[t];
        const int64_t end = tensor->offset + tensor->bytes;
        for (int64_t i = end; i < end + OPS_GAP && i < (int64_t)f->bytes; i++)
            if (after[i] != before[i])
                fail_msg("%s: byte %d behind tensor %d was written", what, (int)(i - end), (int)t);
        const bool destroyed = op->kind == SNUG_OP_EMBED_BACKWARD && t == op->in[0];
        if (destroyed || among(t, op->out, SNUG_OP_OUTPUTS)) continue;
        if (memcmp(after + tensor->offset, before + tensor->offset, ops_live(f, t)) != 0)
            fail_msg("%s: tensor %d is no output, but was changed", what, (int)t);
    }
}

static double worst_fp32, worst_low, worst_tf32; /* in the units of the tolerances */

static void compare(const struct ops *f, const struct snug_op *op, const uint8_t *expected, const uint8_t *found,
                    const struct op_test *test, const char *what) {
    for (int output = 0; output < SNUG_OP_OUTPUTS; output++) {
        const int32_t t = op->out[output];
        if (t < 0) continue;
        /* What a 16-bit program's fp32 gradients are made of may be 16-bit on the way. */
        const bool bf16 = f->program.compute == SNUG_BF16 || f->tensors[t].dtype == SNUG_BF16;
        const bool low = bf16 || f->program.compute == SNUG_F16 || f->program.tf32;
        const double digits = bf16 ? 0x1p-8 : low ? 0x1p-11 : 0x1p-23;
        const double unit = (low ? test->low : test->fp32) * digits;
        if (f->tensors[t].dtype == SNUG_U8) {
            ops_compare_codes(f, expected, found, t, what);
            continue;
        }
        double rms = 0;
        for (int64_t i = 0; i < ops_count(f, t); i++) {
            const double value = ops_get(f, expected, t, i);
            rms += isfinite(value) ? value * value / (double)ops_count(f, t) : 0;
        }
        rms = sqrt(rms);
        double off = 0;
        for (int64_t i = 0; i < ops_count(f, t); i++) {
            const double want = ops_get(f, expected, t, i), got = ops_get(f, found, t, i), size = fabs(want) + rms;
            if (got == want || (isnan(got) && isnan(want))) continue;
            const double error = fabs(got - want) / size;
            if (!(error <= unit))
                fail_msg("%s: output %d, element %ld of %ld: %.9g, expected %.9g (rms %.3g)", what, output, (long)i,
                         (long)ops_count(f, t), got, want, rms);
            double *worst = f->program.tf32 ? &worst_tf32 : low ? &worst_low : &worst_fp32;
            *worst = fmax(*worst, error / digits);
            off += (got - want) * (got - want) / (double)ops_count(f, t);
        }
        if (low && !(sqrt(off) <= digits * rms))
            fail_msg("%s: output %d: relative error %g", what, output, sqrt(off) / rms);
    }
}

static uint8_t *copy_of(const struct ops *f) {
    uint8_t *copy = ops_array(f->bytes, 1);
    memcpy(copy, f->arena, f->bytes);
    return copy;
}

static void check_op(struct ops *f, struct snug_op op, const struct op_test *test, const char *what) {
    static const struct {
        bool first;
        int64_t micro_batch, chunk;
    } states[] = {{true, 0, 0}, {true, 1, 0}, {true, 0, 1}, {false, 0, 0}};
    uint8_t *start = copy_of(f), *overwritten = NULL, *found = ops_array(f->bytes, 1), *again = ops_array(f->bytes, 1);
    unsigned kept_first = 0;
    for (size_t s = 0; s < sizeof states / sizeof *states; s++) {
        unsigned kept = 0;
        op.first = states[s].first;
        f->run.micro_batch = states[s].micro_batch;
        f->run.chunk = states[s].chunk;
        for (int i = 0; i < SNUG_OP_OUTPUTS; i++) kept |= (unsigned)keeps(f, &op, i) << i;
        if (s == 0) kept_first = kept;
        if (s > 0 && kept == kept_first) continue;
        memcpy(f->arena, start, f->bytes);
        spoil_outputs(f, &op);
        uint8_t *before = copy_of(f);
        ops_run(f, snug_backend_reference(), &op, 1);
        if (s == 0) overwritten = copy_of(f);
        run_on_device(f, &op, before, found);
        check_untouched(f, &op, before, found, what);
        compare(f, &op, f->arena, found, test, what);
        run_on_device(f, &op, before, again);
        for (int i = 0; i < SNUG_OP_OUTPUTS; i++)
            if (op.out[i] >= 0 && memcmp(found + f->tensors[op.out[i]].offset, again + f->tensors[op.out[i]].offset,
                                         ops_live(f, op.out[i])) != 0)
                fail_msg("%s: output %d is another the second time", what, i);
        free(before);
    }
    memcpy(f->arena, overwritten, f->bytes); /* for the operations that follow */
    f->run.micro_batch = f->run.chunk = 0;
    free(start);
    free(overwritten);
    free(found);
    free(again);
}

static bool feeds(const struct ops *f, size_t i, enum snug_op_kind kind) {
    for (size_t later = i + 1; later < f->program.op_count; later++)
        for (int in = 0; f->ops[later].kind == kind && in < SNUG_OP_INPUTS; in++)
            if (f->ops[later].in[in] >= 0 && among(f->ops[later].in[in], f->ops[i].out, SNUG_OP_OUTPUTS)) return true;
    return false;
}

static void test_agreement(void **state) {
    const enum snug_op_kind kind = *(const enum snug_op_kind *)*state;
    const struct op_test test = test_of(kind);
    if (!cuda) {
        print_message("%s\n", why);
        skip();
    }
    worst_fp32 = worst_low = worst_tf32 = 0;
    static const enum snug_dtype types[] = {SNUG_F32, SNUG_BF16, SNUG_F16, SNUG_F32}; /* the last with --tf32 */
    const int type_count = kind == SNUG_OP_ATTENTION || kind == SNUG_OP_ATTENTION_BACKWARD ? 4 : 3;
    for (size_t shape = 0; shape < SHAPES; shape++)
        for (int type = 0; type < type_count; type++)
            for (int variant = 0; variant < test.variants; variant++) {
                struct ops f;
                char what[96];
                snprintf(what, sizeof what, "%s, shape %zu, %s, variant %d", test.name, shape,
                         type == 3 ? "TF32" : snug_dtype_name(types[type]), variant);
                ops_open(&f, &shapes[shape], types[type]);
                f.program.tf32 = type == 3;
                f.program.logits = -1;
                test.build(&f, variant);
                for (size_t i = 0; i < f.program.op_count; i++) {
                    if (f.ops[i].kind == SNUG_OP_LOSS) f.program.logits = f.ops[i].in[0];
                    if (f.ops[i].kind == kind)
                        check_op(&f, f.ops[i], &test, what);
                    else if (feeds(&f, i, kind))
                        ops_run(&f, snug_backend_reference(), &f.ops[i], 1);
                }
                ops_close(&f);
            }
    if (test.variants)
        print_message("%-20s worst error %7.2f of %3g x 2^-23, %5.2f of %g x 2^-8 or 2^-11%s", test.name, worst_fp32,
                      test.fp32, worst_low, test.low, type_count == 4 ? "" : "\n");
    if (type_count == 4) print_message(", with TF32 %.2f\n", worst_tf32);
}

/* test_cuda_ops [PATTERN]: only operations of such names. */
int main(int argc, char **argv) {
    static enum snug_op_kind kinds[SNUG_OP_COUNT];
    struct CMUnitTest tests[SNUG_OP_COUNT];
    snug_context *ctx;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    if (snug_backend_cuda(ctx, &cuda) != SNUG_OK) snprintf(why, sizeof why, "skipped: %s", snug_error_message(ctx));
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        kinds[kind] = (enum snug_op_kind)kind;
        tests[kind] = (struct CMUnitTest){
            .name = test_of(kinds[kind]).name, .test_func = test_agreement, .initial_state = &kinds[kind]};
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int failed = cmocka_run_group_tests_name("operations on the GPU", tests, NULL, NULL);
    snug_context_destroy(ctx);
    return failed;
}
