/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation on every backend that this machine has:
 *   test_ops [test | gradient | perf] [OPTION VALUE] …
 * Without a mode: test and gradient.
 * test      each backend against the reference, with the cases of ops_table.h: the same bits for any number of threads
 *           and when run twice; inputs and the memory around outputs untouched; what is added to and what is
 *           overwritten; empty batches; workspaces of exactly the bytes asked for.
 * gradient  the reference's gradients against finite differences.
 * perf      time, GB/s and GFLOP/s, see ops_perf.h.
 * --backend v2 | v3 | v4 | generic | cuda    this one only
 * --op NAME                                  this operation only
 * --type fp32 | bf16 | fp16 | tf32           this type only
 * --tokens N                                 of test: batches of at most N tokens only
 * of perf: --shape NAME, --threads N, --rounds N
 */
#include "ops_perf.h"
#include "ops_table.h"
#include "sanitized.h"

struct options {
    const char *backend, *op, *type;
    int tokens; /* 0: any number */
};
static struct options options;

static bool is_wanted(const char *value, const char *wanted) { return !wanted || strcmp(value, wanted) == 0; }

/* ---- backends --------------------------------------------------------------------------------------------------- */

static const char *const isa_names[] = {"v2", "v3", "v4", "generic"};
enum { ISAS = sizeof isa_names / sizeof *isa_names };

static snug_context *context;
static const struct snug_backend *isas[ISAS], *cuda; /* NULL: this machine lacks it, or it is not selected */
static char no_cuda[512];

static void open_backends(void) {
    for (int i = 0; i < ISAS; i++)
        if (is_wanted(isa_names[i], options.backend)) isas[i] = snug_backend_cpu_isa(isa_names[i]);
    if (is_wanted("cuda", options.backend) && snug_backend_cuda(context, &cuda) != SNUG_OK)
        snprintf(no_cuda, sizeof no_cuda, "cuda: not tested: %s", snug_error_message(context));
}

static bool has_host(void) {
    bool found = !options.backend || strcmp(options.backend, "reference") == 0;
    for (int i = 0; i < ISAS; i++) found |= isas[i] != NULL;
    return found;
}

/* Whether a backend has what a row requires. */
static bool has_needs(const struct ops_row *row, const struct snug_backend *backend) {
    return (!(row->needs & LAZY_ROWS) || backend->lazy_rows) && (!(row->needs & SCALES_LOSS) || backend->scales_loss) &&
           (!(row->needs & LOW_LOGITS) || backend->low_logits);
}
static bool suits_cuda(const struct ops_row *row) { return cuda && !(row->needs & HOST) && has_needs(row, cuda); }

/* ---- copies of the arena ---------------------------------------------------------------------------------------- */

/* Each copy has one place, which all cases use (ops_spare says why). */
enum copy { START, OVERWRITTEN, BEFORE, EXPECTED, OTHER, DOWNLOADED, DOWNLOADED_AGAIN, COPIES };

static uint8_t *place_of(enum copy copy) {
    static uint8_t *places[COPIES];
    if (!places[copy]) places[copy] = ops_map(OPS_ARENA);
    return places[copy];
}

static uint8_t *copy_to(enum copy copy, const struct ops *f) { return memcpy(place_of(copy), f->arena, f->bytes); }

/* ---- checks ----------------------------------------------------------------------------------------------------- */

struct check {
    struct ops *f;
    const struct ops_row *row;
    const char *what; /* the case as text */
    unsigned where;   /* ON_HOST, ON_GPU, ONCE */
};

static void check_untouched(const struct check *c, const struct snug_op *op, const uint8_t *before,
                            const uint8_t *after, const char *who) {
    const struct ops *f = c->f;
    for (int32_t t = 1; t < (int32_t)f->program.tensor_count; t++) {
        const struct snug_tensor *tensor = &f->tensors[t];
        const int64_t end = tensor->offset + tensor->bytes;
        bool changes = false;
        for (int64_t i = end; i < end + OPS_GAP; i++)
            if (after[i] != before[i])
                fail_msg("%s, %s: byte %d after tensor %d was written", c->what, who, (int)(i - end), (int)t);
        for (int k = 0; k < snug_op_operands(op); k++) changes |= op->operands[k] == t && ops_writes(op, k);
        if (!changes && memcmp(after + tensor->offset, before + tensor->offset, ops_live(f, t)) != 0)
            fail_msg("%s, %s: tensor %d is not an output, but was changed", c->what, who, (int)t);
    }
}

