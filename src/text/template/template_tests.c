// template_tests.c — what may follow `is`.
#include "text/template/template_builtin.h"
#include "text/template/template_text.h"

typedef const rn_jinja_value *arguments;

#define TEST(name, expression)                                                                     \
    static rn_status name(rn_jinja_run *run, rn_jinja_value self, arguments args,                  \
                          rn_jinja_value *out) {                                                   \
        (void)run;                                                                                 \
        (void)args;                                                                                \
        *out = rn_jinja_bool(expression);                                                          \
        return RN_OK;                                                                              \
    }

// Undefined has a length and items in Jinja, so it is a sequence, iterable and callable.
static bool is_sequence(rn_jinja_type type) {
    return type == RN_JINJA_UNDEFINED || type == RN_JINJA_TEXT || type == RN_JINJA_LIST ||
           type == RN_JINJA_TUPLE || type == RN_JINJA_DICT || type == RN_JINJA_RANGE;
}

static bool is_callable(rn_jinja_type type) {
    return type == RN_JINJA_UNDEFINED || type == RN_JINJA_FUNCTION || type == RN_JINJA_METHOD ||
           type == RN_JINJA_MACRO || type == RN_JINJA_LOOP;
}

TEST(is_defined, self.type != RN_JINJA_UNDEFINED)
TEST(is_undefined, self.type == RN_JINJA_UNDEFINED)
TEST(is_none, self.type == RN_JINJA_NONE)
TEST(is_boolean, self.type == RN_JINJA_BOOL)
TEST(is_true, self.type == RN_JINJA_BOOL && self.truth)
TEST(is_false, self.type == RN_JINJA_BOOL && !self.truth)
TEST(is_integer, self.type == RN_JINJA_INT)
TEST(is_float, self.type == RN_JINJA_FLOAT)
TEST(is_number, rn_jinja_is_number(self))
TEST(is_string, self.type == RN_JINJA_TEXT)
TEST(is_mapping, self.type == RN_JINJA_DICT)
TEST(is_iterable, rn_jinja_is_iterable(self) || self.type == RN_JINJA_LOOP)
TEST(is_sequence_test, is_sequence(self.type))
TEST(is_callable_test, is_callable(self.type))

// value % by == rest.
static rn_status has_rest(rn_jinja_run *run, rn_jinja_value value, rn_jinja_value by, int64_t rest,
                          rn_jinja_value *out) {
    rn_jinja_value found = rn_jinja_none();
    bool same = false;
    RN_TRY(rn_jinja_calculate(run, RN_TOKEN_MOD, value, by, &found));
    RN_TRY(rn_jinja_equal(run, found, rn_jinja_int(rest), &same));
    *out = rn_jinja_bool(same);
    return RN_OK;
}

static rn_status is_odd(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    (void)args;
    return has_rest(run, self, rn_jinja_int(2), 1, out);
}

static rn_status is_even(rn_jinja_run *run, rn_jinja_value self, arguments args,
                         rn_jinja_value *out) {
    (void)args;
    return has_rest(run, self, rn_jinja_int(2), 0, out);
}

static rn_status is_divisible(rn_jinja_run *run, rn_jinja_value self, arguments args,
                              rn_jinja_value *out) {
    return has_rest(run, self, args[0], 0, out);
}

static rn_status compare(rn_jinja_run *run, rn_jinja_token_kind op, rn_jinja_value a,
                         rn_jinja_value b, rn_jinja_value *out) {
    bool holds = false;
    RN_TRY(rn_jinja_compare(run, op, a, b, &holds));
    *out = rn_jinja_bool(holds);
    return RN_OK;
}

#define COMPARISON(name, op)                                                                       \
    static rn_status name(rn_jinja_run *run, rn_jinja_value self, arguments args,                  \
                          rn_jinja_value *out) {                                                   \
        return compare(run, op, self, args[0], out);                                               \
    }
COMPARISON(is_equal, RN_TOKEN_EQ)
COMPARISON(is_unequal, RN_TOKEN_NE)
COMPARISON(is_less, RN_TOKEN_LT)
COMPARISON(is_at_most, RN_TOKEN_LE)
COMPARISON(is_greater, RN_TOKEN_GT)
COMPARISON(is_at_least, RN_TOKEN_GE)

