/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An optimizer's update has the same bits on every instruction set of the CPU and on a GPU (optim/formulas/formula.h),
 * for the cases of ops_updates.h with ordinary values; with values of all magnitudes, subnormal numbers and zeros; and
 * with gradients that are not finite. Only NaNs may differ from each other. A GPU's part runs where there is one, or
 * its emulator (tools/cuda-emulate test_update_bits).
 */
#include "ops_table.h"

static const struct ops_shape shapes[] = {
    {{3}, 37, 1, 8, 2, 5, 2, 3},    /* less than a vector in a row; ends of vectors */
    {{3}, 300, 1, 8, 2, 70, 2, 3},  /* Adafactor: three parts of rows, and lanes of one or two chunks of columns */
    {{3}, 1100, 1, 8, 2, 20, 2, 3}, /* several parts of an update, and of a quantized block */
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

enum values { ORDINARY, ALL_MAGNITUDES, NOT_FINITE, KINDS_OF_VALUES };
static const char *const names_of_values[] = {"ordinary values", "values of all magnitudes", "infinities and NaNs"};

/* The backends; the first one is compared with the others. */
static const char *const isa_names[] = {"v2", "v3", "v4", "generic"};
enum { ISAS = sizeof isa_names / sizeof *isa_names };
static const struct snug_backend *backends[ISAS + 1];
static const char *backend_names[ISAS + 1];
static int backend_count;

static int open_backends(void **state) {
    static snug_context *context;
    if (snug_context_create(&context) != SNUG_OK) return -1;
    *state = context;
    for (int i = 0; i < ISAS; i++) {
        backends[backend_count] = snug_backend_updates(isa_names[i]);
        backend_names[backend_count] = isa_names[i];
        backend_count += backends[backend_count] != NULL;
    }
    if (snug_backend_cuda(context, &backends[backend_count]) == SNUG_OK)
        backend_names[backend_count++] = "cuda";
    else
        print_message("cuda: not tested: %s\n", snug_error_message(context));
    return 0;
}

static int close_backends(void **state) {
    snug_context_destroy(*state);
    return 0;
}

/* A number with a random sign and exponent; 1 in 8 is subnormal, 1 in 16 is 0. most: of the exponent. */
static float number(uint32_t stream, uint64_t i, uint32_t most) {
    const uint32_t word = ops_word(stream, 2 * i), choice = ops_word(stream, 2 * i + 1);
    const uint32_t exponent = choice % 8 ? choice / 16 % (127 + most) : 0;
    const uint32_t bits = (word & 0x807fffffu) | exponent << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return choice % 16 == 8 ? copysignf(0, value) : value;
}

/* Replaces what the case filled in. Squares of 8-bit Adam's gradients stay finite: in a block whose absmax is not a
   number, codes mean nothing. */
static void spread(struct ops *f, const struct snug_op *op, enum values values) {
    const uint32_t most = op->kind == SNUG_OP_ADAM_8BIT ? 50 : 120;
    const struct snug_update *u = &op->update;
    if (values == NOT_FINITE) {
        const float odd[] = {INFINITY, -INFINITY, NAN, -0.0f};
        for (int64_t i = 0; i < ops_count(f, u->g); i += 41) ops_set(f, u->g, i, odd[i / 41 % 4]);
    }
    if (values != ALL_MAGNITUDES) return;
    const int32_t tensors[] = {u->g, u->weight, u->states[0], u->states[1], u->states[2], u->states[3]};
    for (int k = 0; k < 6; k++) {
        const int32_t t = tensors[k];
        const bool is_float = t && f->tensors[t].dtype != SNUG_U8;
        /* Which states are means is the optimizer's affair: where v may not be negative, neither is m here, every
           other time. */
        for (int64_t i = 0; is_float && i < ops_count(f, t); i++) {
            const float value = number(70 + (uint32_t)k, (uint64_t)i, most);
            ops_set(f, t, i, k < 2 ? value : fabsf(value));
        }
    }
}

static void run(struct ops *f, int number_of_backend, const struct snug_op *op, const uint8_t *before, uint8_t *found) {
    const struct snug_backend *backend = backends[number_of_backend];
    if (snug_backend_is_device(backend)) {
        ops_run_device(f, backend, op, before, found);
        return;
    }
    memcpy(f->arena, before, f->bytes);
    ops_run(f, backend, op, 2);
    memcpy(found, f->arena, f->bytes);
}

static void compare(const struct ops *f, const struct snug_op *op, const uint8_t *one, const uint8_t *other,
                    const char *who, const char *what) {
    for (int k = 0; k < snug_op_operands(op); k++) {
        const int32_t t = op->operands[k];
        if (!t || !ops_writes(op, k)) continue;
        const int64_t size = snug_dtype_size(f->tensors[t].dtype), offset = f->tensors[t].offset;
        for (int64_t i = 0; i < ops_count(f, t); i++) {
            if (memcmp(one + offset + i * size, other + offset + i * size, (size_t)size) == 0) continue;
            const double a = ops_get(f, one, t, i), b = ops_get(f, other, t, i);
            if (isnan(a) && isnan(b)) continue;
            fail_msg("%s: %s, element %ld of %ld columns: %a on %s, %a on %s", what,
                     snug_op_info(op->kind)->operands[k].name, (long)i, (long)f->tensors[t].cols, a, backend_names[0],
                     b, who);
        }
    }
}

/* compute: F16, where a copy is of that type, or F32. */
static void check(const struct ops_row *row, int variant, int shape, enum values values, enum snug_dtype compute) {
    struct ops f;
    char what[128];
    snprintf(what, sizeof what, "%s, variant %d, shape %d, %s%s", snug_op_name(row->kind), variant, shape,
             names_of_values[values], compute == SNUG_F16 ? ", fp16" : "");
    ops_open(&f, &shapes[shape], compute);
    row->build(&f, variant);
    const struct snug_op *op = &f.ops[0];
    assert_int_equal(op->kind, row->kind);
    spread(&f, op, values);
    uint8_t *before = ops_copy(&f), *first = ops_array(f.bytes, 1), *found = ops_array(f.bytes, 1);
    run(&f, 0, op, before, first);
    assert_memory_not_equal(before + f.tensors[op->update.weight].offset, first + f.tensors[op->update.weight].offset,
                            ops_live(&f, op->update.weight));
    for (int i = 1; i < backend_count; i++) {
        run(&f, i, op, before, found);
        compare(&f, op, first, found, backend_names[i], what);
    }
    free(before);
    free(first);
    free(found);
    ops_close(&f);
}

/* Of every optimizer. Lazy updates of rows are ADAM's, see test_lazy_rows; the loss scale is that of test_loss_scale.
 */
TEST(test_bits) {
    if (backend_count < 2) skip();
    for (size_t i = 0; i < OPS_ROWS; i++) {
        const struct ops_row *row = &ops_rows[i];
        if (!row->build || row->needs || !(snug_op_info(row->kind)->flags & SNUG_OP_UPDATES)) continue;
        for (int variant = row->first; variant < row->end; variant++)
            for (int shape = 0; shape < SHAPES; shape++)
                for (int values = 0; values < KINDS_OF_VALUES; values++) {
                    check(row, variant, shape, (enum values)values, SNUG_F32);
                    check(row, variant, shape, (enum values)values, SNUG_F16);
                }
    }
}

TEST_MAIN(open_backends, close_backends)
