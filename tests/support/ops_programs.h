/* SPDX-License-Identifier: Apache-2.0 */
/* One program for each operation: the forward operation and its backward, in execution order. */
#ifndef SNUG_TESTS_OPS_PROGRAMS_H
#define SNUG_TESTS_OPS_PROGRAMS_H

#include "ops.h"
#include "optim/loss_scale.h"

#define T SNUG_EXTENT_TOKENS
#define B SNUG_EXTENT_SEQUENCES
#define R SNUG_EXTENT_ROWS
#define FIXED SNUG_EXTENT_FIXED

static const float p_of[3] = {0, 0.3f, 0.55f};

/* Distinct ids of the batch. */
static inline int64_t ops_distinct(const struct ops *f) {
    int64_t count = 0;
    for (int64_t i = 0; i < f->batch.tokens; i++)
        count += i == 0 || f->batch.ids[f->batch.by_id[i]] != f->batch.ids[f->batch.by_id[i - 1]];
    return count;
}

/* An index with room for capacity rows; the last row of the table has a gradient already. */
static inline int32_t ops_index(struct ops *f, int64_t capacity) {
    const int64_t rows = f->shape->vocabulary;
    const int32_t index = ops_tensor(f, SNUG_I32, FIXED, 1, 1 + capacity + rows);
    ops_fill(f, index, -1);
    ops_set(f, index, 0, 1);
    ops_set(f, index, 1, (double)rows - 1);
    ops_set(f, index, capacity + rows, 0);
    return index;
}

/* 0: three tables. 1: tables in bf16. 2: no types, and an id without a gradient. 3: no types, a scale. 4: word
   embeddings alone, a scale. 5: the table of words is frozen. 6: positions do not count the tokens of an id, the
   padding token's. 7, 8: the word table's gradient holds only the rows that have one; with a scale. */
enum { EMBED_VARIANTS = 9, EMBED_PADDED = 6, EMBED_ROWS = 7 };
static inline void build_embed(struct ops *f, int variant) {
    const struct ops_shape *s = f->shape;
    const enum snug_dtype tables = variant == 1 ? ops_copy_type(f) : SNUG_F32, x = f->program.compute;
    const int32_t first = variant == EMBED_PADDED && f->batch.tokens ? f->batch.ids[0] + 1 : 0;
    const int64_t positions = first + f->batch.longest + 3, room = ops_distinct(f) + 1;
    const bool types = variant < 2 || variant > 4, rows = variant >= EMBED_ROWS;
    struct snug_embed e = {.scale = variant == 3 || variant == 4 || variant == 8 ? 5.5f : 1,
                           .padding = variant == 2 && f->batch.tokens ? f->batch.ids[0] : -1,
                           .first_position = first};
    for (int64_t i = 0; i < f->batch.sequences; i++)
        snug_batch_number_positions(&f->batch, f->batch.offsets[i], f->batch.offsets[i + 1], first);
    e.word = ops_source(f, tables, FIXED, s->vocabulary, s->h);
    if (variant != 4) e.position = ops_source(f, tables, FIXED, positions, s->h);
    if (types) e.type = ops_source(f, tables, FIXED, s->types, s->h);
    e.s = ops_tensor(f, x, T, 0, s->h);
    struct snug_embed_backward d = {.scale = e.scale, .padding = e.padding, .first_position = first};
    d.ds = ops_source(f, x, T, 0, s->h);
    if (variant != 5) d.dword = ops_source(f, SNUG_F32, FIXED, rows ? room : s->vocabulary, s->h);
    if (e.position) d.dposition = ops_source(f, SNUG_F32, FIXED, positions, s->h);
    if (types) d.dtype = ops_source(f, SNUG_F32, FIXED, s->types, s->h);
    if (rows) d.index = ops_index(f, room);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_EMBED, .embed = e});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_EMBED_BACKWARD, .embed_backward = d});
    if (rows) return;
    f->y = e.s;
    f->dy = d.ds;
    if (tables != SNUG_F32) return; /* finite differences are finer than bf16, and have no padding */
    if (e.padding < 0) ops_pair(f, e.word, d.dword);
    if (!first) ops_pair(f, e.position, d.dposition);
    ops_pair(f, e.type, d.dtype);
}

/* 0: over tokens. 1: the decoder: over loss positions, fp32 logits, no bias. 2: over sequences, dx added to. 3 … 5: the
   same with a weight in bf16, whatever the compute type. 6, 7: as 0 with a frozen bias or weight. 8, 9: with an addend,
   over sequences in place. 10 … 12: as 0 … 2 with a transposed weight. 13 … 18: as 0 … 2, and with a transposed weight,
   of columns of x. */
