/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine's headers, start files and archives need of glibc that VERSION of tools/portable/old-glibc does not
 * have, written with what it has. Linked into the portable program and library only.
 */
#include <sys/stat.h>

/* Since 2.32, for libstdc++: false, as if there were several threads, is always right. */
char __libc_single_threaded;

/* What Jansson takes for stdin (portable.cmake). */
void *snug_no_file;

/* Until 2.32 these were inline calls of functions that take the version of struct stat. */
enum { STAT_VERSION = 1 };
extern int __xstat(int version, const char *path, struct stat *out);
extern int __lxstat(int version, const char *path, struct stat *out);
extern int __fxstat(int version, int fd, struct stat *out);
extern int __fxstatat(int version, int fd, const char *path, struct stat *out, int flags);
int stat(const char *path, struct stat *out) { return __xstat(STAT_VERSION, path, out); }
int lstat(const char *path, struct stat *out) { return __lxstat(STAT_VERSION, path, out); }
int fstat(int fd, struct stat *out) { return __fxstat(STAT_VERSION, fd, out); }
int fstatat(int fd, const char *path, struct stat *out, int flags) {
    return __fxstatat(STAT_VERSION, fd, path, out, flags);
}

/* Since 2.38 <stdlib.h> gives C23's strtol() and its relatives these names. They also read 0b1, which no archive here
 * asks for. */
extern long __strtol_internal(const char *text, char **end, int base, int group);
extern unsigned long __strtoul_internal(const char *text, char **end, int base, int group);
#define SNUG_STRTO(name, type, from)                                                                                   \
    type __isoc23_##name(const char *text, char **end, int base);                                                      \
    type __isoc23_##name(const char *text, char **end, int base) { return from(text, end, base, 0); }
SNUG_STRTO(strtol, long, __strtol_internal)
SNUG_STRTO(strtoll, long long, __strtol_internal)
SNUG_STRTO(strtoul, unsigned long, __strtoul_internal)
SNUG_STRTO(strtoull, unsigned long long, __strtoul_internal)
