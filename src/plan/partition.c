/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ranks: each has its own micro-batches of a step, and in the backward of the last one every gradient is summed
 * over the ranks as soon as it is complete, before its norm is taken, so that all ranks clip and update alike. A rank
 * without a micro-batch in an epoch's last step runs the collective operations alone.
 *
 * An asynchronous backend sums beside other operations. Sums then come in groups of an eighth of all gradients, at most
 * 32 MiB, because each exchange costs latency and models have many small gradients.
 *
 * ZeRO (Rajbhandari et al., arXiv:1910.02054) divides what all ranks would have in common. Every weight is cut into
 * shards of whole chunks of SNUG_NORM_CHUNK elements (program/shards.h), its gradient and its states like it.
 *
 * Stage 1: a rank has the states of its shards. It gets the sum of its shard of a gradient, updates its shard of the
 * weight, and all ranks gather the shards. Where only a 16-bit copy of an fp32 weight is read, the copy's shards are
 * gathered, and the weight itself is divided, too. Weights of at most a chunk, mostly vectors, are not divided in any
 * stage: every rank gets the sums of their gradients, and updates them, since gathering them costs more than it saves.
 *
 * Stage 2: gradients are summed in the backward of each micro-batch, and a rank keeps the sum of its shard. It adds the
 * sums of a step's micro-batches to it. Ranks have micro-batches in turns, so that this is the order of one rank.
 * Gradients of at most a chunk stay whole: a GPU computes those of biases before the operation that they belong to.
 *
 * Stage 3: a rank has its shard of each weight of more than a chunk. These weights, or 16-bit copies of them, are
 * gathered before the first operation of a phase that reads them, and live until the last one. plan/schedule.c then
 * moves what an asynchronous backend can begin earlier.
 *
 * A loss over the vectors of a step (program/losses.h) needs those of all ranks: each has zeros where others have
 * vectors, and the sum over the ranks precedes the loss, which every rank computes.
 *
 * In all stages a rank squares the chunks of its shards, an asynchronous backend as it sums them. The gradient norm
 * adds the sums of the chunks of all ranks in the order of the chunks, as on one rank, so the bits do not depend on the
 * stage.
 */
#include "optim/optimizer.h"
#include "plan/stages.h"
#include "program/edits.h"

struct partition {
    struct snug_program *program;
    struct snug_edits edits;
    size_t at; /* the operation that is rewritten; what is inserted comes before it */
    const struct snug_methods *methods;
    size_t tensors;                     /* before the stage */
    struct snug_shards *shards;         /* by tensor, of the weights; of their gradients' norms in stage 0 */
    int32_t *weights;                   /* by gradient: its weight */
    bool *divided;                      /* by weight: each rank stores its shard */
    bool *gathered;                     /* by weight: the same, and it is gathered where it is read */
    int32_t *sources;                   /* by tensor: the gathered weight of which it is a copy, or itself; or none */
    int32_t *staging[SNUG_PHASE_COUNT]; /* by phase and such a tensor: what the phase reads instead, or none */
    int64_t *columns;                   /* by weight: the first of its columns in chunk_sums */
    int32_t *sums;                      /* by gradient: from stage 2 on, this rank's shard of the sum, or none */
    int32_t *completed;                 /* by gradient: the last operation of BACKWARD that writes it, or -1 */
    bool *sparse;                       /* by gradient: the only operation that writes it writes rows of tokens */
    int32_t *pending;                   /* gradients that are complete and not summed yet */
    size_t pending_count;
    int64_t pending_bytes, group; /* bytes of a group of sums */
    struct snug_op *casts;        /* of gathered weights, after all gathering */
    size_t cast_count;
    int32_t chunk_sums; /* sums of squares: a row for each rank */
};

/* ---- shards ---------------------------------------------------------------------------------------------------- */

/* Blocks of 8-bit states are counted in each of the parameters that are stacked in a tensor; where they would not be
   whole in a shard, one rank has the whole tensor. */
static int64_t chunk_of(const struct snug_program *program, int32_t weight) {
    const struct snug_tensor *t = &program->tensors[weight];
    int64_t segments = 0;
    for (size_t i = 0; i < program->parameter_count; i++) segments += program->parameters[i].tensor == weight;
    const bool whole = segments > 1 && !t->quantized.type && t->rows * t->cols / segments % SNUG_QUANTISED_BLOCK;
    return whole ? t->rows * t->cols : SNUG_NORM_CHUNK;
}

