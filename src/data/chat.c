/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "data/chat_impl.h"
#include "io/json.h"
#include "tokenizer/tokenizer_parts.h"

/* ---- the date ---- */

/* Digits of a number of this length, in a range. */
static bool read_digits(const char *text, size_t length, int least, int most, int *out) {
    *out = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *out = *out * 10 + (text[i] - '0');
    }
    return *out >= least && *out <= most;
}

static bool read_date(const char *text, struct tm *out) {
    const size_t length = strlen(text);
    *out = (struct tm){.tm_isdst = 0};
    if (length != 10 && length != 19) return false;
    if (!read_digits(text, 4, 1900, 9999, &out->tm_year) || !read_digits(text + 5, 2, 1, 12, &out->tm_mon) ||
        !read_digits(text + 8, 2, 1, 31, &out->tm_mday) || text[4] != '-' || text[7] != '-')
        return false;
    if (length == 19 &&
        (!read_digits(text + 11, 2, 0, 23, &out->tm_hour) || !read_digits(text + 14, 2, 0, 59, &out->tm_min) ||
         !read_digits(text + 17, 2, 0, 59, &out->tm_sec) || text[10] != 'T' || text[13] != ':' || text[16] != ':'))
        return false;
    out->tm_year -= 1900;
    out->tm_mon--;
    const int day = out->tm_mday;
    timegm(out); /* which also sets the day of the week, and moves 30 February to March */
    return out->tm_mday == day;
}

static snug_status choose_date(snug_context *ctx, const char *date, struct snug_chat *chat) {
    if (date && !read_date(date, &chat->now))
        return snug_fail(ctx, SNUG_E_USAGE,
                         "--chat_template_date %s: must be a date, 2026-11-27, or a time, 2026-11-27T08:30:00", date);
    if (!date) {
        const time_t now = time(NULL);
        if (!localtime_r(&now, &chat->now)) return snug_fail(ctx, SNUG_E_INTERNAL, "the local time is unknown");
        chat->now.tm_hour = chat->now.tm_min = chat->now.tm_sec = 0; /* tokens of the same day come from the cache */
    }
    strftime(chat->date, sizeof chat->date, "%Y-%m-%dT%H:%M:%S", &chat->now);
    return SNUG_OK;
}

/* ---- templates ---- */

/* Finds the templates of a tokenizer's files. */
struct finding {
    snug_context *ctx;
    const struct snug_tokenizer *tokenizer;
    snug_template_sink *sink;
    void *user;
    bool found; /* one that is not of tools */
};

static snug_status find_text(struct finding *f, const char *path, const char *text, size_t length, bool of_tools) {
    f->found |= !of_tools;
    return f->sink(f->user, path, text, length, of_tools);
}

/* "chat_template" of a JSON file: a text, or a list of {"name", "template"}, or an object of templates by name. */
static snug_status find_member(struct finding *f, const char *path, const json_t *value) {
    static const char *const names[] = {"default", "tool_use"};
    if (json_is_string(value)) return find_text(f, path, json_string_value(value), json_string_length(value), false);
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = json_object_get(value, names[i]);
        for (size_t k = 0; k < json_array_size(value); k++) {
            const json_t *one = json_array_get(value, k);
            const char *name = json_string_value(json_object_get(one, "name"));
            if (name && !strcmp(name, names[i])) text = json_object_get(one, "template");
        }
        if (json_is_string(text))
            RETURN_IF_ERROR(find_text(f, path, json_string_value(text), json_string_length(text), i));
    }
    if (f->found) return SNUG_OK;
    return snug_fail(f->ctx, SNUG_E_INPUT,
                     "%s: \"chat_template\" must be a text, or a list of templates of which one is named \"default\"; "
                     "choose a file with --chat_template_path",
                     path);
}

static snug_status find_json(struct finding *f, enum snug_tokenizer_file file) {
    const char *path;
    size_t size;
    const char *text = snug_tokenizer_content(f->tokenizer, file, &path, &size);
    json_t *json;
    if (!text) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_read_text(f->ctx, path, text, size, &json));
    const json_t *value = json_object_get(json, "chat_template");
    const snug_status status = value && !json_is_null(value) ? find_member(f, path, value) : SNUG_OK;
    json_decref(json);
    return status;
}

snug_status snug_chat_find(snug_context *ctx, const struct snug_tokenizer *tokenizer, snug_template_sink *sink,
                           void *user, bool *found) {
    struct finding f = {.ctx = ctx, .tokenizer = tokenizer, .sink = sink, .user = user};
    const char *path;
    size_t size;
    const char *text = snug_tokenizer_content(tokenizer, SNUG_TOKENIZER_CHAT_TEMPLATE, &path, &size);
    snug_status status = text ? find_text(&f, path, text, size, false) : find_json(&f, SNUG_TOKENIZER_CONFIG);
    if (status == SNUG_OK && !f.found) status = find_json(&f, SNUG_TOKENIZER_CHAT_TEMPLATE_JSON);
    *found = f.found;
    return status;
}

struct parsing {
    snug_context *ctx;
    struct snug_chat *chat;
};

