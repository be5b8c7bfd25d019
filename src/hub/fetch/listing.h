/* SPDX-License-Identifier: Apache-2.0 */
/* What a hub says about a revision of a model, and which shards its index of weights names. */
#ifndef SNUG_HUB_FETCH_LISTING_H
#define SNUG_HUB_FETCH_LISTING_H

#include <jansson.h>

#include "io/file.h"

/* The files that a hub has for a model and that snug may put into its folder: JSON, text, SentencePiece models,
 * templates and safetensors in the folder itself, no hidden file, names of letters, digits, "-", "_" and "." alone; and
 * of the folders of sentence-transformers' modules config.json and model.safetensors, of additional_chat_templates
 * tool_use.jinja. Others, programs among them, are as if they were not there, so that neither the list nor an index can
 * get them into the cache. */
struct snug_listing {
    char commit[41];
    json_t *files;   /* the names as keys, of those in the folder itself */
    json_t *folders; /* for each folder the names of its files, FOLDER/NAME */
};
/* Reads the JSON text that url was answered with: {"sha": COMMIT, "siblings": [{"rfilename": NAME}, …]}. */
snug_status snug_listing_read(snug_context *ctx, const char *url, const char *text, size_t size,
                              struct snug_listing *out);
/* Whether a name is that of a safetensors file in the folder itself. */
bool snug_listing_is_weights(const char *name);
bool snug_listing_has(const struct snug_listing *listing, const char *name);
void snug_listing_free(struct snug_listing *listing);

struct snug_shards {
    json_t *index;
    const char **names; /* each shard once */
    size_t count;
};
/* Reads an index: {"weight_map": {TENSOR: SHARD}}. SNUG_E_INPUT where a shard is not the name of a safetensors file in
 * the same folder, or if there are more shards than any model has. */
snug_status snug_shards_read(snug_context *ctx, const struct snug_folder *in, const char *name,
                             struct snug_shards *out);
void snug_shards_free(struct snug_shards *shards);

#endif
