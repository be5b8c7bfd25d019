/* SPDX-License-Identifier: Apache-2.0 */
/* Files: read whole; written aside, synced and renamed, so that they appear whole or not at all. */
#ifndef SNUG_IO_FILE_H
#define SNUG_IO_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "core/context.h"

/* read(), again where a signal cut in. */
ssize_t snug_read(int fd, void *data, size_t size);
/* size bytes at offset; fewer, with errno 0, where the file ends before; -1 with errno where it cannot be read. */
ssize_t snug_read_at(int fd, void *data, size_t size, uint64_t offset);
/* The whole file, NUL-terminated after size bytes; freed with free(). One of over 256 MiB is SNUG_E_INPUT. */
snug_status snug_file_read(snug_context *ctx, const char *path, char **data, size_t *size);
bool snug_file_exists(const char *path);
bool snug_folder_exists(const char *path);
/* Whether path still names the file behind fd, which another process may have removed or replaced. */
bool snug_file_is_named(int fd, const char *path);
/* Makes the folder and its parents. */
snug_status snug_folder_create(snug_context *ctx, const char *path);
/* Where snug keeps what it can make again: $SNUG_CACHE, $XDG_CACHE_HOME/snug or ~/.cache/snug; NULL where none is set.
   Not made here; freed by the caller. */
snug_status snug_cache_folder(snug_context *ctx, char **out);
/* Whether files can be written into path, or path be made and then written into; nothing is made yet. */
snug_status snug_folder_check(snug_context *ctx, const char *path);
/* Removes a folder and all in it; one that does not exist is fine. */
snug_status snug_folder_remove(snug_context *ctx, const char *path);
/* The same in one moment: who looks meanwhile, or after a kill, finds it whole or not at all. */
snug_status snug_folder_discard(snug_context *ctx, const char *path);
/* Removes the files of a folder that processes, since killed, were writing aside. Those of living ones are locked. */
void snug_folder_sweep(snug_context *ctx, const char *path);
/* Bytes of the files in a folder and below it, as far as they can be told. */
int64_t snug_folder_bytes(const char *path);
/* folder + "/" + name. */
snug_status snug_path_join(snug_context *ctx, char **out, const char *folder, const char *name);
/* Free bytes of the file system that holds path (or its nearest existing parent). */
snug_status snug_disk_free(snug_context *ctx, const char *path, int64_t *bytes);

/* A file in folder for reading and writing that has no name, so that nothing of it stays however the process ends.
   0, or errno. */
int snug_unnamed_open(snug_context *ctx, const char *folder, int *fd);

/* A file being written beside its final name. */
struct snug_writer {
    FILE *file;
    char *path, *aside;
    bool failed;
    int error; /* errno of the first failed write */
};
snug_status snug_writer_open(snug_context *ctx, const char *path, struct snug_writer *writer);
/* Remembers a failure, which commit reports: callers need not look at each write. */
void snug_writer_put(struct snug_writer *writer, const void *data, size_t size);
/* Flushes, syncs, renames to the final name and syncs the folder. On any failure the old file stays as it was. */
snug_status snug_writer_commit(snug_context *ctx, struct snug_writer *writer);
/* Gives up and removes what was written aside; nothing to do after commit. */
void snug_writer_abandon(struct snug_writer *writer);
/* data into path, whole or not at all. */
snug_status snug_file_replace(snug_context *ctx, const char *path, const void *data, size_t size);
snug_status snug_file_copy(snug_context *ctx, const char *from, const char *to);

/* A folder that appears whole or not at all: files are made in *aside, then it is renamed to path. An existing path is
   replaced. */
snug_status snug_folder_begin(snug_context *ctx, const char *path, char **aside);
/* Writes manifest.json (size and XXH3-64 of every file) last, syncs everything and renames. Frees aside. */
snug_status snug_folder_commit(snug_context *ctx, char *aside, const char *path);
/* SNUG_OK if every file of the manifest is there with its size and checksum; SNUG_E_INPUT names the first that is not.
   Names in it may not leave the folder. */
snug_status snug_folder_verify(snug_context *ctx, const char *path);

#endif
