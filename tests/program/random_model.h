/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models drawn from a seed: post- and pre-norm, values with several readers, residuals of residuals, weights and tables
 * used twice, dropout, frozen weights; larger with the seed, so that the first that fails is small. And batches for
 * them, values of their weights, and choices for the methods.
 */
#ifndef SNUG_TESTS_RANDOM_MODEL_H
#define SNUG_TESTS_RANDOM_MODEL_H

#include "model/build.h"
#include "ops.h"
#include "plan/stages.h"

enum { RANDOM_WEIGHTS = 128, RANDOM_VALUES = 64, RANDOM_LAYERS = 3, RANDOM_BATCHES = 2, RANDOM_TOKENS = 16 };

struct random_weight {
    char name[128];
    int32_t tensor;
    int64_t count;
    float *values;
    double scale; /* of its values */
    bool frozen;
};

struct random_model {
    snug_context *ctx;
    uint64_t seed;
    struct snug_config config;
    int layers;
    bool of_sequences; /* the loss is over sequences, otherwise over tokens */
    bool pools;        /* the last layer computes only one row of each sequence */
    enum snug_pooling pooling;
    bool tied, clips;
    enum snug_loss_kind loss;
    int64_t classes, rows_in_chunk;
    struct snug_batch batches[RANDOM_BATCHES];
    int batch_count;
    struct random_weight weights[RANDOM_WEIGHTS];
    size_t weight_count;
    struct snug_optimizer optimizer;
    enum snug_recompute levels[RANDOM_LAYERS], no_levels[RANDOM_LAYERS];
    unsigned offloaded; /* memory classes */
    int32_t ahead;
};

static inline uint32_t random_word(const struct random_model *m, uint64_t stream, uint64_t i) {
    return snug_philox((uint32_t)i, (uint32_t)m->seed, (uint32_t)stream, 0, 0x72616e64, 0x6d6f6465).word[0];
}

/* ---- the architecture ------------------------------------------------------------------------------------------- */

/* The model while it is drawn: the values that later operations may read. */
struct random_graph {
    const struct random_model *m;
    struct snug_builder b;
    uint64_t drawn; /* choices made so far */
    int names;
    int32_t values[RANDOM_VALUES];
    int value_count;
    struct snug_affine shared; /* a square linear that may be used again */
    int32_t biases;            /* a table of biases by relative position, which may also be used again */
};

static inline int random_pick(struct random_graph *g, int choices) {
    return (int)(random_word(g->m, 1, g->drawn++) % (uint32_t)choices);
}

/* The newest value with probability 1/2, else any. */
static inline int32_t random_value(struct random_graph *g) {
    return g->values[random_pick(g, 2) ? g->value_count - 1 : random_pick(g, g->value_count)];
}

static inline int32_t random_push(struct random_graph *g, int32_t value) {
    if (g->value_count < RANDOM_VALUES) g->values[g->value_count++] = value;
    return value;
}

struct random_name {
    char text[32];
};
static inline struct random_name random_name(struct random_graph *g, const char *what) {
    struct random_name name;
    snprintf(name.text, sizeof name.text, "%s%d", what, g->names++);
    return name;
}

static inline struct snug_affine random_affine(struct random_graph *g, int64_t outputs, int64_t inputs) {
    const struct random_name name = random_name(g, "linear");
    struct snug_affine w = snug_build_linear(&g->b, outputs, inputs, name.text, true);
    if (random_pick(g, 5) == 0) w.bias = 0;
    return w;
}

static inline struct snug_affine random_norm_weights(struct random_graph *g) {
    struct snug_affine w = snug_build_norm(&g->b, g->m->config.hidden_size, random_name(g, "norm").text, true);
    if (random_pick(g, 4) == 0) w.bias = 0;
    w.rms = random_pick(g, 3) == 0;
    w.unit_offset = random_pick(g, 4) == 0;
    return w;
}

static inline int32_t random_linear(struct random_graph *g, int32_t x) {
    const int64_t h = g->m->config.hidden_size;
    if (g->shared.weight && random_pick(g, 4) == 0) return snug_linear(&g->b, x, g->shared, random_name(g, "y").text);
    const struct snug_affine w = random_affine(g, h, h);
    if (random_pick(g, 3) == 0) g->shared = w;
    const int32_t y = snug_linear(&g->b, x, w, random_name(g, "y").text);
    if (random_pick(g, 4)) return y;
    struct snug_affine more = random_affine(g, h, h);
    more.transposed = random_pick(g, 2);
    return snug_added_linear(&g->b, random_value(g), more, y);
}

