/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: the one list of them, their operands and attributes, and what each computes. The enumeration, the names,
 * the groups and the tables of the backends follow from the list; ops/NAME.c has the descriptor of an operation, its
 * derivative and its cost; backend/BACKEND/NAME computes it.
 *
 * Notation: T tokens, B sequences, R loss positions of the current chunk (all of the current batch), S vectors of the
 * step (all of its micro-batches), h hidden size; n any of T, B, R, S (the extent of the tensor). Matrices are
 * row-major. x is of the program's compute type unless noted; parameters, their gradients, losses and statistics are
 * F32. Matrices and tables that are read (word, position, type, w, bias of ATTENTION) may also be BF16 whatever the
 * compute type, and are widened to fp32; w must be of the compute type where x or dy is not F32. Arithmetic inside an
 * operation is fp32 (sums over rows or batches in a fixed order that does not depend on the number of threads),
 * whatever the storage type. An extent of 0 is allowed: outputs that are overwritten become zero.
 *
 * Dropout masks are those of core/philox.h, with p = op->p and site = op->site; p = 0 is no dropout. Masks are replayed
 * backward, never stored.
 *
 * norm(s) = (s - mean) / sqrt(var + eps) * gamma + beta over a row, var biased; without beta where there is none. See
 * struct snug_norm_form.
 *
 * "+=" gradients: op->first and snug_run_overwrites() decide whether they are overwritten or added to. In a program
 * that accumulates, LINEAR_DW, EMBED_BACKWARD and NORM_BACKWARD complete the sum of a micro-batch before they add it,
 * except for further chunks of HEAD.
 */
#ifndef SNUG_PROGRAM_OP_H
#define SNUG_PROGRAM_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/quantized.h"
#include "program/losses.h"
#include "program/positions.h"
#include "program/shards.h"

/* The optimizers, a line each: the operation that updates a weight, whose descriptor and formula are in
   optim/optimizers/NAME.c together with all else about the optimizer. The first is the default. */
#define SNUG_OPTIMIZERS(X)                                                                                             \
    X(ADAM, adam, update)                                                                                              \
    X(ADAM_8BIT, adam_8bit, update)                                                                                    \
    X(SGD, sgd, update)                                                                                                \
    X(ADAFACTOR, adafactor, update)                                                                                    \
    X(ADAGRAD, adagrad, update)                                                                                        \
    X(RMSPROP, rmsprop, update)                                                                                        \
    X(LION, lion, update)

/* X(KIND, name, member): the enumeration is SNUG_OP_KIND, a backend's function snug_BACKEND_name, the descriptor
   snug_op_name_info; member is that of struct snug_op. */
#define SNUG_OPS_COMMON(X)                                                                                             \
    X(EMBED, embed, embed)                                                                                             \
    X(TABLE, table, table)                                                                                             \
    X(LINEAR, linear, linear)                                                                                          \
    X(ATTENTION, attention, attention)                                                                                 \
    X(RESIDUAL_NORM, residual_norm, residual_norm)                                                                     \
    X(NORM, norm, norm)                                                                                                \
    X(ACTIVATION, activation, activation)                                                                              \
    X(GLU, glu, glu)                                                                                                   \
    X(ROTATE, rotate, rotate)                                                                                          \
    X(DROPOUT, dropout, dropout)                                                                                       \
    X(SCALE, scale, scale)                                                                                             \
    X(ROW_LENGTHS, row_lengths, row_lengths)                                                                           \
    X(SCALE_COLUMNS, scale_columns, scale_columns)                                                                     \
    X(TOKEN_COLUMNS, token_columns, token_columns)                                                                     \
    X(UNFOLD, unfold, unfold)                                                                                          \
    X(GATHER, gather, gather)                                                                                          \
    X(NORMALIZE, normalize, normalize)                                                                                 \
    X(LOSS, loss, loss)                                                                                                \
    X(PREFERENCE, preference, preference)                                                                              \
    X(COLLECT, collect, collect)                                                                                       \
    X(VECTOR_LOSS, vector_loss, vector_loss)                                                                           \
    X(BEST, best, best)                                                                                                \
    X(FILL, fill, fill)                                                                                                \
    X(ADD, add, add)                                                                                                   \
    X(EMBED_BACKWARD, embed_backward, embed_backward)                                                                  \
    X(TABLE_BACKWARD, table_backward, table_backward)                                                                  \
    X(LINEAR_DX, linear_dx, linear_dx)                                                                                 \
    X(LINEAR_DW, linear_dw, linear_dw)                                                                                 \
    X(ATTENTION_BACKWARD, attention_backward, attention_backward)                                                      \
    X(NORM_BACKWARD, norm_backward, norm_backward)                                                                     \
    X(ACTIVATION_BACKWARD, activation_backward, activation_backward)                                                   \
    X(GLU_BACKWARD, glu_backward, glu_backward)                                                                        \
    X(SCALE_BACKWARD, scale_backward, scale_backward)                                                                  \
    X(SCALE_COLUMNS_BACKWARD, scale_columns_backward, scale_columns_backward)                                          \
    X(TOKEN_COLUMNS_BACKWARD, token_columns_backward, token_columns_backward)                                          \
    X(UNFOLD_BACKWARD, unfold_backward, unfold_backward)                                                               \
    X(GATHER_BACKWARD, gather_backward, gather_backward)                                                               \
    X(NORMALIZE_BACKWARD, normalize_backward, normalize_backward)                                                      \
    X(COLLECT_BACKWARD, collect_backward, collect_backward)                                                            \
    X(SQUARED_NORM, squared_norm, squared_norm)                                                                        \
    X(CLIP, clip, clip)                                                                                                \
    SNUG_OPTIMIZERS(X)                                                                                                 \
    X(CAST, cast, cast)                                                                                                \
    X(DEQUANTIZE, dequantize, dequantize)