enum { LINEAR_VARIANTS = 19, LINEAR_FROZEN = 6, LINEAR_ADDEND = 8, LINEAR_TRANSPOSED = 10, LINEAR_COLUMNS = 13 };
static inline void build_linear(struct ops *f, int variant) {
    const struct ops_shape *s = f->shape;
    const bool narrow = variant >= LINEAR_COLUMNS;
    if (narrow) variant -= LINEAR_COLUMNS;
    if (narrow && variant > 2) variant += LINEAR_TRANSPOSED - 3;
    const bool bf16 = variant / 3 == 1, transposed = variant >= LINEAR_TRANSPOSED;
    const bool addend = variant >= LINEAR_ADDEND && !transposed;
    const enum snug_dtype type = f->program.compute;
    const int form = variant < 6 ? variant % 3 : transposed ? variant - LINEAR_TRANSPOSED : variant == 9 ? 2 : 0;
    const enum snug_extent extent = form == 0 ? T : form == 1 ? R : B;
    const int64_t outputs = form == 1 ? s->vocabulary : s->outputs;
    const int64_t inputs = narrow ? s->h - s->h / 3 : s->h;
    struct snug_linear l = {.x = ops_source(f, type, extent, 0, s->h), .transposed = transposed};
    if (narrow) l.of_x = (struct snug_column_range){(int32_t)(s->h - inputs), (int32_t)inputs};
    const int64_t rows = transposed ? inputs : outputs, cols = transposed ? outputs : inputs; /* of the weight */
    l.w = ops_source(f, bf16 ? SNUG_BF16 : type, FIXED, rows, cols);
    if (form != 1) l.b = ops_source(f, SNUG_F32, FIXED, 1, outputs);
    if (addend) l.addend = ops_source(f, type, extent, 0, outputs);
    l.y = variant == 9 ? l.addend : ops_tensor(f, form == 1 ? SNUG_F32 : type, extent, 0, outputs);
    const int32_t dy = ops_source(f, type, extent, 0, outputs), dx = ops_source(f, type, extent, 0, s->h);
    const int32_t dw = variant == 7 ? 0 : ops_source(f, SNUG_F32, FIXED, rows, cols);
    const int32_t db = form == 1 || variant == 6 ? 0 : ops_source(f, SNUG_F32, FIXED, 1, outputs);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LINEAR, .linear = l});
    ops_add(f,
            (struct snug_op){.kind = SNUG_OP_LINEAR_DX,
                             .accumulate = form == 2,
                             .linear_dx = {.dy = dy, .w = l.w, .dx = dx, .transposed = transposed, .of_dx = l.of_x}});
    ops_add(f, (struct snug_op){
                   .kind = SNUG_OP_LINEAR_DW,
                   .linear_dw = {.dy = dy, .x = l.x, .dw = dw, .db = db, .transposed = transposed, .of_x = l.of_x}});
    if (variant == 9) return; /* a second run adds again */
    f->y = l.y;
    f->dy = dy;
    if (form != 2 && !narrow) ops_pair(f, l.x, dx);
    if (!bf16) ops_pair(f, l.w, dw); /* finite differences are finer than bf16 */
    ops_pair(f, l.b, db);
    if (addend) ops_pair(f, l.addend, dy);
}

/* 1: a table in 16 bits. */
enum { TABLE_VARIANTS = 2 };
static inline void build_table(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute;
    const int64_t rows = f->shape->outputs, h = f->shape->h;
    const int32_t table = ops_source(f, variant ? ops_copy_type(f) : SNUG_F32, FIXED, rows, h),
                  y = ops_tensor(f, type, FIXED, rows, h), dy = ops_source(f, type, FIXED, rows, h),
                  dtable = ops_source(f, SNUG_F32, FIXED, rows, h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_TABLE, .table = {.table = table, .y = y}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_TABLE_BACKWARD, .table_backward = {.dy = dy, .dtable = dtable}});
    f->y = y;
    f->dy = dy;
    if (!variant) ops_pair(f, table, dtable); /* finite differences are finer than bf16 */
}

/* 1: dropout. 2: high dropout. 3: a window smaller than most sequences, dropout. 4: a window larger than many. 5: RoPE.
   6: windows and RoPE, as ModernBERT's local layers. 7: a bias, as MPNet. 8: dropout and a bias of few buckets. 9: a
   frozen bias. 10: all of these. 11: as 8 with a bias in bf16. Heads of an odd size have no RoPE. 12: causal. 13:
   causal, one key/value head, q, k and v apart. 14: a window to both sides, dropout, half as many key/value heads, k
   and v in a tensor of their own. 15: a causal window, a cap, half as many key/value heads. 16: a cap, a bias, a scale,
   dropout, one key/value head. 17: position keys and queries, as DeBERTa-v3. 18: the same with dropout, few buckets, q,
   k and v apart. 19: position keys, without buckets. 20: frozen position queries, dropout. 21: frozen position keys,
   and position queries without buckets. */
enum { ATTENTION_POSITIONS = 17, ATTENTION_VARIANTS = 22 };
enum attention_layout { ATTENTION_TOGETHER, ATTENTION_APART, ATTENTION_KEYS_APART };
struct attention_case {
    float p, softcap, scale;
    int32_t before, after, buckets, share; /* share: query heads of a key/value head, or heads / share = 1 */
    enum attention_layout layout;
    int32_t span, farthest; /* of position keys and queries */
    enum { WITH_KEYS = 1, WITH_QUERIES = 2, FROZEN_KEYS = 4, FROZEN_QUERIES = 8 } positions;
};
static inline struct attention_case attention_case(int variant) {
#define ALL .before = -1, .after = -1
#define WITHIN(window) .before = (window), .after = (window)
    static const struct attention_case cases[ATTENTION_VARIANTS] = {
        [0] = {ALL},
        [1] = {ALL, .p = 0.3f},
        [2] = {ALL, .p = 0.55f},
        [3] = {WITHIN(3), .p = 0.3f},
        [4] = {WITHIN(64)},
        [5] = {ALL},
        [6] = {WITHIN(16), .p = 0.3f},
        [7] = {ALL, .buckets = 32},
        [8] = {ALL, .p = 0.3f, .buckets = 8},
        [9] = {ALL, .buckets = 32},
        [10] = {WITHIN(33), .p = 0.3f, .buckets = 16},
        [11] = {ALL, .p = 0.3f, .buckets = 8},
        [12] = {.before = -1, .after = 0},
        [13] = {.before = -1, .after = 0, .share = 64, .layout = ATTENTION_APART},
        [14] = {.before = 9, .after = 40, .p = 0.3f, .share = 2, .layout = ATTENTION_KEYS_APART},
        [15] = {.before = 20, .after = 0, .softcap = 0.5f, .share = 2},
        [16] = {ALL, .p = 0.3f, .softcap = 0.25f, .scale = 0.2f, .buckets = 8, .share = 64},
        [17] = {ALL, .scale = 0.1f, .span = 64, .farthest = 512, .positions = WITH_KEYS | WITH_QUERIES},
        [18] = {ALL, .p = 0.3f, .span = 4, .farthest = 8, .positions = WITH_KEYS | WITH_QUERIES,
                .layout = ATTENTION_APART},
        [19] = {ALL, .span = 50, .positions = WITH_KEYS},
        [20] = {ALL, .p = 0.3f, .span = 5, .farthest = 20, .positions = WITH_QUERIES | FROZEN_QUERIES},
        [21] = {ALL, .span = 3, .positions = WITH_KEYS | WITH_QUERIES | FROZEN_KEYS}};
#undef ALL
#undef WITHIN
    return cases[variant];
}

