/* SPDX-License-Identifier: Apache-2.0 */
/* What is tested and measured of every operation: variants, tolerances, shapes. */
#ifndef SNUG_TESTS_OPS_TABLE_H
#define SNUG_TESTS_OPS_TABLE_H

#include "ops_adapters.h"
#include "ops_generation.h"
#include "ops_losses.h"
#include "ops_sequences.h"
#include "ops_updates.h"
#include "ops_vectors.h"

/* What a row requires of a backend. */
enum {
    LAZY_ROWS = 1,
    SCALES_LOSS = 2,
    HOST = 4 /* tensors in host memory: the GPU lacks this variant */,
    LOW_LOGITS = 8
};

/*
 * Tolerances in units of the last place.
 * Host, fp32: 2^-23 of |value| + the tensor's root mean square; sums of n terms in fp32 are off by about sqrt(n) halves
 * of it, exp and erf by a few. bf16: on top of that, 2^-7 of |value|, since two values that are almost the same may
 * round to neighbours; 0 where every bit is prescribed.
 * GPU, fp32: as the host's, wider where sums of many terms are taken in another order. bf16: in units of 2^-8 of
 * |value| + root mean square, the rounding of one operand: tensor cores take attention's probabilities in bf16, and its
 * backward takes do . o, where o was rounded, which shows most in short sequences: 16.2 units were seen in a sequence
 * of one token. The whole tensor's relative error must be below 2^-8 as well. fp16 as bf16, in units of 2^-11; and so
 * is attention's fp32 with --tf32, which rounds operands to as many bits.
 */
struct ops_row {
    enum snug_op_kind kind;
    void (*build)(struct ops *f, int variant);
    int first, end; /* variants first … end - 1 */
    struct {
        double fp32, bf16;
    } host, gpu;
    unsigned measured; /* a bit per variant: those of mode perf; 0 where a second run has less to do */
    unsigned needs;
};

