/* SPDX-License-Identifier: Apache-2.0 */
/* From a file of texts to a token cache. */
#ifndef SNUG_TEXT_BUILD_H
#define SNUG_TEXT_BUILD_H

#include "text/cache.h"

/* Reads and tokenizes the file that options name, opened as data, in constant memory, and returns the finished cache's
   file in *fd. in is NULL: an unnamed file. data is not closed. */
snug_status snug_cache_build(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_dataset_options *options, int data, const struct snug_folder *in,
                             const char *name, XXH128_hash_t key, int *fd);

#endif
