/* SPDX-License-Identifier: Apache-2.0 */
#include "train/identity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "io/json.h"
#include "model/adapters.h"
#include "model/family.h"
#include "train/results.h"

/* The digest of the weights that adapters are trained beside, which checkpoints do not have. */
#define BASE "base_weights"

static json_t *text_or_null(const char *text) { return text ? snug_json_from_text(text) : json_null(); }

static json_t *hash_labels(const struct snug_labels *labels) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < labels->count; i++)
        hash = XXH3_64bits_withSeed(labels->names[i], strlen(labels->names[i]) + 1, hash + 1);
    return snug_json_hex(hash);
}

/* The configuration that the weights belong to. */
static void add_model(json_t **to, const struct snug_config *c) {
    snug_json_add(to, "model_type", json_string(c->family->model_type));
    snug_json_add(to, "embedding_size", json_integer(c->embedding_size));
    snug_json_add(to, "hidden_size", json_integer(c->hidden_size));
    snug_json_add(to, "num_hidden_layers", json_integer(c->num_hidden_layers));
    snug_json_add(to, "num_attention_heads", json_integer(c->num_attention_heads));
    snug_json_add(to, "intermediate_size", json_integer(c->intermediate_size));
    snug_json_add(to, "vocab_size", json_integer(c->vocab_size));
    snug_json_add(to, "max_position_embeddings", json_integer(c->max_position_embeddings));
    snug_json_add(to, "type_vocab_size", json_integer(c->type_vocab_size));
    snug_json_add(to, "layer_norm_eps", snug_json_number(c->layer_norm_eps));
    snug_json_add(to, "hidden_dropout_prob", snug_json_number(c->hidden_dropout_prob));
    snug_json_add(to, "attention_probs_dropout_prob", snug_json_number(c->attention_probs_dropout_prob));
    snug_json_add(to, "classifier_dropout", snug_json_number(c->classifier_dropout));
    snug_json_add(to, "answer_dropout", snug_json_number(c->answer_dropout));
    if (c->summary_dropout > 0) snug_json_add(to, "summary_dropout", snug_json_number(c->summary_dropout));
    snug_json_add(to, "pad_token_id", json_integer(c->pad_token_id));
    snug_json_add(to, "hidden_act", json_string(c->hidden_act_name));
    snug_json_add(to, "tie_word_embeddings", json_boolean(!c->own_decoder || c->copied_decoder));
    if (c->family->identify) c->family->identify(to, c);
}

/* All settings but the place of the base model. */
static json_t *identify_adapter(const struct snug_adapter *adapter) {
    json_t *o = adapter ? json_deep_copy(snug_adapter_json(adapter)) : json_null();
    if (adapter) json_object_del(o, "base_model_name_or_path");
    return o;
}

static json_t *fixed_of(const struct snug_job *job) {
    const struct snug_setup *setup = &job->setup;
    const struct snug_planned_program *training = snug_run_plan_find(&job->plan, SNUG_ROLE_TRAINING);
    const struct snug_loader_options *options = &training->pipeline.options;
    const struct snug_labels *labels = &setup->config.labels;
    const struct snug_task_info *task = snug_setup_task(setup);
    json_t *o = json_object();
    add_model(&o, &setup->config);
    snug_json_add(&o, "task", json_string(snug_task_name(setup->config.task)));
    if (setup->config.task == SNUG_TASK_RERANKING)
        snug_json_add(&o, "ranking_loss", json_integer(setup->config.ranking_loss));
    snug_json_add(&o, "problem", json_integer(task->labelled ? labels->problem : 0));
    snug_json_add(&o, "labels", task->labelled ? hash_labels(labels) : json_null());
    snug_json_add(&o, "vocabulary",
                  setup->tokenizer ? snug_json_hex(snug_tokenizer_fingerprint(setup->tokenizer)) : json_null());
    snug_json_add(&o, "chat_template_date", text_or_null(snug_dataset_chat_date(setup->train.dataset)));
    snug_json_add(&o, "train_file", snug_json_hex(snug_dataset_digest(setup->train.dataset)));
    snug_json_add(&o, "batch_sampler", options->distinct ? text_or_null(setup->args->batch_sampler) : json_null());
    snug_json_add(&o, "train_rows", json_integer(setup->train.rows));
    snug_json_add(&o, "rows_per_step", json_integer(options->batch_size * options->accumulation));
    snug_json_add(&o, "per_device_train_tokens",
                  options->packs ? json_integer(setup->args->per_device_train_tokens) : json_null());
    snug_json_add(&o, "dataloader_drop_last", json_boolean(options->drop_last));
    snug_json_add(&o, "train_sampling_strategy", text_or_null(setup->args->train_sampling_strategy));
    snug_json_add(&o, "data_seed", json_integer((json_int_t)options->seed));
    snug_json_add(&o, "freeze", text_or_null(setup->args->freeze));
    snug_json_add(&o, "adapters", identify_adapter(setup->lora));
    if (setup->lora) snug_json_add(&o, BASE, snug_json_hex(setup->base_digest));
    snug_json_add(&o, "class_weights", snug_setup_class_weights_json(setup));
    snug_json_add(&o, "optim", json_string(job->plan.optimizer.name));
    snug_json_add(&o, "dtype", json_string(snug_dtype_name(job->plan.weights)));
    const struct snug_quantized *form = &setup->config.quantized;
    if (form->type)
        snug_json_add(
            &o, "quantized",
            json_pack("[s, b, s]", snug_code_type_name(form->type), form->nested, snug_dtype_name(form->rounded)));
    return o;
}

