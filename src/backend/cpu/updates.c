/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/updates.h"

#include <stdlib.h>
#include <string.h>

#define DECLARE(isa) extern const struct snug_backend snug_backend_updates_##isa;
SNUG_CPU_ISAS(DECLARE)
#undef DECLARE

/* The other features of these levels of the x86-64 ABI are present in every processor that has the features checked
   here. */
bool snug_cpu_has(const char *isa) {
#ifdef __x86_64__
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    return strcmp(isa, "v4") == 0 ? v4 : strcmp(isa, "v3") == 0 ? v3 : true;
#else
    (void)isa;
    return true;
#endif
}

const struct snug_backend *snug_backend_updates(const char *isa) {
    static const struct {
        const char *isa;
        const struct snug_backend *backend;
    } all[] = {
#define ENTRY(name) {#name, &snug_backend_updates_##name},
        SNUG_CPU_ISAS(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (snug_cpu_has(all[i].isa) && (!isa || strcmp(isa, all[i].isa) == 0)) return all[i].backend;
    }
    return NULL;
}

snug_status snug_cpu_updates_open(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)threads;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_cpu_updates), state));
    struct snug_cpu_updates *updates = *state;
    if (snug_program_has(program, SNUG_OP_ADAM_8BIT)) snug_quantization_tables_init(&updates->quantization);
    return SNUG_OK;
}

void snug_cpu_updates_close(void *state) { free(state); }
