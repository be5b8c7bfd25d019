/* SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "data/task.h"
#include "model/sentence.h"

#define ADDRESS_OF(name) &snug_family_##name,
const struct snug_family *const snug_families[] = {SNUG_FAMILIES(ADDRESS_OF) NULL};

const struct snug_family *snug_family_find(const char *model_type) {
    for (size_t i = 0; snug_families[i]; i++)
        if (strcmp(snug_families[i]->model_type, model_type) == 0) return snug_families[i];
    return NULL;
}

const char *snug_family_tokenizer_class(const char *model_type, bool *keeps) {
    const struct snug_family *family = snug_family_find(model_type);
    *keeps = family && family->keeps_tokenizer_class;
    return family ? family->tokenizer_class : NULL;
}

/* ---- names of tensors ----------------------------------------------------------------------------------------- */

static bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), cut = strlen(end);
    return length >= cut && strcmp(text + length - cut, end) == 0;
}

static void replace_end(char *text, size_t size, const char *end, const char *by) {
    const size_t length = strlen(text), cut = strlen(end);
    if (!ends_with(text, end)) return;
    snprintf(text + length - cut, size - (length - cut), "%s", by);
}

void snug_family_word_name(const struct snug_config *config, char *name, size_t size) {
    const struct snug_family *family = config->family;
    snprintf(name, size, "%s%s.weight", family->prefix, family->word ? family->word : "embeddings.word_embeddings");
}

void snug_family_decoder_name(const struct snug_config *config, char *name, size_t size) {
    snprintf(name, size, "%s.weight", config->language_model->decoder);
}

/* Whether the word table is the weight of a decoder's module, too. */
static bool is_tied(const struct snug_config *config) {
    return snug_head_of(config) == SNUG_HEAD_VOCABULARY && !config->own_decoder && !config->language_model->reads_words;
}

/* Whether PEFT ties what it saves: it looks for these names alone. */
static bool names_embeddings(const json_t *saved) {
    const json_t *name;
    bool found = false;
    size_t i;
    json_array_foreach(saved, i, name) {
        const char *text = json_string_value(name), *dot = strrchr(text, '.'), *last = dot ? dot + 1 : text;
        found |= strcmp(last, "embed_tokens") == 0 || strcmp(last, "lm_head") == 0;
    }
    return found;
}

snug_status snug_family_copy_decoder(snug_context *ctx, struct snug_config *config, const json_t *settings) {
    const json_t *saved = json_object_get(settings, "modules_to_save");
    char word[256], decoder[256];
    if (!is_tied(config)) return SNUG_OK;
    snug_family_word_name(config, word, sizeof word);
    snug_family_decoder_name(config, decoder, sizeof decoder);
    const bool words = snug_adapter_place(saved, word) >= 0, output = snug_adapter_place(saved, decoder) >= 0;
    if (!words && !output) return SNUG_OK;
    if (json_is_true(json_object_get(settings, "ensure_weight_tying")) && names_embeddings(saved)) {
        if (ends_with(word, ".embed_tokens.weight")) return SNUG_OK;
        return snug_fail(
            ctx, SNUG_E_UNSUPPORTED,
            "ensure_weight_tying is supported where the word table is embed_tokens and the output lm_head: "
            "here they are %s and %s",
            word, decoder);
    }
    config->own_decoder = config->copied_decoder = true;
    const double values = (double)config->vocab_size * (double)config->embedding_size;
    snug_log(
        ctx, SNUG_LOG_INFO,
        "modules_to_save: %s and %s, which are one weight in the model, are two with these adapters, as in PEFT; %s "
        "trained: %.1f M parameters more (%.1f MiB in fp32)",
        word, decoder,
        words && output ? "both are"
        : words         ? "the first is"
                        : "the second is",
        values / 1e6, 4 * values / 0x1p20);
    return SNUG_OK;
}

