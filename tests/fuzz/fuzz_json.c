/* SPDX-License-Identifier: Apache-2.0 */
/* snug's handling of numbers around Jansson, in objects and arrays: written values read back as the same values. */
#include "fuzz.h"
#include "io/json.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    json_error_t error;
    char *text;
    json_t *value = snug_json_parse((const char *)data, size, 0, &error), *back;
    if (!value) return;
    FUZZ_CHECK(snug_json_text(ctx, value, JSON_INDENT(2), &text) == SNUG_OK);
    FUZZ_CHECK(back = snug_json_parse(text, strlen(text), 0, &error));
    FUZZ_CHECK(json_equal(value, back));
    json_decref(value);
    json_decref(back);
    free(text);
}
