/* SPDX-License-Identifier: Apache-2.0 */
#include "io/offload_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/folder.h"

enum {
    REQUESTS = 256,         /* maximum number of copies in flight */
    DIRTY = 256,            /* maximum number of written regions that are not dropped yet … */
    DIRTY_BYTES = 32 << 20, /* … and of their bytes: the maximum of the offload file in the page cache */
    PIECE = 4 << 20,        /* bytes written by one call */
};

struct request {
    uint8_t *data;
    int64_t offset, bytes;
    bool store;
};

struct region {
    int64_t offset, bytes;
};

struct snug_offload_file {
    char *folder;
    int fd;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* protects the following members */
    pthread_cond_t asked, done;
    struct request requests[REQUESTS]; /* number n is at n % REQUESTS */
    uint64_t first, next;              /* the oldest request in flight, and the next number, from 1 */
    bool closing;
    int error; /* errno of the first copy that failed */
    bool error_store;
    double seconds[2]; /* of fetches and of stores */
    /* Used by the copying thread only. */
    struct region dirty[DIRTY];
    size_t dirty_first, dirty_count;
    int64_t dirty_bytes;
};

/* ---- copying -------------------------------------------------------------------------------------------------- */

static int fetch(struct snug_offload_file *s, uint8_t *data, int64_t offset, int64_t bytes) {
    posix_fadvise(s->fd, offset, bytes,
                  POSIX_FADV_WILLNEED); /* the readahead of the whole region runs while its beginning is copied */
    if (snug_read_at(s->fd, data, (size_t)bytes, (uint64_t)offset) != bytes) return errno ? errno : EIO;
    posix_fadvise(s->fd, offset, bytes, POSIX_FADV_DONTNEED);
    return 0;
}

/* Waits until the oldest written region is on the disk, and drops it from the page cache. */
static int drop_oldest(struct snug_offload_file *s) {
    const struct region oldest = s->dirty[s->dirty_first];
    s->dirty_first = (s->dirty_first + 1) % DIRTY;
    s->dirty_count--;
    s->dirty_bytes -= oldest.bytes;
    const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const int failed = sync_file_range(s->fd, oldest.offset, oldest.bytes, wait) ? errno : 0;
    posix_fadvise(s->fd, oldest.offset, oldest.bytes, POSIX_FADV_DONTNEED);
    return failed == EIO || failed == ENOSPC ? failed : 0; /* on failure the region stays in the page cache */
}

static int store(struct snug_offload_file *s, const uint8_t *data, int64_t offset, int64_t bytes) {
    while (bytes > 0) {
        const ssize_t put = pwrite(s->fd, data, (size_t)(bytes < PIECE ? bytes : PIECE), offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? errno : EIO;
        sync_file_range(s->fd, offset, put,
                        SYNC_FILE_RANGE_WRITE); /* starts the writeback; drop_oldest() gets its errors */
        s->dirty[(s->dirty_first + s->dirty_count++) % DIRTY] = (struct region){offset, put};
        s->dirty_bytes += put;
        while (s->dirty_count == DIRTY || s->dirty_bytes > DIRTY_BYTES) {
            const int failed = drop_oldest(s);
            if (failed) return failed;
        }
        data += put;
        offset += put;
        bytes -= put;
    }
    return 0;
}

static void *copy_in_order(void *user) {
    struct snug_offload_file *s = user;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (s->first == s->next && !s->closing) pthread_cond_wait(&s->asked, &s->mutex);
        if (s->first == s->next) break;
        const struct request r = s->requests[s->first % REQUESTS];
        const bool failed_before = s->error != 0; /* after a failed copy the others are useless */
        pthread_mutex_unlock(&s->mutex);
        const double begin = snug_seconds();
        const int error = failed_before ? 0
                          : r.store     ? store(s, r.data, r.offset, r.bytes)
                                        : fetch(s, r.data, r.offset, r.bytes);
        /* A device may compute with the data before the failure is reported: a NaN would look like its cause. */
        if ((error || failed_before) && !r.store) memset(r.data, 0, (size_t)r.bytes);
        pthread_mutex_lock(&s->mutex);
        if (error) {
            s->error = error;
            s->error_store = r.store;
        }
        s->seconds[r.store] += snug_seconds() - begin;
        s->first++;
        pthread_cond_broadcast(&s->done);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static snug_status fail_open(snug_context *ctx, const char *folder, int64_t bytes, int error) {
    return snug_fail(ctx, SNUG_E_IO,
                     "%s cannot hold the %.1f MiB that are offloaded to it: %s; give another --offload_dir, or offload "
                     "less",
                     folder, (double)bytes / 0x1p20, strerror(error));
}

/* Above this limit the kernel sends a signal that ends the process, so it is checked before. */
static int check_limit(int64_t bytes) {
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY}; /* the largest number */
    getrlimit(RLIMIT_FSIZE, &limit);
    return (uint64_t)bytes > (uint64_t)limit.rlim_cur ? EFBIG : 0;
}

static snug_status start(struct snug_offload_file *s, snug_context *ctx) {
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN + 65536);
    sigfillset(&all); /* the program's other threads handle signals */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    s->started = pthread_create(&s->thread, &attributes, copy_in_order, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return s->started ? SNUG_OK
                      : snug_fail(ctx, SNUG_E_MEMORY, "cannot start the thread that copies offloaded tensors");
}

snug_status snug_offload_file_open(snug_context *ctx, const char *folder, int64_t bytes,
                                   struct snug_offload_file **out) {
    void *memory;
    *out = NULL;
    const bool made = !snug_folder_exists(folder);
    RETURN_IF_ERROR(snug_folder_create(ctx, folder));
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    struct snug_offload_file *s = memory;
    s->fd = -1;
    s->first = s->next = 1;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->asked, NULL);
    pthread_cond_init(&s->done, NULL);
    snug_status status = snug_strdup(ctx, folder, &s->folder);
    if (status == SNUG_OK) {
        int error = check_limit(bytes);
        if (!error) error = snug_unnamed_open(ctx, folder, &s->fd);
        if (!error) {
            do error = posix_fallocate(s->fd, 0, bytes);
            while (error == EINTR);
        }
        if (error) status = fail_open(ctx, folder, bytes, error);
    }
    if (status == SNUG_OK) status = start(s, ctx);
    if (status == SNUG_OK) {
        *out = s;
        return SNUG_OK;
    }
    snug_offload_file_close(s);
    if (made) rmdir(folder);
    return status;
}

