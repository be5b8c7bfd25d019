/* SPDX-License-Identifier: Apache-2.0 */
/* A stable sort of small integer keys, in linear time and without allocating. */
#ifndef SNUG_DATA_RADIX_H
#define SNUG_DATA_RADIX_H

#include <stdint.h>

/* order[0 … count-1] = the numbers 0 … count-1, stably sorted by ascending keys[number]. Keys are not negative.
   scratch has count values, too. */
void snug_radix_order(int32_t *order, int32_t *scratch, const int32_t *keys, int64_t count);

#endif
