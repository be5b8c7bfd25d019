/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, as jinja2/parser.py reads them. */
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "jinja/filters.h"
#include "jinja/tree.h"
#include "tokenizer/hash_map.h"

/* ---- tokens ---- */

static bool is_text(const struct snug_jinja_token *token, enum snug_jinja_token_kind kind, const char *text) {
    const size_t length = strlen(text);
    return token->kind == kind && token->value.length == length && memcmp(token->value.text, text, length) == 0;
}

bool snug_jinja_at_operator(const struct snug_jinja_parser *parser, const char *text) {
    return is_text(&parser->tokens[parser->at], SNUG_TOKEN_OPERATOR, text);
}

bool snug_jinja_at_name(const struct snug_jinja_parser *parser, const char *text) {
    return is_text(&parser->tokens[parser->at], SNUG_TOKEN_NAME, text);
}

bool snug_jinja_take_operator(struct snug_jinja_parser *parser, const char *text) {
    const bool found = snug_jinja_at_operator(parser, text);
    parser->at += found;
    return found;
}

bool snug_jinja_take_name(struct snug_jinja_parser *parser, const char *text) {
    const bool found = snug_jinja_at_name(parser, text);
    parser->at += found;
    return found;
}

/* A token of a tag. */
static const char *describe(const struct snug_jinja_token *token) {
    switch (token->kind) {
    case SNUG_TOKEN_END: return "end of template";
    case SNUG_TOKEN_OUTPUT_END: return "end of print statement";
    case SNUG_TOKEN_BLOCK_END: return "end of statement block";
    case SNUG_TOKEN_STRING: return "string";
    case SNUG_TOKEN_INTEGER: return "integer";
    case SNUG_TOKEN_REAL: return "float";
    default: return NULL; /* its text */
    }
}

static snug_status fail_at(struct snug_jinja_parser *parser, const char *before, const char *expected) {
    const struct snug_jinja_token *token = snug_jinja_token(parser);
    const char *name = describe(token), *text = name ? name : token->value.text;
    const int length = name ? (int)strlen(name) : (int)token->value.length;
    parser->heap.line = token->line;
    if (expected) return snug_jinja_fail(&parser->heap, "expected token '%s', got '%.*s'", expected, length, text);
    return snug_jinja_fail(&parser->heap, "%s'%.*s'", before, length, text);
}

snug_status snug_jinja_fail_token(struct snug_jinja_parser *parser, const char *expected) {
    if (expected && snug_jinja_token(parser)->kind == SNUG_TOKEN_END) {
        parser->heap.line = snug_jinja_token(parser)->line;
        return snug_jinja_fail(&parser->heap, "unexpected end of template, expected '%s'.", expected);
    }
    return fail_at(parser, "unexpected ", expected);
}

snug_status snug_jinja_fail_expression(struct snug_jinja_parser *parser) {
    return fail_at(parser, "Expected an expression, got ", NULL);
}

snug_status snug_jinja_expect_operator(struct snug_jinja_parser *parser, const char *text) {
    return snug_jinja_take_operator(parser, text) ? SNUG_OK : snug_jinja_fail_token(parser, text);
}

snug_status snug_jinja_expect_name(struct snug_jinja_parser *parser, int32_t *name) {
    const struct snug_jinja_token *token = snug_jinja_token(parser);
    if (token->kind != SNUG_TOKEN_NAME) return snug_jinja_fail_token(parser, "name");
    parser->at++;
    return snug_jinja_intern(parser, token->value, name);
}

static snug_status expect_block_end(struct snug_jinja_parser *parser) {
    if (snug_jinja_token(parser)->kind != SNUG_TOKEN_BLOCK_END)
        return snug_jinja_fail_token(parser, "end of statement block");
    parser->at++;
    return SNUG_OK;
}

/* ---- nodes ---- */

