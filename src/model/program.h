/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program: a list of operations over named tensors. Everything that snug runs, plans or prices is one of these.
 *
 * A model builds the forward operations; stages (src/plan) add the backward ones, change types, re-run instead of
 * storing, add the optimizer, and at last give each tensor its place in the arena. A backend runs the result.
 *
 * Sizes that vary from batch to batch are extents: tokens T, sequences B, head rows R. A tensor's capacity is that of
 * the largest batch of the run; a run uses the current batch's.
 */
#ifndef SNUG_MODEL_PROGRAM_H
#define SNUG_MODEL_PROGRAM_H

#include "core/context.h"
#include "core/dtype.h"
#include "io/spool.h"

/* Every tensor with rows of a varying extent has room for a multiple of this many, so that products may work in whole
   tiles. What stands in the rows past the last one is undefined, before and after every operation. */
#define SNUG_ROW_TILE 64

enum snug_extent {
    SNUG_EXTENT_FIXED,     /* rows as given */
    SNUG_EXTENT_TOKENS,    /* T */
    SNUG_EXTENT_SEQUENCES, /* B: a row for the first token of each */
    SNUG_EXTENT_ROWS,      /* R: head rows of one chunk */
    SNUG_EXTENT_COUNT
};

struct snug_tensor {
    char name[88];
    enum snug_dtype dtype;
    snug_memory_class memory_class;
    enum snug_extent extent;
    int64_t rows, cols; /* row-major; rows counts only if the extent is FIXED */
    int32_t layer;      /* encoder layer, or -1 */
    bool persistent;    /* lives across steps: weights, gradients, states */
    bool low_precision; /* may be stored in the compute type, which the precision stage decides */
    bool saved;         /* an optimizer's state, which checkpoints hold */
    bool offloaded;     /* its home is the spool; operations see windows of it (plan/offload.c) */
    bool view;          /* elements element … of tensor base, in that tensor's place */
    int32_t base;
    int64_t element;
    /* Filled in by the place stage. */
    int32_t first, last;   /* operations that write it first and use it last */
    int64_t bytes, offset; /* offset: in the arena, or in the spool if offloaded */
};

/* The contract of each operation stands in backend/backend.h. */
enum snug_op_kind {
    SNUG_OP_EMBED,
    SNUG_OP_LINEAR,
    SNUG_OP_ATTENTION,
    SNUG_OP_RESIDUAL_NORM,
    SNUG_OP_NORM,
    SNUG_OP_ACTIVATION,
    SNUG_OP_DROPOUT,
    SNUG_OP_GATHER,
    SNUG_OP_LOSS,
    SNUG_OP_FILL,
    SNUG_OP_EMBED_BACKWARD,
    SNUG_OP_LINEAR_DX,
    SNUG_OP_LINEAR_DW,
    SNUG_OP_ATTENTION_BACKWARD,
    SNUG_OP_NORM_BACKWARD,
    SNUG_OP_ACTIVATION_BACKWARD,
    SNUG_OP_GATHER_BACKWARD,
    SNUG_OP_SQUARED_NORM,
    SNUG_OP_CLIP,
    SNUG_OP_RESCALE,
    SNUG_OP_ADAM,
    SNUG_OP_ADAM_ROWS,
    SNUG_OP_CATCH_UP,
    SNUG_OP_SETTLE,
    SNUG_OP_ADAM_8BIT,
    SNUG_OP_SGD,
    SNUG_OP_ADAFACTOR,
    SNUG_OP_ADAGRAD,
    SNUG_OP_RMSPROP,
    SNUG_OP_LION,
    SNUG_OP_ROWS_BEGIN,
    SNUG_OP_CAST,
    SNUG_OP_FETCH,
    SNUG_OP_STORE,
    SNUG_OP_WAIT,
    SNUG_OP_COUNT
};

/* Whether kind is an optimizer's update of a weight, or of some of its rows: out is {weight, copy, states …}. */
static inline bool snug_is_update(enum snug_op_kind kind) { return kind >= SNUG_OP_ADAM && kind <= SNUG_OP_LION; }

/* When an operation runs. HEAD is repeated over chunks of head rows, so that their number never changes the plan. */
enum snug_phase {
    SNUG_PHASE_PREPARE, /* after weights and states were loaded: low-precision copies */
    SNUG_PHASE_FORWARD,
    SNUG_PHASE_HEAD,
    SNUG_PHASE_BACKWARD,
    SNUG_PHASE_CLIP,
    SNUG_PHASE_UPDATE,
    SNUG_PHASE_SETTLE, /* before weights or states are looked at: updates that were put off */
    SNUG_PHASE_COUNT
};

enum snug_activation { SNUG_GELU, SNUG_GELU_TANH, SNUG_RELU, SNUG_SILU, SNUG_TANH };
enum snug_loss_kind { SNUG_CROSS_ENTROPY, SNUG_BINARY_CROSS_ENTROPY, SNUG_MEAN_SQUARED_ERROR };

#define SNUG_OP_INPUTS 6
#define SNUG_OP_OUTPUTS 8

