/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: "x is defined". */
#include <string.h>

#include "jinja/filters.h"
#include "jinja/repr.h"
#include "jinja/run.h"

#define TEST_OF(name)                                                                                                  \
    static snug_status name(struct snug_jinja_run *run, struct snug_jinja_value value,                                 \
                            const struct snug_jinja_value *bound, bool *out)
/* One that asks the value alone. */
#define TEST_TYPE(name, condition)                                                                                     \
    TEST_OF(name) {                                                                                                    \
        (void)run, (void)bound;                                                                                        \
        *out = condition;                                                                                              \
        return SNUG_OK;                                                                                                \
    }

TEST_TYPE(is_defined, value.type != SNUG_JINJA_UNDEFINED)
TEST_TYPE(is_undefined, value.type == SNUG_JINJA_UNDEFINED)
TEST_TYPE(is_none, value.type == SNUG_JINJA_NONE)
TEST_TYPE(is_boolean, value.type == SNUG_JINJA_BOOL)
TEST_TYPE(is_true, value.type == SNUG_JINJA_BOOL && value.truth)
TEST_TYPE(is_false, value.type == SNUG_JINJA_BOOL && !value.truth)
TEST_TYPE(is_integer, value.type == SNUG_JINJA_INT)
TEST_TYPE(is_float, value.type == SNUG_JINJA_FLOAT)
TEST_TYPE(is_number, snug_jinja_is_number(value))
TEST_TYPE(is_string, value.type == SNUG_JINJA_STRING)
TEST_TYPE(is_escaped, value.type == SNUG_JINJA_STRING && value.flag)
TEST_TYPE(is_mapping, value.type == SNUG_JINJA_DICT)
TEST_TYPE(is_sequence, value.type == SNUG_JINJA_UNDEFINED || value.type == SNUG_JINJA_STRING ||
                           value.type == SNUG_JINJA_LIST || value.type == SNUG_JINJA_TUPLE ||
                           value.type == SNUG_JINJA_RANGE || value.type == SNUG_JINJA_DICT)
TEST_TYPE(is_iterable, snug_jinja_is_iterable(value) || value.type == SNUG_JINJA_LOOP)
TEST_TYPE(is_callable, value.type >= SNUG_JINJA_LOOP || value.type == SNUG_JINJA_UNDEFINED)
TEST_TYPE(is_filter, value.type == SNUG_JINJA_STRING && snug_jinja_filter_find(value) >= 0)
TEST_TYPE(is_test, value.type == SNUG_JINJA_STRING && snug_jinja_test_find(value) >= 0)

/* Whether value % by is rest. */
static snug_status has_rest(struct snug_jinja_run *run, struct snug_jinja_value value, struct snug_jinja_value by,
                            int64_t rest, bool *out) {
    RETURN_IF_ERROR(snug_jinja_operate(run, SNUG_JINJA_MODULO, value, by, &value));
    return snug_jinja_relate(run, SNUG_JINJA_EQUAL, value, snug_jinja_int(rest), out);
}

TEST_OF(is_odd) {
    (void)bound;
    return has_rest(run, value, snug_jinja_int(2), 1, out);
}

TEST_OF(is_even) {
    (void)bound;
    return has_rest(run, value, snug_jinja_int(2), 0, out);
}

TEST_OF(is_divisible) { return has_rest(run, value, bound[0], 0, out); }

static snug_status has_class(struct snug_jinja_run *run, struct snug_jinja_value value, enum snug_jinja_class class,
                             bool *out) {
    RETURN_IF_ERROR(snug_jinja_to_text(&run->heap, value, &value));
    *out = snug_jinja_is(value, class);
    return SNUG_OK;
}

TEST_OF(is_lower) {
    (void)bound;
    return has_class(run, value, SNUG_JINJA_IS_LOWER, out);
}

TEST_OF(is_upper) {
    (void)bound;
    return has_class(run, value, SNUG_JINJA_IS_UPPER, out);
}

TEST_OF(is_same) {
    const struct snug_jinja_value other = bound[0];
    (void)run;
    *out = value.type == other.type && (value.type == SNUG_JINJA_NONE || value.integer == other.integer);
    if (value.type == SNUG_JINJA_BOOL && other.type == SNUG_JINJA_BOOL) *out = value.truth == other.truth;
    return SNUG_OK;
}

TEST_OF(is_in) { return snug_jinja_contains(run, value, bound[0], out); }
TEST_OF(is_equal) { return snug_jinja_relate(run, SNUG_JINJA_EQUAL, value, bound[0], out); }
TEST_OF(is_not_equal) { return snug_jinja_relate(run, SNUG_JINJA_NOT_EQUAL, value, bound[0], out); }
TEST_OF(is_less) { return snug_jinja_relate(run, SNUG_JINJA_LESS, value, bound[0], out); }
TEST_OF(is_less_equal) { return snug_jinja_relate(run, SNUG_JINJA_LESS_EQUAL, value, bound[0], out); }
TEST_OF(is_greater) { return snug_jinja_relate(run, SNUG_JINJA_GREATER, value, bound[0], out); }
TEST_OF(is_greater_equal) { return snug_jinja_relate(run, SNUG_JINJA_GREATER_EQUAL, value, bound[0], out); }

static const struct snug_jinja_test tests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"boolean", "", is_boolean},
    {"true", "", is_true},
    {"false", "", is_false},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"string", "", is_string},
    {"escaped", "", is_escaped},
    {"mapping", "", is_mapping},
    {"sequence", "", is_sequence},
    {"iterable", "", is_iterable},
    {"callable", "", is_callable},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisible},
    {"lower", "", is_lower},
    {"upper", "", is_upper},
    {"sameas", "other", is_same},
    {"in", "seq", is_in},
    {"==", "other", is_equal},
    {"eq", "other", is_equal},
    {"equalto", "other", is_equal},
    {"!=", "other", is_not_equal},
    {"ne", "other", is_not_equal},
    {"<", "other", is_less},
    {"lt", "other", is_less},
    {"lessthan", "other", is_less},
    {"<=", "other", is_less_equal},
    {"le", "other", is_less_equal},
    {">", "other", is_greater},
    {"gt", "other", is_greater},
    {"greaterthan", "other", is_greater},
    {">=", "other", is_greater_equal},
    {"ge", "other", is_greater_equal},
};

int32_t snug_jinja_test_find(struct snug_jinja_value name) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (snug_jinja_equals_text(name, tests[i].name, strlen(tests[i].name))) return (int32_t)i;
    return -1;
}

const struct snug_jinja_test *snug_jinja_test_at(int32_t number) { return &tests[number]; }
