/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SNUG_CLI_SHOW_H
#define SNUG_CLI_SHOW_H

#include <stdbool.h>
#include <stdio.h>

/* Text that snug.h does not escape, escaped: on stderr always. */
void cli_show(FILE *out, const char *text);
/* Returns false if writing failed. */
bool cli_show_part(FILE *out, const char *text, size_t length);

#endif
