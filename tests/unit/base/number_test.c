// Decimal numbers mean the same in every locale.
#include "support.h"

#include "base/number.h"

#include <locale.h>

static void expect_number(const char *text, double expected) {
    double found = -1;
    assert_ok(rn_number_read(rn_str_from(text), &found));
    assert_true(found == expected);
}

static void numbers_are_read_as_in_c(void **state) {
    (void)state;
    expect_number("0", 0);
    expect_number("-1.5", -1.5);
    expect_number("1e-05", 1e-05);
    expect_number("10000.0", 10000);
    expect_number("0.0123291015625", 0.0123291015625);
}

static void a_point_is_a_point_where_others_write_a_comma(void **state) {
    double out;
    (void)state;
    test_write_decimal_commas();
    expect_number("1.5", 1.5);
    assert_fails(RN_INVALID, rn_number_read(RN_STR("1,5"), &out));
    setlocale(LC_NUMERIC, "C");
}

static void all_of_the_text_is_a_number_or_it_is_refused(void **state) {
    char many[RN_NUMBER_BYTES + 1];
    double out;
    (void)state;
    assert_fails(RN_INVALID, rn_number_read(RN_STR(""), &out));
    assert_fails(RN_INVALID, rn_number_read(RN_STR("x"), &out));
    assert_fails(RN_INVALID, rn_number_read(RN_STR("1.5x"), &out));
    memset(many, '1', sizeof many);
    assert_ok(rn_number_read((rn_str){many, RN_NUMBER_BYTES - 1}, &out));
    assert_fails(RN_INVALID, rn_number_read((rn_str){many, RN_NUMBER_BYTES}, &out));
    expect_number("12", 12);
    assert_ok(rn_number_read((rn_str){"123", 2}, &out)); // no byte behind it
    assert_true(out == 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_as_in_c),
        cmocka_unit_test(a_point_is_a_point_where_others_write_a_comma),
        cmocka_unit_test(all_of_the_text_is_a_number_or_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
