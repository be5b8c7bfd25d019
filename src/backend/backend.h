/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend is one table of functions. This header is the whole contract between plans and kernels.
 *
 * Notation: T tokens, B sequences, R head rows of the current chunk (all of the current batch), h hidden size; n any of
 * T, B, R (the extent of the tensor at hand). Matrices are row-major. x is of the program's compute type (F32 or BF16)
 * unless said; parameters, their gradients, losses and statistics are F32. Matrices and tables that are read (word,
 * pos, type, w) may also be BF16 whatever the compute type, and count as the values that they widen to; w must be BF16
 * where x or dy is. Arithmetic inside an operation is fp32 (sums over rows or batches: in a fixed order that does not
 * depend on the number of threads), whatever the storage.
 * "+=" gradients: see op->first and snug_run_overwrites(). An extent of 0 is legal: outputs that overwrite become zero.
 * Dropout masks are those of core/philox.h, with p = op->p and site = op->site; p = 0 means none. Masks are
 * replayed backward, never stored. norm(s) = (s - mean) / sqrt(var + eps) * gamma + beta over a row, var biased.
 */
/* clang-format off */
/*
 * operation            inputs                             outputs and what they become
 * EMBED                word [V,h] pos [P,h] type [Y,h]    s [T,h] = word[id] + type[type] + pos[position]
 *                      gamma [h] beta [h]                 y [T,h] = dropout(norm(s))
 * LINEAR               x [n,K] w [N,K] b [N] or none      y [n,N] = x w^T + b; y may be F32 when x is BF16
 * ATTENTION            qkv [T,3h] (q, k, v side by side,  o [T,h] = dropout(softmax(q k^T / sqrt(d))) v, per sequence and head
 *                      head i at columns i*d of each)     lse [T,heads] F32: log of the sum of exp of each row's scaled scores
 * RESIDUAL_NORM        z [n,h] x [n,h] gamma beta         s [n,h] or none = dropout(z) + x;  y [n,h] = norm(s)
 * NORM                 s [n,h] gamma beta                 y [n,h] = dropout(norm(s))
 * ACTIVATION           u [n,m] b [m] or none              a [n,m] = f(u + b); a may be u's tensor
 * DROPOUT              x [n,m], n = R                     y = dropout(x); y may be x's tensor; its own backward. An element's
 *                                                         place is that of its head row's token
 * GATHER               x [T,h]                            r [R,h] or [B,h]: row i is x[head_rows[i]] or x[offsets[i]]
 *                      x [B,h], a head row each           r [R,h]: row i is x[run->first_row + i]
 * LOSS                 logits [R,C] F32                   loss [1] F32: sum over the items (=, += in later chunks);
 *                                                         d [R,C] or none: d loss_sum / d logits * run->loss_scale,
 *                                                         which may be the logits' own tensor when F32
 *   cross entropy: of batch->labels, SNUG_IGNORE_LABEL rows count nothing; label smoothing e as PyTorch's CrossEntropyLoss
 *   binary cross entropy with logits: of batch->targets [R,C];  mean squared error: of batch->targets [R] (C = 1)
 * FILL                                                    x = 0
 * EMBED_BACKWARD       dy [T,h] (destroyed) s gamma       dword dpos dtype dgamma dbeta, all +=; tokens of id op->padding
 *                                                         add nothing to dword (nn.Embedding's padding_idx)
 * LINEAR_DX            dy [n,N] w [N,K]                   dx [n,K] = dy w, or += if op->accumulate
 * LINEAR_DW            dy [n,N] x [n,K]                   dw [N,K] += dy^T x;  db [N] or none += column sums of dy
 * ATTENTION_BACKWARD   do [T,h] qkv o lse                 dqkv [T,3h]
 * NORM_BACKWARD        dy [n,h] s gamma                   ds [n,h] (may be dy's tensor); dz [n,h] or none = mask of z's dropout
 *                                                         * ds; dgamma dbeta +=
 * ACTIVATION_BACKWARD  da [n,m] u b [m] or none           du [n,m] = da f'(u + b); may be da's tensor; a [n,m] or none =
 *                                                         f(u + b) as ACTIVATION gives it; may be u's tensor
 * GATHER_BACKWARD      dr, as r                           dx, as x: what r[i] was += dr[i]
 *                                                         index or none: see "Rows that wait"
 * SQUARED_NORM         g [N,K] index or none              sums [slots] F64: sums[op->slot] = sum of squares, or += if op->accumulate;
 *                                                         with an index, the same bits as of the whole table's gradient
 * CLIP                 sums [slots] F64                   clip [2] F32 = {norm, scale}; scale = min(1, run->max_grad_norm /
 *                                                         (norm + 1e-6)), or 1 if max_grad_norm <= 0.
 *                                                         scaler [1,4] or none: see "Loss scaling"
 * RESCALE                                                 scaler [1,4]: snug_loss_scale_next()
 * (an optimizer)       g [N,K] F32, clip or none          p [N,K], q [N,K] or none, states (all updated, but q)
 *   g is first multiplied by clip's scale, in passing. p is F32, or BF16 and then rounded stochastically (core/philox.h); q
 *   is a BF16 copy of the new p, rounded to nearest even. What it gets may be a part of the weight, see op->element. The tensor is a stack of op->segments parameters of the same
 *   shape, each updated by itself where a formula looks at more than one element. t = run->step + 1; lr is
 *   run->learning_rate, the other settings are run->optimizer's; wd is its weight_decay if op->decay, else 0.
 *   States are those of snug_optimizer_states(), in its order, all 0 before the first step.
 * ADAM                 m v (F32): torch.optim.AdamW, or Adam if not decoupled
 *   p *= 1 - lr wd (AdamW), or g += wd p (Adam); m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 *   p -= lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps)
 * ADAM_8BIT            codes of m, of v (U8), absmax of m, of v (F32): bitsandbytes' block-wise 8-bit Adam or AdamW
 *   (Dettmers et al., arXiv:2110.02861; blocks of 256 elements of each parameter; docs/numerics.md has the steps)
 * SGD                  momentum buffer (F32), if momentum != 0: torch.optim.SGD
 *   g += wd p; buffer = momentum buffer + (1-dampening) g, but g if t = 1; p -= lr d, where d is g without momentum, the
 *   buffer with it, and g + momentum buffer if nesterov
 * ADAFACTOR            row and column means r, c (F32), or v (F32) of vectors; m (F32), if beta1 is given: transformers'
 *   Adafactor (Shazeer and Stern, arXiv:1804.04235); lr already is its own rate if relative_step, snug_optimizer_rate()
 *   b = 1 - t^decay_rate; r = b r + (1-b) mean over a row of (g^2 + eps1), c the same over a column;
 *   u = g / sqrt(r / mean(r)) / sqrt(c), of vectors v = b v + (1-b) (g^2 + eps1), u = g / sqrt(v);
 *   lr *= max(eps2, RMS(p)) if scale_parameter; u *= lr / max(1, RMS(u) / clip_threshold);
 *   m = b1 m + (1-b1) u and u = m, if there is m; p *= 1 - lr wd; p -= u
 * ADAGRAD              sum (F32): torch.optim.Adagrad
 *   g += wd p; sum += g^2, and initial_accumulator_value if t = 1; p -= lr / (1 + (t-1) lr_decay) * g / (sqrt(sum) + eps)
 * RMSPROP              v (F32); momentum buffer, if momentum != 0; mean of g, if centered: torch.optim.RMSprop
 *   g += wd p; v = alpha v + (1-alpha) g^2; mean = alpha mean + (1-alpha) g; s = v, or max(0, v - mean^2) if centered;
 *   d = g / (sqrt(s) + eps); buffer = momentum buffer + d and d = buffer, if there is a buffer; p -= lr d
 * LION                 m (F32): Chen et al., arXiv:2302.06675, with decoupled weight decay, as bitsandbytes has it
 *   p *= 1 - lr wd; p -= lr sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g
 * CAST                 p F32                              q BF16 = p rounded to nearest even
 * FETCH                home (offloaded)                   x: starts to copy x from home, from op->element on
 * STORE                x                                  home (offloaded): starts to copy x there, to op->element on
 * WAIT                 x                                  waits until what FETCH or STORE began of x is done
 *
 * Loss scaling, in fp16 training (a program with RESCALE): LOSS multiplies d by scaler's first value as well. CLIP
 *   divides norm and scale by it, and says in scaler whether the step is skipped, since sums are not finite. Updates of
 *   such a step do nothing; t counts those that were done, and lr is the learning rate of that one.
 *
 * Rows that wait: a table that only EMBED reads need not be updated where a step has no gradient, until the row is read
 * again. What it missed is then done step by step, with the bits that ADAM over the whole table would have given.
 *   g [N,K]            gradients of the rows with one, in the order in which they first came up; N is what a step may have
 *   index [1+N+V] I32  see snug_rows_of(); EMBED_BACKWARD enters the batch's ids, and forgets the former ones where it
 *                      overwrites its gradients
 *   updated [V] I32    steps that row i has had; -1: it has had them all and cannot move, as both moments are 0
 *   history [H,2]      {learning rate, clip's scale} of step s in row s mod H. No row waits over a step that is a
 *                      multiple of H
 * ROWS_BEGIN           m v                                index: no gradients;  updated: all rows have had all steps
 * ADAM_ROWS            g, clip or none, index             p, q or none, m, v, none, none, updated, history: this step, of the
 *                                                         rows with a gradient
 * CATCH_UP             none                               the same: steps before run->step, of the rows of the batch's ids
 * SETTLE               none                               the same: steps before run->step, of all rows
 */
