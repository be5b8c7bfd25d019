/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of tests/golden/model with its expected values, planned, allocated and loaded by hand: no data set, no
 * trainer.
 */
#ifndef SNUG_TESTS_GOLDEN_H
#define SNUG_TESTS_GOLDEN_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "data/task.h"
#include "folders.h"
#include "io/json.h"
#include "io/offload_file.h"
#include "io/safetensors.h"
#include "model/adapter_weights.h"
#include "model/family.h"
#include "model/freeze.h"
#include "model/quantization.h"
#include "model/weights.h"
#include "optim/loss_scale.h"
#include "run/runner.h"
#include "temporary.h"
#include "test.h"

#define GOLDEN_FOLDER SNUG_SOURCE_DIR "/tests/golden/model"

/* How the model is trained; all 0 for the plain program. */
struct golden_method {
    const char *name;
    enum snug_recompute recompute; /* of every layer */
    enum snug_dtype weights, compute;
    bool update_in_backward, offloads;
    bool lazy;             /* rows of the word embedding, more than the model has; not for language models */
    int32_t micro_batches; /* of a step, at most its number of sequences; 0 means 1 */
    const char *adapter;   /* folder of the adapters that are trained beside the model; NULL: the model is trained */
};

enum {
    GOLDEN_PARTS = 4,
    GOLDEN_LAZY_STEPS = 4, /* fewer steps than are compared, so that the history fills up */
    GOLDEN_OFFLOADED = 1 << SNUG_MEMORY_WEIGHTS | 1 << SNUG_MEMORY_GRADIENTS | 1 << SNUG_MEMORY_OPTIMIZER |
                       1 << SNUG_MEMORY_ACTIVATIONS
};

struct golden {
    snug_context *ctx;
    struct snug_config config;
    struct snug_adapter *adapter;
    struct snug_optimizer optimizer;
    struct snug_safetensors expected;
    struct snug_program program;
    struct snug_runner runner;
    struct snug_run run;
    struct snug_batch batch;               /* the whole step's */
    struct snug_batch parts[GOLDEN_PARTS]; /* its micro-batches, if there are several */
    int32_t part_count;
    const struct snug_backend *backend;
    uint8_t *arena; /* the runner's, or a copy of it on the host */
};

static float *golden_read(struct golden *g, const char *name, int64_t *count) {
    const struct snug_stored_tensor *stored = snug_safetensors_find(&g->expected, name);
    assert_non_null(stored);
    float *values = calloc((size_t)stored->count + 1, sizeof *values);
    assert_non_null(values);
    assert_int_equal(snug_safetensors_read(g->ctx, &g->expected, stored, 0, stored->count, values), SNUG_OK);
    *count = stored->count;
    return values;
}

static int32_t *golden_read_ints(struct golden *g, const char *name, int64_t *count) {
    float *values = golden_read(g, name, count);
    int32_t *ints = calloc((size_t)*count + 1, sizeof *ints);
    for (int64_t i = 0; i < *count; i++) ints[i] = (int32_t)values[i];
    free(values);
    return ints;
}

static const int32_t *golden_ids; /* qsort passes no context */
static int golden_by_id(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const int32_t *ids = golden_ids;
    return ids[x] != ids[y] ? (ids[x] < ids[y] ? -1 : 1) : (x < y ? -1 : 1);
}

static void golden_sort(struct snug_batch *b) {
    for (int32_t i = 0; i < b->tokens; i++) b->by_id[i] = i;
    golden_ids = b->ids;
    qsort(b->by_id, (size_t)b->tokens, sizeof *b->by_id, golden_by_id);
}

