/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/sizes/limits.h"

#define ADVICE "than the CUDA backend supports (%lld): only the CPU backend runs it (--device cpu)"

static snug_status check_attention(const struct snug_program *program, const struct snug_op *op, int32_t q) {
    const struct snug_attention_form *form = snug_op_attention_form(op);
    const char *name = program->tensors[q].name, *kind = snug_op_name(op->kind);
    const int64_t sequences = program->capacity[SNUG_EXTENT_SEQUENCES];
    if (form->head_dim > SNUG_CUDA_HEAD_MOST)
        return snug_fail(program->ctx, SNUG_E_UNSUPPORTED, "%s (%s): its heads of %lld channels are wider " ADVICE,
                         name, kind, (long long)form->head_dim, (long long)SNUG_CUDA_HEAD_MOST);
    if (sequences > SNUG_CUDA_SEQUENCES_MOST)
        return snug_fail(program->ctx, SNUG_E_UNSUPPORTED,
                         "%s (%s): a batch of %lld texts is larger than the CUDA backend supports (%lld): make the "
                         "batch size smaller, and --gradient_accumulation_steps larger",
                         name, kind, (long long)sequences, (long long)SNUG_CUDA_SEQUENCES_MOST);
    return SNUG_OK;
}

snug_status snug_cuda_supports(const struct snug_program *program, const struct snug_op *op) {
    switch (op->kind) {
    case SNUG_OP_ATTENTION: return check_attention(program, op, op->attention.q);
    case SNUG_OP_ATTENTION_BACKWARD: return check_attention(program, op, op->attention_backward.q);
    case SNUG_OP_CACHED_ATTENTION: return check_attention(program, op, op->cached_attention.q);
    default: return SNUG_OK;
    }
}
