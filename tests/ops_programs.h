/* SPDX-License-Identifier: Apache-2.0 */
/* One program for each operation: the forward operation and its backward, in the order in which they run. */
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

/* 0: no dropout. 1: dropout. 2: tables in bf16. 3: the word table's gradient holds only the rows that have one. */
static inline void build_embed(struct ops *f, int variant) {
    const struct ops_shape *s = f->shape;
    enum snug_dtype tables = variant == 2 ? ops_copy_type(f) : SNUG_F32;
    int32_t word = ops_source(f, tables, FIXED, s->vocabulary, s->h);
    int32_t position = ops_source(f, tables, FIXED, f->batch.longest + 3, s->h);
    int32_t type = ops_source(f, tables, FIXED, s->types, s->h);
    int32_t gamma = ops_source(f, SNUG_F32, FIXED, 1, s->h), beta = ops_source(f, SNUG_F32, FIXED, 1, s->h);
    int32_t sum = ops_tensor(f, f->program.compute, T, 0, s->h), y = ops_tensor(f, f->program.compute, T, 0, s->h);
    int32_t dy = ops_source(f, f->program.compute, T, 0, s->h);
    const int64_t room = ops_distinct(f) + 1;
    int32_t d[5] = {ops_source(f, SNUG_F32, FIXED, variant == 3 ? room : s->vocabulary, s->h),
                    ops_source(f, SNUG_F32, FIXED, f->batch.longest + 3, s->h),
                    ops_source(f, SNUG_F32, FIXED, s->types, s->h), ops_source(f, SNUG_F32, FIXED, 1, s->h),
                    ops_source(f, SNUG_F32, FIXED, 1, s->h)};
    int32_t index = variant == 3 ? ops_index(f, room) : -1;
    float p = p_of[variant == 1], eps = 1e-12f;
    ops_add(f, (struct snug_op){.kind = SNUG_OP_EMBED,
                                .in = SNUG_INPUTS(word, position, type, gamma, beta),
                                .out = SNUG_OUTPUTS(sum, y),
                                .p = p,
                                .site = 7,
                                .eps = eps,
                                .padding = -1});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_EMBED_BACKWARD,
                                .in = SNUG_INPUTS(dy, sum, gamma),
                                .out = SNUG_OUTPUTS(d[0], d[1], d[2], d[3], d[4], index),
                                .p = p,
                                .site = 7,
                                .eps = eps,
                                .padding = -1});
    if (variant == 3) return;
    f->y = y;
    f->dy = dy;
    if (tables == SNUG_F32) { /* finite differences are finer than bf16 */
        ops_pair(f, word, d[0]);
        ops_pair(f, position, d[1]);
        ops_pair(f, type, d[2]);
    }
    ops_pair(f, gamma, d[3]);
    ops_pair(f, beta, d[4]);
}

/* 0: over tokens. 1: the decoder: over head rows, fp32 logits, no bias. 2: over sequences, dx added to. 3 … 5: the same
   with a weight in bf16, whatever products compute in. */
static inline void build_linear(struct ops *f, int variant) {
    const struct ops_shape *s = f->shape;
    enum snug_dtype type = f->program.compute, weight = variant < 3 ? type : SNUG_BF16;
    variant %= 3;
    enum snug_extent extent = variant == 0 ? T : variant == 1 ? R : B;
    int64_t outputs = variant == 1 ? s->vocabulary : s->outputs;
    int32_t x = ops_source(f, type, extent, 0, s->h), w = ops_source(f, weight, FIXED, outputs, s->h);
    int32_t b = variant == 1 ? -1 : ops_source(f, SNUG_F32, FIXED, 1, outputs);
    int32_t y = ops_tensor(f, variant == 1 ? SNUG_F32 : type, extent, 0, outputs);
    int32_t dy = ops_source(f, type, extent, 0, outputs), dx = ops_source(f, type, extent, 0, s->h);
    int32_t dw = ops_source(f, SNUG_F32, FIXED, outputs, s->h);
    int32_t db = variant == 1 ? -1 : ops_source(f, SNUG_F32, FIXED, 1, outputs);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LINEAR, .in = SNUG_INPUTS(x, w, b), .out = SNUG_OUTPUTS(y)});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LINEAR_DX,
                                .in = SNUG_INPUTS(dy, w),
                                .out = SNUG_OUTPUTS(dx),
                                .accumulate = variant == 2});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LINEAR_DW, .in = SNUG_INPUTS(dy, x), .out = SNUG_OUTPUTS(dw, db)});
    f->y = y;
    f->dy = dy;
    if (variant != 2) ops_pair(f, x, dx);
    if (weight == SNUG_F32) ops_pair(f, w, dw); /* finite differences are finer than bf16 */
    if (variant != 1) ops_pair(f, b, db);
}

