/* SPDX-License-Identifier: Apache-2.0 */
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/json.h"

static const char manifest_name[] = "manifest.json";

/* Files are written under ".NAME.snug-PROCESS-NUMBER", folders under ".NAME.snug-aside". */
#define ASIDE "snug-"

/* "cannot <what> <path>: <what the operating system says>" */
static snug_status fail_os(snug_context *ctx, const char *what, const char *path) {
    return snug_fail(ctx, SNUG_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* What a descriptor that is open leads to; of no kind and empty where a network's file system cannot tell. */
static struct stat look_at(int fd) {
    struct stat info = {0};
    fstat(fd, &info);
    return info;
}

/* ---- reading ---- */

ssize_t snug_read(int fd, void *data, size_t size) {
    ssize_t got;
    do got = read(fd, data, size);
    while (got < 0 && errno == EINTR);
    return got;
}

ssize_t snug_read_at(int fd, void *data, size_t size, uint64_t offset) {
    size_t done = 0;
    while (done < size) {
        const ssize_t got = pread(fd, (char *)data + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) {
            errno = 0;
            break;
        }
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Of a file that is read whole: configurations, vocabularies, states. Also where /dev/zero ends. */
#define WHOLE_MAX ((size_t)1 << 28)

static snug_status fail_large(snug_context *ctx, const char *path) {
    return snug_fail(ctx, SNUG_E_INPUT, "%s has over 256 MiB, which no file of its kind needs", path);
}

snug_status snug_file_read(snug_context *ctx, const char *path, char **data, size_t *size) {
    *data = NULL;
    *size = 0;
    FILE *file = fopen(path, "re");
    if (!file) return fail_os(ctx, "open", path);
    void *bytes = NULL;
    size_t filled = 0, capacity = 0;
    /* The size is a hint only: a pipe has none, and a file may grow. */
    const off_t size_now = look_at(fileno(file)).st_size;
    size_t need = size_now > 0 ? (size_t)size_now + 2 : 4096;
    snug_status status;
    while ((status = need > WHOLE_MAX ? fail_large(ctx, path) : snug_grow(ctx, &bytes, &capacity, need, 1)) ==
           SNUG_OK) {
        filled += fread((char *)bytes + filled, 1, capacity - 1 - filled, file);
        if (filled < capacity - 1) break;
        need = capacity + 1;
    }
    if (status == SNUG_OK && ferror(file)) status = fail_os(ctx, "read", path);
    fclose(file);
    if (status != SNUG_OK) {
        free(bytes);
        return status;
    }
    *data = bytes;
    (*data)[filled] = '\0';
    *size = filled;
    return SNUG_OK;
}

bool snug_file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool snug_folder_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool snug_file_is_named(int fd, const char *path) {
    const struct stat held = look_at(fd);
    struct stat named;
    return lstat(path, &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

/* ---- paths and folders ---- */

snug_status snug_path_join(snug_context *ctx, char **out, const char *folder, const char *name) {
    size_t length = strlen(folder);
    const bool ends = length == 0 || folder[length - 1] == '/'; /* "" is the folder where the process is */
    return snug_format(ctx, out, "%s%s%s", folder, ends ? "" : "/", name);
}

/* Length of path without its last name: 4 for "/a/b", with the slash; 0 for "b". */
static size_t parent_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The folder that holds path. */
static snug_status path_parent(snug_context *ctx, char **out, const char *path) {
    size_t length = parent_length(path);
    return length ? snug_format(ctx, out, "%.*s", (int)length, path) : snug_strdup(ctx, ".", out);
}

/* A hidden name beside path, which no pattern such as "checkpoint-*" finds. */
static snug_status path_beside(snug_context *ctx, char **out, const char *path, const char *suffix) {
    size_t length = parent_length(path);
    return snug_format(ctx, out, "%.*s.%s.%s", (int)length, path, path + length, suffix);
}

snug_status snug_folder_create(snug_context *ctx, const char *path) {
    char *copy;
    RETURN_IF_ERROR(snug_strdup(ctx, path, &copy));
    for (char *at = copy; *at; at++) {
        if (*at != '/' || at == copy) continue;
        *at = '\0';
        mkdir(copy, 0777); /* whether it is there now is seen at the last one */
        *at = '/';
    }
    free(copy);
    if (mkdir(path, 0777) == 0 || snug_folder_exists(path)) return SNUG_OK;
    return fail_os(ctx, "make folder", path);
}

snug_status snug_cache_folder(snug_context *ctx, char **out) {
    const char *own = getenv("SNUG_CACHE"), *user = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *out = NULL;
    if (own && *own) return snug_strdup(ctx, own, out);
    if (user && *user) return snug_path_join(ctx, out, user, "snug");
    if (home && *home) return snug_path_join(ctx, out, home, ".cache/snug");
    return SNUG_OK;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

/* 0, or -1 with errno. */
static int remove_tree(const char *path) {
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT ? 0 : -1;
}

int64_t snug_folder_bytes(const char *path) {
    char *const roots[] = {(char *)(uintptr_t)path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int64_t bytes = 0;
    for (FTSENT *entry; walk && (entry = fts_read(walk));)
        if (entry->fts_info == FTS_F) bytes += entry->fts_statp->st_size;
    if (walk) fts_close(walk);
    return bytes;
}

snug_status snug_folder_remove(snug_context *ctx, const char *path) {
    return remove_tree(path) ? fail_os(ctx, "remove folder", path) : SNUG_OK;
}

snug_status snug_folder_discard(snug_context *ctx, const char *path) {
    char *aside;
    RETURN_IF_ERROR(path_beside(ctx, &aside, path, "snug-aside"));
    snug_status status = snug_folder_remove(ctx, aside);
    if (status == SNUG_OK && rename(path, aside) == 0)
        status = snug_folder_remove(ctx, aside);
    else if (status == SNUG_OK && errno != ENOENT)
        status = fail_os(ctx, "remove folder", path);
    free(aside);
    return status;
}

/* ".NAME.snug-PROCESS-NUMBER" */
static bool is_aside(const char *name) {
    static const char digits[] = "0123456789", mark[] = "." ASIDE;
    const char *at = NULL;
    for (const char *next = name; *name == '.' && (next = strstr(next + 1, mark));) at = next + sizeof mark - 1;
    if (!at) return false;
    const size_t process = strspn(at, digits), number = at[process] ? strspn(at + process + 1, digits) : 0;
    return process && number && at[process] == '-' && !at[process + 1 + number];
}

static void sweep_file(snug_context *ctx, const char *path) {
    /* For writing, since NFS makes no exclusive lock of a descriptor that only reads. */
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (S_ISREG(look_at(fd).st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 && snug_file_is_named(fd, path) &&
        unlink(path) == 0)
        snug_log(ctx, SNUG_LOG_INFO, "removed %s, which a killed run left unfinished", path);
    close(fd);
}

void snug_folder_sweep(snug_context *ctx, const char *path) {
    char *file;
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!is_aside(entry->d_name)) continue;
        if (snug_path_join(ctx, &file, path, entry->d_name) != SNUG_OK) {
            snug_clear_error(ctx);
            break; /* the next run will do it */
        }
        sweep_file(ctx, file);
        free(file);
    }
    closedir(folder);
}

/* A copy of path to be cut down, with room for "." in any case. */
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
    /* A link that leads nowhere is there, and no folder can be made in its place: not stat(). */
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

snug_status snug_disk_free(snug_context *ctx, const char *path, int64_t *bytes) {
    char *folder;
    struct statvfs info;
    int result;
    RETURN_IF_ERROR(copy_path(ctx, &folder, path));
    while ((result = statvfs(folder, &info)) && errno == ENOENT && !is_last_parent(folder)) cut_last_name(folder);
    snug_status status = SNUG_OK;
    if (result)
        status = fail_os(ctx, "ask for the free space of", folder);
    else
        *bytes = (int64_t)(info.f_bavail * info.f_frsize);
    free(folder);
    return status;
}

/* ---- files written aside ---- */

/* Makes a rename durable. Too late to fail: what was renamed is already in place. */
static void sync_parent(snug_context *ctx, const char *path) {
    char *folder;
    if (path_parent(ctx, &folder, path) != SNUG_OK) return;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) && errno != EINVAL)) /* EINVAL: the file system syncs no folders */
        snug_log(ctx, SNUG_LOG_WARNING, "cannot sync folder %s: %s", folder, strerror(errno));
    if (fd >= 0) close(fd);
    free(folder);
}

int snug_unnamed_open(snug_context *ctx, const char *folder, int *fd) {
    char *path;
    *fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd >= 0) return 0;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL) return errno;
    if (snug_path_join(ctx, &path, folder, ".snug-unnamed-XXXXXX") != SNUG_OK) return ENOMEM;
    *fd = mkostemp(path, O_CLOEXEC); /* the file system cannot do without a name: it loses it at once */
    const int error = *fd < 0 ? errno : 0;
    if (!error) unlink(path);
    free(path);
    return error;
}

/* What is written aside is locked, so that a sweep knows it from what killed processes left; the number of a process
   would not tell, which containers that share a folder give out twice. True if a sweep has taken the file for one of
   those, before it was locked. */
static bool is_swept(int fd, const char *aside) {
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK; /* else there are no locks, and no sweeps */
    return !snug_file_is_named(fd, aside);
}

snug_status snug_writer_open(snug_context *ctx, const char *path, struct snug_writer *writer) {
    *writer = (struct snug_writer){0};
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* renaming over /dev/null would replace it */
        return snug_fail(ctx, SNUG_E_IO, "cannot write %s: it exists and is not a regular file", path);
    RETURN_IF_ERROR(snug_strdup(ctx, path, &writer->path));
    int fd = -1;
    /* The name is new: other threads and processes may write the same file. */
    for (int attempt = 0; fd < 0; attempt++) {
        char suffix[48];
        snprintf(suffix, sizeof suffix, ASIDE "%ld-%d", (long)getpid(), attempt);
        free(writer->aside);
        snug_status status = path_beside(ctx, &writer->aside, path, suffix);
        if (status != SNUG_OK) {
            free(writer->path);
            *writer = (struct snug_writer){0};
            return status;
        }
        fd = open(writer->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) break;
        if (fd >= 0 && is_swept(fd, writer->aside)) {
            close(fd);
            fd = -1;
        }
    }
    writer->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (writer->file) return SNUG_OK;
    snug_status status = fail_os(ctx, "write", path);
    if (fd >= 0) {
        close(fd);
        unlink(writer->aside);
    }
    free(writer->aside);
    free(writer->path);
    *writer = (struct snug_writer){0};
    return status;
}

void snug_writer_put(struct snug_writer *writer, const void *data, size_t size) {
    if (writer->failed || size == 0 || fwrite(data, 1, size, writer->file) == size) return;
    writer->failed = true;
    writer->error = errno;
}

snug_status snug_writer_commit(snug_context *ctx, struct snug_writer *writer) {
    if (!writer->failed && (fflush(writer->file) || fsync(fileno(writer->file)))) {
        writer->failed = true;
        writer->error = errno;
    }
    if (!writer->failed && rename(writer->aside, writer->path)) {
        writer->failed = true;
        writer->error = errno;
    }
    fclose(writer->file); /* its lock kept sweeps off until now; nothing is left to be written */
    writer->file = NULL;
    snug_status status = SNUG_OK;
    if (writer->failed) {
        errno = writer->error;
        status = fail_os(ctx, "write", writer->path);
    } else {
        sync_parent(ctx, writer->path);
        free(writer->aside); /* so that abandon removes nothing */
        writer->aside = NULL;
    }
    snug_writer_abandon(writer);
    return status;
}

void snug_writer_abandon(struct snug_writer *writer) {
    if (writer->file) fclose(writer->file);
    if (writer->aside) unlink(writer->aside);
    free(writer->aside);
    free(writer->path);
    *writer = (struct snug_writer){0};
}

snug_status snug_file_replace(snug_context *ctx, const char *path, const void *data, size_t size) {
    struct snug_writer writer;
    RETURN_IF_ERROR(snug_writer_open(ctx, path, &writer));
    snug_writer_put(&writer, data, size);
    return snug_writer_commit(ctx, &writer);
}

snug_status snug_file_copy(snug_context *ctx, const char *from, const char *to) {
    FILE *file = fopen(from, "re");
    if (!file) return fail_os(ctx, "open", from);
    struct snug_writer writer;
    snug_status status = snug_writer_open(ctx, to, &writer);
    if (status == SNUG_OK) {
        char buffer[1 << 15];
        for (size_t size; (size = fread(buffer, 1, sizeof buffer, file)) > 0;) snug_writer_put(&writer, buffer, size);
        if (ferror(file)) {
            status = fail_os(ctx, "read", from);
            snug_writer_abandon(&writer);
        } else {
            status = snug_writer_commit(ctx, &writer);
        }
    }
    fclose(file);
    return status;
}

/* ---- folders written aside ---- */

/* Where the folder really lies: trailing slashes cut, a link followed, so that the link stays a link. */
static snug_status folder_target(snug_context *ctx, char **out, const char *path) {
    RETURN_IF_ERROR(snug_strdup(ctx, path, out));
    for (size_t length = strlen(*out); length > 1 && (*out)[length - 1] == '/'; length--) (*out)[length - 1] = '\0';
    struct stat info;
    if (lstat(*out, &info) == 0 && S_ISLNK(info.st_mode)) {
        char *real = realpath(*out, NULL);
        snug_status status = real ? SNUG_OK : fail_os(ctx, "follow the link", *out);
        free(*out);
        *out = real;
        RETURN_IF_ERROR(status);
    }
    const char *name = *out + parent_length(*out);
    if (*name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) return SNUG_OK;
    free(*out);
    *out = NULL;
    return snug_fail(ctx, SNUG_E_USAGE, "cannot replace folder \"%s\": give a folder by its name", path);
}

static snug_status begin_aside(snug_context *ctx, const char *target, char **aside) {
    char *parent, *old;
    RETURN_IF_ERROR(path_parent(ctx, &parent, target));
    snug_status status = snug_folder_create(ctx, parent);
    free(parent);
    RETURN_IF_ERROR(status);
    if (snug_file_exists(target))
        return snug_fail(ctx, SNUG_E_IO, "cannot write folder %s: a file of that name is in the way", target);
    /* A crash between the two renames of swap_in() left the old folder under its hidden name. */
    RETURN_IF_ERROR(path_beside(ctx, &old, target, "snug-old"));
    if (snug_folder_exists(old) && !snug_folder_exists(target) && rename(old, target))
        status = fail_os(ctx, "restore folder", target);
    free(old);
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(path_beside(ctx, aside, target, "snug-aside"));
    status = snug_folder_remove(ctx, *aside); /* what a killed run left */
    if (status == SNUG_OK && mkdir(*aside, 0777)) status = fail_os(ctx, "write folder", target);
    if (status == SNUG_OK) return SNUG_OK;
    free(*aside);
    *aside = NULL;
    return status;
}

snug_status snug_folder_begin(snug_context *ctx, const char *path, char **aside) {
    char *target;
    *aside = NULL;
    RETURN_IF_ERROR(folder_target(ctx, &target, path));
    snug_status status = begin_aside(ctx, target, aside);
    free(target);
    return status;
}

/* Size and XXH3-64 of a file, read through a small buffer; with sync, what was hashed is on the disk afterwards. */
static snug_status hash_file(snug_context *ctx, const char *path, bool sync, int64_t *size, char hex[17]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would keep who opens it waiting */
    if (fd < 0) return fail_os(ctx, "open", path);
    XXH3_state_t *state = XXH3_createState();
    snug_status status = state ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while checking %s", path);
    if (status == SNUG_OK && !S_ISREG(look_at(fd).st_mode))
        status = snug_fail(ctx, SNUG_E_INPUT, "%s is not a regular file", path);
    if (state) XXH3_64bits_reset(state);
    char buffer[1 << 15];
    *size = 0;
    for (ssize_t got; status == SNUG_OK && (got = snug_read(fd, buffer, sizeof buffer)) != 0;) {
        if (got < 0) {
            status = fail_os(ctx, "read", path);
        } else {
            XXH3_64bits_update(state, buffer, (size_t)got);
            *size += got;
        }
    }
    if (status == SNUG_OK) snprintf(hex, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
    if (status == SNUG_OK && sync && fsync(fd)) status = fail_os(ctx, "sync", path);
    XXH3_freeState(state);
    close(fd);
    return status;
}

static snug_status manifest_fill(snug_context *ctx, json_t *files, const char *folder, const char *prefix);

/* Adds the file, or the files of the folder, that prefix/name is. */
static snug_status manifest_add(snug_context *ctx, json_t *files, const char *path, const char *relative) {
    struct stat info;
    if (lstat(path, &info)) return fail_os(ctx, "read", path);
    if (S_ISDIR(info.st_mode)) return manifest_fill(ctx, files, path, relative);
    if (!S_ISREG(info.st_mode)) return snug_fail(ctx, SNUG_E_INTERNAL, "%s is neither a file nor a folder", path);
    int64_t size;
    char hex[17];
    RETURN_IF_ERROR(hash_file(ctx, path, true, &size, hex));
    json_t *entry = json_pack("{s:I, s:s}", "size", (json_int_t)size, "xxh3_64", hex);
    if (json_object_set_new(files, relative, entry))
        return snug_fail(ctx, SNUG_E_MEMORY, "cannot list %s in its manifest: out of memory, or not UTF-8", path);
    return SNUG_OK;
}

static snug_status manifest_entry(snug_context *ctx, json_t *files, const char *folder, const char *prefix,
                                  const char *name) {
    char *path, *relative;
    RETURN_IF_ERROR(snug_path_join(ctx, &path, folder, name));
    snug_status status = *prefix ? snug_path_join(ctx, &relative, prefix, name) : snug_strdup(ctx, name, &relative);
    if (status == SNUG_OK) status = manifest_add(ctx, files, path, relative);
    free(path);
    free(relative);
    return status;
}

static snug_status manifest_fill(snug_context *ctx, json_t *files, const char *folder, const char *prefix) {
    DIR *list = opendir(folder);
    if (!list) return fail_os(ctx, "open folder", folder);
    snug_status status = SNUG_OK;
    for (struct dirent *entry; status == SNUG_OK && (errno = 0, entry = readdir(list));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        status = manifest_entry(ctx, files, folder, prefix, entry->d_name);
    }
    if (status == SNUG_OK && errno) status = fail_os(ctx, "read folder", folder);
    if (status == SNUG_OK && fsync(dirfd(list)) && errno != EINVAL) status = fail_os(ctx, "sync folder", folder);
    closedir(list);
    return status;
}

static snug_status manifest_write(snug_context *ctx, const char *folder) {
    char *path;
    RETURN_IF_ERROR(snug_path_join(ctx, &path, folder, manifest_name));
    json_t *files = json_object(), *manifest = json_pack("{s:i, s:O}", "version", 1, "files", files);
    snug_status status = manifest ? manifest_fill(ctx, files, folder, "")
                                  : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing %s", folder);
    if (status == SNUG_OK) status = snug_json_write(ctx, path, manifest);
    json_decref(files);
    json_decref(manifest);
    free(path);
    return status;
}

static void remove_superseded(snug_context *ctx, const char *path) {
    if (remove_tree(path))
        snug_log(ctx, SNUG_LOG_WARNING, "cannot remove the superseded folder %s: %s", path, strerror(errno));
}

/* Puts the folder aside in target's place. */
static snug_status swap_in(snug_context *ctx, const char *aside, const char *target) {
    if (rename(aside, target) == 0) return SNUG_OK; /* nothing there, or an empty folder */
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_os(ctx, "write folder", target);
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, target, RENAME_EXCHANGE) == 0) {
        remove_superseded(ctx, aside);
        return SNUG_OK;
    }
    /* The file system (NFS, some FUSE) cannot exchange: two renames. begin_aside() mends a crash between them. */
    char *old;
    RETURN_IF_ERROR(path_beside(ctx, &old, target, "snug-old"));
    snug_status status = snug_folder_remove(ctx, old);
    if (status == SNUG_OK && rename(target, old)) {
        status = fail_os(ctx, "replace folder", target);
    } else if (status == SNUG_OK && rename(aside, target)) {
        status = fail_os(ctx, "write folder", target);
        if (rename(old, target)) snug_log(ctx, SNUG_LOG_ERROR, "the old %s is now %s", target, old);
    } else if (status == SNUG_OK) {
        remove_superseded(ctx, old);
    }
    free(old);
    return status;
}

snug_status snug_folder_commit(snug_context *ctx, char *aside, const char *path) {
    char *target = NULL;
    snug_status status = folder_target(ctx, &target, path);
    if (status == SNUG_OK) status = manifest_write(ctx, aside);
    if (status == SNUG_OK) status = swap_in(ctx, aside, target);
    if (status == SNUG_OK)
        sync_parent(ctx, target);
    else
        remove_tree(aside);
    free(target);
    free(aside);
    return status;
}

/* Whether a name that a file gives leads into its folder: no "..", nothing absolute. */
static bool leads_inside(const char *name) {
    for (;; name++) {
        const size_t length = strcspn(name, "/");
        if (length == 0 || (length == 2 && memcmp(name, "..", 2) == 0)) return false;
        name += length;
        if (!*name) return true;
    }
}

static snug_status verify_file(snug_context *ctx, const char *path, const char *manifest, const json_t *entry) {
    int64_t expected, size;
    const char *checksum;
    char hex[17];
    RETURN_IF_ERROR(snug_json_int(ctx, manifest, entry, "size", -1, &expected));
    RETURN_IF_ERROR(snug_json_string(ctx, manifest, entry, "xxh3_64", "", &checksum));
    if (!snug_file_exists(path)) return snug_fail(ctx, SNUG_E_INPUT, "%s is missing, but %s lists it", path, manifest);
    struct stat info = {0};
    stat(path, &info);
    if (S_ISREG(info.st_mode) && info.st_size != expected)
        size = info.st_size; /* enough to tell: a hole of exabytes is not read */
    else
        RETURN_IF_ERROR(hash_file(ctx, path, false, &size, hex));
    if (size != expected)
        return snug_fail(ctx, SNUG_E_INPUT, "%s is damaged: it has %lld bytes, %s says %lld", path, (long long)size,
                         manifest, (long long)expected);
    if (strcmp(hex, checksum) != 0)
        return snug_fail(ctx, SNUG_E_INPUT, "%s is damaged: its checksum is %s, %s says %s", path, hex, manifest,
                         checksum);
    return SNUG_OK;
}

snug_status snug_folder_verify(snug_context *ctx, const char *path) {
    char *manifest_path;
    json_t *manifest = NULL;
    RETURN_IF_ERROR(snug_path_join(ctx, &manifest_path, path, manifest_name));
    snug_status status;
    if (!snug_file_exists(manifest_path))
        status = snug_fail(ctx, SNUG_E_INPUT, "%s has no %s: it was not written to its end", path, manifest_name);
    else
        status = snug_json_read(ctx, manifest_path, &manifest);
    json_t *files = json_object_get(manifest, "files"), *entry;
    if (status == SNUG_OK && json_object_size(files) == 0)
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: \"files\" must be an object that lists the files", manifest_path);
    const char *name;
    json_object_foreach(files, name, entry) {
        char *file;
        if (status == SNUG_OK && !leads_inside(name))
            status = snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" is not the name of a file in the same folder",
                               manifest_path, name);
        if (status == SNUG_OK && (status = snug_path_join(ctx, &file, path, name)) == SNUG_OK) {
            status = verify_file(ctx, file, manifest_path, entry);
            free(file);
        }
    }
    if (status == SNUG_OK && json_integer_value(json_object_get(manifest, "version")) != 1)
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: \"version\" must be 1", manifest_path);
    json_decref(manifest);
    free(manifest_path);
    return status;
}
