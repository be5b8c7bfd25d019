/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program: a list of operations over named tensors. Everything that snug runs, plans or estimates is a program.
 *
 * A model builds the forward operations; stages (src/plan) add the backward operations, change types, recompute instead
 * of storing, add the optimizer, and finally give each tensor its offset in the arena. A backend runs the result.
 *
 * Sizes that vary from batch to batch are extents: tokens T, sequences B, loss positions R. A tensor's capacity is that
 * of the largest batch of the run; a run uses the current batch's.
 */
#ifndef SNUG_PROGRAM_PROGRAM_H
#define SNUG_PROGRAM_PROGRAM_H

#include "core/context.h"
#include "core/dtype.h"
#include "io/backing.h"
#include "program/op.h"
#include "program/pooling.h"

/* The allocated rows of every tensor with a varying extent are a multiple of this number, so that matmuls can use whole
 * tiles. Rows after the last row are undefined, before and after every operation. */
#define SNUG_ROW_TILE 64

enum snug_extent {
    SNUG_EXTENT_FIXED,     /* rows as given */
    SNUG_EXTENT_TOKENS,    /* T */
    SNUG_EXTENT_SEQUENCES, /* B */
    SNUG_EXTENT_ROWS,      /* R: loss positions of one chunk */
    SNUG_EXTENT_STEP,      /* S: vectors of a step, of all its micro-batches */
    SNUG_EXTENT_COUNT
};

struct snug_tensor {
    char name[88];
    enum snug_dtype dtype;
    snug_memory_class memory_class;
    enum snug_extent extent;
    enum snug_pooling pooling; /* if extent is SEQUENCES */
    int64_t rows, cols;        /* row-major; rows counts only if the extent is FIXED */
    enum snug_part part;
    int32_t layer;    /* if part is LAYER; otherwise -1 */
    bool persistent;  /* lives across steps: weights, gradients, states */
    int32_t identity; /* of a persistent tensor that the programs of a run share: the same number in each; else 0 */
    bool trainable;   /* a weight that gets a gradient and an update */
    int32_t gradient; /* a weight's gradient; 0: none */
    int32_t index;    /* index of a gradient that has only some rows of its table (lazy rows, program/op.h); 0: none */
    bool low_precision; /* may be stored in the compute type, which the precision stage decides */
    bool master;        /* a weight of which a copy in the compute type lives as long (precision stage) */
    bool narrowed;      /* a frozen weight in the compute type; it is saved with the values that it was loaded with */
    bool saved;         /* an optimizer's state, which checkpoints hold */
    bool offloaded;     /* it is in the backing store; operations use staging buffers (plan/residency.c) */
    bool in_place;      /* offloaded, and read from the backing store without a staging buffer: a table */
    bool view;          /* a view of tensor base, from `element` on */
    int32_t base;
    int64_t element;
    struct snug_quantized quantized; /* a frozen weight that is stored as codes; from the precision stage on it is U8,
                                        with a row of bytes for each of its parameters */
    struct snug_shards shards;       /* of a tensor of which each rank stores its shard; else shards.chunk is 0 */
    /* Filled in by the place stage. */
    int32_t first, last;   /* the operation that writes it first, the one that uses it last */
    int64_t bytes, offset; /* offset: in the arena, or in the backing store if offloaded */
};

/* Rotary position embeddings (Su et al., arXiv:2104.09864) of the first 2 `pairs` channels of a head. At position i,
 * pair c is rotated by the angle i * frequencies[c] and multiplied by factor: channels a = c and b = c + pairs, or if
 * they are neighbours a = 2c and b = 2c + 1, become f (x_a cos - x_b sin) and f (x_b cos + x_a sin), where f is factor
 * * (1 + growth * ln(1 + floor(i / growth_from))). */
