/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, as jinja2/parser.py reads them: its precedence has "-" and "+" weaker than "~", that weaker than "*". */
#include <string.h>

#include "jinja/filters.h"
#include "jinja/tree.h"

/* Nested expressions take a dozen C calls for each level. */
enum { DEEP_EXPRESSION = 10 };

static snug_status parse_unary(struct snug_jinja_parser *parser, bool filters, struct snug_jinja_node **out);
static snug_status parse_or(struct snug_jinja_parser *parser, struct snug_jinja_node **out);

/* Wraps *out as a of a new node. */
static snug_status wrap(struct snug_jinja_parser *parser, enum snug_jinja_kind kind, struct snug_jinja_node **out) {
    struct snug_jinja_node *inner = *out;
    RETURN_IF_ERROR(snug_jinja_node_new(parser, kind, out));
    (*out)->a = inner;
    return SNUG_OK;
}

/* ---- operators ---- */

struct symbol {
    const char *text;
    enum snug_jinja_operator op;
};

static const struct symbol *take_symbol(struct snug_jinja_parser *parser, const struct symbol *symbols) {
    for (; symbols->text; symbols++)
        if (snug_jinja_take_operator(parser, symbols->text)) return symbols;
    return NULL;
}

/* Left-associative operators of one precedence. */
static snug_status parse_chain(struct snug_jinja_parser *parser, const struct symbol *symbols,
                               snug_status (*next)(struct snug_jinja_parser *parser, struct snug_jinja_node **out),
                               struct snug_jinja_node **out) {
    const struct symbol *symbol;
    RETURN_IF_ERROR(next(parser, out));
    while ((symbol = take_symbol(parser, symbols))) {
        RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_ARITHMETIC, out));
        (*out)->op = (uint8_t)symbol->op;
        RETURN_IF_ERROR(next(parser, &(*out)->b));
    }
    return SNUG_OK;
}

static snug_status parse_operand(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    return parse_unary(parser, true, out);
}

static snug_status parse_power(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    static const struct symbol symbols[] = {{"**", SNUG_JINJA_POWER}, {NULL, 0}};
    return parse_chain(parser, symbols, parse_operand, out);
}

static snug_status parse_product(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    static const struct symbol symbols[] = {{"*", SNUG_JINJA_MULTIPLY},
                                            {"/", SNUG_JINJA_DIVIDE},
                                            {"//", SNUG_JINJA_FLOOR_DIVIDE},
                                            {"%", SNUG_JINJA_MODULO},
                                            {NULL, 0}};
    return parse_chain(parser, symbols, parse_power, out);
}

static snug_status parse_concat(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    struct snug_jinja_node **last;
    RETURN_IF_ERROR(parse_product(parser, out));
    if (!snug_jinja_at_operator(parser, "~")) return SNUG_OK;
    RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_CONCAT, out));
    for (last = &(*out)->a->next; snug_jinja_take_operator(parser, "~"); last = &(*last)->next)
        RETURN_IF_ERROR(parse_product(parser, last));
    return SNUG_OK;
}

static snug_status parse_sum(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    static const struct symbol symbols[] = {{"+", SNUG_JINJA_ADD}, {"-", SNUG_JINJA_SUBTRACT}, {NULL, 0}};
    return parse_chain(parser, symbols, parse_concat, out);
}

/* The operator of a comparison; false: there is none. */
static bool take_comparison(struct snug_jinja_parser *parser, enum snug_jinja_operator *op) {
    static const struct symbol symbols[] = {{"==", SNUG_JINJA_EQUAL},
                                            {"!=", SNUG_JINJA_NOT_EQUAL},
                                            {"<", SNUG_JINJA_LESS},
                                            {"<=", SNUG_JINJA_LESS_EQUAL},
                                            {">", SNUG_JINJA_GREATER},
                                            {">=", SNUG_JINJA_GREATER_EQUAL},
                                            {NULL, 0}};
    const struct symbol *symbol = take_symbol(parser, symbols);
    *op = symbol ? symbol->op : SNUG_JINJA_IN;
    if (symbol || snug_jinja_take_name(parser, "in")) return true;
    *op = SNUG_JINJA_NOT_IN;
    if (!snug_jinja_take_name(parser, "not")) return false;
    if (snug_jinja_take_name(parser, "in")) return true;
    parser->at--;
    return false;
}

