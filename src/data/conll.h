/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of a file with a word a line (CoNLL and its relatives). They are decided by its first lines, for the
 * whole file: how many there are and what separates them, their names, and which of them hold the words and the tags.
 */
#ifndef SNUG_DATA_CONLL_H
#define SNUG_DATA_CONLL_H

#include "core/context.h"
#include "data/conll_profile.h"

#define SNUG_CONLL_NONE SIZE_MAX   /* no column */
enum { SNUG_CONLL_ENTITIES = 10 }; /* the column of entities in CoNLL-2012, in brackets: the last one with a name */

/* Lines that are no words. */
enum snug_conll_skipped { SNUG_CONLL_COMMENTS, SNUG_CONLL_RANGES, SNUG_CONLL_EMPTY_NODES };
enum { SNUG_CONLL_SKIPPED = SNUG_CONLL_EMPTY_NODES + 1 };

/* Which columns are wished for; members may be NULL. */
struct snug_conll_choice {
    const char *words, *tags;                 /* names, or numbers from 1; a file without one is refused */
    const char *trained_words, *trained_tags; /* names that a training used: where the file has them */
    bool need_tags;                           /* a file of which the column of tags is not known is refused */
};

struct snug_conll {
    bool tabs;          /* separate columns; else blanks do */
    bool header;        /* the first line that is no comment names the columns */
    bool documents;     /* CoNLL-2012: a line has further columns, as many as its sentence has predicates */
    bool iob;           /* tags are those of snug_conll_is_iob() */
    bool named;         /* the columns have names, else they are called "column 2 of 4" */
    size_t columns;     /* that have names */
    size_t index;       /* of running numbers, or SNUG_CONLL_NONE */
    size_t words, tags; /* tags: or SNUG_CONLL_NONE */
    char prefix[24];    /* WikiAnn: every word begins with it ("en:"), and does without it */
    const char *format; /* its name, or NULL */
    char **names;
    char *unsure; /* which columns may have the tags, or NULL */
};
void snug_conll_free(struct snug_conll *conll);

/* The first lines of a file, each with a NUL, from the given number on. SNUG_E_INPUT: no such column, or several that
   are meant alike; the message says how to choose. */
snug_status snug_conll_decide(snug_context *ctx, const char *path, const char *lines, size_t size, int64_t number,
                              const struct snug_conll_choice *choice, struct snug_conll *out);
/* A line of words, with its number of columns. expected: those of the file, or of the sentence in CoNLL-2012. */
snug_status snug_conll_check_width(snug_context *ctx, const char *path, int64_t number, const char *line, size_t count,
                                   const struct snug_conll *conll, size_t expected);
/* The column of that name, in upper or lower case, or of that number from 1; SNUG_CONLL_NONE. The names of a JSON file,
   tokens and ner_tags, are the columns of words and tags where no column has them. */
size_t snug_conll_find(const struct snug_conll *conll, const char *name, size_t length);
/* Whether a column is called by its number. */
bool snug_conll_is_position(const char *name);
/* Logs which columns are used. */
void snug_conll_tell(snug_context *ctx, const char *path, const struct snug_conll *conll);
/* Logs how many lines were skipped, if any. */
void snug_conll_tell_skipped(snug_context *ctx, const char *path, const int64_t skipped[SNUG_CONLL_SKIPPED]);

#endif
