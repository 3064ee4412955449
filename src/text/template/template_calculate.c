// template_calculate.c — + - * / // %, as Python has them: whole numbers that do not fit into 64
// bits are refused, text and lists can be added and repeated.
#include "text/template/template_run.h"

#include <math.h>

static rn_status too_large(rn_jinja_run *run) {
    return rn_jinja_fail(run, RN_UNSUPPORTED, "whole numbers beyond 64 bits are not supported");
}

static rn_status by_zero(rn_jinja_run *run) {
    return rn_jinja_fail(run, RN_INVALID, "division by zero");
}

// ---- numbers -----------------------------------------------------------------------------

// Quotient and remainder of Python: the remainder has the divisor's sign.
static rn_status divide_ints(rn_jinja_run *run, rn_jinja_token_kind op, int64_t a, int64_t b,
                             rn_jinja_value *out) {
    if (b == 0) return by_zero(run);
    if (b == -1) {
        if (op == RN_TOKEN_FLOORDIV && a == INT64_MIN) return too_large(run);
        *out = rn_jinja_int(op == RN_TOKEN_MOD ? 0 : -a);
        return RN_OK;
    }
    int64_t quotient = a / b, rest = a % b;
    bool adjust = rest != 0 && (rest < 0) != (b < 0);
    *out = rn_jinja_int(op == RN_TOKEN_MOD ? rest + (adjust ? b : 0) : quotient - adjust);
    return RN_OK;
}

// Correctly rounded, as Python's is, while both are exact as floats.
static rn_status divide_exactly(rn_jinja_run *run, int64_t a, int64_t b, rn_jinja_value *out) {
    const int64_t exact = (int64_t)1 << 53;
    if (b == 0) return by_zero(run);
    if (a > exact || a < -exact || b > exact || b < -exact)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "dividing numbers beyond 2^53 is not supported");
    *out = rn_jinja_float((double)a / (double)b);
    return RN_OK;
}

static rn_status calculate_ints(rn_jinja_run *run, rn_jinja_token_kind op, int64_t a, int64_t b,
                                rn_jinja_value *out) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case RN_TOKEN_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case RN_TOKEN_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case RN_TOKEN_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case RN_TOKEN_DIV:
        return divide_exactly(run, a, b, out);
    default:
        return divide_ints(run, op, a, b, out);
    }
    *out = rn_jinja_int(result);
    return overflow ? too_large(run) : RN_OK;
}

