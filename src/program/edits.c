/* SPDX-License-Identifier: Apache-2.0 */
#include "program/edits.h"

#include <stdlib.h>

struct snug_edit {
    struct snug_op op;
    int32_t next; /* inserted at the same position, or -1 */
};

snug_status snug_edits_open(struct snug_program *program, struct snug_edits *out) {
    const size_t positions = program->op_count + 1;
    *out = (struct snug_edits){.program = program};
    snug_status status = snug_edits_alloc(out, positions, sizeof *out->first, (void **)&out->first);
    if (status == SNUG_OK) status = snug_edits_alloc(out, positions, sizeof *out->last, (void **)&out->last);
    if (status == SNUG_OK) status = snug_edits_alloc(out, positions, sizeof *out->dropped, (void **)&out->dropped);
    if (status != SNUG_OK) return snug_edits_close(out, status);
    for (size_t i = 0; i < positions; i++) out->first[i] = out->last[i] = -1;
    return SNUG_OK;
}

snug_status snug_edits_alloc(struct snug_edits *edits, size_t count, size_t size, void **out) {
    snug_context *ctx = edits->program->ctx;
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&edits->arrays, &edits->array_capacity, edits->array_count + 1, sizeof *edits->arrays));
    RETURN_IF_ERROR(snug_alloc(ctx, count, size, out));
    edits->arrays[edits->array_count++] = *out;
    return SNUG_OK;
}

snug_status snug_edits_insert(struct snug_edits *edits, size_t at, struct snug_op op) {
    RETURN_IF_ERROR(snug_grow(edits->program->ctx, (void **)&edits->inserted, &edits->capacity, edits->count + 1,
                              sizeof *edits->inserted));
    const int32_t number = (int32_t)edits->count++;
    edits->inserted[number] = (struct snug_edit){op, -1};
    *(edits->last[at] < 0 ? &edits->first[at] : &edits->inserted[edits->last[at]].next) = number;
    edits->last[at] = number;
    return SNUG_OK;
}

void snug_edits_drop(struct snug_edits *edits, size_t at) { edits->dropped[at] = true; }

snug_status snug_edits_replace(struct snug_edits *edits, size_t at, struct snug_op op) {
    snug_edits_drop(edits, at);
    return snug_edits_insert(edits, at, op);
}

static snug_status apply(const struct snug_edits *edits) {
    struct snug_program *program = edits->program;
    struct snug_op *ops = program->ops;
    const size_t count = program->op_count;
    snug_status status = SNUG_OK;
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    for (size_t i = 0; i <= count && status == SNUG_OK; i++) {
        for (int32_t k = edits->first[i]; k >= 0 && status == SNUG_OK; k = edits->inserted[k].next)
            status = snug_program_op(program, edits->inserted[k].op);
        if (i < count && !edits->dropped[i] && status == SNUG_OK) status = snug_program_op(program, ops[i]);
    }
    free(ops);
    return status == SNUG_OK ? snug_program_sort(program) : status;
}

snug_status snug_edits_close(struct snug_edits *edits, snug_status status) {
    if (status == SNUG_OK) status = apply(edits);
    for (size_t i = 0; i < edits->array_count; i++) free(edits->arrays[i]);
    free(edits->arrays);
    free(edits->inserted);
    *edits = (struct snug_edits){0};
    return status;
}

snug_status snug_program_sort(struct snug_program *program) {
    struct snug_op *sorted;
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *sorted, (void **)&sorted));
    size_t count = 0;
    for (int phase = 0; phase < SNUG_PHASE_COUNT; phase++)
        for (size_t i = 0; i < program->op_count; i++)
            if ((int)program->ops[i].phase == phase) sorted[count++] = program->ops[i];
    free(program->ops);
    program->ops = sorted;
    program->op_capacity = program->op_count;
    return SNUG_OK;
}

void snug_program_phases(const struct snug_program *program, int32_t begin[SNUG_PHASE_COUNT + 1]) {
    for (int phase = 0; phase <= SNUG_PHASE_COUNT; phase++) begin[phase] = 0;
    for (size_t i = 0; i < program->op_count; i++)
        for (int phase = (int)program->ops[i].phase + 1; phase <= SNUG_PHASE_COUNT; phase++)
            begin[phase] = (int32_t)i + 1;
}