/* Backends that train in fp16 have these. */
#define SNUG_OPS_LOSS_SCALING(X) X(RESCALE, rescale, rescale)
/* Backends that update embedding rows lazily have these. */
#define SNUG_OPS_LAZY_ROWS(X)                                                                                          \
    X(ADAM_ROWS, adam_rows, update)                                                                                    \
    X(LAZY_UPDATE, lazy_update, update)                                                                                \
    X(ROWS_BEGIN, rows_begin, rows_begin)
/* Backends that generate have these. */
#define SNUG_OPS_GENERATION(X)                                                                                         \
    X(CACHE_ROWS, cache_rows, cache_rows)                                                                              \
    X(CACHED_ATTENTION, cached_attention, cached_attention)                                                            \
    X(TOP, top, top)
/* Backends that several ranks can use have these. */
#define SNUG_OPS_RANKS(X)                                                                                              \
    X(SUM_RANKS, sum_ranks, sum_ranks)                                                                                 \
    X(GATHER_RANKS, gather_ranks, gather_ranks)                                                                        \
    X(SUM_CHUNKS, sum_chunks, sum_chunks)
/* Backends that offload have these. */
#define SNUG_OPS_OFFLOAD(X)                                                                                            \
    X(FETCH, fetch, fetch)                                                                                             \
    X(STORE, store, store)                                                                                             \
    X(WAIT, wait, wait)
#define SNUG_OPS(X)                                                                                                    \
    SNUG_OPS_COMMON(X)                                                                                                 \
    SNUG_OPS_LOSS_SCALING(X) SNUG_OPS_LAZY_ROWS(X) SNUG_OPS_GENERATION(X) SNUG_OPS_RANKS(X) SNUG_OPS_OFFLOAD(X)

enum snug_op_kind {
#define SNUG_OP_KIND(KIND, name, member) SNUG_OP_##KIND,
    SNUG_OPS(SNUG_OP_KIND)
#undef SNUG_OP_KIND
        SNUG_OP_COUNT
};

/* When an operation runs, in this order. HEAD is repeated over chunks of loss positions, so that the plan does not
   depend on the number of loss positions. */
enum snug_phase {
    SNUG_PHASE_PREPARE, /* after weights and states are loaded: low-precision copies */
    SNUG_PHASE_FORWARD,
    SNUG_PHASE_HEAD,
    SNUG_PHASE_STEP, /* a loss over the whole step: once, after FORWARD and HEAD of all its micro-batches */
    SNUG_PHASE_BACKWARD,
    SNUG_PHASE_CLIP,
    SNUG_PHASE_UPDATE,
    SNUG_PHASE_COUNT
};

/* The part of the model that a tensor or an operation belongs to. */
enum snug_part { SNUG_PART_EMBEDDINGS, SNUG_PART_LAYER, SNUG_PART_HEAD };
/* The block of a layer that an operation belongs to. Recomputation levels depend on it. */
enum snug_block_kind { SNUG_IN_NO_BLOCK, SNUG_IN_ATTENTION, SNUG_IN_FFN };

enum snug_activation { SNUG_GELU, SNUG_GELU_TANH, SNUG_RELU, SNUG_SILU, SNUG_TANH };

/* ---- operands and attributes ---------------------------------------------------------------------------------- */

/* Operands are tensor numbers; 0 is none, which is allowed if the comment has "or none". They come first in each
   structure, in the order of the descriptor; op->operands aliases them. An operand marked "(= x)" may be the same
   tensor as x. */

/* s = scale word[id] + type[type] + position[position]. An id that is tokens[k] has row k of rows in place of its row
   of word. tokens is their K ids, then for each id of the vocabulary its k, or -1. */
struct snug_embed {
    int32_t word, position, type; /* [V,h] [P,h] or none [Y,h] or none */
    int32_t rows, tokens;         /* [K,h] [1,K+V] I32; both or none */
    int32_t s;                    /* [T,h] */
    float scale;
    int32_t padding;        /* id whose row gets no gradient (nn.Embedding's padding_idx), or -1 */
    int32_t first_position; /* rows of the position table below it get no gradient */
};
/* dword, dposition, dtype, each or none, +=. Tokens of id padding contribute nothing to dword. With tokens, dword is
   that of rows. */
