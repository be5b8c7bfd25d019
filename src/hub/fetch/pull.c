/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch/pull.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hub/fetch/blob.h"
#include "hub/fetch/listing.h"
#include "io/file.h"

enum { SLOW = 4096 }; /* bytes per second of a file that takes all of its time */

struct pull {
    snug_context *ctx;
    const struct snug_pull_options *options;
    struct snug_pulled *result;
    struct snug_http http;
    char *endpoint, *token, *authorities;
    struct snug_listing listing;
    struct snug_store store;
    json_t *names; /* of the files that are fetched, in lower case */
    double began;
    struct snug_blob *blobs; /* of the running requests */
    size_t blob_count;
};

static const char *revision_of(const struct pull *p) {
    return p->options->place.revision ? p->options->place.revision : "main";
}

/* ---- settings ------------------------------------------------------------------------------------------------- */

/* The text of a file; NULL if there is no such file. */
static snug_status read_text(snug_context *ctx, const char *path, char **out) {
    size_t size;
    *out = NULL;
    return snug_file_exists(NULL, path) ? snug_file_read(ctx, NULL, path, out, &size) : SNUG_OK;
}

static void trim(char *text) {
    static const char white[] = " \t\r\n";
    const size_t leading = strspn(text, white);
    size_t length = strlen(text + leading);
    memmove(text, text + leading, length + 1);
    while (length > 0 && strchr(white, text[length - 1])) text[--length] = '\0';
}

static snug_status read_token_file(struct pull *p) {
    static const char *const variables[] = {"HF_TOKEN_PATH"};
    char *path, *home;
    RETURN_IF_ERROR(snug_hub_path_from(p->ctx, variables, 1, &path));
    if (!path) {
        RETURN_IF_ERROR(snug_hub_home(p->ctx, &home));
        const snug_status status = snug_path_join(p->ctx, &path, home, "token");
        free(home);
        RETURN_IF_ERROR(status);
    }
    const snug_status status = read_text(p->ctx, path, &p->token);
    free(path);
    return status;
}

