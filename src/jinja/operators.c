/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "jinja/run.h"

static const char *symbol(enum snug_jinja_operator op) {
    static const char *const symbols[] = {[SNUG_JINJA_ADD] = "+",
                                          [SNUG_JINJA_SUBTRACT] = "-",
                                          [SNUG_JINJA_MULTIPLY] = "*",
                                          [SNUG_JINJA_DIVIDE] = "/",
                                          [SNUG_JINJA_FLOOR_DIVIDE] = "//",
                                          [SNUG_JINJA_MODULO] = "%",
                                          [SNUG_JINJA_POWER] = "** or pow()",
                                          [SNUG_JINJA_EQUAL] = "==",
                                          [SNUG_JINJA_NOT_EQUAL] = "!=",
                                          [SNUG_JINJA_LESS] = "<",
                                          [SNUG_JINJA_LESS_EQUAL] = "<=",
                                          [SNUG_JINJA_GREATER] = ">",
                                          [SNUG_JINJA_GREATER_EQUAL] = ">="};
    return symbols[op];
}

static snug_status fail_types(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                              struct snug_jinja_value b) {
    if (op == SNUG_JINJA_ADD &&
        (a.type == SNUG_JINJA_STRING || a.type == SNUG_JINJA_LIST || a.type == SNUG_JINJA_TUPLE))
        return snug_jinja_fail(&run->heap, "can only concatenate %s (not \"%s\") to %s", snug_jinja_type_name(a.type),
                               snug_jinja_type_name(b.type), snug_jinja_type_name(a.type));
    return snug_jinja_fail(&run->heap, "unsupported operand type(s) for %s: '%s' and '%s'", symbol(op),
                           snug_jinja_type_name(a.type), snug_jinja_type_name(b.type));
}

/* ---- numbers ---- */

static snug_status fail_integer(struct snug_jinja_run *run) {
    return snug_jinja_fail(&run->heap, "an integer has more than 64 bits, which is not supported");
}

static snug_status power_of_integers(struct snug_jinja_run *run, int64_t a, int64_t b, int64_t *out) {
    *out = 1;
    for (; b; b >>= 1) {
        if (b & 1 && __builtin_mul_overflow(*out, a, out)) return fail_integer(run);
        if (b > 1 && __builtin_mul_overflow(a, a, &a)) return fail_integer(run);
    }
    return SNUG_OK;
}

static snug_status operate_integers(struct snug_jinja_run *run, enum snug_jinja_operator op, int64_t a, int64_t b,
                                    struct snug_jinja_value *out) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case SNUG_JINJA_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case SNUG_JINJA_SUBTRACT: overflow = __builtin_sub_overflow(a, b, &result); break;
    case SNUG_JINJA_MULTIPLY: overflow = __builtin_mul_overflow(a, b, &result); break;
    case SNUG_JINJA_POWER: RETURN_IF_ERROR(power_of_integers(run, a, b, &result)); break;
    default: /* // and %: towards minus infinity */
        overflow = b == -1 && a == INT64_MIN;
        if (overflow) break;
        result = op == SNUG_JINJA_MODULO ? a % b : a / b;
        if (a % b && (a < 0) != (b < 0)) result += op == SNUG_JINJA_MODULO ? b : -1;
        break;
    }
    *out = snug_jinja_int(result);
    return overflow ? fail_integer(run) : SNUG_OK;
}

static double floor_modulo(double a, double b) {
    const double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : copysign(rest, rest != 0 ? rest : b);
}

static snug_status operate_reals(struct snug_jinja_run *run, enum snug_jinja_operator op, double a, double b,
                                 struct snug_jinja_value *out) {
    double result = 0;
    switch (op) {
    case SNUG_JINJA_ADD: result = a + b; break;
    case SNUG_JINJA_SUBTRACT: result = a - b; break;
    case SNUG_JINJA_MULTIPLY: result = a * b; break;
    case SNUG_JINJA_DIVIDE: result = a / b; break;
    case SNUG_JINJA_MODULO: result = floor_modulo(a, b); break;
    case SNUG_JINJA_POWER:
        result = pow(a, b);
        if (a < 0 && isnan(result)) return snug_jinja_fail(&run->heap, "complex numbers are not supported");
        if (isinf(result) && isfinite(a) && isfinite(b))
            return snug_jinja_fail(&run->heap, "(34, 'Numerical result out of range')");
        break;
    default: result = floor((a - floor_modulo(a, b)) / b + 0.5); break;
    }
    *out = snug_jinja_float(result);
    return SNUG_OK;
}

