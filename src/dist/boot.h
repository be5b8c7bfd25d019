/* SPDX-License-Identifier: Apache-2.0 */
/* Which host a rank runs on. Machines that were cloned may have the same name, and containers of one host other names;
 * the id of the kernel's start is different for each host, and the same in all its containers. */
#ifndef SNUG_DIST_BOOT_H
#define SNUG_DIST_BOOT_H

#include <stdio.h>

enum { SNUG_BOOT_ID = 37 }; /* bytes */

/* "" where it cannot be read. */
static inline void snug_boot_id(char text[SNUG_BOOT_ID]) {
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(text, SNUG_BOOT_ID, file)) *text = '\0';
    if (file) fclose(file);
}

#endif
