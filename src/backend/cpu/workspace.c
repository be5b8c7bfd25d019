/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/workspace.h"

/* Forward: keys transposed, values; queries, outputs; scores, two masks. Backward: keys and values transposed; keys,
   their gradients, the values' gradients; queries, output gradients, query gradients; scores, their gradients, two
   masks, a row. With a bias: the biases by distance, backward their gradients; backward with a cap: its
   slopes of a row. */
/* Of a thread, for position keys and queries of which a sequence uses up to `used` rows: those transposed, those as
   they are, products with the queries of a block, and with all keys; backward also the former as they are, and
   gradients of both products. */
static int64_t position_floats(int64_t used, int64_t keys, int64_t channels, bool backward) {
    const int64_t rows = snug_cpu_key_stride(used);
    return rows * (2 * channels + SNUG_CPU_QUERIES + keys + (backward ? channels + SNUG_CPU_QUERIES + keys : 0));
}

/* Adds what position keys and queries take. */
static void add_positions(const struct snug_program *program, const struct snug_op *op, bool backward,
                          struct snug_cpu_attention_scratch *s) {
    const struct snug_attention_backward *b = &op->attention_backward;
    const int32_t pk = backward ? b->pk : op->attention.pk, pq = backward ? b->pq : op->attention.pq;
    const struct snug_attention_form *form = snug_op_attention_form(op);
    const int64_t keys = snug_cpu_key_stride(program->longest), channels = snug_cpu_padded(form->head_dim);
    if (!pk && !pq) return;
    const int64_t all = program->tensors[pk ? pk : pq].rows, distances = 2 * program->longest;
    s->parts = s->rows + snug_cpu_padded(distances);
    s->threads = s->parts;
    if (backward && (b->dpk || b->dpq)) {
        s->part = 2 * (all + SNUG_CPU_PAD) * channels;
        s->threads += SNUG_CPU_POSITION_PARTS * form->heads * s->part;
    }
    s->positions = position_floats(all < distances ? all : distances, keys, channels, backward);
    s->thread += s->positions;
}

struct snug_cpu_attention_scratch snug_cpu_attention_scratch(const struct snug_program *program,
                                                             const struct snug_op *op) {
    const struct snug_attention_backward *b = &op->attention_backward;
    const bool backward = op->kind == SNUG_OP_ATTENTION_BACKWARD;
    const struct snug_attention_form *form = snug_op_attention_form(op);
    const int64_t heads = form->heads, d = form->head_dim;
    const int32_t bias = backward ? b->bias : op->attention.bias, dbias = backward ? b->dbias : 0;
    const int64_t keys = snug_cpu_key_stride(program->longest), channels = snug_cpu_padded(d);
    const int64_t scores = snug_cpu_score_stride(program->longest, form);
    struct snug_cpu_attention_scratch s = {0};
    s.sums = s.buckets + (bias ? snug_cpu_padded(SNUG_CPU_DISTANCES) : 0);
    s.rows = s.sums;
    if (dbias)
        s.rows += snug_cpu_padded(program->capacity[SNUG_EXTENT_SEQUENCES] * heads * program->tensors[bias].rows);
    s.threads = s.rows;
    s.thread = backward ? 5 * channels * keys + 3 * SNUG_CPU_QUERIES * channels + (2 * SNUG_CPU_QUERIES + 3) * scores
                        : 2 * channels * keys + 2 * SNUG_CPU_QUERIES * channels + (SNUG_CPU_QUERIES + 2) * scores;
    if (bias) s.thread += (backward ? 4 : 2) * keys;
    if (backward && form->softcap > 0) s.thread += scores;
    add_positions(program, op, backward, &s);
    return s;
}

static int64_t attention_workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    const struct snug_cpu_attention_scratch s = snug_cpu_attention_scratch(program, op);
    return (int64_t)sizeof(float) * (s.threads + threads * s.thread);
}

/* Queries, outputs and their sums, a page, scores. */
int64_t snug_cpu_cached_attention_floats(const struct snug_program *program, const struct snug_attention_form *form) {
    const int64_t rows = snug_cpu_block_room(form), channels = snug_cpu_padded(form->head_dim);
    return rows * (2 * channels + SNUG_CPU_PAD) + SNUG_CACHE_PAGE * channels +
           rows * snug_cpu_key_stride(program->longest + 2 * SNUG_CACHE_PAGE);
}

static int64_t padded_columns(const struct snug_program *program, int32_t tensor) {
    return snug_cpu_padded(program->tensors[tensor].cols);
}

static int64_t norm_backward_workspace(const struct snug_program *program, int32_t dy, int threads) {
    return (int64_t)sizeof(float) * (threads * 3 + SNUG_CPU_BLOCKS * 2) * padded_columns(program, dy);
}

/* A head of each thread; cosines and sines of all positions. */
static int64_t rotate_workspace(const struct snug_program *program, int32_t rotation, int32_t head_dim, int threads) {
    const int64_t table = program->longest * 2 * program->rotations[rotation].pairs;
    return (int64_t)sizeof(float) * (threads * snug_cpu_padded(head_dim) + table);
}

/* Losses, sums, lengths, sums of exponentials, similarities, slopes, flags; a block of each thread. */
static int64_t vector_loss_workspace(const struct snug_program *program, const struct snug_vector_loss_form *form,
                                     int threads) {
    const int64_t rows = program->capacity[SNUG_EXTENT_STEP] / form->texts, texts = form->texts;
    const int64_t vectors = (4 + texts + 2 + 2 * (texts - 1) + texts) * snug_cpu_padded(rows);
    const bool all = form->function == SNUG_LOSS_RANKING;
    return (int64_t)sizeof(float) * (vectors + (all ? threads * snug_cpu_vector_loss_block(texts, rows) : 0));
}

int64_t snug_cpu_workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    const int64_t size = sizeof(float);

    switch (op->kind) {
    case SNUG_OP_RESIDUAL_NORM: return size * threads * 2 * padded_columns(program, op->residual_norm.y);
    case SNUG_OP_NORM: return size * threads * 2 * padded_columns(program, op->norm.y);
    case SNUG_OP_ROTATE: return rotate_workspace(program, op->rotate.rotation, op->rotate.head_dim, threads);
    case SNUG_OP_CACHE_ROWS:
        return op->cache_rows.q ? rotate_workspace(program, op->cache_rows.rotation, op->cache_rows.head_dim, threads)
                                : 0;
    case SNUG_OP_ROW_LENGTHS:
        return op->row_lengths.transposed
                   ? size * threads * snug_cpu_padded(program->tensors[op->row_lengths.b].cols * SNUG_CPU_PAD)
                   : 0;
    case SNUG_OP_DROPOUT: return size * threads * padded_columns(program, op->dropout.y);
    case SNUG_OP_EMBED_BACKWARD: return size * threads * padded_columns(program, op->embed_backward.ds);
    case SNUG_OP_NORM_BACKWARD: return norm_backward_workspace(program, op->norm_backward.dy, threads);
    case SNUG_OP_ATTENTION:
    case SNUG_OP_ATTENTION_BACKWARD: return attention_workspace(program, op, threads);
    case SNUG_OP_CACHED_ATTENTION:
        return size * threads * snug_cpu_cached_attention_floats(program, &op->cached_attention.form);
    case SNUG_OP_VECTOR_LOSS: return vector_loss_workspace(program, &op->vector_loss.form, threads);
    case SNUG_OP_LOSS: return (int64_t)sizeof(double) * program->capacity[SNUG_EXTENT_ROWS];
    default: return 0;
    }
}
