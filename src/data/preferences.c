/* SPDX-License-Identifier: Apache-2.0 */
#include "data/preferences.h"

#include <string.h>

#include "core/min_max.h"
#include "data/chat_columns.h"
#include "data/object_rows.h"
#include "io/json.h"

bool snug_preferences_columns_find(const struct snug_column_names *list, const struct snug_peek *peek,
                                   struct snug_columns *out) {
    static const char *const names[] = {"prompt", "chosen", "rejected", "tools", "documents", "chat_template_kwargs"};
    enum { PROMPT, CHOSEN, REJECTED, TOOLS };
    size_t columns[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        columns[i] = snug_column_find(list, names[i], strlen(names[i]));
    if (columns[CHOSEN] == list->count || columns[REJECTED] == list->count) return false;
    out->chat = snug_chat_has_lists(peek, columns[CHOSEN]);
    for (size_t i = 0; i < (out->chat ? sizeof names / sizeof *names : TOOLS); i++)
        if (columns[i] < list->count) out->text[out->texts++] = columns[i];
    return true;
}

/* ---- what both kinds of rows share ------------------------------------------------------------------------------- */

/* A row: its prompt's tokens, and those of both sequences, are encoder->prompt, a and b. */
enum { CHOSEN, REJECTED, BOTH };
static const char *const completions[BOTH] = {"chosen", "rejected"};

static struct snug_ids *ids_of(struct snug_encoder *encoder, int k) { return k == CHOSEN ? &encoder->a : &encoder->b; }

static size_t common_tokens(const struct snug_ids *a, const struct snug_ids *b) {
    const size_t least = a->count < b->count ? a->count : b->count;
    size_t same = 0;
    while (same < least && a->ids[same] == b->ids[same]) same++;
    return same;
}

/* As DPOTrainer: the completions begin where the tokens of a sequence are no longer those of the prompt alone; the
   beginning of a sequence is kept; a row whose prompt alone has max_length tokens is left out. */
static snug_status put_row(snug_context *ctx, const struct snug_encoding *encoding, struct snug_encoder *encoder,
                           struct snug_encoded *out) {
    const size_t most = encoding->max_length, of_chosen = common_tokens(&encoder->prompt, &encoder->a),
                 of_rejected = common_tokens(&encoder->prompt, &encoder->b);
    const size_t prompt = (size_t)snug_min((int64_t)of_chosen, (int64_t)of_rejected);
    size_t counts[SNUG_PREFERENCE_NUMBERS] = {0};
    out->without_loss = prompt >= most;
    for (int k = 0; k < BOTH && !out->without_loss; k++) {
        const struct snug_ids *ids = ids_of(encoder, k);
        counts[k] = ids->count < most ? ids->count : most;
        out->truncated |= counts[k] < ids->count;
        for (size_t i = 0; i < counts[k]; i++) RETURN_IF_ERROR(snug_ids_append(ctx, &encoder->out, ids->ids[i]));
        counts[BOTH] = prompt;
    }
    out->across = !out->without_loss && prompt < encoder->prompt.count;
    out->same = counts[CHOSEN] && counts[CHOSEN] == counts[REJECTED] &&
                !memcmp(encoder->a.ids, encoder->b.ids, counts[CHOSEN] * sizeof *encoder->a.ids);
    out->count = out->first_count = encoder->out.count - out->ids;
    for (int k = 0; k < SNUG_PREFERENCE_NUMBERS; k++)
        RETURN_IF_ERROR(snug_ids_append(ctx, &encoder->counts, (int32_t)counts[k]));
    return SNUG_OK;
}

/* ---- texts ---- */

struct part {
    const char *text;
    size_t length;
};

static snug_status read_text(snug_context *ctx, const char *where, const json_t *row, const char *column,
                             struct part *out) {
    const json_t *value = json_object_get(row, column);
    if (!json_is_string(value))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" %s: a row needs two texts, \"chosen\" and \"rejected\"", where,
                         column, value ? "is no text, as in the first rows" : "is missing");
    *out = (struct part){json_string_value(value), json_string_length(value)};
    return SNUG_OK;
}

