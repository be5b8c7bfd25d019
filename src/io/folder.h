/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders that are opened once, and folders that appear whole or not at all.
 *
 * snug removes or replaces a folder only if it is a real folder with a manifest of snug (io/manifest.h) that lists
 * every entry in it, and then removes what the manifest lists, nothing else. Everything is relative to an opened
 * folder, and no link is followed.
 */
#ifndef SNUG_IO_FOLDER_H
#define SNUG_IO_FOLDER_H

#include <dirent.h>

#include "io/manifest.h"

/* ---- opening -------------------------------------------------------------------------------------------------- */

bool snug_folder_exists(const char *path);
/* Opens an existing folder. in NULL: path is followed where it is a link, since the user named it. */
snug_status snug_folder_open(snug_context *ctx, const struct snug_folder *in, const char *path,
                             struct snug_folder *out);
/* Makes the folder and its parents if need be, and opens it. mode: permissions of files made in it and, with the right
   to enter where there is one to read, of the folders made here. */
snug_status snug_folder_make(snug_context *ctx, const struct snug_folder *in, const char *path, mode_t mode,
                             struct snug_folder *out);
/* Makes the folder and its parents, with all permissions that the process's mask leaves. */
snug_status snug_folder_create(snug_context *ctx, const char *path);
void snug_folder_close(struct snug_folder *folder);
/* A stream of its entries, for readdir(). NULL with errno. */
DIR *snug_folder_entries(const struct snug_folder *folder);
/* What an entry is, for messages: "a symbolic link", "a pipe" …; NULL where there is none. */
const char *snug_entry_kind(const struct snug_folder *in, const char *name);
/* Whether files can be written into path, or path be made and then written into; nothing is made. */
snug_status snug_folder_check(snug_context *ctx, const char *path);
/* Bytes of the regular files in a folder itself; 0 where it cannot be read. */
int64_t snug_folder_bytes(const struct snug_folder *in, const char *name);
/* Free bytes of the file system that holds path (or its nearest existing parent). */
snug_status snug_disk_free(snug_context *ctx, const char *path, int64_t *bytes);
/* A file in folder for reading and writing that has no name: nothing of it stays however the process ends.
   0, or errno. */
int snug_unnamed_open(snug_context *ctx, const char *folder, int *fd);
/* Which permissions to read (of 0044, for group and others) the file or folder at path has, the folders that lead to it
   considered; 0044 where there is none. Those of the group count only if it is the process's. */
mode_t snug_readable_by(const char *path);

/* ---- caches --------------------------------------------------------------------------------------------------- */

/* Where snug keeps what it can compute again: $SNUG_CACHE, $XDG_CACHE_HOME/snug or ~/.cache/snug; NULL where none is
   set. Not made here; freed by the caller. */
snug_status snug_cache_folder(snug_context *ctx, char **out);
/* Makes (for the user alone) and opens it. *problem says why it cannot be used: that is not a failure. Files made in it
   are for the user alone. *out is none where no folder is set. */
snug_status snug_cache_folder_open(snug_context *ctx, struct snug_folder *out, char problem[256]);
/* Opens a cached file; -1 where there is none. A file that another user may have written is not taken: -1, and the
   reason is logged. */
int snug_cache_folder_find(snug_context *ctx, const struct snug_folder *cache, const char *name);
/* Removes the temporary files that killed processes left in it. Those of living ones are locked. */
void snug_cache_folder_sweep(snug_context *ctx, const struct snug_folder *cache);

/* ---- writing and removing ------------------------------------------------------------------------------------- */

/* Begins a folder of the given name in an opened one: files are made in *temporary, then it is renamed. */
snug_status snug_folder_begin(snug_context *ctx, const struct snug_folder *in, const char *name,
                              struct snug_folder *temporary);
/* Writes manifest.json last, syncs everything, and renames it to name. An existing folder of that name is replaced if
   it is snug's own, else SNUG_E_IO. Closes temporary, and removes it after a failure. */
snug_status snug_folder_commit(snug_context *ctx, const struct snug_folder *in, const char *name,
                               struct snug_folder *temporary, const struct snug_provenance *from);
void snug_folder_abandon(const struct snug_folder *in, struct snug_folder *temporary);
/* Removes a folder of snug's own; one that does not exist is no failure. Whoever looks meanwhile, or after a kill,
   finds it whole or not at all. SNUG_E_IO where it is not snug's own. */
snug_status snug_folder_discard(snug_context *ctx, const struct snug_folder *in, const char *name);
/* Removes a folder and everything in it, links themselves and not what they lead to; for folders that the caller has
   made. One that does not exist is no failure. */
snug_status snug_folder_remove(snug_context *ctx, const struct snug_folder *in, const char *name);
/* Removes the temporary files and folders that runs of these numbers left; puts back a folder that was being replaced.
 */
void snug_folder_sweep(snug_context *ctx, const struct snug_folder *in, const uint64_t *runs, size_t count);

#endif
