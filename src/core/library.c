/* SPDX-License-Identifier: Apache-2.0 */
#include "core/library.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

void *snug_library_open(const char *file, int mode, char *why, size_t size) {
    char path[PATH_MAX + 64], program[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    why[0] = '\0';
    if (length > 0) { /* may be untested: needs a kernel without /proc */
        program[length] = '\0';
        const char *folder = dirname(program);
        static const char *const places[] = {"", "/../lib/snug", "/../lib"};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            snprintf(path, sizeof path, "%s%s/%s", folder, places[i], file);
            if (access(path, R_OK) != 0) continue;
            void *library = dlopen(path, mode);
            if (!library) snprintf(why, size, "%s", dlerror());
            return library;
        }
    }
    void *library = dlopen(file, mode);
    /* may be untested: the tests' plug-in is always found */
    if (!library) snprintf(why, size, "%s", dlerror());
    return library;
}
