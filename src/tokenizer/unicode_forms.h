/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode's normalization forms NFC, NFD, NFKC and NFKD, for the code points that the `tokenizers` library knows. */
#ifndef SNUG_TOKENIZER_UNICODE_FORMS_H
#define SNUG_TOKENIZER_UNICODE_FORMS_H

#include "tokenizer/text_buffer.h"

/* Consecutive code points with a combining class. Zero-initialise; free(codes) and free(sorted). */
struct snug_marks {
    uint32_t *codes; /* code point | combining class << 24 */
    size_t count, capacity;
    uint32_t *sorted; /* the sort's buffer */
    size_t sorted_capacity;
};
snug_status snug_marks_add(snug_context *ctx, struct snug_marks *marks, uint32_t code, uint32_t combining_class);
/* Sorts by combining class, stably; linear time for any text. */
snug_status snug_marks_sort(snug_context *ctx, struct snug_marks *marks);

/* Replaces out's contents by the text in a form: compatible for NFKC and NFKD, composed for NFC and NFKC. */
snug_status snug_unicode_form(snug_context *ctx, bool compatible, bool composed, const char *text, size_t length,
                              struct snug_text *out);

#endif
