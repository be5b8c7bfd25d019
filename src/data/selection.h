/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a data set's rows, in their order: one bit for each row, so that rows of any number take little memory. */
#ifndef SNUG_DATA_SELECTION_H
#define SNUG_DATA_SELECTION_H

#include "core/context.h"

struct snug_selection {
    int64_t all, count; /* rows; those that are selected */
    uint64_t *bits;     /* [all]; NULL: nothing is selected, and the selection is not used */
    int64_t *before;    /* [blocks] selected rows before each block of bits */
};
/* No row is selected. Freed in any case with snug_selection_free(). */
snug_status snug_selection_create(snug_context *ctx, int64_t all, struct snug_selection *out);
void snug_selection_free(struct snug_selection *selection);
void snug_selection_add(struct snug_selection *selection, int64_t row);
/* After the last row was added. */
void snug_selection_finish(struct snug_selection *selection);
/* The selected row number `number`. */
int64_t snug_selection_row(const struct snug_selection *selection, int64_t number);
/* A checksum of the rows. */
uint64_t snug_selection_digest(const struct snug_selection *selection);

#endif