/* Chunks that are left over go to the ranks that have the fewest elements so far. The same in all programs of a run,
   whether they train or not. */
static snug_status divide_weight(const struct partition *p, int32_t weight, int64_t *loads) {
    const struct snug_tensor *t = &p->program->tensors[weight];
    struct snug_shards *shards = &p->shards[weight];
    *shards = (struct snug_shards){
        .elements = t->rows * t->cols, .chunk = chunk_of(p->program, weight), .ranks = p->methods->ranks};
    for (int rank = 1; rank < shards->ranks; rank++)
        if (loads[rank] < loads[shards->start]) shards->start = rank;
    for (int rank = 0; rank < shards->ranks; rank++) loads[rank] += snug_shard_size(shards, rank);
    return SNUG_OK;
}

static snug_status divide_weights(struct partition *p) {
    struct snug_program *program = p->program;
    int64_t *loads; /* elements by rank */
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, (size_t)p->methods->ranks, sizeof *loads, (void **)&loads));
    for (size_t i = 0; i < program->parameter_count; i++)
        if (!p->shards[program->parameters[i].tensor].chunk)
            RETURN_IF_ERROR(divide_weight(p, program->parameters[i].tensor, loads));
    return SNUG_OK;
}

/* Whether every rank updates the whole weight. */
static bool is_replicated(const struct partition *p, int32_t weight) {
    return !p->methods->zero_stage || p->shards[weight].elements <= SNUG_NORM_CHUNK;
}

/* Weights of which each rank stores its shard: in stage 3 large ones, and always those of which there is a copy, and
   which nothing reads but PREPARE and the updates. */
static void divide_stored(struct partition *p) {
    struct snug_program *program = p->program;
    for (size_t i = 1; i < p->tensors; i++) p->divided[i] = program->tensors[i].master && !is_replicated(p, (int32_t)i);
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->phase == SNUG_PHASE_PREPARE || snug_op_is(op, SNUG_OP_UPDATES)) continue;
        for (int k = 0; k < snug_op_operands(op); k++) p->divided[op->operands[k]] = false;
    }
    for (size_t i = 1; i < p->tensors; i++) {
        p->gathered[i] = p->methods->zero_stage >= 3 && !is_replicated(p, (int32_t)i);
        p->divided[i] |= p->gathered[i];
        if (p->divided[i]) program->tensors[i].shards = p->shards[i];
        if (p->gathered[i]) p->sources[i] = (int32_t)i;
    }
}

/* Copies of gathered weights do not persist, either. */
static void drop_copies(struct partition *p) {
    for (size_t i = 0; i < p->program->op_count; i++) {
        const struct snug_op *op = &p->program->ops[i];
        if (op->kind != SNUG_OP_CAST || !p->gathered[op->cast.p]) continue;
        struct snug_tensor *copy = &p->program->tensors[op->cast.q];
        if (copy->persistent) p->sources[op->cast.q] = op->cast.p;
        copy->persistent = false;
    }
}

/* Whether one rank has the whole weight, as its only chunk. */
static bool is_whole(const struct partition *p, int32_t weight) {
    return p->shards[weight].chunk == p->shards[weight].elements;
}

static int64_t begin_of(const struct partition *p, int32_t weight) {
    return snug_shard_begin(&p->shards[weight], p->program->rank);
}

static int64_t own_of(const struct partition *p, int32_t weight) {
    return snug_shard_size(&p->shards[weight], p->program->rank);
}

/* Elements first … first + count - 1 of what this rank stores of a tensor. */
static snug_status add_view(struct partition *p, int32_t tensor, int64_t first, int64_t count, int32_t *out) {
    const struct snug_tensor *base = &p->program->tensors[tensor];
    return snug_program_tensor(p->program,
                               (struct snug_tensor){.dtype = base->dtype,
                                                    .memory_class = SNUG_MEMORY_TEMPORARY,
                                                    .rows = 1,
                                                    .cols = count,
                                                    .part = base->part,
                                                    .layer = base->layer,
                                                    .view = true,
                                                    .base = tensor,
                                                    .element = first},
                               out, "shard.%zu", p->program->tensor_count);
}

