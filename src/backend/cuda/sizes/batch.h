/* SPDX-License-Identifier: Apache-2.0 */
/* The batch on the device, and the step's numbers. */
#ifndef SNUG_BACKEND_CUDA_SIZES_BATCH_H
#define SNUG_BACKEND_CUDA_SIZES_BATCH_H

#include "backend/cuda/sizes/bias.h"
#include "backend/cuda/sizes/multi_tensor.h"
#include "backend/cuda/update/quantization.h"

/* The numbers of an update, and what they follow from: the number of updates before it, and the learning rate. */
struct snug_cuda_update_numbers {
    int32_t updates;
    float learning_rate;
    union snug_update_numbers numbers;
};
/* What changes from one run of an operation to the next. It is in device memory, where kernels read it, so that a
   captured graph serves every batch of its size. */
struct snug_cuda_step {
    int32_t tokens, sequences, rows, first_row, step_rows, page_copies;
    uint32_t key, step; /* Philox's, for dropout */
    float loss_scale, max_grad_norm;
    bool skip;                              /* this update is skipped: the gradients are not finite (fp16) */
    struct snug_cuda_update_numbers update; /* of this update, see step.cu */
};
/* The backend's copy of a batch on the device, the step's numbers, and the tables of multi_tensor.c and bias.c. */
struct snug_cuda_batch {
    struct snug_cuda_step *step, *update_step; /* update_step: of the last UPDATE, for deferred updates */
    int32_t *offsets, *ids, *types, *positions, *position_ids, *sample, *by_id, *loss_positions, *labels;
    float *targets, *references, *class_weights;
    int32_t *pages, *copied_pages; /* a cache's: [sequences, snug_cuda_pages_each()], [3 * sequences] */
    uint32_t *arrivals; /* 0 for each sequence and head (cached_attention.cu), or block of rows (streamed.cu) */
    struct snug_cuda_entry *norms, *updates, *updates_8bit;
    struct snug_cuda_quantization *quantization; /* NULL if no state has 8 bits */
    struct snug_cuda_bias *bias_list;
    int64_t sent;      /* bytes up to here: what is transferred with a batch */
    uint8_t *incoming; /* where the transfer writes */
    uint8_t *biases;   /* in 16 bits */
    uint8_t *received; /* gradients of other ranks */
};

/* The width of targets, where a loss or COLLECT reads them; 0 where a loss reads labels. */
int64_t snug_cuda_target_width(const struct snug_program *program);
/* The loss's width where it has class weights; else 0. */
int64_t snug_cuda_weight_width(const struct snug_program *program);
/* Pages of the longest sequence, in a program that generates; else 0. */
static inline int64_t snug_cuda_pages_each(const struct snug_program *program) {
    return program->cache_pages ? (program->longest + SNUG_CACHE_PAGE - 1) / SNUG_CACHE_PAGE : 0;
}
/* Bytes of the batch's copy; sets out's pointers into base, or to NULL if that is NULL. */
int64_t snug_cuda_lay_out_batch(const struct snug_program *program, uint8_t *base, struct snug_cuda_batch *out);
/* struct snug_backend's batch. */
int64_t snug_cuda_batch_bytes(const struct snug_program *program);

#endif
