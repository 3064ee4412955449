// toml_edit_test.c — one value changes, every other byte stays.
#include "support.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"
#include "io/toml_edit.h"

enum { MAX_NAMES = 80 };

// A path written with dots between its names, which live as long as `dotted`.
static size_t split(const char *dotted, rn_str names[MAX_NAMES]) {
    size_t count = 0;
    for (;; dotted++) {
        names[count] = (rn_str){dotted, strcspn(dotted, ".")};
        dotted += names[count++].bytes;
        if (*dotted == '\0') return count;
    }
}

typedef struct edit_case {
    const char *before, *path, *value, *after;
} edit_case;

static rn_status set(const edit_case *c, bool make_array, char **out, size_t *out_bytes) {
    rn_str names[MAX_NAMES];
    rn_toml_change change = {names, split(c->path, names), rn_str_from(c->value), make_array};
    return rn_toml_set(rn_str_from(c->before), &change, &rn_system_allocator, out, out_bytes);
}

static void check(const edit_case *c, bool make_array) {
    char *out, *again;
    size_t bytes, again_bytes;
    if (set(c, make_array, &out, &bytes) != RN_OK)
        fail_msg("%s in <<%s>>: %s", c->path, c->before, rn_last_error()->message);
    if (!rn_str_equal((rn_str){out, bytes}, rn_str_from(c->after)))
        fail_msg("%s = %s in <<%s>> gave\n<<%.*s>>, expected\n<<%s>>", c->path, c->value, c->before,
                 (int)bytes, out, c->after);
    // Set once more, it is there already.
    const edit_case repeated = {c->after, c->path, c->value, c->after};
    assert_ok(set(&repeated, make_array, &again, &again_bytes));
    assert_true(rn_str_equal((rn_str){again, again_bytes}, (rn_str){out, bytes}));
    rn_free(&rn_system_allocator, out, bytes);
    rn_free(&rn_system_allocator, again, again_bytes);
}

static void check_all(const edit_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++)
        check(&cases[i], false);
}
#define CHECK_ALL(cases) check_all(cases, sizeof(cases) / sizeof *(cases))

static void edit_replaces_a_value_in_place(void **state) {
    static const edit_case cases[] = {
        {"a = 1", "a", "2", "a = 2"},
        {"a = 1\n", "a", "1", "a = 1\n"},
        {"# top\n\na   =   1   # why\n\n\nb=2", "a", "\"x\"",
         "# top\n\na   =   \"x\"   # why\n\n\nb=2"},
        {"a = \"x # y\" # z\r\nb = 2\r\n", "a", "true", "a = true # z\r\nb = 2\r\n"},
        {"[t]\n\ta = '''\nlong\n'''\n\tb = 1\n", "t.a", "0", "[t]\n\ta = 0\n\tb = 1\n"},
        {"[t]\na = [1, # one\n  2]\nb = 1", "t.a", "[]", "[t]\na = []\nb = 1"},
        {"a = 1\nb = 2", "a", "[\n  1, # one\n  2,\n]", "a = [\n  1, # one\n  2,\n]\nb = 2"},
        {"a = {b = 1, c = 2}", "a", "3", "a = 3"},
        {"a = 1\n[x]\na = 2\n[y]\na = 3\n", "x.a", "9", "a = 1\n[x]\na = 9\n[y]\na = 3\n"},
        {"[a.b]\n[a.b.c]\nd = 1 \n", "a.b.c.d", "nan", "[a.b]\n[a.b.c]\nd = nan \n"},
        {"\xEF\xBB\xBF"
         "a = 1\n",
         "a", "2",
         "\xEF\xBB\xBF"
         "a = 2\n"},
        {"'a' = 1", "a", "2", "'a' = 2"},
        {"a = 1979-05-27 07:32:00Z # t", "a", "07:32:00", "a = 07:32:00 # t"},
        {"a = 0.0", "a", "-0.0", "a = -0.0"},
    };
    (void)state;
    CHECK_ALL(cases);
}

