/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch/blob.h"

#include <ctype.h>
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

/* Opens a file that stays under its name while it is written, or creates it; it is not truncated. What stands there may
 * be of another user who may write into the cache: a link is not followed, a pipe not waited for, and neither it nor a
 * file that has a second name elsewhere is used. */
static snug_status open_in_place(snug_context *ctx, const struct snug_folder *in, const char *name, mode_t mode,
                                 int *fd) {
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct stat info = {0};
    *fd = openat(in->fd, name, flags, mode);
    if (*fd < 0) return fail_os(ctx, "write", in, name);
    fstat(*fd, &info);
    if (S_ISREG(info.st_mode) && info.st_nlink <= 1) return SNUG_OK; /* 0: another process has removed it */
    close(*fd);
    *fd = -1;
    return snug_fail(ctx, SNUG_E_IO, SNUG_PATH " is not a file with one name: remove it", SNUG_PATH_IN(in, name));
}

/* ---- locks ---------------------------------------------------------------------------------------------------- */

snug_status snug_store_lock(struct snug_store *store, const char *name, int *fd) {
    /* filelock's mode: users of one cache may share it */
    RETURN_IF_ERROR(open_in_place(store->ctx, &store->locks, name, 0664, fd));
    const int failed = flock(*fd, LOCK_EX | LOCK_NB) ? errno : 0;
    const bool named = snug_file_is_named(*fd, &store->locks, name);
    if (!failed && named) return SNUG_OK;
    close(*fd);
    *fd = -1;
    if (!failed || failed == EWOULDBLOCK) return SNUG_END;
    snug_log(store->ctx, SNUG_LOG_WARNING, "%s cannot be locked (%s): make sure that no second pull writes into it",
             store->locks.path, strerror(failed));
    return SNUG_OK;
}

/* SNUG_END while another process fetches the same blob. */
static snug_status lock(struct snug_blob *blob) {
    char *name;
    if (blob->locked) return SNUG_OK;
    RETURN_IF_ERROR(snug_format(blob->store->ctx, &name, "%s.lock", blob->id));
    const snug_status status = snug_store_lock(blob->store, name, &blob->lock);
    free(name);
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

/* The snapshot has the file: a link to this blob, for one to another blob may be what another server sent as the same
 * file, or on a file system without links the file itself. */
static bool is_in_snapshot(const struct snug_blob *blob) {
    const struct snug_store *store = blob->store;
    struct stat named, own;
    if (size_of(&store->snapshot, blob->name, AT_SYMLINK_NOFOLLOW) == blob->size) return true;
    if (fstatat(store->blobs.fd, blob->id, &own, 0) || !S_ISREG(own.st_mode) || own.st_size != blob->size) return false;
    return fstatat(store->snapshot.fd, blob->name, &named, 0) == 0 && named.st_ino == own.st_ino &&
           named.st_dev == own.st_dev;
}

static bool is_there(const struct snug_blob *blob) {
    return is_in_snapshot(blob) || size_of(&blob->store->blobs, blob->id, 0) == blob->size;
}

/* See the head of blob.h. */
static snug_status name_blob(struct snug_blob *blob, const char *etag) {
    const struct snug_store *store = blob->store;
    const char *const parts[] = {store->commit, blob->name, etag};
    char text[SNUG_DIGEST_TEXT];
    struct snug_digest digest;
    blob->kind = snug_digest_kind_of(etag);
    if (blob->kind != SNUG_DIGEST_NONE) {
        RETURN_IF_ERROR(snug_strdup(store->ctx, etag, &blob->id));
        for (char *at = blob->id; *at; at++) *at = (char)tolower((unsigned char)*at);
        return SNUG_OK;
    }
    snug_log(store->ctx, SNUG_LOG_WARNING,
             "%s: the server's ETag %s is neither a sha256 nor a git hash: only the size is checked", blob->name, etag);
    snug_digest_begin(&digest, SNUG_DIGEST_SHA256, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) snug_digest_add(&digest, parts[i], strlen(parts[i]) + 1);
    snug_digest_end(&digest, text);
    return snug_format(store->ctx, &blob->id, "unverified-%s", text);
}

snug_status snug_blob_open(struct snug_store *store, const char *name, const char *etag, int64_t size,
                           struct snug_blob *out) {
    *out = (struct snug_blob){.store = store, .name = name, .size = size, .fd = -1, .lock = -1};
    if (size < 0) return snug_fail(store->ctx, SNUG_E_INPUT, "%s: the server does not say how large it is", name);
    RETURN_IF_ERROR(name_blob(out, etag));
    RETURN_IF_ERROR(snug_format(store->ctx, &out->partial, "%s.incomplete", out->id));
    const int64_t part = size_of(&store->blobs, out->partial, AT_SYMLINK_NOFOLLOW);
    out->have = is_there(out) ? size : part > 0 && part <= size ? part : 0;
    return SNUG_OK;
}

void snug_blob_close(struct snug_blob *blob) {
    release(blob);
    free(blob->id);
    free(blob->partial);
    blob->id = blob->partial = NULL;
}

/* ---- the partial file ----------------------------------------------------------------------------------------- */

static snug_status restart(struct snug_blob *blob) {
    if (ftruncate(blob->fd, 0)) return fail_os(blob->store->ctx, "write", &blob->store->blobs, blob->partial);
    blob->have = 0;
    blob->resumed = false;
    snug_digest_begin(&blob->digest, blob->kind, blob->size);
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
        if (got <= 0)
            status = fail_os(ctx, "read", &blob->store->blobs, blob->partial);
        else
            add(blob, block, (size_t)got);
        if (status == SNUG_OK && snug_stop_asked(ctx))
            status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while reading what an earlier run has fetched");
    }
    free(block);
    return status;
}

