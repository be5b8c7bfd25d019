/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/nccl/nccl.h"

#include <dlfcn.h>
#include <string.h>

#include "core/library.h"

#define FILE_NAME "libnccl.so.2"

enum { LEAST = 2700 /* 2.7.0, the first with ncclSend and ncclRecv; versions were written so until 2.8 */ };

/* ISO C has no cast from data to function pointers. */
static bool find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol;
}

snug_status snug_nccl_open(snug_context *ctx, struct snug_nccl *out) {
    char why[512];
    *out = (struct snug_nccl){0};
    void *library = snug_library_open(FILE_NAME, RTLD_NOW | RTLD_LOCAL, why, sizeof why);
    if (!library)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "several GPUs need NCCL, and " FILE_NAME
                         " cannot be opened: %s; install libnccl2, or add its folder to LD_LIBRARY_PATH (the Python "
                         "package nvidia-nccl has it in nvidia/nccl/lib)",
                         why);
    const bool whole = find(library, "ncclGetVersion", &out->get_version) &&
                       find(library, "ncclGetUniqueId", &out->get_unique_id) &&
                       find(library, "ncclCommInitRank", &out->comm_init_rank) &&
                       find(library, "ncclCommDestroy", &out->comm_destroy) &&
                       find(library, "ncclCommGetAsyncError", &out->comm_get_async_error) &&
                       find(library, "ncclGetErrorString", &out->get_error_string) &&
                       find(library, "ncclGroupStart", &out->group_start) &&
                       find(library, "ncclGroupEnd", &out->group_end) && find(library, "ncclSend", &out->send) &&
                       find(library, "ncclRecv", &out->recv) && find(library, "ncclAllGather", &out->all_gather);
    if (whole && out->get_version(&out->version) == SNUG_NCCL_OK && out->version >= LEAST) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_UNSUPPORTED, FILE_NAME " is of version %d, and snug needs NCCL 2.7 or later",
                     out->version);
}

snug_status snug_nccl_check(snug_context *ctx, const struct snug_nccl *nccl, int result, const char *what) {
    if (result == SNUG_NCCL_OK) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_IO, "NCCL: %s: %s; NCCL_DEBUG=WARN NCCL_DEBUG_FILE=nccl.%%h.%%p writes more", what,
                     nccl->get_error_string(result));
}