static void edit_changes_inline_tables_and_dotted_keys(void **state) {
    static const edit_case cases[] = {
        {"a = { b = 1, c = 2 } # x", "a.b", "10", "a = { b = 10, c = 2 } # x"},
        {"a = {b={c={d=1}}}", "a.b.c.d", "2", "a = {b={c={d=2}}}"},
        {"a = { b = 1 }", "a.c", "2", "a = { b = 1, c = 2 }"},
        {"a = {b=1}", "a.c", "2", "a = {b=1, c = 2}"},
        {"a = {}", "a.c", "2", "a = { c = 2 }"},
        {"a = { }", "a.c", "2", "a = { c = 2 }"},
        {"a = {   } # x", "a.c", "2", "a = { c = 2   } # x"},
        {"a = {}", "a.b.c", "2", "a = { b.c = 2 }"},
        {"a = { b.c = 1, d = 2 }", "a.b.e", "3", "a = { b.c = 1, b.e = 3, d = 2 }"},
        {"a = { b.c = {}, d = 2 }", "a.b.c.e", "3", "a = { b.c = { e = 3 }, d = 2 }"},
        {"a = { b = 1 }", "a.c.d.e", "2", "a = { b = 1, c.d.e = 2 }"},
        {"[t]\na = { b = [1,\n2] } # x\nz = 1", "t.a.c", "3",
         "[t]\na = { b = [1,\n2], c = 3 } # x\nz = 1"},
        {"a.b = 1\nc = 2\n", "a.b", "5", "a.b = 5\nc = 2\n"},
        {"a.b = 1\nc = 2\n", "a.d", "5", "a.b = 1\na.d = 5\nc = 2\n"},
        {"a . b = 1 # x\nc = 2\n", "a.d", "5", "a . b = 1 # x\na.d = 5\nc = 2\n"},
        {"a.b.c = 1\n\nz = 1\n", "a.d", "5", "a.b.c = 1\na.d = 5\n\nz = 1\n"},
        {"a.b.c = 1\na.x = 1\nz = 1\n", "a.b.d.e", "5", "a.b.c = 1\na.b.d.e = 5\na.x = 1\nz = 1\n"},
        {"[t]\n  a.b = 1\n  c = 2\n", "t.a.d", "5", "[t]\n  a.b = 1\n  a.d = 5\n  c = 2\n"},
        {"[t]\na.b = 1\n[t.a.c]\nd = 1\n", "t.a.c.e", "2", "[t]\na.b = 1\n[t.a.c]\nd = 1\ne = 2\n"},
        {"a.\"b c\".d = 1\n", "a.b c.e", "2", "a.\"b c\".d = 1\na.\"b c\".e = 2\n"},
        {"[a.b.c]\n[a]\nb.x = 1\n", "a.b.y", "2", "[a.b.c]\n[a]\nb.x = 1\nb.y = 2\n"},
    };
    (void)state;
    CHECK_ALL(cases);
}

