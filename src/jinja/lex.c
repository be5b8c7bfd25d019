/* SPDX-License-Identifier: Apache-2.0 */
/* Text and tokens of tags, by the rules of jinja2/lexer.py. */
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "jinja/text.h"
#include "jinja/tree.h"
#include "tokenizer/unicode.h"

struct lexer {
    struct snug_jinja_parser *parser;
    const char *text;
    size_t length, at;
    uint32_t line;
    bool line_starting; /* what was read last ended with a newline */
};

static snug_status fail(struct lexer *lexer, const char *what) {
    lexer->parser->heap.line = lexer->line;
    return snug_jinja_fail(&lexer->parser->heap, "%s", what);
}

static snug_status push(struct lexer *lexer, enum snug_jinja_token_kind kind, struct snug_jinja_value value) {
    struct snug_jinja_parser *parser = lexer->parser;
    RETURN_IF_ERROR(snug_grow(parser->heap.ctx, (void **)&parser->tokens, &parser->capacity, parser->count + 1,
                              sizeof *parser->tokens));
    parser->tokens[parser->count++] = (struct snug_jinja_token){kind, lexer->line, value};
    return SNUG_OK;
}

static bool is_at(const struct lexer *lexer, size_t at, const char *text) {
    const size_t length = strlen(text);
    return lexer->length - at >= length && memcmp(lexer->text + at, text, length) == 0;
}

static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

/* Moves to `to`, and counts the lines. */
static void advance(struct lexer *lexer, size_t to) {
    for (size_t i = lexer->at; i < to; i++) lexer->line += lexer->text[i] == '\n';
    if (to > lexer->at) lexer->line_starting = lexer->text[to - 1] == '\n';
    lexer->at = to;
}

/* The end of white space from `at` on. */
static size_t skip_space(const struct lexer *lexer, size_t at) {
    while (at < lexer->length) {
        size_t next = at;
        if (!snug_jinja_is_space(snug_utf8_next(lexer->text, &next))) break;
        at = next;
    }
    return at;
}

/* The end of a tag's end at `at`, with the white space that goes with it; 0 if it is none. plus: whether a "+" may keep
   the newline; newline: whether one goes. */
static size_t tag_end(const struct lexer *lexer, size_t at, const char *end, bool plus, bool newline) {
    const bool minus = is_at(lexer, at, "-"), keep = plus && is_at(lexer, at, "+");
    const size_t begin = at + (minus || keep), length = strlen(end);
    if (!is_at(lexer, begin, end)) return 0;
    if (minus) return skip_space(lexer, begin + length);
    return begin + length + (newline && !keep && is_at(lexer, begin + length, "\n"));
}

/* The end of the word at `at` with white space around it; 0 if it is another one. */
static size_t word_end(const struct lexer *lexer, size_t at, const char *word) {
    at = skip_space(lexer, at);
    return is_at(lexer, at, word) ? skip_space(lexer, at + strlen(word)) : 0;
}

/* The text before a tag that begins at `end` with this sign. lstrip: blanks at the start of its line go. */
static snug_status push_text(struct lexer *lexer, size_t end, char sign, bool lstrip) {
    const char *text = lexer->text + lexer->at;
    size_t length = end - lexer->at, line;
    if (sign == '-') {
        length = snug_jinja_strip(snug_jinja_string(text, length), NULL, false, true).length;
    } else if (sign != '+' && lstrip) {
        for (line = length; line && text[line - 1] != '\n';) line--;
        if ((line || lexer->line_starting) && skip_space(lexer, lexer->at + line) >= end) length = line;
    }
    return length ? push(lexer, SNUG_TOKEN_TEXT, snug_jinja_string(text, length)) : SNUG_OK;
}

static char sign_at(const struct lexer *lexer, size_t at) {
    return is_at(lexer, at, "-") ? '-' : is_at(lexer, at, "+") ? '+' : 0;
}

/* ---- tokens of tags ---- */

static size_t digits_end(const struct lexer *lexer, size_t at) {
    while (at < lexer->length && (is_digit(lexer->text[at]) ||
                                  (lexer->text[at] == '_' && at + 1 < lexer->length && is_digit(lexer->text[at + 1]))))
        at++;
    return at;
}

