/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weight_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json.h"
#include "model/bitsandbytes.h"

/* ---- names ------------------------------------------------------------------------------------------------------ */

bool snug_weight_files_has(const char *name) {
    if (strcmp(name, SNUG_WEIGHTS) == 0 || strcmp(name, SNUG_WEIGHTS_INDEX) == 0) return true;
    static const char *const ends[] = {".safetensors", ".new.safetensors"};
    for (const char *pattern = "model-#####-of-#####"; *pattern; pattern++, name++)
        if (*pattern == '#' ? *name < '0' || *name > '9' : *name != *pattern) return false;
    return !strcmp(name, ends[0]) || !strcmp(name, ends[1]);
}

void snug_weight_files_name(const struct snug_weight_files *files, size_t number, char name[SNUG_WEIGHT_FILE_NAME]) {
    if (files->count == 1)
        snprintf(name, SNUG_WEIGHT_FILE_NAME, SNUG_WEIGHTS);
    else
        snprintf(name, SNUG_WEIGHT_FILE_NAME, "model-%05zu-of-%05zu.safetensors", number + 1, files->count);
}

void snug_weight_files_other_name(const struct snug_weight_files *files, size_t number,
                                  char name[SNUG_WEIGHT_FILE_NAME]) {
    snprintf(name, SNUG_WEIGHT_FILE_NAME, "model-%05zu-of-%05zu.new.safetensors", number + 1, files->count);
}

size_t snug_weight_files_list(const struct snug_weight_files *files, char (*names)[SNUG_WEIGHT_FILE_NAME],
                              const char **list) {
    size_t n = 0;
    for (size_t i = 0; i < files->count; i++) {
        snug_weight_files_name(files, i, names[n]);
        list[n] = names[n];
        n++;
    }
    for (size_t i = 0; i < files->count && files->count > 1; i++) {
        snug_weight_files_other_name(files, i, names[n]);
        list[n] = names[n];
        n++;
    }
    if (files->count > 1) list[n++] = SNUG_WEIGHTS_INDEX;
    return n;
}

/* ---- which parameter is in which file --------------------------------------------------------------------------- */

static int64_t bytes_of(const struct snug_program *program, const struct snug_parameter *parameter) {
    const struct snug_quantized *form = &program->tensors[parameter->tensor].quantized;
    if (form->type) return snug_codes_saved_bytes(form);
    return snug_parameter_count(parameter) * snug_dtype_size(snug_weight_dtype(program, parameter)) *
           (parameter->also ? 2 : 1);
}

/* A tensor of more than `most` bytes gets a file between those that are filled in turn, as in
   split_torch_state_dict_into_shards(). */
snug_status snug_weight_files_plan(const struct snug_program *program, int64_t most, struct snug_weight_files *out) {
    int64_t filled = 0;
    size_t current = SIZE_MAX; /* the file that is being filled: none */
    *out = (struct snug_weight_files){0};
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->parameter_count, sizeof *out->file_of, (void **)&out->file_of));
    for (size_t i = 0; i < program->parameter_count; i++) {
        const int64_t bytes = bytes_of(program, &program->parameters[i]);
        const bool large = bytes > most;
        out->bytes += bytes;
        if (!large && (current == SIZE_MAX || filled + bytes > most)) {
            current = out->count++;
            filled = 0;
        }
        out->file_of[i] = large ? out->count++ : current;
        if (!large) filled += bytes;
    }
    return SNUG_OK;
}

void snug_weight_files_free(struct snug_weight_files *files) {
    free(files->file_of);
    *files = (struct snug_weight_files){0};
}

/* ---- the index -------------------------------------------------------------------------------------------------- */

/* The names of the tensors that a quantized parameter is saved as. */
static snug_status list_codes(const struct snug_program *program, const struct snug_parameter *parameter,
                              const char *file, json_t **map) {
    struct snug_codes_saved saved;
    RETURN_IF_ERROR(
        snug_codes_save(program->ctx, parameter, &program->tensors[parameter->tensor].quantized, 0, &saved));
    for (int i = 0; i < saved.count; i++) snug_json_add(map, saved.parts[i].name, json_string(file));
    return SNUG_OK;
}

snug_status snug_weight_files_index(const struct snug_program *program, const struct snug_weight_files *files,
                                    bool others, const struct snug_folder *in) {
    json_t *map = json_object();
    int64_t values = 0;
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *parameter = &program->parameters[i];
        char name[SNUG_WEIGHT_FILE_NAME];
        if (others)
            snug_weight_files_other_name(files, files->file_of[i], name);
        else
            snug_weight_files_name(files, files->file_of[i], name);
        values += snug_parameter_count(parameter);
        if (program->tensors[parameter->tensor].quantized.type && status == SNUG_OK)
            status = list_codes(program, parameter, name, &map);
        snug_json_add(&map, parameter->name, json_string(name));
        if (parameter->also) snug_json_add(&map, parameter->also, json_string(name));
    }
    json_t *index = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", (json_int_t)values, "total_size",
                              (json_int_t)files->bytes, "weight_map", map);
    if (status == SNUG_OK)
        status = index ? snug_json_write(program->ctx, in, SNUG_WEIGHTS_INDEX, index)
                       : snug_fail(program->ctx, SNUG_E_MEMORY, "out of memory while listing the files of weights");
    json_decref(index);
    return status;
}
