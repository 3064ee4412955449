// template_compare.c — ==, < and `in`, as Python has them: 1 == 1.0 == True, text by code points,
// lists item by item, and an order only between things of a kind.
#include "text/template/template_run.h"
#include "text/template/template_text.h"

// Whole numbers beyond 2^53 and floats are compared without rounding.
static int order_numbers(rn_jinja_value a, rn_jinja_value b) {
    int64_t x, y;
    if (rn_jinja_as_int(a, &x) && rn_jinja_as_int(b, &y)) return (x > y) - (x < y);
    long double p = rn_jinja_as_int(a, &x) ? (long double)x : (long double)a.real;
    long double q = rn_jinja_as_int(b, &y) ? (long double)y : (long double)b.real;
    return (p > q) - (p < q);
}

static bool is_nan(rn_jinja_value value) {
    return value.type == RN_JINJA_FLOAT && value.real != value.real;
}

// The order of UTF-8 is the order of code points.
static int order_texts(rn_str a, rn_str b) {
    size_t bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    int order = bytes ? memcmp(a.data, b.data, bytes) : 0;
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

// *out is the first index at which they differ.
static rn_status first_difference(rn_jinja_run *run, const rn_jinja_list *a, const rn_jinja_list *b,
                                  size_t *out) {
    for (*out = 0; *out < a->count && *out < b->count; ++*out) {
        bool same = false;
        RN_TRY(rn_jinja_equal(run, a->items[*out], b->items[*out], &same));
        if (!same) return RN_OK;
    }
    return RN_OK;
}

static rn_status equal_lists(rn_jinja_run *run, const rn_jinja_list *a, const rn_jinja_list *b,
                             bool *out) {
    size_t at = 0;
    *out = false;
    if (a->count != b->count) return RN_OK;
    RN_TRY(first_difference(run, a, b, &at));
    *out = at == a->count;
    return RN_OK;
}

static rn_status equal_dicts(rn_jinja_run *run, const rn_jinja_dict *a, const rn_jinja_dict *b,
                             bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) {
        bool found = false;
        rn_jinja_value other = rn_jinja_none();
        RN_TRY(rn_jinja_dict_find(run, b, a->keys[i], &found, &other));
        *out = found;
        if (found) RN_TRY(rn_jinja_equal(run, a->values[i], other, out));
    }
    return RN_OK;
}

static bool equal_ranges(const rn_jinja_range *a, const rn_jinja_range *b) {
    if (a->count != b->count) return false;
    return a->count == 0 || (a->start == b->start && (a->count == 1 || a->step == b->step));
}

static rn_status equal_same_type(rn_jinja_run *run, rn_jinja_value a, rn_jinja_value b, bool *out) {
    switch (a.type) {
    case RN_JINJA_UNDEFINED:
    case RN_JINJA_NONE:
        *out = true;
        return RN_OK;
    case RN_JINJA_TEXT:
        RN_TRY(rn_jinja_work(run, a.text.bytes));
        *out = rn_str_equal(a.text, b.text);
        return RN_OK;
    case RN_JINJA_LIST:
    case RN_JINJA_TUPLE:
        return equal_lists(run, a.list, b.list, out);
    case RN_JINJA_DICT:
        return equal_dicts(run, a.dict, b.dict, out);
    case RN_JINJA_RANGE:
        *out = equal_ranges(a.range, b.range);
        return RN_OK;
    case RN_JINJA_NAMESPACE:
        *out = a.dict == b.dict;
        return RN_OK;
    default:
        return rn_jinja_fail(run, RN_UNSUPPORTED, "comparing a %s with another is not supported",
                             rn_jinja_type_name(a.type));
    }
}

static bool is_view(rn_jinja_type type) {
    return type == RN_JINJA_KEYS || type == RN_JINJA_VALUES || type == RN_JINJA_ITEMS;
}

