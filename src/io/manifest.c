/* SPDX-License-Identifier: Apache-2.0 */
#include "io/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/folder.h"
#include "io/json.h"

enum { VERSION = 2 };
static const char sum_key[] = "xxh3_64";

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* Whether it is a name in the same folder: no path, and not the manifest itself. */
static bool is_file_name(const char *name) {
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strcmp(name, SNUG_MANIFEST) != 0;
}

static bool read_run(const json_t *json, uint64_t *run) {
    const char *text = json_string_value(json_object_get(json, "run"));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
    *run = strtoull(text, NULL, 16);
    return true;
}

/* The checksum of a manifest without its checksum member. False when out of memory. */
static bool sum_of(const json_t *json, char hex[17]) {
    char *text = snug_json_dump(json, JSON_COMPACT | JSON_SORT_KEYS);
    if (text) snprintf(hex, 17, "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
    const bool dumped = text;
    free(text);
    return dumped;
}

/* Removes the checksum from the manifest and compares it with the checksum of the rest. */
static snug_status check_sum(snug_context *ctx, json_t *json, bool *same) {
    char sum[17] = "", hex[17];
    const char *text = json_string_value(json_object_get(json, sum_key));
    if (text) snprintf(sum, sizeof sum, "%s", text);
    json_object_del(json, sum_key);
    if (!sum_of(json, hex)) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while checking " SNUG_MANIFEST);
    *same = strcmp(sum, hex) == 0;
    return SNUG_OK;
}

/* Why json is not a valid manifest of snug; NULL if it is. */
static const char *problem_of(const json_t *json, struct snug_manifest *out) {
    const json_t *files = json_object_get(json, "files"), *program = json_object_get(json, "program");
    const char *name;
    json_t *entry;
    if (!json_is_string(program) || strcmp(json_string_value(program), "snug") != 0)
        return "was not written by this version of snug";
    if (json_integer_value(json_object_get(json, "version")) != VERSION) return "\"version\" must be 2";
    if (!read_run(json, &out->from.run)) return "\"run\" must be 16 hexadecimal digits";
    if (!json_is_integer(json_object_get(json, "started"))) return "\"started\" must be a number of seconds";
    if (!json_is_object(files)) return "\"files\" must be an object that lists the files";
    json_object_foreach((json_t *)(uintptr_t)files, name, entry) {
        if (!is_file_name(name)) return "\"files\" must hold names of files in the same folder";
        if (!json_is_null(entry) && !json_is_object(entry)) return "\"files\" must give a size and a checksum each";
    }
    out->from.started = json_integer_value(json_object_get(json, "started"));
    return NULL;
}

snug_status snug_manifest_read(snug_context *ctx, const struct snug_folder *folder, struct snug_manifest *out) {
    *out = (struct snug_manifest){0};
    const char *kind = snug_entry_kind(folder, SNUG_MANIFEST);
    json_t *json = NULL;
    if (!kind || strcmp(kind, "a file") != 0) {
        snprintf(out->problem, sizeof out->problem, kind ? "its %s is %s" : "it has no %s: writing it was not finished",
                 SNUG_MANIFEST, kind);
        return SNUG_OK;
    }
    bool same = true;
    snug_status status = snug_json_read(ctx, folder, SNUG_MANIFEST, &json);
    if (status == SNUG_E_MEMORY) return status;
    if (status != SNUG_OK) {
        snprintf(out->problem, sizeof out->problem, "its manifest cannot be read: %s", snug_context_message(ctx));
        snug_clear_error(ctx);
        return SNUG_OK;
    }
    const char *problem = problem_of(json, out);
    if (!problem) status = check_sum(ctx, json, &same);
    if (!same) problem = "its checksum differs";
    if (problem)
        snprintf(out->problem, sizeof out->problem, "its %s: %s", SNUG_MANIFEST, problem);
    else if (status == SNUG_OK)
        out->files = json_incref(json_object_get(json, "files"));
    json_decref(json);
    return status;
}

void snug_manifest_free(struct snug_manifest *manifest) {
    json_decref(manifest->files);
    *manifest = (struct snug_manifest){0};
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

/* Size and XXH3-64 of a regular file; with sync, its content is on the disk afterwards. */
static snug_status digest_of(snug_context *ctx, const struct snug_folder *folder, const char *name, bool sync,
                             int64_t *size, char hex[17]) {
    int fd;
    uint64_t digest = 0;
    RETURN_IF_ERROR(snug_file_open(ctx, folder, name, &fd));
    snug_status status = snug_file_digest(ctx, fd, name, size, &digest);
    if (status == SNUG_OK && sync && fsync(fd))
        status =
            snug_fail(ctx, SNUG_E_IO, "cannot sync " SNUG_PATH ": %s", SNUG_PATH_IN(folder, name), strerror(errno));
    close(fd);
    snprintf(hex, 17, "%016llx", (unsigned long long)digest);
    return status;
}

snug_status snug_manifest_add(snug_context *ctx, json_t *files, const struct snug_folder *folder, const char *name) {
    int64_t size;
    char hex[17];
    RETURN_IF_ERROR(digest_of(ctx, folder, name, true, &size, hex));
    json_t *entry = json_pack("{s:I, s:s}", "size", (json_int_t)size, "xxh3_64", hex);
    if (json_object_set_new(files, name, entry) == 0) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_MEMORY, "cannot list " SNUG_PATH " in its manifest: out of memory, or not UTF-8",
                     SNUG_PATH_IN(folder, name));
}

snug_status snug_manifest_write(snug_context *ctx, const struct snug_folder *folder, json_t *files,
                                const struct snug_provenance *from) {
    char run[17];
    snprintf(run, sizeof run, "%016llx", (unsigned long long)from->run);
    json_t *manifest = json_pack("{s:s, s:i, s:s, s:I, s:O}", "program", "snug", "version", VERSION, "run", run,
                                 "started", (json_int_t)from->started, "files", files);
    char sum[17];
    if (manifest && sum_of(manifest, sum))
        snug_json_add(&manifest, sum_key, json_string(sum));
    else {
        json_decref(manifest);
        manifest = NULL;
    }
    const snug_status status = manifest ? snug_json_write(ctx, folder, SNUG_MANIFEST, manifest)
                                        : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while writing " SNUG_PATH,
                                                    SNUG_PATH_IN(folder, SNUG_MANIFEST));
    json_decref(manifest);
    return status;
}

