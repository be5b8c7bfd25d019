/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments as JSON: a file of the scripts ({"learning_rate": 5e-5, …}), and what training_args.json holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/edit_distance.h"
#include "io/json.h"
#include "train/args_table.h"

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

/* A value as on the command line: lists joined by commas, objects as JSON. */
static snug_status text_of(snug_context *ctx, const json_t *value, char **out) {
    json_t *item;
    size_t i;
    if (json_is_string(value)) return snug_strdup(ctx, json_string_value(value), out);
    if (json_is_boolean(value)) return snug_strdup(ctx, json_is_true(value) ? "True" : "False", out);
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

/* given NULL: all were. Other values are those of a run, which may have been defaults. */
static snug_status read_arguments(struct snug_args *args, json_t *arguments, const json_t *given) {
    const char *name;
    json_t *value;
    json_object_foreach(arguments, name, value) {
        char *text = NULL;
        if (json_is_null(value)) continue;
        snug_status status = text_of(args->ctx, value, &text);
        if (status == SNUG_OK)
            status = !given || is_listed(given, name) ? snug_args_set(args, name, text)
                                                      : snug_args_restore(args, name, text);
        free(text);
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

/* Older names that set another argument: warmup_ratio is a given warmup_steps. */
static snug_status mark_given(struct snug_args *args, const json_t *given) {
    json_t *item;
    size_t i;
    json_array_foreach(given, i, item) {
        if (json_is_string(item)) RETURN_IF_ERROR(snug_args_mark(args, json_string_value(item)));
    }
    return SNUG_OK;
}

snug_status snug_args_read(struct snug_args *args, const char *path) {
    json_t *json;
    RETURN_IF_ERROR(snug_json_read(args->ctx, NULL, path, &json));
    json_t *arguments = json_object_get(json, "arguments"), *given = json_object_get(json, "given");
    snug_status status = json_is_object(arguments) && json_is_array(given) ? read_arguments(args, arguments, given)
                                                                           : read_arguments(args, json, NULL);
    if (status == SNUG_OK && json_is_object(arguments)) status = mark_given(args, given);
    json_decref(json);
    return status == SNUG_OK ? SNUG_OK : snug_add_to_error(args->ctx, status, " (in %s)", path);
}
