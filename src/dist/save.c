/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/save.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/block.h"
#include "core/min_max.h"
#include "model/adapters.h"
#include "model/bitsandbytes.h"

enum { PIECE = 1 << 20 }; /* bytes that are read, and written or sent, at a time */

/* What a tensor of the file has: elements of a tensor of the program. */
struct part {
    int32_t tensor;
    size_t parameter; /* of weights */
    int64_t first, count;
    int64_t before;       /* bytes of the parts before it that are not divided */
    bool turned;          /* the file has the transpose of it, all of the tensor; F32, of two columns or more */
    bool bytes;           /* of a quantized parameter: its elements are bytes of the file, whatever the entry's type */
    const void *constant; /* its bytes, which are in no tensor; or NULL */
};

/* In place of its number among the ranks that write, of one that sends, or cannot open the file. */
enum { SENDS = -1, FAILS = -2 };

struct saving {
    snug_context *ctx;
    const struct snug_process_group *group;
    const struct snug_program *program;
    const struct snug_memory *memory;
    const struct snug_weight_source *source; /* NULL: states are saved */
    bool finite;                             /* values that are not finite are refused */
    struct snug_tensor_entry *entries;
    struct part *parts; /* of each entry */
    size_t count;
    float *means;                   /* by parameter, of weights: see gather_means() */
    struct snug_codes_saved *codes; /* of the file's quantized parameters */
    size_t codes_count;
    int64_t common; /* bytes that are not divided: every rank has them */
    struct snug_safetensors_head head;
    struct snug_writer writer; /* rank 0's */
    const char *path;          /* for messages */
    int fd;
    int64_t *places; /* by rank: its number among those that write; or SENDS, or FAILS */
    int64_t writers;
    char joined[PATH_MAX + NAME_MAX + 2]; /* what path is on the other ranks */
    struct snug_block piece;
    snug_status status; /* of this rank's own work; a failed operation of all ranks is returned instead */
};

/* Rank 0's file. */
struct origin {
    char folder[PATH_MAX], temporary[NAME_MAX + 1];
};

/* ---- which rank writes what ------------------------------------------------------------------------------------ */

static const struct snug_tensor *tensor_of(const struct saving *s, const struct part *part) {
    return &s->program->tensors[part->tensor];
}

/* Bytes of its elements in the file. */
static int64_t size_of(const struct saving *s, const struct part *part) {
    if (part->bytes) return 1;
    return snug_dtype_size(s->entries[part - s->parts].dtype);
}

/* Elements of a part that all ranks have, up to the share of the first `writers` of those that write. */
static int64_t share_end(const struct saving *s, const struct part *part, int64_t writers) {
    const int64_t end = s->common / s->writers * writers + s->common % s->writers * writers / s->writers;
    const int64_t size = size_of(s, part);
    return end <= part->before ? 0 : snug_min(part->count, (end - part->before + size - 1) / size);
}

/* The elements of a part that a rank writes or sends: so many, from *first on. */
static int64_t range_of(const struct saving *s, const struct part *part, int rank, int64_t *first) {
    const struct snug_shards *shards = &tensor_of(s, part)->shards;
    if (shards->chunk) {
        *first = snug_max(0, snug_shard_begin(shards, rank) - part->first);
        return snug_min(part->count, snug_shard_begin(shards, rank + 1) - part->first) - *first;
    }
    const int64_t place = s->places[rank];
    *first = place < 0 ? 0 : share_end(s, part, place);
    return place < 0 ? 0 : share_end(s, part, place + 1) - *first;
}

/* ---- the bytes ------------------------------------------------------------------------------------------------- */

/* A value that is not finite would make the file useless, and it would replace the last valid one. */
static snug_status check_finite(const struct saving *s, size_t i, int64_t count) {
    const float *singles = (const float *)s->piece.base;
    const uint16_t *halves = (const uint16_t *)s->piece.base;
    const enum snug_dtype dtype = s->entries[i].dtype;
    for (int64_t k = 0; k < count; k++) {
        const float value = dtype == SNUG_F32 ? singles[k] : snug_half_to_f32(dtype, halves[k]);
        if (!isfinite(value))
            return snug_fail(s->ctx, SNUG_E_NUMERIC, "%s holds %s: it is not saved", tensor_of(s, &s->parts[i])->name,
                             isnan(value) ? "NaN" : "an infinity");
    }
    return SNUG_OK;
}