/* This rank's shard of a weight, or of its gradient, copy or state, which may be divided already. */
static snug_status add_shard(struct partition *p, int32_t tensor, int32_t weight, int32_t *out) {
    const struct snug_tensor *t = &p->program->tensors[tensor];
    int64_t begin;
    const int64_t stored = snug_tensor_stored(p->program, t, &begin);
    if (t->shards.chunk) return add_view(p, tensor, 0, stored, out);
    return add_view(p, tensor, begin_of(p, weight), own_of(p, weight), out);
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

static snug_status add(struct partition *p, struct snug_op op) { return snug_edits_insert(&p->edits, p->at, op); }

static struct snug_op like(const struct snug_op *op, enum snug_op_kind kind) {
    return (struct snug_op){.kind = kind, .phase = op->phase, .part = op->part, .layer = op->layer};
}

/* Gathers the shards of a weight or its copy before operation `before`; shard: the divided weight of which they are
   made, or none. */
static snug_status gather(struct partition *p, size_t before, const struct snug_op *at, int32_t shard, int32_t tensor,
                          int32_t weight) {
    struct snug_op op = like(at, SNUG_OP_GATHER_RANKS);
    op.gather_ranks = (struct snug_gather_ranks){.shard = shard, .x = tensor, .shards = p->shards[weight]};
    return snug_edits_insert(&p->edits, before, op);
}

/* The sums of squares of this rank's shard of a gradient, in chunk_sums. */
static int32_t slot_of(const struct partition *p, int32_t weight) {
    return (int32_t)(p->program->rank * p->program->tensors[p->chunk_sums].cols + p->columns[weight]);
}

/* Whether an asynchronous backend squares a gradient's chunks when it sums them. */
static bool is_squared_in_sum(const struct partition *p, int32_t g) {
    return p->methods->offload.overlaps && !p->sparse[g] && p->shards[p->weights[g]].elements > SNUG_NORM_CHUNK;
}

/* A gradient's sum over the ranks. */
static snug_status sum_gradient(struct partition *p, int32_t g) {
    const int32_t weight = p->weights[g];
    const struct snug_tensor *t = &p->program->tensors[weight];
    struct snug_op op = {.kind = SNUG_OP_SUM_RANKS,
                         .phase = SNUG_PHASE_BACKWARD,
                         .last = p->methods->zero_stage < 2,
                         .part = t->part,
                         .layer = t->layer,
                         .sum_ranks = {.g = g, .sum = p->sums[g], .sparse = p->sparse[g]}};
    if (!is_replicated(p, weight)) op.sum_ranks.shards = p->shards[weight];
    if (is_squared_in_sum(p, g)) {
        op.sum_ranks.chunks = p->chunk_sums;
        op.sum_ranks.slot = slot_of(p, weight);
        op.sum_ranks.shards = p->shards[weight];
        op.sum_ranks.for_all = is_replicated(p, weight);
    }
    return add(p, op);
}

/* A gradient's norm, after its sum over the ranks. */
static snug_status norm_of_sum(struct partition *p, const struct snug_op *norm) {
    const int32_t g = norm->squared_norm.g, weight = p->weights[g];
    struct snug_op chunks = *norm;
    if (!own_of(p, weight) || is_squared_in_sum(p, g)) return SNUG_OK;
    RETURN_IF_ERROR(add_shard(p, p->sums[g] ? p->sums[g] : g, weight, &chunks.squared_norm.g));
    chunks.squared_norm.sums = p->chunk_sums;
    chunks.squared_norm.slot = slot_of(p, weight);
    chunks.squared_norm.chunks = true;
    return add(p, chunks);
}

/* The sums of all chunks, and of them each gradient's, before CLIP. */
static snug_status sum_norms(struct partition *p, const struct snug_op *clip) {
    const struct snug_tensor *table = &p->program->tensors[p->chunk_sums];
    struct snug_op op = like(clip, SNUG_OP_GATHER_RANKS);
    op.gather_ranks = (struct snug_gather_ranks){
        .x = p->chunk_sums, .shards = {table->rows * table->cols, table->cols, (int32_t)table->rows, 0}};
    RETURN_IF_ERROR(add(p, op));
    for (size_t i = 0; i < p->program->op_count; i++) {
        const struct snug_op *of = &p->program->ops[i];
        const struct snug_squared_norm *norm = &of->squared_norm;
        if (of->kind != SNUG_OP_SQUARED_NORM) continue;
        const int32_t weight = p->weights[norm->g];
        op = like(of, SNUG_OP_SUM_CHUNKS);
        op.sum_chunks = (struct snug_sum_chunks){.parts = p->chunk_sums,
                                                 .sums = norm->sums,
                                                 .slot = norm->slot,
                                                 .parameter = norm->parameter,
                                                 .first = p->columns[weight],
                                                 .shards = p->shards[weight]};
        RETURN_IF_ERROR(add(p, op));
    }
    return SNUG_OK;
}

/* A state is divided as its weight is, in blocks if it has a value for each block. */
static void divide_state(struct partition *p, int32_t state, int32_t weight, bool blocks) {
    struct snug_tensor *t = &p->program->tensors[state];
    t->shards = p->shards[weight];
    if (!blocks) return;
    t->shards.elements = t->rows * t->cols;
    t->shards.chunk = is_whole(p, weight) ? t->shards.elements : SNUG_NORM_CHUNK / SNUG_QUANTISED_BLOCK;
}

/* The update of this rank's shard, or of a weight that is not divided. Afterwards every rank has the weight, or the
 * copy that is read instead: after all updates, which a backend may run at once, as it may all gathering. */
static snug_status update_shard(struct partition *p, const struct snug_op *whole) {
    const int32_t weight = whole->update.weight, copy = whole->update.copy;
    struct snug_op op = *whole, cast = like(whole, SNUG_OP_CAST);
    if (p->sums[op.update.g]) op.update.g = p->sums[op.update.g];
    if (is_replicated(p, weight)) return add(p, op);
    if (!p->divided[weight] || p->gathered[weight]) op.update.copy = 0; /* it is made of the gathered weight */
    for (int k = 0; k < snug_op_operands(whole); k++) {
        const int32_t tensor = op.operands[k];
        if (!tensor || tensor == op.update.clip) continue;
        if (p->program->tensors[tensor].saved)
            divide_state(p, tensor, weight, snug_op_info(op.kind)->operands[k].flags & SNUG_BLOCK_STATE);
        if (own_of(p, weight)) RETURN_IF_ERROR(add_shard(p, tensor, weight, &op.operands[k]));
    }
    op.element = begin_of(p, weight);
    if (!is_whole(p, weight)) op.update.segments = 1;
    if (own_of(p, weight)) RETURN_IF_ERROR(add(p, op));
    if (p->gathered[weight]) return SNUG_OK; /* where it is read */
    cast.cast = (struct snug_cast){.p = weight, .q = copy};
    if (copy && !p->divided[weight]) p->casts[p->cast_count++] = cast;
    return gather(p, p->program->op_count, whole, 0, p->divided[weight] ? copy : weight, weight);
}

/* The tensor that an operation of this phase reads in the place of a gathered weight, or of its copy: it lives from the
   first such operation of the phase to the last one. HEAD runs in chunks, whose number is not that of other ranks, so
   its weights are gathered at the end of FORWARD. */
static snug_status stage_weight(struct partition *p, const struct snug_op *op, int32_t *operand) {
    int32_t *staging = &p->staging[op->phase][*operand];
    const int32_t weight = p->sources[*operand];
    if (!*staging) {
        struct snug_tensor t = p->program->tensors[*operand];
        struct snug_op at = *op;
        t.memory_class = SNUG_MEMORY_TEMPORARY;
        t.persistent = t.trainable = t.master = false;
        t.gradient = 0;
        t.shards.chunk = 0;
        if (op->phase == SNUG_PHASE_HEAD) at.phase = SNUG_PHASE_FORWARD;
        RETURN_IF_ERROR(snug_program_tensor(p->program, t, staging, "gathered.%zu", p->program->tensor_count));
        RETURN_IF_ERROR(gather(p, p->at, &at, weight, *staging, weight));
    }
    *operand = *staging;
    return SNUG_OK;
}

static snug_status read_gathered(struct partition *p, const struct snug_op *whole) {
    struct snug_op op = *whole;
    for (int k = 0; k < snug_op_operands(whole); k++)
        if (p->sources[op.operands[k]]) RETURN_IF_ERROR(stage_weight(p, whole, &op.operands[k]));
    return add(p, op);
}

/* The copy of a divided weight, which each rank makes of its shard. */
static snug_status gather_copy(struct partition *p, const struct snug_op *cast) {
    if (p->sources[cast->cast.q]) return SNUG_OK; /* it does not persist: operations that read it have their own */
    return gather(p, p->at, cast, cast->cast.p, cast->cast.q, cast->cast.p);
}

/* A tensor of all vectors of a step, which op of STEP reads: a rank clears it before its first micro-batch. Its whole
   capacity, since a rank without a micro-batch does not know the step's rows. */
static snug_status sum_vectors(struct partition *p, const struct snug_op *op, int32_t tensor) {
    const int64_t rows = p->program->capacity[SNUG_EXTENT_STEP], cols = p->program->tensors[tensor].cols;
    struct snug_op clear = like(op, SNUG_OP_FILL), sum = like(op, SNUG_OP_SUM_RANKS);
    int32_t all;
    RETURN_IF_ERROR(add_view(p, tensor, 0, rows * cols, &all));
    clear.phase = SNUG_PHASE_FORWARD;
    clear.first = true;
    clear.fill.x = sum.sum_ranks.g = all;
    RETURN_IF_ERROR(snug_edits_insert(&p->edits, 0, clear));
    return add(p, sum);
}

static snug_status rewrite(struct partition *p, const struct snug_op *op) {
    for (int k = 0; op->phase == SNUG_PHASE_STEP && k < snug_op_operands(op); k++)
        if (snug_op_reads(op, k) && p->program->tensors[op->operands[k]].extent == SNUG_EXTENT_STEP)
            RETURN_IF_ERROR(sum_vectors(p, op, op->operands[k]));
    if (op->kind == SNUG_OP_SQUARED_NORM) return norm_of_sum(p, op);
    if (op->kind == SNUG_OP_CLIP) RETURN_IF_ERROR(sum_norms(p, op));
    if (p->methods->zero_stage) {
        if (snug_op_is(op, SNUG_OP_UPDATES)) return update_shard(p, op);
        if (op->kind == SNUG_OP_CAST && p->divided[op->cast.p]) return gather_copy(p, op);
        return read_gathered(p, op);
    }
    return add(p, *op);
}

static snug_status sum_pending(struct partition *p) {
    for (size_t k = 0; k < p->pending_count; k++) RETURN_IF_ERROR(sum_gradient(p, p->pending[k]));
    p->pending_count = 0;
    p->pending_bytes = 0;
    return SNUG_OK;
}

/* The gradients that operation i of BACKWARD completes; -1: those that are complete before BACKWARD. */
static snug_status sum_completed(struct partition *p, int32_t i) {
    p->at = (size_t)(i + 1);
    for (size_t g = 1; g < p->tensors; g++) {
        if (!p->weights[g] || p->completed[g] != i) continue;
        p->pending[p->pending_count++] = (int32_t)g;
        p->pending_bytes += p->program->tensors[g].rows * p->program->tensors[g].cols * (int64_t)sizeof(float);
    }
    return p->pending_bytes > p->group ? sum_pending(p) : SNUG_OK;
}

static snug_status rewrite_all(struct partition *p) {
    if (p->methods->optimizer) RETURN_IF_ERROR(sum_completed(p, -1));
    for (size_t i = 0; i < p->program->op_count; i++) {
        p->at = i;
        snug_edits_drop(&p->edits, i);
        RETURN_IF_ERROR(rewrite(p, &p->program->ops[i]));
        if (p->methods->optimizer) RETURN_IF_ERROR(sum_completed(p, (int32_t)i));
    }
    RETURN_IF_ERROR(sum_pending(p));
    for (size_t i = 0; i < p->cast_count; i++) RETURN_IF_ERROR(add(p, p->casts[i]));
    return SNUG_OK;
}

/* ---- the stage ------------------------------------------------------------------------------------------------- */

/* Which operation completes each gradient, and how many bytes of them are summed together. */
static void find_completed(struct partition *p) {
    enum { GROUPS = 8, MOST = 32 << 20 };
    const struct snug_program *program = p->program;
    int64_t bytes = 0;
    for (size_t g = 1; g < p->tensors; g++) {
        p->completed[g] = -1;
        if (p->weights[g]) bytes += program->tensors[g].rows * program->tensors[g].cols * (int64_t)sizeof(float);
    }
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        for (int k = 0; k < snug_op_operands(op) && op->phase == SNUG_PHASE_BACKWARD; k++) {
            const int32_t g = op->operands[k];
            if (snug_op_reads(op, k)) continue;
            p->sparse[g] = p->completed[g] == -1 && snug_op_info(op->kind)->operands[k].flags & SNUG_BY_TOKEN;
            p->completed[g] = (int32_t)i;
        }
    }
    if (p->methods->offload.overlaps) p->group = bytes / GROUPS < MOST ? bytes / GROUPS : MOST;
}

