/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lifetimes and offsets.
 *
 *   arena   | persistent tensors, by class         | transient tensors          | workspace | copy of |
 *           | weights | gradients | optimizer | ...| training   |#############| |           | a batch |
 *           | programs share those of one identity | evaluation |######|        |           |         |
 *   host    | batch | function |  what the host writes; page-locked on a GPU
 *   store   | offloaded tensors |  the backing store: host memory, or the offload file
 *
 * The transient tensors of one program over time; a line is an offset, a letter a tensor that is live:
 *
 *           FORWARD        HEAD   BACKWARD       UPDATE
 *           aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa            an activation, written early and read late
 *              bbbbbbbbbbbbbbbbbbbbbbbbb   ffffffffffff  f takes the bytes of b
 *           cc   dd   ee  hhhh   gg  gg  gg             temporary ones, which live for a few operations
 *
 * Persistent tensors are at the beginning of the arena. All others are placed by size, largest
 * first, at the lowest offset that does not overlap a tensor that is live at the same time (greedy by size: Pisarchyk
 * and Lee, arXiv:2001.03288). Where that takes more than what is live at one time, as it does between the buffers of
 * offloaded tensors, they are also placed by lifetime, longest first, and again with those first that were beyond that
 * limit (squeaky wheel optimization: Joslin and Clements, 1999); the smallest arena is used.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/stages.h"

enum {
    /* A GPU reads 128 bytes at a time: an update of weights that were not aligned to them took 3.4 instead of 2.5 ms.
     */
    ALIGNMENT = 256,
    PAGE = 4096, /* of the page cache: regions of the offload file are dropped from it separately */
};

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

int64_t snug_tensor_bytes(const struct snug_program *program, const struct snug_tensor *tensor) {
    int64_t rows = tensor->rows;
    /* All ranks have the same layout, so that a GPU can write to another rank's. */
    if (tensor->shards.chunk) return align(snug_shard_largest(&tensor->shards) * snug_dtype_size(tensor->dtype));
    if (tensor->extent != SNUG_EXTENT_FIXED)
        rows = (program->capacity[tensor->extent] + SNUG_ROW_TILE - 1) / SNUG_ROW_TILE * SNUG_ROW_TILE;
    return align(rows * tensor->cols * snug_dtype_size(tensor->dtype));
}

/* Whether op is part of the step before's update. */
static bool is_of_last_step(const struct snug_op *op) { return op->crosses && op->phase == SNUG_PHASE_FORWARD; }

/* Operation i of FORWARD uses tensor for the step before's update. A tensor that was fetched before FORWARD lives
 * across the end of the step: `last` is then before `first`. */
static void extend_lifetime(struct snug_tensor *tensor, int32_t i) {
    const bool wraps = tensor->first > i;
    if (tensor->first < 0) tensor->first = i;
    if (wraps || tensor->last < i) tensor->last = i;
}

/* first and last operation of every tensor. HEAD runs in chunks, so tensors that it reads from other phases live until
 * its end. What callers read after a chunk is kept. Tensors that forward writes and backward reads
 * are activations. */
