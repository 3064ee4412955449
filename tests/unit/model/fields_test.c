// Settings from JSON: flattening, and looks that name what is wrong.
#include "support.h"

#include <ration/memory.h>

#include "base/fault.h"
#include "model/text/fields.h"

static rn_status read_text(rn_fields *f, const char *text) {
    rn_fields_init(f, "config.json");
    return rn_fields_read_json(f, rn_str_from(text));
}

static void assert_story(const char *part) {
    if (!strstr(rn_last_error()->message, part))
        fail_msg("'%s' is not in '%s'", part, rn_last_error()->message);
}

static void nested_values_have_names_with_dots(void **state) {
    (void)state;
    rn_fields f;
    uint32_t n = 0;
    float x = 0;
    bool b = false;
    rn_str text = {0};
    assert_ok(read_text(&f, "{\"a\": 7, \"b\": {\"c\": {\"d\": 2.5}}, \"l\": [3, {\"x\": true}, "
                            "[\"t\"]], \"n\": null}"));
    assert_ok(rn_fields_need_u32(&f, "a", &n));
    assert_int_equal(n, 7);
    assert_ok(rn_fields_need_number(&f, "b.c.d", &x));
    assert_true(x == 2.5f);
    assert_ok(rn_fields_u32(&f, "l.0", &n));
    assert_int_equal(n, 3);
    assert_ok(rn_fields_bool(&f, "l.1.x", &b));
    assert_true(b);
    assert_ok(rn_fields_need_text(&f, "l.2.0", &text));
    assert_string_equal(text.data, "t");
    assert_int_equal(rn_fields_find(&f, "l")->count, 3);
    assert_int_equal(rn_fields_find(&f, "b")->count, 1);
    assert_null(rn_fields_find(&f, "n"));
    n = 5;
    assert_ok(rn_fields_u32(&f, "n", &n));
    assert_int_equal(n, 5);
    rn_fields_free(&f);
}

static void wrong_kinds_and_numbers_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"a\": \"7\"}", "'a' is text, not a number"},
        {"{\"a\": -1}", "'a' cannot be -1"},
        {"{\"a\": 2.5}", "'a' cannot be 2.5"},
        {"{\"a\": 1e300}", "'a' cannot be 1e+300"},
        {"{\"a\": 4294967296}", "'a' cannot be"},
        {"{\"a\": [1]}", "'a' is a list"},
        {"{}", "lacks 'a'"},
        {"{\"a\": null}", "lacks 'a'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_fields f;
        uint32_t n = 0;
        assert_ok(read_text(&f, cases[i].text));
        assert_fails(RN_CORRUPT, rn_fields_need_u32(&f, "a", &n));
        assert_story(cases[i].part);
        assert_story("config.json");
        rn_fields_free(&f);
    }
    rn_fields f;
    float x = 0;
    assert_ok(read_text(&f, "{\"a\": 1e300}"));
    assert_fails(RN_CORRUPT, rn_fields_number(&f, "a", &x));
    rn_fields_free(&f);
}

static void what_is_not_an_object_is_corrupt(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "[1]",
                                        "{\"a\": 1",
                                        "{\"a\": 1} x",
                                        "{\"a\": 1, \"a\": 2}",
                                        "{\"a.b\": 1, \"a\": {\"b\": 2}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        rn_fields f;
        assert_fails(RN_CORRUPT, read_text(&f, texts[i]));
        assert_string_equal(rn_last_error()->path, "config.json");
        rn_fields_free(&f);
    }
}

static void a_hostile_list_is_refused_before_it_grows(void **state) {
    (void)state;
    size_t count = 100000;
    char *text = malloc(2 * count + 16), *end = text;
    assert_non_null(text);
    end += sprintf(end, "{\"a\": [0");
    for (size_t i = 0; i < count; i++)
        end += sprintf(end, ",0");
    sprintf(end, "]}");
    rn_fields f;
    assert_fails(RN_UNSUPPORTED, read_text(&f, text));
    rn_fields_free(&f);
    free(text);
}

static void a_failing_allocation_leaves_nothing(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_fields f;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = read_text(&f, "{\"a\": [1, \"\\u0041\"], \"b\": {\"c\": true}}");
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_fields_free(&f);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_values_have_names_with_dots),
        cmocka_unit_test(wrong_kinds_and_numbers_are_named),
        cmocka_unit_test(what_is_not_an_object_is_corrupt),
        cmocka_unit_test(a_hostile_list_is_refused_before_it_grows),
        cmocka_unit_test(a_failing_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
