/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode perf of test_ops: time, GB/s and GFLOP/s of each operation at the shapes of MiniLM on short texts and of
 * BERT-base and -large. FLOPs and bytes are those of snug_op_cost(). Of a CPU the best of the rounds; of a GPU the mean
 * of operations that are recorded and replayed as a step's are. test_ops perf [--backend cpu | v2 | … | cuda] [--op
 * NAME] [--type fp32 | bf16 | fp16 | tf32]
 *                 [--shape minilm | base | large | large32 | SEQUENCESxLENGTHxHEADSxHEAD_SIZE[r]] [--threads N]
 * [--rounds N] A custom shape that ends with r is ragged: lengths from a sixteenth of LENGTH up.
 */
#ifndef SNUG_TESTS_OPS_PERF_H
#define SNUG_TESTS_OPS_PERF_H

#include "ops_table.h"
#include "run/run.h"

struct ops_perf {
    const char *backend, *op, *type, *shape;
    int threads, rounds;
};

struct perf_shape {
    const char *name;
    int32_t sequences, shortest, longest, heads, head_size;
};

enum { PERF_VOCABULARY = 30522, PERF_ROWS_MOST = 512, PERF_REPEATS = 16 };
#define PERF_ROOM ((size_t)64 << 30) /* of address space; pages are allocated when they are written */

static const struct perf_shape perf_shapes[] = {{"minilm", 32, 5, 41, 12, 32},
                                                {"base", 8, 128, 128, 12, 64},
                                                {"large", 4, 512, 512, 16, 64},
                                                {"large32", 32, 512, 512, 16, 64}};

/* The matmuls of a layer, in multiples of the hidden size, and the decoder's. */
static const struct {
    const char *name;
    int64_t outputs, inputs;
} perf_matmuls[] = {{"qkv", 3, 1}, {"attention", 1, 1}, {"up", 4, 1}, {"down", 1, 4}};

/* Runs of the operation in one phase, after those that compute its inputs. */
static int perf_program(struct ops *f, enum snug_op_kind kind, int repeats, struct snug_op *ops) {
    const struct snug_op *found = NULL;
    int count = 0;
    for (size_t i = 0; i < f->program.op_count && !found; i++) {
        if (f->ops[i].kind == kind) {
            found = &f->ops[i];
        } else if (ops_feeds(f, i, kind)) {
            ops[count] = f->ops[i];
            ops[count++].phase = SNUG_PHASE_PREPARE;
        }
    }
    for (int i = 0; found && i < repeats; i++) {
        ops[count] = *found;
        ops[count].first = true;
        ops[count++].phase = SNUG_PHASE_FORWARD;
    }
    f->program.ops = ops;
    f->program.op_count = (size_t)count;
    return found ? count : 0;
}

static void perf_wait(const struct ops *f, const struct ops_device *d) {
    char byte;
    ops_must(f, snug_block_copy(f->ctx, &d->arena, &byte, d->arena.base, 1), "wait");
}

/* Seconds of one phase. */
static double perf_time(const struct ops *f, const struct snug_backend *backend, struct ops_device *d, int rounds) {
    const int warm = 3;
    double best = INFINITY, begin = 0;
    for (int round = -warm; round < rounds; round++) {
        if (round == 0 && d->arena.copy) perf_wait(f, d);
        if (round <= 0 || !d->arena.copy) begin = snug_seconds();
        ops_must(f, snug_run_phase(&d->run, backend, SNUG_PHASE_FORWARD, NULL), "phase");
        if (!d->arena.copy) best = fmin(best, snug_seconds() - begin);
    }
    if (!d->arena.copy) return best;
    perf_wait(f, d);
    return (snug_seconds() - begin) / rounds;
}

static void perf_case(const struct snug_backend *backend, const struct ops_perf *perf, const struct ops_row *row,
                      int variant, const struct ops_shape *shape, const int32_t *lengths, int type, const char *name) {
    struct ops f;
    struct ops_device d;
    struct snug_op ops[OPS_OPS + PERF_REPEATS];
    const bool gpu = strcmp(backend->name, "cuda") == 0;
    const int repeats = gpu ? PERF_REPEATS : 1;
    ops_open_with(&f, shape, type == 1 ? SNUG_BF16 : type == 2 ? SNUG_F16 : SNUG_F32, lengths, PERF_ROOM);
    f.quick = true;
    f.program.tf32 = type == 3;
    f.run.first_row = 0;
    f.run.rows = f.program.capacity[SNUG_EXTENT_ROWS] = f.batch.rows;
    row->build(&f, variant);
    if (perf_program(&f, row->kind, repeats, ops)) {
        ops_device_open(&f, backend, gpu ? 1 : perf->threads, &d);
        ops_must(&f, snug_block_copy(f.ctx, &d.arena, d.arena.base, f.arena, (int64_t)f.bytes), "upload");
        ops_must(&f, snug_run_phase(&d.run, backend, SNUG_PHASE_PREPARE, NULL), "inputs");
        const double seconds = perf_time(&f, backend, &d,
                                         perf->rounds ? perf->rounds
                                         : gpu        ? 10
                                                      : 20) /
                               (double)repeats;
        const struct snug_cost cost =
            snug_op_cost(&f.program, &f.program.ops[f.program.op_count - 1], (double)f.batch.tokens,
                         (double)f.batch.sequences, (double)f.run.rows);
        printf("%-20s %7d %-8s %-18s %6d %10.1f %9.1f %10.1f\n", snug_op_name(row->kind), variant,
               (const char *[]){"fp32", "bf16", "fp16", "tf32"}[type], name, (int)f.batch.tokens, 1e6 * seconds,
               1e-9 * cost.bytes / seconds, 1e-9 * cost.flops / seconds);
        fflush(stdout);
        ops_device_close(backend, &d);
    }
    f.program.ops = f.ops;
    ops_close(&f);
}

