/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"
#include "backend/host.h"

static snug_status reference_open(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)ctx, (void)program, (void)threads;
    *state = NULL;
    return SNUG_OK;
}

static void reference_close(void *state) { (void)state; }

/* dgamma, dbeta, a row of dy */
static int64_t norm_backward_doubles(const struct snug_program *program, int32_t dy) {
    return 3 * program->tensors[dy].cols;
}

/* The vectors of a step and their gradients, all similarities and theirs. */
static int64_t vector_loss_doubles(const struct snug_program *program, const struct snug_vector_loss_op *op) {
    const int64_t vectors = program->capacity[SNUG_EXTENT_STEP], rows = vectors / op->form.texts;
    return 2 * vectors * program->tensors[op->vectors].cols + 2 * rows * rows * (op->form.texts - 1);
}

/* Sums over rows, kept in double until they are complete. */
static int64_t reference_workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    int64_t doubles = 0;
    if (op->kind == SNUG_OP_SUM_RANKS) return snug_host_ranks_workspace(program, op);
    switch (op->kind) {
    case SNUG_OP_ATTENTION:
    case SNUG_OP_ATTENTION_BACKWARD: doubles = snug_reference_attention_doubles(program, op); break;
    case SNUG_OP_CACHED_ATTENTION: doubles = program->longest; break;
    case SNUG_OP_EMBED_BACKWARD: doubles = program->tensors[op->embed_backward.ds].cols; break;
    case SNUG_OP_VECTOR_LOSS: doubles = vector_loss_doubles(program, &op->vector_loss); break;
    case SNUG_OP_NORM_BACKWARD: doubles = norm_backward_doubles(program, op->norm_backward.dy); break;
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
        .loss_positions = 128,
        .independent_rows = INT64_MAX,
        .prompt_tokens = 512,
        .lazy_rows = true,
        .copying = SNUG_HOST_COPYING,
        .scales_loss = true,
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
#define SNUG_ENTRY(KIND, name, member) [SNUG_OP_##KIND] = snug_reference_##name,
                SNUG_OPS_COMMON(SNUG_ENTRY) SNUG_OPS_LOSS_SCALING(SNUG_ENTRY) SNUG_OPS_LAZY_ROWS(SNUG_ENTRY)
                    SNUG_OPS_GENERATION(SNUG_ENTRY)
#undef SNUG_ENTRY
                        SNUG_OPS_RANKS(SNUG_HOST_ENTRY) SNUG_OPS_OFFLOAD(SNUG_HOST_ENTRY)},
    };
    return &backend;
}