/* Norms the heads of q, if it is a tensor of its own, and rotates those of q and k. */
static inline void random_rotate(struct random_graph *g, int32_t operands[3], int tensors,
                                 const struct snug_attention_form *form) {
    const int32_t d = form->head_dim;
    if (tensors > 1 && random_pick(g, 2)) {
        struct snug_affine w = snug_build_norm(&g->b, d, random_name(g, "norm").text, random_pick(g, 2));
        w.rms = random_pick(g, 2);
        w.parts = form->heads;
        operands[0] = snug_norm(&g->b, operands[0], w, random_name(g, "heads").text);
    }
    if (d < 2 || random_pick(g, 2)) return;
    struct snug_rotation r = {.pairs = random_pick(g, 2) ? d / 2 : 1, .neighbours = random_pick(g, 2), .factor = 1.25};
    for (int32_t c = 0; c < r.pairs; c++) r.frequencies[c] = pow(10, -2.0 * c / d);
    snug_rotate(&g->b, operands[0], form->heads + (tensors == 1 ? form->kv_heads : 0), d, &r);
    if (tensors > 1) snug_rotate(&g->b, operands[1], form->kv_heads, d, &r);
}

static inline int32_t random_reach(struct random_graph *g) { return random_pick(g, 2) ? -1 : random_pick(g, 4); }

/* Position keys, position queries, or both, of a table of their own. */
static inline int32_t random_positions(struct random_graph *g, const int32_t operands[3],
                                       struct snug_attention_form form) {
    const int64_t h = g->m->config.hidden_size, width = (int64_t)form.heads * form.head_dim;
    const int64_t span = 2 + random_pick(g, 6);
    const int which = 1 + random_pick(g, 3);
    form.farthest = random_pick(g, 2) ? (int32_t)(span + 3) : 0;
    const int32_t table = snug_build_table(&g->b, 2 * span, h, -1, random_name(g, "positions").text);
    const int32_t all = snug_table(&g->b, table, random_name(g, "rows").text);
    const int32_t rows = snug_dropout(&g->b, all, g->m->config.hidden_dropout_prob, random_name(g, "dropped").text);
    int32_t tables[2] = {0};
    for (int n = 0; n < 2; n++)
        if (which >> n & 1)
            tables[n] = snug_linear(&g->b, rows, random_affine(g, width, h), random_name(g, "position").text);
    return snug_position_attention(&g->b, operands, tables[0], tables[1], form);
}

/* Query heads may share key/value heads, and q, k and v be one tensor, two or three, of one value or of two. */
static inline int32_t random_attention(struct random_graph *g, int32_t x) {
    const int64_t h = g->m->config.hidden_size;
    struct snug_attention_form form = snug_attention_form(&g->b);
    int32_t bias = 0, operands[3] = {0};
    if (random_pick(g, 2)) {
        form.kv_heads = 1 + random_pick(g, 2);
        form.heads = form.kv_heads * (1 + random_pick(g, 3));
        form.head_dim = 2 + random_pick(g, 5);
    }
    if (random_pick(g, 2)) {
        form.before = random_reach(g);
        form.after = random_reach(g);
    }
    if (random_pick(g, 4) == 0) form.softcap = 0.5f;
    if (random_pick(g, 4) == 0) form.scale = 0.5f;
    if (form.heads == g->m->config.num_attention_heads && random_pick(g, 2) == 0) {
        const struct random_name name = random_name(g, "biases");
        if (!g->biases) g->biases = snug_build_table(&g->b, 8, form.heads, -1, name.text);
        bias = g->biases;
    }
    const int64_t query = (int64_t)form.heads * form.head_dim, key = (int64_t)form.kv_heads * form.head_dim;
    const int tensors = 1 + random_pick(g, 3);
    const int64_t widths[][3] = {{query + 2 * key}, {query, 2 * key}, {query, key, key}};
    const int32_t keys = random_pick(g, 4) ? x : random_value(g);
    for (int n = 0; n < tensors; n++)
        operands[n] = snug_linear(&g->b, n ? keys : x, random_affine(g, widths[tensors - 1][n], h),
                                  random_name(g, "operand").text);
    for (int n = tensors; n < 3; n++) operands[n] = operands[tensors - 1];
    random_rotate(g, operands, tensors, &form);
    const bool plain = form.heads == form.kv_heads && form.before < 0 && form.after < 0 && form.softcap == 0 && !bias;
    const int32_t o = plain && random_pick(g, 2)
                          ? random_positions(g, operands, form)
                          : snug_attention(&g->b, operands[0], operands[1], operands[2], bias, form);
    if (query == h && random_pick(g, 3) == 0) return o;
    return snug_linear(&g->b, o, random_affine(g, h, query), random_name(g, "y").text);
}

