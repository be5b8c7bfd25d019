/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the operations of adapters. */
#ifndef SNUG_TESTS_OPS_ADAPTERS_H
#define SNUG_TESTS_OPS_ADAPTERS_H

#include "ops_programs.h"

/* The gradients of a matmul, of shapes of their own. 0, 1: of wide inputs and narrow outputs, and reversed. 2, 3: the
   same of columns of narrow inputs, and transposed. */
enum { THIN_VARIANTS = 4, THIN_ROWS = 200 };
static inline void build_thin(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute;
    const int64_t wide = 328, narrow = variant == 2 ? 40 : 24, columns = variant == 2 ? 16 : narrow;
    const int64_t inputs = variant == 0 ? wide : narrow, outputs = variant == 0 ? narrow : wide;
    const bool transposed = variant == 3;
    const struct snug_column_range of = {variant == 2 ? 8 : 0, variant == 2 ? (int32_t)columns : 0};
    const int64_t k = variant == 0 ? wide : columns, rows = transposed ? k : outputs, cols = transposed ? outputs : k;
    const int32_t dy = ops_source(f, type, FIXED, THIN_ROWS, outputs),
                  x = ops_source(f, type, FIXED, THIN_ROWS, inputs);
    const int32_t dw = ops_source(f, SNUG_F32, FIXED, rows, cols), w = ops_source(f, type, FIXED, rows, cols);
    const int32_t dx = ops_source(f, type, FIXED, THIN_ROWS, inputs);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LINEAR_DW,
                                .linear_dw = {.dy = dy, .x = x, .dw = dw, .transposed = transposed, .of_x = of}});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LINEAR_DX,
                                .linear_dx = {.dy = dy, .w = w, .dx = dx, .transposed = transposed, .of_dx = of}});
}

/* 0: a row-major weight. 1: its transpose. 2: a rank that no vector divides. 3: the same, transposed. */
enum { ROW_LENGTHS_VARIANTS = 4 };
static inline void build_row_lengths(struct ops *f, int variant) {
    const bool transposed = variant % 2;
    const int64_t cols = f->shape->h, rows = (cols < 512 ? cols : 512) + 3, r = variant < 2 ? 8 : 3;
    ops_add(f, (struct snug_op){.kind = SNUG_OP_ROW_LENGTHS,
                                .row_lengths = {.w = ops_source(f, f->program.compute, FIXED, transposed ? cols : rows,
                                                                transposed ? rows : cols),
                                                .a = ops_source(f, SNUG_F32, FIXED, r, cols),
                                                .b = ops_source(f, SNUG_F32, FIXED, rows, r),
                                                .inverse = ops_tensor(f, SNUG_F32, FIXED, 1, rows),
                                                .scale = 0.5f,
                                                .transposed = transposed}});
}

/* 0: with a bias. 1: with an addend. 2: with neither, over loss positions. 3: a frozen magnitude and bias. 4: dx in
   place of dy. */
enum { SCALE_COLUMNS_VARIANTS = 5 };
static inline void build_scale_columns(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute;
    const enum snug_extent extent = variant == 2 ? R : T;
    const int64_t cols = f->shape->h;
    struct snug_scale_columns s = {.x = ops_source(f, type, extent, 0, cols),
                                   .m = ops_source(f, SNUG_F32, FIXED, 1, cols),
                                   .inverse = ops_source(f, SNUG_F32, FIXED, 1, cols),
                                   .y = ops_tensor(f, type, extent, 0, cols)};
    if (variant == 0 || variant == 3) s.b = ops_source(f, SNUG_F32, FIXED, 1, cols);
    if (variant == 1) s.addend = ops_source(f, type, extent, 0, cols);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_SCALE_COLUMNS, .scale_columns = s});
    struct snug_scale_columns_backward d = {
        .dy = ops_source(f, type, extent, 0, cols), .x = s.x, .m = s.m, .inverse = s.inverse};
    d.dx = variant == 4 ? d.dy : ops_tensor(f, type, extent, 0, cols);
    if (variant != 3) d.dm = ops_source(f, SNUG_F32, FIXED, 1, cols);
    if (variant == 0) d.db = ops_source(f, SNUG_F32, FIXED, 1, cols);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_SCALE_COLUMNS_BACKWARD, .scale_columns_backward = d});
    if (variant == 4) return; /* finite differences need dy */
    f->y = s.y;
    f->dy = d.dy;
    ops_pair(f, s.x, d.dx);
    ops_pair(f, s.m, d.dm);
    ops_pair(f, s.b, d.db);
}

