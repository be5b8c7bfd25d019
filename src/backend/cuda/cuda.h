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
snug_op_fn snug_cuda_squared_norm, snug_cuda_clip, snug_cuda_rescale, snug_cuda_adam, snug_cuda_adam_8bit;
snug_op_fn snug_cuda_sgd, snug_cuda_adagrad, snug_cuda_rmsprop, snug_cuda_lion, snug_cuda_adafactor;
snug_op_fn snug_cuda_fill, snug_cuda_cast;

/* What changes from one run of an operation to the next. It lies in device memory, where kernels read it, so that a
   recorded graph serves every batch that fits it. */
struct snug_cuda_step {
    int32_t tokens, sequences, rows, first_row;
    uint32_t key, step; /* Philox's, for dropout */
    float loss_scale, max_grad_norm;
    /* Of the update, of which there were so many before; see step.cu. */
    int32_t updates;
    bool skip; /* it is not done: the gradients are not finite (fp16) */
    float learning_rate;
    float rate, root; /* Adam's: lr / (1 - b1^t), 1 / sqrt(1 - b2^t) */
    float rate_8bit,
        correction_8bit; /* of betas that are fp32 numbers: lr sqrt(1 - b2^t) / (1 - b1^t), sqrt(1 - b2^t) */
    float fresh;         /* Adafactor's t^decay_rate */
};
/* What the numbers of an update follow from. */
struct snug_cuda_pace {
    double beta1, beta2, decay_rate;
    int64_t skipped; /* of the steps before, as the host knows */
    float learning_rates[SNUG_UNSEEN_STEPS];
};

/* See many.c. */
#define SNUG_CUDA_BLOCK 16384
struct snug_cuda_piece {
    int64_t block, count;         /* its first block; its elements */
    int64_t g, p, copy, state[4]; /* places in the arena, -1 where there is none */
    int64_t cols, scratch;        /* Adafactor's: of the tensor; its place in the workspace; parts of its rows */
    int32_t parts;
    int32_t parameter, slot, segments;
    bool decay, low, half, vector; /* weight decay applies; p is bf16; its copy is fp16; a stack of vectors */
};
struct snug_cuda_many {
    int64_t first, last; /* operations; first is -1 where there is no such row */
    int64_t blocks;
    int32_t count;
};

/* See biases.c: places in the arena, and in batch.biases. */
struct snug_cuda_bias {
    int64_t from, to, count;
};

/* The backend's copy of a batch, on the device, behind the step, and the tables of many.c and biases.c. */
struct snug_cuda_batch {
    struct snug_cuda_step *step;
    int32_t *offsets, *ids, *types, *positions, *sample, *by_id, *head_rows, *labels;
    float *targets;
    struct snug_cuda_piece *norms, *updates, *updates_8bit;
    struct snug_cuda_codes *codes; /* NULL where nothing is kept in 8 bits */
    struct snug_cuda_bias *bias_list;
    int64_t sent;     /* bytes so far: what travels with a batch */
    uint8_t *landing; /* where it arrives */
    uint8_t *biases;  /* in 16 bits */
};

/* c [m, n] (+)= a b, everything row-major; turn_a: a is stored as [k, m], turn_b: b as [n, k]. bias [n], or NULL, is of
   c's type. */
struct snug_cuda_matrices {
    void *c;
    const void *a, *b, *bias;
    bool turn_a, turn_b, add;
    int64_t m, n, k;
    int64_t a_stride, c_stride;           /* from row to row of what is stored; 0: there is nothing between them */
    enum snug_dtype type, b_type, c_type; /* of a, b, c */
};
struct snug_cuda_product;
struct snug_cuda_choice;
struct snug_cuda_graph;

