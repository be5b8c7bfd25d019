/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed template: written by lex.c, parse.c and parse_expression.c, followed by the files of a rendering. */
#ifndef SNUG_JINJA_TREE_H
#define SNUG_JINJA_TREE_H

#include "jinja/jinja.h"
#include "jinja/value.h"

enum snug_jinja_kind {
    /* expressions */
    SNUG_JINJA_CONSTANT,   /* value */
    SNUG_JINJA_NAME,       /* name */
    SNUG_JINJA_SEQUENCE,   /* a: items; op: SNUG_JINJA_LIST or _TUPLE */
    SNUG_JINJA_PAIRS,      /* a: a list of PAIR */
    SNUG_JINJA_PAIR,       /* a: key, b: value */
    SNUG_JINJA_CONDITION,  /* a if b else c; c may be NULL */
    SNUG_JINJA_OR,         /* a or b */
    SNUG_JINJA_AND,        /* a and b */
    SNUG_JINJA_NOT,        /* not a */
    SNUG_JINJA_COMPARISON, /* a, and b: a list of OPERAND */
    SNUG_JINJA_OPERAND,    /* op, a */
    SNUG_JINJA_ARITHMETIC, /* a op b; unary: b is NULL */
    SNUG_JINJA_CONCAT,     /* a: a list */
    SNUG_JINJA_ATTRIBUTE,  /* a.value */
    SNUG_JINJA_ITEM,       /* a[b] */
    SNUG_JINJA_SLICE,      /* a:b:c, each may be NULL */
    SNUG_JINJA_CALL,       /* a(b: a list of arguments) */
    SNUG_JINJA_FILTER,     /* a | number(b: arguments); a is NULL in a filter block */
    SNUG_JINJA_TEST,       /* a is number(b: arguments) */
    SNUG_JINJA_KEYWORD,    /* an argument value=a */
    SNUG_JINJA_STAR,       /* an argument *a */
    SNUG_JINJA_STAR_STAR,  /* an argument **a */
    SNUG_JINJA_MEMBER,     /* a target: name.value */
    /* statements */
    SNUG_JINJA_TEXT,         /* value */
    SNUG_JINJA_OUTPUT,       /* {{ a }} */
    SNUG_JINJA_IF,           /* a: condition, b: body, c: else, or an IF whose flag is set: elif */
    SNUG_JINJA_FOR,          /* for a in b if c; d: body, e: else; flag: recursive */
    SNUG_JINJA_SET,          /* a: target, b */
    SNUG_JINJA_SET_BLOCK,    /* a: target, b: filters or NULL, c: body */
    SNUG_JINJA_FUNCTION_OF,  /* a macro: name, a: parameters, b: body */
    SNUG_JINJA_PARAMETER,    /* name, a: default or NULL */
    SNUG_JINJA_CALL_BLOCK,   /* a: CALL, b: FUNCTION_OF of the caller */
    SNUG_JINJA_FILTER_BLOCK, /* a: filters, b: body */
    SNUG_JINJA_WITH,         /* a: a list of SET, whose values are of the scope outside, b: body */
    SNUG_JINJA_GENERATION,   /* a: body */
    SNUG_JINJA_BREAK,
    SNUG_JINJA_CONTINUE,
};

enum snug_jinja_operator {
    SNUG_JINJA_ADD,
    SNUG_JINJA_SUBTRACT,
    SNUG_JINJA_MULTIPLY,
    SNUG_JINJA_DIVIDE,
    SNUG_JINJA_FLOOR_DIVIDE,
    SNUG_JINJA_MODULO,
    SNUG_JINJA_POWER,
    SNUG_JINJA_EQUAL,
    SNUG_JINJA_NOT_EQUAL,
    SNUG_JINJA_LESS,
    SNUG_JINJA_LESS_EQUAL,
    SNUG_JINJA_GREATER,
    SNUG_JINJA_GREATER_EQUAL,
    SNUG_JINJA_IN,
    SNUG_JINJA_NOT_IN,
};

/* What a macro's body reads beside its parameters. */
enum { SNUG_JINJA_VARARGS = 1, SNUG_JINJA_KWARGS = 2, SNUG_JINJA_CALLER = 4 };

struct snug_jinja_node {
    uint8_t kind; /* enum snug_jinja_kind */
    uint8_t op;
    uint8_t flags;
    uint32_t line;
    int32_t name;   /* index in the template's names */
    int32_t number; /* of a filter or test; -1: unknown, where it is reached value has its name */
    struct snug_jinja_node *a, *b, *c, *d, *e;
    struct snug_jinja_node *next; /* in a list */
    struct snug_jinja_value value;
};

