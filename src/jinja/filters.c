/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of single values, and the table of all. */
#include "jinja/filters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "jinja/repr.h"
#include "jinja/run.h"

#define FILTER(name)                                                                                                   \
    static snug_status name(struct snug_jinja_run *run, struct snug_jinja_value value,                                 \
                            const struct snug_jinja_arguments *arguments, const struct snug_jinja_value *bound,        \
                            struct snug_jinja_value *out)

static bool truth_of(struct snug_jinja_value bound) { return snug_jinja_is_given(bound) && snug_jinja_is_true(bound); }

static snug_status change_case(struct snug_jinja_run *run, struct snug_jinja_value value, enum snug_jinja_case which,
                               struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    return snug_jinja_change_case(&run->heap, value, which, out);
}

FILTER(filter_upper) {
    (void)arguments, (void)bound;
    return change_case(run, value, SNUG_JINJA_UPPER, out);
}

FILTER(filter_lower) {
    (void)arguments, (void)bound;
    return change_case(run, value, SNUG_JINJA_LOWER, out);
}

FILTER(filter_capitalize) {
    (void)arguments, (void)bound;
    return change_case(run, value, SNUG_JINJA_CAPITALIZE, out);
}

/* Words begin after white space and - ( { [ <, and not after other marks, as str.title has it. */
FILTER(filter_title) {
    struct snug_jinja_builder builder = {0};
    (void)arguments, (void)bound;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    for (size_t at = 0; at < value.length;) {
        size_t end = at, first;
        struct snug_jinja_value part;
        while (end < value.length && !strchr("-({[<", value.text[end]) &&
               snug_jinja_strip(snug_jinja_string(value.text + end, 1), NULL, true, false).length)
            end++;
        first = snug_jinja_offset(snug_jinja_string(value.text + at, end - at), 1);
        RETURN_IF_ERROR(change_case(run, snug_jinja_string(value.text + at, first), SNUG_JINJA_UPPER, &part));
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, part.text, part.length));
        RETURN_IF_ERROR(
            change_case(run, snug_jinja_string(value.text + at + first, end - at - first), SNUG_JINJA_LOWER, &part));
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, part.text, part.length));
        if (end < value.length) RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, value.text + end++, 1));
        at = end;
    }
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

FILTER(filter_trim) {
    const struct snug_jinja_value *set =
        snug_jinja_is_given(bound[0]) && bound[0].type != SNUG_JINJA_NONE ? bound : NULL;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    if (set) RETURN_IF_ERROR(snug_jinja_need_text(run, "strip arg", *set));
    RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1 + (set ? (uint64_t)value.length * set->length : value.length) / 64));
    *out = snug_jinja_strip(value, set, true, true);
    return SNUG_OK;
}

FILTER(filter_string) {
    (void)arguments, (void)bound;
    return snug_jinja_to_text(&run->heap, value, out);
}

FILTER(filter_safe) {
    (void)arguments, (void)bound;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, out));
    out->flag = true;
    return SNUG_OK;
}

FILTER(filter_escape) {
    (void)arguments, (void)bound;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    return snug_jinja_escape(&run->heap, value, out);
}

FILTER(filter_replace) {
    struct snug_jinja_value old, new;
    int64_t most = -1;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, bound[0], &old));
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, bound[1], &new));
    if (snug_jinja_is_given(bound[2]) && bound[2].type != SNUG_JINJA_NONE)
        RETURN_IF_ERROR(snug_jinja_need_int(run, bound[2], &most));
    return snug_jinja_replace(&run->heap, value, old, new, most, out);
}

FILTER(filter_default) {
    (void)run, (void)arguments;
    *out = value;
    if (value.type == SNUG_JINJA_UNDEFINED || (truth_of(bound[1]) && !snug_jinja_is_true(value)))
        *out = snug_jinja_is_given(bound[0]) ? bound[0] : snug_jinja_string("", 0);
    return SNUG_OK;
}

FILTER(filter_format) {
    struct snug_jinja_value items;
    (void)bound;
    if (arguments->count && arguments->keyword_count)
        return snug_jinja_fail(&run->heap, "can't handle positional and keyword arguments at the same time");
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    if (arguments->keyword_count) {
        RETURN_IF_ERROR(snug_jinja_dict_new(&run->heap, SNUG_JINJA_DICT, &items));
        for (size_t i = 0; i < arguments->keyword_count; i++)
            RETURN_IF_ERROR(
                snug_jinja_dict_set(&run->heap, items.dict, arguments->keywords[i].key, arguments->keywords[i].value));
    } else {
        RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_TUPLE, 0, &items));
        for (size_t i = 0; i < arguments->count; i++)
            RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, items.list, arguments->values[i]));
    }
    return snug_jinja_percent(run, value, items, out);
}

