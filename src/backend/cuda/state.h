/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the CUDA backend: the batch and the step's numbers on the device, streams, rows, errors. */
#ifndef SNUG_BACKEND_CUDA_STATE_H
#define SNUG_BACKEND_CUDA_STATE_H

#include <cuda_runtime_api.h>

#include "backend/cuda/copies/offload.h"
#include "backend/cuda/ranks/ranks.h"
#include "backend/cuda/sizes/batch.h"
#include "backend/cuda/sizes/constants.h"

/* The possible numbers of a step's update: if 0, 1, 2 … earlier steps were skipped that the host does not know of. */
struct snug_cuda_possible_numbers {
    int64_t skipped; /* those that it knows of */
    struct snug_cuda_update_numbers updates[SNUG_UNSEEN_STEPS];
};

struct snug_cuda_matmul_plan;
struct snug_cuda_algorithm;
struct snug_cuda_graph;

/* A step of a generation. */
struct snug_cuda_decoding {
    bool single; /* every sequence has one new token */
    bool fresh;  /* all have several tokens in total, and none from earlier steps */
    bool copies; /* pages are copied */
};

/* State of a program. */
struct snug_cuda {
    void *lt;                          /* cublasLtHandle_t */
    cudaStream_t stream;               /* of operations: the default stream, or the one that is captured */
    cudaStream_t capture;              /* the latter */
    struct snug_cuda_batch staging[2]; /* page-locked, up to sent: batches in transfer */
    cudaStream_t copies;               /* of the transfers */
    cudaEvent_t sent[2];               /* the transfer from staging is done */
    cudaEvent_t incoming_free;         /* batch.incoming may be overwritten */
    int staged;                        /* index in staging of the last batch */
    int multiprocessors;
    int capability;   /* of which the kernels' code makes use: compute capability 9.0 is 90 */
    int block_memory; /* bytes of shared memory that a block may have */
    bool tf32;
    bool has_tables; /* a batch, or its tables alone, were sent */
    bool has_step;   /* sent_step is what the device has, since the current batch was sent */
    struct snug_cuda_step sent_step;
    bool padded;    /* matmuls work on whole tiles of rows; kernels write zeros after the last row */
    int32_t scaler; /* tensor, or 0 */
    int64_t bucket; /* tokens of the current batch, rounded up: graphs and matmul plans are made for these */
    bool generates; /* the current batch is new tokens of a generation */
    struct snug_cuda_decoding decoding;
    struct snug_cuda_batch batch;
    struct snug_cuda_multi_tensor norms, updates, updates_8bit;
    struct snug_cuda_bias *biases; /* the host's list */
    int32_t bias_count;
    struct snug_cuda_matmul_plan *plans;
    size_t plan_count, plan_capacity;
    struct snug_cuda_algorithm *algorithms;
    size_t algorithm_count, algorithm_capacity;
    bool autotuning;      /* matmuls are planned, not run */
    size_t tuned;         /* matmuls whose algorithms were timed */
    cudaEvent_t timer[2]; /* for timing them */
    struct snug_cuda_graph *graphs;
    size_t graph_count, graph_capacity;
    struct snug_cuda_graph *capturing;
    cudaStream_t side;   /* for operations that may run concurrently with the next one, in a captured phase */
    cudaEvent_t fork[2]; /* fork from `capture`, and join */
    bool forked;         /* it is forked */
    bool side_workspace; /* it uses the matmuls' workspace */
    struct snug_cuda_offload offload;
    struct snug_cuda_ranks ranks;
};

static inline struct snug_cuda *snug_cuda_of(const struct snug_run *run) {
    return (struct snug_cuda *)run->backend_state;
}

/* The share of the work that operation op does in this run: its own tensor, all tensors, or nothing. */
enum snug_cuda_share { SNUG_CUDA_OWN_TENSOR, SNUG_CUDA_ALL_TENSORS, SNUG_CUDA_NO_TENSOR };
static inline enum snug_cuda_share snug_cuda_share_of(const struct snug_run *run, const struct snug_op *op,
                                                      const struct snug_cuda_multi_tensor *multi) {
    const int64_t number = op - run->program->ops;
    if (!snug_cuda_of(run)->padded || multi->first < 0 || number < multi->first || number > multi->last)
        return SNUG_CUDA_OWN_TENSOR;
    return number == multi->first ? SNUG_CUDA_ALL_TENSORS : SNUG_CUDA_NO_TENSOR;
}

/* ---- the batch and the step ---- */

