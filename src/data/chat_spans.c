/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the assistant says in a chat's text, of a template without {% generation %}.
 *
 *   text     <system …><user …><assistant header>Hello<end><user …><assistant header>…
 *   prompt   <system …><user …><assistant header>           the messages before it, with a generation prompt
 *   first    <system …><user …><assistant header>Hello<end> the messages up to it
 *
 * Where the text begins with `prompt`, the assistant's turn begins after it; where it begins with `first`, the turn
 * ends after that. `first` may instead be rendered with a generation prompt, which is cut off: some templates end a
 * text without one in another way.
 *
 * Some templates render a message differently when others follow it (they drop reasoning), or prompt with more than
 * they write later. Then the whole chat is rendered twice more, with two names in place of the message's content (or of
 * its first tool, if it has no content) that have nothing in common: what both begin with is the text before the
 * content, and what both end with is the text after it. The same of `first` gives the end of the turn after the
 * content.
 */
#include <stdlib.h>
#include <string.h>

#include "data/chat_impl.h"
#include "io/json.h"
#include "tokenizer/tokenizer_parts.h"

struct deriving {
    snug_context *ctx;
    const struct snug_chat *chat;
    const struct snug_chat_row *row;
    const char *where;
    const char *text; /* of the whole chat */
    size_t length;
    struct snug_chat_text *out;
    size_t capacity;
};

static size_t common_prefix(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t length = 0;
    while (length < a_length && length < b_length && a[length] == b[length]) length++;
    return length;
}

static size_t common_suffix(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t length = 0;
    while (length < a_length && length < b_length && a[a_length - 1 - length] == b[b_length - 1 - length]) length++;
    return length;
}

static json_t *first_messages(const json_t *messages, size_t count) {
    json_t *out = json_array();
    for (size_t i = 0; i < count; i++) snug_json_append(&out, json_incref(json_array_get(messages, i)));
    return out;
}

/* Renders a list of messages, which is released; *found: false: the template refuses them. */
static snug_status try(struct deriving *d, json_t *messages, bool prompt, bool *found, struct snug_jinja_output *out) {
    *out = (struct snug_jinja_output){0};
    *found = false;
    if (!messages) return snug_fail(d->ctx, SNUG_E_MEMORY, "out of memory while rendering a chat");
    const snug_status status = snug_chat_render_messages(d->ctx, d->chat, d->row, messages, prompt, true, out);
    json_decref(messages);
    *found = status == SNUG_OK;
    return status == SNUG_E_INPUT ? SNUG_OK : status;
}

/* How long a rendering is if the text begins with it; 0 if it does not. */
static snug_status try_prefix(struct deriving *d, size_t count, bool prompt, size_t *length) {
    struct snug_jinja_output out;
    bool found;
    RETURN_IF_ERROR(try(d, first_messages(d->row->messages, count), prompt, &found, &out));
    *length = found && common_prefix(out.text, out.length, d->text, d->length) == out.length ? out.length : 0;
    snug_jinja_output_free(&out);
    return SNUG_OK;
}

/* ---- the text around a content ---- */

/* What a probe replaces. */
enum part { CONTENT, TOOL };

/* What is there last of a message: its tools, if it has no content. */
static enum part part_of(const json_t *message) {
    const json_t *content = json_object_get(message, "content");
    const bool calls = json_array_size(json_object_get(message, "tool_calls"));
    return calls && !json_string_length(content) && !json_array_size(content) ? TOOL : CONTENT;
}

/* The first tool call with another name; the others are shared. */
static json_t *rename_call(const json_t *calls, const char *name) {
    json_t *list = json_copy((json_t *)(uintptr_t)calls), *call = json_deep_copy(json_array_get(calls, 0));
    json_t *function = json_object_get(call, "function");
    /* Without memory the name stays, and nothing is found. */
    json_object_set_new(function ? function : call, "name", json_string(name));
    json_array_set_new(list, 0, call);
    return list;
}

/* A message with another content, or another name of its first tool, and without reasoning, which would be before it.
 */
static json_t *probe_message(const json_t *message, enum part part, const char *name) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *copy = json_copy((json_t *)(uintptr_t)message);
    for (size_t i = 0; i < 3; i++) json_object_del(copy, names[i]);
    if (part == CONTENT)
        snug_json_add(&copy, "content", json_string(name));
    else
        snug_json_add(&copy, "tool_calls", rename_call(json_object_get(message, "tool_calls"), name));
    return copy;
}

