/* SPDX-License-Identifier: Apache-2.0 */
#include "io/folder_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static snug_status fail_os(snug_context *ctx, const char *what, const struct snug_folder *in, const char *name) {
    return snug_fail(ctx, SNUG_E_IO, "cannot %s " SNUG_PATH ": %s", what, SNUG_PATH_IN(in, name), strerror(errno));
}

/* ---- removing ------------------------------------------------------------------------------------------------- */

static int remove_below(int parent, const char *name);

/* Removes every entry of the folder opened as fd. 0, or -1 with errno. */
static int remove_entries(int fd) {
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy < 0 ? NULL : fdopendir(copy);
    int result = entries ? 0 : -1;
    if (!entries && copy >= 0) close(copy);
    for (struct dirent *entry; entries && result == 0 && (errno = 0, entry = readdir(entries));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        result = remove_below(fd, entry->d_name);
    }
    const int error = errno;
    if (entries) closedir(entries);
    errno = error;
    return result || error ? -1 : 0;
}

/* Removes the entry; a folder with everything in it. 0, or -1 with errno. */
static int remove_below(int parent, const char *name) {
    if (unlinkat(parent, name, 0) == 0) return 0;
    if (errno != EISDIR && errno != EPERM) return -1; /* POSIX: EPERM if it is a folder */
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return -1;
    const int result = remove_entries(fd), error = errno;
    close(fd);
    errno = error;
    return result ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
}

snug_status snug_folder_remove(snug_context *ctx, const struct snug_folder *in, const char *name) {
    if (remove_below(snug_folder_fd(in), name) == 0 || errno == ENOENT) return SNUG_OK;
    return fail_os(ctx, "remove folder", in, name);
}

/* Removes the files of the manifest, the manifest, and the folder unless it has other entries. in: the folder that
 * contains it as name. A failure is only logged: the folder has already been replaced. */
static void remove_listed(snug_context *ctx, const struct snug_folder *in, const char *name,
                          const struct snug_folder *folder, const struct snug_manifest *manifest) {
    const char *file;
    json_t *entry;
    json_object_foreach(manifest->files, file, entry) unlinkat(folder->fd, file, 0);
    /* The manifest is removed last: a cleanup after a kill still needs its list. */
    if (unlinkat(folder->fd, SNUG_MANIFEST, 0) || unlinkat(in->fd, name, AT_REMOVEDIR))
        snug_log(ctx, SNUG_LOG_WARNING, "cannot remove " SNUG_PATH ": %s", SNUG_PATH_IN(in, name), strerror(errno));
}

/* Deletes a folder that has a temporary name. */
static snug_status remove_temporary(snug_context *ctx, const struct snug_folder *in, const char *name) {
    struct snug_folder folder;
    struct snug_manifest manifest;
    const snug_status status = snug_manifest_claim(ctx, in, name, &folder, &manifest);
    if (status == SNUG_E_MEMORY) return status;
    if (status == SNUG_OK) {
        remove_listed(ctx, in, name, &folder, &manifest);
        snug_folder_close(&folder);
        snug_manifest_free(&manifest);
        return SNUG_OK;
    }
    snug_clear_error(ctx);
    /* An unfinished folder: it has only files. */
    if (status != SNUG_END && snug_folder_open(ctx, in, name, &folder) == SNUG_OK) {
        DIR *entries = snug_folder_entries(&folder);
        for (struct dirent *entry; entries && (entry = readdir(entries));) unlinkat(folder.fd, entry->d_name, 0);
        if (entries) closedir(entries);
        snug_folder_close(&folder);
        if (unlinkat(in->fd, name, AT_REMOVEDIR)) return fail_os(ctx, "remove folder", in, name);
    }
    snug_clear_error(ctx);
    return SNUG_OK;
}