static double rms_of(const struct ops *f, const uint8_t *arena, int32_t t) {
    double sum = 0;
    for (int64_t i = 0, count = ops_count(f, t); i < count; i++) {
        const double value = ops_get(f, arena, t, i);
        sum += isfinite(value) ? value * value : 0;
    }
    return sqrt(sum / (double)(ops_count(f, t) ? ops_count(f, t) : 1));
}

static const char *operand_name(const struct snug_op *op, int k) { return snug_op_info(op->kind)->operands[k].name; }

static void compare_host(const struct check *c, const struct snug_op *op, const uint8_t *expected, const char *who) {
    const struct ops *f = c->f;
    for (int k = 0; k < snug_op_operands(op); k++) {
        const int32_t t = op->operands[k];
        if (!ops_writes(op, k)) continue;
        if (f->tensors[t].dtype == SNUG_U8) {
            ops_compare_codes(f, expected, f->arena, t, c->what);
            continue;
        }
        /* In bf16 an s may be rounded to either neighbour before it is read again. Only the tests of NORM itself and of
           recomputation are exact there. */
        const bool sum = op->kind == SNUG_OP_RESIDUAL_NORM && k == OPERAND(residual_norm.y);
        const bool rounded = f->program.compute == SNUG_BF16 && sum, bf16 = f->tensors[t].dtype == SNUG_BF16;
        const double rms = rms_of(f, expected, t);
        for (int64_t i = 0, count = ops_count(f, t); i < count; i++) {
            const double want = ops_get(f, expected, t, i), got = ops_get(f, f->arena, t, i), size = fabs(want) + rms;
            double bound = c->row->host.fp32 * 0x1p-23 * size + (bf16 ? c->row->host.bf16 * 0x1p-7 * fabs(want) : 0);
            if (rounded) bound = 0x1p-6 * size;
            if (want == got || fabs(want - got) <= bound) continue;
            fail_msg("%s, %s: %s, element %ld of %ld columns: %.9g, expected %.9g, within %.3g", c->what, who,
                     operand_name(op, k), (long)i, (long)snug_run_cols(&f->run, t), got, want, bound);
        }
    }
}

static double worst_fp32, worst_low, worst_tf32; /* for the GPU, in units of the tolerances */

static void compare_gpu(const struct check *c, const struct snug_op *op, const uint8_t *expected,
                        const uint8_t *found) {
    const struct ops *f = c->f;
    for (int k = 0; k < snug_op_operands(op); k++) {
        const int32_t t = op->operands[k];
        if (!ops_writes(op, k)) continue;
        if (f->tensors[t].dtype == SNUG_U8) {
            ops_compare_codes(f, expected, found, t, c->what);
            continue;
        }
        /* The fp32 gradients of a 16-bit program may be computed from 16-bit values. */
        const bool bf16 = f->program.compute == SNUG_BF16 || f->tensors[t].dtype == SNUG_BF16;
        const bool low = bf16 || f->program.compute == SNUG_F16 || f->program.tf32;
        const double digits = bf16 ? 0x1p-8 : low ? 0x1p-11 : 0x1p-23;
        const double bound = (low ? c->row->gpu.bf16 : c->row->gpu.fp32) * digits;
        double rms = rms_of(f, expected, t);
        /* A token alone has no gradient: what is left is the rounding of terms of dout's size. */
        if (op->kind == SNUG_OP_ATTENTION_BACKWARD) {
            const double terms = rms_of(f, expected, op->attention_backward.dout);
            if (rms < 1e-6 * terms) rms = terms;
        }
        double off = 0;
        for (int64_t i = 0, count = ops_count(f, t); i < count; i++) {
            const double want = ops_get(f, expected, t, i), got = ops_get(f, found, t, i), size = fabs(want) + rms;
            if (got == want || (isnan(got) && isnan(want))) continue;
            const double error = fabs(got - want) / size;
            if (!(error <= bound))
                fail_msg("%s, cuda: %s, element %ld of %ld: %.9g, expected %.9g (rms %.3g)", c->what,
                         operand_name(op, k), (long)i, (long)count, got, want, rms);
            double *worst = f->program.tf32 ? &worst_tf32 : low ? &worst_low : &worst_fp32;
            *worst = fmax(*worst, error / digits);
            off += (got - want) * (got - want) / (double)count;
        }
        /* What an operation adds to is rounded in each of two runs. */
        const bool addend = op->kind == SNUG_OP_LINEAR && op->linear.addend; /* cuBLASLt may round the product, too */
        /* Gradients of position keys and queries are sums of dS in 16 bits, which are rounded again; so are the
           products in its scores. */
        const bool sums = op->kind == SNUG_OP_ATTENTION_BACKWARD &&
                          (k == OPERAND(attention_backward.dpk) || k == OPERAND(attention_backward.dpq));
        if (low && !(sqrt(off) <= (snug_op_uses(op, t) || addend || sums ? 2 : 1) * digits * rms))
            fail_msg("%s, cuda: %s: relative error %g", c->what, operand_name(op, k), sqrt(off) / rms);
    }
}

