/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch/listing.h"

#include <stdlib.h>
#include <string.h>

#include "hub/cache.h"
#include "io/json.h"

enum { FILES_MOST = 100000, FOLDERS_MOST = 16, SHARDS_MOST = 1024, NAME_MOST = 200 };

/* ---- names ---------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), own = strlen(end);
    return length > own && strcmp(name + length - own, end) == 0;
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool is_plain(const char *name) {
    static const char allowed[] = LETTERS "0123456789-_.";
    return *name != '.' && *name != '-' && strlen(name) <= NAME_MOST && strspn(name, allowed) == strlen(name);
}

bool snug_listing_is_weights(const char *name) { return is_plain(name) && ends_with(name, ".safetensors"); }

static bool is_of_model(const char *name) {
    static const char *const ends[] = {".safetensors", ".json", ".txt", ".model", ".jinja"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return is_plain(name);
    return false;
}

/* A module of sentence-transformers, such as 1_Pooling/config.json, or a chat template that has a name. */
static bool is_in_folder(const char *name) {
    const char *file = strchr(name, '/');
    const size_t digits = strspn(name, "0123456789");
    if (strcmp(name, "additional_chat_templates/tool_use.jinja") == 0) return true;
    if (!file || strlen(name) > NAME_MOST || !digits || name[digits] != '_' ||
        strspn(name + digits, LETTERS "_") != (size_t)(file - name) - digits)
        return false;
    return strcmp(file, "/config.json") == 0 || strcmp(file, "/model.safetensors") == 0;
}

/* ---- the list of files ---------------------------------------------------------------------------------------- */

static snug_status out_of_memory(snug_context *ctx) {
    return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while reading the list of files");
}

static snug_status add_to_folder(snug_context *ctx, const char *url, const char *name, struct snug_listing *out) {
    char folder[NAME_MOST + 1] = "";
    memcpy(folder, name, strcspn(name, "/"));
    json_t *list = json_object_get(out->folders, folder);
    if (!list) {
        if (json_object_size(out->folders) == FOLDERS_MOST)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: more than %d folders of modules are not those of a model", url,
                             FOLDERS_MOST);
        list = json_array();
        if (json_object_set_new(out->folders, folder, list)) return out_of_memory(ctx);
    }
    return json_array_append_new(list, json_string(name)) ? out_of_memory(ctx) : SNUG_OK;
}

static snug_status add_files(snug_context *ctx, const char *url, const json_t *siblings, struct snug_listing *out) {
    size_t i;
    json_t *sibling;
    if (json_array_size(siblings) > FILES_MOST)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: a list of more than %d files is not that of a model", url, FILES_MOST);
    json_array_foreach(siblings, i, sibling) {
        const char *name = json_string_value(json_object_get(sibling, "rfilename"));
        if (!name) return snug_fail(ctx, SNUG_E_INPUT, "%s: an entry of \"siblings\" has no \"rfilename\"", url);
        if (is_in_folder(name)) RETURN_IF_ERROR(add_to_folder(ctx, url, name, out));
        if (is_of_model(name) && json_object_set_new(out->files, name, json_true())) return out_of_memory(ctx);
    }
    return SNUG_OK;
}

snug_status snug_listing_read(snug_context *ctx, const char *url, const char *text, size_t size,
                              struct snug_listing *out) {
    json_t *json;
    const char *commit;
    RETURN_IF_ERROR(snug_json_read_text(ctx, url, text, size, &json));
    snug_listing_free(out);
    out->files = json_object();
    out->folders = json_object();
    snug_status status =
        out->files && out->folders ? snug_json_string(ctx, url, json, "sha", "", &commit) : out_of_memory(ctx);
    if (status == SNUG_OK && !snug_hub_is_commit(commit))
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: \"sha\" is not a commit of 40 hexadecimal digits", url);
    if (status == SNUG_OK) {
        memcpy(out->commit, commit, sizeof out->commit);
        status = add_files(ctx, url, json_object_get(json, "siblings"), out);
    }
    json_decref(json);
    return status;
}

bool snug_listing_has(const struct snug_listing *listing, const char *name) {
    return json_object_get(listing->files, name) != NULL;
}

void snug_listing_free(struct snug_listing *listing) {
    json_decref(listing->files);
    json_decref(listing->folders);
    listing->files = listing->folders = NULL;
}

/* ---- shards --------------------------------------------------------------------------------------------------- */

static snug_status add_shard(snug_context *ctx, const char *path, const char *tensor, const json_t *shard,
                             json_t *known, struct snug_shards *out) {
    const char *name = json_string_value(shard);
    if (!name || !snug_listing_is_weights(name))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: tensor %s: its shard must be the name of a .safetensors file in the same folder", path,
                         tensor);
    if (json_object_get(known, name)) return SNUG_OK;
    if (out->count == SHARDS_MOST)
        return snug_fail(ctx, SNUG_E_INPUT, "%s names more than %d shards", path, SHARDS_MOST);
    if (json_object_set_new(known, name, json_true()))
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
    out->names[out->count++] = name;
    return SNUG_OK;
}

snug_status snug_shards_read(snug_context *ctx, const struct snug_folder *in, const char *name,
                             struct snug_shards *out) {
    json_t *known = json_object(), *shard;
    const char *tensor;
    *out = (struct snug_shards){0};
    snug_status status = snug_json_read(ctx, in, name, &out->index);
    const json_t *map = json_object_get(out->index, "weight_map");
    if (status == SNUG_OK && json_object_size(map) == 0)
        status = snug_fail(ctx, SNUG_E_INPUT, SNUG_PATH ": needs \"weight_map\", the shard of each tensor",
                           SNUG_PATH_IN(in, name));
    if (status == SNUG_OK) status = snug_alloc(ctx, json_object_size(map), sizeof *out->names, (void **)&out->names);
    json_object_foreach((json_t *)(uintptr_t)map, tensor, shard) {
        if (status == SNUG_OK) status = add_shard(ctx, name, tensor, shard, known, out);
    }
    json_decref(known);
    if (status != SNUG_OK) snug_shards_free(out);
    return status;
}

void snug_shards_free(struct snug_shards *shards) {
    json_decref(shards->index);
    free(shards->names);
    *shards = (struct snug_shards){0};
}
