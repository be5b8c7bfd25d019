/* SPDX-License-Identifier: Apache-2.0 */
/* Relations between operations, and values that a comparison of backends does not verify. */
#include "ops_table.h"
#include "program/cost.h"
#include "sanitized.h"
#include "temporary.h"

static const struct ops_shape small = OPS_SMALL;

/* ---- relations between operations -------------------------------------------------------------------------------- */

static const struct snug_backend *backend_of(int number) {
    return number ? snug_backend_cpu() : snug_backend_reference();
}

/* NORM of a stored s gives the same y, bit for bit, so that recomputation is exact. */
TEST(test_recomputation) {
    static const int variants[] = {1, 4, 9, 10};
    for (int b = 0; b < 2; b++)
        for (enum snug_dtype dtype = SNUG_F32; dtype <= SNUG_BF16; dtype++)
            for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
                struct ops f;
                ops_open(&f, &small, dtype);
                build_residual_norm(&f, variants[v]);
                const struct snug_op op = f.ops[0];
                struct snug_op norm = snug_op_info(op.kind)->norm_of(&op);
                const int32_t y = norm.norm.y, again = norm.norm.y = ops_tensor(&f, dtype, T, 0, small.h);
                ops_run(&f, backend_of(b), &op, 1);
                ops_run(&f, backend_of(b), &norm, 2);
                assert_memory_equal(f.arena + f.tensors[y].offset, f.arena + f.tensors[again].offset, ops_live(&f, y));
                ops_close(&f);
            }
}

/* Where dx is added to, the result is the old value plus the overwritten one; GATHER_BACKWARD always adds. */
TEST(test_accumulation) {
    struct ops f;
    ops_open(&f, &small, SNUG_F32);
    build_linear(&f, 0);
    struct snug_op *op = &f.ops[1];
    const int32_t dx = op->linear_dx.dx;
    uint8_t *before = ops_copy(&f);
    ops_run(&f, snug_backend_reference(), op, 1);
    uint8_t *overwritten = ops_copy(&f);
    memcpy(f.arena, before, f.bytes);
    op->accumulate = true;
    ops_run(&f, snug_backend_reference(), op, 1);
    for (int64_t i = 0; i < ops_count(&f, dx); i++) {
        const double old = ops_get(&f, before, dx, i), part = ops_get(&f, overwritten, dx, i);
        assert_true(fabs(ops_get(&f, f.arena, dx, i) - (old + part)) <= 0x1p-22 * (fabs(old) + fabs(part)));
    }
    free(before);
    free(overwritten);
    ops_close(&f);

    ops_open(&f, &small, SNUG_F32); /* adding twice doubles it */
    build_gather(&f, 0);
    const int32_t out = f.ops[2].gather_backward.dx;
    ops_run(&f, snug_backend_reference(), &f.ops[1], 1);
    ops_run(&f, snug_backend_reference(), &f.ops[2], 1);
    before = ops_copy(&f);
    ops_run(&f, snug_backend_reference(), &f.ops[2], 1);
    for (int64_t i = 0; i < ops_count(&f, out); i++)
        assert_true(ops_get(&f, f.arena, out, i) == 2 * ops_get(&f, before, out, i));
    free(before);
    ops_close(&f);
}

/* With an addend, in a tensor of its own or in that of ds, ds is the result without one plus the addend; dz equals ds
   without dropout, else is scaled by the mask. */