/* State of a program. */
struct snug_cuda {
    void *lt;                          /* cublasLtHandle_t */
    cudaStream_t stream;               /* where operations are put: the default stream, or the one that is recorded */
    cudaStream_t record;               /* the latter */
    struct snug_cuda_batch staging[2]; /* page-locked, up to sent: for batches on their way */
    cudaStream_t copies;               /* on which they travel */
    cudaEvent_t sent[2];               /* what staging holds has landed */
    cudaEvent_t taken;                 /* nobody needs the landing place any more */
    int turn;
    int multiprocessors;
    int capability;   /* compute capability 9.0 is 90 */
    int block_memory; /* bytes of shared memory that a block may have */
    bool tf32;
    bool padded;    /* products work on whole tiles of rows; kernels have put zeros behind the last row */
    int32_t scaler; /* tensor, or -1 */
    int64_t bucket; /* tokens of the current batch, rounded up: what graphs and products are made for */
    struct snug_cuda_batch batch;
    struct snug_cuda_many norms, updates, updates_8bit;
    struct snug_cuda_bias *biases; /* the host's list */
    int32_t bias_count;
    struct snug_cuda_product *products;
    size_t product_count, product_capacity;
    struct snug_cuda_choice *choices;
    size_t choice_count, choice_capacity;
    bool warming;         /* algorithms are being chosen: products are looked at, not done */
    size_t tried;         /* products that had to be tried */
    cudaEvent_t clock[2]; /* what trials are timed with */
    struct snug_cuda_graph *graphs;
    size_t graph_count, graph_capacity;
    struct snug_cuda_graph *recording;
    cudaStream_t side;   /* for what may run beside the operation that follows, in a recorded phase */
    cudaEvent_t fork[2]; /* where it leaves record, and where it comes back */
    bool forked;         /* it has left */
    bool side_workspace; /* it has the products' workspace */
};

static inline struct snug_cuda *snug_cuda_of(const struct snug_run *run) {
    return (struct snug_cuda *)run->backend_state;
}

/* Makes the state's batch run's place for it. */
void snug_cuda_place_batch(const struct snug_run *run);
/* scaler: the run's loss scale, or NULL. */
void snug_cuda_set_step(struct snug_cuda *cuda, struct snug_cuda_step step, const struct snug_cuda_pace *pace,
                        const float *scaler);
/* Sends the current step's numbers, in order with the operations. */
snug_status snug_cuda_send_step(struct snug_run *run);

static inline int64_t snug_cuda_whole(int64_t rows, int64_t tile) { return (rows + tile - 1) / tile * tile; }

/* Head rows in steps of an eighth of a chunk, so that a chunk that is not full costs less, and few graphs are made. */
static inline int64_t snug_cuda_head_rows(const struct snug_run *run) {
    const int64_t capacity = snug_cuda_whole(run->program->capacity[SNUG_EXTENT_ROWS], SNUG_ROW_TILE);
    const int64_t rows = snug_cuda_whole(run->rows, snug_cuda_whole((capacity + 7) / 8, SNUG_ROW_TILE));
    return rows < capacity ? rows : capacity;
}
/* Tokens that a batch is rounded up to: its size, or what tensors have room for. */
int64_t snug_cuda_bucket_of(const struct snug_program *program, int64_t tokens);

/* Rows that a kernel covers: those of the batch, up to a whole tile. What it puts behind the last one is zero. */
static inline int64_t snug_cuda_rows(const struct snug_run *run, int32_t tensor) {
    const int64_t rows = snug_run_rows(run, tensor);
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const enum snug_extent extent = run->program->tensors[tensor].extent;
    if (extent == SNUG_EXTENT_FIXED || !cuda->padded) return rows;
    return extent == SNUG_EXTENT_TOKENS ? cuda->bucket
           : extent == SNUG_EXTENT_ROWS ? snug_cuda_head_rows(run)
                                        : snug_cuda_whole(run->batch->sequences, SNUG_ROW_TILE);
}

/* The row of operations of kind, or of updates whose states are not of 8 bits; the table of their tensors; what
   operation op of it is to do. */
struct snug_cuda_many snug_cuda_find_many(const struct snug_program *program, enum snug_op_kind kind);
struct snug_cuda_many snug_cuda_find_updates(const struct snug_program *program);
void snug_cuda_list_many(const struct snug_program *program, const struct snug_cuda_many *many,
                         struct snug_cuda_piece *pieces);
enum snug_cuda_turn { SNUG_CUDA_ALONE, SNUG_CUDA_FOR_ALL, SNUG_CUDA_DONE };
enum snug_cuda_turn snug_cuda_turn_of(const struct snug_run *run, const struct snug_op *op,
                                      const struct snug_cuda_many *many);

