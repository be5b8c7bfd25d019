/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages on graphs written by hand, which no model family builds: what cannot be differentiated is refused by name,
 * and unread, frozen and shared values get the expected backward operations. Their gradients: test_differentiate.
 */
#include <stdio.h>
#include <string.h>

#include "model/build.h"
#include "plan/stages.h"
#include "test.h"

enum { H = 8 };

/* An embedding x, what a test appends, and a head. */
struct graph {
    snug_context *ctx;
    struct snug_config config;
    struct snug_program program;
    struct snug_builder b;
    int32_t word, x;
    int names;
};

static void open_graph(struct graph *g) {
    *g = (struct graph){.config = {.hidden_size = H, .num_attention_heads = 2, .layer_norm_eps = 1e-5}};
    g->b = (struct snug_builder){
        .program = &g->program, .config = &g->config, .phase = SNUG_PHASE_FORWARD, .training = true};
    assert_int_equal(snug_context_create(&g->ctx), SNUG_OK);
    snug_program_init(&g->program, g->ctx);
    snug_build_part(&g->b, SNUG_PART_EMBEDDINGS, 0);
    g->word = snug_build_table(&g->b, 7, H, -1, "word");
    g->x = snug_embed_normed(&g->b, g->word, 0, 0, snug_build_norm(&g->b, H, "embeddings.norm", true));
    snug_build_part(&g->b, SNUG_PART_LAYER, 0);
}

static struct snug_affine affine(struct graph *g, int64_t outputs) {
    char name[16];
    snprintf(name, sizeof name, "dense%d", g->names++);
    return snug_build_linear(&g->b, outputs, H, name, true);
}
static struct snug_affine without_bias(struct graph *g, int64_t outputs) {
    return (struct snug_affine){.weight = affine(g, outputs).weight};
}
static int32_t linear(struct graph *g, int32_t x, const char *name) {
    return snug_linear(&g->b, x, without_bias(g, H), name);
}
static struct snug_affine norm(struct graph *g) {
    char name[16];
    snprintf(name, sizeof name, "norm%d", g->names++);
    return snug_build_norm(&g->b, H, name, false);
}

/* A value as x, which an operation of the test writes. */
static int32_t value(struct graph *g, const char *name) {
    struct snug_tensor like = g->program.tensors[g->x];
    int32_t tensor;
    assert_int_equal(snug_program_tensor(&g->program, like, &tensor, "%s", name), SNUG_OK);
    return tensor;
}

static void append(struct graph *g, struct snug_op op) {
    op.phase = g->b.phase;
    op.part = g->b.part;
    op.layer = g->b.layer;
    assert_int_equal(snug_program_op(&g->program, op), SNUG_OK);
}

static int32_t activation(struct graph *g, int32_t u, int32_t bias) {
    const int32_t a = value(g, "activated");
    append(g, (struct snug_op){.kind = SNUG_OP_ACTIVATION, .activation = {.u = u, .b = bias, .a = a}});
    return a;
}

static int32_t attention(struct graph *g, int32_t x) {
    const int32_t qkv = snug_linear(&g->b, x, affine(g, 3 * H), "qkv");
    return snug_attention(&g->b, qkv, qkv, qkv, 0, snug_attention_form(&g->b));
}

static int32_t residual(struct graph *g, int32_t z, int32_t x) {
    int32_t s;
    return snug_residual_sum_norm(&g->b, z, x, 0, norm(g), "residual", &s);
}

static void begin_head(struct graph *g) {
    snug_build_part(&g->b, SNUG_PART_HEAD, 0);
    g->b.phase = SNUG_PHASE_HEAD;
}

static int32_t finish(struct graph *g, int32_t x) {
    begin_head(g);
    const int32_t rows = snug_gather(&g->b, x, SNUG_EXTENT_ROWS, "rows");
    const int32_t logits = snug_linear(&g->b, rows, without_bias(g, 2), "logits");
    snug_loss_op(&g->b, logits, SNUG_CROSS_ENTROPY, 0);
    assert_int_equal(g->b.status, SNUG_OK);
    return logits;
}

static void close_graph(struct graph *g) {
    snug_program_free(&g->program);
    snug_context_destroy(g->ctx);
}

