/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phases as CUDA graphs. The first time that a phase is met with so many tokens its operations are recorded instead of
 * run; from then on one call launches them all. What else changes from step to step the kernels read from the step's
 * numbers in device memory, which are sent before.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

/* What a recording is good for. */
struct key {
    const struct snug_program *program;
    enum snug_phase phase;
    int64_t bucket, sequences;
    bool first_batch, first_chunk;
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

snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    (void)phase;
    *done = false;
    if (!run->batch) return SNUG_OK;
    cuda->padded = true;
    return snug_cuda_send_step(run);
}

snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase) {
    (void)phase;
    snug_cuda_of(run)->padded = false;
    return SNUG_OK;
}