/* From stage 2 on a gradient lives until it is summed, in each micro-batch; its sum's shard is what is kept. */
static snug_status divide_gradients(struct partition *p) {
    struct snug_program *program = p->program;
    for (size_t i = 0; i < program->op_count; i++) program->ops[i].each = program->ops[i].first;
    for (size_t w = 1; w < p->tensors; w++) {
        const int32_t g = program->tensors[w].gradient;
        if (!g) continue;
        struct snug_tensor sum = program->tensors[g];
        program->tensors[g].persistent = is_replicated(p, (int32_t)w);
        if (!is_replicated(p, (int32_t)w)) sum.shards = p->shards[w];
        RETURN_IF_ERROR(snug_program_tensor(program, sum, &p->sums[g], "sum.%s", program->tensors[w].name));
    }
    program->accumulates = false; /* each micro-batch overwrites its gradients */
    return SNUG_OK;
}

/* The table of the norms' chunks: as many columns for a weight as the largest shard has chunks. */
static snug_status add_chunk_sums(struct partition *p) {
    int64_t columns = 0;
    for (size_t i = 1; i < p->tensors; i++) {
        if (!p->program->tensors[i].gradient) continue;
        p->columns[i] = columns;
        columns += (snug_shard_largest(&p->shards[i]) + SNUG_NORM_CHUNK - 1) / SNUG_NORM_CHUNK;
    }
    return snug_program_tensor(p->program,
                               (struct snug_tensor){.dtype = SNUG_F64,
                                                    .memory_class = SNUG_MEMORY_OPTIMIZER,
                                                    .rows = p->methods->ranks,
                                                    .cols = columns,
                                                    .part = SNUG_PART_HEAD,
                                                    .layer = -1,
                                                    .persistent = true},
                               &p->chunk_sums, "chunk_sums");
}

