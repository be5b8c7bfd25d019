/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a report: a name, and a text that continues in the next line at the same column. */
#ifndef SNUG_CORE_WRAP_H
#define SNUG_CORE_WRAP_H

#include <stddef.h>

enum { SNUG_WRAP_WIDTH = 80, SNUG_WRAP_INDENT = 11 };

/* Length of the part of text that fits into a line after the name, broken at a space if there is one. */
size_t snug_wrap(const char *text);

#endif
