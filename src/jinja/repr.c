/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/repr.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"

/* ---- numbers ---- */

/* The digits of real with this precision, and its exponent. snprintf's point depends on the locale: it is skipped. */
static bool digits_of(double real, int precision, char digits[24], int *exponent) {
    char text[64];
    size_t count = 0;
    snprintf(text, sizeof text, "%.*e", precision - 1, real);
    const char *e = strchr(text, 'e');
    for (const char *at = text; at < e; at++)
        if ((unsigned)(*at - '0') < 10) digits[count++] = *at;
    digits[count] = '\0';
    *exponent = (int)strtol(e + 1, NULL, 10);
    return strtod(text, NULL) == real;
}

void snug_jinja_real_text(double real, char out[SNUG_JINJA_NUMBER_SIZE]) {
    char digits[24];
    int exponent, precision = 0;
    const char *sign = signbit(real) ? "-" : "";
    if (!isfinite(real)) {
        snprintf(out, SNUG_JINJA_NUMBER_SIZE, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    while (!digits_of(fabs(real), ++precision, digits, &exponent)) {
    }
    const int count = (int)strlen(digits);
    if (exponent < -4 || exponent >= 16)
        snprintf(out, SNUG_JINJA_NUMBER_SIZE, "%s%c%s%se%c%02d", sign, digits[0], count > 1 ? "." : "", digits + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(out, SNUG_JINJA_NUMBER_SIZE, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    else if (count <= exponent + 1)
        snprintf(out, SNUG_JINJA_NUMBER_SIZE, "%s%s%.*s.0", sign, digits, exponent + 1 - count, "0000000000000000");
    else
        snprintf(out, SNUG_JINJA_NUMBER_SIZE, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

static snug_status put_number(struct snug_jinja_heap *heap, struct snug_jinja_value number,
                              struct snug_jinja_builder *builder) {
    char text[SNUG_JINJA_NUMBER_SIZE];
    if (number.type == SNUG_JINJA_FLOAT)
        snug_jinja_real_text(number.real, text);
    else
        snprintf(text, sizeof text, "%" PRId64, snug_jinja_to_int(number));
    return snug_jinja_put_text(heap, builder, text);
}

/* ---- strings ---- */

static snug_status put_escape(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder, uint32_t code,
                              bool json) {
    char text[16];
    if (json && code > 0xffff)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((code - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((code - 0x10000) & 0x3ff)));
    else if (!json && code < 0x100)
        snprintf(text, sizeof text, "\\x%02x", (unsigned)code);
    else
        snprintf(text, sizeof text, code > 0xffff ? "\\U%08x" : "\\u%04x", (unsigned)code);
    return snug_jinja_put_text(heap, builder, text);
}

/* The text between the quotes. names: characters that a backslash and a letter of letters stand for. */
static snug_status put_string(struct snug_jinja_heap *heap, struct snug_jinja_value text, const char *names,
                              const char *letters, bool (*escapes)(uint32_t code), bool json,
                              struct snug_jinja_builder *builder) {
    size_t done = 0;
    for (size_t at = 0, begin = 0; at < text.length; begin = at) {
        const uint32_t code = snug_utf8_next(text.text, &at);
        const char *name = code && code < 128 ? strchr(names, (int)code) : NULL;
        if (!name && !escapes(code)) continue;
        RETURN_IF_ERROR(snug_jinja_put(heap, builder, text.text + done, begin - done));
        done = at;
        if (name)
            RETURN_IF_ERROR(snug_jinja_put(heap, builder, (const char[]){'\\', letters[name - names]}, 2));
        else
            RETURN_IF_ERROR(put_escape(heap, builder, code, json));
    }
    return snug_jinja_put(heap, builder, text.text + done, text.length - done);
}

static bool is_not_printable(uint32_t code) {
    char text[4];
    if (code < 0x7f) return code < ' ';
    const size_t length = snug_utf8_put(text, code);
    return !snug_jinja_is(snug_jinja_string(text, length), SNUG_JINJA_IS_PRINTABLE);
}

static snug_status repr_string(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                               struct snug_jinja_builder *builder) {
    const bool single = text.length && memchr(text.text, '\'', text.length),
               twice = single && !memchr(text.text, '"', text.length);
    const char *quote = twice ? "\"" : "'";
    if (text.flag) RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, "Markup("));
    RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, quote));
    RETURN_IF_ERROR(
        put_string(heap, text, twice ? "\\\n\r\t" : "\\\n\r\t'", "\\nrt'", is_not_printable, false, builder));
    RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, quote));
    return text.flag ? snug_jinja_put_text(heap, builder, ")") : SNUG_OK;
}

/* ---- repr ---- */