/* 2: most is dropped. */
static inline void build_attention(struct ops *f, int variant) {
    int64_t h = f->shape->h;
    int32_t heads = f->shape->heads;
    enum snug_dtype type = f->program.compute;
    int32_t qkv = ops_source(f, type, T, 0, 3 * h), o = ops_tensor(f, type, T, 0, h);
    int32_t lse = ops_tensor(f, SNUG_F32, T, 0, heads);
    int32_t dout = ops_source(f, type, T, 0, h), dqkv = ops_tensor(f, type, T, 0, 3 * h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ATTENTION,
                                .in = SNUG_INPUTS(qkv),
                                .out = SNUG_OUTPUTS(o, lse),
                                .p = p_of[variant],
                                .site = 8,
                                .heads = heads});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ATTENTION_BACKWARD,
                                .in = SNUG_INPUTS(dout, qkv, o, lse),
                                .out = SNUG_OUTPUTS(dqkv),
                                .p = p_of[variant],
                                .site = 8,
                                .heads = heads});
    f->y = o;
    f->dy = dout;
    ops_pair(f, qkv, dqkv);
}

/* 0: no dropout, no dz. 1: dropout. 2: dropout, ds in dy's place. 3: over head rows. */
static inline void build_residual_norm(struct ops *f, int variant) {
    int64_t h = f->shape->h;
    enum snug_dtype type = f->program.compute;
    enum snug_extent extent = variant == 3 ? R : T;
    int32_t z = ops_source(f, type, extent, 0, h), x = ops_source(f, type, extent, 0, h);
    int32_t gamma = ops_source(f, SNUG_F32, FIXED, 1, h), beta = ops_source(f, SNUG_F32, FIXED, 1, h);
    int32_t s = ops_tensor(f, type, extent, 0, h), y = ops_tensor(f, type, extent, 0, h);
    int32_t dy = ops_source(f, type, extent, 0, h), ds = variant == 2 ? dy : ops_tensor(f, type, extent, 0, h);
    int32_t dz = variant == 0 ? -1 : ops_tensor(f, type, extent, 0, h);
    int32_t dgamma = ops_source(f, SNUG_F32, FIXED, 1, h), dbeta = ops_source(f, SNUG_F32, FIXED, 1, h);
    float p = p_of[variant != 0];
    ops_add(f, (struct snug_op){.kind = SNUG_OP_RESIDUAL_NORM,
                                .in = SNUG_INPUTS(z, x, gamma, beta),
                                .out = SNUG_OUTPUTS(variant == 4 ? -1 : s, y),
                                .p = p,
                                .site = 9,
                                .eps = 1e-12f});
    if (variant == 4) return; /* inference */
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORM_BACKWARD,
                                .in = SNUG_INPUTS(dy, s, gamma),
                                .out = SNUG_OUTPUTS(ds, dz, dgamma, dbeta),
                                .p = p,
                                .site = 9,
                                .eps = 1e-12f});
    if (variant == 2) return; /* finite differences need dy */
    f->y = y;
    f->dy = dy;
    ops_pair(f, z, variant == 0 ? ds : dz);
    ops_pair(f, x, ds);
    ops_pair(f, gamma, dgamma);
    ops_pair(f, beta, dbeta);
}

