/* SPDX-License-Identifier: Apache-2.0 */
#include "run/captured.h"

#include "plan/stages.h"

/* The bytes of a phase of one kind of micro-batch. *any: it has operations. */
static int64_t phase_bytes(const struct snug_backend *backend, const struct snug_program *program,
                           enum snug_phase phase, const struct snug_moment *moment, bool *any) {
    int64_t bytes = 0;
    *any = false;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->phase != phase || snug_op_is_idle(op, moment)) continue;
        *any = true;
        bytes += backend->captured(program, op);
    }
    return bytes;
}

/* The bytes of all phases for one batch size; *phases: their number. */
static int64_t bytes_of_size(const struct snug_backend *backend, const struct snug_program *program,
                             int64_t micro_batches, int *phases) {
    int64_t bytes = 0;
    *phases = 0;
    const int kinds = micro_batches < 3 ? (int)micro_batches : 3;
    for (int kind = 0; kind < kinds; kind++)
        for (int phase = SNUG_PHASE_FORWARD; phase < SNUG_PHASE_COUNT; phase++) {
            const bool first = kind == 0, last = kind == kinds - 1;
            /* In a step after another one. */
            const struct snug_moment moment = {.first = first, .last = last, .fetched = true, .pending = first};
            bool any;
            if (phase >= SNUG_PHASE_CLIP && !last) continue;
            bytes += phase_bytes(backend, program, (enum snug_phase)phase, &moment, &any);
            *phases += any;
        }
    return bytes;
}

int64_t snug_captured_bytes(const struct snug_backend *backend, const struct snug_program *program,
                            const struct snug_sizes *sizes, int64_t micro_batches, int *phases) {
    int64_t count = 0;
    int each;
    if (!backend->captured_phases) return 0;
    for (int size = 0; size < SNUG_SIZES; size++) count += snug_sizes_has(sizes, size);
    const int64_t bytes = bytes_of_size(backend, program, micro_batches, &each);
    const int64_t most = each ? *phases / each : 0;
    if (count > most) count = most;
    *phases -= (int)count * each;
    return count * bytes;
}
