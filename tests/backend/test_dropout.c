/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout on both backends: the masks are those that philox.h defines, whatever else a batch holds, and fair. */
#include "ops_programs.h"

static const struct snug_backend *backend_of(int number) {
    return number ? snug_backend_cpu() : snug_backend_reference();
}

/* philox.h's definition, implemented again: the element's 16 bits of a block of words, in memory order. */
static double factor_at(const struct ops *f, const struct snug_op *op, int64_t token, int64_t c0, int64_t c1,
                        uint32_t head, int64_t number) {
    const uint32_t low = (uint32_t)f->run.seed, high = (uint32_t)(f->run.seed >> 32);
    const struct snug_philox_block block =
        snug_philox_rounds((uint32_t)c0, (uint32_t)c1, (uint32_t)f->batch.sample[token], op->site * 4096 + head,
                           low ^ high * 0x9E3779B9u, (uint32_t)f->run.step, 7);
    const double p = floor((double)op->p * 65536 + 0.5) / 65536;
    return (block.word[number / 2] >> 16 * (number % 2) & 0xffff) / 65536.0 < p ? 0 : 1 / (1 - p);
}

static double mask_at(const struct ops *f, const struct snug_op *op, int64_t token, int64_t channel) {
    return factor_at(f, op, token, channel / 8, f->batch.positions[token], 0, channel % 8);
}

static double attention_mask_at(const struct ops *f, const struct snug_op *op, int64_t token, int64_t key,
                                uint32_t head) {
    const int32_t query = f->batch.positions[token];
    return factor_at(f, op, token, key / 4, query / 2, head, key % 4 * 2 + query % 2);
}

static void assert_mask(double got, double want) {
    if (!(fabs(got - want) <= 1e-6)) fail_msg("mask %.9g, expected %.9g", got, want);
}

/* Inputs are chosen so that each operation writes the mask itself. */
TEST(test_mask_definition) {
    static const struct ops_shape shape = {{64, 3, 1, 40}, 128, 2, 50, 2, 37, 5, 60};
    void (*const builders[])(struct ops *, int) = {build_residual_norm, build_norm, build_dropout};
    static const struct {
        int family, variant;
        enum { TOKENS, ROWS, LAST } rows; /* tokens that rows of the output belong to: all, loss positions, last ones */
    } masked[] = {{0, 1, TOKENS}, {0, 11, LAST}, {1, 8, TOKENS}, {2, 0, ROWS}, {2, 3, LAST}};
    for (int b = 0; b < 2; b++) {
        struct ops f;
        for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
            const int family = masked[i].family;
            ops_open(&f, &shape, SNUG_F32);
            for (int64_t t = 0; t < f.batch.tokens; t++) f.batch.sample[t] = f.batch.sample[t] * 77 % 101;
            builders[family](&f, masked[i].variant);
            const struct snug_op *op = &f.ops[0];
            const int32_t out = family == 0 ? op->residual_norm.s : family == 1 ? op->norm.y : op->dropout.y;
            if (family == 1) {
                ops_fill(&f, op->norm.gamma, 0);
                ops_fill(&f, op->norm.beta, 1);
            } else {
                ops_fill(&f, family == 0 ? op->residual_norm.z : op->dropout.x, 1);
                if (family == 0) ops_fill(&f, op->residual_norm.x, 0);
            }
            ops_run(&f, backend_of(b), op, 2);
            for (int64_t k = 0; k < ops_count(&f, out); k++) {
                const int64_t row = k / shape.h, token = masked[i].rows == ROWS
                                                             ? f.batch.loss_positions[f.run.first_row + row]
                                                         : masked[i].rows == LAST ? f.batch.offsets[row + 1] - 1
                                                                                  : row;
                assert_mask(ops_get(&f, f.arena, out, k), mask_at(&f, op, token, k % shape.h));
            }
            ops_close(&f);
        }

        ops_open(&f, &shape, SNUG_F32); /* equal scores, and row j of v is the j-th unit vector: o = mask / length */
        build_attention(&f, 1);
        int64_t h = shape.h, d = h / shape.heads;
        int32_t qkv = f.ops[0].attention.q, o = f.ops[0].attention.o;
        for (int64_t i = 0; i < ops_count(&f, qkv); i++) {
            int64_t token = i / (3 * h), column = i % (3 * h);
            ops_set(&f, qkv, i, column >= 2 * h && column % d == f.batch.positions[token]);
        }
        ops_run(&f, backend_of(b), &f.ops[0], 2);
        for (int32_t s = 0; s < f.batch.sequences; s++)
            for (int64_t t = f.batch.offsets[s]; t < f.batch.offsets[s + 1]; t++)
                for (int64_t c = 0; c < h; c++) {
                    int64_t length = f.batch.offsets[s + 1] - f.batch.offsets[s], key = c % d;
                    double want = key < length ? attention_mask_at(&f, &f.ops[0], t, key, (uint32_t)(c / d)) : 0;
                    assert_mask(ops_get(&f, f.arena, o, t * h + c) * (double)length, want);
                }
        ops_close(&f);
    }
}

