/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snug export: a model, or a base model with its adapters merged, as a GGUF file for llama.cpp and Ollama; or the
 * adapters alone. The values are read, merged and converted a few rows at a time.
 */
#include "snug_generate.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat.h"
#include "io/gguf.h"
#include "model/family.h"
#include "model/gguf_model.h"
#include "tokenizer/gguf_vocabulary.h"
#include "train/merge.h"

/* The choices of --outtype, with llama.cpp's number of a file of them. */
static const struct type {
    const char *name;
    enum snug_gguf_type type;
    int64_t file_type;
} types[] = {
    {"f32", SNUG_GGUF_F32, 0}, {"f16", SNUG_GGUF_F16, 1}, {"q8_0", SNUG_GGUF_Q8_0, 7}, {"bf16", SNUG_GGUF_BF16, 32}};

/* One of the two weights of an adapter, of the parameter part.parameter. */
struct half {
    struct snug_gguf_part part;
    bool b;
    double scale; /* of b, beside the scale of all */
};

struct exporting {
    snug_context *ctx;
    const struct snug_args *args;
    struct snug_merged m;
    struct snug_gguf file;
    const struct type *type;
    struct snug_gguf_part *parts;
    struct half *halves; /* in place of parts: the adapters alone */
    snug_gguf_source *source;
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int64_t row_of_pairs(const struct snug_gguf_part *part, int64_t row) {
    const int64_t head = row / part->head, i = row % part->head;
    return head * part->head + i % 2 * (part->head / 2) + i / 2;
}

static snug_status read_columns(struct exporting *e, const struct snug_gguf_part *part, int64_t first, int64_t count,
                                float *out) {
    const int64_t *shape = e->m.program.parameters[part->parameter].shape;
    for (int64_t k = 0; k < shape[0]; k++) {
        RETURN_IF_ERROR(snug_merged_read(&e->m, part->parameter, k * shape[1] + first, count));
        for (int64_t i = 0; i < count; i++) out[i * shape[0] + k] = e->m.values[i];
    }
    return SNUG_OK;
}

static snug_status read_rows(struct exporting *e, const struct snug_gguf_part *part, int64_t first, int64_t rows,
                             float *out) {
    const int64_t cols = e->m.program.parameters[part->parameter].shape[1], width = cols ? cols : 1;
    const int64_t step = part->order == SNUG_GGUF_PAIRS ? 1 : rows;
    for (int64_t i = 0; i < rows; i += step, out += step * width) {
        const int64_t row = part->order == SNUG_GGUF_PAIRS ? row_of_pairs(part, first + i) : first;
        RETURN_IF_ERROR(snug_merged_read(&e->m, part->parameter, row * width, step * width));
        for (int64_t k = 0; k < step * width; k++) out[k] = e->m.values[k] + (part->add_one ? 1 : 0);
    }
    return SNUG_OK;
}

static snug_status read_model(void *user, size_t tensor, int64_t first, int64_t rows, float *out) {
    struct exporting *e = user;
    const struct snug_gguf_part *part = &e->parts[tensor];
    if (part->order == SNUG_GGUF_COLUMNS) return read_columns(e, part, first, rows, out);
    if (part->order != SNUG_GGUF_FACTORS) return read_rows(e, part, first, rows, out);
    for (int64_t i = 0; i < rows; i++) out[i] = (float)snug_gguf_factor(part, first + i);
    return SNUG_OK;
}

static snug_status read_half(void *user, size_t tensor, int64_t first, int64_t rows, float *out) {
    struct exporting *e = user;
    const struct half *half = &e->halves[tensor];
    const struct snug_origin *o = &e->m.origins[half->part.parameter];
    const struct snug_stored_tensor *stored = half->b ? o->b : o->a;
    const int64_t cols = stored->shape[1];
    const bool pairs = half->b && half->part.order == SNUG_GGUF_PAIRS;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = pairs ? row_of_pairs(&half->part, first + i) : first + i;
        RETURN_IF_ERROR(snug_safetensors_read(e->ctx, &e->m.own, stored, row * cols, cols, out + i * cols));
        for (int64_t k = 0; half->b && k < cols; k++) out[i * cols + k] *= (float)half->scale;
    }
    return SNUG_OK;
}

/* ---- what the file is -------------------------------------------------------------------------------------------- */

static snug_status add_general(struct exporting *e, const char *type) {
    const char *architecture = e->m.config.family->gguf->architecture;
    char *path;
    RETURN_IF_ERROR(snug_strdup(e->ctx, e->args->model_name_or_path, &path));
    const char *name = basename(path);
    snug_gguf_add_text(&e->file, "general.architecture", architecture, strlen(architecture));
    snug_gguf_add_text(&e->file, "general.type", type, strlen(type));
    snug_gguf_add_text(&e->file, "general.name", name, strlen(name));
    free(path);
    snug_gguf_add_count(&e->file, "general.file_type", e->type->file_type);
    snug_gguf_add_count(&e->file, "general.quantization_version", 2);
    return e->file.status;
}

