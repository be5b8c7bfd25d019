/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offloading: copies between the arena and the backing store, a block of page-locked host memory. Each direction has a
 * stream of its own, so that both run at once and beside operations.
 *
 * A copy begins when all operations before it are done, because its staging buffer shares its bytes with earlier
 * tensors. WAIT makes later operations wait for it, and so does the end of a phase: a captured phase contains its
 * copies, and phases are ordered among each other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cuda/ops.h"
#include "backend/cuda/state.h"

/* ---- the backing store ------------------------------------------------------------------------------------------ */

/* After all operations and their copies. */
static snug_status copy(snug_context *ctx, void *to, const void *from, int64_t bytes) {
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDeviceSynchronize(), "waiting for copies"));
    memcpy(to, from, (size_t)bytes);
    return SNUG_OK;
}

static void release(struct snug_block *memory) {
    cudaHostUnregister(memory->base);
    munmap(memory->base, (size_t)memory->bytes);
}

/* Prefers the memory that is nearest to the GPU; where the kernel does not know it, or has no such call, any memory. */
static void prefer_near_memory(void *base, size_t size) {
    enum { PREFERRED = 1, NODES = 1024, BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[NODES / BITS] = {0};
    int device, node;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) != cudaSuccess || node < 0 || node >= NODES)
        return;
    nodes[node / BITS] = 1ul << node % BITS;
    syscall(SYS_mbind, base, size, PREFERRED, nodes, NODES, 0);
}

/* Mapped, then page-locked in one call, which makes all pages resident: cudaHostAlloc() would use small pages of any
   node. */
snug_status snug_cuda_allocate_backing(snug_context *ctx, int64_t bytes, struct snug_block *out) {
    const size_t size = (size_t)bytes;
    *out = (struct snug_block){0};
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return snug_fail(ctx, SNUG_E_MEMORY, "%.1f MiB of host memory for offloaded tensors: %s",
                         (double)bytes / 0x1p20, strerror(errno));
    madvise(base, size, MADV_HUGEPAGE);
    prefer_near_memory(base, size);
    const cudaError_t error = cudaHostRegister(base, size, cudaHostRegisterDefault);
    if (error == cudaSuccess) {
        *out = (struct snug_block){.base = base, .bytes = bytes, .copy = copy, .release = release};
        return SNUG_OK;
    }
    munmap(base, size);
    return snug_fail(ctx, SNUG_E_MEMORY,
                     "%.1f MiB of host memory for offloaded tensors cannot be page-locked: %s; offload less, or "
                     "raise the limits of the container and of ulimit -l",
                     (double)bytes / 0x1p20, cudaGetErrorString(error));
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int32_t staging_of(const struct snug_op *op) {
    return op->kind == SNUG_OP_FETCH ? op->fetch.x : op->kind == SNUG_OP_STORE ? op->store.x : 0;
}

static snug_status create_event(snug_context *ctx, cudaEvent_t *event) {
    if (*event) return SNUG_OK;
    return snug_cuda_check(ctx, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate");
}

snug_status snug_cuda_open_offload(snug_context *ctx, const struct snug_program *program, struct snug_cuda *cuda) {
    struct snug_cuda_offload *o = &cuda->offload;
    if (!snug_program_has(program, SNUG_OP_WAIT)) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, program->tensor_count, sizeof *o->copied, (void **)&o->copied));
    o->count = program->tensor_count;
    for (size_t i = 0; i < program->op_count; i++) {
        const int32_t staging = staging_of(&program->ops[i]);
        if (staging) RETURN_IF_ERROR(create_event(ctx, &o->copied[staging].done));
    }
    RETURN_IF_ERROR(create_event(ctx, &o->ready));
    for (int i = 0; i < 4; i++)
        RETURN_IF_ERROR(snug_cuda_check(ctx, cudaStreamCreateWithFlags(&o->stream[i / 2][i % 2], cudaStreamNonBlocking),
                                        "cudaStreamCreate"));
    return SNUG_OK;
}

void snug_cuda_close_offload(struct snug_cuda *cuda) {
    struct snug_cuda_offload *o = &cuda->offload;
    for (size_t i = 0; i < o->count; i++)
        if (o->copied[i].done) cudaEventDestroy(o->copied[i].done);
    if (o->ready) cudaEventDestroy(o->ready);
    for (int i = 0; i < 4; i++)
        if (o->stream[i / 2][i % 2]) cudaStreamDestroy(o->stream[i / 2][i % 2]);
    free(o->copied);
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* Starts a copy of staging buffer x, whose backing store begins at element of tensor backing. */
static snug_status start(struct snug_run *run, const struct snug_op *op, int32_t x, int32_t backing, bool store) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    cudaStream_t stream = cuda->offload.stream[store][op->crosses];
    const int64_t width = snug_dtype_size(snug_run_dtype(run, x));
    const size_t bytes = (size_t)(snug_cuda_rows(run, x) * snug_run_cols(run, x) * width);
    uint8_t *host = run->backing.memory.base + run->program->tensors[backing].offset + op->element * width;
    void *device = snug_run_data(run, x);
    cudaError_t error = cudaEventRecord(cuda->offload.ready, cuda->stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream, cuda->offload.ready, 0);
    if (error == cudaSuccess && bytes)
        error = store ? cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream)
                      : cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = cudaEventRecord(cuda->offload.copied[x].done, stream);
    cuda->offload.copied[x].awaited = true;
    return snug_cuda_check(run->ctx, error, store ? "storing an offloaded tensor" : "fetching an offloaded tensor");
}

snug_status snug_cuda_fetch(struct snug_run *run, const struct snug_op *op) {
    return start(run, op, op->fetch.x, op->fetch.backing, false);
}

snug_status snug_cuda_store(struct snug_run *run, const struct snug_op *op) {
    return start(run, op, op->store.x, op->store.backing, true);
}

snug_status snug_cuda_await_copies(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    for (size_t i = 0; i < cuda->offload.count; i++) {
        struct snug_cuda_copied *copied = &cuda->offload.copied[i];
        if (!copied->awaited) continue;
        copied->awaited = false;
        RETURN_IF_ERROR(
            snug_cuda_check(run->ctx, cudaStreamWaitEvent(cuda->stream, copied->done, 0), "waiting for copies"));
    }
    return SNUG_OK;
}

/* In micro-batches in which the copy is idle there is nothing to wait for. */
snug_status snug_cuda_wait(struct snug_run *run, const struct snug_op *op) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_copied *copied = &cuda->offload.copied[op->wait.x];
    if (!copied->awaited) return SNUG_OK;
    copied->awaited = false;
    return snug_cuda_check(run->ctx, cudaStreamWaitEvent(cuda->stream, copied->done, 0),
                           "waiting for an offloaded tensor");
}