static const struct ops_row ops_rows[] = {
    {SNUG_OP_EMBED, build_embed, 0, 1, {2, 1}, {4, 2}, 1, 0},
    {SNUG_OP_EMBED, build_embed, 1, 2, {2, 1}, {4, 2}, 0, HOST},
    {SNUG_OP_EMBED, build_embed, 2, EMBED_ROWS, {2, 1}, {4, 2}, 1 << 4, 0},
    {SNUG_OP_EMBED, build_token_rows, 0, TOKEN_ROWS_VARIANTS, {2, 1}, {4, 2}, 0, 0},
    {SNUG_OP_TABLE, build_table, 0, TABLE_VARIANTS, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_LINEAR, build_linear, 0, LINEAR_FROZEN, {64, 1}, {64, 2}, 1 << 0 | 1 << 3, 0},
    {SNUG_OP_LINEAR, build_linear, LINEAR_ADDEND, LINEAR_VARIANTS, {64, 1}, {64, 2}, 1 << 10, 0},
    {SNUG_OP_LINEAR, build_generating, 0, GENERATING_VARIANTS, {64, 1}, {64, 2}, 1, 0},
    {SNUG_OP_ATTENTION, build_attention, 0, 2, {32, 1}, {64, 6}, 3, 0},
    {SNUG_OP_ATTENTION,
     build_attention,
     3,
     ATTENTION_POSITIONS,
     {32, 1},
     {64, 6},
     1 << 5 | 1 << 6 | 1 << 7 | 1 << 13 | 1 << 15,
     0},
    {SNUG_OP_ATTENTION,
     build_attention,
     ATTENTION_POSITIONS,
     ATTENTION_VARIANTS,
     {32, 1},
     {64, 6},
     1 << 17 | 1 << 19,
     0},
    {SNUG_OP_RESIDUAL_NORM, build_residual_norm, 0, RESIDUAL_NORM_VARIANTS, {16, 1}, {32, 2}, 3 | 1 << 9, 0},
    {SNUG_OP_NORM, build_norm, 0, NORM_VARIANTS, {16, 1}, {32, 2}, 1 << 0 | 1 << 2 | 1 << 10 | 1 << 13, 0},
    {SNUG_OP_ACTIVATION, build_activation, 0, 20, {8, 1}, {16, 2}, 1 << 0 | 1 << 10, 0},
    {SNUG_OP_GLU, build_glu, 0, GLU_VARIANTS, {8, 1}, {16, 2}, 1, 0},
    {SNUG_OP_ROTATE, build_rotate, 0, ROTATE_VARIANTS, {8, 1}, {16, 2}, 1 << 0 | 1 << 1, 0},
    {SNUG_OP_DROPOUT, build_dropout, 0, 5, {1, 1}, {1, 2}, 1, 0},
    {SNUG_OP_SCALE, build_scale, 0, SCALE_VARIANTS, {8, 1}, {16, 2}, 1, 0},
    {SNUG_OP_ROW_LENGTHS, build_row_lengths, 0, ROW_LENGTHS_VARIANTS, {32, 8}, {64, 8}, 3, 0},
    {SNUG_OP_SCALE_COLUMNS, build_scale_columns, 0, SCALE_COLUMNS_VARIANTS, {8, 1}, {16, 2}, 1, 0},
    {SNUG_OP_TOKEN_COLUMNS, build_token_columns, 0, TOKEN_COLUMNS_VARIANTS, {2, 1}, {4, 2}, 1, 0},
    {SNUG_OP_UNFOLD, build_unfold, 0, UNFOLD_VARIANTS, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_GATHER, build_gather, 0, 3, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_GATHER, build_gather, 3, 4, {8, 1}, {16, 2}, 0, 0},
    {SNUG_OP_GATHER, build_gather, 4, 5, {0, 0}, {0, 0}, 0, 0},
    {SNUG_OP_GATHER, build_gather, 5, GATHER_VARIANTS, {8, 1}, {16, 2}, 1 << 6, 0},
    {SNUG_OP_NORMALIZE, build_normalize, 0, NORMALIZE_VARIANTS, {16, 1}, {32, 2}, 1, 0},
    {SNUG_OP_LOSS, build_loss, 0, LOSS_VARIANTS, {32, 1}, {64, 2}, 1, 0},
    {SNUG_OP_LOSS, build_loss, 6, 7, {32, 1}, {64, 2}, 0, SCALES_LOSS},
    {SNUG_OP_LOSS, build_loss, LOSS_WEIGHTED, LOSS_WEIGHTED_END, {32, 1}, {64, 2}, 0, 0},
    {SNUG_OP_LOSS, build_loss, LOSS_LOW, LOSS_LOW_END, {32, 1}, {64, 2}, 0, LOW_LOGITS},
    {SNUG_OP_LOSS, build_segment_loss, 0, SEGMENT_VARIANTS, {32, 1}, {64, 2}, 0, 0},
    {SNUG_OP_LOSS, build_preference_loss, 0, PREFERENCE_LOSS_LOW, {32, 1}, {64, 2}, 0, 0},
    {SNUG_OP_LOSS,
     build_preference_loss,
     PREFERENCE_LOSS_LOW,
     PREFERENCE_LOSS_VARIANTS,
     {32, 1},
     {64, 2},
     0,
     LOW_LOGITS},
    {SNUG_OP_PREFERENCE, build_preference, 0, PREFERENCE_VARIANTS, {8, 1}, {16, 2}, 1, 0},
    {SNUG_OP_LOSS, build_ranking_loss, 0, RANKING_VARIANTS, {32, 1}, {64, 2}, 0, 0},
    {SNUG_OP_COLLECT, build_collect, 0, COLLECT_VARIANTS, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_COLLECT_BACKWARD, build_collect, 0, 1, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_VECTOR_LOSS, build_vector_loss, 0, VECTOR_LOSS_VARIANTS, {64, 1}, {128, 2}, 1, 0},
    {SNUG_OP_VECTOR_LOSS,
     build_vector_loss,
     VECTOR_LOSS_SCALED,
     VECTOR_LOSS_SCALED + 1,
     {64, 1},
     {128, 2},
     0,
     SCALES_LOSS},
    {SNUG_OP_BEST, build_best, 0, BEST_VARIANTS, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_FILL, build_gather, 0, 1, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_ADD, build_add, 0, ADD_VARIANTS, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_EMBED_BACKWARD, build_embed, 0, EMBED_ROWS, {8, 1}, {16, 1}, 1 | 1 << 4, 0},
    {SNUG_OP_EMBED_BACKWARD, build_embed, EMBED_ROWS, EMBED_VARIANTS, {8, 1}, {16, 1}, 0, LAZY_ROWS},
    {SNUG_OP_EMBED_BACKWARD, build_token_rows, 0, TOKEN_ROWS_VARIANTS, {8, 1}, {16, 1}, 0, 0},
    {SNUG_OP_TABLE_BACKWARD, build_table, 0, TABLE_VARIANTS, {1, 0}, {1, 0}, 1, 0},
    {SNUG_OP_LINEAR_DX, build_linear, 0, LINEAR_FROZEN, {64, 1}, {64, 2}, 1 << 0 | 1 << 3, 0},
    {SNUG_OP_LINEAR_DX, build_linear, LINEAR_TRANSPOSED, LINEAR_VARIANTS, {64, 1}, {64, 2}, 0, 0},
    {SNUG_OP_LINEAR_DW, build_linear, 0, 3, {64, 1}, {64, 2}, 1, 0},
    {SNUG_OP_LINEAR_DW, build_linear, LINEAR_FROZEN, LINEAR_ADDEND, {64, 1}, {64, 2}, 0, 0},
    {SNUG_OP_LINEAR_DW, build_linear, LINEAR_TRANSPOSED, LINEAR_VARIANTS, {64, 1}, {64, 2}, 0, 0},
    {SNUG_OP_LINEAR_DW, build_thin, 0, THIN_VARIANTS, {64, 1}, {64, 2}, 0, 0},
    {SNUG_OP_ATTENTION_BACKWARD, build_attention, 0, 2, {64, 1}, {128, 24}, 3, 0},
    {SNUG_OP_ATTENTION_BACKWARD,
     build_attention,
     3,
     ATTENTION_POSITIONS,
     {64, 1},
     {128, 24},
     1 << 5 | 1 << 6 | 1 << 7 | 1 << 13 | 1 << 15,
     0},
    {SNUG_OP_ATTENTION_BACKWARD,
     build_attention,
     ATTENTION_POSITIONS,
     ATTENTION_VARIANTS,
     {64, 1},
     {128, 24},
     1 << 17 | 1 << 18 | 1 << 19,
     0},
    {SNUG_OP_NORM_BACKWARD, build_residual_norm, 0, RESIDUAL_NORM_TRAINING, {32, 2}, {64, 4}, 3 | 1 << 5 | 1 << 9, 0},
    {SNUG_OP_NORM_BACKWARD, build_norm, 0, NORM_VARIANTS, {32, 2}, {64, 4}, 1 << 3 | 1 << 8, 0},
    {SNUG_OP_ACTIVATION_BACKWARD, build_activation, 0, 20, {8, 1}, {16, 2}, 1 << 0 | 1 << 10, 0},
    {SNUG_OP_GLU_BACKWARD, build_glu, 0, GLU_VARIANTS, {8, 1}, {16, 2}, 1, 0},
    {SNUG_OP_SCALE_BACKWARD, build_scale, SCALE_CAPPED, SCALE_VARIANTS, {8, 1}, {16, 2}, 1 << 4, 0},
    {SNUG_OP_UNFOLD_BACKWARD, build_unfold, 0, UNFOLD_VARIANTS, {2, 1}, {4, 2}, 1, 0},
    {SNUG_OP_GATHER_BACKWARD, build_gather, 0, 3, {1, 1}, {1, 2}, 1, 0},
    {SNUG_OP_GATHER_BACKWARD, build_gather, 3, GATHER_VARIANTS, {2, 1}, {2, 2}, 0, 0},
    {SNUG_OP_NORMALIZE_BACKWARD, build_normalize, 0, NORMALIZE_VARIANTS, {32, 2}, {64, 4}, 1, 0},
    {SNUG_OP_SQUARED_NORM, build_optimizer, 0, 3, {2, 0}, {2, 0}, 1, 0},
    {SNUG_OP_CLIP, build_optimizer, 0, 3, {2, 0}, {2, 0}, 0, 0},
    {SNUG_OP_SCALE_COLUMNS_BACKWARD, build_scale_columns, 0, SCALE_COLUMNS_VARIANTS, {32, 1}, {64, 2}, 1, 0},
    {SNUG_OP_TOKEN_COLUMNS_BACKWARD, build_token_columns, 0, TOKEN_COLUMNS_VARIANTS, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_CLIP, build_scaler, 0, 3, {2, 0}, {2, 0}, 0, SCALES_LOSS},
    {SNUG_OP_RESCALE, build_scaler, 0, 3, {0, 0}, {0, 0}, 0, SCALES_LOSS},
    {SNUG_OP_ADAM, build_adam, 0, ADAM_VARIANTS, {8, 1}, {16, 2}, 1 << 0 | 1 << 1 | 1 << 4, 0},
    {SNUG_OP_ADAM, build_scaler, 0, 3, {8, 1}, {16, 2}, 0, SCALES_LOSS},
    {SNUG_OP_ADAM_ROWS, build_rows, 0, 2, {8, 1}, {0, 0}, 1, LAZY_ROWS},
    {SNUG_OP_LAZY_UPDATE, build_rows, 0, 2, {64, 1}, {0, 0}, 0, LAZY_ROWS},
    {SNUG_OP_ROWS_BEGIN, build_rows, 0, 2, {0, 0}, {0, 0}, 0, LAZY_ROWS},
    {SNUG_OP_ADAM_8BIT, build_adam_8bit, 0, 3, {8, 1}, {16, 2}, 1 << 0 | 1 << 2, 0},
    {SNUG_OP_SGD, build_sgd, 0, SGD_VARIANTS, {8, 1}, {16, 2}, 1 << 0 | 1 << 3 | 1 << 5, 0},
    {SNUG_OP_ADAFACTOR, build_adafactor, 0, ADAFACTOR_VARIANTS, {16, 1}, {64, 2}, 1 << 0 | 1 << 3 | 1 << 6, 0},
    {SNUG_OP_ADAGRAD, build_adagrad, 0, ADAGRAD_VARIANTS, {8, 1}, {32, 2}, 1, 0},
    {SNUG_OP_RMSPROP, build_rmsprop, 0, RMSPROP_VARIANTS, {16, 1}, {32, 2}, 1 << 0 | 1 << 3, 0},
    {SNUG_OP_LION, build_lion, 0, LION_VARIANTS, {8, 1}, {16, 2}, 1, 0},
    {SNUG_OP_CACHE_ROWS, build_cache, 0, CACHE_ROTATED, {0, 0}, {0, 0}, 0, 0},
    {SNUG_OP_CACHE_ROWS, build_cache, CACHE_ROTATED, CACHE_VARIANTS, {8, 1}, {16, 2}, 0, 0},
    {SNUG_OP_CACHED_ATTENTION, build_cache, 0, CACHE_VARIANTS, {32, 1}, {64, 6}, 1 << 0 | 1 << 1, 0},
    {SNUG_OP_TOP, build_top, 0, TOP_VARIANTS, {4, 0}, {16, 1}, 1, 0},
    {SNUG_OP_CAST, build_cast, 0, 1, {0, 0}, {0, 0}, 1, 0},
    {SNUG_OP_DEQUANTIZE, build_dequantize, 0, DEQUANTIZE_VARIANTS, {0, 0}, {0, 0}, 1 << 0 | 1 << 1, 0},
    /* The same for every backend, from and to a file: test_op_properties.c and test_offload.c. */
    {SNUG_OP_FETCH, NULL, 0, 0, {0, 0}, {0, 0}, 0, 0},
    {SNUG_OP_STORE, NULL, 0, 0, {0, 0}, {0, 0}, 0, 0},
    {SNUG_OP_WAIT, NULL, 0, 0, {0, 0}, {0, 0}, 0, 0},
    /* Of several ranks: test_sum_ranks.c. */
    {SNUG_OP_SUM_RANKS, NULL, 0, 0, {0, 0}, {0, 0}, 0, 0},
    {SNUG_OP_GATHER_RANKS, NULL, 0, 0, {0, 0}, {0, 0}, 0, 0},
    {SNUG_OP_SUM_CHUNKS, NULL, 0, 0, {0, 0}, {0, 0}, 0, 0},
};
#define OPS_ROWS (sizeof ops_rows / sizeof *ops_rows)