/* The expected file's input as one packed batch. */
static void golden_batch(struct golden *g) {
    struct snug_batch *b = &g->batch;
    int64_t labels;
    b->ids = golden_read_ints(g, "input_ids", &b->tokens);
    b->types = golden_read_ints(g, "token_type_ids", &b->tokens);
    b->offsets = golden_read_ints(g, "lengths", &b->sequences);
    b->positions = calloc((size_t)b->tokens, sizeof *b->positions);
    b->position_ids = calloc((size_t)b->tokens, sizeof *b->position_ids);
    b->sample = calloc((size_t)b->tokens, sizeof *b->sample);
    b->by_id = calloc((size_t)b->tokens, sizeof *b->by_id);
    b->loss_positions = calloc((size_t)b->tokens, sizeof *b->loss_positions);
    int32_t at = 0;
    for (int64_t i = 0; i < b->sequences; i++) {
        const int32_t length = b->offsets[i];
        b->offsets[i] = at;
        if (length > b->longest) b->longest = length;
        for (int32_t k = 0; k < length; k++, at++) {
            b->positions[at] = k;
            b->sample[at] = (int32_t)i;
        }
        snug_batch_number_positions(b, at - length, at, (int32_t)g->config.first_position);
    }
    b->offsets[b->sequences] = at;
    golden_sort(b);
    b->targets = golden_read(g, "labels", &labels);
    b->labels = calloc((size_t)labels + 1, sizeof *b->labels);
    if (g->config.task != SNUG_TASK_CLASSIFICATION) {
        for (int32_t i = 0; i < b->tokens; i++)
            if (b->targets[i] >= 0) {
                b->loss_positions[b->rows] = i;
                b->labels[b->rows++] = (int32_t)b->targets[i];
            }
        b->items = b->rows;
    } else {
        b->rows = b->sequences;
        for (int64_t i = 0; i < b->sequences; i++) b->loss_positions[i] = b->offsets[i];
        for (int64_t i = 0; i < labels; i++) b->labels[i] = (int32_t)b->targets[i];
        b->items = g->config.labels.problem == SNUG_PROBLEM_MULTI_LABEL ? labels : b->rows;
    }
    b->items_in_step = b->items;
    b->last_in_step = true;
}

/* Sequences first … end - 1 of the batch as a micro-batch with indices of its own. */
static void golden_part(const struct golden *g, int64_t first, int64_t end, struct snug_batch *part) {
    const struct snug_batch *b = &g->batch;
    const int32_t begin = b->offsets[first];
    const int64_t per_row = b->rows ? b->items / b->rows : 1;
    int64_t row = 0;
    while (row < b->rows && b->loss_positions[row] < begin) row++;
    *part = *b;
    part->sequences = end - first;
    part->tokens = b->offsets[end] - begin;
    part->ids += begin;
    part->types += begin;
    part->positions += begin;
    part->position_ids += begin;
    part->sample += begin;
    part->labels += row * per_row;
    part->targets += row * per_row;
    part->offsets = calloc((size_t)part->sequences + 1, sizeof *part->offsets);
    part->by_id = calloc((size_t)part->tokens, sizeof *part->by_id);
    part->loss_positions = calloc((size_t)b->rows + 1, sizeof *part->loss_positions);
    for (int64_t i = 0; i <= part->sequences; i++) part->offsets[i] = b->offsets[first + i] - begin;
    for (part->rows = 0; row < b->rows && b->loss_positions[row] < b->offsets[end]; row++)
        part->loss_positions[part->rows++] = b->loss_positions[row] - begin;
    part->items = part->rows * per_row;
    part->last_in_step = end == b->sequences;
    golden_sort(part);
}

static void golden_split(struct golden *g, int32_t wanted) {
    const int64_t sequences = g->batch.sequences;
    g->part_count = wanted > sequences ? (int32_t)sequences : wanted > 1 ? wanted : 1;
    for (int32_t i = 0; g->part_count > 1 && i < g->part_count; i++)
        golden_part(g, sequences * i / g->part_count, sequences * (i + 1) / g->part_count, &g->parts[i]);
}

/* Copies the host's arena to the device, and back; does nothing where they are the same. */
static void golden_push(struct golden *g) {
    const struct snug_block *arena = &g->runner.arena;
    if (arena->copy)
        assert_int_equal(snug_block_copy(g->ctx, arena, arena->base, g->arena, g->runner.layout.arena), SNUG_OK);
}

static void golden_pull(struct golden *g) {
    const struct snug_block *arena = &g->runner.arena;
    if (arena->copy)
        assert_int_equal(snug_block_copy(g->ctx, arena, g->arena, arena->base, g->runner.layout.arena), SNUG_OK);
}

/* A tensor as it was last copied to the host. */
static void *golden_data(const struct golden *g, int32_t tensor) {
    return g->arena + g->program.tensors[tensor].offset;
}

static void golden_phase(struct golden *g, enum snug_phase phase) {
    if (snug_run_phase(&g->run, g->backend, phase, NULL) != SNUG_OK) fail_msg("%s", snug_error_message(g->ctx));
}

static float *golden_parameter(const struct golden *g, const struct snug_parameter *parameter);
static void golden_close(struct golden *g);

