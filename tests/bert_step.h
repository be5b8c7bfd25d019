/* SPDX-License-Identifier: Apache-2.0 */
/* A BERT of any size without files: a program, placed, on a backend, with made-up weights and a ragged batch. */
#ifndef SNUG_TESTS_BERT_STEP_H
#define SNUG_TESTS_BERT_STEP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "model/build.h"
#include "optim/loss_scale.h"
#include "plan/stages.h"

struct bert_step {
    snug_context *ctx;
    const struct snug_backend *backend;
    struct snug_config config;
    struct snug_optimizer optimizer;
    struct snug_program program;
    struct snug_layout layout;
    struct snug_block arena, host;
    struct snug_run run;
    struct snug_batch batch;
    bool overflow; /* the loss is so large that fp16 cannot hold its gradients */
};

static inline void bert_check(snug_context *ctx, snug_status status, const char *what) {
    if (status == SNUG_OK) return;
    fprintf(stderr, "%s: %s\n", what, snug_error_message(ctx));
    exit(1);
}

static inline float bert_value(uint32_t stream, uint64_t i) {
    const uint32_t word = snug_philox((uint32_t)i, (uint32_t)(i >> 32), stream, 0, 1, 2).word[0];
    return (float)((int32_t)word >> 8) * 0x1p-23f;
}

static inline int32_t *bert_array(struct bert_step *s, int64_t *at, int64_t count) {
    int32_t *taken = (int32_t *)(s->host.base + *at);
    *at += (count * 4 + 63) / 64 * 64;
    return taken;
}

/* Sequence i has lengths[i] tokens. */
static inline void bert_batch(struct bert_step *s, const int32_t *lengths, int32_t sequences) {
    struct snug_batch *b = &s->batch;
    int64_t at = 0;
    *b = (struct snug_batch){.sequences = sequences, .rows = sequences, .items = sequences, .last_in_step = true};
    b->items_in_step = sequences;
    for (int32_t i = 0; i < sequences; i++) {
        b->tokens += lengths[i];
        if (lengths[i] > b->longest) b->longest = lengths[i];
    }
    int32_t **arrays[] = {&b->ids, &b->types, &b->positions, &b->sample, &b->by_id};
    b->offsets = bert_array(s, &at, sequences + 1);
    for (size_t i = 0; i < 5; i++) *arrays[i] = bert_array(s, &at, b->tokens);
    b->head_rows = bert_array(s, &at, sequences);
    b->labels = bert_array(s, &at, sequences);
    int32_t *count = calloc((size_t)s->config.vocab_size + 1, sizeof *count);
    for (int32_t i = 0, t = 0; i < sequences; i++) {
        b->offsets[i] = b->head_rows[i] = t;
        b->labels[i] = i % 2;
        for (int32_t k = 0; k < lengths[i]; k++, t++) {
            b->ids[t] = (int32_t)(snug_philox((uint32_t)t, 0, 9, 0, 1, 2).word[0] % (uint64_t)s->config.vocab_size);
            b->types[t] = k > lengths[i] / 2;
            b->positions[t] = k;
            b->sample[t] = i;
            count[b->ids[t] + 1]++;
        }
        b->offsets[i + 1] = t;
    }
    for (int64_t id = 0; id < s->config.vocab_size; id++) count[id + 1] += count[id];
    for (int32_t t = 0; t < b->tokens; t++) b->by_id[count[b->ids[t]]++] = t;
    free(count);
    s->run.batch = b;
    s->run.loss_scale = s->overflow ? 1e9f : 1.0f / (float)sequences;
    bert_check(s->ctx, s->backend->load(&s->run), "load");
}

static const struct snug_optimizer bert_adamw = {
    .kind = SNUG_ADAM, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};

