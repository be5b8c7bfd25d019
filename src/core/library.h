/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of snug's own that are opened at run time: plug-ins that need what not every machine has. */
#ifndef SNUG_CORE_LIBRARY_H
#define SNUG_CORE_LIBRARY_H

#include "core/context.h"

/* Opens `file` (dlopen's mode) from the program's folder, from lib/snug or lib next to that folder, from the folder of
 * snug's shared library or its folder snug, or from the system's library path, in this order. NULL: it cannot be
 * opened, and why has the reason. */
void *snug_library_open(const char *file, int mode, char *why, size_t size);

#endif
