/* SPDX-License-Identifier: Apache-2.0 */
#include "train/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "core/utf8_repair.h"
#include "data/chat_file.h"
#include "data/data_file.h"
#include "data/texts.h"
#include "io/json.h"

/* Takes the tokens that were appended to ids. text is owned then. */
static snug_status end_prompt(snug_context *ctx, struct snug_prompts *p, char *text, const char *where) {
    const size_t begin = snug_prompt_begin(p, p->count);
    snug_status status = snug_grow(ctx, (void **)&p->ends, &p->end_capacity, p->count + 1, sizeof *p->ends);
    if (status == SNUG_OK)
        status = snug_grow(ctx, (void **)&p->texts, &p->text_capacity, p->count + 1, sizeof *p->texts);
    if (status == SNUG_OK && p->ids.count == begin)
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: the prompt has no token to begin an answer with", where);
    if (status != SNUG_OK) {
        free(text);
        return status;
    }
    p->texts[p->count] = text;
    p->ends[p->count++] = p->ids.count;
    const int64_t length = (int64_t)(p->ids.count - begin);
    if (length <= p->longest) return SNUG_OK;
    p->longest = length;
    free(p->longest_where);
    return snug_format(ctx, &p->longest_where, "%s", where);
}

static snug_status add_text(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text, size_t length,
                            const char *where, struct snug_prompts *p) {
    struct snug_ids ids = {0};
    char *copy;
    snug_status status = snug_tokenizer_encode(ctx, tokenizer, text, length, &ids);
    if (status == SNUG_OK) status = snug_tokenizer_assemble_once(ctx, tokenizer, &ids, true, &p->ids);
    free(ids.ids);
    if (status == SNUG_OK) status = snug_alloc(ctx, length + 1, 1, (void **)&copy);
    if (status != SNUG_OK) return status;
    memcpy(copy, text, length);
    return end_prompt(ctx, p, copy, where);
}

snug_status snug_prompts_add(snug_args *args, const struct snug_tokenizer *tokenizer, const char *text,
                             struct snug_prompts *p) {
    return add_text(args->ctx, tokenizer, text, strlen(text), "--prompt", p);
}

/* The answer to the prompt that is added next: a text, or the content of a message. */
static snug_status add_reference(snug_context *ctx, const char *where, const json_t *answer, struct snug_prompts *p) {
    const json_t *text = json_is_object(answer) ? json_object_get(answer, "content") : answer;
    if (!p->compares) return SNUG_OK;
    if (!json_is_string(text))
        return snug_fail(
            ctx, SNUG_E_INPUT,
            "%s: --predict_with_generate needs an answer to compare with: a last message that the assistant "
            "says, or \"prompt\" and \"completion\"",
            where);
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&p->references, &p->reference_capacity, p->count + 1, sizeof *p->references));
    return snug_keep_text(ctx, json_string_value(text), &p->references[p->count]);
}

/* ---- chats ----------------------------------------------------------------------------------------------------- */

/* All messages but a last answer are the prompt. */
static snug_status add_chat(snug_args *args, const struct snug_tokenizer *tokenizer, const char *where,
                            const json_t *object, struct snug_prompts *p) {
    struct snug_chat_row row;
    struct snug_chat_text text = {0};
    if (!p->chat)
        RETURN_IF_ERROR(
            snug_chat_open(args->ctx, tokenizer, args->chat_template_path, args->chat_template_date, &p->chat));
    snug_status status = snug_chat_row_read(args->ctx, where, object, &row);
    if (status == SNUG_OK) {
        size_t count = json_array_size(row.messages);
        const json_t *last = json_array_get(row.messages, count - 1);
        const char *role = json_string_value(json_object_get(last, "role"));
        const bool answered = count > 1 && role && strcmp(role, "assistant") == 0;
        status = add_reference(args->ctx, where, answered ? last : NULL, p);
        if (answered) json_array_remove(row.messages, --count);
        row.prompt = count;
    }
    if (status == SNUG_OK) {
        status = snug_chat_render_prompt(args->ctx, p->chat, where, &row, &text);
    }
    if (status == SNUG_OK) status = snug_tokenizer_encode(args->ctx, tokenizer, text.text, text.length, &p->ids);
    if (status == SNUG_OK) {
        status = end_prompt(args->ctx, p, text.text, where);
        text.text = NULL;
    }
    snug_chat_text_free(&text);
    snug_chat_row_free(&row);
    return status;
}

