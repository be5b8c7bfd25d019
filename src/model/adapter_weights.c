/* SPDX-License-Identifier: Apache-2.0 */
#include "model/adapter_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/min_max.h"
#include "model/adapters.h"
#include "model/family.h"
#include "model/weight_files.h"
#include "model/weights_impl.h"

/* PEFT saves the rows of a tied output a second time, if there are new tokens. */
static bool is_second(const struct snug_loading *l, const char *name) {
    char second[256];
    if (snug_head_of(l->config) != SNUG_HEAD_VOCABULARY || l->config->own_decoder) return false;
    snprintf(second, sizeof second, "%s." SNUG_TOKEN_ROWS, l->config->family->heads->language_model->decoder);
    return strcmp(name, second) == 0;
}

/* A sentence embedding has no output. */
static bool is_unused_output(const struct snug_loading *l, const char *name) {
    char module[128];
    snprintf(module, sizeof module, "%s.", l->config->language_model->decoder);
    return strncmp(name, module, strlen(module)) == 0 && snug_head_of(l->config) == SNUG_HEAD_VECTOR;
}

/* With an adapter of a table, or new tokens, PEFT also saves its frozen weight, which the base model has, or of which
   the rows of tokens are used; and with bias all, or new tokens, modules to save by further names, and the modules in
   whose place they are. */
static bool is_of_base(const struct snug_loading *l, const char *name) {
    static const char end[] = ".base_layer.weight";
    static const char *const halves[] = {"lora_A.weight", "lora_embedding_A"};
    const size_t length = strlen(name), cut = sizeof end - 1;
    char half[256];
    bool found = is_second(l, name) || is_unused_output(l, name) || strstr(name, ".original_module.") ||
                 strstr(name, ".modules_to_save.") || strstr(name, ".token_adapter.base_layer.weight");
    if (length <= cut || strcmp(name + length - cut, end) != 0) return found;
    for (int i = 0; i < 2; i++) {
        snprintf(half, sizeof half, "%.*s.%s", (int)(length - cut), name, halves[i]);
        found |= snug_hash_map_find(&l->names, "", 0, half, strlen(half)) >= 0;
    }
    return found;
}

static snug_status load_adapter_tensor(const struct snug_loading *l, const struct snug_stored_tensor *stored) {
    const size_t prefix = strlen(SNUG_ADAPTER_PREFIX);
    char name[256] = "", plain[256];
    if (strncmp(stored->name, SNUG_ADAPTER_PREFIX, prefix) == 0) {
        snug_adapter_plain_name(stored->name + prefix, plain, sizeof plain);
        snug_family_parameter(l->config, plain, name, sizeof name);
    }
    const int32_t p = snug_hash_map_find(&l->names, "", 0, name, strlen(name));
    if (p >= 0 && l->program->parameters[p].adapter && !l->loaded[p]) return snug_load_one(l, stored, (size_t)p);
    /* the decoder's bias may have two names */
    if (is_of_base(l, name) || (p >= 0 && l->loaded[p] && !l->program->parameters[p].lora)) return SNUG_OK;
    return snug_fail(l->ctx, SNUG_E_INPUT,
                     "%s: tensor %s is not of the adapters that " SNUG_ADAPTER_CONFIG " beside it describes", l->path,
                     stored->name);
}

/* ---- rows of tokens --------------------------------------------------------------------------------------------- */

/* The ids of the tokens whose rows a parameter has. */
static const json_t *ids_of(const struct snug_loading *l, const struct snug_parameter *p) {
    char words[128], module[sizeof p->name], weight[sizeof p->name];
    const int length = (int)(strlen(p->name) - strlen("." SNUG_TOKEN_ROWS));
    snug_family_word_name(l->config, words, sizeof words);
    snprintf(module, sizeof module, "%.*s", length, p->name);
    snprintf(weight, sizeof weight, "%.*s.weight", length, p->name);
    return snug_adapter_tokens(l->config->adapter, module, strcmp(words, weight) == 0);
}

