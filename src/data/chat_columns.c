/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat_columns.h"

#include <string.h>

const char *const snug_chat_nested[] = {"messages",  "conversations",        "history", "tools",
                                        "documents", "chat_template_kwargs", NULL};

bool snug_chat_is_nested(const char *name) {
    const char *const *next = snug_chat_nested;
    while (*next && strcmp(*next, name) != 0) next++;
    return *next;
}

static size_t find(const struct snug_column_names *list, const char *name) {
    return snug_column_find(list, name, strlen(name));
}

/* Whether the first row that has a value has a list, or its JSON text. */
static bool has_lists(const struct snug_peek *peek, size_t column) {
    for (size_t i = 0; i < peek->count; i++) {
        const struct snug_field *field = &peek->rows[i].fields[column];
        if (field->kind == SNUG_FIELD_MISSING) continue;
        const bool text = field->kind == SNUG_FIELD_JSON || field->kind == SNUG_FIELD_TEXT;
        return text && *field->text == '[';
    }
    return false;
}

static void add(const struct snug_column_names *list, const char *name, struct snug_columns *out) {
    const size_t column = find(list, name);
    if (column < list->count) out->text[out->texts++] = column;
}

bool snug_chat_columns_find(const struct snug_column_names *list, const struct snug_peek *peek, bool alpaca,
                            struct snug_columns *out) {
    static const char *const layouts[][5] = {{"messages", "conversations"},
                                             {"instruction", "output", "input", "system", "history"}};
    static const char *const beside[] = {"tools", "documents", "chat_template_kwargs"};
    const size_t first = find(list, layouts[alpaca][0]), second = find(list, layouts[alpaca][1]);
    const bool found =
        alpaca ? first < list->count && second < list->count
               : (first < list->count && has_lists(peek, first)) || (second < list->count && has_lists(peek, second));
    if (!found) return false;
    out->chat = true;
    for (size_t i = 0; i < 5 && layouts[alpaca][i]; i++) add(list, layouts[alpaca][i], out);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) add(list, beside[i], out);
    return true;
}