/* Runs dropout + residual + norm and attention over samples of one step, packed as given; the values of a token depend
   on its sample and position only. rows[sample][position] receives s and o. */
static void run_packed(const struct snug_backend *backend, const struct ops_shape *shape, const int32_t *samples,
                       float rows[][64][48]) {
    for (int family = 0; family < 2; family++) {
        struct ops f;
        ops_open(&f, shape, SNUG_F32);
        (family ? build_attention : build_residual_norm)(&f, 1);
        for (int32_t s = 0; s < f.batch.sequences; s++)
            for (int32_t t = f.batch.offsets[s]; t < f.batch.offsets[s + 1]; t++) f.batch.sample[t] = samples[s];
        const struct snug_op *op = &f.ops[0];
        for (int input = 0; input < 2 - family; input++) {
            const int32_t x = family ? op->attention.q : input ? op->residual_norm.x : op->residual_norm.z;
            int64_t cols = snug_run_cols(&f.run, x);
            for (int64_t i = 0; i < ops_count(&f, x); i++) {
                uint64_t token = (uint64_t)f.batch.sample[i / cols] << 32 | (uint32_t)f.batch.positions[i / cols] << 16;
                ops_set(&f, x, i, ops_value(60 + (uint32_t)input, token | (uint64_t)(i % cols)));
            }
        }
        ops_run(&f, backend, &f.ops[0], 1);
        for (int64_t i = 0; i < f.batch.tokens * 24; i++)
            rows[f.batch.sample[i / 24]][f.batch.positions[i / 24]][24 * family + i % 24] =
                (float)ops_get(&f, f.arena, family ? op->attention.o : op->residual_norm.s, i);
        ops_close(&f);
    }
}

/* A sample gets the same masks at any place of any batch. */
TEST(test_packing) {
    static const struct ops_shape one = {{3, 17, 64}, 24, 3, 50, 2, 37, 5, 3};
    static const struct ops_shape other = {{64, 5, 3}, 24, 3, 50, 2, 37, 5, 3};
    for (int b = 0; b < 2; b++) {
        float(*rows)[8][64][48] = ops_array(2, sizeof *rows);
        run_packed(backend_of(b), &one, (const int32_t[]){0, 1, 2}, rows[0]);
        run_packed(backend_of(b), &other, (const int32_t[]){2, 7, 0}, rows[1]);
        for (int sample = 0; sample < 3; sample += 2)
            for (int i = 0; i < one.lengths[sample] * 48; i++)
                if (!(fabsf((&rows[0][sample][0][0])[i] - (&rows[1][sample][0][0])[i]) <= 1e-6f))
                    fail_msg("sample %d, value %d changes with its neighbours", sample, i);
        free(rows);
    }
}

/* Counts stay within 5 standard deviations of a fair mask's. */
static void assert_fraction(int64_t hits, int64_t n, double p) {
    double deviation = fabs((double)hits - (double)n * p) / sqrt((double)n * p * (1 - p));
    if (!(deviation <= 5)) fail_msg("%ld of %ld, expected a fraction of %g", (long)hits, (long)n, p);
}

TEST(test_dropout_statistics) {
    static const struct ops_shape shape = {{300, 400}, 384, 12, 50, 2, 1, 1, 0};
    struct ops f;
    ops_open(&f, &shape, SNUG_F32);
    build_residual_norm(&f, 1);
    struct snug_op op = f.ops[0];
    double p = op.p, both = p * p;
    int64_t n = f.batch.tokens * shape.h;
    ops_fill(&f, op.residual_norm.z, 1);
    ops_fill(&f, op.residual_norm.x, 0);
    bool *dropped[4]; /* the same mask; another site; another step; another seed */
    for (int i = 0; i < 4; i++) {
        op.site = f.ops[0].site + (i == 1);
        f.run.step += i == 2;
        f.run.seed += i == 3;
        ops_run(&f, snug_backend_cpu(), &op, 2);
        dropped[i] = ops_array((size_t)n, sizeof(bool));
        for (int64_t e = 0; e < n; e++) dropped[i][e] = ops_get(&f, f.arena, op.residual_norm.s, e) == 0;
    }
    for (int i = 0; i < 4; i++) {
        int64_t count = 0, pairs = 0;
        for (int64_t e = 0; e < n; e++) count += dropped[i][e];
        assert_fraction(count, n, p);
        for (int64_t e = 0; i > 0 && e < n; e++) pairs += dropped[0][e] && dropped[i][e];
        if (i > 0) assert_fraction(pairs, n, both);
    }
    static const int64_t distances[] = {1, 2, 3, 4, 384, 300 * 384}; /* channels, positions, samples */
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        int64_t pairs = 0, count = n - distances[i];
        for (int64_t e = 0; e < count; e++) pairs += dropped[0][e] && dropped[0][e + distances[i]];
        assert_fraction(pairs, count, both);
    }
    for (int i = 0; i < 4; i++) free(dropped[i]);
    ops_close(&f);
}

TEST_MAIN(NULL, NULL)