/* Adafactor cuts a matrix of so many rows into parts: one launch for each weight wants more of them than one for all,
   which has a block for each part of each segment, and scratch of so many bytes for a weight. */
static inline int32_t snug_cuda_parts(int64_t rows, bool all) {
    const int64_t parts = all ? (rows + 31) / 32 : (rows + 7) / 8;
    return (int32_t)(parts < 256 ? parts : 256);
}
int64_t snug_cuda_adafactor_scratch(const struct snug_program *program, const struct snug_op *op, bool all);

/* See bias_gradient.c. The LINEAR_DW whose bias's gradient op gives, or NULL; whether LINEAR_DW op was given its own;
   where op writes the one that it gives, or NULL. */
const struct snug_op *snug_cuda_bias_of(const struct snug_program *program, const struct snug_op *op);
bool snug_cuda_bias_is_given(const struct snug_run *run, const struct snug_op *op);
float *snug_cuda_bias_to_give(const struct snug_run *run, const struct snug_op *op, bool *overwrite);
/* Fills list with at most so many of the biases that products want converted; how many there are at most, and bytes. */
int32_t snug_cuda_list_biases(const struct snug_program *program, struct snug_cuda_bias *list, int32_t most);
int32_t snug_cuda_count_biases(const struct snug_program *program, int64_t *bytes);
/* Converts them all. */
snug_status snug_cuda_convert_biases(const struct snug_run *run);
/* The converted one of a bias, NULL if it is not listed. */
const void *snug_cuda_bias(const struct snug_run *run, int32_t bias);

/* A product by cuBLASLt, whose algorithm is chosen when a shape is met first and then stays. */
snug_status snug_cuda_multiply(struct snug_run *run, const struct snug_cuda_matrices *m, void *workspace);
/* That of op, for the current batch. */
struct snug_cuda_matrices snug_cuda_product_of(const struct snug_run *run, const struct snug_op *op);
snug_status snug_cuda_warm(struct snug_run *run, const struct snug_sizes *sizes, const char *folder);
/* Any numbers into all tensors, as bf16 and as fp32: products of zeros are quicker than those of others. */
void snug_cuda_scatter(const struct snug_run *run);
/* count values of type of bf16 ones. */
void snug_cuda_convert(const struct snug_cuda *cuda, void *to, enum snug_dtype type, const void *from, int64_t count);
#define SNUG_CUDA_CONVERTED ((int64_t)4 << 20) /* values at a time */
/* Behind the product's workspace: room for a bias in another type, and then for what is converted. */
static inline int64_t snug_cuda_bias_bytes(int64_t n) { return (n * 4 + 255) / 256 * 256; }
/* Zeros into all tensors. */
snug_status snug_cuda_clear(const struct snug_run *run);
#define SNUG_CUDA_PRODUCT_WORKSPACE ((int64_t)32 << 20)

/* Goes on in the side stream, and comes back; operations that follow wait for it from join on. */
snug_status snug_cuda_fork(struct snug_run *run);
snug_status snug_cuda_return(struct snug_run *run);
snug_status snug_cuda_join(struct snug_run *run);

/* Ends an operation: names it where the launch was refused. */
snug_status snug_cuda_done(const struct snug_run *run, const struct snug_op *op);
snug_status snug_cuda_check(snug_context *ctx, cudaError_t error, const char *what);

/* Scratch of operations. */
int64_t snug_cuda_linear_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_norm_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_activation_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_embed_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_attention_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_loss_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_adafactor_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_squared_norm_workspace(const struct snug_program *program, const struct snug_op *op);

snug_status snug_cuda_stamp(struct snug_run *run, struct snug_stamps **stamps, size_t number);
snug_status snug_cuda_stamps(struct snug_run *run, const struct snug_stamps *stamps, double seconds[], size_t count);
void snug_cuda_free_stamps(struct snug_stamps *stamps);

/* Recorded phases. */
snug_status snug_cuda_begin(struct snug_run *run, enum snug_phase phase, bool *done);
snug_status snug_cuda_end(struct snug_run *run, enum snug_phase phase);
void snug_cuda_free_graphs(struct snug_cuda *cuda);
void snug_cuda_free_products(struct snug_cuda *cuda);
void snug_cuda_free_choices(struct snug_cuda *cuda);

#endif
