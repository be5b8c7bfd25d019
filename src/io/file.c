/* SPDX-License-Identifier: Apache-2.0 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/file_kind.h"

/* "cannot <what> <path>: <the system's error>" */
static snug_status fail_os(snug_context *ctx, const char *what, const char *path) {
    return snug_fail(ctx, SNUG_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static snug_status fail_os_in(snug_context *ctx, const char *what, const struct snug_folder *in, const char *name) {
    return snug_fail(ctx, SNUG_E_IO, "cannot %s " SNUG_PATH ": %s", what, SNUG_PATH_IN(in, name), strerror(errno));
}

int snug_folder_fd(const struct snug_folder *in) { return in ? in->fd : AT_FDCWD; }

/* ---- reading -------------------------------------------------------------------------------------------------- */

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

snug_status snug_file_open(snug_context *ctx, const struct snug_folder *in, const char *name, int *fd) {
    struct stat info = {0}; /* mode 0 if the file system cannot report it */
    /* O_NONBLOCK: opening a pipe must not wait for a writer. */
    *fd = openat(snug_folder_fd(in), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) return fail_os_in(ctx, "open", in, name);
    fstat(*fd, &info);
    if (S_ISREG(info.st_mode)) return SNUG_OK;
    close(*fd);
    *fd = -1;
    return snug_fail(ctx, SNUG_E_INPUT, SNUG_PATH " is not a regular file%s", SNUG_PATH_IN(in, name),
                     S_ISDIR(info.st_mode) ? ", but a directory" : "");
}

static snug_status read_whole(snug_context *ctx, int fd, const struct snug_folder *in, const char *name, void **bytes,
                              size_t *size) {
    struct stat info = {0};
    size_t capacity = 0;
    fstat(fd, &info);
    /* The size is a hint only: files of /proc report 0, and a file may grow. */
    for (size_t need = info.st_size > 0 ? (size_t)info.st_size + 2 : 4096;; need = capacity + 1) {
        if (need > (size_t)SNUG_FILE_BYTES_MOST + 2)
            return snug_fail(ctx, SNUG_E_INPUT, SNUG_PATH " is larger than 256 MiB, which no file of its kind needs",
                             SNUG_PATH_IN(in, name));
        RETURN_IF_ERROR(snug_grow(ctx, bytes, &capacity, need, 1));
        while (*size < capacity - 1) {
            const ssize_t got = snug_read(fd, (char *)*bytes + *size, capacity - 1 - *size);
            if (got < 0) return fail_os_in(ctx, "read", in, name);
            if (got == 0) return SNUG_OK;
            *size += (size_t)got;
        }
    }
}

static snug_status check_kind(snug_context *ctx, const struct snug_folder *in, const char *name, const void *bytes,
                              size_t size) {
    char *path;
    if (!snug_file_kind(bytes, size)) return SNUG_OK;
    RETURN_IF_ERROR(snug_format(ctx, &path, SNUG_PATH, SNUG_PATH_IN(in, name)));
    const snug_status status = snug_file_check_kind(ctx, path, bytes, size);
    free(path);
    return status;
}

snug_status snug_file_read(snug_context *ctx, const struct snug_folder *in, const char *name, char **data,
                           size_t *size) {
    void *bytes = NULL;
    int fd;
    *data = NULL;
    *size = 0;
    RETURN_IF_ERROR(snug_file_open(ctx, in, name, &fd));
    snug_status status = read_whole(ctx, fd, in, name, &bytes, size);
    close(fd);
    if (status == SNUG_OK) status = check_kind(ctx, in, name, bytes, *size);
    if (status != SNUG_OK) {
        free(bytes);
        *size = 0;
        return status;
    }
    *data = bytes;
    (*data)[*size] = '\0';
    return SNUG_OK;
}

snug_status snug_file_digest(snug_context *ctx, int fd, const char *name, int64_t *size, uint64_t *digest) {
    char buffer[1 << 15];
    XXH3_state_t *state = XXH3_createState();
    snug_status status = state ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while checking %s", name);
    if (state) XXH3_64bits_reset(state);
    *size = 0;
    for (ssize_t got; status == SNUG_OK && (got = snug_read_at(fd, buffer, sizeof buffer, (uint64_t)*size)) != 0;) {
        if (got < 0) {
            status = fail_os(ctx, "read", name);
        } else {
            XXH3_64bits_update(state, buffer, (size_t)got);
            *size += got;
        }
    }
    if (status == SNUG_OK) *digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

bool snug_file_exists(const struct snug_folder *in, const char *name) {
    struct stat info;
    return fstatat(snug_folder_fd(in), name, &info, 0) == 0 && !S_ISDIR(info.st_mode);
}

bool snug_file_is_named(int fd, const struct snug_folder *in, const char *name) {
    struct stat opened = {0}, named;
    fstat(fd, &opened);
    return fstatat(snug_folder_fd(in), name, &named, AT_SYMLINK_NOFOLLOW) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

snug_status snug_path_join(snug_context *ctx, char **out, const char *folder, const char *name) {
    size_t length = strlen(folder);
    const bool ends = length == 0 || folder[length - 1] == '/'; /* "" is the working directory */
    return snug_format(ctx, out, "%s%s%s", folder, ends ? "" : "/", name);
}

/* Length of path without its last name: 4 for "/a/b", with the slash; 0 for "b". */
static size_t parent_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

#define MARK ".snug-"
enum { RUN_DIGITS = 16 };

snug_status snug_temporary_name(snug_context *ctx, const char *name, uint64_t run, const char *suffix, char **out) {
    const size_t parent = parent_length(name);
    return snug_format(ctx, out, "%.*s.%s" MARK "%016llx%s", (int)parent, name, name + parent, (unsigned long long)run,
                       suffix);
}

bool snug_temporary_run(const char *name, uint64_t *run, size_t *name_length) {
    static const char digits[] = "0123456789abcdef";
    const char *at = NULL;
    for (const char *next = name; *name == '.' && (next = strstr(next + 1, MARK));) at = next;
    if (!at) return false;
    const char *number = at + strlen(MARK);
    if (strspn(number, digits) != RUN_DIGITS) return false;
    const char *end = number + RUN_DIGITS;
    if (*end == '-' && end[1]) end += 1 + strspn(end + 1, "0123456789");
    if (*end && strcmp(end, ".old") != 0) return false;
    *run = strtoull(number, NULL, 16);
    *name_length = (size_t)(at - name) - 1;
    return true;
}

uint64_t snug_random_number(void) {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) { /* before Linux 3.17 */
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        number = ((uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec << 8 ^ (uint64_t)getpid()) | 1;
    }
    return number ? number : 1;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

void snug_folder_sync(snug_context *ctx, const struct snug_folder *in, const char *name) {
    char *folder = NULL;
    const size_t parent = parent_length(name);
    if (!in && snug_format(ctx, &folder, "%.*s", (int)(parent ? parent : 1), parent ? name : ".") != SNUG_OK) return;
    const int fd = in ? in->fd : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) && errno != EINVAL)) /* EINVAL: the file system syncs no folders */
        snug_log(ctx, SNUG_LOG_WARNING, "cannot sync folder %s: %s", in ? in->path : folder, strerror(errno));
    if (!in && fd >= 0) close(fd);
    free(folder);
}

/* Temporary files are locked, so that a cleanup can tell them from files that killed processes left. Returns true if
 * another process cleaned up this file before it was locked. */
static bool is_swept(int fd, const struct snug_folder *in, const char *temporary) {
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK; /* otherwise the file system has no locks, and no cleanup is done */
    return !snug_file_is_named(fd, in, temporary);
}

/* 0, or EEXIST: a rename would replace a file that snug must not remove. */
static int cannot_be_replaced(const struct snug_writer *writer) {
    struct stat info;
    if (fstatat(snug_folder_fd(writer->in), writer->name, &info, AT_SYMLINK_NOFOLLOW))
        return 0; /* no such file; or opening the temporary file fails too */
    return S_ISREG(info.st_mode) ? 0 : EEXIST;
}

static snug_status fail_write(snug_context *ctx, const char *path, int error) {
    if (error == EEXIST) return snug_fail(ctx, SNUG_E_IO, "cannot write %s: it exists and is not a regular file", path);
    return snug_fail(ctx, SNUG_E_IO, "cannot write %s: %s", path, strerror(error));
}

static snug_status open_temporary(snug_context *ctx, struct snug_writer *writer) {
    const struct snug_folder *in = writer->in;
    const uint64_t run = in && in->run ? in->run : snug_random_number();
    int fd = -1;
    /* The name is new: other threads and processes may write the same file. */
    for (int attempt = 0; fd < 0; attempt++) {
        char suffix[16];
        snprintf(suffix, sizeof suffix, "-%d", attempt);
        free(writer->temporary);
        RETURN_IF_ERROR(snug_temporary_name(ctx, writer->name, run, suffix, &writer->temporary));
        fd = openat(snug_folder_fd(in), writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                    in ? in->mode : 0666);
        if (fd < 0 && errno != EEXIST) break;
        if (fd >= 0 && is_swept(fd, in, writer->temporary)) {
            close(fd);
            fd = -1;
        }
    }
    const int error = errno;
    if (fd < 0) {
        free(writer->temporary); /* no file of that name belongs to this writer */
        writer->temporary = NULL;
        return fail_write(ctx, writer->path, error);
    }
    writer->file = fdopen(fd, "w");
    if (writer->file) return SNUG_OK;
    const snug_status status = fail_write(ctx, writer->path, errno);
    close(fd);
    return status;
}

snug_status snug_writer_open(snug_context *ctx, const struct snug_folder *in, const char *name,
                             struct snug_writer *writer) {
    *writer = (struct snug_writer){.in = in};
    snug_status status = snug_format(ctx, &writer->path, SNUG_PATH, SNUG_PATH_IN(in, name));
    if (status == SNUG_OK) status = snug_strdup(ctx, name, &writer->name);
    if (status == SNUG_OK && cannot_be_replaced(writer)) status = fail_write(ctx, writer->path, EEXIST);
    if (status == SNUG_OK) status = open_temporary(ctx, writer);
    if (status != SNUG_OK) snug_writer_abandon(writer);
    return status;
}

static void note_error(struct snug_writer *writer, int error) {
    if (!writer->failed) writer->error = error;
    writer->failed = true;
}

void snug_writer_put(struct snug_writer *writer, const void *data, size_t size) {
    if (writer->failed || size == 0 || fwrite(data, 1, size, writer->file) == size) return;
    note_error(writer, errno);
}

/* Reserves memory for the name, so that recording it after the rename cannot fail. */
static snug_status reserve_name(snug_context *ctx, struct snug_writer *writer) {
    struct snug_written *written = writer->in ? writer->in->written : NULL;
    if (!written) return SNUG_OK;
    return snug_grow(ctx, (void **)&written->names, &written->capacity, written->count + 1, sizeof *written->names);
}

static void note_name(struct snug_writer *writer) {
    struct snug_written *written = writer->in ? writer->in->written : NULL;
    if (!written) return;
    written->names[written->count++] = writer->name;
    writer->name = NULL;
}

/* Without the lock: another run's cleanup in the same folder is kept away by the folder's own (io/lock.h). */
snug_status snug_writer_finish(snug_context *ctx, struct snug_writer *writer) {
    if (!writer->failed && (fflush(writer->file) || fsync(fileno(writer->file)))) note_error(writer, errno);
    fclose(writer->file);
    writer->file = NULL;
    if (!writer->failed) return SNUG_OK;
    const snug_status status = fail_write(ctx, writer->path, writer->error);
    snug_writer_abandon(writer);
    return status;
}

snug_status snug_writer_commit(snug_context *ctx, struct snug_writer *writer) {
    const snug_status room = reserve_name(ctx, writer);
    if (room != SNUG_OK) {
        snug_writer_abandon(writer);
        return room;
    }
    const int folder = snug_folder_fd(writer->in);
    if (writer->file) RETURN_IF_ERROR(snug_writer_finish(ctx, writer));
    if (cannot_be_replaced(writer)) note_error(writer, EEXIST);
    if (!writer->failed && renameat(folder, writer->temporary, folder, writer->name)) note_error(writer, errno);
    snug_status status = SNUG_OK;
    if (writer->failed) {
        status = fail_write(ctx, writer->path, writer->error);
    } else {
        snug_folder_sync(ctx, writer->in, writer->name);
        free(writer->temporary); /* abandon must not remove anything */
        writer->temporary = NULL;
        note_name(writer);
    }
    snug_writer_abandon(writer);
    return status;
}

snug_status snug_writer_rename(snug_context *ctx, struct snug_writer *writer, const char *name) {
    free(writer->name);
    free(writer->path);
    writer->name = writer->path = NULL;
    RETURN_IF_ERROR(snug_format(ctx, &writer->path, SNUG_PATH, SNUG_PATH_IN(writer->in, name)));
    return snug_strdup(ctx, name, &writer->name);
}

void snug_writer_abandon(struct snug_writer *writer) {
    if (writer->file) fclose(writer->file);
    if (writer->temporary) unlinkat(snug_folder_fd(writer->in), writer->temporary, 0);
    free(writer->temporary);
    free(writer->name);
    free(writer->path);
    *writer = (struct snug_writer){0};
}

snug_status snug_write_at(snug_context *ctx, int fd, const char *path, const void *data, int64_t size, int64_t offset) {
    for (int64_t done = 0; done < size;) {
        const ssize_t put = pwrite(fd, (const char *)data + done, (size_t)(size - done), (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return fail_write(ctx, path, put < 0 ? errno : EIO);
        done += put;
    }
    return SNUG_OK;
}

snug_status snug_file_sync(snug_context *ctx, int fd, const char *path) {
    return fsync(fd) ? fail_write(ctx, path, errno) : SNUG_OK;
}

snug_status snug_file_replace(snug_context *ctx, const struct snug_folder *in, const char *name, const void *data,
                              size_t size) {
    struct snug_writer writer;
    RETURN_IF_ERROR(snug_writer_open(ctx, in, name, &writer));
    snug_writer_put(&writer, data, size);
    return snug_writer_commit(ctx, &writer);
}