/* The tokens of EMBED. */
static snug_status write_tokens(const struct snug_loading *l, const struct snug_parameter *p) {
    const json_t *ids = ids_of(l, p);
    const int64_t count = p->shape[0], all = l->program->tensors[p->tokens].cols;
    int32_t *tokens;
    RETURN_IF_ERROR(snug_alloc(l->ctx, (size_t)all, sizeof *tokens, (void **)&tokens));
    for (int64_t i = count; i < all; i++) tokens[i] = -1;
    for (int64_t k = 0; k < count; k++) {
        tokens[k] = (int32_t)json_integer_value(json_array_get(ids, (size_t)k));
        tokens[count + tokens[k]] = (int32_t)k;
    }
    const snug_status status = snug_tensor_write(l->program, l->memory, p->tokens, 0, all, tokens);
    free(tokens);
    return status;
}

static snug_status write_all_tokens(const struct snug_loading *l) {
    for (size_t i = 0; i < l->program->parameter_count; i++)
        if (l->program->parameters[i].tokens) RETURN_IF_ERROR(write_tokens(l, &l->program->parameters[i]));
    return SNUG_OK;
}

/* New rows of tokens are those of the table in the file, or of one that the file lacks, in the arena. */
static snug_status init_rows(const struct snug_loading *l, const struct snug_parameter *p) {
    const json_t *ids = ids_of(l, p);
    const int64_t cols = p->shape[1];
    char stored_name[sizeof p->name], name[256];
    snprintf(stored_name, sizeof stored_name, "%.*sweight", (int)(strlen(p->name) - strlen(SNUG_TOKEN_ROWS)), p->name);
    snug_family_parameter(l->config, stored_name, name, sizeof name); /* the word table's, where it is tied */
    const size_t table = (size_t)snug_hash_map_find(&l->names, "", 0, name, strlen(name));
    const struct snug_stored_tensor *stored = l->loaded[table];
    const int64_t known = stored ? stored->shape[0] : 0;
    float *row;
    if (known < l->program->parameters[table].shape[0] &&
        l->program->tensors[l->program->parameters[table].tensor].shards.chunk)
        return snug_fail(l->ctx, SNUG_E_UNSUPPORTED,
                         "--zero_stage 3: the rows of new tokens are computed from all rows of %s, of which each rank "
                         "has a part: start the training with --zero_stage 2",
                         name);
    RETURN_IF_ERROR(snug_alloc(l->ctx, (size_t)cols, sizeof *row, (void **)&row));
    snug_status status = SNUG_OK;
    for (int64_t k = 0; k < p->shape[0] && status == SNUG_OK; k++) {
        const int64_t id = json_integer_value(json_array_get(ids, (size_t)k));
        status = id < known
                     ? snug_safetensors_read(l->ctx, l->files, stored, id * cols, cols, row)
                     : snug_parameter_read(l->program, l->memory, &l->program->parameters[table], id * cols, cols, row);
        if (status == SNUG_OK) status = snug_parameter_write(l->program, l->memory, p, k * cols, cols, row);
    }
    free(row);
    return status;
}

static snug_status load_adapter(const struct snug_loading *l) {
    RETURN_IF_ERROR(write_all_tokens(l));
    for (size_t i = 0; i < l->files->count; i++) RETURN_IF_ERROR(load_adapter_tensor(l, &l->files->tensors[i]));
    for (size_t i = 0; i < l->program->parameter_count; i++)
        if (l->program->parameters[i].adapter && !l->loaded[i])
            return snug_fail(l->ctx, SNUG_E_INPUT,
                             "%s: there is no tensor " SNUG_ADAPTER_PREFIX "%s, which " SNUG_ADAPTER_CONFIG
                             " beside it asks for",
                             l->path, l->program->parameters[i].name);
    return SNUG_OK;
}

snug_status snug_adapter_load(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory) {
    struct snug_weight_source from = {0};
    struct snug_loading l = {.ctx = ctx, .program = program, .config = config, .memory = memory};
    snug_status status = snug_loading_open(&l, folder, SNUG_ADAPTER_WEIGHTS, &from);
    if (status == SNUG_OK) status = load_adapter(&l);
    snug_hash_map_free(&l.names);
    snug_weight_source_close(&from);
    return status;
}

