/* SPDX-License-Identifier: Apache-2.0 */
/* A command line, one word a line, parsed and checked. The second part is the file that --args_from or --deepspeed
 * names. */
#include "args/args.h"
#include "fuzz.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    enum { WORDS = 32 };
    static const char *const commands[] = {"train", "eval", "predict", "plan", "tokenize"};
    char text[4096], *words[WORDS + 1] = {"snug"};
    int count = 1;
    size_t at = 1, length, bytes;
    if (!size || size > sizeof text) return;
    const uint8_t *line = fuzz_part(data, size, &at, &length), *file = fuzz_part(data, size, &at, &bytes);
    fuzz_any_file(file, file ? bytes : 0);
    if (line) memcpy(text, line, length);
    text[line ? length : 0] = '\0';
    for (char *next = text; next && count < WORDS;) {
        char *end = strchr(next, '\n');
        if (end) *end++ = '\0';
        words[count++] = next;
        next = end;
    }
    snug_args *args, *copy;
    FUZZ_CHECK(snug_args_create(ctx, &args) == SNUG_OK);
    if (fuzz_accepts(ctx, snug_args_parse(args, count, words)) &&
        fuzz_accepts(ctx, snug_args_check(args, commands[data[0] % 5]))) {
        enum snug_recompute levels[12];
        int64_t budget;
        FUZZ_CHECK(snug_args_copy(ctx, args, &copy) == SNUG_OK);
        snug_args_destroy(copy);
        snug_args_recompute(args, 12, levels);
        snug_args_budget(args, &budget);
    }
    snug_args_destroy(args);
}