static inline int32_t random_ffn(struct random_graph *g, int32_t x) {
    static const enum snug_activation functions[] = {SNUG_GELU, SNUG_GELU_TANH, SNUG_SILU, SNUG_TANH};
    const int64_t h = g->m->config.hidden_size, inner = h + 4 * random_pick(g, 3);
    const struct snug_affine up = random_affine(g, inner, h), down = random_affine(g, h, inner);
    const struct random_name u = random_name(g, "u"), a = random_name(g, "a");
    if (random_pick(g, 6) == 0) {
        const struct snug_affine gate = random_affine(g, inner, h);
        const int32_t product =
            snug_gated_linears(&g->b, x, gate, up, functions[random_pick(g, 4)], random_name(g, "a").text);
        return snug_linear(&g->b, product, down, random_name(g, "y").text);
    }
    if (random_pick(g, 3) == 0) {
        const struct snug_affine gated = random_affine(g, 2 * inner, h);
        const enum snug_activation function = functions[random_pick(g, 4)];
        return snug_linear(&g->b, snug_gated_linear(&g->b, x, gated, u.text, function, a.text), down,
                           random_name(g, "y").text);
    }
    const int32_t inside = snug_activated_linear(&g->b, x, up, u.text, functions[random_pick(g, 4)], a.text);
    return snug_linear(&g->b, inside, down, random_name(g, "y").text);
}

/* norm(dropout(z) + x), and the sum itself. */
static inline int32_t random_residual(struct random_graph *g, int32_t z, int32_t x, int32_t *sum) {
    const struct snug_affine norm = random_norm_weights(g);
    const double p = random_pick(g, 4) ? g->m->config.hidden_dropout_prob : 0;
    const int32_t y = snug_residual_norm(&g->b, z, x, p, norm, random_name(g, "norm.y").text);
    const struct snug_program *program = g->b.program;
    *sum = g->b.status == SNUG_OK ? program->ops[program->op_count - 1].residual_norm.s : 0;
    return y;
}

static inline void random_operation(struct random_graph *g, bool attends) {
    const int32_t x = random_value(g);
    int32_t sum;
    switch (random_pick(g, 9)) {
    case 0: random_push(g, random_linear(g, x)); break;
    case 1: random_push(g, attends ? random_attention(g, x) : random_linear(g, x)); break;
    case 2: { /* post-norm */
        const int32_t z = attends && random_pick(g, 2) ? random_attention(g, x) : random_ffn(g, x);
        random_push(g, random_residual(g, z, x, &sum));
        if (random_pick(g, 3) == 0) random_push(g, sum);
        break;
    }
    case 3: { /* pre-norm: the sum is the residual, its norm the input of the next block */
        const struct snug_affine w = random_norm_weights(g);
        const int32_t y = snug_norm(&g->b, x, w, random_name(g, "norm.y").text);
        const int32_t z = attends && random_pick(g, 2) ? random_attention(g, y) : random_ffn(g, y);
        random_push(g, random_residual(g, z, x, &sum));
        random_push(g, sum);
        break;
    }
    case 4: { /* any two values, possibly the same */
        const int32_t y = random_residual(g, x, random_value(g), &sum);
        random_push(g, y);
        if (random_pick(g, 2)) random_push(g, sum);
        break;
    }
    case 5: random_push(g, snug_norm(&g->b, x, random_norm_weights(g), random_name(g, "norm.y").text)); break;
    case 6: random_push(g, random_ffn(g, x)); break;
    case 7:
        random_push(g, snug_dropout(&g->b, x, g->m->config.hidden_dropout_prob, random_name(g, "drop").text));
        break;
    default: { /* linears with the same input */
        const int32_t a = random_linear(g, x), b = random_linear(g, x);
        random_push(g, random_residual(g, a, b, &sum));
        break;
    }
    }
}

