/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend is one table of functions. program/op.h documents what each operation computes; this header is the rest of
 * the contract between plans and kernels.
 */
#ifndef SNUG_BACKEND_BACKEND_H
#define SNUG_BACKEND_BACKEND_H

#include "core/block.h"
#include "data/batch.h"
#include "dist/collectives.h"
#include "optim/optimizer.h"
#include "program/program.h"

/* The number of steps after which the host must read how many were skipped. */
#define SNUG_UNSEEN_STEPS 8

/* The part of the update that runs in other phases (op->crosses): moves (plan/moves.h), and the updates of
 * offloaded weights (plan/place_updates.c). */
struct snug_crossing {
    bool fetched; /* BACKWARD has fetched what the update reads first; else it is fetched where it is used */
    bool pending; /* UPDATE has run, and the rest has not: FORWARD does it, or a flush */
    /* The pending update's, as in struct snug_run. */
    int64_t step;
    float learning_rate;
};

/* What the host updates weights with where the arena is on a device; all NULL if no operation is on_host. */
struct snug_host_updates {
    const struct snug_backend *backend; /* of snug_backend_updates() */
    void *state;
};

struct snug_timestamps;

/* Timestamps of copies, which run beside operations: number 2 i when copy i begins, 2 i + 1 when it is done. */
struct snug_copy_times {
    struct snug_timestamps *timestamps;
    size_t count; /* of copies */
};

/* HEAD of a program that scores first (program.h) runs twice: up to PREFERENCE, which computes the scales of the
   gradients; then without it, and where all loss positions are one chunk, whose logits are still there, from LOSS on.
   Any other program has SNUG_PASS_ALL alone. */
enum snug_head_pass { SNUG_PASS_ALL, SNUG_PASS_SCORES, SNUG_PASS_GRADIENTS };

/* The context of a running operation. */
struct snug_run {
    snug_context *ctx;
    const struct snug_program *program;
    uint8_t *arena;
    const struct snug_batch *batch; /* NULL where operations of no batch run: before the first one, in a flush */
    void *backend_state;
    void *workspace;  /* workspace(program, …) bytes, 256-byte aligned */
    void *batch_copy; /* batch(program) bytes, 256-byte aligned */
    int threads;
    uint64_t seed;
    int64_t step;        /* optimizer steps done so far: dropout's key, and an optimizer's t - 1 */
    int64_t micro_batch; /* within the step */
    enum snug_head_pass pass;
    int64_t chunk, first_row, rows; /* HEAD: rows first_row … first_row + rows - 1 of the batch's loss positions */
    int64_t step_rows;              /* S: vectors of the step, with a loss over the step */
    float loss_scale;               /* 1 / weight_in_step */
    float learning_rate, max_grad_norm;
    /* In fp16 only the device may know yet whether a step was skipped: the number of skipped steps that the host knows
     * of, and the learning rates if 1, 2 … more were skipped. */
    int64_t skipped;
    float later_rates[SNUG_UNSEEN_STEPS - 1];
    bool one_by_one; /* phases are not captured into graphs: single operations are timed or checked */
    bool in_turn;    /* no other program used the arena since this program's last batch; false is always safe */
    struct snug_backing backing; /* of offloaded tensors */
    uint64_t *copies;            /* by tensor: the number of its last copy in the offload file */
    /* Where FETCH and STORE of an asynchronous backend record when they begin and are done; NULL: nowhere. */
    struct snug_copy_times *copy_times;
    struct snug_crossing *crossing;
    struct snug_host_updates host_updates;
    const struct snug_optimizer *optimizer;
    const struct snug_collectives *collectives; /* of a program of several ranks; else NULL */
    void *devices;                              /* of the backend's connect; else NULL */
    int contributors; /* ranks that had a micro-batch in this step, or round of it: those before this number */
    bool idle;        /* this rank has none, while others have: only collective operations run */
};

typedef snug_status snug_op_fn(struct snug_run *run, const struct snug_op *op);

/* The use of a block of memory. */
enum snug_block_use {
    SNUG_BLOCK_ARENA,  /* operations use it */
    SNUG_BLOCK_HOST,   /* the host writes batches to it and uses it as scratch */
    SNUG_BLOCK_BACKING /* of a backend whose arena is on a device: the backing store in host memory, or the bounce
                          buffers of one in a file */
};

enum { SNUG_OFFLOAD_MASTERS = 1 << SNUG_MEMORY_CLASS_COUNT, SNUG_OFFLOAD_TABLES = 2 << SNUG_MEMORY_CLASS_COUNT };

