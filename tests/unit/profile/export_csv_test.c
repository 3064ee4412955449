// export_csv_test.c — lifetimes as ranks, for the planner.
#include "export_support.h"

static void check(rn_timeline *t, const char *expected) {
    rn_buffer text = export_text(t, RN_EXPORT_CSV);
    assert_string_equal(text.data, expected);
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

static void parts_of_arenas_are_what_is_planned(void **state) {
    (void)state;
    check(make_small(), "id,lower,upper,size\n"
                        "2:a,0,3,2048\n"
                        "3:b,1,2,1024\n");
}

static rn_timeline *make_host(void) {
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    return t;
}

static void blocks_without_parts_are_planned_themselves(void **state) {
    (void)state;
    rn_timeline *t = make_host();
    add_block(t, 100, 300, 0x1000, 8, 0, RN_PURPOSE_OTHER, false);
    add_block(t, 300, RN_STILL_LIVE, 0x1000, 16, 0, RN_PURPOSE_OTHER, false);
    add_block(t, 300, 300, 0x2000, 32, 0, RN_PURPOSE_OTHER, false);
    add_block(t, 500, 900, 0x3000, 64, 0, RN_PURPOSE_OTHER, false);
    assert_ok(rn_timeline_finish(t));
    check(t, "id,lower,upper,size\n"
             "0,0,1,8\n"
             "1,1,4,16\n"
             "2,1,2,32\n"
             "3,2,3,64\n");
}

static void names_do_not_break_the_columns(void **state) {
    (void)state;
    rn_timeline *t = make_host();
    add_block(t, 1, 2, 0x1000, 8, add_name(t, "a,\"b\"\n\xff", "", ""), RN_PURPOSE_OTHER, false);
    assert_ok(rn_timeline_finish(t));
    check(t, "id,lower,upper,size\n0:a__b__\xef\xbf\xbd,0,1,8\n");
}

static void an_empty_timeline_is_a_header(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    assert_ok(rn_timeline_finish(t));
    check(t, "id,lower,upper,size\n");
}

static void failing_sinks_are_reported(void **state) {
    (void)state;
    check_failing_sinks(RN_EXPORT_CSV);
}

static void no_memory_is_reported(void **state) {
    (void)state;
    check_torture(RN_EXPORT_CSV);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_arenas_are_what_is_planned),
        cmocka_unit_test(blocks_without_parts_are_planned_themselves),
        cmocka_unit_test(names_do_not_break_the_columns),
        cmocka_unit_test(an_empty_timeline_is_a_header),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