/* The operands in the tensors of a layout; kv: channels of the keys. */
static inline void attention_operands(struct ops *f, enum attention_layout layout, int64_t kv, struct snug_attention *a,
                                      struct snug_attention_backward *b) {
    const enum snug_dtype type = f->program.compute;
    const int64_t h = f->shape->h;
    switch (layout) {
    case ATTENTION_APART:
        a->q = ops_source(f, type, T, 0, h);
        a->k = ops_source(f, type, T, 0, kv);
        a->v = ops_source(f, type, T, 0, kv);
        b->dq = ops_tensor(f, type, T, 0, h);
        b->dk = ops_tensor(f, type, T, 0, kv);
        b->dv = ops_tensor(f, type, T, 0, kv);
        break;
    case ATTENTION_KEYS_APART:
        a->q = ops_source(f, type, T, 0, h);
        a->k = a->v = ops_source(f, type, T, 0, 2 * kv);
        b->dq = ops_tensor(f, type, T, 0, h);
        b->dk = b->dv = ops_tensor(f, type, T, 0, 2 * kv);
        a->form.column[2] = (int32_t)kv;
        break;
    default:
        a->q = a->k = a->v = ops_source(f, type, T, 0, h + 2 * kv);
        b->dq = b->dk = b->dv = ops_tensor(f, type, T, 0, h + 2 * kv);
        a->form.column[1] = (int32_t)h;
        a->form.column[2] = (int32_t)(h + kv);
    }
    b->q = a->q;
    b->k = a->k;
    b->v = a->v;
}

/* Position keys and queries, and their gradients. */
static inline void position_operands(struct ops *f, const struct attention_case *form, struct snug_attention *a,
                                     struct snug_attention_backward *b) {
    const enum snug_dtype type = f->program.compute;
    const int64_t h = f->shape->h, rows = 2 * (int64_t)form->span;
    if (form->positions & WITH_KEYS) b->pk = a->pk = ops_source(f, type, FIXED, rows, h);
    if (form->positions & WITH_QUERIES) b->pq = a->pq = ops_source(f, type, FIXED, rows, h);
    if (a->pk && !(form->positions & FROZEN_KEYS)) b->dpk = ops_tensor(f, type, FIXED, rows, h);
    if (a->pq && !(form->positions & FROZEN_QUERIES)) b->dpq = ops_tensor(f, type, FIXED, rows, h);
    a->form.farthest = form->farthest;
}

static inline void build_attention(struct ops *f, int variant) {
    const struct attention_case form = attention_case(variant);
    const int64_t h = f->shape->h, d = h / f->shape->heads;
    const int32_t heads = f->shape->heads, buckets = form.buckets, share = form.share;
    const int32_t kv_heads = share > heads ? 1 : share && heads % share == 0 ? heads / share : heads;
    const float p = form.p, scale = form.scale;
    const enum snug_dtype type = f->program.compute;
    const int64_t kv = d * kv_heads;
    struct snug_attention a = {.form = {.heads = heads,
                                        .kv_heads = kv_heads,
                                        .head_dim = (int32_t)d,
                                        .before = form.before,
                                        .after = form.after,
                                        .scale = scale > 0 ? scale : 1 / sqrtf((float)d),
                                        .softcap = form.softcap}};
    struct snug_attention_backward b = {0};
    attention_operands(f, form.layout, kv, &a, &b);
    position_operands(f, &form, &a, &b);
    const bool low = variant == 11;
    if (buckets) a.bias = ops_source(f, low ? SNUG_BF16 : SNUG_F32, FIXED, buckets, heads);
    a.o = ops_tensor(f, type, T, 0, h);
    a.lse = ops_tensor(f, SNUG_F32, T, 0, heads);
    b.o = a.o;
    b.lse = a.lse;
    b.bias = a.bias;
    b.form = a.form;
    b.dout = ops_source(f, type, T, 0, h);
    if (buckets && variant != 9) b.dbias = ops_source(f, SNUG_F32, FIXED, buckets, heads);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ATTENTION, .p = p, .site = 8, .attention = a});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ATTENTION_BACKWARD, .p = p, .site = 8, .attention_backward = b});
    f->y = a.o;
    f->dy = b.dout;
    ops_pair(f, a.q, b.dq);
    if (a.k != a.q) ops_pair(f, a.k, b.dk);
    if (a.v != a.q && a.v != a.k) ops_pair(f, a.v, b.dv);
    if (!low) ops_pair(f, a.bias, b.dbias); /* finite differences are finer than bf16 */
    if (b.dpk) ops_pair(f, a.pk, b.dpk);
    if (b.dpq) ops_pair(f, a.pq, b.dpq);
}

/* 0: no dropout, no dz. 1: dropout. 2: dropout, ds in place of dy. 3: over loss positions. 4: no beta. 5: dropout, an
   addend. 6: dropout, ds in place of the addend. 7: frozen gamma and beta. 8: frozen beta. 9: RMS, no beta. 10: RMS
   with a unit offset, dropout, an addend. 11: dropout, over last tokens. 12: inference, no s. 13: the same with RMS. */