void snug_find_lifetimes(struct snug_program *program) {
    int32_t head_begin = -1, head_end = -1;
    for (size_t i = 0; i < program->tensor_count; i++) program->tensors[i].first = program->tensors[i].last = -1;
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].phase == SNUG_PHASE_HEAD) {
            if (head_begin < 0) head_begin = (int32_t)i;
            head_end = (int32_t)i;
        }
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const int operands = snug_op_operands(op);
        if (is_of_last_step(op)) continue;
        for (int k = 0; k < operands; k++) {
            const int32_t number = op->operands[k];
            if (!number) continue;
            struct snug_tensor *tensor = &program->tensors[number];
            if (tensor->view) tensor = &program->tensors[tensor->base]; /* the tensor whose memory it shares */
            if (tensor->first < 0) tensor->first = (int32_t)i;
            tensor->last = (int32_t)i;
            const bool gradient = tensor->memory_class == SNUG_MEMORY_GRADIENTS; /* accumulated over the chunks */
            if (op->phase == SNUG_PHASE_HEAD && gradient && tensor->first > head_begin) tensor->first = head_begin;
            if (op->phase == SNUG_PHASE_HEAD &&
                (tensor->first < head_begin || gradient || number == program->logits || number == program->best))
                tensor->last = head_end;
            const struct snug_op *maker = &program->ops[tensor->first];
            const bool made = !snug_op_is(maker, SNUG_OP_CLEARS) && /* neither cleared nor a view */
                              (tensor->offloaded || !snug_op_is(maker, SNUG_OP_COPIES));
            if (!tensor->persistent && !gradient && op->phase >= SNUG_PHASE_BACKWARD &&
                maker->phase == SNUG_PHASE_FORWARD && made)
                tensor->memory_class = SNUG_MEMORY_ACTIVATIONS;
        }
    }
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        for (int k = 0; is_of_last_step(op) && k < snug_op_operands(op); k++) {
            struct snug_tensor *tensor = &program->tensors[op->operands[k]];
            if (tensor->view) tensor = &program->tensors[tensor->base];
            if (op->operands[k] && !tensor->persistent) extend_lifetime(tensor, (int32_t)i);
        }
    }
}

int64_t snug_find_live_bytes(const struct snug_program *program, int64_t live[], size_t count) {
    int64_t most = 0;
    for (size_t i = 1; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->persistent || t->offloaded || t->view || t->first < 0) continue;
        for (int32_t k = t->first; k <= t->last; k++) live[k] += snug_tensor_bytes(program, t);
    }
    for (size_t i = 0; i < count; i++)
        if (live[i] > most) most = live[i];
    return most;
}

/* A placed tensor. Copied from the tensors, because the search for a gap reads many of them for each one. */
struct placed {
    int64_t offset, end;
    int32_t first, last;
};

/* Most tensors live for few operations, so the search for a gap reads a list of those that are live near it: list k
 * has, by offset, the placed tensors that are live during the 2 * span operations from operation k * span on. The last
 * list has all, for lifetimes that are within no other list. */
enum { LISTS = 64, ALL = LISTS };

struct list {
    struct placed *items;
    size_t count;
    size_t readers; /* tensors whose gap is still going to be searched in it: without any, it is not kept */
};

struct placing {
    struct list lists[LISTS + 1];
    int32_t span;
};

static int larger_first(const void *a, const void *b) {
    const struct snug_tensor *x = *(struct snug_tensor *const *)a, *y = *(struct snug_tensor *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x > y) - (x < y); /* the order in the program: deterministic */
}

/* Operations for which a tensor lives, of `ops`. */
static int32_t lifetime(const struct snug_tensor *t, int32_t ops) {
    return t->last - t->first + (t->last < t->first ? ops : 0);
}

static int longer_first(const void *a, const void *b, void *ops) {
    const int32_t x = lifetime(*(struct snug_tensor *const *)a, *(const int32_t *)ops);
    const int32_t y = lifetime(*(struct snug_tensor *const *)b, *(const int32_t *)ops);
    return x != y ? (x < y ? 1 : -1) : larger_first(a, b);
}

/* Whether two tensors are live at the same time: both begin before the other one ends; of one that wraps around, either
 * is enough. Without branches, which no processor could predict here. */
static bool live_together(const struct snug_tensor *x, const struct placed *y) {
    const int wraps = (x->last < x->first) + (y->last < y->first);
    return (x->last >= y->first) + (y->last >= x->first) + wraps >= 2;
}

/* The lists that a tensor is in, apart from the last one: from *begin up to *end. */
static void find_lists(const struct placing *placing, const struct snug_tensor *tensor, int32_t *begin, int32_t *end) {
    const bool wraps = tensor->last < tensor->first;
    *begin = wraps || tensor->first < placing->span ? 0 : tensor->first / placing->span - 1;
    *end = wraps ? LISTS : tensor->last / placing->span + 1;
}