/* The first count messages, with a probe at index. */
static json_t *probe_messages(const struct deriving *d, size_t index, size_t count, enum part part, const char *name) {
    json_t *out = json_array(), *message = probe_message(json_array_get(d->row->messages, index), part, name);
    for (size_t i = 0; i < count; i++)
        snug_json_append(&out, json_incref(i == index ? message : json_array_get(d->row->messages, i)));
    json_decref(message);
    return out;
}

/* What is around the content of message index, rendered with the first count messages. */
struct around {
    bool found;
    struct snug_jinja_output text; /* with the first probe; what is before is its beginning, what is after its end */
    size_t before, after;          /* bytes */
};

static snug_status probe(struct deriving *d, size_t index, size_t count, enum part part, bool prompt,
                         struct around *out) {
    static const char one[] = "Xsnug", two[] = "probeZ";
    struct snug_jinja_output other;
    bool found;
    *out = (struct around){0};
    RETURN_IF_ERROR(try(d, probe_messages(d, index, count, part, one), prompt, &out->found, &out->text));
    const snug_status status = try(d, probe_messages(d, index, count, part, two), prompt, &found, &other);
    out->found = out->found && found;
    if (out->found) {
        out->before = common_prefix(out->text.text, out->text.length, other.text, other.length);
        out->after = common_suffix(out->text.text, out->text.length, other.text, other.length);
        /* it is there once, and as it is */
        out->found = out->before + out->after + sizeof one - 1 == out->text.length &&
                     out->before + out->after + sizeof two - 1 == other.length &&
                     memcmp(out->text.text + out->before, one, sizeof one - 1) == 0;
    }
    snug_jinja_output_free(&other);
    return status;
}

/* The bytes that a generation prompt adds after the messages before index; 0 if it changes what is before it. */
static snug_status prompt_length(struct deriving *d, size_t index, struct snug_jinja_output *with, size_t *length) {
    struct snug_jinja_output without;
    bool found, other;
    *length = 0;
    RETURN_IF_ERROR(try(d, first_messages(d->row->messages, index), true, &found, with));
    const snug_status status = try(d, first_messages(d->row->messages, index), false, &other, &without);
    if (status == SNUG_OK && found && other &&
        common_prefix(with->text, with->length, without.text, without.length) == without.length)
        *length = with->length - without.length;
    snug_jinja_output_free(&without);
    return status;
}

/* The length of a text without the generation prompt at its end, which is the end of `prompt`; 0 if that is not there.
 */
static size_t without_prompt(const struct snug_jinja_output *text, const struct snug_jinja_output *prompt,
                             size_t length) {
    if (!length || length > text->length) return 0;
    return memcmp(text->text + text->length - length, prompt->text + prompt->length - length, length) == 0
               ? text->length - length
               : 0;
}

/* The length of a common beginning without a part of an added token, of which `text` has the rest. */
static size_t without_part(const struct snug_tokenizer *tokenizer, const char *text, size_t text_length,
                           size_t length) {
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const char *token = tokenizer->added.items[i].content;
        const size_t size = strlen(token);
        for (size_t begin = length > size ? length - size + 1 : 0; begin < length; begin++)
            if (begin + size <= text_length && begin + size > length && memcmp(text + begin, token, size) == 0)
                return begin;
    }
    return length;
}

/* How much of `after`, which ends a turn at the end of a text, also ends it here. */
static size_t shared_end(const struct deriving *d, size_t content, const char *after, size_t after_length) {
    const char *rest = d->text + content;
    const size_t rest_length = d->length - content, length = common_prefix(after, after_length, rest, rest_length);
    const size_t in_rest = without_part(d->chat->tokenizer, rest, rest_length, length),
                 in_after = without_part(d->chat->tokenizer, after, after_length, length);
    return in_rest < in_after ? in_rest : in_after;
}

/* The end of the turn whose content ends at `content`: with what follows the content where it is the last message,
   before a generation prompt or not. Where neither is here, a part of it may be: whole added tokens. */
static snug_status find_end(struct deriving *d, size_t index, enum part part, size_t content, size_t *end) {
    struct snug_jinja_output prompt;
    size_t length, shared = 0;
    snug_status status = prompt_length(d, index, &prompt, &length);
    for (int with_prompt = 1; status == SNUG_OK && !*end && with_prompt >= 0; with_prompt--) {
        struct around alone;
        status = probe(d, index, index + 1, part, with_prompt, &alone);
        const size_t text = with_prompt ? without_prompt(&alone.text, &prompt, length) : alone.text.length;
        const size_t begin = alone.text.length - alone.after;
        if (status == SNUG_OK && alone.found && text >= begin) {
            if (common_prefix(alone.text.text + begin, text - begin, d->text + content, d->length - content) ==
                text - begin)
                *end = content + (text - begin);
            shared = shared_end(d, content, alone.text.text + begin, text - begin);
        }
        snug_jinja_output_free(&alone.text);
    }
    if (!*end && shared) *end = content + shared;
    snug_jinja_output_free(&prompt);
    return status;
}

