/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of words in a text. */
#ifndef SNUG_CORE_LIST_H
#define SNUG_CORE_LIST_H

#include <stdbool.h>
#include <string.h>

/* Whether list, separated by separator, holds the word of length characters. */
static inline bool snug_list_has(const char *list, char separator, const char *word, size_t length) {
    while (list) {
        const char *end = strchr(list, separator);
        const size_t item = end ? (size_t)(end - list) : strlen(list);
        if (item == length && length > 0 && strncmp(list, word, length) == 0) return true;
        list = end ? end + 1 : NULL;
    }
    return false;
}

#endif