/* Which tensors are in the backing store, and how they are copied; see plan/stages.h. */
struct snug_offload {
    /* Bits 1 << memory class, of weights, gradients, optimizer and activations, and SNUG_OFFLOAD_MASTERS: of weights
     * those of which 16-bit copies stay in the arena; SNUG_OFFLOAD_TABLES: the frozen word table, if only EMBED reads
     * it. 0: nothing. */
    unsigned classes;
    int32_t ahead;   /* operations between the start of a copy and the use, and between the use and the end of a copy */
    int64_t part;    /* elements of a part, for norms and optimizers of large tensors */
    int64_t least;   /* bytes; smaller tensors are not offloaded */
    bool reads_rows; /* EMBED reads the rows of an offloaded word table where the backing store has them */
    bool overlaps;   /* the update's copies run during BACKWARD and the next FORWARD, too */
    double resident; /* share of each class's bytes that stays in the arena; not of activations */
    double on_host;  /* share of the offloaded weights' bytes that the host updates */
};

struct snug_backend {
    const char *name;
    snug_op_fn *ops[SNUG_OP_COUNT]; /* NULL: it lacks the operation */

    /* ---- memory ---- */
    bool on_device;  /* the arena is in a device's memory */
    bool plans_only; /* for a GPU that this machine need not have: runs and allocates nothing */
    /* Allocates a block of zeroed memory, freed with snug_block_release(). */
    snug_status (*allocate)(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out);
    /* (on a device, unless plans_only) Free bytes now of the device that has the arena. */
    int64_t (*available)(void);

    /* ---- what a plan asks ---- */
    bool lacks_bf16; /* a GPU before compute capability 8.0: of 16-bit types it multiplies fp16 alone, and no TF32 */
    bool lazy_rows, scales_loss; /* it has these optional operations */
    bool low_logits;             /* LOSS takes logits in the compute type, too */
    /* (optional) Whether it can run op with its attributes at the program's sizes; otherwise the message names the
     * tensor, the limit and what to do. Plans ask it of every operation, so an operation need not check again. NULL:
     * all that it has. */
    snug_status (*supports)(const struct snug_program *program, const struct snug_op *op);
    /* The preferred number of loss positions of a language model in a chunk: large enough for fast matmuls, small
       enough to keep their logits, the head's largest tensor, small. With low_logits twice the number for logits in
       F32. */
    int64_t loss_positions;
    /* Generation: a row's results do not depend on the other rows of a batch of at most so many tokens. 0: they do in
       any batch of several rows, or in none. The second number instead where the program computes in 16 bits, and its
       steps have at most so many sequences; 0: the first one there, too. */
    int64_t independent_rows, independent_low_rows;
    /* Tokens of prompts that a step of a generation takes at most; more would not make it more efficient. */
    int64_t prompt_tokens;
    /* Bytes of scratch that op needs at the program's capacity. */
    int64_t (*workspace)(const struct snug_program *program, const struct snug_op *op, int threads);
    /* Bytes of the arena for the backend's copy of a batch; 0 if operations read the host's batch. */
    int64_t (*batch)(const struct snug_program *program);
    /* Bytes that the backend's libraries allocate while operations run, in addition to those resident after open. */
    int64_t (*library)(const struct snug_program *program, int threads);
    /* (if captured_phases) Bytes of device memory that the driver takes if op, of a placed program, is captured with
     * its phase. */
    int64_t (*captured)(const struct snug_program *program, const struct snug_op *op);
    int captured_phases;         /* how many phases are captured at most; 0: none is, ever */
    struct snug_offload copying; /* what suits its copies; no classes */
    int64_t bounce; /* bytes of the bounce buffers through which a device copies from and to the offload file; else 0 */

    /* ---- batches and phases ---- */
    /* Creates everything that the program's operations need; nothing is created later, except what a library creates
     * when an inference needs it first, which library() counts. */
    snug_status (*open)(snug_context *ctx, const struct snug_program *program, int threads, void **state);
    void (*close)(void *state);
    /* Loads the new run->batch. When this has returned, its arrays may change, unless operations read them directly. If
     * run->in_turn, the transfer may overlap earlier operations. */
    snug_status (*load)(struct snug_run *run);
    bool follows; /* it reads ids of a batch that follows (data/batch.h) from the program's top_ids, on the device */
    /* Called before and after the operations of a phase, or of one chunk of HEAD. A backend may run the whole phase in
     * begin: then it sets *done, and the operations are skipped. Operations may still run after end; reads of the arena
     * wait for them. */
    snug_status (*begin)(struct snug_run *run, enum snug_phase phase, bool *done);
    snug_status (*end)(struct snug_run *run, enum snug_phase phase);
    bool updates_on_host; /* it has the next; if plans_only, for plans */
    /* (if updates_on_host) Runs an update whose flag on_host is set, with run->host_updates, on the host's cores and
     * beside later operations: its tensors are those of the backing store in memory. WAIT on its weight, or the end of
     * the phase, waits for it. */
    snug_op_fn *update_on_host;

