/* SPDX-License-Identifier: Apache-2.0 */
/* Operations; their parameters are in model/build_parameters.c. */
#include "model/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/task.h"

void snug_build_part(struct snug_builder *b, enum snug_part part, int32_t layer) {
    b->part = part;
    b->layer = part == SNUG_PART_LAYER ? layer : -1;
}

/* Logits of a vocabulary may be in the compute type in a training. */
static bool has_low_logits(const struct snug_builder *b) {
    return b->training && b->program->low_logits && snug_task_info(b->config->task)->head == SNUG_HEAD_VOCABULARY;
}

static int32_t add_value(struct snug_builder *b, int32_t extent_of, int64_t cols, bool low_precision,
                         const char *name) {
    int32_t tensor = 0;
    if (b->status != SNUG_OK) return 0;
    char full[88];
    if (b->part == SNUG_PART_LAYER) snprintf(full, sizeof full, "layer.%d.%s", b->layer, name);
    b->status = snug_program_tensor(
        b->program,
        (struct snug_tensor){.dtype = SNUG_F32,
                             .memory_class = SNUG_MEMORY_TEMPORARY,
                             .extent = !extent_of ? SNUG_EXTENT_TOKENS : b->program->tensors[extent_of].extent,
                             .pooling = !extent_of ? SNUG_POOL_FIRST : b->program->tensors[extent_of].pooling,
                             .rows = !extent_of ? 0 : b->program->tensors[extent_of].rows,
                             .cols = cols,
                             .part = b->part,
                             .layer = b->layer,
                             .low_precision = low_precision},
        &tensor, "%s", b->part == SNUG_PART_LAYER ? full : name);
    return tensor;
}

static int64_t cols_of(const struct snug_builder *b, int32_t tensor) {
    return b->status == SNUG_OK ? b->program->tensors[tensor].cols : 0;
}

static void add_op(struct snug_builder *b, struct snug_op op) {
    op.phase = b->phase;
    op.part = b->part;
    op.layer = b->layer;
    if (b->status == SNUG_OK) b->status = snug_program_op(b->program, op);
}

/* The blocks by which recomputation levels select tensors: the inputs of an activation or an attention, and the
   attention. */
static void tag_last_op(struct snug_builder *b, enum snug_block_kind block) {
    if (b->status == SNUG_OK) b->program->ops[b->program->op_count - 1].block = block;
}

static void tag_maker(struct snug_builder *b, int32_t tensor, enum snug_block_kind block) {
    for (size_t i = 0; b->status == SNUG_OK && i < b->program->op_count; i++)
        if (snug_op_writes(&b->program->ops[i], tensor)) b->program->ops[i].block = block;
}

/* A dropout's site is counted even if dropout is off, so that a model's sites always have the same numbers. */
static uint32_t next_site(struct snug_builder *b) { return b->program->sites++; }
/* Preference tuning has no dropout, as DPOTrainer: the log-probabilities are compared with the reference's. */
static float rate(const struct snug_builder *b, double p) {
    return b->training && !snug_task_info(b->config->task)->preferences ? (float)p : 0;
}

static struct snug_norm_form norm_form(const struct snug_builder *b, struct snug_affine norm) {
    return (struct snug_norm_form){
        .eps = (float)b->config->layer_norm_eps, .rms = norm.rms, .unit_offset = norm.unit_offset, .parts = norm.parts};
}

static int32_t add_norm(struct snug_builder *b, int32_t s, struct snug_affine norm, double p, uint32_t site,
                        const char *name) {
    const int32_t y = add_value(b, s, cols_of(b, s), true, name);
    add_op(b, (struct snug_op){
                  .kind = SNUG_OP_NORM,
                  .p = rate(b, p),
                  .site = site,
                  .norm = {.s = s, .gamma = norm.weight, .beta = norm.bias, .y = y, .form = norm_form(b, norm)}});
    return y;
}