FILTER(filter_center) {
    struct snug_jinja_builder builder = {0};
    int64_t width = 80;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    if (snug_jinja_is_given(bound[0])) RETURN_IF_ERROR(snug_jinja_need_int(run, bound[0], &width));
    const int64_t count = (int64_t)snug_jinja_count(value), more = width > count ? width - count : 0;
    const int64_t left = more / 2 + (more & width & 1);
    for (int64_t i = 0; i <= more; i++) {
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
        if (i == left) RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, value.text, value.length));
        if (i < more) RETURN_IF_ERROR(snug_jinja_put_text(&run->heap, &builder, " "));
    }
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

FILTER(filter_indent) {
    struct snug_jinja_builder builder = {0};
    struct snug_jinja_value lines, width = snug_jinja_string("    ", 4);
    int64_t number;
    const bool first = truth_of(bound[1]), blank = truth_of(bound[2]);
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_need_text(run, "the indented value", value));
    if (snug_jinja_is_given(bound[0])) {
        width = bound[0];
        if (width.type != SNUG_JINJA_STRING) {
            RETURN_IF_ERROR(snug_jinja_need_int(run, width, &number));
            RETURN_IF_ERROR(snug_jinja_operate(run, SNUG_JINJA_MULTIPLY, snug_jinja_string(" ", 1), width, &width));
        }
    }
    RETURN_IF_ERROR(snug_jinja_add_text(&run->heap, value, snug_jinja_string("\n", 1), &value));
    RETURN_IF_ERROR(snug_jinja_split_lines(&run->heap, value, false, &lines));
    for (size_t i = 0; i < lines.list->count; i++) {
        const struct snug_jinja_value line = lines.list->items[i];
        if (i) RETURN_IF_ERROR(snug_jinja_put_text(&run->heap, &builder, "\n"));
        if (i ? blank || line.length : first)
            RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, width.text, width.length));
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, line.text, line.length));
    }
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

FILTER(filter_truncate) {
    struct snug_jinja_value end = snug_jinja_string("...", 3), words;
    int64_t length = 255, leeway = 5;
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_need_text(run, "the truncated value", value));
    if (snug_jinja_is_given(bound[0])) RETURN_IF_ERROR(snug_jinja_need_int(run, bound[0], &length));
    if (snug_jinja_is_given(bound[2])) end = bound[2];
    RETURN_IF_ERROR(snug_jinja_need_text(run, "end", end));
    if (snug_jinja_is_given(bound[3]) && bound[3].type != SNUG_JINJA_NONE)
        RETURN_IF_ERROR(snug_jinja_need_int(run, bound[3], &leeway));
    const int64_t count = (int64_t)snug_jinja_count(end);
    if (length < count || leeway < 0)
        return snug_jinja_fail(&run->heap, "truncate needs a length of at least %lld, and a leeway of at least 0",
                               (long long)count);
    *out = value;
    if ((int64_t)snug_jinja_count(value) - leeway <= length) return SNUG_OK;
    value = snug_jinja_cut(value, 0, (size_t)(length - count));
    if (!truth_of(bound[1])) {
        const struct snug_jinja_value blank = snug_jinja_string(" ", 1);
        RETURN_IF_ERROR(snug_jinja_split(&run->heap, value, &blank, 1, true, &words));
        value = words.list->items[0];
    }
    return snug_jinja_add_text(&run->heap, value, end, out);
}

FILTER(filter_word_count) {
    int64_t count = 0;
    bool in_word = false;
    (void)arguments, (void)bound;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    for (size_t at = 0; at < value.length;) {
        const struct snug_jinja_value rest = snug_jinja_string(value.text + at, value.length - at);
        const struct snug_jinja_value one = snug_jinja_cut(rest, 0, 1);
        const bool word = snug_jinja_is(one, SNUG_JINJA_IS_ALNUM) || snug_jinja_equals_text(one, "_", 1);
        count += word && !in_word;
        in_word = word;
        at += one.length;
    }
    *out = snug_jinja_int(count);
    return snug_jinja_spend(&run->heap, value.length >> 4);
}

/* ---- numbers ---- */

/* A number from a text with white space around it, as int() and float() read it; an integer that does not fit becomes a
   real. *out stays if there is none. */
