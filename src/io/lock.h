/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks the folder that a run writes into: a second run is refused while the first one exists. The file .snug.lock,
 * locked by flock(), has a line for the run that holds the lock, "process 4711 on HOST, run 0123456789abcdef", after
 * the lines of killed runs, whose numbers are in the names of their leftover temporary files and folders.
 */
#ifndef SNUG_IO_LOCK_H
#define SNUG_IO_LOCK_H

#include "io/file.h"

/* A zeroed struct holds no lock. */
struct snug_lock {
    const struct snug_folder *folder; /* NULL: no lock is held */
    int fd;
    uint64_t *killed; /* numbers of killed runs */
    size_t killed_count;
    bool keep; /* releasing leaves the file and its lines: temporary files of these runs may be left */
};

/* Locks an opened folder, which must outlive the lock, until it is released or the process ends in any way, and gives
 * the folder a run number. SNUG_E_IO names the process that holds the lock, or the obstacle: a link, a file with
 * several names, text that snug did not write. If the file system has no locks, that is logged and no lock is held.
 * Reading the folder needs no lock. */
snug_status snug_lock_take(snug_context *ctx, struct snug_folder *folder, struct snug_lock *lock);
/* Removes the lines of killed runs, after their temporary files were removed. */
void snug_lock_forget_killed(struct snug_lock *lock);
void snug_lock_release(struct snug_lock *lock);

#endif
