/* SPDX-License-Identifier: Apache-2.0 */
#include "core/library.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The program's file, or that of the code of this function, which may be in the shared library. */
static bool find_file(bool program, char path[PATH_MAX]) {
    if (program) {
        const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
        if (length > 0) path[length] = '\0';
        return length > 0;
    }
    Dl_info own;
    void *address;
    bool (*const function)(bool, char *) = find_file;
    memcpy(&address, &function, sizeof address); /* ISO C has no cast from function pointers to data */
    return dladdr(address, &own) && realpath(own.dli_fname, path);
}

void *snug_library_open(const char *file, int mode, char *why, size_t size) {
    static const struct {
        bool program;
        const char *folder;
    } places[] = {{true, ""}, {true, "/../lib/snug"}, {true, "/../lib"}, {false, ""}, {false, "/snug"}};
    char path[PATH_MAX + 64], from[PATH_MAX];
    why[0] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!find_file(places[i].program, from)) continue;
        snprintf(path, sizeof path, "%s%s/%s", dirname(from), places[i].folder, file);
        if (access(path, R_OK) != 0) continue;
        void *library = dlopen(path, mode);
        if (!library) snprintf(why, size, "%s", dlerror());
        return library;
    }
    void *library = dlopen(file, mode);
    if (!library) snprintf(why, size, "%s", dlerror());
    return library;
}
