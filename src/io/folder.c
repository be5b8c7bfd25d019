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

/* Opens path below parent folder by folder, so that no link is followed, and makes what is missing with the permissions
 * *made (NULL: nothing). -1 with errno; path then ends with the folder that failed. */
static int open_below(int parent, char *path, const mode_t *made) {
    int fd = parent;
    for (char *at = path; *at;) {
        char *end = at + strcspn(at, "/");
        const char after = *end;
        *end = '\0';
        const int failed = made && mkdirat(fd, at, *made) ? errno : 0;
        const int next = openat(fd, at, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        const int error = next < 0 && errno == ENOENT && failed ? failed : errno;
        if (fd != parent) close(fd);
        errno = error;
        if ((fd = next) < 0) return -1;
        *end = after;
        at = end + strspn(end, "/");
    }
    return fd;
}

static snug_status fail_to_open(snug_context *ctx, const struct snug_folder *in, const char *path, bool makes) {
    const int error = errno;
    const char *kind = in ? snug_entry_kind(in, path) : NULL;
    if (kind && strcmp(kind, "a symbolic link") == 0)
        return snug_fail(ctx, SNUG_E_IO, SNUG_PATH " is a symbolic link, which is not followed here: remove it",
                         SNUG_PATH_IN(in, path));
    errno = error;
    return fail_os(ctx, makes ? "make folder" : "open folder", in, path);
}

/* made: see open_below(). */
static snug_status open_folder(snug_context *ctx, const struct snug_folder *in, const char *path, const mode_t *made,
                               struct snug_folder *out) {
    char *copy;
    *out = (struct snug_folder){.mode = in ? in->mode : 0666, .run = in ? in->run : 0};
    RETURN_IF_ERROR(snug_strdup(ctx, *path ? path : ".", &copy));
    out->fd = in ? open_below(in->fd, copy, made) : openat(AT_FDCWD, copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snug_status status;
    if (out->fd < 0)
        status = fail_to_open(ctx, in, copy, in && made);
    else if ((status = path_of(ctx, in, path, &out->path)) != SNUG_OK)
        close(out->fd);
    free(copy);
    return status;
}

snug_status snug_folder_open(snug_context *ctx, const struct snug_folder *in, const char *path,
                             struct snug_folder *out) {
    return open_folder(ctx, in, path, NULL, out);
}

void snug_folder_close(struct snug_folder *folder) {
    if (!folder->path) return;
    close(folder->fd);
    free(folder->path);
    *folder = (struct snug_folder){0};
}

/* The path is the user's: links are followed. */
static snug_status make_all(snug_context *ctx, const char *path, mode_t mode) {
    struct stat info;
    char *copy;
    RETURN_IF_ERROR(snug_strdup(ctx, path, &copy));
    for (char *at = copy; *at; at++) {
        if (*at != '/' || at == copy) continue;
        *at = '\0';
        mkdirat(AT_FDCWD, copy, snug_folder_mode(mode)); /* whether it is there now is seen at the last one */
        *at = '/';
    }
    free(copy);
    if (mkdirat(AT_FDCWD, path, snug_folder_mode(mode)) == 0) return SNUG_OK;
    const int error = errno;
    if (stat(*path ? path : ".", &info) == 0 && S_ISDIR(info.st_mode)) return SNUG_OK;
    errno = error;
    return fail_os(ctx, "make folder", NULL, path);
}

snug_status snug_folder_make(snug_context *ctx, const struct snug_folder *in, const char *path, mode_t mode,
                             struct snug_folder *out) {
    const mode_t made = snug_folder_mode(mode);
    *out = (struct snug_folder){0};
    if (!in) RETURN_IF_ERROR(make_all(ctx, path, mode));
    RETURN_IF_ERROR(open_folder(ctx, in, path, &made, out));
    out->mode = mode;
    return SNUG_OK;
}

snug_status snug_folder_create(snug_context *ctx, const char *path) { return make_all(ctx, path, 0666); }

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

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* A copy of path that can be shortened, with room for ".". */
static snug_status copy_path(snug_context *ctx, char **out, const char *path) {
    return snug_strdup(ctx, *path ? path : ".", out);
}

/* Shortens path to its parent folder, finally to "/" or ".". */
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
    /* lstat(), not stat(): a dangling link exists, and no folder can be created in its place. */
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
        status = fail_os(ctx, "query the free space of", NULL, folder);
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
    *fd = mkostemp(path, O_CLOEXEC); /* the file system has no unnamed files: unlink the file immediately */
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

/* Parents get default permissions, the folder itself is private to the user. */
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
    snprintf(problem, 256, "%s: name another folder in SNUG_CACHE", snug_context_message(ctx));
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

/* Names of cached files: tokens, measured rates, memory of a GPU's driver. */
static bool is_cached_name(const char *name, size_t length) {
    static const char tokens[] = ".tokens", json[] = ".json";
    const size_t hex = strspn(name, "0123456789abcdef");
    if (length == 32 + sizeof tokens - 1 && hex == 32) return strncmp(name + 32, tokens, sizeof tokens - 1) == 0;
    return (strncmp(name, "rates-", 6) == 0 || strncmp(name, "gpu-", 4) == 0) && length >= sizeof json &&
           strncmp(name + length - (sizeof json - 1), json, sizeof json - 1) == 0;
}

static void sweep_cached(snug_context *ctx, const struct snug_folder *cache, const char *name) {
    struct stat info;
    /* Opened for writing, because NFS grants no exclusive lock on a read-only descriptor. */
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