/* The ids of rows of their own: every third one of the batch, in falling order, and one that may not be in it. *count:
   how many they are. */
static inline int32_t ops_tokens(struct ops *f, int64_t *count) {
    const int64_t vocabulary = f->shape->vocabulary;
    int32_t *ids = ops_array((size_t)f->batch.tokens + 1, sizeof *ids), last = -1;
    int64_t distinct = 0, k = 0;
    for (int64_t i = f->batch.tokens; i-- > 0;) {
        const int32_t id = f->batch.ids[f->batch.by_id[i]];
        if (id == last) continue;
        last = id;
        if (id != 1 && distinct++ % 3 == 0) ids[k++] = id;
    }
    ids[k++] = 1;
    const int32_t tokens = ops_tensor(f, SNUG_I32, FIXED, 1, k + vocabulary);
    for (int64_t i = 0; i < vocabulary; i++) ops_set(f, tokens, k + i, -1);
    for (int64_t i = 0; i < k; i++) {
        ops_set(f, tokens, i, ids[i]);
        ops_set(f, tokens, k + ids[i], (double)i);
    }
    free(ids);
    *count = k;
    return tokens;
}

/* Rows of their own of some tokens. 0: of words alone, with a scale. 1: with positions, an id without a gradient, and a
   table in the compute type. */
enum { TOKEN_ROWS_VARIANTS = 2 };
static inline void build_token_rows(struct ops *f, int variant) {
    const struct ops_shape *s = f->shape;
    const enum snug_dtype x = f->program.compute;
    int64_t count;
    struct snug_embed e = {.scale = variant ? 1 : 2.5f, .padding = -1};
    e.tokens = ops_tokens(f, &count);
    e.rows = ops_source(f, SNUG_F32, FIXED, count, s->h);
    e.word = ops_source(f, variant ? x : SNUG_F32, FIXED, s->vocabulary, s->h);
    if (variant) e.position = ops_source(f, SNUG_F32, FIXED, f->batch.longest + 3, s->h);
    if (variant && f->batch.tokens) e.padding = f->batch.ids[f->batch.by_id[f->batch.tokens - 1]]; /* the first one */
    e.s = ops_tensor(f, x, T, 0, s->h);
    struct snug_embed_backward d = {.scale = e.scale, .padding = e.padding, .tokens = e.tokens};
    d.ds = ops_source(f, x, T, 0, s->h);
    d.dword = ops_source(f, SNUG_F32, FIXED, count, s->h);
    if (variant) d.dposition = ops_source(f, SNUG_F32, FIXED, f->batch.longest + 3, s->h);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_EMBED, .embed = e});
    ops_add(f, (struct snug_op){.kind = SNUG_OP_EMBED_BACKWARD, .embed_backward = d});
    f->y = e.s;
    f->dy = d.ds;
    if (!variant) ops_pair(f, e.rows, d.dword);
    ops_pair(f, e.position, d.dposition);
}

/* 0: with a bias. 1: in place. 2: a gradient of z alone. */
enum { TOKEN_COLUMNS_VARIANTS = 3 };
static inline void build_token_columns(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute;
    const int64_t vocabulary = f->shape->vocabulary;
    int64_t count;
    struct snug_token_columns c = {.tokens = ops_tokens(f, &count)};
    c.x = ops_source(f, type, R, 0, vocabulary);
    c.z = ops_source(f, type, R, 0, count);
    c.y = variant == 1 ? c.x : ops_tensor(f, type, R, 0, vocabulary);
    if (variant == 0) c.b = ops_source(f, SNUG_F32, FIXED, 1, vocabulary);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_TOKEN_COLUMNS, .token_columns = c});
    struct snug_token_columns_backward d = {.tokens = c.tokens, .dy = ops_source(f, type, R, 0, vocabulary)};
    d.dz = ops_tensor(f, type, R, 0, count);
    if (variant < 2) d.dx = variant ? d.dy : ops_tensor(f, type, R, 0, vocabulary);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_TOKEN_COLUMNS_BACKWARD, .token_columns_backward = d});
    if (variant == 1) return; /* finite differences need x and dy */
    f->y = c.y;
    f->dy = d.dy;
    ops_pair(f, c.x, d.dx);
    ops_pair(f, c.z, d.dz);
}

#endif
