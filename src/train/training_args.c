/* SPDX-License-Identifier: Apache-2.0 */
#include "train/training_args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "args/table.h"
#include "io/json.h"

static json_t *text_or_null(const char *text) { return text ? snug_json_from_text(text) : json_null(); }

/* ---- data files ------------------------------------------------------------------------------------------------- */

static json_t *file_json(const struct snug_data_source *source) {
    if (!source->dataset) return json_null();
    json_t *o = json_object();
    const char *path = snug_dataset_path(source->dataset);
    char *real = source->bytes < 0 ? NULL : realpath(path, NULL);
    snug_json_add(&o, "path", snug_json_from_text(real ? real : path));
    snug_json_add(&o, "bytes", source->bytes < 0 ? json_null() : json_integer(source->bytes));
    snug_json_add(&o, "xxh3_64", source->bytes < 0 ? json_null() : snug_json_hex(source->digest));
    free(real);
    return o;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* The rows that --validation_split_percentage took to evaluate on. */
static json_t *split_json(const struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    if (!args->validation_split_percentage) return json_null();
    json_t *o = json_object();
    snug_json_add(&o, "seed", json_integer((json_int_t)snug_args_data_seed(args)));
    snug_json_add(&o, "train_rows", json_integer(setup->train.rows));
    snug_json_add(&o, "eval_rows", json_integer(setup->eval.rows));
    snug_json_add(&o, "xxh3_64", snug_json_hex(snug_dataset_digest(setup->eval.dataset)));
    return o;
}

static json_t *data_json(const struct snug_setup *setup) {
    const struct snug_used_columns *columns = snug_dataset_columns(setup->train.dataset);
    json_t *o = json_object(), *texts = json_array();
    const bool kept = !columns->preferences; /* the model is then evaluated as a causal LM, on other columns */
    for (size_t i = 0; i < columns->texts && kept; i++) snug_json_append(&texts, snug_json_from_text(columns->text[i]));
    snug_json_add(&o, "text", texts);
    snug_json_add(&o, "pair", json_boolean(columns->pair));
    snug_json_add(&o, "chat", json_boolean(columns->chat && kept));
    snug_json_add(&o, "chat_template_date", text_or_null(snug_dataset_chat_date(setup->train.dataset)));
    snug_json_add(&o, "completion_only_loss", json_boolean(setup->args->completion_only_loss));
    snug_json_add(&o, "assistant_only_loss", json_boolean(setup->args->assistant_only_loss));
    snug_json_add(&o, "delimiter", text_or_null(columns->delimiter));
    snug_json_add(&o, "label", text_or_null(columns->label));
    snug_json_add(&o, "label_separator", text_or_null(setup->args->label_separator));
    snug_json_add(&o, "missing_label_values", text_or_null(setup->args->missing_label_values));
    snug_json_add(&o, "validation_split", split_json(setup));
    snug_json_add(&o, "max_seq_length", json_integer(setup->max_length));
    snug_json_add(&o, "class_weights", snug_setup_class_weights_json(setup));
    return o;
}

/* Where the files of a retrieval are. */
static void add_retrieval(json_t **files, const struct snug_args *args) {
    const char *const names[] = {"queries_file", "corpus_file", "relevance_file"};
    const char *const paths[] = {args->queries_file, args->corpus_file, args->relevance_file};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *real = realpath(paths[i], NULL);
        json_t *o = json_object();
        snug_json_add(&o, "path", snug_json_from_text(real ? real : paths[i]));
        snug_json_add(files, names[i], o);
        free(real);
    }
}

static json_t *describe(const struct snug_job *job) {
    const struct snug_setup *setup = &job->setup;
    const char *gpu = job->limits.device.usage.gpu.name;
    struct utsname system = {0};
    char name[3 * sizeof system.sysname];
    uname(&system);
    snprintf(name, sizeof name, "%s %s %s", system.sysname, system.release, system.machine);
    json_t *o = json_object(), *files = json_object();
    snug_json_add(&o, "program", json_string("snug"));
    snug_json_add(&o, "version", json_string(SNUG_VERSION));
    snug_json_add(&o, "system", snug_json_from_text(name));
    snug_json_add(&o, "compiler", json_string(__VERSION__));
    snug_json_add(&o, "device", snug_json_from_text(*gpu ? gpu : "CPU"));
    snug_json_add(&o, "seed", json_integer(setup->args->seed));
    snug_json_add(&o, "data", data_json(setup));
    snug_json_add(&files, "train_file", file_json(&setup->train));
    snug_json_add(&files, "validation_file", setup->judgements.queries ? json_null() : file_json(&setup->eval));
    if (setup->judgements.queries) add_retrieval(&files, setup->args);
    snug_json_add(&o, "files", files);
    snug_json_add(&o, "arguments", snug_args_json(setup->args));
    snug_json_add(&o, "given", snug_args_given_json(setup->args));
    return o;
}

snug_status snug_training_args_write(const struct snug_job *job, const struct snug_folder *folder) {
    json_t *description = describe(job);
    const snug_status status =
        description ? snug_json_write(job->ctx, folder, SNUG_TRAINING_ARGS, description)
                    : snug_fail(job->ctx, SNUG_E_MEMORY, "out of memory while writing " SNUG_TRAINING_ARGS);
    json_decref(description);
    return status;
}

/* ---- repeating -------------------------------------------------------------------------------------------------- */

static void compare_file(const struct snug_job *job, const json_t *files, const char *name,
                         const struct snug_data_source *source) {
    const json_t *saved = json_object_get(json_object_get(files, name), "xxh3_64");
    char here[17];
    if (!json_is_string(saved) || !source->dataset || source->bytes < 0) return;
    snprintf(here, sizeof here, "%016" PRIx64, source->digest);
    if (strcmp(here, json_string_value(saved)) == 0) return;
    snug_log(job->ctx, SNUG_LOG_WARNING, "--args_from %s: %s has another content than in that run",
             job->setup.args->args_from, snug_dataset_path(source->dataset));
}

snug_status snug_training_args_compare(const struct snug_job *job) {
    const char *path = job->setup.args->args_from;
    json_t *json;
    if (!path) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_read(job->ctx, NULL, path, &json));
    const json_t *files = json_object_get(json, "files");
    compare_file(job, files, "train_file", &job->setup.train);
    compare_file(job, files, "validation_file", &job->setup.eval);
    json_decref(json);
    return SNUG_OK;
}
