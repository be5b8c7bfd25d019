/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, and the rendering of a template. */
#include <stdlib.h>
#include <string.h>

#include "jinja/repr.h"
#include "jinja/run.h"

enum { STEPS = 50000000, MEMORY = 256 << 20 };

/* ---- output ---- */

static snug_status write_text(struct snug_jinja_run *run, const char *text, size_t length) {
    const size_t before = run->capacity;
    RETURN_IF_ERROR(snug_jinja_spend(&run->heap, length >> 6));
    if (length >= run->capacity - run->length) {
        if (run->heap.arena.bytes + run->length + length > run->heap.memory_most)
            return snug_jinja_fail(&run->heap, "the template needs more than %zu MiB with this conversation",
                                   run->heap.memory_most >> 20);
        RETURN_IF_ERROR(snug_grow(run->heap.ctx, (void **)&run->text, &run->capacity, run->length + length + 1, 1));
    }
    run->heap.output += run->capacity - before;
    if (length) memcpy(run->text + run->length, text, length);
    run->length += length;
    return SNUG_OK;
}

size_t snug_jinja_begin_capture(struct snug_jinja_run *run) {
    if (!run->captures++) run->outside = run->length;
    return run->length;
}

snug_status snug_jinja_end_capture(struct snug_jinja_run *run, size_t mark, snug_status status,
                                   struct snug_jinja_value *out) {
    const char *text = run->text ? run->text + mark : ""; /* no buffer where nothing was written so far */
    run->captures--;
    if (status == SNUG_OK) status = snug_jinja_copy(&run->heap, text, run->length - mark, out);
    run->length = mark;
    return status;
}

/* ---- variables ---- */

snug_status snug_jinja_scope_new(struct snug_jinja_run *run, struct snug_jinja_scope *parent,
                                 struct snug_jinja_scope **out) {
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, sizeof **out, (void **)out));
    **out = (struct snug_jinja_scope){.parent = parent};
    return SNUG_OK;
}

snug_status snug_jinja_set(struct snug_jinja_run *run, struct snug_jinja_scope *scope, int32_t name,
                           struct snug_jinja_value value) {
    if (!scope) {
        run->top[name] = value;
        return SNUG_OK;
    }
    for (size_t i = 0; i < scope->count; i++) {
        if (scope->bindings[i].name != name) continue;
        scope->bindings[i].value = value;
        return SNUG_OK;
    }
    if (scope->count == scope->capacity) {
        struct snug_jinja_binding *old = scope->bindings;
        scope->capacity = scope->capacity ? scope->capacity * 2 : 4;
        RETURN_IF_ERROR(snug_jinja_take(&run->heap, scope->capacity * sizeof *old, (void **)&scope->bindings));
        if (scope->count) memcpy(scope->bindings, old, scope->count * sizeof *old);
    }
    scope->bindings[scope->count++] = (struct snug_jinja_binding){name, value};
    return snug_jinja_spend(&run->heap, scope->count >> 3);
}

static snug_status set_member(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                              const struct snug_jinja_node *target, struct snug_jinja_value value) {
    struct snug_jinja_node name = *target;
    struct snug_jinja_value of;
    name.kind = SNUG_JINJA_NAME;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, &name, &of));
    run->heap.line = target->line;
    if (of.type != SNUG_JINJA_NAMESPACE)
        return snug_jinja_fail(&run->heap, "cannot assign attribute on non-namespace object");
    if (target->value.text[0] == '_')
        return snug_jinja_fail(&run->heap,
                               "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
                               "'%.*s'. Please rename the attribute.",
                               (int)target->value.length, target->value.text);
    return snug_jinja_dict_set(&run->heap, of.dict, target->value, value);
}

