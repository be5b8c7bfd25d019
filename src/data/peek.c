/* SPDX-License-Identifier: Apache-2.0 */
#include "data/peek.h"

#include <stdlib.h>
#include <string.h>

#define PEEK_BYTES ((size_t)1 << 20) /* of text: no further row is read then */

/* Copies a row's fields; their texts are offsets until all rows are read, because the block may move. */
struct held {
    size_t *offsets;
    size_t offset_capacity, field_capacity, text_size, text_capacity;
};

static snug_status hold(snug_context *ctx, struct snug_peek *peek, struct held *held, const struct snug_row *row) {
    const size_t first = peek->count * peek->columns, end = first + peek->columns;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&peek->fields, &held->field_capacity, end, sizeof *peek->fields));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&held->offsets, &held->offset_capacity, end, sizeof *held->offsets));
    for (size_t i = 0; i < peek->columns; i++) {
        const struct snug_field *field = &row->fields[i];
        const size_t size = field->length + 1;
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&peek->text, &held->text_capacity, held->text_size + size + 1, 1));
        memcpy(peek->text + held->text_size, field->text, size);
        peek->text[held->text_size + size] = '\0';
        peek->fields[first + i] = *field;
        held->offsets[first + i] = held->text_size;
        held->text_size += size + 1;
    }
    peek->rows[peek->count++] = *row;
    return SNUG_OK;
}

static snug_status read_rows(snug_context *ctx, struct snug_peek *peek, struct held *held, int64_t most) {
    struct snug_row row;
    while (peek->count < SNUG_PEEK_ROWS && held->text_size < PEEK_BYTES && (most < 0 || (int64_t)peek->count < most)) {
        const snug_status status = snug_reader_next(peek->reader, &row);
        peek->ended = status == SNUG_END;
        if (peek->ended) return SNUG_OK;
        RETURN_IF_ERROR(status);
        RETURN_IF_ERROR(hold(ctx, peek, held, &row));
    }
    return SNUG_OK;
}

snug_status snug_peek_open(snug_context *ctx, struct snug_reader *reader, int64_t most, struct snug_peek *out) {
    const char *const *names;
    struct held held = {0};
    *out = (struct snug_peek){.reader = reader, .columns = snug_reader_columns(reader, &names)};
    const snug_status status = read_rows(ctx, out, &held, most);
    for (size_t i = 0; held.offsets && i < out->count * out->columns; i++)
        out->fields[i].text = out->text + held.offsets[i];
    for (size_t i = 0; i < out->count; i++) out->rows[i].fields = out->fields + i * out->columns;
    free(held.offsets);
    return status;
}

snug_status snug_peek_next(struct snug_peek *peek, struct snug_row *row) {
    if (peek->next < peek->count) {
        *row = peek->rows[peek->next++];
        return SNUG_OK;
    }
    return peek->ended ? SNUG_END : snug_reader_next(peek->reader, row);
}

void snug_peek_free(struct snug_peek *peek) {
    free(peek->fields);
    free(peek->text);
    *peek = (struct snug_peek){0};
}
