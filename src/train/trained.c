/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trained.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_file.h"
#include "io/folder.h"
#include "io/json.h"

snug_status snug_data_checksum(snug_context *ctx, const char *path, int64_t *bytes, uint64_t *digest) {
    struct stat info;
    int fd;
    *bytes = -1;
    /* A file of the name "-" may exist, and is not the data. */
    if (snug_data_is_stdin(path) || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return SNUG_OK;
    RETURN_IF_ERROR(snug_file_open(ctx, NULL, path, &fd));
    const snug_status status = snug_file_digest(ctx, fd, path, bytes, digest);
    close(fd);
    return status;
}

void snug_trained_free(struct snug_trained *trained) {
    snug_used_columns_free(&trained->columns);
    free(trained->label_separator);
    free(trained->missing_labels);
    free(trained->chat_date);
    free(trained->class_weights);
    *trained = (struct snug_trained){0};
}

static snug_status copy_text(snug_context *ctx, const json_t *value, char **out) {
    return json_is_string(value) ? snug_strdup(ctx, json_string_value(value), out) : SNUG_OK;
}

static snug_status read_weights(snug_context *ctx, const char *path, const json_t *weights, struct snug_trained *out) {
    const json_t *weight;
    size_t i;
    if (!json_is_array(weights)) return SNUG_OK;
    RETURN_IF_ERROR(
        snug_alloc(ctx, json_array_size(weights), sizeof *out->class_weights, (void **)&out->class_weights));
    out->classes = json_array_size(weights);
    json_array_foreach(weights, i, weight) {
        if (!json_is_number(weight) || !(json_number_value(weight) >= 0))
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: \"class_weights\" must be a list of numbers of at least 0: give --class_weights",
                             path);
        out->class_weights[i] = (float)json_number_value(weight);
    }
    return SNUG_OK;
}

static snug_status read_data(snug_context *ctx, const char *path, const json_t *data, struct snug_trained *out) {
    const json_t *texts = json_object_get(data, "text"), *text;
    const size_t count = json_array_size(texts);
    size_t i;
    RETURN_IF_ERROR(snug_json_int(ctx, path, data, "max_seq_length", 0, &out->max_seq_length));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, data, "pair", false, &out->columns.pair));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, data, "chat", false, &out->columns.chat));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, data, "completion_only_loss", true, &out->completion_only_loss));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, data, "assistant_only_loss", false, &out->assistant_only_loss));
    const bool is_list = !texts || json_is_null(texts) || json_is_array(texts);
    if (!is_list || out->max_seq_length < 0 || count > SNUG_TEXTS_MOST || (out->columns.pair && count != 2))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: \"data\" is not what a training writes: remove the file, and name columns and "
                         "--max_seq_length",
                         path);
    json_array_foreach(texts, i, text) {
        if (!json_is_string(text))
            return snug_fail(ctx, SNUG_E_INPUT, "%s: \"text\" must be a list of names of columns", path);
        RETURN_IF_ERROR(copy_text(ctx, text, &out->columns.text[i]));
        out->columns.texts = i + 1;
    }
    RETURN_IF_ERROR(copy_text(ctx, json_object_get(data, "delimiter"), &out->columns.delimiter));
    RETURN_IF_ERROR(copy_text(ctx, json_object_get(data, "label_separator"), &out->label_separator));
    RETURN_IF_ERROR(copy_text(ctx, json_object_get(data, "missing_label_values"), &out->missing_labels));
    RETURN_IF_ERROR(copy_text(ctx, json_object_get(data, "chat_template_date"), &out->chat_date));
    RETURN_IF_ERROR(read_weights(ctx, path, json_object_get(data, "class_weights"), out));
    return copy_text(ctx, json_object_get(data, "label"), &out->columns.label);
}

snug_status snug_trained_read(snug_context *ctx, const struct snug_folder *folder, struct snug_trained *out) {
    json_t *json;
    char *path = NULL;
    *out = (struct snug_trained){.completion_only_loss = true};
    if (!snug_file_exists(folder, SNUG_TRAINING_ARGS)) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_read(ctx, folder, SNUG_TRAINING_ARGS, &json));
    const char *program = json_string_value(json_object_get(json, "program"));
    snug_status status = snug_path_join(ctx, &path, folder->path, SNUG_TRAINING_ARGS);
    if (status == SNUG_OK && program && strcmp(program, "snug") == 0)
        status = read_data(ctx, path, json_object_get(json, "data"), out);
    free(path);
    json_decref(json);
    return status;
}