static int32_t add_embed(struct snug_builder *b, struct snug_embed embed, const char *name) {
    embed.s = add_value(b, 0, cols_of(b, embed.word), true, name);
    embed.padding = (int32_t)b->config->pad_token_id;
    embed.first_position = (int32_t)b->config->first_position;
    add_op(b, (struct snug_op){.kind = SNUG_OP_EMBED, .embed = embed});
    return embed.s;
}

int32_t snug_embed_sum(struct snug_builder *b, int32_t word, int32_t position, int32_t type, double scale) {
    const struct snug_lora *lora = &b->words;
    const int32_t s = add_embed(b,
                                (struct snug_embed){.word = word,
                                                    .position = position,
                                                    .type = type,
                                                    .rows = b->word_rows.rows,
                                                    .tokens = b->word_rows.tokens,
                                                    .scale = (float)scale},
                                "embeddings.sum");
    if (!lora->a) return s;
    const int32_t u =
        add_embed(b, (struct snug_embed){.word = lora->a, .scale = (float)(scale * lora->scale)}, "embeddings.lora");
    return snug_added_linear(b, u, (struct snug_affine){.weight = lora->b}, s);
}

int32_t snug_embed_normed(struct snug_builder *b, int32_t word, int32_t position, int32_t type,
                          struct snug_affine norm) {
    const int32_t s = snug_embed_sum(b, word, position, type, 1);
    return snug_dropped_norm(b, s, norm, b->config->hidden_dropout_prob, "embeddings.output");
}

int32_t snug_dropped_norm(struct snug_builder *b, int32_t s, struct snug_affine norm, double p, const char *name) {
    return add_norm(b, s, norm, p, next_site(b), name);
}

/* y = w of the columns `of` of x, + addend if that is not none, which is y then. */
static int32_t linear_of(struct snug_builder *b, int32_t x, struct snug_column_range of, struct snug_affine w,
                         int32_t addend, const char *name) {
    int64_t outputs = 0;
    if (b->status == SNUG_OK) {
        const struct snug_tensor *weight = &b->program->tensors[w.weight];
        outputs = w.transposed ? weight->cols : weight->rows;
    }
    const int32_t y = addend ? addend : add_value(b, x, outputs, true, name);
    add_op(
        b,
        (struct snug_op){
            .kind = SNUG_OP_LINEAR,
            .linear = {
                .x = x, .w = w.weight, .b = w.bias, .addend = addend, .y = y, .transposed = w.transposed, .of_x = of}});
    return y;
}

static const struct snug_column_range all_columns;

/* x a^T, multiplied by the scale where there is no bias, which is scaled, too. */
static int32_t add_lora_inputs(struct snug_builder *b, int32_t x, const struct snug_lora *lora, const char *name) {
    char own[64];
    snprintf(own, sizeof own, "%s.lora", name);
    const int32_t u = linear_of(b, x, all_columns, (struct snug_affine){.weight = lora->a}, 0, own);
    const struct snug_scale scale = {.x = u, .y = u, .scale = (float)lora->scale};
    if (!lora->bias && lora->scale != 1) add_op(b, (struct snug_op){.kind = SNUG_OP_SCALE, .scale = scale});
    return u;
}

/* y += u b^T, scaled if there is a bias; u is that of add_lora_inputs(). */
static void add_lora_outputs(struct snug_builder *b, int32_t u, const struct snug_lora *lora, int32_t y,
                             const char *name) {
    const struct snug_affine outputs = {.weight = lora->b, .bias = lora->bias};
    struct snug_scale scale = {.addend = y, .y = y, .scale = (float)lora->scale};
    char own[64];
    snprintf(own, sizeof own, "%s.lora_sum", name);
    const int32_t sum = linear_of(b, u, lora->of_u, outputs, lora->bias ? 0 : y, own);
    scale.x = sum;
    if (lora->bias) add_op(b, (struct snug_op){.kind = SNUG_OP_SCALE, .scale = scale});
}

/* y += scale (x a^T) b^T */
static void add_lora_product(struct snug_builder *b, int32_t x, const struct snug_lora *lora, int32_t y,
                             const char *name) {
    add_lora_outputs(b, add_lora_inputs(b, x, lora, name), lora, y, name);
}