static snug_status parse_comparison(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    enum snug_jinja_operator op;
    struct snug_jinja_node **last = NULL;
    RETURN_IF_ERROR(parse_sum(parser, out));
    while (take_comparison(parser, &op)) {
        if (!last) {
            RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_COMPARISON, out));
            last = &(*out)->b;
        }
        RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_OPERAND, last));
        (*last)->op = (uint8_t)op;
        RETURN_IF_ERROR(parse_sum(parser, &(*last)->a));
        last = &(*last)->next;
    }
    return SNUG_OK;
}

static snug_status parse_not(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    if (!snug_jinja_at_name(parser, "not")) return parse_comparison(parser, out);
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_NOT, out));
    parser->at++;
    RETURN_IF_ERROR(snug_jinja_descend(&parser->heap));
    const snug_status status = parse_not(parser, &(*out)->a);
    parser->heap.depth--;
    return status;
}

static snug_status parse_and(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    RETURN_IF_ERROR(parse_not(parser, out));
    while (snug_jinja_take_name(parser, "and")) {
        RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_AND, out));
        RETURN_IF_ERROR(parse_not(parser, &(*out)->b));
    }
    return SNUG_OK;
}

static snug_status parse_or(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    RETURN_IF_ERROR(parse_and(parser, out));
    while (snug_jinja_take_name(parser, "or")) {
        RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_OR, out));
        RETURN_IF_ERROR(parse_and(parser, &(*out)->b));
    }
    return SNUG_OK;
}

static snug_status parse_conditions(struct snug_jinja_parser *parser, bool conditions, struct snug_jinja_node **out) {
    RETURN_IF_ERROR(parse_or(parser, out));
    while (conditions && snug_jinja_take_name(parser, "if")) {
        RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_CONDITION, out));
        RETURN_IF_ERROR(parse_or(parser, &(*out)->b));
        if (snug_jinja_take_name(parser, "else"))
            RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &(*out)->c));
    }
    return SNUG_OK;
}

snug_status snug_jinja_parse_expression(struct snug_jinja_parser *parser, bool conditions,
                                        struct snug_jinja_node **out) {
    parser->heap.line = snug_jinja_token(parser)->line;
    RETURN_IF_ERROR(snug_jinja_descend(&parser->heap));
    parser->heap.depth += DEEP_EXPRESSION;
    const snug_status status = parse_conditions(parser, conditions, out);
    parser->heap.depth -= DEEP_EXPRESSION + 1;
    return status;
}

/* ---- tuples, lists, dicts, targets ---- */

static bool is_tuple_end(const struct snug_jinja_parser *parser, const char *end) {
    const enum snug_jinja_token_kind kind = parser->tokens[parser->at].kind;
    return kind == SNUG_TOKEN_OUTPUT_END || kind == SNUG_TOKEN_BLOCK_END || snug_jinja_at_operator(parser, ")") ||
           (end && snug_jinja_at_name(parser, end));
}

static snug_status parse_primary(struct snug_jinja_parser *parser, bool members, struct snug_jinja_node **out);

/* What a tuple's items are. */
struct tuple_form {
    bool conditions;
    bool target, members; /* names alone; and name.member */
    bool brackets;        /* it may be empty */
    const char *end;
};

static snug_status parse_tuple(struct snug_jinja_parser *parser, const struct tuple_form *form,
                               struct snug_jinja_node **out) {
    struct snug_jinja_node *first = NULL, **last = &first;
    bool comma = false;
    while (!is_tuple_end(parser, form->end)) {
        RETURN_IF_ERROR(form->target ? parse_primary(parser, form->members, last)
                                     : snug_jinja_parse_expression(parser, form->conditions, last));
        last = &(*last)->next;
        if (!snug_jinja_take_operator(parser, ",")) break;
        comma = true;
    }
    *out = first;
    if (!comma && first) return SNUG_OK;
    if (!comma && !form->brackets) {
        snug_jinja_fail_expression(parser);
        return SNUG_E_INPUT; /* as a constant, from which clang-tidy knows that there is no node */
    }
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_SEQUENCE, out));
    (*out)->op = SNUG_JINJA_TUPLE;
    (*out)->a = first;
    return SNUG_OK;
}