struct snug_embed_backward {
    int32_t ds; /* [T,h] */
    int32_t dword, dposition, dtype;
    int32_t index;  /* or none: see "Lazy rows" */
    int32_t tokens; /* or none */
    float scale;
    int32_t padding, first_position;
};
/* y = table, all of its rows */
struct snug_table {
    int32_t table; /* [N,h] */
    int32_t y;     /* [N,h], FIXED */
};
/* dtable += dy */
struct snug_table_backward {
    int32_t dy; /* [N,h], FIXED */
    int32_t dtable;
};
/* The columns of a tensor that an operation reads or writes: `count` from `first` on; count 0: all. */
struct snug_column_range {
    int32_t first, count;
};
/* How many these are of a tensor of so many columns. */
static inline int64_t snug_range_columns(struct snug_column_range of, int64_t columns) {
    return of.count ? of.count : columns;
}
/* y = x w^T + b + addend; y may be F32 where x is not. transposed, here and below: w and dw are stored as [K,N]. Of x
   [n,K] these columns alone are meant, if it has more: several linears then read columns that cover x, each once. */
struct snug_linear {
    int32_t x, w, b, addend; /* [n,K] [N,K] [N] or none, [n,N] or none */
    int32_t y;               /* [n,N] (= addend), of its type */
    bool transposed;
    struct snug_column_range of_x;
};
/* dx = dy w, or += if op->accumulate */
struct snug_linear_dx {
    int32_t dy, w; /* [n,N] [N,K] */
    int32_t dx;    /* [n,K] */
    bool transposed;
    struct snug_column_range of_dx;
};
/* dw += dy^T x;  db += column sums of dy */
struct snug_linear_dw {
    int32_t dy, x;  /* [n,N] [n,K] */
    int32_t dw, db; /* [N,K] [N], each or none */
    bool transposed;
    struct snug_column_range of_x;
};
/*
 * o = dropout(softmax(S)) v, S = cap(q k^T * scale) + b, per sequence and head; lse F32: log of the sum of exp of each
 * row of S
 *
 * q has `heads` heads of d = head_dim channels, k and v have kv_heads; heads is a multiple of kv_heads, and head i
 * reads key/value head i / (heads / kv_heads). q, k and v are columns of one tensor or of several: head i of operand n
 * (0: q, 1: k, 2: v) has the d columns from column[n] + i * d on. The operands of a tensor cover all of its columns,
 * each once. i, j: positions of a query and of a key in their sequence, from 0. Query i attends to the keys j with
 * i - before <= j <= i + after; -1: to all keys before it, after it. So causal attention has after = 0. Dropout's
 * factors depend on i and j in any case. cap(x) = softcap * tanh(x / softcap); softcap 0: x. bias: b_ij =
 * bias[snug_relative_bucket(j - i, buckets)][head]; without it b = 0.
 *
 * With position keys or position queries (disentangled attention, arXiv:2006.03654), S also has (q_i . pk_r + k_j .
 * pq_r) * scale, where r = snug_position_row(i - j, span, farthest); head i reads the columns from i * d on. Then heads
 * is kv_heads, and there is neither a window, a cap nor a bias.
 */
struct snug_attention_form {
    int32_t column[3];
    int32_t heads, kv_heads, head_dim;
    int32_t before, after;
    int32_t farthest; /* of snug_position_row() */
    float scale, softcap;
};
struct snug_attention {
    int32_t q, k, v; /* [T,…], see above */
    int32_t bias;    /* [buckets,heads] or none */
    int32_t pk, pq;  /* [2*span,heads*d] FIXED, each or none */
    int32_t o, lse;  /* [T,heads*d] [T,heads] */
    struct snug_attention_form form;
};
/* dbias += */
struct snug_attention_backward {
    int32_t dout, q, k, v, o, lse, bias, pk, pq; /* dout: gradient of o */
    int32_t dq, dk, dv;                          /* as q, k, v: one tensor where those are one */
    int32_t dbias;                               /* [buckets,heads] F32 or none */
    int32_t dpk, dpq;                            /* as pk, pq, each or none */
    struct snug_attention_form form;
};
/*
 * Generation: a batch has the new tokens of each sequence, at positions that continue those of earlier batches. Keys
 * and values of all positions so far are in the cache, pages of SNUG_CACHE_PAGE rows: position p of sequence s is row
 * p % SNUG_CACHE_PAGE of page batch->pages[s * batch->pages_each + p / SNUG_CACHE_PAGE].
 */
enum { SNUG_CACHE_PAGE = 64 };
/* The first rows of page `to` = those of page `from` for each of batch->page_copies, at most one for each sequence, of
   which none writes what another one, or a new row, reads or writes. With q, its first `heads` heads and those of k are
   rotated in place by the position of the row's token, k without the rotation's growth. Then the row of each token's
   position = its row of k and v, from column[0] and column[1] on. */
struct snug_cache_rows {
    int32_t q;            /* [T,…], which may be k's tensor; or none: nothing is rotated */
    int32_t k, v;         /* [T,…] */
    int32_t keys, values; /* [pages*SNUG_CACHE_PAGE,kv_heads*d], of the type of k and v */
    int32_t column[2];
    int32_t heads, kv_heads, head_dim, rotation; /* with q; rotation: of the program */
};
/* o as ATTENTION gives it for the new tokens as queries, at their positions, over the keys and values of all positions
   of their sequence, which are in the cache. k and v are those of the new tokens: a backend may read them instead,
   where a sequence has no others. form.after is 0. */
