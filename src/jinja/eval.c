/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions. */
#include <string.h>

#include "jinja/filters.h"
#include "jinja/repr.h"
#include "jinja/run.h"

static struct snug_jinja_value look_up(const struct snug_jinja_run *run, const struct snug_jinja_scope *scope,
                                       int32_t name) {
    for (; scope; scope = scope->parent)
        for (size_t i = 0; i < scope->count; i++)
            if (scope->bindings[i].name == name) return scope->bindings[i].value;
    return run->top[name];
}

static snug_status evaluate_items(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                  const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, node->op, 0, out));
    for (const struct snug_jinja_node *item = node->a; item; item = item->next) {
        struct snug_jinja_value value;
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, item, &value));
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, value));
    }
    return SNUG_OK;
}

static snug_status evaluate_pairs(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                  const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_dict_new(&run->heap, SNUG_JINJA_DICT, out));
    for (const struct snug_jinja_node *pair = node->a; pair; pair = pair->next) {
        struct snug_jinja_value key, value;
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, pair->a, &key));
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, pair->b, &value));
        RETURN_IF_ERROR(snug_jinja_dict_set(&run->heap, out->dict, key, value));
    }
    return SNUG_OK;
}

static snug_status evaluate_condition(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                      const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->b, out));
    if (snug_jinja_is_true(*out)) return snug_jinja_evaluate(run, scope, node->a, out);
    if (node->c) return snug_jinja_evaluate(run, scope, node->c, out);
    *out = snug_jinja_undefined(SNUG_JINJA_MISSING_ELSE, NULL, node->line);
    return SNUG_OK;
}

static snug_status evaluate_comparison(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                       const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_value left, right;
    bool truth = true;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &left));
    for (const struct snug_jinja_node *operand = node->b; truth && operand; operand = operand->next) {
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, operand->a, &right));
        run->heap.line = node->line;
        RETURN_IF_ERROR(snug_jinja_relate(run, operand->op, left, right, &truth));
        left = right;
    }
    *out = snug_jinja_bool(truth);
    return SNUG_OK;
}

static snug_status evaluate_arithmetic(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                       const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_value a, b;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &a));
    if (!node->b) return snug_jinja_sign(run, node->op, a, out);
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->b, &b));
    run->heap.line = node->line;
    return snug_jinja_operate(run, node->op, a, b, out);
}

static snug_status evaluate_concat(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                   const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    for (const struct snug_jinja_node *part = node->a; part; part = part->next) {
        struct snug_jinja_value value;
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, part, &value));
        RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
        RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, value.text, value.length));
    }
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

static snug_status evaluate_item(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                 const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_value of, key,
        bounds[3] = {{.type = SNUG_JINJA_NONE}, {.type = SNUG_JINJA_NONE}, {.type = SNUG_JINJA_NONE}};
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &of));
    run->heap.line = node->line;
    if (node->b->kind != SNUG_JINJA_SLICE) {
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->b, &key));
        return snug_jinja_item(run, of, key, out);
    }
    const struct snug_jinja_node *parts[] = {node->b->a, node->b->b, node->b->c};
    for (size_t i = 0; i < 3; i++)
        if (parts[i]) RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, parts[i], &bounds[i]));
    return snug_jinja_slice(run, of, bounds, out);
}

/* ---- calls ---- */

static snug_status add_keyword(struct snug_jinja_run *run, struct snug_jinja_dict *keywords,
                               struct snug_jinja_value name, struct snug_jinja_value value) {
    struct snug_jinja_value *before;
    if (name.type != SNUG_JINJA_STRING) return snug_jinja_fail(&run->heap, "keywords must be strings");
    RETURN_IF_ERROR(snug_jinja_dict_find(&run->heap, keywords, name, &before));
    if (before)
        return snug_jinja_fail(&run->heap, "got multiple values for keyword argument '%.*s'", (int)name.length,
                               name.text);
    return snug_jinja_dict_set(&run->heap, keywords, name, value);
}

static snug_status add_argument(struct snug_jinja_run *run, const struct snug_jinja_node *node,
                                struct snug_jinja_value value, struct snug_jinja_list *positional,
                                struct snug_jinja_dict *keywords) {
    struct snug_jinja_list *items;
    size_t first;
    if (node->kind == SNUG_JINJA_KEYWORD) return add_keyword(run, keywords, node->value, value);
    if (node->kind == SNUG_JINJA_STAR_STAR) {
        if (value.type != SNUG_JINJA_DICT) return snug_jinja_fail(&run->heap, "argument after ** must be a mapping");
        for (size_t i = 0; i < value.dict->count; i++)
            RETURN_IF_ERROR(add_keyword(run, keywords, value.dict->pairs[i].key, value.dict->pairs[i].value));
        return SNUG_OK;
    }
    if (node->kind != SNUG_JINJA_STAR) return snug_jinja_list_add(&run->heap, positional, value);
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    for (size_t i = first; i < items->count; i++)
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, positional, items->items[i]));
    return SNUG_OK;
}