    /* ---- timing ---- */
    bool asynchronous; /* operations may still run when they return: it has timestamps */
    /* (if asynchronous) record_timestamp records, as `number`, the time when all operations so far are done;
     * *timestamps is NULL at first. read_timestamps waits for count timestamps, and returns the seconds from each to
     * the next, with seconds[0] = 0. */
    snug_status (*record_timestamp)(struct snug_run *run, struct snug_timestamps **timestamps, size_t number);
    snug_status (*read_timestamps)(struct snug_run *run, const struct snug_timestamps *timestamps, double seconds[],
                                   size_t count);
    void (*free_timestamps)(struct snug_timestamps *timestamps);
    bool autotunes; /* it has the next */
    /* (if autotunes) Measures which kernels are fastest for the program's operations and batches of these sizes. Called
     * before the arena is used, because it overwrites the arena. The choice is stored in folder, from which later runs
     * read it, so that they give the same bits; folder is NULL if it cannot be stored. */
    snug_status (*autotune)(struct snug_run *run, const struct snug_sizes *sizes, const char *folder);

    /* ---- ranks ---- */
    bool connects; /* the devices of ranks must be connected: it has the next two */
    /* (if connects; otherwise the data of ranks are in host memory, where the hosts' collectives serve for them, too)
     * Connects the devices of all ranks, which all call it: for struct snug_run's devices. hosts: collectives of their
     * hosts. */
    snug_status (*connect)(snug_context *ctx, const struct snug_collectives *hosts, void **devices);
    void (*disconnect)(void *devices);
};

/* Whether its arena is in a device's memory. */
static inline bool snug_backend_is_device(const struct snug_backend *backend) { return backend->on_device; }

/* Plain C in the simplest order, for tests and for machines without a matmul library. */
const struct snug_backend *snug_backend_reference(void);
/* oneDNN or our own matmuls, and fused kernels, for the instruction set of this machine. */
const struct snug_backend *snug_backend_cpu(void);
/* snug_backend_cpu() for one instruction set, "v2", "v3" or "v4" of x86-64, "generic" elsewhere; NULL if this machine
 * lacks it.
 */
const struct snug_backend *snug_backend_cpu_isa(const char *isa);
/* The updates of all optimizers alone, in every build, with the bits of a GPU's: for one instruction set, or with NULL
 * the fastest of this machine. */
const struct snug_backend *snug_backend_updates(const char *isa);
/* An NVIDIA GPU, through the plug-in libsnug_cuda.so; SNUG_E_UNSUPPORTED with a message if there is none. */
snug_status snug_backend_cuda(snug_context *ctx, const struct snug_backend **out);
/* As snug_backend_cuda(), on the GPU of this rank of the host; if CUDA shows a single GPU, on that. A process uses one
 * GPU. */
snug_status snug_backend_cuda_of(snug_context *ctx, int local_rank, const struct snug_backend **out);
/* A backend that only plans, for a GPU of this compute capability (7.5 is 75), on any machine: the bytes are those of
 * the plug-in. */
const struct snug_backend *snug_backend_cuda_planned(int capability);
/* The description of the CPU's matmul library: "oneDNN 3.1.1, bf16 by amx". */
void snug_backend_cpu_describe(char *text, size_t size);
/* Whether bf16 matmuls are faster than fp32 ones on this machine: AMX-BF16, AVX512-BF16 or BFDOT is available. */
bool snug_backend_cpu_fast_bf16(void);

/* Address of a tensor; NULL for none. */
static inline void *snug_run_data(const struct snug_run *run, int32_t tensor) {
    if (tensor <= 0) return NULL;
    const struct snug_tensor *t = &run->program->tensors[tensor];
    return (t->in_place ? run->backing.memory.base : run->arena) + t->offset;
}

/* Which rows of a table have a gradient in this step: rows[i], for i below *count, has row i of g; slots[row] is the
 * index i of row, -1 if row has no gradient. */
struct snug_rows {
    int64_t capacity, table_rows;
    int32_t *count, *rows, *slots;
};
static inline struct snug_rows snug_rows_of(const struct snug_run *run, int32_t index, int32_t gradient) {
    const int64_t capacity = run->program->tensors[gradient].rows;
    int32_t *data = (int32_t *)snug_run_data(run, index);
    return (struct snug_rows){capacity, run->program->tensors[index].cols - 1 - capacity, data, data + 1,
                              data + 1 + capacity};
}

