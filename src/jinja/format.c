/* SPDX-License-Identifier: Apache-2.0 */
/* text % values, text.format(values), and dates. */
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/repr.h"
#include "jinja/run.h"

/* How a value is written: the parts of Python's format specification. */
struct spec {
    char fill[4];
    size_t fill_length;
    char align;            /* '<', '>', '^', '=', or 0 */
    char sign;             /* '+', ' ', or 0 */
    bool alternate, comma; /* "#"; digits in groups of three */
    bool given;            /* it is not empty: a bool is then a number */
    int width, precision;  /* precision: -1: none */
    char type;             /* s d f F e E g G x X o b c %, or 0 */
};

enum { WIDTH_MOST = 10000, PRECISION_MOST = 100 };

static snug_status fail_format(struct snug_jinja_run *run, const char *what) {
    return snug_jinja_fail(&run->heap, "%s", what);
}

/* ---- numbers ---- */

/* Digits of a whole number in a base. */
static void put_digits(uint64_t number, unsigned base, bool capitals, char out[72]) {
    char reversed[65];
    size_t count = 0;
    do {
        reversed[count++] = (capitals ? "0123456789ABCDEF" : "0123456789abcdef")[number % base];
        number /= base;
    } while (number);
    for (size_t i = 0; i < count; i++) out[i] = reversed[count - 1 - i];
    out[count] = '\0';
}

/* The absolute value of a real, without the locale's point. */
static void put_real(double real, char type, int precision, bool alternate, char *out, size_t size) {
    const char format[] = {'%', '.', '*', type, '\0'};
    if (!isfinite(real)) {
        snprintf(out, size, "%s", isnan(real) ? (type < 'a' ? "NAN" : "nan") : type < 'a' ? "INF" : "inf");
        return;
    }
    (void)alternate;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, size, format, precision, fabs(real));
#pragma GCC diagnostic pop
    for (char *at = out; *at; at++)
        if (!strchr("0123456789abcdefABCDEFinINxX+-", *at)) *at = '.';
}

/* Commas between groups of three of the digits that out begins with: at most 102, of a real's 309. */
static void group_digits(char *out) {
    const size_t digits = strspn(out, "0123456789"), length = strlen(out), commas = digits ? (digits - 1) / 3 : 0;
    for (size_t i = length + 1; i-- > digits;) out[i + commas] = out[i];
    for (size_t i = digits, to = digits + commas, done = 0; i-- > 0; done++) {
        if (done && done % 3 == 0) out[--to] = ',';
        out[--to] = out[i];
    }
}

static snug_status number_text(struct snug_jinja_run *run, struct snug_jinja_value value, const struct spec *spec,
                               char *out, size_t size, bool *negative, const char **prefix) {
    const char type = spec->type;
    const int precision = spec->precision < 0 ? 6 : spec->precision;
    *prefix = "";
    if (value.type != SNUG_JINJA_FLOAT && !(type && strchr("fFeEgG%", type))) {
        const int64_t number = snug_jinja_to_int(value);
        const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
        *negative = number < 0;
        if (spec->alternate)
            *prefix = type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : type == 'b' ? "0b" : "";
        put_digits(number < 0 ? -(uint64_t)number : (uint64_t)number, base, type == 'X', out);
    } else {
        const double real = snug_jinja_to_real(value);
        *negative = signbit(real) && !isnan(real);
        if (type && strchr("dxXob", type)) return fail_format(run, "a float cannot be written as an integer");
        if (!type && spec->precision < 0) {
            snug_jinja_real_text(fabs(real), out);
        } else if (type == '%') {
            put_real(real * 100, 'f', precision, false, out, size - 1);
            memcpy(out + strlen(out), "%", sizeof "%");
        } else {
            put_real(real, type ? type : 'g', precision, spec->alternate, out, size);
        }
    }
    if (spec->comma) group_digits(out);
    return SNUG_OK;
}

/* ---- one value ---- */