/* Characters with which both texts begin are the prompt, as TRL's extract_prompt(): without a space at its end, and at
   least the last character of the shorter text is of the completion. */
static struct part split_prompt(struct part parts[BOTH]) {
    const char *a = parts[CHOSEN].text, *b = parts[REJECTED].text;
    const size_t least = parts[CHOSEN].length < parts[REJECTED].length ? parts[CHOSEN].length : parts[REJECTED].length;
    size_t same = 0;
    while (same < least && a[same] == b[same]) same++;
    const bool differ = same < least;
    if (!differ && same) same--;
    while (same && ((unsigned char)a[same] & 0xc0) == 0x80) same--; /* a character's first byte */
    if (differ && same && a[same - 1] == ' ') same--;
    for (int k = 0; k < BOTH; k++) parts[k] = (struct part){parts[k].text + same, parts[k].length - same};
    return (struct part){a, same};
}

/* The tokens of the prompt, a completion, and of the end, unless the completion ends with it. */
static snug_status encode_text(snug_context *ctx, const struct snug_encoding *encoding, struct part prompt,
                               struct part completion, const char *end, struct snug_encoder *encoder,
                               struct snug_ids *out) {
    const size_t most = encoding->max_length + 1, size = strlen(end);
    const bool ends = completion.length >= size && !memcmp(completion.text + completion.length - size, end, size);
    const struct part parts[] = {prompt, completion, {end, ends ? 0 : size}};
    size_t length = 0;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->text, &encoder->text_capacity,
                              prompt.length + completion.length + size + 1, 1));
    for (size_t i = 0; i < 3; length += parts[i++].length)
        memcpy(encoder->text + length, parts[i].text, parts[i].length);
    encoder->word_of.count = out->count = 0;
    RETURN_IF_ERROR(
        snug_tokenizer_encode_begin(ctx, encoding->tokenizer, encoder->text, length, most, &encoder->word_of));
    return snug_tokenizer_assemble_once(ctx, encoding->tokenizer, &encoder->word_of, false, out);
}

static snug_status encode_texts(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                const json_t *row, struct snug_encoder *encoder, struct snug_encoded *out) {
    const json_t *given = json_object_get(row, "prompt");
    struct part parts[BOTH], prompt = {"", 0};
    for (int k = 0; k < BOTH; k++) RETURN_IF_ERROR(read_text(ctx, where, row, completions[k], &parts[k]));
    if (given) RETURN_IF_ERROR(read_text(ctx, where, row, "prompt", &prompt));
    if (!given) prompt = split_prompt(parts);
    for (int k = 0; k < BOTH; k++)
        RETURN_IF_ERROR(encode_text(ctx, encoding, prompt, parts[k], encoding->end ? encoding->end : "", encoder,
                                    ids_of(encoder, k)));
    RETURN_IF_ERROR(encode_text(ctx, encoding, prompt, (struct part){"", 0}, "", encoder, &encoder->prompt));
    return put_row(ctx, encoding, encoder, out);
}

/* ---- chats ---- */

/* A list of messages, also as its JSON text. */
static snug_status read_list(snug_context *ctx, const char *where, const json_t *row, const char *column,
                             json_t **out) {
    json_t *value = json_object_get(row, column);
    json_error_t error;
    *out = json_is_string(value) && *json_string_value(value) == '['
               ? snug_json_parse(json_string_value(value), json_string_length(value), 0, &error)
               : json_incref(value);
    if (json_is_array(*out) && json_array_size(*out)) return SNUG_OK;
    json_decref(*out);
    *out = NULL;
    return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" %s: it must be a list of messages, {\"role\": …, \"content\": …}",
                     where, column, value ? "has none" : "is missing");
}

/* Messages with which both lists begin are the prompt; at least the last one of the shorter list is not. */
static json_t *split_messages(json_t *lists[BOTH]) {
    const size_t sizes[] = {json_array_size(lists[CHOSEN]), json_array_size(lists[REJECTED])};
    const size_t least = sizes[CHOSEN] < sizes[REJECTED] ? sizes[CHOSEN] : sizes[REJECTED];
    size_t same = 0;
    json_t *prompt = json_array();
    while (same + 1 < least && json_equal(json_array_get(lists[CHOSEN], same), json_array_get(lists[REJECTED], same)))
        snug_json_append(&prompt, json_incref(json_array_get(lists[CHOSEN], same++)));
    for (int k = 0; k < BOTH; k++)
        for (size_t i = 0; i < same; i++) json_array_remove(lists[k], 0);
    return prompt;
}

