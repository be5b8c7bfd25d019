/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snug merge: the model that a base model and its adapters are, as an ordinary folder: W + s B A in place of W, for
 * DoRA with rows of other lengths. Rows are read, merged and written a piece at a time, so the memory does not depend
 * on the model's size.
 */
#include "train/merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "dist/save.h"
#include "io/json.h"
#include "model/family.h"
#include "model/quantization.h"
#include "model/quantize.h"
#include "model/weight_files.h"
#include "tokenizer/tokenizer_parts.h"
#include "train/adapter.h"
#include "train/output.h"
#include "train/threads.h"

/* ---- the values ------------------------------------------------------------------------------------------------- */

/* Reads [rows, cols], to *out as it is, or with its rows as columns. */
static snug_status read_matrix(const struct snug_merged *m, const struct snug_stored_tensor *stored, bool transposed,
                               float **out) {
    const int64_t rows = stored->shape[0], cols = stored->shape[1];
    float *values;
    free(*out);
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(m->ctx, (size_t)stored->count, sizeof **out, (void **)out));
    if (!transposed) return snug_safetensors_read(m->ctx, &m->own, stored, 0, stored->count, *out);
    RETURN_IF_ERROR(snug_alloc(m->ctx, (size_t)stored->count, sizeof *values, (void **)&values));
    const snug_status status = snug_safetensors_read(m->ctx, &m->own, stored, 0, stored->count, values);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) (*out)[k * rows + i] = values[i * cols + k];
    free(values);
    return status;
}

static void add_adapter(const struct snug_merged *m, size_t parameter, int64_t first, int64_t count) {
    const struct snug_origin *o = &m->origins[parameter];
    const int64_t r = o->a->shape[0], cols = m->program.parameters[parameter].shape[1];
    const int64_t last = (first + count - 1) / cols;
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int64_t row = first / cols; row <= last; row++) {
        const int64_t begin = snug_max(first, row * cols), end = snug_min(first + count, (row + 1) * cols);
        float *values = m->values + begin - first;
        for (int64_t k = 0; k < r; k++) {
            const float factor = (float)(o->scale * (double)m->c[row * r + k]);
            const float *v = m->v + k * cols + begin - row * cols;
            for (int64_t i = 0; i < end - begin; i++) values[i] += factor * v[i];
        }
    }
}

static snug_status read_file(const void *user, int64_t first, int64_t count, void *values) {
    const struct snug_origin *o = user;
    return snug_safetensors_read(o->codes.ctx, o->files, o->weight, first, count, values);
}

/* to[k][i] = from[i][k] */
static void turn(const float *from, int64_t rows, int64_t cols, float *to) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) to[k * rows + i] = from[i * cols + k];
}

static snug_status read_copy(const void *user, int64_t first, int64_t count, void *values) {
    memcpy(values, (const float *)user + first, (size_t)count * sizeof(float));
    return SNUG_OK;
}

/* Quantizes a parameter, whose codes are kept until the next one. */
static snug_status code_weight(struct snug_merged *m, size_t parameter) {
    const struct snug_origin *o = &m->origins[parameter];
    struct snug_coded *coded = &m->coded;
    int32_t tensor;
    if (coded->memory.arena && coded->number == parameter) return SNUG_OK;
    snug_program_free(&coded->program);
    free(coded->memory.arena);
    coded->memory = (struct snug_memory){.threads = m->threads};
    coded->number = parameter;
    const int64_t bytes = snug_quantized_lay_out(&o->form).bytes;
    snug_program_init(&coded->program, m->ctx);
    RETURN_IF_ERROR(snug_program_tensor(
        &coded->program, (struct snug_tensor){.dtype = SNUG_U8, .rows = 1, .cols = bytes, .quantized = o->form},
        &tensor, "codes"));
    coded->parameter = (struct snug_parameter){.tensor = tensor, .shape = {o->form.rows, o->form.cols}};
    RETURN_IF_ERROR(snug_alloc(m->ctx, (size_t)bytes, 1, (void **)&coded->memory.arena));
    if (!o->turned) return snug_quantized_fill(&coded->program, &coded->memory, &coded->parameter, read_file, o);
    float *values;
    RETURN_IF_ERROR(snug_alloc(m->ctx, 2 * (size_t)o->weight->count, sizeof *values, (void **)&values));
    snug_status status = snug_safetensors_read(m->ctx, o->files, o->weight, 0, o->weight->count, values);
    turn(values, o->form.cols, o->form.rows, values + o->weight->count);
    if (status == SNUG_OK)
        status = snug_quantized_fill(&coded->program, &coded->memory, &coded->parameter, read_copy,
                                     values + o->weight->count);
    free(values);
    return status;
}

