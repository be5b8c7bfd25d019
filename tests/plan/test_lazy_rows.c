/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lazily updated rows of a table get the same bits as rows updated in every step: the same
 * trainings are run both ways, operation by operation, and parameters and moments are compared.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "model/family.h"
#include "model/weights.h"
#include "run/runner.h"
#include "sanitized.h"
#include "test.h"

enum { VOCABULARY = 300, SEQUENCES = 3, LONGEST = 5, TOKENS = SEQUENCES * LONGEST, PADDING = 2 };

struct way {
    const char *name;
    int64_t lazy_steps; /* in the run with lazy rows */
    int steps, micro_batches;
    double weight_decay, beta1, beta2, epsilon, learning_rate, max_grad_norm;
    enum snug_dtype stored;
    int look_every; /* steps after which all rows are flushed, as for an evaluation; 0: never */
};

static const struct way ways[] = {
    {"plain", 256, 600, 1, 0, 0.9, 0.999, 1e-8, 1e-3, 1, SNUG_F32, 0},
    {"decayed and accumulated", 256, 600, 2, 0.01, 0.9, 0.999, 1e-8, 1e-3, 1, SNUG_F32, 0},
    {"a short history", 7, 300, 2, 0, 0.9, 0.999, 1e-8, 1e-3, 0, SNUG_F32, 0},
    {"one lazy step", 1, 60, 1, 0.1, 0.9, 0.999, 1e-8, 1e-3, 1, SNUG_F32, 0},
    {"looked at", 64, 300, 1, 0, 0.9, 0.999, 1e-8, 1e-3, 1, SNUG_F32, 23},
    {"moments that vanish", 256, 600, 1, 0, 0.5, 0.9, 1e-8, 1e-3, 1, SNUG_F32, 0},
    {"a large epsilon", 256, 400, 1, 0.01, 0.9, 0.99, 1e-3, 1e-3, 1, SNUG_F32, 0},
    {"a tiny epsilon", 256, 400, 1, 0, 0.9, 0.9, 1e-30, 1e-3, 1, SNUG_F32, 0},
    {"stored in bf16", 256, 400, 1, 0, 0.9, 0.999, 1e-8, 1e-3, 1, SNUG_BF16, 0},
    {"stored in bf16, decayed", 20, 200, 2, 0.01, 0.9, 0.999, 1e-8, 1e-3, 1, SNUG_BF16, 31},
};

/* ---- a training loop -------------------------------------------------------------------------------------------- */

struct training {
    snug_context *ctx;
    const struct way *way;
    const struct snug_backend *backend;
    struct snug_config config;
    struct snug_optimizer optimizer;
    struct snug_program program;
    struct snug_runner runner;
    struct snug_run run;
    struct snug_batch batch;
    int32_t offsets[SEQUENCES + 1], ids[TOKENS], types[TOKENS], positions[TOKENS], sample[TOKENS], by_id[TOKENS],
        loss_positions[SEQUENCES], labels[SEQUENCES];
    int32_t table;
};

static uint32_t word(int64_t step, int micro_batch, int place, uint32_t use) {
    return snug_philox((uint32_t)step, (uint32_t)micro_batch, (uint32_t)place, use, 5, 9).word[0];
}

/* Few ids are frequent, most occur once in a hundred steps; some rows are the padding token, which has no gradient. */
static void fill_batch(struct training *t, int64_t step, int micro_batch) {
    struct snug_batch *b = &t->batch;
    *b = (struct snug_batch){.sequences = SEQUENCES,
                             .rows = SEQUENCES,
                             .items = SEQUENCES,
                             .items_in_step = SEQUENCES * t->way->micro_batches,
                             .offsets = t->offsets,
                             .ids = t->ids,
                             .types = t->types,
                             .positions = t->positions,
                             .position_ids = t->positions,
                             .sample = t->sample,
                             .by_id = t->by_id,
                             .loss_positions = t->loss_positions,
                             .labels = t->labels};
    for (int s = 0; s < SEQUENCES; s++) {
        const int length = 1 + (int)(word(step, micro_batch, s, 0) % LONGEST);
        t->offsets[s] = t->loss_positions[s] = (int32_t)b->tokens;
        t->labels[s] = (int32_t)(word(step, micro_batch, s, 1) % 2);
        for (int i = 0; i < length; i++, b->tokens++) {
            const float u = snug_philox_uniform(word(step, micro_batch, (int)b->tokens, 2));
            t->ids[b->tokens] = (int32_t)(u * u * u * VOCABULARY);
            t->types[b->tokens] = i % 2;
            t->positions[b->tokens] = i;
            t->sample[b->tokens] = micro_batch * SEQUENCES + s;
        }
        if (length > b->longest) b->longest = length;
    }
    t->offsets[SEQUENCES] = (int32_t)b->tokens;
    for (int32_t id = 0, n = 0; id < VOCABULARY; id++)
        for (int32_t i = 0; i < b->tokens; i++)
            if (t->ids[i] == id) t->by_id[n++] = i;
}