snug_status snug_jinja_intern(struct snug_jinja_parser *parser, struct snug_jinja_value text, int32_t *name) {
    struct snug_jinja_template *template = parser->template;
    int32_t before;
    RETURN_IF_ERROR(snug_hash_map_add(parser->heap.ctx, parser->names, text.text, text.length,
                                      (int32_t) template->name_count, &before));
    *name = before < 0 ? (int32_t) template->name_count : before;
    if (before >= 0) return SNUG_OK;
    char *copy;
    RETURN_IF_ERROR(snug_grow(parser->heap.ctx, (void **)&template->names, &template->name_capacity,
                              template->name_count + 1, sizeof *template->names));
    RETURN_IF_ERROR(snug_jinja_take(&parser->heap, text.length + 1, (void **)&copy));
    memcpy(copy, text.text, text.length);
    copy[text.length] = '\0';
    template->names[template->name_count++] = snug_jinja_string(copy, text.length);
    return SNUG_OK;
}

snug_status snug_jinja_node_new(struct snug_jinja_parser *parser, enum snug_jinja_kind kind,
                                struct snug_jinja_node **out) {
    RETURN_IF_ERROR(snug_jinja_take(&parser->heap, sizeof **out, (void **)out));
    **out = (struct snug_jinja_node){.kind = (uint8_t)kind, .line = snug_jinja_token(parser)->line};
    return SNUG_OK;
}

/* ---- statements ---- */

static snug_status parse_statement(struct snug_jinja_parser *parser, struct snug_jinja_node **out);

/* The names that may end a body, NULL-terminated. */
static bool is_end(const struct snug_jinja_parser *parser, const char *const *ends) {
    for (; *ends; ends++)
        if (snug_jinja_at_name(parser, *ends)) return true;
    return false;
}

static snug_status fail_end(struct snug_jinja_parser *parser, const char *const *ends) {
    parser->heap.line = snug_jinja_token(parser)->line;
    return snug_jinja_fail(
        &parser->heap, "Unexpected end of template. Jinja was looking for the following tags: '%s'%s%s%s%s%s%s",
        ends[0], ends[1] ? " or '" : "", ends[1] ? ends[1] : "", ends[1] ? "'" : "", ends[1] && ends[2] ? " or '" : "",
        ends[1] && ends[2] ? ends[2] : "", ends[1] && ends[2] ? "'." : ".");
}

/* Up to a tag that begins with one of ends, which stays; to the template's end where it is empty. */
static snug_status parse_nodes(struct snug_jinja_parser *parser, const char *const *ends,
                               struct snug_jinja_node **out) {
    *out = NULL;
    for (;;) {
        const struct snug_jinja_token *token = snug_jinja_token(parser);
        if (token->kind == SNUG_TOKEN_END) return *ends ? fail_end(parser, ends) : SNUG_OK;
        if (token->kind == SNUG_TOKEN_TEXT) {
            RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_TEXT, out));
            (*out)->value = token->value;
            parser->at++;
        } else if (token->kind == SNUG_TOKEN_OUTPUT_BEGIN) {
            RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_OUTPUT, out));
            parser->at++;
            RETURN_IF_ERROR(snug_jinja_parse_tuple(parser, true, NULL, &(*out)->a));
            if (snug_jinja_token(parser)->kind != SNUG_TOKEN_OUTPUT_END)
                return snug_jinja_fail_token(parser, "end of print statement");
            parser->at++;
        } else {
            parser->at++;
            if (is_end(parser, ends)) return SNUG_OK;
            RETURN_IF_ERROR(parse_statement(parser, out));
            RETURN_IF_ERROR(expect_block_end(parser));
        }
        out = &(*out)->next;
    }
}

/* The body of a tag that ends here, up to one of ends, which stays. */
static snug_status parse_body(struct snug_jinja_parser *parser, const char *const *ends, struct snug_jinja_node **out) {
    snug_jinja_take_operator(parser, ":");
    RETURN_IF_ERROR(expect_block_end(parser));
    RETURN_IF_ERROR(snug_jinja_descend(&parser->heap));
    const snug_status status = parse_nodes(parser, ends, out);
    parser->heap.depth--;
    return status;
}

