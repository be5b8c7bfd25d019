/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phases as CUDA graphs. The first time that a phase is met with so many tokens its operations are recorded instead of
 * run; from then on one call launches them all. What else changes from step to step the kernels read from the step's
 * numbers in device memory, which are sent before.
 */
#include <stdlib.h>

#include "backend/cuda/cuda.h"

/* What a recording is good for. */
struct key {
    const struct snug_program *program;
    enum snug_phase phase;
    int64_t bucket, sequences, head_rows;
    bool first_batch, first_chunk, last_batch;
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

/* Graphs take memory of the driver's, which no plan knows: so many, and what is met later runs one by one. */
enum { GRAPHS = 96 };

static bool is_same(const struct key *a, const struct key *b) {
    return a->program == b->program && a->phase == b->phase && a->bucket == b->bucket && a->sequences == b->sequences &&
           a->head_rows == b->head_rows && a->first_batch == b->first_batch && a->first_chunk == b->first_chunk &&
           a->last_batch == b->last_batch;
}

static struct snug_cuda_graph *find(struct snug_cuda *cuda, const struct key *key) {
    for (size_t i = 0; i < cuda->graph_count; i++)
        if (is_same(&cuda->graphs[i].key, key)) return &cuda->graphs[i];
    return NULL;
}

/* Back to running one by one, also where an operation failed while it was recorded. */
static cudaGraph_t stop_recording(struct snug_cuda *cuda) {
    cudaGraph_t graph = NULL;
    if (cuda->recording) cudaStreamEndCapture(cuda->record, &graph);
    cuda->recording = NULL;
    cuda->stream = NULL;
    cuda->padded = cuda->forked = false;
    return graph;
}

/* The first time a phase runs as it is, since kernels are loaded and products chosen then; the second time it is
   recorded. */
snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    *done = false;
    cudaGraph_t left = stop_recording(cuda);
    if (left) cudaGraphDestroy(left);
    if (!run->batch) return SNUG_OK; /* PREPARE, before the first batch */
    cuda->padded = true;
    RETURN_IF_ERROR(snug_cuda_send_step(run));
    if (run->one_by_one) return SNUG_OK;
    const struct key key = {.program = run->program,
                            .phase = phase,
                            .bucket = cuda->bucket,
                            .sequences = run->batch->sequences,
                            .head_rows = phase == SNUG_PHASE_HEAD ? snug_cuda_head_rows(run) : 0,
                            .first_batch = run->micro_batch == 0,
                            .first_chunk = run->chunk == 0,
                            .last_batch = run->batch->last_in_step};
    struct snug_cuda_graph *graph = find(cuda, &key);
    if (graph && graph->exec) {
        *done = true;
        cuda->padded = false;
        return snug_cuda_check(run->ctx, cudaGraphLaunch(graph->exec, NULL), "starting a recorded phase");
    }
    if (graph) {
        RETURN_IF_ERROR(snug_cuda_check(
            run->ctx, cudaStreamBeginCapture(cuda->record, cudaStreamCaptureModeThreadLocal), "recording a phase"));
        cuda->recording = graph;
        cuda->stream = cuda->record;
    } else if (cuda->graph_count < GRAPHS) {
        RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&cuda->graphs, &cuda->graph_capacity, cuda->graph_count + 1,
                                  sizeof *cuda->graphs));
        cuda->graphs[cuda->graph_count++] = (struct snug_cuda_graph){.key = key};
    }
    return phase == SNUG_PHASE_FORWARD ? snug_cuda_convert_biases(run) : SNUG_OK;
}

snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_graph *entry = cuda->recording;
    (void)phase;
    cudaGraph_t graph = stop_recording(cuda);
    if (!entry) return SNUG_OK;
    if (!graph) return snug_cuda_check(run->ctx, cudaGetLastError(), "a phase could not be recorded");
    snug_status status = snug_cuda_check(run->ctx, cudaGraphInstantiate(&entry->exec, graph, 0), "keeping a phase");
    cudaGraphDestroy(graph);
    if (status != SNUG_OK) return status;
    return snug_cuda_check(run->ctx, cudaGraphLaunch(entry->exec, NULL), "starting a recorded phase");
}

/* ---- two operations at a time ---------------------------------------------------------------------------------- */

snug_status snug_cuda_fork(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    cudaError_t error = cudaEventRecord(cuda->fork[0], cuda->record);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(cuda->side, cuda->fork[0], 0);
    cuda->stream = cuda->side;
    cuda->side_workspace = false;
    return snug_cuda_check(run->ctx, error, "leaving the stream");
}

snug_status snug_cuda_return(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    cuda->stream = cuda->record;
    cuda->forked = true;
    return snug_cuda_check(run->ctx, cudaEventRecord(cuda->fork[1], cuda->side), "coming back to the stream");
}

snug_status snug_cuda_join(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    if (!cuda->forked) return SNUG_OK;
    cuda->forked = cuda->side_workspace = false;
    return snug_cuda_check(run->ctx, cudaStreamWaitEvent(cuda->record, cuda->fork[1], 0), "waiting for a stream");
}
