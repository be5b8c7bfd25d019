/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(isa) extern const struct snug_backend snug_backend_cpu_##isa;
SNUG_CPU_ISAS(DECLARE)
#undef DECLARE

const struct snug_backend *snug_backend_cpu_isa(const char *isa) {
    static const struct {
        const char *isa;
        const struct snug_backend *backend;
    } all[] = {
#define ENTRY(name) {#name, &snug_backend_cpu_##name},
        SNUG_CPU_ISAS(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (snug_cpu_has(all[i].isa) && (!isa || strcmp(isa, all[i].isa) == 0)) return all[i].backend;
    }
    return NULL;
}

const struct snug_backend *snug_backend_cpu(void) { return snug_backend_cpu_isa(NULL); }

void snug_backend_cpu_describe(char *text, size_t size) {
    const struct snug_microkernel *kernel = snug_microkernel(0);
    char fp32[64];
    snug_gemm_describe(fp32, sizeof fp32);
    snprintf(text, size, "%s, bf16 %s%s", fp32, kernel ? "by " : "not faster than fp32 here",
             kernel ? kernel->name : "");
}

bool snug_backend_cpu_fast_bf16(void) { return snug_microkernel(0) != NULL; }

static bool trains(const struct snug_program *program) {
    return snug_program_has(program, SNUG_OP_LINEAR_DW) || snug_program_has(program, SNUG_OP_LINEAR_DX);
}

int64_t snug_cpu_library(const struct snug_program *program, int threads) {
    return program->compute == SNUG_F32 ? snug_gemm_library(threads, trains(program)) : 0;
}

snug_status snug_cpu_open(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    /* This must not happen within a step, and the plan must include the buffers. Inference leaves it to the first batch
       of more than few rows: it takes 18 ms, all else in opening MiniLM takes 28, and answers to single sentences need
       none of these kernels. */
    if (trains(program)) RETURN_IF_ERROR(snug_gemm_prepare(ctx, threads));
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_cpu), state));
    struct snug_cpu *cpu = *state;
    cpu->microkernel = snug_microkernel(0);
    if (snug_program_has(program, SNUG_OP_ADAM_8BIT)) snug_quantization_tables_init(&cpu->updates.quantization);
    return SNUG_OK;
}

void snug_cpu_close(void *state) { free(state); }
