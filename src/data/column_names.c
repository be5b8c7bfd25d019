/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column_names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/utf8.h"
#include "data/label_names.h"

void snug_column_names_add(char *text, size_t size, const char *name) {
    char shown[SNUG_NAME_SHOWN];
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used ? ", " : "", snug_column_show(shown, name));
    text[snug_utf8_cut(text, strlen(text))] = '\0';
}

void snug_column_names_init(struct snug_column_names *out, const char *const *names, size_t count) {
    *out = (struct snug_column_names){.names = names, .count = count};
    for (size_t i = 0; i < count; i++) snug_column_names_add(out->text, sizeof out->text, names[i]);
}

size_t snug_column_find(const struct snug_column_names *list, const char *name, size_t length) {
    size_t i = 0;
    while (i < list->count && (strlen(list->names[i]) != length || memcmp(list->names[i], name, length) != 0)) i++;
    return i;
}

/* A name without the blanks around it. */
static const char *trim(const char *name, size_t *length) {
    for (; *length && *name == ' '; name++) --*length;
    while (*length && name[*length - 1] == ' ') --*length;
    return name;
}

static bool is_alike(const char *a, size_t a_length, const char *b, size_t b_length) {
    a = trim(a, &a_length);
    b = trim(b, &b_length);
    return a_length == b_length && strncasecmp(a, b, a_length) == 0;
}

size_t snug_column_find_alike(const struct snug_column_names *list, const char *name, size_t length) {
    size_t i = 0;
    while (i < list->count && !is_alike(list->names[i], strlen(list->names[i]), name, length)) i++;
    return i;
}

size_t snug_column_find_usual(const struct snug_column_names *list, const char *const usual[]) {
    for (const char *const *name = usual; *name; name++) {
        const size_t column = snug_column_find(list, *name, strlen(*name));
        if (column < list->count) return column;
    }
    for (const char *const *name = usual; *name; name++) {
        const size_t column = snug_column_find_alike(list, *name, strlen(*name));
        if (column < list->count) return column;
    }
    return list->count;
}

bool snug_column_is_usual(const char *name, const char *const usual[]) {
    bool found = false;
    for (; *usual; usual++) found |= is_alike(name, strlen(name), *usual, strlen(*usual));
    return found;
}