/* The outputs in two arenas have the same bits. */
static void check_same(const struct check *c, const struct snug_op *op, const uint8_t *one, const uint8_t *other,
                       const char *who, const char *when) {
    for (int k = 0; k < snug_op_operands(op); k++) {
        if (!ops_writes(op, k)) continue;
        const int64_t offset = c->f->tensors[op->operands[k]].offset;
        if (memcmp(one + offset, other + offset, ops_live(c->f, op->operands[k])) != 0)
            fail_msg("%s, %s: %s has different bits %s", c->what, who, operand_name(op, k), when);
    }
}

/* Runs op on every instruction set and number of threads, from the same arena. */
static void check_host(const struct check *c, const struct snug_op *op, const uint8_t *before,
                       const uint8_t *expected) {
    for (int isa = 0; isa < ISAS; isa++) {
        const uint8_t *single = NULL;
        const bool suits = isas[isa] && has_needs(c->row, isas[isa]);
        const int most = SANITIZED && isa + 1 < ISAS && isas[isa + 1] ? 1 : 3; /* sanitized, of the widest alone */
        for (int threads = 1; suits && threads <= most; threads += 2) {
            memcpy(c->f->arena, before, c->f->bytes);
            ops_run(c->f, isas[isa], op, threads);
            check_untouched(c, op, before, c->f->arena, isa_names[isa]);
            if (threads == 1) {
                compare_host(c, op, expected, isa_names[isa]);
                single = copy_to(OTHER, c->f);
            }
            check_same(c, op, c->f->arena, single, isa_names[isa], "with more threads");
        }
    }
}

static void check_gpu(const struct check *c, const struct snug_op *op, const uint8_t *before, const uint8_t *expected) {
    uint8_t *found = place_of(DOWNLOADED), *again = place_of(DOWNLOADED_AGAIN);
    ops_run_device(c->f, cuda, op, before, found);
    check_untouched(c, op, before, found, "cuda");
    compare_gpu(c, op, expected, found);
    ops_run_device(c->f, cuda, op, before, again);
    check_same(c, op, found, again, "cuda", "the second time");
}

/* Where an operation adds: the old value plus the result of overwriting, unless rows are scattered. */
static void check_added(const struct check *c, const struct snug_op *op, const uint8_t *before,
                        const uint8_t *overwritten) {
    const struct ops *f = c->f;
    for (int k = 0; k < snug_op_operands(op); k++) {
        const int32_t t = op->operands[k];
        if (!ops_writes(op, k) || !ops_adds(f, op, k)) continue;
        for (int64_t e = 0, count = ops_count(f, t); e < count; e++) {
            const double old = ops_get(f, before, t, e), part = ops_get(f, overwritten, t, e);
            const double sum = ops_get(f, f->arena, t, e);
            if (!(fabs(sum - (old + part)) <= 0x1p-22 * (fabs(old) + fabs(part))))
                fail_msg("%s: %s, element %ld: %.9g, expected %.9g + %.9g", c->what, operand_name(op, k), (long)e, sum,
                         old, part);
        }
    }
}