static snug_status parse(void *user, const char *path, const char *text, size_t length, bool of_tools) {
    const struct parsing *p = user;
    struct snug_chat *chat = p->chat;
    chat->fingerprint = XXH3_64bits_withSeed(text, length, chat->fingerprint + 1 + of_tools);
    return snug_jinja_parse(p->ctx, path, text, length, of_tools ? &chat->of_tools : &chat->template);
}

static snug_status parse_any(snug_context *ctx, struct snug_chat *chat, const char *path) {
    struct parsing p = {ctx, chat};
    size_t size;
    bool found;
    if (path) {
        char *text;
        RETURN_IF_ERROR(snug_file_read(ctx, NULL, path, &text, &size));
        const snug_status status = parse(&p, path, text, size, false);
        free(text);
        return status;
    }
    RETURN_IF_ERROR(snug_chat_find(ctx, chat->tokenizer, parse, &p, &found));
    if (found) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "the tokenizer has no chat template: neither chat_template.jinja, nor \"chat_template\" in "
                     "tokenizer_config.json; give one with --chat_template_path");
}

static bool has_date(const struct snug_chat *chat) {
    return snug_jinja_has_date(chat->template) || (chat->of_tools && snug_jinja_has_date(chat->of_tools));
}

/* The names of special tokens are variables, and part of the fingerprint. */
static snug_status hash_tokens(snug_context *ctx, struct snug_chat *chat) {
    char *text;
    RETURN_IF_ERROR(snug_json_text(ctx, snug_tokenizer_named(chat->tokenizer), JSON_SORT_KEYS, &text));
    chat->fingerprint = XXH3_64bits_withSeed(text, strlen(text), chat->fingerprint);
    free(text);
    if (has_date(chat)) chat->fingerprint = XXH3_64bits_withSeed(chat->date, strlen(chat->date), chat->fingerprint);
    return SNUG_OK;
}

snug_status snug_chat_open(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *path,
                           const char *date, struct snug_chat **out) {
    struct snug_chat *chat;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *chat, (void **)&chat));
    chat->tokenizer = tokenizer;
    snug_status status = choose_date(ctx, date, chat);
    if (status == SNUG_OK) status = parse_any(ctx, chat, path);
    if (status == SNUG_OK) status = hash_tokens(ctx, chat);
    if (status == SNUG_OK)
        *out = chat;
    else
        snug_chat_close(chat);
    return status;
}

void snug_chat_close(struct snug_chat *chat) {
    if (!chat) return;
    snug_jinja_free(chat->template);
    snug_jinja_free(chat->of_tools);
    free(chat);
}

const char *snug_chat_date(const struct snug_chat *chat) { return has_date(chat) ? chat->date : NULL; }

uint64_t snug_chat_fingerprint(const struct snug_chat *chat) { return chat->fingerprint; }

/* ---- text ---- */

snug_status snug_chat_render_messages(snug_context *ctx, const struct snug_chat *chat, const struct snug_chat_row *row,
                                      json_t *messages, bool prompt, bool quiet, struct snug_jinja_output *out) {
    json_t *base = json_pack("{s:O,s:O?,s:O?,s:b}", "messages", messages, "tools", row->tools, "documents",
                             row->documents, "add_generation_prompt", (int)prompt);
    const json_t *variables[] = {base, row->arguments, snug_tokenizer_named(chat->tokenizer)};
    *out = (struct snug_jinja_output){0};
    if (!base) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while rendering a chat");
    if (!row->arguments) variables[1] = variables[2];
    const struct snug_jinja_input input = {
        .variables = variables, .count = row->arguments ? 3 : 2, .now = chat->now, .quiet = quiet};
    const snug_status status = snug_jinja_render(ctx, snug_chat_template(chat, row), &input, out);
    json_decref(base);
    return status;
}

static snug_status render(snug_context *ctx, const struct snug_chat *chat, const char *where,
                          const struct snug_chat_row *row, json_t *messages, bool prompt, struct snug_chat_text *out) {
    struct snug_jinja_output rendered;
    *out = (struct snug_chat_text){0};
    const snug_status status = snug_chat_render_messages(ctx, chat, row, messages, prompt, false, &rendered);
    if (status != SNUG_OK) return snug_add_to_error(ctx, status, " (the chat of %s)", where);
    free(rendered.spans);
    *out = (struct snug_chat_text){.text = rendered.text, .length = rendered.length};
    return SNUG_OK;
}

snug_status snug_chat_render(snug_context *ctx, const struct snug_chat *chat, const char *where,
                             const struct snug_chat_row *row, struct snug_chat_text *out) {
    return render(ctx, chat, where, row, row->messages, false, out);
}

snug_status snug_chat_render_prompt(snug_context *ctx, const struct snug_chat *chat, const char *where,
                                    const struct snug_chat_row *row, struct snug_chat_text *out) {
    json_t *messages = json_array();
    for (size_t i = 0; i < row->prompt; i++) snug_json_append(&messages, json_incref(json_array_get(row->messages, i)));
    *out = (struct snug_chat_text){0};
    if (!messages) return snug_fail(ctx, SNUG_E_MEMORY, "%s: out of memory while rendering a chat", where);
    const snug_status status = render(ctx, chat, where, row, messages, true, out);
    json_decref(messages);
    return status;
}

void snug_chat_text_free(struct snug_chat_text *text) {
    free(text->text);
    free(text->spans);
    *text = (struct snug_chat_text){0};
}