enum { RESIDUAL_NORM_VARIANTS = 14, RESIDUAL_NORM_TRAINING = 12 };
static inline void build_residual_norm(struct ops *f, int variant) {
    const int64_t h = f->shape->h;
    const enum snug_dtype type = f->program.compute;
    const enum snug_extent extent = variant == 3 ? R : variant == 11 ? B : T;
    const bool addend = variant == 5 || variant == 6 || variant == 10,
               rms = variant == 9 || variant == 10 || variant == 13;
    const float p = p_of[variant != 0];
    struct snug_residual_norm n = {.form = {.eps = rms ? 1e-5f : 1e-12f, .rms = rms, .unit_offset = variant == 10}};
    f->pooling = SNUG_POOL_LAST;
    n.z = ops_source(f, type, extent, 0, h);
    n.x = ops_source(f, type, extent, 0, h);
    n.gamma = ops_source(f, SNUG_F32, FIXED, 1, h);
    if (variant != 4 && !rms) n.beta = ops_source(f, SNUG_F32, FIXED, 1, h);
    if (variant < RESIDUAL_NORM_TRAINING) n.s = ops_tensor(f, type, extent, 0, h);
    n.y = ops_tensor(f, type, extent, 0, h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_RESIDUAL_NORM, .p = p, .site = 9, .residual_norm = n});
    if (variant >= RESIDUAL_NORM_TRAINING) return;
    struct snug_norm_backward d = {.s = n.s, .gamma = n.gamma, .form = n.form};
    d.dy = ops_source(f, type, extent, 0, h);
    if (addend) d.addend = ops_source(f, type, extent, 0, h);
    d.ds = variant == 2 ? d.dy : variant == 6 ? d.addend : ops_tensor(f, type, extent, 0, h);
    if (variant != 0) d.dz = ops_tensor(f, type, extent, 0, h);
    if (variant != 7) d.dgamma = ops_source(f, SNUG_F32, FIXED, 1, h);
    if (n.beta && variant < 7) d.dbeta = ops_source(f, SNUG_F32, FIXED, 1, h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORM_BACKWARD, .p = p, .site = 9, .norm_backward = d});
    if (variant == 2) return; /* finite differences need dy */
    f->y = n.y;
    f->dy = d.dy;
    if (!addend) { /* the gradient of another function */
        ops_pair(f, n.z, variant == 0 ? d.ds : d.dz);
        ops_pair(f, n.x, d.ds);
    }
    ops_pair(f, n.gamma, d.dgamma);
    ops_pair(f, n.beta, d.dbeta);
}

/* 0: over tokens. 1: over loss positions, a large eps. 2: no beta. 3: an addend. 4: ds in place of the addend, no beta.
   5: an addend, frozen gamma and beta. 6: frozen gamma. 7: dy, the addend and ds are one tensor. 8: dropout, ds in
   place of dy, as of embeddings. 9: dropout, an addend. 10: RMS. 11: RMS with beta and a unit offset. 12: LayerNorm
   with a unit offset, dropout. */
enum { NORM_VARIANTS = 13 };
static inline void build_norm(struct ops *f, int variant) {
    const int64_t h = f->shape->h, width = variant >= 13 ? h / f->shape->heads : h; /* of gamma */
    const enum snug_dtype type = f->program.compute;
    const enum snug_extent extent = variant == 1 ? R : T;
    const bool addend = (variant >= 3 && variant <= 5) || variant == 9 || variant == 14,
               drops = variant == 8 || variant == 9 || variant == 12;
    struct snug_norm n = {.form = {.eps = variant == 1 ? 0.125f : 1e-5f,
                                   .rms = variant == 10 || variant == 11 || variant == 13,
                                   .unit_offset = variant == 11 || variant == 12,
                                   .parts = variant >= 13 ? f->shape->heads : 0}};
    n.s = ops_source(f, type, extent, 0, h);
    n.y = ops_tensor(f, type, extent, 0, h);
    n.gamma = ops_source(f, SNUG_F32, FIXED, 1, width);
    if (variant != 2 && variant != 4 && variant != 10 && variant != 13)
        n.beta = ops_source(f, SNUG_F32, FIXED, 1, width);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORM, .p = p_of[drops], .site = 10, .norm = n});
    struct snug_norm_backward d = {.s = n.s, .gamma = n.gamma, .form = n.form, .drops_y = drops};
    d.dy = ops_source(f, type, extent, 0, h);
    if (addend) d.addend = ops_source(f, type, extent, 0, h);
    if (variant == 7) d.addend = d.dy;
    d.ds = variant == 4 || variant == 7 ? d.addend : variant == 8 ? d.dy : ops_tensor(f, type, extent, 0, h);
    if (variant != 5 && variant != 6) d.dgamma = ops_source(f, SNUG_F32, FIXED, 1, width);
    if (n.beta && variant != 5) d.dbeta = ops_source(f, SNUG_F32, FIXED, 1, width);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORM_BACKWARD, .p = p_of[drops], .site = 10, .norm_backward = d});
    if (variant == 7 || variant == 8) return; /* finite differences need dy */
    f->y = n.y;
    f->dy = d.dy;
    if (!addend) ops_pair(f, n.s, d.ds);
    ops_pair(f, n.gamma, d.dgamma);
    ops_pair(f, n.beta, d.dbeta);
}

/* variant / 2 is the function; odd ones work in place, forward or (over loss positions) backward. The second ten have a
 * bias.
 */
static inline void build_activation(struct ops *f, int variant) {
    enum snug_dtype type = f->program.compute;
    int32_t bias = variant < 10 ? 0 : ops_source(f, SNUG_F32, FIXED, 1, f->shape->outputs);
    variant %= 10;
    enum snug_activation activation = (enum snug_activation)(variant / 2);
    bool in_place = variant % 2, in_place_backward = in_place && activation % 2;
    enum snug_extent extent = in_place_backward ? R : T;
    int32_t u = ops_tensor(f, type, extent, 0, f->shape->outputs);
    for (int64_t i = 0; i < ops_count(f, u); i++) { /* with the bias in [-4, 4), away from ReLU's kink */
        double value = 4 * ops_value(5, (uint64_t)i);
        if (fabs(value) < 0.125) value = 0.125;
        ops_set(f, u, i, !bias ? value : value - ops_get(f, f->arena, bias, i % f->shape->outputs));
    }
    int32_t a = in_place && !in_place_backward ? u : ops_tensor(f, type, extent, 0, f->shape->outputs);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ACTIVATION,
                                .activation = {.u = u, .b = bias, .a = a, .function = activation}});
    if (a == u) return;
    int32_t da = ops_source(f, type, extent, 0, f->shape->outputs);
    int32_t du = in_place ? da : ops_tensor(f, type, extent, 0, f->shape->outputs);
    int32_t again = in_place ? u : activation % 2 ? 0 : ops_tensor(f, type, extent, 0, f->shape->outputs);
    ops_add(f, (struct snug_op){
                   .kind = SNUG_OP_ACTIVATION_BACKWARD,
                   .activation_backward = {.da = da, .u = u, .b = bias, .du = du, .a = again, .function = activation}});
    if (in_place) return;
    f->y = a;
    f->dy = da;
    ops_pair(f, u, du);
}

