/* SPDX-License-Identifier: Apache-2.0 */
#include "data/words.h"

#include <string.h>

void snug_words_put(uint32_t *numbers, const int32_t *word_of, size_t tokens, const uint32_t *tags, size_t words,
                    const char *texts, size_t text_size) {
    uint32_t *to = numbers + tokens + 1;
    numbers[snug_words_numbers(tokens, words, text_size) - 1] = 0; /* what follows the texts */
    for (size_t i = 0; i < tokens; i++) numbers[i] = word_of[i] < 0 ? SNUG_NO_WORD : (uint32_t)word_of[i];
    numbers[tokens] = (uint32_t)words;
    for (size_t i = 0; i < words; i++) to[i] = tags ? tags[i] : SNUG_NO_TAG;
    if (text_size) memcpy(to + words, texts, text_size);
}

const char *snug_next_word(const char **text, size_t *length) {
    static const char blanks[] = " \t\r\n";
    const char *word = *text + strspn(*text, blanks);
    *length = strcspn(word, blanks);
    *text = word + *length;
    return *length ? word : NULL;
}

bool snug_words_of(const uint32_t *numbers, int64_t number_count, int64_t tokens, uint64_t raw_labels,
                   struct snug_words *out) {
    if (number_count <= tokens) return false;
    *out = (struct snug_words){.word_of = numbers, .count = numbers[tokens], .tags = numbers + tokens + 1};
    const int64_t rest = number_count - tokens - 1 - out->count;
    if (rest < 0) return false;
    uint32_t least = 0; /* words follow one another */
    for (int64_t i = 0; i < tokens; i++) {
        const uint32_t word = out->word_of[i];
        if (word == SNUG_NO_WORD) continue;
        if (word < least || word >= out->count) return false;
        least = word;
    }
    for (int64_t i = 0; i < out->count; i++)
        if (out->tags[i] >= raw_labels && out->tags[i] != SNUG_NO_TAG) return false;
    if (!rest) return true;
    out->texts = (const char *)(out->tags + out->count);
    const char *at = out->texts, *end = at + 4 * rest;
    for (int64_t i = 0; i < out->count; i++) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        if (!nul) return false;
        at = nul + 1;
    }
    return true;
}
