/* SPDX-License-Identifier: Apache-2.0 */
#include "io/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static snug_status fail_os(snug_context *ctx, const char *what, const struct snug_folder *in, const char *name) {
    return snug_fail(ctx, SNUG_E_IO, "cannot %s " SNUG_PATH ": %s", what, SNUG_PATH_IN(in, name), strerror(errno));
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

bool snug_folder_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A path for messages, without slashes at its end. */
static snug_status path_of(snug_context *ctx, const struct snug_folder *in, const char *path, char **out) {
    RETURN_IF_ERROR(snug_format(ctx, out, SNUG_PATH, SNUG_PATH_IN(in, *path ? path : ".")));
    for (size_t length = strlen(*out); length > 1 && (*out)[length - 1] == '/'; length--) (*out)[length - 1] = '\0';
    return SNUG_OK;
}

snug_status snug_folder_open(snug_context *ctx, const struct snug_folder *in, const char *path,
                             struct snug_folder *out) {
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (in ? O_NOFOLLOW : 0);
    *out = (struct snug_folder){.mode = in ? in->mode : 0666, .run = in ? in->run : 0};
    const int fd = openat(snug_folder_fd(in), *path ? path : ".", flags);
    if (fd < 0) return fail_os(ctx, "open folder", in, path);
    const snug_status status = path_of(ctx, in, path, &out->path);
    if (status != SNUG_OK)
        close(fd);
    else
        out->fd = fd;
    return status;
}

void snug_folder_close(struct snug_folder *folder) {
    if (!folder->path) return;
    close(folder->fd);
    free(folder->path);
    *folder = (struct snug_folder){0};
}

/* Permissions of a folder whose files have mode: who may read may enter. */
static mode_t folder_mode(mode_t mode) { return mode | (mode & 0444) >> 2; }

static snug_status make_all(snug_context *ctx, const struct snug_folder *in, const char *path, mode_t mode) {
    struct stat info;
    char *copy;
    const int fd = snug_folder_fd(in);
    RETURN_IF_ERROR(snug_strdup(ctx, path, &copy));
    for (char *at = copy; *at; at++) {
        if (*at != '/' || at == copy) continue;
        *at = '\0';
        mkdirat(fd, copy, folder_mode(mode)); /* whether it is there now is seen at the last one */
        *at = '/';
    }
    free(copy);
    if (mkdirat(fd, path, folder_mode(mode)) == 0) return SNUG_OK;
    const int error = errno;
    if (fstatat(fd, *path ? path : ".", &info, 0) == 0 && S_ISDIR(info.st_mode)) return SNUG_OK;
    errno = error;
    return fail_os(ctx, "make folder", in, path);
}

snug_status snug_folder_make(snug_context *ctx, const struct snug_folder *in, const char *path, mode_t mode,
                             struct snug_folder *out) {
    *out = (struct snug_folder){0};
    RETURN_IF_ERROR(make_all(ctx, in, path, mode));
    RETURN_IF_ERROR(snug_folder_open(ctx, in, path, out));
    out->mode = mode;
    return SNUG_OK;
}

snug_status snug_folder_create(snug_context *ctx, const char *path) { return make_all(ctx, NULL, path, 0666); }

DIR *snug_folder_entries(const struct snug_folder *folder) {
    const int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0) close(fd);
    return entries;
}

const char *snug_entry_kind(const struct snug_folder *in, const char *name) {
    struct stat info;
    if (fstatat(snug_folder_fd(in), name, &info, AT_SYMLINK_NOFOLLOW)) return errno == ENOENT ? NULL : "unreadable";
    switch (info.st_mode & S_IFMT) {
    case S_IFREG: return "a file";
    case S_IFDIR: return "a folder";
    case S_IFLNK: return "a symbolic link";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

/* A copy of path to be cut, with room for "." in any case. */
static snug_status copy_path(snug_context *ctx, char **out, const char *path) {
    return snug_strdup(ctx, *path ? path : ".", out);
}

/* Leaves the folder that holds path, and in the end "/" or ".". */
static void cut_last_name(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash)
        memcpy(path, ".", 2);
    else
        slash[slash == path] = '\0';
}

static bool is_last_parent(const char *path) { return strcmp(path, ".") == 0 || strcmp(path, "/") == 0; }

/* 0, or errno. */
static int cannot_write_into(const char *folder) {
    struct stat info;
    if (stat(folder, &info)) return errno;
    if (!S_ISDIR(info.st_mode)) return ENOTDIR;
    return access(folder, W_OK | X_OK) ? errno : 0;
}

snug_status snug_folder_check(snug_context *ctx, const char *path) {
    char *there;
    struct stat info;
    RETURN_IF_ERROR(copy_path(ctx, &there, path));
    /* A link that leads nowhere exists, and no folder can be made in its place: not stat(). */
    while (lstat(there, &info) && (errno == ENOENT || errno == ENOTDIR) && !is_last_parent(there)) cut_last_name(there);
    const int problem = cannot_write_into(there);
    snug_status status = SNUG_OK;
    if (problem && strcmp(there, path) == 0)
        status = snug_fail(ctx, SNUG_E_IO, "cannot write into folder %s: %s", path, strerror(problem));
    else if (problem)
        status = snug_fail(ctx, SNUG_E_IO, "cannot make folder %s in %s: %s", path, there, strerror(problem));
    free(there);
    return status;
}

int64_t snug_folder_bytes(const struct snug_folder *in, const char *name) {
    const int fd = openat(snug_folder_fd(in), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    int64_t bytes = 0;
    struct stat info;
    if (!entries && fd >= 0) close(fd);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode)) bytes += info.st_size;
    if (entries) closedir(entries);
    return bytes;
}