static snug_status repr_items(struct snug_jinja_heap *heap, const struct snug_jinja_list *list, const char *begin,
                              const char *end, struct snug_jinja_builder *builder) {
    RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, begin));
    for (size_t i = 0; i < list->count; i++) {
        if (i) RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, ", "));
        RETURN_IF_ERROR(snug_jinja_repr(heap, list->items[i], builder));
    }
    return snug_jinja_put_text(heap, builder, end);
}

static snug_status repr_dict(struct snug_jinja_heap *heap, const struct snug_jinja_dict *dict,
                             struct snug_jinja_builder *builder) {
    RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, "{"));
    for (size_t i = 0; i < dict->count; i++) {
        if (i) RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, ", "));
        RETURN_IF_ERROR(snug_jinja_repr(heap, dict->pairs[i].key, builder));
        RETURN_IF_ERROR(snug_jinja_put_text(heap, builder, ": "));
        RETURN_IF_ERROR(snug_jinja_repr(heap, dict->pairs[i].value, builder));
    }
    return snug_jinja_put_text(heap, builder, "}");
}

static snug_status repr_range(struct snug_jinja_heap *heap, const struct snug_jinja_list *range,
                              struct snug_jinja_builder *builder) {
    char text[80];
    if (range->step == 1)
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", range->start, range->stop);
    else
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", range->start, range->stop,
                 range->step);
    return snug_jinja_put_text(heap, builder, text);
}

static snug_status repr_of(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                           struct snug_jinja_builder *builder) {
    static const char *const views[] = {"dict_keys([", "dict_values([", "dict_items(["};
    switch ((enum snug_jinja_type)value.type) {
    case SNUG_JINJA_UNDEFINED: return snug_jinja_put_text(heap, builder, "Undefined");
    case SNUG_JINJA_NONE: return snug_jinja_put_text(heap, builder, "None");
    case SNUG_JINJA_BOOL: return snug_jinja_put_text(heap, builder, value.truth ? "True" : "False");
    case SNUG_JINJA_INT:
    case SNUG_JINJA_FLOAT: return put_number(heap, value, builder);
    case SNUG_JINJA_STRING: return repr_string(heap, value, builder);
    case SNUG_JINJA_LIST: return repr_items(heap, value.list, "[", "]", builder);
    case SNUG_JINJA_TUPLE: return repr_items(heap, value.list, "(", value.list->count == 1 ? ",)" : ")", builder);
    case SNUG_JINJA_VIEW: return repr_items(heap, value.list, views[value.flag], "])", builder);
    case SNUG_JINJA_RANGE: return repr_range(heap, value.list, builder);
    case SNUG_JINJA_DICT: return repr_dict(heap, value.dict, builder);
    default: /* Python prints an address */
        return snug_jinja_fail(heap, "a %s cannot be printed", snug_jinja_type_name(value.type));
    }
}

snug_status snug_jinja_repr(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                            struct snug_jinja_builder *builder) {
    RETURN_IF_ERROR(snug_jinja_descend(heap));
    RETURN_IF_ERROR(snug_jinja_spend(heap, 1));
    const snug_status status = repr_of(heap, value, builder);
    heap->depth--;
    return status;
}

snug_status snug_jinja_to_text(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                               struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    *out = value;
    if (value.type == SNUG_JINJA_STRING) return SNUG_OK;
    if (value.type != SNUG_JINJA_UNDEFINED) RETURN_IF_ERROR(snug_jinja_repr(heap, value, &builder));
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

/* ---- JSON ---- */

struct dump {
    struct snug_jinja_heap *heap;
    const struct snug_jinja_json_form *form;
    struct snug_jinja_builder builder;
    size_t level;
};

static snug_status dump_value(struct dump *dump, struct snug_jinja_value value);

static snug_status put_raw(struct dump *dump, const char *text) {
    return snug_jinja_put_text(dump->heap, &dump->builder, text);
}

static snug_status put_line(struct dump *dump) {
    const struct snug_jinja_value *indent = &dump->form->indent;
    if (!dump->form->lines) return SNUG_OK;
    RETURN_IF_ERROR(put_raw(dump, "\n"));
    for (size_t i = 0; i < dump->level; i++)
        RETURN_IF_ERROR(snug_jinja_put(dump->heap, &dump->builder, indent->text, indent->length));
    return SNUG_OK;
}

static snug_status put_separator(struct dump *dump, size_t index) {
    const struct snug_jinja_value *item = &dump->form->item;
    if (index) RETURN_IF_ERROR(snug_jinja_put(dump->heap, &dump->builder, item->text, item->length));
    return put_line(dump);
}

static bool escapes_control(uint32_t code) { return code < ' '; }
static bool escapes_all(uint32_t code) { return code < ' ' || code > 0x7e; }

static snug_status dump_string(struct dump *dump, struct snug_jinja_value text) {
    RETURN_IF_ERROR(put_raw(dump, "\""));
    RETURN_IF_ERROR(put_string(dump->heap, text, "\\\"\n\r\t\f\b", "\\\"nrtfb",
                               dump->form->ascii ? escapes_all : escapes_control, true, &dump->builder));
    return put_raw(dump, "\"");
}

static snug_status dump_key(struct dump *dump, struct snug_jinja_value key) {
    if (key.type == SNUG_JINJA_STRING) return dump_string(dump, key);
    if (!snug_jinja_is_number(key) && key.type != SNUG_JINJA_NONE)
        return snug_jinja_fail(dump->heap, "keys must be str, int, float, bool or None, not %s",
                               snug_jinja_type_name(key.type));
    RETURN_IF_ERROR(put_raw(dump, "\""));
    RETURN_IF_ERROR(dump_value(dump, key));
    return put_raw(dump, "\"");
}

/* The pairs in the order of their keys. */
static snug_status sort_pairs(struct snug_jinja_heap *heap, const struct snug_jinja_dict *dict,
                              struct snug_jinja_pair **out) {
    RETURN_IF_ERROR(snug_jinja_take(heap, dict->count * sizeof **out, (void **)out));
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = i;
        for (; at; at--) { /* by insertion: each comparison is a step, which are limited */
            int order;
            bool unordered;
            RETURN_IF_ERROR(snug_jinja_compare(heap, "<", dict->pairs[i].key, (*out)[at - 1].key, &order, &unordered));
            if (order >= 0) break;
            (*out)[at] = (*out)[at - 1];
        }
        (*out)[at] = dict->pairs[i];
    }
    return SNUG_OK;
}

