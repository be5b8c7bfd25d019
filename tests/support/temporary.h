/* SPDX-License-Identifier: Apache-2.0 */
/* Where tests have their files. */
#ifndef SNUG_TESTS_TEMPORARY_H
#define SNUG_TESTS_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* TMPDIR, else a file system in memory if it has room, since snug syncs every file that it writes, else /tmp. */
static inline const char *temporary_root(void) {
    static const char memory[] = "/dev/shm";
    const char *wanted = getenv("TMPDIR");
    struct statvfs system;
    if (wanted && *wanted) return wanted;
    if (access(memory, W_OK | X_OK) != 0 || statvfs(memory, &system) != 0) return "/tmp";
    return (double)system.f_bavail * (double)system.f_frsize >= 4e9 ? memory : "/tmp"; /* containers often have 64 MB */
}

/* Makes a folder and puts its path into the array. NULL: it cannot be made, or TMPDIR is too long for the array. */
static inline char *temporary_folder(char *path, size_t size) {
    const int length = snprintf(path, size, "%s/snug-test-XXXXXX", temporary_root());
    return length > 0 && (size_t)length < size ? mkdtemp(path) : NULL;
}

#endif