enum { SNUG_ROTATION_PAIRS_MOST = 256 };
struct snug_rotation {
    int32_t pairs;
    bool neighbours;
    double factor, growth;
    int64_t growth_from; /* if growth is not 0 */
    double frequencies[SNUG_ROTATION_PAIRS_MOST];
};
static inline double snug_rotation_factor(const struct snug_rotation *r, int64_t position) {
    if (r->growth == 0) return r->factor;
    const int64_t times = position / r->growth_from; /* whole ones */
    return r->factor * (1 + r->growth * log((double)(1 + times)));
}

/* A parameter with its name in the Hugging Face file: rows of a (possibly fused) tensor of the program. */
struct snug_parameter {
    char name[128]; /* "bert.encoder.layer.0.attention.self.query.weight" */
    int32_t tensor;
    int64_t row;      /* first row in the tensor */
    int64_t shape[2]; /* the shape in the Hugging Face file; shape[1] is 0 for vectors */
    /* NORMAL: with the config's deviation, GAUSSIAN: with 1; UNIFORM: +-1 / sqrt(cols); LENGTHS: of the rows of the
       weight of its module; ROWS: those of tokens, of that weight */
    enum snug_init {
        SNUG_INIT_NORMAL,
        SNUG_INIT_ZEROS,
        SNUG_INIT_ONES,
        SNUG_INIT_UNIFORM,
        SNUG_INIT_GAUSSIAN,
        SNUG_INIT_LENGTHS,
        SNUG_INIT_ROWS
    } init;
    bool lora;          /* of an adapter (model/adapters.h): files of the base model do not have it */
    bool adapter;       /* lora, or of a module that is trained and saved with the adapters */
    bool apart;         /* of a module with a file of its own (model/sentence.h) */
    bool wrapped;       /* a bias of a module that has an adapter: PEFT's files have it in base_layer */
    bool of_columns;    /* LENGTHS: of the weight's columns, which is stored as [in,out] */
    bool turned;        /* files have its transpose: [cols,rows] */
    int64_t kernel;     /* of a convolution: files have [rows,cols / kernel,kernel]; else 0 */
    bool decay;         /* AdamW decays it: not a bias, not a norm's weight */
    bool head;          /* belongs to the task head */
    bool by_depth;      /* normal values have a deviation smaller by sqrt(2 layers), as GPT-2's outputs of blocks */
    bool by_vocabulary; /* its rows are the vocabulary's tokens */
    bool output;        /* adapter: a word table that PEFT's files have as lm_head.weight, too */
    bool has_zero_row;
    int32_t tokens;   /* ROWS: which they are, the tensor that EMBED reads */
    int64_t zero_row; /* row of a table that is initialised to zeros, as for nn.Embedding's padding_idx */
    const char *also; /* a second name under which it is also saved, because transformers needs it; or NULL */
};

static inline int64_t snug_parameter_count(const struct snug_parameter *parameter) {
    return parameter->shape[0] * (parameter->shape[1] ? parameter->shape[1] : 1);
}

/* Its shape in files; returns the number of dimensions, at most 3. */
static inline int snug_parameter_shape(const struct snug_parameter *parameter, int64_t shape[3]) {
    const int64_t rows = parameter->shape[0], cols = parameter->shape[1], kernel = parameter->kernel;
    shape[0] = parameter->turned ? cols : rows;
    shape[1] = parameter->turned ? rows : kernel ? cols / kernel : cols;
    shape[2] = kernel;
    return kernel ? 3 : cols ? 2 : 1;
}