/* ---- the lengths of DoRA ---------------------------------------------------------------------------------------- */

/* One weight of the program, with the values that its tensor has, in memory of its own. */
struct copied {
    struct snug_program program;
    struct snug_parameter parameter;
    struct snug_memory memory;
};

static snug_status copy_weight(const struct snug_loading *l, size_t index, const struct snug_stored_tensor *stored,
                               struct copied *out) {
    const struct snug_tensor *like = &l->program->tensors[l->program->parameters[index].tensor];
    const int64_t segments = like->quantized.type ? like->rows : 1; /* codes of parameters, one after the other */
    const struct snug_stored_tensor *loaded = NULL;
    struct snug_loading own = *l;
    own.program = &out->program;
    own.memory = &out->memory;
    own.loaded = &loaded;
    out->parameter = l->program->parameters[index];
    out->parameter.row = 0;
    out->memory.threads = l->memory->threads;
    snug_program_init(&out->program, l->ctx);
    RETURN_IF_ERROR(snug_program_tensor(&out->program,
                                        (struct snug_tensor){.dtype = like->dtype,
                                                             .rows = like->rows / segments,
                                                             .cols = like->cols,
                                                             .quantized = like->quantized,
                                                             .narrowed = like->narrowed},
                                        &out->parameter.tensor, "%s", like->name));
    const int64_t bytes = like->rows / segments * like->cols * snug_dtype_size(like->dtype);
    RETURN_IF_ERROR(snug_alloc(l->ctx, (size_t)bytes, 1, (void **)&out->memory.arena));
    out->program.parameters = &out->parameter;
    out->program.parameter_count = 1;
    const snug_status status =
        stored ? snug_load_one(&own, stored, 0)
               : snug_weights_init(&out->program, l->config, &out->memory, &out->parameter, l->seed);
    out->program.parameters = NULL;
    out->program.parameter_count = 0;
    return status;
}

static void free_copy(struct copied *copy) {
    free(copy->memory.arena);
    snug_program_free(&copy->program);
}

/* Adds the squares of the rows, or columns, of a weight to those of the outputs to which they belong. */
static snug_status add_squares(const struct copied *copy, bool of_columns, double *squares) {
    const int64_t rows = copy->parameter.shape[0], cols = copy->parameter.shape[1];
    float *row;
    RETURN_IF_ERROR(snug_alloc(copy->program.ctx, (size_t)cols, sizeof *row, (void **)&row));
    snug_status status = SNUG_OK;
    for (int64_t i = 0; i < rows && status == SNUG_OK; i++) {
        status = snug_parameter_read(&copy->program, &copy->memory, &copy->parameter, i * cols, cols, row);
        for (int64_t k = 0; k < cols; k++) squares[of_columns ? k : i] += (double)row[k] * (double)row[k];
    }
    free(row);
    return status;
}

/* The number of the weight of the module to which a vector of lengths belongs; each has one. */
static size_t weight_of(const struct snug_loading *l, const struct snug_parameter *lengths) {
    char name[sizeof lengths->name + 8];
    const size_t module = (size_t)(strrchr(lengths->name, '.') - lengths->name);
    snprintf(name, sizeof name, "%.*s.weight", (int)module, lengths->name);
    return (size_t)snug_hash_map_find(&l->names, "", 0, name, strlen(name));
}

static snug_status init_lengths(const struct snug_loading *l, const struct snug_parameter *p) {
    const int64_t count = p->shape[0];
    const size_t weight = weight_of(l, p);
    struct copied copy = {0};
    double *squares;
    float *lengths;
    RETURN_IF_ERROR(snug_alloc(l->ctx, (size_t)count, sizeof *squares + sizeof *lengths, (void **)&squares));
    lengths = (float *)(squares + count);
    snug_status status = copy_weight(l, weight, l->loaded[weight], &copy);
    if (status == SNUG_OK) status = add_squares(&copy, p->of_columns, squares);
    for (int64_t i = 0; i < count; i++) lengths[i] = (float)sqrt(squares[i]);
    if (status == SNUG_OK) status = snug_parameter_write(l->program, l->memory, p, 0, count, lengths);
    free_copy(&copy);
    free(squares);
    return status;
}

