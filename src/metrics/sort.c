/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/sort.h"

/* Heapsort. */
void snug_sort_words(uint64_t *values, int64_t count) {
    for (int64_t begin = count / 2, end = count; end > 1;) {
        uint64_t value;
        if (begin > 0) { /* the heap is not complete yet */
            value = values[--begin];
        } else {
            value = values[--end];
            values[end] = values[0];
        }
        int64_t parent = begin;
        for (int64_t child = 2 * parent + 1; child < end; child = 2 * parent + 1) {
            if (child + 1 < end && values[child + 1] > values[child]) child++;
            if (values[child] <= value) break;
            values[parent] = values[child];
            parent = child;
        }
        values[parent] = value;
    }
}
