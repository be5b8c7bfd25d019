/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is given on the command line, as a row of data. */
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "data/rows.h"
#include "data/words.h"
#include "train/setup.h"

static snug_value text_value(const char *text, size_t length) {
    return (snug_value){.kind = SNUG_VALUE_TEXT, .text = text, .length = length};
}

/* The words of a text, between its blanks, as a list. */
static snug_status set_words(const struct snug_args *args, struct snug_rows *rows) {
    snug_value *words = NULL;
    size_t count = 0, capacity = 0, length;
    snug_status status = SNUG_OK;
    const char *word, *text = args->text;
    while (status == SNUG_OK && (word = snug_next_word(&text, &length))) {
        status = snug_grow(args->ctx, (void **)&words, &capacity, count + 1, sizeof *words);
        if (status == SNUG_OK) words[count++] = text_value(word, length);
    }
    const snug_value list = {.kind = SNUG_VALUE_LIST, .length = count, .items = words};
    if (status == SNUG_OK) status = snug_rows_put(rows, "tokens", &list);
    free(words);
    return status;
}

static snug_status set_text(const struct snug_args *args, struct snug_rows *rows, const char *column,
                            const char *argument, const char *text) {
    const size_t length = strlen(text);
    if (snug_utf8_invalid(text, length) < length)
        return snug_fail(args->ctx, SNUG_E_USAGE, "%s is not UTF-8", argument);
    const snug_value value = text_value(text, length);
    return snug_rows_put(rows, column, &value);
}

static snug_status add_row(const struct snug_args *args, bool words, struct snug_rows *rows) {
    const char *column = args->text_pair ? "sentence1" : "text";
    RETURN_IF_ERROR(words ? set_words(args, rows) : set_text(args, rows, column, "--text", args->text));
    if (args->text_pair) RETURN_IF_ERROR(set_text(args, rows, "sentence2", "--text_pair", args->text_pair));
    return snug_rows_complete(rows);
}

snug_status snug_sentence_rows(const struct snug_args *args, bool words, struct snug_rows **out) {
    RETURN_IF_ERROR(snug_rows_make(args->ctx, out));
    const snug_status status = add_row(args, words, *out);
    if (status == SNUG_OK) return SNUG_OK;
    snug_rows_free(*out);
    *out = NULL;
    return status;
}