/* As read_part() for a narrowed parameter, which is rounded in the arena: its values are read from its source. Where
   they differ by more than the rounding, the file was changed meanwhile. */
static snug_status read_narrowed(const struct saving *s, const struct part *part, int64_t first, int64_t count) {
    float *values = (float *)s->piece.base;
    uint16_t *rounded = (uint16_t *)(s->piece.base + PIECE);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): states, which have no source, are not narrowed */
    const struct snug_stored_tensor *stored = s->source->of ? s->source->of[part->parameter] : NULL;
    const int64_t known = stored ? snug_max(0, snug_min(count, stored->count - first)) : 0;
    const enum snug_dtype dtype = tensor_of(s, part)->dtype;
    RETURN_IF_ERROR(snug_tensor_read(s->program, s->memory, part->tensor, part->first + first, count, rounded));
    if (known) RETURN_IF_ERROR(snug_safetensors_read(s->ctx, &s->source->files, stored, first, known, values));
    for (int64_t k = 0; k < known; k++)
        if (rounded[k] != snug_f32_to_half(dtype, values[k]))
            return snug_fail(s->ctx, SNUG_E_IO,
                             "%s: tensor %s is frozen, and its values were changed in the file since they were loaded: "
                             "put the file back, since saving reads them there",
                             s->source->path, stored->name);
    for (int64_t k = known; k < count; k++) values[k] = snug_half_to_f32(dtype, rounded[k]);
    return SNUG_OK;
}

/* Elements first … first + count - 1 of a part of this rank's, into the piece. */
static snug_status read_piece(const struct saving *s, size_t i, int64_t first, int64_t count) {
    const struct part *part = &s->parts[i];
    if (part->constant)
        memcpy(s->piece.base, (const char *)part->constant + first, (size_t)count);
    else if (s->source && s->source->make)
        RETURN_IF_ERROR(s->source->make(s->source->user, part->parameter, first, count, s->piece.base));
    else if (s->source && tensor_of(s, part)->narrowed) /* states are not */
        RETURN_IF_ERROR(read_narrowed(s, part, first, count));
    else
        RETURN_IF_ERROR(
            snug_tensor_read(s->program, s->memory, part->tensor, part->first + first, count, s->piece.base));
    return s->finite && !part->bytes ? check_finite(s, i, count) : SNUG_OK;
}

/* Of a table whose transpose is written: the columns of a range of elements, of r columns or more. */
static snug_status write_turned(const struct saving *s, size_t i, int64_t first, int64_t count) {
    const int64_t cols = s->entries[i].shape[0], rows = s->entries[i].shape[1];
    const float *values = (const float *)s->piece.base;
    for (int64_t k = 0; k < cols; k++) {
        float *column = (float *)(s->piece.base + PIECE);
        int64_t begin;
        const int64_t end = snug_rows_of_column(first, count, cols, k, &begin);
        for (int64_t row = begin; row < end; row++) column[row - begin] = values[row * cols + k - first];
        RETURN_IF_ERROR(snug_write_at(s->ctx, s->fd, s->path, column, (end - begin) * (int64_t)sizeof *column,
                                      s->entries[i].offset + (k * rows + begin) * (int64_t)sizeof *column));
    }
    return SNUG_OK;
}

static snug_status write_piece(const struct saving *s, size_t i, int64_t first, int64_t count) {
    const int64_t size = size_of(s, &s->parts[i]);
    if (s->parts[i].turned) return write_turned(s, i, first, count);
    return snug_write_at(s->ctx, s->fd, s->path, s->piece.base, count * size, s->entries[i].offset + first * size);
}

/* Calls act() with all pieces of what a rank writes or sends, until it fails. */
typedef snug_status piece_fn(struct saving *s, size_t i, int64_t first, int64_t count, int rank);

static snug_status for_pieces(struct saving *s, int rank, piece_fn *act) {
    for (size_t i = 0; i < s->count; i++) {
        int64_t first;
        const int64_t count = range_of(s, &s->parts[i], rank, &first);
        const int64_t most = PIECE / size_of(s, &s->parts[i]);
        for (int64_t at = 0; at < count; at += most)
            RETURN_IF_ERROR(act(s, i, first + at, snug_min(most, count - at), rank));
    }
    return SNUG_OK;
}

static snug_status write_own(struct saving *s, size_t i, int64_t first, int64_t count, int rank) {
    (void)rank;
    RETURN_IF_ERROR(read_piece(s, i, first, count));
    return write_piece(s, i, first, count);
}

