/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments as JSON: a file of the scripts ({"learning_rate": 5e-5, …}), and what training_args.json holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args/table.h"
#include "core/edit_distance.h"
#include "io/json.h"

/* ---- to JSON ----------------------------------------------------------------------------------------------------- */

static json_t *value_of(const struct snug_args *args, const struct snug_argument *argument) {
    static const char *const intervals[] = {"no", "steps", "epoch", "best"};
    const void *field = (const char *)args + argument->offset;
    const char *text;
    switch (argument->type) {
    case SNUG_ARG_BOOL: return json_boolean(*(const bool *)field);
    case SNUG_ARG_INT: return json_integer(*(const int64_t *)field);
    case SNUG_ARG_REAL: return snug_json_number(*(const double *)field);
    case SNUG_ARG_INTERVAL: return json_string(intervals[*(const enum snug_interval *)field]);
    default: break;
    }
    text = *(char *const *)field;
    return text ? snug_json_from_text(text) : json_null();
}

/* Where arguments came from, and how a run was resumed, are not recorded: a resumed run and a repeated one give the
   same file. */
static bool is_recorded(const char *name) {
    return strcmp(name, "args_from") != 0 && strcmp(name, "resume_from_checkpoint") != 0;
}

json_t *snug_args_json(const struct snug_args *args) {
    json_t *o = json_object();
    for (size_t i = 0; i < snug_argument_count; i++)
        if (is_recorded(snug_arguments[i].info.name))
            snug_json_add(&o, snug_arguments[i].info.name, value_of(args, &snug_arguments[i]));
    return o;
}

json_t *snug_args_given_json(const struct snug_args *args) {
    json_t *list = json_array();
    char name[SNUG_EDIT_SIZE];
    for (const char *at = args->set_names; at && *at;) {
        const size_t length = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (is_recorded(name)) snug_json_append(&list, json_string(name));
        at += length + (at[length] == ' ');
    }
    return list;
}

/* ---- from JSON --------------------------------------------------------------------------------------------------- */

/* A value as on the command line: lists joined by commas, objects as JSON, whole numbers without a point. */
static snug_status text_of(snug_context *ctx, const json_t *value, char **out) {
    json_t *item;
    size_t i;
    if (json_is_string(value)) return snug_strdup(ctx, json_string_value(value), out);
    if (json_is_boolean(value)) return snug_strdup(ctx, json_is_true(value) ? "True" : "False", out);
    if (json_is_real(value)) {
        json_t *number = snug_json_number(json_real_value(value));
        const snug_status status = snug_json_text(ctx, number, JSON_ENCODE_ANY, out);
        json_decref(number);
        return status;
    }
    if (!json_is_array(value)) return snug_json_text(ctx, value, JSON_ENCODE_ANY | JSON_COMPACT, out);
    RETURN_IF_ERROR(snug_strdup(ctx, "", out));
    json_array_foreach(value, i, item) {
        char *part = NULL, *longer = NULL;
        snug_status status = text_of(ctx, item, &part);
        if (status == SNUG_OK) status = snug_format(ctx, &longer, "%s%s%s", *out, i ? "," : "", part);
        free(part);
        free(*out);
        *out = longer;
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

static bool is_listed(const json_t *list, const char *name) {
    json_t *item;
    size_t i;
    json_array_foreach(list, i, item) {
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0) return true;
    }
    return false;
}

/* What a command would refuse of a training's arguments, and what the trained model's folder has itself. */
static bool is_left_out(const struct snug_args *args, const char *name) {
    static const char *const of_model[] = {"config_name", "class_weights", "validation_split_percentage"};
    if (!args->command || !snug_args_refuses(args->command, "train_file")) return false;
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model; i++)
        if (strcmp(name, of_model[i]) == 0) return true;
    return snug_args_refuses(args->command, name);
}

/* given NULL: all were. Other values are those of a run, which may have been defaults. */
static snug_status read_argument(struct snug_args *args, const char *name, const json_t *value, const json_t *given) {
    char *text = NULL;
    snug_status status = text_of(args->ctx, value, &text);
    if (status == SNUG_OK)
        status =
            !given || is_listed(given, name) ? snug_args_assign(args, name, text) : snug_args_restore(args, name, text);
    free(text);
    return status;
}