/* As in transformers, where tying has one condition, tie_word_embeddings, but each pair of names is tied by itself. */
static enum snug_stored_use language_model_parameter(const struct snug_config *config, char *name, size_t size) {
    const struct snug_language_model_names *names = config->language_model;
    char decoder[96];
    snug_family_decoder_name(config, decoder, sizeof decoder);
    if (!config->own_decoder && strcmp(name, decoder) == 0) snug_family_word_name(config, name, size);
    if (!names->decoder_bias) return SNUG_STORED_PARAMETER;
    const char *bias = config->own_decoder ? names->decoder_bias : names->bias;
    const bool spare = strcmp(name, names->bias) == 0;
    if (spare || strcmp(name, names->decoder_bias) == 0) snprintf(name, size, "%s", bias);
    return spare ? SNUG_STORED_SPARE : SNUG_STORED_PARAMETER;
}

enum snug_stored_use snug_family_parameter(const struct snug_config *config, const char *stored, char *name,
                                           size_t size) {
    const struct snug_family *family = config->family;
    bool whole = starts_with(stored, family->prefix); /* saved from a model with a head, not from the bare encoder */
    for (const char *const *head = family->heads->prefixes; *head; head++) whole |= starts_with(stored, *head);
    snprintf(name, size, "%s%s", whole ? "" : family->prefix, stored);
    /* Buffers that earlier versions of transformers saved, such as positions: 0, 1, 2 … */
    const char *rest = name + strlen(family->prefix);
    if (starts_with(name, family->prefix) && strcmp(rest, "embeddings.position_ids") == 0) return SNUG_STORED_CONSTANT;
    for (const char *const *end = family->constants; end && *end; end++)
        if (ends_with(name, *end)) return SNUG_STORED_CONSTANT;
    replace_end(name, size, "LayerNorm.gamma", "LayerNorm.weight"); /* of the first checkpoints, from TensorFlow */
    replace_end(name, size, "LayerNorm.beta", "LayerNorm.bias");
    return snug_head_of(config) == SNUG_HEAD_VOCABULARY ? language_model_parameter(config, name, size)
                                                        : SNUG_STORED_PARAMETER;
}

enum snug_head snug_head_of(const struct snug_config *config) { return snug_task_info(config->task)->head; }

bool snug_family_has(const struct snug_family *family, enum snug_task task) {
    const struct snug_task_info *info = snug_task_info(task);
    if (info->head == SNUG_HEAD_VECTOR) return true; /* it has no head of its own */
    return family->heads->build[info->head] && (info->head != SNUG_HEAD_VOCABULARY || info->causal == family->causal);
}

struct snug_name snug_family_class(const struct snug_family *family, enum snug_task task) {
    struct snug_name name;
    snprintf(name.text, sizeof name.text, "%s%s", family->class_name, snug_task_info(task)->model_class);
    for (const struct snug_architecture *a = family->further_classes; a && a->name; a++)
        if (a->saved && a->task == task) snprintf(name.text, sizeof name.text, "%s", a->name);
    return name;
}

enum snug_task snug_family_task(const struct snug_family *family) {
    return family->causal ? SNUG_TASK_CLM : (enum snug_task)SNUG_TASK_DEFAULT;
}

/* ---- programs ------------------------------------------------------------------------------------------------- */

/* The number of the name in modules_to_save that saves p. A tied word table is saved by the decoder's, too. */
static int64_t find_saved(const struct snug_builder *b, const struct snug_parameter *p) {
    const struct snug_config *c = b->config;
    const int64_t saved = p->lora ? -1 : snug_adapter_saves(c->adapter, p->name);
    char word[256], decoder[256];
    if (saved >= 0 || !is_tied(c)) return saved;
    snug_family_word_name(c, word, sizeof word);
    snug_family_decoder_name(c, decoder, sizeof decoder);
    return strcmp(p->name, word) == 0 ? snug_adapter_saves(c->adapter, decoder) : saved;
}