/* variant is the function, over halves of a tensor; from 5 on, over two tensors. */
enum { GLU_APART = 5, GLU_VARIANTS = 2 * GLU_APART };
static inline void build_glu(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute;
    const bool apart = variant >= GLU_APART;
    const enum snug_activation function = (enum snug_activation)(variant % GLU_APART);
    const int64_t m = f->shape->outputs, width = apart ? m : 2 * m;
    const int32_t u = ops_tensor(f, type, T, 0, width), v = apart ? ops_source(f, type, T, 0, m) : 0,
                  a = ops_tensor(f, type, T, 0, m);
    for (int64_t i = 0; i < ops_count(f, u); i++) { /* in [-4, 4), away from ReLU's kink */
        const double value = 4 * ops_value(5, (uint64_t)i);
        ops_set(f, u, i, fabs(value) < 0.125 ? 0.125 : value);
    }
    ops_add(f, (struct snug_op){.kind = SNUG_OP_GLU, .glu = {.u = u, .v = v, .a = a, .function = function}});
    const int32_t da = ops_source(f, type, T, 0, m), du = ops_tensor(f, type, T, 0, width),
                  dv = apart ? ops_tensor(f, type, T, 0, m) : 0;
    ops_add(f, (struct snug_op){.kind = SNUG_OP_GLU_BACKWARD,
                                .glu_backward = {.da = da, .u = u, .v = v, .du = du, .dv = dv, .function = function}});
    f->y = a;
    f->dy = da;
    ops_pair(f, u, du);
    if (apart) ops_pair(f, v, dv);
}

/* 0: all columns of a tensor, halves. 1: q and k of a fused tensor, in place. 2: neighbours, a factor, in place back.
   3: the first channels of each head, columns after the heads. 4: over loss positions, neighbours of the first
   channels. 5: by a factor that grows with the position. */
enum { ROTATE_VARIANTS = 6 };
static inline void build_rotate(struct ops *f, int variant) {
    static struct snug_rotation rotation;
    const int32_t heads = f->shape->heads, d = (int32_t)(f->shape->h / heads);
    const enum snug_extent extent = variant == 4 ? R : T;
    const int64_t cols = f->shape->h * (variant == 1 ? 3 : 1) + (variant == 3 ? 2 : 0);
    const bool in_place = variant == 1 || variant == 2;
    rotation = (struct snug_rotation){.pairs = variant == 3 || variant == 4 ? (d + 3) / 4 : d / 2,
                                      .neighbours = variant % 2 == 0 && variant,
                                      .factor = 1};
    if (variant == 5) rotation.growth = 0.5, rotation.growth_from = 3;
    if (variant == 2) rotation.factor = 1.25;
    if (d < 2) rotation.pairs = 0;
    for (int32_t c = 0; c < rotation.pairs; c++) rotation.frequencies[c] = pow(10000, -2.0 * c / d);
    f->program.rotations = &rotation;
    f->program.rotation_count = 1;
    const int32_t x = ops_source(f, f->program.compute, extent, 0, cols);
    struct snug_op op = {
        .kind = SNUG_OP_ROTATE,
        .rotate = {.x = x, .y = x, .heads = heads * (variant == 1 ? 2 : 1), .head_dim = d, .back = variant == 2}};
    if (!in_place) op.rotate.y = ops_tensor(f, f->program.compute, extent, 0, cols);
    ops_add(f, op);
    if (in_place) return;
    f->y = op.rotate.y;
    f->dy = op.rotate.x = ops_source(f, f->program.compute, extent, 0, cols);
    op.rotate.y = ops_tensor(f, f->program.compute, extent, 0, cols);
    op.rotate.back = true;
    ops_add(f, op);
    ops_pair(f, x, op.rotate.y);
}

/* 0: dropout. 1: in place. 2: none. 3: over last tokens. 4: over the rows of a table. */
static inline void build_dropout(struct ops *f, int variant) {
    enum snug_dtype type = f->program.compute;
    const enum snug_extent extent = variant == 3 ? B : variant == 4 ? FIXED : R;
    f->pooling = SNUG_POOL_LAST;
    int32_t x = ops_source(f, type, extent, 9, f->shape->h);
    int32_t y = variant == 1 ? x : ops_tensor(f, type, extent, 9, f->shape->h);
    float p = p_of[variant != 2];
    ops_add(f, (struct snug_op){.kind = SNUG_OP_DROPOUT, .p = p, .site = 11, .dropout = {.x = x, .y = y}});
    if (variant == 1) return;
    int32_t dy = ops_source(f, type, extent, 9, f->shape->h), dx = ops_tensor(f, type, extent, 9, f->shape->h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_DROPOUT, .p = p, .site = 11, .dropout = {.x = dy, .y = dx}});
    f->y = y;
    f->dy = dy;
    ops_pair(f, x, dx);
}

/* 0: with an addend. 1: without, over loss positions. 2: in place. 3: a sum. From SCALE_CAPPED on with a cap: 4: of
   fp32 logits, whose gradient has the compute type. 5: in place. */
enum { SCALE_CAPPED = 4, SCALE_VARIANTS = 6 };
static inline void build_scale(struct ops *f, int variant) {
    const bool capped = variant >= SCALE_CAPPED, in_place = variant == 2 || variant == 5;
    const enum snug_dtype type = f->program.compute, of_x = capped ? SNUG_F32 : type;
    const enum snug_extent extent = variant == 0 || variant == 3 ? T : R;
    const int64_t cols = f->shape->h;
    const int32_t x = ops_source(f, of_x, extent, 0, cols);
    struct snug_scale s = {.x = x, .y = x, .scale = variant == 3 ? 1.0f : 0.75f, .softcap = capped ? 1.5f : 0};
    if (!in_place) s.y = ops_tensor(f, of_x, extent, 0, cols);
    if (variant == 0 || variant == 3) s.addend = ops_source(f, type, extent, 0, cols);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_SCALE, .scale = s});
    if (in_place && !capped) return;
    const int32_t dy = ops_source(f, type, extent, 0, cols), dx = in_place ? dy : ops_tensor(f, type, extent, 0, cols);
    if (capped)
        ops_add(f, (struct snug_op){
                       .kind = SNUG_OP_SCALE_BACKWARD,
                       .scale_backward = {.dy = dy, .y = s.y, .dx = dx, .scale = s.scale, .softcap = s.softcap}});
    else
        ops_add(f, (struct snug_op){.kind = SNUG_OP_SCALE, .scale = {.x = dy, .y = dx, .scale = s.scale}});
    if (in_place) return;
    f->y = s.y;
    f->dy = dy;
    ops_pair(f, x, dx);
}