/* clang-format on */
#ifndef SNUG_BACKEND_BACKEND_H
#define SNUG_BACKEND_BACKEND_H

#include "core/block.h"
#include "model/program.h"
#include "optim/optimizer.h"
#include "text/batch.h"

/* Steps after which the host has to look how many were skipped. */
#define SNUG_UNSEEN_STEPS 8

/* What an operation sees while it runs. */
struct snug_run {
    snug_context *ctx;
    const struct snug_program *program;
    uint8_t *arena;
    const struct snug_batch *batch;
    void *backend_state;
    void *workspace;  /* workspace(program, …) bytes, 256-byte aligned */
    void *batch_copy; /* batch(program) bytes, 256-byte aligned */
    int threads;
    uint64_t seed;
    int64_t step;                   /* optimizer steps done so far: dropout's key, and an optimizer's t - 1 */
    int64_t micro_batch;            /* within the step */
    int64_t chunk, first_row, rows; /* HEAD: rows first_row … first_row + rows - 1 of the batch's head rows */
    float loss_scale;               /* 1 / items_in_step */
    float learning_rate, max_grad_norm;
    /* In fp16 the device alone may know yet whether a step was skipped: how many were as far as the host knows, and the
       learning rates if 1, 2 … more of them were. */
    int64_t skipped;
    float later_rates[SNUG_UNSEEN_STEPS - 1];
    bool one_by_one;          /* phases are not recorded: somebody times or blames single operations */
    bool in_turn;             /* no other program had the arena since this one's last batch; false is always safe */
    struct snug_spool *spool; /* NULL where nothing is offloaded */
    uint64_t *copies;         /* by tensor: the number of its last copy in the spool */
    const struct snug_optimizer *optimizer;
};