static void edit_adds_a_key_at_the_end_of_its_table(void **state) {
    static const edit_case cases[] = {
        {"", "a", "1", "a = 1\n"},
        {"\xEF\xBB\xBF", "a", "1",
         "\xEF\xBB\xBF"
         "a = 1\n"},
        {"a = 1", "b", "2", "a = 1\nb = 2\n"},
        {"", "AZaz09_-", "1", "AZaz09_- = 1\n"},
        {"", "a@b", "1", "\"a@b\" = 1\n"},
        {"", "a[b", "1", "\"a[b\" = 1\n"},
        {"", "a`b{", "1", "\"a`b{\" = 1\n"},
        {"", "a/b:", "1", "\"a/b:\" = 1\n"},
        {"a = 1 # x", "b", "2", "a = 1 # x\nb = 2\n"},
        {"a = 1\n", "b", "2", "a = 1\nb = 2\n"},
        {"a = 1\r\n", "b", "2", "a = 1\r\nb = 2\r\n"},
        {"a = 1\n\n\n", "b", "2", "a = 1\nb = 2\n\n\n"},
        {"[t]", "t.a", "1", "[t]\na = 1\n"},
        {"[t] # x\n", "t.a", "1", "[t] # x\na = 1\n"},
        {"[t]\n\n[u]\n", "t.a", "1", "[t]\na = 1\n\n[u]\n"},
        {"[t]\na = 1\n\n# about u\n[u]\nb = 2\n", "t.c", "3",
         "[t]\na = 1\nc = 3\n\n# about u\n[u]\nb = 2\n"},
        {"[t]\na = 1\n# about u\n[u]\n", "t.c", "3", "[t]\na = 1\nc = 3\n# about u\n[u]\n"},
        {"[t]\na = 1\n# b = 2, if you like\n\n[u]\n", "t.c", "3",
         "[t]\na = 1\n# b = 2, if you like\nc = 3\n\n[u]\n"},
        {"[t]\na = 1\n# last words\n", "t.c", "3", "[t]\na = 1\n# last words\nc = 3\n"},
        {"[t]\na = 1\n# last words", "t.c", "3", "[t]\na = 1\n# last words\nc = 3\n"},
        {"[t]\n  a = 1\n[u]\n", "t.c", "3", "[t]\n  a = 1\n  c = 3\n[u]\n"},
        {"[t]\n  a = [\n1\n]\n[u]\n", "t.c", "3", "[t]\n  a = [\n1\n]\n  c = 3\n[u]\n"},
        {" [t]\n[u]\n", "t.c", "3", " [t]\n c = 3\n[u]\n"},
        {"[t]\na = 1\n[t.u]\nb = 1\n", "t.c", "3", "[t]\na = 1\nc = 3\n[t.u]\nb = 1\n"},
        {"[t.u]\nb = 1\n[t]\na = 1\n", "t.c", "3", "[t.u]\nb = 1\n[t]\na = 1\nc = 3\n"},
        {"[u]\nb = 1\n", "a", "1", "a = 1\n\n[u]\nb = 1\n"},
        {"\n[u]\n", "a", "1", "a = 1\n\n[u]\n"},
        {"# about u\n[u]\n", "a", "1", "a = 1\n\n# about u\n[u]\n"},
        {"# licence\n\n# about u\n[u]\n", "a", "1", "# licence\na = 1\n\n# about u\n[u]\n"},
        {"# only comments\r\n", "a", "1", "# only comments\r\na = 1\r\n"},
        {"\xEF\xBB\xBF[u]\n", "a", "1",
         "\xEF\xBB\xBF"
         "a = 1\n\n[u]\n"},
        {"a = 1\n[u]\n", "b", "2", "a = 1\nb = 2\n[u]\n"},
        {"a.b = 1\nc = 2\n[u]\n", "d", "3", "a.b = 1\nc = 2\nd = 3\n[u]\n"},
        {"[t]\na = 1\r\nb = 2\r\n", "t.c", "3", "[t]\na = 1\r\nb = 2\r\nc = 3\n"},
    };
    (void)state;
    CHECK_ALL(cases);
}

static void edit_adds_a_missing_table_at_the_end_of_the_file(void **state) {
    static const edit_case cases[] = {
        {"", "t.a", "1", "[t]\na = 1\n"},
        {"\xEF\xBB\xBF", "t.a", "1", "\xEF\xBB\xBF[t]\na = 1\n"},
        {"x = 1", "t.a", "1", "x = 1\n\n[t]\na = 1\n"},
        {"x = 1\r\n", "t.a", "1", "x = 1\r\n\r\n[t]\r\na = 1\r\n"},
        {"x = 1\n\n", "t.a", "1", "x = 1\n\n[t]\na = 1\n"},
        {"x = 1\n  ", "t.a", "1", "x = 1\n  \n[t]\na = 1\n"},
        {"[u]\nb = 1\n# end\n", "t.u.a", "1", "[u]\nb = 1\n# end\n\n[t.u]\na = 1\n"},
        {"[t]\nb = 1\n[z]\n", "t.u.a", "1", "[t]\nb = 1\n[z]\n\n[t.u]\na = 1\n"},
        {"[t.u]\nb = 1\n", "t.a", "1", "[t.u]\nb = 1\n\n[t]\na = 1\n"},
        {"[t.u]\nb = 1\n", "t.v.w.a", "1", "[t.u]\nb = 1\n\n[t.v.w]\na = 1\n"},
        {"[[t.u]]\nb = 1\n", "t.a", "1", "[[t.u]]\nb = 1\n\n[t]\na = 1\n"},
        {"x = 1\n", "a b..c", "1", "x = 1\n\n[\"a b\".\"\"]\nc = 1\n"},
        {"[t]\na.b = 1\n[t.a.c.d]\n", "t.a.c.e", "1",
         "[t]\na.b = 1\n[t.a.c.d]\n\n[t.a.c]\ne = 1\n"},
    };
    static const edit_case arrays[] = {
        {"x = 1\n", "t.a", "1", "x = 1\n\n[[t]]\na = 1\n"},
        {"[t]\n", "t.u.a", "1", "[t]\n\n[[t.u]]\na = 1\n"},
        {"[t.u]\n", "t.a", "1", "[t.u]\n\n[t]\na = 1\n"}, // t is a table already
        {"[t]\nb = 1\n", "t.a", "1", "[t]\nb = 1\na = 1\n"},
        {"[[t]]\nb = 1\n", "t.a", "1", "[[t]]\nb = 1\na = 1\n"},
    };
    (void)state;
    CHECK_ALL(cases);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        check(&arrays[i], true);
}

