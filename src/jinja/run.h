/* SPDX-License-Identifier: Apache-2.0 */
/* A rendering: what its files share. */
#ifndef SNUG_JINJA_RUN_H
#define SNUG_JINJA_RUN_H

#include "jinja/text.h"
#include "jinja/tree.h"

struct snug_jinja_binding {
    int32_t name;
    struct snug_jinja_value value;
};

/* The variables of a body; those of the template itself are in the run. */
struct snug_jinja_scope {
    struct snug_jinja_scope *parent; /* NULL: the template's */
    struct snug_jinja_binding *bindings;
    size_t count, capacity;
};

struct snug_jinja_macro {
    const struct snug_jinja_node *node; /* FUNCTION_OF */
    struct snug_jinja_scope *scope;     /* where it was defined */
};

struct snug_jinja_loop {
    const struct snug_jinja_node *node;
    struct snug_jinja_scope *scope; /* around the loop */
    const struct snug_jinja_list *items;
    size_t at;     /* the next of items, which the loop's condition may pass over */
    int64_t index; /* of the current item, from 0 */
    int64_t depth; /* of recursion, from 0 */
    int64_t length;
    bool counted, filters; /* length is known; the condition is still asked */
    bool peeked, ended;    /* after is known: the next item, or that there is none */
    struct snug_jinja_value before, current, after, changed;
    bool has_changed;
};

enum snug_jinja_jump { SNUG_JINJA_GO_ON, SNUG_JINJA_LEAVE, SNUG_JINJA_REPEAT };

struct snug_jinja_run {
    struct snug_jinja_heap heap;
    const struct snug_jinja_template *template;
    const struct snug_jinja_input *input;
    struct snug_jinja_value *top; /* the template's variables, by name */
    char *text;                   /* the output */
    size_t length, capacity;
    int captures;   /* bodies whose output becomes a value */
    size_t outside; /* the output outside of all of them */
    enum snug_jinja_jump jump;
    struct snug_jinja_span *spans;
    size_t span_count, span_capacity;
};

struct snug_jinja_arguments {
    struct snug_jinja_value *values;
    size_t count;
    struct snug_jinja_pair *keywords; /* keys are strings */
    size_t keyword_count;
};

/* ---- statements: exec.c ---- */

snug_status snug_jinja_execute(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                               const struct snug_jinja_node *list);
snug_status snug_jinja_scope_new(struct snug_jinja_run *run, struct snug_jinja_scope *parent,
                                 struct snug_jinja_scope **out);
snug_status snug_jinja_set(struct snug_jinja_run *run, struct snug_jinja_scope *scope, int32_t name,
                           struct snug_jinja_value value);
/* The output from begin_capture() on becomes a string, unless the status is a failure. */
size_t snug_jinja_begin_capture(struct snug_jinja_run *run);
snug_status snug_jinja_end_capture(struct snug_jinja_run *run, size_t mark, snug_status status,
                                   struct snug_jinja_value *out);
/* The loop over items, as loop(items) of a recursive one calls it. */
snug_status snug_jinja_loop_over(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                 const struct snug_jinja_node *node, struct snug_jinja_value items, int64_t depth);
/* An attribute of a loop that is no method. */
snug_status snug_jinja_loop_member(struct snug_jinja_run *run, struct snug_jinja_loop *loop,
                                   struct snug_jinja_value name, bool *found, struct snug_jinja_value *out);

/* ---- expressions: eval.c ---- */

snug_status snug_jinja_evaluate(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                const struct snug_jinja_node *node, struct snug_jinja_value *out);
snug_status snug_jinja_apply_filter(struct snug_jinja_run *run, struct snug_jinja_value value, int32_t number,
                                    struct snug_jinja_value name, const struct snug_jinja_arguments *arguments,
                                    struct snug_jinja_value *out);