static bool is_adapted(const struct snug_program *program, const char *module) {
    char half[sizeof program->parameters->name + 16];
    snprintf(half, sizeof half, "%s.lora_A.weight", module);
    for (size_t i = 0; i < program->parameter_count; i++)
        if (strcmp(program->parameters[i].name, half) == 0) return true;
    return false;
}

/* Whether p is a bias of the base model that is trained. The decoder's may be a parameter of the head. */
static bool is_trained_bias(const struct snug_builder *b, struct snug_parameter *p) {
    const enum snug_adapter_biases biases = snug_adapter_biases(b->config->adapter);
    const struct snug_language_model_names *names = b->config->language_model;
    char module[sizeof p->name];
    if (biases == SNUG_ADAPTER_NO_BIAS || !ends_with(p->name, ".bias")) return false;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(p->name) - strlen(".bias")), p->name);
    p->wrapped = is_adapted(b->program, module);
    if (p->wrapped || biases == SNUG_ADAPTER_ALL_BIASES) return true;
    return names->bias && strcmp(p->name, names->bias) == 0 && is_adapted(b->program, names->decoder);
}

/* The gradient of a bias comes from that of all columns, also of those that are replaced. */
static snug_status check_bias(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const int32_t bias = op->kind == SNUG_OP_TOKEN_COLUMNS ? op->token_columns.b : 0;
        if (bias && program->tensors[bias].trainable)
            return snug_fail(program->ctx, SNUG_E_UNSUPPORTED,
                             "trainable_token_indices: %s, which is added to the logits, is trained, too (bias, or "
                             "modules_to_save), which is not supported: leave one of them out",
                             program->tensors[bias].name);
    }
    return SNUG_OK;
}

/* Freezes what does not belong to the config's adapters. */
static snug_status freeze_base(struct snug_builder *b) {
    const struct snug_adapter *adapter = b->config->adapter;
    struct snug_program *program = b->program;
    for (size_t i = 0; i < program->parameter_count; i++) {
        struct snug_parameter *p = &program->parameters[i];
        const int64_t saved = find_saved(b, p);
        p->adapter = p->lora || saved >= 0 || is_trained_bias(b, p);
        program->tensors[p->tensor].trainable = p->adapter;
        if (saved >= 0) b->use.saved[saved] = true;
        p->output = saved >= 0 && p->by_vocabulary && p->shape[1] && snug_adapter_ties(adapter) && is_tied(b->config);
        if (p->by_vocabulary && !p->shape[1] && !p->adapter && b->config->own_decoder && !b->config->copied_decoder &&
            b->config->new_tokens)
            return snug_fail(program->ctx, SNUG_E_UNSUPPORTED,
                             "%s has values for %lld new tokens, which no file of the model has, and adapters are "
                             "trained beside: name its module in --lora_modules_to_save, or leave the tokens out",
                             p->name, (long long)b->config->new_tokens);
    }
    RETURN_IF_ERROR(check_bias(program));
    return snug_adapter_check(adapter, &b->use);
}

snug_status snug_build_model(struct snug_program *program, const struct snug_config *config, bool training,
                             double label_smoothing) {
    struct snug_builder b = {.program = program,
                             .config = config,
                             .phase = SNUG_PHASE_FORWARD,
                             .training = training,
                             .label_smoothing = label_smoothing};
    snug_build_part(&b, SNUG_PART_EMBEDDINGS, 0);
    int32_t word, hidden = config->family->encode(&b, &word);
    if (snug_head_of(config) == SNUG_HEAD_VECTOR)
        snug_build_sentence(&b, hidden);
    else
        config->family->heads->build[snug_head_of(config)](&b, hidden, word);
    if (b.status == SNUG_OK && config->adapter) b.status = freeze_base(&b);
    return b.status;
}

struct snug_name snug_model_name(const struct snug_builder *b, const char *rest) {
    struct snug_name name;
    snprintf(name.text, sizeof name.text, "%s%s", b->config->family->prefix, rest);
    return name;
}