/* A list with all placed tensors that are live at the same time as tensor. */
static struct list *list_near(struct placing *placing, const struct snug_tensor *tensor) {
    const int32_t number = tensor->first / placing->span;
    const bool within = tensor->first <= tensor->last && tensor->last < (number + 2) * placing->span;
    return &placing->lists[within ? number : ALL];
}

static void insert(struct list *list, struct placed item) {
    size_t begin = 0, end = list->count;
    if (!list->readers) return;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (list->items[middle].offset > item.offset)
            end = middle;
        else
            begin = middle + 1;
    }
    memmove(&list->items[begin + 1], &list->items[begin], (list->count - begin) * sizeof item);
    list->items[begin] = item;
    list->count++;
}

/* The lowest gap for tensor between tensors that are live at the same time. */
static void place_one(struct placing *placing, struct snug_tensor *tensor, int64_t base) {
    struct list *near = list_near(placing, tensor);
    int64_t offset = base;
    near->readers--;
    for (size_t i = 0; i < near->count; i++) {
        const struct placed *other = &near->items[i];
        if (other->end <= offset || !live_together(tensor, other)) continue;
        if (other->offset >= offset + tensor->bytes) break;
        offset = other->end;
    }
    tensor->offset = offset;
    const struct placed item = {offset, offset + tensor->bytes, tensor->first, tensor->last};
    int32_t begin, end;
    find_lists(placing, tensor, &begin, &end);
    for (int32_t k = begin; k < end; k++) insert(&placing->lists[k], item);
    insert(&placing->lists[ALL], item);
}

/* Whether the tensor has its own bytes in the arena while the program runs. */
static bool is_transient(const struct snug_tensor *tensor) {
    return !tensor->persistent && !tensor->offloaded && !tensor->view && tensor->first >= 0;
}

/* The search for a placement of a program's transient tensors. */
struct search {
    struct snug_tensor **order, **rest; /* rest: scratch */
    size_t count;
    struct placed *placed; /* memory of the lists */
    struct placing placing;
    int64_t *change;          /* by operation: bytes that begin to live there minus bytes that died */
    int64_t *best;            /* by tensor: the offsets of the best placement */
    int64_t base, least, end; /* least: what is live at one time, from base on; end: of the best placement */
};

static snug_status open_search(const struct snug_program *program, int64_t base, struct search *s) {
    const size_t tensors = program->tensor_count, ops = program->op_count;
    *s = (struct search){.placing.span = (int32_t)ops / LISTS + 1, .base = base, .least = base, .end = INT64_MAX};
    RETURN_IF_ERROR(snug_alloc(program->ctx, 2 * tensors, sizeof(struct snug_tensor *), (void **)&s->order));
    s->rest = s->order + tensors;
    RETURN_IF_ERROR(snug_alloc(program->ctx, tensors, sizeof *s->best, (void **)&s->best));
    return snug_alloc(program->ctx, ops + 1, sizeof *s->change, (void **)&s->change);
}

static void list_transient(struct snug_program *program, struct search *s) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->tensor_count; i++) {
        struct snug_tensor *t = &program->tensors[i];
        if (!is_transient(t)) continue;
        s->order[s->count++] = t;
        if (t->last < t->first) bytes += t->bytes; /* live at the beginning */
        s->change[t->first] += t->bytes;
        s->change[t->last + 1] -= t->bytes;
    }
    for (size_t i = 0; i < program->op_count; i++) {
        bytes += s->change[i];
        if (s->base + bytes > s->least) s->least = s->base + bytes;
    }
}

/* Memory of the lists, for all tensors that are going to be in them. */
static snug_status open_lists(const struct snug_program *program, struct search *s) {
    struct list *lists = s->placing.lists;
    size_t items = 0;
    for (size_t i = 0; i < s->count; i++) {
        int32_t begin, end;
        find_lists(&s->placing, s->order[i], &begin, &end);
        for (int32_t k = begin; k < end; k++) lists[k].count++;
        items += (size_t)(end - begin) + 1;
    }
    lists[ALL].count = s->count;
    RETURN_IF_ERROR(snug_alloc(program->ctx, items, sizeof *s->placed, (void **)&s->placed));
    for (int k = 0; k <= ALL; k++) lists[k].items = k ? lists[k - 1].items + lists[k - 1].count : s->placed;
    return SNUG_OK;
}