/* The names of target become value, or its items. */
static snug_status assign(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                          const struct snug_jinja_node *target, struct snug_jinja_value value) {
    struct snug_jinja_list *items;
    size_t first, count = 0;
    if (target->kind == SNUG_JINJA_NAME) return snug_jinja_set(run, scope, target->name, value);
    if (target->kind == SNUG_JINJA_MEMBER) return set_member(run, scope, target, value);
    if (!snug_jinja_is_iterable(value))
        return snug_jinja_fail(&run->heap, "cannot unpack non-iterable %s object", snug_jinja_type_name(value.type));
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, value, &items, &first));
    for (const struct snug_jinja_node *item = target->a; item; item = item->next) count++;
    const size_t found = items->count - first;
    if (found < count)
        return snug_jinja_fail(&run->heap, "not enough values to unpack (expected %zu, got %zu)", count, found);
    if (found > count) return snug_jinja_fail(&run->heap, "too many values to unpack (expected %zu)", count);
    RETURN_IF_ERROR(snug_jinja_descend(&run->heap));
    for (const struct snug_jinja_node *item = target->a; item; item = item->next)
        RETURN_IF_ERROR(assign(run, scope, item, items->items[first++]));
    run->heap.depth--;
    return SNUG_OK;
}

/* ---- for ---- */

/* The next item that the condition does not pass over. */
static snug_status fetch(struct snug_jinja_run *run, struct snug_jinja_loop *loop, bool *found,
                         struct snug_jinja_value *out) {
    *found = false;
    if (loop->peeked) {
        *found = !loop->ended;
        *out = loop->after;
        return SNUG_OK;
    }
    while (!*found && loop->at < loop->items->count) {
        struct snug_jinja_value truth = snug_jinja_bool(true);
        *out = loop->items->items[loop->at++];
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
        if (loop->filters) {
            struct snug_jinja_scope *scope;
            RETURN_IF_ERROR(snug_jinja_scope_new(run, loop->scope, &scope));
            RETURN_IF_ERROR(assign(run, scope, loop->node->a, *out));
            RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, loop->node->c, &truth));
        }
        *found = snug_jinja_is_true(truth);
    }
    return SNUG_OK;
}

static snug_status peek(struct snug_jinja_run *run, struct snug_jinja_loop *loop) {
    bool found;
    RETURN_IF_ERROR(fetch(run, loop, &found, &loop->after));
    loop->peeked = true;
    loop->ended = !found;
    return SNUG_OK;
}

/* Fetches all items, whose number is then known. */
static snug_status count(struct snug_jinja_run *run, struct snug_jinja_loop *loop) {
    struct snug_jinja_value rest;
    bool found;
    if (loop->counted) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, SNUG_JINJA_LIST, 0, &rest));
    const bool peeked = loop->peeked;
    loop->peeked = false;
    for (;;) {
        struct snug_jinja_value item;
        RETURN_IF_ERROR(fetch(run, loop, &found, &item));
        if (!found) break;
        RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, rest.list, item));
    }
    loop->peeked = peeked;
    loop->items = rest.list;
    loop->at = 0;
    loop->filters = false;
    loop->counted = true;
    loop->length = (int64_t)rest.list->count + loop->index + 1 + (peeked && !loop->ended);
    return SNUG_OK;
}

snug_status snug_jinja_loop_member(struct snug_jinja_run *run, struct snug_jinja_loop *loop,
                                   struct snug_jinja_value name, bool *found, struct snug_jinja_value *out) {
    static const char *const names[] = {"index0",    "index",    "first", "depth0",   "depth",   "length",
                                        "revindex0", "revindex", "last",  "nextitem", "previtem"};
    static const char before[] = "there is no previous item", after[] = "there is no next item";
    size_t which = 0;
    *found = true;
    const size_t most = sizeof names / sizeof *names;
    while (which < most && !snug_jinja_equals_text(name, names[which], strlen(names[which]))) which++;
    if (which >= 5 && which <= 7) RETURN_IF_ERROR(count(run, loop));
    if (which == 8 || which == 9) RETURN_IF_ERROR(peek(run, loop));
    switch (which) {
    case 0: *out = snug_jinja_int(loop->index); break;
    case 1: *out = snug_jinja_int(loop->index + 1); break;
    case 2: *out = snug_jinja_bool(!loop->index); break;
    case 3: *out = snug_jinja_int(loop->depth); break;
    case 4: *out = snug_jinja_int(loop->depth + 1); break;
    case 5: *out = snug_jinja_int(loop->length); break;
    case 6: *out = snug_jinja_int(loop->length - loop->index - 1); break;
    case 7: *out = snug_jinja_int(loop->length - loop->index); break;
    case 8: *out = snug_jinja_bool(loop->ended); break;
    case 9:
        *out = loop->ended ? snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, after, sizeof after - 1) : loop->after;
        break;
    case 10:
        *out = loop->index ? loop->before : snug_jinja_undefined(SNUG_JINJA_MISSING_MESSAGE, before, sizeof before - 1);
        break;
    default: *found = false; break;
    }
    return SNUG_OK;
}