static int32_t lora_dropout(struct snug_builder *b, int32_t x, const struct snug_lora *lora, const char *name) {
    char own[64];
    snprintf(own, sizeof own, "%s.lora_dropout", name);
    return snug_dropout(b, x, lora->dropout, own);
}

/* Fixed rows; of what the program computes from weights alone. */
static int32_t add_fixed(struct snug_builder *b, int64_t rows, int64_t cols, bool low_precision, const char *name) {
    const int32_t tensor = add_value(b, 0, cols, low_precision, name);
    if (b->status != SNUG_OK) return tensor;
    b->program->tensors[tensor].extent = SNUG_EXTENT_FIXED;
    b->program->tensors[tensor].rows = rows;
    return tensor;
}

int32_t snug_table(struct snug_builder *b, int32_t table, const char *name) {
    const int64_t rows = b->status == SNUG_OK ? b->program->tensors[table].rows : 0;
    const int32_t y = add_fixed(b, rows, cols_of(b, table), true, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_TABLE, .table = {.table = table, .y = y}});
    return y;
}

/* DoRA: with x' = dropout(x), y = (x' W^T + scale x' a^T b^T) m / |rows of W + scale b a| + (x - x') W^T + bias. */
static int32_t dora_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name) {
    const struct snug_lora *lora = &w.lora;
    const struct snug_affine plain = {.weight = w.weight, .transposed = w.transposed};
    struct snug_row_lengths lengths = {.w = w.weight, .a = lora->a, .b = lora->b, .scale = (float)lora->scale};
    char own[64];
    const int32_t dropped = lora_dropout(b, x, lora, name);
    snprintf(own, sizeof own, "%s.dora", name);
    struct snug_scale_columns scale = {.x = snug_linear(b, dropped, plain, own), .m = lora->lengths, .b = w.bias};
    add_lora_product(b, dropped, lora, scale.x, name);
    snprintf(own, sizeof own, "%s.dora_lengths", name);
    const int64_t outputs = cols_of(b, scale.x);
    scale.inverse = lengths.inverse = add_fixed(b, 1, outputs, false, own);
    lengths.transposed = w.transposed;
    add_op(b, (struct snug_op){.kind = SNUG_OP_ROW_LENGTHS, .row_lengths = lengths});
    if (dropped != x) {
        snprintf(own, sizeof own, "%s.dora_dropped", name);
        const int32_t rest = snug_scaled_sum(b, dropped, x, -1, own);
        snprintf(own, sizeof own, "%s.dora_rest", name);
        scale.addend = snug_linear(b, rest, plain, own);
    }
    scale.y = add_value(b, x, outputs, true, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_SCALE_COLUMNS, .scale_columns = scale});
    return scale.y;
}

/* The columns of y, logits, that tokens with rows of their own have. */
static void replace_columns(struct snug_builder *b, int32_t x, struct snug_affine w, int32_t y, const char *name) {
    char own[64];
    snprintf(own, sizeof own, "%s.tokens", name);
    const int32_t z = linear_of(b, x, all_columns, (struct snug_affine){.weight = w.rows.rows}, 0, own);
    if (b->status == SNUG_OK) b->program->tensors[z].low_precision = has_low_logits(b);
    add_op(b, (struct snug_op){.kind = SNUG_OP_TOKEN_COLUMNS,
                               .token_columns = {.x = y, .z = z, .tokens = w.rows.tokens, .b = w.bias, .y = y}});
}

int32_t snug_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name) {
    if (w.lora.lengths) return dora_linear(b, x, w, name);
    const int32_t y = linear_of(b, x, all_columns, w, 0, name);
    if (w.rows.rows) replace_columns(b, x, w, y, name);
    if (w.lora.a) add_lora_product(b, lora_dropout(b, x, &w.lora, name), &w.lora, y, name);
    return y;
}

/* The stacked adapters come after all bases: so their matmul is the first one backward that gives a part of dx, and the
   bases' add to it, which have enough work to hide that. */
