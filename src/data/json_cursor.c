/* SPDX-License-Identifier: Apache-2.0 */
#include "data/json_cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "data/field_list.h"
#include "io/json.h"

/* Lists and objects within each other; Python's limit is about the same. */
enum { DEPTH_MOST = 1000 };

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

/* The next byte; -1 at the end. */
static int next(struct snug_json_cursor *cursor) {
    if (cursor->at == cursor->end && !cursor->more(cursor)) return -1;
    return (unsigned char)*cursor->at;
}

snug_status snug_json_fail(struct snug_json_cursor *cursor, const char *what) {
    struct snug_reader *reader = cursor->reader;
    const bool ended = next(cursor) < 0;
    RETURN_IF_ERROR(reader->input_status);
    if (ended)
        return snug_reader_fail_at(reader, reader->record_line,
                                   "the file ends within the object that begins here: it is truncated");
    const char *column = cursor->column;
    return snug_fail(reader->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": %s%s%s%s", reader->path, cursor->line,
                     column ? "column \"" : "", column ? column : "", column ? "\": " : "", what);
}

int snug_json_peek(struct snug_json_cursor *cursor) {
    for (;; cursor->at++) {
        const int byte = next(cursor);
        if (byte != ' ' && byte != '\t' && byte != '\r' && byte != '\n') return byte;
        cursor->line += byte == '\n';
    }
}

bool snug_json_take(struct snug_json_cursor *cursor, char byte) {
    const bool found = snug_json_peek(cursor) == byte;
    cursor->at += found;
    return found;
}

/* ---- strings -------------------------------------------------------------------------------------------------- */

static snug_status put(struct snug_json_cursor *cursor, const char *data, size_t size) {
    return snug_reader_append(cursor->reader, data, size);
}

static snug_status fail_in_string(struct snug_json_cursor *cursor) {
    return snug_json_fail(cursor, next(cursor) == '\n'
                                      ? "a line ends within a string: its quote is missing, or the line break must be "
                                        "written as \\n"
                                      : "a control character in a string must be written as \\t or \\u00XX");
}

/* Bytes of a string up to a quote or backslash, which is not taken; out: also into the record. */
static snug_status plain_part(struct snug_json_cursor *cursor, bool out, int *stop) {
    for (;;) {
        const int byte = next(cursor);
        *stop = byte;
        if (byte == '"' || byte == '\\') return SNUG_OK;
        if (byte < ' ') return fail_in_string(cursor);
        const char *start = cursor->at;
        while (cursor->at < cursor->end && *cursor->at != '"' && *cursor->at != '\\' &&
               (unsigned char)*cursor->at >= ' ')
            cursor->at++;
        if (out) RETURN_IF_ERROR(put(cursor, start, (size_t)(cursor->at - start)));
    }
}

/* The number of \uXXXX, whose u was taken. */
static snug_status read_unit(struct snug_json_cursor *cursor, unsigned *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        const int byte = next(cursor);
        const char *digit = byte > 0 ? strchr("0123456789abcdef", byte | (byte >= 'A' ? 0x20 : 0)) : NULL;
        if (!digit) return snug_json_fail(cursor, "\\u in a string needs four hexadecimal digits");
        *unit = *unit << 4 | (unsigned)(digit - "0123456789abcdef");
        cursor->at++;
    }
    return SNUG_OK;
}

static snug_status put_character(struct snug_json_cursor *cursor, unsigned c) {
    char bytes[4];
    const size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3f));
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    bytes[0] = (char)(marks[size] | c);
    return put(cursor, bytes, size);
}

static snug_status put_half(struct snug_json_cursor *cursor, unsigned unit) {
    char what[96];
    snprintf(what, sizeof what, "\\u%04x is half of a surrogate pair; leave out --strict to have it replaced", unit);
    if (cursor->reader->strict) return snug_json_fail(cursor, what);
    if (cursor->reader->malformed.count++ == 0) cursor->reader->malformed.line = cursor->line;
    return put_character(cursor, 0xfffd);
}

