/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "optim/optimizer.h"

int64_t snug_parameter_count(const struct snug_parameter *parameter) {
    return parameter->shape[0] * (parameter->shape[1] ? parameter->shape[1] : 1);
}

static enum snug_dtype type_of(const struct snug_program *program, const struct snug_parameter *parameter) {
    return program->tensors[parameter->tensor].dtype;
}

/* Where parameter's value number first stands, from the arena's begin on. */
static int64_t place_of(const struct snug_program *program, const struct snug_parameter *parameter, int64_t first) {
    const struct snug_tensor *tensor = &program->tensors[parameter->tensor];
    return tensor->offset + (parameter->row * tensor->cols + first) * snug_dtype_size(tensor->dtype);
}

/* Values from number first on of a parameter that is stored from stored on. */
static void widen(const uint8_t *stored, enum snug_dtype type, int64_t first, int64_t count, float *values) {
    if (type == SNUG_F32)
        memcpy(values, (const float *)(const void *)stored + first, (size_t)count * sizeof *values);
    else
        for (int64_t i = 0; i < count; i++)
            values[i] = snug_bf16_to_f32(((const uint16_t *)(const void *)stored)[first + i]);
}

static void narrow(uint8_t *stored, enum snug_dtype type, int64_t first, int64_t count, const float *values) {
    if (type == SNUG_F32)
        memcpy((float *)(void *)stored + first, values, (size_t)count * sizeof *values);
    else
        for (int64_t i = 0; i < count; i++) ((uint16_t *)(void *)stored)[first + i] = snug_f32_to_bf16(values[i]);
}

void snug_parameter_read(const struct snug_program *program, const uint8_t *arena,
                         const struct snug_parameter *parameter, int64_t first, int64_t count, float *values) {
    widen(arena + place_of(program, parameter, 0), type_of(program, parameter), first, count, values);
}

void snug_parameter_write(const struct snug_program *program, uint8_t *arena, const struct snug_parameter *parameter,
                          int64_t first, int64_t count, const float *values) {
    narrow(arena + place_of(program, parameter, 0), type_of(program, parameter), first, count, values);
}

/* A parameter as it is stored, where the host can work on it. */
static snug_status open_view(snug_context *ctx, const struct snug_program *program, const struct snug_memory *arena,
                             const struct snug_parameter *parameter, enum snug_view_mode mode, uint8_t **stored) {
    void *view;
    const int64_t bytes = snug_parameter_count(parameter) * snug_dtype_size(type_of(program, parameter));
    RETURN_IF_ERROR(snug_view_open(ctx, arena, arena->base + place_of(program, parameter, 0), bytes, mode, &view));
    *stored = view;
    return SNUG_OK;
}

static snug_status close_view(snug_context *ctx, const struct snug_program *program, const struct snug_memory *arena,
                              const struct snug_parameter *parameter, enum snug_view_mode mode, uint8_t *stored) {
    const int64_t bytes = snug_parameter_count(parameter) * snug_dtype_size(type_of(program, parameter));
    return snug_view_close(ctx, arena, arena->base + place_of(program, parameter, 0), bytes, mode, stored);
}

snug_status snug_parameter_get(snug_context *ctx, const struct snug_program *program, const struct snug_memory *arena,
                               const struct snug_parameter *parameter, float *values) {
    uint8_t *stored;
    RETURN_IF_ERROR(open_view(ctx, program, arena, parameter, SNUG_VIEW_READ, &stored));
    widen(stored, type_of(program, parameter), 0, snug_parameter_count(parameter), values);
    return close_view(ctx, program, arena, parameter, SNUG_VIEW_READ, stored);
}