/* 0: over tokens. 1: over head rows, a large eps. 2: dropout, as the embeddings' recomputation has it. */
static inline void build_norm(struct ops *f, int variant) {
    int64_t h = f->shape->h;
    enum snug_dtype type = f->program.compute;
    enum snug_extent extent = variant == 1 ? R : T;
    float eps = variant == 1 ? 0.125f : 1e-5f;
    int32_t s = ops_source(f, type, extent, 0, h), y = ops_tensor(f, type, extent, 0, h);
    int32_t gamma = ops_source(f, SNUG_F32, FIXED, 1, h), beta = ops_source(f, SNUG_F32, FIXED, 1, h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORM,
                                .in = SNUG_INPUTS(s, gamma, beta),
                                .out = SNUG_OUTPUTS(y),
                                .p = p_of[variant == 2],
                                .site = 10,
                                .eps = eps});
    if (variant == 2) return;
    int32_t dy = ops_source(f, type, extent, 0, h), ds = ops_tensor(f, type, extent, 0, h);
    int32_t dgamma = ops_source(f, SNUG_F32, FIXED, 1, h), dbeta = ops_source(f, SNUG_F32, FIXED, 1, h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_NORM_BACKWARD,
                                .in = SNUG_INPUTS(dy, s, gamma),
                                .out = SNUG_OUTPUTS(ds, -1, dgamma, dbeta),
                                .eps = eps});
    f->y = y;
    f->dy = dy;
    ops_pair(f, s, ds);
    ops_pair(f, gamma, dgamma);
    ops_pair(f, beta, dbeta);
}

/* variant / 2 is the function; odd ones work in place, forward or (over head rows) backward. The second ten have a
 * bias.
 */
static inline void build_activation(struct ops *f, int variant) {
    enum snug_dtype type = f->program.compute;
    int32_t bias = variant < 10 ? -1 : ops_source(f, SNUG_F32, FIXED, 1, f->shape->outputs);
    variant %= 10;
    enum snug_activation activation = (enum snug_activation)(variant / 2);
    bool in_place = variant % 2, in_place_backward = in_place && activation % 2;
    enum snug_extent extent = in_place_backward ? R : T;
    int32_t u = ops_tensor(f, type, extent, 0, f->shape->outputs);
    for (int64_t i = 0; i < ops_count(f, u); i++) { /* with the bias in [-4, 4), and not near RELU's kink */
        double value = 4 * ops_value(5, (uint64_t)i);
        if (fabs(value) < 0.125) value = 0.125;
        ops_set(f, u, i, bias < 0 ? value : value - ops_get(f, f->arena, bias, i % f->shape->outputs));
    }
    int32_t a = in_place && !in_place_backward ? u : ops_tensor(f, type, extent, 0, f->shape->outputs);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ACTIVATION,
                                .in = SNUG_INPUTS(u, bias),
                                .out = SNUG_OUTPUTS(a),
                                .activation = activation});
    if (a == u) return;
    int32_t da = ops_source(f, type, extent, 0, f->shape->outputs);
    int32_t du = in_place ? da : ops_tensor(f, type, extent, 0, f->shape->outputs);
    int32_t again = in_place ? u : activation % 2 ? -1 : ops_tensor(f, type, extent, 0, f->shape->outputs);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ACTIVATION_BACKWARD,
                                .in = SNUG_INPUTS(da, u, bias),
                                .out = SNUG_OUTPUTS(du, again),
                                .activation = activation});
    if (in_place) return;
    f->y = a;
    f->dy = da;
    ops_pair(f, u, du);
}

/* 0: dropout. 1: in place. 2: none. */
static inline void build_dropout(struct ops *f, int variant) {
    enum snug_dtype type = f->program.compute;
    int32_t x = ops_source(f, type, R, 0, f->shape->h), y = variant == 1 ? x : ops_tensor(f, type, R, 0, f->shape->h);
    float p = p_of[variant != 2];
    ops_add(
        f, (struct snug_op){.kind = SNUG_OP_DROPOUT, .in = SNUG_INPUTS(x), .out = SNUG_OUTPUTS(y), .p = p, .site = 11});
    if (variant == 1) return;
    int32_t dy = ops_source(f, type, R, 0, f->shape->h), dx = ops_tensor(f, type, R, 0, f->shape->h);
    ops_add(f, (struct snug_op){
                   .kind = SNUG_OP_DROPOUT, .in = SNUG_INPUTS(dy), .out = SNUG_OUTPUTS(dx), .p = p, .site = 11});
    f->y = y;
    f->dy = dy;
    ops_pair(f, x, dx);
}