static snug_status read_number(struct snug_jinja_run *run, struct snug_jinja_value text, struct snug_jinja_value *out) {
    static const char bytes[] = "0123456789.eE+-";
    char *number;
    size_t at = 0, length = 0;
    json_error_t error;
    text = snug_jinja_strip(text, NULL, true, true);
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, text.length + 3, (void **)&number));
    const bool negative = text.length && text.text[0] == '-';
    at += text.length && (negative || text.text[0] == '+');
    while (at + 1 < text.length && text.text[at] == '0' && text.text[at + 1] >= '0' && text.text[at + 1] <= '9') at++;
    if (negative) number[length++] = '-';
    if (at < text.length && text.text[at] == '.') number[length++] = '0';
    for (; at < text.length; at++) {
        if (!memchr(bytes, text.text[at], sizeof bytes - 1)) return SNUG_OK;
        const bool bare =
            text.text[at] == '.' && (at + 1 == text.length || text.text[at + 1] < '0' || text.text[at + 1] > '9');
        number[length++] = text.text[at];
        if (bare) number[length++] = '0';
    }
    json_t *value = snug_json_parse(number, length, JSON_DECODE_ANY, &error);
    if (!value) value = snug_json_parse(number, length, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error);
    if (json_is_integer(value)) *out = snug_jinja_int(json_integer_value(value));
    if (json_is_real(value)) *out = snug_jinja_float(json_real_value(value));
    json_decref(value);
    return SNUG_OK;
}

FILTER(filter_int) {
    (void)arguments;
    *out = snug_jinja_is_given(bound[0]) ? bound[0] : snug_jinja_int(0);
    if (snug_jinja_is_given(bound[1]) && !(bound[1].type == SNUG_JINJA_INT && bound[1].integer == 10))
        return snug_jinja_fail(&run->heap, "int of another base than 10 is not supported");
    if (value.type == SNUG_JINJA_STRING) RETURN_IF_ERROR(read_number(run, value, &value));
    if (value.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, value);
    if (!snug_jinja_is_number(value)) return SNUG_OK;
    if (value.type == SNUG_JINJA_FLOAT && isnan(value.real)) return SNUG_OK;
    if (value.type == SNUG_JINJA_FLOAT && isinf(value.real))
        return snug_jinja_fail(&run->heap, "cannot convert float infinity to integer");
    if (value.type == SNUG_JINJA_FLOAT && fabs(value.real) >= 0x1p63)
        return snug_jinja_fail(&run->heap, "an integer has more than 64 bits, which is not supported");
    *out = snug_jinja_int(value.type == SNUG_JINJA_FLOAT ? (int64_t)value.real : snug_jinja_to_int(value));
    return SNUG_OK;
}

FILTER(filter_float) {
    (void)arguments;
    *out = snug_jinja_is_given(bound[0]) ? bound[0] : snug_jinja_float(0);
    if (value.type == SNUG_JINJA_STRING) RETURN_IF_ERROR(read_number(run, value, &value));
    if (value.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, value);
    if (snug_jinja_is_number(value)) *out = snug_jinja_float(snug_jinja_to_real(value));
    return SNUG_OK;
}

FILTER(filter_abs) {
    (void)arguments, (void)bound;
    *out = value;
    if (snug_jinja_is_number(value) && snug_jinja_to_real(value) > 0) return SNUG_OK;
    if (value.type == SNUG_JINJA_FLOAT) {
        *out = snug_jinja_float(fabs(value.real));
        return SNUG_OK;
    }
    return snug_jinja_sign(run, SNUG_JINJA_SUBTRACT, value, out);
}

/* Half to even, as Python's round(); its decimal digits are those of the exact value, as snprintf's are. */
static double round_common(double real, int64_t precision) {
    char text[400];
    if (!isfinite(real) || precision > 22) return real;
    if (precision < 0) {
        const double power = pow(10, (double)-precision);
        return isinf(power) ? 0 * real : rint(real / power) * power;
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, real);
    return strtod(text, NULL); /* both are of the process's locale */
}

FILTER(filter_round) {
    int64_t precision = 0;
    (void)arguments;
    const bool floors = snug_jinja_equals_text(bound[1], "floor", 5),
               ceils = snug_jinja_equals_text(bound[1], "ceil", 4);
    if (snug_jinja_is_given(bound[0])) RETURN_IF_ERROR(snug_jinja_need_int(run, bound[0], &precision));
    if (snug_jinja_is_given(bound[1]) && !floors && !ceils && !snug_jinja_equals_text(bound[1], "common", 6))
        return snug_jinja_fail(&run->heap, "method must be common, ceil or floor");
    if (value.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, value);
    if (!snug_jinja_is_number(value))
        return snug_jinja_fail(&run->heap, "type %s doesn't define __round__ method", snug_jinja_type_name(value.type));
    *out = value;
    if (!floors && !ceils && value.type != SNUG_JINJA_FLOAT && precision >= 0) return SNUG_OK;
    const double real = snug_jinja_to_real(value), power = pow(10, (double)precision);
    double rounded = floors  ? floor(real * power) / power
                     : ceils ? ceil(real * power) / power
                             : round_common(real, precision);
    *out = snug_jinja_float(rounded);
    if (!floors && !ceils && value.type != SNUG_JINJA_FLOAT) *out = snug_jinja_int((int64_t)rounded);
    return SNUG_OK;
}