static snug_status parse_block(struct snug_jinja_parser *parser, const char *end, struct snug_jinja_node **out) {
    const char *const ends[] = {end, NULL};
    RETURN_IF_ERROR(parse_body(parser, ends, out));
    parser->at++;
    return SNUG_OK;
}

static snug_status parse_if(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (bool first = true;; first = false) {
        RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_IF, out));
        (*out)->flags = !first;
        parser->at++;
        RETURN_IF_ERROR(snug_jinja_parse_tuple(parser, false, NULL, &(*out)->a));
        RETURN_IF_ERROR(parse_body(parser, ends, &(*out)->b));
        out = &(*out)->c;
        if (!snug_jinja_at_name(parser, "elif")) break;
    }
    if (snug_jinja_take_name(parser, "else")) return parse_block(parser, "endif", out);
    parser->at++;
    return SNUG_OK;
}

static snug_status parse_for(struct snug_jinja_parser *parser, struct snug_jinja_node *loop) {
    static const char *const ends[] = {"endfor", "else", NULL};
    const bool in_loop = parser->in_loop;
    RETURN_IF_ERROR(snug_jinja_parse_target(parser, false, "in", &loop->a));
    if (!snug_jinja_take_name(parser, "in")) return snug_jinja_fail_token(parser, "in");
    RETURN_IF_ERROR(snug_jinja_parse_tuple(parser, false, "recursive", &loop->b));
    if (snug_jinja_take_name(parser, "if")) RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &loop->c));
    loop->flags = snug_jinja_take_name(parser, "recursive");
    parser->in_loop = true;
    RETURN_IF_ERROR(parse_body(parser, ends, &loop->d));
    parser->in_loop = in_loop;
    if (snug_jinja_take_name(parser, "else")) return parse_block(parser, "endfor", &loop->e);
    parser->at++;
    return SNUG_OK;
}

/* A body that is a function of jinja2's: break and continue have no loop there. */
static snug_status parse_function_body(struct snug_jinja_parser *parser, const char *end,
                                       struct snug_jinja_node **out) {
    const bool in_loop = parser->in_loop;
    parser->in_loop = false;
    RETURN_IF_ERROR(parse_block(parser, end, out));
    parser->in_loop = in_loop;
    return SNUG_OK;
}

static snug_status parse_parameters(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    bool defaults = false;
    const struct snug_jinja_node *first = NULL;
    RETURN_IF_ERROR(snug_jinja_expect_operator(parser, "("));
    while (!snug_jinja_at_operator(parser, ")")) {
        if (first) RETURN_IF_ERROR(snug_jinja_expect_operator(parser, ","));
        RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_PARAMETER, out));
        RETURN_IF_ERROR(snug_jinja_expect_name(parser, &(*out)->name));
        if (!first) first = *out;
        if (snug_jinja_take_operator(parser, "=")) {
            defaults = true;
            RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &(*out)->a));
        } else if (defaults) {
            parser->heap.line = snug_jinja_token(parser)->line;
            return snug_jinja_fail(&parser->heap, "non-default argument follows default argument");
        }
        out = &(*out)->next;
    }
    parser->at++;
    return SNUG_OK;
}

/* A macro or a caller: parameters are read. */
static snug_status parse_function(struct snug_jinja_parser *parser, const char *end, struct snug_jinja_node *function) {
    const uint8_t reads = parser->reads;
    parser->reads = 0;
    RETURN_IF_ERROR(parse_function_body(parser, end, &function->b));
    function->flags = parser->reads;
    parser->reads |= reads;
    return SNUG_OK;
}