static void phase(struct training *t, enum snug_phase which) {
    if (snug_run_phase(&t->run, t->backend, which, NULL) != SNUG_OK)
        fail_msg("%s: %s", t->way->name, snug_error_message(t->ctx));
}

static void flush(struct training *t) {
    if (snug_run_flush(&t->run, t->backend, NULL) != SNUG_OK)
        fail_msg("%s: %s", t->way->name, snug_error_message(t->ctx));
}

static int count_ops(const struct snug_program *program, enum snug_op_kind kind) {
    int count = 0;
    for (size_t i = 0; i < program->op_count; i++) count += program->ops[i].kind == kind;
    return count;
}

static int32_t find_table(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_EMBED) return program->ops[i].embed.word;
    return 0;
}

static void build(struct training *t, bool lazy, struct snug_methods methods) {
    struct snug_program *program = &t->program;
    assert_int_equal(snug_config_builtin(t->ctx, "bert-base-uncased", &t->config), SNUG_OK);
    t->config.family = &snug_family_bert;
    t->config.task = SNUG_TASK_CLASSIFICATION;
    t->config.vocab_size = VOCABULARY;
    t->config.hidden_size = 44; /* not a multiple of four vectors of any instruction set */
    t->config.num_hidden_layers = 1;
    t->config.num_attention_heads = 2;
    t->config.intermediate_size = 24;
    t->config.max_position_embeddings = LONGEST;
    t->config.type_vocab_size = 2;
    t->config.pad_token_id = PADDING;
    snug_program_init(program, t->ctx);
    program->longest = LONGEST;
    program->capacity[SNUG_EXTENT_TOKENS] = TOKENS;
    program->capacity[SNUG_EXTENT_SEQUENCES] = program->capacity[SNUG_EXTENT_ROWS] = SEQUENCES;
    assert_int_equal(snug_build_model(program, &t->config, true, 0), SNUG_OK);
    assert_int_equal(snug_stages(program, &methods), SNUG_OK);
    assert_int_equal(count_ops(program, SNUG_OP_ADAM_ROWS), lazy);
    t->table = find_table(program);
    program->tensors[t->table].dtype = t->way->stored;
}

static void init_weights(struct training *t) {
    for (size_t i = 0; i < t->program.parameter_count; i++)
        if (t->program.parameters[i].tensor != t->table)
            assert_int_equal(
                snug_weights_init(&t->program, &t->config, &t->runner.memory, &t->program.parameters[i], 42), SNUG_OK);
    struct snug_matrix table = snug_matrix_of(&t->run, t->table);
    for (int64_t i = 0; i < table.rows * table.cols; i++) {
        const float value = 0.1f * (snug_philox_uniform(word(i, 0, 0, 3)) - 0.5f);
        if (table.dtype == SNUG_BF16)
            ((uint16_t *)(void *)table.data)[i] = snug_f32_to_bf16(value);
        else
            ((float *)(void *)table.data)[i] = i % 97 ? value : 0;
    }
}

static struct training *open_training(const struct way *way, const struct snug_backend *backend, bool lazy) {
    struct training *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_int_equal(snug_context_create(&t->ctx), SNUG_OK);
    t->way = way;
    t->backend = backend;
    t->optimizer = (struct snug_optimizer){.info = &snug_optimizer_adam,
                                           .decoupled = true,
                                           .weight_decay = way->weight_decay,
                                           .beta1 = way->beta1,
                                           .beta2 = way->beta2,
                                           .epsilon = way->epsilon};
    build(t, lazy,
          (struct snug_methods){.optimizer = &t->optimizer,
                                .micro_batches = way->micro_batches,
                                .lazy_steps = lazy ? way->lazy_steps : 0});
    /* Two threads once: they wait for each other, at each of many short operations, longer than they work. */
    const int threads = lazy && !SANITIZED && backend == snug_backend_cpu() ? 2 : 1;
    assert_int_equal(snug_runner_start(t->ctx, backend, threads, &t->program, 0, NULL, &t->runner), SNUG_OK);
    t->run = snug_runner_run(&t->runner, 0);
    t->run.batch = &t->batch;
    t->run.seed = 42;
    t->run.max_grad_norm = (float)way->max_grad_norm;
    t->run.optimizer = &t->optimizer;
    init_weights(t);
    phase(t, SNUG_PHASE_PREPARE);
    return t;
}