static snug_status put_fill(struct snug_jinja_run *run, struct snug_jinja_builder *builder, const struct spec *spec,
                            int64_t count) {
    for (; count > 0; count--) RETURN_IF_ERROR(snug_jinja_put(&run->heap, builder, spec->fill, spec->fill_length));
    return SNUG_OK;
}

/* sign and text with what fills the width. */
static snug_status put_aligned(struct snug_jinja_run *run, struct snug_jinja_builder *builder, const struct spec *spec,
                               const char *sign, struct snug_jinja_value text, char align) {
    const int64_t more = spec->width - (int64_t)snug_jinja_count(text) - (int64_t)strlen(sign);
    const int64_t left = more <= 0 || align == '<' ? 0 : align == '^' ? more / 2 : more;
    if (align != '=') RETURN_IF_ERROR(put_fill(run, builder, spec, left));
    RETURN_IF_ERROR(snug_jinja_put_text(&run->heap, builder, sign));
    if (align == '=') RETURN_IF_ERROR(put_fill(run, builder, spec, left));
    RETURN_IF_ERROR(snug_jinja_put(&run->heap, builder, text.text, text.length));
    return put_fill(run, builder, spec, more - left);
}

static snug_status put_value(struct snug_jinja_run *run, struct snug_jinja_builder *builder, const struct spec *spec,
                             struct snug_jinja_value value) {
    char text[600], sign[8];
    const char *prefix;
    bool negative;
    const bool number = snug_jinja_is_number(value) && (value.type != SNUG_JINJA_BOOL || spec->given);
    if (!number || spec->type == 's') {
        if (spec->type && spec->type != 's')
            return snug_jinja_fail(&run->heap, "the format '%c' needs a number, not %s", spec->type,
                                   snug_jinja_type_name(value.type));
        RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
        if (spec->precision >= 0) value = snug_jinja_cut(value, 0, (size_t)spec->precision);
        return put_aligned(run, builder, spec, "", value, spec->align ? spec->align : '<');
    }
    RETURN_IF_ERROR(number_text(run, value, spec, text, sizeof text, &negative, &prefix));
    snprintf(sign, sizeof sign, "%s%s", negative ? "-" : spec->sign == '+' ? "+" : spec->sign ? " " : "", prefix);
    return put_aligned(run, builder, spec, sign, snug_jinja_string(text, strlen(text)),
                       spec->align ? spec->align : '>');
}

static bool read_int(struct snug_jinja_value text, size_t *at, int most, int *out) {
    for (*out = 0; *at < text.length && text.text[*at] >= '0' && text.text[*at] <= '9'; ++*at) {
        *out = *out * 10 + (text.text[*at] - '0');
        if (*out > most) return false;
    }
    return true;
}

static bool take(struct snug_jinja_value text, size_t *at, const char *bytes, char *out) {
    *out = 0;
    if (*at >= text.length || !memchr(bytes, text.text[*at], strlen(bytes))) return false;
    *out = text.text[(*at)++];
    return true;
}

/* ---- % ---- */

/* The next value: of a tuple in order, of a dict by name, or the only one. */
struct source {
    struct snug_jinja_value values;
    size_t used;
};

static snug_status next_value(struct snug_jinja_run *run, struct source *source, struct snug_jinja_value *out) {
    const bool tuple = source->values.type == SNUG_JINJA_TUPLE;
    if (source->used >= (tuple ? source->values.list->count : 1))
        return fail_format(run, "not enough arguments for format string");
    *out = tuple ? source->values.list->items[source->used] : source->values;
    source->used++;
    return SNUG_OK;
}