static snug_status repeat(struct snug_jinja_run *run, struct snug_jinja_loop *loop) {
    const struct snug_jinja_node *node = loop->node;
    const struct snug_jinja_value self = {.type = SNUG_JINJA_LOOP, .loop = loop};
    struct snug_jinja_value item;
    bool found, complete = false;
    for (;;) {
        struct snug_jinja_scope *scope;
        RETURN_IF_ERROR(fetch(run, loop, &found, &item));
        if (!found) break;
        loop->peeked = false;
        loop->index++;
        loop->before = loop->current;
        loop->current = item;
        RETURN_IF_ERROR(snug_jinja_scope_new(run, loop->scope, &scope));
        RETURN_IF_ERROR(snug_jinja_set(run, scope, SNUG_JINJA_NAME_LOOP, self));
        RETURN_IF_ERROR(assign(run, scope, node->a, item));
        RETURN_IF_ERROR(snug_jinja_execute(run, scope, node->d));
        const enum snug_jinja_jump jump = run->jump;
        run->jump = SNUG_JINJA_GO_ON;
        if (jump == SNUG_JINJA_LEAVE) break;
        complete = complete || jump == SNUG_JINJA_GO_ON;
    }
    /* jinja2 notes that there was an item at the end of the body, which break and continue do not reach. */
    if (complete || !node->e) return SNUG_OK;
    struct snug_jinja_scope *scope;
    RETURN_IF_ERROR(snug_jinja_scope_new(run, loop->scope, &scope));
    return snug_jinja_execute(run, scope, node->e);
}

snug_status snug_jinja_loop_over(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                 const struct snug_jinja_node *node, struct snug_jinja_value items, int64_t depth) {
    struct snug_jinja_loop *loop;
    struct snug_jinja_list *list;
    size_t first;
    run->heap.line = node->line;
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, items, &list, &first));
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, sizeof *loop, (void **)&loop));
    *loop = (struct snug_jinja_loop){
        .node = node, .scope = scope, .items = list, .at = first, .index = -1, .depth = depth, .filters = node->c};
    return repeat(run, loop);
}

/* ---- other statements ---- */

static snug_status execute_output(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                  const struct snug_jinja_node *node) {
    struct snug_jinja_value value;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &value));
    run->heap.line = node->line;
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    return write_text(run, value.text, value.length);
}

/* The conditions of elif follow each other, so that a long chain is not deep. */
static snug_status execute_if(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                              const struct snug_jinja_node *node) {
    struct snug_jinja_value truth;
    for (;;) {
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a, &truth));
        if (snug_jinja_is_true(truth)) return snug_jinja_execute(run, scope, node->b);
        if (!node->c || node->c->kind != SNUG_JINJA_IF || !node->c->flags) break;
        node = node->c;
    }
    return snug_jinja_execute(run, scope, node->c);
}

static snug_status execute_set(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                               const struct snug_jinja_node *node) {
    struct snug_jinja_value value;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->b, &value));
    run->heap.line = node->line;
    return assign(run, scope, node->a, value);
}

/* The output of a body with variables of its own, as a string. */
static snug_status capture(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                           const struct snug_jinja_node *body, struct snug_jinja_value *out) {
    struct snug_jinja_scope *inner;
    RETURN_IF_ERROR(snug_jinja_scope_new(run, scope, &inner));
    const size_t mark = snug_jinja_begin_capture(run);
    return snug_jinja_end_capture(run, mark, snug_jinja_execute(run, inner, body), out);
}