snug_status snug_jinja_parse_tuple(struct snug_jinja_parser *parser, bool conditions, const char *end,
                                   struct snug_jinja_node **out) {
    const struct tuple_form form = {.conditions = conditions, .end = end};
    return parse_tuple(parser, &form, out);
}

static snug_status check_target(struct snug_jinja_parser *parser, const struct snug_jinja_node *target) {
    bool fits = target->kind == SNUG_JINJA_NAME || target->kind == SNUG_JINJA_MEMBER;
    if (target->kind == SNUG_JINJA_SEQUENCE && target->op == SNUG_JINJA_TUPLE) {
        RETURN_IF_ERROR(snug_jinja_descend(&parser->heap));
        for (const struct snug_jinja_node *item = target->a; item; item = item->next)
            RETURN_IF_ERROR(check_target(parser, item));
        parser->heap.depth--;
        fits = true;
    }
    parser->heap.line = target->line;
    return fits ? SNUG_OK : snug_jinja_fail(&parser->heap, "can't assign to this expression");
}

snug_status snug_jinja_parse_target(struct snug_jinja_parser *parser, bool members, const char *end,
                                    struct snug_jinja_node **out) {
    const struct tuple_form form = {.target = true, .members = members, .end = end};
    RETURN_IF_ERROR(parse_tuple(parser, &form, out));
    return check_target(parser, *out);
}

static snug_status parse_brackets(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    const struct tuple_form form = {.conditions = true, .brackets = true};
    RETURN_IF_ERROR(snug_jinja_descend(&parser->heap));
    RETURN_IF_ERROR(parse_tuple(parser, &form, out));
    parser->heap.depth--;
    return snug_jinja_expect_operator(parser, ")");
}

static snug_status parse_list(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_SEQUENCE, out));
    (*out)->op = SNUG_JINJA_LIST;
    struct snug_jinja_node **last = &(*out)->a;
    while (!snug_jinja_take_operator(parser, "]")) {
        if (last != &(*out)->a) RETURN_IF_ERROR(snug_jinja_expect_operator(parser, ","));
        if (snug_jinja_take_operator(parser, "]")) break;
        RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, last));
        last = &(*last)->next;
    }
    return SNUG_OK;
}

static snug_status parse_dict(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_PAIRS, out));
    struct snug_jinja_node **last = &(*out)->a;
    while (!snug_jinja_take_operator(parser, "}")) {
        if (last != &(*out)->a) RETURN_IF_ERROR(snug_jinja_expect_operator(parser, ","));
        if (snug_jinja_take_operator(parser, "}")) break;
        RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_PAIR, last));
        RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &(*last)->a));
        RETURN_IF_ERROR(snug_jinja_expect_operator(parser, ":"));
        RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &(*last)->b));
        last = &(*last)->next;
    }
    return SNUG_OK;
}

/* ---- names and literals ---- */

static snug_status parse_constant(struct snug_jinja_parser *parser, struct snug_jinja_value value,
                                  struct snug_jinja_node **out) {
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_CONSTANT, out));
    (*out)->value = value;
    parser->at++;
    return SNUG_OK;
}

/* Adjacent strings are joined. */
static snug_status parse_string(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    size_t length = 0, count = 0;
    void *memory;
    while (parser->tokens[parser->at + count].kind == SNUG_TOKEN_STRING)
        length += parser->tokens[parser->at + count++].value.length;
    if (count == 1) return parse_constant(parser, snug_jinja_token(parser)->value, out);
    RETURN_IF_ERROR(snug_jinja_take(&parser->heap, length, &memory));
    char *to = memory;
    for (size_t i = 0; i < count; i++) {
        const struct snug_jinja_value *part = &parser->tokens[parser->at + i].value;
        memcpy(to, part->text, part->length);
        to += part->length;
    }
    RETURN_IF_ERROR(parse_constant(parser, snug_jinja_string(memory, length), out));
    parser->at += count - 1;
    return SNUG_OK;
}

