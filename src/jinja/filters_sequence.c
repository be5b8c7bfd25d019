/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of sequences. Those that jinja2 writes as generators give a value that can be passed over once. */
#include <string.h>

#include "jinja/filters.h"
#include "jinja/repr.h"
#include "jinja/run.h"

#define FILTER(name)                                                                                                   \
    static snug_status name(struct snug_jinja_run *run, struct snug_jinja_value value,                                 \
                            const struct snug_jinja_arguments *arguments, const struct snug_jinja_value *bound,        \
                            struct snug_jinja_value *out)

static bool truth_of(struct snug_jinja_value bound) { return snug_jinja_is_given(bound) && snug_jinja_is_true(bound); }

/* The attribute of an item that a filter works on: the item itself, if none is given. */
static snug_status key_of(struct snug_jinja_run *run, struct snug_jinja_value item, struct snug_jinja_value path,
                          bool ignore_case, struct snug_jinja_value *out) {
    *out = item;
    if (snug_jinja_is_given(path)) RETURN_IF_ERROR(snug_jinja_path(run, item, path, NULL, out));
    if (!ignore_case || out->type != SNUG_JINJA_STRING) return SNUG_OK;
    return snug_jinja_change_case(&run->heap, *out, SNUG_JINJA_LOWER, out);
}

static snug_status copy_items(struct snug_jinja_run *run, struct snug_jinja_value value, enum snug_jinja_type type,
                              struct snug_jinja_value *out) {
    struct snug_jinja_list *items;
    size_t first;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    const size_t count = items->count - first;
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, type, count, out));
    if (count) memcpy(out->list->items, items->items + first, count * sizeof *items->items);
    out->list->count = count;
    return snug_jinja_spend(&run->heap, count >> 2);
}

FILTER(filter_list) {
    (void)arguments, (void)bound;
    return copy_items(run, value, SNUG_JINJA_LIST, out);
}

FILTER(filter_length) {
    (void)arguments, (void)bound;
    size_t length = 0;
    switch ((enum snug_jinja_type)value.type) {
    case SNUG_JINJA_UNDEFINED: break;
    case SNUG_JINJA_STRING:
        length = snug_jinja_count(value);
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, value.length >> 6));
        break;
    case SNUG_JINJA_DICT: length = value.dict->count; break;
    case SNUG_JINJA_LIST:
    case SNUG_JINJA_TUPLE:
    case SNUG_JINJA_RANGE:
    case SNUG_JINJA_VIEW: length = value.list->count; break;
    default: return snug_jinja_fail(&run->heap, "object of type '%s' has no len()", snug_jinja_type_name(value.type));
    }
    *out = snug_jinja_int((int64_t)length);
    return SNUG_OK;
}

static snug_status pairs_of(struct snug_jinja_run *run, struct snug_jinja_value value, enum snug_jinja_type type,
                            struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, type, 0, out));
    for (size_t i = 0; value.type == SNUG_JINJA_DICT && i < value.dict->count; i++) {
        struct snug_jinja_value pair;
        RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_TUPLE, 2, &pair));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, pair.list, value.dict->pairs[i].key));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, pair.list, value.dict->pairs[i].value));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, pair));
    }
    return SNUG_OK;
}

FILTER(filter_items) {
    (void)arguments, (void)bound;
    if (value.type != SNUG_JINJA_DICT && value.type != SNUG_JINJA_UNDEFINED)
        return snug_jinja_fail(&run->heap, "Can only get item pairs from a mapping.");
    return pairs_of(run, value, SNUG_JINJA_GENERATOR, out);
}

FILTER(filter_join) {
    struct snug_jinja_builder builder = {0};
    struct snug_jinja_value separator = snug_jinja_string("", 0), text;
    struct snug_jinja_list *items;
    size_t first;
    (void)arguments;
    if (snug_jinja_is_given(bound[0])) RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, bound[0], &separator));
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    for (size_t i = first; i < items->count; i++) {
        const bool none = !snug_jinja_is_given(bound[1]) || bound[1].type == SNUG_JINJA_NONE;
        text = items->items[i];
        if (!none) RETURN_IF_ERROR(snug_jinja_path(run, text, bound[1], NULL, &text));
        RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, text, &text));
        if (i > first) RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, separator.text, separator.length));
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, text.text, text.length));
    }
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