static snug_status read_real(struct lexer *lexer, size_t end) {
    char text[400];
    size_t length = 0, at = lexer->at;
    json_error_t error;
    for (; at < end; at++) {
        if (length == sizeof text) return fail(lexer, "a number has too many digits");
        if (lexer->text[at] == '_') continue;
        if (length == 1 && text[0] == '0' && is_digit(lexer->text[at])) length = 0; /* JSON has no 007.5 */
        text[length++] = lexer->text[at];
    }
    json_t *value = snug_json_parse(text, length, JSON_DECODE_ANY, &error);
    if (!value) return fail(lexer, "a number is too large");
    const double real = json_real_value(value);
    json_decref(value);
    return push(lexer, SNUG_TOKEN_REAL, snug_jinja_float(real));
}

static snug_status read_integer(struct lexer *lexer, size_t end) {
    int64_t value = 0;
    for (size_t at = lexer->at; at < end; at++) {
        if (lexer->text[at] == '_') continue;
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, lexer->text[at] - '0', &value))
            return fail(lexer, "an integer has more than 64 bits, which is not supported");
    }
    return push(lexer, SNUG_TOKEN_INTEGER, snug_jinja_int(value));
}

static snug_status read_number(struct lexer *lexer) {
    const size_t whole = digits_end(lexer, lexer->at);
    const bool after_dot = lexer->text[lexer->at - 1] == '.'; /* a tag begins before it */
    size_t end = whole;
    if (!after_dot) {
        if (is_at(lexer, end, ".") && end + 1 < lexer->length && is_digit(lexer->text[end + 1]))
            end = digits_end(lexer, end + 1);
        if (is_at(lexer, end, "e") || is_at(lexer, end, "E")) {
            const size_t sign = end + 1 + (is_at(lexer, end + 1, "-") || is_at(lexer, end + 1, "+"));
            if (sign < lexer->length && is_digit(lexer->text[sign])) end = digits_end(lexer, sign);
        }
    }
    RETURN_IF_ERROR(end > whole ? read_real(lexer, end) : read_integer(lexer, end));
    advance(lexer, end);
    return SNUG_OK;
}

