/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend as a plan sees it, without CUDA: its sizes, from backend/cuda/sizes, and nothing that runs. */
#include "backend/cuda/sizes/contract.h"

static snug_status refuse(snug_context *ctx) {
    return snug_fail(ctx, SNUG_E_INTERNAL, "a plan for a GPU that is not installed cannot be run");
}

static snug_status refuse_run(struct snug_run *run) { return refuse(run->ctx); }

static snug_status refuse_op(struct snug_run *run, const struct snug_op *op) {
    (void)op;
    return refuse(run->ctx);
}

static snug_status refuse_begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    (void)phase, (void)done;
    return refuse(run->ctx);
}

static snug_status refuse_end(struct snug_run *run, enum snug_phase phase) {
    (void)phase;
    return refuse(run->ctx);
}

static snug_status refuse_block(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out) {
    (void)bytes, (void)block;
    *out = (struct snug_block){0};
    return refuse(ctx);
}

/* Programs are opened before memory is allocated, also for a plan. */
static snug_status open_nothing(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)ctx, (void)program, (void)threads;
    *state = NULL;
    return SNUG_OK;
}

static void close_nothing(void *state) { (void)state; }

static int64_t no_bytes(const struct snug_program *program, int threads) {
    (void)program, (void)threads;
    return 0;
}

#define ENTRY(KIND, name, member) [SNUG_OP_##KIND] = refuse_op,
#define BACKEND(generation, LACKS_BF16, WORKSPACE)                                                                     \
    [generation] = {                                                                                                   \
        SNUG_CUDA_PLANNED,                                                                                             \
        .plans_only = true,                                                                                            \
        .lacks_bf16 = (LACKS_BF16),                                                                                    \
        .workspace = (WORKSPACE),                                                                                      \
        .allocate = refuse_block,                                                                                      \
        .load = refuse_run,                                                                                            \
        .begin = refuse_begin,                                                                                         \
        .end = refuse_end,                                                                                             \
        .open = open_nothing,                                                                                          \
        .close = close_nothing,                                                                                        \
        .library = no_bytes,                                                                                           \
        .update_on_host = refuse_op,                                                                                   \
        .ops = {SNUG_CUDA_OPS(ENTRY)},                                                                                 \
    },

const struct snug_backend *snug_backend_cuda_planned(int capability) {
    static const struct snug_backend backends[] = {SNUG_CUDA_GENERATIONS(BACKEND)};
    return &backends[snug_cuda_generation_of(capability)];
}