void snug_linears(struct snug_builder *b, int32_t x, int count, const struct snug_affine w[], const char *const names[],
                  int32_t y[]) {
    int32_t u = 0;
    for (int i = 0; i < count; i++)
        y[i] =
            w[i].lora.of_u.count ? linear_of(b, x, all_columns, w[i], 0, names[i]) : snug_linear(b, x, w[i], names[i]);
    for (int i = 0; i < count; i++) {
        if (!w[i].lora.of_u.count) continue;
        next_site(b); /* that of its dropout, which is off */
        if (!u) u = add_lora_inputs(b, x, &w[i].lora, names[i]);
        add_lora_outputs(b, u, &w[i].lora, y[i], names[i]);
    }
}

int32_t snug_added_linear(struct snug_builder *b, int32_t x, struct snug_affine w, int32_t addend) {
    return linear_of(b, x, all_columns, w, addend, "");
}

int32_t snug_convolution(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name) {
    char own[64];
    snprintf(own, sizeof own, "%s.unfolded", name);
    const int32_t y = add_value(b, x, cols_of(b, w.weight), true, own);
    add_op(b, (struct snug_op){.kind = SNUG_OP_UNFOLD, .unfold = {.x = x, .y = y}});
    return snug_linear(b, y, w, name);
}

static int32_t activate(struct snug_builder *b, int32_t u, int32_t bias, enum snug_activation activation,
                        const char *name) {
    const int32_t a = add_value(b, u, cols_of(b, u), true, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_ACTIVATION,
                               .activation = {.u = u, .b = bias, .a = a, .function = activation}});
    return a;
}

int32_t snug_activated(struct snug_builder *b, int32_t x, enum snug_activation activation, const char *name) {
    return activate(b, x, 0, activation, name);
}

/* The matmul's output is stored without its bias. The activation adds the bias when it reads the output, at no extra
   cost; in a GPU's matmul it takes 8 % of the time (727 instead of 788 TFLOP/s in BERT-large's feed-forward network,
   bf16). */
int32_t snug_activated_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name,
                              enum snug_activation activation, const char *activated) {
    const int32_t u =
        snug_linear(b, x, (struct snug_affine){.weight = w.weight, .transposed = w.transposed, .lora = w.lora}, name);
    tag_maker(b, u, SNUG_IN_FFN);
    return activate(b, u, w.bias, activation, activated);
}

int32_t snug_gated_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name,
                          enum snug_activation activation, const char *activated) {
    const int32_t u = snug_linear(b, x, w, name);
    tag_maker(b, u, SNUG_IN_FFN);
    const int32_t a = add_value(b, u, cols_of(b, u) / 2, true, activated);
    add_op(b, (struct snug_op){.kind = SNUG_OP_GLU, .glu = {.u = u, .a = a, .function = activation}});
    return a;
}

int32_t snug_gated_linears(struct snug_builder *b, int32_t x, struct snug_affine gate, struct snug_affine up,
                           enum snug_activation activation, const char *activated) {
    static const char *const names[] = {"ffn.gate", "ffn.up"};
    const struct snug_affine w[] = {gate, up};
    int32_t y[2] = {0};
    snug_linears(b, x, 2, w, names, y);
    const int32_t u = y[0], v = y[1];
    tag_maker(b, u, SNUG_IN_FFN);
    tag_maker(b, v, SNUG_IN_FFN);
    const int32_t a = add_value(b, u, cols_of(b, u), true, activated);
    add_op(b, (struct snug_op){.kind = SNUG_OP_GLU, .glu = {.u = u, .v = v, .a = a, .function = activation}});
    return a;
}

struct snug_attention_form snug_attention_form(const struct snug_builder *b) {
    const int32_t heads = (int32_t)b->config->num_attention_heads;
    const int32_t size = (int32_t)(b->config->hidden_size / heads);
    return (struct snug_attention_form){.heads = heads,
                                        .kv_heads = heads,
                                        .head_dim = size,
                                        .before = -1,
                                        .after = -1,
                                        .scale = 1 / sqrtf((float)size)};
}