static snug_status operate_numbers(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                                   struct snug_jinja_value b, struct snug_jinja_value *out) {
    const bool whole = a.type != SNUG_JINJA_FLOAT && b.type != SNUG_JINJA_FLOAT;
    const double divisor = snug_jinja_to_real(b);
    if (divisor == 0 && (op == SNUG_JINJA_DIVIDE || op == SNUG_JINJA_FLOOR_DIVIDE || op == SNUG_JINJA_MODULO))
        return snug_jinja_fail(&run->heap, "%s",
                               op == SNUG_JINJA_DIVIDE && whole ? "division by zero"
                               : whole                          ? "integer division or modulo by zero"
                               : op == SNUG_JINJA_DIVIDE        ? "float division by zero"
                                                                : "float divmod()");
    if (op == SNUG_JINJA_POWER && divisor < 0 && snug_jinja_to_real(a) == 0)
        return snug_jinja_fail(&run->heap, "0.0 cannot be raised to a negative power");
    if (whole && op != SNUG_JINJA_DIVIDE && !(op == SNUG_JINJA_POWER && divisor < 0))
        return operate_integers(run, op, snug_jinja_to_int(a), snug_jinja_to_int(b), out);
    return operate_reals(run, op, snug_jinja_to_real(a), divisor, out);
}

snug_status snug_jinja_sign(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                            struct snug_jinja_value *out) {
    if (a.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, a);
    if (!snug_jinja_is_number(a))
        return snug_jinja_fail(&run->heap, "bad operand type for unary %s: '%s'", symbol(op),
                               snug_jinja_type_name(a.type));
    if (a.type == SNUG_JINJA_FLOAT) {
        *out = snug_jinja_float(op == SNUG_JINJA_ADD ? a.real : -a.real);
        return SNUG_OK;
    }
    return operate_integers(run, op, 0, snug_jinja_to_int(a), out);
}

/* ---- sequences ---- */

static snug_status join_lists(struct snug_jinja_run *run, struct snug_jinja_value a, struct snug_jinja_value b,
                              struct snug_jinja_value *out) {
    const size_t count = a.list->count + b.list->count;
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, a.type, count, out));
    if (a.list->count) memcpy(out->list->items, a.list->items, a.list->count * sizeof *a.list->items);
    if (b.list->count) memcpy(out->list->items + a.list->count, b.list->items, b.list->count * sizeof *b.list->items);
    out->list->count = count;
    return SNUG_OK;
}

static snug_status repeat(struct snug_jinja_run *run, struct snug_jinja_value of, int64_t times,
                          struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    if (times < 0) times = 0;
    if (of.type == SNUG_JINJA_STRING) {
        for (; times && of.length; times--) {
            RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
            RETURN_IF_ERROR(snug_jinja_put(&run->heap, &builder, of.text, of.length));
        }
        *out = snug_jinja_built(&builder);
        out->flag = of.flag;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_jinja_list_new(&run->heap, of.type, 0, out));
    for (; times && of.list->count; times--)
        for (size_t i = 0; i < of.list->count; i++) {
            RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1));
            RETURN_IF_ERROR(snug_jinja_list_add(&run->heap, out->list, of.list->items[i]));
        }
    return SNUG_OK;
}

static bool can_repeat(struct snug_jinja_value value) {
    return value.type == SNUG_JINJA_STRING || value.type == SNUG_JINJA_LIST || value.type == SNUG_JINJA_TUPLE;
}

