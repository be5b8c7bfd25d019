/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat_columns.h"

#include <string.h>

const char *const snug_chat_nested[] = {"prompt",    "completion",           "chosen",  "rejected",
                                        "messages",  "conversations",        "history", "tools",
                                        "documents", "chat_template_kwargs", NULL};

bool snug_chat_is_nested(const char *name) {
    const char *const *next = snug_chat_nested;
    while (*next && strcmp(*next, name) != 0) next++;
    return *next;
}

static size_t find(const struct snug_column_names *list, const char *name) {
    return snug_column_find(list, name, strlen(name));
}

bool snug_chat_has_lists(const struct snug_peek *peek, size_t column) {
    for (size_t i = 0; i < peek->count; i++) {
        const struct snug_field *field = &peek->rows[i].fields[column];
        if (field->kind == SNUG_FIELD_MISSING) continue;
        const bool text = field->kind == SNUG_FIELD_JSON || field->kind == SNUG_FIELD_TEXT;
        return text && *field->text == '[';
    }
    return false;
}

bool snug_chat_columns_find(const struct snug_column_names *list, const struct snug_peek *peek,
                            enum snug_chat_layout layout, struct snug_columns *out) {
    static const char *const layouts[][5] = {
        [SNUG_CHAT_PROMPTS] = {"prompt", "completion"},
        [SNUG_CHAT_MESSAGES] = {"messages", "conversations"},
        [SNUG_CHAT_ALPACA] = {"instruction", "output", "input", "system", "history"},
    };
    static const char *const beside[] = {"tools", "documents", "chat_template_kwargs"};
    size_t found = 0;
    for (size_t i = 0; i < 2; i++) {
        const size_t column = find(list, layouts[layout][i]);
        found += column < list->count && (layout == SNUG_CHAT_ALPACA || snug_chat_has_lists(peek, column));
    }
    if (found < (layout == SNUG_CHAT_MESSAGES ? 1 : 2)) return false;
    out->chat = true;
    for (size_t i = 0; i < 5 && layouts[layout][i]; i++) snug_columns_add(list, layouts[layout][i], out);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) snug_columns_add(list, beside[i], out);
    return true;
}