/* Names that the library sets. */
enum snug_jinja_known {
    SNUG_JINJA_NAME_LOOP,
    SNUG_JINJA_NAME_VARARGS,
    SNUG_JINJA_NAME_KWARGS,
    SNUG_JINJA_NAME_CALLER,
    SNUG_JINJA_KNOWN_NAMES
};

struct snug_jinja_template {
    char *path;
    struct snug_arena arena;
    struct snug_jinja_node *body;
    struct snug_jinja_value *names; /* by index, with a NUL after each; the first are the known ones */
    size_t name_count, name_capacity;
    bool has_generation, has_date;
};

enum snug_jinja_token_kind {
    SNUG_TOKEN_END,
    SNUG_TOKEN_TEXT,         /* outside of tags */
    SNUG_TOKEN_OUTPUT_BEGIN, /* {{ */
    SNUG_TOKEN_OUTPUT_END,   /* }} */
    SNUG_TOKEN_BLOCK_BEGIN,  /* {% */
    SNUG_TOKEN_BLOCK_END,    /* %} */
    SNUG_TOKEN_NAME,
    SNUG_TOKEN_STRING,
    SNUG_TOKEN_INTEGER,
    SNUG_TOKEN_REAL,
    SNUG_TOKEN_OPERATOR /* text is the operator */
};

struct snug_jinja_token {
    enum snug_jinja_token_kind kind;
    uint32_t line;
    struct snug_jinja_value value; /* text of TEXT, NAME, OPERATOR; the value of the others */
};

/* Of a template while it is parsed. */
struct snug_jinja_parser {
    struct snug_jinja_heap heap; /* the tree's; its line is that of an error */
    struct snug_jinja_template *template;
    struct snug_jinja_token *tokens;
    size_t count, capacity, at;
    struct snug_hash_map *names;
    uint8_t reads; /* of the macro whose body is parsed: SNUG_JINJA_VARARGS, … */
    bool in_loop;  /* break and continue have a loop */
};

/* text: length bytes of well-formed UTF-8. Appends the tokens, and END. */
snug_status snug_jinja_lex(struct snug_jinja_parser *parser, const char *text, size_t length);

static inline struct snug_jinja_token *snug_jinja_token(struct snug_jinja_parser *parser) {
    return &parser->tokens[parser->at];
}
/* Whether the next token is this operator or this name; takes it. */
bool snug_jinja_take_operator(struct snug_jinja_parser *parser, const char *text);
bool snug_jinja_take_name(struct snug_jinja_parser *parser, const char *text);
bool snug_jinja_at_operator(const struct snug_jinja_parser *parser, const char *text);
bool snug_jinja_at_name(const struct snug_jinja_parser *parser, const char *text);
/* Takes it, or fails. */
snug_status snug_jinja_expect_operator(struct snug_jinja_parser *parser, const char *text);
snug_status snug_jinja_expect_name(struct snug_jinja_parser *parser, int32_t *name);
/* Fails at the next token: "unexpected '…'", or that the template ends. */
snug_status snug_jinja_fail_token(struct snug_jinja_parser *parser, const char *expected);
/* Fails where an expression has to be. */
snug_status snug_jinja_fail_expression(struct snug_jinja_parser *parser);
/* The index of a name. */
snug_status snug_jinja_intern(struct snug_jinja_parser *parser, struct snug_jinja_value text, int32_t *name);
snug_status snug_jinja_node_new(struct snug_jinja_parser *parser, enum snug_jinja_kind kind,
                                struct snug_jinja_node **out);

/* conditions: whether "x if y" may be one. */
snug_status snug_jinja_parse_expression(struct snug_jinja_parser *parser, bool conditions,
                                        struct snug_jinja_node **out);
/* Several, separated by commas, are a tuple. end: a name that ends it, too; NULL: none. */
snug_status snug_jinja_parse_tuple(struct snug_jinja_parser *parser, bool conditions, const char *end,
                                   struct snug_jinja_node **out);
/* The target of set or for. members: whether it may be name.member. */
snug_status snug_jinja_parse_target(struct snug_jinja_parser *parser, bool members, const char *end,
                                    struct snug_jinja_node **out);
/* |filter|filter; the first "|" is left out where a filter block begins. */
snug_status snug_jinja_parse_filters(struct snug_jinja_parser *parser, bool block, struct snug_jinja_node *of,
                                     struct snug_jinja_node **out);

#endif
