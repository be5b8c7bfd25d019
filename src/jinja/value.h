/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a rendering: Python's, as far as templates see them. They are immutable, except for a namespace's
   attributes and the place of a generator, and live as long as the rendering. */
#ifndef SNUG_JINJA_VALUE_H
#define SNUG_JINJA_VALUE_H

#include <jansson.h>
#include <string.h>

#include "core/context.h"
#include "jinja/arena.h"

enum snug_jinja_type {
    SNUG_JINJA_UNDEFINED,
    SNUG_JINJA_NONE,
    SNUG_JINJA_BOOL,
    SNUG_JINJA_INT,
    SNUG_JINJA_FLOAT,
    SNUG_JINJA_STRING,
    SNUG_JINJA_LIST,
    SNUG_JINJA_TUPLE,
    SNUG_JINJA_RANGE,
    SNUG_JINJA_VIEW,      /* of a dict's keys, values or items: flag */
    SNUG_JINJA_GENERATOR, /* a sequence that can be passed over once */
    SNUG_JINJA_DICT,
    SNUG_JINJA_NAMESPACE,
    SNUG_JINJA_LOOP,
    SNUG_JINJA_MACRO,
    SNUG_JINJA_FUNCTION, /* a global one: integer is its number */
    SNUG_JINJA_METHOD,   /* of a value */
};

/* What an undefined value is, for messages: flag. */
enum snug_jinja_missing {
    SNUG_JINJA_MISSING_NAME,    /* text is a name */
    SNUG_JINJA_MISSING_ELSE,    /* of a condition without else; length is its line */
    SNUG_JINJA_MISSING_MESSAGE, /* text is the message */
    SNUG_JINJA_UNSAFE,          /* the same, of a SecurityError */
    SNUG_JINJA_MISSING_MEMBER,  /* text is an attribute of a value of the type flag - SNUG_JINJA_MISSING_MEMBER */
};

enum snug_jinja_view { SNUG_JINJA_VIEW_KEYS, SNUG_JINJA_VIEW_VALUES, SNUG_JINJA_VIEW_ITEMS };

struct snug_jinja_value {
    uint8_t type;
    uint8_t flag;    /* STRING: whether it is Markup, to which other strings are added with HTML's escapes */
    uint32_t length; /* bytes of text */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text; /* well-formed UTF-8, not NUL-terminated */
        struct snug_jinja_list *list;
        struct snug_jinja_dict *dict;
        struct snug_jinja_loop *loop;
        const struct snug_jinja_macro *macro;
        const struct snug_jinja_method *method;
    };
};

struct snug_jinja_list {
    struct snug_jinja_value *items;
    size_t count, capacity;
    size_t at;                 /* of a generator: items before it were passed over */
    int64_t start, stop, step; /* of a range */
};

struct snug_jinja_pair {
    struct snug_jinja_value key, value;
};

/* In the order of insertion. */
struct snug_jinja_dict {
    struct snug_jinja_pair *pairs;
    size_t count, capacity;
    uint32_t *slots; /* of pairs by hash, number + 1; NULL while there are few pairs */
    size_t size;     /* of slots: a power of two */
};

struct snug_jinja_method {
    struct snug_jinja_value self;
    int number; /* in the table of methods.c */
};

enum { SNUG_JINJA_GROWING = 4 };

/* What a rendering has: the rest of its state is in run.h. */
struct snug_jinja_heap {
    snug_context *ctx;
    const char *path; /* for messages */
    bool quiet;       /* no message is recorded */
    uint32_t line;    /* of the node that is evaluated */
    int depth;        /* of C calls that follow the template or its values */
    uint64_t steps, steps_most;
    size_t memory_most, output; /* output: bytes beside the arena */
    struct snug_arena arena;
    /* Strings with room after them, for which "+" made it: a loop that adds to its string does not copy it each time.
     */
    struct {
        char *text;
        size_t length, capacity;
    } growing[SNUG_JINJA_GROWING];
    size_t next_growing;
};