#define OPS_SMALL                                                                                                      \
    { {1, 2, 17, 64, 65, 130}, 24, 3, 50, 2, 37, 5, 40 }

enum { ON_HOST = 1, ON_GPU = 2, ONCE = 4 /* on the host only with overwritten gradients, because it is slow */ };

static const struct {
    struct ops_shape shape;
    unsigned where;
} ops_shapes[] = {
    {OPS_SMALL, ON_HOST | ON_GPU},
    {{{3, 1, 129}, 130, 2, 61, 3, 50, 2, 3}, ON_HOST | ON_GPU},    /* d = 65 */
    {{{63, 64, 33}, 128, 2, 40, 2, 64, 33, 70}, ON_HOST | ON_GPU}, /* d = 64 */
    {{{100, 5}, 80, 2, 40, 2, 16, 1, 11}, ON_HOST | ON_GPU},       /* d = 40 */
    {{{31, 66}, 256, 2, 40, 1, 5, 3, 2}, ON_HOST | ON_GPU},        /* d = 128 */
    {{{48, 19}, 60, 3, 40, 2, 1, 7, 9}, ON_HOST | ON_GPU},         /* d = 20 */
    {{{300, 5, 129}, 512, 8, 40, 2, 128, 3, 20}, ON_GPU},          /* d = 64, several tiles */
    {{{511, 65, 256}, 64, 1, 40, 2, 16, 2, 5}, ON_GPU},            /* d = 64, ends of tiles of keys and of queries */
    {{{1, 2, 32, 31}, 64, 1, 40, 2, 16, 2, 5},
     ON_GPU}, /* short sequences: separate, since errors are relative to the whole tensor */
    {{{260}, 256, 4, 40, 2, 16, 2, 5}, ON_GPU},                  /* d = 64, blocks of most queries */
    {{{129, 64, 200}, 128, 1, 40, 2, 16, 2, 5}, ON_GPU},         /* d = 128, keys in several blocks */
    {{{127, 1, 65, 128, 192}, 128, 2, 40, 2, 16, 2, 5}, ON_GPU}, /* d = 64, ends of tiles of 64 and of 128 */
    /* As few tokens as the emulator runs in CI: of tensor cores, and wider than these take. */
    {{{7, 10}, 64, 1, 40, 2, 16, 2, 3}, ON_GPU},        /* d = 64 */
    {{{12, 3}, 128, 1, 40, 2, 16, 2, 3}, ON_GPU},       /* d = 128 */
    {{{9, 1, 4}, 200, 1, 40, 2, 16, 2, 3}, ON_GPU},     /* d = 200 */
    {{{9, 5}, 264, 3, 5, 2, 8, 2, 3}, ON_GPU},          /* rows wider than the emulator's blocks hold */
    {{{4, 9}, 130, 1, 5, 2, 3, 2, 2}, ON_GPU},          /* the same, not of whole vectors */
    {{{30, 2}, 4104, 19, 5, 2, 8, 2, 3}, ON_GPU},       /* wider than a GPU's */
    {{{30, 1}, 2054, 13, 5, 2, 35, 2, 2}, ON_GPU},      /* the same, not of whole vectors */
    {{{11, 5}, 160, 2, 40, 2, 16, 2, 3}, ON_GPU},       /* d = 80 */
    {{{3, 4}, 512, 2, 40, 2, 16, 2, 3}, ON_GPU},        /* d = 256 */
    {{{6, 5}, 128, 2, 40, 2, 16, 2, 3}, ON_GPU},        /* d = 64, two heads share keys */
    {{{70, 141, 33}, 192, 2, 40, 2, 16, 2, 3}, ON_GPU}, /* d = 96, several tiles */
    {{{1, 150, 67}, 1024, 4, 40, 2, 16, 2, 3}, ON_GPU}, /* d = 256, several tiles */
    {{{190, 5, 64}, 192, 4, 40, 2, 16, 2, 3}, ON_GPU},  /* d = 48 */
    {{{11, 6}, 520, 5, 70, 2, 70, 2, 3}, ON_GPU},       /* d = 104; several blocks share a weight's channels */
    {{{1, 1, 1}, 256, 4, 40, 2, 16, 2, 3}, ON_GPU},     /* a token each: steps of a generation */
    {{{5}, 8, 1, 10, 2, 3, 2, 0}, ON_HOST | ON_GPU},    /* no loss positions */
    {{{0}, 24, 3, 10, 2, 3, 2, 0}, ON_HOST | ON_GPU},   /* no tokens */
    {{{260, 1, 29}, 224, 7, 2100, 2, 400, 2100, 90}, ON_HOST | ONCE}, /* tiles and tails of all sizes of a matmul */
    {{{512, 1, 128, 59}, 384, 12, 3000, 2, 576, 3000, 170}, ON_GPU},  /* MiniLM's, d = 32 */
};
#define OPS_SHAPES (sizeof ops_shapes / sizeof *ops_shapes)

