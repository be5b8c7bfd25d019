/* SPDX-License-Identifier: Apache-2.0 */
#include "io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char lock_name[] = ".snug.lock";

enum { TEXT_MAX = 1 << 16 }; /* bytes of the file: about 1000 killed runs */

static snug_status fail_in_the_way(snug_context *ctx, const struct snug_folder *folder, const char *what) {
    return snug_fail(ctx, SNUG_E_IO,
                     SNUG_PATH ", which keeps other runs out of the folder, %s: move it, or give another --output_dir",
                     SNUG_PATH_IN(folder, lock_name), what);
}

/* Parses "process 4711 on HOST, run 0123456789abcdef"; the last line may be truncated, and an older version wrote no
 * run. Returns the line's length; 0 if it is not such a line. */
static size_t read_line(const char *line, uint64_t *run) {
    int host = 0, number = 0;
    const size_t length = strcspn(line, "\n");
    sscanf(line, "process %*d on %n%*[^,\n], run %n", &host, &number);
    const bool ends = line[length] == '\n', numbered = number > 0 && number < (int)length;
    const bool whole =
        numbered && ends && length == (size_t)number + 16 && strspn(line + number, "0123456789abcdef") == 16;
    if (!host || (numbered && ends && !whole)) return 0;
    *run = whole ? strtoull(line + number, NULL, 16) : 0;
    return length + ends;
}

static snug_status read_killed(snug_context *ctx, const struct snug_folder *folder, const char *text,
                               struct snug_lock *lock) {
    size_t capacity = 0;
    for (size_t length; *text; text += length) {
        uint64_t run;
        length = read_line(text, &run);
        if (!length) return fail_in_the_way(ctx, folder, "contains text that snug did not write");
        if (!run) continue;
        RETURN_IF_ERROR(
            snug_grow(ctx, (void **)&lock->killed, &capacity, lock->killed_count + 1, sizeof *lock->killed));
        lock->killed[lock->killed_count++] = run;
    }
    return SNUG_OK;
}

/* The file's text; NUL-terminated. */
static snug_status read_text(snug_context *ctx, int fd, const struct snug_folder *folder, char **text) {
    RETURN_IF_ERROR(snug_alloc(ctx, TEXT_MAX + 1, 1, (void **)text));
    const ssize_t got = snug_read_at(fd, *text, TEXT_MAX, 0);
    if (got < TEXT_MAX && got >= 0) return SNUG_OK;
    free(*text);
    *text = NULL;
    return fail_in_the_way(ctx, folder, got < 0 ? "cannot be read" : "holds text that is not snug's");
}

/* Appends the line of this run. The lock is valid without it. */
static void write_line(int fd, uint64_t run) {
    char text[128 + HOST_NAME_MAX], host[HOST_NAME_MAX + 1];
    gethostname(host, sizeof host); /* has room for any */
    host[strcspn(host, ",\n")] = '\0';
    const int length =
        snprintf(text, sizeof text, "process %ld on %s, run %016llx\n", (long)getpid(), host, (unsigned long long)run);
    const off_t end = lseek(fd, 0, SEEK_END);
    if (pwrite(fd, text, (size_t)length, end < 0 ? 0 : end) != length) return;
}

static snug_status fail_held(snug_context *ctx, int fd, const struct snug_folder *folder) {
    char *text, *line;
    RETURN_IF_ERROR(read_text(ctx, fd, folder, &text));
    const size_t length = strlen(text);
    if (length && text[length - 1] == '\n') text[length - 1] = '\0';
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    line[strcspn(line, ",")] = '\0';
    const snug_status status = snug_fail(ctx, SNUG_E_IO,
                                         "%s: another run is writing into this folder (%s): wait until it ends, or "
                                         "give another --output_dir",
                                         folder->path, *line ? line : "another process");
    free(text);
    return status;
}