/* how: everything but the batches' size, which methods there look at too. */
static inline void bert_open_with(struct bert_step *s, const struct snug_backend *backend,
                                  const struct snug_config *config, enum snug_dtype compute, int64_t tokens,
                                  int32_t sequences, const struct snug_methods *how) {
    *s = (struct bert_step){.backend = backend, .config = *config, .optimizer = *how->optimizer};
    if (snug_context_create(&s->ctx) != SNUG_OK) exit(1);
    struct snug_program *p = &s->program, *programs[] = {p};
    snug_program_init(p, s->ctx);
    p->compute = compute;
    p->longest = tokens < config->max_position_embeddings ? tokens : config->max_position_embeddings;
    p->capacity[SNUG_EXTENT_TOKENS] = tokens;
    p->capacity[SNUG_EXTENT_SEQUENCES] = p->capacity[SNUG_EXTENT_ROWS] = sequences;
    bert_check(s->ctx, snug_build_bert(p, &s->config, true, 0), "build");
    struct snug_methods methods = *how;
    methods.optimizer = &s->optimizer;
    bert_check(s->ctx, snug_stages(p, &methods), "stages");
    const int64_t batch = 64 * 10 + 4 * (5 * tokens + 4 * (int64_t)sequences) + 64 * 16;
    bert_check(s->ctx, snug_stage_place(s->ctx, programs, 1, backend, 1, batch, 0, &s->layout), "place");
    bert_check(s->ctx, backend->allocate(s->ctx, s->layout.arena, SNUG_BLOCK_ARENA, &s->arena), "arena");
    bert_check(s->ctx, backend->allocate(s->ctx, s->layout.host, SNUG_BLOCK_HOST, &s->host), "host");
    s->run = (struct snug_run){.ctx = s->ctx,
                               .program = p,
                               .arena = s->arena.base,
                               .workspace = s->arena.base + s->layout.workspace_offset,
                               .batch_copy = s->arena.base + s->layout.copy_offset,
                               .threads = 1,
                               .seed = 42,
                               .learning_rate = 1e-4f,
                               .max_grad_norm = 1,
                               .optimizer = &s->optimizer};
    for (int i = 1; i < SNUG_UNSEEN_STEPS; i++) s->run.later_rates[i - 1] = s->run.learning_rate * (float)(1 + i);
    bert_check(s->ctx, backend->open(s->ctx, p, 1, &s->run.backend_state), "open");
    const struct snug_memory memory = {.arena = s->arena.base, .copy = s->arena.copy};
    const float scale[SNUG_SCALE_VALUES] = {SNUG_SCALE_FIRST};
    if (snug_program_scaler(p) >= 0)
        bert_check(s->ctx, snug_tensor_write(p, &memory, snug_program_scaler(p), 0, SNUG_SCALE_VALUES, scale), "scale");
    for (size_t i = 0; i < p->tensor_count; i++) {
        const struct snug_tensor *t = &p->tensors[i];
        void *view;
        const int64_t size = snug_dtype_size(t->dtype), bytes = t->rows * t->cols * size;
        if (!t->persistent || t->memory_class != SNUG_MEMORY_WEIGHTS || strncmp(t->name, "copy.", 5) == 0) continue;
        bert_check(s->ctx, snug_view_open(s->ctx, &s->arena, s->arena.base + t->offset, bytes, SNUG_VIEW_WRITE, &view),
                   "weights");
        const bool gamma = strstr(t->name, "LayerNorm.weight") != NULL;
        for (int64_t k = 0; k < t->rows * t->cols; k++) {
            const float value = (gamma ? 1 : 0) + 0.05f * bert_value((uint32_t)i, (uint64_t)k);
            const uint16_t half = snug_f32_to_bf16(value);
            memcpy((uint8_t *)view + k * size, size == 4 ? (const void *)&value : (const void *)&half, (size_t)size);
        }
        bert_check(s->ctx, snug_view_close(s->ctx, &s->arena, s->arena.base + t->offset, bytes, SNUG_VIEW_WRITE, view),
                   "weights");
    }
    bert_check(s->ctx, snug_run_phase(&s->run, backend, SNUG_PHASE_PREPARE, NULL), "prepare");
}

static inline void bert_open(struct bert_step *s, const struct snug_backend *backend, const struct snug_config *config,
                             enum snug_dtype compute, int64_t tokens, int32_t sequences) {
    bert_open_with(s, backend, config, compute, tokens, sequences, &(struct snug_methods){.optimizer = &bert_adamw});
}

static inline void bert_close(struct bert_step *s) {
    s->backend->close(s->run.backend_state);
    snug_block_release(&s->arena);
    snug_block_release(&s->host);
    snug_program_free(&s->program);
    snug_context_destroy(s->ctx);
}

static inline void bert_phase(struct bert_step *s, enum snug_phase phase) {
    bert_check(s->ctx, snug_run_phase(&s->run, s->backend, phase, NULL), "phase");
}

/* Forward, loss and backward of the batch at hand. */
static inline void bert_gradients(struct bert_step *s) {
    bert_phase(s, SNUG_PHASE_FORWARD);
    bert_phase(s, SNUG_PHASE_HEAD);
    bert_phase(s, SNUG_PHASE_BACKWARD);
    s->run.micro_batch++;
}

static inline void bert_read(struct bert_step *s, int32_t tensor, void *values, int64_t bytes) {
    bert_check(s->ctx, snug_block_copy(s->ctx, &s->arena, values, snug_run_data(&s->run, tensor), bytes), "read");
}

/* On the host's own memory one knows at once which steps were skipped; elsewhere the run is not told. */
static inline void bert_update(struct bert_step *s) {
    const int32_t scaler = snug_program_scaler(&s->program);
    const float rate = s->run.learning_rate;
    if (s->arena.copy == NULL && s->run.skipped) s->run.learning_rate = s->run.later_rates[s->run.skipped - 1];
    bert_phase(s, SNUG_PHASE_CLIP);
    bert_phase(s, SNUG_PHASE_UPDATE);
    s->run.learning_rate = rate;
    if (s->arena.copy == NULL && scaler >= 0) {
        float values[SNUG_SCALE_VALUES];
        bert_read(s, scaler, values, sizeof values);
        s->run.skipped = (int64_t)values[SNUG_SCALE_SKIPPED];
    }
    s->run.step++;
    s->run.micro_batch = 0;
}

#endif
