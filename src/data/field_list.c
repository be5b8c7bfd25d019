/* SPDX-License-Identifier: Apache-2.0 */
#include "data/field_list.h"

struct snug_field_list snug_field_list_begin(struct snug_reader *reader) {
    return (struct snug_field_list){.reader = reader, .start = reader->record_size};
}

/* What keeps an item from being used with the others; NULL: nothing. */
static const char *problem_of(const struct snug_field_list *list, const struct snug_value_place *item) {
    const char *text = list->reader->record + item->start;
    if (item->kind != SNUG_FIELD_TEXT && item->kind != SNUG_FIELD_INTEGER && item->kind != SNUG_FIELD_REAL)
        return SNUG_OTHER_LIST;
    if (strlen(text) != item->length) return "a list with an item that holds \\u0000";
    if (list->reader->words) return NULL;
    if (!item->length) return "a list with an empty item";
    return strchr(text, '|') ? "a list with an item that holds '|', by which snug separates labels: rename it" : NULL;
}

void snug_field_list_add(struct snug_field_list *list, const struct snug_value_place *item) {
    struct snug_reader *reader = list->reader;
    if (!list->problem) list->problem = problem_of(list, item);
    if (list->problem)
        reader->record_size = list->start;
    else if (list->count && !reader->words)
        reader->record[item->start - 1] = '|';
    list->strings += item->kind == SNUG_FIELD_TEXT;
    list->integers += item->kind == SNUG_FIELD_INTEGER;
    list->count++;
}

snug_status snug_field_list_end(struct snug_field_list *list, struct snug_value_place *out) {
    struct snug_reader *reader = list->reader;
    const bool words = reader->words;
    if (words && !list->problem && list->strings != list->count && list->integers != list->count)
        list->problem = SNUG_OTHER_LIST;
    if (list->problem) {
        reader->record_size = list->start;
        *out = snug_other_value(list->problem);
        return SNUG_OK;
    }
    if (!list->count || words) RETURN_IF_ERROR(snug_reader_append(reader, "", 1));
    const enum snug_field_kind kind = !words ? SNUG_FIELD_LIST : list->integers ? SNUG_FIELD_NUMBERS : SNUG_FIELD_WORDS;
    *out = (struct snug_value_place){kind, NULL, list->start, reader->record_size - list->start - 1};
    return SNUG_OK;
}
