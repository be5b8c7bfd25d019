/* SPDX-License-Identifier: Apache-2.0 */
/* What the operations of the CUDA backend share on the host's side. */
#ifndef SNUG_BACKEND_CUDA_CUDA_H
#define SNUG_BACKEND_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/plugin.h"

snug_op_fn snug_cuda_embed, snug_cuda_embed_backward;
snug_op_fn snug_cuda_linear, snug_cuda_linear_dx, snug_cuda_linear_dw;
snug_op_fn snug_cuda_attention, snug_cuda_attention_backward;
snug_op_fn snug_cuda_residual_norm, snug_cuda_norm, snug_cuda_norm_backward;
snug_op_fn snug_cuda_activation, snug_cuda_activation_backward;
snug_op_fn snug_cuda_dropout;
snug_op_fn snug_cuda_gather, snug_cuda_gather_backward;
snug_op_fn snug_cuda_loss;
snug_op_fn snug_cuda_squared_norm, snug_cuda_clip, snug_cuda_adam;
snug_op_fn snug_cuda_sgd, snug_cuda_adagrad, snug_cuda_rmsprop, snug_cuda_lion;
snug_op_fn snug_cuda_fill, snug_cuda_cast;

/* What changes from one run of an operation to the next. It lies in device memory, where kernels read it, so that a
   recorded graph serves every batch that fits it. */
struct snug_cuda_step {
    int32_t tokens, sequences, rows, first_row;
    uint32_t key, step; /* Philox's, for dropout */
    float loss_scale, max_grad_norm;
    float learning_rate, rate, root; /* Adam's: lr / (1 - b1^t), 1 / sqrt(1 - b2^t) */
};

/* See many.c. */
#define SNUG_CUDA_BLOCK 16384
struct snug_cuda_piece {
    int64_t block, count;     /* its first block; its elements */
    int64_t g, p, copy, m, v; /* places in the arena, -1 where there is none */
    int32_t parameter, slot;
    bool decay, low, half; /* weight decay applies; p is bf16; its copy is fp16 */
};
struct snug_cuda_many {
    int64_t first, last; /* operations; first is -1 where there is no such row */
    int64_t blocks;
    int32_t count;
};

/* The backend's copy of a batch, on the device, behind the step, and the tables of many.c. */
struct snug_cuda_batch {
    struct snug_cuda_step *step;
    int32_t *offsets, *ids, *types, *positions, *sample, *by_id, *head_rows, *labels;
    float *targets;
    struct snug_cuda_piece *norms, *updates;
};

/* c [m, n] (+)= a b, everything row-major; turn_a: a is stored as [k, m], turn_b: b as [n, k]. bias [n], or NULL, is of
   c's type. */
struct snug_cuda_matrices {
    void *c;
    const void *a, *b, *bias;
    bool turn_a, turn_b, add;
    int64_t m, n, k;
    enum snug_dtype type, b_type, c_type; /* of a, b, c */
};
struct snug_cuda_product;
struct snug_cuda_graph;

/* State of a program. */
struct snug_cuda {
    void *lt;            /* cublasLtHandle_t */
    cudaStream_t stream; /* where operations are put: the default stream, or the one that is recorded */
    cudaStream_t record; /* the latter */
    uint8_t *staging[2]; /* page-locked, for batches on their way */
    cudaEvent_t sent[2];
    int turn;
    int multiprocessors, major;
    bool tf32;
    bool padded;    /* products work on whole tiles of rows; kernels have put zeros behind the last row */
    int64_t bucket; /* tokens of the current batch, rounded up: what graphs and products are made for */
    struct snug_cuda_batch batch;
    struct snug_cuda_many norms, updates;
    struct snug_cuda_product *products;
    size_t product_count, product_capacity;
    struct snug_cuda_graph *graphs;
    size_t graph_count, graph_capacity;
    struct snug_cuda_graph *recording;
};

static inline struct snug_cuda *snug_cuda_of(const struct snug_run *run) {
    return (struct snug_cuda *)run->backend_state;
}

/* Bytes of the batch's copy; out is carved from base unless that is NULL. */
int64_t snug_cuda_carve_batch(const struct snug_program *program, uint8_t *base, struct snug_cuda_batch *out);
void snug_cuda_set_step(struct snug_cuda *cuda, const struct snug_cuda_step *step);
/* Sends the current step's numbers, in order with the operations. */
snug_status snug_cuda_send_step(struct snug_run *run);

/* Rows that a kernel covers: those of the batch, up to a whole tile. What it puts behind the last one is zero. */
static inline int64_t snug_cuda_rows(const struct snug_run *run, int32_t tensor) {
    const int64_t rows = snug_run_rows(run, tensor);
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const enum snug_extent extent = run->program->tensors[tensor].extent;
    if (extent == SNUG_EXTENT_FIXED || !cuda->padded) return rows;
    return extent == SNUG_EXTENT_TOKENS ? cuda->bucket
           : extent == SNUG_EXTENT_ROWS
               ? (run->program->capacity[extent] + SNUG_ROW_TILE - 1) / SNUG_ROW_TILE * SNUG_ROW_TILE
               : (run->batch->sequences + SNUG_ROW_TILE - 1) / SNUG_ROW_TILE * SNUG_ROW_TILE;
}

/* The row of operations of kind, the table of their tensors, and what operation op of it is to do. */
struct snug_cuda_many snug_cuda_find_many(const struct snug_program *program, enum snug_op_kind kind);
void snug_cuda_list_many(const struct snug_program *program, const struct snug_cuda_many *many,
                         struct snug_cuda_piece *pieces);
enum snug_cuda_turn { SNUG_CUDA_ALONE, SNUG_CUDA_FOR_ALL, SNUG_CUDA_DONE };
enum snug_cuda_turn snug_cuda_turn_of(const struct snug_run *run, const struct snug_op *op,
                                      const struct snug_cuda_many *many);

/* A product by cuBLASLt, whose algorithm is chosen when a shape is met first and then stays. */
snug_status snug_cuda_multiply(struct snug_run *run, const struct snug_cuda_matrices *p, void *workspace);
#define SNUG_CUDA_PRODUCT_WORKSPACE ((int64_t)32 << 20)

/* Ends an operation: names it where the launch was refused. */
snug_status snug_cuda_done(const struct snug_run *run, const struct snug_op *op);
snug_status snug_cuda_check(snug_context *ctx, cudaError_t error, const char *what);

/* Scratch of operations. */
int64_t snug_cuda_linear_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_norm_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_embed_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_attention_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_loss_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_squared_norm_workspace(const struct snug_program *program, const struct snug_op *op);

/* Recorded phases. */
snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done);
snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase);
void snug_cuda_free_graphs(struct snug_cuda *cuda);
void snug_cuda_free_products(struct snug_cuda *cuda);

#endif
