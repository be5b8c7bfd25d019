/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets, and the state of a backend that has the optimizers' updates alone. */
#ifndef SNUG_BACKEND_CPU_UPDATES_H
#define SNUG_BACKEND_CPU_UPDATES_H

#include "backend/backend.h"
#include "optim/quantization_table.h"

/* The tables of the instruction sets of a processor family, fastest first. */
#ifdef __x86_64__
#define SNUG_CPU_ISAS(X) X(v4) X(v3) X(v2)
#else
#define SNUG_CPU_ISAS(X) X(generic)
#endif

/* Whether this machine has an instruction set: "v2", "v3" or "v4" of x86-64, "generic" elsewhere. */
bool snug_cpu_has(const char *isa);

/* The first members of the state of every backend with updates. */
struct snug_cpu_updates {
    struct snug_quantization_tables quantization; /* filled for programs with ADAM_8BIT */
};
snug_status snug_cpu_updates_open(snug_context *ctx, const struct snug_program *program, int threads, void **state);
void snug_cpu_updates_close(void *state);

#endif
