/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes, items and slices: a.b tries the attribute, then the item; a["b"] the item, then the attribute. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/repr.h"
#include "jinja/run.h"

static struct snug_jinja_value no_member(struct snug_jinja_value of, struct snug_jinja_value name) {
    struct snug_jinja_value out = snug_jinja_undefined(SNUG_JINJA_MISSING_MEMBER, name.text, name.length);
    out.flag = (uint8_t)(out.flag + of.type);
    return out;
}

static snug_status message(struct snug_jinja_run *run, enum snug_jinja_missing missing, const char *text,
                           struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_copy(&run->heap, text, strlen(text), out));
    *out = snug_jinja_undefined(missing, out->text, out->length);
    return SNUG_OK;
}

static snug_status unsafe(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value name,
                          struct snug_jinja_value *out) {
    char text[256];
    snprintf(text, sizeof text, "access to attribute '%.*s' of '%s' object is unsafe.",
             name.length < 100 ? (int)name.length : 100, name.text, snug_jinja_type_name(of.type));
    return message(run, SNUG_JINJA_UNSAFE, text, out);
}

/* Methods that change a list or a dict. */
static bool changes(enum snug_jinja_type type, struct snug_jinja_value name) {
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = type == SNUG_JINJA_LIST ? of_list : of_dict;
    if (type != SNUG_JINJA_LIST && type != SNUG_JINJA_DICT) return false;
    for (; *names; names++)
        if (snug_jinja_equals_text(name, *names, strlen(*names))) return true;
    return false;
}

/* Python's attribute; *found is false if there is none. */
static snug_status find_attribute(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value name,
                                  bool *found, struct snug_jinja_value *out) {
    struct snug_jinja_value *value = NULL;
    struct snug_jinja_method *method;
    *found = true;
    if (of.type == SNUG_JINJA_LOOP) {
        RETURN_IF_ERROR(snug_jinja_loop_member(run, of.loop, name, found, out));
        if (*found) return SNUG_OK;
    }
    if (name.length > 4 && memcmp(name.text, "__", 2) == 0 && memcmp(name.text + name.length - 2, "__", 2) == 0)
        return unsafe(run, of, name, out);
    if (of.type == SNUG_JINJA_NAMESPACE) {
        RETURN_IF_ERROR(snug_jinja_dict_find(&run->heap, of.dict, name, &value));
        *found = value;
        if (value) *out = *value;
        return SNUG_OK;
    }
    if (changes(of.type, name)) return unsafe(run, of, name, out);
    const int number = snug_jinja_method_find(of.type, name);
    *found = number >= 0;
    if (!*found) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, sizeof *method, (void **)&method));
    *method = (struct snug_jinja_method){of, number};
    *out = (struct snug_jinja_value){.type = SNUG_JINJA_METHOD, .method = method};
    return SNUG_OK;
}

/* Python's item; *found is false if there is none, or the type has none. */
static snug_status find_item(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value key,
                             bool *found, struct snug_jinja_value *out) {
    struct snug_jinja_value *value;
    const bool sequence = of.type == SNUG_JINJA_LIST || of.type == SNUG_JINJA_TUPLE || of.type == SNUG_JINJA_RANGE;
    *found = false;
    if (of.type == SNUG_JINJA_DICT) {
        RETURN_IF_ERROR(snug_jinja_dict_find(&run->heap, of.dict, key, &value));
        *found = value;
        if (value) *out = *value;
        return SNUG_OK;
    }
    if ((!sequence && of.type != SNUG_JINJA_STRING) || (key.type != SNUG_JINJA_INT && key.type != SNUG_JINJA_BOOL))
        return SNUG_OK;
    const int64_t count = sequence ? (int64_t)of.list->count : (int64_t)snug_jinja_count(of);
    int64_t index = snug_jinja_to_int(key);
    if (index < 0) index += count;
    *found = index >= 0 && index < count;
    if (!*found) return SNUG_OK;
    *out = sequence ? of.list->items[index] : snug_jinja_cut(of, (size_t)index, (size_t)index + 1);
    return sequence ? SNUG_OK : snug_jinja_spend(&run->heap, of.length >> 6);
}

snug_status snug_jinja_attribute(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value name,
                                 struct snug_jinja_value *out) {
    bool found;
    if (of.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, of);
    RETURN_IF_ERROR(find_attribute(run, of, name, &found, out));
    if (!found) RETURN_IF_ERROR(find_item(run, of, name, &found, out));
    if (!found) *out = no_member(of, name);
    return SNUG_OK;
}

snug_status snug_jinja_item(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value key,
                            struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    bool found;
    if (of.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, of);
    RETURN_IF_ERROR(find_item(run, of, key, &found, out));
    if (found) return SNUG_OK;
    if (key.type == SNUG_JINJA_STRING) {
        RETURN_IF_ERROR(find_attribute(run, of, key, &found, out));
        if (!found) *out = no_member(of, key);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(
        snug_jinja_put_text(&run->heap, &builder, of.type == SNUG_JINJA_NONE ? "None" : snug_jinja_type_name(of.type)));
    RETURN_IF_ERROR(snug_jinja_put_text(&run->heap, &builder,
                                        of.type == SNUG_JINJA_NONE ? " has no element " : " object has no element "));
    RETURN_IF_ERROR(snug_jinja_repr(&run->heap, key, &builder));
    *out = snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, builder.text, builder.length);
    return SNUG_OK;
}

