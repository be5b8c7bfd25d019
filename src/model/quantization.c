/* SPDX-License-Identifier: Apache-2.0 */
#include "model/quantization.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"

#define KEY "quantization_config"
#define SKIP "llm_int8_skip_modules"

/* ---- config.json ------------------------------------------------------------------------------------------------- */

static const char *const dtype_names[] = {[SNUG_F32] = "float32", [SNUG_BF16] = "bfloat16", [SNUG_F16] = "float16"};

static snug_status refuse(const struct snug_reading *r, const char *what) {
    return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: " KEY ": %s", r->path, what);
}

/* Names of modules only, not the expressions that transformers takes them for as well. */
static snug_status check_skipped(const struct snug_reading *r, const json_t *skip) {
    const json_t *name;
    size_t i;
    if (skip && !json_is_null(skip) && !json_is_array(skip)) return refuse(r, SKIP " is not a list of names");
    json_array_foreach(skip, i, name) {
        if (!json_is_string(name) || strpbrk(json_string_value(name), "*+?[](){}|^$\\"))
            return refuse(r, SKIP " has other entries than names of modules, which are all that snug supports");
    }
    return SNUG_OK;
}

/* The type of the values: that of the model, which transformers loaded them in. */
static snug_status read_dtype(const struct snug_reading *r, enum snug_dtype *out) {
    const char *key = json_object_get(r->json, "dtype") ? "dtype" : "torch_dtype", *name;
    RETURN_IF_ERROR(snug_json_string(r->ctx, r->path, r->json, key, "float32", &name));
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++) {
        *out = (enum snug_dtype)i;
        if (strcmp(name, dtype_names[i]) == 0) return SNUG_OK;
    }
    return refuse(r, "the model's dtype is not one of float32, bfloat16, float16");
}

static snug_status read_form(const struct snug_reading *r, const json_t *json, struct snug_quantized *form) {
    const char *method, *type, *storage;
    bool eight, four;
    if (!json_is_object(json)) return refuse(r, "it is not an object");
    RETURN_IF_ERROR(snug_json_string(r->ctx, r->path, json, "quant_method", "bitsandbytes", &method));
    RETURN_IF_ERROR(snug_json_bool(r->ctx, r->path, json, "load_in_8bit", false, &eight));
    RETURN_IF_ERROR(snug_json_bool(r->ctx, r->path, json, "load_in_4bit", false, &four));
    RETURN_IF_ERROR(snug_json_bool(r->ctx, r->path, json, "bnb_4bit_use_double_quant", false, &form->nested));
    RETURN_IF_ERROR(snug_json_string(r->ctx, r->path, json, "bnb_4bit_quant_type", "fp4", &type));
    RETURN_IF_ERROR(snug_json_string(r->ctx, r->path, json, "bnb_4bit_quant_storage", "uint8", &storage));
    if (strcmp(method, "bitsandbytes") != 0 || eight || !four)
        return refuse(r, "of all methods snug supports bitsandbytes' 4 bits (load_in_4bit) alone: give the model as it "
                         "was before; --load_in_4bit quantizes it");
    if (strcmp(storage, "uint8") != 0) return refuse(r, "bnb_4bit_quant_storage: codes are read as uint8 alone");
    for (int i = 1; i < SNUG_CODES_COUNT; i++)
        if (strcmp(type, snug_code_type_name((enum snug_code_type)i)) == 0) form->type = (enum snug_code_type)i;
    if (!form->type) return refuse(r, "bnb_4bit_quant_type is neither nf4 nor fp4");
    RETURN_IF_ERROR(read_dtype(r, &form->rounded));
    return check_skipped(r, json_object_get(json, SKIP));
}

void snug_quantization_read(struct snug_reading *r) {
    const json_t *json = json_object_get(r->json, KEY);
    const bool any = json && !json_is_null(json) && (!json_is_object(json) || json_object_size(json));
    if (r->status == SNUG_OK && any) r->status = read_form(r, json, &r->config->quantized);
}

static snug_status list_names(snug_context *ctx, const char *names, json_t **out) {
    *out = names ? json_array() : json_null();
    for (const char *name = names; name;) {
        const size_t length = strcspn(name, ",");
        if (length) snug_json_append(out, json_stringn(name, length));
        name = name[length] ? name + length + 1 : NULL;
    }
    return *out ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while changing the model's config");
}

snug_status snug_config_quantize(snug_context *ctx, struct snug_config *config, const struct snug_quantized *form,
                                 const char *skip) {
    json_t *names;
    RETURN_IF_ERROR(list_names(ctx, skip, &names));
    config->quantized = *form;
    return snug_config_set_key(ctx, config->json, KEY,
                               json_pack("{s:s, s:b, s:b, s:s, s:b, s:s, s:s, s:o}", "quant_method", "bitsandbytes",
                                         "load_in_4bit", 1, "load_in_8bit", 0, "bnb_4bit_quant_type",
                                         snug_code_type_name(form->type), "bnb_4bit_use_double_quant", form->nested,
                                         "bnb_4bit_compute_dtype", dtype_names[form->rounded], "bnb_4bit_quant_storage",
                                         "uint8", SKIP, names));
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* As transformers' should_convert_module(): a name of the list is the module's beginning, up to a dot, or its end. */
static bool is_skipped(const struct snug_config *config, const char *parameter) {
    const json_t *skip = json_object_get(json_object_get(config->json, KEY), SKIP), *name;
    char module[sizeof((struct snug_parameter *)0)->name];
    size_t i;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(parameter) - strlen(".weight")), parameter);
    const size_t size = strlen(module);
    json_array_foreach(skip, i, name) {
        const size_t length = json_string_length(name);
        const char *text = json_string_value(name);
        if (length > size) continue;
        const bool begins = strncmp(module, text, length) == 0 && (!module[length] || module[length] == '.');
        if (begins || strcmp(module + size - length, text) == 0) return true;
    }
    return false;
}

