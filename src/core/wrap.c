/* SPDX-License-Identifier: Apache-2.0 */
#include "core/wrap.h"

#include <string.h>

size_t snug_wrap(const char *text) {
    const size_t room = SNUG_WRAP_WIDTH - 1 - SNUG_WRAP_INDENT;
    size_t length = strlen(text);
    if (length <= room) return length;
    length = room;
    while (length && text[length] != ' ') length--;
    return length ? length : strcspn(text, " ");
}
