/* SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

/* ---- memory ---- */

/* Jansson collects a token in a buffer of 16 bytes that doubles. If it cannot grow, Jansson drops characters, fails an
 * assertion, or reads and writes beyond the token. So while a text is parsed, a reserve is held that is large enough
 * for its longest token. After the first failed allocation only requests of the buffer's possible sizes succeed, if
 * necessary from the reserve: the next value cannot be stored, and Jansson ends the parse with an error. */
static _Thread_local struct {
    char *start, *at, *end; /* start is NULL: this thread is not parsing */
    bool used;
} reserve;
static json_malloc_t system_malloc;
static json_free_t system_free;

static void *allocate(size_t size) {
    const bool may_be_buffer = size >= 32 && !(size & (size - 1));
    void *memory = reserve.used && !may_be_buffer ? NULL : system_malloc(size);
    if (memory || !reserve.start) return memory;
    reserve.used = true;
    if (!may_be_buffer || size > (size_t)(reserve.end - reserve.at)) return NULL;
    memory = reserve.at;
    reserve.at += size;
    return memory;
}

static void release(void *memory) {
    const char *at = memory;
    if (!reserve.start || at < reserve.start || at >= reserve.end) system_free(memory);
}

static void set_allocator(void) {
    json_get_alloc_funcs(&system_malloc, &system_free);
    json_set_alloc_funcs(allocate, release);
}

static bool is_token(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' ||
           c == '.';
}

static size_t longest_token(const char *text, size_t length) {
    size_t longest = 0;
    for (size_t at = 0, end; at < length; at = end) {
        end = at + 1;
        if (text[at] == '"') {
            while (end < length && text[end] != '"') end += text[end] == '\\' && end + 1 < length ? 2 : 1;
            end += end < length;
        } else {
            while (is_token(text[at]) && end < length && is_token(text[end])) end++;
        }
        if (end - at > longest) longest = end - at;
    }
    return longest;
}

static json_t *refuse(json_t *value, json_error_t *error, enum json_error_code code, const char *text) {
    json_decref(value);
    *error = (json_error_t){.line = 1};
    snprintf(error->text, sizeof error->text, "%s", text);
    error->text[sizeof error->text - 1] = (char)code; /* Jansson stores the code there, see json_error_code() */
    return NULL;
}

/* json_loadb(), but too little memory is always an error. */
static json_t *load(const char *text, size_t length, size_t flags, json_error_t *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    size_t buffer = 32; /* the largest buffer; its earlier sizes take as much again, and so do other allocations */
    for (const size_t token = longest_token(text, length); buffer < token + 2;) buffer *= 2;
    char *memory = malloc(4 * buffer);
    if (!memory) return refuse(NULL, error, json_error_out_of_memory, "out of memory");
    reserve.start = reserve.at = memory, reserve.end = memory + 4 * buffer, reserve.used = false;
    json_t *value = json_loadb(text, length, flags, error);
    const bool complete = !reserve.used;
    if (!complete) refuse(value, error, json_error_out_of_memory, "out of memory");
    reserve.start = NULL;
    free(memory);
    return complete ? value : NULL;
}

/* ---- numbers ---- */

/* Writes the replacement of a number of length bytes; returns the replacement's length. */
typedef size_t rewrite_fn(char *out, const char *number, size_t length);

static bool is_integer(const char *number, size_t length) {
    return !memchr(number, '.', length) && !memchr(number, 'e', length) && !memchr(number, 'E', length);
}

/* An integer that may be beyond 64 bits, as a real. Tokenizer files hold one: "model_max_length", 10^30. */
static size_t widen(char *out, const char *number, size_t length) {
    memcpy(out, number, length);
    if (length < 19 || !is_integer(number, length)) return length;
    memcpy(out + length, ".0", 2);
    return length + 2;
}

/* The shortest of 15, 16 or 17 digits that reads back as the same real, as Python prints it: 0.1, 1e-12. Jansson does
 * the conversions, because they must not depend on the process's locale. */
static size_t shorten(char *out, const char *number, size_t length) {
    json_error_t error;
    json_t *value = is_integer(number, length) ? NULL : load(number, length, JSON_DECODE_ANY, &error);
    for (size_t precision = 15; value && precision < 17; precision++) {
        size_t size = json_dumpb(value, out, length, JSON_ENCODE_ANY | JSON_REAL_PRECISION(precision));
        json_t *back = size && size <= length ? load(out, size, JSON_DECODE_ANY, &error) : NULL;
        bool same = back && json_real_value(back) == json_real_value(value);
        json_decref(back);
        if (same) {
            json_decref(value);
            return size;
        }
    }
    json_decref(value);
    memcpy(out, number, length);
    return length;
}