/* What follows a backslash and u; two that are a pair of surrogates are one character. */
static snug_status read_escaped_character(struct snug_json_cursor *cursor) {
    unsigned unit, low;
    RETURN_IF_ERROR(read_unit(cursor, &unit));
    for (;;) {
        if (unit < 0xd800 || unit > 0xdfff) return put_character(cursor, unit);
        if (unit >= 0xdc00 || next(cursor) != '\\') return put_half(cursor, unit);
        cursor->at++;
        if (next(cursor) != 'u') {
            RETURN_IF_ERROR(put_half(cursor, unit));
            return SNUG_END; /* another escape, whose backslash was taken */
        }
        cursor->at++;
        RETURN_IF_ERROR(read_unit(cursor, &low));
        if (low >= 0xdc00 && low <= 0xdfff)
            return put_character(cursor, 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
        RETURN_IF_ERROR(put_half(cursor, unit));
        unit = low;
    }
}

/* What follows a backslash. */
static snug_status read_escape(struct snug_json_cursor *cursor) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    for (;;) {
        const int byte = next(cursor);
        const char *escape = byte > 0 ? strchr(escapes, byte) : NULL;
        if (byte != 'u' && !escape) return snug_json_fail(cursor, "a backslash in a string must be written as \\\\");
        cursor->at++;
        if (escape) return put(cursor, &meant[escape - escapes], 1);
        const snug_status status = read_escaped_character(cursor);
        if (status != SNUG_END) return status;
    }
}

static snug_status read_string(struct snug_json_cursor *cursor, size_t *start, size_t *length) {
    struct snug_reader *reader = cursor->reader;
    int stop;
    *start = reader->record_size;
    cursor->at++;
    for (;;) {
        RETURN_IF_ERROR(plain_part(cursor, true, &stop));
        cursor->at++;
        if (stop == '"') break;
        RETURN_IF_ERROR(read_escape(cursor));
    }
    RETURN_IF_ERROR(snug_reader_repair(reader, *start, cursor->line));
    *length = reader->record_size - *start;
    return put(cursor, "", 1);
}

snug_status snug_json_key(struct snug_json_cursor *cursor) {
    size_t start, length;
    if (snug_json_peek(cursor) != '"') return snug_json_fail(cursor, "an object needs a key in double quotes here");
    RETURN_IF_ERROR(read_string(cursor, &start, &length));
    for (char *nul; (nul = memchr(cursor->reader->record + start, '\0', length));) *nul = '?';
    return snug_json_take(cursor, ':') ? SNUG_OK : snug_json_fail(cursor, "an object needs a colon after its key");
}

static snug_status pass_string(struct snug_json_cursor *cursor) {
    int stop;
    cursor->at++;
    for (;;) {
        RETURN_IF_ERROR(plain_part(cursor, false, &stop));
        cursor->at++;
        if (stop == '"') return SNUG_OK;
        if (next(cursor) < ' ') return fail_in_string(cursor);
        cursor->at++;
    }
}

/* A string into the record, as JSON. */
static snug_status keep_string(struct snug_json_cursor *cursor) {
    struct snug_reader *reader = cursor->reader;
    size_t start, length;
    RETURN_IF_ERROR(read_string(cursor, &start, &length));
    if (memchr(reader->record + start, '\0', length)) return snug_json_fail(cursor, "\\u0000 in a chat: remove it");
    const size_t size = snug_json_quoted_size(reader->record + start, length);
    for (size_t more = size - length; more;) { /* room for quotes and escapes */
        static const char blanks[64];
        const size_t part = more < sizeof blanks ? more : sizeof blanks;
        RETURN_IF_ERROR(put(cursor, blanks, part));
        more -= part;
    }
    reader->record_size = start + size;
    reader->record[reader->record_size] = '\0';
    snug_json_quote(reader->record + start, reader->record + start, length);
    return SNUG_OK;
}