/* 0: over tokens. 1: over loss positions. 2: in fp32, whatever the compute type. */
enum { ADD_VARIANTS = 3 };
static inline void build_add(struct ops *f, int variant) {
    const enum snug_dtype type = variant == 2 ? SNUG_F32 : f->program.compute;
    const enum snug_extent extent = variant == 1 ? R : T;
    const int32_t x = ops_source(f, type, extent, 0, f->shape->h), y = ops_source(f, type, extent, 0, f->shape->h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ADD, .add = {.x = x, .y = y}});
}

/* 0: of length 1. 1: in another type only. 2: all F32. 3: rows of zeros. 4: F32 in, the compute type out. */
enum { NORMALIZE_VARIANTS = 5 };
static inline void build_normalize(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute, of_x = variant == 2 || variant == 4 ? SNUG_F32 : type,
                          of_y = variant == 4 ? type : SNUG_F32;
    const int64_t cols = f->shape->h;
    const int32_t x = variant == 3 ? ops_tensor(f, of_x, R, 0, cols) : ops_source(f, of_x, R, 0, cols),
                  y = ops_tensor(f, of_y, R, 0, cols);
    const int32_t dy = ops_source(f, of_y, R, 0, cols), dx = ops_tensor(f, of_x, R, 0, cols);
    for (int64_t i = 0; variant == 3 && i < ops_count(f, x); i++) ops_set(f, x, i, 0);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORMALIZE, .normalize = {.x = x, .y = y, .unit = variant != 1}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORMALIZE_BACKWARD,
                                .normalize_backward = {.dy = dy, .x = x, .dx = dx, .unit = variant != 1}});
    if (variant == 3) return; /* where the derivative is not one */
    f->y = y;
    f->dy = dy;
    ops_pair(f, x, dx);
}

/* 0: any logits. 1: equal ones. 2: NaN and infinities. */
enum { BEST_VARIANTS = 3 };
static inline void build_best(struct ops *f, int variant) {
    const int64_t classes = f->shape->classes;
    const int32_t logits = ops_tensor(f, SNUG_F32, R, 0, classes), best = ops_tensor(f, SNUG_I32, R, 0, 1);
    for (int64_t i = 0; i < ops_count(f, logits); i++) {
        const double value = 4 * ops_value(6, (uint64_t)i);
        const uint32_t word = ops_word(7, (uint64_t)i);
        const bool here = variant == 2 && word % (uint32_t)classes == 0;
        ops_set(f, logits, i,
                here           ? (word % 3 ? (word % 2 ? INFINITY : -INFINITY) : NAN)
                : variant == 1 ? floor(value)
                               : value);
    }
    ops_add(f, (struct snug_op){.kind = SNUG_OP_BEST, .best = {.logits = logits, .best = best}});
}

/* 0 … 2: the kinds. 3: label smoothing. 4: the gradient in place of the logits. 5: evaluation, no gradient. 6: as 0, in
   a program with a loss scale. 7 … 9: class weights, as 0, 1 and 3. 10 … 12: as 3 … 5 with logits in the compute type.
 */
enum { LOSS_VARIANTS = 6, LOSS_WEIGHTED = 7, LOSS_WEIGHTED_END = 10, LOSS_LOW = 10, LOSS_LOW_END = 13 };
static inline void build_loss(struct ops *f, int variant) {
    const bool low = variant >= LOSS_LOW, weighted = variant >= LOSS_WEIGHTED && !low;
    if (weighted) variant = variant == LOSS_WEIGHTED_END - 1 ? 3 : variant - LOSS_WEIGHTED;
    if (low) variant = (int[]){3, 4, 5}[variant - LOSS_LOW];
    enum snug_loss_kind kind = variant < 3 ? (enum snug_loss_kind)variant : SNUG_CROSS_ENTROPY;
    int64_t classes = kind == SNUG_MEAN_SQUARED_ERROR ? 1 : f->shape->classes;
    int32_t logits = ops_tensor(f, low ? f->program.compute : SNUG_F32, R, 0, classes),
            loss = ops_source(f, SNUG_F32, FIXED, 1, 1);
    for (int64_t i = 0; i < ops_count(f, logits); i++) ops_set(f, logits, i, 4 * ops_value(6, (uint64_t)i));
    int32_t d = variant == 4 ? logits : variant == 5 ? 0 : ops_tensor(f, f->program.compute, R, 0, classes);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LOSS,
                                .loss = {.logits = logits,
                                         .loss = loss,
                                         .d = d,
                                         .function = kind,
                                         .label_smoothing = variant == 3 ? 0.1f : 0,
                                         .weighted = weighted}});
    f->program.logits = logits;
    if (variant == 6) {
        const int32_t scaler = f->program.scaler = ops_tensor(f, SNUG_F32, FIXED, 1, SNUG_SCALE_VALUES);
        ops_fill(f, scaler, 0);
        ops_set(f, scaler, SNUG_SCALE, 256);
        ops_add(f, (struct snug_op){.kind = SNUG_OP_RESCALE, .rescale = {.scaler = scaler}});
    }
    if (variant > 3) return;
    f->y = loss;
    ops_pair(f, logits, d);
}

/* 0: clipped, with decay and a bf16 copy. 1: no clipping, a late step. 2: below the limit, first step. 3: as 0, the
   weight itself in bf16. */
