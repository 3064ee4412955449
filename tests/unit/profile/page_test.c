// page_test.c — the page as a file: self-contained, safe, complete. What it draws is compared with
// what is in it by tests/page, in a browser.
#include "export_support.h"

#include "profile/page/page.h"
#include "profile/page/page_columns.h"
#include "profile/page/page_space.h"

static size_t count_of(const char *text, const char *what) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        count++;
    return count;
}

static rn_buffer page_of(rn_timeline *t) {
    rn_buffer text = export_text(t, RN_EXPORT_HTML);
    rn_timeline_destroy(t);
    return text;
}

static void a_page_needs_nothing_else(void **state) {
    (void)state;
    rn_buffer text = page_of(make_small());
    assert_int_equal(strncmp(text.data, "<!doctype html>", 15), 0);
    assert_string_equal(text.data + text.bytes - 8, "</html>\n");
    assert_int_equal(count_of(text.data, "http://") + count_of(text.data, "https://"), 0);
    assert_int_equal(count_of(text.data, "<link"), 1); // the icon, which is empty
    assert_int_equal(count_of(text.data, " src="), 0);
    assert_int_equal(count_of(text.data, "@import") + count_of(text.data, "url("), 0);
    assert_non_null(strstr(text.data, "default-src 'none'"));
    assert_null(strstr(text.data, "<!-- ")); // all holes are filled
    rn_buffer_free(&text);
}

static void texts_of_a_recording_never_end_an_element(void **state) {
    (void)state;
    rn_buffer small = page_of(make_small()), hostile = page_of(make_hostile());
    assert_int_equal(count_of(small.data, "<script"), count_of(hostile.data, "<script"));
    assert_int_equal(count_of(small.data, "</script"), count_of(hostile.data, "</script"));
    assert_non_null(strstr(hostile.data, "\\u003c/script>"));
    assert_true(rn_utf8_valid((rn_str){hostile.data, hostile.bytes}));
    rn_buffer_free(&small);
    rn_buffer_free(&hostile);
}

static void an_empty_timeline_has_a_page(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    assert_ok(rn_timeline_finish(t));
    rn_buffer text = page_of(t);
    assert_non_null(
        strstr(text.data, "data-column=\"alloc.begin\" data-form=\"0\" data-count=\"0\""));
    rn_buffer_free(&text);
}

static void every_column_of_every_table_is_there(void **state) {
    (void)state;
    rn_buffer text = page_of(make_small());
    assert_non_null(strstr(text.data, "\"alloc.bytes\" data-form=\"u2\" data-count=\"5\""));
    assert_non_null(strstr(text.data, "data-rule=\"plain\">ABAAIAAIAAQAAg==</script>"));
    assert_int_equal(count_of(text.data, "data-column=\"op."), 13);
    assert_int_equal(count_of(text.data, "data-column=\"mark."), 6);
    assert_int_equal(count_of(text.data, "data-column=\"counter."), 5);
    assert_int_equal(count_of(text.data, "data-column=\"move."), 5);
    assert_int_equal(count_of(text.data, "data-column=\"piece."), 4);
    rn_buffer_free(&text);
}

// ---- columns ------------------------------------------------------------------------------------

static void check_column(const uint64_t *values, size_t count, rn_page_rule rule, const char *form,
                         const char *base64) {
    rn_buffer text;
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    rn_page_columns columns;
    assert_ok(
        rn_page_columns_open(&columns, &rn_system_allocator, count + 1, rn_buffer_sink(&text)));
    memcpy(columns.values, values, count * sizeof *values);
    assert_ok(rn_page_columns_write(&columns, "t.c", count, rule));
    rn_page_columns_close(&columns);
    assert_ok(rn_buffer_append(&text, "", 1));
    char wanted_form[32], wanted_text[128];
    snprintf(wanted_form, sizeof wanted_form, "data-form=\"%s\"", form);
    snprintf(wanted_text, sizeof wanted_text, ">%s</script>\n", base64);
    if (!strstr(text.data, wanted_form) || !strstr(text.data, wanted_text))
        fail_msg("%s instead of %s and %s", text.data, wanted_form, wanted_text);
    rn_buffer_free(&text);
}

#define COLUMN(rule, form, base64, ...)                                                            \
    check_column((const uint64_t[]){__VA_ARGS__},                                                  \
                 sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), rule, form, base64)