/* Lays out the state's batch in run->batch_copy. */
void snug_cuda_place_batch(const struct snug_run *run);
/* scaler: the run's loss scale, or NULL. */
void snug_cuda_set_step(struct snug_cuda *cuda, struct snug_cuda_step step,
                        const struct snug_cuda_possible_numbers *possible, const float *scaler);
/* Sends the tables that come with every batch, if this rank had no batch yet. */
snug_status snug_cuda_send_tables(struct snug_run *run);
/* Replaces the ids of a batch that follows. */
void snug_cuda_follow(const struct snug_run *run);
/* Sends the current step's numbers, in order with the operations. */
snug_status snug_cuda_send_step(struct snug_run *run);
/* Keeps them for the updates that cross phases. */
snug_status snug_cuda_keep_step(struct snug_run *run);

/* ---- rows ---- */

/* Rows of a generation's step of few tokens: the next power of two. */
static inline int64_t snug_cuda_few(int64_t rows) {
    int64_t few = rows > 0;
    while (few < rows) few *= 2;
    return few;
}
/* Loss positions of the chunk, rounded up to an eighth of a full chunk: a small chunk costs less, and there are few
   different graphs. */
static inline int64_t snug_cuda_loss_positions(const struct snug_run *run) {
    const int64_t capacity = snug_cuda_round_up(run->program->capacity[SNUG_EXTENT_ROWS], SNUG_ROW_TILE);
    if (run->program->cache_pages && run->rows < SNUG_ROW_TILE) return snug_cuda_few(run->rows);
    const int64_t rows = snug_cuda_round_up(run->rows, snug_cuda_round_up((capacity + 7) / 8, SNUG_ROW_TILE));
    return rows < capacity ? rows : capacity;
}
/* Tokens that a batch is rounded up to: its size class, or the capacity of the tensors. */
int64_t snug_cuda_bucket_of(const struct snug_program *program, int64_t tokens);

/* Rows that a kernel covers: those of the batch, up to a whole tile. It writes zeros to those after the last one. */
static inline int64_t snug_cuda_rows(const struct snug_run *run, int32_t tensor) {
    const int64_t rows = snug_run_rows(run, tensor);
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const enum snug_extent extent = run->program->tensors[tensor].extent;
    if (extent == SNUG_EXTENT_FIXED || extent == SNUG_EXTENT_STEP || !cuda->padded) return rows;
    return extent == SNUG_EXTENT_TOKENS ? cuda->bucket
           : extent == SNUG_EXTENT_ROWS ? snug_cuda_loss_positions(run)
                                        : snug_cuda_round_up(run->batch->sequences, SNUG_ROW_TILE);
}

/* The compute capability that the kernels of this device were compiled for: 7.5 is 75. */
cudaError_t snug_cuda_code_capability(int *capability);

/* ---- errors ---- */

/* Ends an operation: an error names it if a launch failed. */
snug_status snug_cuda_done(const struct snug_run *run, const struct snug_op *op);
snug_status snug_cuda_check(snug_context *ctx, cudaError_t error, const char *what);

/* ---- offloading (copies.c) ---- */

/* The tensor for which WAIT waits after op, a copy or a collective beside others; 0 for other operations. */
int32_t snug_cuda_copied_by(const struct snug_op *op);
/* A zeroed, page-locked block of host memory. */
snug_status snug_cuda_allocate_backing(snug_context *ctx, int64_t bytes, struct snug_block *out);
snug_status snug_cuda_open_offload(snug_context *ctx, const struct snug_program *program, struct snug_cuda *cuda);
/* Makes later operations wait for all copies that no operation has waited for: those that cross phases. */
snug_status snug_cuda_await_copies(struct snug_run *run);
void snug_cuda_close_offload(struct snug_cuda *cuda);
/* Creates *event, if it is NULL. */
snug_status snug_cuda_create_event(snug_context *ctx, cudaEvent_t *event);

/* ---- updates on the host (host_update.c): parts of opening and closing the offload ---- */

snug_status snug_cuda_open_host_updates(snug_context *ctx, const struct snug_program *program, struct snug_cuda *cuda);
void snug_cuda_close_host_updates(struct snug_cuda *cuda);

/* ---- captured phases (graph.c) ---- */

snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done);
snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase);
void snug_cuda_free_graphs(struct snug_cuda *cuda);

/* Issue operations to the side stream; issue them to the captured stream again; make later operations wait for the side
   stream. */
snug_status snug_cuda_fork(struct snug_run *run);
snug_status snug_cuda_return(struct snug_run *run);
snug_status snug_cuda_join(struct snug_run *run);

#endif