enum use { NOT_READ, MATMUL, TABLE };

/* What the operations of a program read each weight for. */
static snug_status find_uses(const struct snug_program *program, enum use **out) {
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof **out, (void **)out));
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        for (int k = 0; k < snug_op_operands(op); k++) {
            const unsigned flags = snug_op_info(op->kind)->operands[k].flags;
            enum use *use = &(*out)[op->operands[k]];
            if (flags & SNUG_TABLE) *use = TABLE;
            if (flags & SNUG_MATMUL_WEIGHT && *use != TABLE) *use = MATMUL;
        }
    }
    return SNUG_OK;
}

/* As bitsandbytes, which stores the codes of Conv1D's weights as those of a linear: [out,in], of which the model's
   files have the transpose. */
static void turn(struct snug_program *program, struct snug_parameter *parameter) {
    struct snug_tensor *weight = &program->tensors[parameter->tensor];
    const size_t module = strlen(parameter->name) - strlen("weight");
    bool transposed = false;
    for (size_t i = 0; i < program->op_count; i++) {
        struct snug_op *op = &program->ops[i];
        bool *own = op->kind == SNUG_OP_LINEAR && op->linear.w == parameter->tensor ? &op->linear.transposed
                    : op->kind == SNUG_OP_ROW_LENGTHS && op->row_lengths.w == parameter->tensor
                        ? &op->row_lengths.transposed
                        : NULL;
        if (!own) continue;
        transposed |= *own;
        *own = false;
    }
    if (!transposed) return;
    const int64_t inputs = weight->rows;
    weight->rows = parameter->shape[0] = weight->cols;
    weight->cols = parameter->shape[1] = inputs;
    parameter->turned = true;
    for (size_t i = 0; i < program->parameter_count; i++) /* DoRA's magnitudes */
        if (strncmp(program->parameters[i].name, parameter->name, module) == 0)
            program->parameters[i].of_columns = false;
}

static snug_status mark(struct snug_program *program, const struct snug_config *config,
                        struct snug_parameter *parameter, bool trains) {
    struct snug_tensor *weight = &program->tensors[parameter->tensor];
    if (trains && weight->trainable)
        return snug_fail(program->ctx, SNUG_E_USAGE,
                         "%s has 4 bits, and would be trained: a weight that is stored as codes cannot be; train "
                         "adapters (--use_peft), freeze it (--freeze base_model trains the task head alone), or leave "
                         "--load_in_4bit out",
                         parameter->name);
    turn(program, parameter);
    weight->quantized = config->quantized;
    weight->quantized.rows = parameter->shape[0];
    weight->quantized.cols = parameter->shape[1];
    return SNUG_OK;
}

snug_status snug_program_quantize(struct snug_program *program, const struct snug_config *config, bool trains) {
    enum use *uses;
    if (!config->quantized.type) return SNUG_OK;
    RETURN_IF_ERROR(find_uses(program, &uses));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
        struct snug_parameter *parameter = &program->parameters[i];
        const bool skipped = is_skipped(config, parameter->name);
        if (uses[parameter->tensor] != MATMUL || parameter->head || parameter->adapter || parameter->kernel) continue;
        for (size_t k = 0; k < i && status == SNUG_OK; k++)
            if (program->parameters[k].tensor == parameter->tensor &&
                is_skipped(config, program->parameters[k].name) != skipped)
                status = snug_fail(program->ctx, SNUG_E_UNSUPPORTED,
                                   "--" SKIP ": %s and %s are stored as one tensor: name both or neither",
                                   program->parameters[k].name, parameter->name);
        if (status == SNUG_OK && !skipped) status = mark(program, config, parameter, trains);
    }
    free(uses);
    return status;
}

/* All matrices that are not quantized, of which transformers converts none: embedding tables are no linears; and the
   decoder, which has no matrix of its own where it is tied. */
static snug_status list_unquantized(const struct snug_config *config, const struct snug_program *program,
                                    json_t **names) {
    char name[256];
    *names = json_array();
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        if (p->shape[1] && !p->lora && !program->tensors[p->tensor].quantized.type)
            snug_json_append(names, json_stringn(p->name, strlen(p->name) - strlen(".weight")));
    }
    if (snug_head_of(config) == SNUG_HEAD_VOCABULARY) {
        snug_family_decoder_name(config, name, sizeof name);
        snug_json_append(names, json_stringn(name, strlen(name) - strlen(".weight")));
    }
    return *names ? SNUG_OK : snug_fail(program->ctx, SNUG_E_MEMORY, "out of memory while changing the model's config");
}

snug_status snug_config_record_quantized(snug_context *ctx, struct snug_config *config,
                                         const struct snug_program *program) {
    json_t *names;
    RETURN_IF_ERROR(list_unquantized(config, program, &names));
    RETURN_IF_ERROR(snug_config_set_key(ctx, json_object_get(config->json, KEY), SKIP, names));
    json_object_del(config->json, "torch_dtype"); /* its name in older versions of transformers */
    return snug_config_set_key(ctx, config->json, "dtype", json_string(dtype_names[config->quantized.rounded]));
}
