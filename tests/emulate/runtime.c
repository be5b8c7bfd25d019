/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's calls, except those that graphs.cc may have to record. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory of the GPU: files, which other processes can map. The block that was freed last is kept for the next
   cudaMalloc of its size, since the first use of a page takes long. */
static struct block {
    void *base;
    size_t size;
    int file;
} blocks[4096], spare;
enum { BLOCKS = sizeof blocks / sizeof *blocks };

static struct block *find_block(const void *base) {
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].base == base) return &blocks[i];
    return NULL;
}

static cudaError_t map(int file, size_t size, void **memory) {
    struct block *block = find_block(NULL);
    *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (*memory == MAP_FAILED || !block) return cudaErrorMemoryAllocation;
    *block = (struct block){*memory, size, file};
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t size) {
    struct block *place = find_block(NULL);
    if (place && spare.base && spare.size == size) {
        *place = spare;
        spare.base = NULL;
        *memory = place->base;
    } else {
        const int file = memfd_create("emulated GPU", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, (off_t)size) || map(file, size, memory)) return cudaErrorMemoryAllocation;
    }
    memset(*memory, 0xff, size); /* NaN: shows values that are read before they are written */
    return cudaSuccess;
}
static void unmap(struct block *block) {
    if (!block->base) return;
    munmap(block->base, block->size);
    close(block->file);
    block->base = NULL;
}
cudaError_t cudaFree(void *memory) {
    struct block *block = memory ? find_block(memory) : NULL;
    if (!block) return cudaSuccess;
    unmap(&spare);
    spare = *block;
    block->base = NULL;
    return cudaSuccess;
}

/* SNUG_EMULATED_IPC=none: as GPUs that do not reach each other. */
struct handle {
    pid_t process;
    int file;
    size_t size;
};
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory) {
    const char *none = getenv("SNUG_EMULATED_IPC");
    const struct block *block = find_block(memory);
    if (none || !block) return cudaErrorUnknown;
    const struct handle h = {getpid(), block->file, block->size};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags) {
    struct handle h;
    char name[64];
    (void)flags;
    memcpy(&h, &handle, sizeof h);
    snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)h.process, h.file);
    const int file = open(name, O_RDWR | O_CLOEXEC);
    return file < 0 ? cudaErrorUnknown : map(file, h.size, memory);
}
cudaError_t cudaIpcCloseMemHandle(void *memory) {
    struct block *block = memory ? find_block(memory) : NULL;
    if (block) unmap(block);
    return cudaSuccess;
}

/* cuStreamBatchMemOp. */
struct mem_ops {
    unsigned count;
    CUstreamBatchMemOpParams operations[64];
};
static void run_mem_ops(const void *arguments) {
    const struct mem_ops *m = arguments;
    for (unsigned i = 0; i < m->count; i++) {
        const struct emulated_mem_op *op = &m->operations[i].waitValue;
        uint32_t *at = (uint32_t *)(uintptr_t)op->address;
        if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
            __atomic_store_n(at, op->value, __ATOMIC_RELEASE);
        else
            while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != op->value) usleep(20);
    }
}
static CUresult batch_mem_op(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *operations,
                             unsigned flags) {
    struct mem_ops m = {.count = count};
    (void)stream, (void)flags;
    if (count > sizeof m.operations / sizeof *m.operations) return 1;
    memcpy(m.operations, operations, count * sizeof *operations);
    emulate_submit_call(run_mem_ops, &m, sizeof m);
    return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
    CUresult (*call)(CUstream, unsigned, const CUstreamBatchMemOpParams *, unsigned) = batch_mem_op;
    (void)version, (void)flags;
    *result = cudaDriverEntryPointSuccess;
    memcpy(function, &call, sizeof call);
    return strcmp(name, "cuStreamBatchMemOp") == 0 ? cudaSuccess : cudaErrorUnknown;
}
cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned flags) {
    (void)flags;
    return cudaMalloc(memory, size);
}

/* A copy to the host arrives when the host waits for it, as late as on a GPU; until then the destination holds NaN. */
static struct {
    void *to;
    uint8_t values[8192];
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

struct transfer {
    void *to;
    const void *from;
    size_t size;
};

static void transfer(const void *arguments) {
    const struct transfer *t = arguments;
    memcpy(t->to, t->from, t->size);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, cudaStream_t stream) {
    (void)stream;
    if (kind != cudaMemcpyDefault) {
        const struct transfer t = {to, from, size};
        emulate_submit_call(transfer, &t, sizeof t);
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
cudaError_t cudaMemGetInfo(size_t *unused, size_t *all) {
    *unused = *all = (size_t)64 << 30;
    return cudaSuccess;
}
/* SNUG_EMULATED_GPUS: how many there are. */
static int current_device;
cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
    const char *gpus = getenv("SNUG_EMULATED_GPUS");
    *count = gpus ? atoi(gpus) : 1;
    return cudaSuccess;
}
int emulate_capability(void) {
    static int found; /* kernels ask for it */
    const char *capability = found ? NULL : getenv("SNUG_EMULATED_CAPABILITY");
    if (!found) found = capability ? atoi(capability) : 90;
    return found;
}
/* As the CUDA programming guide's table of compute capabilities has it. */
static int block_memory(int capability) {
    return (capability < 80 ? 64 : capability == 80 ? 163 : capability < 90 || capability >= 120 ? 99 : 227) << 10;
}
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = emulate_capability() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = emulate_capability() % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break; /* so that small shapes use all of them */
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = block_memory(emulate_capability()); break;
    default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    (void)kernel;
    attributes->ptxVersion = emulate_capability();
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    strcpy(properties->name, "emulated");
    memset(&properties->uuid, 'a' + device, sizeof properties->uuid);
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
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) {
    *least = *most = 0;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    *event = malloc(1);
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
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
    arrive();
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    (void)from, (void)to;
    *milliseconds = 1;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error ? "failed" : "no error"; }