snug_status snug_jinja_operate(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                               struct snug_jinja_value b, struct snug_jinja_value *out) {
    if (op == SNUG_JINJA_MODULO && a.type == SNUG_JINJA_STRING) return snug_jinja_percent(run, a, b, out);
    if (a.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, a);
    if (b.type == SNUG_JINJA_UNDEFINED) return snug_jinja_fail_undefined(&run->heap, b);
    if (snug_jinja_is_number(a) && snug_jinja_is_number(b)) return operate_numbers(run, op, a, b, out);
    if (op == SNUG_JINJA_ADD && a.type == b.type && a.type == SNUG_JINJA_STRING)
        return snug_jinja_add_text(&run->heap, a, b, out);
    if (op == SNUG_JINJA_ADD && a.type == b.type && (a.type == SNUG_JINJA_LIST || a.type == SNUG_JINJA_TUPLE))
        return join_lists(run, a, b, out);
    if (op == SNUG_JINJA_MULTIPLY && can_repeat(a) && snug_jinja_is_number(b) && b.type != SNUG_JINJA_FLOAT)
        return repeat(run, a, snug_jinja_to_int(b), out);
    if (op == SNUG_JINJA_MULTIPLY && can_repeat(b) && snug_jinja_is_number(a) && a.type != SNUG_JINJA_FLOAT)
        return repeat(run, b, snug_jinja_to_int(a), out);
    if (op == SNUG_JINJA_MULTIPLY && (can_repeat(a) || can_repeat(b)))
        return snug_jinja_fail(&run->heap, "can't multiply sequence by non-int of type '%s'",
                               snug_jinja_type_name(can_repeat(a) ? b.type : a.type));
    return fail_types(run, op, a, b);
}

/* ---- comparisons ---- */

snug_status snug_jinja_contains(struct snug_jinja_run *run, struct snug_jinja_value item, struct snug_jinja_value in,
                                bool *out) {
    struct snug_jinja_value *found;
    struct snug_jinja_list *items;
    size_t first;
    *out = false;
    if (in.type == SNUG_JINJA_STRING) {
        if (item.type != SNUG_JINJA_STRING)
            return snug_jinja_fail(&run->heap, "'in <string>' requires string as left operand, not %s",
                                   snug_jinja_type_name(item.type));
        RETURN_IF_ERROR(snug_jinja_spend(&run->heap, 1 + (uint64_t)in.length * (1 + item.length / 16) / 16));
        *out = snug_jinja_find(in, item, 0) != SIZE_MAX;
        return SNUG_OK;
    }
    if (in.type == SNUG_JINJA_DICT) {
        RETURN_IF_ERROR(snug_jinja_dict_find(&run->heap, in.dict, item, &found));
        *out = found;
        return SNUG_OK;
    }
    if (!snug_jinja_has_items(in) && in.type != SNUG_JINJA_UNDEFINED)
        return snug_jinja_fail(&run->heap, "argument of type '%s' is not iterable", snug_jinja_type_name(in.type));
    RETURN_IF_ERROR(snug_jinja_iterate(&run->heap, in, &items, &first));
    for (size_t i = first; !*out && i < items->count; i++)
        RETURN_IF_ERROR(snug_jinja_equal(&run->heap, items->items[i], item, out));
    return SNUG_OK;
}

snug_status snug_jinja_relate(struct snug_jinja_run *run, enum snug_jinja_operator op, struct snug_jinja_value a,
                              struct snug_jinja_value b, bool *out) {
    int order;
    bool unordered;
    if (op == SNUG_JINJA_EQUAL || op == SNUG_JINJA_NOT_EQUAL) {
        RETURN_IF_ERROR(snug_jinja_equal(&run->heap, a, b, out));
        *out = *out == (op == SNUG_JINJA_EQUAL);
        return SNUG_OK;
    }
    if (op == SNUG_JINJA_IN || op == SNUG_JINJA_NOT_IN) {
        RETURN_IF_ERROR(snug_jinja_contains(run, a, b, out));
        *out = *out == (op == SNUG_JINJA_IN);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_jinja_compare(&run->heap, symbol(op), a, b, &order, &unordered));
    *out = !unordered && (op == SNUG_JINJA_LESS         ? order < 0
                          : op == SNUG_JINJA_LESS_EQUAL ? order <= 0
                          : op == SNUG_JINJA_GREATER    ? order > 0
                                                        : order >= 0);
    return SNUG_OK;
}