/* Values that go through fp32 at a time, where that is not what they are stored in. */
enum { PIECE = 4096 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- initialising --------------------------------------------------------------------------------------------- */

/* FNV-1a: only to give each name its own stream of random numbers. */
static uint32_t name_hash(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

/* Elements first … first + count - 1 of a parameter; first is a multiple of 4. */
static void draw_normal(float *values, int64_t first, int64_t count, double deviation, uint32_t name, uint64_t seed) {
    const double pi = 3.14159265358979323846;
    for (int64_t i = 0; i < count; i += 4) {
        const int64_t number = (first + i) / 4;
        const struct snug_philox_block block =
            snug_philox((uint32_t)number, (uint32_t)(number >> 32), name, (uint32_t)SNUG_PHILOX_INIT << 29,
                        (uint32_t)seed, (uint32_t)(seed >> 32));
        for (int k = 0; k < 4 && i + k < count; k++) { /* Box and Muller: two words give two normal numbers */
            const double u = (block.word[k & 2] + 0.5) * 0x1p-32, v = (block.word[k | 1] + 0.5) * 0x1p-32;
            const double radius = deviation * sqrt(-2 * log(u));
            values[i + k] = (float)(radius * (k & 1 ? sin(2 * pi * v) : cos(2 * pi * v)));
        }
    }
}

static void write_initial(const struct snug_program *program, const struct snug_config *config,
                          const struct snug_parameter *parameter, uint64_t seed, uint8_t *stored) {
    const int64_t count = snug_parameter_count(parameter), pad = config->pad_token_id;
    const enum snug_dtype type = type_of(program, parameter);
    const uint32_t name = name_hash(parameter->name);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < count; first += PIECE) {
        float values[PIECE];
        const int64_t n = smaller(PIECE, count - first);
        if (parameter->init == SNUG_INIT_NORMAL)
            draw_normal(values, first, n, config->initializer_range, name, seed);
        else
            for (int64_t i = 0; i < n; i++) values[i] = parameter->init == SNUG_INIT_ONES ? 1 : 0;
        narrow(stored, type, first, n, values);
    }
    /* All bits zero are 0 in every type. */
    if (strcmp(parameter->name, "bert.embeddings.word_embeddings.weight") == 0 && pad >= 0 && pad < config->vocab_size)
        memset(stored + pad * config->hidden_size * snug_dtype_size(type), 0,
               (size_t)(config->hidden_size * snug_dtype_size(type)));
}

snug_status snug_weights_init(snug_context *ctx, const struct snug_program *program, const struct snug_config *config,
                              const struct snug_memory *arena, const struct snug_parameter *parameter, uint64_t seed) {
    uint8_t *stored;
    RETURN_IF_ERROR(open_view(ctx, program, arena, parameter, SNUG_VIEW_WRITE, &stored));
    write_initial(program, config, parameter, seed, stored);
    return close_view(ctx, program, arena, parameter, SNUG_VIEW_WRITE, stored);
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

static bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

static bool replace_end(char *text, size_t size, const char *end, const char *by) {
    const size_t length = strlen(text), cut = strlen(end);
    if (length < cut || strcmp(text + length - cut, end) != 0) return false;
    snprintf(text + length - cut, size - (length - cut), "%s", by);
    return true;
}

/* The name that today's BertFor… gives what a file calls stored. */
static void canonical_name(const struct snug_config *config, const char *stored, char *name, size_t size) {
    const bool headed =
        starts_with(stored, "bert.") || starts_with(stored, "cls.") || starts_with(stored, "classifier.");
    snprintf(name, size, "%s%s", headed ? "" : "bert.", stored);
    replace_end(name, size, "LayerNorm.gamma", "LayerNorm.weight");
    replace_end(name, size, "LayerNorm.beta", "LayerNorm.bias");
    if (config->tie_word_embeddings && strcmp(name, "cls.predictions.decoder.bias") == 0)
        snprintf(name, size, "cls.predictions.bias");
}

/* Nothing to load: a constant of older versions, the tied decoder, which is the word embedding, and the bias that an
   untied decoder leaves unused beside its own. */
static bool is_redundant(const struct snug_config *config, const char *name) {
    return strcmp(name, "bert.embeddings.position_ids") == 0 ||
           strcmp(name, config->tie_word_embeddings ? "cls.predictions.decoder.weight" : "cls.predictions.bias") == 0;
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

struct loading {
    snug_context *ctx;
    const char *path;
    const struct snug_program *program;
    const struct snug_config *config;
    const struct snug_memory *arena;
    bool ignore_mismatched_sizes;
    bool *loaded; /* by parameter */
};

static void shape_text(const int64_t *shape, int dims, char *text, size_t size) {
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < dims && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

static bool same_shape(const struct snug_stored_tensor *stored, const struct snug_parameter *parameter) {
    const int dims = parameter->shape[1] ? 2 : 1;
    return stored->dims == dims && stored->shape[0] == parameter->shape[0] &&
           (dims == 1 || stored->shape[1] == parameter->shape[1]);
}

static snug_status read_finite(const struct loading *l, const struct snug_safetensors *files,
                               const struct snug_stored_tensor *source, const struct snug_parameter *parameter,
                               uint8_t *stored) {
    const enum snug_dtype type = type_of(l->program, parameter);
    const int64_t count = snug_parameter_count(parameter);
    for (int64_t first = 0; first < count; first += PIECE) {
        float values[PIECE];
        const int64_t n = smaller(PIECE, count - first);
        RETURN_IF_ERROR(snug_safetensors_read(l->ctx, files, source, first, n, values));
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(values[i]))
                return snug_fail(l->ctx, SNUG_E_INPUT, "%s: tensor %s holds %s at element %lld: the file is damaged",
                                 l->path, source->name, isnan(values[i]) ? "NaN" : "an infinity",
                                 (long long)(first + i));
            if (type == SNUG_BF16 && !isfinite(snug_bf16_to_f32(snug_f32_to_bf16(values[i]))))
                return snug_fail(l->ctx, SNUG_E_INPUT,
                                 "%s: tensor %s holds %g at element %lld, more than bfloat16 has: use --dtype float32",
                                 l->path, source->name, (double)values[i], (long long)(first + i));
        }
        narrow(stored, type, first, n, values);
    }
    return SNUG_OK;
}

static snug_status load_one(const struct loading *l, const struct snug_safetensors *files,
                            const struct snug_stored_tensor *stored, size_t index) {
    const struct snug_parameter *parameter = &l->program->parameters[index];
    if (!same_shape(stored, parameter)) {
        char found[160], expected[160];
        shape_text(stored->shape, stored->dims, found, sizeof found);
        shape_text(parameter->shape, parameter->shape[1] ? 2 : 1, expected, sizeof expected);
        if (parameter->head && l->ignore_mismatched_sizes) {
            snug_log(l->ctx, SNUG_LOG_WARNING, "%s: tensor %s has shape [%s], the model wants [%s]: initialised anew",
                     l->path, stored->name, found, expected);
            return SNUG_OK;
        }
        return snug_fail(l->ctx, SNUG_E_INPUT, "%s: tensor %s has shape [%s], expected [%s]%s", l->path, stored->name,
                         found, expected,
                         parameter->head ? " (--ignore_mismatched_sizes initialises a new head instead)" : "");
    }
    uint8_t *values;
    RETURN_IF_ERROR(open_view(l->ctx, l->program, l->arena, parameter, SNUG_VIEW_WRITE, &values));
    snug_status status = read_finite(l, files, stored, parameter, values);
    const snug_status closed = close_view(l->ctx, l->program, l->arena, parameter, SNUG_VIEW_WRITE, values);
    if (status == SNUG_OK) status = closed;
    RETURN_IF_ERROR(status);
    l->loaded[index] = true;
    return SNUG_OK;
}

/* A list of names for the log, cut when it gets long. */
struct names {
    char text[1200];
    int count;
};
static void add_name(struct names *names, const char *name) {
    const size_t length = strlen(names->text);
    names->count++;
    if (length + strlen(name) + 8 < sizeof names->text)
        snprintf(names->text + length, sizeof names->text - length, "%s%s", length ? ", " : "", name);
    else if (length && names->text[length - 1] != '.')
        snprintf(names->text + length, sizeof names->text - length, ", ...");
}

static snug_status load_all(const struct loading *l, const struct snug_safetensors *files) {
    struct names unused = {0};
    size_t used = 0;
    for (size_t i = 0; i < files->count; i++) {
        char name[256];
        size_t p = 0;
        canonical_name(l->config, files->tensors[i].name, name, sizeof name);
        while (p < l->program->parameter_count && strcmp(l->program->parameters[p].name, name) != 0) p++;
        if (p < l->program->parameter_count) {
            RETURN_IF_ERROR(load_one(l, files, &files->tensors[i], p));
            used++;
        } else if (!is_redundant(l->config, name)) {
            add_name(&unused, files->tensors[i].name);
        }
    }
    if (!used)
        return snug_fail(l->ctx, SNUG_E_INPUT, "%s: none of its %zu tensors belongs to a BERT model", l->path,
                         files->count);
    if (unused.count)
        snug_log(l->ctx, SNUG_LOG_INFO, "%s: %d tensors are not used: %s", l->path, unused.count, unused.text);
    return SNUG_OK;
}

/* The weights' file in folder. *path is freed by the caller. */
static snug_status find_file(snug_context *ctx, const char *folder, char **path) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < 2; i++) {
        RETURN_IF_ERROR(snug_path_join(ctx, path, folder, names[i]));
        if (snug_file_exists(*path)) return SNUG_OK;
        free(*path);
    }
    *path = NULL;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: there is no model.safetensors (a pytorch_model.bin is a pickle, which snug does not run: "
                     "convert it once in Python with model.save_pretrained(folder))",
                     folder);
}