FILTER(filter_first) {
    static const char none[] = "No first item, sequence was empty.";
    struct snug_jinja_list *items;
    size_t first;
    (void)arguments, (void)bound;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    *out = first < items->count ? items->items[first]
                                : snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, none, sizeof none - 1);
    if (value.type == SNUG_JINJA_GENERATOR && first < items->count) items->at = first + 1;
    return SNUG_OK;
}

FILTER(filter_last) {
    static const char none[] = "No last item, sequence was empty.";
    struct snug_jinja_list *items;
    size_t first;
    (void)arguments, (void)bound;
    if (value.type == SNUG_JINJA_GENERATOR) return snug_jinja_fail(&run->heap, "'generator' object is not reversible");
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    *out = items->count ? items->items[items->count - 1]
                        : snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, none, sizeof none - 1);
    return SNUG_OK;
}

FILTER(filter_reverse) {
    const struct snug_jinja_value backwards[] = {snug_jinja_none(), snug_jinja_none(), snug_jinja_int(-1)};
    (void)arguments, (void)bound;
    if (value.type == SNUG_JINJA_STRING) return snug_jinja_slice(run, value, backwards, out);
    RETURN_IF_ERROR(copy_items(run, value, SNUG_JINJA_GENERATOR, out));
    struct snug_jinja_value *items = out->list->items;
    for (size_t i = 0, k = out->list->count; i + 1 < k; i++) {
        const struct snug_jinja_value item = items[i];
        items[i] = items[--k];
        items[k] = item;
    }
    return SNUG_OK;
}

/* ---- map, select, reject ---- */

/* The arguments after the first `skipped` ones. */
static struct snug_jinja_arguments rest_of(const struct snug_jinja_arguments *arguments, size_t skipped) {
    struct snug_jinja_arguments rest = *arguments;
    if (skipped) rest.values += skipped;
    rest.count -= skipped;
    return rest;
}

static snug_status map_attributes(struct snug_jinja_run *run, const struct snug_jinja_list *items, size_t first,
                                  const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out) {
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    RETURN_IF_ERROR(snug_jinja_bind(run, "map", "attribute ?default", arguments, bound));
    const bool has_default = snug_jinja_is_given(bound[1]) && bound[1].type != SNUG_JINJA_NONE;
    for (size_t i = first; i < items->count; i++) {
        struct snug_jinja_value item;
        RETURN_IF_ERROR(snug_jinja_path(run, items->items[i], bound[0], has_default ? &bound[1] : NULL, &item));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, item));
    }
    return SNUG_OK;
}

FILTER(filter_map) {
    struct snug_jinja_list *items;
    size_t first;
    (void)bound;
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_GENERATOR, 0, out));
    if (!snug_jinja_is_true(value)) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    if (!arguments->count && arguments->keyword_count) return map_attributes(run, items, first, arguments, out);
    if (!arguments->count) return snug_jinja_fail(&run->heap, "map requires a filter argument");
    const struct snug_jinja_value name = arguments->values[0];
    const struct snug_jinja_arguments rest = rest_of(arguments, 1);
    RETURN_IF_ERROR(snug_jinja_need_text(run, "the name of a filter", name));
    RETURN_IF_ERROR(snug_jinja_descend(&run->heap)); /* a filter of a filter */
    for (size_t i = first; i < items->count; i++) {
        struct snug_jinja_value item;
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
        RETURN_IF_ERROR(
            snug_jinja_apply_filter(run, items->items[i], snug_jinja_filter_find(name), name, &rest, &item));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, item));
    }
    run->heap.depth--;
    return SNUG_OK;
}

