// json_read_test.c — what is JSON and what is not, and where it says so.
#include "support.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "io/json_read.h"

// ---- running through a text --------------------------------------------------------------------

// Reads to the end; *out_kinds gets a letter an item.
static rn_status walk(rn_str text, char *out_kinds, size_t capacity) {
    static const char letters[] = "{}[]ksntf0.";
    rn_json_reader reader;
    rn_json_item item = {.kind = RN_JSON_NULL};
    size_t count = 0;
    rn_status s = RN_OK;
    rn_json_reader_init(&reader, text, &rn_system_allocator);
    while (s == RN_OK && item.kind != RN_JSON_END) {
        s = rn_json_next(&reader, &item);
        if (s == RN_OK && count + 1 < capacity) out_kinds[count++] = letters[item.kind];
    }
    out_kinds[count] = '\0';
    rn_json_reader_free(&reader);
    return s;
}

#define TEXT(literal)                                                                              \
    { literal, sizeof(literal) - 1 }

static void json_accepts_what_rfc_8259_allows(void **state) {
    static const struct {
        rn_str text;
        const char *kinds;
    } cases[] = {
        {TEXT("{}"), "{}."},
        {TEXT("[]"), "[]."},
        {TEXT(" \t\r\n{ \n} \t\r\n"), "{}."},
        {TEXT("null"), "0."},
        {TEXT("true"), "t."},
        {TEXT("false"), "f."},
        {TEXT("\"\""), "s."},
        {TEXT("0"), "n."},
        {TEXT("-0"), "n."},
        {TEXT("-0.0e-0"), "n."},
        {TEXT("123.456E+789"), "n."},
        {TEXT("1e5"), "n."},
        {TEXT("[1,2]"), "[nn]."},
        {TEXT("[ 1 , [ ] , { } ]"), "[n[]{}]."},
        {TEXT("{\"a\":1,\"b\":[true,false,null]}"), "{knk[tf0]}."},
        {TEXT("{\"a\":{\"a\":{\"a\":{}}}}"), "{k{k{k{}}}}."},
        {TEXT("{\"\":\"\"}"), "{ks}."},
        {TEXT("{\"a\":1,\"a\":2}"),
         "{knkn}."}, // twice the same name: the user of the reader decides
        {TEXT("\"\\u0000\\u007f\x7f\""), "s."},
        {TEXT("\"\\ud834\\udd1e \\uD834\\uDD1E\""), "s."},
        {TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), "s."},
        {TEXT("\"\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e\xef\xbf\xbf\xf4\x8f\xbf\xbf\""), "s."},
        {TEXT("\"\xe2\x80\xa8\xe2\x80\xa9\""), "s."},
    };
    char kinds[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (walk(cases[i].text, kinds, sizeof kinds) != RN_OK)
            fail_msg("case %zu (%.*s): %s", i, RN_STR_ARG(cases[i].text), rn_last_error()->message);
        if (strcmp(kinds, cases[i].kinds) != 0)
            fail_msg("case %zu: %s, expected %s", i, kinds, cases[i].kinds);
    }
}

typedef struct bad_text {
    rn_str text;
    uint64_t offset;
    const char *words; // in the message
} bad_text;

static void check_refused(const bad_text *bad, size_t count) {
    char kinds[64], place[32];
    for (size_t i = 0; i < count; i++) {
        if (walk(bad[i].text, kinds, sizeof kinds) != RN_CORRUPT)
            fail_msg("case %zu (%.*s) was not refused", i, RN_STR_ARG(bad[i].text));
        const rn_error_info *story = rn_last_error();
        snprintf(place, sizeof place, "byte %llu", (unsigned long long)bad[i].offset);
        if (story->offset != bad[i].offset || !strstr(story->message, place))
            fail_msg("case %zu (%.*s): '%s' at %llu, expected %llu", i, RN_STR_ARG(bad[i].text),
                     story->message, (unsigned long long)story->offset,
                     (unsigned long long)bad[i].offset);
        if (!strstr(story->message, bad[i].words))
            fail_msg("case %zu: '%s' lacks '%s'", i, story->message, bad[i].words);
    }
}
#define CHECK_REFUSED(list) check_refused(list, sizeof(list) / sizeof *(list))

