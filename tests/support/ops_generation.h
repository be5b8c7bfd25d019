/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the operations of generation. */
#ifndef SNUG_TESTS_OPS_GENERATION_H
#define SNUG_TESTS_OPS_GENERATION_H

#include "ops_programs.h"

/* In a program that generates, whose steps may have few rows. 0: logits. 1: a bias. 2: an addend, in place. 3: a weight
   that is stored transposed, and a bias. 4: the same with an addend. */
enum { GENERATING_VARIANTS = 5 };
static inline void build_generating(struct ops *f, int variant) {
    const enum snug_dtype type = f->program.compute;
    const int64_t outputs = variant ? f->shape->outputs : f->shape->vocabulary;
    const bool transposed = variant >= 3, adds = variant == 2 || variant == 4;
    const int64_t rows = transposed ? f->shape->h : outputs, cols = transposed ? outputs : f->shape->h;
    struct snug_linear l = {.x = ops_source(f, type, T, 0, f->shape->h),
                            .w = ops_source(f, type, FIXED, rows, cols),
                            .transposed = transposed};
    f->program.cache_pages = 1;
    if (variant % 2) l.b = ops_source(f, SNUG_F32, FIXED, 1, outputs);
    if (adds) l.addend = ops_source(f, type, T, 0, outputs);
    l.y = adds ? l.addend : ops_tensor(f, variant ? type : SNUG_F32, T, 0, outputs);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_LINEAR, .linear = l});
}

/* New tokens after earlier ones, whose keys and values are in pages in no order. 0: no earlier ones, fused operands. 1:
   earlier ones. 2: two pages to copy. 3: a window. 4: a cap. 5: all query heads share keys, a window of several pages.
   From CACHE_ROTATED on queries and keys are rotated: 6: of fused operands. 7: the first channels of each head, by a
   factor that grows, for queries. 8: neighbours. */
enum { CACHE_ROTATED = 6, CACHE_VARIANTS = 9 };
static inline void rotate_cached(struct ops *f, int variant, struct snug_cache_rows *rows) {
    static struct snug_rotation rotation;
    const int32_t d = rows->head_dim;
    rotation = (struct snug_rotation){
        .pairs = variant == 7 ? (d + 3) / 4 : d / 2, .neighbours = variant == 8, .factor = variant == 8 ? 1.25 : 1};
    if (variant == 7) rotation.growth = 0.5, rotation.growth_from = 3;
    if (d < 2) rotation.pairs = 0;
    for (int32_t c = 0; c < rotation.pairs; c++) rotation.frequencies[c] = pow(10000, -2.0 * c / d);
    f->program.rotations = &rotation;
    f->program.rotation_count = 1;
}
static inline void build_cache(struct ops *f, int variant) {
    struct snug_batch *b = &f->batch;
    const int32_t heads = f->shape->heads, d = (int32_t)(f->shape->h / heads);
    const bool fused = variant == 0 || variant == CACHE_ROTATED;
    const int32_t kv_heads = variant == 5 ? 1 : heads % 2 == 0 && variant ? heads / 2 : heads;
    const int64_t kv = (int64_t)kv_heads * d, cols = (int64_t)heads * d + (fused ? 2 * kv : 0);
    const enum snug_dtype type = f->program.compute;
    b->longest = 0;
    for (int64_t s = 0; s < b->sequences; s++) {
        const int32_t past = variant ? (int32_t)(s * 61 + variant * 7) : 0;
        for (int32_t t = b->offsets[s]; t < b->offsets[s + 1]; t++) {
            b->positions[t] += past;
            if (b->positions[t] >= b->longest) b->longest = b->positions[t] + 1;
        }
    }
    f->program.longest = b->longest;
    b->pages_each = (b->longest + SNUG_CACHE_PAGE - 1) / SNUG_CACHE_PAGE;
    const int64_t pages = f->program.cache_pages = b->sequences * b->pages_each + 2;
    b->pages = ops_array((size_t)(b->sequences * b->pages_each), sizeof(int32_t));
    for (int64_t i = 0; i < b->sequences * b->pages_each; i++) b->pages[i] = (int32_t)(pages - 1 - i);
    b->copied_pages = ops_array(6, sizeof(int32_t));
    b->page_copies = variant != 2 ? 0 : b->sequences < 2 ? b->sequences : 2;
    const int32_t copied[] = {(int32_t)pages - 1, 0, 14, (int32_t)pages - 1, 1, 9}; /* the first 14 rows are not new */
    memcpy(b->copied_pages, copied, sizeof copied);
    const int32_t q = ops_source(f, type, T, 0, cols), k = fused ? q : ops_source(f, type, T, 0, kv),
                  v = fused ? q : ops_source(f, type, T, 0, kv);
    const int32_t keys = ops_source(f, type, FIXED, pages * SNUG_CACHE_PAGE, kv),
                  values = ops_source(f, type, FIXED, pages * SNUG_CACHE_PAGE, kv);
    const int32_t first = fused ? heads * d : 0, second = fused ? first + (int32_t)kv : 0;
    struct snug_cache_rows rows = {.q = variant >= CACHE_ROTATED ? q : 0,
                                   .k = k,
                                   .v = v,
                                   .keys = keys,
                                   .values = values,
                                   .column = {first, second},
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_dim = d};
    if (rows.q) rotate_cached(f, variant, &rows);
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CACHE_ROWS, .cache_rows = rows});
    const int32_t before = variant == 3 ? 4 : variant == 5 ? 70 : -1;
    ops_add(f, (struct snug_op){.kind = SNUG_OP_CACHED_ATTENTION,
                                .cached_attention = {.q = q,
                                                     .k = k,
                                                     .v = v,
                                                     .keys = keys,
                                                     .values = values,
                                                     .o = ops_tensor(f, type, T, 0, (int64_t)heads * d),
                                                     .form = {.column = {0, first, second},
                                                              .heads = heads,
                                                              .kv_heads = kv_heads,
                                                              .head_dim = d,
                                                              .before = before,
                                                              .scale = 1 / sqrtf((float)d),
                                                              .softcap = variant == 4 ? 2 : 0}}});
}

/* 0: one. 1: several, of equal ones, too. 2: all columns, at most. */
enum { TOP_VARIANTS = 3 };
static inline void build_top(struct ops *f, int variant) {
    const int64_t classes = f->shape->classes, some = classes < 5 ? classes : 5;
    const int64_t count = variant == 0 ? 1 : variant == 1 || classes > 64 ? some : classes;
    const int32_t logits = ops_tensor(f, SNUG_F32, R, 0, classes), ids = ops_tensor(f, SNUG_I32, R, 0, count),
                  log_probabilities = ops_tensor(f, SNUG_F32, R, 0, count);
    for (int64_t i = 0; i < ops_count(f, logits); i++) {
        const double value = 4 * ops_value(6, (uint64_t)i);
        ops_set(f, logits, i, variant == 1 ? floor(value) : value);
    }
    ops_add(f, (struct snug_op){.kind = SNUG_OP_TOP,
                                .top = {.logits = logits, .ids = ids, .log_probabilities = log_probabilities}});
}

#endif