static void edit_changes_all_items_of_an_array_of_tables(void **state) {
    static const edit_case cases[] = {
        {"[[backend]]\nname = 'x'\nprofile = false # off\n", "backend.profile", "true",
         "[[backend]]\nname = 'x'\nprofile = true # off\n"},
        {"[[b]]\na = 1\n\n[[b]]\n\n[[b]]\na = 3\n", "b.a", "9",
         "[[b]]\na = 9\n\n[[b]]\na = 9\n\n[[b]]\na = 9\n"},
        {"b = [{a = 1}, {}, {c.d = 1}]", "b.a", "9", "b = [{a = 9}, { a = 9 }, {c.d = 1, a = 9}]"},
        {"[[b]]\n[b.t]\na = 1\n[[b]]\n[b.t]\nc = 2\n", "b.t.a", "9",
         "[[b]]\n[b.t]\na = 9\n[[b]]\n[b.t]\nc = 2\na = 9\n"},
        {"[[b]]\nx = 1\n# about the second\n[[b]]\nx = 2\n[z]\n", "b.t.a", "9",
         "[[b]]\nx = 1\n\n[b.t]\na = 9\n\n# about the second\n[[b]]\nx = 2\n\n[b.t]\na = "
         "9\n\n[z]\n"},
        {"[[b]]\n[b.t.u]\n[z]\n[b.v]\n[y]\n[[b]]\n[b.t]\n", "b.t.a", "9",
         "[[b]]\n[b.t.u]\n[z]\n[b.v]\n\n[b.t]\na = 9\n\n[y]\n[[b]]\n[b.t]\na = 9\n"},
        {"[[a]]\n[[a.b]]\nx = 1\n[[a.b]]\n[[a]]\n[[a.b]]\n", "a.b.x", "2",
         "[[a]]\n[[a.b]]\nx = 2\n[[a.b]]\nx = 2\n[[a]]\n[[a.b]]\nx = 2\n"},
        {"[[a]]\n[[a.b]]\n[[a]]\n[[a.b]]\n", "a.b.c.x", "2",
         "[[a]]\n[[a.b]]\n\n[a.b.c]\nx = 2\n\n[[a]]\n[[a.b]]\n\n[a.b.c]\nx = 2\n"},
        {"[[a]]\nt.u = 1\n[[a]]\nt.v = 2\n", "a.t.x", "3",
         "[[a]]\nt.u = 1\nt.x = 3\n[[a]]\nt.v = 2\nt.x = 3\n"},
    };
    (void)state;
    CHECK_ALL(cases);
}

static void edit_refuses_what_it_cannot_do(void **state) {
    static const struct {
        edit_case c; // `after` is part of the message
        rn_status status;
    } cases[] = {
        {{"[t]\n", "t", "1", "a value of type table that has lines of its own"}, RN_UNSUPPORTED},
        {{"[t.u]\n", "t", "1", "line 1, column 2"}, RN_UNSUPPORTED},
        {{"t.a = 1\n", "t", "1", "lines of its own"}, RN_UNSUPPORTED},
        {{"[[t]]\n", "t", "1", "a value of type array that has lines of its own"}, RN_UNSUPPORTED},
        {{"a = 1\n", "a.b", "1",
          "line 1, column 5: the path leads to a value of type integer where a table"},
         RN_UNSUPPORTED},
        {{"a = [1, 2]\n", "a.b", "1", "column 6"}, RN_UNSUPPORTED},
        {{"a = [{}, 2]\n", "a.b", "1", "column 10"}, RN_UNSUPPORTED},
        {{"a = []\n", "a.b", "1", "no tables"}, RN_UNSUPPORTED},
        {{"a = [[{}]]\n", "a.b", "1", "type array where a table is needed"}, RN_UNSUPPORTED},
        {{"a = \n", "a", "1", "line 1, column 5"}, RN_CORRUPT},
        {{"a = 1", "a", "", "'' is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", "x", "'x' is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", "1 # c", "is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", " 1", "is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", "1 ", "is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", "1\nb = 2", "is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", "1\n[t]", "is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", "1\n", "is not one TOML value"}, RN_INVALID},
        {{"a = 1", "a", "'\xFF'", "is not one TOML value"}, RN_INVALID},
        {{"a = 1", "\xFF", "1", "not UTF-8"}, RN_INVALID},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const edit_case *c = &cases[i].c;
        char *out;
        size_t bytes;
        rn_status s = set(c, false, &out, &bytes);
        if (s != cases[i].status || !strstr(rn_last_error()->message, c->after))
            fail_msg("%s = %s in <<%s>> gave %s: %s", c->path, c->value, c->before,
                     rn_status_name(s), rn_last_error()->message);
        assert_null(out);
        assert_int_equal(bytes, 0);
    }
    assert_fails(RN_INVALID,
                 set(&(edit_case){"a = 1", "a", "text", ""}, false, &(char *){NULL}, &(size_t){0}));
    assert_string_equal(rn_last_error()->hint, "strings need quotes");
}