static json_t *settings_of(const struct snug_job *job) {
    const struct snug_setup *setup = &job->setup;
    const struct snug_args *args = setup->args;
    const struct snug_planned_program *training = snug_run_plan_find(&job->plan, SNUG_ROLE_TRAINING);
    const struct snug_gpu *gpu = &job->limits.device.usage.gpu;
    const bool judges = args->metric_for_best_model;
    json_t *o = json_object();
    snug_json_add(&o, "learning_rate", snug_json_number(args->learning_rate));
    snug_json_add(&o, "lr_scheduler_type", text_or_null(args->lr_scheduler_type));
    snug_json_add(&o, "lr_scheduler_kwargs", text_or_null(args->lr_scheduler_kwargs));
    snug_json_add(&o, "warmup_steps", snug_json_number(args->warmup_steps));
    snug_json_add(&o, "max_steps", json_integer(training->pipeline.max_steps));
    snug_json_add(&o, "optim_args", text_or_null(args->optim_args));
    snug_json_add(&o, "weight_decay", snug_json_number(args->weight_decay));
    snug_json_add(&o, "adam_beta1", snug_json_number(args->adam_beta1));
    snug_json_add(&o, "adam_beta2", snug_json_number(args->adam_beta2));
    snug_json_add(&o, "adam_epsilon", snug_json_number(args->adam_epsilon));
    snug_json_add(&o, "max_grad_norm", snug_json_number(args->max_grad_norm));
    if (snug_setup_task(setup)->preferences) {
        snug_json_add(&o, "loss_type", text_or_null(args->loss_type));
        snug_json_add(&o, "beta", snug_json_number(args->beta));
        snug_json_add(&o, "label_smoothing", snug_json_number(args->label_smoothing));
        snug_json_add(&o, "reference", snug_json_hex(setup->train.reference_key));
    }
    snug_json_add(&o, "label_smoothing_factor", snug_json_number(args->label_smoothing_factor));
    snug_json_add(&o, "mlm_probability",
                  snug_json_number(snug_setup_task(setup)->labelled ? 0 : args->mlm_probability));
    snug_json_add(&o, "whole_word_mask", args->whole_word_mask ? json_true() : json_null());
    snug_json_add(&o, "label_all_tokens", json_boolean(training->pipeline.options.label_all_tokens));
    snug_json_add(&o, "loss", snug_setup_loss_json(setup));
    snug_json_add(&o, "seed", json_integer(args->seed));
    snug_json_add(&o, "per_device_train_batch_size", json_integer(training->pipeline.options.batch_size));
    snug_json_add(&o, "compute",
                  json_string(training->program.tf32 ? "TF32" : snug_dtype_name(training->program.compute)));
    snug_json_add(&o, "device", snug_json_from_text(*gpu->name ? gpu->name : setup->backend->name));
    snug_json_add(&o, "metric_for_best_model", text_or_null(judges ? args->metric_for_best_model : NULL));
    snug_json_add(&o, "greater_is_better", text_or_null(judges ? args->greater_is_better : NULL));
    snug_json_add(&o, "validation_file",
                  judges && setup->eval.dataset ? snug_json_hex(snug_dataset_digest(setup->eval.dataset))
                                                : json_null());
    if (judges && setup->judgements.queries)
        snug_json_add(&o, "relevance_file", snug_json_hex(snug_judgements_digest(&setup->judgements)));
    snug_json_add(&o, "eval_strategy", json_integer(judges ? args->eval_strategy : 0));
    snug_json_add(&o, "eval_steps", snug_json_number(judges ? args->eval_steps : 0));
    snug_json_add(&o, "eval_delay", snug_json_number(judges ? args->eval_delay : 0));
    snug_json_add(&o, "early_stopping_patience", json_integer(args->early_stopping_patience));
    snug_json_add(&o, "early_stopping_threshold", snug_json_number(args->early_stopping_threshold));
    return o;
}

json_t *snug_identity(const struct snug_job *job) {
    json_t *o = json_object();
    snug_json_add(&o, "fixed", fixed_of(job));
    snug_json_add(&o, "settings", settings_of(job));
    return o;
}

/* ---- comparing ------------------------------------------------------------------------------------------------ */