static snug_status partition(struct partition *p) {
    struct snug_edits *e = &p->edits;
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->weights, (void **)&p->weights));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->shards, (void **)&p->shards));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->divided, (void **)&p->divided));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->gathered, (void **)&p->gathered));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->sources, (void **)&p->sources));
    for (int i = 0; i < SNUG_PHASE_COUNT; i++)
        RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof **p->staging, (void **)&p->staging[i]));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->columns, (void **)&p->columns));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->sums, (void **)&p->sums));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->completed, (void **)&p->completed));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->sparse, (void **)&p->sparse));
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->pending, (void **)&p->pending));
    for (size_t i = 1; i < p->tensors; i++) p->weights[p->program->tensors[i].gradient] = (int32_t)i;
    p->weights[0] = 0;
    RETURN_IF_ERROR(snug_edits_alloc(e, p->tensors, sizeof *p->casts, (void **)&p->casts));
    find_completed(p);
    RETURN_IF_ERROR(divide_weights(p));
    if (p->methods->zero_stage) {
        divide_stored(p);
        drop_copies(p);
    }
    if (p->methods->optimizer) RETURN_IF_ERROR(add_chunk_sums(p));
    if (p->methods->optimizer && p->methods->zero_stage >= 2) RETURN_IF_ERROR(divide_gradients(p));
    return rewrite_all(p);
}

snug_status snug_stage_partition(struct snug_program *program, const struct snug_methods *methods) {
    if (methods->ranks < 2) return SNUG_OK;
    struct partition p = {.program = program, .methods = methods, .tensors = program->tensor_count};
    program->ranks = methods->ranks;
    program->rank = methods->rank;
    snug_status status = snug_edits_open(program, &p.edits);
    if (status == SNUG_OK) status = partition(&p);
    return snug_edits_close(&p.edits, status);
}