/* ---- operands -----------------------------------------------------------------------------------------------------
 */

#define OPERAND(member) (int)((offsetof(struct snug_op, member) - offsetof(struct snug_op, operands)) / sizeof(int32_t))

/* Whether the operation has operand k and writes it. */
static inline bool ops_writes(const struct snug_op *op, int k) { return op->operands[k] && !snug_op_reads(op, k); }

/* Whether the result depends on the old value of operand k, which is written. */
static inline bool ops_keeps(const struct ops *f, const struct snug_op *op, int k) {
    const bool adds = !snug_run_overwrites(&f->run, op);
    switch (op->kind) {
    case SNUG_OP_EMBED_BACKWARD: /* with an index, unused rows of g are kept */
        return adds ||
               (op->embed_backward.index && (k == OPERAND(embed_backward.dword) || k == OPERAND(embed_backward.index)));
    case SNUG_OP_TABLE_BACKWARD:
    case SNUG_OP_LINEAR_DW: return adds;
    case SNUG_OP_NORM_BACKWARD:
        return adds && (k == OPERAND(norm_backward.dgamma) || k == OPERAND(norm_backward.dbeta));
    case SNUG_OP_ATTENTION_BACKWARD: return adds && k == OPERAND(attention_backward.dbias);
    case SNUG_OP_LINEAR_DX: return op->accumulate || op->linear_dx.of_dx.count; /* further columns are kept */
    case SNUG_OP_COLLECT:                                                       /* other rows are kept */
    case SNUG_OP_CACHE_ROWS: return true;
    case SNUG_OP_LOSS: return k == OPERAND(loss.loss) && f->run.chunk > 0;
    case SNUG_OP_PREFERENCE: return k == OPERAND(preference.sums) && f->run.chunk > 0;
    case SNUG_OP_CLIP: return k == OPERAND(clip.scaler);
    case SNUG_OP_ADD:
    case SNUG_OP_GATHER_BACKWARD:
    case SNUG_OP_SQUARED_NORM: /* other slots are kept */
    case SNUG_OP_RESCALE:
    case SNUG_OP_ADAM_ROWS: /* other rows are kept */
    case SNUG_OP_LAZY_UPDATE: return true;
    default: return snug_op_is(op, SNUG_OP_UPDATES) && k != OPERAND(update.copy);
    }
}