snug_status snug_folder_discard(snug_context *ctx, const struct snug_folder *in, const char *name) {
    char *temporary;
    snug_status status = snug_manifest_claim(ctx, in, name, NULL, NULL);
    if (status == SNUG_END) return SNUG_OK;
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(snug_temporary_name(ctx, name, in->run, "", &temporary));
    status = remove_temporary(ctx, in, temporary);
    if (status == SNUG_OK && renameat(in->fd, name, in->fd, temporary))
        status = fail_os(ctx, "remove folder", in, name);
    if (status == SNUG_OK) status = remove_temporary(ctx, in, temporary);
    free(temporary);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

/* The name of the old folder while it is replaced by two renames: a cleanup restores it. */
static snug_status old_name(snug_context *ctx, const struct snug_folder *in, const char *name, char **out) {
    return snug_temporary_name(ctx, name, in->run, ".old", out);
}

/* The name, in its parent folder, of a folder that is being written. */
static const char *temporary_name(const struct snug_folder *temporary) { return strrchr(temporary->path, '/') + 1; }

static void forget_written(struct snug_folder *temporary) {
    struct snug_written *written = temporary->written;
    for (size_t i = 0; written && i < written->count; i++) free(written->names[i]);
    if (written) free(written->names);
    free(written);
    snug_folder_close(temporary);
}

static snug_status make_temporary(snug_context *ctx, const struct snug_folder *in, const char *name, const char *hidden,
                                  struct snug_folder *temporary) {
    struct snug_written *written;
    RETURN_IF_ERROR(remove_temporary(ctx, in, hidden));
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *written, (void **)&written));
    snug_status status = SNUG_OK;
    if (mkdirat(in->fd, hidden, snug_folder_mode(in->mode))) status = fail_os(ctx, "write folder", in, name);
    if (status == SNUG_OK && (status = snug_folder_open(ctx, in, hidden, temporary)) != SNUG_OK)
        unlinkat(in->fd, hidden, AT_REMOVEDIR);
    if (status == SNUG_OK)
        temporary->written = written;
    else
        free(written);
    return status;
}

snug_status snug_folder_begin(snug_context *ctx, const struct snug_folder *in, const char *name,
                              struct snug_folder *temporary) {
    char *hidden;
    *temporary = (struct snug_folder){0};
    snug_status status = snug_manifest_claim(ctx, in, name, NULL, NULL);
    if (status != SNUG_END) RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(snug_temporary_name(ctx, name, in->run, "", &hidden));
    status = make_temporary(ctx, in, name, hidden, temporary);
    free(hidden);
    return status;
}

static snug_status write_manifest(snug_context *ctx, const struct snug_folder *folder,
                                  const struct snug_provenance *from) {
    json_t *files = json_object();
    snug_status status =
        files ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing %s", folder->path);
    for (size_t i = 0; i < folder->written->count && status == SNUG_OK; i++)
        status = snug_manifest_add(ctx, files, folder, folder->written->names[i]);
    if (status == SNUG_OK) status = snug_manifest_write(ctx, folder, files, from);
    if (status == SNUG_OK && fsync(folder->fd) && errno != EINVAL)
        status = fail_os(ctx, "sync folder", NULL, folder->path);
    json_decref(files);
    return status;
}

/* Two renames, for file systems (NFS, some FUSE) that cannot exchange names atomically. A cleanup completes them after
 * a crash. */
static snug_status replace_in_two(snug_context *ctx, const struct snug_folder *in, const char *hidden,
                                  const char *name) {
    char *old;
    RETURN_IF_ERROR(old_name(ctx, in, name, &old));
    snug_status status = remove_temporary(ctx, in, old);
    if (status == SNUG_OK && renameat(in->fd, name, in->fd, old)) {
        status = fail_os(ctx, "replace folder", in, name);
    } else if (status == SNUG_OK && renameat(in->fd, hidden, in->fd, name)) {
        status = fail_os(ctx, "write folder", in, name);
        if (renameat(in->fd, old, in->fd, name))
            snug_log(ctx, SNUG_LOG_ERROR, "the old %s/%s is now %s/%s", in->path, name, in->path, old);
    } else if (status == SNUG_OK) {
        status = remove_temporary(ctx, in, old);
    }
    free(old);
    return status;
}