/* Dumps have an argument under its old and its new name, and one of them was edited: the other one, with its default,
   does not count. */
static snug_status compare_names(struct snug_args *args, json_t *arguments, const char *name, const json_t *value) {
    const bool asks = !snug_args_has_default(args, name);
    const char *other;
    json_t *its;
    json_object_foreach(arguments, other, its) {
        if (json_is_null(its) || json_equal(its, value) || !snug_args_is_alias(name, other)) continue;
        RETURN_IF_ERROR(read_argument(args, other, its, NULL));
        if (snug_args_has_default(args, other))
            RETURN_IF_ERROR(read_argument(args, name, value, NULL));
        else if (asks)
            return snug_fail(args->ctx, SNUG_E_USAGE, "--%s and --%s are both given: leave one out", name, other);
    }
    return SNUG_OK;
}

static snug_status read_arguments(struct snug_args *args, json_t *arguments, const json_t *given) {
    const char *name;
    json_t *value;
    json_object_foreach(arguments, name, value) {
        if (is_left_out(args, name)) continue;
        if (json_is_null(value)) {
            RETURN_IF_ERROR(snug_args_check_name(args, name));
            continue;
        }
        RETURN_IF_ERROR(read_argument(args, name, value, given));
        RETURN_IF_ERROR(compare_names(args, arguments, name, value));
    }
    return SNUG_OK;
}

/* Older names that set another argument: warmup_ratio is a given warmup_steps. */
static snug_status mark_given(struct snug_args *args, const json_t *given) {
    json_t *item;
    size_t i;
    json_array_foreach(given, i, item) {
        if (json_is_string(item) && !is_left_out(args, json_string_value(item)))
            RETURN_IF_ERROR(snug_args_mark(args, json_string_value(item)));
    }
    return SNUG_OK;
}

/* From another folder than the run's, its data files have the paths that the run recorded. */
static snug_status find_data(struct snug_args *args, const json_t *files) {
    const struct {
        const char *name, *path;
    } data[] = {{"train_file", args->train_file},
                {"validation_file", args->validation_file},
                {"queries_file", args->queries_file},
                {"corpus_file", args->corpus_file},
                {"relevance_file", args->relevance_file}};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        const char *recorded = json_string_value(json_object_get(json_object_get(files, data[i].name), "path"));
        if (!data[i].path || access(data[i].path, F_OK) == 0 || !recorded || access(recorded, F_OK) != 0) continue;
        snug_log(args->ctx, SNUG_LOG_INFO, "--args_from: there is no %s here: --%s is %s", data[i].path, data[i].name,
                 recorded);
        RETURN_IF_ERROR(snug_args_restore(args, data[i].name, recorded));
    }
    return SNUG_OK;
}

static snug_status read_file(struct snug_args *args, json_t *json) {
    json_t *arguments = json_object_get(json, "arguments"), *given = json_object_get(json, "given");
    const bool of_run = json_is_object(arguments) && json_is_array(given);
    RETURN_IF_ERROR(read_arguments(args, of_run ? arguments : json, of_run ? given : NULL));
    if (of_run) RETURN_IF_ERROR(mark_given(args, given));
    return find_data(args, json_object_get(json, "files"));
}

snug_status snug_args_read(struct snug_args *args, const char *path) {
    json_t *json;
    RETURN_IF_ERROR(snug_json_read(args->ctx, NULL, path, &json));
    args->file = path;
    const snug_status status = read_file(args, json);
    args->file = NULL;
    json_decref(json);
    if (status == SNUG_OK && args->without_effect)
        snug_log(args->ctx, SNUG_LOG_INFO, "%s: Hugging Face arguments without effect in snug: %s", path,
                 args->without_effect);
    free(args->without_effect);
    args->without_effect = NULL;
    return status == SNUG_OK ? SNUG_OK : snug_add_to_error(args->ctx, status, " (in %s)", path);
}
