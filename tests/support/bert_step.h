/* SPDX-License-Identifier: Apache-2.0 */
/* A BERT of any size without files: a planned program on a backend, with synthetic weights and batches. */
#ifndef SNUG_TESTS_BERT_STEP_H
#define SNUG_TESTS_BERT_STEP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "model/family.h"
#include "optim/loss_scale.h"
#include "run/runner.h"

struct bert_step {
    snug_context *ctx;
    const struct snug_backend *backend;
    struct snug_config config;
    struct snug_optimizer optimizer;
    struct snug_program program;
    struct snug_runner runner;
    struct snug_run run;
    struct snug_batch batch;
    bool overflow; /* fp16 gradients of this loss overflow */
};

/* BERT-large with a classification head for two classes. */
static inline struct snug_config bert_large(void) {
    return (struct snug_config){.family = &snug_family_bert,
                                .tie_word_embeddings = true,
                                .vocab_size = 30522,
                                .hidden_size = 1024,
                                .num_hidden_layers = 24,
                                .num_attention_heads = 16,
                                .intermediate_size = 4096,
                                .max_position_embeddings = 512,
                                .type_vocab_size = 2,
                                .hidden_act = SNUG_GELU,
                                .layer_norm_eps = 1e-12,
                                .initializer_range = 0.02,
                                .hidden_dropout_prob = 0.1,
                                .attention_probs_dropout_prob = 0.1,
                                .classifier_dropout = 0.1,
                                .task = SNUG_TASK_CLASSIFICATION,
                                .labels = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2}};
}

static inline void bert_check(snug_context *ctx, snug_status status, const char *what) {
    if (status == SNUG_OK) return;
    fprintf(stderr, "%s: %s\n", what, snug_error_message(ctx));
    exit(1);
}

/* A number in [-1, 1), determined by the element's index. */
static inline float bert_value(uint64_t stream, uint64_t i) {
    uint64_t x = (stream << 40) + i + 1;
    x *= 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    return (float)((int32_t)(x >> 32) >> 8) * 0x1p-23f;
}

static inline int32_t *bert_array(uint8_t *memory, int64_t *at, int64_t count) {
    int32_t *taken = (int32_t *)(memory + *at);
    *at += (count * 4 + 63) / 64 * 64;
    return taken;
}

/* Bytes of a batch's arrays. */
static inline int64_t bert_batch_bytes(int64_t tokens, int64_t sequences) {
    return 64 * 9 + 4 * (8 * (tokens + 1) + sequences + 1);
}

/* For masked LM, every 7th token is masked. */
static inline void bert_rows(const struct bert_step *s, struct snug_batch *b) {
    if (s->config.task != SNUG_TASK_MLM) return;
    b->rows = 0;
    for (int32_t t = 3; t < b->tokens; t += 7, b->rows++) {
        b->loss_positions[b->rows] = t;
        b->labels[b->rows] = b->ids[t];
    }
    b->items = b->rows;
}

/* Sequence i has lengths[i] tokens; the arrays are laid out in memory. */
static inline void bert_fill(const struct bert_step *s, struct snug_batch *b, uint8_t *memory, const int32_t *lengths,
                             int32_t sequences) {
    int64_t at = 0;
    *b = (struct snug_batch){.sequences = sequences, .rows = sequences, .items = sequences, .last_in_step = true};
    for (int32_t i = 0; i < sequences; i++) {
        b->tokens += lengths[i];
        if (lengths[i] > b->longest) b->longest = lengths[i];
    }
    int32_t **arrays[] = {&b->ids,    &b->types, &b->positions,      &b->position_ids,
                          &b->sample, &b->by_id, &b->loss_positions, &b->labels};
    b->offsets = bert_array(memory, &at, sequences + 1);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) *arrays[i] = bert_array(memory, &at, b->tokens + 1);
    int32_t *count = calloc((size_t)s->config.vocab_size + 1, sizeof *count);
    for (int32_t i = 0, t = 0; i < sequences; i++) {
        b->offsets[i] = b->loss_positions[i] = t;
        b->labels[i] = i % 2;
        for (int32_t k = 0; k < lengths[i]; k++, t++) {
            b->ids[t] = (int32_t)(snug_philox((uint32_t)t, 0, 9, 0, 1, 2).word[0] % (uint64_t)s->config.vocab_size);
            b->types[t] = s->config.type_vocab_size > 1 && k > lengths[i] / 2;
            b->positions[t] = k;
            b->sample[t] = i;
            count[b->ids[t] + 1]++;
        }
        b->offsets[i + 1] = t;
        snug_batch_number_positions(b, b->offsets[i], t, (int32_t)s->config.first_position);
    }
    for (int64_t id = 0; id < s->config.vocab_size; id++) count[id + 1] += count[id];
    for (int32_t t = 0; t < b->tokens; t++) b->by_id[count[b->ids[t]]++] = t;
    free(count);
    bert_rows(s, b);
    b->items_in_step = b->items;
}