/* Renames the finished folder to its name. */
static snug_status swap_in(snug_context *ctx, const struct snug_folder *in, const char *hidden, const char *name) {
    const snug_status own = snug_manifest_claim(ctx, in, name, NULL, NULL);
    if (own != SNUG_END) RETURN_IF_ERROR(own);
    if (own == SNUG_END) {
        if (renameat2(in->fd, hidden, in->fd, name, RENAME_NOREPLACE) == 0) return SNUG_OK;
        if (errno != EINVAL && errno != ENOSYS) return fail_os(ctx, "write folder", in, name);
        /* The file system has no RENAME_NOREPLACE. A folder is only ever renamed over an empty folder. */
        return renameat(in->fd, hidden, in->fd, name) ? fail_os(ctx, "write folder", in, name) : SNUG_OK;
    }
    if (renameat2(in->fd, hidden, in->fd, name, RENAME_EXCHANGE) == 0) return remove_temporary(ctx, in, hidden);
    return replace_in_two(ctx, in, hidden, name);
}

snug_status snug_folder_commit(snug_context *ctx, const struct snug_folder *in, const char *name,
                               struct snug_folder *temporary, const struct snug_provenance *from) {
    snug_status status = write_manifest(ctx, temporary, from);
    if (status == SNUG_OK) status = swap_in(ctx, in, temporary_name(temporary), name);
    if (status != SNUG_OK) {
        snug_folder_abandon(in, temporary);
        return status;
    }
    snug_folder_sync(ctx, in, name);
    forget_written(temporary);
    return SNUG_OK;
}

void snug_folder_abandon(const struct snug_folder *in, struct snug_folder *temporary) {
    if (!temporary->path) return;
    for (size_t i = 0; i < temporary->written->count; i++) unlinkat(temporary->fd, temporary->written->names[i], 0);
    unlinkat(in->fd, temporary_name(temporary), AT_REMOVEDIR);
    forget_written(temporary);
}

/* ---- after a kill --------------------------------------------------------------------------------------------- */

/* Restores a folder whose replacement was interrupted, if its name is free. */
static bool is_put_back(snug_context *ctx, const struct snug_folder *in, const char *temporary, size_t length) {
    char name[NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)length, temporary + 1);
    if (strcmp(temporary + strlen(temporary) - 4, ".old") != 0 || snug_entry_kind(in, name)) return false;
    const bool own = snug_manifest_claim(ctx, in, temporary, NULL, NULL) == SNUG_OK;
    snug_clear_error(ctx);
    return own && renameat(in->fd, temporary, in->fd, name) == 0;
}

static snug_status sweep_entry(snug_context *ctx, const struct snug_folder *in, const char *name, size_t length) {
    const char *kind = snug_entry_kind(in, name);
    struct stat info;
    if (!kind) return SNUG_OK;
    if (strcmp(kind, "a folder") == 0) {
        if (is_put_back(ctx, in, name, length)) {
            snug_log(ctx, SNUG_LOG_INFO, "put back %s/%.*s, which a killed run was replacing", in->path, (int)length,
                     name + 1);
            return SNUG_OK;
        }
        RETURN_IF_ERROR(remove_temporary(ctx, in, name));
    } else {
        if (strcmp(kind, "a file") != 0 || fstatat(in->fd, name, &info, AT_SYMLINK_NOFOLLOW) || info.st_nlink != 1 ||
            unlinkat(in->fd, name, 0))
            return SNUG_OK;
    }
    snug_log(ctx, SNUG_LOG_INFO, "removed %s/%s, which a killed run left unfinished", in->path, name);
    return SNUG_OK;
}

bool snug_folder_sweep(snug_context *ctx, const struct snug_folder *in, const uint64_t *runs, size_t count) {
    DIR *entries = snug_folder_entries(in);
    bool complete = entries;
    for (struct dirent *entry; entries && (errno = 0, entry = readdir(entries));) {
        uint64_t run;
        size_t length;
        if (!snug_temporary_run(entry->d_name, &run, &length)) continue;
        bool ours = false;
        for (size_t i = 0; i < count; i++) ours |= runs[i] == run;
        if (!ours || sweep_entry(ctx, in, entry->d_name, length) == SNUG_OK) continue;
        snug_log(ctx, SNUG_LOG_WARNING, "%s", snug_context_message(ctx));
        snug_clear_error(ctx);
        complete = false;
    }
    if (errno) complete = false;
    if (entries) closedir(entries);
    return complete;
}
