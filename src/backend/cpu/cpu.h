/* SPDX-License-Identifier: Apache-2.0 */
/* What the tables of all instruction sets share. */
#ifndef SNUG_BACKEND_CPU_CPU_H
#define SNUG_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/products.h"
#include "optim/codes.h"

/* The backend's state. */
struct snug_cpu {
    const struct snug_block_kernel *block; /* NULL: the portable one */
    struct snug_codes codes;               /* filled for programs with ADAM_8BIT */
};

/* oneDNN packs the operands of a fp32 product into memory of its own: so much a thread, measured on MiniLM and
 * BERT-base. */
int64_t snug_cpu_library(const struct snug_program *program, int threads);
snug_status snug_cpu_open(snug_context *ctx, const struct snug_program *program, int threads, void **state);
void snug_cpu_close(void *state);

#endif