struct snug_cached_attention {
    int32_t q, k, v;      /* [T,…], see ATTENTION */
    int32_t keys, values; /* see CACHE_ROWS */
    int32_t o;            /* [T,heads*d] */
    struct snug_attention_form form;
};
/* Which norm it is: LayerNorm, or RMSNorm (Zhang and Sennrich, arXiv:1910.07467), which takes the mean as 0. */
struct snug_norm_form {
    float eps;
    bool rms;
    bool unit_offset; /* 1 + gamma in place of gamma, as in Gemma */
    int32_t parts;    /* equal parts of a row, such as heads, each normed by itself: gamma, beta [h/parts]; 0: the row.
                         Of NORM without dropout */
};
/* s = dropout(z) + x;  y = norm(s) */
struct snug_residual_norm {
    int32_t z, x, gamma, beta; /* [n,h] [n,h] [h] [h] or none */
    int32_t s, y;              /* [n,h]; s or none */
    struct snug_norm_form form;
};
/* y = dropout(norm(s)) */
struct snug_norm {
    int32_t s, gamma, beta; /* [n,h] [h] [h] or none */
    int32_t y;              /* [n,h] */
    struct snug_norm_form form;
};
/* ds = norm'(dy) + addend;  dz = mask of z's dropout * ds;  dgamma, dbeta +=. drops_y: the dropout is that of y, so dy
   is multiplied by its mask first, and there is no dz. */
struct snug_norm_backward {
    int32_t dy, s, gamma, addend; /* [n,h] [n,h] [h] [n,h] or none */
    int32_t ds, dz;               /* [n,h] (= dy or addend, or both), [n,h] or none */
    int32_t dgamma, dbeta;        /* [h], each or none */
    struct snug_norm_form form;
    bool drops_y;
};
/* a = f(u + b) */
struct snug_activation_op {
    int32_t u, b; /* [n,m] [m] or none */
    int32_t a;    /* [n,m] (= u) */
    enum snug_activation function;
};
/* du = da f'(u + b);  a = f(u + b) as ACTIVATION gives it */
struct snug_activation_backward {
    int32_t da, u, b; /* [n,m] [n,m] [m] or none */
    int32_t du, a;    /* [n,m] (= da), [n,m] (= u) or none */
    enum snug_activation function;
};
/* a = f(u1) u2, where u1 is the first m columns of u and u2 the other m; with v, u1 is u and u2 is v */
struct snug_glu {
    int32_t u, v; /* [n,2m] and none, or [n,m] each */
    int32_t a;    /* [n,m] */
    enum snug_activation function;
};
/* du = (da u2 f'(u1), da f(u1)); with v, du = da u2 f'(u1) and dv = da f(u1) */
struct snug_glu_backward {
    int32_t da, u, v; /* [n,m] and as in GLU */
    int32_t du, dv;   /* as u, v */
    enum snug_activation function;
};
/* y = x with the first `heads` heads, of head_dim columns each, rotated by the position of the row's token (struct
   snug_rotation, program.h). back: by its negative, which is the derivative. */
struct snug_rotate {
    int32_t x, y; /* [n,m]; y (= x) */
    int32_t heads, head_dim;
    int32_t rotation; /* of the program */
    bool back;
};
/* y = dropout(x), its own backward. The mask of an element is keyed by its row's token; that of a FIXED tensor by its
   row, as the position of sample 0. */
struct snug_dropout {
    int32_t x, y; /* [n,m]; y (= x) */
};
/* y = cap(scale x) + addend, where cap(v) = softcap * tanh(v / softcap); softcap 0: v */
struct snug_scale {
    int32_t x, addend; /* [n,m], [n,m] or none; no addend with a softcap */
    int32_t y;         /* [n,m] (= x) */
    float scale, softcap;
};
/* dx = dy cap'(scale x) scale, with a softcap; y as SCALE gives it */
struct snug_scale_backward {
    int32_t dy, y; /* [n,m] */
    int32_t dx;    /* [n,m] (= dy), of dy's type */
    float scale, softcap;
};
/* inverse[n] = 1 / |row n of w + scale b a|: DoRA (Liu et al., arXiv:2402.09353), which has no derivative of it */
struct snug_row_lengths {
    int32_t w, a, b; /* [N,K] [r,K] [N,r] */
    int32_t inverse; /* [1,N] F32 */
    float scale;
    bool transposed; /* w is [K,N] */
};
/* y = x m inverse + b + addend, where m, inverse and b have a value for each column */
struct snug_scale_columns {
    int32_t x, m, inverse, b, addend; /* [n,N] [N] [1,N] [N] or none, [n,N] or none */
    int32_t y;                        /* [n,N] */
};
/* dx = dy m inverse;  dm += sum of dy x inverse, db += sum of dy, over rows */
struct snug_scale_columns_backward {
    int32_t dy, x, m, inverse; /* as in SCALE_COLUMNS */
    int32_t dx, dm, db;        /* [n,N] (= dy); [N], each or none */
};
/* y = x, with column tokens[k] = column k of z + b[tokens[k]]; tokens as in EMBED */
struct snug_token_columns {
    int32_t x, z, tokens, b; /* [n,V] [n,K] [1,K+V] I32, [V] or none */
    int32_t y;               /* [n,V] (= x) */
};
/* dz = the columns tokens[k] of dy;  dx = dy, with zeros there */
struct snug_token_columns_backward {
    int32_t dy, tokens; /* [n,V] [1,K+V] I32 */
    int32_t dx, dz;     /* [n,V] (= dy) or none, [n,K] */
};
/* y[t,c k + j] = x[t + j - k / 2,c], or 0 where that is beyond an end of t's sequence; k is odd, and as often as x's
   columns are in y's. A linear of y, whose weight is [N,m,k], is a convolution over each sequence. */
