/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is given on the command line, as a row of data. */
#include <stdlib.h>

#include "io/json.h"
#include "text/rows.h"
#include "text/words.h"
#include "train/setup.h"

static json_t *words_of(const char *text) {
    json_t *words = json_array();
    const char *word;
    for (size_t length; (word = snug_next_word(&text, &length));) snug_json_append(&words, json_stringn(word, length));
    return words;
}

/* NULL if the text is not UTF-8, which Jansson does not tell from too little memory. */
static json_t *row_of(const struct snug_args *args, bool words, const char **wrong) {
    const bool pair = args->text_pair;
    json_t *text = words ? words_of(args->text) : json_string(args->text), *row = json_object();
    *wrong = text ? "--text_pair" : "--text";
    snug_json_add(&row, words ? "tokens" : pair ? "sentence1" : "text", text);
    if (pair) snug_json_add(&row, "sentence2", json_string(args->text_pair));
    return row;
}

snug_status snug_sentence_rows(const struct snug_args *args, bool words, struct snug_rows **out) {
    const char *wrong;
    json_t *row = row_of(args, words, &wrong);
    *out = NULL;
    if (!row) return snug_fail(args->ctx, SNUG_E_USAGE, "%s is not UTF-8", wrong);
    char *text = snug_json_dump(row, JSON_COMPACT);
    json_decref(row);
    if (!text) return snug_fail(args->ctx, SNUG_E_MEMORY, "out of memory while reading --text");
    snug_status status = snug_rows_make(args->ctx, out);
    if (status == SNUG_OK) status = snug_rows_add(*out, text);
    free(text);
    if (status == SNUG_OK) return SNUG_OK;
    snug_rows_free(*out); /* may be untested: a call that fails: tools/failure-test */
    *out = NULL;          /* may be untested: a call that fails: tools/failure-test */
    return status;        /* may be untested: a call that fails: tools/failure-test */
}
