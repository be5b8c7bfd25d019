/* SPDX-License-Identifier: Apache-2.0 */
/* Lists among the values of a row: words and tags, or labels joined by '|'. */
#ifndef SNUG_DATA_FIELD_LIST_H
#define SNUG_DATA_FIELD_LIST_H

#include <string.h>

#include "data/reader_impl.h"

/* A list whose items are being appended to the reader's record, each with a NUL after it. */
struct snug_field_list {
    struct snug_reader *reader;
    size_t start, count, strings, integers;
    const char *problem; /* why it cannot be used; the record has nothing of it then */
};
struct snug_field_list snug_field_list_begin(struct snug_reader *reader);
/* Adds the last text of the record, of which the value is. */
void snug_field_list_add(struct snug_field_list *list, const struct snug_value_place *item);
/* Words are NUL-terminated strings, or integers; labels are joined. Else SNUG_FIELD_OTHER with the problem. */
snug_status snug_field_list_end(struct snug_field_list *list, struct snug_value_place *out);

/* SNUG_FIELD_OTHER that says what a value is. */
static inline struct snug_value_place snug_other_value(const char *what) {
    return (struct snug_value_place){SNUG_FIELD_OTHER, what, 0, strlen(what)};
}
#define SNUG_OTHER_LIST "a list of other values"

#endif