/* Whether an earlier run's part may be continued: its owner can change it as long as it exists, also after its hash was
 * checked. The owner of the folder can do so with every file in it. */
static bool is_trusted(const struct snug_store *store, const struct stat *part) {
    struct stat folder = {0};
    fstat(store->blobs.fd, &folder);
    return part->st_uid == geteuid() || part->st_uid == folder.st_uid;
}

static snug_status open_part(struct snug_blob *blob) {
    const struct snug_store *store = blob->store;
    struct stat info = {0};
    if (fstatat(store->blobs.fd, blob->partial, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
        !is_trusted(store, &info) && unlinkat(store->blobs.fd, blob->partial, 0))
        return fail_os(store->ctx, "remove another user's", &store->blobs, blob->partial);
    RETURN_IF_ERROR(open_in_place(store->ctx, &store->blobs, blob->partial, 0666, &blob->fd));
    fstat(blob->fd, &info);
    if (!is_trusted(store, &info))
        return snug_fail(store->ctx, SNUG_E_IO, SNUG_PATH " belongs to another user: remove it",
                         SNUG_PATH_IN(&store->blobs, blob->partial));
    const int64_t size = (int64_t)info.st_size;
    /* Without a hash nothing would find that it is damaged. */
    if (size > blob->size || blob->kind == SNUG_DIGEST_NONE) return restart(blob);
    blob->have = 0;
    snug_digest_begin(&blob->digest, blob->kind, blob->size);
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
        if (is_in_snapshot(blob)) return SNUG_OK;
        if (!S_ISLNK(info.st_mode))
            return snug_fail(store->ctx, SNUG_E_IO,
                             "%s/%s exists and is not the file of this name on the hub: remove it",
                             store->snapshot.path, blob->name);
        unlinkat(store->snapshot.fd, blob->name, 0); /* a link to nothing, or to another file */
    }
    RETURN_IF_ERROR(snug_format(store->ctx, &target, "%s/%s", store->to_blobs, blob->id));
    int failed = symlinkat(target, store->snapshot.fd, blob->name) ? errno : 0;
    free(target);
    if (failed == EPERM || failed == EOPNOTSUPP)
        failed = renameat(store->blobs.fd, blob->id, store->snapshot.fd, blob->name) ? errno : 0;
    errno = failed;
    return failed && failed != EEXIST ? fail_os(store->ctx, "make", &store->snapshot, blob->name) : SNUG_OK;
}

static snug_status publish(struct snug_blob *blob) {
    const struct snug_folder *blobs = &blob->store->blobs;
    if (fsync(blob->fd)) return fail_os(blob->store->ctx, "write", blobs, blob->partial);
    if (renameat(blobs->fd, blob->partial, blobs->fd, blob->id))
        return fail_os(blob->store->ctx, "make", blobs, blob->id);
    snug_folder_sync(blob->store->ctx, blobs, blob->id);
    RETURN_IF_ERROR(link_blob(blob));
    release(blob);
    return SNUG_OK;
}

/* The file is complete. SNUG_END: it is damaged, and fetched again from the first byte. */
static snug_status check(struct snug_blob *blob) {
    char found[SNUG_DIGEST_TEXT];
    snug_context *ctx = blob->store->ctx;
    snug_digest_end(&blob->digest, found);
    if (blob->kind == SNUG_DIGEST_NONE || strcmp(found, blob->id) == 0) return publish(blob);
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
        snug_digest_name(blob->kind), found, blob->id);
}

/* ---- the request's calls -------------------------------------------------------------------------------------- */

snug_status snug_blob_start(struct snug_request *request) {
    struct snug_blob *blob = request->user;
    if (is_in_snapshot(blob)) { /* a cache may be read-only: needs no lock */
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

/* The answer to a request for the rest of the file is not that rest: 416, or other bytes. */
static bool breaks_off(const struct snug_blob *blob, const struct snug_request *request) {
    const struct snug_answer *answer = &request->answer;
    if (request->from == 0 || answer->status == 200) return false;
    return answer->status != 206 || answer->range_first != request->from ||
           (answer->length >= 0 && answer->length != blob->size - request->from);
}

snug_status snug_blob_begin(struct snug_request *request) {
    struct snug_blob *blob = request->user;
    const struct snug_answer *answer = &request->answer;
    if (breaks_off(blob, request)) {
        RETURN_IF_ERROR(restart(blob));
        return SNUG_END;
    }
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
        if (put < 0 && errno == EINTR) continue;
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
