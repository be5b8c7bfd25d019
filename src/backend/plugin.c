/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the CUDA backend, a separate library next to the program. */
#include <dlfcn.h>
#include <string.h>

#include "backend/cuda/plugin.h"
#include "core/library.h"

/* Without the driver's library no kernel can run, so the plug-in and its libraries need not be loaded.
 */
static snug_status find_driver(snug_context *ctx) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) return snug_fail(ctx, SNUG_E_UNSUPPORTED, "there is no NVIDIA driver on this machine");
    dlclose(driver);
    return SNUG_OK;
}

snug_status snug_backend_cuda_of(snug_context *ctx, int local_rank, const struct snug_backend **out) {
    char why[512];
    *out = NULL;
    RETURN_IF_ERROR(find_driver(ctx));
    void *library = snug_library_open(SNUG_CUDA_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL, why, sizeof why);
    if (!library) return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s cannot be opened: %s", SNUG_CUDA_PLUGIN_FILE, why);
    void *symbol = dlsym(library, SNUG_CUDA_PLUGIN_SYMBOL);
    snug_cuda_plugin_fn *entry;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from data to function pointers */
    const struct snug_cuda_plugin *plugin = symbol ? entry() : NULL;
    if (!plugin || plugin->version != SNUG_CUDA_PLUGIN_VERSION || plugin->backend_size != sizeof(struct snug_backend) ||
        plugin->run_size != sizeof(struct snug_run) || plugin->op_size != sizeof(struct snug_op) ||
        plugin->tensor_size != sizeof(struct snug_tensor))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s is of another build of snug: install both from one build",
                         SNUG_CUDA_PLUGIN_FILE);
    /* Never closed: the driver's libraries do not support unloading; the operating system frees them at exit. */
    return plugin->open(ctx, local_rank, out);
}

snug_status snug_backend_cuda(snug_context *ctx, const struct snug_backend **out) {
    return snug_backend_cuda_of(ctx, 0, out);
}
