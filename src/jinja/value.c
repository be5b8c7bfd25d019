/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tokenizer/unicode.h"

/* ---- limits ---- */

/* A C call has at most some hundred bytes of stack, a few times as much with sanitizers. Python's limit is 1000, too.
 */
enum { DEPTH_MOST = 1000 };

snug_status snug_jinja_fail(struct snug_jinja_heap *heap, const char *format, ...) {
    char text[SNUG_MESSAGE_SIZE];
    va_list arguments;
    if (heap->quiet) return SNUG_E_INPUT;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return snug_fail(heap->ctx, SNUG_E_INPUT, "%s:%u: %s", heap->path, (unsigned)heap->line, text);
}

snug_status snug_jinja_spend(struct snug_jinja_heap *heap, uint64_t steps) {
    heap->steps += steps;
    if (heap->steps <= heap->steps_most) return SNUG_OK;
    return snug_jinja_fail(heap, "the template takes more than %llu steps with this conversation",
                           (unsigned long long)heap->steps_most);
}

snug_status snug_jinja_descend(struct snug_jinja_heap *heap) {
    if (++heap->depth <= DEPTH_MOST) return SNUG_OK;
    return snug_jinja_fail(heap, "calls or values are nested more than %d deep", DEPTH_MOST);
}

static snug_status check_memory(struct snug_jinja_heap *heap, size_t more) {
    const size_t used = heap->arena.bytes + heap->output;
    if (more <= heap->memory_most && used <= heap->memory_most - more) return SNUG_OK;
    return snug_jinja_fail(heap, "the template needs more than %zu MiB with this conversation",
                           heap->memory_most >> 20);
}

snug_status snug_jinja_take(struct snug_jinja_heap *heap, size_t size, void **out) {
    RETURN_IF_ERROR(snug_jinja_spend(heap, size >> 6));
    RETURN_IF_ERROR(check_memory(heap, size));
    *out = snug_arena_take(&heap->arena, size);
    return *out ? SNUG_OK : snug_fail(heap->ctx, SNUG_E_MEMORY, "out of memory while rendering %s", heap->path);
}

/* ---- making values ---- */

/* Array of capacity elements of size bytes, with the first count of an old one. */
static snug_status grow(struct snug_jinja_heap *heap, void **array, size_t count, size_t *capacity, size_t size) {
    void *old = *array;
    const size_t larger = *capacity < 4 ? 4 : *capacity * 2;
    if (count < *capacity) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_take(heap, larger * size, array));
    if (count) memcpy(*array, old, count * size);
    *capacity = larger;
    return SNUG_OK;
}

snug_status snug_jinja_list_new(struct snug_jinja_heap *heap, enum snug_jinja_type type, size_t capacity,
                                struct snug_jinja_value *out) {
    struct snug_jinja_list *list;
    RETURN_IF_ERROR(snug_jinja_take(heap, sizeof *list + capacity * sizeof *list->items, (void **)&list));
    *list = (struct snug_jinja_list){.items = (struct snug_jinja_value *)(list + 1), .capacity = capacity};
    *out = (struct snug_jinja_value){.type = (uint8_t)type, .list = list};
    return SNUG_OK;
}

snug_status snug_jinja_list_add(struct snug_jinja_heap *heap, struct snug_jinja_list *list,
                                struct snug_jinja_value item) {
    RETURN_IF_ERROR(grow(heap, (void **)&list->items, list->count, &list->capacity, sizeof *list->items));
    list->items[list->count++] = item;
    return SNUG_OK;
}

snug_status snug_jinja_dict_new(struct snug_jinja_heap *heap, enum snug_jinja_type type, struct snug_jinja_value *out) {
    struct snug_jinja_dict *dict;
    RETURN_IF_ERROR(snug_jinja_take(heap, sizeof *dict, (void **)&dict));
    *dict = (struct snug_jinja_dict){0};
    *out = (struct snug_jinja_value){.type = (uint8_t)type, .dict = dict};
    return SNUG_OK;
}

snug_status snug_jinja_copy(struct snug_jinja_heap *heap, const char *text, size_t length,
                            struct snug_jinja_value *out) {
    void *copy;
    if (length > UINT32_MAX) return check_memory(heap, SIZE_MAX);
    RETURN_IF_ERROR(snug_jinja_take(heap, length, &copy));
    if (length) memcpy(copy, text, length);
    *out = snug_jinja_string(copy, length);
    return SNUG_OK;
}

