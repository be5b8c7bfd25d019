/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local cache of a Hugging Face hub, with huggingface_hub's layout:
 *
 *     CACHE/models--ORG--NAME/blobs/ETAG              a file's content, named by its hash (see hub/fetch/blob.h)
 *                             snapshots/COMMIT/FILE   a relative symbolic link to its blob
 *                             refs/REVISION           the commit of a branch or a tag
 *     CACHE/.locks/models--ORG--NAME/ETAG.lock        locked by flock() while the blob is fetched
 */
#ifndef SNUG_HUB_CACHE_H
#define SNUG_HUB_CACHE_H

#include "core/context.h"

/* Where a model's name is looked up. */
struct snug_hub_place {
    const char *cache_dir; /* NULL: $HF_HUB_CACHE and the other variables of huggingface_hub */
    const char *revision;  /* a branch, a tag or a commit; NULL: "main" */
};

/* Whether name may be a model of a hub: NAME or ORG/NAME, by huggingface_hub's rules. */
bool snug_hub_is_name(const char *name);
/* Whether text is a commit: 40 hexadecimal digits. */
bool snug_hub_is_commit(const char *text);
/* Whether text may be a branch, tag or commit: its path below refs/ stays there. */
bool snug_hub_is_revision(const char *text);
/* Whether an environment variable has one of huggingface_hub's values for true: 1, ON, YES, TRUE in any case. */
bool snug_hub_is_true(const char *variable);
/* The first of these environment variables that is set and not empty; a "~" at its beginning is the home folder.
 * NULL if there is none. Freed by the caller. */
snug_status snug_hub_path_from(snug_context *ctx, const char *const variables[], size_t count, char **out);
/* The folder of the token and of the cache: $HF_HOME, $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface. */
snug_status snug_hub_home(snug_context *ctx, char **out);
/* The cache's folder; it may be missing. Freed by the caller. */
snug_status snug_hub_cache(snug_context *ctx, const struct snug_hub_place *place, char **out);
/* The name of a model's folder in the cache, "models--ORG--NAME". Freed by the caller. */
snug_status snug_hub_folder_name(snug_context *ctx, const char *name, char **out);
/* The path of the revision's snapshot; NULL if the cache does not have it. Freed by the caller. SNUG_E_INPUT for a file
 * in refs/ that names no snapshot. */
snug_status snug_hub_find(snug_context *ctx, const struct snug_hub_place *place, const char *name, char **folder);

#endif
