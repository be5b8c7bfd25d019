/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint_copy.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "dist/boot.h"
#include "io/folder_write.h"

enum { PIECE = 1 << 22, MESSAGE = 512 };

/* Rank 0's description of the checkpoint. */
struct origin {
    char path[PATH_MAX];
    uint64_t digest; /* of its manifest */
    struct snug_provenance from;
};

/* Whether a rank has the checkpoint; else where it would write a copy. */
struct place {
    int64_t has;
    uint64_t host, device, inode;
};

/* ---- who has it ------------------------------------------------------------------------------------------------ */

static snug_status digest_of(snug_context *ctx, const struct snug_folder *folder, uint64_t *digest) {
    int64_t size;
    int fd;
    RETURN_IF_ERROR(snug_file_open(ctx, folder, SNUG_MANIFEST, &fd));
    const snug_status status = snug_file_digest(ctx, fd, SNUG_MANIFEST, &size, digest);
    close(fd);
    return status;
}

static snug_status describe(struct snug_trainer *t, const struct snug_folder *folder, struct origin *origin) {
    struct snug_manifest manifest;
    snprintf(origin->path, sizeof origin->path, "%s", folder->path);
    RETURN_IF_ERROR(snug_manifest_read(t->ctx, folder, &manifest));
    origin->from = manifest.from;
    snug_manifest_free(&manifest);
    return digest_of(t->ctx, folder, &origin->digest);
}

/* Opens the folder of the same path if it is the same checkpoint, and whole. */
static snug_status find(struct snug_trainer *t, const struct origin *origin, const char *const *required,
                        struct snug_folder *folder, bool *has) {
    uint64_t digest = 0;
    *has = false;
    if (!snug_folder_exists(origin->path)) return SNUG_OK;
    snug_status status = snug_folder_open(t->ctx, NULL, origin->path, folder);
    if (status == SNUG_OK) status = digest_of(t->ctx, folder, &digest);
    if (status == SNUG_OK && digest == origin->digest) {
        status = snug_manifest_verify(t->ctx, folder, required);
        *has = status == SNUG_OK;
    }
    if (status == SNUG_E_MEMORY) return status;
    snug_clear_error(t->ctx);
    if (!*has) snug_folder_close(folder);
    return SNUG_OK;
}

