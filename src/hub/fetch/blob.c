/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* "cannot <what> <folder>/<name>: <the system's error>" */
static snug_status fail_os(snug_context *ctx, const char *what, const struct snug_folder *in, const char *name) {
    return snug_fail(ctx, SNUG_E_IO, "cannot %s " SNUG_PATH ": %s", what, SNUG_PATH_IN(in, name), strerror(errno));
}

/* ---- locks ---------------------------------------------------------------------------------------------------- */

snug_status snug_store_lock(struct snug_store *store, const char *name, int *fd) {
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    *fd = openat(store->locks.fd, name, flags, 0664); /* filelock's mode: users of one cache may share it */
    if (*fd < 0) return fail_os(store->ctx, "open", &store->locks, name);
    const int failed = flock(*fd, LOCK_EX | LOCK_NB) ? errno : 0;
    const bool named = snug_file_is_named(*fd, &store->locks, name);
    /* may be untested: another process removes the file between the two calls */
    if (!failed && named) return SNUG_OK;
    close(*fd);
    *fd = -1;
    /* may be untested: the same, and a file system without locks */
    if (!failed || failed == EWOULDBLOCK) return SNUG_END;
    snug_log(store->ctx, SNUG_LOG_WARNING, "%s cannot be locked (%s): make sure that no second pull writes into it",
             store->locks.path, strerror(failed));
    return SNUG_OK;
}

/* SNUG_END while another process fetches the same blob. */
static snug_status lock(struct snug_blob *blob) {
    char *name;
    if (blob->locked) return SNUG_OK;
    RETURN_IF_ERROR(snug_format(blob->store->ctx, &name, "%s.lock", blob->etag));
    const snug_status status = snug_store_lock(blob->store, name, &blob->lock);
    free(name);
    /* may be untested: depends on how long the other process has the lock */
    if (status == SNUG_END && !blob->waits)
        snug_log(blob->store->ctx, SNUG_LOG_INFO, "%s: another process fetches it; waiting for it", blob->name);
    blob->waits |= status == SNUG_END;
    blob->locked = status == SNUG_OK;
    return status;
}

static void release(struct snug_blob *blob) {
    if (blob->fd >= 0) close(blob->fd);
    if (blob->lock >= 0) close(blob->lock);
    blob->fd = blob->lock = -1;
    blob->locked = false;
}

/* ---- what the cache has --------------------------------------------------------------------------------------- */

/* Size of a regular file, where name may be a link to it; -1 if there is none. */
static int64_t size_of(const struct snug_folder *in, const char *name, int flags) {
    struct stat info;
    return fstatat(in->fd, name, &info, flags) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

/* The whole file is in the cache, in blobs or, on a file system without links, in the snapshot. */
static bool is_there(const struct snug_blob *blob) {
    return size_of(&blob->store->blobs, blob->etag, 0) == blob->size ||
           size_of(&blob->store->snapshot, blob->name, AT_SYMLINK_NOFOLLOW) == blob->size;
}

/* An ETag that may be a file's name beside the others: no path, not hidden. */
static bool is_etag(const char *etag) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t length = strlen(etag);
    return length <= 128 && *etag != '.' && strspn(etag, allowed) == length;
}

snug_status snug_blob_open(struct snug_store *store, const char *name, const char *etag, int64_t size,
                           struct snug_blob *out) {
    *out = (struct snug_blob){.store = store, .name = name, .size = size, .fd = -1, .lock = -1};
    if (!is_etag(etag))
        return snug_fail(store->ctx, SNUG_E_INPUT, "%s: the server's ETag \"%s\" cannot be the name of a file", name,
                         etag);
    if (size < 0) return snug_fail(store->ctx, SNUG_E_INPUT, "%s: the server does not say how large it is", name);
    if (snug_digest_kind_of(etag) == SNUG_DIGEST_NONE)
        snug_log(store->ctx, SNUG_LOG_WARNING,
                 "%s: the server's ETag %s is neither a sha256 nor a git hash: only the size is checked", name, etag);
    RETURN_IF_ERROR(snug_strdup(store->ctx, etag, &out->etag));
    RETURN_IF_ERROR(snug_format(store->ctx, &out->partial, "%s.incomplete", etag));
    const int64_t part = size_of(&store->blobs, out->partial, AT_SYMLINK_NOFOLLOW);
    out->have = is_there(out) ? size : part > 0 && part <= size ? part : 0;
    return SNUG_OK;
}