static snug_status add_template(void *user, const char *path, const char *text, size_t length, bool of_tools) {
    struct exporting *e = user;
    (void)path;
    if (of_tools) {
        snug_gguf_add_array(&e->file, "tokenizer.chat_templates", SNUG_GGUF_TEXT, 1);
        snug_gguf_append_text(&e->file, "tool_use", strlen("tool_use"));
    }
    snug_gguf_add_text(&e->file, of_tools ? "tokenizer.chat_template.tool_use" : "tokenizer.chat_template", text,
                       length);
    return e->file.status;
}

static snug_status describe_model(struct exporting *e) {
    struct snug_tokenizer *tokenizer;
    bool found;
    RETURN_IF_ERROR(add_general(e, "model"));
    RETURN_IF_ERROR(snug_gguf_add_model(&e->file, &e->m.config, &e->m.program, e->type->type, &e->parts));
    RETURN_IF_ERROR(snug_merged_tokenizer(&e->m, &tokenizer));
    if (!tokenizer)
        return snug_fail(e->ctx, SNUG_E_INPUT, "%s has no tokenizer, which a GGUF file needs", e->m.model.path);
    snug_status status = snug_gguf_add_vocabulary(&e->file, tokenizer, e->m.config.vocab_size);
    if (status == SNUG_OK) status = snug_chat_find(e->ctx, tokenizer, add_template, e, &found);
    snug_tokenizer_free(tokenizer);
    e->source = read_model;
    return status;
}

/* llama.cpp's scale is alpha / r, with one alpha for all: what differs from that is in b. */
static snug_status add_adapter(struct exporting *e, size_t parameter, double *alpha) {
    const struct snug_origin *o = &e->m.origins[parameter];
    const struct snug_parameter *p = &e->m.program.parameters[parameter];
    char name[64];
    struct snug_gguf_part part;
    if (!o->a && !o->bias && !o->rows && o->files != &e->m.own) return SNUG_OK;
    if (!o->a || o->lengths || p->by_vocabulary || !snug_gguf_find(&e->m.config, &e->m.program, parameter, name, &part))
        return snug_fail(e->ctx, SNUG_E_UNSUPPORTED,
                         "%s: llama.cpp's adapters do not have %s, which is trained here: export the merged model, "
                         "without --adapter_only",
                         e->m.folder.path, p->name);
    const double own = o->scale * (double)o->a->shape[0];
    if (*alpha == 0) *alpha = own;
    for (int b = 0; b < 2; b++) {
        const struct snug_stored_tensor *stored = b ? o->b : o->a;
        struct snug_gguf_tensor tensor = {.type = e->type->type, .rows = stored->shape[0], .cols = stored->shape[1]};
        snprintf(tensor.name, sizeof tensor.name, "%s.lora_%c", name, b ? 'b' : 'a');
        e->halves[e->file.tensor_count] = (struct half){.part = part, .b = b, .scale = own / *alpha};
        snug_gguf_add_tensor(&e->file, &tensor);
    }
    return SNUG_OK;
}

static snug_status describe_adapters(struct exporting *e) {
    const size_t count = e->m.program.parameter_count;
    double alpha = 0;
    RETURN_IF_ERROR(snug_alloc(e->ctx, 2 * count, sizeof *e->halves, (void **)&e->halves));
    for (size_t i = 0; i < count; i++) RETURN_IF_ERROR(add_adapter(e, i, &alpha));
    RETURN_IF_ERROR(add_general(e, "adapter"));
    snug_gguf_add_text(&e->file, "adapter.type", "lora", strlen("lora"));
    snug_gguf_add_real(&e->file, "adapter.lora.alpha", alpha);
    e->source = read_half;
    return e->file.status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static snug_status write_file(void *user) {
    struct exporting *e = user;
    return snug_gguf_write(&e->file, e->args->output_file, e->source, e);
}

/* A decoder without a head in its architectures is a language model. */
static snug_status choose_task(void *user, struct snug_config *config) {
    struct exporting *e = user;
    if (config->family->causal && !config->has_head)
        RETURN_IF_ERROR(snug_config_set_task(e->ctx, config, SNUG_TASK_CLM, &config->labels));
    return snug_gguf_check_family(e->ctx, config);
}

static snug_status export_all(struct exporting *e) {
    e->type = types;
    while (strcmp(e->args->outtype, e->type->name) != 0) e->type++; /* it is one of its choices */
    RETURN_IF_ERROR(e->args->adapter_only ? describe_adapters(e) : describe_model(e));
    RETURN_IF_ERROR(snug_compute(e->ctx, write_file, e));
    snug_merged_report(&e->m);
    snug_log(e->ctx, SNUG_LOG_INFO, "%s: %zu tensors, %s", e->args->output_file, e->file.tensor_count,
             e->args->outtype);
    return SNUG_OK;
}

static snug_status export_model(struct snug_args *args) {
    struct exporting e = {.ctx = args->ctx, .args = args, .file = {.ctx = args->ctx}};
    RETURN_IF_ERROR(snug_args_check(args, "export"));
    snug_status status = snug_merged_open(args, args->adapter_only, choose_task, &e, &e.m);
    if (status == SNUG_OK) status = export_all(&e);
    snug_merged_close(&e.m);
    snug_gguf_free(&e.file);
    free(e.parts);
    free(e.halves);
    return status;
}

snug_status snug_export(snug_args *args) {
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, export_model(args));
}
