/* SPDX-License-Identifier: Apache-2.0 */
/* What operations are called, which group of "Model training anatomy" they belong to, and what they cost. */
#include "plan/stages.h"

static const struct {
    const char *name;
    enum snug_op_group group;
} kinds[SNUG_OP_COUNT] = {
    [SNUG_OP_EMBED] = {"embed", SNUG_GROUP_NORMALIZATION},
    [SNUG_OP_LINEAR] = {"linear", SNUG_GROUP_CONTRACTION},
    [SNUG_OP_ATTENTION] = {"attention", SNUG_GROUP_CONTRACTION},
    [SNUG_OP_RESIDUAL_NORM] = {"residual_norm", SNUG_GROUP_NORMALIZATION},
    [SNUG_OP_NORM] = {"norm", SNUG_GROUP_NORMALIZATION},
    [SNUG_OP_ACTIVATION] = {"activation", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_DROPOUT] = {"dropout", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_GATHER] = {"gather", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_LOSS] = {"loss", SNUG_GROUP_NORMALIZATION},
    [SNUG_OP_FILL] = {"fill", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_EMBED_BACKWARD] = {"embed_backward", SNUG_GROUP_NORMALIZATION},
    [SNUG_OP_LINEAR_DX] = {"linear_dx", SNUG_GROUP_CONTRACTION},
    [SNUG_OP_LINEAR_DW] = {"linear_dw", SNUG_GROUP_CONTRACTION},
    [SNUG_OP_ATTENTION_BACKWARD] = {"attention_backward", SNUG_GROUP_CONTRACTION},
    [SNUG_OP_NORM_BACKWARD] = {"norm_backward", SNUG_GROUP_NORMALIZATION},
    [SNUG_OP_ACTIVATION_BACKWARD] = {"activation_backward", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_GATHER_BACKWARD] = {"gather_backward", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_SQUARED_NORM] = {"squared_norm", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_CLIP] = {"clip", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_RESCALE] = {"rescale", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_ADAM] = {"adam", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_ADAM_ROWS] = {"adam_rows", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_CATCH_UP] = {"catch_up", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_SETTLE] = {"settle", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_ADAM_8BIT] = {"adam_8bit", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_SGD] = {"sgd", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_ADAFACTOR] = {"adafactor", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_ADAGRAD] = {"adagrad", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_RMSPROP] = {"rmsprop", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_LION] = {"lion", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_ROWS_BEGIN] = {"rows_begin", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_CAST] = {"cast", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_FETCH] = {"fetch", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_STORE] = {"store", SNUG_GROUP_ELEMENTWISE},
    [SNUG_OP_WAIT] = {"wait", SNUG_GROUP_ELEMENTWISE},
};

const char *snug_op_name(enum snug_op_kind kind) { return kinds[kind].name; }
enum snug_op_group snug_op_group(enum snug_op_kind kind) { return kinds[kind].group; }

/* Floating-point operations an element, counted in the formulas of backend.h (an exp or erf as 10). */
enum { NORM_FLOPS = 8, NORM_BACKWARD_FLOPS = 14, ACTIVATION_FLOPS = 14, SOFTMAX_FLOPS = 13, ADAM_FLOPS = 15 };

struct snug_cost snug_op_cost(const struct snug_program *program, const struct snug_op *op, double tokens,
                              double sequences, double rows) {
    const double extent[SNUG_EXTENT_COUNT] = {
        [SNUG_EXTENT_TOKENS] = tokens, [SNUG_EXTENT_SEQUENCES] = sequences, [SNUG_EXTENT_ROWS] = rows};
    struct snug_cost cost = {0};
    double elements[SNUG_OP_INPUTS + SNUG_OP_OUTPUTS] = {0};
    for (int k = 0; k < SNUG_OP_INPUTS + SNUG_OP_OUTPUTS; k++) {
        const int32_t number = k < SNUG_OP_INPUTS ? op->in[k] : op->out[k - SNUG_OP_INPUTS];
        if (number < 0) continue;
        const struct snug_tensor *tensor = &program->tensors[number];
        elements[k] = (tensor->extent ? extent[tensor->extent] : (double)tensor->rows) * (double)tensor->cols;
        /* An update reads what it writes, but not the copy. */
        const bool twice = snug_is_update(op->kind) && k >= SNUG_OP_INPUTS && k != SNUG_OP_INPUTS + 1;
        cost.bytes += (twice ? 2 : 1) * elements[k] * (double)snug_dtype_size(tensor->dtype);
    }
    const double in = elements[0], out = elements[SNUG_OP_INPUTS];
    const double pairs = tokens * tokens / sequences; /* query-key pairs a head */
    switch (op->kind) {
    case SNUG_OP_LINEAR:
    case SNUG_OP_LINEAR_DX: cost.flops = 2 * out * (double)program->tensors[op->in[0]].cols; break;
    case SNUG_OP_LINEAR_DW: cost.flops = 2 * in * (double)program->tensors[op->in[1]].cols; break;
    /* scores and values, forward; the scores again and four products more, backward */
    case SNUG_OP_ATTENTION:
        cost.flops = pairs * (4 * (double)program->tensors[op->out[0]].cols + SOFTMAX_FLOPS * op->heads);
        break;
    case SNUG_OP_ATTENTION_BACKWARD:
        cost.flops = pairs * (10 * (double)program->tensors[op->in[0]].cols + SOFTMAX_FLOPS * op->heads);
        break;
    case SNUG_OP_EMBED: /* the tables are read by row, not whole */
        cost.flops = (NORM_FLOPS + 2) * out;
        cost.bytes = 5 * 4 * out;
        break;
    case SNUG_OP_EMBED_BACKWARD:
        cost.flops = (NORM_BACKWARD_FLOPS + 3) * in;
        cost.bytes = 8 * 4 * in;
        break;
    /* Rows that are touched, not the table: parameter and moments are read and written. How many steps they missed the
       batch does not tell; one each. */
    case SNUG_OP_ADAM_ROWS:
        cost.flops = ADAM_FLOPS * in;
        cost.bytes = 7 * 4 * in;
        break;
    case SNUG_OP_CATCH_UP:
        cost.flops = ADAM_FLOPS * (double)tokens * (double)program->tensors[op->out[0]].cols;
        cost.bytes = 6 * 4 * cost.flops / ADAM_FLOPS;
        break;
    case SNUG_OP_RESIDUAL_NORM:
    case SNUG_OP_NORM:
    case SNUG_OP_LOSS: cost.flops = NORM_FLOPS * in; break;
    case SNUG_OP_NORM_BACKWARD: cost.flops = NORM_BACKWARD_FLOPS * in; break;
    case SNUG_OP_ACTIVATION:
    case SNUG_OP_ACTIVATION_BACKWARD: cost.flops = ACTIVATION_FLOPS * in; break;
    case SNUG_OP_SQUARED_NORM: cost.flops = 2 * in; break;
    case SNUG_OP_FETCH: /* of the home, what the window holds */
    case SNUG_OP_STORE: {
        const struct snug_tensor *window = &program->tensors[op->kind == SNUG_OP_FETCH ? op->out[0] : op->in[0]];
        cost.bytes = (op->kind == SNUG_OP_FETCH ? out : in) * (double)snug_dtype_size(window->dtype);
        break;
    }
    case SNUG_OP_WAIT: cost.bytes = 0; break;
    default: cost.flops = snug_is_update(op->kind) ? ADAM_FLOPS * in : out; break;
    }
    return cost;
}