void snug_blob_close(struct snug_blob *blob) {
    release(blob);
    free(blob->etag);
    free(blob->partial);
    blob->etag = blob->partial = NULL;
}

/* ---- the partial file ----------------------------------------------------------------------------------------- */

static snug_status restart(struct snug_blob *blob) {
    /* may be untested: a call that fails */
    if (ftruncate(blob->fd, 0)) return fail_os(blob->store->ctx, "write", &blob->store->blobs, blob->partial);
    blob->have = 0;
    blob->resumed = false;
    snug_digest_begin(&blob->digest, snug_digest_kind_of(blob->etag), blob->size);
    return SNUG_OK;
}

static void add(struct snug_blob *blob, const void *data, size_t size) {
    snug_digest_add(&blob->digest, data, size);
    blob->have += (int64_t)size;
}

/* Hashes what an earlier run has left. */
static snug_status read_part(struct snug_blob *blob, int64_t size) {
    snug_context *ctx = blob->store->ctx;
    enum { BLOCK = 1 << 20 };
    char *block;
    RETURN_IF_ERROR(snug_alloc(ctx, BLOCK, 1, (void **)&block));
    snug_status status = SNUG_OK;
    while (status == SNUG_OK && blob->have < size) {
        const ssize_t got = snug_read_at(blob->fd, block, BLOCK, (uint64_t)blob->have);
        if (got <= 0) /* may be untested: a call that fails, or a file that shrinks meanwhile */
            status = fail_os(ctx, "read", &blob->store->blobs, blob->partial);
        else
            add(blob, block, (size_t)got);
        /* may be untested: depends on when the stop comes */
        if (status == SNUG_OK && snug_stop_asked(ctx))
            status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while reading what an earlier run has fetched");
    }
    free(block);
    return status;
}

static snug_status open_part(struct snug_blob *blob) {
    const struct snug_store *store = blob->store;
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct stat info = {0};
    blob->fd = openat(store->blobs.fd, blob->partial, flags, 0666);
    if (blob->fd < 0) return fail_os(store->ctx, "write", &store->blobs, blob->partial);
    fstat(blob->fd, &info);
    if (!S_ISREG(info.st_mode) || info.st_nlink > 1)
        return snug_fail(store->ctx, SNUG_E_IO, "%s/%s is not a file with one name: remove it", store->blobs.path,
                         blob->partial);
    const int64_t size = (int64_t)info.st_size;
    blob->have = 0;
    snug_digest_begin(&blob->digest, snug_digest_kind_of(blob->etag), blob->size);
    if (size > blob->size) return restart(blob);
    blob->resumed = size > 0;
    return read_part(blob, size);
}

/* ---- the finished file ---------------------------------------------------------------------------------------- */