/* After a "%": the flags and what is written. */
static snug_status put_conversion(struct snug_jinja_run *run, struct snug_jinja_value text, size_t *at,
                                  struct source *source, struct snug_jinja_builder *builder) {
    struct spec spec = {.fill = " ", .fill_length = 1, .precision = -1, .given = true};
    struct snug_jinja_value value = {0}, *found = NULL;
    char flag, ignored;
    if (*at < text.length && text.text[*at] == '(') {
        const struct snug_jinja_value close = snug_jinja_string(")", 1);
        const size_t end = snug_jinja_find(text, close, *at);
        if (end == SIZE_MAX) return fail_format(run, "incomplete format key");
        if (source->values.type != SNUG_JINJA_DICT) return fail_format(run, "format requires a mapping");
        RETURN_IF_ERROR(snug_jinja_dict_find(&run->heap, source->values.dict,
                                             snug_jinja_string(text.text + *at + 1, end - *at - 1), &found));
        if (!found) return fail_format(run, "a name of the format string has no value");
        *at = end + 1;
    }
    while (take(text, at, "-+ 0#", &flag)) {
        if (flag == '-') spec.align = '<';
        if (flag == '0' && !spec.align) spec.align = '=', spec.fill[0] = '0';
        if (flag == '#') spec.alternate = true;
        if (flag == '+' || (flag == ' ' && !spec.sign)) spec.sign = flag;
    }
    if (spec.align == '<') spec.fill[0] = ' ';
    if (!read_int(text, at, WIDTH_MOST, &spec.width)) return fail_format(run, "width too big");
    if (take(text, at, ".", &ignored) && !read_int(text, at, PRECISION_MOST, &spec.precision))
        return fail_format(run, "precision too big");
    if (*at >= text.length) return fail_format(run, "incomplete format");
    if (!take(text, at, "sradiufFeEgGxXoc%", &flag)) return fail_format(run, "unsupported format character");
    if (flag == '%') return snug_jinja_put_text(&run->heap, builder, "%");
    if (found)
        value = *found;
    else
        RETURN_IF_ERROR(next_value(run, source, &value));
    if (flag == 'a' || flag == 'c') return fail_format(run, "the conversions %a and %c are not supported");
    if (flag == 'r') {
        struct snug_jinja_builder repr = {0};
        RETURN_IF_ERROR(snug_jinja_repr(&run->heap, value, &repr));
        value = snug_jinja_built(&repr);
    }
    if (flag != 's' && flag != 'r' && !snug_jinja_is_number(value))
        return snug_jinja_fail(&run->heap, "%%%c format: a real number is required, not %s", flag,
                               snug_jinja_type_name(value.type));
    spec.type = flag == 'r' ? 's' : flag == 'i' || flag == 'u' ? 'd' : flag;
    if (spec.type == 'd' && value.type == SNUG_JINJA_FLOAT) value = snug_jinja_int((int64_t)value.real);
    if (spec.type == 's' || spec.align == '<') spec.fill[0] = ' ';
    if (spec.type == 's' && !spec.align) spec.align = '>';
    if (spec.type == 's' && spec.align == '=') spec.align = '>';
    return put_value(run, builder, &spec, value);
}

snug_status snug_jinja_percent(struct snug_jinja_run *run, struct snug_jinja_value text,
                               struct snug_jinja_value arguments, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    struct source source = {arguments, 0};
    for (size_t at = 0; at < text.length;) {
        const char *percent = memchr(text.text + at, '%', text.length - at);
        const size_t end = percent ? (size_t)(percent - text.text) : text.length;
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, text.text + at, end - at));
        at = end + 1;
        if (percent) RETURN_IF_ERROR(put_conversion(run, text, &at, &source, &builder));
    }
    if (arguments.type == SNUG_JINJA_TUPLE
            ? source.used < arguments.list->count
            : !source.used && arguments.type != SNUG_JINJA_DICT && arguments.type != SNUG_JINJA_LIST)
        return fail_format(run, "not all arguments converted during string formatting");
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

/* ---- format ---- */

