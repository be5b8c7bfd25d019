/* SPDX-License-Identifier: Apache-2.0 */
/* The pre-tokenizers of tokenizer.json, one after another: a normalized text becomes words, which the model encodes. */
#ifndef SNUG_TOKENIZER_PRETOKENIZE_H
#define SNUG_TOKENIZER_PRETOKENIZE_H

#include "tokenizer/normalize.h"
#include "tokenizer/regex.h"

enum snug_splitting {
    SNUG_SPLITTING_BERT, /* white space removed, punctuation isolated */
    /* Characters of a class, each by itself: */
    SNUG_SPLITTING_SPACE,
    SNUG_SPLITTING_PUNCTUATION,
    SNUG_SPLITTING_DIGITS,
    /* Longer matches: */
    SNUG_SPLITTING_LITERAL, /* pattern */
    SNUG_SPLITTING_WORDS,   /* \w+|[^\w\s]+ */
    SNUG_SPLITTING_GPT2,    /* GPT-2's regular expression, which matches every character */
    /* Steps that also change the text: */
    SNUG_SPLITTING_METASPACE,  /* spaces become pattern, the prefix of words */
    SNUG_SPLITTING_BYTE_LEVEL, /* the model reads bytes; always the last step */
    /* Another regular expression: */
    SNUG_SPLITTING_REGEX
};

/* What happens to the matching parts of a text, as in the library. */
enum snug_behavior {
    SNUG_BEHAVIOR_REMOVED,
    SNUG_BEHAVIOR_ISOLATED,
    SNUG_BEHAVIOR_MERGED_WITH_PREVIOUS,
    SNUG_BEHAVIOR_MERGED_WITH_NEXT,
    SNUG_BEHAVIOR_CONTIGUOUS
};

enum snug_prefix { SNUG_PREFIX_NEVER, SNUG_PREFIX_ALWAYS, SNUG_PREFIX_FIRST };

struct snug_pretokenizer_step {
    enum snug_splitting kind;
    enum snug_behavior behavior;
    bool invert;
    bool split;               /* METASPACE, BYTE_LEVEL: into words; otherwise only the prefix is added */
    enum snug_prefix prefix;  /* METASPACE, BYTE_LEVEL: when a text that does not begin with a space gets one */
    char *pattern;            /* LITERAL, METASPACE, REGEX; owned */
    size_t length;            /* bytes of pattern */
    struct snug_regex *regex; /* REGEX; owned */
};

/* Zero-initialise; without steps a text is one word. */
struct snug_pretokenizer {
    struct snug_pretokenizer_step *steps;
    size_t count, capacity;
};

/* Appends a step and takes ownership of its pointers, also after a failure. */
snug_status snug_pretokenizer_add(snug_context *ctx, struct snug_pretokenizer *pretokenizer,
                                  const struct snug_pretokenizer_step *step);
void snug_pretokenizer_step_free(struct snug_pretokenizer_step *step);
void snug_pretokenizer_free(struct snug_pretokenizer *pretokenizer);

/* Receives one word (not empty). SNUG_END ends the splitting early. */
typedef snug_status snug_word_sink(void *user, const char *word, size_t length);

/* Splits one text after another. Zero-initialise all but the first line; snug_words_free. One for each thread. */
struct snug_words {
    snug_context *ctx;
    const struct snug_pretokenizer *pretokenizer;
    snug_word_sink *sink;
    void *user;
    bool add_prefix;           /* ByteLevel adds its prefix even if its add_prefix_space is false */
    struct snug_text *buffers; /* by step, of those that change the text */
    struct snug_regex_scratch regex;
};
/* first: text is at the beginning of the whole text. SNUG_END if the sink returned it. */
snug_status snug_words_split(struct snug_words *words, const char *text, size_t length, bool first);
void snug_words_free(struct snug_words *words);

#endif
