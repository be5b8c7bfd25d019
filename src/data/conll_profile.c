/* SPDX-License-Identifier: Apache-2.0 */
#include "data/conll_profile.h"

#include <string.h>

/* ---- lines ------------------------------------------------------------------------------------------------------- */

enum snug_conll_kind snug_conll_kind_of(const char *line) {
    static const char boundary[] = "-DOCSTART-";
    line += strspn(line, " \t");
    if (!*line) return SNUG_CONLL_BLANK;
    if (strncmp(line, boundary, sizeof boundary - 1) == 0) return SNUG_CONLL_BOUNDARY;
    return *line == '#' ? SNUG_CONLL_HASH : SNUG_CONLL_WORD;
}

static size_t split_at_tabs(const char *line, struct snug_conll_field fields[]) {
    for (size_t count = 0;; count++) {
        const size_t whole = strcspn(line, "\t");
        size_t length = whole;
        const char *from = line;
        for (; length && *from == ' '; length--) from++;
        while (length && from[length - 1] == ' ') length--;
        fields[count] = (struct snug_conll_field){from, length};
        if (!line[whole] || count == SNUG_CONLL_COLUMNS) return count + 1;
        line += whole + 1;
    }
}

size_t snug_conll_split(const char *line, bool tabs, struct snug_conll_field fields[SNUG_CONLL_COLUMNS + 1]) {
    size_t count = 0;
    if (tabs) return split_at_tabs(line, fields);
    while (*(line += strspn(line, " ")) && count <= SNUG_CONLL_COLUMNS) {
        fields[count] = (struct snug_conll_field){line, strcspn(line, " ")};
        line += fields[count++].length;
    }
    return count;
}

bool snug_conll_is(struct snug_conll_field field, const char *text) {
    return field.length == strlen(text) && memcmp(field.text, text, field.length) == 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The type of B-TYPE and its like; length 0: there is none. */
static struct snug_conll_field type_of(struct snug_conll_field field) {
    if (field.length < 3 || !strchr("BIESLUM", *field.text) || !strchr("-_", field.text[1]))
        return (struct snug_conll_field){field.text, 0};
    return (struct snug_conll_field){field.text + 2, field.length - 2};
}

bool snug_conll_is_iob(struct snug_conll_field field) {
    return type_of(field).length || (field.length == 1 && strchr("OBIESLUM", *field.text));
}

/* Phrases of CoNLL-2000 and 2003. */
static bool is_phrase(struct snug_conll_field type) {
    static const char *const phrases[] = {"NP",   "VP",  "PP",  "ADVP", "ADJP", "SBAR", "PRT", "CONJP", "LST",
                                          "INTJ", "UCP", "NAC", "NX",   "QP",   "NC",   "VC",  "PC",    "WHADJP"};
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (snug_conll_is(type, phrases[i])) return true;
    return false;
}

static size_t digits(struct snug_conll_field field, size_t from) {
    size_t count = 0;
    while (from + count < field.length && field.text[from + count] >= '0' && field.text[from + count] <= '9') count++;
    return count;
}

enum snug_conll_id snug_conll_id_of(struct snug_conll_field field, int64_t *number) {
    const size_t first = digits(field, 0);
    *number = 0;
    if (!first || first > 9) return SNUG_CONLL_NO_ID;
    for (size_t i = 0; i < first; i++) *number = 10 * *number + (field.text[i] - '0');
    if (first == field.length) return SNUG_CONLL_ID;
    const size_t second = digits(field, first + 1);
    if (!second || first + 1 + second != field.length) return SNUG_CONLL_NO_ID;
    return field.text[first] == '-'   ? SNUG_CONLL_RANGE
           : field.text[first] == '.' ? SNUG_CONLL_EMPTY_NODE
                                      : SNUG_CONLL_NO_ID;
}

static bool is_number(struct snug_conll_field field) {
    bool digit = false;
    for (size_t i = 0; i < field.length; i++) {
        if (!strchr("0123456789+-.,:", field.text[i])) return false;
        digit |= field.text[i] >= '0' && field.text[i] <= '9';
    }
    return digit;
}

static bool is_placeholder(struct snug_conll_field field) {
    return !field.length || snug_conll_is(field, "_") || snug_conll_is(field, "-") || snug_conll_is(field, "-X-") ||
           snug_conll_is(field, "*");
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

void snug_conll_profile_begin(struct snug_conll_profile *profile) {
    *profile = (struct snug_conll_profile){.placeholder = true,
                                           .numbers = true,
                                           .integers = true,
                                           .heads = true,
                                           .running = true,
                                           .iob = true,
                                           .fresh = true,
                                           .last = -1};
}

/* Numbers of multiword tokens and empty nodes are not counted. */
static void follow(struct snug_conll_profile *profile, enum snug_conll_id id, int64_t number) {
    if (id == SNUG_CONLL_NO_ID) profile->running = false;
    if (id != SNUG_CONLL_ID) return;
    const bool follows = profile->last >= 0 && number == profile->last + 1;
    profile->running &= follows || (profile->fresh && number < 2);
    profile->steps |= follows && !profile->fresh;
    profile->last = number;
    profile->fresh = false;
}

void snug_conll_profile_add(struct snug_conll_profile *profile, struct snug_conll_field field) {
    const struct snug_conll_field type = type_of(field);
    int64_t number;
    const enum snug_conll_id id = snug_conll_id_of(field, &number);
    if (!profile->values++) profile->first = field;
    profile->placeholder &= is_placeholder(field) && field.length == profile->first.length &&
                            memcmp(field.text, profile->first.text, field.length) == 0;
    profile->numbers &= is_number(field);
    profile->integers &= id == SNUG_CONLL_ID;
    profile->heads &= id == SNUG_CONLL_ID || snug_conll_is(field, "_");
    profile->iob &= snug_conll_is_iob(field);
    profile->outside |= snug_conll_is(field, "O");
    profile->typed |= type.length > 0;
    profile->entity |= type.length && !is_phrase(type);
    follow(profile, id, number);
}
