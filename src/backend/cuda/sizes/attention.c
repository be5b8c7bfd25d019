/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/sizes/attention.h"

#include "core/philox.h"
#include "program/positions.h"

#ifndef SNUG_CUDA_POSITION_ROOM /* the emulator's is smaller: heads have several passes, too */
#define SNUG_CUDA_POSITION_ROOM ((int64_t)256 << 20)
#endif

static int64_t rows_of(const struct snug_program *program) {
    return program->capacity[SNUG_EXTENT_TOKENS] + SNUG_ROW_TILE;
}

int64_t snug_cuda_attention_bias_bytes(const struct snug_op *op) {
    const int32_t bias = op->kind == SNUG_OP_ATTENTION ? op->attention.bias : op->attention_backward.bias;
    const int64_t bytes = snug_op_attention_form(op)->heads * SNUG_CUDA_DISTANCES * (int64_t)sizeof(float);
    return bias ? snug_cuda_round_up(bytes, 256) : 0;
}

struct snug_cuda_positions snug_cuda_positions_of(const struct snug_program *program, const struct snug_op *op) {
    const int64_t TILE = 64, MOST_PARTS = 8, PART_TOKENS = 512;
    const bool forward = op->kind == SNUG_OP_ATTENTION, backward = op->kind == SNUG_OP_ATTENTION_BACKWARD;
    const int32_t pk = forward ? op->attention.pk : backward ? op->attention_backward.pk : 0;
    const int32_t pq = forward ? op->attention.pq : backward ? op->attention_backward.pq : 0;
    struct snug_cuda_positions p = {.tables = (pk != 0) + (pq != 0)};
    if (!p.tables) return p;
    const struct snug_attention_form *form = snug_op_attention_form(op);
    const struct snug_tensor *table = &program->tensors[pk ? pk : pq];
    const int64_t longest = program->longest > 0 ? program->longest : 1, size = (int64_t)snug_dtype_size(table->dtype);
    const int32_t span = (int32_t)table->rows / 2;
    p.first = snug_position_row(1 - longest, span, form->farthest);
    p.rows = snug_position_row(longest - 1, span, form->farthest) - p.first + 1;
    p.distance_bytes = snug_cuda_round_up((2 * longest + p.rows + 1) * (int64_t)sizeof(int32_t), 256);
    const int width = SNUG_CUDA_MMA_WIDTH(form->head_dim);
    if (!width || width > 128) return p;
    p.tokens = rows_of(program);
    p.stride = snug_cuda_round_up(p.rows, TILE);
    p.others = snug_cuda_round_up(longest, 8);
    p.parts = (int)(p.tokens < 2 * PART_TOKENS            ? 1
                    : p.tokens > MOST_PARTS * PART_TOKENS ? MOST_PARTS
                                                          : p.tokens / PART_TOKENS);
    const int64_t products = p.tokens * p.stride * size, pairs = p.tokens * p.others * size,
                  partial = p.parts * p.stride * form->head_dim * (int64_t)sizeof(float);
    const int64_t second = backward ? (pairs > partial ? pairs : partial) : 0,
                  most = SNUG_CUDA_POSITION_ROOM / (p.tables * (products + second));
    const int64_t passes = most < 1 ? form->heads : (form->heads + most - 1) / most;
    p.heads = (int)((form->heads + passes - 1) / passes);
    p.product_bytes = snug_cuda_round_up(p.heads * products, 256);
    p.pair_bytes = snug_cuda_round_up(p.heads * second, 256);
    return p;
}

int64_t snug_cuda_attention_position_bytes(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_cuda_positions p = snug_cuda_positions_of(program, op);
    return p.distance_bytes + p.tables * (p.product_bytes + p.pair_bytes);
}

int64_t snug_cuda_attention_workspace(const struct snug_program *program, const struct snug_op *op) {
    return snug_cuda_attention_position_bytes(program, op) + snug_cuda_attention_bias_bytes(op);
}