static snug_status parse_name(struct snug_jinja_parser *parser, bool members, struct snug_jinja_node **out) {
    if (snug_jinja_at_name(parser, "true") || snug_jinja_at_name(parser, "True"))
        return parse_constant(parser, snug_jinja_bool(true), out);
    if (snug_jinja_at_name(parser, "false") || snug_jinja_at_name(parser, "False"))
        return parse_constant(parser, snug_jinja_bool(false), out);
    if (snug_jinja_at_name(parser, "none") || snug_jinja_at_name(parser, "None"))
        return parse_constant(parser, snug_jinja_none(), out);
    if (snug_jinja_at_name(parser, "strftime_now")) parser->template->has_date = true;
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_NAME, out));
    RETURN_IF_ERROR(snug_jinja_expect_name(parser, &(*out)->name));
    if ((*out)->name == SNUG_JINJA_NAME_VARARGS) parser->reads |= SNUG_JINJA_VARARGS;
    if ((*out)->name == SNUG_JINJA_NAME_KWARGS) parser->reads |= SNUG_JINJA_KWARGS;
    if ((*out)->name == SNUG_JINJA_NAME_CALLER) parser->reads |= SNUG_JINJA_CALLER;
    if (!members || !snug_jinja_take_operator(parser, ".")) return SNUG_OK;
    int32_t member;
    (*out)->kind = SNUG_JINJA_MEMBER;
    (*out)->value = snug_jinja_token(parser)->value;
    return snug_jinja_expect_name(parser, &member);
}

static snug_status parse_primary(struct snug_jinja_parser *parser, bool members, struct snug_jinja_node **out) {
    const struct snug_jinja_token *token = snug_jinja_token(parser);
    switch (token->kind) {
    case SNUG_TOKEN_NAME: return parse_name(parser, members, out);
    case SNUG_TOKEN_STRING: return parse_string(parser, out);
    case SNUG_TOKEN_INTEGER:
    case SNUG_TOKEN_REAL: return parse_constant(parser, token->value, out);
    default: break;
    }
    if (snug_jinja_take_operator(parser, "(")) return parse_brackets(parser, out);
    if (snug_jinja_take_operator(parser, "[")) return parse_list(parser, out);
    if (snug_jinja_take_operator(parser, "{")) return parse_dict(parser, out);
    snug_jinja_fail_token(parser, NULL);
    return SNUG_E_INPUT; /* as above */
}

/* ---- what follows a primary ---- */

static bool is_slice_end(const struct snug_jinja_parser *parser) {
    return snug_jinja_at_operator(parser, "]") || snug_jinja_at_operator(parser, ",") ||
           snug_jinja_at_operator(parser, ":");
}

static snug_status parse_subscript(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    struct snug_jinja_node *begin = NULL;
    if (!snug_jinja_at_operator(parser, ":")) RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &begin));
    *out = begin;
    if (!snug_jinja_take_operator(parser, ":")) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_SLICE, out));
    (*out)->a = begin;
    if (!is_slice_end(parser)) RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &(*out)->b));
    if (snug_jinja_take_operator(parser, ":") && !is_slice_end(parser))
        RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &(*out)->c));
    return SNUG_OK;
}

static snug_status parse_member(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    const struct snug_jinja_token *token = snug_jinja_token(parser);
    const bool name = token->kind == SNUG_TOKEN_NAME;
    parser->heap.line = token->line;
    if (!name && token->kind != SNUG_TOKEN_INTEGER) return snug_jinja_fail(&parser->heap, "expected name or number");
    RETURN_IF_ERROR(wrap(parser, name ? SNUG_JINJA_ATTRIBUTE : SNUG_JINJA_ITEM, out));
    (*out)->value = token->value;
    if (!name) return parse_constant(parser, token->value, &(*out)->b);
    parser->at++;
    return SNUG_OK;
}

