/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the CUDA backend, a separate library next to the program. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/plugin.h"

/* Without the driver's library no kernel can run, so the plug-in and its libraries need not be loaded.
 */
static snug_status find_driver(snug_context *ctx) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) return snug_fail(ctx, SNUG_E_UNSUPPORTED, "there is no NVIDIA driver on this machine");
    dlclose(driver);
    return SNUG_OK;
}

/* Searches the program's folder, the lib folder next to it, and the system's library path. */
static void *open_library(char *why, size_t size) {
    char path[PATH_MAX + 32], program[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    why[0] = '\0';
    if (length > 0) { /* may be untested: needs a kernel without /proc */
        program[length] = '\0';
        const char *folder = dirname(program);
        static const char *const places[] = {"", "/../lib/snug", "/../lib"};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            snprintf(path, sizeof path, "%s%s/%s", folder, places[i], SNUG_CUDA_PLUGIN_FILE);
            if (access(path, R_OK) != 0) continue;
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!library) snprintf(why, size, "%s", dlerror());
            return library;
        }
    }
    void *library = dlopen(SNUG_CUDA_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
    /* may be untested: the tests' plug-in is always found */
    if (!library) snprintf(why, size, "%s", dlerror());
    return library;
}

snug_status snug_backend_cuda(snug_context *ctx, const struct snug_backend **out) {
    char why[512];
    *out = NULL;
    RETURN_IF_ERROR(find_driver(ctx));
    void *library = open_library(why, sizeof why);
    if (!library) return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s cannot be opened: %s", SNUG_CUDA_PLUGIN_FILE, why);
    void *symbol = dlsym(library, SNUG_CUDA_PLUGIN_SYMBOL);
    snug_cuda_plugin_fn *door;
    memcpy(&door, &symbol, sizeof door); /* ISO C has no cast from data to function pointers */
    const struct snug_cuda_plugin *plugin = symbol ? door() : NULL;
    if (!plugin || plugin->version != SNUG_CUDA_PLUGIN_VERSION || plugin->backend_size != sizeof(struct snug_backend) ||
        plugin->run_size != sizeof(struct snug_run) || plugin->op_size != sizeof(struct snug_op) ||
        plugin->tensor_size != sizeof(struct snug_tensor))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s is of another build of snug: install both from one build",
                         SNUG_CUDA_PLUGIN_FILE);
    /* Never closed: the driver's libraries do not support unloading; the operating system frees them at exit. */
    return plugin->open(ctx, out);
}