/* ---- dicts ---- */

/* Equal keys have the same hash: 1, 1.0 and true are equal. False: it cannot be a key. */
static bool hash(struct snug_jinja_value key, uint64_t *out) {
    const double real = snug_jinja_is_number(key) ? snug_jinja_to_real(key) : 0;
    if (key.type == SNUG_JINJA_STRING) {
        *out = XXH3_64bits(key.text, key.length);
        return true;
    }
    if (key.type == SNUG_JINJA_TUPLE) {
        *out = key.list->count;
        for (size_t i = 0; i < key.list->count; i++) {
            uint64_t item;
            /* A tuple in a tuple is not followed, so that no depth is to be limited. */
            if (key.list->items[i].type == SNUG_JINJA_TUPLE)
                item = 7;
            else if (!hash(key.list->items[i], &item))
                return false;
            *out = *out * 31 + item;
        }
        return true;
    }
    *out = XXH3_64bits(&real, sizeof real);
    return snug_jinja_is_number(key) || key.type == SNUG_JINJA_NONE || key.type == SNUG_JINJA_UNDEFINED ||
           key.type >= SNUG_JINJA_MACRO;
}

enum { FEW = 8 };

/* The pair, or else the empty slot where its number belongs (NULL without slots). */
static snug_status search(struct snug_jinja_heap *heap, const struct snug_jinja_dict *dict, struct snug_jinja_value key,
                          uint64_t code, size_t *pair, uint32_t **slot) {
    bool same = false;
    *slot = NULL;
    if (!dict->slots) {
        for (*pair = 0; *pair < dict->count; ++*pair) {
            RETURN_IF_ERROR(snug_jinja_equal(heap, dict->pairs[*pair].key, key, &same));
            if (same) return SNUG_OK;
        }
        return SNUG_OK;
    }
    for (size_t at = code & (dict->size - 1);; at = (at + 1) & (dict->size - 1)) {
        *slot = &dict->slots[at];
        *pair = **slot ? **slot - 1 : dict->count;
        if (!**slot) return SNUG_OK;
        RETURN_IF_ERROR(snug_jinja_equal(heap, dict->pairs[*pair].key, key, &same));
        if (same) return SNUG_OK;
    }
}

static snug_status index_pairs(struct snug_jinja_heap *heap, struct snug_jinja_dict *dict) {
    if (dict->count < FEW || dict->count * 2 < dict->size) return SNUG_OK;
    dict->size = dict->count * 4;
    for (size_t bit = 16;; bit *= 2)
        if (bit >= dict->size) {
            dict->size = bit;
            break;
        }
    RETURN_IF_ERROR(snug_jinja_take(heap, dict->size * sizeof *dict->slots, (void **)&dict->slots));
    memset(dict->slots, 0, dict->size * sizeof *dict->slots);
    for (size_t i = 0; i < dict->count; i++) {
        uint64_t code = 0;
        hash(dict->pairs[i].key, &code);
        while (dict->slots[code & (dict->size - 1)]) code++;
        dict->slots[code & (dict->size - 1)] = (uint32_t)i + 1;
    }
    return SNUG_OK;
}

snug_status snug_jinja_dict_set(struct snug_jinja_heap *heap, struct snug_jinja_dict *dict, struct snug_jinja_value key,
                                struct snug_jinja_value value) {
    uint64_t code;
    size_t pair;
    uint32_t *slot;
    if (!hash(key, &code)) return snug_jinja_fail(heap, "unhashable type: '%s'", snug_jinja_type_name(key.type));
    RETURN_IF_ERROR(search(heap, dict, key, code, &pair, &slot));
    if (pair < dict->count) {
        dict->pairs[pair].value = value;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(grow(heap, (void **)&dict->pairs, dict->count, &dict->capacity, sizeof *dict->pairs));
    dict->pairs[dict->count++] = (struct snug_jinja_pair){key, value};
    if (slot) *slot = (uint32_t)dict->count;
    return index_pairs(heap, dict);
}

snug_status snug_jinja_dict_find(struct snug_jinja_heap *heap, const struct snug_jinja_dict *dict,
                                 struct snug_jinja_value key, struct snug_jinja_value **out) {
    uint64_t code;
    size_t pair;
    uint32_t *slot;
    *out = NULL;
    if (!hash(key, &code)) return SNUG_OK;
    RETURN_IF_ERROR(search(heap, dict, key, code, &pair, &slot));
    if (pair < dict->count) *out = &dict->pairs[pair].value;
    return SNUG_OK;
}

/* ---- JSON ---- */

static snug_status from_array(struct snug_jinja_heap *heap, const json_t *json, struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_list_new(heap, SNUG_JINJA_LIST, json_array_size(json), out));
    for (size_t i = 0; i < json_array_size(json); i++)
        RETURN_IF_ERROR(snug_jinja_from_json(heap, json_array_get(json, i), &out->list->items[out->list->count++]));
    return SNUG_OK;
}

