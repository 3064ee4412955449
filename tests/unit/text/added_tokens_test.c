// Added tokens: the leftmost, the longest, and what they take with them.
#include "support.h"
#include "text/added_tokens.h"

static void add(rn_added *added, const char *content, uint32_t id, bool special) {
    rn_added_token token = {.content = rn_str_from(content), .id = id, .special = special};
    assert_ok(rn_added_add(added, token));
}

static void expect(const rn_added *added, const char *text, size_t at, bool special, int id,
                   size_t start, size_t end) {
    rn_added_match match = rn_added_find(added, rn_str_from(text), (rn_taint){0}, at, special);
    assert_int_equal(match.token ? (int)match.token->id : -1, id);
    if (!match.token) return;
    assert_int_equal(match.start, start);
    assert_int_equal(match.end, end);
}

static void the_leftmost_and_there_the_longest_is_found(void **state) {
    (void)state;
    rn_added added = {.from = &rn_system_allocator};
    add(&added, "<|a|>", 1, true);
    add(&added, "<|a|>b", 2, true);
    add(&added, "<|", 3, false);
    add(&added, "b", 4, true);
    assert_ok(rn_added_seal(&added));
    expect(&added, "x<|a|>bc", 0, true, 2, 1, 7);
    expect(&added, "x<|a|>c", 0, true, 1, 1, 6);
    expect(&added, "x<|a|", 0, true, 3, 1, 3);
    expect(&added, "<|a|>b", 1, true, 4, 5, 6);
    expect(&added, "x<a>", 0, true, -1, 0, 0);
    expect(&added, "", 0, true, -1, 0, 0);
    // Without special tokens only the ordinary one is left.
    expect(&added, "x<|a|>bc", 0, false, 3, 1, 3);
    expect(&added, "b", 0, false, -1, 0, 0);
    assert_int_equal(rn_added_get(&added, RN_STR("<|a|>"))->id, 1);
    assert_null(rn_added_get(&added, RN_STR("<|a")));
    assert_null(rn_added_get(&added, RN_STR("")));
    rn_added_free(&added);
}

static void white_space_at_its_sides_is_taken_where_it_says_so(void **state) {
    (void)state;
    rn_added added = {.from = &rn_system_allocator};
    rn_added_token token = {.content = RN_STR("<m>"), .id = 7, .lstrip = true, .rstrip = true};
    assert_ok(rn_added_add(&added, token));
    assert_ok(rn_added_seal(&added));
    expect(&added, "a \xC2\xA0<m>\t b", 0, false, 7, 1, 9);
    expect(&added, "a  <m>", 2, false, 7, 2, 6); // not before where the search begins
    rn_added_free(&added);
}

static void a_single_word_is_not_found_within_a_word(void **state) {
    (void)state;
    rn_added added = {.from = &rn_system_allocator};
    rn_added_token token = {.content = RN_STR("ing"), .id = 7, .single_word = true};
    assert_ok(rn_added_add(&added, token));
    assert_ok(rn_added_seal(&added));
    expect(&added, "sing ing", 0, false, 7, 5, 8);
    expect(&added, "ings \xC3\xA9ing", 0, false, -1, 0, 0);
    expect(&added, "-ing.", 0, false, 7, 1, 4);
    rn_added_free(&added);
}

static void an_empty_one_is_refused(void **state) {
    (void)state;
    rn_added added = {.from = &rn_system_allocator};
    assert_fails(RN_CORRUPT, rn_added_add(&added, (rn_added_token){.id = 1}));
    rn_added_free(&added);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_leftmost_and_there_the_longest_is_found),
        cmocka_unit_test(white_space_at_its_sides_is_taken_where_it_says_so),
        cmocka_unit_test(a_single_word_is_not_found_within_a_word),
        cmocka_unit_test(an_empty_one_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