TEST(test_addend) {
    static const int variants[] = {1, 5, 6};
    double *ds[3], *dz[3], *addend = NULL;
    int64_t count = 0;
    for (int i = 0; i < 3; i++) {
        struct ops f;
        ops_open(&f, &small, SNUG_F32);
        build_residual_norm(&f, variants[i]);
        const struct snug_norm_backward *d = &f.ops[1].norm_backward;
        for (int64_t k = 0; k < ops_count(&f, d->dy); k++) { /* tensors have other numbers */
            ops_set(&f, d->dy, k, ops_value(71, (uint64_t)k));
            if (d->addend) ops_set(&f, d->addend, k, ops_value(72, (uint64_t)k));
        }
        ops_run(&f, snug_backend_reference(), &f.ops[0], 1);
        ops_run(&f, snug_backend_reference(), &f.ops[1], 1);
        count = ops_count(&f, d->ds);
        ds[i] = ops_array((size_t)count, sizeof **ds);
        dz[i] = ops_array((size_t)count, sizeof **dz);
        if (!addend) addend = ops_array((size_t)count, sizeof *addend);
        for (int64_t k = 0; k < count; k++) {
            addend[k] = ops_value(72, (uint64_t)k);
            ds[i][k] = ops_get(&f, f.arena, d->ds, k);
            dz[i][k] = ops_get(&f, f.arena, d->dz, k);
        }
        ops_close(&f);
    }
    for (int64_t k = 0; k < count; k++) {
        const double scale = 1 / (1 - floor((double)p_of[1] * 65536 + 0.5) / 65536);
        assert_true(fabs(ds[1][k] - (ds[0][k] + addend[k])) <= 0x1p-22 * (fabs(ds[0][k]) + fabs(addend[k])));
        assert_true(ds[2][k] == ds[1][k] && dz[2][k] == dz[1][k]);
        assert_true((dz[0][k] == 0) == (dz[1][k] == 0));
        assert_true(dz[1][k] == 0 || fabs(dz[1][k] - scale * ds[1][k]) <= 0x1p-22 * fabs(dz[1][k]));
    }
    for (int i = 0; i < 3; i++) {
        free(ds[i]);
        free(dz[i]);
    }
    free(addend);
}

/* FETCH reads back what STORE wrote to the offload file, from the operation's first element on. */
TEST(test_copies) {
    struct ops f;
    struct snug_offload_file *file;
    uint64_t copies[OPS_TENSORS] = {0};
    ops_open(&f, &small, SNUG_F32);
    const int32_t backing = ops_tensor(&f, SNUG_F32, FIXED, 4, 1024);
    const int32_t x = ops_source(&f, SNUG_F32, FIXED, 1, 1024), again = ops_tensor(&f, SNUG_F32, FIXED, 1, 1024);
    f.tensors[backing].offloaded = true;
    f.tensors[backing].offset = 0;
    ops_must(&f, snug_offload_file_open(f.ctx, temporary_root(), 4 * 4096, &file), "offload file");
    f.run.backing.file = file;
    f.run.copies = copies;
    const struct snug_op ops[] = {
        {.kind = SNUG_OP_STORE, .element = 2048, .store = {.x = x, .backing = backing}},
        {.kind = SNUG_OP_WAIT, .wait = {.x = x}},
        {.kind = SNUG_OP_FETCH, .element = 2048, .fetch = {.backing = backing, .x = again}},
        {.kind = SNUG_OP_WAIT, .wait = {.x = again}},
    };
    for (int b = 0; b < 2; b++) {
        ops_fill(&f, again, NAN);
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
            ops_must(&f, backend_of(b)->ops[ops[i].kind](&f.run, &ops[i]), snug_op_name(ops[i].kind));
        assert_memory_equal(f.arena + f.tensors[x].offset, f.arena + f.tensors[again].offset, ops_live(&f, x));
    }
    snug_offload_file_close(file);
    ops_close(&f);
}

/* ---- weights in bf16 ----------------------------------------------------------------------------------------------
 */