static snug_status parse_item(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    struct snug_jinja_node *first = NULL, **last = &first;
    size_t count = 0;
    RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_ITEM, out));
    for (; !snug_jinja_at_operator(parser, "]"); count++, last = &(*last)->next) {
        if (count) RETURN_IF_ERROR(snug_jinja_expect_operator(parser, ","));
        RETURN_IF_ERROR(parse_subscript(parser, last));
    }
    parser->at++;
    (*out)->b = first;
    if (count == 1) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_SEQUENCE, &(*out)->b));
    (*out)->b->op = SNUG_JINJA_TUPLE;
    (*out)->b->a = first;
    return SNUG_OK;
}

static bool is_keyword(const struct snug_jinja_parser *parser) {
    const struct snug_jinja_token *token = &parser->tokens[parser->at];
    return token->kind == SNUG_TOKEN_NAME && token[1].kind == SNUG_TOKEN_OPERATOR &&
           snug_jinja_equals_text(token[1].value, "=", 1);
}

static snug_status parse_argument(struct snug_jinja_parser *parser, enum snug_jinja_kind *after,
                                  struct snug_jinja_node **out) {
    const uint32_t line = snug_jinja_token(parser)->line;
    enum snug_jinja_kind kind = SNUG_JINJA_CONSTANT; /* positional */
    struct snug_jinja_value name = {0};
    if (snug_jinja_take_operator(parser, "*")) {
        kind = SNUG_JINJA_STAR;
    } else if (snug_jinja_take_operator(parser, "**")) {
        kind = SNUG_JINJA_STAR_STAR;
    } else if (is_keyword(parser)) {
        kind = SNUG_JINJA_KEYWORD;
        name = snug_jinja_token(parser)->value;
        parser->at += 2;
    }
    const bool starred = *after == SNUG_JINJA_STAR || *after == SNUG_JINJA_STAR_STAR;
    parser->heap.line = line;
    if (*after == SNUG_JINJA_STAR_STAR || (starred && kind == SNUG_JINJA_STAR) ||
        (kind == SNUG_JINJA_CONSTANT && *after != SNUG_JINJA_CONSTANT))
        return snug_jinja_fail(&parser->heap, "invalid syntax for function call expression");
    if (!(kind == SNUG_JINJA_KEYWORD && starred)) *after = kind;
    if (kind == SNUG_JINJA_CONSTANT) return snug_jinja_parse_expression(parser, true, out);
    RETURN_IF_ERROR(snug_jinja_node_new(parser, kind, out));
    (*out)->value = name;
    return snug_jinja_parse_expression(parser, true, &(*out)->a);
}

/* "(" is the next token. */
static snug_status parse_arguments(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    enum snug_jinja_kind after = SNUG_JINJA_CONSTANT;
    bool first = true;
    parser->at++;
    while (!snug_jinja_take_operator(parser, ")")) {
        if (!first) RETURN_IF_ERROR(snug_jinja_expect_operator(parser, ","));
        if (snug_jinja_take_operator(parser, ")")) break;
        RETURN_IF_ERROR(parse_argument(parser, &after, out));
        out = &(*out)->next;
        first = false;
    }
    return SNUG_OK;
}

static snug_status parse_postfix(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    for (;;) {
        if (snug_jinja_take_operator(parser, ".")) {
            RETURN_IF_ERROR(parse_member(parser, out));
        } else if (snug_jinja_take_operator(parser, "[")) {
            RETURN_IF_ERROR(parse_item(parser, out));
        } else if (snug_jinja_at_operator(parser, "(")) {
            RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_CALL, out));
            RETURN_IF_ERROR(parse_arguments(parser, &(*out)->b));
        } else {
            return SNUG_OK;
        }
    }
}