/* Sets where operands begin; they must cover their tensors. */
static void place_operands(struct snug_builder *b, const int32_t operands[3], struct snug_attention_form *form) {
    int64_t width[3] = {0}; /* of the tensors' operands so far */
    const int64_t d = form->head_dim;
    for (int n = 0; n < 3; n++) {
        int first = 0;
        while (operands[first] != operands[n]) first++;
        form->column[n] = (int32_t)width[first];
        width[first] += d * (n ? form->kv_heads : form->heads);
    }
    for (int n = 0; b->status == SNUG_OK && n < 3; n++)
        if (form->heads % form->kv_heads || (form->column[n] == 0 && width[n] != cols_of(b, operands[n])))
            b->status = snug_fail(b->program->ctx, SNUG_E_INTERNAL,
                                  "%s is not the attention operands of %d heads and %d key/value heads of %d channels",
                                  b->program->tensors[operands[n]].name, (int)form->heads, (int)form->kv_heads,
                                  (int)form->head_dim);
}

static bool is_same(const struct snug_rotation *a, const struct snug_rotation *b) {
    const size_t size = (size_t)a->pairs * sizeof *a->frequencies;
    return a->pairs == b->pairs && a->neighbours == b->neighbours && a->factor == b->factor && a->growth == b->growth &&
           a->growth_from == b->growth_from && memcmp(a->frequencies, b->frequencies, size) == 0;
}

/* The number of the rotation in the program, which has each once. */
static int32_t add_rotation(struct snug_builder *b, const struct snug_rotation *rotation) {
    struct snug_program *program = b->program;
    size_t number = 0;
    while (number < program->rotation_count && !is_same(&program->rotations[number], rotation)) number++;
    if (number < program->rotation_count || b->status != SNUG_OK) return (int32_t)number;
    b->status = snug_grow(program->ctx, (void **)&program->rotations, &program->rotation_capacity, number + 1,
                          sizeof *program->rotations);
    if (b->status == SNUG_OK) program->rotations[program->rotation_count++] = *rotation;
    return (int32_t)number;
}

/* Generation: a layer's keys and values, for all sequences. */
static int32_t add_cache(struct snug_builder *b, const struct snug_attention_form *form, const char *name) {
    int32_t tensor = 0;
    if (b->status == SNUG_OK)
        b->status = snug_program_tensor(b->program,
                                        (struct snug_tensor){.memory_class = SNUG_MEMORY_FUNCTION,
                                                             .rows = b->program->cache_pages * SNUG_CACHE_PAGE,
                                                             .cols = (int64_t)form->kv_heads * form->head_dim,
                                                             .part = b->part,
                                                             .layer = b->layer,
                                                             .persistent = true,
                                                             .low_precision = true},
                                        &tensor, "layer.%d.cache.%s", (int)b->layer, name);
    return tensor;
}

int32_t snug_cached_attention(struct snug_builder *b, const int32_t operands[3], const struct snug_rotation *rotation,
                              struct snug_attention_form form) {
    place_operands(b, operands, &form);
    const int32_t keys = add_cache(b, &form, "keys"), values = add_cache(b, &form, "values");
    const int32_t o = add_value(b, operands[0], (int64_t)form.heads * form.head_dim, true, "attention.output");
    if (b->status == SNUG_OK && form.after != 0)
        b->status = snug_fail(b->program->ctx, SNUG_E_UNSUPPORTED,
                              "an encoder generates no text: its tokens see those that follow them");
    struct snug_cache_rows rows = {
        .k = operands[1], .v = operands[2], .keys = keys, .values = values, .column = {form.column[1], form.column[2]}};
    if (rotation->pairs) {
        rows.q = operands[0];
        rows.heads = form.heads;
        rows.kv_heads = form.kv_heads;
        rows.head_dim = form.head_dim;
        rows.rotation = add_rotation(b, rotation);
    }
    add_op(b, (struct snug_op){.kind = SNUG_OP_CACHE_ROWS, .cache_rows = rows});
    add_op(b, (struct snug_op){.kind = SNUG_OP_CACHED_ATTENTION,
                               .cached_attention = {.q = operands[0],
                                                    .k = operands[1],
                                                    .v = operands[2],
                                                    .keys = keys,
                                                    .values = values,
                                                    .o = o,
                                                    .form = form}});
    return o;
}

