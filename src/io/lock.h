/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that one run writes into: a second one is refused while the first lives. */
#ifndef SNUG_IO_LOCK_H
#define SNUG_IO_LOCK_H

#include "core/context.h"

/* A zeroed struct holds nothing. */
struct snug_lock {
    char *path; /* NULL: nothing is held */
    int fd;
};

/* Holds an existing folder, until it is released or the process ends, however it does. SNUG_E_IO names the process that
   holds it. Where the file system knows no locks this is told in the log, and nothing is held. Reading the folder needs
   none of this. */
snug_status snug_lock_take(snug_context *ctx, const char *folder, struct snug_lock *lock);
void snug_lock_release(struct snug_lock *lock);

#endif