snug_status snug_jinja_evaluate_arguments(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                          const struct snug_jinja_node *list, struct snug_jinja_arguments *out) {
    struct snug_jinja_value positional, keywords;
    *out = (struct snug_jinja_arguments){0};
    if (!list) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_LIST, 0, &positional));
    RETURN_IF_ERROR(snug_jinja_dict_new(&run->heap, SNUG_JINJA_DICT, &keywords));
    for (; list; list = list->next) {
        const bool named =
            list->kind == SNUG_JINJA_KEYWORD || list->kind == SNUG_JINJA_STAR || list->kind == SNUG_JINJA_STAR_STAR;
        struct snug_jinja_value value;
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, named ? list->a : list, &value));
        RETURN_IF_ERROR(add_argument(run, list, value, positional.list, keywords.dict));
    }
    *out = (struct snug_jinja_arguments){positional.list->items, positional.list->count, keywords.dict->pairs,
                                         keywords.dict->count};
    return SNUG_OK;
}

static snug_status evaluate_call(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                 const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_value callee;
    struct snug_jinja_arguments arguments;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &callee));
    RETURN_IF_ERROR(snug_jinja_evaluate_arguments(run, scope, node->b, &arguments));
    run->heap.line = node->line;
    return snug_jinja_call(run, callee, &arguments, out);
}

snug_status snug_jinja_apply_filter(struct snug_jinja_run *run, struct snug_jinja_value value, int32_t number,
                                    struct snug_jinja_value name, const struct snug_jinja_arguments *arguments,
                                    struct snug_jinja_value *out) {
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    if (number < 0) return snug_jinja_fail(&run->heap, "No filter named '%.*s' found.", (int)name.length, name.text);
    const struct snug_jinja_filter *filter = snug_jinja_filter_at(number);
    if (filter->parameters) RETURN_IF_ERROR(snug_jinja_bind(run, filter->name, filter->parameters, arguments, bound));
    return filter->apply(run, value, arguments, bound, out);
}

snug_status snug_jinja_apply_test(struct snug_jinja_run *run, struct snug_jinja_value value, int32_t number,
                                  struct snug_jinja_value name, const struct snug_jinja_arguments *arguments,
                                  bool *out) {
    struct snug_jinja_value bound[SNUG_JINJA_PARAMETERS_MOST];
    if (number < 0) return snug_jinja_fail(&run->heap, "No test named '%.*s' found.", (int)name.length, name.text);
    const struct snug_jinja_test *test = snug_jinja_test_at(number);
    RETURN_IF_ERROR(snug_jinja_bind(run, test->name, test->parameters, arguments, bound));
    return test->test(run, value, bound, out);
}

static snug_status evaluate_filter(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                   const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_value value;
    struct snug_jinja_arguments arguments;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &value));
    RETURN_IF_ERROR(snug_jinja_evaluate_arguments(run, scope, node->b, &arguments));
    run->heap.line = node->line;
    return snug_jinja_apply_filter(run, value, node->number, node->value, &arguments, out);
}

static snug_status evaluate_test(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                 const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_value value;
    struct snug_jinja_arguments arguments;
    bool truth = false;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &value));
    RETURN_IF_ERROR(snug_jinja_evaluate_arguments(run, scope, node->b, &arguments));
    run->heap.line = node->line;
    RETURN_IF_ERROR(snug_jinja_apply_test(run, value, node->number, node->value, &arguments, &truth));
    *out = snug_jinja_bool(truth);
    return SNUG_OK;
}

/* ---- all ---- */

static snug_status evaluate(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                            const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_value of;
    switch ((enum snug_jinja_kind)node->kind) {
    case SNUG_JINJA_SEQUENCE: return evaluate_items(run, scope, node, out);
    case SNUG_JINJA_PAIRS: return evaluate_pairs(run, scope, node, out);
    case SNUG_JINJA_CONDITION: return evaluate_condition(run, scope, node, out);
    case SNUG_JINJA_OR:
    case SNUG_JINJA_AND:
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, out));
        if (snug_jinja_is_true(*out) == (node->kind == SNUG_JINJA_OR)) return SNUG_OK;
        return snug_jinja_evaluate(run, scope, node->b, out);
    case SNUG_JINJA_NOT:
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &of));
        *out = snug_jinja_bool(!snug_jinja_is_true(of));
        return SNUG_OK;
    case SNUG_JINJA_COMPARISON: return evaluate_comparison(run, scope, node, out);
    case SNUG_JINJA_ARITHMETIC: return evaluate_arithmetic(run, scope, node, out);
    case SNUG_JINJA_CONCAT: return evaluate_concat(run, scope, node, out);
    case SNUG_JINJA_ATTRIBUTE:
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &of));
        run->heap.line = node->line;
        return snug_jinja_attribute(run, of, node->value, out);
    case SNUG_JINJA_ITEM: return evaluate_item(run, scope, node, out);
    case SNUG_JINJA_CALL: return evaluate_call(run, scope, node, out);
    case SNUG_JINJA_FILTER: return evaluate_filter(run, scope, node, out);
    case SNUG_JINJA_TEST: return evaluate_test(run, scope, node, out);
    case SNUG_JINJA_SLICE: return snug_jinja_fail(&run->heap, "a slice among several subscripts is not supported");
    default: *out = node->value; return SNUG_OK; /* a constant */
    }
}

snug_status snug_jinja_evaluate(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
    if (node->kind == SNUG_JINJA_NAME) {
        *out = look_up(run, scope, node->name);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_jinja_descend(&run->heap));
    run->heap.line = node->line;
    const snug_status status = evaluate(run, scope, node, out);
    run->heap.depth--;
    return status;
}
