/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/sizes/batch.h"

#include "backend/cuda/sizes/constants.h"
#include "backend/cuda/sizes/ranks.h"

static void *place(uint8_t *base, int64_t *offset, int64_t bytes) {
    void *at = base ? base + *offset : NULL;
    *offset += (bytes + 255) / 256 * 256;
    return at;
}

/* Values for each sequence and head of the largest attention over a cache, or for each block of a weight's rows. */
static int64_t arrivals(const struct snug_program *program) {
    const int64_t sequences = program->capacity[SNUG_EXTENT_SEQUENCES];
    int64_t most = 0;
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_CACHED_ATTENTION && program->ops[i].cached_attention.form.heads > most)
            most = program->ops[i].cached_attention.form.heads;
    most *= sequences;
    return program->cache_pages && most < SNUG_CUDA_STREAMED_BLOCKS ? SNUG_CUDA_STREAMED_BLOCKS : most;
}

int64_t snug_cuda_target_width(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const enum snug_loss_kind function = op->loss.function;
        if (op->kind == SNUG_OP_COLLECT && op->collect.scores) return 1;
        if (op->kind == SNUG_OP_LOSS && function != SNUG_CROSS_ENTROPY && function != SNUG_SEGMENT_CROSS_ENTROPY &&
            function != SNUG_PREFERENCE_CROSS_ENTROPY)
            return program->tensors[op->loss.logits].cols;
    }
    return 0;
}

int64_t snug_cuda_weight_width(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_LOSS && op->loss.weighted) return program->tensors[op->loss.logits].cols;
    }
    return 0;
}

/* Loss positions are tokens or sequences, of which there are no more than tokens. */
int64_t snug_cuda_lay_out_batch(const struct snug_program *program, uint8_t *base, struct snug_cuda_batch *out) {
    const int64_t tokens = program->capacity[SNUG_EXTENT_TOKENS], sequences = program->capacity[SNUG_EXTENT_SEQUENCES];
    const int64_t rows = tokens > program->capacity[SNUG_EXTENT_ROWS] ? tokens : program->capacity[SNUG_EXTENT_ROWS];
    int64_t size = 0;
    out->step = place(base, &size, sizeof *out->step);
    out->offsets = place(base, &size, 4 * (sequences + 1));
    int32_t **arrays[] = {&out->ids, &out->types, &out->positions, &out->position_ids, &out->sample, &out->by_id};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) *arrays[i] = place(base, &size, 4 * tokens);
    out->loss_positions = place(base, &size, 4 * rows);
    out->labels = place(base, &size, 4 * rows);
    out->targets = place(base, &size, 4 * rows * snug_cuda_target_width(program));
    out->references = place(base, &size, snug_program_has(program, SNUG_OP_PREFERENCE) ? 8 * sequences : 0);
    out->class_weights = place(base, &size, 4 * snug_cuda_weight_width(program));
    out->pages = place(base, &size, 4 * sequences * snug_cuda_pages_each(program));
    out->copied_pages = place(base, &size, program->cache_pages ? 12 * sequences : 0);
    out->arrivals = place(base, &size, 4 * arrivals(program));
    out->norms = place(base, &size,
                       snug_cuda_find_multi_tensor(program, SNUG_OP_SQUARED_NORM).count * (int64_t)sizeof *out->norms);
    out->updates = place(base, &size, snug_cuda_find_updates(program).count * (int64_t)sizeof *out->updates);
    out->updates_8bit = place(
        base, &size, snug_cuda_find_multi_tensor(program, SNUG_OP_ADAM_8BIT).count * (int64_t)sizeof *out->updates);
    const bool coded = snug_program_has(program, SNUG_OP_ADAM_8BIT);
    uint8_t *quantization = place(base, &size, coded ? (int64_t)sizeof *out->quantization : 0);
    out->quantization = coded ? (struct snug_cuda_quantization *)quantization : NULL;
    int64_t bytes;
    const int32_t count = snug_cuda_count_biases(program, &bytes);
    out->bias_list = place(base, &size, count * (int64_t)sizeof *out->bias_list);
    out->sent = size;
    out->incoming = place(base, &size, out->sent);
    out->biases = place(base, &size, bytes);
    out->update_step = place(base, &size, program->crosses ? (int64_t)sizeof *out->update_step : 0);
    out->received = place(base, &size, snug_cuda_received_bytes(program));
    return size;
}

int64_t snug_cuda_batch_bytes(const struct snug_program *program) {
    struct snug_cuda_batch batch;
    return snug_cuda_lay_out_batch(program, NULL, &batch);
}
