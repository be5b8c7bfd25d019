/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a file with a word a line, their columns, and what the values of a column have in common. */
#ifndef SNUG_DATA_CONLL_PROFILE_H
#define SNUG_DATA_CONLL_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SNUG_CONLL_COLUMNS = 1024 }; /* of a line, at most */

struct snug_conll_field {
    const char *text; /* not NUL-terminated */
    size_t length;
};

enum snug_conll_kind {
    SNUG_CONLL_BLANK,
    SNUG_CONLL_BOUNDARY, /* -DOCSTART- */
    SNUG_CONLL_HASH,     /* begins with #: a comment before a sentence, or a word */
    SNUG_CONLL_WORD,
};
enum snug_conll_kind snug_conll_kind_of(const char *line);
/* The columns of a line: between tabs, without blanks around them, or between blanks. Returns their number, which is
   SNUG_CONLL_COLUMNS + 1 if there are more. */
size_t snug_conll_split(const char *line, bool tabs, struct snug_conll_field fields[SNUG_CONLL_COLUMNS + 1]);
bool snug_conll_is(struct snug_conll_field field, const char *text);
/* Whether a value is a tag of an entity or chunk: O, B-PER, I-PER, E-PER, S-PER, L-PER, U-PER, M-PER, also with '_', or
   one of these letters. */
bool snug_conll_is_iob(struct snug_conll_field field);
/* The numbers of CoNLL-U: whole ones, ranges of a multiword token (1-2), and empty nodes (1.1). */
enum snug_conll_id { SNUG_CONLL_NO_ID, SNUG_CONLL_ID, SNUG_CONLL_RANGE, SNUG_CONLL_EMPTY_NODE };
enum snug_conll_id snug_conll_id_of(struct snug_conll_field field, int64_t *number);

/* What all values of a column have in common. Begin with snug_conll_profile_begin(). */
struct snug_conll_profile {
    int64_t values;
    struct snug_conll_field first;
    bool placeholder; /* the same in all lines, and says nothing: "_", "-", "-X-", "*", or empty */
    bool numbers;     /* amounts, offsets, dates: digits with signs and points */
    bool integers;    /* numbers without either */
    bool heads;       /* integers, or "_" */
    bool running;     /* numbers that rise by one, also from 0 or 1 in each sentence */
    bool steps;       /* at least one of them did */
    bool iob;         /* snug_conll_is_iob() */
    bool outside;     /* one is O */
    bool typed;       /* one has a type, as B-PER */
    bool entity;      /* one has a type that is no kind of phrase, as B-NP is */
    bool fresh;       /* a sentence begins */
    int64_t last;     /* running number */
};
void snug_conll_profile_begin(struct snug_conll_profile *profile);
void snug_conll_profile_add(struct snug_conll_profile *profile, struct snug_conll_field field);
/* Whether its values are tags of entities or chunks, as far as can be seen. */
static inline bool snug_conll_has_tags(const struct snug_conll_profile *profile) {
    return profile->iob && profile->outside && profile->values > 1;
}

#endif
