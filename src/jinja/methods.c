/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of str, dict, list and tuple, and of loop. */
#include <string.h>

#include "jinja/run.h"

struct call {
    struct snug_jinja_run *run;
    struct snug_jinja_value self;
    const struct snug_jinja_arguments *arguments;
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    int which; /* of methods that share a function */
};

typedef snug_status method_fn(struct call *call, struct snug_jinja_value *out);

static snug_status optional_int(struct call *call, size_t index, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    const struct snug_jinja_value bound = call->bound[index];
    if (!snug_jinja_is_given(bound) || bound.type == SNUG_JINJA_NONE) return SNUG_OK;
    return snug_jinja_need_int(call->run, bound, out);
}

/* NULL where it is left out or None. */
static snug_status optional_text(struct call *call, size_t index, const struct snug_jinja_value **out) {
    *out = &call->bound[index];
    if (!snug_jinja_is_given(**out) || (*out)->type == SNUG_JINJA_NONE) {
        *out = NULL;
        return SNUG_OK;
    }
    return snug_jinja_need_text(call->run, "the argument", **out);
}

/* ---- str ---- */

enum { LEFT = 1, RIGHT = 2 };

static snug_status call_strip(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value *set;
    RETURN_IF_ERROR(optional_text(call, 0, &set));
    RETURN_IF_ERROR(snug_jinja_spend(&call->run->heap,
                                     1 + (set ? (uint64_t)call->self.length * set->length : call->self.length) / 64));
    *out = snug_jinja_strip(call->self, set, call->which & LEFT, call->which & RIGHT);
    return SNUG_OK;
}

static snug_status call_case(struct call *call, struct snug_jinja_value *out) {
    return snug_jinja_change_case(&call->run->heap, call->self, (enum snug_jinja_case)call->which, out);
}

static snug_status call_is(struct call *call, struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_spend(&call->run->heap, call->self.length >> 4));
    *out = snug_jinja_bool(snug_jinja_is(call->self, (enum snug_jinja_class)call->which));
    return SNUG_OK;
}

static snug_status call_split(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value *separator;
    int64_t most;
    RETURN_IF_ERROR(optional_text(call, 0, &separator));
    RETURN_IF_ERROR(optional_int(call, 1, -1, &most));
    return snug_jinja_split(&call->run->heap, call->self, separator, most, call->which == RIGHT, out);
}

static snug_status call_split_lines(struct call *call, struct snug_jinja_value *out) {
    const bool keep = snug_jinja_is_given(call->bound[0]) && snug_jinja_is_true(call->bound[0]);
    return snug_jinja_split_lines(&call->run->heap, call->self, keep, out);
}

static snug_status call_replace(struct call *call, struct snug_jinja_value *out) {
    int64_t most;
    RETURN_IF_ERROR(snug_jinja_need_text(call->run, "replace() argument 1", call->bound[0]));
    RETURN_IF_ERROR(snug_jinja_need_text(call->run, "replace() argument 2", call->bound[1]));
    RETURN_IF_ERROR(optional_int(call, 2, -1, &most));
    return snug_jinja_replace(&call->run->heap, call->self, call->bound[0], call->bound[1], most, out);
}

static bool has_end(struct snug_jinja_value text, struct snug_jinja_value part, bool at_end) {
    if (part.length > text.length) return false;
    return !part.length || memcmp(text.text + (at_end ? text.length - part.length : 0), part.text, part.length) == 0;
}

/* The part of self that the arguments from index on choose: [start, end). *begin: its first character; -1: it would
   begin beyond the end, where not even nothing is found. */
static snug_status bounded(struct call *call, size_t index, struct snug_jinja_value *out, int64_t *begin) {
    int64_t start, end, count, all = 0;
    *out = call->self;
    *begin = 0;
    const bool has_start = snug_jinja_is_given(call->bound[index]),
               has_stop = snug_jinja_is_given(call->bound[index + 1]);
    if (!has_start && !has_stop) return SNUG_OK;
    RETURN_IF_ERROR(optional_int(call, index, 0, &start));
    RETURN_IF_ERROR(optional_int(call, index + 1, INT64_MAX, &end));
    RETURN_IF_ERROR(snug_jinja_spend(&call->run->heap, call->self.length >> 6));
    all = (int64_t)snug_jinja_count(call->self);
    const bool beyond = start > all;
    snug_jinja_clamp(all, true, start, has_stop, end, 1, begin, &count);
    *out = snug_jinja_cut(call->self, (size_t)*begin, (size_t)(*begin + count));
    if (beyond) *begin = -1;
    return SNUG_OK;
}