/* $HF_TOKEN, else the file that `hf auth login` writes. p->token is NULL if there is none. */
static snug_status find_token(struct pull *p) {
    const char *given = getenv("HF_TOKEN");
    if (!given || !*given) given = getenv("HUGGING_FACE_HUB_TOKEN");
    if (given && *given)
        RETURN_IF_ERROR(snug_strdup(p->ctx, given, &p->token));
    else if (!snug_hub_is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
        RETURN_IF_ERROR(read_token_file(p));
    if (!p->token) return SNUG_OK;
    trim(p->token);
    for (const char *at = p->token; *at; at++)
        if (*at <= ' ' || *at > '~')
            return snug_fail(
                p->ctx, SNUG_E_USAGE,
                "the token in HF_TOKEN or in the file that `hf auth login` writes contains characters that "
                "no token has");
    if (*p->token) return SNUG_OK;
    free(p->token);
    p->token = NULL;
    return SNUG_OK;
}

static snug_status find_endpoint(struct pull *p) {
    const char *given = getenv("HF_ENDPOINT");
    RETURN_IF_ERROR(snug_strdup(p->ctx, given && *given ? given : "https://huggingface.co", &p->endpoint));
    for (size_t length = strlen(p->endpoint); length > 0 && p->endpoint[length - 1] == '/'; length--)
        p->endpoint[length - 1] = '\0';
    return SNUG_OK;
}

/* The certificates that Python's HTTP clients trust, for a network whose proxy has its own. */
static snug_status find_authorities(struct pull *p) {
    static const char *const variables[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
    return snug_hub_path_from(p->ctx, variables, sizeof variables / sizeof *variables, &p->authorities);
}

/* Seconds of an environment variable, as huggingface_hub has them. */
static long seconds_of(const char *variable, long otherwise) {
    const char *text = getenv(variable);
    char *end;
    const long value = text ? strtol(text, &end, 10) : 0;
    return text && *text && !*end && value > 0 && value < 86400 ? value : otherwise;
}

/* ---- messages ------------------------------------------------------------------------------------------------- */

static snug_status refuse_name(const struct pull *p, const struct snug_answer *answer) {
    const char *name = p->options->name;
    if (strcmp(answer->error_code, "RevisionNotFound") == 0)
        return snug_fail(p->ctx, SNUG_E_INPUT, "%s has no revision %s on %s: give another --model_revision", name,
                         revision_of(p), p->endpoint);
    if (strcmp(answer->error_code, "GatedRepo") == 0)
        return snug_fail(p->ctx, SNUG_E_INPUT,
                         "%s is gated on %s: ask for access on the model's page, and give a token of your account in "
                         "HF_TOKEN or by `hf auth login`%s%s",
                         name, p->endpoint, *answer->error_message ? ": " : "", answer->error_message);
    if (p->token)
        return snug_fail(
            p->ctx, SNUG_E_INPUT,
            "%s: %s answers %ld: there is no such model, or the token in HF_TOKEN or of `hf auth login` may "
            "not read it%s%s",
            name, p->endpoint, answer->status, *answer->error_message ? ": " : "", answer->error_message);
    return snug_fail(p->ctx, SNUG_E_INPUT,
                     "%s: %s answers %ld: there is no such model, or it is private: check the name, or give a token in "
                     "HF_TOKEN or by `hf auth login`%s%s",
                     name, p->endpoint, answer->status, *answer->error_message ? ": " : "", answer->error_message);
}

static snug_status refuse(const struct pull *p, const char *what, const struct snug_answer *answer) {
    const bool of_file = strcmp(answer->error_code, "EntryNotFound") == 0;
    if (answer->status == 401 || answer->status == 403 || (answer->status == 404 && !of_file))
        return refuse_name(p, answer);
    return snug_fail(p->ctx, SNUG_E_INPUT, "%s: %s: the server answers %ld%s%s", p->options->name, what, answer->status,
                     *answer->error_message ? ": " : "", answer->error_message);
}

/* ---- the listing ---------------------------------------------------------------------------------------------- */

struct text {
    struct pull *pull;
    void *bytes;
    size_t size, capacity;
};
enum { LISTING_BYTES_MOST = 1 << 24 };

static snug_status receive_text(struct snug_request *request, const void *data, size_t size) {
    struct text *text = request->user;
    snug_context *ctx = text->pull->ctx;
    if (request->received == 0) text->size = 0; /* an attempt after one that was cut */
    if (text->size + size > LISTING_BYTES_MOST)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the answer is longer than 16 MiB, which no list of files needs",
                         request->url);
    RETURN_IF_ERROR(snug_grow(ctx, &text->bytes, &text->capacity, text->size + size + 1, 1));
    memcpy((char *)text->bytes + text->size, data, size);
    text->size += size;
    return SNUG_OK;
}

static snug_status finish_text(struct snug_request *request) {
    const struct text *text = request->user;
    struct pull *p = text->pull;
    RETURN_IF_ERROR(snug_listing_read(p->ctx, request->url, text->size ? text->bytes : "", text->size, &p->listing));
    if (!snug_hub_is_commit(revision_of(p)) || strcmp(revision_of(p), p->listing.commit) == 0) return SNUG_OK;
    return snug_fail(p->ctx, SNUG_E_INPUT, "%s: the server answers with the files of commit %s instead", request->url,
                     p->listing.commit);
}

static snug_status refuse_text(struct snug_request *request) {
    const struct text *text = request->user;
    return refuse(text->pull, "list of files", &request->answer);
}

static snug_status list_files(struct pull *p) {
    static const struct snug_request_calls calls = {
        .receive = receive_text, .finish = finish_text, .refuse = refuse_text};
    char *revision, *url = NULL;
    struct text text = {.pull = p};
    RETURN_IF_ERROR(snug_http_escape(&p->http, revision_of(p), &revision));
    snug_status status =
        snug_format(p->ctx, &url, "%s/api/models/%s/revision/%s", p->endpoint, p->options->name, revision);
    struct snug_request request = {.url = url, .name = p->options->name, .user = &text, .calls = &calls};
    if (status == SNUG_OK) status = snug_http_run(&p->http, &request, 1);
    free(text.bytes);
    free(revision);
    free(url);
    return status;
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

static void report(void *user) {
    struct pull *p = user;
    const double seconds = snug_seconds() - p->began + 1e-9; /* not 0 */
    int64_t total = p->result->bytes, bytes = total, fetched = p->result->fetched;
    if (!p->options->on_progress) return;
    for (size_t i = 0; i < p->blob_count; i++) {
        bytes += p->blobs[i].have;
        total += p->blobs[i].size;
        fetched += p->blobs[i].fetched;
    }
    if (total > 0) p->options->on_progress(p->options->user, bytes, total, (double)fetched / seconds);
}

/* A file of a batch: first its headers are requested, then its content. */
struct file {
    struct pull *pull;
    const char *name;
    char *url;
    char etag[256];
    int64_t size;
};

static snug_status receive_nothing(struct snug_request *request, const void *data, size_t size) {
    (void)request, (void)data, (void)size;
    return SNUG_OK;
}

static snug_status finish_headers(struct snug_request *request) {
    struct file *file = request->user;
    const struct pull *p = file->pull;
    const struct snug_answer *answer = &request->answer;
    const struct snug_linked *linked = &request->linked;
    const char *etag = *linked->etag ? linked->etag : answer->etag;
    if (!*etag)
        return snug_fail(p->ctx, SNUG_E_INPUT, "%s: the server sends no ETag for %s: it is not a Hugging Face hub",
                         p->options->name, file->name);
    if (*linked->commit && strcmp(linked->commit, p->listing.commit) != 0)
        return snug_fail(p->ctx, SNUG_E_INPUT, "%s: %s: the server answers with the file of commit %s instead of %s",
                         p->options->name, file->name, linked->commit, p->listing.commit);
    memcpy(file->etag, etag, sizeof file->etag);
    const bool elsewhere = answer->status >= 300; /* Content-Length is then the redirect's own */
    file->size = linked->length >= 0 ? linked->length : elsewhere ? -1 : answer->length;
    if (file->size <= SNUG_FILE_BYTES_MOST || snug_listing_is_weights(file->name)) return SNUG_OK;
    return snug_fail(p->ctx, SNUG_E_INPUT, "%s: %s has %lld bytes: only weights may have more than 256 MiB",
                     p->options->name, file->name, (long long)file->size);
}

static snug_status refuse_headers(struct snug_request *request) {
    const struct file *file = request->user;
    return refuse(file->pull, file->name, &request->answer);
}

/* The content may be on another server than the hub, which does not explain its answers. */
static snug_status refuse_blob(struct snug_request *request) {
    const struct snug_blob *blob = request->user;
    return snug_fail(blob->store->ctx, SNUG_E_INPUT, "%s: the server of its content answers %ld%s%s", blob->name,
                     request->answer.status, *request->answer.error_message ? ": " : "", request->answer.error_message);
}

static snug_status ask_headers(struct pull *p, struct file *files, struct snug_request *requests, size_t count) {
    static const struct snug_request_calls calls = {
        .receive = receive_nothing, .finish = finish_headers, .refuse = refuse_headers};
    for (size_t i = 0; i < count; i++) {
        RETURN_IF_ERROR(snug_format(p->ctx, &files[i].url, "%s/%s/resolve/%s/%s", p->endpoint, p->options->name,
                                    p->listing.commit, files[i].name)); /* see struct snug_listing */
        requests[i] = (struct snug_request){
            .url = files[i].url, .name = files[i].name, .head = true, .user = &files[i], .calls = &calls};
    }
    return snug_http_run(&p->http, requests, count);
}

/* The disk must hold what is missing. */
static snug_status check_disk(struct pull *p) {
    double missing = 0; /* a sum of sizes that the server chooses */
    int64_t there;
    for (size_t i = 0; i < p->blob_count; i++) missing += (double)(p->blobs[i].size - p->blobs[i].have);
    RETURN_IF_ERROR(snug_disk_free(p->ctx, p->store.cache.path, &there));
    if (missing <= (double)there) return SNUG_OK;
    return snug_fail(p->ctx, SNUG_E_IO, "%s: %.1f MiB are to be fetched, and the disk of %s has %.1f MiB free",
                     p->options->name, missing / 0x1p20, p->store.cache.path, (double)there / 0x1p20);
}

static void close_blobs(struct pull *p) {
    for (size_t i = 0; i < p->blob_count; i++) {
        p->result->fetched += p->blobs[i].fetched;
        snug_blob_close(&p->blobs[i]);
    }
    free(p->blobs);
    p->blobs = NULL;
    p->blob_count = 0;
}

static snug_status fetch_blobs(struct pull *p, struct file *files, struct snug_request *requests, size_t count) {
    static const struct snug_request_calls calls = {.start = snug_blob_start,
                                                    .begin = snug_blob_begin,
                                                    .receive = snug_blob_receive,
                                                    .finish = snug_blob_finish,
                                                    .refuse = refuse_blob};
    RETURN_IF_ERROR(snug_alloc(p->ctx, count, sizeof *p->blobs, (void **)&p->blobs));
    for (size_t i = 0; i < count; i++, p->blob_count++) {
        const char *slash = strrchr(files[i].name, '/'), *name = slash ? slash + 1 : files[i].name;
        RETURN_IF_ERROR(snug_blob_open(&p->store, name, files[i].etag, files[i].size, &p->blobs[i]));
        requests[i] = (struct snug_request){.url = files[i].url,
                                            .name = files[i].name,
                                            .user = &p->blobs[i],
                                            .calls = &calls,
                                            .seconds_most = p->options->file_seconds + (double)files[i].size / SLOW};
    }
    RETURN_IF_ERROR(check_disk(p));
    RETURN_IF_ERROR(snug_http_run(&p->http, requests, count));
    for (size_t i = 0; i < count; i++) {
        p->result->files++;
        p->result->bytes += p->blobs[i].size;
        snug_log(p->ctx, SNUG_LOG_INFO, "%s: %lld bytes%s", files[i].name, (long long)p->blobs[i].size,
                 p->blobs[i].fetched || !p->blobs[i].size ? "" : ", in the cache already");
    }
    return SNUG_OK;
}

/* Two names that differ in case are one file on a file system that ignores it, and the second one would take the
 * place of the first. */
static snug_status claim_name(struct pull *p, const char *name) {
    char *lower;
    RETURN_IF_ERROR(snug_strdup(p->ctx, name, &lower));
    for (char *at = lower; *at; at++) *at = (char)tolower((unsigned char)*at);
    const char *other = json_string_value(json_object_get(p->names, lower));
    snug_status status = SNUG_OK;
    if (other)
        status = snug_fail(p->ctx, SNUG_E_INPUT, "%s: %s and %s have the same name on some file systems",
                           p->options->name, other, name);
    else if (json_object_set_new(p->names, lower, json_string(name)))
        status = snug_fail(p->ctx, SNUG_E_MEMORY, "out of memory while listing %s", p->options->name);
    free(lower);
    return status;
}

/* Fetches these files of the model, several at a time. */
static snug_status fetch(struct pull *p, const char *const *names, size_t count) {
    struct file *files;
    struct snug_request *requests = NULL;
    for (size_t i = 0; i < count; i++) RETURN_IF_ERROR(claim_name(p, names[i]));
    RETURN_IF_ERROR(snug_alloc(p->ctx, count, sizeof *files, (void **)&files));
    snug_status status = snug_alloc(p->ctx, count, sizeof *requests, (void **)&requests);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) files[i] = (struct file){.pull = p, .name = names[i]};
    if (status == SNUG_OK) status = ask_headers(p, files, requests, count);
    if (status == SNUG_OK) status = fetch_blobs(p, files, requests, count);
    close_blobs(p);
    for (size_t i = 0; i < count; i++) free(files[i].url);
    free(files);
    free(requests);
    return status;
}

/* ---- the model ------------------------------------------------------------------------------------------------ */

static snug_status fail_without(const struct pull *p, const char *what) {
    return snug_fail(p->ctx, SNUG_E_INPUT, "%s (revision %s) has no %s, without which snug cannot use it",
                     p->options->name, revision_of(p), what);
}

/* What the index file names, each once. */
static snug_status fetch_shards(struct pull *p, const char *index) {
    struct snug_shards shards;
    RETURN_IF_ERROR(snug_shards_read(p->ctx, &p->store.snapshot, index, &shards));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < shards.count && status == SNUG_OK; i++)
        if (!snug_listing_has(&p->listing, shards.names[i]))
            status = snug_fail(p->ctx, SNUG_E_INPUT, "%s (revision %s) has no %s, which %s names", p->options->name,
                               revision_of(p), shards.names[i], index);
    if (status == SNUG_OK) status = fetch(p, shards.names, shards.count);
    snug_shards_free(&shards);
    return status;
}

