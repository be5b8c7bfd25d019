/* SPDX-License-Identifier: Apache-2.0 */
/* The model and the tokenizer of a run. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/object_rows.h"
#include "metrics/task_results.h"
#include "model/adapter_weights.h"
#include "model/freeze.h"
#include "model/quantization.h"
#include "model/sentence.h"
#include "model/weights.h"
#include "train/adapter.h"
#include "train/setup_impl.h"

/* ---- model ---- */

void snug_setup_note_source(struct snug_setup *setup, const char *path) {
    struct stat info;
    bool known = false;
    char *folder = realpath(path, NULL);
    if (folder && stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) *strrchr(folder, '/') = '\0';
    if (folder && stat(*folder ? folder : "/", &info) == 0) {
        for (int i = 0; i < setup->source_count; i++)
            known |= setup->sources[i].device == info.st_dev && setup->sources[i].inode == info.st_ino;
        if (!known && setup->source_count < SNUG_SOURCES)
            setup->sources[setup->source_count++] = (struct snug_source){info.st_dev, info.st_ino};
    }
    free(folder);
    const mode_t readable = snug_readable_by(path);
    if (readable != 0044) setup->mode &= 0600 | readable;
}

/* A folder of a model or tokenizer, and its files, which may be links to other folders. */
static void note_folder(struct snug_setup *setup, const char *folder) {
    static const char *const ends[] = {".json", ".txt", ".safetensors"};
    snug_setup_note_source(setup, folder);
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const char *end = strrchr(entry->d_name, '.');
        char *path;
        for (size_t i = 0; end && i < sizeof ends / sizeof *ends; i++) {
            if (strcmp(end, ends[i]) != 0 || snug_path_join(setup->ctx, &path, folder, entry->d_name) != SNUG_OK)
                continue;
            snug_setup_note_source(setup, path);
            free(path);
        }
    }
    if (entries) closedir(entries);
}

/* A model that is quantized in its folder stays as it is. */
static snug_status quantize(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const struct snug_quantized *stored = &setup->config.quantized, asked = snug_args_quantized(args);
    const bool type = snug_args_is_chosen(args, "bnb_4bit_quant_type") && asked.type != stored->type;
    const bool nested = snug_args_is_chosen(args, "bnb_4bit_use_double_quant") && asked.nested != stored->nested;
    if ((stored->type || args->load_in_4bit) && !args->model_name_or_path && setup->command == SNUG_COMMAND_TRAIN)
        return snug_fail(setup->ctx, SNUG_E_USAGE,
                         "weights of 4 bits are those of a trained model: give --model_name_or_path, or leave "
                         "--load_in_4bit out");
    if (!args->load_in_4bit) return SNUG_OK;
    if (!stored->type) return snug_config_quantize(setup->ctx, &setup->config, &asked, args->llm_int8_skip_modules);
    if (!type && !nested && !args->llm_int8_skip_modules) return SNUG_OK;
    return snug_fail(setup->ctx, SNUG_E_USAGE,
                     "--%s: the model is quantized already, as %s%s: leave it out, or give the model as it was before",
                     type     ? "bnb_4bit_quant_type"
                     : nested ? "bnb_4bit_use_double_quant"
                              : "llm_int8_skip_modules",
                     snug_code_type_name(stored->type), stored->nested ? " with double quantization" : "");
}

static snug_status find_model(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const struct snug_hub_place place = snug_args_place(args);
    const char *model = args->model_name_or_path, *config = args->config_name ? args->config_name : model;
    if (setup->command == SNUG_COMMAND_PLAN && !snug_adapter_is_named(args))
        return snug_config_find(setup->ctx, &place, config, &setup->config);
    if (model) RETURN_IF_ERROR(snug_adapter_find_folders(args, &setup->model, &setup->adapter));
    if (model) note_folder(setup, setup->model.path);
    if (setup->adapter.path) note_folder(setup, setup->adapter.path);
    if (setup->adapter.path && !args->config_name)
        RETURN_IF_ERROR(snug_adapter_config(setup->ctx, &setup->model, &setup->adapter, &setup->config));
    else
        RETURN_IF_ERROR(snug_config_find(setup->ctx, &place, args->config_name ? args->config_name : setup->model.path,
                                         &setup->config));
    if (args->config_name) snug_setup_note_source(setup, args->config_name);
    return model ? snug_weights_look(setup->ctx, &setup->model) : SNUG_OK; /* before the data is read */
}

