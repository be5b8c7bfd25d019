/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates on the host: a host function in a stream of its own calls the update of struct snug_host_updates, on the
 * tensors of the backing store. The step's numbers are those of the device, copied in the same stream, so that a
 * captured phase has those of its own step, and in fp16 skips what the device skips.
 */
#include <stdlib.h>

#include "backend/cuda/ops.h"
#include "backend/cuda/state.h"

/* What a host function works on. Captured ones have its address, so it lives as long as the graphs do. */
struct snug_cuda_host_update {
    struct snug_cuda_host_update *next;
    const struct snug_op *op;
    snug_op_fn *update;
    struct snug_run run; /* whose arena is the backing store */
    const struct snug_cuda_step *step;
};

static void CUDART_CB update(void *user) {
    struct snug_cuda_host_update *h = user;
    if (h->step->skip) return;
    h->run.step = h->step->step;
    h->run.skipped = h->run.step - h->step->update.updates;
    h->run.learning_rate = h->step->update.learning_rate;
    h->update(&h->run, h->op); /* elementwise updates never fail */
}

snug_status snug_cuda_open_host_updates(snug_context *ctx, const struct snug_program *program, struct snug_cuda *cuda) {
    struct snug_cuda_host_updates *host = &cuda->offload.host;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (!op->on_host) continue;
        RETURN_IF_ERROR(snug_cuda_create_event(ctx, &cuda->offload.copied[op->update.weight].done));
        if (host->stream) continue;
        RETURN_IF_ERROR(
            snug_cuda_check(ctx, cudaStreamCreateWithFlags(&host->stream, cudaStreamNonBlocking), "cudaStreamCreate"));
        RETURN_IF_ERROR(snug_cuda_check(
            ctx, cudaHostAlloc((void **)&host->step, sizeof *host->step, cudaHostAllocDefault), "cudaHostAlloc"));
    }
    return SNUG_OK;
}

void snug_cuda_close_host_updates(struct snug_cuda *cuda) {
    struct snug_cuda_host_updates *host = &cuda->offload.host;
    while (host->updates) {
        struct snug_cuda_host_update *next = host->updates->next;
        free(host->updates);
        host->updates = next;
    }
    if (host->stream) cudaStreamDestroy(host->stream);
    if (host->step) cudaFreeHost(host->step);
}

static snug_status find(const struct snug_run *run, const struct snug_op *op, struct snug_cuda_host_update **out) {
    struct snug_cuda_host_updates *host = &snug_cuda_of(run)->offload.host;
    for (*out = host->updates; *out; *out = (*out)->next)
        if ((*out)->op == op) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(run->ctx, 1, sizeof **out, (void **)out));
    **out = (struct snug_cuda_host_update){.next = host->updates,
                                           .op = op,
                                           .update = run->host_updates.backend->ops[op->kind],
                                           .run = *run,
                                           .step = host->step};
    (*out)->run.arena = run->backing.memory.base;
    (*out)->run.backend_state = run->host_updates.state;
    host->updates = *out;
    return SNUG_OK;
}

snug_status snug_cuda_update_on_host(struct snug_run *run, const struct snug_op *op) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_host_update *host;
    RETURN_IF_ERROR(find(run, op, &host));
    cudaStream_t stream = cuda->offload.host.stream;
    struct snug_cuda_copied *copied = &cuda->offload.copied[op->update.weight];
    cudaError_t error = cudaEventRecord(cuda->offload.ready, cuda->stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream, cuda->offload.ready, 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(cuda->offload.host.step, cuda->batch.step, sizeof *cuda->batch.step,
                                cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaLaunchHostFunc(stream, update, host);
    if (error == cudaSuccess) error = cudaEventRecord(copied->done, stream);
    copied->awaited = true;
    return snug_cuda_check(run->ctx, error, "updating a weight on the host");
}
