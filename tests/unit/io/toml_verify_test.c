// toml_verify_test.c — the check of an edit notices whatever else has changed.
#include "support.h"

#include "io/toml_editor.h"

static bool verify(const char *before, const char *after, const char *value, size_t path_count) {
    static const rn_str path[] = {RN_STR("t"), RN_STR("k")};
    const rn_toml_change change = {.path = path, .path_count = path_count};
    rn_toml *docs[3];
    const char *texts[] = {before, after, value};
    for (size_t i = 0; i < 3; i++)
        assert_ok(rn_toml_parse(rn_str_from(texts[i]), &rn_system_allocator, &docs[i]));
    bool good = rn_toml_verify(&change, rn_toml_root(docs[0]), rn_toml_root(docs[1]),
                               rn_toml_first(rn_toml_root(docs[2])));
    for (size_t i = 0; i < 3; i++)
        rn_toml_free(docs[i]);
    return good;
}

// The path is t.k, the new value 2.
static void verify_accepts_that_value_alone(void **state) {
    static const char *const pairs[][2] = {
        {"t.k = 1", "t.k = 2"},
        {"t.k = 2", "t.k = 2"},
        {"", "[t]\nk = 2"},
        {"", "[[t]]\nk = 2"},
        {"t.a = 1", "t.a = 1\nt.k = 2"},
        {"[[t]]\n[[t]]\nk = 1", "[[t]]\nk = 2\n[[t]]\nk = 2"},
        {"a = [1, {b = nan}]\nt.k = 1", "t = {k = 2}\na = [1, {b = nan}]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!verify(pairs[i][0], pairs[i][1], "v = 2", 2))
            fail_msg("<<%s>> is a good edit of <<%s>>", pairs[i][1], pairs[i][0]);
}

static void verify_refuses_any_other_change(void **state) {
    static const char *const pairs[][2] = {
        {"t.k = 1", "t.k = 1"},
        {"t.k = 1", "t.k = 2.0"},
        {"t.k = 1", "t.k = 3"},
        {"t.k = 1", "t.j = 2"},
        {"t.k = 1", "t = 2"},
        {"t.k = 1", "k = 2"},
        {"t.k = 1", "[[t]]\nk = 2"},
        {"t = 1", "t = 1"},
        {"", "t.k = 2\nx = 1"},
        {"", "t.k = 2\nt.x = 1"},
        {"", "t = 2"},
        {"", "[[t]]\nk = 2\n[[t]]"},
        {"", "t.k.k = 2"},
        {"a = 1\nt.k = 1", "t.k = 2"},
        {"a = 1\nt.k = 1", "b = 1\nt.k = 2"},
        {"a = 1\nt.k = 1", "a = 2\nt.k = 2"},
        {"a = 1\nt.k = 1", "a = '1'\nt.k = 2"},
        {"a = 'x'\nt.k = 1", "a = 'y'\nt.k = 2"},
        {"a = 0.0\nt.k = 1", "a = -0.0\nt.k = 2"},
        {"a = true\nt.k = 1", "a = false\nt.k = 2"},
        {"a = 07:32:00\nt.k = 1", "a = 07:32:01\nt.k = 2"},
        {"a = 1979-05-27T07:32:00Z\nt.k = 1", "a = 1979-05-27T07:32:00+00:01\nt.k = 2"},
        {"a = [1, 2]\nt.k = 1", "a = [1, 3]\nt.k = 2"},
        {"a = [1, 2]\nt.k = 1", "a = [1]\nt.k = 2"},
        {"a = {b = 1}\nt.k = 1", "a = {c = 1}\nt.k = 2"},
        {"a = {b = 1, c = 2}\nt.k = 1", "a = {c = 2, b = 1}\nt.k = 2"},
        {"t.a = 1\nt.k = 1", "t.a = 2\nt.k = 2"},
        {"[[t]]\n[[t]]", "[[t]]\nk = 2\n[[t]]"},
        {"[[t]]\n[[t]]", "[[t]]\nk = 2"},
        {"[[t]]\na = 1", "[[t]]\nk = 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (verify(pairs[i][0], pairs[i][1], "v = 2", 2))
            fail_msg("<<%s>> is no edit of <<%s>>", pairs[i][1], pairs[i][0]);
}

static void verify_compares_the_new_value_itself(void **state) {
    (void)state;
    assert_true(verify("t = 1", "t = [nan, {a = 'x'}]", "v = [nan, {a = 'x'}]", 1));
    assert_false(verify("t = 1", "t = [nan, {a = 'x'}]", "v = [nan, {a = 'y'}]", 1));
    assert_false(verify("t = 1", "t = [nan, {a = 'x'}]", "v = [inf, {a = 'x'}]", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_accepts_that_value_alone),
        cmocka_unit_test(verify_refuses_any_other_change),
        cmocka_unit_test(verify_compares_the_new_value_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