/* Whether an operand that is kept is added to, element by element. */
static inline bool ops_adds(const struct ops *f, const struct snug_op *op, int k) {
    const bool placed = op->kind == SNUG_OP_EMBED_BACKWARD && op->embed_backward.index &&
                        (k == OPERAND(embed_backward.dword) || k == OPERAND(embed_backward.index));
    return ops_keeps(f, op, k) && !placed;
}

/* Fills outputs that are overwritten with NaNs, except those that the operation also reads. */
static inline void ops_spoil(struct ops *f, const struct snug_op *op) {
    for (int k = 0; k < snug_op_operands(op); k++) {
        const int32_t t = op->operands[k];
        if (!ops_writes(op, k) || ops_keeps(f, op, k) || snug_op_uses(op, t)) continue;
        memset(f->arena + f->tensors[t].offset, 0xFF, ops_live(f, t));
    }
}

/* Whether an operation of this kind reads what operation i writes. */
static inline bool ops_feeds(const struct ops *f, size_t i, enum snug_op_kind kind) {
    for (size_t later = i + 1; later < f->program.op_count; later++) {
        const struct snug_op *op = &f->ops[later];
        for (int k = 0; op->kind == kind && k < snug_op_operands(op); k++)
            if (op->operands[k] && (snug_op_reads(op, k) || kind == SNUG_OP_RESCALE) &&
                snug_op_writes(&f->ops[i], op->operands[k]))
                return true;
    }
    return false;
}

static inline uint8_t *ops_copy(const struct ops *f) {
    uint8_t *copy = ops_array(f->bytes, 1);
    return memcpy(copy, f->arena, f->bytes);
}

#endif