static snug_status find_place(struct snug_trainer *t, struct snug_checkpoint_copy *copy, struct place *place) {
    char boot[SNUG_BOOT_ID];
    struct stat info;
    snug_boot_id(boot);
    RETURN_IF_ERROR(snug_folder_make(t->ctx, NULL, t->args->output_dir, t->session->job.setup.mode, &copy->in));
    if (fstat(copy->in.fd, &info)) return snug_fail(t->ctx, SNUG_E_IO, "%s cannot be read", copy->in.path);
    *place = (struct place){
        .host = XXH3_64bits(boot, strlen(boot)), .device = (uint64_t)info.st_dev, .inode = (uint64_t)info.st_ino};
    return SNUG_OK;
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

/* The next file; an empty name ends them. */
struct header {
    char name[NAME_MAX + 1];
    int64_t size;
    char digest[17]; /* as the manifest has it */
};

static snug_status send_file(struct snug_trainer *t, const struct snug_folder *folder, const char *name,
                             const json_t *entry, void *piece) {
    struct header header = {.size = 0};
    struct stat info;
    int fd;
    snprintf(header.name, sizeof header.name, "%s", name);
    snprintf(header.digest, sizeof header.digest, "%s", json_string_value(json_object_get(entry, "xxh3_64")));
    RETURN_IF_ERROR(snug_file_open(t->ctx, folder, name, &fd));
    snug_status status = fstat(fd, &info) == 0 ? SNUG_OK : snug_fail(t->ctx, SNUG_E_IO, "%s cannot be read", name);
    header.size = info.st_size;
    if (status == SNUG_OK) status = snug_group_broadcast(t->ctx, t->args->group, &header, sizeof header);
    for (int64_t at = 0; at < header.size && status == SNUG_OK; at += PIECE) {
        const int64_t n = header.size - at < PIECE ? header.size - at : PIECE;
        if (pread(fd, piece, (size_t)n, at) != n)
            status = snug_fail(t->ctx, SNUG_E_IO, "%s/%s cannot be read", folder->path, name);
        if (status == SNUG_OK) status = snug_group_broadcast(t->ctx, t->args->group, piece, n);
    }
    close(fd);
    return status;
}

/* A failure to read what was just verified ends the run: the others wait for the rest. */
static snug_status send_all(struct snug_trainer *t, const struct snug_folder *folder, const char *except, void *piece) {
    struct snug_manifest manifest;
    const char *name;
    json_t *entry;
    RETURN_IF_ERROR(snug_manifest_read(t->ctx, folder, &manifest));
    snug_status status = SNUG_OK;
    json_object_foreach(manifest.files, name, entry) {
        if (except && strcmp(name, except) == 0) continue;
        status = send_file(t, folder, name, entry, piece);
        if (status != SNUG_OK) break;
    }
    snug_manifest_free(&manifest);
    if (status != SNUG_OK) return status;
    return snug_group_broadcast(t->ctx, t->args->group, &(struct header){.size = 0}, sizeof(struct header));
}

/* The copy gets a manifest of its own, of what was written. */
static snug_status check_file(struct snug_trainer *t, const struct snug_folder *to, const struct header *header) {
    json_t *entry = json_pack("{s:I, s:s}", "size", (json_int_t)header->size, "xxh3_64", header->digest);
    if (!entry) return snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while checking %s", header->name);
    const snug_status status = snug_manifest_verify_file(t->ctx, to, header->name, entry);
    json_decref(entry);
    return status;
}

/* Receives a file; writes it into the folder, if there is one. The rest is received after a failure, too. */
static snug_status take_file(struct snug_trainer *t, const struct header *header, const struct snug_folder *to,
                             void *piece, snug_status *written) {
    struct snug_writer writer;
    const bool writes = to && *written == SNUG_OK;
    if (writes) *written = snug_writer_open(t->ctx, to, header->name, &writer);
    const bool opened = writes && *written == SNUG_OK;
    for (int64_t at = 0; at < header->size; at += PIECE) {
        const int64_t n = header->size - at < PIECE ? header->size - at : PIECE;
        const snug_status status = snug_group_broadcast(t->ctx, t->args->group, piece, n);
        if (status != SNUG_OK && opened) snug_writer_abandon(&writer);
        RETURN_IF_ERROR(status);
        if (opened) snug_writer_put(&writer, piece, (size_t)n);
    }
    if (opened) *written = snug_writer_commit(t->ctx, &writer);
    if (opened && *written == SNUG_OK) *written = check_file(t, to, header);
    return SNUG_OK;
}

static snug_status take_all(struct snug_trainer *t, const struct origin *origin, struct snug_checkpoint_copy *copy,
                            void *piece, snug_status *written) {
    struct snug_folder to = {0};
    struct header header;
    if (copy->writes) *written = snug_folder_begin(t->ctx, &copy->in, copy->name, &to);
    const bool begun = copy->writes && *written == SNUG_OK;
    snug_status status;
    for (;;) {
        status = snug_group_broadcast(t->ctx, t->args->group, &header, sizeof header);
        if (status != SNUG_OK || !*header.name) break;
        status = take_file(t, &header, begun ? &to : NULL, piece, written);
        if (status != SNUG_OK) break;
    }
    if (begun && status == SNUG_OK && *written == SNUG_OK)
        *written = snug_folder_commit(t->ctx, &copy->in, copy->name, &to, &origin->from);
    else if (begun)
        snug_folder_abandon(&copy->in, &to);
    return status;
}

static snug_status transfer(struct snug_trainer *t, const struct origin *origin, const char *except,
                            const struct snug_folder *folder, struct snug_checkpoint_copy *copy) {
    snug_status written = SNUG_OK;
    void *piece;
    RETURN_IF_ERROR(snug_alloc(t->ctx, PIECE, 1, &piece));
    const snug_status status =
        snug_trainer_leads(t) ? send_all(t, folder, except, piece) : take_all(t, origin, copy, piece, &written);
    free(piece);
    RETURN_IF_ERROR(status);
    return snug_group_agree(t->ctx, t->args->group, written);
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

/* The first of the ranks that would write the same copy writes it, under a name of its own: hosts may have a folder in
   common without knowing. *lacks: any rank has no checkpoint. */
static snug_status choose_writers(struct snug_trainer *t, const struct place *own, struct snug_checkpoint_copy *copy,
                                  bool *lacks) {
    const struct snug_ranks *ranks = &t->args->group->ranks;
    void *memory;
    *lacks = false;
    RETURN_IF_ERROR(snug_alloc(t->ctx, (size_t)ranks->size, sizeof *own, &memory));
    struct place *all = memory;
    all[ranks->rank] = *own;
    const snug_status status = snug_group_all_gather(t->ctx, t->args->group, all, sizeof *all);
    int writer = ranks->rank;
    for (int rank = ranks->size; rank-- > 0 && status == SNUG_OK;) {
        *lacks |= !all[rank].has;
        if (rank < writer && memcmp(&all[rank], own, sizeof *own) == 0) writer = rank;
    }
    copy->writes = !own->has && writer == ranks->rank;
    snprintf(copy->name, sizeof copy->name, "checkpoint-copy-%d", writer);
    free(memory);
    return status;
}

snug_status snug_checkpoint_copy_begin(struct snug_trainer *t, const char *const *required, const char *except,
                                       struct snug_folder *folder, struct snug_checkpoint_copy *out) {
    const bool leads = snug_trainer_leads(t);
    struct origin origin = {.digest = 0};
    struct place place = {.has = true};
    bool has = true, lacks;
    *out = (struct snug_checkpoint_copy){0};
    if (!t->args->group) return SNUG_OK;
    snug_status status = leads ? describe(t, folder, &origin) : SNUG_OK;
    RETURN_IF_ERROR(snug_group_agree(t->ctx, t->args->group, status));
    RETURN_IF_ERROR(snug_group_broadcast(t->ctx, t->args->group, &origin, sizeof origin));
    if (!leads) status = find(t, &origin, required, folder, &has);
    if (status == SNUG_OK && !has) status = find_place(t, out, &place);
    RETURN_IF_ERROR(snug_group_agree(t->ctx, t->args->group, status));
    RETURN_IF_ERROR(choose_writers(t, &place, out, &lacks));
    if (!lacks) return SNUG_OK;
    out->sent = true;
    snug_log(t->ctx, SNUG_LOG_INFO, "sending %s to the ranks whose file system does not have it", origin.path);
    snug_group_at(t->args->group, -1, "sending a checkpoint");
    RETURN_IF_ERROR(transfer(t, &origin, except, folder, out));
    if (!has) status = snug_folder_open(t->ctx, &out->in, out->name, folder);
    return snug_group_agree(t->ctx, t->args->group, status);
}

/* Removes what this rank has written; after a failure, whose message stays, so far as that is possible. */
static snug_status remove_copy(struct snug_trainer *t, const struct snug_checkpoint_copy *copy, snug_status status) {
    char why[MESSAGE];
    if (status == SNUG_OK) return snug_folder_discard(t->ctx, &copy->in, copy->name);
    snprintf(why, sizeof why, "%s", snug_context_message(t->ctx));
    snug_folder_discard(t->ctx, &copy->in, copy->name);
    snug_clear_error(t->ctx);
    return snug_fail(t->ctx, status, "%s", why);
}

/* A rank that fails does not wait for the others, which may be in another collective operation: the watch ends them. */
snug_status snug_checkpoint_copy_end(struct snug_trainer *t, struct snug_folder *folder,
                                     struct snug_checkpoint_copy *copy, snug_status status) {
    snug_folder_close(folder);
    if (copy->sent && status == SNUG_OK)
        status = snug_group_agree(t->ctx, t->args->group, SNUG_OK); /* all ranks have loaded it */
    if (copy->writes) status = remove_copy(t, copy, status);
    snug_folder_close(&copy->in);
    return status;
}