static rn_status is_in(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    bool found = false;
    RN_TRY(rn_jinja_contains(run, args[0], self, &found));
    *out = rn_jinja_bool(found);
    return RN_OK;
}

// Python's `is`: which numbers and texts are one object is its own affair, only these are not.
static rn_status is_same(rn_jinja_run *run, rn_jinja_value self, arguments args,
                         rn_jinja_value *out) {
    rn_jinja_type a = self.type, b = args[0].type;
    bool single = a == RN_JINJA_NONE || a == RN_JINJA_BOOL || b == RN_JINJA_NONE ||
                  b == RN_JINJA_BOOL || a == RN_JINJA_NAMESPACE;
    if (!single)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "sameas is only supported for none and booleans");
    if (a != b) {
        *out = rn_jinja_bool(false);
        return RN_OK;
    }
    return compare(run, RN_TOKEN_EQ, self, args[0], out);
}

// Whether str(value) has letters, and all of them are of this case.
static rn_status has_case(rn_jinja_run *run, rn_jinja_value self, char first, rn_jinja_value *out) {
    rn_str text = {"", 0};
    bool all = true, some = false;
    RN_TRY(rn_jinja_to_text(run, self, &text));
    if (!rn_jinja_text_is_ascii(text))
        return rn_jinja_fail(run, RN_UNSUPPORTED,
                             "the case of other than ASCII letters is not "
                             "supported in tests");
    for (size_t i = 0; i < text.bytes; i++) {
        char c = text.data[i];
        if ((c | 32) < 'a' || (c | 32) > 'z') continue;
        some = true;
        all = all && (c & 32) == (first & 32);
    }
    *out = rn_jinja_bool(all && some);
    return RN_OK;
}

static rn_status is_lower(rn_jinja_run *run, rn_jinja_value self, arguments args,
                          rn_jinja_value *out) {
    (void)args;
    return has_case(run, self, 'a', out);
}

static rn_status is_upper(rn_jinja_run *run, rn_jinja_value self, arguments args,
                          rn_jinja_value *out) {
    (void)args;
    return has_case(run, self, 'A', out);
}

static const rn_jinja_builtin tests[] = {
    {.name = "boolean", .call = is_boolean},
    {.name = "callable", .call = is_callable_test},
    {.name = "defined", .call = is_defined},
    {.name = "divisibleby", .call = is_divisible, .params = {"num"}, .required = 1},
    {.name = "eq", .call = is_equal, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "equalto", .call = is_equal, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "==", .call = is_equal, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "even", .call = is_even},
    {.name = "false", .call = is_false},
    {.name = "float", .call = is_float},
    {.name = "ge", .call = is_at_least, .params = {"other"}, .required = 1, .no_names = true},
    {.name = ">=", .call = is_at_least, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "greaterthan",
     .call = is_greater,
     .params = {"other"},
     .required = 1,
     .no_names = true},
    {.name = "gt", .call = is_greater, .params = {"other"}, .required = 1, .no_names = true},
    {.name = ">", .call = is_greater, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "in", .call = is_in, .params = {"seq"}, .required = 1},
    {.name = "integer", .call = is_integer},
    {.name = "iterable", .call = is_iterable},
    {.name = "le", .call = is_at_most, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "<=", .call = is_at_most, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "lessthan", .call = is_less, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "lower", .call = is_lower},
    {.name = "lt", .call = is_less, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "<", .call = is_less, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "mapping", .call = is_mapping},
    {.name = "ne", .call = is_unequal, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "!=", .call = is_unequal, .params = {"other"}, .required = 1, .no_names = true},
    {.name = "none", .call = is_none},
    {.name = "number", .call = is_number},
    {.name = "odd", .call = is_odd},
    {.name = "sameas", .call = is_same, .params = {"other"}, .required = 1},
    {.name = "sequence", .call = is_sequence_test},
    {.name = "string", .call = is_string},
    {.name = "true", .call = is_true},
    {.name = "undefined", .call = is_undefined},
    {.name = "upper", .call = is_upper},
    {.name = NULL},
};

const rn_jinja_builtin *rn_jinja_test_find(rn_str name) {
    return rn_jinja_row_find(tests, name);
}
