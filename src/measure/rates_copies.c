/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of a GPU's copies between its memory and the host's. */
#include "measure/rates.h"
#include "run/runner.h"

enum { COPY_BYTES = 64 << 20, COPIES = 4, REPETITIONS = 3 }; /* COPIES: of a direction */

static snug_status add_block(struct snug_program *program, bool offloaded, int32_t *out) {
    return snug_program_tensor(program,
                               (struct snug_tensor){.memory_class = SNUG_MEMORY_OPTIMIZER,
                                                    .rows = 1,
                                                    .cols = COPY_BYTES / 4,
                                                    .layer = -1,
                                                    .persistent = true,
                                                    .offloaded = offloaded},
                               out, "block.%zu", program->tensor_count);
}

/* A phase of copies in both directions at once, as they are beside a step. */
static snug_status build_copies(struct snug_program *program) {
    for (int i = 0; i < 2 * COPIES; i++) {
        const bool store = i % 2;
        int32_t x, backing;
        RETURN_IF_ERROR(add_block(program, false, &x));
        RETURN_IF_ERROR(add_block(program, true, &backing));
        struct snug_op op = {.kind = store ? SNUG_OP_STORE : SNUG_OP_FETCH, .phase = SNUG_PHASE_FORWARD};
        if (store)
            op.store = (struct snug_store){.x = x, .backing = backing};
        else
            op.fetch = (struct snug_fetch){.x = x, .backing = backing};
        RETURN_IF_ERROR(snug_program_op(program, op));
    }
    for (int i = 0; i < 2 * COPIES; i++) {
        const struct snug_op *copy = &program->ops[i];
        const int32_t x = copy->kind == SNUG_OP_STORE ? copy->store.x : copy->fetch.x;
        RETURN_IF_ERROR(snug_program_op(
            program, (struct snug_op){.kind = SNUG_OP_WAIT, .phase = SNUG_PHASE_FORWARD, .wait = {.x = x}}));
    }
    return SNUG_OK;
}

static snug_status time_copies(const struct snug_backend *backend, int threads, struct snug_program *program,
                               struct snug_runner *runner, double *best) {
    float value;
    RETURN_IF_ERROR(snug_runner_start(program->ctx, backend, threads, program, 0, NULL, runner));
    struct snug_run run = snug_runner_run(runner, 0);
    for (int i = 0; i <= REPETITIONS; i++) { /* the first one is a trial */
        RETURN_IF_ERROR(snug_tensor_read(program, &runner->memory, program->ops[0].fetch.x, 0, 1, &value));
        const double begin = snug_seconds();
        RETURN_IF_ERROR(snug_run_phase(&run, backend, SNUG_PHASE_FORWARD, NULL));
        RETURN_IF_ERROR(snug_tensor_read(program, &runner->memory, program->ops[0].fetch.x, 0, 1, &value));
        const double seconds = snug_seconds() - begin;
        if (i == 1 || seconds < *best) *best = seconds;
    }
    return SNUG_OK;
}

snug_status snug_rates_measure_copies(snug_context *ctx, const struct snug_backend *backend, int threads,
                                      struct snug_rates *rates) {
    static const enum snug_op_kind kinds[] = {SNUG_OP_STORE, SNUG_OP_FETCH};
    struct snug_program program;
    struct snug_runner runner = {0};
    double seconds = 0;
    snug_program_init(&program, ctx);
    snug_status status = build_copies(&program);
    if (status == SNUG_OK) status = time_copies(backend, threads, &program, &runner, &seconds);
    for (int k = 0; k < 2 && status == SNUG_OK; k++)
        status = snug_rates_add(
            rates,
            (struct snug_rate){.kind = kinds[k], .byte = seconds / ((double)COPIES * COPY_BYTES), .samples = COPIES});
    snug_runner_close(&runner);
    snug_program_free(&program);
    return status;
}