static void close_training(struct training *t) {
    snug_runner_close(&t->runner);
    snug_program_free(&t->program);
    snug_config_free(&t->config);
    snug_context_destroy(t->ctx);
    free(t);
}

/* Warm-up, then decay to 0 and beyond, so that some steps have a learning rate of 0. */
static void step(struct training *t, float loss_scale) {
    const struct way *way = t->way;
    const double done = (double)t->run.step / way->steps, up = (double)(t->run.step + 1) / 20, down = 1.05 - 1.1 * done;
    t->run.loss_scale = loss_scale;
    for (t->run.micro_batch = 0; t->run.micro_batch < way->micro_batches; t->run.micro_batch++) {
        fill_batch(t, t->run.step, (int)t->run.micro_batch);
        phase(t, SNUG_PHASE_FORWARD);
        phase(t, SNUG_PHASE_HEAD);
        phase(t, SNUG_PHASE_BACKWARD);
    }
    phase(t, SNUG_PHASE_CLIP);
    t->run.learning_rate = (float)(way->learning_rate * fmin(up, fmax(down, 0)));
    phase(t, SNUG_PHASE_UPDATE);
    t->run.step++;
    if (way->look_every && t->run.step % way->look_every == 0) flush(t);
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

static int32_t tensor_of(const struct training *t, const char *name) {
    for (size_t i = 1; i < t->program.tensor_count; i++)
        if (strcmp(t->program.tensors[i].name, name) == 0) return (int32_t)i;
    return 0;
}

static void assert_same(const struct training *whole, const struct training *lazy) {
    int compared = 0;
    for (size_t i = 1; i < whole->program.tensor_count; i++) {
        const struct snug_tensor *a = &whole->program.tensors[i];
        if (a->memory_class != SNUG_MEMORY_WEIGHTS && a->memory_class != SNUG_MEMORY_OPTIMIZER) continue;
        const int32_t other = tensor_of(lazy, a->name);
        const int64_t size = snug_dtype_size(a->dtype);
        assert_true(other);
        const uint8_t *x = snug_run_data(&whole->run, (int32_t)i), *y = snug_run_data(&lazy->run, other);
        for (int64_t k = 0; k < a->rows * a->cols; k++)
            if (memcmp(x + k * size, y + k * size, (size_t)size) != 0)
                fail_msg("%s, %s: element %lld of row %lld of %s differs", lazy->backend->name, lazy->way->name,
                         (long long)(k % a->cols), (long long)(k / a->cols), a->name);
        compared++;
    }
    assert_true(compared > 3 * 10);
}

/* part: 1 compares long trainings, 4 those of a quarter of the steps. */
static void compare_ways(const struct snug_backend *backend, int part) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct training *whole = open_training(&ways[i], backend, false);
        struct training *lazy = open_training(&ways[i], backend, true);
        const float scale = 1.0f / (float)(SEQUENCES * ways[i].micro_batches);
        const int steps = ways[i].steps / part;
        for (int s = 0; s < steps; s++) {
            step(whole, scale);
            step(lazy, scale);
            /* The rows that are read are up to date: the loss is the same. */
            assert_memory_equal(snug_run_data(&whole->run, whole->program.loss),
                                snug_run_data(&lazy->run, lazy->program.loss), sizeof(float));
        }
        flush(lazy);
        assert_same(whole, lazy);
        close_training(whole);
        close_training(lazy);
    }
}

TEST(test_same_bits) {
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    const struct snug_backend *widest = snug_backend_cpu();
    const int long_ones = is_long() ? 1 : SANITIZED ? 4 : 3;
    compare_ways(snug_backend_reference(), long_ones);
    compare_ways(widest, long_ones);
    /* The others differ in their instructions only. */
    for (size_t isa = 0; !SANITIZED && isa < sizeof names / sizeof *names; isa++) {
        const struct snug_backend *backend = snug_backend_cpu_isa(names[isa]);
        if (backend && backend != widest) compare_ways(backend, 6);
    }
}

/* A norm that is not finite makes every row NaN, also rows that never had a gradient. */
TEST(test_not_finite) {
    const struct snug_backend *const backends[] = {snug_backend_reference(), snug_backend_cpu()};
    for (int i = 0; i < 2; i++) {
        struct training *t = open_training(&ways[0], backends[i], true);
        step(t, 1);
        step(t, NAN);
        flush(t);
        const struct snug_matrix table = snug_matrix_of(&t->run, t->table);
        for (int64_t k = 0; k < table.rows * table.cols; k++) assert_true(isnan(((float *)(void *)table.data)[k]));
        close_training(t);
    }
}

