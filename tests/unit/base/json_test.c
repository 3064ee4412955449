// The JSON writer, byte for byte, and by a reader that shares no code with it.
#include "support.h"
#include "json_check.h"
#include "base/buffer.h"
#include "base/str.h"
#include "base/json.h"

#include <locale.h>
#include <math.h>

static rn_buffer out;
static rn_json json;

static void begin(bool pretty) {
    rn_buffer_free(&out);
    rn_buffer_init(&out, &rn_system_allocator, 1 << 20);
    rn_json_begin(&json, rn_buffer_sink(&out), pretty);
}

static void expect(const char *text) {
    assert_ok(rn_json_finish(&json));
    assert_true(test_json_valid(out.data, out.bytes));
    assert_int_equal(strlen(text), out.bytes);
    assert_memory_equal(text, out.data, out.bytes);
}

static int free_out(void **state) {
    (void)state;
    rn_buffer_free(&out);
    return 0;
}

static void scalars_stand_alone(void **state) {
    (void)state;
    begin(false);
    rn_json_u64(&json, NULL, UINT64_MAX);
    expect("18446744073709551615\n");
    begin(true);
    rn_json_i64(&json, NULL, INT64_MIN);
    expect("-9223372036854775808\n");
    begin(false);
    rn_json_bool(&json, NULL, true);
    expect("true\n");
    begin(false);
    rn_json_null(&json, NULL);
    expect("null\n");
    begin(false);
    rn_json_string(&json, NULL, "");
    expect("\"\"\n");
}

static void write_sample(void) {
    rn_json_object(&json, NULL);
    rn_json_string(&json, "name", "llama");
    rn_json_array(&json, "dims");
    rn_json_u64(&json, NULL, 1);
    rn_json_u64(&json, NULL, 2);
    rn_json_array(&json, NULL);
    rn_json_end(&json);
    rn_json_object(&json, NULL);
    rn_json_end(&json);
    rn_json_end(&json);
    rn_json_object(&json, "inner");
    rn_json_bool(&json, "yes", true);
    rn_json_null(&json, "none");
    rn_json_end(&json);
    rn_json_i64(&json, "last", -1);
    rn_json_end(&json);
}

static void compact_has_no_spaces(void **state) {
    (void)state;
    begin(false);
    write_sample();
    expect("{\"name\":\"llama\",\"dims\":[1,2,[],{}],\"inner\":{\"yes\":true,\"none\":null},"
           "\"last\":-1}\n");
}

static void pretty_has_one_item_a_line(void **state) {
    (void)state;
    begin(true);
    write_sample();
    expect("{\n"
           "  \"name\": \"llama\",\n"
           "  \"dims\": [\n"
           "    1,\n"
           "    2,\n"
           "    [],\n"
           "    {}\n"
           "  ],\n"
           "  \"inner\": {\n"
           "    \"yes\": true,\n"
           "    \"none\": null\n"
           "  },\n"
           "  \"last\": -1\n"
           "}\n");
}

static void keys_may_be_any_text(void **state) {
    (void)state;
    begin(false);
    rn_json_object(&json, NULL);
    rn_json_key(&json, (rn_str){"a\0\"", 3});
    rn_json_u64(&json, NULL, 1);
    rn_json_key(&json, RN_STR("list"));
    rn_json_array(&json, NULL);
    rn_json_bool(&json, NULL, false);
    rn_json_end(&json);
    rn_json_key(&json, (rn_str){NULL, 0});
    rn_json_object(&json, NULL);
    rn_json_end(&json);
    rn_json_string(&json, "quote\"d", "x");
    rn_json_end(&json);
    expect("{\"a\\u0000\\\"\":1,\"list\":[false],\"\":{},\"quote\\\"d\":\"x\"}\n");
}

// ---- text ------------------------------------------------------------------------------

static void special_characters_are_escaped(void **state) {
    (void)state;
    begin(false);
    rn_json_string(&json, NULL,
                   "a\"b\\c\nd\te\x01"
                   "f\x7f/");
    expect("\"a\\\"b\\\\c\\nd\\u0009e\\u0001f\\u007f/\"\n");
}

static void every_byte_comes_back_as_itself(void **state) {
    (void)state;
    for (int c = 1; c < 0x80; c++) {
        const char text[] = {'<', (char)c, '>', '\0'};
        char back[16];
        begin(false);
        rn_json_string(&json, NULL, text);
        assert_ok(rn_json_finish(&json));
        assert_true(test_json_valid(out.data, out.bytes));
        assert_true(test_json_get(out.data, out.bytes, "", back, sizeof back));
        assert_string_equal(text, back);
    }
}

static void characters_beyond_ascii_stay_as_they_are(void **state) {
    (void)state;
    begin(false);
    rn_json_string(&json, NULL, "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80");
    expect("\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80\"\n");
}

