/* SPDX-License-Identifier: Apache-2.0 */
/* The clock and the environment, as several commands read them. */
#ifndef SNUG_CLI_SYSTEM_H
#define SNUG_CLI_SYSTEM_H

#include <stdbool.h>

/* Seconds of a clock that never jumps. */
double cli_now(void);
/* Whether the environment has the variable, not empty. */
bool cli_is_set(const char *name);

#endif