static snug_status read_coded(const struct snug_merged *m, size_t parameter, int64_t first, int64_t count,
                              float *values) {
    const struct snug_origin *o = &m->origins[parameter];
    const struct snug_coded *coded = &m->coded;
    if (o->codes.form.type) return snug_codes_read(&o->codes, first, count, values);
    return snug_quantized_read(&coded->program, &coded->memory, &coded->parameter, first, count, values);
}

/* Values of the codes, in the weight's order. */
static snug_status read_codes(struct snug_merged *m, size_t parameter, int64_t first, int64_t count, float *out) {
    const struct snug_origin *o = &m->origins[parameter];
    const struct snug_quantized *form = o->codes.form.type ? &o->codes.form : &o->form;
    const int64_t all = form->rows * form->cols;
    float *values;
    if (!o->turned) return read_coded(m, parameter, first, count, out);
    if (!m->turned || m->turned_of != parameter) {
        free(m->turned);
        m->turned = NULL;
        RETURN_IF_ERROR(snug_alloc(m->ctx, (size_t)all, sizeof *m->turned, (void **)&m->turned));
        RETURN_IF_ERROR(snug_alloc(m->ctx, (size_t)all, sizeof *values, (void **)&values));
        const snug_status status = read_coded(m, parameter, 0, all, values);
        turn(values, form->rows, form->cols, m->turned);
        free(values);
        m->turned_of = parameter;
        RETURN_IF_ERROR(status);
    }
    memcpy(out, m->turned + first, (size_t)count * sizeof *out);
    return SNUG_OK;
}

/* The weight's values, of its file or as its codes in the training have them. counts: what codes changed. */
static snug_status read_weight(struct snug_merged *m, size_t parameter, int64_t first, int64_t count, bool counts) {
    const struct snug_origin *o = &m->origins[parameter];
    struct snug_coded *coded = &m->coded;
    if (o->codes.form.type) return read_codes(m, parameter, first, count, m->values);
    /* After the file's rows are those of new tokens. */
    const int64_t known = snug_max(0, snug_min(count, o->weight->count - first));
    memset(m->values + known, 0, (size_t)(count - known) * sizeof *m->values);
    if (known) RETURN_IF_ERROR(snug_safetensors_read(m->ctx, o->files, o->weight, first, known, m->values));
    if (!o->form.type) return SNUG_OK;
    RETURN_IF_ERROR(code_weight(m, parameter));
    RETURN_IF_ERROR(read_codes(m, parameter, first, count, m->others));
    for (int64_t i = 0; i < count && counts; i++) {
        const double value = (double)m->values[i], off = value - (double)m->others[i];
        coded->off += off * off;
        coded->size += value * value;
    }
    if (strcmp(m->args->merge_into, "dequantized") == 0)
        memcpy(m->values, m->others, (size_t)count * sizeof *m->values);
    return SNUG_OK;
}

/* Adds the values' squares to those of the outputs to which they belong. */
static void add_squares(const struct snug_merged *m, size_t parameter, int64_t first, int64_t count, double *squares) {
    const int64_t cols = m->program.parameters[parameter].shape[1];
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = first + i;
        squares[m->origins[parameter].transposed ? at % cols : at / cols] +=
            (double)m->values[i] * (double)m->values[i];
    }
}

