/* SPDX-License-Identifier: Apache-2.0 */
/* Chats as the model sees them: text, tokens, and which of them the assistant says. */
#include "train/tokenize_chat.h"

#include <stdlib.h>

#include "data/chat.h"
#include "data/chat_file.h"

struct chatting {
    snug_context *ctx;
    const struct snug_tokenizer *tokenizer;
    struct snug_chat *chat;
    struct snug_chat_file *file;
    struct snug_ids part, ids, has_loss;
    int32_t *types; /* 0 */
    const char **tokens;
    size_t types_capacity, tokens_capacity;
    bool warned;
};

static void warn_of_roles(struct chatting *c, const char *where) {
    snug_log(c->ctx, SNUG_LOG_WARNING, "%s: " SNUG_CHAT_OTHER_ROLES, where);
    c->warned = true;
}

static snug_status tokenize_text(struct chatting *c, const struct snug_chat_text *text, int64_t index,
                                 snug_tokenized *out) {
    c->ids.count = c->has_loss.count = 0;
    RETURN_IF_ERROR(snug_chat_tokens(c->ctx, c->tokenizer, text, &c->part, &c->ids, &c->has_loss));
    const size_t count = c->ids.count;
    RETURN_IF_ERROR(snug_grow(c->ctx, (void **)&c->types, &c->types_capacity, count, sizeof *c->types));
    RETURN_IF_ERROR(snug_grow(c->ctx, (void **)&c->tokens, &c->tokens_capacity, count, sizeof *c->tokens));
    for (size_t i = 0; i < count; i++) {
        c->types[i] = 0;
        c->tokens[i] = snug_tokenizer_token(c->tokenizer, c->ids.ids[i]);
    }
    *out = (snug_tokenized){.index = index,
                            .count = count,
                            .input_ids = c->ids.ids,
                            .token_type_ids = c->types,
                            .tokens = c->tokens,
                            .text = text->text,
                            .has_loss = c->has_loss.ids};
    return SNUG_OK;
}

static snug_status tokenize_row(struct chatting *c, const char *where, const json_t *json, int64_t index,
                                snug_status (*on_row)(void *user, const snug_tokenized *row), void *user) {
    struct snug_chat_row row;
    struct snug_chat_text text;
    snug_tokenized out;
    RETURN_IF_ERROR(snug_chat_row_read(c->ctx, where, json, &row));
    if (row.other_roles && !c->warned) warn_of_roles(c, where);
    snug_status status = snug_chat_spans(c->ctx, c->chat, where, &row, &text);
    if (status == SNUG_OK) status = tokenize_text(c, &text, index, &out);
    if (status == SNUG_OK) status = on_row(user, &out);
    snug_chat_text_free(&text);
    snug_chat_row_free(&row);
    return status;
}

static snug_status tokenize(struct chatting *c, int64_t most,
                            snug_status (*on_row)(void *user, const snug_tokenized *row), void *user) {
    const char *where;
    json_t *json;
    if (snug_chat_date(c->chat))
        snug_log(c->ctx, SNUG_LOG_INFO, "the chat template shows a date: %s (--chat_template_date)",
                 snug_chat_date(c->chat));
    for (int64_t index = 0; most < 0 || index < most; index++) {
        RETURN_IF_ERROR(snug_chat_file_next(c->file, &json, &where));
        const snug_status status = tokenize_row(c, where, json, index, on_row, user);
        json_decref(json);
        RETURN_IF_ERROR(status);
    }
    return SNUG_END;
}

snug_status snug_tokenize_chats(snug_context *ctx, const snug_args *args, const struct snug_tokenizer *tokenizer,
                                const char *path, int64_t most,
                                snug_status (*on_row)(void *user, const snug_tokenized *row), void *user) {
    struct chatting c = {.ctx = ctx, .tokenizer = tokenizer};
    snug_status status = snug_chat_open(ctx, tokenizer, args->chat_template_path, args->chat_template_date, &c.chat);
    if (status == SNUG_OK) status = snug_chat_file_open(ctx, path, &c.file);
    if (status == SNUG_OK) status = tokenize(&c, most, on_row, user);
    snug_chat_file_close(c.file);
    snug_chat_close(c.chat);
    free(c.part.ids);
    free(c.ids.ids);
    free(c.has_loss.ids);
    free(c.types);
    free(c.tokens);
    return status == SNUG_END ? SNUG_OK : status;
}