/* A copy of a JSON text with each number outside strings rewritten, NUL-terminated; NULL if out of memory. */
static char *rewrite_numbers(const char *text, size_t length, rewrite_fn *rewrite, size_t *out_length) {
    char *out = malloc(length + length / 8 + 3); /* widen adds two bytes to 19 or more, shorten none */
    if (!out) return NULL;
    size_t to = 0;
    bool in_string = false;
    for (size_t at = 0; at < length;) {
        size_t end = at + 1;
        if (in_string && text[at] == '\\' && end < length) {
            end++;
        } else if (text[at] == '"') {
            in_string = !in_string;
        } else if (!in_string && ((text[at] >= '0' && text[at] <= '9') || text[at] == '-')) {
            while (end < length && strchr("0123456789+-.eE", text[end])) end++; /* no NUL at its end */
            to += rewrite(out + to, text + at, end - at);
            at = end;
            continue;
        }
        memcpy(out + to, text + at, end - at);
        to += end - at;
        at = end;
    }
    out[to] = '\0';
    *out_length = to;
    return out;
}

/* ---- parsing ---- */

static bool has_too_many_values(const char *text, size_t length) {
    size_t values = 1;
    bool in_string = false;
    if (length < SNUG_JSON_VALUES_MOST) return false;
    for (size_t at = 0; at < length; at++) {
        if (in_string && text[at] == '\\')
            at++;
        else if (text[at] == '"')
            in_string = !in_string;
        else if (!in_string)
            values += text[at] == ',' || text[at] == '[' || text[at] == '{';
    }
    return values > SNUG_JSON_VALUES_MOST;
}

/* Line and column of text[at], as Jansson counts them: columns are characters from 1. */
static void locate(json_error_t *error, const char *text, size_t at) {
    error->line = error->column = 1;
    for (size_t i = 0; i < at; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80) error->column++;
        if (text[i] == '\n') error->line++, error->column = 1;
    }
}

static json_t *parse(const char *text, size_t length, size_t flags, json_error_t *error) {
    const char *nul = memchr(text, 0, length);
    if (nul) { /* Jansson skips some */
        refuse(NULL, error, json_error_null_character, "a NUL byte");
        locate(error, text, (size_t)(nul - text));
        return NULL;
    }
    if (has_too_many_values(text, length)) {
        *error = (json_error_t){.line = 1};
        snprintf(error->text, sizeof error->text, "over %d values", SNUG_JSON_VALUES_MOST);
        return NULL;
    }
    return load(text, length, flags, error);
}

json_t *snug_json_parse(const char *text, size_t length, size_t flags, json_error_t *error) {
    json_t *value = parse(text, length, flags, error);
    if (value || json_error_code(error) != json_error_numeric_overflow) return value;
    size_t wide_length;
    char *wide = rewrite_numbers(text, length, widen, &wide_length);
    if (!wide) return refuse(NULL, error, json_error_out_of_memory, "out of memory");
    value = parse(wide, wide_length, flags, error);
    free(wide);
    if (value || snug_json_status(error) == SNUG_E_MEMORY) return value;
    /* the error again, with its position in the text without the digits that widen() adds */
    value = parse(text, length, flags | JSON_DECODE_INT_AS_REAL, error);
    return value ? refuse(value, error, json_error_out_of_memory, "out of memory") : NULL;
}

snug_status snug_json_status(const json_error_t *error) {
    return json_error_code(error) == json_error_out_of_memory ? SNUG_E_MEMORY : SNUG_E_INPUT;
}