static inline int32_t random_embeddings(struct random_graph *g, int32_t *word) {
    const struct snug_config *c = &g->m->config;
    *word = snug_build_table(&g->b, c->vocab_size, c->hidden_size, -1, "word");
    const int32_t position =
        random_pick(g, 3) ? snug_build_table(&g->b, c->max_position_embeddings, c->hidden_size, -1, "position") : 0;
    const int32_t type =
        random_pick(g, 3) ? snug_build_table(&g->b, c->type_vocab_size, c->hidden_size, -1, "type") : 0;
    if (random_pick(g, 3) == 0) /* the sum itself, of which the first layer reads a norm */
        return snug_embed_sum(&g->b, *word, position, type, random_pick(g, 2) ? 1 : 1.5);
    return snug_embed_normed(&g->b, *word, position, type, random_norm_weights(g));
}

static inline void random_head(struct random_graph *g, int32_t x, int32_t word) {
    const struct random_model *m = g->m;
    const int64_t h = m->config.hidden_size;
    struct snug_affine decoder = {.weight = word};
    g->value_count = 0;
    g->shared.weight = 0;
    random_push(g, snug_gather(&g->b, x, SNUG_EXTENT_ROWS, "rows"));
    for (int i = random_pick(g, 3); i > 0; i--) random_operation(g, false);
    if (!m->tied) decoder = random_affine(g, m->classes, h);
    const int32_t last = g->values[g->value_count - 1];
    snug_loss_op(&g->b, snug_linear(&g->b, last, decoder, "logits"), m->loss, random_pick(g, 2) ? 0 : 0.1);
}

static inline void random_graph_build(struct random_graph *g) {
    const struct random_model *m = g->m;
    int32_t word, sum;
    snug_build_part(&g->b, SNUG_PART_EMBEDDINGS, 0);
    random_push(g, random_embeddings(g, &word));
    for (int layer = 0; layer < m->layers; layer++) {
        snug_build_part(&g->b, SNUG_PART_LAYER, layer);
        for (int i = 1 + random_pick(g, 1 + (int)(m->seed < 200 ? m->seed / 50 : 4)); i > 0; i--)
            random_operation(g, true);
        if (m->pools && layer + 1 == m->layers) { /* of two values, so that later ones read both */
            const int32_t a = snug_pool(&g->b, random_value(g), m->pooling, "pooled.a");
            const int32_t b = snug_pool(&g->b, random_value(g), m->pooling, "pooled.b");
            g->value_count = 0;
            random_push(g, random_residual(g, a, b, &sum));
            for (int i = random_pick(g, 3); i > 0; i--) random_operation(g, false);
        }
    }
    const int32_t last = g->values[g->value_count - 1];
    snug_build_part(&g->b, SNUG_PART_HEAD, 0);
    g->b.phase = SNUG_PHASE_HEAD;
    random_head(g, last, word);
}

/* Ends the test if the model cannot be built. */
static inline void random_model_build(const struct random_model *m, struct snug_program *program,
                                      enum snug_dtype compute) {
    struct random_graph g = {
        .m = m, .b = {.program = program, .config = &m->config, .phase = SNUG_PHASE_FORWARD, .training = true}};
    snug_program_init(program, m->ctx);
    program->compute = compute;
    for (int i = 0; i < m->batch_count; i++) {
        const struct snug_batch *batch = &m->batches[i];
        int64_t *const most[] = {&program->capacity[SNUG_EXTENT_TOKENS], &program->capacity[SNUG_EXTENT_SEQUENCES],
                                 &program->longest};
        const int64_t sizes[] = {batch->tokens, batch->sequences, batch->longest};
        for (int k = 0; k < 3; k++) *most[k] = sizes[k] > *most[k] ? sizes[k] : *most[k];
    }
    program->capacity[SNUG_EXTENT_ROWS] = m->rows_in_chunk;
    random_graph_build(&g);
    if (g.b.status != SNUG_OK) fail_msg("seed %llu: %s", (unsigned long long)m->seed, snug_error_message(m->ctx));
    for (size_t i = 0; i < m->weight_count; i++)
        program->tensors[m->weights[i].tensor].trainable = !m->weights[i].frozen;
}

