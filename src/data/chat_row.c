/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of chats in the layouts in which they are published. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat.h"
#include "io/json.h"

bool snug_chat_is_row(const json_t *row) {
    return json_is_array(json_object_get(row, "messages")) || json_is_array(json_object_get(row, "conversations")) ||
           (json_is_string(json_object_get(row, "instruction")) && json_is_string(json_object_get(row, "output")));
}

/* ---- columns of JSON ---- */

/* A column that may be the JSON text of its value; NULL if it is absent or null. */
static snug_status read_json(snug_context *ctx, const char *where, const json_t *row, const char *column, bool list,
                             json_t **out) {
    json_t *value = json_object_get(row, column);
    json_error_t error;
    *out = NULL;
    if (json_is_string(value)) {
        *out = snug_json_parse(json_string_value(value), json_string_length(value), JSON_DECODE_ANY, &error);
        if (!*out)
            return snug_fail(ctx, snug_json_status(&error), "%s: \"%s\" is not valid JSON: %s", where, column,
                             error.text);
    } else {
        *out = json_incref(value);
    }
    if (*out && (list ? json_is_array(*out) : json_is_object(*out))) return SNUG_OK;
    const bool none = !*out || json_is_null(*out);
    json_decref(*out);
    *out = NULL;
    if (none) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" must be %s, or its JSON as a text", where, column,
                     list ? "a list of objects" : "an object");
}

/* ---- messages ---- */

/* The first of the names of reasoning that has a value becomes the first two, as transformers passes it. */
static void add_reasoning(json_t **message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL;
    for (size_t i = 0; !reasoning && i < 3; i++) reasoning = json_object_get(*message, names[i]);
    if (!reasoning) return;
    json_incref(reasoning);
    for (size_t i = 0; i < 2; i++)
        if (i == 0 || !json_object_get(*message, names[i])) snug_json_add(message, names[i], json_incref(reasoning));
    json_decref(reasoning);
}

/* A copy of a message without members that are null; shared: whether its keys are ShareGPT's. */
static json_t *copy_message(const json_t *message, bool shared) {
    json_t *copy = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        const char *name = shared && !strcmp(key, "from") ? "role" : shared && !strcmp(key, "value") ? "content" : key;
        if (!json_is_null(value)) snug_json_add(&copy, name, json_incref(value));
    }
    add_reasoning(&copy);
    return copy;
}

static bool is_other_role(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && (!strcmp(role, "human") || !strcmp(role, "gpt"));
}

static snug_status read_messages(snug_context *ctx, const char *where, const char *column, const json_t *list,
                                 bool shared, struct snug_chat_row *out) {
    if (!out->messages) out->messages = json_array(); /* else a prompt is there */
    if (!json_is_array(list))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" must be a list of messages, {\"role\": …, \"content\": …}",
                         where, column);
    if (!json_array_size(list)) return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" has no message", where, column);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *message = json_array_get(list, i);
        if (!json_is_object(message))
            return snug_fail(ctx, SNUG_E_INPUT, "%s: message %zu of \"%s\" must be an object with \"%s\" and \"%s\"",
                             where, i + 1, column, shared ? "from" : "role", shared ? "value" : "content");
        json_t *copy = copy_message(message, shared);
        out->other_roles |= is_other_role(copy);
        snug_json_append(&out->messages, copy);
    }
    return out->messages ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "%s: out of memory while reading a chat", where);
}

/* A list of messages, or the JSON text of one. */
static snug_status read_list(snug_context *ctx, const char *where, const json_t *row, const char *column, bool shared,
                             struct snug_chat_row *out) {
    const json_t *value = json_object_get(row, column);
    json_t *list = NULL;
    if (json_is_string(value) && *json_string_value(value) == '[')
        RETURN_IF_ERROR(read_json(ctx, where, row, column, true, &list));
    const snug_status status = read_messages(ctx, where, column, list ? list : value, shared, out);
    json_decref(list);
    return status;
}

static bool is_list(const json_t *row, const char *column) {
    const json_t *value = json_object_get(row, column);
    return json_is_array(value) || (json_is_string(value) && *json_string_value(value) == '[');
}

