/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.json: which files of a folder snug wrote, their sizes and checksums, and in which run. A folder with one is
 * snug's own; without one snug does not replace or remove it.
 *
 *   {"program": "snug", "version": 2, "run": "16 hex digits", "started": seconds since 1970,
 *    "files": {"model.safetensors": {"size": 1234, "xxh3_64": "16 hex digits"}, "config.json": null, …},
 *    "xxh3_64": "16 hex digits"}
 *
 * null: the file is being written. The last checksum is that of the rest as compact JSON with sorted keys.
 */
#ifndef SNUG_IO_MANIFEST_H
#define SNUG_IO_MANIFEST_H

#include <jansson.h>

#include "io/file.h"

#define SNUG_MANIFEST "manifest.json"

/* The training that a file belongs to: a random number, which resumed runs reuse, and the time of its start. */
struct snug_provenance {
    uint64_t run;
    int64_t started; /* seconds since 1970 */
};

struct snug_manifest {
    json_t *files; /* owned; NULL if problem is set */
    struct snug_provenance from;
    char problem[256]; /* why there is no valid manifest; "" where there is one */
};

/* Reads folder/manifest.json. A missing or foreign one is not a failure: see problem. */
snug_status snug_manifest_read(snug_context *ctx, const struct snug_folder *folder, struct snug_manifest *out);
void snug_manifest_free(struct snug_manifest *manifest);
/* Sets the entry of a file and syncs the file's content to the disk. */
snug_status snug_manifest_add(snug_context *ctx, json_t *files, const struct snug_folder *folder, const char *name);
/* Writes folder/manifest.json. */
snug_status snug_manifest_write(snug_context *ctx, const struct snug_folder *folder, json_t *files,
                                const struct snug_provenance *from);
/* Whether the manifest lists every entry of the folder; if not, *unlisted is such an entry's name. */
snug_status snug_manifest_covers(snug_context *ctx, const struct snug_folder *folder,
                                 const struct snug_manifest *manifest, bool *covers, char unlisted[256]);
/* Opens the folder `name` in an opened folder if snug made it. SNUG_END if there is no such entry; SNUG_E_IO names what
 * exists instead. manifest and folder may be NULL. */
snug_status snug_manifest_claim(snug_context *ctx, const struct snug_folder *in, const char *name,
                                struct snug_folder *folder, struct snug_manifest *manifest);
/* SNUG_OK if the folder has a valid manifest that lists all required files (NULL-terminated; "A|B": at least one of
   these), and every file that it lists exists with its size and checksum; SNUG_E_INPUT names the first that is not. */
snug_status snug_manifest_verify(snug_context *ctx, const struct snug_folder *folder, const char *const *required);
/* As snug_manifest_verify(), of one file: whether it is what an entry of `files` says. */
snug_status snug_manifest_verify_file(snug_context *ctx, const struct snug_folder *folder, const char *name,
                                      const json_t *entry);

#endif