/* 0: head rows of tokens. 1: first tokens. 2: head rows of sequences, which have one each. */
static inline void build_gather(struct ops *f, int variant) {
    enum snug_dtype type = f->program.compute;
    const enum snug_extent all = variant == 2 ? B : T, some = variant == 1 ? B : R;
    if (variant == 2) {
        if (f->batch.rows > f->batch.sequences) f->batch.rows = f->batch.sequences;
        f->run.first_row = f->batch.rows / 4;
        f->run.rows = f->batch.rows - f->run.first_row;
    }
    int32_t x = ops_source(f, type, all, 0, f->shape->h), r = ops_tensor(f, type, some, 0, f->shape->h);
    int32_t dr = ops_source(f, type, some, 0, f->shape->h), dx = ops_source(f, type, all, 0, f->shape->h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_GATHER, .in = SNUG_INPUTS(x), .out = SNUG_OUTPUTS(r)});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_FILL, .in = SNUG_INPUTS(-1), .out = SNUG_OUTPUTS(dx)});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_GATHER_BACKWARD, .in = SNUG_INPUTS(dr), .out = SNUG_OUTPUTS(dx)});
    f->y = r;
    f->dy = dr;
    ops_pair(f, x, dx);
}

/* 0 … 2: the kinds. 3: smoothed labels. 4: the gradient in the logits' place. 5: evaluation, no gradient. */
static inline void build_loss(struct ops *f, int variant) {
    enum snug_loss_kind kind = variant < 3 ? (enum snug_loss_kind)variant : SNUG_CROSS_ENTROPY;
    int64_t classes = kind == SNUG_MEAN_SQUARED_ERROR ? 1 : f->shape->classes;
    int32_t logits = ops_tensor(f, SNUG_F32, R, 0, classes), loss = ops_source(f, SNUG_F32, FIXED, 1, 1);
    for (int64_t i = 0; i < ops_count(f, logits); i++) ops_set(f, logits, i, 4 * ops_value(6, (uint64_t)i));
    int32_t d = variant == 4 ? logits : variant == 5 ? -1 : ops_tensor(f, f->program.compute, R, 0, classes);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LOSS,
                                .in = SNUG_INPUTS(logits),
                                .out = SNUG_OUTPUTS(loss, d),
                                .loss = kind,
                                .label_smoothing = variant == 3 ? 0.1f : 0});
    if (variant > 3) return;
    f->y = loss;
    ops_pair(f, logits, d);
}

/* 0: clipped, with decay and a bf16 copy. 1: no clipping asked for, late. 2: under the limit, first step. 3: as 0, the
   weight itself in bf16. */
static inline void build_optimizer(struct ops *f, int variant) {
    int64_t n = f->shape->outputs, h = f->shape->h;
    int32_t g = ops_source(f, SNUG_F32, FIXED, n, h), sums = ops_tensor(f, SNUG_F64, FIXED, 1, 5);
    int32_t clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    int32_t p = ops_source(f, variant == 3 ? SNUG_BF16 : SNUG_F32, FIXED, n, h);
    int32_t m = ops_source(f, SNUG_F32, FIXED, n, h), v = ops_source(f, SNUG_F32, FIXED, n, h);
    int32_t p16 = variant == 0 ? ops_tensor(f, ops_copy_type(f), FIXED, n, h) : -1;
    ops_fill(f, sums, 0.5);
    for (int64_t i = 0; i < n * h; i++) ops_set(f, v, i, pow(ops_get(f, f->arena, v, i), 2));
    f->run.max_grad_norm = (float[]){1, 0, 1e9f, 1}[variant];
    f->run.step = (int64_t[]){3, 1000, 0, 3}[variant];
    ops_add(f,
            (struct snug_op){.kind = SNUG_OP_SQUARED_NORM, .in = SNUG_INPUTS(g), .out = SNUG_OUTPUTS(sums), .slot = 2});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CLIP, .in = SNUG_INPUTS(sums), .out = SNUG_OUTPUTS(clip)});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ADAM,
                                .in = SNUG_INPUTS(g, clip),
                                .out = SNUG_OUTPUTS(p, p16, m, v),
                                .segments = 1,
                                .decay = variant % 3 == 0,
                                .parameter = 77});
}

/* A step of fp16 training, after two that were skipped. 0: clipped. 1: a gradient is infinite. 2: the scale is due to
   grow, and nothing is clipped. */