/* The end of message index by the text of the messages up to it with a generation prompt, which is cut off. */
static snug_status try_prompted(struct deriving *d, size_t index, size_t *end) {
    struct snug_jinja_output prompt, first = {0};
    size_t length;
    bool found = false;
    snug_status status = prompt_length(d, index, &prompt, &length);
    if (status == SNUG_OK && length) status = try(d, first_messages(d->row->messages, index + 1), true, &found, &first);
    const size_t text = found ? without_prompt(&first, &prompt, length) : 0;
    *end = text && common_prefix(first.text, text, d->text, d->length) == text ? text : 0;
    snug_jinja_output_free(&first);
    snug_jinja_output_free(&prompt);
    return status;
}

/* ---- spans ---- */

static snug_status fail_derivation(struct deriving *d, size_t index, const char *what) {
    return snug_fail(
        d->ctx, SNUG_E_INPUT,
        "%s: the %s of the assistant's message %zu cannot be found in what the chat template renders, which "
        "writes it in another way when the later messages are left out; give a template with {%% generation "
        "%%} by --chat_template_path, or train on all tokens",
        d->where, what, index + 1);
}

static snug_status add_span(struct deriving *d, size_t begin, size_t end) {
    struct snug_chat_text *out = d->out;
    if (begin == end) return SNUG_OK;
    if (out->span_count && out->spans[out->span_count - 1].end == begin) {
        out->spans[out->span_count - 1].end = end;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_grow(d->ctx, (void **)&out->spans, &d->capacity, out->span_count + 1, sizeof *out->spans));
    out->spans[out->span_count++] = (struct snug_jinja_span){begin, end};
    return SNUG_OK;
}

/* The beginning of the content of message index, before which nothing of the turn may be. */
static snug_status probe_begin(struct deriving *d, size_t index, size_t *begin) {
    struct around around;
    const snug_status status = probe(d, index, json_array_size(d->row->messages), CONTENT, false, &around);
    if (status == SNUG_OK && around.found &&
        common_prefix(around.text.text, around.before, d->text, d->length) == around.before)
        *begin = around.before;
    snug_jinja_output_free(&around.text);
    return status;
}

