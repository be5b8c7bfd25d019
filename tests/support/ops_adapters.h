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

#endif