/* Into the folder of this name in the snapshot. */
static snug_status fetch_folder(struct pull *p, const char *folder, const json_t *files) {
    struct snug_store *store = &p->store;
    const struct snug_folder above = store->snapshot;
    const char **names;
    RETURN_IF_ERROR(snug_alloc(p->ctx, json_array_size(files), sizeof *names, (void **)&names));
    for (size_t i = 0; i < json_array_size(files); i++) names[i] = json_string_value(json_array_get(files, i));
    snug_status status = snug_folder_make(p->ctx, &above, folder, 0666, &store->snapshot);
    if (status == SNUG_OK) {
        store->to_blobs = "../../../blobs";
        status = fetch(p, names, json_array_size(files));
        snug_folder_close(&store->snapshot);
    }
    store->to_blobs = "../../blobs";
    store->snapshot = above;
    free(names);
    return status;
}

static bool has_kind(const struct pull *p, const struct snug_pull_kind *kind) {
    return snug_listing_has(&p->listing, kind->config) && (snug_listing_has(&p->listing, kind->weights) ||
                                                           (kind->index && snug_listing_has(&p->listing, kind->index)));
}

static const struct snug_pull_kind *find_kind(const struct pull *p) {
    for (size_t i = 0; i < p->options->kind_count; i++)
        if (has_kind(p, &p->options->kinds[i])) return &p->options->kinds[i];
    return p->options->kinds;
}