/* ---- ownership --------------------------------------------------------------------------------------------------- */

snug_status snug_manifest_covers(snug_context *ctx, const struct snug_folder *folder,
                                 const struct snug_manifest *manifest, bool *covers, char unlisted[256]) {
    DIR *entries = snug_folder_entries(folder);
    int error = entries ? 0 : errno;
    *covers = true;
    for (struct dirent *entry; entries && *covers && (errno = 0, entry = readdir(entries));) {
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, SNUG_MANIFEST)) continue;
        const char *kind = snug_entry_kind(folder, name);
        *covers = json_object_get(manifest->files, name) && (!kind || strcmp(kind, "a file") == 0);
        if (!*covers) snprintf(unlisted, 256, "%s", name);
    }
    if (entries && *covers) error = errno;
    if (entries) closedir(entries);
    if (!error) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_IO, "cannot read folder %s: %s", folder->path, strerror(error));
}

static snug_status claim_opened(snug_context *ctx, const struct snug_folder *folder, struct snug_manifest *manifest) {
    bool covers;
    char unlisted[256];
    RETURN_IF_ERROR(snug_manifest_read(ctx, folder, manifest));
    if (*manifest->problem)
        return snug_fail(ctx, SNUG_E_IO, "%s was not made by snug (%s): move it, or give another --output_dir",
                         folder->path, manifest->problem);
    RETURN_IF_ERROR(snug_manifest_covers(ctx, folder, manifest, &covers, unlisted));
    if (covers) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_IO, "%s/%s was not made by snug: move it out of the checkpoint", folder->path,
                     unlisted);
}