/* The tokens whose rows are trained by themselves (EMBED): row k is that of ids[k]; places[id] is its k, or -1. Both
 * NULL without such tokens. */
struct snug_tokens {
    const int32_t *ids, *places;
};
static inline struct snug_tokens snug_tokens_of(const struct snug_run *run, int32_t tokens, int64_t count) {
    const int32_t *data = (const int32_t *)snug_run_data(run, tokens);
    return (struct snug_tokens){data, data ? data + count : NULL};
}

/* Rows of a tensor in the current batch. */
static inline int64_t snug_run_rows(const struct snug_run *run, int32_t tensor) {
    const struct snug_tensor *t = &run->program->tensors[tensor];
    switch (t->extent) {
    case SNUG_EXTENT_TOKENS: return run->batch->tokens;
    case SNUG_EXTENT_SEQUENCES: return run->batch->sequences;
    case SNUG_EXTENT_ROWS: return run->rows;
    case SNUG_EXTENT_STEP: return run->step_rows;
    default: return t->rows;
    }
}

/* The token that a row of a tensor belongs to: its position is the key of dropout. */
static inline int64_t snug_run_token(const struct snug_run *run, int32_t tensor, int64_t row) {
    switch (run->program->tensors[tensor].extent) {
    case SNUG_EXTENT_ROWS: return run->batch->loss_positions[run->first_row + row];
    case SNUG_EXTENT_SEQUENCES: {
        const int last = run->program->tensors[tensor].pooling == SNUG_POOL_LAST;
        return run->batch->offsets[row + last] - last;
    }
    default: return row;
    }
}

/* The key of a row's dropout: the position of its token, and that token's sample; of a FIXED tensor the row itself. */
struct snug_row_key {
    int32_t position, sample;
};
static inline struct snug_row_key snug_run_row_key(const struct snug_run *run, int32_t tensor, int64_t row) {
    if (run->program->tensors[tensor].extent == SNUG_EXTENT_FIXED) return (struct snug_row_key){(int32_t)row, 0};
    const int64_t token = snug_run_token(run, tensor, row);
    return (struct snug_row_key){run->batch->positions[token], run->batch->sample[token]};
}

/* What the rows of a tensor are, one for each sequence. */
static inline enum snug_pooling snug_run_pooling(const struct snug_run *run, int32_t tensor) {
    return run->program->tensors[tensor].pooling;
}

/* GATHER: the row of x that is copied to `row` of r; where r is pooled, see enum snug_pooling. */
static inline int64_t snug_run_gathered_row(const struct snug_run *run, int32_t x, int32_t r, int64_t row) {
    const bool of_sequences = run->program->tensors[x].extent == SNUG_EXTENT_SEQUENCES;
    const struct snug_tensor *pooled = &run->program->tensors[r];
    if (of_sequences) return run->first_row + row;
    if (pooled->extent == SNUG_EXTENT_SEQUENCES && pooled->pooling == SNUG_POOL_FIRST)
        return run->batch->loss_positions[row];
    return snug_run_token(run, r, row);
}

static inline int64_t snug_run_cols(const struct snug_run *run, int32_t tensor) {
    return run->program->tensors[tensor].cols;
}

static inline enum snug_dtype snug_run_dtype(const struct snug_run *run, int32_t tensor) {
    return run->program->tensors[tensor].dtype;
}

/* The row of the cache that position p of a sequence of the batch has. */
static inline int64_t snug_run_cache_row(const struct snug_run *run, int64_t sequence, int64_t p) {
    const int32_t *pages = run->batch->pages + sequence * run->batch->pages_each;
    return (int64_t)pages[p / SNUG_CACHE_PAGE] * SNUG_CACHE_PAGE + p % SNUG_CACHE_PAGE;
}

/* A tensor with its number of rows in this batch; data is NULL if the operation has no such tensor. */
struct snug_matrix {
    uint8_t *data;
    enum snug_dtype dtype;
    int64_t rows, cols;
};

static inline struct snug_matrix snug_matrix_of(const struct snug_run *run, int32_t tensor) {
    if (tensor <= 0) return (struct snug_matrix){0};
    return (struct snug_matrix){(uint8_t *)snug_run_data(run, tensor), snug_run_dtype(run, tensor),
                                snug_run_rows(run, tensor), snug_run_cols(run, tensor)};
}

/* Whether op overwrites its gradients; otherwise it adds to them. */
static inline bool snug_run_overwrites(const struct snug_run *run, const struct snug_op *op) {
    /* A second backward, in UPDATE, has one micro-batch and overwrites its gradients. */
    const bool first = op->each || run->micro_batch == 0;
    return op->first && (op->phase == SNUG_PHASE_UPDATE || (first && run->chunk == 0));
}

#endif