/* Partial sums, or lse where attention.cu takes prompts. */
int64_t snug_cuda_cached_attention_workspace(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_attention_form *form = &op->cached_attention.form;
    const int64_t rows = snug_cuda_cached_rows(form->heads / form->kv_heads),
                  width = 8 * snug_cuda_cached_lanes(form->head_dim);
    const int64_t partial = SNUG_CUDA_CACHED_BLOCKS * rows * (width + 2) * (int64_t)sizeof(float);
    const int64_t lse = rows_of(program) * form->heads * (int64_t)sizeof(float);
    return partial > lse ? partial : lse;
}

/* ---- backward ---- */

bool snug_cuda_takes_long_attention(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_attention_backward *b = &op->attention_backward;
    const bool dropped = snug_dropout_threshold(op->p) > 0;
    return (b->form.head_dim == 64 || b->form.head_dim == 128) && snug_dtype_size(program->tensors[b->q].dtype) == 2 &&
           program->longest > 128 && !b->bias && !b->pk && !b->pq && b->form.softcap == 0 && !dropped;
}

int64_t snug_cuda_mma_row_bytes(const struct snug_program *program, int heads) {
    return rows_of(program) * heads * SNUG_CUDA_MMA_ROW;
}

/* Room for dq of all tokens; for shares in small batches as many more as ROOM holds, and four if there are only a few
   long sequences. No sums are needed if no sequence has more keys than a block. */
int64_t snug_cuda_mma_sum_bytes(const struct snug_program *program, bool wide, int d, int heads, int kv_heads) {
    const int64_t ROOM = (int64_t)64 << 20, tokens = rows_of(program), h = (int64_t)heads * d;
    const int64_t tiles = snug_cuda_mma_tiles(wide, tokens, program->capacity[SNUG_EXTENT_SEQUENCES]);
    const int64_t once = tiles * SNUG_CUDA_MMA_QUERIES(wide) * h * (int64_t)sizeof(float);
    const int64_t keys = SNUG_CUDA_MMA_KEYS(wide, d), blocks = (program->longest + keys - 1) / keys;
    if (blocks < 2) return 0;
    const int64_t least = tokens * kv_heads < 128 * program->longest ? 4 * once : once, most = blocks * once;
    return least > ROOM ? least : most < ROOM ? most : ROOM;
}

/* 0 where attention_mma_backward.cu is not compiled for the width of the heads. */
static int64_t mma_bytes(const struct snug_program *program, enum snug_dtype type,
                         const struct snug_attention_form *form) {
    const int width = SNUG_CUDA_MMA_WIDTH(form->head_dim);
    if (!width) return 0;
    return snug_cuda_mma_row_bytes(program, form->heads) +
           snug_cuda_mma_sum_bytes(program, snug_dtype_size(type) == 4, width, form->heads, form->kv_heads);
}

int64_t snug_cuda_dbias_delta_bytes(const struct snug_program *program, int heads) {
    return snug_cuda_round_up(rows_of(program) * heads * (int64_t)sizeof(float), 256);
}

static int64_t dbias_bytes(const struct snug_program *program, int32_t bias, int64_t d, int heads) {
    const int64_t parts = snug_cuda_dbias_parts(rows_of(program), program->capacity[SNUG_EXTENT_SEQUENCES],
                                                SNUG_CUDA_DBIAS_LEAST_SIDE(d));
    return snug_cuda_dbias_delta_bytes(program, heads) +
           parts * program->tensors[bias].rows * heads * (int64_t)sizeof(float);
}

int64_t snug_cuda_attention_backward_workspace(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_attention_backward *b = &op->attention_backward;
    const int64_t delta = rows_of(program) * b->form.heads * (int64_t)sizeof(float);
    const int64_t mma = mma_bytes(program, program->tensors[b->q].dtype, &b->form);
    const int64_t dbias = b->dbias ? dbias_bytes(program, b->bias, b->form.head_dim, b->form.heads) : 0;
    const int64_t most = delta > mma ? delta : mma;
    return snug_cuda_attention_position_bytes(program, op) + snug_cuda_attention_bias_bytes(op) +
           (most > dbias ? most : dbias);
}
