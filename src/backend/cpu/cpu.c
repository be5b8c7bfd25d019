/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
extern const struct snug_backend snug_backend_cpu_v2, snug_backend_cpu_v3, snug_backend_cpu_v4;
#else
extern const struct snug_backend snug_backend_cpu_generic;
#endif

/* Best first. What the levels of the x86-64 ABI hold beyond the features asked for here came with the same processors.
 */
const struct snug_backend *snug_backend_cpu_isa(const char *isa) {
#ifdef __x86_64__
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    if (v4 && (!isa || strcmp(isa, "v4") == 0)) return &snug_backend_cpu_v4;
    if (v3 && (!isa || strcmp(isa, "v3") == 0)) return &snug_backend_cpu_v3;
    if (!isa || strcmp(isa, "v2") == 0) return &snug_backend_cpu_v2;
#else
    if (!isa || strcmp(isa, "generic") == 0) return &snug_backend_cpu_generic;
#endif
    return NULL;
}

const struct snug_backend *snug_backend_cpu(void) { return snug_backend_cpu_isa(NULL); }

bool snug_backend_cpu_fast_bf16(void) { return snug_block_kernel(0) != NULL; }

snug_status snug_cpu_open(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)program;
    (void)threads;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_cpu), state));
    struct snug_cpu *cpu = *state;
    cpu->block = snug_block_kernel(0);
    return SNUG_OK;
}

void snug_cpu_close(void *state) { free(state); }
