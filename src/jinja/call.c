/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of macros, global functions, methods and recursive loops. */
#include <string.h>

#include "jinja/repr.h"
#include "jinja/run.h"

/* ---- arguments ---- */

enum { NOT_GIVEN = 255 };

bool snug_jinja_is_given(struct snug_jinja_value bound) {
    return bound.type != SNUG_JINJA_UNDEFINED || bound.flag != NOT_GIVEN;
}

snug_status snug_jinja_bind(struct snug_jinja_run *run, const char *callee, const char *parameters,
                            const struct snug_jinja_arguments *arguments,
                            struct snug_jinja_value out[SNUG_JINJA_PARAMETERS_MOST]) {
    size_t number = 0, named = 0;
    bool optional = false;
    for (const char *at = parameters; *at; number++) {
        optional = optional || *at == '?';
        at += *at == '?';
        const size_t length = strcspn(at, " ");
        out[number] = (struct snug_jinja_value){.type = SNUG_JINJA_UNDEFINED, .flag = NOT_GIVEN};
        if (number < arguments->count) out[number] = arguments->values[number];
        for (size_t i = 0; number >= arguments->count && i < arguments->keyword_count; i++) {
            if (!snug_jinja_equals_text(arguments->keywords[i].key, at, length)) continue;
            out[number] = arguments->keywords[i].value;
            named++;
        }
        if (!optional && !snug_jinja_is_given(out[number]))
            return snug_jinja_fail(&run->heap, "%s misses its argument '%.*s'", callee, (int)length, at);
        at += length;
        at += strspn(at, " ");
    }
    if (arguments->count > number)
        return snug_jinja_fail(&run->heap, "%s takes at most %zu arguments, not %zu", callee, number, arguments->count);
    if (named < arguments->keyword_count)
        return snug_jinja_fail(&run->heap, "%s has an unexpected keyword argument, or one that is given twice", callee);
    return SNUG_OK;
}

snug_status snug_jinja_need_int(struct snug_jinja_run *run, struct snug_jinja_value bound, int64_t *out) {
    if (bound.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, bound);
    if (bound.type != SNUG_JINJA_INT && bound.type != SNUG_JINJA_BOOL)
        return snug_jinja_fail(&run->heap, "'%s' object cannot be interpreted as an integer",
                               snug_jinja_type_name(bound.type));
    *out = snug_jinja_to_int(bound);
    return SNUG_OK;
}

snug_status snug_jinja_need_text(struct snug_jinja_run *run, const char *what, struct snug_jinja_value bound) {
    if (bound.type == SNUG_JINJA_STRING) return SNUG_OK;
    return snug_jinja_fail(&run->heap, "%s must be str, not %s", what, snug_jinja_type_name(bound.type));
}

/* ---- global functions ---- */

typedef snug_status call_fn(struct snug_jinja_run *run, const struct snug_jinja_arguments *arguments,
                            struct snug_jinja_value *out);

static snug_status call_raise(struct snug_jinja_run *run, const struct snug_jinja_arguments *arguments,
                              struct snug_jinja_value *out) {
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    RETURN_IF_ERROR(snug_jinja_bind(run, "raise_exception()", "message", arguments, bound));
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, bound[0], out));
    return snug_jinja_fail(&run->heap, "%.*s", (int)out->length, out->text);
}

static snug_status call_date(struct snug_jinja_run *run, const struct snug_jinja_arguments *arguments,
                             struct snug_jinja_value *out) {
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    RETURN_IF_ERROR(snug_jinja_bind(run, "strftime_now()", "format", arguments, bound));
    RETURN_IF_ERROR(snug_jinja_need_text(run, "strftime() argument 1", bound[0]));
    return snug_jinja_date(run, bound[0], out);
}

/* The items of a list of pairs. */
static snug_status add_pairs(struct snug_jinja_run *run, struct snug_jinja_value from, struct snug_jinja_dict *dict) {
    struct snug_jinja_list *items, *pair;
    size_t first, at;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, from, &items, &first));
    for (size_t i = first; i < items->count; i++) {
        RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, items->items[i], &pair, &at));
        if (pair->count - at != 2)
            return snug_jinja_fail(&run->heap, "dictionary update sequence element #%zu has length %zu; 2 is required",
                                   i - first, pair->count - at);
        RETURN_IF_ERROR(snug_jinja_dict_set(&run->heap, dict, pair->items[at], pair->items[at + 1]));
    }
    return SNUG_OK;
}