static void bytes_that_are_not_utf8_become_replacement_characters(void **state) {
    (void)state;
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"\xff", "\"\\ufffd\"\n"},
        {"a\x80"
         "b",
         "\"a\\ufffdb\"\n"},
        {"\xc3", "\"\\ufffd\"\n"},
        {"\xe2\x82", "\"\\ufffd\\ufffd\"\n"},
        {"\xe2\x82"
         "x",
         "\"\\ufffd\\ufffdx\"\n"},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"},
        {"\xc0\x80", "\"\\ufffd\\ufffd\"\n"},
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n"},
        {"\xff\xc3\xbc\xff", "\"\\ufffd\xc3\xbc\\ufffd\"\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(false);
        rn_json_string(&json, NULL, cases[i].text);
        expect(cases[i].json);
    }
}

static void random_bytes_always_make_valid_json(void **state) {
    (void)state;
    uint32_t random = 11;
    for (int round = 0; round < 20000; round++) {
        char text[24];
        random = random * 1664525u + 1013904223u;
        size_t bytes = (random >> 16) % sizeof text;
        for (size_t i = 0; i < bytes; i++) {
            random = random * 1664525u + 1013904223u;
            // Mostly bytes that matter: leads, tails, quotes, controls.
            static const unsigned char some[] = {0x00, 0x1F, 0x22, 0x5C, 0x7F, 0x80, 0xBF, 0xC2,
                                                 0xE0, 0xED, 0xF0, 0xF4, 0x9F, 0xA0, 0x90, 0x8F};
            text[i] = (char)(random >> 31 ? some[random >> 16 & 15] : random >> 8 & 0xFF);
        }
        begin(round % 2);
        rn_json_object(&json, NULL);
        rn_json_key(&json, (rn_str){text, bytes});
        rn_json_text(&json, NULL, (rn_str){text, bytes});
        rn_json_end(&json);
        assert_ok(rn_json_finish(&json));
        assert_true(test_json_valid(out.data, out.bytes));
    }
}

static void missing_text_is_empty(void **state) {
    (void)state;
    begin(false);
    rn_json_array(&json, NULL);
    rn_json_text(&json, NULL, (rn_str){NULL, 0});
    rn_json_string(&json, NULL, NULL);
    rn_json_end(&json);
    expect("[\"\",\"\"]\n");
}

// ---- numbers ---------------------------------------------------------------------------

static void what_is_no_number_becomes_null(void **state) {
    (void)state;
    begin(false);
    rn_json_array(&json, NULL);
    rn_json_f64(&json, NULL, NAN);
    rn_json_f64(&json, NULL, INFINITY);
    rn_json_f64(&json, NULL, -INFINITY);
    rn_json_end(&json);
    expect("[null,null,null]\n");
}

static void fractions_are_valid_numbers(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0\n"},
        {-0.0, "-0\n"},
        {0.5, "0.5\n"},
        {0.1, "0.1\n"},
        {1e300, "1e+300\n"},
        {1e-300, "1e-300\n"},
        {123456789, "123456789\n"},
        {-2.25, "-2.25\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(false);
        rn_json_f64(&json, NULL, cases[i].value);
        expect(cases[i].text);
    }
}

static void fractions_do_not_depend_on_the_locale(void **state) {
    (void)state;
    test_write_decimal_commas();
    begin(false);
    rn_json_array(&json, NULL);
    rn_json_f64(&json, NULL, -0.5);
    rn_json_f64(&json, NULL, 1.5e30);
    rn_json_f64(&json, NULL, 3);
    rn_json_f64(&json, NULL, 1e30);
    rn_json_end(&json);
    setlocale(LC_NUMERIC, "C");
    expect("[-0.5,1.5e+30,3,1e+30]\n");
}

// ---- nesting and failing ---------------------------------------------------------------

static void values_nest_as_deep_as_promised(void **state) {
    (void)state;
    for (int pretty = 0; pretty < 2; pretty++) {
        begin(pretty);
        for (int i = 0; i < RN_JSON_DEPTH; i++)
            if (i % 2)
                rn_json_object(&json, NULL);
            else
                rn_json_array(&json, i ? "k" : NULL);
        rn_json_u64(&json, "deep", 1);
        for (int i = 0; i < RN_JSON_DEPTH; i++)
            rn_json_end(&json);
        assert_ok(rn_json_finish(&json));
        assert_true(test_json_valid(out.data, out.bytes));
    }
}

static void nesting_deeper_is_a_failure_and_nothing_worse(void **state) {
    (void)state;
    begin(true);
    for (int i = 0; i < RN_JSON_DEPTH + 5; i++)
        rn_json_array(&json, NULL);
    rn_json_u64(&json, NULL, 1);
    for (int i = 0; i < RN_JSON_DEPTH + 5; i++)
        rn_json_end(&json);
    assert_fails(RN_INTERNAL, rn_json_finish(&json));
    assert_non_null(strstr(rn_last_error()->message, "too deep"));
}

typedef struct short_sink {
    size_t room, calls_after;
    bool failed;
} short_sink;

static rn_status write_short(void *self, const char *text, size_t bytes) {
    (void)text;
    short_sink *sink = self;
    sink->calls_after += sink->failed;
    sink->failed = bytes > sink->room;
    if (sink->failed) return rn_fail(RN_IO, "full");
    sink->room -= bytes;
    return RN_OK;
}