struct snug_unfold {
    int32_t x, y; /* [T,m] [T,m k] */
};
/* dx[t,c] = sum over j of dy[t - j + k / 2,c k + j], those within t's sequence */
struct snug_unfold_backward {
    int32_t dy, dx; /* [T,m k] [T,m] */
};
/* r[i] = x[token of row i of r]; where x is [B,h]: x[run->first_row + i]; where r is [B,h], its pooling says which row
   of x [T,h], or that r[i] is a weighted sum of sequence i's rows (enum snug_pooling) */
struct snug_gather {
    int32_t x, r; /* [T,h] or [B,h]; [R,h] or [B,h] */
};
/* the row of dx that r[i] was copied from += dr[i]; a sum: each token of sequence i += its weight * dr[i] */
struct snug_gather_backward {
    int32_t dr, dx;
};
/* y = x / max(|x|, 1e-12) with the length of a row of x, as torch's normalize(); not unit: y = x, in y's type */
struct snug_normalize {
    int32_t x, y; /* [n,m]; each of any type */
    bool unit;
};
/* dx = (dy - y (y . dy)) / |x|, which is dy / 1e-12 where |x| is less; not unit: dx = dy */
struct snug_normalize_backward {
    int32_t dy, x; /* [n,m] */
    int32_t dx;    /* [n,m], of x's type */
    bool unit;
};
#define SNUG_NORMALIZE_LEAST 1e-12f
/* best[i] = the column of the largest value of row i, the first of equal ones; or one of the values below, which say
   that not all of them are finite. Evaluations need no more of the logits, unless scores are asked for. */
struct snug_best {
    int32_t logits; /* [R,C] F32 */
    int32_t best;   /* [R,1] I32 */
};
enum { SNUG_BEST_INFINITE = -1, SNUG_BEST_NAN = -2 };
/* Generation: ids[i] = the columns of the k largest values of row i, the largest first, of equal ones the first;
   log_probabilities[i] = these values less the log of the sum of exponentials of the row. k is at most C. A backend may
   ignore NaN. */
struct snug_top {
    int32_t logits;                 /* [R,C] F32 */
    int32_t ids, log_probabilities; /* [R,k] I32, [R,k] F32 */
};
/* x = 0 */
struct snug_fill {
    int32_t x;
};
/* y += x */
struct snug_add {
    int32_t x, y; /* [n,m], of one type */
};
/* Elements whose squares a backend sums before it adds the sums in order. */
#define SNUG_NORM_CHUNK (1 << 14)
/* sums[slot] = sum of squares of g, or += if op->accumulate; with an index, the bits of the whole table's gradient.
   chunks: sums[slot + i] = sum of squares of chunk i of g, for SUM_CHUNKS */
struct snug_squared_norm {
    int32_t g, index; /* [N,K]; index or none */
    int32_t sums;     /* [slots] F64 */
    int32_t slot;
    int32_t parameter; /* number of the first parameter of gradient g */
    bool chunks;
};
/* clip = {norm, scale}: scale = min(1, run->max_grad_norm / (norm + 1e-6)), or 1 if max_grad_norm <= 0 */
struct snug_clip {
    int32_t sums;         /* [slots] F64 */
    int32_t clip, scaler; /* [2] F32; [1,4] or none, see "Loss scaling" */
};
/* scaler: snug_loss_scale_next() */
struct snug_rescale {
    int32_t scaler; /* [1,4] */
};
/* g of every rank = ((g of rank 0 + g of rank 1) + …) + g of rank run->contributors - 1, in fp32 and in this order: the
   owner of a shard of g gets the others' shards, adds them and sends the sum to all. What further ranks have in g does
   not count. If g is divided (shards.chunk is not 0) and the sum is not for all, it stays with its owner, in its place
   in g; the rest of g is undefined afterwards. With sum, it is written there instead, and g is undefined; from the
   second micro-batch on it is added to what is there, rank by rank. With chunks, the sums of the squares of each chunk
   of this rank's shard of the sum are written to chunks[slot …], with SQUARED_NORM's bits: reading the sums again would
   cost memory bandwidth. */
struct snug_sum_ranks {
    int32_t g;      /* [N,K] F32 */
    int32_t sum;    /* F32, [1,own shard] if g is divided, otherwise as g; or none */
    int32_t chunks; /* F64, or none */
    int32_t slot;
    struct snug_shards shards;
    bool for_all; /* g is divided, and all ranks get the sum */
    bool sparse;  /* most rows of g are zeros: a table's gradient has rows for the batch's tokens alone */
};
/* Each rank has its shard of x, in its place; afterwards all have all of x. With shard, each copies it to its place in
   x before, from F32 to BF16 rounded to nearest even. */
