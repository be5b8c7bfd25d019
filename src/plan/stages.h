/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages that turn a model's forward operations into a program that a backend can run. Each stage changes the
 * program; they are called in the order below. docs/architecture.md explains how to add a stage.
 */
#ifndef SNUG_PLAN_STAGES_H
#define SNUG_PLAN_STAGES_H

#include "backend/backend.h"
#include "program/cost.h"

/* What backward recomputes in a layer instead of reading it from memory; see plan/recompute.c. */
enum snug_recompute {
    SNUG_RECOMPUTE_NONE,
    SNUG_RECOMPUTE_ELEMENTWISE,
    SNUG_RECOMPUTE_FFN,
    SNUG_RECOMPUTE_ATTENTION,
    SNUG_RECOMPUTE_LAYER,
    SNUG_RECOMPUTE_COUNT
};

/* The methods that make a model's program smaller or faster: all settings of the stages. */
struct snug_methods {
    const struct snug_optimizer *optimizer; /* NULL where nothing is trained */
    enum snug_dtype weights;                /* F32, or BF16: of matrices and tables; programs of one run share them */
    const enum snug_recompute *recompute;   /* a level for each layer; NULL: ELEMENTWISE */
    bool update_in_backward;                /* see plan/in_backward.c, which also needs the next two */
    bool clips;                             /* gradients are clipped */
    bool accumulates;                       /* a step has more than one micro-batch */
    int64_t micro_batches;                  /* of a step */
    int ranks, rank;                        /* of the run; 0 is 1 */
    int zero_stage;                         /* what the ranks divide: see plan/partition.c */
    int64_t lazy_steps; /* maximum number of steps that a row's lazy update may be deferred; 0: no lazy updates */
    struct snug_offload offload;
};

/* Calls all stages but the last in their order: turns a model's forward operations into a program that can be placed.
 */
snug_status snug_stages(struct snug_program *program, const struct snug_methods *methods);

/* Adds the backward operations, and a gradient for every trainable weight. */
snug_status snug_stage_differentiate(struct snug_program *program);
/* Makes the matmul of an adapter's base add to that of the adapter, instead of the other way around. */
snug_status snug_stage_addends(struct snug_program *program);
/* Recomputes in backward the tensors that their layer's level does not store. */
snug_status snug_stage_recompute(struct snug_program *program, const enum snug_recompute levels[]);
/* Adds the gradient norm, clipping and the optimizer's states and update for every weight. */
snug_status snug_stage_update(struct snug_program *program, const struct snug_methods *methods);
/* Updates a row of the word embedding lazily: rows without a gradient in a step are updated when they are next read. */
snug_status snug_stage_lazy_rows(struct snug_program *program, const struct snug_methods *methods);
/* Stores matrices and tables in the type `weights`, and activations in program->compute. Adds a copy in the compute
 * type of the weights that matmuls read in another type: the optimizer updates the copy, or, in a layer of level LAYER
 * whose weights are not offloaded, the copy lives only while the layer runs. Matmuls in F32 read BF16 weights directly.
 * A weight that is to be quantized becomes its codes, which DEQUANTIZE reads before each matmul. */
snug_status snug_stage_precision(struct snug_program *program, const struct snug_methods *methods);
/* For several ranks: sums the gradients over them, and divides states, gradients and weights by the ZeRO stage.
 * The update must follow backward. */
snug_status snug_stage_partition(struct snug_program *program, const struct snug_methods *methods);

/* Gives offloaded tensors staging buffers in the arena, and inserts the moves from and to the backing store; on an
 * asynchronous backend (how->overlaps) moves between ranks begin ahead of their use, and those of the update run beside
 * BACKWARD and the next FORWARD. See plan/moves.h. Needs the operations sorted. */
snug_status snug_stage_moves(struct snug_program *program, const struct snug_offload *how);

/* Sets the first and last operation of each tensor. A staging buffer that the next step still stores lives from `first`
 * to the end and from the beginning to `last`, which is then before `first`. */
void snug_find_lifetimes(struct snug_program *program);
/* Adds the bytes of each transient tensor to live[first … last], whose numbers are below count; no lifetime may wrap
 * around. Returns the peak. */
int64_t snug_find_live_bytes(const struct snug_program *program, int64_t live[], size_t count);

/* One arena for several programs that never run at the same time (training and evaluation): persistent
 * tensors, which programs share, then each program's transient tensors, then the workspace and the backend's copy of
 * the batch (drawn in plan/place.c). Memory that the host writes is a separate block. */
struct snug_layout {
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT];       /* of arena and host block, by class; they add up to total */
    int64_t arena, workspace_offset, copy_offset; /* its size, and offsets in it */
    int64_t host, batch_offset, function_offset;  /* the same for the host block */
    int64_t offloaded[SNUG_MEMORY_CLASS_COUNT];   /* in the backing store; they add up to offload_bytes */
    int64_t offload_bytes;
    int64_t total;
};
/* Sets every tensor's bytes, lifetime and offset. batch and function are sizes in the host block. */
snug_status snug_stage_place(snug_context *ctx, struct snug_program *const programs[], int count,
                             const struct snug_backend *backend, int threads, int64_t batch, int64_t function,
                             struct snug_layout *out);
/* The layout of a placement that wastes no byte, which is at most as large as that of snug_stage_place(), in a fraction
 * of the time. Transient tensors get no offsets. */
snug_status snug_find_least_layout(snug_context *ctx, struct snug_program *const programs[], int count,
                                   const struct snug_backend *backend, int threads, int64_t batch, int64_t function,
                                   struct snug_layout *out);

/* Bytes of a tensor at the program's capacity. */
int64_t snug_tensor_bytes(const struct snug_program *program, const struct snug_tensor *tensor);

#endif