/* The specification after a ":": [[fill]align][sign][#][0][width][,][.precision][type]. */
static snug_status read_spec(struct snug_jinja_run *run, struct snug_jinja_value text, struct spec *spec) {
    size_t at = 0;
    char ignored;
    bool fills = false;
    *spec = (struct spec){.fill = " ", .fill_length = 1, .precision = -1, .given = text.length};
    const size_t first = snug_jinja_offset(text, 1);
    if (first < text.length && memchr("<>^=", text.text[first], 4)) {
        memcpy(spec->fill, text.text, spec->fill_length = first);
        spec->align = text.text[first];
        at = first + 1;
        fills = true;
    } else {
        take(text, &at, "<>^=", &spec->align);
    }
    take(text, &at, "+- ", &spec->sign);
    if (spec->sign == '-') spec->sign = 0;
    spec->alternate = take(text, &at, "#", &ignored);
    if (take(text, &at, "0", &ignored)) {
        if (!spec->align) spec->align = '=';
        if (!fills) spec->fill[0] = '0';
    }
    read_int(text, &at, WIDTH_MOST, &spec->width); /* of a number that is too large, digits are left */
    spec->comma = take(text, &at, ",", &ignored);
    if (take(text, &at, ".", &ignored)) read_int(text, &at, PRECISION_MOST, &spec->precision);
    take(text, &at, "sdfFeEgGxXob%", &spec->type);
    return at == text.length ? SNUG_OK : fail_format(run, "Invalid or unsupported format specifier");
}

static bool is_index(struct snug_jinja_value name, int *out) {
    size_t at = 0;
    return name.length && read_int(name, &at, 1000000, out) && at == name.length;
}

/* The value of a field's name: "", "0", "name", "a.b", "a[0]". */
static snug_status field_value(struct snug_jinja_run *run, struct snug_jinja_value name,
                               const struct snug_jinja_arguments *arguments, size_t *automatic,
                               struct snug_jinja_value *out) {
    size_t end = 0;
    int number;
    while (end < name.length && name.text[end] != '.' && name.text[end] != '[') end++;
    const struct snug_jinja_value first = snug_jinja_string(name.text, end);
    size_t found = SIZE_MAX;
    if (!end) found = (*automatic)++;
    if (is_index(first, &number)) found = (size_t)number;
    if (found != SIZE_MAX && found >= arguments->count)
        return fail_format(run, "Replacement index out of range for positional args tuple");
    if (found != SIZE_MAX) {
        *out = arguments->values[found];
    } else {
        size_t i = 0;
        while (i < arguments->keyword_count && !snug_jinja_equals_text(arguments->keywords[i].key, first.text, end))
            i++;
        if (i == arguments->keyword_count) return fail_format(run, "a name of the format string has no value");
        *out = arguments->keywords[i].value;
    }
    while (end < name.length) {
        const bool item = name.text[end++] == '[';
        size_t stop = end;
        while (stop < name.length && (item ? name.text[stop] != ']' : name.text[stop] != '.' && name.text[stop] != '['))
            stop++;
        struct snug_jinja_value part = snug_jinja_string(name.text + end, stop - end);
        if (!part.length) return fail_format(run, "Empty attribute in format string");
        if (!item)
            RETURN_IF_ERROR(snug_jinja_attribute(run, *out, part, out));
        else if (is_index(part, &number))
            RETURN_IF_ERROR(snug_jinja_item(run, *out, snug_jinja_int(number), out));
        else
            RETURN_IF_ERROR(snug_jinja_item(run, *out, part, out));
        end = stop + item;
    }
    return SNUG_OK;
}