struct snug_gather_ranks {
    int32_t shard, x; /* a divided tensor or none; [N,K] */
    struct snug_shards shards;
};
/* sums[slot] = the sums of a gradient's chunks, added in the order of the chunks: the bits of SQUARED_NORM of the whole
   gradient. Row r of parts has those of rank r's shard, from column `first` on. */
struct snug_sum_chunks {
    int32_t parts, sums; /* [ranks,columns] F64, [slots] F64 */
    int32_t slot;
    int32_t parameter; /* number of the first parameter of the gradient */
    int64_t first;
    struct snug_shards shards; /* of the gradient */
};
/* q = p rounded to nearest even */
struct snug_cast {
    int32_t p, q; /* F32; BF16 or F16 */
};
/* q = the values of the parameters that p stores as codes, one after the other (core/quantized.h) */
struct snug_dequantize {
    int32_t p, q; /* [segments,bytes of one] U8; [segments * form.rows, form.cols] */
    struct snug_quantized form;
};
/* FETCH: starts the copy to x from backing, beginning at op->element.  STORE: starts the copy from x to it.  WAIT:
   waits until the copy of x that FETCH or STORE started is done, or the collective operation beside others that gathers
   x or sums gradient x. backing is offloaded. */
struct snug_fetch {
    int32_t backing, x;
};
struct snug_store {
    int32_t x, backing;
};
struct snug_wait {
    int32_t x;
};
/* clang-format off */
/*
 * An optimizer's update. The kernel multiplies g by clip's scale when it reads g. p is F32, or BF16 and then rounded
 * stochastically (core/philox.h); copy is a copy of the new p in a lower precision, rounded to nearest even. The
 * operands may be a part of the weight, see op->element. The tensor is a stack of `segments` parameters of the same
 * shape; where a formula uses more than one element, each parameter is updated separately. t = run->step + 1; lr is
 * run->learning_rate, the other settings are run->optimizer's; wd is its weight_decay if `decay`, else 0. States are
 * F32 unless noted, in the order of struct snug_states, and all 0 before the first step. The formula of each is in
 * optim/optimizers/NAME.c.
 *
 * Loss scaling, in fp16 training (a program with RESCALE): LOSS also multiplies d by scaler's first value. CLIP divides
 * norm and scale by it, and records in scaler whether the step is skipped because the sums are not finite. Updates of a
 * skipped step do nothing; t counts the steps that were not skipped, and lr is the learning rate of step t.
 *
 * Lazy rows: where only EMBED reads a table, a row without a gradient need not be updated until it is read again. The
 * missed steps are then done one by one, with the bits that ADAM over the whole table would have given.
 *   g [N,K]            gradients of the rows that have one, in the order of first use; N is the maximum for a step
 *   index [1+N+V] I32  see snug_rows_of(); EMBED_BACKWARD enters the batch's ids, and removes the previous ones where
 *                      it overwrites its gradients
 *   updated [V] I32    number of steps applied to row i; -1: all steps are applied and the row does not change, because both moments are 0
 *   history [H,2]      {learning rate, clip's scale} of step s in row s mod H. At every step that is a multiple of H
 *                      all rows are flushed
 *   ADAM_ROWS          does this step, for the rows with a gradient
 *   LAZY_UPDATE        (without g and clip) does the missed steps before run->step, for the rows of the batch's ids; for
 *                      all rows if run->batch is NULL: snug_run_flush()
 */
/* clang-format on */
#define SNUG_STATES_MAX 4
struct snug_update {
    int32_t g, clip, index; /* [N,K] F32; or none; lazy rows, or none */
    int32_t weight, copy;   /* [N,K]; copy or none */
    int32_t states[SNUG_STATES_MAX];
    int32_t updated, history; /* lazy rows, or none */
    int32_t segments;
    bool vector;       /* the parameters are vectors, a row each */
    bool decay;        /* weight decay applies */
    int32_t parameter; /* number of the first: key of stochastic rounding */
};
/* index: no gradients;  updated: all rows have had all steps */
struct snug_rows_begin {
    int32_t m, v;
    int32_t index, updated;
    bool decay;
};

#define SNUG_OPERANDS_MOST 15

/* When a FETCH is not needed; see struct snug_crossing (backend.h). */
enum snug_unless {
    SNUG_UNLESS_NEVER,
    SNUG_UNLESS_FETCHED, /* BACKWARD has fetched it */
    SNUG_UNLESS_UPDATED  /* the update that FORWARD still has to do overwrites it */
};

