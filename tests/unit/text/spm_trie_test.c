// spm_trie_test.c — texts are found, prefixes and strangers are not, whatever their bytes.
#include "support.h"

#include "base/str.h"
#include "memory/account.h"
#include "text/spm_trie.h"

static rn_spm_trie build(rn_spm_key *keys, size_t count) {
    rn_spm_trie trie;
    assert_ok(rn_spm_trie_build(&trie, RN_HOST_OTHER, keys, count));
    return trie;
}

static void texts_are_found_and_others_are_not(void **state) {
    (void)state;
    rn_spm_key keys[] = {{.text = RN_STR("and"), .id = 0},  {.text = RN_STR("a"), .id = 1},
                         {.text = RN_STR("ant"), .id = 2},  {.text = RN_STR("\0\0x"), .id = 3},
                         {.text = RN_STR("\xff"), .id = 4}, {.text = RN_STR("\0"), .id = 5}};
    rn_spm_trie trie = build(keys, 6);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("and")), 0);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("a")), 1);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("ant")), 2);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("\0\0x")), 3);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("\xff")), 4);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("\0")), 5);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("an")), RN_NO_TOKEN);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("ants")), RN_NO_TOKEN);
    assert_int_equal(rn_spm_trie_find(&trie, RN_STR("")), RN_NO_TOKEN);
    assert_int_equal(rn_spm_trie_longest(&trie, "andy", 4), 3);
    assert_int_equal(rn_spm_trie_longest(&trie, "anx", 3), 1);
    assert_int_equal(rn_spm_trie_longest(&trie, "b", 1), 0);
    rn_spm_trie_free(&trie);
}

static void an_empty_trie_finds_nothing(void **state) {
    (void)state;
    rn_spm_trie trie = build(NULL, 0);
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(rn_spm_trie_step(&trie, RN_SPM_ROOT, (char)byte), RN_SPM_NOWHERE);
    rn_spm_trie_free(&trie);
}

static void a_text_twice_is_refused(void **state) {
    (void)state;
    rn_spm_key keys[] = {{.text = RN_STR("same"), .id = 3},
                         {.text = RN_STR("other"), .id = 4},
                         {.text = RN_STR("same"), .id = 5}};
    rn_spm_trie trie;
    assert_fails(RN_CORRUPT, rn_spm_trie_build(&trie, RN_HOST_OTHER, keys, 3));
    assert_non_null(strstr(rn_last_error()->message, "same"));
}

// All texts of one and two bytes, and a chain that is deeper than any stack would like.
static void full_nodes_and_long_chains_work(void **state) {
    (void)state;
    enum { PAIRS = 256 * 256, LONG = 50000 };
    rn_spm_key *keys = calloc(PAIRS + 257, sizeof *keys);
    char *bytes = malloc(PAIRS * 2 + LONG);
    for (uint32_t i = 0; i < PAIRS; i++) {
        bytes[i * 2] = (char)(i >> 8);
        bytes[i * 2 + 1] = (char)i;
        keys[i] = (rn_spm_key){.text = {bytes + i * 2, 2}, .id = i};
        if (i % 256 == 0) keys[PAIRS + i / 256] = (rn_spm_key){.text = {bytes + i * 2, 1}, .id = i};
    }
    memset(bytes + PAIRS * 2, 'x', LONG);
    keys[PAIRS + 256] = (rn_spm_key){.text = {bytes + PAIRS * 2, LONG}, .id = 7};
    rn_spm_trie trie = build(keys, PAIRS + 257);
    for (uint32_t i = 0; i < PAIRS; i++) {
        assert_int_equal(rn_spm_trie_find(&trie, (rn_str){bytes + i * 2, 2}), i);
        assert_int_equal(rn_spm_trie_find(&trie, (rn_str){bytes + i * 2, 1}), i & 0xff00);
    }
    assert_int_equal(rn_spm_trie_find(&trie, (rn_str){bytes + PAIRS * 2, LONG}), 7);
    assert_int_equal(rn_spm_trie_find(&trie, (rn_str){bytes + PAIRS * 2, LONG - 1}), RN_NO_TOKEN);
    assert_true(trie.count < 2 * (PAIRS + LONG)); // holes are filled
    rn_spm_trie_free(&trie);
    free(bytes);
    free(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_found_and_others_are_not),
        cmocka_unit_test(an_empty_trie_finds_nothing),
        cmocka_unit_test(a_text_twice_is_refused),
        cmocka_unit_test(full_nodes_and_long_chains_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
