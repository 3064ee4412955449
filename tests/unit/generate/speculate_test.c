// Guesses: what followed the last time, and how many to make.
#include "support.h"

#include "generate/speculate.h"

static void expect(const uint32_t *text, uint32_t count, const uint32_t *draft, uint32_t most,
                   uint32_t found) {
    uint32_t tokens[32];
    memcpy(tokens, text, count * sizeof *tokens);
    assert_int_equal(rn_draft_find(tokens, count, most), found);
    assert_memory_equal(tokens, text, count * sizeof *tokens);
    assert_memory_equal(tokens + count, draft, found * sizeof *tokens);
}

#define LIST(...) (uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

static void the_guess_is_what_followed_the_last_time(void **state) {
    (void)state;
    expect(LIST(1, 2, 3, 4, 5, 9, 1, 2, 3), (uint32_t[]){4, 5, 9}, 3, 3);
    expect(LIST(1, 2, 3, 4, 1, 2, 3, 7, 1, 2, 3), (uint32_t[]){7, 1}, 2, 2); // the last one
    expect(LIST(5, 2, 3, 4, 9, 2, 3), (uint32_t[]){4}, 1, 1);                // two will do
    expect(LIST(1, 2, 3, 4, 9, 2, 3, 8, 1, 2, 3), (uint32_t[]){4, 9}, 2, 2); // three are better
}

static void a_guess_that_reaches_the_end_repeats_itself(void **state) {
    (void)state;
    expect(LIST(6, 7, 6, 7, 6), (uint32_t[]){7, 6, 7, 6, 7}, 5, 5);
    expect(LIST(4, 4, 4), (uint32_t[]){4, 4, 4, 4}, 4, 4);
}

static void nothing_that_was_there_before_gives_no_guess(void **state) {
    (void)state;
    expect(LIST(1, 2, 3, 4, 5), NULL, 4, 0);
    expect(LIST(1, 1), NULL, 4, 0);
    expect(LIST(1), NULL, 4, 0);
    expect(LIST(1, 2, 1, 2), NULL, 0, 0); // nor where none is wanted
}

static void the_number_of_guesses_follows_their_success(void **state) {
    (void)state;
    assert_int_equal(rn_draft_adapt(4, 4, 4, 8), 8);
    assert_int_equal(rn_draft_adapt(8, 8, 8, 8), 8);
    assert_int_equal(rn_draft_adapt(8, 8, 3, 8), 4);
    assert_int_equal(rn_draft_adapt(8, 8, 0, 8), 1);
    assert_int_equal(rn_draft_adapt(1, 1, 0, 8), 1);
    assert_int_equal(rn_draft_adapt(5, 0, 0, 8), 5); // nothing was drafted
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_guess_is_what_followed_the_last_time),
        cmocka_unit_test(a_guess_that_reaches_the_end_repeats_itself),
        cmocka_unit_test(nothing_that_was_there_before_gives_no_guess),
        cmocka_unit_test(the_number_of_guesses_follows_their_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
