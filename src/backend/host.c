/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"

snug_status snug_host_allocate(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out) {
    (void)block;
    return snug_block_host(ctx, bytes, out);
}

int64_t snug_host_batch(const struct snug_program *program) {
    (void)program;
    return 0;
}

snug_status snug_host_load(struct snug_run *run) {
    (void)run;
    return SNUG_OK;
}

snug_status snug_host_begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    (void)run, (void)phase;
    *done = false;
    return SNUG_OK;
}

snug_status snug_host_end(struct snug_run *run, enum snug_phase phase) {
    (void)run, (void)phase;
    return SNUG_OK;
}
