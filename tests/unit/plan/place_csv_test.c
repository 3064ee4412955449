// place_csv_test.c — what is read is what is there; what is not clear is refused with its place.
#include "support.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"
#include "plan/place_csv.h"

static rn_status parse(const char *text, rn_place_table *out) {
    return rn_place_csv_parse(rn_str_from(text), &rn_system_allocator, out);
}

static void expect_corrupt(const char *text, const char *story) {
    rn_place_table table;
    assert_fails(RN_CORRUPT, parse(text, &table));
    assert_null(table.owner);
    if (!strstr(rn_last_error()->message, story))
        fail_msg("'%s' does not say '%s'", rn_last_error()->message, story);
}

static void columns_are_found_in_any_order(void **state) {
    (void)state;
    rn_place_table t;
    assert_ok(parse("size,offset,upper,id,align,lower\n7,40,3,a b,8,1\n 8 , 0,\t9,b,1,0\n", &t));
    assert_int_equal(t.count, 2);
    assert_true(rn_str_equal(t.ids[0], RN_STR("a b")) && rn_str_equal(t.ids[1], RN_STR("b")));
    assert_int_equal(t.buffers[0].lower, 1);
    assert_int_equal(t.buffers[0].upper, 3);
    assert_int_equal(t.buffers[0].size_bytes, 7);
    assert_int_equal(t.buffers[0].align, 8);
    assert_int_equal(t.offsets[0], 40);
    assert_int_equal(t.buffers[1].size_bytes, 8);
    rn_place_table_free(&t);
}

static void line_ends_of_all_kinds_are_taken(void **state) {
    (void)state;
    static const char *const texts[] = {"id,lower,upper,size\r\na,0,1,2\r\nb,1,2,3\r\n",
                                        "id,lower,upper,size\na,0,1,2\nb,1,2,3",
                                        "\n\nid,lower,upper,size\n\n\na,0,1,2\n  \nb,1,2,3\n\n",
                                        "\xef\xbb\xbfid,lower,upper,size\na,0,1,2\nb,1,2,3\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        rn_place_table t;
        assert_ok(parse(texts[i], &t));
        assert_int_equal(t.count, 2);
        assert_int_equal(t.buffers[1].size_bytes, 3);
        rn_place_table_free(&t);
    }
}

static void a_header_alone_is_no_buffers(void **state) {
    (void)state;
    rn_place_table t;
    assert_ok(parse("id,lower,upper,size", &t));
    assert_int_equal(t.count, 0);
    rn_place_table_free(&t);
}

static void bad_headers_are_refused(void **state) {
    (void)state;
    expect_corrupt("", "line 1");
    expect_corrupt("\n\n", "no header");
    expect_corrupt("id,lower,upper\n", "line 1, column size is missing");
    expect_corrupt("id,lower,upper,size,id\n", "line 1, column id appears twice");
    expect_corrupt("id,lower,upper,size,colour\n", "line 1, column 5: 'colour'");
    expect_corrupt("id,lower,upper,size,\n", "line 1, column 5");
    expect_corrupt("0,1,2,3\n", "line 1, column 1");
    expect_corrupt("id;lower;upper;size\n", "line 1, column 1");
}

static void bad_lines_are_refused_with_their_place(void **state) {
    (void)state;
#define HEADER "id,lower,upper,size\n"
    expect_corrupt(HEADER "a,0,1\n", "line 2, column size is missing");
    expect_corrupt(HEADER "a,0,1,2,3\n", "line 2, column 5");
    expect_corrupt(HEADER "a,0,1,2\nb,0,1,\n", "line 3, column size is empty");
    expect_corrupt(HEADER ",0,1,2\n", "line 2, column id is empty");
    expect_corrupt(HEADER "a,0,1,2\n\nb,0,x1,2\n", "line 4, column upper: 'x1'");
    expect_corrupt(HEADER "a,-1,1,2\n", "line 2, column lower: '-1'");
    expect_corrupt(HEADER "a,0,1,2.5\n", "line 2, column size: '2.5'");
    expect_corrupt(HEADER "a,0,1,1e9\n", "line 2, column size");
    expect_corrupt(HEADER "a,5,4,1\n", "line 2, column upper: 4 is before lower, 5");
    expect_corrupt(HEADER "a,0,1,2\na,3,4,5\n", "line 3, column id: there is a 'a' already");
    expect_corrupt(HEADER "\"a\",0,1,2\n", "line 2, column id: quotes");
    expect_corrupt(HEADER "a\rb,0,1,2\n", "line 2, column id: quotes and control");
    expect_corrupt("id,lower,upper,size,align\na,0,1,2,3\n", "line 2, column align: 3");
    expect_corrupt("id,lower,upper,size,align\na,0,1,2,0\n", "line 2, column align: 0");
}