rn_status rn_jinja_equal(rn_jinja_run *run, rn_jinja_value a, rn_jinja_value b, bool *out) {
    *out = false;
    RN_TRY(rn_jinja_enter(run));
    if (rn_jinja_is_number(a) && rn_jinja_is_number(b)) {
        *out = !is_nan(a) && !is_nan(b) && order_numbers(a, b) == 0;
    } else if (is_view(a.type) && is_view(b.type)) {
        return rn_jinja_fail(run, RN_UNSUPPORTED, "comparing views of dicts is not supported");
    } else if (a.type == b.type) {
        RN_TRY(equal_same_type(run, a, b, out));
    }
    run->depth--;
    return RN_OK;
}

static rn_status less_lists(rn_jinja_run *run, const rn_jinja_list *a, const rn_jinja_list *b,
                            bool *out) {
    size_t at = 0;
    RN_TRY(first_difference(run, a, b, &at));
    if (at < a->count && at < b->count) return rn_jinja_less(run, a->items[at], b->items[at], out);
    *out = a->count < b->count;
    return RN_OK;
}

rn_status rn_jinja_less(rn_jinja_run *run, rn_jinja_value a, rn_jinja_value b, bool *out) {
    *out = false;
    RN_TRY(rn_jinja_enter(run));
    if (a.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, a);
    if (b.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, b);
    if (rn_jinja_is_number(a) && rn_jinja_is_number(b)) {
        *out = !is_nan(a) && !is_nan(b) && order_numbers(a, b) < 0;
    } else if (a.type == RN_JINJA_TEXT && b.type == RN_JINJA_TEXT) {
        RN_TRY(rn_jinja_work(run, a.text.bytes));
        *out = order_texts(a.text, b.text) < 0;
    } else if (a.type == b.type && (a.type == RN_JINJA_LIST || a.type == RN_JINJA_TUPLE)) {
        RN_TRY(less_lists(run, a.list, b.list, out));
    } else if (is_view(a.type) && is_view(b.type)) {
        return rn_jinja_fail(run, RN_UNSUPPORTED, "comparing views of dicts is not supported");
    } else {
        return rn_jinja_fail(run, RN_INVALID, "there is no order between %s and %s",
                             rn_jinja_type_name(a.type), rn_jinja_type_name(b.type));
    }
    run->depth--;
    return RN_OK;
}

rn_status rn_jinja_compare(rn_jinja_run *run, rn_jinja_token_kind op, rn_jinja_value a,
                           rn_jinja_value b, bool *out) {
    bool same = false;
    if (op == RN_TOKEN_LT || op == RN_TOKEN_LE) {
        RN_TRY(rn_jinja_less(run, a, b, out));
    } else if (op == RN_TOKEN_GT || op == RN_TOKEN_GE) {
        RN_TRY(rn_jinja_less(run, b, a, out));
    } else {
        RN_TRY(rn_jinja_equal(run, a, b, out));
        if (op == RN_TOKEN_NE) *out = !*out;
        return RN_OK;
    }
    if (*out || op == RN_TOKEN_LT || op == RN_TOKEN_GT) return RN_OK;
    RN_TRY(rn_jinja_equal(run, a, b, &same));
    *out = same;
    return RN_OK;
}

rn_status rn_jinja_contains(rn_jinja_run *run, rn_jinja_value container, rn_jinja_value item,
                            bool *out) {
    rn_jinja_value other = rn_jinja_none();
    rn_jinja_iterator walk;
    bool more = false;
    *out = false;
    if (container.type == RN_JINJA_DICT || container.type == RN_JINJA_KEYS)
        return rn_jinja_dict_find(run, container.dict, item, out, &other);
    if (container.type == RN_JINJA_TEXT) {
        if (item.type != RN_JINJA_TEXT)
            return rn_jinja_fail(run, RN_INVALID, "only text can be in a text, not a %s",
                                 rn_jinja_type_name(item.type));
        RN_TRY(rn_jinja_work(run, container.text.bytes));
        *out = rn_jinja_find(container.text, item.text, 0) != RN_JINJA_NOT_FOUND;
        return RN_OK;
    }
    RN_TRY(rn_jinja_iterate(run, container, &walk));
    for (;;) {
        RN_TRY(rn_jinja_next(run, &walk, &more, &other));
        if (!more) return RN_OK;
        RN_TRY(rn_jinja_equal(run, other, item, out));
        if (*out) return RN_OK;
    }
}