static snug_status from_object(struct snug_jinja_heap *heap, const json_t *json, struct snug_jinja_value *out) {
    const char *key;
    json_t *member;
    RETURN_IF_ERROR(snug_jinja_dict_new(heap, SNUG_JINJA_DICT, out));
    json_object_foreach((json_t *)(uintptr_t)json, key, member) {
        struct snug_jinja_value value;
        RETURN_IF_ERROR(snug_jinja_from_json(heap, member, &value));
        RETURN_IF_ERROR(snug_jinja_dict_set(heap, out->dict, snug_jinja_string(key, strlen(key)), value));
    }
    return SNUG_OK;
}

snug_status snug_jinja_from_json(struct snug_jinja_heap *heap, const json_t *json, struct snug_jinja_value *out) {
    snug_status status = SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_descend(heap));
    RETURN_IF_ERROR(snug_jinja_spend(heap, 1));
    switch (json_typeof(json)) {
    case JSON_OBJECT: status = from_object(heap, json, out); break;
    case JSON_ARRAY: status = from_array(heap, json, out); break;
    case JSON_STRING: *out = snug_jinja_string(json_string_value(json), json_string_length(json)); break;
    case JSON_INTEGER: *out = snug_jinja_int(json_integer_value(json)); break;
    case JSON_REAL: *out = snug_jinja_float(json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: *out = snug_jinja_bool(json_is_true(json)); break;
    case JSON_NULL: *out = snug_jinja_none(); break;
    }
    heap->depth--;
    return status;
}

/* ---- properties ---- */

const char *snug_jinja_type_name(enum snug_jinja_type type) {
    static const char *const names[] = {[SNUG_JINJA_UNDEFINED] = "Undefined",
                                        [SNUG_JINJA_NONE] = "NoneType",
                                        [SNUG_JINJA_BOOL] = "bool",
                                        [SNUG_JINJA_INT] = "int",
                                        [SNUG_JINJA_FLOAT] = "float",
                                        [SNUG_JINJA_STRING] = "str",
                                        [SNUG_JINJA_LIST] = "list",
                                        [SNUG_JINJA_TUPLE] = "tuple",
                                        [SNUG_JINJA_RANGE] = "range",
                                        [SNUG_JINJA_VIEW] = "dict view",
                                        [SNUG_JINJA_GENERATOR] = "generator",
                                        [SNUG_JINJA_DICT] = "dict",
                                        [SNUG_JINJA_NAMESPACE] = "TemplateNamespace",
                                        [SNUG_JINJA_LOOP] = "LoopContext",
                                        [SNUG_JINJA_MACRO] = "Macro",
                                        [SNUG_JINJA_FUNCTION] = "function",
                                        [SNUG_JINJA_METHOD] = "builtin_function_or_method"};
    return names[type];
}

bool snug_jinja_is_number(struct snug_jinja_value value) {
    return value.type == SNUG_JINJA_BOOL || value.type == SNUG_JINJA_INT || value.type == SNUG_JINJA_FLOAT;
}

int64_t snug_jinja_to_int(struct snug_jinja_value number) {
    return number.type == SNUG_JINJA_BOOL ? number.truth : number.integer;
}

double snug_jinja_to_real(struct snug_jinja_value number) {
    return number.type == SNUG_JINJA_FLOAT ? number.real : (double)snug_jinja_to_int(number);
}

bool snug_jinja_is_true(struct snug_jinja_value value) {
    switch ((enum snug_jinja_type)value.type) {
    case SNUG_JINJA_UNDEFINED:
    case SNUG_JINJA_NONE: return false;
    case SNUG_JINJA_BOOL: return value.truth;
    case SNUG_JINJA_INT: return value.integer;
    case SNUG_JINJA_FLOAT: return value.real != 0;
    case SNUG_JINJA_STRING: return value.length;
    case SNUG_JINJA_LIST:
    case SNUG_JINJA_TUPLE:
    case SNUG_JINJA_RANGE:
    case SNUG_JINJA_VIEW: return value.list->count;
    case SNUG_JINJA_DICT: return value.dict->count;
    default: return true;
    }
}