/* ---- numbers and words ---------------------------------------------------------------------------------------- */

static bool is_token(int c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' ||
           c == '.' || c == '_';
}

/* A number or a word into the record, with a NUL after it. */
static snug_status read_token(struct snug_json_cursor *cursor, size_t *start) {
    *start = cursor->reader->record_size;
    while (is_token(next(cursor))) {
        const char *from = cursor->at;
        while (cursor->at < cursor->end && is_token((unsigned char)*cursor->at)) cursor->at++;
        RETURN_IF_ERROR(put(cursor, from, (size_t)(cursor->at - from)));
    }
    return put(cursor, "", 1);
}

static size_t digits(const char *text) { return strspn(text, "0123456789"); }

/* Whether text is a number of JSON; *whole: without a fraction and an exponent. */
static bool is_number(const char *text, bool *whole) {
    text += *text == '-';
    const size_t integer = digits(text);
    if (!integer || (*text == '0' && integer > 1)) return false;
    text += integer;
    *whole = !*text;
    if (*text == '.') {
        const size_t fraction = digits(++text);
        if (!fraction) return false;
        text += fraction;
    }
    if (*text == 'e' || *text == 'E') {
        text += text[1] == '-' || text[1] == '+' ? 2 : 1;
        const size_t exponent = digits(text);
        if (!exponent) return false;
        text += exponent;
    }
    return !*text;
}

static bool fits_64_bits(const char *text) {
    static const char most[] = "9223372036854775807", least[] = "9223372036854775808";
    const bool negative = *text == '-';
    const size_t length = strlen(text + negative);
    return length < 19 || (length == 19 && strcmp(text + negative, negative ? least : most) <= 0);
}

/* Whether Python prints this fraction as it is written, zeros at its end aside: 15 digits are kept by a double, and
   below 0.0001 there is an exponent. */
static bool is_plain_fraction(const char *text) {
    const char *point = strchr(text, '.');
    if (!point || strlen(text) > 16 || strpbrk(text, "eE")) return false;
    return text[strspn(text, "-0")] != '.' || strspn(point + 1, "0") < 4 || !point[1 + strspn(point + 1, "0")];
}

/* Rewrites a real in the record as Python prints it. One that no double holds stays as it is written. */
static snug_status print_real(struct snug_json_cursor *cursor, size_t start) {
    struct snug_reader *reader = cursor->reader;
    char *text = reader->record + start, *printed;
    json_error_t error;
    if (is_plain_fraction(text)) {
        size_t length = strlen(text);
        while (text[length - 1] == '0' && text[length - 2] != '.') length--;
        text[length] = '\0';
        reader->record_size = start + length + 1;
        return SNUG_OK;
    }
    json_t *value = snug_json_parse(text, strlen(text), JSON_DECODE_ANY, &error);
    if (!value && snug_json_status(&error) == SNUG_E_MEMORY)
        return snug_fail(reader->ctx, SNUG_E_MEMORY, "%s: out of memory while reading a number", reader->path);
    if (!value) return SNUG_OK;
    const snug_status status = snug_json_text(reader->ctx, value, JSON_ENCODE_ANY, &printed);
    json_decref(value);
    RETURN_IF_ERROR(status);
    reader->record_size = start;
    const snug_status put_status = put(cursor, printed, strlen(printed) + 1);
    free(printed);
    return put_status;
}

/* A byte that begins no value, or a word that is none. */
static snug_status fail_token(struct snug_json_cursor *cursor, const char *token) {
    char what[160];
    bool well_formed;
    const int byte = next(cursor);
    const bool python =
        byte == '\'' || strcmp(token, "None") == 0 || strcmp(token, "True") == 0 || strcmp(token, "False") == 0;
    const size_t length = *token || byte < 0 ? 0
                                             : snug_utf8_sequence((const unsigned char *)cursor->at,
                                                                  (size_t)(cursor->end - cursor->at), &well_formed);
    snprintf(what, sizeof what, "%.40s%.*s is not JSON%s", token, (int)length, cursor->at,
             python ? ", but how Python prints values: write them with json.dumps()" : "");
    return snug_json_fail(cursor, what);
}

