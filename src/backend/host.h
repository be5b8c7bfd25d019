/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by backends that work in host memory: they need no copies. */
#ifndef SNUG_BACKEND_HOST_H
#define SNUG_BACKEND_HOST_H

#include "backend/backend.h"

snug_status snug_host_allocate(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out);
int64_t snug_host_batch(const struct snug_program *program);
snug_status snug_host_load(struct snug_run *run);
snug_status snug_host_begin(struct snug_run *run, enum snug_phase phase, bool *done);
snug_status snug_host_end(struct snug_run *run, enum snug_phase phase);

/* For struct snug_backend's copying: a copy overlaps the previous matmul, and 1 MiB in fp32 is enough for a disk. */
#define SNUG_HOST_COPYING                                                                                              \
    { .ahead = 1, .part = 1 << 18, .least = 16 << 10 }

/* The entries of a backend's table that copy between the arena and the offload file. */
snug_op_fn snug_host_fetch, snug_host_store, snug_host_wait;
/* The entries of several ranks, and their bytes of scratch. */
snug_op_fn snug_host_sum_ranks, snug_host_gather_ranks, snug_host_sum_chunks;
int64_t snug_host_ranks_workspace(const struct snug_program *program, const struct snug_op *op);
#define SNUG_HOST_ENTRY(KIND, name, member) [SNUG_OP_##KIND] = snug_host_##name,

#endif