/* Whether the model's family, and the command, have the task. */
static snug_status check_task(const struct snug_setup *setup) {
    const struct snug_family *family = setup->config.family;
    const enum snug_task task = setup->config.task;
    const bool given =
        setup->command == SNUG_COMMAND_MODEL || (setup->args->text && setup->command == SNUG_COMMAND_PREDICT);
    char known[256] = "";
    if (snug_task_info(task)->objects && given)
        return snug_fail(setup->ctx, SNUG_E_UNSUPPORTED,
                         "%s is from a file, not from single texts: snug predict --test_file, with the columns %s",
                         snug_task_info(task)->short_title, snug_task_info(task)->objects->columns);
    if (snug_family_has(family, task)) {
        if (task == SNUG_TASK_EMBEDDING && setup->command == SNUG_COMMAND_PREDICT)
            return snug_fail(setup->ctx, SNUG_E_USAGE,
                             "snug predict is for labels, and the model is a sentence embedding: snug embed writes the "
                             "vectors of texts, and with --similarity compares pairs");
        if (snug_task_info(task)->preferences && !setup->trains)
            return snug_fail(
                setup->ctx, SNUG_E_UNSUPPORTED,
                "--task %s is a training: snug train --task %s evaluates on --validation_file; the model is "
                "a causal language model, which snug eval, generate and chat take without --task",
                snug_task_name(task), snug_task_name(task));
        if (snug_task_results(task)->take || snug_setup_generates(setup) || setup->command == SNUG_COMMAND_TRAIN ||
            setup->command == SNUG_COMMAND_PLAN || setup->command == SNUG_COMMAND_EVAL)
            return SNUG_OK;
        return snug_fail(setup->ctx, SNUG_E_UNSUPPORTED,
                         "predictions of a %s are not supported: snug eval evaluates it; snug generate answers prompts "
                         "with a decoder",
                         snug_task_info(task)->title);
    }
    for (int i = 0; i < SNUG_TASK_COUNT; i++)
        if (snug_family_has(family, (enum snug_task)i))
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "",
                     snug_task_name((enum snug_task)i));
    return snug_fail(setup->ctx, SNUG_E_UNSUPPORTED, "--task %s: a %s has no head for it; its tasks are %s",
                     snug_task_name(task), family->name, known);
}

/* A reranker has one score, whatever head the model had. */
static snug_status prepare_ranking(struct snug_setup *setup) {
    setup->config.ranking_loss = snug_args_ranking_loss(setup->args);
    return snug_config_set_score(setup->ctx, &setup->config);
}

/* The task, from the arguments or the model's folder; refuses arguments of other tasks. */
static snug_status choose_task(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const bool others = args->task || setup->trains || snug_setup_generates(setup);
    const bool embeds = setup->command == SNUG_COMMAND_EMBED || (!others && snug_sentence_is_in(&setup->model));
    if (embeds) {
        setup->config.task = SNUG_TASK_EMBEDDING;
        if (args->task && snug_task_find(args->task) != SNUG_TASK_EMBEDDING)
            return snug_fail(setup->ctx, SNUG_E_USAGE,
                             "--task %s: snug embed computes sentence embeddings, of any model: leave it out",
                             args->task);
    } else if (snug_setup_generates(setup)) {
        setup->config.task = SNUG_TASK_CLM;
        if (!setup->config.family->causal)
            return snug_fail(setup->ctx, SNUG_E_UNSUPPORTED, "%s: a %s is no decoder, and generates no text",
                             setup->model.path, setup->config.family->name);
    } else if (args->task) {
        setup->config.task = (enum snug_task)snug_task_find(args->task); /* one of its choices */
    } else if (setup->trains) {
        /* A base model has the head of another task; words with tags need a model that was trained on tags. A decoder's
           own task is that of its base model, too. */
        if (!setup->config.has_head || !(snug_setup_task(setup)->words || setup->config.family->causal))
            setup->config.task = snug_family_task(setup->config.family);
    } else if (!setup->config.has_head) {
        return snug_fail(
            setup->ctx, SNUG_E_INPUT,
            "%s: its config names none of the heads that snug supports, such as %s%s: train it first, or give --task",
            setup->model.path, setup->config.family->class_name,
            snug_task_info((enum snug_task)SNUG_TASK_DEFAULT)->model_class);
    }
    RETURN_IF_ERROR(check_task(setup));
    if (setup->config.task == SNUG_TASK_RERANKING) RETURN_IF_ERROR(prepare_ranking(setup));
    if (snug_setup_generates(setup)) return SNUG_OK; /* --top_k is for generation, too */
    return snug_args_check_task(args, setup->config.task);
}