static inline void bert_load(struct bert_step *s, struct snug_batch *b) {
    s->run.batch = b;
    s->run.loss_scale = s->overflow ? 1e9f : 1.0f / (float)b->items_in_step;
    bert_check(s->ctx, s->backend->load(&s->run), "load");
    s->run.in_turn = true; /* the arena is not shared */
}

static inline void bert_batch(struct bert_step *s, const int32_t *lengths, int32_t sequences) {
    bert_fill(s, &s->batch, s->runner.host.base, lengths, sequences);
    bert_load(s, &s->batch);
}

/* What distinguishes one step from another. */
struct bert_options {
    enum snug_dtype compute;
    bool tf32, infers;
    int64_t tokens, sequences, longest, chunk; /* of a batch at most; loss positions at a time, or 0 */
    struct snug_methods methods;               /* without an optimizer: AdamW */
    const struct snug_sizes *sizes;            /* of the batches that follow, or NULL: no autotuning, */
    const char *folder;                        /* or from the stored choices */
    const char *offload_dir;                   /* NULL: to host memory, if at all */
};

static inline void bert_weights(struct bert_step *s) {
    const struct snug_program *p = &s->program;
    for (size_t i = 1; i < p->tensor_count; i++) {
        const struct snug_tensor *t = &p->tensors[i];
        if (!t->persistent || t->memory_class != SNUG_MEMORY_WEIGHTS || strncmp(t->name, "copy.", 5) == 0) continue;
        const int64_t count = t->rows * t->cols;
        void *values = malloc((size_t)(count * snug_dtype_size(t->dtype)));
        const float middle = strstr(t->name, "LayerNorm.weight") ? 1 : 0;
        for (int64_t k = 0; k < count; k++) {
            /* i - 1: the bounds of test_cuda_step.c were measured when the first tensor had number 0. */
            const float value = middle + 0.05f * bert_value(i - 1, (uint64_t)k);
            if (t->dtype == SNUG_F32) ((float *)values)[k] = value;
            if (t->dtype == SNUG_BF16) ((uint16_t *)values)[k] = snug_f32_to_bf16(value);
            if (t->dtype == SNUG_F16) ((uint16_t *)values)[k] = snug_f32_to_f16(value);
        }
        bert_check(s->ctx, snug_tensor_write(p, &s->runner.memory, (int32_t)i, 0, count, values), "weights");
        free(values);
    }
}

static const struct snug_optimizer bert_adamw = {.info = &snug_optimizer_adam,
                                                 .decoupled = true,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.999,
                                                 .epsilon = 1e-8,
                                                 .weight_decay = 0.01};

/* Returns SNUG_E_UNSUPPORTED, with the operation's name in the context, where the backend lacks an operation; any other
   failure ends the program. */
