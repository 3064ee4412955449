// toml_test.c — reading a document's tree: lookups, places, limits, failures. What is TOML and what
// is not is in toml_valid_test.c and toml_invalid_test.c.
#include "support.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"
#include "io/toml.h"

#include <locale.h>
#include <math.h>

static rn_toml *parse(const char *text) {
    rn_toml *doc;
    assert_ok(rn_toml_parse(rn_str_from(text), &rn_system_allocator, &doc));
    return doc;
}

static const rn_toml_value *look(const rn_toml *doc, const char *path) {
    return rn_toml_find_path(rn_toml_root(doc), path);
}

static int64_t integer_at(const rn_toml *doc, const char *path) {
    int64_t value = 0;
    const rn_toml_value *found = look(doc, path);
    if (!found) fail_msg("nothing at %s", path);
    assert_ok(rn_toml_get_integer(found, &value));
    return value;
}

static void toml_finds_values_by_path(void **state) {
    (void)state;
    rn_toml *doc = parse("a = 1\n[t]\nb.c = 2\n\"x.y\" = 3\n'' = {'' = 8}\n"
                         "[[list]]\nv = 4\n[[list]]\nv = [5, [6, 7]]\n");
    assert_int_equal(integer_at(doc, "a"), 1);
    assert_int_equal(integer_at(doc, "t.b.c"), 2);
    assert_int_equal(integer_at(doc, "list.0.v"), 4);
    assert_int_equal(integer_at(doc, "list.1.v.0"), 5);
    assert_int_equal(integer_at(doc, "list.1.v.1.1"), 7);
    assert_int_equal(integer_at(doc, "t.."), 8);
    const char *nowhere[] = {"b",        "a.b",        "t.x.y", "t.b.c.d",   "list.2",
                             "list.v",   "list.",      "t.b.",  "list.-1.v", "list.0x0.v",
                             "list.0.w", "list.1.v.2", "",      ".",         "list.4294967296.v"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        if (look(doc, nowhere[i])) fail_msg("something was found at \"%s\"", nowhere[i]);
    assert_non_null(rn_toml_find(look(doc, "t"), RN_STR("x.y")));
    assert_null(rn_toml_find(look(doc, "a"), RN_STR("a")));
    assert_null(rn_toml_at(look(doc, "t"), 0));
    assert_null(rn_toml_at(look(doc, "list"), 2));
    rn_toml_free(doc);
}

static void toml_lists_entries_in_file_order(void **state) {
    (void)state;
    rn_toml *doc = parse("z = 1\ny.q = 1\na = [3, 4]\ny.b = 2\n[m]\n[b.c]\n[b]\n");
    static const char *const names[] = {"z", "y", "a", "m", "b"};
    const rn_toml_value *value = rn_toml_first(rn_toml_root(doc));
    for (size_t i = 0; i < 5; i++, value = rn_toml_next(value))
        assert_true(rn_str_equal(rn_toml_key_of(value), rn_str_from(names[i])));
    assert_null(value);
    assert_int_equal(rn_toml_count(rn_toml_root(doc)), 5);
    assert_int_equal(rn_toml_count(look(doc, "y")), 2);
    assert_int_equal(rn_toml_count(look(doc, "a")), 2);
    assert_int_equal(rn_toml_count(look(doc, "m")), 0);
    assert_int_equal(rn_toml_count(look(doc, "z")), 0);
    assert_null(rn_toml_first(look(doc, "z")));
    assert_null(rn_toml_first(look(doc, "m")));
    assert_int_equal(rn_toml_key_of(look(doc, "a.0")).bytes, 0);
    assert_int_equal(rn_toml_key_of(rn_toml_root(doc)).bytes, 0);
    rn_toml_free(doc);
}

static void toml_finds_every_key_of_a_large_table(void **state) {
    enum { COUNT = 3000 };
    rn_buffer text;
    rn_toml *doc;
    (void)state;
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    for (int i = 0; i < COUNT; i++)
        assert_ok(rn_sink_print(rn_buffer_sink(&text), "k%d = %d\n", i, i * 7));
    assert_ok(rn_toml_parse((rn_str){text.data, text.bytes}, &rn_system_allocator, &doc));
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(integer_at(doc, name), i * 7);
    }
    assert_null(look(doc, "k3000"));
    rn_toml_free(doc);
    assert_ok(rn_sink_print(rn_buffer_sink(&text), "k2345 = 1\n"));
    assert_fails(RN_CORRUPT,
                 rn_toml_parse((rn_str){text.data, text.bytes}, &rn_system_allocator, &doc));
    assert_string_equal(rn_last_error()->message,
                        "line 3001, column 1: 'k2345' is already defined on line 2346");
    rn_buffer_free(&text);
}