/* Ends with the graph closed. */
static void refused(struct graph *g, snug_status expected, const char *message) {
    assert_int_equal(snug_stage_differentiate(&g->program), expected);
    if (!strstr(snug_error_message(g->ctx), message))
        fail_msg("\"%s\" is not in \"%s\"", message, snug_error_message(g->ctx));
    close_graph(g);
}

static void write_names(const struct snug_program *program, size_t from, char *out, size_t size) {
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = from; i < program->op_count; i++)
        length += (size_t)snprintf(out + length, size - length, "%s%s", i > from ? " " : "",
                                   snug_op_name(program->ops[i].kind));
}

static void check_names(const struct graph *g, size_t from, const char *expected) {
    char names[1024];
    write_names(&g->program, from, names, sizeof names);
    assert_string_equal(names, expected);
}

/* To these operations, after those of the head. */
static void differentiates_to(struct graph *g, const char *expected) {
    char all[1024];
    const size_t forward = g->program.op_count;
    if (snug_stage_differentiate(&g->program) != SNUG_OK) fail_msg("%s", snug_error_message(g->ctx));
    snprintf(all, sizeof all, "linear_dw linear_dx fill gather_backward %s", expected);
    check_names(g, forward, all);
}

/* ---- what is refused ------------------------------------------------------------------------------------------- */

/* Readers of a value u to which an activation adds a bias, before and after the activation. */
static int32_t read_linear(struct graph *g, int32_t u) { return linear(g, u, "reader"); }
static int32_t read_norm(struct graph *g, int32_t u) { return snug_norm(&g->b, u, norm(g), "reader"); }
static int32_t read_dropout(struct graph *g, int32_t u) { return snug_dropout(&g->b, u, 0.5, "reader"); }
static int32_t read_gather(struct graph *g, int32_t u) { return snug_gather(&g->b, u, SNUG_EXTENT_TOKENS, "reader"); }
static int32_t read_residual(struct graph *g, int32_t u) { return residual(g, u, g->x); }

/* The bias's gradient is computed from u's, which must be the activation's alone. */
TEST(test_bias_of_a_shared_value) {
    static int32_t (*const readers[])(struct graph *, int32_t) = {read_linear, read_norm, read_dropout, read_gather,
                                                                  read_residual};
    for (size_t i = 0; i < 2 * sizeof readers / sizeof *readers; i++) {
        struct graph g;
        open_graph(&g);
        const struct snug_affine w = affine(&g, H);
        const int32_t u = snug_linear(&g.b, g.x, (struct snug_affine){.weight = w.weight}, "u");
        int32_t a = i % 2 ? activation(&g, u, w.bias) : 0;
        const int32_t read = readers[i / 2](&g, u);
        if (!a) a = activation(&g, u, w.bias);
        finish(&g, residual(&g, read, a));
        refused(&g, SNUG_E_INTERNAL,
                "of layer.0.u cannot be differentiated: the activation that adds a bias to it must be");
    }
}

static void two_biases(struct graph *g) {
    const int32_t u = snug_linear(&g->b, g->x, affine(g, H), "u");
    finish(g, activation(g, u, affine(g, H).bias));
}
static void bias_of_no_linear(struct graph *g) { finish(g, activation(g, g->x, affine(g, H).bias)); }
static void weight_as_value(struct graph *g) { finish(g, linear(g, g->word, "y")); }
static void value_as_weight(struct graph *g) {
    finish(g, snug_linear(&g->b, g->x, (struct snug_affine){.weight = g->x}, "y"));
}
static void other_operation(struct graph *g) {
    const int32_t y = linear(g, g->x, "y");
    append(g, (struct snug_op){.kind = SNUG_OP_ADD, .add = {.x = g->x, .y = y}});
    finish(g, y);
}
static void reads_statistics(struct graph *g) {
    attention(g, g->x);
    finish(g, linear(g, g->program.ops[g->program.op_count - 1].attention.lse, "y"));
}
static void two_losses(struct graph *g) {
    const int32_t logits = finish(g, g->x);
    snug_loss_op(&g->b, logits, SNUG_CROSS_ENTROPY, 0);
}
static void capped_sum(struct graph *g) {
    const int32_t y = snug_scaled_sum(&g->b, g->x, linear(g, g->x, "z"), 1, "y");
    g->program.ops[g->program.op_count - 1].scale.softcap = 2;
    finish(g, y);
}
/* The gradient of `terms` is x's, too, so that GATHER's chunks cannot be added to it. */
static void shared_in_head(struct graph *g) {
    const int32_t z = linear(g, g->x, "terms");
    begin_head(g);
    const int32_t rows = snug_gather(&g->b, z, SNUG_EXTENT_ROWS, "rows.z");
    const int32_t sum = residual(g, residual(g, z, g->x), rows);
    finish(g, sum);
}
static void frozen(struct graph *g) {
    finish(g, g->x);
    for (size_t i = 1; i < g->program.tensor_count; i++) g->program.tensors[i].trainable = false;
}