char *snug_json_dump(const json_t *value, size_t flags) {
    const size_t size = json_dumpb(value, NULL, 0, flags);
    char *text = size ? malloc(size + 1) : NULL;
    if (text && json_dumpb(value, text, size, flags) == size) {
        text[size] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

/* The bytes of a character in a JSON string: an escape of a control character, of a quote or backslash, or itself. */
static size_t escaped_size(unsigned char c) { return c < ' ' ? 6 : c == '"' || c == '\\' ? 2 : 1; }

size_t snug_json_quoted_size(const char *text, size_t length) {
    size_t size = 2;
    for (size_t i = 0; i < length; i++) size += escaped_size((unsigned char)text[i]);
    return size;
}

/* From its end: no character of the text is overwritten before it is read. */
void snug_json_quote(char *out, const char *text, size_t length) {
    char *at = out + snug_json_quoted_size(text, length);
    *--at = '"';
    while (length-- > 0) {
        const unsigned char c = (unsigned char)text[length];
        char escape[8];
        *--at = (char)c;
        if (escaped_size(c) == 2) *--at = '\\';
        if (escaped_size(c) != 6) continue;
        snprintf(escape, sizeof escape, "\\u%04x", c);
        at -= 5;
        memcpy(at, escape, 6);
    }
    *--at = '"';
}

snug_status snug_json_text(snug_context *ctx, const json_t *value, size_t flags, char **text) {
    *text = NULL;
    char *full = snug_json_dump(value, flags);
    if (!full) return snug_fail(ctx, SNUG_E_MEMORY, "a value cannot be written as JSON: out of memory, or not UTF-8");
    size_t length;
    *text = rewrite_numbers(full, strlen(full), shorten, &length);
    free(full);
    return *text ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while writing JSON");
}

snug_status snug_json_read_text(snug_context *ctx, const char *path, const char *text, size_t size, json_t **out) {
    *out = NULL;
    size_t bom = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    json_error_t error;
    json_t *value = snug_json_parse(text + bom, size - bom, 0, &error);
    if (!value && snug_json_status(&error) == SNUG_E_MEMORY)
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while reading %s (%zu bytes)", path, size);
    if (!value)
        return snug_fail(ctx, SNUG_E_INPUT, "%s:%d: not valid JSON (column %d): %s", path, error.line, error.column,
                         error.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return snug_fail(ctx, SNUG_E_INPUT, "%s: must hold one JSON object, {…}", path);
    }
    *out = value;
    return SNUG_OK;
}

snug_status snug_json_read(snug_context *ctx, const struct snug_folder *in, const char *name, json_t **out) {
    char *text, *path;
    size_t size;
    *out = NULL;
    RETURN_IF_ERROR(snug_file_read(ctx, in, name, &text, &size));
    snug_status status = snug_format(ctx, &path, SNUG_PATH, SNUG_PATH_IN(in, name));
    if (status == SNUG_OK) {
        status = snug_json_read_text(ctx, path, text, size, out);
        free(path);
    }
    free(text);
    return status;
}

snug_status snug_json_write(snug_context *ctx, const struct snug_folder *in, const char *name, const json_t *value) {
    char *text;
    RETURN_IF_ERROR(snug_json_text(ctx, value, JSON_INDENT(2), &text));
    size_t length = strlen(text);
    text[length] = '\n'; /* it replaces the NUL */
    snug_status status = snug_file_replace(ctx, in, name, text, length + 1);
    free(text);
    return status;
}

static void drop(json_t **value) {
    json_decref(*value);
    *value = NULL;
}

void snug_json_add(json_t **object, const char *key, json_t *value) {
    if (json_object_set_new(*object, key, value)) drop(object);
}

void snug_json_append(json_t **array, json_t *value) {
    if (json_array_append_new(*array, value)) drop(array);
}

/* Jansson does not report whether it rejects a text or is out of memory: then the string must not be replaced. */
json_t *snug_json_from_text(const char *text) {
    const size_t length = strlen(text);
    return json_string(snug_utf8_invalid(text, length) == length ? text : "\xEF\xBF\xBD");
}

json_t *snug_json_number(double value) {
    if (!isfinite(value)) return json_null();
    return value == floor(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value) : json_real(value);
}

json_t *snug_json_hex(uint64_t number) {
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, number);
    return json_string(text);
}

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    default: return "true or false"; /* null counts as absent */
    }
}

static snug_status wrong_type(snug_context *ctx, const char *path, const char *key, const json_t *value,
                              const char *expected) {
    return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" must be %s, found %s", path, key, expected, type_name(value));
}

/* The member, or NULL where it is absent or null. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

snug_status snug_json_int(snug_context *ctx, const char *path, const json_t *object, const char *key, int64_t otherwise,
                          int64_t *out) {
    const json_t *value = member(object, key);
    *out = otherwise;
    if (!value) return SNUG_OK;
    double real = json_real_value(value);
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
    } else if (json_is_real(value) && fabs(real) <= 0x1p53 && real == (double)(int64_t)real) {
        *out = (int64_t)real; /* 512.0, as some programs write it */
    } else {
        return wrong_type(ctx, path, key, value, "an integer of at most 64 bits");
    }
    return SNUG_OK;
}

snug_status snug_json_real(snug_context *ctx, const char *path, const json_t *object, const char *key, double otherwise,
                           double *out) {
    const json_t *value = member(object, key);
    *out = otherwise;
    if (!value) return SNUG_OK;
    if (!json_is_number(value)) return wrong_type(ctx, path, key, value, "a number");
    *out = json_number_value(value);
    return SNUG_OK;
}

snug_status snug_json_bool(snug_context *ctx, const char *path, const json_t *object, const char *key, bool otherwise,
                           bool *out) {
    const json_t *value = member(object, key);
    *out = otherwise;
    if (!value) return SNUG_OK;
    if (!json_is_boolean(value)) return wrong_type(ctx, path, key, value, "true or false");
    *out = json_is_true(value);
    return SNUG_OK;
}

snug_status snug_json_string(snug_context *ctx, const char *path, const json_t *object, const char *key,
                             const char *otherwise, const char **out) {
    const json_t *value = member(object, key);
    *out = otherwise;
    if (!value) return SNUG_OK;
    if (!json_is_string(value)) return wrong_type(ctx, path, key, value, "a string");
    *out = json_string_value(value);
    return SNUG_OK;
}
