/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chats: rows of messages become text by a model's chat template, as transformers' apply_chat_template() makes it, and
 * the parts of the text that the assistant says are found, which alone have a loss with --assistant_only_loss.
 */
#ifndef SNUG_DATA_CHAT_H
#define SNUG_DATA_CHAT_H

#include <jansson.h>

#include "jinja/jinja.h"
#include "tokenizer/tokenizer.h"

/* ---- rows ---- */

/* What a row's chat is made of. Zero-initialise; snug_chat_row_free. */
struct snug_chat_row {
    json_t *messages;  /* owned: a list of objects */
    size_t prompt;     /* so many of them are a prompt, which the others complete; 0: there is none */
    json_t *tools;     /* owned: a list; NULL: none */
    json_t *documents; /* owned: a list; NULL: none */
    json_t *arguments; /* owned: chat_template_kwargs, variables of the template; NULL: none */
    bool other_roles;  /* ShareGPT's "human" or "gpt" are among the roles, which reach the template as they are */
};

/* Whether a row (an object) holds a chat: "messages"; "conversations" of ShareGPT; "instruction" and "output" of
   Alpaca. */
bool snug_chat_is_row(const json_t *row);
/*
 * Reads a row. where is for messages: "train.jsonl:7". SNUG_E_INPUT names it and the column.
 * - "prompt" and "completion", if both are lists of messages;
 * - or else "messages", or else "conversations", whose keys "from" and "value" become "role" and "content";
 * - or else "instruction", followed by "input" on a new line, as the user's message, and "output" as the assistant's,
 *   after "system" and the pairs of "history", if there are any;
 * - "tools", "documents" and "chat_template_kwargs".
 * Lists and objects may be JSON texts.
 * As in transformers, members that are null are left out of messages, and reasoning is passed by the names
 * "reasoning_content" and "thinking".
 */
snug_status snug_chat_row_read(snug_context *ctx, const char *where, const json_t *row, struct snug_chat_row *out);
void snug_chat_row_free(struct snug_chat_row *row);

#define SNUG_CHAT_OTHER_ROLES                                                                                          \
    "the roles \"human\" and \"gpt\" reach the chat template as they are; most know \"user\" and \"assistant\", and "  \
    "only what the assistant says is marked"

/* ---- templates ---- */

/* Receives a template: length bytes of text of the file `path`, for rows with tools or for all others. */
typedef snug_status snug_template_sink(void *user, const char *path, const char *text, size_t length, bool of_tools);
/* The templates of the tokenizer's folder, in the order of snug_chat_open(). *found: one that is not of tools. */
snug_status snug_chat_find(snug_context *ctx, const struct snug_tokenizer *tokenizer, snug_template_sink *sink,
                           void *user, bool *found);

/* A model's chat template. It does not change, and may be used from several threads. */
struct snug_chat;

/*
 * The template of the file `path`, or if that is NULL, of the tokenizer's folder: chat_template.jinja, or else
 * "chat_template" of tokenizer_config.json, or else of chat_template.json; of several by name "tool_use" for rows with
 * tools, and else "default". SNUG_E_INPUT if there is none. date: "2026-11-27", or with a time, "2026-11-27T08:30:00":
 * what strftime_now shows; NULL: today, at midnight. The tokenizer must outlive the chat.
 */
snug_status snug_chat_open(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *path,
                           const char *date, struct snug_chat **out);
void snug_chat_close(struct snug_chat *chat);
/* The date in that form, if a template asks for it; NULL if none does. */
const char *snug_chat_date(const struct snug_chat *chat);
/* Changes whenever a row's text could change: for keys of caches. */
uint64_t snug_chat_fingerprint(const struct snug_chat *chat);

struct snug_chat_text {
    char *text; /* NUL-terminated UTF-8, without special tokens beyond those that the template writes */
    size_t length;
    struct snug_jinja_span *spans; /* of the assistant, in bytes, ascending and apart from each other */
    size_t span_count;
};

/* The row's text. No spans. */
snug_status snug_chat_render(snug_context *ctx, const struct snug_chat *chat, const char *where,
                             const struct snug_chat_row *row, struct snug_chat_text *out);
/* The text of its prompt, with the beginning of an assistant's message (add_generation_prompt). */
snug_status snug_chat_render_prompt(snug_context *ctx, const struct snug_chat *chat, const char *where,
                                    const struct snug_chat_row *row, struct snug_chat_text *out);
/*
 * The row's text and what the assistant says in it, up to and including the end of its turn. Where the template marks
 * it by {% generation %}, that is it, as in transformers. Otherwise the text is compared with those of the row's first
 * messages (chat_spans.c). SNUG_E_INPUT, with the reason, if the template renders them too differently.
 */
snug_status snug_chat_spans(snug_context *ctx, const struct snug_chat *chat, const char *where,
                            const struct snug_chat_row *row, struct snug_chat_text *out);
void snug_chat_text_free(struct snug_chat_text *text);

/* Appends the text's tokens, without the tokenizer's special tokens around it, and for each of them to has_loss whether
   it is 1: a token of which a byte is in one of the spans, as in transformers. part: memory that is reused. */
snug_status snug_chat_tokens(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_chat_text *text, struct snug_ids *part, struct snug_ids *ids,
                             struct snug_ids *has_loss);

#endif
