/* SPDX-License-Identifier: Apache-2.0 */
/* A row of words with tags, as snug_dataset_row.labels holds it: the word of each token, the number of words, the tag
 * of each word, and, if they are kept, the words' texts. */
#ifndef SNUG_DATA_WORDS_H
#define SNUG_DATA_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNUG_NO_WORD UINT32_MAX /* the word of [CLS] and [SEP] */
#define SNUG_NO_TAG UINT32_MAX  /* the tag of a word without one */

struct snug_words {
    const uint32_t *word_of; /* [tokens] */
    const uint32_t *tags;    /* [count] numbers of raw labels */
    int64_t count;
    const char *texts; /* count NUL-terminated texts; NULL if they are not kept */
};

/* The size, in numbers, of a row of words; texts take text_size bytes (0: not kept). */
static inline size_t snug_words_numbers(size_t tokens, size_t words, size_t text_size) {
    return tokens + 1 + words + (text_size + 3) / 4;
}
/* The parts of a row; false if numbers are not a valid row. raw_labels: tags are below it. */
bool snug_words_of(const uint32_t *numbers, int64_t number_count, int64_t tokens, uint64_t raw_labels,
                   struct snug_words *out);
/* Writes a row, of which tokens have the words word_of, -1 for none. tags NULL: no word has one. texts of text_size
   bytes follow if that is not 0. */
void snug_words_put(uint32_t *numbers, const int32_t *word_of, size_t tokens, const uint32_t *tags, size_t words,
                    const char *texts, size_t text_size);
/* The next word of *text, which then points past that word; NULL if there is none. */
const char *snug_next_word(const char **text, size_t *length);
/* Whether token is the first one of its word. */
static inline bool snug_words_begins(const struct snug_words *words, int64_t token) {
    return words->word_of[token] != SNUG_NO_WORD && (token == 0 || words->word_of[token - 1] != words->word_of[token]);
}

#endif
