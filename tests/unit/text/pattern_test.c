// Expressions: translated from Oniguruma's syntax, limited, refused by name.
#include "base/fault.h"
#include "memory/account.h"
#include "support.h"
#include "text/pattern.h"

static rn_pattern *compile(const char *expression, bool literal) {
    rn_pattern *pattern;
    assert_ok(rn_pattern_compile(RN_HOST_OTHER, rn_str_from(expression), literal, &pattern));
    return pattern;
}

static void expect_match(const char *expression, bool literal, const char *text, size_t start,
                         size_t end) {
    rn_pattern *pattern = compile(expression, literal);
    rn_matching matching = {0};
    rn_match match;
    assert_ok(rn_pattern_next(pattern, &matching, rn_str_from(text), 0, false, &match));
    assert_true(match.found);
    assert_int_equal(match.start, start);
    assert_int_equal(match.end, end);
    rn_matching_free(&matching);
    rn_pattern_destroy(pattern);
}

static void expect_refusal(const char *expression, const char *named) {
    rn_pattern *pattern;
    assert_fails(RN_UNSUPPORTED,
                 rn_pattern_compile(RN_HOST_OTHER, rn_str_from(expression), false, &pattern));
    assert_null(pattern);
    assert_non_null(strstr(rn_last_error()->message, named));
}

static void expressions_match_characters_not_bytes(void **state) {
    (void)state;
    expect_match("\\p{Lu}\\p{Ll}+", false, "xx \xC3\x84pfel", 3, 9);
    expect_match("[^a]", false, "a\xC3\xA9", 1, 3);
    expect_match("a.c", true, "abc a.c", 4, 7);
}

static void classes_within_classes_are_unions(void **state) {
    (void)state;
    expect_match("[x[yz]]+", false, "a yzx", 2, 5);
    expect_match("[^(\\s|[.,])]+", false, ". ab,", 2, 4);
    expect_match("[[:digit:]]+", false, "ab12", 2, 4);
    expect_match("[]a]+", false, "x]a]", 1, 4);
    expect_match("[\\]\\[]+", false, "x[]", 1, 3);
}

static void line_ends_are_found_on_every_line(void **state) {
    (void)state;
    expect_match("\\s+$", false, "a \nb", 1, 2);
    expect_match("b+$", false, "abb\nc", 1, 3);
}

static void what_is_read_differently_is_refused_by_name(void **state) {
    (void)state;
    expect_refusal("[\\p{L}&&[^\\p{Han}]]+", "&&");
    expect_refusal("[a[^b]]", "negated class");
    expect_refusal("\\h+", "\\h");
    expect_refusal("(unclosed", "parenthesis");
    expect_refusal("", "nothing");
    expect_refusal("\\C", "\\C");
}

static void an_expression_that_explodes_gives_up(void **state) {
    (void)state;
    rn_pattern *pattern = compile("(a+)+(a+)+(a+)+\\d(?<=1)", false);
    rn_matching matching = {0};
    rn_match match;
    char text[4096];
    memset(text, 'a', sizeof text);
    assert_fails(RN_UNSUPPORTED, rn_pattern_next(pattern, &matching, (rn_str){text, sizeof text}, 0,
                                                 false, &match));
    rn_matching_free(&matching);
    rn_pattern_destroy(pattern);
}

static void memory_is_charged_and_given_back(void **state) {
    (void)state;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    rn_pattern *pattern = compile("a+|[bc]*", false);
    assert_true(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes > before);
    rn_pattern_destroy(pattern);
    assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes, before);
}

static rn_status use(void) {
    rn_pattern *pattern;
    rn_matching matching = {0};
    rn_match match;
    RN_TRY(rn_pattern_compile(RN_HOST_OTHER, RN_STR("(a|b)+[x[yz]]"), false, &pattern));
    rn_status s = rn_pattern_next(pattern, &matching, RN_STR("ababz"), 0, false, &match);
    rn_matching_free(&matching);
    rn_pattern_destroy(pattern);
    return s;
}

static void a_refused_allocation_leaks_nothing(void **state) {
    (void)state;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    for (uint64_t nth = 1;; nth++) {
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = use();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes, before);
        if (!fired) {
            assert_int_equal(s, RN_OK);
            break;
        }
        assert_int_equal(s, RN_NO_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_match_characters_not_bytes),
        cmocka_unit_test(classes_within_classes_are_unions),
        cmocka_unit_test(line_ends_are_found_on_every_line),
        cmocka_unit_test(what_is_read_differently_is_refused_by_name),
        cmocka_unit_test(an_expression_that_explodes_gives_up),
        cmocka_unit_test(memory_is_charged_and_given_back),
        cmocka_unit_test(a_refused_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
