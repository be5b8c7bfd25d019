/* SPDX-License-Identifier: Apache-2.0 */
#include "core/edit_distance.h"

#include <string.h>

size_t snug_edit_distance(const char *a, const char *b, size_t limit) {
    size_t row[SNUG_EDIT_SIZE], length = strlen(b);
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0], least = row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (diagonal + 1 < best) best = diagonal + 1;
            row[j + 1] = best;
            if (best < least) least = best;
        }
        if (least >= limit) return limit;
    }
    return row[length];
}
