/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
extern const struct snug_backend snug_backend_cpu_v2, snug_backend_cpu_v3, snug_backend_cpu_v4;
#else
extern const struct snug_backend snug_backend_cpu_generic;
#endif

/* Fastest first. The other features of these levels of the x86-64 ABI are present in every processor that has the
 * features checked here.
 */
const struct snug_backend *snug_backend_cpu_isa(const char *isa) {
#ifdef __x86_64__
    /* may be untested: depends on the processor */
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    /* may be untested: depends on the processor */
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    /* may be untested: depends on the processor */
    if (v4 && (!isa || strcmp(isa, "v4") == 0)) return &snug_backend_cpu_v4;
    /* may be untested: depends on the processor */
    if (v3 && (!isa || strcmp(isa, "v3") == 0)) return &snug_backend_cpu_v3;
    /* may be untested: depends on the processor */
    if (!isa || strcmp(isa, "v2") == 0) return &snug_backend_cpu_v2;
#else
    if (!isa || strcmp(isa, "generic") == 0) return &snug_backend_cpu_generic;
#endif
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
    /* untested: oneDNN refuses negative sizes and lack of memory alone */
    return refused ? snug_fail(ctx, SNUG_E_INTERNAL, "oneDNN rejected a matmul (dnnl_sgemm)") : SNUG_OK;
}

int64_t snug_cpu_library(const struct snug_program *program, int threads) {
    enum { PACKED = 3 << 20 };
    return program->compute == SNUG_F32 ? (int64_t)threads * PACKED : 0;
}

snug_status snug_cpu_open(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    RETURN_IF_ERROR(build_gemms(ctx, threads));
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_cpu), state));
    struct snug_cpu *cpu = *state;
    cpu->microkernel = snug_microkernel(0);
    if (snug_program_has(program, SNUG_OP_ADAM_8BIT)) snug_quantization_tables_init(&cpu->quantization);
    return SNUG_OK;
}

void snug_cpu_close(void *state) { free(state); }
