/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "io/file.h"
#include "io/file_kind.h"
#include "io/folder.h"
#include "io/folder_kind.h"

bool snug_data_is_stdin(const char *path) {
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdin") == 0 || strcmp(path, "/dev/fd/0") == 0;
}

/* ---- the format ------------------------------------------------------------------------------------------------ */

/* What is known of a file of no known format by its content, which tells more than its name. */
static snug_status check_unknown(snug_context *ctx, const char *path) {
    char start[SNUG_KIND_BYTES];
    struct stat info;
    if (snug_folder_exists(path)) return snug_fail_data_folder(ctx, path);
    if (snug_data_is_stdin(path)) return SNUG_OK;
    if (stat(path, &info) != 0) return snug_fail(ctx, SNUG_E_IO, "cannot open %s: %s", path, strerror(errno));
    const int fd = S_ISREG(info.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) : -1;
    if (fd < 0) return SNUG_OK;
    const ssize_t got = snug_read(fd, start, sizeof start);
    close(fd);
    return got > 0 ? snug_file_check_kind(ctx, path, start, (size_t)got) : SNUG_OK;
}

snug_status snug_data_form_of(snug_context *ctx, const char *path, const char *format, enum snug_data_form *out) {
    static const struct {
        const char *name;
        enum snug_data_form form;
    } forms[] = {{"csv", SNUG_DATA_CSV},
                 {"tsv", SNUG_DATA_TSV},
                 {"json", SNUG_DATA_JSON},
                 {"jsonl", SNUG_DATA_JSON},
                 {"txt", SNUG_DATA_TEXT},
                 {"conll", SNUG_DATA_CONLL},
                 {"conllu", SNUG_DATA_CONLL},
                 {"conllup", SNUG_DATA_CONLL},
                 {"iob", SNUG_DATA_CONLL},
                 {"iob2", SNUG_DATA_CONLL},
                 {"bio", SNUG_DATA_CONLL},
                 {"v4_gold_conll", SNUG_DATA_CONLL},
                 {"v4_auto_conll", SNUG_DATA_CONLL}};
    const char *slash = strrchr(path, '/'), *name = format ? format : slash ? slash + 1 : path;
    size_t length = strlen(name);
    if (!format && length > 3 && strcasecmp(name + length - 3, ".gz") == 0) length -= 3;
    const char *dot = format ? NULL : memrchr(name, '.', length);
    if (dot) length -= (size_t)(dot + 1 - name);
    for (size_t i = 0; (dot || format) && i < sizeof forms / sizeof *forms; i++) {
        if (strlen(forms[i].name) != length || strncasecmp(dot ? dot + 1 : name, forms[i].name, length) != 0) continue;
        *out = forms[i].form;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(check_unknown(ctx, path));
    return snug_fail(ctx, SNUG_E_USAGE,
                     "%s: the name does not tell the format, as .csv, .tsv, .json, .jsonl, .txt, .conll and the same "
                     "with .gz do: give --data_format csv, tsv, json, txt or conll",
                     path);
}

static snug_status fail_to_open(snug_context *ctx, const char *path, int error) {
    if (strstr(path, "://"))
        return snug_fail(ctx, SNUG_E_IO,
                         "cannot open %s: data is read from files of this machine: download it, or give - and pipe it "
                         "in, as in curl -L URL | snug train --train_file - --data_format csv",
                         path);
    return snug_fail(ctx, SNUG_E_IO, "cannot open %s: %s", path, strerror(error));
}

snug_status snug_data_look(snug_context *ctx, const char *path, const char *format) {
    enum snug_data_form form;
    RETURN_IF_ERROR(snug_data_form_of(ctx, path, format, &form));
    if (snug_folder_exists(path)) return snug_fail_data_folder(ctx, path);
    return snug_data_is_stdin(path) || access(path, R_OK) == 0 ? SNUG_OK : fail_to_open(ctx, path, errno);
}

snug_status snug_data_open(snug_context *ctx, const char *path, int *fd) {
    /* Not by its name: /dev/stdin cannot be opened where it is a socket. A pipe waits for its writer; a signal handler
       of the program may interrupt that. */
    int error;
    if (snug_folder_exists(path)) return snug_fail_data_folder(ctx, path);
    do {
        *fd = snug_data_is_stdin(path) ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                                       : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        error = errno;
    } while (*fd < 0 && error == EINTR && !snug_stop_asked(ctx));
    if (*fd >= 0) return SNUG_OK;
    if (error == EINTR) return snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while %s was opened", path);
    return fail_to_open(ctx, path, error);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

struct snug_data_file {
    snug_context *ctx;
    char *path;
    int fd;
    int64_t taken;
    bool begun, compressed;
    bool member;      /* within compressed data */
    z_stream inflate; /* its input is in buffer */
    unsigned char buffer[1 << 15];
};

snug_status snug_data_file_create(snug_context *ctx, const char *path, int fd, struct snug_data_file **out) {
    void *memory;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    *out = memory;
    (*out)->ctx = ctx;
    (*out)->fd = fd;
    return snug_strdup(ctx, path, &(*out)->path);
}

void snug_data_file_free(struct snug_data_file *file) {
    if (!file) return;
    if (file->compressed) inflateEnd(&file->inflate);
    free(file->path);
    free(file);
}

int64_t snug_data_file_taken(const struct snug_data_file *file) { return file->taken; }

static snug_status read_bytes(struct snug_data_file *file, void *data, size_t size, size_t *got) {
    const ssize_t count = snug_read(file->fd, data, size);
    *got = count > 0 ? (size_t)count : 0;
    file->taken += (int64_t)*got;
    return count < 0 ? snug_fail(file->ctx, SNUG_E_IO, "cannot read %s: %s", file->path, strerror(errno)) : SNUG_OK;
}

/* Reads more compressed bytes; avail_in stays 0 at the end. */
static snug_status refill(struct snug_data_file *file) {
    size_t got;
    RETURN_IF_ERROR(read_bytes(file, file->buffer, sizeof file->buffer, &got));
    file->inflate.next_in = file->buffer;
    file->inflate.avail_in = (uInt)got;
    return SNUG_OK;
}

/* The first bytes decide whether the file is compressed: no text begins with gzip's two. A pipe may give them one by
   one. */
static snug_status begin(struct snug_data_file *file) {
    size_t filled = 0, got = 1;
    for (; filled < 2 && got; filled += got)
        RETURN_IF_ERROR(read_bytes(file, file->buffer + filled, sizeof file->buffer - filled, &got));
    file->inflate.next_in = file->buffer;
    file->inflate.avail_in = (uInt)filled;
    if (filled < 2 || file->buffer[0] != 0x1f || file->buffer[1] != 0x8b) return SNUG_OK;
    /* 16: with gzip's header. */
    if (inflateInit2(&file->inflate, MAX_WBITS + 16) != Z_OK)
        return snug_fail(file->ctx, SNUG_E_MEMORY, "out of memory while decompressing %s", file->path);
    file->compressed = file->member = true;
    return SNUG_OK;
}

/* After the end of compressed data more may follow, as from pigz or cat; zeros, as from tape, may not be text. */
static snug_status begin_member(struct snug_data_file *file) {
    for (;;) {
        if (file->inflate.avail_in == 0) RETURN_IF_ERROR(refill(file));
        if (file->inflate.avail_in == 0) return SNUG_OK;
        if (*file->inflate.next_in) break;
        file->inflate.next_in++;
        file->inflate.avail_in--;
    }
    file->member = true;
    inflateReset(&file->inflate);
    return SNUG_OK;
}

static snug_status read_compressed(struct snug_data_file *file, void *data, size_t size, size_t *got) {
    file->inflate.next_out = data;
    file->inflate.avail_out = (uInt)size;
    while (file->inflate.avail_out == size) {
        if (!file->member) RETURN_IF_ERROR(begin_member(file));
        if (!file->member) break;
        if (file->inflate.avail_in == 0) RETURN_IF_ERROR(refill(file));
        if (file->inflate.avail_in == 0)
            return snug_fail(file->ctx, SNUG_E_INPUT, "%s ends within its compressed data: it is truncated",
                             file->path);
        const int result = inflate(&file->inflate, Z_NO_FLUSH);
        if (result == Z_STREAM_END)
            file->member = false;
        else if (result == Z_MEM_ERROR)
            return snug_fail(file->ctx, SNUG_E_MEMORY, "out of memory while decompressing %s", file->path);
        else if (result != Z_OK)
            return snug_fail(file->ctx, SNUG_E_INPUT, "%s: its compressed data is damaged (%s)", file->path,
                             file->inflate.msg ? file->inflate.msg : "gzip");
    }
    *got = size - file->inflate.avail_out;
    return SNUG_OK;
}

static snug_status read_next(struct snug_data_file *file, void *data, size_t size, size_t *got) {
    if (file->compressed) return read_compressed(file, data, size, got);
    if (file->inflate.avail_in == 0) return read_bytes(file, data, size, got);
    *got = file->inflate.avail_in < size ? file->inflate.avail_in : size;
    memcpy(data, file->inflate.next_in, *got);
    file->inflate.next_in += *got;
    file->inflate.avail_in -= (uInt)*got;
    return SNUG_OK;
}

/* The first bytes of the data, as far as a kind of file can be told by them. */
static snug_status read_first(struct snug_data_file *file, void *data, size_t size, size_t *got) {
    size_t more = 1;
    file->begun = true;
    RETURN_IF_ERROR(begin(file));
    for (*got = 0; *got < SNUG_KIND_BYTES && *got < size && more; *got += more)
        RETURN_IF_ERROR(read_next(file, (char *)data + *got, size - *got, &more));
    return snug_file_check_kind(file->ctx, file->path, data, *got);
}

snug_status snug_data_file_read(struct snug_data_file *file, void *data, size_t size, size_t *got) {
    *got = 0;
    return file->begun ? read_next(file, data, size, got) : read_first(file, data, size, got);
}
