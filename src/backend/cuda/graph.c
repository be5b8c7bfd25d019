/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phases as CUDA graphs. The second time that a phase runs for a batch size its operations are captured instead of run;
 * from then on one call launches all of them. Kernels read all other values that change between steps from device
 * memory (the step's numbers), which are sent before.
 */
#include <stdlib.h>

#include "backend/cuda/matmul/bias.h"
#include "backend/cuda/sizes/graph.h"
#include "backend/cuda/state.h"

/* What a graph is valid for. */
struct key {
    const struct snug_program *program;
    enum snug_phase phase;
    int64_t bucket, sequences, loss_positions, step_rows;
    enum snug_head_pass pass;
    bool first_batch, first_chunk, last_batch, fetched, pending;
    struct snug_cuda_decoding decoding;
    int contributors;
};

struct snug_cuda_graph {
    struct key key;
    cudaGraphExec_t exec;
};

void snug_cuda_free_graphs(struct snug_cuda *cuda) {
    for (size_t i = 0; i < cuda->graph_count; i++)
        if (cuda->graphs[i].exec) cudaGraphExecDestroy(cuda->graphs[i].exec);
    free(cuda->graphs);
    cuda->graphs = NULL;
    cuda->graph_count = cuda->graph_capacity = 0;
}

static bool is_same(const struct key *a, const struct key *b) {
    return a->program == b->program && a->phase == b->phase && a->bucket == b->bucket && a->sequences == b->sequences &&
           a->loss_positions == b->loss_positions && a->pass == b->pass && a->step_rows == b->step_rows &&
           a->first_batch == b->first_batch && a->first_chunk == b->first_chunk && a->last_batch == b->last_batch &&
           a->fetched == b->fetched && a->pending == b->pending && a->contributors == b->contributors &&
           a->decoding.single == b->decoding.single && a->decoding.fresh == b->decoding.fresh &&
           a->decoding.copies == b->decoding.copies;
}

static struct snug_cuda_graph *find(struct snug_cuda *cuda, const struct key *key) {
    for (size_t i = 0; i < cuda->graph_count; i++)
        if (is_same(&cuda->graphs[i].key, key)) return &cuda->graphs[i];
    return NULL;
}

/* Ends the capture, also after an operation failed in it: operations run one by one again. */
static cudaGraph_t stop_capture(struct snug_cuda *cuda) {
    cudaGraph_t graph = NULL;
    if (cuda->capturing) cudaStreamEndCapture(cuda->capture, &graph);
    for (size_t i = 0; cuda->capturing && i < cuda->offload.count; i++)
        cuda->offload.copied[i].awaited = false; /* events of a capture mean nothing after it */
    cuda->capturing = NULL;
    cuda->stream = NULL;
    cuda->padded = cuda->forked = false;
    return graph;
}

/* The first time, a phase runs operation by operation, because kernels are loaded and matmul algorithms are chosen
   then; the second time it is captured. */
snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    *done = false;
    cudaGraph_t left = stop_capture(cuda);
    if (left) cudaGraphDestroy(left);
    snug_cuda_drop_queued(&cuda->ranks);
    /* PREPARE, before the first batch; or a rank without a micro-batch in this step */
    if (run->batch) cuda->padded = true;
    RETURN_IF_ERROR(run->batch ? snug_cuda_send_step(run) : snug_cuda_send_tables(run));
    if (phase == SNUG_PHASE_UPDATE) RETURN_IF_ERROR(snug_cuda_keep_step(run));
    if (run->one_by_one || !run->batch) return SNUG_OK;
    const struct key key = {.program = run->program,
                            .phase = phase,
                            .bucket = cuda->bucket,
                            .sequences = cuda->decoding.single ? cuda->bucket : run->batch->sequences,
                            .loss_positions = phase == SNUG_PHASE_HEAD ? snug_cuda_loss_positions(run) : 0,
                            .pass = run->pass,
                            .step_rows = phase == SNUG_PHASE_STEP ? run->step_rows : 0,
                            .first_batch = run->micro_batch == 0,
                            .first_chunk = run->chunk == 0,
                            .last_batch = run->batch->last_in_step,
                            .fetched = run->program->crosses && run->crossing->fetched,
                            .pending = run->program->crosses && run->crossing->pending,
                            .decoding = cuda->decoding,
                            .contributors = run->contributors};
    struct snug_cuda_graph *graph = find(cuda, &key);
    if (graph && graph->exec) {
        *done = true;
        cuda->padded = false;
        return snug_cuda_check(run->ctx, cudaGraphLaunch(graph->exec, NULL), "launching a graph");
    }
    if (graph) {
        RETURN_IF_ERROR(snug_cuda_check(
            run->ctx, cudaStreamBeginCapture(cuda->capture, cudaStreamCaptureModeThreadLocal), "capturing a phase"));
        cuda->capturing = graph;
        cuda->stream = cuda->capture;
    } else if (cuda->graph_count < SNUG_CUDA_GRAPHS) {
        RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&cuda->graphs, &cuda->graph_capacity, cuda->graph_count + 1,
                                  sizeof *cuda->graphs));
        cuda->graphs[cuda->graph_count++] = (struct snug_cuda_graph){.key = key};
    }
    return phase == SNUG_PHASE_FORWARD ? snug_cuda_convert_biases(run) : SNUG_OK;
}

snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_graph *entry = cuda->capturing;
    (void)phase;
    RETURN_IF_ERROR(snug_cuda_await_copies(run));
    RETURN_IF_ERROR(snug_cuda_end_ranks(run));
    cudaGraph_t graph = stop_capture(cuda);
    if (!entry) return SNUG_OK;
    if (!graph) return snug_cuda_check(run->ctx, cudaGetLastError(), "capturing a phase failed");
    snug_status status =
        snug_cuda_check(run->ctx, cudaGraphInstantiate(&entry->exec, graph, 0), "instantiating a graph");
    cudaGraphDestroy(graph);
    if (status != SNUG_OK) return status;
    return snug_cuda_check(run->ctx, cudaGraphLaunch(entry->exec, NULL), "launching a graph");
}

/* ---- concurrent operations ---------------------------------------------------------------------------------- */

snug_status snug_cuda_fork(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    cudaError_t error = cudaEventRecord(cuda->fork[0], cuda->capture);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(cuda->side, cuda->fork[0], 0);
    cuda->stream = cuda->side;
    cuda->side_workspace = false;
    return snug_cuda_check(run->ctx, error, "forking a stream");
}

snug_status snug_cuda_return(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    cuda->stream = cuda->capture;
    cuda->forked = true;
    return snug_cuda_check(run->ctx, cudaEventRecord(cuda->fork[1], cuda->side), "recording the end of a fork");
}

snug_status snug_cuda_join(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    if (!cuda->forked) return SNUG_OK;
    cuda->forked = cuda->side_workspace = false;
    return snug_cuda_check(run->ctx, cudaStreamWaitEvent(cuda->capture, cuda->fork[1], 0), "joining a stream");
}
