/* SPDX-License-Identifier: Apache-2.0 */
/* The door of libsnug_cuda.so. */
#ifndef SNUG_BACKEND_CUDA_PLUGIN_H
#define SNUG_BACKEND_CUDA_PLUGIN_H

#include "backend/backend.h"

/* Changes with every change of what program and plug-in share; they are built together. */
#define SNUG_CUDA_PLUGIN_VERSION 3

struct snug_cuda_plugin {
    int version;
    size_t backend_size, run_size, op_size, tensor_size; /* of the structs, as another check that both are one build */
    /* The backend, with the device's context made; a sentence that says what is missing otherwise. */
    snug_status (*open)(snug_context *ctx, const struct snug_backend **backend);
};
typedef const struct snug_cuda_plugin *snug_cuda_plugin_fn(void);

#define SNUG_CUDA_PLUGIN_FILE "libsnug_cuda.so"
#define SNUG_CUDA_PLUGIN_SYMBOL "snug_cuda_plugin"

#endif