/* select, reject; with_attribute: selectattr, rejectattr. */
static snug_status choose(struct snug_jinja_run *run, struct snug_jinja_value value,
                          const struct snug_jinja_arguments *arguments, bool with_attribute, bool wanted,
                          struct snug_jinja_value *out) {
    struct snug_jinja_list *items;
    size_t first;
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_GENERATOR, 0, out));
    if (!snug_jinja_is_true(value)) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    if (arguments->count < with_attribute) return snug_jinja_fail(&run->heap, "Missing parameter for attribute name");
    const bool has_test = arguments->count > with_attribute;
    const struct snug_jinja_value name = has_test ? arguments->values[with_attribute] : snug_jinja_none();
    const struct snug_jinja_arguments rest = rest_of(arguments, has_test ? with_attribute + 1u : with_attribute);
    if (has_test) RETURN_IF_ERROR(snug_jinja_need_text(run, "the name of a test", name));
    for (size_t i = first; i < items->count; i++) {
        struct snug_jinja_value item = items->items[i];
        bool fits;
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
        if (with_attribute) RETURN_IF_ERROR(snug_jinja_path(run, item, arguments->values[0], NULL, &item));
        fits = snug_jinja_is_true(item);
        if (has_test) RETURN_IF_ERROR(snug_jinja_apply_test(run, item, snug_jinja_test_find(name), name, &rest, &fits));
        if (fits == wanted) RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, items->items[i]));
    }
    return SNUG_OK;
}

FILTER(filter_select) {
    (void)bound;
    return choose(run, value, arguments, false, true, out);
}

FILTER(filter_reject) {
    (void)bound;
    return choose(run, value, arguments, false, false, out);
}

FILTER(filter_select_attribute) {
    (void)bound;
    return choose(run, value, arguments, true, true, out);
}

FILTER(filter_reject_attribute) {
    (void)bound;
    return choose(run, value, arguments, true, false, out);
}

/* ---- order ---- */

/* An item and what it is ordered by. */
struct keyed {
    struct snug_jinja_value key, item;
};

/* A stable merge sort by halves of growing width: comparisons may fail, which qsort() cannot tell. */
static snug_status sort(struct snug_jinja_run *run, struct keyed *items, size_t count, bool reverse) {
    struct keyed *other;
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, count * sizeof *other, (void **)&other));
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            const size_t middle = begin + width < count ? begin + width : count,
                         end = middle + width < count ? middle + width : count;
            size_t a = begin, b = middle;
            for (size_t to = begin; to < end; to++) {
                int order = 0;
                bool unordered = false;
                if (a < middle && b < end)
                    RETURN_IF_ERROR(
                        snug_jinja_compare(&run->heap, "<", items[b].key, items[a].key, &order, &unordered));
                const bool take_b = a == middle || (b < end && !unordered && (reverse ? order > 0 : order < 0));
                other[to] = take_b ? items[b++] : items[a++];
            }
        }
        memcpy(items, other, count * sizeof *items);
    }
    return SNUG_OK;
}

/* The keys of several attributes, "a,b", are a list. */
static snug_status sort_key(struct snug_jinja_run *run, struct snug_jinja_value item, struct snug_jinja_value attribute,
                            bool ignore_case, struct snug_jinja_value *out) {
    const struct snug_jinja_value comma = snug_jinja_string(",", 1);
    struct snug_jinja_value paths, key;
    if (attribute.type != SNUG_JINJA_STRING) return key_of(run, item, attribute, ignore_case, out);
    RETURN_IF_ERROR(snug_jinja_split(&run->heap, attribute, &comma, -1, false, &paths));
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_LIST, 0, out));
    for (size_t i = 0; i < paths.list->count; i++) {
        RETURN_IF_ERROR(key_of(run, item, paths.list->items[i], ignore_case, &key));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, key));
    }
    return SNUG_OK;
}

