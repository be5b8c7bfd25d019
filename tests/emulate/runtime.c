/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's calls, and phases that are never captured. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/bias.h"
#include "backend/cuda/state.h"

cudaError_t cudaMalloc(void **memory, size_t size) {
    size = (size + 511) / 512 * 512;
    *memory = aligned_alloc(512, size);
    if (!*memory) return cudaErrorMemoryAllocation;
    memset(*memory, 0xff, size); /* NaN: shows values that are read before they are written */
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

/* A copy to the host arrives when the host waits for it, as late as on a GPU; until then the destination holds NaN. */
static struct {
    void *to;
    uint8_t values[8];
    size_t size;
} under_way[64];
static size_t under_way_count;

static void arrive(void) {
    for (size_t i = 0; i < under_way_count; i++) memcpy(under_way[i].to, under_way[i].values, under_way[i].size);
    under_way_count = 0;
}

cudaError_t cudaHostRegister(void *memory, size_t size, unsigned flags) {
    (void)memory, (void)size, (void)flags;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *memory) {
    (void)memory;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory) {
    arrive();
    return cudaFree(memory);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    (void)kind;
    arrive();
    memcpy(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, cudaStream_t stream) {
    (void)stream;
    if (kind != cudaMemcpyDefault) {
        memcpy(to, from, size);
        return cudaSuccess;
    }
    if (size > sizeof under_way->values) return cudaErrorMemoryAllocation;
    if (under_way_count == sizeof under_way / sizeof *under_way) arrive();
    under_way[under_way_count].to = to;
    under_way[under_way_count].size = size;
    memcpy(under_way[under_way_count++].values, from, size);
    memset(to, 0xff, size);
    return cudaSuccess;
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
    (void)device;
    const char *capability = getenv("SNUG_EMULATED_CAPABILITY");
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = (capability ? atoi(capability) : 90) / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = (capability ? atoi(capability) : 90) % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break; /* so that small shapes use all of them */
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    (void)device;
    strcpy(properties->name, "emulated");
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    arrive();
    return cudaSuccess;
}
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
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)stream, (void)event, (void)flags;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    (void)from, (void)to;
    *milliseconds = 1;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error ? "failed" : "no error"; }

/* ---- in the place of graph.c ---- */

void snug_cuda_free_graphs(struct snug_cuda *cuda) { (void)cuda; }

snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    *done = false;
    if (!run->batch) return SNUG_OK;
    snug_cuda_of(run)->padded = true;
    RETURN_IF_ERROR(snug_cuda_send_step(run));
    return phase == SNUG_PHASE_FORWARD ? snug_cuda_convert_biases(run) : SNUG_OK;
}

snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase) {
    (void)phase;
    snug_cuda_of(run)->padded = false;
    return SNUG_OK;
}

/* Nothing is captured, so nothing leaves the stream. */
snug_status snug_cuda_fork(struct snug_run *run) { return snug_fail(run->ctx, SNUG_E_INTERNAL, "not here"); }
snug_status snug_cuda_return(struct snug_run *run) { return snug_cuda_fork(run); }
snug_status snug_cuda_join(struct snug_run *run) {
    (void)run;
    return SNUG_OK;
}