/* SNUG_E_INPUT with path and line. */
snug_status snug_jinja_fail(struct snug_jinja_heap *heap, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts steps; fails beyond the limit. */
snug_status snug_jinja_spend(struct snug_jinja_heap *heap, uint64_t steps);
/* Around what follows nested values or nodes. */
snug_status snug_jinja_descend(struct snug_jinja_heap *heap);
/* Memory of the rendering. Counts it as steps, too. */
snug_status snug_jinja_take(struct snug_jinja_heap *heap, size_t size, void **out);

static inline struct snug_jinja_value snug_jinja_bool(bool truth) {
    return (struct snug_jinja_value){.type = SNUG_JINJA_BOOL, .truth = truth};
}
static inline struct snug_jinja_value snug_jinja_int(int64_t integer) {
    return (struct snug_jinja_value){.type = SNUG_JINJA_INT, .integer = integer};
}
static inline struct snug_jinja_value snug_jinja_float(double real) {
    return (struct snug_jinja_value){.type = SNUG_JINJA_FLOAT, .real = real};
}
static inline struct snug_jinja_value snug_jinja_none(void) {
    return (struct snug_jinja_value){.type = SNUG_JINJA_NONE};
}
/* A string whose text lives long enough. */
static inline struct snug_jinja_value snug_jinja_string(const char *text, size_t length) {
    return (struct snug_jinja_value){.type = SNUG_JINJA_STRING, .length = (uint32_t)length, .text = text ? text : ""};
}
/* The name of a variable that does not exist, or a message: a literal, or text that lives long enough. */
static inline struct snug_jinja_value snug_jinja_undefined(enum snug_jinja_missing missing, const char *text,
                                                           size_t length) {
    return (struct snug_jinja_value){
        .type = SNUG_JINJA_UNDEFINED, .flag = (uint8_t)missing, .length = (uint32_t)length, .text = text};
}

/* New, empty ones. */
snug_status snug_jinja_list_new(struct snug_jinja_heap *heap, enum snug_jinja_type type, size_t capacity,
                                struct snug_jinja_value *out);
snug_status snug_jinja_list_add(struct snug_jinja_heap *heap, struct snug_jinja_list *list,
                                struct snug_jinja_value item);
snug_status snug_jinja_dict_new(struct snug_jinja_heap *heap, enum snug_jinja_type type, struct snug_jinja_value *out);
/* Fails if the key cannot be one. */
snug_status snug_jinja_dict_set(struct snug_jinja_heap *heap, struct snug_jinja_dict *dict, struct snug_jinja_value key,
                                struct snug_jinja_value value);
/* NULL if there is none. An unhashable key has none. */
snug_status snug_jinja_dict_find(struct snug_jinja_heap *heap, const struct snug_jinja_dict *dict,
                                 struct snug_jinja_value key, struct snug_jinja_value **out);
/* The value of a JSON value, whose strings must outlive the rendering. */
snug_status snug_jinja_from_json(struct snug_jinja_heap *heap, const json_t *json, struct snug_jinja_value *out);

/* A copy of text. */
snug_status snug_jinja_copy(struct snug_jinja_heap *heap, const char *text, size_t length,
                            struct snug_jinja_value *out);

/* Python's type name: "str", "dict". */
const char *snug_jinja_type_name(enum snug_jinja_type type);
bool snug_jinja_is_true(struct snug_jinja_value value);
bool snug_jinja_is_number(struct snug_jinja_value value); /* bool included */
double snug_jinja_to_real(struct snug_jinja_value number);
int64_t snug_jinja_to_int(struct snug_jinja_value number); /* of a bool or an integer */
/* Types with items in a struct snug_jinja_list. */
static inline bool snug_jinja_has_items(struct snug_jinja_value value) {
    return value.type >= SNUG_JINJA_LIST && value.type <= SNUG_JINJA_GENERATOR;
}
static inline bool snug_jinja_is_iterable(struct snug_jinja_value value) {
    return value.type == SNUG_JINJA_STRING || value.type == SNUG_JINJA_DICT || value.type == SNUG_JINJA_UNDEFINED ||
           snug_jinja_has_items(value);
}
static inline bool snug_jinja_equals_text(struct snug_jinja_value value, const char *text, size_t length) {
    return value.type == SNUG_JINJA_STRING && value.length == length && memcmp(value.text, text, length) == 0;
}

/* == of Python. */
snug_status snug_jinja_equal(struct snug_jinja_heap *heap, struct snug_jinja_value a, struct snug_jinja_value b,
                             bool *out);
/* *order: negative, 0 or positive; fails for types that have no order, naming the operator. *unordered: a NaN. */
snug_status snug_jinja_compare(struct snug_jinja_heap *heap, const char *operator_name, struct snug_jinja_value a,
                               struct snug_jinja_value b, int *order, bool *unordered);
/* The message of an undefined value that is used; SNUG_E_INPUT. */
snug_status snug_jinja_fail_undefined(struct snug_jinja_heap *heap, struct snug_jinja_value value);
/* The items that a for loop would see, as a list whose items from .at on are to be used; a generator has none left
   afterwards. Fails for a value that cannot be iterated. */
snug_status snug_jinja_iterate(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                               struct snug_jinja_list **out, size_t *first);

#endif