/* Attention, whose bias, pk and pq are set. */
static int32_t add_attention(struct snug_builder *b, struct snug_attention a, struct snug_attention_form form) {
    const int32_t operands[] = {a.q, a.k, a.v}, q = a.q;
    const int64_t width = (int64_t)form.heads * form.head_dim;
    place_operands(b, operands, &form);
    a.form = form;
    a.o = add_value(b, q, width, true, "attention.output");
    a.lse = add_value(b, q, form.heads, false, "attention.log_sum_exp");
    for (int n = 0; n < 3; n++) tag_maker(b, operands[n], SNUG_IN_ATTENTION);
    if (a.pk) tag_maker(b, a.pk, SNUG_IN_ATTENTION);
    if (a.pq) tag_maker(b, a.pq, SNUG_IN_ATTENTION);
    add_op(b, (struct snug_op){.kind = SNUG_OP_ATTENTION,
                               .p = rate(b, b->config->attention_probs_dropout_prob),
                               .site = next_site(b),
                               .attention = a});
    tag_last_op(b, SNUG_IN_ATTENTION);
    return a.o;
}

int32_t snug_attention(struct snug_builder *b, int32_t q, int32_t k, int32_t v, int32_t bias,
                       struct snug_attention_form form) {
    return add_attention(b, (struct snug_attention){.q = q, .k = k, .v = v, .bias = bias}, form);
}

int32_t snug_position_attention(struct snug_builder *b, const int32_t operands[3], int32_t pk, int32_t pq,
                                struct snug_attention_form form) {
    const struct snug_attention a = {.q = operands[0], .k = operands[1], .v = operands[2], .pk = pk, .pq = pq};
    return add_attention(b, a, form);
}

static int32_t residual_norm(struct snug_builder *b, int32_t z, int32_t x, double p, struct snug_affine norm,
                             const char *name, int32_t s) {
    int32_t y = add_value(b, x, cols_of(b, x), true, name);
    add_op(
        b,
        (struct snug_op){
            .kind = SNUG_OP_RESIDUAL_NORM,
            .p = rate(b, p),
            .site = next_site(b),
            .residual_norm = {
                .z = z, .x = x, .gamma = norm.weight, .beta = norm.bias, .s = s, .y = y, .form = norm_form(b, norm)}});
    return y;
}

int32_t snug_residual_sum_norm(struct snug_builder *b, int32_t z, int32_t x, double p, struct snug_affine norm,
                               const char *name, int32_t *s) {
    char sum[48];
    snprintf(sum, sizeof sum, "%s.sum", name);
    *s = add_value(b, x, cols_of(b, x), true, sum);
    return residual_norm(b, z, x, p, norm, name, *s);
}

int32_t snug_residual_norm(struct snug_builder *b, int32_t z, int32_t x, double p, struct snug_affine norm,
                           const char *name) {
    int32_t s;
    return b->training ? snug_residual_sum_norm(b, z, x, p, norm, name, &s) /* s is read backward */
                       : residual_norm(b, z, x, p, norm, name, 0);
}

int32_t snug_norm(struct snug_builder *b, int32_t s, struct snug_affine norm, const char *name) {
    return add_norm(b, s, norm, 0, 0, name);
}

int32_t snug_head_norm(struct snug_builder *b, int32_t x, struct snug_affine norm, const char *name) {
    tag_maker(b, x, SNUG_IN_ATTENTION);
    return snug_norm(b, x, norm, name);
}

void snug_rotate(struct snug_builder *b, int32_t x, int32_t heads, int32_t head_dim,
                 const struct snug_rotation *rotation) {
    const int32_t number = add_rotation(b, rotation);
    add_op(b, (struct snug_op){.kind = SNUG_OP_ROTATE,
                               .rotate = {.x = x, .y = x, .heads = heads, .head_dim = head_dim, .rotation = number}});
}

