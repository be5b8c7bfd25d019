/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of a program's list of operations. Positions are those of the list when the edits were opened: it stays as it
 * is, and can be read, until snug_edits_close() replaces it.
 *
 *   list     0  1  2  3            drop(1), insert(1, a), insert(1, b), insert(3, c), insert(4, d)
 *   becomes  0  a  b  2  c  3  d
 */
#ifndef SNUG_PROGRAM_EDITS_H
#define SNUG_PROGRAM_EDITS_H

#include "program/program.h"

struct snug_edits {
    struct snug_program *program;
    struct snug_edit *inserted; /* in the order of the calls */
    size_t count, capacity;
    int32_t *first, *last; /* by position: what is inserted before it; -1: nothing */
    bool *dropped;         /* by position */
    void **arrays;         /* of snug_edits_alloc() */
    size_t array_count, array_capacity;
};

/* Closed by snug_edits_close(), also after a failure. */
snug_status snug_edits_open(struct snug_program *program, struct snug_edits *out);
/* An array of zeros that lives until the edits are closed. */
snug_status snug_edits_alloc(struct snug_edits *edits, size_t count, size_t size, void **out);
/* Inserts op before position `at`, after what was inserted there already. The number of operations is the position
 * after the last one. */
snug_status snug_edits_insert(struct snug_edits *edits, size_t at, struct snug_op op);
void snug_edits_drop(struct snug_edits *edits, size_t at);
snug_status snug_edits_replace(struct snug_edits *edits, size_t at, struct snug_op op);
/* If status is SNUG_OK, makes the new list, sorted by phase: operations of one phase keep their order. Frees all else.
 * Returns the status. */
snug_status snug_edits_close(struct snug_edits *edits, snug_status status);

/* Sorts the operations by phase. Each keeps its place among those of its phase. */
snug_status snug_program_sort(struct snug_program *program);
/* begin[phase]: the first operation of a sorted program that is of this phase or a later one. */
void snug_program_phases(const struct snug_program *program, int32_t begin[SNUG_PHASE_COUNT + 1]);

#endif
