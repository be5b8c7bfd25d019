/* SPDX-License-Identifier: Apache-2.0 */
/* A chat template and the variables' JSON, separated by the byte 0xFF. */
#include "core/utf8.h"
#include "fuzz.h"
#include "io/json.h"
#include "jinja/jinja.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    struct snug_jinja_template *template;
    struct snug_jinja_output out;
    size_t at = 0, length, json_length;
    const char *text = (const char *)fuzz_part(data, size, &at, &length);
    const char *json = (const char *)fuzz_part(data, size, &at, &json_length);
    json_error_t error;
    if (!fuzz_accepts(ctx, snug_jinja_parse(ctx, "file", text, length, &template))) return;
    const json_t *variables = json ? snug_json_parse(json, json_length, 0, &error) : NULL;
    const struct snug_jinja_input input = {
        .variables = &variables, .count = variables != NULL, .steps_most = 200000, .memory_most = 16 << 20};
    if (fuzz_accepts(ctx, snug_jinja_render(ctx, template, &input, &out))) {
        FUZZ_CHECK(out.text[out.length] == '\0');
        FUZZ_CHECK(snug_utf8_invalid(out.text, out.length) == out.length);
        for (size_t i = 0; i < out.span_count; i++) FUZZ_CHECK(out.spans[i].begin <= out.spans[i].end);
        snug_jinja_output_free(&out);
    }
    snug_jinja_free(template);
    json_decref((json_t *)(uintptr_t)variables);
}
