/* SPDX-License-Identifier: Apache-2.0 */
/* A command line, one word a line, parsed and checked before any file is read. */
#include "fuzz.h"
#include "train/args.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    enum { WORDS = 32 };
    static const char *const commands[] = {"train", "eval", "predict", "plan", "tokenize"};
    char text[4096], *words[WORDS + 1] = {"snug"};
    int count = 1;
    if (!size || size > sizeof text) return;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
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