/* DoRA: what multiplies each output, so that its weights have the length that was trained. The weight is read twice. */
static snug_status find_factors(struct snug_merged *m, size_t parameter) {
    const struct snug_origin *o = &m->origins[parameter];
    const int64_t outputs = o->lengths->count, count = snug_parameter_count(&m->program.parameters[parameter]);
    double *squares;
    RETURN_IF_ERROR(snug_alloc(m->ctx, (size_t)outputs, sizeof *m->factors, (void **)&m->factors));
    RETURN_IF_ERROR(snug_alloc(m->ctx, (size_t)outputs, sizeof *squares, (void **)&squares));
    snug_status status = snug_safetensors_read(m->ctx, &m->own, o->lengths, 0, outputs, m->factors);
    for (int64_t at = 0; at < count && status == SNUG_OK; at += SNUG_MERGED_PIECE) {
        const int64_t n = snug_min(SNUG_MERGED_PIECE, count - at);
        status = read_weight(m, parameter, at, n, false);
        add_adapter(m, parameter, at, n);
        add_squares(m, parameter, at, n, squares);
    }
    for (int64_t i = 0; i < outputs; i++) m->factors[i] /= (float)sqrt(squares[i]);
    free(squares);
    return status;
}

/* A weight stored as [out, in] gets B A, one stored as [in, out] A^T B^T. */
static snug_status read_adapter(struct snug_merged *m, size_t parameter) {
    const struct snug_origin *o = &m->origins[parameter];
    if (m->current == parameter) return SNUG_OK;
    RETURN_IF_ERROR(read_matrix(m, o->transposed ? o->a : o->b, o->transposed, &m->c));
    RETURN_IF_ERROR(read_matrix(m, o->transposed ? o->b : o->a, o->transposed, &m->v));
    m->current = parameter;
    free(m->factors);
    m->factors = NULL;
    return o->lengths ? find_factors(m, parameter) : SNUG_OK;
}

static snug_status merge_adapter(struct snug_merged *m, size_t parameter, int64_t first, int64_t count) {
    const int64_t cols = m->program.parameters[parameter].shape[1];
    RETURN_IF_ERROR(read_adapter(m, parameter));
    RETURN_IF_ERROR(read_weight(m, parameter, first, count, true));
    add_adapter(m, parameter, first, count);
    for (int64_t i = 0; i < count && m->factors; i++)
        m->values[i] *= m->factors[m->origins[parameter].transposed ? (first + i) % cols : (first + i) / cols];
    return SNUG_OK;
}

static snug_status merge_bias(struct snug_merged *m, size_t parameter, int64_t first, int64_t count) {
    const struct snug_origin *o = &m->origins[parameter];
    RETURN_IF_ERROR(read_weight(m, parameter, first, count, true));
    RETURN_IF_ERROR(snug_safetensors_read(m->ctx, &m->own, o->bias, first, count, m->others));
    for (int64_t i = 0; i < count; i++) m->values[i] += (float)o->scale * m->others[i];
    return SNUG_OK;
}

/* Rows of tokens that were trained, within these elements of the table. */
static snug_status merge_rows(struct snug_merged *m, size_t parameter, int64_t first, int64_t count) {
    const struct snug_origin *o = &m->origins[parameter];
    const int64_t cols = m->program.parameters[parameter].shape[1];
    RETURN_IF_ERROR(read_weight(m, parameter, first, count, true));
    for (int64_t k = 0; k < o->rows->shape[0]; k++) {
        const int64_t row = json_integer_value(json_array_get(o->ids, (size_t)k)) * cols;
        const int64_t begin = snug_max(first, row), end = snug_min(first + count, row + cols);
        if (begin < end)
            RETURN_IF_ERROR(snug_safetensors_read(m->ctx, &m->own, o->rows, k * cols + begin - row, end - begin,
                                                  m->values + begin - first));
    }
    return SNUG_OK;
}