static snug_status sort_into(struct snug_jinja_run *run, struct keyed *keyed, size_t count, bool reverse,
                             struct snug_jinja_value *out) {
    RETURN_IF_ERROR(sort(run, keyed, count, reverse));
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_LIST, count, out));
    for (size_t i = 0; i < count; i++) out->list->items[i] = keyed[i].item;
    out->list->count = count;
    return SNUG_OK;
}

FILTER(filter_sort) {
    struct snug_jinja_list *items;
    struct keyed *keyed;
    size_t first;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    const size_t count = items->count - first;
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, count * sizeof *keyed, (void **)&keyed));
    for (size_t i = 0; i < count; i++) {
        keyed[i].item = items->items[first + i];
        RETURN_IF_ERROR(sort_key(run, keyed[i].item, bound[2], !truth_of(bound[1]), &keyed[i].key));
    }
    return sort_into(run, keyed, count, truth_of(bound[0]), out);
}

FILTER(filter_dictsort) {
    struct snug_jinja_value pairs;
    struct keyed *keyed;
    const bool by_value = snug_jinja_equals_text(bound[1], "value", 5);
    (void)arguments;
    if (snug_jinja_is_given(bound[1]) && !by_value && !snug_jinja_equals_text(bound[1], "key", 3))
        return snug_jinja_fail(&run->heap, "You can only sort by either \"key\" or \"value\"");
    if (value.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, value);
    if (value.type != SNUG_JINJA_DICT)
        return snug_jinja_fail(&run->heap, "'%s' object has no attribute 'items'", snug_jinja_type_name(value.type));
    RETURN_IF_ERROR(pairs_of(run, value, SNUG_JINJA_LIST, &pairs));
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, pairs.list->count * sizeof *keyed, (void **)&keyed));
    for (size_t i = 0; i < pairs.list->count; i++) {
        keyed[i].item = pairs.list->items[i];
        RETURN_IF_ERROR(
            key_of(run, keyed[i].item.list->items[by_value], snug_jinja_none(), !truth_of(bound[0]), &keyed[i].key));
    }
    return sort_into(run, keyed, pairs.list->count, truth_of(bound[2]), out);
}

static snug_status extreme(struct snug_jinja_run *run, struct snug_jinja_value value,
                           const struct snug_jinja_value *bound, bool least, struct snug_jinja_value *out) {
    static const char none[] = "No aggregated item, sequence was empty.";
    struct snug_jinja_value key, best = snug_jinja_none();
    struct snug_jinja_list *items;
    size_t first;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    *out = snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, none, sizeof none - 1);
    for (size_t i = first; i < items->count; i++) {
        int order = -1;
        bool unordered = false;
        RETURN_IF_ERROR(key_of(run, items->items[i], bound[1], !truth_of(bound[0]), &key));
        if (i > first)
            RETURN_IF_ERROR(snug_jinja_compare(&run->heap, least ? "<" : ">", key, best, &order, &unordered));
        if (i > first && (unordered || (least ? order >= 0 : order <= 0))) continue;
        best = key;
        *out = items->items[i];
    }
    return SNUG_OK;
}

FILTER(filter_min) {
    (void)arguments;
    return extreme(run, value, bound, true, out);
}

FILTER(filter_max) {
    (void)arguments;
    return extreme(run, value, bound, false, out);
}

FILTER(filter_unique) {
    struct snug_jinja_value seen, key, *before;
    struct snug_jinja_list *items;
    size_t first;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    RETURN_IF_ERROR(snug_jinja_dict_new(&run->heap, SNUG_JINJA_DICT, &seen));
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_GENERATOR, 0, out));
    for (size_t i = first; i < items->count; i++) {
        RETURN_IF_ERROR(key_of(run, items->items[i], bound[1], !truth_of(bound[0]), &key));
        RETURN_IF_ERROR(snug_jinja_dict_find(&run->heap, seen.dict, key, &before));
        if (before) continue;
        RETURN_IF_ERROR(snug_jinja_dict_set(&run->heap, seen.dict, key, key));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, items->items[i]));
    }
    return SNUG_OK;
}