/* Filters of a block: the innermost one is applied to the body's text. */
static snug_status apply_filters(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                 const struct snug_jinja_node *filter, struct snug_jinja_value *value) {
    struct snug_jinja_arguments arguments;
    if (!filter) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_descend(&run->heap));
    RETURN_IF_ERROR(apply_filters(run, scope, filter->a, value));
    run->heap.depth--;
    RETURN_IF_ERROR(snug_jinja_evaluate_arguments(run, scope, filter->b, &arguments));
    run->heap.line = filter->line;
    return snug_jinja_apply_filter(run, *value, filter->number, filter->value, &arguments, value);
}

static snug_status execute_set_block(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                     const struct snug_jinja_node *node) {
    struct snug_jinja_value value;
    RETURN_IF_ERROR(capture(run, scope, node->c, &value));
    RETURN_IF_ERROR(apply_filters(run, scope, node->b, &value));
    return assign(run, scope, node->a, value);
}

static snug_status execute_filter_block(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                        const struct snug_jinja_node *node) {
    struct snug_jinja_value value;
    RETURN_IF_ERROR(capture(run, scope, node->b, &value));
    RETURN_IF_ERROR(apply_filters(run, scope, node->a, &value));
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    return write_text(run, value.text, value.length);
}

static snug_status define(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                          const struct snug_jinja_node *node, struct snug_jinja_value *out) {
    struct snug_jinja_macro *macro;
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, sizeof *macro, (void **)&macro));
    *macro = (struct snug_jinja_macro){node, scope};
    *out = (struct snug_jinja_value){.type = SNUG_JINJA_MACRO, .macro = macro};
    return SNUG_OK;
}

static snug_status execute_call_block(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                      const struct snug_jinja_node *node) {
    static const char caller[] = "caller";
    struct snug_jinja_value callee, value;
    struct snug_jinja_arguments arguments, with_caller;
    RETURN_IF_ERROR(define(run, scope, node->b, &value));
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->a->a, &callee));
    RETURN_IF_ERROR(snug_jinja_evaluate_arguments(run, scope, node->a->b, &arguments));
    with_caller = arguments;
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, (arguments.keyword_count + 1) * sizeof *arguments.keywords,
                                    (void **)&with_caller.keywords));
    for (size_t i = 0; i < arguments.keyword_count; i++) with_caller.keywords[i] = arguments.keywords[i];
    with_caller.keywords[with_caller.keyword_count++] =
        (struct snug_jinja_pair){snug_jinja_string(caller, sizeof caller - 1), value};
    RETURN_IF_ERROR(snug_jinja_call(run, callee, &with_caller, &value));
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    return write_text(run, value.text, value.length);
}

static snug_status execute_with(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                const struct snug_jinja_node *node) {
    struct snug_jinja_scope *inner;
    RETURN_IF_ERROR(snug_jinja_scope_new(run, scope, &inner));
    for (const struct snug_jinja_node *set = node->a; set; set = set->next) {
        struct snug_jinja_value value;
        RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, set->b, &value));
        RETURN_IF_ERROR(assign(run, inner, set->a, value));
    }
    return snug_jinja_execute(run, inner, node->b);
}

static snug_status execute_generation(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                      const struct snug_jinja_node *node) {
    struct snug_jinja_value value;
    /* In a captured body it begins where that body's value may be written, as transformers has it. */
    const size_t begin = run->captures ? run->outside : run->length;
    RETURN_IF_ERROR(capture(run, scope, node->a, &value));
    RETURN_IF_ERROR(
        snug_grow(run->heap.ctx, (void **)&run->spans, &run->span_capacity, run->span_count + 1, sizeof *run->spans));
    run->spans[run->span_count++] = (struct snug_jinja_span){begin, begin + value.length};
    return write_text(run, value.text, value.length);
}

static snug_status execute_loop(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                const struct snug_jinja_node *node) {
    struct snug_jinja_value items;
    RETURN_IF_ERROR(snug_jinja_evaluate(run, scope, node->b, &items));
    return snug_jinja_loop_over(run, scope, node, items, 0);
}