static inline void build_optimizer(struct ops *f, int variant) {
    int64_t n = f->shape->outputs, h = f->shape->h;
    int32_t g = ops_source(f, SNUG_F32, FIXED, n, h), sums = ops_tensor(f, SNUG_F64, FIXED, 1, 5);
    int32_t clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    int32_t p = ops_source(f, variant == 3 ? SNUG_BF16 : SNUG_F32, FIXED, n, h);
    int32_t m = ops_source(f, SNUG_F32, FIXED, n, h), v = ops_source(f, SNUG_F32, FIXED, n, h);
    int32_t p16 = variant == 0 ? ops_tensor(f, ops_copy_type(f), FIXED, n, h) : 0;
    ops_fill(f, sums, 0.5);
    for (int64_t i = 0; i < n * h; i++) ops_set(f, v, i, pow(ops_get(f, f->arena, v, i), 2));
    f->run.max_grad_norm = (float[]){1, 0, 1e9f, 1}[variant];
    f->run.step = (int64_t[]){3, 1000, 0, 3}[variant];
    ops_add(f, (struct snug_op){.kind = SNUG_OP_SQUARED_NORM, .squared_norm = {.g = g, .sums = sums, .slot = 2}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CLIP, .clip = {.sums = sums, .clip = clip}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ADAM,
                                .update = {.g = g,
                                           .clip = clip,
                                           .weight = p,
                                           .copy = p16,
                                           .states[0] = m,
                                           .states[1] = v,
                                           .segments = 1,
                                           .decay = variant % 3 == 0,
                                           .parameter = 77}});
}

/* A step of fp16 training after two skipped ones. 0: clipped. 1: a gradient is infinite. 2: the scale is due to grow,
   and nothing is clipped. */
static inline void build_scaler(struct ops *f, int variant) {
    const int64_t n = f->shape->outputs, h = f->shape->h;
    int32_t g = ops_source(f, SNUG_F32, FIXED, n, h), sums = ops_tensor(f, SNUG_F64, FIXED, 1, 1);
    int32_t clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    const int32_t scaler = f->program.scaler = ops_tensor(f, SNUG_F32, FIXED, 1, SNUG_SCALE_VALUES);
    int32_t p = ops_source(f, SNUG_F32, FIXED, n, h);
    int32_t m = ops_source(f, SNUG_F32, FIXED, n, h), v = ops_source(f, SNUG_F32, FIXED, n, h);
    for (int64_t i = 0; i < n * h; i++) ops_set(f, v, i, pow(ops_get(f, f->arena, v, i), 2));
    if (variant == 1) ops_set(f, g, n * h / 2, INFINITY);
    ops_set(f, scaler, SNUG_SCALE, 1024);
    ops_set(f, scaler, SNUG_SCALE_GOOD, variant == 2 ? SNUG_SCALE_INTERVAL - 1 : 7);
    ops_set(f, scaler, SNUG_SCALE_SKIPPED, 2);
    ops_set(f, scaler, SNUG_SCALE_SKIPS, 0);
    f->run.max_grad_norm = variant == 2 ? 0 : 0.01f;
    f->run.step = 5;
    f->run.skipped = 2;
    ops_add(f, (struct snug_op){.kind = SNUG_OP_SQUARED_NORM, .squared_norm = {.g = g, .sums = sums}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CLIP, .clip = {.sums = sums, .clip = clip, .scaler = scaler}});
    ops_add(f,
            (struct snug_op){
                .kind = SNUG_OP_ADAM,
                .update = {
                    .g = g, .clip = clip, .weight = p, .states[0] = m, .states[1] = v, .segments = 1, .decay = true}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_RESCALE, .rescale = {.scaler = scaler}});
}

/* The rows of the batch's ids have a gradient; rows have missed up to eight steps of a history of 16, some have zero
   moments. 0: in the middle of the history. 1: at its end, with decay and a bf16 copy. */
static inline void build_rows(struct ops *f, int variant) {
    const int64_t n = f->shape->vocabulary, h = f->shape->h, touched = ops_distinct(f);
    int32_t g = ops_source(f, SNUG_F32, FIXED, touched, h), clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    int32_t p = ops_source(f, SNUG_F32, FIXED, n, h), m = ops_source(f, SNUG_F32, FIXED, n, h);
    int32_t v = ops_source(f, SNUG_F32, FIXED, n, h), q = variant ? ops_source(f, ops_copy_type(f), FIXED, n, h) : 0;
    int32_t index = ops_tensor(f, SNUG_I32, FIXED, 1, 1 + touched + n);
    int32_t updated = ops_tensor(f, SNUG_I32, FIXED, 1, n), history = ops_tensor(f, SNUG_F32, FIXED, 16, 2);
    f->run.step = variant ? 32 : 29;
    ops_fill(f, clip, 0.5);
    ops_fill(f, index, -1);
    ops_set(f, index, 0, (double)touched);
    for (int64_t i = 0, slot = 0; i < f->batch.tokens; i++) {
        const int32_t id = f->batch.ids[f->batch.by_id[i]];
        if (slot > 0 && ops_get(f, f->arena, index, slot) == id) continue;
        ops_set(f, index, 1 + touched + id, (double)slot);
        ops_set(f, index, ++slot, id);
    }
    for (int64_t row = 0; row < n; row++) {
        const bool rests = !variant && ops_word(20, (uint64_t)row) % 4 == 0;
        ops_set(f, updated, row, rests ? -1 : (double)(f->run.step - ops_word(21, (uint64_t)row) % 9));
        for (int64_t i = row * h; i < (row + 1) * h; i++) {
            ops_set(f, m, i, rests ? 0 : ops_get(f, f->arena, m, i));
            ops_set(f, v, i, rests ? 0 : pow(ops_get(f, f->arena, v, i), 2) + 0x1p-10);
        }
    }
    for (int64_t i = 0; i < 16; i++) {
        ops_set(f, history, 2 * i, 0.001 * (double)(i + 1));
        ops_set(f, history, 2 * i + 1, 0.25);
    }
    struct snug_op op = {.update = {.weight = p,
                                    .copy = q,
                                    .states = {m, v},
                                    .updated = updated,
                                    .history = history,
                                    .segments = 1,
                                    .decay = variant == 1}};
    op.kind = SNUG_OP_LAZY_UPDATE;
    ops_add(f, op);
    op.kind = SNUG_OP_ADAM_ROWS;
    op.update.g = g;
    op.update.clip = clip;
    op.update.index = index;
    ops_add(f, op);
    ops_add(
        f, (struct snug_op){.kind = SNUG_OP_ROWS_BEGIN,
                            .rows_begin = {.m = m, .v = v, .index = index, .updated = updated, .decay = variant == 1}});
}

