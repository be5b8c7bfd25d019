/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages that turn a model's forward operations into what a backend runs. Each takes a program and changes it; the
 * order of the calls is the order below. docs/architecture.md tells how to add one.
 */
#ifndef SNUG_PLAN_STAGES_H
#define SNUG_PLAN_STAGES_H

#include "backend/backend.h"

/* What of a layer is made again backward instead of being stored; see plan/recompute.c. */
enum snug_recompute {
    SNUG_RECOMPUTE_NONE,
    SNUG_RECOMPUTE_ELEMENTWISE,
    SNUG_RECOMPUTE_FFN,
    SNUG_RECOMPUTE_ATTENTION,
    SNUG_RECOMPUTE_LAYER,
    SNUG_RECOMPUTE_COUNT
};

/* What has its home in the spool; see plan/offload.c. */
struct snug_offload {
    unsigned classes; /* bits 1 << memory class, of weights, gradients, optimizer and activations; 0: nothing */
    int32_t ahead;    /* operations by which copies begin before their use, and may end after it */
    int64_t part;     /* elements that norms and optimizers take at a time of large tensors */
};

/* What makes one program of a model smaller or slower than another: everything that the stages need to know. */
struct snug_methods {
    const struct snug_optimizer *optimizer; /* NULL where nothing is trained */
    enum snug_dtype weights;                /* F32, or BF16: of matrices and tables; programs of one run share them */
    const enum snug_recompute *recompute;   /* a level for each layer; NULL: ELEMENTWISE */
    bool update_in_backward;                /* see plan/in_backward.c, which also needs to know: */
    bool clips;                             /* gradients are clipped */
    bool accumulates;                       /* a step has more than one micro-batch */
    int64_t micro_batches;                  /* of a step */
    int64_t waiting_steps;                  /* most steps that a table's row may wait for its update; 0: none waits */
    struct snug_offload offload;
};

/* All stages but the last in their order: from a model's forward operations to a program that can be placed. */
snug_status snug_stages(struct snug_program *program, const struct snug_methods *methods);

/* Adds the backward operations, and a gradient for every weight. */
snug_status snug_stage_differentiate(struct snug_program *program);
/* Makes again backward what the level of its layer says is not stored. */
snug_status snug_stage_recompute(struct snug_program *program, const enum snug_recompute levels[]);
/* Adds the gradient norm, clipping and the optimizer's states and update for every weight. */
snug_status snug_stage_update(struct snug_program *program, const struct snug_methods *methods);
/* Lets rows of the word embedding that have no gradient in a step wait for their update until they are read. */
snug_status snug_stage_wait(struct snug_program *program, const struct snug_methods *methods);
/* Stores matrices and tables in the type weights, activations in program->compute, and gives products a copy of those
   weights that are not in the compute type: one that the optimizer keeps up to date, or, in a layer of level LAYER, one
   that stands only while the layer runs. Products in F32 read BF16 weights as they are. */
snug_status snug_stage_precision(struct snug_program *program, enum snug_dtype weights,
                                 const enum snug_recompute levels[]);
/* Puts the operations in the order of their phases. */
snug_status snug_stage_sort(struct snug_program *program);

/* Gives what is offloaded windows in the arena, and copies them from and to the spool. Works on the sorted list. */
snug_status snug_stage_offload(struct snug_program *program, const struct snug_offload *how);

/* One arena for several programs that never run at the same time (training and evaluation): the workspace stands
   first, then what persists, shared by name, then the backend's own batch, then what each program needs while it runs.
   What the host fills and works in is a block of its own. */
struct snug_layout {
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT];       /* of both by class; they add up to total */
    int64_t arena, workspace_offset, copy_offset; /* size, and places in it */
    int64_t host, batch_offset, function_offset;  /* likewise */
    int64_t spooled[SNUG_MEMORY_CLASS_COUNT];     /* the spool's, which add up to spool */
    int64_t spool;
    int64_t total;
};
/* Sets every tensor's bytes, lifetime and offset. batch and function are sizes of the host's blocks. */
snug_status snug_stage_place(snug_context *ctx, struct snug_program *const programs[], int count,
                             const struct snug_backend *backend, int threads, int64_t batch, int64_t function,
                             struct snug_layout *out);

/* Bytes of a tensor at the program's capacity. */
int64_t snug_tensor_bytes(const struct snug_program *program, const struct snug_tensor *tensor);

/* ---- what operations cost ------------------------------------------------------------------------------------- */

enum snug_op_group { SNUG_GROUP_CONTRACTION, SNUG_GROUP_NORMALIZATION, SNUG_GROUP_ELEMENTWISE, SNUG_GROUP_COUNT };
const char *snug_op_name(enum snug_op_kind kind);
enum snug_op_group snug_op_group(enum snug_op_kind kind);

struct snug_cost {
    double flops, bytes; /* bytes read and written, each operand once */
};
/* Of one run of op on tokens tokens in sequences sequences of the same length with rows head rows. */
struct snug_cost snug_op_cost(const struct snug_program *program, const struct snug_op *op, double tokens,
                              double sequences, double rows);

/* ---- running -------------------------------------------------------------------------------------------------- */

/* Where time went, by kind of operation; optional. Where operations go on after they return, it is the time of starting
   them. */
struct snug_profile {
    double seconds[SNUG_OP_COUNT];
    int64_t calls[SNUG_OP_COUNT];
    struct snug_op_times *times; /* for the true times of single operations; or NULL */
};
/* By operation of one program, whose run is one_by_one. What was noted counts when it was collected. */
struct snug_op_times {
    double *seconds; /* op_count of each */
    int64_t *calls;
    int32_t *noted; /* operation whose end each stamp is; -1: none's, a phase begins */
    size_t noted_count, noted_capacity;
    struct snug_stamps *stamps;
};
snug_status snug_op_times_init(const struct snug_program *program, struct snug_op_times *times);
/* Waits for what was noted. To be called between steps. */
snug_status snug_op_times_collect(struct snug_run *run, const struct snug_backend *backend,
                                  struct snug_op_times *times);
void snug_op_times_free(const struct snug_backend *backend, struct snug_op_times *times);
/* Runs the operations of a phase in order; HEAD once per chunk of head rows, at least once. */
snug_status snug_run_phase(struct snug_run *run, const struct snug_backend *backend, enum snug_phase phase,
                           struct snug_profile *profile);
/* The same for one chunk of HEAD, for those who look at its logits before the next. */
snug_status snug_run_head_chunk(struct snug_run *run, const struct snug_backend *backend, int64_t chunk,
                                struct snug_profile *profile);
int64_t snug_head_chunks(const struct snug_run *run);

#endif