static snug_status equal_items(struct snug_jinja_heap *heap, const struct snug_jinja_list *a,
                               const struct snug_jinja_list *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++)
        RETURN_IF_ERROR(snug_jinja_equal(heap, a->items[i], b->items[i], out));
    return SNUG_OK;
}

static snug_status equal_dicts(struct snug_jinja_heap *heap, const struct snug_jinja_dict *a,
                               const struct snug_jinja_dict *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++) {
        struct snug_jinja_value *other;
        RETURN_IF_ERROR(snug_jinja_dict_find(heap, b, a->pairs[i].key, &other));
        *out = other;
        if (other) RETURN_IF_ERROR(snug_jinja_equal(heap, a->pairs[i].value, *other, out));
    }
    return SNUG_OK;
}

/* An integer and a real, exactly: beyond 2^53 an integer has no double of its own. */
static bool equal_numbers(struct snug_jinja_value a, struct snug_jinja_value b) {
    if (a.type != SNUG_JINJA_FLOAT && b.type != SNUG_JINJA_FLOAT) return snug_jinja_to_int(a) == snug_jinja_to_int(b);
    if (snug_jinja_to_real(a) != snug_jinja_to_real(b)) return false;
    if (a.type == b.type) return true;
    const double real = a.type == SNUG_JINJA_FLOAT ? a.real : b.real;
    return real < 0x1p63 && (int64_t)real == snug_jinja_to_int(a.type == SNUG_JINJA_FLOAT ? b : a);
}

static snug_status equal_of_type(struct snug_jinja_heap *heap, struct snug_jinja_value a, struct snug_jinja_value b,
                                 bool *out) {
    switch ((enum snug_jinja_type)a.type) {
    case SNUG_JINJA_STRING:
        RETURN_IF_ERROR(snug_jinja_spend(heap, a.length >> 6));
        *out = snug_jinja_equals_text(a, b.text, b.length);
        return SNUG_OK;
    case SNUG_JINJA_LIST:
    case SNUG_JINJA_TUPLE:
    case SNUG_JINJA_RANGE: return equal_items(heap, a.list, b.list, out);
    case SNUG_JINJA_DICT: return equal_dicts(heap, a.dict, b.dict, out);
    case SNUG_JINJA_UNDEFINED:
    case SNUG_JINJA_NONE: *out = true; return SNUG_OK;
    case SNUG_JINJA_METHOD:
        if (a.method->number != b.method->number) return SNUG_OK;
        return snug_jinja_equal(heap, a.method->self, b.method->self, out);
    default: *out = a.integer == b.integer; return SNUG_OK; /* the same object */
    }
}

snug_status snug_jinja_equal(struct snug_jinja_heap *heap, struct snug_jinja_value a, struct snug_jinja_value b,
                             bool *out) {
    *out = false;
    RETURN_IF_ERROR(snug_jinja_spend(heap, 1));
    if (snug_jinja_is_number(a) && snug_jinja_is_number(b)) {
        *out = equal_numbers(a, b);
        return SNUG_OK;
    }
    if (a.type != b.type) return SNUG_OK;
    RETURN_IF_ERROR(snug_jinja_descend(heap));
    const snug_status status = equal_of_type(heap, a, b, out);
    heap->depth--;
    return status;
}

static snug_status compare_items(struct snug_jinja_heap *heap, const char *operator_name,
                                 const struct snug_jinja_list *a, const struct snug_jinja_list *b, int *order,
                                 bool *unordered) {
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        bool same;
        RETURN_IF_ERROR(snug_jinja_equal(heap, a->items[i], b->items[i], &same));
        if (!same) return snug_jinja_compare(heap, operator_name, a->items[i], b->items[i], order, unordered);
    }
    *order = (a->count > b->count) - (a->count < b->count);
    return SNUG_OK;
}

