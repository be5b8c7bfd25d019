/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision: activations in the compute type; fp32 master weights with copies of those that matmuls read, or
   bf16 weights without either. A frozen weight needs no master: it is stored in the compute type alone, or as codes,
   which each matmul that reads it has dequantized right before. */
#include "plan/stages.h"
#include "program/edits.h"

struct precision {
    struct snug_program *program;
    struct snug_edits edits;
    const struct snug_methods *methods;
    int32_t *copies;       /* by weight: the copy that can be read now, or none */
    enum snug_phase phase; /* in which copies that do not persist are */
};

/* The copies of a layer that recomputes everything live while the layer runs, not for the whole run. But if weights are
   offloaded, copies are offloaded as well, and take half the time of fetching what they would be made from; and masters
   can only be offloaded if no other operation than the update reads them. */
static bool persists(const struct precision *p, const struct snug_tensor *weight) {
    const enum snug_recompute *levels = p->methods->recompute;
    const bool offloaded = p->methods->offload.classes & (1u << SNUG_MEMORY_WEIGHTS | SNUG_OFFLOAD_MASTERS);
    return weight->part != SNUG_PART_LAYER || !levels || levels[weight->layer] != SNUG_RECOMPUTE_LAYER || offloaded;
}

/* Such copies are not available in another phase. */
static void enter(struct precision *p, enum snug_phase phase, size_t weights) {
    if (p->phase == phase) return;
    for (size_t i = 0; i < weights; i++)
        if (p->copies[i] && !p->program->tensors[p->copies[i]].persistent) p->copies[i] = 0;
    p->phase = phase;
}

/* Adds the copy of weight in the compute type: before operation `at`, the first one that reads it, or once for the run;
   then the optimizer keeps it up to date. */
static snug_status add_copy(struct precision *p, int32_t weight, size_t at) {
    struct snug_tensor like = p->program->tensors[weight];
    like.dtype = p->program->compute;
    like.persistent = p->program->tensors[weight].master = persists(p, &like);
    like.trainable = false;
    like.gradient = 0;
    if (!like.persistent) {
        like.memory_class = SNUG_MEMORY_TEMPORARY;
        like.saved = false;
    }
    RETURN_IF_ERROR(snug_program_tensor(p->program, like, &p->copies[weight], "copy.%s", like.name));
    if (like.persistent) p->program->tensors[p->copies[weight]].identity = -p->program->tensors[weight].identity;
    const enum snug_phase phase = like.persistent ? SNUG_PHASE_PREPARE : p->program->ops[at].phase;
    return snug_edits_insert(&p->edits, at,
                             (struct snug_op){.kind = SNUG_OP_CAST,
                                              .phase = phase,
                                              .part = like.part,
                                              .layer = like.layer,
                                              .cast = {.p = weight, .q = p->copies[weight]}});
}

/* Adds the values of a weight that is stored as codes, for operation `at` alone: so no more than one such weight is in
   memory as values at any time. */
static snug_status add_values(struct precision *p, int32_t *operand, size_t at) {
    const struct snug_tensor weight = p->program->tensors[*operand];
    const struct snug_op *reader = &p->program->ops[at];
    struct snug_op op = {.kind = SNUG_OP_DEQUANTIZE, .phase = reader->phase, .part = reader->part};
    op.layer = reader->layer;
    op.dequantize.p = *operand;
    op.dequantize.form = weight.quantized;
    RETURN_IF_ERROR(snug_program_tensor(p->program,
                                        (struct snug_tensor){.dtype = p->program->compute,
                                                             .memory_class = SNUG_MEMORY_TEMPORARY,
                                                             .rows = weight.rows * weight.quantized.rows,
                                                             .cols = weight.quantized.cols,
                                                             .part = weight.part,
                                                             .layer = weight.layer},
                                        operand, "values.%zu", p->program->tensor_count));
    op.dequantize.q = *operand;
    return snug_edits_insert(&p->edits, at, op);
}

/* Replaces the weights that operation i, a matmul, reads by copies of the compute type, or by values. */
static snug_status use_copies(struct precision *p, size_t i, size_t weights) {
    struct snug_op *op = &p->program->ops[i];
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands; k++) {
        const int32_t weight = op->operands[k];
        if (!(snug_op_info(op->kind)->operands[k].flags & SNUG_MATMUL_WEIGHT)) continue;
        if (p->program->tensors[weight].quantized.type) {
            RETURN_IF_ERROR(add_values(p, &p->program->ops[i].operands[k], i));
            continue;
        }
        enter(p, op->phase, weights);
        if (p->program->compute == SNUG_F32 || p->program->tensors[weight].dtype == p->program->compute) continue;
        if (!p->copies[weight]) RETURN_IF_ERROR(add_copy(p, weight, i));
        op->operands[k] = p->copies[weight];
    }
    return SNUG_OK;
}

static snug_status give_copies(struct precision *p) {
    const size_t weights = p->program->tensor_count;
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, weights, sizeof *p->copies, (void **)&p->copies));
    for (size_t i = 0; i < p->program->op_count; i++) RETURN_IF_ERROR(use_copies(p, i, weights));
    for (size_t i = 0; i < p->program->op_count; i++) {
        struct snug_op *op = &p->program->ops[i];
        if (!snug_op_is(op, SNUG_OP_UPDATES)) continue;
        const int32_t copy = p->copies[op->update.weight];
        if (copy && p->program->tensors[copy].persistent) op->update.copy = copy;
    }
    return SNUG_OK;
}

/* From here on a quantized weight is its bytes, a row for each parameter. */
static bool store_codes(struct snug_program *program) {
    bool any = false;
    for (size_t i = 0; i < program->parameter_count; i++) {
        struct snug_parameter *parameter = &program->parameters[i];
        struct snug_tensor *weight = &program->tensors[parameter->tensor];
        if (!weight->quantized.type) continue;
        any = true;
        parameter->row /= parameter->shape[0];
        if (weight->dtype == SNUG_U8) continue;
        weight->dtype = SNUG_U8;
        weight->narrowed = false;
        weight->rows /= weight->quantized.rows;
        weight->cols = snug_quantized_lay_out(&weight->quantized).bytes;
    }
    return any;
}

snug_status snug_stage_precision(struct snug_program *program, const struct snug_methods *methods) {
    /* Vectors stay F32: biases and norms are few, and matmuls add them in fp32. */
    for (size_t i = 0; i < program->parameter_count; i++) {
        struct snug_tensor *weight = &program->tensors[program->parameters[i].tensor];
        if (!program->parameters[i].shape[1] || program->parameters[i].adapter) continue; /* PEFT's are F32, too */
        weight->narrowed = !weight->trainable && methods->weights == SNUG_F32 && program->compute != SNUG_F32;
        weight->dtype = weight->narrowed ? program->compute : methods->weights;
    }
    if (!store_codes(program) && program->compute == SNUG_F32) return SNUG_OK;
    for (size_t i = 0; i < program->tensor_count; i++)
        if (program->tensors[i].low_precision) program->tensors[i].dtype = program->compute;
    struct precision p = {.program = program, .methods = methods, .phase = SNUG_PHASE_PREPARE};
    snug_status status = snug_edits_open(program, &p.edits);
    if (status == SNUG_OK) status = give_copies(&p);
    return snug_edits_close(&p.edits, status);
}