/* Matmuls with BF16 weights give the bits of matmuls with the widened weights, whatever the shapes and offsets. */
TEST(test_matmuls_of_bf16_weights) {
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    static const struct ops_shape cases[] = {
        OPS_SMALL,
        {{257, 3}, 384, 12, 2100, 2, 1536, 3, 9}, /* rows in two tiles; an inner dimension in two parts backward */
        {{300, 1}, 2307, 1, 300, 2, 193, 3, 40},  /* the same in forward */
        {{300}, 2304, 1, 300, 2, 193, 3, 40},     /* and a row stride that oneDNN treats differently */
        {{257}, 1024, 16, 193, 2, 2048, 3, 200},
        {{21}, 1075, 1, 33, 2, 35, 3, 9}, /* few rows; an inner dimension in parts, the last not a whole vector */
    };
    for (size_t shape = 0; shape < sizeof cases / sizeof *cases; shape++)
        for (int variant = 0; variant < 3; variant++)
            for (size_t isa = 0; isa < sizeof names / sizeof *names; isa++) {
                const struct snug_backend *backend = snug_backend_cpu_isa(names[isa]);
                struct ops halves, wide;
                if (!backend || !is_chosen((long)(shape + isa) + variant, 2)) continue;
                ops_open(&halves, &cases[shape], SNUG_F32);
                ops_open(&wide, &cases[shape], SNUG_F32);
                build_linear(&halves, 3 + variant);
                build_linear(&wide, variant);
                const int32_t w = wide.ops[0].linear.w;
                assert_int_equal(halves.tensors[w].dtype, SNUG_BF16);
                for (int64_t i = 0; i < ops_count(&wide, w); i++)
                    ops_set(&wide, w, i, ops_get(&halves, halves.arena, w, i));
                for (int threads = 1; threads <= 3; threads += 1 + SANITIZED)
                    for (int op = 0; op < 2; op++) {
                        const int32_t out = op ? wide.ops[1].linear_dx.dx : wide.ops[0].linear.y;
                        ops_randomize(&halves, out);
                        ops_randomize(&wide, out);
                        ops_run(&halves, backend, &halves.ops[op], threads);
                        ops_run(&wide, backend, &wide.ops[op], 1);
                        if (memcmp(halves.arena + halves.tensors[out].offset, wide.arena + wide.tensors[out].offset,
                                   ops_live(&wide, out)) != 0)
                            fail_msg("shape %d, variant %d, %s, %d threads: %s has different bits", (int)shape, variant,
                                     names[isa], threads, op ? "dx" : "y");
                    }
                ops_close(&halves);
                ops_close(&wide);
            }
}

/* Of few rows, which a matmul of its own computes, each has the same bits whatever the number of rows: also in BF16, in
   a program that generates. */
TEST(test_matmuls_of_few_rows) {
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    static const struct ops_shape shapes[] = {{{24}, 1075, 1, 33, 2, 35, 3, 9}, {{8}, 1075, 1, 33, 2, 35, 3, 9}};
    static const struct {
        enum snug_dtype type;
        int variant;
    } cases[] = {{SNUG_F32, 0}, {SNUG_F32, 3}, {SNUG_BF16, 0}, {SNUG_BF16, 1}, {SNUG_BF16, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t isa = 0; isa < sizeof names / sizeof *names; isa++) {
            const struct snug_backend *backend = snug_backend_cpu_isa(names[isa]);
            const bool low = cases[i].type == SNUG_BF16;
            const int rows = (int)shapes[low].lengths[0];
            struct ops f;
            if (!backend) continue;
            ops_open(&f, &shapes[low], cases[i].type);
            (low ? build_generating : build_linear)(&f, cases[i].variant);
            const int32_t y = f.ops[0].linear.y;
            ops_run(&f, backend, &f.ops[0], 1);
            uint8_t *all = ops_copy(&f);
            for (f.batch.tokens = 0; f.batch.tokens < rows; f.batch.tokens++) {
                const int64_t offset = f.tensors[y].offset;
                ops_randomize(&f, y);
                ops_run(&f, backend, &f.ops[0], 2);
                if (memcmp(f.arena + offset, all + offset, ops_live(&f, y)) != 0)
                    fail_msg("%s, variant %d, %s: %d rows have other bits than the same of %d",
                             snug_dtype_name(cases[i].type), cases[i].variant, names[isa], (int)f.batch.tokens, rows);
            }
            f.batch.tokens = rows;
            free(all);
            ops_close(&f);
        }
}

/* A training generates oneDNN's kernels when it is opened; for an inference, which may do it later, a plan counts them.
 */
TEST(test_memory_of_generated_kernels) {
    static const struct {
        enum snug_op_kind kind;
        int64_t bytes;
    } cases[] = {{SNUG_OP_LINEAR, 10 << 20}, {SNUG_OP_LINEAR_DX, 3 << 20}, {SNUG_OP_LINEAR_DW, 3 << 20}};
    const struct snug_backend *backend = snug_backend_cpu();
    char library[128];
    snug_backend_cpu_describe(library, sizeof library);
    const bool onednn = strncmp(library, "oneDNN", 6) == 0; /* else packed operands alone */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_op ops[] = {{.kind = SNUG_OP_LINEAR}, {.kind = cases[i].kind}};
        struct snug_program program = {.ops = ops, .op_count = 2, .compute = SNUG_F32};
        const int64_t bytes = backend->library(&program, 1);
        if (onednn)
            assert_int_equal(bytes, cases[i].bytes);
        else
            assert_in_range(bytes, 1, 1 << 20);
        assert_int_equal(backend->library(&program, 3), bytes + 2 * (onednn ? 3 << 20 : bytes));
        program.compute = SNUG_BF16;
        assert_int_equal(backend->library(&program, 1), 0);
    }
}

