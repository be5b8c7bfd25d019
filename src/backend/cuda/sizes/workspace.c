/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/sizes/workspace.h"

#include "backend/cuda/sizes/attention.h"
#include "backend/cuda/sizes/bias.h"
#include "backend/cuda/sizes/multi_tensor.h"

struct snug_cuda_roles snug_cuda_roles_of(const struct snug_op *op) {
    switch (op->kind) {
    case SNUG_OP_LINEAR: return (struct snug_cuda_roles){op->linear.y, op->linear.x, op->linear.w};
    case SNUG_OP_LINEAR_DX: return (struct snug_cuda_roles){op->linear_dx.dx, op->linear_dx.dy, op->linear_dx.w};
    default:
        return op->linear_dw.transposed ? (struct snug_cuda_roles){op->linear_dw.dw, op->linear_dw.x, op->linear_dw.dy}
                                        : (struct snug_cuda_roles){op->linear_dw.dw, op->linear_dw.dy, op->linear_dw.x};
    }
}

/* Partial sums of `columns` columns. */
static int64_t sum_bytes(int64_t parts, int64_t columns) { return parts * columns * (int64_t)sizeof(float); }

static int64_t linear_bytes(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_cuda_roles of = snug_cuda_roles_of(op);
    const struct snug_tensor *a = &program->tensors[of.a], *w = &program->tensors[of.b];
    if (op->kind == SNUG_OP_LINEAR_DW)
        return SNUG_CUDA_MATMUL_WORKSPACE +
               (op->linear_dw.db ? sum_bytes(SNUG_CUDA_BIAS_PARTS, program->tensors[op->linear_dw.dy].cols) : 0);
    const int64_t size = w->rows * w->cols < SNUG_CUDA_CONVERTED ? w->rows * w->cols : SNUG_CUDA_CONVERTED;
    const int64_t tile = a->dtype == w->dtype ? 0 : size * (int64_t)sizeof(float);
    return SNUG_CUDA_MATMUL_WORKSPACE + snug_cuda_bias_bytes(program->tensors[of.c].cols) + tile;
}

/* Sums of dgamma, dbeta, and a bias's gradient. */
static int64_t norm_bytes(int64_t h) { return sum_bytes(SNUG_CUDA_NORM_PARTS, 3 * h); }

static int64_t embed_backward_bytes(const struct snug_program *program, const struct snug_op *op) {
    const int64_t types = op->embed_backward.dtype ? program->tensors[op->embed_backward.dtype].rows : 0;
    return sum_bytes(SNUG_CUDA_TYPE_PARTS, types * program->tensors[op->embed_backward.ds].cols);
}

static int64_t activation_backward_bytes(const struct snug_program *program, const struct snug_op *op) {
    if (!snug_cuda_bias_gradient_of(program, op)) return 0;
    return sum_bytes(SNUG_CUDA_ACTIVATION_PARTS, SNUG_CUDA_ACTIVATION_THREADS * 8);
}

static int64_t loss_bytes(const struct snug_program *program) {
    return (program->capacity[SNUG_EXTENT_ROWS] + SNUG_ROW_TILE) * (int64_t)sizeof(double);
}

/* The choices of each part of a row, and two values. */
static int64_t top_bytes(const struct snug_program *program, const struct snug_op *op) {
    const int64_t classes = program->tensors[op->top.logits].cols, count = program->tensors[op->top.ids].cols;
    const int64_t parts = (classes + SNUG_CUDA_TOP_PART - 1) / SNUG_CUDA_TOP_PART;
    return snug_cuda_round_up(program->capacity[SNUG_EXTENT_ROWS], SNUG_ROW_TILE) * parts * 8 * (count + 1);
}

/* Losses, sums, lengths, sums of exponentials, similarities, slopes; a block's similarities with all others. */
static int64_t vector_loss_bytes(const struct snug_program *program, const struct snug_vector_loss_form *form) {
    const int64_t texts = form->texts, rows = program->capacity[SNUG_EXTENT_STEP] / texts;
    const int64_t block = rows < SNUG_CUDA_LOSS_ROWS ? rows : SNUG_CUDA_LOSS_ROWS;
    const bool all = form->function == SNUG_LOSS_RANKING;
    return (int64_t)sizeof(float) * ((4 + 2 * texts + 2 + 2 * (texts - 1)) * rows + SNUG_CUDA_LOSS_ROWS +
                                     (all ? block * (texts - 1) * rows : 0));
}

static int64_t squared_norm_bytes(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[op->squared_norm.g];
    const int64_t own = (g->rows * g->cols + SNUG_CUDA_BLOCK - 1) / SNUG_CUDA_BLOCK;
    for (const struct snug_op *before = op; before-- > program->ops;) /* the first one counts for the shared launch */
        if (before->kind == op->kind) return own * (int64_t)sizeof(double);
    const int64_t all = snug_cuda_find_multi_tensor(program, SNUG_OP_SQUARED_NORM).blocks;
    return (own > all ? own : all) * (int64_t)sizeof(double);
}

/* If one launch serves all weights, the first weight's operation has the scratch. */
static int64_t adafactor_bytes(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_cuda_multi_tensor multi = snug_cuda_find_multi_tensor(program, SNUG_OP_ADAFACTOR);
    const int64_t own = snug_cuda_adafactor_scratch(program, op, false);
    int64_t all = 0;
    for (int64_t i = multi.first; op - program->ops == multi.first && i <= multi.last; i++)
        if (program->ops[i].kind == SNUG_OP_ADAFACTOR)
            all += snug_cuda_adafactor_scratch(program, &program->ops[i], true);
    return own > all ? own : all;
}

int64_t snug_cuda_workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    switch (op->kind) {
    case SNUG_OP_LINEAR:
    case SNUG_OP_LINEAR_DX:
    case SNUG_OP_LINEAR_DW: return linear_bytes(program, op);
    case SNUG_OP_NORM_BACKWARD: return norm_bytes(program->tensors[op->norm_backward.dy].cols);
    case SNUG_OP_ACTIVATION_BACKWARD: return activation_backward_bytes(program, op);
    case SNUG_OP_EMBED_BACKWARD: return embed_backward_bytes(program, op);
    case SNUG_OP_ATTENTION: return snug_cuda_attention_workspace(program, op);
    case SNUG_OP_ATTENTION_BACKWARD: return snug_cuda_attention_backward_workspace(program, op);
    case SNUG_OP_CACHED_ATTENTION: return snug_cuda_cached_attention_workspace(program, op);
    case SNUG_OP_TOP: return top_bytes(program, op);
    case SNUG_OP_VECTOR_LOSS: return vector_loss_bytes(program, &op->vector_loss.form);
    case SNUG_OP_LOSS: return loss_bytes(program);
    case SNUG_OP_SQUARED_NORM: return squared_norm_bytes(program, op);
    case SNUG_OP_ADAFACTOR: return adafactor_bytes(program, op);
    default: return 0;
    }
}

int64_t snug_cuda_wgmma_workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    const bool needs_rows = op->kind == SNUG_OP_ATTENTION_BACKWARD && snug_cuda_takes_long_attention(program, op);
    return needs_rows ? snug_cuda_mma_row_bytes(program, op->attention_backward.form.heads)
                      : snug_cuda_workspace(program, op, threads);
}