static void json_refuses_broken_structure(void **state) {
    static const bad_text bad[] = {
        {TEXT(""), 0, "value is expected"},
        {TEXT("   "), 3, "value is expected"},
        {TEXT("{"), 1, "key must be a string"},
        {TEXT("["), 1, "value is expected"},
        {TEXT("}"), 0, "value is expected"},
        {TEXT("[1"), 2, "missing ','"},
        {TEXT("[1 2]"), 3, "missing ','"},
        {TEXT("[1,]"), 3, "value is expected"},
        {TEXT("[,1]"), 1, "value is expected"},
        {TEXT("[1,,2]"), 3, "value is expected"},
        {TEXT("[1}"), 2, "missing ','"},
        {TEXT("{]"), 1, "key"},
        {TEXT("{\"a\"}"), 4, "missing ':'"},
        {TEXT("{\"a\" 1}"), 5, "missing ':'"},
        {TEXT("{\"a\":}"), 5, "value is expected"},
        {TEXT("{\"a\":1,}"), 7, "key"},
        {TEXT("{\"a\":1 \"b\":2}"), 7, "missing ','"},
        {TEXT("{a:1}"), 1, "key"},
        {TEXT("{'a':1}"), 1, "key"},
        {TEXT("{1:1}"), 1, "key"},
        {TEXT("{null:1}"), 1, "key"},
        {TEXT("{,}"), 1, "key"},
        {TEXT("{:1}"), 1, "key"},
        {TEXT("1 2"), 2, "text after the end"},
        {TEXT("{}{}"), 2, "text after the end"},
        {TEXT("[],"), 2, "text after the end"},
        {TEXT("{}\0"), 2, "text after the end"},
        {TEXT("{} // comment"), 3, "text after the end"},
        {TEXT("[/**/]"), 1, "value is expected"},
        {TEXT("\xef\xbb\xbf{}"), 0, "value is expected"}, // a byte order mark is not white space
        {TEXT("\f{}"), 0, "value is expected"},
        {TEXT("[\xc2\xa0]"), 1, "value is expected"},
    };
    (void)state;
    CHECK_REFUSED(bad);
}

static void json_refuses_broken_numbers_and_words(void **state) {
    static const bad_text bad[] = {
        {TEXT("01"), 1, "leading zero"},
        {TEXT("-01"), 2, "leading zero"},
        {TEXT("00"), 1, "leading zero"},
        {TEXT("-"), 1, "bad number"},
        {TEXT("+1"), 0, "value is expected"},
        {TEXT(".5"), 0, "value is expected"},
        {TEXT("1."), 2, "bad number"},
        {TEXT("1.e5"), 2, "bad number"},
        {TEXT("1e"), 2, "bad number"},
        {TEXT("1e+"), 3, "bad number"},
        {TEXT("1e1.5"), 3, "after"},
        {TEXT("0x10"), 1, "after"},
        {TEXT("1_000"), 1, "after"},
        {TEXT("--1"), 1, "bad number"},
        {TEXT("NaN"), 0, "value is expected"},
        {TEXT("Infinity"), 0, "value is expected"},
        {TEXT("-Infinity"), 1, "bad number"},
        {TEXT("tru"), 0, "bad value"},
        {TEXT("True"), 0, "value is expected"},
        {TEXT("truex"), 4, "after"},
        {TEXT("nul"), 0, "bad value"},
        {TEXT("nulll"), 4, "after"},
        {TEXT("fals"), 0, "bad value"},
        {TEXT("[1a]"), 2, "missing ','"},
        {TEXT("undefined"), 0, "value is expected"},
        {TEXT("1 000"), 2, "after"},
    };
    (void)state;
    CHECK_REFUSED(bad);
}

