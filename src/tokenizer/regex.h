/* SPDX-License-Identifier: Apache-2.0 */
/* The regular expressions of tokenizer.json, as Oniguruma, the engine of the `tokenizers` library, reads them: ordered
   choice, quantifiers that are greedy unless they are lazy or possessive, classes of Unicode. */
#ifndef SNUG_TOKENIZER_REGEX_H
#define SNUG_TOKENIZER_REGEX_H

#include "core/context.h"

/*
 * Supported: characters, the escapes \t \n \v \f \r \a \e \xHH \x{H…} \uHHHH; . ^ $ \A \z \b \B; \s \d \w \h and their
 * negations; \p{NAME}, \P{NAME} and \p{^NAME} of a general category (L, Lu …) or of Han, Hiragana, Katakana, Hangul;
 * [classes], nested, negated, with ranges and &&; (groups), (?:…), (?>…), (?i:…), (?i), (?=…), (?!…), (?<=…) and (?<!…)
 * of a character; | and the quantifiers ? * + {m,n}, also lazy (+?) and possessive (++).
 * Not supported: a pattern that can match nothing, back-references, characters beyond ASCII after (?i).
 */
struct snug_regex;

/* SNUG_E_UNSUPPORTED names the pattern, the byte in it (from 1) and what is not supported. path is for messages. */
snug_status snug_regex_compile(snug_context *ctx, const char *path, const char *pattern, size_t length,
                               struct snug_regex **out);
void snug_regex_free(struct snug_regex *regex);

/* The memory of a search, at most in proportion to the text. Zero-initialise. One for each thread. */
struct snug_regex_scratch {
    struct snug_regex_choice *choices;
    size_t count, capacity;
    uint64_t steps; /* taken in this text */
};
void snug_regex_scratch_free(struct snug_regex_scratch *scratch);

/* The first match that begins at or after `at` in well-formed UTF-8: text[*start … *end), not empty. SNUG_END if there
   is none. A text is searched from its beginning on. SNUG_E_INPUT if its searches take far more steps than it has
   bytes: then the pattern can match the same part in too many ways. */
snug_status snug_regex_find(snug_context *ctx, const struct snug_regex *regex, const char *text, size_t length,
                            size_t at, struct snug_regex_scratch *scratch, size_t *start, size_t *end);

#endif