static snug_status put_field(struct snug_jinja_run *run, struct snug_jinja_value field,
                             const struct snug_jinja_arguments *arguments, size_t *automatic,
                             struct snug_jinja_builder *builder) {
    struct snug_jinja_builder repr = {0};
    struct snug_jinja_value value = {0};
    struct spec spec;
    const struct snug_jinja_value colon = snug_jinja_string(":", 1), mark = snug_jinja_string("!", 1);
    size_t name = snug_jinja_find(field, colon, 0), bang = snug_jinja_find(field, mark, 0);
    if (name == SIZE_MAX) name = field.length;
    const size_t rest = name + (name < field.length);
    RETURN_IF_ERROR(read_spec(run, snug_jinja_string(field.text + rest, field.length - rest), &spec));
    if (bang > name) bang = name;
    RETURN_IF_ERROR(field_value(run, snug_jinja_string(field.text, bang), arguments, automatic, &value));
    if (bang < name && name - bang == 2 && field.text[bang + 1] == 'r') {
        RETURN_IF_ERROR(snug_jinja_repr(&run->heap, value, &repr));
        value = snug_jinja_built(&repr);
    } else if (bang < name && name - bang == 2 && field.text[bang + 1] == 's') {
        RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    } else if (bang < name) {
        return fail_format(run, "a conversion of the format string is not supported");
    }
    return put_value(run, builder, &spec, value);
}

snug_status snug_jinja_format(struct snug_jinja_run *run, struct snug_jinja_value text,
                              const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    size_t automatic = 0;
    for (size_t at = 0; at < text.length;) {
        size_t end = at;
        while (end < text.length && text.text[end] != '{' && text.text[end] != '}') end++;
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, text.text + at, end - at));
        if (end == text.length) break;
        const bool opens = text.text[end] == '{';
        at = end + 1;
        if (at < text.length && text.text[at] == text.text[end]) {
            RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, text.text + at++, 1));
            continue;
        }
        for (end = at; end < text.length && text.text[end] != '}' && text.text[end] != '{';) end++;
        if (!opens) return fail_format(run, "Single '}' encountered in format string");
        if (end == text.length) return fail_format(run, "expected '}' before end of string");
        if (text.text[end] == '{') return fail_format(run, "nested fields of a format string are not supported");
        RETURN_IF_ERROR(put_field(run, snug_jinja_string(text.text + at, end - at), arguments, &automatic, &builder));
        at = end + 1;
    }
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

/* ---- dates ---- */

static snug_status put_directive(struct snug_jinja_run *run, locale_t locale, struct snug_jinja_value directive,
                                 struct snug_jinja_builder *builder) {
    static const char kinds[] = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%";
    char format[8], text[128];
    const char kind = directive.text[directive.length - 1];
    if (kind == 'f') return snug_jinja_put_text(&run->heap, builder, "000000");
    if (kind == 'z' || kind == 'Z') return SNUG_OK; /* the time has no zone */
    if (!memchr(kinds, kind, sizeof kinds - 1))
        return snug_jinja_put(&run->heap, builder, directive.text, directive.length);
    memcpy(format, directive.text, directive.length);
    format[directive.length] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t length = strftime_l(text, sizeof text, format, &run->input->now, locale);
#pragma GCC diagnostic pop
    return snug_jinja_put(&run->heap, builder, text, length);
}

static snug_status put_date(struct snug_jinja_run *run, locale_t locale, struct snug_jinja_value format,
                            struct snug_jinja_builder *builder) {
    for (size_t at = 0, end; at < format.length; at = end) {
        end = at + 1;
        if (format.text[at] != '%') {
            while (end < format.length && format.text[end] != '%') end++;
            RETURN_IF_ERROR(snug_jinja_put(&run->heap, builder, format.text + at, end - at));
            continue;
        }
        while (end < format.length && end < at + 4 && memchr("-_0^#", format.text[end], 5)) end++;
        if (end == format.length) {
            RETURN_IF_ERROR(snug_jinja_put(&run->heap, builder, format.text + at, end - at));
            continue;
        }
        end++;
        RETURN_IF_ERROR(put_directive(run, locale, snug_jinja_string(format.text + at, end - at), builder));
    }
    return SNUG_OK;
}

snug_status snug_jinja_date(struct snug_jinja_run *run, struct snug_jinja_value format, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    const locale_t locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!locale) return snug_fail(run->heap.ctx, SNUG_E_MEMORY, "out of memory for the C locale");
    const snug_status status = put_date(run, locale, format, &builder);
    freelocale(locale);
    *out = snug_jinja_built(&builder);
    return status;
}