/* Three parameters with arbitrary codes and gradients of all magnitudes, some not finite, and a block of zeros. 0:
   AdamW, clipped, with a copy. 1: Adam (L2), a late step. 2: AdamW's first step, a bf16 parameter. */
static inline void build_adam_8bit(struct ops *f, int variant) {
    const int64_t n = f->shape->outputs, h = f->shape->h, segments = 3, count = segments * n * h;
    const int64_t blocks = (n * h + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
    int32_t g = ops_source(f, SNUG_F32, FIXED, segments * n, h), clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    int32_t p = ops_source(f, variant == 2 ? SNUG_BF16 : SNUG_F32, FIXED, segments * n, h);
    int32_t p16 = variant == 0 ? ops_tensor(f, ops_copy_type(f), FIXED, segments * n, h) : 0;
    int32_t m = ops_tensor(f, SNUG_U8, FIXED, segments * n, h), v = ops_tensor(f, SNUG_U8, FIXED, segments * n, h);
    int32_t absmax_m = ops_tensor(f, SNUG_F32, FIXED, segments, blocks);
    int32_t absmax_v = ops_tensor(f, SNUG_F32, FIXED, segments, blocks);
    ops_fill(f, clip, 0.25);
    for (int64_t i = 0; i < count; i++) {
        const double size = pow(10, -(double)(ops_word(8, (uint64_t)i) % 9));
        ops_set(f, g, i, i / SNUG_QUANTISED_BLOCK == 2 ? 0 : size * ops_get(f, f->arena, g, i));
        /* A large m over a v near 0, which does not occur in training, would only amplify rounding. */
        const uint32_t square = ops_word(10, (uint64_t)i) % 256, mean = ops_word(9, (uint64_t)i);
        ops_set(f, v, i, variant == 2 ? 0 : square);
        ops_set(f, m, i, variant == 2 ? 0 : square < 64 ? 126 + mean % 3 : mean % 256);
    }
    for (int64_t i = 0; i < segments * blocks; i++) {
        ops_set(f, absmax_m, i, variant == 2 ? 0 : 0.01 * (double)(1 + ops_word(11, (uint64_t)i) % 7));
        ops_set(f, absmax_v, i, variant == 2 ? 0 : 0.0001 * (double)(1 + ops_word(12, (uint64_t)i) % 7));
    }
    const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f};
    for (int64_t i = 0; i < 12 && i < count / 4; i++) ops_set(f, g, i * (count / 12 + 1) % count, odd[i % 4]);
    f->optimizer.info = &snug_optimizer_adam_8bit;
    f->optimizer.decoupled = variant != 1;
    f->run.step = (int64_t[]){3, 1000, 0}[variant];
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ADAM_8BIT,
                                .update = {.g = g,
                                           .clip = variant == 0 ? clip : 0,
                                           .weight = p,
                                           .copy = p16,
                                           .states[0] = m,
                                           .states[1] = v,
                                           .states[2] = absmax_m,
                                           .states[3] = absmax_v,
                                           .segments = (int32_t)segments,
                                           .parameter = 5,
                                           .decay = variant < 2}});
}

static inline void build_cast(struct ops *f, int variant) {
    (void)variant;
    int32_t p = ops_tensor(f, SNUG_F32, FIXED, f->shape->outputs, f->shape->h);
    int32_t q = ops_tensor(f, ops_copy_type(f), FIXED, f->shape->outputs, f->shape->h);
    for (int64_t i = 0; i < ops_count(f, p);
         i++) { /* any finite bits: denormals, ties, numbers that round to infinity */
        uint32_t bits = ops_word(7, (uint64_t)i / 2) & (i % 2 ? 0xff7fffffu : 0xff7f8000u);
        float value;
        memcpy(&value, &bits, sizeof value);
        ops_set(f, p, i, value);
    }
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CAST, .cast = {.p = p, .q = q}});
}

/* 0: two parameters of NF4, nested, rounded to the 16-bit type. 1: scales in fp32, not rounded. 2: FP4, nested, of an
   odd number of values each. 3: NF4, nested, not rounded. */
enum { DEQUANTIZE_VARIANTS = 4 };
static inline void build_dequantize(struct ops *f, int variant) {
    const bool odd = variant == 2;
    const int64_t segments = odd ? 3 : variant < 2 ? 2 : 1;
    const struct snug_quantized form = {.type = odd ? SNUG_CODES_FP4 : SNUG_CODES_NF4,
                                        .nested = variant != 1,
                                        .rounded = variant == 0 ? ops_copy_type(f)
                                                   : odd        ? SNUG_F16
                                                                : SNUG_F32,
                                        .rows = odd ? 1 : f->shape->outputs,
                                        .cols = odd ? f->shape->h - 1 : f->shape->h};
    const struct snug_quantized_layout l = snug_quantized_lay_out(&form);
    const int32_t p = ops_tensor(f, SNUG_U8, FIXED, segments, l.bytes);
    const int32_t q = ops_tensor(f, f->program.compute, FIXED, segments * form.rows, form.cols);
    for (int64_t s = 0; s < segments; s++) {
        for (int64_t i = 0; i < l.bytes; i++)
            ops_set(f, p, s * l.bytes + i, ops_word(13, (uint64_t)(s * l.bytes + i)) % 256);
        const int64_t floats = form.nested ? l.groups + 1 : l.blocks, at = form.nested ? l.group_absmax : l.absmax;
        for (int64_t i = 0; i < floats; i++) {
            const float scale = 0.01f * (float)(1 + ops_word(14, (uint64_t)i) % 97);
            uint8_t bytes[sizeof scale];
            memcpy(bytes, &scale, sizeof scale);
            for (int k = 0; k < 4; k++) ops_set(f, p, s * l.bytes + at + 4 * i + k, bytes[k]);
        }
    }
    ops_add(f, (struct snug_op){.kind = SNUG_OP_DEQUANTIZE, .dequantize = {.p = p, .q = q, .form = form}});
}

#endif
