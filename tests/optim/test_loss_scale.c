/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale of fp16 training against torch.amp.GradScaler's (tools/golden/loss_scale.py), with the operations of
   training: CLIP, an update and RESCALE, on the reference. */
#include <jansson.h>
#include <math.h>

#include "backend/backend.h"
#include "optim/loss_scale.h"
#include "test.h"

enum { NONE, SUMS, CLIP, SCALER, GRADIENT, WEIGHT, TENSORS };

struct fixture {
    double sums[8];
    float clip[16], scaler[16], gradient[16], weight[16];
};

static bool is_among(const json_t *list, int64_t step) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == step) return true;
    return false;
}

static void check_case(const json_t *one) {
    struct fixture f = {.scaler = {SNUG_SCALE_FIRST}};
    struct snug_tensor tensors[TENSORS] = {
        [SUMS] = {.dtype = SNUG_F64, .rows = 1, .cols = 1, .offset = offsetof(struct fixture, sums)},
        [CLIP] = {.rows = 1, .cols = 2, .offset = offsetof(struct fixture, clip)},
        [SCALER] = {.rows = 1, .cols = SNUG_SCALE_VALUES, .offset = offsetof(struct fixture, scaler)},
        [GRADIENT] = {.rows = 1, .cols = 1, .offset = offsetof(struct fixture, gradient)},
        [WEIGHT] = {.rows = 1, .cols = 1, .offset = offsetof(struct fixture, weight)}};
    struct snug_op ops[] = {
        {.kind = SNUG_OP_CLIP, .clip = {.sums = SUMS, .clip = CLIP, .scaler = SCALER}},
        {.kind = SNUG_OP_SGD, .update = {.g = GRADIENT, .clip = CLIP, .weight = WEIGHT, .segments = 1}},
        {.kind = SNUG_OP_RESCALE, .rescale = {.scaler = SCALER}}};
    const struct snug_program program = {
        .tensors = tensors, .tensor_count = TENSORS, .ops = ops, .op_count = 3, .scaler = SCALER};
    const struct snug_optimizer sgd = {.info = &snug_optimizer_sgd};
    const struct snug_backend *backend = snug_backend_reference();
    struct snug_run run = {.program = &program, .arena = (uint8_t *)&f, .optimizer = &sgd, .learning_rate = 1};
    const json_t *changes = json_object_get(one, "changes"), *overflows = json_object_get(one, "overflows");
    const int64_t steps = json_integer_value(json_object_get(one, "steps"));
    size_t seen = 0;
    int64_t updates = 0;
    for (run.step = 0; run.step < steps; run.step++) {
        const bool overflows_now = is_among(overflows, run.step);
        const float before = f.scaler[SNUG_SCALE], old = f.weight[0];
        f.gradient[0] = overflows_now ? INFINITY : before; /* 1, scaled */
        f.sums[0] = pow((double)f.gradient[0], 2);
        for (size_t i = 0; i < 3; i++) assert_int_equal(backend->ops[ops[i].kind](&run, &ops[i]), SNUG_OK);
        if (!overflows_now && (f.clip[0] != 1 || f.weight[0] != old - 1))
            fail_msg("step %ld: norm %g, update %g", (long)run.step, (double)f.clip[0], (double)(old - f.weight[0]));
        updates += f.weight[0] != old;
        if (f.scaler[SNUG_SCALE] == before) continue;
        const json_t *change = json_array_get(changes, seen++);
        assert_int_equal(json_integer_value(json_array_get(change, 0)), run.step);
        assert_true(json_number_value(json_array_get(change, 1)) == (double)f.scaler[SNUG_SCALE]);
        assert_int_equal(json_integer_value(json_array_get(change, 2)), updates);
    }
    assert_int_equal(seen, json_array_size(changes));
    assert_int_equal(updates, json_integer_value(json_object_get(one, "updates")));
    assert_int_equal(steps - updates, (int64_t)f.scaler[SNUG_SCALE_SKIPPED]);
}

TEST(agrees_with_grad_scaler) {
    json_t *golden = json_load_file(SNUG_SOURCE_DIR "/tests/golden/loss_scale.json", 0, NULL), *one;
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) >= 6);
    size_t i;
    json_array_foreach(cases, i, one) check_case(one);
    json_decref(golden);
}

/* Doubling stops at fp32's maximum, as in torch. */
TEST(stays_finite) {
    float values[SNUG_SCALE_VALUES] = {0x1p127f, SNUG_SCALE_INTERVAL - 1};
    snug_loss_scale_next(values);
    assert_true(values[SNUG_SCALE] == 0x1p127f && values[SNUG_SCALE_GOOD] == 0);
}

TEST_MAIN(NULL, NULL)