snug_status snug_manifest_claim(snug_context *ctx, const struct snug_folder *in, const char *name,
                                struct snug_folder *folder, struct snug_manifest *manifest) {
    struct snug_folder opened = {0};
    struct snug_manifest read = {0};
    const char *kind = snug_entry_kind(in, name);
    if (!kind) return SNUG_END;
    if (strcmp(kind, "a folder") != 0)
        return snug_fail(ctx, SNUG_E_IO,
                         SNUG_PATH " is %s, which snug did not make: move it, or give another --output_dir",
                         SNUG_PATH_IN(in, name), kind);
    RETURN_IF_ERROR(snug_folder_open(ctx, in, name, &opened));
    const snug_status status = claim_opened(ctx, &opened, &read);
    if (status == SNUG_OK && folder) {
        *folder = opened;
        opened = (struct snug_folder){0};
    }
    if (status == SNUG_OK && manifest) {
        *manifest = read;
        read = (struct snug_manifest){0};
    }
    snug_folder_close(&opened);
    snug_manifest_free(&read);
    return status;
}

/* ---- verifying ------------------------------------------------------------------------------------------------ */

snug_status snug_manifest_verify_file(snug_context *ctx, const struct snug_folder *folder, const char *name,
                                      const json_t *entry) {
    struct stat info;
    char hex[17];
    const char *expected = json_string_value(json_object_get(entry, "xxh3_64"));
    const int64_t expected_size = json_integer_value(json_object_get(entry, "size"));
    if (!expected)
        return snug_fail(ctx, SNUG_E_INPUT,
                         SNUG_PATH " was not written completely: " SNUG_MANIFEST " has no checksum of it",
                         SNUG_PATH_IN(folder, name));
    if (fstatat(folder->fd, name, &info, AT_SYMLINK_NOFOLLOW))
        return snug_fail(ctx, SNUG_E_INPUT, SNUG_PATH " is missing, but " SNUG_MANIFEST " lists it",
                         SNUG_PATH_IN(folder, name));
    int64_t size = info.st_size; /* the size differs: a sparse file of exabytes is not read */
    if (!S_ISREG(info.st_mode) || size == expected_size)
        RETURN_IF_ERROR(digest_of(ctx, folder, name, false, &size, hex));
    if (size != expected_size)
        return snug_fail(ctx, SNUG_E_INPUT, SNUG_PATH " is damaged: it has %lld bytes, " SNUG_MANIFEST " says %lld",
                         SNUG_PATH_IN(folder, name), (long long)size, (long long)expected_size);
    if (strcmp(hex, expected) == 0) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT, SNUG_PATH " is damaged: its checksum is %s, " SNUG_MANIFEST " says %s",
                     SNUG_PATH_IN(folder, name), hex, expected);
}

/* Whether the manifest lists one of the names, which '|' separates. */
static bool lists_one(const struct snug_manifest *manifest, const char *names) {
    for (size_t length;; names += length + 1) {
        char name[NAME_MAX + 1];
        length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (json_object_get(manifest->files, name)) return true;
        if (!names[length]) return false;
    }
}

snug_status snug_manifest_verify(snug_context *ctx, const struct snug_folder *folder, const char *const *required) {
    struct snug_manifest manifest;
    const char *name;
    json_t *entry;
    RETURN_IF_ERROR(snug_manifest_read(ctx, folder, &manifest));
    snug_status status = SNUG_OK;
    if (*manifest.problem) status = snug_fail(ctx, SNUG_E_INPUT, "%s: %s", folder->path, manifest.problem);
    for (; status == SNUG_OK && *required; required++)
        if (!lists_one(&manifest, *required))
            status = snug_fail(ctx, SNUG_E_INPUT, "%s: its " SNUG_MANIFEST " does not list %.*s", folder->path,
                               (int)strcspn(*required, "|"), *required);
    json_object_foreach(manifest.files, name, entry) {
        if (status == SNUG_OK) status = snug_manifest_verify_file(ctx, folder, name, entry);
    }
    snug_manifest_free(&manifest);
    return status;
}