/* The snapshot's name for the blob: a relative link, which survives a move of the cache. */
static snug_status link_blob(struct snug_blob *blob) {
    const struct snug_store *store = blob->store;
    char *target;
    struct stat info;
    if (fstatat(store->snapshot.fd, blob->name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        /* may be untested: another process has made the link meanwhile */
        if (size_of(&store->snapshot, blob->name, 0) == blob->size) return SNUG_OK;
        if (!S_ISLNK(info.st_mode))
            return snug_fail(store->ctx, SNUG_E_IO,
                             "%s/%s exists and is not the file of this name on the hub: remove it",
                             store->snapshot.path, blob->name);
        unlinkat(store->snapshot.fd, blob->name, 0); /* a link to nothing, or to a blob of another size */
    }
    RETURN_IF_ERROR(snug_format(store->ctx, &target, "../../blobs/%s", blob->etag));
    /* may be untested: another process that makes the same link */
    int failed = symlinkat(target, store->snapshot.fd, blob->name) ? errno : 0;
    free(target);
    /* untested: needs a file system without symbolic links */
    if (failed == EPERM || failed == EOPNOTSUPP)
        failed = renameat(store->blobs.fd, blob->etag, store->snapshot.fd, blob->name) ? errno : 0;
    errno = failed;
    /* may be untested: another process that makes the same link, or a disk that fails */
    return failed && failed != EEXIST ? fail_os(store->ctx, "make", &store->snapshot, blob->name) : SNUG_OK;
}

static snug_status publish(struct snug_blob *blob) {
    const struct snug_folder *blobs = &blob->store->blobs;
    /* untested: needs a disk that fails */
    if (fsync(blob->fd)) return fail_os(blob->store->ctx, "write", blobs, blob->partial);
    if (renameat(blobs->fd, blob->partial, blobs->fd, blob->etag)) /* may be untested: a folder of that name */
        return fail_os(blob->store->ctx, "make", blobs, blob->etag);
    snug_folder_sync(blob->store->ctx, blobs, blob->etag);
    RETURN_IF_ERROR(link_blob(blob));
    release(blob);
    return SNUG_OK;
}

/* The file is complete. SNUG_END: it is damaged, and fetched again from the first byte. */
static snug_status check(struct snug_blob *blob) {
    char found[SNUG_DIGEST_TEXT];
    snug_context *ctx = blob->store->ctx;
    const enum snug_digest_kind kind = blob->digest.kind;
    snug_digest_end(&blob->digest, found);
    if (kind == SNUG_DIGEST_NONE || strcmp(found, blob->etag) == 0) return publish(blob);
    if (blob->resumed) {
        snug_log(ctx, SNUG_LOG_WARNING, "%s: the part that an earlier run has left is damaged, and is fetched again",
                 blob->name);
        RETURN_IF_ERROR(restart(blob));
        return SNUG_END;
    }
    unlinkat(blob->store->blobs.fd, blob->partial, 0);
    return snug_fail(
        ctx, SNUG_E_INPUT,
        "%s: the server sent other content than it announced: its %s is %s, not %s; nothing of it was kept", blob->name,
        snug_digest_name(kind), found, blob->etag);
}

/* ---- the request's calls -------------------------------------------------------------------------------------- */

snug_status snug_blob_start(struct snug_request *request) {
    struct snug_blob *blob = request->user;
    if (size_of(&blob->store->snapshot, blob->name, 0) == blob->size) { /* a cache may be read-only: needs no lock */
        blob->have = blob->size;
        request->done = true;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(lock(blob));
    if (is_there(blob)) { /* also if another process has fetched it meanwhile */
        blob->have = blob->size;
        request->done = true;
        const snug_status status = link_blob(blob);
        release(blob);
        return status;
    }
    if (blob->fd < 0) RETURN_IF_ERROR(open_part(blob));
    if (blob->have == blob->size && blob->size > 0) { /* the last run ended before it could rename the file */
        const snug_status status = check(blob);
        request->done = status == SNUG_OK;
        if (status != SNUG_END) return status;
    }
    request->from = blob->have;
    return SNUG_OK;
}

snug_status snug_blob_begin(struct snug_request *request) {
    struct snug_blob *blob = request->user;
    const struct snug_answer *answer = &request->answer;
    if (answer->status == 206 && answer->range_first != request->from)
        return snug_fail(blob->store->ctx, SNUG_E_INPUT, "%s: the server sent bytes from %lld on, not from %lld on",
                         blob->name, (long long)answer->range_first, (long long)request->from);
    if (answer->status != 206 && request->from > 0) { /* the server has no ranges, and sends the whole file */
        RETURN_IF_ERROR(restart(blob));
        request->from = 0;
    }
    if (answer->length >= 0 && answer->length != blob->size - request->from)
        return snug_fail(blob->store->ctx, SNUG_E_INPUT, "%s: the server sends %lld bytes instead of %lld", blob->name,
                         (long long)answer->length, (long long)(blob->size - request->from));
    return SNUG_OK;
}

snug_status snug_blob_receive(struct snug_request *request, const void *data, size_t size) {
    struct snug_blob *blob = request->user;
    if ((int64_t)size > blob->size - blob->have)
        return snug_fail(blob->store->ctx, SNUG_E_INPUT,
                         "%s: the server sends more than the %lld bytes that it announced", blob->name,
                         (long long)blob->size);
    snug_digest_add(&blob->digest, data, size);
    for (const char *at = data; size > 0;) {
        const ssize_t put = pwrite(blob->fd, at, size, (off_t)blob->have);
        if (put < 0 && errno == EINTR) continue; /* may be untested: a call that fails */
        if (put < 0) return fail_os(blob->store->ctx, "write", &blob->store->blobs, blob->partial);
        at += put;
        size -= (size_t)put;
        blob->have += put;
        blob->fetched += put;
    }
    return SNUG_OK;
}

snug_status snug_blob_finish(struct snug_request *request) {
    struct snug_blob *blob = request->user;
    return blob->have < blob->size ? SNUG_END : check(blob);
}