/* The row with one completion, as data/chat.h reads it. */
static snug_status read_chat(snug_context *ctx, const char *where, const json_t *row, json_t *prompt,
                             json_t *completion, struct snug_chat_row *out) {
    json_t *one = json_copy((json_t *)(uintptr_t)row);
    *out = (struct snug_chat_row){0};
    for (int k = 0; k < BOTH; k++) json_object_del(one, completions[k]);
    snug_json_add(&one, "prompt", json_incref(prompt));
    snug_json_add(&one, "completion", json_incref(completion));
    if (!one) return snug_fail(ctx, SNUG_E_MEMORY, "%s: out of memory while reading a chat", where);
    const snug_status status = snug_chat_row_read(ctx, where, one, out);
    json_decref(one);
    return status;
}

static snug_status tokenize_chat(snug_context *ctx, const struct snug_encoding *encoding, snug_status rendered,
                                 struct snug_chat_text *text, struct snug_ids *out) {
    out->count = 0;
    RETURN_IF_ERROR(rendered);
    const snug_status status = snug_tokenizer_encode(ctx, encoding->tokenizer, text->text, text->length, out);
    snug_chat_text_free(text);
    return status;
}

static snug_status encode_chat(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                               const struct snug_chat_row *row, int k, struct snug_encoder *encoder) {
    struct snug_chat_text text;
    RETURN_IF_ERROR(tokenize_chat(ctx, encoding, snug_chat_render(ctx, encoding->chat, where, row, &text), &text,
                                  ids_of(encoder, k)));
    if (k != CHOSEN) return SNUG_OK;
    return tokenize_chat(ctx, encoding, snug_chat_render_prompt(ctx, encoding->chat, where, row, &text), &text,
                         &encoder->prompt);
}

static snug_status encode_lists(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                const json_t *row, json_t *prompt, json_t *lists[BOTH], struct snug_encoder *encoder,
                                struct snug_encoded *out) {
    if (!json_array_size(prompt))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: \"chosen\" and \"rejected\" begin with different messages, and there is no \"prompt\"",
                         where);
    for (int k = 0; k < BOTH; k++) {
        struct snug_chat_row chat;
        RETURN_IF_ERROR(read_chat(ctx, where, row, prompt, lists[k], &chat));
        out->other_roles |= chat.other_roles;
        const snug_status status = encode_chat(ctx, encoding, where, &chat, k, encoder);
        snug_chat_row_free(&chat);
        RETURN_IF_ERROR(status);
    }
    return put_row(ctx, encoding, encoder, out);
}

static snug_status encode_chats(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                const json_t *row, struct snug_encoder *encoder, struct snug_encoded *out) {
    json_t *lists[BOTH] = {NULL}, *prompt = NULL;
    const bool given = json_object_get(row, "prompt") != NULL;
    snug_status status = SNUG_OK;
    for (int k = 0; k < BOTH && status == SNUG_OK; k++) status = read_list(ctx, where, row, completions[k], &lists[k]);
    if (given && status == SNUG_OK) status = read_list(ctx, where, row, "prompt", &prompt);
    if (!given && status == SNUG_OK) prompt = split_messages(lists);
    if (status == SNUG_OK) status = encode_lists(ctx, encoding, where, row, prompt, lists, encoder, out);
    json_decref(prompt);
    for (int k = 0; k < BOTH; k++) json_decref(lists[k]);
    return status;
}

snug_status snug_encode_preference(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                   const char *text, size_t length, struct snug_encoder *encoder,
                                   struct snug_encoded *out) {
    json_t *row;
    RETURN_IF_ERROR(snug_object_begin(ctx, where, text, length, encoder, out, &row));
    const snug_status status = (encoding->chat ? encode_chats : encode_texts)(ctx, encoding, where, row, encoder, out);
    json_decref(row);
    return status;
}