static snug_status read_prompt(snug_context *ctx, const char *where, const json_t *row, struct snug_chat_row *out) {
    RETURN_IF_ERROR(read_list(ctx, where, row, "prompt", false, out));
    out->prompt = json_array_size(out->messages);
    return read_list(ctx, where, row, "completion", false, out);
}

/* ---- Alpaca ---- */

static void add_message(json_t **messages, const char *role, const char *content) {
    snug_json_append(messages, json_pack("{s:s,s:s}", "role", role, "content", content));
}

/* The text of a column: "" if it is absent or null. */
static snug_status text_of(snug_context *ctx, const char *where, const json_t *row, const char *column,
                           const char **out) {
    return snug_json_string(ctx, where, row, column, "", out);
}

/* [["question", "answer"], …], before the row's own. */
static snug_status add_pairs(snug_context *ctx, const char *where, const json_t *history, json_t **messages) {
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *pair = json_array_get(history, i);
        const char *question = json_string_value(json_array_get(pair, 0)),
                   *answer = json_string_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || !question || !answer)
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: \"history\" must be a list of pairs, [[\"question\", \"answer\"], …]", where);
        add_message(messages, "user", question);
        add_message(messages, "assistant", answer);
    }
    return SNUG_OK;
}

static snug_status add_history(snug_context *ctx, const char *where, const json_t *row, json_t **messages) {
    json_t *history;
    RETURN_IF_ERROR(read_json(ctx, where, row, "history", true, &history));
    const snug_status status = add_pairs(ctx, where, history, messages);
    json_decref(history);
    return status;
}

static snug_status read_alpaca(snug_context *ctx, const char *where, const json_t *row, struct snug_chat_row *out) {
    const char *instruction, *input, *output, *system;
    char *question;
    RETURN_IF_ERROR(text_of(ctx, where, row, "instruction", &instruction));
    RETURN_IF_ERROR(text_of(ctx, where, row, "input", &input));
    RETURN_IF_ERROR(text_of(ctx, where, row, "output", &output));
    RETURN_IF_ERROR(text_of(ctx, where, row, "system", &system));
    RETURN_IF_ERROR(snug_format(ctx, &question, "%s%s%s", instruction, *input ? "\n" : "", input));
    out->messages = json_array();
    if (*system) add_message(&out->messages, "system", system);
    const snug_status status = add_history(ctx, where, row, &out->messages);
    add_message(&out->messages, "user", question);
    add_message(&out->messages, "assistant", output);
    free(question);
    if (status != SNUG_OK) return status;
    return out->messages ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "%s: out of memory while reading a chat", where);
}

static snug_status read_row(snug_context *ctx, const char *where, const json_t *row, struct snug_chat_row *out) {
    const json_t *messages = json_object_get(row, "messages"), *shared = json_object_get(row, "conversations");
    if (is_list(row, "prompt") && is_list(row, "completion"))
        RETURN_IF_ERROR(read_prompt(ctx, where, row, out));
    else if (messages && !json_is_null(messages))
        RETURN_IF_ERROR(read_list(ctx, where, row, "messages", false, out));
    else if (shared && !json_is_null(shared))
        RETURN_IF_ERROR(read_list(ctx, where, row, "conversations", true, out));
    else if (json_object_get(row, "instruction"))
        RETURN_IF_ERROR(read_alpaca(ctx, where, row, out));
    else
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: no chat: neither \"messages\", nor \"conversations\", nor \"instruction\" and \"output\"",
                         where);
    RETURN_IF_ERROR(read_json(ctx, where, row, "tools", true, &out->tools));
    RETURN_IF_ERROR(read_json(ctx, where, row, "documents", true, &out->documents));
    return read_json(ctx, where, row, "chat_template_kwargs", false, &out->arguments);
}

snug_status snug_chat_row_read(snug_context *ctx, const char *where, const json_t *row, struct snug_chat_row *out) {
    *out = (struct snug_chat_row){0};
    const snug_status status = read_row(ctx, where, row, out);
    if (status != SNUG_OK) snug_chat_row_free(out);
    return status;
}

void snug_chat_row_free(struct snug_chat_row *row) {
    json_decref(row->messages);
    json_decref(row->tools);
    json_decref(row->documents);
    json_decref(row->arguments);
    *row = (struct snug_chat_row){0};
}