static void json_refuses_broken_strings(void **state) {
    static const bad_text bad[] = {
        {TEXT("\""), 1, "does not end"},
        {TEXT("\"abc"), 4, "does not end"},
        {TEXT("\"\\\""), 3, "does not end"},
        {TEXT("'a'"), 0, "value is expected"},
        {TEXT("\"\n\""), 1, "control character"},
        {TEXT("\"\t\""), 1, "control character"},
        {TEXT("\"a\x1f\""), 2, "control character"},
        {TEXT("\"a\0b\""), 2, "control character"},
        {TEXT("\"\\\""), 3, "does not end"},
        {TEXT("\"\\a\""), 2, "bad escape"},
        {TEXT("\"\\x41\""), 2, "bad escape"},
        {TEXT("\"\\'\""), 2, "bad escape"},
        {TEXT("\"\\\0\""), 2, "bad escape"},
        {TEXT("\"\\U0041\""), 2, "bad escape"},
        {TEXT("\"\\u12\""), 5, "bad \\u escape"},
        {TEXT("\"\\u12g4\""), 5, "bad \\u escape"},
        {TEXT("\"\\u+123\""), 3, "bad \\u escape"},
        {TEXT("\"\\ud800\""), 7, "lone surrogate"},
        {TEXT("\"\\ud800x\""), 7, "lone surrogate"},
        {TEXT("\"\\ud800\\n\""), 8, "lone surrogate"},
        {TEXT("\"\\ud800\\u0041\""), 13, "lone surrogate"},
        {TEXT("\"\\ud800\\ud800\""), 13, "lone surrogate"},
        {TEXT("\"\\udc00\""), 7, "lone surrogate"},
        {TEXT("\"\\udc00\\ud800\""), 7, "lone surrogate"},
        {TEXT("\"\x80\""), 1, "not UTF-8"},
        {TEXT("\"\xc3\""), 1, "not UTF-8"},
        {TEXT("\"\xc0\xaf\""), 1, "not UTF-8"},         // overlong
        {TEXT("\"\xe0\x80\xaf\""), 1, "not UTF-8"},     // overlong
        {TEXT("\"\xed\xa0\x80\""), 1, "not UTF-8"},     // a surrogate
        {TEXT("\"\xf4\x90\x80\x80\""), 1, "not UTF-8"}, // above U+10FFFF
        {TEXT("\"\xff\""), 1, "not UTF-8"},
        {TEXT("\"a\xf0\x9d\x84"), 2, "not UTF-8"}, // cut short by the end of the text
    };
    (void)state;
    CHECK_REFUSED(bad);
}

// ---- values ------------------------------------------------------------------------------------

static void json_gives_texts_unescaped(void **state) {
    static const struct {
        const char *source;
        rn_str value;
    } cases[] = {
        {"\"plain\"", TEXT("plain")},
        {"\"\"", TEXT("")},
        {"\"a\\u0000b\"", TEXT("a\0b")},
        {"\"\\u00e9\\u20ac\\ud834\\udd1e!\"", TEXT("\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e!")},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", TEXT("\"\\/\b\f\n\r\t")},
        {"\"x\\ny\\nz\"", TEXT("x\ny\nz")},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_json_reader reader;
        rn_json_item item;
        rn_json_reader_init(&reader, rn_str_from(cases[i].source), &rn_system_allocator);
        assert_ok(rn_json_expect(&reader, RN_JSON_STRING, &item));
        assert_true(rn_str_equal(item.text, cases[i].value));
        rn_json_reader_free(&reader);
    }
}

static void json_items_know_where_they_begin(void **state) {
    rn_json_reader reader;
    rn_json_item item;
    (void)state;
    //                                           0123456789012345678901234567
    rn_json_reader_init(&reader, RN_STR(" {\"k\" : [1, 22,\n \"x\\n\" ]} "), &rn_system_allocator);
    static const uint64_t expected[] = {1, 2, 8, 9, 12, 17, 23, 24};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_ok(rn_json_next(&reader, &item));
        assert_int_equal(item.offset, expected[i]);
    }
    assert_ok(rn_json_expect(&reader, RN_JSON_END, NULL));
    rn_json_reader_free(&reader);
}