static snug_status make_dict(struct snug_jinja_run *run, enum snug_jinja_type type, const char *callee,
                             const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out) {
    if (arguments->count > 1)
        return snug_jinja_fail(&run->heap, "%s expected at most 1 argument, got %zu", callee, arguments->count);
    RETURN_IF_ERROR(snug_jinja_dict_new(&run->heap, type, out));
    const struct snug_jinja_value *from = arguments->count ? arguments->values : NULL;
    if (from && from->type != SNUG_JINJA_DICT) RETURN_IF_ERROR(add_pairs(run, *from, out->dict));
    for (size_t i = 0; from && from->type == SNUG_JINJA_DICT && i < from->dict->count; i++)
        RETURN_IF_ERROR(
            snug_jinja_dict_set(&run->heap, out->dict, from->dict->pairs[i].key, from->dict->pairs[i].value));
    for (size_t i = 0; i < arguments->keyword_count; i++)
        RETURN_IF_ERROR(
            snug_jinja_dict_set(&run->heap, out->dict, arguments->keywords[i].key, arguments->keywords[i].value));
    return SNUG_OK;
}

static snug_status call_dict(struct snug_jinja_run *run, const struct snug_jinja_arguments *arguments,
                             struct snug_jinja_value *out) {
    return make_dict(run, SNUG_JINJA_DICT, "dict", arguments, out);
}

static snug_status call_namespace(struct snug_jinja_run *run, const struct snug_jinja_arguments *arguments,
                                  struct snug_jinja_value *out) {
    RETURN_IF_ERROR(make_dict(run, SNUG_JINJA_NAMESPACE, "namespace", arguments, out));
    for (size_t i = 0; i < out->dict->count; i++) {
        const struct snug_jinja_value key = out->dict->pairs[i].key;
        if (key.type == SNUG_JINJA_STRING && key.length && key.text[0] == '_')
            return snug_jinja_fail(&run->heap,
                                   "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
                                   "'%.*s'. Please rename the attribute.",
                                   (int)key.length, key.text);
    }
    return SNUG_OK;
}

enum { RANGE_MOST = 100000 }; /* the sandbox's */

static snug_status call_range(struct snug_jinja_run *run, const struct snug_jinja_arguments *arguments,
                              struct snug_jinja_value *out) {
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    int64_t numbers[3] = {0, 0, 1};
    RETURN_IF_ERROR(snug_jinja_bind(run, "range()", "start ?stop step", arguments, bound));
    for (size_t i = 0; i < 3; i++)
        if (snug_jinja_is_given(bound[i])) RETURN_IF_ERROR(snug_jinja_need_int(run, bound[i], &numbers[i]));
    const int64_t start = arguments->count == 1 ? 0 : numbers[0], step = numbers[2],
                  stop = arguments->count == 1 ? numbers[0] : numbers[1];
    if (!step) return snug_jinja_fail(&run->heap, "range() arg 3 must not be zero");
    const bool empty = step > 0 ? start >= stop : start <= stop;
    const uint64_t distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop,
                   size = step > 0 ? (uint64_t)step : -(uint64_t)step, count = empty ? 0 : (distance - 1) / size + 1;
    if (count > RANGE_MOST)
        return snug_jinja_fail(&run->heap, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                               RANGE_MOST);
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_RANGE, count, out));
    for (uint64_t i = 0; i < count; i++) out->list->items[i] = snug_jinja_int(start + (int64_t)i * step);
    out->list->count = count;
    out->list->start = start, out->list->stop = stop, out->list->step = step;
    return snug_jinja_spend(&run->heap, count >> 2);
}

static const struct {
    const char *name;
    call_fn *call;
} functions[] = {{"raise_exception", call_raise},
                 {"strftime_now", call_date},
                 {"namespace", call_namespace},
                 {"dict", call_dict},
                 {"range", call_range}};

bool snug_jinja_global(struct snug_jinja_value name, struct snug_jinja_value *out) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!snug_jinja_equals_text(name, functions[i].name, strlen(functions[i].name))) continue;
        *out = (struct snug_jinja_value){.type = SNUG_JINJA_FUNCTION, .integer = (int64_t)i};
        return true;
    }
    return false;
}

/* ---- macros ---- */

/* The keyword argument of this name, which is taken out of left. */
static bool take_keyword(struct snug_jinja_arguments *left, struct snug_jinja_value name,
                         struct snug_jinja_value *out) {
    for (size_t i = 0; i < left->keyword_count; i++) {
        if (!snug_jinja_equals_text(left->keywords[i].key, name.text, name.length)) continue;
        *out = left->keywords[i].value;
        left->keyword_count--;
        memmove(left->keywords + i, left->keywords + i + 1, (left->keyword_count - i) * sizeof *left->keywords);
        return true;
    }
    return false;
}

/* Parameters by position, then by name, then by default; *taken: the positional arguments that they took. */
static snug_status set_parameters(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                  const struct snug_jinja_node *parameter, struct snug_jinja_arguments *left,
                                  size_t *taken) {
    for (; parameter; parameter = parameter->next) {
        const struct snug_jinja_value name = run->template->names[parameter->name];
        struct snug_jinja_value value;
        struct snug_jinja_builder message = {0};
        if (*taken < left->count) {
            value = left->values[(*taken)++];
        } else if (!take_keyword(left, name, &value)) {
            if (parameter->a) {
                RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, parameter->a, &value));
            } else {
                RETURN_IF_ERROR(snug_jinja_put_text(&run->heap, &message, "parameter '"));
                RETURN_IF_ERROR(snug_jinja_put(&run->heap, &message, name.text, name.length));
                RETURN_IF_ERROR(snug_jinja_put_text(&run->heap, &message, "' was not provided"));
                value = snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, message.text, message.length);
            }
        }
        RETURN_IF_ERROR(snug_jinja_set(run, scope, parameter->name, value));
    }
    return SNUG_OK;
}