snug_status snug_jinja_compare(struct snug_jinja_heap *heap, const char *operator_name, struct snug_jinja_value a,
                               struct snug_jinja_value b, int *order, bool *unordered) {
    *unordered = false;
    *order = 0;
    RETURN_IF_ERROR(snug_jinja_spend(heap, 1));
    if (a.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(heap, a);
    if (b.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(heap, b);
    if (snug_jinja_is_number(a) && snug_jinja_is_number(b)) {
        if (a.type != SNUG_JINJA_FLOAT && b.type != SNUG_JINJA_FLOAT) {
            const int64_t x = snug_jinja_to_int(a), y = snug_jinja_to_int(b);
            *order = (x > y) - (x < y);
            return SNUG_OK;
        }
        const double x = snug_jinja_to_real(a), y = snug_jinja_to_real(b);
        *order = (x > y) - (x < y);
        *unordered = isnan(x) || isnan(y);
        return SNUG_OK;
    }
    if (a.type == SNUG_JINJA_STRING && b.type == SNUG_JINJA_STRING) { /* UTF-8 has the order of code points */
        const size_t length = a.length < b.length ? a.length : b.length;
        RETURN_IF_ERROR(snug_jinja_spend(heap, length >> 6));
        *order = length ? memcmp(a.text, b.text, length) : 0;
        if (!*order) *order = (a.length > b.length) - (a.length < b.length);
        return SNUG_OK;
    }
    if (a.type == b.type && (a.type == SNUG_JINJA_LIST || a.type == SNUG_JINJA_TUPLE)) {
        RETURN_IF_ERROR(snug_jinja_descend(heap));
        const snug_status status = compare_items(heap, operator_name, a.list, b.list, order, unordered);
        heap->depth--;
        return status;
    }
    return snug_jinja_fail(heap, "'%s' not supported between instances of '%s' and '%s'", operator_name,
                           snug_jinja_type_name(a.type), snug_jinja_type_name(b.type));
}

snug_status snug_jinja_fail_undefined(struct snug_jinja_heap *heap, struct snug_jinja_value value) {
    if (value.flag == SNUG_JINJA_MISSING_NAME)
        return snug_jinja_fail(heap, "'%.*s' is undefined", (int)value.length, value.text);
    if (value.flag == SNUG_JINJA_MISSING_ELSE)
        return snug_jinja_fail(
            heap, "the inline if-expression on line %u evaluated to false and no else section was defined.",
            (unsigned)value.length);
    if (value.flag < SNUG_JINJA_MISSING_MEMBER) return snug_jinja_fail(heap, "%.*s", (int)value.length, value.text);
    const enum snug_jinja_type type = value.flag - SNUG_JINJA_MISSING_MEMBER;
    const char *suffix = type == SNUG_JINJA_NONE ? "" : " object";
    return snug_jinja_fail(heap, "'%s%s' has no attribute '%.*s'",
                           type == SNUG_JINJA_NONE ? "None" : snug_jinja_type_name(type), suffix, (int)value.length,
                           value.text);
}

/* ---- iteration ---- */

static snug_status characters(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                              struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_list_new(heap, SNUG_JINJA_LIST, text.length, out));
    for (size_t at = 0, begin = 0; at < text.length; begin = at) {
        snug_utf8_next(text.text, &at);
        out->list->items[out->list->count++] = snug_jinja_string(text.text + begin, at - begin);
    }
    return snug_jinja_spend(heap, out->list->count);
}

snug_status snug_jinja_iterate(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                               struct snug_jinja_list **out, size_t *first) {
    struct snug_jinja_value items;
    *first = 0;
    if (snug_jinja_has_items(value)) {
        *out = value.list;
        if (value.type != SNUG_JINJA_GENERATOR) return SNUG_OK;
        *first = value.list->at;
        value.list->at = value.list->count;
        return SNUG_OK;
    }
    if (value.type == SNUG_JINJA_STRING) {
        RETURN_IF_ERROR(characters(heap, value, &items));
    } else if (value.type == SNUG_JINJA_UNDEFINED) {
        RETURN_IF_ERROR(snug_jinja_list_new(heap, SNUG_JINJA_LIST, 0, &items));
    } else if (value.type == SNUG_JINJA_DICT) {
        RETURN_IF_ERROR(snug_jinja_list_new(heap, SNUG_JINJA_LIST, value.dict->count, &items));
        for (size_t i = 0; i < value.dict->count; i++) items.list->items[i] = value.dict->pairs[i].key;
        items.list->count = value.dict->count;
    } else {
        return snug_jinja_fail(heap, "'%s' object is not iterable", snug_jinja_type_name(value.type));
    }
    *out = items.list;
    return SNUG_OK;
}