static void toml_getters_refuse_other_types(void **state) {
    (void)state;
    rn_toml *doc =
        parse("s = 'x'\ni = 1\nf = 1.5\nb = true\nd = 1979-05-27\na = [\n 's']\nt = {}\n");
    rn_str string;
    int64_t integer;
    double number;
    bool boolean;
    rn_toml_time time;
    assert_fails(RN_INVALID, rn_toml_get_string(look(doc, "i"), &string));
    assert_string_equal(rn_last_error()->message,
                        "line 2, column 5: i is of type integer, expected string");
    assert_fails(RN_INVALID, rn_toml_get_integer(look(doc, "f"), &integer));
    assert_fails(RN_INVALID, rn_toml_get_float(look(doc, "s"), &number));
    assert_fails(RN_INVALID, rn_toml_get_bool(look(doc, "i"), &boolean));
    assert_fails(RN_INVALID, rn_toml_get_time(look(doc, "b"), &time));
    assert_string_equal(rn_last_error()->message,
                        "line 4, column 5: b is of type boolean, expected a date or time");
    assert_fails(RN_INVALID, rn_toml_get_time(look(doc, "a"), &time));
    assert_fails(RN_INVALID, rn_toml_get_integer(look(doc, "a.0"), &integer));
    assert_string_equal(rn_last_error()->message,
                        "line 7, column 2: this value is of type string, expected integer");
    assert_fails(RN_INVALID, rn_toml_expect(look(doc, "t"), RN_TOML_ARRAY));
    assert_ok(rn_toml_expect(look(doc, "t"), RN_TOML_TABLE));
    rn_toml_free(doc);
}

static void toml_gives_floats_for_integers_too(void **state) {
    (void)state;
    rn_toml *doc = parse("i = -3\nn = -nan\np = nan\nz = -0.0");
    double number;
    assert_ok(rn_toml_get_float(look(doc, "i"), &number));
    assert_true(number == -3.0);
    assert_ok(rn_toml_get_float(look(doc, "n"), &number));
    assert_true(isnan(number) && signbit(number));
    assert_ok(rn_toml_get_float(look(doc, "p"), &number));
    assert_true(isnan(number) && !signbit(number));
    assert_ok(rn_toml_get_float(look(doc, "z"), &number));
    assert_true(number == 0 && signbit(number));
    rn_toml_free(doc);
}

// A host program may have set a locale that writes 1,5.
static void toml_reads_floats_in_any_locale(void **state) {
    (void)state;
    test_write_decimal_commas();
    rn_toml *doc = parse("f = 1.5\ng = 1_0.2_5");
    double f, g;
    assert_ok(rn_toml_get_float(look(doc, "f"), &f));
    assert_ok(rn_toml_get_float(look(doc, "g"), &g));
    setlocale(LC_NUMERIC, "C");
    assert_true(f == 1.5 && g == 10.25);
    rn_toml_free(doc);
}