static void numbers_that_overflow_are_refused(void **state) {
    (void)state;
    rn_place_table t;
    expect_corrupt(HEADER "a,0,18446744073709551616,1\n", "line 2, column upper");
    expect_corrupt(HEADER "a,0,99999999999999999999999999,1\n", "2^64");
    expect_corrupt(HEADER "a,0,1,9223372036854775808\n", "line 2, column size");
    expect_corrupt(HEADER "a,0,1,9223372036854775807\nb,0,1,1\n", "line 3, column size");
    assert_ok(parse(HEADER "a,0,18446744073709551615,9223372036854775807\n", &t));
    assert_true(t.buffers[0].upper == UINT64_MAX);
    rn_place_table_free(&t);
}

static void text_that_is_too_long_is_refused(void **state) {
    (void)state;
    rn_place_table t;
    rn_str text = {"", RN_PLACE_CSV_BYTES + 1};
    assert_fails(RN_CORRUPT, rn_place_csv_parse(text, &rn_system_allocator, &t));
}

static void what_is_printed_is_read_again(void **state) {
    (void)state;
    static const char *const texts[] = {
        "id,lower,upper,size,offset\na,0,1,2,3\nb,4,5,6,18446744073709551615\n",
        "id,lower,upper,size,offset,align\na,0,1,2,3,1\nb,4,5,6,7,64\n"};
    for (size_t i = 0; i < 2; i++) {
        rn_place_table t;
        rn_buffer out;
        rn_buffer_init(&out, &rn_system_allocator, 4096);
        assert_ok(parse(texts[i], &t));
        assert_ok(rn_place_csv_print(&t, rn_buffer_sink(&out)));
        assert_true(rn_str_equal((rn_str){out.data, out.bytes}, rn_str_from(texts[i])));
        rn_buffer_free(&out);
        rn_place_table_free(&t);
    }
}

static void files_go_round(void **state) {
    (void)state;
    rn_place_table t, again;
    char path[512];
    snprintf(path, sizeof path, "%s", test_path("in.csv"));
    test_write(path, HEADER "a,0,1,2\nb,1,2,3\n", strlen(HEADER "a,0,1,2\nb,1,2,3\n"));
    assert_ok(rn_place_table_read(path, &t));
    t.offsets[1] = 77;
    assert_ok(rn_place_table_write(&t, path));
    assert_ok(rn_place_table_read(path, &again));
    assert_int_equal(again.count, 2);
    assert_int_equal(again.offsets[1], 77);
    rn_place_table_free(&again);
    rn_place_table_free(&t);
    test_write(path, "id\n", 3);
    assert_fails(RN_CORRUPT, rn_place_table_read(path, &t));
    assert_string_equal(rn_last_error()->path, path);
    assert_fails(RN_NOT_FOUND, rn_place_table_read(test_path("missing.csv"), &t));
}

static void every_failing_allocation_is_a_clean_refusal(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        rn_place_table t;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = parse(HEADER "a,0,1,2\nb,1,2,3\n", &t);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        if (!fired) {
            assert_ok(s);
            rn_place_table_free(&t);
            assert_true(n > 4);
            break;
        }
        assert_fails(RN_NO_MEMORY, s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_found_in_any_order),
        cmocka_unit_test(line_ends_of_all_kinds_are_taken),
        cmocka_unit_test(a_header_alone_is_no_buffers),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(bad_lines_are_refused_with_their_place),
        cmocka_unit_test(numbers_that_overflow_are_refused),
        cmocka_unit_test(text_that_is_too_long_is_refused),
        cmocka_unit_test(what_is_printed_is_read_again),
        cmocka_unit_test(files_go_round),
        cmocka_unit_test(every_failing_allocation_is_a_clean_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