snug_status snug_disk_free(snug_context *ctx, const char *path, int64_t *bytes) {
    char *folder;
    struct statvfs info;
    int result;
    RETURN_IF_ERROR(copy_path(ctx, &folder, path));
    while ((result = statvfs(folder, &info)) && errno == ENOENT && !is_last_parent(folder)) cut_last_name(folder);
    snug_status status = SNUG_OK;
    if (result)
        status = fail_os(ctx, "ask for the free space of", NULL, folder);
    else
        *bytes = (int64_t)(info.f_bavail * info.f_frsize);
    free(folder);
    return status;
}

int snug_unnamed_open(snug_context *ctx, const char *folder, int *fd) {
    char *path;
    *fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd >= 0) return 0;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL) return errno;
    if (snug_path_join(ctx, &path, folder, ".snug-unnamed-XXXXXX") != SNUG_OK) return ENOMEM;
    *fd = mkostemp(path, O_CLOEXEC); /* the file system needs a name: the file loses it at once */
    const int error = *fd < 0 ? errno : 0;
    if (!error) unlink(path);
    free(path);
    return error;
}

mode_t snug_readable_by(const char *path) {
    mode_t readable = 0044;
    struct stat info;
    char *real = realpath(path, NULL);
    for (bool leaf = true; real; leaf = false) {
        if (stat(real, &info) == 0) {
            mode_t open = leaf && !S_ISDIR(info.st_mode) ? info.st_mode & 0044 : (info.st_mode & 0011) << 2;
            if (leaf && S_ISDIR(info.st_mode)) open &= info.st_mode;
            if (!(open & 0004) && info.st_gid != getegid()) open = 0;
            readable &= open;
        }
        if (is_last_parent(real)) break;
        cut_last_name(real);
    }
    free(real);
    return readable;
}

/* ---- caches --------------------------------------------------------------------------------------------------- */

snug_status snug_cache_folder(snug_context *ctx, char **out) {
    const char *own = getenv("SNUG_CACHE"), *user = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *out = NULL;
    if (own && *own) return snug_strdup(ctx, own, out);
    if (user && *user) return snug_path_join(ctx, out, user, "snug");
    if (home && *home) return snug_path_join(ctx, out, home, ".cache/snug");
    return SNUG_OK;
}

/* The parents as any program makes them, the folder itself for the user alone. */
static snug_status make_private(snug_context *ctx, const char *path, struct snug_folder *out) {
    char *parent;
    RETURN_IF_ERROR(copy_path(ctx, &parent, path));
    cut_last_name(parent);
    const snug_status status = is_last_parent(parent) ? SNUG_OK : snug_folder_create(ctx, parent);
    free(parent);
    RETURN_IF_ERROR(status);
    return snug_folder_make(ctx, NULL, path, 0600, out);
}

snug_status snug_cache_folder_open(snug_context *ctx, struct snug_folder *out, char problem[256]) {
    char *path;
    *out = (struct snug_folder){0};
    *problem = '\0';
    RETURN_IF_ERROR(snug_cache_folder(ctx, &path));
    if (!path) {
        snprintf(problem, 256, "no folder for a cache is known: name one in SNUG_CACHE");
        return SNUG_OK;
    }
    struct stat info;
    const snug_status status = make_private(ctx, path, out);
    if (status == SNUG_OK && fstat(out->fd, &info) == 0 && info.st_uid != geteuid())
        snprintf(problem, 256, "the folder %s belongs to another user: name another one in SNUG_CACHE", path);
    else if (status == SNUG_OK && faccessat(out->fd, ".", W_OK | X_OK, AT_EACCESS))
        snprintf(problem, 256, "the folder %s cannot be written to: name another one in SNUG_CACHE", path);
    free(path);
    if (*problem) snug_folder_close(out);
    if (status == SNUG_OK || status == SNUG_E_MEMORY) return status;
    snprintf(problem, 256, "%s: name another folder in SNUG_CACHE", snug_error_message(ctx));
    snug_clear_error(ctx);
    return SNUG_OK;
}

int snug_cache_folder_find(snug_context *ctx, const struct snug_folder *cache, const char *name) {
    struct stat info;
    const char *problem = NULL;
    const int fd = openat(cache->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) return -1;
    if (fd < 0 || fstat(fd, &info) || !S_ISREG(info.st_mode))
        problem = "it cannot be opened as a regular file";
    else if (info.st_uid != geteuid())
        problem = "it belongs to another user";
    else if (info.st_mode & 0022)
        problem = "other users may write to it";
    if (!problem) return fd;
    snug_log(ctx, SNUG_LOG_WARNING, "%s/%s is not used: %s", cache->path, name, problem);
    if (fd >= 0) close(fd);
    return -1;
}

