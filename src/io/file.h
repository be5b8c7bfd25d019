/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files are read as a whole. They are written under a temporary name, synced and renamed, so that a file is complete or
 * absent.
 *
 * Files are named by an opened folder and a name in it, so that a folder may be renamed or replaced while it is in use.
 * Where the folder is NULL the name is a path of the process. Links are followed when a file is read, never when one is
 * written, replaced or removed. Anything but a regular file is refused, so that opening never blocks.
 */
#ifndef SNUG_IO_FILE_H
#define SNUG_IO_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/context.h"

/* An opened folder. A zeroed struct is none: path is NULL. */
struct snug_folder {
    int fd;
    char *path;                   /* as the user named it; for messages only */
    mode_t mode;                  /* permissions of the files created in it; the process's umask applies too */
    uint64_t run;                 /* part of the temporary names in it: identifies the run that made them */
    struct snug_written *written; /* the files written so far of an unfinished folder (snug_folder_begin) */
};

struct snug_written {
    char **names;
    size_t count, capacity;
};

/* A path for messages: snug_fail(ctx, status, "cannot open " SNUG_PATH, SNUG_PATH_IN(in, name)). */
#define SNUG_PATH "%s%s%s"
#define SNUG_PATH_IN(in, name) (in) ? (in)->path : "", (in) ? "/" : "", (name)

/* The descriptor that names in a folder are relative to. */
int snug_folder_fd(const struct snug_folder *in);

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* read(), repeated when a signal interrupts it. */
ssize_t snug_read(int fd, void *data, size_t size);
/* Reads size bytes at offset. Returns fewer, with errno 0, if the file ends before; -1 with errno if reading fails. */
ssize_t snug_read_at(int fd, void *data, size_t size, uint64_t offset);
/* Opens a regular file for reading. SNUG_E_IO if it cannot be opened, SNUG_E_INPUT if it is of another kind. */
snug_status snug_file_open(snug_context *ctx, const struct snug_folder *in, const char *name, int *fd);
/* Maximum size of a file that is read as a whole. */
enum { SNUG_FILE_BYTES_MOST = (1 << 28) - 2 };
/* The whole file, NUL-terminated after size bytes; freed with free(). A file of over 256 MiB is SNUG_E_INPUT, and so is
   one of another kind than text or a tokenizer's data (io/file_kind.h). */
snug_status snug_file_read(snug_context *ctx, const struct snug_folder *in, const char *name, char **data,
                           size_t *size);
/* XXH3-64 and size of an opened file from its beginning, read through a small buffer. name is for messages. */
snug_status snug_file_digest(snug_context *ctx, int fd, const char *name, int64_t *size, uint64_t *digest);
/* Whether the name exists and is not a folder; links are followed. */
bool snug_file_exists(const struct snug_folder *in, const char *name);
/* Whether the name still refers to the opened file, which another process may have removed or replaced. */
bool snug_file_is_named(int fd, const struct snug_folder *in, const char *name);

/* folder + "/" + name. */
snug_status snug_path_join(snug_context *ctx, char **out, const char *folder, const char *name);

/* ---- writing -------------------------------------------------------------------------------------------------- */

/* A file being written under a temporary name. */
struct snug_writer {
    FILE *file;
    const struct snug_folder *in;
    char *name, *temporary;
    char *path; /* for messages */
    bool failed;
    int error; /* errno of the first failed write */
};
/* Refuses a name that exists and is not a regular file: a link, a pipe, a folder. in must outlive the writer. */
snug_status snug_writer_open(snug_context *ctx, const struct snug_folder *in, const char *name,
                             struct snug_writer *writer);
/* Records a failure; commit reports it, so callers need not check each write. */
void snug_writer_put(struct snug_writer *writer, const void *data, size_t size);
/* Flushes, syncs and closes, before snug_writer_commit(): for several files that get their names together. After a
   failure the writer is abandoned. */
snug_status snug_writer_finish(snug_context *ctx, struct snug_writer *writer);
/* Flushes, syncs, renames to the final name and syncs the folder. After any failure the old file is unchanged. */
snug_status snug_writer_commit(snug_context *ctx, struct snug_writer *writer);
/* The name that it will have, in place of the one that it was opened for. */
snug_status snug_writer_rename(snug_context *ctx, struct snug_writer *writer, const char *name);
/* Removes the temporary file; does nothing after commit. */
void snug_writer_abandon(struct snug_writer *writer);
/* Writes size bytes at offset into a file opened for writing; path is for messages. */
snug_status snug_write_at(snug_context *ctx, int fd, const char *path, const void *data, int64_t size, int64_t offset);
/* Makes what was written to an opened file durable; path is for messages. */
snug_status snug_file_sync(snug_context *ctx, int fd, const char *path);
/* Writes data as the whole file, atomically. */
snug_status snug_file_replace(snug_context *ctx, const struct snug_folder *in, const char *name, const void *data,
                              size_t size);
/* ".NAME.snug-RUN" and suffix, "", "-NUMBER" or ".old": a hidden name beside name, which no pattern such as
   "checkpoint-*" matches. Freed by the caller. */
snug_status snug_temporary_name(snug_context *ctx, const char *name, uint64_t run, const char *suffix, char **out);
/* The run of such a name; false if it is not one. name_length: of NAME, which begins at the second character. */
bool snug_temporary_run(const char *name, uint64_t *run, size_t *name_length);
/* A random number that is not 0. */
uint64_t snug_random_number(void);
/* Makes the rename to that name durable. The rename is already done, so a failure is only logged. */
void snug_folder_sync(snug_context *ctx, const struct snug_folder *in, const char *name);

#endif