static snug_status read_scalar(struct snug_json_cursor *cursor, struct snug_value_place *out) {
    static const struct {
        const char *token, *text;
        enum snug_field_kind kind;
    } words[] = {{"null", "null", SNUG_FIELD_MISSING},         {"NaN", "NaN", SNUG_FIELD_MISSING},
                 {"Infinity", "Infinity", SNUG_FIELD_MISSING}, {"-Infinity", "-Infinity", SNUG_FIELD_MISSING},
                 {"true", "True", SNUG_FIELD_BOOLEAN},         {"false", "False", SNUG_FIELD_BOOLEAN}};
    struct snug_reader *reader = cursor->reader;
    size_t start;
    bool whole;
    RETURN_IF_ERROR(read_token(cursor, &start));
    const char *token = reader->record + start;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(token, words[i].token) != 0) continue;
        reader->record_size = start;
        *out = (struct snug_value_place){words[i].kind, words[i].text, 0, strlen(words[i].text)};
        return SNUG_OK;
    }
    if (!is_number(token, &whole)) return fail_token(cursor, token);
    if (!whole) RETURN_IF_ERROR(print_real(cursor, start)); /* the record may move */
    if (strcmp(reader->record + start, "-0") == 0) {
        reader->record_size = start;
        RETURN_IF_ERROR(put(cursor, "0", 2));
    }
    token = reader->record + start;
    *out = (struct snug_value_place){whole && fits_64_bits(token) ? SNUG_FIELD_INTEGER : SNUG_FIELD_REAL, NULL, start,
                                     strlen(token)};
    return SNUG_OK;
}

/* ---- lists ---------------------------------------------------------------------------------------------------- */

static snug_status read_value(struct snug_json_cursor *cursor, bool item, struct snug_value_place *out);

static snug_status read_list(struct snug_json_cursor *cursor, struct snug_value_place *out) {
    struct snug_field_list list = snug_field_list_begin(cursor->reader);
    cursor->at++;
    if (snug_json_take(cursor, ']')) return snug_field_list_end(&list, out);
    do {
        RETURN_IF_ERROR(read_value(cursor, true, out));
        snug_field_list_add(&list, out);
    } while (snug_json_take(cursor, ','));
    if (!snug_json_take(cursor, ']')) return snug_json_fail(cursor, "a list needs a comma or ] here");
    return snug_field_list_end(&list, out);
}

/* ---- values --------------------------------------------------------------------------------------------------- */

/* Passes over values; keep: into the record, as JSON without blanks. */
static snug_status pass(struct snug_json_cursor *cursor, int depth, bool keep);

static snug_status keep_byte(struct snug_json_cursor *cursor, bool keep, char byte) {
    return keep ? put(cursor, &byte, 1) : SNUG_OK;
}

static snug_status pass_member(struct snug_json_cursor *cursor, int depth, bool keep) {
    if (snug_json_peek(cursor) != '"') return snug_json_fail(cursor, "an object needs a key in double quotes here");
    RETURN_IF_ERROR(keep ? keep_string(cursor) : pass_string(cursor));
    if (!snug_json_take(cursor, ':')) return snug_json_fail(cursor, "an object needs a colon after its key");
    RETURN_IF_ERROR(keep_byte(cursor, keep, ':'));
    return pass(cursor, depth + 1, keep);
}

static snug_status pass_object(struct snug_json_cursor *cursor, int depth, bool keep) {
    cursor->at++;
    RETURN_IF_ERROR(keep_byte(cursor, keep, '{'));
    if (snug_json_take(cursor, '}')) return keep_byte(cursor, keep, '}');
    for (;;) {
        RETURN_IF_ERROR(pass_member(cursor, depth, keep));
        if (!snug_json_take(cursor, ',')) break;
        RETURN_IF_ERROR(keep_byte(cursor, keep, ','));
    }
    if (!snug_json_take(cursor, '}')) return snug_json_fail(cursor, "an object needs a comma or } here");
    return keep_byte(cursor, keep, '}');
}