struct snug_program {
    snug_context *ctx;
    struct snug_tensor *tensors; /* number 0 is none */
    size_t tensor_count, tensor_capacity;
    struct snug_op *ops;
    size_t op_count, op_capacity;
    struct snug_parameter *parameters;
    size_t parameter_count, parameter_capacity;
    struct snug_rotation *rotations;
    size_t rotation_count, rotation_capacity;
    int64_t capacity[SNUG_EXTENT_COUNT]; /* largest T, B, R, S of the run */
    int64_t longest;                     /* tokens of the longest sequence */
    int64_t cache_pages;                 /* of keys and values, in a program that generates; else 0: CACHE_ROWS */
    int32_t
        top_count;    /* in a program that generates: the most probable tokens that TOP gives; 0: all logits are read */
    bool accumulates; /* a step may have several micro-batches */
    bool untrained;   /* no program of the run trains the weights */
    int ranks, rank;  /* that run the program together; 0 is 1; and which of them this is */
    enum snug_dtype compute;                /* type of activations and of matmul inputs */
    bool tf32;                              /* fp32 matmuls may round their operands to TF32 */
    uint32_t sites;                         /* number of dropout sites so far */
    int32_t identities;                     /* number of tensors with an identity so far */
    bool crosses;                           /* it has operations that cross phases (struct snug_crossing) */
    bool to_file;                           /* its backing store is the offload file */
    bool loss_of_step;                      /* its loss is over the vectors of all micro-batches of a step */
    bool scores_first;                      /* its HEAD runs twice: enum snug_head_pass */
    bool weighs_classes;                    /* the loss has a weight for each class (data/batch.h) */
    bool low_logits;                        /* a vocabulary's logits are in the compute type, if it trains */
    struct snug_preference_form preference; /* of preference tuning */
    bool updates_in_backward;               /* weights change in BACKWARD, before the gradient norm is known */
    int32_t top_ids, top_log_probabilities; /* of TOP, 0 if none */
    int32_t logits, best, loss, clip;       /* tensors that the host reads, 0 if none; clip is {norm, scale} */
    int32_t sums, results;                  /* of PREFERENCE, 0 if none */
    int32_t scaler;                         /* the loss scale (optim/loss_scale.h), in fp16 training; or 0 */
};

static inline bool snug_program_has(const struct snug_program *program, enum snug_op_kind kind) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == kind) return true;
    return false;
}

/* The memory of placed programs: the arena, and the backing store of offloaded tensors. */
struct snug_memory {
    uint8_t *arena;
    /* Copies to and from the arena, see core/block.h; NULL if the arena is in host memory. */
    snug_status (*copy)(snug_context *ctx, void *to, const void *from, int64_t bytes);
    struct snug_backing backing;
    int threads;       /* threads for initialising and checking large tensors; 0: only the caller's */
    uint64_t *written; /* a hash of all that was written to divided tensors; NULL without such tensors */
};
/* Elements of a tensor with FIXED rows that this rank stores, the first of them `*begin`: of a divided tensor its
 * shard, else all. */
static inline int64_t snug_tensor_stored(const struct snug_program *program, const struct snug_tensor *tensor,
                                         int64_t *begin) {
    *begin = tensor->shards.chunk ? snug_shard_begin(&tensor->shards, program->rank) : 0;
    return tensor->shards.chunk ? snug_shard_size(&tensor->shards, program->rank) : tensor->rows * tensor->cols;
}
/* Read or write elements first … first + count - 1 of a persistent tensor, in its own type, between operations. A
 * divided tensor is written by all ranks, each of which keeps its shard, of which alone it can read elements. */
snug_status snug_tensor_read(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                             int64_t first, int64_t count, void *out);
snug_status snug_tensor_write(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                              int64_t first, int64_t count, const void *values);
/* Where a persistent tensor's element `first` and all after it may be written in place; NULL if that needs
 * snug_tensor_write(): the tensor is offloaded, divided, or on a device. */
void *snug_tensor_in_place(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                           int64_t first);

/* Starts an empty program. */
void snug_program_init(struct snug_program *program, snug_context *ctx);

/* Number of the new tensor in *out, which has no identity. name is printf-like, without a layer's prefix. */
snug_status snug_program_tensor(struct snug_program *program, struct snug_tensor like, int32_t *out, const char *name,
                                ...) __attribute__((format(printf, 4, 5)));
/* Appends an operation; its operands must exist. */
snug_status snug_program_op(struct snug_program *program, struct snug_op op);
void snug_program_free(struct snug_program *program);

#endif