/* Places the tensors in the current order. The last time, it stops where the placement is not better than the best one;
 * before, the next order is made from its offsets. */
static void try_order(struct search *s, const struct snug_program *program, bool last) {
    int64_t end = s->base;
    for (int k = 0; k <= ALL; k++) s->placing.lists[k].count = s->placing.lists[k].readers = 0;
    for (size_t i = 0; i < s->count; i++) list_near(&s->placing, s->order[i])->readers++;
    for (size_t i = 0; i < s->count; i++) {
        place_one(&s->placing, s->order[i], s->base);
        if (s->order[i]->offset + s->order[i]->bytes > end) end = s->order[i]->offset + s->order[i]->bytes;
        if (last && end >= s->end) return;
    }
    if (end >= s->end) return;
    s->end = end;
    for (size_t i = 0; i < s->count; i++) s->best[s->order[i] - program->tensors] = s->order[i]->offset;
}

/* Moves the tensors that end beyond the least size to the front. */
static void move_to_front(struct search *s) {
    size_t front = 0, rest = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->order[i]->offset + s->order[i]->bytes > s->least)
            s->order[front++] = s->order[i];
        else
            s->rest[rest++] = s->order[i];
    }
    memcpy(s->order + front, s->rest, rest * sizeof *s->rest);
}

static snug_status try_orders(struct search *s, const struct snug_program *program) {
    enum { ROUNDS = 8 };
    int32_t ops = (int32_t)program->op_count;
    RETURN_IF_ERROR(open_lists(program, s));
    qsort(s->order, s->count, sizeof(struct snug_tensor *), larger_first);
    try_order(s, program, false);
    for (int round = 0; round < ROUNDS && s->end - s->least > (s->least - s->base) / 100; round++) {
        if (round == 0)
            qsort_r(s->order, s->count, sizeof(struct snug_tensor *), longer_first, &ops);
        else
            move_to_front(s);
        try_order(s, program, round == ROUNDS - 1);
    }
    for (size_t i = 0; i < s->count; i++) s->order[i]->offset = s->best[s->order[i] - program->tensors];
    return SNUG_OK;
}

/* Places a program's transient tensors, if it has any, from base on; *end is the end of the last one. least: only finds
 * the least end. */
static snug_status place_transient(struct snug_program *program, int64_t base, bool least, int64_t *end) {
    struct search s;
    snug_status status = open_search(program, base, &s);
    if (status == SNUG_OK) list_transient(program, &s);
    if (status == SNUG_OK && s.count > 0 && !least) status = try_orders(&s, program);
    *end = s.count == 0 ? base : least ? s.least : s.end;
    free(s.order);
    free(s.placed);
    free(s.best);
    free(s.change);
    return status;
}

/* The maximum of the bytes of transient gradients at one time. */
static snug_status transient_gradients(const struct snug_program *program, int64_t *most) {
    int64_t *change, bytes = 0; /* by operation: bytes that begin to live there minus bytes that died before */
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count + 1, sizeof *change, (void **)&change));
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->memory_class != SNUG_MEMORY_GRADIENTS || !is_transient(t)) continue;
        change[t->first] += t->bytes;
        change[t->last + 1] -= t->bytes;
    }
    *most = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        bytes += change[i];
        if (bytes > *most) *most = bytes;
    }
    free(change);
    return SNUG_OK;
}

/* This tensor in an earlier program, or NULL. */
static const struct snug_tensor *shared_tensor(struct snug_program *const programs[], int index,
                                               const struct snug_tensor *tensor) {
    if (!tensor->identity) return NULL;
    for (int p = 0; p < index; p++)
        for (size_t i = 0; i < programs[p]->tensor_count; i++)
            if (programs[p]->tensors[i].identity == tensor->identity) return &programs[p]->tensors[i];
    return NULL;
}

