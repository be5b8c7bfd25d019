/* SPDX-License-Identifier: Apache-2.0 */
/* The first rows of a data file, which are read before it is decided how the file is used, and are then read again. A
 * pipe cannot be rewound. */
#ifndef SNUG_DATA_PEEK_H
#define SNUG_DATA_PEEK_H

#include "data/reader.h"

enum { SNUG_PEEK_ROWS = 64 }; /* fewer if they are long */

struct snug_peek {
    struct snug_reader *reader; /* the caller's */
    size_t columns;
    struct snug_row rows[SNUG_PEEK_ROWS];
    struct snug_field *fields; /* of all rows */
    char *text;
    size_t count, next; /* rows that are held; of those, rows that were returned */
    bool ended;
};

/* Reads at most `most` rows (-1: no limit of its own). Freed in any case with snug_peek_free(), before the reader is
 * closed. */
snug_status snug_peek_open(snug_context *ctx, struct snug_reader *reader, int64_t most, struct snug_peek *out);
/* As snug_reader_next(): the rows that are held, then the reader's. */
snug_status snug_peek_next(struct snug_peek *peek, struct snug_row *row);
void snug_peek_free(struct snug_peek *peek);

#endif
