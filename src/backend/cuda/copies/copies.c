/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offloading: copies between the arena and the backing store, a block of page-locked host memory or the offload file.
 * Each direction has a stream of its own, so that both run at once and beside operations.
 *
 * A copy begins when all operations before it are done, because its staging buffer shares its bytes with earlier
 * tensors. WAIT makes later operations wait for it, and so does the end of a phase: a captured phase contains its
 * copies, and phases are ordered among each other.
 *
 * Between file and device the data pass through bounce buffers in page-locked host memory, piece by piece. Host
 * functions in the stream request the file's reads and writes from the file's thread, and wait for them. A copy is done
 * when its last piece is in the arena, or in the file, so the next one on its stream may use all its buffers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cuda/events.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/state.h"

/* ---- the backing store ------------------------------------------------------------------------------------------ */

static snug_status wait_for_device(snug_context *ctx) {
    return snug_cuda_check(ctx, cudaDeviceSynchronize(), "waiting for copies");
}

/* After all operations and their copies. */
static snug_status copy(snug_context *ctx, void *to, const void *from, int64_t bytes) {
    RETURN_IF_ERROR(wait_for_device(ctx));
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
        *out = (struct snug_block){
            .base = base, .bytes = bytes, .copy = copy, .wait = wait_for_device, .release = release};
        return SNUG_OK;
    }
    munmap(base, size);
    return snug_fail(ctx, SNUG_E_MEMORY,
                     "%.1f MiB of host memory for offloaded tensors cannot be page-locked: %s; offload less, or "
                     "raise the limits of the container and of ulimit -l",
                     (double)bytes / 0x1p20, cudaGetErrorString(error));
}

/* ---- the offload file ------------------------------------------------------------------------------------------- */

/* A copy from or to the offload file. Captured host functions have the addresses of its pieces, so it lives as long as
   the graphs do, and a copy of the same bytes uses it again. */
struct snug_cuda_file_copy {
    struct snug_cuda_file_copy *next;
    struct snug_offload_file *file;
    const struct snug_offload_file_calls *calls;
    uint8_t *bounce; /* the stream's buffers */
    int64_t offset, bytes;
    bool store, crosses;
    uint64_t requested[SNUG_CUDA_BOUNCE_BUFFERS]; /* by buffer: its last request; used by host functions only */
    int64_t count;
    struct piece {
        struct snug_cuda_file_copy *copy;
        int64_t number;
    } pieces[];
};

static void free_file_copies(struct snug_cuda_file_copy *copies) {
    while (copies) {
        struct snug_cuda_file_copy *next = copies->next;
        free(copies);
        copies = next;
    }
}

static snug_status find_file_copy(struct snug_run *run, int32_t x, bool store, bool crosses, int64_t offset,
                                  int64_t bytes, struct snug_cuda_file_copy **out) {
    struct snug_cuda_file_copy **list = &snug_cuda_of(run)->offload.copied[x].files;
    for (*out = *list; *out; *out = (*out)->next)
        if ((*out)->store == store && (*out)->crosses == crosses && (*out)->offset == offset && (*out)->bytes == bytes)
            return SNUG_OK;
    const int64_t count = (bytes + SNUG_CUDA_PIECE - 1) / SNUG_CUDA_PIECE;
    RETURN_IF_ERROR(snug_alloc(run->ctx, 1, sizeof **out + (size_t)count * sizeof *(*out)->pieces, (void **)out));
    const int stream = 2 * store + crosses;
    **out = (struct snug_cuda_file_copy){.next = *list,
                                         .file = run->backing.file,
                                         .calls = run->backing.calls,
                                         .bounce = run->backing.memory.base +
                                                   (ptrdiff_t)stream * SNUG_CUDA_BOUNCE_BUFFERS * SNUG_CUDA_PIECE,
                                         .offset = offset,
                                         .bytes = bytes,
                                         .store = store,
                                         .crosses = crosses,
                                         .count = count};
    for (int64_t i = 0; i < count; i++) (*out)->pieces[i] = (struct piece){*out, i};
    *list = *out;
    return SNUG_OK;
}

static uint8_t *buffer_of(const struct snug_cuda_file_copy *c, int64_t number) {
    return c->bounce + number % SNUG_CUDA_BOUNCE_BUFFERS * SNUG_CUDA_PIECE;
}

static int64_t bytes_of(const struct snug_cuda_file_copy *c, int64_t number) {
    const int64_t left = c->bytes - number * SNUG_CUDA_PIECE;
    return left < SNUG_CUDA_PIECE ? left : SNUG_CUDA_PIECE;
}

static void request(struct snug_cuda_file_copy *c, int64_t number) {
    const int64_t at = c->offset + number * SNUG_CUDA_PIECE, bytes = bytes_of(c, number);
    c->requested[number % SNUG_CUDA_BOUNCE_BUFFERS] = c->store
                                                          ? c->calls->store(c->file, buffer_of(c, number), at, bytes)
                                                          : c->calls->fetch(c->file, buffer_of(c, number), at, bytes);
}

static void await(const struct snug_cuda_file_copy *c, int64_t number) {
    c->calls->await(c->file, c->requested[number % SNUG_CUDA_BOUNCE_BUFFERS]);
}

/* A host function before a piece's transfer to the device. All earlier transfers of the stream are done, so the other
   buffers are free: they are read while this piece is transferred. */