snug_status snug_merged_read(struct snug_merged *m, size_t parameter, int64_t first, int64_t count) {
    const struct snug_origin *o = &m->origins[parameter];
    return o->a      ? merge_adapter(m, parameter, first, count)
           : o->bias ? merge_bias(m, parameter, first, count)
           : o->rows ? merge_rows(m, parameter, first, count)
                     : read_weight(m, parameter, first, count, true);
}

static snug_status make_values(void *user, size_t parameter, int64_t first, int64_t count, void *out) {
    struct snug_merged *m = user;
    const enum snug_dtype dtype = m->program.tensors[m->program.parameters[parameter].tensor].dtype;
    RETURN_IF_ERROR(snug_merged_read(m, parameter, first, count));
    if (dtype == SNUG_F32) memcpy(out, m->values, (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count && dtype != SNUG_F32; i++)
        ((uint16_t *)out)[i] = snug_f32_to_half(dtype, m->values[i]);
    return SNUG_OK;
}

/* ---- where they come from ---------------------------------------------------------------------------------------- */

/* Whether the weight of a linear is stored as [in, out], or is the word table, whose adapter is of that form. */
static bool is_transposed(const struct snug_program *program, int32_t tensor) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_LINEAR && op->linear.w == tensor) return op->linear.transposed;
    }
    return true;
}

/* The stored tensor of a parameter, or NULL; prefix: of the names in the file. */
static const struct snug_stored_tensor *find(const struct snug_merged *m, const struct snug_safetensors *files,
                                             const char *prefix, const char *parameter) {
    for (size_t i = 0; i < files->count; i++) {
        char name[256], plain[256];
        if (strncmp(files->tensors[i].name, prefix, strlen(prefix)) != 0) continue;
        snug_adapter_plain_name(files->tensors[i].name + strlen(prefix), plain, sizeof plain);
        if (snug_family_parameter(&m->config, plain, name, sizeof name) == SNUG_STORED_CONSTANT) continue;
        if (strcmp(name, parameter) == 0) return &files->tensors[i];
    }
    return NULL;
}

static snug_status check_shape(const struct snug_merged *m, const char *folder, const struct snug_stored_tensor *stored,
                               const struct snug_parameter *p) {
    if (snug_weight_has_shape(stored, p, p->shape[0])) return SNUG_OK;
    return snug_fail(m->ctx, SNUG_E_INPUT, "%s: tensor %s has not the shape [%lld, %lld] of %s", folder, stored->name,
                     (long long)p->shape[p->turned], (long long)p->shape[1 - p->turned], p->name);
}

/* The tensor of the program's parameter MODULE.END in the adapter's file; NULL: the program has none. */
static snug_status find_part(const struct snug_merged *m, const char *module, const char *end,
                             const struct snug_stored_tensor **out) {
    const struct snug_program *program = &m->program;
    char name[256];
    size_t i = 0;
    *out = NULL;
    snprintf(name, sizeof name, "%s.%s", module, end);
    while (i < program->parameter_count && strcmp(program->parameters[i].name, name) != 0) i++;
    if (i == program->parameter_count) return SNUG_OK;
    *out = find(m, &m->own, SNUG_ADAPTER_PREFIX, name);
    if (!*out)
        return snug_fail(m->ctx, SNUG_E_INPUT,
                         "%s: there is no tensor " SNUG_ADAPTER_PREFIX "%s, which " SNUG_ADAPTER_CONFIG
                         " beside it asks for",
                         m->folder.path, name);
    return check_shape(m, m->folder.path, *out, &program->parameters[i]);
}