static snug_status fetch_model(struct pull *p) {
    const struct snug_pull_options *options = p->options;
    const struct snug_pull_kind *kind = find_kind(p);
    const char **names, *folder;
    size_t count = 0;
    json_t *files;
    if (!snug_listing_has(&p->listing, kind->config)) return fail_without(p, kind->config);
    if (!has_kind(p, kind)) return fail_without(p, kind->weights);
    const bool single = snug_listing_has(&p->listing, kind->weights);
    RETURN_IF_ERROR(snug_alloc(p->ctx, options->other_count + 2, sizeof *names, (void **)&names));
    names[count++] = kind->config;
    names[count++] = single ? kind->weights : kind->index;
    for (size_t i = 0; i < options->other_count; i++)
        if (snug_listing_has(&p->listing, options->others[i])) names[count++] = options->others[i];
    snug_status status = fetch(p, names, count);
    free(names);
    json_object_foreach(p->listing.folders, folder, files) {
        if (status == SNUG_OK) status = fetch_folder(p, folder, files);
    }
    return status == SNUG_OK && !single ? fetch_shards(p, kind->index) : status;
}

/* The model's folders in the cache, of which only the cache itself may be reached through a link: other users may write
 * into it. */
static snug_status open_store(struct pull *p) {
    struct snug_store *store = &p->store;
    char *cache, *own = NULL, *locks = NULL, *snapshot = NULL;
    *store = (struct snug_store){.ctx = p->ctx, .commit = p->listing.commit, .to_blobs = "../../blobs"};
    RETURN_IF_ERROR(snug_hub_cache(p->ctx, &p->options->place, &cache));
    snug_status status = snug_folder_make(p->ctx, NULL, cache, 0666, &store->cache);
    if (status == SNUG_OK) status = snug_hub_folder_name(p->ctx, p->options->name, &own);
    if (status == SNUG_OK) status = snug_format(p->ctx, &locks, ".locks/%s", own);
    if (status == SNUG_OK) status = snug_format(p->ctx, &snapshot, "snapshots/%s", p->listing.commit);
    if (status == SNUG_OK) status = snug_folder_make(p->ctx, &store->cache, own, 0666, &store->model);
    if (status == SNUG_OK) status = snug_folder_make(p->ctx, &store->cache, locks, 0666, &store->locks);
    if (status == SNUG_OK) status = snug_folder_make(p->ctx, &store->model, "blobs", 0666, &store->blobs);
    if (status == SNUG_OK) status = snug_folder_make(p->ctx, &store->model, snapshot, 0666, &store->snapshot);
    if (status == SNUG_OK) status = snug_strdup(p->ctx, store->snapshot.path, &p->result->folder);
    free(cache);
    free(own);
    free(locks);
    free(snapshot);
    return status;
}