static snug_status dump_dict(struct dump *dump, const struct snug_jinja_dict *dict) {
    struct snug_jinja_pair *pairs = dict->pairs;
    if (!dict->count) return put_raw(dump, "{}");
    if (dump->form->sort_keys) RETURN_IF_ERROR(sort_pairs(dump->heap, dict, &pairs));
    RETURN_IF_ERROR(put_raw(dump, "{"));
    dump->level++;
    for (size_t i = 0; i < dict->count; i++) {
        RETURN_IF_ERROR(put_separator(dump, i));
        RETURN_IF_ERROR(dump_key(dump, pairs[i].key));
        RETURN_IF_ERROR(snug_jinja_put(dump->heap, &dump->builder, dump->form->key.text, dump->form->key.length));
        RETURN_IF_ERROR(dump_value(dump, pairs[i].value));
    }
    dump->level--;
    RETURN_IF_ERROR(put_line(dump));
    return put_raw(dump, "}");
}

static snug_status dump_items(struct dump *dump, const struct snug_jinja_list *list) {
    if (!list->count) return put_raw(dump, "[]");
    RETURN_IF_ERROR(put_raw(dump, "["));
    dump->level++;
    for (size_t i = 0; i < list->count; i++) {
        RETURN_IF_ERROR(put_separator(dump, i));
        RETURN_IF_ERROR(dump_value(dump, list->items[i]));
    }
    dump->level--;
    RETURN_IF_ERROR(put_line(dump));
    return put_raw(dump, "]");
}

static snug_status dump_real(struct dump *dump, struct snug_jinja_value value) {
    if (isfinite(value.real)) return put_number(dump->heap, value, &dump->builder);
    return put_raw(dump, isnan(value.real) ? "NaN" : value.real < 0 ? "-Infinity" : "Infinity");
}

static snug_status dump_of(struct dump *dump, struct snug_jinja_value value) {
    switch ((enum snug_jinja_type)value.type) {
    case SNUG_JINJA_NONE: return put_raw(dump, "null");
    case SNUG_JINJA_BOOL: return put_raw(dump, value.truth ? "true" : "false");
    case SNUG_JINJA_INT: return put_number(dump->heap, value, &dump->builder);
    case SNUG_JINJA_FLOAT: return dump_real(dump, value);
    case SNUG_JINJA_STRING: return dump_string(dump, value);
    case SNUG_JINJA_LIST:
    case SNUG_JINJA_TUPLE: return dump_items(dump, value.list);
    case SNUG_JINJA_DICT: return dump_dict(dump, value.dict);
    default:
        return snug_jinja_fail(dump->heap, "Object of type %s is not JSON serializable",
                               snug_jinja_type_name(value.type));
    }
}

static snug_status dump_value(struct dump *dump, struct snug_jinja_value value) {
    RETURN_IF_ERROR(snug_jinja_descend(dump->heap));
    RETURN_IF_ERROR(snug_jinja_spend(dump->heap, 1));
    const snug_status status = dump_of(dump, value);
    dump->heap->depth--;
    return status;
}

snug_status snug_jinja_to_json(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                               const struct snug_jinja_json_form *form, struct snug_jinja_value *out) {
    struct dump dump = {.heap = heap, .form = form};
    RETURN_IF_ERROR(dump_value(&dump, value));
    *out = snug_jinja_built(&dump.builder);
    return SNUG_OK;
}
