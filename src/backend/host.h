/* SPDX-License-Identifier: Apache-2.0 */
/* What backends have in common whose memory is the host's: nothing has to be carried anywhere. */
#ifndef SNUG_BACKEND_HOST_H
#define SNUG_BACKEND_HOST_H

#include "backend/backend.h"

snug_status snug_host_allocate(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out);
int64_t snug_host_batch(const struct snug_program *program);
snug_status snug_host_load(struct snug_run *run);
snug_status snug_host_begin(struct snug_run *run, enum snug_phase phase, bool *done);
snug_status snug_host_end(struct snug_run *run, enum snug_phase phase);

#endif