/* The base model's tensor of a parameter, or NULL: of a decoder that the base model has not, the word table's. */
static const struct snug_stored_tensor *find_base(const struct snug_merged *m, const char *parameter) {
    char word[256], decoder[256];
    const struct snug_stored_tensor *stored = find(m, &m->base, "", parameter);
    if (stored || !m->untied) return stored;
    snug_family_word_name(&m->config, word, sizeof word);
    snug_family_decoder_name(&m->config, decoder, sizeof decoder);
    return strcmp(parameter, decoder) == 0 ? find(m, &m->base, "", word) : NULL;
}

static snug_status find_weight(struct snug_merged *m, const struct snug_parameter *p, struct snug_origin *o) {
    const char *folder = p->adapter ? m->folder.path : m->model.path;
    o->files = p->adapter ? &m->own : &m->base;
    o->weight = p->adapter ? find(m, &m->own, SNUG_ADAPTER_PREFIX, p->name) : find_base(m, p->name);
    if (!o->weight && !m->folder.path)
        return snug_fail(m->ctx, SNUG_E_INPUT, "%s: there is no tensor %s", folder, p->name);
    if (!o->weight)
        return snug_fail(m->ctx, SNUG_E_INPUT,
                         "%s: there is no tensor %s, so the adapters were trained beside one that was drawn at random: "
                         "such a model cannot be merged; train with --lora_modules_to_save for its module",
                         folder, p->name);
    struct snug_stored_tensor seen = *o->weight; /* with the shape and the type of its values */
    RETURN_IF_ERROR(snug_codes_find(m->ctx, o->files, m->model.path, o->weight, &o->codes));
    const struct snug_quantized *form = &o->codes.form;
    o->form = m->program.tensors[p->tensor].quantized;
    o->turned = p->turned;
    if (form->type) {
        o->form.type = SNUG_CODES_NONE;
        seen.dims = 2;
        seen.shape[p->turned] = form->rows;
        seen.shape[!p->turned] = form->cols;
        seen.dtype = form->rounded;
    }
    const int64_t added = p->by_vocabulary && !p->adapter ? m->config.new_tokens : 0;
    if (!snug_weight_has_shape(&seen, p, p->shape[0] - added)) RETURN_IF_ERROR(check_shape(m, folder, &seen, p));
    struct snug_tensor *tensor = &m->program.tensors[p->tensor];
    /* The type that the base model has it in, also of what was trained in its place. */
    const struct snug_stored_tensor *like = p->adapter ? find_base(m, p->name) : &seen;
    if (snug_args_is_set(m->args, "dtype"))
        tensor->dtype = strcmp(m->args->dtype, "bfloat16") == 0 ? SNUG_BF16 : SNUG_F32;
    else if (like)
        tensor->dtype = like->dtype;
    return SNUG_OK;
}

/* What the adapter of a parameter's module adds to it. */
static snug_status find_adapter(struct snug_merged *m, const struct snug_parameter *p, struct snug_origin *o) {
    const char *end = strrchr(p->name, '.');
    struct snug_lora_form form;
    char module[sizeof p->name], word[256];
    snug_family_word_name(&m->config, word, sizeof word);
    snprintf(module, sizeof module, "%.*s", (int)(end - p->name), p->name);
    if (strcmp(end, ".bias") == 0) {
        RETURN_IF_ERROR(find_part(m, module, "lora_B.bias", &o->bias));
    } else {
        RETURN_IF_ERROR(find_part(m, module, "lora_A.weight", &o->a));
        RETURN_IF_ERROR(find_part(m, module, o->a ? "lora_B.weight" : "lora_embedding_B", &o->b));
        if (!o->a) RETURN_IF_ERROR(find_part(m, module, "lora_embedding_A", &o->a));
        RETURN_IF_ERROR(find_part(m, module, "lora_magnitude_vector", &o->lengths));
        o->transposed = o->turned || is_transposed(&m->program, p->tensor);
        RETURN_IF_ERROR(find_part(m, module, SNUG_TOKEN_ROWS, &o->rows));
        o->ids = snug_adapter_tokens(m->adapter, module, strcmp(p->name, word) == 0);
    }
    RETURN_IF_ERROR(snug_adapter_find(m->adapter, module, &form));
    o->scale = form.scale;
    return SNUG_OK;
}