/* The forward operations, with the numbers and names of their operands. */
static inline void random_model_print(const struct random_model *m) {
    struct snug_program program;
    random_model_build(m, &program, SNUG_F32);
    print_message("seed %llu, h %d, %d head(s), dropout %g, %d batch(es), %s, recompute", (unsigned long long)m->seed,
                  (int)m->config.hidden_size, (int)m->config.num_attention_heads, m->config.hidden_dropout_prob,
                  m->batch_count, m->clips ? "clipped" : "not clipped");
    for (int i = 0; i < m->layers; i++) print_message(" %d", (int)m->levels[i]);
    print_message(", offloaded classes %x\n", m->offloaded);
    for (size_t i = 0; i < program.op_count; i++) {
        const struct snug_op *op = &program.ops[i];
        print_message("  %-2d %-14s", op->layer, snug_op_name(op->kind));
        for (int k = 0; k < snug_op_operands(op); k++)
            if (op->operands[k])
                print_message(" %s=%d:%s%s", snug_op_info(op->kind)->operands[k].name, (int)op->operands[k],
                              program.tensors[op->operands[k]].name,
                              program.tensors[op->operands[k]].persistent && !program.tensors[op->operands[k]].trainable
                                  ? "(frozen)"
                                  : "");
        print_message("\n");
    }
    snug_program_free(&program);
}

/* ---- batches, weights, methods ---------------------------------------------------------------------------------- */

static inline void random_batch(struct random_model *m, int number, int32_t first_sample) {
    struct snug_batch *b = &m->batches[number];
    const uint64_t stream = 10 + (uint64_t)number;
    int32_t *numbers = ops_array(9 * RANDOM_TOKENS, sizeof *numbers);
    int32_t **columns[] = {&b->ids,   &b->types,          &b->positions, &b->position_ids, &b->sample,
                           &b->by_id, &b->loss_positions, &b->labels,    &b->offsets};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) *columns[i] = numbers + i * RANDOM_TOKENS;
    b->sequences = 1 + random_word(m, stream, 0) % 3;
    b->first_sample = first_sample;
    b->last_in_step = number + 1 == m->batch_count;
    for (int32_t s = 0; s < b->sequences; s++) {
        const int32_t length = 1 + (int32_t)(random_word(m, stream, 1 + (uint64_t)s) % 5);
        for (int32_t i = 0; i < length; i++, b->tokens++) {
            const uint64_t t = (uint64_t)b->tokens;
            b->ids[t] = (int32_t)(random_word(m, stream, 100 + t) % (uint32_t)m->config.vocab_size);
            b->types[t] = (int32_t)(random_word(m, stream, 200 + t) % 2);
            b->positions[t] = b->position_ids[t] = i;
            b->sample[t] = first_sample + s;
        }
        b->offsets[s + 1] = (int32_t)b->tokens;
        b->longest = length > b->longest ? length : b->longest;
    }
    int64_t sorted = 0;
    for (int32_t id = 0; id < m->config.vocab_size; id++)
        for (int32_t t = 0; t < b->tokens; t++)
            if (b->ids[t] == id) b->by_id[sorted++] = t;
    for (int32_t s = 0; s < b->sequences && m->of_sequences; s++) { /* if it pools, some leave a prompt out */
        const uint32_t length = (uint32_t)(b->offsets[s + 1] - b->offsets[s]);
        b->loss_positions[b->rows++] =
            b->offsets[s] + (int32_t)(m->pools ? random_word(m, stream, 500 + (uint64_t)s) % length : 0);
    }
    for (int32_t t = 0; t < b->tokens && !m->of_sequences; t++)
        if (t == 0 || random_word(m, stream, 300 + (uint64_t)t) % 2) b->loss_positions[b->rows++] = t;
    b->targets = ops_array((size_t)(b->rows * m->classes), sizeof *b->targets);
    for (int64_t r = 0; r < b->rows; r++) {
        const uint32_t word = random_word(m, stream, 400 + (uint64_t)r);
        b->labels[r] = r > 0 && word % 5 == 0 ? SNUG_IGNORE_LABEL : (int32_t)(word % (uint32_t)m->classes);
        for (int64_t c = 0; c < m->classes; c++) b->targets[r * m->classes + c] = (float)(word >> c % 32 & 1);
    }
    b->items = b->rows;
    b->items_in_step = b->rows;
}

