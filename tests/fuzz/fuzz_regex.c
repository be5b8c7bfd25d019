/* SPDX-License-Identifier: Apache-2.0 */
/* A regular expression and a text, separated by the byte 0xFF. */
#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "fuzz.h"
#include "tokenizer/regex.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    struct snug_regex_scratch scratch = {0};
    struct snug_regex *regex;
    size_t at = 0, length, pattern_length, start, end;
    const uint8_t *pattern = fuzz_part(data, size, &at, &pattern_length), *rest = fuzz_part(data, size, &at, &length);
    char *text;
    FUZZ_CHECK(snug_utf8_repair(ctx, (const char *)rest, length, &text, &length) == SNUG_OK);
    if (fuzz_accepts(ctx, snug_regex_compile(ctx, "file", (const char *)pattern, pattern_length, &regex))) {
        for (size_t done = 0; done < length; done = end) {
            const snug_status status = snug_regex_find(ctx, regex, text, length, done, &scratch, &start, &end);
            if (status == SNUG_END || !fuzz_accepts(ctx, status)) break; /* refused: too many steps */
            FUZZ_CHECK(start >= done && end > start && end <= length);
            FUZZ_CHECK(snug_utf8_invalid(text + start, end - start) == end - start);
        }
        snug_regex_free(regex);
    }
    snug_regex_scratch_free(&scratch);
    free(text);
}