/* B's biases are added to those of the linears. */
static snug_status check_biases(const struct snug_merged *m, size_t count) {
    const struct snug_program *program = &m->program;
    size_t biases = 0, merged = 0;
    for (size_t i = 0; i < program->parameter_count; i++)
        biases += program->parameters[i].lora && strstr(program->parameters[i].name, ".lora_B.bias");
    for (size_t i = 0; i < count; i++) merged += m->origins[i].bias != NULL;
    if (biases == merged) return SNUG_OK;
    return snug_fail(m->ctx, SNUG_E_UNSUPPORTED,
                     "%s: lora_bias: %zu adapters have a bias beside a linear that has none, to which it could be "
                     "added: such adapters cannot be merged, as in PEFT",
                     m->folder.path, biases - merged);
}

/* Leaves the merged model's parameters in the program. */
static snug_status find_origins(struct snug_merged *m) {
    struct snug_program *program = &m->program;
    size_t count = 0;
    RETURN_IF_ERROR(snug_alloc(m->ctx, program->parameter_count, sizeof *m->origins, (void **)&m->origins));
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        if (p->lora) continue;
        RETURN_IF_ERROR(find_weight(m, p, &m->origins[count]));
        if (m->adapter) RETURN_IF_ERROR(find_adapter(m, p, &m->origins[count]));
        count++;
    }
    RETURN_IF_ERROR(check_biases(m, count));
    count = 0;
    for (size_t i = 0; i < program->parameter_count; i++)
        if (!program->parameters[i].lora) program->parameters[count++] = program->parameters[i];
    program->parameter_count = count;
    for (size_t i = 0; i < count; i++) { /* values are in the model's own order */
        struct snug_parameter *p = &program->parameters[i];
        const int64_t rows = p->shape[p->turned];
        p->shape[1] = p->shape[!p->turned];
        p->shape[0] = rows;
        p->turned = false;
    }
    for (size_t i = 0; i < program->tensor_count; i++) program->tensors[i].quantized = (struct snug_quantized){0};
    m->current = count;
    return SNUG_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static snug_status build(struct snug_merged *m) {
    m->program.longest = m->config.positions;
    RETURN_IF_ERROR(snug_build_model(&m->program, &m->config, false, 0));
    return snug_program_quantize(&m->program, &m->config, false);
}

/* Whether the word table is the decoder's weight, too, and one of them has an adapter. */
static bool adapts_tied(const struct snug_merged *m) {
    char decoder[256];
    bool found = false;
    if (snug_head_of(&m->config) != SNUG_HEAD_VOCABULARY) return false;
    snug_family_decoder_name(&m->config, decoder, sizeof decoder);
    const size_t module = strlen(decoder) - strlen("weight");
    for (size_t i = 0; i < m->program.parameter_count; i++) {
        const struct snug_parameter *p = &m->program.parameters[i];
        found |= p->lora && (p->turned || strncmp(p->name, decoder, module) == 0);
    }
    return found;
}

