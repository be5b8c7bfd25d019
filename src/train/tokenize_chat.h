/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SNUG_TRAIN_TOKENIZE_CHAT_H
#define SNUG_TRAIN_TOKENIZE_CHAT_H

#include "args/args.h"
#include "tokenizer/tokenizer.h"

/* The chats of a file as snug_tokenize() gives them with --chat, at most `most` of them (-1: all). */
snug_status snug_tokenize_chats(snug_context *ctx, const snug_args *args, const struct snug_tokenizer *tokenizer,
                                const char *path, int64_t most,
                                snug_status (*on_row)(void *user, const snug_tokenized *row), void *user);

#endif