static int64_t shared_offset(struct snug_program *const programs[], int index, const struct snug_tensor *tensor) {
    const struct snug_tensor *shared = shared_tensor(programs, index, tensor);
    return shared ? shared->offset : -1;
}

/* A tensor that programs of a run share must have one type, and be in the arena or the backing store of all. */
static snug_status check_shared(snug_context *ctx, struct snug_program *const programs[], int count) {
    for (int p = 1; p < count; p++)
        for (size_t i = 0; i < programs[p]->tensor_count; i++) {
            const struct snug_tensor *tensor = &programs[p]->tensors[i];
            const struct snug_tensor *shared = shared_tensor(programs, p, tensor);
            if (shared && (shared->offloaded != tensor->offloaded || shared->dtype != tensor->dtype))
                return snug_fail(ctx, SNUG_E_INTERNAL, "the programs of the run store %s in different ways",
                                 tensor->name);
        }
    return SNUG_OK;
}

/* A gradient that ranks sum with others in one call, if it is next to them. */
static bool is_small_gradient(const struct snug_tensor *tensor) {
    return tensor->memory_class == SNUG_MEMORY_GRADIENTS && tensor->bytes <= SNUG_NORM_CHUNK * (int64_t)sizeof(float);
}

/* Those of a class and a size of a program. */
static void place_some(struct snug_program *const programs[], int p, snug_memory_class memory_class, bool small,
                       struct snug_layout *layout) {
    for (size_t i = 0; i < programs[p]->tensor_count; i++) {
        struct snug_tensor *tensor = &programs[p]->tensors[i];
        if (!tensor->persistent || tensor->offloaded || tensor->memory_class != memory_class) continue;
        if (is_small_gradient(tensor) != small) continue;
        tensor->offset = shared_offset(programs, p, tensor);
        if (tensor->offset >= 0) continue;
        tensor->offset = layout->arena;
        layout->arena += tensor->bytes;
        layout->bytes[memory_class] += tensor->bytes;
    }
}

static void place_persistent(struct snug_program *const programs[], int count, struct snug_layout *layout) {
    for (int memory_class = 0; memory_class < SNUG_MEMORY_CLASS_COUNT; memory_class++)
        for (int p = 0; p < count; p++)
            for (int small = 0; small <= 1; small++)
                place_some(programs, p, (snug_memory_class)memory_class, small, layout);
}

/* Backing stores: of persistent tensors, which programs may share, and of activations. */
static void place_offloaded(struct snug_program *const programs[], int count, struct snug_layout *layout) {
    for (int p = 0; p < count; p++)
        for (size_t i = 0; i < programs[p]->tensor_count; i++) {
            struct snug_tensor *tensor = &programs[p]->tensors[i];
            if (!tensor->offloaded) continue;
            const int64_t bytes = (tensor->bytes + PAGE - 1) / PAGE * PAGE;
            tensor->offset = shared_offset(programs, p, tensor);
            if (tensor->offset >= 0) continue;
            tensor->offset = layout->offload_bytes;
            layout->offload_bytes += bytes;
            layout->offloaded[tensor->memory_class] += bytes;
        }
}

static void place_views(struct snug_program *program) {
    for (size_t i = 0; i < program->tensor_count; i++) {
        struct snug_tensor *tensor = &program->tensors[i];
        if (tensor->view)
            tensor->offset = program->tensors[tensor->base].offset + tensor->element * snug_dtype_size(tensor->dtype);
    }
}

/* Appends bytes to a block of *size bytes; returns their offset. */
static int64_t reserve(struct snug_layout *layout, int64_t *size, snug_memory_class memory_class, int64_t bytes) {
    const int64_t offset = *size;
    layout->bytes[memory_class] += align(bytes);
    *size += align(bytes);
    return offset;
}

