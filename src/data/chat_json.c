/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat_json.h"

#include <inttypes.h>
#include <string.h>

#include "data/chat_columns.h"
#include "io/json.h"

static snug_status put(snug_context *ctx, struct snug_row_buffer *buffer, size_t *size, const char *text, size_t length,
                       bool quoted) {
    const size_t more = quoted ? snug_json_quoted_size(text, length) : length;
    RETURN_IF_ERROR(snug_grow(ctx, &buffer->data, &buffer->capacity, *size + more + 1, 1));
    char *to = (char *)buffer->data + *size;
    if (quoted)
        snug_json_quote(to, text, length);
    else
        memcpy(to, text, length);
    to[more] = '\0';
    *size += more;
    return SNUG_OK;
}

static snug_status fail_value(snug_context *ctx, const struct snug_text_source *source, const struct snug_row *row,
                              size_t column) {
    const char *name = source->names[column];
    return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the column \"%s\" of a %s must be %s, and is %s", source->path,
                     row->line, name, source->object,
                     snug_chat_is_nested(name) ? "a list or an object, or its JSON as a text" : "a text",
                     snug_columns_value(&row->fields[column]));
}

snug_status snug_chat_json(snug_context *ctx, const struct snug_text_source *source, const struct snug_row *row,
                           struct snug_row_buffer *buffer, struct snug_field *out) {
    size_t size = 0;
    RETURN_IF_ERROR(put(ctx, buffer, &size, "{", 1, false));
    for (size_t i = 0; i < source->columns.texts; i++) {
        const size_t column = source->columns.text[i];
        const struct snug_field *field = &row->fields[column];
        const char *name = source->names[column];
        const bool json = field->kind == SNUG_FIELD_JSON, text = snug_field_is_text(field);
        /* An empty field of a CSV file is no JSON text, but none; where the columns are texts, it is one. */
        const bool nested = snug_chat_is_nested(name) && !(source->columns.preferences && !source->columns.chat);
        if (field->kind == SNUG_FIELD_MISSING || (text && !field->length && nested)) continue;
        if (strlen(field->text) != field->length)
            return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": column \"%s\": \\u0000 in a %s: remove it",
                             source->path, row->line, name, source->object);
        if (!json && !text) return fail_value(ctx, source, row, column);
        if (size > 1) RETURN_IF_ERROR(put(ctx, buffer, &size, ",", 1, false));
        RETURN_IF_ERROR(put(ctx, buffer, &size, name, strlen(name), true));
        RETURN_IF_ERROR(put(ctx, buffer, &size, ":", 1, false));
        RETURN_IF_ERROR(put(ctx, buffer, &size, field->text, field->length, !json));
    }
    RETURN_IF_ERROR(put(ctx, buffer, &size, "}", 1, false));
    *out = (struct snug_field){SNUG_FIELD_JSON, buffer->data, size};
    return SNUG_OK;
}
