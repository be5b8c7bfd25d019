/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders that are written atomically: complete or absent.
 *
 * snug removes or replaces a folder only if it is a real folder with a manifest of snug (io/manifest.h) that lists
 * every entry in it, and then removes what the manifest lists, nothing else. Everything is relative to an opened
 * folder, and no link is followed.
 */
#ifndef SNUG_IO_FOLDER_WRITE_H
#define SNUG_IO_FOLDER_WRITE_H

#include "io/folder.h"
#include "io/manifest.h"

/* Begins a folder of the given name in an opened folder: files are written into *temporary, which is then renamed. */
snug_status snug_folder_begin(snug_context *ctx, const struct snug_folder *in, const char *name,
                              struct snug_folder *temporary);
/* Writes manifest.json last, syncs everything, and renames it to name. An existing folder of that name is replaced if
 * snug made it, else SNUG_E_IO. Closes temporary, and removes it after a failure. */
snug_status snug_folder_commit(snug_context *ctx, const struct snug_folder *in, const char *name,
                               struct snug_folder *temporary, const struct snug_provenance *from);
void snug_folder_abandon(const struct snug_folder *in, struct snug_folder *temporary);
/* Removes a folder that snug made; a missing folder is no failure. Other processes see it complete or absent, also
 * after a kill. SNUG_E_IO if snug did not make it. */
snug_status snug_folder_discard(snug_context *ctx, const struct snug_folder *in, const char *name);
/* Removes a folder and everything in it (links, not their targets), for folders that the caller created. A missing
 * folder is no failure. */
snug_status snug_folder_remove(snug_context *ctx, const struct snug_folder *in, const char *name);
/* Removes the temporary files and folders of the runs with these numbers; restores a folder whose replacement was
 * interrupted. False if some may be left: what cannot be removed is logged. */
bool snug_folder_sweep(snug_context *ctx, const struct snug_folder *in, const uint64_t *runs, size_t count);

#endif
