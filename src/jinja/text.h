/* SPDX-License-Identifier: Apache-2.0 */
/* Strings as Python's str: positions count characters, white space and case are Unicode's. */
#ifndef SNUG_JINJA_TEXT_H
#define SNUG_JINJA_TEXT_H

#include "jinja/value.h"

bool snug_jinja_is_space(uint32_t code); /* str.isspace */

/* Text that is built in a heap. Zero-initialise. */
struct snug_jinja_builder {
    char *text;
    size_t length, capacity;
};
snug_status snug_jinja_put(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder, const char *text,
                           size_t length);
snug_status snug_jinja_put_text(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder, const char *text);
static inline struct snug_jinja_value snug_jinja_built(const struct snug_jinja_builder *builder) {
    return snug_jinja_string(builder->text, builder->length);
}

size_t snug_jinja_count(struct snug_jinja_value text); /* characters */
/* The byte of character number index, or the length if there are fewer. */
size_t snug_jinja_offset(struct snug_jinja_value text, size_t index);
/* Characters [begin, end). */
struct snug_jinja_value snug_jinja_cut(struct snug_jinja_value text, size_t begin, size_t end);
/* Without white space, or the characters of set (NULL: white space), at its ends. */
struct snug_jinja_value snug_jinja_strip(struct snug_jinja_value text, const struct snug_jinja_value *set, bool left,
                                         bool right);
/* The byte of the first (last) occurrence at or after byte `from` and before `end`; SIZE_MAX if there is none. */
size_t snug_jinja_find(struct snug_jinja_value text, struct snug_jinja_value sought, size_t from);
size_t snug_jinja_find_last(struct snug_jinja_value text, struct snug_jinja_value sought, size_t end);

enum snug_jinja_case {
    SNUG_JINJA_UPPER,
    SNUG_JINJA_LOWER,
    SNUG_JINJA_CAPITALIZE, /* the first character in title case, the others in lower case */
    SNUG_JINJA_TITLE,      /* the same for each word: str.title */
    SNUG_JINJA_SWAP
};
snug_status snug_jinja_change_case(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                                   enum snug_jinja_case which, struct snug_jinja_value *out);
/* At most `most` replacements; -1: all. */
snug_status snug_jinja_replace(struct snug_jinja_heap *heap, struct snug_jinja_value text, struct snug_jinja_value old,
                               struct snug_jinja_value new, int64_t most, struct snug_jinja_value *out);
/* A list. separator: NULL: white space. most: splits; -1: all. */
snug_status snug_jinja_split(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                             const struct snug_jinja_value *separator, int64_t most, bool from_right,
                             struct snug_jinja_value *out);
snug_status snug_jinja_split_lines(struct snug_jinja_heap *heap, struct snug_jinja_value text, bool keep,
                                   struct snug_jinja_value *out);
/* Markup: the text with the characters & < > ' " as HTML writes them; a text that is Markup stays. */
snug_status snug_jinja_escape(struct snug_jinja_heap *heap, struct snug_jinja_value text, struct snug_jinja_value *out);
/* a + b; Markup if one of them is, and the other one is then escaped. */
snug_status snug_jinja_add_text(struct snug_jinja_heap *heap, struct snug_jinja_value a, struct snug_jinja_value b,
                                struct snug_jinja_value *out);
/* What str.isdigit() and its like test of each character. */
enum snug_jinja_class {
    SNUG_JINJA_IS_ALPHA,
    SNUG_JINJA_IS_DIGIT,
    SNUG_JINJA_IS_ALNUM,
    SNUG_JINJA_IS_SPACE,
    SNUG_JINJA_IS_UPPER,
    SNUG_JINJA_IS_LOWER,
    SNUG_JINJA_IS_PRINTABLE,
};
bool snug_jinja_is(struct snug_jinja_value text, enum snug_jinja_class class);

#endif