int32_t snug_scaled_sum(struct snug_builder *b, int32_t x, int32_t addend, double scale, const char *name) {
    const int32_t y = add_value(b, x, cols_of(b, x), true, name);
    add_op(b,
           (struct snug_op){.kind = SNUG_OP_SCALE, .scale = {.x = x, .addend = addend, .y = y, .scale = (float)scale}});
    return y;
}

void snug_softcap(struct snug_builder *b, int32_t x, double cap) {
    add_op(b, (struct snug_op){.kind = SNUG_OP_SCALE, .scale = {.x = x, .y = x, .scale = 1, .softcap = (float)cap}});
}

int32_t snug_dropout(struct snug_builder *b, int32_t x, double p, const char *name) {
    uint32_t site = next_site(b);
    if (rate(b, p) == 0) return x;
    int32_t y = add_value(b, x, cols_of(b, x), true, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_DROPOUT, .p = rate(b, p), .site = site, .dropout = {.x = x, .y = y}});
    return y;
}

static int32_t gather(struct snug_builder *b, int32_t x, enum snug_extent extent, enum snug_pooling pooling,
                      const char *name) {
    int32_t r = add_value(b, x, cols_of(b, x), true, name);
    if (b->status == SNUG_OK) {
        b->program->tensors[r].extent = extent;
        b->program->tensors[r].pooling = pooling;
    }
    add_op(b, (struct snug_op){.kind = SNUG_OP_GATHER, .gather = {.x = x, .r = r}});
    return r;
}

int32_t snug_gather(struct snug_builder *b, int32_t x, enum snug_extent extent, const char *name) {
    return gather(b, x, extent, SNUG_POOL_FIRST, name);
}

int32_t snug_pool(struct snug_builder *b, int32_t x, enum snug_pooling pooling, const char *name) {
    return gather(b, x, SNUG_EXTENT_SEQUENCES, pooling, name);
}

static int32_t best_op(struct snug_builder *b, int32_t logits) {
    const int32_t best = add_value(b, logits, 1, false, "best");
    if (b->status == SNUG_OK) b->program->tensors[best].dtype = SNUG_I32;
    add_op(b, (struct snug_op){.kind = SNUG_OP_BEST, .best = {.logits = logits, .best = best}});
    return best;
}

/* Generation: the tokens of which the host chooses the next one. */
static void add_top(struct snug_builder *b, int32_t logits) {
    struct snug_program *program = b->program;
    if (!program->top_count) return;
    program->top_ids = add_value(b, logits, program->top_count, false, "top.ids");
    if (b->status == SNUG_OK) program->tensors[program->top_ids].dtype = SNUG_I32;
    program->top_log_probabilities = add_value(b, logits, program->top_count, false, "top.log_probabilities");
    add_op(b, (struct snug_op){.kind = SNUG_OP_TOP,
                               .top = {.logits = logits,
                                       .ids = program->top_ids,
                                       .log_probabilities = program->top_log_probabilities}});
}

/* Logits are fp32: their softmax needs the precision. Those of a vocabulary, the largest tensor of a step, may be in
   the compute type in a training, as those of transformers' mixed precision are; their softmax is taken in fp32. */
static void set_logits(struct snug_builder *b, int32_t logits) {
    b->program->logits = logits;
    if (b->status == SNUG_OK && !has_low_logits(b)) b->program->tensors[logits].low_precision = false;
}

int32_t snug_normalize_rows(struct snug_builder *b, int32_t x, bool unit, bool low, const char *name) {
    const int32_t y = add_value(b, x, cols_of(b, x), low, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_NORMALIZE, .normalize = {.x = x, .y = y, .unit = unit}});
    return y;
}

void snug_build_vectors(struct snug_builder *b, int32_t vectors) {
    b->program->logits = vectors;
    b->program->best = best_op(b, vectors);
}

/* What lives across the chunks of HEAD, or the micro-batches of a step, and what the host reads; rows: of a FIXED one.
 */
