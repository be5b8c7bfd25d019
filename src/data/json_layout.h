/* SPDX-License-Identifier: Apache-2.0 */
/* How a JSON file that begins with an object holds its rows. */
#ifndef SNUG_DATA_JSON_LAYOUT_H
#define SNUG_DATA_JSON_LAYOUT_H

#include "data/json_cursor.h"

enum snug_json_layout {
    SNUG_JSON_OBJECTS,        /* one after the other, on a line each or on several */
    SNUG_JSON_LIST,           /* [{…}, {…}] */
    SNUG_JSON_LIST_IN_OBJECT, /* {"data": [{…}, {…}]} */
    SNUG_JSON_COLUMNS,        /* {"text": […], "label": […]}, or with objects by row number in place of the lists */
};

/* What the first object of a file holds. Zero-initialise; free(rows_key). */
struct snug_json_look {
    size_t keys, lists, objects, scalars; /* of objects those whose keys are row numbers */
    size_t lists_of_objects, lists_of_lists;
    char *rows_key; /* the list that may have the rows: the one called "data", else the first list of objects */
    int64_t length; /* of all lists and objects; -1: they differ */
    bool only;      /* nothing follows it */
    bool cut;       /* it is longer than what was read */
};

/* Whether the object may be one of columns, which is read as a whole, by what was seen of it. */
bool snug_json_may_be_columns(const struct snug_json_look *look);
/* Looks through the object that begins at the cursor. Malformed JSON is SNUG_E_INPUT. */
snug_status snug_json_look(struct snug_json_cursor *cursor, struct snug_json_look *look);
/* The layout. SNUG_E_INPUT: the object is no row, and it is not clear where its rows are. */
snug_status snug_json_layout_of(const struct snug_reader *reader, const struct snug_json_look *look,
                                enum snug_json_layout *out);

#endif