FILTER(filter_sum) {
    struct snug_jinja_list *items;
    size_t first;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    *out = snug_jinja_is_given(bound[1]) ? bound[1] : snug_jinja_int(0);
    for (size_t i = first; i < items->count; i++) {
        struct snug_jinja_value item = items->items[i];
        if (snug_jinja_is_given(bound[0])) RETURN_IF_ERROR(snug_jinja_path(run, item, bound[0], NULL, &item));
        RETURN_IF_ERROR(snug_jinja_operate(run, SNUG_JINJA_ADD, *out, item, out));
    }
    return SNUG_OK;
}

/* ---- groups ---- */

/* Items [begin, end), and a last one if it is given. */
static snug_status add_group(struct snug_jinja_run *run, const struct snug_jinja_list *items, size_t begin, size_t end,
                             struct snug_jinja_value *out, struct snug_jinja_value *group) {
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_LIST, end - begin, group));
    for (size_t i = begin; i < end; i++) RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, group->list, items->items[i]));
    return snug_jinja_list_add(&run->heap, out->list, *group);
}

FILTER(filter_batch) {
    struct snug_jinja_list *items;
    struct snug_jinja_value group = {0};
    size_t first;
    int64_t size;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_need_int(run, bound[0], &size));
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_GENERATOR, 0, out));
    if (size < 1) return snug_jinja_fail(&run->heap, "batch needs at least one item in a group");
    for (size_t at = first; at < items->count;) {
        const size_t end = items->count - at < (size_t)size ? items->count : at + (size_t)size;
        RETURN_IF_ERROR(add_group(run, items, at, end, out, &group));
        at = end;
    }
    const bool fills = snug_jinja_is_given(bound[1]) && bound[1].type != SNUG_JINJA_NONE;
    while (fills && out->list->count && group.list->count < (size_t)size)
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, group.list, bound[1]));
    return SNUG_OK;
}

FILTER(filter_slice) {
    struct snug_jinja_list *items;
    struct snug_jinja_value group;
    size_t at;
    int64_t slices;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_need_int(run, bound[0], &slices));
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &at));
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_GENERATOR, 0, out));
    if (slices < 1) return snug_jinja_fail(&run->heap, "slice needs at least one slice");
    const size_t count = items->count - at, each = count / (size_t)slices, more = count % (size_t)slices;
    const bool fills = snug_jinja_is_given(bound[1]) && bound[1].type != SNUG_JINJA_NONE;
    for (size_t i = 0; i < (size_t)slices; i++) {
        const size_t end = at + each + (i < more);
        RETURN_IF_ERROR(add_group(run, items, at, end, out, &group));
        if (fills && i >= more) RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, group.list, bound[1]));
        at = end;
    }
    return SNUG_OK;
}

const struct snug_jinja_filter snug_jinja_sequence_filters[] = {
    {"list", "", filter_list},
    {"length", "", filter_length},
    {"count", "", filter_length},
    {"items", "", filter_items},
    {"join", "?d attribute", filter_join},
    {"first", "", filter_first},
    {"last", "", filter_last},
    {"reverse", "", filter_reverse},
    {"map", NULL, filter_map},
    {"select", NULL, filter_select},
    {"reject", NULL, filter_reject},
    {"selectattr", NULL, filter_select_attribute},
    {"rejectattr", NULL, filter_reject_attribute},
    {"sort", "?reverse case_sensitive attribute", filter_sort},
    {"dictsort", "?case_sensitive by reverse", filter_dictsort},
    {"min", "?case_sensitive attribute", filter_min},
    {"max", "?case_sensitive attribute", filter_max},
    {"unique", "?case_sensitive attribute", filter_unique},
    {"sum", "?attribute start", filter_sum},
    {"batch", "linecount ?fill_with", filter_batch},
    {"slice", "slices ?fill_with", filter_slice},
};
const size_t snug_jinja_sequence_filter_count =
    sizeof snug_jinja_sequence_filters / sizeof *snug_jinja_sequence_filters;