/* Sizes come from a file and the command line. Each is bounded; here their sum is checked for overflow. */
static snug_status check_sum(snug_context *ctx, struct snug_program *const programs[], int count) {
    double sum = 0;
    for (int p = 0; p < count; p++)
        for (size_t i = 0; i < programs[p]->tensor_count; i++)
            sum += (double)snug_tensor_bytes(programs[p], &programs[p]->tensors[i]);
    if (sum < 0x1p60) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_DOES_NOT_FIT,
                     "this run would handle %.2g bytes, and no machine holds that: is a size in config.json, the batch "
                     "or --max_seq_length wrong?",
                     sum);
}

static snug_status place(snug_context *ctx, struct snug_program *const programs[], int count,
                         const struct snug_backend *backend, int threads, int64_t batch, int64_t function, bool least,
                         struct snug_layout *out) {
    *out = (struct snug_layout){0};
    RETURN_IF_ERROR(check_sum(ctx, programs, count));
    RETURN_IF_ERROR(check_shared(ctx, programs, count));
    int64_t workspace = 0, copy = 0;
    for (int p = 0; p < count; p++) {
        if (backend->batch(programs[p]) > copy) copy = backend->batch(programs[p]);
        for (size_t i = 0; i < programs[p]->tensor_count; i++)
            programs[p]->tensors[i].bytes = snug_tensor_bytes(programs[p], &programs[p]->tensors[i]);
        for (size_t i = 0; i < programs[p]->op_count; i++) {
            const int64_t bytes = backend->workspace(programs[p], &programs[p]->ops[i], threads);
            if (bytes > workspace) workspace = bytes;
        }
        snug_find_lifetimes(programs[p]);
    }
    place_persistent(programs, count, out);
    place_offloaded(programs, count, out);
    out->batch_offset = reserve(out, &out->host, SNUG_MEMORY_BATCH, batch);
    out->function_offset = reserve(out, &out->host, SNUG_MEMORY_FUNCTION, function);

    /* The transient parts of the programs overlap. The part of the first program consists of activations, all live when
     * backward starts, and the rest. If another program needs more, the excess is counted as function memory. */
    const int64_t base = out->arena;
    for (int p = 0; p < count; p++) {
        int64_t end, activations = 0;
        RETURN_IF_ERROR(place_transient(programs[p], base, least, &end));
        for (size_t i = 0; i < programs[p]->tensor_count; i++)
            if (programs[p]->tensors[i].memory_class == SNUG_MEMORY_ACTIVATIONS &&
                is_transient(&programs[p]->tensors[i]))
                activations += programs[p]->tensors[i].bytes;
        if (p == 0) {
            const int64_t rest = end - base - activations;
            int64_t gradients;
            RETURN_IF_ERROR(transient_gradients(programs[p], &gradients));
            out->bytes[SNUG_MEMORY_ACTIVATIONS] += activations;
            out->bytes[SNUG_MEMORY_GRADIENTS] += gradients < rest ? gradients : rest;
            out->bytes[SNUG_MEMORY_TEMPORARY] += gradients < rest ? rest - gradients : 0;
        } else if (end > out->arena) {
            out->bytes[SNUG_MEMORY_FUNCTION] += end - out->arena;
        }
        if (end > out->arena) out->arena = end;
        place_views(programs[p]);
    }
    /* Last, since ranks differ in their sizes, and have the same layout of tensors. */
    out->workspace_offset = reserve(out, &out->arena, SNUG_MEMORY_WORKSPACE, workspace);
    out->copy_offset = reserve(out, &out->arena, SNUG_MEMORY_BATCH, copy);
    out->total = out->arena + out->host;
    return SNUG_OK;
}

snug_status snug_stage_place(snug_context *ctx, struct snug_program *const programs[], int count,
                             const struct snug_backend *backend, int threads, int64_t batch, int64_t function,
                             struct snug_layout *out) {
    return place(ctx, programs, count, backend, threads, batch, function, false, out);
}

snug_status snug_find_least_layout(snug_context *ctx, struct snug_program *const programs[], int count,
                                   const struct snug_backend *backend, int threads, int64_t batch, int64_t function,
                                   struct snug_layout *out) {
    return place(ctx, programs, count, backend, threads, batch, function, true, out);
}
