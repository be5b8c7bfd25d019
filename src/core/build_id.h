/* SPDX-License-Identifier: Apache-2.0 */
/* The build that runs: the linker's hash (ELF's build id) of the program or library that this code is part of. */
#ifndef SNUG_CORE_BUILD_ID_H
#define SNUG_CORE_BUILD_ID_H

#include <stddef.h>

/* Its bytes, which live as long as the code; NULL: a linker wrote none. */
const void *snug_build_id(size_t *size);

#endif