/* A filter's or test's name and number: an unknown one is an error where it is reached. */
static snug_status parse_callee(struct snug_jinja_parser *parser, bool is_test, struct snug_jinja_node *node) {
    const struct snug_jinja_token *token = snug_jinja_token(parser);
    if (token->kind != SNUG_TOKEN_NAME) return snug_jinja_fail_token(parser, "name");
    node->value = token->value;
    node->number = is_test ? snug_jinja_test_find(token->value) : snug_jinja_filter_find(token->value);
    parser->at++;
    return SNUG_OK;
}

snug_status snug_jinja_parse_filters(struct snug_jinja_parser *parser, bool block, struct snug_jinja_node *of,
                                     struct snug_jinja_node **out) {
    *out = of;
    while (block || snug_jinja_take_operator(parser, "|")) {
        block = false;
        RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_FILTER, out));
        RETURN_IF_ERROR(parse_callee(parser, false, *out));
        if (snug_jinja_at_operator(parser, "(")) RETURN_IF_ERROR(parse_arguments(parser, &(*out)->b));
    }
    return SNUG_OK;
}

/* Whether an argument without brackets follows a test. */
static bool is_test_argument(const struct snug_jinja_parser *parser) {
    switch (parser->tokens[parser->at].kind) {
    case SNUG_TOKEN_NAME:
        return !snug_jinja_at_name(parser, "else") && !snug_jinja_at_name(parser, "or") &&
               !snug_jinja_at_name(parser, "and");
    case SNUG_TOKEN_STRING:
    case SNUG_TOKEN_INTEGER:
    case SNUG_TOKEN_REAL: return true;
    default: return snug_jinja_at_operator(parser, "[") || snug_jinja_at_operator(parser, "{");
    }
}

/* "is" was taken. */
static snug_status parse_test(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    const bool negated = snug_jinja_take_name(parser, "not");
    RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_TEST, out));
    RETURN_IF_ERROR(parse_callee(parser, true, *out));
    if (snug_jinja_at_operator(parser, "(")) {
        RETURN_IF_ERROR(parse_arguments(parser, &(*out)->b));
    } else if (is_test_argument(parser)) {
        parser->heap.line = snug_jinja_token(parser)->line;
        if (snug_jinja_at_name(parser, "is"))
            return snug_jinja_fail(&parser->heap, "You cannot chain multiple tests with is");
        RETURN_IF_ERROR(parse_primary(parser, false, &(*out)->b));
        RETURN_IF_ERROR(parse_postfix(parser, &(*out)->b));
    }
    return negated ? wrap(parser, SNUG_JINJA_NOT, out) : SNUG_OK;
}

static snug_status parse_sign(struct snug_jinja_parser *parser, enum snug_jinja_operator op,
                              struct snug_jinja_node **out) {
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_ARITHMETIC, out));
    (*out)->op = (uint8_t)op;
    RETURN_IF_ERROR(snug_jinja_descend(&parser->heap));
    const snug_status status = parse_unary(parser, false, &(*out)->a);
    parser->heap.depth--;
    return status;
}

static snug_status parse_unary(struct snug_jinja_parser *parser, bool filters, struct snug_jinja_node **out) {
    if (snug_jinja_take_operator(parser, "-"))
        RETURN_IF_ERROR(parse_sign(parser, SNUG_JINJA_SUBTRACT, out));
    else if (snug_jinja_take_operator(parser, "+"))
        RETURN_IF_ERROR(parse_sign(parser, SNUG_JINJA_ADD, out));
    else
        RETURN_IF_ERROR(parse_primary(parser, false, out));
    RETURN_IF_ERROR(parse_postfix(parser, out));
    while (filters) {
        if (snug_jinja_at_operator(parser, "|")) {
            RETURN_IF_ERROR(snug_jinja_parse_filters(parser, false, *out, out));
        } else if (snug_jinja_take_name(parser, "is")) {
            RETURN_IF_ERROR(parse_test(parser, out));
        } else if (snug_jinja_at_operator(parser, "(")) {
            RETURN_IF_ERROR(wrap(parser, SNUG_JINJA_CALL, out));
            RETURN_IF_ERROR(parse_arguments(parser, &(*out)->b));
        } else {
            break;
        }
    }
    return SNUG_OK;
}
