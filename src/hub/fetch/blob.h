/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file of a snapshot: fetched into blobs/BLOB.incomplete, which a later run continues, checked, synced, renamed to
 * blobs/BLOB, and linked from snapshots/COMMIT/NAME. While it is fetched huggingface_hub's own lock is held.
 *
 * BLOB is the ETag where that is the content's hash. Any other ETag is a text that the server chooses: it could be the
 * name of another blob's part or, in another case, of another blob, and files with the same ETag need not be equal.
 * Then BLOB is "unverified-" and a sha256 of commit, name and ETag, which no other file has.
 */
#ifndef SNUG_HUB_FETCH_BLOB_H
#define SNUG_HUB_FETCH_BLOB_H

#include "hub/fetch/digest.h"
#include "hub/fetch/http.h"
#include "io/folder.h"

/* The opened folders of a model in the cache. */
struct snug_store {
    snug_context *ctx;
    const char *commit;
    struct snug_folder cache, model, blobs, snapshot, locks;
    const char *to_blobs; /* the way from snapshot to blobs */
};

struct snug_blob {
    struct snug_store *store;
    const char *name; /* the file's, in the snapshot */
    char *id;         /* the blob's, see above */
    int64_t size;
    int64_t have;    /* bytes of it that are in the cache */
    int64_t fetched; /* bytes that were received for it */

    /* blob.c's own */
    enum snug_digest_kind kind;
    char *partial; /* BLOB.incomplete */
    int fd, lock;  /* -1: not open */
    bool locked;   /* the lock is held, or the file system has none */
    bool waits;    /* another process has the lock, and that was logged */
    bool resumed;  /* an earlier run wrote the beginning */
    struct snug_digest digest;
};

/* Takes a lock file's lock in the store without waiting. SNUG_END if another process has it. *fd is -1 if the file
 * system has no locks, which is logged. close() releases it. */
snug_status snug_store_lock(struct snug_store *store, const char *name, int *fd);

/* Finds how much of the file is in the cache. name outlives the blob. */
snug_status snug_blob_open(struct snug_store *store, const char *name, const char *etag, int64_t size,
                           struct snug_blob *out);
/* The partial file is kept. */
void snug_blob_close(struct snug_blob *blob);
/* The calls of its request, whose user is the blob, but for refuse. */
snug_status snug_blob_start(struct snug_request *request);
snug_status snug_blob_begin(struct snug_request *request);
snug_status snug_blob_receive(struct snug_request *request, const void *data, size_t size);
snug_status snug_blob_finish(struct snug_request *request);

#endif