static snug_status probe_end(struct deriving *d, size_t index, size_t begin, size_t *end) {
    const json_t *message = json_array_get(d->row->messages, index);
    const bool calls = json_array_size(json_object_get(message, "tool_calls"));
    enum part part = part_of(message);
    for (int i = 0; !*end && i < (calls ? 2 : 1); i++, part = part == TOOL ? CONTENT : TOOL) {
        struct around around;
        snug_status status = probe(d, index, json_array_size(d->row->messages), part, false, &around);
        if (status == SNUG_OK && around.found &&
            common_suffix(around.text.text, around.text.length, d->text + begin, d->length - begin) >= around.after)
            status = find_end(d, index, part, d->length - around.after, end);
        snug_jinja_output_free(&around.text);
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

/* begin and end of message index; 0 where they cannot be found. */
static snug_status find_turn(struct deriving *d, size_t index, size_t *begin, size_t *end) {
    const bool last = index + 1 == json_array_size(d->row->messages);
    RETURN_IF_ERROR(try_prefix(d, index, true, begin));
    *end = d->length;
    if (!last) RETURN_IF_ERROR(try_prefix(d, index + 1, false, end));
    if (!*end) RETURN_IF_ERROR(try_prompted(d, index, end));
    if (!*begin) RETURN_IF_ERROR(probe_begin(d, index, begin));
    return *end ? SNUG_OK : probe_end(d, index, *begin, end);
}

static bool is_assistant(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && !strcmp(role, "assistant");
}

static snug_status derive(struct deriving *d) {
    size_t done = 0;
    for (size_t i = 0; i < json_array_size(d->row->messages); i++) {
        size_t begin, end;
        if (!is_assistant(json_array_get(d->row->messages, i))) continue;
        RETURN_IF_ERROR(find_turn(d, i, &begin, &end));
        if (!begin || begin < done) return fail_derivation(d, i, "beginning");
        if (!end || end < begin) return fail_derivation(d, i, "end");
        RETURN_IF_ERROR(add_span(d, begin, end));
        done = end;
    }
    return SNUG_OK;
}

static int compare_spans(const void *a, const void *b) {
    const struct snug_jinja_span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Those that the template marks, ascending and apart: nested ones end before those around them. */
static snug_status take_marked(struct deriving *d, struct snug_jinja_output *rendered) {
    size_t done = 0;
    if (rendered->span_count) qsort(rendered->spans, rendered->span_count, sizeof *rendered->spans, compare_spans);
    for (size_t i = 0; i < rendered->span_count; i++) {
        size_t begin = rendered->spans[i].begin, end = rendered->spans[i].end;
        if (end > d->length) end = d->length; /* of a value that was not written */
        if (begin < done) begin = done;
        if (begin < end) {
            RETURN_IF_ERROR(add_span(d, begin, end));
            done = end;
        }
    }
    return SNUG_OK;
}

snug_status snug_chat_spans(snug_context *ctx, const struct snug_chat *chat, const char *where,
                            const struct snug_chat_row *row, struct snug_chat_text *out) {
    struct snug_jinja_output rendered;
    *out = (struct snug_chat_text){0};
    snug_status status = snug_chat_render_messages(ctx, chat, row, row->messages, false, false, &rendered);
    if (status != SNUG_OK) return snug_add_to_error(ctx, status, " (the chat of %s)", where);
    struct deriving d = {ctx, chat, row, where, rendered.text, rendered.length, out, 0};
    status = snug_jinja_has_generation(snug_chat_template(chat, row)) ? take_marked(&d, &rendered) : derive(&d);
    free(rendered.spans);
    out->text = rendered.text;
    out->length = rendered.length;
    if (status != SNUG_OK) snug_chat_text_free(out);
    return status;
}

/* ---- tokens ---- */

/* A text while tokens are counted at ascending borders of its spans. */
struct counting {
    const struct snug_tokenizer *tokenizer;
    const char *text;
    const int32_t *whole; /* the text's tokens */
    size_t count;
    const struct snug_ids *added; /* snug_tokenizer_encode_added()'s */
    size_t next;                  /* the first pair of them that begins after the last border */
    size_t begin, before;         /* the pair before it: from there on the text is encoded, to which these are added */
    struct snug_ids *part;
};

/* The tokens of the whole text that are also those of its first `length` bytes. *across: the next one crosses them.
   Only what follows the last added token is encoded again. */
static snug_status count_tokens(snug_context *ctx, struct counting *c, size_t length, size_t *count, bool *across) {
    for (; c->next < c->added->count && (size_t)c->added->ids[c->next] <= length; c->next += 2) {
        c->begin = (size_t)c->added->ids[c->next];
        c->before = (size_t)c->added->ids[c->next + 1];
    }
    c->part->count = 0;
    RETURN_IF_ERROR(snug_tokenizer_encode(ctx, c->tokenizer, c->text + c->begin, length - c->begin, c->part));
    size_t same = 0;
    const size_t left = c->count - c->before, most = c->part->count < left ? c->part->count : left;
    while (same < most && c->part->ids[same] == c->whole[c->before + same]) same++;
    *across = same < c->part->count;
    *count = c->before + same;
    return SNUG_OK;
}

static snug_status mark_tokens(snug_context *ctx, const struct snug_chat_text *text, struct counting *c,
                               struct snug_ids *has_loss) {
    size_t done = 0, begin, end;
    bool across;
    for (size_t i = 0; i < text->span_count; i++) {
        RETURN_IF_ERROR(count_tokens(ctx, c, text->spans[i].begin, &begin, &across));
        RETURN_IF_ERROR(count_tokens(ctx, c, text->spans[i].end, &end, &across));
        end += across && end < c->count;
        for (; done < end; done++) RETURN_IF_ERROR(snug_ids_append(ctx, has_loss, done >= begin));
    }
    for (; done < c->count; done++) RETURN_IF_ERROR(snug_ids_append(ctx, has_loss, 0));
    return SNUG_OK;
}

snug_status snug_chat_tokens(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_chat_text *text, struct snug_ids *part, struct snug_ids *ids,
                             struct snug_ids *has_loss) {
    const size_t first = ids->count;
    struct snug_ids added = {0};
    snug_status status = snug_tokenizer_encode_added(ctx, tokenizer, text->text, text->length, ids, &added);
    if (status == SNUG_OK) {
        for (size_t i = 1; i < added.count; i += 2) added.ids[i] -= (int32_t)first;
        struct counting counting = {.tokenizer = tokenizer,
                                    .text = text->text,
                                    .whole = ids->ids + first,
                                    .count = ids->count - first,
                                    .added = &added,
                                    .part = part};
        status = mark_tokens(ctx, text, &counting, has_loss);
    }
    free(added.ids);
    return status;
}