static int hex_digit(char byte) {
    if (is_digit(byte)) return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Python's escapes: writes what the escape after a backslash at text[*at] stands for. */
static snug_status read_escape(struct lexer *lexer, const char *text, size_t length, size_t *at, char **out) {
    static const char names[] = "\\'\"abfnrtv", bytes[] = "\\'\"\a\b\f\n\r\t\v";
    const char kind = text[(*at)++];
    const char *simple = kind ? strchr(names, kind) : NULL;
    uint32_t code = 0;
    size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (simple) {
        *(*out)++ = bytes[simple - names];
        return SNUG_OK;
    }
    if (kind == '\n') return SNUG_OK;
    if (kind == 'N') return fail(lexer, "the escape \\N{…} is not supported");
    if (kind >= '0' && kind <= '7') {
        --*at;
        for (size_t i = 0; i < 3 && *at < length && text[*at] >= '0' && text[*at] <= '7'; i++)
            code = code * 8 + (uint32_t)(text[(*at)++] - '0');
        *out += snug_utf8_put(*out, code);
        return SNUG_OK;
    }
    if (!digits) { /* stays as it is */
        *(*out)++ = '\\';
        --*at;
        return SNUG_OK;
    }
    for (; digits; digits--) {
        const int digit = *at < length ? hex_digit(text[*at]) : -1;
        if (digit < 0) return fail(lexer, "a \\x, \\u or \\U escape of a string is too short");
        code = code << 4 | (uint32_t)digit;
        ++*at;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return fail(lexer, "an escape of a string is no Unicode character");
    *out += snug_utf8_put(*out, code);
    return SNUG_OK;
}

static snug_status read_string(struct lexer *lexer) {
    const char quote = lexer->text[lexer->at];
    const size_t begin = lexer->at + 1;
    size_t end = begin;
    void *memory;
    while (end < lexer->length && lexer->text[end] != quote) end += lexer->text[end] == '\\' ? 2 : 1;
    if (end >= lexer->length) return fail(lexer, "a string has no end");
    const char *text = lexer->text + begin;
    const size_t length = end - begin;
    RETURN_IF_ERROR(snug_jinja_take(&lexer->parser->heap, length + 4, &memory));
    char *out = memory;
    for (size_t at = 0; at < length;) {
        const char byte = text[at++];
        if (byte == '\\')
            RETURN_IF_ERROR(read_escape(lexer, text, length, &at, &out));
        else
            *out++ = byte;
    }
    RETURN_IF_ERROR(push(lexer, SNUG_TOKEN_STRING, snug_jinja_string(memory, (size_t)(out - (char *)memory))));
    advance(lexer, end + 1);
    return SNUG_OK;
}

static bool is_name_part(const struct lexer *lexer, size_t at, size_t *next, bool first) {
    if (at >= lexer->length) return false;
    *next = at;
    const uint32_t code = snug_utf8_next(lexer->text, next);
    if (code < 128) return code == '_' || (code | 0x20) - 'a' < 26 || (!first && is_digit((char)code));
    return snug_codepoint_class(code) & SNUG_CLASS_WORD;
}

static snug_status read_name(struct lexer *lexer) {
    size_t end = lexer->at, next = 0;
    while (is_name_part(lexer, end, &next, end == lexer->at)) end = next;
    if (end == lexer->at) {
        char message[64];
        size_t after = lexer->at;
        snug_utf8_next(lexer->text, &after);
        snprintf(message, sizeof message, "unexpected char '%.*s'", (int)(after - lexer->at), lexer->text + lexer->at);
        return fail(lexer, message);
    }
    RETURN_IF_ERROR(push(lexer, SNUG_TOKEN_NAME, snug_jinja_string(lexer->text + lexer->at, end - lexer->at)));
    advance(lexer, end);
    return SNUG_OK;
}

static size_t operator_length(const struct lexer *lexer) {
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (is_at(lexer, lexer->at, two[i])) return 2;
    return lexer->text[lexer->at] && strchr("+-/*%~[](){}><=.:|,;", lexer->text[lexer->at]) ? 1 : 0;
}

/* The brackets that are open, of which there are at most DEEP. */
enum { DEEP = 400 };

static snug_status balance(struct lexer *lexer, char *open, size_t *count, char byte) {
    static const char begins[] = "{([", ends[] = "})]";
    const char *begin = strchr(begins, byte), *end = strchr(ends, byte);
    char message[64];
    if (begin) {
        if (*count == DEEP) return fail(lexer, "brackets are nested too deep");
        open[(*count)++] = ends[begin - begins];
    } else if (end && !*count) {
        snprintf(message, sizeof message, "unexpected '%c'", byte);
        return fail(lexer, message);
    } else if (end && open[--*count] != byte) {
        snprintf(message, sizeof message, "unexpected '%c', expected '%c'", byte, open[*count]);
        return fail(lexer, message);
    }
    return SNUG_OK;
}

/* The tokens up to the tag's end, which is one, too. */
static snug_status read_tag(struct lexer *lexer, bool block) {
    char open[DEEP];
    size_t count = 0;
    for (;;) {
        const size_t end = count ? 0 : tag_end(lexer, lexer->at, block ? "%}" : "}}", block, block);
        if (end) {
            RETURN_IF_ERROR(
                push(lexer, block ? SNUG_TOKEN_BLOCK_END : SNUG_TOKEN_OUTPUT_END, snug_jinja_string("", 0)));
            advance(lexer, end);
            return SNUG_OK;
        }
        advance(lexer, skip_space(lexer, lexer->at));
        if (!count && tag_end(lexer, lexer->at, block ? "%}" : "}}", block, block)) continue;
        if (lexer->at == lexer->length) return SNUG_OK; /* the parser names what is missing */
        const char byte = lexer->text[lexer->at];
        const size_t length = operator_length(lexer);
        if (is_digit(byte)) {
            RETURN_IF_ERROR(read_number(lexer));
        } else if (byte == '"' || byte == '\'') {
            RETURN_IF_ERROR(read_string(lexer));
        } else if (length) {
            if (length == 1) RETURN_IF_ERROR(balance(lexer, open, &count, byte));
            RETURN_IF_ERROR(push(lexer, SNUG_TOKEN_OPERATOR, snug_jinja_string(lexer->text + lexer->at, length)));
            advance(lexer, lexer->at + length);
        } else {
            RETURN_IF_ERROR(read_name(lexer));
        }
    }
}

/* ---- text, comments, raw ---- */

static snug_status skip_comment(struct lexer *lexer) {
    for (size_t at = lexer->at; at < lexer->length; at++) {
        const char *hash = memchr(lexer->text + at, '#', lexer->length - at);
        if (!hash) break;
        at = (size_t)(hash - lexer->text);
        if (!is_at(lexer, at, "#}")) continue;
        const size_t sign = at > lexer->at && (hash[-1] == '-' || hash[-1] == '+') ? at - 1 : at;
        advance(lexer, tag_end(lexer, sign, "#}", true, true));
        return SNUG_OK;
    }
    return fail(lexer, "Missing end of comment tag");
}

static snug_status read_raw(struct lexer *lexer) {
    for (size_t at = lexer->at; at < lexer->length; at++) {
        if (!is_at(lexer, at, "{%")) continue;
        const char sign = sign_at(lexer, at + 2);
        const size_t word = word_end(lexer, at + 2 + (sign != 0), "endraw");
        const size_t end = word ? tag_end(lexer, word, "%}", true, true) : 0;
        if (!end) continue;
        RETURN_IF_ERROR(push_text(lexer, at, sign, true));
        advance(lexer, end);
        return SNUG_OK;
    }
    return fail(lexer, "Missing end of raw directive");
}

/* What begins at text[at]: '#', '%', '{', or 0. */
static char tag_at(const struct lexer *lexer, size_t at) {
    return is_at(lexer, at, "{#") ? '#' : is_at(lexer, at, "{%") ? '%' : is_at(lexer, at, "{{") ? '{' : 0;
}

static snug_status read_part(struct lexer *lexer) {
    size_t at = lexer->at;
    while (at < lexer->length && !tag_at(lexer, at)) at++;
    if (at == lexer->length) {
        RETURN_IF_ERROR(push_text(lexer, at, '+', false));
        advance(lexer, at);
        return SNUG_OK;
    }
    const char tag = tag_at(lexer, at), sign = sign_at(lexer, at + 2);
    const size_t begin = at + 2 + (sign != 0), word = tag == '%' ? word_end(lexer, begin, "raw") : 0;
    const size_t raw = word ? tag_end(lexer, word, "%}", false, false) : 0;
    RETURN_IF_ERROR(push_text(lexer, at, sign, tag != '{'));
    advance(lexer, raw ? raw : begin);
    if (raw) return read_raw(lexer);
    if (tag == '#') return skip_comment(lexer);
    RETURN_IF_ERROR(
        push(lexer, tag == '%' ? SNUG_TOKEN_BLOCK_BEGIN : SNUG_TOKEN_OUTPUT_BEGIN, snug_jinja_string("", 0)));
    return read_tag(lexer, tag == '%');
}

/* A copy with \n for each end of a line, and without the last one. */
static snug_status normalize(struct snug_jinja_parser *parser, const char *text, size_t length, struct lexer *lexer) {
    void *memory;
    RETURN_IF_ERROR(snug_jinja_take(&parser->heap, length, &memory));
    char *out = memory;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\n' && i && text[i - 1] == '\r') continue;
        *out++ = text[i] == '\r' ? '\n' : text[i];
    }
    lexer->text = memory;
    lexer->length = (size_t)(out - lexer->text);
    if (lexer->length && out[-1] == '\n') lexer->length--;
    return SNUG_OK;
}

snug_status snug_jinja_lex(struct snug_jinja_parser *parser, const char *text, size_t length) {
    struct lexer lexer = {.parser = parser, .line = 1, .line_starting = true};
    RETURN_IF_ERROR(normalize(parser, text, length, &lexer));
    while (lexer.at < lexer.length) RETURN_IF_ERROR(read_part(&lexer));
    return push(&lexer, SNUG_TOKEN_END, snug_jinja_string("", 0));
}
