/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of updates on the host (plan/place_updates.c): each optimizer's over a weight that no cache holds. */
#include <stdlib.h>

#include "measure/rates.h"
#include "run/run.h"

enum { COLUMNS = 4096, REPETITIONS = 3 };

/* A program of one update, with its tensors in one block of memory. */
struct trial {
    struct snug_optimizer optimizer;
    struct snug_program program;
    struct snug_op op;
    struct snug_run run;
    int64_t bytes;
};

static snug_status add_tensor(struct trial *t, enum snug_dtype dtype, int64_t rows, int64_t cols, int32_t *out) {
    RETURN_IF_ERROR(snug_program_tensor(
        &t->program, (struct snug_tensor){.dtype = dtype, .rows = rows, .cols = cols, .layer = -1, .offset = t->bytes},
        out, "block.%zu", t->program.tensor_count));
    t->bytes += snug_tensor_bytes(&t->program, &t->program.tensors[*out]);
    return SNUG_OK;
}

static snug_status build(struct trial *t, int64_t rows_of_weight, enum snug_dtype type) {
    const struct snug_weight weight = {.rows = rows_of_weight, .cols = COLUMNS, .segments = 1};
    const struct snug_states states = t->optimizer.info->states(&t->optimizer, &weight);
    t->op = (struct snug_op){.kind = states.update, .on_host = true, .update = {.segments = 1, .decay = true}};
    RETURN_IF_ERROR(add_tensor(t, SNUG_F32, weight.rows, COLUMNS, &t->op.update.g));
    RETURN_IF_ERROR(add_tensor(t, type, weight.rows, COLUMNS, &t->op.update.weight));
    for (int i = 0; i < states.count; i++) {
        int64_t rows, cols;
        snug_state_size(&states.items[i], &weight, &rows, &cols);
        RETURN_IF_ERROR(add_tensor(t, states.items[i].dtype, rows, cols, &t->op.update.states[i]));
    }
    return snug_program_op(&t->program, t->op);
}

/* The first repetition makes the memory resident. */
static snug_status time_updates(struct trial *t, const struct snug_backend *backend, double *best) {
    for (int i = 0; i <= REPETITIONS; i++, t->run.step++) {
        const double begin = snug_seconds();
        RETURN_IF_ERROR(snug_run_one(&t->run, backend, &t->op));
        const double seconds = snug_seconds() - begin;
        if (i < 2 || seconds < *best) *best = seconds;
    }
    return SNUG_OK;
}

static snug_status measure(struct trial *t, struct snug_rates *rates, int threads) {
    const struct snug_backend *backend = snug_backend_updates(NULL);
    void *memory = NULL, *state = NULL;
    double seconds = 0;
    if (!snug_op_is(&t->op, SNUG_OP_ELEMENTS)) return SNUG_OK; /* updates on the host are elementwise */
    RETURN_IF_ERROR(snug_alloc(rates->ctx, (size_t)t->bytes, 1, &memory));
    snug_status status = backend->open(rates->ctx, &t->program, threads, &state);
    t->run = (struct snug_run){.ctx = rates->ctx,
                               .program = &t->program,
                               .arena = memory,
                               .backend_state = state,
                               .threads = threads,
                               .learning_rate = 1e-5f,
                               .optimizer = &t->optimizer};
    if (status == SNUG_OK) status = time_updates(t, backend, &seconds);
    const double bytes = snug_op_cost(&t->program, &t->op, 0, 0, 0).bytes;
    if (status == SNUG_OK)
        status = snug_rates_add(rates, (struct snug_rate){.kind = t->op.kind,
                                                          .types = snug_operand_types(&t->program, &t->op),
                                                          .byte = seconds / bytes,
                                                          .samples = 1});
    backend->close(state);
    free(memory);
    return status;
}

static snug_status measure_optimizer(struct snug_rates *rates, const struct snug_optimizer_info *info,
                                     enum snug_dtype type, int64_t rows, int threads) {
    struct trial t = {0};
    RETURN_IF_ERROR(
        snug_optimizer_parse(rates->ctx, info->names[0].optim, info->measured, 0.9, 0.999, 1e-8, 0, &t.optimizer));
    snug_program_init(&t.program, rates->ctx);
    snug_status status = build(&t, rows, type);
    if (status == SNUG_OK) status = measure(&t, rates, threads);
    snug_program_free(&t.program);
    return status;
}

snug_status snug_rates_measure_host(struct snug_rates *rates, int64_t rows, int threads) {
    for (int i = 0; snug_optimizers[i]; i++)
        for (int low = 0; low < 2; low++)
            RETURN_IF_ERROR(measure_optimizer(rates, snug_optimizers[i], low ? SNUG_BF16 : SNUG_F32, rows, threads));
    return SNUG_OK;
}
