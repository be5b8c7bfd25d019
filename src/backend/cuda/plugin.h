/* SPDX-License-Identifier: Apache-2.0 */
/* The entry point of libsnug_cuda.so. */
#ifndef SNUG_BACKEND_CUDA_PLUGIN_H
#define SNUG_BACKEND_CUDA_PLUGIN_H

#include "backend/backend.h"

/* The ABI version: changes with every change of the interface between program and plug-in, which are built together. */
#define SNUG_CUDA_PLUGIN_VERSION 8

struct snug_cuda_plugin {
    int version;
    size_t backend_size, run_size, op_size,
        tensor_size; /* sizes of the structs: another check that both are of the same build */
    /* The backend, with the context created of the GPU of this number, or of the only one; otherwise an error that says
     * what is missing. */
    snug_status (*open)(snug_context *ctx, int local_rank, const struct snug_backend **backend);
};
typedef const struct snug_cuda_plugin *snug_cuda_plugin_fn(void);

#define SNUG_CUDA_PLUGIN_FILE "libsnug_cuda.so"
#define SNUG_CUDA_PLUGIN_SYMBOL "snug_cuda_plugin"

#endif