static void json_reads_whole_numbers_up_to_the_largest(void **state) {
    static const struct {
        const char *text;
        uint64_t value;
        bool good;
    } cases[] = {
        {"0", 0, true},
        {"7", 7, true},
        {"18446744073709551615", UINT64_MAX, true},
        {"18446744073709551616", 0, false},
        {"99999999999999999999", 0, false},
        {"184467440737095516150", 0, false},
        {"-0", 0, false},
        {"-1", 0, false},
        {"1.0", 0, false},
        {"1e3", 0, false},
        {"\"1\"", 0, false},
        {"true", 0, false},
        {"[]", 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_json_reader reader;
        rn_json_item item;
        uint64_t value;
        rn_json_reader_init(&reader, rn_str_from(cases[i].text), &rn_system_allocator);
        assert_ok(rn_json_next(&reader, &item));
        assert_int_equal(rn_json_u64_of(&item, &value), cases[i].good ? RN_OK : RN_CORRUPT);
        if (cases[i].good)
            assert_true(value == cases[i].value);
        else
            assert_int_equal(rn_last_error()->offset, 0);
        rn_json_reader_free(&reader);
    }
}

static void json_expectations_name_both_kinds(void **state) {
    rn_json_reader reader;
    (void)state;
    rn_json_reader_init(&reader, RN_STR("{\"a\": []}"), &rn_system_allocator);
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
    assert_ok(rn_json_expect(&reader, RN_JSON_KEY, NULL));
    assert_fails(RN_CORRUPT, rn_json_expect(&reader, RN_JSON_STRING, NULL));
    assert_string_equal(rn_last_error()->message,
                        "JSON: an array where a string is expected, at byte 6");
    assert_int_equal(rn_last_error()->offset, 6);
    rn_json_reader_free(&reader);
}

static void json_skips_a_value_however_deep(void **state) {
    rn_json_reader reader;
    rn_json_item item;
    (void)state;
    rn_json_reader_init(&reader, RN_STR("{\"a\":[{\"b\":[[],{}]},1],\"c\":\"x\",\"d\":2}"),
                        &rn_system_allocator);
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
    for (int i = 0; i < 2; i++) {
        assert_ok(rn_json_expect(&reader, RN_JSON_KEY, NULL));
        assert_ok(rn_json_skip(&reader));
    }
    assert_ok(rn_json_expect(&reader, RN_JSON_KEY, &item));
    assert_true(rn_str_equal(item.text, RN_STR("d")));
    assert_ok(rn_json_skip(&reader));
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT_END, NULL));
    assert_fails(RN_CORRUPT, rn_json_skip(&reader));
    rn_json_reader_free(&reader);
}

// ---- limits ------------------------------------------------------------------------------------

// `depth` brackets, arrays and objects in turn where `mixed`, and as many closing ones.
static rn_status walk_nested(size_t depth, bool mixed) {
    char *text = malloc(depth * 8 + 1), kinds[8];
    size_t bytes = 0;
    for (size_t i = 0; i < depth; i++)
        bytes += (size_t)sprintf(text + bytes, mixed && i % 2 ? "{\"k\":" : "[");
    if (mixed && depth % 2 == 0) bytes += (size_t)sprintf(text + bytes, "1");
    for (size_t i = depth; i > 0; i--)
        text[bytes++] = mixed && (i - 1) % 2 ? '}' : ']';
    rn_status s = walk((rn_str){text, bytes}, kinds, sizeof kinds);
    free(text);
    return s;
}

static void json_limits_nesting(void **state) {
    (void)state;
    assert_ok(walk_nested(1, false));
    assert_ok(walk_nested(RN_JSON_READ_DEPTH, false));
    assert_ok(walk_nested(RN_JSON_READ_DEPTH, true));
    assert_fails(RN_CORRUPT, walk_nested(RN_JSON_READ_DEPTH + 1, false));
    assert_non_null(strstr(rn_last_error()->message, "nesting too deep"));
    assert_int_equal(rn_last_error()->offset, RN_JSON_READ_DEPTH);
    assert_fails(RN_CORRUPT, walk_nested(RN_JSON_READ_DEPTH + 1, true));
    assert_fails(RN_CORRUPT, walk_nested(100000, false));
}

static void json_survives_every_failing_allocation(void **state) {
    static const char text[] = "{\"a\\n\": \"\\u0041\", \"b\": [\"\\t\"]}";
    char kinds[64];
    bool fired = true;
    (void)state;
    for (uint64_t n = 1; fired; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = walk(rn_str_from(text), kinds, sizeof kinds);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    assert_string_equal(kinds, "{ksk[s]}.");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_accepts_what_rfc_8259_allows),
        cmocka_unit_test(json_refuses_broken_structure),
        cmocka_unit_test(json_refuses_broken_numbers_and_words),
        cmocka_unit_test(json_refuses_broken_strings),
        cmocka_unit_test(json_gives_texts_unescaped),
        cmocka_unit_test(json_items_know_where_they_begin),
        cmocka_unit_test(json_reads_whole_numbers_up_to_the_largest),
        cmocka_unit_test(json_expectations_name_both_kinds),
        cmocka_unit_test(json_skips_a_value_however_deep),
        cmocka_unit_test(json_limits_nesting),
        cmocka_unit_test(json_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