TEST(test_refused) {
    static const struct {
        void (*build)(struct graph *g);
        const char *message;
        snug_status status;
    } cases[] = {
        {two_biases, "linear of layer.0.u cannot be differentiated: both it and the activation after it add a bias",
         SNUG_E_INTERNAL},
        {bias_of_no_linear, "dense0.bias is added to embeddings.output, which is not the output of a linear",
         SNUG_E_INTERNAL},
        {weight_as_value, "linear reads word as its x, but it is a trainable weight", SNUG_E_INTERNAL},
        {value_as_weight, "linear reads embeddings.output as its w, but it is not a weight", SNUG_E_INTERNAL},
        {other_operation, "add cannot be differentiated: it is not an operation of a model", SNUG_E_INTERNAL},
        {reads_statistics, "attention.log_sum_exp cannot be differentiated: it is not a function of the model",
         SNUG_E_INTERNAL},
        {two_losses, "loss of logits cannot be differentiated: other operations read the logits", SNUG_E_INTERNAL},
        {capped_sum, "scale of layer.0.y cannot be differentiated: the capped value is not stored", SNUG_E_INTERNAL},
        {shared_in_head, "terms cannot be differentiated: its gradient is also another tensor's", SNUG_E_INTERNAL},
        {frozen, "all parameters are frozen", SNUG_E_USAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph g;
        open_graph(&g);
        cases[i].build(&g);
        refused(&g, cases[i].status, cases[i].message);
    }
}

/* ---- what costs nothing ---------------------------------------------------------------------------------------- */

/* An operation of each kind that reads x, and is not read. */
TEST(test_unread) {
    struct graph g;
    open_graph(&g);
    const int32_t s = value(&g, "s");
    linear(&g, g.x, "linear");
    snug_dropout(&g.b, g.x, 0.5, "dropout");
    snug_scaled_sum(&g.b, g.x, 0, 0.5, "scaled");
    snug_norm(&g.b, g.x, norm(&g), "norm");
    activation(&g, g.x, 0);
    snug_gather(&g.b, g.x, SNUG_EXTENT_SEQUENCES, "gather");
    attention(&g, g.x);
    snug_gated_linear(&g.b, g.x, affine(&g, 2 * H), "u", SNUG_GELU, "glu");
    append(&g, (struct snug_op){.kind = SNUG_OP_RESIDUAL_NORM,
                                .residual_norm = {.z = g.x, .x = g.x, .gamma = norm(&g).weight, .s = 0, .y = s}});
    finish(&g, g.x);
    differentiates_to(&g, "norm_backward embed_backward");
    close_graph(&g);
}

/* Operations on a value that depends on no trainable weight, below a norm that has one. */
static int32_t of_glu(struct graph *g, int32_t x) {
    return snug_gated_linear(&g->b, x, affine(g, 2 * H), "u", SNUG_GELU, "glu");
}
static int32_t of_activation(struct graph *g, int32_t x) { return activation(g, x, 0); }
static int32_t of_residual(struct graph *g, int32_t x) { return residual(g, x, x); }
static int32_t of_scale(struct graph *g, int32_t x) { return snug_scaled_sum(&g->b, x, x, 0.5, "scaled"); }

/* Only the trained term of a scaled sum gets a gradient: the sum's own, if it is the addend. */
TEST(test_scaled_sum_of_frozen) {
    static const char *const expected[] = {"linear_dw", "scale linear_dw"};
    for (int scaled = 0; scaled < 2; scaled++) {
        struct graph g;
        open_graph(&g);
        for (size_t t = 1; t < g.program.tensor_count; t++) g.program.tensors[t].trainable = false;
        const int32_t z = linear(&g, g.x, "z");
        finish(&g, snug_scaled_sum(&g.b, scaled ? z : g.x, scaled ? g.x : z, 0.5, "y"));
        differentiates_to(&g, expected[scaled]);
        close_graph(&g);
    }
}

TEST(test_frozen) {
    static int32_t (*const operations[])(struct graph *, int32_t) = {
        read_linear, read_norm, read_dropout, read_gather, attention, of_glu, of_activation, of_residual, of_scale};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        struct graph g;
        open_graph(&g);
        const int32_t y = operations[i](&g, g.x);
        for (size_t t = 1; t < g.program.tensor_count; t++) g.program.tensors[t].trainable = false;
        finish(&g, snug_norm(&g.b, y, norm(&g), "trained"));
        differentiates_to(&g, "norm_backward");
        close_graph(&g);
    }
}