/* An update that is exact in fp32, so that only its rounding remains: p - p / 512, by weight decay alone. Every backend
   rounds as philox.h defines, bit for bit, and without a bias. */
TEST(test_stochastic_rounding) {
    static const char *const names[] = {"reference", "v2", "v3", "v4", "generic"};
    static const struct ops_shape cases[] = {OPS_SMALL, {{1}, 997, 1, 3, 1, 601, 2, 1}, {{1}, 3, 1, 3, 1, 1, 2, 1}};
    for (size_t shape = 0; shape < sizeof cases / sizeof *cases; shape++)
        for (size_t isa = 0; isa < sizeof names / sizeof *names; isa++) {
            const struct snug_backend *backend = isa ? snug_backend_cpu_isa(names[isa]) : snug_backend_reference();
            struct ops f;
            double up = 0, expected_up = 0;
            if (!backend) continue;
            ops_open(&f, &cases[shape], SNUG_F32);
            build_optimizer(&f, 3);
            const struct snug_op *adamw = &f.ops[2];
            const int32_t p = adamw->update.weight;
            f.run.step = INT64_C(0x100000005);
            f.run.learning_rate = 0x1p-5f;
            f.optimizer.weight_decay = 0x1p-4;
            for (int i = 0; i < 2; i++) ops_fill(&f, adamw->update.states[i], 0);
            ops_fill(&f, adamw->update.g, 0);
            ops_fill(&f, adamw->update.clip, 1);
            const int64_t count = ops_count(&f, p);
            for (int64_t i = 0; i < count; i++) /* both signs, all significands */
                ops_set(&f, p, i, snug_bf16_to_f32((uint16_t)(0x3f00 | (ops_word(9, (uint64_t)i) & 0x80ff))));
            uint8_t *before = ops_copy(&f);
            ops_run(&f, backend, adamw, 2);
            for (int64_t i = 0; i < count; i++) {
                const float exact = (float)(ops_get(&f, before, p, i) * (1 - 0x1p-9));
                const uint32_t random = snug_rounding_bits(f.run.seed, f.run.step, adamw->update.parameter, i);
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

/* Updates may store any piece of a parameter, also of one larger than 2^35 elements. */
TEST(test_rounding_of_pieces) {
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
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++)
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
            struct ops f;
            float values[COUNT];
            if (!snug_backend_cpu_isa(backends[b].isa)) continue;
            ops_open(&f, &small, SNUG_F32);
            const int32_t p = ops_source(&f, SNUG_BF16, FIXED, 1, COUNT + 1);
            const struct snug_op op = {.kind = SNUG_OP_ADAM, .update = {.weight = p, .parameter = 3}};
            uint16_t *stored = snug_run_data(&f.run, p);
            for (int i = 0; i < COUNT; i++) { /* any bits: NaNs, infinities, values that round to infinity */
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
    ops_fill(&f, f.ops[0].activation.u, u);
    ops_run(&f, snug_backend_reference(), &f.ops[0], 1);
    double a = ops_get(&f, f.arena, f.ops[0].activation.a, 0);
    ops_close(&f);
    return a;
}

/* The loss of logits 1, 2, 3 with this label, or with targets 0, 1, 0. */
static double run_loss(enum snug_loss_kind kind, int variant, int64_t classes, int32_t label) {
    const struct ops_shape one = {{1}, 1, 1, 1, 1, 1, classes, 1};
    struct ops f;
    ops_open(&f, &one, SNUG_F32);
    build_loss(&f, variant);
    assert_int_equal(f.ops[0].loss.function, kind);
    for (int c = 0; c < classes; c++) {
        ops_set(&f, f.ops[0].loss.logits, c, c + 1);
        f.batch.targets[c] = c == 1;
    }
    f.batch.labels[0] = label;
    ops_run(&f, snug_backend_reference(), &f.ops[0], 1);
    double loss = ops_get(&f, f.arena, f.ops[0].loss.loss, 0);
    ops_close(&f);
    return loss;
}

static void assert_near(double got, double want) {
    if (!(fabs(got - want) <= 4e-7 * fabs(want))) fail_msg("%.9g, expected %.9g", got, want);
}

/* ---- preferences ---- */

/* The loss after `more` was added to a row of sequence s; its scale. */
static double run_preference(const struct snug_backend *backend, int variant, int64_t s, double more, double *scale) {
    static const struct ops_shape pair = {{5, 7}, 1, 1, 1, 1, 1, 1, 12};
    struct ops f;
    ops_open(&f, &pair, SNUG_F32);
    build_preference(&f, variant);
    f.run.chunk = 0;
    const struct snug_preference *p = &f.ops[0].preference;
    for (int64_t row = 0; row < f.run.rows; row++) ops_set(&f, p->rows, row, 0.25 * (double)(row % 3));
    const int64_t last = s ? f.run.rows - 1 : 0; /* a row of that sequence */
    ops_set(&f, p->rows, last, ops_get(&f, f.arena, p->rows, last) + more);
    for (int64_t i = 0; i < 2; i++) f.batch.references[2 * i + 1] = (float)(3 - i);
    ops_run(&f, backend, &f.ops[0], 1);
    const double loss = ops_get(&f, f.arena, p->loss, 0);
    *scale = ops_get(&f, f.arena, p->scales, s);
    ops_close(&f);
    return loss;
}

TEST(test_preferences) {
    const struct snug_backend *const backends[] = {snug_backend_reference(), snug_backend_cpu()};
    const double step = 0x1p-6; /* sums are exact in fp32 */
    double scale, none;
    for (size_t b = 0; b < 2; b++)
        for (int variant = 0; variant < PREFERENCE_VARIANTS; variant++)
            for (int64_t s = 0; s < 2; s++) {
                const double up = run_preference(backends[b], variant, s, step, &none),
                             down = run_preference(backends[b], variant, s, -step, &none);
                run_preference(backends[b], variant, s, 0, &scale);
                const double slope = (up - down) / (2 * step);
                if (!(fabs(slope - scale) <= 1e-3 * fabs(scale)) || scale == 0)
                    fail_msg("variant %d, sequence %d: the scale is %g, and the slope %g", variant, (int)s, scale,
                             slope);
            }
}

/* What finite differences do not verify: the values themselves, as torch 2 prints them. */
TEST(test_values) {
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

    /* The first AdamW step changes a parameter by the learning rate against the gradient's sign, and decays it. */
    struct ops f;
    ops_open(&f, &small, SNUG_F32);
    build_optimizer(&f, 2);
    const struct snug_op *adamw = &f.ops[2];
    ops_fill(&f, adamw->update.g, -0.5);
    ops_fill(&f, adamw->update.clip, 1);
    ops_fill(&f, adamw->update.weight, 2);
    ops_fill(&f, adamw->update.states[0], 0);
    ops_fill(&f, adamw->update.states[1], 0);
    f.ops[2].update.decay = true;
    ops_run(&f, snug_backend_reference(), adamw, 1);
    assert_near(ops_get(&f, f.arena, adamw->update.weight, 0), 2 * (1 - 0.01 * 0.1) + 0.01);
    assert_near(ops_get(&f, f.arena, adamw->update.states[0], 0), -0.5 * (1 - 0.9));
    assert_near(ops_get(&f, f.arena, adamw->update.states[1], 0), 0.25 * (1 - 0.999));
    ops_close(&f);
}

/* ---- attention within a window ---------------------------------------------------------------------------------- */

/* The values of transformers' relative_position_bucket. */
TEST(test_buckets) {
    static const int32_t distances[] = {-8191, -128, -127, -91, -90, -64, -63, -16, -15, -8,  -7, -1,
                                        0,     1,    7,    8,   11,  12,  45,  46,  127, 128, 600};
    static const int32_t of_32[] = {15, 15, 15, 15, 14, 14, 13, 10, 9,  8,  7, 1,
                                    0,  17, 23, 24, 24, 25, 28, 29, 31, 31, 31},
                         of_8[] = {3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 1, 0, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7};
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        assert_int_equal(snug_relative_bucket(distances[i], 32), of_32[i]);
        assert_int_equal(snug_relative_bucket(distances[i], 8), of_8[i]);
    }
}

TEST(test_pairs_within_a_window) {
    static const int64_t lengths[] = {1, 2, 63, 64, 65, 66, 128, 129, 500};
    static const int32_t windows[] = {-1, 0, 1, 3, 64, 127, 600};
    const size_t count = sizeof windows / sizeof *windows;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t w = 0; w < count * count; w++) {
            const int32_t before = windows[w / count], after = windows[w % count];
            const struct snug_cost_view view = {.tokens = 3 * (double)lengths[l], .sequences = 3};
            int64_t pairs = 0;
            for (int64_t i = 0; i < lengths[l]; i++)
                for (int64_t j = 0; j < lengths[l]; j++)
                    pairs += (before < 0 || i - j <= before) && (after < 0 || j - i <= after);
            assert_true(snug_cost_pairs(&view, before, after) == 3 * (double)pairs);
        }
}

/* Sequences of many blocks of queries, most of which have neither the first nor the last keys in their window. */
TEST(test_long_sequences) {
    static const struct ops_shape shape = {{1, 1100, 389}, 32, 2, 40, 2, 16, 2, 5};
    static const int variants[] = {6, 10, 13, 14, 15};
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        const int variant = variants[v];
        struct ops f;
        ops_open(&f, &shape, SNUG_F32);
        build_attention(&f, variant);
        f.ops[1].first = true;
        ops_run(&f, snug_backend_reference(), &f.ops[0], 1);
        ops_run(&f, snug_backend_reference(), &f.ops[1], 1);
        uint8_t *expected = ops_copy(&f);
        for (int i = 0; i < 2; i++) ops_spoil(&f, &f.ops[i]);
        for (int i = 0; i < 2; i++) ops_run(&f, snug_backend_cpu(), &f.ops[i], 2);
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < snug_op_operands(&f.ops[i]); k++) {
                const int32_t t = f.ops[i].operands[k];
                for (int64_t e = 0; ops_writes(&f.ops[i], k) && e < ops_count(&f, t); e++) {
                    const double want = ops_get(&f, expected, t, e), got = ops_get(&f, f.arena, t, e);
                    if (!(fabs(got - want) <= 1e-4 * (1 + fabs(want))))
                        fail_msg("variant %d: %s, element %ld: %.9g, expected %.9g", variant,
                                 snug_op_info(f.ops[i].kind)->operands[k].name, (long)e, got, want);
                }
            }
        free(expected);
        ops_close(&f);
    }
}

TEST_MAIN(NULL, NULL)