static snug_status call_starts(struct call *call, struct snug_jinja_value *out) {
    struct snug_jinja_value text, *parts = &call->bound[0];
    int64_t begin;
    size_t count = 1;
    bool found = false;
    RETURN_IF_ERROR(bounded(call, 1, &text, &begin));
    if (parts->type == SNUG_JINJA_TUPLE) {
        count = parts->list->count;
        parts = parts->list->items;
    }
    for (size_t i = 0; i < count; i++) {
        if (parts[i].type != SNUG_JINJA_STRING)
            return snug_jinja_fail(&call->run->heap, "%s first arg must be str or a tuple of str, not %s",
                                   call->which == RIGHT ? "endswith" : "startswith",
                                   snug_jinja_type_name(parts[i].type));
        found = found || has_end(text, parts[i], call->which == RIGHT);
    }
    *out = snug_jinja_bool(found);
    return snug_jinja_spend(&call->run->heap, count);
}

enum { MUST = 4 }; /* index() and rindex(), which fail where find() gives -1 */

static snug_status call_find(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value sought = call->bound[0];
    struct snug_jinja_value text;
    int64_t begin;
    RETURN_IF_ERROR(snug_jinja_need_text(call->run, "the argument", sought));
    RETURN_IF_ERROR(bounded(call, 1, &text, &begin));
    RETURN_IF_ERROR(snug_jinja_spend(&call->run->heap, 1 + (uint64_t)text.length * (1 + sought.length / 16) / 16));
    const size_t at =
        call->which & RIGHT ? snug_jinja_find_last(text, sought, text.length) : snug_jinja_find(text, sought, 0);
    if (at == SIZE_MAX && call->which & MUST) return snug_jinja_fail(&call->run->heap, "substring not found");
    *out = snug_jinja_int(at == SIZE_MAX ? -1 : begin + (int64_t)snug_jinja_count(snug_jinja_string(text.text, at)));
    return SNUG_OK;
}

static snug_status call_count(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value sought = call->bound[0];
    struct snug_jinja_value text;
    int64_t begin, count = 0;
    RETURN_IF_ERROR(snug_jinja_need_text(call->run, "the argument", sought));
    RETURN_IF_ERROR(bounded(call, 1, &text, &begin));
    RETURN_IF_ERROR(snug_jinja_spend(&call->run->heap, 1 + (uint64_t)text.length * (1 + sought.length / 16) / 16));
    for (size_t at = 0; sought.length && (at = snug_jinja_find(text, sought, at)) != SIZE_MAX; at += sought.length)
        count++;
    *out = snug_jinja_int(sought.length ? count : (int64_t)snug_jinja_count(text) + 1);
    return SNUG_OK;
}