static snug_status open_model(struct snug_merged *m, bool with_adapters,
                              snug_status (*choose)(void *user, struct snug_config *config), void *user) {
    const char *weights;
    RETURN_IF_ERROR(snug_adapter_find_folders(m->args, &m->model, &m->folder));
    const bool adapted = m->folder.path;
    if (!adapted && with_adapters)
        return snug_fail(m->ctx, SNUG_E_USAGE,
                         "%s has no adapters: give an adapter's folder, or --adapter_name_or_path", m->model.path);
    if (adapted)
        RETURN_IF_ERROR(snug_adapter_config(m->ctx, &m->model, &m->folder, &m->config));
    else
        RETURN_IF_ERROR(snug_config_read(m->ctx, m->model.path, &m->config));
    if (choose) RETURN_IF_ERROR(choose(user, &m->config));
    RETURN_IF_ERROR(snug_weights_look(m->ctx, &m->model));
    RETURN_IF_ERROR(snug_weights_untie(m->ctx, &m->model, &m->config));
    const struct snug_adapter_source source = {
        .args = m->args, .config = &m->config, .model = &m->model, .folder = &m->folder};
    if (adapted) RETURN_IF_ERROR(snug_adapter_open(&source, &m->adapter));
    m->config.adapter = m->adapter;
    RETURN_IF_ERROR(snug_weights_find(m->ctx, &m->model, &weights));
    RETURN_IF_ERROR(snug_safetensors_open(m->ctx, &m->model, weights, &m->base));
    if (adapted) RETURN_IF_ERROR(snug_safetensors_open(m->ctx, &m->folder, SNUG_ADAPTER_WEIGHTS, &m->own));
    RETURN_IF_ERROR(build(m));
    const bool adapted_one = !m->config.own_decoder && adapts_tied(m);
    m->untied = adapted_one || m->config.copied_decoder;
    if (m->untied) {
        snug_log(m->ctx, SNUG_LOG_INFO,
                 "the adapters change one of the word table and the decoder's weight, or each by itself, which are one "
                 "in %s: the merged model has two (\"tie_word_embeddings\": false)",
                 m->model.path);
        RETURN_IF_ERROR(snug_config_untie(m->ctx, &m->config));
    }
    if (adapted_one) {
        snug_program_free(&m->program);
        snug_program_init(&m->program, m->ctx);
        RETURN_IF_ERROR(build(m));
    }
    json_object_del(m->config.json, "quantization_config"); /* the merged model's weights have 16 bits or more */
    return SNUG_OK;
}

/* What the training's codes changed of the weights, and which of them the merged model has. */
void snug_merged_report(const struct snug_merged *m) {
    const struct snug_coded *coded = &m->coded;
    if (coded->size > 0)
        snug_log(
            m->ctx, SNUG_LOG_INFO,
            "the adapters were trained beside 4-bit weights, which differ by %.2g %% (relative L2) from those of %s: "
            "merged into the %s (--merge_into %s)",
            100 * sqrt(coded->off / coded->size), m->model.path,
            strcmp(m->args->merge_into, "dequantized") == 0 ? "values of the codes" : "weights of the file",
            m->args->merge_into);
}

snug_status snug_merged_tokenizer(const struct snug_merged *m, struct snug_tokenizer **out) {
    const struct snug_folder *const from[] = {&m->folder, &m->model};
    *out = NULL;
    for (int i = 0; i < 2; i++)
        if (from[i]->path && snug_tokenizer_is_in(from[i]))
            return snug_tokenizer_load(m->ctx, from[i]->path, snug_family_tokenizer_class, out);
    return SNUG_OK;
}

struct writing {
    struct snug_merged *m;
    const struct snug_weight_files *files;
    struct snug_output *output;
    const char **names;
    char (*weights)[SNUG_WEIGHT_FILE_NAME];
    const struct snug_tokenizer *tokenizer;
};

static snug_status write_weights(void *user) {
    const struct writing *w = user;
    const struct snug_weight_source source = {.make = make_values, .user = w->m};
    return snug_weights_save(w->m->ctx, NULL, &w->output->folder, w->files, &w->m->program, NULL, &source);
}

static snug_status write_files(struct writing *w) {
    struct snug_merged *m = w->m;
    size_t n = 0;
    n += snug_config_list(&m->config, w->names);
    n += snug_weight_files_list(w->files, w->weights, w->names + n);
    for (size_t i = 0; w->tokenizer && (w->names[n] = snug_tokenizer_file(w->tokenizer, i)); i++) n++;
    RETURN_IF_ERROR(snug_output_check(w->output, w->names));
    RETURN_IF_ERROR(snug_output_begin(w->output, w->names));
    RETURN_IF_ERROR(snug_config_write(m->ctx, &m->config, &w->output->folder));
    RETURN_IF_ERROR(snug_compute(m->ctx, write_weights, w));
    if (w->tokenizer) RETURN_IF_ERROR(snug_tokenizer_save(m->ctx, w->tokenizer, &w->output->folder));
    RETURN_IF_ERROR(snug_output_end_model(w->output, w->names));
    return SNUG_OK;
}

