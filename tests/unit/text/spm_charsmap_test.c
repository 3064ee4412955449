// spm_charsmap_test.c — a replacement table made by hand, and ways to break it.
#include "support.h"

#include "base/str.h"
#include "memory/account.h"
#include "text/charsmap.h"

#define LEAF  0x80000000u
#define HAS   0x100u
#define UNITS 256

typedef struct table {
    uint32_t trie_bytes;
    uint32_t units[UNITS];
    char texts[16];
} table;

// "A" becomes "xy", "AB" nothing. The root's children are at their own byte, those of "A" at
// 1 ^ byte, leaves at 1 and 2.
static table make(void) {
    table t = {.trie_bytes = UNITS * 4, .texts = "xy\0\0"};
    t.units['A'] = ('A' ^ 1u) << 10 | HAS | 'A';
    t.units[1] = LEAF | 0;
    t.units[1 ^ 'B'] = (1u ^ 'B' ^ 2u) << 10 | HAS | 'B';
    t.units[2] = LEAF | 3;
    return t;
}

static rn_status init(rn_charsmap *map, const table *t, size_t bytes) {
    return rn_charsmap_init(map, RN_HOST_OTHER, (rn_str){(const char *)t, bytes});
}

static void the_longest_rule_counts(void **state) {
    (void)state;
    table t = make();
    rn_charsmap map;
    rn_str out;
    assert_ok(init(&map, &t, sizeof t));
    assert_int_equal(rn_charsmap_find(&map, RN_STR("AC"), &out), 1);
    assert_true(rn_str_equal(out, RN_STR("xy")));
    assert_int_equal(rn_charsmap_find(&map, RN_STR("ABA"), &out), 2);
    assert_int_equal(out.bytes, 0);
    assert_int_equal(rn_charsmap_find(&map, RN_STR("BA"), &out), 0);
    assert_int_equal(rn_charsmap_find(&map, RN_STR(""), &out), 0);
    assert_true(map.starts['A'] && !map.starts['B']);
    rn_charsmap_free(&map);
}

static void an_empty_table_has_no_rules(void **state) {
    (void)state;
    rn_charsmap map;
    rn_str out;
    assert_ok(rn_charsmap_init(&map, RN_HOST_OTHER, (rn_str){0}));
    assert_int_equal(rn_charsmap_find(&map, RN_STR("A"), &out), 0);
    rn_charsmap_free(&map);
}

static void sizes_that_do_not_fit_are_refused(void **state) {
    (void)state;
    table t = make();
    rn_charsmap map;
    for (size_t bytes = 1; bytes <= 4 + UNITS * 4; bytes++)
        assert_fails(RN_CORRUPT, init(&map, &t, bytes));
    const uint32_t wrong[] = {0, 4, UNITS * 4 - 4, UNITS * 4 + 4, UINT32_MAX, UINT32_MAX - 3};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        t.trie_bytes = wrong[i];
        assert_fails(RN_CORRUPT, init(&map, &t, sizeof t));
    }
}

static void units_that_point_outside_are_refused(void **state) {
    (void)state;
    rn_charsmap map;
    table t = make();
    t.units['A'] = UNITS << 10 | 'A';
    assert_fails(RN_CORRUPT, init(&map, &t, sizeof t));
    t.units['A'] = 0x7ffffc00u | 0x200 | 'A'; // the largest offset, shifted
    assert_fails(RN_CORRUPT, init(&map, &t, sizeof t));
    t = make();
    t.units[1] = LEAF | sizeof t.texts;
    assert_fails(RN_CORRUPT, init(&map, &t, sizeof t));
    t = make();
    t.units[0] = LEAF;
    assert_fails(RN_CORRUPT, init(&map, &t, sizeof t));
}

// The last replacement need not end with a NUL; one that is too long is not taken.
static void replacements_end(void **state) {
    (void)state;
    struct {
        table t;
        char more[RN_CHARSMAP_LONGEST + 8];
    } big = {.t = make()};
    rn_charsmap map;
    rn_str out;
    memset(big.t.texts, 'z', sizeof big.t.texts);
    assert_ok(init(&map, &big.t, sizeof big.t));
    assert_int_equal(rn_charsmap_find(&map, RN_STR("A"), &out), 1);
    assert_int_equal(out.bytes, sizeof big.t.texts);
    rn_charsmap_free(&map);
    memset(big.more, 'z', sizeof big.more);
    assert_fails(RN_UNSUPPORTED, init(&map, &big.t, sizeof big));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_rule_counts),
        cmocka_unit_test(an_empty_table_has_no_rules),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(units_that_point_outside_are_refused),
        cmocka_unit_test(replacements_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