typedef snug_status snug_op_fn(struct snug_run *run, const struct snug_op *op);

struct snug_stamps;

/* What memory is for. */
enum snug_block_use {
    SNUG_BLOCK_ARENA, /* operations work in it */
    SNUG_BLOCK_HOST   /* the host fills it with batches, and works in it */
};

struct snug_backend {
    const char *name;
    /* Head rows of masked LM that it wants in a chunk: enough to be quick, few enough that their logits, the head's
       largest tensor, stay small. */
    int64_t head_rows;
    /* A block of zeroed memory, given back with snug_block_release(). */
    snug_status (*allocate)(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out);
    /* Bytes of the arena in which the backend keeps a batch of its own; 0 where operations read the host's. */
    int64_t (*batch)(const struct snug_program *program);
    /* Bytes of the arena's kind of memory that are free now; NULL where that is the host's. */
    int64_t (*available)(void);
    /* Says that run->batch is another one. Its arrays may change when this has returned, unless operations read
       them where they are. Where run->in_turn, it may travel while operations before still run. */
    snug_status (*load)(struct snug_run *run);
    /* Before and after the operations of a phase, or of one chunk of HEAD, which a backend may run by itself, as a
       whole: then *done, and they are skipped. Operations may go on after end; what reads the arena waits for them. */
    snug_status (*begin)(struct snug_run *run, enum snug_phase phase, bool *done);
    snug_status (*end)(struct snug_run *run, enum snug_phase phase);
    /* Where operations are not done yet when they return: notes, as number, the moment when all that was asked for
       before is done; *stamps is NULL at first. Then the seconds from each of count moments to the next, [0] being 0.
       NULL where operations are done when they return. */
    snug_status (*stamp)(struct snug_run *run, struct snug_stamps **stamps, size_t number);
    snug_status (*stamps)(struct snug_run *run, const struct snug_stamps *stamps, double seconds[], size_t count);
    void (*free_stamps)(struct snug_stamps *stamps);
    /* Makes what the program's operations need beforehand; nothing is made later. */
    snug_status (*open)(snug_context *ctx, const struct snug_program *program, int threads, void **state);
    void (*close)(void *state);
    /* Finds out by trying how the program's operations are done best here, for batches of these sizes, before anything
       is in the arena, whose contents are lost. What was found is kept in folder, where later runs find it, so that
       they give the same bits; folder is NULL where nothing can be kept. NULL where there is nothing to try. */
    snug_status (*warm)(struct snug_run *run, const struct snug_sizes *sizes, const char *folder);
    /* Bytes that the backend's libraries take for themselves while operations run, beyond what open left resident. */
    int64_t (*library)(const struct snug_program *program, int threads);
    /* Bytes of scratch that op needs at the program's capacity. */
    int64_t (*workspace)(const struct snug_program *program, const struct snug_op *op, int threads);
    snug_op_fn *ops[SNUG_OP_COUNT];
};