static snug_status parse_macro(struct snug_jinja_parser *parser, struct snug_jinja_node *macro) {
    RETURN_IF_ERROR(snug_jinja_expect_name(parser, &macro->name));
    RETURN_IF_ERROR(parse_parameters(parser, &macro->a));
    return parse_function(parser, "endmacro", macro);
}

static snug_status parse_call(struct snug_jinja_parser *parser, struct snug_jinja_node *call) {
    RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_FUNCTION_OF, &call->b));
    call->b->name = SNUG_JINJA_NAME_CALLER;
    if (snug_jinja_at_operator(parser, "(")) RETURN_IF_ERROR(parse_parameters(parser, &call->b->a));
    RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &call->a));
    if (call->a->kind != SNUG_JINJA_CALL) {
        parser->heap.line = call->line;
        return snug_jinja_fail(&parser->heap, "expected call");
    }
    return parse_function(parser, "endcall", call->b);
}

static snug_status parse_set(struct snug_jinja_parser *parser, struct snug_jinja_node *set) {
    RETURN_IF_ERROR(snug_jinja_parse_target(parser, true, NULL, &set->a));
    if (snug_jinja_take_operator(parser, "=")) return snug_jinja_parse_tuple(parser, true, NULL, &set->b);
    set->kind = SNUG_JINJA_SET_BLOCK;
    RETURN_IF_ERROR(snug_jinja_parse_filters(parser, false, NULL, &set->b));
    return parse_block(parser, "endset", &set->c);
}

static snug_status parse_with(struct snug_jinja_parser *parser, struct snug_jinja_node *with) {
    struct snug_jinja_node **set = &with->a;
    while (snug_jinja_token(parser)->kind != SNUG_TOKEN_BLOCK_END) {
        if (with->a) RETURN_IF_ERROR(snug_jinja_expect_operator(parser, ","));
        RETURN_IF_ERROR(snug_jinja_node_new(parser, SNUG_JINJA_SET, set));
        RETURN_IF_ERROR(snug_jinja_parse_target(parser, false, NULL, &(*set)->a));
        RETURN_IF_ERROR(snug_jinja_expect_operator(parser, "="));
        RETURN_IF_ERROR(snug_jinja_parse_expression(parser, true, &(*set)->b));
        set = &(*set)->next;
    }
    return parse_block(parser, "endwith", &with->b);
}

static snug_status parse_filter(struct snug_jinja_parser *parser, struct snug_jinja_node *filter) {
    RETURN_IF_ERROR(snug_jinja_parse_filters(parser, true, NULL, &filter->a));
    return parse_block(parser, "endfilter", &filter->b);
}

static snug_status parse_generation(struct snug_jinja_parser *parser, struct snug_jinja_node *generation) {
    parser->template->has_generation = true;
    return parse_function_body(parser, "endgeneration", &generation->a);
}

static snug_status parse_jump(struct snug_jinja_parser *parser, struct snug_jinja_node *jump) {
    if (parser->in_loop) return SNUG_OK;
    parser->heap.line = jump->line;
    return snug_jinja_fail(&parser->heap, "'%s' outside loop", jump->kind == SNUG_JINJA_BREAK ? "break" : "continue");
}

static snug_status fail_tag(struct snug_jinja_parser *parser) {
    static const char *const others[] = {"block", "extends", "include", "import", "from", "autoescape", "print", NULL};
    const struct snug_jinja_token *token = snug_jinja_token(parser);
    parser->heap.line = token->line;
    if (token->kind != SNUG_TOKEN_NAME) return snug_jinja_fail(&parser->heap, "tag name expected");
    return snug_jinja_fail(&parser->heap, "%s tag '%.*s'%s", is_end(parser, others) ? "the" : "Encountered unknown",
                           (int)token->value.length, token->value.text,
                           is_end(parser, others) ? " is not supported in a chat template" : ".");
}

