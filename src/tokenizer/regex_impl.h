/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled regular expression: written by regex_parse.c, run by regex.c. */
#ifndef SNUG_TOKENIZER_REGEX_IMPL_H
#define SNUG_TOKENIZER_REGEX_IMPL_H

#include "tokenizer/regex.h"

enum { SNUG_REGEX_INFINITE = INT32_MAX };

enum snug_regex_op {
    SNUG_REGEX_SET,     /* a character of set x */
    SNUG_REGEX_REPEAT,  /* least to most characters of set x, as many as possible */
    SNUG_REGEX_SPLIT,   /* goes on at x, or else at y */
    SNUG_REGEX_JUMP,    /* to x */
    SNUG_REGEX_AHEAD,   /* what follows, up to MATCH, matches here, or not (negated); goes on at x */
    SNUG_REGEX_BEHIND,  /* a character of set x is before, or not (negated) */
    SNUG_REGEX_ATOMIC,  /* the first match of what follows, up to MATCH; goes on at x after it */
    SNUG_REGEX_BEGIN,   /* \A */
    SNUG_REGEX_END,     /* \z */
    SNUG_REGEX_LINE,    /* ^ */
    SNUG_REGEX_NEWLINE, /* $ */
    SNUG_REGEX_BORDER,  /* \b, or \B (negated) */
    SNUG_REGEX_MATCH
};

struct snug_regex_step {
    enum snug_regex_op op;
    bool negated, possessive; /* REPEAT: does not give characters back */
    int32_t x, y, least, most;
};

/* What a set holds: characters of any of its items. */
struct snug_regex_item {
    enum {
        SNUG_ITEM_RANGE,
        SNUG_ITEM_CATEGORIES,
        SNUG_ITEM_SCRIPT,
        SNUG_ITEM_SPACE,
        SNUG_ITEM_WORD,
        SNUG_ITEM_SET
    } kind;
    bool negated;
    uint32_t low, high; /* low: also the bits of the categories, the script, the set */
};

struct snug_regex_set {
    uint32_t ascii[4]; /* a bit for each ASCII character */
    int32_t first, count;
    int32_t also; /* another set that must hold the character; -1: none */
    bool negated;
};

struct snug_regex {
    char *pattern; /* for messages */
    struct snug_regex_step *steps;
    struct snug_regex_set *sets;
    struct snug_regex_item *items;
    size_t step_count, step_capacity, set_count, set_capacity, item_count, item_capacity;
};

/* Whether a set holds a character, without its bits for ASCII. */
bool snug_regex_look_up(const struct snug_regex *regex, const struct snug_regex_set *set, uint32_t code);
static inline bool snug_regex_holds(const struct snug_regex *regex, int32_t set, uint32_t code) {
    const struct snug_regex_set *found = &regex->sets[set];
    return code < 128 ? found->ascii[code >> 5] >> (code & 31) & 1 : snug_regex_look_up(regex, found, code);
}

#endif