/* Gammas near 1, biases near 0, matrices that preserve the magnitude of their input. */
static inline void random_weights(struct random_model *m) {
    struct snug_program program;
    m->weight_count = 0; /* nothing is frozen yet */
    random_model_build(m, &program, SNUG_F32);
    for (size_t i = 0; i < program.parameter_count; i++) {
        const struct snug_parameter *parameter = &program.parameters[i];
        const struct snug_tensor *tensor = &program.tensors[parameter->tensor];
        bool read = false;
        for (size_t k = 0; k < program.op_count; k++) read |= snug_op_uses(&program.ops[k], parameter->tensor);
        if (!read || parameter->row > 0) continue;
        assert_true(m->weight_count < RANDOM_WEIGHTS);
        struct random_weight *w = &m->weights[m->weight_count];
        *w = (struct random_weight){.tensor = parameter->tensor, .count = tensor->rows * tensor->cols};
        snprintf(w->name, sizeof w->name, "%s", parameter->name);
        w->scale = parameter->shape[1] == 0 ? 0.3 : 1.2 / sqrt((double)tensor->cols);
        w->frozen = random_word(m, 20, m->weight_count) % 6 == 0;
        w->values = ops_array((size_t)w->count, sizeof *w->values);
        for (int64_t k = 0; k < w->count; k++) {
            const double unit = 2 * (double)snug_philox_uniform(random_word(m, 30 + m->weight_count, (uint64_t)k)) - 1;
            w->values[k] = (float)(w->scale * 1.7 * unit + (parameter->init == SNUG_INIT_ONES));
        }
        m->weight_count++;
    }
    m->weights[0].frozen &= m->weight_count > 4; /* something is trainable */
    bool any = false;
    for (size_t i = 0; i < m->weight_count; i++) any |= !m->weights[i].frozen;
    if (!any) m->weights[0].frozen = false;
    snug_program_free(&program);
}

static inline void random_model_open(struct random_model *m, uint64_t seed) {
    *m = (struct random_model){.seed = seed};
    assert_int_equal(snug_context_create(&m->ctx), SNUG_OK);
    const uint32_t a = random_word(m, 0, 0), b = random_word(m, 0, 1), c = random_word(m, 0, 2);
    const double p = a % 2 ? 0.25 : 0;
    m->layers = 1 + (int)(seed < 30 ? 0 : b % RANDOM_LAYERS);
    m->of_sequences = a >> 1 & 1;
    m->pools = m->of_sequences && (a >> 2 & 1);
    m->pooling = (enum snug_pooling)(a / 64 % 3);
    m->tied = !m->of_sequences && (a >> 3 & 1);
    m->clips = a >> 4 & 1;
    m->batch_count = 1 + (a >> 5 & 1);
    m->loss = m->tied ? SNUG_CROSS_ENTROPY : (enum snug_loss_kind)(b / 8 % 3);
    m->config = (struct snug_config){.hidden_size = 8 + 4 * (b / 32 % 3),
                                     .num_attention_heads = 1 + (b >> 10 & 1),
                                     .vocab_size = 7,
                                     .max_position_embeddings = 6,
                                     .type_vocab_size = 2,
                                     .layer_norm_eps = 1e-5,
                                     .hidden_dropout_prob = p,
                                     .attention_probs_dropout_prob = p,
                                     .classifier_dropout = p,
                                     .pad_token_id = -1};
    m->classes = m->tied ? m->config.vocab_size : m->loss == SNUG_MEAN_SQUARED_ERROR ? 1 : 2 + (b >> 12) % 3;
    for (int i = 0; i < m->batch_count; i++) random_batch(m, i, 3 * i);
    for (int i = 0; i < m->batch_count; i++)
        m->rows_in_chunk = m->batches[i].rows > m->rows_in_chunk ? m->batches[i].rows : m->rows_in_chunk;
    if (b >> 16 & 1) m->rows_in_chunk = (m->rows_in_chunk + 1) / 2;
    m->optimizer = c % 2 ? (struct snug_optimizer){.info = &snug_optimizer_sgd, .momentum = 0.5}
                         : (struct snug_optimizer){.info = &snug_optimizer_adam,
                                                   .decoupled = true,
                                                   .weight_decay = 0.1,
                                                   .beta1 = 0.9,
                                                   .beta2 = 0.99,
                                                   .epsilon = 1e-6};
    for (int i = 0; i < RANDOM_LAYERS; i++)
        m->levels[i] = (enum snug_recompute)(random_word(m, 0, 10 + (uint64_t)i) % SNUG_RECOMPUTE_COUNT);
    m->offloaded = 1 + (c >> 4) % 15;
    m->ahead = 1 + (int32_t)(c >> 10) % 7;
    random_weights(m);
}

static inline void random_model_close(struct random_model *m) {
    for (size_t i = 0; i < m->weight_count; i++) free(m->weights[i].values);
    for (int i = 0; i < m->batch_count; i++) {
        free(m->batches[i].ids);
        free(m->batches[i].targets);
    }
    snug_context_destroy(m->ctx);
}

#endif