// Python's float // and %.
static double divide_floats(rn_jinja_token_kind op, double a, double b) {
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            quotient -= 1;
        }
    } else {
        rest = copysign(0, b);
    }
    if (op == RN_TOKEN_MOD) return rest;
    if (quotient == 0) return copysign(0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

// What is not finite is refused: Jinja itself fails on it where it folds constants.
static rn_status calculate_floats(rn_jinja_run *run, rn_jinja_token_kind op, double a, double b,
                                  rn_jinja_value *out) {
    bool divides = op != RN_TOKEN_ADD && op != RN_TOKEN_SUB && op != RN_TOKEN_MUL;
    double result;
    if (b == 0 && divides) return by_zero(run);
    if (op == RN_TOKEN_ADD)
        result = a + b;
    else if (op == RN_TOKEN_SUB)
        result = a - b;
    else if (op == RN_TOKEN_MUL)
        result = a * b;
    else
        result = op == RN_TOKEN_DIV ? a / b : divide_floats(op, a, b);
    if (!isfinite(result))
        return rn_jinja_fail(run, RN_UNSUPPORTED, "infinite numbers are not supported");
    *out = rn_jinja_float(result);
    return RN_OK;
}

// ---- text and lists ----------------------------------------------------------------------

static rn_status add_texts(rn_jinja_run *run, rn_str a, rn_str b, rn_jinja_value *out) {
    rn_jinja_made sum;
    RN_TRY(rn_jinja_work(run, a.bytes + b.bytes));
    RN_TRY(rn_jinja_make_text(run, a.bytes + b.bytes, &sum));
    if (a.bytes) memcpy(sum.text, a.data, a.bytes);
    if (b.bytes) memcpy(sum.text + a.bytes, b.data, b.bytes);
    rn_jinja_made_of(&sum, 0, rn_jinja_taint_of(run, a), a.bytes);
    rn_jinja_made_of(&sum, a.bytes, rn_jinja_taint_of(run, b), b.bytes);
    *out = rn_jinja_text((rn_str){sum.text, a.bytes + b.bytes});
    return RN_OK;
}

static rn_status add_lists(rn_jinja_run *run, rn_jinja_value a, rn_jinja_value b,
                           rn_jinja_value *out) {
    rn_jinja_list *list = NULL;
    RN_TRY(rn_jinja_list_new(run, &list));
    for (size_t i = 0; i < a.list->count; i++)
        RN_TRY(rn_jinja_list_add(run, list, a.list->items[i]));
    for (size_t i = 0; i < b.list->count; i++)
        RN_TRY(rn_jinja_list_add(run, list, b.list->items[i]));
    *out = rn_jinja_sequence(a.type, list);
    return RN_OK;
}

// Text, a list or a tuple, `times` times.
static rn_status repeat(rn_jinja_run *run, rn_jinja_value what, int64_t times,
                        rn_jinja_value *out) {
    size_t mark = run->out.bytes;
    rn_jinja_list *list = NULL;
    if (what.type == RN_JINJA_TEXT) {
        *out = rn_jinja_text((rn_str){"", 0});
        for (int64_t i = 0; i < times && what.text.bytes > 0; i++)
            RN_TRY(rn_jinja_write(run, what.text));
        return rn_jinja_take(run, mark, &out->text);
    }
    RN_TRY(rn_jinja_list_new(run, &list));
    for (int64_t i = 0; i < times && what.list->count > 0; i++)
        for (size_t k = 0; k < what.list->count; k++)
            RN_TRY(rn_jinja_list_add(run, list, what.list->items[k]));
    *out = rn_jinja_sequence(what.type, list);
    return RN_OK;
}

static bool is_sequence(rn_jinja_value value) {
    return value.type == RN_JINJA_TEXT || value.type == RN_JINJA_LIST ||
           value.type == RN_JINJA_TUPLE;
}

static rn_status calculate_others(rn_jinja_run *run, rn_jinja_token_kind op, rn_jinja_value a,
                                  rn_jinja_value b, rn_jinja_value *out) {
    int64_t times;
    if (op == RN_TOKEN_ADD && a.type == b.type && is_sequence(a))
        return a.type == RN_JINJA_TEXT ? add_texts(run, a.text, b.text, out)
                                       : add_lists(run, a, b, out);
    if (op == RN_TOKEN_MUL && is_sequence(a) && rn_jinja_as_int(b, &times))
        return repeat(run, a, times, out);
    if (op == RN_TOKEN_MUL && is_sequence(b) && rn_jinja_as_int(a, &times))
        return repeat(run, b, times, out);
    return rn_jinja_fail(run, RN_INVALID, "a %s and a %s cannot be combined this way",
                         rn_jinja_type_name(a.type), rn_jinja_type_name(b.type));
}

rn_status rn_jinja_calculate(rn_jinja_run *run, rn_jinja_token_kind op, rn_jinja_value a,
                             rn_jinja_value b, rn_jinja_value *out) {
    int64_t x, y;
    if (op == RN_TOKEN_MOD && a.type == RN_JINJA_TEXT)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "formatting text with '%%' is not supported");
    if (a.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, a);
    if (b.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, b);
    if (a.is_markup || b.is_markup)
        return rn_hint(rn_jinja_fail(run, RN_UNSUPPORTED, "adding to markup is not supported"),
                       "what went through |safe escapes what is added to it");
    if (rn_jinja_as_int(a, &x) && rn_jinja_as_int(b, &y)) return calculate_ints(run, op, x, y, out);
    if (rn_jinja_is_number(a) && rn_jinja_is_number(b))
        return calculate_floats(run, op, rn_jinja_as_float(a), rn_jinja_as_float(b), out);
    return calculate_others(run, op, a, b, out);
}