static void first_failure_is_remembered_and_ends_the_writing(void **state) {
    (void)state;
    begin(true);
    write_sample();
    assert_ok(rn_json_finish(&json));
    size_t whole = out.bytes;
    for (size_t room = 0; room <= whole; room++) {
        short_sink sink = {.room = room};
        rn_json_begin(&json, (rn_sink){&sink, write_short}, true);
        write_sample();
        assert_int_equal(room < whole ? RN_IO : RN_OK, rn_json_finish(&json));
        assert_int_equal(0, sink.calls_after);
    }
}

static void tests_own_reader_tells_good_from_bad(void **state) {
    (void)state;
    static const char *const good[] = {"{}", " [ ] ", "-0.5e+3", "\"\\ud83d\\ude00\"", "[[],{}]\n"};
    static const char *const bad[] = {
        "",        "{",           "[1,]",     "{\"a\":}",     "{\"a\":1,\"a\":2}",
        "01",      "1.",          "-",        "\"a",          "\"\x01\"",
        "\"\\x\"", "\"\\ud800\"", "\"\xff\"", "tru",          "[1 2]",
        "{a:1}",   "1 2",         "+1",       "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
        "[1],",    "{\"a\" 1}",   "nan",      "\"\xe2\x82\"",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(test_json_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (test_json_valid(bad[i], strlen(bad[i]))) fail_msg("%s was taken for JSON", bad[i]);
}

static void write_value(rn_json *to, const char *key) {
    rn_json_object(to, key);
    rn_json_array(to, "items");
    rn_json_string(to, NULL, "two\nlines");
    rn_json_u64(to, NULL, 2);
    rn_json_end(to);
    rn_json_array(to, "none");
    rn_json_end(to);
    rn_json_end(to);
}

// However the text comes in pieces, it stands there as if this writer had written it.
static void embedded_text_is_indented_as_what_is_around_it(void **state) {
    (void)state;
    for (size_t piece = 1; piece < 9; piece++) {
        rn_buffer direct, text;
        rn_json other;
        rn_buffer_init(&text, &rn_system_allocator, 4096);
        rn_json_begin(&other, rn_buffer_sink(&text), true);
        write_value(&other, NULL);
        assert_ok(rn_json_finish(&other));
        begin(true);
        rn_json_object(&json, NULL);
        write_value(&json, "value");
        rn_json_u64(&json, "behind", 1);
        rn_json_end(&json);
        direct = out;
        rn_buffer_init(&out, &rn_system_allocator, 4096);
        begin(true);
        rn_json_object(&json, NULL);
        rn_sink sink = rn_json_embed(&json, "value");
        for (size_t at = 0; at < text.bytes; at += piece)
            assert_ok(rn_sink_write(sink, text.data + at,
                                    at + piece < text.bytes ? piece : text.bytes - at));
        rn_json_u64(&json, "behind", 1);
        rn_json_end(&json);
        assert_int_equal(out.bytes, direct.bytes);
        assert_memory_equal(out.data, direct.data, out.bytes);
        rn_buffer_free(&direct);
        rn_buffer_free(&text);
    }
}

static void a_failure_of_embedded_text_is_kept(void **state) {
    (void)state;
    begin(true);
    rn_json_object(&json, NULL);
    (void)rn_json_embed(&json, "value");
    rn_json_check(&json, rn_fail(RN_NO_MEMORY, "none"));
    rn_json_check(&json, RN_OK);
    rn_json_end(&json);
    assert_fails(RN_NO_MEMORY, rn_json_finish(&json));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_stand_alone),
        cmocka_unit_test(compact_has_no_spaces),
        cmocka_unit_test(pretty_has_one_item_a_line),
        cmocka_unit_test(keys_may_be_any_text),
        cmocka_unit_test(special_characters_are_escaped),
        cmocka_unit_test(every_byte_comes_back_as_itself),
        cmocka_unit_test(characters_beyond_ascii_stay_as_they_are),
        cmocka_unit_test(bytes_that_are_not_utf8_become_replacement_characters),
        cmocka_unit_test(random_bytes_always_make_valid_json),
        cmocka_unit_test(missing_text_is_empty),
        cmocka_unit_test(what_is_no_number_becomes_null),
        cmocka_unit_test(fractions_are_valid_numbers),
        cmocka_unit_test(fractions_do_not_depend_on_the_locale),
        cmocka_unit_test(values_nest_as_deep_as_promised),
        cmocka_unit_test(nesting_deeper_is_a_failure_and_nothing_worse),
        cmocka_unit_test(first_failure_is_remembered_and_ends_the_writing),
        cmocka_unit_test(embedded_text_is_indented_as_what_is_around_it),
        cmocka_unit_test(a_failure_of_embedded_text_is_kept),
        cmocka_unit_test(tests_own_reader_tells_good_from_bad),
    };
    return cmocka_run_group_tests(tests, NULL, free_out);
}