/* The gradient has room for the rows of one step: more are refused before a write out of bounds. */
TEST(test_too_many_micro_batches) {
    const struct snug_backend *const backends[] = {snug_backend_reference(), snug_backend_cpu()};
    for (int i = 0; i < 2; i++) {
        struct training *t = open_training(&ways[0], backends[i], true);
        snug_status status = SNUG_OK;
        for (; status == SNUG_OK && t->run.micro_batch < 20; t->run.micro_batch++) {
            fill_batch(t, 0, (int)t->run.micro_batch);
            phase(t, SNUG_PHASE_FORWARD);
            phase(t, SNUG_PHASE_HEAD);
            status = snug_run_phase(&t->run, t->backend, SNUG_PHASE_BACKWARD, NULL);
        }
        assert_int_equal(status, SNUG_E_USAGE);
        assert_non_null(strstr(snug_error_message(t->ctx), "--gradient_accumulation_steps"));
        t->run.micro_batch = 0; /* as zeroing the gradients does: the run continues */
        phase(t, SNUG_PHASE_FORWARD);
        phase(t, SNUG_PHASE_HEAD);
        phase(t, SNUG_PHASE_BACKWARD);
        close_training(t);
    }
}

/* ---- which tables are lazy -------------------------------------------------------------------------------------- */

struct plan_case {
    const char *why;
    bool decoupled, mlm;
    double weight_decay, epsilon;
    int64_t micro_batches, lazy_steps;
    int lazy;
};

TEST(test_which_tables_are_lazy) {
    static const struct plan_case cases[] = {
        {"AdamW", true, false, 0.1, 1e-8, 1, 256, 1},
        {"Adam", false, false, 0, 1e-8, 1, 256, 1},
        {"L2 decay pulls rows without a gradient", false, false, 0.1, 1e-8, 1, 256, 0},
        {"0 / 0 spoils rows at rest", true, false, 0, 0, 1, 256, 0},
        {"a tied decoder reads all rows", true, true, 0, 1e-8, 1, 256, 0},
        {"most rows may be touched in a step", true, false, 0, 1e-8, VOCABULARY / TOKENS / 2 + 1, 256, 0},
        {"half of them is the limit", true, false, 0, 1e-8, VOCABULARY / TOKENS / 2, 256, 1},
        {"not asked for", true, false, 0, 1e-8, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct plan_case *c = &cases[i];
        struct training t = {.way = &ways[0], .backend = snug_backend_cpu()};
        assert_int_equal(snug_context_create(&t.ctx), SNUG_OK);
        assert_int_equal(snug_config_builtin(t.ctx, "bert-base-uncased", &t.config), SNUG_OK);
        t.config.vocab_size = VOCABULARY;
        t.config.task = c->mlm ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION;
        t.optimizer = (struct snug_optimizer){.info = &snug_optimizer_adam,
                                              .decoupled = c->decoupled,
                                              .weight_decay = c->weight_decay,
                                              .beta1 = 0.9,
                                              .beta2 = 0.999,
                                              .epsilon = c->epsilon};
        snug_program_init(&t.program, t.ctx);
        t.program.longest = LONGEST;
        t.program.capacity[SNUG_EXTENT_TOKENS] = TOKENS;
        t.program.capacity[SNUG_EXTENT_SEQUENCES] = t.program.capacity[SNUG_EXTENT_ROWS] = SEQUENCES;
        assert_int_equal(snug_build_model(&t.program, &t.config, true, 0), SNUG_OK);
        const struct snug_methods methods = {
            .optimizer = &t.optimizer, .micro_batches = c->micro_batches, .lazy_steps = c->lazy_steps};
        assert_int_equal(snug_stages(&t.program, &methods), SNUG_OK);
        if (count_ops(&t.program, SNUG_OP_ADAM_ROWS) != c->lazy) fail_msg("%s", c->why);
        assert_int_equal(count_ops(&t.program, SNUG_OP_LAZY_UPDATE), c->lazy);
        /* The gradient has as many rows as a step can touch. */
        const int64_t rows = t.program.tensors[t.program.tensors[find_table(&t.program)].gradient].rows;
        assert_int_equal(rows, c->lazy ? TOKENS * c->micro_batches : VOCABULARY);
        snug_program_free(&t.program);
        snug_config_free(&t.config);
        snug_context_destroy(t.ctx);
    }
}

TEST_MAIN(NULL, NULL)
