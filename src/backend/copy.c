/* SPDX-License-Identifier: Apache-2.0 */
/* FETCH, STORE and WAIT of all backends whose tensors are in host memory, through the offload file. */
#include "backend/host.h"

static int64_t live_bytes(const struct snug_run *run, int32_t tensor) {
    return snug_run_rows(run, tensor) * snug_run_cols(run, tensor) * snug_dtype_size(snug_run_dtype(run, tensor));
}

static int64_t backing_offset(const struct snug_run *run, const struct snug_op *op, int32_t backing) {
    return run->program->tensors[backing].offset + op->element * snug_dtype_size(snug_run_dtype(run, backing));
}

snug_status snug_host_fetch(struct snug_run *run, const struct snug_op *op) {
    const int32_t x = op->fetch.x;
    run->copies[x] = snug_offload_file_fetch(run->backing.file, snug_run_data(run, x),
                                             backing_offset(run, op, op->fetch.backing), live_bytes(run, x));
    return SNUG_OK;
}

snug_status snug_host_store(struct snug_run *run, const struct snug_op *op) {
    const int32_t x = op->store.x;
    run->copies[x] = snug_offload_file_store(run->backing.file, snug_run_data(run, x),
                                             backing_offset(run, op, op->store.backing), live_bytes(run, x));
    return SNUG_OK;
}

snug_status snug_host_wait(struct snug_run *run, const struct snug_op *op) {
    return snug_offload_file_wait(run->ctx, run->backing.file, run->copies[op->wait.x]);
}