snug_status snug_prompts_add_chat(snug_args *args, const struct snug_tokenizer *tokenizer, const char *messages,
                                  struct snug_prompts *p) {
    json_error_t error;
    json_t *list = snug_json_parse(messages, strlen(messages), 0, &error);
    if (!list)
        return snug_fail(args->ctx, snug_json_status(&error), "the messages are not a JSON list: %s", error.text);
    json_t *object = json_pack("{s:o}", "messages", list);
    const snug_status status = object ? add_chat(args, tokenizer, "the messages", object, p) : SNUG_E_MEMORY;
    json_decref(object);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Without arguments, standard input, whose lines are prompts. */
static const char *file_of(const snug_args *args) { return args->test_file ? args->test_file : "-"; }

static const char *format_of(const snug_args *args) {
    return args->data_format || !snug_data_is_stdin(file_of(args)) ? args->data_format : "txt";
}

/* A prompt that is a list of messages, whose answer, a list of one, may be missing. */
static json_t *as_messages(const json_t *row) {
    const json_t *prompt = json_object_get(row, "prompt"), *completion = json_object_get(row, "completion");
    if (!json_is_array(prompt)) return NULL;
    json_t *all = json_copy((json_t *)prompt);
    if (json_array_size(completion) == 1) snug_json_append(&all, json_incref(json_array_get(completion, 0)));
    return json_pack("{s:o}", "messages", all);
}

static snug_status add_json(snug_args *args, const struct snug_tokenizer *tokenizer, const char *where,
                            const json_t *row, struct snug_prompts *p) {
    json_t *messages = as_messages(row);
    if (messages || snug_chat_is_row(row)) {
        const snug_status status = add_chat(args, tokenizer, where, messages ? messages : row, p);
        json_decref(messages);
        return status;
    }
    const json_t *text = json_object_get(row, args->text_column_name ? args->text_column_name : "prompt");
    if (!text && !args->text_column_name) text = json_object_get(row, "text");
    if (!json_is_string(text))
        return snug_fail(args->ctx, SNUG_E_INPUT,
                         "%s: a prompt is needed: \"messages\", or a text as \"prompt\" or \"text\", or as "
                         "--text_column_name says",
                         where);
    RETURN_IF_ERROR(add_reference(args->ctx, where, json_object_get(row, "completion"), p));
    return add_text(args->ctx, tokenizer, json_string_value(text), json_string_length(text), where, p);
}

static snug_status read_json(snug_args *args, const struct snug_tokenizer *tokenizer, const char *path, int64_t most,
                             struct snug_prompts *p) {
    struct snug_chat_file *file;
    const char *where;
    json_t *row;
    snug_status status = snug_chat_file_open(args->ctx, path, &file);
    while (status == SNUG_OK && (most < 0 || (int64_t)p->count < most)) {
        status = snug_chat_file_next(file, &row, &where);
        if (status != SNUG_OK) break;
        status = add_json(args, tokenizer, where, row, p);
        json_decref(row);
    }
    snug_chat_file_close(file);
    return status == SNUG_END ? SNUG_OK : status;
}

static snug_status add_row(snug_context *ctx, const struct snug_tokenizer *tokenizer, const struct snug_field *field,
                           const char *path, int64_t line, struct snug_prompts *p) {
    char *where;
    RETURN_IF_ERROR(snug_format(ctx, &where, "%s:%lld", path, (long long)line));
    const snug_status status = add_text(ctx, tokenizer, field->text, field->length, where, p);
    free(where);
    return status;
}

static snug_status read_table(snug_args *args, const struct snug_tokenizer *tokenizer, struct snug_prompts *p) {
    const struct snug_dataset_options options = {.path = file_of(args),
                                                 .format = format_of(args),
                                                 .task = SNUG_TASK_CLM,
                                                 .text_column = args->text_column_name,
                                                 .text_columns = args->text_column_names,
                                                 .text_delimiter = args->text_column_delimiter,
                                                 .label_column = args->label_column_name,
                                                 .max_samples = -1,
                                                 .strict = args->strict};
    struct snug_texts texts;
    struct snug_row_buffer joined = {0};
    struct snug_row row;
    const int64_t most = args->max_predict_samples;
    snug_status status = snug_texts_open(args->ctx, &options, &texts);
    while (status == SNUG_OK && (most < 0 || (int64_t)p->count < most)) {
        struct snug_field field;
        status = snug_peek_next(&texts.peek, &row);
        if (status == SNUG_OK) status = snug_columns_text(args->ctx, &texts.source, &row, 0, &joined, &field);
        if (status == SNUG_OK) status = add_row(args->ctx, tokenizer, &field, options.path, row.line, p);
    }
    free(joined.data);
    snug_texts_close(&texts);
    return status == SNUG_END ? SNUG_OK : status;
}

/* --prompt, which may be any bytes. */
static snug_status read_argument(snug_args *args, const struct snug_tokenizer *tokenizer, struct snug_prompts *p) {
    char *text;
    size_t length;
    RETURN_IF_ERROR(snug_utf8_repair(args->ctx, args->prompt, strlen(args->prompt), &text, &length));
    const bool repaired = strcmp(text, args->prompt) != 0;
    snug_status status = SNUG_OK;
    if (repaired && args->strict)
        status = snug_fail(args->ctx, SNUG_E_INPUT,
                           "--prompt: malformed UTF-8; leave out --strict to have such bytes replaced");
    else if (repaired)
        snug_log(args->ctx, SNUG_LOG_WARNING, "--prompt: malformed UTF-8, replaced by U+FFFD");
    if (status == SNUG_OK && !args->chat) status = snug_prompts_add(args, tokenizer, text, p);
    if (status == SNUG_OK && args->chat) {
        json_t *row = json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", text);
        status = row ? add_chat(args, tokenizer, "--prompt", row, p) : SNUG_E_MEMORY;
        json_decref(row);
    }
    free(text);
    return status;
}

snug_status snug_prompts_read(snug_args *args, const struct snug_tokenizer *tokenizer, struct snug_prompts *p) {
    enum snug_data_form form;
    if (args->prompt) return read_argument(args, tokenizer, p);
    const char *path = file_of(args);
    RETURN_IF_ERROR(snug_reader_form(args->ctx, path, format_of(args), NULL, &form));
    RETURN_IF_ERROR(form == SNUG_DATA_JSON ? read_json(args, tokenizer, path, args->max_predict_samples, p)
                                           : read_table(args, tokenizer, p));
    return p->count ? SNUG_OK : snug_fail(args->ctx, SNUG_E_INPUT, "%s: there is no prompt", path);
}

snug_status snug_prompts_read_pairs(snug_args *args, const struct snug_tokenizer *tokenizer, struct snug_prompts *p) {
    const char *path = args->validation_file;
    enum snug_data_form form;
    RETURN_IF_ERROR(snug_reader_form(args->ctx, path, args->data_format, NULL, &form));
    if (form != SNUG_DATA_JSON)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "%s: --predict_with_generate needs prompts with their answers: a JSON file of chats, or of "
                         "\"prompt\" and \"completion\"",
                         path);
    p->compares = true;
    return read_json(args, tokenizer, path, args->max_eval_samples, p); /* an evaluation has rows */
}

void snug_prompts_clear(struct snug_prompts *p) {
    for (size_t i = 0; i < p->count; i++) free(p->texts[i]);
    free(p->longest_where);
    p->longest_where = NULL;
    p->count = p->ids.count = 0;
    p->longest = 0;
}

void snug_prompts_free(struct snug_prompts *p) {
    snug_prompts_clear(p);
    free(p->ids.ids);
    free(p->ends);
    free(p->texts);
    free((void *)p->references);
    snug_chat_close(p->chat);
    *p = (struct snug_prompts){0};
}