static snug_status call_join(struct call *call, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    struct snug_jinja_list *items;
    size_t first;
    RETURN_IF_ERROR(snug_jinja_iterate(&call->run->heap, call->bound[0], &items, &first));
    for (size_t i = first; i < items->count; i++) {
        const struct snug_jinja_value item = items->items[i];
        if (item.type != SNUG_JINJA_STRING)
            return snug_jinja_fail(&call->run->heap, "sequence item %zu: expected str instance, %s found", i - first,
                                   snug_jinja_type_name(item.type));
        if (i > first) RETURN_IF_ERROR(snug_jinja_put(&call->run->heap, &builder, call->self.text, call->self.length));
        RETURN_IF_ERROR(snug_jinja_put(&call->run->heap, &builder, item.text, item.length));
    }
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

static snug_status call_remove_end(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value part = call->bound[0];
    RETURN_IF_ERROR(snug_jinja_need_text(call->run, "the argument", part));
    *out = call->self;
    if (!has_end(call->self, part, call->which == RIGHT)) return SNUG_OK;
    out->length -= part.length;
    if (call->which == LEFT) out->text += part.length;
    return SNUG_OK;
}

static snug_status call_partition(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value text = call->self, by = call->bound[0];
    RETURN_IF_ERROR(snug_jinja_need_text(call->run, "the argument", by));
    if (!by.length) return snug_jinja_fail(&call->run->heap, "empty separator");
    RETURN_IF_ERROR(snug_jinja_spend(&call->run->heap, 1 + (uint64_t)text.length * (1 + by.length / 16) / 16));
    const bool right = call->which == RIGHT;
    const size_t at = right ? snug_jinja_find_last(text, by, text.length) : snug_jinja_find(text, by, 0);
    const size_t end = at == SIZE_MAX ? (right ? 0 : text.length) : at, rest = at == SIZE_MAX ? end : at + by.length;
    RETURN_IF_ERROR(snug_jinja_list_new(&call->run->heap, SNUG_JINJA_TUPLE, 3, out));
    RETURN_IF_ERROR(snug_jinja_list_add(&call->run->heap, out->list, snug_jinja_string(text.text, end)));
    RETURN_IF_ERROR(snug_jinja_list_add(&call->run->heap, out->list, snug_jinja_string(text.text + end, rest - end)));
    return snug_jinja_list_add(&call->run->heap, out->list, snug_jinja_string(text.text + rest, text.length - rest));
}

static snug_status put_times(struct call *call, struct snug_jinja_builder *builder, const char *text, size_t length,
                             int64_t times) {
    for (; times > 0; times--) {
        RETURN_IF_ERROR(snug_jinja_spend(&call->run->heap, 1));
        RETURN_IF_ERROR(snug_jinja_put(&call->run->heap, builder, text, length));
    }
    return SNUG_OK;
}

/* ljust, rjust, center. */
static snug_status call_justify(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value *fill, text = call->self;
    struct snug_jinja_builder builder = {0};
    int64_t width;
    RETURN_IF_ERROR(snug_jinja_need_int(call->run, call->bound[0], &width));
    RETURN_IF_ERROR(optional_text(call, 1, &fill));
    if (fill && snug_jinja_count(*fill) != 1)
        return snug_jinja_fail(&call->run->heap, "The fill character must be exactly one character long");
    const int64_t count = (int64_t)snug_jinja_count(text), more = width > count ? width - count : 0;
    const int64_t left = call->which == LEFT ? 0 : call->which == RIGHT ? more : more / 2 + (more & width & 1);
    const char *with = fill ? fill->text : " ";
    const size_t length = fill ? fill->length : 1;
    RETURN_IF_ERROR(put_times(call, &builder, with, length, left));
    RETURN_IF_ERROR(snug_jinja_put(&call->run->heap, &builder, text.text, text.length));
    RETURN_IF_ERROR(put_times(call, &builder, with, length, more - left));
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

static snug_status call_zfill(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_value text = call->self;
    struct snug_jinja_builder builder = {0};
    int64_t width;
    RETURN_IF_ERROR(snug_jinja_need_int(call->run, call->bound[0], &width));
    const size_t sign = text.length && (text.text[0] == '-' || text.text[0] == '+');
    RETURN_IF_ERROR(snug_jinja_put(&call->run->heap, &builder, text.text, sign));
    RETURN_IF_ERROR(put_times(call, &builder, "0", 1, width - (int64_t)snug_jinja_count(text)));
    RETURN_IF_ERROR(snug_jinja_put(&call->run->heap, &builder, text.text + sign, text.length - sign));
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

static snug_status call_format(struct call *call, struct snug_jinja_value *out) {
    return snug_jinja_format(call->run, call->self, call->arguments, out);
}

/* ---- dict ---- */

static snug_status call_get(struct call *call, struct snug_jinja_value *out) {
    struct snug_jinja_value *found;
    RETURN_IF_ERROR(snug_jinja_dict_find(&call->run->heap, call->self.dict, call->bound[0], &found));
    *out = found ? *found : snug_jinja_is_given(call->bound[1]) ? call->bound[1] : snug_jinja_none();
    return SNUG_OK;
}

static snug_status call_view(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_dict *dict = call->self.dict;
    RETURN_IF_ERROR(snug_jinja_list_new(&call->run->heap, SNUG_JINJA_VIEW, dict->count, out));
    out->flag = (uint8_t)call->which;
    for (size_t i = 0; i < dict->count; i++) {
        struct snug_jinja_value item = call->which == SNUG_JINJA_VIEW_KEYS ? dict->pairs[i].key : dict->pairs[i].value;
        if (call->which == SNUG_JINJA_VIEW_ITEMS) {
            RETURN_IF_ERROR(snug_jinja_list_new(&call->run->heap, SNUG_JINJA_TUPLE, 2, &item));
            item.list->items[0] = dict->pairs[i].key;
            item.list->items[1] = dict->pairs[i].value;
            item.list->count = 2;
        }
        out->list->items[out->list->count++] = item;
    }
    return SNUG_OK;
}

static snug_status call_copy(struct call *call, struct snug_jinja_value *out) {
    *out = call->self; /* values are immutable */
    return SNUG_OK;
}

/* ---- list, tuple, loop ---- */

static snug_status call_count_items(struct call *call, struct snug_jinja_value *out) {
    const struct snug_jinja_list *list = call->self.list;
    int64_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool same;
        RETURN_IF_ERROR(snug_jinja_equal(&call->run->heap, list->items[i], call->bound[0], &same));
        if (same && call->which == MUST) {
            *out = snug_jinja_int((int64_t)i);
            return SNUG_OK;
        }
        count += same;
    }
    if (call->which == MUST) return snug_jinja_fail(&call->run->heap, "the value is not in the list");
    *out = snug_jinja_int(count);
    return SNUG_OK;
}

static snug_status call_cycle(struct call *call, struct snug_jinja_value *out) {
    if (!call->arguments->count) return snug_jinja_fail(&call->run->heap, "no items for cycling given");
    *out = call->arguments->values[call->self.loop->index % (int64_t)call->arguments->count];
    return SNUG_OK;
}

static snug_status call_changed(struct call *call, struct snug_jinja_value *out) {
    struct snug_jinja_loop *loop = call->self.loop;
    struct snug_jinja_value now;
    bool same = false;
    RETURN_IF_ERROR(snug_jinja_list_new(&call->run->heap, SNUG_JINJA_TUPLE, 0, &now));
    for (size_t i = 0; i < call->arguments->count; i++)
        RETURN_IF_ERROR(snug_jinja_list_add(&call->run->heap, now.list, call->arguments->values[i]));
    if (loop->has_changed) RETURN_IF_ERROR(snug_jinja_equal(&call->run->heap, loop->changed, now, &same));
    loop->changed = now;
    loop->has_changed = true;
    *out = snug_jinja_bool(!same);
    return SNUG_OK;
}

/* ---- the table ---- */

enum {
    OF_TEXT = 1 << SNUG_JINJA_STRING,
    OF_DICT = 1 << SNUG_JINJA_DICT,
    OF_LIST = 1 << SNUG_JINJA_LIST | 1 << SNUG_JINJA_TUPLE,
    OF_LOOP = 1 << SNUG_JINJA_LOOP
};

static const struct {
    int types;
    const char *name, *parameters; /* NULL: the arguments as they are */
    method_fn *call;
    int which;
} methods[] = {
    {OF_TEXT, "strip", "?chars", call_strip, LEFT | RIGHT},
    {OF_TEXT, "lstrip", "?chars", call_strip, LEFT},
    {OF_TEXT, "rstrip", "?chars", call_strip, RIGHT},
    {OF_TEXT, "split", "?sep maxsplit", call_split, LEFT},
    {OF_TEXT, "rsplit", "?sep maxsplit", call_split, RIGHT},
    {OF_TEXT, "splitlines", "?keepends", call_split_lines, 0},
    {OF_TEXT, "replace", "old new ?count", call_replace, 0},
    {OF_TEXT, "startswith", "prefix ?start end", call_starts, LEFT},
    {OF_TEXT, "endswith", "suffix ?start end", call_starts, RIGHT},
    {OF_TEXT, "find", "sub ?start end", call_find, LEFT},
    {OF_TEXT, "rfind", "sub ?start end", call_find, RIGHT},
    {OF_TEXT, "index", "sub ?start end", call_find, LEFT | MUST},
    {OF_TEXT, "rindex", "sub ?start end", call_find, RIGHT | MUST},
    {OF_TEXT, "count", "sub ?start end", call_count, 0},
    {OF_TEXT, "join", "iterable", call_join, 0},
    {OF_TEXT, "format", NULL, call_format, 0},
    {OF_TEXT, "upper", "", call_case, SNUG_JINJA_UPPER},
    {OF_TEXT, "lower", "", call_case, SNUG_JINJA_LOWER},
    {OF_TEXT, "capitalize", "", call_case, SNUG_JINJA_CAPITALIZE},
    {OF_TEXT, "title", "", call_case, SNUG_JINJA_TITLE},
    {OF_TEXT, "swapcase", "", call_case, SNUG_JINJA_SWAP},
    {OF_TEXT, "isalpha", "", call_is, SNUG_JINJA_IS_ALPHA},
    {OF_TEXT, "isdigit", "", call_is, SNUG_JINJA_IS_DIGIT},
    {OF_TEXT, "isdecimal", "", call_is, SNUG_JINJA_IS_DIGIT},
    {OF_TEXT, "isalnum", "", call_is, SNUG_JINJA_IS_ALNUM},
    {OF_TEXT, "isspace", "", call_is, SNUG_JINJA_IS_SPACE},
    {OF_TEXT, "isupper", "", call_is, SNUG_JINJA_IS_UPPER},
    {OF_TEXT, "islower", "", call_is, SNUG_JINJA_IS_LOWER},
    {OF_TEXT, "isprintable", "", call_is, SNUG_JINJA_IS_PRINTABLE},
    {OF_TEXT, "removeprefix", "prefix", call_remove_end, LEFT},
    {OF_TEXT, "removesuffix", "suffix", call_remove_end, RIGHT},
    {OF_TEXT, "partition", "sep", call_partition, LEFT},
    {OF_TEXT, "rpartition", "sep", call_partition, RIGHT},
    {OF_TEXT, "ljust", "width ?fillchar", call_justify, LEFT},
    {OF_TEXT, "rjust", "width ?fillchar", call_justify, RIGHT},
    {OF_TEXT, "center", "width ?fillchar", call_justify, LEFT | RIGHT},
    {OF_TEXT, "zfill", "width", call_zfill, 0},
    {OF_DICT, "get", "key ?default", call_get, 0},
    {OF_DICT, "items", "", call_view, SNUG_JINJA_VIEW_ITEMS},
    {OF_DICT, "keys", "", call_view, SNUG_JINJA_VIEW_KEYS},
    {OF_DICT, "values", "", call_view, SNUG_JINJA_VIEW_VALUES},
    {OF_DICT, "copy", "", call_copy, 0},
    {1 << SNUG_JINJA_LIST, "copy", "", call_copy, 0},
    {OF_LIST, "count", "value", call_count_items, 0},
    {OF_LIST, "index", "value", call_count_items, MUST},
    {OF_LOOP, "cycle", NULL, call_cycle, 0},
    {OF_LOOP, "changed", NULL, call_changed, 0},
};

int snug_jinja_method_find(enum snug_jinja_type type, struct snug_jinja_value name) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].types >> type & 1 && snug_jinja_equals_text(name, methods[i].name, strlen(methods[i].name)))
            return (int)i;
    return -1;
}

snug_status snug_jinja_method_call(struct snug_jinja_run *run, const struct snug_jinja_method *method,
                                   const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out) {
    struct call call = {
        .run = run, .self = method->self, .arguments = arguments, .which = methods[method->number].which};
    const char *parameters = methods[method->number].parameters;
    if (parameters)
        RETURN_IF_ERROR(snug_jinja_bind(run, methods[method->number].name, parameters, arguments, call.bound));
    return methods[method->number].call(&call, out);
}
