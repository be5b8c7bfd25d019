/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of a test, written as words. */
#ifndef SNUG_TESTS_ARGUMENTS_H
#define SNUG_TESTS_ARGUMENTS_H

#include <stdio.h>
#include <string.h>

#include "snug.h"
#include "test.h"

/* Sets arguments from words "name=value"; a value that begins with @ is a path in folder. */
static inline void set_words(snug_context *ctx, snug_args *args, const char *folder, const char *words) {
    char copy[2048], path[600], *rest = copy, *word;
    assert_true(strlen(words) < sizeof copy);
    strcpy(copy, words);
    while ((word = strsep(&rest, " "))) {
        if (!*word) continue;
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        snprintf(path, sizeof path, "%s/%s", folder, value + (*value == '@'));
        if (snug_args_set(args, word, *value == '@' ? path : value) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
    }
}

#endif