/* Writes the commit into the folder of locks, where a file that a killed run leaves is not taken for a revision, and
 * renames it. What has the temporary name may lead elsewhere: it is removed, never opened. */
static snug_status replace_ref(struct pull *p, const struct snug_folder *refs, const char *name) {
    static const char temporary[] = "refs.incomplete";
    const struct snug_folder *locks = &p->store.locks;
    const ssize_t length = (ssize_t)strlen(p->listing.commit);
    unlinkat(locks->fd, temporary, 0);
    const int fd = openat(locks->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return snug_fail(p->ctx, SNUG_E_IO, "cannot write " SNUG_PATH ": %s", SNUG_PATH_IN(locks, temporary),
                         strerror(errno));
    bool good = write(fd, p->listing.commit, (size_t)length) == length && fsync(fd) == 0;
    good = good && renameat(locks->fd, temporary, refs->fd, name) == 0;
    const int failed = errno;
    close(fd);
    if (!good)
        return snug_fail(p->ctx, SNUG_E_IO, "cannot write " SNUG_PATH ": %s", SNUG_PATH_IN(refs, name),
                         strerror(failed));
    snug_folder_sync(p->ctx, refs, name);
    return SNUG_OK;
}

/* One process at a time. */
static snug_status lock_and_replace(struct pull *p, const struct snug_folder *refs, const char *name) {
    snug_status status;
    int lock;
    while ((status = snug_store_lock(&p->store, "refs.lock", &lock)) == SNUG_END) {
        if (snug_stop_asked(p->ctx)) return snug_fail(p->ctx, SNUG_E_INTERRUPTED, "interrupted");
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    if (status == SNUG_OK) status = replace_ref(p, refs, name);
    if (lock >= 0) close(lock);
    return status;
}

/* refs/REVISION, written after all files are there, so that a name never leads to a part of a model. */
static snug_status write_ref(struct pull *p) {
    const char *revision = revision_of(p), *slash = strrchr(revision, '/');
    char *folder, *there = NULL;
    struct snug_folder refs;
    size_t size = 0;
    if (strcmp(revision, p->listing.commit) == 0) return SNUG_OK;
    RETURN_IF_ERROR(
        snug_format(p->ctx, &folder, "refs%s%.*s", slash ? "/" : "", slash ? (int)(slash - revision) : 0, revision));
    snug_status status = snug_folder_make(p->ctx, &p->store.model, folder, 0666, &refs);
    free(folder);
    RETURN_IF_ERROR(status);
    const char *name = slash ? slash + 1 : revision;
    if (snug_file_exists(&refs, name)) status = snug_file_read(p->ctx, &refs, name, &there, &size);
    if (status == SNUG_OK && (!there || strcmp(there, p->listing.commit) != 0)) /* a cache may be read-only */
        status = lock_and_replace(p, &refs, name);
    free(there);
    snug_folder_close(&refs);
    return status;
}

static snug_status run(struct pull *p) {
    RETURN_IF_ERROR(find_token(p));
    RETURN_IF_ERROR(find_endpoint(p));
    RETURN_IF_ERROR(find_authorities(p));
    const struct snug_http_options http = {.endpoint = p->endpoint,
                                           .token = p->token,
                                           .connect_seconds = seconds_of("HF_HUB_ETAG_TIMEOUT", 10),
                                           .idle_seconds = seconds_of("HF_HUB_DOWNLOAD_TIMEOUT", 10),
                                           .slow_seconds = p->options->slow_seconds,
                                           .answer_seconds = 60,
                                           .authorities = p->authorities,
                                           .retry_seconds = p->options->retry_seconds,
                                           .on_progress = report,
                                           .user = p};
    RETURN_IF_ERROR(snug_http_open(p->ctx, &http, &p->http));
    RETURN_IF_ERROR(list_files(p));
    memcpy(p->result->commit, p->listing.commit, sizeof p->listing.commit);
    RETURN_IF_ERROR(open_store(p));
    p->names = json_object();
    if (!p->names) return snug_fail(p->ctx, SNUG_E_MEMORY, "out of memory while listing %s", p->options->name);
    RETURN_IF_ERROR(fetch_model(p));
    return write_ref(p);
}

/* ---- without the network ----------------------------------------------------------------------------------------- */

static bool is_offline(void) {
    const char *given = getenv("HF_HUB_OFFLINE");
    return snug_hub_is_true(given && *given ? "HF_HUB_OFFLINE" : "TRANSFORMERS_OFFLINE");
}

/* The first file that the opened snapshot lacks; NULL if it is complete. It lives as long as shards. */
static snug_status find_missing(struct pull *p, struct snug_shards *shards, const char **missing) {
    const struct snug_folder *folder = &p->store.snapshot;
    const struct snug_pull_kind *kind = p->options->kinds;
    const struct snug_pull_kind *end = kind + p->options->kind_count;
    *missing = kind->config;
    while (kind < end && !snug_file_exists(folder, kind->config)) kind++;
    if (kind == end) return SNUG_OK;
    *missing = NULL;
    if (snug_file_exists(folder, kind->weights)) return SNUG_OK;
    *missing = kind->weights;
    if (!kind->index || !snug_file_exists(folder, kind->index)) return SNUG_OK;
    RETURN_IF_ERROR(snug_shards_read(p->ctx, folder, kind->index, shards));
    *missing = NULL;
    for (size_t i = 0; i < shards->count && !*missing; i++)
        if (!snug_file_exists(folder, shards->names[i])) *missing = shards->names[i];
    return SNUG_OK;
}

static snug_status find_offline(struct pull *p) {
    struct snug_shards shards = {0};
    const char *missing, *name = p->options->name;
    RETURN_IF_ERROR(snug_hub_find(p->ctx, &p->options->place, name, &p->result->folder));
    if (!p->result->folder)
        return snug_fail(p->ctx, SNUG_E_INPUT,
                         "%s (revision %s) is not in the cache, and HF_HUB_OFFLINE forbids to fetch it", name,
                         revision_of(p));
    RETURN_IF_ERROR(snug_folder_open(p->ctx, NULL, p->result->folder, &p->store.snapshot));
    snug_status status = find_missing(p, &shards, &missing);
    if (status == SNUG_OK && missing)
        status = snug_fail(p->ctx, SNUG_E_INPUT, "%s: the cache has no %s, and HF_HUB_OFFLINE forbids to fetch it",
                           name, missing);
    snug_shards_free(&shards);
    RETURN_IF_ERROR(status);
    snug_log(p->ctx, SNUG_LOG_INFO, "HF_HUB_OFFLINE is set: %s is in the cache; whether it is current is not checked",
             name);
    snprintf(p->result->commit, sizeof p->result->commit, "%.40s", strrchr(p->result->folder, '/') + 1);
    return SNUG_OK;
}

snug_status snug_hub_pull(snug_context *ctx, const struct snug_pull_options *options, struct snug_pulled *result) {
    struct pull p = {.ctx = ctx, .options = options, .result = result, .began = snug_seconds()};
    *result = (struct snug_pulled){0};
    if (!snug_hub_is_name(options->name))
        return snug_fail(ctx, SNUG_E_USAGE, "%s is not the name of a model on a hub, such as ORG/NAME", options->name);
    if (!snug_hub_is_revision(revision_of(&p)))
        return snug_fail(ctx, SNUG_E_USAGE, "--model_revision %s is not the name of a branch, a tag or a commit",
                         revision_of(&p));
    const snug_status status = is_offline() ? find_offline(&p) : run(&p);
    snug_http_close(&p.http);
    snug_listing_free(&p.listing);
    json_decref(p.names);
    snug_folder_close(&p.store.snapshot);
    snug_folder_close(&p.store.blobs);
    snug_folder_close(&p.store.locks);
    snug_folder_close(&p.store.model);
    snug_folder_close(&p.store.cache);
    free(p.endpoint);
    free(p.token);
    free(p.authorities);
    if (status == SNUG_OK) return SNUG_OK;
    free(result->folder);
    result->folder = NULL;
    return status;
}