static inline void build_scaler(struct ops *f, int variant) {
    const int64_t n = f->shape->outputs, h = f->shape->h;
    int32_t g = ops_source(f, SNUG_F32, FIXED, n, h), sums = ops_tensor(f, SNUG_F64, FIXED, 1, 1);
    int32_t clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2), scaler = ops_tensor(f, SNUG_F32, FIXED, 1, SNUG_SCALE_VALUES);
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
    ops_add(f, (struct snug_op){.kind = SNUG_OP_SQUARED_NORM, .in = SNUG_INPUTS(g), .out = SNUG_OUTPUTS(sums)});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CLIP, .in = SNUG_INPUTS(sums), .out = SNUG_OUTPUTS(clip, scaler)});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ADAM,
                                .in = SNUG_INPUTS(g, clip),
                                .out = SNUG_OUTPUTS(p, -1, m, v),
                                .segments = 1,
                                .decay = true});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_RESCALE, .in = SNUG_INPUTS(scaler), .out = SNUG_OUTPUTS(scaler)});
}

/* The rows of the batch's ids have a gradient; rows have missed up to eight steps of a history of 16, some are at rest.
   0: in the middle of it. 1: at its end, decayed, with a bf16 copy. */
static inline void build_rows(struct ops *f, int variant) {
    const int64_t n = f->shape->vocabulary, h = f->shape->h, touched = ops_distinct(f);
    int32_t g = ops_source(f, SNUG_F32, FIXED, touched, h), clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    int32_t p = ops_source(f, SNUG_F32, FIXED, n, h), m = ops_source(f, SNUG_F32, FIXED, n, h);
    int32_t v = ops_source(f, SNUG_F32, FIXED, n, h), q = variant ? ops_source(f, ops_copy_type(f), FIXED, n, h) : -1;
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
    struct snug_op op = {.in = SNUG_INPUTS(-1),
                         .out = SNUG_OUTPUTS(p, q, m, v, -1, -1, updated, history),
                         .segments = 1,
                         .decay = variant == 1};
    op.kind = SNUG_OP_CATCH_UP;
    ops_add(f, op);
    op.kind = SNUG_OP_SETTLE;
    ops_add(f, op);
    op.kind = SNUG_OP_ADAM_ROWS;
    memcpy(op.in, (const int32_t[])SNUG_INPUTS(g, clip, index), sizeof op.in);
    ops_add(f, op);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ROWS_BEGIN,
                                .in = SNUG_INPUTS(m, v),
                                .out = SNUG_OUTPUTS(index, updated),
                                .decay = variant == 1});
}

/* Three parameters of any codes, with gradients of all sizes, some not finite, and a block of zeros. 0: AdamW, clipped,
   with a copy. 1: Adam (L2), late. 2: AdamW's first step, a bf16 parameter. */
static inline void build_adam_8bit(struct ops *f, int variant) {
    const int64_t n = f->shape->outputs, h = f->shape->h, segments = 3, count = segments * n * h;
    const int64_t blocks = (n * h + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK;
    int32_t g = ops_source(f, SNUG_F32, FIXED, segments * n, h), clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    int32_t p = ops_source(f, variant == 2 ? SNUG_BF16 : SNUG_F32, FIXED, segments * n, h);
    int32_t p16 = variant == 0 ? ops_tensor(f, ops_copy_type(f), FIXED, segments * n, h) : -1;
    int32_t m = ops_tensor(f, SNUG_U8, FIXED, segments * n, h), v = ops_tensor(f, SNUG_U8, FIXED, segments * n, h);
    int32_t absmax_m = ops_tensor(f, SNUG_F32, FIXED, segments, blocks);
    int32_t absmax_v = ops_tensor(f, SNUG_F32, FIXED, segments, blocks);
    ops_fill(f, clip, 0.25);
    for (int64_t i = 0; i < count; i++) {
        const double size = pow(10, -(double)(ops_word(8, (uint64_t)i) % 9));
        ops_set(f, g, i, i / SNUG_QUANTISED_BLOCK == 2 ? 0 : size * ops_get(f, f->arena, g, i));
        /* A large m over a v of nearly 0, which training does not meet, would only make rounding large. */
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
    f->optimizer.kind = SNUG_ADAM_8BIT;
    f->optimizer.decoupled = variant != 1;
    f->run.step = (int64_t[]){3, 1000, 0}[variant];
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ADAM_8BIT,
                                .in = SNUG_INPUTS(g, variant == 0 ? clip : -1),
                                .out = SNUG_OUTPUTS(p, p16, m, v, absmax_m, absmax_v),
                                .segments = (int32_t)segments,
                                .parameter = 5,
                                .decay = variant < 2});
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
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CAST, .in = SNUG_INPUTS(p), .out = SNUG_OUTPUTS(q)});
}

#endif