static snug_status parse_statement(struct snug_jinja_parser *parser, struct snug_jinja_node **out) {
    static const struct {
        const char *tag;
        enum snug_jinja_kind kind;
        snug_status (*parse)(struct snug_jinja_parser *parser, struct snug_jinja_node *node);
    } tags[] = {
        {"for", SNUG_JINJA_FOR, parse_for},
        {"set", SNUG_JINJA_SET, parse_set},
        {"macro", SNUG_JINJA_FUNCTION_OF, parse_macro},
        {"call", SNUG_JINJA_CALL_BLOCK, parse_call},
        {"filter", SNUG_JINJA_FILTER_BLOCK, parse_filter},
        {"with", SNUG_JINJA_WITH, parse_with},
        {"generation", SNUG_JINJA_GENERATION, parse_generation},
        {"break", SNUG_JINJA_BREAK, parse_jump},
        {"continue", SNUG_JINJA_CONTINUE, parse_jump},
    };
    if (snug_jinja_at_name(parser, "if")) return parse_if(parser, out);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!snug_jinja_at_name(parser, tags[i].tag)) continue;
        RETURN_IF_ERROR(snug_jinja_node_new(parser, tags[i].kind, out));
        parser->at++;
        return tags[i].parse(parser, *out);
    }
    return fail_tag(parser);
}

/* ---- templates ---- */

static snug_status intern_known(struct snug_jinja_parser *parser) {
    static const char *const names[] = {[SNUG_JINJA_NAME_LOOP] = "loop",
                                        [SNUG_JINJA_NAME_VARARGS] = "varargs",
                                        [SNUG_JINJA_NAME_KWARGS] = "kwargs",
                                        [SNUG_JINJA_NAME_CALLER] = "caller"};
    int32_t name;
    for (size_t i = 0; i < SNUG_JINJA_KNOWN_NAMES; i++)
        RETURN_IF_ERROR(snug_jinja_intern(parser, snug_jinja_string(names[i], strlen(names[i])), &name));
    return SNUG_OK;
}

static snug_status parse(struct snug_jinja_parser *parser, const char *text, size_t length) {
    static const char *const ends[] = {NULL};
    if (length > SNUG_JINJA_TEMPLATE_MOST)
        return snug_jinja_fail(&parser->heap, "a template may have at most %d bytes", SNUG_JINJA_TEMPLATE_MOST);
    if (snug_utf8_invalid(text, length) < length) return snug_jinja_fail(&parser->heap, "the template is not UTF-8");
    RETURN_IF_ERROR(snug_jinja_lex(parser, text, length));
    RETURN_IF_ERROR(snug_hash_map_reserve(parser->heap.ctx, parser->names, parser->count + SNUG_JINJA_KNOWN_NAMES));
    RETURN_IF_ERROR(intern_known(parser));
    return parse_nodes(parser, ends, &parser->template->body);
}

snug_status snug_jinja_parse(snug_context *ctx, const char *path, const char *text, size_t length,
                             struct snug_jinja_template **out) {
    struct snug_hash_map names = {0};
    struct snug_jinja_template *template;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *template, (void **)&template));
    struct snug_jinja_parser parser = {.template = template, .names = &names};
    parser.heap =
        (struct snug_jinja_heap){.ctx = ctx, .path = path, .line = 1, .steps_most = UINT64_MAX, .memory_most = 1 << 30};
    snug_status status = snug_strdup(ctx, path, &template->path);
    if (status == SNUG_OK) status = parse(&parser, text, length);
    template->arena = parser.heap.arena;
    free(parser.tokens);
    snug_hash_map_free(&names);
    if (status == SNUG_OK)
        *out = template;
    else
        snug_jinja_free(template);
    return status;
}

void snug_jinja_free(struct snug_jinja_template *template) {
    if (!template) return;
    snug_arena_free(&template->arena);
    free(template->names);
    free(template->path);
    free(template);
}

bool snug_jinja_has_generation(const struct snug_jinja_template *template) { return template->has_generation; }

bool snug_jinja_has_date(const struct snug_jinja_template *template) { return template->has_date; }