struct snug_op {
    enum snug_op_kind kind;
    enum snug_phase phase;
    enum snug_part part;
    enum snug_block_kind block;
    int32_t layer;           /* if part is LAYER; otherwise -1 */
    bool accumulate;         /* outputs are added to, in every micro-batch and chunk */
    bool first;              /* overwrites its gradients in a step's first micro-batch and chunk, adds later */
    bool each;               /* with first: in the first chunk of each micro-batch: its gradients are not kept */
    bool last;               /* runs in a step's last micro-batch only */
    bool crosses;            /* part of the update, but runs in another phase: see struct snug_crossing (backend.h) */
    bool flushed;            /* a flush runs it, too, because what crosses needs it */
    bool beside;             /* a collective: later operations run beside it, until WAIT or the end of the phase */
    bool alone;              /* a norm or an update among other operations: a GPU has no launch for all of its kind */
    bool on_host;            /* an update that the host computes, in the backing store (plan/place_updates.c) */
    enum snug_unless unless; /* of FETCH */
    float p;                 /* dropout probability; 0 in evaluation programs */
    uint32_t site;           /* the dropout's number in the model: key of its random numbers */
    int64_t
        element; /* first element of the weight, or of the backing of FETCH and STORE, that the operation works on */
    union {
        int32_t operands[SNUG_OPERANDS_MOST];
        struct snug_embed embed;
        struct snug_table table;
        struct snug_table_backward table_backward;
        struct snug_embed_backward embed_backward;
        struct snug_linear linear;
        struct snug_linear_dx linear_dx;
        struct snug_linear_dw linear_dw;
        struct snug_attention attention;
        struct snug_attention_backward attention_backward;
        struct snug_cache_rows cache_rows;
        struct snug_cached_attention cached_attention;
        struct snug_residual_norm residual_norm;
        struct snug_norm norm;
        struct snug_norm_backward norm_backward;
        struct snug_activation_op activation;
        struct snug_activation_backward activation_backward;
        struct snug_glu glu;
        struct snug_glu_backward glu_backward;
        struct snug_rotate rotate;
        struct snug_dropout dropout;
        struct snug_scale scale;
        struct snug_row_lengths row_lengths;
        struct snug_scale_columns scale_columns;
        struct snug_scale_columns_backward scale_columns_backward;
        struct snug_unfold unfold;
        struct snug_unfold_backward unfold_backward;
        struct snug_token_columns token_columns;
        struct snug_token_columns_backward token_columns_backward;
        struct snug_scale_backward scale_backward;
        struct snug_gather gather;
        struct snug_gather_backward gather_backward;
        struct snug_normalize normalize;
        struct snug_normalize_backward normalize_backward;
        struct snug_loss_op loss;
        struct snug_preference preference;
        struct snug_collect collect;
        struct snug_collect_backward collect_backward;
        struct snug_vector_loss_op vector_loss;
        struct snug_best best;
        struct snug_top top;
        struct snug_fill fill;
        struct snug_add add;
        struct snug_squared_norm squared_norm;
        struct snug_clip clip;
        struct snug_rescale rescale;
        struct snug_sum_ranks sum_ranks;
        struct snug_gather_ranks gather_ranks;
        struct snug_sum_chunks sum_chunks;
        struct snug_cast cast;
        struct snug_dequantize dequantize;
        struct snug_update update;
        struct snug_rows_begin rows_begin;
        struct snug_fetch fetch;
        struct snug_store store;
        struct snug_wait wait;
    };
};

/* ---- relative positions --------------------------------------------------------------------------------------- */

/* The bucket of a key `distance` positions after its query (before it if negative), as in MPNet and T5: each direction
   has half of the buckets. Half of these have one distance each; the ranges of the others grow exponentially up to
   distance 128, and the last one has all larger distances. Transformers' relative_position_bucket without its
   logarithms. buckets is 4, 8, 16 or 32, so that 64 bits hold the powers. */
static inline int32_t snug_relative_bucket(int64_t distance, int32_t buckets) {
    const int32_t half = buckets / 2, exact = half / 2;
    int64_t n = distance < 0 ? -distance : distance;
    const int32_t first = distance > 0 ? half : 0;
    if (n < exact) return first + (int32_t)n;
    if (n > 128) n = 128;
    int64_t power = 1,
            bound = 1; /* n^exact, and exact^exact (128/exact)^k, from which on bucket exact + k is reached */
    for (int32_t i = 0; i < exact; i++) {
        power *= n;
        bound *= exact;
    }
    int32_t k = 0;
    while (k + 1 < exact && power >= bound * (128 / exact)) {
        bound *= 128 / exact;
        k++;
    }
    return first + exact + k;
}

/* ---- descriptors ---------------------------------------------------------------------------------------------- */

/* The parts of "Model training anatomy" (transformers' documentation), and copies of offloaded tensors. */
enum snug_op_group {
    SNUG_GROUP_CONTRACTION,
    SNUG_GROUP_NORMALIZATION,
    SNUG_GROUP_ELEMENTWISE,
    SNUG_GROUP_COPIES,
    SNUG_GROUP_COMMUNICATION, /* over the ranks of a run */
    SNUG_GROUP_COUNT
};

/* What an operation does with an operand. */
enum snug_access {
    SNUG_READ,
    SNUG_WRITE,   /* overwrites it */
    SNUG_MODIFY,  /* reads and writes it */
    SNUG_GRADIENT /* "+=": overwrites it or adds to it, depending on op->first and op->accumulate */
};

/* Flags of an operand. */
enum {
    SNUG_OPTIONAL = 1,      /* optional */
    SNUG_MATMUL_WEIGHT = 2, /* a weight that must be of the compute type */
    SNUG_TABLE = 4,         /* an embedding table, read by row */
    SNUG_CHEAP = 8,         /* recomputed by one element-wise pass from stored tensors */
    SNUG_BLOCK_STATE = 16,  /* one value for each block of SNUG_QUANTISED_BLOCK elements of each segment */
    SNUG_BY_TOKEN = 128,    /* the table whose rows are token ids, or its gradient */
    SNUG_WEIGHT = 256, /* of a forward operation: a weight or a bias, which is persistent; other inputs are computed */
    SNUG_PARTED = 512, /* of an operation with SNUG_OP_ELEMENTS: the elements that its parts divide */
    SNUG_ROW_INDEX = 1024, /* which rows of the table have a gradient (lazy rows), or none */
    SNUG_REMADE = 64       /* forward: the input that the output may overwrite; backward: that output, or none */
};