static int32_t add_kept(struct snug_builder *b, enum snug_dtype type, enum snug_extent extent, int64_t rows,
                        int64_t cols, const char *name) {
    int32_t made = 0;
    if (b->status == SNUG_OK)
        b->status = snug_program_tensor(b->program,
                                        (struct snug_tensor){.dtype = type,
                                                             .memory_class = SNUG_MEMORY_TEMPORARY,
                                                             .extent = extent,
                                                             .rows = rows,
                                                             .cols = cols,
                                                             .part = b->part,
                                                             .layer = -1,
                                                             .persistent = true},
                                        &made, "%s", name);
    return made;
}

static int32_t add_result(struct snug_builder *b, enum snug_dtype type, int64_t cols, const char *name) {
    return add_kept(b, type, SNUG_EXTENT_FIXED, 1, cols, name);
}

/* The loss of pairs of sequences. */
static void add_preference(struct snug_builder *b, int32_t logits) {
    struct snug_program *program = b->program;
    const int64_t most = program->capacity[SNUG_EXTENT_SEQUENCES], sequences = most ? most : 1;
    const int32_t rows = add_value(b, logits, 1, false, "losses"),
                  scales = add_result(b, SNUG_F32, sequences, "preference.scales");
    program->scores_first = b->training;
    program->sums = add_result(b, SNUG_F64, sequences, "preference.sums");
    program->results = add_result(b, SNUG_F32, SNUG_PREFERENCE_RESULTS, "preference.results");
    add_op(b,
           (struct snug_op){
               .kind = SNUG_OP_LOSS,
               .loss = {.logits = logits, .scales = scales, .rows = rows, .function = SNUG_PREFERENCE_CROSS_ENTROPY}});
    add_op(b, (struct snug_op){.kind = SNUG_OP_PREFERENCE,
                               .preference = {.rows = rows,
                                              .sums = program->sums,
                                              .scales = scales,
                                              .loss = program->loss,
                                              .results = program->results,
                                              .form = program->preference}});
}

void snug_build_vector_loss(struct snug_builder *b, int32_t vectors, const struct snug_vector_loss_form *form,
                            bool scored) {
    const int32_t all = add_kept(b, SNUG_F32, SNUG_EXTENT_STEP, 0, cols_of(b, vectors), "step.vectors");
    const int32_t scores = scored ? add_kept(b, SNUG_F32, SNUG_EXTENT_STEP, 0, 1, "step.scores") : 0;
    b->program->loss_of_step = true;
    b->program->loss = add_result(b, SNUG_F32, 1, "loss");
    add_op(b, (struct snug_op){.kind = SNUG_OP_COLLECT,
                               .collect = {.x = vectors, .vectors = all, .scores = scores, .texts = form->texts}});
    b->phase = SNUG_PHASE_STEP;
    add_op(b, (struct snug_op){
                  .kind = SNUG_OP_VECTOR_LOSS,
                  .vector_loss = {.vectors = all, .scores = scores, .loss = b->program->loss, .form = *form}});
}

void snug_loss_op(struct snug_builder *b, int32_t logits, enum snug_loss_kind kind, double label_smoothing) {
    set_logits(b, logits);
    if (b->program->cache_pages) return add_top(b, logits); /* generation has no labels */
    b->program->loss = add_result(b, SNUG_F32, 1, "loss");
    snug_build_share(b, b->program->loss);
    if (!b->training) b->program->best = best_op(b, logits);
    if (kind == SNUG_PREFERENCE_CROSS_ENTROPY) return add_preference(b, logits);
    add_op(b, (struct snug_op){.kind = SNUG_OP_LOSS,
                               .loss = {.logits = logits,
                                        .loss = b->program->loss,
                                        .function = kind,
                                        .label_smoothing = (float)label_smoothing,
                                        .weighted = b->program->weighs_classes}});
}

void snug_build_loss(struct snug_builder *b, int32_t logits) {
    const struct snug_task_info *task = snug_task_info(b->config->task);
    const bool ranks = b->config->task == SNUG_TASK_RERANKING;
    const enum snug_loss_kind loss =
        ranks ? task->loss[b->config->ranking_loss] : task->loss[b->config->labels.problem];
    snug_loss_op(b, logits, loss, task->labelled ? b->label_smoothing : 0);
}
