/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/cache.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/folder.h"

/* ---- names ---------------------------------------------------------------------------------------------------- */

#define LETTERS_AND_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool is_dash_or_dot(char c) { return c == '-' || c == '.'; }

/* huggingface_hub's validate_repo_id(). */
bool snug_hub_is_name(const char *name) {
    const size_t length = strlen(name);
    const char *slash = strchr(name, '/');
    if (length < 1 || length > 96 || strspn(name, LETTERS_AND_DIGITS "-_./") != length) return false;
    if (slash && (slash == name || !slash[1] || strchr(slash + 1, '/'))) return false;
    const char *own = slash ? slash + 1 : name;
    if (is_dash_or_dot(*own) || is_dash_or_dot(*name) || is_dash_or_dot(name[length - 1])) return false;
    return !strstr(name, "--") && !strstr(name, "..") && !(length > 4 && strcmp(name + length - 4, ".git") == 0);
}

bool snug_hub_is_commit(const char *text) { return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40; }

bool snug_hub_is_revision(const char *text) {
    if (strlen(text) > 255) return false;
    for (const char *part = text;; part++) {
        const size_t length = strcspn(part, "/");
        if (length == 0 || *part == '.' || memchr(part, '\\', length)) return false;
        for (size_t i = 0; i < length; i++)
            if ((unsigned char)part[i] <= ' ' || part[i] == 0x7f) return false;
        part += length;
        if (!*part) return true;
    }
}

bool snug_hub_is_true(const char *variable) {
    static const char *const values[] = {"1", "ON", "YES", "TRUE"};
    const char *value = getenv(variable);
    for (size_t i = 0; value && i < sizeof values / sizeof *values; i++)
        if (strcasecmp(value, values[i]) == 0) return true;
    return false;
}

/* ---- folders -------------------------------------------------------------------------------------------------- */

static snug_status expand_home(snug_context *ctx, const char *path, char **out) {
    const char *home = getenv("HOME");
    if (home && *home && *path == '~' && (path[1] == '/' || !path[1]))
        return snug_format(ctx, out, "%s%s", home, path + 1);
    return snug_strdup(ctx, path, out);
}

snug_status snug_hub_path_from(snug_context *ctx, const char *const variables[], size_t count, char **out) {
    *out = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value) return expand_home(ctx, value, out);
    }
    return SNUG_OK;
}

/* folder/name; takes folder. */
static snug_status append(snug_context *ctx, char *folder, const char *name, char **out) {
    const snug_status status = snug_path_join(ctx, out, folder, name);
    free(folder);
    return status;
}

snug_status snug_hub_home(snug_context *ctx, char **out) {
    static const char *const own[] = {"HF_HOME"}, *const user[] = {"XDG_CACHE_HOME"};
    RETURN_IF_ERROR(snug_hub_path_from(ctx, own, 1, out));
    if (*out) return SNUG_OK;
    RETURN_IF_ERROR(snug_hub_path_from(ctx, user, 1, out));
    return *out ? append(ctx, *out, "huggingface", out) : expand_home(ctx, "~/.cache/huggingface", out);
}

snug_status snug_hub_cache(snug_context *ctx, const struct snug_hub_place *place, char **out) {
    static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"};
    if (place->cache_dir) return expand_home(ctx, place->cache_dir, out);
    RETURN_IF_ERROR(snug_hub_path_from(ctx, variables, 2, out));
    if (*out) return SNUG_OK;
    RETURN_IF_ERROR(snug_hub_home(ctx, out));
    return append(ctx, *out, "hub", out);
}

snug_status snug_hub_folder_name(snug_context *ctx, const char *name, char **out) {
    static const char prefix[] = "models--";
    RETURN_IF_ERROR(snug_alloc(ctx, sizeof prefix + 2 * strlen(name), 1, (void **)out));
    char *to = stpcpy(*out, prefix);
    for (; *name; name++) to = stpcpy(to, *name == '/' ? "--" : (char[]){*name, '\0'});
    return SNUG_OK;
}

/* ---- looking up ----------------------------------------------------------------------------------------------- */

/* The commit that refs/REVISION of a model's folder names; NULL if there is no such file. */
static snug_status read_ref(snug_context *ctx, const char *model, const char *revision, char **commit) {
    char *path;
    size_t size;
    *commit = NULL;
    RETURN_IF_ERROR(snug_format(ctx, &path, "%s/refs/%s", model, revision));
    snug_status status = snug_file_exists(NULL, path) ? snug_file_read(ctx, NULL, path, commit, &size) : SNUG_OK;
    if (status == SNUG_OK && *commit) {
        (*commit)[strcspn(*commit, " \r\n")] = '\0';
        if (**commit == '.' || strchr(*commit, '/')) /* a commit, which cannot be a path */
            status = snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" is not the name of a snapshot", path, *commit);
    }
    free(path);
    return status;
}

static snug_status find_in(snug_context *ctx, const char *model, const char *revision, char **folder) {
    char *commit = NULL;
    snug_status status =
        snug_hub_is_commit(revision) ? snug_strdup(ctx, revision, &commit) : read_ref(ctx, model, revision, &commit);
    if (status == SNUG_OK && commit) status = snug_format(ctx, folder, "%s/snapshots/%s", model, commit);
    free(commit);
    if (status != SNUG_OK || !*folder || snug_folder_exists(*folder)) return status;
    free(*folder);
    *folder = NULL;
    return SNUG_OK;
}

snug_status snug_hub_find(snug_context *ctx, const struct snug_hub_place *place, const char *name, char **folder) {
    const char *revision = place->revision ? place->revision : "main";
    char *cache = NULL, *own = NULL, *model = NULL;
    *folder = NULL;
    if (!snug_hub_is_revision(revision))
        return snug_fail(ctx, SNUG_E_USAGE, "--model_revision %s is not the name of a branch, a tag or a commit",
                         revision);
    snug_status status = snug_hub_cache(ctx, place, &cache);
    if (status == SNUG_OK) status = snug_hub_folder_name(ctx, name, &own);
    if (status == SNUG_OK) status = snug_path_join(ctx, &model, cache, own);
    if (status == SNUG_OK) status = find_in(ctx, model, revision, folder);
    free(cache);
    free(own);
    free(model);
    return status;
}