static void toml_names_its_types(void **state) {
    (void)state;
    assert_string_equal(rn_toml_type_name(RN_TOML_STRING), "string");
    assert_string_equal(rn_toml_type_name(RN_TOML_LOCAL_TIME), "local time");
    assert_string_equal(rn_toml_type_name(RN_TOML_TABLE), "table");
    assert_string_equal(rn_toml_type_name(RN_TOML_TYPE_COUNT), "unknown");
}

static void toml_knows_the_place_of_every_value(void **state) {
    static const char text[] = "\xEF\xBB\xBFs = \"\xE2\x82\xAC\" # c\r\n"
                               "\t'\xC3\xA9' = [1, '''\n\xC3\xA9''', {k=2.5}]\n"
                               "d.e.f = 07:32:00\n"
                               "[h.i]\n  x = { y = true , z.w = [] }\n"
                               " [[l]]  \n[[l]]\nq = 1\n";
    static const struct {
        const char *path;
        size_t line, column;
        const char *slice;
    } places[] = {
        {"s", 1, 5, "\"\xE2\x82\xAC\""},
        {"\xC3\xA9", 2, 8, "[1, '''\n\xC3\xA9''', {k=2.5}]"},
        {"\xC3\xA9.0", 2, 9, "1"},
        {"\xC3\xA9.1", 2, 12, "'''\n\xC3\xA9'''"},
        {"\xC3\xA9.2", 3, 7, "{k=2.5}"},
        {"\xC3\xA9.2.k", 3, 10, "2.5"},
        {"d", 4, 1, "d"},
        {"d.e", 4, 3, "e"},
        {"d.e.f", 4, 9, "07:32:00"},
        {"h", 5, 2, "h"},
        {"h.i", 5, 1, "[h.i]"},
        {"h.i.x", 6, 7, "{ y = true , z.w = [] }"},
        {"h.i.x.y", 6, 13, "true"},
        {"h.i.x.z", 6, 20, "z"},
        {"h.i.x.z.w", 6, 26, "[]"},
        {"l", 7, 2, "[[l]]"},
        {"l.0", 7, 2, "[[l]]"},
        {"l.1", 8, 1, "[[l]]"},
        {"l.1.q", 9, 5, "1"},
    };
    (void)state;
    rn_toml *doc = parse(text);
    rn_str own = rn_toml_text(doc);
    assert_true(rn_str_equal(own, RN_STR(text)));
    assert_true(own.data != text); // the caller's text may go
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const rn_toml_value *value = look(doc, places[i].path);
        if (!value) fail_msg("nothing at %s", places[i].path);
        rn_toml_place place = rn_toml_place_of(value);
        rn_str slice = {own.data + place.begin, place.end - place.begin};
        if (place.line != places[i].line || place.column != places[i].column ||
            !rn_str_equal(slice, rn_str_from(places[i].slice)))
            fail_msg("%s is at %zu:%zu \"%.*s\"", places[i].path, place.line, place.column,
                     (int)slice.bytes, slice.data);
    }
    rn_toml_place root = rn_toml_place_of(rn_toml_root(doc));
    assert_int_equal(root.begin, 3);
    assert_int_equal(root.end, sizeof text - 1);
    rn_toml_free(doc);
}

// before, open * count, core, close * count, after.
static rn_status parse_repeated(const char *before, const char *open, size_t count,
                                const char *core, const char *close, const char *after) {
    rn_buffer text;
    rn_toml *doc;
    rn_buffer_init(&text, &rn_system_allocator, 1 << 24);
    rn_sink out = rn_buffer_sink(&text);
    assert_ok(rn_sink_print(out, "%s", before));
    for (size_t i = 0; i < count; i++)
        assert_ok(rn_sink_print(out, "%s", open));
    assert_ok(rn_sink_print(out, "%s", core));
    for (size_t i = 0; i < count; i++)
        assert_ok(rn_sink_print(out, "%s", close));
    assert_ok(rn_sink_print(out, "%s", after));
    rn_status s = rn_toml_parse((rn_str){text.data, text.bytes}, &rn_system_allocator, &doc);
    rn_toml_free(doc);
    rn_buffer_free(&text);
    return s;
}