static snug_status pass_list(struct snug_json_cursor *cursor, int depth, bool keep) {
    cursor->at++;
    RETURN_IF_ERROR(keep_byte(cursor, keep, '['));
    if (snug_json_take(cursor, ']')) return keep_byte(cursor, keep, ']');
    for (;;) {
        RETURN_IF_ERROR(pass(cursor, depth + 1, keep));
        if (!snug_json_take(cursor, ',')) break;
        RETURN_IF_ERROR(keep_byte(cursor, keep, ','));
    }
    if (!snug_json_take(cursor, ']')) return snug_json_fail(cursor, "a list needs a comma or ] here");
    return keep_byte(cursor, keep, ']');
}

/* A scalar into the record, as JSON: what Python alone writes, NaN and the like, becomes null. */
static snug_status keep_scalar(struct snug_json_cursor *cursor, size_t start) {
    struct snug_reader *reader = cursor->reader;
    struct snug_value_place value;
    RETURN_IF_ERROR(read_scalar(cursor, &value));
    if (value.kind == SNUG_FIELD_INTEGER || value.kind == SNUG_FIELD_REAL) {
        reader->record_size--; /* the NUL */
        return SNUG_OK;
    }
    reader->record_size = start;
    const char *text = value.kind == SNUG_FIELD_MISSING ? "null" : *value.fixed == 'T' ? "true" : "false";
    return put(cursor, text, strlen(text));
}

static snug_status pass(struct snug_json_cursor *cursor, int depth, bool keep) {
    const size_t size = cursor->reader->record_size;
    struct snug_value_place value;
    if (depth > DEPTH_MOST) return snug_json_fail(cursor, "over 1000 lists and objects within each other");
    switch (snug_json_peek(cursor)) {
    case '"': return keep ? keep_string(cursor) : pass_string(cursor);
    case '{': return pass_object(cursor, depth, keep);
    case '[': return pass_list(cursor, depth, keep);
    default: break;
    }
    if (keep) return keep_scalar(cursor, size);
    RETURN_IF_ERROR(read_scalar(cursor, &value));
    cursor->reader->record_size = size;
    return SNUG_OK;
}

snug_status snug_json_pass(struct snug_json_cursor *cursor) { return pass(cursor, 0, false); }

snug_status snug_json_keep(struct snug_json_cursor *cursor, struct snug_value_place *out) {
    struct snug_reader *reader = cursor->reader;
    const size_t start = reader->record_size;
    const int byte = snug_json_peek(cursor);
    if (byte != '[' && byte != '{') return snug_json_value(cursor, out);
    RETURN_IF_ERROR(pass(cursor, 0, true));
    *out = (struct snug_value_place){SNUG_FIELD_JSON, NULL, start, reader->record_size - start};
    return put(cursor, "", 1);
}

/* item: of a list, which holds no other list that can be used. */
static snug_status read_value(struct snug_json_cursor *cursor, bool item, struct snug_value_place *out) {
    switch (snug_json_peek(cursor)) {
    case '"':
        *out = (struct snug_value_place){.kind = SNUG_FIELD_TEXT};
        return read_string(cursor, &out->start, &out->length);
    case '[':
        if (!item) return read_list(cursor, out);
        *out = snug_other_value(SNUG_OTHER_LIST);
        return snug_json_pass(cursor);
    case '{': *out = snug_other_value("an object"); return snug_json_pass(cursor);
    default: return read_scalar(cursor, out);
    }
}

snug_status snug_json_value(struct snug_json_cursor *cursor, struct snug_value_place *out) {
    return read_value(cursor, false, out);
}