/* A wider table begins with the rows of the narrow one. */
static void golden_widen(struct golden *g, const struct golden *narrow) {
    const struct snug_memory memory = g->runner.memory;
    for (size_t i = 0; i < g->program.parameter_count; i++) {
        const struct snug_parameter *p = &g->program.parameters[i], *from = &narrow->program.parameters[i];
        float *values = golden_parameter(narrow, from);
        assert_int_equal(snug_weights_init(&g->program, &g->config, &memory, p, 42), SNUG_OK);
        assert_int_equal(snug_parameter_write(&g->program, &memory, p, 0, snug_parameter_count(from), values), SNUG_OK);
        free(values);
    }
}

/* The program of a method. */
static void golden_plan(struct golden *g, double label_smoothing, int64_t chunk_rows,
                        const struct golden_method *method) {
    struct snug_program *program = &g->program;
    snug_program_init(program, g->ctx);
    program->compute = method->compute;
    program->longest = g->batch.longest;
    program->capacity[SNUG_EXTENT_TOKENS] = g->batch.tokens;
    program->capacity[SNUG_EXTENT_SEQUENCES] = g->batch.sequences;
    program->capacity[SNUG_EXTENT_ROWS] = chunk_rows ? chunk_rows : g->batch.rows;
    if (snug_build_model(program, &g->config, true, label_smoothing) != SNUG_OK)
        fail_msg("%s", snug_error_message(g->ctx));
    if (g->config.quantized.type) assert_int_equal(snug_program_freeze(program, 0, "base_model"), SNUG_OK);
    assert_int_equal(snug_program_quantize(program, &g->config, true), SNUG_OK);
    enum snug_recompute levels[16];
    assert_true(g->config.num_hidden_layers <= 16);
    for (int i = 0; i < 16; i++) levels[i] = method->recompute;
    const struct snug_methods methods = {
        .optimizer = &g->optimizer,
        .recompute = levels,
        .weights = method->weights,
        .update_in_backward = method->update_in_backward,
        .clips = true,
        .accumulates = g->part_count > 1,
        .micro_batches = g->part_count,
        .lazy_steps = method->lazy ? GOLDEN_LAZY_STEPS : 0,
        .offload = {.classes = method->offloads ? GOLDEN_OFFLOADED : 0, .ahead = 3, .part = 4096, .least = 16 << 10}};
    assert_int_equal(snug_stages(program, &methods), SNUG_OK);
}

static enum snug_task golden_task(const char *name) {
    const int task = snug_task_find(name);
    assert_true(task >= 0);
    return (enum snug_task)task;
}

/* The settings of a folder's adapters. */
static void golden_adapter(struct golden *g, const char *folder) {
    char path[600];
    json_t *json;
    snprintf(path, sizeof path, "%s/" SNUG_ADAPTER_CONFIG, folder);
    assert_int_equal(snug_json_read(g->ctx, NULL, path, &json), SNUG_OK);
    if (snug_adapter_read(g->ctx, path, json, g->config.family->lora_targets, false, &g->adapter) != SNUG_OK)
        fail_msg("%s", snug_error_message(g->ctx));
    if (snug_family_copy_decoder(g->ctx, &g->config, json) != SNUG_OK) fail_msg("%s", snug_error_message(g->ctx));
    g->config.adapter = g->adapter;
    json_decref(json);
}