/* Plain C in the simplest order, for tests and for machines without product libraries. */
const struct snug_backend *snug_backend_reference(void);
/* FETCH, STORE and WAIT where tensors stand in host memory: through run->spool. */
snug_op_fn snug_host_fetch, snug_host_store, snug_host_wait;
/* oneDNN and fused kernels, for the instruction set of this machine. */
const struct snug_backend *snug_backend_cpu(void);
/* The same for one instruction set, "v2", "v3" or "v4" of x86-64, "generic" elsewhere; NULL if this machine lacks it.
 */
const struct snug_backend *snug_backend_cpu_isa(const char *isa);
/* An NVIDIA GPU, through the plug-in libsnug_cuda.so; SNUG_E_UNSUPPORTED with a sentence where there is none. */
snug_status snug_backend_cuda(snug_context *ctx, const struct snug_backend **out);
/* What products of the CPU are made with, for people: "oneDNN 3.1.1, bf16 by amx". */
void snug_backend_cpu_describe(char *text, size_t size);
/* Whether bf16 products are faster here than fp32 ones: AMX-BF16 or AVX512-BF16 can be used. */
bool snug_backend_cpu_fast_bf16(void);

/* Address of a tensor, NULL for -1. */
static inline void *snug_run_data(const struct snug_run *run, int32_t tensor) {
    return tensor < 0 ? NULL : run->arena + run->program->tensors[tensor].offset;
}

/* Which rows of a table have a gradient in this step: rows[i], for i below *count, has row i of g; slots[row] is where
   row's stands, -1 if it has none. */
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

/* Rows of a tensor in the current batch. */
static inline int64_t snug_run_rows(const struct snug_run *run, int32_t tensor) {
    const struct snug_tensor *t = &run->program->tensors[tensor];
    switch (t->extent) {
    case SNUG_EXTENT_TOKENS: return run->batch->tokens;
    case SNUG_EXTENT_SEQUENCES: return run->batch->sequences;
    case SNUG_EXTENT_ROWS: return run->rows;
    default: return t->rows;
    }
}

/* The token that a row of a tensor belongs to: its place is what dropout is keyed by. */
static inline int64_t snug_run_token(const struct snug_run *run, int32_t tensor, int64_t row) {
    switch (run->program->tensors[tensor].extent) {
    case SNUG_EXTENT_ROWS: return run->batch->head_rows[run->first_row + row];
    case SNUG_EXTENT_SEQUENCES: return run->batch->offsets[row];
    default: return row;
    }
}

/* GATHER: the row of x that row of r is. */
static inline int64_t snug_run_gathered_row(const struct snug_run *run, int32_t x, int32_t r, int64_t row) {
    const bool of_sequences = run->program->tensors[x].extent == SNUG_EXTENT_SEQUENCES;
    return of_sequences ? run->first_row + row : snug_run_token(run, r, row);
}

static inline int64_t snug_run_cols(const struct snug_run *run, int32_t tensor) {
    return run->program->tensors[tensor].cols;
}

static inline enum snug_dtype snug_run_dtype(const struct snug_run *run, int32_t tensor) {
    return run->program->tensors[tensor].dtype;
}

/* A tensor with the rows that it has in this batch; data is NULL where the operation has none. */
struct snug_matrix {
    uint8_t *data;
    enum snug_dtype dtype;
    int64_t rows, cols;
};

static inline struct snug_matrix snug_matrix_of(const struct snug_run *run, int32_t tensor) {
    if (tensor < 0) return (struct snug_matrix){0};
    return (struct snug_matrix){(uint8_t *)snug_run_data(run, tensor), snug_run_dtype(run, tensor),
                                snug_run_rows(run, tensor), snug_run_cols(run, tensor)};
}

/* Whether op's gradients are to be overwritten rather than added to. */
static inline bool snug_run_overwrites(const struct snug_run *run, const struct snug_op *op) {
    /* A backward that runs again in UPDATE is of one micro-batch and makes its gradients anew. */
    return op->first && (op->phase == SNUG_PHASE_UPDATE || (run->micro_batch == 0 && run->chunk == 0));
}

#endif