snug_status snug_jinja_apply_test(struct snug_jinja_run *run, struct snug_jinja_value value, int32_t number,
                                  struct snug_jinja_value name, const struct snug_jinja_arguments *arguments,
                                  bool *out);
snug_status snug_jinja_evaluate_arguments(struct snug_jinja_run *run, struct snug_jinja_scope *scope,
                                          const struct snug_jinja_node *list, struct snug_jinja_arguments *out);

/* ---- operators.c ---- */

snug_status snug_jinja_operate(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                               struct snug_jinja_value b, struct snug_jinja_value *out);
snug_status snug_jinja_sign(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                            struct snug_jinja_value *out);
/* Comparisons, in and not in. */
snug_status snug_jinja_relate(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                              struct snug_jinja_value b, bool *out);
snug_status snug_jinja_contains(struct snug_jinja_run *run, struct snug_jinja_value item, struct snug_jinja_value in,
                                bool *out);

/* ---- access.c ---- */

snug_status snug_jinja_attribute(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value name,
                                 struct snug_jinja_value *out);
snug_status snug_jinja_item(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value key,
                            struct snug_jinja_value *out);
/* of[begin:end:step], NONE where one is left out. */
snug_status snug_jinja_slice(struct snug_jinja_run *run, struct snug_jinja_value of,
                             const struct snug_jinja_value bounds[3], struct snug_jinja_value *out);
/* begin and end of a sequence of count items as of[begin:end] clamps them; *out: how many. */
void snug_jinja_clamp(int64_t count, bool has_begin, int64_t begin, bool has_end, int64_t end, int64_t step,
                      int64_t *first, int64_t *out);
/* The value of a path as filters take it: "a.b.0", or an integer. otherwise: what an undefined part of it is, or NULL.
 */
snug_status snug_jinja_path(struct snug_jinja_run *run, struct snug_jinja_value of, struct snug_jinja_value path,
                            const struct snug_jinja_value *otherwise, struct snug_jinja_value *out);

/* ---- calls: call.c ---- */

snug_status snug_jinja_call(struct snug_jinja_run *run, struct snug_jinja_value callee,
                            const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out);
/* A global function's value; false: there is none of this name. */
bool snug_jinja_global(struct snug_jinja_value name, struct snug_jinja_value *out);

enum { SNUG_JINJA_PARAMETERS_MOST = 6 };
/* parameters: names with a space between them; after a "?" that and all later ones may be left out. */
snug_status snug_jinja_bind(struct snug_jinja_run *run, const char *callee, const char *parameters,
                            const struct snug_jinja_arguments *arguments,
                            struct snug_jinja_value out[SNUG_JINJA_PARAMETERS_MOST]);
bool snug_jinja_is_given(struct snug_jinja_value bound);
/* What was bound, where it has to be of a type. */
snug_status snug_jinja_need_int(struct snug_jinja_run *run, struct snug_jinja_value bound, int64_t *out);
snug_status snug_jinja_need_text(struct snug_jinja_run *run, const char *what, struct snug_jinja_value bound);

/* ---- methods.c ---- */

/* The number of a method of a type; -1: there is none. */
int snug_jinja_method_find(enum snug_jinja_type type, struct snug_jinja_value name);
snug_status snug_jinja_method_call(struct snug_jinja_run *run, const struct snug_jinja_method *method,
                                   const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out);

/* ---- format.c ---- */

/* text % arguments. */
snug_status snug_jinja_percent(struct snug_jinja_run *run, struct snug_jinja_value text,
                               struct snug_jinja_value arguments, struct snug_jinja_value *out);
/* text.format(…). */
snug_status snug_jinja_format(struct snug_jinja_run *run, struct snug_jinja_value text,
                              const struct snug_jinja_arguments *arguments, struct snug_jinja_value *out);
/* The date with strftime's directives. */
snug_status snug_jinja_date(struct snug_jinja_run *run, struct snug_jinja_value format, struct snug_jinja_value *out);

#endif