/* ---- operands of attention ------------------------------------------------------------------------------------- */

/* Two heads of H / 2 channels that read one key/value head. */
static struct snug_attention_form shared_keys(const struct graph *g) {
    struct snug_attention_form form = snug_attention_form(&g->b);
    form.kv_heads = 1;
    return form;
}

/* The operands of a tensor follow one another, and have one gradient. */
TEST(test_operands_of_attention) {
    static const struct {
        int tensors;
        int32_t widths[3], columns[3];
    } cases[] = {{1, {2 * H}, {0, H, H + H / 2}}, {2, {H, H}, {0, 0, H / 2}}, {3, {H, H / 2, H / 2}, {0, 0, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph g;
        open_graph(&g);
        const int last = cases[i].tensors - 1;
        int32_t x[3] = {0};
        for (int n = 0; n < 3; n++)
            x[n] = n > last ? x[last] : snug_linear(&g.b, g.x, affine(&g, cases[i].widths[n]), "x");
        finish(&g, snug_attention(&g.b, x[0], x[1], x[2], 0, shared_keys(&g)));
        assert_int_equal(snug_stage_differentiate(&g.program), SNUG_OK);
        const struct snug_attention_backward *b = NULL;
        for (size_t k = 0; k < g.program.op_count; k++)
            if (g.program.ops[k].kind == SNUG_OP_ATTENTION_BACKWARD) b = &g.program.ops[k].attention_backward;
        assert_non_null(b);
        const int32_t operands[] = {b->q, b->k, b->v}, gradients[] = {b->dq, b->dk, b->dv};
        for (int n = 0; n < 3; n++) {
            assert_int_equal(b->form.column[n], cases[i].columns[n]);
            assert_int_equal(g.program.tensors[gradients[n]].cols, g.program.tensors[operands[n]].cols);
            for (int m = 0; m < n; m++) assert_int_equal(operands[m] == operands[n], gradients[m] == gradients[n]);
        }
        close_graph(&g);
    }
}

TEST(test_wrong_operands_of_attention) {
    static const struct {
        int32_t q, k, kv_heads;
        const char *message;
    } cases[] = {{H, H / 2, 2, "k is not the attention operands of 2 heads and 2 key/value heads of"},
                 {H + 1, H / 2, 1, "q is not the attention operands of 2 heads and 1 key/value heads of"},
                 {H, 3 * H / 2, 3, "q is not the attention operands of 2 heads and 3 key/value heads of"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph g;
        open_graph(&g);
        struct snug_attention_form form = shared_keys(&g);
        form.kv_heads = cases[i].kv_heads;
        const int32_t q = snug_linear(&g.b, g.x, affine(&g, cases[i].q), "q");
        const int32_t k = snug_linear(&g.b, g.x, affine(&g, cases[i].k), "k");
        const int32_t v = snug_linear(&g.b, g.x, affine(&g, cases[i].k), "v");
        snug_attention(&g.b, q, k, v, 0, form);
        assert_int_equal(g.b.status, SNUG_E_INTERNAL);
        if (!strstr(snug_error_message(g.ctx), cases[i].message)) fail_msg("%s", snug_error_message(g.ctx));
        close_graph(&g);
    }
}

/* A second loss whose logits nothing trained computes has no gradient. */
TEST(test_frozen_logits) {
    struct graph g;
    open_graph(&g);
    const int32_t logits = finish(&g, g.x);
    for (size_t t = 1; t < g.program.tensor_count; t++) g.program.tensors[t].trainable = false;
    const int32_t trained =
        snug_linear(&g.b, logits, (struct snug_affine){.weight = snug_build_table(&g.b, 2, 2, -1, "w")}, "y");
    snug_loss_op(&g.b, logits, SNUG_CROSS_ENTROPY, 0);
    snug_loss_op(&g.b, trained, SNUG_CROSS_ENTROPY, 0);
    assert_int_equal(g.b.status, SNUG_OK);
    const size_t forward = g.program.op_count;
    assert_int_equal(snug_stage_differentiate(&g.program), SNUG_OK);
    check_names(&g, forward, "linear_dw");
    assert_int_equal(g.program.ops[forward - 2].loss.d, 0);
    close_graph(&g);
}

/* ---- what is shared -------------------------------------------------------------------------------------------- */

/* The terms of a sum share a gradient. Other readers of a term add to its own alone, in each way that an operation has.
 */
static void terms_read_by(struct graph *g, int32_t (*reader)(struct graph *, int32_t)) {
    const int32_t x = linear(g, g->x, "x"), z = linear(g, g->x, "z"), y = reader(g, x);
    finish(g, residual(g, y, residual(g, z, x)));
}
static int32_t read_sum(struct graph *g, int32_t x) { return residual(g, linear(g, g->x, "other"), x); }
static void read_by_sum(struct graph *g) { terms_read_by(g, read_sum); }
static void read_by_norm(struct graph *g) { terms_read_by(g, read_norm); }
static void read_by_dropout(struct graph *g) { terms_read_by(g, read_dropout); }
/* The other term is x's own linear: its dx may not overwrite its dy. */
static void read_by_own_term(struct graph *g) { finish(g, residual(g, linear(g, g->x, "y"), g->x)); }
/* A sum whose own norm is not read is a term itself. */
static void sum_of_sum(struct graph *g) {
    const int32_t other = linear(g, g->x, "other");
    int32_t s;
    snug_residual_sum_norm(&g->b, linear(g, g->x, "z"), g->x, 0, norm(g), "unread", &s);
    finish(g, residual(g, s, other));
}
/* A frozen term that is dropped out gets no gradient, whether the sum or its norm is read. */
static void frozen_term(struct graph *g, bool norm_is_read) {
    const int32_t z = linear(g, g->x, "z");
    int32_t s;
    for (size_t t = 1; t < g->program.tensor_count; t++) g->program.tensors[t].trainable = false;
    const int32_t x = linear(g, g->x, "x"), y = snug_residual_sum_norm(&g->b, z, x, 0.5, norm(g), "y", &s);
    finish(g, norm_is_read ? y : s);
}
static void frozen_term_of_sum(struct graph *g) { frozen_term(g, false); }
static void frozen_term_of_norm(struct graph *g) { frozen_term(g, true); }
/* Rows of one tensor twice in HEAD: the second adds to the first. */
static void gathered_twice(struct graph *g) {
    begin_head(g);
    const int32_t a = snug_gather(&g->b, g->x, SNUG_EXTENT_ROWS, "a"),
                  b = snug_gather(&g->b, g->x, SNUG_EXTENT_ROWS, "b");
    finish(g, residual(g, a, b));
}
static void dropout_after_norm(struct graph *g) {
    const int32_t y = snug_norm(&g->b, g->x, norm(g), "y");
    g->program.ops[g->program.op_count - 1].p = 0.5f;
    finish(g, y);
}
static void normalized_rows(struct graph *g) {
    snug_normalize_rows(&g->b, g->x, true, true, "unused");
    finish(g, snug_normalize_rows(&g->b, g->x, true, true, "y"));
}
static void reads_embeddings_sum(struct graph *g) { finish(g, linear(g, g->program.ops[0].embed.s, "y")); }
static void shared_embeddings(struct graph *g) {
    const int32_t other = snug_embed_normed(&g->b, g->word, 0, 0, norm(g));
    finish(g, residual(g, other, g->x));
}

TEST(test_shared_gradients) {
    static const struct {
        void (*build)(struct graph *g);
        const char *expected;
    } cases[] = {
        {read_by_sum, "norm_backward norm_backward norm_backward fill add add linear_dw linear_dx linear_dw linear_dx "
                      "linear_dw linear_dx norm_backward embed_backward"},
        {read_by_norm, "norm_backward norm_backward norm_backward linear_dw linear_dx linear_dw linear_dx "
                       "norm_backward embed_backward"},
        {read_by_dropout, "norm_backward norm_backward dropout add linear_dw linear_dx linear_dw linear_dx "
                          "norm_backward embed_backward"},
        {read_by_own_term, "norm_backward linear_dw linear_dx add norm_backward embed_backward"},
        {sum_of_sum, "norm_backward fill add linear_dw linear_dx add linear_dw linear_dx norm_backward embed_backward"},
        {frozen_term_of_sum, "linear_dw"},
        {frozen_term_of_norm, "norm_backward linear_dw"},
        {normalized_rows, "normalize_backward norm_backward embed_backward"},
        {dropout_after_norm, "norm_backward norm_backward embed_backward"},
        {reads_embeddings_sum, "linear_dw linear_dx embed_backward"},
        {shared_embeddings, "norm_backward norm_backward embed_backward norm_backward embed_backward"},
        {gathered_twice, "norm_backward fill gather_backward gather_backward norm_backward embed_backward"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph g;
        open_graph(&g);
        cases[i].build(&g);
        differentiates_to(&g, cases[i].expected);
        close_graph(&g);
    }
}

/* ---- what is recomputed ---------------------------------------------------------------------------------------- */

static void recomputes_to(struct graph *g, enum snug_recompute level, const char *expected) {
    char *backward;
    char names[1024];
    if (snug_stage_differentiate(&g->program) != SNUG_OK) fail_msg("%s", snug_error_message(g->ctx));
    if (snug_stage_recompute(&g->program, &level) != SNUG_OK) fail_msg("%s", snug_error_message(g->ctx));
    write_names(&g->program, 0, names, sizeof names);
    backward = strstr(names, "gather_backward");
    assert_non_null(backward);
    assert_string_equal(backward + strlen("gather_backward "), expected);
    close_graph(g);
}

/* A weight's gradient waits until ACTIVATION_BACKWARD recomputes its input, if nothing else needs the input's own. */
TEST(test_deferred) {
    enum { SINGLE, READ_TWICE, FROZEN, VARIANTS };
    for (int variant = 0; variant < VARIANTS; variant++) {
        static const char *const expected[] = {
            [SINGLE] = "linear_dx activation_backward linear_dw norm linear_dw linear_dx norm_backward embed_backward",
            [READ_TWICE] = ("norm_backward linear_dw linear_dx activation linear_dw linear_dx activation_backward add "
                            "norm linear_dw linear_dx norm_backward embed_backward"),
            [FROZEN] = "activation linear_dw"};
        struct graph g;
        open_graph(&g);
        const int32_t u = linear(&g, g.x, "u");
        if (variant == FROZEN) /* nothing below u is trained: there is no ACTIVATION_BACKWARD */
            for (size_t t = 1; t < g.program.tensor_count; t++) g.program.tensors[t].trainable = false;
        const int32_t y = linear(&g, activation(&g, u, 0), "y");
        finish(&g, variant == READ_TWICE ? residual(&g, y, linear(&g, u, "reader")) : y);
        recomputes_to(&g, SNUG_RECOMPUTE_ELEMENTWISE, expected[variant]);
    }
}

/* The sum of frozen terms is not stored, and then recomputed together with its norm. */
TEST(test_recomputed_norm) {
    struct graph g;
    open_graph(&g);
    const int32_t y = value(&g, "y");
    append(&g, (struct snug_op){.kind = SNUG_OP_RESIDUAL_NORM,
                                .residual_norm = {.z = g.x, .x = g.x, .gamma = norm(&g).weight, .y = y}});
    for (size_t t = 1; t < g.program.tensor_count; t++) g.program.tensors[t].trainable = false;
    finish(&g, linear(&g, y, "trained"));
    recomputes_to(&g, SNUG_RECOMPUTE_ELEMENTWISE, "norm residual_norm linear_dw");
}

/* A program without a head or a backward has nothing to recompute. */
TEST(test_forward_alone) {
    struct graph g;
    open_graph(&g);
    linear(&g, g.x, "y");
    assert_int_equal(snug_stage_recompute(&g.program, NULL), SNUG_OK);
    check_names(&g, 0, "embed norm linear");
    close_graph(&g);
}

TEST_MAIN(NULL, NULL)