/* The opened file must be a regular file with this single name. */
static snug_status check_kind(snug_context *ctx, int fd, const struct snug_folder *folder) {
    struct stat info = {0};
    fstat(fd, &info);
    if (!S_ISREG(info.st_mode)) return fail_in_the_way(ctx, folder, "is not a regular file");
    return info.st_nlink > 1 ? fail_in_the_way(ctx, folder, "has several names (hard links)") : SNUG_OK;
}

static snug_status open_lock(snug_context *ctx, const struct snug_folder *folder, int *fd) {
    *fd =
        openat(folder->fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, folder->mode);
    if (*fd >= 0) return SNUG_OK;
    if (errno == ELOOP) return fail_in_the_way(ctx, folder, "is a symbolic link");
    if (errno == ENXIO || errno == EISDIR) return fail_in_the_way(ctx, folder, "is not a regular file");
    return snug_fail(ctx, SNUG_E_IO, "cannot write " SNUG_PATH ", which keeps other runs out of the folder: %s",
                     SNUG_PATH_IN(folder, lock_name), strerror(errno));
}

/* Removes a lock file that was created here and is therefore empty. */
static void remove_made(int fd, const struct snug_folder *folder) {
    struct stat info;
    if (fstat(fd, &info) == 0 && info.st_size == 0) unlinkat(folder->fd, lock_name, 0);
}

/* SNUG_END if the caller has to try again. */
static snug_status try_lock(snug_context *ctx, int fd, const struct snug_folder *folder, struct snug_lock *lock) {
    char *text;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno == EWOULDBLOCK) return fail_held(ctx, fd, folder);
        snug_log(ctx, SNUG_LOG_WARNING, "%s cannot be locked (%s): make sure that no second run writes into it",
                 folder->path, strerror(errno));
        remove_made(fd, folder);
        return SNUG_OK;
    }
    if (!snug_file_is_named(fd, folder, lock_name))
        return SNUG_END; /* the previous holder removed it after it was opened here */
    snug_status status = read_text(ctx, fd, folder, &text);
    if (status == SNUG_OK) {
        status = read_killed(ctx, folder, text, lock);
        free(text);
    }
    if (status == SNUG_OK)
        lock->folder = folder;
    else
        remove_made(fd, folder);
    return status;
}

snug_status snug_lock_take(snug_context *ctx, struct snug_folder *folder, struct snug_lock *lock) {
    snug_status status = SNUG_END;
    int fd = -1;
    *lock = (struct snug_lock){0};
    while (status == SNUG_END) {
        RETURN_IF_ERROR(open_lock(ctx, folder, &fd));
        status = check_kind(ctx, fd, folder);
        if (status == SNUG_OK) status = try_lock(ctx, fd, folder, lock);
        if (status != SNUG_OK || !lock->folder) close(fd);
    }
    folder->run = snug_random_number();
    if (status == SNUG_OK && lock->folder) {
        lock->fd = fd;
        write_line(fd, folder->run);
        return SNUG_OK;
    }
    free(lock->killed);
    *lock = (struct snug_lock){0};
    return status;
}

void snug_lock_forget_killed(struct snug_lock *lock) {
    if (!lock->folder || !lock->killed_count) return;
    free(lock->killed);
    lock->killed = NULL;
    lock->killed_count = 0;
    if (ftruncate(lock->fd, 0) == 0) write_line(lock->fd, lock->folder->run);
}

void snug_lock_release(struct snug_lock *lock) {
    if (!lock->folder) return;
    /* While the lock is held the file cannot be another run's. If the user replaced the file, the new one is not
       removed. Lines of killed runs remain if this run ends before it has removed their files. */
    if (!lock->killed_count && !lock->keep && snug_file_is_named(lock->fd, lock->folder, lock_name))
        unlinkat(lock->folder->fd, lock_name, 0);
    close(lock->fd);
    free(lock->killed);
    *lock = (struct snug_lock){0};
}