/* From a rank that does not see the file to rank 0. Each goes on after a failure of its own, since the other one waits
   for the rest. */
static snug_status send_piece(struct saving *s, size_t i, int64_t first, int64_t count, int rank) {
    const bool sends = s->group->ranks.rank == rank;
    const int64_t bytes = count * size_of(s, &s->parts[i]);
    if (sends && s->status == SNUG_OK) s->status = read_piece(s, i, first, count);
    RETURN_IF_ERROR(s->group->collectives->transfer(s->ctx, s->piece.base, bytes, rank, 0));
    if (!sends && s->status == SNUG_OK) s->status = write_piece(s, i, first, count);
    return SNUG_OK;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

/* The whole size comes first: where clients of NFS extended the file, they would write whole pages, over the bytes of
   other ranks. */
static snug_status create_file(struct saving *s, const struct snug_folder *in, const char *name,
                               struct origin *origin) {
    RETURN_IF_ERROR(snug_writer_open(s->ctx, in, name, &s->writer));
    s->fd = fileno(s->writer.file);
    s->path = s->writer.path;
    if (in) snprintf(origin->folder, sizeof origin->folder, "%s", in->path);
    snprintf(origin->temporary, sizeof origin->temporary, "%s", s->writer.temporary);
    if (ftruncate(s->fd, (off_t)s->head.file_bytes))
        return snug_fail(s->ctx, SNUG_E_IO, "cannot write %s: %s", s->path, strerror(errno));
    return snug_write_at(s->ctx, s->fd, s->path, s->head.text, s->head.bytes, 0);
}

/* The temporary name has the random number of rank 0's run, so a file of this name and path is rank 0's. */
static int64_t join_file(struct saving *s, const struct origin *origin, const char *name) {
    snprintf(s->joined, sizeof s->joined, "%s/%s", origin->folder, origin->temporary);
    s->fd = open(s->joined, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const int error = errno;
    snprintf(s->joined, sizeof s->joined, "%s/%s", origin->folder, name);
    s->path = s->joined;
    if (s->fd >= 0) return 0;
    if (error == ENOENT) return SENDS;
    s->status = snug_fail(s->ctx, SNUG_E_IO, "cannot write %s: %s", s->path, strerror(error));
    return FAILS;
}

/* Numbers the ranks that write. *fails: a rank could not open the file. */
static snug_status share_places(struct saving *s, int64_t own, bool *fails) {
    *fails = false;
    s->places[snug_group_rank(s->group)] = own;
    RETURN_IF_ERROR(snug_group_all_gather(s->ctx, s->group, s->places, sizeof *s->places));
    for (int rank = 0; rank < snug_group_size(s->group); rank++) {
        *fails |= s->places[rank] == FAILS;
        if (s->places[rank] >= 0) s->places[rank] = s->writers++;
    }
    return SNUG_OK;
}

/* This rank's part of the file, and on rank 0 the parts of ranks that do not see it. */
static snug_status write_parts(struct saving *s) {
    const int own = snug_group_rank(s->group);
    if (s->places[own] >= 0) s->status = for_pieces(s, own, write_own);
    for (int rank = 1; rank < snug_group_size(s->group); rank++)
        if (s->places[rank] == SENDS && (own == 0 || own == rank)) RETURN_IF_ERROR(for_pieces(s, rank, send_piece));
    if (own > 0 && s->places[own] >= 0 && s->status == SNUG_OK) s->status = snug_file_sync(s->ctx, s->fd, s->path);
    return SNUG_OK;
}

/* Files are closed before rank 0 removes what failed: NFS would keep it under another name while it is open. */
static snug_status write_together(struct saving *s, const struct snug_folder *in, const char *name) {
    const bool leads = snug_group_rank(s->group) == 0;
    struct origin origin = {.folder = ""};
    bool fails;
    if (leads) RETURN_IF_ERROR(create_file(s, in, name, &origin));
    RETURN_IF_ERROR(snug_group_broadcast(s->ctx, s->group, &origin, sizeof origin));
    snug_status status = share_places(s, leads ? 0 : join_file(s, &origin, name), &fails);
    if (status == SNUG_OK && !fails) status = write_parts(s);
    if (!leads && s->fd >= 0) close(s->fd);
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(snug_group_agree(s->ctx, s->group, s->status));
    return leads ? snug_writer_finish(s->ctx, &s->writer) : SNUG_OK;
}

/* Writes the file, which rank 0 then commits: after a failure its writer is abandoned. */
static snug_status save(struct saving *s, const struct snug_folder *in, const char *name) {
    snug_status status = snug_safetensors_lay_out(s->ctx, s->entries, s->count, &s->head);
    if (status == SNUG_OK)
        status = snug_alloc(s->ctx, (size_t)snug_group_size(s->group), sizeof *s->places, (void **)&s->places);
    if (status == SNUG_OK) status = snug_block_host(s->ctx, PIECE + PIECE / 2, &s->piece);
    if (status == SNUG_OK) status = write_together(s, in, name);
    if (status != SNUG_OK) snug_writer_abandon(&s->writer);
    snug_block_release(&s->piece);
    free(s->places);
    free(s->head.text);
    return status;
}

/* ---- what is in the files -------------------------------------------------------------------------------------- */

static snug_status begin(struct saving *s, size_t most) {
    RETURN_IF_ERROR(snug_alloc(s->ctx, most, sizeof *s->entries, (void **)&s->entries));
    return snug_alloc(s->ctx, most, sizeof *s->parts, (void **)&s->parts);
}

static void add(struct saving *s, const char *name, int32_t tensor, int64_t first, int dims, const int64_t *shape) {
    const struct snug_tensor *t = &s->program->tensors[tensor];
    struct snug_tensor_entry *entry = &s->entries[s->count];
    struct part *part = &s->parts[s->count++];
    *entry = (struct snug_tensor_entry){.name = name, .dtype = t->narrowed ? SNUG_F32 : t->dtype, .dims = dims};
    *part = (struct part){.tensor = tensor, .first = first, .count = 1, .before = s->common};
    for (int i = 0; i < dims; i++) part->count *= entry->shape[i] = shape[i];
    if (!t->shards.chunk) s->common += part->count * snug_dtype_size(entry->dtype);
}

static snug_status end(struct saving *s, snug_status status, const struct snug_folder *in, const char *name) {
    if (status == SNUG_OK) status = save(s, in, name);
    free(s->entries);
    free(s->parts);
    return status;
}

/* The same of a file that belongs to no other ones. */
static snug_status end_alone(struct saving *s, snug_status status, const struct snug_folder *in, const char *name) {
    status = end(s, status, in, name);
    return status == SNUG_OK && snug_group_rank(s->group) == 0 ? snug_writer_commit(s->ctx, &s->writer) : status;
}

static void add_parameter(struct saving *s, const char *name, size_t number) {
    const struct snug_parameter *p = &s->program->parameters[number];
    int64_t shape[3];
    const int dims = snug_parameter_shape(p, shape);
    add(s, name, p->tensor, p->row * s->program->tensors[p->tensor].cols, dims, shape);
    s->parts[s->count - 1].parameter = number;
    s->parts[s->count - 1].turned = p->turned && p->shape[1] > 1; /* one column is its own transpose */
}

/* As bitsandbytes' tensors (model/bitsandbytes.h). */
static snug_status add_codes(struct saving *s, size_t number) {
    const struct snug_parameter *p = &s->program->parameters[number];
    const struct snug_tensor *t = &s->program->tensors[p->tensor];
    struct snug_codes_saved *saved = &s->codes[s->codes_count++];
    RETURN_IF_ERROR(snug_codes_save(s->ctx, p, &t->quantized, s->means[number], saved));
    for (int i = 0; i < saved->count; i++) {
        const struct snug_codes_part *from = &saved->parts[i];
        struct snug_tensor_entry *entry = &s->entries[s->count];
        struct part *part = &s->parts[s->count++];
        *entry = (struct snug_tensor_entry){.name = from->name, .dtype = from->dtype, .dims = from->dims};
        memcpy(entry->shape, from->shape, sizeof from->shape);
        *part = (struct part){.tensor = from->constant ? 0 : p->tensor,
                              .first = p->row * t->cols + from->at,
                              .count = from->count,
                              .before = s->common,
                              .bytes = true,
                              .constant = from->constant};
        if (!tensor_of(s, part)->shards.chunk) s->common += part->count;
    }
    return SNUG_OK;
}

/* The byte of a nested parameter's tensor where its mean is stored, and the rank that stores it; -1 if it is not
 * nested.
 */
static int64_t find_mean(const struct saving *s, size_t number, int *owner) {
    const struct snug_parameter *p = &s->program->parameters[number];
    const struct snug_tensor *t = &s->program->tensors[p->tensor];
    const struct snug_quantized_layout l = snug_quantized_lay_out(&t->quantized);
    const int64_t at = p->row * t->cols + l.group_absmax + l.groups * (int64_t)sizeof(float);
    *owner = snug_group_rank(s->group);
    if (t->shards.chunk)
        for (*owner = 0; snug_shard_begin(&t->shards, *owner + 1) <= at;) ++*owner;
    return t->quantized.nested ? at : -1;
}

/* s->means, on all ranks: the text of a file's JSON has them. */
static snug_status gather_means(const struct saving *s) {
    const size_t count = s->program->parameter_count, ranks = (size_t)snug_group_size(s->group);
    const int own = snug_group_rank(s->group);
    float *all; /* of each rank */
    int owner;
    RETURN_IF_ERROR(snug_alloc(s->ctx, ranks * count, sizeof *all, (void **)&all));
    snug_status read_status = SNUG_OK, status = SNUG_OK;
    for (size_t i = 0; i < count && read_status == SNUG_OK; i++) {
        const int64_t at = find_mean(s, i, &owner);
        if (at >= 0 && owner == own)
            read_status = snug_tensor_read(s->program, s->memory, s->program->parameters[i].tensor, at, sizeof *all,
                                           &all[(size_t)own * count + i]);
    }
    if (s->group) status = snug_group_all_gather(s->ctx, s->group, all, (int64_t)(count * sizeof *all));
    if (status == SNUG_OK) status = snug_group_agree(s->ctx, s->group, read_status);
    for (size_t i = 0; i < count && status == SNUG_OK; i++)
        if (find_mean(s, i, &owner) >= 0) s->means[i] = all[(size_t)owner * count + i];
    free(all);
    return status;
}

/* Writes file number `file` of the weights; *written: rank 0's writer of it. */
static snug_status save_weights(struct saving s, const struct snug_folder *in, const struct snug_weight_files *files,
                                size_t file, struct snug_writer *written) {
    const struct snug_program *program = s.program;
    char name[SNUG_WEIGHT_FILE_NAME];
    snug_weight_files_name(files, file, name);
    size_t quantized = 0;
    for (size_t i = 0; i < program->parameter_count; i++)
        quantized += files->file_of[i] == file && program->tensors[program->parameters[i].tensor].quantized.type;
    snug_status status = begin(&s, 2 * program->parameter_count + SNUG_CODES_PARTS * quantized);
    if (status == SNUG_OK) status = snug_alloc(s.ctx, quantized, sizeof *s.codes, (void **)&s.codes);
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
        if (files->file_of[i] != file) continue;
        if (program->tensors[program->parameters[i].tensor].quantized.type) {
            status = add_codes(&s, i);
            continue;
        }
        add_parameter(&s, program->parameters[i].name, i);
        if (program->parameters[i].also) add_parameter(&s, program->parameters[i].also, i);
    }
    status = end(&s, status, in, name);
    free(s.codes);
    *written = s.writer;
    return status;
}

/* Where an older model has as many files, an index would name files of both. So the new files first get other names,
   by which an index lists them. */
static snug_status name_otherwise(const struct saving *s, const struct snug_folder *in,
                                  const struct snug_weight_files *files, struct snug_writer *written) {
    char name[SNUG_WEIGHT_FILE_NAME];
    for (size_t i = 0; i < files->count; i++) {
        snug_weight_files_other_name(files, i, name);
        RETURN_IF_ERROR(snug_writer_rename(s->ctx, &written[i], name));
        RETURN_IF_ERROR(snug_writer_commit(s->ctx, &written[i]));
    }
    return snug_weight_files_index(s->program, files, true, in);
}

/* Then each gets its own name, too; on a file system without hard links instead of the other one, without an index. */
static snug_status name_properly(const struct saving *s, const struct snug_folder *in,
                                 const struct snug_weight_files *files) {
    char name[SNUG_WEIGHT_FILE_NAME], other[SNUG_WEIGHT_FILE_NAME];
    for (size_t i = 0; i < files->count; i++) {
        snug_weight_files_name(files, i, name);
        snug_weight_files_other_name(files, i, other);
        unlinkat(in->fd, name, 0);
        if (linkat(in->fd, other, in->fd, name, 0) == 0) continue;
        unlinkat(in->fd, SNUG_WEIGHTS_INDEX, 0);
        if (renameat(in->fd, other, in->fd, name))
            return snug_fail(s->ctx, SNUG_E_IO, "cannot rename %s/%s to %s: %s", in->path, other, name,
                             strerror(errno));
    }
    snug_folder_sync(s->ctx, in, SNUG_WEIGHTS_INDEX);
    return SNUG_OK;
}

/* Gives the files their names. At any moment the older model or the new one is whole. */
static snug_status commit_weights(const struct saving *s, const struct snug_folder *in,
                                  const struct snug_weight_files *files, struct snug_writer *written) {
    char name[SNUG_WEIGHT_FILE_NAME];
    snug_weight_files_name(files, 0, name);
    if (files->count > 1 && snug_entry_kind(in, name)) {
        RETURN_IF_ERROR(name_otherwise(s, in, files, written));
        RETURN_IF_ERROR(name_properly(s, in, files));
    } else {
        for (size_t i = 0; i < files->count; i++) RETURN_IF_ERROR(snug_writer_commit(s->ctx, &written[i]));
    }
    if (files->count == 1) return SNUG_OK;
    RETURN_IF_ERROR(snug_weight_files_index(s->program, files, false, in));
    for (size_t i = 0; i < files->count; i++) {
        snug_weight_files_other_name(files, i, name);
        unlinkat(in->fd, name, 0);
    }
    return SNUG_OK;
}

snug_status snug_weights_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                              const struct snug_weight_files *files, const struct snug_program *program,
                              const struct snug_memory *memory, const struct snug_weight_source *source) {
    struct saving s = {
        .ctx = ctx, .group = group, .program = program, .memory = memory, .source = source, .finite = true, .fd = -1};
    struct snug_writer *written;
    RETURN_IF_ERROR(snug_alloc(ctx, files->count, sizeof *written, (void **)&written));
    snug_status status = snug_alloc(ctx, program->parameter_count, sizeof *s.means, (void **)&s.means);
    if (status == SNUG_OK) status = gather_means(&s);
    for (size_t i = 0; i < files->count && status == SNUG_OK; i++) status = save_weights(s, in, files, i, &written[i]);
    if (status == SNUG_OK && snug_group_rank(group) == 0) status = commit_weights(&s, in, files, written);
    for (size_t i = 0; i < files->count; i++) snug_writer_abandon(&written[i]);
    free(written);
    free(s.means);
    return status;
}