static void columns_take_the_narrowest_form(void **state) {
    (void)state;
    COLUMN(RN_PAGE_PLAIN, "0", "", 0, 0, 0);
    COLUMN(RN_PAGE_PLAIN, "u1", "Aw==", 3);
    COLUMN(RN_PAGE_PLAIN, "u1", "Af8=", 1, 255);
    COLUMN(RN_PAGE_PLAIN, "u1", "AQID", 1, 2, 3);
    COLUMN(RN_PAGE_PLAIN, "u2", "AAH//w==", 256, 65535);
    COLUMN(RN_PAGE_PLAIN, "u4", "AAAAgP////8=", 0x80000000, UINT32_MAX);
    COLUMN(RN_PAGE_PLAIN, "v", "AQIDgIAC", 1, 2, 3, 32768);  // 7 bits a byte
    COLUMN(RN_PAGE_PLAIN, "f8", "AAAAAAAA8EM=", UINT64_MAX); // 2^64, the nearest double
    COLUMN(RN_PAGE_DIFFERENCE, "u1", "ZAUA", 100, 105, 105);
    COLUMN(RN_PAGE_NEAR_LAST, "u1", "CgEC", 5, 4, 5);
    COLUMN(RN_PAGE_NEAR_ROW, "u1", "BAEB", 2, 0, 1);
    COLUMN(RN_PAGE_SIGNED, "u1", "AQIA", (uint64_t)-1, 1, 0);
}

static void long_columns_are_whole(void **state) {
    (void)state;
    enum { COUNT = 99999 }; // several chunks of base64, and no rest
    rn_buffer text;
    rn_buffer_init(&text, &rn_system_allocator, 1 << 22);
    rn_page_columns columns;
    assert_ok(rn_page_columns_open(&columns, &rn_system_allocator, COUNT, rn_buffer_sink(&text)));
    for (int i = 0; i < COUNT; i++)
        columns.values[i] = UINT32_MAX;
    assert_ok(rn_page_columns_write(&columns, "t.c", COUNT, RN_PAGE_PLAIN));
    rn_page_columns_close(&columns);
    assert_ok(rn_buffer_append(&text, "", 1));
    const char *begin = strchr(text.data, '>') + 1;
    assert_int_equal(strspn(begin, "/"), COUNT * 4 / 3 * 4);
    rn_buffer_free(&text);
}

// ---- addresses ----------------------------------------------------------------------------------

static void gaps_between_addresses_take_no_room(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    add_block(t, 1, 9, 0x7f0000000000, 1000, 0, RN_PURPOSE_KV, false);
    add_block(t, 2, 9, 0x10000, 500, 0, RN_PURPOSE_KV, false);
    add_block(t, 3, 9, 0x10000 + 600, 400, 0, RN_PURPOSE_KV, false); // a small gap stays
    add_block(t, 4, 9, 0x7f0000000000 + 100, 50, 0, RN_PURPOSE_KV, true);
    add_block(t, 5, 9, 0, 50, 0, RN_PURPOSE_OUTSIDE, false);      // nowhere
    add_block(t, 6, 9, 77, 50, 0, RN_PURPOSE_OTHER, false);       // a number, not an address
    add_block(t, 7, 9, 0x5000, 50, 0, RN_PURPOSE_OUTSIDE, false); // not memory of ours
    assert_ok(rn_timeline_finish(t));
    rn_page_space space = {0};
    assert_ok(rn_page_space_open(&space, t));
    assert_int_equal(space.piece_count, 2);
    assert_int_equal(space.pieces[0].bytes, 1000);
    assert_int_equal(space.pieces[1].place, 1001);
    const uint64_t expected[] = {1001, 1, 601, 1101, 0, 0, 0};
    assert_memory_equal(space.places, expected, sizeof expected);
    rn_page_space_close(&space);
    rn_timeline_destroy(t);
}

// ---- failures -----------------------------------------------------------------------------------

static void failing_sinks_are_reported(void **state) {
    (void)state;
    check_failing_sinks(RN_EXPORT_HTML);
}

static void running_out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    check_torture(RN_EXPORT_HTML);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_needs_nothing_else),
        cmocka_unit_test(texts_of_a_recording_never_end_an_element),
        cmocka_unit_test(an_empty_timeline_has_a_page),
        cmocka_unit_test(every_column_of_every_table_is_there),
        cmocka_unit_test(columns_take_the_narrowest_form),
        cmocka_unit_test(long_columns_are_whole),
        cmocka_unit_test(gaps_between_addresses_take_no_room),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(running_out_of_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