static void edit_refuses_an_empty_path(void **state) {
    char *out;
    size_t bytes;
    rn_toml_change change = {.value = RN_STR("1")};
    (void)state;
    assert_fails(RN_INVALID,
                 rn_toml_set(RN_STR("a = 1"), &change, &rn_system_allocator, &out, &bytes));
    assert_null(out);
}

// The result would be no document that can be read: it is parsed again before it is given out.
static void edit_refuses_a_result_past_the_limits(void **state) {
    char path[2 * MAX_NAMES] = "a", *out;
    size_t bytes;
    (void)state;
    for (int i = 0; i < 63; i++)
        strcat(path, ".a");
    check(&(edit_case){"a = {}", "a.b", "1", "a = { b = 1 }"}, false);
    edit_case deep = {"", path, "1", ""};
    assert_ok(set(&deep, false, &out, &bytes));
    rn_free(&rn_system_allocator, out, bytes);
    strcat(path, ".a");
    assert_fails(RN_UNSUPPORTED, set(&deep, false, &out, &bytes));
    assert_non_null(strstr(rn_last_error()->message, "nested more than 64 deep"));
    assert_null(out);
}

static void edit_refuses_to_grow_past_the_largest_file(void **state) {
    enum { ITEMS = 4000, VALUE_BYTES = 1 << 20 };
    rn_buffer text;
    char *out, *value = malloc(VALUE_BYTES);
    size_t bytes;
    (void)state;
    assert_non_null(value);
    memset(value, 'x', VALUE_BYTES);
    value[0] = value[VALUE_BYTES - 1] = '"';
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    for (int i = 0; i < ITEMS; i++)
        assert_ok(rn_buffer_append(&text, "[[t]]\n", 6));
    rn_str names[] = {RN_STR("t"), RN_STR("a")};
    rn_toml_change change = {names, 2, {value, VALUE_BYTES}, false};
    assert_fails(RN_UNSUPPORTED, rn_toml_set((rn_str){text.data, text.bytes}, &change,
                                             &rn_system_allocator, &out, &bytes));
    assert_non_null(strstr(rn_last_error()->message, "grow past"));
    rn_buffer_free(&text);
    free(value);
}

// Sections of 20000 items, and none is searched for from the start of the file.
static void edit_changes_many_items(void **state) {
    enum { ITEMS = 20000 };
    rn_buffer text, expected;
    char *out;
    size_t bytes;
    (void)state;
    rn_buffer_init(&text, &rn_system_allocator, 1 << 24);
    rn_buffer_init(&expected, &rn_system_allocator, 1 << 24);
    for (int i = 0; i < ITEMS; i++) {
        assert_ok(rn_sink_print(rn_buffer_sink(&text), "[[a]]\n[[a.b]]\n\n"));
        assert_ok(rn_sink_print(rn_buffer_sink(&expected), "[[a]]\n[[a.b]]\n\n[a.b.c]\nx = 2\n\n"));
    }
    rn_str names[] = {RN_STR("a"), RN_STR("b"), RN_STR("c"), RN_STR("x")};
    rn_toml_change change = {names, 4, RN_STR("2"), false};
    assert_ok(
        rn_toml_set((rn_str){text.data, text.bytes}, &change, &rn_system_allocator, &out, &bytes));
    assert_true(rn_str_equal((rn_str){out, bytes}, (rn_str){expected.data, expected.bytes}));
    rn_free(&rn_system_allocator, out, bytes);
    rn_buffer_free(&text);
    rn_buffer_free(&expected);
}

