// page_test.c — the page as a file: self-contained, safe, complete. What it draws is compared with
// what is in it by tests/page, in a browser.
#include "export_support.h"

#include "profile/page/page.h"
#include "profile/page/page_columns.h"
#include "profile/page/page_lz.h"
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
    assert_int_equal(count_of(text.data, "data-column=\"alloc."), 13);
    assert_int_equal(count_of(text.data, "data-column=\"op."), 15);
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
    uint32_t noise = 1;
    for (int i = 0; i < COUNT; i++) // nothing repeats: it is not packed
        columns.values[i] = (noise = noise * 1664525 + 1013904223) | 0x80000000;
    assert_ok(rn_page_columns_write(&columns, "t.c", COUNT, RN_PAGE_PLAIN));
    rn_page_columns_close(&columns);
    assert_ok(rn_buffer_append(&text, "", 1));
    assert_null(strstr(text.data, "data-packed"));
    const char *begin = strchr(text.data, '>') + 1;
    assert_int_equal(strcspn(begin, "<"), COUNT * 4 / 3 * 4);
    rn_buffer_free(&text);
}

// Times as the steps from edge to edge, then how far from them.
static void check_edges(rn_page_rule rule, const uint64_t *values, size_t count,
                        const char *wanted) {
    static const uint64_t edges[] = {0, 100000, 200000, 200000, 500000};
    rn_buffer text;
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    rn_page_columns columns;
    assert_ok(
        rn_page_columns_open(&columns, &rn_system_allocator, 2 * count, rn_buffer_sink(&text)));
    columns.edges = edges;
    columns.edge_count = 5;
    memcpy(columns.values, values, count * sizeof *values);
    assert_ok(rn_page_columns_write(&columns, "t.c", count, rule));
    rn_page_columns_close(&columns);
    assert_ok(rn_buffer_append(&text, "", 1));
    if (!strstr(text.data, wanted)) fail_msg("%s instead of %s", text.data, wanted);
    rn_buffer_free(&text);
}

static void times_are_written_from_the_edges_of_operations(void **state) {
    (void)state;
    // edges 1 1 3 4: steps 1 0 2 1, offsets 1 2 0 0
    check_edges(RN_PAGE_BEHIND_EDGE, (const uint64_t[]){100001, 100002, 200000, 500000}, 4,
                "data-rule=\"behind-edge\">AQACAQECAAA=</script>");
    // edges 1 1 2 4: steps 1 0 1 2, offsets 2 0 1 0
    check_edges(RN_PAGE_BEFORE_EDGE, (const uint64_t[]){99998, 100000, 199999, 500000}, 4,
                "data-rule=\"before-edge\">AQABAgIAAQA=</script>");
    check_edges(RN_PAGE_BEFORE_EDGE, (const uint64_t[]){99998, 500001}, 2,
                "data-rule=\"difference\">");
}

// ---- packing ------------------------------------------------------------------------------------

static size_t take_number(const uint8_t **at) {
    size_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (size_t)(**at & 127) << shift;
        if (*(*at)++ < 128) return value;
    }
}

// As the page does it.
static size_t unpack(const uint8_t *at, size_t bytes, uint8_t *to) {
    const uint8_t *end = at + bytes;
    size_t filled = 0;
    while (at < end) {
        for (size_t i = take_number(&at); i; i--)
            to[filled++] = *at++;
        if (at == end) break;
        size_t length = take_number(&at) + RN_PAGE_LZ_LEAST, distance = take_number(&at);
        assert_true(distance > 0 && distance <= filled);
        for (; length; length--, filled++)
            to[filled] = to[filled - distance];
    }
    return filled;
}

static void what_was_packed_comes_back(void **state) {
    (void)state;
    enum { MOST = 100000 };
    static uint8_t from[MOST], packed[2 * MOST], back[MOST];
    static uint32_t slots[RN_PAGE_LZ_SLOTS];
    static const size_t sizes[] = {0, 1, 3, 4, 5, 64, 1000, MOST};
    uint32_t noise = 7;
    for (int kind = 0; kind < 4; kind++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t bytes = sizes[s];
            for (size_t i = 0; i < bytes; i++) {
                noise = noise * 1664525 + 1013904223;
                from[i] = kind == 0   ? 0                       // one match into itself
                          : kind == 1 ? (uint8_t)(noise >> 24)  // nothing repeats
                          : kind == 2 ? (uint8_t)(i % 777 * 31) // a period
                                      : (uint8_t)(noise >> 24 < 8 ? noise >> 16 : i % 777);
            }
            size_t size = rn_page_lz_pack(from, bytes, packed, sizeof packed, slots);
            assert_int_equal(size > 0, bytes > 0);
            assert_int_equal(unpack(packed, size, back), bytes);
            assert_memory_equal(from, back, bytes);
            if (bytes == MOST && kind != 1) assert_true(size < MOST / (kind == 3 ? 2 : 50));
            if (size) assert_int_equal(0, rn_page_lz_pack(from, bytes, packed, size - 1, slots));
        }
}

// As a model's recording is: the same steps in every run, times with noise, parts that begin and
// end with their operation.
static rn_timeline *make_runs(uint32_t runs, uint32_t steps) {
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane, noise = 3;
    uint64_t now = 1000;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    add_block(t, 1, RN_STILL_LIVE, 0x100000, 1 << 20, 0, RN_PURPOSE_ACTIVATIONS, false);
    for (uint32_t r = 0; r < runs; r++)
        for (uint32_t s = 0; s < steps; s++) {
            char name[32];
            snprintf(name, sizeof name, "step %u", s);
            noise = noise * 1664525 + 1013904223;
            uint64_t end = now + 2000 + (noise >> 20);
            add_op(t, now, end, add_name(t, name, "", "f32 [rows, 64]"));
            add_block(t, now + 1, end - 1, 0x100000 + s % 7 * 4096, 64 * (s + 1),
                      add_name(t, name, "", ""), RN_PURPOSE_ACTIVATIONS, true);
            add_counter(t, now + 2, RN_COUNTER_PREDICTED, 4096 * (s + 1));
            now = end + 200 + (noise >> 24);
        }
    assert_ok(rn_timeline_finish(t));
    return t;
}

static void a_page_takes_a_few_bytes_an_event(void **state) {
    (void)state;
    enum { RUNS = 100, STEPS = 300, EVENTS = RUNS * STEPS * 5 };
    rn_timeline *none = make_runs(0, 0), *all = make_runs(RUNS, STEPS);
    rn_buffer empty = page_of(none), full = page_of(all);
    assert_true(full.bytes - empty.bytes < EVENTS * 5 / 2);
    rn_buffer_free(&empty);
    rn_buffer_free(&full);
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
    add_block(t, 5, 9, 0, 50, 0, RN_PURPOSE_UNACCOUNTED, false);      // nowhere
    add_block(t, 6, 9, 77, 50, 0, RN_PURPOSE_OTHER, false);           // a number, not an address
    add_block(t, 7, 9, 0x5000, 50, 0, RN_PURPOSE_UNACCOUNTED, false); // not memory of ours
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
        cmocka_unit_test(times_are_written_from_the_edges_of_operations),
        cmocka_unit_test(what_was_packed_comes_back),
        cmocka_unit_test(a_page_takes_a_few_bytes_an_event),
        cmocka_unit_test(gaps_between_addresses_take_no_room),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(running_out_of_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
