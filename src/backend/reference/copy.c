/* SPDX-License-Identifier: Apache-2.0 */
/* FETCH, STORE and WAIT, for every backend whose tensors stand in host memory. */
#include "backend/backend.h"

static int64_t live_bytes(const struct snug_run *run, int32_t tensor) {
    return snug_run_rows(run, tensor) * snug_run_cols(run, tensor) * snug_dtype_size(snug_run_dtype(run, tensor));
}

static int64_t home_of(const struct snug_run *run, const struct snug_op *op, int32_t home) {
    return run->program->tensors[home].offset + op->element * snug_dtype_size(snug_run_dtype(run, home));
}

snug_status snug_host_fetch(struct snug_run *run, const struct snug_op *op) {
    const int32_t x = op->out[0];
    run->copies[x] =
        snug_spool_fetch(run->spool, snug_run_data(run, x), home_of(run, op, op->in[0]), live_bytes(run, x));
    return SNUG_OK;
}

snug_status snug_host_store(struct snug_run *run, const struct snug_op *op) {
    const int32_t x = op->in[0];
    run->copies[x] =
        snug_spool_store(run->spool, snug_run_data(run, x), home_of(run, op, op->out[0]), live_bytes(run, x));
    return SNUG_OK;
}

snug_status snug_host_wait(struct snug_run *run, const struct snug_op *op) {
    return snug_spool_wait(run->ctx, run->spool, run->copies[op->in[0]]);
}