/* On one rank a second micro-batch adds the sum that another rank would have computed: the same bits as adding what
   overwriting gives. Of bf16 products, those of 1024 rows; an index has other rows; biases of attention are added in
   double. */
static void check_complete(const struct check *c, struct snug_op op, const uint8_t *start) {
    struct ops *f = c->f;
    const bool whole = op.kind == SNUG_OP_NORM_BACKWARD || op.kind == SNUG_OP_LINEAR_DW ||
                       (op.kind == SNUG_OP_EMBED_BACKWARD && !op.embed_backward.index);
    if (!whole || f->batch.tokens > 1024) return;
    op.first = f->program.accumulates = true;
    for (int isa = -1; isa < ISAS; isa++) {
        const struct snug_backend *backend = isa < 0 ? snug_backend_reference() : isas[isa];
        if (!backend || (isa < 0 && c->where & ONCE)) continue;
        memcpy(f->arena, start, f->bytes);
        f->run.micro_batch = 0;
        ops_run(f, backend, &op, 2);
        const uint8_t *part = copy_to(OTHER, f);
        memcpy(f->arena, start, f->bytes);
        f->run.micro_batch = 1;
        ops_run(f, backend, &op, 2);
        for (int k = 0; k < snug_op_operands(&op); k++) {
            const int32_t t = op.operands[k];
            if (!ops_writes(&op, k) || !ops_adds(f, &op, k)) continue;
            for (int64_t e = 0, count = ops_count(f, t); e < count; e++) {
                const float old = (float)ops_get(f, start, t, e), more = (float)ops_get(f, part, t, e);
                const float found = (float)ops_get(f, f->arena, t, e);
                if (found != old + more)
                    fail_msg("%s, %s: %s, element %ld: %.9g is not %.9g + %.9g", c->what, backend->name,
                             operand_name(&op, k), (long)e, (double)found, (double)old, (double)more);
            }
        }
    }
    f->run.micro_batch = 0;
    f->program.accumulates = false;
}

static unsigned kept_by(const struct ops *f, const struct snug_op *op) {
    unsigned kept = 0;
    for (int k = 0; k < snug_op_operands(op); k++) kept |= (unsigned)(ops_writes(op, k) && ops_keeps(f, op, k)) << k;
    return kept;
}

/* Gradients of one dy, one after the other in the program, which a GPU may compute together: with the same bits. */
static void check_pair(const struct check *c) {
    struct ops *f = c->f;
    struct ops_device d;
    uint8_t *found[] = {place_of(DOWNLOADED), place_of(DOWNLOADED_AGAIN)};
    const uint8_t *start = copy_to(START, f);
    for (int i = 0; i < 2; i++) ops_run(f, snug_backend_reference(), &f->ops[i], 1);
    const uint8_t *expected = copy_to(EXPECTED, f);
    for (int apart = 0; apart < 2; apart++) {
        ops_device_open(f, cuda, 1, &d);
        ops_must(f, snug_block_copy(f->ctx, &d.arena, d.arena.base, start, (int64_t)f->bytes), "upload");
        ops_must(f, cuda->load(&d.run), "load");
        for (int i = 0; i < 2; i++) {
            const struct snug_op copy = f->ops[i];
            ops_must(f, cuda->ops[copy.kind](&d.run, apart ? &copy : &f->ops[i]), "operation");
        }
        ops_must(f, snug_block_copy(f->ctx, &d.arena, found[apart], d.arena.base, (int64_t)f->bytes), "download");
        ops_device_close(cuda, &d);
    }
    for (int i = 0; i < 2; i++) compare_gpu(c, &f->ops[i], expected, found[0]);
    assert_memory_equal(found[0], found[1], f->bytes);
}

