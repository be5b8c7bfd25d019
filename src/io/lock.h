/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder that one run writes into: a second one is refused while the first lives. The file .snug.lock, locked by
 * flock(), holds a line for the run that holds it, "process 4711 on HOST, run 0123456789abcdef", after those of killed
 * runs: their numbers are in the names of the temporary files and folders that they left.
 */
#ifndef SNUG_IO_LOCK_H
#define SNUG_IO_LOCK_H

#include "io/file.h"

/* A zeroed struct holds nothing. */
struct snug_lock {
    const struct snug_folder *folder; /* NULL: nothing is held */
    int fd;
    uint64_t *killed; /* numbers of killed runs */
    size_t killed_count;
};

/* Locks an opened folder, which must outlive the lock, until it is released or the process ends, however it does, and
   gives the folder a run number. SNUG_E_IO names the process that holds it, or what is in the way: a link, a file with
   several names, text that is not snug's. Where the file system has no locks that is logged, and nothing is held.
   Reading the folder needs no lock. */
snug_status snug_lock_take(snug_context *ctx, struct snug_folder *folder, struct snug_lock *lock);
/* After the temporary files of killed runs were removed: forgets these runs. */
void snug_lock_forget_killed(struct snug_lock *lock);
void snug_lock_release(struct snug_lock *lock);

#endif
