/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/process.h"

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
        /* may be untested: depends on the processor */
        if (snug_cpu_has(all[i].isa) && (!isa || strcmp(isa, all[i].isa) == 0)) return all[i].backend;
    }
    return NULL;
}

const struct snug_backend *snug_backend_cpu(void) { return snug_backend_cpu_isa(NULL); }

void snug_backend_cpu_describe(char *text, size_t size) {
    const dnnl_version_t *version = dnnl_version();
    const struct snug_microkernel *kernel = snug_microkernel(0);
    /* may be untested: depends on the processor */
    snprintf(text, size, "oneDNN %d.%d.%d, bf16 %s%s", version->major, version->minor, version->patch,
             kernel ? "by " : "not faster than fp32 here", kernel ? kernel->name : "");
}

bool snug_backend_cpu_fast_bf16(void) { return snug_microkernel(0) != NULL; }

/* Calls each form of GEMM once in each thread: in the first call oneDNN generates its fp32 kernel and allocates the
   thread's packing buffer. This must not happen within a step, and the plan must include the buffers. */
static snug_status build_gemms(snug_context *ctx, int threads) {
    enum { SIDE = 64, DEPTH = 64 }; /* the kernel does not depend on the size */
    float *zeros;
    bool refused = false;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(threads + 1) * SIDE * DEPTH, sizeof *zeros, (void **)&zeros));
#pragma omp parallel num_threads(threads) reduction(|| : refused)
    {
        float *c = zeros + (size_t)(omp_get_thread_num() + 1) * SIDE * DEPTH;
        snug_gemm_one_thread();
        /* may be untested: oneDNN refuses negative sizes and lack of memory alone */
        for (int form = 0; form < 6; form++)
            refused = refused ||
                      !snug_gemm_f32(c, SIDE, zeros, form % 3 == 2 ? SIDE : DEPTH, form % 3 == 2, zeros,
                                     form % 3 == 1 ? DEPTH : SIDE, form % 3 == 1, SIDE, SIDE, DEPTH, form < 3 ? 0 : 1);
    }
    free(zeros);
    snug_operations_end_at_exit();
    /* untested: oneDNN refuses negative sizes and lack of memory alone */
    return refused ? snug_fail(ctx, SNUG_E_INTERNAL, "oneDNN rejected a matmul (dnnl_sgemm)") : SNUG_OK;
}

static bool trains(const struct snug_program *program) {
    return snug_program_has(program, SNUG_OP_LINEAR_DW) || snug_program_has(program, SNUG_OP_LINEAR_DX);
}

int64_t snug_cpu_library(const struct snug_program *program, int threads) {
    enum { PACKED = 3 << 20, GENERATED = 7 << 20 };
    if (program->compute != SNUG_F32) return 0;
    return (int64_t)threads * PACKED + (trains(program) ? 0 : GENERATED);
}

snug_status snug_cpu_open(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    /* Inference leaves this to the first batch of more than few rows: it takes 18 ms, all else in opening MiniLM takes
       28, and answers to single sentences need none of these kernels. */
    if (trains(program)) RETURN_IF_ERROR(build_gemms(ctx, threads));
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_cpu), state));
    struct snug_cpu *cpu = *state;
    cpu->microkernel = snug_microkernel(0);
    if (snug_program_has(program, SNUG_OP_ADAM_8BIT)) snug_quantization_tables_init(&cpu->updates.quantization);
    return SNUG_OK;
}

void snug_cpu_close(void *state) { free(state); }