static void toml_refuses_more_than_its_depth(void **state) {
    static const struct {
        const char *before, *open, *core, *close;
        size_t most;
    } cases[] = {
        {"a=", "[", "", "]", 64},       {"a=", "[", "1", "]", 63},   {"a=", "{b=", "1", "}", 63},
        {"a=", "[{b=", "1", "}]", 31},  {"", "a.", "a=1", "", 63},   {"[", "a.", "a]", "", 63},
        {"[", "a.", "a]\nb=1", "", 62}, {"[[", "a.", "a]]", "", 62}, // the array, then its item
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *core = cases[i].core, *close = cases[i].close;
        assert_ok(parse_repeated(cases[i].before, cases[i].open, cases[i].most, core, close, ""));
        assert_fails(RN_CORRUPT, parse_repeated(cases[i].before, cases[i].open, cases[i].most + 1,
                                                core, close, ""));
        assert_non_null(strstr(rn_last_error()->message, "nested more than 64 deep"));
    }
    assert_fails(RN_CORRUPT, parse_repeated("a=", "[", 100000, "", "", ""));
    assert_string_equal(rn_last_error()->message, "line 1, column 67: nested more than 64 deep");
}

static void toml_limits_the_size_of_its_text(void **state) {
    rn_toml *doc;
    (void)state;
    char *text = malloc(RN_TOML_MAX_BYTES + 1);
    assert_non_null(text);
    memset(text, 'x', RN_TOML_MAX_BYTES + 1);
    memcpy(text, "a=1#", 4);
    assert_fails(RN_UNSUPPORTED,
                 rn_toml_parse((rn_str){text, RN_TOML_MAX_BYTES + 1}, &rn_system_allocator, &doc));
    assert_null(doc);
    assert_ok(rn_toml_parse((rn_str){text, RN_TOML_MAX_BYTES}, &rn_system_allocator, &doc));
    assert_int_equal(integer_at(doc, "a"), 1);
    rn_toml_free(doc);
    free(text);
}

// Where the cost grew with the square of the size, this would run into the time limit.
static void toml_reads_long_documents_in_linear_time(void **state) {
    (void)state;
    assert_ok(parse_repeated("a = [", "1,", 400000, "", "", "]"));
    assert_ok(parse_repeated("", "[[a]]\n", 200000, "", "", ""));
    assert_ok(parse_repeated("", "[[a]]\n[a.b.c]\n", 80000, "", "", ""));
    assert_ok(parse_repeated("a = [", "{b.c=1},", 100000, "", "", "]"));
    assert_ok(parse_repeated("a = '", "x", 1000000, "", "", "'"));
    assert_ok(parse_repeated("a = 0.", "1_1", 300000, "", "", ""));
    assert_ok(parse_repeated("", "\n", 1000000, "a = 1", "", ""));
}

static void toml_hints_at_the_remedy(void **state) {
    static const struct {
        const char *text, *hint;
    } cases[] = {
        {"a = x", "strings need quotes"},
        {"a = TRUE", "it is written true"},
        {"a = NaN", "it is written nan"},
        {"a = 0755", "octal numbers start with 0o"},
        {"a = \"C:\\dir\"", "single quotes"},
        {"a = \"x", "three quotes"},
        {"a = {b = 1,\nc = 2}", "one line"},
        {"a = 12:30", "07:32:00"},
        {"\xC3\xA9 = 1", "need quotes"},
        {"a = '\x1B[0m'", "\\u001B"},
        {"[[a]]\n[a]", "double brackets"},
        {"\xFF", "UTF-8"},
        {"a = {b = 1 # c\n}", "without comments"},
        {"a = {b = 1 c = 2}", ""},
        {"a = [1 # c\n2 3]", ""},
        {"a. = 1", ""},
        {"[]", ""},
    };
    rn_toml *doc;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(RN_CORRUPT,
                     rn_toml_parse(rn_str_from(cases[i].text), &rn_system_allocator, &doc));
        const char *hint = rn_last_error()->hint;
        if (!strstr(hint, cases[i].hint) || (cases[i].hint[0] == 0) != (hint[0] == 0))
            fail_msg("the hint for <<%s>> is \"%s\"", cases[i].text, rn_last_error()->hint);
    }
    assert_fails(RN_CORRUPT, rn_toml_parse(RN_STR("a\0=\0"), &rn_system_allocator, &doc));
    assert_non_null(strstr(rn_last_error()->hint, "UTF-16"));
}

