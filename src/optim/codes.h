/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a value to the nearest code of a book with one look at a table. Floats are cut into cells by their sign,
 * exponent and first bits, so fine that at most one middle between two codes falls into a cell: the closest codes of
 * the signed book are 0.014 apart, those of the unsigned one 0.007, where 6 and 7 bits give cells of 0.008 and 0.004. A
 * cell's word holds a code above its value's remaining bits, chosen so that adding those carries into the code exactly
 * if the value lies beyond the middle; for a negative value, whose code falls as its bits grow, their complement is
 * added. To spare a mask the whole value is added, and the cell's number is taken from the word beforehand.
 *
 * Of the tables only those cells come into the first cache that values of the book's range fall into.
 */
#ifndef SNUG_OPTIM_CODES_H
#define SNUG_OPTIM_CODES_H

#include <stdint.h>

#include "optim/code_book.h"

/* The remaining bits; the unsigned table ends with the cell of 1. */
enum {
    SNUG_SIGNED_SHIFT = 17,
    SNUG_UNSIGNED_SHIFT = 16,
    SNUG_SIGNED_CELLS = 1 << (32 - SNUG_SIGNED_SHIFT),
    SNUG_UNSIGNED_CELLS = (0x3f800000 >> SNUG_UNSIGNED_SHIFT) + 1,
};

/* The way back without a table of 256 values, for processors that can look up 16 and 32 words in registers: gathering
   costs a load for each value. In a decade the book's values lie on a line over the code's distance from that of 0, but
   for some last places, which stand in 4 bits for each distance, first ones highest. A line's place is the number of
   leading zero bits of the distance, modulo 16; the unsigned book counts distances from 1. */
struct snug_code_lines {
    float slope[16], offset[16];
    uint32_t corrections[32];
};

struct snug_codes {
    struct snug_code_lines signed_lines, unsigned_lines;
    float signed_book[SNUG_CODES], unsigned_book[SNUG_CODES];
    /* The code has the sign of the value, also where 0 is nearest. */
    uint32_t signed_cells[SNUG_SIGNED_CELLS];
    uint32_t unsigned_cells[SNUG_UNSIGNED_CELLS];
};
void snug_codes_init(struct snug_codes *codes);

#endif