static void golden_open(struct golden *g, const char *folder, const char *expected, const char *task,
                        double label_smoothing, const struct snug_backend *backend, int threads, int64_t chunk_rows,
                        const struct golden_method *method) {
    char path[512];
    *g = (struct golden){
        .backend = backend,
        .optimizer = {.info = &snug_optimizer_adam, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}};
    assert_int_equal(snug_context_create(&g->ctx), SNUG_OK);
    snprintf(path, sizeof path, GOLDEN_FOLDER "/%s", folder);
    assert_int_equal(snug_config_read(g->ctx, path, &g->config), SNUG_OK);
    g->config.task = golden_task(task);
    g->config.hidden_dropout_prob = g->config.attention_probs_dropout_prob = g->config.classifier_dropout = 0;
    g->config.mlp_dropout = 0;
    if (method->lazy) g->config.vocab_size *= 2;
    if (method->adapter) golden_adapter(g, method->adapter);
    char file[600];
    snprintf(file, sizeof file, GOLDEN_FOLDER "/%s", expected);
    assert_int_equal(snug_safetensors_open(g->ctx, NULL, file, &g->expected), SNUG_OK);
    golden_batch(g);
    golden_split(g, method->micro_batches);

    golden_plan(g, label_smoothing, chunk_rows, method);
    struct snug_program *program = &g->program;
    assert_int_equal(snug_runner_start(g->ctx, backend, threads, program, 0, temporary_root(), &g->runner), SNUG_OK);
    const struct snug_memory memory = g->runner.memory;
    const size_t bytes = (size_t)g->runner.layout.arena;
    g->arena = memory.copy ? malloc(bytes) : memory.arena;
    assert_non_null(g->arena);
    memset(g->arena, 0xff, bytes); /* NaN: shows values that are read before they are written */
    g->run = snug_runner_run(&g->runner, 0);
    g->run.batch = &g->batch;
    g->run.loss_scale = (float)(1.0 / (double)g->batch.items_in_step);
    g->run.optimizer = &g->optimizer;
    for (size_t i = 1; i < program->tensor_count; i++)
        if (program->tensors[i].memory_class == SNUG_MEMORY_OPTIMIZER && !program->tensors[i].offloaded)
            memset(g->arena + program->tensors[i].offset, 0, (size_t)program->tensors[i].bytes);
    golden_push(g);
    if (method->lazy) {
        struct golden narrow;
        golden_open(&narrow, folder, expected, task, label_smoothing, backend, threads, chunk_rows,
                    &(struct golden_method){0});
        golden_widen(g, &narrow);
        golden_close(&narrow);
    } else {
        assert_int_equal(weights_load(g->ctx, path, program, &g->config, &memory, 42, false), SNUG_OK);
    }
    if (method->adapter) {
        struct snug_folder adapter;
        assert_int_equal(snug_folder_open(g->ctx, NULL, method->adapter, &adapter), SNUG_OK);
        if (snug_adapter_load(g->ctx, &adapter, program, &g->config, &memory) != SNUG_OK)
            fail_msg("%s", snug_error_message(g->ctx));
        snug_folder_close(&adapter);
    }
    const float scale[SNUG_SCALE_VALUES] = {SNUG_SCALE_FIRST};
    const int32_t scaler = program->scaler;
    if (scaler) assert_int_equal(snug_tensor_write(program, &memory, scaler, 0, SNUG_SCALE_VALUES, scale), SNUG_OK);
    assert_int_equal(backend->load(&g->run), SNUG_OK);
    golden_phase(g, SNUG_PHASE_PREPARE);
    golden_pull(g);
}

static void golden_close(struct golden *g) {
    if (g->runner.memory.copy) free(g->arena);
    snug_runner_close(&g->runner);
    for (int32_t i = 0; g->part_count > 1 && i < g->part_count; i++) {
        free(g->parts[i].offsets);
        free(g->parts[i].by_id);
        free(g->parts[i].loss_positions);
    }
    snug_program_free(&g->program);
    snug_config_free(&g->config);
    snug_adapter_free(g->adapter);
    snug_safetensors_close(&g->expected);
    free(g->batch.ids);
    free(g->batch.types);
    free(g->batch.offsets);
    free(g->batch.positions);
    free(g->batch.position_ids);
    free(g->batch.sample);
    free(g->batch.by_id);
    free(g->batch.loss_positions);
    free(g->batch.labels);
    free(g->batch.targets);
    snug_context_destroy(g->ctx);
}

/* Mean loss of the batch; also computes its gradients. */
static double golden_step(struct golden *g) {
    double loss = 0;
    for (int32_t i = 0; i < g->part_count; i++) {
        g->run.micro_batch = i;
        if (g->part_count > 1) {
            g->run.batch = &g->parts[i];
            assert_int_equal(g->backend->load(&g->run), SNUG_OK);
        }
        golden_phase(g, SNUG_PHASE_FORWARD);
        golden_phase(g, SNUG_PHASE_HEAD);
        golden_phase(g, SNUG_PHASE_BACKWARD);
        golden_pull(g);
        loss += *(const float *)golden_data(g, g->program.loss) / (double)g->batch.items_in_step;
    }
    return loss;
}

/* A parameter's values, to be freed. */
static float *golden_parameter(const struct golden *g, const struct snug_parameter *parameter) {
    const int64_t count = snug_parameter_count(parameter);
    float *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    const struct snug_memory memory = {.arena = g->arena};
    assert_int_equal(snug_parameter_read(&g->program, &memory, parameter, 0, count, values), SNUG_OK);
    return values;
}

/* The gradient of a Hugging Face parameter. */
static const float *golden_gradient(const struct golden *g, const struct snug_parameter *parameter) {
    const struct snug_tensor *tensor = &g->program.tensors[g->program.tensors[parameter->tensor].gradient];
    return (const float *)(g->arena + tensor->offset) + parameter->row * tensor->cols;
}

static double golden_norm(const float *a, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)a[i] * (double)a[i];
    return sqrt(sum);
}

#endif