snug_status snug_weights_load(snug_context *ctx, const char *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *arena, uint64_t seed,
                              bool ignore_mismatched_sizes) {
    struct loading l = {.ctx = ctx,
                        .program = program,
                        .config = config,
                        .arena = arena,
                        .ignore_mismatched_sizes = ignore_mismatched_sizes};
    struct snug_safetensors files = {0};
    char *path;
    RETURN_IF_ERROR(find_file(ctx, folder, &path));
    l.path = path;
    snug_status status = snug_alloc(ctx, program->parameter_count, sizeof *l.loaded, (void **)&l.loaded);
    if (status == SNUG_OK) status = snug_safetensors_open(ctx, path, &files);
    if (status == SNUG_OK) status = load_all(&l, &files);
    if (status == SNUG_OK) {
        struct names fresh = {0};
        for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
            if (l.loaded[i]) continue;
            status = snug_weights_init(ctx, program, config, arena, &program->parameters[i], seed);
            add_name(&fresh, program->parameters[i].name);
        }
        if (fresh.count)
            snug_log(ctx, SNUG_LOG_WARNING,
                     "%s: %d tensors are not in it and were initialised: %s; train before you predict", path,
                     fresh.count, fresh.text);
    }
    snug_safetensors_close(&files);
    free(l.loaded);
    free(path);
    return status;
}