struct snug_op {
    enum snug_op_kind kind;
    enum snug_phase phase;
    int32_t layer;
    int32_t in[SNUG_OP_INPUTS]; /* tensor numbers, -1 where there is none */
    int32_t out[SNUG_OP_OUTPUTS];
    bool accumulate; /* outputs are added to, in every micro-batch and chunk */
    bool first;      /* overwrites its gradients in a step's first micro-batch and chunk, adds later */
    bool last;       /* runs in a step's last micro-batch only */
    float p;         /* dropout probability; 0 in evaluation programs */
    uint32_t site;   /* which dropout of the model this is: key of its random numbers */
    float eps;       /* norms */
    int32_t heads;
    int32_t padding; /* EMBED, EMBED_BACKWARD: id whose row gets no gradient, or -1 */
    int32_t slot;    /* SQUARED_NORM: where its sum goes */
    /* Updates of a weight, which is a stack of parameters of one shape. */
    int32_t segments;  /* how many */
    bool vector;       /* they are vectors, a row each */
    bool decay;        /* weight decay applies */
    int32_t parameter; /* number of the first: key of stochastic rounding; SQUARED_NORM: whose gradient it is */
    int64_t element;   /* first element of the weight, or of the home of FETCH and STORE, that the operation works on */
    enum snug_activation activation;
    enum snug_loss_kind loss;
    float label_smoothing;
};

/* A tensor as the Hugging Face file names it: rows of a (possibly fused) tensor of the program. */
struct snug_parameter {
    char name[128]; /* "bert.encoder.layer.0.attention.self.query.weight" */
    int32_t tensor;
    int64_t row;      /* first row in the tensor */
    int64_t shape[2]; /* as Hugging Face has it; shape[1] is 0 for vectors */
    enum { SNUG_INIT_NORMAL, SNUG_INIT_ZEROS, SNUG_INIT_ONES } init;
    bool decay; /* AdamW decays it: not a bias, not a norm's weight */
    bool head;  /* belongs to the task head */
};

struct snug_program {
    snug_context *ctx;
    struct snug_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    struct snug_op *ops;
    size_t op_count, op_capacity;
    struct snug_parameter *parameters;
    size_t parameter_count, parameter_capacity;
    int64_t capacity[SNUG_EXTENT_COUNT]; /* largest T, B, R of the run */
    int64_t longest;                     /* tokens of the longest sequence */
    enum snug_dtype compute;             /* type of activations and of products' inputs */
    bool tf32;                           /* fp32 products may round their operands to TF32 */
    uint32_t sites;                      /* dropout sites given out so far */
    bool updates_in_backward;            /* weights change in BACKWARD, before the gradient norm is known */
    int32_t logits, loss, clip;          /* tensors that the runner looks at; clip is {norm, scale} */
};

static inline bool snug_program_has(const struct snug_program *program, enum snug_op_kind kind) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == kind) return true;
    return false;
}

/* The tensor by which the loss is scaled (optim/loss_scale.h), in fp16 training; elsewhere -1. */
static inline int32_t snug_program_scaler(const struct snug_program *program) {
    for (size_t i = program->op_count; i-- > 0;)
        if (program->ops[i].kind == SNUG_OP_RESCALE) return program->ops[i].out[0];
    return -1;
}

/* Where the tensors of placed programs stand: the arena, and the spool, which is NULL where nothing is offloaded. */
struct snug_memory {
    uint8_t *arena;
    /* The arena's way in and out, see core/block.h; NULL where it is the host's. */
    snug_status (*copy)(snug_context *ctx, void *to, const void *from, int64_t bytes);
    struct snug_spool *spool;
    int threads; /* that make and check many values at a time; 0: the caller's alone */
};
/* Elements first … first + count - 1 of a persistent tensor, in its own type, between operations. */
snug_status snug_tensor_read(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                             int64_t first, int64_t count, void *out);
snug_status snug_tensor_write(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                              int64_t first, int64_t count, const void *values);

/* Starts a program whose tensor numbers are all -1. */
void snug_program_init(struct snug_program *program, snug_context *ctx);

/* Number of the new tensor in *out. name is printf-like, without a layer's prefix. */
snug_status snug_program_tensor(struct snug_program *program, struct snug_tensor like, int32_t *out, const char *name,
                                ...) __attribute__((format(printf, 4, 5)));
/* Appends an operation. */
snug_status snug_program_op(struct snug_program *program, struct snug_op op);
void snug_program_free(struct snug_program *program);

/* Initialisers of in and out: the tensors given, then -1. */
#define SNUG_INPUTS(...) SNUG_FIRST_6(__VA_ARGS__, -1, -1, -1, -1, -1, -1)
#define SNUG_OUTPUTS(...) SNUG_FIRST_8(__VA_ARGS__, -1, -1, -1, -1, -1, -1, -1, -1)
#define SNUG_FIRST_6(a, b, c, d, e, f, ...)                                                                            \
    { a, b, c, d, e, f }
#define SNUG_FIRST_8(a, b, c, d, e, f, g, h, ...)                                                                      \
    { a, b, c, d, e, f, g, h }

#endif