/* Whether masked LM has a decoder of its own, which depends on the weights. A plan may be made without them. */
static snug_status look_at_decoder(struct snug_setup *setup) {
    const struct snug_hub_place place = snug_args_place(setup->args);
    const char *name = setup->args->model_name_or_path;
    char *folder = NULL;
    bool found = false;
    struct snug_folder model;
    if (setup->model.path) return snug_weights_untie(setup->ctx, &setup->model, &setup->config);
    if (!name) return SNUG_OK;
    snug_status status = snug_model_locate(setup->ctx, &place, name, &folder);
    if (status == SNUG_OK) status = snug_folder_open(setup->ctx, NULL, folder, &model);
    if (status == SNUG_OK) {
        status = snug_weights_look(setup->ctx, &model);
        found = status == SNUG_OK;
        if (found) status = snug_weights_untie(setup->ctx, &model, &setup->config);
        snug_folder_close(&model);
    }
    free(folder);
    if (status != SNUG_E_INPUT || found) return status;
    snug_clear_error(setup->ctx); /* there are none */
    return SNUG_OK;
}

static snug_status open_adapter(struct snug_setup *setup) {
    const struct snug_adapter_source source = {.args = setup->args,
                                               .config = &setup->config,
                                               .model = &setup->model,
                                               .folder = &setup->adapter,
                                               .trains = setup->trains,
                                               .plans = setup->command == SNUG_COMMAND_PLAN};
    RETURN_IF_ERROR(snug_adapter_open(&source, &setup->lora));
    setup->config.adapter = setup->lora;
    return SNUG_OK;
}

snug_status snug_setup_build(const struct snug_setup *setup, const struct snug_args *args,
                             const struct snug_config *config, bool training, struct snug_program *program) {
    static const char *const losses[SNUG_PREFERENCE_LOSSES] = {[SNUG_PREFERENCE_SIGMOID] = "sigmoid",
                                                               [SNUG_PREFERENCE_HINGE] = "hinge",
                                                               [SNUG_PREFERENCE_IPO] = "ipo",
                                                               [SNUG_PREFERENCE_ROBUST] = "robust",
                                                               [SNUG_PREFERENCE_SIGMOID_NORM] = "sigmoid_norm"};
    program->preference =
        (struct snug_preference_form){.beta = (float)args->beta, .label_smoothing = (float)args->label_smoothing};
    for (int i = 0; i < SNUG_PREFERENCE_LOSSES; i++)
        if (strcmp(args->loss_type, losses[i]) == 0) program->preference.loss = (enum snug_preference_loss)i;
    RETURN_IF_ERROR(snug_build_model(program, config, training, args->label_smoothing_factor));
    if (setup->trains && args->freeze) /* in all programs: they share the weights, and so their types */
        RETURN_IF_ERROR(snug_program_freeze(program, config->num_hidden_layers, args->freeze));
    return snug_program_quantize(program, config, setup->trains);
}

/* Names of modules and layers in the arguments are checked with the model, before the data is read. */
static snug_status try_to_build(const struct snug_setup *setup) {
    struct snug_program program;
    if (!setup->trains) return SNUG_OK;
    snug_program_init(&program, setup->ctx);
    program.longest = setup->config.positions;
    const snug_status status = snug_setup_build(setup, setup->args, &setup->config, true, &program);
    snug_program_free(&program);
    return status;
}

snug_status snug_setup_open_model(struct snug_setup *setup) {
    RETURN_IF_ERROR(find_model(setup));
    RETURN_IF_ERROR(quantize(setup));
    RETURN_IF_ERROR(choose_task(setup));
    if (setup->config.task == SNUG_TASK_EMBEDDING)
        RETURN_IF_ERROR(snug_sentence_open(setup->ctx, &setup->model, &setup->config));
    RETURN_IF_ERROR(look_at_decoder(setup));
    RETURN_IF_ERROR(open_adapter(setup));
    RETURN_IF_ERROR(try_to_build(setup));
    return setup->lora && setup->command == SNUG_COMMAND_TRAIN
               ? snug_weights_digest(setup->ctx, &setup->model, &setup->base_digest)
               : SNUG_OK;
}