/* Which of the files' tensors each parameter is loaded from. */
static void find_stored(const struct snug_loading *l) {
    for (size_t i = 0; i < l->files->count; i++) {
        char name[256];
        snug_family_parameter(l->config, l->files->tensors[i].name, name, sizeof name);
        const int32_t p = snug_hash_map_find(&l->names, "", 0, name, strlen(name));
        if (p >= 0) l->loaded[p] = &l->files->tensors[i];
    }
    size_t word, decoder;
    if (snug_loading_copies(l, &word, &decoder)) l->loaded[decoder] = l->loaded[word];
}

static snug_status init_one(const struct snug_loading *l, const struct snug_parameter *p) {
    if (p->init == SNUG_INIT_LENGTHS) return init_lengths(l, p);
    return p->init == SNUG_INIT_ROWS ? init_rows(l, p) : SNUG_OK;
}

snug_status snug_adapter_init(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory, uint64_t seed) {
    struct snug_weight_source from = {0};
    struct snug_loading l = {.ctx = ctx, .program = program, .config = config, .memory = memory, .seed = seed};
    const char *name;
    bool any = false;
    for (size_t i = 0; i < program->parameter_count; i++) any |= program->parameters[i].init >= SNUG_INIT_LENGTHS;
    if (!any) return SNUG_OK;
    RETURN_IF_ERROR(snug_weights_find(ctx, folder, &name));
    snug_status status = snug_loading_open(&l, folder, name, &from);
    if (status == SNUG_OK) find_stored(&l);
    if (status == SNUG_OK) status = write_all_tokens(&l);
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++)
        status = init_one(&l, &program->parameters[i]);
    snug_hash_map_free(&l.names);
    snug_weight_source_close(&from);
    return status;
}

/* ---- the weights beside adapters -------------------------------------------------------------------------------- */

static snug_status digest_tensor(snug_context *ctx, const struct snug_safetensors *files,
                                 const struct snug_stored_tensor *t, uint64_t *digest) {
    enum { PARTS = 3, VALUES = 256 };
    char values[VALUES * sizeof(double)];
    uint64_t hash = XXH3_64bits_withSeed(t->name, strlen(t->name) + 1, *digest);
    hash = XXH3_64bits_withSeed(t->type_name, strlen(t->type_name) + 1, hash);
    hash = XXH3_64bits_withSeed(t->shape, (size_t)t->dims * sizeof *t->shape, hash);
    const int64_t most = snug_min(VALUES, t->count);
    for (int64_t i = 0; i < PARTS && t->readable; i++) {
        RETURN_IF_ERROR(snug_safetensors_read_stored(ctx, files, t, (t->count - most) * i / (PARTS - 1), most, values));
        hash = XXH3_64bits_withSeed(values, (size_t)(most * snug_dtype_size(t->dtype)), hash);
    }
    *digest = hash;
    return SNUG_OK;
}

static snug_status digest_file(snug_context *ctx, const struct snug_folder *folder, const char *name, uint64_t *out) {
    struct snug_safetensors files;
    *out = 0;
    RETURN_IF_ERROR(snug_safetensors_open(ctx, folder, name, &files));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < files.count && status == SNUG_OK; i++)
        status = digest_tensor(ctx, &files, &files.tensors[i], out);
    snug_safetensors_close(&files);
    return status;
}

snug_status snug_weights_digest(snug_context *ctx, const struct snug_folder *folder, uint64_t *out) {
    const char *name;
    *out = 0;
    RETURN_IF_ERROR(snug_weights_find(ctx, folder, &name));
    return digest_file(ctx, folder, name, out);
}

snug_status snug_adapter_digest(snug_context *ctx, const struct snug_folder *folder, uint64_t *out) {
    return digest_file(ctx, folder, SNUG_ADAPTER_WEIGHTS, out);
}
