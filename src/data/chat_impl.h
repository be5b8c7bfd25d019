/* SPDX-License-Identifier: Apache-2.0 */
/* What chat.c and chat_spans.c share. */
#ifndef SNUG_DATA_CHAT_IMPL_H
#define SNUG_DATA_CHAT_IMPL_H

#include "data/chat.h"

struct snug_chat {
    const struct snug_tokenizer *tokenizer;
    struct snug_jinja_template *template, *of_tools; /* of_tools: NULL: the same */
    struct tm now;
    char date[32];
    uint64_t fingerprint;
};

static inline const struct snug_jinja_template *snug_chat_template(const struct snug_chat *chat,
                                                                   const struct snug_chat_row *row) {
    return row->tools && chat->of_tools ? chat->of_tools : chat->template;
}

/* The text of these messages (a list) with the row's other variables. quiet: an error of the template has no message.
 */
snug_status snug_chat_render_messages(snug_context *ctx, const struct snug_chat *chat, const struct snug_chat_row *row,
                                      json_t *messages, bool prompt, bool quiet, struct snug_jinja_output *out);

#endif