/* Leaves the arena in the reference's state, for the operations that follow. */
static void check_op(const struct check *c, struct snug_op op) {
    static const struct {
        bool first;
        int64_t micro_batch, chunk;
    } states[] = {{true, 0, 0}, {true, 1, 0}, {true, 0, 1}, {false, 0, 0}};
    struct ops *f = c->f;
    const uint8_t *start = copy_to(START, f), *overwritten = NULL;
    unsigned kept_first = 0;
    for (size_t s = 0; s < sizeof states / sizeof *states; s++) {
        op.first = states[s].first;
        f->run.micro_batch = states[s].micro_batch;
        f->run.chunk = states[s].chunk;
        if (s == 0) kept_first = kept_by(f, &op);
        if (s > 0 && (kept_by(f, &op) == kept_first || c->where & ONCE)) continue; /* repeats a case, or is slow */
        memcpy(f->arena, start, f->bytes);
        ops_spoil(f, &op);
        const uint8_t *before = copy_to(BEFORE, f);
        ops_run(f, snug_backend_reference(), &op, 1);
        check_untouched(c, &op, before, f->arena, "reference");
        const uint8_t *expected = copy_to(EXPECTED, f);
        if (s == 0)
            overwritten = copy_to(OVERWRITTEN, f);
        else
            check_added(c, &op, before, overwritten);
        if (c->where & ON_HOST) check_host(c, &op, before, expected);
        if (c->where & ON_GPU) check_gpu(c, &op, before, expected);
    }
    f->run.chunk = 0;
    if (c->where & ON_HOST) check_complete(c, op, start);
    memcpy(f->arena, overwritten, f->bytes);
    f->run.micro_batch = 0;
}

/* ---- mode test -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum snug_dtype dtype;
    unsigned where;
    bool tf32; /* for attention only */
} types[] = {{"fp32", SNUG_F32, ON_HOST | ON_GPU, false},
             {"bf16", SNUG_BF16, ON_HOST | ON_GPU, false},
             {"fp16", SNUG_F16, ON_GPU, false},
             {"tf32", SNUG_F32, ON_GPU, true}};
enum { TYPES = sizeof types / sizeof *types };

/* Whether an operation of the row's kind was in the case. */
static bool check_case(const struct ops_row *row, size_t shape, int type, int variant, unsigned where) {
    struct ops f;
    bool seen = false;
    char what[96];
    const struct check check = {.f = &f, .row = row, .what = what, .where = where};
    snprintf(what, sizeof what, "%s, shape %zu, %s, variant %d", snug_op_name(row->kind), shape, types[type].name,
             variant);
    ops_open(&f, &ops_shapes[shape].shape, types[type].dtype);
    f.quick = true;
    f.program.tf32 = types[type].tf32;
    row->build(&f, variant);
    for (size_t i = 0; i < f.program.op_count; i++)
        if (f.ops[i].kind == row->kind) {
            check_op(&check, f.ops[i]);
            seen = true;
        } else if (ops_feeds(&f, i, row->kind)) {
            ops_run(&f, snug_backend_reference(), &f.ops[i], 1);
        }
    if (row->build == build_thin && where & ON_GPU) check_pair(&check);
    ops_close(&f);
    return seen;
}

static bool is_small(const struct ops_shape *shape) {
    int64_t tokens = 0;
    for (const int32_t *length = shape->lengths; *length; length++) tokens += *length;
    return !options.tokens || tokens <= options.tokens;
}

static void check_row(const struct ops_row *row) {
    const bool attention = row->kind == SNUG_OP_ATTENTION || row->kind == SNUG_OP_ATTENTION_BACKWARD;
    size_t only = OPS_SHAPES;
    bool seen = false;
    for (size_t shape = 0; shape < OPS_SHAPES; shape++)
        for (int type = 0; type < TYPES; type++) {
            unsigned where = ops_shapes[shape].where & (types[type].where | ONCE);
            if (!has_host()) where &= ~(unsigned)ON_HOST;
            if (!suits_cuda(row) || (cuda->lacks_bf16 && (types[type].dtype == SNUG_BF16 || types[type].tf32)))
                where &= ~(unsigned)ON_GPU;
            if (!(where & (ON_HOST | ON_GPU)) || (types[type].tf32 && !attention)) continue;
            if (SANITIZED && attention && (where & ONCE))
                continue; /* half of all the time; others have its ends of tiles */
            if (!is_wanted(types[type].name, options.type) || !is_small(&ops_shapes[shape].shape)) continue;
            if (row->build == build_thin && only != shape && only < OPS_SHAPES) continue; /* its sizes are its own */
            only = shape;
            for (int variant = row->first; variant < row->end; variant++) {
                /* The large shapes take most of the time: on the host of a row's first variant, and of some others. So
                   does attention of each: of two variants one, after the small shape. */
                const long number = type + variant - row->first;
                const bool skips =
                    ((where & ONCE) && !is_chosen(number, 6)) ||
                    (attention && shape > 0 && variant > row->first && !is_chosen(number + (long)shape, 2));
                const unsigned here = skips ? where & ~(unsigned)ON_HOST : where;
                if (here & (ON_HOST | ON_GPU)) seen |= check_case(row, shape, type, variant, here);
            }
        }
    if (!seen && !options.type && (has_host() || suits_cuda(row)))
        fail_msg("no case of %s, variants %d to %d, has this operation", snug_op_name(row->kind), row->first,
                 row->end - 1);
}