static void toml_cuts_long_names_in_messages(void **state) {
    char name[128] = "", cut[128] = "", text[512], message[256];
    rn_toml *doc;
    (void)state;
    for (int i = 0; i < 21; i++) { // 63 bytes; of 40, the last is within a character
        strcat(name, "\xE2\x82\xAC");
        if (i < 13) strcat(cut, "\xE2\x82\xAC");
    }
    snprintf(text, sizeof text, "'%s' = 1\n'%s' = 2\n", name, name);
    snprintf(message, sizeof message, "line 2, column 1: '%s' is already defined on line 1", cut);
    assert_fails(RN_CORRUPT, rn_toml_parse(rn_str_from(text), &rn_system_allocator, &doc));
    assert_string_equal(rn_last_error()->message, message);
}

static void toml_takes_empty_text(void **state) {
    rn_toml *doc;
    (void)state;
    assert_ok(rn_toml_parse((rn_str){NULL, 0}, &rn_system_allocator, &doc));
    assert_int_equal(rn_toml_type_of(rn_toml_root(doc)), RN_TOML_TABLE);
    assert_int_equal(rn_toml_count(rn_toml_root(doc)), 0);
    rn_toml_free(doc);
    rn_toml_free(NULL);
}

static void toml_survives_every_failing_allocation(void **state) {
    rn_buffer text;
    rn_toml *doc;
    uint64_t n = 1;
    (void)state;
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    for (int i = 0; i < 200; i++) // enough for several chunks and a growing index
        assert_ok(
            rn_sink_print(rn_buffer_sink(&text), "k%d = [\"\\u0041\", 1_0.5, {a.b = 1}]\n", i));
    assert_ok(rn_sink_print(rn_buffer_sink(&text), "[[x.y]]\n[x.y.z]\nq = 1979-05-27\n"));
    for (;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_toml_parse((rn_str){text.data, text.bytes}, &rn_system_allocator, &doc);
        if (!rn_fault_fired(RN_FAULT_ALLOC)) {
            rn_fault_arm(RN_FAULT_ALLOC, 0);
            assert_ok(s);
            break;
        }
        assert_int_equal(s, RN_NO_MEMORY);
        assert_null(doc);
    }
    assert_true(n > 10);
    rn_toml_free(doc);
    rn_buffer_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toml_finds_values_by_path),
        cmocka_unit_test(toml_lists_entries_in_file_order),
        cmocka_unit_test(toml_finds_every_key_of_a_large_table),
        cmocka_unit_test(toml_getters_refuse_other_types),
        cmocka_unit_test(toml_gives_floats_for_integers_too),
        cmocka_unit_test(toml_reads_floats_in_any_locale),
        cmocka_unit_test(toml_names_its_types),
        cmocka_unit_test(toml_knows_the_place_of_every_value),
        cmocka_unit_test(toml_refuses_more_than_its_depth),
        cmocka_unit_test(toml_limits_the_size_of_its_text),
        cmocka_unit_test(toml_reads_long_documents_in_linear_time),
        cmocka_unit_test(toml_hints_at_the_remedy),
        cmocka_unit_test(toml_cuts_long_names_in_messages),
        cmocka_unit_test(toml_takes_empty_text),
        cmocka_unit_test(toml_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