static bool perf_parse_shape(const char *text, struct perf_shape *shape) {
    char ragged = 0, rest = 0;
    *shape = (struct perf_shape){.name = text};
    for (size_t i = 0; i < sizeof perf_shapes / sizeof *perf_shapes; i++)
        if (strcmp(text, perf_shapes[i].name) == 0) {
            *shape = perf_shapes[i];
            return true;
        }
    const int fields = sscanf(text, "%dx%dx%dx%d%c%c", &shape->sequences, &shape->longest, &shape->heads,
                              &shape->head_size, &ragged, &rest);
    shape->shortest = ragged ? (shape->longest + 15) / 16 : shape->longest;
    return (fields == 4 || (fields == 5 && ragged == 'r')) && shape->sequences > 0 && shape->longest > 0 &&
           shape->heads > 0 && shape->head_size > 0 && (int64_t)shape->sequences * shape->longest <= 1 << 20 &&
           (int64_t)shape->heads * shape->head_size <= 1 << 14;
}

/* A row at one shape: matmuls at each size of a layer. */
static void perf_row(const struct snug_backend *backend, const struct ops_perf *perf, const struct ops_row *row,
                     int variant, const struct perf_shape *shape, int type) {
    const bool matmul = row->kind == SNUG_OP_LINEAR || row->kind == SNUG_OP_LINEAR_DX || row->kind == SNUG_OP_LINEAR_DW;
    const bool activation = row->kind == SNUG_OP_ACTIVATION || row->kind == SNUG_OP_ACTIVATION_BACKWARD;
    const int64_t h = (int64_t)shape->heads * shape->head_size;
    struct ops_shape sizes = {.h = h,
                              .heads = shape->heads,
                              .vocabulary = PERF_VOCABULARY,
                              .types = 2,
                              .outputs = activation ? 4 * h : PERF_VOCABULARY, /* the latter for updates */
                              .classes = row->kind == SNUG_OP_LOSS ? PERF_VOCABULARY : 1};
    int32_t *lengths = ops_array((size_t)shape->sequences + 1, sizeof *lengths);
    for (int64_t i = 0; i < shape->sequences; i++) {
        lengths[i] = shape->longest - (int32_t)((shape->longest - shape->shortest) * i / shape->sequences);
        sizes.rows += lengths[i];
    }
    if (sizes.rows > PERF_ROWS_MOST) sizes.rows = PERF_ROWS_MOST;
    char name[64];
    for (size_t i = 0; matmul && i < sizeof perf_matmuls / sizeof *perf_matmuls; i++) {
        sizes.h = perf_matmuls[i].inputs * h;
        sizes.outputs = perf_matmuls[i].outputs * h;
        snprintf(name, sizeof name, "%s %s", shape->name, perf_matmuls[i].name);
        perf_case(backend, perf, row, variant, &sizes, lengths, type, name);
    }
    sizes.h = h;
    snprintf(name, sizeof name, "%s%s", shape->name, matmul ? " decoder" : "");
    perf_case(backend, perf, row, matmul ? variant + 1 : variant, &sizes, lengths, type, name);
    free(lengths);
}

/* Exit status. */
static int ops_perf_run(snug_context *ctx, const struct ops_perf *perf) {
    static const char *const type_names[] = {"fp32", "bf16", "fp16", "tf32"};
    const struct snug_backend *backend = NULL;
    struct perf_shape own;
    const bool gpu = perf->backend && strcmp(perf->backend, "cuda") == 0;
    if (!perf->backend || strcmp(perf->backend, "cpu") == 0)
        backend = snug_backend_cpu();
    else if (!gpu)
        backend = snug_backend_cpu_isa(perf->backend);
    else if (snug_backend_cuda(ctx, &backend) != SNUG_OK)
        backend = NULL;
    if (!backend) {
        fprintf(stderr, "test_ops: backend %s is not here: %s\n", perf->backend,
                gpu ? snug_error_message(ctx) : "this machine or build lacks the instruction set");
        return 1;
    }
    if (perf->shape && !perf_parse_shape(perf->shape, &own)) {
        fprintf(stderr, "test_ops: \"%s\" is no shape, see tests/backend/ops_perf.h\n", perf->shape);
        return 2;
    }
    printf("%s, %d thread%s\n%-20s %7s %-8s %-18s %6s %10s %9s %10s\n", backend->name, gpu ? 1 : perf->threads,
           !gpu && perf->threads > 1 ? "s" : "", "operation", "variant", "type", "shape", "tokens", "us", "GB/s",
           "GFLOP/s");
    for (size_t r = 0; r < OPS_ROWS; r++) {
        const struct ops_row *row = &ops_rows[r];
        if ((perf->op && strcmp(perf->op, snug_op_name(row->kind)) != 0) ||
            (row->needs & LAZY_ROWS && !backend->lazy_rows) || (row->needs & SCALES_LOSS && !backend->scales_loss))
            continue;
        for (int type = 0; type < (gpu ? 4 : 2); type++) {
            const bool wanted = perf->type ? strcmp(perf->type, type_names[type]) == 0 : type < 2;
            for (int variant = row->first; wanted && variant < row->end; variant++) {
                if (!(row->measured >> variant & 1)) continue;
                if (perf->shape) perf_row(backend, perf, row, variant, &own, type);
                const size_t shapes = sizeof perf_shapes / sizeof *perf_shapes - (gpu ? 0 : 1);
                for (size_t s = 0; !perf->shape && s < shapes; s++)
                    perf_row(backend, perf, row, variant, &perf_shapes[s], type);
            }
        }
    }
    return 0;
}

#endif
