/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/normal.h"
#include "core/philox.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "optim/optimizer.h"
#include "text/lexicon.h"

enum {
    PIECE = 4096,      /* values that a thread works on at a time */
    PART = 64 * PIECE, /* and that go to where they stand in one copy: each costs a device a few microseconds */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Room for the next part of count elements of size bytes; snug_block_release() gives it back to the system: what malloc
   gets back may stay resident, and is in no plan. */
static snug_status open_part(snug_context *ctx, int64_t count, int64_t size, struct snug_block *out) {
    return snug_block_host(ctx, smaller(PART, count) * size, out);
}

static enum snug_dtype type_of(const struct snug_program *program, const struct snug_parameter *parameter) {
    return program->tensors[parameter->tensor].dtype;
}

static float widened(enum snug_dtype dtype, uint16_t stored) {
    return dtype == SNUG_F16 ? snug_f16_to_f32(stored) : snug_bf16_to_f32(stored);
}

static uint16_t narrowed(enum snug_dtype dtype, float value) {
    return dtype == SNUG_F16 ? snug_f32_to_f16(value) : snug_f32_to_bf16(value);
}

/* Its value number first, as an element of the tensor. */
static int64_t element_of(const struct snug_program *program, const struct snug_parameter *parameter, int64_t first) {
    return parameter->row * program->tensors[parameter->tensor].cols + first;
}

snug_status snug_parameter_read(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count, float *values) {
    const int64_t from = element_of(program, parameter, first);
    const enum snug_dtype dtype = type_of(program, parameter);
    if (dtype == SNUG_F32) return snug_tensor_read(program, memory, parameter->tensor, from, count, values);
    for (int64_t i = 0; i < count; i += PIECE) {
        uint16_t stored[PIECE];
        const int64_t n = smaller(PIECE, count - i);
        RETURN_IF_ERROR(snug_tensor_read(program, memory, parameter->tensor, from + i, n, stored));
        for (int64_t k = 0; k < n; k++) values[i + k] = widened(dtype, stored[k]);
    }
    return SNUG_OK;
}

snug_status snug_parameter_write(const struct snug_program *program, const struct snug_memory *memory,
                                 const struct snug_parameter *parameter, int64_t first, int64_t count,
                                 const float *values) {
    const int64_t to = element_of(program, parameter, first);
    const enum snug_dtype dtype = type_of(program, parameter);
    if (dtype == SNUG_F32) return snug_tensor_write(program, memory, parameter->tensor, to, count, values);
    struct snug_block part;
    RETURN_IF_ERROR(open_part(program->ctx, count, sizeof(uint16_t), &part));
    uint16_t *stored = (uint16_t *)part.base;
    snug_status status = SNUG_OK;
    for (int64_t i = 0; i < count && status == SNUG_OK; i += PART) {
        const int64_t n = smaller(PART, count - i);
#pragma omp parallel for schedule(static) if (n > PIECE)
        for (int64_t k = 0; k < n; k++) stored[k] = narrowed(dtype, values[i + k]);
        status = snug_tensor_write(program, memory, parameter->tensor, to + i, n, stored);
    }
    snug_block_release(&part);
    return status;
}

int64_t snug_parameter_count(const struct snug_parameter *parameter) {
    return parameter->shape[0] * (parameter->shape[1] ? parameter->shape[1] : 1);
}

/* ---- initialising --------------------------------------------------------------------------------------------- */

/* FNV-1a: only to give each name its own stream of random numbers. */
static uint32_t name_hash(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

/* Elements first … first + count - 1 of a parameter, no more than PIECE; first is a multiple of 4. */
static void draw_normal(float *values, int64_t first, int64_t count, double deviation, uint32_t name, uint64_t seed) {
    uint32_t words[PIECE];
    for (int64_t i = 0; i < count; i += 4) {
        const int64_t number = (first + i) / 4;
        const struct snug_philox_block block =
            snug_philox((uint32_t)number, (uint32_t)(number >> 32), name, (uint32_t)SNUG_PHILOX_INIT << 29,
                        (uint32_t)seed, (uint32_t)(seed >> 32));
        memcpy(words + i, block.word, sizeof block);
    }
    snug_normal(values, words, count, deviation);
}

/* The padding token's row is zero. */
static void clear_padding(const struct snug_config *config, const struct snug_parameter *parameter, float *values,
                          int64_t first, int64_t count) {
    const int64_t pad = config->pad_token_id, size = config->hidden_size;
    if (strcmp(parameter->name, "bert.embeddings.word_embeddings.weight") != 0 || pad < 0) return;
    const int64_t end = smaller((pad + 1) * size, first + count);
    for (int64_t i = pad * size < first ? first : pad * size; i < end; i++) values[i - first] = 0;
}

/* Elements first … first + count - 1, no more than PIECE. */
static void init_piece(const struct snug_config *config, const struct snug_parameter *parameter, float *values,
                       int64_t first, int64_t count, uint64_t seed) {
    if (parameter->init == SNUG_INIT_NORMAL) {
        draw_normal(values, first, count, config->initializer_range, name_hash(parameter->name), seed);
        clear_padding(config, parameter, values, first, count);
    } else {
        for (int64_t i = 0; i < count; i++) values[i] = parameter->init == SNUG_INIT_ONES ? 1 : 0;
    }
}

snug_status snug_weights_init(const struct snug_program *program, const struct snug_config *config,
                              const struct snug_memory *memory, const struct snug_parameter *parameter, uint64_t seed) {
    const int64_t count = snug_parameter_count(parameter);
    struct snug_block part;
    RETURN_IF_ERROR(open_part(program->ctx, count, sizeof(float), &part));
    float *values = (float *)part.base;
    snug_status status = SNUG_OK;
    for (int64_t first = 0; first < count && status == SNUG_OK; first += PART) {
        const int64_t n = smaller(PART, count - first);
#pragma omp parallel for schedule(static) if (n > PIECE)
        for (int64_t i = 0; i < n; i += PIECE)
            init_piece(config, parameter, values + i, first + i, smaller(PIECE, n - i), seed);
        status = snug_parameter_write(program, memory, parameter, first, n, values);
    }
    snug_block_release(&part);
    return status;
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
    const struct snug_memory *memory;
    bool ignore_mismatched_sizes;
    bool *loaded;              /* by parameter */
    struct snug_lexicon names; /* the parameters' */
};

static void shape_text(const int64_t *shape, int dims, char *text, size_t size) {
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < dims; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

static bool same_shape(const struct snug_stored_tensor *stored, const struct snug_parameter *parameter) {
    const int dims = parameter->shape[1] ? 2 : 1;
    return stored->dims == dims && stored->shape[0] == parameter->shape[0] &&
           (dims == 1 || stored->shape[1] == parameter->shape[1]);
}

/* Of what is stored from element first on: the largest number that fp32 has left, or that dtype has, is none. */
static snug_status check_values(const struct loading *l, const struct snug_stored_tensor *stored, enum snug_dtype dtype,
                                int64_t first, int64_t count, const float *values) {
    int64_t fit = 0;
#pragma omp parallel for schedule(static) reduction(+ : fit) if (count > PIECE)
    for (int64_t i = 0; i < count; i++)
        fit += isfinite(dtype == SNUG_F32 ? values[i] : widened(dtype, narrowed(dtype, values[i]))) != 0;
    for (int64_t i = 0; fit < count; i++) {
        if (!isfinite(values[i]))
            return snug_fail(l->ctx, SNUG_E_INPUT, "%s: tensor %s holds %s at element %lld: the file is damaged",
                             l->path, stored->name, isnan(values[i]) ? "NaN" : "an infinity", (long long)(first + i));
        if (dtype != SNUG_F32 && !isfinite(widened(dtype, narrowed(dtype, values[i]))))
            return snug_fail(l->ctx, SNUG_E_INPUT, "%s: tensor %s holds %g at element %lld, more than %s has: use %s",
                             l->path, stored->name, (double)values[i], (long long)(first + i),
                             dtype == SNUG_F16 ? "float16" : "bfloat16",
                             dtype == SNUG_F16 ? "--fp16 or --bf16_full_eval" : "--dtype float32");
    }
    return SNUG_OK;
}

static snug_status load_one(const struct loading *l, const struct snug_safetensors *files,
                            const struct snug_stored_tensor *stored, size_t index) {
    const struct snug_parameter *parameter = &l->program->parameters[index];
    if (!same_shape(stored, parameter)) {
        char found[22 * SNUG_SAFETENSORS_DIMS], expected[sizeof found]; /* of any number, with what stands between */
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
    const int64_t count = snug_parameter_count(parameter);
    struct snug_block part;
    RETURN_IF_ERROR(open_part(l->ctx, count, sizeof(float), &part));
    float *values = (float *)part.base;
    snug_status status = SNUG_OK;
    for (int64_t first = 0; first < count && status == SNUG_OK; first += PART) {
        const int64_t n = smaller(PART, count - first);
        status = snug_safetensors_read(l->ctx, files, stored, first, n, values);
        if (status == SNUG_OK) status = check_values(l, stored, type_of(l->program, parameter), first, n, values);
        if (status == SNUG_OK) status = snug_parameter_write(l->program, l->memory, parameter, first, n, values);
    }
    snug_block_release(&part);
    l->loaded[index] = status == SNUG_OK;
    return status;
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
        canonical_name(l->config, files->tensors[i].name, name, sizeof name);
        const int32_t p = snug_lexicon_find(&l->names, "", 0, name, strlen(name));
        if (p >= 0) {
            RETURN_IF_ERROR(load_one(l, files, &files->tensors[i], (size_t)p));
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
    static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth"};
    for (size_t i = 0; i < 2; i++) {
        RETURN_IF_ERROR(snug_path_join(ctx, path, folder, names[i]));
        if (snug_file_exists(*path)) return SNUG_OK;
        free(*path);
    }
    for (size_t i = 0; i < sizeof pickled / sizeof *pickled; i++) {
        RETURN_IF_ERROR(snug_path_join(ctx, path, folder, pickled[i]));
        const snug_status status = snug_file_exists(*path) ? snug_fail_pickled(ctx, *path) : SNUG_OK;
        free(*path);
        *path = NULL;
        RETURN_IF_ERROR(status);
    }
    return snug_fail(ctx, SNUG_E_INPUT, "%s: there is neither model.safetensors nor model.safetensors.index.json",
                     folder);
}

snug_status snug_weights_look(snug_context *ctx, const char *folder) {
    char *path = NULL;
    const snug_status status = find_file(ctx, folder, &path);
    free(path);
    return status;
}

snug_status snug_weights_load(snug_context *ctx, const char *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory, uint64_t seed,
                              bool ignore_mismatched_sizes) {
    struct loading l = {.ctx = ctx,
                        .program = program,
                        .config = config,
                        .memory = memory,
                        .ignore_mismatched_sizes = ignore_mismatched_sizes};
    struct snug_safetensors files = {0};
    char *path;
    RETURN_IF_ERROR(find_file(ctx, folder, &path));
    l.path = path;
    snug_status status = snug_alloc(ctx, program->parameter_count, sizeof *l.loaded, (void **)&l.loaded);
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
        const char *name = program->parameters[i].name;
        status = snug_lexicon_add(ctx, &l.names, name, strlen(name), (int32_t)i, &(int32_t){0});
    }
    if (status == SNUG_OK) status = snug_safetensors_open(ctx, path, &files);
    if (status == SNUG_OK) status = load_all(&l, &files);
    if (status == SNUG_OK) {
        struct names fresh = {0};
        for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
            if (l.loaded[i]) continue;
            status = snug_weights_init(program, config, memory, &program->parameters[i], seed);
            add_name(&fresh, program->parameters[i].name);
        }
        if (fresh.count)
            snug_log(ctx, SNUG_LOG_WARNING,
                     "%s: %d tensors are not in it and were initialised: %s; train before you predict", path,
                     fresh.count, fresh.text);
    }
    snug_safetensors_close(&files);
    snug_lexicon_free(&l.names);
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

/* Where a tensor of a file being written comes from: the tensor of the program, from element first on. */
struct origin {
    const struct snug_program *program;
    const struct snug_memory *memory;
    int32_t tensor;
    int64_t first;
};

static snug_status read_origin(void *user, int64_t first, int64_t count, void *out) {
    const struct origin *o = user;
    return snug_tensor_read(o->program, o->memory, o->tensor, o->first + first, count, out);
}

snug_status snug_weights_save(snug_context *ctx, const char *path, const struct snug_program *program,
                              const struct snug_memory *memory) {
    struct snug_tensor_source *sources;
    struct origin *origins = NULL;
    size_t count = 0;
    RETURN_IF_ERROR(snug_alloc(ctx, program->parameter_count + 1, sizeof *sources, (void **)&sources));
    snug_status status = snug_alloc(ctx, program->parameter_count, sizeof *origins, (void **)&origins);
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        origins[i] = (struct origin){program, memory, p->tensor, element_of(program, p, 0)};
        const struct snug_tensor_source source = {.name = p->name,
                                                  .dtype = type_of(program, p),
                                                  .dims = p->shape[1] ? 2 : 1,
                                                  .shape = {p->shape[0], p->shape[1]},
                                                  .read = read_origin,
                                                  .user = &origins[i]};
        sources[count++] = source;
        if (!second_name(p->name)) continue;
        sources[count] = source;
        sources[count++].name = second_name(p->name);
    }
    if (status == SNUG_OK) status = snug_safetensors_write(ctx, path, sources, count);
    free(origins);
    free(sources);
    return status;
}

snug_status snug_states_save(snug_context *ctx, const char *path, const struct snug_program *program,
                             const struct snug_memory *memory) {
    struct snug_tensor_source *sources;
    struct origin *origins = NULL;
    size_t count = 0;
    RETURN_IF_ERROR(snug_alloc(ctx, program->tensor_count, sizeof *sources, (void **)&sources));
    snug_status status = snug_alloc(ctx, program->tensor_count, sizeof *origins, (void **)&origins);
    for (size_t i = 0; i < program->tensor_count && status == SNUG_OK; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!t->saved) continue;
        origins[i] = (struct origin){program, memory, (int32_t)i, 0};
        sources[count++] = (struct snug_tensor_source){.name = t->name,
                                                       .dtype = t->dtype,
                                                       .dims = 2,
                                                       .shape = {t->rows, t->cols},
                                                       .read = read_origin,
                                                       .user = &origins[i]};
    }
    if (status == SNUG_OK) status = snug_safetensors_write(ctx, path, sources, count);
    free(origins);
    free(sources);
    return status;
}

static snug_status load_state(snug_context *ctx, const struct snug_safetensors *files,
                              const struct snug_stored_tensor *stored, const struct origin *to) {
    struct snug_block part;
    RETURN_IF_ERROR(open_part(ctx, stored->count, snug_dtype_size(stored->dtype), &part));
    snug_status status = SNUG_OK;
    for (int64_t first = 0; first < stored->count && status == SNUG_OK; first += PART) {
        const int64_t count = smaller(PART, stored->count - first);
        status = snug_safetensors_read_stored(ctx, files, stored, first, count, part.base);
        if (status == SNUG_OK) status = snug_tensor_write(to->program, to->memory, to->tensor, first, count, part.base);
    }
    snug_block_release(&part);
    return status;
}

snug_status snug_states_load(snug_context *ctx, const char *path, const struct snug_program *program,
                             const struct snug_memory *memory) {
    struct snug_safetensors files;
    RETURN_IF_ERROR(snug_safetensors_open(ctx, path, &files));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < program->tensor_count && status == SNUG_OK; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!t->saved) continue;
        const struct snug_stored_tensor *stored = snug_safetensors_find(&files, t->name);
        if (!stored || stored->dims != 2 || stored->shape[0] != t->rows || stored->shape[1] != t->cols ||
            stored->dtype != t->dtype)
            status =
                snug_fail(ctx, SNUG_E_INPUT,
                          "%s: no state %s of shape [%lld, %lld] and type %s: the checkpoint is of another model or "
                          "optimizer",
                          path, t->name, (long long)t->rows, (long long)t->cols, snug_dtype_name(t->dtype));
        else
            status = load_state(ctx, &files, stored, &(struct origin){program, memory, (int32_t)i, 0});
    }
    snug_safetensors_close(&files);
    return status;
}