static snug_status path_part(struct snug_jinja_run *run, struct snug_jinja_value part,
                             const struct snug_jinja_value *otherwise, struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_item(run, *out, part, out));
    if (otherwise && out->type == SNUG_JINJA_UNDEFINED) *out = *otherwise;
    return SNUG_OK;
}

snug_status snug_jinja_path(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value path,
                            const struct snug_jinja_value *otherwise, struct snug_jinja_value *out) {
    const struct snug_jinja_value dot = snug_jinja_string(".", 1);
    struct snug_jinja_value parts;
    *out = of;
    if (path.type == SNUG_JINJA_NONE) return SNUG_OK;
    if (path.type != SNUG_JINJA_STRING) return path_part(run, path, otherwise, out);
    RETURN_IF_ERROR(snug_jinja_split(&run->heap, path, &dot, -1, false, &parts));
    for (size_t i = 0; i < parts.list->count; i++) {
        struct snug_jinja_value part = parts.list->items[i];
        char digits[20];
        if (snug_jinja_is(part, SNUG_JINJA_IS_DIGIT) && part.length < 18) {
            memcpy(digits, part.text, part.length);
            digits[part.length] = '\0';
            part = snug_jinja_int(strtoll(digits, NULL, 10));
        }
        RETURN_IF_ERROR(path_part(run, part, otherwise, out));
    }
    return SNUG_OK;
}

/* ---- slices ---- */

void snug_jinja_clamp(int64_t count, bool has_begin, int64_t begin, bool has_end, int64_t end, int64_t step,
                      int64_t *first, int64_t *out) {
    const int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? count - 1 : count;
    if (has_begin && begin < 0) begin += count;
    if (has_end && end < 0) end += count;
    if (!has_begin) begin = step < 0 ? highest : lowest;
    if (!has_end) end = step < 0 ? lowest : highest;
    begin = begin < lowest ? lowest : begin > highest ? highest : begin;
    end = end < lowest ? lowest : end > highest ? highest : end;
    *first = begin;
    *out = step < 0      ? (begin > end ? (begin - end - 1) / -step + 1 : 0)
           : begin < end ? (end - begin - 1) / step + 1
                         : 0;
}

/* Every step-th character: of a text, by characters. */
static snug_status slice_text(struct snug_jinja_run *run, struct snug_jinja_value of, int64_t first, int64_t count,
                              int64_t step, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    struct snug_jinja_list *characters;
    size_t none;
    RETURN_IF_ERROR(snug_jinja_spend(&run->heap, of.length >> 6));
    if (step == 1) {
        *out = snug_jinja_cut(of, (size_t)first, (size_t)(first + count));
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, of, &characters, &none));
    for (int64_t i = 0; i < count; i++) {
        const struct snug_jinja_value *character = &characters->items[first + i * step];
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, character->text, character->length));
    }
    *out = snug_jinja_built(&builder);
    out->flag = of.flag;
    return SNUG_OK;
}

snug_status snug_jinja_slice(struct snug_jinja_run *run, struct snug_jinja_value of,
                             const struct snug_jinja_value bounds[3], struct snug_jinja_value *out) {
    int64_t numbers[3] = {0, 0, 1}, first, count;
    if (of.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, of);
    const bool sequence = of.type == SNUG_JINJA_LIST || of.type == SNUG_JINJA_TUPLE || of.type == SNUG_JINJA_RANGE;
    bool fits = sequence || of.type == SNUG_JINJA_STRING;
    for (size_t i = 0; i < 3; i++) {
        if (bounds[i].type == SNUG_JINJA_NONE) continue;
        fits = fits && (bounds[i].type == SNUG_JINJA_INT || bounds[i].type == SNUG_JINJA_BOOL);
        if (fits) numbers[i] = snug_jinja_to_int(bounds[i]);
    }
    if (of.type == SNUG_JINJA_DICT) return snug_jinja_fail(&run->heap, "unhashable type: 'slice'");
    if (!sequence && of.type != SNUG_JINJA_STRING)
        return snug_jinja_fail(&run->heap, "'%s' object is not subscriptable", snug_jinja_type_name(of.type));
    if (!fits) return snug_jinja_fail(&run->heap, "slice indices must be integers or None or have an __index__ method");
    if (!numbers[2]) return snug_jinja_fail(&run->heap, "slice step cannot be zero");
    if (numbers[2] < -INT32_MAX) numbers[2] = -INT32_MAX; /* there are fewer items */
    if (numbers[2] > INT32_MAX) numbers[2] = INT32_MAX;
    const int64_t all = sequence ? (int64_t)of.list->count : (int64_t)snug_jinja_count(of);
    snug_jinja_clamp(all, bounds[0].type != SNUG_JINJA_NONE, numbers[0], bounds[1].type != SNUG_JINJA_NONE, numbers[1],
                     numbers[2], &first, &count);
    if (!sequence) return slice_text(run, of, first, count, numbers[2], out);
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, of.type == SNUG_JINJA_TUPLE ? SNUG_JINJA_TUPLE : SNUG_JINJA_LIST,
                                        (size_t)count, out));
    for (int64_t i = 0; i < count; i++) out->list->items[i] = of.list->items[first + i * numbers[2]];
    out->list->count = (size_t)count;
    return snug_jinja_spend(&run->heap, (uint64_t)count >> 2);
}
