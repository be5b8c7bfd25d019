/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of GPUs, for plans on machines without them. */
#ifndef SNUG_BACKEND_GPU_MODELS_H
#define SNUG_BACKEND_GPU_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snug_gpu_model {
    const char *name;    /* as the driver reports it, where that is the name of one GPU only */
    const char *aliases; /* other names, separated by '|' */
    int capability;      /* compute capability 8.6 is 86; below SNUG_CUDA_LEAST_CAPABILITY the rest is unknown */
    double memory;       /* GiB that CUDA has for programs: less than the datasheet's */
    /* Peak rates: memory in GB/s; matmuls without sparsity in TFLOP/s, of bf16 and fp16 with sums in fp32, of TF32 (0:
       it has none, nor bf16), and of fp32 without tensor cores; the link to the host in GB/s, one way. */
    double bandwidth, half, tf32, fp32, link;
    double nvlink; /* to the other GPUs of the host in GB/s, one way; 0: through PCI Express */
    bool tried;    /* snug's tests and benches ran on it */
};

/* Bytes of the driver's context and of cuBLASLt when the libraries are open, and of what the driver allocates later
 * besides the branches of captured phases, for example for kernels: measured on an H100 and an H200. The first grow
 * with the number of multiprocessors, so most GPUs need less. */
#define SNUG_GPU_OPENED_BYTES ((int64_t)522 << 20)
#define SNUG_GPU_GROWTH_BYTES ((int64_t)12 << 20)

/* By any of its names, in upper or lower case, with or without "NVIDIA", "GeForce" and "Tesla"; NULL: unknown. */
const struct snug_gpu_model *snug_gpu_model_find(const char *name);
/* Names similar to an unknown one, separated by commas; those of all but laptops if there is none. */
void snug_gpu_model_list(const char *name, char *text, size_t size);

#endif