/* ---- tokenizer ---- */

/* transformers takes pad_token_id of config.json, not the tokenizer's. */
static void compare_padding(const struct snug_setup *setup) {
    const int64_t id = setup->config.pad_token_id;
    const int32_t pad = snug_tokenizer_special(setup->tokenizer).pad;
    const bool counts = setup->config.first_position > 0;
    if (id < 0 || id == pad || (pad < 0 && !counts)) return;
    snug_log(setup->ctx, SNUG_LOG_WARNING,
             "the model's pad_token_id is %lld (\"%s\"), the tokenizer %s%s%s: as in transformers, %sthe embedding of "
             "%lld is not trained",
             (long long)id, snug_tokenizer_token(setup->tokenizer, (int32_t)id),
             pad < 0 ? "has no padding token" : "pads with \"",
             pad < 0 ? "" : snug_tokenizer_token(setup->tokenizer, pad), pad < 0 ? "" : "\"",
             counts ? "tokens of that id in a text are not counted by position ids, and " : "", (long long)id);
}

/* New adapters again, which train the rows of new tokens. */
static snug_status adapt_new_tokens(struct snug_setup *setup) {
    snug_adapter_free(setup->lora);
    setup->lora = NULL;
    RETURN_IF_ERROR(open_adapter(setup));
    return try_to_build(setup);
}

/* A training gives the model rows for tokens that it lacks, as run_mlm.py does: for masked LM for any, otherwise for
   those that were added to the tokenizer. run_glue.py and run_ner.py fail at the first text that has one. */
static snug_status fit_vocabulary(struct snug_setup *setup) {
    const struct snug_tokenizer *tokenizer = setup->tokenizer;
    const int64_t tokens = snug_tokenizer_vocab_size(tokenizer), rows = setup->config.vocab_size;
    const bool any = setup->trains && !snug_setup_task(setup)->labelled;
    char names[160] = "";
    if (tokens <= rows) return SNUG_OK;
    if (!setup->trains || (!any && snug_tokenizer_model_size(tokenizer) > rows))
        return snug_fail(setup->ctx, SNUG_E_INPUT,
                         "tokenizer %s has %lld tokens, the model's vocab_size is %lld: they do not belong together%s",
                         setup->tokenizer_folder, (long long)tokens, (long long)rows,
                         setup->trains ? "; --task mlm would give the model rows for them"
                                       : ", unless tokens were added: a training gives the model rows for these");
    if (setup->adapter.path)
        return snug_fail(
            setup->ctx, SNUG_E_INPUT,
            "tokenizer %s has %lld tokens, and the adapter in %s was trained with %lld: give the adapter's "
            "tokenizer, or train a new adapter",
            setup->tokenizer_folder, (long long)tokens, setup->adapter.path, (long long)rows);
    for (int64_t id = rows; id < tokens; id++) {
        const char *token = snug_tokenizer_token(tokenizer, (int32_t)id);
        const size_t used = strlen(names);
        if (used + strlen(token) > sizeof names - 16) {
            snprintf(names + used, sizeof names - used, " ...");
            break;
        }
        snprintf(names + used, sizeof names - used, "%s\"%s\"", used ? ", " : "", token);
    }
    snug_log(setup->ctx, SNUG_LOG_WARNING,
             "tokenizer %s has %lld tokens, the model's vocab_size was %lld: its tables get %lld rows more, drawn from "
             "the distribution of the others, for %s",
             setup->tokenizer_folder, (long long)tokens, (long long)rows, (long long)(tokens - rows), names);
    RETURN_IF_ERROR(snug_config_grow(setup->ctx, &setup->config, tokens));
    return setup->lora ? adapt_new_tokens(setup) : SNUG_OK;
}

