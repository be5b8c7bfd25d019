/* SPDX-License-Identifier: Apache-2.0 */
/* The device memory that the driver takes for captured phases: no tensor, so it is in no layout. */
#ifndef SNUG_RUN_CAPTURED_H
#define SNUG_RUN_CAPTURED_H

#include "backend/backend.h"
#include "data/batch.h"

/* Bytes for a placed program, with batches of these sizes and so many micro-batches in a step: each phase is captured
 * for each size, and for the first, the last and the other micro-batches separately. *phases: how many the backend may
 * capture; those of this program are subtracted. */
int64_t snug_captured_bytes(const struct snug_backend *backend, const struct snug_program *program,
                            const struct snug_sizes *sizes, int64_t micro_batches, int *phases);

#endif