static snug_status execute(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                           const struct snug_jinja_node *node) {
    struct snug_jinja_value value;
    switch ((enum snug_jinja_kind)node->kind) {
    case SNUG_JINJA_TEXT: return write_text(run, node->value.text, node->value.length);
    case SNUG_JINJA_OUTPUT: return execute_output(run, scope, node);
    case SNUG_JINJA_IF: return execute_if(run, scope, node);
    case SNUG_JINJA_FOR: return execute_loop(run, scope, node);
    case SNUG_JINJA_SET: return execute_set(run, scope, node);
    case SNUG_JINJA_SET_BLOCK: return execute_set_block(run, scope, node);
    case SNUG_JINJA_FUNCTION_OF:
        RETURN_IF_ERROR(define(run, scope, node, &value));
        return snug_jinja_set(run, scope, node->name, value);
    case SNUG_JINJA_CALL_BLOCK: return execute_call_block(run, scope, node);
    case SNUG_JINJA_FILTER_BLOCK: return execute_filter_block(run, scope, node);
    case SNUG_JINJA_WITH: return execute_with(run, scope, node);
    case SNUG_JINJA_GENERATION: return execute_generation(run, scope, node);
    case SNUG_JINJA_BREAK: run->jump = SNUG_JINJA_LEAVE; return SNUG_OK;
    default: run->jump = SNUG_JINJA_REPEAT; return SNUG_OK; /* continue */
    }
}

snug_status snug_jinja_execute(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                               const struct snug_jinja_node *list) {
    RETURN_IF_ERROR(snug_jinja_descend(&run->heap));
    for (; list && run->jump == SNUG_JINJA_GO_ON; list = list->next) {
        run->heap.line = list->line;
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
        RETURN_IF_ERROR(execute(run, scope, list));
    }
    run->heap.depth--;
    return SNUG_OK;
}

/* ---- rendering ---- */

/* The variables that the template names: those of the input, or else global functions. */
static snug_status set_variables(struct snug_jinja_run *run) {
    const struct snug_jinja_template *template = run->template;
    RETURN_IF_ERROR(snug_jinja_take(&run->heap, template->name_count * sizeof *run->top, (void **)&run->top));
    for (size_t i = 0; i < template->name_count; i++) {
        const struct snug_jinja_value name = template->names[i];
        json_t *value = NULL;
        for (size_t k = 0; !value && k < run->input->count; k++)
            value = json_object_get(run->input->variables[k], name.text);
        run->top[i] = snug_jinja_undefined(SNUG_JINJA_MISSING_NAME, name.text, name.length);
        if (value)
            RETURN_IF_ERROR(snug_jinja_from_json(&run->heap, value, &run->top[i]));
        else
            snug_jinja_global(name, &run->top[i]);
    }
    return SNUG_OK;
}

snug_status snug_jinja_render(snug_context *ctx, const struct snug_jinja_template *template,
                              const struct snug_jinja_input *input, struct snug_jinja_output *out) {
    struct snug_jinja_run run = {.template = template, .input = input};
    run.heap = (struct snug_jinja_heap){.ctx = ctx,
                                        .path = template->path,
                                        .quiet = input->quiet,
                                        .line = 1,
                                        .steps_most = input->steps_most ? input->steps_most : STEPS,
                                        .memory_most = input->memory_most ? input->memory_most : MEMORY};
    *out = (struct snug_jinja_output){0};
    snug_status status = set_variables(&run);
    if (status == SNUG_OK) status = snug_jinja_execute(&run, NULL, template->body);
    if (status == SNUG_OK) status = write_text(&run, "", 1);
    snug_arena_free(&run.heap.arena);
    *out = (struct snug_jinja_output){run.text, run.length - 1, run.spans, run.span_count};
    if (status != SNUG_OK) snug_jinja_output_free(out);
    return status;
}

void snug_jinja_output_free(struct snug_jinja_output *output) {
    free(output->text);
    free(output->spans);
    *output = (struct snug_jinja_output){0};
}