static void test_agreement(void **state) {
    const enum snug_op_kind kind = *(const enum snug_op_kind *)*state;
    const struct ops_row *gpu = NULL;
    worst_fp32 = worst_low = worst_tf32 = 0;
    for (size_t i = 0; i < OPS_ROWS; i++) {
        if (ops_rows[i].kind != kind || !ops_rows[i].build) continue;
        check_row(&ops_rows[i]);
        if (suits_cuda(&ops_rows[i])) gpu = &ops_rows[i];
    }
    if (gpu)
        print_message(
            "%-20s worst error on the GPU %7.2f of %3g x 2^-23, %5.2f of %g x 2^-8 or 2^-11, %.2f with TF32\n",
            snug_op_name(kind), worst_fp32, gpu->gpu.fp32, worst_low, gpu->gpu.bf16, worst_tf32);
}

static void test_every_operation_is_tested(void **state) {
    (void)state;
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        bool found = false;
        for (size_t i = 0; i < OPS_ROWS; i++) found |= ops_rows[i].kind == (enum snug_op_kind)kind;
        if (!found)
            fail_msg("%s has no test: add a row to tests/support/ops_table.h", snug_op_name((enum snug_op_kind)kind));
    }
}

/* ---- mode gradient ---------------------------------------------------------------------------------------------- */

/*
 * The derivative of sum(weights * y) along a direction of -1, 0 and 1, by the central difference of fourth order with
 * steps that are exact in fp32. Two errors, both independent from one element of y to the next: rounding, 2^-24 of each
 * y that changes at all, and as much for the s within a norm, is divided by the step; truncation, step^4 / 30 of a
 * fifth derivative, is below 2^-14 of the element's own derivative.
 */
