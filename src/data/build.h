/* SPDX-License-Identifier: Apache-2.0 */
/* From a file of texts to a token cache. */
#ifndef SNUG_DATA_BUILD_H
#define SNUG_DATA_BUILD_H

#include "data/cache.h"
#include "data/chat.h"
#include "data/columns.h"
#include "tokenizer/tokenizer.h"

/* Reads and tokenizes the rows of peek, which are those of the file that options name, in constant memory, and returns
   the finished cache's file in *fd. hot: the classes of labels that are lists of zeros and ones, else 0. chat: the
   template of rows that are chats, else NULL. in is NULL: an unnamed file. */
snug_status snug_cache_build(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_dataset_options *options, struct snug_peek *peek,
                             const struct snug_columns *columns, const struct snug_chat *chat, bool assistant_only,
                             int64_t hot, const struct snug_folder *in, const char *name, XXH128_hash_t key, int *fd);

#endif