/* ---- JSON ---- */

static snug_status choose_separators(struct snug_jinja_run *run, struct snug_jinja_value bound,
                                     struct snug_jinja_json_form *form) {
    if (!snug_jinja_is_given(bound) || bound.type == SNUG_JINJA_NONE) return SNUG_OK;
    if ((bound.type != SNUG_JINJA_TUPLE && bound.type != SNUG_JINJA_LIST) || bound.list->count != 2)
        return snug_jinja_fail(&run->heap, "separators of tojson must be two strings");
    for (size_t i = 0; i < 2; i++) RETURN_IF_ERROR(snug_jinja_need_text(run, "a separator", bound.list->items[i]));
    form->item = bound.list->items[0];
    form->key = bound.list->items[1];
    return SNUG_OK;
}

FILTER(filter_tojson) {
    struct snug_jinja_json_form form = {.item = snug_jinja_string(", ", 2), .key = snug_jinja_string(": ", 2)};
    const struct snug_jinja_value indent = bound[1];
    int64_t width;
    (void)arguments;
    form.ascii = truth_of(bound[0]);
    form.sort_keys = truth_of(bound[3]);
    if (snug_jinja_is_given(indent) && indent.type != SNUG_JINJA_NONE) {
        form.lines = true;
        form.item = snug_jinja_string(",", 1);
        form.indent = indent;
        if (indent.type != SNUG_JINJA_STRING) {
            RETURN_IF_ERROR(snug_jinja_need_int(run, indent, &width));
            RETURN_IF_ERROR(
                snug_jinja_operate(run, SNUG_JINJA_MULTIPLY, snug_jinja_string(" ", 1), indent, &form.indent));
        }
    }
    RETURN_IF_ERROR(choose_separators(run, bound[2], &form));
    return snug_jinja_to_json(&run->heap, value, &form, out);
}

FILTER(filter_attr) {
    (void)arguments;
    RETURN_IF_ERROR(snug_jinja_need_text(run, "the name of an attribute", bound[0]));
    *out = snug_jinja_undefined(SNUG_JINJA_MISSING_MEMBER, bound[0].text, bound[0].length);
    out->flag = (uint8_t)(out->flag + value.type);
    if (value.type == SNUG_JINJA_DICT && snug_jinja_method_find(value.type, bound[0]) < 0) return SNUG_OK;
    return snug_jinja_attribute(run, value, bound[0], out);
}

/* ---- the table ---- */

static const struct snug_jinja_filter filters[] = {
    {"upper", "", filter_upper},
    {"lower", "", filter_lower},
    {"capitalize", "", filter_capitalize},
    {"title", "", filter_title},
    {"trim", "?chars", filter_trim},
    {"string", "", filter_string},
    {"safe", "", filter_safe},
    {"escape", "", filter_escape},
    {"e", "", filter_escape},
    {"forceescape", "", filter_escape},
    {"replace", "old new ?count", filter_replace},
    {"default", "?default_value boolean", filter_default},
    {"d", "?default_value boolean", filter_default},
    {"format", NULL, filter_format},
    {"center", "?width", filter_center},
    {"indent", "?width first blank", filter_indent},
    {"truncate", "?length killwords end leeway", filter_truncate},
    {"wordcount", "", filter_word_count},
    {"int", "?default base", filter_int},
    {"float", "?default", filter_float},
    {"abs", "", filter_abs},
    {"round", "?precision method", filter_round},
    {"tojson", "?ensure_ascii indent separators sort_keys", filter_tojson},
    {"attr", "name", filter_attr},
};
enum { OWN = sizeof filters / sizeof *filters };

int32_t snug_jinja_filter_find(struct snug_jinja_value name) {
    for (int32_t i = 0; i < (int32_t)(OWN + snug_jinja_sequence_filter_count); i++) {
        const char *known = snug_jinja_filter_at(i)->name;
        if (snug_jinja_equals_text(name, known, strlen(known))) return i;
    }
    return -1;
}

const struct snug_jinja_filter *snug_jinja_filter_at(int32_t number) {
    return number < OWN ? &filters[number] : &snug_jinja_sequence_filters[number - OWN];
}