static void check_direction(struct ops *f, int32_t x, const float *at, const double *direction, double analytic,
                            const double *weights, const char *what) {
    static const double multiples[4] = {1, -1, 2, -2}, step = 0x1p-5;
    const int64_t count = ops_count(f, f->y), moved = ops_count(f, x);
    double *y[4], numeric = 0, rounding = 0, truncation = 0;
    for (int m = 0; m < 4; m++) {
        for (int64_t i = 0; i < moved; i++) ops_set(f, x, i, at[i] + multiples[m] * step * direction[i]);
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
    uint8_t *gradients = ops_copy(f); /* LOSS writes its gradient in every run */
    memcpy(at, f->arena + f->tensors[x].offset, (size_t)count * sizeof *at);
    for (uint32_t trial = 0; trial < 24; trial++) { /* 8 directions over all of x, then 16 single elements */
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

static void check_gradients(const struct ops_row *row, int variant) {
    static const struct ops_shape shape = {{1, 2, 17, 65}, 24, 3, 50, 2, 37, 5, 20};
    struct ops f;
    ops_open(&f, &shape, SNUG_F32);
    row->build(&f, variant);
    if (f.ops[0].kind == row->kind && f.pair_count) {
        double *weights = ops_array((size_t)ops_count(&f, f.y), sizeof *weights);
        for (int64_t i = 0, count = ops_count(&f, f.y); i < count; i++)
            weights[i] = f.dy ? ops_get(&f, f.arena, f.dy, i) : (double)f.run.loss_scale;
        for (size_t i = 0; i < f.program.op_count; i++) {
            f.ops[i].first = true;
            ops_spoil(&f, &f.ops[i]);
            ops_run(&f, snug_backend_reference(), &f.ops[i], 1);
        }
        for (size_t i = 0; i < f.pair_count; i++) {
            char what[64];
            snprintf(what, sizeof what, "%s, variant %d, input %d", snug_op_name(row->kind), variant, (int)i);
            check_gradient(&f, f.pairs[i].x, f.pairs[i].dx, weights, what);
        }
        free(weights);
    }
    ops_close(&f);
}

static void test_gradients(void **state) {
    (void)state;
    for (size_t i = 0; i < OPS_ROWS; i++)
        for (int variant = ops_rows[i].first; variant < ops_rows[i].end; variant++)
            if (is_wanted(snug_op_name(ops_rows[i].kind), options.op)) check_gradients(&ops_rows[i], variant);
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static int usage(const char *argument) {
    fprintf(stderr,
            "test_ops: \"%s\" is not known\n"
            "usage: test_ops [test | gradient | perf] [--backend v2|v3|v4|generic|cuda] [--op NAME]\n"
            "                [--type fp32|bf16|fp16|tf32] [--shape NAME|SEQUENCESxLENGTHxHEADSxHEAD_SIZE[r]]\n"
            "                [--tokens N] [--threads N] [--rounds N]\n",
            argument);
    return 2;
}

static bool is_operation(const char *name) {
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        if (strcmp(name, snug_op_name((enum snug_op_kind)kind)) == 0) return true;
    return false;
}

static int run_modes(bool agreement, bool gradients) {
    static enum snug_op_kind kinds[SNUG_OP_COUNT];
    struct CMUnitTest tests[SNUG_OP_COUNT + 2] = {cmocka_unit_test(test_every_operation_is_tested)};
    size_t count = 1;
    if (gradients) tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_gradients);
    for (int kind = 0; agreement && kind < SNUG_OP_COUNT; kind++) {
        kinds[kind] = (enum snug_op_kind)kind;
        if (!is_wanted(snug_op_name(kinds[kind]), options.op)) continue;
        tests[count++] = (struct CMUnitTest){
            .name = snug_op_name(kinds[kind]), .test_func = test_agreement, .initial_state = &kinds[kind]};
    }
    if (*no_cuda) print_message("%s\n", no_cuda);
    return _cmocka_run_group_tests("operations", tests, count, NULL, NULL);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    struct ops_perf perf = {.threads = 1};
    const struct {
        const char *name, **text;
        int *number;
    } known[] = {{"--backend", &options.backend, NULL}, {"--op", &options.op, NULL},
                 {"--type", &options.type, NULL},       {"--shape", &perf.shape, NULL},
                 {"--tokens", NULL, &options.tokens},   {"--threads", NULL, &perf.threads},
                 {"--rounds", NULL, &perf.rounds}};
    for (int i = *mode ? 2 : 1; i < argc; i += 2) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(argv[i], known[k].name) != 0) k++;
        if (k == sizeof known / sizeof *known || i + 1 == argc) return usage(argv[i]);
        if (known[k].text) *known[k].text = argv[i + 1];
        if (known[k].number && (*known[k].number = atoi(argv[i + 1])) < 1) return usage(argv[i + 1]);
    }
    if (options.op && !is_operation(options.op)) return usage(options.op);
    if (snug_context_create(&context) != SNUG_OK) return 1;
    open_backends();
    if (options.backend && *no_cuda) { /* it was asked for */
        fprintf(stderr, "%s\n", no_cuda);
        return 1;
    }
    int result = 2;
    if (strcmp(mode, "perf") == 0) {
        perf.backend = options.backend;
        perf.op = options.op;
        perf.type = options.type;
        result = ops_perf_run(context, &perf);
    } else if (strcmp(mode, "test") == 0 || strcmp(mode, "gradient") == 0 || !*mode) {
        result = run_modes(strcmp(mode, "gradient") != 0, strcmp(mode, "test") != 0);
    } else {
        usage(mode);
    }
    snug_context_destroy(context);
    return result;
}