static snug_status write(struct snug_merged *m, const struct snug_tokenizer *tokenizer) {
    struct snug_weight_files files = {0};
    struct snug_output output = {0};
    struct writing w = {.m = m, .files = &files, .output = &output, .tokenizer = tokenizer};
    int64_t most;
    RETURN_IF_ERROR(snug_args_shard_size(m->args, &most));
    snug_status status = snug_weight_files_plan(&m->program, most, &files);
    if (status == SNUG_OK)
        status = snug_alloc(m->ctx, snug_weight_files_names(&files) + SNUG_TOKENIZER_FILES + SNUG_CONFIG_FILES + 1,
                            sizeof *w.names, (void **)&w.names);
    if (status == SNUG_OK)
        status = snug_alloc(m->ctx, snug_weight_files_names(&files), sizeof *w.weights, (void **)&w.weights);
    if (status == SNUG_OK)
        status = snug_output_make(m->ctx, m->args->output_dir, true, m->args->overwrite_output_dir, 0666, &output);
    if (status == SNUG_OK) status = write_files(&w);
    snug_output_close(&output);
    snug_weight_files_free(&files);
    free(w.names);
    free(w.weights);
    return status;
}

static snug_status merge_all(struct snug_merged *m) {
    struct snug_tokenizer *tokenizer = NULL;
    snug_status status = snug_merged_tokenizer(m, &tokenizer);
    if (status == SNUG_OK) status = write(m, tokenizer);
    if (status == SNUG_OK) snug_merged_report(m);
    if (status == SNUG_OK)
        snug_log(m->ctx, SNUG_LOG_INFO, "%s: the model %s with the adapters %s", m->args->output_dir, m->model.path,
                 m->folder.path);
    snug_tokenizer_free(tokenizer);
    return status;
}

snug_status snug_merged_open(struct snug_args *args, bool with_adapters,
                             snug_status (*choose)(void *user, struct snug_config *config), void *user,
                             struct snug_merged *m) {
    m->ctx = args->ctx;
    m->args = args;
    m->threads = snug_args_threads(args);
    snug_program_init(&m->program, args->ctx);
    RETURN_IF_ERROR(snug_threads_check(args->ctx, m->threads));
    RETURN_IF_ERROR(open_model(m, with_adapters, choose, user));
    RETURN_IF_ERROR(find_origins(m));
    RETURN_IF_ERROR(snug_alloc(m->ctx, SNUG_MERGED_PIECE, sizeof *m->values, (void **)&m->values));
    return snug_alloc(m->ctx, SNUG_MERGED_PIECE, sizeof *m->others, (void **)&m->others);
}

void snug_merged_close(struct snug_merged *m) {
    free(m->origins);
    free(m->c);
    free(m->v);
    free(m->factors);
    free(m->turned);
    free(m->values);
    free(m->others);
    free(m->coded.memory.arena);
    snug_program_free(&m->coded.program);
    snug_safetensors_close(&m->base);
    snug_safetensors_close(&m->own);
    snug_program_free(&m->program);
    snug_adapter_free(m->adapter);
    snug_config_free(&m->config);
    snug_folder_close(&m->model);
    snug_folder_close(&m->folder);
}

static snug_status merge(struct snug_args *args) {
    struct snug_merged m = {0};
    RETURN_IF_ERROR(snug_args_check(args, "merge"));
    snug_status status = snug_merged_open(args, true, NULL, NULL, &m);
    if (status == SNUG_OK) status = merge_all(&m);
    snug_merged_close(&m);
    return status;
}

snug_status snug_merge(snug_args *args) {
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, merge(args));
}
