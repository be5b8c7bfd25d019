/* SPDX-License-Identifier: Apache-2.0 */
/* From a file of texts to a token cache. */
#ifndef SNUG_TEXT_BUILD_H
#define SNUG_TEXT_BUILD_H

#include "text/cache.h"

/* Reads and tokenizes the file that options name, in constant memory, and gives the finished cache's file in *fd.
   cache_path NULL: a file without a name. */
snug_status snug_cache_build(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_dataset_options *options, const char *cache_path, XXH128_hash_t key,
                             int *fd);

#endif
