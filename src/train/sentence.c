/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is given on the command line, as a row of data. */
#include <string.h>

#include "io/json.h"
#include "train/setup.h"

static json_t *words_of(const char *text) {
    static const char blanks[] = " \t\r\n";
    json_t *words = json_array();
    for (size_t length; *(text += strspn(text, blanks)); text += length) {
        length = strcspn(text, blanks);
        snug_json_append(&words, json_stringn(text, length));
    }
    return words;
}

snug_status snug_sentence_json(const struct snug_args *args, bool words, char **out) {
    const bool pair = args->text_pair;
    json_t *row = json_object(), *text = words ? words_of(args->text) : json_string(args->text);
    *out = NULL;
    if (!text) /* may be untested: an allocation that fails */
        return snug_fail(args->ctx, SNUG_E_USAGE, "--text is not UTF-8");
    snug_json_add(&row, words ? "tokens" : pair ? "sentence1" : "text", text);
    if (pair) {
        json_t *second = json_string(args->text_pair);
        if (!second) {
            json_decref(row);
            return snug_fail(args->ctx, SNUG_E_USAGE, "--text_pair is not UTF-8");
        }
        snug_json_add(&row, "sentence2", second);
    }
    *out = row ? snug_json_dump(row, JSON_COMPACT) : NULL;
    json_decref(row);
    return *out ? SNUG_OK : snug_fail(args->ctx, SNUG_E_MEMORY, "out of memory while reading --text");
}
