/* SPDX-License-Identifier: Apache-2.0 */
/* What the tables of all instruction sets share. */
#ifndef SNUG_BACKEND_CPU_CPU_H
#define SNUG_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/products.h"

/* The backend's state. */
struct snug_cpu {
    const struct snug_block_kernel *block; /* NULL: the portable one */
};

snug_status snug_cpu_open(snug_context *ctx, const struct snug_program *program, int threads, void **state);
void snug_cpu_close(void *state);

#endif