snug_status snug_adapter_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                              const char *name, const struct snug_program *program, const struct snug_memory *memory) {
    enum { SIZE = sizeof SNUG_ADAPTER_PREFIX + sizeof program->parameters->name + sizeof "base_layer." };
    struct saving s = {.ctx = ctx, .group = group, .program = program, .memory = memory, .finite = true, .fd = -1};
    char(*names)[SIZE] = NULL;
    snug_status status = begin(&s, program->parameter_count + 1);
    if (status == SNUG_OK) status = snug_alloc(ctx, program->parameter_count, SIZE, (void **)&names);
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
        if (!program->parameters[i].adapter) continue;
        snprintf(names[i], SIZE, SNUG_ADAPTER_PREFIX);
        snug_adapter_stored_name(&program->parameters[i], names[i] + sizeof SNUG_ADAPTER_PREFIX - 1,
                                 SIZE - sizeof SNUG_ADAPTER_PREFIX + 1);
        add_parameter(&s, names[i], i);
        if (program->parameters[i].output) add_parameter(&s, SNUG_ADAPTER_PREFIX "lm_head.weight", i);
    }
    status = end_alone(&s, status, in, name);
    free(names);
    return status;
}

snug_status snug_module_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                             const char *name, const struct snug_program *program, const struct snug_memory *memory,
                             const char *prefix) {
    struct saving s = {.ctx = ctx, .group = group, .program = program, .memory = memory, .finite = true, .fd = -1};
    const size_t length = strlen(prefix);
    const snug_status status = begin(&s, program->parameter_count);
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
        const char *own = program->parameters[i].name;
        if (strncmp(own, prefix, length) == 0) add_parameter(&s, own + length, i);
    }
    return end_alone(&s, status, in, name);
}

snug_status snug_states_save(snug_context *ctx, const struct snug_process_group *group, const struct snug_folder *in,
                             const char *name, const struct snug_program *program, const struct snug_memory *memory) {
    struct saving s = {.ctx = ctx, .group = group, .program = program, .memory = memory, .fd = -1};
    snug_status status = begin(&s, program->tensor_count);
    for (size_t i = 0; i < program->tensor_count && status == SNUG_OK; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->saved) add(&s, t->name, (int32_t)i, 0, 2, (const int64_t[]){t->rows, t->cols});
    }
    return end_alone(&s, status, in, name);
}