struct snug_operand {
    const char *name; /* NULL after the last */
    enum snug_access access;
    unsigned flags;
};

/* Flags of an operation. */
enum {
    SNUG_OP_MODEL = 32,           /* models are made of it: it has a derivative */
    SNUG_OP_UPDATES = 1,          /* an optimizer's update of a weight, or of some of its rows */
    SNUG_OP_ELEMENTS = 2,         /* elementwise or blockwise: can run in parts */
    SNUG_OP_COPIES = 4,           /* between the arena and the backing store; and waiting for what runs beside */
    SNUG_OP_FETCHES = 512,        /* COPIES: to the arena */
    SNUG_OP_STORES = 1024,        /* COPIES: from the arena */
    SNUG_OP_WAITS = 2048,         /* COPIES: waits for one of them, or for a collective */
    SNUG_OP_ENDS_FORWARD = 4096,  /* computes the loss: what follows it in HEAD is backward */
    SNUG_OP_SCORES = 32768,       /* in HEAD: ends the first pass of a program that scores first, and has no second */
    SNUG_OP_FLUSHES = 8192,       /* a flush runs it: snug_run_flush() */
    SNUG_OP_LAZY_FORM = 16384,    /* an update that ADAM_ROWS and LAZY_UPDATE do with the same bits, row by row */
    SNUG_OP_CLEARS = 8,           /* only clears: computes no values */
    SNUG_OP_PAIRS = 16,           /* its work grows with the square of the sequences' lengths */
    SNUG_OP_WEIGHT_GRADIENT = 64, /* computes weight gradients only: may run later than its position */
    SNUG_OP_COLLECTIVE = 256,     /* all ranks run it together: in the same order, whatever their batches */
    SNUG_OP_NORM_OF_SUM = 128     /* its y is the norm of its s; NORM computes it too: snug_op_norm_of() */
};

struct snug_tape;
struct snug_cost_view;

struct snug_op_info {
    const char *name;
    enum snug_op_group group;
    unsigned flags;
    struct snug_operand operands[SNUG_OPERANDS_MOST + 1];
    /* SNUG_OP_MODEL: emits the backward operations (program/tape.h). */
    void (*differentiate)(struct snug_tape *tape, const struct snug_op *op);
    /* Changes the defaults: 0 FLOPs, and the bytes of reading or writing each tensor once (program/cost.h). NULL: the
       defaults. */
    void (*cost)(struct snug_cost_view *view, const struct snug_op *op);
    /* NORM_OF_SUM: the NORM that computes y from s. */
    struct snug_op (*norm_of)(const struct snug_op *op);
};

const struct snug_op_info *snug_op_info(enum snug_op_kind kind);

#define SNUG_OP_INFO(KIND, name, member) extern const struct snug_op_info snug_op_##name##_info;
SNUG_OPS(SNUG_OP_INFO)
#undef SNUG_OP_INFO

static inline const char *snug_op_name(enum snug_op_kind kind) { return snug_op_info(kind)->name; }
static inline bool snug_op_is(const struct snug_op *op, unsigned flag) {
    return (snug_op_info(op->kind)->flags & flag) != 0;
}
/* Number of op's operands, present or not. */
int snug_op_operands(const struct snug_op *op);
/* Whether operand k is read only. */
static inline bool snug_op_reads(const struct snug_op *op, int k) {
    return snug_op_info(op->kind)->operands[k].access == SNUG_READ;
}
/* Number of the operand with one of these flags; -1 if op's kind has none. */
int snug_op_operand(const struct snug_op *op, unsigned flags);
/* The form of ATTENTION, ATTENTION_BACKWARD or CACHED_ATTENTION. */
static inline const struct snug_attention_form *snug_op_attention_form(const struct snug_op *op) {
    if (op->kind == SNUG_OP_CACHED_ATTENTION) return &op->cached_attention.form;
    return op->kind == SNUG_OP_ATTENTION ? &op->attention.form : &op->attention_backward.form;
}
/* Whether all ranks get the sum of SUM_RANKS. */
static inline bool snug_sums_for_all(const struct snug_op *op) {
    return !op->sum_ranks.shards.chunk || op->sum_ranks.for_all;
}
/* Whether tensor is an operand that op only reads; whether it is one that op writes. */
bool snug_op_uses(const struct snug_op *op, int32_t tensor);
bool snug_op_writes(const struct snug_op *op, int32_t tensor);

/* The moment of a step at which an operation may run. */
struct snug_moment {
    bool first, last;      /* in the step's first micro-batch and chunk, in its last micro-batch */
    bool fetched, pending; /* as in struct snug_crossing; false where nothing crosses */
    bool idle;             /* as in struct snug_run */
};
/* Whether an operation has nothing to do at this moment. */
bool snug_op_is_idle(const struct snug_op *op, const struct snug_moment *moment);

#endif