/* A value for messages: numbers and short texts; checksums are not shown. */
static void show(const json_t *value, char *text, size_t size) {
    const char *string = json_string_value(value);
    char *dumped = NULL;
    snug_context *quiet = NULL;
    *text = '\0';
    if (string && strlen(string) == 16 && strspn(string, "0123456789abcdef") == 16) return;
    if (snug_context_create(&quiet) == SNUG_OK &&
        snug_json_text(quiet, value ? value : json_null(), JSON_ENCODE_ANY | JSON_COMPACT, &dumped) == SNUG_OK)
        snprintf(text, size, "%s", dumped);
    free(dumped);
    snug_context_destroy(quiet);
}

static bool is_same(const json_t *a, const json_t *b) {
    /* 1.0 may be read back as an integer: the same number. */
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return a && b && json_equal(a, b);
}

/* "hidden_dropout_prob was 0.1 and is 0", or "different train_file"; of an object its first member that differs. */
static void describe(const char *key, const json_t *saved, const json_t *here, char *text, size_t size) {
    char was[80], is[80], path[80];
    const char *member;
    json_t *value;
    json_object_foreach((json_t *)here, member, value) {
        const json_t *other = json_object_get(saved, member);
        if (is_same(value, other)) continue;
        snprintf(path, sizeof path, "%s: %s", key, member);
        key = path;
        saved = other;
        here = value;
        break;
    }
    show(saved, was, sizeof was);
    show(here, is, sizeof is);
    if (*was && *is)
        snprintf(text, size, "%s was %s and is %s", key, was, is);
    else
        snprintf(text, size, "different %s", key);
}

static bool decides_best(const char *key) {
    return strcmp(key, "metric_for_best_model") == 0 || strcmp(key, "greater_is_better") == 0 ||
           strcmp(key, "validation_file") == 0 || strcmp(key, "relevance_file") == 0;
}

static snug_status compare(const struct snug_job *job, const char *path, const json_t *here, const json_t *saved,
                           bool *other_best) {
    const char *key;
    json_t *value;
    char text[256];
    const json_t *saved_fixed = json_object_get(saved, "fixed"), *saved_settings = json_object_get(saved, "settings");
    json_object_foreach(json_object_get(here, "fixed"), key, value) {
        const json_t *was = json_object_get(saved_fixed, key);
        const bool is_base = strcmp(key, BASE) == 0;
        if (is_same(value, was) || (json_is_null(value) && !was)) continue;
        if (is_base)
            return snug_fail(job->ctx, SNUG_E_INPUT,
                             "%s cannot be resumed by this run: the weights in %s are not those beside which its "
                             "adapters were trained: give that model again, or start a new run",
                             path, job->setup.model.path);
        describe(key, json_object_get(saved_fixed, key), value, text, sizeof text);
        return snug_fail(job->ctx, SNUG_E_INPUT,
                         "%s cannot be resumed by this run: %s; start a new run from its weights with "
                         "--model_name_or_path, or use the same settings and data",
                         path, text);
    }
    json_object_foreach(json_object_get(here, "settings"), key, value) {
        const json_t *was = json_object_get(saved_settings, key);
        if (is_same(value, was) || (json_is_null(value) && !was)) continue;
        describe(key, was, value, text, sizeof text);
        *other_best |= decides_best(key);
        snug_log(job->ctx, SNUG_LOG_WARNING, "%s: %s: the run continues, but differs from an uninterrupted one", path,
                 text);
    }
    return SNUG_OK;
}

snug_status snug_identity_compare_models(snug_context *ctx, const char *path, const struct snug_config *here,
                                         const struct snug_config *other) {
    json_t *a = json_object(), *b = json_object(), *value;
    const char *key;
    char text[256] = "";
    add_model(&a, here);
    add_model(&b, other);
    const bool whole = a && b;
    json_object_foreach(a, key, value) {
        if (*text || is_same(value, json_object_get(b, key))) continue;
        describe(key, json_object_get(b, key), value, text, sizeof text);
    }
    json_decref(a);
    json_decref(b);
    if (!whole) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while comparing models");
    if (!*text) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT, "%s: the reference must be a model of the same form as the trained one: %s",
                     path, text);
}

snug_status snug_identity_check_loop(const struct snug_job *job, const char *path, json_t *saved, bool *refrozen) {
    json_t *fixed = json_object_get(saved, "fixed"), *freeze = text_or_null(job->setup.args->freeze);
    bool other_best;
    *refrozen = freeze && !json_equal(freeze, json_object_get(fixed, "freeze"));
    if (!freeze || json_object_set_new(fixed, "freeze", freeze))
        return snug_fail(job->ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
    return snug_identity_check(job, path, saved, &other_best);
}

snug_status snug_identity_check(const struct snug_job *job, const char *path, const json_t *saved, bool *other_best) {
    json_t *here = snug_identity(job);
    *other_best = false;
    const snug_status status = here ? compare(job, path, here, saved, other_best)
                                    : snug_fail(job->ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
    json_decref(here);
    return status;
}