/* ---- saving --------------------------------------------------------------------------------------------------- */

/* transformers has a parameter for the masked LM's bias even where an untied decoder brings its own; it is written too,
   so that from_pretrained finds all that it looks for. */
static const char *second_name(const char *name) {
    return strcmp(name, "cls.predictions.decoder.bias") == 0 ? "cls.predictions.bias" : NULL;
}

snug_status snug_weights_save(snug_context *ctx, const char *path, const struct snug_program *program,
                              const struct snug_memory *arena) {
    struct snug_tensor_source *sources;
    size_t count = 0;
    RETURN_IF_ERROR(snug_alloc(ctx, program->parameter_count + 1, sizeof *sources, (void **)&sources));
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        const struct snug_tensor_source source = {.name = p->name,
                                                  .dtype = type_of(program, p),
                                                  .dims = p->shape[1] ? 2 : 1,
                                                  .shape = {p->shape[0], p->shape[1]},
                                                  .data = arena->base + place_of(program, p, 0),
                                                  .memory = arena};
        sources[count++] = source;
        if (!second_name(p->name)) continue;
        sources[count] = source;
        sources[count++].name = second_name(p->name);
    }
    snug_status status = snug_safetensors_write(ctx, path, sources, count);
    free(sources);
    return status;
}

/* The states that go on from step to step: those that an update writes. What rows of a table still wait for is none:
   they are settled first. */
static bool is_state(const struct snug_program *program, size_t tensor) {
    for (size_t i = 0; i < program->op_count; i++)
        for (int out = 2; snug_is_update(program->ops[i].kind) && out < 2 + SNUG_STATES_MAX; out++)
            if (program->ops[i].out[out] == (int32_t)tensor) return true;
    return false;
}

snug_status snug_states_save(snug_context *ctx, const char *path, const struct snug_program *program,
                             const struct snug_memory *arena) {
    struct snug_tensor_source *sources;
    size_t count = 0;
    RETURN_IF_ERROR(snug_alloc(ctx, program->tensor_count, sizeof *sources, (void **)&sources));
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (is_state(program, i))
            sources[count++] = (struct snug_tensor_source){.name = t->name,
                                                           .dtype = t->dtype,
                                                           .dims = 2,
                                                           .shape = {t->rows, t->cols},
                                                           .data = arena->base + t->offset,
                                                           .memory = arena};
    }
    snug_status status = snug_safetensors_write(ctx, path, sources, count);
    free(sources);
    return status;
}

/* Reads what was stored, F32, to its place. */
static snug_status load_state(snug_context *ctx, const struct snug_safetensors *files,
                              const struct snug_stored_tensor *stored, const struct snug_memory *arena, void *place) {
    const int64_t bytes = stored->count * (int64_t)sizeof(float);
    void *view;
    RETURN_IF_ERROR(snug_view_open(ctx, arena, place, bytes, SNUG_VIEW_WRITE, &view));
    snug_status status = snug_safetensors_read(ctx, files, stored, 0, stored->count, view);
    const snug_status closed = snug_view_close(ctx, arena, place, bytes, SNUG_VIEW_WRITE, view);
    return status != SNUG_OK ? status : closed;
}

snug_status snug_states_load(snug_context *ctx, const char *path, const struct snug_program *program,
                             const struct snug_memory *arena) {
    struct snug_safetensors files;
    RETURN_IF_ERROR(snug_safetensors_open(ctx, path, &files));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < program->tensor_count && status == SNUG_OK; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!is_state(program, i)) continue;
        const struct snug_stored_tensor *stored = snug_safetensors_find(&files, t->name);
        if (!stored || stored->dims != 2 || stored->shape[0] != t->rows || stored->shape[1] != t->cols)
            status = snug_fail(ctx, SNUG_E_INPUT,
                               "%s: no state %s of shape [%lld, %lld]: the checkpoint is of another model or optimizer",
                               path, t->name, (long long)t->rows, (long long)t->cols);
        else
            status = load_state(ctx, &files, stored, arena, arena->base + t->offset);
    }
    snug_safetensors_close(&files);
    return status;
}