static void quote_escapes_what_a_string_cannot_hold(void **state) {
    static const struct {
        const char *raw;
        size_t bytes;
        const char *quoted;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain text", 10, "\"plain text\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\b\t\n\f\r", 5, "\"\\b\\t\\n\\f\\r\""},
        {"\0\x01\x1F\x7F", 4, "\"\\u0000\\u0001\\u001F\\u007F\""},
        {"\xC3\xA9\xE2\x82\xAC", 5, "\"\xC3\xA9\xE2\x82\xAC\""},
        {"# ' = [", 7, "\"# ' = [\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out, *edited;
        size_t bytes, edited_bytes;
        rn_toml *doc;
        rn_str back, raw = {cases[i].raw, cases[i].bytes};
        assert_ok(rn_toml_quote(raw, &rn_system_allocator, &out, &bytes));
        assert_true(rn_str_equal((rn_str){out, bytes}, rn_str_from(cases[i].quoted)));
        rn_toml_change change = {&RN_STR("a"), 1, {out, bytes}, false};
        assert_ok(rn_toml_set(RN_STR(""), &change, &rn_system_allocator, &edited, &edited_bytes));
        assert_ok(rn_toml_parse((rn_str){edited, edited_bytes}, &rn_system_allocator, &doc));
        assert_ok(rn_toml_get_string(rn_toml_find_path(rn_toml_root(doc), "a"), &back));
        assert_true(rn_str_equal(back, raw));
        rn_toml_free(doc);
        rn_free(&rn_system_allocator, out, bytes);
        rn_free(&rn_system_allocator, edited, edited_bytes);
    }
    char *out;
    size_t bytes;
    assert_fails(RN_INVALID, rn_toml_quote(RN_STR("\xC3"), &rn_system_allocator, &out, &bytes));
    assert_null(out);
}

static void edit_survives_every_failing_allocation(void **state) {
    static const edit_case cases[] = {
        {"[[b]]\n[b.t.u]\n[[b]]\nx = \"\\u0041\"\n", "b.t.x y", "[1, {a = 1_0.5}]",
         "[[b]]\n[b.t.u]\n\n[b.t]\n\"x y\" = [1, {a = 1_0.5}]\n\n[[b]]\nx = "
         "\"\\u0041\"\n\n[b.t]\n\"x y\" = "
         "[1, {a = 1_0.5}]\n"},
        {"a = 1", "a", "2", "a = 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t n = 1;; n++) {
            char *out;
            size_t bytes;
            rn_fault_arm(RN_FAULT_ALLOC, n);
            rn_status s = set(&cases[i], false, &out, &bytes);
            bool fired = rn_fault_fired(RN_FAULT_ALLOC);
            rn_fault_arm(RN_FAULT_ALLOC, 0);
            if (!fired) {
                assert_ok(s);
                assert_true(rn_str_equal((rn_str){out, bytes}, rn_str_from(cases[i].after)));
                rn_free(&rn_system_allocator, out, bytes);
                assert_true(n > 5);
                break;
            }
            assert_int_equal(s, RN_NO_MEMORY);
            assert_null(out);
        }
    }
}

static void quote_survives_every_failing_allocation(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        char *out;
        size_t bytes;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_toml_quote(RN_STR("a\nb"), &rn_system_allocator, &out, &bytes);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_free(&rn_system_allocator, out, bytes);
        if (!fired) break;
        assert_null(out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edit_replaces_a_value_in_place),
        cmocka_unit_test(edit_changes_inline_tables_and_dotted_keys),
        cmocka_unit_test(edit_adds_a_key_at_the_end_of_its_table),
        cmocka_unit_test(edit_adds_a_missing_table_at_the_end_of_the_file),
        cmocka_unit_test(edit_changes_all_items_of_an_array_of_tables),
        cmocka_unit_test(edit_refuses_what_it_cannot_do),
        cmocka_unit_test(edit_refuses_an_empty_path),
        cmocka_unit_test(edit_refuses_a_result_past_the_limits),
        cmocka_unit_test(edit_refuses_to_grow_past_the_largest_file),
        cmocka_unit_test(edit_changes_many_items),
        cmocka_unit_test(quote_escapes_what_a_string_cannot_hold),
        cmocka_unit_test(edit_survives_every_failing_allocation),
        cmocka_unit_test(quote_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
