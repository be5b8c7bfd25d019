/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that all instruction sets share. */
#ifndef SNUG_BACKEND_CPU_CPU_H
#define SNUG_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/updates.h"

/* The backend's state. */
struct snug_cpu {
    struct snug_cpu_updates updates;            /* first, because updates read it alone */
    const struct snug_microkernel *microkernel; /* of bf16 matmuls; NULL: the portable one */
};

/* Bytes of snug_gemm_library() for this program. */
int64_t snug_cpu_library(const struct snug_program *program, int threads);
snug_status snug_cpu_open(snug_context *ctx, const struct snug_program *program, int threads, void **state);
void snug_cpu_close(void *state);

#endif
