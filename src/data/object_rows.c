/* SPDX-License-Identifier: Apache-2.0 */
#include "data/object_rows.h"

#include <string.h>

#include "io/json.h"

snug_status snug_object_begin(snug_context *ctx, const char *where, const char *text, size_t length,
                              const struct snug_encoder *encoder, struct snug_encoded *out, json_t **object) {
    json_error_t error;
    *out = (struct snug_encoded){.ids = encoder->out.count, .window = encoder->window_count};
    *object = snug_json_parse(text, length, 0, &error);
    if (*object) return SNUG_OK;
    return snug_fail(ctx, snug_json_status(&error), "%s: the row cannot be read as JSON: %s", where, error.text);
}

void snug_object_end(const struct snug_encoder *encoder, struct snug_encoded *out) {
    out->count = encoder->out.count - out->ids;
    out->windows = encoder->window_count - out->window;
}

snug_status snug_object_add_text(snug_context *ctx, const char *text, struct snug_encoder *encoder) {
    const size_t size = strlen(text) + 1;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->text, &encoder->text_capacity, encoder->text_size + size, 1));
    memcpy(encoder->text + encoder->text_size, text, size);
    encoder->text_size += size;
    return SNUG_OK;
}
