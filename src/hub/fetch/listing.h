/* SPDX-License-Identifier: Apache-2.0 */
/* What a hub says about a revision of a model, and which shards its index of weights names. */
#ifndef SNUG_HUB_FETCH_LISTING_H
#define SNUG_HUB_FETCH_LISTING_H

#include <jansson.h>

#include "io/file.h"

struct snug_listing {
    char commit[41];
    json_t *files; /* the names as keys */
};
/* Reads the JSON text that url was answered with: {"sha": COMMIT, "siblings": [{"rfilename": NAME}, …]}. */
snug_status snug_listing_read(snug_context *ctx, const char *url, const char *text, size_t size,
                              struct snug_listing *out);
bool snug_listing_has(const struct snug_listing *listing, const char *name);
void snug_listing_free(struct snug_listing *listing);

struct snug_shards {
    json_t *index;
    const char **names; /* each shard once */
    size_t count;
};
/* Reads an index: {"weight_map": {TENSOR: SHARD}}. SNUG_E_INPUT where a shard is not the name of a file in the same
 * folder. */
snug_status snug_shards_read(snug_context *ctx, const struct snug_folder *in, const char *name,
                             struct snug_shards *out);
void snug_shards_free(struct snug_shards *shards);

#endif