static void CUDART_CB read_piece(void *user) {
    const struct piece *piece = user;
    struct snug_cuda_file_copy *c = piece->copy;
    const int64_t ahead = piece->number + SNUG_CUDA_BOUNCE_BUFFERS - 1;
    for (int64_t i = piece->number ? ahead : 0; i <= ahead && i < c->count; i++) request(c, i);
    await(c, piece->number);
}

/* A host function after a piece's transfer from the device. The next piece's transfer needs its buffer: it waits until
   that is written, and after the last piece until all are. */
static void CUDART_CB write_piece(void *user) {
    const struct piece *piece = user;
    struct snug_cuda_file_copy *c = piece->copy;
    const int64_t before = piece->number + 1 - SNUG_CUDA_BOUNCE_BUFFERS;
    request(c, piece->number);
    if (piece->number + 1 == c->count)
        await(c, piece->number);
    else if (before >= 0)
        await(c, before);
}

static cudaError_t transfer(void *device, void *host, int64_t bytes, bool store, cudaStream_t stream) {
    return store ? cudaMemcpyAsync(host, device, (size_t)bytes, cudaMemcpyDeviceToHost, stream)
                 : cudaMemcpyAsync(device, host, (size_t)bytes, cudaMemcpyHostToDevice, stream);
}

static cudaError_t copy_pieces(struct snug_cuda_file_copy *c, uint8_t *device, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (int64_t i = 0; i < c->count && error == cudaSuccess; i++) {
        if (!c->store) error = cudaLaunchHostFunc(stream, read_piece, &c->pieces[i]);
        if (error == cudaSuccess)
            error = transfer(device + i * SNUG_CUDA_PIECE, buffer_of(c, i), bytes_of(c, i), c->store, stream);
        if (error == cudaSuccess && c->store) error = cudaLaunchHostFunc(stream, write_piece, &c->pieces[i]);
    }
    return error;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

int32_t snug_cuda_copied_by(const struct snug_op *op) {
    switch (op->kind) {
    case SNUG_OP_FETCH: return op->fetch.x;
    case SNUG_OP_STORE: return op->store.x;
    case SNUG_OP_GATHER_RANKS: return op->beside ? op->gather_ranks.x : 0;
    case SNUG_OP_SUM_RANKS: return op->beside ? op->sum_ranks.g : 0;
    default: return 0;
    }
}

snug_status snug_cuda_create_event(snug_context *ctx, cudaEvent_t *event) {
    if (*event) return SNUG_OK;
    return snug_cuda_check(ctx, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate");
}

static bool runs_beside(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++)
        if (snug_cuda_copied_by(&program->ops[i])) return true;
    return false;
}

snug_status snug_cuda_open_offload(snug_context *ctx, const struct snug_program *program, struct snug_cuda *cuda) {
    struct snug_cuda_offload *o = &cuda->offload;
    if (!runs_beside(program)) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, program->tensor_count, sizeof *o->copied, (void **)&o->copied));
    o->count = program->tensor_count;
    for (size_t i = 0; i < program->op_count; i++) {
        const int32_t copied = snug_cuda_copied_by(&program->ops[i]);
        if (copied) RETURN_IF_ERROR(snug_cuda_create_event(ctx, &o->copied[copied].done));
    }
    RETURN_IF_ERROR(snug_cuda_create_event(ctx, &o->ready));
    for (int i = 0; i < 4; i++)
        RETURN_IF_ERROR(snug_cuda_check(ctx, cudaStreamCreateWithFlags(&o->stream[i / 2][i % 2], cudaStreamNonBlocking),
                                        "cudaStreamCreate"));
    return snug_cuda_open_host_updates(ctx, program, cuda);
}

void snug_cuda_close_offload(struct snug_cuda *cuda) {
    struct snug_cuda_offload *o = &cuda->offload;
    for (size_t i = 0; i < o->count; i++) {
        if (o->copied[i].done) cudaEventDestroy(o->copied[i].done);
        free_file_copies(o->copied[i].files);
    }
    snug_cuda_close_host_updates(cuda);
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
    const int64_t bytes = snug_cuda_rows(run, x) * snug_run_cols(run, x) * width;
    const int64_t offset = run->program->tensors[backing].offset + op->element * width;
    uint8_t *device = snug_run_data(run, x);
    struct snug_cuda_file_copy *through = NULL;
    if (run->backing.file && bytes)
        RETURN_IF_ERROR(find_file_copy(run, x, store, op->crosses, offset, bytes, &through));
    cudaError_t error = cudaEventRecord(cuda->offload.ready, cuda->stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream, cuda->offload.ready, 0);
    RETURN_IF_ERROR(snug_cuda_time_copy(run, stream, false));
    if (error == cudaSuccess && bytes)
        error = through ? copy_pieces(through, device, stream)
                        : transfer(device, run->backing.memory.base + offset, bytes, store, stream);
    RETURN_IF_ERROR(snug_cuda_time_copy(run, stream, true));
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

/* Also for an update on the host. In micro-batches in which the copy is idle there is nothing to wait for. */
snug_status snug_cuda_wait(struct snug_run *run, const struct snug_op *op) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_copied *copied = &cuda->offload.copied[op->wait.x];
    if (!copied->awaited) return SNUG_OK;
    copied->awaited = false;
    return snug_cuda_check(run->ctx, cudaStreamWaitEvent(cuda->stream, copied->done, 0),
                           "waiting for an offloaded tensor");
}
