/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"
#include "backend/host.h"

static snug_status reference_open(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)ctx, (void)program, (void)threads;
    *state = NULL;
    return SNUG_OK;
}

static void reference_close(void *state) { (void)state; }

/* Sums that grow over rows, kept in double until they are whole. */
static int64_t reference_workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    int64_t doubles = 0;
    switch (op->kind) {
    case SNUG_OP_ATTENTION: doubles = program->longest; break; /* one query's probabilities */
    case SNUG_OP_ATTENTION_BACKWARD: doubles = 3 * program->longest; break;
    case SNUG_OP_EMBED_BACKWARD:
    case SNUG_OP_NORM_BACKWARD: doubles = 3 * program->tensors[op->in[0]].cols; break; /* dgamma, dbeta, a row of dy */
    default: break;
    }
    return doubles * (int64_t)sizeof(double);
}

static int64_t reference_library(const struct snug_program *program, int threads) {
    (void)program;
    (void)threads;
    return 0;
}

const struct snug_backend *snug_backend_reference(void) {
    static const struct snug_backend backend = {
        .name = "reference",
        .head_rows = 128,
        .allocate = snug_host_allocate,
        .batch = snug_host_batch,
        .load = snug_host_load,
        .begin = snug_host_begin,
        .end = snug_host_end,
        .open = reference_open,
        .close = reference_close,
        .library = reference_library,
        .workspace = reference_workspace,
        .ops =
            {
                [SNUG_OP_EMBED] = snug_reference_embed,
                [SNUG_OP_LINEAR] = snug_reference_linear,
                [SNUG_OP_ATTENTION] = snug_reference_attention,
                [SNUG_OP_RESIDUAL_NORM] = snug_reference_residual_norm,
                [SNUG_OP_NORM] = snug_reference_norm,
                [SNUG_OP_ACTIVATION] = snug_reference_activation,
                [SNUG_OP_DROPOUT] = snug_reference_dropout,
                [SNUG_OP_GATHER] = snug_reference_gather,
                [SNUG_OP_LOSS] = snug_reference_loss,
                [SNUG_OP_FILL] = snug_reference_fill,
                [SNUG_OP_EMBED_BACKWARD] = snug_reference_embed_backward,
                [SNUG_OP_LINEAR_DX] = snug_reference_linear_dx,
                [SNUG_OP_LINEAR_DW] = snug_reference_linear_dw,
                [SNUG_OP_ATTENTION_BACKWARD] = snug_reference_attention_backward,
                [SNUG_OP_NORM_BACKWARD] = snug_reference_norm_backward,
                [SNUG_OP_ACTIVATION_BACKWARD] = snug_reference_activation_backward,
                [SNUG_OP_GATHER_BACKWARD] = snug_reference_gather_backward,
                [SNUG_OP_SQUARED_NORM] = snug_reference_squared_norm,
                [SNUG_OP_CLIP] = snug_reference_clip,
                [SNUG_OP_RESCALE] = snug_reference_rescale,
                [SNUG_OP_ADAM] = snug_reference_adam,
                [SNUG_OP_ADAM_ROWS] = snug_reference_adam_rows,
                [SNUG_OP_CATCH_UP] = snug_reference_catch_up,
                [SNUG_OP_SETTLE] = snug_reference_settle,
                [SNUG_OP_ROWS_BEGIN] = snug_reference_rows_begin,
                [SNUG_OP_SGD] = snug_reference_sgd,
                [SNUG_OP_ADAFACTOR] = snug_reference_adafactor,
                [SNUG_OP_ADAGRAD] = snug_reference_adagrad,
                [SNUG_OP_RMSPROP] = snug_reference_rmsprop,
                [SNUG_OP_LION] = snug_reference_lion,
                [SNUG_OP_ADAM_8BIT] = snug_reference_adam_8bit,
                [SNUG_OP_CAST] = snug_reference_cast,
                [SNUG_OP_FETCH] = snug_host_fetch,
                [SNUG_OP_STORE] = snug_host_store,
                [SNUG_OP_WAIT] = snug_host_wait,
            },
    };
    return &backend;
}