void snug_offload_file_close(struct snug_offload_file *file) {
    if (!file) return;
    if (file->started) {
        pthread_mutex_lock(&file->mutex);
        file->closing = true;
        pthread_cond_signal(&file->asked);
        pthread_mutex_unlock(&file->mutex);
        pthread_join(file->thread, NULL);
    }
    if (file->fd >= 0) close(file->fd);
    pthread_cond_destroy(&file->asked);
    pthread_cond_destroy(&file->done);
    pthread_mutex_destroy(&file->mutex);
    free(file->folder);
    free(file);
}

bool snug_offload_file_is_memory(const char *folder) {
    struct statfs fs;
    return statfs(folder, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static uint64_t ask(struct snug_offload_file *s, struct request request) {
    pthread_mutex_lock(&s->mutex);
    while (s->next - s->first == REQUESTS) pthread_cond_wait(&s->done, &s->mutex);
    const uint64_t number = s->next++;
    s->requests[number % REQUESTS] = request;
    pthread_cond_signal(&s->asked);
    pthread_mutex_unlock(&s->mutex);
    return number;
}

uint64_t snug_offload_file_fetch(struct snug_offload_file *file, void *data, int64_t offset, int64_t bytes) {
    return ask(file, (struct request){data, offset, bytes, false});
}

uint64_t snug_offload_file_store(struct snug_offload_file *file, const void *data, int64_t offset, int64_t bytes) {
    return ask(file, (struct request){(uint8_t *)(uintptr_t)data, offset, bytes, true});
}

static void await(struct snug_offload_file *file, uint64_t number) {
    pthread_mutex_lock(&file->mutex);
    while (file->first <= number) pthread_cond_wait(&file->done, &file->mutex);
    pthread_mutex_unlock(&file->mutex);
}

const struct snug_offload_file_calls snug_offload_file_calls = {
    .fetch = snug_offload_file_fetch, .store = snug_offload_file_store, .await = await};

snug_status snug_offload_file_check(snug_context *ctx, struct snug_offload_file *file) {
    pthread_mutex_lock(&file->mutex);
    const int error = file->error;
    const bool stored = file->error_store;
    pthread_mutex_unlock(&file->mutex);
    if (!error) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_IO, "the offload file in %s cannot be %s: %s", file->folder,
                     stored ? "written" : "read back", strerror(error));
}

void snug_offload_file_seconds(struct snug_offload_file *file, double seconds[2]) {
    pthread_mutex_lock(&file->mutex);
    memcpy(seconds, file->seconds, sizeof file->seconds);
    pthread_mutex_unlock(&file->mutex);
}

snug_status snug_offload_file_wait(snug_context *ctx, struct snug_offload_file *file, uint64_t number) {
    await(file, number);
    return snug_offload_file_check(ctx, file);
}

snug_status snug_offload_file_drain(snug_context *ctx, struct snug_offload_file *file) {
    pthread_mutex_lock(&file->mutex);
    const uint64_t last = file->next - 1;
    pthread_mutex_unlock(&file->mutex);
    return snug_offload_file_wait(ctx, file, last);
}