static inline snug_status bert_open_case(struct bert_step *s, const struct snug_backend *backend,
                                         const struct snug_config *config, const struct bert_options *o) {
    *s = (struct bert_step){.backend = backend, .config = *config};
    if (snug_context_create(&s->ctx) != SNUG_OK) exit(1);
    struct snug_program *p = &s->program;
    const int64_t rows = config->task == SNUG_TASK_MLM ? o->tokens : o->sequences;
    struct snug_methods methods = o->methods;
    s->optimizer = methods.optimizer ? *methods.optimizer : bert_adamw;
    methods.optimizer = o->infers ? NULL : &s->optimizer;
    snug_program_init(p, s->ctx);
    p->compute = o->compute;
    p->tf32 = o->tf32;
    p->to_file = o->offload_dir != NULL;
    p->low_logits = backend->low_logits;
    p->longest = o->longest;
    p->capacity[SNUG_EXTENT_TOKENS] = o->tokens;
    p->capacity[SNUG_EXTENT_SEQUENCES] = o->sequences;
    p->capacity[SNUG_EXTENT_ROWS] = o->chunk && o->chunk < rows ? o->chunk : rows;
    bert_check(s->ctx, snug_build_model(p, &s->config, !o->infers, 0), "build");
    bert_check(s->ctx, snug_stages(p, &methods), "stages");
    for (size_t i = 0; i < p->op_count; i++)
        if (!backend->ops[p->ops[i].kind])
            return snug_fail(s->ctx, SNUG_E_UNSUPPORTED, "no %s yet", snug_op_name(p->ops[i].kind));
    const int64_t batch = bert_batch_bytes(o->tokens, o->sequences);
    bert_check(s->ctx, snug_runner_start(s->ctx, backend, 1, p, batch, o->offload_dir, &s->runner), "start");
    s->run = snug_runner_run(&s->runner, 0);
    s->run.seed = 42;
    s->run.learning_rate = 1e-4f;
    s->run.max_grad_norm = 1;
    s->run.optimizer = &s->optimizer;
    for (int i = 1; i < SNUG_UNSEEN_STEPS; i++) s->run.later_rates[i - 1] = s->run.learning_rate * (float)(1 + i);
    if (o->sizes && backend->autotunes) bert_check(s->ctx, backend->autotune(&s->run, o->sizes, o->folder), "autotune");
    bert_weights(s);
    const float scale[SNUG_SCALE_VALUES] = {SNUG_SCALE_FIRST};
    if (p->scaler)
        bert_check(s->ctx, snug_tensor_write(p, &s->runner.memory, p->scaler, 0, SNUG_SCALE_VALUES, scale), "scale");
    bert_check(s->ctx, snug_run_phase(&s->run, backend, SNUG_PHASE_PREPARE, NULL), "prepare");
    return SNUG_OK;
}

/* how: all settings except the size of batches, which some methods also need. */
static inline void bert_open_with(struct bert_step *s, const struct snug_backend *backend,
                                  const struct snug_config *config, enum snug_dtype compute, int64_t tokens,
                                  int32_t sequences, const struct snug_methods *how) {
    const int64_t positions = config->max_position_embeddings;
    const struct bert_options options = {.compute = compute,
                                         .tokens = tokens,
                                         .sequences = sequences,
                                         .longest = tokens < positions ? tokens : positions,
                                         .methods = *how};
    bert_check(s->ctx, bert_open_case(s, backend, config, &options), "open");
}

static inline void bert_open(struct bert_step *s, const struct snug_backend *backend, const struct snug_config *config,
                             enum snug_dtype compute, int64_t tokens, int32_t sequences) {
    bert_open_with(s, backend, config, compute, tokens, sequences, &(struct snug_methods){.optimizer = NULL});
}

static inline void bert_close(struct bert_step *s) {
    snug_runner_close(&s->runner);
    snug_program_free(&s->program);
    snug_context_destroy(s->ctx);
}

static inline void bert_phase(struct bert_step *s, enum snug_phase phase) {
    bert_check(s->ctx, snug_run_phase(&s->run, s->backend, phase, NULL), "phase");
}

/* Forward, loss and backward of the current batch. */
static inline void bert_gradients(struct bert_step *s) {
    bert_phase(s, SNUG_PHASE_FORWARD);
    bert_phase(s, SNUG_PHASE_HEAD);
    bert_phase(s, SNUG_PHASE_BACKWARD);
    s->run.micro_batch++;
}

static inline void bert_read(struct bert_step *s, int32_t tensor, void *values, int64_t bytes) {
    bert_check(s->ctx, snug_block_copy(s->ctx, &s->runner.arena, values, snug_run_data(&s->run, tensor), bytes),
               "read");
}

/* In host memory the skipped steps are known at once; on a device the run is not informed. */
static inline void bert_update(struct bert_step *s) {
    const int32_t scaler = s->program.scaler;
    const float rate = s->run.learning_rate;
    if (s->runner.arena.copy == NULL && s->run.skipped) s->run.learning_rate = s->run.later_rates[s->run.skipped - 1];
    bert_phase(s, SNUG_PHASE_CLIP);
    bert_phase(s, SNUG_PHASE_UPDATE);
    s->run.learning_rate = rate;
    if (s->runner.arena.copy == NULL && scaler) {
        float values[SNUG_SCALE_VALUES];
        bert_read(s, scaler, values, sizeof values);
        s->run.skipped = (int64_t)values[SNUG_SCALE_SKIPPED];
    }
    s->run.step++;
    s->run.micro_batch = 0;
}

#endif