/* Names of what snug caches: tokens, measured rates, what a GPU's driver takes. */
static bool is_cached_name(const char *name, size_t length) {
    static const char tokens[] = ".tokens", json[] = ".json";
    const size_t hex = strspn(name, "0123456789abcdef");
    if (length == 32 + sizeof tokens - 1 && hex == 32) return strncmp(name + 32, tokens, sizeof tokens - 1) == 0;
    return (strncmp(name, "rates-", 6) == 0 || strncmp(name, "gpu-", 4) == 0) && length >= sizeof json &&
           strncmp(name + length - (sizeof json - 1), json, sizeof json - 1) == 0;
}

static void sweep_cached(snug_context *ctx, const struct snug_folder *cache, const char *name) {
    struct stat info;
    /* For writing, since NFS gives no exclusive lock of a descriptor that only reads. */
    const int fd = openat(cache->fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 && info.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && snug_file_is_named(fd, cache, name) && unlinkat(cache->fd, name, 0) == 0)
        snug_log(ctx, SNUG_LOG_INFO, "removed %s/%s, which a killed run left unfinished", cache->path, name);
    close(fd);
}

void snug_cache_folder_sweep(snug_context *ctx, const struct snug_folder *cache) {
    DIR *entries = snug_folder_entries(cache);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        uint64_t run;
        size_t length;
        if (snug_temporary_run(entry->d_name, &run, &length) && is_cached_name(entry->d_name + 1, length))
            sweep_cached(ctx, cache, entry->d_name);
    }
    if (entries) closedir(entries);
}

/* ---- removing ------------------------------------------------------------------------------------------------- */

static int remove_below(int parent, const char *name);

/* Removes every entry of the folder behind fd. 0, or -1 with errno. */
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

/* Removes the entry, and what is below it where it is a folder. 0, or -1 with errno. */
static int remove_below(int parent, const char *name) {
    if (unlinkat(parent, name, 0) == 0) return 0;
    if (errno != EISDIR && errno != EPERM) return -1; /* EPERM: POSIX's word for a folder */
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

/* Removes what the manifest lists, the manifest, and the folder, which another entry keeps. in: what holds it under
   name. A failure is logged: the folder has lost its place already. */
static void remove_listed(snug_context *ctx, const struct snug_folder *in, const char *name,
                          const struct snug_folder *folder, const struct snug_manifest *manifest) {
    const char *file;
    json_t *entry;
    json_object_foreach(manifest->files, file, entry) unlinkat(folder->fd, file, 0);
    /* The manifest is the last, so that a sweep after a kill still knows what is listed. */
    if (unlinkat(folder->fd, SNUG_MANIFEST, 0) || unlinkat(in->fd, name, AT_REMOVEDIR))
        snug_log(ctx, SNUG_LOG_WARNING, "cannot remove " SNUG_PATH ": %s", SNUG_PATH_IN(in, name), strerror(errno));
}

/* A folder under a temporary name, which is removed for good. */
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
    /* Not finished: it holds files alone. */
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

/* While a folder is replaced by two renames the old one is called so: a sweep puts it back. */
static snug_status old_name(snug_context *ctx, const struct snug_folder *in, const char *name, char **out) {
    return snug_temporary_name(ctx, name, in->run, ".old", out);
}

/* The name of a folder that is being written in the one that holds it. */
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
    if (mkdirat(in->fd, hidden, folder_mode(in->mode))) status = fail_os(ctx, "write folder", in, name);
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

/* Two renames, where the file system (NFS, some FUSE) cannot exchange. A sweep completes them after a crash. */
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

/* Gives the finished folder its name. */
static snug_status swap_in(snug_context *ctx, const struct snug_folder *in, const char *hidden, const char *name) {
    const snug_status own = snug_manifest_claim(ctx, in, name, NULL, NULL);
    if (own != SNUG_END) RETURN_IF_ERROR(own);
    if (own == SNUG_END) {
        if (renameat2(in->fd, hidden, in->fd, name, RENAME_NOREPLACE) == 0) return SNUG_OK;
        if (errno != EINVAL && errno != ENOSYS) return fail_os(ctx, "write folder", in, name);
        /* The file system cannot promise it. A folder is never renamed over anything but an empty folder. */
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

/* A folder that was about to be replaced, and whose place is free. */
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

void snug_folder_sweep(snug_context *ctx, const struct snug_folder *in, const uint64_t *runs, size_t count) {
    DIR *entries = snug_folder_entries(in);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        uint64_t run;
        size_t length;
        if (!snug_temporary_run(entry->d_name, &run, &length)) continue;
        bool ours = false;
        for (size_t i = 0; i < count; i++) ours |= runs[i] == run;
        if (!ours || sweep_entry(ctx, in, entry->d_name, length) == SNUG_OK) continue;
        snug_log(ctx, SNUG_LOG_WARNING, "%s", snug_error_message(ctx));
        snug_clear_error(ctx);
    }
    if (entries) closedir(entries);
}
