/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that are opened once, and the folder of caches. What is done in them is relative to an opened folder. */
#ifndef SNUG_IO_FOLDER_H
#define SNUG_IO_FOLDER_H

#include <dirent.h>

#include "io/file.h"

/* ---- opening -------------------------------------------------------------------------------------------------- */

bool snug_folder_exists(const char *path);
/* Opens an existing folder. in NULL: links are followed, since the user named the path; else a path with a link
 * anywhere in it is refused. */
snug_status snug_folder_open(snug_context *ctx, const struct snug_folder *in, const char *path,
                             struct snug_folder *out);
/* Creates the folder and its parents if missing, and opens it, as snug_folder_open() does. mode: permissions of the
 * files created in it. Folders created here get the same permissions, and execute permission wherever mode allows
 * reading. */
snug_status snug_folder_make(snug_context *ctx, const struct snug_folder *in, const char *path, mode_t mode,
                             struct snug_folder *out);
/* Creates the folder and its parents, with all permissions that the process's umask allows. */
snug_status snug_folder_create(snug_context *ctx, const char *path);
/* Permissions of a folder whose files have mode: execute wherever mode allows reading. */
static inline mode_t snug_folder_mode(mode_t mode) { return mode | (mode & 0444) >> 2; }
void snug_folder_close(struct snug_folder *folder);
/* A stream of its entries, for readdir(). NULL with errno. */
DIR *snug_folder_entries(const struct snug_folder *folder);
/* The kind of an entry, for messages: "a symbolic link", "a pipe" …; NULL if it does not exist. */
const char *snug_entry_kind(const struct snug_folder *in, const char *name);
/* Checks that path can be written into, or can be created; creates nothing. */
snug_status snug_folder_check(snug_context *ctx, const char *path);
/* Bytes of the regular files in a folder itself; 0 where it cannot be read. */
int64_t snug_folder_bytes(const struct snug_folder *in, const char *name);
/* Free bytes of the file system that holds path (or its nearest existing parent). */
snug_status snug_disk_free(snug_context *ctx, const char *path, int64_t *bytes);
/* Opens an unnamed file in folder for reading and writing; it disappears when the process ends. 0, or errno. */
int snug_unnamed_open(snug_context *ctx, const char *folder, int *fd);
/* Effective read permissions (of 0044, for group and others) of the file or folder at path, parent folders included;
 * 0044 if it does not exist. Group permissions count only if the group is the process's. */
mode_t snug_readable_by(const char *path);

/* ---- caches --------------------------------------------------------------------------------------------------- */

/* The cache folder: $SNUG_CACHE, $XDG_CACHE_HOME/snug or ~/.cache/snug; NULL if none is set. Not created here; freed by
 * the caller. */
snug_status snug_cache_folder(snug_context *ctx, char **out);
/* Creates (private to the user) and opens the cache folder. If it cannot be used, *problem says why; that is not a
 * failure. Files created in it are private to the user. *out is empty if no folder is set. */
snug_status snug_cache_folder_open(snug_context *ctx, struct snug_folder *out, char problem[256]);
/* Opens a cached file; -1 if it does not exist. A file that another user may have written is not used: -1, and the
 * reason is logged. */
int snug_cache_folder_find(snug_context *ctx, const struct snug_folder *cache, const char *name);
/* Removes temporary files of killed processes. Files of running processes are locked. */
void snug_cache_folder_sweep(snug_context *ctx, const struct snug_folder *cache);

#endif