/* An adapter's folder may have none of its own, as PEFT's have not. */
static snug_status locate_tokenizer(struct snug_setup *setup, const struct snug_hub_place *place, const char *name) {
    const bool given = setup->args->tokenizer_name != NULL;
    const bool own = setup->adapter.path && snug_tokenizer_is_in(&setup->adapter);
    if (given || !setup->adapter.path) return snug_model_locate(setup->ctx, place, name, &setup->tokenizer_folder);
    return snug_strdup(setup->ctx, own ? setup->adapter.path : setup->model.path, &setup->tokenizer_folder);
}

snug_status snug_setup_open_tokenizer(struct snug_setup *setup, const char *file) {
    const struct snug_hub_place place = snug_args_place(setup->args);
    const char *name = setup->args->tokenizer_name ? setup->args->tokenizer_name : setup->args->model_name_or_path;
    if (!file) return SNUG_OK;
    if (!name)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "%s contains text, but there is no tokenizer: give --tokenizer_name",
                         file);
    RETURN_IF_ERROR(locate_tokenizer(setup, &place, name));
    RETURN_IF_ERROR(
        snug_tokenizer_load(setup->ctx, setup->tokenizer_folder, snug_family_tokenizer_class, &setup->tokenizer));
    note_folder(setup, setup->tokenizer_folder);
    compare_padding(setup);
    if (setup->args->chat_template_path)
        RETURN_IF_ERROR(snug_tokenizer_take_template(setup->ctx, setup->tokenizer, setup->args->chat_template_path));
    return fit_vocabulary(setup);
}

/* ---- types ---- */

/* As transformers' dtype="auto": the type that config.json names, else that of the files. */
static snug_status find_stored_type(const struct snug_setup *setup, bool *is_bf16) {
    bool matrices;
    const json_t *type = json_object_get(setup->config.json, "dtype");
    if (!type) type = json_object_get(setup->config.json, "torch_dtype");
    *is_bf16 = json_is_string(type) && strcmp(json_string_value(type), "bfloat16") == 0;
    if (json_is_string(type) || !setup->model.path) return SNUG_OK;
    return snug_weights_are_bf16(setup->ctx, &setup->model, is_bf16, &matrices);
}

/* A CPU's matmuls have the same bits with weights in bf16 as with the same values in fp32 (docs/numerics.md): where
   nothing is trained, files in bf16 take the memory that they take on the disk. */
static snug_status choose_storage(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    bool most, matrices;
    if (snug_backend_is_device(setup->backend) || !snug_setup_is_inference(setup) || setup->lora ||
        setup->config.quantized.type || args->bf16_full_eval || snug_args_is_set(args, "dtype"))
        return SNUG_OK;
    RETURN_IF_ERROR(snug_weights_are_bf16(setup->ctx, &setup->model, &most, &matrices));
    if (!matrices) return SNUG_OK;
    snug_log(setup->ctx, SNUG_LOG_INFO,
             "keeping the weights in bf16, the type of the model's files: --dtype float32 widens them, with the same "
             "results");
    return snug_args_assign(setup->args, "dtype", "bfloat16");
}

/* Decoders in bf16 are computed in bf16 on a GPU that has it, unless the arguments say otherwise. What trains nothing
   needs no fp32 masters, and stores its weights in bf16, too; answers have no other use for --bf16. */
static snug_status choose_compute(struct snug_setup *setup) {
    struct snug_args *args = setup->args;
    const bool inference = snug_setup_is_inference(setup);
    bool is_bf16;
    if (snug_setup_generates(setup)) args->bf16_full_eval |= args->bf16;
    if (!snug_backend_is_device(setup->backend) || setup->backend->lacks_bf16 ||
        !snug_family_has(setup->config.family, SNUG_TASK_CLM) || args->fp16 || args->tf32 || args->fp16_full_eval ||
        (inference && args->bf16_full_eval) || snug_args_is_set(args, "bf16"))
        return SNUG_OK;
    RETURN_IF_ERROR(find_stored_type(setup, &is_bf16));
    if (!is_bf16) return SNUG_OK;
    *(inference ? &args->bf16_full_eval : &args->bf16) = true;
    snug_log(setup->ctx, SNUG_LOG_INFO, "computing in bf16, the type of the model's files: --no_bf16 computes in fp32");
    return SNUG_OK;
}

snug_status snug_setup_choose_types(struct snug_setup *setup) {
    RETURN_IF_ERROR(choose_compute(setup));
    return choose_storage(setup);
}
