/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes the folder of a trained sentence embedding one of sentence-transformers: its list of modules, its
 * settings, and a folder for each module after the transformer, with a manifest of its own. Checkpoints have none of
 * it: there the modules' linears are among the model's weights.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/save.h"
#include "io/folder_write.h"
#include "io/json.h"
#include "model/sentence.h"
#include "train/session.h"

#define POOLING "1_Pooling"

static snug_status write_json(struct snug_session *s, const struct snug_folder *folder, const char *name,
                              json_t *json) {
    if (!json) return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while writing %s", name);
    const snug_status status = snug_json_write(s->ctx, folder, name, json);
    json_decref(json);
    return status;
}

static void add_module(json_t **list, size_t index, const char *path, const char *class) {
    char name[24], type[64];
    json_t *o = json_object();
    snprintf(name, sizeof name, "%zu", index);
    snprintf(type, sizeof type, "sentence_transformers.models.%s", class);
    snug_json_add(&o, "idx", json_integer((json_int_t)index));
    snug_json_add(&o, "name", json_string(name));
    snug_json_add(&o, "path", json_string(path));
    snug_json_add(&o, "type", json_string(type));
    snug_json_append(list, o);
}

static json_t *list_modules(const struct snug_sentence *sentence) {
    json_t *list = json_array();
    add_module(&list, 0, "", "Transformer");
    add_module(&list, 1, POOLING, "Pooling");
    for (int i = 0; i < sentence->count; i++)
        add_module(&list, (size_t)i + 2, sentence->modules[i].folder,
                   sentence->modules[i].dense ? "Dense" : "Normalize");
    return list;
}

/* The model's own settings, with the defaults of what they lack. */
static json_t *settings_of(const struct snug_sentence *sentence) {
    json_t *o = json_deep_copy(sentence->settings);
    if (!json_object_get(o, "prompts")) snug_json_add(&o, "prompts", json_object());
    if (!json_object_get(o, "default_prompt_name")) snug_json_add(&o, "default_prompt_name", json_null());
    if (!json_object_get(o, "similarity_fn_name")) snug_json_add(&o, "similarity_fn_name", json_string("cosine"));
    return o;
}

/* By the keys of all versions: before 6 there is a switch for each mode. */
static json_t *describe_pooling(const struct snug_session *s) {
    const struct snug_sentence *sentence = s->job.setup.config.sentence;
    json_t *o = json_object();
    snug_json_add(&o, "word_embedding_dimension", json_integer(s->job.setup.config.hidden_size));
    for (int i = 0; snug_pooling_key(i); i++)
        snug_json_add(&o, snug_pooling_key(i), json_boolean(snug_pooling_of(i) == sentence->pooling));
    snug_json_add(&o, "pooling_mode_max_tokens", json_false());
    snug_json_add(&o, "include_prompt", json_boolean(!sentence->without_prompt));
    return o;
}

static json_t *describe_dense(const struct snug_sentence_module *m) {
    json_t *o = json_object();
    snug_json_add(&o, "in_features", json_integer(m->in));
    snug_json_add(&o, "out_features", json_integer(m->out));
    snug_json_add(&o, "bias", json_boolean(m->bias));
    snug_json_add(&o, "activation_function", json_string(snug_dense_activation(m)));
    return o;
}

/* module NULL: the pooling. */
static snug_status write_module(struct snug_session *s, const struct snug_folder *folder,
                                const struct snug_sentence_module *module) {
    const bool dense = module && module->dense;
    json_t *json = !module ? describe_pooling(s) : dense ? describe_dense(module) : json_object();
    RETURN_IF_ERROR(write_json(s, folder, "config.json", json));
    if (!dense) return SNUG_OK;
    char prefix[sizeof module->folder + 8];
    snprintf(prefix, sizeof prefix, "%s.", module->folder);
    return snug_module_save(s->ctx, NULL, folder, SNUG_WEIGHTS, &s->job.plan.programs[0].program, &s->memory, prefix);
}

static const char *folder_of(const struct snug_sentence_module *module) { return module ? module->folder : POOLING; }

static snug_status write_folder(struct snug_session *s, const struct snug_output *output,
                                const struct snug_sentence_module *module) {
    struct snug_folder folder;
    RETURN_IF_ERROR(snug_folder_begin(s->ctx, &output->folder, folder_of(module), &folder));
    const snug_status status = write_module(s, &folder, module);
    if (status == SNUG_OK)
        return snug_folder_commit(s->ctx, &output->folder, folder_of(module), &folder, &output->from);
    snug_folder_abandon(&output->folder, &folder);
    return status;
}

static bool has_folder(const struct snug_session *s) { return s->job.setup.config.sentence && !s->job.setup.lora; }

size_t snug_session_list_sentence(const struct snug_session *s, const char **names) {
    if (!has_folder(s)) return 0;
    names[0] = SNUG_SENTENCE_LIST;
    names[1] = SNUG_SENTENCE_LENGTH;
    names[2] = SNUG_SENTENCE_SETTINGS;
    return 3;
}

snug_status snug_session_check_sentence(const struct snug_session *s, const struct snug_output *output) {
    const struct snug_sentence *sentence = s->job.setup.config.sentence;
    if (!has_folder(s) || !output->folder.path) return SNUG_OK;
    for (int i = -1; i < sentence->count; i++) {
        const char *name = folder_of(i < 0 ? NULL : &sentence->modules[i]);
        const snug_status status = snug_manifest_claim(s->ctx, &output->folder, name, NULL, NULL);
        if (status != SNUG_END) RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

snug_status snug_session_write_sentence(struct snug_session *s, const struct snug_output *output) {
    const struct snug_sentence *sentence = s->job.setup.config.sentence;
    if (!has_folder(s)) return SNUG_OK;
    for (int i = -1; i < sentence->count; i++)
        RETURN_IF_ERROR(write_folder(s, output, i < 0 ? NULL : &sentence->modules[i]));
    json_t *length = json_object();
    snug_json_add(&length, "max_seq_length", json_integer(s->job.setup.max_length));
    snug_json_add(&length, "do_lower_case", json_false());
    RETURN_IF_ERROR(write_json(s, &output->folder, SNUG_SENTENCE_LENGTH, length));
    RETURN_IF_ERROR(write_json(s, &output->folder, SNUG_SENTENCE_SETTINGS, settings_of(sentence)));
    return write_json(s, &output->folder, SNUG_SENTENCE_LIST, list_modules(sentence));
}
