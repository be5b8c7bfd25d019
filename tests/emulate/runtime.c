/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's calls, products in the plainest way, and phases that are never recorded. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

cudaError_t cudaMalloc(void **memory, size_t size) {
    size = (size + 511) / 512 * 512;
    *memory = aligned_alloc(512, size);
    if (!*memory) return cudaErrorMemoryAllocation;
    memset(*memory, 0xff, size); /* NaN: what is read before it is written shows */
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned flags) {
    (void)flags;
    return cudaMalloc(memory, size);
}
cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    (void)kind;
    memcpy(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, cudaStream_t stream) {
    (void)stream;
    return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemset(void *memory, int value, size_t size) {
    memset(memory, value, size);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream) {
    (void)stream;
    return cudaMemset(memory, value, size);
}
cudaError_t cudaMemGetInfo(size_t *unused, size_t *all) {
    *unused = *all = (size_t)64 << 30;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    (void)device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    (void)attribute, (void)device;
    *value = 8;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    *stream = NULL;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    *event = NULL;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event, (void)stream;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error ? "failed" : "no error"; }

/* ---- in the place of products.c and graph.c ---- */

void snug_cuda_free_products(struct snug_cuda *cuda) { (void)cuda; }
void snug_cuda_free_graphs(struct snug_cuda *cuda) { (void)cuda; }

snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    (void)phase;
    *done = false;
    if (!run->batch) return SNUG_OK;
    snug_cuda_of(run)->padded = true;
    return snug_cuda_send_step(run);
}

snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase) {
    (void)phase;
    snug_cuda_of(run)->padded = false;
    return SNUG_OK;
}

static float value_of(const void *data, int64_t i, enum snug_dtype type) {
    return type == SNUG_BF16  ? snug_bf16_to_f32(((const uint16_t *)data)[i])
           : type == SNUG_F16 ? snug_f16_to_f32(((const uint16_t *)data)[i])
                              : ((const float *)data)[i];
}

snug_status snug_cuda_multiply(struct snug_run *run, const struct snug_cuda_matrices *p, void *workspace) {
    (void)workspace;
    if (p->b_type != p->type) return snug_fail(run->ctx, SNUG_E_UNSUPPORTED, "a product of two types");
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const int64_t at = i * p->n + j;
            double sum = (p->bias ? value_of(p->bias, j, p->c_type) : 0) + (p->add ? value_of(p->c, at, p->c_type) : 0);
            for (int64_t k = 0; k < p->k; k++)
                sum += (double)value_of(p->a, p->turn_a ? k * p->m + i : i * p->k + k, p->type) *
                       value_of(p->b, p->turn_b ? j * p->k + k : k * p->n + j, p->type);
            if (p->c_type == SNUG_BF16)
                ((uint16_t *)p->c)[at] = snug_f32_to_bf16((float)sum);
            else if (p->c_type == SNUG_F16)
                ((uint16_t *)p->c)[at] = snug_f32_to_f16((float)sum);
            else
                ((float *)p->c)[at] = (float)sum;
        }
    return SNUG_OK;
}