/* caller, varargs and kwargs, where the body reads them, or else an argument too many is an error. */
static snug_status set_rest(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                            const struct snug_jinja_node *node, struct snug_jinja_arguments *left, size_t taken) {
    static const char none[] = "No caller defined";
    const struct snug_jinja_value *names = run->template->names, name = names[node->name];
    struct snug_jinja_value value;
    if (node->flags & SNUG_JINJA_CALLER) {
        if (!take_keyword(left, names[SNUG_JINJA_NAME_CALLER], &value))
            value = snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, none, sizeof none - 1);
        RETURN_IF_ERROR(snug_jinja_set(run, scope, SNUG_JINJA_NAME_CALLER, value));
    }
    if (node->flags & SNUG_JINJA_KWARGS) {
        const struct snug_jinja_arguments rest = {.keywords = left->keywords, .keyword_count = left->keyword_count};
        RETURN_IF_ERROR(make_dict(run, SNUG_JINJA_DICT, "dict", &rest, &value));
        RETURN_IF_ERROR(snug_jinja_set(run, scope, SNUG_JINJA_NAME_KWARGS, value));
    } else if (left->keyword_count) {
        const struct snug_jinja_value key = left->keywords[0].key;
        return snug_jinja_fail(&run->heap, "macro '%.*s' takes no keyword argument '%.*s'", (int)name.length, name.text,
                               (int)key.length, key.text);
    }
    if (node->flags & SNUG_JINJA_VARARGS) {
        RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_TUPLE, 0, &value));
        for (; taken < left->count; taken++)
            RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, value.list, left->values[taken]));
        return snug_jinja_set(run, scope, SNUG_JINJA_NAME_VARARGS, value);
    }
    if (taken < left->count)
        return snug_jinja_fail(&run->heap, "macro '%.*s' takes not more than %zu argument(s)", (int)name.length,
                               name.text, taken);
    return SNUG_OK;
}

static snug_status call_macro(struct snug_jinja_run *run, const struct snug_jinja_macro *macro,
                              const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out) {
    struct snug_jinja_arguments left = *arguments;
    struct snug_jinja_scope *scope;
    size_t taken = 0;
    RETURN_IF_ERROR(snug_jinja_scope_new(run, macro->scope, &scope));
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, left.keyword_count * sizeof *left.keywords, (void **)&left.keywords));
    for (size_t i = 0; i < left.keyword_count; i++) left.keywords[i] = arguments->keywords[i];
    RETURN_IF_ERROR(set_parameters(run, scope, macro->node->a, &left, &taken));
    RETURN_IF_ERROR(set_rest(run, scope, macro->node, &left, taken));
    const uint32_t line = run->heap.line;
    const size_t mark = snug_jinja_begin_capture(run);
    RETURN_IF_ERROR(snug_jinja_end_capture(run, mark, snug_jinja_execute(run, scope, macro->node->b), out));
    run->heap.line = line;
    return SNUG_OK;
}

/* loop(items), of a loop that is recursive. */
static snug_status call_loop(struct snug_jinja_run *run, const struct snug_jinja_loop *loop,
                             const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out) {
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    if (!loop->node->flags)
        return snug_jinja_fail(&run->heap, "The loop must have the 'recursive' marker to be called recursively.");
    RETURN_IF_ERROR(snug_jinja_bind(run, "loop()", "iterable", arguments, bound));
    const size_t mark = snug_jinja_begin_capture(run);
    return snug_jinja_end_capture(run, mark,
                                  snug_jinja_loop_over(run, loop->scope, loop->node, bound[0], loop->depth + 1), out);
}

snug_status snug_jinja_call(struct snug_jinja_run *run, struct snug_jinja_value callee,
                            const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out) {
    switch ((enum snug_jinja_type)callee.type) {
    case SNUG_JINJA_UNDEFINED: return snug_jinja_fail_undefined(&run->heap, callee);
    case SNUG_JINJA_MACRO: return call_macro(run, callee.macro, arguments, out);
    case SNUG_JINJA_LOOP: return call_loop(run, callee.loop, arguments, out);
    case SNUG_JINJA_FUNCTION: return functions[callee.integer].call(run, arguments, out);
    case SNUG_JINJA_METHOD: return snug_jinja_method_call(run, callee.method, arguments, out);
    default: return snug_jinja_fail(&run->heap, "'%s' object is not callable", snug_jinja_type_name(callee.type));
    }
}
